"""Deduplicated parts of sources, compared with one process that reads and merges all records."""

from __future__ import annotations

import gzip
import json
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import fsspec
import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from citerec.base.errors import InputError
from citerec.formats.bibliography.paper import LibraryPaper, clean_text
from citerec.library.disk import tasks
from citerec.library.disk.parts import Parts, plan_pieces, prepare_parts
from citerec.library.disk.reading import Piece, ReadPiece, read_piece, to_papers, unclean_rows
from citerec.library.disk.tasks import TaskRunner, task_runner
from citerec.library.papers.merging import Deduplicator
from citerec.library.sources.readers import find_sources, read_source

HERE = TaskRunner()
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


@pytest.mark.slow
@given(st.lists(st.lists(RECORDS, min_size=1, max_size=12), min_size=1, max_size=3))
def test_parts_are_what_one_process_gives(sources: list[list[dict[str, Any]]]) -> None:
    with TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patch:
        folder = Path(name)
        for constant, value in {"reading.BATCH_ROWS": 3, "deduplicate.BATCH_ROWS": 2}.items():
            patch.setattr(f"citerec.library.disk.{constant}", value)
        for constant, value in {"ROWS_OF_TASK": 3, "KEYS_OF_TASK": 5}.items():
            patch.setattr(f"citerec.library.disk.deduplicate.{constant}", value)
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


OPENALEX: list[dict[str, Any]] = [
    {
        "id": f"https://openalex.org/W{number}",
        "doi": "https://doi.org/10.1000/7" if number == 7 else None,
        "display_name": f"Work {number}",
        "publication_year": 2000 + number,
        "abstract_inverted_index": {"words": [1], "Some": [0]},
        "authorships": [{"author": {"display_name": "Ann Lee"}}],
        "primary_location": {"source": {"display_name": "ACL"}, "landing_page_url": None},
        "keywords": [{"display_name": "parsing"}],
    }
    for number in range(9)
]
S2 = [
    {"corpusid": n, "title": f"{'Work' if n == 7 else 'Paper'} {n}", "externalids": {"DOI": f"10.1000/{n}"}}
    for n in range(9)
]
ABSTRACTS: list[dict[str, Any]] = [
    {"corpusid": n, "openaccessinfo": {"externalids": {}}, "abstract": f"About {n}."} for n in (8, 3, 5)
]
ARXIV = [
    {"id": f"2101.0000{n}", "submitter": "Ann", "title": f"On $\\alpha_{n}$", "abstract": "A."}
    for n in range(9)
]


def zipped(path: Path, records: Sequence[Any]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(b"".join(orjson.dumps(record) + b"\n" for record in records)))
    return path


def test_dumps_as_they_are_published(tmp_path: Path) -> None:
    """A folder with a manifest and gzipped parts; abstracts go to the papers with their corpusid."""
    dump = tmp_path / "openalex" / "data" / "works"
    files = [
        zipped(dump / f"updated_date=2026-01-0{n}" / "part_000.gz", OPENALEX[3 * n : 3 * n + 3])
        for n in range(3)
    ]
    (dump / "manifest").write_text("{}")
    files += [zipped(tmp_path / "s2" / "20260101_000_00042_x.gz", ABSTRACTS)]
    files += [zipped(tmp_path / "s2" / "20260101_001_00042_y.gz", S2)]
    files += [write_lines(tmp_path / "arxiv-metadata-oai-snapshot.json", ARXIV)]
    parts = check_same(files, tmp_path, piece_bytes=200)
    assert parts.duplicates == 1 + len(ABSTRACTS)
    papers = {paper.id: paper for paper in papers_of(parts)}
    assert papers["s2:3"].abstract == "About 3." and papers["s2:3"].doi == "10.1000/3"
    folders = [str(tmp_path / name) for name in ("openalex", "s2", "arxiv*.json")]
    again = prepare_parts(folders, tmp_path / "again", run=HERE, piece_bytes=200)
    assert papers_of(again) == papers_of(parts)


FLAT = [
    {
        "id": work["id"],
        "display_name": work["display_name"],
        "publication_year": float(str(work["publication_year"])),
        "doi": work["doi"],
        "abstract_inverted_index": json.dumps(work["abstract_inverted_index"]),
        "authors": ["Ann Lee"],
        "venue": "ACL",
        "keywords": [{"display_name": "parsing"}],
    }
    for work in OPENALEX
]
AS_MAP = [work | {"abstract_inverted_index": [*work["abstract_inverted_index"].items()]} for work in OPENALEX]
OWN = [
    {
        "paper_id": n,
        "title": f"Paper  {n}",
        "year": n or None,
        "authors": ["Ann Lee"],
        "arxiv": None,
        "rank": n,
    }
    for n in range(9)
]


