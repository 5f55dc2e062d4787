"""Turns papers and queries into inputs of article encoders: fields joined to one subword sequence."""

from __future__ import annotations

import copy
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from citerec.datasets.columns import Ragged
from citerec.datasets.corpus import Corpus
from citerec.datasets.records import OTHER_MARKER, TARGET_MARKER
from citerec.datasets.tokenize import sentence_starts
from citerec.retrieval.arrays import Mask, Rows
from citerec.retrieval.networks.inputs import InputReader, Subwords
from citerec.retrieval.queries import Queries
from citerec.retrieval.settings import ArticleConfig

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

PRIORITY = ("title", "context", "abstract")
"""Fields by priority when space is short: a few title words say more than the ends of a context."""
NO_SENTENCE = -1
"""Sentence number of subwords outside sentences."""


@dataclass(frozen=True)
class Texts:
    """B texts as subwords, including special tokens; texts without words are empty.

    sentences: int32 [total], the sentence of each subword, numbered across texts, or NO_SENTENCE.
    owners: int64 [S], the text of each sentence. Both only for aspire pooling.
    """

    tokens: Ragged
    sentences: NDArray[np.int32] | None = None
    owners: Rows | None = None

    def __len__(self) -> int:
        return len(self.tokens)


@dataclass(frozen=True)
class Field:
    """Subwords of a title, abstract or context, their sentences, and the position of the marker."""

    tokens: list[int]
    sentences: list[int]
    mark: int = 0

    def truncate(self, length: int) -> Field:
        """Keep at most `length` subwords around the marker."""
        start = max(min(self.mark - length // 2, len(self.tokens) - length), 0)
        return Field(self.tokens[start : start + length], self.sentences[start : start + length])


class ArticleReader:
    """Turns corpus rows into `Texts` with a subword tokeniser."""

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

    def papers(self, rows: NDArray[np.integer], abstracts: Mask | None = None) -> Texts:
        """Title and abstract of papers, rows [B], truncated at the end.

        abstracts: [B], False leaves it out.
        """
        papers = rows.tolist()
        shown = [True] * len(papers) if abstracts is None else abstracts.tolist()
        if self._inputs is not None:
            read = self._inputs.papers(self.corpus, rows, abstracts)
            return _alone(self._inputs, [paper.subwords for paper in read])
        titles = self._paper_fields(self.corpus.titles, papers)
        abstract_fields = _shown(self._paper_fields(self.corpus.abstracts, papers), shown)
        fields = list(zip(titles, abstract_fields, strict=True))
        return self._join_all(("title", "abstract"), fields, self._paper_prompt)

    def queries(self, queries: Queries | NDArray[np.integer], titles: Mask | None = None) -> Texts:
        """The configured fields of queries, or of rows of contexts, [B]. titles: [B], False leaves the citing
        title out.

        Beyond `max_tokens`, the title may take half of them and the context the rest, truncated around its
        marker; other fields are truncated at the end, the abstract first.
        """
        queries, names = Queries.from_contexts(self.corpus, queries), tuple(self.config.query)
        shown = [True] * len(queries) if titles is None else titles.tolist()
        if self._inputs is not None:
            with_title = [show and "title" in names for show in shown]
            of_titles = [text * show for text, show in zip(queries.texts("title"), with_title, strict=True)]
            return _alone(self._inputs, self._inputs.passages(queries.texts("context"), of_titles))
        fields: dict[str, list[Field]] = {}
        for name in set(names):
            if name == "context":
                fields[name] = self._context_fields(queries.texts(name))
                continue
            field = queries.fields[name]
            rows, inverse = np.unique(field.rows, return_inverse=True)  # each citing paper is read once
            unique = self._paper_fields(field.texts, rows.tolist())
            fields[name] = [unique[i] for i in inverse.tolist()]
            if name == "title":
                fields[name] = _shown(fields[name], shown)
        rows_of = list(zip(*(fields[name] for name in names), strict=True))
        return self._join_all(names, rows_of, self._query_prompt)

    def _paper_fields(self, column: Sequence[str], rows: list[int]) -> list[Field]:
        texts = [column[row] for row in rows]
        if self.config.pooling == "aspire":
            return self._tokenise(texts, [None] * len(texts))
        encodings = self._backend.encode_batch_fast(texts, add_special_tokens=False)
        return [Field(encoding.ids, [NO_SENTENCE] * len(encoding.ids)) for encoding in encodings]

    def _context_fields(self, texts: list[str]) -> list[Field]:
        texts = [text.replace(OTHER_MARKER, " ") for text in texts]
        marks = [max(text.find(TARGET_MARKER), 0) for text in texts]
        return self._tokenise([text.replace(TARGET_MARKER, " ") for text in texts], marks)

    def _tokenise(self, texts: list[str], marks: Sequence[int | None]) -> list[Field]:
        """Tokenise texts and split them into sentences; marks: character offsets of the marker, if any."""
        fields = []
        encodings = self._backend.encode_batch(texts, add_special_tokens=False)
        for text, mark, encoding in zip(texts, marks, encodings, strict=True):
            tokens, starts, position = encoding.ids, [start for start, _ in encoding.offsets], 0
            if mark is not None:
                position = bisect_left(starts, mark)
                tokens = tokens[:position] + self._mask + tokens[position:]
                starts[position:position] = [mark] * len(self._mask)
            breaks = sentence_starts(text) if self.config.pooling == "aspire" else []
            fields.append(Field(tokens, [bisect_right(breaks, start) for start in starts], position))
        return fields

    def _join_all(self, names: Sequence[str], rows: Sequence[tuple[Field, ...]], prompt: list[int]) -> Texts:
        joined = [self._join(names, fields, prompt) for fields in rows]
        tokens = Ragged.from_rows([ids for ids, _ in joined])
        if self.config.pooling != "aspire":
            return Texts(tokens)
        # Sentences are numbered within each text: number them across texts.
        sentences = Ragged.from_rows([numbers for _, numbers in joined])
        text = np.repeat(np.arange(len(sentences)), sentences.lengths)
        within = sentences.values != NO_SENTENCE
        pairs = np.stack([text[within], sentences.values[within]], axis=1)
        unique, number = np.unique(pairs, axis=0, return_inverse=True)
        numbered = np.full(len(within), NO_SENTENCE, np.int32)
        numbered[within] = number.ravel()
        return Texts(tokens, numbered, unique[:, 0])

    def _join(
        self, names: Sequence[str], fields: tuple[Field, ...], prompt: list[int]
    ) -> tuple[list[int], list[int]]:
        """Join fields to one text: subwords and their sentences, which never span fields."""
        start = self._start + prompt
        room = self.config.max_tokens - len(start) - len(self._end)
        parts: dict[int, Field] = {}
        limits = {"title": room // 2} if "context" in names else {}
        for i in sorted(range(len(fields)), key=lambda i: PRIORITY.index(names[i])):
            left = room - (len(self._separator) if parts else 0)
            if fields[i].tokens and left > 0:
                parts[i] = fields[i].truncate(min(left, limits.get(names[i], left)))
                room = left - len(parts[i].tokens)
        if not parts:
            return [], []
        # Titles are context for the sentences of a text, and no sentences themselves (Mysore et al. 2022).
        titles = {i for i in parts if names[i] == "title"}
        skipped = titles if len(titles) < len(parts) else set()
        tokens, sentences = list(start), [NO_SENTENCE] * len(start)
        first = 0
        for i in sorted(parts):
            if len(tokens) > len(start):
                tokens += self._separator
                sentences += [NO_SENTENCE] * len(self._separator)
            tokens += parts[i].tokens
            sentences += [NO_SENTENCE if i in skipped else first + number for number in parts[i].sentences]
            first += parts[i].sentences[-1] + 1
        return tokens + self._end, sentences + [NO_SENTENCE] * len(self._end)


def _shown(fields: list[Field], shown: list[bool]) -> list[Field]:
    return [field if show else Field([], []) for field, show in zip(fields, shown, strict=True)]


def _alone(reader: InputReader, texts: list[Subwords]) -> Texts:
    return Texts(Ragged.from_rows([reader.alone(text) for text in texts]))
