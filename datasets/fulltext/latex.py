"""LaTeX documents with their bibliography, one paper a document.

Title, abstract, authors and date are what the document says. A section ends where the next or a smaller one
begins. Citations are what the macros of LaTeX, natbib, biblatex and apacite print, a span for each key; notes
in their optional arguments are left out, as are footnotes, figures, tables and displayed formulas.
"""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path

from datasets.fulltext.latex_bibliography import read_bibliography
from datasets.fulltext.latex_source import arguments, read_source
from datasets.fulltext.latex_text import plain, running_text
from datasets.fulltext.names import arxiv_year
from datasets.fulltext.schema import Cite, FullText, Paper, Paragraph, Record

_TITLE = re.compile(r"\\(?:icml|twocolumn)?[tT]itle\*?\s*(?:\[[^\]]{0,1000}\]\s*)?(?=\{)")
_ABSTRACT = re.compile(r"\\begin\s*\{abstract\}")
_ABSTRACT_ENDS = re.compile(r"\\end\s*\{abstract\}")
_ABSTRACT_MACRO = re.compile(r"\\abstract\s*(?=\{)")
_AUTHOR = re.compile(r"\\(?:icml)?[aA]uthor\*?\s*(?:\[[^\]]{0,1000}\]\s*)?(?=\{)")
_BETWEEN_AUTHORS = re.compile(r"\\and\b|\\And\b|\\AND\b|,|\band\b|\\quad\b|\\qquad\b|&")
_NAME = re.compile(r"[^\W\d_][\w.'’-]*(?: [\w.'’-]+){1,4}")
_DATE = re.compile(r"\\date\s*(?=\{)")
_YEAR = re.compile(r"(?<!\d)(?:19|20)\d\d(?!\d)")
_BODY = re.compile(r"\\begin\s*\{document\}(.*?)(?:\\end\s*\{document\}|$)", re.DOTALL)
_SECTION = re.compile(r"\\(?:part|chapter|(?:sub){0,2}section)\*?\s*(?:\[[^\]]{0,1000}\]\s*)?(?=\{)")

_NOTES = r"(?:\s*(?:\[[^\[\]]*\]|<[^<>]*>)){0,2}"
_KEYS = rf"{_NOTES}\s*\{{([^{{}}]*)\}}"
_CITATION = re.compile(
    r"\\(?:[cC]ite[a-zA-Z]*|(?:[pP]aren|[tT]ext|[aA]uto|[sS]mart|[sS]uper|[fF]oot|[fF]ull|[oO]nline|short)cite[a-zA-Z]*)"
    rf"\*?((?:{_KEYS})+)"
)
_ONE_OF_ITS_KEYS = re.compile(_KEYS)
_NO_CITATION = re.compile(r"\\(?:citestyle|setcitestyle|citenamefont|citetext)\b")
_AUTHOR_AND_YEAR = re.compile(
    r"\\[cC]iteauthor(\*?)\{([^{}]*)\}[\s~]*[(\[]?\\cite(?:year|yearpar|num)\*?\{\2\}[)\]]?"
)
_MARK = re.compile("\ue000(\\d+)\ue001")


def read_latex(path: Path, paper: str) -> Record:
    """The paper of a document. Raises InputError if it is too large or its macros never end."""
    source = read_source(path)
    year = _YEAR.search(_first(_DATE, source))
    begins = _ABSTRACT.search(source)
    ends = _ABSTRACT_ENDS.search(source, begins.end()) if begins else None
    abstract = source[begins.end() : ends.start()] if begins and ends else _first(_ABSTRACT_MACRO, source)
    return Record(
        str(path),
        Paper(
            id=paper,
            title=plain(_first(_TITLE, source)),
            abstract=plain(abstract),
            year=arxiv_year(paper) or (int(year[0]) if year else 0),
            authors=_authors(source),
            identifiers=frozenset(("arxiv",)) if arxiv_year(paper) else frozenset(),
        ),
        partial(_full_text, path, source),
    )


def _first(macro: re.Pattern[str], source: str) -> str:
    """The argument of the macro where it is first used; "" if it is not."""
    return next((argument for _, argument, _ in arguments(macro, source)), "")


def _authors(source: str) -> tuple[str, ...]:
    """Whatever in the arguments of the author macros looks like a name of two to five words."""
    names = []
    for _, argument, _ in arguments(_AUTHOR, source):
        # What stands after the first line of an author's block are addresses.
        for block in re.split(r"\\and\b|\\And\b|\\AND\b", argument):
            line = block.split("\\\\")[0]
            names += [plain(part) for part in _BETWEEN_AUTHORS.split(line)]
    return tuple(name for name in names if _NAME.fullmatch(name))


def _full_text(path: Path, source: str) -> FullText:
    body = _BODY.search(source)
    text = running_text(body[1]) if body else ""
    text = _AUTHOR_AND_YEAR.sub(r"\\citet{\2}", _NO_CITATION.sub("", text))
    numbers: dict[str, int] = {}
    citations: list[list[str]] = []

    def marked(match: re.Match[str]) -> str:
        keys = [key.strip() for keys in _ONE_OF_ITS_KEYS.findall(match[1]) for key in keys.split(",")]
        citations.append([key for key in keys if key])
        for key in citations[-1]:
            numbers.setdefault(key, len(numbers) + 1)
        return f"\ue000{len(citations) - 1}\ue001" if citations[-1] else ""

    text = _CITATION.sub(marked, text)
    paragraphs, title, done = [], "", 0
    for number, (match, argument, end) in enumerate(arguments(_SECTION, text)):
        content = text[done : match.start()]
        paragraphs.append(_paragraph(content, citations, numbers, f"{number} {title}"))
        title, done = plain(argument), end
    paragraphs.append(_paragraph(text[done:], citations, numbers, f"{len(paragraphs)} {title}"))
    return FullText(paragraphs, read_bibliography(path, source, numbers))


def _paragraph(content: str, citations: list[list[str]], numbers: dict[str, int], section: str) -> Paragraph:
    """A section's text, with numbers in square brackets for citations."""
    if not _MARK.search(content):
        return Paragraph(content, [], section)  # no context comes of it: conversion is slow
    pieces: list[str] = []
    cites: list[Cite] = []
    length = 0
    for place, piece in enumerate(_MARK.split(plain(content))):
        if place % 2:
            keys = citations[int(piece)]
            start = length + 1
            for key in keys:
                end = start + len(str(numbers[key]))
                cites.append(Cite(start, end, key))
                start = end + 2
            piece = f"[{', '.join(str(numbers[key]) for key in keys)}]"
        pieces.append(piece)
        length += len(piece)
    return Paragraph("".join(pieces), cites, section)
