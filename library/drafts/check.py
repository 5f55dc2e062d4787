"""`citerec check`: keys and entries of a draft that are wrong, doubled or outdated."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from citerec.base.errors import InputError, count_noun
from citerec.base.files import expand_user, real_path
from citerec.formats.bibliography.attachments import file_folders
from citerec.formats.bibliography.entries import BibtexText
from citerec.formats.bibliography.paper import (
    PREPRINT_VENUE,
    LibraryPaper,
    is_preprint,
    is_published,
    retraction_note,
    terminal_text,
)
from citerec.formats.bibliography.reading.bibtex import parse_bibtex
from citerec.formats.bibliography.reading.recognise import recognise
from citerec.formats.drafts.inputs import decode_text
from citerec.formats.drafts.language import MISSING, Source
from citerec.formats.drafts.languages import draft_language
from citerec.formats.json_lines import OnBadRecord
from citerec.formats.letters import nfc
from citerec.formats.same_work import first_records, identity
from citerec.library.drafts.reader import PlaceholderReader, read_source
from citerec.library.evidence import DATABASE, FOLDER
from citerec.library.evidence.quotations import locator, quotation
from citerec.library.settings import CheckSettings

if TYPE_CHECKING:
    from citerec.library.papers.library import Library

SHOWN = 10
"""Maximum uncited entries of a file to list, except as JSON."""
AROUND = 600
"""Characters on each side of a citation in which something is quoted."""
SAME_LETTERS = "but has accents of another form (Unicode NFC or NFD), which biber alone takes as one; copy it"
_CITES = re.compile(r"\\\w*cite|@\w|#cite|\[cite")
_MACRO = re.compile(r"[\\#]")
_ARTICLE = re.compile(r"\s*@\s*(?:article|inproceedings|conference)\b", re.IGNORECASE)
_PARENT = re.compile(r"\b(?:crossref|xref|xdata|entryset|related)\s*=\s*[{\"]([^{}\"]*)", re.IGNORECASE)


class Citation(NamedTuple):
    """A citation of a key: text[start:end] of a file is the command. If it cites one key only, pages: those
    that it names, and quoted: what is quoted beside it."""

    key: str
    file: Path
    line: int
    start: int
    end: int
    pages: tuple[int, int] | None = None
    quoted: str = ""


class Entry(NamedTuple):
    """An entry of a bibliography; no paper if it cannot be read. line: 0 if unknown. aliases: its other keys.
    text: its BibTeX."""

    key: str
    file: Path
    line: int
    paper: LibraryPaper | None
    aliases: Sequence[str] = ()
    text: str = ""

    @property
    def shown(self) -> str:
        """Its key, or if its file has none, its title in quotation marks."""
        title = self.paper.title if self.paper and self.key == self.paper.id else ""
        return f"“{title}”" if title else self.key

    @property
    def place(self) -> str:
        return f"{self.file.name}:{self.line}" if self.line else self.file.name


@dataclass(frozen=True)
class CheckedDraft:
    """What a draft cites, and its bibliography.

    citations: in order. listed: those of \\nocite and the like. uncited: keys used otherwise, or * for all.
    printed: keys that are defined elsewhere than in the .bib files `bibs`. others: other files with entries.
    notes: what was skipped, and why. form: see `References`.
    """

    path: Path
    citations: Sequence[Citation]
    listed: Sequence[Citation]
    uncited: Collection[str]
    entries: Sequence[Entry]
    printed: Collection[str]
    bibs: Sequence[Path]
    others: Sequence[Path]
    notes: Sequence[str]
    form: Callable[[str], str] = nfc

    @cached_property
    def by_key(self) -> dict[str, Entry]:
        """The entries by their keys; the first of several counts."""
        entries: dict[str, Entry] = {}
        for entry in self.entries:
            entries.setdefault(entry.key, entry)
        return entries

    @cached_property
    def _aliases(self) -> dict[str, str]:
        counts = Counter(map(self.form, self.by_key))
        written = {self.form(key): key for key in self.by_key if counts[self.form(key)] == 1}
        return written | {alias: entry.key for entry in self.entries for alias in entry.aliases}

    def key(self, cited: str) -> str:
        """Return the key of the entry that is cited, perhaps by an alias or in another form."""
        named = self._aliases
        return cited if cited in self.by_key else named.get(cited) or named.get(self.form(cited), cited)

    @cached_property
    def cited(self) -> dict[str, Citation]:
        """The first citation of each key."""
        cited: dict[str, Citation] = {}
        for citation in self.citations:
            cited.setdefault(self.key(citation.key), citation)
        return cited

    @property
    def used(self) -> list[str]:
        """The keys of the entries that are cited, in their order."""
        return [key for key in self.by_key if key in self.cited]


class Finding(NamedTuple):
    """A problem of a key, at a line of a file. kind: unknown, duplicate, preprint, retracted, reference,
    page, quotation or uncited."""

    kind: str
    key: str
    file: Path
    line: int
    message: str


def _at(place: Entry | Citation, kind: str, message: str) -> Finding:
    return Finding(kind, place.key, place.file, place.line, message)


def check(settings: CheckSettings) -> None:
    """Print what is wrong with the citations of a draft; exit with 1 if `strict` and one is more
    than an entry that is never cited."""
    draft = read_checked(expand_user(settings.tex), *settings.draft_files)
    library = None
    if settings.library:
        from citerec.library.ask.recommender import open_library  # NumPy and Arrow, which drafts do not need

        library = open_library(settings.library)
    if library is None and not draft.bibs and not draft.printed:
        raise InputError(
            f"{settings.tex}: names no .bib file that is in its folder, and none is beside it; give bib=FILE,"
            " library=DIR or root="
        )
    findings = find_problems(draft, library)
    if settings.references:
        findings += find_contradictions(draft, library)
    if settings.format == "json":
        listed = [finding._asdict() | {"file": str(finding.file)} for finding in findings]
        content = {"draft": str(draft.path), "findings": listed, "notes": list(draft.notes)}
        print(json.dumps(content, ensure_ascii=False, indent=1))
    else:
        _report(draft, findings)
    if settings.strict and any(finding.kind != "uncited" for finding in findings):
        raise SystemExit(1)


def read_checked(path: Path, root: Path | None = None, bibs: Sequence[Path] = ()) -> CheckedDraft:
    """Read the citations of a draft and its inputs, and its bibliography. See `read_source`."""
    path = real_path(path)
    source, reader = read_source(path, root, bibs, masked=True)
    citations, listed = [*_citations(source, reader, path)], [*_listed(reader)]
    references = source.references
    read, others = list(dict.fromkeys(references.bibs().values())), references.other_files()
    printed = references.other_keys()
    entries = [entry for file in (*read, *others) for entry in read_entries(file)]
    if reader.language.holds_items:
        entries += _held_entries(path, citations)
    empty = [file for file in read if file not in {entry.file for entry in entries}]
    notes = [*source.notes, *(f"{file.name} has no entries" for file in empty)]
    uncited, form = source.uncited, references.form
    return CheckedDraft(path, citations, listed, uncited, entries, printed, read, others, notes, form)


def _citations(source: Source, reader: PlaceholderReader, path: Path) -> Iterator[Citation]:
    """Yield the keys that a draft cites in its text, then those in macros of its own."""
    keys = set(source.keys)
    for mark, (file, start, end) in reader.spans.items():
        if mark in keys:  # not in a comment or in code
            text = reader.texts[file]
            line, cited = text.count("\n", 0, start) + 1, [*dict.fromkeys(reader.replaced[mark])]
            beside: tuple[tuple[int, int] | None, str] = (None, "")
            if len(cited) == 1:
                before, after = text[max(start - AROUND, 0) : start], text[end : end + AROUND]
                pages = locator(text[start:end] + (after[:20] if after.lstrip().startswith("[") else ""))
                beside = pages, quotation(before, after, _CITES)
            for key in cited:
                if not _MACRO.search(key) and not source.is_label(key):
                    yield Citation(key, file, line, start, end, *beside)
    visible = dict[Path, str]()
    for key in source.keys:
        if key not in reader.spans and not MISSING.fullmatch(key) and not _MACRO.search(key):
            visible = visible or {file: reader.language.visible(text) for file, text in reader.texts.items()}
            word = re.compile(rf"(?<![\w:.-]){re.escape(key)}(?![\w:-])")
            places = ((file, word.search(text)) for file, text in visible.items())
            file, match = next((place for place in places if place[1]), (path, None))
            start, end = match.span() if match else (0, 0)
            yield Citation(key, file, reader.texts.get(file, "").count("\n", 0, start) + 1, start, end)


def _listed(reader: PlaceholderReader) -> Iterator[Citation]:
    for file, text in reader.texts.items():
        citations = reader.language.citations(reader.language.visible(text))
        silent = (key for citation in citations if not citation.printed for key in citation.keys)
        for key, start, end in silent:
            if key != "*" and not MISSING.fullmatch(key) and not _MACRO.search(key):
                yield Citation(key, file, text.count("\n", 0, start) + 1, start, end)


def read_entries(file: Path, on_bad: OnBadRecord = lambda _: None) -> Iterator[Entry]:
    """Yield the entries of a bibliography, in order: of a .bib file those with a key. on_bad: for records of
    other files."""
    if file.suffix.lower() != ".bib" and recognise(file) != "bibtex":
        from citerec.library.sources.readers import read_source

        for paper in read_source(file, on_bad):
            yield Entry(paper.key or paper.id, file, 0, paper, (paper.id, *paper.aliases))
        return
    text = decode_text(file)
    bibliography = BibtexText(text)
    papers: dict[str, LibraryPaper] = {}
    if bibliography.entries:
        for paper in parse_bibtex(text, str(file), lambda _: None, file_folders(file, text)):
            papers.setdefault(paper.key, paper)
    for entry in bibliography.entries:
        if entry.key:
            aliases = bibliography.keys(entry)[1:]
            yield Entry(entry.key, file, entry.line, papers.get(entry.key), aliases)


def _held_entries(path: Path, citations: Iterable[Citation]) -> Iterator[Entry]:
    """Yield what the fields of a word processor's document cite, where it is cited first."""
    from citerec.formats.bibliography.reading.csl import parse_csl
    from citerec.formats.bibliography.reading.records import Fields
    from citerec.formats.drafts.office.language import Office

    lines = {citation.key: citation.line for citation in reversed([*citations])}
    language = draft_language(path)
    assert isinstance(language, Office)
    for key, item in language.open(path).items.items():
        with suppress(InputError):  # an item without any field that can be compared
            record = {**item["itemData"], "id": key, "citation-key": key}
            yield Entry(key, path, lines.get(key, 0), parse_csl(Fields(record, path.name)))


