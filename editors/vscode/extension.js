// @ts-check
"use strict";

const vscode = require("vscode");
const { LanguageClient, TransportKind } = require("vscode-languageclient/node");
const { LANGUAGES, serverCommand } = require("./server");

/** @type {LanguageClient | undefined} */
let client;

/** Start the server with the current settings. */
async function start() {
  const settings = vscode.workspace.getConfiguration("citerec");
  const library = settings.get("library", "");
  if (!library) {
    const open = "Open settings";
    const chosen = await vscode.window.showInformationMessage("Name the folder of your library of papers.", open);
    if (chosen) await vscode.commands.executeCommand("workbench.action.openSettings", "citerec.library");
    return;
  }
  const folder = vscode.workspace.workspaceFolders?.[0]?.uri.fsPath;
  const server = serverCommand(settings.get("command", ["citerec"]), library, folder);
  client = new LanguageClient(
    "citerec",
    "citerec",
    { ...server, transport: TransportKind.stdio },
    {
      documentSelector: LANGUAGES.flatMap((language) => [
        { language, scheme: "file" },
        { language, scheme: "untitled" },
      ]),
      middleware: {
        async executeCommand(command, given, next) {
          const result = await next(command, given);
          await saveBibliographies();
          return result;
        },
      },
    },
  );
  try {
    await client.start();
  } catch (error) {
    vscode.window.showErrorMessage(`citerec does not start: ${error}; see the setting citerec.command`);
  }
}

/** Save .bib files that got an entry and that the user does not see. */
async function saveBibliographies() {
  const seen = new Set(vscode.window.visibleTextEditors.map((editor) => editor.document));
  for (const document of vscode.workspace.textDocuments) {
    if (document.isDirty && document.fileName.endsWith(".bib") && !seen.has(document)) await document.save();
  }
}

async function stop() {
  const running = client;
  client = undefined;
  if (running?.isRunning()) await running.stop();
}

async function restart() {
  await stop();
  await start();
}

/** @param {vscode.ExtensionContext} context */
async function activate(context) {
  context.subscriptions.push(
    vscode.commands.registerCommand("citerec.restart", restart),
    vscode.workspace.onDidChangeConfiguration((event) => {
      if (event.affectsConfiguration("citerec")) restart();
    }),
  );
  await start();
}

module.exports = { activate, deactivate: stop };
