"""Training the ranker: `citerec train model=ranker`.

A list holds all candidates of a context, as in a search. The contexts are those of validation
(model.ranker.split), because no retriever was trained on them. The loss is the cross entropy between the
cited papers and the softmax over the list (ListNet: Cao et al. 2007); for trees, LightGBM's lambdarank
(Burges 2010). Measures are cross-fitted over citing papers: the contexts of each are ranked by a model that
was not trained on them.
"""

from __future__ import annotations

import copy
import hashlib
import json
import logging
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from hydra.utils import instantiate
from numpy.typing import NDArray
from omegaconf import DictConfig
from scipy.optimize import minimize
from scipy.sparse import csr_matrix

from citerec.datasets.columns import Ragged, concat_ranges, offsets_of
from citerec.datasets.configuration import read_settings
from citerec.datasets.corpus import Corpus, Split
from citerec.datasets.errors import InputError
from citerec.datasets.files import atomic_write
from citerec.datasets.progress import count_progress
from citerec.datasets.records import TRAIN
from citerec.rerank.features import FEATURES, RETRIEVERS, is_listed, standardise
from citerec.rerank.ranker import (
    DRAFT,
    IN_DOMAIN,
    NO_CONTEXTS,
    OUT_OF_DOMAIN,
    QUERIES,
    SAVED,
    LinearModel,
    Ranker,
    RankingModel,
    TreeModel,
    lightgbm,
)
from citerec.rerank.settings import RankerSettings, RankerTrainingSettings
from citerec.retrieval.arrays import Mask, Rows
from citerec.retrieval.queries import Queries, cited_elsewhere
from citerec.training.loop import plain_config
from citerec.training.rounds import METRICS

log = logging.getLogger(__name__)

BLOCK = 1 << 14
"""Candidates per block of the Hessian."""
MIN_LISTS = 20
"""Minimum lists with a cited paper to fit a model."""


@dataclass(frozen=True)
class Lists:
    """Candidate lists of Q queries, as a search ranks them: n candidates in total, list by list.

    columns: F names; values: float16 [n, F]; papers: [n]; cited: bool [n]; offsets: [Q + 1], starts of the
    lists; queries: their numbers [Q]; citing: papers [Q]; count: cited papers [Q], found or not.
    """

    columns: Sequence[str]
    values: NDArray[np.float16]
    papers: NDArray[np.int32]
    cited: Mask
    offsets: NDArray[np.int64]
    queries: Rows
    citing: NDArray[np.int32]
    count: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.queries)

    @property
    def lengths(self) -> NDArray[np.int64]:
        """[Q]"""
        return np.diff(self.offsets)

    @property
    def query(self) -> NDArray[np.int64]:
        """Index of each candidate's list, [n]."""
        return np.repeat(np.arange(len(self)), self.lengths)

    def take(self, which: Mask) -> Lists:
        """Select lists by a mask [Q]."""
        rows = np.flatnonzero(which)
        index, offsets = concat_ranges(self.offsets[rows], self.offsets[rows + 1])
        of_queries = self.queries[rows], self.citing[rows], self.count[rows]
        return Lists(
            self.columns, self.values[index], self.papers[index], self.cited[index], offsets, *of_queries
        )

    def drop_group(self, group: str) -> Lists:
        """Return the lists without the columns of a feature group."""
        kept = [i for i, column in enumerate(self.columns) if group_of(column) != group]
        return replace(self, columns=[self.columns[i] for i in kept], values=self.values[:, kept])


def group_of(column: str) -> str:
    return FEATURES[column].group if column in FEATURES else RETRIEVERS


