"""LaTeX to plain text by pylatexenc, without what is no running text."""

from __future__ import annotations

import logging
import re
from functools import cache
from typing import Any

from pylatexenc.latex2text import LatexNodes2Text, MacroTextSpec
from pylatexenc.latex2text import get_default_latex_context_db as texts_of_macros
from pylatexenc.latexwalker import LatexWalkerError
from pylatexenc.latexwalker import get_default_latex_context_db as arguments_of_macros
from pylatexenc.macrospec import MacroSpec

from datasets.fulltext.latex_source import cut_out

logging.getLogger("pylatexenc").setLevel(logging.CRITICAL)  # what it cannot parse is left out

_NO_TEXT = (
    "figure|subfigure|wrapfigure|sidewaysfigure|table|wraptable|sidewaystable|longtable|tabular|tabularx|"
    "equation|align|aligned|alignat|flalign|gather|multline|eqnarray|displaymath|math|dmath|IEEEeqnarray|"
    "algorithm|algorithm2e|algorithmic|verbatim|Verbatim|lstlisting|minted|tikzpicture|pgfpicture|picture|"
    "thebibliography|filecontents|abstract|keywords|IEEEkeywords|CCSXML|titlepage"
)
_BEGIN_OR_END = re.compile(rf"\\(begin|end)\s*\{{((?:{_NO_TEXT})\*?)\}}")
_DISPLAYED = (
    (re.compile(r"(?<!\\)\\\["), re.compile(r"\\\]")),
    (re.compile(r"\$\$"), re.compile(r"\$\$")),
)
_BRACKET = re.compile(r"\\.|[\[\]{}]", re.DOTALL)
_DROPPED = {
    name: arguments
    for arguments, names in {
        "[{": "footnote footnotetext thanks caption captionof todo marginpar includegraphics orcid email",
        "*{": "ref eqref autoref cref Cref pageref nameref label vspace hspace index url nocite input",
        "{": "color bibliography bibliographystyle affiliation institute pagestyle hypersetup",
        "{{": "setlength addtolength setcounter",
    }.items()
    for name in names.split()
}
"""Macros of which nothing is printed in running text, with pylatexenc's notation of their arguments."""
_KEPT = dict.fromkeys(("mbox", "hbox", "textmd", "textsf", "texttt", "textup", "textnormal", "enquote"), "{")
_LAST_KEPT = {"href": ("{{", 2), "textcolor": ("[{{", 3), "bibinfo": ("{{", 2), "bibfield": ("{{", 2)}
"""Macros whose argument of this number is printed."""


@cache
def _converter() -> tuple[LatexNodes2Text, Any]:
    texts, arguments = texts_of_macros(), arguments_of_macros()
    macros = [MacroTextSpec(name, discard=True) for name in _DROPPED]
    macros += [MacroTextSpec(name, discard=False) for name in _KEPT]
    macros += [MacroTextSpec(name, f"%({number})s") for name, (_, number) in _LAST_KEPT.items()]
    texts.add_context_category("ours", prepend=True, macros=macros)
    parsed = {**_DROPPED, **_KEPT, **{name: spec for name, (spec, _) in _LAST_KEPT.items()}}
    known = [MacroSpec(name, args_parser=spec) for name, spec in parsed.items()]
    arguments.add_context_category("ours", prepend=True, macros=known)
    return LatexNodes2Text(latex_context=texts, math_mode="text", strict_latex_spaces=False), arguments


def running_text(latex: str) -> str:
    """Without figures, tables, displayed formulas, listings and the like."""
    pieces: list[str] = []
    done = depth = 0
    for tag in _BEGIN_OR_END.finditer(latex):
        if depth == 0:
            pieces.append(latex[done : tag.start()])
        depth = max(0, depth + (1 if tag[1] == "begin" else -1))
        done = tag.end()
    if depth == 0:
        pieces.append(latex[done:])
    text = " ".join(pieces)
    for begin, end in _DISPLAYED:
        text = cut_out(text, begin, end)
    return text


def plain(latex: str) -> str:
    """Its text with single spaces, mathematics as well as plain text can do. Never fails.

    >>> plain(r"An \\emph{\\'etude} of $x_i \\leq 5\\%$")
    'An étude of x_i ≤ 5%'
    """
    if not re.search(r"[\\${}~`']|--", latex):
        return " ".join(latex.split())
    converter, arguments = _converter()
    try:
        text = converter.latex_to_text(_closed(latex), tolerant_parsing=True, latex_context=arguments)
    except (LatexWalkerError, RecursionError, ValueError, LookupError, TypeError, AttributeError):
        # The parser gives up on some malformed sources; their words are still there.
        text = re.sub(r"\\[A-Za-z@]+\*?|[\\{}$~]", " ", latex)
    return " ".join(text.split())


def _closed(latex: str) -> str:
    """With braces around each bracket that opens and never closes, which prints the same.

    The parser tries an optional argument without end twice, each of them with all that begin in it.
    """
    opened: list[int] = []
    alone: list[int] = []
    braces = 0
    for match in _BRACKET.finditer(latex):
        sign = match[0]
        if sign in ("[", "{"):
            opened.append(match.start())
            braces += sign == "{"
        elif sign == "]" and opened and latex[opened[-1]] == "[":
            opened.pop()
        elif sign == "}" and braces:
            while latex[opened[-1]] == "[":
                alone.append(opened.pop())
            opened.pop()
            braces -= 1
    alone += [place for place in opened if latex[place] == "["]
    pieces: list[str] = []
    done = 0
    for place in sorted(alone):
        pieces += (latex[done:place], "{[}")
        done = place + 1
    return "".join([*pieces, latex[done:]])
