"""PDFs of entries: their paths as programs write them."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from citerec.base.errors import InputError
from citerec.formats.bibliography.attachments import parse_file_field
from citerec.formats.bibliography.paper import LibraryPaper
from citerec.library.sources.readers import read_source
from citerec.library.sources.zotero_database import Annotation, read_annotations, read_attachments
from citerec.tests.library.sources.zotero import Zotero, write_preferences


def read(path: Path) -> list[LibraryPaper]:
    problems: list[InputError] = []
    papers = list(read_source(str(path), problems.append))
    assert problems == []
    return papers


@pytest.mark.parametrize(
    "value, paths",
    [
        ("a.pdf", ["a.pdf"]),
        (":a/b.pdf:PDF", ["a/b.pdf"]),  # JabRef
        ("The text:a/b.pdf:PDF;Slides:c.ppt:PPT;:d.pdf:PDF", ["a/b.pdf", "d.pdf"]),
        (r":C\:\\Users\\me\\a.pdf:PDF", [r"C:\Users\me\a.pdf"]),
        (r":a\;b\:c.pdf:PDF", ["a;b:c.pdf"]),
        (
            "/home/me/Zotero/storage/ABCD/A - B.pdf",
            ["/home/me/Zotero/storage/ABCD/A - B.pdf"],
        ),  # Better BibTeX
        ("/z/a.pdf;/z/b.html", ["/z/a.pdf"]),
        ("Full Text PDF:/z/a.pdf:application/pdf", ["/z/a.pdf"]),
        (":home/me/Mendeley/a{\\_}b.pdf:pdf", ["home/me/Mendeley/a_b.pdf"]),  # Mendeley
        (r":C$\backslash$:/Users/a.pdf:pdf", ["C:/Users/a.pdf"]),
        (r"C:\papers\a.pdf", [r"C:\papers\a.pdf"]),
        (r":https\://a.org/b.pdf:PDF;:c.pdf:PDF", ["c.pdf"]),  # JabRef's files on the web
        ("http://a.org/b.pdf", []),
        ("file:///home/me/a%20b.pdf", ["file:///home/me/a%20b.pdf"]),
        ("", []),
        (":", []),
        ("a.pdf:b", []),
    ],
)
def test_fields_of_programs(value: str, paths: list[str]) -> None:
    assert parse_file_field(value) == paths


@given(st.text(":;\\{}$_ab.pdf", max_size=30))
def test_any_field_is_read(value: str) -> None:
    assert all(path.lower().endswith(".pdf") for path in parse_file_field(value))


@pytest.mark.parametrize("user", ["", "-ann-PC", "-Anna Müller-PC 01"])
def test_paths_begin_in_jabrefs_folder_or_that_of_the_bibliography(tmp_path: Path, user: str) -> None:
    for name in ("pdfs/a.pdf", "b.pdf", "home/c d.pdf", "[2019] Lee.pdf"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"")
    entries = [
        f"@comment{{jabref-meta: fileDirectory{user}:pdfs;}}",
        "@book{a, title={A}, file={:a.pdf:PDF}}",
        "@book{b, title={B}, file={:b.pdf:PDF;:lost.pdf:PDF}}",
        f"@book{{c, title={{C}}, file={{file://{tmp_path}/home/c%20d.pdf}}}}",
        f"@book{{m, title={{M}}, file={{:{str(tmp_path)[1:]}/b.pdf:pdf}}}}",
        r"@book{w, title={W}, file={:C\:\\pdfs\\a.pdf:PDF}}",
        "@book{n, title={N}, file={a.html}}",
        "@book{y, title={Y}, file={file://[2019] Lee.pdf}}",
    ]
    (tmp_path / "x.bib").write_text("\n".join(entries))
    assert {paper.key: paper.files for paper in read(tmp_path / "x.bib")} == {
        "a": (f"{tmp_path}/pdfs/a.pdf",),
        "b": (f"{tmp_path}/b.pdf", f"{tmp_path}/pdfs/lost.pdf"),
        "c": (f"{tmp_path}/home/c d.pdf",),
        "m": (f"{tmp_path}/b.pdf",),
        "w": (f"{tmp_path}/pdfs/a.pdf",),
        "n": (),
        "y": (f"{tmp_path}/[2019] Lee.pdf",),
    }


def test_ris_and_endnote_name_files(tmp_path: Path) -> None:
    (tmp_path / "a.ris").write_text(
        "TY  - JOUR\nTI  - A\nL1  - files/1/a.pdf\nL1  - https://x.org/b.pdf\nER  - \n"
    )
    assert [paper.files for paper in read(tmp_path / "a.ris")] == [(f"{tmp_path}/files/1/a.pdf",)]
    (tmp_path / "lib.Data/PDF/123").mkdir(parents=True)
    (tmp_path / "lib.Data/PDF/123/a b.pdf").write_bytes(b"")
    url = "<urls><pdf-urls><url>internal-pdf://123/a%20b.pdf</url></pdf-urls></urls>"
    record = f"<record><titles><title>A</title></titles>{url}</record>"
    (tmp_path / "a.xml").write_text(f"<xml><records>{record}</records></xml>")
    assert [paper.files for paper in read(tmp_path / "a.xml")] == [(f"{tmp_path}/lib.Data/PDF/123/a b.pdf",)]


def test_better_bibtexs_json_names_files(tmp_path: Path) -> None:
    item = {"itemType": "book", "title": "A", "attachments": [{"path": "/z/a.pdf"}, {"path": "/z/a.html"}]}
    content = {"config": {"label": "BetterBibTeX JSON"}, "items": [item], "collections": {}}
    (tmp_path / "a.json").write_text(json.dumps(content))
    assert [paper.files for paper in read(tmp_path / "a.json")] == [("/z/a.pdf",)]


TABLES = """
CREATE TABLE itemAttachments (itemID INTEGER PRIMARY KEY, parentItemID INT, linkMode INT, contentType TEXT,
    path TEXT);
