"""Download files over HTTP with resume or from Google Drive, and unpack archives."""

from __future__ import annotations

import json
import logging
import lzma
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
from functools import partial
from itertools import chain
from pathlib import Path, PurePosixPath
from typing import IO, Any, NamedTuple, cast

import requests
from requests.exceptions import ContentDecodingError, ProxyError, RequestException, SSLError, TooManyRedirects

from citerec.datasets.errors import InputError, UnusableFile
from citerec.datasets.progress import copy_progress

log = logging.getLogger(__name__)

TIMEOUT = 30.0
"""Seconds to wait for data."""
ATTEMPTS = 5
"""Maximum number of consecutive attempts without progress."""
PAUSE = 1.0
"""Seconds before the next attempt, doubled after each attempt without progress."""
CHUNK = 1 << 14
"""Bytes per write; at most this many are lost when the connection breaks."""
OK, PARTIAL, OUT_OF_RANGE = 200, 206, 416
TEMPORARY = (408, 429, 500, 502, 503, 504)
HTML = (b"<!doctype html", b"<html")
Version = dict[str, Any]


class TransferInterrupted(Exception):
    """An attempt ended before the file was complete; the message is the reason."""


def fetch(address: str, target: Path, size: int | None = None) -> None:
    """Download the file at `address` to `target`. size: expected number of bytes, if known.

    Resumes an interrupted download if the file on the server is unchanged; does nothing if the download is
    complete. Raises UnusableFile with the reason if the download fails, InputError if the disk is too small,
    OSError if the file cannot be written.
    """
    part, version_file = _part_paths(target)
    if target.exists() and _saved_version(version_file, address):
        return
    failures, responded = 0, False
    with requests.Session() as session:
        while True:
            before, version = _size(part), _saved_version(version_file, address)
            if version and not (version.get("tag") or version.get("modified")):
                version = None
            try:
                if not (version and before and before == version.get("total")):
                    with _request(session, address, before if version else 0) as response:
                        responded = True
                        _receive(response, address, target, version, size)
                break
            except PERMANENT as error:
                raise UnusableFile(failure_reason(error)) from None
            except (TransferInterrupted, RequestException) as error:
                if not responded and isinstance(error, RequestException):
                    raise UnusableFile(failure_reason(error)) from None
                failures = failures + 1 if _size(part) <= before else 0
                if failures >= ATTEMPTS:
                    kept = "; the partial download is kept" if _size(part) else ""
                    raise UnusableFile(f"{failure_reason(error)}, {ATTEMPTS} times in a row{kept}") from None
                log.info("%s: %s; retrying", address, failure_reason(error))
            time.sleep(PAUSE * 2**failures)
    part.replace(target)


def discard_download(target: Path) -> None:
    """Remove the target and the partial files of `fetch`."""
    for path in (target, *_part_paths(target)):
        path.unlink(missing_ok=True)


def _part_paths(target: Path) -> tuple[Path, Path]:
    """The partial download of a file, and the JSON file with the version it belongs to."""
    return target.with_name(f"{target.name}.part"), target.with_name(f"{target.name}.json")


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _saved_version(path: Path, address: str) -> Version | None:
    """The saved version, if it is of a file at this address."""
    with suppress(FileNotFoundError, ValueError):
        version = json.loads(path.read_text("utf-8"))
        if isinstance(version, dict) and version.get("address") == address:
            return version
    return None


def _request(session: requests.Session, address: str, start: int) -> requests.Response:
    """Request a file from byte `start` on; the server may respond that the range is not available."""
    # Ranges refer to the bytes as sent, so compression would shift them.
    headers = {"Accept-Encoding": "identity"} | ({"Range": f"bytes={start}-"} if start else {})
    get = _from_drive if address.startswith(DRIVE) and not is_drive_folder(address) else _get
    response = get(session, address, headers)
    if response.status_code in (OK, PARTIAL, OUT_OF_RANGE):
        return response
    response.close()
    status = f"HTTP {response.status_code}" + (f" ({response.reason})" if response.reason else "")
    raise TransferInterrupted(status) if response.status_code in TEMPORARY else UnusableFile(status)


