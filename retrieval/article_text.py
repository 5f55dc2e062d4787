"""How article encoders read papers and queries: fields joined into one text of subwords, packed unpadded."""

from __future__ import annotations

import copy
import re
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from datasets.columns import Ragged
from datasets.corpus import Corpus
from datasets.records import OTHER_MARKER, TARGET_MARKER
from retrieval.arrays import Rows
from retrieval.queries import Queries
from retrieval.settings import ArticleConfig

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

PRIORITY = ("title", "context", "abstract")
"""Who is served first when room is short: a few words of a title say more than the ends of a context."""
NONE = -1
"""The sentence of a subword that belongs to none."""


@dataclass(frozen=True)
class Texts:
    """B texts of subwords, special ones included; one without any word is empty.

    sentences: int32 [total], the sentence of each subword, numbered through all texts, or NONE. owners:
    int64 [S], the text of each sentence. Both only for aspire pooling.
    """

    tokens: Ragged
    sentences: NDArray[np.int32] | None = None
    owners: Rows | None = None

    def __len__(self) -> int:
        return len(self.tokens)


@dataclass(frozen=True)
class Field:
    """Subwords of a title, an abstract or a context, the sentence of each, and where the marker stands."""

    tokens: list[int]
    sentences: list[int]
    mark: int = 0

    def cut(self, length: int) -> Field:
        """At most so many subwords: those around the marker."""
        start = max(min(self.mark - length // 2, len(self.tokens) - length), 0)
        return Field(self.tokens[start : start + length], self.sentences[start : start + length])


class ArticleReader:
    """Makes texts of a corpus's rows, in the subwords of one tokeniser."""

    def __init__(self, corpus: Corpus, tokenizer: PreTrainedTokenizerFast, config: ArticleConfig) -> None:
        self.corpus, self.config = corpus, config
        # A copy of what does the work, without the truncation and padding that a model's files may ask for.
        self._backend = copy.deepcopy(tokenizer.backend_tokenizer)
        self._backend.no_truncation()
        self._backend.no_padding()
        bare, whole = (self._backend.encode("a", add_special_tokens=special).ids for special in (False, True))
        at = next(i for i in range(len(whole)) if whole[i : i + len(bare)] == bare)
        self._start, self._end = whole[:at], whole[at + len(bare) :]
        stop = self._backend.encode(".", add_special_tokens=False).ids
        self._between = [tokenizer.sep_token_id] if config.layout == "sep" else stop
        self._mask = [tokenizer.mask_token_id] if config.markers == "mask" else []

    def papers(self, rows: NDArray[np.integer]) -> Texts:
        """Title and abstract of papers, rows [B]; a text that is too long loses its end."""
        papers = rows.tolist()
        titles, abstracts = self._of(self.corpus.titles, papers), self._of(self.corpus.abstracts, papers)
        return self._texts(("title", "abstract"), list(zip(titles, abstracts, strict=True)))

    def queries(self, queries: Queries | NDArray[np.integer]) -> Texts:
        """The configured fields of queries, or of rows of contexts, [B].

        Where `max_tokens` are too few, the title may take half of them and the context the rest, which keeps
        what is around its marker; the others lose their ends, the abstract first.
        """
        asked, names = Queries.of(self.corpus, queries), tuple(self.config.query)

        def read(name: str) -> list[Field]:
            if name == "context":
                return self._contexts(asked.texts(name))
            field = asked.fields[name]
            rows, place = np.unique(field.rows, return_inverse=True)
            fields = self._of(field.texts, rows.tolist())  # a citing paper is read once
            return [fields[i] for i in place.tolist()]

        found = {name: read(name) for name in set(names)}
        return self._texts(names, list(zip(*(found[name] for name in names), strict=True)))

    def _of(self, column: Sequence[str], rows: list[int]) -> list[Field]:
        texts = [column[row] for row in rows]
        if self.config.pooling == "aspire":
            return self._encoded(texts, [None] * len(texts))
        found = self._backend.encode_batch_fast(texts, add_special_tokens=False)
        return [Field(encoding.ids, [NONE] * len(encoding.ids)) for encoding in found]

    def _contexts(self, texts: list[str]) -> list[Field]:
        texts = [text.replace(OTHER_MARKER, " ") for text in texts]
        marks = [max(text.find(TARGET_MARKER), 0) for text in texts]
        return self._encoded([text.replace(TARGET_MARKER, " ") for text in texts], marks)

    def _encoded(self, texts: list[str], marks: Sequence[int | None]) -> list[Field]:
        """Texts with their sentences; a mark is the character before which the marker stands."""
        fields = []
        encodings = self._backend.encode_batch(texts, add_special_tokens=False)
        for text, mark, encoding in zip(texts, marks, encodings, strict=True):
            tokens, starts, place = encoding.ids, [start for start, _ in encoding.offsets], 0
            if mark is not None:
                place = bisect_left(starts, mark)
                tokens = tokens[:place] + self._mask + tokens[place:]
                starts[place:place] = [mark] * len(self._mask)
            breaks = sentence_starts(text) if self.config.pooling == "aspire" else []
            fields.append(Field(tokens, [bisect_right(breaks, start) for start in starts], place))
        return fields

    def _texts(self, names: Sequence[str], rows: Sequence[tuple[Field, ...]]) -> Texts:
        joined = [self._joined(names, fields) for fields in rows]
        tokens = Ragged.from_rows([ids for ids, _ in joined])
        if self.config.pooling != "aspire":
            return Texts(tokens)
        # Sentences are numbered within each text; now through all texts.
        sentences = Ragged.from_rows([numbers for _, numbers in joined])
        text = np.repeat(np.arange(len(sentences)), sentences.lengths)
        within = sentences.values != NONE
        pairs = np.stack([text[within], sentences.values[within]], axis=1)
        unique, number = np.unique(pairs, axis=0, return_inverse=True)
        numbered = np.full(len(within), NONE, np.int32)
        numbered[within] = number.ravel()
        return Texts(tokens, numbered, unique[:, 0])

    def _joined(self, names: Sequence[str], fields: tuple[Field, ...]) -> tuple[list[int], list[int]]:
        """One text of its fields: subwords, and the sentence of each, different in different fields."""
        room = self.config.max_tokens - len(self._start) - len(self._end)
        parts: dict[int, Field] = {}
        most = {"title": room // 2} if "context" in names else {}
        for i in sorted(range(len(fields)), key=lambda i: PRIORITY.index(names[i])):
            left = room - (len(self._between) if parts else 0)
            if fields[i].tokens and left > 0:
                parts[i] = fields[i].cut(min(left, most.get(names[i], left)))
                room = left - len(parts[i].tokens)
        if not parts:
            return [], []
        # A title gives its surroundings to the sentences of a text, and is none itself (Mysore et al. 2022).
        titles = {i for i in parts if names[i] == "title"}
        silent = titles if len(titles) < len(parts) else set()
        tokens, sentences = list(self._start), [NONE] * len(self._start)
        first = 0
        for i in sorted(parts):
            if len(tokens) > len(self._start):
                tokens += self._between
                sentences += [NONE] * len(self._between)
            tokens += parts[i].tokens
            sentences += [NONE if i in silent else first + number for number in parts[i].sentences]
            first += parts[i].sentences[-1] + 1
        return tokens + self._end, sentences + [NONE] * len(self._end)


_END = re.compile(r"[.!?][\"')\]]*\s+(?=[A-Z0-9(\[\"'])")
_ABBREVIATION = re.compile(
    r"(?:^|[\s(\[])(?:(?i:al|approx|cf|e\.g|eqs?|etc|figs?|i\.e|no|refs?|resp|secs?|vs)|[A-Z])\.\s+$"
)


def sentence_starts(text: str) -> list[int]:
    """The characters at which the second and later sentences of a text begin.

    >>> from itertools import pairwise
    >>> text = "Trees are parsed (cf. Fig. 2). Graphs are not! We ask why."
    >>> [text[a:b] for a, b in pairwise([0, *sentence_starts(text), len(text)])]
    ['Trees are parsed (cf. Fig. 2). ', 'Graphs are not! ', 'We ask why.']
    """
    ends = (match.end() for match in _END.finditer(text))
    return [end for end in ends if _ABBREVIATION.search(text, max(0, end - 16), end) is None]
