"""Readers for files of papers: formats, fields and invalid records."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from citerec.base.errors import InputError
from citerec.formats.bibliography.paper import LibraryPaper
from citerec.formats.bibliography.reading.bibtex import parse_bibtex
from citerec.formats.bibliography.reading.records import Fields, parse_openalex
from citerec.library.sources.finding import absolute_names, find_sources
from citerec.library.sources.readers import read_source

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
@article{b, title={{No} {closing brace},
 year=2000
}
@article{c, title={Second title}, abstract={One } too many},
 note = jmlr, year=2001
}
@article{d,
  title = "A " # "B",
  author = {given=Ann, family=Lee and given={Bo, Jr.}, prefix=van der, family=Diaz and "family=Smith"}
  journal = jmlr # ", part " # 2
}
@article{e, title = "A " # {B} # jmlr, journal = jmlr # " 2", year = 2002}
@article{f, year
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
NBIB = """
PMID- 123
OWN - NLM
TI  - A study of things that
      continue.
LID - 10.1000/nbib [doi]
LID - S0 [pii]
AB  - First line
      and second.
FAU - Lee, Ann B
AU  - Lee AB
CN  - The Group
JT  - Journal of things
DP  - 2015 Mar
MH  - *Alpha
OT  - beta

PMID- 124
TI  -
"""
ENW = """%0 Journal Article
%A Lee, Ann B.
%T A study
%J Journal of Things
%D 2015
%F lee2015
%R 10.1000/enw
%U https://doi.org/10.1000/enw
%X First line
and second.
%K alpha
beta

