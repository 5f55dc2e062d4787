"""Papers saved in collections of Zotero: of the running program, and of zotero.org."""

from __future__ import annotations

from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

from citerec.base.errors import InputError
from citerec.formats.bibliography.paper import LibraryPaper
from citerec.formats.bibliography.reading.bibtex import parse_bibtex
from citerec.formats.bibliography.reading.zotero import ZoteroLibrary
from citerec.library.commands.ask import search
from citerec.library.commands.change import build
from citerec.library.papers.library import Library
from citerec.library.settings import BuildSettings, SearchSettings
from citerec.library.sources import zotero_api as zotero
from citerec.library.sources.zotero import save, zotero_item
from citerec.library.sources.zotero_places import find_database
from citerec.tests.conftest import Server
from citerec.tests.library.sources.zotero import Zotero, creator, write_preferences

BIB = r"""
@article{lee2020, title = {Trees of {DNA}}, author = {van der Lee, Ann and {World Bank}}, year = 2020, month = mar,
  journal = {Nature}, volume = 7, number = 2, pages = {1--20}, doi = {10.1000/a}, abstract = {We study.}}
@inproceedings{diaz2021, title = {Graphs}, author = {Diaz, Eva, Jr.}, editor = {Ek, Bo}, year = 2021, booktitle = {ICML}}
@misc{ek2022, title = {Deep nets}, author = {Ek, Bo}, year = 2022, eprint = {2101.00001}, archiveprefix = {arXiv}}
@book{roe1999, title = {A book}, author = {Roe, Jo}, year = 1999, publisher = {Press}, doi = {10.1000/book}}
@incollection{poe2001, title = {A chapter}, author = {Poe, Al}, year = 2001, booktitle = {A book}, publisher = {Press}}
@phdthesis{may2005, title = {A thesis}, author = {May, Flo}, year = 2005, school = {MIT}}
@techreport{fox2010, title = {A report}, author = {Fox, Di}, year = 2010, institution = {NASA}}
"""  # noqa: E501
PAPERS = [*parse_bibtex(BIB, "a.bib", lambda error: pytest.fail(str(error)))]


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv(zotero.KEY, raising=False)
    write_preferences(tmp_path, {"httpServer.port": 1})
    return tmp_path


@pytest.fixture
def library() -> Zotero:
    item = {"key": "AAAA1111", "itemType": "book", "title": "Graphs", "collections": ["OLD11111"]}
    group = Zotero([], {"SHARED11": ("Shared", "")})
    return Zotero([item], {"OLD11111": ("Old", ""), "OLD22222": ("Part", "OLD11111")}, {"Our lab": group})


def test_items_are_read_as_the_papers_they_were_made_of() -> None:
    items = [{**zotero_item(paper), "key": "A"} for paper in PAPERS]
    found = [*ZoteroLibrary(items, {}).papers("zotero", lambda error: pytest.fail(str(error)))]
    for paper, same in zip(PAPERS, found, strict=True):
        for name in ("key", "title", "abstract", "authors", "year", "venue", "doi", "arxiv"):
            expected = "arXiv" if (paper.key, name) == ("ek2022", "venue") else getattr(paper, name)
            assert getattr(same, name) == expected, (paper.key, name)
    kinds = [item["itemType"] for item in items]
    assert kinds == [
        "journalArticle",
        "conferencePaper",
        "preprint",
        "book",
        "bookSection",
        "thesis",
        "report",
    ]
    assert items[0]["creators"] == [
        {"creatorType": "author", "firstName": "Ann", "lastName": "van der Lee"},
        {"creatorType": "author", "name": "World Bank"},
    ]


