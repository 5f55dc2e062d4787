"""The full texts of a library follow it: their PDFs are read after each change, and fill in abstracts."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from citerec.formats.bibliography.paper import SHORTEST_ABSTRACT, LibraryPaper
from citerec.library.evidence import FOLDER
from citerec.library.evidence.citations import LINKED, link_texts
from citerec.library.evidence.passages import Passage
from citerec.library.evidence.refresh import TextReport, refresh_texts
from citerec.library.evidence.store import TextStore
from citerec.library.papers.folder import now
from citerec.library.papers.library import CITED, Library
from citerec.library.sources.finding import absolute_names, is_zotero
from citerec.library.sources.zotero_database import read_annotations, zotero_database

FILLED = "abstract:pdf"
"""Mark of an abstract from a PDF."""


def set_full_texts(path: str | Path, fulltext: bool, pdfs: Sequence[str] = ()) -> None:
    """Set whether a library reads the PDFs of its papers. pdfs: folders with more of them."""
    with Library.edit(path) as library:
        kept = library.manifest
        folders = list(dict.fromkeys([*kept.pdfs, *absolute_names(pdfs)])) if fulltext else []
        if (kept.fulltext, kept.pdfs) != (fulltext, folders):
            library.update_manifest(fulltext=fulltext, pdfs=folders)


def update_full_texts(path: Path) -> TextReport | None:
    """Read new PDFs of a library's papers, forget the texts of papers that are gone, and fill in abstracts.

    Returns None for a library without full texts, whose former ones are removed, and what they filled in.
    """
    library = Library.open(path)
    if not library.manifest.fulltext:
        was_there = os.path.exists(path / FOLDER)
        shutil.rmtree(path / FOLDER, ignore_errors=True)
        if was_there or (not library.manifest.lance and len(library.corpus.context_ids)):
            _change(path, None, 0)
        return None
    notes: dict[str, list[Passage]] = {}
    databases = {zotero_database(name) for name in library.manifest.named if is_zotero(name)}
    for database in filter(None, databases):
        for file, marked in read_annotations(database).items():
            notes[file] = [Passage(note.text, [(0, note.page)], "", note.kind) for note in marked]
    report = refresh_texts(path, library.papers, pdfs=library.manifest.pdfs, notes=notes)
    with closing(TextStore(path / FOLDER, create=True)) as store:
        report.changed |= link_texts(store, library.papers)
        linked = int(store.get(LINKED)[:15], 16) if store.links() else 0
        report.abstracts, is_new = _change(path, store, linked)
    if report.changed and not is_new:
        with Library.edit(path) as library:
            library.update_manifest(changed=now())  # so that open libraries read the texts
    return report


def _change(path: Path, store: TextStore | None, linked: int) -> tuple[int, bool]:
    """Give papers without an abstract of their own that of their PDF, marked as filled in, and let a library
    in memory rank by the sentences in which its full texts cite its papers. Returns how many abstracts were
    filled in, and whether anything changed. linked: a hash of the links that there are; 0 if there are none.
    """
    changed: dict[int, LibraryPaper] = {}
    files = {stored.paper: stored.file for stored in store.papers()} if store else {}
    with Library.edit(path) as library:
        for row, paper in library.storage.papers():
            if paper.abstract and FILLED not in paper.filled:
                continue
            read = store.about(files[paper.id]) if store and paper.id in files else None
            abstract = read.abstract if read and len(read.abstract) >= SHORTEST_ABSTRACT else ""
            if abstract != paper.abstract:
                marks = [mark for mark in paper.filled if mark != FILLED] + [FILLED] * bool(abstract)
                changed[row] = paper._replace(abstract=abstract, filled=tuple(marks))
        is_ranked = library.manifest.lance or (store and library.manifest.counts.get(CITED, 0) == linked)
        if is_new := bool(changed) or not is_ranked:
            library.change([*changed], changed.values(), linked)
    return sum(bool(paper.abstract) for paper in changed.values()), is_new
