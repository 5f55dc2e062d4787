"""Conversion of S2ORC, Semantic Scholar and Citeomatic dumps."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from citerec.base.errors import InputError
from citerec.datasets.citations.graph import open_graph
from citerec.datasets.files.convert import convert
from citerec.tests.conftest import Done
from citerec.tests.datasets.conftest import write_lines as write

TITLED = {"title": "Mono-unsaturated fat", "abstract": "Part ::: two.", "year": 2019}
S2ORC_2020 = {"paper_id": "18980380", **TITLED, "mag_field_of_study": ["Medicine", "Biology"]}
S2ORC_2020 |= {"outbound_citations": ["11", "12"], "inbound_citations": ["13"]}
CORPUS = {"id": "4cd223df", "title": "Preliminary study", "paperAbstract": "An abstract.", "year": 2014}
CORPUS |= {"fieldsOfStudy": ["Art"], "outCitations": ["18980380"], "inCitations": []}
# Open Research of 2017-02-21, where a paper may have no year.
OPEN_RESEARCH: dict[str, Any] = {"id": "9e9c", "title": "On open research", "paperAbstract": ""}
OPEN_RESEARCH |= {"venue": "", "keyPhrases": []}
OPEN_RESEARCH |= {"inCitations": [], "outCitations": ["4cd223df", "18"], "pdfUrls": [], "s2Url": "http://x"}
# DBLP and PubMed of Ren et al. 2014 in Citeomatic's layout.
CITEOMATIC = {"id": "13", "title": "mining top - k patterns", "abstract": "we mine .", "year": 2009}
CITEOMATIC |= {"title_raw": "Mining Top-K Patterns", "abstract_raw": "We mine."}
CITEOMATIC |= {"out_citations": ["12", "14"]}
CITEOMATIC |= {"authors": ["A. B."], "venue": "ICDM", "key_phrases": ["mining"], "date": None}
API: list[dict[str, Any]] = [
    {"corpusid": 11, "title": "A first", "year": 2001, "s2fieldsofstudy": [
        {"category": "Medicine", "source": "external"}, {"category": "Medicine", "source": "s2-fos-model"}]},
    {"corpusid": 12, "abstract": "Its abstract."},
    {"corpusid": 12, "title": "A second", "year": None, "s2fieldsofstudy": None},
    {"corpusid": 11, "abstract": "The first one's.", "openaccessinfo": {"license": None}},
    {"citingcorpusid": 12, "citedcorpusid": 11, "isinfluential": False},
    {"citingcorpusid": 12, "citedcorpusid": None},
]  # fmt: skip


def lines(path: Path) -> list[str]:
    return gzip.decompress(path.read_bytes()).decode().splitlines()


def papers(path: Path) -> list[tuple[Any, ...]]:
    """The values of the converted papers in the order of these keys."""
    keys = ("paper_id", "title", "abstract", "year", "fields", "references")
    found = [json.loads(line) for line in lines(path / "papers.jsonl.gz")]
    assert all(tuple(paper) == keys for paper in found)
    return [tuple(paper.values()) for paper in found]


def test_all_layouts_are_converted_and_give_the_same_graph(tmp_path: Path) -> None:
    own = {"paper_id": "p", "title": "Own", "abstract": "", "year": 1999, "references": ["4cd223df"], "m": 3}
    files = {"metadata.jsonl.gz": [S2ORC_2020, own], "corpus.jsonl": [CORPUS], "s2.jsonl": API}
    done = convert([str(write(tmp_path / name, found)) for name, found in files.items()], tmp_path / "out")
    assert done.endswith(": 5 papers; citations.tsv.gz: 1 citations (1 skipped for a missing id)")
    assert papers(tmp_path / "out") == [
        ("18980380", "Mono-unsaturated fat", "Part   two.", 2019, ["Medicine", "Biology"], ["11", "12"]),
        ("p", "Own", "", 1999, [], ["4cd223df"]),
        ("4cd223df", "Preliminary study", "An abstract.", 2014, ["Art"], ["18980380"]),
        ("11", "A first", "The first one's.", 2001, ["Medicine"], []),
        ("12", "A second", "Its abstract.", None, [], []),
    ]
    pairs = tmp_path / "out" / "citations.tsv.gz"
    assert lines(pairs) == ["citing\tcited", "12\t11"]
    graph = open_graph(tmp_path / "out" / "papers.jsonl.gz", pairs, cache_dir=tmp_path)
    assert [found.tolist() for found in graph.cites] == [[3, 4], [2], [0], [], [3]] and graph.unknown == 0


def test_citeomatic_files_are_converted(tmp_path: Path) -> None:
    older = {key: value for key, value in CITEOMATIC.items() if not key.endswith("_raw")} | {"id": 14}
    convert(str(write(tmp_path / "corpus.json", [CITEOMATIC, older])), tmp_path / "dblp")
    assert papers(tmp_path / "dblp") == [
        ("13", "Mining Top-K Patterns", "We mine.", 2009, [], ["12", "14"]),
        ("14", "mining top - k patterns", "we mine .", 2009, [], ["12", "14"]),
    ]
    convert(str(write(tmp_path / "papers-2017-02-21.json.gz", [OPEN_RESEARCH, CORPUS])), tmp_path / "open")
    assert papers(tmp_path / "open") == [
        ("9e9c", "On open research", "", None, [], ["4cd223df", "18"]),
        ("4cd223df", "Preliminary study", "An abstract.", 2014, ["Art"], ["18980380"]),
    ]


def test_equal_dumps_make_equal_files(tmp_path: Path) -> None:
    source = str(write(tmp_path / "s2.jsonl", [*API, CORPUS]))
    for name in ("one", "two"):
        convert(source, tmp_path / name)
    for path in (tmp_path / "one").iterdir():
        assert path.read_bytes() == (tmp_path / "two" / path.name).read_bytes()
    convert(str(write(tmp_path / "corpus.jsonl", [CORPUS])), tmp_path / "out")  # without citations
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["papers.jsonl.gz"]


@pytest.mark.parametrize(
    ("record", "said"),
    [
        ({"x": 1}, r"line 2: unknown layout; must be S2ORC metadata"),
        ({**CORPUS, "outCitations": [None]}, r"line 2, field 'outCitations\[0\]': must be a number or a"),
        ({**S2ORC_2020, "year": 3.5}, r"line 2, field 'year': must be a whole number"),
        ({"citingcorpusid": [1], "citedcorpusid": 2}, r"line 2, field 'citingcorpusid': must be an id"),
        ({**CITEOMATIC, "out_citations": "12"}, r"line 2, field 'out_citations': must be a list, not"),
        ({**CITEOMATIC, "title_raw": 3}, r"line 2, field 'title_raw': must be a string, not a number"),
        ("{", r"line 2: malformed JSON"),
    ],
)
def test_an_invalid_record_is_named_and_nothing_is_written(tmp_path: Path, record: Any, said: str) -> None:
    source = write(tmp_path / "dump.jsonl", [CORPUS, record])
    with pytest.raises(InputError, match=said):
        convert(str(source), tmp_path / "out")
    assert not (tmp_path / "out").exists() and [path.name for path in tmp_path.iterdir()] == ["dump.jsonl"]


def test_missing_papers_and_an_existing_folder_are_rejected(tmp_path: Path) -> None:
    source = str(write(tmp_path / "dump.jsonl", [API[4]]))
    with pytest.raises(InputError, match=r"no papers in 1 files"):
        convert(source, tmp_path / "out")
    with pytest.raises(InputError, match=r"already exists"):
        convert(source, tmp_path)
    with pytest.raises(InputError, match=r"dump\.jsonl: .*; set output to another folder"):
        convert(source, tmp_path / "dump.jsonl" / "out")


def test_a_folder_gives_its_json_lines_alone(tmp_path: Path) -> None:
    folder = tmp_path / "dump"
    (folder / "part").mkdir(parents=True)
    (folder / "list.xml").write_text("<list/>")
    with pytest.raises(InputError, match=r"no such file, or a folder without \.jsonl, \.jsonl\.gz$"):
        convert(str(folder), tmp_path / "out")
    write(folder / "part" / "papers.jsonl", [CORPUS])
    assert "1 papers" in convert(str(folder), tmp_path / "out")
    with pytest.raises(InputError, match=r"^source: name a file or folder$"):
        convert([], tmp_path / "more")


@pytest.mark.slow
def test_the_command(tmp_path: Path, script: Callable[..., Done]) -> None:
    source = f"source={write(tmp_path / 'dump.jsonl', [CORPUS])}"
    done = script("data", "convert", source, f"output={tmp_path}/out")
    assert done.code == 0 and "1 papers" in done.out, done.err
    done = script("data", "convert", source, f"output={tmp_path}")
    assert done.code == 2 and done.err.startswith("error: output:") and done.err.count("\n") == 1
