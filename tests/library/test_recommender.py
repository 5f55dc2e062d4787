"""Queries to a library: marks, filters, changes, and the same results as a search of its corpus."""

from __future__ import annotations

import json
import math
import os
import re
import shutil
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from citerec.base.checksums import write_checksums
from citerec.base.errors import InputError
from citerec.datasets.corpus import Corpus
from citerec.datasets.prepare import open_corpus
from citerec.formats.bibliography.paper import LibraryPaper
from citerec.hatten.documents import Vocabulary
from citerec.hatten.static.model import StaticModel
from citerec.hatten.static.network import StaticEncoder
from citerec.library.ask.question import Filters, Request, cited_near, is_english, mark_context, mark_query
from citerec.library.ask.recommender import NAMED, Recommender, _both_groups
from citerec.library.papers.library import Library
from citerec.library.papers.models import open_model
from citerec.library.papers.storage import MODEL
from citerec.rerank.ranker.confidence import BESIDE, NONE, SCALE, Confidence
from citerec.rerank.ranker.model import RankingModel
from citerec.rerank.settings import ScoringSettings
from citerec.retrieval.base import Ranking
from citerec.retrieval.dense import DenseRetriever
from citerec.retrieval.queries import Queries, Query
from citerec.tests.conftest import PAPERS, Hub, Run
from citerec.tests.hatten.made import random_model
from citerec.tests.library.conftest import FIELDS, change, papers_of
from citerec.tests.rerank.made import linear

SHELF = [
    LibraryPaper(
        f"id:{name}", name, record["title"], record["abstract"], year=2000 + row,
        venue=("ICML", "Proc. of ACL")[row % 2], aliases=(name,),
        collections=("odd",) if row % 2 else ("even", "all"),
    )
    for row, (name, record) in enumerate(PAPERS.items())
]  # fmt: skip
WORDS = sorted({word.strip(".,").lower() for p in SHELF for word in f"{p.title} {p.abstract}".split()})
QUESTION = "A parser of dependency trees [CITE] reads sentences."


@pytest.mark.parametrize(
    ("text", "english"),
    [
        ("We train graph networks on molecules [CITE].", True),
        ("Zhou et al. OTHERCIT; Shen et al. OTHERCIT; Zhu et al. OTHERCIT; Tétard et al. [CITE]", True),
        ("The map $\\phi: Ω → Σ$ of β, δ and λ is smooth, see Müller and García [CITE].", True),
        ("Les réseaux de neurones d'après Hinton et al. [CITE] sont profonds.", False),
        ("Sieci neuronowe osiągają najwyższą dokładność w zadaniach klasyfikacji obrazów [CITE].", False),
        (
            "Neuroverkot syrjäyttivät käsin määritellyt piirteet kuvien luokittelussa viime vuosina [CITE].",
            False,
        ),
        ("شبکه‌های عصبی [CITE]", False),
        ("用图神经网络 GNN 预测分子性质 [CITE]。", False),
        ("ニューラルネットワーク [CITE]", False),
    ],
)
def test_languages_of_passages(text: str, english: bool) -> None:
    assert is_english(mark_context(text)) == english


