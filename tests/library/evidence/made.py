"""Papers with PDFs, for tests of full texts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from citerec.formats.bibliography.paper import LibraryPaper
from citerec.library.evidence.index import WordsEncoder
from citerec.retrieval.arrays import Floats
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


class HashedWords(WordsEncoder):
    """An encoder: each word adds 1 to one of the dimensions."""

    def __init__(self) -> None:
        self.name, self.dim = "hashed words", 32

    def encode(self, texts: Sequence[str]) -> Floats:
        vectors = np.zeros((len(texts), self.dim), np.float32)
        for row, text in enumerate(texts):
            for word in text.lower().split():
                vectors[row, sum(map(ord, word)) % self.dim] += 1
        return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-9)

    encode_queries = encode
