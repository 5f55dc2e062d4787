"""Training a ranker: the lists that its models are fitted to, for corpora of each kind."""

from __future__ import annotations

import copy
import json
import logging
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from citerec.datasets.columns import Ragged, offsets_of
from citerec.datasets.corpus import Corpus, Split
from citerec.datasets.errors import InputError
from citerec.datasets.files import write_text
from citerec.datasets.progress import count_progress
from citerec.datasets.records import TRAIN
from citerec.hatten.trained import trained_retriever
from citerec.rerank.features import is_listed, standardise
from citerec.rerank.linear import (
    DRAFT,
    IN_DOMAIN,
    NO_CONTEXTS,
    OUT_OF_DOMAIN,
    LinearModel,
    Lists,
    cross_fit,
    fit_ranker,
    group_of,
    models_hash,
)
from citerec.rerank.settings import RankerSettings
from citerec.retrieval.base import Ranking, Retriever
from citerec.retrieval.queries import Queries, cited_elsewhere
from citerec.training.loop import TrainingRun
from citerec.training.rounds import METRICS

log = logging.getLogger(__name__)

QUERIES = 32
"""Queries read at a time."""


class Ranker(Protocol):
    """What training needs of a ranker (rerank.ranker.Ranker), which is not yet indexed."""

    all_parts: dict[str, Retriever]
    depth: int
    shared: Any

    @property
    def corpus(self) -> Corpus: ...
    def settings(self) -> dict[str, Any]: ...
    def with_dense(self, dense: Retriever) -> Self: ...
    def index(self, corpus: Corpus) -> Self: ...
    def open(self, corpus: Corpus, folder: str | Path | None) -> None: ...
    def prefetch(self, queries: Queries, depth: int) -> list[Ranking]: ...
    def merge_candidates(self, found: list[Ranking]) -> NDArray[np.int32]: ...
    def columns(self, queries: Queries, papers: NDArray[np.int32]) -> dict[str, NDArray[np.floating]]: ...


def train_models(
    ranker: Ranker,
    corpus: Corpus,
    settings: RankerSettings,
    run: TrainingRun,
    index_dir: str | Path | None = None,
) -> tuple[dict[str, LinearModel], dict[str, Any]]:
    """Fit the models of a ranker that is not yet indexed; returns them and how they were trained.

    The measures are also written to metrics.json.
    """
    start = time.monotonic()
    models: dict[str, LinearModel] = {}
    all_measures: dict[str, float] = {}
    for name, indexed, split in _rankers(ranker, corpus, settings, run.seed, index_dir):
        known = cited_elsewhere(corpus, corpus.split(split.name), split.contexts)
        lists = read_lists(indexed, split, known)
        log.info(
            f"ranker: {name}: {len(lists):,} lists of {len(lists.papers) / len(lists):,.0f} candidates, "
            f"{len(lists.columns)} features"
        )
        plain = lists.drop_group(DRAFT)
        for model, training_lists in ((name, plain), (f"{name}-{DRAFT}", lists)):
            measures = cross_fit(settings, training_lists, run.seed)
            models[model] = fit_ranker(settings, training_lists, run.seed)
            all_measures |= {f"{model}/{measure}": value for measure, value in measures.items()}
            log.info(
                f"ranker: {model}, {settings.folds}-fold cross-fitting over citing papers: "
                f"{_format_measures(measures)}"
            )
        for group in dict.fromkeys(map(group_of, plain.columns)) if settings.ablate else ():
            measures = cross_fit(settings, plain.drop_group(group), run.seed)
            log.info(f"ranker: {name} without {group}: {_format_measures(measures)}")
    metrics = {f"val/{name.removeprefix(f'{IN_DOMAIN}/')}": value for name, value in all_measures.items()}
    write_text(run.path / METRICS, json.dumps(metrics, indent=1) + "\n")
    log.info(f"ranker: trained in {time.monotonic() - start:.0f} s; output in {run.path}")
    return models, {
        "data": corpus.name,
        "corpus": corpus.fingerprint,
        "parts": {name: part.name for name, part in ranker.all_parts.items()},
        "depth": ranker.depth,
        "settings": asdict(settings),
        "retriever": ranker.settings(),
        "seed": run.seed,
        "cross_fitted": all_measures,
        "seconds": round(time.monotonic() - start, 1),
        "hash": models_hash(models),
    }


def _format_measures(figures: Mapping[str, float]) -> str:
    return ", ".join(f"{measure} {value:.4f}" for measure, value in figures.items())


def _rankers(
    ranker: Ranker, corpus: Corpus, settings: RankerSettings, seed: int, index_dir: str | Path | None
) -> Iterator[tuple[str, Ranker, Split]]:
    """Yield the name of each model to train, the indexed ranker that builds its lists, and the split."""
    without_contexts, first = copy.deepcopy(ranker), None
    if len(corpus.splits.get(TRAIN, ())):
        first = ranker
        first.open(corpus, index_dir)
        yield IN_DOMAIN, first, training_split(corpus, settings.split, settings.queries, seed)
    small_split = training_split(corpus, settings.split, settings.no_contexts_queries, seed)
    untrained = copy.copy(corpus)
    untrained.splits = {name: split for name, split in corpus.splits.items() if name != TRAIN}
    untrained.seen = np.zeros_like(corpus.seen)
    for name in (NO_CONTEXTS, OUT_OF_DOMAIN):
        one = without_contexts
        if name == OUT_OF_DOMAIN:
            if settings.out_of_domain_checkpoint is None:
                log.info("ranker: model.out_of_domain_checkpoint=FOLDER trains a model for other fields")
                continue
            one = copy.deepcopy(one).with_dense(trained_retriever(settings.out_of_domain_checkpoint))
        one.shared = first
        one.index(untrained)
        first = first or one
        yield name, one, small_split


def training_split(corpus: Corpus, name: str, queries: int | None, seed: int) -> Split:
    """Return the contexts to train on, a sample if the split has more than `queries`."""
    split = corpus.split(name)
    if not len(split):
        raise InputError(f"model.split={name}: corpus {corpus.name} has no contexts in this split")
    if queries is None or len(split) <= queries:
        return split
    rows = np.sort(np.random.default_rng(seed).permutation(len(split))[:queries])
    return Split(split.name, split.contexts[rows], split.positives.take(rows))


def read_lists(ranker: Ranker, split: Split, known: Ragged | None = None) -> Lists:
    """Build the lists of a split's contexts, as in a search.

    known: papers [Q] that the citing papers are known to cite elsewhere.
    """
    all_queries = Queries.from_contexts(ranker.corpus, split.contexts, known)
    parts: list[tuple[NDArray[Any], ...]] = []
    columns: list[str] = []
    with count_progress("ranker: reading lists", len(all_queries)) as advance:
        for start in range(0, len(all_queries), QUERIES):
            rows = np.arange(start, min(start + QUERIES, len(all_queries)))
            queries = all_queries[rows]
            papers = ranker.merge_candidates(ranker.prefetch(queries, ranker.depth))
            features, mask = ranker.columns(queries, papers), papers >= 0
            columns = list(features)
            values = standardise(features, papers)[mask].astype(np.float16)
            cited = is_listed(papers, split.positives.take(rows))[mask]
            parts.append((values, papers[mask], cited, mask.sum(axis=1)))
            advance(len(rows))
    values, papers, cited, lengths = (np.concatenate(part) for part in zip(*parts, strict=True))
    of_queries = np.arange(len(all_queries)), ranker.corpus.citing[split.contexts], split.positives.lengths
    return Lists(columns, values, papers, cited, offsets_of(lengths), *of_queries)
