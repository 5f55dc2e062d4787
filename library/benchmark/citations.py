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
from pathlib import Path
from typing import NamedTuple

from citerec.base.errors import InputError, one_line_errors
from citerec.datasets.building.readers import SourceFile, read_documents
from citerec.formats.articles.citing import find_marks
from citerec.formats.articles.xml_documents import read_paragraph, read_trees
from citerec.formats.bibliography.paper import LibraryPaper, make_paper
from citerec.formats.documents import Document, Paragraph, Reference
from citerec.library.evidence.citations import is_sentence, sentence_bounds, sentence_of
from citerec.library.evidence.links import Linker
from citerec.library.evidence.passages import cut
from citerec.library.evidence.quotations import PaperText
from citerec.library.evidence.reading import read_here
from citerec.library.papers.merging import leaders_of

SAME = 0.6
"""Share of the words of two sentences, of all that they have, from which they are the same."""
_WORD = re.compile(r"[^\W\d_]{2,}")
Sentence = tuple[int, str]
"""A work that is cited, and a sentence that cites it."""


class Counts(NamedTuple):
    """Numbers of what is read, of what is there, and of what is both."""

    read: int
    there: int
    both: int

    def __str__(self) -> str:
        precision, recall = self.both / max(self.read, 1), self.both / max(self.there, 1)
        return (
            f"P {precision:.3f}, R {recall:.3f} ({self.both:,} of {self.read:,} read, {self.there:,} there)"
        )


class _Pair(NamedTuple):
    """A PDF and the document beside it."""

    name: str
    pdf: Path
    document: Document
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
                others = list(_others(xml))
                pairs += [
                    _Pair(str(pdf), pdf, document, others) for document in documents if document.full_text
                ]
    if not pairs:
        raise InputError(f"{' '.join(folders) or 'FOLDER'}: has no NAME.pdf with a NAME.xml beside it")
    return pairs


def _paper(id: str, entry: Reference) -> LibraryPaper:
    kinds = dict(name.split(":", 1) for name in entry.identifiers)
    arxiv = entry.arxiv or kinds.get("arxiv", "")
    named = {"title": entry.title, "authors": entry.authors, "year": entry.year}
    return make_paper(id, doi=kinds.get("doi", ""), arxiv=arxiv, **named)


def _others(xml: Path) -> Iterator[Paragraph]:
    with xml.open("rb") as file:
        for root in read_trees(file, str(xml)):
            for element in root.iter():
                if element.tag in ("caption", "td", "fn", "abstract", "boxed-text", "disp-quote"):
                    yield read_paragraph(element, "", (), lambda node: node.get("rid", "").split())


def _sentences(paragraphs: Iterable[Paragraph], works: Mapping[str, int]) -> set[Sentence]:
    """Return the sentences that cite works, by the names of these in the XML."""
    sentences = set()
    for text, spans, _ in paragraphs:
        bounds = sentence_bounds(text, [span[:2] for span in spans])
        for start, _, ref in spans:
            if (work := works.get(str(ref))) is not None:
                sentences.add((work, text[slice(*sentence_of(bounds, start))]))
    return sentences


