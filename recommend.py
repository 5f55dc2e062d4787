"""Ask one's own library for the paper to cite: python recommend.py COMMAND key=value ...

In Python: `from recommend import Recommender`.
"""

from __future__ import annotations

import logging
import sys
from difflib import get_close_matches
from importlib import import_module
from typing import Any

from datasets.errors import InputError, one_line_errors
from library import settings
from library.arguments import options_help, read_arguments

COMMANDS: dict[str, tuple[type[settings.LibrarySettings], str]] = {
    "build": (settings.BuildSettings, "library.commands:build"),
    "add": (settings.AddSettings, "library.commands:add"),
    "remove": (settings.RemoveSettings, "library.commands:remove"),
    "update": (settings.UpdateSettings, "library.commands:update"),
    "ask": (settings.AskSettings, "library.commands:ask"),
    "info": (settings.InfoSettings, "library.commands:info"),
    "draft": (settings.DraftSettings, "library.draft:draft"),
    "serve": (settings.ServeSettings, "library.server:serve"),
    "mcp": (settings.McpSettings, "library.mcp:run_stdio"),
}
"""The settings of each command, and the function that gets them."""
QUIET = ("ask", "draft")
"""Commands that answer, and say nothing else."""
HELP = ("--help", "-h", "help")


def __getattr__(name: str) -> Any:
    """The classes to use from Python, imported when they are asked for."""
    if name == "Recommender":
        return import_module("library.recommender").Recommender
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


@one_line_errors
def main() -> None:
    """Read the arguments, then import and call the command's function."""
    name, *arguments = sys.argv[1:] or [""]
    if name in HELP:
        print(command_help())
        return
    if name not in COMMANDS:
        close = get_close_matches(name, COMMANDS, 1)
        what = f"{name}: there is no such command" if name else "no command is given"
        choice = f"did you mean {close[0]}?" if close else f"choose one of {', '.join(COMMANDS)}"
        raise InputError(f"{what}; {choice}")
    kind, place = COMMANDS[name]
    if any(argument in HELP[:2] for argument in arguments):
        print(f"python recommend.py {name}: {kind.__doc__}\n\nOptions:\n{options_help(kind)}")
        return
    given = read_arguments(kind, arguments)
    level = logging.WARNING if name in QUIET else logging.INFO
    logging.basicConfig(level=level, format="%(message)s", stream=sys.stderr)
    module, _, function = place.partition(":")
    getattr(import_module(module), function)(given)


def command_help() -> str:
    """All commands, and the options of each."""
    lines = ["python recommend.py COMMAND key=value ...    (COMMAND --help: one command alone)"]
    for name, (kind, _) in COMMANDS.items():
        lines += ["", f"{name}: {(kind.__doc__ or '').strip()}", options_help(kind)]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
