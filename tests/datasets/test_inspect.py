"""citerec data inspect: its numbers on small corpora, files, summary, page and one-line errors."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from citerec.datasets.corpus import Corpus
from citerec.datasets.inspect import (
    Cell,
    CorpusView,
    Table,
    duplicate_table,
    inspect_corpus,
    leak_table,
    length_table,
    paper_table,
    split_table,
)
from citerec.datasets.prepare import open_corpus
from citerec.tests.conftest import Done
from citerec.tests.datasets.conftest import Described, write_corpus

Make = Callable[..., Corpus]


def values(table: Table) -> dict[str, list[object]]:
    """The values of each line in column order."""
    return {key: [cell.value for cell in cells.values()] for key, cells in table.lines.items()}


def examples(table: Table, key: str) -> dict[str, list[str]]:
    return {column: [*cell.examples] for column, cell in table.lines[key].items() if cell.examples}


PAPERS: dict[str, dict[str, Any]] = {
    "a": {"year": 2001, "title": "One, two"},
    "b": {"year": 2005, "abstract": ""},
    "c": {"title": "", "abstract": "Five words are in it."},
    "d": {"year": 2009},
    "p": {"year": 2006},
    "q": {"year": 2008, "abstract": ""},
    "r": {"title": ""},
    "alone": {"year": 1999},
}
CONTEXTS: Described = {
    "c1": ("train", "p", "a", "Three words stand TARGETCIT."),
    "c2": ("train", "p", ["a", "b"], "Words TARGETCIT, more OTHERCIT of them."),
    "c3": ("train", "q", "d", "OTHERCIT (TARGETCIT)."),
    "c4": ("test", "r", "b", "One TARGETCIT."),
    "c5": ("test", "r", "c", "One two TARGETCIT."),
    "c6": ("test_more", "r", ["r", "c"], "One two three TARGETCIT."),
    "c7": (None, "alone", "a", "In no split TARGETCIT."),
}


@pytest.fixture
def view(make_corpus: Make) -> CorpusView:
    splits = ["train", "val", "test", "test_more"]
    return CorpusView(make_corpus(PAPERS, CONTEXTS, candidates="abstract", splits=splits))


def test_splits(view: CorpusView) -> None:
    table = split_table(view)
    assert list(table.groups) == ["train", "test", "test_more"]
    assert values(table) == {
        "contexts": [3, 2, 1],
        "citing": [2, 1, 1],
        "cited": [3, 2, 2],
        "citations": [4, 2, 2],
        "several": [1, 0, 1],
        "seen": [3, 1, 0],
        "papers_unseen": [0, 1, 2],
        "itself": [0, 0, 1],
        "no_candidate": [1, 1, 0],
        "later": [1, 0, 0],  # a citing paper with unknown year is not earlier than its targets
        "empty": [1, 0, 0],
        "citing_title": [0, 2, 1],
        "cited_title": [0, 1, 1],
        "citing_abstract": [1, 0, 0],
        "cited_abstract": [1, 1, 0],
    }
    assert examples(table, "several") == {"train": ["c2"], "test_more": ["c6"]}
    assert examples(table, "no_candidate") == {"train": ["c2"], "test": ["c4"]}


def test_papers_and_missing_fields_by_role(view: CorpusView) -> None:
    table = paper_table(view)
    assert list(table.groups) == ["all", "candidates", "citing", "cited"]
    # "r" cites itself; "alone" has a context in no split, but is still a citing paper.
    assert values(table) == {
        "papers": [8, 6, 4, 5],
        "no_title": [2, 2, 1, 2],
        "no_abstract": [2, 0, 1, 1],
        "no_year": [2, 2, 1, 2],
        "same_title": [0, 0, 0, 0],
        "same_text": [0, 0, 0, 0],
        "year_earliest": [1999, 1999, 1999, 2001],
        "year_median": [2005, 2001, 2006, 2005],
        "year_latest": [2009, 2009, 2008, 2009],
    }
    result = {"all": ["c", "r"], "candidates": ["c", "r"], "citing": ["r"], "cited": ["c", "r"]}
    assert examples(table, "no_title") == result


def test_lengths(view: CorpusView) -> None:
    assert view.lengths(view.corpus.context_tokens).tolist() == [3, 4, 0, 1, 2, 3, 3]
    lines = length_table(view).lines
    train = {key: cell.value for key, cell in lines["contexts_train"].items()}
    assert train == {"texts": 3, "mean": pytest.approx(7 / 3), "p5": 0, "median": 3, "p95": 4}
    assert [lines["titles"][key].value for key in ("texts", "median")] == [6, 3]
    assert [lines["abstracts"][key].value for key in ("texts", "p95")] == [6, 5]


WORDS = "one two three four five six"


def test_papers_with_the_same_title_or_text(make_corpus: Make) -> None:
    papers = {
        "title-1": {"title": "Pre-training of deep nets", "abstract": "We train."},
        "title-2": {"title": "Pretraining of Deep Nets!", "abstract": "Something else is said here."},
        "text-1": {"title": "A study", "abstract": f"{WORDS}."},
        "text-2": {"title": "A study", "abstract": f"({WORDS})"},
        "near": {"title": "A study", "abstract": f"{WORDS} seven"},
        "untitled-1": {"title": ""},
        "untitled-2": {"title": ""},
        "p": {},
    }
    corpus = make_corpus(papers, {"c1": ("train", "p", "title-1", "Words TARGETCIT.")})
    table = paper_table(CorpusView(corpus))
    assert values(table)["same_title"] == [5, 5, 0, 1]
    assert values(table)["same_text"] == [2, 2, 0, 0]
    assert examples(table, "same_text")["all"] == ["text-1", "text-2"]


def test_contexts_with_the_same_words(make_corpus: Make) -> None:
    contexts: Described = {
        # The same words except for marker and punctuation: another target.
        "group-1": ("train", "p", "a", f"{WORDS} [TARGETCIT, OTHERCIT]."),
        "group-2": ("train", "p", "b", f"{WORDS} [OTHERCIT, TARGETCIT]."),
        "copy": ("test", "q", "a", f"{WORDS.capitalize()} (TARGETCIT)"),
        "lonely": ("test", "q", "a", "Nothing of this is anywhere else TARGETCIT."),
        "nowhere": (None, "s", "a", f"{WORDS}; TARGETCIT"),
        "bare-1": ("train", "p", "c", "OTHERCIT, TARGETCIT"),
        "bare-2": ("test", "q", "c", "OTHERCIT, TARGETCIT"),
        "again-1": ("val", "r", "c", "This stands twice TARGETCIT"),
        "again-2": ("val", "r", "c", "This stands, TARGETCIT twice"),
    }
    table = duplicate_table(CorpusView(make_corpus({id: {} for id in "abcpqrs"}, contexts)))
    assert list(table.groups) == ["train", "val", "test"]
    assert values(table) == {"same": [2, 2, 1], "other_target": [2, 0, 1], "in_train": [0, 0, 1]}
    assert examples(table, "in_train") == {"test": ["copy"]}


LEAKING: dict[str, dict[str, Any]] = {
    "bert": {
        "title": "BERT: Pre-training of Deep Encoders",
        "year": 2018,
    },
    "short": {"title": "Deep nets", "year": 2019},
    "none": {"title": "", "abstract": "It has neither."},
    "p": {},
}


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
        ("It is so (TARGETCIT, 2018).", "bert", {"year", "own_year"}),
        ("It is so (2017; TARGETCIT).", "bert", {"year"}),
        ("It was so in 2018, say many TARGETCIT.", "bert", set()),
        ("It is so (TARGETCIT, 2019).", ["bert", "short"], {"year", "own_year"}),
        ("It is so (TARGETCIT, 2019).", "none", {"year"}),
        (
            "By Lee's BERT: pre-training of deep encoders (TARGETCIT 2019)",
            ["bert", "short"],
            {"title", "year", "own_year"},
        ),
    ],
)
def test_leaks_of_a_context(make_corpus: Make, text: str, cited: str | list[str], expected: set[str]) -> None:
    corpus = make_corpus(LEAKING, {"c1": ("test", "p", cited, text)})
    table = leak_table(CorpusView(corpus))
    result = {key for key, counts in values(table).items() if counts == [1]}
    assert result == expected | ({"any"} if expected else set())


HOSTILE = '<script>alert("x")</script> & <img src=http://example.org/x onerror=alert(1)>'
ODD: dict[str, dict[str, Any]] = {
    "<b>a</b>": {"title": HOSTILE, "abstract": f"{HOSTILE}. [bold]Second[/bold].", "year": 2001},
    "b": {"title": "The graph of words", "year": 2003, "authors": ["Ann Lee"]},
    "p": {"title": "Ünïcödé “quotes” \u202e", "year": 2004},
    "q": {},
}
CITING: Described = {
    "c1": ("train", "p", "<b>a</b>", f"Before {HOSTILE} TARGETCIT after."),
    "c2": ("train", "p", "b", "Lee said [red]so[/red] of the graph of words TARGETCIT"),
    "c3": ("test", "q", "b", "Both of them TARGETCIT."),
}


def test_the_page_shows_what_is_printed_and_has_no_scripts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write_corpus(tmp_path / "<i>hostile & co", ODD, CITING)
    page = inspect_corpus(partial(open_corpus, folder, cache_dir=tmp_path / "cache"), tmp_path / "out")
    text = page.read_text("utf-8")
    assert not re.search(r"<(script|img)\b", text) and "charset" in text.lower()
    shown, printed = (
        html.unescape(re.sub(r"<[^>]+>", "", text.partition("<body>")[2])),
        capsys.readouterr().out,
    )
    assert printed.strip() in shown and "contexts with the title of a target" in printed
    assert "None: contexts with several targets;" in printed  # lines of zeros are joined
    numbers = json.loads((tmp_path / "out" / "inspect.json").read_text("utf-8"))
    assert (numbers["splits/contexts/train"], numbers["splits/contexts/test"]) == (2, 1)
    assert numbers["leaks/title/train"] == 2 and numbers["leaks/title/train/examples"] == ["c1", "c2"]
    assert numbers["data"] == folder.name


@pytest.mark.slow
def test_from_the_command_line(tmp_path: Path, script: Callable[..., Done]) -> None:
    folder, output = write_corpus(tmp_path / "source", ODD, CITING), tmp_path / "out"
    data = [f"data.dir='{folder}'", f"data.cache_dir={tmp_path / 'cache'}"]
    done = script("data", "inspect", "data=custom", *data, f"output_dir={output}")
    assert (done.code, done.err) == (0, "")
    assert done.out.splitlines()[-1] == f"page: {output / 'index.html'}"
    assert sorted(path.name for path in output.iterdir()) == ["index.html", "inspect.json"]


def test_numbers_are_readable() -> None:
    cells = [Cell(1, 10_000), Cell(3, 3), Cell(1999, 2000), Cell(1.25), Cell(None), Cell(2003, is_year=True)]
    assert [*map(str, cells)] == ["1 (0.0 %)", "3 (100.0 %)", "1,999 (100.0 %)", "1.2", "–", "2003"]


def test_an_output_that_is_a_file_is_a_one_line_error(tmp_path: Path, script: Callable[..., Done]) -> None:
    (tmp_path / "file").write_text("")
    done = script("data", "inspect", f"output_dir={tmp_path / 'file'}")
    assert (done.code, done.err) == (2, f"error: {tmp_path / 'file'}: File exists\n")
