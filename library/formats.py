"""Recommendations as people and programs want them: a table, JSON, BibTeX, citations to paste."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from bibtexparser.middlewares.names import parse_single_name_into_parts
from rich.table import Table
from rich.text import Text

from library.explanation import MARK, Recommendation

if TYPE_CHECKING:
    from library.library import LibraryPaper

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]+")
_SHOWN_AUTHORS = 2


def terminal_text(text: str) -> str:
    """A text on one line without what steers a terminal: titles come from strangers' files."""
    return " ".join(_CONTROL.sub(" ", text).split())


def count_noun(count: int, what: str = "paper") -> str:
    """
    >>> count_noun(1), count_noun(2000, "place")
    ('1 paper', '2,000 places')
    """
    return f"{count:,} {what}{'s' * (count != 1)}"


def table(found: Sequence[Recommendation], explain: bool = False) -> Table:
    """Rank and score beside title, authors, year, venue, key and why; explain: with the ranker's features."""
    grid = Table.grid(padding=(0, 1), expand=False)
    grid.add_column(justify="right", style="dim", no_wrap=True)
    grid.add_column(justify="right", style="cyan", no_wrap=True)
    grid.add_column(overflow="fold")
    for paper in found:
        text = Text(terminal_text(paper.title) or "(no title)", style="bold")
        for place, (fact, style) in enumerate(_facts(paper)):
            text.append(" · " if place else "\n", style="not bold")
            text.append(terminal_text(fact), style=style)
        text.append_text(_why(paper))
        if explain and paper.features:
            listed = ", ".join(f"{name} {value:.3g}" for name, value in paper.features.items())
            text.append(f"\n{listed}", style="not bold dim")
        grid.add_row(str(paper.rank), f"{paper.score:.3f}", text)
    return grid


def _facts(paper: Recommendation) -> list[tuple[str, str]]:
    """Authors, year, key and venue, as far as they are known, with the style of each."""
    year, key = str(paper.year or ""), paper.key or paper.id
    facts = [(short_authors(paper.authors), ""), (year, ""), (key, " green"), (paper.venue, "")]
    return [(fact, f"not bold{colour}") for fact, colour in facts if fact]


def _why(paper: Recommendation) -> Text:
    """Why, with the words that matched, the name and the mark standing out."""
    text = Text(f"\n{terminal_text(paper.why)}", style="not bold italic")
    evidence = paper.evidence
    told = {evidence.sentence[a:b] for a, b in evidence.matched} | {evidence.name, MARK, *evidence.in_title}
    words = "|".join(re.escape(word) for word in sorted(told - {""}, key=len, reverse=True))
    text.highlight_regex(rf"(?<!\w)(?:{words})(?!\w)", "yellow")
    return text


def short_authors(authors: Sequence[str]) -> str:
    """Surnames: of one or two, else of the first with "et al."

    >>> short_authors(["Jacob Devlin", "Lee, Ann"]), short_authors(["Laurens van der Maaten", "B", "C"])
    ('Devlin and Lee', 'van der Maaten et al.')
    """
    names = [_surname(author) for author in authors]
    if len(names) > _SHOWN_AUTHORS:
        return f"{names[0]} et al."
    return " and ".join(names)


def _surname(author: str) -> str:
    parts = parse_single_name_into_parts(terminal_text(author), strict=False)
    return " ".join(parts.von + parts.last).strip("{}") or terminal_text(author)


def as_json(found: Sequence[Recommendation]) -> str:
    return json.dumps([paper.as_json() for paper in found], ensure_ascii=False, indent=1)


def citation(keys: Iterable[str], format: str) -> str:
    r"""
    >>> citation(["lee2020", "diaz2021"], "cite"), citation(["lee2020", "diaz2021"], "markdown")
    ('\\cite{lee2020,diaz2021}', '[@lee2020; @diaz2021]')
    """
    if format == "cite":
        return f"\\cite{{{','.join(keys)}}}"
    return f"[{'; '.join(f'@{key}' for key in keys)}]"


# BibTeX.

_ENTRY = re.compile(r"(\s*@\s*\w+\s*[{(]\s*)([^\s,{}()=]*)(?=\s*,)")
_PROCEEDINGS = re.compile(
    r"\b(?:Proc|Proceedings|Conference|Workshop|Symposium|Meeting)\b|^[A-Z][a-z]*[A-Z][A-Za-z]*(?:[ -]\d+)?$"
)
_JOURNALS = ("JMLR", "TACL", "TPAMI", "TMLR", "PLoS", "PNAS")
"""Journals that look like conferences."""
_SPECIAL = {sign: f"\\{sign}" for sign in "%&#_$"} | {
    # BibTeX counts an escaped brace as one, too.
    "{": r"\textbraceleft{}",
    "}": r"\textbraceright{}",
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
}
_MATHS = re.compile(r"(\$[^$]+\$)")


def bibtex(papers: Iterable[LibraryPaper]) -> str:
    """An entry for each paper: that of its source under the paper's key, else one made of what is known."""
    return "\n\n".join(_entry(paper) for paper in papers) + "\n"


def _entry(paper: LibraryPaper) -> str:
    key = paper.key or paper.id
    if raw := paper.bibtex.strip():
        return _ENTRY.sub(lambda start: f"{start[1]}{key}", raw, count=1)
    journal = not _PROCEEDINGS.search(paper.venue) or paper.venue.split()[0] in _JOURNALS
    kind = "misc" if not paper.venue else "article" if journal else "inproceedings"
    fields = {
        "title": _title(paper.title),
        "author": " and ".join(map(_author, paper.authors)),
        "year": str(paper.year) if paper.year else "",
        ("journal" if journal else "booktitle"): escape_latex(paper.venue),
        "doi": escape_latex(paper.doi),
        "eprint": escape_latex(paper.arxiv),
        "archiveprefix": "arXiv" if paper.arxiv else "",
        "url": paper.url.translate({ord(sign): f"%{ord(sign):02X}" for sign in "{}\\"}),
    }
    lines = [f"  {name} = {{{terminal_text(value)}}}," for name, value in fields.items() if value]
    return "\n".join([f"@{kind}{{{key},", *lines, "}"])


def escape_latex(text: str) -> str:
    r"""A text for LaTeX; formulas between dollars stay.

    >>> escape_latex("R&D at 5% of $O(n_i)$")
    'R\\&D at 5\\% of $O(n_i)$'
    """
    pieces = _MATHS.split(text)
    return "".join(
        piece if place % 2 and _balanced(piece) else "".join(_SPECIAL.get(sign, sign) for sign in piece)
        for place, piece in enumerate(pieces)
    )


def _balanced(text: str) -> bool:
    depth = 0
    for sign in text:
        depth += {"{": 1, "}": -1}.get(sign, 0)
        if depth < 0:
            return False
    return depth == 0 and not text.endswith("\\$")


def _title(title: str) -> str:
    """Words with capitals inside in braces, since styles write titles in lower case."""
    words = re.split(r"(\$[^$]+\$|[\s:,;?!()\[\]]+)", title)
    inner = [any(sign.isupper() for sign in word[1:]) and not place % 2 for place, word in enumerate(words)]
    return "".join(
        f"{{{escape_latex(word)}}}" if name else escape_latex(word)
        for word, name in zip(words, inner, strict=True)
    )


def _author(name: str) -> str:
    """A name that has "and" in it, as a company's, in braces: else it would be two."""
    return f"{{{escape_latex(name)}}}" if re.search(r"(?i)\band\b", name) else escape_latex(name)
