# ruff: noqa: E501
"""citerec references: each rule with an entry that breaks it and its sound twin; the index; the command."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from datetime import date
from functools import partial
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from citerec.base.errors import InputError
from citerec.formats.bibliography.paper import LibraryPaper, retraction
from citerec.formats.bibliography.reading.bibtex import parse_bibtex
from citerec.library.commands.references import references
from citerec.library.enrich.client import Client
from citerec.library.enrich.services import SERVICES
from citerec.library.references.answers import Answer, Record, judge
from citerec.library.references.table import Table, build
from citerec.library.settings import ReferencesSettings
from citerec.tests.conftest import Run, Server
from citerec.tests.made_pdfs import MadePaper

TODAY = date(2026, 11, 29)
WORK = LibraryPaper(
    "w",
    title="Moss grows on the northern side of old beech trees",
    authors=("Ann Lind", "Bo Moss", "Cy Fern"),
    year=2021,
    venue="ICML",
    doi="10.1145/3447548.3467401",
)
ENTRY = """@inproceedings{moss,
  title = {Moss grows on the northern side of old beech trees}, author = {Lind, Ann and Moss, B. and Fern, Cy},
  booktitle = {Proceedings of the 38th International Conference on Machine Learning}, year = {2021}}"""


def paper(bibtex: str) -> LibraryPaper:
    return next(parse_bibtex(bibtex, "entry", lambda _: None))


def entry(**fields: str) -> LibraryPaper:
    kind = fields.pop("kind", "article")
    return paper(f"@{kind}{{key, {', '.join(f'{name} = {{{value}}}' for name, value in fields.items())}}}")


def fields_of(answer: Answer) -> list[str]:
    return [finding.field for finding in answer.findings]


class Works(tuple[LibraryPaper, ...]):
    """A source of works, by the DOI of a paper or another way."""

    def records(self, paper: LibraryPaper) -> Iterator[Record]:
        return (Record(work, "table", by_id=bool(work.doi) and work.doi == paper.doi) for work in self)


def by_table(*works: LibraryPaper) -> list[Works]:
    return [Works(works)]


@pytest.mark.parametrize(
    ("wrong", "right", "field"),
    [
        ({"doi": "10.99999/abc.1"}, {"doi": "10.1016/j.abc.2020.01.001"}, "doi"),
        ({"doi": "Volume 7, pp. 1-2"}, {"doi": "10/gf9tjp"}, "doi"),
        ({"doi": "XXXX"}, {"doi": "none"}, "doi"),
        ({"doi": "10.1145/nnnnnnn.nnnnnnn"}, {"doi": "doi:10/gf9tjp"}, "doi"),
        ({"eprint": "2013.01234"}, {"eprint": "2012.01234"}, "arxiv"),
        ({"eprint": "2612.01234", "year": "2026"}, {"eprint": "2611.01234", "year": "2026"}, "arxiv"),
        ({"isbn": "978-0-306-40615-8"}, {"isbn": "978-0-306-40615-7"}, "isbn"),
        ({"issn": "2049-3631"}, {"issn": "2049-3630"}, "issn"),
        ({"year": "2035"}, {"year": "2027"}, "year"),
        ({"year": "2016", "journal": "arXiv preprint arXiv:1803.01234"}, {"year": "2016", "kind": "phdthesis", "eprint": "1803.01234"}, "year"),
        ({"year": "2002", "doi": "10.1007/s10714-008-0707-4"}, {"year": "1933", "doi": "10.1007/s10714-008-0707-4"}, "year"),
        ({"year": "2019", "doi": "10.1109/cvpr46437.2021.00260"}, {"year": "2022", "doi": "10.1109/cvpr46437.2021.00260"}, "year"),
        ({"year": "2023", "doi": "10.18653/v1/N19-1357"}, {"year": "2019", "doi": "10.18653/v1/N19-1357"}, "year"),
        ({"journal": "ICML", "doi": "10.1109/cvpr46437.2021.00260"}, {"journal": "CVPR", "doi": "10.1109/cvpr46437.2021.00260"}, "venue"),
        ({"journal": "Symposium on Moss and Fern", "year": "2022", "doi": "10.1609/aaai.v36i2.20016"}, {"journal": "Proc. of the AAAI Conf.", "year": "2022", "doi": "10.1609/aaai.v36i2.20016"}, "venue"),
        ({"journal": "NeurIPS", "doi": "10.1016/j.abc.1"}, {"journal": "NeurIPS", "doi": "10.48550/arXiv.2001.01234"}, "doi"),
        ({"journal": "JMLR", "doi": "10.1016/j.1"}, {"journal": "ICML", "doi": "10.1016/b978-1-55860-377-6.50032-3"}, "doi"),
        ({"journal": "International Conference on Machine Learning", "doi": "10.1109/icmla.1"}, {"journal": "International Conference on Machine Learning and Applications (ICMLA)", "doi": "10.1109/icmla.1"}, "doi"),
        ({"eprint": "1606.0328"}, {"eprint": "1606.0328", "eprinttype": "viXra"}, "arxiv"),
        ({"journal": "ECCV", "year": "2021"}, {"journal": "ECCV", "year": "2022"}, "year"),
        ({"journal": "ICCV", "year": "1992"}, {"journal": "ICCV", "year": "1990"}, "year"),
        ({"journal": "IJCAI", "doi": "10.1016/j.1"}, {"journal": "IJCAI", "doi": "10.5591/978-1-57735-516-8/ijcai11-254"}, "doi"),
        ({"author": "Firstname Lastname"}, {"author": "First, Ann"}, "author"),
        ({"title": "Moss on beech trees. In Proceedings of the moss society, beech and oak"}, {"title": "Moss in proceedings of the society"}, "title"),
    ],
)  # fmt: skip
def test_an_entry_that_cannot_be_is_contradicted_and_its_sound_twin_is_not(
    wrong: dict[str, str], right: dict[str, str], field: str
) -> None:
    plain = {"title": "Moss on trees", "author": "Lind, Ann", "year": "2020"}
    assert fields_of(judge(entry(**plain | wrong), today=TODAY)) == [field]
    assert judge(entry(**plain | right), today=TODAY).answer == "unknown"


@pytest.mark.parametrize(
    ("old", "new", "field"),
    [
        ("Lind, Ann and Moss, B. and Fern, Cy", "Roe, Jo and Poe, Al and Doe, Di", "author"),
        ("Lind, Ann and Moss, B. and Fern, Cy", "Lind, Ann and Fern, Cy", "authors"),
        ("Lind, Ann and Moss, B. and Fern, Cy", "Lind, Ann and Roe, Jo and Fern, Cy", "authors"),
        ("{2021}", "{2018}", "year"),
        ("International Conference on Machine Learning", "AAAI Conference on Artificial Intelligence", "venue"),
        # Style:
        ("Lind, Ann and Moss, B. and Fern, Cy", "Ann Lind and others", ""),
        ("{2021}", "{2022}", ""),
        ("Moss grows", "{MOSS} Grows", ""),
        ("Proceedings of the 38th International Conference on Machine Learning", "ICML '21", ""),
    ],
)  # fmt: skip
def test_a_record_of_the_same_title_contradicts_or_confirms(old: str, new: str, field: str) -> None:
    answer = judge(paper(ENTRY.replace(old, new)), by_table(WORK), today=TODAY)
    assert fields_of(answer) == [field] * bool(field)
    assert (answer.findings[0].where if field else answer.where) == "table"
    assert answer.answer == ("contradicted" if field else "confirmed")


@pytest.mark.parametrize(
    "other",
    [
        WORK._replace(title="Moss grows on the southern side of young oak stumps"),
        WORK._replace(title="Moss grows on the northern side of old beech trees, part II", doi=""),
        WORK._replace(venue="Journal of Machine Learning Research", year=2024),
        WORK._replace(authors=()),
    ],
)
def test_other_works_and_versions_neither_confirm_nor_contradict(other: LibraryPaper) -> None:
    assert judge(paper(ENTRY), by_table(other), today=TODAY).answer == "unknown"


def test_a_doi_of_another_title_contradicts_also_beside_a_record_that_agrees() -> None:
    other = WORK._replace(title="Ferns of the southern hills and their spores")
    own = paper(ENTRY)._replace(doi=WORK.doi)
    assert fields_of(judge(own, by_table(other), today=TODAY)) == ["title"]
    assert fields_of(judge(own, by_table(WORK._replace(doi=""), other), today=TODAY)) == ["title"]


def test_status() -> None:
    mark = f"retracted:{retraction('Crossref', '2022-01-02', '')}"
    kinds = {
        status.kind: status for status in judge(paper(ENTRY), by_table(WORK._replace(filled=(mark,)))).status
    }
    assert kinds.keys() == {"retracted", "missing_doi"} and "Crossref, 2022-01-02" in kinds["retracted"].where
    preprint = entry(title=WORK.title, author="Lind, Ann and Moss, Bo and Fern, Cy", year="2020", eprint="2001.01234", archiveprefix="arXiv")  # fmt: skip
    answer = judge(preprint, by_table(WORK), today=TODAY)
    assert answer.status[0].text == f"published since: ICML, 2021, doi:{WORK.doi}" and not answer.findings


letters = st.text("abcdefghij ", min_size=3, max_size=30).map(lambda text: f"t{' '.join(text.split())}")


@settings(max_examples=10, deadline=None)
@given(st.lists(st.tuples(letters, letters, st.integers(1900, 2026), st.booleans()), min_size=1, max_size=60))
def test_an_index_finds_what_a_list_finds(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[str, str, int, bool]]
) -> None:
    works: list[dict[str, Any]] = [
        {"id": f"w{n}", "title": title, "authors": [f"{author} Roe"], "year": year, "doi": f"10.1000/{n}" * is_known}
        for n, (title, author, year, is_known) in enumerate(rows)
    ]  # fmt: skip
    file = tmp_path_factory.mktemp("table") / "works.jsonl"
    file.write_text("".join(f"{json.dumps(work)}\n" for work in works), "utf-8")
    folder = file.with_suffix("")
    folder.mkdir()
    build(folder, [file], lambda _: None)
    table = Table(folder, "works")
    for work in works:
        own = LibraryPaper("", title=work["title"], authors=tuple(work["authors"]), doi=work["doi"])
        squeezed = work["title"].replace(" ", "")
        wanted = sorted(w["year"] for w in works if w["title"].replace(" ", "") == squeezed)
        records = [*table.records(own)]
        assert sorted(record.paper.year for record in records if not record.by_id) == wanted
        by_id = [record.paper.title for record in records if record.by_id]
        assert by_id == [work["title"]] * bool(work["doi"])
        other = [record.paper.title for record in table.records(own._replace(title="none", doi=""))]
        assert work["title"] in other


def test_the_index_of_crossref_is_made_once_and_near_titles_are_contradicted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CITATION_CACHE", str(tmp_path / "cache"))
    works = [
        {"DOI": "10.1145/1.2", "title": [WORK.title], "container-title": ["ICML"], "issued": {"date-parts": [[2021]]},
         "author": [{"given": "Ann", "family": "Lünd"}, {"given": "Bo", "family": "Moss"}], "type": "proceedings-article"},
        {"title": ["Ferns of the southern hills"], "author": [{"family": "Fern"}], "type": "journal-article"},
    ]  # fmt: skip
    file = tmp_path / "0.json.gz"
    file.write_bytes(gzip.compress(json.dumps({"items": works}).encode()))
    table = Table.open([str(file)], lambda _: None)
    [(work, *_)] = table.records(LibraryPaper("", doi="10.1145/1.2"))
    assert (work.title, work.authors, work.venue) == (WORK.title, ("Ann Lünd", "Bo Moss"), "ICML")
    near = ENTRY.replace("northern", "shadowy").replace("Lind, Ann and Moss, B. and Fern, Cy", "Lünd, A. and Moss, Bo")  # fmt: skip
    [finding] = judge(paper(near), [table], today=TODAY).findings
    assert (finding.field, finding.source) == ("title", work.title) and "0.json.gz, 20" in finding.where
    [index] = (tmp_path / "cache" / "tables").iterdir()
    before = index.stat().st_ino
    assert [*Table.open([str(file)], lambda _: None).records(WORK)] and index.stat().st_ino == before
    (index / "works").write_bytes(b"x" * 5000)
    with pytest.raises(InputError, match="is damaged"):
        [*Table.open([str(file)], lambda _: None).records(WORK)]
    (index / "links").write_bytes(b"xx")
    with pytest.raises(InputError, match="is damaged"):
        Table.open([str(file)], lambda _: None)


def test_command(tmp_path: Path, command: Run) -> None:
    bib = tmp_path / "refs.bib"
    fern = "@article{fern, title={Ferns of southern hills}, doi={10.1000/7}}"
    late = "@article{late, title={Late}, year={2090}, doi={10.1000/7}}"
    bib.write_text(f"{ENTRY}\n{fern}\n{late}\n@article{{bad, title={{\n", "utf-8")
    table = tmp_path / "works.json"
    table.write_text(
        json.dumps({"w": {"title": WORK.title, "authors": WORK.authors, "year": 2021, "venue": "ICML"}})
    )
    code, out, _ = command("references", str(bib), f"table={table}", "strict=true")
    first, second, third, *notes, last = out.splitlines()
    assert code == 1
    assert (
        first.startswith("refs.bib:1: moss confirmed: works.json, ") and second == "refs.bib:4: fern unknown"
    )
    assert third.startswith(f"refs.bib:5: late contradicted: year 2090, but {date.today().year} (today)")
    assert third.endswith("has the DOI of fern (refs.bib:4), but another title; one of them is wrong")
    assert notes == ["note: refs.bib: bad cannot be read"]
    assert last.endswith("3 references: 1 confirmed, 1 contradicted, 1 unknown")
    content = json.loads(command("references", str(bib), f"table={table}", "format=json")[1])
    answers = [(row["key"], row["answer"]) for row in content["entries"]]
    assert answers == [("moss", "confirmed"), ("fern", "unknown"), ("late", "contradicted")]
    [finding] = content["entries"][2]["findings"]
    assert finding == {"field": "year", "entry": "2090", "source": str(date.today().year), "where": "today"}
    for wrong in ({"file": str(tmp_path / "no.bib")}, {"file": str(bib), "table": ("no.xml",)}):
        with pytest.raises(InputError, match=r"no\.(bib|xml)"):
            references(ReferencesSettings(**wrong))


DRAFT = r"""\documentclass{article}\begin{document}
Moss grows \cite{moss,late,fern}. It is \cite{fern} green \cite{moss}.
\bibliography{refs}\end{document}"""


@pytest.fixture
def draft(tmp_path: Path) -> Path:
    (tmp_path / "refs.bib").write_text(
        ENTRY + "\n@article{late, title={Late ferns}, author={Roe, Jo}, year={2090}}\n"
        "@article{fern, title={Ferns}, author={Fern, Cy}, year={2001}, journal={arXiv:0101.0001}}\n"
        "@article{never, title={Never}, year={1990}}\n"
    )
    (tmp_path / "paper.tex").write_text(DRAFT)
    return tmp_path / "paper.tex"


def test_check_and_references_of_a_draft(draft: Path, command: Run) -> None:
    assert "refs.bib:4: late year 2090, but" in command("check", str(draft), "references=true")[1]
    assert "2090" not in command("check", str(draft))[1]
    assert "4 references: 0 confirmed, 1 contradicted, 3 unknown" in command("references", str(draft))[1]


def test_report(draft: Path, command: Run) -> None:
    given = "report", str(draft), "author=Fern"
    content = json.loads(command(*given, "format=json")[1])
    numbers = {name: content[name] for name in ("references", "citations", "own", "preprints", "oldest")}
    assert numbers == {"references": 3, "citations": 3, "own": 2, "preprints": 1, "oldest": 2001}
    assert content["uncited"] == ["never"] and len(content["contradicted"]) == 1
    assert "references: 3\n  citations: 3\n  own works: 2 (67%)" in command(*given)[1]
    draft.write_text(DRAFT.replace("moss}.", "moss,unknown}."))
    assert "references: 4\n  citations: 3\n  own works: 2 (67%)" in command(*given)[1]  # of the known ones


def answer(server: Server, request: BaseHTTPRequestHandler) -> None:
    """Answer as DataCite and Crossref, which know one work each."""
    fern = {
        "doi": "10.48550/arxiv.2101.00001",
        "titles": [{"title": "Ferns of the southern hills"}],
        "creators": [{"givenName": "Jo", "familyName": "Roe"}],
        "publicationYear": 2021,
    }
    moss = {
        "DOI": "10.1145/7.8",
        "title": [WORK.title],
        "author": [dict(zip(("given", "family"), name.split(), strict=True)) for name in WORK.authors],
        "issued": {"date-parts": [[2021]]},
        "container-title": ["ICML"],
    }
    of_datacite, of_crossref = {"data": [{"attributes": fern}]}, {"message": {"items": [moss]}}
    server.put(request.path[1:], json.dumps(of_datacite if request.path.startswith("/dois") else of_crossref))
    Server.answer(server, request)


def test_services_are_asked_after_consent_and_once(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: Run
) -> None:
    monkeypatch.setattr(server, "answer", partial(answer, server))
    monkeypatch.setenv("CITATION_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(Client, "_pause", lambda *_: None)
    bib = tmp_path / "refs.bib"
    fern = "@article{fern, title={Ferns of the southern hills}, author={Roe, Jo}, year={2021}, eprint={2101.00001}, archiveprefix={arXiv}}"
    wrong = ENTRY.replace("{moss,", "{wrong,").replace(
        "grows on the northern side", "never grows on the roots"
    )
    bib.write_text(f"{ENTRY}\n{fern}\n{wrong.replace('year =', 'doi = {10.1145/7.8}, year =')}")
    for name in ("crossref", "datacite"):
        monkeypatch.setitem(SERVICES, name, (SERVICES[name][0], server.url))
    given = "references", str(bib), "services=[crossref,datacite]"
    assert "nothing was sent" in command(*given)[1] and not server.requests
    out = command(*given, "yes=true")[1]
    assert "moss confirmed: Crossref; has doi:10.1145/7.8" in out and "fern confirmed: DataCite" in out
    assert "wrong contradicted: title Moss never grows on the roots of old beech trees, but Moss grows" in out
    count = len(server.requests)
    command(*given, "yes=true")
    assert len(server.requests) == count


def test_the_first_page_of_an_own_pdf(tmp_path: Path) -> None:
    lines = ["Ann Lind and Bo Moss", "doi:10.1000/right.7", "arXiv:2101.00001v2 [cs.CL] 1 Jan 2021"]
    lines.append("https://doi.org/10.1145/1122445.1122456")  # of the template
    made = MadePaper(
        WORK.title,
        "Moss grows on trees. " * 9,
        [("Introduction", ["Moss and trees. " * 20])],
        first_page=tuple(lines),
    )
    file = tmp_path / "moss.pdf"
    file.write_bytes(made.pdf())
    own = paper(ENTRY)._replace(files=(str(file),))
    answer = judge(own, today=TODAY)
    assert (answer.answer, answer.where) == ("confirmed", "first page of moss.pdf")
    [finding] = judge(own._replace(arxiv="2101.00002"), today=TODAY).findings
    assert (finding.field, finding.source) == ("arxiv", "2101.00001")
    [finding] = judge(own._replace(doi="10.1000/wrong.8", venue=""), today=TODAY).findings
    assert (finding.field, finding.source) == ("doi", "10.1000/right.7")
    assert judge(own._replace(title="Ferns of the southern hills"), today=TODAY).answer == "unknown"
    file.write_bytes(b"no PDF")
    notes: list[str] = []
    assert (
        judge(own, today=TODAY, on_note=notes.append).answer == "unknown"
        and "moss.pdf: is not a PDF" in notes[0]
    )


def test_works_of_a_file_without_keys_are_named_by_their_titles(tmp_path: Path, command: Run) -> None:
    (tmp_path / "a.ris").write_text("TY  - BOOK\nTI  - Trees\nER  - \n")
    assert command("references", str(tmp_path / "a.ris"))[1].startswith("a.ris: “Trees” unknown\n")
