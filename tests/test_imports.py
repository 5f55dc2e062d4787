"""Rules of the layout: packages import only in one direction, folders stay small, another package `datasets`
can be imported beside ours.
"""

from __future__ import annotations

import ast
import os
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[1]
ORDER = ["base", "formats", "datasets", "retrieval", "training", "hatten", "rerank", "evaluation", "library"]
"""Each package imports only earlier ones; entry points and interop may import all."""
LIBRARY = [
    "__init__",
    "settings",
    "sources",
    "evidence",
    "papers",
    "references",
    "ask",
    "drafts",
    "enrich",
    "editor",
    "serve",
]
LIBRARY += ["commands", "benchmark", "builtin"]
"""Packages of library/, each of which imports only earlier ones."""
ENTRY = "train, evaluate, recommend, interop"
ROOMS = {
    "datasets": ["data", "splitting", "count", "inspect"],
    "retrieval": ["encoder"],
    "training": ["trainer", "logger"],
    "hatten": ["embeddings"],
    "rerank": ["retriever", "model", "tuned", "recipe"],
    "evaluation": ["benchmark", "sweep"],
    "library": ["benchmark/drafts"],
    ENTRY: ["train", "evaluate", "experiment", "hydra/callbacks"],
}
"""Config groups and commands by the last package whose classes and groups they may name; others name none."""


@pytest.mark.parametrize("how", ["script", "module", "code"])
def test_another_datasets_is_imported_beside_ours(tmp_path: Path, how: str) -> None:
    (tmp_path / "datasets.py").write_text("PLACE = 'the other'\n")
    code = "import citerec, datasets, citerec.base.errors\nprint(datasets.PLACE)\n"
    arguments = ["-c", code]
    if how != "code":
        script = ROOT / "outputs" / f"import_{os.getpid()}.py"  # any folder of the checkout
        script.parent.mkdir(exist_ok=True)
        script.write_text(f"import sys; sys.path.insert(0, {str(ROOT)!r})\n{code}")
        arguments = [str(script)] if how == "script" else ["-m", f"outputs.{script.stem}"]
    try:
        environment = {**os.environ, "PYTHONPATH": f"{os.environ.get('PYTHONPATH', '')}:{tmp_path}"}
        command = [sys.executable, *arguments]
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    finally:
        if how != "code":
            script.unlink()
    assert done.stdout == "the other\n", done.stderr


def test_every_package_is_in_the_wheel() -> None:
    listed = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["setuptools"]["packages"]
    result = {
        path.parent.relative_to(ROOT)
        for name in (*ORDER, "interop")
        for path in (ROOT / name).rglob("__init__.py")
    }
    assert sorted(listed) == sorted(["citerec", *(f"citerec.{'.'.join(path.parts)}" for path in result)])


def imported_modules(path: Path) -> Iterator[str]:
    """Yield the modules that a file imports, also in functions and under TYPE_CHECKING."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"), str(path))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def package_of(dotted: str) -> str:
    """Return the folder of the checkout in a dotted path, such as hatten; empty for other packages.

    >>> package_of("citerec.hatten.encoder.Encoder"), package_of("hatten.encoder")
    ('hatten', '')
    """
    package, *parts = dotted.split(".")
    return parts[0] if package == "citerec" and parts else ""


def wrong_directions(root: Path) -> list[str]:
    """Return `FILE imports MODULE` for imports against ORDER or of an entry point."""
    wrong = []
    for place, package in enumerate(ORDER):
        barred = {*ORDER[place + 1 :], "train", "evaluate", "recommend", "tests", "speed"}
        for path in sorted((root / package).rglob("*.py")):
            names = [name for name in imported_modules(path) if package_of(name) in barred]
            wrong += [f"{path.relative_to(root)} imports {name}" for name in names]
    return wrong


def imported_files(root: Path) -> dict[str, set[str]]:
    """Return the files of ORDER that each file of a checkout imports."""
    files = {str(path.relative_to(root)) for name in ORDER for path in (root / name).rglob("*.py")}
    result: dict[str, set[str]] = {}
    for file in sorted(files):
        result[file] = set()
        for name in imported_modules(root / file):
            parts = name.split(".")[1:] if package_of(name) else []
            places = ["/".join(parts[:size]) for size in (len(parts), len(parts) - 1)] if parts else []
            named = (f for place in places for f in (f"{place}.py", f"{place}/__init__.py") if f in files)
            result[file].update([*named][:1])
    return result


def wrong_rooms(root: Path) -> list[str]:
    """Return `FILE imports FILE` for imports of a later room of library/."""

    def room(file: str) -> int:
        name = file.split("/")[1].removesuffix(".py")
        return LIBRARY.index("settings" if name == "limits" else name)

    files = {file: names for file, names in imported_files(root).items() if file.startswith("library/")}
    return [
        f"{file} imports {other}"
        for file, names in files.items()
        for other in sorted(names & files.keys())
        if room(other) > room(file)
    ]


def circles(root: Path) -> list[list[str]]:
    """Return the files that import each other, also through others: each group once."""
    imports = imported_files(root)

    def reached(file: str) -> set[str]:
        seen, left = set[str](), [file]
        while left:
            more = imports[left.pop()] - seen
            seen |= more
            left += more
        return seen

    reach = {file: reached(file) for file in imports}
    groups = {
        tuple(sorted(o for o in reach[file] if file in reach[o])) for file in reach if file in reach[file]
    }
    return sorted(map(list, groups))


def group_of(config: str) -> str:
    """Return the group or command of a file in conf/; some are named by file."""
    whole = (name for name in ("hydra/callbacks", "benchmark/drafts") if config.startswith(name))
    return next(whole, config.split("/")[0])


def named_targets(content: Any) -> Iterator[str]:
    """Yield the dotted paths into our packages and the groups in `defaults` of a YAML file."""
    if isinstance(content, dict):
        for default in content.get("defaults", []):
            group = (next(iter(default)) if isinstance(default, dict) else default).split("@")[0]
            group = group_of(group.removeprefix("optional ").removeprefix("override ").lstrip("/"))
            if any(group in groups for groups in ROOMS.values()):
                yield group
        content = [value for key, value in content.items() if key != "defaults"]
    if isinstance(content, list):
        for value in content:
            yield from named_targets(value)
    elif isinstance(content, str) and package_of(content) in ORDER:
        yield content


def wrong_in_conf(conf: Path) -> list[str]:
    """Return `FILE names WHAT` for classes and groups of a package later than the file's own."""
    order = [*ORDER, ENTRY]
    places = {group: order.index(room) for room, groups in ROOMS.items() for group in groups}
    places |= {room: place for place, room in enumerate(order)}
    wrong = []
    for path in sorted(conf.rglob("*.yaml")):
        place = path.relative_to(conf)
        own = places.get(group_of(str(place.with_suffix(""))), -1)
        names = [
            name
            for name in named_targets(yaml.safe_load(path.read_text()))
            if places[package_of(name) or name] > own
        ]
        wrong += [f"{place} names {name}" for name in names]
    return wrong


