"""The `Retriever` interface, the `Ranking` it returns, and saved indexes."""

from __future__ import annotations

import json
import logging
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from citerec.base.errors import InputError
from citerec.base.files import atomic_folder
from citerec.datasets.columns import save_arrays
from citerec.datasets.corpus import Corpus, Split
from citerec.retrieval.arrays import Floats, Mask, Rows, load_arrays
from citerec.retrieval.queries import Queries

if TYPE_CHECKING:
    from citerec.retrieval.filters import Filters

log = logging.getLogger(__name__)

_LAST = np.uint64(0xFFFF_FFFF_FFFF_FFFF)
_SIGN = np.uint32(0x8000_0000)


@dataclass(frozen=True)
class Ranking:
    """Ranked papers, one row per query.

    papers: int32 [Q, k], rows of the corpus, best first, padded with -1 if there are fewer than k candidates.
    scores: float32 [Q, k], descending; -inf where `papers` is -1. Ties are broken by paper row.
    queries: [Q], set by `Retriever.search`, so that a ranking can be evaluated or written by itself.
    """

    papers: NDArray[np.int32]
    scores: Floats
    queries: Queries | None = None

    def __len__(self) -> int:
        return len(self.papers)

    @property
    def k(self) -> int:
        return self.papers.shape[1]

    def scores_of(self, papers: NDArray[np.int32]) -> Floats:
        """The scores of papers [Q, K]; -inf for papers that the ranking lacks, and for -1."""
        scores = np.full(papers.shape, -np.inf, np.float32)
        for own, wanted, listed, values in zip(scores, papers, self.papers, self.scores, strict=True):
            column, rank = np.nonzero((wanted[:, None] == listed) & (wanted[:, None] >= 0))
            own[column] = values[rank]
        return scores

    @staticmethod
    def concat(parts: Sequence[Ranking]) -> Ranking:
        """Concatenate rankings of different queries and the same k."""
        return Ranking(np.concatenate([p.papers for p in parts]), np.concatenate([p.scores for p in parts]))


def empty_rankings(queries: int, k: int) -> tuple[NDArray[np.int32], Floats]:
    """Papers and scores [queries, k] of empty rankings."""
    return np.full((queries, k), -1, np.int32), np.full((queries, k), -np.inf, np.float32)


def top_k(
    papers: NDArray[np.integer], scores: NDArray[np.floating], k: int, drop: Mask | None = None
) -> Ranking:
    """The k best of each row by descending score, then by paper row, padded to k.

    papers: int [Q, n], -1 for none; scores: float [Q, n]; drop: bool [Q, n], entries to leave out.
    """
    n = papers.shape[1]
    left_out = papers < 0 if drop is None else (papers < 0) | drop
    values = np.asarray(scores, dtype=np.float32) + np.float32(0)  # turns -0.0 into 0.0, copies
    # One integer per entry that ascends with (-score, row): numpy sorts integers far faster than it argsorts.
    bits = values.view(np.uint32)
    ascending = np.where(bits & _SIGN, ~bits, bits | _SIGN)
    keys = (~ascending).astype(np.uint64) << np.uint64(32) | papers.astype(np.uint32)
    keys[left_out] = _LAST
    keys.sort(axis=1)
    if n < k:
        keys = np.pad(keys, ((0, 0), (0, k - n)), constant_values=_LAST)
    keys = keys[:, :k]

    best = keys.astype(np.uint32).view(np.int32)  # the low 32 bits
    ascending = ~(keys >> np.uint64(32)).astype(np.uint32)
    bits = np.where(ascending & _SIGN, ascending ^ _SIGN, ~ascending)
    return Ranking(best, np.where(best < 0, np.float32(-np.inf), bits.view(np.float32)))


