"""README as it stands there: its Python runs, and so do the commands of a library."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from citerec.datasets.generate import generate_corpus

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text("utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", README, re.DOTALL | re.MULTILINE)


def run(folder: Path, *arguments: str) -> str:
    """Run Python outside the checkout."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "XDG_CACHE_HOME": str(folder / "cache")}
    done = subprocess.run(
        [sys.executable, *arguments], cwd=folder, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_commands_and_python_of_a_library(tmp_path: Path) -> None:
    shutil.copy(ROOT / "examples" / "library.bib", tmp_path / "papers.bib")
    lines = [line for line in blocks("sh")[1].splitlines() if line.startswith("citerec ")]
    assert [line.split()[1] for line in lines] == ["ask", "search", "build"]
    outputs = [run(tmp_path, "-m", *shlex.split(line)) for line in lines]
    assert re.match(r" *1 +\d+ % Cumulated Gain-Based Evaluation", outputs[0])
    python = [block for block in blocks("python") if "Recommender" in block]
    assert len(python) == 1 and "Adam: A Method for Stochastic Optimization" in run(tmp_path, "-c", python[0])
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    for page in ("ask", "drafts"):
        text = (ROOT / "docs" / "write" / f"{page}.md").read_text("utf-8")
        line, shown = re.findall(r"^```(?:sh)?\n(.*?)^```", text, re.DOTALL | re.MULTILINE)[:2]
        start, percent, rest = re.split(r"(\d+)(?= %)", shown)
        printed = run(tmp_path, "-m", *shlex.split(line))
        now = re.search(rf"{re.escape(start)}(\d+){re.escape(rest)}", printed)
        assert now and abs(int(now[1]) - int(percent)) <= 2, page  # 8-bit weights differ between processors


@pytest.mark.slow
def test_ten_lines_train_search_and_evaluate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    generate_corpus(100, 600, tmp_path / "DIR", seed=0)
    (code,) = (block for block in blocks("python") if "Recommender" not in block)
    train = "StaticModel.train(corpus, rounds=4)"
    assert train in code
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))

    def figures(code: str) -> dict[str, float]:
        capsys.readouterr()
        exec(code, {})
        return eval(capsys.readouterr().out.splitlines()[-1])

    result = figures(code.replace(train, train.replace("4", "1")))  # four rounds take a minute
    assert figures(code.replace(train, 'StaticModel.open("my-model")')) == result
    assert set(result) == {"R@10", "MRR"} and 0 < result["R@10"] <= 1


SMALL = {
    "model=hatten": "embeddings=glove50 model.rounds=1 model.batch.queries=8 model.batch.steps_per_round=2",
    "model=scibert_reranker": "encoder=local encoder.path=TINY model.pairs.max_tokens=48 "
    "model.negatives.count=3 model.queries_per_epoch=8 model.validation.queries=4 "
    "model.validation.candidates=10 model.negatives.depth=50",
    "benchmark=pipeline": "queries=10 candidates=100,500",
}


@pytest.mark.slow
def test_commands_of_a_checkout(tmp_path: Path, tiny_bert: Path) -> None:
    """HAtten on GloVe, the reranker and a sweep over candidates, on the five files of generated papers."""
    generate_corpus(700, 900, tmp_path / "DIR", seed=0)
    (block,) = (block for block in blocks("sh") if block.startswith("python train.py"))
    commands = block.replace("\\\n", "").splitlines()
    for line, small in zip(commands, SMALL.items(), strict=True):
        _, script, *options = shlex.split(line)
        assert small[0] in options
        options += small[1].replace("TINY", str(tiny_bert)).split()
        run(tmp_path, str(ROOT / script), *options)
    out = tmp_path / "outputs" / "pipeline"
    rows = (out / "summary.md").read_text("utf-8").splitlines()
    assert [row.split()[1] for row in rows if row.startswith("| ")][-2:] == [
        "candidates=100",
        "candidates=500",
    ]
    assert (out / "reranking.png").read_bytes().startswith(b"\x89PNG")
