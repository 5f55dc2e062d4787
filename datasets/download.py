"""Download what is published, before it is used: `python -m datasets.download NAME ...`.

Google Drive: what lies in a shared folder, and the file behind its pages; gdown knows how to read them.
One file over HTTP: resumed from where it was cut off, if it is still the same file (RFC 9110, section 14).
The wanted files out of an archive and nothing else of it, to places that we choose.
The files of a release, downloaded where they are first used.
The published data sets as corpora, for conf/data.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import logging
import lzma
import os
import re
import shutil
import stat
import struct
import tarfile
import time
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from fnmatch import fnmatch
from functools import partial
from pathlib import Path, PurePosixPath
from typing import IO, TYPE_CHECKING, NamedTuple, cast
from zipfile import ZipFile

import requests
from requests.exceptions import ContentDecodingError, ProxyError, RequestException, SSLError, TooManyRedirects

from datasets.corpus import Corpus
from datasets.errors import InputError, Unusable, one_line_errors
from datasets.files import one_at_a_time, one_line_disk_errors
from datasets.fulltext.readers import read_objects
from datasets.json_stream import read_records
from datasets.prepare import check_split_names, open_corpus
from datasets.progress import moving
from datasets.records import SPLITS
from datasets.releases import RELEASES, Release, spellings

if TYPE_CHECKING:
    import requests

FILE = "https://drive.google.com/uc?id="
FOLDER = re.compile(r"https://drive\.google\.com/drive/(?:u/\d+/)?folders/([-\w]+)")
# Drive answers programs of other names with other pages; this is the name that gdown uses.
BROWSER = (
    "Mozilla/5.0 (Macintosh; Intel Mac OS X 10_10_1) AppleWebKit/537.36 (KHTML, like Gecko) "
    "Chrome/39.0.2171.95 Safari/537.36"
)
PAGES = 3
"""How many pages may stand before a file; one does, for files too large to be scanned for viruses."""
PAGE_BYTES = 1 << 20


def is_folder(address: str) -> bool:
    return FOLDER.match(address) is not None


def is_file(address: str) -> bool:
    return address.startswith("https://drive.google.com/") and not is_folder(address)


def listing(address: str, timeout: float) -> dict[str, str]:
    """{path: address} of the files in a shared folder and the folders in it.

    Raises Unusable with the reason, or what requests raises.
    """
    import gdown
    from requests import RequestException

    folder = FOLDER.match(address)
    assert folder is not None, address
    try:
        found = gdown.download_folder(
            id=folder[1], quiet=True, use_cookies=False, skip_download=True, timeout=timeout
        )
    except RequestException:
        raise
    except Exception as error:  # pages that it does not know make it fail in many ways
        raise Unusable(_one_line(error)) from None
    files = {str(file.path): f"{FILE}{file.id}" for file in found if not isinstance(file, str)}
    if not files:
        raise Unusable("the folder is empty, or not shared")
    return files


def answer(
    session: requests.Session, address: str, headers: dict[str, str], timeout: float
) -> requests.Response:
    """Drive's answer with the file itself, after the page that asks whether one really wants it."""
    from gdown.download import get_url_from_gdrive_confirmation
    from gdown.parse_url import parse_url

    identity, _ = parse_url(url=address)
    url = f"{FILE}{identity}" if identity else address
    session.headers["User-Agent"] = BROWSER
    without_part = {key: value for key, value in headers.items() if key != "Range"}
    for _ in range(PAGES):
        # A part is asked for only once the file is found: the page may be too short to have that part.
        response = session.get(url, headers=without_part, stream=True, timeout=timeout)
        if not response.ok:
            return response
        if not response.headers.get("Content-Type", "").startswith("text/html"):
            if headers == without_part:
                return response
            response.close()
            return session.get(url, headers=headers, stream=True, timeout=timeout)
        with response:
            page = next(response.iter_content(PAGE_BYTES), b"").decode("utf-8", "replace")
        try:
            url = get_url_from_gdrive_confirmation(page)
        except Exception as error:  # the same
            raise Unusable(f"Google Drive shows a page in place of the file: {_one_line(error)}") from None
    raise Unusable("Google Drive asks again and again whether the file is wanted")


def _one_line(error: Exception) -> str:
    text = re.sub(r"<[^>]*>", "", " ".join(str(error).split()))
    return text[:200] or type(error).__name__


log = logging.getLogger(__name__)

TIMEOUT = 30.0  # seconds without a byte
ATTEMPTS = 5  # in a row that bring nothing new
PAUSE = 1.0  # seconds before the next attempt, doubled for each that brought nothing
TRANSFER_CHUNK = 1 << 14  # what may be lost of an answer that is cut

WHOLE, PARTIAL, NO_SUCH_PART = 200, 206, 416
HTML = (b"<!doctype html", b"<html")
PASSING = (408, 429, 500, 502, 503, 504)
"""Statuses of servers that may answer better in a moment."""


class Cut(Exception):
    """An attempt ended before the file did; the message is the reason."""


class Unreachable(Cut):
    """It ended before there was an answer."""


