"""`citerec enrich`: what is asked, what a match is, faults of services, and files in their place."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from email.utils import formatdate
from functools import partial
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from time import sleep, time
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from citerec.base.errors import InputError
from citerec.formats.bibliography.paper import LibraryPaper, without_filled
from citerec.library.ask.recommender import Recommender
from citerec.library.enrich.client import ATTEMPTS, FILE, AnswerCache, Client, Unavailable
from citerec.library.enrich.matching import Outcome, complete, contradiction
from citerec.library.enrich.services import (
    SERVICES,
    Arxiv,
    Crossref,
    Lookup,
    OpenAlex,
    SemanticScholar,
    Service,
)
from citerec.library.papers.library import Library
from citerec.tests.conftest import Run, Server
from citerec.tests.library.conftest import entry, papers_of

Work = partial(LibraryPaper, "", "")
"""A work by title, abstract, authors, year, venue and DOI."""
KEY = "a-secret-key"
ABSTRACT = "Graphs are studied here at some length, so that this abstract is long enough to be one."


BIB = (
    entry("byDoi", "Graphs and their edges", doi="10.1000/graphs", author="Ann Lee", year=2001)
    + entry("byArxiv", "Trees without leaves", eprint="2001.00001", archiveprefix="arXiv", author="Bo Ek")
    + entry("byPmid", "Cells in water", url="https://pubmed.ncbi.nlm.nih.gov/123/", author="Cy Oh", year=2003)
    + entry("byTitle", "Speech: A Study, in {Parts}", author="Di Fu and Ed Go", year=2004)
    + entry("otherYear", "Vision of the far future", author="Flo Hay", year=2005)
    + entry("wrongDoi", "Poetry generation by rhyme", doi="10.1000/wrong", author="Gus Ivy", year=2006)
    + entry("nowhere", "Notes of a seminar", author="Hal Jay", year=2007)
    + entry("nothing", "Untitled notes")
    + entry(
        "whole", "A complete entry", author="Ira Kay", year=2008, journal="J", doi="10.1000/whole",
        abstract="My own.",
    )
)  # fmt: skip


def openalex(
    title: str, doi: str = "", year: int = 0, author: str = "", abstract: str = "", **more: Any
) -> Any:
    """A work in OpenAlex's shape, its abstract in an inverted index with a hole."""
    index: dict[str, list[int]] = {}
    for place, word in enumerate(abstract.split()):
        index.setdefault(word, []).append(place + (place > 3))
    return {
        "id": "https://openalex.org/W1", "doi": f"https://doi.org/{doi}" if doi else None, "title": title,
        "publication_year": year or None, "abstract_inverted_index": index or None, "ids": {},
        "authorships": [{"author": {"display_name": author}}] if author else [],
        "primary_location": {"source": {"display_name": "Journal of Graphs"}, "landing_page_url": None},
    } | more  # fmt: skip


WORKS = [
    openalex("Graphs & their edges", "10.1000/graphs", 2001, "Ann Lee", ABSTRACT),
    openalex("Cells in water", "", 2003, "Cy Oh", "", ids={"pmid": "https://pubmed.ncbi.nlm.nih.gov/123"}),
    openalex("Speech, a study in parts", "10.1000/speech", 2005, "Diana Fu"),
    openalex("Vision of the far future", "10.1000/vision", 2009, "Flo Hay", ABSTRACT),
    openalex("A work about something else", "10.1000/wrong", 2006, "Gus Ivy", ABSTRACT),
]
JATS = "<jats:title>Abstract</jats:title><jats:p>Speech &amp; <jats:italic>more</jats:italic>."
JATS += f" {ABSTRACT}</jats:p>"
ATOM = f"""<?xml version="1.0" encoding="UTF-8"?>
<feed xmlns="http://www.w3.org/2005/Atom" xmlns:arxiv="http://arxiv.org/schemas/atom">
<title>ArXiv Query</title>
<entry><id>http://arxiv.org/abs/2001.00001v3</id><published>2020-01-01T00:00:00Z</published>
<title>Trees
  without leaves</title><summary>  {ABSTRACT}
</summary><author><name>Bo Ek</name></author><arxiv:doi>10.1000/trees</arxiv:doi></entry></feed>"""


class Services(Server):
    """The four services on this machine. faults: (status, headers, body, cut) to answer first, by service."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, dict[str, str], Any, dict[str, str]]] = []
        self.faults: dict[str, list[tuple[int, dict[str, str], bytes, int | None]]] = {}
        super().__init__()

    @property
    def command(self) -> list[str]:
        """Begins a command that asks them, in a process of its own."""
        code = f"""
