"""Files from elsewhere: over HTTP with resume, from Google Drive, and out of archives."""

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

from datasets.errors import InputError, UnusableFile
from datasets.progress import copy_progress

log = logging.getLogger(__name__)

TIMEOUT = 30.0
"""Seconds without a byte."""
ATTEMPTS = 5
"""In a row that bring nothing new."""
PAUSE = 1.0
"""Seconds before the next attempt, doubled for each that brought nothing."""
CHUNK = 1 << 14
"""Bytes that may be lost when the connection breaks."""
OK, PARTIAL, OUT_OF_RANGE = 200, 206, 416
TEMPORARY = (408, 429, 500, 502, 503, 504)
HTML = (b"<!doctype html", b"<html")
Version = dict[str, Any]


class TransferInterrupted(Exception):
    """An attempt ended before the file did; the message is the reason."""


def fetch(address: str, target: Path, size: int | None = None) -> None:
    """Download the file at `address` to `target`; `size`: its number of bytes, if known.

    Resumes where an earlier call was cut off, if the server still has the same file, and does nothing if that
    call completed. Raises Unusable with the reason if the file cannot be had, InputError if the disk has no
    room for it, OSError if it cannot be written.
    """
    part, note = _part_and_note(target)
    if target.exists() and _noted(note, address):
        return
    failures, answered = 0, False
    with requests.Session() as session:
        while True:
            before, version = _size(part), _noted(note, address)
            if version and not (version.get("tag") or version.get("modified")):
                version = None
            try:
                if not (version and before and before == version.get("total")):
                    with _answer(session, address, before if version else 0) as answer:
                        answered = True
                        _receive(answer, address, target, version, size)
                break
            except PERMANENT as error:
                raise UnusableFile(failure_reason(error)) from None
            except (TransferInterrupted, RequestException) as error:
                if not answered and isinstance(error, RequestException):
                    raise UnusableFile(failure_reason(error)) from None
                failures = failures + 1 if _size(part) <= before else 0
                if failures >= ATTEMPTS:
                    kept = "; the part that arrived is kept" if _size(part) else ""
                    raise UnusableFile(f"{failure_reason(error)}, {ATTEMPTS} times in a row{kept}") from None
                log.info("%s: %s; retrying", address, failure_reason(error))
            time.sleep(PAUSE * 2**failures)
    part.replace(target)


def discard_download(target: Path) -> None:
    """Remove what `fetch` has left at and beside the target."""
    for path in (target, *_part_and_note(target)):
        path.unlink(missing_ok=True)


def _part_and_note(target: Path) -> tuple[Path, Path]:
    """What has arrived of a file so far, and the version of the file that it belongs to."""
    return target.with_name(f"{target.name}.part"), target.with_name(f"{target.name}.json")


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _noted(note: Path, address: str) -> Version | None:
    """The version noted, if it is of a file at this address."""
    with suppress(FileNotFoundError, ValueError):
        version = json.loads(note.read_text("utf-8"))
        if isinstance(version, dict) and version.get("address") == address:
            return version
    return None


def _answer(session: requests.Session, address: str, start: int) -> requests.Response:
    """The server's answer with the file from byte `start` on, or that it cannot give that part."""
    # Ranges count the bytes that are sent.
    headers = {"Accept-Encoding": "identity"} | ({"Range": f"bytes={start}-"} if start else {})
    get = _from_drive if address.startswith(DRIVE) and not is_drive_folder(address) else _get
    answer = get(session, address, headers)
    if answer.status_code in (OK, PARTIAL, OUT_OF_RANGE):
        return answer
    answer.close()
    said = f"HTTP {answer.status_code}{f' ({answer.reason})' if answer.reason else ''}"
    raise TransferInterrupted(said) if answer.status_code in TEMPORARY else UnusableFile(said)


def _get(session: requests.Session, address: str, headers: dict[str, str]) -> requests.Response:
    return session.get(address, headers=headers, stream=True, timeout=TIMEOUT)


def _is_page(answer: requests.Response) -> bool:
    return answer.headers.get("Content-Type", "").startswith("text/html")


