"""Names in questions: surnames and years near the mark, initials, names of words that no paper contains."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from citerec.datasets.generate import word
from citerec.datasets.records import PaperRecord
from citerec.rerank.ranker.author_names import (
    author_names,
    capitalised_words,
    named_papers,
    years_near,
)
from citerec.rerank.ranker.features import Candidates
from citerec.rerank.ranker.model import Ranker
from citerec.rerank.ranker.paper_names import Names, SortedNames, word_hash
from citerec.retrieval.queries import Queries, Query
from citerec.tests.rerank.made import make_corpus, over_bm25, top

WEIGHTS = {"bm25": 0.1, "initials_near": 1.0, "name_near": 1.0}
AUTHORS = {"author_near": 2.5, "year_near": 1.5}
PAPERS = 1000


# Surnames and years.


def surname(number: int) -> str:
    return "".join(filter(str.isalpha, word(400 + number))).capitalize()


def make_papers() -> list[PaperRecord]:
    """Papers of 600 surnames in 30 years; first authors with accents, particles, hyphens, apostrophes."""
    rng, papers = np.random.default_rng(0), []
    parts = ["{}", "van der {}", "Bar-{}a", "O'{}s", "Mü{}", "{}ł"]
    for row in range(PAPERS):
        author, *others = (int(number) for number in rng.integers(0, 600, 1 + int(rng.integers(4))))
        family = parts[author % len(parts)].format(surname(author))
        names = [f"{family}, Ann B.", *(f"Bo {surname(one)}" for one in others)]
        title, abstract = (
            " ".join(map(word, rng.integers(1, most, length).tolist()))
            for most, length in ((4000, 9), (9000, 60))
        )
        papers.append(PaperRecord(f"p{row}", title, abstract, 1990 + int(rng.integers(30)), tuple(names)))
    return papers


RECORDS = make_papers()
KEYS = [(record.fields[0], record.year) for record in RECORDS]
ALONE = [row for row, key in enumerate(KEYS) if KEYS.count(key) == 1]
"""Papers whose first author wrote no other one in that year."""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Ranker:
    corpus = make_corpus(tmp_path_factory.mktemp("authors") / "store", RECORDS, field="authors")
    return over_bm25(corpus, WEIGHTS | AUTHORS)


PLACES = [
    "{} et al. {} TARGETCIT",
    "as shown by {} et al. ({}) TARGETCIT",
    "{} and others, {}; TARGETCIT, and later OTHERCIT",
    "TARGETCIT ({} {})",
    "the model of {}'s group ({}a) TARGETCIT",
]


@given(
    row=st.sampled_from(ALONE),
    place=st.sampled_from(PLACES),
    spell=st.sampled_from([str, str.upper, lambda name: name.replace("ü", "u").replace("ł", "l")]),
    words=st.lists(st.integers(9001, 15000), max_size=8),  # in no paper
    noise=st.sampled_from(["", "Table 3 of Section 2 ", "In 1066, "]),
)
def test_authors_and_year_near_the_mark_find_the_paper(
    library: Ranker, row: int, place: str, spell: Any, words: list[int], noise: str
) -> None:
    family, _, _ = RECORDS[row].fields[0].partition(",")
    before = " ".join(map(word, words))
    text = noise + before + " " + place.format(spell(family), RECORDS[row].year)
    assert top(library, text) == [f"p{row}"], text


def test_a_surname_alone_finds_the_papers_of_that_author(library: Ranker) -> None:
    rng = np.random.default_rng(1)
    for row in rng.choice(PAPERS, 40).tolist():
        author = RECORDS[row].fields[0]
        wrote = {f"p{other}" for other, record in enumerate(RECORDS) if record.fields[0] == author}
        family = author.partition(",")[0]
        assert top(library, f"It is due to {family} TARGETCIT.")[0] in wrote


@pytest.mark.parametrize(
    ("author", "text"),
    [
        ("Hinton, Geoffrey", "Сеть была предложена в работе Хинтона TARGETCIT."),
        ("Shcherbakov, Ivan", "как показали Щербаков и др. (2010) TARGETCIT"),
        ("Sidorov, Ivan", "по Сидорову 2010 TARGETCIT"),
        ("Papadopoulos, Nikos", "σύμφωνα με τον Παπαδόπουλο και τον Παπαδόπουλος (2010) TARGETCIT"),
        ("Schneider, Anna", "wie Schneider u. a. (2010) TARGETCIT"),
    ],
)
def test_names_in_other_letters_find_the_paper(tmp_path: Path, author: str, text: str) -> None:
    others = [
        PaperRecord(f"p{row}", word(3 + row), word(60 + row), 2010, (f"{word(90 + row)}, A.",))
        for row in range(50)
    ]
    papers = [*others, PaperRecord("this", word(1), word(2), 2010, (author,))]
    made = over_bm25(make_corpus(tmp_path / "store", papers, field="authors"), WEIGHTS | AUTHORS)
    assert top(made, text)[0] == "this"


def test_without_authors_nothing_changes(tmp_path: Path) -> None:
    plain = [record._replace(fields=()) for record in RECORDS[:300]]
    made = over_bm25(make_corpus(tmp_path / "plain", plain), WEIGHTS | AUTHORS)
    without = over_bm25(made.corpus, WEIGHTS)
    fields = over_bm25(make_corpus(tmp_path / "venues", RECORDS[:300], field="venue"), WEIGHTS | AUTHORS)
    texts = [f"{RECORDS[row].fields[0]} {RECORDS[row].title} 1066 TARGETCIT" for row in range(0, 300, 30)]
    for text in texts:
        assert top(made, text, 9) == top(without, text, 9) == top(fields, text, 9)
    queries = Queries.from_list(made.corpus, [Query(text) for text in texts])
    papers = np.tile(np.arange(300, dtype=np.int32), (len(texts), 1))
    columns = Candidates(made.statistics, made.parts, queries, papers).columns()
    assert not columns["author_near"].any()


def test_the_year_near_the_mark_matches_plain_python(library: Ranker) -> None:
    queries = Queries.from_list(library.corpus, [Query("Words by Zoe (1999) in 2001b TARGETCIT, 1999.")])
    papers = np.arange(PAPERS, dtype=np.int32)[None]
    columns = Candidates(library.statistics, library.parts, queries, papers).columns()
    for row, record in enumerate(RECORDS):
        year = {1999: 3 / 4, 2001: 3 / 4}.get(record.year, 0)
        assert columns["year_near"][0, row] == pytest.approx(year)


def test_words_and_years_near_the_mark() -> None:
    offsets, hashes, distances = capitalised_words(["So Ann, of TARGETCIT Bo cy", "No mark of Ann"])
    assert offsets.tolist() == [0, 3, 3]
    wanted = {word_hash("so"): 3, word_hash("ann"): 2, word_hash("bo"): 1}
    assert dict(zip(hashes.tolist(), distances.tolist(), strict=True)) == wanted
    assert (np.diff(hashes.astype(object)) > 0).all()
    years = years_near(
        ["in 2003a or 1850, 12003 TARGETCIT 3021 1999", "2003", " ".join(["2001", *"x" * 40, "TARGETCIT"])]
    )
    assert years == [{2003: 4, 1850: 2, 1999: 2}, {}, {}]


@pytest.mark.parametrize(
    ("context", "names"),
    [
        ("Yields rose TARGETCIT. Field trials of rice show it.", ""),
        ("Yields rose TARGETCIT. Field showed that rice grows.", ""),  # not without more evidence
        ("Yields rose TARGETCIT. Field et al. showed that rice grows.", ""),  # of another sentence
        ("Field (2003) TARGETCIT sowed. Rice grows in white, black and green soils.", "field"),
        ("Yields rose. Rice TARGETCIT sowed.", "rice"),
        ("Yields rose. Rice, White and Black, 2003, sowed TARGETCIT.", "rice white black"),
        ("Yields rose. J. Price sowed TARGETCIT, and Price, J. did, too.", "j price j price"),
        ("Rice, Maize and Wheat in White Fields TARGETCIT", ""),  # a heading
        ("# Field Trials of Bush Beans\nAll were TARGETCIT sown.", ""),
        ("Yields rose as by Field, who sowed TARGETCIT.", "field"),  # a capital inside a sentence
        ("Devlin sowed TARGETCIT. Others did.", "devlin"),  # an unusual word
        ("Field and colleagues sowed TARGETCIT; White & Black (2003) did not.", "field white black"),
        ("Price-like indices rise. Bushes grow TARGETCIT.", ""),
        ("Stone tools lay there TARGETCIT. Young stars shone.", ""),  # words that no paper of the library has
        ("Rice lay there, as was shown by Stone TARGETCIT; Young et al. shone.", "stone young"),
        ("Rice lay at Stone Lake by the White Sea TARGETCIT.", "lake sea"),
        (
            "Rice is sown there as before, with that of the Trials Steerable Framework by the WHO TARGETCIT.",
            "trials steerable framework who",
        ),
    ],
)
def test_usual_words_are_names_only_with_evidence(context: str, names: str, tmp_path: Path) -> None:
    words = (
        "field trials of rice show white black green maize wheat bush bushes price fields beans yields all"
    )
    papers = [PaperRecord(f"p{row}", words, "", 0, ("Ann Lee",)) for row in range(3)]
    ranker = over_bm25(make_corpus(tmp_path / "store", papers, field="authors"), WEIGHTS)
    queries = Queries.from_list(ranker.corpus, [Query(context)])
    usual = ranker.statistics.with_query_words(queries).usual_words(queries)
    _, hashes, _ = capitalised_words([context], usual)
    assert sorted(hashes.tolist()) == sorted(map(word_hash, names.split()))


def test_rare_surnames_weigh_more(tmp_path: Path) -> None:
    authors = [("Ann Lee", "Bo Wu"), ("Cy Lee",), ("Di Bar-Hillel", "Ann Lee"), ()]
    papers = [PaperRecord(f"p{row}", f"title {row}", "", 0, of) for row, of in enumerate(authors)]
    corpus = make_corpus(tmp_path / "store", papers, field="authors")
    found = author_names(corpus)
    assert found["first_authors"].offsets.tolist() == [0, 1, 2, 3, 3]
    assert found["first_authors"].hashes.tolist() == [word_hash(name) for name in ("lee", "lee", "hillel")]
    lee = 1 - np.log(3) / np.log(4)
    np.testing.assert_allclose(found["first_authors"].weights, [lee, lee, 1], rtol=1e-6)
    np.testing.assert_allclose(found["other_authors"].weights, [1, lee], rtol=1e-6)


def test_named_papers_are_the_rarest_and_nearest() -> None:
    names = [["lee"], ["wu"], [], *[["ho"]] * 30]
    offsets = np.cumsum([0, *map(len, names)])
    hashes = np.array([word_hash(name) for of in names for name in of], np.uint64)
    authors = Names(offsets, hashes, np.array([0.9, 0.8, *[0.1] * 30], np.float32))
    none = Names(np.zeros(len(names) + 1, np.int64), np.empty(0, np.uint64), np.empty(0, np.float32))
    first, initials = (SortedNames(of, np.argsort(of.hashes, kind="stable")) for of in (authors, none))
    years = np.arange(2000, 2000 + len(names))
    texts = ["Ho TARGETCIT", "Lee and Wu TARGETCIT", "Lee and Wu 2000 TARGETCIT", "lee TARGETCIT"]
    texts.append(f"Wu {'x ' * 10} TARGETCIT")

    def found(eligible: np.ndarray, own: int) -> list[list[int]]:
        given = first, initials, years, eligible, np.full(len(texts), own)
        return [row.tolist() for row in named_papers(texts, *given)]

    everything = np.ones(len(names), np.bool_)
    assert found(everything, -1) == [list(range(3, 23)), [1, 0], [0, 1], [], []]
    assert found(years >= 2010, 12)[0] == [10, 11, *range(13, 31)], "others do not take their places"


# Names and initials.

FIVE = [
    "Long short-term memory",
    "Support vector machines",
    "Random forests",
    "Deep residual learning",
    "Adam",
]


@pytest.mark.parametrize("title, mention", [(0, "LSTM"), (1, "SVM"), (1, "SVMs are kernels; an SVM")])
def test_initials_find_one_of_five_papers(title: int, mention: str, tmp_path: Path) -> None:
    papers = [PaperRecord(f"p{row}", text, "") for row, text in enumerate(FIVE)]
    made = over_bm25(make_corpus(tmp_path / "store", papers), WEIGHTS)
    assert top(made, f"{mention} TARGETCIT") == [f"p{title}"]
    assert f"p{title}" in top(made, f"The {mention} TARGETCIT learns.", 5)


@pytest.mark.parametrize(
    "title", ["Latent Dirichlet allocation", "Latent dirichlet allocation", "LATENT DIRICHLET ALLOCATION"]
)
@pytest.mark.parametrize("mention", ["LDA", "Topics by LDA", "Das Modell LDA"])
def test_initials_are_found_in_any_case_of_the_title(title: str, mention: str, tmp_path: Path) -> None:
    papers = [*RECORDS[:200], PaperRecord("lda", title, "", 2003)]
    made = over_bm25(make_corpus(tmp_path / "store", papers), WEIGHTS)
    assert top(made, f"{mention} TARGETCIT") == ["lda"]


def test_names_of_words_that_no_paper_contains_are_hashed_by_letters(tmp_path: Path) -> None:
    papers = [*RECORDS[:50], PaperRecord("blei", "Latent dirichlet allocation", "")]
    made = over_bm25(make_corpus(tmp_path / "store", papers), WEIGHTS)
    assert "lda" not in made.corpus.word_ids
    queries = Queries.from_list(
        made.corpus, [Query("lda TARGETCIT"), Query("LDA TARGETCIT"), Query("TARGETCIT")]
    )
    papers_of = np.tile(np.arange(51, dtype=np.int32), (3, 1))
    found = made.explain(queries, papers_of)["initials_near"]
    assert found[0, 50] == found[1, 50] > 0 and not found[2].any() and not found[:, :50].any()
