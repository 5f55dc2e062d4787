"""The full texts of a library follow it: their PDFs are read after each change, and fill in abstracts."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import msgspec

from citerec.base.files import expand_user
from citerec.formats.bibliography.paper import SHORTEST_ABSTRACT, LibraryPaper
from citerec.library.evidence import FOLDER
from citerec.library.evidence.citations import LINKED, link_texts
from citerec.library.evidence.passages import Passage
from citerec.library.evidence.refresh import TextReport, refresh_texts
from citerec.library.evidence.store import TextStore
from citerec.library.papers.folder import (
    lock_folder,
    now,
    read_manifest,
    write_manifest,
)
from citerec.library.papers.library import CITED, Library
from citerec.library.sources.finding import is_zotero
from citerec.library.sources.zotero_database import read_annotations, zotero_database

FILLED = "abstract:pdf"
"""Mark of an abstract from a PDF."""


def set_full_texts(path: Path, fulltext: bool, pdfs: Sequence[str] = ()) -> None:
    """Set whether a library reads the PDFs of its papers. pdfs: folders with more of them."""
    with lock_folder(path):
        manifest = read_manifest(path)
        folders = list(dict.fromkeys([*manifest.pdfs, *(str(expand_user(name).resolve()) for name in pdfs)]))
        wanted = msgspec.structs.replace(manifest, fulltext=fulltext, pdfs=folders if fulltext else [])
        if wanted != manifest:
            write_manifest(path, wanted)


def update_full_texts(path: Path) -> TextReport | None:
    """Read new PDFs of a library's papers, forget the texts of papers that are gone, and fill in abstracts.

    Returns None for a library without full texts, whose former ones are removed.
    """
    library = Library.open(path)
    if not library.manifest.fulltext:
        shutil.rmtree(path / FOLDER, ignore_errors=True)
        if not library.manifest.lance and len(library.corpus.context_ids):
            with Library.edit(path) as library:
                library.change((), ())  # so that it ranks by none of their sentences
        return None
    report = refresh_texts(
        path,
        library.papers,
        pdfs=library.manifest.pdfs,
        notes=_notes(library.manifest.named),
    )
    with closing(TextStore(path / FOLDER, create=True)) as store:
        report.changed |= link_texts(store, library.papers)
        linked = int(store.get(LINKED)[:15], 16) if store.links() else 0
    report.abstracts, is_new = _change(path, linked)
    if report.changed and not is_new:
        with lock_folder(path):  # so that open libraries read the texts
            write_manifest(path, msgspec.structs.replace(read_manifest(path), changed=now()))
    return report


def _notes(named: Sequence[str]) -> dict[str, list[Passage]]:
    """Return what the user marked and wrote in PDFs of Zotero, by file."""
    notes: dict[str, list[Passage]] = {}
    databases = {zotero_database(name) for name in named if is_zotero(name)}
    for database in filter(None, databases):
        for file, marked in read_annotations(database).items():
            notes[file] = [Passage(note.text, [(0, note.page)], "", note.kind) for note in marked]
    return notes


def _change(path: Path, linked: int) -> tuple[int, bool]:
    """Give papers without an abstract that of their PDF, marked as filled in, and let a library in memory
    rank by the sentences in which its full texts cite its papers. Returns how many abstracts were filled in,
    and whether anything changed. linked: a hash of the links that there are; 0 if there are none."""
    filled: dict[int, LibraryPaper] = {}
    with Library.edit(path) as library, closing(TextStore(path / FOLDER)) as store:
        for id, file in {stored.paper: stored.file for stored in store.papers()}.items():
            if (row := library.row(id)) is None or (paper := library.paper(row)).abstract:
                continue
            read = store.about(file)
            if read is not None and len(read.abstract) >= SHORTEST_ABSTRACT:
                filled[row] = paper._replace(abstract=read.abstract, filled=(*paper.filled, FILLED))
        is_ranked = bool(library.manifest.lance) or library.manifest.counts.get(CITED, 0) == linked
        if filled or not is_ranked:
            library.change([*filled], [filled[row] for row in sorted(filled)], linked)
    return len(filled), bool(filled) or not is_ranked
