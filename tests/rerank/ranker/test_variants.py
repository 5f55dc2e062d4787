"""Small libraries cut from a corpus (rerank/ranker/variants.py)."""

import numpy as np

from citerec.datasets.corpus import Corpus
from citerec.rerank.ranker.variants import AUTHORS, small_libraries
from citerec.retrieval.lexical.bm25 import BM25
from citerec.retrieval.passages import cited_elsewhere
from citerec.retrieval.queries import Queries


def test_every_context_asks_one_library_that_has_its_answers(demo_corpus: Corpus) -> None:
    split, asked = demo_corpus.split("val"), []
    for library, contexts in small_libraries(demo_corpus, split, 0):
        asked += contexts.contexts.tolist()
        assert library.is_candidate[contexts.positives.values].all()
        assert not library.seen.any() and "train" not in library.splits
        citing = np.unique(library.citing[contexts.contexts])
        assert len(citing) <= max(AUTHORS)
        inside = citing[citing >= 0]
        assert [library.paper_ids[i] for i in inside] == [
            demo_corpus.paper_ids[i] for i in np.unique(demo_corpus.citing[contexts.contexts]) if i >= 0
        ]
        for row, paper in enumerate(library.paper_ids):
            old = demo_corpus.paper_row(paper)
            assert library.paper_row(paper) == row
            assert library.titles[row] == demo_corpus.titles[old]
            assert library.years[row] == demo_corpus.years[old]
            kept = len(library.abstract_tokens[row]) > 0
            assert library.abstracts[row] == (demo_corpus.abstracts[old] if kept else "")
    assert sorted(asked) == sorted(split.contexts.tolist())


def test_of_a_sample_all_other_citations_are_known(demo_corpus: Corpus) -> None:
    whole = demo_corpus.split("val")
    sample = whole.take(np.arange(0, len(whole), 5))
    for library, asked in small_libraries(demo_corpus, sample, 0):
        known = cited_elsewhere(library, library.splits["val"], asked.contexts).known
        wanted = cited_elsewhere(demo_corpus, whole, asked.contexts).known
        for here, there in zip(known, wanted, strict=True):
            assert [library.paper_ids[i] for i in here] == [demo_corpus.paper_ids[i] for i in there]
        assert library.is_candidate[known.values].all()


def test_a_library_is_searched_as_any_corpus_is(demo_corpus: Corpus) -> None:
    library, contexts = next(small_libraries(demo_corpus, demo_corpus.split("val"), 1))
    queries = Queries.from_contexts(library, contexts)
    assert queries.texts("title") == Queries.from_contexts(demo_corpus, contexts.contexts).texts("title")
    retriever = BM25()
    retriever.index(library)
    papers = retriever.search(queries, 10).papers
    assert library.is_candidate[papers[papers >= 0]].all()


def test_the_same_seed_gives_the_same_libraries(demo_corpus: Corpus) -> None:
    def draw(seed: int) -> list[str]:
        return [
            library.fingerprint for library, _ in small_libraries(demo_corpus, demo_corpus.split("val"), seed)
        ]

    assert draw(3) == draw(3) != draw(4)
