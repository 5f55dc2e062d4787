"""Org: documents with their bibliography, and drafts."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from citerec.base.files import real_path
from citerec.formats.documents import Metadata
from citerec.formats.drafts.bibliographies import References
from citerec.formats.drafts.inputs import Inputs
from citerec.formats.drafts.language import BREAK, CITE_MARK, Citation, Key, Language, Open, Source, outermost
from citerec.formats.drafts.latex import LATEX
from citerec.formats.identifiers import find_year
from citerec.formats.latex_text import plain_text

_KEY = re.compile(
    r"(?<![\w/])@([\w\u0300-\u036f\uf000-\uf8ff](?:[\w\u0300-\u036f\uf000-\uf8ff:.#$%&+?<>~/'*|^!-]*[\w\u0300-\u036f\uf000-\uf8ff/])?|\?+|)"
)
_KEY_CHARACTERS = r"[\w\u0300-\u036f:.#$%&+?<>~/'*|^!-]"
_LINKED = (
    r"(?:[Pp]aren|[Ff]oot|[Tt]ext|[Aa]uto|[Ss]mart|[Ss]uper|[Ff]ull|footfull|[Pp]?no|short|in)?"
    r"[Cc]ite[A-Za-z]*\*?"
)
"""Types of org-ref's links that cite."""
_LINK_KEY = (
    r"[\w\uf000-\uf8ff?](?:[\w\u0300-\u036f\uf000-\uf8ff:.#$%+?/'*^-]*[\w\u0300-\u036f\uf000-\uf8ff/?])?"
)
_CITATION = re.compile(
    r"\[cite(?P<style>(?:/[\w/-]*)?):(?:[^\[\]]++|\[[^\[\]]*+\])*+\]"
    rf"|\[\[(?P<bracket>{_LINKED}):(?P<linked>[^\[\]\n]+)\](?:\[[^\[\]\n]*\])?\]"
    rf"|(?<![\w:/])(?P<plain>{_LINKED}):(?P<keys>{_LINK_KEY}(?:,{_LINK_KEY})*+|&{_LINK_KEY}(?:;&{_LINK_KEY})*+)"
    rf"|{CITE_MARK.pattern}"
)
_LINKED_KEY, _OLD_KEY = re.compile(rf"&({_LINK_KEY}|)"), re.compile(_LINK_KEY)
_SILENT = re.compile(r"/n(?:ocite)?(?:/.*)?|nocite")
"""Styles that do not print a citation."""
_ALL = re.compile(r"\[cite/n(?:ocite)?:[^\[\]]*@\*")
_BIBLIOGRAPHY = re.compile(
    r"^[ \t]*#\+bibliography:[ \t]*(?P<line>[^\n]*)"
    r"|(?:^|\[\[|(?<=\s))(?:no)?bibliography:(?P<link>[^\s\[\]]+)"
    r"|addbibresource:(?P<resource>[^\s\[\]]+)|\\(?:addbibresource|bibliography)\{(?P<latex>[^{}\n]+)\}",
    re.MULTILINE | re.IGNORECASE,
)
_FILE = re.compile(r"[^\s\",][^\",\n]*?(?=\s*(?:[\",\n]|\Z))")
_KEYWORD = r"^[ \t]*#\+{}:[ \t]*([^\n]*)"
_TITLE, _DATE = (re.compile(_KEYWORD.format(name), re.M | re.I) for name in ("title", "date"))
_ABSTRACT = re.compile(r"^[ \t]*#\+begin_abstract\b(.*?)^[ \t]*#\+end_abstract", re.M | re.I | re.S)
_CAPTION = r"#\+caption(?:\[[^\[\]\n]*\])?:"
_LINE = re.compile(
    rf"^[ \t]*(?:{_CAPTION}|#\+[^\n]*|(?:\|[-+|]+|:[\w-]+:)(?=[ \t{BREAK}]*$)|(?:[-+]|\d+[.)])[ \t]+"
    rf"(?:\[[ X-]\][ \t]+)?|(?:CLOSED|DEADLINE|SCHEDULED):[ \t]*[\[<][^\n]*)|^[ \t]*\||\|(?=[ \t{BREAK}]*$)",
    re.MULTILINE | re.IGNORECASE,
)
_CELLS = re.compile(r"[ \t]\|[ \t]")
_ASIDE = re.compile(rf"^[ \t]*(?:{_CAPTION}|\|)[^\n]*", re.MULTILINE | re.IGNORECASE)
_TERM = re.compile(r":?[ \t]+::(?=\s)")
"""What ends the term of a description."""
_LATEX = re.compile(
    r"\\begin\{(\w+\*?)\}.{0,5000}?\\end\{\1\}|\$\$[^$]{1,2000}\$\$|\$(?=[^\s$])[^$\n]{0,500}?(?<=\S)\$(?!\d)"
    r"|\\\\(?=[ \t]*$)|\\[A-Za-z]+\*?(?:\[[^\[\]\n]*\])?(?:\{(?:[^{}]|\{[^{}]*\})*\})*",
    re.DOTALL | re.MULTILINE,
)
"""LaTeX within Org: environments, formulas and commands with their arguments."""
_LINK = re.compile(
    r"\[\[[^\[\]\n]*\](?:\[([^\[\]\n]*)\])?\]|\[fn:[^\[\]\n]*\]|<<[^<>\n]*>>|\{\{\{[^{}\n]*\}\}\}"
    r"|(?<![\w:/])(?:[Cc]?ref|eqref|pageref|autoref|nameref|label):[\w:.-]*\w"
)
"""Links, notes, targets, macros and org-ref's references."""
_EMPHASIS = re.compile(r"(?<![\w*/_+])([*/_+])(?=\S)([^*/_+\n]{1,500}?)(?<=\S)\1(?!\w)")


