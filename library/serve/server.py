"""The server of a library: a JSON API and a web page, which change nothing.

Requests are not trusted. Their size, duration and number are limited; the Host header is checked, so that
pages of other sites cannot reach a local server (DNS rebinding); no request names a file. An exception in one
request is logged and does not affect others.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import logging
import os
import re
import socket
from collections.abc import Awaitable, Callable
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import h11
import uvicorn
from anyio import CapacityLimiter, to_thread
from fastapi import FastAPI, HTTPException, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import (
    FileResponse,
    HTMLResponse,
    JSONResponse,
    PlainTextResponse,
    RedirectResponse,
    Response,
)
from starlette.datastructures import Headers
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from citerec.base.errors import InputError, count_noun
from citerec.formats.bibliography.attachments import XML
from citerec.library import limits
from citerec.library.ask.relations import Relations
from citerec.library.papers.storage import UnknownPaper
from citerec.library.serve import messages
from citerec.library.settings import ServeSettings

if TYPE_CHECKING:
    from citerec.library.ask.recommender import Recommender

T = TypeVar("T")
logger = logging.getLogger(__name__)

PAGE = Path(__file__).with_name("page.html")
LOOPBACK = ("localhost", "127.0.0.1", "[::1]")
_POLICY = b"content-security-policy"
ALL_ADDRESSES = ("0.0.0.0", "::")

# Checks of every request.


class RequestGuard:
    """ASGI middleware: checks Origin, limits the body, turns exceptions into status 500."""

    def __init__(self, app: ASGIApp, headers: dict[str, str]) -> None:
        self.app = app
        self.headers = [(name.lower().encode(), value.encode()) for name, value in headers.items()]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        scope = {**scope, "method": scope["method"].replace("HEAD", "GET")}  # uvicorn sends no body
        started = False

        async def send_with_headers(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started, own = True, message["headers"]
                is_pdf = (b"content-type", b"application/pdf") in own  # whose viewer the policy would stop
                message["headers"] = [
                    *own,
                    *(header for header in self.headers if not (is_pdf and header[0] == _POLICY)),
                ]
            await send(message)

        async def refuse(status: int, detail: str) -> None:
            if not started:
                closing = {"connection": "close"}  # the rest of the request may still arrive
                response = JSONResponse({"detail": detail}, status, headers=closing)
                await response(scope, receive, send_with_headers)

        try:
            self.check(scope["method"], Headers(scope=scope))
            if (body := await self.read(receive)) is not None:
                body_first = [{"type": "http.request", "body": body, "more_body": False}]

                async def replay() -> Message:
                    return body_first.pop() if body_first else await receive()

                await self.app(scope, replay, send_with_headers)
        except HTTPException as error:
            await refuse(error.status_code, error.detail)
        except Exception:
            logger.exception("%s %s failed", scope["method"], scope["path"])
            await refuse(500, "internal error; see the server's log")

    def check(self, method: str, headers: Headers) -> None:
        """Raise HTTPException for a request from another site's page, other than by a link, and for one whose
        length is given in two ways."""
        if "content-length" in headers and "transfer-encoding" in headers:
            raise HTTPException(400, "the request has both Content-Length and Transfer-Encoding")
        host = headers.get("host", "").lower()
        origin, site = headers.get("origin", f"http://{host}").lower(), headers.get("sec-fetch-site")
        # The browser says so, not the page; behind a proxy the port may be written in only one of the others.
        is_own = site == "same-origin" or origin in (f"http://{host}", f"https://{host}")
        is_link = method == "GET" and headers.get("sec-fetch-mode") == "navigate"
        if not is_own or (site in ("cross-site", "same-site") and not is_link):
            raise HTTPException(403, "requests from pages of other sites are refused")

    async def read(self, receive: Receive) -> bytes | None:
        """Read the body; None if the client disconnects. Raises HTTPException if it is too long or too slow.

        A body that is too long is still read to its end, since most clients read the response only then.
        """
        body, length, more = [], 0, True
        try:
            async with asyncio.timeout(limits.TIMEOUT):
                while more:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        return None
                    body.append(message.get("body", b""))
                    length, more = length + len(body[-1]), message.get("more_body", False)
                    if length > limits.MAX_BODY:
                        body.clear()
        except TimeoutError:
            if length <= limits.MAX_BODY:
                raise HTTPException(408, f"the request took longer than {limits.TIMEOUT} s") from None
        if length > limits.MAX_BODY:
            raise HTTPException(413, f"the request body is longer than {limits.MAX_BODY} bytes")
        return b"".join(body)


def host_names(settings: ServeSettings) -> list[str]:
    """Return the names by which the server may be addressed; the first one is shown to the user.

    A server on all addresses is shown by its machine's address, since other machines may not know its name.
    """
    if settings.host in ALL_ADDRESSES:
        return [*settings.allowed_hosts, *own_address(), socket.gethostname(), *LOOPBACK[1:], LOOPBACK[0]]
    return [url_host(settings.host), *settings.allowed_hosts, *LOOPBACK]


def own_address() -> list[str]:
    """Return this machine's address in its network, if it has one."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe, suppress(OSError):
        probe.connect(("192.0.2.1", 9))  # only chooses a route: nothing is sent
        return [str(probe.getsockname()[0])]
    return []


