"""Inputs of the networks: a passage with a missing citation, and a paper, as subwords.

    query   60 before the citation, [MASK], 44 after it; where known [SEP] and 22 of the citing title
    paper   40 of the title, ".", 10 of first authors and year; where known [SEP] and 130 of the abstract

The encoder reads `[CLS] text [SEP]`; some need a prefix before queries and another one before papers (E5:
Wang et al. 2022). The cross-encoder reads `[CLS] query [SEP] paper [SEP]`, with PAIR_ABSTRACT of the
abstract. Subwords nearest to the citation are kept, and of the other fields the first. Other citations' marks
are left out.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property, lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from citerec.base.errors import InputError, error_text
from citerec.datasets.corpus import Corpus
from citerec.datasets.records import OTHER_MARKER, TARGET_MARKER
from citerec.datasets.tokenize import sentence_starts
from citerec.formats.names import surname
from citerec.retrieval.arrays import Mask
from citerec.retrieval.queries import Queries
from citerec.retrieval.settings import Lengths as Lengths

AUTHORS = 2
"""First authors whose surnames are part of a paper's text."""
PAIR_ABSTRACT = 64
"""Subwords of an abstract that the cross-encoder reads: with all of them, it takes 40 % longer and ranks no
better (library/builtin/README.md)."""
SPECIAL = {"start": "[CLS]", "separator": "[SEP]", "mask": "[MASK]", "padding": "[PAD]"}

QUERY, PAPER = "query", "paper"
"""Kinds of texts that have a prefix."""

Subwords = list[int]


class PaperText(NamedTuple):
    """Subwords of a paper, without those around it. title: how many of its title come first. bounds: where
    each sentence of its abstract begins, and where the last one ends; empty without an abstract."""

    subwords: Subwords
    title: int
    bounds: list[int]


@lru_cache(maxsize=2)
def _tokenizer(content: bytes) -> Tokenizer:
    """Open a tokeniser once for all folders that have it, as those of several libraries do."""
    return Tokenizer.from_buffer(content)


