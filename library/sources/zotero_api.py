"""Zotero's Web API 3: of the program that runs on this machine, version 7 or later, or of zotero.org.

https://www.zotero.org/support/dev/web_api/v3/basics and write_requests; differences of the local one:
zotero/zotero, chrome/content/zotero/xpcom/server/server_localAPI.js. The program asks its user before it
writes. Its database is never touched.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

import httpx2
import msgspec

from citerec.base.errors import InputError, error_text
from citerec.formats.bibliography.reading.fields import Fields
from citerec.formats.bibliography.reading.zotero import Collection, ZoteroLibrary, unknown_group
from citerec.formats.json_lines import Object
from citerec.library.sources.zotero_places import find_database

HOST, WEB = "127.0.0.1", "https://api.zotero.org"
KEY = "ZOTERO_API_KEY"
"""Variable of the environment with a key for zotero.org."""
TIMEOUT, CLICK = 30.0, 300.0
"""Seconds that Zotero may be silent, and those that the user has to allow writing."""
PAGE, WEB_PAGE = 1000, 100
"""Objects per answer, as many as each allows: the program searches the whole library for each answer."""
MOST = 50
"""Objects that are written by a request, by the API's rules."""
MAX_ANSWER = 1 << 28
"""Bytes of an answer."""
USER = "users/0"


class NotAvailable(Exception):
    """Zotero does not run, is too old for the API, or refuses other programs; the message is what to do."""