def url_host(host: str) -> str:
    """Return a host name or address as written in a URL."""
    return f"[{host}]" if ":" in host else host


class WorkQueue:
    """Runs blocking work in threads, for one of which nobody waits longer than limits.LONGEST_WAIT."""

    def __init__(self, threads: int) -> None:
        self._turns, self._threads = asyncio.Semaphore(threads), CapacityLimiter(threads)

    async def run(
        self, work: Callable[[], T], is_disconnected: Callable[[], Awaitable[bool]] | None = None
    ) -> T:
        """Return the result of `work`. Raises HTTPException if it waits too long, or the client has gone."""
        try:
            async with asyncio.timeout(limits.LONGEST_WAIT):
                await self._turns.acquire()
        except TimeoutError:
            headers = {"Retry-After": f"{max(1, limits.LONGEST_WAIT):.0f}"}
            raise HTTPException(503, "too many queued requests; try again later", headers) from None
        try:
            if is_disconnected is not None and await is_disconnected():
                raise HTTPException(499, "the client disconnected")
            return await to_thread.run_sync(work, limiter=self._threads)
        finally:
            self._turns.release()


# The application.

PROBLEMS: dict[int | str, dict[str, Any]] = {
    status: {"model": messages.Problem, "description": description}
    for status, description in {
        400: "Malformed body",
        404: "No such paper",
        408: "Request timeout",
        413: "Request body too long",
        422: "Invalid request",
        503: "Too many queued requests",
    }.items()
}


def create_app(recommender: Recommender, settings: ServeSettings) -> FastAPI:
    """Create the ASGI application of a library."""
    page = PAGE.read_text("utf-8")
    # With allowed_hosts, a proxy may let other machines ask.
    is_local = url_host(settings.host) in LOOPBACK and not settings.allowed_hosts
    queue, link = WorkQueue(settings.threads), messages.served_link if is_local else lambda id, place: ""
    app = FastAPI(
        title="Citation recommendation",
        description="Recommends papers to cite from your own library.",
        version="1",
        docs_url=None,  # FastAPI's page loads scripts from other sites, as does redoc
        redoc_url=None,
        responses=PROBLEMS,
    )
    app.add_middleware(RequestGuard, headers=security_headers(page))
    app.add_middleware(TrustedHostMiddleware, allowed_hosts=host_names(settings), www_redirect=False)

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> JSONResponse:
        model = messages.REQUESTS.get(request.url.path)
        return JSONResponse({"detail": messages.field_errors(error.errors(), 1, model)}, 422)

    @app.exception_handler(InputError)
    async def invalid_input(_: Request, error: InputError) -> JSONResponse:
        line = messages.error_line(error, recommender)
        return JSONResponse({"detail": line}, 404 if isinstance(error, UnknownPaper) else 422)

    async def answer(request: Request, work: Callable[[], T]) -> T:
        return await queue.run(work, request.is_disconnected)

    @app.get("/", include_in_schema=False)
    async def show_page() -> HTMLResponse:
        return HTMLResponse(page)

    @app.get("/docs", include_in_schema=False)
    async def show_docs() -> RedirectResponse:
        return RedirectResponse("openapi.json")

    @app.get("/health")
    async def health() -> messages.Health:
        """Return the server's status and its number of papers."""
        return messages.Health(papers=len(recommender.library))

    @app.get("/library")
    async def about(request: Request) -> messages.About:
        """Describe the library."""
        name = Path(settings.library).resolve().name
        return await answer(request, lambda: messages.About.describe(recommender, name))

    @app.post("/recommend", response_model_exclude_unset=True)
    async def recommend(question: messages.Question, request: Request) -> messages.Answer:
        """Recommend papers to cite in a passage, best first."""
        return await answer(request, lambda: messages.answer_question(recommender, question, link))

    @app.post("/passages")
    async def passages(claim: messages.Claim, request: Request) -> messages.FoundPassages:
        """Find the passages of a paper's full text that fit a claim best, with their pages."""
        return await answer(request, lambda: messages.find_passages(recommender, claim, link))

    @app.get("/citations")
    async def citations(id: messages.Name, request: Request) -> Relations:
        """Return which papers of the library a paper's PDF cites, and whose PDFs cite it, with sentences."""
        return await answer(request, lambda: Relations.read(recommender.refresh(), id, link))

    @app.get("/pdf", responses={200: {"content": {"application/pdf": {}}}})
    async def pdf(id: messages.Name, request: Request) -> Response:
        """Return the PDF whose text a paper has, to this machine only."""
        if not is_local:
            raise HTTPException(403, "PDFs are not served to other machines")
        file = await answer(request, lambda: recommender.text_file(id))
        if not os.path.isfile(Path(file)):
            raise HTTPException(404, "the PDF is not on this machine")
        kind = "text/plain" if file.lower().endswith(XML) else "application/pdf"
        return FileResponse(file, media_type=kind, content_disposition_type="inline")

    @app.get("/search", response_model_exclude_unset=True)
    async def search(wanted: Annotated[messages.Search, Query()], request: Request) -> messages.Found:
        """Find papers by title, authors, year or key, also by the beginnings of words."""
        return await answer(request, lambda: messages.find_papers(recommender, wanted))

    @app.get("/papers", responses={200: {"content": {"text/plain": {}}}})
    async def entries(wanted: Annotated[messages.Entries, Query()], request: Request) -> Response:
        """Return the entries of papers, by id or key."""
        text = await answer(request, lambda: messages.write_entries(recommender, wanted.id, wanted.format))
        return PlainTextResponse(text)

    return app