CREATE TABLE itemAnnotations (itemID INTEGER PRIMARY KEY, parentItemID INT NOT NULL, type INTEGER NOT NULL,
    text TEXT, comment TEXT, color TEXT, pageLabel TEXT, sortIndex TEXT, position TEXT);
"""
ATTACHMENTS = [
    ("PPPP1111", 1, "application/pdf", "storage:Lee 2003.pdf"),
    ("PPPP2222", 3, "application/pdf", "/linked/lee.pdf"),
    ("PPPP3333", 3, "application/pdf", "attachments:sub/lee.pdf"),
    ("PPPP4444", 1, "text/html", "storage:page.html"),
    ("PPPP5555", 2, "application/pdf", None),
    ("PPPP6666", 1, "application/pdf", "storage:trashed.pdf"),
]
ANNOTATIONS = [
    (0, 1, "marked  words", "", "00001|000100|00000", '{"pageIndex": 1, "rects": []}'),
    (0, 1, "earlier", "my thought", "00000|000200|00000", '{"pageIndex": 0}'),
    (1, 2, None, "only a note", "00003|0|0", "broken"),
    (0, 4, None, None, "00009|0|0", "{}"),
]


@pytest.fixture
def database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Zotero's database with an item of six attachments, and annotations."""
    monkeypatch.setenv("HOME", str(tmp_path))
    item = {"key": "AAAA1111", "itemType": "book", "title": "A book"}
    files = [{"key": key, "itemType": "attachment"} for key, *_ in ATTACHMENTS]
    notes = [{"key": f"NNNN{n}", "itemType": "annotation"} for n in range(len(ANNOTATIONS))]
    path = Zotero([item, *files, *notes], trashed={"PPPP6666"}).write(tmp_path / "zotero.sqlite")
    with closing(sqlite3.connect(path)) as database:
        database.executescript(TABLES)
        ids = dict(database.execute("SELECT key, itemID FROM items"))
        for key, mode, kind, name in ATTACHMENTS:
            values = [ids[key], ids["AAAA1111"], mode, kind, name]
            database.execute("INSERT INTO itemAttachments VALUES (?, ?, ?, ?, ?)", values)
        for n, (of, type, text, comment, order, position) in enumerate(ANNOTATIONS):
            parent = ids[ATTACHMENTS[of][0]]
            row = [ids[f"NNNN{n}"], parent, type, text, comment, "", "", order, position]
            database.execute("INSERT INTO itemAnnotations VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", row)
        database.commit()
    return path


def test_zoteros_attachments_and_annotations(database: Path) -> None:
    home = database.parent
    write_preferences(home, {"baseAttachmentPath": str(home / "base")})
    own, linked = f"{home}/storage/PPPP1111/Lee 2003.pdf", "/linked/lee.pdf"
    assert read_attachments(database) == {"AAAA1111": (own, linked, f"{home}/base/sub/lee.pdf")}
    assert read_annotations(database) == {
        own: [
            Annotation("highlight", "earlier", 1),
            Annotation("note", "my thought", 1),
            Annotation("highlight", "marked words", 2),
        ],
        linked: [Annotation("note", "only a note", 0)],
    }
    [paper] = read(database)
    assert paper.files == (own, linked, f"{home}/base/sub/lee.pdf")


def test_a_database_without_these_tables_is_read(tmp_path: Path) -> None:
    path = Zotero([{"key": "A", "itemType": "book", "title": "A"}]).write(tmp_path / "zotero.sqlite")
    assert (read_attachments(path), read_annotations(path)) == ({}, {})
    assert [paper.files for paper in read(path)] == [()]
