"""Turns papers and queries into inputs of article encoders: fields joined to one subword sequence."""

from __future__ import annotations

import copy
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from citerec.datasets.columns import Ragged
from citerec.datasets.corpus import Corpus
from citerec.datasets.records import OTHER_MARKER, TARGET_MARKER
from citerec.retrieval.arrays import Mask
from citerec.retrieval.networks.inputs import InputReader, Subwords
from citerec.retrieval.queries import Queries
from citerec.retrieval.settings import ArticleConfig

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

PRIORITY = ("title", "context", "abstract")
"""Fields by priority when space is short: a few title words say more than the ends of a context."""


@dataclass(frozen=True)
class Field:
    """Subwords of a title, abstract or context, and the position of the marker."""

    tokens: list[int]
    mark: int = 0

    def truncate(self, length: int) -> list[int]:
        """Keep at most `length` subwords around the marker."""
        start = max(min(self.mark - length // 2, len(self.tokens) - length), 0)
        return self.tokens[start : start + length]


class ArticleReader:
    """Turns corpus rows into texts with a subword tokeniser.

    Texts [B] are rows of subwords, with special tokens; those without words are empty.
    """

    def __init__(self, corpus: Corpus, tokenizer: PreTrainedTokenizerFast, config: ArticleConfig) -> None:
        self.corpus, self.config = corpus, config
        # A copy of the backend, without truncation and padding that may be set in a model's files.
        self._backend = copy.deepcopy(tokenizer.backend_tokenizer)
        self._backend.no_truncation()
        self._backend.no_padding()
        bare, special = (self._backend.encode("a", add_special_tokens=add).ids for add in (False, True))
        at = next(i for i in range(len(special)) if special[i : i + len(bare)] == bare)
        self._start, self._end = special[:at], special[at + len(bare) :]
        stop = self._backend.encode(".", add_special_tokens=False).ids
        self._separator = [tokenizer.sep_token_id] if config.layout == "sep" else stop
        self._mask = [tokenizer.mask_token_id] if config.markers == "mask" else []
        prompts = (config.query_prompt, config.paper_prompt)
        self._query_prompt, self._paper_prompt = (
            self._backend.encode(text, add_special_tokens=False).ids for text in prompts
        )
        self._inputs: InputReader | None = None
        if config.layout == "lengths":
            self._inputs = InputReader.of(self._backend, config.lengths, f"encoder {config.name}")

    def papers(self, rows: NDArray[np.integer], abstracts: Mask | None = None) -> Ragged:
        """Title and abstract of papers, rows [B], truncated at the end.

        abstracts: [B], False leaves it out.
        """
        papers = rows.tolist()
        shown = [True] * len(papers) if abstracts is None else abstracts.tolist()
        if self._inputs is not None:
            read = self._inputs.papers(self.corpus, rows, abstracts)
            return _alone(self._inputs, [paper.subwords for paper in read])
        titles = [self.corpus.titles[row] for row in papers]
        texts = [self.corpus.abstracts[row] if show else "" for row, show in zip(papers, shown, strict=True)]
        fields = list(zip(self._fields("title", titles), self._fields("abstract", texts), strict=True))
        return self._join_all(("title", "abstract"), fields, self._paper_prompt)

    def queries(self, queries: Queries | NDArray[np.integer]) -> Ragged:
        """The configured fields of queries, or of rows of contexts, [B].

        Beyond `max_tokens`, the title may take half of them and the context the rest, truncated around its
        marker; other fields are truncated at the end, the abstract first.
        """
        queries, names = Queries.from_contexts(self.corpus, queries), tuple(self.config.query)
        if self._inputs is not None:
            return _alone(self._inputs, self._inputs.queries(queries))
        fields: dict[str, list[Field]] = {}
        for name in set(names):
            if name == "context":
                fields[name] = self._context_fields(queries.texts(name))
                continue
            field = queries.fields[name]
            rows, inverse = np.unique(field.rows, return_inverse=True)  # each citing paper is read once
            unique = self._fields(name, [field.texts[row] for row in rows.tolist()])
            fields[name] = [unique[i] for i in inverse.tolist()]
        rows_of = list(zip(*(fields[name] for name in names), strict=True))
        return self._join_all(names, rows_of, self._query_prompt)

    def _fields(self, name: str, texts: list[str]) -> list[Field]:
        encoded = zip(texts, self._encode(texts), strict=True)
        return [Field(self._subwords(name, text, encoding)) for text, encoding in encoded]

    def _encode(self, texts: list[str]) -> list[Any]:
        return list(self._backend.encode_batch_fast(texts, add_special_tokens=False))

    def _subwords(self, name: str, text: str, encoding: Any) -> list[int]:
        """The subwords of a field's text; retrieval.encoders.sentences numbers their sentences."""
        ids: list[int] = encoding.ids
        return ids

    def _context_fields(self, texts: list[str]) -> list[Field]:
        texts = [text.replace(OTHER_MARKER, " ") for text in texts]
        marks = [max(text.find(TARGET_MARKER), 0) for text in texts]
        bare = [text.replace(TARGET_MARKER, " ") for text in texts]
        encodings, fields = self._backend.encode_batch(bare, add_special_tokens=False), []
        for text, mark, encoding in zip(bare, marks, encodings, strict=True):
            position = bisect_left([start for start, _ in encoding.offsets], mark)
            ids = self._subwords("context", text, encoding)
            fields.append(Field(ids[:position] + self._mask + ids[position:], position))
        return fields

    def _join_all(self, names: Sequence[str], rows: Sequence[tuple[Field, ...]], prompt: list[int]) -> Ragged:
        return Ragged.from_rows([self._join(names, fields, prompt) for fields in rows])

    def _join(self, names: Sequence[str], fields: tuple[Field, ...], prompt: list[int]) -> list[int]:
        """Join fields to one text."""
        start = self._start + prompt
        room = self.config.max_tokens - len(start) - len(self._end)
        parts: dict[int, list[int]] = {}
        limits = {"title": room // 2} if "context" in names else {}
        for i in sorted(range(len(fields)), key=lambda i: PRIORITY.index(names[i])):
            left = room - (len(self._separator) if parts else 0)
            if fields[i].tokens and left > 0:
                parts[i] = fields[i].truncate(min(left, limits.get(names[i], left)))
                room = left - len(parts[i])
        if not parts:
            return []
        first, *others = (parts[i] for i in sorted(parts))
        return [*start, *first, *(token for part in others for token in self._separator + part), *self._end]


def _alone(reader: InputReader, texts: list[Subwords]) -> Ragged:
    return Ragged.from_rows([reader.alone(text) for text in texts])