def find_problems(draft: CheckedDraft, library: Library | None = None) -> list[Finding]:
    """Return the problems of a draft: unknown keys, papers under two keys, preprints that are published,
    papers that were retracted, and entries that are never cited."""
    findings = [
        _at(entry, "duplicate", f"is defined twice; the first is in {first.place}")
        for entry in draft.entries
        if entry is not (first := draft.by_key[entry.key])
    ]
    if draft.bibs or draft.printed or library is not None:
        findings = [*_unknown_keys(draft, library), *findings]
    findings += (doubles := [*find_doubles(draft)])
    told = {finding.key for finding in doubles if finding.kind == "preprint"}
    papers = {} if library is None else _library_papers(draft, library)
    findings += _published_in_library([draft.by_key[key] for key in draft.used if key not in told], papers)
    findings += _retracted(draft, papers)
    if library is not None and (library.path / FOLDER / DATABASE).is_file():
        findings += _in_texts(draft, papers, library.path / FOLDER)
    if "*" not in draft.uncited:
        used = {*draft.cited, *map(draft.key, draft.uncited)}
        for file in draft.bibs:
            used |= {key.strip() for keys in _PARENT.findall(decode_text(file)) for key in keys.split(",")}
        unused = (entry for key, entry in draft.by_key.items() if key not in used)
        findings += [_at(entry, "uncited", "is never cited") for entry in unused]
    return findings


