"""Typst: documents with their bibliography, and drafts."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from citerec.datasets.fulltext.catalogue import find_year
from citerec.datasets.fulltext.documents import Metadata
from citerec.datasets.languages.bibliographies import References
from citerec.datasets.languages.inputs import Inputs
from citerec.datasets.languages.language import CITE_MARK, Citation, Key, Language, Source, identified

_LABEL = r"<([^<>\s]*)>|label\(\"([^\"\n]*)\"\)"
_KEY = rf"\bcite\(\s*(?:{_LABEL})|(?<![\w@\\/.])@((?:[\w\uf000](?:[\w:.-]*\w)?)|\?+)"
"""A cited key: in a label, which is that of a call of cite, or after @."""
_CITATION = re.compile(
    rf"#?(?:{_KEY})(?:(?<=[>)])[^()\n]*\))?(?:\[[^\[\]\n]*\])?|{CITE_MARK.pattern}", re.IGNORECASE
)
_BIBLIOGRAPHY = re.compile(r"\bbibliography\(\s*\(?((?:\s*\"[^\"\n]*\"\s*,?)+)")
_STRING = re.compile(r"(?<=\")[^\",\n]+(?=\")")
_REFERENCE = re.compile(r"\w(?:[\w:.-]*\w)?")
"""What may follow @."""
_CROSS_REFERENCE = re.compile(r"(?:fig|tab|tbl|eq|equ|eqt|sec|lst|alg|thm|lem|def|app|chap)[-:]")
_FIELD = r"(?:\"([^\"]{0,2000})\"|\[((?:[^\[\]]|\[[^\[\]]*\]){0,20000})\])"
_TITLE, _ABSTRACT = (re.compile(rf"\b{name}\s*:\s*{_FIELD}") for name in ("title", "abstract"))
_DATE = re.compile(r"\bdate\s*:([^\n]*)|\bdatetime\(\s*year\s*:([^,)\n]*)")
_RULE = re.compile(r"^[ \t]*#(?:set|show|import|include|let|bibliography)\b[^\n]*", re.MULTILINE)
_CALL = re.compile(r"#[A-Za-z][\w.-]*(?:\([^()\n]{0,1000}\))?|(?<=\s)<[\w:.-]+>")
_SIGNS = re.compile(r"(?<!\w)[*_](?=\S)|(?<=\S)[*_](?!\w)|[\[\]]|^[ \t]*[-+/][ \t]+", re.MULTILINE)
_ESCAPED = re.compile(r"\\([^\w\s])")


class Typst(Language):
    """Typst."""

    name = "Typst"
    ids = ("typst",)
    suffixes = (".typ",)
    marks = "#cite(<?>), @? or [CITE]"
    comment = "/* {} */"
    hidden = re.compile(
        r"(?<!:)//[^\n]*|/\*.*?(?:\*/|\Z)|(`{3,}).*?(?:\1|\Z)|`[^`\n]*`"
        r"|(?<!\\)\$(?:[^$\\]|\\.){0,2000}\$",
        re.DOTALL,
    )
    before = re.compile(r"(?:(?<![\w@\\/.])@|(?P<opened>\bcite\(\s*<))(?P<key>[\w:.?-]*)\Z")
    after = re.compile(r"[\w:.-]*(?<=\w)|\?+")
    closed = re.compile(r">")
    closing = ">)"
    _heading = re.compile(r"^[ \t]*(=+)[ \t]+(.*?)[ \t]*(?:<[^<>\s]*>)?[ \t]*$", re.MULTILINE)

    def citations(self, text: str) -> Iterator[Citation]:
        for found in _CITATION.finditer(text):
            number = found.lastindex
            key = Key(found[number], *found.span(number)) if number else Key("", *found.span())
            yield Citation(*found.span(), () if _CROSS_REFERENCE.match(key.key) else (key,))

    def cite(self, key: str) -> str:
        return f"@{key}" if _REFERENCE.fullmatch(key) else f'#cite(label("{key}"))'

    def insertion(self, text: str, start: int, end: int, key: str) -> tuple[int, int, str]:
        before, regular = text[start - 1 : start], _REFERENCE.fullmatch(key)
        if before == "@" and not regular:
            return start - 1, end, self.cite(key)
        if before == "<" and not regular and text[end : end + 1] == ">":
            return start - 1, end + 1, f'label("{key}")'
        return super().insertion(text, start, end, key)

    def read(self, path: Path, inputs: Inputs, paper: str = "") -> Source:
        text = self.hidden.sub(" ", inputs.open(path.resolve(), ()))
        keys = dict.fromkeys(key for one in self.citations(self.body(text)) for key in one.cited)
        names = [name.key for name in self.bibliographies(text)]
        references = References(path, names, root=inputs.root)
        return Source(text, identified(self.metadata(text), paper), [*keys], references, notes=inputs.notes)

    def metadata(self, head: str) -> Metadata:
        title, abstract = (
            match[1] or match[2] if match else "" for match in (_TITLE.search(head), _ABSTRACT.search(head))
        )
        date = _DATE.search(head)
        sections, _ = self.sections(self.body(head))
        title = title or next((name for level, name, _ in sections if level == 1), "")
        about = self.plain(abstract) or self.named_section(sections, "abstract")
        year = find_year(date[1] or date[2] or "") if date else 0
        return Metadata("", self.plain(title), about, year)

    def bibliographies(self, text: str) -> list[Key]:
        calls = _BIBLIOGRAPHY.finditer(text)
        names = (name for call in calls for name in _STRING.finditer(text, *call.span(1)))
        return [Key(name[0], *name.span()) for name in names]

    def plain(self, text: str) -> str:
        """Remove calls, labels, emphasis and escapes.

        >>> Typst().plain("We *parse* #text(red)[trees] fast. <sec:a>")
        'We parse trees fast.'
        """
        return " ".join(_ESCAPED.sub(r"\1", _SIGNS.sub("", _CALL.sub("", text))).split())

    def body(self, text: str, running: bool = False) -> str:
        return _RULE.sub("", text)


TYPST = Typst()
