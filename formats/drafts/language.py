"""What is known about a language of documents: its citations, what is not text, headings, metadata, inputs.

A language finds the citations of a text. From these follow the keys and missing keys that an editor shows,
the keys that are filled in or masked, and the paragraphs of full texts, in which citations are numbers.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, TypeVar

from citerec.base.errors import InputError
from citerec.base.files import real_path
from citerec.formats.documents import CitationSpan, Document, FullText, Metadata, Paragraph
from citerec.formats.drafts.inputs import Inputs, decode_text, exact_text
from citerec.formats.identifiers import arxiv_year, identifier

if TYPE_CHECKING:
    from citerec.formats.drafts.bibliographies import References

Span = TypeVar("Span", bound=tuple[Any, ...])
"""A start and an end, and perhaps more."""
REACH = 1_000
"""Characters before a caret in which its citation begins."""
PLACEHOLDER = "\uf000"
"""First character of the keys of missing citations. `clean_text` removes it from texts; it is in no word."""
MISSING = re.compile(r"\?*|(?:TODO|FIXME|XXX)(?:\W.*)?", re.IGNORECASE)
"""A key that stands for a missing one."""
CITE_MARK = re.compile(r"(?i:\[(?:cite|citation needed)\])")
"""A missing citation in every language."""
_MARK = re.compile("\ue000(\\d+)\ue001")
BREAK = "\ue002"
"""The end of a paragraph or list item, until its text is converted."""
_BREAKS = re.compile(rf"([.!?:;,…]?[\"'”’)\]]{{0,5}})\s*(?:{BREAK}\s*)+")
_STOP = re.compile(r"(?<=[\w)\]}\"'”’])[.!?,;:…]+[\"'”’)\]}*_]*[ \t]*\Z")
"""Punctuation before a note's sign."""
_NEXT = re.compile(r"(?:[\"'”’)\]}*_]*\s+(?!\d)[^\W_a-z]|[\"'”’)\]}]*\s*\Z|[ \t]*\n[ \t]*\n)")
"""What follows a citation that stands after its sentence's full stop."""
_BREAK = re.compile(r"(?:(?<=[^\W\d_]{4})|(?<=[\])}]))\.\s+(?=[^\W\d_a-z]|[\[(\\])")
_COMMON = re.compile(r"(?i)[\d.\s]*(?:contents|acknowledge?ments?|declaration|preface|introduction)\W*")
"""Headings that many documents have."""
SHORT_NOTE = 300
"""Characters up to which a note is a part of the sentence that calls it, instead of having its own."""


class Key(NamedTuple):
    """A cited key: text[start:end]; for a CITE_MARK, which has no key, the whole mark."""

    key: str
    start: int
    end: int

    @property
    def missing(self) -> bool:
        return bool(MISSING.fullmatch(self.key))


class Citation(NamedTuple):
    """A citation: text[start:end]. It has no keys if it refers to a figure or the like. printed: it stands in
    the text, unlike \\nocite."""

    start: int
    end: int
    keys: tuple[Key, ...]
    printed: bool = True

    @property
    def missing(self) -> bool:
        """True if it lacks a key."""
        return self.printed and any(key.missing for key in self.keys)

    @property
    def cited(self) -> list[str]:
        """Its keys: those that are not missing, if any."""
        keys = [key.key for key in self.keys if key.key]
        return [key for key in keys if not MISSING.fullmatch(key)] or keys


class Note(NamedTuple):
    """A note that cites: text[start:end], its sign in the text or the note itself. defined: where else its
    text stands."""

    start: int
    end: int
    text: str
    defined: Sequence[tuple[int, int]] = ()


