"""The server of a library: HTTP for programs, a page for people, MCP for writing assistants.

It believes no request: sizes, time and number are limited, the Host header is checked (a page of another site
must not reach a server on this machine: DNS rebinding), writes need a token, and what fails in one request is
logged and stays there. No request names a file.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import logging
import re
import secrets
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import h11
import uvicorn
from anyio import CapacityLimiter, to_thread
from fastapi import Depends, FastAPI, HTTPException, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from starlette.datastructures import Headers
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from datasets.errors import InputError
from library.mcp import McpOverHttp, make_server
from library.messages import (
    About,
    Answer,
    Answers,
    Changed,
    Health,
    Name,
    NewPapers,
    Problem,
    Question,
    Questions,
    answer_question,
    parse_new_papers,
)
from library.settings import ServeSettings

if TYPE_CHECKING:
    from library.recommender import Recommender

T = TypeVar("T")
logger = logging.getLogger(__name__)

PAGE = Path(__file__).with_name("page.html")
LOOPBACK = ("localhost", "127.0.0.1", "[::1]")
CONNECTIONS = 512
"""Open at once, at most."""

# The door: what every request passes.


class RequestGuard:
    """ASGI middleware: checks Host and Origin, reads the body within limits, keeps a crash inside."""

    def __init__(self, app: ASGIApp, settings: ServeSettings, headers: dict[str, str]) -> None:
        self.app, self.settings = app, settings
        self.hosts = {host.lower() for host in (*LOOPBACK, url_host(settings.host), *settings.names)}
        self.headers = [(name.lower().encode(), value.encode()) for name, value in headers.items()]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        started = False

        async def answer_question(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started, message["headers"] = True, [*message["headers"], *self.headers]
            await send(message)

        async def refuse(status: int, detail: str) -> None:
            if not started:
                closing = {"connection": "close"}  # the rest of the request may still be under way
                await JSONResponse({"detail": detail}, status, headers=closing)(
                    scope, receive, answer_question
                )

        try:
            self.check(Headers(scope=scope))
            if (body := await self.read(receive)) is not None:
                await self.app(scope, replay_body(body, receive), answer_question)
        except HTTPException as refused:
            await refuse(refused.status_code, refused.detail)
        except Exception:
            logger.exception("%s %s failed", scope["method"], scope["path"])
            await refuse(500, "the server failed at this request; its log says why")

    def check(self, headers: Headers) -> None:
        """HTTPException for a Host that is not ours or a page of another site."""
        host = headers.get("host", "").lower()
        if re.sub(r":\d+$", "", host) not in self.hosts:
            raise HTTPException(421, "the Host header names another server; names=[...] of serve adds a name")
        if headers.get("origin", f"http://{host}").lower() not in (f"http://{host}", f"https://{host}"):
            raise HTTPException(403, "requests from pages of other sites are not answered")

    async def read(self, receive: Receive) -> bytes | None:
        """The body, None if the client has gone; HTTPException if it is too long or takes too long.

        What is too long is read to its end and dropped, as most clients look for an answer only then.
        """
        body, length, more = [], 0, True
        try:
            async with asyncio.timeout(self.settings.patience):
                while more:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        return None
                    body.append(message.get("body", b""))
                    length, more = length + len(body[-1]), message.get("more_body", False)
                    if length > self.settings.max_body:
                        body.clear()
        except TimeoutError:
            if length <= self.settings.max_body:
                raise HTTPException(408, f"the request took longer than {self.settings.patience} s") from None
        if length > self.settings.max_body:
            raise HTTPException(413, f"the request is longer than {self.settings.max_body} bytes")
        return b"".join(body)


def replay_body(body: bytes, receive: Receive) -> Receive:
    """`receive` as if the body came now."""
    messages = [{"type": "http.request", "body": body, "more_body": False}]

    async def again() -> Message:
        return messages.pop() if messages else await receive()

    return again


def url_host(host: str) -> str:
    """A host as it stands in a URL."""
    return f"[{host}]" if ":" in host else host


class WorkQueue:
    """Threads that work for requests, and a queue of bounded length before them."""

    def __init__(self, threads: int, length: int) -> None:
        self._turns, self._threads, self._length = CapacityLimiter(threads), CapacityLimiter(threads), length

    async def run(self, work: Callable[[], T], gone: Callable[[], Awaitable[bool]] | None = None) -> T:
        """What the work gives; HTTPException if the queue is full, or the client gone when its turn comes."""
        if self._turns.available_tokens < 1 and self._turns.statistics().tasks_waiting >= self._length:
            raise HTTPException(503, "too many requests wait; try again", {"Retry-After": "1"})
        async with self._turns:
            if gone is not None and await gone():
                raise HTTPException(499, "the client has gone")
            return await to_thread.run_sync(work, limiter=self._threads)


# The application.

PROBLEMS: dict[int | str, dict[str, Any]] = {
    status: {"model": Problem, "description": what}
    for status, what in {
        400: "The body cannot be read",
        401: "The token is missing or wrong",
        404: "There is no such paper",
        408: "The request takes too long",
        413: "The request is too long",
        422: "The question cannot be answered",
        503: "Too many requests wait",
    }.items()
}


BEARER = HTTPBearer(auto_error=False, description="the token that serve printed or was given")


def create_app(recommender: Recommender, settings: ServeSettings) -> FastAPI:
    """The application of a library, for any ASGI server."""
    page = PAGE.read_text("utf-8")
    asks, writes = WorkQueue(settings.threads, settings.queue), WorkQueue(1, settings.queue)
    tools = McpOverHttp(lambda: make_server(recommender, asks.run))

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        async with tools.running():
            yield

    app = FastAPI(
        title="Citation recommendation",
        description="Recommends the paper to cite, out of one's own library.",
        version="1",
        lifespan=lifespan,
        docs_url=None,  # they load scripts of other sites
        redoc_url=None,
    )
    app.add_middleware(RequestGuard, settings=settings, headers=security_headers(page))

    def writer(given: Annotated[HTTPAuthorizationCredentials | None, Depends(BEARER)]) -> None:
        told = given.credentials if given else ""
        if not hmac.compare_digest(told.encode(), settings.token.encode()):
            raise HTTPException(401, "changes need the token of the server", {"WWW-Authenticate": "Bearer"})

    @app.exception_handler(RequestValidationError)
    async def invalid(_: Request, error: RequestValidationError) -> JSONResponse:
        return JSONResponse({"detail": "; ".join(map(field_error, error.errors()[:5]))}, 422)

    @app.exception_handler(InputError)
    async def unanswerable(_: Request, error: InputError) -> JSONResponse:
        line = str(error).replace(str(recommender.library.path), "the library")
        return JSONResponse({"detail": line}, 422)

    @app.get("/", include_in_schema=False)
    async def show_page() -> HTMLResponse:
        return HTMLResponse(page)

    @app.get("/health")
    async def health() -> Health:
        """Whether the server is up, and what it serves."""
        return Health(papers=len(recommender.library))

    @app.get("/library", responses={503: PROBLEMS[503]})
    async def about() -> About:
        """What the server recommends from."""
        return await asks.run(lambda: About.of(recommender, Path(settings.library).resolve().name))

    @app.post("/recommend", responses=PROBLEMS, response_model_exclude_unset=True)
    async def recommend(asked: Question, request: Request) -> Answer:
        """Papers of the library to cite in a passage, the best first."""
        return await asks.run(lambda: answer_question(recommender, asked), request.is_disconnected)

    @app.post("/recommend/batch", responses=PROBLEMS, response_model_exclude_unset=True)
    async def recommend_batch(asking: Questions, request: Request) -> Answers:
        """The same for several passages."""
        return await asks.run(
            lambda: Answers(answers=[answer_question(recommender, asked) for asked in asking.queries]),
            request.is_disconnected,
        )

    changes: Any = {"dependencies": [Depends(writer)], "responses": PROBLEMS}

    async def changed(change: Callable[[], object]) -> Changed:
        def work() -> Changed:
            before = len(recommender.library)
            change()
            return Changed(papers=(now := len(recommender.library)), changed=abs(now - before))

        return await writes.run(work)

    @app.post("/papers", **changes)
    async def add(new: NewPapers) -> Changed:
        """Add papers to the library."""
        return await changed(lambda: recommender.add(parse_new_papers(new)))

    @app.delete("/papers/{id:path}", **changes)
    async def remove(id: Name) -> Changed:
        """Remove a paper from the library; `update` will not bring it back."""

        def change() -> None:
            if recommender.library.row(id) is None:
                raise HTTPException(404, "there is no such paper in the library")
            recommender.remove([id])

        return await changed(change)

    if settings.mcp:
        app.router.routes.append(Route("/mcp", tools, include_in_schema=False))
    return app


def field_error(error: dict[str, Any]) -> str:
    """What is wrong with a field of a request; what was given is not repeated."""
    if error["type"] == "json_invalid":
        return f"the body is no JSON: {error['ctx']['error']} at character {error['loc'][-1]}"
    where = ".".join(str(part) for part in error["loc"] if part != "body")
    return f"{where or 'body'}: {error['msg']}"


def security_headers(page: str) -> dict[str, str]:
    """For every answer: nothing is loaded but the page's own style and script, nothing is kept or framed."""
    sources = {}
    for tag in ("style", "script"):
        [text] = re.findall(rf"<{tag}>(.*?)</{tag}>", page, re.DOTALL)
        sources[tag] = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    policy = (
        f"default-src 'none'; style-src 'sha256-{sources['style']}'; "
        f"script-src 'sha256-{sources['script']}'; "
        "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    return {
        "Content-Security-Policy": policy,
        "X-Content-Type-Options": "nosniff",
        "Referrer-Policy": "no-referrer",
        "Cache-Control": "no-store",
    }


