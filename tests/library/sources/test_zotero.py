"""Zotero as a source: its database, which is never changed."""

from __future__ import annotations

import copy
import sqlite3
import tempfile
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from citerec.base.errors import InputError
from citerec.formats.bibliography.paper import LibraryPaper, make_paper
from citerec.formats.bibliography.reading.zotero import Collection, ZoteroLibrary
from citerec.library.commands.change import add, build, remove
from citerec.library.evidence.passages import TextPlace
from citerec.library.papers.building import refresh
from citerec.library.papers.library import Library
from citerec.library.settings import AddSettings, BuildSettings, RemoveSettings
from citerec.library.sources.finding import find_sources
from citerec.library.sources.readers import read_source
from citerec.tests.library.conftest import papers_of
from citerec.tests.library.sources.zotero import Item, Zotero, creator, write_preferences

ITEMS: list[Item] = [
    {
        "key": "AAAA1111", "itemType": "journalArticle", "title": "A <i>study</i> of things",
        "creators": [creator("Ann B. Lee"), creator("Consortium"), creator("Ed Itor", "editor")],
        "date": "2003-00-00 Spring 2003", "publicationTitle": "Nature", "DOI": "10.1000/A",
        "abstractNote": "We study.", "url": "https://x.org", "volume": 7, "pages": "1-20",
        "tags": [{"tag": "alpha"}, {"tag": "to read"}], "collections": ["METHODS1", "OTHERS11"],
        "extra": "tex.note: x\nCitation Key: lee2003\nPMID: 1",
    },
    {
        "key": "BBBB2222", "itemType": "book", "title": "A book", "creators": [creator("Ed Itor", "editor")],
        "date": "0000-00-00 about 1999", "publisher": "Press", "extra": "DOI: 10.1000/book",
    },
    {
        "key": "CCCC3333", "itemType": "preprint", "title": "A preprint", "repository": "arXiv",
        "archiveID": "arXiv:2101.00001v2", "date": "2021-01-01 2021-01-01", "citationKey": "zot8",
        "extra": "Citation Key: other", "collections": ["THESIS11"],
    },
    {"key": "DDDD4444", "itemType": "case", "caseName": "One v. Other", "dateDecided": "1803-02-24 1803"},
    {"key": "EEEE5555", "itemType": "attachment", "title": "paper.pdf"},
    {"key": "FFFF6666", "itemType": "note"},
    {"key": "GGGG7777", "itemType": "book", "title": "Trashed", "collections": ["THESIS11"]},
    {"key": "HHHH8888", "itemType": "webpage", "websiteTitle": "No title"},
]  # fmt: skip
COLLECTIONS = {
    "METHODS1": ("Methods", "THESIS11"), "THESIS11": ("Thesis", ""), "OTHERS11": ("Others & more", ""),
    "METHODS2": ("Methods", "OTHERS11"),
}  # fmt: skip
GROUP = Zotero(
    [{"key": "IIII9999", "itemType": "book", "title": "Of the group", "collections": ["SHARED11"]}],
    {"SHARED11": ("Shared", "")},
)
ZOTERO = Zotero(ITEMS, COLLECTIONS, {"Our lab": GROUP, "Empty": Zotero([])}, {"GGGG7777"})
PAPERS = [
    LibraryPaper(
        "doi:10.1000/a", "lee2003", "A study of things", "We study.", ("Ann B. Lee", "Consortium"), 2003,
        "Nature", "10.1000/a", url="https://x.org", tags=("alpha", "to read"),
        collections=("Thesis", "Thesis/Methods", "Others & more"), names=("Lee, Ann B.", "{Consortium}"),
    ),
    LibraryPaper("doi:10.1000/book", "", "A book", "", ("Ed Itor",), 1999, "Press", "10.1000/book"),
    LibraryPaper(
        "arxiv:2101.00001", "zot8", "A preprint", "", (), 2021, "arXiv", arxiv="2101.00001",
        collections=("Thesis",),
    ),
    make_paper(title="One v. Other", year=1803),
]  # fmt: skip


def read(source: str | Path) -> tuple[list[LibraryPaper], list[str]]:
    bad: list[InputError] = []
    return list(read_source(source, bad.append)), list(map(str, bad))


def fails(source: str | Path) -> str:
    with pytest.raises(InputError) as error:
        read(source)
    assert "\n" not in str(error.value)
    return str(error.value)


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The user's folder."""
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


@pytest.fixture
def database(home: Path) -> Path:
    """The database of a user of Zotero."""
    return ZOTERO.write(home / "Zotero" / "zotero.sqlite")


