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
    from citerec.recommend import nearby, run

    first, *others = words or ["help"]
    if first in LIBRARY:
        sys.argv[0] = f"citerec {first}"
        run(words)
    elif first in VERSION:
        print(f"citerec {version('citerec')}")
    elif not words and (there := nearby()):
        command = f'citerec ask {shlex.quote(there[0])} "A sentence that lacks a citation [CITE]."'
        print(f"Found {', '.join(there)}. Go on with:\n\n    {command}\n")
        print("citerec --help lists all commands.")
    elif first in (*HELP, "help"):
        print("citerec COMMAND key=value ...    (citerec COMMAND --help: its options; citerec --version)")
        print("\nyour own library of papers:")
        for name, (kind, _) in LIBRARY.items():
            text = kind.__doc__ or ""
            print(f"  {name:15} {text[0].lower()}{text[1:].rstrip('.')}")
        print("\nmodels and data (most need the extra `train`):", *_lines(), sep="\n")
    elif first in GROUPS and (not others or others[0] in (*HELP, "help")):
        print(f"citerec {first} COMMAND key=value ...    (citerec {first} COMMAND --help: its options)\n")
        print(*_lines(f"{first} "), sep="\n")
    else:
        name = " ".join(words[:2]) if first in GROUPS else first
        close = get_close_matches(name, [*LIBRARY, *COMMANDS], 1)
        choice = f"did you mean citerec {close[0]}?" if close else "citerec --help lists the commands"
        raise InputError(f"citerec {name}: no such command; {choice}")


def _lines(start: str = "") -> list[str]:
    """The names and summaries of the commands whose name starts with `start`."""
    return [f"  {name:15} {summary}" for name, (_, summary) in COMMANDS.items() if name.startswith(start)]


if __name__ == "__main__":
    main()
