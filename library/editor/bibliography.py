"""The .bib files of a document, and which of their entries are papers of the library.

Only files below one folder are read: the folder of the workspace that has the document. Links that leave it
are not followed.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Container, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import islice
from pathlib import Path

from citerec.base.errors import InputError
from citerec.base.files import real_path
from citerec.formats.bibliography.entries import BibtexText
from citerec.formats.bibliography.paper import LibraryPaper, make_paper
from citerec.formats.bibliography.reading.bibtex import parse_bibtex
from citerec.formats.documents import Reference
from citerec.formats.drafts.bibliographies import References
from citerec.formats.drafts.inputs import Inputs, decode_text
from citerec.formats.drafts.language import Language, Source
from citerec.formats.drafts.languages import language_of
from citerec.formats.drafts.latex import LATEX
from citerec.library.ask.recommendation import Recommendation
from citerec.library.drafts.check import Entry
from citerec.library.drafts.copies import numbered_keys
from citerec.library.editor.documents import Document, Outline, outline
from citerec.library.papers.library import Library
from citerec.library.papers.merging import leaders_of

MAX_ENTRIES = 20_000
"""Entries of a document's .bib files that are parsed; keys of further ones are known."""
MAX_MAIN_FILES, MAX_MAIN_BYTES, MAX_LEVELS = 100, 1 << 20, 5
"""Files in which the document that includes a chapter is looked for, their size, and levels of chapters."""
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
        entries: dict[str, Entry] = {}
        for key, entry in self.entries.items():
            first = entries.setdefault(entry.text or key, entry)
            if first is not entry:  # aliases have one text
                entries[entry.text] = first._replace(aliases=(*first.aliases, key))
        return [*entries.values()]

    @cached_property
    def keys(self) -> dict[str, list[str]]:
        """Keys by the ids of the library's papers."""
        keys: dict[str, list[str]] = {}
        for key, id in self.ids.items():
            keys.setdefault(id, []).append(key)
        return keys

    def key_of(self, paper: LibraryPaper | Recommendation, cited: Container[str]) -> str:
        """Return the key of a paper of the library: of its entries the first, rather one that is cited or the
        paper's own; else the paper's, numbered if that is taken."""
        if keys := self.keys.get(paper.id):
            return min(keys, key=lambda key: (key not in cited, key != paper.key))
        return next(key for key in numbered_keys(paper) if key not in self.entries)


def read_entries(file: Path, text: str, parsed: dict[str, LibraryPaper | None]) -> list[Entry]:
    """Read the entries of a .bib file. parsed: papers of entries that were parsed before, by their text."""
    bibliography, entries = BibtexText(text), list[Entry]()
    for number, entry in enumerate(bibliography.entries):
        written = bibliography.source(entry).strip()
        if written not in parsed and number < MAX_ENTRIES:
            parsed[written] = _parse(written, bibliography.abbreviations)
        paper = parsed.get(written)
        entries += [Entry(key, file, entry.line, paper, text=written) for key in bibliography.keys(entry)]
    return entries


def other_entries(main: Main) -> list[Entry]:
    """Return the entries of a document that are in no .bib file."""
    entries = []
    for key, work in main.others.items():
        paper = make_paper(key=key, title=work.title or work.text, authors=work.authors, year=work.year)
        entries.append(Entry(key, main.path, 0, paper))
    return entries


def _parse(text: str, strings: str) -> LibraryPaper | None:
    with suppress(InputError):
        return next(parse_bibtex(f"{strings}\n{text}", "entry", lambda _: None), None)
    return None


def match_entries(
    files: Sequence[Path], target: Path | None, entries: Iterable[Entry], library: Library | None
) -> Bibliography:
    """Match entries with the papers of a library, by identity (formats.same_work)."""
    by_key: dict[str, Entry] = {}
    for entry in entries:
        by_key.setdefault(entry.key, entry)
    parsed = {entry.key: entry.paper for entry in by_key.values() if entry.paper}
    papers = library.related(parsed.values()) if library else None
    leaders = leaders_of(parsed.values(), papers.identities if papers else None)
    ids = {
        key: papers.corpus.paper_ids[leader]
        for key, leader in zip(parsed, leaders, strict=True)
        if papers and leader < len(papers)
    }
    return Bibliography(tuple(files), target, by_key, ids)


@dataclass(frozen=True)
class Main:
    """The document that includes another, or itself, as in its files. others: entries in no .bib file."""

    path: Path
    source: Source
    others: dict[str, Reference]


def read_main(document: Document, root: Path | None, read: Callable[[Path], str]) -> Main | None:
    """Read the document that includes another, or itself. read: returns the text of a file. Raises InputError
    or OSError."""
    path, text, language = document.path, document.text, document.language
    if root is None or path is None or language is None or not real_path(path).is_relative_to(root):
        return None
    chain: list[Path] = [path]
    while len(chain) < MAX_LEVELS and (above := _including(chain[-1], text, language, root)):
        chain.append(above)
        text = read(above)
    source = language.read(chain[-1], Inputs(read, root))
    return Main(chain[-1], source, source.references.entries(source.references.other_keys()))


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
    document: Document, main: Main | None, names: Sequence[str], root: Path
) -> tuple[list[Path], bool]:
    """Return the .bib files of a document, and if it names them or they are beside it. names: in its text."""
    path = main.path if main else document.path
    assert path is not None
    named = dict.fromkeys((*names, *(main.source.references.names if main else ())))
    references = References(path, [*named], root, own=main.others if main else {})
    bibs = references.bibs()
    return list(dict.fromkeys(bibs.values())), not named.keys().isdisjoint(bibs)


def outline_with_main(document: Document, main: Main | None) -> Outline:
    """Return the outline of a document; a chapter has title and abstract of its main document."""
    assert document.language is not None
    own = outline(document.language, document.text)
    if main is None or main.path == document.path:
        return own
    whole = main.source.metadata
    return replace(own, title=whole.title, abstract=whole.abstract, year=whole.year or own.year)
