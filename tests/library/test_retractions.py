"""Retracted papers: Retraction Watch's file, and what is said of them wherever papers are shown."""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import shutil
from pathlib import Path

import pytest

from citerec import recommend
from citerec.formats.bibliography.paper import LibraryPaper, fill_again, make_paper, merge_records
from citerec.library.ask.recommender import Recommender
from citerec.library.drafts.copies import plan_copies, write_copies
from citerec.library.drafts.reader import read_draft
from citerec.library.drafts.suggest import suggest
from citerec.library.papers.library import Library
from citerec.library.serve.messages import Question, answer_question
from citerec.tests.conftest import Run
from citerec.tests.library.conftest import papers_of

HEAD = (
    "Record ID,Title,Subject,Institution,Journal,Publisher,Country,Author,URLS,ArticleType,RetractionDate,"
    "RetractionDOI,RetractionPubMedID,OriginalPaperDate,OriginalPaperDOI,OriginalPaperPubMedID,"
    "RetractionNature,Reason,Paywalled,Notes"
)


def line(title: str, author: str, date: str, doi: str, nature: str, pmid: int = 0) -> str:
    return (
        f'1,"{title}",,,J,,,{author},,,{date} 0:00,10.1000/notice,0,1/2/2001 0:00,{doi},{pmid},{nature},,No,'
    )


CSV = "\n".join(
    [
        HEAD,
        line("Graphs, and their edges", "Ann Lee;Bo Ek", "2/6/2010", "10.1000/GRAPHS", "Retraction"),
        line("Cells in water", "Cy Oh", "3/4/2011", "unavailable", "Retraction", 123),
        line("Speech in parts", "Di Fu", "1/1/2012", "10.1000/speech", "Retraction"),
        line("Speech in parts", "Di Fu", "2/1/2012", "10.1000/speech", "Reinstatement"),
        line("Trees without leaves", "Ed Go", "1/1/2012", "10.1000/trees", "Expression of concern"),
        line("Of no library", "X", "1/1/2012", "10.1000/none", "Retraction"),
    ]
)
BIB = """
@article{graphs, title = {Graphs, and their edges}, author = {Ann Lee and Bo Ek}, doi = {10.1000/graphs},
  abstract = {We study graphs, and count the edges that each of their vertices has in all of them.}}
@article{cells, title = {Cells in water}, author = {Cy Oh}, year = 2001, journal = {J},
  abstract = {Cells swim in water, and we count how many of them do so for how long, in each season.},
  doi = {10.1000/cells}, url = {https://pubmed.ncbi.nlm.nih.gov/123/}}
@article{speech, title = {Speech in parts}, author = {Di Fu}, year = 2001, doi = {10.1000/speech}}
@article{trees, title = {Trees without leaves}, author = {Ed Go}, year = 2001, doi = {10.1000/trees}}
@article{title, title = {RETRACTED ARTICLE: Stones that float}, author = {Flo Hay}, year = 2002}
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a library of BIB that was completed from CSV."""
    folder, told = tmp_path_factory.mktemp("built"), io.StringIO()
    with contextlib.chdir(folder), contextlib.redirect_stdout(told):
        Path("a.bib").write_text(BIB, encoding="utf-8")
        Path("watch.csv").write_text(f"\ufeff{CSV}", encoding="utf-8")
        recommend.run(["build", "library=mine", "source=a.bib"])
        recommend.run(["enrich", "library=mine", "from=watch.csv"])
    line = "retracted: cells: Cells in water (Retraction Watch, 2011-03-04, doi:10.1000/notice)"
    assert line in told.getvalue()
    return folder


