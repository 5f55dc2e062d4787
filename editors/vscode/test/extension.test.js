// @ts-nocheck
"use strict";

// The extension with a VS Code and a client library that record what it does.

const assert = require("node:assert");
const Module = require("node:module");
const test = require("node:test");
const { setTimeout } = require("node:timers/promises");

const clients = [], textDocuments = [], saved = [];
let changed;
class LanguageClient {
  constructor(...given) { this.options = given[3]; this.running = false; clients.push(this); }
  async start() { await setTimeout(1); this.running = true; }
  async stop() { this.running = false; }
  isRunning() { return this.running; }
}
const getConfiguration = () => ({ get: (name) => (name === "library" ? "papers" : ["citerec"]) });
const vscode = {
  workspace: { getConfiguration, textDocuments, onDidChangeConfiguration: (react) => (changed = react) },
  window: { visibleTextEditors: [], showErrorMessage: assert.fail },
  commands: { registerCommand: () => {} },
};
const made = { vscode, "vscode-languageclient/node": { LanguageClient, TransportKind: {} } }, load = Module._load;
Module._load = (name, ...rest) => made[name] ?? load(name, ...rest);
const { activate, deactivate } = require("../extension");

test("one server runs, and only what a command changes is saved", async () => {
  activate({ subscriptions: [] });
  for (let count = 0; count < 2; count++) changed({ affectsConfiguration: () => true });
  await setTimeout(50);
  assert.equal(clients.filter((client) => client.running).length, 1);
  for (const [fileName, isDirty] of [["own.bib", true], ["refs.bib", false], ["refs.tex", true]]) {
    textDocuments.push({ fileName, isDirty, save: () => saved.push(fileName) });
  }
  const { executeCommand } = clients.at(-1).options.middleware;
  await executeCommand("citerec.addEntry", [], () => (textDocuments[1].isDirty = true));
  assert.deepEqual(saved, ["refs.bib"]);
  await deactivate();
  assert.ok(!clients.some((client) => client.running));
});