@dataclass(frozen=True)
class InputReader:
    """Turns texts into subwords. prefixes: of QUERY and PAPER, by kind."""

    tokenizer: Tokenizer
    lengths: Lengths = field(default_factory=Lengths)
    prefixes: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def open(cls, path: Path, lengths: Lengths, prefixes: Mapping[str, str] = MappingProxyType({})) -> Self:
        """Read a tokeniser in Hugging Face's format. InputError if it is damaged or lacks a token."""
        try:
            tokenizer = _tokenizer(path.read_bytes())
        except Exception as error:  # tokenizers raises nothing more specific
            raise InputError(f"{path}: not a tokeniser ({error_text(error)})") from None
        return cls.of(tokenizer, lengths, str(path), prefixes)

    @classmethod
    def of(
        cls,
        tokenizer: Tokenizer,
        lengths: Lengths,
        name: str,
        prefixes: Mapping[str, str] = MappingProxyType({}),
    ) -> Self:
        """Prepare a tokeniser, in place. InputError with its name if it lacks a token."""
        if missing := [token for token in (*SPECIAL.values(), ".") if tokenizer.token_to_id(token) is None]:
            raise InputError(f"{name}: the tokeniser has no {missing[0]}")
        tokenizer.no_truncation()
        tokenizer.no_padding()
        tokenizer.encode_special_tokens = True  # "[SEP]" in a text is text
        return cls(tokenizer, lengths, prefixes)

    def fingerprint(self) -> dict[str, Any]:
        """Return all that inputs depend on besides texts and tokeniser, as plain values."""
        return asdict(self.lengths) | dict(self.prefixes)

    @cached_property
    def special(self) -> dict[str, int]:
        """Ids of SPECIAL, and of the full stop."""
        ids = {token: self.tokenizer.token_to_id(token) for token in (*SPECIAL.values(), ".")}
        present = {token: id for token, id in ids.items() if id is not None}
        return {name: present[token] for name, token in {**SPECIAL, "stop": "."}.items()}

    def subwords(self, texts: Sequence[str], most: int | None = None) -> list[Subwords]:
        """The first subwords of texts [B], which are read in parallel."""
        encodings = self.tokenizer.encode_batch_fast(list(texts), add_special_tokens=False)
        return [encoding.ids[:most] for encoding in encodings]

    def queries(self, queries: Queries) -> list[Subwords]:
        """Context and citing title of queries [Q]."""
        return self.passages(queries.texts("context"), queries.texts("title"))

    def passages(self, contexts: Sequence[str], titles: Sequence[str]) -> list[Subwords]:
        """Passages with TARGET_MARKER, by default at their end, and citing titles [B], "" if unknown."""
        sides = [context.replace(OTHER_MARKER, " ").partition(TARGET_MARKER) for context in contexts]
        left = self.subwords([before for before, _, _ in sides])
        right = self.subwords([after for _, _, after in sides], self.lengths.after)
        named = self.subwords(titles, self.lengths.citing_title)
        most, mask, separator = self.lengths.before, self.special["mask"], self.special["separator"]
        return [
            [*before[-most:], mask, *after, *([separator, *title] if title else [])]
            for before, after, title in zip(left, right, named, strict=True)
        ]

    def papers(
        self, corpus: Corpus, rows: Sequence[int] | NDArray[np.integer], abstracts: Mask | None = None
    ) -> list[PaperText]:
        """Papers of a corpus, rows [B]; abstracts: [B], False leaves it out."""
        papers = np.asarray(rows, np.int64).tolist()
        shown = [True] * len(papers) if abstracts is None else abstracts.tolist()
        return self.texts(
            [corpus.titles[row] for row in papers],
            [names_of(corpus, row) for row in papers],
            [corpus.abstracts[row] if show else "" for row, show in zip(papers, shown, strict=True)],
        )

    def texts(self, titles: Sequence[str], names: Sequence[str], abstracts: Sequence[str]) -> list[PaperText]:
        """Papers [B]; names: of their first authors and years (`names_of`)."""
        of_titles = self.subwords(titles, self.lengths.title)
        of_names = self.subwords(names, self.lengths.names)
        encodings = self.tokenizer.encode_batch(list(abstracts), add_special_tokens=False)
        texts = []
        for title, name, text, encoding in zip(of_titles, of_names, abstracts, encodings, strict=True):
            subwords, bounds = [*title, self.special["stop"], *name], list[int]()
            if text and self.lengths.abstract:
                kept = encoding.ids[: self.lengths.abstract]
                ends = [end for _, end in encoding.offsets[: len(kept)]]
                inside = [bisect_right(ends, start) for start in sentence_starts(text)]
                places = [0, *(place for place in inside if place < len(kept)), len(kept)]
                subwords.append(self.special["separator"])
                bounds = [len(subwords) + place for place in places]
                subwords += kept
            texts.append(PaperText(subwords, len(title), bounds))
        return texts

    @cached_property
    def _prefixes(self) -> dict[str, Subwords]:
        return {kind: self.subwords([text])[0] for kind, text in self.prefixes.items()}

    def start(self, kind: str = QUERY) -> Subwords:
        """What comes before a text that is read alone: `[CLS]` and the prefix of its kind."""
        return [self.special["start"], *self._prefixes.get(kind, ())]

    def alone(self, subwords: Subwords, kind: str = QUERY) -> Subwords:
        """`[CLS] text [SEP]`, the text after its prefix, if it has one."""
        return [*self.start(kind), *subwords, self.special["separator"]]

    def pair(self, query: Subwords, paper: Subwords) -> tuple[Subwords, list[int]]:
        """`[CLS] query [SEP] paper [SEP]` and its segments."""
        first = [self.special["start"], *query, self.special["separator"]]
        second = [*paper, self.special["separator"]]
        return first + second, [0] * len(first) + [1] * len(second)

    def shortened(self, paper: Subwords) -> Subwords:
        """A paper with the beginning of its abstract (PAIR_ABSTRACT)."""
        separator = self.special["separator"]
        return paper[: paper.index(separator) + 1 + PAIR_ABSTRACT] if separator in paper else paper


def names_of(corpus: Corpus, row: int) -> str:
    """Surnames of the first authors, "et al" if there are more, and the year; "" if neither is known."""
    authors = corpus.fields[row] if corpus.settings.get("field") == "authors" else ()
    names = [surname(corpus.field_names[int(code)]) for code in authors[:AUTHORS]]
    more = ["et al"] if len(authors) > AUTHORS else []
    year = int(corpus.years[row])
    return " ".join([*filter(None, names), *more, *([str(year)] if year > 0 else [])])