def _get(session: requests.Session, address: str, headers: dict[str, str]) -> requests.Response:
    return session.get(address, headers=headers, stream=True, timeout=TIMEOUT)


def _is_html(response: requests.Response) -> bool:
    return response.headers.get("Content-Type", "").startswith("text/html")


def _receive(
    response: requests.Response, address: str, target: Path, saved: Version | None, size: int | None
) -> None:
    """Append the response to the part if it continues the `saved` version, else start over."""
    part, version_file = _part_paths(target)
    version, have = _response_version(response, address), _size(part) if saved else 0
    starts_there = response.headers.get("Content-Range", "").startswith(f"bytes {have}-")
    resumed = bool(have) and response.status_code == PARTIAL and version == saved and starts_there
    if not resumed and response.status_code != OK:
        part.unlink(missing_ok=True)
        version_file.unlink(missing_ok=True)
        raise TransferInterrupted("the file changed after its first part was downloaded")
    have, total = have if resumed else 0, version["total"]
    chunks = response.iter_content(CHUNK)
    first = next(chunks, b"")
    if _is_html(response) or (not have and first.lstrip()[:14].lower().startswith(HTML)):
        found = re.search("<title>([^<]{1,100})", first.decode("utf-8", "replace"), re.IGNORECASE)
        title = f" ({' '.join(found[1].split())})" if found else ""
        raise UnusableFile(f"the server sent a web page instead of the file{title}")
    if size is not None and total not in (None, size):
        raise UnusableFile(f"the server has {total:,} bytes, but the published file has {size:,}")
    check_free_space(part.parent, (total or 0) - have)
    megabytes = "" if total is None else f" ({total / 1e6:,.1f} MB)"
    log.info("%s %s%s", "resuming" if resumed else "downloading", address, megabytes)
    if not resumed:
        part.unlink(missing_ok=True)
        version_file.write_text(json.dumps(version), "utf-8")
    with copy_progress(f"downloading {part.stem}") as report, part.open("ab") as file:
        for chunk in chain([first], chunks):
            file.write(chunk)
            have += len(chunk)
            report(have, total)
    expected = size if total is None else total
    if expected is not None and have != expected:
        raise TransferInterrupted(f"the download ended after {have:,} of {expected:,} bytes")


def _response_version(response: requests.Response, address: str) -> Version:
    """The version of the complete file by its headers (RFC 9110); unknown if compressed in transit."""
    headers, total = response.headers, response.headers.get("Content-Length", "")
    if headers.get("Content-Encoding", "identity") != "identity":
        return {"address": address, "tag": None, "modified": None, "total": None}
    if response.status_code == PARTIAL:
        total = headers.get("Content-Range", "").rpartition("/")[2]
    version = {"address": address, "tag": headers.get("ETag"), "modified": headers.get("Last-Modified")}
    return version | {"total": int(total) if total.isdecimal() else None}


def check_free_space(folder: Path, size: int) -> None:
    """Raise InputError unless the disk has room for `size` more bytes."""
    if size > (free := shutil.disk_usage(folder).free):
        raise InputError(
            f"{folder}: needs {size / 1e6:,.0f} MB, but only {free / 1e6:,.0f} MB are free; free some space "
            "or choose another folder"
        )


PERMANENT = (TooManyRedirects, SSLError, ContentDecodingError, ValueError)
REASONS = {
    TooManyRedirects: "too many redirects",
    SSLError: "no secure connection",
    ProxyError: "the proxy refused the connection",
    ContentDecodingError: "the compressed data are damaged",
    ValueError: "not an http:// or https:// URL",
}


