"""Convert LaTeX to plain text (pylatexenc), and remove what is not running text."""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

from citerec.formats.bibliography.tables import read_table
from citerec.formats.letters import GREEK

if TYPE_CHECKING:
    from pylatexenc.latex2text import LatexNodes2Text

logging.getLogger("pylatexenc").setLevel(logging.CRITICAL)  # unparsable parts are skipped

_BRACE = re.compile(r"\\.|[{}]", re.DOTALL)
_BRACE_OR_QUOTE = re.compile(r"\\.|[{}\"]", re.DOTALL)
_NO_TEXT = (
    "figure|subfigure|wrapfigure|sidewaysfigure|table|wraptable|sidewaystable|longtable|tabular|tabularx|"
    "equation|align|aligned|alignat|flalign|gather|multline|eqnarray|displaymath|math|dmath|IEEEeqnarray|"
    "algorithm|algorithm2e|algorithmic|verbatim|Verbatim|lstlisting|minted|tikzpicture|pgfpicture|picture|"
    "thebibliography|filecontents|abstract|keywords|IEEEkeywords|CCSXML|titlepage"
)
_BEGIN_OR_END = re.compile(rf"\\(begin|end)\s*\{{((?:{_NO_TEXT})\*?)\}}")
_DISPLAYED, _DISPLAYED_END = re.compile(r"(?<!\\)\\\["), re.compile(r"\\\]")
_FORMULA = re.compile(
    r"\\.|\$\$(?:[^$\\\n]|\\.|\n(?![ \t]*\n)|\$(?!\$))*+\$\$|\$(?:[^$\\\n]|\\.|\n(?![ \t]*\n))++\$", re.DOTALL
)
"""A formula: of $a$$b$, the signs between are none of a displayed one."""
_BRACKET = re.compile(r"\\.|[\[\]{}]", re.DOTALL)
_ACCENT = r"\\(?:not|hat|bar|tilde|vec|dot|ddot|acute|grave|check|breve)\s*"
_NO_ARGUMENT = re.compile(
    rf"(?<!\\)\$\s*{_ACCENT}\$|{_ACCENT}(?=\$)"
    r"|\\(?:kern|mkern|hskip|raise|lower)\s*[-+]?[\d.]+\s*(?:em|ex|pt|mu|cm|mm|in)\b"
    r"|\\begin\s*\{CJK\*?\}(?:\{\w*\}){2}"
)
"""Accents at the end of a formula, which would take its $ for their letter, TeX's distances, and fonts."""
_OUTSIDE_FORMULAS = re.compile(
    r"\\ifmmode\b(?:(?!\\ifmmode\b).)*?\\else\b\s*((?:(?!\\ifmmode\b).)*?)\\fi\b(?:\{\})?", re.DOTALL
)
"""A letter in two forms, as the American Physical Society writes it; the second is for text."""
_MACROS = [
    (name, row["arguments"], row["text"]) for row in read_table("macros") for name in row["macros"].split()
]
"""Macros, their arguments by pylatexenc's notation, and what they print in running text."""
_SWITCHES = frozenset(name for name, arguments, _ in _MACROS if arguments == "none")
"""Macros that print nothing of their own, as pylatexenc knows or assumes."""
_MACRO = re.compile(r"\\([A-Za-z]{2,}+)(?!\s*\{\s*[^\s}])")
"""A macro that takes no argument."""


@cache
def _contexts() -> tuple[Any, Any]:
    """Return the databases of what macros print, and of their arguments."""
    # Most texts have no LaTeX.
    from pylatexenc.latex2text import MacroTextSpec
    from pylatexenc.latex2text import get_default_latex_context_db as texts_of_macros
    from pylatexenc.latexwalker import get_default_latex_context_db as arguments_of_macros
    from pylatexenc.macrospec import MacroSpec

    texts, arguments = texts_of_macros(), arguments_of_macros()
    own = [macro for macro in _MACROS if macro[0] not in _SWITCHES]
    printed = [MacroTextSpec(name, text or None, discard=not text) for name, _, text in own]
    greek = {f"{kind}{name}": letter for kind in ("text", "up") for name, letter in GREEK.items()}
    printed += [MacroTextSpec(name, letter) for name, letter in greek.items()]
    parsed = [MacroSpec(name, args_parser=spec) for name, spec, _ in own if spec]
    texts.add_context_category("ours", prepend=True, macros=printed)
    arguments.add_context_category("ours", prepend=True, macros=parsed)
    # It compares each character of the text with all specials: a third of the time of the conversion.
    first, find = (
        {special.specials_chars[0] for special in arguments.iter_specials_specs()},
        arguments.test_for_specials,
    )
    arguments.test_for_specials = lambda text, at, *state, **more: (
        find(text, at, *state, **more) if text[at] in first else None
    )
    return texts, arguments


