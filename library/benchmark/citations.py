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
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from citerec.base.errors import InputError, one_line_errors
from citerec.datasets.building.readers import SourceFile, read_documents
from citerec.formats.articles.citing import find_marks
from citerec.formats.articles.xml_documents import read_paragraph, read_trees
from citerec.formats.bibliography.paper import LibraryPaper, make_paper
from citerec.formats.documents import FullText, Paragraph
from citerec.library.evidence.citations import marked_sentences, sentence_at, sentence_bounds
from citerec.library.evidence.links import Linker
from citerec.library.evidence.passages import cut
from citerec.library.evidence.quotations import PaperText
from citerec.library.evidence.reading import read_here
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
    """A PDF and the document beside it."""

    pdf: Path
    text: FullText
    others: list[Paragraph]
    """captions, tables and notes, in which citations are not counted"""


def find_pairs(folders: Sequence[str]) -> list[_Pair]:
    """Return the PDFs below folders that have a JATS or TEI file beside them. Raises InputError for none."""
    pairs = []
    for folder in folders:
        for pdf in sorted(Path(folder).rglob("*.pdf")):
            xml = pdf.with_suffix(".xml")
            if xml.is_file() and pdf.stat().st_size:
                documents = read_documents(SourceFile(xml, str(xml)), lambda _: None)
                pairs += [
                    _Pair(pdf, document.full_text(), [*_others(xml)])
                    for document in documents
                    if document.full_text
                ]
    if not pairs:
        raise InputError(f"{' '.join(folders) or 'FOLDER'}: has no NAME.pdf with a NAME.xml beside it")
    return pairs


def _works(pairs: Sequence[_Pair]) -> tuple[list[LibraryPaper], list[dict[str, str]]]:
    """Return what the lists of references name, each work once; and for each pair, their ids by the names
    that it has in the XML."""
    papers, names = list[LibraryPaper](), list[tuple[int, str]]()
    for number, pair in enumerate(pairs):
        for name, entry in pair.text.references.items():
            if entry.title:
                names.append((number, name))
                kinds = dict(identifier.split(":", 1) for identifier in entry.identifiers)
                ids = {"doi": kinds.get("doi", ""), "arxiv": entry.arxiv or kinds.get("arxiv", "")}
                named = {"title": entry.title, "authors": entry.authors, "year": entry.year}
                papers.append(make_paper(f"{len(papers)}", **ids, **named))
    works = [dict[str, str]() for _ in pairs]
    leaders = leaders_of(papers)
    for (number, name), leader in zip(names, leaders, strict=True):
        works[number][name] = papers[leader].id
    return [papers[place] for place in dict.fromkeys(leaders)], works


def _others(xml: Path) -> Iterator[Paragraph]:
    with xml.open("rb") as file:
        for root in read_trees(file, str(xml)):
            for element in root.iter():
                if element.tag in ("caption", "td", "fn", "abstract", "boxed-text", "disp-quote"):
                    yield read_paragraph(element, "", (), lambda node: node.get("rid", "").split())


def _sentences(paragraphs: Iterable[Paragraph], works: Mapping[str, str]) -> set[Sentence]:
    """Return the sentences that cite works, by the names of these in the XML."""
    sentences = set()
    for text, spans, *_ in paragraphs:
        bounds = sentence_bounds(text, [span[:2] for span in spans])
        for start, _, ref in spans:
            if (work := works.get(str(ref))) is not None:
                sentences.add((work, sentence_at(text, bounds, start)))
    return sentences


def measure(pairs: Sequence[_Pair]) -> tuple[Counts, Counts]:
    """Return the counts of links and of sentences."""
    papers, named_by = _works(pairs)
    linker, links, sentences = Linker(papers), Counts(), Counts()
    for pair, works in zip(pairs, named_by, strict=True):
        there = _sentences(pair.text.paragraphs, works)
        read = read_here(pair.pdf)
        found = ((row, linker.find(entry.text)) for row, entry in enumerate(read.entries))
        linked = {row: paper.id for row, paper in found if paper}
        cites, named = {*linked.values()}, {*works.values()}
        links.add(len(cites), len(named), len(cites & named))
        if not there:  # its XML marks no citation
            continue
        texts = [passage.text for passage in cut(read.parts)]
        marks = find_marks(texts, read.entries)
        cited = {
            (linked[row], sentence)
            for mark, sentence in marked_sentences(texts, marks)
            for row in mark.entries
            if row in linked
        }
        aside = _sentences(pair.others, works) - there
        cited -= {sentence for sentence, _ in _matched(cited, aside)}
        sentences.add(len(cited), len(there), len([*_matched(cited, there)]))
    return links, sentences


def _matched(read: Iterable[Sentence], there: Iterable[Sentence]) -> Iterator[tuple[Sentence, Sentence]]:
    """Yield pairs of sentences that are the same, each once."""
    left = dict[str, list[tuple[Sentence, frozenset[str]]]]()
    for sentence in there:
        left.setdefault(sentence[0], []).append((sentence, _words(sentence[1])))
    for sentence in read:
        words, others = _words(sentence[1]), left.get(sentence[0], [])
        alike = [len(words & other) / max(len(words | other), 1) for _, other in others]
        if alike and max(alike) >= SAME:
            yield sentence, others.pop(alike.index(max(alike)))[0]


def _words(text: str) -> frozenset[str]:
    return frozenset(word.lower() for word in _WORD.findall(text))


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
