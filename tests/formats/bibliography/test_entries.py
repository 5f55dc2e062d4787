"""Entries of every type and field survive: .bib to library to .bib, and between BibTeX, CSL JSON and RIS."""

from __future__ import annotations

import json
import re
import tempfile
from pathlib import Path

import pytest
from bibtexparser.entrypoint import parse_string
from hypothesis import given
from hypothesis import strategies as st

from citerec.base.errors import InputError
from citerec.formats.bibliography.bibtex import entry_type, write_item
from citerec.formats.bibliography.csl import read_csl, write_csl
from citerec.formats.bibliography.entries import BibtexText
from citerec.formats.bibliography.item import (
    DATES,
    ROLES,
    Item,
    csl_date,
    number_variable,
    read_csl_date,
)
from citerec.formats.bibliography.reading.bibtex import entry_item, parse_bibtex
from citerec.formats.bibliography.references import bibtex, csl, paper_item, ris
from citerec.formats.bibliography.ris import read_record, write_record
from citerec.formats.bibliography.tables import VARIABLES, Names
from citerec.formats.drafts.bibliographies import bib_entries
from citerec.formats.json_lines import raise_bad
from citerec.formats.names import Name
from citerec.library.sources.readers import read_source

_BIBTEX = (
    "article book booklet conference inbook incollection inproceedings manual mastersthesis misc "
    "phdthesis proceedings techreport unpublished"
)
_BIBLATEX = (
    "article book mvbook inbook bookinbook suppbook booklet collection mvcollection incollection "
    "suppcollection dataset manual misc online patent periodical suppperiodical proceedings "
    "mvproceedings inproceedings reference mvreference inreference report set software thesis "
    "unpublished custom conference electronic mastersthesis phdthesis techreport www artwork audio "
    "bibnote commentary image jurisdiction legislation legal letter movie music performance review "
    "standard video"
)
_FIELDS = (
    "abstract addendum address afterword annotation author booksubtitle booktitle chapter date doi "
    "edition editor editora eid eprint eprinttype eventdate eventtitle file foreword howpublished isbn "
    "issn issue journal journaltitle keywords langid language location maintitle month note number "
    "organization origdate pages pagetotal part publisher pubstate school series shorttitle subtitle "
    "timestamp titleaddon translator type url urldate usera venue version volume volumes year"
)
BIBTEX_TYPES, BIBLATEX_TYPES, FIELDS = _BIBTEX.split(), _BIBLATEX.split(), _FIELDS.split()
PIECES = [*"abC d1-.,:&é~$_", "{x}", "{Ab C}", r"\'e", r"\%", r"{\o}", r"\emph{a}"]
LATEX = st.lists(st.sampled_from(PIECES), min_size=1, max_size=12).map("".join)
KEYS = st.from_regex(r"[A-Za-z][A-Za-z0-9:_.+/-]{0,12}", fullmatch=True)


def balanced(text: str) -> bool:
    return bool(text) and text == " ".join(text.split())


@given(
    kind=st.sampled_from(sorted({*BIBTEX_TYPES, *BIBLATEX_TYPES})),
    key=KEYS,
    fields=st.dictionaries(st.sampled_from(FIELDS), LATEX.filter(balanced), max_size=12),
    title=LATEX.filter(lambda text: any(map(str.isalnum, text))),
)
def test_an_entry_of_a_bib_file_is_written_as_it_was(
    kind: str, key: str, fields: dict[str, str], title: str
) -> None:
    fields = {"title": title} | fields
    lines = [f"  {name} = {{{value}}},\n" for name, value in fields.items()]
    [paper] = parse_bibtex(f"@{kind}{{{key},\n{''.join(lines)}}}", "test", raise_bad)
    text = bibtex([paper]).replace("@comment", "@nocomment")  # the peer takes @commentary for a comment
    [entry] = parse_string(text, parse_stack=[]).entries
    written = {field.key: str(field.value) for field in entry.fields}
    assert (entry.entry_type.removeprefix("no"), entry.key) == (kind, key)
    assert written == {name: f"{{{value}}}" for name, value in fields.items()}
    for made in (ris([paper]), csl([paper])):
        assert made.strip()