_TAGGED = re.compile(r"^(\*+)[ \t]+(?:(?!COMMENT)[A-Z]+[ \t]+)?(COMMENT\b)?([^\n]*)", re.MULTILINE)
_EXCLUDED = re.compile(r"^[ \t]*#\+exclude_tags:[ \t]*([^\n]*)", re.MULTILINE | re.IGNORECASE)


def _not_exported(text: str) -> Iterator[tuple[int, int]]:
    """Yield the start and end of the subtrees that are not exported."""
    named = [tag for match in _EXCLUDED.finditer(text) for tag in match[1].split()]
    tags, start, level = {*(named or ["noexport"])}, 0, 0
    for heading in _TAGGED.finditer(text):
        if level and len(heading[1]) <= level:
            yield start, heading.start()
            level = 0
        last = heading[3].rstrip().rpartition(" ")[2]
        if not level and (
            heading[2] or (last[:1] == ":" == last[-1:] and not tags.isdisjoint(last.split(":")))
        ):
            start, level = heading.start(), len(heading[1])
    if level:
        yield start, len(text)


class Org(Language):
    """Org, with its own citations, org-ref's links and LaTeX's."""

    name = "Org"
    suffixes = (".org",)
    marks = "[cite:@?] or [CITE]"
    comment = "@@comment:{}@@"  # a line with # would end the paragraph, list or table
    entry_types = dict.fromkeys(("phdthesis", "mastersthesis"), "thesis") | {
        "techreport": "report",
        "conference": "inproceedings",
        "electronic": "online",
        "www": "online",
    }
    _include = re.compile(
        r"^[ \t]*#\+(?:include|setupfile):[ \t]*"
        r"(?:\"([^\"\n]+?\.org)(?:::[^\"\n]*)?\"|([^\s\"]+?\.org)(?:::\S*)?(?!\S))[^\n]*",
        re.MULTILINE | re.IGNORECASE,
    )
    _hidden = re.compile(
        r"^[ \t]*[#:](?=[ \t]|$)[^\n]*|@@comment:.*?@@"
        r"|^[ \t]*#\+begin_(comment|src|example|export)\b.*?(?:^[ \t]*#\+end_\1|\Z)"
        r"|^[ \t]*:(?!END:)[\w-]+:[ \t]*\n(?:(?!\*+[ \t]|[ \t]*:(?!END:)[\w-]+:[ \t]*$)[^\n]*\n)*?"
        r"[ \t]*:END:[ \t]*$"
        r"|(?<![^\s\-('\"{])([=~])(?=\S)[^\n]{0,500}?(?<=\S)\2(?!\w)"
        r"|\\\((?:[^\\]|\\(?![()])){0,2000}\\\)|\\\[(?:[^\\]|\\(?![\[\]])){0,5000}\\\]",
        re.MULTILINE | re.DOTALL | re.IGNORECASE,
    )
    before = re.compile(
        r"(?:(?P<opened>\[\[?)(?:cite(?:/[\w/-]*)?:(?:[^\[\]]|\[[^\[\]]*+\])*?(?<!\w)@"
        rf"|{_LINKED}:[^\[\]\n]*&)|(?<![\w:/\[]){_LINKED}:(?:&?{_LINK_KEY}[,;])*&?)(?P<key>{_KEY_CHARACTERS}*)\Z"
    )
    after = re.compile(rf"{_KEY_CHARACTERS}*(?<=[\w\u0300-\u036f/?])")
    closing = "]]"
    _paragraph_end = re.compile(r"(?<=\|)\n|\n(?=[ \t]*(?:\n|\||#\+|:\S+:\s|(?:[-*+/]|\d+[.)])[ \t]+\S))")
    _heading = re.compile(r"^(\*+)[ \t]+(.*?)[ \t]*(?::[\w@:]+:)?[ \t]*$", re.MULTILINE)
    _note = re.compile(
        r"^\[fn:(?P<name>[\w-]+)\](?P<text>.*?)(?=\n[ \t]*\n[ \t]*\n|^\*+[ \t]|^\[fn:[\w-]+\]|\Z)"
        r"|\[fn:[\w-]*:(?P<inline>(?:[^\[\]]++|\[(?:[^\[\]]++|\[[^\[\]]*+\])*+\])*+)\]|\[fn:(?P<called>[\w-]+)\]",
        re.MULTILINE | re.DOTALL,
    )

    def hidden(self, text: str) -> Iterator[tuple[int, int]]:
        """Yield also the parts that are not exported: with a tag such as noexport, or COMMENT."""
        return outermost(sorted([*super().hidden(text), *_not_exported(text)]))

    def citations(self, text: str) -> Iterator[Citation]:
        latex = (citation for citation in LATEX.citations(text) if citation.cited)
        return outermost(sorted((*self._own_citations(text), *latex)))

    def _own_citations(self, text: str) -> Iterator[Citation]:
        for match in _CITATION.finditer(text):
            if match["linked"] or match["keys"]:
                span = match.span("linked" if match["linked"] else "keys")
                matches = (_LINKED_KEY if "&" in match[0] else _OLD_KEY).finditer(text, *span)
                style = match["bracket"] or match["plain"]
            else:
                matches, style = _KEY.finditer(text, *match.span()), match["style"] or ""
            keys = tuple(Key(key[key.lastindex or 0], *key.span(key.lastindex or 0)) for key in matches)
            if keys or CITE_MARK.fullmatch(match[0]):
                yield Citation(*match.span(), keys or (Key("", *match.span()),), not _SILENT.fullmatch(style))

    def open_at(self, text: str, caret: int) -> Open | None:
        return super().open_at(text, caret) or LATEX.open_at(text, caret)

    def cite(self, key: str) -> str:
        return f"[cite:@{key}]"

    def read(self, path: Path, inputs: Inputs) -> Source:
        text = self.with_inputs(real_path(path), inputs)
        citations = [*self.citations(text)]
        keys = dict.fromkeys(key for citation in citations if citation.printed for key in citation.cited)
        uncited = {
            key.key for citation in citations if not citation.printed for key in citation.keys if key.key
        }
        uncited |= {"*"} if _ALL.search(text) else set()
        references = References(path, [name.key for name in self.bibliographies(text)], inputs.root)
        return Source(text, self.metadata(text), [*keys], references, uncited, inputs.notes)

    def metadata(self, head: str) -> Metadata:
        title, date, abstract = (pattern.search(head) for pattern in (_TITLE, _DATE, _ABSTRACT))
        summary = self.plain(self.without_citations(abstract[1])) if abstract else ""
        summary = summary or self.named_section(self.sections(head)[0], "abstract")
        year = find_year(date[1]) if date else 0
        return Metadata("", self.plain(self.without_citations(title[1])) if title else "", summary, year)

    def _bibliographies(self, visible: str) -> list[Key]:
        spans = [match.span(match.lastindex or 0) for match in _BIBLIOGRAPHY.finditer(visible)]
        return [Key(file[0], *file.span()) for span in spans for file in _FILE.finditer(visible, *span)]

    def body(self, text: str, running: bool = False) -> str:
        return _ASIDE.sub("", text) if running else text

    def plain(self, text: str) -> str:
        """Remove keywords, signs of lists and tables, links and emphasis; LaTeX becomes text.

        >>> Org().plain("- Term :: We *parse* [[https://x.org][trees]] at \\\\ac{LHC} with $p \\\\leq 5$ %.")
        'Term: We parse trees at LHC with p ≤ 5 %.'
        >>> Org().plain("| a | b |\\n|---+---|\\n#+caption: Trees.")
        'a b Trees.'
        """
        text = _LINK.sub(lambda match: match[1] or " ", _TERM.sub(":", _CELLS.sub(" ", _LINE.sub("", text))))
        text = _LATEX.sub(lambda match: plain_text(match[0]), text)
        return " ".join(_EMPHASIS.sub(r"\2", text).split())


ORG = Org()
