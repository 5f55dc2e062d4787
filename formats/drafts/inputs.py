"""The files of a document: read as text, found below its folder, and limited in number and size."""

from __future__ import annotations

import codecs
import os
import re
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
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
"""Maximum skipped files with the same reason that have a note each; more share one."""
_PRIVATE = re.compile("[\ue000-\uf8ff]")


def decode_text(path: Path) -> str:
    """Read a file (`decode`). Raises InputError if it cannot be read or is too large."""
    return decode(read_limited(path, MAX_FILE_BYTES))


def decode(content: bytes) -> str:
    """Read a text as UTF-8, or UTF-16 if it begins with a byte order mark. Lines that are not UTF-8 are read
    in the encoding that the text names or that their letters suggest (`encoding_of`), since people and
    programs join files of both."""
    with suppress(UnicodeDecodeError):
        return clean_text(content.decode("utf-16" if content.startswith((*_UTF_16,)) else "utf-8-sig"))
    lines = content.removeprefix(codecs.BOM_UTF8).split(b"\n")
    name = encoding_of(b"\n".join(line for line in lines if not _is_utf8(line)), content)
    texts = (line.decode() if _is_utf8(line) else line.decode(name, "replace") for line in lines)
    return clean_text("\n".join(texts))


_UTF_16 = {codecs.BOM_UTF16_LE: "utf-16-le", codecs.BOM_UTF16_BE: "utf-16-be"}


def _is_utf8(line: bytes) -> bool:
    with suppress(UnicodeDecodeError):
        return line.decode() is not None
    return False


_DECLARED = re.compile(
    rb"\\usepackage\s*\[([\w-]+)\]\s*\{inputenc\}|^%+\s*(?:encoding|-\*-.*?coding)\s*[:=]\s*([\w-]+)"
    rb"|^%\s*!TEX\s+encoding\s*=\s*([\w-]+)",
    re.IGNORECASE | re.MULTILINE,
)
"""Where LaTeX, JabRef and editors name the encoding of a file."""
_NAMES = {
    **{"ansinew": "cp1252", "applemac": "mac-roman", "macce": "mac-latin2", "latin9": "iso-8859-15"},
    **{"latin10": "iso-8859-16", "koi8-ru": "koi8-u", "isolatin": "latin1", "isolatin2": "latin2"},
}
_SIMPLE = ("cp1252", "iso8859-2", "cp1250", "cp1251", "koi8-r", "iso8859-7")
"""Encodings with one byte for each letter, the likelier first."""
_ODD = re.compile(
    r"(?<=[^\W\d_])[\xa1-\xa9\xac-\xb6\xb8\xb9\xbc-\xbf\xd7\xf7]|[\x80-\x9f\ufffd]|[\xa2-\xa9\xac-\xb6\xb8\xb9\xbc-\xbe](?=[^\W\d_])"
    r"|[\u2000-\u2bff](?=[^\W\d_])(?<=[^\W\d_].)(?<![-\u2010-\u2019])|[^\W\d_a-zA-Z]{4}(?<![\u0370-\u04ff]{4})"
    r"|[\xc0-\u024fa-zA-Z][\u0400-\u04ff]|[\u0400-\u04ff][a-zA-Z]|(?<=[\u0430-\u044f])[\u0410-\u042f]"
    r"|[бвгджзклмнпрстфхцчшщ]{5}|\xec(?=[a-z])|\xf5(?![e\s])|\xf8[\xe1\xed\xfd]|\u0178|\xc8(?=[a-z]{2})"
)
"""What words do not have: signs between letters, many accents in a row, two scripts, capitals within."""


def encoding_of(content: bytes, whole: bytes = b"") -> str:
    """Return the name of the encoding of a text that is not UTF-8: UTF-16 by its byte order mark; else what
    `whole`, or else the content, names; else Chinese (GB 18030) or Korean (EUC-KR) if its bytes come in such
    pairs; else the first of those in `_SIMPLE` that make the fewest odd words.

    >>> encoding_of("Štěpán Dvořák".encode("latin2")), encoding_of("naïve".encode("latin1"))
    ('iso8859-2', 'cp1252')
    >>> encoding_of("在线教学".encode("gbk")), encoding_of("материал".encode("cp1251"))
    ('gb18030', 'cp1251')
    """
    if name := _UTF_16.get(content[:2]):
        return name
    if declared := _DECLARED.search(whole or content):
        written = next(filter(None, declared.groups())).decode().lower()
        with suppress(LookupError, UnicodeDecodeError):
            name = codecs.lookup(_NAMES.get(written, written)).name
            if name not in ("utf-8", "ascii"):
                content.decode(name)
                return name
    pairs = re.findall(rb"[\x81-\xfe][\x40-\xfe]", content)
    double = [pair for pair in pairs if pair[1] >= 0xA1]
    common = [pair for pair in double if 0xB0 <= pair[0] <= 0xD7 or pair[0] in (0xA1, 0xA3)]
    if len(common) > 0.8 * len(pairs) and any(pair[0] not in (0xA1, 0xA3) for pair in common):
        korean = len(common) > 9 and all(pair[0] <= 0xC8 for pair in common)
        with suppress(UnicodeDecodeError):
            content.decode(name := "euc-kr" if korean else "gb18030")
            return name
    texts = {name: content.decode(name, "replace") for name in _SIMPLE}
    name = min(texts, key=lambda name: len(_ODD.findall(texts[name])))
    return "latin-1" if name == "cp1252" and "\ufffd" in texts[name] else name


def exact_text(path: Path) -> str:
    """Read a file without changes. Raises InputError if it cannot be read, is no text, or has an encoding
    other than UTF-8 in which it could not be written again."""
    content = read_limited(path, MAX_FILE_BYTES)
    if content.startswith(b"%PDF"):
        raise InputError(f"{path}: is a PDF; give its source")
    if b"\0" in content and content[:2] not in _UTF_16:
        raise InputError(f"{path}: is not text; give a draft in LaTeX, Markdown, Typst or Org, in UTF-8")
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        name, line = encoding_of(content), content.count(b"\n", 0, error.start) + 1
        lines = [] if content[:2] in _UTF_16 else content.split(b"\n")
        mixed = any(_is_utf8(line) and not line.isascii() for line in lines)
        text = content.decode(name, "replace")
        if mixed or text.encode(name, "replace") != content:
            raise InputError(
                f"{path}: is not UTF-8 (line {line}); convert it, e.g. with iconv -f {name.upper()} -t UTF-8"
            ) from None
        return text


def encoded_like(path: Path | None, text: str) -> bytes:
    """Return a text in the encoding of a file; UTF-8 if there is none. Raises InputError if the encoding
    lacks one of its letters."""
    content = read_limited(path, MAX_FILE_BYTES) if path else b""
    if _is_utf8(content):
        return text.encode()
    try:
        return text.encode(name := encoding_of(content))
    except UnicodeEncodeError as error:
        advice = f"convert it, e.g. with iconv -f {name.upper()} -t UTF-8"
        raise InputError(f"{path}: its encoding has no {text[error.start]}; {advice}") from None


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
                shown = ", ".join(names[:SHOWN])
                notes.append(f"{len(names):,} files are not followed, since {why}: {shown}, ...")
        return notes
