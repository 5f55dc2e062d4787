// @ts-check
"use strict";

// The protocol part without VS Code: starts the server as the extension does, with the client library's own
// connection, and accepts a completion. $CITEREC: how to start citerec, as JSON; it must be installed.

const assert = require("node:assert");
const { spawn, spawnSync } = require("node:child_process");
const fs = require("node:fs");
const os = require("node:os");
const path = require("node:path");
const test = require("node:test");
const { pathToFileURL } = require("node:url");
const protocol = require("vscode-languageserver-protocol/node");
const { LANGUAGES, serverCommand } = require("../server");

const CITEREC = JSON.parse(process.env.CITEREC ?? '["citerec"]');
const PAPERS = path.join(__dirname, "..", "..", "..", "examples", "library.bib");
const TEXT = "\\title{Ranking}\nGraded judgements deserve a discount for lower positions \\cite{}.\n\\bibliography{refs}\n";

test("a completion is accepted and its entry written", async () => {
  const folder = fs.realpathSync(fs.mkdtempSync(path.join(os.tmpdir(), "citerec-")));
  fs.writeFileSync(path.join(folder, "refs.bib"), "");
  const [program, ...before] = CITEREC;
  const built = spawnSync(program, [...before, "build", "library=papers", `source=${PAPERS}`], { cwd: folder });
  assert.equal(built.status, 0, String(built.stderr));

  const { command, args, options } = serverCommand(CITEREC, "papers", folder);
  const server = spawn(command, args, { ...options, stdio: ["pipe", "pipe", "inherit"] });
  const connection = protocol.createProtocolConnection(
    new protocol.StreamMessageReader(server.stdout),
    new protocol.StreamMessageWriter(server.stdin),
  );
  /** @type {protocol.WorkspaceEdit[]} */
  const edits = [];
  connection.onRequest(protocol.ApplyWorkspaceEditRequest.type, ({ edit }) => {
    edits.push(edit);
    return { applied: true };
  });
  connection.onUnhandledNotification(() => {});
  connection.listen();
  const uri = pathToFileURL(path.join(folder, "paper.tex")).href;
  await connection.sendRequest(protocol.InitializeRequest.type, {
    processId: process.pid,
    rootUri: null,
    workspaceFolders: [{ uri: pathToFileURL(folder).href, name: "draft" }],
    capabilities: { workspace: { applyEdit: true } },
  });
  await connection.sendNotification(protocol.InitializedNotification.type, {});
  await connection.sendNotification(protocol.DidOpenTextDocumentNotification.type, {
    textDocument: { uri, languageId: LANGUAGES[0], version: 1, text: TEXT },
  });
  const position = { line: 1, character: TEXT.split("\n")[1].indexOf("}") };
  const found = await connection.sendRequest(protocol.CompletionRequest.type, { textDocument: { uri }, position });
  assert.ok(found && !Array.isArray(found) && found.isIncomplete);
  const [first] = found.items;
  assert.equal(first.detail, "jarvelin2002dcg");
  assert.ok(first.command);
  await connection.sendRequest(protocol.ExecuteCommandRequest.type, {
    command: first.command.command,
    arguments: first.command.arguments,
  });
  const [[bib, [entry]]] = Object.entries(edits[0].changes ?? {});
  assert.equal(bib, pathToFileURL(path.join(folder, "refs.bib")).href);
  assert.match(entry.newText, /\{jarvelin2002dcg,/);
  await connection.sendRequest(protocol.ShutdownRequest.type);
  const ended = new Promise((resolve) => server.once("exit", resolve));
  await connection.sendNotification(protocol.ExitNotification.type);
  assert.equal(await ended, 0);
  connection.dispose();
  fs.rmSync(folder, { recursive: true });
});
