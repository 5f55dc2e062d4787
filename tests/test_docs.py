"""README and docs: links lead somewhere, commands, options and paths exist, and pages are short; doctests."""

from __future__ import annotations

import doctest
import importlib
import re
import shlex
from collections.abc import Iterator
from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import OmegaConf

from citerec.base.arguments import read_arguments
from citerec.datasets.building.build import BuildSettings
from citerec.datasets.published.downloads import DownloadSettings
from citerec.datasets.published.drafts import DraftsSettings
from citerec.evaluation.comparison import CompareSettings
from citerec.evaluation.publish import PublishSettings
from citerec.evaluation.results.page import ResultsSettings
from citerec.hatten.settings import MiningSettings
from citerec.hatten.static.compress import CompressSettings
from citerec.recommend import COMMANDS as LIBRARY
from citerec.rerank.cross_encoder.export import NetworksSettings
from citerec.tests.composing import compose_config

ROOT = Path(__file__).parents[1]
CONF = ROOT / "conf"
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "CHANGELOG.md",
    ROOT / "tests" / "cases.md",
    ROOT / "reproduce" / "README.md",
    ROOT / "library" / "builtin" / "README.md",
    *sorted((ROOT / "docs").rglob("*.md")),
]
WRITTEN = [page for page in PAGES if "\nGenerated from `" not in page.read_text("utf-8")]
"""Pages not written by `citerec results`, whose plans tests/evaluation/test_results.py composes."""
ENTRIES = {
    "train": "train",
    "evaluate": "evaluate",
    "data inspect": "inspect",
}
"""Hydra's configuration of each command that has one."""
SETTINGS = {name: kind for name, (kind, _) in LIBRARY.items()} | {
    "compare": CompareSettings,
    "results": ResultsSettings,
    "data build": BuildSettings,
    "data download": DownloadSettings,
    "data drafts": DraftsSettings,
    "model compress": CompressSettings,
    "model networks": NetworksSettings,
    "model publish": PublishSettings,
}
HELP = ("--help", "--version")


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


@cache
def anchors(page: Path) -> set[str]:
    """Anchors that GitHub gives the headings of a page."""
    text = re.sub(r"^```.*?^```", "", page.read_text("utf-8"), flags=re.DOTALL | re.MULTILINE)
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_resolve(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text("utf-8")):
        if re.match(r"https?:|mailto:", target):
            continue
        file, _, anchor = target.partition("#")
        goal = (page.parent / file).resolve() if file else page
        assert goal.exists(), target
        assert not anchor or anchor in anchors(goal), target


def test_pages_named_in_code_and_configuration_exist() -> None:
    sources = [
        path
        for end in ("*.py", "*.yaml")
        for path in ROOT.rglob(end)
        if not str(path.relative_to(ROOT)).startswith(".venv")
    ]
    named = {
        name
        for path in [*sources, ROOT / "Makefile"]
        if not path.is_relative_to(ROOT / "outputs") and ".cache" not in path.parts
        for name in re.findall(r"docs/[\w/-]+\.(?:md|yaml)", path.read_text("utf-8", errors="ignore"))
    }
    assert {"docs/research/data.md"} <= named
    assert {name for name in named if not (ROOT / name).is_file()} == set()


def command_lines(page: Path) -> Iterator[list[str]]:
    """Yield the words of each command in the `sh` blocks of a page, with its variables filled in."""
    for block in re.findall(r"^```sh\n(.*?)^```", page.read_text("utf-8"), re.DOTALL | re.MULTILINE):
        variables: dict[str, str] = {}
        for line in block.replace("\\\n", " ").splitlines():
            for key, value in variables.items():
                line = re.sub(rf"\${key}\b", value.replace("\\", r"\\"), line)
            if result := re.fullmatch(r'([A-Z])=(?:"(.*)"|(\S*))', line.strip()):
                variables[result[1]] = result[2] or result[3] or ""
                continue
            words = shlex.split(line, comments=True)
            while words and re.match(r"[A-Z_]+=", words[0]):  # environment variables
                del words[0]
            if words:
                yield [word.replace("data=...", "data=demo") for word in words if word != "..."]


def test_no_shell_reads_brackets_of_commands() -> None:
    """zsh, the shell of macOS, refuses them where they match no file."""
    for page in PAGES:
        for block in re.findall(r"^```sh\n(.*?)^```", page.read_text("utf-8"), re.DOTALL | re.MULTILINE):
            bare = re.sub(r"'[^'\n]*'|\"[^\"]*\"|(^|\s)#.*", "", block)
            assert not re.search(r"[\[*]", bare), page


