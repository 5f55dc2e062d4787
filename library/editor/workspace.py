"""What is open in an editor: documents, what is known of each, their bibliographies, the library.

Several threads ask at once, one for each document. Only files below one folder are read: the folder of the
workspace that has the document. Links that leave it are not followed.
"""

from __future__ import annotations

import os
import re
import threading
from collections import deque
from collections.abc import Container, Iterable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import islice
from pathlib import Path

from citerec.base.errors import InputError
from citerec.base.files import expand_user, real_path
from citerec.formats.bibliography.entries import BibtexText, ReadEntry
from citerec.formats.bibliography.paper import LibraryPaper, make_paper
from citerec.formats.bibliography.reading.bibtex import parse_bibtex
from citerec.formats.documents import Reference
from citerec.formats.drafts.bibliographies import References
from citerec.formats.drafts.inputs import Inputs, clean_text, decode_text
from citerec.formats.drafts.language import Key, Language, Source
from citerec.formats.drafts.languages import language_of
from citerec.formats.drafts.latex import LATEX
from citerec.library import MANIFEST
from citerec.library.ask.recommendation import Recommendation
from citerec.library.ask.recommender import Ranked, Recommender, open_recommender
from citerec.library.drafts.check import Entry, in_library
from citerec.library.drafts.copies import numbered_keys
from citerec.library.editor.documents import Document, Outline, outline
from citerec.library.papers.library import Library
from citerec.library.settings import LspSettings
from citerec.retrieval.passages import CitingPassages

MAX_ENTRIES = 20_000
"""Entries of a document's .bib files that are parsed; keys of further ones are known."""
MAX_MAIN_FILES, MAX_MAIN_BYTES, MAX_LEVELS = 100, 1 << 20, 5
"""Files in which the document that includes a chapter is looked for, their size, and levels of chapters, or
of entries that inherit fields."""
_ROOT = re.compile(r"^%\s*!\s*TEX\s+root\s*=\s*(.+?)\s*$", re.MULTILINE | re.IGNORECASE)
_WHOLE = re.compile(r"\\documentclass\b|\\begin\s*\{document\}")


@dataclass(frozen=True)
class Bibliography:
    """The entries of a bibliography, by key; the first of several entries with a key counts.

    files: its .bib files. target: the one that gets new entries. ids: ids of the entries' papers in the
    library, by key.
    """

    files: tuple[Path, ...]
    target: Path | None
    entries: dict[str, Entry]
    ids: dict[str, str] = field(default_factory=dict)

    @cached_property
    def distinct(self) -> list[Entry]:
        """The entries, each once with its aliases."""
        entries: dict[object, Entry] = {}
        for key, entry in self.entries.items():
            work = entry.text or id(entry.paper)
            if (first := entries.setdefault(work, entry)) is not entry:  # aliases have one text or paper
                entries[work] = first._replace(aliases=(*first.aliases, key))
        return [*entries.values()]

    @cached_property
    def keys(self) -> dict[str, list[str]]:
        """Keys by the ids of the library's papers."""
        keys: dict[str, list[str]] = {}
        for key, id in self.ids.items():
            keys.setdefault(id, []).append(key)
        return keys

    def key_of(self, paper: LibraryPaper | Recommendation, cited: Container[str]) -> str:
        """Return the key of a paper of the library: that of its first entry, preferably of one that is cited
        or has the paper's own key; without an entry, the paper's key, numbered if that is taken."""
        if keys := self.keys.get(paper.id):
            return min(keys, key=lambda key: (key not in cited, key != paper.key))
        return next(key for key in numbered_keys(paper) if key not in self.entries)


