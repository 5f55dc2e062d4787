"""The files of a release, downloaded where they are first used.

Files that lie where they belong are used as they are, and so is an archive that was put there by hand. What
is fetched is checked and unpacked in a hidden folder beside, and renamed into its place when it is whole.
"""

from __future__ import annotations

import hashlib
import re
import shutil
from collections.abc import Iterable, Sequence
from contextlib import suppress
from fnmatch import fnmatch
from pathlib import Path, PurePosixPath
from zipfile import ZipFile

from requests import RequestException

from datasets import drive
from datasets.errors import InputError, Unusable
from datasets.fulltext.json_lines import read_objects
from datasets.json_stream import read_records
from datasets.releases import RELEASES, Release, spellings
from datasets.shared_folders import one_at_a_time, one_line_disk_errors
from datasets.transfer import TIMEOUT, fetch, forget, reason
from datasets.unpack import DAMAGED, choose, shortened, unpack


def obtain(
    name: str,
    cache_dir: str | Path = ".cache",
    folder: str | Path | None = None,
    files: Sequence[str] | None = None,
    address: str | None = None,
) -> Path:
    """The folder with the files of a release, which are downloaded unless they are there.

    name: a key of RELEASES. folder: where they belong, by default the release's own place in `cache_dir`.
    files: those that are needed, by default all. address: another than the release's own.
    Raises InputError of one line with address, files and folder when they cannot be had.
    """
    release = RELEASES[name]
    place = Path(folder).expanduser() if folder else release.place(cache_dir)
    wanted = tuple(files or release.files)
    if not lacking(place, wanted):
        return place
    with one_line_disk_errors(place, f"the files of {name}", "CITATION_CACHE or data.cache_dir"):
        place.mkdir(parents=True, exist_ok=True)
        with one_at_a_time(place / f".{name}.lock", f"downloads {name}"):
            _Download(name, release, place, wanted, address).run()
    return place


def present(folder: Path, file: str) -> Path | None:
    """The file in the folder, compressed or not; None if it is not there."""
    return next((path for name in spellings(file) if (path := folder / name).is_file()), None)


def lacking(folder: Path, files: Iterable[str]) -> list[str]:
    """Those of the files that the folder does not have."""
    return [file for file in files if present(folder, file) is None]


