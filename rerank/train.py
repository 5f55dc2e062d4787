"""Training a reranker from a configuration: `python train.py model=scibert_reranker`.

What is measured of a reranker in training: recall, MRR and F1 of its order of a retriever's candidates.
What happens between the rounds of a reranker's training: validate, keep the best, stop early.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytorch_lightning as pl
import torch
from hydra.utils import instantiate
from lightning_utilities.core.rank_zero import rank_zero_only
from numpy.typing import NDArray
from omegaconf import DictConfig, OmegaConf
from torch import Tensor

from datasets.corpus import Corpus, Split
from datasets.errors import InputError
from datasets.progress import counting
from datasets.records import TRAIN
from datasets.settings import read_own_settings, read_settings
from hatten.mining import padded
from hatten.train import recalls
from rerank.backends import batches
from rerank.cross_encoder import CrossEncoder
from rerank.data import (
    BatchConfig,
    Listing,
    NegativesConfig,
    Prefetcher,
    Queries,
    RerankData,
    TopPapers,
    TrainingLists,
)
from rerank.module import FineTuningConfig, LossConfig, RerankModule
from rerank.pairs import PairConfig, PairReader
from retrieval.base import ordered
from retrieval.encoder import ArticleConfig
from retrieval.vectors import evaluating
from training.loop import HISTORY, LAST, History, Progress, WholeFiles, fit, resume_point, saver, start_anew
from training.settings import RECALL_AT, RateSettings, at_least_1

F1 = 20
"""The rank of F1: that of Nogueira et al. 2020."""

SAMPLE = 2
"""The random numbers of the sample: those of hatten.train, so that both measure the same queries."""


@dataclass(frozen=True)
class ValidationConfig:
    """What is measured, how often, and what follows from it."""

    split: str = "val"
    queries: int = 500
    """a sample where there are more; 0: no validation"""
    candidates: int = 100
    """papers that are prefetched and reranked for a query; a cited paper that is not among them is missed"""
    every: int = 1000
    """steps between two validations"""
    monitor: str = "recall@10"
    """the weights that are best in this are saved"""
    patience: int = 3
    """validations in a row without a better one after which training ends; 0: it never ends early"""

    def __post_init__(self) -> None:
        at_least_1(self, "model.validation", "candidates", "every")
        measures = ["mrr", *(f"recall@{k}" for k in RECALL_AT if k <= self.candidates)]
        measures += [f"f1@{F1}"] if self.candidates >= F1 else []
        if self.monitor not in measures:
            raise InputError(f"model.validation.monitor={self.monitor}: choose one of {', '.join(measures)}")


def f1(papers: NDArray[np.integer], positives: NDArray[np.integer]) -> dict[str, float]:
    """Ranked papers [Q, k], cited ones [Q, most] (-1: none): the mean F1 of the first 20, nothing of fewer.

    Precision is of 20 papers, F1 of one query (as evaluation.measures has it).
    """
    if papers.shape[1] < F1:
        return {}
    cited = positives >= 0
    hits = ((papers[:, None, :F1] == positives[:, :, None]) & cited[:, :, None]).sum((1, 2))
    return {f"f1@{F1}": float((2 * hits / (F1 + cited.sum(1))).mean())}


def sampled(split: Split, size: int, seed: int) -> NDArray[np.int64]:
    """Rows of a split, ascending: so many, or all where there are fewer."""
    return np.sort(np.random.default_rng((seed, SAMPLE)).permutation(len(split))[:size])


class Validation:
    """Queries and their candidates: the same at each validation."""

    def __init__(
        self, corpus: Corpus, split: Split, rows: NDArray[np.int64], papers: NDArray[np.int32]
    ) -> None:
        """rows [Q] of the split; papers [Q, k], prefetched for them, best first, -1: none."""
        self.contexts, self.papers = split.contexts[rows], papers
        self._positives = padded(split.positives.take(rows), corpus.citing[self.contexts])[:, :-1]
        cited = self._positives >= 0
        hits = (papers[:, None, :] == self._positives[:, :, None]) & cited[:, :, None]
        found = hits.any(2)
        self.asked = np.flatnonzero(found.any(1))
        """Queries with a cited paper among the candidates: the order of the others' makes no difference."""
        base = recalls(papers, self._positives) | f1(papers, self._positives)
        self.base = {f"base/{name}": value for name, value in base.items()}
        self.base["ceiling"] = float((found.sum(1) / cited.sum(1)).mean())

    def measure(
        self,
        encoder: CrossEncoder,
        reader: PairReader,
        tokens: int,
        rank: int = 0,
        processes: int = 1,
        summed: Callable[[Tensor], Tensor] = lambda own: own,
    ) -> dict[str, float]:
        """Recall, MRR and F1 over all queries, those of the prefetched order (`base/...`), and the best
        possible recall (`ceiling`), all within the candidates.

        tokens: of a batch. Of several processes each scores its own queries; summed: adds up tensors of all.
        """
        there = np.zeros(self.papers.shape, np.bool_)
        there[self.asked] = self.papers[self.asked] >= 0
        own = np.zeros_like(there)
        own[self.asked[rank::processes]] = there[self.asked[rank::processes]]
        query, place = np.nonzero(own)
        logits = torch.zeros(2, *there.shape)  # and how often each pair was scored
        logits[0, query, place] = self._scored(encoder, reader, tokens, query, place)
        logits[1, query, place] = 1
        grid, times = summed(logits).numpy()
        assert (times == there).all(), "every pair is scored by one process"
        if not np.isfinite(grid).all():
            raise InputError("the reranker's scores are no numbers any more: lower model.optimizer.lr")
        ranked = ordered(self.papers, grid, self.papers.shape[1]).papers
        return recalls(ranked, self._positives) | f1(ranked, self._positives) | self.base

    def _scored(
        self,
        encoder: CrossEncoder,
        reader: PairReader,
        tokens: int,
        query: NDArray[np.int64],
        place: NDArray[np.int64],
    ) -> Tensor:
        pairs = reader.pairs(self.contexts[query], self.papers[query, place])
        out = torch.zeros(len(pairs))
        with evaluating(encoder), torch.inference_mode(), counting("validating", len(pairs)) as advance:
            for rows in batches(pairs.lengths, tokens):
                out[torch.from_numpy(rows)] = encoder(*pairs.padded(rows)).cpu()
                advance(len(rows))
        return out


