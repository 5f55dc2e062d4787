"""Download published data sets, word vectors and checkpoints on first use.

`citerec data download NAME ...` downloads them in advance. Each release (datasets/releases.py) is
downloaded once; processes that share a cache wait for each other.
"""

from __future__ import annotations

import argparse
import logging
import re
import shutil
from collections.abc import Iterable, Sequence
from contextlib import suppress
from fnmatch import fnmatch
from pathlib import Path, PurePosixPath
from typing import Any
from zipfile import ZipFile

from requests.exceptions import RequestException

from citerec.datasets.corpus import Corpus
from citerec.datasets.errors import InputError, UnusableFile, one_line_errors
from citerec.datasets.files import cache_folder, digest_file, disk_errors, file_lock
from citerec.datasets.json_lines import read_objects
from citerec.datasets.prepare import open_corpus
from citerec.datasets.records import SPLITS, check_split_names
from citerec.datasets.releases import RELEASES, Release
from citerec.datasets.source_files import read_records
from citerec.datasets.transfer import (
    DAMAGED,
    discard_download,
    drive_listing,
    failure_reason,
    fetch,
    format_names,
    is_drive_folder,
    name_variants,
    pick_files,
    unpack,
)

log = logging.getLogger(__name__)


def ensure_release(
    name: str,
    cache_dir: str | Path = ".cache",
    folder: str | Path | None = None,
    files: Sequence[str] | None = None,
    address: str | None = None,
) -> Path:
    """Return the folder with the files of a release; download those that are missing.

    name: a key of RELEASES. folder: where the files belong, by default the release's folder in `cache_dir`.
    files: the files needed, by default all. address: overrides the release's addresses.
    Raises InputError with address, files and folder if the download fails.
    """
    release = RELEASES[name]
    target = Path(folder).expanduser() if folder else release.folder_in(cache_dir)
    wanted = tuple(files or release.files)
    if not missing_files(target, wanted):
        return target
    with disk_errors(target, f"the files of {name}", "CITATION_CACHE or data.cache_dir"):
        target.mkdir(parents=True, exist_ok=True)
        with file_lock(target / f".{name}.lock", f"downloads {name}"):
            _Download(name, release, target, wanted, address).run()
    return target


def find_file(folder: Path, file: str) -> Path | None:
    """The path of a file in the folder, plain or gzipped; None if it is missing."""
    return next((path for name in name_variants(file) if (path := folder / name).is_file()), None)


def missing_files(folder: Path, files: Iterable[str]) -> list[str]:
    """The files that are not in the folder."""
    return [file for file in files if find_file(folder, file) is None]


