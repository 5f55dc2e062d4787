"""Links and citing sentences read from PDFs, measured against JATS beside them.

    python -m citerec.library.benchmark.citations FOLDER...

Each NAME.pdf with a NAME.xml beside it counts. The library is all that the lists of references in the XML
name, so that every work could be taken for another. A link is (PDF, cited work); a sentence is (PDF, cited
work, sentence), the same if they share SAME of their words.
"""

from __future__ import annotations

import random
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from citerec.base.errors import InputError, one_line_errors
from citerec.formats.articles.citing import Mark, find_marks
from citerec.formats.articles.xml_documents import read_paragraph, read_trees
from citerec.formats.bibliography.paper import LibraryPaper, make_paper
from citerec.formats.documents import FullText, Paragraph
from citerec.library.evidence.citations import is_sentence, marked_sentences
from citerec.library.evidence.links import Linker
from citerec.library.evidence.passages import cut
from citerec.library.evidence.quotations import PaperText
from citerec.library.evidence.reading import open_xml, read_here, xml_marks
from citerec.library.papers.merging import leaders_of

SAME = 0.6
"""Share of the words of two sentences, of all that they have, from which they are the same."""
_WORD = re.compile(r"[^\W\d_]{2,}")
Sentence = tuple[str, str]
"""A work that is cited, and a sentence that cites it."""


@dataclass
class Counts:
    """Numbers of what is read, of what is there, and of what is both."""

    read: int = 0
    there: int = 0
    both: int = 0

    def add(self, read: int, there: int, both: int) -> None:
        self.read, self.there, self.both = self.read + read, self.there + there, self.both + both

    def __str__(self) -> str:
        precision, recall = self.both / max(self.read, 1), self.both / max(self.there, 1)
        return (
            f"P {precision:.3f}, R {recall:.3f} ({self.both:,} of {self.read:,} read, {self.there:,} there)"
        )


class _Pair(NamedTuple):
    """A PDF, and what the XML beside it says. works: what its list names, as far as it has titles, by rows.
    others: sentences of captions, tables and notes, in which citations are not counted."""

    pdf: Path
    works: dict[int, LibraryPaper]
    sentences: set[Sentence]
    others: set[Sentence]


def find_pairs(folders: Sequence[str]) -> list[_Pair]:
    """Return the PDFs below folders that have a JATS or TEI file beside them. Raises InputError for none."""
    texts = dict[Path, tuple[FullText, list[Paragraph]]]()
    for pdf in (pdf for folder in folders for pdf in sorted(Path(folder).rglob("*.pdf"))):
        if (xml := pdf.with_suffix(".xml")).is_file() and pdf.stat().st_size:
            with suppress(InputError):  # without a running text
                texts[pdf] = open_xml(xml)[1], [*_others(xml)]
    if not texts:
        raise InputError(f"{' '.join(folders) or 'FOLDER'}: has no NAME.pdf with a NAME.xml beside it")
    papers, places = list[LibraryPaper](), list[tuple[Path, int]]()
    for pdf, (text, _) in texts.items():
        for row, entry in enumerate(text.references.values()):
            if entry.title:
                places.append((pdf, row))
                kinds = dict(identifier.split(":", 1) for identifier in entry.identifiers)
                ids = {"doi": kinds.get("doi", ""), "arxiv": entry.arxiv or kinds.get("arxiv", "")}
                named = {"title": entry.title, "authors": entry.authors, "year": entry.year}
                papers.append(make_paper(f"{len(papers)}", **ids, **named))
    works: dict[Path, dict[int, LibraryPaper]] = {pdf: {} for pdf in texts}
    for (pdf, row), leader in zip(places, leaders_of(papers), strict=True):
        works[pdf][row] = papers[leader]
    pairs = []
    for pdf, (text, others) in texts.items():
        there, aside = (
            _sentences([part.text for part in parts], xml_marks(parts, text.references), works[pdf])
            for parts in (text.paragraphs, others)
        )
        pairs.append(_Pair(pdf, works[pdf], there, aside - there))
    return pairs