def read_entries(file: Path, text: str, parsed: dict[str, LibraryPaper | None]) -> list[Entry]:
    """Read the entries of a .bib file. parsed: papers of entries that were parsed before, by their text."""
    bibliography, entries = BibtexText(text), list[Entry]()
    read = [(entry, bibliography.read(entry)) for entry in bibliography.entries]
    by_key = {key.lower(): own for _, own in reversed(read) if own for key in (own.key, *own.aliases)}
    for number, (entry, own) in enumerate(read):
        written = _with_parents(own, by_key) if own else bibliography.source(entry)
        if written not in parsed and number < MAX_ENTRIES:
            parsed[written] = _parse(written, entry.key)
        paper = parsed.get(written)
        entries += [Entry(key, file, entry.line, paper, text=written) for key in bibliography.keys(entry)]
    return entries


def _with_parents(entry: ReadEntry, entries: Mapping[str, ReadEntry]) -> str:
    """Return the BibTeX of an entry and of those whose fields it has, too. entries: all by key."""
    read = [entry]
    for own in islice(read, MAX_LEVELS):
        names = " ".join(own.fields.get(name, "") for name in ("crossref", "xdata")).lower()
        read += [entries[key] for key in re.split(r"[\s,]+", names) if key in entries]
    return "\n".join(dict.fromkeys(own.bibtex for own in read))


def other_entries(main: Main) -> list[Entry]:
    """Return the entries of a document that are in no .bib file."""
    entries, papers = list[Entry](), dict[int, LibraryPaper]()
    for key, work in main.others.items():
        paper = make_paper(key=key, title=work.title or work.text, authors=work.authors, year=work.year)
        entries.append(Entry(key, main.path, 0, papers.setdefault(id(work), paper)))
    return entries


def _parse(text: str, key: str) -> LibraryPaper | None:
    with suppress(InputError):
        return next((paper for paper in parse_bibtex(text, "", lambda _: None) if paper.key == key), None)
    return None


@dataclass(frozen=True)
class Main:
    """What includes a document, or itself. others: entries in no .bib file. named: files in its text."""

    path: Path
    source: Source
    others: dict[str, Reference]
    named: frozenset[str]


def _including(path: Path, text: str, language: Language, root: Path) -> Path | None:
    """Return the document that includes a chapter; None if it is not found."""
    if language is LATEX and _WHOLE.search(text):
        return None
    if magic := _ROOT.search(text[:2000]):
        named = path.parent / f"{magic[1].removesuffix('.tex')}.tex"
        return named if _readable(named, root) and named != path else None
    folders = [folder for folder in path.parents[:3] if real_path(folder).is_relative_to(root)]
    files = (file for folder in folders for file in sorted(folder.iterdir()))
    others = (file for file in files if language_of(file.suffix) is language and file != path)
    for file in islice(others, MAX_MAIN_FILES):
        if not _readable(file, root) or file.stat().st_size > MAX_MAIN_BYTES:
            continue
        if any(Path(name).stem == path.stem for name in language.included(decode_text(file))):
            return file
    return None


def _readable(path: Path, root: Path) -> bool:
    """True if a file may be read: it is below the folder, also after links."""
    return real_path(path).is_relative_to(root) and os.path.isfile(path)


def find_bibs(
    document: Document, main: Main | None, names: Iterable[Key], root: Path
) -> tuple[list[Path], bool, dict[str, str]]:
    """Return a document's .bib files, if it names them, and why others are not read. names: in its text."""
    path = main.path if main else document.path
    assert path is not None
    own, listed = [name.key for name in names], main.source.references.names if main else ()
    stale = main.named if main and own else ()  # without names it may be half-typed
    named = dict.fromkeys([*own, *(name for name in listed if name not in stale)])
    references = References(path, [*named], root, own=main.others if main else {})
    bibs = references.bibs()
    return list(dict.fromkeys(bibs.values())), not named.keys().isdisjoint(bibs), references.notes


@dataclass
class _Memory:
    """What is known of a document; `lock` is held while its bibliography is put together.

    Pairs: what the last result was made from, and this result. unread: why files are not read, by name.
    """

    outline: tuple[Document, Outline] | None = None
    main: Main | None = None
    bibliography: tuple[object, Bibliography] = (None, Bibliography((), None, {}))
    ranked: tuple[object, Future[Ranked]] = field(default_factory=lambda: (None, Future()))
    passages: tuple[tuple[object, ...], CitingPassages] = ((None,) * 3, CitingPassages((), ()))
    unread: dict[str, str] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)


