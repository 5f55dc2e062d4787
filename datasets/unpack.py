"""The wanted files out of an archive and nothing else of it, to places that we choose."""

from __future__ import annotations

import lzma
import re
import stat
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path, PurePosixPath
from typing import IO, NamedTuple, cast

from datasets.errors import Unusable
from datasets.progress import moving
from datasets.releases import spellings
from datasets.transfer import need_space

DAMAGED = (
    zipfile.BadZipFile,
    tarfile.TarError,
    zlib.error,
    lzma.LZMAError,
    EOFError,
    ValueError,
    struct.error,
)
CHUNK = 1 << 20
SHOWN = 8


class Member(NamedTuple):
    """A file in an archive."""

    path: str
    size: int
    open: Callable[[], IO[bytes]]


def unpack(archive: Path, wanted: Iterable[str], folder: Path, matches: str = "") -> list[Path]:
    """Write those of the `wanted` files that the archive has into `folder`; gives what was written.

    A zip or tar file, compressed or not; the checksums of what is read are checked. Raises Unusable with the
    reason when it is none or damaged, has paths out of a folder, has a file more than once, or has none of
    them; InputError when the disk has no room for what they are said to hold.
    """
    with _members(archive) as members:
        by_path = {member.path: member for member in members}
        chosen = [by_path[path] for path in choose(list(by_path), wanted, matches).values()]
        if not chosen:
            raise Unusable(f"none of the files is in it; it has {shortened(by_path)}")
        total = sum(member.size for member in chosen)
        need_space(folder, total)
        done, written = 0, []
        with moving(f"unpacking {archive.name}") as report:
            for member in chosen:
                written.append(folder / PurePosixPath(member.path).name)
                with member.open() as source, written[-1].open("wb") as file:
                    while chunk := source.read(CHUNK):
                        file.write(chunk)
                        done += len(chunk)
                        report(done, total)
    return written


def choose(paths: Sequence[str], wanted: Iterable[str], matches: str = "") -> dict[str, str]:
    """{wanted name: its path} for those that are there, text as it is or else compressed.

    Of several, those whose path `matches` are preferred, then those that lie highest; Unusable when that does
    not tell which.

    >>> choose(["acl/papers.json", "old/acl/papers.json", "arxiv/papers.json"], ["papers.json"], "acl")
    {'papers.json': 'acl/papers.json'}
    """
    chosen: dict[str, str] = {}
    for name in wanted:
        named = [[path for path in paths if PurePosixPath(path).name == like] for like in spellings(name)]
        found = next(filter(None, named), [])
        found = [path for path in found if re.search(matches, path, re.IGNORECASE)] or found
        highest = min((path.count("/") for path in found), default=0)
        found = [path for path in found if path.count("/") == highest]
        if len(found) > 1:
            raise Unusable(f"{name} is there more than once: {shortened(found)}")
        if found:
            chosen[name] = found[0]
    return chosen


def shortened(names: Iterable[str]) -> str:
    """The first of the names, and how many there are besides."""
    listed = ["".join(letter if letter.isprintable() else "?" for letter in name) for name in names]
    more = f" and {len(listed) - SHOWN} more" if len(listed) > SHOWN else ""
    return (", ".join(name[:100] for name in listed[:SHOWN]) or "nothing") + more


@contextmanager
def _members(archive: Path) -> Iterator[list[Member]]:
    """The regular files in an archive; Unusable when it is none, damaged, or not safe."""
    try:
        if zipfile.is_zipfile(archive):
            with zipfile.ZipFile(archive) as packed:
                yield _zip_members(packed)
        elif tarfile.is_tarfile(archive):
            with tarfile.open(archive) as tar:
                yield _tar_members(tar)
        else:
            raise Unusable("it is no zip or tar archive, or cut short")
    except DAMAGED as error:
        raise Unusable(f"the archive is damaged ({error or type(error).__name__})") from None
    except (RuntimeError, NotImplementedError) as error:  # encrypted, or packed in a way that Python has not
        raise Unusable(f"the archive cannot be unpacked ({error})") from None
    except OSError as error:
        if error.errno is None:  # what gzip and bz2 say of their data
            raise Unusable(f"the archive is damaged ({error})") from None
        raise


def _zip_members(packed: zipfile.ZipFile) -> list[Member]:
    infos = [info for info in packed.infolist() if not info.is_dir()]
    _refuse_ways_out(info.filename for info in infos)
    return [
        Member(info.filename, info.file_size, partial(packed.open, info))
        for info in infos
        if not stat.S_ISLNK(info.external_attr >> 16)
    ]


def _tar_members(tar: tarfile.TarFile) -> list[Member]:
    infos = tar.getmembers()
    _refuse_ways_out(info.name for info in infos)
    return [
        Member(info.name, info.size, cast(Callable[[], IO[bytes]], partial(tar.extractfile, info)))
        for info in infos
        if info.isreg()
    ]


def _refuse_ways_out(paths: Iterable[str]) -> None:
    for path in paths:
        parts = PurePosixPath(path.replace("\\", "/"))
        if parts.is_absolute() or ".." in parts.parts or re.match(r"[A-Za-z]:", path):
            raise Unusable(
                f"its path {path[:100]!r} leads out of the folder; such an archive is not unpacked"
            )
