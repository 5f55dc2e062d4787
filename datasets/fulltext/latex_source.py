"""LaTeX to plain text by pylatexenc, without what is no running text.

The source of a LaTeX document as one string: with inputs, without comments, its own macros replaced.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from pylatexenc.latex2text import LatexNodes2Text, MacroTextSpec
from pylatexenc.latex2text import get_default_latex_context_db as texts_of_macros
from pylatexenc.latexwalker import LatexWalkerError
from pylatexenc.latexwalker import get_default_latex_context_db as arguments_of_macros
from pylatexenc.macrospec import MacroSpec

from datasets.errors import InputError
from datasets.files import whole_file

LARGEST = 20_000_000
"""Characters of a document with its inputs at most; also with its macros replaced."""
LARGEST_FILE = 1 << 26
"""Bytes of a file at most: bibliographies of whole fields are that large."""
MOST_MACROS = 50_000
"""Macros that are replaced in a document at most."""
MOST_INPUTS = 1000
_DEEPEST = 20
_LONGEST_OPTION = 1000

_DOCUMENT = re.compile(rb"^[^%\n]*\\document(?:class|style)\b", re.MULTILINE)
_COMMENT = re.compile(r"(?<!\\)((?:\\\\)*)%[^\n]*(?:\n[ \t]*)?")
_VERBATIM = re.compile(r"\\(?:verb|lstinline)\*?([^\sA-Za-z*{\[])(.{0,1000}?)\1")
_SPECIAL = re.compile(r"[^\w\s.,:;()/-]|_")
_LEFT_OUT = (
    (re.compile(r"\\begin\{comment\}"), re.compile(r"\\end\{comment\}")),
    (re.compile(r"\\iffalse\b"), re.compile(r"\\fi\b")),
)
_INPUT = re.compile(r"\\(?:input|include|subfile)\s*(?:\{([^{}]+)\}|\s([^\s\\{}]+))")
_DEFINED = re.compile(
    r"\\((?:re)?new|provide|DeclareRobust)[cC]ommand\*?\s*+(?:\{\s*+\\([A-Za-z@]+)\s*+\}|\\([A-Za-z@]+))\s*+"
    r"(?:\[(\d)\])?\s*+(?:\[([^\[\]]*)\])?\s*+(?=\{)|\\[gex]?def\s*+\\([A-Za-z@]+)((?:#\d)*)\s*+(?=\{)"
)
_MACRO = re.compile(r"\\([A-Za-z@]+)")
_BRACE = re.compile(r"\\.|[{}]", re.DOTALL)
_ARGUMENT = re.compile(r"#(\d)")
_PRIVATE = re.compile("[\ue000-\uf8ff]")


class _Macro(NamedTuple):
    arguments: int
    default: str | None
    """Of the first argument, which then stands in square brackets and may be missing."""
    body: str


def is_paper(path: Path) -> bool:
    """Whether a .tex file is a document and not a part of one."""
    with path.open("rb") as file:
        return _DOCUMENT.search(file.read(1 << 20)) is not None


def read_source(path: Path) -> str:
    """The document. Raises InputError if it is too large, or its macros never end.

    Of its inputs, files in its folder or below are put in; others, and missing ones, are passed over.
    """
    text = _with_inputs(path.resolve(), (), [LARGEST, MOST_INPUTS])
    for begin, end in _LEFT_OUT:
        text = cut_out(text, begin, end)
    return _replace_macros(text, path)


def decoded(path: Path) -> str:
    """The text of a file in UTF-8, or in Latin-1, which LaTeX was long written in.

    Raises InputError if it cannot be read or is too large.
    """
    content = whole_file(path, LARGEST_FILE)
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = content.decode("latin-1")
    return _PRIVATE.sub("", text.replace("\r\n", "\n").replace("\r", "\n").replace("\0", ""))


def braced(text: str, start: int) -> tuple[str, int]:
    """What is in the braces that open at `start`, and where they end: with the text if they never do."""
    depth = 0
    for brace in _BRACE.finditer(text, start):
        depth += {"{": 1, "}": -1}.get(brace[0], 0)
        if depth == 0 and brace[0] == "}":
            return text[start + 1 : brace.start()], brace.end()
    return text[start + 1 :], len(text)


def arguments(macro: re.Pattern[str], text: str) -> Iterator[tuple[re.Match[str], str, int]]:
    """Each use of a macro, its argument in braces and where that ends; uses in arguments are passed over."""
    done = 0
    for match in macro.finditer(text):
        if match.start() >= done:
            argument, done = braced(text, match.end())
            yield match, argument, done


def cut_out(text: str, begin: re.Pattern[str], end: re.Pattern[str]) -> str:
    """With a blank for what begins and ends so; what never ends is kept.

    A single expression for both would look for an end that is missing from each beginning on.
    """
    pieces, done = [], 0
    while (first := begin.search(text, done)) and (last := end.search(text, first.end())):
        pieces.append(text[done : first.start()])
        done = last.end()
    return " ".join([*pieces, text[done:]])


def _with_inputs(path: Path, parents: tuple[Path, ...], left: list[int]) -> str:
    text = _COMMENT.sub(r"\1", _VERBATIM.sub(lambda match: _SPECIAL.sub(" ", match[2]), decoded(path)))
    left[0] -= len(text)
    left[1] -= 1
    if left[0] < 0:
        raise InputError(f"{path}: the document has more than {LARGEST:,} characters with its inputs")
    if left[1] < 0 or len(parents) > _DEEPEST:
        raise InputError(
            f"{path}: the document has more than {MOST_INPUTS:,} inputs, or {_DEEPEST} in each other"
        )

    parents = (*parents, path)
    folder = parents[0].parent

    def included(match: re.Match[str]) -> str:
        name = (match[1] or match[2]).strip().strip('"')
        for candidate in (folder / f"{name}.tex", folder / name):
            place = candidate.resolve()
            if place not in parents and place.is_relative_to(folder) and place.is_file():
                return _with_inputs(place, parents, left)
        return ""

    return _INPUT.sub(included, text)


def _replace_macros(text: str, path: Path) -> str:
    macros: dict[str, _Macro] = {}
    pieces, done = [], 0
    while match := _DEFINED.search(text, done):
        pieces.append(text[done : match.start()])
        body, done = braced(text, match.end())
        if match[1] != "renew":  # these change the looks of LaTeX's own macros
            name = match[2] or match[3] or match[6]
            arguments = int(match[4] or 0) or len(match[7] or "") // 2
            macros.setdefault(name, _Macro(arguments, match[5], body.replace("\\xspace", "")))
    pieces.append(text[done:])
    return _expanded("".join(pieces), macros, path, [MOST_MACROS, LARGEST], 0)


def _expanded(text: str, macros: dict[str, _Macro], path: Path, left: list[int], depth: int) -> str:
    pieces, done = [], 0
    for match in _MACRO.finditer(text):
        macro = macros.get(match[1])
        if macro is None or match.start() < done:
            continue
        pieces.append(text[done : match.start()])
        values, done = _arguments(text, match.end(), macro)
        body = _ARGUMENT.sub(lambda number, values=values: values.get(number[1], ""), macro.body)  # type: ignore[misc]
        left[0] -= 1
        left[1] -= len(body)
        if depth > _DEEPEST or min(left) < 0:
            raise InputError(f"{path}: the macro \\{match[1]} is replaced without end; leave the file out")
        pieces.append(_expanded(body, macros, path, left, depth + 1))
    pieces.append(text[done:])
    return "".join(pieces)


def _arguments(text: str, place: int, macro: _Macro) -> tuple[dict[str, str], int]:
    """The arguments of a macro by number, and where they end."""
    values: dict[str, str] = {}
    for number in range(1, macro.arguments + 1):
        start = place
        while start < len(text) and text[start].isspace():
            start += 1
        if number == 1 and macro.default is not None:
            end = text.find("]", start, start + _LONGEST_OPTION) if text[start : start + 1] == "[" else -1
            values["1"] = macro.default if end < 0 else text[start + 1 : end]
            place = place if end < 0 else end + 1
        elif text[start : start + 1] == "{":
            values[str(number)], place = braced(text, start)
        else:
            token = _MACRO.match(text, start)
            place = token.end() if token else start + 1
            values[str(number)] = text[start:place]
    return values, place


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