class _Download:
    """Brings the wanted files of one release into their place; no other process does the same meanwhile."""

    def __init__(
        self, name: str, release: Release, place: Path, wanted: Sequence[str], address: str | None
    ) -> None:
        self.name, self.release, self.place, self.wanted, self.address = name, release, place, wanted, address
        self.work = place / f".{name}.download"

    def run(self) -> None:
        self.work.mkdir(exist_ok=True)
        try:
            self._unpack_what_lies_there()
            if self._lacking():
                self._download()
            shutil.rmtree(self.work)
        finally:
            with suppress(OSError):  # it stays if it holds a part to go on with
                self.work.rmdir()

    def _lacking(self) -> list[str]:
        return lacking(self.place, self.wanted)

    def _unpack_what_lies_there(self) -> None:
        for archive in sorted({path for like in self.release.archives for path in self.place.glob(like)}):
            if self._lacking():
                try:
                    self._take(archive)
                except Unusable as error:
                    raise InputError(f"{archive}: {error}; put another one there, or none") from None

    def _download(self) -> None:
        failures = []
        for address in (self.address,) if self.address else self.release.addresses:
            try:
                self._fetch(address)
            except (Unusable, RequestException) as error:
                failures.append(f"{address}: {error if isinstance(error, Unusable) else reason(error)}")
            if not self._lacking():
                return
        raise InputError(f"{self.name} cannot be downloaded ({'; '.join(failures)}): {self._by_hand()}")

    def _by_hand(self) -> str:
        files = ", ".join(self._lacking())
        if self.release.archives:
            named = [like for like in self.release.archives if "*" not in like]
            files = f"{files}, or {named[0] if named else 'an archive that holds them'},"
        return f"put {files} into {self.place}"

    def _fetch(self, address: str) -> None:
        """Bring what there is at an address into place; Unusable when that is not all that is lacking."""
        if drive.is_folder(address):
            self._fetch_from(drive.listing(address, TIMEOUT))
        elif address.endswith("/"):
            self._fetch_files({file: f"{address}{file}" for file in self._lacking()})
        elif self.release.archives:
            self._fetch_archive(address)
        else:
            self._fetch_files({self.release.files[0]: address})
        if missing := self._lacking():
            raise Unusable(f"it has no {', '.join(missing)}")

    def _fetch_from(self, folder: dict[str, str]) -> None:
        """From a folder {path: address}, in which only some files or archives may be of this release."""
        own = [path for path in folder if re.search(self.release.matches, path, re.IGNORECASE)]
        own = own or (list(folder) if self.address else [])
        files = choose(own, self._lacking())
        archives = [
            path for path in own if any(fnmatch(path.lower(), like) for like in self.release.archives)
        ]
        if not files and not archives:
            there = shortened(folder)
            raise Unusable(f"nothing there looks like it; it has {there}; give the address of the right one")
        if len(files) == len(self._lacking()) or not archives:
            self._fetch_files({PurePosixPath(path).name: folder[path] for path in files.values()})
        failures = []
        for path in sorted(archives, key=lambda path: (path.count("/"), len(path))):
            if self._lacking():
                try:
                    self._fetch_archive(folder[path])
                except Unusable as error:
                    failures.append(f"{path}: {error}")
        if self._lacking() and failures:
            raise Unusable("; ".join(failures))

    def _fetch_files(self, addresses: dict[str, str]) -> None:
        """Each into place as soon as it is whole."""
        for name, address in addresses.items():
            path = self.work / name.replace("/", "-")
            fetch(address, path)
            self._put({name: path})

    def _fetch_archive(self, address: str) -> None:
        archive = self.work / f"{self.name}-archive"
        fetch(address, archive, self.release.size)
        try:
            self._take(archive)
        except Unusable:
            forget(archive)
            raise
        forget(archive)

    def _take(self, archive: Path) -> None:
        """Unpack what is lacking."""
        self._check(archive)
        found = unpack(archive, self._lacking(), self.work, self.release.matches)
        self._put({path.name: path for path in found})

    def _check(self, archive: Path) -> None:
        """Unusable when the archive is not the one that was published, so far as that is known."""
        size, expected = archive.stat().st_size, self.release
        if expected.size not in (None, size):
            raise Unusable(f"{size:,} bytes where {expected.size:,} were published")
        if expected.sha256 is not None:
            with archive.open("rb") as file:
                found = hashlib.file_digest(file, "sha256").hexdigest()
            if found != expected.sha256:
                raise Unusable(f"its SHA-256 is {found}, that of the published one is {expected.sha256}")

    def _put(self, files: dict[str, Path]) -> None:
        """Into their place, if what can be told of their content says that it is what it should be."""
        try:
            for path in files.values():
                check_content(path, self.release.json_lines)
                self._check_sum(path)
        except Unusable:
            for path in files.values():
                forget(path)
            raise
        for name, path in files.items():
            (self.place / name).parent.mkdir(parents=True, exist_ok=True)
            path.replace(self.place / name)

    def _check_sum(self, path: Path) -> None:
        """Unusable when a file that was published compressed, and came so, is another."""
        if self.release.md5 is not None and path.suffix == ".gz":
            with path.open("rb") as file:
                found = hashlib.file_digest(file, "md5").hexdigest()
            if found != self.release.md5:
                raise Unusable(f"the MD5 of {path.name} is {found}, published is {self.release.md5}")


def check_content(path: Path, json_lines: bool = False) -> None:
    """Unusable when the beginning of a JSON file, or a checkpoint, is not of its kind.

    json_lines: there is an object on each line. A checkpoint of PyTorch is a zip file, whose checksums are
    checked; its oldest format has none.
    """
    name = path.name.removesuffix(".gz")
    if json_lines:
        try:
            if next(read_objects(path), None) is None:
                raise Unusable(f"{path.name} is empty")
        except InputError as error:
            raise Unusable(str(error).replace(str(path), path.name)) from None
    elif name.endswith(".json"):
        top = list if name in ("train.json", "val.json", "test.json") else dict
        try:
            next(read_records(path, frozenset(), top), None)
        except InputError as error:
            raise Unusable(str(error).replace(str(path), path.name)) from None
    elif name.endswith(".pt"):
        with path.open("rb") as file:
            packed = file.read(2) == b"PK"
        try:
            if packed and (damaged := ZipFile(path).testzip()):
                raise Unusable(f"{damaged} in it is damaged")
        except (*DAMAGED, RuntimeError) as error:
            raise Unusable(f"it is damaged or cut short ({error})") from None
