"""The prepared store: a corpus as memory-mapped columns, opened in milliseconds and shared by processes; and
corpora of a few papers in memory.

A store is a folder of .npy files, written by `datasets.prepare`.
`store.json`, written last, lists every file with its size, so that an incomplete store is never opened.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from citerec.base.errors import InputError
from citerec.datasets.columns import Column, Ragged, decode_text, load_array, load_ragged
from citerec.datasets.records import TRAIN, PaperRecord, default_citing_id, split_group
from citerec.datasets.tokenize import TOKENIZER, TOKENIZERS, WordTable
from citerec.datasets.word_statistics import WORD, WordStatistics

STORE_VERSION = 4
"""Part of a store's fingerprint: raise it when its files or a tokeniser change."""

MANIFEST = "store.json"


@dataclass(frozen=True)
class Split:
    """Queries: rows of `contexts` [Q], and for each the rows of the papers to retrieve, `positives` [Q]."""

    name: str
    contexts: NDArray[np.int64]
    positives: Ragged

    def take(self, rows: NDArray[np.integer]) -> Split:
        """Select queries by their index."""
        return Split(self.name, self.contexts[rows], self.positives.take(rows))

    def __len__(self) -> int:
        return len(self.contexts)


class Corpus:
    """Papers [P], contexts [C] and splits of a prepared store.

    Token ids are rows of `words`; codes in `fields` are rows of `field_names`. `seen` [P] marks papers cited
    by training contexts. `citing` [C] has rows of papers, or -2, -3 and so on for papers outside the corpus.
    A Corpus pickles as its path, so that worker processes map the same files.
    """

    def __init__(self, path: str | Path, name: str | None = None) -> None:
        """Raises InputError if the folder is not a complete store of this version."""
        self.path = Path(path)
        manifest = read_manifest(self.path)
        if manifest is None:
            raise InputError(
                f"{self.path}: not a prepared store of this version; prepare it again from its source"
            )
        self.name: str = name or manifest["name"]
        self.fingerprint: str = manifest["fingerprint"]
        self.settings: dict[str, Any] = manifest["settings"]
        self.paper_ids, self.titles = self._texts("paper_ids"), self._texts("titles")
        self.abstracts: Sequence[str] = self._texts("abstracts")
        self.context_ids, self.context_texts = self._texts("context_ids"), self._texts("context_texts")
        self.years: NDArray[np.int32] = load_array(self.path, "years")
        self.is_candidate: NDArray[np.bool_] = load_array(self.path, "is_candidate")
        self.citing: NDArray[np.int32] = load_array(self.path, "citing")
        self.field_names: Sequence[str] = self._texts("fields_names")
        self.fields = load_ragged(self.path, "fields")
        self.word_counts: NDArray[np.int64] = load_array(self.path, "word_counts")
        self.title_tokens = load_ragged(self.path, "title_tokens")
        self.abstract_tokens = load_ragged(self.path, "abstract_tokens")
        self.context_tokens = load_ragged(self.path, "context_tokens")
        self.splits: dict[str, Split] = {
            split: Split(
                split,
                load_array(self.path, f"{split}.contexts"),
                load_ragged(self.path, f"{split}.positives"),
            )
            for split in manifest["splits"]
        }

    whole: WordStatistics | None = None
    """statistics of the words of the whole collection, if the corpus has only some of its papers"""
    places: NDArray[np.int64] | None = None
    """position of each paper in the order in which their owner added them, [P]; None if it is not known, as
    in data sets, whose order tells only how they were made"""

    @cached_property
    def training_splits(self) -> list[Split]:
        """The splits that models may be trained on: `train`, and others of its group, such as train_named."""
        return [split for name, split in self.splits.items() if split_group(name) == TRAIN]

    @cached_property
    def seen(self) -> NDArray[np.bool_]:
        """Mask [P] of the papers that a training context cites."""
        seen = np.zeros(len(self.paper_ids), np.bool_)
        for split in self.training_splits:
            seen[split.positives.values] = True
        return seen

    @property
    def total_papers(self) -> int:
        """Number of papers of the whole collection."""
        return len(self.paper_ids) if self.whole is None else self.whole.papers

    @property
    def total_words(self) -> int:
        """Number of occurrences of all words in the whole collection."""
        return int(np.sum(self.word_counts)) if self.whole is None else self.whole.words

    def __repr__(self) -> str:
        return f"Corpus({self.name!r}, {len(self.paper_ids)} papers, {len(self.context_ids)} contexts)"

    def __reduce__(self) -> tuple[type[Corpus], tuple[Path, str]]:
        return Corpus, (self.path, self.name)

    def __copy__(self) -> Self:
        """Return a corpus whose attributes can be replaced; copy.copy would open the store again."""
        made = object.__new__(type(self))
        made.__dict__.update(self.__dict__)
        return made

    @cached_property
    def words(self) -> list[str]:
        """Words [V] by descending `word_counts`, then alphabetically; words added later follow."""
        return list(self._texts("words"))

    @cached_property
    def word_ids(self) -> dict[str, int]:
        """The row of each word in `words`."""
        return {word: row for row, word in enumerate(self.words)}

    @cached_property
    def _paper_rows(self) -> dict[str, int]:
        return {paper: row for row, paper in enumerate(self.paper_ids)}

    def paper_row(self, paper_id: str) -> int:
        """Return the row of a paper; KeyError for an unknown id."""
        return self._paper_rows[paper_id]

    def has_paper(self, paper_id: str) -> bool:
        """True if the corpus has a paper with that id."""
        return paper_id in self._paper_rows

    def own_papers(self, contexts: NDArray[np.int64]) -> NDArray[np.int32]:
        """Return the papers that must not be found for contexts [Q]: rows of their citing papers.

        The paper with the context's id, if there is one, replaces an implicit citing paper, as in BEIR.
        """
        own = np.array(self.citing[contexts])
        inside = np.flatnonzero(own >= 0)
        for place in inside[~self.is_candidate[own[inside]]].tolist():  # implicit ones are no candidates
            id, paper = self.context_ids[int(contexts[place])], self.paper_ids[int(own[place])]
            part, _, rest = id.partition("/")  # an id of several folders
            implicit = (default_citing_id(id), f"{part}/{default_citing_id(rest)}")
            if paper in implicit and self.has_paper(id):
                own[place] = self.paper_row(id)
        return own

    def in_fields(self, fields: Sequence[str]) -> NDArray[np.bool_]:
        """Return a mask [P] of the papers in any of the fields; InputError for a field that no paper has."""
        names = list(self.field_names)
        if not names:
            raise InputError(
                f"corpus {self.name}: papers have no fields; set data.field=KEY to a key of the papers file"
            )
        unknown = [field for field in fields if field not in names]
        if unknown:
            by_count = np.argsort(-np.bincount(self.fields.values, minlength=len(names)), kind="stable")
            some = ", ".join(repr(names[code]) for code in by_count[:5])
            raise InputError(
                f"corpus {self.name}: no paper has the field {unknown[0]!r}; choose from {some}"
                f"{f' and {len(names) - 5} more' if len(names) > 5 else ''}"
            )
        return self.fields.rows_containing([names.index(field) for field in fields])

    def split(self, name: str) -> Split:
        """Return a split by name, or the contexts of every second of its citing papers: `val/1`, `val/2`.

        The InputError for an unknown name lists all splits.
        """
        whole, slash, half = name.partition("/")
        if whole not in self.splits or (slash and half not in ("1", "2")):
            raise InputError(f"corpus {self.name}: no split {name!r}; choose from {', '.join(self.splits)}")
        split = self.splits[whole]
        if not slash:
            return split
        number = np.unique(self.citing[split.contexts], return_inverse=True)[1]
        rows = np.flatnonzero(number % 2 == int(half) - 1)
        return Split(name, split.contexts[rows], split.positives.take(rows))

    def _texts(self, stem: str) -> Column[str]:
        return Column(self.path, stem, decode_text)


