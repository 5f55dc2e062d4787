"""Read the source of a LaTeX document as one string: with its inputs, without comments, macros expanded."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

from citerec.base.errors import InputError
from citerec.datasets.languages.inputs import MAX_CHARACTERS, MAX_DEPTH, Inputs
from citerec.datasets.languages.latex_text import braced_argument, remove_blocks

MAX_MACROS = 50_000
"""Maximum number of macro expansions per document."""
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
_NOT_SPACE = re.compile(r"\S|$")
_PARAMETER = re.compile(r"#(\d)")


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
    text = _resolve_inputs(path.resolve(), (), inputs or Inputs(), {})
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


def _resolve_inputs(path: Path, parents: tuple[Path, ...], inputs: Inputs, folders: dict[str, str]) -> str:
    """Return the text of a file with its inputs. folders: macros that may be parts of their names."""
    text = _VERBATIM.sub(lambda match: _SPECIAL.sub(" ", match[2]), inputs.open(path, parents))
    text = _COMMENT.sub(r"\1", text)
    parents = (*parents, path)
    folder = parents[0].parent
    folders.update((found[1] or found[2], found[3]) for found in _FOLDER.finditer(text))

    def read_input(match: re.Match[str]) -> str:
        name = (match[1] or match[2]).strip().strip('"')
        name = _MACRO.sub(lambda macro: folders.get(macro[1], macro[0]), name)
        file = inputs.find(f"\\input{{{name}}}", (folder / f"{name}.tex", folder / name), parents)
        return _resolve_inputs(file, parents, inputs, folders) if file else ""

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
        too_deep = depth > MAX_DEPTH
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
