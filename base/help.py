"""The `--help` of the commands: the configuration groups of a command, and a note on each option.

The notes are the comments in the files of conf/ and the docstrings under the fields of settings. A command's
help template includes them as `${options:}`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import MISSING
from pathlib import Path
from typing import Any

from hydra.core.config_store import ConfigStore
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf

from citerec.base.settings import field_notes

CONF = Path(__file__).parents[1] / "conf"
DERIVED = ("tuned", "recipe")
"""Groups determined by other groups, which users do not choose by name."""


def options(*, _root_: DictConfig) -> str:
    """Format the groups and options of a composed configuration for `hydra.help.template`."""
    from citerec.base.arguments import option_lines  # needed for the help alone

    lines = ["Groups (GROUP=NAME; the options of the chosen ones are below):", *option_lines(_groups()), ""]
    lines += ["Options (KEY=VALUE) with their defaults:", *option_lines(_described(_root_))]
    return "\n".join(lines).replace("$", "$$")  # Hydra substitutes $ in the help


OmegaConf.register_new_resolver("options", options, replace=True)


def config_groups() -> list[str]:
    """Return the groups of all commands that users choose from."""
    groups = sorted(path.name for path in CONF.iterdir() if path.is_dir())
    return [group for group in groups if group not in ("hydra", *DERIVED)]


def _groups() -> Iterator[tuple[str, str | None, str]]:
    """Yield the groups of a command, with their choices as notes."""
    loader = GlobalHydra.instance().config_loader()
    for key, name in sorted(HydraConfig.get().runtime.choices.items()):
        group = key.partition("@")[0]
        if group.partition("/")[0] not in ("hydra", *DERIVED):
            yield key, name, ", ".join(loader.get_group_options(group))


def flat_options(config: DictConfig) -> Iterator[tuple[str, Any]]:
    """Yield the dotted keys of groups and options with their values, in order."""
    parts: list[tuple[str, Any]] = [("", OmegaConf.to_container(config, resolve=False))]
    while parts:
        path, value = parts.pop()
        yield path, value
        if isinstance(value, dict):
            parts += [(f"{path}.{key}".strip("."), value[key]) for key in reversed(value)]


def _described(config: DictConfig) -> Iterator[tuple[str, Any, str]]:
    """Yield the dotted keys of all options but Hydra's with their values and notes."""
    notes = option_notes()
    for path, value in flat_options(config):
        if path.startswith(("hydra", "_")) or "._" in path or (isinstance(value, dict) and value):
            continue
        note = notes.get(path, "")
        if not note and (other := re.fullmatch(r"\$\{(?:oc\.select:)?([\w.]+)(?:,null)?\}", str(value))):
            note = notes.get(other[1]) or f"as {other[1]}"
        yield path, MISSING if value == "???" else value, note


def option_notes() -> dict[str, str]:
    """Return {dotted key: note} for the running command's configuration; empty outside a command."""
    if not (HydraConfig.initialized() and GlobalHydra.instance().is_initialized()):
        return {}
    job = HydraConfig.get()
    overrides = [*job.overrides.hydra, *job.overrides.task]
    loader = GlobalHydra.instance().config_loader()
    notes: dict[str, str] = {}
    for part in loader.compute_defaults_list(job.job.config_name, overrides, RunMode.RUN).defaults:
        if part.config_path is None or part.config_path.startswith("hydra/"):
            continue
        file, prefix = CONF / f"{part.config_path}.yaml", f"{part.package}." if part.package else ""
        if part.config_path.startswith("schema/"):
            kind = OmegaConf.get_type(ConfigStore.instance().load(f"{part.config_path}.yaml").node)
            own = field_notes(kind) if kind is not None else {}
        else:
            own = yaml_notes(file.read_text("utf-8")) if file.is_file() else {}
        notes |= {prefix + key: note for key, note in own.items()}
    return notes


def yaml_notes(text: str) -> dict[str, str]:
    """Return {dotted key: the comment after its value, or else above it}; a comment at the top is the file's.

    >>> yaml_notes("a: 1  # one\\nb:\\n  # two,\\n  # or three\\n  c: '#2'")
    {'a': 'one', 'b.c': 'two, or three'}
    """
    notes, path, above, key = dict[str, str](), list[str](), list[str](), ""
    for line in re.sub(r"\A(?:\s*#.*\n)+", "", text).splitlines():
        indent = len(line) - len(line.lstrip())
        if comment := re.fullmatch(r"\s*#\s?(.*)", line):
            if key and indent >= 12:  # goes on below the end of a line
                notes[key] += f" {comment[1]}"
            else:
                above.append(comment[1])
            continue
        key = ""
        if option := re.match(r"\s*([\w@/]+):", line):
            path = [*path[: indent // 2], option[1]]
            if after := re.search(r"\s#\s*(.*)", line):
                key = ".".join(path)
                notes[key] = after[1]
            elif above:
                notes[".".join(path)] = " ".join(above)
        above = []
    return notes