def train(config: DictConfig) -> Path:
    """Train by `config` (conf/train.yaml) in its output_dir; returns the folder of the ranker."""
    options, folder = plain_config(config), Path(config.output_dir)
    settings = read_settings(RankerTrainingSettings, options["model"]).ranker
    corpus: Corpus = instantiate(config.data)
    start = time.monotonic()
    models: dict[str, LinearModel | TreeModel] = {}
    all_measures: dict[str, float] = {}
    first: Ranker | None = None
    for name, ranker, split in _rankers(config, corpus, settings):
        first = first or ranker
        known = cited_elsewhere(corpus, corpus.split(split.name), split.contexts)
        lists = read_lists(ranker, split, known)
        log.info(
            f"ranker: {name}: {len(lists):,} lists of {len(lists.papers) / len(lists):,.0f} candidates, "
            f"{len(lists.columns)} features"
        )
        plain = lists.drop_group(DRAFT)
        for model, training_lists in ((name, plain), (f"{name}-{DRAFT}", lists)):
            measures = cross_fit(settings, training_lists, config.seed)
            models[model] = fit_ranker(settings, training_lists, config.seed)
            all_measures |= {f"{model}/{measure}": value for measure, value in measures.items()}
            log.info(
                f"ranker: {model}, {settings.folds}-fold cross-fitting over citing papers: "
                f"{_format_measures(measures)}"
            )
        for group in dict.fromkeys(map(group_of, plain.columns)) if settings.ablate else ():
            measures = cross_fit(settings, plain.drop_group(group), config.seed)
            log.info(f"ranker: {name} without {group}: {_format_measures(measures)}")
    assert first is not None
    about = {
        "data": corpus.name,
        "corpus": corpus.fingerprint,
        "parts": {name: part.name for name, part in first.parts.items()},
        "depth": first.depth,
        "settings": options["model"],
        "retriever": options["retriever"],
        "seed": config.seed,
        "cross_fitted": all_measures,
        "seconds": round(time.monotonic() - start, 1),
        "hash": models_hash(models),
    }
    RankingModel(models, about).save_pretrained(folder / SAVED)
    for part in first.parts.values():
        part.save_model(folder)  # so that recommend.py build model=FOLDER finds everything there
    with atomic_write(folder / METRICS) as path:
        metrics = {f"val/{name.removeprefix(f'{IN_DOMAIN}/')}": value for name, value in all_measures.items()}
        path.write_text(json.dumps(metrics, indent=1) + "\n", "utf-8")
    log.info(f"ranker: saved in {folder / SAVED} after {time.monotonic() - start:.0f} s")
    return folder / SAVED


def _format_measures(figures: Mapping[str, float]) -> str:
    return ", ".join(f"{measure} {value:.4f}" for measure, value in figures.items())


def _rankers(
    config: DictConfig, corpus: Corpus, settings: RankerSettings
) -> Iterator[tuple[str, Ranker, Split]]:
    """Yield the name of each model to train, the indexed ranker that builds its lists, and the split."""
    first: Ranker | None = None
    if len(corpus.splits.get(TRAIN, ())):
        first = instantiate(config.retriever)
        first.open(corpus, config.index_dir)
        yield IN_DOMAIN, first, training_split(corpus, settings.split, settings.queries, config.seed)
    small_split = training_split(corpus, settings.split, settings.no_contexts_queries, config.seed)
    untrained = copy.copy(corpus)
    untrained.splits = {name: split for name, split in corpus.splits.items() if name != TRAIN}
    untrained.seen = np.zeros_like(corpus.seen)
    other = settings.out_of_domain_checkpoint
    for name, checkpoint in ((NO_CONTEXTS, config.checkpoint), (OUT_OF_DOMAIN, other)):
        if name == OUT_OF_DOMAIN and checkpoint is None:
            log.info("ranker: model.ranker.out_of_domain_checkpoint=FOLDER trains a model for other fields")
            continue
        config = config.copy()
        config.checkpoint = checkpoint
        ranker: Ranker = instantiate(config.retriever)
        ranker.shared = first
        ranker.index(untrained)
        first = first or ranker
        yield name, ranker, small_split


def training_split(corpus: Corpus, name: str, queries: int | None, seed: int) -> Split:
    """Return the contexts to train on, a sample if the split has more than `queries`."""
    split = corpus.split(name)
    if not len(split):
        raise InputError(f"model.ranker.split={name}: corpus {corpus.name} has no contexts in this split")
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


# Fitting.


def fit_ranker(settings: RankerSettings, lists: Lists, seed: int) -> LinearModel | TreeModel:
    """Fit a model to the lists; InputError if too few of them have a cited paper."""
    useful = lists.take(np.bincount(lists.query[lists.cited], minlength=len(lists)) > 0)
    if len(useful) < MIN_LISTS:
        raise InputError(
            f"model.ranker: fewer than {MIN_LISTS} queries have a cited paper among their candidates; use "
            "more contexts or other retrievers, or raise retriever.depth"
        )
    fit = fit_linear if settings.kind == "linear" else fit_trees
    return fit(settings, drop_groups(useful, settings.drop, seed))


def drop_groups(lists: Lists, share: float, seed: int) -> Lists:
    """Zero the columns of each feature group in a random share of the lists, independently per group."""
    if share == 0:
        return lists
    groups, values = np.array([group_of(column) for column in lists.columns]), lists.values.copy()
    for group in set(groups.tolist()) - {RETRIEVERS}:
        group_seed = int.from_bytes(hashlib.blake2b(group.encode(), digest_size=4).digest(), "little")
        keys = ((seed, group_seed, query) for query in lists.queries.tolist())
        drawn = np.array([np.random.default_rng(key).random() < share for key in keys])
        values[np.ix_(drawn[lists.query], groups == group)] = 0
    return replace(lists, values=values)


