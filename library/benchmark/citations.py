"""Links and citing sentences read from PDFs, measured against JATS beside them.

    python -m citerec.library.benchmark.citations FOLDER...

Each NAME.pdf with a NAME.xml beside it counts. The library consists of all works that the lists of references
in the XML name, so that any work could be mistaken for another. A link is (PDF, cited work); a sentence is
(PDF, cited work, sentence), the same if they share SAME of their words.
"""

from __future__ import annotations

import random
import re
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from citerec.base.errors import InputError, one_line_errors
from citerec.formats.articles.citing import Mark, find_marks
from citerec.formats.bibliography.paper import LibraryPaper, make_paper
from citerec.formats.documents import FullText
from citerec.formats.letters import normalise_title
from citerec.library.evidence.citations import is_sentence, marked_sentences
from citerec.library.evidence.links import Linker
from citerec.library.evidence.passages import cut
from citerec.library.evidence.quotations import PaperText
from citerec.library.evidence.reading import open_xml, read_here, xml_marks

SAME = 0.6
"""Least share of common words among all words of two sentences for them to count as the same."""
_WORD = re.compile(r"[^\W\d_]{2,}")
Sentence = tuple[str, str]
"""A work that is cited, and a sentence that cites it."""


class _Pair(NamedTuple):
    """A PDF, and what the XML beside it says: the works in its list that have titles, by rows, and the
    sentences of its text that cite them."""

    pdf: Path
    works: dict[int, LibraryPaper]
    sentences: set[Sentence]


def find_pairs(folders: Sequence[str]) -> list[_Pair]:
    """Return the PDFs below folders that have a JATS or TEI file beside them. Raises InputError for none."""
    texts = dict[Path, FullText]()
    for pdf in (pdf for folder in folders for pdf in sorted(Path(folder).rglob("*.pdf"))):
        if (xml := pdf.with_suffix(".xml")).is_file() and pdf.stat().st_size:
            with suppress(InputError):  # without a running text
                texts[pdf] = open_xml(xml)[1]
    if not texts:
        raise InputError(f"{' '.join(folders) or 'FOLDER'}: has no NAME.pdf with a NAME.xml beside it")
    papers, pairs = dict[str, LibraryPaper](), list[_Pair]()
    for pdf, (paragraphs, references) in texts.items():
        works = dict[int, LibraryPaper]()
        for row, entry in enumerate(references.values()):
            if title := normalise_title(entry.title):
                listed = make_paper(title, title=entry.title, authors=entry.authors, year=entry.year)
                works[row] = papers.setdefault(title, listed)
        marks = xml_marks(paragraphs, references)
        there = _sentences([part.text for part in paragraphs], marks, works)
        pairs.append(_Pair(pdf, works, there))
    return pairs


def _sentences(
    texts: Sequence[str], marks: Iterable[Mark], works: Mapping[int, LibraryPaper]
) -> set[Sentence]:
    """Return the sentences that cite works. works: by row of the list of references."""
    marked = marked_sentences(texts, marks)
    return {(works[row].id, text) for mark, text in marked for row in mark.entries if row in works}


def measure(pairs: Sequence[_Pair]) -> tuple[Counter[str], Counter[str]]:
    """Return how many links, and sentences, are read from PDFs (read), are in the XML (there), and both."""
    papers = {paper.id: paper for pair in pairs for paper in pair.works.values()}
    linker, links, sentences = Linker(papers.values()), Counter[str](), Counter[str]()
    for pdf, works, there in pairs:
        read = read_here(pdf)
        found = ((row, linker.find(entry.text)) for row, entry in enumerate(read.entries))
        linked = {row: paper for row, paper in found if paper}
        cites, named = ({paper.id for paper in listed.values()} for listed in (linked, works))
        links.update(read=len(cites), there=len(named), both=len(cites & named))
        if there:  # its XML marks citations
            texts = [part.text for part in (read.parts if read.marks else cut(read.parts))]
            cited = _sentences(texts, read.marks or find_marks(texts, read.entries), linked)
            whole = [sentence for sentence in cited if is_sentence(sentence[1])]
            sentences.update(read=len(whole), there=len(there), both=_matched(whole, there))
    return links, sentences


def _matched(read: Iterable[Sentence], there: Iterable[Sentence]) -> int:
    """Return how many sentences are the same as one of the others, each of which counts once."""
    left, matched = [(work, {*_WORD.findall(text.lower())}) for work, text in there], 0
    for work, text in read:
        words = {*_WORD.findall(text.lower())}
        shares = [(work == cited) * len(words & other) / len(words | other or "-") for cited, other in left]
        if max(shares, default=0) >= SAME:
            matched += 1
            left.pop(shares.index(max(shares)))
    return matched


def check_quotations(pdfs: Sequence[Path], count: int) -> Counter[str]:
    """Return how many of `count` quotations of PDFs are told to be wrong (read), are wrong (there), and both:
    half of them have another word, lack one, or name another page."""
    draw = random.Random(0)
    texts = [PaperText(LibraryPaper(""), read, cut(read.parts)) for read in map(read_here, pdfs)]
    texts = [text for text in texts if text.read.pages > 1 and text.passages]
    counts = Counter[str]()
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
        counts.update(read=is_told, there=change != "", both=is_told and change != "")
    return counts


@one_line_errors
def main() -> None:
    pairs = find_pairs(sys.argv[1:])
    links, sentences = measure(pairs)
    quotations = check_quotations([pair.pdf for pair in pairs], 500)
    print(f"{len(pairs)} PDFs")
    for name, counts in {"links": links, "sentences": sentences, "quotations": quotations}.items():
        read, there, both = counts["read"], counts["there"], counts["both"]
        shares = f"P {both / max(read, 1):.3f}, R {both / max(there, 1):.3f}"
        print(f"{name}: {shares} ({both:,} of {read:,} read, {there:,} there)")


if __name__ == "__main__":
    main()
