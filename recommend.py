"""Build and query your own library of papers to cite: citerec COMMAND key=value ...

In Python: `from citerec import Recommender`.
"""

from __future__ import annotations

import logging
import os
import re
import sys
from collections.abc import Sequence
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from typing import Any

from citerec.base.arguments import HELP, run_command
from citerec.base.errors import InputError, one_line_errors
from citerec.base.files import expand_user
from citerec.library import settings

COMMANDS: dict[str, tuple[type[settings.LibrarySettings], str]] = {
    "ask": (settings.AskSettings, "citerec.library.commands.ask:ask"),
    "search": (settings.SearchSettings, "citerec.library.commands.ask:search"),
    "paper": (settings.PaperSettings, "citerec.library.commands.citations:paper"),
    "missing": (settings.MissingSettings, "citerec.library.commands.citations:missing"),
    "draft": (settings.DraftSettings, "citerec.library.drafts.suggest:draft"),
    "check": (settings.CheckSettings, "citerec.library.drafts.check:check"),
    "references": (settings.ReferencesSettings, "citerec.library.commands.references:references"),
    "report": (settings.ReportSettings, "citerec.library.commands.report:report"),
    "build": (settings.BuildSettings, "citerec.library.commands.change:build"),
    "add": (settings.AddSettings, "citerec.library.commands.change:add"),
    "remove": (settings.RemoveSettings, "citerec.library.commands.change:remove"),
    "update": (settings.UpdateSettings, "citerec.library.commands.change:update"),
    "enrich": (settings.EnrichSettings, "citerec.library.enrich.enrich:enrich"),
    "info": (settings.InfoSettings, "citerec.library.commands.change:info"),
    "verify": (settings.VerifySettings, "citerec.library.commands.change:verify"),
    "serve": (settings.ServeSettings, "citerec.library.serve.server:serve"),
    "mcp": (settings.McpSettings, "citerec.library.serve.mcp:run_stdio"),
    "lsp": (settings.LspSettings, "citerec.library.editor.server:lsp"),
}
"""Settings class and function of each command."""
SAID = ("citerec.base.files", "citerec.library.ask.temporary", "citerec.library.papers.watch")
"""The loggers of what a user waits for; of all others, only warnings are shown."""

_LIBRARY = re.compile("(--)?library=")


def __getattr__(name: str) -> Any:
    """Import Recommender on first use."""
    if name == "Recommender":
        return import_module("citerec.library.ask.recommender").Recommender
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


@one_line_errors
def main() -> None:
    """Run the command of the arguments."""
    run(sys.argv[1:])


def run(arguments: Sequence[str]) -> None:
    """Parse the arguments, then import and call the command's function."""
    name, *options = arguments or [""]
    if name not in COMMANDS:
        close = get_close_matches(name, COMMANDS, 1)
        problem = f"{name}: unknown command" if name else "no command given"
        choice = f"did you mean {close[0]}?" if close else f"choose one of {', '.join(COMMANDS)}"
        raise InputError(f"{problem}; {choice}")
    kind, target = COMMANDS[name]
    options = with_library(name, options)

    def call(chosen: settings.LibrarySettings) -> None:
        for logger in SAID:
            logging.getLogger(logger).setLevel(logging.INFO)
        module, _, function = target.partition(":")
        getattr(import_module(module), function)(chosen)

    run_command(name, kind, call, options, logging.WARNING)


def with_library(name: str, options: Sequence[str]) -> list[str]:
    """Return the options with `library=` in front, which may be omitted if the first one names a library, a
    file of papers or Zotero, or the library to build. Raises InputError, with what there is nearby, if no
    option names one.
    """
    if name == "build" and options and "=" not in options[0] and not options[0].startswith("-"):
        return [f"library={options[0]}", *options[1:]]
    for option in options:
        key = option.partition("=")[0]
        if "=" in option and key != "library" and get_close_matches(key, ["library"], 1, 0.7):
            raise InputError(f"{key}: there is no such option; did you mean library?")
    takes_drafts = name in ("ask", "draft", "check")
    drafts = [option for option in options if takes_drafts and "=" not in option and is_draft(option)]
    if name == "ask" and drafts:
        raise InputError(f"{drafts[0]} is a draft; its missing citations: citerec draft LIBRARY {drafts[0]}")
    if any(option in HELP or _LIBRARY.match(option) for option in options):
        return list(options)
    plain = [option for option in options if "=" not in option and not option.startswith("-")]
    if name == "draft":
        from citerec.library.drafts.reader import EXPORTS, draft_language

        for path in map(Path, plain):
            if path.suffix.lower() in EXPORTS and not path.is_dir():
                draft_language(path)  # says what to export
    if drafts and len(plain) == 2:  # in any order
        [library] = [option for option in plain if option is not drafts[0]]
        return [f"library={library}", *(option for option in options if option is not library)]
    if name in ("build", "check", "references", "report"):
        return list(options)
    if name == "ask" and len(plain) == 2 and is_there(plain[1]) and not is_there(plain[0]):
        return [f"library={plain[1]}", *(option for option in options if option is not plain[1])]
    if drafts:
        options, draft = [option for option in options if option is not drafts[0]], drafts[0]
    else:
        draft = "..."
    if options and is_there(options[0]):
        return [f"library={options[0]}", *options[1:]]
    kind = COMMANDS[name][0]
    if options and "=" not in options[0] and (len(options) > 1 or not hasattr(kind, "positional")):
        raise InputError(f"{options[0]}: no such library; build it with citerec build, or correct its name")
    from citerec.library.commands.nearby import Nearby

    asks = kind.asks
    nearby = Nearby.look(asks)
    if command := nearby.command(name, draft):
        raise InputError(f"library is required; found {nearby.describe()}; go on with: {command}")
    example = "papers.bib: a file of papers, zotero or a" if asks else "my-library: a"
    raise InputError(f"library is required, as in citerec {name} {example} folder from citerec build")


def is_there(name: str) -> bool:
    """True for an argument that names a file, a folder or a place in Zotero."""
    from citerec.library.sources.zotero_places import is_place

    return is_place(name) or os.path.exists(expand_user(name))


def is_draft(name: str) -> bool:
    """True if an argument names a draft by its suffix."""
    stem, suffix = os.path.splitext(name)
    if not (stem and suffix[1:].isalpha()) or (len(name.split()) > 1 and not os.path.isfile(name)):
        return False
    from citerec.formats.drafts.languages import language_of

    return language_of(suffix) is not None or (suffix == ".txt" and os.path.isfile(name))


if __name__ == "__main__":
    main()