_CSL = (
    "article article-journal article-magazine article-newspaper bill book broadcast chapter classic "
    "collection dataset document entry entry-dictionary entry-encyclopedia event figure graphic hearing "
    "interview legal_case legislation manuscript map motion_picture musical_score pamphlet "
    "paper-conference patent performance periodical personal_communication post post-weblog regulation "
    "report review review-book software song speech standard thesis treaty webpage"
)
CSL_TYPES = _CSL.split()
WORDS = st.lists(st.from_regex(r"[A-ZÀ-Öa-zà-ö0-9]{1,8}", fullmatch=True), min_size=1, max_size=4).map(
    " ".join
)
TEXTS = (
    st.lists(st.sampled_from([*"abCD12 &%_{}\\^~é:,", " - ", " < ", " > "]), min_size=1, max_size=12)
    .map("".join)
    .map(lambda text: " ".join(text.split()))
)
PAGES = st.sampled_from(["101-119", "7", "S1-S9", "e1234", "iv-ix"])
OWN_SHAPES = {"page": PAGES, "DOI": st.just("10.1000/ab_c"), "URL": st.just("https://a.org/~b?c=d_e&f=%20")}
KINDS_OF_DATES = ["2014", "1723", "2014-03", "2014-03-04", "2010/2012", "1850~", "2009-21", "forthcoming"]
NAMES = st.lists(
    st.sampled_from([Name("García Márquez", "Gabriel"), Name(literal="World Health and More"),
                     Name("Berg", "Anna", "van der"), Name("Smith", "J.", suffix="Jr."), Name("Aristotle")]),
    min_size=1, max_size=3,
)  # fmt: skip


@st.composite
def items(draw: st.DrawFn, texts: st.SearchStrategy[str] = TEXTS) -> Item:
    csl = draw(st.sampled_from(CSL_TYPES))
    numbers = {"issue", "number", "collection-number"} - {number_variable(csl)}
    variables = sorted(VARIABLES - numbers - {"custom", "title", "abstract", "keyword", "genre", *DATES})
    chosen = draw(st.lists(st.sampled_from(variables), unique=True, max_size=8))
    fields = {name: draw(OWN_SHAPES.get(name, texts.filter(bool))) for name in chosen}
    fields["title"] = draw(WORDS)
    fields |= draw(st.fixed_dictionaries({}, optional={"issued": st.sampled_from(KINDS_OF_DATES)}))
    fields |= draw(st.fixed_dictionaries({}, optional={"accessed": st.sampled_from(KINDS_OF_DATES[:4])}))
    if csl == "thesis":
        fields["genre"] = draw(st.sampled_from(["PhD thesis", "Master's thesis", "Bachelor thesis", "PhD"]))
    if csl == "article":
        fields.pop("container-title", "")  # it would be an article in a journal
    roles = draw(st.lists(st.sampled_from(ROLES), unique=True, max_size=3))
    return Item(csl, fields, {role: draw(NAMES) for role in roles})


@given(items())
def test_an_item_survives_bibtex(item: Item) -> None:
    again = entry_item(write_item(item, "key"))
    assert again is not None
    assert again.type == item.type
    assert {name: text for name, text in again.fields.items() if name != "entrytype"} == item.fields
    assert again.names == item.names


@given(items())
def test_an_item_survives_csl_json(item: Item) -> None:
    record = json.loads(json.dumps(write_csl(item, "key")))
    texts = {name: text for name, text in record.items() if isinstance(text, str)}
    again = read_csl(texts, record)
    assert (again.type, again.fields, again.names) == (item.type, item.fields, item.names)


_IN_RIS = (
    "title title-short container-title container-title-short collection-title event-title note volume "
    "edition section number-of-volumes publisher publisher-place genre language call-number source "
    "annote ISBN ISSN DOI URL page abstract"
)
IN_RIS = _IN_RIS.split()
RIS_SHAPES = OWN_SHAPES | {"ISBN": st.just("978-3-16-148410-0"), "ISSN": st.just("1234-567X")}


_NOT_IN_RIS = "article collection entry event performance post review review-book treaty"
NOT_IN_RIS = _NOT_IN_RIS.split()


@st.composite
def ris_items(draw: st.DrawFn) -> Item:
    csl = draw(st.sampled_from([kind for kind in CSL_TYPES if kind not in NOT_IN_RIS]))
    number = number_variable(csl)
    chosen = draw(st.lists(st.sampled_from([*IN_RIS, number]), unique=True, max_size=8))
    fields = {name: draw(RIS_SHAPES.get(name, WORDS)) for name in chosen}
    if csl in ("book", "report", "thesis", "software", "dataset"):
        fields.pop("container-title", "")  # T2 is their series
    if csl == "thesis":
        fields["genre"] = draw(st.sampled_from(["PhD thesis", "Master's thesis", "Bachelor thesis"]))
    fields["title"] = draw(WORDS)
    fields |= draw(st.fixed_dictionaries({}, optional={"issued": st.sampled_from(KINDS_OF_DATES)}))
    authors = draw(NAMES)
    roles = draw(
        st.sampled_from([{"author": authors}, {"author": authors, "editor": authors}, {"editor": authors}])
    )
    return Item.of(csl, fields, roles)


