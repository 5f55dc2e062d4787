"""What every retriever is: `Retriever`, the `Ranking` that it returns, and saved indexes."""

from __future__ import annotations

import json
import logging
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from datasets.columns import save_arrays
from datasets.corpus import Corpus
from datasets.errors import InputError
from datasets.files import atomic_folder
from retrieval.arrays import Floats, Mask, Rows, load_arrays
from retrieval.filters import Filters
from retrieval.queries import Queries

log = logging.getLogger(__name__)

ENCODINGS = ("local", "ray")

_LAST = np.uint64(0xFFFF_FFFF_FFFF_FFFF)
_SIGN = np.uint32(0x8000_0000)


@dataclass(frozen=True)
class Ranking:
    """Ranked papers, one row per query.

    papers: int32 [Q, k], rows of the corpus, best first; -1 where there are fewer than k candidates.
    scores: float32 [Q, k], descending; -inf where `papers` is -1. Ties are broken by paper row.
    """

    papers: NDArray[np.int32]
    scores: Floats

    def __post_init__(self) -> None:
        if self.papers.ndim != 2 or self.papers.shape != self.scores.shape:
            raise ValueError(f"papers {self.papers.shape} and scores {self.scores.shape} must both be [Q, k]")

    def __len__(self) -> int:
        return len(self.papers)

    @property
    def k(self) -> int:
        return self.papers.shape[1]

    @staticmethod
    def concat(parts: Sequence[Ranking]) -> Ranking:
        """Rankings of different queries and the same k as one."""
        return Ranking(np.concatenate([p.papers for p in parts]), np.concatenate([p.scores for p in parts]))


def empty_rankings(queries: int, k: int) -> tuple[NDArray[np.int32], Floats]:
    """Papers and scores [queries, k] of rankings without any paper."""
    return np.full((queries, k), -1, np.int32), np.full((queries, k), -np.inf, np.float32)


def top_k(
    papers: NDArray[np.integer], scores: NDArray[np.floating], k: int, drop: Mask | None = None
) -> Ranking:
    """The k best of each row by descending score, then by paper row, padded to k.

    papers: int [Q, n], -1 for none; scores: float [Q, n]; drop: bool [Q, n], places to leave out.
    Raises ValueError when a score that stays is NaN.
    """
    n = papers.shape[1]
    left_out = papers < 0 if drop is None else (papers < 0) | drop
    values = np.asarray(scores, dtype=np.float32) + np.float32(0)  # turns -0.0 into 0.0, copies
    if np.isnan(values).any() and (np.isnan(values) & ~left_out).any():
        raise ValueError("a score is not a number")
    # One integer per place that ascends with (-score, row): numpy sorts integers far faster than it argsorts.
    bits = values.view(np.uint32)
    ascending = np.where(bits & _SIGN, ~bits, bits | _SIGN)
    keys = (~ascending).astype(np.uint64) << np.uint64(32) | papers.astype(np.uint32)
    keys[left_out] = _LAST
    keys.sort(axis=1)
    if n < k:
        keys = np.pad(keys, ((0, 0), (0, k - n)), constant_values=_LAST)
    keys = keys[:, :k]

    best = keys.astype(np.uint32).view(np.int32)  # the low half
    ascending = ~(keys >> np.uint64(32)).astype(np.uint32)
    bits = np.where(ascending & _SIGN, ascending ^ _SIGN, ~ascending)
    return Ranking(best, np.where(best < 0, np.float32(-np.inf), bits.view(np.float32)))


