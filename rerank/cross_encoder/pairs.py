"""Token pairs of a query and a candidate, the cross-encoder's input (Gu et al. 2022, section 4.2).

    [CLS] citing title and abstract <sep> context with <cit> [SEP] candidate's title and abstract [SEP]

With pairs.query=paper (Nogueira et al. 2020, section 3) the citing paper itself is the query:

    [CLS] citing title and abstract [SEP] candidate's title and abstract [SEP]

With pairs.layout=lengths, pairs are those of the small networks (retrieval.networks.inputs):

    [CLS] context with [MASK] [SEP] citing title [SEP] candidate's title, names, year [SEP] its abstract [SEP]
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from citerec.base.errors import InputError
from citerec.datasets.columns import padded_length
from citerec.datasets.corpus import Corpus
from citerec.datasets.records import OTHER_MARKER, TARGET_MARKER
from citerec.rerank.settings import PairSettings
from citerec.retrieval.arrays import Mask
from citerec.retrieval.networks.inputs import InputReader
from citerec.retrieval.queries import Queries

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

CIT, SEP, EOS = "<cit>", "<sep>", "<eos>"
"""Tokens added to the vocabulary, in the reference's order: the target citation; the separator of citing text
and context; one that is unused, but has a row in the reference's weights."""

BLOCK = 4096
"""Texts tokenised at a time."""

Tokens = NDArray[np.int32]


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
        self.special = len(self.before) + len(self.between) + len(self.after)
        """number of special tokens of a pair"""
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
    """Token ids of the rows of a column, tokenised on first use and kept."""

    def __init__(self, read: Callable[[list[int]], list[list[int]]]) -> None:
        """read: rows -> their token ids."""
        self._read, self._texts = read, dict[int, Tokens]()

    def __call__(self, rows: NDArray[np.integer]) -> tuple[list[Tokens], NDArray[np.int64]]:
        """Return the tokens of rows [N], and how many each has [N]."""
        asked = rows.tolist()
        missing = sorted(set(asked) - self._texts.keys())
        for first in range(0, len(missing), BLOCK):
            part = missing[first : first + BLOCK]
            for row, tokens in zip(part, self._read(part), strict=True):
                self._texts[row] = np.array(tokens, np.int32)
        texts = [self._texts[row] for row in asked]
        return texts, np.fromiter(map(len, texts), np.int64, len(texts))


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
    """N tokenised and truncated pairs: the tokens of queries and of candidates, without special ones."""

    subwords: Subwords
    queries: list[Tokens]
    candidates: list[Tokens]
    max_tokens: int

    def __len__(self) -> int:
        return len(self.queries)

    @cached_property
    def lengths(self) -> NDArray[np.int64]:
        """Tokens of each pair [N], including special ones."""
        sides = zip(self.queries, self.candidates, strict=True)
        return np.array([self.subwords.special + len(query) + len(paper) for query, paper in sides], np.int64)

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
        types = np.zeros_like(ids)
        for line, kinds, pair in zip(ids, types, chosen.tolist(), strict=True):
            query, candidate = self.queries[pair], self.candidates[pair]
            first = np.concatenate([subwords.before, query, subwords.between])
            second = np.concatenate([candidate, subwords.after])
            line[: len(first)] = first
            line[len(first) : len(first) + len(second)] = second
            kinds[len(first) : len(first) + len(second)] = subwords.second_type
        mask = (np.arange(width) < lengths[:, None]).astype(np.int64)
        return torch.from_numpy(ids), torch.from_numpy(types), torch.from_numpy(mask)