@given(ris_items())
def test_an_item_survives_ris(item: Item) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.ris"
        path.write_text(write_record(item, "key"), encoding="utf-8")
        [paper] = read_source(path, raise_bad)
    again = paper_item(paper)
    assert paper.key == "key" and again.type == item.type
    assert {name: text for name, text in again.fields.items() if text} == item.fields
    assert {role: [name.full for name in names] for role, names in again.names.items()} == {
        role: [name.full for name in names] for role, names in item.names.items()
    }


@pytest.mark.parametrize("kind", sorted({*BIBTEX_TYPES, *BIBLATEX_TYPES} - {"set", "custom", "bibnote"}))
def test_every_type_of_bibtex_and_biblatex_has_one_in_csl_and_comes_back(kind: str) -> None:
    [paper] = parse_bibtex(
        f"@{kind}{{k, title={{A title}}, entrysubtype={{}}, year=2001}}", "test", raise_bad
    )
    assert kind in Names("types", "bibtex").csl
    item = paper_item(paper)
    record = json.loads(csl([paper]))[0]
    again = read_csl({name: text for name, text in record.items() if isinstance(text, str)}, record)
    assert entry_type(item) == entry_type(again)
    assert entry_type(again) == {"conference": "inproceedings", "report": "techreport"}.get(kind, kind) or (
        again.fields.get("entrytype") == kind
    )


@pytest.mark.parametrize(
    ("value", "date"),
    [
        ({"date-parts": [["2014", "3"]]}, "2014-03"),
        ({"date-parts": [[2014, 3, 4], [2015, 1, 2]]}, "2014-03-04/2015-01-02"),
        ({"date-parts": [[2009, "season-04"]]}, "2009"),
        ({"date-parts": [[2009]], "season": 1}, "2009-21"),
        ({"date-parts": [[None]]}, ""),
        ({"date-parts": [[1850]], "circa": 1}, "1850~"),
        ({"date-parts": [[-399]]}, "-0399"),
        ({"raw": "Spring 2009"}, "Spring 2009"),
        ({"year": "1812", "month": "3"}, "1812-03"),
        ([{"year": "1833"}, {"year": 1834}], "1833/1834"),
        ({"literal": "ca. 1850"}, "ca. 1850"),
        (2011, "2011"),
        ("2011-5", "2011-05"),
        ([], ""),
    ],
)
def test_dates_of_csl_json(value: object, date: str) -> None:
    assert read_csl_date(value) == date
    assert not date or read_csl_date(csl_date(date)) == date


ODD = r"""@string{ash = "Ash Press"} @manual{same1, title={On the line of a string}, publisher = ash}
@article{first1, title={First}, year=2001} @article{second1, title={Second}, ids={other1, other2}}
@article
{
  brace1,
  title={Brace and key on next lines}
}
@article{ nocomma1
  , title={Comma on the next line}}
@article{nocomma2
  title={No comma after the key}}
@comment{
@article{hidden1, title={In a comment, which BibTeX reads}}
}
% @article{line1, title={Behind a sign that is no comment to BibTeX}}
%@article{gone1,
%  title = {Every line is a comment},
%}
@article(round1, title={Round})
@article{10.1/0304(84)90-6<1::AID=3>2.0.CO;2-2, title={Publishers' keys}}
@article{p1,
  author={Heron, Ida}, %The author
  % lengthy explanation, with comma
  title={Comments}, year=2001, % last
  @location={Basement},
}
@article{p2, % behind the key
  %title={Old title},
  title={50% of kelp}, note="%%CITATION = ARXIV:1403.3399;%%",
}
@article{note1, title={Bog}, annote={as in
@lee2010 (in Norway), of which the entry is
@article{fake1, title={Fake}, year=2010}}, journal={Peat}, year={2005}}
@article{lost1, title={A lost {brace}, year=2002}
@misc{last1, title={Last without comma}}"""


