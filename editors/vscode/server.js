// @ts-check
"use strict";

/** Languages whose documents the server reads; .bib files only so that it sees unsaved entries. */
const LANGUAGES = ["latex", "tex", "markdown", "quarto", "rmd", "typst", "org", "bibtex"];

/**
 * The command that starts the server.
 * @param {string[]} command of citerec
 * @param {string} library folder
 * @param {string} [folder] of the workspace
 */
function serverCommand(command, library, folder) {
  const [program, ...before] = command;
  return { command: program, args: [...before, "lsp", `library=${library}`], options: { cwd: folder } };
}

module.exports = { LANGUAGES, serverCommand };