@pytest.fixture
def run(built: Path, command: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    """Runs citerec beside a copy of the library."""
    shutil.copytree(built, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return command


def test_retraction_watch(run: Run) -> None:
    told = {paper.key: paper.retracted for paper in papers_of(Library.open("mine"))}
    assert told == {
        "graphs": "Retraction Watch, 2010-02-06, doi:10.1000/notice",
        "cells": "Retraction Watch, 2011-03-04, doi:10.1000/notice",
        "speech": "",
        "trees": "",
        "title": "its title",
    }
    assert "completed 0" in run("enrich", "library=mine", "from=watch.csv")[1]
    Path("other.csv").write_text("RetractionNature,b\n1,2\n", encoding="utf-8")
    code, _, err = run("enrich", "library=mine", "from=other.csv")
    assert (
        code == 2 and "from=other.csv: is not Retraction Watch's CSV file, as it has no column Title" in err
    )


def test_tables_of_papers_and_gzipped_ones(run: Run, tmp_path: Path) -> None:
    """A table is Retraction Watch's by its columns, not by its name."""
    Path("own.bib").write_text(
        "@article{a, title = {Graphs, and their edges}, doi = {10.1000/graphs}}", encoding="utf-8"
    )
    assert run("build", "library=fresh", "source=own.bib")[0] == 0
    with gzip.open("watch.csv.gz", "wt") as file:
        file.write(CSV.replace(",0,Retraction", f",{'9' * 5000},Retraction"))
    code, out, _ = run("enrich", "library=fresh", "from=watch.csv.gz")
    assert code == 0 and "retracted: a: Graphs, and their edges (Retraction Watch, 2010-02-06" in out
    abstract = "We study graphs, and count the edges that each of their vertices has in all of them."
    Path("table.csv").write_text(
        f'title,doi,abstract\n"Graphs, and their edges",10.1000/graphs,"{abstract}"\n', encoding="utf-8"
    )
    assert "completed 1: 1 abstract" in run("enrich", "library=fresh", "from=table.csv")[1]


def test_ask_and_search(run: Run) -> None:
    question = "Some count the edges of graphs [CITE]."
    shown = " ".join(run("ask", "library=mine", question)[1].split())
    assert "retracted (Retraction Watch, 2010-02-06, doi:10.1000/notice)" in shown
    _, out, err = run("ask", "library=mine", question, "k=1", "format=cite")
    assert "graphs" in out and err == "graphs: retracted (Retraction Watch, 2010-02-06, doi:10.1000/notice)\n"
    [found] = json.loads(run("ask", "library=mine", question, "k=1", "format=json")[1])
    assert found["retracted"].startswith("Retraction Watch")
    [paper] = json.loads(run("search", "library=mine", "stones", "format=json")[1])
    assert paper["retracted"] == "its title"
    answer = answer_question(Recommender.open("mine"), Question(text=question))
    assert answer.recommendations[0].retracted.startswith("Retraction Watch")


@pytest.mark.parametrize("library", [True, False])
def test_check(run: Run, library: bool) -> None:
    Path("paper.tex").write_text(
        "\\documentclass{article}\\begin{document}\n"
        "Some \\cite{own, title} and \\cite{cells, speech}.\n"
        "\\bibliography{own}\\end{document}",
        encoding="utf-8",
    )
    entries = BIB.replace("{graphs,", "{own,").split("@article{cells")
    Path("own.bib").write_text(
        f"{entries[0]}@article{{title{BIB.split('@article{title')[1]}", encoding="utf-8"
    )
    code, out, _ = run("check", "paper.tex", "strict=true", *(["library=mine"] if library else []))
    lines = [line for line in out.splitlines() if " was retracted" in line]
    of_library = [
        "own.bib:2: own was retracted (Retraction Watch, 2010-02-06, doi:10.1000/notice)",
        "paper.tex:2: cells was retracted (Retraction Watch, 2011-03-04, doi:10.1000/notice)",
    ]
    of_title = ["own.bib:4: title was retracted (its title)"]
    assert code == 1 and sorted(lines) == sorted([*(of_library if library else []), *of_title])


def test_fill_inserts_none(run: Run, tmp_path: Path) -> None:
    draft = tmp_path / "draft.md"
    draft.write_text("# A draft\n\nSome count the edges of graphs and their vertices [@?].\n")
    recommender, parsed = Recommender.open("mine"), read_draft(draft)
    found = suggest(parsed, recommender, 3)
    assert found.papers[0][0].key == "graphs"
    library = recommender.library
    assert isinstance(library, Library)
    write_copies(found, library, plan_copies(parsed, tmp_path / "new.md", None), 0.0)
    written = (tmp_path / "new.md").read_text()
    assert "@graphs" not in written and "@?" not in written and "[@" in written


def test_marks_survive_merging() -> None:
    told = make_paper(title="On graphs", doi="10.1000/a", filled=("retracted:Crossref",))
    own = make_paper(title="On graphs", doi="10.1000/a", abstract="Mine.")
    merged = merge_records([own, told])
    assert (merged.abstract, merged.retracted) == ("Mine.", "Crossref")
    assert merge_records([told, merged]).filled == ("retracted:Crossref",)
    corrected = own._replace(doi="10.1000/b")  # the retraction is of another work
    assert fill_again(own, told).retracted and not fill_again(corrected, told).retracted
    titled = own._replace(title="RETRACTED: On graphs")
    assert merge_records([own, titled]).retracted == merge_records([titled, own]).retracted == "its title"


@pytest.mark.parametrize(
    "title, told",
    [
        ("[RETRACTED] On graphs", True),
        ("Retracted: On graphs", True),
        ("WITHDRAWN – On graphs", True),
        ("Retracted papers are cited for years", False),
        ("Retraction notice to “On graphs”", False),
    ],
)
def test_titles(title: str, told: bool) -> None:
    assert bool(LibraryPaper("a", title=title).retracted) == told