def fit_linear(settings: RankerSettings, lists: Lists) -> LinearModel:
    """Minimise the mean cross entropy plus l2 |w|^2 by Newton's method in a trust region.

    Conn, Gould and Toint 2000, section 7.3: about ten steps, where quasi-Newton methods take a hundred.
    """
    values, cited = lists.values.astype(np.float32), lists.cited.astype(np.float64)
    starts, sizes = lists.offsets[:-1], lists.lengths
    target = cited / np.repeat(np.add.reduceat(cited, starts), sizes)

    def softmax(weights: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        scores = (values @ weights.astype(np.float32)).astype(np.float64)
        scores -= np.repeat(np.maximum.reduceat(scores, starts), sizes)
        probabilities = np.exp(scores)
        sums = np.add.reduceat(probabilities, starts)
        return float(np.log(sums).sum() - target @ scores), probabilities / np.repeat(sums, sizes)

    def loss(weights: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        entropy, probabilities = softmax(weights)
        gradient = ((probabilities - target).astype(np.float32) @ values) / len(sizes)
        penalty = settings.l2 * float(weights @ weights)
        return entropy / len(sizes) + penalty, gradient + 2 * settings.l2 * weights

    def hessian(weights: NDArray[np.float64]) -> NDArray[np.float64]:
        probabilities = softmax(weights)[1].astype(np.float32)
        places = np.arange(len(values)), lists.offsets
        means = csr_matrix((probabilities, *places), shape=(len(sizes), len(values))) @ values
        total = np.zeros((len(lists.columns), len(lists.columns)))
        for start in range(0, len(values), BLOCK):
            rows = slice(start, start + BLOCK)
            part = values[rows] * np.sqrt(probabilities[rows, None])
            total += part.T @ part
        return (total - means.T @ means) / len(sizes) + 2 * settings.l2 * np.eye(len(lists.columns))

    options = {"maxiter": settings.iterations, "gtol": 1e-5}
    start = np.zeros(len(lists.columns))
    found = minimize(loss, start, jac=True, hess=hessian, method="trust-exact", options=options)
    return LinearModel(dict(zip(lists.columns, found.x.tolist(), strict=True)))


def fit_trees(settings: RankerSettings, lists: Lists) -> TreeModel:
    """Fit boosted trees with lambdarank."""
    module = lightgbm()
    options = {
        "objective": "lambdarank",
        "lambdarank_truncation_level": 30,
        "learning_rate": settings.rate,
        "num_leaves": settings.leaves,
        "min_data_in_leaf": 50,
        "lambda_l2": 1.0,
        "feature_fraction": 0.7,
        "seed": 0,
        "deterministic": True,
        "force_row_wise": True,
        "num_threads": torch.get_num_threads(),
        "verbose": -1,
    }
    values, cited = lists.values.astype(np.float32), lists.cited.astype(np.int32)
    data = module.Dataset(values, cited, group=lists.lengths)
    return TreeModel(lists.columns, module.train(options, data, settings.trees).model_to_string())


# Measuring.


def cross_fit(settings: RankerSettings, lists: Lists, seed: int) -> dict[str, float]:
    """Compute recall and MRR by cross-validation over citing papers."""
    papers, place = np.unique(lists.citing, return_inverse=True)
    if len(papers) < settings.folds:
        raise InputError(
            f"model.ranker.folds={settings.folds}: the contexts have only {len(papers)} citing papers; "
            "use fewer folds"
        )
    fold = (np.random.default_rng(seed).permutation(len(papers)) % settings.folds)[place]
    sums = Counter[str]()
    for i in range(settings.folds):
        model = fit_ranker(settings, lists.take(fold != i), seed)
        sums.update(ranking_sums(model, lists.take(fold == i)))
    return {name: value / len(lists) for name, value in sums.items()}


def ranking_sums(model: LinearModel | TreeModel, lists: Lists) -> dict[str, float]:
    """Sum recall and reciprocal rank over lists; papers missing from their list count as not found."""
    scores, query = model.scores(lists.columns, lists.values.astype(np.float32)), lists.query
    rank = np.empty(len(query), np.int64)
    rank[np.lexsort((lists.papers, -scores, query))] = np.arange(len(query)) - lists.offsets[query]
    rank, query = rank[lists.cited], query[lists.cited]
    sums = {f"recall@{k}": float((1 / lists.count[query[rank < k]]).sum()) for k in (10, 100)}
    first = np.full(len(lists), np.inf)
    np.minimum.at(first, query, rank + 1.0)
    return {**sums, "mrr": float((1 / first).sum())}


def models_hash(models: Mapping[str, LinearModel | TreeModel]) -> str:
    """Return a hash of the models' parameters."""
    content = {
        name: model.text if isinstance(model, TreeModel) else dict(model.weights)
        for name, model in models.items()
    }
    return hashlib.blake2b(json.dumps(content, sort_keys=True).encode(), digest_size=8).hexdigest()