class Retriever(ABC):
    """Ranks the candidates of a corpus for queries.

    Subclasses implement `settings`, `_index` and `_search`, and either list the `arrays` of their index or
    override `_save` and `_load`. Optional capabilities are attributes and methods below, so that callers
    need no `isinstance`.
    """

    name: str
    arrays: tuple[str, ...] = ()
    """arrays of a saved index: NAME.npy for each attribute `_NAME`"""
    per_pool = False
    """whether scores depend on the other papers of a pool, so that each pool needs its own index"""
    reads_contexts = True
    """whether the index depends on training contexts; if not, corpora of the same papers can share it"""
    tunable: tuple[str, ...] = ()
    """parameters of `set_parameters` to tune on validation data"""
    partial = False
    """whether only some contexts can be ranked, those that `covers` accepts"""
    protocol = ""
    """note for reports if queries consist of more than texts"""
    log_probabilities = False
    """whether scores are logarithms of probabilities that a paper is the one meant"""
    comparable = False
    """whether scores mean the same for all queries and corpora"""

    _joined: Mapping[str, Retriever] = MappingProxyType({})
    """retrievers that it combines, by name: their indexes are part of its own"""

    def __init__(self) -> None:
        self._corpus: Corpus | None = None
        self.tuned: dict[str, Any] = {}
        """Parameters that `index` tuned on the validation split, as plain values."""
        self.reused = False
        """Whether `index` reused earlier work, so that its duration means nothing."""

    @property
    def corpus(self) -> Corpus:
        """The indexed corpus; RuntimeError before `index`."""
        if self._corpus is None:
            raise RuntimeError(f"{self.name}: call index(corpus) before search")
        return self._corpus

    # Optional capabilities.

    def set_parameters(self, **values: float) -> None:
        """Set `tunable` parameters for corpora that are indexed from now on."""
        raise NotImplementedError(f"{self.name} has no parameters to tune")

    def covers(self, contexts: Rows) -> Mask:
        """Mask [Q] of the contexts of the indexed corpus that papers can be ranked for."""
        covered = [part.covers(contexts) for part in self._joined.values()]
        return np.logical_and.reduce([np.ones(len(contexts), np.bool_), *covered])

    def max_results(self, contexts: Rows) -> int | None:
        """Maximum number of papers that any of these contexts can get; None means all candidates."""
        return None

    def join_parts(self, parts: Mapping[str, Retriever]) -> None:
        """Combine retrievers: join their protocol notes, and rank only what all of them can."""
        self._joined, self.partial = parts, any(part.partial for part in parts.values())
        self.protocol = " ".join(dict.fromkeys(part.protocol for part in parts.values() if part.protocol))

    def index_parts(self, parts: Mapping[str, Retriever], corpus: Corpus) -> None:
        """Index the parts and add what they have tuned."""
        for name, part in parts.items():
            part.index(corpus)
            self.tuned |= {f"{name}.{key}": value for key, value in part.tuned.items()}

    def supports(self, corpus: Corpus) -> bool:
        """Whether the corpus has the data that indexing needs, such as training contexts."""
        return all(part.supports(corpus) for part in self._joined.values())

    def explain(self, queries: Queries, papers: NDArray[np.int32]) -> dict[str, Floats]:
        """Components of the scores of papers [Q, K]: float32 [Q, K] by name; empty if not supported."""
        return {}

    # Indexing and searching.

    def index(self, corpus: Corpus) -> Self:
        """Index the candidates of a corpus, in place of any indexed before; return the retriever.

        Everything that is learned from the corpus is learned here: models from the training split, tuned
        settings from the validation split.
        """
        self._corpus, self.tuned, self.reused = None, {}, False
        self._prepare(corpus)
        self._index(corpus)
        self._corpus = corpus
        return self

    def search(self, queries: Queries | Split | Rows, k: int, filters: Filters | None = None) -> Ranking:
        """The k best candidates of each query, without its citing paper.

        queries: [Q], a split, or rows of contexts. Memory grows with Q * k: search large sets in batches.
        filters: which candidates may be returned; the result is the same as for a corpus without the others
        (see retrieval.indexes.index for approximate indexes).
        Raises InputError if a score is NaN.
        """
        corpus = self.corpus
        if k < 1:
            raise ValueError(f"k must be at least 1, not {k}")
        queries = Queries.from_contexts(corpus, queries)
        if not filters:
            return replace(self.search_allowed(queries, k, None), queries=queries)
        papers, scores = empty_rankings(len(queries), k)
        for rows, allowed in filters.groups(queries):
            ranking = self.search_allowed(queries[rows], k, allowed)
            papers[rows], scores[rows] = ranking.papers, ranking.scores
        return Ranking(papers, scores, queries)

    def search_allowed(self, queries: Queries | Rows, k: int, allowed: Mask | None) -> Ranking:
        """Search among the papers allowed [P] for all of these queries; None means all candidates."""
        corpus = self.corpus
        queries = Queries.from_contexts(corpus, queries)
        eligible = corpus.is_candidate if allowed is None else allowed
        # The citing paper may be among the first k, so fetch one more.
        depth = min(k + 1, int(np.count_nonzero(eligible)))
        if len(queries) == 0 or depth == 0:
            return Ranking(*empty_rankings(len(queries), k))
        ranking = self._search(queries, depth, allowed)
        wrong = (np.isnan(ranking.scores) & (ranking.papers >= 0)).any(axis=1)
        if wrong.any():
            names = queries[np.flatnonzero(wrong)[:5]].names()
            raise InputError(
                f"retriever={self.name}: NaN scores for {np.count_nonzero(wrong):,} queries, such as "
                f"{', '.join(names)}; its weights or vectors are damaged"
            )
        drop = queries.is_own(ranking.papers) | ~eligible[ranking.papers]
        return top_k(ranking.papers, ranking.scores, k, drop)

    def score(self, queries: Queries | Rows, papers: NDArray[np.int32]) -> Floats:
        """The scores that `search` gives these papers, float32 [Q, K]; -inf for papers it does not find.

        papers: int32 [Q, K], rows of candidates, each at most once per query; -1 for none.
        """
        queries = Queries.from_contexts(self.corpus, queries)
        scores = np.full(papers.shape, -np.inf, np.float32)
        for query, wanted in enumerate(papers):
            allowed = np.zeros(len(self.corpus.paper_ids), np.bool_)
            allowed[wanted[wanted >= 0]] = True
            allowed &= self.corpus.is_candidate
            ranking = self.search_allowed(queries[query : query + 1], papers.shape[1], allowed)
            scores[query] = ranking.scores_of(wanted[None])
        return scores

    # Saved indexes.

    def save(self, folder: str | Path) -> None:
        """Write the index to a folder, atomically; InputError if the retriever does not tell what to save."""
        self._refuse_empty()
        with new_index(Path(folder), self._origin(self.corpus), self.tuned) as part:
            self._save(part)

    def load(self, folder: str | Path, corpus: Corpus) -> None:
        """Load an index written by `save`; its large arrays are memory-mapped.

        Raises InputError if it belongs to another retriever, corpus, weights or settings, or is damaged.
        """
        self._corpus = None
        self.tuned = read_index(Path(folder), self._origin(corpus))
        self._prepare(corpus)
        self._load(Path(folder), corpus)
        self._corpus = corpus

    def open(self, corpus: Corpus, folder: str | Path | None) -> None:
        """Load the index from the folder, or build it and save it there; without a folder, only build it."""
        if folder is not None and has_index(Path(folder)):
            self.load(folder, corpus)
            log.info("%s: loaded the index from %s", self.name, folder)
            return
        if folder is not None:
            self._refuse_empty()
        self.index(corpus)
        if folder is not None:
            self.save(folder)
            size = folder_bytes(Path(folder))
            log.info("%s: saved the index in %s, %s bytes", self.name, folder, f"{size:,}")

    def _refuse_empty(self) -> None:
        if not self.arrays and not self._joined and type(self)._save is Retriever._save:
            raise InputError(
                f"{self.name}: its index cannot be saved: {type(self).__name__} neither lists `arrays` "
                "nor overrides `_save` and `_load`; leave out index_dir"
            )

    def _origin(self, corpus: Corpus) -> dict[str, Any]:
        return {"retriever": self.name, "corpus": corpus.fingerprint, **self.settings()}

    @property
    def index_bytes(self) -> int:
        """Size of the searched data in bytes, without texts and models."""
        own = sum(getattr(self, f"_{name}").nbytes for name in self.arrays)
        return own + sum(part.index_bytes for part in self._joined.values())

    def query_settings(self) -> dict[str, Any]:
        """Settings of the search that the index does not depend on, as plain values."""
        parts = {name: part.query_settings() for name, part in self._joined.items()}
        return {name: settings for name, settings in parts.items() if settings}

    @abstractmethod
    def settings(self) -> dict[str, Any]:
        """Everything the index depends on besides the corpus, as plain values: options, a hash of weights."""

    def _prepare(self, corpus: Corpus) -> None:  # noqa: B027  (most need nothing)
        """Prepare for a corpus that is then indexed, or whose index is loaded."""

    @abstractmethod
    def _index(self, corpus: Corpus) -> None: ...

    @abstractmethod
    def _search(self, queries: Queries, k: int, allowed: Mask | None) -> Ranking:
        """The k best allowed papers for each query, or fewer if no more match.

        allowed: bool [P], the papers that may be returned; None means all candidates. k does not exceed their
        number. The caller drops the citing paper and any paper that is not allowed.
        """

    def _save(self, folder: Path) -> None:
        """Write the index into an empty folder."""
        save_arrays(folder, **{name: getattr(self, f"_{name}") for name in self.arrays})
        for name, part in self._joined.items():
            part.save(folder / name)

    def _load(self, folder: Path, corpus: Corpus) -> None:
        """Read the files written by `_save`."""
        for name, array in zip(self.arrays, load_arrays(folder, *self.arrays), strict=True):
            setattr(self, f"_{name}", array)
        for name, part in self._joined.items():
            part.load(folder / name, corpus)


