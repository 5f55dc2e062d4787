"""Texts of entries: LaTeX to plain text, and back."""

from __future__ import annotations

import html
import re
from collections.abc import Callable

from citerec.formats.bibliography.paper import clean_text
from citerec.formats.bibliography.tables import read_table
from citerec.formats.latex_text import plain_text, with_unknown_macros

_BARE_SIGN = re.compile(r"(?<!\\)[&%]")
_ESCAPED = re.compile(r"\\([%&_#{}$])")
_NEEDS_PARSER = re.compile(r"[\\$~]")
_ADDRESS = re.compile(r"\\(?:url|nolinkurl|path)\s*\{([^{}]*)\}")
_DOUBLED = re.compile(
    r"\$\\backslash\$(?:([nr])(?![a-z{])|(?=[A-Za-z])|(?=['’\"`^~=.]\s?(?:\{?\\?\{\}?)?[A-Za-z]))"
)
"""A backslash that was escaped once more, by Mendeley and Google Scholar; n and r are ends of lines."""
_BRACE = re.compile(r"\{\\([{}])\}|\$\\([{}])\$")
_ACCENT = re.compile(r"\\’(?=\{?[aeiouycnszAEIOUYCNSZ])|\\(?=’)")
_BACKSLASH = re.compile(r"\\char\s*`\\\\")
"""A backslash by its code, as in the names of macros."""
_JOURNALS = {row["macro"]: row["journal"] for row in read_table("journals")}
"""Macros of the American Astronomical Society, which NASA's ADS writes for journals."""
_QUOTES = (("``", "“"), ("''", "”"), ("---", "—"), ("--", "–"))
_SPECIAL = str.maketrans(
    {char: f"\\{char}" for char in "%&#_$"}
    # Not \{ and \}, since BibTeX includes escaped braces when it balances braces.
    | {"{": r"\textbraceleft{}", "}": r"\textbraceright{}", "\\": r"\textbackslash{}"}
    | {"~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
)
_BARE = re.compile(
    r"\\[A-Za-z]*(?:url|path|href|cite|ref|label|ensuremath)[A-Za-z]*\*?\s*(?:\[[^\[\]]*\])*"
    r"\{(?:[^{}]|\{[^{}]*\})*\}|\\\(.*?\\\)|\\.|\$(?:\\.|[^$\\&#%])+\$|(?P<bare>[&#%_^$])",
    re.DOTALL,
)
"""Commands, addresses and formulas, or else a sign that needs a backslash."""
_DOTLESS = re.compile(r"\\([`'^\"~=.])\s*(?:\{\\([ij])\s*\}|\\([ij])(?![A-Za-z])\s*)")
_MATHS = re.compile(r"(\$(?!\s)[^$]+(?<!\s)\$(?!\d))")
_WORDS = re.compile(r"(\$(?!\s)[^$]+(?<!\s)\$(?!\d)|[\s:,;?!()\[\]]+)")
_TAG = re.compile(r"<(/?)(i|em|b|strong|sub|sup|sc|span)\b([^<>]*)>")
_COMMANDS = {"span": "{", "sub": r"\textsubscript{", "sup": r"\textsuperscript{", "sc": r"\textsc{"}
_COMMANDS |= dict.fromkeys(("i", "em"), r"\emph{") | dict.fromkeys(("b", "strong"), r"\textbf{")
"""Commands for mark-up in CSL's texts; a span keeps the case."""


def latex_to_text(latex: str) -> str:
    r"""Convert the LaTeX of a field to plain text.

    >>> latex_to_text(r"{BERT} and \'etudes of $x_i$ -- 5\%")
    'BERT and études of x_i – 5%'
    >>> latex_to_text(r"\mnras, see \url{http://a.org/~b_c%20d}")
    'Monthly Notices of the Royal Astronomical Society, see http://a.org/~b_c%20d'
    >>> latex_to_text(r"From {\tt\char`\\newcommand} on")
    'From \\newcommand on'
    >>> latex_to_text(r"{$\{$$\backslash$lambda$\}$} of $\backslash$'{\{}e{\}}t{\{}$\backslash$'e{\}}")
    'λ of été'
    >>> latex_to_text(r"R & D, \emph{A}&B")
    'R & D, A&B'
    >>> latex_to_text(r"Na\"{i}ve at 5% of all")
    'Naïve at 5% of all'
    """
    latex = _written_out(latex)
    unescaped = _ESCAPED.sub(lambda match: match[1] if match[1] not in "{}$" else match[0], latex)
    if _NEEDS_PARSER.search(unescaped):
        return clean_text(plain_text(latex))
    text = unescaped.replace("{", "").replace("}", "")
    for source, printed in _QUOTES:
        text = text.replace(source, printed)
    return clean_text(text)


def latex_to_names(latex: str) -> str:
    r"""Convert the LaTeX of names to text with their braces, which keep an institution's words together.

    >>> latex_to_names(r"{Moss and Fern} and \v{S}imek, Bo and Mu\~noz, A.~B.")
    '{Moss and Fern} and Šimek, Bo and Muñoz, A. B.'
    """
    if not _NEEDS_PARSER.search(latex):
        return latex
    return plain_text(_written_out(latex), keep_braces=True)


def _written_out(latex: str) -> str:
    """Return LaTeX with addresses, journals, unknown macros, `&`, which separates no columns, and `%`, which
    begins no comment, as text."""
    if _DOUBLED.search(latex):
        latex = _DOUBLED.sub(lambda match: " " if match[1] else "\\", latex)
        latex = _BRACE.sub(lambda match: match[1] or match[2], latex)
        latex = _ACCENT.sub(lambda match: "\\'" if len(match[0]) > 1 else "", latex)
    latex = _BARE_SIGN.sub(r"\\\g<0>", latex)
    if "\\" not in latex:
        return latex
    latex = _ADDRESS.sub(lambda match: _ESCAPED.sub(r"\1", match[1]).translate(_SPECIAL), latex)
    return with_unknown_macros(_BACKSLASH.sub(r"\\textbackslash{}", latex), _JOURNALS)


def escape_latex(text: str) -> str:
    r"""Escape a text for LaTeX, except formulas between dollars.

    >>> escape_latex("R&D at 5% of $O(n_i)$")
    'R\\&D at 5\\% of $O(n_i)$'
    """
    pieces = _MATHS.split(text)
    return "".join(
        piece if index % 2 and _is_balanced(piece) else piece.translate(_SPECIAL)
        for index, piece in enumerate(pieces)
    )


def escape_bare(latex: str) -> str:
    r"""Escape the signs of a field's LaTeX that cannot be typeset as they stand.

    >>> escape_bare(r"R & D at 5% \& $x_1$ of C#, for $5, \url{a_b%20#c}")
    'R \\& D at 5\\% \\& $x_1$ of C\\#, for \\$5, \\url{a_b%20#c}'
    >>> escape_bare(r"na{\"\i}ve Garc\'{\i}a")
    'na{\\"i}ve Garc\\\'ia'
    """
    latex = _DOTLESS.sub(lambda match: f"\\{match[1]}{match[2] or match[3]}", latex)
    return _BARE.sub(lambda match: match[0].translate(_SPECIAL) if match["bare"] else match[0], latex)


def journal_name(latex: str) -> str:
    r"""Return the journal that a macro of the American Astronomical Society stands for; "" for other texts.

    >>> journal_name(r"{\apj}"), journal_name("ApJ")
    ('Astrophysical Journal', '')
    """
    match = re.fullmatch(r"[{\s]*\\([A-Za-z]+)[}\s]*", latex)
    return _JOURNALS.get(match[1], "") if match else ""


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
    for index, piece in enumerate(_WORDS.split(title)):  # words at even indices
        escaped = escape_latex(piece)
        has_capitals = index % 2 == 0 and any(char.isupper() for char in piece[1:])
        pieces.append(f"{{{escaped}}}" if has_capitals else escaped)
    return "".join(pieces)


def marked_up(text: str, write: Callable[[str], str]) -> str:
    r"""Convert a text with CSL's mark-up to LaTeX. write: converts what is between the tags.

    >>> marked_up("<i>E. coli</i> in H<sub>2</sub>O &amp; 5%", escape_latex)
    '\\emph{E. coli} in H\\textsubscript{2}O \\& 5\\%'
    """
    pieces, done, opened = list[str](), 0, list[str]()
    for tag in _TAG.finditer(text) if "<" in text else ():
        if tag[1] and (not opened or opened[-1] != tag[2]):
            return write(clean_text(text))
        pieces.append(write(html.unescape(text[done : tag.start()])))
        done = tag.end()
        if tag[1]:
            opened.pop()
            pieces.append("}")
        else:
            opened.append(tag[2])
            pieces.append(r"\textsc{" if "small-caps" in tag[3] else _COMMANDS[tag[2]])
    if opened:
        return write(clean_text(text))
    return "".join([*pieces, write(html.unescape(text[done:]))])


def latex_url(url: str) -> str:
    """Escape what a URL or DOI cannot have in a BibTeX field."""
    return url.translate({ord(char): f"%{ord(char):02X}" for char in "{}\\"})
