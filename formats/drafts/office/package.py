"""The zip archive of a document: its parts are read with limits, and copied without a change."""

from __future__ import annotations

import io
import xml.etree.ElementTree as ET
import zipfile
from collections.abc import Iterator, Mapping
from copy import copy
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from citerec.base.archives import damage_reported
from citerec.base.errors import InputError, UnusableFile
from citerec.base.files import read_limited
from citerec.formats.articles.xml_documents import parse_xml

MAX_DOCUMENT = 1 << 28
"""Maximum size of a document, with its pictures."""
MAX_PART = 1 << 26
"""Maximum size of a part in XML."""

MAX_LIST = 1 << 22
"""Maximum bytes of an archive's list of parts, which is read as a whole."""


@dataclass
class Package:
    """The parts of a document."""

    path: Path
    content: bytes
    _parts: dict[str, bytes] = field(default_factory=dict)

    @classmethod
    def read(cls, path: Path, kind: str) -> Package:
        """Raises InputError if the file is no archive. kind: of document, for messages."""
        content = read_limited(path, MAX_DOCUMENT)
        end = content.rfind(b"PK\x05\x06")
        listed = int.from_bytes(content[end + 12 : end + 16], "little") if end >= 0 else 0
        if listed > MAX_LIST:
            raise InputError(f"{path}: has too many parts; save the document again")
        package, is_zip = cls(path, content), zipfile.is_zipfile(io.BytesIO(content))
        if not is_zip or b"encryption-data" in package.part("META-INF/manifest.xml"):
            raise InputError(f"{path}: is not a {kind} document; save it as {path.suffix} without a password")
        return package

    @cached_property
    def _archive(self) -> zipfile.ZipFile:
        return zipfile.ZipFile(io.BytesIO(self.content))

    def names(self) -> list[str]:
        """Return the names of its parts."""
        return self._archive.namelist()

    def elements(self, name: str) -> Iterator[ET.Element]:
        """Yield the elements of a part, if there is one. Raises InputError if it is damaged."""
        return parse_xml(self.part(name) or b"<none/>", f"{self.path}, {name}").iter()

    def part(self, name: str) -> bytes:
        """Return a part; b"" if there is none. Raises InputError if it is damaged or too large."""
        if name not in self._parts:
            self._parts[name] = self._read(name)
        return self._parts[name]

    def _read(self, name: str) -> bytes:
        try:
            with damage_reported():
                parts = [info for info in self._archive.infolist() if info.filename == name]
                if len(parts) > 1:
                    raise UnusableFile("it is there twice")
                content = b""
                for info in parts:
                    with self._archive.open(info) as file:
                        content = file.read(MAX_PART + 1)
                if len(content) > MAX_PART:
                    raise UnusableFile(f"it is larger than {MAX_PART >> 20} MB")
                return content
        except UnusableFile as error:
            raise InputError(
                f"{self.path}: {name} cannot be read: {error}; save the document again"
            ) from None

    def with_parts(self, parts: Mapping[str, bytes]) -> bytes:
        """Return the archive with other content of some parts; the bytes of all others are copied."""
        infos = sorted(self._archive.infolist(), key=lambda info: info.header_offset)
        starts = [info.header_offset for info in infos]
        with io.BytesIO() as file:
            with zipfile.ZipFile(file, "w") as target:
                target.comment = self._archive.comment
                for info, start, end in zip(
                    infos, starts, [*starts[1:], self._archive.start_dir], strict=True
                ):
                    if info.filename in parts:
                        new = zipfile.ZipInfo(info.filename, info.date_time)
                        new.compress_type, new.external_attr = info.compress_type, info.external_attr
                        target.writestr(new, parts[info.filename])
                    else:  # as zipfile writes a new file, without packing it again
                        moved = copy(info)
                        moved.header_offset = file.tell()
                        file.write(self.content[start:end])
                        target.filelist.append(moved)
                        target.start_dir = file.tell()
            return file.getvalue()
