"""Two-stage local citation recommendation: finds the paper to cite in a passage.

    from citerec import Recommender, StaticModel, open_corpus

The command `citerec` lists what can be done from a shell.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from citerec.datasets.corpus import Corpus as Corpus
    from citerec.datasets.prepare import open_corpus as open_corpus
    from citerec.datasets.published.downloads import open_data as open_data
    from citerec.hatten.biencoder.model import BiEncoder as BiEncoder
    from citerec.hatten.model import HAtten as HAtten
    from citerec.hatten.nnselect.model import NNSelect as NNSelect
    from citerec.hatten.static.model import StaticModel as StaticModel
    from citerec.library.ask.recommender import Recommender as Recommender
    from citerec.rerank.cross_encoder.reranker import Reranker as Reranker
    from citerec.rerank.ranker.model import Ranker as Ranker
    from citerec.rerank.ranker.model import RankingModel as RankingModel
    from citerec.retrieval.lexical.bm25 import BM25 as BM25
    from citerec.training.loop import TrainingRun as TrainingRun

_PLACES = {
    "Corpus": "datasets.corpus",
    "open_corpus": "datasets.prepare",
    "open_data": "datasets.published.downloads",
    "BM25": "retrieval.lexical.bm25",
    "TrainingRun": "training.loop",
    "HAtten": "hatten.model",
    "StaticModel": "hatten.static.model",
    "NNSelect": "hatten.nnselect.model",
    "BiEncoder": "hatten.biencoder.model",
    "Ranker": "rerank.ranker.model",
    "RankingModel": "rerank.ranker.model",
    "Reranker": "rerank.cross_encoder.reranker",
    "Recommender": "library.ask.recommender",
}
__all__ = list(_PLACES)

# OpenMP threads that spin while they wait make torch several times slower on a busy machine. libgomp reads
# this variable when torch loads it.
LATE = "torch" in sys.modules and not {"GOMP_SPINCOUNT", "OMP_WAIT_POLICY"} & os.environ.keys()
"""Whether torch was imported before citerec, so that its threads spin (training.loop)."""
if "OMP_WAIT_POLICY" not in os.environ:
    os.environ.setdefault("GOMP_SPINCOUNT", "1000")

# A script's folder comes first on sys.path, and so does the current folder for `python -m`. In a checkout,
# our folder `datasets` would then hide Hugging Face's package.
_HERE = Path(__file__).resolve().parent
sys.path[:] = [entry for entry in sys.path if Path(entry).resolve() != _HERE]


def __getattr__(name: str) -> Any:
    """Import public names on first use, so that a question does not load what only training needs."""
    if name == "__version__":
        return import_module("importlib.metadata").version("citerec")
    if name in _PLACES:
        return getattr(import_module(f"citerec.{_PLACES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
