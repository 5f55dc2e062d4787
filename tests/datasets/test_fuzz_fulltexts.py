"""Damaged full texts of every layout: one line that names the file, or contexts; never for long."""

from __future__ import annotations

import gzip
import json
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from datasets.errors import InputError
from datasets.fulltext.contexts import citations
from datasets.fulltext.readers import find_files, read
from tests.datasets.fuzzing import damaged, fuzzed, packed
from tests.datasets.test_fulltext_layouts import own, s2orc, s2orc_2020, s2orc_v2

TEXTS = Path(__file__).parent / "fulltexts"
LAYOUTS: dict[str, Callable[[], list[dict[str, Any]]]] = {
    layout.__name__: layout for layout in (own, s2orc, s2orc_v2, s2orc_2020)
}
DOCUMENTS = [
    "1911.00042.grobid.tei.xml",
    "2103.00017/main.tex",
    "2103.00017/refs.bib",
    "2103.00017/sections/intro.tex",
    "biblatex/paper.bbl",
    "printed/paper.bbl",
    "printed/paper.tex",
    "papers.jsonl",
]
LONG = 100_000
"""Characters; what takes the square of their number takes longer than QUICK seconds."""
QUICK = 4.0


def contexts(folder: Path) -> int:
    """Read all files of a folder to the end: number of citations. Each is of an entry that there is."""
    found = 0
    for file in find_files(str(folder)):
        for record in read(file, lambda done: None):
            assert record.metadata.id and isinstance(record.metadata.title, str)
            if record.full_text is not None:
                text = record.full_text()
                for citation in citations(text, 210, Counter()):
                    assert citation.ref in text.references
                    found += 1
    return found


def is_refused_or_read(folder: Path) -> None:
    try:
        contexts(folder)
    except InputError as error:
        line = str(error)
        assert line.startswith((str(folder), f"source: {folder}")) and len(line) < len(str(folder)) + 500
        assert "\n" not in line and "\r" not in line


def lines(records: list[dict[str, Any]]) -> bytes:
    return "".join(json.dumps(record) + "\n" for record in records).encode()


@fuzzed(250)
@given(data=st.data())
def test_lines_with_damaged_bytes(data: st.DataObject) -> None:
    whole = lines(LAYOUTS[data.draw(st.sampled_from(sorted(LAYOUTS)))]())
    with TemporaryDirectory() as folder:
        path = Path(folder) / "file.jsonl"
        path.write_bytes(data.draw(damaged(whole).flatmap(packed)))
        is_refused_or_read(path)


@fuzzed(200)
@given(data=st.data())
def test_documents_with_damaged_bytes(data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(DOCUMENTS))
    document = Path(name)
    with TemporaryDirectory() as place:
        folder = Path(place) / "papers"
        for path in (TEXTS / document.parts[0]).rglob("*") if len(document.parts) > 1 else [TEXTS / name]:
            if path.is_file():
                (folder / path.relative_to(TEXTS)).parent.mkdir(parents=True, exist_ok=True)
                (folder / path.relative_to(TEXTS)).write_bytes(path.read_bytes())
        content = data.draw(damaged((TEXTS / name).read_bytes()))
        (folder / name).write_bytes(
            data.draw(packed(content)) if name.endswith(("xml", "jsonl")) else content
        )
        is_refused_or_read(folder)


def parts(value: Any) -> Iterator[tuple[Any, Any]]:
    """Each place in a JSON value: what holds it, and its key or number."""
    for key, inner in list(value.items() if isinstance(value, dict) else enumerate(value)):
        yield value, key
        if isinstance(inner, dict | list):
            yield from parts(inner)


WRONG: list[Any] = [
    None,
    True,
    0,
    -1,
    7,
    10**6,
    10**30,
    0.5,
    "",
    "x",
    "7",
    "p1",
    "\0",
    "\n",
    "[1]",
    [],
    [[]],
    [None],
    {},
    {"": 0},
]


@fuzzed(300)
@given(layout=st.sampled_from(sorted(LAYOUTS)), seed=st.integers(0, 2**32))
def test_lines_with_wrong_values(layout: str, seed: int) -> None:
    rng = random.Random(seed)
    records = json.loads(json.dumps(LAYOUTS[layout]()))
    for record in records:  # annotations of S2ORC are strings of JSON
        for part in ("content", "body", "bibliography"):
            if isinstance(record.get(part), dict) and "annotations" in record[part]:
                lists = record[part]["annotations"]
                record[part]["annotations"] = {k: v and json.loads(v) for k, v in lists.items()}
    for _ in range(rng.randint(1, 3)):
        places = list(parts(records))
        if not places:
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


def quickly(path: Path) -> None:
    started = time.process_time()
    is_refused_or_read(path)
    assert time.process_time() - started < QUICK