def test_entries_as_people_write_them() -> None:
    told: list[InputError] = []
    papers = {paper.key: paper for paper in parse_bibtex(ODD, "a.bib", told.append)}
    keys = "same1 first1 second1 brace1 nocomma1 nocomma2 hidden1 line1 round1"
    assert [*papers] == f"{keys} 10.1/0304(84)90-6<1::AID=3>2.0.CO;2-2 p1 p2 note1 lost1 last1".split()
    assert papers["same1"].venue == "Ash Press" and papers["lost1"].year == 2002
    assert (papers["note1"].venue, papers["note1"].year) == ("Peat", 2005)
    assert len(told) == 2 and "(lost1)" in str(told[1])
    assert (papers["p1"].title, papers["p1"].authors) == ("Comments", ("Ida Heron",))
    assert papers["p1"].year == 2001
    assert papers["p2"].title == "50% of kelp"
    assert bib_entries(ODD).keys() == BibtexText(ODD).all_keys() == {*papers, "other1", "other2"}
    again = [paper.title for paper in parse_bibtex(bibtex(papers.values()), "again", raise_bad)]
    assert again == [paper.title for paper in papers.values()], "what is written is valid"


_PIECES = [
    *("@article{", "@misc(", "@string{", "@comment{", "a1", "10.1/x(2)", "id=3", ",", "title", "=", "{A"),
    *("}", ")", "{Bee}", '"', "#", "%", "\n", " ", "year = 2001,", "title = {Cee},", "@misc{k, title={Dee}}"),
]


@given(st.lists(st.sampled_from(_PIECES), max_size=30).map("".join))
def test_drafts_and_libraries_see_the_same_keys(text: str) -> None:
    text = f"{text}\n@misc{{last, title={{Last}}}}"
    bad: list[InputError] = []
    papers = [*parse_bibtex(text, "a.bib", bad.append)]
    made = {key for error in bad for key in re.findall("has no key; it is (.*) in the library", str(error))}
    library = {key for paper in papers for key in (paper.key, *paper.aliases)} - made
    draft = bib_entries(text)
    titled = {key for key, reference in draft.items() if reference.title}
    assert library == titled - made and "last" in library and titled <= BibtexText(text).all_keys()


@pytest.mark.parametrize("head", ["@manual{,\n  ", "@manual{ , ", "@manual{", "@manual{\n"])
def test_an_entry_without_a_key_gets_one_and_is_written_with_it(head: str) -> None:
    told: list[str] = []
    text = f"{head}title = {{A tree}}, year = 2000}}"
    [paper] = parse_bibtex(text, "a.bib", lambda error: told.append(str(error)))
    assert told == ["a.bib, line 1: has no key; it is tree2000 in the library"]
    [again] = parse_bibtex(bibtex([paper]), "test", raise_bad)
    assert (again.key, again.title, again.year) == ("tree2000", "A tree", 2000)


@pytest.mark.parametrize(
    ("kind", "values", "field"),
    [
        ("RPRT", ["NASA TM-1"], ("number", "NASA TM-1")),
        ("PAT", ["US 123"], ("number", "US 123")),
        ("RPRT", ["978-3-16-148410-0"], ("ISBN", "978-3-16-148410-0")),
        ("JOUR", ["0028-0836 (Print)", "1476-4687"], ("ISSN", "0028-0836 (Print), 1476-4687")),
    ],
)
def test_numbers_in_ris(kind: str, values: list[str], field: tuple[str, str]) -> None:
    item = read_record({"TY": [kind], "TI": ["A tree"], "SN": values})
    assert field in item.fields.items()
    assert f"SN  - {field[1]}\n" in write_record(item, "key")


