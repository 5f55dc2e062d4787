"""What an editor asks: completion, code actions, hover, definition, diagnostics.

The methods of Features run in worker threads, on a version of a document that never changes. Texts of papers
come from untrusted files: they are shown as text, never as markup.
"""

from __future__ import annotations

import os
import re
import threading
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from lsprotocol import types

from citerec.datasets.errors import InputError
from citerec.datasets.fulltext.catalogue import normalise_title, title_key
from citerec.datasets.fulltext.latex_source import decode_latex
from citerec.datasets.records import OTHER_MARKER, TARGET_MARKER
from citerec.library.drafts.placeholders import PLACEHOLDER
from citerec.library.explanation import NO_EVIDENCE, Recommendation
from citerec.library.filters import Filters
from citerec.library.formats import ALREADY_CITED, bibtex, percentage, short_authors, terminal_text
from citerec.library.language_server.bibliography import (
    Bibliography,
    Entry,
    find_bibs,
    find_main,
    match_entries,
    outline_with_main,
    read_entries,
)
from citerec.library.language_server.documents import (
    Document,
    Outline,
    Passage,
    citation_at,
    key_at,
    missing_at,
    passage_at,
    sentence_end_at,
)
from citerec.library.language_server.languages import insertion
from citerec.library.library import MANIFEST, Library
from citerec.library.papers import LibraryPaper
from citerec.library.recommender import Recommender, Request
from citerec.library.search import count_words, query_words
from citerec.library.settings import LspSettings
from citerec.retrieval.queries import Query

ADD_ENTRY = "citerec.addEntry"
"""Command that writes the entry of a paper: arguments document, id, key."""
MATCHES = 100
"""Papers with the typed letters that are ranked."""
MAX_DIAGNOSTICS = 1_000
MAX_ABSTRACT = 600
"""Characters of an abstract that a hover shows."""
_MARKUP = re.compile(r"[\\`*_{}\[\]<>&~|#$@!]|(?<=\w):(?=//)|(?<=www)\.|^\s*(?:[-+=]|\d+[.)])")
Paper = Recommendation | LibraryPaper


