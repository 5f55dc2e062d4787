"""The server over HTTP: responses, refused requests, and robustness against malformed ones."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import time
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import requests
import schemathesis
from fastapi import HTTPException
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from schemathesis.specs.openapi.checks import positive_data_acceptance

from citerec.base.errors import InputError
from citerec.formats.bibliography.paper import LibraryPaper
from citerec.library import limits
from citerec.library.ask.recommender import Recommender
from citerec.library.papers.library import Library
from citerec.library.serve.messages import Question, check_references
from citerec.library.serve.server import WorkQueue, host_names, listen
from citerec.library.settings import ServeSettings
from citerec.tests.library.conftest import FIELDS, PAPERS, RecommenderSpy, serving


def ask(url: str, text: str = "Adam [CITE] is an optimiser", **more: Any) -> requests.Response:
    return requests.post(f"{url}/recommend", json={"text": text, **more}, timeout=120)


def post(url: str, path: str, content: Any = None, headers: Any = None, **more: Any) -> requests.Response:
    return requests.post(f"{url}/{path}", json=content, headers=headers, timeout=120, **more)


def connected(url: str) -> socket.socket:
    host, port = url.removeprefix("http://").split(":")
    return socket.create_connection((host, int(port)), timeout=120)


def raw(url: str, sent: bytes) -> bytes:
    """The server's response to these bytes, until it closes the connection."""
    with connected(url) as connection:
        connection.sendall(sent)
        response = b""
        while part := connection.recv(65536):
            response += part
    return response


def test_answers_have_the_documented_fields(url: str) -> None:
    answer = ask(url, k=2, title="Training", exclude=["vaswani"]).json()
    assert set(answer) == {"note", "recommendations"} and answer["note"] == ""
    first, second = answer["recommendations"]
    assert set(first) == set(second) == set(FIELDS)
    assert (first["rank"], first["id"], first["key"], first["year"]) == (1, "kingma", "kingma2015adam", 2015)
    assert "Adam is named here" in first["why"]
    assert ask(url, "optimisers", only=["bare"]).json()["recommendations"][0]["year"] is None


def test_papers_cited_elsewhere_come_beside_the_others(url: str) -> None:
    question = "optimisers with attention and layers"
    plain = ask(url, question, k=1).json()["recommendations"]
    assert [paper["cited"] for paper in plain] == [False] and plain[0]["probability"] is None
    found = ask(url, question, k=1, known=[plain[0]["id"], "unknown"]).json()["recommendations"]
    assert [paper["id"] for paper in found if paper["cited"]] == [plain[0]["id"]]
    assert [paper["rank"] for paper in found] == list(range(1, len(found) + 1))
    assert sum(not paper["cited"] for paper in found) <= 1


def test_details_are_given_only_on_request(url: str) -> None:
    [shown] = ask(url, k=1, details=True).json()["recommendations"]
    assert set(shown) == {*FIELDS, "details"}
    details = shown["details"]
    assert details["authors"] == ["Diederik P. Kingma", "Jimmy Ba"] and details["venue"] == "ICLR"
    assert "kingma2015adam" in details["bibtex"]
    for evidence in details["evidence"]:
        assert all(0 <= start < stop <= len(evidence["text"]) for start, stop in evidence["spans"])


@pytest.mark.parametrize(("format", "start"), [("", "@"), ("&format=ris", "TY  - "), ("&format=csl", "[")])
def test_entries_in_three_formats(url: str, format: str, start: str) -> None:
    answer = requests.get(f"{url}/papers?id=doi%3A10.1000%2Fmarkup&id=bare{format}")
    assert answer.status_code == 200 and answer.text.startswith(start)
    assert answer.headers["content-type"].startswith("text/plain")
    assert answer.text.index("brien2020") < answer.text.index("bare")
    missing = requests.get(f"{url}/papers?id=bare&id=nobody")
    assert missing.status_code == 404 and "nobody: no paper of the library has" in missing.json()["detail"]