from citerec.__main__ import main
from citerec.library.enrich.services import SERVICES
SERVICES |= {{name: (kind, "{self.url}/" + name) for name, (kind, _) in SERVICES.items()}}
main()"""
        return [sys.executable, "-c", code]

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        parts = urlsplit(request.path)
        name, query = parts.path.split("/")[1], {key: v for key, [v] in parse_qs(parts.query).items()}
        sent = request.rfile.read(int(request.headers.get("Content-Length") or 0))
        ids = json.loads(sent)["ids"] if sent else None
        self.asked.append((parts.path, query, ids, dict(request.headers)))
        if self.faults.get(name):
            status, headers, body, cut = self.faults[name].pop(0)
        else:
            status, headers, body, cut = *self.usual(name, query, ids), None
        request.send_response(status)
        for key, value in headers.items():
            request.send_header(key, value)
        request.send_header("Content-Length", str(len(body)))
        request.end_headers()
        request.wfile.write(body[:cut])

    def usual(self, name: str, query: dict[str, str], ids: Any) -> tuple[int, dict[str, str], bytes]:
        answer: Any = {"error": "Title match not found"}
        if name == "arxiv":
            return 200, {}, ATOM.encode()
        if name == "openalex":
            answer = {"meta": {}, "results": WORKS}
        elif name == "crossref":
            item: dict[str, Any] = {"DOI": "10.1000/SPEECH", "title": ["Speech"]}
            item |= {
                "subtitle": ["A study in parts"],
                "abstract": JATS,
                "author": [{"given": "D.", "family": "Fu"}],
            }
            item |= {"issued": {"date-parts": [[2004, 5]]}, "container-title": []}
            answer = {"status": "ok", "message": {"items": [item, {"title": "a string"}]}}
        elif ids is not None:
            found: dict[str, Any] = {"title": "Trees without leaves", "abstract": None, "year": 2020}
            found |= {"externalIds": {"DOI": "10.1000/TREES", "ArXiv": "2001.00001"}}
            found |= {"paperId": "p", "venue": "", "authors": []}
            answer = [found if id == "ARXIV:2001.00001" else None for id in ids]
        status = 404 if "error" in answer else 200
        return status, {"Content-Type": "application/json; charset=iso-8859-1"}, json.dumps(answer).encode()


@pytest.fixture
def services(monkeypatch: pytest.MonkeyPatch) -> Iterator[Services]:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    for name in ("CITEREC_MAILTO", "OPENALEX_API_KEY", "S2_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    services = Services()
    for name, (kind, _) in SERVICES.items():
        monkeypatch.setitem(SERVICES, name, (kind, f"{services.url}/{name}"))
    yield services
    services.http.shutdown()
    services.http.server_close()


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """What the client would wait, in seconds."""
    waits: list[float] = []
    monkeypatch.setattr(Client, "_pause", lambda _, seconds: waits.append(seconds))
    return waits


@pytest.fixture
def run(command: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    """Runs `citerec COMMAND library=mine ...` beside a library of BIB: (exit code, stdout, stderr)."""
    monkeypatch.chdir(tmp_path)
    Path("a.bib").write_text(BIB, encoding="utf-8")

    def run_(name: str, *arguments: str) -> tuple[int, str, str]:
        return command(name, "library=mine", *arguments)

    assert "citerec enrich library=mine looks them up" in run_("build", "source=a.bib", "model=bm25")[1]
    return run_


def by_key() -> dict[str, LibraryPaper]:
    return {paper.key: paper for paper in papers_of(Library.open("mine"))}


def test_gaps_are_filled_and_nothing_else_changes(services: Services, run: Run, pauses: list[float]) -> None:
    before = by_key()
    code, out, err = run("enrich", "yes=true", "mailto=me@x.org", f"openalex_key={KEY}")
    assert code == 0
    after = by_key()
    assert list(after) != list(before) and after.keys() == before.keys()
    graphs, trees, cells = after["byDoi"], after["byArxiv"], after["byPmid"]
    assert (graphs.abstract, graphs.venue) == (ABSTRACT, "Journal of Graphs")
    assert graphs.filled == ("abstract:openalex", "venue:openalex")
    assert (trees.abstract, trees.year, trees.doi) == (ABSTRACT, 2020, "10.1000/trees")
    assert trees.filled == ("doi:semanticscholar", "year:semanticscholar", "abstract:arxiv")
    assert (cells.venue, cells.abstract) == ("Journal of Graphs", "")
    speech = after["byTitle"]
    assert (speech.doi, speech.year, speech.abstract[:16]) == ("10.1000/speech", 2004, "Speech & more. G")
    for key in ("otherYear", "wrongDoi", "nowhere", "nothing", "whole"):
        assert after[key] == before[key]
    for key, paper in after.items():
        own = without_filled(paper)
        assert own == before[key] and paper.authors == before[key].authors
    assert "completed 4" in out and "by source: openalex 3" in out
    assert "in conflict 2: what was found is another work\n  otherYear" in out
    assert (
        "wrongDoi: Poetry generation by rhyme (openalex: another title: A work about something else)" in out
    )
    assert "not found 1\n  nowhere" in out and "not asked 1" in out
    assert "titles and years of 3 papers, your address, your key" in err
    Recommender.open("mine").recommend("graphs are studied at some length")


def test_what_is_sent(services: Services, run: Run, pauses: list[float]) -> None:
    arguments = ["enrich", "yes=true", "mailto=me@x.org", "semanticscholar_key=" + KEY]
    assert run(*arguments)[0] == 0
    sent = [(path, query.get("filter"), ids) for path, query, ids, _ in services.asked]
    assert sent[:4] == [
        ("/openalex/works", "doi:10.1000/graphs|10.1000/wrong", None),
        ("/openalex/works", "doi:10.48550/arxiv.2001.00001", None),
        ("/openalex/works", "pmid:123", None),
        (
            "/openalex/works",
            'title.search:"Speech: A Study  in Parts"|"Vision of the far future"|"Notes of a seminar"'
            ",publication_year:2003-2008",
            None,
        ),
    ]
    left = "doi:10.1000/trees,doi:10.1000/speech,doi:10.1000/wrong"  # 10.1000/graphs is complete
    assert ("/crossref/works", left, None) in sent
    assert ("/semanticscholar/paper/batch", None, ["DOI:10.1000/speech", "DOI:10.1000/wrong"]) in sent
    for path, query, _, headers in services.asked:
        assert ("mailto" in query) == path.startswith(("/openalex", "/crossref"))
        assert (headers.get("x-api-key") == KEY) == path.startswith("/semanticscholar")
        assert not re.search(
            "My own|Ira|Ann", str(query)
        )  # neither whole papers nor who wrote what is found by id
    assert run(*arguments)[0] == 0 and len(services.asked) == len(sent)  # a repeated run asks nothing
    generation = Library.open("mine").manifest.generation
    assert "completed 0" in run(*arguments, "max_age=100000")[1] and len(services.asked) == len(sent)
    assert Library.open("mine").manifest.generation == generation


@pytest.mark.parametrize("format", ["table", "json"])
def test_nothing_is_sent_without_consent(services: Services, run: Run, format: str) -> None:
    before = by_key()
    code, out, err = run("enrich", f"format={format}")
    assert code == 0 and "nothing was sent; yes=true sends it" in out + err
    assert "127.0.0.1: 2 DOIs, 1 arXiv ids, 1 PubMed ids, titles and years of 3 papers" in out + err
    assert format == "table" or json.loads(out)["plan"]["openalex"] == {
        "doi": 2,
        "arxiv": 1,
        "pmid": 1,
        "title": 3,
    }
    assert services.asked == [] and by_key() == before


@pytest.mark.slow
@pytest.mark.parametrize(("answer", "sent"), [("y", True), ("", False)])
def test_on_a_terminal_it_asks(services: Services, run: Run, answer: str, sent: bool) -> None:
    controller, terminal = pty.openpty()
    command = [*services.command, "enrich", "library=mine", "services=[openalex]"]
    process = subprocess.Popen(command, stdin=terminal, stdout=subprocess.PIPE, stderr=terminal, text=True)
    os.close(terminal)
    shown = b""
    while b"Send it? [y/N]" not in shown:
        shown += os.read(controller, 1000)
    assert services.asked == []
    os.write(controller, answer.encode() + b"\n")
    reader = threading.Thread(target=drain, args=(controller,))
    reader.start()
    out = process.communicate(timeout=60)[0]
    reader.join()
    os.close(controller)
    assert (process.returncode, bool(services.asked)) == (0, sent)
    assert ("nothing was sent" in out) != sent and (by_key()["byDoi"].abstract == ABSTRACT) == sent


def drain(terminal: int) -> None:
    """Read what a terminal shows, until its process ends."""
    with suppress(OSError):
        while os.read(terminal, 1000):
            pass


def test_report_as_json(services: Services, run: Run, pauses: list[float]) -> None:
    out = json.loads(run("enrich", "yes=true", "format=json")[1])
    assert out["papers"] == 8 and out["statuses"]["completed"] == 4 and out["unavailable"] == {}
    entries = {found["key"]: found for found in out["entries"]}
    assert entries["byDoi"]["filled"] == {"abstract": "openalex", "venue": "openalex"}
    assert entries["wrongDoi"]["status"] == "in conflict" and entries["nowhere"]["missing"][0] == "abstract"


def test_keys_are_written_nowhere(
    services: Services, run: Run, pauses: list[float], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    services.faults["openalex"] = [(401, {}, f"no such key: {KEY}".encode(), None)]
    code, out, err = run("enrich", "yes=true", f"openalex_key={KEY}", f"semanticscholar_key={KEY}")
    assert code == 0 and "openalex: HTTP 401: refuses the key" in err
    assert KEY not in out + err + "".join(record.getMessage() for record in caplog.records)
    assert [
        path for path in Path("mine").rglob("*") if path.is_file() and KEY.encode() in path.read_bytes()
    ] == []


def test_what_was_filled_stays_until_the_source_has_its_own(
    services: Services, run: Run, pauses: list[float]
) -> None:
    assert run("enrich", "yes=true")[0] == 0
    filled = by_key()
    Path("a.bib").write_text(
        BIB.replace("Graphs and their edges},", "Graphs and their edges},\n abstract = {Mine.},")
        .replace("Trees without leaves", "Another paper under this key")
        .replace("Cells in water", "Cells in clear water"),
        encoding="utf-8",
    )
    assert run("update")[0] == 0
    after = by_key()
    assert (after["byDoi"].abstract, after["byDoi"].filled) == ("Mine.", ("venue:openalex",))
    assert (after["byArxiv"].abstract, after["byArxiv"].filled) == ("", ())
    assert after["byPmid"].venue == "Journal of Graphs" and after["byTitle"] == filled["byTitle"]
    assert run("build", "overwrite=true")[0] == 0 and by_key()["byTitle"] == filled["byTitle"]
    Path("more.bib").write_text(
        entry("again", "Speech: a study in parts", abstract="Short.", author="Di Fu", year=2004),
        encoding="utf-8",
    )
    assert run("add", "source=more.bib")[0] == 0
    speech = by_key()["byTitle"]
    assert (speech.abstract, speech.doi, speech.aliases) == (
        "Short.",
        "10.1000/speech",
        ("key:again", "again"),
    )
    assert run("update")[1].startswith("mine: nothing has changed")


def test_what_was_filled_stays_under_new_keys_and_dois(run: Run) -> None:
    Path("works.jsonl").write_text("\n".join(map(json.dumps, WORKS)), encoding="utf-8")
    run("enrich", "from=works.jsonl")
    before = by_key()
    renamed = re.sub("{by|{now", r"\g<0>:", BIB)
    for number, word in enumerate(("Cells", "Trees")):
        renamed = renamed.replace(f"title = {{{word}", f"doi = {{10.1000/{number}}},\n  title = {{{word}")
    Path("a.bib").write_text(renamed, encoding="utf-8")
    assert run("update")[1] == "mine: 0 added, 0 removed, 5 replaced; 9 papers\n"
    after = by_key()
    assert after["by:Doi"].abstract == ABSTRACT and after["by:Pmid"].venue == before["byPmid"].venue != ""
    assert after["by:Title"].filled == before["byTitle"].filled != ()


def test_a_doi_that_another_paper_has_is_not_filled(
    services: Services, run: Run, pauses: list[float]
) -> None:
    Path("more.bib").write_text(
        entry("other", "An unrelated title here", doi="10.1000/speech", author="X Y"), encoding="utf-8"
    )
    assert run("add", "source=more.bib")[0] == 0 and run("enrich", "yes=true")[0] == 0
    assert (by_key()["byTitle"].doi, by_key()["byTitle"].venue) == ("", "Journal of Graphs")


def test_the_arxiv_id_is_asked_about_after_a_doi_of_another_work(
    services: Services, run: Run, pauses: list[float]
) -> None:
    both = BIB.replace("10.1000/wrong},", "10.1000/wrong},\n eprint = {2001.00002}, archiveprefix = {arXiv},")
    Path("a.bib").write_text(both, encoding="utf-8")
    assert run("update")[0] == 0 and run("enrich", "yes=true", "services=[openalex]")[0] == 0
    assert any("arxiv.2001.00002" in query["filter"] for _, query, *_ in services.asked)
    assert "in conflict 2" in run("enrich", "yes=true", "services=[openalex]")[1] and len(services.asked) == 5


def test_retractions_are_kept_and_asked_about_where_wanted(
    services: Services, run: Run, pauses: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    works = [one | {"is_retracted": "graphs" in one["title"].lower()} for one in WORKS]
    updates = [
        {"DOI": "10.1000/whole-c", "type": "correction", "updated": {"date-parts": [[2009]]}},
        {"DOI": "10.1000/whole-r", "type": "retraction", "updated": {"date-parts": [[2010, 2, 6]]}},
    ]
    whole = {"DOI": "10.1000/whole", "title": ["A complete entry"], "updated-by": updates}
    withdrawn: dict[str, Any] = {"DOI": "10.1000/wrong", "title": ["Poetry generation by rhyme"]}
    withdrawn |= {"update-to": [{"DOI": "10.1000/WRONG", "type": "withdrawal"}]}
    usual = services.usual

    def answer(name: str, query: dict[str, str], ids: Any) -> tuple[int, dict[str, str], bytes]:
        if name == "openalex":
            return 200, {}, json.dumps({"results": works}).encode()
        if name == "crossref" and "filter" in query and query["filter"].startswith("doi:"):
            return 200, {}, json.dumps({"message": {"items": [whole, withdrawn]}}).encode()
        return usual(name, query, ids)

    monkeypatch.setattr(services, "usual", answer)
    code, out, _ = run("enrich", "yes=true")
    assert code == 0 and by_key()["byDoi"].retracted == "OpenAlex" and by_key()["whole"].retracted == ""
    assert "retracted: byDoi: Graphs and their edges (OpenAlex)" in out and ", 2 retracted" in out
    assert by_key()["wrongDoi"].retracted == "Crossref"
    code, out, _ = run("enrich", "yes=true", "retractions=true")
    assert code == 0 and "mine: 9 papers, 7 lacked something\ncompleted 1: 1 retracted\n" in out
    assert by_key()["whole"].retracted == "Crossref, 2010-02-06, doi:10.1000/whole-r"
    asked = len(services.asked)
    assert run("enrich", "yes=true", "retractions=true")[0] == 0
    assert len(services.asked) == asked
    assert run("build", "overwrite=true")[0] == 0
    assert by_key()["whole"].retracted == "Crossref, 2010-02-06, doi:10.1000/whole-r"
    Path("mine", FILE).unlink()  # long ago
    del updates[1], works[0]["is_retracted"]
    assert run("enrich", "yes=true", "retractions=true")[0] == 0
    assert [key for key, paper in by_key().items() if paper.retracted] == ["wrongDoi"]


# Faults.

OK = json.dumps({"results": WORKS}).encode()
LOOKUP = Lookup("doi", "10.1000/graphs")
PAGE = b"<!DOCTYPE html><html><title>Sorry</title></html>"


@pytest.mark.parametrize(
    ("faults", "waits"),
    [
        ([(429, {"Retry-After": "7"}, b"", None)], [7.0]),
        (
            [(503, {"Retry-After": "tomorrow"}, b"", None)],
            None,
        ),
        ([(500, {}, b"", None)], None),
        ([(200, {}, OK, len(OK) // 2)], None),
        ([(200, {}, OK[:-9], None)], None),
        ([(200, {"Content-Type": "text/html"}, PAGE, None)] * (ATTEMPTS - 1), None),
        ([(200, {"Content-Encoding": "gzip"}, b"not gzip", None)], None),
        ([(200, {"Content-Type": "application/json"}, b'{"results": [{"title": "\xe9"}]}', None)], None),
    ],
)
def test_faults_that_pass(
    services: Services, pauses: list[float], monkeypatch: pytest.MonkeyPatch, faults: list[Any], waits: Any
) -> None:
    monkeypatch.setattr(OpenAlex, "interval", 0.0)
    services.faults["openalex"] = list(faults)
    with Client(OpenAlex(f"{services.url}/openalex")) as client:
        [work] = client.ask([LOOKUP])[LOOKUP]
    assert work.abstract == ABSTRACT
    if waits is not None:
        assert pauses == waits
    else:
        bounds = [(0.5 * 2**n, 1.5 * 2**n) for n in range(len(faults))]
        assert all(low <= wait <= high for wait, (low, high) in zip(pauses, bounds, strict=True))


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ((429, {"Retry-After": "86400"}, b"", None), "HTTP 429: asks to wait 24 hours"),
        ((500, {}, b"", None), "HTTP 500 (5 attempts)"),
        ((403, {}, b"", None), "HTTP 403 (5 attempts)"),
        ((401, {}, b"", None), "HTTP 401: refuses the key"),
        ((200, {}, PAGE, None), "answers with a web page (5 attempts)"),
        ((200, {}, b"[]", None), "answers in an unknown form (5 attempts)"),
        ((200, {}, b'{"results": {"a": 1}}', None), "answers in an unknown form (5 attempts)"),
        ((200, {"Content-Type": "a/b; charset=nonsense"}, b"\xff", None), "in an unknown form (5 attempts)"),
        ((200, {}, OK, 9), "the connection broke (5 attempts)"),
        ((302, {"Location": "http://localhost:1/elsewhere"}, b"", None), "HTTP 302 (5 attempts)"),
        ((429, {"Retry-After": "9" * 30}, b"", None), "HTTP 429: asks to wait more than a week"),
        ((429, {"Retry-After": "5400"}, b"", None), "HTTP 429: asks to wait 90 minutes"),
    ],
)
def test_faults_that_stay(services: Services, pauses: list[float], fault: Any, reason: str) -> None:
    services.faults["openalex"] = [fault] * 30
    with Client(OpenAlex(f"{services.url}/openalex")) as client, pytest.raises(Unavailable) as error:
        client.ask([LOOKUP])
    assert str(error.value).endswith(reason) and len(services.asked) <= 4 * ATTEMPTS


def test_texts_of_services_have_no_control_codes() -> None:
    title = "Before.\x1b[31m <i>Deep</i> &lt;b&gt;nets\x9b"
    found = OpenAlex("https://x").works([{"id": "W1", "title": title}])[0].title
    assert found.startswith("Before.") and found.isprintable() and "<" not in found


def test_a_date_to_wait_for_is_read(services: Services) -> None:
    tomorrow = formatdate(time() + 86400, usegmt=True)
    services.faults["openalex"] = [(429, {"Retry-After": tomorrow}, b"", None)]
    with Client(OpenAlex(f"{services.url}/openalex")) as client, pytest.raises(Unavailable) as error:
        client.ask([LOOKUP])
    assert str(error.value).endswith("asks to wait 24 hours")


@pytest.mark.parametrize("feed", [PAGE, b"<feed", ATOM.replace("?>", "?><!DOCTYPE f>").encode(), b"<a/>"])
def test_faults_of_xml(services: Services, pauses: list[float], feed: bytes) -> None:
    services.faults["arxiv"] = [(200, {}, feed, None)] * ATTEMPTS
    with Client(Arxiv(f"{services.url}/arxiv")) as client:
        with pytest.raises(Unavailable, match="answers"):
            client.ask([Lookup("arxiv", "2001.00001")])
        [work] = client.ask([Lookup("arxiv", "2001.00001")]).popitem()[1]
    assert (work.doi, work.year, work.authors) == ("10.1000/trees", 2020, ("Bo Ek",))


def test_an_endless_answer_is_cut(
    services: Services, pauses: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("citerec.library.enrich.client.LARGEST_ANSWER", 100)
    with (
        Client(OpenAlex(f"{services.url}/openalex")) as client,
        pytest.raises(Unavailable, match="too large"),
    ):
        client.ask([LOOKUP])


def test_an_answer_that_trickles_is_cut(pauses: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    class Slow(Server):
        def answer(self, request: BaseHTTPRequestHandler) -> None:
            request.send_response(200)
            request.end_headers()
            with suppress(OSError):
                for _ in range(200):
                    request.wfile.write(b" ")
                    sleep(0.02)

    monkeypatch.setattr("citerec.library.enrich.client.LONGEST_ANSWER", 0.1)
    slow, start = Slow(), time()
    with Client(OpenAlex(slow.url)) as client, pytest.raises(Unavailable, match="too large"):
        client.ask([LOOKUP])
    assert time() - start < 3
    slow.http.shutdown()
    slow.http.server_close()


def test_no_connection(pauses: list[float]) -> None:
    with Client(OpenAlex("http://127.0.0.1:9")) as client, pytest.raises(Unavailable, match="no connection"):
        client.ask([LOOKUP])


def test_one_rejected_lookup_does_not_spoil_the_others(services: Services, pauses: list[float]) -> None:
    answer = services.usual

    def reject(name: str, query: dict[str, str], ids: Any) -> tuple[int, dict[str, str], bytes]:
        return (400, {}, b"") if "bad" in query["filter"] else answer(name, query, ids)

    services.usual = reject  # type: ignore[method-assign]
    lookups = [Lookup("doi", f"10.1000/{name}") for name in ("a", "bad", "graphs", "b", "c")]
    with Client(OpenAlex(f"{services.url}/openalex")) as client:
        found = client.ask(lookups)
    assert [len(found[lookup]) for lookup in lookups] == [0, 0, 1, 0, 0]


def test_long_requests_are_split(services: Services, run: Run, pauses: list[float]) -> None:
    long = "".join(
        entry(f"k{n}", f"Title {n} " + "of words " * 100, author="A B", year=2000) for n in range(9)
    )
    Path("a.bib").write_text(
        long + entry("longest", "word " * 1000, author="A B", year=2000), encoding="utf-8"
    )
    assert run("update", "force=true")[0] == 0
    assert run("enrich", "yes=true", "services=[openalex]")[0] == 0
    titles = [query["filter"].count("|") + 1 for _, query, *_ in services.asked]
    assert sum(titles) == 10 and max(titles) == 2  # 900 characters each


def test_a_service_that_rejects_everything_is_not_believed(services: Services, pauses: list[float]) -> None:
    services.faults["openalex"] = [(400, {}, b"", None)] * 99
    client = Client(OpenAlex(f"{services.url}/openalex"))
    with client, pytest.raises(Unavailable, match="HTTP 400: rejects all requests"):
        client.ask([Lookup("doi", f"10.1000/{n}") for n in range(50)])


def test_identifiers_none_of_which_is_known_are_no_fault(services: Services, pauses: list[float]) -> None:
    services.faults["semanticscholar"] = [(400, {}, b'{"error":"No valid paper ids given"}', None)]
    lookups = [Lookup("doi", f"10.1000/{number}") for number in range(50)]
    with Client(SemanticScholar(f"{services.url}/semanticscholar")) as client:
        assert client.ask(lookups) == {lookup: [] for lookup in lookups} and client.requests == 1


@pytest.mark.parametrize("kind", [OpenAlex, Crossref])
def test_404_says_of_no_title_that_it_is_unknown(
    services: Services, pauses: list[float], kind: type[Service]
) -> None:
    services.faults[kind.name] = [(404, {}, b"", None)] * 9
    asked = [Lookup("title", f"Title {number}", "Lee", 2001) for number in range(3)]
    with Client(kind(f"{services.url}/{kind.name}")) as client, pytest.raises(Unavailable, match="404"):
        for lookup in asked:
            client.ask([lookup])


def test_a_service_that_fails_is_asked_again_by_the_next_run(
    services: Services, run: Run, pauses: list[float]
) -> None:
    services.faults["openalex"] = [(500, {}, b"", None)] * ATTEMPTS
    code, _, err = run("enrich", "yes=true")
    assert code == 0 and "openalex: HTTP 500 (5 attempts); the same command asks again" in err
    assert by_key()["byArxiv"].abstract == ABSTRACT and by_key()["byDoi"].abstract == ""
    assert run("enrich", "yes=true")[0] == 0 and by_key()["byDoi"].abstract == ABSTRACT
    services.faults = {name: [(500, {}, b"", None)] * 99 for name in SERVICES}
    before = by_key()
    code, _, err = run("enrich", "yes=true", "max_age=0", "services=[openalex]")
    assert code == 0  # today's answers
    Path("mine/enrichment.sqlite").unlink()
    code, _, err = run("enrich", "yes=true")
    assert code == 2 and "openalex: HTTP 500 (5 attempts); the same command asks again" in err
    assert by_key() == before


@pytest.mark.slow
@pytest.mark.parametrize("signal", ["SIGINT", "SIGKILL"])
def test_a_stopped_run_changes_nothing_and_goes_on(services: Services, run: Run, signal: str) -> None:
    before = by_key()
    services.faults["crossref"] = [(429, {"Retry-After": "60"}, b"", None)]
    command = [*services.command, "enrich", "library=mine", "yes=true", "services=[openalex,crossref]"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, env=os.environ, text=True)
    while not any(path.startswith("/crossref") for path, *_ in services.asked):
        assert process.poll() is None, process.communicate()[1]
    process.send_signal(getattr(__import__("signal"), signal))
    err = process.communicate(timeout=60)[1]
    assert by_key() == before and (signal == "SIGKILL" or "the same command goes on" in err)
    count = len(services.asked)
    assert run("enrich", "yes=true", "services=[openalex]")[0] == 0
    assert len(services.asked) == count  # all in the cache
    assert by_key()["byDoi"].abstract == ABSTRACT


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["mailto=me"], "mailto=me: is not an e-mail address"),
        (["mailto=ü@x.org"], "mailto=ü@x.org: is not an e-mail address"),
        (["openalex_key=a b"], "openalex_key: is not a key: it has a space or a character that is not ASCII"),
        (["services=[]"], "services is empty; choose openalex, semanticscholar, crossref, arxiv or datacite"),
        (["services=[dblp]"], "services=dblp: choose openalex, semanticscholar, crossref, arxiv or datacite"),
        (["from=missing.bib"], "from=missing.bib: no such file"),
        (["from=mine"], "from=mine: is the library itself; name another one, or a file"),
        (["from=empty.jsonl"], "empty.jsonl: is empty; export it again"),
        (["from=bad.jsonl"], "from=bad.jsonl: has no usable paper"),
    ],
)
def test_bad_input(run: Run, arguments: list[str], line: str) -> None:
    Path("empty.jsonl").write_text("", encoding="utf-8")
    Path("bad.jsonl").write_text('{"id": "x"}\n', encoding="utf-8")
    code, _, err = run("enrich", *arguments)
    assert code == 2 and err.splitlines()[-1].endswith(line)


def test_an_address_or_key_of_the_environment_is_checked(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("S2_API_KEY", "secret\nline")
    code, _, err = run("enrich", "yes=true")
    assert code == 2 and "error: S2_API_KEY: is not a key" in err and "secret" not in err
    monkeypatch.setenv("CITEREC_MAILTO", "me")
    assert "CITEREC_MAILTO=me: is not an e-mail address" in run("enrich", "yes=true")[2]


def test_a_damaged_cache_is_named(run: Run, services: Services) -> None:
    Path("mine/enrichment.sqlite").write_text("no database" * 99, encoding="utf-8")
    code, _, err = run("enrich", "yes=true")
    assert code == 2 and "mine/enrichment.sqlite: cannot be used" in err and "remove it" in err


def test_old_answers_are_forgotten(tmp_path: Path) -> None:
    cache = AnswerCache(tmp_path / "cache", 10)
    cache.put("arxiv", {LOOKUP: [Work("T")], Lookup("doi", "none"): []})
    assert cache.get("arxiv", LOOKUP) == [Work("T")] and cache.get("arxiv", Lookup("doi", "none")) == []
    assert cache.get("openalex", LOOKUP) is None
    assert AnswerCache(tmp_path / "cache", 10**30).get("arxiv", LOOKUP) == [Work("T")]
    cache._database.execute("UPDATE answers SET day = day - 11")
    assert cache.get("arxiv", LOOKUP) is None
    with pytest.raises(InputError, match="remove it"):
        AnswerCache(tmp_path, 10)


# Matching.

PAPER = LibraryPaper("x", title="Deep trees: a survey", authors=("Ann Lee", "Bo Ek"), year=2010)


@pytest.mark.parametrize(
    ("work", "by_title", "reason"),
    [
        (Work("Deep Trees - A Survey", authors=("Lee, A.",), year=2011), True, ""),
        (Work("Deep Trees - A Survey", authors=("Lee, A.",), year=2012), True, "another year: 2012"),
        (Work("Deep Trees - A Survey", authors=("Lee, A.",)), True, "another year: unknown"),
        (
            Work("Deep Trees - A Survey", authors=("Bo Ek", "Ann Lee"), year=2010),
            True,
            "another first author: Ek",
        ),
        (Work("Deep Trees - A Survey", year=2010), True, "another first author: unknown"),
        (Work("Deep Trees", authors=("Ann Lee",), year=2010), True, "another title: Deep Trees"),
        (Work("Deep trees", year=1990), False, ""),
        (Work("", year=1990), False, ""),
        (Work("Shallow graphs"), False, "another title: Shallow graphs"),
    ],
)
def test_a_match(work: LibraryPaper, by_title: bool, reason: str) -> None:
    assert contradiction(PAPER, work, by_title) == reason
    own, other = (PAPER._replace(authors=(name,)) for name in ("Jo O'Ek", "Jo O\u2019Ek"))
    assert contradiction(own, other, by_title=True) == ""


def test_works_that_differ_fill_only_what_they_agree_on() -> None:
    works = [
        Work(PAPER.title, "short", ("Ann Lee",), 2010, "A", "10.1/a"),
        Work(PAPER.title, ABSTRACT, ("Ann Lee",), 2010, "A", "10.1/b"),
        Work(PAPER.title, "", ("Ann Lee",), 2011, "B", "10.1/c"),
    ]
    found = complete(Outcome(PAPER), works, True, "s", lambda _: False)
    assert (found.paper.doi, found.paper.venue, found.paper.abstract) == ("", "A", ABSTRACT)
    assert found.filled == {"abstract": "s", "venue": "s"} and found.status == "completed"


texts = st.sampled_from(["", PAPER.title, "Deep trees", "Graphs"])
years = st.sampled_from([0, 2009, 2010, 2012])
authors = st.sampled_from([(), ("Ann Lee",), ("Bo Ek", "Ann Lee")])
works = st.lists(
    st.builds(
        Work, title=texts, abstract=st.sampled_from(["", "Short.", ABSTRACT]), authors=authors, year=years,
        venue=texts, doi=st.sampled_from(["", "10.1/a", "10.1/b"]),
    ),
    max_size=3,
)  # fmt: skip


@given(
    st.tuples(texts, texts, authors, years, texts).map(lambda fields: LibraryPaper("x", "", *fields)),
    st.lists(st.tuples(works, st.booleans()), max_size=3),
)
def test_what_a_paper_has_never_changes(
    paper: LibraryPaper, answers: list[tuple[list[LibraryPaper], bool]]
) -> None:
    found = Outcome(paper)
    for number, (some, by_title) in enumerate(answers):
        found = complete(found, some, by_title, f"s{number}", lambda doi: doi == "10.1/b")
    assert without_filled(found.paper) == paper and found.paper.doi != "10.1/b"
    assert {mark.partition(":")[0] for mark in found.paper.filled} == found.filled.keys()
    assert all(getattr(found.paper, name) for name in found.filled)


def test_a_doi_with_signs_of_a_query_is_not_asked() -> None:
    assert not any(OpenAlex("https://x").accepts(Lookup("doi", doi)) for doi in ("10.1/a,b", "10.1/a|b"))


def test_records_of_another_type_are_skipped() -> None:
    service, lookups = SemanticScholar("https://x"), [Lookup("doi", "10.1000/a"), Lookup("doi", "10.1000/b")]
    bad = {"title": {"an": "object"}, "externalIds": {"DOI": "10.1/a"}}
    good = {"title": "T", "year": "2001", "externalIds": {"DOI": "10.1000/B"}}
    assert service.read(lookups, json.dumps([bad, good])) == {
        lookups[0]: [], lookups[1]: [Work("T", year=2001, doi="10.1000/b")],
    }  # fmt: skip


# Files.


def test_from_files(run: Run, tmp_path: Path) -> None:
    before = by_key()
    lines = [json.dumps(work) for work in WORKS * 3]
    lines += [
        json.dumps({"id": f"w{n}", "title": f"Work number {n} of many", "abstract": ABSTRACT})
        for n in range(99)
    ]
    lines += [
        json.dumps({"corpusid": 5, "title": "Notes of a seminar", "year": 2007, "venue": "V"}),
        "{broken",
    ]
    Path("works.jsonl").write_text("\n".join(lines), encoding="utf-8")
    code, out, err = run("enrich", "from=works.jsonl")
    after = by_key()
    assert (code, after.keys()) == (0, before.keys()) and "works.jsonl: 1 record skipped" in err
    assert after["byDoi"].abstract == ABSTRACT and after["byDoi"].filled[0] == "abstract:works.jsonl"
    assert after["nowhere"].venue == "V" and after["byTitle"].doi == "10.1000/speech"
    assert after["wrongDoi"] == before["wrongDoi"] and after["otherYear"] == before["otherYear"]
    assert "in conflict 2" in out and "same title, but another author, year or identifier" in out
    assert Library.open("mine").manifest.sources == Library.open("mine").manifest.sources[:1]
    assert run("enrich", "from=works.jsonl")[1].startswith(
        "mine: 9 papers, 7 lacked something\ncompleted 0\n"
    )


def test_a_yearly_report_gets_the_work_of_its_year(run: Run) -> None:
    title, years = "World malaria report", (2021, 2018, 2019, 2020)
    reports = (entry(f"r{year}", title, author="Ann Lee", year=year) for year in (2019, 2022))
    Path("r.bib").write_text("".join(reports), encoding="utf-8")
    run("add", "source=r.bib")
    works = (openalex(title, f"10.1000/{year}", year, "Ann Lee") for year in years)
    Path("w.jsonl").write_text("\n".join(map(json.dumps, works)), encoding="utf-8")
    run("enrich", "from=w.jsonl")
    assert (by_key()["r2019"].doi, by_key()["r2022"].doi) == ("10.1000/2019", "")


def test_from_another_library_or_bibliography(run: Run, command: Run) -> None:
    Path("b.bib").write_text(
        entry("o", "Notes of a seminar", author="Hal Jay", year=2007, abstract=ABSTRACT), encoding="utf-8"
    )
    command("build", "library=other", "source=b.bib", "model=bm25")
    code, out, _ = run("enrich", "from=other", "format=json")
    found = json.loads(out[out.index("{") :])
    assert code == 0 and found["sources"] == {"other": 1} and found["sent"] is False
    assert by_key()["nowhere"].abstract == ABSTRACT and by_key()["nowhere"].aliases == ()
    assert len(Library.open("mine")) == 9