@pytest.mark.parametrize(
    ("record", "entry", "written"),
    [
        ("TY BOOK;A2 Wren;A3 Roe;SP 350", "editor = {Roe} collection-editor = {Wren} pagetotal = {350}",
         "A2  - Wren\nA3  - Roe\nSP  - 350\n"),
        ("TY BOOK;AU Lee;A2 Roe;SP 7;EP 7", "editor = {Roe} pages = {7}", "A3  - Roe\nSP  - 7\nEP  - 7\n"),
        ("TY EDBOOK;A2 Wren;AU Roe", "editor = {Roe} collection-editor = {Wren}", "A3  - Roe"),
        ("TY THES;SP 350", "pagetotal = {350}", "SP  - 350\n"),
        ("TY CONF;T2 31st;C3 Advances;C1 Bern;CY Oslo;A2 Roe;A3 Wren",
         "editor = {Roe} collection-editor = {Wren} booktitle = {Advances} address = {Bern} "
         "eventtitle = {31st} venue = {Oslo}", "C3  - Advances\nC1  - Bern\nT2  - 31st\nCY  - Oslo\n"),
        ("TY CPAPER;C3 Advances;CY Oslo", "booktitle = {Advances} address = {Oslo}", "T2  - Advances\n"),
        ("TY CPAPER;T2 Advances;C3 A University;CP 31st", "booktitle = {Advances} eventtitle = {31st}", ""),
        ("TY CONF;T2 31st;CP 31st", "eventtitle = {31st}", "T2  - 31st\n"),
    ],
)  # fmt: skip
def test_roles_and_titles_in_ris(record: str, entry: str, written: str) -> None:
    item = read_record({line[:2]: [line[3:]] for line in f"TI A tree;{record}".split(";")})
    again = write_record(item, "key")
    assert entry in " ".join(write_item(item, "k").replace(",\n", " ").split()) and written in again
    assert read_record({line[:2]: [line[6:]] for line in again.splitlines() if line[6:]}) == item


@pytest.mark.parametrize(
    ("name", "text", "lines"),
    [
        (
            "a.yml",
            "k: {type: Article, title: Roots, author: 'Roe, Bo', parent: {type: Periodical, title: Bogs, "
            "volume: 31, issue: 2, date: 1899, serial-number: {doi: 10.1000/whole}}}",
            ["author = {Roe, Bo}", "year = {1899}", "journal = {Bogs}", "number = {2}", "volume = {31}"],
        ),
        (
            "a.yaml",
            "k: {type: Article, title: Roots, parent: {type: Proceedings, title: P, parent: "
            "{type: Conference, title: C, date: 1999}}}",
            ["year = {1999}", "booktitle = {P}", "eventtitle = {C}"],
        ),
        (
            "a.json",
            '{"k": {"type": "book", "title": "Roots", "author": [{"family": "Roe", "given": "Bo"}], '
            '"issued": {"date-parts": [[2009]], "season": 1}}}',
            ["author = {Roe, Bo}", "year = {2009}", "month = {Spring}"],
        ),
        (
            "a.ris",
            "TY  - JOUR\nID  - k\nTI  - Roots\nAU  - Roe, B.; Fay, A.;\nJO  - J Root Sci\nT2  - Journal of "
            "Root Science\nED  - Lark, S.\nA2  - Lark, S.\nPY  - 2003/Fall\nY2  - 2021/05/06/\nER  - \n",
            ["author = {Roe, B. and Fay, A.}", "editor = {Lark, S.}", "urldate = {2021-05-06}",
             "year = {2003}", "month = {Autumn}", "journal = {Journal of Root Science}",
             "shortjournal = {J Root Sci}"],
        ),
        (
            "a.ris",
            "TY  - JOUR\nID  - k\nTI  - Roots\nPY  - 2001\nDA  - Mar 5\nVL  - 12\nIS  - 3\nC7  - 104567\n"
            "Y2  - 2017/11/28/20:15:34\nER  - \n",
            ["urldate = {2017-11-28}", "year = {2001}", "month = mar", "day = {5}", "number = {3}",
             "volume = {12}", "pages = {104567}"],
        ),
        (
            "a.json",
            '[{"id": "k", "type": "article-journal", "title": "Roots", "issue": "3", "number": "104567", '
            '"issued": {"date-parts": [["2003"]], "season": "Spring"}}]',
            ["year = {2003}", "month = {Spring}", "number = {3}", "eid = {104567}"],
        ),
        ("a.enw", "%0 Edited Book\n%F k\n%T Roots\n%A Roe, B.\n%E Fay, A.\n%P 350\n",
         ["editor = {Roe, B.}", "collection-editor = {Fay, A.}", "pagetotal = {350}"]),
    ],
)  # fmt: skip
def test_what_files_say_is_written_to_bibtex(tmp_path: Path, name: str, text: str, lines: list[str]) -> None:
    (tmp_path / name).write_text(text, encoding="utf-8")
    [paper] = read_source(tmp_path / name, raise_bad)
    head, *written, _ = bibtex([paper]).strip().splitlines()
    assert head.endswith("{k,")
    assert [line.strip(" ,") for line in written if "title = {Roots}" not in line] == lines


def test_a_thesis_in_a_table_of_zotero_keeps_its_kind(tmp_path: Path) -> None:
    text = "Item Type,Publication Year,Author,Title,Type\nthesis,2001,Roe,Roots,Master's thesis\n"
    (tmp_path / "a.csv").write_text(text, encoding="utf-8")
    [paper] = read_source(tmp_path / "a.csv", raise_bad)
    assert bibtex([paper]).startswith("@mastersthesis{")


