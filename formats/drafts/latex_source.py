"""Read the source of a LaTeX document as one string: with its inputs, without comments, macros expanded."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import NamedTuple

from citerec.base.errors import InputError
from citerec.base.files import open_file, real_path
from citerec.formats.drafts.inputs import MAX_CHARACTERS, MAX_DEPTH, Inputs, decode_text
from citerec.formats.latex_text import braced_argument, remove_blocks

MAX_MACROS = 50_000
"""Maximum number of macro expansions per document."""
_MAX_OPTION = 1000

_DOCUMENT = re.compile(rb"^[^%\n]*\\document(?:class|style)\b", re.MULTILINE)
_COMMENT = re.compile(r"(?<!\\)((?:\\\\)*)%[^\n]*(?:\n[ \t]*)?")
_VERBATIM = re.compile(
    r"\\(?:verb\*?|lstinline\*?(?:\[[^\[\]\n]*\])?|mintinline(?:\[[^\[\]\n]*\])?\{\w+\})"
    r"(?:([^\sA-Za-z*{\[])(.{0,1000}?)\1|(?<!verb)(?<!verb\*)\{([^{}\n]{0,1000})\})"
)
_SPECIAL = re.compile(r"[^\w\s.,:;()/-]|_")
ADDRESS = r"\\(?:url|nolinkurl|path|href)\s*+\{[^{}\n]*\}"
"""An address, in which % begins no comment."""
CODE = "verbatim|Verbatim|lstlisting|minted"
_BEGIN_CODE, _END_CODE = (re.compile(rf"\\{tag}\s*\{{(?:{CODE})\*?\}}") for tag in ("begin", "end"))
_BEGIN_COMMENT, _END_COMMENT = re.compile(r"\\begin\{comment\}"), re.compile(r"\\end\{comment\}")
_CODE_CAPTION = re.compile(
    r"\\begin\s*\{lstlisting\}\s*\[[^\[\]]*?caption\s*=\s*(\{(?:[^{}]|\{[^{}]*\})*\})", re.DOTALL
)
_FALSE = re.compile(r"\\(?:iffalse(?![A-Za-z@])|if\s*0(?![0\\]))")
_CONDITION = (
    r"(?<!\\newif)\\(else|fi|if(?:x|num|dim|odd|case|cat|[hvm]mode|inner|void|[hv]box|eof|defined|csname|true"
    r"|false)?{})(?![A-Za-z@])"
)
"""What begins, divides or ends a condition of TeX; with those that \\newif declares."""
_NEW_CONDITION = re.compile(r"\\newif\s*\\(if[A-Za-z@]+)")
_END_OF_FILE = re.compile(r"\\endinput(?![A-Za-z@])")
_BEGIN, _END = r"\begin{document}", r"\end{document}"
INPUT = re.compile(
    r"\\(?P<command>(?:sub)?(?:import|includefrom|inputfrom))\*?\s*\{(?P<folder>[^{}]*)\}\s*\{(?P<file>[^{}]+)\}"
    r"|\\(?P<plain>input|include|subfile|subfileinclude|includestandalone|includepaper|InputIfFileExists)\b\s*"
    r"(?:\[[^\[\]]*\]\s*)?(?:\{(?P<braced>[^{}]+)\}|(?<=\s)(?P<bare>[^\s\\{}\[]+))"
)
"""A command that includes a file, with the folder that holds the file's own inputs (import)."""
_PART = re.compile(r"\\documentclass\s*(?:\[[^\]]*\]\s*)?\{(?:standalone|subfiles)\}")
"""The class of a document that others include: they take the body alone."""
_STYLE = re.compile(
    r"\\(?P<kind>documentclass|LoadClass|usepackage|RequirePackage)\w*\s*(?:\[[^\[\]]*\]\s*)?\{([^{}]+)\}"
)
BIBLIOGRAPHY = re.compile(
    r"\\(?:no)?bibliography(?!style|unit|name|section)[A-Za-z]*\*?\s*(?:\[[^\[\]]*\]\s*)?\{([^{}]+)\}"
    r"|\\(?:add(?:bibresource|globalbib|sectionbib)|defaultbibliography|begin\s*\{btSect\})\s*"
    r"(?:\[[^\[\]]*\]\s*)?\{([^{}]+)\}|\\(?:begin\s*\{refsection\}|newrefsection|putbib)\s*\[([^\[\]]+)\]"
)
"""Names of .bib files: those of BibTeX, biblatex, multibib, bibunits, bibtopic and bibentry."""
DEFINITION = re.compile(
    r"\\(?P<how>(?:re)?new|provide|DeclareRobust)(?:[cC]ommand|robustcmd)\*?\s*+"
    r"(?:\{\s*+\\(?P<braced>[A-Za-z@]+)\s*+\}|\\(?P<bare>[A-Za-z@]+))\s*+"
    r"(?:\[(?P<number>\d)\])?\s*+(?:\[(?P<default>[^\[\]]*)\])?\s*+(?=\{)"
    r"|\\[gex]?def\s*+\\(?P<defined>[A-Za-z@]+)(?P<parameters>(?:#\d)*)\s*+(?=\{)"
    r"|\\(?:New|Provide|Declare)(?:Expandable)?DocumentCommand\s*+"
    r"(?:\{\s*+\\(?P<document>[A-Za-z@]+)\s*+\}|\\(?P<command>[A-Za-z@]+))\s*+"
    r"\{(?P<specification>(?:[^{}]|\{[^{}]*\})*)\}\s*+(?=\{)"
)
_LET = re.compile(r"\\let\s*\\([A-Za-z@]+)\s*=?\s*(\\[A-Za-z]*[cC]ite[A-Za-z]*)(?![A-Za-z@])")
_ARGUMENT = re.compile(r"\s*+\+?(?:(?P<optional>o)|O\{(?P<default>[^{}]*)\}|(?P<star>s)|(?P<braced>m))\s*+")
_OWN = re.compile(
    r"(?:no)?bibliography|addbibresource|(?:title)?section|chapter|caption|footnote|input|include"
)
"""Commands of LaTeX that a style redefines, and that are read by their names."""
_FOLDER = re.compile(
    r"\\(?:newcommand|providecommand|def)\*?\s*(?:\{\s*\\([A-Za-z]+)\s*\}|\\([A-Za-z]+))\s*\{([^{}\\]{1,200})\}"
)
"""A macro that may be a part of an input's name."""
_SETTER = re.compile(
    r"\\newcommand\*?\s*\{?\s*\\([A-Za-z]+)\s*\}?\s*\[1\]\s*"
    r"\{\s*\\renewcommand\*?\s*\{?\s*\\([A-Za-z]+)\s*\}?\s*\{#1\}\s*\}"
)
"""A macro whose argument becomes the meaning of such a macro."""
_INPUT_OR_CALL = re.compile(INPUT.pattern + r"|\\(?P<setter>[A-Za-z]++)\s*+\{(?P<value>[^{}\\#]{1,200})\}")
_MACRO = re.compile(r"\\([A-Za-z@]+)")
_NOT_SPACE = re.compile(r"\S|$")
_PARAMETER = re.compile(r"#(\d)")
_CITES = re.compile(r"[cC]ite[A-Za-z]*\*?[^#]{0,200}#")


