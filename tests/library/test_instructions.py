"""The first ten papers are the same in memory and on disk, with AVX2 in Faiss, NumPy, Numba and oneDNN, and
with more threads.

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
found = map(Recommender.open, sys.argv[1:3])
answers = [[one.recommend(text, k=10) for text in sys.argv[3:]] for one in found]
print(json.dumps([[[paper.id for paper in papers] for papers in of] for of in answers]))
"""
WIDE = "AVX512F AVX512CD AVX512_SKX AVX512_CLX AVX512_CNL AVX512_ICL AVX512_SPR"
AVX2 = {
    "FAISS_OPT_LEVEL": "avx2",
    "NPY_DISABLE_CPU_FEATURES": WIDE,
    "NUMBA_CPU_NAME": "haswell",
    "ONEDNN_MAX_CPU_ISA": "AVX2",
}


@pytest.mark.slow
def test_the_first_papers_are_the_same(tmp_path: Path) -> None:
    places, expected = [str(tmp_path / name) for name in ("memory", "disk")], []
    for place, options in zip(places, ((), ("storage=disk", "shards=2", "workers=1")), strict=True):
        run(["build", f"library={place}", f"source={SOURCE}", *options])
        found = Recommender.open(Path(place))
        expected.append([[paper.id for paper in found.recommend(text, k=10)] for text in QUESTIONS])
    assert expected[0] == expected[1] and all(len(one) == 10 for one in expected[0])
    for threads, instructions in (("2", {}), ("1", AVX2)):
        done = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", ASK, *places, *QUESTIONS],
            env={**os.environ, "OMP_NUM_THREADS": threads, **instructions},
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout) == expected, (threads, instructions)
