"""The key terms of papers that ask: the few words of title and abstract that tell most about them.

As Citeomatic asks BM25 (Bhagavatula et al. 2018, citeomatic/candidate_selectors.py), and after it Nogueira et
al. 2020, section 5.3: what Whoosh's `key_terms_from_text` gives, 3 terms of the title and 5 of the abstract.
Its weights are those of the model Bo1 (Amati 2003): a term that stands t times in a text, and F times in that
field of all N papers together, has

    t log2((1 + f) / f) + log2(1 + f),  f = F / N.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_matrix

from datasets.ragged import Ragged
from datasets.store import Corpus
from retrieval.terms import Terms

KEY_TERMS = "key_terms"
"""Their name among the fields of a query."""

OF_TITLE, OF_ABSTRACT = 3, 5

PAPERS_AT_ONCE = 1 << 16


class KeyTerms:
    """Finds the key terms of the papers that a corpus's contexts stand in.

    papers: the rows whose titles and abstracts are counted. A term that none of them has is no key term.
    """

    def __init__(self, terms: Terms, corpus: Corpus, papers: npt.NDArray[np.int32]) -> None:
        self._terms, self._corpus = terms, corpus
        columns = ((corpus.title_tokens, OF_TITLE), (corpus.abstract_tokens, OF_ABSTRACT))
        self._fields = [(words, self._shares(words, papers), most) for words, most in columns]

    def counts(self, contexts: npt.NDArray[np.int64]) -> csr_matrix:
        """Of each context [Q] its key terms, each once: float32 [Q, T]."""
        citing = self._corpus.citing[contexts]
        found: list[npt.NDArray[np.integer]] = [np.empty(0, np.int32)] * len(contexts)
        for words, shares, most in self._fields:
            times = self._terms.counts(np.arange(len(contexts)), words.take(citing), len(contexts)).tocsr()
            times.sum_duplicates()
            for query in range(len(contexts)):
                part = slice(times.indptr[query], times.indptr[query + 1])
                terms, often = times.indices[part], times.data[part]
                known = shares[terms] > 0
                terms, often = terms[known], often[known]
                order = np.lexsort((terms, -bo1(often, shares[terms])))
                found[query] = np.union1d(found[query], terms[order[:most]])
        rows = Ragged.from_rows([terms.tolist() for terms in found])
        ones = np.ones(len(rows.values), np.float32)
        return csr_matrix((ones, rows.values, rows.offsets), shape=(len(contexts), self._terms.size))

    def _shares(self, words: Ragged, papers: npt.NDArray[np.int32]) -> npt.NDArray[np.float64]:
        """How often each term [T] stands in a field of the papers, divided by their number."""
        total = np.zeros(self._terms.size, np.int64)
        for start in range(0, len(papers), PAPERS_AT_ONCE):
            block = words.take(papers[start : start + PAPERS_AT_ONCE])
            total += np.bincount(self._terms.of_word.take(block.values).values, minlength=len(total))
        return total / max(len(papers), 1)


def bo1(times: npt.NDArray[np.floating], shares: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """The weights of terms [n] by how often they stand in a text and, on average, in a paper."""
    return np.asarray(times * np.log2((1 + shares) / shares) + np.log2(1 + shares))
