"""citerec data inspect end to end: files, summary, page and one-line errors."""

from __future__ import annotations

import base64
import io
import json
import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Callable
from functools import partial
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from citerec.base.errors import InputError
from citerec.datasets.corpus import Corpus
from citerec.datasets.inspect.report import draw_examples, inspect_corpus, print_summary, shorten_abstract
from citerec.datasets.inspect.tables import Line, Table
from citerec.datasets.prepare import open_corpora, open_corpus
from citerec.tests.conftest import Done
from citerec.tests.datasets.conftest import write_corpus

ROOT = Path(__file__).parents[3]
PLOTS = ("lengths.png", "years.png", "citations.png", "contexts.png")
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


class Page(HTMLParser):
    """Collects tags, attributes and text of a page; checks that all elements are closed."""

    EMPTY = frozenset(("meta", "img", "br"))

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: Counter[str] = Counter()
        self.attributes: list[tuple[str, str, str]] = []
        self.text: list[str] = []
        self._open: list[str] = []
        self.feed(page)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        if tag not in self.EMPTY:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)

    def values(self, tag: str, name: str) -> list[str]:
        return [value for of, key, value in self.attributes if (of, key) == (tag, name)]


@pytest.mark.slow
def test_from_the_command_line(folder: Path, tmp_path: Path, script: Callable[..., Done]) -> None:
    output = tmp_path / "out"
    data = [f"data.dir='{folder}'", f"data.cache_dir={tmp_path / 'cache'}"]
    done = script("data", "inspect", "data=custom", *data, f"output_dir={output}")
    assert (done.code, done.err) == (0, "")
    assert done.out.splitlines()[-1] == f"page: {output / 'index.html'}"
    assert sorted(path.name for path in output.iterdir()) == sorted([*PLOTS, "index.html", "inspect.json"])
    numbers = json.loads((output / "inspect.json").read_text("utf-8"))
    assert numbers["data"] == folder.name
    assert (numbers["splits/contexts/train"], numbers["splits/contexts/test"]) == (2, 1)
    assert (numbers["leaks/title/train"], numbers["leaks/author/train"]) == (2, 1)
    assert numbers["leaks/author/train/examples"] == ["c2"]
    assert numbers["targets/seen/test"] == 1
    assert numbers["papers/no_authors/all"] == 3
    for file in PLOTS:
        assert (output / file).read_bytes().startswith(b"\x89PNG")
    # Text from files is not interpreted as terminal markup.
    assert "[red]so[/red] of the graph of words" in done.out
    assert "contexts with the title of a target" in done.out


def test_the_page_is_complete_and_has_no_scripts(folder: Path, tmp_path: Path) -> None:
    numbers = inspect(folder, tmp_path / "out")
    text = (tmp_path / "out" / "index.html").read_text("utf-8")
    page = Page(text)
    assert not any(page.tags[tag] for tag in ("script", "link", "iframe", "i", "b"))
    assert page.tags["img"] == len(PLOTS)
    for source, file in zip(page.values("img", "src"), PLOTS, strict=True):
        kind, _, content = source.partition(",")
        assert kind == "data:image/png;base64"
        assert base64.b64decode(content) == (tmp_path / "out" / file).read_bytes()
    assert all("median" in alt and len(alt) > 40 for alt in page.values("img", "alt"))
    assert not any(name.startswith("on") or name == "style" for _, name, _ in page.attributes)
    assert all(link.startswith("#") for link in page.values("a", "href"))
    assert {link[1:] for link in page.values("a", "href")} <= {
        value for *_, name, value in page.attributes if name == "id"
    }
    assert not page.values("img", "srcset") and "url(" not in text and "@import" not in text
    assert any("default-src 'none'" in value for value in page.values("meta", "content"))
    assert "width=device-width, initial-scale=1" in page.values("meta", "content")
    assert "prefers-color-scheme: dark" in text
    shown = " ".join("".join(page.text).split())
    assert "Inspection of <i>hostile & co" in shown
    assert shown.count(HOSTILE) == 3  # a context, a title and an abstract
    assert shown.count("TARGETCIT") == len(CONTEXTS) and page.tags["mark"] == len(CONTEXTS)
    assert "c2" in numbers["leaks/title/train/examples"]


@pytest.mark.slow
@pytest.mark.pictures
def test_the_same_seed_writes_the_same_files(folder: Path, tmp_path: Path) -> None:
    outputs = [tmp_path / name for name in ("one", "two")]
    for output in outputs:
        inspect(folder, output, examples=2, seed=1)
    first, second = ({path.name: path.read_bytes() for path in output.iterdir()} for output in outputs)
    assert first == second


@pytest.mark.pictures
def test_more_than_six_splits_are_drawn(make_corpus: Any, tmp_path: Path) -> None:
    names = ["train", "val", *(f"test_{letter}" for letter in "abcdef")]
    contexts = {f"c{i}": (name, "p", "b", f"Number {i} TARGETCIT.") for i, name in enumerate(names)}
    contexts |= {"c0": ("train", "q", "b", "A TARGETCIT."), "c1": ("val", "<b>a</b>", "b", "B TARGETCIT.")}
    corpus = make_corpus(PAPERS, contexts, splits=names)
    inspect_corpus(lambda: corpus, tmp_path / "out", examples=0)
    assert len({(tmp_path / "out" / file).read_bytes() for file in PLOTS}) == len(PLOTS)


