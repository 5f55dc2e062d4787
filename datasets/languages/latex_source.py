"""Read the source of a LaTeX document as one string, and convert LaTeX to plain text.

`read_source` resolves inputs, removes comments and expands the author's macros. `running_text` and
`plain_text` remove everything but running text; the conversion itself is pylatexenc's.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from pylatexenc.latex2text import LatexNodes2Text, MacroTextSpec
from pylatexenc.latex2text import get_default_latex_context_db as texts_of_macros
from pylatexenc.latexwalker import LatexWalkerError
from pylatexenc.latexwalker import get_default_latex_context_db as arguments_of_macros
from pylatexenc.macrospec import MacroSpec

from citerec.base.errors import InputError
from citerec.base.files import read_limited

logging.getLogger("pylatexenc").setLevel(logging.CRITICAL)  # unparsable parts are skipped

MAX_CHARACTERS = 20_000_000
"""Maximum characters of a document with its inputs, before and after macro expansion."""
MAX_FILE_BYTES = 1 << 26
"""Maximum size of a file; some .bib files cover a whole field."""
MAX_MACROS = 50_000
"""Maximum number of macro expansions per document."""
MAX_INPUTS = 1000
_MAX_DEPTH = 20
_MAX_OPTION = 1000

_DOCUMENT = re.compile(rb"^[^%\n]*\\document(?:class|style)\b", re.MULTILINE)
_COMMENT = re.compile(r"(?<!\\)((?:\\\\)*)%[^\n]*(?:\n[ \t]*)?")
_VERBATIM = re.compile(r"\\(?:verb|lstinline)\*?([^\sA-Za-z*{\[])(.{0,1000}?)\1")
_SPECIAL = re.compile(r"[^\w\s.,:;()/-]|_")
_COMMENTED_OUT = (
    (re.compile(r"\\begin\{comment\}"), re.compile(r"\\end\{comment\}")),
    (re.compile(r"\\iffalse\b"), re.compile(r"\\fi\b")),
)
_INPUT = re.compile(r"\\(?:input|include|subfile|includepaper)\s*(?:\{([^{}]+)\}|\s([^\s\\{}]+))")
_DEFINITION = re.compile(
    r"\\((?:re)?new|provide|DeclareRobust)[cC]ommand\*?\s*+(?:\{\s*+\\([A-Za-z@]+)\s*+\}|\\([A-Za-z@]+))\s*+"
    r"(?:\[(\d)\])?\s*+(?:\[([^\[\]]*)\])?\s*+(?=\{)|\\[gex]?def\s*+\\([A-Za-z@]+)((?:#\d)*)\s*+(?=\{)"
)
_FOLDER = re.compile(
    r"\\(?:newcommand|providecommand|def)\*?\s*(?:\{\s*\\([A-Za-z]+)\s*\}|\\([A-Za-z]+))\s*\{([^{}\\]{1,200})\}"
)
"""A macro that may be a part of an input's name."""
_MACRO = re.compile(r"\\([A-Za-z@]+)")
_BRACE = re.compile(r"\\.|[{}]", re.DOTALL)
_NOT_SPACE = re.compile(r"\S|$")
_PARAMETER = re.compile(r"#(\d)")
_PRIVATE = re.compile("[\ue000-\uf8ff]")


def is_paper(path: Path) -> bool:
    """True if a .tex file is a complete document rather than a part of one."""
    with path.open("rb") as file:
        return is_document(file.read(1 << 20))


def is_document(start: bytes) -> bool:
    """True if a file that starts with these bytes is a document."""
    return _DOCUMENT.search(start) is not None


def read_source(path: Path, inputs: Inputs | None = None) -> str:
    """Read a document. Raises InputError if it or what its macros expand to is too large.

    Inputs in its folder or below are resolved; others, and missing ones, are skipped.
    """
    text = _resolve_inputs(path.resolve(), (), inputs or Inputs())
    for begin, end in _COMMENTED_OUT:
        text = remove_blocks(text, begin, end)
    macros: dict[str, _Macro] = {}
    pieces, done = [], 0
    while match := _DEFINITION.search(text, done):
        pieces.append(text[done : match.start()])
        body, done = braced_argument(text, match.end())
        if match[1] != "renew":  # these change the layout of LaTeX's own macros
            parameters = int(match[4] or 0) or len(match[7] or "") // 2
            macro = _Macro(parameters, match[5], body.replace("\\xspace", ""))
            macros.setdefault(match[2] or match[3] or match[6], macro)
    text = "".join([*pieces, text[done:]])
    return _expand_macros(text, macros, path, [MAX_MACROS, MAX_CHARACTERS])