# The command.


def serve(settings: ServeSettings) -> None:
    """python recommend.py serve: open the library and answer until interrupted."""
    listening = listen(settings.host, settings.port)  # before the library is read: it may take a while
    settings = replace(settings, token=settings.token or secrets.token_urlsafe(24))
    from library.recommender import Recommender

    recommender = Recommender.open(settings.library, settings.reranker)
    url = f"http://{url_host(settings.host)}:{listening.getsockname()[1]}"
    print(f"{url}/  {len(recommender.library):,} papers of {settings.library}", flush=True)
    if settings.mcp:
        print(f"{url}/mcp  for writing assistants", flush=True)
    print(f"token for changes: {settings.token}", flush=True)
    with suppress(KeyboardInterrupt):
        make_uvicorn(recommender, settings).run(sockets=[listening])


def make_uvicorn(recommender: Recommender, settings: ServeSettings) -> uvicorn.Server:
    """The HTTP server of a library; run it with a socket of `listen`."""
    config = uvicorn.Config(
        create_app(recommender, settings),
        log_level="warning",
        server_header=False,
        proxy_headers=False,
        http=partial(HeadTimeoutProtocol, settings.patience),  # type: ignore[arg-type]
        ws="none",
        limit_concurrency=CONNECTIONS,
        timeout_graceful_shutdown=5,
    )
    return uvicorn.Server(config)


class HeadTimeoutProtocol(H11Protocol):
    """HTTP whose clients are left when they take too long to send the head of a request (slowloris)."""

    def __init__(self, patience: float, *given: Any, **named: Any) -> None:
        """patience: in seconds."""
        super().__init__(*given, **named)
        self._patience = patience
        self._left: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._watch()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._watch(False)

    def _watch(self, waiting: bool = True) -> None:
        """While a head is under way a clock runs; between requests uvicorn's own does."""
        if waiting and self.conn.their_state is h11.IDLE:
            self._left = self._left or self.loop.call_later(self._patience, self.transport.close)
        elif self._left is not None:
            self._left.cancel()
            self._left = None


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens; InputError if it cannot."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio sends at once (TCP_NODELAY) only where the protocol is named: else answers wait 40 ms.
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host, port))
        listening.listen(256)
        return listening
    except (OSError, OverflowError) as error:
        listening.close()
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"host={host} port={port}: {reason}; choose another port or host") from None