def failure_reason(error: Exception) -> str:
    """Why a download failed, in a few words."""
    text = str(error)
    if isinstance(error, TransferInterrupted | UnusableFile):
        return text
    if known := next((words for kind, words in REASONS.items() if isinstance(error, kind)), None):
        return known
    if "timed out" in text:
        return f"no response within {TIMEOUT:g} s"
    found = re.findall(r"\[Errno -?\d+\] ([^\[\]'\")]+)", text)
    return f"no connection ({found[-1].strip()})" if found else "connection lost"


DRIVE = "https://drive.google.com/"
DRIVE_FILE = f"{DRIVE}uc?id="
_DRIVE_FOLDER = re.compile(r"https://drive\.google\.com/drive/(?:u/\d+/)?folders/([-\w]+)")
# Drive's pages depend on the user agent; gdown, which parses them, uses this one.
BROWSER = (
    "Mozilla/5.0 (Macintosh; Intel Mac OS X 10_10_1) AppleWebKit/537.36 (KHTML, like Gecko) "
    "Chrome/39.0.2171.95 Safari/537.36"
)
MAX_CONFIRMATIONS = 3
"""Maximum number of pages before a file; files too large for Drive's virus scan have one."""


def is_drive_folder(address: str) -> bool:
    return _DRIVE_FOLDER.match(address) is not None


def drive_listing(address: str) -> dict[str, str]:
    """List a shared Google Drive folder and its subfolders as {path: address}.

    Raises UnusableFile with the reason, or RequestException.
    """
    import gdown

    folder = _DRIVE_FOLDER.match(address)
    assert folder is not None, address
    try:
        found = gdown.download_folder(
            id=folder[1], quiet=True, use_cookies=False, skip_download=True, timeout=TIMEOUT
        )
    except RequestException:
        raise
    except Exception as error:  # gdown fails in many ways on unknown pages
        raise UnusableFile(_one_line(error)) from None
    files = {str(file.path): f"{DRIVE_FILE}{file.id}" for file in found if not isinstance(file, str)}
    if not files:
        raise UnusableFile("the folder is empty or not shared")
    return files


def _from_drive(session: requests.Session, address: str, headers: dict[str, str]) -> requests.Response:
    """Request a file from Google Drive, following its confirmation pages."""
    from gdown.download import get_url_from_gdrive_confirmation
    from gdown.parse_url import parse_url

    file_id, _ = parse_url(url=address)
    url = f"{DRIVE_FILE}{file_id}" if file_id else address
    session.headers["User-Agent"] = BROWSER
    no_range = {key: value for key, value in headers.items() if key != "Range"}
    for _ in range(MAX_CONFIRMATIONS):
        # Request the range only for the file itself: a page may be shorter than its start.
        response = _get(session, url, no_range)
        if not response.ok or (not _is_html(response) and headers == no_range):
            return response
        with response:
            if not _is_html(response):
                return _get(session, url, headers)
            page = next(response.iter_content(1 << 20), b"").decode("utf-8", "replace")
        try:
            url = get_url_from_gdrive_confirmation(page)
        except Exception as error:  # as above
            raise UnusableFile(f"Google Drive sent a page instead of the file: {_one_line(error)}") from None
    raise UnusableFile("Google Drive keeps asking for confirmation")


def _one_line(error: Exception) -> str:
    return re.sub(r"<[^>]*>", "", " ".join(str(error).split()))[:200] or type(error).__name__


DAMAGED = (
    zipfile.BadZipFile, tarfile.TarError, zlib.error, lzma.LZMAError, EOFError, ValueError, struct.error,
)  # fmt: skip
"""Exceptions that a damaged archive raises."""
MAX_LISTED = 8


class Member(NamedTuple):
    """A regular file in an archive."""

    path: str
    size: int
    open: Callable[[], IO[bytes]]