def decode_latex(path: Path) -> str:
    """Read a file as UTF-8, or else as Latin-1, the encoding of many older LaTeX files.

    Raises InputError if it cannot be read or is too large.
    """
    content = read_limited(path, MAX_FILE_BYTES)
    if (files := _RECORDED.get()) is not None:
        files.append(path)
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = content.decode("latin-1")
    return clean_latex(text)


_RECORDED: ContextVar[list[Path] | None] = ContextVar("recorded", default=None)


@contextmanager
def record_files() -> Iterator[list[Path]]:
    """Yield a list that gets the files that `decode_latex` reads inside: inputs, chapters, bibliographies."""
    files: list[Path] = []
    token = _RECORDED.set(files)
    try:
        yield files
    finally:
        _RECORDED.reset(token)


def clean_latex(text: str) -> str:
    """Normalise line ends and remove the private characters used as placeholders."""
    return _PRIVATE.sub("", text.replace("\r\n", "\n").replace("\r", "\n").replace("\0", ""))


@dataclass
class Inputs:
    """How the inputs of a document are read, and which were skipped.

    read: reads a file. root: the folder that contains all inputs; None means the document's own. left: the
    remaining characters and inputs. skipped: names of skipped inputs with the reason. folders: macros that
    may be parts of names.
    """

    read: Callable[[Path], str] = decode_latex
    root: Path | None = None
    left: list[int] = field(default_factory=lambda: [MAX_CHARACTERS, MAX_INPUTS])
    skipped: dict[str, str] = field(default_factory=dict)
    folders: dict[str, str] = field(default_factory=dict)


def braced_argument(text: str, start: int) -> tuple[str, int]:
    """The content of the braces that open at `start`, and their end; unclosed braces end with the text."""
    depth = 0
    for brace in _BRACE.finditer(text, start):
        depth += {"{": 1, "}": -1}.get(brace[0], 0)
        if depth == 0 and brace[0] == "}":
            return text[start + 1 : brace.start()], brace.end()
    return text[start + 1 :], len(text)


def macro_arguments(macro: re.Pattern[str], text: str) -> Iterator[tuple[re.Match[str], str, int]]:
    """Yield each use of a macro with its argument and its end; uses within arguments are skipped."""
    done = 0
    for match in macro.finditer(text):
        if match.start() >= done:
            argument, done = braced_argument(text, match.end())
            yield match, argument, done


def remove_blocks(text: str, begin: re.Pattern[str], end: re.Pattern[str]) -> str:
    """Replace the blocks between `begin` and `end` by a space; a block without an end is kept.

    A single pattern for both would search for a missing end from every beginning.
    """
    pieces, done = [], 0
    while (first := begin.search(text, done)) and (last := end.search(text, first.end())):
        pieces.append(text[done : first.start()])
        done = last.end()
    return " ".join([*pieces, text[done:]])


def _resolve_inputs(path: Path, parents: tuple[Path, ...], inputs: Inputs) -> str:
    text = _COMMENT.sub(r"\1", _VERBATIM.sub(lambda match: _SPECIAL.sub(" ", match[2]), inputs.read(path)))
    inputs.left[0] -= len(text)
    inputs.left[1] -= 1
    if inputs.left[0] < 0:
        raise InputError(f"{path}: the document has more than {MAX_CHARACTERS:,} characters with its inputs")
    if inputs.left[1] < 0 or len(parents) > _MAX_DEPTH:
        raise InputError(
            f"{path}: the document has more than {MAX_INPUTS:,} inputs or more than {_MAX_DEPTH} levels"
        )
    parents = (*parents, path)
    inputs.folders.update((found[1] or found[2], found[3]) for found in _FOLDER.finditer(text))
    folder = parents[0].parent
    root = folder if inputs.root is None else inputs.root.resolve()

    def read_input(match: re.Match[str]) -> str:
        name = (match[1] or match[2]).strip().strip('"')
        name = _MACRO.sub(lambda macro: inputs.folders.get(macro[1], macro[0]), name)
        why = "there is no such file"
        for candidate in (folder / f"{name}.tex", folder / name):
            place = candidate.resolve()
            if not place.is_relative_to(root):
                why = f"it is outside {root}"
            elif place in parents:
                why = "it includes itself"
            elif place.is_file():
                return _resolve_inputs(place, parents, inputs)
        inputs.skipped[name] = why
        return ""

    return _INPUT.sub(read_input, text)


