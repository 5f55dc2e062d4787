"""What a citation is in LaTeX, Markdown, Typst and Org: the open one at a caret, and all keys of a text.

Texts are scanned in linear time: documents may have a line of a million characters.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from citerec.base.errors import InputError
from citerec.datasets.fulltext.documents import Metadata, Paragraph
from citerec.datasets.languages import markdown
from citerec.datasets.languages.latex import BIB_FILES, KEY_GROUP, document_body, read_metadata
from citerec.datasets.languages.latex_source import Inputs, read_source
from citerec.library.drafts import org, typst
from citerec.library.drafts.latex import LATEX, latex_paragraphs
from citerec.library.drafts.markdown import MARKDOWN, cite_markdown
from citerec.library.drafts.placeholders import MISSING, PLACEHOLDER, Syntax, name_bibliographies
from citerec.library.drafts.reader import LATEX_SUFFIXES

HEAD = 100_000
"""Characters at the beginning of a document that have its title and abstract."""
REACH = 1_000
"""Characters before a caret in which its citation begins."""


class Cited(NamedTuple):
    """A cited key: text[start:end]."""

    key: str
    start: int
    end: int


class Open(NamedTuple):
    """A citation that a caret is in. text[start:end]: what a key replaces; the letters up to the caret are
    typed. rest: end of the key that the caret is in or before. closing: what the citation lacks."""

    start: int
    end: int
    rest: int
    closing: str


class Language(NamedTuple):
    """A language of documents.

    ids: editors' names of it. hidden: matches comments and code. before: matches the text before a caret in a
    citation; its group `key` is typed. after: matches the rest of the key. closed: matches what follows it if
    a citation with the group `opened` is closed by `closing`. cite: returns the citation of a key. keys:
    yields the keys in a text. paragraphs: returns the running text of a passage. metadata: of the head of a
    text. source: returns LaTeX that names the .bib files. lead: stands between a word and its citation.
    """

    name: str
    ids: tuple[str, ...]
    suffixes: tuple[str, ...]
    syntax: Syntax
    hidden: re.Pattern[str]
    before: re.Pattern[str]
    after: re.Pattern[str]
    closed: re.Pattern[str]
    closing: str
    cite: Callable[[str], str]
    keys: Callable[[str], Iterator[Cited]]
    paragraphs: Callable[[str], list[Paragraph]]
    metadata: Callable[[str], Metadata]
    source: Callable[[str], str]
    lead: str = " "

    def visible(self, text: str) -> str:
        """Return a text with blanks for comments and code."""
        return self.hidden.sub(lambda match: " " * len(match[0]), text)

    def open_at(self, text: str, caret: int) -> Open | None:
        """Return the citation that the caret is in; None if it is in none."""
        first = max(0, caret - REACH)
        found = self.before.search(text[first:caret])
        if found is None:
            return None
        start = first + found.start("key")
        rest = self.after.match(text, caret, caret + REACH)
        end = rest.end() if rest else caret
        opened = found.groupdict().get("opened") and not self.closed.match(text, end, end + REACH)
        replaces = caret > start or MISSING.fullmatch(text, caret, end)
        return Open(start, end if replaces else caret, end, self.closing if opened else "")


def _spans(pattern: re.Pattern[str], text: str, ignored: re.Pattern[str] | None = None) -> Iterator[Cited]:
    """Yield the last group of each match, unless it is a placeholder or matches `ignored`."""
    for match in pattern.finditer(text):
        group = match.lastindex or 0
        if not MISSING.fullmatch(match[group]) and not (ignored and ignored.match(match[group])):
            yield Cited(match[group], *match.span(group))


# LaTeX.

_CODE = "verbatim|Verbatim|lstlisting|minted|filecontents|comment"
_HIDDEN_LATEX = re.compile(
    rf"(?<!\\)(?:\\\\)*+%[^\n]*|\\begin\s*\{{({_CODE})\*?\}}.*?(?:\\end\s*\{{\1|\Z)"
    r"|\\(?:verb|lstinline)\*?([^\sA-Za-z*{\[])[^\n]{0,1000}?\2",
    re.DOTALL,
)
_OPTIONS = r"(?:\s*\[[^\[\]{}]*\]|\s*<[^<>{}]*>|\{[^{}]*\}){0,4}"
_BEFORE_LATEX = re.compile(
    rf"\\[A-Za-z]*[cC]ite[A-Za-z]*\*?{_OPTIONS}\s*(?P<opened>\{{)(?:[^{{}}]*[,\n\r])?"
    r"[ \t]*(?P<key>[^{},\n\r]*)\Z"
)
_INPUT = re.compile(r"\\(?:input|include|subfile|includepaper)\b")
_CITES = re.compile(
    r"\\(?!citestyle|setcitestyle|\w*citename|citetext|\w*citealias)(?=[A-Za-z]*[cC]ite)"
    rf"(?P<many>(?=[A-Za-z]*[cC]ites(?![A-Za-z])))?[A-Za-z]++\*?"
    rf"(?(many)(?:{KEY_GROUP.pattern})+|{KEY_GROUP.pattern})"
)


def _latex_keys(text: str) -> Iterator[Cited]:
    for command in _CITES.finditer(text):
        for group in KEY_GROUP.finditer(command[0]):
            start = command.start() + group.start(1)
            for part in group[1].split(","):
                key = part.strip()
                if not MISSING.fullmatch(key) and key != "*":  # \nocite{*}
                    first = start + len(part) - len(part.lstrip())
                    yield Cited(key, first, first + len(key))
                start += len(part) + 1


def _latex_metadata(head: str) -> Metadata:
    text = _INPUT.sub("", head)
    with suppress(InputError):  # macros that expand to too much
        text = read_source(Path("document"), Inputs(lambda _: text))
    return read_metadata(text, "")


def _latex_paragraphs(text: str) -> list[Paragraph]:
    return latex_paragraphs(document_body(text) or text, [PLACEHOLDER])


# Markdown.

_KEY_CHARACTERS = r"[\w:.#$%&+?<>~/-]"


def _markdown_metadata(head: str) -> Metadata:
    try:
        return markdown.parse_markdown(head, Path("document")).metadata
    except InputError:  # half-typed front matter
        return Metadata("")


def _markdown_source(text: str) -> str:
    front = markdown.FRONT_MATTER.match(text)
    try:
        return markdown.parse_markdown(front[0], Path("document")).source if front else ""
    except InputError:
        return ""


def _markdown_paragraphs(text: str) -> list[Paragraph]:
    return markdown.parse_markdown(markdown.FRONT_MATTER.sub("", text), Path("passage")).paragraphs


# Org.


def _org_keys(text: str) -> Iterator[Cited]:
    for citation in org.CITATION.finditer(text):
        for cited in _spans(org.KEY, citation[0]):
            yield Cited(cited.key, citation.start() + cited.start, citation.start() + cited.end)


LANGUAGES = (
    Language(
        "LaTeX",
        ("latex", "tex", "plaintex", "rsweave"),
        LATEX_SUFFIXES,
        LATEX,
        _HIDDEN_LATEX,
        _BEFORE_LATEX,
        re.compile(r"[^\s,{}\\\[\]%]*"),
        re.compile(r"[^{}\\]*\}"),
        "}",
        lambda key: f"\\cite{{{key}}}",
        _latex_keys,
        _latex_paragraphs,
        _latex_metadata,
        lambda text: "".join(match[0] for match in BIB_FILES.finditer(text)),
        "~",
    ),
    Language(
        "Markdown",
        ("markdown", "quarto", "rmd", "pandoc"),
        markdown.SUFFIXES,
        MARKDOWN,
        markdown.NOT_TEXT,
        re.compile(rf"(?<![\w@\\/])@\{{?(?P<key>{_KEY_CHARACTERS}*)\Z"),
        re.compile(rf"{_KEY_CHARACTERS}*(?<=[\w/?])"),
        re.compile(""),
        "",
        cite_markdown,
        lambda text: _spans(markdown.KEY, text, markdown.CROSS_REFERENCE),
        _markdown_paragraphs,
        _markdown_metadata,
        _markdown_source,
    ),
    Language(
        "Typst",
        ("typst",),
        typst.SUFFIXES,
        typst.TYPST,
        typst.NOT_TEXT,
        re.compile(r"(?:(?<![\w@\\/.])@|(?P<opened>\bcite\(\s*<))(?P<key>[\w:.?-]*)\Z"),
        re.compile(r"[\w:.-]*(?<=\w)|\?+"),
        re.compile(r">"),
        ">)",
        typst.cite_typst,
        lambda text: _spans(typst.KEY, text, typst.CROSS_REFERENCE),
        lambda text: typst.parse_typst(text).paragraphs,
        lambda head: typst.parse_typst(head).metadata,
        lambda text: name_bibliographies(typst.BIBLIOGRAPHY, text),
    ),
    Language(
        "Org",
        ("org",),
        org.SUFFIXES,
        org.ORG,
        org.NOT_TEXT,
        re.compile(rf"(?P<opened>\[)cite(?:/[\w/-]*)?:[^\[\]]*?(?<!\w)@(?P<key>{_KEY_CHARACTERS}*)\Z"),
        re.compile(rf"{_KEY_CHARACTERS}*(?<=[\w/?])"),
        re.compile(r"[^\[\]\n]*\]"),
        "]",
        org.cite_org,
        _org_keys,
        lambda text: org.parse_org(text).paragraphs,
        lambda head: org.parse_org(head).metadata,
        lambda text: name_bibliographies(org.BIBLIOGRAPHY, text),
    ),
)


def language_of(language_id: str, suffix: str) -> Language | None:
    """Return the language of a document by its suffix, or else by the editor's name of it."""
    for language in LANGUAGES:
        if suffix.lower() in language.suffixes:
            return language
    return next((language for language in LANGUAGES if language_id.lower() in language.ids), None)


def insertion(language: Language, key: str, before: str) -> tuple[str, int]:
    """Return what to insert for a key in an open citation, and how many characters before it to remove.

    before: the character before the key.
    """
    if before == "@" and language.name in ("Markdown", "Typst"):
        cited = language.cite(key).strip("[]")
        return (cited[1:], 0) if cited.startswith("@") else (cited, 1)
    return key, 0
