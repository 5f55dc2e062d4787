"""Training the ranker: `python train.py model=ranker`.

Lists are what a search ranks: all candidates of contexts that no part has been trained on, those of
validation (model.ranker.split). The loss is the cross entropy of the softmax over a list with the cited
papers (ListNet: Cao et al. 2007), for trees LightGBM's lambdarank (Burges 2010). Figures are by cross-
fitting over citing papers: each is ranked by a model that has not seen it.
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

from datasets.columns import Ragged, offsets_of, ranges
from datasets.configuration import read_settings
from datasets.corpus import Corpus, Split
from datasets.errors import InputError
from datasets.files import atomic_write
from datasets.progress import count_progress
from datasets.records import TRAIN
from rerank.features import FEATURES, RETRIEVERS, is_listed, standardise
from rerank.ranker import (
    ABROAD,
    BARE,
    DRAFT,
    HOME,
    QUERIES,
    SAVED,
    Ranker,
    RankingModel,
    Trees,
    Weights,
    lightgbm,
)
from rerank.settings import RankerSettings, RankerTrainingSettings
from retrieval.arrays import Mask, Rows
from retrieval.queries import Queries, cited_elsewhere
from training.loop import plain_config
from training.rounds import METRICS

log = logging.getLogger(__name__)

ROWS = 1 << 14
"""Candidates whose products are summed at a time."""
FEW = 20
"""Lists with a cited paper that a model can be fitted to, at the least."""


@dataclass(frozen=True)
class Lists:
    """What a search ranks for Q queries: n candidates, one list after the other.

    columns: F names; values: float16 [n, F]; papers: [n]; cited: bool [n]; offsets: [Q + 1], where lists
    begin. queries: places [Q] among all; citing: papers [Q]; count: cited papers of each [Q], found or not.
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
        """The list [n] that each candidate is in."""
        return np.repeat(np.arange(len(self)), self.lengths)

    def take(self, which: Mask) -> Lists:
        """Some of the lists [Q]."""
        rows = np.flatnonzero(which)
        index, offsets = ranges(self.offsets[rows], self.offsets[rows + 1])
        of_queries = self.queries[rows], self.citing[rows], self.count[rows]
        return Lists(
            self.columns, self.values[index], self.papers[index], self.cited[index], offsets, *of_queries
        )

    def without(self, group: str) -> Lists:
        """The same but for the columns of a group of features."""
        kept = [place for place, column in enumerate(self.columns) if group_of(column) != group]
        return replace(self, columns=[self.columns[i] for i in kept], values=self.values[:, kept])


def group_of(column: str) -> str:
    return FEATURES[column].group if column in FEATURES else RETRIEVERS


def train(config: DictConfig) -> Path:
    """Train by `config` (conf/train.yaml) in its output_dir; gives the folder of the ranker."""
    settings = read_settings(RankerTrainingSettings, plain_config(config)["model"])
    given, folder = settings.ranker, Path(config.output_dir)
    corpus: Corpus = instantiate(config.data)
    start = time.monotonic()
    models: dict[str, Weights | Trees] = {}
    measured: dict[str, float] = {}
    own: Ranker | None = None
    for name, ranker, split in _rankers(config, corpus, given):
        own = own or ranker
        known = cited_elsewhere(corpus, corpus.split(split.name), split.contexts)
        lists = read_lists(ranker, split, known)
        log.info(
            f"ranker: {name}: {len(lists):,} lists of {len(lists.papers) / len(lists):,.0f} candidates, "
            f"{len(lists.columns)} features"
        )
        plain = lists.without(DRAFT)
        for model, of in ((name, plain), (f"{name}-{DRAFT}", lists)):
            found = cross_fit(given, of, config.seed)
            models[model] = fit_ranker(given, of, config.seed)
            measured |= {f"{model}/{measure}": value for measure, value in found.items()}
            log.info(
                f"ranker: {model}, by {given.folds}-fold cross-fitting over citing papers: {_shown(found)}"
            )
        for group in dict.fromkeys(map(group_of, plain.columns)) if given.ablate else ():
            found = cross_fit(given, plain.without(group), config.seed)
            log.info(f"ranker: {name} without {group}: {_shown(found)}")
    assert own is not None
    about = {
        "data": corpus.name,
        "corpus": corpus.fingerprint,
        "parts": {name: part.name for name, part in own.parts.items()},
        "depth": own.depth,
        "settings": plain_config(config)["model"],
        "retriever": plain_config(config)["retriever"],
        "seed": config.seed,
        "cross_fitted": measured,
        "seconds": round(time.monotonic() - start, 1),
        "hash": models_hash(models),
    }
    RankingModel(models, about).save_pretrained(folder / SAVED)
    for part in own.parts.values():
        part.keep(folder)  # recommend.py build model=FOLDER finds all of it there
    with atomic_write(folder / METRICS) as path:
        metrics = {f"val/{name.removeprefix('home/')}": value for name, value in measured.items()}
        path.write_text(json.dumps(metrics, indent=1) + "\n", "utf-8")
    log.info(f"ranker: saved in {folder / SAVED}, after {time.monotonic() - start:.0f} s")
    return folder / SAVED