%0 Conference Paper
%T Another
%A The Group
"""
ENDNOTE = """<?xml version="1.0" encoding="UTF-8" ?><xml><records><record>
<ref-type name="Journal Article">17</ref-type><contributors><authors>
<author><style face="normal">Lee, Ann B.</style></author></authors></contributors>
<titles><title><style face="normal">A study of </style><style face="italic">things &amp;c</style></title>
<secondary-title>Nature</secondary-title></titles><abstract>Ab\x0bstract.</abstract>
<keywords><keyword>alpha</keyword><keyword>beta</keyword></keywords><dates><year>2015</year></dates>
<electronic-resource-num>10.1000/xml</electronic-resource-num><label>lee2015</label>
<urls><related-urls><url>https://arxiv.org/abs/2101.00001</url></related-urls></urls>
</record><record><titles><title/></titles></record></records></xml>"""
ZOTERO = {
    "config": {"id": "36a3b0b5", "label": "BetterBibTeX JSON"},
    "collections": {"A": {"name": "Thesis"}, "B": {"name": "Methods", "parent": "A", "items": [7]}},
    "items": [
        {"itemType": "attachment", "title": "a.pdf"},
        {
            "itemType": "journalArticle", "itemID": 7, "title": "A study", "date": "2015-03-01",
            "citationKey": "lee2015",
            "creators": [
                {"firstName": "Ann", "lastName": "Lee", "creatorType": "author"},
                {"name": "The Group", "creatorType": "author"},
                {"lastName": "Editor", "creatorType": "editor"},
            ],
            "DOI": "10.1000/zotero", "publicationTitle": "Nature", "abstractNote": "Text.",
            "tags": [{"tag": "alpha"}], "url": "https://x.org",
        },
        {"itemType": "book", "title": False},
    ],
}  # fmt: skip
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


def test_abbreviations_that_double_each_other_do_not_fill_the_memory() -> None:
    doubled = "".join(f"@string{{s{i + 1} = s{i} # s{i}}}\n" for i in range(60))
    text = f'@string{{s0 = "word "}}\n{doubled}@misc{{a, title = s60}}\n@misc{{b, title = s2}}'
    bad: list[InputError] = []
    assert [paper.title for paper in parse_bibtex(text, "file.bib", bad.append)] == [("word " * 4).strip()]
    assert [str(error) for error in bad] == ["file.bib, line 62 (a): has neither title nor abstract"]


def test_a_brace_on_the_next_line_opens_an_entry() -> None:
    text = "@misc{one, title={One}, year=2000}\n@book\n{two,\n title={Two}, year=2001}\n@misc{three, title={3"
    bad: list[InputError] = []
    found = [(paper.key, paper.title, paper.year) for paper in parse_bibtex(text + "}}", "a.bib", bad.append)]
    assert found == [("one", "One", 2000), ("two", "Two", 2001), ("three", "3", 0)] and not bad


def test_bibtex(tmp_path: Path) -> None:
    papers, bad = read(write(tmp_path / "a.bib", BIB))
    partly = "; the entry was read as far as possible"
    assert papers[0].bibtex.startswith("@article{muller2019,\n") and "month = jan" in papers[0].bibtex
    assert "journal = {Journal of {ML}}," in papers[0].bibtex, "abbreviations are spelled out"
    assert [paper._replace(bibtex="") for paper in papers] == [
        LibraryPaper(
            "doi:10.1000/x_1", "muller2019", "The BERT model's number: an étude",
            "We show that this works – and don't know why. It is 5% better.",
            ("Karl Müller", "Laurens van der Maaten", "Deep Mind Team"), 2019, "Journal of ML", "10.1000/x_1",
            collections=("Reading", "Thesis"), tags=("deep learning", "parsing"),
            names=("Müller, Karl", "van der Maaten, Laurens", "{Deep Mind Team}"),
        ),
        LibraryPaper(
            "arxiv:2112.01206", "child", "A Title", year=2001, venue="Proceedings of X", arxiv="2112.01206"
        ),
        LibraryPaper("key:b", "b", "No closing brace", year=2000),
        LibraryPaper("key:c", "c", "Second title", "One too many", year=2001),
        LibraryPaper(
            "key:d", "d", "A B", authors=("Ann Lee", "Bo van der Diaz Jr.", "Smith"),
            venue="Journal of ML, part 2",
        ),
        LibraryPaper("key:e", "e", "A BJournal of ML", year=2002, venue="Journal of ML 2"),
        LibraryPaper("arxiv:1810.04805", "corr", "Without an id", venue="CoRR", arxiv="1810.04805"),
        LibraryPaper("key:proc", "proc", "Proceedings of X", year=2001),
    ]  # fmt: skip
    assert bad == [
        f", line 13 (b): braces, quotes or commas do not match in title{partly}",
        f", line 16 (c): braces, quotes or commas do not match in abstract{partly}",
        f", line 19 (d): braces, quotes or commas do not match{partly}",
        ", line 25 (f): cannot be parsed: check its braces, quotes and commas",
        ", line 26 (untitled): has neither title nor abstract",
    ]
    files = [write(tmp_path / f"{paper.key}.bib", paper.bibtex) for paper in papers]
    again = [paper._replace(bibtex="") for file in files for paper in read(file)[0]]
    whole = [paper._replace(bibtex="") for paper in papers]
    assert again[2:] == whole[2:], "an entry is valid in another file, whatever was wrong with it"


BALAZS = LibraryPaper(
    "arxiv:0704.0001", "", "Calculation of prompt diphoton production",
    "A fully p_T differential calculation is presented.", ("C. Balázs", "E. L. Berger"), 2007, "",
    "10.1103/physrevd.76.013009", "0704.0001", "https://arxiv.org/abs/0704.0001", tags=("hep-ph", "cs.LG"),
)  # fmt: skip
OURS = LibraryPaper("P1", title="Ours", abstract="Text.", authors=("A B",), year=2011, venue="ACL")


@pytest.mark.parametrize(
    ("name", "content", "papers", "bad"),
    [
        ("a.ris", RIS, [
            LibraryPaper(
                "doi:10.1000/ris", "lee2015", "A study of things", "First line and second.",
                ("Ann B. Lee", "Bo Diaz"), 2015, "Journal of Things", "10.1000/ris", tags=("alpha", "beta"),
            ),
            LibraryPaper("title:64432b0f02cf3c5a", title="No end tag", year=2017),
        ], [
            ", line 14: is outside of a record (TY  - JOUR ... ER  -)",
            ", line 16: has neither title nor abstract",
        ]),
        ("a.nbib", NBIB, [
            LibraryPaper(
                "doi:10.1000/nbib", "", "A study of things that continue", "First line and second.",
                ("Ann B Lee", "The Group"), 2015, "Journal of things", "10.1000/nbib",
                url="https://pubmed.ncbi.nlm.nih.gov/123/", tags=("beta", "Alpha"),
                names=("Lee, Ann B", "{The Group}"),
            ),
        ], [", line 18: has neither title nor abstract"]),
        ("a.enw", ENW, [
            LibraryPaper(
                "doi:10.1000/enw", "lee2015", "A study", "First line and second.", ("Ann B. Lee",), 2015,
                "Journal of Things", "10.1000/enw", url="https://doi.org/10.1000/enw", tags=("alpha", "beta"),
            ),
            LibraryPaper(
                "title:79404ff4dacf0c7f", title="Another", authors=("The Group",), names=("{The Group}",)
            ),
        ], []),
        ("a.xml", ENDNOTE, [
            LibraryPaper(
                "doi:10.1000/xml", "lee2015", "A study of things &c", "Ab stract.", ("Ann B. Lee",), 2015,
                "Nature", "10.1000/xml", "2101.00001", "https://arxiv.org/abs/2101.00001",
                tags=("alpha", "beta"),
            ),
        ], [", record 2: has neither title nor abstract"]),
        ("zotero.json", ZOTERO, [
            LibraryPaper(
                "doi:10.1000/zotero", "lee2015", "A study", "Text.", ("Ann Lee", "The Group"), 2015, "Nature",
                "10.1000/zotero", url="https://x.org", tags=("alpha",),
                collections=("Thesis", "Thesis/Methods"), names=("Lee, Ann", "{The Group}"),
            ),
        ], [", item 2, field 'title': must be a string, not a boolean"]),
        ("a.json", CSL, [
            LibraryPaper(
                "doi:10.1000/csl", "smith2020", "Deep nets & trees", "We do.", ("Jo Smith", "The Group"),
                2020, "Nature", "10.1000/csl", tags=("a", "b"), names=("Smith, Jo", "{The Group}"),
            ),
            LibraryPaper("arxiv:2101.00001", "x2", "Preprint", venue="arXiv", arxiv="2101.00001"),
            LibraryPaper("key:x3", "x3", "5"),
        ], [", record 3: must be an object, not a string"]),
        ("a.json", {"schema": "x", "version": 2, "items": CSL[1:2]}, [
            LibraryPaper("arxiv:2101.00001", "x2", "Preprint", venue="arXiv", arxiv="2101.00001")
        ], []),
        ("list.json", {"items": [OWN["P1"] | {"id": "P1"}, ARXIV[0]]}, [OURS, BALAZS], []),
        ("list.json", [OWN["P1"] | {"id": "P1"}, ARXIV[0], S2[1], OPENALEX | {"doi": "", "title": "Deep"}], [
            OURS, BALAZS, LibraryPaper("s2:7", abstract="The dominant models."),
            LibraryPaper(
                "openalex:W1", "", "Deep", "Inverted works here.", ("Ann Lee",), 2018, "eLife",
                url="https://doi.org/10.1000/oa", tags=("openness",),
            ),
        ], []),
        ("papers.json", OWN, [OURS], []),
        ("papers.json.gz", OWN, [OURS], []),
        ("lines.jsonl", [{"id": id, **paper} for id, paper in OWN.items()], [OURS], []),
        ("lines.jsonl.gz", [{"id": id, **paper} for id, paper in OWN.items()], [OURS], []),
        ("snapshot.jsonl", ARXIV, [BALAZS], [", line 2, field 'id': 'no' is not an arXiv id"]),
        ("arxiv-metadata-oai-snapshot.json", "\n".join(map(json.dumps, ARXIV)), [BALAZS], [
            ", line 2, field 'id': 'no' is not an arXiv id"
        ]),
        ("part_000.gz", json.dumps(OPENALEX), [
            LibraryPaper(
                "doi:10.1000/oa", "", "Open work", "Inverted works here.", ("Ann Lee",), 2018, "eLife",
                "10.1000/oa", url="https://doi.org/10.1000/oa", tags=("openness",),
            )
        ], []),
        ("s2.jsonl", S2, [
            LibraryPaper(
                "s2:7", "", "Attention", "", ("Ann Lee",), 2017, doi="10.1000/s2", arxiv="1706.03762"
            ),
            LibraryPaper("s2:7", abstract="The dominant models."),
        ], [", line 3: is a citation, not a paper; give the files of papers"]),
    ],
)  # fmt: skip
def test_other_formats(tmp_path: Path, name: str, content: Any, papers: Any, bad: list[str]) -> None:
    found, reported = read(write(tmp_path / name, content))
    entries = [paper.bibtex.partition(",")[0] for paper in found]
    if name in ("a.ris", "a.enw", "a.xml", "zotero.json"):
        assert entries[0] == "@article{lee2015"
    assert all(entries) == (name.startswith("a.") or name == "zotero.json"), "our own records have no entry"
    assert [paper._replace(bibtex="") for paper in found] == papers and reported == bad


@pytest.mark.parametrize(
    ("name", "content", "line"),
    [
        ("a.bib", "", "is empty"),
        ("a.bib", "% nothing yet\n@comment{x}", r"has no entries \(@article{key, ...}\)"),
        ("a.ris", "AU  - Lee", "has no records"),
        (
            "a.txt",
            "plain words",
            "has an unknown format; give .bib, .ris, .nbib, .enw, .ciw, .csv, EndNote's .xml, .json, ",
        ),
        ("a.nbib", "TI  - Lee", "has no records"),
        ("a.enw", "%% Lee", "has no records"),
        ("a.xml", "<PubmedArticleSet><PubmedArticle/>", "is PubMed's XML, which is not read; export the"),
        (
            "a.rdf",
            '<rdf:RDF xmlns:z="http://www.zotero.org/namespaces/export#">',
            "is Zotero RDF, which is not",
        ),
        ("a.txt", "<1>\nUnique Identifier\n  12\n", "is an export of Ovid, which is not read; export RIS"),
        ("a.txt", "RT Journal Article\nSR Electronic\n", "is RefWorks' tagged format, which is not read"),
        ("a.xml", '<mods xmlns="http://www.loc.gov/mods/v3">', "is MODS, which is not read; export RIS"),
        ("a.xml", "<xml><records/></xml>", "has no records"),
        ("a.xml", "<xml><records>", "malformed XML: "),
        ("a.xml", '<!DOCTYPE xml [<!ENTITY a "b">]><xml><records/></xml>', "declares a document type"),
        ("a.json", '{"config": {}, "items": [', "malformed JSON"),
        ("a.json", "[{", "malformed JSON"),
        ("a.gz", "\x1f\x8b123", "damaged gzip file"),
    ],
)
def test_unusable_files(tmp_path: Path, name: str, content: str, line: str) -> None:
    (tmp_path / name).write_bytes(content.encode("latin-1"))
    with pytest.raises(InputError, match=line):
        read(tmp_path / name)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "cp1252"])
@pytest.mark.parametrize("name", ["a.bib", "a.ris"])
def test_encodings(tmp_path: Path, name: str, encoding: str) -> None:
    title = "Caf\xe9 prices \u2013 a \u201csurvey\u201d"
    written = {"a.bib": f"@misc{{a, title = {{{title}}}}}", "a.ris": f"TY  - JOUR\nTI  - {title}\nER  - \n"}
    (tmp_path / name).write_bytes(written[name].encode(encoding))
    (paper,), bad = read(tmp_path / name)
    assert (paper.title, bad) == (title, [])


@pytest.mark.parametrize(
    ("record", "line"),
    [
        ({"title": ["a"]}, "field 'title': must be a string, not a list"),
        ({"title": "a", "authors": [3]}, "field 'authors': must be a list of strings, not of a number"),
        ({"title": "a", "year": "soon"}, "field 'year': must be a whole number, not 'soon'"),
        ({"title": " ", "abstract": None}, "has neither title nor abstract"),
        ({"title": "a", "id": "two words"}, "'two words' is not a valid id"),
    ],
)
def test_unusable_records_are_reported(tmp_path: Path, record: dict[str, Any], line: str) -> None:
    papers, (bad,) = read(write(tmp_path / "a.jsonl", [record, {"id": "good", "title": "b"}]))
    assert [paper.id for paper in papers] == ["good"] and bad.startswith(", line 1") and line in bad


def test_sources_are_files_and_folders(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    for name in ("data/papers.json", "data/contexts.json", "b.bib", "c.txt"):
        write(tmp_path / name, "{}")
    (tmp_path / "works" / "x").mkdir(parents=True)
    write(tmp_path / "works" / "x" / "part.jsonl", "{}")
    found = find_sources([str(tmp_path / name) for name in ("data", "b.bib", "works", "b.bib")])
    assert [Path(path).name for path in found] == ["papers.json", "b.bib", "part.jsonl"]
    (tmp_path / "d.bib").touch()
    found = find_sources([str(tmp_path / "*.bib"), str(tmp_path / "**/*.jsonl")])
    assert [Path(path).name for path in found] == ["b.bib", "d.bib", "part.jsonl"]
    (tmp_path / "link.bib").symlink_to("b.bib")  # which may lead elsewhere later
    assert absolute_names([str(tmp_path / "link.bib")]) == [str(tmp_path / "link.bib")]
    for name in ("nowhere", "works/x/y", "*.ris"):
        with pytest.raises(InputError, match=re.escape(f"source={tmp_path / name}: no such file")):
            find_sources([str(tmp_path / name)])


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    data=st.data(),
    name=st.sampled_from(["a.bib", "a.ris", "a.nbib", "a.enw", "a.xml", "a.json", "z.json", "a.jsonl", "a"]),
)
def test_damaged_files_give_papers_or_one_line_errors(tmp_path: Path, data: st.DataObject, name: str) -> None:
    whole = {
        "a.bib": BIB,
        "a.ris": RIS,
        "a.nbib": NBIB,
        "a.enw": ENW,
        "a.xml": ENDNOTE,
        "a.json": json.dumps(CSL),
        "z.json": json.dumps(ZOTERO),
        "a": json.dumps(OWN),
    }
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


def test_the_example_library() -> None:
    papers, bad = read(Path(__file__).parents[3] / "examples" / "library.bib")
    assert not bad and len({paper.id for paper in papers}) == len({paper.key for paper in papers}) == 59
    for paper in papers:
        assert paper.abstract and paper.year and paper.authors and paper.collections
        assert not set("{}\\") & set(paper.title + paper.abstract + "".join(paper.authors) + paper.venue)


POSITIONS = (
    st.lists(st.integers(-1, 9) | st.sampled_from([True, "1", 2.0, None, [3]]), max_size=4) | st.integers()
)


@given(st.dictionaries(st.text("ab", min_size=1), POSITIONS))
def test_an_inverted_index_is_read_in_the_order_of_its_positions(index: dict[str, Any]) -> None:
    pairs = [(at, word) for word, found in index.items() if isinstance(found, list) for at in found]
    text = " ".join(word for _, word in sorted(pair for pair in pairs if isinstance(pair[0], int)))
    work = {"id": "https://openalex.org/W1", "display_name": "Title", "abstract_inverted_index": index}
    paper = parse_openalex(Fields(work, "here"))
    assert paper.abstract == text


@pytest.mark.parametrize("id", [None, "", "https://openalex.org/"])
def test_works_of_openalex_without_an_id_are_named_by_their_titles(id: str | None) -> None:
    works = [Fields({"id": id, "display_name": title}, "here") for title in ("One", "Two")]
    assert len({parse_openalex(work).id for work in works} - {"openalex:"}) == 2


def test_what_has_no_title_of_its_own_has_that_of_its_crossref(tmp_path: Path) -> None:
    (tmp_path / "a.bib").write_text(
        "@softwareversion{v2, crossref={tool}, version={2}, date={2020}}\n"
        "@codefragment{core, crossref={tool}, subtitle={Core routine}}\n"
        "@inbook{part, crossref={book}, title={A part}}\n"
        "@incollection{chapter, crossref={book}, title={A chapter}}\n"
        "@software{tool, title={A tool}, author={Lee, Ann}, date={2019}}\n"
        "@book{book, title={A book}, author={Oak, Bo}, year={2001}}\n"
    )
    papers = {paper.key: paper for paper in read_source(tmp_path / "a.bib", lambda line: None)}
    found = {key: (one.title, one.authors, one.year, one.venue) for key, one in papers.items()}
    assert found["v2"] == ("A tool", ("Ann Lee",), 2020, "")
    assert found["core"] == ("A tool: Core routine", ("Ann Lee",), 2019, "")
    assert found["part"] == ("A part", ("Bo Oak",), 2001, "A book")
    assert found["chapter"] == ("A chapter", (), 2001, "A book")


RIS_HEAD, RIS_END = "TY  - JOUR\nTI  - Kelp\n", "ER  - \n"
NBIB_ERIC = "OWN - ERIC\nTI  - Kelp\nAU  - Heron, Ida\nDP  - 2014\nJT  - Coasts\n"
REFER = "%T Kelp\n%A Ida Heron\n%D 2014\n%J Coasts\n\n%T Oak\n%A Ana Reis\n%B Trees\n"
WOS_BARE = (
    "FN ISI\nVR 1.0\nPT J\nAU Heron, Ida (heron@example.edu)\nReis, Ana\nTI Kelp of two\ncoasts\nPY 2014\n"
    "ER\n\nEF\n"
)
SOURCES = (
    '<b:Sources xmlns:b="http://schemas.openxmlformats.org/officeDocument/2006/bibliography"><b:Source>'
    "<b:Tag>Kel01</b:Tag><b:SourceType>Book</b:SourceType><b:Author><b:Author><b:NameList><b:Person>"
    "<b:Last>Heron</b:Last><b:First>Ida</b:First></b:Person></b:NameList></b:Author></b:Author>"
    "<b:Title>Kelp</b:Title></b:Source></b:Sources>"
)
RETRACTED = "coasts (Retracted article. See vol. 3, 2012)"
CHAPTER = (
    "c:\n  type: Chapter\n  author: ['{Moss Team}']\n  parent: {type: Book, title: 'The {Kelp}', date: 800}\n"
)


@pytest.mark.parametrize(
    ("name", "content", "fields"),
    [
        ("a.ris", f"{RIS_HEAD}N1  - doi: 10.1000/a(1)\n{RIS_END}", {"doi": "10.1000/a(1)"}),
        ("a.ris", f"{RIS_HEAD}L3  - 10.1000/a\nN1  - see 10.1000/b\n{RIS_END}", {"doi": "10.1000/a"}),
        ("a.ris", "TY  - JOUR\nT2  - Moss in winter\nPY  - 2015\nN1  - Cited By :1\nER  - \n",
         {"title": "Moss in winter", "venue": "", "year": 2015}),
        ("a.csv", "Title,Authors,Abstract,DOI,Extra\nKelp,[No author name available],N/A,,DOI: 10.1000/a\n",
         {"authors": (), "abstract": "", "doi": "10.1000/a"}),
        ("a.json", [{"type": "book", "title": "Kelp", "author": [{"literal": "None"}],
                     "note": "DOI: 10.1000/a"}],
         {"authors": (), "doi": "10.1000/a"}),
        ("a.json", [{"type": "book", "title": "a &amp;lt; <mi>b</mi>",
                     "published": {"date-parts": [[2006]]}}],
         {"title": "a < b", "year": 2006}),
        ("a.bib", "@book{k, title={Kelp}, author={王, 小明}, year={0050}, abstract={None}}",
         {"authors": ("王小明",), "year": 50, "abstract": ""}),
        ("a.ciw", WOS_BARE, {"title": "Kelp of two coasts", "authors": ("Ida Heron", "Ana Reis")}),
        ("a.ciw", WOS_BARE.replace("(heron@example.edu)\n", "; "), {"authors": ("Ida Heron", "Ana Reis")}),
        ("a.ciw", WOS_BARE.replace("coasts", RETRACTED), {"retracted": "its title"}),
        ("a.nbib", NBIB_ERIC, {"title": "Kelp", "authors": ("Ida Heron",), "year": 2014, "venue": "Coasts"}),
        ("a.enw", REFER, {"title": "Kelp", "authors": ("Ida Heron",), "year": 2014, "venue": "Coasts"}),
        ("a.xml", SOURCES, {"key": "Kel01", "title": "Kelp", "authors": ("Ida Heron",)}),
        ("a.yml", CHAPTER, {"title": "The Kelp", "authors": ("Moss Team",), "year": 800}),
    ],
)  # fmt: skip
def test_what_programs_write(tmp_path: Path, name: str, content: Any, fields: dict[str, Any]) -> None:
    (paper, *_), bad = read(write(tmp_path / name, content))
    assert {field: getattr(paper, field) for field in fields} == fields and not bad


@pytest.mark.parametrize(
    ("lines", "fields"),
    [
        # an item of a list over lines that begins as the end of a record does
        ("KW  - ear plug\nER-20 plug\n*noise\nPY  - 2020\nSN  - 1234-5678", {"year": 2020}),
        ("UR  - https://a.org/?AN=1 OP  - Some Press\nPY  - 2017///", {"url": "https://a.org/?AN=1"}),
        ("WE  - An Index (SSCI)AN  - W:1\nPY  - 2017\nIS  - 3 OP  - Cell. 3:1", {"year": 2017}),
        ("C6  - FEB 2021\nAB  - Of C6  - no.", {"year": 2021, "abstract": "Of C6 - no."}),
        ("C6  - NIHMS123\nPY  - 2019", {"year": 2019}),
        ("PY  - 2014\nDA  - 4-9 May 2014", {"bibtex": "{2014},\n  month = may,\n  day = {4}"}),
        ("KW  - Neoplasms, Experimental", {"tags": ("Neoplasms, Experimental",)}),
        ("KW  - bees, wasps, ants", {"tags": ("bees", "wasps", "ants")}),
        ("SP  - 1101\nEP  - 10", {"bibtex": "pages = {1101--10}"}),
        ("SP  - 101-119\nEP  - 119", {"bibtex": "pages = {101--119}"}),
        ("PY  - 2014\nDA  - mid-May", {"bibtex": "  year = {2014},"}),
        ("AU  - Lee, A\nT2  - NA\nAB  - NA\nPY  - 2019", {"venue": "", "abstract": ""}),
        ("AU  - Rahman and Lee, AG and Roe, B", {"authors": ("Rahman", "AG Lee", "B Roe")}),
        ("A1  - Heron, Ida\nAU  - Reis, Ana", {"authors": ("Ida Heron", "Ana Reis")}),
        ("AU  - Reis, Ana\nA1  - Heron, Ida\nA1  - Reis, Ana", {"authors": ("Ana Reis", "Ida Heron")}),
        ("A1  - Wang, Y.\nA1  - Reis, Ana\nA1  - Wang, Y.", {"authors": ("Y. Wang", "Ana Reis", "Y. Wang")}),
        ("AU  - Talib, Karim Md.\nAU  - Roe, Bo, MD", {"authors": ("Karim Md. Talib", "Bo Roe MD")}),
        ("AU  - [Anonymous]\nAB  - [No abstract available]", {"authors": (), "abstract": ""}),
        ("Y1  - 2013/05/28\nPY  - 2013\nDA  - 2014/04/01", {"year": 2014}),
        ("Y1  - 1900/01/01\nDA  - 1950", {"year": 1950}),
        ("PY  - 2014\nY1  - 2013/05/28", {"year": 2014}),
        (
            "AB  - D<inf>3</inf> &lt;italic&gt;t&lt;/italic&gt; &lt; 2, ``ear{''}, IFN{mu}, $\\pm $5",
            {"abstract": "D3 t < 2, ``ear'', IFNμ, $\\pm $5"},
        ),
        ("AB  - <p>One.</p><p>Two<br/>lines <U+0394>t</p>", {"abstract": "One. Two lines Δt"}),
        ("AB  - If a<b or $1<p \\leq 2$, $q>2$ (c>d).", {"abstract": "If a<b or 1<p ≤ 2, $q>2$ (c>d)."}),
        ("AB  - <p class = 'x'>One</p ><BR clear=all><Sub\n id=\"a\">2</Sub>", {"abstract": "One 2"}),
        (
            'AB  - Often <inline-formula><tex-math notation="LaTeX">$\\geq$</tex-math></inline-formula> $5.',
            {"abstract": "Often ≥ $5."},
        ),
    ],
)
def test_what_programs_write_in_ris(tmp_path: Path, lines: str, fields: dict[str, Any]) -> None:
    text = f"TY  - JOUR\nTI  - Title\n{lines}\nDO  - 10.1000/x\nER  - \n"
    (paper,), bad = read(write(tmp_path / "a.ris", text))
    assert fields.pop("bibtex", "") in paper.bibtex
    assert {name: getattr(paper, name) for name in fields} == fields
    assert (paper.doi, bad) == ("10.1000/x", [])
    assert "OP" not in paper.bibtex


WOS = """FN A Web of Science
VR 1.0
PT J
AU Lee, AG
   Roe, B