def _unknown_keys(draft: CheckedDraft, library: Library | None) -> Iterator[Finding]:
    where = " or ".join(file.name for file in (*draft.bibs, *draft.others)) or "its bibliography"
    for citation in (*draft.citations, *draft.listed):
        known = draft.key(citation.key)
        if known in draft.by_key or citation.key in draft.printed:
            if known != citation.key and nfc(known) == nfc(citation.key):
                yield _at(citation, "unknown", f"looks like the key in {where}, {SAME_LETTERS}")
            continue
        row = library.row(citation.key) if library is not None else None
        if row is not None and library is not None:
            if draft.bibs:
                message = f"is not in {where}, but in the library: {library.paper(row).title}"
                yield _at(citation, "unknown", message)
            continue
        close = get_close_matches(citation.key, draft.by_key, 1, 0.8)
        hint = f"; did you mean {close[0]}?" if close else ""
        place = f"{where} and the library" if library is not None else where
        yield _at(citation, "unknown", f"is unknown in {place}{hint}")


def find_contradictions(draft: CheckedDraft, library: Library | None = None) -> list[Finding]:
    """Return the cited entries that contradict themselves, their PDFs or the records of a library."""
    from citerec.library.references.answers import judge_by_library

    papers = [paper for key in draft.used if (paper := draft.by_key[key].paper)]
    answers = judge_by_library(papers, library)
    return [_at(draft.by_key[answer.key], "reference", answer.said) for answer in answers if answer.findings]