def _receive(
    answer: requests.Response, address: str, target: Path, noted: Version | None, size: int | None
) -> None:
    """Append the answer to the part if it is the rest of the `noted` version, else start over."""
    part, note = _part_and_note(target)
    version, have = _version(answer, address), _size(part) if noted else 0
    starts_there = answer.headers.get("Content-Range", "").startswith(f"bytes {have}-")
    resumed = bool(have) and answer.status_code == PARTIAL and version == noted and starts_there
    if not resumed and answer.status_code != OK:
        part.unlink(missing_ok=True)
        note.unlink(missing_ok=True)
        raise TransferInterrupted("the file changed after its first part was downloaded")
    have, total = have if resumed else 0, version["total"]
    chunks = answer.iter_content(CHUNK)
    first = next(chunks, b"")
    if _is_page(answer) or (not have and first.lstrip()[:14].lower().startswith(HTML)):
        found = re.search("<title>([^<]{1,100})", first.decode("utf-8", "replace"), re.IGNORECASE)
        title = f" ({' '.join(found[1].split())})" if found else ""
        raise UnusableFile(f"the server sends a web page in place of the file{title}")
    if size is not None and total not in (None, size):
        raise UnusableFile(f"the server offers {total:,} bytes, the published file has {size:,}")
    need_space(part.parent, (total or 0) - have)
    megabytes = "" if total is None else f" ({total / 1e6:,.1f} MB)"
    log.info("%s %s%s", "resuming" if resumed else "downloading", address, megabytes)
    if not resumed:
        part.unlink(missing_ok=True)
        note.write_text(json.dumps(version), "utf-8")
    with copy_progress(f"downloading {part.stem}") as report, part.open("ab") as file:
        for chunk in chain([first], chunks):
            file.write(chunk)
            have += len(chunk)
            report(have, total)
    expected = size if total is None else total
    if expected is not None and have != expected:
        raise TransferInterrupted(f"the download ended after {have:,} of {expected:,} bytes")


def _version(answer: requests.Response, address: str) -> Version:
    """What the headers tell of the whole file (RFC 9110); nothing of one that is compressed in transit."""
    headers, total = answer.headers, answer.headers.get("Content-Length", "")
    if headers.get("Content-Encoding", "identity") != "identity":
        return {"address": address, "tag": None, "modified": None, "total": None}
    if answer.status_code == PARTIAL:
        total = headers.get("Content-Range", "").rpartition("/")[2]
    version = {"address": address, "tag": headers.get("ETag"), "modified": headers.get("Last-Modified")}
    return version | {"total": int(total) if total.isdecimal() else None}


def need_space(folder: Path, size: int) -> None:
    """InputError unless the disk has room for `size` more bytes."""
    if size > (free := shutil.disk_usage(folder).free):
        raise InputError(
            f"{folder}: {size / 1e6:,.0f} MB are needed and {free / 1e6:,.0f} MB are free; free some or "
            "choose another folder"
        )


PERMANENT = (TooManyRedirects, SSLError, ContentDecodingError, ValueError)
REASONS = {
    TooManyRedirects: "it redirects in circles",
    SSLError: "no secure connection",
    ProxyError: "the proxy refuses the connection",
    ContentDecodingError: "the compressed data are damaged",
    ValueError: "not a web address (http:// or https://)",
}


def failure_reason(error: Exception) -> str:
    """Why a download failed, in a few words."""
    text = str(error)
    if isinstance(error, TransferInterrupted):
        return text
    if known := next((words for kind, words in REASONS.items() if isinstance(error, kind)), None):
        return known
    if "timed out" in text:
        return f"no answer within {TIMEOUT:g} s"
    found = re.findall(r"\[Errno -?\d+\] ([^\[\]'\")]+)", text)
    return f"no connection ({found[-1].strip()})" if found else "the connection was cut"


DRIVE = "https://drive.google.com/"
DRIVE_FILE = f"{DRIVE}uc?id="
_DRIVE_FOLDER = re.compile(r"https://drive\.google\.com/drive/(?:u/\d+/)?folders/([-\w]+)")
# Drive sends other pages to other programs; gdown, which parses them, calls itself this.
BROWSER = (
    "Mozilla/5.0 (Macintosh; Intel Mac OS X 10_10_1) AppleWebKit/537.36 (KHTML, like Gecko) "
    "Chrome/39.0.2171.95 Safari/537.36"
)
CONFIRMATIONS = 3
"""Pages before a file at most; there is one for files too large for Drive's virus scan."""


def is_drive_folder(address: str) -> bool:
    return _DRIVE_FOLDER.match(address) is not None


