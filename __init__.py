"""Two-stage local citation recommendation: finds the paper to cite in a passage.

    from citerec import Recommender, StaticModel, open_corpus

The command `citerec` lists what can be done from a shell.
"""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from citerec.datasets.corpus import Corpus as Corpus
    from citerec.datasets.prepare import open_corpus as open_corpus
    from citerec.hatten.biencoder import BiEncoder as BiEncoder
    from citerec.hatten.model import HAtten as HAtten
    from citerec.hatten.nnselect import NNSelect as NNSelect
    from citerec.hatten.static import StaticModel as StaticModel
    from citerec.library.recommender import Recommender as Recommender
    from citerec.rerank.ranker import Ranker as Ranker
    from citerec.rerank.ranker import RankingModel as RankingModel
    from citerec.rerank.reranker import Reranker as Reranker
    from citerec.retrieval.bm25 import BM25 as BM25
    from citerec.training.loop import TrainingRun as TrainingRun

_PLACES = {
    "Corpus": "datasets.corpus",
    "open_corpus": "datasets.prepare",
    "BM25": "retrieval.bm25",
    "TrainingRun": "training.loop",
    "HAtten": "hatten.model",
    "StaticModel": "hatten.static",
    "NNSelect": "hatten.nnselect",
    "BiEncoder": "hatten.biencoder",
    "Ranker": "rerank.ranker",
    "RankingModel": "rerank.ranker",
    "Reranker": "rerank.reranker",
    "Recommender": "library.recommender",
}

__all__ = [
    "BM25",
    "BiEncoder",
    "Corpus",
    "HAtten",
    "NNSelect",
    "Ranker",
    "RankingModel",
    "Recommender",
    "Reranker",
    "StaticModel",
    "TrainingRun",
    "open_corpus",
]

# A script's folder comes first on sys.path, and so does the current folder for `python -m`. In a checkout,
# our folder `datasets` would then hide Hugging Face's package.
_HERE = Path(__file__).resolve().parent
sys.path[:] = [entry for entry in sys.path if Path(entry).resolve() != _HERE]


def __getattr__(name: str) -> Any:
    """Import public names on first use, so that a question does not load what only training needs."""
    if name in _PLACES:
        return getattr(import_module(f"citerec.{_PLACES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