log = logging.getLogger(__name__)

SHOWN = ("mrr", "recall@1", "recall@10", "base/mrr", "base/recall@10", "ceiling")


class Rounds(pl.Callback):
    """Validates after each round, saves the best weights, and ends the training when they are long past.

    What it needs to go on is in its state: the history.
    """

    def __init__(
        self,
        best: Path,
        config: ValidationConfig,
        validation: Validation | None,
        reader: PairReader,
        tokens: int,
        about: dict[str, Any],
    ) -> None:
        """best: the folder of the best weights, saved with what is known `about` them.

        validation: None where there is nothing to validate with; then the last weights are the best.
        """
        self.best, self.config, self.validation, self.about = best, config, validation, about
        self.reader, self.tokens = reader, tokens
        self.history = History(best.parent, tuple(dict.fromkeys([*SHOWN, config.monitor])))
        self._losses: list[Tensor] = []
        self._seen = 0

    def state_dict(self) -> dict[str, Any]:
        return {"history": self.history.rows}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.history.rows = list(state_dict["history"])

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if self._past_best():  # of a resumed run that had ended early
            trainer.should_stop = True

    def on_train_epoch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self._start, self._losses, self._seen = time.monotonic(), [], 0

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        self._losses.append(outputs["loss"].detach())
        self._seen += len(batch.place)

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        assert isinstance(pl_module, RerankModule)
        start, seconds = time.monotonic(), time.monotonic() - self._start
        # Lightning has divided each by the number that a step accumulates.
        loss = torch.stack(self._losses).mean() * trainer.accumulate_grad_batches
        row = {
            "step": float(trainer.global_step),
            "train/loss": float(trainer.strategy.reduce(loss, reduce_op="mean")),
            "train/seconds": seconds,
            "train/pairs_per_second": self._pairs(trainer) / seconds,
        }
        if self.validation is not None:
            measured = self.validation.measure(
                pl_module.best_encoder,
                self.reader,
                self.tokens,
                trainer.global_rank,
                trainer.world_size,
                lambda own: torch.as_tensor(
                    trainer.strategy.reduce(own.to(pl_module.device), reduce_op="sum")
                ).cpu(),
            )
            row |= {f"val/{name}": value for name, value in measured.items()}
            row["val/seconds"] = time.monotonic() - start
        pl_module.log_dict(
            {name: value for name, value in row.items() if name != "step"}, rank_zero_only=True
        )
        if trainer.is_global_zero:
            self._keep(pl_module, trainer.current_epoch + 1, row)
        self.history.rows = trainer.strategy.broadcast(self.history.rows)
        if self._past_best():
            log.info(f"no better {self.config.monitor} in {self.config.patience} validations: training ends")
            trainer.should_stop = True

    def _pairs(self, trainer: pl.Trainer) -> float:
        """Pairs of the round, over all processes."""
        return float(trainer.strategy.reduce(torch.tensor(float(self._seen)), reduce_op="sum"))

    def _keep(self, module: RerankModule, done: int, row: dict[str, float]) -> None:
        """Write the history, and save the weights when they are the best so far."""
        if self.history.add(done, row, f"val/{self.config.monitor}"):
            # No times: the same run gives the same file.
            measured = {
                name: value for name, value in row.items() if not name.endswith(("seconds", "second"))
            }
            module.best_encoder.save(self.best, {**self.about, "round": done, **measured})

    def _past_best(self) -> bool:
        """Whether the last `patience` validations were all no better than one before."""
        values = [row[name] for row in self.history.rows if (name := f"val/{self.config.monitor}") in row]
        if not self.config.patience or not values:
            return False
        return len(values) - 1 - int(np.argmax(values)) >= self.config.patience


