"""Pairs of a query and a candidate as a cross-encoder reads them (Gu et al. 2022, section 4.2).

    [CLS] citing title and abstract <sep> context with <cit> [SEP] candidate's title and abstract [SEP]

With pairs.query=paper (Nogueira et al. 2020, section 3) the citing paper itself is the query:

    [CLS] citing title and abstract [SEP] candidate's title and abstract [SEP]

With pairs.contexts=1 the candidate is followed by the training context that cites it most like the query:

    ... [SEP] candidate's title and abstract <sep> context with <cit> [SEP]
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

from datasets.columns import Ragged
from datasets.corpus import Corpus
from datasets.errors import InputError
from datasets.records import OTHER_MARKER, TARGET_MARKER
from rerank.settings import PairSettings
from retrieval.queries import Queries
from retrieval.vectors import padded_length

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

    from rerank.citing_contexts import CitingContexts

CIT, SEP, EOS = "<cit>", "<sep>", "<eos>"
"""Tokens added to a model's own, in the reference's order: the target citation; the border between citing
text and context; the third is in no text, but has a row in the reference's weights."""

BLOCK = 4096
"""Texts tokenised together."""


class Subwords:
    """A tokeniser without the truncation and padding that a model's files may ask for."""

    def __init__(self, tokenizer: PreTrainedTokenizerFast) -> None:
        """InputError for a tokeniser without the added tokens, or that puts no token before a pair."""
        self._backend = copy.deepcopy(tokenizer.backend_tokenizer)
        self._backend.no_truncation()
        self._backend.no_padding()
        self.cit, self.sep = self._added(CIT), self._added(SEP)
        self.pad = int(tokenizer.pad_token_id or 0)
        self.before, self.between, self.after, self.second_type = self._frame()
        self._backend.encode_special_tokens = True  # "[SEP]" in a text is text

    def _added(self, token: str) -> int:
        row: int | None = self._backend.token_to_id(token)
        if row is None:
            raise InputError(f"the tokeniser lacks the token {token} that rerankers read")
        return row

    def _frame(self) -> tuple[list[int], list[int], list[int], int]:
        """Special tokens before, between and after two texts, and the token type of the second text."""
        bare = self._backend.encode("a", add_special_tokens=False).ids
        probe = self._backend.encode("a", "a")
        ids = probe.ids
        starts = [i for i in range(len(ids)) if ids[i : i + len(bare)] == bare]
        if len(starts) < 2 or starts[0] == 0:
            raise InputError("the tokeniser puts no token before a pair of texts: no model for reranking")
        first, second = starts[0], starts[-1]
        between, after = ids[first + len(bare) : second], ids[second + len(bare) :]
        return ids[:first], between, after, int(probe.type_ids[second])

    def __call__(self, texts: Sequence[str]) -> list[list[int]]:
        """Subwords of texts, without special tokens."""
        return [found.ids for found in self._backend.encode_batch_fast(list(texts), add_special_tokens=False)]

    @property
    def special(self) -> int:
        """Tokens of a pair that stand for no text: the model's own, and SEP."""
        return len(self.before) + len(self.between) + len(self.after) + 1


class TokenTable:
    """Token ids of the rows of a column, tokenised when first asked for and kept as int32."""

    def __init__(self, rows: int, read: Callable[[list[int]], list[list[int]]]) -> None:
        """read: rows -> their token ids."""
        self._read = read
        self._length = np.full(rows, -1, np.int32)
        self._start = np.zeros(rows, np.int64)
        self.values: NDArray[np.int32] = np.empty(1 << 12, np.int32)
        self._used = 0

    def starts(self, rows: NDArray[np.integer]) -> NDArray[np.int64]:
        """Where in `values` the tokens of rows [N] begin."""
        self._fill(rows)
        return self._start[rows]

    def lengths(self, rows: NDArray[np.integer]) -> NDArray[np.int64]:
        """How many tokens rows [N] have."""
        self._fill(rows)
        return self._length[rows].astype(np.int64)

    def _fill(self, rows: NDArray[np.integer]) -> None:
        missing = np.unique(np.asarray(rows)[self._length[rows] < 0])
        for first in range(0, len(missing), BLOCK):
            part = missing[first : first + BLOCK]
            found = Ragged.from_rows(self._read(part.tolist()))
            end = self._used + len(found.values)
            if end > len(self.values):
                larger = np.empty(max(end, 2 * len(self.values)), np.int32)
                larger[: self._used] = self.values[: self._used]
                self.values = larger
            self.values[self._used : end] = found.values
            self._start[part] = self._used + found.offsets[:-1]
            self._length[part] = found.lengths
            self._used = end


