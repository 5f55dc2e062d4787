"""An editor for tests: a client of `citerec lsp` over its real stdin and stdout (pygls)."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections import defaultdict
from collections.abc import Coroutine, Sequence
from concurrent.futures import Future
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

from lsprotocol import types
from pygls.lsp.client import LanguageClient

from citerec.library.editor.documents import Document

T = TypeVar("T")
WAIT = 120
SHOWS = types.ClientCapabilities(
    workspace=types.WorkspaceClientCapabilities(apply_edit=True),
    text_document=types.TextDocumentClientCapabilities(
        completion=types.CompletionClientCapabilities(
            completion_item=types.ClientCompletionItemOptions(
                documentation_format=[types.MarkupKind.Markdown]
            )
        ),
        hover=types.HoverClientCapabilities(content_format=[types.MarkupKind.Markdown]),
    ),
)
"""An editor that can show and do everything."""


class Editor:
    """A client with documents, which applies edits to them and to files, as an editor does."""

    def __init__(
        self,
        library: Path,
        *folders: Path,
        capabilities: types.ClientCapabilities = SHOWS,
        encodings: Sequence[str] = (),
        options: Sequence[str] = (),
    ) -> None:
        self.documents: dict[str, Document] = {}
        self.messages: list[str] = []
        self.applied: list[types.WorkspaceEdit] = []
        self.diagnostics: dict[str, list[types.Diagnostic]] = {}
        self._arrived = threading.Condition()
        self._counts: dict[str, int] = defaultdict(int)
        self._client = LanguageClient("editor", "1")
        # Else a code action with a command is taken for a command.
        convert = self._client.protocol._converter
        convert.register_structure_hook(
            types.Command | types.CodeAction, lambda given, _: convert.structure(given, types.CodeAction)
        )
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._client.feature(types.WINDOW_SHOW_MESSAGE)(lambda params: self._show_message(params))
        self._client.feature(types.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS)(lambda params: self._publish(params))
        self._client.feature(types.WORKSPACE_APPLY_EDIT)(lambda params: self._apply_edit(params))
        command = [sys.executable, "-m", "citerec", "lsp", f"library={library}", *options]
        self.run(self._client.start_io(*command, env={**os.environ, "OMP_NUM_THREADS": "1"}))
        general = types.GeneralClientCapabilities(position_encodings=[*encodings] or None)
        given = types.InitializeParams(
            capabilities=types.ClientCapabilities(
                workspace=capabilities.workspace, text_document=capabilities.text_document, general=general
            ),
            workspace_folders=[types.WorkspaceFolder(one.as_uri(), one.name) for one in folders] or None,
        )
        self.server = self.run(self._client.initialize_async(given))
        self.encoding = self.server.capabilities.position_encoding or "utf-16"
        self.notify(types.INITIALIZED, types.InitializedParams())

    def __enter__(self) -> Editor:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.run(self._client.shutdown_async(None))
            self.notify(types.EXIT, None)
            self.run(self._client.stop())
            assert self._client._server is not None and self._client._server.returncode == 0
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(WAIT)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(WAIT)

    def send(self, method: str, params: Any) -> Future[Any]:
        """Send a request without waiting for its answer."""

        async def send() -> Any:
            return await self._client.protocol.send_request_async(method, params)

        return asyncio.run_coroutine_threadsafe(send(), self._loop)

    def notify(self, method: str, params: Any) -> None:
        self._loop.call_soon_threadsafe(self._client.protocol.notify, method, params)

    # What the server sends.

    def _show_message(self, params: types.ShowMessageParams) -> None:
        with self._arrived:
            self.messages.append(params.message)
            self._arrived.notify_all()

    def _publish(self, params: types.PublishDiagnosticsParams) -> None:
        with self._arrived:
            self.diagnostics[params.uri] = list(params.diagnostics)
            self._counts[params.uri] += 1
            self._arrived.notify_all()

    def _apply_edit(self, params: types.ApplyWorkspaceEditParams) -> types.ApplyWorkspaceEditResult:
        with self._arrived:
            self.apply(params.edit)
            self.applied.append(params.edit)
            self._arrived.notify_all()
        return types.ApplyWorkspaceEditResult(applied=True)

    def wait_for_message(self, part: str) -> str:
        with self._arrived:
            known = self.messages
            assert self._arrived.wait_for(lambda: any(part in one for one in known), WAIT), known
        return next(one for one in known if part in one)

    def wait_for_diagnostics(self, uri: str, codes: Sequence[str]) -> list[types.Diagnostic]:
        """Return the diagnostics of a document when they have these codes, in any order."""

        def arrived() -> bool:
            known = [str(one.code) for one in self.diagnostics.get(uri, [])]
            return self._counts[uri] > 0 and sorted(known) == sorted(codes)

        with self._arrived:
            assert self._arrived.wait_for(arrived, WAIT), self.diagnostics.get(uri)
        return self.diagnostics[uri]

    # What a user does. Texts have the caret as |.

    def open(self, place: Path | str, text: str | None = None, language: str = "") -> str:
        """Open a document, by its path or URI; returns the URI."""
        uri = place.as_uri() if isinstance(place, Path) else place
        if text is None:
            assert isinstance(place, Path)
            text = place.read_bytes().decode()
        self.documents[uri] = Document.open(uri, text, 1, language, self.encoding)
        item = types.TextDocumentItem(uri, language, 1, text)
        self.notify(types.TEXT_DOCUMENT_DID_OPEN, types.DidOpenTextDocumentParams(item))
        return uri

    def change(self, uri: str, start: int, end: int, text: str) -> None:
        """Replace a part of a document."""
        document = self.documents[uri]
        change = types.TextDocumentContentChangePartial(document.range(start, end), text)
        self.documents[uri] = document.changed(document.version + 1, [change])
        identifier = types.VersionedTextDocumentIdentifier(document.version + 1, uri)
        params = types.DidChangeTextDocumentParams(identifier, [change])
        self.notify(types.TEXT_DOCUMENT_DID_CHANGE, params)

    def save(self, uri: str) -> None:
        params = types.DidSaveTextDocumentParams(types.TextDocumentIdentifier(uri))
        self.notify(types.TEXT_DOCUMENT_DID_SAVE, params)

    def position(self, uri: str, caret: int) -> types.Position:
        return self.documents[uri].position(caret)

    def complete(self, uri: str, caret: int) -> list[types.CompletionItem]:
        """Return the items at a caret in the order that the server wants."""
        given = types.CompletionParams(types.TextDocumentIdentifier(uri), self.position(uri, caret))
        found = self.send(types.TEXT_DOCUMENT_COMPLETION, given).result(WAIT)
        if found is None:
            return []
        assert found.is_incomplete
        assert [item.sort_text for item in found.items] == sorted(item.sort_text for item in found.items)
        return list(found.items)

    def actions(self, uri: str, start: int, end: int, **context: Any) -> list[types.CodeAction]:
        where = self.documents[uri].range(start, end)
        about = types.CodeActionContext([], **context)
        given = types.CodeActionParams(types.TextDocumentIdentifier(uri), where, about)
        return list(self.send(types.TEXT_DOCUMENT_CODE_ACTION, given).result(WAIT) or [])

    def hover(self, uri: str, caret: int) -> types.Hover | None:
        given = types.HoverParams(types.TextDocumentIdentifier(uri), self.position(uri, caret))
        found: types.Hover | None = self.send(types.TEXT_DOCUMENT_HOVER, given).result(WAIT)
        return found

    def definition(self, uri: str, caret: int) -> types.Location | None:
        given = types.DefinitionParams(types.TextDocumentIdentifier(uri), self.position(uri, caret))
        found: types.Location | None = self.send(types.TEXT_DOCUMENT_DEFINITION, given).result(WAIT)
        return found

    def accept(self, uri: str, item: types.CompletionItem) -> None:
        """Insert an item and run its command."""
        assert isinstance(item.text_edit, types.TextEdit)
        self.edit(uri, [item.text_edit, *(item.additional_text_edits or ())])
        if item.command:
            self.execute(item.command)

    def act(self, uri: str, action: types.CodeAction) -> None:
        """Apply the edit of a code action, then run its command."""
        if action.edit:
            self.apply(action.edit)
        if action.command:
            self.execute(action.command)

    def execute(self, command: types.Command) -> None:
        params = types.ExecuteCommandParams(command.command, command.arguments)
        self.send(types.WORKSPACE_EXECUTE_COMMAND, params).result(WAIT)

    def edit(self, uri: str, edits: Sequence[types.TextEdit]) -> None:
        """Apply edits to a document, which must not overlap."""
        document = self.documents[uri]
        spans = [(document.offset(one.range.start), document.offset(one.range.end), one) for one in edits]
        done = len(document.text)
        for start, end, one in sorted(spans, key=lambda span: span[:2], reverse=True):
            assert start <= end <= done
            assert document.range(start, end) == one.range
            self.change(uri, start, end, one.new_text)
            done = start

    def apply(self, edit: types.WorkspaceEdit) -> None:
        """Apply the edits of a workspace; those of files that are not open change the file."""
        for uri, edits in (edit.changes or {}).items():
            if uri in self.documents:
                self.edit(uri, edits)
                continue
            path = Path(uri.removeprefix("file://"))
            document = Document.open(uri, path.read_bytes().decode(), encoding=self.encoding)
            for one in edits:
                start, end = document.offset(one.range.start), document.offset(one.range.end)
                path.write_bytes(f"{document.text[:start]}{one.new_text}{document.text[end:]}".encode())
