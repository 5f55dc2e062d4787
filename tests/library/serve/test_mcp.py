"""The MCP tools: in this process and over stdio."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, StdioServerParameters

from citerec.formats.bibliography.paper import LibraryPaper
from citerec.library.papers.library import Library
from citerec.library.serve.mcp import make_server
from citerec.tests.library.conftest import RecommenderSpy


def call_tools(server: Any, *calls: tuple[str, dict[str, Any]]) -> list[Any]:
    """Call tools over one connection; returns their results."""

    async def call() -> list[Any]:
        async with Client(server) as client:
            return [await client.call_tool(name, arguments) for name, arguments in calls]

    return asyncio.run(call())


def in_process(recommender: RecommenderSpy, check: Callable[[Any], None]) -> None:
    check(make_server(recommender))


def over_stdio(recommender: RecommenderSpy, check: Callable[[Any], None]) -> None:
    arguments = ["-m", "citerec", "mcp", f"library={recommender.library.path}"]
    check(StdioServerParameters(command=sys.executable, args=arguments, env=dict(os.environ)))


@pytest.mark.parametrize("connect", [in_process, over_stdio])
def test_the_tools_recommend_and_search(recommender: RecommenderSpy, connect: Callable[..., None]) -> None:
    def check(server: Any) -> None:
        asked = {"text": "Adam [CITE] is an optimiser", "k": 2}
        export = {"keys": ["kingma2015adam", "vaswani"], "format": "ris"}
        cited, found, entries = call_tools(
            server, ("recommend_citation", asked), ("search", {"query": "attention"}), ("entries", export)
        )
        first, second = cited.structured_content["recommendations"]
        assert first["key"] == "kingma2015adam" and "Adam is named here" in first["why"]
        assert first["details"]["bibtex"] and second["rank"] == 2
        [paper] = found.structured_content["papers"]
        assert paper["key"] == "vaswani2017attention" and paper["year"] == 2017
        assert re.findall("^ID  - (.*)", entries.content[0].text, re.M) == ["kingma2015adam", paper["key"]]

    connect(recommender, check)


def test_null_is_the_default_and_unknown_keys_are_told(recommender: RecommenderSpy) -> None:
    paper = recommender.library.paper(0)
    nothing = {"title": None, "abstract": None, "k": None, "known": None}
    some, none, found, asked = call_tools(
        make_server(recommender),
        ("entries", {"keys": [paper.id, "nokey"], "format": None}),
        ("entries", {"keys": ["nokey"]}),
        ("search", {"query": "attention", "k": None}),
        ("recommend_citation", {"text": "Attention [CITE]", **nothing}),
    )
    assert not (some.is_error or found.is_error or asked.is_error) and none.is_error
    entry, said = (part.text for part in some.content)
    assert paper.title in entry and said == "not in the library: nokey" and "nokey" in none.content[0].text


def test_a_paper_that_another_process_adds_counts_at_once(tmp_path: Path) -> None:
    recommender = RecommenderSpy.create(tmp_path)
    with Library.edit(recommender.library.path) as library:
        library.add([LibraryPaper("new", "new", "Peat")])
    [entries] = call_tools(make_server(recommender), ("entries", {"keys": ["bare", "new"]}))
    assert len(entries.content) == 1 and "Peat" in entries.content[0].text


def test_errors_are_returned(recommender: RecommenderSpy) -> None:
    answers = call_tools(
        make_server(recommender),
        ("recommend_citation", {"text": "[CITE]"}),
        ("recommend_citation", {"text": "Adam", "k": 0}),
        ("recommend_citation", {"text": "crash"}),
        ("recommend_citation", {"text": "Adam"}),
        ("recommend_citation", {"k": "many"}),
        ("search", {"query": "Adam", "year": 2015}),
    )
    assert [answer.is_error for answer in answers] == [True, True, True, False, True, True]
    said = [answer.content[0].text for answer in answers]
    assert "has no words" in said[0] and "secret" not in said[2]
    assert said[4].startswith("text: Field required; k: Input should be a valid integer")
    assert "\n" not in said[4]
    assert said[5] == "year: there is no such option; choose from query, k"


def test_a_line_that_is_no_message_is_answered(recommender: RecommenderSpy) -> None:
    half = '"method": "tools/call", "params": {"name": "search", "arguments": {"query": "hail \\ud83d"}}}'
    lines = [f'{{"jsonrpc": "2.0", "id": {id}, {half}' for id in ("1", '"one"', '"\\ud83d"', "true")]
    lines += ["no JSON", "[" * 100_000, "[]", '{"jsonrpc": "2.0", "id": 2, "method": "ping", "params": [1]}']
    command = [sys.executable, "-m", "citerec", "mcp", f"library={recommender.library.path}"]
    done = subprocess.run(command, input="\n".join(lines), capture_output=True, text=True, check=True)
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert [answer["id"] for answer in answers] == [1, "one", None, None, None, None, None, 2]
    assert [-32000 - answer["error"]["code"] for answer in answers] == [600] * 4 + [700] * 2 + [600] * 2


def test_references_are_checked(recommender: RecommenderSpy) -> None:
    server = make_server(recommender)
    entries = "@article{late, title={Trees}, year={2090}}"
    done, refused = call_tools(
        server, ("check_references", {"entries": entries}), ("check_references", {"entries": "x"})
    )
    [answer] = done.structured_content["result"]
    assert (answer["key"], answer["answer"], answer["findings"][0]["field"]) == (
        "late",
        "contradicted",
        "year",
    )
    assert refused.is_error and "no entries" in refused.content[0].text


def test_the_tools_are_described(recommender: RecommenderSpy) -> None:
    async def described() -> list[Any]:
        async with Client(make_server(recommender)) as client:
            return list((await client.list_tools()).tools)

    tools = {tool.name: tool for tool in asyncio.run(described())}
    assert set(tools) == {"recommend_citation", "find_passage", "search", "entries", "check_references"}
    for tool in tools.values():
        assert tool.description and tool.annotations.read_only_hint
        assert all("description" in given for given in tool.input_schema["properties"].values())