def is_paper(path: Path) -> bool:
    """True if a .tex file is a complete document rather than a part of one."""
    with open_file(path) as file:
        return is_document(file.read(1 << 20))


def is_document(start: bytes) -> bool:
    """True if a file that starts with these bytes is a document."""
    return _DOCUMENT.search(start) is not None


def read_source(path: Path, inputs: Inputs | None = None) -> str:
    """Read a document. Raises InputError if it or what its macros expand to is too large.

    Inputs in its folder or below are resolved; others, and missing ones, are skipped. Of classes and packages
    beside it, only commands that name bibliographies and macros that cite are read.
    """
    source = _Source(real_path(path), inputs or Inputs())
    text = source.read(source.path, (), source.folder)
    macros: dict[str, _Macro] = {}
    left = [MAX_MACROS, MAX_CHARACTERS]
    for _ in range(MAX_DEPTH):
        text = _take_definitions(_without_false(text), macros)
        text = _expand_macros(text, macros, path, left)
        if not INPUT.search(text):  # else in a macro
            break
        text = source.resolve(text, (source.path,), source.folder, last=True)
    body, end, _ = text.rpartition(_END)
    return f"{body}{end}" or text


def _without_comments(text: str) -> str:
    """Return a text without comments and code, but with captions of code, up to its \\endinput."""
    text = re.sub(ADDRESS, lambda address: re.sub(r"(?<!\\)%", r"\\%", address[0]), text)
    text = remove_blocks(_COMMENT.sub(r"\1", text), _BEGIN_COMMENT, _END_COMMENT)
    text = remove_blocks(_CODE_CAPTION.sub(r"\\caption\1\g<0>", text), _BEGIN_CODE, _END_CODE)
    return _END_OF_FILE.split(text, maxsplit=1)[0]