def unpack(archive: Path, wanted: Iterable[str], folder: Path, matches: str = "") -> list[Path]:
    """Extract the `wanted` files that a zip or tar archive contains into `folder`; return their paths.

    Raises UnusableFile with the reason if the file is not an archive, is damaged, has paths outside its
    folder, has a wanted file more than once or has none of them; InputError if the disk is too small.
    """
    with _open_members(archive) as members:
        for path in (member.path for member in members):
            parts = PurePosixPath(path.replace("\\", "/"))
            if parts.is_absolute() or ".." in parts.parts or re.match(r"[A-Za-z]:", path):
                raise UnusableFile(f"unsafe archive: the path {path[:100]!r} is outside its folder")
        by_path = {member.path: member for member in members}
        chosen = [by_path[path] for path in pick_files(list(by_path), wanted, matches).values()]
        if not chosen:
            raise UnusableFile(f"contains none of the files, only {format_names(by_path)}")
        total = sum(member.size for member in chosen)
        check_free_space(folder, total)
        done, written = 0, []
        with copy_progress(f"unpacking {archive.name}") as report:
            for member in chosen:
                written.append(folder / PurePosixPath(member.path).name)
                with member.open() as source, written[-1].open("wb") as file:
                    while chunk := source.read(1 << 20):
                        file.write(chunk)
                        done += len(chunk)
                        report(done, total)
    return written


@contextmanager
def _open_members(archive: Path) -> Iterator[list[Member]]:
    """The regular files in an archive; damage raises UnusableFile, here and while they are read."""
    try:
        if zipfile.is_zipfile(archive):
            with zipfile.ZipFile(archive) as packed:
                yield [
                    Member(info.filename, info.file_size, partial(packed.open, info))
                    for info in packed.infolist()
                    if not info.is_dir() and not stat.S_ISLNK(info.external_attr >> 16)
                ]
        elif tarfile.is_tarfile(archive):
            with tarfile.open(archive) as tar:
                yield [
                    Member(
                        info.name, info.size, cast(Callable[[], IO[bytes]], partial(tar.extractfile, info))
                    )
                    for info in tar.getmembers()
                    if info.isreg()
                ]
        else:
            raise UnusableFile("not a zip or tar archive, or truncated")
    except DAMAGED as error:
        raise UnusableFile(f"the archive is damaged ({error or type(error).__name__})") from None
    except (RuntimeError, NotImplementedError) as error:  # encrypted or an unsupported compression method
        raise UnusableFile(f"the archive cannot be unpacked ({error})") from None
    except OSError as error:
        if error.errno is None:  # gzip and bz2 report damaged data this way
            raise UnusableFile(f"the archive is damaged ({error})") from None
        raise


def pick_files(paths: Sequence[str], wanted: Iterable[str], matches: str = "") -> dict[str, str]:
    """Find the wanted names among `paths` as {name: path}; plain files are preferred to gzipped ones.

    Of several candidates, paths that match `matches` win, then those nearest to the root; raises UnusableFile
    if this leaves more than one.

    >>> pick_files(["acl/papers.json", "old/acl/papers.json", "arxiv/papers.json"], ["papers.json"], "acl")
    {'papers.json': 'acl/papers.json'}
    """
    chosen: dict[str, str] = {}
    for name in wanted:
        named = [[path for path in paths if PurePosixPath(path).name == like] for like in name_variants(name)]
        found = next(filter(None, named), [])
        found = [path for path in found if re.search(matches, path, re.IGNORECASE)] or found
        depth = min((path.count("/") for path in found), default=0)
        found = [path for path in found if path.count("/") == depth]
        if len(found) > 1:
            raise UnusableFile(f"contains {name} more than once: {format_names(found)}")
        if found:
            chosen[name] = found[0]
    return chosen


def name_variants(file: str) -> tuple[str, ...]:
    """The name of a file, and its gzipped name if it may be gzipped."""
    return (file, f"{file}.gz") if file.endswith((".json", ".jsonl", ".txt")) else (file,)


def format_names(names: Iterable[str]) -> str:
    """The first few names without control characters, plus a count of the rest."""
    printable = ["".join(letter if letter.isprintable() else "?" for letter in name)[:100] for name in names]
    more = f" and {len(printable) - MAX_LISTED} more" if len(printable) > MAX_LISTED else ""
    return (", ".join(printable[:MAX_LISTED]) or "nothing") + more