def drive_listing(address: str) -> dict[str, str]:
    """{path: address} of the files in a shared folder of Google Drive and in its subfolders.

    Raises Unusable with the reason, or what requests raises.
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
    except Exception as error:  # gdown fails in many ways on pages that it does not know
        raise UnusableFile(_plain(error)) from None
    files = {str(file.path): f"{DRIVE_FILE}{file.id}" for file in found if not isinstance(file, str)}
    if not files:
        raise UnusableFile("the folder is empty, or not shared")
    return files


def _from_drive(session: requests.Session, address: str, headers: dict[str, str]) -> requests.Response:
    """Drive's answer with the file itself, past the pages that ask for a confirmation."""
    from gdown.download import get_url_from_gdrive_confirmation
    from gdown.parse_url import parse_url

    identity, _ = parse_url(url=address)
    url = f"{DRIVE_FILE}{identity}" if identity else address
    session.headers["User-Agent"] = BROWSER
    whole = {key: value for key, value in headers.items() if key != "Range"}
    for _ in range(CONFIRMATIONS):
        # A range is requested only of the file: a page may be shorter than its start.
        answer = _get(session, url, whole)
        if not answer.ok or (not _is_page(answer) and headers == whole):
            return answer
        with answer:
            if not _is_page(answer):
                return _get(session, url, headers)
            page = next(answer.iter_content(1 << 20), b"").decode("utf-8", "replace")
        try:
            url = get_url_from_gdrive_confirmation(page)
        except Exception as error:  # as above
            raise UnusableFile(f"Google Drive sends a page in place of the file: {_plain(error)}") from None
    raise UnusableFile("Google Drive asks for confirmation again and again")


def _plain(error: Exception) -> str:
    return re.sub(r"<[^>]*>", "", " ".join(str(error).split()))[:200] or type(error).__name__


DAMAGED = (
    zipfile.BadZipFile, tarfile.TarError, zlib.error, lzma.LZMAError, EOFError, ValueError, struct.error,
)  # fmt: skip
"""What a damaged archive raises."""
SHOWN = 8


class Member(NamedTuple):
    """A regular file in an archive."""

    path: str
    size: int
    open: Callable[[], IO[bytes]]


def unpack(archive: Path, wanted: Iterable[str], folder: Path, matches: str = "") -> list[Path]:
    """Write those of the `wanted` files that a zip or tar archive has into `folder`; returns their paths.

    Raises Unusable with the reason if it is no archive or a damaged one, has paths out of its folder, has a
    file more than once, or has none of them; InputError if the disk has no room for them.
    """
    with _members(archive) as members:
        for path in (member.path for member in members):
            parts = PurePosixPath(path.replace("\\", "/"))
            if parts.is_absolute() or ".." in parts.parts or re.match(r"[A-Za-z]:", path):
                raise UnusableFile(f"refused: its path {path[:100]!r} leads out of the folder")
        by_path = {member.path: member for member in members}
        chosen = [by_path[path] for path in pick_files(list(by_path), wanted, matches).values()]
        if not chosen:
            raise UnusableFile(f"it contains none of the files, but {list_names(by_path)}")
        total = sum(member.size for member in chosen)
        need_space(folder, total)
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
def _members(archive: Path) -> Iterator[list[Member]]:
    """The regular files in an archive; damage becomes Unusable, here and while they are read."""
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
            raise UnusableFile("it is no zip or tar archive, or is cut short")
    except DAMAGED as error:
        raise UnusableFile(f"the archive is damaged ({error or type(error).__name__})") from None
    except (RuntimeError, NotImplementedError) as error:  # encrypted, or packed in a way unknown to Python
        raise UnusableFile(f"the archive cannot be unpacked ({error})") from None
    except OSError as error:
        if error.errno is None:  # from gzip and bz2, about their data
            raise UnusableFile(f"the archive is damaged ({error})") from None
        raise


def pick_files(paths: Sequence[str], wanted: Iterable[str], matches: str = "") -> dict[str, str]:
    """{wanted name: its path} for those that are there, plain rather than gzipped.

    Of several, those whose path `matches` are preferred, then those nearest to the root; Unusable if that
    does not decide.

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
            raise UnusableFile(f"it contains {name} more than once: {list_names(found)}")
        if found:
            chosen[name] = found[0]
    return chosen


def name_variants(file: str) -> tuple[str, ...]:
    """The names of a file that may be gzipped."""
    return (file, f"{file}.gz") if file.endswith((".json", ".jsonl", ".txt")) else (file,)


def list_names(names: Iterable[str]) -> str:
    """The first of the names, printable, and how many more there are."""
    shown = ["".join(letter if letter.isprintable() else "?" for letter in name)[:100] for name in names]
    more = f" and {len(shown) - SHOWN} more" if len(shown) > SHOWN else ""
    return (", ".join(shown[:SHOWN]) or "nothing") + more
