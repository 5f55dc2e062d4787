"""What full texts cite: links of lists of references to a library's papers, and sentences that cite them."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from citerec.base.errors import InputError
from citerec.formats.bibliography.paper import LibraryPaper, make_paper
from citerec.library.ask.recommender import Recommender
from citerec.library.ask.relations import NO_LIST
from citerec.library.benchmark.citations import find_pairs
from citerec.library.evidence.citations import READ_FROM_PDF, Citations, is_sentence, text_contexts
from citerec.library.evidence.links import Linker
from citerec.library.papers.fulltexts import set_full_texts, update_full_texts
from citerec.library.papers.library import Library
from citerec.library.serve.server import create_app
from citerec.library.settings import ServeSettings
from citerec.recommend import run
from citerec.tests.conftest import Run
from citerec.tests.datasets.conftest import write_files
from citerec.tests.made_pdfs import place_text, write_pdf

BEES = make_paper("bees", title="Honey bees dance in the dark", authors=("Ann Lee", "Bo Kim"), year=2001)
PART = make_paper("part", title="Dance in the dark", authors=("Ann Lee",), year=2001)
STATISTICS = make_paper("cancer", title="Cancer statistics", authors=("Rebecca Siegel",), year=2017)
MOLES = make_paper("moles", title="Moles", authors=("Cy Moss",), year=1999, doi="10.5555/moles.1")
LINKER = Linker([BEES, PART, STATISTICS, MOLES])


@pytest.mark.parametrize(
    ("entry", "paper"),
    [
        ("Lee A, Kim B. Honey bees dance in the dark. J Bees. 2001;3:1-2.", "bees"),
        ("A. Lee and B. Kim, “Honey bees dance in the dark,” J. Bees, 2001.", "bees"),
        ("Lee, A., Kim, B. (2002). Honey bees dance in the dark. J. Bees 3.", "bees"),  # online first
        ("Lee, A. (2001). Dance in the dark. J. Bees 3.", "part"),
        ("Lee A. Honey beesdance in the dark. J Bees. 2001.", "bees"),  # a lost space
        ("Moss C. 1999. Moles. https://doi.org/10.5555/moles.1", "moles"),
        # other works
        ("Lee A, Kim B. Comment on: Honey bees dance in the dark. J Bees. 2001.", ""),
        ("Lee A, Kim B. Honey bees dance in the dark: a second look. J Bees. 2001.", ""),
        ("Lee A, Kim B. Honey bees dance in the dark. II. Ants. J Bees. 2001.", ""),
        ("Lee A, Kim B. Why honey bees dance in the dark. J Bees. 2001.", ""),
        ("Lee A, Kim B. Honey bees dance in the dark. J Bees. 1987.", ""),
        ("Roe C. Honey bees dance in the dark. J Bees. 2001.", ""),
        ("Siegel RL. Cancer statistics, 2018. CA Cancer J Clin. 2018;68:7.", ""),
        ("Moss C. 1999. A natural history of moles.", ""),
        ("Roe, C. (2001). Ants. J. Ants 3. Lee, A. (2003). Dance in the dark. J. Bees 3.", ""),
        ("", ""),
    ],
)
def test_entries_are_linked_to_the_work_that_they_are(entry: str, paper: str) -> None:
    found = LINKER.find(entry)
    assert (found.id if found else "") == paper


def test_what_is_no_whole_sentence_is_not_shown() -> None:
    assert is_sentence("Bees dance in the dark [1].")
    assert not any(map(is_sentence, ("Bees dance [1].", "tial of dancing in the dark [1].", "Bees " * 500)))


# A library whose PDFs cite each other.

LISTED = [
    "[1] Lee A, Kim B. Honey bees dance in the dark. J Bees. 2001;3:1-2.",
    "[2] Moss C. Ants walk home by the sun. J Ants. 1999;1:5.",
    "[3] Fern D. Wasps build nests of paper pulp. J Wasps. 2003. doi:10.5555/wasps",
]
TEXTS = {
    "roe2010": [
        "Bees dance in the hive at night [1].",
        "Their nests are of paper [2, 3], as wasps build them.",
    ],
    "poe2012": ["That bees dance was seen by others before [1].", "Ants were studied at length, too [2]."],
    "lee2001": ["Nothing was known of this before we looked."],
}


def write_texts(folder: Path) -> list[LibraryPaper]:
    """PDFs, of which the last has no list of references; and their papers."""
    papers = []
    for key, sentences in TEXTS.items():
        rows = [*(f"Line {row} of this page is here to make a text of it." for row in range(12)), *sentences]
        rows += ["References", *LISTED] if key != "lee2001" else []
        page = b"".join(place_text(50, 700 - 14 * row, text, 10) for row, text in enumerate(rows))
        file = folder / f"{key}.pdf"
        file.write_bytes(
            write_pdf([place_text(50, 700, "The first page has words, but it cites nothing.", 10), page])
        )
        title = BEES.title if key == "lee2001" else f"A paper of {key} on insects"
        papers.append(
            make_paper(
                key,
                key=key,
                title=title,
                year=int(key[3:]),
                authors=(f"A {key[:3].title()}",),
                files=(str(file),),
            )
        )
    return papers


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Library:
    folder = tmp_path_factory.mktemp("citing")
    made = Library.create(folder / "library", write_texts(folder), model="static", fulltext=True)
    update_full_texts(made.path)
    return Library.open(made.path)


def test_citing_sentences_have_their_pages(library: Library) -> None:
    citations = Citations(library.path)
    by = citations.cited_by("lee2001")
    assert {paper: [(text, place.page) for _, text, place in cited] for paper, cited in by.items()} == {
        "roe2010": [(TEXTS["roe2010"][0], 2)],
        "poe2012": [(TEXTS["poe2012"][0], 2)],
    }
    cites, others = citations.cites("roe2010")
    assert ([*cites], others) == (["lee2001"], 2)
    assert citations.cites("lee2001") == ({}, 0)
    assert citations.cited_by("roe2010") == {}


def test_works_that_are_missing(library: Library) -> None:
    works, unclear = Citations(library.path).missing(2)
    assert [(work.entry[:6], work.citing) for work in works] == [
        ("Fern D", ("poe2012", "roe2010")),
        ("Moss C", ("poe2012", "roe2010")),
    ]
    assert (unclear, Citations(library.path).missing(3)[0]) == (0, [])
    wasps, ants = (work.paper() for work in works)
    assert (wasps.key, wasps.title, wasps.doi) == (
        "fern2003wasps",
        "Wasps build nests of paper pulp",
        "10.5555/wasps",
    )
    assert (ants.key, ants.authors, ants.year) == ("moss1999ants", ("C Moss",), 1999)
    by_many = [("roe2010", 0, "World Health Organization. Homes for all. Rome, 2019.")]
    assert works[0]._replace(places=by_many).paper().names == ("{World Health Organization}",)


def test_commands(library: Library, command: Run) -> None:
    shown = " ".join(command("paper", "lee2001", f"library={library.path}")[1].split())
    assert (
        "no list of references" in shown
        and "cited by 2 papers" in shown
        and f"“{TEXTS['poe2012'][0]}” (p. 2)" in shown
    )
    relations = json.loads(command("paper", "roe2010", f"library={library.path}", "format=json")[1])
    assert (relations["cites"][0]["key"], relations["others"], relations["note"]) == ("lee2001", 2, "")
    shown = " ".join(command("missing", f"library={library.path}")[1].split())
    assert shown.startswith(f"2 PDFs {LISTED[2][4:]} “{TEXTS['roe2010'][1]}” (roe2010, p. 2)")
    for style in ("bibtex", "ris", "csl"):
        shown = command("missing", f"library={library.path}", f"format={style}")[1]
        assert shown.count(READ_FROM_PDF) == 2


def test_papers_are_found_by_how_they_are_cited(library: Library) -> None:
    recommender = Recommender(library)
    question = "Others saw bees dance before [CITE]."
    [best] = [paper for paper in recommender.recommend(question, k=3) if paper.key == "lee2001"]
    assert f"cited for this in Poe 2012, p. 2: “{TEXTS['poe2012'][0].replace('[1]', '[CITE]')}”" in best.why
    assert best.evidence.cited_at is not None and best.evidence.cited_at.link.endswith("poe2012.pdf#page=2")


def test_no_sentence_of_the_paper_being_written_is_evidence(library: Library) -> None:
    recommender = Recommender(library)
    question, title = "That bees dance was seen by others before [CITE].", "A Paper of poe2012, on insects"
    papers = {paper.key: paper for paper in recommender.recommend(question, title, k=3)}
    assert "poe2012" not in papers and "cited for this in Roe 2010" in papers["lee2001"].why
    contexts, queries = text_contexts(library.path, {"poe2012": "One", "roe2010": "One", "lee2001": "Two"})
    assert {context.citing_id for context in contexts} == {"poe2012"}  # versions of one work
    assert [query.positive_ids for query in queries] == [["lee2001"], ["lee2001"]]
    contexts, _ = text_contexts(library.path, dict.fromkeys(["poe2012", "roe2010", "lee2001"], "One"))
    assert contexts == []


@pytest.mark.slow
def test_changes_keep_and_renew_what_papers_are_cited_for(tmp_path: Path) -> None:
    path = tmp_path / "library"
    papers = write_texts(tmp_path)
    Library.create(path, papers[:2], model="static", fulltext=True)
    assert update_full_texts(path)
    assert len(Library.open(path).corpus.context_ids) == 0  # the cited paper is not there yet
    with Library.edit(path) as library:
        library.add(papers[2:])
    assert update_full_texts(path)
    assert len(Library.open(path).corpus.context_ids) == 2
    generation = Library.open(path).manifest.generation
    assert update_full_texts(path)
    assert Library.open(path).manifest.generation == generation  # nothing has changed
    with Library.edit(path) as library:
        library.remove(["roe2010"])
    assert update_full_texts(path)
    assert [*Citations(path).cited_by("lee2001")] == ["poe2012"]
    assert len(Library.open(path).corpus.context_ids) == 1
    set_full_texts(path, False)
    assert update_full_texts(path) is None and len(Library.open(path).corpus.context_ids) == 0
    set_full_texts(path, True)
    assert update_full_texts(path) and len(Library.open(path).corpus.context_ids) == 1
    (tmp_path / "poe2012.pdf").write_bytes((tmp_path / "lee2001.pdf").read_bytes())
    (tmp_path / "lee2001.pdf").write_bytes(b"%PDF-1.4 damaged")
    report = update_full_texts(path)
    assert report is not None and list(report.problems) == [str(tmp_path / "lee2001.pdf")]
    assert Citations(path).cited_by("lee2001") == {}  # both PDFs were read again
    assert len(Library.open(path).corpus.context_ids) == 0


def test_a_text_that_a_paper_gets_later_is_linked(tmp_path: Path) -> None:
    path, pdfs, (roe, *others) = tmp_path / "library", [str(tmp_path)], write_texts(tmp_path)
    file = str(Path(roe.files[0]).rename(tmp_path / "download.pdf"))
    Library.create(path, [*others, roe._replace(files=())], model="bm25", fulltext=True, pdfs=pdfs)
    assert update_full_texts(path) and [*Citations(path).cited_by("lee2001")] == ["poe2012"]
    with Library.edit(path) as library:
        library.change([2], [roe._replace(files=(file,))])
    assert update_full_texts(path) and [*Citations(path).cited_by("lee2001")] == ["poe2012", "roe2010"]


def test_the_server_shows_what_cites_a_paper(library: Library) -> None:
    settings = ServeSettings(library=str(library.path))
    client = TestClient(create_app(Recommender(library), settings), base_url="http://127.0.0.1")
    relations = client.get("/citations", params={"id": "lee2001"}).json()
    assert relations["note"] == NO_LIST
    assert [(paper["key"], paper["sentences"][0]["link"]) for paper in relations["cited_by"]] == [
        ("poe2012", "pdf?id=poe2012#page=2"),
        ("roe2010", "pdf?id=roe2010#page=2"),
    ]
    assert client.get("/citations", params={"id": "nobody"}).status_code == 404
    assert client.get("/pdf", params={"id": "poe2012"}).status_code == 200
    proxied = replace(settings, allowed_hosts=("papers.lab",))  # asked by other machines, through a proxy
    others = TestClient(create_app(Recommender(library), proxied), base_url="https://papers.lab")
    assert others.get("/pdf", params={"id": "poe2012"}).status_code == 403
    relations = others.get("/citations", params={"id": "lee2001"}).json()
    assert [paper["sentences"][0]["link"] for paper in relations["cited_by"]] == ["", ""]
    asked = {"text": "Others saw bees dance before [CITE].", "details": True}
    papers = client.post("/recommend", json=asked).json()["recommendations"]
    [paper] = [paper for paper in papers if paper["key"] == "lee2001"]
    opens = {part["kind"]: part.get("link") for part in paper["details"]["evidence"]}
    assert opens["Cited for this in Poe 2012:"] == "pdf?id=poe2012#page=2"


def test_check_compares_pages_and_quotations(library: Library, tmp_path: Path, command: Run) -> None:
    draft = tmp_path / "draft.tex"
    lines = [
        r"Poe found that ``bees dance was seen by others before'' \cite[p.~2]{poe2012}.",
        r"Poe found that ``bees dance was heard by others before'' \cite[p.~2]{poe2012}.",
        r"Poe found that ``bees dance was seen by others before'' \cite[p.~1]{poe2012}.",
        r"See \cite[p.~9]{roe2010} and \cite[p.~2]{roe2010}.",
    ]
    draft.write_text("\n\n".join(lines))
    out = command("check", str(draft), f"library={library.path}", "format=json")[1]
    findings = json.loads(out)["findings"]
    assert [(finding["kind"], finding["line"]) for finding in findings] == [
        ("quotation", 3),
        ("quotation", 5),
        ("page", 7),
    ]
    assert "; on p. 2 is “bees dance was seen by others before”" in findings[0]["message"]
    assert "is on p. 2 of its PDF, not on p. 1" in findings[1]["message"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "missing", "filled"),
    [
        ("draft.tex", r"\cite{?}", r"\cite[p.~2]{KEY}"),
        ("draft.md", "[@?]", "[@KEY, p. 2]"),
        ("draft.typ", "#cite(<?>)", "#cite(<KEY>, supplement: [p. 2])"),
        ("draft.org", "[cite:@?]", "[cite:@KEY p. 2]"),
    ],
)
def test_filled_citations_name_the_page(
    library: Library, tmp_path: Path, name: str, missing: str, filled: str
) -> None:
    (tmp_path / name).write_text(f"Nothing was known of this before we looked {missing}.\n")
    copy = tmp_path / f"copy{name}"
    run(["draft", str(library.path), str(tmp_path / name), f"fill={copy}", "pages=true", "sure=0"])
    expected = re.escape(filled).replace("KEY", r"\w+").replace("2", "[12]")
    assert re.search(expected, copy.read_text())


def test_bad_input_is_a_line(library: Library, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"key=nobody: no paper of .* has this id or key"):
        run(["paper", "nobody", f"library={library.path}"])
    with pytest.raises(InputError, match="pages needs fill=FILE"):
        run(["draft", str(library.path), "draft.tex", "pages=true"])
    plain = Library.create(tmp_path / "plain", [BEES], model="static")
    for command in (["paper", "bees"], ["missing"]):
        with pytest.raises(InputError, match="has no full texts; read its PDFs: citerec add"):
            run([*command, f"library={plain.path}"])


def test_a_folder_without_pairs_is_told(tmp_path: Path) -> None:
    (tmp_path / "alone.pdf").write_bytes(b"%PDF")
    with pytest.raises(InputError, match=r"has no NAME\.pdf with a NAME\.xml beside it"):
        find_pairs([str(tmp_path)])


ARTICLE = """<article><front><article-meta><title-group><article-title>A paper of xml</article-title>
</title-group></article-meta></front><body><sec><title>One</title>
<p>Bees dance in their hive at night <xref ref-type="bibr" rid="r2">a</xref>.</p>
<p>Wasps build nests of paper pulp <xref ref-type="bibr" rid="r1 r2">b</xref>. Ants do not.</p></sec></body>
<back><ref-list><ref id="r1"><element-citation>
<article-title>Wasps build nests of paper pulp</article-title><name><surname>Fern</surname></name>
<year>2003</year></element-citation></ref><ref id="r2"><element-citation>
<article-title>Honey bees dance in the dark</article-title><name><surname>Lee</surname></name>
<year>2001</year></element-citation></ref></ref-list></back></article>"""


def test_xml_says_what_it_cites(tmp_path: Path, command: Run) -> None:
    files = {"good.xml": ARTICLE, "bad.xml": "<article><front>", "other.xml": "<html/>"}
    entries = [f"@article{{{name[:-4]}, title={{Paper {name}}}, file={{{name}}}}}" for name in files]
    entries.append("@article{bees, title={Honey bees dance in the dark}, author={Lee, Ann}, year=2001}")
    write_files(tmp_path, files | {"papers.bib": "\n".join(entries)})
    library, source = f"library={tmp_path / 'library'}", f"source={tmp_path / 'papers.bib'}"
    _, *problems = command("build", library, source, "fulltext=true", "model=static")
    assert "bad.xml: malformed XML" in "".join(problems)
    assert "other.xml: must be a JATS or TEI document" in "".join(problems)
    shown = command("paper", "bees", library)[1]
    for sentence in ("Bees dance in their hive at night a.", "Wasps build nests of paper pulp b."):
        assert f"“{sentence}”" in shown
    shown = command("missing", library, "least=1", "format=bibtex")[1]
    assert "title = {Wasps build nests of paper pulp}" in shown
