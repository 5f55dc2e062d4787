"""The files of a collection: found by name, folder or pattern, and read by kind."""

from __future__ import annotations

import glob
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from datasets.bad_records import refuse
from datasets.errors import InputError
from datasets.fulltext.json_lines import OnRefused, read_json_lines
from datasets.fulltext.latex import read_latex
from datasets.fulltext.latex_source import is_paper
from datasets.fulltext.schema import Record
from datasets.fulltext.tei import read_tei
from datasets.json_stream import OnBytes

IN_FOLDERS = (".jsonl", ".jsonl.gz", ".xml", ".xml.gz", ".tex")
"""How the names of files end that are read of a folder."""


class SourceFile(NamedTuple):
    """A file, and the id of the paper in it where the file does not tell (LaTeX, TEI)."""

    path: Path
    id: str


def find_files(source: str | Sequence[str]) -> list[SourceFile]:
    """The files that `source` names, each once: files, folders and patterns in that order, each sorted.

    Of a folder, and the folders in it, files are taken by their suffix (IN_FOLDERS); LaTeX files that are no
    documents are parts of others. Raises InputError for names without files.
    """
    names = [source] if isinstance(source, str) else list(source)
    found: dict[Path, None] = {}
    for name in names:
        if not isinstance(name, str) or not name:
            raise InputError(f"source: {name!r} is no name of a file or folder")
        path = Path(name).expanduser()
        if path.is_dir():
            files = [file for file in sorted(path.rglob("*")) if file.name.endswith(IN_FOLDERS)]
        elif path.exists():
            files = [path]
        else:
            files = sorted(Path(file) for file in glob.glob(str(path), recursive=True))
        files = [file for file in files if file.is_file() and (file.suffix != ".tex" or is_paper(file))]
        if not files:
            raise InputError(f"source: {name}: no such file, or a folder without {', '.join(IN_FOLDERS)}")
        found.update(dict.fromkeys(files))
    papers_in: dict[Path, int] = {}
    for file in found:
        papers_in[file.parent] = papers_in.get(file.parent, 0) + (file.suffix == ".tex")
    tops = {Path(name).expanduser() for name in names}
    alone = {file for file in found if papers_in[file.parent] == 1 and tops.isdisjoint((file, file.parent))}
    return [SourceFile(file, _id(file, file in alone)) for file in found]


def read(file: SourceFile, on_bytes: OnBytes, on_bad: OnRefused = refuse) -> Iterator[Record]:
    """The records of a file in its order. on_bad: is told of those that cannot be used, file and place."""
    document = read_latex if file.path.suffix == ".tex" else read_tei if _is_xml(file.path) else None
    if document is None:
        yield from read_json_lines(file.path, on_bytes, on_bad)
        return
    try:
        record = document(file.path, file.id)
    except InputError as error:
        on_bad(error)
    else:
        yield record


def _is_xml(path: Path) -> bool:
    return ".xml" in path.suffixes[-2:]


def _id(file: Path, alone: bool) -> str:
    """The file's name up to the suffix; the folder's where a LaTeX paper is alone in it, as on arXiv."""
    name = file.parent.name if file.suffix == ".tex" and alone else file.name
    for suffix in (".gz", ".xml", ".tei", ".grobid", ".tex"):
        name = name.removesuffix(suffix)
    return "_".join(name.split())
