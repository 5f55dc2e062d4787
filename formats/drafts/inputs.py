"""The files of a document: read as text, found below its folder, and limited in number and size."""

from __future__ import annotations

import codecs
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path

from citerec.base.errors import InputError
from citerec.base.files import read_limited, real_path

MAX_FILE_BYTES = 1 << 26
"""Maximum size of a file; some .bib files cover a whole field."""
MAX_CHARACTERS = 20_000_000
"""Maximum characters of a document with its inputs, before and after the expansion of macros."""
MAX_INPUTS = 1000
MAX_DEPTH = 20
SHOWN = 3
"""Skipped files with one reason that have a note each."""
_PRIVATE = re.compile("[\ue000-\uf8ff]")
_RECORDED: ContextVar[list[Path] | None] = ContextVar("recorded", default=None)


def decode_text(path: Path) -> str:
    """Read a file as UTF-8, or UTF-16 if it begins with a byte order mark. Lines that are no UTF-8 are read
    as Windows-1252, which has the letters of Latin-1, the encoding of many older LaTeX files, and quotes and
    dashes; people and programs join files of both.

    Raises InputError if it cannot be read or is too large.
    """
    content = read_limited(path, MAX_FILE_BYTES)
    if (files := _RECORDED.get()) is not None:
        files.append(path)
    marked = content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    with suppress(UnicodeDecodeError):
        return clean_text(content.decode("utf-16" if marked else "utf-8-sig"))
    lines = content.removeprefix(codecs.BOM_UTF8).split(b"\n")
    return clean_text("\n".join(map(_decode_line, lines)))


def _decode_line(line: bytes) -> str:
    for encoding in ("utf-8", "cp1252"):
        with suppress(UnicodeDecodeError):
            return line.decode(encoding)
    return line.decode("latin-1")


def exact_text(path: Path) -> str:
    """Read a file without changes. Raises InputError if it cannot be read or is not UTF-8 text."""
    content = read_limited(path, MAX_FILE_BYTES)
    if content.startswith(b"%PDF"):
        raise InputError(f"{path}: is a PDF; give its source")
    if b"\0" in content:
        raise InputError(f"{path}: is not text; give a draft in LaTeX, Markdown, Typst or Org, in UTF-8")
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise InputError(
            f"{path}: is not UTF-8 (line {line}); convert it, e.g. with iconv -f LATIN1 -t UTF-8"
        ) from None


@contextmanager
def record_files() -> Iterator[list[Path]]:
    """Yield a list that gets the files that `decode_text` reads inside: inputs, chapters, bibliographies."""
    files: list[Path] = []
    token = _RECORDED.set(files)
    try:
        yield files
    finally:
        _RECORDED.reset(token)


def clean_text(text: str) -> str:
    """Normalise line ends and remove the private characters used as placeholders."""
    return _PRIVATE.sub("", text.replace("\r\n", "\n").replace("\r", "\n").replace("\0", ""))


@dataclass
class Inputs:
    """The files of a document: how they are read, and which were skipped.

    read: returns the text of a file. root: the folder that contains all of them; None means the document's.
    left: the remaining characters and inputs. skipped: inputs that were not read, with the reason.
    """

    read: Callable[[Path], str] = decode_text
    root: Path | None = None
    left: list[int] = field(default_factory=lambda: [MAX_CHARACTERS, MAX_INPUTS])
    skipped: dict[str, str] = field(default_factory=dict)
    files: dict[Path, None] = field(default_factory=dict)

    def open(self, path: Path, parents: Sequence[Path]) -> str:
        """Read a file. Raises InputError if the document becomes too large. parents: what includes it."""
        text = self.read(path)
        self.files[path] = None
        self.left[0] -= len(text)
        self.left[1] -= 1
        if self.left[0] < 0:
            raise InputError(
                f"{path}: the document has more than {MAX_CHARACTERS:,} characters with its inputs"
            )
        if self.left[1] < 0 or len(parents) > MAX_DEPTH:
            raise InputError(
                f"{path}: the document has more than {MAX_INPUTS:,} inputs or more than {MAX_DEPTH} levels"
            )
        return text

    def find(
        self, named: str, candidates: Iterable[Path], parents: Sequence[Path], suffixes: Sequence[str] = ()
    ) -> Path | None:
        """Return the file that is meant, the first candidate that may be read; None, with a note, if there is
        none. named: as the document writes it. suffixes: in lower case; empty for any."""
        root, why = self.folder(parents), "there is no such file"
        for candidate in candidates:
            place = real_path(candidate)
            if not place.is_relative_to(root):
                why = f"it is outside {root}"
            elif place in parents:
                why = "it includes itself"
            elif os.path.isfile(place):
                if not suffixes or place.suffix.lower() in suffixes:
                    return place
                why = f"only {', '.join(suffixes)} files are"
        self.skipped[named] = why
        return None

    def folder(self, parents: Sequence[Path]) -> Path:
        """Return the folder that contains all files. parents: the document first."""
        return real_path(self.root or parents[0].parent)

    @property
    def notes(self) -> list[str]:
        """What was skipped, and why; many files in one line."""
        reasons: dict[str, list[str]] = {}
        for named, why in self.skipped.items():
            reasons.setdefault(why, []).append(named)
        notes: list[str] = []
        for why, names in reasons.items():
            if len(names) <= SHOWN:
                notes += [f"{named} is not followed: {why}" for named in names]
            else:
                some = ", ".join(names[:SHOWN])
                notes.append(f"{len(names):,} files are not followed, since {why}: {some}, ...")
        return notes
