"""`citerec lsp`: a language server over stdin and stdout (pygls).

Questions about a document are answered in a thread of its own, in order; a newer one takes the place of one
that still waits. Diagnostics are made in another thread when typing pauses.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, redirect_stdout, suppress
from functools import partial
from importlib.metadata import version
from typing import Any, Concatenate, ParamSpec, TypeVar

from lsprotocol import types
from pygls.capabilities import get_capability
from pygls.exceptions import JsonRpcException
from pygls.lsp.server import LanguageServer
from pygls.protocol import LanguageServerProtocol, lsp_method
from pygls.uris import to_fs_path

from citerec.base.errors import InputError
from citerec.base.files import real_path
from citerec.library.editor.documents import Document
from citerec.library.editor.features import ADD_ENTRY, Features
from citerec.library.papers.watch import watching
from citerec.library.settings import LspSettings

T = TypeVar("T")
P = ParamSpec("P")

PAUSE = 0.3
"""Seconds without a keystroke after which diagnostics are made."""
TRIGGERS = ["{", ",", "@", "<"]
"""Characters after which an editor asks for completions by itself."""


class Protocol(LanguageServerProtocol):
    """Keeps documents as `Document`, which changes large texts faster than pygls."""

    _server: Server

    def structure_message(self, data: dict[str, Any]) -> Any:
        """Answer an invalid question, such as one about a line below 0, with an error; pygls is silent."""
        try:
            return super().structure_message(data)
        except JsonRpcException as error:
            if "method" in data and "id" in data:
                self._send_response(data["id"], error=error.to_response_error())
            raise

    @lsp_method(types.TEXT_DOCUMENT_DID_OPEN)
    def lsp_text_document__did_open(self, params: types.DidOpenTextDocumentParams) -> None:
        new = params.text_document
        encoding = self.server_capabilities.position_encoding or "utf-16"
        self._server.show(Document.open(new.uri, new.text, new.version, new.language_id, encoding))
        self._server.read_main(new.uri)

    @lsp_method(types.TEXT_DOCUMENT_DID_CHANGE)
    def lsp_text_document__did_change(self, params: types.DidChangeTextDocumentParams) -> None:
        changed = params.text_document
        if document := self._server.features.documents.get(changed.uri):
            self._server.show(document.changed(changed.version, params.content_changes))

    @lsp_method(types.TEXT_DOCUMENT_DID_CLOSE)
    def lsp_text_document__did_close(self, params: types.DidCloseTextDocumentParams) -> None:
        self._server.close(params.text_document.uri)


class Server(LanguageServer):
    """The documents of an editor, the queue of its questions and the timers of diagnostics."""

    def __init__(self, settings: LspSettings) -> None:
        super().__init__("citerec", version("citerec"), protocol_cls=Protocol)
        self.features, self.watched = Features(settings), ExitStack()
        self._workers: dict[str, ThreadPoolExecutor] = {}
        """By document, and "" for the library."""
        self._background = ThreadPoolExecutor(1)
        self._latest: dict[tuple[str, str], Future[Any]] = {}
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        """Read what the editor can show, and open the library."""
        capabilities = self.client_capabilities
        for use, formats in {
            "completion": "completion_item.documentation_format",
            "hover": "content_format",
        }.items():
            kinds = get_capability(capabilities, f"text_document.{use}.{formats}")
            if types.MarkupKind.Markdown in (kinds or ()):
                self.features.markdown.add(use)
        self.read_folders()
        self._do(self._load())
        if get_capability(capabilities, "workspace.did_change_watched_files.dynamic_registration"):
            watch = types.DidChangeWatchedFilesRegistrationOptions([types.FileSystemWatcher("**/*.bib")])
            method = types.WORKSPACE_DID_CHANGE_WATCHED_FILES
            registrations = [types.Registration("bibliographies", method, watch)]
            self._do(self.client_register_capability_async(types.RegistrationParams(registrations)))

    async def _load(self) -> None:
        """Open the library and watch its sources; diagnostics until then lack what it knows."""
        await self._run(self._worker(""), self.features.recommender)
        if self.features.settings.watch and (library := self.features.library):
            self.watched.enter_context(watching(library.path))
        self.diagnose_soon(list(self.features.documents))

    def read_folders(self) -> None:
        """Take over the folders of the workspace."""
        uris = [*self.workspace.folders, *([self.workspace.root_uri] if self.workspace.root_uri else [])]
        paths = (to_fs_path(uri) for uri in uris)
        self.features.folders = [real_path(path) for path in dict.fromkeys(paths) if path]
        self.read_main(*self.features.documents)

    # Documents.

    def show(self, document: Document) -> None:
        """Take over a version of a document."""
        self.features.documents[document.uri] = document
        self.diagnose_soon([document.uri] if document.language else list(self.features.documents))

    def close(self, uri: str) -> None:
        """Forget a document."""
        if (document := self.features.documents.pop(uri, None)) and document.language:
            self.features.forget(uri)
            if worker := self._workers.pop(uri, None):
                worker.shutdown(wait=False)
            self.text_document_publish_diagnostics(types.PublishDiagnosticsParams(uri, []))
        self.read_main(*self.features.documents)

    def read_main(self, *uris: str) -> None:
        """Look for the main documents of some, which one that was opened, saved or closed changes; then make
        all diagnostics."""
        for document in [self.features.documents[uri] for uri in uris]:
            self._background.submit(self.features.read_main, document)
        self.diagnose_soon(list(self.features.documents))

    def diagnose_soon(self, uris: list[str]) -> None:
        """Make diagnostics when typing pauses."""
        for uri in uris:
            if timer := self._timers.pop(uri, None):
                timer.cancel()
            loop = asyncio.get_running_loop()
            self._timers[uri] = loop.call_later(PAUSE, partial(self._start_diagnosing, uri))

    def _start_diagnosing(self, uri: str) -> None:
        self._timers.pop(uri, None)
        self._do(self._diagnose(uri))

    async def _diagnose(self, uri: str) -> None:
        document = self.features.documents.get(uri)
        if document is None or document.language is None:
            return
        diagnostics = await self._run(self._background, self.features.diagnose, document)
        if self.features.documents.get(uri) is document:
            self.text_document_publish_diagnostics(
                types.PublishDiagnosticsParams(uri, diagnostics, version=document.version)
            )

    # Questions.

    def _worker(self, uri: str) -> ThreadPoolExecutor:
        if uri not in self._workers:
            self._workers[uri] = ThreadPoolExecutor(1)
            self._workers[uri].submit(self.features.recommender)  # questions wait for the library
        return self._workers[uri]

    async def ask(
        self,
        method: Callable[Concatenate[Document, P], T | None],
        uri: str,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T | None:
        """Answer a question about a document; None if it is unknown, or a newer question came before."""
        if (document := self.features.documents.get(uri)) is None:
            return None
        place = method.__name__, uri
        if older := self._latest.get(place):
            older.cancel()
        future = self._worker(uri).submit(method, document, *args, **kwargs)
        self._latest[place] = future
        try:
            return await asyncio.wrap_future(future)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise  # by the editor
            return None
        finally:
            self._send_messages()

    async def ask_at(self, method: Any, params: types.TextDocumentPositionParams) -> Any:
        """Answer a question about a place."""
        return await self.ask(method, params.text_document.uri, params.position)

    async def _run(
        self, pool: ThreadPoolExecutor, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        try:
            return await asyncio.wrap_future(pool.submit(work, *args, **kwargs))
        finally:
            self._send_messages()

    def _do(self, work: Any) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)  # asyncio logs its errors

    def _send_messages(self) -> None:
        while self.features.messages:
            message = self.features.messages.popleft()
            self.window_show_message(
                types.ShowMessageParams(types.MessageType.Warning, f"citerec: {message}")
            )

    async def add_entry(self, uri: str, id: str, key: str) -> None:
        """Let the editor write the entry of a paper into the .bib."""
        edited = await self._run(self._worker(uri), self.features.add_entry, uri, id, key)
        if edited is None:
            return
        file, edit = edited
        if get_capability(self.client_capabilities, "workspace.apply_edit"):
            params = types.ApplyWorkspaceEditParams(edit, f"Add {key} to {file.name}")
            if get_capability(self.client_capabilities, "workspace.workspace_edit.metadata_support"):
                params.metadata = types.WorkspaceEditMetadata(is_refactoring=True)  # VS Code then saves it
            with suppress(JsonRpcException):  # Emacs, if its user refuses
                if (await self.workspace_apply_edit_async(params)).applied:
                    self.features.add(file, id, key)
                    self.diagnose_soon([uri])
                    return
        self.features.say(f"the editor did not add {key} to {file.name}; add its entry yourself")
        self._send_messages()


def make_server(settings: LspSettings) -> Server:
    """Create the server of a library."""
    logging.getLogger("pygls").setLevel(logging.ERROR)  # it warns of each late cancellation
    server = Server(settings)
    features = server.features

    for event, react in (
        (types.INITIALIZED, lambda _: server.start()),
        (types.WORKSPACE_DID_CHANGE_WORKSPACE_FOLDERS, lambda _: server.read_folders()),
        (types.WORKSPACE_DID_CHANGE_WATCHED_FILES, lambda _: server.diagnose_soon([*features.documents])),
        (types.TEXT_DOCUMENT_DID_SAVE, lambda _: server.read_main(*features.documents)),
    ):
        server.feature(event)(react)
    for question, method, options in (
        (types.TEXT_DOCUMENT_COMPLETION, features.complete, types.CompletionOptions(TRIGGERS)),
        (types.TEXT_DOCUMENT_HOVER, features.hover, None),
        (types.TEXT_DOCUMENT_DEFINITION, features.definition, None),
    ):
        server.feature(question, options)(partial(server.ask_at, method))
    kinds = [types.CodeActionKind.QuickFix, types.CodeActionKind.Refactor]

    @server.feature(types.TEXT_DOCUMENT_CODE_ACTION, types.CodeActionOptions(code_action_kinds=kinds))
    async def actions(params: types.CodeActionParams) -> list[types.CodeAction]:
        uri, only = params.text_document.uri, params.context.only
        return await server.ask(features.actions, uri, params.range, only) or []  # Emacs refuses null

    @server.command(ADD_ENTRY)
    async def add_entry(uri: str, id: str, key: str) -> None:
        await server.add_entry(uri, id, key)

    return server


def lsp(settings: LspSettings) -> None:
    """Run `citerec lsp`: serve an editor until it ends. Nothing else goes to stdout."""
    if sys.stdin.isatty():  # where it is silent, and deaf to Ctrl-C
        raise InputError("citerec lsp: your editor starts this command (docs/write/editors.md)")
    server = make_server(settings)
    with os.fdopen(os.dup(sys.stdout.fileno()), "wb") as stdout, redirect_stdout(sys.stderr), server.watched:
        server.start_io(stdout=stdout)
