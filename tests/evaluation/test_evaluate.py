"""The evaluate.py entry point, once in a subprocess and otherwise in this process."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from citerec.tests.conftest import Done
from citerec.tests.evaluation.conftest import ROOT

DATA = ["data=custom", "data.dir=tiny", "data.cache_dir=cache"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["retriever=bm25", "retriver.k1=2"], "retriver"),
        (["retriever=bm24"], "bm24"),
        (["retriever=bm25", "split=dev"], "no split 'dev'; choose from train, val, test"),
    ],
)
def test_unusable_input_is_one_line_and_code_2(
    tiny_source: Path, evaluate: Callable[..., Done], arguments: list[str], message: str
) -> None:
    done = evaluate(*DATA, "output_dir=out", *arguments)
    assert done.code == 2
    assert done.err.startswith("error: ") and done.err.count("\n") == 1 and message in done.err
    assert not (tiny_source.parent / "out" / "metrics.json").exists()


@pytest.mark.slow
def test_output_dir_is_relative_to_the_current_folder(tiny_source: Path) -> None:
    command = [sys.executable, str(ROOT / "evaluate.py"), *DATA, "retriever=bm25", "output_dir=some/out"]
    done = subprocess.run(command, cwd=tiny_source.parent, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    out = tiny_source.parent / "some" / "out"
    assert json.loads((out / "metrics.json").read_text())["recall@10"] == 1.0
    assert "data.dir=tiny" in (out / "report.md").read_text()
    assert "some/out/report.md" in done.stdout and "recall@10 " in done.stdout
    assert "recall@2000" not in done.stdout  # there are 11 candidates
