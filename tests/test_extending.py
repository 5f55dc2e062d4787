"""What docs/research/extending.md shows runs outside the checkout, as it stands there."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from citerec.tests.datasets.conftest import write_files

PAGE = (Path(__file__).parents[1] / "docs" / "research" / "extending.md").read_text("utf-8")
SMALL = "data.papers=200 data.contexts=600 model.rounds=1 model.batch.queries=8 model.batch.steps_per_round=2"


@pytest.mark.slow
def test_a_loss_mining_a_retriever_and_a_benchmark_of_another_folder(tmp_path: Path) -> None:
    (code,) = re.findall(r"^```python\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    retriever, benchmark = re.findall(r"^```yaml\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    files = {
        "ours.py": code,
        "conf/retriever/title_words.yaml": retriever,
        "conf/benchmark/recent.yaml": benchmark,
    }
    write_files(tmp_path / "mine", files)
    (commands,) = re.findall(r"^```sh\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    places = os.pathsep.join(["mine", *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, "PYTHONPATH": places, "OMP_NUM_THREADS": "1"}
    for line in commands.replace("\\\n", "").splitlines()[1:]:
        trains = " train " in line
        small = SMALL if trains else SMALL.partition(" model.")[0]
        options = [*shlex.split(line)[1:], *small.split(), f"output_dir=out/{trains}"]
        done = subprocess.run(
            [sys.executable, "-m", "citerec", *options],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
    assert "title_words" in (tmp_path / "out/False/summary.md").read_text("utf-8")
    trained = (tmp_path / "out/True/config.yaml").read_text("utf-8")
    assert "Hardest" in trained and "FromRank" in trained
