"""Download published data sets, word vectors and checkpoints on first use.

`citerec data download NAME ...` downloads them in advance. Each release (datasets/published/releases.py) is
downloaded once; processes that share a cache wait for each other. gdown fetches from any web address and from
Google Drive, and goes on where a connection broke; a download that was stopped starts anew.
"""

from __future__ import annotations

import hashlib
import logging
import re
import shutil
import zipfile
from collections.abc import Iterable, Sequence
from dataclasses import MISSING, dataclass
from fnmatch import fnmatch
from pathlib import Path, PurePosixPath
from typing import Any, ClassVar, cast

from citerec.base.archives import (
    DAMAGED,
    check_free_space,
    format_names,
    name_variants,
    pick_files,
    unpack,
)
from citerec.base.arguments import command
from citerec.base.errors import InputError, UnusableFile
from citerec.base.files import cache_folder, digest_file, disk_errors, expand_user, file_lock, open_bytes
from citerec.base.progress import copy_progress
from citerec.base.settings import Settings, setting
from citerec.datasets.corpus import Corpus, Split
from citerec.datasets.files.source_files import read_records
from citerec.datasets.prepare import open_corpus
from citerec.datasets.published.recipes import recipe
from citerec.datasets.published.releases import CORPUS_FILES, DRIVE_FILE, PREFIX, RELEASES, Release
from citerec.datasets.published.repositories import fetch_repository
from citerec.datasets.records import SPLITS, check_split_names

log = logging.getLogger(__name__)

CORPORA = tuple(name for name, release in RELEASES.items() if set(CORPUS_FILES) <= set(release.files))
"""Data sets with contexts, whose splits have ids: PREFIX/NAME/SPLIT."""
TIMEOUT = 30.0
"""Seconds to wait for data."""
RETRIES = 4
"""Maximum number of further attempts after a connection broke; each goes on where the last one ended."""
HTML = (b"<!doctype html", b"<html")
_DRIVE_FOLDER = re.compile(r"https://drive\.google\.com/drive/(?:u/\d+/)?folders/([-\w]+)")