def test_papers_that_another_process_adds_count_at_once(tmp_path: Path) -> None:
    recommender = Recommender(Library.create(tmp_path / "l", PAPERS[:1], model="bm25"))

    def add(row: int) -> None:
        with Library.edit(tmp_path / "l") as library:
            library.add(PAPERS[row : row + 1])

    with serving(recommender) as url:
        add(3)
        assert requests.get(f"{url}/library").json()["papers"] == 2
        add(2)
        assert requests.get(f"{url}/papers?id=doi%3A10.1000%2Fmarkup").status_code == 200
    add(1)
    attention = "@misc{a, title={Attention Is All You Need}, author={Vaswani, Ashish}, year={2017}}"
    assert check_references(recommender, attention)[0]["answer"] != "unknown"


def test_what_concerns_the_owner_alone_is_not_served(tmp_path: Path) -> None:
    entry = (
        "@book{moss, file = {:/home/ann/a.pdf:PDF},\n title = {Moss}, note = {In press}, keywords = {peat},"
    )
    paper = LibraryPaper(
        "moss", "moss", "Moss", url="file:///home/ann/b.pdf", bibtex=f"{entry}\n annote={{s}}}}"
    )
    with serving(Recommender(Library.create(tmp_path / "l", [paper], model="bm25"))) as url:
        answers = [
            requests.get(f"{url}/papers?id=moss&format={name}").text for name in ("bibtex", "ris", "csl")
        ]
        answers += [ask(url, "Moss", details=True).text, search(url, query="moss", details=True).text]
    assert answers[0].startswith("@book{moss, title = {Moss}, note = {In press}, keywords = {peat},")
    for answer in answers:
        assert (
            "In press" in answer and "/home" not in answer and "annote" not in answer and "RN" not in answer
        )


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ({"collection": "networks"}, "vaswani"),
        ({"venue": "iclr"}, "kingma"),
        ({"years": "2018-"}, "doi:10.1000/markup"),
    ],
)
def test_filters_reach_the_recommender(url: str, given: dict[str, str], found: str) -> None:
    answer = ask(url, "attention of Adam to titles", **given).json()
    assert [paper["id"] for paper in answer["recommendations"]] == [found]


def test_health_and_library(url: str) -> None:
    assert requests.get(f"{url}/health", timeout=120).json() == {"status": "ok", "papers": len(PAPERS)}
    about = requests.get(f"{url}/library", timeout=120).json()
    assert about["name"] == "papers" and about["reranks"] is True
    assert about["collections"] == ["networks", "optimisers"]


@pytest.mark.parametrize(
    ("sent", "said"),
    [
        ({"text": ""}, "text: "),
        ({"text": "x" * 100_001}, "text: "),
        ({}, "text: "),
        ({"text": "[CITE]"}, "no words"),
        ({"text": "a", "only": ["nobody"]}, "only=nobody: no paper of the library has this id or key"),
        ({"text": "a", "k": 0}, "k: "),
        ({"text": "a", "k": 101}, "k: "),
        ({"text": "a", "years": "soon"}, "years: must look like 2015-2020, 2015-, -2020 or 2019"),
        ({"text": "a", "exclude": ["b"] * 1001}, "exclude: "),
        ({"text": "a", "library": "/etc/passwd"}, "library: "),
    ],
)
def test_invalid_questions_get_one_line(url: str, sent: dict[str, Any], said: str) -> None:
    answer = post(url, "recommend", sent)
    assert answer.status_code == 422
    assert said in answer.json()["detail"] and "\n" not in answer.json()["detail"]


def test_an_error_says_which_header(url: str) -> None:
    sent = requests.post(f"{url}/recommend", data='{"text": "a"}', timeout=120)
    assert sent.status_code == 422 and sent.json()["detail"] == (
        "body: must be a JSON object, sent with the header Content-Type: application/json"
    )


def search(url: str, **given: Any) -> requests.Response:
    return requests.get(f"{url}/search", params=given, timeout=120)