def test_examples_are_drawn_from_the_splits_in_turn(demo_corpus: Corpus) -> None:
    drawn, more = draw_examples(demo_corpus, 5, seed=0), draw_examples(demo_corpus, 9, seed=0)
    assert [example.split for example in drawn] == ["train", "train", "val", "val", "test"]
    shown = {example.context for example in drawn}
    assert len(shown) == 5 and drawn == draw_examples(demo_corpus, 5, seed=0)
    assert shown != {example.context for example in draw_examples(demo_corpus, 5, seed=1)}
    assert shown <= {example.context for example in more}  # a larger count keeps these examples
    for example in drawn:
        row = list(demo_corpus.context_ids).index(example.context)
        assert f"{example.before}TARGETCIT{example.after}" == demo_corpus.context_texts[row]
        assert demo_corpus.paper_ids[demo_corpus.citing[row]] == example.citing.id
    assert len(draw_examples(demo_corpus, 10_000, seed=0)) == 300 and draw_examples(demo_corpus, 0, 0) == []


def test_long_abstracts_are_cut_between_words() -> None:
    shown = shorten_abstract("word " * 200)
    assert len(shown) <= 402 and shown.endswith("word …")
    assert len(shorten_abstract("x" * 1000)) == 402 and shorten_abstract("One. Two.") == "One. Two."


def test_all_zero_lines_are_combined() -> None:
    lines = [
        Line("a", "apples [red]", {"train": 0, "test": 0}),
        Line("b", "pears", {"train": 0, "test": 2}),
        Line("c", "plums", {"train": None, "test": None}),
    ]
    text = io.StringIO()
    print_summary([Table("s", "Fruit", "", ["train", "test"], lines)], [], Console(file=text))
    rows = [line.split() for line in text.getvalue().splitlines()]
    assert ["│", "pears", "│", "0", "│", "2", "│"] in rows
    assert ["│", "plums", "│", "–", "│", "–", "│"] in rows
    assert "None: apples [red]." in text.getvalue()


def test_every_number_is_documented(tmp_path: Path) -> None:
    """docs/research/inspect.md lists every key; SPLIT is a placeholder for split names."""
    more = {"c4": ("test_more", "q", "b", "And more TARGETCIT."), "c5": (None, "q", "b", "No TARGETCIT.")}
    folder = write_corpus(tmp_path / "source", PAPERS, {**CONTEXTS, **more})
    cache = tmp_path / "cache"
    open_it = partial(open_corpus, folder, cache_dir=cache, splits=["train", "test", "test_more"])
    inspect_corpus(open_it, tmp_path / "out")
    found = json.loads((tmp_path / "out" / "inspect.json").read_text("utf-8"))
    page = (ROOT / "docs" / "research" / "inspect.md").read_text("utf-8")
    documented = set(re.findall(r"`([a-z_]+/[A-Za-z_0-9]+)`", page))
    keys = {"/".join(key.split("/")[:2]) for key in found if "/" in key}
    keys = {re.sub(r"(in|contexts)_(train|test_more|test)", r"\1_SPLIT", key) for key in keys}
    assert keys == documented


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"near": 0.3}, "near=0.3: must be at least 0.5 and at most 1"),
        ({"near": float("nan")}, "near=nan: must be at least"),
        ({"title_words": 0}, "title_words=0: must be at least 1"),
        ({"examples": 2.5}, "examples=2.5: must be a whole number"),
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


BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


@pytest.mark.slow
@pytest.mark.pictures
@pytest.mark.skipif(BROWSER is None, reason="no browser")
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_in_a_browser(folder: Path, tmp_path: Path, scheme: str) -> None:
    """At phone width nothing overflows the page, and text has sufficient contrast."""
    inspect(folder, tmp_path / "out")
    probe = """<iframe src="out/index.html" style="width:390px;height:2000px;border:0"></iframe><script>
    onload = () => {
      const inside = document.querySelector("iframe").contentDocument, root = inside.documentElement;
      const style = inside.defaultView.getComputedStyle(inside.body);
      const images = [...inside.images].map((image) => image.complete && image.naturalWidth > 0);
      document.body.textContent = JSON.stringify({
        width: root.scrollWidth, text: style.color, ground: style.backgroundColor, images,
        marks: inside.querySelectorAll("mark").length, scripts: inside.scripts.length});
    };</script>"""
    (tmp_path / "probe.html").write_text(probe)
    assert BROWSER is not None
    options = ["--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'profile'}"]
    options += ["--allow-file-access-from-files", "--virtual-time-budget=5000", "--dump-dom"]
    options += [f"--blink-settings=preferredColorScheme={0 if scheme == 'dark' else 1}"]
    command = [BROWSER, *options, (tmp_path / "probe.html").as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    body = re.search(r"<body>(.*)</body>", done.stdout, re.DOTALL)
    assert body, done.stdout + done.stderr
    found = json.loads(body[1])
    assert found["width"] <= 390
    assert found["images"] == [True] * len(PLOTS)
    assert (found["marks"], found["scripts"]) == (len(CONTEXTS), 0)
    text, ground = (sum(map(int, re.findall(r"\d+", found[key])[:3])) / 3 for key in ("text", "ground"))
    assert ground - text > 150 if scheme == "light" else text - ground > 150
