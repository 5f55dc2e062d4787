"""Damaged full texts in every layout yield contexts or a one-line error; run time stays linear."""

from __future__ import annotations

import gzip
import json
import random
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from citerec.base.errors import InputError
from citerec.datasets.building.contexts import find_citations
from citerec.datasets.building.readers import find_files, read_documents
from citerec.tests.datasets.building.fuzzing import damaged, fuzzed, lines, packed
from citerec.tests.formats.articles.test_layouts import own, s2orc, s2orc_2020, s2orc_v2

TEXTS = Path(__file__).parent / "texts"
LAYOUTS: dict[str, Callable[[], list[dict[str, Any]]]] = {
    layout.__name__: layout for layout in (own, s2orc, s2orc_v2, s2orc_2020)
}
DOCUMENTS = ["1911.00042.grobid.tei.xml", "2103.00017/main.tex", "2103.00017/refs.bib", "biblatex/paper.bbl"]
DOCUMENTS += ["2103.00017/sections/intro.tex", "printed/paper.bbl", "printed/paper.tex", "papers.jsonl"]
WRONG: list[Any] = [None, True, 0, -1, 7, 10**6, 10**30, 0.5, "", "x", "7", "p1", "\0", "\n", "[1]"]
WRONG += [[], [[]], [None], {}, {"": 0}]


def contexts(folder: Path) -> None:
    """Read all files of a folder completely; check that every citation has a bibliography entry."""
    for file in find_files(str(folder)):
        for document in read_documents(file, lambda done: None):
            assert document.metadata.id and isinstance(document.metadata.title, str)
            if document.full_text is not None:
                text = document.full_text()
                assert all(result.ref in text.references for result in find_citations(text, 210, Counter()))


def is_refused_or_read(folder: Path) -> None:
    try:
        contexts(folder)
    except InputError as error:
        line = str(error)
        assert line.startswith((str(folder), f"source: {folder}")) and len(line) < len(str(folder)) + 500
        assert "\n" not in line and "\r" not in line


@pytest.mark.slow
@fuzzed(150)
@given(data=st.data())
def test_documents_with_damaged_bytes(data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(DOCUMENTS))
    top = Path(name).parts[0]
    content = data.draw(damaged((TEXTS / name).read_bytes()))
    with TemporaryDirectory() as place:
        folder = Path(place) / "papers"
        folder.mkdir()
        (shutil.copytree if (TEXTS / top).is_dir() else shutil.copyfile)(TEXTS / top, folder / top)
        packable = name.endswith(("xml", "jsonl"))
        (folder / name).write_bytes(data.draw(packed(content)) if packable else content)
        is_refused_or_read(folder)


def parts(value: Any) -> Iterator[tuple[Any, Any]]:
    """Yield every position in a JSON value as (container, key or index)."""
    for key, inner in list(value.items() if isinstance(value, dict) else enumerate(value)):
        yield value, key
        if isinstance(inner, dict | list):
            yield from parts(inner)


@fuzzed(250)
@given(layout=st.sampled_from(sorted(LAYOUTS)), seed=st.integers(0, 2**32))
def test_lines_with_wrong_values(layout: str, seed: int) -> None:
    rng = random.Random(seed)
    records = json.loads(json.dumps(LAYOUTS[layout]()))
    for record in records:  # S2ORC annotations are JSON strings
        for part in ("content", "body", "bibliography"):
            if isinstance(record.get(part), dict) and "annotations" in record[part]:
                lists = record[part]["annotations"]
                record[part]["annotations"] = {k: v and json.loads(v) for k, v in lists.items()}
    for _ in range(rng.randint(1, 3)):
        if not (places := list(parts(records))):
            break
        holder, key = rng.choice(places)
        if rng.random() < 0.2:
            del holder[key]
        else:
            holder[key] = rng.choice(WRONG)
    with TemporaryDirectory() as folder:
        path = Path(folder) / "file.jsonl"
        path.write_bytes(lines(records))
        is_refused_or_read(path)


# Inputs for which some parsers are quadratic.

SMALL = 4_000
"""Characters; the square of four times as many is seen beside any constant work."""


def grows_with_its_size(path: Path, content: Callable[[int], bytes]) -> bool:
    """True if four times the input needs less than ten times the work: 4 is linear, 16 quadratic.

    One successful try is enough, so that other load on the machine does not matter.
    """

    def work(size: int) -> float:
        path.write_bytes(content(size))
        started = time.process_time()
        is_refused_or_read(path.parent)
        return time.process_time() - started

    work(SMALL)  # exclude the one-time set-up
    return any(work(4 * SMALL) < 10 * work(SMALL) for _ in range(6))


ENDLESS = [
    *("\\begin{comment}", "\\iffalse ", "\\begin{abstract}", "\\[", "$$", "\\title[", "\\section[a"),
    *("\\section{", "\\bibitem[", "\\bibitem[]", "\\bibitem{", "\\author{", "\\entry{a}", "\\field{title}{"),
    *("\\cite{", "\\cite[", "{\\footnote[", "\\sqrt[{]}", "\\input{empty}", "\\x[", "\\newcommand{\\y}"),
]  # fmt: skip
IN_MARKDOWN = [
    *(
        "```",
        "~~~\n",
        "<!--",
        "$",
        "$$",
        "![",
        "![[a]",
        "[",
        "[@a",
        "[@a; ",
        "@",
        "^[",
        "^[[a]",
        "[^1]: a\n b",
    ),
    *("|", "+-", "{", "{.a", "<a ", "**", "_a", "\\emph{", "\\a[", "# a {", "a\n-", "> - ", "{{< include "),
    *("```{r child=", "\\@ref(", "---\n", ":::", "`", "\\begin{equation}"),
]
BEFORE_SPACE = ["\\newcommand{\\a}", "\\def\\a", "\\cite", "\\cite[a]", "\\bibitem", "@article{a"]