def measure(pairs: Sequence[_Pair], show: int = 0) -> tuple[Counts, Counts]:
    """Return the counts of links and of sentences. show: print this many errors of each kind."""
    papers, places = list[LibraryPaper](), dict[tuple[int, str], int]()
    texts = [pair.document.full_text() if pair.document.full_text else None for pair in pairs]
    for number, text in enumerate(texts):
        for ref, entry in text.references.items() if text else ():
            if entry.title:
                places[number, ref] = len(papers)
                papers.append(_paper(f"{number}:{len(papers)}", entry))
    leaders = leaders_of(papers)
    same = {paper.id: leader for paper, leader in zip(papers, leaders, strict=True)}
    linker = Linker(papers[place] for place in dict.fromkeys(leaders))
    links, sentences = [0, 0, 0], [0, 0, 0]
    for number, (pair, text) in enumerate(zip(pairs, texts, strict=True)):
        assert text is not None
        own_places = {ref: leaders[place] for (own, ref), place in places.items() if own == number}
        there = _sentences(text.paragraphs, own_places)
        aside = _sentences(pair.others, own_places)
        read = read_here(pair.pdf)
        linked = {row: same[paper.id] for row, paper in linker.link(read.entries).items()}
        found, works = set(linked.values()), set(own_places.values())
        _add(links, found, works)
        if show:
            for work in list(found - works)[:show]:
                row = next(row for row, own in linked.items() if own == work)
                print(f"{pair.name}: not there: {read.entries[row].text} -> {papers[work]}")
            for work in list(works - found)[:show]:
                print(f"{pair.name}: not read: {papers[work].title} {papers[work].year}")
        if not there:  # its XML marks no citation
            continue
        passages = [passage.text for passage in cut(read.parts)]
        cited = set[tuple[int, str]]()
        marks = find_marks(passages, read.entries)
        for mark in marks:
            own = [other[1:3] for other in marks if other.text == mark.text]
            edges = sentence_bounds(passages[mark.text], own)
            sentence = passages[mark.text][slice(*sentence_of(edges, mark.start))]
            if is_sentence(sentence):
                cited |= {(linked[row], sentence) for row in mark.entries if row in linked}
        cited -= {sentence for sentence, _ in _matched(cited, aside - there)}
        both = list(_matched(cited, there))
        for place, count in enumerate((len(cited), len(there), len(both))):
            sentences[place] += count
        if show:
            wrong = cited - {pair[0] for pair in both}
            missed = there - {pair[1] for pair in both}
            print(f"{pair.name}: sentences {len(cited)} read, {len(there)} there, {len(both)} both")
            for work, sentence in list(wrong)[:show]:
                print(f"   - {papers[work].title[:40]} | {sentence}")
            for work, sentence in list(missed)[:show]:
                print(f"   + {papers[work].title[:40]} | {sentence}")
    return Counts(*links), Counts(*sentences)


def _add(counts: list[int], read: set[int], there: set[int]) -> None:
    for place, some in enumerate((read, there, read & there)):
        counts[place] += len(some)


def _matched(read: Iterable[Sentence], there: Iterable[Sentence]) -> Iterator[tuple[Sentence, Sentence]]:
    """Yield pairs of sentences that are the same, each once."""
    left: dict[int, list[tuple[Sentence, frozenset[str]]]] = {}
    for sentence in there:
        left.setdefault(sentence[0], []).append((sentence, _words(sentence[1])))
    for sentence in read:
        words, others = _words(sentence[1]), left.get(sentence[0], [])
        alike = [len(words & other) / max(len(words | other), 1) for _, other in others]
        if alike and max(alike) >= SAME:
            yield sentence, others.pop(alike.index(max(alike)))[0]


def _words(text: str) -> frozenset[str]:
    return frozenset(word.lower() for word in _WORD.findall(text))


def check_quotations(pdfs: Sequence[Path], count: int, seed: int = 0) -> Counts:
    """Return how many of `count` quotations of PDFs are told to be wrong (read), are wrong (there), and both:
    half of them have another word, lack one, or name another page."""
    draw = random.Random(seed)
    texts = [
        PaperText(LibraryPaper(pdf.stem), read, cut(read.parts)) for pdf in pdfs for read in [read_here(pdf)]
    ]
    texts = [text for text in texts if text.read.pages > 1 and text.passages]
    told = wrong = both = 0
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
        told, wrong, both = told + is_told, wrong + bool(change), both + (is_told and bool(change))
    return Counts(told, wrong, both)


@one_line_errors
def main() -> None:
    arguments = sys.argv[1:]
    show = next((int(word.removeprefix("show=")) for word in arguments if word.startswith("show=")), 0)
    pairs = find_pairs([word for word in arguments if not word.startswith("show=")])
    links, sentences = measure(pairs, show)
    quotations = check_quotations([pair.pdf for pair in pairs], 500)
    print(f"{len(pairs)} PDFs\nlinks: {links}\nsentences: {sentences}\nquotations: {quotations}")


if __name__ == "__main__":
    main()
