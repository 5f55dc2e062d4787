"""Pairs of a query and a candidate as a cross-encoder reads them (Gu et al. 2022, section 4.2).

[CLS] citing title and abstract <sep> context with <cit> [SEP] candidate's title and abstract [SEP]

Where papers ask, not contexts (Nogueira et al. 2020, section 3): query=paper, and a budget of each side.

[CLS] citing title and abstract [SEP] candidate's title and abstract [SEP]

The subwords of queries and candidates, found once, and how many of them a pair takes.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from datasets.columns import Ragged
from datasets.corpus import Corpus
from datasets.errors import InputError
from datasets.records import OTHER_MARKER, TARGET_MARKER
from retrieval.vectors import rounded

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

CIT, SEP, EOS = "<cit>", "<sep>", "<eos>"
"""Tokens added to a model's own, in the reference's order: the citation that is asked for; between the citing
paper's text and the context; the third is in no text, but counts in the reference's weights."""

BLOCK = 4096
"""Texts that are tokenised together."""


class Subwords:
    """A tokeniser without the truncation and padding that a model's files may ask for."""

    def __init__(self, tokenizer: PreTrainedTokenizerFast) -> None:
        """Raises InputError for a tokeniser without the added tokens, or that puts nothing before a pair."""
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
        """What stands before, between and after two texts, and the type of the tokens from the second on."""
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
        """Subwords of texts, no special ones among them."""
        found = self._backend.encode_batch_fast(list(texts), add_special_tokens=False)
        return [encoding.ids for encoding in found]

    @property
    def special(self) -> int:
        """Tokens of a pair that stand for no text: those of the model, and SEP."""
        return len(self.before) + len(self.between) + len(self.after) + 1


class TokenTable:
    """Token ids of the rows of a column, found when they are first asked for and kept as int32."""

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
class Piece:
    """Tokens of N pairs: of pair i, those of `values` [starts[i] : starts[i] + lengths[i]]."""

    values: NDArray[np.int32]
    starts: NDArray[np.int64]
    lengths: NDArray[np.int64]

    def put(self, grid: NDArray[np.int64], at: NDArray[np.int64]) -> NDArray[np.int64]:
        """Write the tokens into rows of the grid [N, L] from columns `at` [N] on; the columns after them."""
        first = np.cumsum(self.lengths) - self.lengths
        row = np.repeat(np.arange(len(self.lengths)), self.lengths)
        within = np.arange(len(row)) - first[row]
        grid[row, at[row] + within] = self.values[self.starts[row] + within]
        return at + self.lengths