def security_headers(page: str) -> dict[str, str]:
    """Return the headers of all responses: only the page's own style and script, no caching, no framing."""
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
    """Run `citerec serve`: open the library and serve it until interrupted."""
    listening = listen(settings.host, settings.port)  # fail before the library is read, which may take long
    from citerec.library.ask.recommender import open_recommender
    from citerec.library.papers.watch import watching

    recommender = open_recommender(settings.library, settings.reranker, serves=True)
    host = host_names(settings)[0].removeprefix("*.")
    url = f"http://{host}:{listening.getsockname()[1]}"
    print(f"{url}/  {count_noun(len(recommender.library))} of {settings.library}", flush=True)
    with suppress(KeyboardInterrupt), watching(recommender.library.path) if settings.watch else nullcontext():
        make_uvicorn(recommender, settings).run(sockets=[listening])


def make_uvicorn(recommender: Recommender, settings: ServeSettings) -> uvicorn.Server:
    """Create the HTTP server of a library; run it with a socket from `listen`."""
    config = uvicorn.Config(
        create_app(recommender, settings),
        log_level="warning",
        server_header=False,
        proxy_headers=False,
        http=HeadTimeoutProtocol,
        ws="none",
        limit_concurrency=limits.CONNECTIONS,
        timeout_graceful_shutdown=limits.SHUTDOWN,
    )
    return uvicorn.Server(config)


class HeadTimeoutProtocol(H11Protocol):
    """HTTP/1.1 that disconnects clients which send the head of a request too slowly (slowloris)."""

    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._update_timer()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._update_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._update_timer(False)

    def _update_timer(self, connected: bool = True) -> None:
        """Run the timer while a head is incomplete. Between requests, uvicorn has its own timeout."""
        if connected and self.conn.their_state is h11.IDLE:
            self._timer = self._timer or self.loop.call_later(limits.TIMEOUT, self.transport.close)
        elif self._timer is not None:
            self._timer.cancel()
            self._timer = None


def listen(host: str, port: int) -> socket.socket:
    """Return a listening socket. Raises InputError if the address is not available."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio sets TCP_NODELAY only if the protocol is explicit; otherwise responses wait for 40 ms.
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host, port))
        listening.listen(limits.BACKLOG)
        return listening
    except (OSError, OverflowError) as error:
        listening.close()
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"host={host} port={port}: {reason}; choose another port or host") from None
