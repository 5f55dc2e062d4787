"""Output formats for recommendations: table, JSON, BibTeX, and citations to paste."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from bibtexparser.middlewares.names import parse_single_name_into_parts
from rich.text import Text

from citerec.library.explanation import MARK, Recommendation

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult

    from citerec.library.library import LibraryPaper

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]+")
_SHOWN_AUTHORS = 2
ALREADY_CITED = "already cited in this draft"


def terminal_text(text: str) -> str:
    """Return a text on one line without control characters, since titles come from untrusted files."""
    return " ".join(_CONTROL.sub(" ", text).split())


def count_noun(count: int, what: str = "paper") -> str:
    """Return a count with its noun.

    >>> count_noun(1), count_noun(2000, "place")
    ('1 paper', '2,000 places')
    """
    return f"{count:,} {what}{'s' * (count != 1)}"


class Labelled:
    """Labels, and beside them texts that are folded to the width of the terminal, without trailing spaces."""

    def __init__(self, texts: Sequence[tuple[Text, Text]]) -> None:
        self._texts = texts

    def indented(self) -> Labelled:
        return Labelled([(Text.assemble("  ", label), text) for label, text in self._texts])

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for label, text in self._texts:
            start, width = label, options.max_width - len(label) - bool(label)
            for line in text.wrap(console, max(width, 1), overflow="fold"):
                line.rstrip()
                yield Text.assemble(start, " " if label else "", line, overflow="fold")
                start = Text(" " * len(label))


def table(found: Sequence[Recommendation], explain: bool = False) -> Labelled:
    """Format recommendations for a terminal. explain: include the ranker's features."""
    papers = []
    ranks, scores = [str(paper.rank) for paper in found], [_certainty(paper) for paper in found]
    wide = max(map(len, ranks), default=0), max(map(len, scores), default=0)
    for paper, rank, score in zip(found, ranks, scores, strict=True):
        text = _described(paper)
        text.append_text(_why(paper))
        if explain and paper.features:
            features = ", ".join(f"{name} {value:.3g}" for name, value in paper.features.items())
            text.append(f"\n{features}", style="not bold dim")
        label = Text.assemble((rank.rjust(wide[0]), "dim"), " ", (score.rjust(wide[1]), "cyan"))
        papers.append((label, text))
    return Labelled(papers)


def _certainty(paper: Recommendation) -> str:
    return f"{paper.score:.3f}" if paper.probability is None else percentage(paper.probability)


def percentage(probability: float) -> str:
    """Return a probability as a rounded percentage.

    >>> percentage(0.624), percentage(0.002)
    ('62 %', '<1 %')
    """
    return f"{probability:.0%}".replace("%", " %") if probability >= 0.005 else "<1 %"


def paper_list(papers: Sequence[LibraryPaper]) -> Labelled:
    """Format papers for a terminal."""
    wide = len(str(len(papers)))
    return Labelled(
        [(Text(str(rank).rjust(wide), "dim"), _described(paper)) for rank, paper in enumerate(papers, 1)]
    )


def _described(paper: Recommendation | LibraryPaper) -> Text:
    """Return title, authors, year, key and venue, without unknown ones."""
    text = Text(terminal_text(paper.title) or "(no title)", style="bold")
    year, key = str(paper.year or ""), paper.key or paper.id
    facts = [(short_authors(paper.authors), ""), (year, ""), (key, " green"), (paper.venue, "")]
    if isinstance(paper, Recommendation) and paper.cited:
        facts.append((ALREADY_CITED, " magenta"))
    known = [(fact, f"not bold{colour}") for fact, colour in facts if fact]
    for index, (fact, style) in enumerate(known):
        text.append(" · " if index else "\n", style="not bold")
        text.append(terminal_text(fact), style=style)
    return text


def _why(paper: Recommendation) -> Text:
    """Return `why` with matched words, the name and the mark highlighted."""
    text = Text(f"\n{terminal_text(paper.why)}", style="not bold italic")
    evidence = paper.evidence
    words = {evidence.sentence[a:b] for a, b in evidence.matched} | {evidence.name, MARK, *evidence.in_title}
    pattern = "|".join(re.escape(word) for word in sorted(words - {""}, key=len, reverse=True))
    text.highlight_regex(rf"(?<!\w)(?:{pattern})(?!\w)", "yellow")
    return text


