"""Questions that come at once: of several documents, and while a .bib file is read."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from citerec.formats.bibliography.paper import LibraryPaper
from citerec.library.ask.recommender import Ranked, Recommender
from citerec.library.editor.documents import Document
from citerec.library.editor.features import Features
from citerec.library.editor.server import make_server
from citerec.library.papers.library import Library
from citerec.library.settings import LspSettings

WAIT = 120


def document(folder: Path, name: str) -> Document:
    text = f"\\title{{T}} \\cite{{a}} \\bibliography{{refs}} {name}"
    (folder / name).write_text(text)
    return Document.open((folder / name).as_uri(), text)


def test_a_question_does_not_wait_for_that_of_another_document(tmp_path: Path) -> None:
    server, go_on = make_server(LspSettings(library=str(tmp_path / "none"))), Event()
    first, second = (document(tmp_path, name) for name in ("a.tex", "b.tex"))
    server.features.documents = {one.uri: one for one in (first, second)}

    def slow(one: Document) -> str:
        assert go_on.wait(WAIT)
        return f"slow {one.uri[-5:]}"

    def quick(one: Document) -> str:
        return f"quick {one.uri[-5:]}"

    async def ask() -> tuple[list[str | None], str | None]:
        waiting = asyncio.create_task(server.ask(slow, first.uri))
        queued = asyncio.create_task(server.ask(quick, first.uri))
        answers = [await asyncio.wait_for(server.ask(quick, second.uri), WAIT) for _ in range(3)]
        assert not waiting.done() and not queued.done()
        go_on.set()
        return [*answers, await queued], await waiting

    assert asyncio.run(ask()) == (["quick b.tex"] * 3 + ["quick a.tex"], "slow a.tex")


BAD = [b"{", b"[]", b"1", b'{"jsonrpc": "2.0"}', b"\xff\xfe", b'{"jsonrpc": "2.0", "id": {}, "method": 3}',
       b'{"jsonrpc": "2.0", "id": 5, "method": "textDocument/completion", "params": {}}',
       b'{"jsonrpc": "2.0", "method": "textDocument/didChange", "params": {"textDocument": 5}}',
       b'{"jsonrpc": "2.0", "id": 7, "method": "workspace/executeCommand",'
       b' "params": {"command": "citerec.addEntry", "arguments": [1]}}']  # fmt: skip


@pytest.mark.slow
def test_malformed_messages_stop_nothing(tmp_path: Path) -> None:
    (tmp_path / "a.bib").write_text("@misc{a, title = {Trees}}\n")

    def message(content: bytes) -> bytes:
        return b"Content-Length: %d\r\n\r\n%s" % (len(content), content)

    def request(method: str, id: int | None = None) -> bytes:
        given = {"jsonrpc": "2.0", "method": method, "params": {"capabilities": {}}}
        return message(json.dumps(given | ({} if id is None else {"id": id})).encode())

    sent = [request("initialize", 1), request("initialized"), *map(message, BAD * 34)]
    command = [sys.executable, "-m", "citerec", "lsp", str(tmp_path / "a.bib")]
    done = subprocess.run(
        command, input=b"".join([*sent, request("shutdown", 2), request("exit")]), capture_output=True
    )
    assert done.returncode == 0 and b'"id": 2, ' in done.stdout and b'"id": 5' in done.stdout


def test_a_completion_does_not_wait_for_the_networks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    papers = [LibraryPaper(name, name, f"Trees of {name}", year=2000) for name in ("oak", "elm")]
    Library.create(tmp_path / "mine", papers, model="bm25")
    features, ready, asked = Features(LspSettings(library=str(tmp_path / "mine"))), Event(), list[bool]()
    features.recommender()
    rank = Recommender.ranked

    def slow(self: Recommender, *given: Any, quick: bool = False) -> Ranked:
        asked.append(quick)
        assert quick or ready.wait(WAIT)
        return rank(self, *given, quick=quick)  # type: ignore[misc]

    monkeypatch.setattr(Recommender, "ranked", slow)
    text = r"Trees grow \cite{} and last."
    opened = Document.open((tmp_path / "a.tex").as_uri(), text)
    features.documents[opened.uri] = opened
    caret = opened.position(text.index("{") + 1)
    first = features.complete(opened, caret)
    assert first is not None and len(first.items) == 2 and asked == [False, True]
    ready.set()
    second = features.complete(opened, caret)
    assert second is not None and len(second.items) == 2 and asked == [False, True], "what is ready by then"
