"""Training a reranker from a configuration: `python train.py model=scibert_reranker`."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytorch_lightning as pl
import torch
from hydra.utils import instantiate
from lightning_utilities.core.rank_zero import rank_zero_only
from omegaconf import DictConfig, OmegaConf

from datasets.errors import InputError
from datasets.schema import TRAIN
from datasets.store import Corpus
from hatten.history import HISTORY
from hatten.options import at_least_1, options, own_options
from hatten.progress import Progress
from hatten.resuming import LAST, WholeFiles, fit, resume_point, saver, start_anew
from hatten.schedule import RateConfig
from rerank.cross_encoder import CrossEncoder
from rerank.datamodule import BatchConfig, Queries, RerankData, TrainingLists
from rerank.losses import LossConfig
from rerank.module import FineTuningConfig, RerankModule
from rerank.negatives import Listing, NegativesConfig, TopPapers
from rerank.pairs import PairConfig, PairReader
from rerank.prefetching import Prefetcher
from rerank.rounds import Rounds
from rerank.validation import Validation, ValidationConfig, sampled
from retrieval.models import ArticleConfig

log = logging.getLogger(__name__)

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
    schedule: RateConfig

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
            return options(kind, model[name], f"model.{name}")

        return cls(
            own_options(RunConfig, model),
            own_options(FineTuningConfig, model),
            model["head"],
            part(PairConfig, "pairs"),
            part(LossConfig, "loss"),
            part(BatchConfig, "batch"),
            part(NegativesConfig, "negatives"),
            part(ValidationConfig, "validation"),
            part(RateConfig, "schedule"),
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
