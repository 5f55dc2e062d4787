"""Search by key, authors, year and title, and questions that name a paper."""

# ruff: noqa: RUF001

from __future__ import annotations

import unicodedata
from pathlib import Path

import pytest

from citerec.base.errors import InputError
from citerec.formats.bibliography.paper import LibraryPaper
from citerec.library.ask.question import Filters
from citerec.library.ask.recommender import Recommender
from citerec.library.papers.library import Library
from citerec.library.papers.search import MAX_WORDS
from citerec.tests.library.conftest import change, papers_of

PAPERS = [
    LibraryPaper(
        "lda", "blei2003lda", "Latent Dirichlet Allocation", "Documents are mixtures of topics.",
        ("David M. Blei", "Andrew Y. Ng", "Michael I. Jordan"), 2003, "JMLR",
    ),
    LibraryPaper("dtm", "dtm", "Dynamic Topic Models", "", ("David M. Blei", "J. Lafferty"), 2006, "ICML"),
    LibraryPaper(
        "tests", "lakens_equivalence", "Equivalence Testing for Psychological Research", "",
        ("Lakens, Daniël", "Scheel, Anne M."), 2018,
    ),
    LibraryPaper("tsne", "tsne", "Data using t-SNE", "", ("Laurens van der Maaten", "G. Hinton"), 2008),
    LibraryPaper("muller", "m18", "Wahlen", "", ("Jörg Müller",), 2018),
    LibraryPaper("orsted", "", "Electric currents", "", ("Hans Ørsted",), 1820),
    LibraryPaper("goedel", "", "Undecidable propositions", "", ("K. Goedel",), 1931),
    LibraryPaper("lin", "lin", "Networks", "", ("Ann Lin",), 2018),
    LibraryPaper("li", "li", "Graphs", "Topics of networks, with a sarcasm detector.", ("Bo Li",), 2018),
    LibraryPaper(
        "tides", "", "Tides", "", ("Sangho LEE", "Minjung KIM"), 2015, names=("LEE, Sangho", "KIM, Minjung")
    ),
    LibraryPaper("woods", "", "Woods", "", ("王小明", "李华"), 2019, names=("王, 小明", "李, 华")),
    LibraryPaper("sea", "", "The sea", "", ("鈴木和夫",), 2014),
    LibraryPaper("rain", "", "Rain", "", ("김민수",), 2016, names=("김, 민수",)),
    LibraryPaper("plates", "blei2003plates", "Plates", "", ("Ann Lee", "David M. Blei"), 2003),
]  # fmt: skip


@pytest.fixture
def recommender(tmp_path: Path) -> Recommender:
    library = Library.create(tmp_path / "mine", PAPERS, model="bm25")
    return Recommender(library)


def found(recommender: Recommender, query: str, k: int = 10) -> list[str]:
    return [paper.id for paper in recommender.search(query, k)]


@pytest.mark.parametrize(
    ("query", "first"),
    [
        ("blei 2003 topic", ["lda"]),  # all three, but one in the abstract
        ("blei jmlr topic", ["lda", "dtm"]),
        ("müller sarcasm networks", ["li"]),
        ("blei 2006 jordan", ["dtm", "lda"]),  # none has all three
        ("blei topic", ["dtm"]),
        ("BLEI2003", ["plates", "lda"]),
        ("lakens_eq", ["tests"]),
        ("dirich alloc", ["lda"]),
        ("maaten hinton", ["tsne"]),
        ("muller", ["muller"]),
        ("mueller 2018", ["muller"]),
        ("orsted", ["orsted"]),
        ("oersted", ["orsted"]),
        ("gödel", ["goedel"]),
        ("li 2018", ["li", "lin"]),  # whole words before beginnings
        ("icml", ["dtm"]),
        ("sarcasm", ["li"]),  # in the abstract alone
        ('t-SNE" OR * NEAR(', ["tsne"]),
        ("xyz", []),
    ],
)
def test_papers_are_found_by_words_and_their_beginnings(
    recommender: Recommender, query: str, first: list[str]
) -> None:
    assert found(recommender, query)[: len(first) or None] == first