class _Download:
    """Downloads the wanted files of a release into a folder; used by one process at a time."""

    def __init__(
        self, name: str, release: Release, folder: Path, wanted: Sequence[str], address: str | None
    ) -> None:
        self.name, self.release, self.folder = name, release, folder
        self.wanted, self.address = wanted, address
        self.work = folder / f".{name}.download"

    def run(self) -> None:
        self.work.mkdir(exist_ok=True)
        try:
            archives = {path for pattern in self.release.archives for path in self.folder.glob(pattern)}
            for archive in sorted(archives):
                if self._missing():
                    try:
                        self._unpack(archive)
                    except UnusableFile as error:
                        raise InputError(f"{archive}: {error}; replace or remove it") from None
            if self._missing():
                self._try_addresses()
            shutil.rmtree(self.work)
        finally:
            with suppress(OSError):  # not empty if it has a partial download
                self.work.rmdir()

    def _missing(self) -> list[str]:
        return missing_files(self.folder, self.wanted)

    def _try_addresses(self) -> None:
        failures = []
        for address in (self.address,) if self.address else self.release.addresses:
            try:
                self._fetch(address)
            except (UnusableFile, RequestException) as error:
                failures.append(f"{address}: {failure_reason(error)}")
            if not self._missing():
                return
        files = ", ".join(self._missing())
        if self.release.archives:
            named = [pattern for pattern in self.release.archives if "*" not in pattern]
            files += f", or {named[0] if named else 'an archive with them'},"
        raise InputError(
            f"{self.name} cannot be downloaded ({'; '.join(failures)}): put {files} into {self.folder}"
        )

    def _fetch(self, address: str) -> None:
        """Download the missing files from an address; raises UnusableFile if some are still missing."""
        if is_drive_folder(address):
            self._fetch_from_folder(drive_listing(address))
        elif address.endswith("/"):
            self._fetch_files({file: f"{address}{file}" for file in self._missing()})
        elif self.release.archives:
            self._fetch_archive(address)
        else:
            self._fetch_files({self.release.files[0]: address})
        if missing := self._missing():
            raise UnusableFile(f"has no {', '.join(missing)}")

    def _fetch_from_folder(self, folder: dict[str, str]) -> None:
        """Download from a folder {path: address} that may also contain other releases."""
        paths = [path for path in folder if re.search(self.release.matches, path, re.IGNORECASE)]
        paths = paths or (list(folder) if self.address else [])
        files = pick_files(paths, self._missing())
        patterns = self.release.archives
        archives = [path for path in paths if any(fnmatch(path.lower(), pattern) for pattern in patterns)]
        if not files and not archives:
            raise UnusableFile(
                f"no file matches among {format_names(folder)}; give the address of the right one"
            )
        if len(files) == len(self._missing()) or not archives:
            self._fetch_files({PurePosixPath(path).name: folder[path] for path in files.values()})
        failures = []
        for path in sorted(archives, key=lambda path: (path.count("/"), len(path))):
            if self._missing():
                try:
                    self._fetch_archive(folder[path])
                except UnusableFile as error:
                    failures.append(f"{path}: {error}")
        if self._missing() and failures:
            raise UnusableFile("; ".join(failures))

    def _fetch_files(self, addresses: dict[str, str]) -> None:
        for name, address in addresses.items():
            path = self.work / name.replace("/", "-")
            fetch(address, path)
            self._install({name: path})

    def _fetch_archive(self, address: str) -> None:
        archive = self.work / f"{self.name}-archive"
        fetch(address, archive, self.release.size)
        try:
            self._unpack(archive)
        except UnusableFile:
            discard_download(archive)
            raise
        discard_download(archive)

    def _unpack(self, archive: Path) -> None:
        """Extract the missing files, if size and checksum of the archive are those published."""
        size, expected = archive.stat().st_size, self.release
        if expected.size not in (None, size):
            raise UnusableFile(f"has {size:,} bytes, but the published archive has {expected.size:,}")
        _verify_checksum(archive, "sha256", expected.sha256)
        found = unpack(archive, self._missing(), self.work, expected.matches)
        self._install({path.name: path for path in found})

    def _install(self, files: dict[str, Path]) -> None:
        """Move files into the target folder after checking their content."""
        try:
            for path in files.values():
                check_content(path, self.release.json_lines)
                if path.suffix == ".gz":  # the checksum is of the gzipped file
                    _verify_checksum(path, "md5", self.release.md5)
        except UnusableFile:
            for path in files.values():
                discard_download(path)
            raise
        for name, path in files.items():
            (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
            path.replace(self.folder / name)


def _verify_checksum(path: Path, algorithm: str, expected: str | None) -> None:
    if expected is not None and (found := digest_file(path, algorithm)) != expected:
        raise UnusableFile(f"the {algorithm.upper()} of {path.name} is {found}, expected {expected}")


def check_content(path: Path, json_lines: bool = False) -> None:
    """Raise UnusableFile if a JSON file does not start as expected, or a checkpoint is damaged.

    json_lines: the file has one object per line. PyTorch checkpoints are zip files with checksums, except in
    the oldest format.
    """
    name = path.name.removesuffix(".gz")
    try:
        if json_lines:
            if next(read_objects(path), None) is None:
                raise UnusableFile(f"{path.name} is empty")
        elif name.endswith(".json"):
            top = list if name in ("train.json", "val.json", "test.json") else dict
            next(read_records(path, frozenset(), top), None)
        elif name.endswith(".pt"):
            with path.open("rb") as file:
                is_zip = file.read(2) == b"PK"
            if is_zip and (damaged := ZipFile(path).testzip()):
                raise UnusableFile(f"damaged ({damaged})")
    except InputError as error:
        raise UnusableFile(str(error).replace(str(path), path.name)) from None
    except (*DAMAGED, RuntimeError) as error:
        raise UnusableFile(f"damaged or truncated ({error})") from None


def open_published(
    name: str,
    dir: str | Path | None = None,
    address: str | None = None,
    papers: str | Path | None = None,
    cache_dir: str | Path = ".cache",
    splits: Sequence[str] = SPLITS,
    **settings: Any,
) -> Corpus:
    """Open a published data set with `open_corpus`; download it on first use.

    name: a key of RELEASES. dir: folder of its files, by default under `cache_dir`. address: overrides the
    release's addresses. splits: all of them must exist. Otherwise like `open_corpus`. Warns if the numbers of
    papers and contexts differ from the published ones.
    """
    check_split_names(splits)
    files = [*([] if papers else ["papers.json"]), "contexts.json", *(f"{split}.json" for split in splits)]
    folder = ensure_release(name, cache_dir, dir, files, address)
    corpus = open_corpus(folder, papers, cache_dir=cache_dir, splits=splits, name=name, **settings)
    found = {"papers": len(corpus.paper_ids)} | {key: len(split) for key, split in corpus.splits.items()}
    for part, expected in RELEASES[name].counts.items():
        if found.get(part, expected) != expected:
            log.warning("%s: %s has %s records, expected %s", name, part, f"{found[part]:,}", f"{expected:,}")
    return corpus


@one_line_errors
def main() -> None:
    cache = cache_folder()
    table = [
        f"  {name:<18} {release.download_size:<14} {release.folder_in(cache)!s:<34} {release.description}"
        for name, release in RELEASES.items()
    ]
    parser = argparse.ArgumentParser(
        prog="citerec data download",
        description="Download published data sets, word vectors and checkpoints into the cache.",
        epilog="names, download sizes and folders:\n" + "\n".join(table),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "names", nargs="+", choices=RELEASES, metavar="NAME", help="what to download (listed below)"
    )
    parser.add_argument("--cache", default=cache, metavar="DIR", help="cache folder (%(default)s)")
    parser.add_argument(
        "--from", dest="address", metavar="ADDRESS", help="URL to use instead, for a single NAME"
    )
    options = parser.parse_args()
    if options.address and len(options.names) > 1:
        parser.error("--from takes a single NAME")
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    for name in options.names:
        print(f"{name}: {ensure_release(name, options.cache, address=options.address)}")


if __name__ == "__main__":
    main()
