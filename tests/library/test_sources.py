"""Files of papers: formats, what becomes of their fields, and records that cannot be used."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from datasets.errors import InputError
from library.papers import LibraryPaper
from library.sources import find_sources, read_source

BIB = r"""
@string{jmlr = "Journal of {ML}"}
@comment{jabref-meta: databaseType:bibtex;}
@article{muller2019,
  author = {M{\"u}ller, Karl and van der Maaten, Laurens and {Deep Mind Team} and others},
  title = {The {BERT} model's number: an \'etude},
  journal = jmlr, year = 2019, month = jan,
  abstract = {We show that \emph{this} works -- and don't know why. It is 5\% better.},
  keywords = {deep learning; parsing}, groups = {Reading, Thesis}, doi = {https://doi.org/10.1000/X\_1},
}
@inproceedings{child, title={A Title}, title={Another}, crossref={proc}, eprint={2112.01206v2},
 archivePrefix={arXiv}}
@article{b, title={unclosed,
 year=2000
}
@misc{untitled, year=2000}
@misc{corr, title="Without an id", journal={CoRR}, volume={abs/1810.04805}}
@proceedings{proc, title={Proceedings of X}, year=2001}
"""
RIS = """TY  - JOUR
AU  - Lee, Ann B.
AU  - Diaz, Bo
TI  - A study of things
T2  - Journal of Things
PY  - 2015/03/01
AB  - First line
  and second.
KW  - alpha
KW  - beta
DO  - 10.1000/ris
ID  - lee2015
ER  -
stray text

TY  - CONF
AU  - Nobody
PY  - 2016
ER  -

TY  - CONF
T1  - No end tag
Y1  - 2017
"""
CSL: list[Any] = [
    {
        "id": "http://zotero.org/1", "citation-key": "smith2020", "type": "article-journal",
        "title": "<i>Deep</i> nets &amp; trees",
        "author": [{"family": "Smith", "given": "Jo"}, {"literal": "The Group"}],
        "issued": {"date-parts": [["2020", 1]]}, "container-title": "Nature",
        "abstract": "<jats:p>We do.</jats:p>", "DOI": "10.1000/CSL", "keyword": "a, b",
    },
    {"id": "x2", "type": "article", "title": "Preprint", "publisher": "arXiv", "number": "arXiv:2101.00001"},
    {"id": "x3", "title": 5},
    "no object",
]  # fmt: skip
ARXIV: list[Any] = [
    {
        "id": "0704.0001", "submitter": "Pavel", "authors": "C. Bal\\'azs, E. L. Berger",
        "title": "Calculation of prompt\n  diphoton production", "categories": "hep-ph cs.LG",
        "abstract": "  A fully $p_T$ \\emph{differential} calculation\nis presented.",
        "authors_parsed": [["Bal\\'azs", "C.", ""], ["Berger", "E. L.", ""]],
        "doi": "10.1103/PhysRevD.76.013009", "update_date": "2008-11-26",
    },
    {"id": "no", "authors_parsed": []},
]  # fmt: skip
OPENALEX = {
    "id": "https://openalex.org/W1", "doi": "https://doi.org/10.1000/OA", "display_name": "Open work",
    "publication_year": 2018, "abstract_inverted_index": {"works": [1], "Inverted": [0], "here.": [2]},
    "authorships": [{"author": {"display_name": "Ann Lee"}}, {"author": {"display_name": None}}],
    "primary_location": {
        "source": {"display_name": "eLife"}, "landing_page_url": "https://doi.org/10.1000/oa"
    },
    "keywords": [{"display_name": "openness"}],
}  # fmt: skip
S2: list[Any] = [
    {
        "corpusid": 7, "externalids": {"DOI": "10.1000/s2", "ArXiv": "1706.03762"}, "title": "Attention",
        "authors": [{"name": "Ann Lee"}, {"name": None}], "year": 2017,
    },
    {"corpusid": 7, "abstract": "The dominant models."},
    {"citingcorpusid": 7, "citedcorpusid": 8},
]  # fmt: skip
OWN = {"P1": {"title": "Ours", "abstract": "Text.", "year": "2011", "authors": ["A B"], "venue": "ACL"}}


def read(path: Path) -> tuple[list[LibraryPaper], list[str]]:
    bad: list[InputError] = []
    found = list(read_source(path, bad.append))
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(found), type=list[LibraryPaper]) == found
    return found, [str(error).removeprefix(str(path)) for error in bad]


def write(path: Path, content: Any) -> Path:
    if not isinstance(content, str):
        lines = path.name.removesuffix(".gz").endswith(".jsonl")
        content = "\n".join(map(json.dumps, content)) if lines else json.dumps(content)
    path.write_bytes(gzip.compress(content.encode()) if path.suffix == ".gz" else content.encode())
    return path


def test_bibtex(tmp_path: Path) -> None:
    papers, bad = read(write(tmp_path / "a.bib", BIB))
    first = papers[0]
    assert first._replace(bibtex="") == LibraryPaper(
        id="doi:10.1000/x_1",
        key="muller2019",
        title="The BERT model's number: an étude",
        abstract="We show that this works – and don't know why. It is 5% better.",
        authors=("Karl Müller", "Laurens van der Maaten", "Deep Mind Team"),
        year=2019,
        venue="Journal of ML",
        doi="10.1000/x_1",
        collections=("Reading", "Thesis"),
        tags=("deep learning", "parsing"),
    )
    assert first.bibtex.startswith("@article{muller2019,\n") and "month = jan" in first.bibtex
    assert "journal = {Journal of {ML}}," in first.bibtex
    child = papers[1]._replace(key="", bibtex="", arxiv="")
    assert child == LibraryPaper("arxiv:2112.01206", title="A Title", year=2001, venue="Proceedings of X")
    assert [paper.id for paper in papers[2:]] == ["arxiv:1810.04805", "key:proc"]
    assert bad == [
        ", line 13 (b): cannot be parsed: a brace, quote or comma is amiss",
        ", line 16 (untitled): has neither title nor abstract",
    ]


def test_ris(tmp_path: Path) -> None:
    papers, bad = read(write(tmp_path / "a.ris", RIS))
    assert papers[0] == LibraryPaper(
        id="doi:10.1000/ris",
        key="lee2015",
        title="A study of things",
        abstract="First line and second.",
        authors=("Ann B. Lee", "Bo Diaz"),
        year=2015,
        venue="Journal of Things",
        doi="10.1000/ris",
        tags=("alpha", "beta"),
    )
    assert [(paper.title, paper.year) for paper in papers[1:]] == [("No end tag", 2017)]
    assert bad == [
        ", line 14: is in no record; a record begins with TY  -",
        ", line 16: has neither title nor abstract",
    ]


def test_csl_json(tmp_path: Path) -> None:
    papers, bad = read(write(tmp_path / "a.json", CSL))
    assert papers[0] == LibraryPaper(
        id="doi:10.1000/csl",
        key="smith2020",
        title="Deep nets & trees",
        abstract="We do.",
        authors=("Jo Smith", "The Group"),
        year=2020,
        venue="Nature",
        doi="10.1000/csl",
        tags=("a", "b"),
    )
    assert (papers[1].id, papers[1].key) == ("arxiv:2101.00001", "x2")
    assert papers[2].title == "5" and bad == [", record 3: must be an object, not a string"]


@pytest.mark.parametrize("name", ["papers.json", "papers.json.gz", "lines.jsonl", "lines.jsonl.gz"])
def test_our_own_formats(tmp_path: Path, name: str) -> None:
    lines = [{"id": id, **paper} for id, paper in OWN.items()]
    papers, bad = read(write(tmp_path / name, lines if "lines" in name else OWN))
    assert not bad and papers == [
        LibraryPaper("P1", title="Ours", abstract="Text.", authors=("A B",), year=2011, venue="ACL")
    ]


@pytest.mark.parametrize("name", ["snapshot.jsonl", "arxiv-metadata-oai-snapshot.json"])
def test_the_metadata_snapshot_of_arxiv(tmp_path: Path, name: str) -> None:
    papers, bad = read(write(tmp_path / name, "\n".join(map(json.dumps, ARXIV))))
    assert papers == [
        LibraryPaper(
            id="arxiv:0704.0001",
            title="Calculation of prompt diphoton production",
            abstract="A fully p_T differential calculation is presented.",
            authors=("C. Balázs", "E. L. Berger"),
            year=2007,
            doi="10.1103/physrevd.76.013009",
            arxiv="0704.0001",
            url="https://arxiv.org/abs/0704.0001",
            tags=("hep-ph", "cs.LG"),
        )
    ]
    assert bad == [", line 2, field 'id': 'no' is no arXiv id"]


def test_works_of_openalex(tmp_path: Path) -> None:
    papers, _ = read(write(tmp_path / "part_000.gz", json.dumps(OPENALEX)))
    assert papers == [
        LibraryPaper(
            "doi:10.1000/oa", title="Open work", abstract="Inverted works here.", authors=("Ann Lee",),
            year=2018, venue="eLife", doi="10.1000/oa", url="https://doi.org/10.1000/oa", tags=("openness",),
        )
    ]  # fmt: skip


def test_dumps_of_semantic_scholar(tmp_path: Path) -> None:
    papers, bad = read(write(tmp_path / "s2.jsonl", S2))
    known = {"authors": ("Ann Lee",), "year": 2017, "doi": "10.1000/s2", "arxiv": "1706.03762"}
    assert papers == [
        LibraryPaper("s2:7", title="Attention", **known),  # type: ignore[arg-type]
        LibraryPaper("s2:7", abstract="The dominant models."),
    ]
    assert bad == [", line 3: is a citation, no paper; give the files of papers"]


@pytest.mark.parametrize(
    ("name", "content", "line"),
    [
        ("a.bib", "", "is empty"),
        ("a.bib", "% nothing yet\n@comment{x}", r"has no entries \(@article{key, ...}\)"),
        ("a.ris", "AU  - Lee", "has no records"),
        ("a.txt", "plain words", "is of no known format; give .bib, .ris, .json, .jsonl, also .gz"),
        ("a.json", "[{", "malformed JSON"),
        ("a.gz", "\x1f\x8b123", "damaged gzip file"),
    ],
)
def test_a_file_that_cannot_be_used(tmp_path: Path, name: str, content: str, line: str) -> None:
    (tmp_path / name).write_bytes(content.encode("latin-1"))
    with pytest.raises(InputError, match=line):
        read(tmp_path / name)


@pytest.mark.parametrize(
    ("record", "line"),
    [
        ({"title": ["a"]}, "field 'title': must be a string, not a list"),
        ({"title": "a", "authors": [3]}, "field 'authors': must be a list of strings, not of a number"),
        ({"title": "a", "year": "soon"}, "field 'year': must be a whole number, not 'soon'"),
        ({"title": " ", "abstract": None}, "has neither title nor abstract"),
        ({"title": "a", "id": "two words"}, "'two words' is no id"),
    ],
)
def test_a_record_that_cannot_be_used_is_named(tmp_path: Path, record: dict[str, Any], line: str) -> None:
    papers, (bad,) = read(write(tmp_path / "a.jsonl", [record, {"id": "good", "title": "b"}]))
    assert [paper.id for paper in papers] == ["good"] and bad.startswith(", line 1") and line in bad


def test_sources_are_files_and_folders(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    for name in ("data/papers.json", "data/contexts.json", "b.bib", "c.txt"):
        write(tmp_path / name, "{}")
    (tmp_path / "works" / "x").mkdir(parents=True)
    write(tmp_path / "works" / "x" / "part.jsonl", "{}")
    found = find_sources([str(tmp_path / name) for name in ("data", "b.bib", "works", "b.bib")])
    assert [path.name for path in found] == ["papers.json", "b.bib", "part.jsonl"]
    for name in ("nowhere", "works/x/y"):
        with pytest.raises(InputError, match=f"source={tmp_path / name}: no such file"):
            find_sources([str(tmp_path / name)])


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data(), name=st.sampled_from(["a.bib", "a.ris", "a.json", "a.jsonl", "a"]))
def test_a_damaged_file_is_papers_or_one_line(tmp_path: Path, data: st.DataObject, name: str) -> None:
    whole = {"a.bib": BIB, "a.ris": RIS, "a.json": json.dumps(CSL), "a": json.dumps(OWN)}
    text = whole.get(name, "\n".join(map(json.dumps, [*ARXIV, OPENALEX, *S2]))).encode()
    start, length = data.draw(st.integers(0, len(text))), data.draw(st.integers(0, 40))
    (tmp_path / name).write_bytes(text[:start] + data.draw(st.binary(max_size=8)) + text[start + length :])
    try:
        papers, bad = read(tmp_path / name)
    except InputError as error:
        bad, papers = [str(error)], []
    assert all("\n" not in line for line in bad)
    for paper in papers:
        json.dumps(paper).encode()
        assert paper.title or paper.abstract


def test_the_library_of_the_examples() -> None:
    papers, bad = read(Path(__file__).parents[2] / "examples" / "library.bib")
    assert not bad and len({paper.id for paper in papers}) == len({paper.key for paper in papers}) == 59
    for paper in papers:
        assert paper.abstract and paper.year and paper.authors and paper.collections
        assert not set("{}\\") & set(paper.title + paper.abstract + "".join(paper.authors) + paper.venue)
