"""Deduplicated parts of sources, compared with one process that reads and merges all records."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from citerec.datasets.errors import InputError
from citerec.library.duplicates import Deduplicator
from citerec.library.large.parts import Parts, prepare_parts
from citerec.library.large.reading import to_papers, unclean_rows
from citerec.library.large.tasks import LocalRunner, TaskRunner, task_runner
from citerec.library.papers import LibraryPaper, clean_text
from citerec.library.sources.readers import find_sources, read_source

HERE = LocalRunner()
BUILT = Path(__file__).parents[3] / "examples"
SMALL = 2000
"""Bytes of a piece."""


def papers_of(parts: Parts) -> list[LibraryPaper]:
    batches = [list(parts.batches(part)) for part in range(parts.count)]
    assert [sum(map(len, part)) for part in batches] == list(parts.sizes)
    return [paper for part in batches for batch in part for paper in to_papers(batch)]


def one_process(files: Sequence[str], folder: Path) -> tuple[list[LibraryPaper], int, list[str]]:
    """The oracle: papers, duplicates and errors."""
    errors: list[InputError] = []
    with Deduplicator(folder) as records:
        for file in find_sources(files):
            for paper in read_source(file, errors.append):
                records.add(paper)
        records.finish()
        return list(records.papers()), records.duplicates, [*map(str, errors)]


def check_same(files: Sequence[Path], folder: Path, run: TaskRunner = HERE, **options: Any) -> Parts:
    """Compare with one process; return the parts."""
    names, errors = [*map(str, files)], list[InputError]()
    expected, duplicates, told = one_process(names, folder)
    parts = prepare_parts(
        names, folder / "parts", run=run, on_bad=errors.append, **{"piece_bytes": SMALL} | options
    )
    assert papers_of(parts) == expected
    assert (parts.papers, parts.duplicates) == (len(expected), duplicates)
    assert sum(parts.bad.values()) == len(told)
    assert [*map(str, errors)] == told[: len(errors)] or len(files) > 1
    return parts


def write_lines(path: Path, records: Sequence[Any]) -> Path:
    path.write_bytes(b"".join(orjson.dumps(record) + b"\n" for record in records))
    return path


TITLES = (
    "Parsing trees",
    "A long title of more than twenty letters",
    "a long TITLE, of more than twenty letters",
)
IDS = ("a", "a-2", "a-2-2", "b", "b-3", "doi:10.1000/x", "arxiv:2101.00001", "s2:7", 7)
RECORDS = st.fixed_dictionaries(
    {"id": st.sampled_from(IDS), "title": st.sampled_from(TITLES) | st.text(max_size=4)},
    optional={
        "abstract": st.sampled_from(("", "Short.", "A longer abstract.", " two  spaces ", "a &lt; b\u2003c")),
        "year": st.sampled_from((None, 2001, 2002, 2009, "2010", "soon")),
        "doi": st.sampled_from(("10.1000/x", "https://doi.org/10.1000/Y", "10.48550/arXiv.2101.00001", "")),
        "arxiv": st.sampled_from(("2101.00001", "arXiv:2101.00002v3", None)),
        "authors": st.sampled_from(
            (["Ann Lee"], ["Lee, A."], [{"name": "Bo Diaz"}], "Ann Lee", [], None, [3])
        ),
        "venue": st.sampled_from(("ACL ", None, 3)),
        "journal": st.sampled_from(("J. <i>X</i>", None)),
        "key": st.sampled_from(("lee2001", "k", None)),
        "field": st.sampled_from(("cs", ["cs", "cs"], None)),
        "tags": st.lists(st.sampled_from(("", "one", "two  words")), max_size=2),
        "corpusid": st.just(7),
    },
)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(RECORDS, min_size=1, max_size=12), min_size=1, max_size=3))
def test_parts_are_what_one_process_gives(sources: list[list[dict[str, Any]]]) -> None:
    with TemporaryDirectory() as name:
        folder = Path(name)
        good = {"id": "z", "title": "Something else"}
        files = [
            write_lines(folder / f"{number}.jsonl", [*records, good])
            for number, records in enumerate(sources)
        ]
        check_same(files, folder, piece_bytes=150)


@given(st.lists(st.text() | st.text(" a\t<&\0\u00e9\u00a0\u2003\x1c", max_size=6)))
def test_only_texts_that_cleaning_may_change_are_cleaned(texts: list[str]) -> None:
    texts = [text.encode("utf-8", "replace").decode() for text in texts]
    unclean = set(unclean_rows(texts))
    assert all(clean_text(text) == text for row, text in enumerate(texts) if row not in unclean)


LINES = [
    {"id": "one", "title": "First", "year": 2001},
    "no object",
    {"id": "two", "title": "  ", "abstract": "<i> </i>"},
    {"id": "with space", "title": "Third"},
    {"id": "four", "title": "Fourth", "year": "never"},
    {"id": "five", "title": ["Fifth"]},
    {"paper_id": 6, "title": "Sixth &amp; more", "authors": [{"name": "Ann Lee"}]},
]


def test_bad_records_have_their_place_in_the_file_wherever_it_is_split(tmp_path: Path) -> None:
    lines = [orjson.dumps(line) for line in LINES]
    path = tmp_path / "papers.jsonl"
    path.write_bytes(
        b"\xef\xbb\xbf" + b"\n\n".join([*lines, b'{"id": "cut", ', *lines]) + b"\r\n \n" + lines[0]
    )
    for size in (20, 100, 10_000):
        parts = check_same([path], tmp_path, piece_bytes=size)
        assert parts.bad == {str(path): 11}


@pytest.fixture(scope="module")
def two_workers() -> Iterator[TaskRunner]:
    with task_runner(2) as run:
        yield run


@pytest.mark.slow
def test_two_workers_give_the_same(tmp_path: Path, two_workers: TaskRunner) -> None:
    records = [{"id": f"p{n % 90}", "title": f"Paper number {n % 110}", "year": 2000} for n in range(300)]
    files = [write_lines(tmp_path / f"{n}.jsonl", records[n * 100 : n * 100 + 100]) for n in range(3)]
    assert check_same(files, tmp_path, two_workers).count > 6