@cache
def _converter(keep_braces: bool) -> LatexNodes2Text:
    from pylatexenc.latex2text import LatexNodes2Text

    return LatexNodes2Text(
        latex_context=_contexts()[0],
        math_mode="text",
        strict_latex_spaces=False,
        keep_braced_groups=keep_braces,
    )


@cache
def _is_known(macro: str) -> bool:
    """True if it is known what a macro prints."""
    specs = [context.get_macro_spec(macro) for context in _contexts()]
    is_defined = any(spec is not None and spec.macroname == macro for spec in specs)
    return is_defined or macro in _SWITCHES or macro.startswith(("text", "math", "mkbib", "bib"))


def with_unknown_macros(latex: str, texts: Mapping[str, str]) -> str:
    r"""Write out macros without arguments that are not known: what `texts` has for them, else their names if
    they have capitals, as those of logos do.

    >>> with_unknown_macros(r"{\TUG} \emph{a}\foo in \apj", {"apj": "Astrophysical Journal"})
    '{TUG} \\emph{a} in Astrophysical Journal'
    """

    def written(match: re.Match[str]) -> str:
        name = match[1]
        return match[0] if _is_known(name) else texts.get(name, "" if name.islower() else name)

    return _MACRO.sub(written, latex)


_UMLAUTS = {
    **{f'"{letter}': umlaut for letter, umlaut in zip("aouAOUeiEI", "äöüÄÖÜëïËÏ", strict=True)},
    **{'"s': "ß", '"z': "ß", '"S': "SS", '"c': "c", '"C': "C"},
    **{f'"{letter}': letter for letter in "flmnprtFLMNPRT"},
}
_LETTERS = {
    **dict.fromkeys(("german", "ngerman", "austrian", "naustrian", "swissgerman", "nswissgerman"), _UMLAUTS),
    **dict.fromkeys(("dutch", "swedish", "finnish", "estonian"), _UMLAUTS),
    "polish": {f'"{a}': b for a, b in zip("acelnosxrACELNOSXR", "ąćęłńóśźżĄĆĘŁŃÓŚŹŻ", strict=True)},
    "slovene": {f'"{a}': b for a, b in zip("cszCSZ", "čšžČŠŽ", strict=True)},
}
"""Letters that babel's languages write with a quotation mark."""
_SIGN = {
    **{'"`': "„", "\"'": "“", '"<': "«", '">': "»", '"=': "-", '"~': "-", '"-': "", '"|': "", '""': ""},
    **{'"---': " — ", '"--~': " — ", '"--*': "— ", '"/': "/"},
}
_LOADED = re.compile(
    r"\\(?:documentclass|usepackage)\s*\[([^\[\]]*)\]\s*\{[^{}]*\}|\\usepackage\s*\{(n?german)\}"
    r"|\\(?:setdefault|setmain|setother|select)language\s*(?:\[[^\[\]]*\]\s*)?\{(\w+)\}"
)
_SHORTHAND = re.compile(
    r"(?<!\\)\"(?:-{2}[-~*]|[`'<>=~|/-]|\"(?=[^\W\d_]))"
    r"|(?<![\\=\s(\[{])\"[a-zA-Z]|(?<=[\s(\[{])\"[AOUaou](?=[a-z]+[\s,.;:)\]}~-])"
)
_GUILLEMETS = re.compile(r"<<\s*~?([^<>\n]{1,500}(?:\n[^<>\n]+){0,5}?)~?\s*>>")


_SIGNS_ONLY = re.compile(
    r"russian|ukrainian|bulgarian|danish|norsk|nynorsk|spanish|portuguese|brazil(?:ian)?|italian|french"
)
"""Languages whose shorthands are only signs."""


