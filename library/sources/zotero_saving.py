"""Papers saved in a collection of Zotero, over its Web API 3: of the running program, or at zotero.org.

https://www.zotero.org/support/dev/web_api/v3/write_requests. The program asks its user before it writes
(zotero/zotero, chrome/content/zotero/xpcom/server/server_localAPI.js). Its database is never touched.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

import httpx2

from citerec.base.errors import InputError, error_text
from citerec.base.settings import check_key
from citerec.formats.bibliography.item import Item
from citerec.formats.bibliography.paper import LibraryPaper, clean_text
from citerec.formats.bibliography.reading.zotero import TYPES, unknown_group
from citerec.formats.bibliography.references import paper_item
from citerec.formats.identifiers import clean_doi
from citerec.formats.letters import normalise_title
from citerec.library.sources.zotero_api import HOST, USER
from citerec.library.sources.zotero_places import check_place, find_database

WEB = "https://api.zotero.org"
KEY = "ZOTERO_API_KEY"
"""Variable of the environment with a key for zotero.org; without it, the running program is asked."""
TIMEOUT, CLICK = 30.0, 300.0
"""Seconds that an answer may take, and those that the user has to allow writing."""
EXAMPLE = "zotero://collection/Cited"
MOST = 50
"""Objects of one request, by the API's rules."""
PAGE = 100
_ALL = {"title": "title", "abstract": "abstractNote", "issued": "date", "URL": "url", "language": "language"}
_FIELDS: dict[str, dict[str, str]] = {
    "journalArticle": {"container-title": "publicationTitle", "volume": "volume", "issue": "issue",
                       "page": "pages", "ISSN": "ISSN", "DOI": "DOI"},
    "conferencePaper": {"container-title": "proceedingsTitle", "event-title": "conferenceName",
                        "volume": "volume", "page": "pages", "publisher": "publisher", "ISBN": "ISBN",
                        "DOI": "DOI"},
    "book": {"publisher": "publisher", "publisher-place": "place", "volume": "volume", "edition": "edition",
             "number-of-pages": "numPages", "ISBN": "ISBN", "collection-title": "series"},
    "bookSection": {"container-title": "bookTitle", "publisher": "publisher", "publisher-place": "place",
                    "page": "pages", "volume": "volume", "edition": "edition", "ISBN": "ISBN"},
    "preprint": {"container-title": "repository", "publisher": "repository", "DOI": "DOI"},
    "thesis": {"publisher": "university", "publisher-place": "place", "genre": "thesisType"},
    "report": {"publisher": "institution", "publisher-place": "place", "number": "reportNumber",
               "page": "pages"},
}  # fmt: skip
"""Zotero's fields by CSL's variables, of each type; what they have had since Zotero 7."""
_UNREADABLE = (TypeError, ValueError, AttributeError, LookupError)
"""What answers of another shape raise."""
_EDITED = ("journalArticle", "conferencePaper", "book", "bookSection")


def save(papers: Sequence[LibraryPaper], place: str) -> str:
    """Put papers into a collection, which is made if there is none. Return a line for the user.

    place: zotero://collection/NAME or zotero://group/NAME/collection/NAME. Papers that the library has, by
    their titles, are only added to the collection. Raises InputError.
    """
    group, name = check_place(place, "save")
    if not name:
        raise InputError(f"save={place}: names no collection; write e.g. {EXAMPLE}")
    items = [zotero_item(paper) for paper in papers]
    with _Writer(place) as zotero:
        library = zotero.library(group)
        collection = zotero.collection(library, name)
        objects, there = [], 0
        for paper, item in zip(papers, items, strict=True):
            known = zotero.find(library, paper)
            if known is None:
                objects.append(item | {"collections": [collection]})
            elif collection in known.get("collections", ()):
                there += 1
            else:
                inside = [*known.get("collections", ()), collection]
                objects.append({"key": known["key"], "version": known["version"], "collections": inside})
        for start in range(0, len(objects), MOST):
            zotero.write(f"{library}/items", objects[start : start + MOST])
    new = sum("itemType" in one for one in objects)
    return f"{place}: {new} new, {len(objects) - new} that Zotero has, {there} that were there"


