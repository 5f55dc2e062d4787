"""Find the files of a collection by name, folder or pattern, and read them by format."""

from __future__ import annotations

import glob
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import IO, Any, NamedTuple

from citerec.base.archives import damage_reported, stream_files
from citerec.base.errors import InputError, UnusableFile, quoted
from citerec.base.files import expand_user, files_below, open_bytes
from citerec.base.progress import OnBytes
from citerec.base.settings import listed
from citerec.datasets.files.source_files import read_records
from citerec.formats.articles.jats import read_jats
from citerec.formats.articles.layouts import read_own, read_record
from citerec.formats.articles.tei import read_tei
from citerec.formats.articles.xml_documents import read_trees
from citerec.formats.documents import Document, Metadata
from citerec.formats.drafts.bibliographies import bib_entries
from citerec.formats.drafts.inputs import decode_text
from citerec.formats.drafts.languages import SUFFIXES, language_of, languages
from citerec.formats.drafts.latex import LATEX, is_archive, read_archive
from citerec.formats.drafts.latex_source import is_paper
from citerec.formats.drafts.markdown import MARKDOWN, merged_names
from citerec.formats.identifiers import arxiv_year
from citerec.formats.json_lines import OnBadRecord, raise_bad, read_objects

IN_FOLDERS = (".jsonl", ".jsonl.gz", ".xml", ".xml.gz", ".nxml", ".tar.gz", *SUFFIXES)
"""Suffixes read when `source` is a folder, in addition to .gz files of a LaTeX document."""
_XML = (".xml", ".nxml")
_BIBLATEX = ".run.xml"
"""Suffix of what BibLaTeX writes for other programs."""
_FIRST_FILES = 1000
"""Number of files of an archive whose names show whether it has LaTeX or XML."""
_NOT_IN_AN_ID = (".gz", ".tgz", ".tar", ".zip", ".xml", ".nxml", ".tei", ".grobid")
_PANDOC = "convert it to Markdown (pandoc --to=markdown)"
_CONVERTED = {".pdf": "convert it to TEI with GROBID or use the LaTeX source"}
_CONVERTED |= dict.fromkeys((".doc", ".rst", ".html", ".epub"), _PANDOC)
"""What to do with files that are not read."""
_PAPERS = ("papers.json", "papers.json.gz")
"""Files of a corpus in the source format (datasets/files/source_files.py)."""


class SourceFile(NamedTuple):
    """A file, and the id of its paper for formats without ids (LaTeX, TEI)."""

    path: Path
    id: str


def find_files(source: str | Sequence[str]) -> list[SourceFile]:
    """Find the files that `source` names, without duplicates; each folder or pattern is sorted.

    Folders are searched recursively for IN_FOLDERS; LaTeX files that are not complete documents are skipped,
    and so are other texts without citations, chapters, files printed from Markdown, and those of BibLaTeX.
    Raises InputError for a name without files.
    """
    names = listed(source, "source")
    if not names or not all(isinstance(name, str) and name for name in names):
        raise InputError("source: name a file or folder")
    chosen: dict[Path, None] = {}
    for name in names:
        path = expand_user(name)
        if advice := _CONVERTED.get(path.suffix.lower()):
            raise InputError(f"source: {name}: {path.suffix.lower()} files are not read; {advice}")
        if path.is_dir():
            files = [file for file in files_below(path) if file.is_file()]
            files = [file for file in files if file.name.lower().endswith(IN_FOLDERS) or is_archive(file)]
            files = [file for file in files if not file.name.endswith(_BIBLATEX)]
            for language in (language for language in languages() if language is not LATEX):
                written = [file for file in files if language_of(file.suffix) is language]
                documents = language.documents(written)
                left_out = {*written} - {*documents}
                if language is MARKDOWN:  # what Pandoc, knitr, Quarto and bookdown print
                    left_out |= {file.with_suffix(".tex") for file in documents}
                    roots = {file.parent for file in documents}
                    books = {(root, name) for root in roots for name in merged_names(root)}
                    printed = (file for file in files if file.suffix in (".tex", ".md"))
                    left_out |= {
                        file for file in printed if any((at, file.stem) in books for at in file.parents)
                    }
                    left_out |= {file.with_suffix(".md") for file in documents if file.suffix != ".md"}
                files = [file for file in files if file not in left_out]
        else:
            files = _named_files(path)
        parts = [file for file in files if language_of(file.suffix) is LATEX and not is_paper(file)]
        files = [file for file in files if file not in parts]
        if not files:
            reason = f"no such file, or a folder without {', '.join(IN_FOLDERS)}"
            if parts:
                reason = f"no \\documentclass in {parts[0].name}, a chapter; give the main file or its folder"
            raise InputError(f"source: {name}: {reason}")
        chosen.update(dict.fromkeys(files))
    if all(file.suffix == ".bib" for file in chosen):
        raise InputError(f"source: {names[0]}: has no running text; add the files that cite it")
    latex_papers = Counter(file.parent for file in chosen if file.suffix == ".tex")
    named = {expand_user(name) for name in names}

    def paper_id(file: Path, folders: int) -> str:
        """The file name without suffixes; the folder name for a book, or for one LaTeX paper, as on arXiv.

        folders: number of parent folders to include.
        """
        alone = latex_papers[file.parent] == 1 if file.suffix == ".tex" else file.stem == "index"
        in_folder = alone and file.parent.name not in ("", "..") and named.isdisjoint((file, file.parent))
        place = file.parent if in_folder else file
        name = place.name
        if language_of(place.suffix):
            name = place.stem
        for suffix in _NOT_IN_AN_ID:
            name = name.removesuffix(suffix)
        above = place.parent.parts[-folders:] if folders else ()
        return "_".join(" ".join((*above, name)).split())

    ids, depths = {file: paper_id(file, 0) for file in chosen}, max(len(file.parts) for file in chosen)
    paths = {file: paper_id(file, depths) for file in chosen}
    for depth in range(1, depths):
        # Files with the same arXiv id or path are one paper; other files with the same name are different.
        counts = Counter(id for id, _ in {(id, paths[file]) for file, id in ids.items()})
        ambiguous = {id for id, files in counts.items() if files > 1 and not arxiv_year(id)}
        ids = {file: paper_id(file, depth) if id in ambiguous else id for file, id in ids.items()}
    return [SourceFile(file, id) for file, id in ids.items()]