@pytest.mark.parametrize(
    ("entry", "lines"),
    [
        ("author = {A}, year = 1999, month = {December/January}", "PY  - 1999|DA  - 1999/12"),
        ("author = {A}, date = {1850~}", "PY  - 1850~"),
        ("author = {A}, date = {2001/..}", "PY  - 2001/.."),
        ("author = {A}, note = {arXiv:2101.00001}", "N1  - arXiv:2101.00001"),
        ("author = {A}, pages = {A-12--A-15}", "SP  - A-12|EP  - A-15"),
        ("editor = {A}, translator = {B}, commentator = {C}", "A2  - A|A4  - B"),
        ("author = {A}, doi = {https://doi.org/10.1002/(SICI)4571(199806)49:8%3C693::AID%3E3.0}",
         "DO  - 10.1002/(sici)4571(199806)49:8<693::aid>3.0"),
    ],
)  # fmt: skip
def test_what_an_entry_says_is_written_to_ris_and_stays(entry: str, lines: str) -> None:
    [paper] = parse_bibtex(f"@article{{k, title = {{From \\$5 to \\$6}}, {entry}}}", "test", raise_bad)
    for _ in range(2):
        written = write_record(paper_item(paper), "k")
        _, _, *said, _ = written.replace("AU  - A\n", "").splitlines()
        assert sorted(said) == sorted([*lines.split("|"), "TI  - From $5 to $6"])
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "a.ris").write_text(written, encoding="utf-8")
            [paper] = read_source(Path(folder) / "a.ris", raise_bad)


@pytest.mark.parametrize(
    ("issued", "fields"),
    [
        ("2017-02-03/2017-02-09", "year = {2017}, date = {2017-02-03/2017-02-09}"),
        ("1998/2001", "year = {1998--2001}, date = {1998/2001}"),
    ],
)
def test_a_range_of_dates_has_a_year_that_bibtex_can_print(issued: str, fields: str) -> None:
    written = write_item(Item("article-journal", {"title": "T", "issued": issued}, {}), "k")
    assert fields in " ".join(written.split())
    [paper] = parse_bibtex(written, "test", raise_bad)
    assert entry_item(paper.bibtex).fields["issued"] == issued  # type: ignore[union-attr]


def test_months_of_entries_that_are_written_anew_are_no_words() -> None:
    text = """@article{a, title = {T}, crossref = {b}}
@proceedings{b, title = {P}, year = 2001, month = feb}
@article{c, title = {T {of, month = feb}
@article{d, title = {U}, month = "3~" # mar}"""
    papers = [paper.bibtex for paper in parse_bibtex(text, "test", lambda _: None)]
    assert "month = feb" in papers[0] and 'month = "3~" # mar' in papers[-1]


@pytest.mark.parametrize(
    ("note", "arxiv"),
    [
        ("Erratum to arXiv:1501.01234 [hep-th]", ""),
        ("Sent off; arXiv:1501.01234 [cs.CL]\nversion: 5", "1501.01234"),
        ("Preprint available at \\url{https://arxiv.org/abs/hep-th/9901001v2} (1999)", "hep-th/9901001"),
        ("cite arxiv:1501.01234Comment: 9 pages, see arXiv:1502.01234", "1501.01234"),
    ],
)
def test_an_arxiv_id_in_a_note_is_that_of_the_work_if_nothing_else_is_said(note: str, arxiv: str) -> None:
    [paper] = parse_bibtex(f"@misc{{k, title={{T}}, note={{{note}}}}}", "test", raise_bad)
    assert paper.arxiv == Item("document", {"note": note}, {}).arxiv == arxiv


def test_a_file_name_that_no_disk_has(tmp_path: Path) -> None:
    path = tmp_path / "a.bib"
    path.write_text(f"@misc{{a, title={{A}}, file={{{'x' * 5000}.pdf}}}}")
    assert [paper.title for paper in read_source(path, raise_bad)] == ["A"]


@pytest.mark.parametrize(
    "piece", ["@comment{", '@comment{"', "@article{a, b={", "\n@article{a, b={", "@string{a=b # "]
)
def test_adverse_entries_are_read_in_linear_time(piece: str) -> None:
    """Each would take minutes in quadratic time."""
    assert len(BibtexText(piece * (200_000 // len(piece))).entries) <= 200_000
