"""A Zotero made for tests: its database with the tables that are read, and its local API, of the same items.

Tables and answers follow zotero/zotero: resource/schema/userdata.sql and server_localAPI.js.
"""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

Item = dict[str, Any]
TABLES = """
CREATE TABLE version (schema TEXT PRIMARY KEY, version INT NOT NULL);
CREATE TABLE libraries (libraryID INTEGER PRIMARY KEY, type TEXT NOT NULL, editable INT, filesEditable INT);
CREATE TABLE groups (groupID INTEGER PRIMARY KEY, libraryID INT UNIQUE, name TEXT, description TEXT);
CREATE TABLE itemTypes (itemTypeID INTEGER PRIMARY KEY, typeName TEXT);
CREATE TABLE fields (fieldID INTEGER PRIMARY KEY, fieldName TEXT);
CREATE TABLE creatorTypes (creatorTypeID INTEGER PRIMARY KEY, creatorType TEXT);
CREATE TABLE items (itemID INTEGER PRIMARY KEY, itemTypeID INT NOT NULL, libraryID INT, key TEXT);
CREATE TABLE itemDataValues (valueID INTEGER PRIMARY KEY, value UNIQUE);
CREATE TABLE itemData (itemID INT, fieldID INT, valueID, PRIMARY KEY (itemID, fieldID));
CREATE TABLE creators (creatorID INTEGER PRIMARY KEY, firstName TEXT, lastName TEXT, fieldMode INT);
CREATE TABLE itemCreators (itemID INT, creatorID INT, creatorTypeID INT, orderIndex INT);
CREATE TABLE tags (tagID INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE);
CREATE TABLE itemTags (itemID INT, tagID INT, type INT, PRIMARY KEY (itemID, tagID));
CREATE TABLE collections (collectionID INTEGER PRIMARY KEY, collectionName TEXT, parentCollectionID INT,
    libraryID INT, key TEXT);
CREATE TABLE collectionItems (collectionID INT, itemID INT, orderIndex INT);
CREATE TABLE deletedItems (itemID INTEGER PRIMARY KEY, dateDeleted);
INSERT INTO version VALUES ('userdata', 123);
INSERT INTO libraries VALUES (1, 'user', 1, 1);
"""
NOT_FIELDS = ("key", "itemType", "creators", "tags", "collections")


def creator(name: str, kind: str = "author") -> Item:
    """A person, or an institution if the name is one word."""
    first, _, last = name.rpartition(" ")
    return {"creatorType": kind} | ({"firstName": first, "lastName": last} if first else {"name": last})