def divided(
    first: NDArray[np.int64],
    second: NDArray[np.int64],
    room: NDArray[np.int64],
    share: float,
    least: tuple[int, int] = (0, 0),
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Lengths [N] that two texts of lengths [N] may keep in a common room [N].

    Of a room that is short the first has a claim to `share`, both of them to at least `least` tokens; what
    one does not need is the other's. With equal shares this is to cut the longer one first, to the token as
    the tokenisers of Hugging Face do it.

    >>> kept, others = divided(np.array([9, 9, 2]), np.array([3, 9, 9]), np.array([7, 7, 7]), 0.5)
    >>> kept.tolist(), others.tolist()
    ([4, 3, 2], [3, 4, 5])
    """
    claim, other = np.floor(share * room).astype(np.int64), np.floor((1 - share) * room).astype(np.int64)
    claim = np.where(first > second, room - other, claim)  # a token that is left over goes to the longer
    claim = np.minimum(np.maximum(np.minimum(claim, room - least[1]), least[0]), room)
    kept = np.minimum(first, np.maximum(claim, room - second))
    return kept, np.minimum(second, room - kept)


if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

LEAST = 16
"""Tokens of a pair, at the least."""

LEAST_SIDE = 8
"""Tokens of a side that has a budget of its own, at the least."""

LATER = ("query", "query_tokens")
"""Options that came later than the first saved rerankers: they stand nowhere while they change nothing."""


@dataclass(frozen=True)
class PairConfig:
    """What a pair is made of, and who gives way when it is too long.

    The shares are relative to each other. Query and candidate divide the tokens first, then citing text and
    context divide those of the query; what one does not need is the other's. The target marker is kept.
    """

    max_tokens: int = 512
    """tokens of a pair, special ones included"""
    citing: float = 1.0
    """share of the citing paper's title and abstract"""
    context: float = 1.0
    """share of the context; 0: it gives way first, as in the reference, but for its target marker"""
    candidate: float = 2.0
    """share of the candidate's title and abstract"""
    citing_words: int | None = 179
    """words read of the citing title and abstract (the reference: 0.35 of 512); null: all"""
    citing_abstract: bool = True
    """read the citing paper's abstract after its title"""
    candidate_words: int | None = None
    """words read of the candidate's title and abstract; null: all"""
    cut: str = "both"
    """the ends of a context that give way: both, around the target marker | end (as the reference), the last
    tokens first"""
    others: str = "keep"
    """the marks of other citations in a context: keep (as the reference) | drop"""
    query: str = "context"
    """what asks: context, behind the citing text | paper, the citing text alone"""
    query_tokens: int | None = None
    """tokens of the query at most, [CLS] and its [SEP] among them; the candidate has the other ones of
    `max_tokens`, and neither lends to the other; null: they divide `max_tokens` by their shares"""

    def __post_init__(self) -> None:
        """Raises InputError for a value that cannot be."""
        if type(self.max_tokens) is not int or self.max_tokens < LEAST:
            raise InputError(f"pairs.max_tokens={self.max_tokens}: must be a whole number from {LEAST} on")
        for name in ("citing", "context", "candidate"):
            value = getattr(self, name)
            if type(value) not in (int, float) or not 0 <= value < np.inf:
                raise InputError(f"pairs.{name}={value}: must be a number, 0 or more")
        if self.citing + self.context == 0 or self.candidate == 0:
            raise InputError("pairs: the candidate, and citing text or context, must have a share above 0")
        for name in ("citing_words", "candidate_words"):
            value = getattr(self, name)
            if value is not None and (type(value) is not int or value < 0):
                raise InputError(f"pairs.{name}={value}: must be null or a whole number, 0 or more")
        if self.candidate_words == 0:
            raise InputError("pairs.candidate_words=0: of a candidate there must be a word at least")
        choices = {"cut": ("both", "end"), "others": ("keep", "drop"), "query": ("context", "paper")}
        for name, options in choices.items():
            if getattr(self, name) not in options:
                raise InputError(f"pairs.{name}={getattr(self, name)}: choose one of {', '.join(options)}")
        if self.query == "paper" and (self.citing == 0 or self.citing_words == 0):
            raise InputError("pairs.query=paper: the citing text is the query: it needs a share and words")
        tokens = self.query_tokens
        sides = range(LEAST_SIDE, self.max_tokens - LEAST_SIDE + 1)
        if tokens is not None and (type(tokens) is not int or tokens not in sides):
            raise InputError(
                f"pairs.query_tokens={tokens}: must be null or a whole number that leaves query and candidate"
                f" at least {LEAST_SIDE} of max_tokens={self.max_tokens}"
            )

    def asdict(self) -> dict[str, Any]:
        """As plain values: what a saved reranker has, and what the name of its pairs' scores is made of."""
        plain = {field.name: field.default for field in fields(self) if field.name in LATER}
        return {key: value for key, value in asdict(self).items() if key not in LATER or value != plain[key]}

    @classmethod
    def reference(cls, max_tokens: int = 512) -> PairConfig:
        """As the published code reads pairs, but that it may cut the target marker away with the context."""
        words = int(0.35 * max_tokens)
        return cls(max_tokens, citing=1.0, context=0.0, candidate=1.0, citing_words=words, cut="end")


@dataclass(frozen=True)
class Pairs:
    """N pairs: where their tokens are. `lengths` [N] counts the special tokens too; border: the tokens that
    stand between citing text and context."""

    subwords: Subwords
    border: list[int]
    citing: Piece
    context: Piece
    candidate: Piece
    lengths: NDArray[np.int64]
    max_tokens: int

    def __len__(self) -> int:
        return len(self.lengths)

    def padded(self, rows: NDArray[np.integer] | slice | None = None) -> tuple[Tensor, Tensor, Tensor]:
        """Some of the pairs -> input_ids, token_type_ids, attention_mask, each [B, L] int64.

        L is the longest length, rounded up to a multiple of 8 unless all are equally long.
        """
        chosen = np.arange(len(self))[slice(None) if rows is None else rows]
        lengths = self.lengths[chosen]
        width = int(lengths.max(initial=0))
        if (lengths != width).any():
            width = min(rounded(width), self.max_tokens)
        ids = np.full((len(chosen), width), self.subwords.pad, np.int64)
        at = self._constant(self.subwords.before, len(chosen)).put(ids, np.zeros(len(chosen), np.int64))
        at = _taken(self.citing, chosen).put(ids, at)
        at = self._constant(self.border, len(chosen)).put(ids, at)
        at = _taken(self.context, chosen).put(ids, at)
        second = self._constant(self.subwords.between, len(chosen)).put(ids, at)
        at = _taken(self.candidate, chosen).put(ids, second)
        at = self._constant(self.subwords.after, len(chosen)).put(ids, at)
        assert (at == lengths).all()
        column = np.arange(width)
        there = column < lengths[:, None]
        types = np.where((column >= second[:, None]) & there, self.subwords.second_type, 0)
        return torch.from_numpy(ids), torch.from_numpy(types), torch.from_numpy(there.astype(np.int64))

    @staticmethod
    def _constant(tokens: list[int], count: int) -> Piece:
        zeros = np.zeros(count, np.int64)
        return Piece(np.asarray(tokens, np.int32), zeros, zeros + len(tokens))


def _taken(piece: Piece, rows: NDArray[np.int64]) -> Piece:
    return Piece(piece.values, piece.starts[rows], piece.lengths[rows])


class PairReader:
    """Makes pairs of the rows of a corpus; each text is tokenised once, when it is first met."""

    def __init__(self, corpus: Corpus, tokenizer: PreTrainedTokenizerFast, config: PairConfig) -> None:
        """Raises InputError for a tokeniser that cannot read pairs (Subwords)."""
        self.corpus, self.config = corpus, config
        self.subwords = Subwords(tokenizer)
        self._border = [self.subwords.sep] if config.query == "context" else []
        frame = len(self.subwords.before) + len(self.subwords.between)
        self._room = config.max_tokens - frame - len(self.subwords.after)
        self._query_room = None if config.query_tokens is None else config.query_tokens - frame
        if config.max_tokens < self.subwords.special + 4:
            raise InputError(f"pairs.max_tokens={config.max_tokens}: too few for this model's special tokens")
        papers, contexts = len(corpus.paper_ids), len(corpus.context_ids)
        self._marks = np.zeros(contexts, np.int32)
        self._citing = TokenTable(papers, self._citing_tokens)
        self._candidates = TokenTable(papers, self._candidate_tokens)
        self._contexts = TokenTable(contexts, self._context_tokens)

    def pairs(self, contexts: NDArray[np.integer], papers: NDArray[np.integer]) -> Pairs:
        """Rows [N] of contexts and rows [N] of candidates -> N pairs."""
        citing = self.corpus.citing[contexts]
        of_citing, of_candidate = self._citing.lengths(citing), self._candidates.lengths(papers)
        nothing = np.zeros(len(citing), np.int64)
        of_context = self._contexts.lengths(contexts) if self._border else nothing
        # A token of the query is the separator: it takes part in the division, as in the reference.
        asked = of_citing + len(self._border) + of_context
        query, candidate = self._sides(asked, of_candidate)
        kept, context, start = query, nothing, nothing
        if self._border:
            shares = self.config
            context, kept = divided(
                of_context, of_citing, query - 1, shares.context / (shares.citing + shares.context), (1, 0)
            )
            marks = self._marks[contexts].astype(np.int64)
            before = context // 2 if shares.cut == "both" else context - 1
            start = self._contexts.starts(contexts) + np.clip(marks - before, 0, of_context - context)
        return Pairs(
            self.subwords,
            self._border,
            Piece(self._citing.values, self._citing.starts(citing), kept),
            Piece(self._contexts.values, start, context),
            Piece(self._candidates.values, self._candidates.starts(papers), candidate),
            query + candidate + self.config.max_tokens - self._room,
            self.config.max_tokens,
        )

    def _sides(
        self, query: NDArray[np.int64], candidate: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """How many tokens queries and candidates of such lengths [N] keep."""
        if self._query_room is not None:
            return np.minimum(query, self._query_room), np.minimum(candidate, self._room - self._query_room)
        shares = self.config
        asking = shares.citing + (shares.context if self._border else 0)
        least = (2, 1) if self._border else (1, 1)
        room = np.full(len(query), self._room)
        return divided(query, candidate, room, asking / (asking + shares.candidate), least)

    def _citing_tokens(self, rows: list[int]) -> list[list[int]]:
        abstracts = self.corpus.abstracts if self.config.citing_abstract else None
        return self._paper_tokens(rows, abstracts, self.config.citing_words)

    def _candidate_tokens(self, rows: list[int]) -> list[list[int]]:
        return self._paper_tokens(rows, self.corpus.abstracts, self.config.candidate_words)

    def _paper_tokens(
        self, rows: list[int], abstracts: Sequence[str] | None, words: int | None
    ) -> list[list[int]]:
        texts = [
            f"{self.corpus.titles[row]} {abstracts[row] if abstracts is not None else ''}" for row in rows
        ]
        if words is not None:
            texts = [" ".join(text.split()[:words]) for text in texts]
        return self.subwords(texts)

    def _context_tokens(self, rows: list[int]) -> list[list[int]]:
        texts = [self.corpus.context_texts[row] for row in rows]
        if self.config.others == "drop":
            texts = [text.replace(OTHER_MARKER, " ") for text in texts]
        sides = [text.split(TARGET_MARKER, 1) for text in texts]
        before = self.subwords([side[0] for side in sides])
        after = self.subwords([side[-1] for side in sides])
        self._marks[rows] = [len(tokens) for tokens in before]
        return [[*left, self.subwords.cit, *right] for left, right in zip(before, after, strict=True)]
