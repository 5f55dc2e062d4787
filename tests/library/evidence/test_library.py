"""Full texts from the commands to what is shown: a library of three made PDFs."""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import httpx2 as httpx
import numpy as np
import pytest

from citerec.base.errors import InputError
from citerec.formats.articles.pdf import read_pdf
from citerec.library.ask.recommender import SAID, Recommender
from citerec.library.papers.library import Library
from citerec.library.serve.mcp import make_server
from citerec.library.serve.messages import Claim, find_passages
from citerec.recommend import run
from citerec.rerank.ranker.model import Ranker
from citerec.retrieval.queries import Queries, Query
from citerec.tests.conftest import Run
from citerec.tests.library.conftest import serving
from citerec.tests.library.evidence.made import paper_made, write_papers
from citerec.tests.library.serve.test_mcp import call_tools

SENTENCE = paper_made(1).sections[2][1][0].split(". ")[1]
"""Of the third section of paper 1."""


def page_of(sentence: str) -> int:
    """The page on which a sentence of paper 1 begins."""
    for part in read_pdf(paper_made(1).pdf()).paragraphs:
        if sentence in part.text:
            return [page for start, page in part.starts if start <= part.text.index(sentence)][-1]
    raise AssertionError("no paragraph has it")


PAGE = page_of(SENTENCE)


def write_bibliography(folder: Path) -> Path:
    """papers.bib beside pdfs/0.pdf to 2.pdf, whose entries have no abstract; the third names no file."""
    papers = write_papers(folder / "pdfs", range(3))
    entries = [
        f"@article{{{paper.key}, title={{{paper.title}}}, doi={{{paper.doi}}}, year={{2020}}"
        + (f", file={{:pdfs/{number}.pdf:PDF}}}}" if number < 2 else "}")
        for number, paper in enumerate(papers)
    ]
    (folder / "papers.bib").write_text("\n".join(entries))
    return folder / "papers.bib"


BUILD = ["build", "library=mine", "source=papers.bib", "fulltext=true"]


