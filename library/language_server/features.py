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

import numpy as np
from lsprotocol import types

from citerec.base.errors import InputError
from citerec.datasets.fulltext.catalogue import normalise_title, title_key
from citerec.datasets.languages.inputs import clean_text, decode_text
from citerec.datasets.languages.language import PLACEHOLDER
from citerec.datasets.records import OTHER_MARKER, TARGET_MARKER
from citerec.library.commands.temporary import open_recommender
from citerec.library.drafts import check
from citerec.library.explanation import NO_EVIDENCE, Recommendation
from citerec.library.export.formats import ALREADY_CITED, percentage, short_authors, terminal_text
from citerec.library.export.neighbours import new_entry
from citerec.library.folder import MANIFEST
from citerec.library.language_server.bibliography import (
    Bibliography,
    Entry,
    Main,
    find_bibs,
    match_entries,
    other_entries,
    outline_with_main,
    read_entries,
    read_main,
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
from citerec.library.memory.library import MemoryLibrary, in_memory
from citerec.library.papers import LibraryPaper
from citerec.library.question import Filters, Request
from citerec.library.recommender import Ranked, Recommender
from citerec.library.search import count_words, query_words
from citerec.library.settings import LspSettings
from citerec.retrieval.passages import CitingPassages
from citerec.retrieval.queries import Query

ADD_ENTRY = "citerec.addEntry"
"""Command that writes the entry of a paper: arguments document, id, key."""
DEPTH = 500
"""Papers that are ranked for a passage."""
MATCHES = 100
"""Papers with the typed letters that follow those that are ranked."""
MAX_DIAGNOSTICS = 1_000
MAX_ABSTRACT = 600
"""Characters of an abstract that a hover shows."""
QUICK_FIX, REFACTOR = types.CodeActionKind.QuickFix, types.CodeActionKind.Refactor
_MARKUP = re.compile(r"[\\`*_{}\[\]<>&~|#$@!]|(?<=\w):(?=//)|(?<=www)\.|^\s*(?:[-+=]|\d+[.)])")
Paper = Recommendation | LibraryPaper


class Features:
    """Answers over a library and the documents of an editor.

    documents, folders (of the workspace): set by the server. messages: for the user, sent by the server.
    markdown: uses of it that the editor shows. label_details: it shows them.
    """

    def __init__(self, settings: LspSettings) -> None:
        self.settings = settings
        self.documents: dict[str, Document] = {}
        self.folders: list[Path] = []
        self.messages: deque[str] = deque()
        self.markdown: set[str] = set()
        self.label_details = False
        self._recommender: Recommender | None = None
        self._tried = -1
        self._said: set[str] = set()
        self._lock = threading.Lock()
        self._outlines: dict[str, tuple[Document, Outline]] = {}
        self._mains: dict[str, Main | None] = {}
        self._entries: dict[Path, tuple[object, list[Entry]]] = {}
        self._added: dict[Path, dict[str, Entry]] = {}
        self._bibliography: tuple[object, Bibliography] = None, Bibliography((), None, {})
        self._ranked: tuple[object, Ranked | None] = None, None
        self._passages: tuple[tuple[object, ...], CitingPassages] = (None,) * 3, CitingPassages((), ())

    # The library, a document and its bibliography.

    def say(self, message: str) -> None:
        """Send a message to the user, once."""
        if message not in self._said:
            self._said.add(message)
            self.messages.append(message)

    def recommender(self) -> Recommender | None:
        """Return the recommender; None, after a message, while there is no library."""
        try:
            path = self.library.path if self.library else Path(self.settings.library).expanduser()
            mtime = (path / MANIFEST).stat().st_mtime_ns
        except OSError:
            mtime = 0
        if mtime != self._tried:
            self._tried = mtime
            try:
                if self._recommender is None:
                    recommender = open_recommender(self.settings.library)
                    in_memory(recommender.library)
                    recommender.recommend("loads what the first question needs [CITE]", k=1)
                    self._recommender = recommender
                self._recommender.refresh()
            except InputError as error:  # the former library, if any, is still open
                self.say(str(error))
        return self._recommender

    @property
    def library(self) -> MemoryLibrary | None:
        """The library as of the last question."""
        return in_memory(self._recommender.library) if self._recommender else None

    def root(self, document: Document) -> Path | None:
        """Return the folder whose files may be read for a document: of the workspace, else its own."""
        if document.path is None or not self.folders:
            return document.path and document.path.parent.resolve()
        above = [folder for folder in self.folders if document.path.resolve().is_relative_to(folder)]
        return max(above, key=lambda folder: len(folder.parts), default=None)

    def read_main(self, document: Document) -> None:
        """Read the files of a document, or of that which includes it: when it is opened or saved."""
        with suppress(InputError, OSError):
            self._mains[document.uri] = read_main(document, self.root(document), self._text)
        self._outlines.pop(document.uri, None)

    def outline(self, document: Document, current: bool = False) -> Outline:
        """Return the outline of a document; if it need not be current, of its last version that has one."""
        known = self._outlines.get(document.uri)
        if known is None or (current and known[0] is not document):
            known = document, outline_with_main(document, self._mains.get(document.uri))
            self._outlines[document.uri] = known
        return known[1]

    def forget(self, uri: str) -> None:
        """Forget a closed document."""
        self._outlines.pop(uri, None)
        self._mains.pop(uri, None)

    def bibliography(self, document: Document) -> Bibliography:
        """Return the bibliography of a document, as open in the editor, else from its files."""
        about, root, main = self.outline(document), self.root(document), self._mains.get(document.uri)
        files, named = list[Path](), False
        with self._lock:
            if document.path and root:
                files, named = find_bibs(document, main, about.bibs, root)
            entries = [entry for file in files for entry in self._read(file)]
            library, target = self.library, files[-1] if named or len(files) == 1 else None
            key = files, target, [id(entry) for entry in entries], library and library.folder, id(main)
            if self._bibliography[0] != key:
                others = other_entries(main) if main else []
                self._bibliography = key, match_entries(files, target, [*entries, *others], library)
            return self._bibliography[1]

    def _read(self, file: Path) -> list[Entry]:
        """Return the entries of a file, with those that the editor has added and not saved."""
        opened, (known, entries) = self._opened(file), self._entries.get(file, (None, []))
        try:
            status = file.stat()
            stamp = (status.st_mtime_ns, status.st_size) if opened is None else opened.version
            if known != stamp:
                text = decode_text(file) if opened is None else opened.text
                entries = read_entries(file, text, {entry.text: entry.paper for entry in entries})
                self._entries[file] = stamp, entries
                self._added.pop(file, None)
        except (OSError, InputError) as error:
            self.say(str(error))
        return [*entries, *self._added.get(file, {}).values()]

    def _text(self, file: Path) -> str:
        """Return the text of a file, as open in the editor."""
        opened = self._opened(file.resolve())
        return clean_text(opened.text) if opened else decode_text(file)

    def _opened(self, file: Path) -> Document | None:
        """Return the document of a file that is open in the editor."""
        for document in list(self.documents.values()):
            if document.path and document.path.name == file.name and document.path.resolve() == file:
                return document
        return None

    def _ids(self, keys: Iterable[str], bibliography: Bibliography) -> tuple[str, ...]:
        """Return the ids of the library's papers with these keys; a key of the .bib means its entry."""
        if (library := self.library) is None:
            return ()
        found = dict[str, None]()
        for key in keys:
            if key in bibliography.ids:
                found[bibliography.ids[key]] = None
            elif key not in bibliography.entries and (row := library.row(key)) is not None:
                found[library.corpus.paper_ids[row]] = None
        return tuple(found)

    # Papers for a place.

    def _ask(
        self, document: Document, passage: Passage, offset: int, typed: str, k: int
    ) -> Sequence[Recommendation]:
        """Return the best papers for the passage at an offset, of those with the typed letters."""
        about, recommender = self.outline(document), self.recommender()
        if recommender is None:
            return []
        library, bibliography = in_memory(recommender.library), self.bibliography(document)
        context = passage.context
        if not re.search(r"\w", context.replace(TARGET_MARKER, "").replace(OTHER_MARKER, "")):
            if not re.search(r"\w", words := f"{about.title} {typed}"):
                return []
            context = f"{words} {TARGET_MARKER}"
        title = title_key(normalise_title(about.title)) if about.title else 0
        own = np.flatnonzero((library.identities[:, 3] == np.uint64(title)) & (title != 0))
        query = Query(
            context,
            about.title,
            about.abstract,
            about.year,
            self._ids([key for key, *_ in about.cited], bibliography),
            library.corpus.paper_ids[int(own[0])] if len(own) else None,
            self._citing(about, bibliography),
            about.place(offset),
        )
        try:
            key = query, passage.beside, library.folder
            if self._ranked[0] != key:  # else more letters are typed
                filters = Filters(exclude=self._ids(passage.beside, bibliography))
                self._ranked = key, recommender.ranked(Request(query, filters), DEPTH)
            ranked = self._ranked[1]
            assert ranked is not None
            if not query_words(typed):
                return ranked.best(k)
            ids = ranked.matching(typed)
            if len(ids) < k:  # all papers
                ids += [paper.id for paper in recommender.search(typed, MATCHES)]
            return ranked.among(ids, k)
        except InputError:  # the passage has no words
            return []

    def _citing(self, about: Outline, bibliography: Bibliography) -> CitingPassages:
        """Return the passages of a document that cite papers of the library."""
        key = about.passages, bibliography, self.library
        if any(a is not b for a, b in zip(self._passages[0], key, strict=True)):
            cited = [self._ids(keys, bibliography) for _, keys in about.passages]
            self._passages = key, CitingPassages([context for context, _ in about.passages], cited)
        return self._passages[1]

    # Completion.

    def complete(self, document: Document, position: types.Position) -> types.CompletionList | None:
        """Return papers for the citation at a caret, ordered by meaning."""
        current = self.documents.get(document.uri)
        if document.language is None or current is None or current.version != document.version:
            return None  # the next keystroke brings its own question
        caret = document.offset(position)
        if (found := citation_at(document, caret)) is None:
            return None
        place, passage = found
        typed = document.text[place.start : caret]
        papers = self._ask(document, passage, place.start, typed, self.settings.k)
        bibliography = self.bibliography(document)
        keys = bibliography.keys
        listed: list[tuple[str, Paper]] = [(bibliography.key_of(paper, keys), paper) for paper in papers]
        items = []
        for rank, (key, paper) in enumerate([*listed, *self._only_in_bib(bibliography, typed)]):
            start, end, new = place.replaced(document.language, document.text, key)
            title, by, year = terminal_text(paper.title), _by(paper), str(paper.year or "")
            item = types.CompletionItem(
                label=(by if self.label_details else " · ".join(filter(None, (by, title)))) or key,
                kind=types.CompletionItemKind.Reference,
                detail=key,
                documentation=self._describe(paper, "completion"),
                sort_text=f"{rank:04}",
                # Begins with what is typed: so editors keep all items, in this order.
                filter_text=" ".join(filter(None, (typed, key, *paper.authors, year, title))),
                preselect=rank == 0 or None,
                insert_text_format=types.InsertTextFormat.PlainText,
                text_edit=types.TextEdit(document.range(place.start, end), new),
            )
            if self.label_details:
                item.label_details = types.CompletionItemLabelDetails(f"  {title}", key)
            if start < place.start:
                gone = document.range(start, place.start)
                item.additional_text_edits = [types.TextEdit(gone, "")]
            if isinstance(paper, Recommendation) and key not in bibliography.entries:
                item.command = _add_command(document, paper.id, key)
            items.append(item)
        return types.CompletionList(is_incomplete=True, items=items)

    def _only_in_bib(self, bibliography: Bibliography, typed: str) -> Iterator[tuple[str, LibraryPaper]]:
        """Yield entries with the typed words whose papers the library lacks."""
        words, left = query_words(typed), self.settings.k
        for key, entry in bibliography.entries.items():
            if not left or entry.paper is None or key in bibliography.ids:
                continue
            if count_words(words, entry.paper._replace(abstract="")) == len(words):
                left -= 1
                yield key, entry.paper

    def _describe(self, paper: Paper, use: str) -> types.MarkupContent:
        """Describe a paper, in Markdown if the editor shows it."""
        year = str(paper.year or "")
        lines = [("", " · ".join(filter(None, (", ".join(paper.authors), paper.venue, year))))]
        place = None
        if isinstance(paper, Recommendation):
            found = paper.evidence
            if paper.probability is not None:
                lines.append(("", f"{percentage(paper.probability)} likely to be the paper meant"))
            words = f"its title contains {', '.join(found.in_title)}" if found.in_title else ""
            named = f"{found.name} is named here" if found.name else words
            lines.append(("", ALREADY_CITED if paper.cited else ""))
            lines.append(("Why:", named or found.sentence or NO_EVIDENCE))
            if named and found.place:
                lines.append(("", f"“{found.sentence}”"))
            place = found.place
            lines.append(("Others cite it:", found.cited_as))
        else:
            cut = " …" if len(paper.abstract) > MAX_ABSTRACT else ""
            lines.append(("", paper.abstract[:MAX_ABSTRACT] + cut))
        shown = [(label, terminal_text(text)) for label, text in lines if text]
        title = terminal_text(paper.title) or "(no title)"
        if use in self.markdown:
            parts = [escape_markdown(f"{label} {text}".strip()) for label, text in shown]
            parts += [f"[{place.label}]({place.link})"] if place else []
            text = "\n\n".join([escape_markdown(title), *parts])  # not all editors show emphasis
            return types.MarkupContent(types.MarkupKind.Markdown, text)
        shown += [("", place.label)] if place else []
        text = "\n".join([title, *(f"{label} {text}".strip() for label, text in shown)])
        return types.MarkupContent(types.MarkupKind.PlainText, text)

    # Entries of the .bib.

    def add_entry(self, uri: str, id: str, key: str) -> tuple[Path, types.WorkspaceEdit] | None:
        """Return a .bib file and the edit that adds an entry; None if it is there or, cannot be."""
        document, library = self.documents.get(uri), self.library
        if document is None or library is None or document.language is None or library.row(id) is None:
            return None
        bibliography = self.bibliography(document)
        if key in bibliography.entries:
            return None
        file = bibliography.target
        target = self._opened(file) if file else None
        if file is None or not (target or os.access(file, os.W_OK)):
            name = document.path.name if document.path else "this new document"
            problem = f"{file.name} is read-only" if file else f"{name} names no .bib file of the workspace"
            self.say(f"{problem}: only keys are inserted, without entries")
            return None
        if target is None:
            content = file.read_bytes().decode("utf-8-sig", "replace")
            target = Document.open(file.as_uri(), content, encoding=document.encoding)
        text = target.text
        paper = library.paper(library.corpus.paper_row(id))
        place, entry = new_entry(text, paper, key, self.settings.abstracts)
        written = entry.replace("\n", "\r\n" if "\r\n" in text else "\n")
        edit = types.TextEdit(target.range(place, place), written)
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
        """Offer a paper to cite at a missing citation or the end of a sentence, or an entry to add."""
        language, caret = document.language, document.offset(range.end)
        if language is None:
            return None
        kind, command = QUICK_FIX, ""
        if missing := missing_at(document, caret):
            start, end = missing
            command = document.text[start:end]
        elif cited := key_at(document, caret):
            return self._add_missing_entry(document, cited.key) if wanted(kind, only) else None
        elif (place := sentence_end_at(document, caret)) is not None:
            kind, start, end = REFACTOR, place, place
        if (missing is None and kind == QUICK_FIX) or not wanted(kind, only):
            return None

        def cite(key: str) -> str:
            filled = language.fill(command, [key]) if command else None
            return filled[0] if filled else f"{language.lead}{language.cite(key)}"

        papers = self._ask(
            document,
            passage_at(document, language, start, end, cite(PLACEHOLDER)),
            start,
            "",
            self.settings.actions,
        )
        bibliography = self.bibliography(document)
        keys, actions = bibliography.keys, []
        for paper in papers[: self.settings.actions]:
            key = bibliography.key_of(paper, keys)
            sure = "" if paper.probability is None else f" ({percentage(paper.probability)})"
            action = types.CodeAction(f"Cite {_by(paper)}: {terminal_text(paper.title)}{sure}", kind)
            edit = types.TextEdit(document.range(start, end), cite(key))
            action.edit = types.WorkspaceEdit(changes={document.uri: [edit]})
            if key not in bibliography.entries:
                action.command = _add_command(document, paper.id, key)
            actions.append(action)
        return actions

    def _add_missing_entry(self, document: Document, key: str) -> list[types.CodeAction] | None:
        """Return the action for a cited key that the library has and the .bib lacks."""
        self.recommender()
        bibliography = self.bibliography(document)
        ids = self._ids([key], bibliography)
        if not ids or key in bibliography.entries:
            return None
        where = bibliography.target.name if bibliography.target else "the bibliography"
        command = _add_command(document, ids[0], key)
        return [types.CodeAction(f"Add {key} to {where}", QUICK_FIX, command=command)]

    # Hover, definition, diagnostics.

    def hover(self, document: Document, position: types.Position) -> types.Hover | None:
        """Describe the paper of the key at a caret: of the library, else of the .bib."""
        if document.language is None or not (found := key_at(document, document.offset(position))):
            return None
        self.recommender()
        bibliography = self.bibliography(document)
        entry, library = bibliography.entries.get(found.key), self.library
        ids = self._ids([found.key], bibliography)
        paper = entry.paper if entry else None
        if ids and library:
            paper = library.paper(library.corpus.paper_row(ids[0]))
        if paper is None:
            return None
        return types.Hover(self._describe(paper, "hover"), document.range(found.start, found.end))

    def definition(self, document: Document, position: types.Position) -> types.Location | None:
        """Return the .bib entry of the key at a caret."""
        if document.language is None or not (found := key_at(document, document.offset(position))):
            return None
        entry = self.bibliography(document).entries.get(found.key)
        if entry is None or not entry.text:
            return None
        start = types.Position(entry.line, 0)
        return types.Location(entry.file.as_uri(), types.Range(start, start))

    def diagnose(self, document: Document) -> list[types.Diagnostic]:
        """Return missing citations, unknown keys, keys that name the same paper, and preprints."""
        self.recommender()
        about = self.outline(document, current=True)
        bibliography, library = self.bibliography(document), self.library
        where = ", ".join(file.name for file in bibliography.files)
        where = where or ("its bibliography" if bibliography.entries else "")
        main = self._mains.get(document.uri)
        same = {key: keys for keys in bibliography.same for key in keys}
        cited, level = {key for key, *_ in about.cited}, types.DiagnosticSeverity
        found = [
            (start, end, "missing", "a citation is missing", level.Information)
            for start, end in about.missing
        ]
        preprints = {one.key: one.message for one in self._preprints(bibliography, cited)}
        for key, start, end in about.cited if where else ():
            if key in preprints:
                found.append((start, end, "preprint", f"{key} {preprints[key]}", level.Information))
            if others := [other for other in same.get(key, ()) if other != key and other in cited]:
                message = f"{key} and {', '.join(others)} name the same paper"
                found.append((start, end, "same-paper", message, level.Warning))
            if key in bibliography.entries or key in about.labels or (main and main.source.is_label(key)):
                continue
            if library is not None and library.row(key) is not None:
                message = f"{key} is in the library, but not in {where}"
                found.append((start, end, "no-entry", message, level.Information))
            else:
                found.append((start, end, "unknown-key", f"{key} is not in {where}", level.Warning))
        return [
            types.Diagnostic(document.range(start, end), message, severity, code, source="citerec")
            for start, end, code, message, severity in found[:MAX_DIAGNOSTICS]
        ]

    def _preprints(self, bibliography: Bibliography, cited: set[str]) -> list[check.Finding]:
        """Return the cited preprints that are published, if the settings ask for them."""
        if not self.settings.preprints:
            return []
        entries = {
            key: check.Entry(key, entry.file, entry.line + 1, entry.paper)
            for key, entry in bibliography.entries.items()
        }
        return check.find_preprints(entries, cited, self.library)


def _by(paper: Paper) -> str:
    return " ".join(filter(None, (short_authors(paper.names or paper.authors), str(paper.year or ""))))


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
    return _MARKUP.sub(lambda match: re.sub(r"([^0-9A-Za-z\s])", r"\\\1", match[0]), text)
