"""The first ten papers are the same with other instructions of the processor, and more threads."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from citerec.library.recommender import Recommender
from citerec.recommend import run

SOURCE = Path(__file__).parents[2] / "examples" / "library.bib"
QUESTIONS = [
    "Adam [CITE] is an optimiser",
    "Passages are ranked by the words of a query [CITE] before networks read them.",
    "Nearest neighbours are found by walking a graph of small worlds [CITE].",
]
ASK = """
import json, sys
from citerec.library.recommender import Recommender
found = Recommender.open(sys.argv[1])
print(json.dumps([[paper.id for paper in found.recommend(text, k=10)] for text in sys.argv[2:]]))
"""
WIDE = "AVX512F AVX512CD AVX512_SKX AVX512_CLX AVX512_CNL AVX512_ICL AVX512_SPR"
AVX2 = {
    "FAISS_OPT_LEVEL": "avx2",
    "NPY_DISABLE_CPU_FEATURES": WIDE,
    "NUMBA_CPU_NAME": "haswell",
    "ONEDNN_MAX_CPU_ISA": "AVX2",
}


@pytest.mark.slow
@pytest.mark.parametrize("options", [(), ("storage=disk", "shards=2", "workers=1")], ids=["memory", "disk"])
def test_the_first_papers_are_the_same(options: tuple[str, ...], tmp_path: Path) -> None:
    run(["build", f"library={tmp_path / 'mine'}", f"source={SOURCE}", *options])
    found = Recommender.open(tmp_path / "mine")
    expected = [[paper.id for paper in found.recommend(text, k=10)] for text in QUESTIONS]
    assert all(len(one) == 10 for one in expected)
    for threads in ("1", "2"):
        for instructions in ({}, AVX2):
            done = subprocess.run(
                [sys.executable, "-W", "ignore", "-c", ASK, str(tmp_path / "mine"), *QUESTIONS],
                env={**os.environ, "OMP_NUM_THREADS": threads, **instructions},
                capture_output=True,
                text=True,
            )
            assert done.returncode == 0, done.stderr
            assert json.loads(done.stdout) == expected, (threads, instructions)
