"""The local API of a running Zotero 7 or later: Zotero's Web API 3, on this machine only.

https://www.zotero.org/support/dev/web_api/v3/basics; differences of the local one: zotero/zotero,
chrome/content/zotero/xpcom/server/server_localAPI.js.
"""

from __future__ import annotations

from collections.abc import Iterator
from http.client import HTTPConnection, HTTPException, IncompleteRead
from typing import Any
from urllib.parse import quote

import orjson

from citerec.base.errors import InputError, error_text
from citerec.formats.bibliography.reading.fields import Fields
from citerec.formats.bibliography.reading.zotero import Collection, ZoteroLibrary, unknown_group
from citerec.formats.json_lines import Object

HOST = "127.0.0.1"
TIMEOUT = 30.0
"""Seconds that Zotero may be silent."""
PAGE = 1000
"""Items per answer. Zotero searches the whole library for each, so few large ones are faster."""
MAX_ANSWER = 1 << 28
"""Bytes of an answer."""
USER = "users/0"


class NotAvailable(Exception):
    """Zotero does not run, is too old for the API, or refuses other programs; the message is what to do."""


class ZoteroApi:
    """A client that only reads, and only from this machine: no proxy, no redirection."""

    def __init__(self, port: int) -> None:
        self.port = port
        self._name = f"http://{HOST}:{port}/api"

    def read(self, group: str = "") -> ZoteroLibrary:
        """Return the user's library, or a group's, without trashed items.

        Raises NotAvailable, and InputError for an unknown group or an answer that is not the API's.
        """
        place = self._place(group)
        collections = {}
        for about in self._pages(f"{place}/collections", ""):
            parent = about.record.get("parentCollection") or ""  # false at the top
            collections[about.text("key")] = Collection(about.text("name"), str(parent))
        items = [item.record for item in self._pages(f"{place}/items/top", "&sort=dateAdded&direction=asc")]
        return ZoteroLibrary(items, collections)

    def state(self, group: str = "") -> object:
        """Return what is different after a change of a library: its version, its size and its newest item.

        Before Zotero 10, versions change by synchronisation alone, so that `since` and
        If-Modified-Since-Version do not show what the user does.
        """
        return self._get(
            f"{self._place(group)}/items/top?format=json&limit=1&sort=dateModified&direction=desc"
        )

    def _place(self, group: str) -> str:
        """Return the path of a group's library, or of the user's."""
        if not group:
            return USER
        groups = {about.text("name"): about.text("id") for about in self._pages(f"{USER}/groups", "")}
        if group not in groups:
            raise unknown_group(group, groups)
        return f"groups/{groups[group]}"

    def _pages(self, path: str, more: str) -> Iterator[Fields]:
        """Yield the `data` of all objects, each once. What the user does meanwhile may be missing."""
        start, seen = 0, set[str]()
        while True:
            before = len(seen)
            page, total, _ = self._get(f"{path}?format=json&limit={PAGE}&start={start}{more}")
            for record in page:
                data = Fields(record, f"{self._name}/{path}").child("data")
                if (key := data.text("key", "id")) and key not in seen:
                    seen.add(key)
                    yield data
            start += len(page)
            if not page or start >= total:
                return
            if len(seen) == before:  # it would go on without end
                raise _other(f"{self._name}/{path}", "the same objects again")

    def _get(self, path: str) -> tuple[list[Object], int, str]:
        """Return a list of objects, how many there are in all, and the version of the library."""
        where = f"{self._name}/{path.partition('?')[0]}"
        connection = HTTPConnection(HOST, self.port, timeout=TIMEOUT)
        try:
            connection.request("GET", f"/api/{quote(path, '/?&=')}", headers={"Zotero-API-Version": "3"})
            answer = connection.getresponse()
            content = answer.read(MAX_ANSWER)
            if answer.length:  # of what has not been read
                raise IncompleteRead(content, answer.length)
        except ConnectionRefusedError:
            raise NotAvailable("Zotero does not run; start it") from None
        except (OSError, HTTPException) as error:
            reason = "its answer broke off" if isinstance(error, HTTPException) else error_text(error)
            raise InputError(f"{where}: Zotero does not answer ({reason}); try again or close it") from None
        finally:
            connection.close()
        if answer.status == 403:
            setting = "Settings > Advanced > Allow other applications on this computer to communicate with"
            raise NotAvailable(f"Zotero refuses other programs; tick {setting} Zotero")
        if answer.status in (404, 501) and path.startswith(USER):
            raise NotAvailable("this Zotero has no local API; close it, or update it to version 7")
        try:
            if answer.status != 200:
                raise ValueError(f"status {answer.status}")
            found: Any = orjson.loads(content)
            if not isinstance(found, list) or not all(isinstance(record, dict) for record in found):
                raise ValueError("not a list of objects")
            total = int(answer.headers.get("Total-Results", len(found)))
            return found, total, answer.headers.get("Last-Modified-Version", "")
        except ValueError as error:
            raise _other(where, error_text(error)) from None


def _other(where: str, reason: str) -> InputError:
    return InputError(
        f"{where}: is not an answer of Zotero's ({reason}); another program may use this port: close it, or "
        "give source=PATH/zotero.sqlite"
    )
