"""Papers with PDFs, for tests of full texts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from citerec.formats.bibliography.paper import LibraryPaper
from citerec.tests.made_pdfs import MadePaper, made_paper

WORDS = 1200


def write_papers(folder: Path, numbers: Sequence[int]) -> list[LibraryPaper]:
    """Write PDFs N.pdf; returns their papers, by DOI."""
    folder.mkdir(parents=True, exist_ok=True)
    papers = []
    for number in numbers:
        made = paper_made(number)
        (folder / f"{number}.pdf").write_bytes(made.pdf())
        doi = f"10.5555/made.{number}"
        file = str(folder / f"{number}.pdf")
        papers.append(LibraryPaper(f"doi:{doi}", f"made{number}", made.title, doi=doi, files=(file,)))
    return papers


def paper_made(number: int) -> MadePaper:
    return made_paper(number, WORDS)
