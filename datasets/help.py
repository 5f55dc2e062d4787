"""The help of the commands: the groups that a command reads, and a line on each of its options.

The lines stand where the options do: in comments of the files in conf/, and under the fields of settings. A
command's template takes them up as `${options:}`.
"""

from __future__ import annotations

import re
import textwrap
from pathlib import Path
from typing import Any

import yaml
from hydra.core.config_store import ConfigStore
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf

from datasets.settings import field_notes

CONF = Path(__file__).parents[1] / "conf"
WIDTH, COLUMN = 118, 44
"""Of a line of help, and where the notes begin."""
FOLLOWING = ("for_data", "tuned", "recipe")
"""Groups that follow from others and are not chosen by name."""


def options(*, _root_: DictConfig) -> str:
    """The groups and options of a composed configuration as text, for `hydra.help.template`."""
    known = option_notes()
    given = OmegaConf.to_container(_root_, resolve=False)
    assert isinstance(given, dict)
    lines = _groups()
    if lines:
        lines = ["Groups (GROUP=NAME; the options of the chosen ones are below):", *lines, ""]
    lines += ["Options (KEY=VALUE) with their defaults:"]
    lines += _lines({key: value for key, value in given.items() if key != "hydra"}, known)
    return "\n".join(lines).replace("$", "$$")  # Hydra fills in a template


def register_help() -> None:
    """Make `${options:}` known."""
    OmegaConf.register_new_resolver("options", options, replace=True)


def config_groups() -> list[str]:
    """The groups that may be chosen from, of all commands."""
    found = sorted(path.name for path in CONF.iterdir() if path.is_dir())
    return [group for group in found if group not in ("hydra", *FOLLOWING)]


def _groups() -> list[str]:
    loader, lines = GlobalHydra.instance().config_loader(), []
    for place, name in sorted(HydraConfig.get().runtime.choices.items()):
        group = place.partition("@")[0]
        if group.partition("/")[0] not in ("hydra", *FOLLOWING):
            names = ", ".join(loader.get_group_options(group))
            lines += _with_note(f"  {place}={'null' if name is None else name}", names, "")
    return lines


def _lines(values: dict[Any, Any], known: dict[str, str], path: str = "", indent: str = "  ") -> list[str]:
    lines = []
    for key, value in values.items():
        if str(key).startswith("_"):
            continue
        note = known.get(f"{path}{key}", "")
        if not note and (of := re.fullmatch(r"\$\{(?:oc\.select:)?([\w.]+)(?:,null)?\}", str(value))):
            note = known.get(of[1]) or f"as {of[1]}"
        if isinstance(value, dict) and value:
            lines += _with_note(f"{indent}{key}:", note)
            lines += _lines(value, known, f"{path}{key}.", indent + "  ")
        else:
            plain = yaml.safe_dump(value, default_flow_style=True, width=1000).removesuffix("...\n").strip()
            lines += _with_note(f"{indent}{key}: {plain}", note)
    return lines


def _with_note(text: str, note: str, sign: str = "# ") -> list[str]:
    if not note:
        return [text]
    rest = textwrap.wrap(note, WIDTH - COLUMN - len(sign), break_long_words=False, break_on_hyphens=False)
    beside = [text] if len(text) >= COLUMN else [text.ljust(COLUMN) + sign + rest.pop(0)]
    return [*beside, *(" " * COLUMN + sign + line for line in rest)]


def option_notes() -> dict[str, str]:
    """{dotted key: what it is} for all that the running command has composed; none outside of a command."""
    if not (HydraConfig.initialized() and GlobalHydra.instance().is_initialized()):
        return {}
    job = HydraConfig.get()
    given = [*job.overrides.hydra, *job.overrides.task]
    composed = (
        GlobalHydra.instance().config_loader().compute_defaults_list(job.job.config_name, given, RunMode.RUN)
    )
    found: dict[str, str] = {}
    for part in composed.defaults:
        if part.config_path is None or part.config_path.startswith("hydra/"):
            continue
        file, prefix = CONF / f"{part.config_path}.yaml", f"{part.package}." if part.package else ""
        if part.config_path.startswith("schema/"):
            kind = OmegaConf.get_type(ConfigStore.instance().load(f"{part.config_path}.yaml").node)
            of_part = field_notes(kind) if kind is not None else {}
        else:
            of_part = yaml_notes(file.read_text("utf-8")) if file.is_file() else {}
        found |= {prefix + key: note for key, note in of_part.items()}
    return found


def yaml_notes(text: str) -> dict[str, str]:
    """{dotted key: the comment behind its value, or else above it}; a comment at the head is of the file.

    >>> yaml_notes("a: 1  # one\\nb:\\n  # two,\\n  # or three\\n  c: '#2'")
    {'a': 'one', 'b.c': 'two, or three'}
    """
    lines, found = text.splitlines(), dict[str, str]()

    def comments(row: int, step: int) -> list[str]:
        """The lines that are comments alone, from a row on."""
        said: list[str] = []
        while 0 <= row < len(lines) and (comment := re.match(r"\s*#\s?(.*)", lines[row])):
            said.append(comment[1])
            row += step
        return [] if row < 0 else said

    def walk(node: yaml.MappingNode, path: str) -> None:
        for key, value in node.value:
            name, inner = f"{path}{key.value}", isinstance(value, yaml.MappingNode)
            within = inner and value.start_mark.line > key.start_mark.line
            end = key.end_mark if within or not value.end_mark.column else value.end_mark
            if behind := re.search(r"(?:^|\s)#\s*(.*)", lines[end.line][end.column :].lstrip(":")):
                more = (
                    comments(end.line + 1, 1)
                    if re.match(r"\s{12,}#", "".join(lines[end.line + 1 :][:1]))
                    else []
                )
                found[name] = " ".join([behind[1], *more])
            elif above := comments(key.start_mark.line - 1, -1):
                found[name] = " ".join(reversed(above))
            if inner:
                walk(value, f"{name}.")

    if isinstance(root := yaml.compose(text), yaml.MappingNode):
        walk(root, "")
    return found