def _without_false(text: str) -> str:
    """Return a text without what stands between \\iffalse or \\if0 and its \\else or \\fi."""
    own = "".join(f"|{name}" for name in dict.fromkeys(_NEW_CONDITION.findall(text)))
    condition = re.compile(_CONDITION.format(own))
    pieces, done = list[str](), 0
    while first := _FALSE.search(text, done):
        depth = 1
        for token in condition.finditer(text, first.end()):
            depth += 1 if token[1].startswith("if") else -1 if token[1] == "fi" else 0
            if depth == 0 or (depth == 1 and token[1] == "else"):
                pieces.append(text[done : first.start()])
                done = token.end()
                break
        else:
            break
    return " ".join([*pieces, text[done:]])


class _Source:
    """A document with its inputs.

    inputs: how they are read. names: macros that may be parts of their names. setters: macros that change
    one of those. styles: classes and packages that were read.
    """

    def __init__(self, path: Path, inputs: Inputs) -> None:
        self.path, self.folder, self.inputs = path, path.parent, inputs
        self.names = {"jobname": path.stem}
        self.setters: dict[str, str] = {}
        self.styles: set[Path] = set()

    def read(self, file: Path, parents: tuple[Path, ...], folder: Path) -> str:
        """Return the text of a file with its inputs. folder: of the inputs (import), besides its own."""
        text = _VERBATIM.sub(
            lambda match: _SPECIAL.sub(" ", match[2] or match[3] or ""), self.inputs.open(file, parents)
        )
        text = _without_comments(text)
        if parents and _PART.search(text):
            text = (text.partition(_BEGIN)[2] or text).partition(_END)[0] + "\n"
        self.names.update((match[1] or match[2], match[3]) for match in _FOLDER.finditer(text))
        self.setters.update(_SETTER.findall(text))
        return self.resolve(_STYLE.sub(self._read_style, text), (*parents, file), folder)

    def resolve(self, text: str, parents: tuple[Path, ...], folder: Path, last: bool = False) -> str:
        """Insert the inputs of a text. last: its macros are expanded."""

        def read_input(match: re.Match[str]) -> str:
            if setter := match["setter"]:
                if setter in self.setters:
                    self.names[self.setters[setter]] = match["value"]
                return match[0]
            inside = self._name(match["folder"] or "")
            name = self._name(match["file"] or match["braced"] or match["bare"])
            if "#" in inside + name:
                return "" if last else match[0]  # in the definition of a macro
            above = folder if (match["command"] or "").startswith("sub") else self.folder
            own = above / inside if match["command"] else folder
            places = dict.fromkeys((own, folder, self.folder, parents[-1].parent))
            files = (place / f"{name}{suffix}" for place in places for suffix in (".tex", ""))
            named = f"\\{match['command'] or match['plain']}{{{Path(inside, name).as_posix()}}}"
            file = self.inputs.find(named, files, parents)
            return self.read(file, parents, own) if file else ""

        return _INPUT_OR_CALL.sub(read_input, text)

    def _name(self, written: str) -> str:
        name = written.strip().strip('"')
        return _MACRO.sub(lambda macro: self.names.get(macro[1], macro[0]), name)

    def _read_style(self, match: re.Match[str]) -> str:
        suffix = ".cls" if "lass" in match["kind"] else ".sty"
        pieces = [match[0]]
        for name in match[2].split(","):
            file = real_path(self.folder / f"{name.strip()}{suffix}")
            inside = file.is_relative_to(real_path(self.inputs.root or self.folder))
            if file not in self.styles and inside and os.path.isfile(file):
                self.styles.add(file)
                text = _without_comments(decode_text(file))
                pieces += map(self._read_style, _STYLE.finditer(text))
                pieces += (
                    match[0] for match in BIBLIOGRAPHY.finditer(text) if not {"#", "\\"} & set(match[0][1:])
                )
                for definition in DEFINITION.finditer(text):
                    body, end = braced_argument(text, definition.end())
                    if _CITES.search(body) and not _CITES.search(f"{definition[0]}#"):  # known by its name
                        pieces.append(text[definition.start() : end])
        return "".join(pieces)