def test_items_become_papers(database: Path) -> None:
    papers, bad = read("zotero")
    plain = [paper._replace(bibtex="", collections=tuple(sorted(paper.collections))) for paper in papers]
    assert plain == [paper._replace(collections=tuple(sorted(paper.collections))) for paper in PAPERS]
    assert papers[0].bibtex.splitlines() == [
        "@article{lee2003,", r"  title = {A \emph{study} of things},",
        "  author = {Lee, Ann B. and {Consortium}},", "  editor = {Itor, Ed},",
        "  year = {2003},", "  journal = {Nature},", "  volume = {7},", "  pages = {1--20},",
        "  doi = {10.1000/a},", "  url = {https://x.org},", "}",
    ]  # fmt: skip
    book = "@book{doi:10.1000/book,\n  title = {A book},\n  editor = {Itor, Ed},\n  year = {about 1999},\n"
    assert papers[1].bibtex.startswith(f"{book}  publisher") and papers[2].bibtex.startswith("@misc{zot8,")
    assert bad == ["zotero, item HHHH8888: has neither title nor abstract"]


@pytest.mark.parametrize(
    ("source", "titles"),
    [
        ("zotero://collection/Thesis", ["A study of things", "A preprint"]),
        ("zotero://collection/Thesis/Methods", ["A study of things"]),
        ("zotero://collection/Others%20%26%20more", ["A study of things"]),
        ("zotero://collection/Others & more/Methods", []),
        ("zotero://group/Our lab", ["Of the group"]),
        ("zotero://group/Our%20lab/collection/Shared/", ["Of the group"]),
        ("zotero://group/Empty", []),
    ],
)
def test_collections_and_groups(database: Path, source: str, titles: list[str]) -> None:
    assert find_sources([source, source]) == [source]
    assert [paper.title for paper in read(source)[0]] == titles


@pytest.mark.parametrize("trash", [True, False])
def test_collections_in_the_trash_are_none(database: Path, trash: bool) -> None:
    replace(ZOTERO, trashed={"THESIS11"}).write(database)
    if not trash:  # of an older Zotero
        with closing(sqlite3.connect(database)) as older:
            older.execute("DROP TABLE deletedCollections")
    expected = {"Others & more"} | (set() if trash else {"Thesis", "Thesis/Methods"})
    assert {name for paper in read(database)[0] for name in paper.collections} == expected


@pytest.mark.parametrize(
    ("source", "line"),
    [
        (
            "zotero://collection/Methods",
            "are several collections; choose from Others & more/Methods, The",
        ),
        (
            "zotero://collection/None",
            "has no such collection; choose from Others & more, Others & m",
        ),
        ("zotero://group/Empty/collection/x", "has no such collection; choose from none"),
        ("zotero://group/No", "zotero://group/No: there is no such group; choose from Empty, Our lab"),
        (
            "zotero://thesis",
            "source=zotero://thesis: write zotero, zotero://collection/NAME, zotero://group/N",
        ),
        ("zotero://", "write zotero, "),
    ],
)
def test_unknown_places(database: Path, source: str, line: str) -> None:
    assert line in fails(source)


def test_places_are_checked_before_anything_is_read() -> None:
    with pytest.raises(InputError, match="source=zotero://x: write zotero"):
        find_sources(["zotero://x"])


# The database.


def titles(source: str | Path) -> list[str]:
    return [paper.title for paper in read(source)[0]]


TITLES = [paper.title for paper in PAPERS]


def test_the_database_is_where_the_newest_profile_says(home: Path, database: Path) -> None:
    other = Zotero([{"key": "A", "itemType": "book", "title": "Elsewhere"}]).write(
        home / "data" / "zotero.sqlite"
    )
    write_preferences(home, {"dataDir": str(home / "gone"), "useDataDir": True})
    assert titles("zotero") == TITLES
    write_preferences(home, {"dataDir": str(other.parent)})
    assert titles("zotero") == ["Elsewhere"]
    assert titles(database) == TITLES


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize("mode", ["DELETE", "WAL"])
def test_a_running_zotero_holds_its_database_locked(database: Path, mode: str) -> None:
    with closing(sqlite3.connect(database, isolation_level=None)) as writer:
        writer.execute("PRAGMA locking_mode = EXCLUSIVE")
        writer.execute(f"PRAGMA journal_mode = {mode}")
        writer.execute("INSERT OR IGNORE INTO itemDataValues (value) VALUES ('new')")
        writer.execute("UPDATE itemDataValues SET value = 'Changed' WHERE value = 'A book'")
        writer.execute("BEGIN EXCLUSIVE")
        writer.execute("UPDATE itemDataValues SET value = 'Not saved' WHERE value = 'A preprint'")
        before = files(database.parent)
        assert ("zotero.sqlite-wal" in before) == (mode == "WAL")
        assert titles(database) == ["A study of things", "Changed", "A preprint", "One v. Other"]
        assert files(database.parent) == before