BEST = "reranker"
"""The folder of the best weights, in that of a run."""

CANDIDATES = "candidates"
"""The folder of what was prefetched, in that of a run."""

LISTS = ("cited", "top")

SETTINGS = ("data", "encoder", "model", "seed")
"""The parts of the configuration that the weights depend on, beside what is prefetched."""


@dataclass(frozen=True)
class RunConfig:
    """What belongs to no part of a model (conf/model/scibert_reranker.yaml)."""

    epochs: int = 1
    queries_per_epoch: int = 10_000
    """training queries drawn for an epoch; all where there are fewer"""
    ema: float = 0.0
    workers: int = 0
    lists: str = "cited"
    """cited: a cited paper of each query, and negatives that are drawn | top: the first `negatives.depth`
    papers as they were found, cited or not (Nogueira et al. 2020)"""

    def __post_init__(self) -> None:
        at_least_1(self, "model", "epochs", "queries_per_epoch")
        if self.lists not in LISTS:
            raise InputError(f"model.lists={self.lists}: choose one of {', '.join(LISTS)}")


@dataclass(frozen=True)
class Recipe:
    """All options of a training, checked."""

    run: RunConfig
    tuning: FineTuningConfig
    head: str
    pairs: PairConfig
    loss: LossConfig
    batch: BatchConfig
    negatives: NegativesConfig
    validation: ValidationConfig
    schedule: RateSettings

    def __post_init__(self) -> None:
        if self.run.lists == "top" and self.loss.name != "pointwise":
            raise InputError(
                f"model.lists=top: model.loss.name={self.loss.name} takes lists of one cited paper, these "
                "have any number; set model.loss.name=pointwise"
            )

    @property
    def listing(self) -> Listing:
        """How the lists of training queries are made."""
        return TopPapers(self.negatives.depth) if self.run.lists == "top" else self.negatives

    @classmethod
    def of(cls, model: dict[str, Any]) -> Recipe:
        """InputError names the first option that is wrong."""

        def part(kind: type[Any], name: str) -> Any:
            return read_settings(kind, model[name], f"model.{name}")

        return cls(
            read_own_settings(RunConfig, model),
            read_own_settings(FineTuningConfig, model),
            model["head"],
            part(PairConfig, "pairs"),
            part(LossConfig, "loss"),
            part(BatchConfig, "batch"),
            part(NegativesConfig, "negatives"),
            part(ValidationConfig, "validation"),
            part(RateSettings, "schedule"),
        )


