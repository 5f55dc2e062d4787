"""Import rules: our `datasets` shadows Hugging Face's, and packages import only in one direction."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[1]
ORDER = ["datasets", "retrieval", "training", "hatten", "rerank", "library", "evaluation"]
"""Each package imports only earlier ones; entry points may import all."""
ENTRY = "train, evaluate, recommend"
ROOMS = {
    "datasets": ["data", "splitting", "build", "convert", "count", "export", "generate", "inspect"],
    "retrieval": ["encoder", "index", "profile", "embed"],
    "training": ["trainer", "logger", "callbacks"],
    "hatten": ["embeddings", "for_data", "compress"],
    "rerank": ["retriever", "model", "tuned", "recipe"],
    "evaluation": ["benchmark", "sweep", "build_mdcr"],
    ENTRY: ["train", "evaluate", "experiment", "hydra/callbacks"],
}
"""Config groups and commands by the last package whose classes and groups they may name; others name none."""


@pytest.fixture
def other_datasets(tmp_path: Path) -> Path:
    """A folder that looks like an environment with Hugging Face datasets installed."""
    package = tmp_path / "datasets"
    package.mkdir()
    (package / "__init__.py").write_text("raise ImportError('the other datasets was imported')\n")
    metadata = tmp_path / "datasets-4.0.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: datasets\nVersion: 4.0.0\n")
    return tmp_path


def run_python(*arguments: str, path: Path, folder: Path = ROOT) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(path), "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, *arguments]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300)


@pytest.mark.slow
def test_our_datasets_is_imported_and_heavy_libraries_still_work(other_datasets: Path) -> None:
    code = """
import datasets, sys
assert not {"torch", "numpy", "pyarrow"} & set(sys.modules), "importing datasets must stay light"
import datasets.errors
from transformers import AutoModel, AutoTokenizer
import pytorch_lightning
assert callable(AutoModel.from_pretrained) and callable(pytorch_lightning.Trainer)
print(datasets.__file__, sys.modules["datasets"] is datasets)
"""
    done = run_python("-c", code, path=other_datasets)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [str(ROOT / "datasets" / "__init__.py"), "True"]


@pytest.mark.parametrize("how", ["script", "module", "pytest"])
def test_our_datasets_is_imported_however_python_is_started(other_datasets: Path, how: str) -> None:
    code = f"import datasets\nassert datasets.__file__.startswith({str(ROOT)!r}), datasets.__file__\n"
    if how == "script":  # like `python train.py`: the script's folder comes first
        script = other_datasets / "root" / "script.py"
        script.parent.mkdir()
        (script.parent / "datasets").symlink_to(ROOT / "datasets")
        script.write_text(code.replace(str(ROOT), str(script.parent)))
        done = run_python(str(script), path=other_datasets, folder=other_datasets)
    elif how == "module":
        done = run_python("-m", "datasets.errors", path=other_datasets)
    else:
        test = other_datasets / "test_it.py"
        test.write_text("def test_it():\n    " + code.replace("\n", "\n    ").strip() + "\n")
        options = ["-q", "-p", "no:cacheprovider", "--rootdir", str(ROOT), "-c", str(ROOT / "pyproject.toml")]
        done = run_python("-m", "pytest", *options, str(test), path=other_datasets)
    assert done.returncode == 0, done.stdout + done.stderr


def imported_modules(path: Path) -> Iterator[str]:
    """Yield the modules that a file imports, also in functions and under TYPE_CHECKING."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"), str(path))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def wrong_directions(root: Path) -> list[str]:
    """Return `FILE imports MODULE` for imports against ORDER or of an entry point."""
    wrong = []
    for place, package in enumerate(ORDER):
        barred = {*ORDER[place + 1 :], "train", "evaluate", "recommend", "tests", "benchmarks"}
        for path in sorted((root / package).rglob("*.py")):
            names = [name for name in imported_modules(path) if name.split(".")[0] in barred]
            wrong += [f"{path.relative_to(root)} imports {name}" for name in names]
    return wrong


def group_of(config: str) -> str:
    """Return the group or command of a file in conf/; hydra/callbacks is also ours."""
    return "hydra/callbacks" if config.startswith("hydra/callbacks") else config.split("/")[0]


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
    elif isinstance(content, str) and re.fullmatch(rf"({'|'.join(ORDER)})(\.\w+)+", content):
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
            if places[name.split(".")[0]] > own
        ]
        wrong += [f"{place} names {name}" for name in names]
    return wrong


def test_imports_point_one_way() -> None:
    assert wrong_directions(ROOT) == []
    assert wrong_in_conf(ROOT / "conf") == []


def test_a_configuration_against_the_direction_is_found(tmp_path: Path) -> None:
    for name, text in {
        "data/late": "_target_: evaluation.protocol.Protocol",
        "model/new": "defaults: [/retriever, override /benchmark: mdcr]\ntrain: rerank.train.train",
        "train": "loss: [{_target_: evaluation.measures.Measures}]",
    }.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / f"{name}.yaml").write_text(text)
    assert wrong_in_conf(tmp_path) == [
        "data/late.yaml names evaluation.protocol.Protocol",
        "model/new.yaml names benchmark",
    ]


def test_an_import_against_the_direction_is_found(tmp_path: Path) -> None:
    for package, line in (
        ("datasets", "def late():\n    from hatten.encoder import Encoder"),
        ("retrieval", "import datasets, numpy"),
        ("hatten", "import evaluation.protocol as runs"),
        ("evaluation", "from hatten import vectors"),
        ("rerank", "from train import main"),
    ):
        (tmp_path / package).mkdir()
        (tmp_path / package / "module.py").write_text(line + "\n")
    assert wrong_directions(tmp_path) == [
        "datasets/module.py imports hatten.encoder.Encoder",
        "hatten/module.py imports evaluation.protocol",
        "rerank/module.py imports train.main",
    ]


@pytest.mark.parametrize(
    "line", ["import evaluate", "import sentence_transformers", "from transformers import Trainer"]
)
def test_importing_users_of_the_other_datasets_is_banned(line: str) -> None:
    check = "ruff check --select TID251 --stdin-filename hatten/new.py -"
    command = [sys.executable, "-m", *check.split()]
    done = subprocess.run(command, cwd=ROOT, input=line + "\n", capture_output=True, text=True)
    assert done.returncode == 1 and "TID251" in done.stdout
