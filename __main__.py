"""The command `citerec`: `citerec NAME [key=value ...]`, the same as `python -m citerec NAME ...`."""

from __future__ import annotations

import shlex
import sys
from difflib import get_close_matches
from importlib import import_module
from importlib.metadata import version
from runpy import run_module

from citerec.base.arguments import HELP
from citerec.base.errors import InputError, one_line_errors

COMMANDS = {
    "train": ("citerec.train", "train a model"),
    "evaluate": ("citerec.evaluate", "run a benchmark"),
    "compare": ("citerec.evaluation.comparison", "test the differences of two evaluations"),
    "results": ("citerec.evaluation.results.page", "run a plan of evaluations and write its results page"),
    "data build": ("citerec.datasets.building.build", "build a corpus from full texts"),
    "data download": ("citerec.datasets.published.downloads", "download published data and models"),
    "data drafts": ("citerec.datasets.published.drafts", "fetch public drafts with their bibliographies"),
    "data inspect": ("citerec.datasets.inspect", "report duplicates, leaks and empty fields"),
    "model compress": ("citerec.hatten.static.compress", "write a smaller static model"),
    "model networks": ("citerec.rerank.cross_encoder.export", "write the small networks with 8-bit weights"),
    "model publish": ("citerec.evaluation.publish", "write a model card, and upload a model"),
}
"""Module and summary of each command besides those of a library."""
ENTRY_POINTS = ("train", "evaluate")
"""Run like `python -m MODULE`, since Lightning starts the other processes of a training in this way."""
GROUPS = tuple(dict.fromkeys(name.split()[0] for name in COMMANDS if " " in name))
"""First words of commands of two words."""
VERSION = ("--version", "-V", "version")


@one_line_errors
def main() -> None:
    """Run the command named by the first one or two arguments."""
    words = sys.argv[1:]
    if words[:1] == ["help"] and len(words) > 1:
        words = [*words[1:], "--help"]
    for size in (2, 1):
        name = " ".join(words[:size])
        if name in COMMANDS and len(words) >= size:
            sys.argv = [f"citerec {name}", *words[size:]]
            module = COMMANDS[name][0]
            if name in ENTRY_POINTS:
                run_module(module, run_name="__main__", alter_sys=True)
            else:
                if name == "results":
                    import_module("citerec.library.benchmark.settings")  # for plans with benchmark=drafts
                import_module(module).main()
            return
    from citerec.recommend import COMMANDS as LIBRARY  # not needed by the commands above
    from citerec.recommend import run

    if words and words[0] in LIBRARY:
        sys.argv[0] = f"citerec {words[0]}"
        run(words)
        return
    if words and words[0] in VERSION:
        print(f"citerec {version('citerec')}")
        return
    _help_or_fail(words, {name: kind.__doc__ or "" for name, (kind, _) in LIBRARY.items()})


def _help_or_fail(words: list[str], library: dict[str, str]) -> None:
    """Print the list of commands; InputError for an unknown command.

    library: the commands of a library, and what they do.
    """
    if not words:
        from citerec.recommend import nearby

        if there := nearby():
            command = f'citerec ask {shlex.quote(there[0])} "A sentence that lacks a citation [CITE]."'
            print(f"Found {', '.join(there)}. Go on with:\n\n    {command}\n")
            print("citerec --help lists all commands.")
            return
    if not words or words[0] in (*HELP, "help"):
        print(_help(library))
        return
    if words[0] in GROUPS and (len(words) == 1 or words[1] in (*HELP, "help")):
        head = f"citerec {words[0]} COMMAND key=value ...    (citerec {words[0]} COMMAND --help: its options)"
        print("\n".join([head, "", *_lines(f"{words[0]} ")]))
        return
    commands = [*library, *COMMANDS]
    name = " ".join(words[:2]) if words[0] in GROUPS else words[0]
    close = get_close_matches(name, commands, 1)
    choice = f"did you mean citerec {close[0]}?" if close else "citerec --help lists the commands"
    raise InputError(f"citerec {name}: no such command; {choice}")


def _help(library: dict[str, str]) -> str:
    """Return the list of commands."""
    lines = ["citerec COMMAND key=value ...    (citerec COMMAND --help: its options; citerec --version)", ""]
    lines += ["your own library of papers:"]
    lines += [f"  {name:15} {text[0].lower()}{text[1:].rstrip('.')}" for name, text in library.items()]
    return "\n".join([*lines, "", "models and data (most need the extra `train`):", *_lines()])


def _lines(start: str = "") -> list[str]:
    """The names and summaries of the commands whose name starts with `start`."""
    return [f"  {name:15} {summary}" for name, (_, summary) in COMMANDS.items() if name.startswith(start)]


if __name__ == "__main__":
    main()
