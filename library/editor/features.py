"""What an editor asks: completion, code actions, hover, definition, diagnostics.

The methods of Features run in worker threads, on a version of a document that never changes. Texts of papers
come from untrusted files: they are shown as text, never as markup.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from lsprotocol import types

from citerec.base.errors import InputError
from citerec.datasets.records import OTHER_MARKER, TARGET_MARKER
from citerec.formats.bibliography.entries import BibtexText
from citerec.formats.bibliography.neighbours import new_entry
from citerec.formats.bibliography.paper import LibraryPaper, retraction_note, terminal_text
from citerec.formats.drafts.language import PLACEHOLDER
from citerec.formats.letters import nfc
from citerec.library.ask.display import ALREADY_CITED, percentage, short_authors
from citerec.library.ask.question import Filters, Request
from citerec.library.ask.recommendation import Recommendation
from citerec.library.ask.recommender import Ranked, Recommender
from citerec.library.drafts import check
from citerec.library.editor.documents import (
    Document,
    Outline,
    Passage,
    citation_at,
    key_at,
    missing_at,
    passage_at,
    sentence_end_at,
)
from citerec.library.editor.workspace import Bibliography, Workspace
from citerec.library.evidence.explanation import NO_EVIDENCE
from citerec.library.evidence.quotations import pinpointed
from citerec.library.papers.search import count_words, query_words
from citerec.library.settings import LspSettings
from citerec.retrieval.passages import CitingPassages
from citerec.retrieval.queries import Query

ADD_ENTRY = "citerec.addEntry"
"""Command that writes the entry of a paper: arguments document, id, key."""
COMPLETED, OFFERED = 20, 5
"""Papers that a completion offers, and actions at a missing citation or the end of a sentence."""
DEPTH = 500
"""Papers that are ranked for a passage."""
PATIENCE = 0.2
"""Seconds that a completion waits for the networks."""
MATCHES = 100
"""Most papers with the typed letters that follow those that are ranked."""
MAX_DIAGNOSTICS = 1_000
HINTS = ("preprint", "reference")
"""Kinds of findings that are no more than a hint."""
MAX_ABSTRACT = 600
"""Characters of an abstract that a hover shows."""
QUICK_FIX, REFACTOR = types.CodeActionKind.QuickFix, types.CodeActionKind.Refactor
_MARKUP = re.compile(r"[\\`*_{}\[\]<>&~|#$@!]|(?<=\w):(?=//)|(?<=www)\.|^\s*(?:[-+=]|\d+[.)])")
Paper = Recommendation | LibraryPaper


class Features(Workspace):
    """Answers over a library and the documents of an editor.

    markdown: the uses for which the editor shows it.
    """

    def __init__(self, settings: LspSettings) -> None:
        super().__init__(settings)
        self._networks = ThreadPoolExecutor(1)
        self.markdown: set[str] = set()

    # Papers for a place.

    def _ranked(
        self, document: Document, recommender: Recommender, request: Request, other: object, waits: bool
    ) -> Ranked:
        """Rank papers for a request, unless that was done before. If the networks take long, and unless
        `waits`, return the ranking without them; they go on, for the next letter."""
        memory, key = self.memory(document), (request.query, other)
        if memory.ranked[0] != key:
            memory.ranked[1].cancel()
            memory.ranked = key, self._networks.submit(recommender.ranked, request, DEPTH)
        try:
            return memory.ranked[1].result(None if waits else PATIENCE)
        except TimeoutError:
            return recommender.ranked(request, DEPTH, quick=True)

    def _ask(
        self, document: Document, passage: Passage, offset: int, typed: str, k: int, waits: bool = False
    ) -> Sequence[Recommendation]:
        """Return the best papers for the passage at an offset, of those with the typed letters. waits: for
        the networks."""
        outline, recommender = self.outline(document), self.recommender()
        if recommender is None:
            return []
        library, bibliography = recommender.library, self.bibliography(document)
        context = passage.context
        if not re.search(r"\w", context.replace(TARGET_MARKER, "").replace(OTHER_MARKER, "")):
            if not re.search(r"\w", words := f"{outline.title} {typed}"):
                return []
            context = f"{words} {TARGET_MARKER}"
        query = Query(
            context,
            title=outline.title,
            abstract=outline.abstract,
            year=outline.year,
            known=self._ids([key for key, *_ in outline.cited], bibliography),
            passages=self._citing(document, outline, bibliography),
            place=outline.place(offset),
        )
        try:
            request = Request(query, Filters(exclude=self._ids(passage.beside, bibliography)))
            ranked = self._ranked(document, recommender, request, (passage.beside, library.folder), waits)
            if not query_words(typed):
                return ranked.best(k)
            ids = ranked.matching(typed)
            if len(ids) < k:  # all papers
                ids += [paper.id for paper in recommender.search(typed, MATCHES)]
            return ranked.among(ids, k)
        except InputError:  # the passage has no words
            return []

    def _citing(self, document: Document, outline: Outline, bibliography: Bibliography) -> CitingPassages:
        """Return the passages of a document that cite papers of the library."""
        key, memory = (outline.passages, bibliography, self.library), self.memory(document)
        if any(a is not b for a, b in zip(memory.passages[0], key, strict=True)):
            cited = [self._ids(keys, bibliography) for _, keys in outline.passages]
            memory.passages = key, CitingPassages([context for context, _ in outline.passages], cited)
        return memory.passages[1]

    # Completion.

    def complete(self, document: Document, position: types.Position) -> types.CompletionList | None:
        """Return papers for the citation at a caret, ordered by meaning."""
        caret = document.offset(position)
        if document.language is None or (cited := citation_at(document, caret)) is None:
            return None
        place, passage = cited
        typed = document.text[place.start : caret]
        papers = self._ask(document, passage, place.start, typed, COMPLETED)
        bibliography = self.bibliography(document)
        keys = {key.key for key in self.outline(document).cited}
        listed: list[tuple[str, Paper]] = [(bibliography.key_of(paper, keys), paper) for paper in papers]
        items = []
        for rank, (key, paper) in enumerate([*listed, *self._only_in_bib(bibliography, typed)]):
            start, end, new = place.replaced(document.language, document.text, key)
            title, by, year = terminal_text(paper.title), _by(paper), str(paper.year or "")
            sure = paper.probability if isinstance(paper, Recommendation) else None
            if sure is not None:
                by = " · ".join(filter(None, (by, percentage(sure))))
            item = types.CompletionItem(
                label=" · ".join(filter(None, (by, title))) or key,
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
            if start < place.start:
                gone = document.range(start, place.start)
                item.additional_text_edits = [types.TextEdit(gone, "")]
            if isinstance(paper, Recommendation) and key not in bibliography.entries:
                item.command = _add_command(document, paper.id, key)
            items.append(item)
        return types.CompletionList(is_incomplete=True, items=items)

    def _only_in_bib(self, bibliography: Bibliography, typed: str) -> Iterator[tuple[str, LibraryPaper]]:
        """Yield entries with the typed words whose papers the library lacks."""
        words, left = query_words(typed), COMPLETED
        for entry in bibliography.distinct:
            if not left or entry.paper is None or entry.key in bibliography.ids:
                continue
            if count_words(words, entry.paper._replace(abstract="")) == len(words):
                left -= 1
                yield entry.key, entry.paper

    def _describe(self, paper: Paper, use: str) -> types.MarkupContent:
        """Describe a paper, in Markdown if the editor shows it."""
        year = str(paper.year or "")
        lines = [("", " · ".join(filter(None, (", ".join(paper.authors), paper.venue, year))))]
        place = None
        if isinstance(paper, Recommendation):
            evidence = paper.evidence
            if paper.probability is not None:
                lines.append(("", f"{percentage(paper.probability)} likely to be the paper meant"))
            words = f"its title contains {', '.join(evidence.in_title)}" if evidence.in_title else ""
            named = f"{evidence.name} is named here" if evidence.name else words
            lines.append(("", ALREADY_CITED if paper.cited else ""))
            lines.append(("", retraction_note(paper.retracted)))
            lines.append(("Why:", named or evidence.sentence or NO_EVIDENCE))
            if named and evidence.place:
                lines.append(("", f"“{evidence.sentence}”"))
            place = evidence.place
            lines.append(("Others cite it:", evidence.cited_as))
        else:
            lines.append(("", retraction_note(paper.retracted)))
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
        """Return a .bib file and the edit that adds an entry; None if it is there, or cannot be."""
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
        paper = library.by_id(id)
        keys = BibtexText(text).all_keys()
        beside = next((added for added in self.added(file) if added not in keys), "")
        place, entry = new_entry(text, paper, key, self.settings.abstracts, document.language, beside)
        edit = types.TextEdit(target.range(place, place), entry)
        return file, types.WorkspaceEdit(changes={target.uri: [edit]})

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

        passage = passage_at(document, language, start, end, cite(PLACEHOLDER))
        papers = self._ask(document, passage, start, "", OFFERED, waits=True)
        bibliography = self.bibliography(document)
        keys, actions = {key.key for key in self.outline(document).cited}, []
        for paper in papers[:OFFERED]:
            key = bibliography.key_of(paper, keys)
            sure = "" if paper.probability is None else f" ({percentage(paper.probability)})"
            action = types.CodeAction(f"Cite {_by(paper)}: {terminal_text(paper.title)}{sure}", kind)
            new = cite(key)
            if self.settings.pages and self.library is not None and (texts := self.library.full_texts):
                new = pinpointed(new, paper.evidence.place, texts.store)
            edit = types.TextEdit(document.range(start, end), new)
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
        if document.language is None or not (place := key_at(document, document.offset(position))):
            return None
        self.recommender()
        bibliography = self.bibliography(document)
        entry, library = bibliography.entries.get(place.key), self.library
        ids = self._ids([place.key], bibliography)
        paper = entry.paper if entry else None
        if ids and library:
            paper = library.by_id(ids[0])
        if paper is None:
            return None
        return types.Hover(self._describe(paper, "hover"), document.range(place.start, place.end))

    def definition(self, document: Document, position: types.Position) -> types.Location | None:
        """Return the .bib entry of the key at a caret."""
        if document.language is None or not (place := key_at(document, document.offset(position))):
            return None
        entry = self.bibliography(document).entries.get(place.key)
        if entry is None or not entry.text:
            return None
        start = types.Position(entry.line - 1, 0)
        return types.Location(entry.file.as_uri(), types.Range(start, start))

    def diagnose(self, document: Document) -> list[types.Diagnostic]:
        """Return missing citations and bibliographies, and what `citerec check` finds of the cited keys:
        unknown ones, keys of one paper, preprints that are published, papers that were retracted."""
        self.recommender()
        outline, memory = self.outline(document, current=True), self.memory(document)
        bibliography, main, unread = self.bibliography(document), memory.main, memory.unread
        level = types.DiagnosticSeverity
        findings = [
            types.Diagnostic(document.range(*span), "a citation is missing", level.Information, "missing")
            for span in outline.missing
        ]
        findings += [
            types.Diagnostic(document.range(start, end), unread[name], level.Warning, "bibliography")
            for name, start, end in outline.bibs
            if name in unread
        ]
        path = document.path or Path(document.uri)
        cited = [
            check.Citation(key, path, 0, start, end)
            for key, start, end in outline.cited
            if key not in outline.labels and not (main and main.source.is_label(key))
        ]
        entries = bibliography.distinct
        if bibliography.files or entries:
            bibs = bibliography.files
            form = main.source.references.form if main else nfc
            draft = check.CheckedDraft(path, cited, (), ("*",), entries, (), bibs, (), (), form)
            problems = check.find_problems(draft, self.library)
            if self.settings.references:
                problems += check.find_contradictions(draft, self.library)
            for problem in dict.fromkeys(problems):
                severity = level.Information if problem.kind in HINTS else level.Warning
                for place in cited:
                    if problem.key in (place.key, draft.key(place.key)):
                        span, text = document.range(place.start, place.end), f"{place.key} {problem.message}"
                        findings.append(types.Diagnostic(span, text, severity, problem.kind))
        for finding in findings:
            finding.source = "citerec"
        return findings[:MAX_DIAGNOSTICS]


def _by(paper: Paper) -> str:
    return " ".join(filter(None, (short_authors(paper.names or paper.authors), str(paper.year or ""))))


def _add_command(document: Document, id: str, key: str) -> types.Command:
    return types.Command("Add its entry", ADD_ENTRY, arguments=[document.uri, id, key])


def wanted(kind: str, only: Sequence[str] | None) -> bool:
    """True if an editor that wants only these kinds of code actions wants this kind."""
    return not only or any(kind == chosen or kind.startswith(f"{chosen}.") for chosen in only)


def escape_markdown(text: str) -> str:
    r"""Escape a text so that Markdown shows it as it is.

    >>> escape_markdown("<b>A*</b> [x](http://a.b)")
    '\\<b\\>A\\*\\</b\\> \\[x\\](http\\://a.b)'
    """
    return _MARKUP.sub(lambda match: re.sub(r"([^0-9A-Za-z\s])", r"\\\1", match[0]), text)