def test_half_a_transaction_is_taken_back(database: Path, tmp_path: Path) -> None:
    """The journal of a program that was killed: SQLite would write to the database to mend it."""
    killed = tmp_path / "killed" / "zotero.sqlite"
    killed.parent.mkdir()
    with closing(sqlite3.connect(database, isolation_level=None)) as writer:
        writer.execute("PRAGMA cache_size = 1")
        writer.execute("BEGIN")
        writer.execute("UPDATE itemDataValues SET value = value || ' half'")
        writer.executemany("INSERT INTO tags (name) VALUES (?)", [[str(n) * 999] for n in range(99)])
        for name, content in files(database.parent).items():
            (killed.parent / name).write_bytes(content)
    before = files(killed.parent)
    assert len(before["zotero.sqlite-journal"]) > 512
    assert titles(killed) == TITLES and files(killed.parent) == before


def test_citation_keys_of_better_bibtex(database: Path) -> None:
    assert [paper.key for paper in read("zotero")[0]] == ["lee2003", "", "zot8", ""]
    spoil(database, "UPDATE itemDataValues SET value = 'a}\\input{b' WHERE value = 'zot8'")
    assert read("zotero")[0][2].key == "other", "what is no key is left out"
    spoil(database, "UPDATE itemDataValues SET value = 'zot8' WHERE value LIKE '%input%'")
    with closing(sqlite3.connect(database.with_name("better-bibtex.sqlite"))) as keys:
        keys.execute("CREATE TABLE citationkey (itemID INTEGER PRIMARY KEY, itemKey, libraryID, citationKey)")
        rows = [(1, "AAAA1111", "unpinned"), (2, "BBBB2222", "itorBook"), (3, "CCCC3333", "unpinned")]
        keys.executemany("INSERT INTO citationkey VALUES (?, ?, 1, ?)", rows)
        keys.commit()
    for source in ("zotero", database):
        assert [paper.key for paper in read(source)[0]] == ["lee2003", "itorBook", "zot8", ""]
    database.with_name("better-bibtex.sqlite").write_bytes(b"of another version")
    assert [paper.key for paper in read("zotero")[0]] == ["lee2003", "", "zot8", ""]