def zotero_item(paper: LibraryPaper) -> dict[str, Any]:
    """Return a paper as a new item of Zotero."""
    item = paper_item(paper)
    kind = TYPES.written.get(item.type, item.type)
    if kind not in _FIELDS:
        kind = "preprint" if item.fields.get("arxiv") else "document"
    made: dict[str, Any] = {"itemType": kind, "creators": _creators(item, kind)}
    fields = {**item.fields, "title": clean_text(item.fields.get("title", ""))}
    for variable, name in (*_ALL.items(), *_FIELDS.get(kind, {"publisher": "publisher"}).items()):
        if text := fields.get(variable):
            made.setdefault(name, text)
    arxiv, doi = fields.get("arxiv"), fields.get("DOI")
    more = [f"Citation Key: {paper.key}" if paper.key else ""]
    if kind == "preprint" and arxiv:
        made |= {"repository": "arXiv", "archiveID": f"arXiv:{arxiv}"}
    elif arxiv:
        more.append(f"arXiv: {arxiv}")
    more.append(f"DOI: {doi}" if doi and "DOI" not in made else "")
    made["extra"] = "\n".join(filter(None, more))
    made["tags"] = [{"tag": tag} for tag in paper.tags]
    return made


def _creators(item: Item, kind: str) -> list[dict[str, str]]:
    found = []
    for role in ("author", "editor") if kind in _EDITED else ("author",):
        for name in item.names.get(role, ()):
            about = {"creatorType": role}
            if name.literal or not name.given:
                found.append(about | {"name": name.full})
            else:
                family = " ".join(filter(None, (name.particle, name.family)))
                first = ", ".join(filter(None, (name.given, name.suffix)))
                found.append(about | {"firstName": first, "lastName": family})
    return found


