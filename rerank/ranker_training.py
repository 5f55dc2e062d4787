"""Training the ranker: `python train.py model=ranker`.

Lists are what a search ranks: all candidates of contexts that no part has been trained on, those of
validation (model.ranker.split). The loss is the cross entropy of the softmax over a list with the cited
papers (ListNet: Cao et al. 2007), for trees LightGBM's lambdarank (Burges 2010). Figures are by cross-
fitting over citing papers: each is ranked by a model that has not seen it.
"""

from __future__ import annotations

import hashlib
import json
import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from hydra.utils import instantiate
from numpy.typing import NDArray
from omegaconf import DictConfig
from torch import Tensor

from datasets.corpus import Corpus, Split
from datasets.errors import InputError
from datasets.files import written_whole
from datasets.progress import counting
from datasets.settings import read_settings
from rerank.features import FEATURES, standardised
from rerank.ranker import QUERIES, SAVED, Ranker, RankingModel, Trees, Weights, lightgbm
from rerank.settings import RankerSettings, RankerTrainingSettings
from retrieval.arrays import Floats, Mask, Rows
from retrieval.base import ordered
from retrieval.queries import Queries
from training.loop import resolved
from training.rounds import METRICS

log = logging.getLogger(__name__)

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


def train(config: DictConfig) -> Path:
    """Train by `config` (conf/train.yaml) in its output_dir; gives the folder of the ranker."""
    settings = read_settings(RankerTrainingSettings, resolved(config)["model"])
    given, folder = settings.ranker, Path(config.output_dir)
    corpus: Corpus = instantiate(config.data)
    split = training_split(corpus, given, config.seed)
    ranker: Ranker = instantiate(config.retriever)
    ranker.open(corpus, config.index_dir)
    start = time.monotonic()
    columns, lists = read_lists(ranker, split)
    read = time.monotonic() - start
    citing = corpus.citing[split.contexts]
    measured = cross_fitted(given, columns, lists, citing, config.seed)
    model = fitted(given, columns, lists, config.seed)
    seconds = time.monotonic() - start
    log.info(
        f"ranker: {len(split):,} lists of {sum(map(_pairs, lists)) / len(split):,.0f} candidates with "
        f"{len(columns)} features, read in {read:.0f} s, fitted in {seconds - read:.0f} s; by {given.folds}-"
        f"fold cross-fitting: " + ", ".join(f"{name} {value:.4f}" for name, value in measured.items())
    )
    about = {
        "data": corpus.name,
        "corpus": corpus.fingerprint,
        "split": split.name,
        "contexts": len(split),
        "parts": {name: part.name for name, part in ranker.parts.items()},
        "depth": ranker.depth,
        "settings": resolved(config)["model"],
        "seed": config.seed,
        "cross_fitted": measured,
        "seconds": round(seconds, 1),
        "hash": hash_of(model),
    }
    RankingModel(model, about).save_pretrained(folder / SAVED)
    for part in ranker.parts.values():
        part.keep(folder)  # recommend.py build model=FOLDER finds all of it there
    with written_whole(folder / METRICS) as path:
        path.write_text(
            json.dumps({f"val/{name}": value for name, value in measured.items()}) + "\n", "utf-8"
        )
    log.info(f"ranker: saved in {folder / SAVED}")
    return folder / SAVED


def training_split(corpus: Corpus, given: RankerSettings, seed: int) -> Split:
    """The contexts that are ranked for training, a sample where there are more than wanted."""
    split = corpus.split(given.split)
    if given.queries is None or len(split) <= given.queries:
        return split
    rows = np.sort(np.random.default_rng(seed).permutation(len(split))[: given.queries])
    return Split(split.name, split.contexts[rows], split.positives.take(rows))


def read_lists(ranker: Ranker, split: Split) -> tuple[list[str], list[Lists]]:
    """The names of the columns, and the lists of a split's contexts as a search has them."""
    asked, columns, lists = Queries.of(ranker.corpus, split.contexts), [""], []
    with counting("ranker: reading lists", len(asked)) as advance:
        for start in range(0, len(asked), QUERIES):
            rows = np.arange(start, min(start + QUERIES, len(asked)))
            queries, wanted = asked[rows], split.positives.take(rows)
            papers = ranker.candidates(ranker.prefetched(queries, ranker.depth))
            found = ranker.columns(queries, papers)
            columns = list(found)
            pairs = np.isin(
                papers + np.arange(len(rows))[:, None] * len(ranker.corpus.paper_ids),
                wanted.values
                + np.repeat(np.arange(len(rows)), wanted.lengths) * len(ranker.corpus.paper_ids),
            )
            values = standardised(found, papers).astype(np.float16)
            lists.append(Lists(values, papers, pairs & (papers >= 0), rows, wanted.lengths))
            advance(len(rows))
    return columns, lists


def _pairs(lists: Lists) -> int:
    return int((lists.papers >= 0).sum())


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
    """Weights of the least mean cross entropy plus l2 |w|^2, by L-BFGS."""
    parts = [
        (torch.from_numpy(part.values), torch.from_numpy(part.papers >= 0), torch.from_numpy(part.cited))
        for part in lists
    ]
    total = sum(len(part.papers) for part in lists)
    weights = torch.zeros(len(columns), requires_grad=True)
    solver = torch.optim.LBFGS(
        [weights], max_iter=given.iterations, history_size=20, line_search_fn="strong_wolfe"
    )

    def closure() -> Tensor:
        solver.zero_grad()
        whole = torch.zeros(())
        for values, there, cited in parts:
            scores = (values.float() @ weights).masked_fill(~there, -torch.inf)
            wanted = cited / cited.sum(1, keepdim=True)
            loss = -(torch.log_softmax(scores, 1).masked_fill(~cited, 0.0) * wanted).sum() / total
            loss.backward()  # of each part at once: the whole need not fit
            whole += loss.detach()
        penalty = given.l2 * weights.square().sum()
        penalty.backward()
        return whole + penalty.detach()

    solver.step(closure)
    return Weights(dict(zip(columns, weights.detach().double().tolist(), strict=True)))


def fit_trees(given: RankerSettings, columns: Sequence[str], lists: Sequence[Lists]) -> Trees:
    """Boosted trees by lambdarank."""
    there = [part.papers >= 0 for part in lists]
    values = np.concatenate([part.values[mask] for part, mask in zip(lists, there, strict=True)])
    cited = np.concatenate([part.cited[mask] for part, mask in zip(lists, there, strict=True)])
    sizes = np.concatenate([mask.sum(axis=1) for mask in there])
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
    data = module.Dataset(values.astype(np.float32), cited.astype(np.int32), group=sizes)
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


def hash_of(model: Weights | Trees) -> str:
    """A hash of the model's numbers."""
    content = model.text if isinstance(model, Trees) else json.dumps(dict(model.of), sort_keys=True)
    return hashlib.blake2b(content.encode(), digest_size=8).hexdigest()