def check_command(words: list[str]) -> None:
    """Fail if a command, an option or a value of a config group does not exist."""
    if words[0] == "make":
        targets = re.findall(r"^([\w.-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
        assert words[1] in targets
        return
    if words[:2] == ["python", "-m"] and words[2].startswith("citerec."):
        assert (ROOT / (words[2].removeprefix("citerec.").replace(".", "/") + ".py")).is_file()
        return
    if "--config-dir" in words:
        return  # tests/test_extending.py runs these
    scripts = {"train.py": ["train"], "evaluate.py": ["evaluate"], "recommend.py": []}
    for start, word in enumerate(words):
        if word == "citerec" and words[0] in ("citerec", "uvx"):
            words = words[start + 1 :]
            break
        if word in scripts:
            words = scripts[word] + words[start + 1 :]
            break
    else:
        return  # a command of another program
    if words[0] in HELP:
        return
    size = 2 if words[0] in ("data", "model") else 1
    name, arguments = " ".join(words[:size]), [word for word in words[size:] if word not in HELP]
    if name in SETTINGS:
        kind: Any = SETTINGS[name]
        named = not hasattr(kind, "asks") or any(word.startswith("library=") for word in arguments)
        named |= name in ("check", "references", "report")  # of a draft or a file
        if not named and "=" not in arguments[0]:
            arguments[0] = f"library={arguments[0]}"
        if len(words) == size + len(arguments):
            read_arguments(kind, arguments)
        return
    overrides = [
        word
        for word in arguments
        if word != "-m" and not word.startswith("hydra") and "interval(" not in word  # of Optuna
    ]
    parsed = OverridesParser.create().parse_overrides(overrides)
    first = BasicSweeper.split_arguments(parsed, max_batch_size=1)[0][0]
    compose_config(ENTRIES[name], list(first))


@pytest.mark.slow
def test_commands_exist() -> None:
    commands = [(name_of(page), words) for page in WRITTEN for words in command_lines(page)]
    for name, words in commands:
        try:
            check_command(list(words))
        except Exception as error:
            raise AssertionError(f"{name}: {shlex.join(words)}: {error}") from error


def keys(node: object, prefix: str = "") -> Iterator[str]:
    """Yield the dotted keys of nested mappings."""
    if isinstance(node, dict):
        for key, child in node.items():
            yield f"{prefix}{key}"
            yield from keys(child, f"{prefix}{key}.")


def known_keys() -> set[str]:
    """Keys of all commands, with each option of the groups that bring their own."""
    result: set[str] = set()
    groups = {
        "train": ("model", "data", "logger"),
        "evaluate": ("benchmark", "retriever"),
    }
    for entry in ENTRIES.values():
        chosen: list[list[str]] = [[]]
        for group in groups.get(entry, ()):
            chosen += [[f"{group}={path.stem}"] for path in sorted((CONF / group).glob("*.yaml"))]
        if entry == "train":
            chosen.append(["data=papers", "splitting@data.splitting=year_shares"])
        for overrides in chosen:
            result |= set(keys(OmegaConf.to_container(compose_config(entry, overrides))))
    return result | {f"model.mining.{part.name}" for part in fields(MiningSettings)}


@pytest.mark.slow
def test_options_named_in_the_text_exist() -> None:
    known = known_keys()
    for page in WRITTEN:
        text = re.sub(r"^```.*?^```", "", page.read_text("utf-8"), flags=re.DOTALL | re.MULTILINE)
        for code in re.findall(r"`([^`\n]+)`", text):
            for key in re.findall(r"(?<![\w@.+~/])([a-z_]+(?:\.[a-z_0-9]+)+)=", code):
                assert key in known or key.startswith(("retriever.parts.", "hydra.")), f"{page}: {code}"


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_paths_in_backticks_exist(page: Path) -> None:
    folders = {path.name for path in ROOT.iterdir() if path.is_dir()} - {"outputs"}
    text = re.sub(r"^```.*?^```", "", page.read_text("utf-8"), flags=re.DOTALL | re.MULTILINE)
    for name in re.findall(r"`([\w.-]+/[\w./*-]*)`", text):
        pattern = name.rstrip("/").replace("NAME", "*")
        assert name.split("/")[0] not in folders or list(ROOT.glob(pattern)), name


def test_pages_are_short() -> None:
    words = {page: len(page.read_text("utf-8").split()) for page in PAGES}
    assert sum(count for page, count in words.items() if page.is_relative_to(ROOT / "docs")) <= 25_000
    assert words[ROOT / "README.md"] <= 900 and words[ROOT / "library" / "builtin" / "README.md"] <= 900
    for page in (ROOT / "docs" / "results").glob("*.md"):
        text, count = page.read_text("utf-8"), words[page]
        assert count <= 600, page
        assert text.count("\n| --- ") == 1, f"{page}: one table"
        if page.stem not in ("index", "trials"):
            assert text.count("![") == 1 and "```sh" in text, f"{page}: one picture, and its command"


def test_readme_shows_the_commands_of_a_checkout() -> None:
    text = (ROOT / "README.md").read_text("utf-8")
    assert {"make demo", "make test"} <= set(re.findall(r"`(make \w+)`", text))


PACKAGES = (
    *("base", "formats", "datasets", "retrieval", "training", "hatten", "rerank", "library"),
    "evaluation",
)
MODULES = [
    ".".join(path.relative_to(ROOT).with_suffix("").parts)
    for package in PACKAGES
    for path in sorted((ROOT / package).rglob("*.py"))
    if ">>> " in path.read_text("utf-8")
]


@pytest.mark.parametrize("module", MODULES)
def test_examples_in_docstrings(module: str) -> None:
    result = doctest.testmod(importlib.import_module(f"citerec.{module}"))
    assert result.attempted and not result.failed