class _Writer:
    """A client of one API. place: named in errors."""

    def __init__(self, place: str) -> None:
        self.place, key = place, os.environ.get(KEY, "")
        self.is_web = bool(key)
        check_key(KEY, key)
        self._headers = {"Zotero-API-Version": "3"} | ({"Zotero-API-Key": key} if key else {})
        base = WEB if self.is_web else f"http://{HOST}:{find_database()[1]}/api"
        self._http = httpx2.Client(base_url=f"{base}/", timeout=TIMEOUT, trust_env=self.is_web)

    def __enter__(self) -> _Writer:
        return self

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        self._http.close()
        if isinstance(error, _UNREADABLE):
            raise InputError(
                f"{self.place}: what answers is not Zotero; another program may use its port, or a proxy is "
                "in between: close it, and try again"
            ) from None

    def library(self, group: str) -> str:
        """Return the path of a group's library, or of the user's."""
        user = f"users/{self._get('keys/current')['userID']}" if self.is_web else USER
        if not group:
            return user
        groups = {one["data"]["name"]: one["data"]["id"] for one in self._pages(f"{user}/groups")}
        if group not in groups:
            raise unknown_group(group, groups)
        return f"groups/{groups[group]}"

    def collection(self, library: str, name: str) -> str:
        """Return the key of a collection by its name or path; it is made if there is none."""
        known = {one["key"]: one["data"] for one in self._pages(f"{library}/collections")}
        paths: dict[str, str] = {}
        for key in known:
            names, at = list[str](), key
            while at in known and len(names) <= len(known):
                names.insert(0, known[at]["name"])
                at = known[at].get("parentCollection") or ""
            paths[key] = "/".join(names)
        same = [key for key, path in paths.items() if path == name]
        same = same or [key for key, path in paths.items() if path.endswith(f"/{name}")]
        if len(same) > 1:
            choice = ", ".join(sorted({paths[key] for key in same}))
            raise InputError(f"{self.place}: are several collections; choose from {choice}")
        if same:
            return same[0]
        parent, parts = "", name.split("/")
        if not all(parts):
            raise InputError(f"{self.place}: names a collection without a name; write e.g. {EXAMPLE}")
        by_path = {path: key for key, path in paths.items()}
        for depth, part in enumerate(parts, 1):
            if found := by_path.get("/".join(parts[:depth])):
                parent = found
            else:
                made = {"name": part, "parentCollection": parent or False}
                [parent] = self.write(f"{library}/collections", [made])
        return parent

    def find(self, library: str, paper: LibraryPaper) -> Mapping[str, Any] | None:
        """Return the item of a paper, if the library has it."""
        wanted = normalise_title(paper.title)
        asked = {"q": paper.title, "qmode": "titleCreatorYear", "limit": str(PAGE)}
        for one in self._get(f"{library}/items/top", asked) if wanted else ():
            data = one["data"]
            dois = {clean_doi(str(data.get("DOI") or "")), paper.doi} - {""}
            if normalise_title(clean_text(str(data.get("title") or ""))) == wanted and len(dois) < 2:
                return {**data, "key": one["key"], "version": one["version"]}
        return None

    def write(self, path: str, objects: Sequence[Mapping[str, Any]]) -> list[str]:
        """Write at most MOST objects; return their keys."""
        answer = self._ask("POST", path, json=list(objects))
        failed = answer.get("failed") or {}
        if failed:
            first = next(iter(failed.values()))
            reason = " ".join(str(first.get("message")).split())
            raise InputError(
                f"{self.place}: {len(failed)} of {len(objects)} were not saved: {reason}; try again"
            )
        saved = {number: one["key"] for number, one in (answer.get("successful") or {}).items()}
        keys = {**(answer.get("unchanged") or {}), **saved, **(answer.get("success") or {})}
        if len(keys) != len(objects):
            raise ValueError("not a key for each object")
        return [str(key) for key in keys.values()]

    def _get(self, path: str, parameters: Mapping[str, str] | None = None) -> Any:
        return self._ask("GET", path, params=parameters)

    def _pages(self, path: str) -> Iterator[Any]:
        start, before = 0, None
        while page := self._get(path, {"format": "json", "limit": str(PAGE), "start": str(start)}):
            if page == before:
                raise ValueError("the same page again")
            yield from page
            start, before = start + len(page), page

    def _ask(self, method: Literal["GET", "POST"], path: str, **content: Any) -> Any:
        """Return an answer; the user of the running program is asked to allow it to be written to."""
        response = self._send(method, path, **content)
        if response.status_code == 401 and method == "POST" and not self.is_web:
            allowed = self._send("POST", "local/authorize", json={"appName": "citerec"}, timeout=CLICK)
            if allowed.status_code == 403:
                raise InputError(f"{self.place}: was not allowed in Zotero's window; nothing was saved")
            if allowed.status_code == 200:
                self._headers["Zotero-API-Key"] = str(allowed.json()["key"])
                response = self._send(method, path, **content)
        if response.status_code == 200:
            try:
                return response.json()
            except ValueError as error:
                raise InputError(f"{self.place}: Zotero's answer is no JSON ({error_text(error)})") from None
        raise InputError(f"{self.place}: {self._fault(response.status_code, method)}")

    def _fault(self, status: int, method: str) -> str:
        if self.is_web and status in (401, 403):
            return f"zotero.org refuses the key in {KEY}; make one that may write at zotero.org/settings/keys"
        if status == 412:
            return "the library has changed meanwhile; try again"
        if not self.is_web and method == "POST" and status in (400, 404, 405, 501):
            return f"this Zotero can only be read; update it, or set {KEY} to a key of zotero.org"
        if not self.is_web and status in (403, 404, 501):
            return "Zotero does not let other programs ask; tick that in Settings > Advanced"
        return f"Zotero answers HTTP {status}; try again later"

    def _send(self, method: str, path: str, **content: Any) -> httpx2.Response:
        try:
            response = self._http.request(method, path, headers=self._headers, **content)
        except httpx2.ConnectError as error:
            what = (
                f"zotero.org does not answer ({error_text(error)})" if self.is_web else "Zotero does not run"
            )
            raise InputError(f"{self.place}: {what}; start it or try again") from None
        except httpx2.HTTPError as error:
            raise InputError(
                f"{self.place}: Zotero does not answer ({error_text(error)}); try again"
            ) from None
        if server := response.headers.get("Zotero-Server-ID"):
            self._headers["Zotero-Server-ID"] = server  # as the program asks of those that write
        return response
