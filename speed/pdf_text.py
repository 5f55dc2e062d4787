"""Text of PDFs compared with pdftotext, pypdf and PyMuPDF: words, their order, and pages per second.

The truth is the JATS file of the same paper: `git clone https://github.com/openjournals/jose-papers`, then
`python -m citerec.speed.pdf_text --papers jose-papers`. A paper that lacks either file is left out.
"""

from __future__ import annotations

import argparse
import importlib.util
import re
import shutil
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from citerec.base.packages import compiled
from citerec.datasets.fulltext.jats import read_jats
from citerec.datasets.fulltext.pdf import read_pdf
from citerec.datasets.fulltext.xml_documents import read_trees

Reader = Callable[[Path], tuple[str, int]]
"""A PDF to its text and number of pages."""
_WORD = re.compile(r"[^\W_]+")


def ours(file: Path) -> tuple[str, int]:
    found = read_pdf(file)
    return " ".join(paragraph.text for paragraph in found.paragraphs), found.pages


def pdftotext(file: Path) -> tuple[str, int]:
    command = ["pdftotext", "-enc", "UTF-8", str(file), "-"]
    text = subprocess.run(command, capture_output=True, check=True).stdout.decode("utf-8", "replace")
    return text, text.count("\f")


def pypdf(file: Path) -> tuple[str, int]:
    import pypdf as library

    pages = [page.extract_text() for page in library.PdfReader(file).pages]
    return "\n".join(pages), len(pages)


def pymupdf(file: Path) -> tuple[str, int]:
    import pymupdf as library

    flags = library.TEXTFLAGS_TEXT | library.TEXT_DEHYPHENATE
    with library.open(file) as document:
        return "\n".join(page.get_text(flags=flags) for page in document), len(document)


PEERS: dict[str, Reader] = {"pdftotext": pdftotext, "pypdf": pypdf, "pymupdf": pymupdf}


def available(name: str) -> bool:
    return bool(shutil.which(name) or importlib.util.find_spec(name))


def papers(folder: Path) -> Iterator[tuple[Path, list[str]]]:
    """Yield each PDF that has JATS beside it, and the words of its abstract and body."""
    for source in sorted(file for file in folder.rglob("*.jats") if file.is_file()):
        found = sorted(folder.glob(f"{source.relative_to(folder).parts[0]}/*.pdf"))
        if found:
            with source.open("rb") as file:
                [root] = read_trees(file, str(source))
            document = read_jats(root, source.stem, str(source))
            assert document.full_text is not None
            texts = [document.metadata.abstract, *(part.text for part in document.full_text().paragraphs)]
            yield found[0], words(" ".join(texts))


def words(text: str) -> list[str]:
    return _WORD.findall(text.lower())


@compiled()
def common_length(a: NDArray[np.int64], b: NDArray[np.int64]) -> int:
    """The length of the longest common subsequence."""
    row = np.zeros(len(b) + 1, np.int64)
    for x in a:
        corner = 0
        for j in range(len(b)):
            above = row[j + 1]
            row[j + 1] = corner + 1 if x == b[j] else max(above, row[j])
            corner = above
    return int(row[-1])


def compare(found: list[str], true: list[str]) -> NDArray[np.float64]:
    """Recall and precision of words, and the share of the true words that are found in their order."""
    ids = {word: i for i, word in enumerate(dict.fromkeys([*true, *found]))}
    a, b = (np.array([ids[word] for word in text], np.int64) for text in (true, found))
    shared = (Counter(found) & Counter(true)).total()
    return np.array([shared / len(true), shared / max(len(found), 1), common_length(a, b) / len(true)])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--papers", type=Path, default=Path("jose-papers"), help="folders with PDF and JATS")
    parser.add_argument("--worst", type=int, default=0, help="list our papers with fewest words in order")
    args = parser.parse_args()
    collection = list(papers(args.papers))
    if not collection:
        raise SystemExit(f"{args.papers}: has no PDF with a .jats file beside it")
    print(f"{len(collection)} papers, {sum(len(true) for _, true in collection):,} words")
    readers = {"ours": ours} | {name: reader for name, reader in PEERS.items() if available(name)}
    if missing := PEERS.keys() - readers.keys():
        print("not installed:", ", ".join(sorted(missing)))
    print(f"{'':10} recall  precision  in order  pages/s")
    for name, reader in readers.items():
        start, pages, measures, seconds = 0.0, 0, [], 0.0
        for file, true in collection:
            start = time.perf_counter()
            text, count = reader(file)
            seconds, pages = seconds + time.perf_counter() - start, pages + count
            measures.append(compare(words(text), true))
        recall, precision, order = np.mean(measures, axis=0)
        print(f"{name:10} {recall:6.3f}  {precision:9.3f}  {order:8.3f}  {pages / seconds:7.0f}")
        if name == "ours":
            worst = np.argsort([values[2] for values in measures])[: args.worst]
            for i in worst.tolist():
                print("  ", collection[i][0].name, measures[i].round(3))


if __name__ == "__main__":
    main()
