"""The source of a LaTeX document as one string, and LaTeX as plain text.

`read_source` resolves inputs, drops comments and replaces the author's macros. `running_text` and `plain`
leave out what is no running text; the conversion itself is pylatexenc's.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from pylatexenc.latex2text import LatexNodes2Text, MacroTextSpec
from pylatexenc.latex2text import get_default_latex_context_db as texts_of_macros
from pylatexenc.latexwalker import LatexWalkerError
from pylatexenc.latexwalker import get_default_latex_context_db as arguments_of_macros
from pylatexenc.macrospec import MacroSpec

from datasets.errors import InputError
from datasets.files import read_limited

logging.getLogger("pylatexenc").setLevel(logging.CRITICAL)  # what it cannot parse is left out

LARGEST = 20_000_000
"""Characters of a document with its inputs, before and after its macros are replaced."""
LARGEST_FILE = 1 << 26
"""Bytes of a file: some people keep the bibliography of a whole field in one."""
MOST_MACROS = 50_000
"""Macros that are replaced in a document."""
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
_DEFINITION = re.compile(
    r"\\((?:re)?new|provide|DeclareRobust)[cC]ommand\*?\s*+(?:\{\s*+\\([A-Za-z@]+)\s*+\}|\\([A-Za-z@]+))\s*+"
    r"(?:\[(\d)\])?\s*+(?:\[([^\[\]]*)\])?\s*+(?=\{)|\\[gex]?def\s*+\\([A-Za-z@]+)((?:#\d)*)\s*+(?=\{)"
)
_MACRO = re.compile(r"\\([A-Za-z@]+)")
_BRACE = re.compile(r"\\.|[{}]", re.DOTALL)
_NOT_SPACE = re.compile(r"\S|$")
_PARAMETER = re.compile(r"#(\d)")
_PRIVATE = re.compile("[\ue000-\uf8ff]")


def is_paper(path: Path) -> bool:
    """Whether a .tex file is a document of its own and not a part of one."""
    with path.open("rb") as file:
        return is_document(file.read(1 << 20))


def is_document(start: bytes) -> bool:
    """Whether a file that begins so is a document."""
    return _DOCUMENT.search(start) is not None


def read_source(path: Path, inputs: Inputs | None = None) -> str:
    """The document. Raises InputError if it is too large or its macros expand without end.

    Inputs are resolved if they lie in its folder or below; others, and missing ones, are skipped.
    """
    text = _with_inputs(path.resolve(), (), inputs or Inputs())
    for begin, end in _LEFT_OUT:
        text = remove_blocks(text, begin, end)
    macros: dict[str, _Macro] = {}
    pieces, done = [], 0
    while match := _DEFINITION.search(text, done):
        pieces.append(text[done : match.start()])
        body, done = braced_argument(text, match.end())
        if match[1] != "renew":  # these change the looks of LaTeX's own macros
            parameters = int(match[4] or 0) or len(match[7] or "") // 2
            macro = _Macro(parameters, match[5], body.replace("\\xspace", ""))
            macros.setdefault(match[2] or match[3] or match[6], macro)
    text = "".join([*pieces, text[done:]])
    return _expanded(text, macros, path, [MOST_MACROS, LARGEST], 0)


def decode_latex(path: Path) -> str:
    """The text of a file in UTF-8, or in Latin-1, which LaTeX was long written in.

    Raises InputError if it cannot be read or is too large.
    """
    content = read_limited(path, LARGEST_FILE)
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = content.decode("latin-1")
    return clean_latex(text)


def clean_latex(text: str) -> str:
    """With plain ends of lines, and without characters that stand for something of ours."""
    return _PRIVATE.sub("", text.replace("\r\n", "\n").replace("\r", "\n").replace("\0", ""))


@dataclass
class Inputs:
    """How the files of a document are read, and what became of them.

    read: the text of a file. root: the folder that inputs must lie in, None for the document's own. left: the
    characters and inputs that are still allowed. skipped: names of inputs that were not followed, and why.
    """

    read: Callable[[Path], str] = decode_latex
    root: Path | None = None
    left: list[int] = field(default_factory=lambda: [LARGEST, MOST_INPUTS])
    skipped: dict[str, str] = field(default_factory=dict)


def braced_argument(text: str, start: int) -> tuple[str, int]:
    """What stands in the braces that open at `start`, and where they end, at the latest with the text."""
    depth = 0
    for brace in _BRACE.finditer(text, start):
        depth += {"{": 1, "}": -1}.get(brace[0], 0)
        if depth == 0 and brace[0] == "}":
            return text[start + 1 : brace.start()], brace.end()
    return text[start + 1 :], len(text)


def macro_arguments(macro: re.Pattern[str], text: str) -> Iterator[tuple[re.Match[str], str, int]]:
    """Each use of a macro, its argument in braces and where that ends; uses within arguments are skipped."""
    done = 0
    for match in macro.finditer(text):
        if match.start() >= done:
            argument, done = braced_argument(text, match.end())
            yield match, argument, done


def remove_blocks(text: str, begin: re.Pattern[str], end: re.Pattern[str]) -> str:
    """The text with a blank for each part that begins and ends so; a part that never ends is kept.

    A single expression for both would search for a missing end from each beginning on.
    """
    pieces, done = [], 0
    while (first := begin.search(text, done)) and (last := end.search(text, first.end())):
        pieces.append(text[done : first.start()])
        done = last.end()
    return " ".join([*pieces, text[done:]])


def _with_inputs(path: Path, parents: tuple[Path, ...], inputs: Inputs) -> str:
    text = _COMMENT.sub(r"\1", _VERBATIM.sub(lambda match: _SPECIAL.sub(" ", match[2]), inputs.read(path)))
    inputs.left[0] -= len(text)
    inputs.left[1] -= 1
    if inputs.left[0] < 0:
        raise InputError(f"{path}: the document has more than {LARGEST:,} characters with its inputs")
    if inputs.left[1] < 0 or len(parents) > _DEEPEST:
        raise InputError(
            f"{path}: the document has more than {MOST_INPUTS:,} inputs, or {_DEEPEST} in each other"
        )
    parents = (*parents, path)
    folder = parents[0].parent
    root = folder if inputs.root is None else inputs.root.resolve()

    def included(match: re.Match[str]) -> str:
        name = (match[1] or match[2]).strip().strip('"')
        why = "there is no such file"
        for candidate in (folder / f"{name}.tex", folder / name):
            place = candidate.resolve()
            if not place.is_relative_to(root):
                why = f"it lies outside of {root}"
            elif place in parents:
                why = "it is a part of itself"
            elif place.is_file():
                return _with_inputs(place, parents, inputs)
        inputs.skipped[name] = why
        return ""

    return _INPUT.sub(included, text)


class _Macro(NamedTuple):
    parameters: int
    default: str | None
    """Of the first argument, which then stands in square brackets and may be missing."""
    body: str


def _expanded(text: str, macros: dict[str, _Macro], path: Path, left: list[int], depth: int) -> str:
    """left: the macros and characters that may still be put in."""
    pieces, done = [], 0
    for match in _MACRO.finditer(text):
        macro = macros.get(match[1])
        if macro is None or match.start() < done:
            continue
        pieces.append(text[done : match.start()])
        values, done = _values(text, match.end(), macro)
        body = "".join(
            values.get(piece, "") if place % 2 else piece
            for place, piece in enumerate(_PARAMETER.split(macro.body))
        )
        left[0] -= 1
        left[1] -= len(body)
        if depth > _DEEPEST or min(left) < 0:
            raise InputError(f"{path}: the macro \\{match[1]} is replaced without end; leave the file out")
        pieces.append(_expanded(body, macros, path, left, depth + 1))
    return "".join([*pieces, text[done:]])


def _values(text: str, place: int, macro: _Macro) -> tuple[dict[str, str], int]:
    """The arguments of a macro by number, and where they end."""
    values: dict[str, str] = {}
    for number in range(1, macro.parameters + 1):
        start = _NOT_SPACE.search(text, place).start()  # type: ignore[union-attr]
        sign = text[start : start + 1]
        if number == 1 and macro.default is not None:
            end = text.find("]", start, start + _LONGEST_OPTION) if sign == "[" else -1
            values["1"] = macro.default if end < 0 else text[start + 1 : end]
            place = place if end < 0 else end + 1
        elif sign == "{":
            values[str(number)], place = braced_argument(text, start)
        else:
            token = _MACRO.match(text, start)
            place = token.end() if token else start + 1
            values[str(number)] = text[start:place]
    return values, place


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
# Macros with pylatexenc's notation of their arguments: of the first nothing is printed in running text.
_DROPPED = {
    "[{": "footnote footnotetext thanks caption captionof todo marginpar includegraphics orcid email",
    "*{": "ref eqref autoref cref Cref pageref nameref label vspace hspace index url nocite input citestyle",
    "{": "color bibliography bibliographystyle affiliation institute pagestyle hypersetup setcitestyle",
    "{{": "setlength addtolength setcounter defcitealias",
}
_KEPT = "mbox hbox textmd textsf texttt textup textnormal enquote"
_ONE_ARGUMENT_KEPT = {"href": ("{{", 2), "textcolor": ("[{{", 3), "bibinfo": ("{{", 2), "bibfield": ("{{", 2)}


@cache
def _converter() -> tuple[LatexNodes2Text, Any]:
    """The converter, and what it has to know of the arguments of macros."""
    texts, known = texts_of_macros(), arguments_of_macros()
    dropped = [(name, spec) for spec, names in _DROPPED.items() for name in names.split()]
    kept = [(name, "{") for name in _KEPT.split()]
    partly = [(name, spec) for name, (spec, _) in _ONE_ARGUMENT_KEPT.items()]
    printed = [MacroTextSpec(name, discard=True) for name, _ in dropped]
    printed += [MacroTextSpec(name, discard=False) for name, _ in kept]
    printed += [MacroTextSpec(name, f"%({number})s") for name, (_, number) in _ONE_ARGUMENT_KEPT.items()]
    parsed = [MacroSpec(name, args_parser=spec) for name, spec in (*dropped, *kept, *partly)]
    texts.add_context_category("ours", prepend=True, macros=printed)
    known.add_context_category("ours", prepend=True, macros=parsed)
    return LatexNodes2Text(latex_context=texts, math_mode="text", strict_latex_spaces=False), known


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
        text = remove_blocks(text, begin, end)
    return text


def plain_text(latex: str) -> str:
    """Its text with single spaces, formulas as well as plain text can render them. Never fails.

    >>> plain_text(r"An \\emph{\\'etude} of $x_i \\leq 5\\%$")
    'An étude of x_i ≤ 5%'
    """
    if not re.search(r"[\\${}~`']|--", latex):
        return " ".join(latex.split())
    converter, known = _converter()
    try:
        text = converter.latex_to_text(_closed(latex), tolerant_parsing=True, latex_context=known)
    except (LatexWalkerError, RecursionError, ValueError, LookupError, TypeError, AttributeError):
        # The parser gives up on some malformed sources; their words are still there.
        text = re.sub(r"\\[A-Za-z@]+\*?|[\\{}$~]", " ", latex)
    return " ".join(text.split())


def _closed(latex: str) -> str:
    """With braces around each bracket that opens and never closes, which prints the same.

    The parser tries an optional argument without end twice, each time with all that begin in it.
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
