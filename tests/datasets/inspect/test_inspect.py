"""citerec data inspect end to end: files, summary, page and one-line errors."""

from __future__ import annotations

import html
import io
import json
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from citerec.base.errors import InputError
from citerec.datasets.corpus import Corpus
from citerec.datasets.inspect.report import inspect_corpus, print_summary
from citerec.datasets.inspect.tables import Line, Table
from citerec.datasets.prepare import open_corpora, open_corpus
from citerec.tests.conftest import Done
from citerec.tests.datasets.conftest import write_corpus

HOSTILE = '<script>alert("x")</script> & <img src=http://example.org/x onerror=alert(1)>'
PAPERS: dict[str, dict[str, Any]] = {
    "<b>a</b>": {"title": HOSTILE, "abstract": f"{HOSTILE}. [bold]Second[/bold].", "year": 2001},
    "b": {"title": "The graph of words", "year": 2003, "authors": ["Ann Lee"]},
    "p": {"title": "Ünïcödé “quotes” \u202e", "year": 2004},
    "q": {},
}
CONTEXTS = {
    "c1": ("train", "p", "<b>a</b>", f"Before {HOSTILE} TARGETCIT after."),
    "c2": ("train", "p", "b", "Lee said [red]so[/red] of the graph of words TARGETCIT"),
    "c3": ("test", "q", "b", "Both of them TARGETCIT."),
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_corpus(tmp_path / "<i>hostile & co", PAPERS, CONTEXTS)


def inspect(folder: Path, output: Path, **settings: Any) -> dict[str, Any]:
    """The content of inspect.json."""
    inspect_corpus(partial(open_corpus, folder, cache_dir=output.parent / "cache"), output, **settings)
    return dict(json.loads((output / "inspect.json").read_text("utf-8")))


@pytest.mark.slow
def test_from_the_command_line(folder: Path, tmp_path: Path, script: Callable[..., Done]) -> None:
    output = tmp_path / "out"
    data = [f"data.dir='{folder}'", f"data.cache_dir={tmp_path / 'cache'}"]
    done = script("data", "inspect", "data=custom", *data, f"output_dir={output}")
    assert (done.code, done.err) == (0, "")
    assert done.out.splitlines()[-1] == f"page: {output / 'index.html'}"
    assert sorted(path.name for path in output.iterdir()) == ["index.html", "inspect.json"]
    numbers = json.loads((output / "inspect.json").read_text("utf-8"))
    assert numbers["data"] == folder.name
    assert (numbers["splits/contexts/train"], numbers["splits/contexts/test"]) == (2, 1)
    assert (numbers["leaks/title/train"], numbers["leaks/author/train"]) == (2, 1)
    assert numbers["leaks/author/train/examples"] == ["c2"]
    assert numbers["targets/seen/test"] == 1
    assert numbers["papers/no_authors/all"] == 3
    assert "contexts with the title of a target" in done.out


def test_the_page_shows_what_is_printed_and_has_no_scripts(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    inspect(folder, tmp_path / "out")
    text = (tmp_path / "out" / "index.html").read_text("utf-8")
    assert not re.search(r"<(script|img)\b", text) and "charset" in text.lower()
    shown = html.unescape(re.sub(r"<[^>]+>", "", text.partition("<body>")[2]))
    assert capsys.readouterr().out.strip() in shown


def test_all_zero_lines_are_combined() -> None:
    lines = [
        Line("a", "apples [red]", {"train": 0, "test": 0}),
        Line("b", "pears", {"train": 0, "test": 2}),
        Line("c", "plums", {"train": None, "test": None}),
    ]
    text = io.StringIO()
    print_summary([Table("s", "Fruit", "", ["train", "test"], lines)], Console(file=text))
    rows = [line.split() for line in text.getvalue().splitlines()]
    assert ["│", "pears", "│", "0", "│", "2", "│"] in rows
    assert ["│", "plums", "│", "–", "│", "–", "│"] in rows
    assert "None: apples [red]." in text.getvalue()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"near": 0.3}, "near=0.3: must be at least 0.5 and at most 1"),
        ({"near": float("nan")}, "near=nan: must be at least"),
        ({"title_words": 0}, "title_words=0: must be at least 1"),
        ({"authors": None}, "authors=None: must be a word"),
    ],
)
def test_options_are_validated_before_the_data_are_read(
    tmp_path: Path, settings: dict[str, Any], message: str
) -> None:
    def never() -> Corpus:
        raise AssertionError("the corpus was opened")

    with pytest.raises(InputError, match=re.escape(message)):
        inspect_corpus(never, tmp_path / "out", **settings)
    assert not (tmp_path / "out").exists()


def test_a_key_without_authors_is_an_error(tiny_corpus: Corpus, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"authors=nokey: no paper of .*papers\.json has this key"):
        inspect_corpus(lambda: tiny_corpus, tmp_path / "out", authors="nokey")


def test_several_folders_are_inspected_without_authors(tmp_path: Path) -> None:
    folders = [write_corpus(tmp_path / name, PAPERS, CONTEXTS) for name in ("one", "two")]
    open_it = partial(open_corpora, folders, cache_dir=tmp_path / "cache", splits=["train", "test"])
    inspect_corpus(open_it, tmp_path / "out")
    found = json.loads((tmp_path / "out" / "inspect.json").read_text("utf-8"))
    assert found["papers/papers/all"] == found["papers/no_authors/all"] == 8
    assert found["leaks/author/train"] is None
    with pytest.raises(InputError, match=r"^authors=by: one\+two has no single papers file to read it from"):
        inspect_corpus(open_it, tmp_path / "out", authors="by")


def test_an_output_that_is_a_file_is_a_one_line_error(tmp_path: Path, script: Callable[..., Done]) -> None:
    (tmp_path / "file").write_text("")
    done = script("data", "inspect", f"output_dir={tmp_path / 'file'}")
    assert (done.code, done.err) == (2, f"error: {tmp_path / 'file'}: File exists\n")
