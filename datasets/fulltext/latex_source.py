"""The source of a LaTeX document as one string: with inputs, without comments, its own macros replaced."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from datasets.byte_files import whole_file
from datasets.errors import InputError

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
