"""Queries: unknown words, markers and selection."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from citerec.base.errors import InputError
from citerec.datasets.corpus import Corpus
from citerec.datasets.records import SECTION
from citerec.formats.bibliography.paper import LibraryPaper
from citerec.hatten.model import HAttenRetriever
from citerec.library.papers.library import Library
from citerec.rerank.ranker.corpus_statistics import CorpusStatistics
from citerec.retrieval.lexical.bm25 import BM25
from citerec.retrieval.queries import Queries, Query, cut_around_mark, target_marker_id
from citerec.retrieval.run import CachedRun
from citerec.tests.hatten.made import random_model


def test_unknown_words_count_if_their_stem_is_known(tiny_corpus: Corpus) -> None:
    bm25 = BM25(query=["context"]).index(tiny_corpus)
    plain, inflected, unknown = (
        Query(f"{word} TARGETCIT") for word in ("parser", "parsers parsers", "zyzzyva")
    )
    asked = Queries.from_list(tiny_corpus, [plain, inflected, unknown])
    assert list(asked.new_words) == ["parsers", "zyzzyva"]
    result = bm25.search(asked, 5)
    assert result.papers[0].tolist() == result.papers[1].tolist()
    assert result.papers[0, 0] == tiny_corpus.paper_row("parsing")
    assert (result.papers[2] == -1).all()


def test_words_that_only_the_model_knows_are_read(tiny_corpus: Corpus) -> None:
    model = random_model([*tiny_corpus.words, "zyzzyva"], dim=12, hidden=8, max_tokens=20)
    retriever = HAttenRetriever(model, arithmetic="float32").index(tiny_corpus)
    asked = Queries.from_list(tiny_corpus, [Query("zyzzyva"), Query("quagga"), Query("")])
    assert (retriever.search(asked, 3).papers[0] >= 0).all()
    assert (retriever.search(asked, 3).papers[1:] == -1).all()


def test_queries_with_other_texts_have_other_vectors(tiny_corpus: Corpus) -> None:
    """Vectors of contexts are kept for the next search of the same ones."""
    model = random_model([*tiny_corpus.words], dim=12, hidden=8, max_tokens=20)
    retriever = HAttenRetriever(model, arithmetic="float32").index(tiny_corpus)
    asked = Queries.from_contexts(tiny_corpus, tiny_corpus.split("train"))
    other = asked.with_context(asked[::-1].fields["context"])
    whole, changed, again = (retriever.search(queries, 5) for queries in (asked, other, asked))
    assert (whole.scores == again.scores).all() and (whole.scores != changed.scores).any()
    fresh = HAttenRetriever(model, arithmetic="float32").index(tiny_corpus).search(other, 5)
    np.testing.assert_array_equal(changed.scores, fresh.scores)


def test_selected_queries_keep_their_fields(tiny_corpus: Corpus) -> None:
    asked = Queries.from_list(
        tiny_corpus, [Query("one TARGETCIT", known=("speech",)), Query("two TARGETCIT", "graphs", year=2001)]
    )
    second, first = asked[np.array([1, 0])], asked[:1]
    assert second.texts("context") == ["two TARGETCIT", "one TARGETCIT"]
    assert second.texts("title") == ["graphs", ""] and second.years.tolist() == [2001, 0]
    assert second.known[1].tolist() == [tiny_corpus.paper_row("speech")] and len(first) == 1
    assert second.names() == ["'two TARGETCIT'", "'one TARGETCIT'"]
    assert Queries.from_contexts(tiny_corpus, np.array([8])).names() == [tiny_corpus.context_ids[8]]


def test_surroundings_are_cut_from_the_longer_text(tiny_corpus: Corpus) -> None:
    text = f"{'before ' * 500}near TARGETCIT here{' after' * 500}"
    long, short = Query("near TARGETCIT here", surroundings=text), Query("one TARGETCIT")
    asked = Queries.from_list(tiny_corpus, [long, short])
    assert asked.texts("context") == ["near TARGETCIT here", "one TARGETCIT"]
    cut, same = asked.texts("section")
    assert same == "one TARGETCIT" and cut == cut_around_mark(text, SECTION)
    left, _, right = cut.partition("TARGETCIT")
    assert SECTION - 8 < len(left) <= SECTION and SECTION - 8 < len(right) <= SECTION
    assert set(cut.split()) == {"before", "near", "TARGETCIT", "here", "after"}
    alone = Queries.from_list(tiny_corpus, [short])
    of_corpus = Queries.from_contexts(tiny_corpus, np.array([8]))
    for queries in (alone, of_corpus, asked.with_context(asked.fields["context"])):
        assert queries.texts("section") == queries.texts("context")


def test_the_marker_is_found_if_the_corpus_lacks_it(tmp_path: Path) -> None:
    library = Library.create(tmp_path / "l", [LibraryPaper("a", title="Parsers of trees", abstract="Trees.")])
    asked = Queries.from_list(library.corpus, [Query("Parsers TARGETCIT of zyzzyva trees")])
    assert asked.words("context")[0].tolist()[1] == target_marker_id(library.corpus)
    statistics = CorpusStatistics.build(library.corpus)
    assert statistics.distances(asked.words("context")).tolist() == [-1, 0, 1, 2, 3]


def test_runs_cannot_answer_new_queries(tiny_corpus: Corpus, tmp_path: Path) -> None:
    (tmp_path / "run.trec").write_text("c9 Q0 speech 1 2.5 made\n")
    run = CachedRun(tmp_path / "run.trec").index(tiny_corpus)
    with pytest.raises(InputError, match="choose another retriever"):
        run.search(Queries.from_list(tiny_corpus, [Query("sound TARGETCIT")]), 3)
