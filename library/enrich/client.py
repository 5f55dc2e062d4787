"""Asking a service: requests at its rate, retries after faults and limits, and a cache of its answers.

Addresses with a key are never shown. A repeated run asks nothing that is in the cache.
"""

from __future__ import annotations

import logging
import random
import sqlite3
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from pathlib import Path

import httpx2
import msgspec

from citerec.base.errors import InputError, error_text
from citerec.formats.bibliography.paper import LibraryPaper
from citerec.library.enrich.services import TITLE, Answers, Lookup, Service

ATTEMPTS = 5
TIMEOUT = 30.0
"""Seconds to wait for a connection or for more of an answer."""
LONGEST_ANSWER = 300.0
"""Seconds that an answer may take."""
LARGEST_ANSWER = 1 << 26
"""Bytes."""
LONGEST_PAUSE = 300.0
"""Seconds that a service may ask to wait; one that asks for more is left for another day."""
FIRST_PAUSE = 1.0
"""Seconds before the second attempt; doubled before each further one."""
MANY_REJECTED = 3
"""Lookups rejected before any is answered, after which the service must be the cause."""
AGENT = "citerec (local citation recommendation)"
_REJECTED = (400, 404, 413, 414, 422)
_REFUSED = (401, 402)
_NONE_KNOWN = b"No valid paper ids given"
"""Semantic Scholar's answer, with status 400, to identifiers none of which it knows."""
_UNREADABLE = (InputError, ValueError, TypeError, AttributeError, LookupError)
"""What is raised for answers of another shape."""

FILE = "enrichment.sqlite"
"""In the library's folder."""
VERSION = 3
_DAY = 86_400
_WORKS = msgspec.msgpack.Decoder(list[LibraryPaper])

logging.getLogger("httpx2").setLevel(logging.WARNING)  # otherwise it logs addresses, with keys


class Unavailable(Exception):
    """A service that does not answer for now; the message is the reason."""


class _Rejected(Exception):
    """A request that the service will never answer; the message is its status."""


class Client:
    """Asks one service, one request at a time. requests: how many were sent."""

    def __init__(self, service: Service) -> None:
        self.service, self.requests = service, 0
        self._answered, self._rejected = 0, 0
        agent = f"{AGENT}; mailto:{service.mailto}" if service.mailto else AGENT
        self._http = httpx2.Client(headers={"User-Agent": agent, **service.headers}, timeout=TIMEOUT)
        self._next = 0.0

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self._http.close()

    def ask(self, lookups: Sequence[Lookup]) -> Answers:
        """Return the works that fit each lookup. Raises Unavailable.

        If one of several lookups is why a request is rejected, the others are answered.
        """
        try:
            return self._answer(lookups)
        except _Rejected as status:
            if len(lookups) == 1:
                self._rejected += 1
                if not self._answered and self._rejected == MANY_REJECTED:
                    raise Unavailable(f"{status}: rejects all requests") from None
                return {lookups[0]: []}
            middle = len(lookups) // 2
            return self.ask(lookups[:middle]) | self.ask(lookups[middle:])

    def _answer(self, lookups: Sequence[Lookup]) -> Answers:
        asked = self.service.request(lookups)
        request = self._http.build_request(
            "GET" if asked.ids is None else "POST",
            self.service.address + asked.path,
            params=asked.parameters,
            json=None if asked.ids is None else {"ids": asked.ids},
        )
        reason, pause = "", 0.0
        for attempt in range(ATTEMPTS):
            if attempt:
                draw = random.Random(f"{self.service.name} {lookups[0]} {attempt}").random()
                self._pause(max(pause, FIRST_PAUSE * 2 ** (attempt - 1) * (0.5 + draw)))
            pause = 0.0
            try:
                response, content = self._send(request)
            except httpx2.HTTPError as error:
                reason = _fault(error)
                continue
            status = response.status_code
            if status == HTTPStatus.OK:
                try:
                    answers = self.service.read(lookups, content.decode("utf-8-sig"))
                    self._answered += 1
                    return answers
                except _UNREADABLE:
                    is_page = content.lstrip()[:1] == b"<" and b"<html" in content[:1000].lower()
                    reason = "answers with a web page" if is_page else "answers in an unknown form"
                    continue
            reason = f"HTTP {status}"
            lacks_title = status == HTTPStatus.NOT_FOUND and lookups[0].kind == TITLE
            if (lacks_title and self.service.lacks_by_404) or _NONE_KNOWN in content:
                return {lookup: [] for lookup in lookups}
            if status in _REJECTED:
                raise _Rejected(reason)
            if status in _REFUSED:
                raise Unavailable(f"{reason}: refuses the key")
            pause = _retry_after(response.headers)
            if pause > LONGEST_PAUSE:
                raise Unavailable(f"{reason}: asks to wait {duration(pause)}")
        raise Unavailable(f"{reason} ({ATTEMPTS} attempts)")

    def _send(self, request: httpx2.Request) -> tuple[httpx2.Response, bytes]:
        """Return a response and its content. Raises httpx2.HTTPError."""
        if (wait := self._next - time.monotonic()) > 0:
            self._pause(wait)
        self._next, self.requests = time.monotonic() + self.service.interval, self.requests + 1
        response = self._http.send(request, stream=True)
        try:
            content, end = bytearray(), time.monotonic() + LONGEST_ANSWER
            for part in response.iter_bytes():  # as they come: it may wait for parts of a fixed size
                content += part
                if len(content) > LARGEST_ANSWER or time.monotonic() > end:
                    raise httpx2.DecodingError("an answer without end", request=request)
        finally:
            response.close()
        return response, bytes(content)

    def _pause(self, seconds: float) -> None:
        time.sleep(seconds)