class Retriever(ABC):
    """Ranks the candidates of a corpus for queries.

    Subclasses implement `settings`, `_index` and `_search`, declare the `arrays` of their index, or write
    `_save` and `_load`, and declare below what else they can do, so that nobody has to ask for their class.
    """

    name: str
    arrays: tuple[str, ...] = ()
    """what a saved index consists of: NAME.npy for each attribute `_NAME`"""
    per_pool = False
    """whether scores depend on the other papers of a pool, so that each pool wants an index of its own"""
    tunable: tuple[str, ...] = ()
    """parameters that `set_parameters` changes, to be tuned on validation data"""
    partial = False
    """whether it ranks only some contexts, those that it `knows`"""
    protocol = ""
    """what reports say of the protocol of a retriever that is asked by more than texts"""
    gives_vectors = False
    """whether `raw_vectors` gives the papers' vectors"""
    encodings: tuple[str, ...] = ("local",)
    """who can encode the papers: `local`, this process, or `ray`, Ray Data (docs/scale.md)"""
    encoding = "local"

    def __init__(self) -> None:
        self._corpus: Corpus | None = None
        self.tuned: dict[str, Any] = {}
        """What `index` chose on the validation split, as plain values."""
        self.reused = False
        """Whether `index` found some of its work done, so that its time says nothing."""

    @property
    def corpus(self) -> Corpus:
        """The indexed corpus; RuntimeError before `index`."""
        if self._corpus is None:
            raise RuntimeError(f"{self.name}: call index(corpus) before search")
        return self._corpus

    # What a retriever may be able to do.

    @property
    def reads_contexts(self) -> bool:
        """Whether training contexts may change the index; if not, corpora of the same papers can share it."""
        return True

    def keep(self, folder: Path) -> None:  # noqa: B027
        """Save its model, if it has one, beside that of a ranker whose part it is."""

    def set_parameters(self, **values: float) -> None:
        """Set some of the `tunable` parameters for corpora indexed from now on."""
        raise NotImplementedError(f"{self.name} has no parameters to tune")

    def knows(self, contexts: Rows) -> Mask:
        """Which contexts [Q] of the indexed corpus it can rank papers for."""
        return np.ones(len(contexts), np.bool_)

    def limit(self, contexts: Rows) -> int | None:
        """The most papers that any of these contexts of the indexed corpus can get; None: all there are."""
        return None

    def join_protocols(self, parts: Collection[Retriever]) -> None:
        """Say of the protocol what its parts have to say."""
        self.protocol = " ".join(dict.fromkeys(part.protocol for part in parts if part.protocol))

    def fits(self, corpus: Corpus) -> bool:
        """Whether the corpus has what the retriever learns from, as training contexts."""
        return True

    def remember_queries(self) -> None:  # noqa: B027
        """Keep what queries are encoded to until the next `index`: worthwhile where each is asked again."""

    def encode_with(self, encoding: str) -> None:
        """Choose one of `encodings`; InputError if it is none."""
        if encoding not in ENCODINGS:
            raise InputError(f"encoding={encoding}: choose one of {', '.join(ENCODINGS)}")
        if encoding not in self.encodings:
            raise InputError(f"encoding={encoding}: retriever={self.name} does not encode papers that way")
        self.encoding = encoding

    def raw_vectors(self, corpus: Corpus, rows: Rows) -> Any:
        """A `VectorTable` [n, D] (retrieval.vectors) of papers, not normalised; see `gives_vectors`."""
        raise NotImplementedError(f"{self.name} has no vectors of papers")

    def explain(self, queries: Queries, papers: NDArray[np.int32]) -> dict[str, Floats]:
        """What the scores of papers [Q, K] are made of: float32 [Q, K] by name; empty if it cannot say."""
        return {}

    # Indexing and searching.

    def index(self, corpus: Corpus) -> None:
        """Prepare to search the candidates of this corpus in place of any other.

        Everything that is learned from a corpus is learned here: from the training split, and settings that
        are tuned from the validation split.
        """
        self._corpus, self.tuned, self.reused = None, {}, False
        self._index(corpus)
        self._corpus = corpus

    def reindex(self, old: Corpus, corpus: Corpus, kept: Rows, folder: Path) -> None:
        """As `index(corpus)`, from the index of another corpus in `folder`, whose work is used again.

        Row i of the corpus was row kept[i] of the old one for i < len(kept). All papers are candidates.
        """
        self._corpus, self.tuned, self.reused = None, {}, True
        self.tuned = read_index(folder, self._about(old))
        self._reindex(old, corpus, kept, folder)
        self._corpus = corpus

    def search(self, queries: Queries | Rows, k: int, filters: Filters | None = None) -> Ranking:
        """The k best candidates of each query, without its citing paper.

        queries: [Q], or rows of the corpus's contexts. Memory grows with Q * k: batch large numbers.
        filters: which candidates may be returned; the result is that of a search in a corpus that has no
        others (see retrieval.index for approximate indexes).
        Raises InputError for scores that are NaN.
        """
        corpus = self.corpus
        if k < 1:
            raise ValueError(f"k must be at least 1, not {k}")
        asked = Queries.of(corpus, queries)
        if not filters:
            return self.search_allowed(asked, k, None)
        papers, scores = empty_rankings(len(asked), k)
        for places, allowed in filters.groups(asked):
            found = self.search_allowed(asked[places], k, allowed)
            papers[places], scores[places] = found.papers, found.scores
        return Ranking(papers, scores)

    def search_allowed(self, queries: Queries | Rows, k: int, allowed: Mask | None) -> Ranking:
        """As `search`, among the papers allowed [P] for all of these queries (None: every candidate)."""
        corpus = self.corpus
        asked = Queries.of(corpus, queries)
        may = corpus.is_candidate if allowed is None else allowed
        # The citing paper may take one of the first k places, so ask for one more.
        depth = min(k + 1, int(np.count_nonzero(may)))
        if len(asked) == 0 or depth == 0:
            return Ranking(*empty_rankings(len(asked), k))
        found = self._search(asked, depth, allowed)
        wrong = (np.isnan(found.scores) & (found.papers >= 0)).any(axis=1)
        if wrong.any():
            names = asked[np.flatnonzero(wrong)[:5]].names()
            raise InputError(
                f"retriever={self.name}: NaN scores for {np.count_nonzero(wrong):,} queries, such as "
                f"{', '.join(names)}; its weights or vectors are damaged"
            )
        drop = (found.papers == asked.citing[:, None]) | ~may[found.papers]
        return top_k(found.papers, found.scores, k, drop)

    def score(self, queries: Queries | Rows, papers: NDArray[np.int32]) -> Floats:
        """The scores that `search` gives these papers, float32 [Q, K]; -inf for what it does not find.

        papers: int32 [Q, K], rows of candidates, each once for a query; -1 for none.
        """
        asked = Queries.of(self.corpus, queries)
        scores = np.full(papers.shape, -np.inf, np.float32)
        for query, wanted in enumerate(papers):
            allowed = np.zeros(len(self.corpus.paper_ids), np.bool_)
            allowed[wanted[wanted >= 0]] = True
            allowed &= self.corpus.is_candidate
            found = self.search_allowed(asked[query : query + 1], papers.shape[1], allowed)
            place, rank = np.nonzero((wanted[:, None] == found.papers) & (wanted[:, None] >= 0))
            scores[query, place] = found.scores[0, rank]
        return scores

    # Saved indexes.

    def save(self, folder: str | Path) -> None:
        """Write the index to a folder, which ends up whole or as it was."""
        with new_index(Path(folder), self._about(self.corpus), self.tuned) as part:
            self._save(part)

    def load(self, folder: str | Path, corpus: Corpus) -> None:
        """Use an index that `save` wrote in place of indexing; its large arrays stay on disk, mapped.

        Raises InputError if it belongs to another retriever, corpus, weights or settings, or is damaged.
        """
        self._corpus = None
        self.tuned = read_index(Path(folder), self._about(corpus))
        self._load(Path(folder), corpus)
        self._corpus = corpus

    def open(self, corpus: Corpus, folder: str | Path | None) -> None:
        """Load the index in the folder, or make it and save it there; without a folder just make it."""
        if folder is not None and has_index(Path(folder)):
            self.load(folder, corpus)
            log.info("%s: index read from %s", self.name, folder)
            return
        self.index(corpus)
        if folder is not None:
            self.save(folder)
            log.info("%s: index saved in %s, %s bytes", self.name, folder, f"{folder_bytes(Path(folder)):,}")

    def _about(self, corpus: Corpus) -> dict[str, Any]:
        return {"retriever": self.name, "corpus": corpus.fingerprint, **self.settings()}

    @property
    def index_bytes(self) -> int:
        """Memory of what is searched, without the texts or a model."""
        return 0

    def query_settings(self) -> dict[str, Any]:
        """What a search depends on besides the index, as plain values."""
        return {}

    @abstractmethod
    def settings(self) -> dict[str, Any]:
        """What the index depends on besides the corpus, as plain values: options, a hash of weights."""

    @abstractmethod
    def _index(self, corpus: Corpus) -> None: ...

    @abstractmethod
    def _search(self, queries: Queries, k: int, allowed: Mask | None) -> Ranking:
        """The k best of the allowed papers for each query, or fewer where no more match.

        allowed: bool [P], the papers that may be returned; None: every candidate. k does not exceed their
        number. The caller drops the citing paper and any paper that is not allowed.
        """

    def _reindex(self, old: Corpus, corpus: Corpus, kept: Rows, folder: Path) -> None:
        self.tuned = {}
        self._index(corpus)

    def _save(self, folder: Path) -> None:
        """Write the index into an empty folder."""
        save_arrays(folder, **{name: getattr(self, f"_{name}") for name in self.arrays})

    def _load(self, folder: Path, corpus: Corpus) -> None:
        """Read what `_save` wrote."""
        for name, array in zip(self.arrays, load_arrays(folder, *self.arrays), strict=True):
            setattr(self, f"_{name}", array)