@pytest.mark.parametrize("web", [False, True])
def test_papers_are_saved(web: bool, library: Zotero, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with library.running(home):
        if web:
            port = find_database()[1]
            write_preferences(home, {"httpServer.port": 1})
            monkeypatch.setattr(zotero, "WEB", f"http://127.0.0.1:{port}/api")
            monkeypatch.setenv(zotero.KEY, "web")
        place = "zotero://collection/New/Part"
        assert save(PAPERS, place) == f"{place}: 6 new, 1 that Zotero has, 0 that were there"
        assert save(PAPERS, place) == f"{place}: 0 new, 0 that Zotero has, 7 that were there"
        assert save(PAPERS[:1], "zotero://collection/Old").endswith(
            "0 new, 1 that Zotero has, 0 that were there"
        )
        group = "zotero://group/Our lab/collection/Shared"
        assert save(PAPERS[:2], group) == f"{group}: 2 new, 0 that Zotero has, 0 that were there"
        with pytest.raises(InputError, match="are several collections; choose from New/Part, Old/Part"):
            save(PAPERS, "zotero://collection/Part")
    new = {name: key for key, (name, _) in library.collections.items() if name == "New"}["New"]
    [part] = [key for key, about in library.collections.items() if about == ("Part", new)]
    assert library.items[0]["collections"] == ["OLD11111", part]
    assert [item["title"] for item in library.items[1:]] == [
        one.title for one in PAPERS if one.title != "Graphs"
    ]
    assert library.items[1]["collections"] == [part, "OLD11111"] and library.items[2]["collections"] == [part]
    assert [item["title"] for item in library.groups["Our lab"].items] == ["Trees of DNA", "Graphs"]
    assert not library.keys, "each was used once"


def test_more_than_fifty_papers(library: Zotero, home: Path) -> None:
    papers = [LibraryPaper(str(number), title=f"Paper no. {number:03}") for number in range(60)]
    with library.running(home):
        assert "60 new" in save(papers, "zotero://collection/Old")
    assert len(library.items) == 61


@pytest.mark.parametrize(
    ("place", "answers", "line"),
    [
        ("zotero", {}, "save=zotero: names no collection; write e.g. zotero://collection/Cited"),
        ("zotero://x", {}, "save=zotero://x: write zotero, zotero://collection/NAME"),
        (
            "zotero://group/No/collection/x",
            {},
            "zotero://group/No: there is no such group; choose from Our lab",
        ),
        (
            "zotero://collection/x",
            {"collections": 403},
            "Zotero refuses other programs; tick Settings > Advanced",
        ),
        ("zotero://collection/x", {"collections": 500}, "Zotero answers HTTP 500; try again later"),
        ("zotero://collection/x", {"collections": b"no HTTP"}, "Zotero does not answer"),
        (
            "zotero://collection/x",
            {"authorize": 403},
            "was not allowed in Zotero's window; nothing was saved",
        ),
        (
            "zotero://collection/x",
            {"POST": 501},
            "this Zotero can only be read; update it, or set ZOTERO_API_KEY",
        ),
        ("zotero://collection/x", None, "Zotero does not run; start it"),
    ],
)
def test_what_can_go_wrong(
    place: str, answers: dict[str, int | bytes] | None, line: str, library: Zotero, home: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    before = len(library.items)
    if answers and (status := answers.get("authorize", answers.get("POST"))):
        end = "authorize" if "authorize" in answers else ""
        post = Zotero.post
        monkeypatch.setattr(
            Zotero,
            "post",
            lambda self, path, *more: (status, "") if path.endswith(end) else post(self, path, *more),
        )
    if answers is None:
        with pytest.raises(InputError) as error:
            save(PAPERS, place)
    else:
        with library.running(home, answers), pytest.raises(InputError) as error:
            save(PAPERS, place)
    assert line in str(error.value) and "\n" not in str(error.value) and len(library.items) == before


STRANGE = [b"[]", b"{}", b"null", b"5", b'"x"', b"[1]", b'[{"key": 1}]', b'[{"data": 5}]', b"\xff"]


@pytest.mark.parametrize("web", [False, True])
@pytest.mark.parametrize("end", ["keys/current", "collections", "items/top", "items"])
def test_answers_of_another_shape(end: str, web: bool, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They end in one line, or are those of an empty library, but nothing is said to be saved that is not."""

    class Strange(Server):
        body = b""

        def answer(self, request: BaseHTTPRequestHandler) -> None:
            request.rfile.read(int(request.headers.get("Content-Length") or 0))
            path = request.path.partition("?")[0]
            usual = b"[]" if request.command == "GET" else b'{"success": {"0": "KEY"}}'
            usual = b'{"userID": 5}' if path.endswith("current") else usual
            request.send_response(200)
            request.end_headers()
            request.wfile.write(self.body if path.endswith(end) else usual)

    strange = Strange()
    write_preferences(home, {"httpServer.port": strange.http.server_port})
    if web:
        monkeypatch.setattr(zotero, "WEB", f"{strange.url}/api")
        monkeypatch.setenv(zotero.KEY, "web")
    for strange.body in STRANGE:
        try:
            save([LibraryPaper("x", title="Trees")], "zotero://collection/x")
            assert end == "items/top" or (end == "keys/current" and not web)
        except InputError as error:
            assert str(error).startswith("zotero://collection/x: ")
    strange.http.shutdown()
    strange.http.server_close()


def test_a_key_that_cannot_be_sent_is_not_shown(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(zotero.KEY, "secret\n")
    with pytest.raises(InputError, match=r"^ZOTERO_API_KEY: is not a key"):
        save(PAPERS, "zotero://collection/x")


def test_a_collection_has_a_name(library: Zotero, home: Path) -> None:
    with library.running(home), pytest.raises(InputError, match="names a collection without a name"):
        save(PAPERS, "zotero://collection/Old//Part")
    assert len(library.collections) == 2


def test_several_groups_in_one_library(
    library: Zotero, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Their papers are merged, with the collections of all; what was found can be saved in one of them."""
    for number, (name, title) in enumerate((("A", "Trees"), ("B", "trees"), ("C", "Graphs"))):
        about = {"itemType": "book", "title": title, "creators": [creator("Ann Lee")], "date": "2020"}
        item = {"key": f"AAAA222{number}", **about, "collections": [f"SAME{name}111"]}
        library.groups[name] = Zotero([item], {f"SAME{name}111": (f"Of {name}", "")})
    path = home / "mine"
    with library.running(home):
        sources = ("zotero", *(f"zotero://group/{name}" for name in "ABC"))
        build(BuildSettings(library=str(path), source=sources, model="bm25"))
        made = Library.open(path)
        papers = [made.paper(row) for row in range(len(made))]
        assert [(paper.title, set(paper.collections)) for paper in papers] == [
            ("Graphs", {"Old"}), ("Trees", {"Of A", "Of B"}), ("Graphs", {"Of C"})
        ]  # fmt: skip
        place = "zotero://group/C/collection/Found"
        search(SearchSettings(library=str(path), words=("trees",), save=place))
        assert f"{place}: 1 new" in capsys.readouterr().err
    assert [item["title"] for item in library.groups["C"].items] == ["Graphs", "Trees"]