@dataclass(frozen=True)
class Spans:
    """Tokens of one part of N pairs: of pair i, `values[starts[i] : starts[i] + lengths[i]]`."""

    values: NDArray[np.int32]
    starts: NDArray[np.int64]
    lengths: NDArray[np.int64]

    @classmethod
    def repeated(cls, tokens: list[int], count: int) -> Spans:
        zeros = np.zeros(count, np.int64)
        return cls(np.asarray(tokens, np.int32), zeros, zeros + len(tokens))

    def take(self, rows: NDArray[np.int64]) -> Spans:
        return Spans(self.values, self.starts[rows], self.lengths[rows])

    def put(self, grid: NDArray[np.int64], at: NDArray[np.int64]) -> NDArray[np.int64]:
        """Write the tokens into rows of the grid [N, L] from columns `at` [N] on -> columns after them."""
        first = np.cumsum(self.lengths) - self.lengths
        row = np.repeat(np.arange(len(self.lengths)), self.lengths)
        within = np.arange(len(row)) - first[row]
        grid[row, at[row] + within] = self.values[self.starts[row] + within]
        return at + self.lengths


def divide_room(
    first: NDArray[np.int64],
    second: NDArray[np.int64],
    room: NDArray[np.int64],
    share: float,
    least: tuple[int, int] = (0, 0),
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Lengths [N] that two texts of lengths [N] keep of a common room [N].

    When room is short the first may claim `share` of it, and each at least `least` tokens; what one does not
    need goes to the other. Equal shares cut the longer text first, to the token as Hugging Face tokenisers
    do.

    >>> kept, others = divide_room(np.array([9, 9, 2]), np.array([3, 9, 9]), np.array([7, 7, 7]), 0.5)
    >>> kept.tolist(), others.tolist()
    ([4, 3, 2], [3, 4, 5])
    """
    claim, other = np.floor(share * room).astype(np.int64), np.floor((1 - share) * room).astype(np.int64)
    claim = np.where(first > second, room - other, claim)  # an odd token goes to the longer text
    claim = np.minimum(np.maximum(np.minimum(claim, room - least[1]), least[0]), room)
    kept = np.minimum(first, np.maximum(claim, room - second))
    return kept, np.minimum(second, room - kept)


@dataclass(frozen=True)
class TokenPairs:
    """N tokenised and truncated pairs.

    border: the tokens between citing text and context. cited: contexts that cite the candidate, each behind
    a SEP unless it is empty. lengths: [N], special tokens included.
    """

    subwords: Subwords
    border: list[int]
    citing: Spans
    context: Spans
    candidate: Spans
    cited: list[Spans]
    lengths: NDArray[np.int64]
    max_tokens: int

    def __len__(self) -> int:
        return len(self.lengths)

    def padded(self, rows: NDArray[np.integer] | slice | None = None) -> tuple[Tensor, Tensor, Tensor]:
        """Some of the pairs -> input_ids, token_type_ids, attention_mask, each [B, L] int64.

        L is the longest length, rounded up to a multiple of 8 unless all are equally long.
        """
        chosen = np.arange(len(self))[slice(None) if rows is None else rows]
        lengths, frame = self.lengths[chosen], self.subwords
        width = int(lengths.max(initial=0))
        if (lengths != width).any():
            width = min(padded_length(width), self.max_tokens)
        ids = np.full((len(chosen), width), frame.pad, np.int64)
        at = second = np.zeros(len(chosen), np.int64)
        for tokens, part in (
            (frame.before, self.citing),
            (self.border, self.context),
            (frame.between, self.candidate),
        ):
            second = Spans.repeated(tokens, len(chosen)).put(ids, at)
            at = part.take(chosen).put(ids, second)
        for part in self.cited:
            there = (part.lengths[chosen] > 0).astype(np.int64)
            at = Spans(np.array([frame.sep], np.int32), 0 * there, there).put(ids, at)
            at = part.take(chosen).put(ids, at)
        at = Spans.repeated(frame.after, len(chosen)).put(ids, at)
        assert (at == lengths).all()
        column = np.arange(width)
        mask = column < lengths[:, None]
        types = np.where((column >= second[:, None]) & mask, frame.second_type, 0)
        return torch.from_numpy(ids), torch.from_numpy(types), torch.from_numpy(mask.astype(np.int64))


class ContextTable(TokenTable):
    """Token ids of contexts, with CIT at the mark."""

    def __init__(self, subwords: Subwords, queries: Queries, others: str) -> None:
        """others: as PairSettings.others."""
        super().__init__(len(queries), self._tokens)
        self.subwords, self.queries, self.others = subwords, queries, others
        self._marks = np.zeros(len(queries), np.int32)

    def around(self, rows: NDArray[np.integer], kept: NDArray[np.int64], before: NDArray[np.int64]) -> Spans:
        """`kept` [N] tokens of rows [N]; `before` [N] of them are before the mark, if there are so many."""
        starts, lengths = self.starts(rows), self.lengths(rows)
        marks = self._marks[rows].astype(np.int64)
        return Spans(self.values, starts + np.clip(marks - before, 0, lengths - kept), kept)

    def _tokens(self, rows: list[int]) -> list[list[int]]:
        texts = self.queries[np.array(rows)].texts("context")
        if self.others == "drop":
            texts = [text.replace(OTHER_MARKER, " ") for text in texts]
        sides = [text.split(TARGET_MARKER, 1) for text in texts]
        before = self.subwords([side[0] for side in sides])
        after = self.subwords([side[-1] for side in sides])
        self._marks[rows] = [len(tokens) for tokens in before]
        return [[*left, self.subwords.cit, *right] for left, right in zip(before, after, strict=True)]


class PairReader:
    """Makes pairs of rows of a corpus; each text is tokenised once, when first met."""

    def __init__(self, corpus: Corpus, tokenizer: PreTrainedTokenizerFast, config: PairSettings) -> None:
        """InputError for a tokeniser that cannot read pairs (Subwords)."""
        self.corpus, self.config = corpus, config
        self.subwords = Subwords(tokenizer)
        self._border = [self.subwords.sep] if config.query == "context" else []
        frame = len(self.subwords.before) + len(self.subwords.between)
        self._room = config.max_tokens - frame - len(self.subwords.after)
        self._query_room = None if config.query_tokens is None else config.query_tokens - frame
        if config.max_tokens < self.subwords.special + 4:
            raise InputError(f"pairs.max_tokens={config.max_tokens}: too few for this model's special tokens")
        self._candidates = TokenTable(
            len(corpus.paper_ids), lambda rows: self.subwords(_joined(corpus.titles, corpus.abstracts, rows))
        )
        self._ask(Queries.of(corpus, np.arange(len(corpus.context_ids))))
        self._cited = self._contexts
        self._choose: CitingContexts | None = None
        if config.contexts:
            from rerank import citing_contexts  # imports numba, which takes a second

            self._choose = citing_contexts.CitingContexts(corpus)

    def _ask(self, queries: Queries) -> None:
        self._queries = queries
        self._citing = TokenTable(len(queries.fields["title"].texts), self._citing_tokens)
        self._contexts = ContextTable(self.subwords, queries, self.config.others)

    def asking(self, queries: Queries) -> PairReader:
        """A reader of the same candidates for questions, whose rows take the place of those of contexts."""
        other = copy.copy(self)
        other._ask(queries)
        return other

    def pairs(self, contexts: NDArray[np.integer], papers: NDArray[np.integer]) -> TokenPairs:
        """Rows [N] of contexts and rows [N] of candidates -> N pairs."""
        config, citing = self.config, self._queries.fields["title"].rows[contexts]
        of_citing, of_candidate = self._citing.lengths(citing), self._candidates.lengths(papers)
        nothing = np.zeros(len(citing), np.int64)
        of_context = self._contexts.lengths(contexts) if self._border else nothing
        cited = self._cited_rows(contexts, papers)
        of_cited = [np.where(rows < 0, 0, self._cited.lengths(np.maximum(rows, 0)) + 1) for rows in cited]
        # The separator is a token of the query: it takes part in the division, as in the reference.
        query, candidate = self._sides(
            of_citing + len(self._border) + of_context, of_candidate + sum(of_cited, nothing)
        )
        lengths = query + config.max_tokens - self._room
        kept, context = query, nothing
        if self._border:
            share = config.context / (config.citing + config.context)
            context, kept = divide_room(of_context, of_citing, query - 1, share, (1, 0))
        before = context // 2 if config.cut == "both" else context - 1
        spans: list[Spans] = []
        for rows, length in zip(cited, of_cited, strict=True):
            share = config.cited / (config.cited * (len(cited) - len(spans)) + config.candidate)
            left = sum(of_cited[len(spans) + 1 :], of_candidate)
            own, rest = divide_room(length, left, candidate, share, (0, 1))
            short = own < 2  # no room for SEP and the mark
            candidate = np.where(short, np.minimum(left, candidate), rest)
            own = np.where(short, 0, own - 1)
            spans.append(self._cited.around(np.maximum(rows, 0), own, own // 2))
            lengths += own + (own > 0)
        return TokenPairs(
            self.subwords,
            self._border,
            Spans(self._citing.values, self._citing.starts(citing), kept),
            self._contexts.around(contexts, context, before),
            Spans(self._candidates.values, self._candidates.starts(papers), candidate),
            spans,
            lengths + candidate,
            config.max_tokens,
        )

    def _cited_rows(
        self, contexts: NDArray[np.integer], papers: NDArray[np.integer]
    ) -> list[NDArray[np.int64]]:
        """Rows [N] of the first, second, ... context that cites each candidate, -1 for none."""
        if self._choose is None or not len(self._choose.contexts):
            return []
        return list(self._choose.most_like(self._queries, contexts, papers, self.config.contexts).T)

    def _sides(
        self, query: NDArray[np.int64], candidate: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """How many tokens queries and candidates of such lengths [N] keep."""
        if self._query_room is not None:
            return np.minimum(query, self._query_room), np.minimum(candidate, self._room - self._query_room)
        config = self.config
        share = config.citing + (config.context if self._border else 0)
        least = (2, 1) if self._border else (1, 1)
        room = np.full(len(query), self._room)
        return divide_room(query, candidate, room, share / (share + config.candidate), least)

    def _citing_tokens(self, rows: list[int]) -> list[list[int]]:
        titles, abstracts = (self._queries.fields[name].texts for name in ("title", "abstract"))
        texts = _joined(titles, abstracts if self.config.citing_abstract else None, rows)
        if self.config.citing_words is not None:
            texts = [" ".join(text.split()[: self.config.citing_words]) for text in texts]
        return self.subwords(texts)


def _joined(titles: Sequence[str], abstracts: Sequence[str] | None, rows: list[int]) -> list[str]:
    return [f"{titles[row]} {'' if abstracts is None else abstracts[row]}" for row in rows]