@pytest.mark.parametrize(
    ("rows", "lines"), [(OWN, OWN), (OPENALEX, OPENALEX), (FLAT, OPENALEX), (AS_MAP, OPENALEX)]
)
def test_parquet_gives_what_json_lines_give(
    tmp_path: Path, rows: list[dict[str, Any]], lines: list[dict[str, Any]]
) -> None:
    kinds = {"abstract_inverted_index": pa.map_(pa.string(), pa.list_(pa.int32()))} if rows is AS_MAP else {}
    columns = {name: pa.array([row[name] for row in rows], kinds.get(name)) for name in rows[0]}
    pq.write_table(pa.table(columns), tmp_path / "papers.parquet", row_group_size=2)
    expected, *_ = one_process([str(write_lines(tmp_path / "papers.jsonl", lines))], tmp_path)
    for size in (1, 10**6):
        parts = prepare_parts(
            [str(tmp_path / "papers.parquet")], tmp_path / "parts", run=HERE, piece_bytes=size
        )
        assert papers_of(parts) == expected
        assert parts.count == (5 if size == 1 else 1)


def test_a_row_of_parquet_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    path, told = tmp_path / "papers.parquet", list[InputError]()
    pq.write_table(pa.table({"id": ["a", "b c", None], "title": ["A", "B", ""]}), path, row_group_size=1)
    parts = prepare_parts([str(path)], tmp_path / "parts", run=HERE, on_bad=told.append, piece_bytes=1)
    assert parts.bad == {str(path): 2}
    invalid = "'b c' is not a valid id: it must not be empty or contain white space or control characters"
    lines = [f"{path}, row 2: {invalid}", f"{path}, row 3: has neither title nor abstract"]
    assert [*map(str, told)] == lines


def test_urls(tmp_path: Path) -> None:
    system = fsspec.filesystem("memory")
    lines = b"".join(orjson.dumps({"id": f"p{n}", "title": f"Paper {n}"}) + b"\n" for n in range(40))
    bib = b"@misc{key, title={Of a bibliography}}"
    for name, content in {
        "a.jsonl": lines,
        "b/part_0.gz": gzip.compress(lines),
        "c.bib": bib,
        "d.txt": b".",
    }.items():
        system.pipe(f"/parts-test/{name}", content)
    names = ["memory://parts-test", "memory://parts-test/*.jsonl"]
    parts = prepare_parts(names, tmp_path / "parts", run=HERE, piece_bytes=500)
    assert (parts.papers, parts.duplicates) == (41, 40)
    assert parts.count == len(lines) // 500 + 2
    with pytest.raises(InputError, match=r"memory://parts-test/none.*: no such file"):
        prepare_parts(["memory://parts-test/none"], tmp_path / "parts", run=HERE)