LITTLE = 0.02
"""Share of papers that may change until what an index knows of all papers together is taken anew."""


def small_change(old: Corpus, corpus: Corpus, kept: Rows, before: int = 0) -> int | None:
    """Papers that differ from those that an index was made of, if they are few; `before`: of earlier changes.

    None: they are many, the contexts are others, or words have other ids.
    """
    changed = before + len(old.paper_ids) + len(corpus.paper_ids) - 2 * len(kept)
    if changed > LITTLE * len(kept) or corpus.words[: len(old.words)] != old.words:
        return None
    return changed if list(corpus.context_ids) == list(old.context_ids) else None


FORMAT = 2
MANIFEST = "index.json"


def has_index(folder: Path) -> bool:
    """Whether a folder holds an index of any kind."""
    return (folder / MANIFEST).is_file()


def folder_bytes(folder: Path) -> int:
    """Size of all files."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


@contextmanager
def new_index(folder: Path, about: Mapping[str, Any], tuned: Mapping[str, Any]) -> Iterator[Path]:
    """A folder for the files of an index, which replaces `folder` when all went well.

    about: what the index belongs to (retriever, corpus, settings); tuned: what indexing chose; both are kept
    in the manifest. Raises InputError if `folder` holds anything but an index.
    """
    if folder.exists() and not has_index(folder) and not (folder.is_dir() and not any(folder.iterdir())):
        raise InputError(f"{folder}: contains something other than an index; name another folder")
    with atomic_folder(folder) as part:
        yield part
        paths = sorted(path for path in part.rglob("*") if path.is_file())
        files = {str(path.relative_to(part)): path.stat().st_size for path in paths}
        manifest = {"format": FORMAT, "about": dict(about), "tuned": dict(tuned), "files": files}
        (part / MANIFEST).write_text(json.dumps(manifest, indent=1) + "\n", encoding="utf-8")


def read_index(folder: Path, about: Mapping[str, Any]) -> dict[str, Any]:
    """What was tuned for the index in a folder; InputError unless it is whole and belongs to `about`."""
    path = folder / MANIFEST
    try:
        manifest = json.loads(path.read_text("utf-8"))
        found, files = dict(manifest["about"]), dict(manifest["files"])
        known, tuned = manifest["format"] == FORMAT, dict(manifest["tuned"])
    except FileNotFoundError:
        raise InputError(f"{folder}: there is no index (no {MANIFEST} in it)") from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path}: damaged ({error}); rebuild the index in another folder") from None
    if not known:
        raise InputError(f"{path}: an index of format {manifest['format']!r}; this version reads {FORMAT}")
    wanted = json.loads(json.dumps(dict(about)))  # tuples become lists, as in the file
    for key in [*wanted, *found]:
        if wanted.get(key) != found.get(key):
            texts = (str(values.get(key)) for values in (found, wanted))
            there, here = (text if len(text) <= 60 else f"{text[:57]}..." for text in texts)
            raise InputError(
                f"{folder}: an index of another {key}: {there} there, {here} here; "
                "rebuild the index in another folder"
            )
    for name, size in files.items():
        try:
            there = (folder / name).stat().st_size
        except OSError:
            raise InputError(f"{folder / name}: missing; rebuild the index") from None
        if there != size:
            what = f"{there:,} bytes instead of {size:,}, cut short or changed"
            raise InputError(f"{folder / name}: {what}; rebuild the index")
    return tuned
