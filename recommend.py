"""Build and query your own library of papers to cite: citerec COMMAND key=value ...

In Python: `from citerec import Recommender`.
"""

from __future__ import annotations

import logging
import os
import re
import shlex
from collections.abc import Sequence
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path

from citerec.base.arguments import HELP, run_command
from citerec.base.errors import InputError
from citerec.base.files import expand_user
from citerec.library import MANIFEST, settings
from citerec.library.sources.finding import find_database, is_place

COMMANDS: dict[str, tuple[type[settings.LibrarySettings], str]] = {
    "ask": (settings.AskSettings, "citerec.library.commands.ask:ask"),
    "search": (settings.SearchSettings, "citerec.library.commands.ask:search"),
    "paper": (settings.PaperSettings, "citerec.library.commands.citations:paper"),
    "missing": (settings.MissingSettings, "citerec.library.commands.citations:missing"),
    "draft": (settings.DraftSettings, "citerec.library.drafts.suggest:draft"),
    "check": (settings.CheckSettings, "citerec.library.drafts.check:check"),
    "references": (settings.ReferencesSettings, "citerec.library.commands.references:references"),
    "report": (settings.ReportSettings, "citerec.library.commands.references:report"),
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
"""Loggers of the steps that a user waits for, shown from level INFO; all others show only warnings."""

OF_DRAFTS, ALONE = ("ask", "draft", "check", "references", "report"), ("check", "references", "report")
"""Commands that are given drafts, and those that need no library."""
SHOWN = 5
"""Maximum number of libraries and files to name."""
_LIBRARY = re.compile("(--)?library=|--?library$")


def main() -> None:
    """Run the command of the arguments, as `citerec` does."""
    import_module("citerec.__main__").main()


def run(arguments: Sequence[str]) -> None:
    """Parse the arguments, then import and call the function of a command of COMMANDS."""
    name, *options = arguments
    kind, target = COMMANDS[name]
    options = with_library(name, options)

    def call(chosen: settings.LibrarySettings) -> None:
        for logger in SAID:
            logging.getLogger(logger).setLevel(logging.INFO)
        module, _, function = target.partition(":")
        getattr(import_module(module), function)(chosen)

    run_command(name, kind, call, options, logging.WARNING)


def with_library(name: str, options: Sequence[str]) -> list[str]:
    """Return the options with `library=` in front. It may be omitted: the library is then the first argument
    that names a library, a file of papers or Zotero; for `build`, the first argument that is not a file.

    Raises InputError, listing what is nearby, if no option names one, and for a file of the wrong kind.
    """
    if any(option in HELP for option in options):
        return list(options)
    for option in options:
        key = option.partition("=")[0].lstrip("-")
        if "=" in option and key != "library" and get_close_matches(key, ["library"], 1, 0.7):
            raise InputError(f"{key}: there is no such option; did you mean library?")
    plain = [option for option in options if "=" not in option and not option.startswith("-")]
    drafts = [option for option in plain if name in OF_DRAFTS and is_draft(option)]
    if name == "ask" and drafts:
        command = f"citerec draft LIBRARY {shlex.quote(drafts[0])}"
        raise InputError(f"{drafts[0]} is a draft; its missing citations: {command}")
    places = [option for option in plain if option not in drafts]
    if any(_LIBRARY.match(option) for option in options) or (name in ALONE and len(plain) < 2):
        return list(options)
    if name == "build":
        library = next((place for place in places if not os.path.isfile(place)), None)
    else:
        there = (place for place in places if is_place(place) or os.path.exists(expand_user(place)))
        library = next(there, None)
    if library:
        return [f"library={library}", *(option for option in options if option is not library)]
    if name == "build":
        return list(options)
    kind = COMMANDS[name][0]
    if places and (len(plain) > 1 or not hasattr(kind, "positional")):
        is_file = os.path.splitext(places[0])[1]
        advice = "file" if is_file else "library; build it with citerec build, or correct its name"
        raise InputError(f"{places[0]}: no such {advice}")
    if close := nearby(kind.asks):
        command = f"citerec {name} {shlex.quote(close[0])} {shlex.quote(drafts[0]) if drafts else '...'}"
        raise InputError(f"library is required; found {', '.join(close)}; go on with: {command}")
    example = "papers.bib: a file of papers, zotero or a" if kind.asks else "my-library: a"
    raise InputError(f"library is required, as in citerec {name} {example} folder from citerec build")


def nearby(sources: bool = True) -> list[str]:
    """Return at most SHOWN libraries in this folder; with `sources` also .bib files in it and in its folders,
    and Zotero."""
    libraries = [str(path.parent) for path in sorted(Path().glob(f"*/{MANIFEST}"))]
    if not sources:
        return libraries[:SHOWN]
    files = [str(path) for pattern in ("*.bib", "*/*.bib") for path in sorted(Path().glob(pattern))]
    return [*libraries, *files, *(["zotero"] if find_database() else [])][:SHOWN]


def is_draft(name: str) -> bool:
    """True if an argument names a draft by its suffix. Raises InputError for a kind that is not read."""
    stem, suffix = os.path.splitext(name)
    if not (stem and suffix[1:].isalpha()) or (len(name.split()) > 1 and not os.path.isfile(name)):
        return False
    from citerec.formats.drafts.languages import EXPORTS, PLAIN, draft_language, language_of

    if language_of(suffix) is not None or (suffix == PLAIN and os.path.isfile(name)):
        return True
    if suffix.lower() in EXPORTS and not os.path.isdir(name):
        draft_language(Path(name))  # says what to export
    return False


if __name__ == "__main__":
    main()