class Workspace:
    """Documents, their bibliographies and the library.

    documents, folders (of the workspace): set by the server. messages: for the user, sent by the server.
    """

    def __init__(self, settings: LspSettings) -> None:
        self.settings = settings
        self.documents: dict[str, Document] = {}
        self.folders: list[Path] = []
        self.messages: deque[str] = deque()
        self._recommender: Recommender | None = None
        self._tried = -1
        self._said: set[str] = set()
        self._opening = threading.Lock()
        self._memory: dict[str, _Memory] = {}
        self._entries: dict[Path, tuple[object, list[Entry]]] = {}
        self._added: dict[Path, tuple[object, dict[str, Entry]]] = {}
        self._reading = threading.Lock()

    def say(self, message: str) -> None:
        """Send a message to the user, once."""
        if message not in self._said:
            self._said.add(message)
            self.messages.append(message)

    # The library.

    def recommender(self) -> Recommender | None:
        """Return the recommender; None, after a message, while there is no library."""
        if not self._opening.acquire(blocking=self._recommender is None):
            return self._recommender  # it is being reopened
        try:
            path = self.library.path if self.library else expand_user(self.settings.library)
            try:
                mtime = (path / MANIFEST).stat().st_mtime_ns
            except OSError:
                mtime = 0
            if mtime != self._tried:
                self._tried = mtime
                if self._recommender is None:
                    recommender = open_recommender(self.settings.library, serves=True)
                    recommender.recommend("loads what the first question needs [CITE]", k=1)
                    self._recommender = recommender
                self._recommender.refresh()
        except InputError as error:  # the former library, if any, is still open
            self.say(str(error))
        finally:
            self._opening.release()
        return self._recommender

    @property
    def library(self) -> Library | None:
        """The library as of the last question."""
        return self._recommender.library if self._recommender else None

    # A document.

    def memory(self, document: Document) -> _Memory:
        """Return what is known of a document."""
        return self._memory.setdefault(document.uri, _Memory())

    def forget(self, uri: str) -> None:
        """Forget a closed document."""
        self._memory.pop(uri, None)

    def root(self, document: Document) -> Path | None:
        """Return the folder whose files may be read for a document: of the workspace, else its own."""
        with suppress(OSError, RuntimeError):  # a link in a circle
            if document.path is None or not self.folders:
                return document.path and real_path(document.path.parent)
            above = [folder for folder in self.folders if real_path(document.path).is_relative_to(folder)]
            return max(above, key=lambda folder: len(folder.parts), default=None)
        return None

    def read_main(self, document: Document) -> None:
        """Read the files of a document, or of that which includes it: when it is opened or saved."""
        memory = self.memory(document)
        with suppress(InputError, OSError):
            memory.main = self._main_of(document)
        memory.outline = None

    def _main_of(self, document: Document) -> Main | None:
        """Read the document that includes another, or itself. Raises InputError or OSError."""
        path, text, language, root = document.path, document.text, document.language, self.root(document)
        if root is None or path is None or language is None or not real_path(path).is_relative_to(root):
            return None
        chain: list[Path] = [path]
        while len(chain) < MAX_LEVELS and (above := _including(chain[-1], text, language, root)):
            chain.append(above)
            text = self._text(above)
        source = language.read(chain[-1], Inputs(self._text, root))
        named = frozenset(name.key for name in language.bibliographies(document.text))
        return Main(chain[-1], source, source.references.entries(source.references.other_keys()), named)

    def outline(self, document: Document, current: bool = False) -> Outline:
        """Return the outline of a document; if it need not be current, of its last version that has one. A
        chapter has title and abstract of its main document."""
        memory = self.memory(document)
        made, main = memory.outline, memory.main
        if made is None or (current and made[0] is not document):
            assert document.language is not None
            own = outline(document.language, document.text)
            if main and main.path != document.path:
                whole = main.source.metadata
                own = replace(own, title=whole.title, abstract=whole.abstract, year=whole.year or own.year)
            made = memory.outline = document, own
        return made[1]

    # Its bibliography.

    def bibliography(self, document: Document) -> Bibliography:
        """Return the bibliography of a document, as open in the editor, else from its files."""
        memory = self.memory(document)
        outline, root, main = self.outline(document), self.root(document), memory.main
        files, named = list[Path](), False
        with memory.lock:
            if document.path and root:
                files, named, memory.unread = find_bibs(document, main, outline.bibs, root)
            entries = [entry for file in files for entry in self._entries_of(file)]
            library, target = self.library, files[-1] if named or len(files) == 1 else None
            key = files, target, [id(entry) for entry in entries], library and library.folder, id(main)
            if memory.bibliography[0] != key:
                by_key: dict[str, Entry] = {}
                for entry in (*entries, *(other_entries(main) if main else ())):
                    by_key.setdefault(entry.key, entry)
                same = in_library(by_key.values(), library) if library else ()
                ids = {entry.key: paper.id for entry, paper in same}
                memory.bibliography = key, Bibliography(tuple(files), target, by_key, ids)
            return memory.bibliography[1]

    def _entries_of(self, file: Path) -> list[Entry]:
        """Return the entries of a file, with those that the editor has added, but not yet saved or reported.

        If it has changed, entries whose text is as before are not parsed again.
        """
        opened = self._opened(file)
        try:
            stamp = self._stamp(file, opened)
            with self._reading:
                read, entries = self._entries.get(file, (None, []))
                if read != stamp:
                    text = decode_text(file) if opened is None else opened.text
                    entries = read_entries(file, text, {entry.text: entry.paper for entry in entries})
                    self._entries[file] = stamp, entries
        except (OSError, InputError) as error:
            self.say(str(error))
            entries = self._entries.get(file, (None, []))[1]
        added = self.added(file)
        keys = {entry.key for entry in entries} if added else set()
        return [*entries, *(entry for key, entry in added.items() if key not in keys)]

    def _stamp(self, file: Path, opened: Document | None) -> object:
        """Return what changes with the text of a .bib file. opened: see `_opened`. Raises OSError."""
        if opened is not None:
            return opened.text
        status = file.stat()
        return status.st_mtime_ns, status.st_size

    def added(self, file: Path) -> dict[str, Entry]:
        """Return what the editor has added to a .bib file since it was last saved, or reported, by key."""
        stamp, added = self._added.get(file, (None, {}))
        with suppress(OSError):
            if added and stamp == self._stamp(file, self._opened(file)):
                return added
        return {}

    def add(self, file: Path, id: str, key: str) -> None:
        """Remember an entry that the editor has added, and may not have saved or reported yet."""
        with suppress(OSError):
            paper = self.library.by_id(id) if self.library else None
            added = {**self.added(file), key: Entry(key, file, 0, paper)}
            self._added[file] = self._stamp(file, self._opened(file)), added

    def _text(self, file: Path) -> str:
        """Return the text of a file, as open in the editor."""
        opened = self._opened(real_path(file))
        return clean_text(opened.text) if opened else decode_text(file)

    def _opened(self, file: Path) -> Document | None:
        """Return the document of a file that is open in the editor."""
        for document in list(self.documents.values()):
            if document.path and document.path.suffix == file.suffix and real_path(document.path) == file:
                return document
        return None

    def _ids(self, keys: Iterable[str], bibliography: Bibliography) -> tuple[str, ...]:
        """Return the ids of the library's papers with these keys; a key of the .bib means its entry."""
        if (library := self.library) is None:
            return ()
        ids = dict[str, None]()
        for key in keys:
            if key in bibliography.ids:
                ids[bibliography.ids[key]] = None
            elif key not in bibliography.entries and (row := library.row(key)) is not None:
                ids[library.paper(row).id] = None
        return tuple(ids)
