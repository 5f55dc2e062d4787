"""Dumps of S2ORC and Semantic Scholar become files of papers that the project reads."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from datasets.citations.graph import open_graph
from datasets.convert import convert
from datasets.errors import InputError

ROOT = Path(__file__).parents[2]

S2ORC_2020 = {
    "paper_id": "18980380",
    "title": "Mono-unsaturated fat",
    "abstract": "Part ::: two.",
    "year": 2019,
    "mag_field_of_study": ["Medicine", "Biology"],
    "outbound_citations": ["11", "12"],
    "inbound_citations": ["13"],
}
CORPUS = {
    "id": "4cd223df",
    "title": "Preliminary study",
    "paperAbstract": "An abstract.",
    "year": 2014,
    "fieldsOfStudy": ["Art"],
    "outCitations": ["18980380"],
    "inCitations": [],
}
OPEN_RESEARCH = {  # of 2017-02-21: a paper may have no year
    "id": "9e9c",
    "title": "On open research",
    "paperAbstract": "",
    "authors": [{"name": "A. B.", "ids": ["1"]}],
    "inCitations": [],
    "outCitations": ["4cd223df", "18"],
    "keyPhrases": ["open"],
    "pdfUrls": [],
    "s2Url": "http://semanticscholar.org/paper/9e9c",
    "venue": "",
}
CITEOMATIC = {  # of Ren et al. 2014: DBLP and PubMed
    "title": "mining top - k patterns",
    "abstract": "we mine .",
    "authors": ["A. B."],
    "out_citations": ["12", "14"],
    "year": 2009,
    "id": "13",
    "venue": "ICDM",
    "in_citation_count": 0,
    "out_citation_count": 2,
    "key_phrases": ["mining"],
    "date": None,
    "title_raw": "Mining Top-K Patterns",
    "abstract_raw": "We mine.",
}
API: list[dict[str, Any]] = [
    {"corpusid": 11, "title": "A first", "year": 2001, "s2fieldsofstudy": [
        {"category": "Medicine", "source": "external"}, {"category": "Medicine", "source": "s2-fos-model"}]},
    {"corpusid": 12, "abstract": "Its abstract."},
    {"corpusid": 12, "title": "A second", "year": None, "s2fieldsofstudy": None},
    {"corpusid": 11, "abstract": "The first one's.", "openaccessinfo": {"license": None}},
    {"citingcorpusid": 12, "citedcorpusid": 11, "isinfluential": False},
    {"citingcorpusid": 12, "citedcorpusid": None},
]  # fmt: skip


def write(path: Path, records: list[Any]) -> Path:
    text = "\n".join(one if isinstance(one, str) else json.dumps(one) for one in records).encode()
    path.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text)
    return path


def lines(path: Path) -> list[str]:
    return gzip.decompress(path.read_bytes()).decode().splitlines()


def test_all_layouts_become_papers_and_the_graph_is_theirs(tmp_path: Path) -> None:
    own = {
        "paper_id": "p",
        "title": "Own",
        "abstract": "",
        "year": 1999,
        "references": ["4cd223df"],
        "month": 3,
    }
    write(tmp_path / "metadata.jsonl.gz", [S2ORC_2020, own])
    write(tmp_path / "corpus.jsonl", [CORPUS])
    write(tmp_path / "s2.jsonl", API)
    done = convert(
        [str(tmp_path / name) for name in ("metadata.jsonl.gz", "corpus.jsonl", "s2.jsonl")], tmp_path / "out"
    )
    assert (done.papers, done.citations, done.unresolved) == (5, 1, 1)
    keys = ("paper_id", "title", "abstract", "year", "fields", "references")
    rows = [
        ("18980380", "Mono-unsaturated fat", "Part   two.", 2019, ["Medicine", "Biology"], ["11", "12"]),
        ("p", "Own", "", 1999, [], ["4cd223df"]),
        ("4cd223df", "Preliminary study", "An abstract.", 2014, ["Art"], ["18980380"]),
        ("11", "A first", "The first one's.", 2001, ["Medicine"], []),
        ("12", "A second", "Its abstract.", None, [], []),
    ]
    written = [json.loads(line) for line in lines(tmp_path / "out" / "papers.jsonl.gz")]
    assert written == [dict(zip(keys, row, strict=True)) for row in rows]
    pairs = tmp_path / "out" / "citations.tsv.gz"
    assert lines(pairs) == ["citing\tcited", "12\t11"]
    graph = open_graph(tmp_path / "out" / "papers.jsonl.gz", pairs, cache_dir=tmp_path)
    assert [found.tolist() for found in graph.cites] == [[3, 4], [2], [0], [], [3]] and graph.unknown == 0


def test_what_citeomatic_used_becomes_papers(tmp_path: Path) -> None:
    older = {key: value for key, value in CITEOMATIC.items() if not key.endswith("_raw")} | {"id": 14}
    raw = {"paper_id": "13", "title": "Mining Top-K Patterns", "abstract": "We mine."}
    cut = {"paper_id": "14", "title": "mining top - k patterns", "abstract": "we mine ."}
    kept = {"year": 2009, "fields": [], "references": ["12", "14"]}
    convert(str(write(tmp_path / "corpus.json", [CITEOMATIC, older])), tmp_path / "dblp")
    assert [json.loads(line) for line in lines(tmp_path / "dblp" / "papers.jsonl.gz")] == [
        raw | kept,
        cut | kept,
    ]
    convert(str(write(tmp_path / "papers-2017-02-21.json.gz", [OPEN_RESEARCH, CORPUS])), tmp_path / "open")
    first, second = (json.loads(line) for line in lines(tmp_path / "open" / "papers.jsonl.gz"))
    assert first == {
        "paper_id": "9e9c",
        "title": "On open research",
        "abstract": "",
        "year": None,
        "fields": [],
        "references": ["4cd223df", "18"],
    }
    assert second["paper_id"] == "4cd223df"


def test_without_files_of_citations_there_is_no_table_of_them(tmp_path: Path) -> None:
    convert(str(write(tmp_path / "corpus.jsonl", [CORPUS])), tmp_path / "out")
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["papers.jsonl.gz"]


def test_equal_dumps_make_equal_files(tmp_path: Path) -> None:
    source = str(write(tmp_path / "s2.jsonl", [*API, CORPUS]))
    for name in ("one", "two"):
        convert(source, tmp_path / name)
    for path in (tmp_path / "one").iterdir():
        assert path.read_bytes() == (tmp_path / "two" / path.name).read_bytes()


@pytest.mark.parametrize(
    ("record", "said"),
    [
        ({"x": 1}, r"line 2: of no known layout: S2ORC's metadata"),
        ({**CORPUS, "outCitations": [None]}, r"line 2, field 'outCitations\[0\]': must be a number or a"),
        ({**S2ORC_2020, "year": 3.5}, r"line 2, field 'year': must be a whole number"),
        ({"citingcorpusid": [1], "citedcorpusid": 2}, r"line 2, field 'citingcorpusid': must be an id"),
        ({**CITEOMATIC, "out_citations": "12"}, r"line 2, field 'out_citations': must be a list, not"),
        ({**CITEOMATIC, "title_raw": 3}, r"line 2, field 'title_raw': must be a string, not a number"),
        ("{", r"line 2: malformed JSON"),
    ],
)
def test_a_record_that_cannot_be_used_is_named_and_nothing_is_left(
    tmp_path: Path, record: Any, said: str
) -> None:
    source = write(tmp_path / "dump.jsonl", [CORPUS, record])
    with pytest.raises(InputError, match=said):
        convert(str(source), tmp_path / "out")
    assert not (tmp_path / "out").exists() and [path.name for path in tmp_path.iterdir()] == ["dump.jsonl"]


def test_no_papers_and_a_folder_that_is_there_are_refused(tmp_path: Path) -> None:
    source = str(write(tmp_path / "dump.jsonl", [API[4]]))
    with pytest.raises(InputError, match=r"no papers in 1 files"):
        convert(source, tmp_path / "out")
    with pytest.raises(InputError, match=r"is there already"):
        convert(source, tmp_path)


@pytest.mark.slow
def test_the_command(tmp_path: Path) -> None:
    write(tmp_path / "dump.jsonl", [CORPUS])
    command = [
        sys.executable,
        "-m",
        "datasets.convert",
        f"source={tmp_path}/dump.jsonl",
        f"output={tmp_path}/out",
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and "1 papers" in done.stdout, done.stderr
    command[-1] = f"output={tmp_path}"
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 2 and done.stderr.startswith("error: output:") and done.stderr.count("\n") == 1