@dataclass
class Zotero:
    """items: `data` of the API. collections: (name, parent's key or "") by key. groups: by name."""

    items: list[Item]
    collections: dict[str, tuple[str, str]] = field(default_factory=dict)
    groups: dict[str, Zotero] = field(default_factory=dict)
    trashed: set[str] = field(default_factory=set)
    keys: list[str] = field(default_factory=list)
    """With which programs may write, once each."""

    def write(self, path: Path) -> Path:
        """Write zotero.sqlite; a library of a group has the id that follows."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        with closing(sqlite3.connect(path)) as database:
            database.executescript(TABLES)
            self.insert(database, 1)
            for number, (name, group) in enumerate(self.groups.items(), 2):
                database.execute("INSERT INTO libraries VALUES (?, 'group', 1, 1)", [number])
                database.execute("INSERT INTO groups VALUES (?, ?, ?, '')", [number * 1000, number, name])
                group.insert(database, number)
            database.commit()
        return path

    def insert(self, database: sqlite3.Connection, library: int) -> None:
        def number(table: str, **values: Any) -> int:
            """The id of a row, which is inserted if there is none."""
            [[first, *_]] = [[row[1] for row in database.execute(f"PRAGMA table_info({table})")]]
            where = " AND ".join(f"{name} IS ?" for name in values)
            same = f"SELECT {first} FROM {table} WHERE {where}"
            if (found := database.execute(same, [*values.values()]).fetchone()) is None:
                marks = ", ".join("?" * len(values))
                insert = f"INSERT INTO {table} ({', '.join(values)}) VALUES ({marks})"
                return int(database.execute(insert, [*values.values()]).lastrowid or 0)
            return int(found[0])

        ids = {
            key: number("collections", collectionName=name, libraryID=library, key=key)
            for key, (name, _) in self.collections.items()
        }
        for key, (_, parent) in self.collections.items():
            change = "UPDATE collections SET parentCollectionID = ? WHERE collectionID = ?"
            database.execute(change, [ids.get(parent), ids[key]])
        for item in self.items:
            kind = number("itemTypes", typeName=item["itemType"])
            id = number("items", itemTypeID=kind, libraryID=library, key=item["key"])
            for name in item.keys() - NOT_FIELDS:
                value = number("itemDataValues", value=item[name])
                place = number("fields", fieldName=name)
                database.execute("INSERT INTO itemData VALUES (?, ?, ?)", [id, place, value])
            for index, one in enumerate(item.get("creators", ())):
                who = number(
                    "creators",
                    firstName=one.get("firstName", ""),
                    lastName=one.get("lastName", one.get("name")),
                )
                role = number("creatorTypes", creatorType=one["creatorType"])
                database.execute("INSERT INTO itemCreators VALUES (?, ?, ?, ?)", [id, who, role, index])
            for tag in item.get("tags", ()):
                values = [id, number("tags", name=tag["tag"]), 0]
                database.execute("INSERT INTO itemTags VALUES (?, ?, ?)", values)
            for key in item.get("collections", ()):
                database.execute("INSERT INTO collectionItems VALUES (?, ?, 0)", [ids[key], id])
            if item["key"] in self.trashed:
                database.execute("INSERT INTO deletedItems VALUES (?, 0)", [id])

    @contextmanager
    def running(self, home: Path, answers: Mapping[str, Any] | None = None) -> Iterator[list[str]]:
        """Run its local API; the preferences in `home` have its port. Yields the requests so far.

        answers: bytes to send, without more, or a status, for paths that end so.
        """
        asked: list[str] = []
        zotero = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                asked.append(self.path)
                path = urlsplit(self.path).path.removeprefix("/api/")
                strange = next((a for end, a in (answers or {}).items() if path.endswith(end)), None)
                if isinstance(strange, bytes):
                    self.wfile.write(strange)
                    return
                assert self.headers["Zotero-API-Version"] == "3"
                found = None if strange else zotero.answer(path)
                status = strange or (404 if found is None else 200)
                options = {name: values[0] for name, values in parse_qs(urlsplit(self.path).query).items()}
                start, limit = int(options.get("start", 0)), int(options.get("limit", 0)) or None
                if "q" in options:
                    found = [one for one in found or () if options["q"] in one["data"].get("title", "")]
                if options.get("sort") == "dateModified":
                    found = [*(found or ())][::-1]  # the newest first
                page = found if isinstance(found, dict) else (found or [])[start:][:limit]
                body = json.dumps(page, indent=4).encode() if status == 200 else b"Local API is not enabled"
                self.answer(status, body, str(len(found or ())))

            def do_POST(self) -> None:
                asked.append(self.path)
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                status, found = zotero.post(self.path.removeprefix("/api/"), body, dict(self.headers.items()))
                self.answer(status, json.dumps(found).encode())

            def answer(self, status: int, body: bytes, total: str = "0") -> None:
                self.send_response(status)
                self.send_header("Zotero-Server-ID", "this one")
                self.send_header("Total-Results", total)
                self.send_header("Location", "http://127.0.0.1:1/")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                pass

        with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
            thread = threading.Thread(target=server.serve_forever, args=(0.01,))
            thread.start()
            try:
                write_preferences(home, {"httpServer.port": server.server_port})
                yield asked
            finally:
                server.shutdown()
                thread.join()

    def post(self, path: str, body: Any, headers: Mapping[str, str]) -> tuple[int, Any]:
        """Write objects, as the program or zotero.org does; its user allows one request at a time."""
        if path == "local/authorize":
            self.keys.append(f"key {len(self.keys)}")
            return (200, {"key": self.keys[-1], "remember": False}) if body["appName"] else (400, "")
        place, _, kind = path.rpartition("/")
        if place.startswith("groups/"):
            group = [*self.groups.values()][int(place.partition("/")[2]) // 1000 - 2]
            group.keys = self.keys
            return group.post(f"users/0/{kind}", body, headers)
        if headers.get("Zotero-API-Key") != "web":
            if headers.get("Zotero-Server-ID") != "this one":
                return 428, ""
            if headers.get("Zotero-API-Key") not in self.keys:
                return 401, ""
            self.keys.remove(headers["Zotero-API-Key"])
        assert len(body) <= 50
        made: dict[str, str] = {}
        for number, one in enumerate(body):
            key = one.get("key") or f"NEW{len(self.items) + len(self.collections):05}"
            if kind == "collections":
                self.collections[key] = one["name"], one["parentCollection"] or ""
            elif "key" in one:
                assert one["version"] == 0 and one.keys() == {"key", "version", "collections"}
                next(item for item in self.items if item["key"] == key)["collections"] = one["collections"]
            else:
                self.items.append({**one, "key": key})
            made[str(number)] = key
        return 200, {"success": made, "unchanged": {}, "failed": {}}

    def answer(self, path: str) -> Any:
        """Return the objects of a path; None for an unknown one."""
        if path == "keys/current":
            return {"userID": 0, "access": {}}
        place, _, rest = path.removeprefix("users/0/").partition("/")
        if place == "groups" and not rest:
            return [self.object({"id": n * 1000, "name": name}) for n, name in enumerate(self.groups, 2)]
        if place == "groups":
            number, _, rest = rest.partition("/")
            return [*self.groups.values()][int(number) // 1000 - 2].answer(rest)
        if path.endswith("collections"):
            return [
                self.object({"key": key, "name": name, "parentCollection": parent or False})
                for key, (name, parent) in self.collections.items()
            ]
        if path.endswith("items/top"):
            return [self.object(item) for item in self.items if item.get("key") not in self.trashed]
        return None

    @staticmethod
    def object(data: Item) -> Item:
        return {"key": data.get("key"), "version": 0, "library": {}, "links": {}, "meta": {}, "data": data}


def write_preferences(home: Path, values: Mapping[str, Any]) -> None:
    """Write a profile as Zotero has it."""
    profile = home / ".zotero" / "zotero" / "x.default"
    profile.mkdir(parents=True, exist_ok=True)
    lines = [
        f'user_pref("extensions.zotero.{name}", {json.dumps(value)});\n' for name, value in values.items()
    ]
    (profile / "prefs.js").write_text("// Mozilla User Preferences\n\n" + "".join(lines))