def _shown(figures: Mapping[str, float]) -> str:
    return ", ".join(f"{measure} {value:.4f}" for measure, value in figures.items())


def _rankers(
    config: DictConfig, corpus: Corpus, given: RankerSettings
) -> Iterator[tuple[str, Ranker, Split]]:
    """The name of each model that can be made, the indexed ranker that finds its lists, and their queries."""
    home: Ranker | None = None
    if len(corpus.splits.get(TRAIN, ())):
        home = instantiate(config.retriever)
        home.open(corpus, config.index_dir)
        yield HOME, home, training_split(corpus, given.split, given.queries, config.seed)
    few, strange = training_split(corpus, given.split, given.fewer, config.seed), copy.copy(corpus)
    strange.splits = {name: split for name, split in corpus.splits.items() if name != TRAIN}
    strange.seen = np.zeros_like(corpus.seen)
    for name, checkpoint in ((BARE, config.checkpoint), (ABROAD, given.foreign)):
        if name == ABROAD and checkpoint is None:
            log.info("ranker: no model for other fields: it needs model.ranker.foreign=CHECKPOINT")
            continue
        config = config.copy()
        config.checkpoint = checkpoint
        ranker: Ranker = instantiate(config.retriever)
        ranker.like = home
        ranker.index(strange)
        home = home or ranker
        yield name, ranker, few


def training_split(corpus: Corpus, name: str, queries: int | None, seed: int) -> Split:
    """The contexts of a split that are ranked for training, a sample where there are more than wanted."""
    split = corpus.split(name)
    if not len(split):
        raise InputError(
            f"model.ranker.split={name}: corpus {corpus.name} has no contexts there to learn from"
        )
    if queries is None or len(split) <= queries:
        return split
    rows = np.sort(np.random.default_rng(seed).permutation(len(split))[:queries])
    return Split(split.name, split.contexts[rows], split.positives.take(rows))


def read_lists(ranker: Ranker, split: Split, known: Ragged | None = None) -> Lists:
    """The lists of a split's contexts as a search has them.

    known: papers [Q] that the citing papers are known to cite elsewhere.
    """
    asked, parts = Queries.of(ranker.corpus, split.contexts, known), list[tuple[NDArray[Any], ...]]()
    columns: list[str] = []
    with count_progress("ranker: reading lists", len(asked)) as advance:
        for start in range(0, len(asked), QUERIES):
            rows = np.arange(start, min(start + QUERIES, len(asked)))
            queries = asked[rows]
            papers = ranker.candidates(ranker.prefetched(queries, ranker.depth))
            found, there = ranker.columns(queries, papers), papers >= 0
            columns = list(found)
            values = standardise(found, papers)[there].astype(np.float16)
            cited = is_listed(papers, split.positives.take(rows))[there]
            parts.append((values, papers[there], cited, there.sum(axis=1)))
            advance(len(rows))
    values, papers, cited, lengths = (np.concatenate(part) for part in zip(*parts, strict=True))
    of_queries = np.arange(len(asked)), ranker.corpus.citing[split.contexts], split.positives.lengths
    return Lists(columns, values, papers, cited, offsets_of(lengths), *of_queries)


# Fitting.


def fit_ranker(given: RankerSettings, lists: Lists, seed: int) -> Weights | Trees:
    """A model of these lists; InputError if too few of them have a cited paper."""
    useful = lists.take(np.bincount(lists.query[lists.cited], minlength=len(lists)) > 0)
    if len(useful) < FEW:
        raise InputError(
            f"model.ranker: fewer than {FEW} queries have a cited paper among their candidates, there is "
            "nothing to learn from; take more contexts or other retrievers, or raise retriever.depth"
        )
    fit = fit_linear if given.kind == "linear" else fit_trees
    return fit(given, drop_groups(useful, given.drop, seed))


def drop_groups(lists: Lists, share: float, seed: int) -> Lists:
    """The lists, in a share of which (each for itself) the columns of a group are empty."""
    if share == 0:
        return lists
    groups, values = np.array([group_of(column) for column in lists.columns]), lists.values.copy()
    for group in set(groups.tolist()) - {RETRIEVERS}:
        number = int.from_bytes(hashlib.blake2b(group.encode(), digest_size=4).digest(), "little")
        keys = ((seed, number, query) for query in lists.queries.tolist())
        drawn = np.array([np.random.default_rng(key).random() < share for key in keys])
        values[np.ix_(drawn[lists.query], groups == group)] = 0
    return replace(lists, values=values)


