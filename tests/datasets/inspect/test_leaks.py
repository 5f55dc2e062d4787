"""Titles, first authors and years in contexts, and how authors are read."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from citerec.base.errors import InputError
from citerec.datasets.corpus import Corpus
from citerec.datasets.inspect.leaks import first_authors, leak_table
from citerec.datasets.inspect.tables import CorpusView, Table

PAPERS: dict[str, dict[str, Any]] = {
    "bert": {
        "title": "BERT: Pre-training of Deep Encoders",
        "authors": ["Jürgen Müller-Lüdenscheidt", "Ann Lee"],
        "year": 2018,
    },
    "short": {"title": "Deep nets", "authors": "Lee, Ann; Bo Diaz", "year": 2019},
    "none": {"title": "", "abstract": "It has neither."},
    "p": {"authors": []},
}


def leaks(make_corpus: Callable[..., Corpus], text: str, cited: str | list[str]) -> set[str]:
    """The kinds of leaks in a context."""
    corpus = make_corpus(PAPERS, {"c1": ("test", "p", cited, text)})
    table = table_of(corpus)
    found = {line.key for line in table.lines if line.values["test"]}
    assert ("any" in found) == bool(found)
    return found - {"any"}


def table_of(corpus: Corpus, title_words: int = 3) -> Table:
    assert corpus.papers_file is not None
    authors = first_authors(corpus, corpus.papers_file, "authors")
    return leak_table(CorpusView(corpus), authors, title_words)


@pytest.mark.parametrize(
    ("text", "cited", "expected"),
    [
        ("We use TARGETCIT here.", "bert", set()),
        ("We use BERT pre-training of deep encoders (TARGETCIT).", "bert", {"title"}),
        ("We use “BERT — Pre–Training of\nDeep ENCODERS” (TARGETCIT).", "bert", {"title"}),
        ("We use BERT pre-training TARGETCIT of deep encoders.", "bert", set()),
        ("We use BERT pre-training of deep encodersx TARGETCIT.", "bert", set()),
        ("We use BERT pre-training of deep encoders TARGETCIT.", "short", set()),
        ("We use deep nets TARGETCIT.", "short", set()),  # a title of two words
        ("As Muller-Ludenscheidt said TARGETCIT.", "bert", {"author"}),
        ("As Müller-Lüdenscheidt's nets TARGETCIT.", "bert", {"author"}),
        ("As müller-lüdenscheidt said TARGETCIT.", "bert", set()),
        ("As Lee said TARGETCIT.", "bert", set()),  # the second author
        ("As Lee said TARGETCIT.", "short", {"author"}),
        ("As Leeds said TARGETCIT.", "short", set()),
        ("As Lee said TARGETCIT.", ["bert", "short"], {"author"}),
        ("It is so (TARGETCIT, 2018).", "bert", {"year", "own_year"}),
        ("It is so (2017; TARGETCIT).", "bert", {"year"}),
        ("It was so in 2018, say many TARGETCIT.", "bert", set()),
        ("It is so (TARGETCIT, 2019).", ["bert", "short"], {"year", "own_year"}),
        ("It is so (TARGETCIT, 2019).", "none", {"year"}),
        ("By Lee's BERT: pre-training of deep encoders (TARGETCIT 2019)", ["bert", "short"], None),
    ],
)
def test_leaks_of_a_context(
    make_corpus: Callable[..., Corpus], text: str, cited: str | list[str], expected: set[str] | None
) -> None:
    assert leaks(make_corpus, text, cited) == (
        {"title", "author", "year", "own_year"} if expected is None else expected
    )


def test_shares_count_contexts_that_can_leak(make_corpus: Callable[..., Corpus]) -> None:
    contexts = {
        "c1": ("train", "p", "bert", "BERT: pre-training of deep encoders TARGETCIT"),
        "c2": ("train", "p", "short", "Nothing TARGETCIT"),
        "c3": ("train", "p", "none", "Nothing at all TARGETCIT"),
        "c4": ("test", "none", "p", "Nothing here TARGETCIT"),
    }
    lines = {line.key: line for line in table_of(make_corpus(PAPERS, contexts)).lines}
    assert {key: dict(line.totals) for key, line in lines.items()} == {
        "title": {"train": 1, "test": 1},
        "author": {"train": 2, "test": 0},
        "year": {"train": 3, "test": 1},
        "own_year": {"train": 2, "test": 0},
        "any": {"train": 3, "test": 1},
    }
    # No number if nothing can leak.
    assert lines["author"].values == {"train": 0, "test": None}
    assert lines["title"].values == {"train": 1, "test": 0}
    assert dict(lines["title"].examples) == {"train": ["c1"], "test": []}


def test_minimum_title_length(make_corpus: Callable[..., Corpus]) -> None:
    corpus = make_corpus(PAPERS, {"c1": ("test", "p", "short", "We use deep nets TARGETCIT.")})
    found = [
        next(line.values["test"] for line in table_of(corpus, words).lines if line.key == "title")
        for words in (1, 2, 3)
    ]
    assert found == [1, 1, None]


def test_authors_in_another_field_and_of_invalid_types(make_corpus: Callable[..., Corpus]) -> None:
    kinds: dict[str, Any] = {
        "list": ["van der Berg, Jan", "Bo Diaz"],
        "string": "Ann Lee and Bo Diaz",
        "objects": [{"name": "Ann Lee"}],
        "number": 3,
        "null": None,
        "empty": [],
        "p": "Źródło",
    }
    papers = {id: {"by": value} for id, value in kinds.items()}
    corpus = make_corpus(papers, {"c1": ("test", "p", "list", "It stands TARGETCIT.")})
    assert corpus.papers_file is not None
    authors = first_authors(corpus, corpus.papers_file, "by")
    assert dict(zip(corpus.paper_ids, authors, strict=True)) == {
        **dict.fromkeys(kinds, ""),
        "list": "Berg",
        "string": "Lee",
        "p": "Zrodło".replace("ł", "l"),
    }
    assert not any(first_authors(corpus, corpus.papers_file, "authors"))


def test_dropped_records_do_not_shift_the_authors(make_corpus: Callable[..., Corpus], tmp_path: Path) -> None:
    papers = {id: {"authors": [f"Ann {id.title()}"]} for id in ("one", "two", "three")}
    corpus = make_corpus(papers, {"c1": ("test", "one", "two", "It stands TARGETCIT.")})
    more = {"odd": {"authors": ["X Y"]}, **papers, "two": {"authors": ["Bo Other"]}}
    path = tmp_path / "more.json"
    path.write_text(json.dumps({"first": more["odd"], "one": papers["one"], "between": {}} | more))
    authors = first_authors(corpus, path, "authors")
    assert authors == ["One", "Other", "Three"]
    path.write_text("{")
    with pytest.raises(InputError, match="malformed JSON"):
        first_authors(corpus, path, "authors")