AF Lee, Ann G.
   Reyes Q, Carlos A.
CA The Group
TI Things of
   two lines
SO JOURNAL OF THINGS
DT Article; Early Access
DE ants; bees and
   wasps
AB Text.
SN 1234-5678
EI 8765-4321
JI J. Th.
PD MAR 4
PY 2021
VL 3
IS 2
BP 10
EP 12
DI 10.1000/W1
PM 123
UT W:1
ER

PT C
AU Lee, AG
TI A talk
SO PROCEEDINGS OF THINGS
DT Proceedings Paper
EA JUN 2022
ER

PT B
AU Fern, C
TI A book
SO A SERIES
BN 978-0-306-40615-7
D2 10.1000/b
PY 2019
ER

EF
"""
TABS = (
    "PT\tAU\tAF\tTI\tSO\tPY\tDI\n"
    'J\tLee, A; Roe, B\tLee, Ann; Roe, Bo\tThe "first" title\tJ. Things\t2020\t10.1000/t\n'
)


@pytest.mark.parametrize(
    ("name", "encoding"), [("a.txt", "utf-8-sig"), ("a.ciw", "utf-8"), ("a.txt", "utf-16")]
)
def test_web_of_science(tmp_path: Path, name: str, encoding: str) -> None:
    (tmp_path / name).write_bytes(WOS.encode(encoding))
    papers, bad = read(tmp_path / name)
    article, talk, book = papers
    assert bad == []
    assert article[2:8] == (
        *("Things of two lines", "Text.", ("Ann G. Lee", "Carlos A. Reyes Q", "The Group"), 2021),
        *("JOURNAL OF THINGS", "10.1000/w1"),
    )
    assert article.tags == ("ants", "bees and wasps")
    for line in ("pages = {10--12}", "month = mar", "issn = {1234-5678, 8765-4321}", "number = {2}"):
        assert line in article.bibtex
    assert (talk.authors, talk.year, talk.bibtex[:14]) == (("AG Lee",), 2022, "@inproceedings")
    assert (book.title, book.venue, book.doi) == ("A book", "A SERIES", "")
    (tmp_path / name).write_bytes(TABS.encode(encoding))
    (paper,), bad = read(tmp_path / name)
    if name == "a.txt":
        assert paper[2:8] == ('The "first" title', "", ("Ann Lee", "Bo Roe"), 2020, "J. Things", "10.1000/t")


@pytest.mark.parametrize("name", ["a.ciw", "a.csv"])
def test_cells_of_any_length_and_with_any_line_separator(tmp_path: Path, name: str) -> None:
    text = "PT\tTI\tAB\tCR\tPY\nJ\tA title\tOne\u2028two\t" + "Lee, A; " * 20_000 + "\t2020\n"
    if name == "a.csv":
        text = text.replace("TI", "Title").replace("AB", "Abstract").replace("PY", "Year")
    (paper,), bad = read(write(tmp_path / name, text))
    assert (paper.title, paper.abstract, paper.year, bad) == ("A title", "One two", 2020, [])


@pytest.mark.parametrize(
    ("table", "expected", "line"),
    [
        (  # Zotero
            '"Key","Item Type","Publication Year","Author","Title","Publication Title","DOI","Date","Extra",'
            '"Abstract Note","Manual Tags"\n'
            '"AB12","conferencePaper","2008","Lee, Ann; Roe, Bo","A, b","Proc",'
            '"10.1000/z","2008-03","Citation Key: lee2008","Two\nlines.","x; y"\n',
            ("lee2008", "A, b", "Two lines.", ("Ann Lee", "Bo Roe"), 2008, "Proc", "10.1000/z"),
            "@inproceedings",
        ),
        (  # Scopus
            "Authors,Author full names,Title,Year,Source title,Volume,Page start,Page end,DOI,Document Type\n"
            '"Lee A., Roe B.","Lee, Ann (57094712500); Roe, Bo (650617859)",A D<inf>3</inf>,2022,J,82,1,9,'
            "10.1000/s,Article\n",
            ("", "A D3", "", ("Ann Lee", "Bo Roe"), 2022, "J", "10.1000/s"),
            "pages = {1--9}",
        ),
        (  # PubMed
            "PMID,Title,Authors,Journal/Book,Publication Year,DOI\n"
            '1,A title.,"Lee A, Roe BC.",J Th,2021,10.1000/p\n',
            ("", "A title", "", ("A Lee", "BC Roe"), 2021, "J Th", "10.1000/p"),
            "@article",
        ),
        ("title;authors;year\nOwn;Lee, Ann;2020\n", ("", "Own", "", ("Ann Lee",), 2020, "", ""), "@misc"),
    ],
)
def test_tables(tmp_path: Path, table: str, expected: tuple[Any, ...], line: str) -> None:
    (paper,), bad = read(write(tmp_path / "a.csv", table))
    assert (paper[1:8], bad) == (expected, [])
    assert line in paper.bibtex


def test_a_table_without_titles_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="its first line must name columns: title, and authors"):
        read(write(tmp_path / "a.csv", "Titel;Jahr\nx;1\n"))
    found, bad = read(write(tmp_path / "a.csv", "Title,Year\n,2020\n\nTwo,2021\n"))
    assert ([paper.title for paper in found], bad) == (["Two"], [", line 2: has neither title nor abstract"])


def test_lines_of_another_encoding_are_read_beside_utf_8(tmp_path: Path) -> None:
    text = "TY  - JOUR\nTI  - Café\nER  - \n".encode() + "TY  - JOUR\nTI  - Café\nER  - \n".encode("cp1252")
    (tmp_path / "a.ris").write_bytes(text)
    assert [paper.title for paper in read(tmp_path / "a.ris")[0]] == ["Café", "Café"]


def test_entries_for_styles_are_no_papers() -> None:
    text = "@Control{biblatex-control, options = {3.0}}\n@IEEEtranBSTCTL{c, a = {b}}\n@misc{a, title = {A}}"
    bad = list[InputError]()
    assert [paper.key for paper in parse_bibtex(text, "a.bib", bad.append)] == ["a"]
    assert bad == []