class Features:
    """Answers over a library and the documents of an editor.

    documents, folders (of the workspace): set by the server. messages: for the user, sent by the server.
    markdown: of documentation and hovers, if the editor shows it.
    """

    def __init__(self, settings: LspSettings) -> None:
        self.settings = settings
        self.documents: dict[str, Document] = {}
        self.folders: list[Path] = []
        self.messages: deque[str] = deque()
        self.markdown = {"completion": False, "hover": False}
        self.label_details = False
        self._recommender: Recommender | None = None
        self._tried = -1
        self._said: set[str] = set()
        self._lock = threading.Lock()
        self._outlines: dict[str, tuple[Document, Outline]] = {}
        self._mains: dict[str, tuple[Path, str] | None] = {}
        self._entries: dict[Path, tuple[object, list[Entry]]] = {}
        self._parsed: dict[Path, dict[str, LibraryPaper | None]] = {}
        self._added: dict[Path, dict[str, Entry]] = {}
        self._bibliography: tuple[object, Bibliography] = None, Bibliography((), {})
        self._answer: tuple[object, list[Recommendation]] = None, []

    # The library, the document and its bibliography.

    def say(self, message: str) -> None:
        """Send a message to the user, once."""
        if message not in self._said:
            self._said.add(message)
            self.messages.append(message)

    def recommender(self) -> Recommender | None:
        """Return the recommender; None, after a message, while there is no library."""
        path = Path(self.settings.library).expanduser()
        try:
            mtime = (path / MANIFEST).stat().st_mtime_ns
        except OSError:
            mtime = 0
        if self._recommender is None and mtime != self._tried:
            self._tried = mtime
            try:
                recommender = Recommender.open(path)
                recommender.recommend("loads what the first question needs [CITE]", k=1)
                self._recommender = recommender
            except InputError as error:
                self.say(str(error))
        return self._recommender

    @property
    def library(self) -> Library | None:
        return self._recommender.library if self._recommender else None

    def root(self, document: Document) -> Path | None:
        """Return the folder whose files may be read for a document: of the workspace, else its own."""
        if document.path is None:
            return None
        if not self.folders:
            return document.path.parent.resolve()
        above = [folder for folder in self.folders if document.path.resolve().is_relative_to(folder)]
        return max(above, key=lambda folder: len(folder.parts), default=None)

    def read_main(self, document: Document) -> None:
        """Look for the main document of a chapter: when it is opened or saved."""
        if document.language and document.language.name == "LaTeX":
            with suppress(InputError, OSError):
                self._mains[document.uri] = find_main(document, self.root(document))

    def outline(self, document: Document, current: bool = False) -> Outline:
        """Return the outline of a document, unless it must be `current` of its last version that has one."""
        known = self._outlines.get(document.uri)
        if known and (known[0] is document or not current):
            return known[1]
        found = outline_with_main(document, self._mains.get(document.uri))
        self._outlines[document.uri] = document, found
        return found

    def forget(self, uri: str) -> None:
        """Forget a closed document."""
        self._outlines.pop(uri, None)
        self._mains.pop(uri, None)

    def bibliography(self, document: Document, about: Outline) -> Bibliography:
        """Return the bibliography of a document, as open in the editor, else from its files."""
        root, main = self.root(document), self._mains.get(document.uri)
        path = main[0] if main else document.path
        with self._lock:
            files = (
                find_bibs(path, document.language, about.source, root)
                if path and root and document.language
                else []
            )
            entries = [entry for file in files for entry in self._read(file)]
            library = self.library
            key = (tuple(files), tuple(map(id, entries)), library.folder if library else None)
            if self._bibliography[0] != key:
                self._bibliography = key, match_entries(files, entries, library)
            return self._bibliography[1]

    def _read(self, file: Path) -> list[Entry]:
        """Return the entries of a file, with those that the editor has added and not saved."""
        opened = self._opened(file)
        try:
            status = file.stat()
            stamp: object = (status.st_mtime_ns, status.st_size) if opened is None else opened.version
            if self._entries.get(file, (None, []))[0] != stamp:
                text = decode_latex(file) if opened is None else opened.text
                known = self._parsed.get(file, {})
                entries = read_entries(file, text, known)
                self._parsed[file] = {entry.text: entry.paper for entry in entries}
                self._entries[file] = stamp, entries
                self._added.pop(file, None)
        except (OSError, InputError) as error:
            self.say(str(error))
            return []
        return [*self._entries[file][1], *self._added.get(file, {}).values()]

    def _opened(self, file: Path) -> Document | None:
        """Return the document of a file that is open in the editor."""
        for document in list(self.documents.values()):
            if document.path and document.path.name == file.name and document.path.resolve() == file:
                return document
        return None

    # Papers for a place.

    def _ask(
        self, document: Document, passage: Passage, typed: str, k: int
    ) -> tuple[Bibliography, list[Recommendation]]:
        """Return the bibliography and the best papers for a passage, of those with the typed letters."""
        about = self.outline(document)
        recommender = self.recommender()
        bibliography = self.bibliography(document, about)
        if recommender is None:
            return bibliography, []
        library = recommender.library
        context = passage.context
        if not re.search(r"\w", context.replace(TARGET_MARKER, "").replace(OTHER_MARKER, "")):
            context = f"{about.title or typed} {TARGET_MARKER}"
        ids = self._ids([key for key, *_ in about.cited], bibliography, library)
        title = np.uint64(title_key(normalise_title(about.title))) if about.title else np.uint64(0)
        own = np.flatnonzero((library.identities[:, 3] == title) & (title != 0))
        query = Query(
            context,
            about.title,
            about.abstract,
            about.year,
            tuple(dict.fromkeys(ids.values())),
            library.corpus.paper_ids[int(own[0])] if len(own) else None,
        )
        try:
            if query_words(typed):
                only = tuple(paper.id for paper in recommender.search(typed, MATCHES))
                filters = Filters(only=only)
                if not only:
                    return bibliography, []
            else:
                beside = self._ids(passage.beside, bibliography, library)
                filters = Filters(exclude=tuple(beside.values()))
            key = query, filters, k, library.folder
            if self._answer[0] != key:
                self._answer = key, recommender.recommend_batch([Request(query, filters)], k)[0]
            return bibliography, self._answer[1]
        except InputError as error:
            if context.strip() != TARGET_MARKER:
                self.say(str(error))
            return bibliography, []

    @staticmethod
    def _ids(keys: Iterable[str], bibliography: Bibliography, library: Library) -> dict[str, str]:
        """Return the ids of the library's papers with these keys; a key of the .bib means its entry."""
        found = {}
        for key in keys:
            if key in bibliography.ids:
                found[key] = bibliography.ids[key]
            elif key not in bibliography.entries and (row := library.row(key)) is not None:
                found[key] = library.corpus.paper_ids[row]
        return found

    def _paper(self, key: str, bibliography: Bibliography) -> LibraryPaper | None:
        """Return the paper that a key names: of the library, else of the .bib."""
        if library := self.library:
            for id in self._ids([key], bibliography, library).values():
                return library.paper(library.corpus.paper_row(id))
        return bibliography.entries[key].paper if key in bibliography.entries else None

    # Completion.

    def complete(self, document: Document, position: types.Position) -> types.CompletionList | None:
        """Return papers for the citation at a caret, ordered by meaning."""
        caret = document.offset(position)
        current = self.documents.get(document.uri)
        if current is None or current.version != document.version:
            return None  # the next keystroke has its own question
        found = citation_at(document, caret)
        if found is None or document.language is None:
            return None
        place, passage = found
        typed = document.text[place.start : caret]
        bibliography, papers = self._ask(document, passage, typed, self.settings.k)
        keys = bibliography.keys
        listed: list[tuple[str, Paper]] = [(bibliography.key_of(paper, keys), paper) for paper in papers]
        listed += list(self._only_in_bib(bibliography, typed))
        items = []
        for rank, (key, paper) in enumerate(listed):
            new, removed = insertion(document.language, key, document.text[place.start - 1 : place.start])
            authors = " ".join(filter(None, [short_authors(paper.authors), str(paper.year or "")]))
            title = terminal_text(paper.title)
            words = filter(None, [typed, key, *paper.authors, str(paper.year or ""), title])
            item = types.CompletionItem(
                label=key,
                kind=types.CompletionItemKind.Reference,
                detail=title if self.label_details else f"{title} · {authors}",
                documentation=self._document(paper, "completion"),
                sort_text=f"{rank:04}",
                # Begins with what is typed: so editors keep all items, in this order.
                filter_text=" ".join(words),
                preselect=rank == 0 or None,
                insert_text_format=types.InsertTextFormat.PlainText,
                text_edit=types.TextEdit(document.range(place.start, place.end), new),
            )
            if self.label_details:
                item.label_details = types.CompletionItemLabelDetails(f"  {title}", authors)
            if removed:
                before = document.range(place.start - removed, place.start)
                item.additional_text_edits = [types.TextEdit(before, "")]
            if isinstance(paper, Recommendation) and key not in bibliography.entries:
                item.command = types.Command(
                    "Add its entry", ADD_ENTRY, arguments=[document.uri, paper.id, key]
                )
            items.append(item)
        return types.CompletionList(is_incomplete=True, items=items)

    def _only_in_bib(self, bibliography: Bibliography, typed: str) -> Iterator[tuple[str, LibraryPaper]]:
        """Yield entries with the typed words whose papers the library lacks."""
        words, left = query_words(typed), self.settings.k
        for key, entry in bibliography.entries.items():
            if not (left and entry.paper) or key in bibliography.ids:
                continue
            if count_words(words, entry.paper._replace(abstract="")) == len(words):
                left -= 1
                yield key, entry.paper

    def _document(self, paper: Paper, use: str) -> types.MarkupContent:
        """Describe a paper."""
        where = " · ".join(filter(None, [", ".join(paper.authors), paper.venue, str(paper.year or "")]))
        lines = [("", where)]
        if isinstance(paper, Recommendation):
            if paper.probability is not None:
                lines.append(("", f"{percentage(paper.probability)} likely to be the paper meant"))
            if paper.cited:
                lines.append(("", ALREADY_CITED))
            found = paper.evidence
            reason = (
                f"{found.name} is named here" if found.name else ", ".join(found.in_title) or found.sentence
            )
            lines.append(("Why:", reason or NO_EVIDENCE))
            lines.append(("Others cite it:", found.cited_as))
        else:
            cut = " …" if len(paper.abstract) > MAX_ABSTRACT else ""
            lines.append(("", paper.abstract[:MAX_ABSTRACT] + cut))
        shown = [(label, terminal_text(text)) for label, text in lines if text]
        title = terminal_text(paper.title) or "(no title)"
        if self.markdown[use]:
            parts = [f"**{escape_markdown(title)}**"]
            parts += [
                f"{f'*{label.strip()}* ' if label else ''}{escape_markdown(text)}" for label, text in shown
            ]
            return types.MarkupContent(types.MarkupKind.Markdown, "\n\n".join(parts))
        plain = [title, *(f"{label} {text}".strip() for label, text in shown)]
        return types.MarkupContent(types.MarkupKind.PlainText, "\n".join(plain))

    # Entries of the .bib.

    def add_entry(self, uri: str, id: str, key: str) -> tuple[Path, types.WorkspaceEdit] | None:
        """Return the edit that writes the entry of a paper, and its file; None if it is there or impossible."""
        document, library = self.documents.get(uri), self.library
        if document is None or library is None or document.language is None:
            return None
        bibliography = self.bibliography(document, self.outline(document))
        if key in bibliography.entries or library.row(id) is None:
            return None
        return self._entry_edit(document, bibliography, id, key)

    def _entry_edit(
        self, document: Document, bibliography: Bibliography, id: str, key: str
    ) -> tuple[Path, types.WorkspaceEdit] | None:
        library, name = self.library, document.path.name if document.path else "This new document"
        assert library is not None
        if not bibliography.files:
            self.say(f"{name} names no .bib file in the workspace: only keys are inserted, without entries")
            return None
        file = bibliography.files[-1]
        opened = self._opened(file)
        if opened is None and not os.access(file, os.W_OK):
            self.say(f"{file.name} is read-only: only keys are inserted, without entries")
            return None
        text = opened.text if opened else file.read_bytes().decode("utf-8-sig", "replace")
        target = opened or Document.open(file.as_uri(), text, encoding=document.encoding)
        paper = library.paper(library.corpus.paper_row(id))
        entry = bibtex([paper._replace(key=key)])
        gap = "" if not text else "\n" if text.endswith(("\n", "\r")) else "\n\n"
        written = f"{gap}{entry}".replace("\n", "\r\n" if "\r\n" in text else "\n")
        edit = types.TextEdit(target.range(len(text), len(text)), written)
        return file, types.WorkspaceEdit(changes={target.uri: [edit]})

    def entry_added(self, file: Path, id: str, key: str) -> None:
        """Remember an entry that the editor has added, and may not have saved."""
        if (library := self.library) and self._opened(file) is None:
            paper = library.paper(library.corpus.paper_row(id))
            self._added.setdefault(file, {})[key] = Entry(key, file, 0, "", paper)

    # Code actions.

    def actions(
        self, document: Document, range: types.Range, only: Sequence[str] | None = None
    ) -> list[types.CodeAction] | None:
        """Actions that cite a paper at a missing citation or the end of a sentence, or add an entry."""
        language, caret = document.language, document.offset(range.end)
        if language is None:
            return None
        if missing := missing_at(document, caret):
            kind, (start, end) = types.CodeActionKind.QuickFix, missing
            command = document.text[start:end]
            filled = language.syntax.fill(command, [PLACEHOLDER])
            mark = filled[0] if filled else PLACEHOLDER
        elif (cited := key_at(document, caret)) is not None:
            return (
                self._add_missing_entry(document, cited.key)
                if wanted(types.CodeActionKind.QuickFix, only)
                else []
            )
        elif (place := sentence_end_at(document, caret)) is not None:
            kind, start, end, command = types.CodeActionKind.Refactor, place, place, ""
            mark = f"{language.lead}{language.cite(PLACEHOLDER)}"
        else:
            return None
        if not wanted(kind, only):
            return None
        passage = passage_at(document, language, start, end, mark)
        bibliography, papers = self._ask(document, passage, "", self.settings.actions)
        keys, actions = bibliography.keys, []
        for paper in papers[: self.settings.actions]:
            key = bibliography.key_of(paper, keys)
            if command:
                done = language.syntax.fill(command, [key])
                new = done[0] if done else command
            else:
                new = f"{language.lead}{language.cite(key)}"
            edit = types.WorkspaceEdit(
                changes={document.uri: [types.TextEdit(document.range(start, end), new)]}
            )
            sure = "" if paper.probability is None else f" ({percentage(paper.probability)})"
            authors = " ".join(filter(None, [short_authors(paper.authors), str(paper.year or "")]))
            title = f"Cite {authors}: {terminal_text(paper.title)}{sure}"
            action = types.CodeAction(
                title, kind=kind, edit=types.WorkspaceEdit(changes={document.uri: [edit]})
            )
            if key not in bibliography.entries:
                self._with_entry(action, document, bibliography, paper.id, key)
            actions.append(action)
        return actions

    def _with_entry(
        self, action: types.CodeAction, document: Document, bibliography: Bibliography, id: str, key: str
    ) -> None:
        """Let an action also write the entry; if that is impossible, its command tells why."""
        writable = bibliography.files and os.access(bibliography.files[-1], os.W_OK)
        added = self._entry_edit(document, bibliography, id, key) if writable else None
        if added and added[1].changes and action.edit and action.edit.changes is not None:
            action.edit.changes = {**action.edit.changes, **added[1].changes}
        else:
            action.command = _add_command(document, id, key)

    def _add_missing_entry(
        self, document: Document, key: str, only: Sequence[str] | None
    ) -> list[types.CodeAction] | None:
        """Return the action for a cited key that the library has and the .bib lacks."""
        if not wanted(types.CodeActionKind.QuickFix, only):
            return None
        self.recommender()
        bibliography = self.bibliography(document, self.outline(document))
        library = self.library
        if library is None or key in bibliography.entries or (row := library.row(key)) is None:
            return None
        where = bibliography.files[-1].name if bibliography.files else "the bibliography"
        action = types.CodeAction(f"Add {key} to {where}", kind=types.CodeActionKind.QuickFix)
        action.edit = types.WorkspaceEdit(changes={})
        self._with_entry(action, document, bibliography, library.corpus.paper_ids[row], key)
        return [action]

    # Hover, definition, diagnostics.

    def hover(self, document: Document, position: types.Position) -> types.Hover | None:
        """Describe the paper of the key at a caret."""
        if document.language is None or (found := key_at(document, document.offset(position))) is None:
            return None
        self.recommender()
        bibliography = self.bibliography(document, self.outline(document))
        if (paper := self._paper(found.key, bibliography)) is None:
            return None
        return types.Hover(self._document(paper, "hover"), document.range(found.start, found.end))

    def definition(self, document: Document, position: types.Position) -> types.Location | None:
        """Return the .bib entry of the key at a caret."""
        if document.language is None or (found := key_at(document, document.offset(position))) is None:
            return None
        entry = self.bibliography(document, self.outline(document)).entries.get(found.key)
        if entry is None or not entry.text:
            return None
        start, end = (
            types.Position(entry.line, 0),
            types.Position(entry.line, len(entry.text.splitlines()[0])),
        )
        return types.Location(entry.file.as_uri(), types.Range(start, end))

    def diagnose(self, document: Document) -> list[types.Diagnostic]:
        """Return missing citations, unknown keys, and keys that name the same paper."""
        if document.language is None:
            return []
        self.recommender()
        about = self.outline(document, current=True)
        bibliography, library = self.bibliography(document, about), self.library
        where = ", ".join(file.name for file in bibliography.files)
        same = {key: keys for keys in bibliography.same for key in keys}
        cited = {key for key, *_ in about.cited}
        severity, found = types.DiagnosticSeverity, list[tuple[int, int, str, str, Any]]()
        for start, end in about.missing:
            found.append((start, end, "missing", "a citation is missing", severity.Information))
        for key, start, end in about.cited if bibliography.files else ():
            others = [other for other in same.get(key, ()) if other != key and other in cited]
            if others:
                message = f"{key} and {', '.join(others)} name the same paper"
                found.append((start, end, "same-paper", message, severity.Warning))
            if key in bibliography.entries or f"<{key}>" in document.text:  # a label of Typst
                continue
            if library is not None and library.row(key) is not None:
                message = f"{key} is in the library, but not in {where}"
                found.append((start, end, "no-entry", message, severity.Information))
            else:
                found.append((start, end, "unknown-key", f"{key} is not in {where}", severity.Warning))
        return [
            types.Diagnostic(document.range(start, end), message, level, code, source="citerec")
            for start, end, code, message, level in found[:MAX_DIAGNOSTICS]
        ]


def _add_command(document: Document, id: str, key: str) -> types.Command:
    return types.Command("Add its entry", ADD_ENTRY, arguments=[document.uri, id, key])


def wanted(kind: str, only: Sequence[str] | None) -> bool:
    """True if an editor that wants only these kinds of code actions wants this kind."""
    return not only or any(kind == one or kind.startswith(f"{one}.") for one in only)


def escape_markdown(text: str) -> str:
    r"""Escape a text so that Markdown shows it as it is.

    >>> escape_markdown("<b>A*</b> [x](http://a.b)")
    '\\<b\\>A\\*\\</b\\> \\[x\\](http\\://a.b)'
    """
    return _MARKUP.sub(lambda match: re.sub(r"([^\w\s])", r"\\\1", match[0]), text)