class Open(NamedTuple):
    """A citation that a caret is in. text[start:end]: what a key replaces; the letters up to the caret are
    typed. rest: end of the key that the caret is in or before. between: separates a new key from one behind
    the caret. closing: the closing signs that the citation lacks."""

    start: int
    end: int
    rest: int
    between: str
    closing: str

    def replaced(self, language: Language, text: str, key: str) -> tuple[int, int, str]:
        """Return the start and end of the text that citing a key replaces, and what replaces it; closed."""
        first = max(0, self.start - 1)
        near = f"{text[first : self.end]}{self.closing or text[self.end : self.end + 1]}"
        start, end, new = language.insertion(near, self.start - first, self.end - first, key)
        after = end - (self.end - first)  # what it replaces behind the key
        if self.closing:
            return first + start, self.end, f"{new}{self.closing[after:]}"
        return first + start, self.end + after, f"{new}{self.between}"


class Section(NamedTuple):
    """A section: level (0 before the first heading), name, and its source, with citations as placeholders."""

    level: int
    name: str
    text: str


@dataclass(frozen=True)
class Source:
    """A document with its inputs.

    text: without comments and code. keys: that it cites, in order. uncited: keys that it lists without citing
    them; * for all. skipped: inputs that were not read, and why. labels: of figures, sections and the like,
    which are cited like keys; kinds: what labels begin with.
    """

    text: str
    metadata: Metadata
    keys: Sequence[str]
    references: References
    uncited: Collection[str] = ()
    skipped: Sequence[str] = ()
    labels: Collection[str] = ()
    kinds: tuple[str, ...] = ()

    def is_label(self, key: str) -> bool:
        """True if a key refers to a part of the document."""
        return refers(key, self.labels, self.kinds)

    @property
    def notes(self) -> list[str]:
        """What was not read, and why."""
        return [*self.skipped, *self.references.notes.values()]


