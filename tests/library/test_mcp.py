"""The library as tools of a writing assistant: in this process, over HTTP and over stdio."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, StdioServerParameters
from starlette.exceptions import HTTPException

from library.mcp import make_server
from tests.library.conftest import Watched, serving

ROOT = Path(__file__).parents[2]


def called(server: Any, *calls: tuple[str, dict[str, Any]]) -> list[Any]:
    """What the tools answer, over one connection."""

    async def call() -> list[Any]:
        async with Client(server) as client:
            return [await client.call_tool(name, given) for name, given in calls]

    return asyncio.run(call())


def in_process(watched: Watched, check: Callable[[Any], None]) -> None:
    check(make_server(watched, asyncio.to_thread))


def over_http(watched: Watched, check: Callable[[Any], None]) -> None:
    with serving(watched) as url:
        check(f"{url}/mcp")


def over_stdio(watched: Watched, check: Callable[[Any], None]) -> None:
    arguments = ["recommend.py", "mcp", f"library={watched.library.path}"]
    check(StdioServerParameters(command=sys.executable, args=arguments, cwd=str(ROOT)))


@pytest.mark.parametrize("connect", [in_process, over_http, over_stdio])
def test_the_tools_recommend_and_search(watched: Watched, connect: Callable[..., None]) -> None:
    def check(server: Any) -> None:
        asked = {"text": "Adam [CITE] is an optimiser", "k": 2}
        cited, found = called(
            server, ("recommend_citation", asked), ("search_library", {"query": "attention"})
        )
        first, second = cited.structured_content["recommendations"]
        assert first["key"] == "kingma2015adam" and "Adam is named here" in first["why"]
        assert first["details"]["bibtex"] and second["rank"] == 2
        [paper] = found.structured_content["papers"]
        assert paper["key"] == "vaswani2017attention" and paper["year"] == 2017

    connect(watched, check)


@pytest.mark.parametrize("connect", [in_process, over_http])
def test_what_cannot_be_answered_is_told(watched: Watched, connect: Callable[..., None]) -> None:
    def check(server: Any) -> None:
        answers = called(
            server,
            ("recommend_citation", {"text": "[CITE]"}),
            ("recommend_citation", {"text": "Adam", "k": 0}),
            ("recommend_citation", {"text": "crash"}),
            ("recommend_citation", {"text": "Adam"}),
        )
        assert [answer.is_error for answer in answers] == [True, True, True, False]
        said = [answer.content[0].text for answer in answers]
        assert "no words in it" in said[0] and "secret" not in said[2]

    connect(watched, check)


def test_a_full_queue_is_told(watched: Watched) -> None:
    async def full(_: Callable[[], Any]) -> Any:
        raise HTTPException(503, "too many requests wait; try again")

    [told] = called(make_server(watched, full), ("search_library", {"query": "attention"}))
    assert told.is_error and told.content[0].text.endswith("too many requests wait; try again")
    assert "503" not in told.content[0].text


def test_the_tools_are_described(watched: Watched) -> None:
    async def described() -> list[Any]:
        async with Client(make_server(watched, asyncio.to_thread)) as client:
            return list((await client.list_tools()).tools)

    tools = {tool.name: tool for tool in asyncio.run(described())}
    assert set(tools) == {"recommend_citation", "search_library"}
    for tool in tools.values():
        assert tool.description and tool.annotations.read_only_hint
        assert all("description" in given for given in tool.input_schema["properties"].values())
