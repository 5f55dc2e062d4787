"""A Zotero made for tests: its database with the tables that are read (zotero/zotero, resource/schema)."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

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
CREATE TABLE deletedCollections (collectionID INTEGER PRIMARY KEY, dateDeleted);
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
    """items: as the API's `data`. collections: (name, parent's key or "") by key. groups: by name."""

    items: list[Item]
    collections: dict[str, tuple[str, str]] = field(default_factory=dict)
    groups: dict[str, Zotero] = field(default_factory=dict)
    trashed: set[str] = field(default_factory=set)

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
            if key in self.trashed:
                database.execute("INSERT INTO deletedCollections VALUES (?, 0)", [ids[key]])
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


def write_preferences(home: Path, values: Mapping[str, Any]) -> None:
    """Write a profile as Zotero has it."""
    profile = home / ".zotero" / "zotero" / "x.default"
    profile.mkdir(parents=True, exist_ok=True)
    lines = [
        f'user_pref("extensions.zotero.{name}", {json.dumps(value)});\n' for name, value in values.items()
    ]
    (profile / "prefs.js").write_text("// Mozilla User Preferences\n\n" + "".join(lines))
