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
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from hydra.utils import instantiate
from numpy.typing import NDArray
from omegaconf import DictConfig
from scipy.optimize import minimize
from scipy.sparse import csr_matrix

from datasets.columns import Ragged
from datasets.configuration import read_settings
from datasets.corpus import Corpus, Split
from datasets.errors import InputError
from datasets.files import written_whole
from datasets.progress import counting
from datasets.records import TRAIN
from rerank.features import FEATURES, RETRIEVERS, among, standardised
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
from retrieval.arrays import Floats, Mask, Rows
from retrieval.base import ordered
from retrieval.queries import Queries, cited_elsewhere
from training.loop import resolved
from training.rounds import METRICS

log = logging.getLogger(__name__)

OF_DRAFTS = {name for name, one in FEATURES.items() if one.group == DRAFT}
ROWS = 1 << 14
"""Candidates whose products are summed at a time."""
FEW = 20
"""Lists with a cited paper that a model can be fitted to, at the least."""


@dataclass(frozen=True)
class Lists:
    """Some queries' lists: values [Q, K, F] (float16), candidates [Q, K], -1 for none, the cited among them.

    queries: places [Q] among all queries; count: cited papers of each [Q], found or not.
    """

    values: NDArray[np.float16]
    papers: NDArray[np.int32]
    cited: Mask
    queries: Rows
    count: NDArray[np.int64]

    def take(self, rows: NDArray[np.intp]) -> Lists:
        return Lists(
            self.values[rows], self.papers[rows], self.cited[rows], self.queries[rows], self.count[rows]
        )

    def only(self, columns: Sequence[int]) -> Lists:
        """The same with some of the columns, by their places."""
        return replace(self, values=self.values[..., columns])


def train(config: DictConfig) -> Path:
    """Train by `config` (conf/train.yaml) in its output_dir; gives the folder of the ranker."""
    settings = read_settings(RankerTrainingSettings, resolved(config)["model"])
    given, folder = settings.ranker, Path(config.output_dir)
    corpus: Corpus = instantiate(config.data)
    start = time.monotonic()
    models: dict[str, Weights | Trees] = {}
    measured: dict[str, float] = {}
    own: Ranker | None = None
    for name, ranker, split in _rankers(config, corpus, given):
        own = own or ranker
        known = cited_elsewhere(corpus, corpus.split(split.name), split.contexts)
        columns, lists = read_lists(ranker, split, known)
        candidates = sum(int((part.papers >= 0).sum()) for part in lists) / len(split)
        log.info(
            f"ranker: {name}: {len(split):,} lists of {candidates:,.0f} candidates, {len(columns)} features"
        )
        citing = corpus.citing[split.contexts]
        plain = [place for place, column in enumerate(columns) if column not in OF_DRAFTS]
        for model, places in ((name, plain), (f"{name}-{DRAFT}", list(range(len(columns))))):
            given_columns, given_lists = [columns[i] for i in places], [part.only(places) for part in lists]
            found = cross_fitted(given, given_columns, given_lists, citing, config.seed)
            models[model] = fitted(given, given_columns, given_lists, config.seed)
            measured |= {f"{model}/{measure}": value for measure, value in found.items()}
            log.info(
                f"ranker: {model}, by {given.folds}-fold cross-fitting over citing papers: "
                + ", ".join(f"{measure} {value:.4f}" for measure, value in found.items())
            )
        if given.ablate:
            _ablate(
                given,
                name,
                [columns[i] for i in plain],
                [part.only(plain) for part in lists],
                citing,
                config.seed,
            )
    assert own is not None
    about = {
        "data": corpus.name,
        "corpus": corpus.fingerprint,
        "parts": {name: part.name for name, part in own.parts.items()},
        "depth": own.depth,
        "settings": resolved(config)["model"],
        "retriever": resolved(config)["retriever"],
        "seed": config.seed,
        "cross_fitted": measured,
        "seconds": round(time.monotonic() - start, 1),
        "hash": hash_of(models),
    }
    RankingModel(models, about).save_pretrained(folder / SAVED)
    for part in own.parts.values():
        part.keep(folder)  # recommend.py build model=FOLDER finds all of it there
    with written_whole(folder / METRICS) as path:
        metrics = {f"val/{name.removeprefix('home/')}": value for name, value in measured.items()}
        path.write_text(json.dumps(metrics, indent=1) + "\n", "utf-8")
    log.info(f"ranker: saved in {folder / SAVED}, after {time.monotonic() - start:.0f} s")
    return folder / SAVED