@pytest.fixture
def bibliography(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return write_bibliography(tmp_path)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("built")
    write_bibliography(folder)
    with contextlib.chdir(folder):
        run(BUILD)
    return folder


@pytest.fixture
def mine(built: Path, monkeypatch: pytest.MonkeyPatch) -> Recommender:
    """A library that tests only ask, in their working folder."""
    monkeypatch.chdir(built)
    return Recommender.open("mine")


@pytest.fixture
def copied(built: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A copy of the library to change, in the working folder."""
    shutil.copytree(built / "mine", tmp_path / "mine")
    monkeypatch.chdir(tmp_path)


@pytest.mark.usefixtures("bibliography")
def test_building_reads_pdfs_and_fills_in_abstracts(command: Run) -> None:
    lines = command(*BUILD)[1].splitlines()
    assert lines[0].startswith("mine: 3 papers")
    assert lines[1].startswith("full texts: 2 papers, ")
    assert lines[1].endswith("; 2 PDFs read; 2 abstracts filled in")
    library = Library.open("mine")
    papers = {paper.key: paper for paper in map(library.paper, range(3))}
    assert [papers[f"made{n}"].abstract for n in range(3)] == [
        paper_made(0).abstract,
        paper_made(1).abstract,
        "",
    ]
    assert [papers[f"made{n}"].filled for n in range(3)] == [("abstract:pdf",)] * 2 + [()]
    assert "full texts   2 papers" in command("info", "library=mine")[1]


def test_a_paper_that_says_the_sentence_nearly_word_for_word_is_first(mine: Recommender) -> None:
    unsure, words = paper_made(1).sections[2][1][0].split(". ")[3].split(), SENTENCE.split()
    nearly = " ".join([*unsure[:4], *unsure[5:]])
    [first, *others] = mine.recommend(f"Nothing here. As others say, {nearly} [CITE]. Other words.", k=3)
    assert first.key == "made1" and first.probability == pytest.approx(SAID)
    assert all(paper.probability is not None and paper.probability < SAID for paper in others)
    texts = mine.library.full_texts
    assert texts is not None
    queries = Queries.from_list(mine.library.corpus, [Query(f"{SENTENCE} TARGETCIT.")])
    [[best]] = texts.find(queries, 1, np.ones(3, np.bool_))
    [[other]] = texts.find(queries, 1, np.arange(3) != best)
    assert [mine.library.paper(int(row)).key for row in (best, other)] == ["made1", "made0"]
    assert texts.literal(f"{' '.join(words[:8])} TARGETCIT.") == [], "of a longer sentence"
    assert texts.literal(f"{' '.join(words[::3])} quite other words here TARGETCIT.") == []


def test_a_sentence_is_shown_with_its_page(mine: Recommender, command: Run) -> None:
    shown = " ".join(command("ask", "library=mine", f"{SENTENCE} [CITE].", "k=1")[1].split())
    assert "made1" in shown and SENTENCE[:40] in shown and f"(p. {PAGE})" in shown
    [paper] = mine.recommend(f"{SENTENCE} [CITE].", k=1)
    assert paper.evidence.place is not None
    assert SENTENCE in paper.evidence.place.passage
    assert paper.evidence.place.section == "3 Method"
    assert paper.evidence.place.link == Path("pdfs/1.pdf").absolute().as_uri() + f"#page={PAGE}"


def test_without_full_texts_nothing_changes(bibliography: Path) -> None:
    text = bibliography.read_text(encoding="utf-8")
    (bibliography.parent / "plain.bib").write_text(text.replace("file=", "note="))
    run(["build", "library=plain", "source=plain.bib"])
    retriever = Library.open("plain").retriever
    assert isinstance(retriever, Ranker) and retriever.passages is None
    [first, *_] = Recommender.open("plain").recommend(f"{SENTENCE} [CITE].", explain=True)
    assert not any(name.startswith("passage") for name in first.features)


def test_the_library_is_followed(command: Run, bibliography: Path) -> None:
    run(BUILD)
    options = ("source=papers.bib", "fulltext=true", "pdfs=pdfs")
    assert "full texts: 3 papers" in command("add", "mine", *options)[1]
    assert "full texts: 2 papers" in command("remove", "mine", "id=made1")[1]
    with pytest.raises(InputError, match="key=made1: no paper"):
        Recommender.open("mine").passages("some words", "made1")
    entries = bibliography.read_text(encoding="utf-8").splitlines(keepends=True)
    bibliography.write_text("".join(line for line in entries if "made0" not in line), encoding="utf-8")
    assert "full texts: 1 paper, " in command("update", "mine", "force=true")[1]
    run(["add", "library=mine", "source=papers.bib", "fulltext=false"])
    assert not Path("mine/fulltexts").exists()
    assert Recommender.open("mine").recommend("some words")


def test_abstracts_of_pdfs_follow_them(bibliography: Path) -> None:
    def abstracts() -> list[str]:
        return [paper.abstract for paper in Library.open("mine").papers()]

    run(BUILD)
    before, text = abstracts(), bibliography.read_text(encoding="utf-8")
    text = text.replace("pdfs/0.pdf", "pdfs/2.pdf")
    bibliography.write_text(text.replace("pdfs/1.pdf", "pdfs/none.pdf"), encoding="utf-8")
    run(["update", "library=mine"])
    assert sorted(abstracts()) == sorted([paper_made(2).abstract, "", ""]) != sorted(before)
    run(["add", "library=mine", "fulltext=false"])
    assert abstracts() == [""] * 3 and not any(paper.filled for paper in Library.open("mine").papers())


def test_passages_of_one_paper(mine: Recommender) -> None:
    paper, found = mine.passages(SENTENCE, "made1", k=2)
    assert paper.key == "made1" and len(found) == 2
    assert found[0][0].rstrip(".") == SENTENCE
    assert SENTENCE in found[0][1].passage
    with pytest.raises(InputError, match="key=made2: has no full text"):
        mine.passages(SENTENCE, "made2")
    with pytest.raises(InputError, match="claim: has no words"):
        mine.passages(" ?", "made1")


def test_http_and_mcp(mine: Recommender) -> None:
    with serving(mine) as url:
        asked = {"text": f"{SENTENCE} [CITE].", "k": 1, "details": True}
        [paper] = httpx.post(f"{url}/recommend", json=asked).json()["recommendations"]
        passage = paper["details"]["passage"]
        assert SENTENCE in passage["text"] and passage["page"] == PAGE
        assert passage["link"] == f"pdf?id=doi%3A10.5555%2Fmade.1#page={PAGE}"
        pdf = httpx.get(f"{url}/{passage['link']}")
        assert pdf.content == Path("pdfs/1.pdf").read_bytes()
        assert "content-security-policy" not in pdf.headers
        claimed = httpx.post(f"{url}/passages", json={"claim": SENTENCE, "key": "made1", "k": 1}).json()
        assert claimed["passages"][0]["page"] == PAGE
        assert httpx.get(f"{url}/pdf?id=made2").status_code == 422
        assert httpx.get(f"{url}/pdf?id=../../etc/passwd").status_code == 404
    [found] = call_tools(make_server(mine), ("find_passage", {"claim": SENTENCE, "key": "made1"}))
    first = found.structured_content["passages"][0]
    assert first["link"].startswith("file://") and SENTENCE in first["text"]


def test_other_machines_get_no_paths(mine: Recommender) -> None:
    with serving(mine, host="0.0.0.0") as url:
        asked = {"text": f"{SENTENCE} [CITE].", "k": 1, "details": True}
        answer = httpx.post(f"{url}/recommend", json=asked)
        assert str(Path.cwd()) not in answer.text
        assert httpx.get(f"{url}/pdf?id=made1").status_code == 403


@pytest.mark.usefixtures("copied")
def test_a_damaged_index_is_one_line_and_update_mends_it() -> None:
    [file] = Path("mine/fulltexts").rglob("offsets.npy")
    file.write_bytes(file.read_bytes()[:-5])
    with pytest.raises(
        InputError, match=r"mine/fulltexts: damaged full texts \(.*offsets.npy.*\); write them anew: "
    ):
        Recommender.open("mine")
    run(["update", "library=mine"])
    assert Recommender.open("mine").passages(SENTENCE, "made1")


@pytest.mark.parametrize(
    "options, problem",
    [
        (["source=papers.bib", "pdfs=pdfs"], "pdfs needs fulltext=true"),
        (["source=papers.bib", "fulltext=true", "pdfs=nowhere"], "pdfs=.*nowhere: no such folder"),
    ],
)
def test_options(bibliography: Path, options: list[str], problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        run(["build", "library=new", *options])
    assert not Path("new").exists()


def test_claims_without_a_mark_are_not_cut(mine: Recommender) -> None:
    words = SENTENCE.split()
    claim = " ".join([*words, *["unrelated"] * 50])
    found = find_passages(mine, Claim(claim=claim, key="made1", k=1))
    assert SENTENCE in found.passages[0].text


@pytest.mark.usefixtures("copied")
def test_verify_and_questions_notice_a_text_that_has_changed() -> None:
    library = Library.open("mine")
    library.verify()
    file = Path("mine/fulltexts/texts.sqlite")
    with closing(sqlite3.connect(file)) as database:
        [(text,)] = database.execute("SELECT text FROM files WHERE file LIKE '%1.pdf'")
    content = file.read_bytes()
    at = content.index(text[-50:])
    file.write_bytes(content[:at] + bytes([content[at] ^ 4]) + content[at + 1 :])
    with pytest.raises(InputError, match=r"texts\.sqlite: damaged; remove it and run citerec update"):
        library.verify()
    with pytest.raises(InputError, match=r"texts\.sqlite: damaged"):
        Recommender.open("mine").recommend(SENTENCE)
