"""Published data sets, word vectors and checkpoints, downloaded where they are first used.

`python -m datasets.download NAME ...` downloads them beforehand. Each release (datasets/releases.py) is
downloaded once, and processes that share a cache wait for each other.
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

from datasets.corpus import Corpus
from datasets.errors import InputError, UnusableFile, one_line_errors
from datasets.files import cache_folder, digest_file, disk_errors, file_lock
from datasets.json_lines import read_objects
from datasets.prepare import open_corpus
from datasets.records import SPLITS, check_split_names
from datasets.releases import RELEASES, Release
from datasets.source_files import read_records
from datasets.transfer import (
    DAMAGED,
    discard_download,
    drive_listing,
    failure_reason,
    fetch,
    is_drive_folder,
    list_names,
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
    """The folder with the files of a release; downloads what is missing.

    name: a key of RELEASES. folder: where they belong, by default the release's place in `cache_dir`. files:
    those that are needed, by default all. address: instead of the release's own.
    Raises InputError of one line with address, files and folder if they cannot be had.
    """
    release = RELEASES[name]
    place = Path(folder).expanduser() if folder else release.place(cache_dir)
    wanted = tuple(files or release.files)
    if not missing_files(place, wanted):
        return place
    with disk_errors(place, f"the files of {name}", "CITATION_CACHE or data.cache_dir"):
        place.mkdir(parents=True, exist_ok=True)
        with file_lock(place / f".{name}.lock", f"downloads {name}"):
            _Download(name, release, place, wanted, address).run()
    return place


def find_file(folder: Path, file: str) -> Path | None:
    """The file in the folder, plain or gzipped; None if it is not there."""
    return next((path for name in name_variants(file) if (path := folder / name).is_file()), None)


def missing_files(folder: Path, files: Iterable[str]) -> list[str]:
    """Those of the files that the folder does not have."""
    return [file for file in files if find_file(folder, file) is None]


class _Download:
    """Brings the wanted files of a release into their place; only one process at a time does."""

    def __init__(
        self, name: str, release: Release, place: Path, wanted: Sequence[str], address: str | None
    ) -> None:
        self.name, self.release, self.place, self.wanted, self.address = name, release, place, wanted, address
        self.work = place / f".{name}.download"

    def run(self) -> None:
        self.work.mkdir(exist_ok=True)
        try:
            for archive in sorted({path for like in self.release.archives for path in self.place.glob(like)}):
                if self._lacking():
                    try:
                        self._unpack(archive)
                    except UnusableFile as error:
                        raise InputError(f"{archive}: {error}; replace or remove it") from None
            if self._lacking():
                self._try_addresses()
            shutil.rmtree(self.work)
        finally:
            with suppress(OSError):  # not empty: it holds a part to resume
                self.work.rmdir()

    def _lacking(self) -> list[str]:
        return missing_files(self.place, self.wanted)

    def _try_addresses(self) -> None:
        failures = []
        for address in (self.address,) if self.address else self.release.addresses:
            try:
                self._fetch(address)
            except (UnusableFile, RequestException) as error:
                failures.append(
                    f"{address}: {error if isinstance(error, UnusableFile) else failure_reason(error)}"
                )
            if not self._lacking():
                return
        files = ", ".join(self._lacking())
        if self.release.archives:
            named = [like for like in self.release.archives if "*" not in like]
            files += f", or {named[0] if named else 'an archive that holds them'},"
        raise InputError(
            f"{self.name} cannot be downloaded ({'; '.join(failures)}): put {files} into {self.place}"
        )

    def _fetch(self, address: str) -> None:
        """Bring what there is at an address into place; Unusable if that is not all that is lacking."""
        if is_drive_folder(address):
            self._fetch_from_folder(drive_listing(address))
        elif address.endswith("/"):
            self._fetch_files({file: f"{address}{file}" for file in self._lacking()})
        elif self.release.archives:
            self._fetch_archive(address)
        else:
            self._fetch_files({self.release.files[0]: address})
        if missing := self._lacking():
            raise UnusableFile(f"it has no {', '.join(missing)}")

    def _fetch_from_folder(self, folder: dict[str, str]) -> None:
        """From {path: address}, of which only some files or archives may belong to this release."""
        own = [path for path in folder if re.search(self.release.matches, path, re.IGNORECASE)]
        own = own or (list(folder) if self.address else [])
        files = pick_files(own, self._lacking())
        archives = [p for p in own if any(fnmatch(p.lower(), like) for like in self.release.archives)]
        if not files and not archives:
            raise UnusableFile(
                f"nothing in it matches among {list_names(folder)}; give the address of the right one"
            )
        if len(files) == len(self._lacking()) or not archives:
            self._fetch_files({PurePosixPath(path).name: folder[path] for path in files.values()})
        failures = []
        for path in sorted(archives, key=lambda path: (path.count("/"), len(path))):
            if self._lacking():
                try:
                    self._fetch_archive(folder[path])
                except UnusableFile as error:
                    failures.append(f"{path}: {error}")
        if self._lacking() and failures:
            raise UnusableFile("; ".join(failures))

    def _fetch_files(self, addresses: dict[str, str]) -> None:
        for name, address in addresses.items():
            path = self.work / name.replace("/", "-")
            fetch(address, path)
            self._put({name: path})

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
        """Put what is lacking into place, if the archive is the published one as far as that is known."""
        size, expected = archive.stat().st_size, self.release
        if expected.size not in (None, size):
            raise UnusableFile(f"it has {size:,} bytes, the published archive {expected.size:,}")
        _check_sum(archive, "sha256", expected.sha256)
        found = unpack(archive, self._lacking(), self.work, expected.matches)
        self._put({path.name: path for path in found})

    def _put(self, files: dict[str, Path]) -> None:
        """Into their place, if their content is of the right kind."""
        try:
            for path in files.values():
                check_content(path, self.release.json_lines)
                if path.suffix == ".gz":  # published gzipped, the file may come as it is
                    _check_sum(path, "md5", self.release.md5)
        except UnusableFile:
            for path in files.values():
                discard_download(path)
            raise
        for name, path in files.items():
            (self.place / name).parent.mkdir(parents=True, exist_ok=True)
            path.replace(self.place / name)


def _check_sum(path: Path, algorithm: str, expected: str | None) -> None:
    if expected is not None and (found := digest_file(path, algorithm)) != expected:
        raise UnusableFile(f"the {algorithm.upper()} of {path.name} is {found}, published is {expected}")


def check_content(path: Path, json_lines: bool = False) -> None:
    """Unusable if a JSON file does not begin as it should, or a checkpoint is damaged.

    json_lines: there is an object on each line. Checkpoints of PyTorch are zip files with checksums, except
    in its oldest format.
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
                raise UnusableFile(f"it is damaged ({damaged})")
    except InputError as error:
        raise UnusableFile(str(error).replace(str(path), path.name)) from None
    except (*DAMAGED, RuntimeError) as error:
        raise UnusableFile(f"it is damaged or cut short ({error})") from None


