"""Small inputs as people have them, beside the checkout, and what is right for each; skipped without them."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from citerec import Recommender
from citerec.tests.conftest import Done, Run

CASES = Path(__file__).parents[2] / "shared" / "cases"
pytestmark = pytest.mark.skipif(not CASES.is_dir(), reason="shared/cases is not beside the checkout")


@pytest.fixture(scope="module")
def copied(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the inputs. Questions to one file share its temporary library."""
    folder = tmp_path_factory.mktemp("shared") / "cases"
    shutil.copytree(CASES, folder, copy_function=shutil.copyfile)
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o755)
    return folder


@pytest.fixture
def cases(copied: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The inputs, in whose folder the commands run."""
    monkeypatch.chdir(copied)
    return copied


def built(source: str, folder: Path, command: Run) -> list[str]:
    """Build a library: "key | title | authors | year | venue | doi" of each paper."""
    code, out, err = command("build", f"library={folder}", f"source={source}", "model=static")
    assert code == 0, out + err
    library = Recommender.open(folder).library
    papers = (library.paper(row) for row in range(len(library)))
    return [
        f"{item.key} | {item.title} | {'; '.join(item.authors)} | {item.year} | {item.venue} | {item.doi}"
        for item in papers
    ]


PAPERS = {
    "empty-key/refs.bib": [
        "birch2004 | Leaves in spring | Ann Birch | 2004 | Wood Press",
        "alder | Undated notes on bark | Bob Alder | 0 |  |",
        "willow | A page about roots | Cy Willow | 0 |  |",
        "leafR: Counting Leaves with R | Leaf Core Team | 2017",
    ],
    "bib-tilde/refs.bib": [
        "w1 | El Niño y la niña en España | João Muñoz; Anĩ São; A Ibáñez |",
        "w2 | Tĩlde over other letters ĩ ẽ ỹ | Vũ Nguyễn; A Nes̃ |",
        "w3 | Tie between words http://a.org/~user here | A. B. Lee; C van Dam |",
        "Heinz Müller-Lüdenscheidt; Ö. Özgür; Ž Šíp; İlker Çelik; Ś Dąbrowski |",
        "Karl Müller; Eva Groß; U Straße; L' Hôpital; T Bjørn; H. C. Ørsted |",
        "| Élie; É. Cartan; Élie Cartan |",
    ],
    "bib-tilde/variants.bib": ["| Ann Lee; Bo Šimek |", "| Ann Lee; Bo Özgür |", "| João Muñoz |"],
    "bib-corporate/refs.bib": [
        "| Department of Wells and Water Services |",
        "| Moss and Fern, Inc. |",
        "| Institute for Peat and Bog Studies; Rita Roe |",
        "| Board of Rivers and Lakes |",
        "| Council for Salt; Council for Sand and Grit |",
        "| Board of Ponds and Pools |",
        "| Agency of Hills and Dales |",
    ],
    "dup-doi/refs.bib": ["intro", "ch5", "ch7", "part1", "part2", "pref1", "pref2", "ed1", "ed2", "orig"],
    "dup-report/refs.bib": ["hdr18", "hdr19", "hdr20", "soft17", "soft19"],
    "dup-column/refs.bib": ["col83", "col84", "col85"],
    "old-years/refs.bib": ["| 1859 |", "| 1776 |", "| 1899 |", "| 1900 |"],
    "old-years/lib.ris": ["darwish1859 | On the spread of finches | Carl Darwish | 1859 |", "| 1687 |"],
    "years/refs.bib": [
        "y1 | On motion in old times | Isa Newt | 1687",
        "| 1781",
        "| 1723",
        "| 1450",
        "| 1814",
    ],
    "bib-logos/refs.bib": [
        "t1 | LaTeX: A system for preparing papers |",
        "t2 | The TeXbook for readers |",
        "t7 | Letters to a brother | Vin van Gogh |",
        "| Văn Nguyễn; Đũng Trần; Thị Nguyễn |",
    ],
    "bib-extnames/refs.bib": [
        "e1 | Names in long form | David van der Spoel; Ann Lee |",
        "e2 | Names in long form inside braces | David van der Spoel; Ann Lee |",
        "e3 | Values of names in braces | David van der Spoel; Ann Lee |",
        "e4 | Names with initials given | Soo Ann Kim Park; Jo Watt Jr. |",
    ],
    "bib-misc/refs.bib": [
        "| No key at all | V Lee | 2022 |  |",
        "m6 | String journal | F Lee | 2006 | Journal",
    ],
    "ris-odd/a.ris": [
        "| First title in old tags | Ann Lark; Bob Wren | 2010 | Bird Notes | 10.5555/abc.1",
        "| Title in the tag BT | Cy Finch | 1999 |",
        "| Edited whole volume | Di Robin | 2003 |",
        "| A. Gull; B. Tern; C. Auk |",
        "| A title that is continued on the next line | L Crane | 2014 |",
    ],
    "people/emptykey.bib": [
        "Brown1995 | Macroecology | James H. Brown | 0 |  |",
        "Raup1986 | Periodic extinction of families and genera | David M Raup; J John Sepkoski Jr. | 1986",
    ],
    "csl-odd/single.json": ["solo | One item without a list | Han Solo | 2001"],
    "csl-odd/items.json": ["i1 | Inside of items |  | 2001"],
    "csl-odd/references.json": ["r1 | Inside of references |  | 2001"],
    "csl-odd/refs.yaml": ["yam | A title in YAML | Lee Yam | 2010"],
    "csl-odd/lib.json": ["| The E. coli Group | 2012", "| Api Crossref | 2020 | Journal in a list"],
    "typ-hay/works.yml": ["lind2019 | Slow rivers and their banks | Eva Lind | 2019"],
    "enw-xml/lib.enw": [
        "garcia | Title in the EndNote file | World Health Organization; Gabriel García Márquez | 1859 |",
        "| Edited in EndNote | Cy Finch | 2001",
        "| A chapter | A Lee | 2002 | A whole book",
    ],
    "enw-xml/lib.xml": [
        "| Part one of title | World Health Organization; Gabriel García Márquez | 2011 | Names |",
        "| Edited | Cy Finch | 2003",
    ],
    "bbt/items.json": [
        "gull2001 | A handbook of gulls | Gabriel García Márquez; World Health Organization | 2001 |",
        "tern1859 | Nesting of terns on flat roofs | Gil Tern | 1859 | Bird Notes | 10.5555/tern",
    ],
}
"""Parts of lines of `built`, by source."""
COUNTS = {"dup-doi/refs.bib": 15, "dup-report/refs.bib": 5, "dup-column/refs.bib": 3, "ris-odd/a.ris": 11}
"""Papers of a library, where records must not be merged."""


@pytest.mark.parametrize("source", PAPERS)
def test_libraries(source: str, cases: Path, tmp_path: Path, command: Run) -> None:
    lines = built(source, tmp_path / "made", command)
    for part in PAPERS[source]:
        assert any(part in line for line in lines), "\n".join([part, *lines])
    assert len(lines) == COUNTS.get(source, len(lines))
    if source.startswith("bib-misc"):
        assert [line.split(" | ")[0] for line in lines if line.split(" | ")[4]] == ["m6"]


TERN = r"@article{tern2016 volume = {12} number = {3} pages = {101--119} journal = {Bird Notes}"
AUTHORS = "García Márquez, Gabriel"
ENTRIES = {
    "old-years/lib.ris": {"darwish1859": "@book{ year = {1859}"},
    "fill-types/lib.ris": {
        "tern2016": TERN,
        "gull2001": "@book{ publisher = {Nest Press} address = {Bern}",
        "auk1999": "@phdthesis{ school = {University of Nest}",
    },
    "fill-types/types.json": {
        "c1": "@incollection{ booktitle = {Whole book of auks}",
        "p1": "@inproceedings{ booktitle = {Proceedings of Puffins}",
        "r1": "@techreport{ institution = {Cliff Office} author = {{Cliff Office}}",
    },
    "fill-types/p.nbib": {"12345678": "@article{ volume = {12} number = {3} pages = {101--119}"},
    "fields-lost/lib.ris": {"tern2016": TERN},
    "fields-lost/lib.json": {
        "tern2016": TERN,
        "gull2001": "@book{ publisher = {Nest Press} address = {Bern}",
    },
    "names-export/lib.ris": {
        "who2011": "@techreport{ author = {{World Health Organization}}",
        "garcia2015": f"author = {{{AUTHORS} and Del Hoyo, Josep and Smith, Jr., John}}",
    },
    "names-export/lib.json": {
        "who2011": "@techreport{ author = {{World Health Organization}}",
        "garcia2015": f"{AUTHORS} and van der Berg, Anna and Smith, Jr., John",
    },
}
"""Parts of the entries in BibTeX, by source and key."""


@pytest.mark.parametrize("source", ENTRIES)
def test_entries(source: str, cases: Path, command: Run) -> None:
    code, out, err = command("ask", source, " ".join(ENTRIES[source]), "k=20", "format=bibtex")
    assert code == 0, err
    entries = {entry.partition("{")[2].partition(",")[0]: entry for entry in re.split(r"\n(?=@)", out)}
    for key, parts in ENTRIES[source].items():
        for part in re.split(r" (?=\w+ = )", parts):
            assert part in entries.get(key, out)  # 12345678 is an id


def test_names(cases: Path, command: Run) -> None:
    papers = json.loads(command("ask", "bib-names/refs.bib", "n1", "k=20", "format=csl")[1])
    names = {paper["id"]: paper.get("author", []) for paper in papers}
    assert names["n1"] == [{"literal": "World Health Organization"}]
    assert [names[key][0]["family"] for key in ("n3", "n5")] == ["Del Hoyo", "García Márquez"]
    assert names["n10"][1] == {"family": "Kim Park", "given": "Soo"}
    assert "World Health Organization" in command("ask", "bib-names/refs.bib", "n1", "k=1")[1]


UNKNOWN = {
    "tex-ids/paper.tex": "",
    "tex-import/main.tex": "ghost2001 phantom1999",
    "tex-multibib/paper.tex": "nokey",
    "tex-volcite/paper.tex": "lost1 lost2 lost3 lost4 lost5 lost6 lost7",
    "tex-refsection/paper.tex": "absent",
    "tex-cls/paper.tex": "none",
    "tex-bibitem/paper.tex": "ref4",
    "tex-filecontents/paper.tex": "outside",
    "tex-citetext/paper.tex": "",
    "tex-bibmacro/paper.tex": "",
    "tex-upcite/paper.tex": "gone1 gone2 gone3",
    "typ-cite/paper.typ": "ghost1 ghost2 ghost3 ghost4 ghost5 ghost6 ghost7 ghost8 ghost9",
    "typ-labels/main.typ": "ghost1",
    "typ-import/main.typ": "",
    "typ-multi/main.typ": "ghost1",
    "typ-hay/paper.typ": "ghost1",
    "typ-bytes/main.typ": "ghost1",
    "typ-lib/main.typ": "ghost1",
    "org-ref/paper.org": "ghost1 ghost2 ghost3 ghost4 ghost5 ghost6",
    "org-keys/paper.org": "ghost1 ghost2 ghost3 ghost4 ghost5 ghost6 ghost7 ghost8 ghost9 ghost10",
    "md-inline/paper.md": "ghost1",
    "md-yaml/paper.md": "ghost1",
    "md-json/paper.md": "ghost1",
    "rmd-at/paper.Rmd": "ghost1 ghost2",
    "md-quarto/paper.qmd": "ghost1",
    "qmd-crossref/paper.qmd": "ghost1",
    "md-keys/paper.md": "ghost0 https://x.org/a?b=c ghost1 ghost2 ghost3 doi:10.1000/abc ghost4 ghost5 "
    "ghost6 ghost7 ghost8 ghost9 ghost10 ghost11 ghost12 ghost13 ghost14 ghost15 ghost16 ghost17",
    "md-yaml-at/p1.md": "ghost0",
    "dup-doi/paper.tex": "",
    "dup-report/paper.tex": "",
} | {f"md-yaml-at/p{number}.md": "" for number in range(2, 8)}
"""The keys that `citerec check` does not find."""


@pytest.mark.parametrize("draft", UNKNOWN)
def test_checks(draft: str, cases: Path, command: Run) -> None:
    file = cases / draft
    code, out, err = command("check", str(file), "format=json")
    assert code == 0, err
    result = json.loads(out)["findings"]
    unknown = [item["key"] for item in result if item["kind"] == "unknown"]
    assert sorted(unknown) == sorted(UNKNOWN[draft].split())
    assert not [item for item in result if item["kind"] == "duplicate"]
    if draft.startswith("tex-ids"):
        assert [(item["kind"], item["key"]) for item in result] == [("uncited", "lind2019")]


PLACES = {"draft-import/main.tex": 2, "draft-multi/a.tex": 4, "draft-typ/main.typ": 3, "draft-org/a.org": 3}
"""Missing citations that `citerec draft` finds."""


@pytest.mark.parametrize("draft", PLACES)
def test_drafts(draft: str, cases: Path, command: Run) -> None:
    bib = cases / draft.split("/")[0] / "refs.bib"
    code, out, err = command("draft", f"library={bib}", f"tex={draft}", "format=json")
    assert code == 0, err
    assert len(json.loads(out)["places"]) == PLACES[draft]


def test_a_question_with_a_sign_of_equality(cases: Path, command: Run) -> None:
    code, out, _ = command("ask", "ask-equals/eq.bib", "k=1 neighbours suffice [CITE]")
    assert code == 0 and "nearest neighbours" in out


@pytest.mark.parametrize(
    ("folder", "said"),
    [
        ("beir", "0.7500"),
        ("beir-noheader", "0.7500"),
        (
            "beir-missingdoc",
            "qrels/test.tsv, record 'q1', field 'corpus-id': no document 'd99' in corpus.jsonl",
        ),
        (
            "beir-missingquery",
            "qrels/test.tsv, record 'q99', field 'query-id': no query 'q99' in queries.jsonl",
        ),
    ],
)
def test_beir(folder: str, said: str, script: Callable[..., Done], cases: Path, tmp_path: Path) -> None:
    options = ["benchmark=prefetch", "retriever=bm25", "data=custom", "split=test", "data.candidates=all"]
    done = script("evaluate.py", *options, f"data.dir={cases / folder}", f"output_dir={tmp_path}/out")
    assert said in done.out + done.err and done.code == (0 if said == "0.7500" else 2)


@pytest.mark.parametrize(("folder", "papers"), [("jats", 3), ("tei", 4), ("tei-journal", 0)])
def test_full_texts(
    folder: str, papers: int, script: Callable[..., Done], cases: Path, tmp_path: Path
) -> None:
    options = [f"output={tmp_path}/made", "candidates=title", "shortest=0", "leaks=keep"]
    done = script("data", "build", f"source={folder}", *options)
    said = f"made: {papers} papers, 3 contexts" if papers else "the cited paper was not found: 2"
    assert said in done.out + done.err and done.code == (0 if papers else 2)
