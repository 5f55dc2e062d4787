"""Output formats for recommendations: table, JSON, and citations to paste."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from rich.text import Text

from citerec.formats.bibliography.paper import retraction_note, terminal_text
from citerec.formats.names import parse_name
from citerec.library import MARK
from citerec.library.ask.recommendation import Recommendation

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult

    from citerec.formats.bibliography.paper import LibraryPaper

_SHOWN_AUTHORS = 2
_PLAIN_KEY = re.compile(r"\w+(?:[:.#$%&+?<>~/-]\w+)*")
ALREADY_CITED = "already cited in this draft"


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


def table(papers: Sequence[Recommendation], explain: bool = False) -> Labelled:
    """Format recommendations for a terminal. explain: include the ranker's features."""
    rows = []
    ranks, scores = [str(paper.rank) for paper in papers], [_certainty(paper) for paper in papers]
    wide = max(map(len, ranks), default=0), max(map(len, scores), default=0)
    for paper, rank, score in zip(papers, ranks, scores, strict=True):
        text = _described(paper)
        text.append_text(_why(paper))
        if explain and paper.features:
            features = ", ".join(f"{name} {value:.3g}" for name, value in paper.features.items())
            text.append(f"\n{features}", style="not bold dim")
        label = Text.assemble((rank.rjust(wide[0]), "dim"), " ", (score.rjust(wide[1]), "cyan"))
        rows.append((label, text))
    return Labelled(rows)


def _certainty(paper: Recommendation) -> str:
    return f"{paper.score:.3f}" if paper.probability is None else percentage(paper.probability)


def percentage(probability: float) -> str:
    """Return a probability as a rounded percentage.

    >>> percentage(0.624), percentage(0.002), percentage(0.998)
    ('62 %', '<1 %', '>99 %')
    """
    if not 0.005 <= probability < 0.995:
        return "<1 %" if probability < 0.5 else ">99 %"
    return f"{probability:.0%}".replace("%", " %")


def paper_list(papers: Sequence[LibraryPaper]) -> Labelled:
    """Format papers for a terminal."""
    wide = len(str(len(papers)))
    return Labelled(
        [(Text(str(rank).rjust(wide), "dim"), _described(paper)) for rank, paper in enumerate(papers, 1)]
    )


def _described(paper: Recommendation | LibraryPaper) -> Text:
    """Return title, authors, year, key and venue, without unknown ones."""
    text = Text(terminal_text(paper.title) or "(no title)", style="bold")
    authors = short_authors(paper.names or paper.authors)
    year, key = str(paper.year or ""), paper.key or paper.id
    facts = [(authors, ""), (year, ""), (key, " green"), (paper.venue, "")]
    if isinstance(paper, Recommendation) and paper.cited:
        facts.append((ALREADY_CITED, " magenta"))
    facts.append((retraction_note(paper.retracted), " bold red"))
    shown = [(fact, f"not bold{colour}") for fact, colour in facts if fact]
    for index, (fact, style) in enumerate(shown):
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


def short_authors(names: Sequence[str]) -> str:
    """Return the surnames of one or two authors, or the first surname with "et al."; organisations whole.

    >>> short_authors(["Jacob Devlin", "{World Bank}"]), short_authors(["Laurens van der Maaten", "B", "C"])
    ('Devlin and World Bank', 'van der Maaten et al.')
    """
    short = [parse_name(terminal_text(name)).short or terminal_text(name) for name in names]
    if len(short) > _SHOWN_AUTHORS:
        return f"{short[0]} et al."
    return " and ".join(short)


def as_json(papers: Sequence[Recommendation | LibraryPaper], explain: bool = False) -> str:
    """Return recommendations, with features to explain, or papers with the fields that a search shows."""
    explained = {"explain": True} if explain else {}
    return json.dumps([paper.as_json(**explained) for paper in papers], ensure_ascii=False, indent=1)


def citation(keys: Iterable[str], format: str) -> str:
    r"""Return a citation command for the format `cite` (LaTeX) or `markdown` (Pandoc).

    >>> citation(["lee2020", "diaz2021"], "cite"), citation(["lee2020", "diaz2021"], "markdown")
    ('\\cite{lee2020,diaz2021}', '[@lee2020; @diaz2021]')
    """
    if format == "cite":
        return f"\\cite{{{','.join(keys)}}}"
    named = (key if _PLAIN_KEY.fullmatch(key) else f"{{{key}}}" for key in keys)
    return f"[{'; '.join(f'@{key}' for key in named)}]"