def find_doubles(draft: CheckedDraft) -> Iterator[Finding]:
    """Yield the keys that mean the paper of an earlier key (formats.same_work), or have its identifier."""
    read = [(entry, entry.paper) for entry in draft.by_key.values() if entry.paper]
    groups: dict[int, list[tuple[Entry, LibraryPaper]]] = {}
    leaders = first_records(identity(paper) for _, paper in read)
    for leader, entry_and_paper in zip(leaders, read, strict=True):
        groups.setdefault(leader, []).append(entry_and_paper)
    for group in groups.values():
        published = next((entry for entry, paper in group if is_published(paper)), None)
        others = []
        for entry, paper in group:
            if published is None or not is_preprint(paper):
                others.append((entry, paper))
            elif entry.key in draft.cited:
                message = f"is a preprint; {_place(published)} is published"
                yield _at(entry, "preprint", message)
        for entry, _ in others[1:]:
            first = others[0][0]
            both = "; both are cited" if {entry.key, first.key} <= draft.cited.keys() else ""
            message = f"is the same paper as {_place(first)}{both}"
            yield _at(entry, "duplicate", message)
    yield from _wrong_ids([group[0] for group in groups.values()])


def _wrong_ids(read: Iterable[tuple[Entry, LibraryPaper]]) -> Iterator[Finding]:
    """Yield the articles with the DOI or arXiv id of another one; chapters have their book's."""
    first_with: dict[str, Entry] = {}
    for entry, paper in read:
        if not _ARTICLE.match(paper.bibtex):
            continue
        for kind, id in (("DOI", paper.doi), ("arXiv id", paper.arxiv)):
            if id and (first := first_with.setdefault(f"{kind} {id}", entry)) is not entry:
                message = f"has the {kind} of {_place(first)}, but another title; one of them is wrong"
                yield _at(entry, "duplicate", message)
                break


def _place(entry: Entry) -> str:
    return f"{entry.shown} ({entry.place})"