def _others(xml: Path) -> Iterator[Paragraph]:
    with xml.open("rb") as file:
        for root in read_trees(file, str(xml)):
            for element in root.iter():
                if element.tag in ("caption", "td", "fn", "abstract", "boxed-text", "disp-quote"):
                    yield read_paragraph(element, "", (), lambda node: node.get("rid", "").split())


def _sentences(
    texts: Sequence[str], marks: Iterable[Mark], works: Mapping[int, LibraryPaper]
) -> set[Sentence]:
    """Return the sentences that cite works, by the rows of these."""
    return {
        (works[row].id, sentence)
        for mark, sentence in marked_sentences(texts, marks)
        for row in mark.entries
        if row in works
    }


def measure(pairs: Sequence[_Pair]) -> tuple[Counts, Counts]:
    """Return the counts of links and of sentences."""
    papers = {paper.id: paper for pair in pairs for paper in pair.works.values()}
    linker, links, sentences = Linker(papers.values()), Counts(), Counts()
    for pair in pairs:
        read = read_here(pair.pdf)
        found = ((row, linker.find(entry.text)) for row, entry in enumerate(read.entries))
        linked = {row: paper for row, paper in found if paper}
        cites, named = ({paper.id for paper in works.values()} for works in (linked, pair.works))
        links.add(len(cites), len(named), len(cites & named))
        if not pair.sentences:  # its XML marks no citation
            continue
        texts = [passage.text for passage in cut(read.parts)]
        cited = _sentences(texts, find_marks(texts, read.entries), linked)
        cited = {sentence for sentence in cited if is_sentence(sentence[1])}
        cited -= _matched(cited, pair.others)
        sentences.add(len(cited), len(pair.sentences), len(_matched(cited, pair.sentences)))
    return links, sentences


def _matched(read: Iterable[Sentence], there: Iterable[Sentence]) -> set[Sentence]:
    """Return the sentences that are the same as another, each of these once."""
    left, matched = [(work, {*_WORD.findall(text.lower())}) for work, text in there], set[Sentence]()
    for work, text in read:
        words = {*_WORD.findall(text.lower())}
        shares = [(work == cited) * len(words & other) / len(words | other or "-") for cited, other in left]
        if max(shares, default=0) >= SAME:
            matched.add((work, text))
            left.pop(shares.index(max(shares)))
    return matched


def check_quotations(pdfs: Sequence[Path], count: int) -> Counts:
    """Return how many of `count` quotations of PDFs are told to be wrong (read), are wrong (there), and both:
    half of them have another word, lack one, or name another page."""
    draw = random.Random(0)
    texts = [PaperText(LibraryPaper(""), read, cut(read.parts)) for read in map(read_here, pdfs)]
    texts = [text for text in texts if text.read.pages > 1 and text.passages]
    counts = Counts()
    for number in range(count):
        text = draw.choice(texts)
        passage = draw.choice(text.passages)
        words = [*re.finditer(r"\S+", passage.text)]
        start = draw.randrange(max(len(words) - 15, 1))
        some = words[start : start + draw.randint(6, 15)]
        quoted, page = [word[0] for word in some], passage.page(some[0].start())
        change = ("other", "less", "page")[number // 2 % 3] if number % 2 else ""
        if change == "page":
            page = draw.choice([other for other in range(1, text.read.pages + 1) if other != page])
        elif change:
            place = draw.randrange(1, len(quoted) - 1)
            quoted[place : place + 1] = [draw.choice(words)[0]] if change == "other" else []
        is_told = any(text.problems((page, page), " ".join(quoted)))
        counts.add(is_told, change != "", is_told and change != "")
    return counts


@one_line_errors
def main() -> None:
    pairs = find_pairs(sys.argv[1:])
    links, sentences = measure(pairs)
    quotations = check_quotations([pair.pdf for pair in pairs], 500)
    print(f"{len(pairs)} PDFs\nlinks: {links}\nsentences: {sentences}\nquotations: {quotations}")


if __name__ == "__main__":
    main()