FORMAT = 4
MANIFEST = "index.json"


class OtherIndex(InputError):
    """An index of another retriever, corpus, model or version."""


def has_index(folder: Path) -> bool:
    """True if the folder contains an index of any retriever."""
    return (folder / MANIFEST).is_file()


def folder_bytes(folder: Path) -> int:
    """Total size of the files in a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


@contextmanager
def new_index(folder: Path, origin: Mapping[str, Any], tuned: Mapping[str, Any]) -> Iterator[Path]:
    """A temporary folder for the files of an index, which replaces `folder` on success.

    origin: what the index belongs to (retriever, corpus, settings); tuned: parameters chosen by indexing;
    both are written to the manifest.
    Raises InputError if `folder` contains anything but an index.
    """
    from citerec.base.checksums import write_checksums  # not needed without a folder

    if folder.exists() and not has_index(folder) and not (folder.is_dir() and not any(folder.iterdir())):
        raise InputError(f"{folder}: contains something other than an index; name another folder")
    with atomic_folder(folder) as part:
        yield part
        manifest = {"format": FORMAT, "about": dict(origin), "tuned": dict(tuned)}
        (part / MANIFEST).write_text(json.dumps(manifest, indent=1) + "\n", encoding="utf-8")
        write_checksums(part)


def read_index(folder: Path, origin: Mapping[str, Any]) -> dict[str, Any]:
    """The tuned parameters of a saved index; InputError if damaged, OtherIndex if of another `origin`."""
    from citerec.base.checksums import check_checksums

    if not has_index(folder):
        raise InputError(f"{folder}: not an index (no {MANIFEST})")
    check_checksums(folder, "rebuild the index in another folder")
    manifest = json.loads((folder / MANIFEST).read_text("utf-8"))
    if manifest["format"] != FORMAT:
        raise OtherIndex(
            f"{folder}: an index of format {manifest['format']!r}, this version reads {FORMAT}; rebuild the "
            "index in another folder"
        )
    saved = manifest["about"]
    wanted = json.loads(json.dumps(dict(origin)))  # tuples become lists, as in the file
    for key in [*wanted, *saved]:
        if wanted.get(key) != saved.get(key):
            texts = (str(values.get(key)) for values in (saved, wanted))
            there, here = (text if len(text) <= 60 else f"{text[:57]}..." for text in texts)
            raise OtherIndex(
                f"{folder}: the index was built with {key}={there}, not {here}; "
                "rebuild the index in another folder"
            )
    return dict(manifest["tuned"])