def train(config: DictConfig) -> Path:
    """Train by `config` (conf/train.yaml) in its output_dir; gives the folder of the best weights."""
    folder, seed, first = Path(config.output_dir), config.seed, getattr(rank_zero_only, "rank", 0) == 0
    if type(seed) is not int or seed < 0:
        raise InputError(f"seed={seed}: must be a whole number, not below 0")
    plain = OmegaConf.to_container(config, resolve=True)
    assert isinstance(plain, dict)
    # What is wrong with the options should be said before anything is prepared.
    recipe = Recipe.of(plain["model"])
    if not first:
        logging.getLogger().setLevel(logging.WARNING)  # the first process speaks for all
    pl.seed_everything(seed, verbose=False)
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
    corpus: Corpus = instantiate(config.data)
    encoder_config: ArticleConfig = instantiate(config.encoder)
    encoder = CrossEncoder.pretrained(encoder_config, recipe.pairs, recipe.head, seed)
    recipe.tuning.apply(encoder)
    reader = PairReader(corpus, encoder.tokenizer, recipe.pairs)
    prefetcher = Prefetcher(
        instantiate(config.retriever),
        corpus,
        Path(config.candidates_dir or folder / CANDIDATES),
        config.index_dir,
    )
    lists, prefetched = _lists(recipe, corpus, prefetcher, reader, seed)
    validation, asked = _validation(recipe.validation, corpus, prefetcher, seed)
    data = RerankData(lists, recipe.validation.every, seed, recipe.run.workers)
    module = RerankModule(
        encoder,
        instantiate(config.model.optimizer),
        recipe.loss,
        recipe.schedule,
        recipe.run.ema,
        seed,
        data.steps,
    )
    about = {
        "data": corpus.name,
        "corpus": corpus.fingerprint,
        "encoder": encoder_config.name,
        "retriever": prefetcher.retriever.name,
        "model": plain["model"],
        "seed": seed,
    }
    best = folder / BEST
    trainer: pl.Trainer = instantiate(
        config.trainer,
        max_epochs=data.rounds,
        accumulate_grad_batches=recipe.batch.accumulate,
        reload_dataloaders_every_n_epochs=1,
        use_distributed_sampler=False,
        limit_val_batches=0,
        num_sanity_val_steps=0,
        logger=list(instantiate(config.logger).values()),
        plugins=[WholeFiles()],
        callbacks=[
            Rounds(best, recipe.validation, validation, reader, recipe.batch.tokens, about),
            Progress(data.steps),
            saver(folder),
            *instantiate(config.callbacks or {}).values(),
        ],
    )
    recipe.batch.share(trainer.world_size)
    settings = {**{part: plain[part] for part in SETTINGS}, "corpus": corpus.fingerprint}
    settings["candidates"] = [prefetched, asked]
    last: Path | None = folder / LAST
    if first:
        last = resume_point(folder, settings) if config.resume else None
        if last is None:
            start_anew(folder, BEST, settings)
    elif not config.resume or not (folder / LAST).exists():
        last = None
    log.info(
        f"training on {corpus.name}: {len(lists.queries.rows):,} queries, {data.steps:,} steps of "
        f"{recipe.batch.queries * recipe.batch.accumulate} queries with up to {recipe.listing.most} papers, "
        f"by {prefetcher.retriever.name}, {data.rounds} rounds, in {encoder.precision}, "
        f"{torch.get_num_threads()} threads; output in {folder}"
    )
    fit(trainer, module, data, last)
    log.info(f"weights of the best round: {best}; history: {folder / HISTORY}")
    return best


def _lists(
    recipe: Recipe, corpus: Corpus, prefetcher: Prefetcher, reader: PairReader, seed: int
) -> tuple[TrainingLists, str]:
    """What is trained on, and the name of what was prefetched for it."""
    split, depth = corpus.split(TRAIN), recipe.negatives.depth
    if len(split) == 0:
        raise InputError(f"corpus {corpus.name}: its train split is empty, there is nothing to train on")
    rows = np.flatnonzero(prefetcher.knows(split.contexts))
    queries = Queries.sample(rows, recipe.run.queries_per_epoch, recipe.run.epochs, seed)
    contexts = split.contexts[np.unique(queries.rows)]
    prefetched = prefetcher(contexts, depth, "training queries")
    lists = TrainingLists(reader, split, queries, prefetched, recipe.batch, recipe.listing, seed)
    if recipe.run.lists == "top":
        share = lists.cited_share()
        if share == 0:
            raise InputError(
                f"corpus {corpus.name}: none of the first {depth} papers of any training query is cited, "
                "there is nothing to learn; raise model.negatives.depth, or take another retriever"
            )
        log.info(f"of the papers in the lists of training queries, {share:.1%} are cited")
    return lists, prefetcher.key(contexts, depth)


def _validation(
    config: ValidationConfig, corpus: Corpus, prefetcher: Prefetcher, seed: int
) -> tuple[Validation | None, str]:
    """What is validated on, None for nothing, and the name of what was prefetched for it."""
    split = corpus.splits.get(config.split)
    if split is None or len(split) == 0 or config.queries == 0:
        log.warning(f"corpus {corpus.name}: no validation, the last weights will be kept")
        return None, ""
    rows = sampled(split, config.queries, seed)
    contexts = split.contexts[rows]
    papers = prefetcher(contexts, config.candidates, "validation queries").all()
    validation = Validation(corpus, split, rows, papers)
    base = validation.base
    log.info(
        f"validation: {len(rows):,} queries, the best {config.candidates:,} of {prefetcher.retriever.name}: "
        f"MRR {base['base/mrr']:.3f}, "
        + "".join(f"R@{k} {base[f'base/recall@{k}']:.3f}, " for k in (1, 10) if f"base/recall@{k}" in base)
        + f"at best {base['ceiling']:.3f}"
    )
    return validation, prefetcher.key(contexts, config.candidates)
