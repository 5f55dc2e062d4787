"""Makes the built-in model (library/builtin/): python -m citerec.library.builtin static=... data=[...]

It consists of a static model compressed by hatten.compress, and of a ranker fitted to lists of all data sets,
also with dense models that were not trained on them. `make builtin` trains all of it.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from pathlib import Path

from citerec.datasets.arguments import run_command
from citerec.datasets.errors import InputError, one_line_errors
from citerec.datasets.prepare import open_corpus
from citerec.datasets.settings import Settings
from citerec.hatten.trained import open_static, static_retriever
from citerec.library.models import BUILT_IN, encoder_parts
from citerec.rerank.linear import TrainingLists, model_hash
from citerec.rerank.ranker import Ranker, RankingModel
from citerec.rerank.ranker_training import fit_calibrated, read_small, read_variants
from citerec.rerank.settings import RankerSettings
from citerec.retrieval.base import folder_bytes

LARGEST = 12_000_000
"""Maximum size of the model in bytes."""
SPLITS = ("train", "val", "val_named")
QUERIES, SMALL_QUERIES = 200, 1000
"""Queries of each variant of a data set, and of its small libraries."""


@dataclass(frozen=True, kw_only=True)
class BuiltInSettings(Settings):
    """Make the built-in model."""

    static: str
    """static model, written by hatten.compress (e.g. outputs/builtin/static)"""
    data: tuple[str, ...]
    """folders as in data=custom; contexts that keep names are read from SPLIT_named, if present"""
    others: tuple[str, ...]
    """static model trained without each data set, or none (e.g. [outputs/a,none,outputs/b])"""
    encoder: str = ""
    """make the ranker of builtin+ENCODER, fitted to small libraries only, as encoding large ones
    takes long; empty: the built-in model itself"""
    cache_dir: str = ".cache"
    """cache for prepared data"""
    output: str = str(BUILT_IN)
    """output folder"""


def make(settings: BuiltInSettings) -> None:
    """Fit the ranker, save both models and print their size."""
    if len(settings.others) != len(settings.data):
        raise InputError(f"others: has {len(settings.others)} models for {len(settings.data)} data sets")
    folder, static = Path(settings.output), open_static(settings.static)
    given = RankerSettings(queries=QUERIES, variant_queries=QUERIES, small_queries=SMALL_QUERIES, folds=2)
    parts, corpora = [], {}
    for path, other in zip(settings.data, settings.others, strict=True):
        named = [split for split in SPLITS if (Path(path) / f"{split}.json").is_file()]
        options = {"candidates": "all", "field": "authors", "cache_dir": settings.cache_dir}
        corpus = open_corpus(dir=path, splits=named, **options)
        vectors = Path(settings.cache_dir) / "vectors" / corpus.fingerprint
        encoders = encoder_parts(settings.encoder, vectors)
        ranker = Ranker.over(static_retriever(settings.static), more=encoders)
        domain = replace(given, out_of_domain_checkpoint=None if other == "none" else other)
        parts.append((read_small if settings.encoder else read_variants)(ranker, corpus, domain, 0))
        corpora[corpus.name] = corpus.fingerprint
    lists = TrainingLists.concat(parts)
    model, confidence, _ = fit_calibrated(given, lists, 0)
    about = {
        "data": ", ".join(corpora),
        "corpus": ", ".join(corpora.values()),
        "split": given.split,
        "lists": len(lists),
        "queries": [QUERIES, SMALL_QUERIES],
        "hash": model_hash(model, confidence.parameters),
    }
    if not settings.encoder:
        static.save(folder / static.folder)
    RankingModel(model, confidence, about).save(folder / settings.encoder / RankingModel.folder)
    size = folder_bytes(folder)
    print(f"{folder}: {size / 1e6:.1f} MB, {len(static.vocabulary):,} words")
    if size > LARGEST:
        raise InputError(f"{folder}: more than {LARGEST / 1e6:.0f} MB; compress the model to fewer words")


@one_line_errors
def main() -> None:
    run_command("library.builtin", BuiltInSettings, make, sys.argv[1:])


if __name__ == "__main__":
    main()