def duration(seconds: float) -> str:
    """Return about how long something takes.

    >>> duration(40), duration(600), duration(36000), duration(1e30)
    ('40 s', '10 minutes', '10 hours', 'more than a week')
    """
    if seconds < 6000:
        return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} minutes"
    return f"{seconds / 3600:.0f} hours" if seconds < 7 * _DAY else "more than a week"


def _fault(error: httpx2.HTTPError) -> str:
    """Describe a fault without the address, which may have a key."""
    match error:
        case httpx2.ConnectError():
            return "no connection"
        case httpx2.TimeoutException():
            return f"no answer within {TIMEOUT:g} s"
        case httpx2.DecodingError():
            return "sends an answer that is damaged or too large"
    return "the connection broke"


def _retry_after(headers: Mapping[str, str]) -> float:
    """Return the seconds to wait by a Retry-After header (RFC 9110, 10.2.3): a number or a date; else 0.

    >>> _retry_after({"Retry-After": "7"}), _retry_after({"Retry-After": "soon"})
    (7.0, 0.0)
    """
    value = headers.get("Retry-After", "").strip()
    if value.isdecimal():
        return float(value)
    try:
        return max(parsedate_to_datetime(value).timestamp() - time.time(), 0.0)
    except ValueError:
        return 0.0


# The cache.


class AnswerCache:
    """Works by service and lookup; an empty list: asked and not found. Each `put` is kept at once.

    max_age: days after which an answer is forgotten. Raises InputError for a damaged file.
    """

    def __init__(self, path: Path, max_age: int) -> None:
        self.path, self._oldest = path, max(int(time.time()) // _DAY - max_age, 0)
        with self._errors():
            self._database = sqlite3.connect(path, isolation_level=None)
            [(version,)] = self._database.execute("PRAGMA user_version")
            if version != VERSION:
                self._database.execute("DROP TABLE IF EXISTS answers")
                self._database.execute(f"PRAGMA user_version = {VERSION}")
            self._database.execute(
                "CREATE TABLE IF NOT EXISTS answers (service TEXT, lookup TEXT, day INTEGER, works BLOB, "
                "PRIMARY KEY (service, lookup)) WITHOUT ROWID"
            )

    def close(self) -> None:
        self._database.close()

    def get(self, service: str, lookup: Lookup) -> list[LibraryPaper] | None:
        """Return the works that a service has answered; None if it was not asked, or too long ago."""
        with self._errors():
            row = self._database.execute(
                "SELECT works FROM answers WHERE service = ? AND lookup = ? AND day >= ?",
                (service, _name(lookup), self._oldest),
            ).fetchone()
            return _WORKS.decode(row[0]) if row else None

    def put(self, service: str, answers: Answers) -> None:
        day = int(time.time()) // _DAY
        rows = [
            (service, _name(lookup), day, msgspec.msgpack.encode(works)) for lookup, works in answers.items()
        ]
        with self._errors(), self._database:
            self._database.execute("BEGIN IMMEDIATE")
            self._database.executemany("INSERT OR REPLACE INTO answers VALUES (?, ?, ?, ?)", rows)

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, msgspec.DecodeError) as error:
            raise InputError(
                f"{self.path}: cannot be used ({error_text(error)}); remove it to ask the services anew"
            ) from None


def _name(lookup: Lookup) -> str:
    return msgspec.json.encode(lookup).decode()
