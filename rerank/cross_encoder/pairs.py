"""Token pairs of a query and a candidate, the cross-encoder's input (Gu et al. 2022, section 4.2).

    [CLS] citing title and abstract <sep> context with <cit> [SEP] candidate's title and abstract [SEP]

With pairs.query=paper (Nogueira et al. 2020, section 3) the citing paper itself is the query:

    [CLS] citing title and abstract [SEP] candidate's title and abstract [SEP]
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from citerec.base.errors import InputError
from citerec.datasets.columns import Ragged, padded_length
from citerec.datasets.corpus import Corpus
from citerec.datasets.records import OTHER_MARKER, TARGET_MARKER
from citerec.rerank.settings import PairSettings
from citerec.retrieval.queries import Queries

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

CIT, SEP, EOS = "<cit>", "<sep>", "<eos>"
"""Tokens added to the vocabulary, in the reference's order: the target citation; the separator of citing text
and context; one that is unused, but has a row in the reference's weights."""

BLOCK = 4096
"""Texts tokenised at a time."""


class Subwords:
    """A tokeniser without the truncation and padding that its files may configure."""

    def __init__(self, tokenizer: PreTrainedTokenizerFast) -> None:
        """tokenizer: with the added tokens. Raises InputError if it puts no token before a pair."""
        self.tokenizer = copy.deepcopy(tokenizer.backend_tokenizer)
        self.tokenizer.no_truncation()
        self.tokenizer.no_padding()
        ids = self.tokenizer.get_vocab()
        self.cit, self.sep = ids[CIT], ids[SEP]
        self.pad = int(tokenizer.pad_token_id or 0)
        self.before, self.between, self.after, self.second_type = self._read_template()
        self.tokenizer.encode_special_tokens = True  # "[SEP]" in a text is text

    def _read_template(self) -> tuple[list[int], list[int], list[int], int]:
        """Return the special tokens before, between and after two texts, and the second text's token type."""
        bare = self.tokenizer.encode("a", add_special_tokens=False).ids
        probe = self.tokenizer.encode("a", "a")
        ids = probe.ids
        starts = [i for i in range(len(ids)) if ids[i : i + len(bare)] == bare]
        if len(starts) < 2 or starts[0] == 0:
            raise InputError("the tokeniser puts no token before a pair of texts, so its model cannot rerank")
        first, second = starts[0], starts[-1]
        between, after = ids[first + len(bare) : second], ids[second + len(bare) :]
        return ids[:first], between, after, int(probe.type_ids[second])

    def __call__(self, texts: Sequence[str]) -> list[list[int]]:
        """Tokenise texts, without special tokens."""
        encodings = self.tokenizer.encode_batch_fast(list(texts), add_special_tokens=False)
        return [encoding.ids for encoding in encodings]


class TokenTable:
    """Token ids of the rows of a column, tokenised on first use and cached as int32."""

    def __init__(self, rows: int, read: Callable[[list[int]], list[list[int]]]) -> None:
        """read: rows -> their token ids."""
        self._read = read
        self._length = np.full(rows, -1, np.int32)
        self._start = np.zeros(rows, np.int64)
        self.values: NDArray[np.int32] = np.empty(1 << 12, np.int32)
        self._used = 0

    def starts(self, rows: NDArray[np.integer]) -> NDArray[np.int64]:
        """Return the start in `values` of the tokens of rows [N]."""
        self._fill(rows)
        return self._start[rows]

    def lengths(self, rows: NDArray[np.integer]) -> NDArray[np.int64]:
        """Return the number of tokens of rows [N]."""
        self._fill(rows)
        return self._length[rows].astype(np.int64)

    def _fill(self, rows: NDArray[np.integer]) -> None:
        missing = np.unique(np.asarray(rows)[self._length[rows] < 0])
        for first in range(0, len(missing), BLOCK):
            part = missing[first : first + BLOCK]
            tokens = Ragged.from_rows(self._read(part.tolist()))
            end = self._used + len(tokens.values)
            if end > len(self.values):
                larger = np.empty(max(end, 2 * len(self.values)), np.int32)
                larger[: self._used] = self.values[: self._used]
                self.values = larger
            self.values[self._used : end] = tokens.values
            self._start[part] = self._used + tokens.offsets[:-1]
            self._length[part] = tokens.lengths
            self._used = end