LATEX = [
    *("\\begin{comment}", "\\iffalse ", "\\begin{abstract}", "\\[", "$$", "\\title[", "\\section[a"),
    *("\\section{", "\\bibitem[", "\\bibitem[]", "\\bibitem{", "\\author{", "\\entry{a}", "\\field{title}{"),
    *("\\cite{", "\\cite[", "{\\footnote[", "\\sqrt[{]}", "\\input{empty}", "\\x[", "\\newcommand{\\y}"),
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("piece", LATEX)
def test_latex_of_which_nothing_ends(tmp_path: Path, piece: str) -> None:
    head = "\\documentclass{a}\\newcommand{\\x}[1][z]{y}\\begin{document}\\cite{k} text "
    for place, (before, after) in enumerate(
        (("", ""), ("\\bibitem{k} Lee. A title. 2010. ", "\\end{document}"))
    ):
        folder = tmp_path / str(place)
        folder.mkdir()
        (folder / "empty.tex").write_text("")
        (folder / "paper.tex").write_text(head + before + piece * (LONG // len(piece)) + after)
        quickly(folder)


@pytest.mark.slow
def test_white_space_without_end_in_latex(tmp_path: Path) -> None:
    space = " " * LONG
    for number, begin in enumerate(
        ("\\newcommand{\\a}", "\\def\\a", "\\cite", "\\cite[a]", "\\bibitem", "@article{a")
    ):
        path = tmp_path / f"{number}.tex"
        path.write_text(f"\\documentclass{{a}}\\begin{{document}} {begin}{space}x \\cite{{k}}")
        quickly(path)


def paper(text: str, cites: list[tuple[int, int, str]], refs: int = 1) -> bytes:
    spans = [{"start": start, "end": end, "ref": ref} for start, end, ref in cites]
    bibliography = {f"b{number}": {"title": "T", "authors": ["Ann Lee"]} for number in range(refs)}
    return lines([{"id": "p", "body": [{"text": text, "cites": spans}], "bibliography": bibliography}])


@pytest.mark.slow
@pytest.mark.parametrize(
    "content",
    [
        paper("a" + ")" * LONG, [(0, LONG + 1, "b0")]),
        paper("([" * LONG + "a", [(0, 2 * LONG, "b0")]),
        paper(f"[1]{' ' * LONG}[2]{' ' * LONG}x", [(1, 2, "b0"), (LONG + 4, LONG + 5, "b0")]),
        paper(f"Lee et{' ' * LONG}x [1]", [(LONG + 9, LONG + 10, "b0")]),
        paper("Lee et al. [1" + " ,1" * LONG + " [1]", [(11, 12, "b0")]),
        paper("x" * 30_000, [(i, 20_000 + i % 100, f"b{i}") for i in range(10_000)], 10_000),
    ],
    ids=["closing", "opening", "space", "et al", "numbers", "overlapping"],
)
def test_spans_and_texts_of_any_length(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "file.jsonl"
    path.write_bytes(content)
    quickly(path)


def test_annotations_that_overlap_are_not_as_many_copies(tmp_path: Path) -> None:
    """A text of 5 MB that 20,000 spans cover would be 100 GB."""
    spans = json.dumps(
        [{"start": number, "end": 5_000_000, "attributes": {"id": "b"}} for number in range(20_000)]
    )
    kinds = ("title", "abstract", "paragraph", "bibentry")
    content = {"text": "x" * 5_000_000, "annotations": dict.fromkeys(kinds, spans)}
    path = tmp_path / "file.jsonl"
    path.write_bytes(lines([{"corpusid": 1, "content": content}]))
    (record,) = read(find_files(str(path))[0], lambda done: None)
    assert len(record.metadata.abstract) == 5_000_000 and record.full_text is not None
    assert [len(paragraph.text) for paragraph in record.full_text().paragraphs] == [5_000_000]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"<a>" * 500_000, "more than 200 elements are nested"),
        (b"<a/>" * (9 << 20), "is larger than 32 MB"),
        (b'<TEI xmlns="http://www.tei-c.org/ns/1.0"/>', "the TEI document has no teiHeader"),
        (
            b'<!DOCTYPE a [<!ENTITY b "bbbbbbbbbb">'
            + b"".join(
                b'<!ENTITY b%d "%s">' % (i, b"&b%s;" % (str(i - 1).encode() if i else b"") * 10)
                for i in range(9)
            )
            + b"]><a>&b8;</a>",
            "malformed XML: limit on input amplification factor",
        ),
    ],
    ids=["nested", "large", "empty", "entities"],
)
def test_tei_that_would_fill_the_memory(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "paper.tei.xml.gz"
    path.write_bytes(gzip.compress(content, 1))
    with pytest.raises(InputError, match=message) as error:
        contexts(path)
    assert str(error.value).startswith(str(path))
