"""What commands say: one line that names the option and what to do, before anything slow; and their help."""

from __future__ import annotations

import logging
import runpy
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hydra.errors import MissingConfigException

from datasets.errors import user_line

ROOT = Path(__file__).parents[1]
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Run]:
    """`python COMMAND` in this process and an empty folder: (code, output, errors)."""

    def run_(name: str, *arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr("sys.argv", [name, *arguments])
        code: Any = 0
        try:
            if name.endswith(".py"):
                runpy.run_path(str(ROOT / name), run_name="__main__")
            else:
                runpy.run_module(name, run_name="__main__")
        except SystemExit as end:
            code = end.code or 0
        return (int(code), *capsys.readouterr())

    monkeypatch.chdir(tmp_path)
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level  # Hydra sets its own
    yield run_
    root.handlers[:] = handlers
    root.setLevel(level)


@pytest.mark.parametrize(
    ("command", "line"),
    [
        ("train.py model.round=3", "model.round: there is no such option; did you mean model.rounds?"),
        ("train.py experimnt=paper", "experimnt: there is no such option; did you mean experiment?"),
        ("train.py model=haten", "model=haten: there is no such choice; did you mean model=hatten?"),
        ("train.py trainer=tpus", "trainer=tpus: choose cpu or gpu"),
        (
            "evaluate.py retriever=run",
            "retriever.files must be given, as retriever.files=[val/",
        ),
        (
            "datasets.build output=out",
            "source must be given, as source=[papers.jsonl.gz,texts/]: a file",
        ),
        (
            "datasets.build source=a output=b splitting=year",
            "splitting.train must be given, as splitting.train=[null,2018]: years of the citing papers",
        ),
        ("datasets.inspect data=papers", "data.papers must be given, as data.papers=papers.jsonl.gz: papers"),
    ],
)
def test_what_is_wrong_with_the_options_is_one_line_that_names_the_option(
    run: Run, command: str, line: str
) -> None:
    code, _, errors = run(*command.split())
    assert code == 2 and errors.startswith(f"error: {line}") and errors.count("\n") == 1


@pytest.mark.parametrize("name", ["joblib", "submitit_slurm"])
def test_a_launcher_that_is_not_installed_names_its_extra(name: str) -> None:
    extra = name.partition("_")[0]
    error = MissingConfigException("", f"hydra/launcher/{name}", ["basic"])
    assert (
        user_line(error)
        == f'hydra/launcher={name} needs the extra {extra}: make install EXTRAS="dev {extra}"'
    )


@pytest.mark.parametrize("command", ["train.py", "evaluate.py", "-m retrieval.embed output=out"])
def test_what_is_missing_is_asked_for_before_slow_imports(command: str) -> None:
    name, *arguments = command.removeprefix("-m ").split()
    runner = "run_path" if name.endswith(".py") else "run_module"
    code = (
        f"import runpy, sys\nsys.argv = {[name, 'data=custom', *arguments]}\n"
        f"try: runpy.{runner}('{name}', run_name='__main__')\n"
        "except SystemExit: print(sorted({'torch', 'transformers', 'faiss', 'numba'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.stdout == "[]\n"
    assert done.stderr.startswith("error: data.dir must be given, as data.dir=my_corpus: folder, or URL")