@dataclass(frozen=True)
class Spans:
    """Tokens of one part of N pairs; that of pair i is `values[starts[i] : starts[i] + lengths[i]]`."""

    values: NDArray[np.int32]
    starts: NDArray[np.int64]
    lengths: NDArray[np.int64]

    @classmethod
    def repeat(cls, tokens: list[int], count: int) -> Spans:
        zeros = np.zeros(count, np.int64)
        return cls(np.asarray(tokens, np.int32), zeros, zeros + len(tokens))

    def take(self, rows: NDArray[np.int64]) -> Spans:
        return Spans(self.values, self.starts[rows], self.lengths[rows])

    def write(self, grid: NDArray[np.int64], columns: NDArray[np.int64]) -> NDArray[np.int64]:
        """Write the tokens into the rows of a grid [N, L], starting at columns [N] -> columns after them."""
        first = np.cumsum(self.lengths) - self.lengths
        row = np.repeat(np.arange(len(self.lengths)), self.lengths)
        within = np.arange(len(row)) - first[row]
        grid[row, columns[row] + within] = self.values[self.starts[row] + within]
        return columns + self.lengths


def divide_budget(
    first: NDArray[np.int64],
    second: NDArray[np.int64],
    budget: NDArray[np.int64],
    share: float,
    least: tuple[int, int] = (0, 0),
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Divide a budget [N] of tokens between two texts of lengths [N]; returns the lengths that they keep.

    If the budget is short, the first may claim `share` of it, and each at least `least` tokens; what one does
    not need goes to the other. Equal shares truncate the longer text first, exactly as Hugging Face's
    tokenisers do.

    >>> kept, others = divide_budget(np.array([9, 9, 2]), np.array([3, 9, 9]), np.array([7, 7, 7]), 0.5)
    >>> kept.tolist(), others.tolist()
    ([4, 3, 2], [3, 4, 5])
    """
    claim, other = np.floor(share * budget).astype(np.int64), np.floor((1 - share) * budget).astype(np.int64)
    claim = np.where(first > second, budget - other, claim)  # an odd token goes to the longer text
    claim = np.minimum(np.maximum(np.minimum(claim, budget - least[1]), least[0]), budget)
    kept = np.minimum(first, np.maximum(claim, budget - second))
    return kept, np.minimum(second, budget - kept)


@dataclass(frozen=True)
class TokenPairs:
    """N tokenised and truncated pairs.

    separator: tokens between citing text and context. lengths: [N], including special tokens.
    """

    subwords: Subwords
    separator: list[int]
    citing: Spans
    context: Spans
    candidate: Spans
    lengths: NDArray[np.int64]
    max_tokens: int

    def __len__(self) -> int:
        return len(self.lengths)

    def padded(self, rows: NDArray[np.integer] | slice | None = None) -> tuple[Tensor, Tensor, Tensor]:
        """Rows [B] of the pairs (None: all) -> input_ids, token_type_ids, attention_mask, each [B, L] int64.

        L is the maximum length, rounded up to a multiple of 8 unless all lengths are equal.
        """
        chosen = np.arange(len(self))[slice(None) if rows is None else rows]
        lengths, subwords = self.lengths[chosen], self.subwords
        width = int(lengths.max(initial=0))
        if (lengths != width).any():
            width = min(padded_length(width), self.max_tokens)
        ids = np.full((len(chosen), width), subwords.pad, np.int64)
        at = second = np.zeros(len(chosen), np.int64)
        for tokens, part in (
            (subwords.before, self.citing),
            (self.separator, self.context),
            (subwords.between, self.candidate),
        ):
            second = Spans.repeat(tokens, len(chosen)).write(ids, at)
            at = part.take(chosen).write(ids, second)
        at = Spans.repeat(subwords.after, len(chosen)).write(ids, at)
        assert (at == lengths).all()
        column = np.arange(width)
        mask = column < lengths[:, None]
        types = np.where((column >= second[:, None]) & mask, subwords.second_type, 0)
        return torch.from_numpy(ids), torch.from_numpy(types), torch.from_numpy(mask.astype(np.int64))


class ContextTable(TokenTable):
    """Token ids of contexts, with CIT as the target marker."""

    def __init__(self, subwords: Subwords, queries: Queries, other_citations: str) -> None:
        """other_citations: see PairSettings."""
        super().__init__(len(queries), self._tokens)
        self.subwords, self.queries, self.other_citations = subwords, queries, other_citations
        self._marks = np.zeros(len(queries), np.int32)

    def around(self, rows: NDArray[np.integer], kept: NDArray[np.int64], before: NDArray[np.int64]) -> Spans:
        """Return `kept` [N] tokens of rows [N], up to `before` [N] of them from before the mark."""
        starts, lengths = self.starts(rows), self.lengths(rows)
        marks = self._marks[rows].astype(np.int64)
        return Spans(self.values, starts + np.clip(marks - before, 0, lengths - kept), kept)

    def _tokens(self, rows: list[int]) -> list[list[int]]:
        texts = self.queries[np.array(rows)].texts("context")
        if self.other_citations == "drop":
            texts = [text.replace(OTHER_MARKER, " ") for text in texts]
        sides = [text.split(TARGET_MARKER, 1) for text in texts]
        before = self.subwords([side[0] for side in sides])
        after = self.subwords([side[-1] for side in sides])
        self._marks[rows] = [len(tokens) for tokens in before]
        return [[*left, self.subwords.cit, *right] for left, right in zip(before, after, strict=True)]


class PairReader:
    """Builds pairs from rows of a corpus; each text is tokenised once, on first use."""

    def __init__(self, corpus: Corpus, tokenizer: PreTrainedTokenizerFast, config: PairSettings) -> None:
        """Raises InputError for a tokeniser that does not support pairs (Subwords)."""
        self.corpus, self.config = corpus, config
        self.subwords = Subwords(tokenizer)
        frame = len(self.subwords.before) + len(self.subwords.between)
        self._budget = config.max_tokens - frame - len(self.subwords.after)
        if self._budget < 5:
            raise InputError(f"pairs.max_tokens={config.max_tokens}: too few for this model's special tokens")
        titles, abstracts = corpus.titles, corpus.abstracts
        self._candidates = TokenTable(
            len(corpus.paper_ids), lambda rows: self.subwords(_join_texts(titles, abstracts, rows))
        )
        self._set_queries(Queries.from_contexts(corpus, np.arange(len(corpus.context_ids))))

    def _set_queries(self, queries: Queries) -> None:
        self._queries = queries
        self._citing = TokenTable(len(queries.fields["title"].texts), self._citing_tokens)
        self._contexts = ContextTable(self.subwords, queries, self.config.other_citations)

    def for_queries(self, queries: Queries) -> PairReader:
        """Return a reader of the same candidates for other queries, by their rows instead of contexts."""
        reader = copy.copy(self)
        reader._set_queries(queries)
        return reader

    def pairs(self, contexts: NDArray[np.integer], papers: NDArray[np.integer]) -> TokenPairs:
        """Build N pairs from rows [N] of contexts and rows [N] of candidates."""
        config, citing = self.config, self._queries.fields["title"].rows[contexts]
        citing_lengths, context_lengths = self._citing.lengths(citing), np.zeros(len(citing), np.int64)
        share, mark = config.citing, 0  # the separator counts as a token of the query, as in the reference
        if config.query == "context":
            context_lengths, share, mark = self._contexts.lengths(contexts), share + config.context, 1
        query, candidate = divide_budget(
            citing_lengths + mark + context_lengths,
            self._candidates.lengths(papers),
            np.full(len(citing), self._budget),
            share / (share + config.candidate),
            (1 + mark, 1),
        )
        context, kept = divide_budget(
            context_lengths, citing_lengths, query - mark, config.context * mark / share, (mark, 0)
        )
        before = context // 2 if config.truncate == "both" else context - 1
        return TokenPairs(
            self.subwords,
            [self.subwords.sep] * mark,
            Spans(self._citing.values, self._citing.starts(citing), kept),
            self._contexts.around(contexts, context, before),
            Spans(self._candidates.values, self._candidates.starts(papers), candidate),
            query + candidate + config.max_tokens - self._budget,
            config.max_tokens,
        )

    def _citing_tokens(self, rows: list[int]) -> list[list[int]]:
        titles, abstracts = (self._queries.fields[name].texts for name in ("title", "abstract"))
        texts = _join_texts(titles, abstracts if self.config.citing_abstract else None, rows)
        if self.config.citing_words is not None:
            texts = [" ".join(text.split()[: self.config.citing_words]) for text in texts]
        return self.subwords(texts)


def _join_texts(titles: Sequence[str], abstracts: Sequence[str] | None, rows: list[int]) -> list[str]:
    return [f"{titles[row]} {'' if abstracts is None else abstracts[row]}" for row in rows]
