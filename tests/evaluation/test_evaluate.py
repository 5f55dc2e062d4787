"""The entry point as users run it: in a process of its own."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def _evaluate(folder: Path, *arguments: str, multirun: bool = False) -> subprocess.CompletedProcess[str]:
    """Run evaluate.py in `folder`, on the source files in `folder`/tiny."""
    command = [sys.executable, str(ROOT / "evaluate.py"), *(["-m"] if multirun else [])]
    data = ["data=custom", "data.dir=tiny", "data.cache_dir=cache"]
    return subprocess.run(
        [*command, *data, *arguments], cwd=folder, capture_output=True, text=True, timeout=120
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["retriever=bm25", "retriver.k1=2"], "retriver"),
        (["retriever=bm24"], "bm24"),
        (["retriever=bm25", "split=dev"], "no split 'dev'; there are: train, val, test"),
    ],
)
def test_what_cannot_be_used_is_one_line_and_code_2(
    tiny_source: Path, arguments: list[str], message: str
) -> None:
    done = _evaluate(tiny_source.parent, "output_dir=out", *arguments)
    assert done.returncode == 2
    assert done.stderr.startswith("error: ") and done.stderr.count("\n") == 1 and message in done.stderr
    assert not (tiny_source.parent / "out" / "metrics.json").exists()


def test_writes_into_the_given_folder_relative_to_the_current_one(tiny_source: Path) -> None:
    done = _evaluate(tiny_source.parent, "retriever=bm25", "output_dir=some/out")
    assert done.returncode == 0, done.stderr
    out = tiny_source.parent / "some" / "out"
    assert json.loads((out / "metrics.json").read_text())["recall@10"] == 1.0
    assert "data.dir=tiny" in (out / "report.md").read_text()
    assert (
        "some/out/report.md" in done.stdout
        and "recall@10 " in done.stdout
        and "recall@2000" not in done.stdout
    )


def test_a_sweep_keeps_the_results_beside_a_job_that_failed(tiny_source: Path) -> None:
    (tiny_source / "train.json").unlink()  # popularity needs it
    done = _evaluate(tiny_source.parent, "retriever=popularity,bm25", "output_dir=out", multirun=True)
    assert done.returncode == 2
    assert done.stderr.startswith("error: 1 of 2 jobs failed; retriever=popularity: ")
    assert done.stderr.count("\n") == 1
    out = tiny_source.parent / "out"
    assert json.loads((out / "1" / "metrics.json").read_text())["mrr"] == 1.0
    assert not (out / "0" / "metrics.json").exists()
    table = [line.split() for line in (out / "summary.md").read_text().splitlines()]
    assert table[4][:5] == ["|", "popularity", "|", "failed", "|"] and table[5][:4] == [
        "|",
        "bm25",
        "|",
        "1.0000",
    ]
    assert "out/1/report.md" in done.stdout and "popularity │ failed" in done.stdout