@pytest.mark.parametrize("piece", ENDLESS)
@pytest.mark.parametrize(
    "printed", ["", pytest.param("\\bibitem{k} Lee. A title. 2010. ", marks=pytest.mark.slow)]
)
def test_unclosed_latex(tmp_path: Path, piece: str, printed: str) -> None:
    head = "\\documentclass{a}\\newcommand{\\x}[1][z]{y}\\begin{document}\\cite{k} text " + printed
    tail = "\\end{document}" if printed else ""
    (tmp_path / "empty.tex").write_text("")
    path = tmp_path / "paper.tex"
    assert grows_with_its_size(path, lambda size: (head + piece * (size // len(piece)) + tail).encode())


@pytest.mark.parametrize("piece", IN_MARKDOWN)
def test_unclosed_markdown(tmp_path: Path, piece: str) -> None:
    path = tmp_path / "paper.md"
    assert grows_with_its_size(path, lambda size: f"A [@k] {piece * (size // len(piece))}".encode())


@pytest.mark.parametrize("begin", BEFORE_SPACE)
def test_long_white_space_in_latex(tmp_path: Path, begin: str) -> None:
    head = f"\\documentclass{{a}}\\begin{{document}} {begin}"
    path = tmp_path / "paper.tex"
    assert grows_with_its_size(path, lambda size: f"{head}{' ' * size}x \\cite{{k}}".encode())


def paper(text: str, cites: list[tuple[int, int, str]], refs: int = 1) -> bytes:
    spans = [{"start": start, "end": end, "ref": ref} for start, end, ref in cites]
    bibliography = {f"b{number}": {"title": "T", "authors": ["Ann Lee"]} for number in range(refs)}
    return lines([{"id": "p", "body": [{"text": text, "cites": spans}], "bibliography": bibliography}])


@pytest.mark.parametrize(
    "content",
    [
        lambda n: paper("a" + ")" * n, [(0, n + 1, "b0")]),
        lambda n: paper("([" * n + "a", [(0, 2 * n, "b0")]),
        lambda n: paper(f"[1]{' ' * n}[2]{' ' * n}x", [(1, 2, "b0"), (n + 4, n + 5, "b0")]),
        lambda n: paper(f"Lee et{' ' * n}x [1]", [(n + 9, n + 10, "b0")]),
        lambda n: paper("Lee et al. [1" + " ,1" * n + " [1]", [(11, 12, "b0")]),
        lambda n: paper("x" * n, [(i, 2 * n // 3 + i % 100, f"b{i}") for i in range(n // 3)], n // 3),
    ],
    ids=["closing", "opening", "space", "et al", "numbers", "overlapping"],
)
def test_spans_and_texts_of_any_length(tmp_path: Path, content: Callable[[int], bytes]) -> None:
    assert grows_with_its_size(tmp_path / "file.jsonl", content)


@pytest.mark.slow
def test_overlapping_annotations_do_not_copy_the_text(tmp_path: Path) -> None:
    """20,000 copies of a 5 MB text would be 100 GB."""
    spans = [{"start": number, "end": 5_000_000, "attributes": {"id": "b"}} for number in range(20_000)]
    kinds = ("title", "abstract", "paragraph", "bibentry")
    content = {"text": "x" * 5_000_000, "annotations": dict.fromkeys(kinds, json.dumps(spans))}
    path = tmp_path / "file.jsonl"
    path.write_bytes(lines([{"corpusid": 1, "content": content}]))
    (document,) = read_documents(find_files(str(path))[0], lambda done: None)
    assert len(document.metadata.abstract) == 5_000_000 and document.full_text is not None
    assert [len(paragraph.text) for paragraph in document.full_text().paragraphs] == [5_000_000]


ENTITIES = [
    b'<!ENTITY b%d "%s">' % (i, b"&b%s;" % (str(i - 1).encode() if i else b"") * 10) for i in range(9)
]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"<a>" * 500_000 + b"</a>" * 500_000, "elements are nested deeper than 200 levels"),
        (b"<TEI>" + (b"<" + b"a" * 1000 + b"/>") * (33 << 10), "a document is larger than 32 MB"),
        (
            b'<!DOCTYPE a [<!ENTITY b "bbbbbbbbbb">' + b"".join(ENTITIES) + b"]><a>&b8;</a>",
            "malformed XML: limit on input amplification factor",
        ),
    ],
    ids=["nested", "large", "entities"],
)
def test_tei_that_would_fill_the_memory(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "paper.tei.xml.gz"
    path.write_bytes(gzip.compress(content, 1))
    with pytest.raises(InputError, match=message) as error:
        contexts(path)
    assert str(error.value).startswith(str(path))