class _Macro(NamedTuple):
    parameters: int
    default: str | None
    """Default of the first argument, which is then optional and in square brackets."""
    body: str


def _expand_macros(
    text: str,
    macros: dict[str, _Macro],
    path: Path,
    left: list[int],
    depth: int = 0,
    active: frozenset[str] = frozenset(),
) -> str:
    """Expand macros recursively. left: the remaining expansions and characters.

    active: macros that are being expanded. Their own uses within stay as they are, since what ends such a
    recursion in TeX (\\@ifnextchar) is not evaluated.
    """
    pieces, done = [], 0
    for match in _MACRO.finditer(text):
        macro = macros.get(match[1])
        if macro is None or match.start() < done or match[1] in active:
            continue
        pieces.append(text[done : match.start()])
        values, done = _parse_arguments(text, match.end(), macro)
        too_deep = depth > _MAX_DEPTH
        if not too_deep:
            values = {
                # A macro alone may have its own arguments in the body.
                number: value
                if _MACRO.fullmatch(value)
                else _expand_macros(value, macros, path, left, depth + 1, active)
                for number, value in values.items()
            }
        body = "".join(
            values.get(piece, "") if place % 2 else piece
            for place, piece in enumerate(_PARAMETER.split(macro.body))
        )
        left[0] -= 1
        left[1] -= max(len(body) - sum(map(len, values.values())), 0)
        if too_deep or min(left) < 0:
            raise InputError(f"{path}: the macro \\{match[1]} expands to too much; leave the file out")
        pieces.append(_expand_macros(body, macros, path, left, depth + 1, active | {match[1]}))
    return "".join([*pieces, text[done:]])


def _parse_arguments(text: str, place: int, macro: _Macro) -> tuple[dict[str, str], int]:
    """Parse the arguments of a macro by number; also returns where they end."""
    values: dict[str, str] = {}
    for number in range(1, macro.parameters + 1):
        start = _NOT_SPACE.search(text, place).start()  # type: ignore[union-attr]
        sign = text[start : start + 1]
        if number == 1 and macro.default is not None:
            end = text.find("]", start, start + _MAX_OPTION) if sign == "[" else -1
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
# Macros by pylatexenc's notation of their arguments; dropped ones print nothing in running text.
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
    """The converter and its context database of macro arguments."""
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
    # It compares each character of the text with all specials: a third of the time of the conversion.
    first, find = {one.specials_chars[0] for one in known.iter_specials_specs()}, known.test_for_specials
    known.test_for_specials = lambda text, at, *state, **more: (
        find(text, at, *state, **more) if text[at] in first else None
    )
    return LatexNodes2Text(latex_context=texts, math_mode="text", strict_latex_spaces=False), known


def running_text(latex: str) -> str:
    """Remove figures, tables, displayed formulas, listings and the like."""
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
    """Convert LaTeX to text with single spaces, including formulas as far as possible. Never fails.

    >>> plain_text(r"An \\emph{\\'etude} of $x_i \\leq 5\\%$")
    'An étude of x_i ≤ 5%'
    """
    if not re.search(r"[\\${}~`']|--", latex):
        return " ".join(latex.split())
    converter, known = _converter()
    try:
        text = converter.latex_to_text(
            _brace_open_brackets(latex), tolerant_parsing=True, latex_context=known
        )
    except (LatexWalkerError, RecursionError, ValueError, LookupError, TypeError, AttributeError):
        # The parser rejects some malformed sources; keep their words.
        text = re.sub(r"\\[A-Za-z@]+\*?|[\\{}$~]", " ", latex)
    return " ".join(text.split())


def _brace_open_brackets(latex: str) -> str:
    """Put braces around each unclosed opening bracket, which prints the same.

    Without them, the parser needs exponential time: it parses each unclosed optional argument twice.
    """
    opened: list[int] = []
    unclosed: list[int] = []
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
                unclosed.append(opened.pop())
            opened.pop()
            braces -= 1
    unclosed += [place for place in opened if latex[place] == "["]
    pieces: list[str] = []
    done = 0
    for place in sorted(unclosed):
        pieces += (latex[done:place], "{[}")
        done = place + 1
    return "".join([*pieces, latex[done:]])
