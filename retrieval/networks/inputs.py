"""Inputs of the networks: a passage with a missing citation, and a paper, as subwords.

    query   60 before the citation, [MASK], 44 after it; where known [SEP] and 22 of the citing title
    paper   40 of the title, ".", 10 of first authors and year; where known [SEP] and 130 of the abstract

The encoder reads `[CLS] text [SEP]`, the cross-encoder `[CLS] query [SEP] paper [SEP]`. Subwords nearest to
the citation are kept, and the first of the other fields. Other citations' marks are left out.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from citerec.base.errors import InputError, error_text
from citerec.datasets.corpus import Corpus
from citerec.datasets.fulltext.catalogue import surname
from citerec.datasets.records import OTHER_MARKER, TARGET_MARKER
from citerec.datasets.tokenize import sentence_starts
from citerec.retrieval.queries import Queries
from citerec.retrieval.settings import Lengths as Lengths

AUTHORS = 2
"""First authors whose surnames are part of a paper's text."""
SPECIAL = {"start": "[CLS]", "separator": "[SEP]", "mask": "[MASK]", "padding": "[PAD]"}

Subwords = list[int]


class PaperText(NamedTuple):
    """Subwords of a paper, without those around it. bounds: where each sentence of its abstract begins, and
    where the last one ends; empty without an abstract."""

    subwords: Subwords
    bounds: list[int]


@dataclass(frozen=True)
class InputReader:
    """Turns texts into subwords."""

    tokenizer: Tokenizer
    lengths: Lengths = field(default_factory=Lengths)

    @classmethod
    def open(cls, path: Path, lengths: Lengths) -> Self:
        """Read a tokeniser in Hugging Face's format. InputError if it is damaged or lacks a token."""
        try:
            tokenizer = Tokenizer.from_file(str(path))
        except Exception as error:  # tokenizers raises nothing more specific
            raise InputError(f"{path}: not a tokeniser ({error_text(error)})") from None
        return cls.of(tokenizer, lengths, str(path))

    @classmethod
    def of(cls, tokenizer: Tokenizer, lengths: Lengths, name: str) -> Self:
        """Prepare a tokeniser, in place. InputError with its name if it lacks a token."""
        if missing := [token for token in (*SPECIAL.values(), ".") if tokenizer.token_to_id(token) is None]:
            raise InputError(f"{name}: the tokeniser has no {missing[0]}")
        tokenizer.no_truncation()
        tokenizer.no_padding()
        tokenizer.encode_special_tokens = True  # "[SEP]" in a text is text
        return cls(tokenizer, lengths)

    def fingerprint(self) -> dict[str, Any]:
        """What inputs depend on besides the texts, as plain values; without the tokeniser."""
        return asdict(self.lengths)

    @cached_property
    def special(self) -> dict[str, int]:
        """Ids of SPECIAL, and of the full stop."""
        ids = {token: self.tokenizer.token_to_id(token) for token in (*SPECIAL.values(), ".")}
        known = {token: id for token, id in ids.items() if id is not None}
        return {name: known[token] for name, token in {**SPECIAL, "stop": "."}.items()}

    def subwords(self, text: str, most: int) -> Subwords:
        """The first subwords of a text."""
        return self.tokenizer.encode(text, add_special_tokens=False).ids[:most] if text and most else []

    def query(self, context: str, title: str = "") -> Subwords:
        """A passage with TARGET_MARKER, at its end if it has none, and the citing title."""
        before, _, after = context.partition(TARGET_MARKER)
        before, after = (text.replace(OTHER_MARKER, " ") for text in (before, after))
        left = self.tokenizer.encode(before, add_special_tokens=False).ids if before else []
        right = self.subwords(after, self.lengths.after)
        found = [*left[-self.lengths.before :], self.special["mask"], *right]
        named = self.subwords(title, self.lengths.citing_title)
        return [*found, self.special["separator"], *named] if named else found

    def queries(self, queries: Queries) -> list[Subwords]:
        """Context and citing title of queries [Q]."""
        return list(map(self.query, queries.texts("context"), queries.texts("title")))

    def paper(self, title: str, names: str, abstract: str) -> PaperText:
        """A paper; names: of its first authors and year (`names_of`)."""
        found = [*self.subwords(title, self.lengths.title), self.special["stop"]]
        found += self.subwords(names, self.lengths.names)
        if not abstract or not self.lengths.abstract:
            return PaperText(found, [])
        found.append(self.special["separator"])
        encoded = self.tokenizer.encode(abstract, add_special_tokens=False)
        kept = encoded.ids[: self.lengths.abstract]
        starts = [start for start, _ in encoded.offsets[: len(kept)]]
        inside = [bisect_left(starts, start) for start in sentence_starts(abstract)]
        bounds = [0, *(place for place in inside if place < len(kept)), len(kept)]
        return PaperText([*found, *kept], [len(found) + place for place in bounds])

    def papers(self, corpus: Corpus, rows: Sequence[int] | NDArray[np.integer]) -> list[PaperText]:
        """Papers of a corpus."""
        return [
            self.paper(corpus.titles[row], names_of(corpus, row), corpus.abstracts[row])
            for row in np.asarray(rows, np.int64).tolist()
        ]

    def alone(self, subwords: Subwords) -> Subwords:
        """`[CLS] text [SEP]`"""
        return [self.special["start"], *subwords, self.special["separator"]]

    def pair(self, query: Subwords, paper: Subwords) -> tuple[Subwords, list[int]]:
        """`[CLS] query [SEP] paper [SEP]` and its segments."""
        first, second = self.alone(query), [*paper, self.special["separator"]]
        return first + second, [0] * len(first) + [1] * len(second)


def names_of(corpus: Corpus, row: int) -> str:
    """Surnames of the first authors, "et al" if there are more, and the year; "" if neither is known."""
    authors = corpus.fields[row] if corpus.settings.get("field") == "authors" else ()
    names = [surname(corpus.field_names[int(code)]) for code in authors[:AUTHORS]]
    more = ["et al"] if len(authors) > AUTHORS else []
    year = int(corpus.years[row])
    return " ".join([*filter(None, names), *more, *([str(year)] if year > 0 else [])])