@dataclass(frozen=True)
class Version:
    """Which file an address had when its bytes came; `tag` and `modified` as in the headers of the answer."""

    address: str
    tag: str | None
    modified: str | None
    total: int | None


class Part:
    """What has come of a file so far, and of which version of it."""

    def __init__(self, target: Path) -> None:
        self.path = target.with_name(f"{target.name}.part")
        self.about = target.with_name(f"{target.name}.json")

    def size(self) -> int:
        try:
            return self.path.stat().st_size
        except FileNotFoundError:
            return 0

    def version(self) -> Version | None:
        with suppress(FileNotFoundError, ValueError, TypeError):
            return Version(**json.loads(self.about.read_text("utf-8")))
        return None

    def begin(self, version: Version) -> None:
        self.clear()
        self.about.write_text(json.dumps(asdict(version)), "utf-8")

    def clear(self) -> None:
        self.path.unlink(missing_ok=True)
        self.about.unlink(missing_ok=True)


def fetch(address: str, target: Path, size: int | None = None) -> None:
    """Download the file at `address` to `target`; `size` is its number of bytes where that is known.

    Goes on with the part that an earlier call left, and does nothing after one that came to its end. Raises
    Unusable with the reason when the file is not to be had, InputError when the disk has no room for it,
    OSError when it cannot be written.
    """
    part = Part(target)
    if target.exists() and (before := part.version()) is not None and before.address == address:
        return
    failures, answered = 0, False
    with requests.Session() as session:
        while True:
            size_before = part.size()
            try:
                _attempt(session, address, part, size)
                break
            except Cut as cut:
                answered = answered or not isinstance(cut, Unreachable)
                failures = failures + 1 if part.size() <= size_before else 0
                if not answered:
                    raise Unusable(str(cut)) from None
                if failures >= ATTEMPTS:
                    kept = " (the part that came is kept)" if part.size() else ""
                    raise Unusable(f"{cut}, {ATTEMPTS} times in a row{kept}") from None
                log.info("%s: %s; trying again", address, cut)
            time.sleep(PAUSE * 2**failures)
    part.path.replace(target)


def forget(target: Path) -> None:
    """Remove what `fetch` has left of or beside the target."""
    target.unlink(missing_ok=True)
    Part(target).clear()


def _attempt(session: requests.Session, address: str, part: Part, size: int | None) -> None:
    """Bring the part to its end; Cut when that failed but may work the next time."""
    before = part.version()
    have = 0
    if before is not None and before.address == address and (before.tag or before.modified):
        have = part.size()
        if have == before.total:
            return
    with _answer(session, address, have) as response:
        now = _version(response, address)
        resumed = have > 0 and response.status_code == PARTIAL and now == before and _start(response) == have
        if not resumed and response.status_code != WHOLE:
            part.clear()
            raise Cut("the file is no longer the one whose first part came")
        have = have if resumed else 0
        if size is not None and now.total not in (None, size):
            raise Unusable(f"{now.total:,} bytes are offered where {size:,} were published")
        need_space(part.path.parent, (now.total or 0) - have)
        size_known = "" if now.total is None else f" ({now.total / 1e6:,.1f} MB)"
        log.info("%s %s%s", "going on with" if resumed else "downloading", address, size_known)
        if not resumed:
            part.begin(now)
        with moving(f"downloading {part.path.stem}") as report, part.path.open("ab") as file:
            for chunk in _body(response):
                if have == 0 and chunk.lstrip()[:14].lower().startswith(HTML):
                    raise Unusable("a web page is there in place of the file")
                file.write(chunk)
                have += len(chunk)
                report(have, now.total)
    total = size if now.total is None else now.total
    if total is not None and have != total:
        raise Cut(f"it ended after {have:,} of {total:,} bytes")


def _answer(session: requests.Session, address: str, start: int) -> requests.Response:
    """The server's answer with the file from byte `start` on, or saying that it cannot give that."""
    headers = {"Accept-Encoding": "identity"}  # a range counts the bytes that are sent
    if start:
        headers["Range"] = f"bytes={start}-"
    try:
        if is_file(address):
            response = answer(session, address, headers, TIMEOUT)
        else:
            response = session.get(address, headers=headers, stream=True, timeout=TIMEOUT)
    except (TooManyRedirects, SSLError, ValueError) as error:  # ValueError: no proper address
        raise Unusable(reason(error)) from None
    except RequestException as error:
        raise Unreachable(reason(error)) from None
    status = response.status_code
    if status in (WHOLE, PARTIAL, NO_SUCH_PART):
        if status == NO_SUCH_PART or not response.headers.get("Content-Type", "").startswith("text/html"):
            return response
        with response:
            raise Unusable(f"a web page is there in place of the file{_title(response)}")
    response.close()
    said = f"HTTP {status} ({response.reason})" if response.reason else f"HTTP {status}"
    raise Cut(said) if status in PASSING else Unusable(said)


def _title(response: requests.Response) -> str:
    """The title of a page, if it has one."""
    with suppress(RequestException):
        page = next(response.iter_content(TRANSFER_CHUNK), b"").decode("utf-8", "replace")
        if found := re.search("<title>([^<]{1,100})", page, re.IGNORECASE):
            return f" ({' '.join(found[1].split())})"
    return ""