def _published_in_library(entries: Iterable[Entry], papers: Mapping[str, LibraryPaper]) -> Iterator[Finding]:
    """Yield the preprints of which the library has the published version."""
    for entry in entries:
        paper = papers.get(entry.key)
        if paper and is_published(paper) and entry.paper and is_preprint(entry.paper):
            venue = "" if PREPRINT_VENUE.search(paper.venue) else paper.venue
            details = [venue, str(paper.year or ""), paper.doi and f"doi:{paper.doi}"]
            message = f"is a preprint; published: {', '.join(filter(None, details))}"
            yield _at(entry, "preprint", message)


def in_library(entries: Iterable[Entry], library: Library) -> Iterator[tuple[Entry, LibraryPaper]]:
    """Yield the entries that a library has, each with its paper there."""
    from citerec.library.papers.merging import find_leaders, identities_of

    read = [(entry, entry.paper) for entry in entries if entry.paper]
    papers = library.related(paper for _, paper in read)
    leaders = find_leaders(papers.identities, identities_of(paper for _, paper in read))
    rows = leaders[len(papers) :].tolist()
    for row, (entry, _) in zip(rows, read, strict=True):
        if row < len(papers):
            yield entry, papers.paper(row)


def _library_papers(draft: CheckedDraft, library: Library) -> dict[str, LibraryPaper]:
    """Return the papers of a library that are cited, by their entries, or without one by its own keys."""
    papers = in_library([draft.by_key[key] for key in draft.cited if key in draft.by_key], library)
    rows = {key: library.row(key) for key in draft.cited if key not in draft.by_key}
    own = {key: library.paper(row) for key, row in rows.items() if row is not None}
    return own | {entry.key: paper for entry, paper in papers}


def _in_texts(draft: CheckedDraft, papers: Mapping[str, LibraryPaper], folder: Path) -> Iterator[Finding]:
    """Yield the citations whose page or quotation is not in the paper's PDF. folder: of the full texts."""
    from citerec.library.evidence.quotations import PaperText  # drafts without a library need neither
    from citerec.library.evidence.store import TextStore

    told = [(draft.key(citation.key), citation) for citation in draft.citations]
    told = [(key, citation) for key, citation in told if citation.pages or citation.quoted]
    with closing(TextStore(folder)) as store:
        texts = {key: PaperText.open(store, papers[key]) for key in {key for key, _ in told} & papers.keys()}
    for key, citation in told:
        if (text := texts.get(key)) is not None:
            for problem in text.problems(citation.pages, citation.quoted):
                yield _at(citation, "page" if problem.startswith("page") else "quotation", problem)


def _retracted(draft: CheckedDraft, papers: Mapping[str, LibraryPaper]) -> Iterator[Finding]:
    """Yield the cited papers that were retracted, according to their entry or the library."""
    for key, citation in draft.cited.items():
        entry = draft.by_key.get(key)
        records = filter(None, (entry.paper if entry else None, papers.get(key)))
        if note := retraction_note(next(filter(None, (record.retracted for record in records)), "")):
            yield _at(entry or citation, "retracted", f"was {note}")._replace(key=key)


def _report(draft: CheckedDraft, findings: Sequence[Finding]) -> None:
    folder, uncited = draft.path.parent, dict[Path, int]()
    keys = {citation.key for citation in draft.citations}
    for finding in findings:
        if finding.kind == "uncited":
            uncited[finding.file] = uncited.get(finding.file, 0) + 1
            if uncited[finding.file] > SHOWN:
                continue
        file = finding.file.relative_to(folder) if finding.file.is_relative_to(folder) else finding.file
        place = f"{file}:{finding.line}" if finding.line else file
        print(f"{place}: {terminal_text(f'{finding.key} {finding.message}')}")
    for bib, count in uncited.items():
        if count > SHOWN:
            print(f"{bib.name}: {count - SHOWN:,} more are never cited (format=json lists all)")
    for note in draft.notes:
        print(f"note: {terminal_text(note)}")
    problems = count_noun(len(findings), "finding")
    print(f"{draft.path.name}: cites {count_noun(len(keys), 'key')}; {problems}")
