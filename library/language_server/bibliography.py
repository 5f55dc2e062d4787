"""The .bib files of a document, and which of their entries are papers of the library.

Only files below one folder are read: the folder of the workspace that has the document. Links that leave it
are not followed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from citerec.base.errors import InputError
from citerec.datasets.languages.bibliographies import BIB_ENTRY, References
from citerec.datasets.languages.inputs import decode_text
from citerec.datasets.languages.language import Language
from citerec.datasets.languages.markdown import MARKDOWN
from citerec.library.candidates import Candidates
from citerec.library.drafts.copies import clean_key
from citerec.library.explanation import Recommendation
from citerec.library.identities import Identities
from citerec.library.language_server.documents import Document, Outline, outline
from citerec.library.papers import LibraryPaper
from citerec.library.sources.bibtex import parse_bibtex

MAX_ENTRIES = 20_000
"""Entries of a document's .bib files that are parsed; keys of further ones are known."""
MAX_MAIN_FILES, MAX_MAIN_BYTES = 100, 1 << 20
"""Files in which the document that includes a chapter is looked for, and their size."""
PROJECTS = ("_quarto.yml", "_bookdown.yml")
_STRING = re.compile(r"^[ \t]*@\s*string\s*[{(].*$", re.MULTILINE | re.IGNORECASE)
_ROOT = re.compile(r"^%\s*!\s*TEX\s+root\s*=\s*(.+?)\s*$", re.MULTILINE | re.IGNORECASE)
_WHOLE = re.compile(r"\\documentclass\b|\\begin\s*\{document\}")


@dataclass(frozen=True)
class Entry:
    """An entry of a .bib file. line: where it begins. text: its BibTeX."""

    key: str
    file: Path
    line: int
    text: str
    paper: LibraryPaper | None


@dataclass(frozen=True)
class Bibliography:
    """The entries of .bib files, by key; the first of several entries with a key counts.

    ids: ids of the entries' papers in the library, by key. same: keys that name one paper.
    """

    files: tuple[Path, ...]
    entries: dict[str, Entry]
    ids: dict[str, str] = field(default_factory=dict)
    same: tuple[tuple[str, ...], ...] = ()

    @property
    def keys(self) -> dict[str, str]:
        """Keys by the ids of the library's papers."""
        return {id: key for key, id in reversed(self.ids.items())}

    def key_of(self, paper: LibraryPaper | Recommendation, keys: dict[str, str]) -> str:
        """Return the key of a paper of the library: its entry's, else its own, numbered if that is taken."""
        if paper.id in keys:
            return keys[paper.id]
        key = preferred = clean_key(paper.key or paper.id)
        number = 0
        while key in self.entries:
            number += 1
            key = f"{preferred}-{number}"
        return key


def read_entries(file: Path, text: str, known: dict[str, LibraryPaper | None]) -> list[Entry]:
    """Read the entries of a .bib file. known: papers of entries that were parsed before, by their text."""
    strings = "\n".join(_STRING.findall(text))
    starts = list(BIB_ENTRY.finditer(text))
    ends = [*(match.start() for match in starts[1:]), len(text)]
    entries, line, counted = [], 0, 0
    for number, (match, end) in enumerate(zip(starts, ends, strict=False)):
        line += text.count("\n", counted, match.start())
        counted = match.start()
        written = text[match.start() : end].strip()
        if written not in known and number < MAX_ENTRIES:
            known[written] = _parse(written, strings)
        entries.append(Entry(match[2], file, line, written, known.get(written)))
    return entries


def _parse(text: str, strings: str) -> LibraryPaper | None:
    with suppress(InputError):
        return next(parse_bibtex(f"{strings}\n{text}", "entry", lambda _: None), None)
    return None


def match_entries(
    files: Sequence[Path], entries: Iterable[Entry], library: Candidates | None
) -> Bibliography:
    """Match entries with the papers of a library, by identity (library.identities)."""
    by_key: dict[str, Entry] = {}
    for entry in entries:
        by_key.setdefault(entry.key, entry)
    existing = len(library) if library else 0
    identities = Identities(library.identities if library else None)
    parsed = [entry for entry in by_key.values() if entry.paper]
    for entry in parsed:
        assert entry.paper is not None
        identities.add(entry.paper)
    ids, same = {}, dict[int, list[str]]()
    for entry, leader in zip(parsed, identities.leaders()[existing:].tolist(), strict=True):
        same.setdefault(leader, []).append(entry.key)
        if library and leader < existing:
            ids[entry.key] = library.corpus.paper_ids[leader]
    return Bibliography(tuple(files), by_key, ids, tuple(tuple(keys) for keys in same.values() if keys[1:]))


def readable(path: Path, root: Path | None) -> bool:
    """True if a file may be read: it is below the folder, also after links."""
    return root is not None and path.resolve().is_relative_to(root) and path.is_file()


def find_main(document: Document, root: Path | None) -> tuple[Path, str] | None:
    """Return the path and text of the LaTeX document that includes a chapter; None if it is not found."""
    path, text = document.path, document.text
    if root is None or path is None or _WHOLE.search(text):
        return None
    if magic := _ROOT.search(text[:2000]):
        named = [path.parent / f"{magic[1].removesuffix('.tex')}.tex"]
    else:
        folders = [folder for folder in path.parents[:3] if folder.resolve().is_relative_to(root)]
        named = [file for folder in folders for file in sorted(folder.glob("*.tex"))][:MAX_MAIN_FILES]
    includes = re.compile(
        rf"\\(?:input|include|subfile)\s*\{{[^{{}}]*\b{re.escape(path.stem)}(?:\.tex)?\s*\}}"
    )
    for file in named:
        if readable(file, root) and file.stat().st_size <= MAX_MAIN_BYTES and file != path:
            found = decode_text(file)
            if _WHOLE.search(found) and (magic or includes.search(found)):
                return file, found
    return None


def find_bibs(path: Path, language: Language, names: Sequence[str], root: Path) -> list[Path]:
    """Return the .bib files that a document names (Outline.bibs), or its project; in Markdown else the only
    one beside it."""
    found = list(dict.fromkeys(References(path, names, root=root).bibs().values()))
    if found or names or language is not MARKDOWN:
        return found
    for folder in path.parents[:2]:
        for project in (folder / name for name in PROJECTS):
            if readable(project, root):
                named = [folder / name for name in _project_bibs(decode_text(project))]
                found += [file for file in named if readable(file, root)]
    beside = [file for file in path.parent.glob("*.bib") if readable(file, root)]
    return [file.resolve() for file in found or (beside if len(beside) == 1 else ())]


def _project_bibs(text: str) -> list[str]:
    """Return the .bib files that _quarto.yml or _bookdown.yml names."""
    try:
        content = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError):
        return []
    named: list[str] = []
    for fields in (content, content.get("book")) if isinstance(content, dict) else ():
        value = fields.get("bibliography") if isinstance(fields, dict) else None
        named += [value] if isinstance(value, str) else value if isinstance(value, list) else []
    return [name for name in named if isinstance(name, str) and name.endswith(".bib")]


def outline_with_main(document: Document, main: tuple[Path, str] | None) -> Outline:
    """Return the outline of a document; a chapter has title, abstract and .bib files of its main document."""
    assert document.language is not None
    about = outline(document.language, document.text)
    if main is None or about.bibs:
        return about
    whole = outline(document.language, main[1])
    fields = ("title", "abstract", "year", "bibs")
    return Outline(**{**about.__dict__, **{name: getattr(whole, name) for name in fields}})