def spoil(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path)) as database:
        for statement in statements:
            database.execute(statement)
        database.commit()


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (None, "No such file"),
        (b"", "no such table: groups"),
        (b"@article{a, title = {B}}" * 99, "file is not a database"),
        (3, "database disk image is malformed"),
        (["DROP TABLE itemData"], "no such table: itemData"),
        (["ALTER TABLE creators DROP COLUMN firstName"], "no such column: firstName"),  # as in Zotero 4
    ],
)
def test_other_databases(database: Path, content: Any, line: str) -> None:
    if content is None:
        database.unlink()
    elif isinstance(content, list):
        spoil(database, *content)
    else:
        whole = database.read_bytes()
        database.write_bytes(whole[: len(whole) * content // 4] if isinstance(content, int) else content)
    message = fails(database)
    assert message.startswith(f"{database}: cannot be read") and line in message


def test_strange_texts(database: Path) -> None:
    spoil(
        database,
        "UPDATE itemDataValues SET value = CAST(x'41ff42004300' AS TEXT) WHERE value = 'A book'",
        "UPDATE itemDataValues SET value = x'41ff' WHERE value = 'Press'",
        f"UPDATE itemDataValues SET value = '{'word ' * 250_000}' WHERE value = 'We study.'",
        "UPDATE itemDataValues SET value = 12.5 WHERE value = 'One v. Other'",
        "UPDATE collections SET parentCollectionID = collectionID",
    )
    papers, bad = read(database)
    assert [paper.title for paper in papers] == ["A study of things", "A\ufffdBC", "A preprint", "12.5"]
    assert len(papers[0].abstract) == 5 * 250_000 - 1 and len(bad) == 1


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_damaged_databases_give_papers_or_one_line(database: Path, data: st.DataObject) -> None:
    content = database.read_bytes()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "zotero.sqlite"
        start, length = data.draw(st.integers(0, len(content))), data.draw(st.integers(0, 40))
        path.write_bytes(content[:start] + data.draw(st.binary(max_size=40)) + content[start + length :])
        if data.draw(st.booleans()):
            path.with_name("zotero.sqlite-wal").write_bytes(data.draw(st.binary(max_size=99)))
        try:
            papers, _ = read(path)
        except InputError as error:
            assert "\n" not in str(error)
        else:
            assert all(paper.title or paper.abstract for paper in papers)


def test_without_zotero(home: Path) -> None:
    assert fails("zotero").startswith("zotero: Zotero has no database here; name it, as in source=~/Zotero/")


def test_items_of_another_shape_are_left_out(home: Path) -> None:
    items = [*ITEMS[:1], {"key": "X", "itemType": "book", "title": ["a"]}, {"key": 3}]
    items.append({"key": "Y", "itemType": "book", "title": "b", "collections": [{}]})
    bad: list[InputError] = []
    library = ZoteroLibrary(items, {key: Collection(*about) for key, about in COLLECTIONS.items()})
    assert [paper.title for paper in library.papers("zotero", bad.append)] == ["A study of things"]
    assert [*map(str, bad)] == [
        "zotero, item X, field 'title': must be a string, not a list",
        "zotero, item 3: has neither title nor abstract",
        "zotero, item Y, field 'collections': must be a list of strings, not of an object",
    ]


# A library.


def test_a_library_follows_zotero(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Papers that are trashed, changed or deleted are so after an update."""
    monkeypatch.chdir(home)
    Path("a.bib").write_text("@misc{own, title = {Of the file}}", encoding="utf-8")
    build(BuildSettings(library="mine", source=("a.bib",), model="bm25"))
    zotero = Zotero(copy.deepcopy(ITEMS[:3]), COLLECTIONS)
    place = zotero.write(home / "Zotero" / "zotero.sqlite")
    add(AddSettings(library="mine", source=("zotero",)))
    library = Library.open("mine")
    assert library.storage.collections == ["Others & more", "Thesis", "Thesis/Methods"]
    assert (found := library.paper(library.row("lee2003") or 0)).tags == ("alpha", "to read")
    assert found.title == "A study of things" and not refresh("mine").written
    zotero.trashed.add("BBBB2222")
    zotero.write(place)
    with pytest.raises(InputError, match="1 of 4 papers would be removed, since zotero changed; check"):
        refresh("mine")
    assert refresh("mine", force=True)[1:] == (0, 1, 0, True, 0)
    zotero.items[0]["title"] = "Another title"
    zotero.items[2]["collections"] = []
    zotero.trashed.clear()
    zotero.write(place)
    assert refresh("mine")[1:] == (1, 0, 2, True, 0)
    library = Library.open("mine")
    assert len(library) == 4 and library.paper(library.row("zot8") or 0).collections == ()
    remove(RemoveSettings(library="mine", source=("zotero",)))
    left = Library.open("mine")
    assert [paper.key for paper in papers_of(left)] == ["own"] and left.manifest.named == [
        str(home / "a.bib")
    ]


def test_pdfs_of_the_storage_are_opened_by_zotero(tmp_path: Path) -> None:
    file = tmp_path / "storage" / "ABCD2345" / "a.pdf"
    place = TextPlace(str(file), 7)
    assert (place.label, replace(place, kind="note").label) == ("p. 7", "your note, p. 7")
    assert replace(place, kind="highlight", page=0).label == "your highlight"
    assert place.link == f"{file.as_uri()}#page=7"  # a copy, without the database
    with closing(sqlite3.connect(tmp_path / "zotero.sqlite")) as database:
        database.executescript(
            "CREATE TABLE items (itemID, libraryID, key); CREATE TABLE groups (groupID, libraryID);"
            "CREATE TABLE itemAttachments (itemID);"
            "INSERT INTO items VALUES (1, 1, 'ABCD2345'), (2, 2, 'EFGH2345');"
            "INSERT INTO itemAttachments VALUES (1), (2); INSERT INTO groups VALUES (2000, 2);"
        )
    assert place.link == "zotero://open-pdf/library/items/ABCD2345?page=7"
    other = TextPlace(str(tmp_path / "storage" / "EFGH2345" / "b.pdf"), 0)
    assert other.link == "zotero://open-pdf/groups/2000/items/EFGH2345"


def test_several_groups_in_one_library(home: Path) -> None:
    """Their papers are merged, with the collections of all."""
    graphs = {"key": "AAAA1111", "itemType": "book", "title": "Graphs", "collections": ["OLD11111"]}
    library = Zotero([graphs], {"OLD11111": ("Old", "")})
    for number, (name, title) in enumerate((("A", "Trees"), ("B", "trees"), ("C", "Graphs"))):
        about = {"itemType": "book", "title": title, "creators": [creator("Ann Lee")], "date": "2020"}
        item = {"key": f"AAAA222{number}", **about, "collections": [f"SAME{name}111"]}
        library.groups[name] = Zotero([item], {f"SAME{name}111": (f"Of {name}", "")})
    library.write(home / "Zotero" / "zotero.sqlite")
    sources = ("zotero", *(f"zotero://group/{name}" for name in "ABC"))
    build(BuildSettings(library=str(home / "mine"), source=sources, model="bm25"))
    papers = papers_of(Library.open(home / "mine"))
    assert [(paper.title, set(paper.collections)) for paper in papers] == [
        ("Graphs", {"Old"}), ("Trees", {"Of A", "Of B"}), ("Graphs", {"Of C"})
    ]  # fmt: skip