def test_papers_are_searched(url: str) -> None:
    [paper] = search(url, query="kingma 20").json()["papers"]
    assert paper | {"abstract": ""} == {
        "id": "kingma", "key": "kingma2015adam", "title": PAPERS[0].title, "venue": "ICLR", "year": 2015,
        "authors": ["Diederik P. Kingma", "Jimmy Ba"], "abstract": "", "retracted": "",
    }  # fmt: skip
    detailed = search(url, query="kingma 20", details=True).json()["papers"]
    assert detailed[0]["url"] == PAPERS[0].url
    assert detailed[0]["bibtex"].startswith("@inproceedings{kingma2015adam,")
    assert detailed[0]["citation"] == "(Kingma and Ba, 2015)"
    assert len(search(url, query="optim", k=1).json()["papers"]) == 1
    for sent, said in (
        ({"query": ""}, "query: "),
        ({"query": "..."}, "query: has no words"),
        ({"query": "x" * 2001}, "query: "),
        ({"query": "x", "k": 101}, "k: "),
        ({"query": "x", "years": "2015"}, "years: there is no such field; choose from query, k, details"),
        ({}, "query: "),
    ):
        answer = search(url, **sent)
        assert answer.status_code == 422 and answer.json()["detail"].startswith(said)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\xff\xfe\x00",
        b'{"text": "\xc3\x28"}',
        b'{"text": "\\ud800"}',
        b'{"text": "a", "k": 1e999}',
        b'{"text": "a", "k": ' + b"9" * 5000 + b"}",
        b"[" * 100_000,
        b'{"text": ' * 5000,
        b"null",
        b'{"text": "a"}{}',
    ],
)
def test_malformed_bodies_are_refused(url: str, body: bytes) -> None:
    for path in ("recommend", "passages"):
        answer = post(url, path, headers={"Content-Type": "application/json"}, data=body)
        assert answer.status_code in (400, 422), (path, answer.text)
        assert isinstance(answer.json()["detail"], str)


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example", "", "[::1"])
def test_other_host_names_are_refused(url: str, host: str) -> None:
    response = raw(url, f"GET /health HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
    assert response.startswith(b"HTTP/1.1 400") and b"papers" not in response.split(b"\r\n\r\n", 1)[1]


def test_pages_of_other_sites_are_refused(url: str) -> None:
    for origin, status in (("https://evil.example", 403), ("null", 403), ("http://[", 403), (url, 200)):
        answer = post(url, "recommend", {"text": "Adam"}, {"Origin": origin})
        assert answer.status_code == status
        assert not [name for name in answer.headers if name.lower().startswith("access-control")]


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"}, 403),
        ({"Sec-Fetch-Site": "same-site"}, 403),
        ({"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}, 200),
        ({"Sec-Fetch-Site": "same-origin", "Sec-Fetch-Mode": "cors"}, 200),
        ({"Sec-Fetch-Site": "same-origin", "Origin": "https://127.0.0.1"}, 200),  # a proxy, and no port
        ({"Sec-Fetch-Site": "cross-site", "Origin": "https://127.0.0.1"}, 403),
        ({"Content-Length": "0", "Transfer-Encoding": "chunked"}, 400),
    ],
)
def test_requests_of_other_sites_without_an_origin(url: str, headers: dict[str, str], status: int) -> None:
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    host = url.removeprefix("http://")
    ending = "0\r\n\r\n" if "Transfer-Encoding" in headers else ""
    request = f"GET /papers?id=bare HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n{lines}\r\n{ending}"
    assert raw(url, request.encode()).startswith(f"HTTP/1.1 {status}".encode())


@pytest.mark.parametrize("path", ["", "health", "papers?id=bare", "papers?id=nobody", "recommend"])
def test_a_head_is_that_of_the_answer(url: str, path: str) -> None:
    ends = f" /{path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    head, whole = (raw(url, f"{method}{ends}".encode()) for method in ("HEAD", "GET"))
    whole, _, body = whole.partition(b"\r\n\r\n")
    undated = [[line for line in one.split(b"\r\n") if line[:5] != b"date:"] for one in (head, whole)]
    assert undated[0] == [*undated[1], b"", b""] and b"content-length: %d" % len(body) in head


def test_an_error_has_no_path(url: str) -> None:
    said = requests.get(f"{url}/citations?id=bare").json()["detail"]
    assert said.startswith("the library: has no full texts") and "library=LIBRARY fulltext" in said


def test_who_waits_too_long_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "LONGEST_WAIT", 2.0)
    queue = WorkQueue(1)

    async def ask() -> bool:
        try:
            await queue.run(lambda: time.sleep(0.5))
        except HTTPException as error:
            assert error.status_code == 503 and error.headers and int(error.headers["Retry-After"]) >= 1
            return False
        return True

    async def ask_all() -> list[bool]:
        answers = await asyncio.gather(*(ask() for _ in range(30)))
        assert await ask(), "afterwards it is open again"
        return answers

    assert 0 < sum(asyncio.run(ask_all())) <= 5


def test_long_bodies_and_given_host_names(
    recommender: RecommenderSpy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "MAX_BODY", 1000)
    with serving(recommender, allowed_hosts=("papers.lab", "*.uni")) as url:
        parts = (b"x" * 300 for _ in range(5))  # requests sends an iterator in chunks
        chunked = requests.post(f"{url}/recommend", data=parts, timeout=120)
        assert [ask(url, "x" * 1100).status_code, chunked.status_code] == [413, 413]
        assert "1000 bytes" in chunked.json()["detail"] and ask(url).status_code == 200
        for host in ("Papers.lab:8000", "a.uni", "localhost", "[::1]:9"):
            assert requests.get(f"{url}/health", headers={"Host": host}, timeout=120).status_code == 200


@pytest.mark.slow
def test_slow_requests_time_out(recommender: RecommenderSpy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "TIMEOUT", 0.3)
    with serving(recommender) as url:
        head = b"POST /recommend HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        for body in (b"Content-Length: 50\r\n\r\n{", b"Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\n"):
            assert raw(url, head + body).startswith(b"HTTP/1.1 408")
        for sent in (b"", b"GET /health HTTP/1.1\r\nHost: local"):
            assert raw(url, sent) == b""
        whole = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
        with connected(url) as slow:
            slow.sendall(whole)
            assert slow.recv(4096).startswith(b"HTTP/1.1 200")
            with suppress(OSError):  # a second request, one byte at a time
                for byte in whole:
                    slow.sendall(bytes([byte]))
                    time.sleep(0.02)
                assert slow.recv(4096) == b""
        assert ask(url).status_code == 200


def test_a_full_queue_returns_retry_after(
    recommender: RecommenderSpy, monkeypatch: pytest.MonkeyPatch
) -> None:
    recommender.resume.clear()
    monkeypatch.setattr(limits, "LONGEST_WAIT", 0.1)
    with serving(recommender, threads=1) as url, ThreadPoolExecutor(2) as pool:
        asked = [pool.submit(ask, url, "wait") for _ in range(2)]  # one running, one that waits too long
        done, _ = wait(asked, return_when=FIRST_COMPLETED)
        [refused] = [one.result() for one in done]
        assert refused.status_code == 503 and refused.headers["Retry-After"] == "1"
        assert requests.get(f"{url}/health", timeout=120).status_code == 200
        recommender.resume.set()
        assert sorted(one.result().status_code for one in asked) == [200, 503]


def test_questions_of_disconnected_clients_are_not_run(recommender: RecommenderSpy) -> None:
    recommender.resume.clear()
    recommender.texts.clear()
    with serving(recommender, threads=1) as url, ThreadPoolExecutor(1) as pool:
        first = pool.submit(ask, url, "wait")
        while not recommender.texts:
            time.sleep(0.01)
        with pytest.raises(requests.exceptions.ReadTimeout):
            requests.post(f"{url}/recommend", json={"text": "in vain"}, timeout=0.2)
        recommender.resume.set()
        assert first.result().status_code == 200 and ask(url, "after").status_code == 200
    assert recommender.texts == ["wait", "after"]


def test_a_crash_affects_only_its_own_request(url: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR), ThreadPoolExecutor(20) as pool:
        answers = list(pool.map(lambda n: ask(url, f"Adam {'crash' if n % 10 == 9 else n}"), range(100)))
    assert [answer.status_code for answer in answers] == [*[200] * 9, 500] * 10
    assert answers[9].json() == {"detail": "internal error; see the server's log"}
    assert sum("with a secret" in str(record.exc_info) for record in caplog.records) == 10


def test_paths_reach_no_files(url: str) -> None:
    for path in ("../pyproject.toml", "%2e%2e/pyproject.toml", "page.html", "/etc/passwd", "recommend/../.."):
        response = raw(url, f"GET /{path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
        assert response.startswith((b"HTTP/1.1 404", b"HTTP/1.1 405")), (path, response)


def test_the_page_loads_nothing_from_elsewhere(url: str) -> None:
    page = requests.get(url, timeout=120)
    assert page.headers["Content-Security-Policy"].startswith("default-src 'none'")
    assert "unsafe" not in page.headers["Content-Security-Policy"]
    assert "http://" not in page.text and "https://" not in page.text


def test_docs_are_the_schema(url: str) -> None:
    schema = requests.get(f"{url}/docs", timeout=120).json()
    asked = schema["components"]["schemas"]["Question"]["properties"]
    assert asked.keys() == Question.model_fields.keys() and "passage with" in asked["text"]["description"]


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0", "::"])
def test_the_address_shown_answers(host: str, recommender: RecommenderSpy) -> None:
    shown = host_names(ServeSettings(library="L", host=host))
    assert shown[0][0].isdigit() and shown[0] != "0.0.0.0"
    with serving(recommender, host=host) as url:
        port = url.rpartition(":")[2]
        for name in (shown[0], "127.0.0.1"):
            assert requests.get(f"http://{name}:{port}/", timeout=120).status_code == 200
        named = requests.get(f"{url}/health", headers={"Host": socket.gethostname()}, timeout=120)
        assert (named.status_code == 200) == (host != "127.0.0.1")
    mine = ServeSettings(library="L", host="0.0.0.0", allowed_hosts=("papers.lab",))
    assert host_names(mine)[0] == "papers.lab"


def test_a_host_is_named() -> None:
    with pytest.raises(InputError, match="host is empty"):  # sockets take it for all addresses
        ServeSettings(library="L", host=" ")


def test_a_port_in_use_is_one_line() -> None:
    with listen("127.0.0.1", 0) as taken:
        assert taken.proto == socket.IPPROTO_TCP, "else asyncio does not set TCP_NODELAY: 40 ms per response"
        with pytest.raises(InputError, match="choose another port"):
            listen("127.0.0.1", taken.getsockname()[1])


@pytest.fixture(scope="module")
def schema(url: str) -> Any:
    return schemathesis.openapi.from_url(f"{url}/openapi.json")


@pytest.mark.slow
def test_responses_conform_to_the_schema(schema: Any) -> None:
    operations = [result.ok() for result in schema.get_all_operations()]
    assert len(operations) == 8
    for operation in operations:

        @given(case=operation.as_strategy())
        @settings(max_examples=12, suppress_health_check=list(HealthCheck))
        def check(case: Any) -> None:
            # The schema allows texts without words, but they are refused.
            case.call_and_validate(timeout=120, excluded_checks=[positive_data_acceptance])

        check()


@given(body=st.binary(max_size=300))
def test_any_bytes_get_a_response(url: str, body: bytes) -> None:
    for sent in (body, json.dumps({"text": body.decode("latin-1")}).encode()):
        answer = post(url, "recommend", headers={"Content-Type": "application/json"}, data=sent)
        assert answer.status_code < 500