class Language(ABC):
    """A language of documents.

    marks: missing citations, for messages. comment: form of a comment; one that ends with its line gets a
    line of its own. lead: stands between a word and its citation. between: stands between keys. before:
    matches the text before a caret in a citation; its group `key` is typed. after: matches the rest of the
    key. closed: matches what follows the key if the citation is closed; otherwise it lacks as many signs of
    `closing` as its group `opened` has, or only the first if group 1 matches.
    """

    name: ClassVar[str]
    suffixes: ClassVar[tuple[str, ...]]
    marks: ClassVar[str]
    comment: ClassVar[str]
    not_sure: ClassVar[str] = "citerec: not sure: "  # begins the comments in copies
    lead: ClassVar[str] = " "
    between: ClassVar[str] = "; @"
    holds_items: ClassVar[bool] = False
    """Whether its citations hold what they cite, so that documents need no bibliography."""
    numeric_years: ClassVar[bool] = False
    """Whether a bibliography with a year that is no number, such as "in press", is refused."""
    entry_types: ClassVar[Mapping[str, str]] = {}
    """Types of entries that it ignores in a .bib file, and those that it reads instead."""
    before: ClassVar[re.Pattern[str]]
    after: ClassVar[re.Pattern[str]]
    closed: ClassVar[re.Pattern[str]] = re.compile(r"(?:[^\[\]\n]|\[[^\[\]\n]*\]|\n(?![ \t]*\n))*+\]")
    closing: ClassVar[str] = ""
    _hidden: ClassVar[re.Pattern[str]]
    """Matches comments and code."""
    _heading: ClassVar[re.Pattern[str]]
    """Matches headings; group 1 has a sign per level, group 2 the name."""
    _include: ClassVar[re.Pattern[str]]
    """Matches an input; the group that matches is its name."""
    _note: ClassVar[re.Pattern[str]]
    """Matches a note: `inline`, or where it is `called` or stands by its `name`, with its `text`."""

    # Citations.

    @abstractmethod
    def citations(self, text: str) -> Iterator[Citation]:
        """Yield the citations in a text, in order, without overlaps, in linear time."""

    def joined(self, text: str) -> Iterator[Citation]:
        """Yield the citations; those of the same paper that stand for one are joined."""
        return self.citations(text)

    def definitions(self, text: str) -> Iterator[tuple[int, int]]:
        """Yield the start and end of each definition of a macro."""
        return iter(())

    @abstractmethod
    def cite(self, key: str) -> str:
        """Return the citation of a key."""

    def insertion(self, text: str, start: int, end: int, key: str) -> tuple[int, int, str]:
        """Return what cites `key` instead of the key text[start:end] of a citation: start, end, new text."""
        if CITE_MARK.fullmatch(text, start, end):
            return start, end, self.cite(key)
        return start, end, key

    def fill(self, citation: str, keys: Sequence[str]) -> tuple[str, int] | None:
        """Insert keys where they are missing; returns the text and their number, None if none is missing."""
        printed = [cited for cited in self.citations(citation) if cited.printed]
        missing = [key for cited in printed for key in cited.keys if key.missing]
        edits = [
            self.insertion(citation, *missing_key[1:], key)
            for missing_key, key in zip(missing, keys, strict=False)
        ]
        return (replaced(citation, edits), len(edits)) if missing else None

    def fitted(self, text: str, start: int, end: int, citation: str) -> str:
        """Return a citation in the form that it needs in place of text[start:end]."""
        return citation

    def mask(self, citation: str, key: str) -> str | None:
        """Replace the keys of a citation by one; None if it has none."""
        all_keys = [cited for cites in self.citations(citation) for cited in cites.keys if cites.printed]
        if not any(key.key and not key.missing for key in all_keys):
            return None
        first, *others = all_keys
        removed = [(key.start, key.end, "") for key in others]
        return replaced(citation, [self.insertion(citation, *first[1:], key), *removed])

    def keys(self, text: str) -> Iterator[Key]:
        """Yield the keys that are not missing."""
        return self.keys_of(self.citations(text))

    def keys_of(self, citations: Iterable[Citation]) -> Iterator[Key]:
        """Yield the keys of citations that are not missing."""
        for citation in citations:
            yield from (key for key in citation.keys if not key.missing and key.key != "*")

    def hidden(self, text: str) -> Iterator[tuple[int, int]]:
        """Yield the start and end of each comment and each piece of code."""
        return (match.span() for match in self._hidden.finditer(text))

    def visible(self, text: str) -> str:
        """Return a text with blanks for comments, code and the CR of line ends."""
        text = text.replace("\r\n", " \n")
        return replaced(text, ((start, end, " " * (end - start)) for start, end in self.hidden(text)))

    @property
    def old_comment(self) -> re.Pattern[str]:
        """Matches a comment of an earlier copy."""
        head, tail = map(re.escape, self.comment.split("{}"))
        return re.compile(rf"{head}{self.not_sure}[^\r\n]{{0,1000}}?\r?{tail}")

    def without_code(self, text: str) -> str:
        """Return a text without comments and code, but with words of code within a line, such as `lme4`."""
        return replaced(text, ((start, end, _words(text[start:end])) for start, end in self.hidden(text)))

    # Documents.

    _paragraph_end: ClassVar[re.Pattern[str]] = re.compile(r"\n(?=[ \t]*\n|[ \t]*(?:[-*+/]|\d+[.)])[ \t]+\S)")
    """What ends a paragraph, list item or row: the line before an empty one, an item or a row."""

    def text(self, path: Path) -> str:
        """Return the text of a file. Raises InputError if it cannot be read."""
        return decode_text(path)

    def exact_text(self, path: Path) -> str:
        """Return the text of a draft, as it is to be written again. Raises InputError if it is not UTF-8."""
        return exact_text(path)

    def can_replace(self, path: Path, start: int, end: int) -> bool:
        """True if a part of a draft's text can be replaced in a copy."""
        return True

    @abstractmethod
    def read(self, path: Path, inputs: Inputs) -> Source:
        """Read a document with its inputs. Raises InputError."""

    def documents(self, files: Iterable[Path]) -> list[Path]:
        """Return the files that are documents: they cite, and no other includes them."""
        documents, parts = [], set[Path]()
        for path in files:
            with suppress(InputError):  # reading reports it
                inputs = Inputs(self.text)
                source = self.read(path, inputs)
                parts |= inputs.files.keys() - {real_path(path)}
                if not self.cites(path, source):
                    continue
            documents.append(path)
        return [path for path in documents if real_path(path) not in parts]

    def cites(self, path: Path, source: Source) -> bool:
        """True if a document of this language is a paper rather than notes about software or the like."""
        return bool(source.keys)

    @abstractmethod
    def metadata(self, head: str) -> Metadata:
        """Return the metadata of a document, by its beginning without comments and code."""

    def bibliographies(self, text: str, visible: str | None = None) -> list[Key]:
        """Return the files of a bibliography that a text names, but in no comment or code. visible: what
        `visible` returns, if known."""
        return self._bibliographies(self.visible(text) if visible is None else visible)

    @abstractmethod
    def _bibliographies(self, visible: str) -> list[Key]:
        """Return the files of a bibliography that a text without comments and code names."""

    def own_bibliography(self, text: str, command: str) -> list[Key]:
        """Return those of the bibliographies that only have what citations with such a command cite."""
        return []

    def labels(self, text: str) -> set[str]:
        """Return the labels in a text that are cited like keys."""
        return set()

    def without_references(self, text: str, labels: Collection[str], kinds: tuple[str, ...] = ()) -> str:
        """Return a text without references to labels, which look like citations. kinds: see `Source`."""
        cited = ((citation, citation.cited) for citation in self.citations(text) if citation.printed)
        removed = (
            citation for citation, keys in cited if keys and all(refers(key, labels, kinds) for key in keys)
        )
        return replaced(text, ((citation.start, citation.end, "") for citation in removed))

    def without_citations(self, text: str) -> str:
        """Return a text without its citations, also those of labels."""
        return replaced(text, ((citation.start, citation.end, "") for citation in self.citations(text)))

    def included(self, text: str) -> Iterator[str]:
        """Yield the names of the files that a text includes."""
        for match in self._include.finditer(text):
            yield match[match.lastindex or 0]

    def with_inputs(self, path: Path, inputs: Inputs, parents: tuple[Path, ...] = ()) -> str:
        """Return the text of a file with its inputs, without comments and code."""
        text = self.without_code(inputs.open(path, parents))
        parents = (*parents, path)

        def read(match: re.Match[str]) -> str:
            name = match[match.lastindex or 0]
            places = path.parent / name, inputs.folder(parents) / name.lstrip("/")
            file = inputs.find(match[0].strip(), places, parents)
            return self.inserted(match[0], self.with_inputs(file, inputs, parents)) if file else match[0]

        return self._include.sub(read, text)

    def inserted(self, statement: str, text: str) -> str:
        """Return the text of an input, which replaces the statement that includes it."""
        return f"\n\n{text}\n\n"

    @abstractmethod
    def plain(self, text: str) -> str:
        """Turn markup into text."""

    def body(self, text: str, running: bool) -> str:
        """Remove from a text what is in no paragraph. running: also tables, captions and notes."""
        return text

    def headings(self, text: str) -> Iterator[tuple[int, str, int, int]]:
        """Yield the level, name, start and end of each heading."""
        for match in self._heading.finditer(text):
            yield len(match[1]), match[2], match.start(), match.end()

    def document(self, path: Path, paper: str) -> Document:
        """Read a document as a paper with this id; if that is an arXiv id, it gives the year."""
        source = self.read(path, Inputs(self.text))
        metadata = self.published(source)._replace(id=paper)
        if year := arxiv_year(paper):
            metadata = metadata._replace(year=year, identifiers=(identifier("arxiv", paper),))

        def full_text() -> FullText:
            paragraphs, keys = self.paragraphs(source.text, running=True)
            return FullText(paragraphs, source.references.entries(keys))

        entries = source.references.entries
        return Document(metadata, full_text, lambda: [*entries(source.keys).values()])

    def published(self, source: Source) -> Metadata:
        """Return the metadata of a document that is a paper rather than a draft."""
        return source.metadata

    def notes(self, text: str) -> Iterator[Note]:
        """Yield the notes of a text, in order: inline, or called by a name under which their text stands."""
        matches = [*self._note.finditer(text)]
        defined = {match["name"]: match for match in matches if match["name"]}
        for match in matches:
            if match["inline"]:
                yield Note(*match.span(), match["inline"])
            elif match["called"] and (note := defined.pop(match["called"], None)):
                yield Note(*match.span(), note["text"], [note.span()])

    def with_notes(self, text: str) -> str:
        """Return a text with each note that cites moved into the sentence that calls it, before the full
        stop; a citation after the full stop is moved there, too."""
        cited = [citation for citation in self.joined(text) if citation.keys and citation.printed]
        starts, moved = [citation.start for citation in cited], list[Note]()
        barriers = [Note(start, end, "") for _, _, start, end in self.headings(text)]
        for note in self.notes(text):
            spans = note.defined or [(note.start, note.end)]
            if any(bisect_left(starts, a) < bisect_left(starts, b) for a, b in spans):
                moved.append(note._replace(text=f" ({_in_sentence(note.text)})"))
                barriers += (Note(*span, "") for span in note.defined)
        for start, end, *_ in cited:
            if text[start - 1 : start] in (*".!?", "”") and _NEXT.match(text, end):
                moved.append(Note(start, end, f" {text[start:end]}"))
        edits, done, place = list[tuple[int, int, str]](), 0, -1
        for start, end, inside, defined in sorted([*moved, *barriers], key=lambda note: note[:2]):
            if start < done or not inside:  # within a heading or the text of another note
                done, place = end if not inside else done, -1
                continue
            if text[done:start].strip(" ,") or place < 0:
                stop = _STOP.search(text, max(done, start - 20), start)
                place = stop.start() if stop else start
            edits += [(place, place, inside), (start, end, ""), *((*span, "") for span in defined)]
            done = end
        return replaced(text, edits)

    def paragraphs(self, text: str, running: bool = False) -> tuple[list[Paragraph], list[str]]:
        """Return one paragraph for each section of a text, and the cited keys. running: see `body`."""
        text = text if running else self.with_notes(text)
        sections, cites = self.sections(self.body(text, running))
        if not running:
            sections = [
                part._replace(text=self._paragraph_end.sub(self._broken, part.text)) for part in sections
            ]
        return self.convert(sections, cites), list(number_keys(cites))

    @staticmethod
    def _broken(end: re.Match[str]) -> str:
        return f"{BREAK}{end[0]}"

    def convert(
        self, sections: Sequence[Section], cites: Sequence[Sequence[str]], only: Container[str] | None = None
    ) -> list[Paragraph]:
        """Turn sections into paragraphs. only: keys; a section that cites none of them yields no context."""
        numbers, paragraphs = number_keys(cites), []
        for number, (_, name, content) in enumerate(sections):
            section = f"{number} {name}"
            cited = (key for mark in _MARK.findall(content) for key in cites[int(mark)])
            if not _MARK.search(content) or (only is not None and not any(key in only for key in cited)):
                unread = content.replace(BREAK, "")  # skips the slow conversion
                paragraphs.append(Paragraph(unread, [], section))
            else:
                plain = _BREAKS.sub(_full_stop, self.plain(content).strip(f" {BREAK}"))
                paragraphs.append(_number_citations(plain, cites, numbers, section))
        return paragraphs

    def sections(self, text: str) -> tuple[list[Section], list[list[str]]]:
        """Split a text at its headings; also returns the keys of the citations, which become placeholders."""
        cites, edits = list[list[str]](), list[tuple[int, int, str]]()
        for citation in self.joined(text):
            if citation.printed:
                mark = f"\ue000{len(cites)}\ue001" if citation.cited else ""
                edits.append((citation.start, citation.end, mark))
                cites += [citation.cited] if mark else []
        text = replaced(text, edits)
        level, name, done, sections = 0, "", 0, []
        for next_level, next_name, start, end in self.headings(text):
            sections.append(Section(level, name, text[done:start]))
            level, name, done = next_level, self.plain(_MARK.sub("", next_name)), end
        return [*sections, Section(level, name, text[done:])], cites

    def named_section(self, sections: Iterable[Section], name: str) -> str:
        """Return the text of the section with a name in lower case, such as abstract; "" if there is none."""
        named = (part for _, title, part in sections if title.strip("*:. ").lower() == name)
        return self.plain(_MARK.sub("", next(named, "")))

    # Carets.

    def open_at(self, text: str, caret: int) -> Open | None:
        """Return the citation that the caret is in; None if it is in none."""
        first = max(0, caret - REACH)
        match = self.before.search(text[first:caret])
        if match is None:
            return None
        start = first + match.start("key")
        rest = self.after.match(text, caret, caret + REACH)
        end = rest.end() if rest else caret
        opened = match.groupdict().get("opened") or ""
        closed = self.closed.match(text, end, end + REACH) if opened else None
        lacking = self.closing[: (closed.lastindex or 0) if closed else len(opened)]
        if caret > start or MISSING.fullmatch(text, caret, end):
            return Open(start, end, end, "", lacking)
        return Open(start, caret, end, self.between if opened and not lacking else "", lacking)


