"""The first ten papers are the same with AVX2 in Faiss, NumPy, Numba and oneDNN, and with more threads.

ONNX Runtime, which runs the 8-bit encoder, has no switch for its instructions: nothing is shown about these.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from citerec.library.ask.recommender import Recommender
from citerec.recommend import run

SOURCE = Path(__file__).parents[2] / "examples" / "library.bib"
QUESTIONS = [
    "Adam [CITE] is an optimiser",
    "Passages are ranked by the words of a query [CITE] before networks read them.",
    "Nearest neighbours are found by walking a graph of small worlds [CITE].",
]
ASK = """
import json, sys
from citerec.library.ask.recommender import Recommender
recommender = Recommender.open(sys.argv[1])
answers = [recommender.recommend(text, k=10) for text in sys.argv[2:]]
print(json.dumps([[paper.id for paper in papers] for papers in answers]))
"""
WIDE = "AVX512F AVX512CD AVX512_SKX AVX512_CLX AVX512_CNL AVX512_ICL AVX512_SPR"
AVX2 = {
    "FAISS_OPT_LEVEL": "avx2",
    "NPY_DISABLE_CPU_FEATURES": WIDE,
    "ONEDNN_MAX_CPU_ISA": "AVX2",
}


@pytest.mark.slow
def test_the_first_papers_are_the_same(tmp_path: Path) -> None:
    place = str(tmp_path / "mine")
    run(["build", f"library={place}", f"source={SOURCE}"])
    recommender = Recommender.open(Path(place))
    expected = [[paper.id for paper in recommender.recommend(text, k=10)] for text in QUESTIONS]
    assert all(len(papers) == 10 for papers in expected)
    for threads, instructions in (("2", {}), ("1", AVX2)):
        done = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", ASK, place, *QUESTIONS],
            env={**os.environ, "OMP_NUM_THREADS": threads, **instructions},
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout) == expected, (threads, instructions)