def test_odd_queries(recommender: Recommender) -> None:
    for query in ("", " *", "_ -"):
        with pytest.raises(InputError, match="query: has no words"):
            found(recommender, query)
    assert found(recommender, " ".join(f"blei{n}" for n in range(10 * MAX_WORDS))) == ["plates", "lda"]
    assert len(found(recommender, "2018", 2)) == 2


@pytest.mark.parametrize(
    ("question", "paper", "name"),
    [
        ("blei2003lda", "lda", "blei2003lda"),
        (" [@blei2003lda] [CITE]", "lda", "blei2003lda"),
        ("Blei et al. 2003 [CITE]", "lda", "Blei et al. 2003"),
        ("(Lakens, 2018)", "tests", "Lakens 2018"),
        ("Lakens 2018", "tests", "Lakens 2018"),
        ("Equivalence is tested as by Lakens and Scheel (2018a) [CITE].", "tests", "Lakens and Scheel 2018"),
        ("However, van der Maaten & Hinton (2008) [CITE] draw topics", "tsne", "Maaten & Hinton 2008"),
        ("Müller, 2018", "muller", "Müller 2018"),
        ("Mueller (2018) [CITE]", "muller", "Mueller 2018"),
        ("Topics of networks (Scheel, 2018) [CITE]", "", ""),  # not the first author
        ("Documents of Blei (2003) are old. Topics [CITE]", "", ""),  # not at the mark
        ("Blei 2004", "", ""),
        (unicodedata.normalize("NFD", "Müller (2018) [CITE]"), "muller", "Müller 2018"),
        ("Lee and Kim (2015) [CITE]", "tides", "Lee and Kim 2015"),
        ("Sangho (2015) [CITE]", "", ""),
        ("王小明（2019）[CITE]", "woods", "王小明 2019"),
        ("王小明等，2019 [CITE]", "woods", "王小明等 2019"),
        ("王和李华［2019］[CITE]", "woods", "王和李华 2019"),
        ("王小明、李华 2019 [CITE]", "woods", "王小明、李华 2019"),
        ("鈴木和夫（2014）[CITE]", "sea", "鈴木和夫 2014"),
        ("김 (2016) [CITE]", "rain", "김 2016"),
    ],
)
def test_a_question_that_names_a_paper_gets_it_first(
    recommender: Recommender, question: str, paper: str, name: str
) -> None:
    papers = recommender.recommend(question, k=3)
    named = [one.id for one in papers if one.why.endswith(" is named here") or " is named here; " in one.why]
    assert named == ([paper] if paper else [])
    scores = [one.score for one in papers]
    assert scores == sorted(scores, reverse=True)
    if paper:
        assert papers[0].id == paper and papers[0].why.startswith(f"{name} is named here")
        others = recommender.recommend(question, k=3, filters=Filters(exclude=[paper]))
        assert paper not in [one.id for one in others]


def test_the_index_follows_changes(recommender: Recommender, tmp_path: Path) -> None:
    change(recommender, removed=["lda", "lin"])
    same = LibraryPaper("li", "li", "Graphs", "", ("Bo Li",), 2018, "KDD")
    change(recommender, [LibraryPaper("new", "pei", "Plays", "", ("A. Pei",), 1999), same], ["dtm"])
    library = recommender.library
    fresh = Library.create(tmp_path / "fresh", papers_of(library), model="bm25")
    anew, own = fresh.mapped.search_index, library.mapped.search_index
    for query in ("blei", "li", "pei 1999", "lakens", "kdd", "2018", "hinton maaten", "topic"):
        assert own.search(query, 9) == anew.search(query, 9)
    assert found(recommender, "kdd") == ["li"] and found(recommender, "blei") == ["plates"]
