"""The subwords of queries and candidates, found once, and how many of them a pair takes."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from datasets.errors import InputError
from datasets.ragged import Ragged

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