class PairReader:
    """Builds pairs from rows of a corpus; each text is tokenised once, on first use."""

    def __init__(self, corpus: Corpus, tokenizer: PreTrainedTokenizerFast, config: PairSettings) -> None:
        """Raises InputError for a tokeniser that does not support pairs (Subwords)."""
        self.corpus, self.config = corpus, config
        self.subwords = Subwords(tokenizer)
        self._budget = config.max_tokens - self.subwords.special
        if self._budget < 5:
            raise InputError(f"pairs.max_tokens={config.max_tokens}: too few for this model's special tokens")
        self._candidates = TokenTable(self._paper_tokens)
        self._set_queries(Queries.from_contexts(corpus, np.arange(len(corpus.context_ids))))

    def _set_queries(self, queries: Queries) -> None:
        self._queries = queries
        self._citing, self._passages = TokenTable(self._citing_tokens), TokenTable(self._passage_tokens)
        self._marks = np.zeros(len(queries), np.int64)
        """place of the target marker among the tokens of each passage that has been read"""

    def for_queries(self, queries: Queries) -> PairReader:
        """Return a reader of the same candidates for other queries, by their rows instead of contexts."""
        reader = copy.copy(self)
        reader._set_queries(queries)
        return reader

    def pairs(self, contexts: NDArray[np.integer], papers: NDArray[np.integer]) -> TokenPairs:
        """Build N pairs from rows [N] of contexts and rows [N] of candidates."""
        config = self.config
        citing, citing_sizes = self._citing(self._queries.fields["title"].rows[contexts])
        candidates, candidate_sizes = self._candidates(papers)
        room, share = np.full(len(citing), self._budget), config.citing
        if config.query == "paper":
            kept, size = divide_budget(
                citing_sizes, candidate_sizes, room, share / (share + config.candidate), (1, 1)
            )
            queries = [text[:count] for text, count in zip(citing, kept.tolist(), strict=True)]
        else:
            share += config.context
            passages, passage_sizes = self._passages(contexts)
            # The separator counts as a token of the query, as in the reference.
            whole = citing_sizes + 1 + passage_sizes
            query, size = divide_budget(
                whole, candidate_sizes, room, share / (share + config.candidate), (2, 1)
            )
            context, kept = divide_budget(
                passage_sizes, citing_sizes, query - 1, config.context / share, (1, 0)
            )
            before = context // 2 if config.truncate == "both" else context - 1
            start = np.clip(self._marks[contexts] - before, 0, passage_sizes - context)
            separator = np.array([self.subwords.sep], np.int32)
            cuts = zip(citing, kept.tolist(), passages, start.tolist(), context.tolist(), strict=True)
            queries = [
                np.concatenate([text[:count], separator, passage[first : first + length]])
                for text, count, passage, first, length in cuts
            ]
        candidates = [text[:count] for text, count in zip(candidates, size.tolist(), strict=True)]
        return TokenPairs(self.subwords, queries, candidates, config.max_tokens)

    def _paper_tokens(self, rows: list[int]) -> list[list[int]]:
        return self.subwords(_join_texts(self.corpus.titles, self.corpus.abstracts, rows))

    def _passage_tokens(self, rows: list[int]) -> list[list[int]]:
        """The tokens of contexts, with CIT as the target marker."""
        texts = self._queries[np.array(rows)].texts("context")
        if self.config.other_citations == "drop":
            texts = [text.replace(OTHER_MARKER, " ") for text in texts]
        sides = [text.split(TARGET_MARKER, 1) for text in texts]
        before = self.subwords([side[0] for side in sides])
        after = self.subwords([side[-1] for side in sides])
        self._marks[rows] = [len(tokens) for tokens in before]
        return [[*left, self.subwords.cit, *right] for left, right in zip(before, after, strict=True)]

    def _citing_tokens(self, rows: list[int]) -> list[list[int]]:
        titles, abstracts = (self._queries.fields[name].texts for name in ("title", "abstract"))
        texts = _join_texts(titles, abstracts if self.config.citing_abstract else None, rows)
        if self.config.citing_words is not None:
            texts = [" ".join(text.split()[: self.config.citing_words]) for text in texts]
        return self.subwords(texts)


def _join_texts(titles: Sequence[str], abstracts: Sequence[str] | None, rows: list[int]) -> list[str]:
    return [f"{titles[row]} {'' if abstracts is None else abstracts[row]}" for row in rows]


class LengthsReader(PairReader):
    """Builds pairs whose fields have lengths of their own, and may lack the abstract."""

    def __init__(self, corpus: Corpus, tokenizer: PreTrainedTokenizerFast, config: PairSettings) -> None:
        self._bare = np.zeros(len(corpus.paper_ids), np.int64)
        """subwords of each paper that has been read, without its abstract"""
        super().__init__(corpus, tokenizer, config)

    def _set_queries(self, queries: Queries) -> None:
        self._inputs = InputReader.of(self.subwords.tokenizer, self.config.lengths, "the cross-encoder")
        super()._set_queries(queries)

    def pairs(
        self, contexts: NDArray[np.integer], papers: NDArray[np.integer], abstracts: Mask | None = None
    ) -> TokenPairs:
        """Build N pairs from rows [N] of contexts and rows [N] of candidates. abstracts: [N], False leaves
        the candidate's abstract out."""
        passages, _ = self._passages(contexts)
        citing, _ = self._citing(self._queries.fields["title"].rows[contexts])
        candidates, whole = self._candidates(papers)
        if abstracts is not None:
            whole = np.where(abstracts, whole, self._bare[papers])
        queries = [np.concatenate(parts) for parts in zip(passages, citing, strict=True)]
        candidates = [text[:count] for text, count in zip(candidates, whole.tolist(), strict=True)]
        return TokenPairs(self.subwords, queries, candidates, self.config.max_tokens)

    def _passage_tokens(self, rows: list[int]) -> list[list[int]]:
        texts = self._queries[np.array(rows)].texts("context")
        return self._inputs.passages(texts, [""] * len(texts))

    def _citing_tokens(self, rows: list[int]) -> list[list[int]]:
        texts, most = self._queries.fields["title"].texts, self.config.lengths.citing_title
        subwords = self._inputs.subwords([texts[row] for row in rows], most)
        return [[self._inputs.special["separator"], *title] if title else [] for title in subwords]

    def _paper_tokens(self, rows: list[int]) -> list[list[int]]:
        papers = self._inputs.papers(self.corpus, rows)
        self._bare[rows] = [paper.bounds[0] - 1 if paper.bounds else len(paper.subwords) for paper in papers]
        return [paper.subwords for paper in papers]


def pair_reader(corpus: Corpus, tokenizer: PreTrainedTokenizerFast, config: PairSettings) -> PairReader:
    """The reader of a layout. Raises InputError for a tokeniser that does not support it."""
    kind = LengthsReader if config.layout == "lengths" else PairReader
    return kind(corpus, tokenizer, config)