def test_imports_point_one_way() -> None:
    assert wrong_directions(ROOT) == []
    assert wrong_in_conf(ROOT / "conf") == []


def test_no_room_of_the_library_imports_a_later_one() -> None:
    assert wrong_rooms(ROOT) == []


def test_no_files_import_each_other() -> None:
    assert circles(ROOT) == []


def test_no_folder_has_more_than_twelve_modules() -> None:
    folders = {path.parent for name in ORDER for path in (ROOT / name).rglob("*.py")}
    counts = {folder: sum(path.name != "__init__.py" for path in folder.glob("*.py")) for folder in folders}
    assert {str(folder): count for folder, count in counts.items() if count > 12} == {}


SMALL = ["data.papers=120", "data.contexts=300"]
SHORT = ["model.rounds=1", "model.batch.steps_per_round=1", "model.encoder.hidden=8"]
ARRAYS = {"numpy", "onnxruntime"}
OTHERS = {"pyarrow", "scipy", "faiss", "torch", "fastapi", "mcp", "pygls", "lsprotocol", "huggingface_hub"}
OTHERS |= {"hydra", "omegaconf", "transformers", "lightning", "lightning_utilities", "pandas", "sklearn"}


def loaded(program: str, folder: Path, *options: str) -> dict[str, str]:
    """Run the main function of a module in a new process; return the modules it loads, and their files."""
    code = f"""
import sys
from citerec.{program} import main
sys.argv = {[program, *options]!r}
try:
    main()
except SystemExit as error:
    assert not error.code, error
files = [f"{{name}}={{getattr(module, '__file__', None) or ''}}" for name, module in sys.modules.items()]
print("loaded:", *files, sep="\\n")
"""
    environment = {**os.environ, "CITATION_CACHE": str(folder / "cache"), "OMP_NUM_THREADS": "1"}
    environment |= {"HOME": str(folder), "XDG_CACHE_HOME": str(folder)}
    done = subprocess.run(
        [sys.executable, "-P", "-c", code], cwd=folder, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return dict(line.split("=", 1) for line in done.stdout.partition("loaded:\n")[2].splitlines())


@pytest.mark.parametrize(
    ("words", "without"),
    [(["--help"], ARRAYS | OTHERS), (["check", str(ROOT / "examples" / "draft.tex")], ARRAYS | OTHERS)],
)
def test_a_command_imports_no_package_that_others_need(
    words: list[str], without: set[str], tmp_path: Path
) -> None:
    assert not without & loaded("__main__", tmp_path, *words).keys()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("program", "needed", "most", "options"),
    [
        (
            "__main__",
            "library/ask/recommender",
            80,
            ["ask", str(ROOT / "examples" / "library.bib"), "Small worlds [CITE]."],
        ),
        ("evaluate", "retrieval/lexical/bm25", 42, ["retriever=bm25", "data=demo", *SMALL, "output_dir=out"]),
        (
            "train",
            "hatten/training/rounds",
            60,
            ["model=hatten", "data=demo", *SMALL, *SHORT, "output_dir=out"],
        ),
    ],
)
def test_a_command_loads_few_of_our_modules(
    program: str, needed: str, most: int, options: list[str], tmp_path: Path
) -> None:
    if options[0] == "ask":  # the first question builds the library
        assert not OTHERS & loaded(program, tmp_path, *options).keys()
    modules = loaded(program, tmp_path, *options)
    ours = {file for name, file in modules.items() if name.startswith("citerec.")}
    files = sorted(str(Path(file).resolve()) for file in ours if file and not file.endswith("__init__.py"))
    assert str(ROOT / f"{needed}.py") in files
    assert len(files) <= most, (len(files), files)
