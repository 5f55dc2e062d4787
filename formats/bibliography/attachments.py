"""Names of PDFs and XML in entries: the field `file` of BibTeX, tags of RIS, paths of EndNote."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from urllib.parse import unquote

from citerec.base.files import expand_user
from citerec.formats.latex_text import plain_text

SUFFIX, XML = ".pdf", ".xml"
_SEPARATOR = re.compile(r"(?<!\\);")
_PART = re.compile(r"(?<!\\):")
_ESCAPED = re.compile(r"\\([:;\\_&%#$ {}])")
_LATEX = re.compile(r"\{\\[^{}:;]*(?:\{[^{}:;]*\})?\}")
"""A letter as Mendeley writes it."""
_WINDOWS = re.compile(r"[A-Za-z]:[\\/]|\\\\")
_ENDNOTE = "internal-pdf://"
_JABREF = re.compile(r"@comment\s*\{\s*jabref-meta:\s*fileDirectory[^:;{}]*:(.*?);\s*\}", re.I | re.S)


def parse_file_field(value: str) -> list[str]:
    r"""Return the paths of PDFs and XML in a BibTeX entry's `file`, as JabRef, Zotero and Mendeley write it.

    Files are separated by semicolons, each a path, or a description, a path and a type between colons; colons
    and semicolons within them follow a backslash.

    >>> parse_file_field(r"Full Text:files/12/a.pdf:application/pdf;Snapshot:files/13/a.html:text/html")
    ['files/12/a.pdf']
    >>> parse_file_field(r":C\:/papers/b\;c.pdf:PDF"), parse_file_field("/home/me/d.pdf")
    (['C:/papers/b;c.pdf'], ['/home/me/d.pdf'])
    >>> parse_file_field(r":home/me/Dub{\'{e}}{\_}{\&}.pdf:pdf")
    ['home/me/Dubé_&.pdf']
    """
    paths = []
    for part in _SEPARATOR.split(value.replace(r"$\backslash$", "\\")):
        parts = [] if _WINDOWS.match(part.strip()) else _PART.split(part)
        path = parts[1] if len(parts) >= 3 else part
        path = _ESCAPED.sub(r"\1", _LATEX.sub(lambda letter: plain_text(letter[0]), path)).strip()
        if path.lower().endswith((SUFFIX, XML)) and not re.match("(https?|ftp):", path.lower()):
            paths.append(path)
    return paths


def file_folders(bibliography: Path, text: str = "") -> list[Path]:
    """Return the folders to which names in a bibliography are relative: JabRef's, and that of its file."""
    own = bibliography.absolute().parent
    return [*(own / expand_user(folder.strip()) for folder in _JABREF.findall(text)), own]


def resolve_files(names: Iterable[str], folders: Sequence[Path]) -> tuple[str, ...]:
    """Return absolute paths of PDFs: for each name, the first possible path that exists, else the first."""
    possible = ([*_possible(name, folders)] for name in names)
    return tuple(dict.fromkeys(str(next(filter(os.path.exists, paths), paths[0])) for paths in possible))


def _possible(name: str, folders: Sequence[Path]) -> Iterator[Path]:
    if name.startswith(_ENDNOTE):
        inside = unquote(name.removeprefix(_ENDNOTE))
        yield from (data / "PDF" / inside for data in folders[-1].glob("*.Data"))
        yield folders[-1] / inside
        return
    if name.startswith("file:"):
        name = unquote(re.sub("file:(//[^/]*(?=/))?", "", name, count=1))
    if _WINDOWS.match(name) and os.name != "nt":
        name = name.replace("\\", "/")[2:]  # of another machine: at best its end is found here
    path = expand_user(name)
    beside = [folder / path.relative_to(path.anchor) for folder in folders]
    # Mendeley leaves out the first slash.
    yield from (path, *beside) if path.is_absolute() else (*beside, Path("/") / path)
