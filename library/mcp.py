"""The library as tools of a writing assistant (Model Context Protocol), so that it cites what is there.

Over stdio (`python recommend.py mcp`), where the assistant starts the process, and over HTTP at /mcp of the
server.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Annotated, Any, Protocol, TypeVar

from pydantic import Field
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Receive, Scope, Send

from datasets.errors import InputError
from library.messages import MOST_PAPERS, Answer, Found, Question, answer_question, find_papers
from library.settings import McpSettings

if TYPE_CHECKING:
    from mcp.server import MCPServer

    from library.recommender import Recommender

T = TypeVar("T")

INSTRUCTIONS = """Cites from the user's own library of papers. When a text needs a citation, call
recommend_citation with the passage and cite by the key of a paper that it returns, never from memory. Read
its `why` before you cite it, and say so when no paper of the library supports the passage."""
Text = Annotated[str, Field(min_length=1, max_length=100_000)]


class Runner(Protocol):
    """Where the tools' work is done: the server's queue, or a thread."""

    def __call__(self, work: Callable[[], T], /) -> Awaitable[T]: ...


def make_server(recommender: Recommender, run: Runner) -> MCPServer[Any]:
    """The tools over a library. What is wrong with a call becomes an error that the assistant reads."""
    from mcp.server import MCPServer
    from mcp.server.mcpserver.exceptions import ToolError
    from mcp.types import ToolAnnotations

    logging.getLogger("mcp").setLevel(logging.WARNING)  # it tells of every session
    server = MCPServer("citation-recommendation", instructions=INSTRUCTIONS, log_level="WARNING")
    reads = ToolAnnotations(read_only_hint=True, open_world_hint=False)

    async def told(work: Callable[[], T]) -> T:
        try:
            return await run(work)
        except InputError as error:
            raise ToolError(str(error)) from None
        except HTTPException as error:  # of the queue
            raise ToolError(error.detail) from None

    @server.tool(annotations=reads)
    async def recommend_citation(
        text: Annotated[Text, Field(description="the passage, with [CITE] where the citation is missing")],
        title: Annotated[str, Field(max_length=2_000, description="of the paper being written")] = "",
        abstract: Annotated[str, Field(max_length=20_000, description="of the paper being written")] = "",
        k: Annotated[int, Field(ge=1, le=MOST_PAPERS, description="papers to recommend")] = 5,
    ) -> Answer:
        """Recommend papers of the user's library to cite in a passage, the best first, and say why."""
        asked = Question(text=text, title=title, abstract=abstract, k=k, details=True)
        return await told(lambda: answer_question(recommender, asked))

    @server.tool(annotations=reads)
    async def search_library(
        query: Annotated[Text, Field(description="words of a title, an abstract, an author or a venue")],
        k: Annotated[int, Field(ge=1, le=MOST_PAPERS, description="papers to find")] = 10,
    ) -> Found:
        """Find papers of the user's library by words."""
        return await told(lambda: find_papers(recommender, query, k))

    return server


class McpOverHttp:
    """The tools as an ASGI application, made when first asked: importing `mcp` takes a second."""

    def __init__(self, make: Callable[[], MCPServer[Any]]) -> None:
        self._make, self._wanted = make, asyncio.Event()
        self._app: asyncio.Future[ASGIApp] | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        assert self._app is not None, "answers only within running()"
        self._wanted.set()
        await (await asyncio.shield(self._app))(scope, receive, send)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Answer requests within; its sessions must begin and end in one task."""
        self._app = asyncio.get_running_loop().create_future()
        task = asyncio.create_task(self._serve(self._app))
        try:
            yield
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    async def _serve(self, app: asyncio.Future[ASGIApp]) -> None:
        await self._wanted.wait()
        try:
            server = await asyncio.to_thread(self._make)
            from mcp.server.transport_security import TransportSecuritySettings

            unchecked = TransportSecuritySettings(enable_dns_rebinding_protection=False)  # the door checks
            made = server.streamable_http_app(
                stateless_http=True, json_response=True, transport_security=unchecked
            )
            async with server.session_manager.run():
                app.set_result(made)
                await asyncio.Event().wait()  # until it is cancelled
        except Exception as error:
            if app.done():
                raise
            app.set_exception(error)


def run_stdio(settings: McpSettings) -> None:
    """python recommend.py mcp: speak MCP over stdin and stdout until stdin ends."""
    from library.recommender import Recommender

    make_server(Recommender.open(settings.library, settings.reranker), asyncio.to_thread).run("stdio")