def _ablate(
    given: RankerSettings,
    name: str,
    columns: Sequence[str],
    lists: Sequence[Lists],
    citing: NDArray[np.int32],
    seed: int,
) -> None:
    """Log the figures without each group of features."""
    groups = {column: FEATURES[column].group if column in FEATURES else RETRIEVERS for column in columns}
    for group in dict.fromkeys(groups.values()):
        kept = [place for place, column in enumerate(columns) if groups[column] != group]
        parts, names = [part.only(kept) for part in lists], [columns[place] for place in kept]
        found = cross_fitted(given, names, parts, citing, seed)
        log.info(
            f"ranker: {name} without {group}: "
            + ", ".join(f"{key} {value:.4f}" for key, value in found.items())
        )


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
    if queries is None or len(split) <= queries:
        return split
    rows = np.sort(np.random.default_rng(seed).permutation(len(split))[:queries])
    return Split(split.name, split.contexts[rows], split.positives.take(rows))


def read_lists(ranker: Ranker, split: Split, known: Ragged | None = None) -> tuple[list[str], list[Lists]]:
    """The names of the columns, and the lists of a split's contexts as a search has them.

    known: papers [Q] that the citing papers are known to cite elsewhere.
    """
    asked, columns, lists = Queries.of(ranker.corpus, split.contexts, known), [""], []
    with counting("ranker: reading lists", len(asked)) as advance:
        for start in range(0, len(asked), QUERIES):
            rows = np.arange(start, min(start + QUERIES, len(asked)))
            queries, wanted = asked[rows], split.positives.take(rows)
            papers = ranker.candidates(ranker.prefetched(queries, ranker.depth))
            found = ranker.columns(queries, papers)
            columns = list(found)
            values = standardised(found, papers).astype(np.float16)
            lists.append(Lists(values, papers, among(papers, wanted), rows, wanted.lengths))
            advance(len(rows))
    return columns, lists


# Fitting.


def fitted(
    given: RankerSettings, columns: Sequence[str], lists: Sequence[Lists], seed: int
) -> Weights | Trees:
    """A model of these lists; InputError if too few of them have a cited paper."""
    useful = [part.take(rows) for part in lists if len(rows := np.flatnonzero(part.cited.any(axis=1)))]
    if sum(len(part.papers) for part in useful) < FEW:
        raise InputError(
            f"model.ranker: fewer than {FEW} queries have a cited paper among their candidates, there is "
            "nothing to learn from; take more contexts or other retrievers, or raise retriever.depth"
        )
    fit = fit_linear if given.kind == "linear" else fit_trees
    return fit(given, columns, [dropped(part, columns, given.drop, seed) for part in useful])


def dropped(lists: Lists, columns: Sequence[str], share: float, seed: int) -> Lists:
    """The lists, in a share of which (each for itself) the columns of a group are empty."""
    if share == 0:
        return lists
    groups = [FEATURES[name].group if name in FEATURES else "" for name in columns]
    values = lists.values.copy()
    for group in sorted(set(groups) - {""}):
        number = int.from_bytes(hashlib.blake2b(group.encode(), digest_size=4).digest(), "little")
        draws = np.array(
            [np.random.default_rng((seed, number, int(query))).random() for query in lists.queries]
        )
        rows = np.flatnonzero(np.array(draws) < share)
        values[rows[:, None], :, np.flatnonzero(np.array(groups) == group)] = 0
    return Lists(values, lists.papers, lists.cited, lists.queries, lists.count)