def _version(response: requests.Response, address: str) -> Version:
    """What the headers say of the whole file; nothing is known of one that is compressed for its way."""
    headers = response.headers
    if headers.get("Content-Encoding", "identity") != "identity":
        return Version(address, None, None, None)
    total = headers.get("Content-Length", "")
    if response.status_code == PARTIAL:
        total = headers.get("Content-Range", "").rpartition("/")[2]
    return Version(
        address, headers.get("ETag"), headers.get("Last-Modified"), int(total) if total.isdecimal() else None
    )


def _start(response: requests.Response) -> int | None:
    """The first byte of a part."""
    found = re.match(r"bytes (\d+)-", response.headers.get("Content-Range", ""))
    return int(found[1]) if found else None


def _body(response: requests.Response) -> Iterator[bytes]:
    try:
        yield from response.iter_content(TRANSFER_CHUNK)
    except ContentDecodingError as error:
        raise Unusable(reason(error)) from None
    except RequestException as error:
        raise Cut(reason(error)) from None


def need_space(folder: Path, size: int) -> None:
    """InputError unless the disk has room for `size` more bytes."""
    free = shutil.disk_usage(folder).free
    if size > free:
        raise InputError(
            f"{folder}: {size / 1e6:,.0f} MB are to be written and {free / 1e6:,.0f} MB are free; "
            "free some or choose another folder"
        )


def reason(error: Exception) -> str:
    """Why there was no answer, or no whole one, in a few words."""
    text = str(error)
    if isinstance(error, TooManyRedirects):
        return "it redirects in circles"
    if isinstance(error, SSLError):
        return "no secure connection to it"
    if isinstance(error, ProxyError):
        return "the proxy does not let it pass"
    if isinstance(error, ContentDecodingError):
        return "its compression is damaged"
    if isinstance(error, ValueError):
        return "not an address of the web (http:// or https://)"
    if "timed out" in text:
        return f"no answer within {TIMEOUT:g} s"
    if found := re.findall(r"\[Errno -?\d+\] ([^\[\]'\")]+)", text):
        return f"no connection ({found[-1].strip()})"
    return "the connection was cut"


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
        if is_folder(address):
            self._fetch_from(listing(address, TIMEOUT))
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


def open_published(
    name: str,
    dir: str | Path | None = None,
    address: str | None = None,
    papers: str | Path | None = None,
    tokenizer: str = "default",
    cache_dir: str | Path = ".cache",
    candidates: str = "abstract",
    splits: Sequence[str] = SPLITS,
    field: str | None = None,
    on_error: str = "raise",
    max_bad_share: float = 0.01,
    backend: str = "local",
) -> Corpus:
    """`open_corpus` of a published data set, which is downloaded on first use.

    name: its key in RELEASES. dir: where its files belong or were put, by default under `cache_dir`. address:
    where to get them in place of the release's own. The rest is as for open_corpus; all the `splits` must be
    there. Warns when the numbers of papers and contexts are not the published ones.
    """
    check_split_names(splits)
    files = [*([] if papers else ["papers.json"]), "contexts.json", *(f"{split}.json" for split in splits)]
    folder = obtain(name, cache_dir, dir, files, address)
    corpus = open_corpus(
        folder,
        papers,
        tokenizer,
        cache_dir,
        candidates,
        splits,
        name,
        field,
        on_error,
        max_bad_share,
        backend,
    )
    found = {"papers": len(corpus.paper_ids)} | {key: len(split) for key, split in corpus.splits.items()}
    for what, expected in RELEASES[name].counts.items():
        if found.get(what, expected) != expected:
            log.warning("%s: %s has %s, %s as published", name, what, f"{found[what]:,}", f"{expected:,}")
    return corpus


def size_of(release: Release) -> str:
    """The size of what is downloaded, for people."""
    if release.size is not None:
        return f"{release.size / 1e6:,.0f} MB"
    return "size unknown" if release.rounded is None else f"about {release.rounded / 1e6:,.0f} MB"


@one_line_errors
def main() -> None:
    cache = os.environ.get("CITATION_CACHE", ".cache")
    table = [
        f"  {name:<18} {size_of(release):<14} {release.place(cache)!s:<34} {release.what}"
        for name, release in RELEASES.items()
    ]
    parser = argparse.ArgumentParser(
        prog="python -m datasets.download",
        description="Download published data sets, word vectors and checkpoints, each once.",
        epilog="names, sizes of the downloads, and where the files belong:\n" + "\n".join(table),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("names", nargs="+", choices=RELEASES, metavar="NAME", help="one of those below")
    parser.add_argument("--cache", default=cache, metavar="DIR", help="cache folder (%(default)s)")
    parser.add_argument("--from", dest="address", metavar="ADDRESS", help="another address, of a single NAME")
    options = parser.parse_args()
    if options.address and len(options.names) > 1:
        parser.error("--from goes with a single NAME")
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    for name in options.names:
        print(f"{name}: {obtain(name, options.cache, address=options.address)}")


if __name__ == "__main__":
    main()
