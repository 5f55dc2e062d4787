"""What is open in an editor: documents, what is known of each, their bibliographies, the library.

Several threads ask at once, one for each document.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from citerec.base.errors import InputError
from citerec.base.files import expand_user, real_path
from citerec.formats.drafts.inputs import clean_text, decode_text
from citerec.library import MANIFEST
from citerec.library.ask.recommender import Ranked, Recommender, open_recommender
from citerec.library.drafts.check import Entry
from citerec.library.editor.bibliography import (
    Bibliography,
    Main,
    find_bibs,
    match_entries,
    other_entries,
    outline_with_main,
    read_entries,
    read_main,
)
from citerec.library.editor.documents import Document, Outline
from citerec.library.papers.library import Library
from citerec.library.settings import LspSettings
from citerec.retrieval.passages import CitingPassages


@dataclass
class _Memory:
    """What is known of a document; `lock` is held while its bibliography is put together.

    Of what was made last: what it was made from, and what was made.
    """

    outline: tuple[Document, Outline] | None = None
    main: Main | None = None
    bibliography: tuple[object, Bibliography] = (None, Bibliography((), None, {}))
    ranked: tuple[object, Future[Ranked]] = field(default_factory=lambda: (None, Future()))
    passages: tuple[tuple[object, ...], CitingPassages] = ((None,) * 3, CitingPassages((), ()))
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
            memory.main = read_main(document, self.root(document), self._text)
        memory.outline = None

    def outline(self, document: Document, current: bool = False) -> Outline:
        """Return the outline of a document; if it need not be current, of its last version that has one."""
        memory = self.memory(document)
        made = memory.outline
        if made is None or (current and made[0] is not document):
            made = memory.outline = document, outline_with_main(document, memory.main)
        return made[1]

    # Its bibliography.

    def bibliography(self, document: Document) -> Bibliography:
        """Return the bibliography of a document, as open in the editor, else from its files."""
        memory = self.memory(document)
        outline, root, main = self.outline(document), self.root(document), memory.main
        files, named = list[Path](), False
        with memory.lock:
            if document.path and root:
                files, named = find_bibs(document, main, outline.bibs, root)
            entries = [entry for file in files for entry in self._entries_of(file)]
            library, target = self.library, files[-1] if named or len(files) == 1 else None
            key = files, target, [id(entry) for entry in entries], library and library.folder, id(main)
            if memory.bibliography[0] != key:
                others = other_entries(main) if main else []
                memory.bibliography = key, match_entries(files, target, [*entries, *others], library)
            return memory.bibliography[1]

    def _entries_of(self, file: Path) -> list[Entry]:
        """Return the entries of a file, with those that the editor has added, and not saved or told of.

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
            return opened.version
        status = file.stat()
        return status.st_mtime_ns, status.st_size

    def added(self, file: Path) -> dict[str, Entry]:
        """Return what the editor has added to a .bib file since it was last saved, or told of, by key."""
        stamp, added = self._added.get(file, (None, {}))
        with suppress(OSError):
            if added and stamp == self._stamp(file, self._opened(file)):
                return added
        return {}

    def add(self, file: Path, id: str, key: str) -> None:
        """Remember an entry that the editor has added, and may not have saved or told of yet."""
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
            if document.path and document.path.name == file.name and real_path(document.path) == file:
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