def _named_files(path: Path) -> list[Path]:
    """A file, or those that match a pattern, sorted; empty if there is none."""
    files = [path] if path.exists() else sorted(Path(file) for file in glob.glob(str(path), recursive=True))
    return [file for file in files if file.is_file()]


def read_documents(
    file: SourceFile, on_bytes: OnBytes, on_bad: OnBadRecord = raise_bad
) -> Iterator[Document]:
    """Yield the documents of a file in order. on_bad: called with the error of each invalid record."""
    path = file.path
    if not {*_XML}.isdisjoint(path.suffixes[-2:]):
        yield from _xml_documents(file, on_bytes, on_bad)
        return
    if path.suffix in (".zip", ".tar") or (path.name.endswith((".tar.gz", ".tgz")) and has_xml(path)):
        yield from _archived_documents(path, on_bad)
        return
    records: Iterable[tuple[Any, Any]] = [(path, file.id)]
    reader: Any
    if language := language_of(path.suffix):
        reader = language.document
    elif is_archive(path):
        reader = read_archive
    elif path.suffix == ".bib":
        reader = read_bib
    elif path.name in _PAPERS:
        papers = read_records(path, dict, on_bytes, on_bad)
        records = (({**paper, "id": key}, f"{path}, paper {quoted(key)}") for key, paper in papers)
        reader = read_own
    else:
        records = ((record, where) for where, record in read_objects(path, on_bytes, on_bad))
        reader = read_record
    for record in records:
        try:
            document = reader(*record)
        except InputError as error:
            on_bad(error)
        else:
            yield document


def has_xml(archive: Path) -> bool:
    """True if a tar archive holds XML documents rather than the LaTeX of one."""
    try:
        names = [name for name, *_ in islice(stream_files(archive), _FIRST_FILES)]
    except UnusableFile:
        return False  # reading it as LaTeX reports the damage
    return any(map(_is_xml, names)) and not any(name.endswith(".tex") for name in names)


def _is_xml(name: str) -> bool:
    return name.endswith(_XML) and not PurePosixPath(name).name.startswith(".")


def _archived_documents(archive: Path, on_bad: OnBadRecord) -> Iterator[Document]:
    has_documents = False
    try:
        with damage_reported():
            for name, _, open_file in stream_files(archive):
                if _is_xml(name):
                    has_documents = True
                    where = f"{archive}, file {quoted(name)}"
                    with open_file() as content:
                        yield from _read_trees(content, PurePosixPath(name).stem, where, on_bad)
    except UnusableFile as error:
        on_bad(InputError(f"{archive}: {error}"))
    else:
        if not has_documents:
            on_bad(InputError(f"{archive}: the archive has no .xml or .nxml file"))


def _xml_documents(file: SourceFile, on_bytes: OnBytes, on_bad: OnBadRecord) -> Iterator[Document]:
    try:
        with open_bytes(file.path) as (content, raw):
            for document in _read_trees(content, file.id, str(file.path), on_bad):
                yield document
                on_bytes(raw.tell())
    except InputError as error:
        on_bad(error)


def _read_trees(content: IO[bytes], paper: str, where: str, on_bad: OnBadRecord) -> Iterator[Document]:
    """Yield the documents of an XML file; without an id of its own, the second is `paper`-2."""
    try:
        for number, root in enumerate(read_trees(content, where), 1):
            id = paper if number == 1 else f"{paper}-{number}"
            try:
                document = (read_tei if root.tag == "TEI" else read_jats)(root, id, where)
            except InputError as error:
                on_bad(error)
            else:
                yield document
    except InputError as error:
        on_bad(error)


def read_bib(path: Path, id: str) -> Document:
    """Read the entries of a .bib file; these are papers."""
    entries = list(bib_entries(decode_text(path)).values())
    return Document(Metadata(""), entries=lambda: entries)
