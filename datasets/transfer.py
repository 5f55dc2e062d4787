"""One file over HTTP: resumed from where it was cut off, if it is still the same file (RFC 9110, section 14).

Beside the target NAME stand `NAME.part`, what has come so far, and `NAME.json`, of which file it is.
"""

from __future__ import annotations

import json
import logging
import re
import shutil
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

import requests
from requests.exceptions import ContentDecodingError, ProxyError, RequestException, SSLError, TooManyRedirects

from datasets import drive
from datasets.errors import InputError, Unusable
from datasets.progress import moving

log = logging.getLogger(__name__)

TIMEOUT = 30.0  # seconds without a byte
ATTEMPTS = 5  # in a row that bring nothing new
PAUSE = 1.0  # seconds before the next attempt, doubled for each that brought nothing
CHUNK = 1 << 14  # what may be lost of an answer that is cut

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
        if drive.is_file(address):
            response = drive.answer(session, address, headers, TIMEOUT)
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
        page = next(response.iter_content(CHUNK), b"").decode("utf-8", "replace")
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
        yield from response.iter_content(CHUNK)
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
