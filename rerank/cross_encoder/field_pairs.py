"""Pairs as the small networks read them (retrieval.networks.inputs), with model.pairs.layout=lengths.

[CLS] context with [MASK] [SEP] citing title [SEP] candidate's title, names, year [SEP] its abstract [SEP]
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from citerec.datasets.corpus import Corpus
from citerec.rerank.cross_encoder.pairs import PairReader, TokenPairs
from citerec.rerank.settings import PairSettings
from citerec.retrieval.arrays import Mask
from citerec.retrieval.networks.inputs import InputReader
from citerec.retrieval.queries import Queries

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast


def pair_reader(corpus: Corpus, tokenizer: PreTrainedTokenizerFast, config: PairSettings) -> PairReader:
    """The reader of a layout. Raises InputError for a tokeniser that does not support it."""
    kind = LengthsReader if config.layout == "lengths" else PairReader
    return kind(corpus, tokenizer, config)


class LengthsReader(PairReader):
    """Builds pairs whose fields have lengths of their own, and may lack citing title and abstract."""

    def __init__(self, corpus: Corpus, tokenizer: PreTrainedTokenizerFast, config: PairSettings) -> None:
        self._bare = np.zeros(len(corpus.paper_ids), np.int64)
        """subwords of each paper that has been read, without its abstract"""
        super().__init__(corpus, tokenizer, config)

    def _set_queries(self, queries: Queries) -> None:
        self._inputs = InputReader.of(self.subwords.tokenizer, self.config.lengths, "the cross-encoder")
        super()._set_queries(queries)

    def pairs(
        self,
        contexts: NDArray[np.integer],
        papers: NDArray[np.integer],
        titles: Mask | None = None,
        abstracts: Mask | None = None,
    ) -> TokenPairs:
        """Build N pairs from rows [N] of contexts and rows [N] of candidates. titles, abstracts: [N], False
        leaves the citing title or the candidate's abstract out."""
        passages, _ = self._passages(contexts)
        citing, sizes = self._citing(self._queries.fields["title"].rows[contexts])
        candidates, whole = self._candidates(papers)
        if titles is not None:
            sizes = np.where(titles, sizes, 0)
        if abstracts is not None:
            whole = np.where(abstracts, whole, self._bare[papers])
        queries = [
            np.concatenate([passage, title[:count]])
            for passage, title, count in zip(passages, citing, sizes.tolist(), strict=True)
        ]
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