def open_published(
    name: str,
    dir: str | Path | None = None,
    address: str | None = None,
    papers: str | Path | None = None,
    cache_dir: str | Path = ".cache",
    splits: Sequence[str] = SPLITS,
    **settings: Any,
) -> Corpus:
    """`open_corpus` of a published data set, downloaded on first use.

    name: its key in RELEASES. dir: where its files belong or were put, by default under `cache_dir`. address:
    instead of the release's own. All of the `splits` must be there. The rest is as for open_corpus. Warns if
    the numbers of papers and contexts are not the published ones.
    """
    check_split_names(splits)
    files = [*([] if papers else ["papers.json"]), "contexts.json", *(f"{split}.json" for split in splits)]
    folder = ensure_release(name, cache_dir, dir, files, address)
    corpus = open_corpus(folder, papers, cache_dir=cache_dir, splits=splits, name=name, **settings)
    found = {"papers": len(corpus.paper_ids)} | {key: len(split) for key, split in corpus.splits.items()}
    for what, expected in RELEASES[name].counts.items():
        if found.get(what, expected) != expected:
            numbers = f"{found[what]:,} records, {expected:,} were published"
            log.warning("%s: %s has %s", name, what, numbers)
    return corpus


@one_line_errors
def main() -> None:
    cache = cache_folder()
    table = [
        f"  {name:<18} {release.download_size:<14} {release.place(cache)!s:<34} {release.what}"
        for name, release in RELEASES.items()
    ]
    parser = argparse.ArgumentParser(
        prog="python -m datasets.download",
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