def shorthands(latex: str) -> dict[str, str] | None:
    """Return the letters of babel's shorthands in a document; None if its languages have no shorthands."""
    names = {
        name.strip()
        for match in _LOADED.finditer(latex)
        for part in match.groups("")
        for name in part.split(",")
    }
    languages = [name.split("=")[-1].strip() for name in names]
    loaded = [_LETTERS[name] for name in languages if name in _LETTERS]
    if not loaded and not any(map(_SIGNS_ONLY.fullmatch, languages)):
        return None
    return {sign: letter for letters in loaded for sign, letter in letters.items()}


def with_shorthands(latex: str, letters: Mapping[str, str]) -> str:
    r"""Write out babel's shorthands. letters: those of its languages.

    >>> with_shorthands('h"aufig, "`Stra"se"\', Pe"=Pa "--- <<so>>', shorthands(r"\usepackage{ngerman}"))
    'häufig, „Straße“, Pe-Pa  —  «so»'
    """
    text = _SHORTHAND.sub(lambda match: _SIGN.get(match[0], letters.get(match[0], match[0])), latex)
    return _GUILLEMETS.sub(r"«\1»", text)


_BIBLIOGRAPHY = re.compile(r"\\bibliography[A-Za-z]*\*?\s*(?:\[[^\[\]]*\]\s*)?\{[^{}]*\}")
"""Bibliographies, also of a part of the works as in multibib: what is between the braces is no text."""


def running_text(latex: str) -> str:
    """Remove figures, tables, displayed formulas, listings, names of bibliographies and the like."""
    pieces: list[str] = []
    done = depth = 0
    for tag in _BEGIN_OR_END.finditer(latex):
        if depth == 0:
            pieces.append(latex[done : tag.start()])
        depth = max(0, depth + (1 if tag[1] == "begin" else -1))
        done = tag.end()
    if depth == 0:
        pieces.append(latex[done:])
    text = remove_blocks(_BIBLIOGRAPHY.sub("", " ".join(pieces)), _DISPLAYED, _DISPLAYED_END)
    return _FORMULA.sub(lambda match: " " if match[0].startswith("$$") else match[0], text)


def plain_text(latex: str, keep_braces: bool = False) -> str:
    """Convert LaTeX to text with single spaces, including formulas as far as possible. Never fails.

    keep_braces: keep braces, except those around single characters.

    >>> plain_text(r"An \\emph{\\'etude} of $x_i \\leq 5\\%$")
    'An étude of x_i ≤ 5%'
    >>> plain_text(r"{GaN}$\\slash${AlN}, \\TeX\\kern-.15em XeT, So{$\\not$}rem, $\\hat$a and $b$")
    'GaN/AlN, TeXXeT, Sorem, a and b'
    >>> plain_text(r"Spi\\ifmmode \\check{s}\\else \\v{s}\\fi{}\\'ak on $z \\lt 2$ {\\textbar} hy\\-phens")
    'Spišák on z < 2 | hyphens'
    """
    if not re.search(r"[\\${}~`']|--", latex):
        return " ".join(latex.split())
    from pylatexenc.latexwalker import LatexWalkerError

    try:
        text = _converter(keep_braces).latex_to_text(
            _brace_open_brackets(_OUTSIDE_FORMULAS.sub(r"\1", _NO_ARGUMENT.sub("", latex))),
            tolerant_parsing=True,
            latex_context=_contexts()[1],
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


def delimited_end(text: str, start: int, limit: int = sys.maxsize) -> int:
    """Return the end of the braces or quotes that open at a place; 0 if they are not closed before the
    limit. Quotes within braces end nothing."""
    quotes = text.startswith('"', start)
    depth, closing = 0, '"' if quotes else "}"
    for sign in (_BRACE_OR_QUOTE if quotes else _BRACE).finditer(text, start + quotes, limit):
        depth += {"{": 1, "}": -1}.get(sign[0], 0)
        if depth == 0 and sign[0] == closing:
            return sign.end()
    return 0


def braced_argument(text: str, start: int) -> tuple[str, int]:
    """Return the content of the braces that open at `start`, and their end: that of the text if unclosed."""
    end = delimited_end(text, start)
    return (text[start + 1 : end - 1], end) if end else (text[start + 1 :], len(text))


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