def ensure_release(
    name: str,
    cache_dir: str | Path | None = None,
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
    target = expand_user(folder) if folder else release.folder_in(cache_dir)
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
    """Gets the wanted files of a release into a folder; used by one process at a time."""

    def __init__(
        self, name: str, release: Release, folder: Path, wanted: Sequence[str], address: str | None
    ) -> None:
        self.name, self.release, self.folder = name, release, folder
        self.wanted, self.address = wanted, address
        self.work = folder / f".{name}.download"

    def run(self) -> None:
        shutil.rmtree(self.work, ignore_errors=True)  # of a process that was killed
        self.work.mkdir()
        try:
            placed = {path for pattern in self.release.archives for path in self.folder.glob(pattern)}
            for archive in sorted(placed):
                if self._missing():
                    try:
                        self._unpack(archive)
                    except UnusableFile as error:
                        raise InputError(f"{archive}: {error}; replace or remove it") from None
            if self._missing():
                self._try_addresses()
        finally:
            shutil.rmtree(self.work, ignore_errors=True)

    def _missing(self) -> list[str]:
        return missing_files(self.folder, self.wanted)

    def _try_addresses(self) -> None:
        if self.release.repositories:
            self._build()
            return
        failures = []
        for address in (self.address,) if self.address else self.release.addresses:
            try:
                self._fetch(address)
            except UnusableFile as error:
                failures.append(f"{address}: {error}")
            if not self._missing():
                return
        files = ", ".join(self._missing())
        if self.release.archives:
            named = [pattern for pattern in self.release.archives if "*" not in pattern]
            files += f", or {named[0] if named else 'an archive with them'},"
        raise InputError(
            f"{self.name} cannot be downloaded ({'; '.join(failures)}): put {files} into {self.folder}"
        )

    def _build(self) -> None:
        """Fetch the repositories, from the address if it is a mirror of them, and build the files."""
        folders, built = [], self.work / "built"
        for repository in self.release.repositories:
            source = repository.on(self.address) if self.address else repository
            log.info("fetching %s", source.address)
            folders.append(self.work / source.name)
            try:
                fetch_repository(source, folders[-1])
            except InputError as error:
                files, reason = ", ".join(self._missing()), f"{source.address}: {error}"
                raise InputError(
                    f"{self.name} cannot be built ({reason}): put {files} into {self.folder}"
                ) from None
        if self.release.recipe:
            recipe(self.release.recipe)(folders, built)
        else:  # without the history
            shutil.copytree(folders[0], built, ignore=shutil.ignore_patterns(".git"))
        for path in sorted(path for path in built.rglob("*") if path.is_file()):
            place = self.folder / path.relative_to(built)
            place.parent.mkdir(parents=True, exist_ok=True)
            path.replace(place)
        for name, expected in self.release.digests.items():
            if (file := find_file(self.folder, name)) is None or content_digest(file) != expected:
                log.warning("%s: %s is not that of the registry; figures are not comparable", self.name, name)

    def _fetch(self, address: str) -> None:
        """Download the missing files from an address; raises UnusableFile if some are still missing."""
        if _DRIVE_FOLDER.match(address):
            self._fetch_from_folder(list_drive_folder(address))
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
        self._unpack(archive)
        archive.unlink()

    def _unpack(self, archive: Path) -> None:
        """Extract the missing files, if size and checksum of the archive are those published."""
        size, expected = archive.stat().st_size, self.release
        if expected.size not in (None, size):
            raise UnusableFile(f"has {size:,} bytes, but the published file has {expected.size:,}")
        if expected.sha256 is not None and (digest := digest_file(archive, "sha256")) != expected.sha256:
            raise UnusableFile(f"the SHA256 of {archive.name} is {digest}, expected {expected.sha256}")
        files = unpack(archive, self._missing(), self.work, expected.matches)
        self._install({path.name: path for path in files})

    def _install(self, files: dict[str, Path]) -> None:
        """Move files into the target folder after checking their content."""
        for path in files.values():
            check_content(path)
        for name, path in files.items():
            (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
            path.replace(self.folder / name)


def content_digest(path: Path) -> str:
    """Return the SHA-256 of the uncompressed content of a file."""
    with open_bytes(path) as (file, _):
        return hashlib.file_digest(cast(Any, file), "sha256").hexdigest()


def check_content(path: Path) -> None:
    """Raise UnusableFile if a JSON file does not start as expected, or a checkpoint is damaged.

    PyTorch checkpoints are zip files with checksums, except in the oldest format.
    """
    name = path.name.removesuffix(".gz")
    try:
        if name.endswith(".json"):
            top = list if name in ("train.json", "val.json", "test.json") else dict
            next(read_records(path, top), None)
        elif name.endswith(".pt"):
            with path.open("rb") as file:
                is_zip = file.read(2) == b"PK"
            if is_zip and (damaged := zipfile.ZipFile(path).testzip()):
                raise UnusableFile(f"damaged ({damaged})")
    except InputError as error:
        raise UnusableFile(str(error).replace(str(path), path.name)) from None
    except DAMAGED as error:
        raise UnusableFile(f"damaged or truncated ({error})") from None


def fetch(address: str, path: Path, size: int | None = None) -> None:
    """Download the file at `address` to a new `path`. size: expected number of bytes, if known.

    Raises UnusableFile with the reason if the download fails, InputError if the disk is too small.
    """
    from gdown import download
    from gdown.exceptions import DownloadError
    from requests.exceptions import RequestException

    log.info("downloading %s", address)
    with copy_progress(f"downloading {path.name}") as show:

        def report(done: int, total: int | None) -> None:
            if size is not None and total not in (None, size):
                raise UnusableFile(f"has {total:,} bytes, but the published file has {size:,}")
            check_free_space(path.parent, (total or done) - done)
            show(done, total)

        try:
            download(
                address, str(path), quiet=True, use_cookies=False, timeout=TIMEOUT, retries=RETRIES,
                progress=report,
            )  # fmt: skip
        except (DownloadError, RequestException) as error:
            raise UnusableFile(_failure_reason(error)) from None
    with path.open("rb") as file:
        start = file.read(1000)
    if start.lstrip()[:14].lower().startswith(HTML):
        title = re.search(rb"<title>([^<]+)", start, re.IGNORECASE)
        named = f" ({' '.join(title[1].decode('utf-8', 'replace').split())})" if title else ""
        raise UnusableFile(f"the server sent a web page instead of the file{named}")


def _failure_reason(error: Exception) -> str:
    """Why a download failed, in a few words."""
    if (response := getattr(error, "response", None)) is not None:
        return f"HTTP {response.status_code} ({response.reason})"
    text = str(error)
    if "timed out" in text:
        return f"no response within {TIMEOUT:g} s"
    if reasons := re.findall(r"\[Errno -?\d+\] ([^\[\]'\")]+)", text):
        return f"no connection ({reasons[-1].strip()})"
    # gdown says where it keeps the first part, which is removed here.
    text = re.split(r"[.;]\s+the (?:partial file|received bytes)", text, flags=re.IGNORECASE)[0]
    return re.sub(r"<[^>]*>", "", " ".join(text.split()))[:200] or type(error).__name__


def list_drive_folder(address: str) -> dict[str, str]:
    """List a shared Google Drive folder and its subfolders as {path: address}.

    Raises UnusableFile with the reason.
    """
    from gdown import download_folder

    try:
        listing = download_folder(
            url=address, quiet=True, use_cookies=False, skip_download=True, timeout=TIMEOUT
        )
    except Exception as error:  # gdown fails in many ways on unknown pages
        raise UnusableFile(_failure_reason(error)) from None
    files = {
        Path(file.path).as_posix(): f"{DRIVE_FILE}{file.id}" for file in listing if not isinstance(file, str)
    }
    if not files:
        raise UnusableFile("the folder is empty or not shared")
    return files


def open_published(
    name: str,
    dir: str | Path | None = None,
    address: str | None = None,
    papers: str | Path | None = None,
    cache_dir: str | Path | None = None,
    splits: Sequence[str] = SPLITS,
    candidates: str | None = None,
    **settings: Any,
) -> Corpus:
    """Open a published data set with `open_corpus`; download it on first use.

    name: a key of RELEASES. dir: folder of its files, by default under `cache_dir`. address: overrides the
    release's addresses. splits: all of them must exist. candidates: None means those of the data set.
    Otherwise like `open_corpus`. Warns if the numbers of papers and contexts differ from the published ones.
    """
    settings["candidates"] = candidates or RELEASES[name].candidates
    check_split_names(splits)
    files = [*([] if papers else ["papers.json"]), "contexts.json", *(f"{split}.json" for split in splits)]
    folder = ensure_release(name, cache_dir, dir, files, address)
    corpus = open_corpus(folder, papers, cache_dir=cache_dir, splits=splits, name=name, **settings)
    counts = {"papers": len(corpus.paper_ids)} | {key: len(split) for key, split in corpus.splits.items()}
    for part, expected in RELEASES[name].counts.items():
        if counts.get(part, expected) != expected:
            log.warning(
                "%s: %s has %s records, expected %s", name, part, f"{counts[part]:,}", f"{expected:,}"
            )
    return corpus


def open_data(id: str, cache_dir: str | Path | None = None, **settings: Any) -> tuple[Corpus, Split]:
    """Open a split of a published data set by its id, such as citerec/neurips2025-lcr/test.

    Raises InputError for another id. settings: of `open_published`.
    """
    parts = id.split("/")
    if len(parts) != 3 or parts[0] != PREFIX or parts[1] not in CORPORA or parts[2] not in SPLITS:
        ids = ", ".join(f"{PREFIX}/{name}" for name in CORPORA)
        raise InputError(f"{id}: no such data; ids are {ids}, and /train, /val or /test")
    corpus = open_published(parts[1], cache_dir=cache_dir, **settings)
    return corpus, corpus.split(parts[2])


def open_published_papers(
    name: str, address: str | None = None, cache_dir: str | Path | None = None, **settings: Any
) -> Corpus:
    """Open a published collection of query papers with `open_papers`; download it on first use.

    name: a key of RELEASES with papers.jsonl and queries.json. Otherwise like `open_papers`.
    """
    from citerec.datasets.citations.queries import open_papers
    from citerec.datasets.splitting import YearSplitting

    folder = ensure_release(name, cache_dir, address=address)
    papers, queries = find_file(folder, "papers.jsonl"), find_file(folder, "queries.json")
    no_years = YearSplitting(None, None, None)  # the file says which papers are queries
    return open_papers(papers, no_years, queries, name=name, cache_dir=cache_dir, **settings)


@dataclass(frozen=True, kw_only=True)
class DownloadSettings(Settings):
    """Download published data sets, word vectors and checkpoints into the cache."""

    positional: ClassVar[str] = "names"
    names: tuple[str, ...] = setting(MISSING, choices=tuple(RELEASES))
    """what to download, listed below (e.g. acl200)"""
    cache_dir: str = ""
    """cache folder; empty: $CITATION_CACHE, or else that of the user"""
    address: str = ""
    """address to use instead, for a single name: an archive, a Google Drive folder, http://.../ with the
    files, or, for a data set built from repositories, a server that has them as OWNER/NAME"""


def download_releases(settings: DownloadSettings) -> None:
    """Download releases and print their folders."""
    if settings.address and len(settings.names) > 1:
        raise InputError("address: give a single name with it")
    cache = cache_folder(settings.cache_dir)
    for name in settings.names:
        print(f"{name}: {ensure_release(name, cache, address=settings.address or None)}")


def _releases_help() -> str:
    """Return the table of what can be downloaded."""
    rows = (
        f"  {name:<18} {release.download_size:<14} {release.folder_in()!s:<34} {release.description}"
        for name, release in RELEASES.items()
    )
    return "\n".join(["", "Names, download sizes and folders:", *rows])


main = command("data download", DownloadSettings, download_releases, _releases_help)