class _Macro(NamedTuple):
    """defaults: of the parameters; None for a mandatory one, * for a star."""

    defaults: tuple[str | None, ...]
    body: str


def _take_definitions(text: str, macros: dict[str, _Macro]) -> str:
    """Return the text without the definitions of macros, which are added to `macros`."""
    pieces, done = [], 0
    while match := DEFINITION.search(text, done):
        pieces.append(text[done : match.start()])
        body, done = braced_argument(text, match.end())
        if match["how"] == "renew":  # these change the layout of LaTeX's own macros
            continue
        defaults: list[str | None] | None = [None] * (
            int(match["number"] or 0) or len(match["parameters"] or "") // 2
        )
        if match["default"] is not None and defaults:
            defaults[0] = match["default"]
        if match["specification"] is not None:
            defaults = _parse_specification(match["specification"])
        names = ("braced", "bare", "defined", "document", "command")
        name = next(match[group] for group in names if match[group])
        silent = "cite" in name.lower() and defaults and "#" not in body  # prints nothing in other settings
        if defaults is not None and not silent and not _OWN.fullmatch(name):
            macros.setdefault(name, _Macro(tuple(defaults), body.replace("\\xspace", "")))
    text = "".join([*pieces, text[done:]])
    for name, command in _LET.findall(text):
        macros.setdefault(name, _Macro((), command))
    return text


def _parse_specification(text: str) -> list[str | None] | None:
    """Return the defaults of the parameters of a document command; None for others than m, o, O and s."""
    arguments = [*_ARGUMENT.finditer(text)]
    if "".join(match[0] for match in arguments) != text:
        return None
    return [
        "*" if match["star"] else None if match["braced"] else match["default"] or "" for match in arguments
    ]


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
    for number, default in enumerate(macro.defaults, 1):
        start = _NOT_SPACE.search(text, place).start()  # type: ignore[union-attr]
        sign = text[start : start + 1]
        if default == "*":
            values[str(number)], place = ("*", start + 1) if sign == "*" else ("", place)
        elif default is not None:
            end = text.find("]", start, start + _MAX_OPTION) if sign == "[" else -1
            values[str(number)] = default if end < 0 else text[start + 1 : end]
            place = place if end < 0 else end + 1
        elif sign == "{":
            values[str(number)], place = braced_argument(text, start)
        else:
            token = _MACRO.match(text, start)
            place = token.end() if token else start + 1
            values[str(number)] = text[start:place]
    return values, place