@pytest.fixture(scope="module")
def static(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("model") / "static"
    vocabulary = Vocabulary(["targetcit", *WORDS])
    vectors = np.random.default_rng(0).normal(size=(len(vocabulary), 16)).astype(np.float32)
    StaticModel(StaticEncoder(vectors, vocabulary).to_numpy(), vocabulary, 64, {}).save(folder)
    return str(folder)


@pytest.fixture(scope="module")
def ranked(static: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A ranker over the static model, as saved by train.py model=ranker."""
    folder = tmp_path_factory.mktemp("ranked")
    shutil.copytree(static, folder / "static")
    weights = linear({"dense": 1.0, "bm25": 0.5, "name_near": 1.0})
    RankingModel(weights).save(folder / "ranker")
    return str(folder)


@pytest.fixture(scope="module")
def libraries(static: str, ranked: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("libraries")
    for name, model in (("bm25", "bm25"), ("static", static), ("ranked", ranked)):
        Library.create(folder / name, SHELF, model=model)
    return folder


@pytest.fixture(params=["bm25", "static", "ranked"])
def library(request: pytest.FixtureRequest, libraries: Path, tmp_path: Path) -> Path:
    """A copy to change."""
    return Path(shutil.copytree(libraries / request.param, tmp_path / "mine"))


def test_models_come_from_the_hub(static: str, hub: Hub, tmp_path: Path) -> None:
    StaticModel.open(static).push("someone/static")
    random_model(["targetcit", *WORDS]).push("someone/hatten")
    found = {}
    for name, model in (("own", static), ("hub", "someone/static"), ("hatten", "someone/hatten")):
        Library.create(tmp_path / name, SHELF, model=model)
        found[name] = [paper.score for paper in Recommender.open(tmp_path / name).recommend(QUESTION)]
    assert found["own"] == found["hub"] != found["hatten"] and found["hatten"]
    with pytest.raises(InputError, match="no model with this id can be downloaded"):
        Library.create(tmp_path / "none", SHELF, model="someone/none")


def ids(found: Any) -> list[str]:
    return [paper.id for paper in found]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Adam \\cite{?} is", "Adam TARGETCIT is"),
        ("Adam~\\citep[see][]{TODO} is", "Adam~TARGETCIT is"),
        ("Adam [@?] and [CITE] are", "Adam TARGETCIT and OTHERCIT are"),
        ("we use \\cite{kingma}", "we use \\cite{kingma} TARGETCIT"),
        ("Adam [e.g. \\cite{?}] and [1]", "Adam [e.g. TARGETCIT] and [1]"),
        ("Adam \\cite{TODO:kingma2015} is", "Adam Kingma 2015 TARGETCIT is"),
        ("Adam [see @lee; @TODO:kingma] is, @?", "Adam Kingma TARGETCIT is, OTHERCIT"),
        ("TODO: say more of Adam TODO:kingma2015.", "TODO: say more of Adam Kingma 2015 TARGETCIT."),
        ('Adam #cite(label("TODO:kingma 2015")) is', "Adam Kingma 2015 TARGETCIT is"),
        ("Adam [cite:@TODO:kingma] is", "Adam Kingma TARGETCIT is"),
        ("Adam TARGETCIT is \\cite{TODO:lee2020}", "Adam TARGETCIT is OTHERCIT"),
        (
            "SGD [?] is as \\cite{?}, Adam TARGETCIT is not",
            "SGD OTHERCIT is as OTHERCIT, Adam TARGETCIT is not",
        ),
        ("write to a@todo.org", "write to a@todo.org TARGETCIT"),
        (r"Adam \citep{lee}, [@roe; @fern] and [CITE] are", "Adam OTHERCIT, OTHERCIT and TARGETCIT are"),
        ("a@site.org, as in [@lee, [CITE]]", "a@site.org, as in [OTHERCIT, TARGETCIT]"),
        ("[@lee; @roe] [CITE]", "[@lee; @roe] TARGETCIT"),  # keys alone
    ],
)
def test_the_first_mark_becomes_the_target(text: str, expected: str) -> None:
    assert mark_context(text) == expected


@pytest.mark.parametrize(
    ("text", "contexts", "cited", "place"),
    [
        (
            r"SGD \cite{bottou} steps; Adam [CITE] adapts [@none] its [@lee; @kingma].",
            [
                "SGD TARGETCIT steps; Adam OTHERCIT adapts [@none] its OTHERCIT.",
                "SGD OTHERCIT steps; Adam TARGETCIT adapts [@none] its OTHERCIT.",
                "SGD OTHERCIT steps; Adam OTHERCIT adapts [@none] its TARGETCIT.",
            ],
            [["BOTTOU"], [], ["LEE", "KINGMA"]],
            1,
        ),
        (
            "Adam #cite(<kingma>) [?]",
            ["Adam TARGETCIT OTHERCIT", "Adam OTHERCIT TARGETCIT"],
            [["KINGMA"], []],
            1,
        ),
        ("Adam @kingma", ["Adam TARGETCIT OTHERCIT", "Adam OTHERCIT TARGETCIT"], [["KINGMA"], []], 1),
    ],
)
def test_passages_cite_papers_of_the_library(
    text: str, contexts: list[str], cited: list[list[str]], place: int
) -> None:
    found, at = cited_near(text, lambda key: key.upper() if key != "none" else None)
    assert found is not None
    assert (found.contexts, found.cited, at) == (contexts, cited, place)


@pytest.mark.parametrize(
    "text", ["Adam [CITE]", f"Adam [@kingma]. {'word ' * 100}[CITE]", "Mail a@kingma.org [?]"]
)
def test_a_text_may_cite_no_paper_near_its_mark(text: str) -> None:
    assert cited_near(text, str.upper) == (None, 0)


def test_papers_like_those_that_a_question_cites_come_earlier(ranked: str, tmp_path: Path) -> None:
    model = RankingModel.open(f"{ranked}/ranker")
    parameters = {SCALE: 1.0, NONE: 0.0, BESIDE[0]: 50.0}
    replace(model, confidence=Confidence(parameters)).save(
        Path(shutil.copytree(ranked, tmp_path / "m")) / "ranker"
    )
    Library.create(tmp_path / "library", SHELF, model=str(tmp_path / "m"))
    mine = Recommender.open(tmp_path / "library")
    retriever = StaticModel.open(f"{ranked}/static").retriever().index(mine.library.corpus)
    assert isinstance(retriever, DenseRetriever)
    vectors = retriever.indexed_vectors(np.arange(len(SHELF)))
    for row, paper in enumerate(SHELF[:3]):
        nearest = int(np.argsort(-(vectors @ vectors[row]))[1])
        text = rf"A parser of dependency trees \cite{{{paper.key}}} reads sentences of words [CITE]."
        assert mine.recommend(text, k=1)[0].id == SHELF[nearest].id


def test_the_context_is_cut_from_a_longer_text_with_a_mark() -> None:
    words = "word " * 100
    short, long, unmarked = (mark_query(Query(text)) for text in ("a [CITE] b", f"{words}[CITE] b", words))
    assert (short.context, short.surroundings) == ("a TARGETCIT b", "")
    assert (long.context, long.surroundings) == (f"{words[:200]}TARGETCIT b", f"{words}TARGETCIT b")
    assert (unmarked.context, unmarked.surroundings) == (f"{words}TARGETCIT", "")


def test_results_equal_those_of_a_search(library: Path) -> None:
    mine = Recommender.open(library)
    found = mine.recommend(QUESTION, "Trees for everyone", k=5)
    corpus = mine.library.corpus
    own = "id:citing-train-1"  # has this title, and so is the paper being written
    query = Queries.from_list(corpus, [Query(mark_context(QUESTION), "Trees for everyone", own=own)])
    ranking = mine.library.retriever.search(query, 5)
    assert ids(found) == [corpus.paper_ids[row] for row in ranking.papers[0] if row >= 0]
    assert [paper.score for paper in found] == ranking.scores[0][: len(found)].tolist()
    assert [paper.rank for paper in found] == list(range(1, len(found) + 1))
    first = next(paper for paper in found if paper.key == "parsing")
    assert first.year == 2000 and first.title == "Dependency parsing" and "dependency trees" in first.why


@pytest.mark.parametrize(
    ("filters", "passes"),
    [
        ({"exclude": ["parsing", "id:graph", "unknown"]}, lambda p: p.key not in ("parsing", "graph")),
        ({"only": ["speech", "id:vision"]}, lambda p: p.key in ("speech", "vision")),
        ({"exclude": "parsing"}, lambda p: p.key != "parsing"),
        ({"years": "2003-2005"}, lambda p: 2003 <= p.year <= 2005),
        ({"years": "-2004"}, lambda p: p.year <= 2004),
        ({"years": "2004"}, lambda p: p.year == 2004),
        ({"venue": "acl"}, lambda p: "ACL" in p.venue),
        ({"collection": "even", "years": "2002-"}, lambda p: "even" in p.collections and p.year >= 2002),
    ],
)
def test_filters_restrict_the_papers(library: Path, filters: dict[str, Any], passes: Any) -> None:
    mine = Recommender.open(library)
    text = f"{QUESTION} Graphs, speech, images and rhyme of documents."
    everything = mine.recommend(text, k=50)
    shelf = {paper.id: paper for paper in SHELF}
    expected = [paper.id for paper in everything if passes(shelf[paper.id])]
    found = ids(mine.recommend(text, k=50, filters=Filters(**filters)))
    assert expected and sorted(found) == sorted(expected)
    if mine.library.retriever.name != "ranker":  # its features depend on the other candidates
        assert found == expected


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"text": "[CITE] .,"}, "text: has no words"),
        ({"text": "a" * 100_001}, "at most 100,000"),
        ({"filters": Filters(only=["nobody"])}, "only=nobody: no paper"),
        ({"filters": Filters(years="2020-2010")}, "the first year comes after the last"),
        ({"filters": Filters(years="soon")}, "must look like 2015-2020"),
        ({"years": 20155}, "years=20155: must look like 2015-2020"),
        ({"filters": Filters(collection="none")}, "collection=none: no paper"),
        ({"rerank": True}, "there is no cross-encoder"),
    ],
)
def test_bad_queries_raise_one_line(library: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Recommender.open(library).recommend(**{"text": QUESTION, **options})


def test_a_library_with_a_ranker_of_before_is_one_line(ranked: str, tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    Library.create(mine, SHELF, model=ranked)
    folder = Library.open(mine).folder
    file = folder / MODEL / "ranker" / "ranker.json"
    file.unlink()  # it may be a hard link
    file.write_text('{"format": "ranker-1", "models": {}}')
    write_checksums(folder)
    line = rf"^{mine}: built by another version; build it again: citerec build library={mine} overwrite=true$"
    with pytest.raises(InputError, match=line):
        Recommender.open(mine)
    with pytest.raises(InputError, match=line), Library.edit(mine) as library:
        library.change([], [SHELF[0]._replace(id="new")])


def test_a_changed_library_answers_like_a_new_one(library: Path, tmp_path: Path) -> None:
    mine, model = Recommender.open(library), Library.open(library).manifest.model
    more = [
        LibraryPaper("id:new", "new", "Parsers of trees", "Dependency parsers build trees of words."),
        SHELF[1]._replace(abstract="Messages pass along edges, and so are graphs parsed.", aliases=()),
    ]
    other, texts = Recommender.open(library), (QUESTION, "graphs [CITE]", "sound waves [CITE]")
    for paper in (LibraryPaper("id:gone", "gone", "Parsers of beetles", "Dependency trees."), *more):
        change(mine, [paper])
        anew = Recommender.open(library)
        assert [*map(anew.recommend, texts)] == [*map(mine.recommend, texts)]
    change(mine, removed=["speech", "gone"])
    papers = [paper for paper in SHELF if paper.key not in ("graph", "speech")] + more
    assert ids(other.recommend(QUESTION, k=20)) == ids(mine.recommend(QUESTION, k=20)), "it follows changes"
    Library.create(tmp_path / "other", papers, model=model)
    other = Recommender.open(tmp_path / "other")
    assert sorted(papers_of(mine.library)) == sorted(papers_of(other.library))
    for text in texts:
        found, expected = mine.recommend(text, k=20), other.recommend(text, k=20)
        assert ids(found) == ids(expected) and "id:speech" not in ids(found)
        np.testing.assert_allclose([p.score for p in found], [p.score for p in expected], rtol=1e-5)
    assert Recommender.open(library).recommend(QUESTION) == mine.recommend(QUESTION)
    assert [paper.key for paper in mine.search("parsers of words", 1)] == ["new"]
    mine.library.verify()


def test_files_behind_symbolic_links_do_not_change(library: Path, tmp_path: Path) -> None:
    """As in the cache of the hub."""
    before = {file: file.read_bytes() for file in library.rglob("*") if file.is_file()}
    shutil.copytree(library, tmp_path / "linked", copy_function=os.symlink)
    mine, paper = Recommender.open(tmp_path / "linked"), LibraryPaper("id:new", "new", "Beetles for parsing")
    change(mine, [paper])
    assert papers_of(mine.library)[-1] == paper
    mine.library.verify()
    assert {file: file.read_bytes() for file in before} == before


def test_a_cross_encoder_reranks_the_top_papers(
    library: Path, tiny_reranker: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scoring = ScoringSettings("float32")
    plain, mine = Recommender.open(library), Recommender.open(library, tiny_reranker, scoring)
    assert mine.reranker and not plain.reranker
    found, reread = plain.recommend(QUESTION, k=6), mine.recommend(QUESTION, k=6)
    assert ids(mine.recommend(QUESTION, k=6, rerank=False)) == ids(found)
    assert [paper.score for paper in reread] == [paper.score for paper in found]
    assert mine.recommend(QUESTION, k=6) == reread
    assert mine.reranker is not None

    def last_first(_: Queries, papers: Any) -> Any:
        return np.where(papers >= 0, np.arange(papers.shape[1]), -np.inf).astype(np.float32)

    monkeypatch.setattr(mine.reranker, "score_candidates", last_first)
    monkeypatch.setattr("citerec.library.ask.recommender.RERANKER_WEIGHT", 1.0)
    everything = ids(plain.recommend(QUESTION, k=len(SHELF)))
    assert ids(mine.recommend(QUESTION, k=6)) == everything[::-1][:6]


def test_batches_and_threads_get_the_results_of_single_queries(library: Path) -> None:
    mine = Recommender.open(library)
    texts = [f"{word} [CITE] parsers of graphs" for word in ("old", "unheard", "parsing", "zyzzyva")] * 5
    alone = [mine.recommend(text) for text in texts]
    assert mine.recommend_batch([Request(Query(text)) for text in texts]) == alone
    with ThreadPoolExecutor(len(texts)) as pool:
        assert list(pool.map(mine.recommend, texts)) == alone


def test_ask_prints_the_requested_format(library: Path, command: Run) -> None:
    def said(*arguments: str) -> str:
        return command("ask", f"library={library}", *arguments)[1]

    found = json.loads(said(f"text={QUESTION}", "k=3", "format=json"))
    assert [list(one) for one in found] == [FIELDS] * 3
    assert [one["id"] for one in found] == ids(Recommender.open(library).recommend(QUESTION, k=3))
    keys = [one["key"] for one in found]
    assert said(QUESTION, "k=3", "format=cite") == f"\\cite{{{','.join(keys)}}}\n"
    entries = said(QUESTION, "k=3", "format=bibtex")
    assert re.findall(r"@\w+\{(\S+),", entries) == keys
    assert found[0]["title"] in said(QUESTION, "k=1")
    assert command("ask", f"library={library}", QUESTION, "format=xml")[0] == 2
    explained = json.loads(said(QUESTION, "k=1000000000000", "format=json", "explain=true"))
    assert [paper["id"] for paper in explained] == ids(Recommender.open(library).recommend(QUESTION, k=99))
    assert ("features" in explained[0]) == (Library.open(library).retriever.name == "ranker")


def test_a_library_ranks_like_its_retriever(library: Path, tiny_corpus: Corpus, tmp_path: Path) -> None:
    everything = open_corpus(tmp_path / "tiny", cache_dir=tmp_path / "all", candidates="all")
    retriever = open_model(Library.open(library).folder / MODEL)
    queries = Queries.from_contexts(everything, everything.split("test").contexts)
    expected = retriever.index(everything).search(queries, 10)
    mine = Recommender.open(library)
    papers = mine.library
    texts = map(queries.texts, ("context", "title", "abstract"))
    for row, (context, title, abstract, own) in enumerate(zip(*texts, queries.citing, strict=True)):
        filters = Filters(exclude=(everything.paper_ids[own],))
        found = mine.ranked(Request(Query(context, title, abstract), filters), 10).ids
        names = [everything.paper_ids[paper] for paper in expected.papers[row] if paper >= 0]
        assert found == [papers.corpus.paper_ids[papers.row(name) or 0] for name in names]


def test_probabilities_sum_to_at_most_one_and_a_named_paper_is_sure(static: str, tmp_path: Path) -> None:
    shutil.copytree(static, tmp_path / "model" / "static")
    weights = linear({"bm25": 2.0})
    confidence = Confidence({"scale": 1.0, "none": 2.0, "known": 0.5, "known, others": 0.0})
    RankingModel(weights, confidence).save(tmp_path / "model" / "ranker")
    model = str(tmp_path / "model")
    records = SHELF
    library = Library.create(tmp_path / "library", records, model=model)
    mine = Recommender(library)
    assert mine.library.retriever.log_probabilities
    titled = next(paper for paper in records if paper.title and paper.key)
    for text in (f"On {titled.title} [CITE]", "zyzzyva [CITE] flumph", titled.key):
        found = mine.recommend(text, k=len(records))
        probabilities = [paper.probability for paper in found]
        assert all(one is not None and 0 <= one <= 1 for one in probabilities)
        assert sum(filter(None, probabilities)) <= 1 + 1e-5
        assert probabilities == sorted(probabilities, key=lambda one: one or 0, reverse=True)
        assert [math.log(paper.probability or 1) for paper in found[:3]] == pytest.approx(
            [paper.score for paper in found[:3]]
        )
    assert found[0].key == titled.key and found[0].probability == pytest.approx(NAMED)
    found = mine.recommend(titled.key, titled.title, k=len(records))  # the paper being written
    assert found and titled.key not in {paper.key for paper in found}


def test_ranked_papers_are_recommended_later(library: Path) -> None:
    recommender = Recommender.open(library)
    known = tuple(paper.id for paper in SHELF[:2])
    request = Request(Query(QUESTION, "Parsing", known=known))
    ranked = recommender.ranked(request, 1000)
    assert ranked.best(3) == recommender.recommend_batch([request], 3)[0]
    order = [paper.id for paper in ranked.among([paper.id for paper in SHELF], 100)]
    chosen = [order[4], order[1], order[2]]
    assert [paper.id for paper in ranked.among(chosen, 2)] == [order[1], order[2]]
    assert [paper.id for paper in ranked.among([*chosen, "unknown"], 9)] == [order[1], order[2], order[4]]
    shallow = recommender.ranked(request, 1).among([order[-1], order[0]], 9)
    assert [paper.id for paper in shallow] == [order[0], order[-1]]  # not ranked, so it follows
    assert shallow[0].score >= shallow[1].score
    found = set(ranked.ids)
    for query in ("parser", "pars", "GRAPH", "2003 a", "zzz"):
        words = query.lower().split()
        expected = [
            paper.id
            for paper in SHELF
            if all(
                re.search(rf"\b{word}", f"{paper.title} {paper.year} {paper.venue}".lower()) for word in words
            )
        ]
        assert sorted(ranked.matching(query)) == sorted(found.intersection(expected))


@pytest.mark.parametrize(("k", "cited"), [(1, 3), (10, 3), (20, 6), (100, 30)])
def test_more_papers_cited_elsewhere_beside_more_others(k: int, cited: int) -> None:
    rows = np.arange(200, dtype=np.int32)
    ranking = Ranking(rows[None], -rows[None].astype(np.float32))
    kept = _both_groups(ranking, rows[::2], k).papers[0]
    assert (kept % 2 == 0).sum() == cited and (kept % 2 == 1).sum() == k


def test_a_file_is_opened_as_a_library_and_filtered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    entry = "@article{%s, title={Trees of %s}, author={%s, Ann}, year=%d}\n"
    written = (
        entry % (name, name, surname, year)
        for name, surname, year in (("oak", "Edwards", 2014), ("elm", "Moss", 2016), ("ash", "Moss", 2018))
    )
    (tmp_path / "a.bib").write_text("".join(written))
    opened = Recommender.open(tmp_path / "a.bib")
    found = opened.recommend("Trees grow [CITE].", years="2015-", exclude=["elm"])
    assert [paper.key for paper in found] == ["ash"]
    strangers = opened.search("edwrads 2016")
    assert opened.lacking("edwrads 2016", strangers) == ["nothing has “edwrads”; did you mean edwards?"]
    assert opened.lacking("moss 2016", opened.search("moss 2016")) == []
    no_number: Any = "3"
    for call in (lambda: opened.recommend("a", k=no_number), lambda: opened.search("a", k=0)):
        with pytest.raises(InputError, match=r"k=.: must be a whole number, at least 1"):
            call()
    with pytest.raises(InputError, match="text=3: must be a text"):
        opened.recommend(3)  # type: ignore[arg-type]