def fit_linear(given: RankerSettings, lists: Lists) -> Weights:
    """Weights of the least mean cross entropy plus l2 |w|^2, by Newton's method in a trust region.

    Conn, Gould and Toint 2000, section 7.3. It takes about ten steps, quasi-Newton methods a hundred.
    """
    values, cited = lists.values.astype(np.float32), lists.cited.astype(np.float64)
    starts, sizes = lists.offsets[:-1], lists.lengths
    wanted = cited / np.repeat(np.add.reduceat(cited, starts), sizes)

    def softmax(weights: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        scores = (values @ weights.astype(np.float32)).astype(np.float64)
        scores -= np.repeat(np.maximum.reduceat(scores, starts), sizes)
        shares = np.exp(scores)
        sums = np.add.reduceat(shares, starts)
        return float(np.log(sums).sum() - wanted @ scores), shares / np.repeat(sums, sizes)

    def loss(weights: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        entropy, shares = softmax(weights)
        gradient = ((shares - wanted).astype(np.float32) @ values) / len(sizes)
        return entropy / len(sizes) + given.l2 * float(weights @ weights), gradient + 2 * given.l2 * weights

    def hessian(weights: NDArray[np.float64]) -> NDArray[np.float64]:
        shares = softmax(weights)[1].astype(np.float32)
        places = np.arange(len(values)), lists.offsets
        means = csr_matrix((shares, *places), shape=(len(sizes), len(values))) @ values
        total = np.zeros((len(lists.columns), len(lists.columns)))
        for start in range(0, len(values), ROWS):
            rows = slice(start, start + ROWS)
            part = values[rows] * np.sqrt(shares[rows, None])
            total += part.T @ part
        return (total - means.T @ means) / len(sizes) + 2 * given.l2 * np.eye(len(lists.columns))

    options = {"maxiter": given.iterations, "gtol": 1e-5}
    start = np.zeros(len(lists.columns))
    found = minimize(loss, start, jac=True, hess=hessian, method="trust-exact", options=options)
    return Weights(dict(zip(lists.columns, found.x.tolist(), strict=True)))


def fit_trees(given: RankerSettings, lists: Lists) -> Trees:
    """Boosted trees by lambdarank."""
    module = lightgbm()
    options = {
        "objective": "lambdarank",
        "lambdarank_truncation_level": 30,
        "learning_rate": given.rate,
        "num_leaves": given.leaves,
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
    return Trees(lists.columns, module.train(options, data, given.trees).model_to_string())


# Measuring.


def cross_fit(given: RankerSettings, lists: Lists, seed: int) -> dict[str, float]:
    """Recall and MRR of lists that are ranked by models which have not seen their citing papers."""
    papers, place = np.unique(lists.citing, return_inverse=True)
    if len(papers) < given.folds:
        raise InputError(
            f"model.ranker.folds={given.folds}: the contexts are of {len(papers)} citing papers; take fewer"
        )
    fold = (np.random.default_rng(seed).permutation(len(papers)) % given.folds)[place]
    sums = Counter[str]()
    for one in range(given.folds):
        model = fit_ranker(given, lists.take(fold != one), seed)
        sums.update(ranking_sums(model, lists.take(fold == one)))
    return {name: value / len(lists) for name, value in sums.items()}


def ranking_sums(model: Weights | Trees, lists: Lists) -> dict[str, float]:
    """Sums of recall and reciprocal rank over lists; a paper that is not in its list is not found."""
    scores, query = model.scores(lists.columns, lists.values.astype(np.float32)), lists.query
    rank = np.empty(len(query), np.int64)
    rank[np.lexsort((lists.papers, -scores, query))] = np.arange(len(query)) - lists.offsets[query]
    rank, query = rank[lists.cited], query[lists.cited]
    found = {f"recall@{k}": float((1 / lists.count[query[rank < k]]).sum()) for k in (10, 100)}
    first = np.full(len(lists), np.inf)
    np.minimum.at(first, query, rank + 1.0)
    return {**found, "mrr": float((1 / first).sum())}


def models_hash(models: Mapping[str, Weights | Trees]) -> str:
    """A hash of the models' numbers."""
    content = {
        name: model.text if isinstance(model, Trees) else dict(model.of) for name, model in models.items()
    }
    return hashlib.blake2b(json.dumps(content, sort_keys=True).encode(), digest_size=8).hexdigest()