class SomePapers(Corpus):
    """Papers [P] in memory, all candidates, without contexts. `fields` are the surnames of their authors.

    whole: statistics of the collection that the papers come from; None: they are the whole collection.
    """

    def __init__(self, papers: Sequence[PaperRecord], whole: WordStatistics | None, name: str) -> None:
        self.path, self.name, self.whole = Path(name), name, whole
        self.fingerprint = ""
        self.settings = {"tokenizer": TOKENIZER, "candidates": "all", "field": "authors"}
        self.paper_ids = [paper.id for paper in papers]  # type: ignore[assignment]
        self.titles = [paper.title for paper in papers]  # type: ignore[assignment]
        self.abstracts = [paper.abstract for paper in papers]
        self.context_ids = self.context_texts = []  # type: ignore[assignment]
        self.years = np.array([paper.year for paper in papers], np.int32)
        self.is_candidate, self.seen = np.ones(len(papers), np.bool_), np.zeros(len(papers), np.bool_)
        self.citing, self.context_tokens, self.splits = np.empty(0, np.int32), Ragged.from_rows([]), {}
        codes: dict[str, int] = {}
        self.fields = Ragged.from_rows(
            [[codes.setdefault(name, len(codes)) for name in paper.fields] for paper in papers]
        )
        self.field_names = list(codes)
        table = WordTable(TOKENIZERS[TOKENIZER])
        self.title_tokens, self.abstract_tokens = table.ids(self.titles), table.ids(self.abstracts)
        self.words = table.words()

    @cached_property
    def word_counts(self) -> np.ndarray:  # type: ignore[override]
        """Occurrences of each word, [V], in the whole collection."""
        if self.whole is not None:
            return self.whole.count(WORD, self.words)
        ids = np.concatenate([self.title_tokens.values, self.abstract_tokens.values])
        return np.bincount(ids, minlength=len(self.words))


def read_manifest(path: Path) -> dict[str, Any] | None:
    """Return the manifest of a complete store of this version, else None."""
    try:
        manifest = json.loads((path / MANIFEST).read_text("utf-8"))
        if manifest["version"] != STORE_VERSION:
            return None
        if any((path / name).stat().st_size != size for name, size in manifest["files"].items()):
            return None
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    return dict(manifest)