def damage(path: Path, kind: str) -> str:
    """Write a file that cannot be read; return its error after the name."""
    papers = [{"id": f"p{n}", "title": f"Paper {n}"} for n in range(2000)]
    if kind == "gzip":
        content = zipped(path, papers).read_bytes()
        path.write_bytes(content[: len(content) // 2])
        return "damaged gzip file: Compressed file ended before the end-of-stream marker was reached"
    if kind == "Parquet":
        pq.write_table(pa.Table.from_pylist(papers), path)
        path.write_bytes(path.read_bytes()[:-100])
        return "damaged Parquet file: "
    if kind == "rows":
        pq.write_table(pa.table({"name": ["x"]}), path)
        return "has no column title, display_name or abstract"
    content, reason = {
        "binary": (bytes(range(256)) * 400, "has an unknown format; give "),
        "empty": (b"", "is empty"),
        "lines": (b"{no JSON}\n" * 900, "has no usable paper: {path}, line 1: malformed JSON: "),
        "long": (b'{"title": "' + b"x" * 100_000, "a line is longer than 0 MB"),
    }[kind]
    path.write_bytes(content)
    return reason.format(path=path)


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("gzip", "b.jsonl.gz"),
        ("Parquet", "b.parquet"),
        ("rows", "b.parquet"),
        ("binary", "b.jsonl"),
        ("empty", "b.jsonl"),
        ("lines", "b.jsonl"),
        ("long", "b.jsonl"),
    ],
)
def test_a_damaged_file_is_refused_or_skipped(
    tmp_path: Path, kind: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("citerec.library.disk.reading.LONGEST", 50_000)
    bad = tmp_path / name
    reason = f"{bad}: {damage(bad, kind)}"
    good = [write_lines(tmp_path / f"{n}.jsonl", [{"id": f"g{n}", "title": f"Good {n}"}]) for n in "ac"]
    files = [str(file) for file in (good[0], bad, good[1])]
    with pytest.raises(InputError) as refused:
        prepare_parts(files, tmp_path / "parts", run=HERE, piece_bytes=2000)
    assert str(refused.value).startswith(reason)
    assert str(refused.value).endswith("; leave such files out with bad_parts=skip")
    parts = prepare_parts(files, tmp_path / "parts", run=HERE, piece_bytes=2000, bad_parts="skip")
    assert [paper.id for paper in papers_of(parts)] == ["ga", "gc"]
    assert (parts.papers, parts.bad, [*parts.skipped]) == (2, {str(bad): 0}, [str(bad)])
    assert parts.skipped[str(bad)].startswith(reason)


def test_pieces_of_large_sources_are_larger(tmp_path: Path) -> None:
    path = tmp_path / "papers.jsonl"
    for gigabytes, pieces in {1: 16, 63: 1008, 65: 520, 130: 520}.items():
        with path.open("wb") as file:
            file.write(b"{}\n")
            file.truncate(gigabytes << 30)  # takes no space
        assert len(plan_pieces([str(path)])) == pieces


class Counting(TaskRunner):
    """Tells what it ran, and can be killed."""

    def __init__(self, most: int = 1000) -> None:
        self.most, self.done = most, list[str]()

    def map(self, function: Any, items: Any, what: str) -> Iterator[tuple[int, Any]]:
        for number, result in super().map(function, items, what):
            self.done.append(what)
            yield number, result
            if len(self.done) == self.most:
                raise KeyboardInterrupt


def test_a_killed_run_goes_on_to_the_same_result(tmp_path: Path) -> None:
    records = [
        {"id": f"p{n % 70}", "title": f"Paper {n % 90}", "abstract": "x" * (n % 9)} for n in range(200)
    ]
    path = write_lines(tmp_path / "papers.jsonl", records)
    expected, *_ = one_process([str(path)], tmp_path)
    whole = Counting()
    prepare_parts([str(path)], tmp_path / "whole", run=whole, piece_bytes=1000)
    for killed in range(1, len(whole.done), 3):
        folder = tmp_path / f"killed{killed}"
        with pytest.raises(KeyboardInterrupt):
            prepare_parts([str(path)], folder, run=Counting(killed), piece_bytes=1000)
        (folder / ".part-00000.arrow.7").write_text("of a killed worker")
        run = Counting()
        parts = prepare_parts([str(path)], folder, run=run, piece_bytes=1000)
        assert papers_of(parts) == expected
        assert run.done.count("reading pieces") == max(0, parts.count - killed)
        assert not [*folder.glob(".*.*")]
    assert content(tmp_path / "killed1") == content(tmp_path / "whole")
    unchanged = Counting()
    assert papers_of(prepare_parts([str(path)], folder, run=unchanged, piece_bytes=1000)) == expected
    assert unchanged.done == []
    write_lines(path, records[:100])
    expected, *_ = one_process([str(path)], tmp_path)
    fewer = prepare_parts([str(path)], folder, run=HERE, piece_bytes=1000)
    assert papers_of(fewer) == expected
    assert len([*folder.glob("part-*.arrow")]) == 2 * fewer.count


def content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_without_ray_one_process_works(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)  # as where it is not installed
    monkeypatch.setattr(tasks, "find_spec", lambda name: None)
    with task_runner() as run:
        assert run.workers == 1
    assert "citerec[ray]" in caplog.text
    with pytest.raises(InputError, match=r"ray: pip install 'citerec\[ray\]'$"), task_runner(2):
        pass


@pytest.fixture(scope="module")
def two_workers() -> Iterator[TaskRunner]:
    pytest.importorskip("ray")
    with task_runner(2) as run:
        yield run


@pytest.mark.slow
def test_two_workers_give_the_same(tmp_path: Path, two_workers: TaskRunner) -> None:
    records = [{"id": f"p{n % 90}", "title": f"Paper number {n % 110}", "year": 2000} for n in range(300)]
    files = [write_lines(tmp_path / f"{n}.jsonl", records[n * 100 : n * 100 + 100]) for n in range(3)]
    names = [*map(str, files)]
    assert check_same(files, tmp_path, two_workers).count == 6
    prepare_parts(names, tmp_path / "one", run=HERE, piece_bytes=SMALL)
    assert content(tmp_path / "parts") == content(tmp_path / "one")


@pytest.mark.slow
def test_the_task_of_a_killed_worker_is_tried_again(
    tmp_path: Path, two_workers: TaskRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_lines(tmp_path / "a.jsonl", [{"id": f"p{n}", "title": f"Paper {n}"} for n in range(300)])

    def killed_once(task: tuple[str, int, Piece]) -> ReadPiece:
        folder, number, _ = task
        marker = Path(folder).parent / f"killed-{number}"
        if number in (1, 3) and not marker.exists():
            marker.touch()
            (Path(folder) / f".part-{number:05d}.arrow.{os.getpid()}").write_text("half")
            os.kill(os.getpid(), signal.SIGKILL)
        return read_piece(task)

    monkeypatch.setattr("citerec.library.disk.parts.read_piece", killed_once)
    check_same([path], tmp_path, two_workers)
    assert sorted(tmp_path.glob("killed-*")) == [tmp_path / "killed-1", tmp_path / "killed-3"]


@pytest.mark.slow
def test_errors_of_tasks_are_those_of_one_process(tmp_path: Path, two_workers: TaskRunner) -> None:
    def fail(number: int) -> int:
        if number == 2:
            raise InputError("two")
        if number == 3:
            os.kill(os.getpid(), signal.SIGKILL)
        return number

    assert sorted(two_workers.map(fail, [0, 1], "numbers")) == [(0, 0), (1, 1)]
    with pytest.raises(InputError, match=r"^two$"):
        list(two_workers.map(fail, [0, 1, 2], "numbers"))
    with pytest.raises(InputError, match=r"^numbers: a worker was killed 4 times"):
        list(two_workers.map(fail, [0, 3], "numbers"))