class ZoteroApi:
    """A client of the running program, without proxy or redirection, or with a key of zotero.org."""

    def __init__(self, key: str = "", place: str = "") -> None:
        """place: named in errors, instead of addresses."""
        self._key, self._place = key, place
        self._base = f"{WEB}/" if key else f"http://{HOST}:{find_database()[1]}/api/"
        self._headers = {"Zotero-API-Version": "3"} | ({"Zotero-API-Key": key} if key else {})
        self._http = httpx2.Client(base_url=self._base, timeout=TIMEOUT, trust_env=bool(key))

    def __enter__(self) -> ZoteroApi:
        return self

    def __exit__(self, *_: object) -> None:
        self._http.close()

    # Reading. All raise NotAvailable, and InputError for an answer that is not the API's.

    def read(self, group: str = "") -> ZoteroLibrary:
        """Return the user's library, or a group's, without trashed items. InputError for an unknown group."""
        library = self.library(group)
        items = self._pages(f"{library}/items/top", sort="dateAdded", direction="asc")
        return ZoteroLibrary([item.record for item in items], self.collections(library))

    def state(self, group: str = "") -> object:
        """Return what is different after a change of a library: its version, its size and its newest item.

        Before Zotero 10, versions change by synchronisation alone, so that `since` and
        If-Modified-Since-Version do not show what the user does.
        """
        path = f"{self.library(group)}/items/top"
        response = self._get(path, format="json", limit="1", sort="dateModified", direction="desc")
        headers = [response.headers.get(name) for name in ("Total-Results", "Last-Modified-Version")]
        return self._objects(path, response), headers

    def library(self, group: str) -> str:
        """Return the path of a group's library, or of the user's."""
        user = f"users/{self._user_id()}" if self._key else USER
        if not group:
            return user
        groups = {data.text("name"): data.text("id") for data in self._pages(f"{user}/groups")}
        if group not in groups:
            raise unknown_group(group, groups)
        return f"groups/{groups[group]}"

    def _user_id(self) -> str:
        """Return the id of the user whose key it is."""
        path = "keys/current"
        if not (id := self._fields(path, self._get(path)).text("userID")):
            raise self._other(path, "no user")
        return id

    def collections(self, library: str) -> dict[str, Collection]:
        """Return the collections of a library by their keys."""
        collections = {}
        for data in self._pages(f"{library}/collections"):
            parent = data.record.get("parentCollection") or ""  # false at the top
            collections[data.text("key")] = Collection(data.text("name"), str(parent))
        return collections

    def titled(self, library: str, title: str) -> list[Object]:
        """Return the items of a library that have the words of a title, with their versions."""
        path = f"{library}/items/top"
        options = {"q": title, "qmode": "titleCreatorYear", "limit": str(WEB_PAGE)}
        objects = self._objects(path, self._get(path, **options))
        return [{"version": item.get("version"), **self._data(path, item).record} for item in objects]

    def _pages(self, path: str, **options: str) -> Iterator[Fields]:
        """Yield the `data` of all objects, each once. What the user does meanwhile may be missing."""
        start, seen, limit = 0, set[str](), str(WEB_PAGE if self._key else PAGE)
        while True:
            before = len(seen)
            response = self._get(path, format="json", limit=limit, start=str(start), **options)
            objects = self._objects(path, response)
            for item in objects:
                data = self._data(path, item)
                if (key := data.text("key", "id")) and key not in seen:
                    seen.add(key)
                    yield data
            start += len(objects)
            total = response.headers.get("Total-Results", str(start))
            if not total.isdecimal():
                raise self._other(path, "a strange number of results")
            if not objects or start >= int(total):
                return
            if len(seen) == before:  # it would go on without end
                raise self._other(path, "the same objects again")

    # Writing.

    def write(self, path: str, objects: Sequence[Mapping[str, Any]]) -> list[str]:
        """Write at most MOST objects, which the user of the running program is asked to allow; return their
        keys. Raises InputError."""
        response = self._ask("POST", path, json=list(objects))
        if response.status_code == 401 and not self._key:
            allowed = self._ask("POST", "local/authorize", json={"appName": "citerec"}, timeout=CLICK)
            if allowed.status_code == 403:
                raise InputError(f"{self._place}: was not allowed in Zotero's window; nothing was saved")
            if allowed.status_code == 200:
                self._headers["Zotero-API-Key"] = self._fields("local/authorize", allowed).text("key")
                response = self._ask("POST", path, json=list(objects))
        if response.status_code != 200:
            raise self._fault(path, response.status_code, "POST")
        answer = self._fields(path, response)
        if failed := answer.child("failed").record:
            first = next(iter(failed.values()))
            reason = " ".join(str(first.get("message") if isinstance(first, dict) else first).split())
            raise InputError(
                f"{self._place}: {len(failed)} of {len(objects)} were not saved: {reason}; try again"
            )
        saved = {name: Fields(record, path).text("key") for name, record in _objects_in(answer, "successful")}
        keys = {**answer.child("unchanged").record, **saved, **answer.child("success").record}
        if len(keys) != len(objects):
            raise self._other(path, "not a key for each object")
        return [str(key) for key in keys.values()]

    # Answers.

    def _get(self, path: str, **options: str) -> httpx2.Response:
        response = self._ask("GET", path, params=options)
        if response.status_code != 200:
            raise self._fault(path, response.status_code, "GET")
        return response

    def _ask(self, method: Literal["GET", "POST"], path: str, **content: Any) -> httpx2.Response:
        """Return an answer of any status, with its content."""
        try:
            with self._http.stream(method, path, headers=self._headers, **content) as response:
                size = 0
                parts = []
                for part in response.iter_bytes():
                    size += len(part)
                    if size > MAX_ANSWER:
                        raise self._other(path, "too long")
                    parts.append(part)
        except httpx2.ConnectError as error:
            if self._key:
                line = f"zotero.org does not answer ({error_text(error)}); try again"
                raise InputError(f"{self._where(path)}: {line}") from None
            raise NotAvailable("Zotero does not run; start it") from None
        except httpx2.HTTPError as error:
            reason = "its answer broke off" if isinstance(error, httpx2.ProtocolError) else error_text(error)
            line = f"Zotero does not answer ({reason}); try again or close it"
            raise InputError(f"{self._where(path)}: {line}") from None
        if server := response.headers.get("Zotero-Server-ID"):
            self._headers["Zotero-Server-ID"] = server  # as the program asks of those that write
        return httpx2.Response(response.status_code, headers=response.headers, content=b"".join(parts))

    def _objects(self, path: str, response: httpx2.Response) -> list[Object]:
        content = self._json(path, response)
        if not isinstance(content, list) or not all(isinstance(record, dict) for record in content):
            raise self._other(path, "not a list of objects")
        return content

    def _fields(self, path: str, response: httpx2.Response) -> Fields:
        content = self._json(path, response)
        if not isinstance(content, dict):
            raise self._other(path, "not an object")
        return Fields(content, self._where(path))

    def _data(self, path: str, record: Object) -> Fields:
        return Fields(record, self._where(path)).child("data")

    def _json(self, path: str, response: httpx2.Response) -> Any:
        try:
            return msgspec.json.decode(response.content)
        except msgspec.DecodeError as error:
            raise self._other(path, error_text(error)) from None

    def _where(self, path: str) -> str:
        return self._place or f"{self._base}{path}"

    def _fault(self, path: str, status: int, method: str) -> Exception:
        if self._key and status in (401, 403):
            line = f"zotero.org refuses the key in {KEY}; make one that may write at zotero.org/settings/keys"
        elif status == 412:
            line = "the library has changed meanwhile; try again"
        elif not self._key and method == "POST" and status in (400, 404, 405, 501):
            line = f"this Zotero can only be read; update it, or set {KEY} to a key of zotero.org"
        elif not self._key and status == 403:
            setting = "Settings > Advanced > Allow other applications on this computer to communicate with"
            return NotAvailable(f"Zotero refuses other programs; tick {setting} Zotero")
        elif not self._key and status in (404, 501) and path.startswith(USER):
            return NotAvailable("this Zotero has no local API; close it, or update it to version 7")
        elif self._place:
            line = f"Zotero answers HTTP {status}; try again later"
        else:
            return self._other(path, f"status {status}")
        return InputError(f"{self._where(path)}: {line}")

    def _other(self, path: str, reason: str) -> InputError:
        instead = "try again" if self._place else "give source=PATH/zotero.sqlite"
        return InputError(
            f"{self._where(path)}: is not an answer of Zotero's ({reason}); another program may use this "
            f"port, or a proxy is in between: close it, or {instead}"
        )


def _objects_in(answer: Fields, name: str) -> list[tuple[str, Object]]:
    return [(key, record) for key, record in answer.child(name).record.items() if isinstance(record, dict)]