def _full_stop(end: re.Match[str]) -> str:
    """Return the end of a line, as a sentence."""
    return f"{end[1]}\n" if end[1][:1] and end[1][0] in ".!?:;,…" else f"{end[1]}.\n"


def refers(key: str, labels: Collection[str], kinds: tuple[str, ...]) -> bool:
    """True if a key refers to a part of a document, perhaps to a line of code in it. kinds: see `Source`."""
    return key in labels or re.sub(r":\d+\Z", "", key) in labels or key.startswith(kinds)


def first_title(sections: Iterable[Section]) -> str:
    """Return the first heading of level 1, unless many documents have one with its name."""
    names = (name for level, name, _ in sections if level == 1 and name.lower() != "abstract")
    return "" if _COMMON.fullmatch(title := next(names, "")) else title


def _in_sentence(note: str) -> str:
    """Return the text of a note as a part of a sentence: a short one is no sentence of its own."""
    note = note.strip().removesuffix(".")
    return _BREAK.sub("; ", note) if len(note) <= SHORT_NOTE else note


_IN_LINE = re.compile(r"(`{1,3}|[=~])(?!(?:r|python|julia) )[ ]?(\w[\w.+/()' -]{0,60})\1")
"""Code that may name a package or program; not what R Markdown computes."""


