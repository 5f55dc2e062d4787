// @ts-check
"use strict";

const vscode = require("vscode");
const { LanguageClient, TransportKind } = require("vscode-languageclient/node");
const { LANGUAGES, serverCommand } = require("./server");

/** @type {LanguageClient | undefined} */
let client;
/** Starts and stops, one after the other: a start before the end of another would leave two servers. */
let last = Promise.resolve();

/** Start the server with the current settings. */
async function start() {
  const settings = vscode.workspace.getConfiguration("citerec");
  const library = settings.get("library", "");
  if (!library) {
    const open = "Open settings";
    vscode.window.showInformationMessage("Name the folder of your library of papers.", open).then((chosen) => {
      if (chosen) vscode.commands.executeCommand("workbench.action.openSettings", "citerec.library");
    });
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
          const before = new Set(unsaved());
          const result = await next(command, given);
          for (const document of unsaved()) if (!before.has(document)) await document.save();
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

/** The .bib files with unsaved changes that the user does not see. */
function unsaved() {
  const seen = new Set(vscode.window.visibleTextEditors.map((editor) => editor.document));
  const changed = vscode.workspace.textDocuments.filter((document) => document.isDirty && !seen.has(document));
  return changed.filter((document) => document.fileName.endsWith(".bib"));
}

function stop() {
  return (last = last.then(() => (client?.isRunning() ? client.stop() : undefined)).catch(() => {}));
}

function restart() {
  stop();
  return (last = last.then(start));
}

/** @param {vscode.ExtensionContext} context */
async function activate(context) {
  context.subscriptions.push(
    vscode.commands.registerCommand("citerec.restart", restart),
    vscode.workspace.onDidChangeConfiguration((event) => {
      if (event.affectsConfiguration("citerec")) restart();
    }),
  );
  await restart();
}

module.exports = { activate, deactivate: stop };