def short_authors(authors: Sequence[str]) -> str:
    """Return the surnames of one or two authors, or the first surname with "et al."

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


def as_json(found: Sequence[Recommendation | LibraryPaper]) -> str:
    """Return recommendations, or papers with the fields that a search shows, as a list."""
    return json.dumps([paper.as_json() for paper in found], ensure_ascii=False, indent=1)


def citation(keys: Iterable[str], format: str) -> str:
    r"""Return a citation command for the format `cite` (LaTeX) or `markdown` (Pandoc).

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
"""Journals whose names look like those of conferences."""
_SPECIAL = {char: f"\\{char}" for char in "%&#_$"} | {
    # Not \{ and \}, since BibTeX includes escaped braces when it balances braces.
    "{": r"\textbraceleft{}",
    "}": r"\textbraceright{}",
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
}
_MATHS = re.compile(r"(\$[^$]+\$)")


def bibtex(papers: Iterable[LibraryPaper]) -> str:
    """Return one entry per paper: that of its source under the paper's key, else a generated one."""
    return "\n\n".join(_entry(paper) for paper in papers) + "\n"


def _entry(paper: LibraryPaper) -> str:
    key = paper.key or paper.id
    if raw := paper.bibtex.strip():
        return _ENTRY.sub(lambda start: f"{start[1]}{key}", raw, count=1)
    kind = entry_type(paper)
    fields = {
        "title": latex_title(paper.title),
        "author": latex_authors(paper.authors),
        "year": str(paper.year) if paper.year else "",
        ("booktitle" if kind == "inproceedings" else "journal"): escape_latex(paper.venue),
        "doi": escape_latex(paper.doi),
        "eprint": escape_latex(paper.arxiv),
        "archiveprefix": "arXiv" if paper.arxiv else "",
        "url": latex_url(paper.url),
    }
    return write_entry(kind, key, fields)


def write_entry(kind: str, key: str, fields: Mapping[str, str]) -> str:
    """Return an entry of the fields that are not empty, whose values are LaTeX."""
    lines = [f"  {name} = {{{terminal_text(value)}}}," for name, value in fields.items() if value]
    return "\n".join([f"@{kind}{{{key},", *lines, "}"])


def entry_type(paper: LibraryPaper) -> str:
    """Return the type of a paper's entry, in lower case: that of its source, else by its venue."""
    if source := _ENTRY.match(paper.bibtex):
        return source[1].strip(" \t\r\n@{(").lower()
    if not paper.venue:
        return "misc"
    is_journal = not _PROCEEDINGS.search(paper.venue) or paper.venue.split()[0] in _JOURNALS
    return "article" if is_journal else "inproceedings"


def escape_latex(text: str) -> str:
    r"""Escape a text for LaTeX, except formulas between dollars.

    >>> escape_latex("R&D at 5% of $O(n_i)$")
    'R\\&D at 5\\% of $O(n_i)$'
    """
    pieces = _MATHS.split(text)
    return "".join(
        piece if index % 2 and _is_balanced(piece) else "".join(_SPECIAL.get(char, char) for char in piece)
        for index, piece in enumerate(pieces)
    )


def _is_balanced(text: str) -> bool:
    depth = 0
    for char in text:
        depth += {"{": 1, "}": -1}.get(char, 0)
        if depth < 0:
            return False
    return depth == 0 and not text.endswith("\\$")


def latex_title(title: str) -> str:
    """Put words with inner capitals in braces, since bibliography styles convert titles to lower case."""
    pieces = []
    for index, piece in enumerate(re.split(r"(\$[^$]+\$|[\s:,;?!()\[\]]+)", title)):  # words at even indices
        escaped = escape_latex(piece)
        has_capitals = index % 2 == 0 and any(char.isupper() for char in piece[1:])
        pieces.append(f"{{{escaped}}}" if has_capitals else escaped)
    return "".join(pieces)


def latex_authors(names: Iterable[str]) -> str:
    """Put a name that contains "and", such as a company's, in braces, so that it stays one author."""
    escaped = [(name, escape_latex(name)) for name in names]
    return " and ".join(
        f"{{{latex}}}" if re.search(r"(?i)\band\b", name) else latex for name, latex in escaped
    )


def latex_url(url: str) -> str:
    return url.translate({ord(char): f"%{ord(char):02X}" for char in "{}\\"})
