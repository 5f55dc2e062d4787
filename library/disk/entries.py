"""What a shard keeps of a paper, and what it is asked for a query."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from citerec.datasets.columns import Ragged
from citerec.datasets.records import PaperRecord
from citerec.datasets.some_papers import SomePapers
from citerec.datasets.tokenize import default_tokenize
from citerec.datasets.word_statistics import WordStatistics
from citerec.formats.bibliography.paper import LibraryPaper
from citerec.formats.letters import fold
from citerec.formats.names import surname
from citerec.formats.same_work import identity
from citerec.library.ask.candidates import record_of, surnames_of
from citerec.library.disk.shard_writer import Entry
from citerec.library.papers.models import MOST_ENCODED
from citerec.rerank.ranker.author_names import longest_part, names_beside
from citerec.rerank.ranker.paper_names import initials
from citerec.retrieval.arrays import Floats
from citerec.retrieval.dense import DenseRetriever
from citerec.retrieval.lexical.bm25 import BM25
from citerec.retrieval.lexical.terms import Terms, strip_markers
from citerec.retrieval.networks.encoder import keys_of
from citerec.retrieval.networks.store import Keys
from citerec.retrieval.queries import Query

FIRST, INITIALS, CALLED = "first:", "initials:", "called:"
"""Kinds of names in a shard: surname of the first author, initials of the title; id, key or alias."""
SAME = ("id", "doi", "arxiv", "title")
"""Kinds of hashed identifiers there, which two records of a paper may share (formats.same_work)."""
ENCODED = "encoded:"
"""Kind of name by which networks know what they have read of a paper, in libraries of up to MOST_ENCODED."""


def records_of(batch: pa.RecordBatch) -> Iterator[PaperRecord]:
    """Yield the papers of a batch of a part likewise."""
    *texts, authors = (batch[name].to_pylist() for name in ("id", "title", "abstract", "year", "authors"))
    return map(PaperRecord, *texts, map(surnames_of, authors))


def names_of(paper: LibraryPaper) -> list[str]:
    """Return what a shard finds a paper by, besides its words."""
    names = [CALLED + name for name in dict.fromkeys((paper.id, paper.key, *paper.aliases)) if name]
    if paper.authors:
        names.append(FIRST + folded(longest_part(surname(paper.authors[0]))))
    names += [INITIALS + folded(letters) for letters in initials(paper.title)]
    return names + shared_names(paper)


def shared_names(paper: LibraryPaper) -> list[str]:
    """Return the identifiers that another record of the paper may share."""
    return [f"{kind}:{value}" for kind, value in zip(SAME, identity(paper), strict=False) if value]


def names_in(context: str) -> tuple[list[str], set[int]]:
    """Return the names of papers that may be meant near the mark of a context, and the years there."""
    names, short, years = names_beside(context)
    return [*(FIRST + folded(name) for name in names), *(INITIALS + folded(name) for name in short)], years


@lru_cache(1 << 16)
def folded(name: str) -> str:
    return fold(name).casefold()


def entries(
    papers: Sequence[LibraryPaper], dense: DenseRetriever, whole: WordStatistics
) -> tuple[list[Entry], Floats, SomePapers]:
    """Return what shards keep of papers [n], their vectors [n, D], and their corpus."""
    corpus = SomePapers([record_of(paper) for paper in papers], whole, "papers")
    terms = Terms.from_words(corpus.words, **BM25().tokenisation)
    title, abstract = (_join(terms, words) for words in (corpus.title_tokens, corpus.abstract_tokens))
    texts = pc.binary_join_element_wise(title, abstract, " ").to_pylist()
    rows = np.arange(len(papers))
    found = [Entry(paper, text, names_of(paper)) for paper, text in zip(papers, texts, strict=True)]
    if whole.papers <= MOST_ENCODED:
        for entry, name in zip(found, encoded_names(keys_of(corpus, rows)), strict=True):
            entry.names.append(name)
    dense.prepare(corpus)
    return found, dense.encode_papers(rows), corpus


def encoded_names(keys: Keys) -> list[str]:
    """Return the names of papers [n] by their keys in the store of what networks have read."""
    return [f"{ENCODED}{key:x}" for key in keys.tolist()]


def _join(terms: Terms, words: Ragged) -> pa.Array:
    """Join the terms of texts [n] by spaces."""
    found = terms.word_terms.take(words.values)
    rows = pa.array(found.offsets[words.offsets].astype(np.int32))
    names = pa.array(terms.names, pa.string()).take(pa.array(found.values))
    return pc.binary_join(pa.ListArray.from_arrays(rows, names), " ")


def query_terms(query: Query) -> list[str]:
    """Return BM25's terms of a query, with repeats."""
    bm25 = BM25()
    words = [word for field in bm25.query for word in default_tokenize(strip_markers(getattr(query, field)))]
    terms = Terms.from_words(words, **bm25.tokenisation)
    return [terms.names[term] for term in terms.word_terms.values]