def _words(code: str) -> str:
    match = _IN_LINE.fullmatch(code)
    return match[2] if match else " "


def replaced(text: str, edits: Iterable[tuple[int, int, str]]) -> str:
    """Return a text with replaced parts: start, end and new text of each, without overlaps.

    >>> replaced("We parse trees.", [(9, 14, "graphs"), (2, 2, " also")])
    'We also parse graphs.'
    """
    pieces, done = [], 0
    for start, end, new in sorted(edits, key=lambda edit: edit[:2]):
        pieces += [text[done:start], new]
        done = end
    return "".join([*pieces, text[done:]])


def outermost(spans: Iterable[Span]) -> Iterator[Span]:
    """Yield those of some spans, in order of their starts, that begin in no other one."""
    done = 0
    for span in spans:
        if span[0] >= done:
            done = span[1]
            yield span


def number_keys(citations: Iterable[Sequence[str]]) -> dict[str, int]:
    """Number the keys from 1 in order of first citation."""
    keys = dict.fromkeys(key for cited in citations for key in cited)
    return {key: number for number, key in enumerate(keys, 1)}


def _number_citations(
    text: str, cites: Sequence[Sequence[str]], numbers: dict[str, int], section: str
) -> Paragraph:
    """Write numeric citations in brackets instead of placeholders."""
    pieces: list[str] = []
    spans: list[CitationSpan] = []
    length = 0
    for place, piece in enumerate(_MARK.split(text)):
        if place % 2:
            keys = cites[int(piece)]
            start = length + 1
            for key in keys:
                end = start + len(str(numbers[key]))
                spans.append(CitationSpan(start, end, key))
                start = end + 2
            piece = f"[{', '.join(str(numbers[key]) for key in keys)}]"
        pieces.append(piece)
        length += len(piece)
    return Paragraph("".join(pieces), spans, section)