def fit_linear(given: RankerSettings, columns: Sequence[str], lists: Sequence[Lists]) -> Weights:
    """Weights of the least mean cross entropy plus l2 |w|^2, by Newton's method in a trust region.

    Conn, Gould and Toint 2000, section 7.3. It takes about ten steps, quasi-Newton methods a hundred.
    """
    values, cited, sizes = _flat(lists)
    starts = np.concatenate([[0], np.cumsum(sizes)[:-1]])
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
        ends = np.append(starts, len(values))
        means = csr_matrix((shares, np.arange(len(values)), ends), shape=(len(sizes), len(values))) @ values
        total = np.zeros((len(columns), len(columns)))
        for start in range(0, len(values), ROWS):
            rows = slice(start, start + ROWS)
            part = values[rows] * np.sqrt(shares[rows, None])
            total += part.T @ part
        return (total - means.T @ means) / len(sizes) + 2 * given.l2 * np.eye(len(columns))

    options = {"maxiter": given.iterations, "gtol": 1e-5}
    start = np.zeros(len(columns))
    found = minimize(loss, start, jac=True, hess=hessian, method="trust-exact", options=options)
    return Weights(dict(zip(columns, found.x.tolist(), strict=True)))


def _flat(lists: Sequence[Lists]) -> tuple[Floats, NDArray[np.float64], NDArray[np.int64]]:
    """All candidates, one after the other: values [n, F], whether cited [n]; and how many each list has."""
    there = [part.papers >= 0 for part in lists]
    pairs = list(zip(lists, there, strict=True))
    values = np.concatenate([part.values[mask] for part, mask in pairs]).astype(np.float32)
    cited = np.concatenate([part.cited[mask] for part, mask in pairs]).astype(np.float64)
    return values, cited, np.concatenate([mask.sum(axis=1) for mask in there])


def fit_trees(given: RankerSettings, columns: Sequence[str], lists: Sequence[Lists]) -> Trees:
    """Boosted trees by lambdarank."""
    values, cited, sizes = _flat(lists)
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
    data = module.Dataset(values, cited.astype(np.int32), group=sizes)
    return Trees(columns, module.train(options, data, given.trees).model_to_string())


# Measuring.


def cross_fitted(
    given: RankerSettings,
    columns: Sequence[str],
    lists: Sequence[Lists],
    citing: NDArray[np.int32],
    seed: int,
) -> dict[str, float]:
    """Recall and MRR of lists that are ranked by models which have not seen their citing papers."""
    papers, place = np.unique(citing, return_inverse=True)
    if len(papers) < given.folds:
        raise InputError(
            f"model.ranker.folds={given.folds}: the contexts are of {len(papers)} citing papers; take fewer"
        )
    fold = (np.random.default_rng(seed).permutation(len(papers)) % given.folds)[place]
    sums, queries = dict.fromkeys(("recall@10", "recall@100", "mrr"), 0.0), 0
    for one in range(given.folds):
        inside = [np.flatnonzero(fold[part.queries] == one) for part in lists]
        others = [np.flatnonzero(fold[part.queries] != one) for part in lists]
        train = [part.take(rows) for part, rows in zip(lists, others, strict=True) if len(rows)]
        model = fitted(given, columns, train, seed)
        for part, rows in zip(lists, inside, strict=True):
            if len(rows):
                found = measured(model, columns, part.take(rows))
                sums = {name: value + found[name] for name, value in sums.items()}
                queries += len(rows)
    return {name: value / queries for name, value in sums.items()}


def measured(model: Weights | Trees, columns: Sequence[str], lists: Lists) -> dict[str, float]:
    """Sums of recall and reciprocal rank over lists; a paper that is not in its list is not found."""
    scores: Floats = model.scores(columns, lists.values.astype(np.float32))
    order = ordered(lists.papers, scores, lists.papers.shape[1]).papers
    wanted = -np.sort(-np.where(lists.cited, lists.papers, -2), axis=1)[:, : int(lists.count.max())]
    hits = (order[:, :, None] == wanted[:, None, :]).any(axis=2)
    ranks = np.where(hits.any(axis=1), hits.argmax(axis=1) + 1, np.inf)
    found = {f"recall@{k}": float((hits[:, :k].sum(axis=1) / lists.count).sum()) for k in (10, 100)}
    return {**found, "mrr": float((1 / ranks).sum())}


def hash_of(models: Mapping[str, Weights | Trees]) -> str:
    """A hash of the models' numbers."""
    content = {
        name: model.text if isinstance(model, Trees) else dict(model.of) for name, model in models.items()
    }
    return hashlib.blake2b(json.dumps(content, sort_keys=True).encode(), digest_size=8).hexdigest()
