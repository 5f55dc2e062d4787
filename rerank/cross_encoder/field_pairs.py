"""Pairs as the small networks read them (retrieval.networks.inputs), with model.pairs.layout=lengths.

[CLS] context with [MASK] [SEP] citing title [SEP] candidate's title, names, year [SEP] its abstract [SEP]
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from citerec.datasets.corpus import Corpus
from citerec.rerank.cross_encoder.pairs import PairReader, Spans, TokenPairs, TokenTable
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
        self._candidates = TokenTable(len(corpus.paper_ids), self._paper_tokens)

    def _set_queries(self, queries: Queries) -> None:
        self._inputs = InputReader.of(self.subwords.tokenizer, self.config.lengths, "the cross-encoder")
        self._queries = queries
        self._citing = TokenTable(len(queries.fields["title"].texts), self._title_tokens)
        self._passages = TokenTable(len(queries), self._passage_tokens)

    def pairs(
        self,
        contexts: NDArray[np.integer],
        papers: NDArray[np.integer],
        titles: Mask | None = None,
        abstracts: Mask | None = None,
    ) -> TokenPairs:
        """Build N pairs from rows [N] of contexts and rows [N] of candidates. titles, abstracts: [N], False
        leaves the citing title or the candidate's abstract out."""
        citing = self._queries.fields["title"].rows[contexts]
        passage, title = self._passages.lengths(contexts), self._citing.lengths(citing)
        candidate = self._candidates.lengths(papers)
        if titles is not None:
            title = np.where(titles, title, 0)
        if abstracts is not None:
            candidate = np.where(abstracts, candidate, self._bare[papers])
        frame = len(self.subwords.before) + len(self.subwords.between) + len(self.subwords.after)
        return TokenPairs(
            self.subwords,
            [],
            Spans(self._passages.values, self._passages.starts(contexts), passage),
            Spans(self._citing.values, self._citing.starts(citing), title),
            Spans(self._candidates.values, self._candidates.starts(papers), candidate),
            frame + passage + title + candidate,
            self.config.max_tokens,
        )

    def _passage_tokens(self, rows: list[int]) -> list[list[int]]:
        texts = self._queries[np.array(rows)].texts("context")
        return self._inputs.passages(texts, [""] * len(texts))

    def _title_tokens(self, rows: list[int]) -> list[list[int]]:
        texts, most = self._queries.fields["title"].texts, self.config.lengths.citing_title
        subwords = self._inputs.subwords([texts[row] for row in rows], most)
        return [[self._inputs.special["separator"], *title] if title else [] for title in subwords]

    def _paper_tokens(self, rows: list[int]) -> list[list[int]]:
        papers = self._inputs.papers(self.corpus, rows)
        self._bare[rows] = [paper.bounds[0] - 1 if paper.bounds else len(paper.subwords) for paper in papers]
        return [paper.subwords for paper in papers]
