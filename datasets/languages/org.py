"""Org: documents with their bibliography, and drafts."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from citerec.datasets.fulltext.catalogue import find_year
from citerec.datasets.fulltext.documents import Metadata
from citerec.datasets.languages.bibliographies import References
from citerec.datasets.languages.inputs import Inputs
from citerec.datasets.languages.language import CITE_MARK, Citation, Key, Language, Source, identified

_KEY = re.compile(r"(?<!\w)@([\w\uf000-\uf8ff](?:[\w\uf000-\uf8ff:.#$%&+?<>~/-]*[\w\uf000-\uf8ff/])?|\?+|)")
_CITATION = re.compile(rf"\[cite(?:/[\w/-]*)?:[^\[\]]{{0,5000}}\]|{CITE_MARK.pattern}", re.IGNORECASE)
_KEY_CHARACTERS = r"[\w:.#$%&+?<>~/-]"
_BIBLIOGRAPHY = re.compile(r"^[ \t]*#\+bibliography:[ \t]*([^\n]*)", re.MULTILINE | re.IGNORECASE)
_FILE = re.compile(r"[^\s\",][^\",\n]*?(?=\s*(?:[\",\n]|\Z))")
_KEYWORD = r"^[ \t]*#\+{}:[ \t]*([^\n]*)"
_TITLE, _DATE = (re.compile(_KEYWORD.format(name), re.M | re.I) for name in ("title", "date"))
_ABSTRACT = re.compile(r"^[ \t]*#\+begin_abstract\b(.*?)^[ \t]*#\+end_abstract", re.M | re.I | re.S)
_LINE = re.compile(r"^[ \t]*(?:#\+[^\n]*|\|[^\n]*|[-+][ \t]+|\d+[.)][ \t]+)", re.MULTILINE)
_LINK = re.compile(r"\[\[[^\[\]\n]*\](?:\[([^\[\]\n]*)\])?\]|\[fn:[^\[\]\n]*\]")
_EMPHASIS = re.compile(r"(?<![\w*/_+])([*/_+])(?=\S)([^*/_+\n]{1,500}?)(?<=\S)\1(?!\w)")


class Org(Language):
    """Org, with the citations of Org 9.5."""

    name = "Org"
    ids = ("org",)
    suffixes = (".org",)
    marks = "[cite:@?] or [CITE]"
    comment = "# {}\n"
    hidden = re.compile(
        r"^[ \t]*#(?=[ \t]|$)[^\n]*|^[ \t]*#\+begin_(comment|src|example|export)\b.*?(?:^[ \t]*#\+end_\1|\Z)"
        r"|^[ \t]*:[A-Z_]+:[ \t]*\n.*?(?:^[ \t]*:END:|\Z)|(?<!\S)([=~])(?=\S)[^\n]{0,500}?(?<=\S)\2(?!\w)"
        r"|\\\((?:[^\\]|\\(?![()])){0,2000}\\\)|\\\[(?:[^\\]|\\(?![\[\]])){0,5000}\\\]",
        re.MULTILINE | re.DOTALL | re.IGNORECASE,
    )
    before = re.compile(rf"(?P<opened>\[)cite(?:/[\w/-]*)?:[^\[\]]*?(?<!\w)@(?P<key>{_KEY_CHARACTERS}*)\Z")
    after = re.compile(rf"{_KEY_CHARACTERS}*(?<=[\w/?])")
    closed = re.compile(r"[^\[\]\n]*\]")
    closing = "]"
    _heading = re.compile(r"^(\*+)[ \t]+(.*?)[ \t]*(?::[\w@:]+:)?[ \t]*$", re.MULTILINE)

    def citations(self, text: str) -> Iterator[Citation]:
        for found in _CITATION.finditer(text):
            keys = tuple(Key(key[1], *key.span(1)) for key in _KEY.finditer(text, *found.span()))
            if keys or CITE_MARK.fullmatch(found[0]):
                yield Citation(*found.span(), keys or (Key("", *found.span()),))

    def cite(self, key: str) -> str:
        return f"[cite:@{key}]"

    def read(self, path: Path, inputs: Inputs, paper: str = "") -> Source:
        text = self.hidden.sub(" ", inputs.open(path.resolve(), ()))
        keys = dict.fromkeys(key for one in self.citations(text) for key in one.cited)
        names = [name.key for name in self.bibliographies(text)]
        references = References(path, names, root=inputs.root)
        return Source(text, identified(self.metadata(text), paper), [*keys], references, notes=inputs.notes)

    def metadata(self, head: str) -> Metadata:
        title, date, abstract = (pattern.search(head) for pattern in (_TITLE, _DATE, _ABSTRACT))
        about = self.plain(abstract[1]) if abstract else ""
        about = about or self.named_section(self.sections(head)[0], "abstract")
        year = find_year(date[1]) if date else 0
        return Metadata("", self.plain(title[1]) if title else "", about, year)

    def bibliographies(self, text: str) -> list[Key]:
        lines = _BIBLIOGRAPHY.finditer(text)
        files = (file for line in lines for file in _FILE.finditer(text, *line.span(1)))
        return [Key(file[0], *file.span()) for file in files]

    def plain(self, text: str) -> str:
        """Remove keywords, tables, links and emphasis.

        >>> Org().plain("- We *parse* [[https://x.org][trees]].")
        'We parse trees.'
        """
        text = _LINK.sub(lambda match: match[1] or " ", _LINE.sub("", text))
        return " ".join(_EMPHASIS.sub(r"\2", text).split())


ORG = Org()
