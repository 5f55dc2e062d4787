"""Training a reranker: `python train.py model=scibert_reranker`.

After each round it is validated on a retriever's candidates, and the best weights are saved.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytorch_lightning as pl
import torch
from hydra.utils import instantiate
from lightning_utilities.core.rank_zero import rank_zero_only
from numpy.typing import NDArray
from omegaconf import DictConfig, OmegaConf
from pytorch_lightning.callbacks import ModelCheckpoint
from torch import Tensor

from datasets.corpus import Corpus, Split
from datasets.errors import InputError
from datasets.progress import counting
from datasets.records import TRAIN
from datasets.settings import read_settings
from hatten.mining import padded
from rerank.backends import batches
from rerank.cross_encoder import CrossEncoder
from rerank.data import CitedAndNegatives, Prefetcher, QueryOrder, RerankData, TopPapers, TrainingLists
from rerank.module import RerankModule, prepare_for_training
from rerank.pairs import PairReader
from rerank.settings import F1_AT, RerankerSettings, RerankingValidationSettings
from retrieval.base import ordered
from retrieval.settings import ArticleConfig
from retrieval.vectors import evaluating
from training.loop import EACH_ROUND, LAST, Progress, WholeFiles, fit, resume_point, start_anew
from training.rounds import HISTORY, History, recall_and_mrr

log = logging.getLogger(__name__)

BEST = "reranker"
"""The folder of the best weights, in that of a run."""

CANDIDATES = "candidates"
"""The folder of what was prefetched, in that of a run."""

SAME = ("data", "encoder", "model", "seed")
"""The parts of the configuration that a resumed run must share, beside what is prefetched."""

SHOWN = ("mrr", "recall@1", "recall@10", "base/mrr", "base/recall@10", "ceiling")


def train(config: DictConfig) -> Path:
    """Train by `config` (conf/train.yaml) in its output_dir; returns the folder of the best weights."""
    folder, seed, first = Path(config.output_dir), config.seed, getattr(rank_zero_only, "rank", 0) == 0
    if type(seed) is not int or seed < 0:
        raise InputError(f"seed={seed}: must be a whole number, not below 0")
    plain: Any = OmegaConf.to_container(config, resolve=True)
    settings = read_settings(RerankerSettings, plain["model"])  # wrong options before anything is prepared
    if not first:
        logging.getLogger().setLevel(logging.WARNING)  # the first process speaks for all
    pl.seed_everything(seed, verbose=False)
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
    corpus: Corpus = instantiate(config.data)
    encoder_config: ArticleConfig = instantiate(config.encoder)
    encoder = CrossEncoder.pretrained(encoder_config, settings.pairs, settings.head, seed)
    prepare_for_training(encoder, settings)
    reader = PairReader(corpus, encoder.tokenizer, settings.pairs)
    candidates = Path(config.candidates_dir or folder / CANDIDATES)
    prefetcher = Prefetcher(instantiate(config.retriever), corpus, candidates, config.index_dir)
    lists, prefetched = _lists(settings, corpus, prefetcher, reader, seed)
    validation, asked = _validation(settings.validation, corpus, prefetcher, seed)
    data = RerankData(lists, settings.validation.every, seed, settings.workers)
    optimizer = instantiate(config.model.optimizer)
    module = RerankModule(
        encoder, optimizer, settings.loss, settings.schedule, settings.ema, seed, data.steps
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
        accumulate_grad_batches=settings.batch.accumulate,
        reload_dataloaders_every_n_epochs=1,
        use_distributed_sampler=False,
        limit_val_batches=0,
        num_sanity_val_steps=0,
        logger=list(instantiate(config.logger).values()),
        plugins=[WholeFiles()],
        callbacks=[
            RerankingRounds(best, settings.validation, validation, reader, settings.batch.tokens, about),
            Progress(),
            ModelCheckpoint(folder, LAST.removesuffix(".ckpt"), enable_version_counter=False, **EACH_ROUND),
            *instantiate(config.callbacks or {}).values(),
        ],
    )
    settings.batch.share(trainer.world_size)
    same = {part: plain[part] for part in SAME} | {"corpus": corpus.fingerprint}
    same["candidates"] = [prefetched, asked]
    last: Path | None = folder / LAST
    if first:
        last = resume_point(folder, same) if config.resume else None
        if last is None:
            start_anew(folder, BEST, same)
    elif not config.resume or not (folder / LAST).exists():
        last = None
    log.info(
        f"training on {corpus.name}: {len(lists.queries.rows):,} queries, {data.steps:,} steps of "
        f"{settings.batch.queries * settings.batch.accumulate} queries with up to {lists.listing.most} "
        f"papers, by {prefetcher.retriever.name}, {data.rounds} rounds, in {encoder.precision}, "
        f"{torch.get_num_threads()} threads; output in {folder}"
    )
    fit(trainer, module, data, last)
    log.info(f"weights of the best round: {best}; history: {folder / HISTORY}")
    return best


def _lists(
    settings: RerankerSettings, corpus: Corpus, prefetcher: Prefetcher, reader: PairReader, seed: int
) -> tuple[TrainingLists, str]:
    """What is trained on, and the name of what was prefetched for it."""
    split, negatives = corpus.split(TRAIN), settings.negatives
    if len(split) == 0:
        raise InputError(f"corpus {corpus.name}: its train split is empty, there is nothing to train on")
    rows = np.flatnonzero(prefetcher.knows(split.contexts))
    queries = QueryOrder.sample(rows, settings.queries_per_epoch, settings.epochs, seed)
    contexts = split.contexts[np.unique(queries.rows)]
    prefetched = prefetcher(contexts, negatives.depth, "training queries")
    listing = TopPapers(negatives.depth) if settings.lists == "top" else CitedAndNegatives(negatives)
    lists = TrainingLists(reader, split, queries, prefetched, settings.batch, listing, seed)
    if settings.lists == "top":
        share = lists.cited_share()
        if share == 0:
            raise InputError(
                f"corpus {corpus.name}: none of the first {negatives.depth} papers of any training query "
                "is cited, there is nothing to learn; raise model.negatives.depth, or take another retriever"
            )
        log.info(f"of the papers in the lists of training queries, {share:.1%} are cited")
    return lists, prefetcher.key(contexts, negatives.depth)


def _validation(
    config: RerankingValidationSettings, corpus: Corpus, prefetcher: Prefetcher, seed: int
) -> tuple[RerankingValidation | None, str]:
    """What is validated on, None for nothing, and the name of what was prefetched for it."""
    split = corpus.splits.get(config.split)
    if split is None or len(split) == 0 or config.queries == 0:
        log.warning(f"corpus {corpus.name}: no validation, the last weights will be kept")
        return None, ""
    rows = validation_rows(split, config.queries, seed)
    contexts = split.contexts[rows]
    papers = prefetcher(contexts, config.candidates, "validation queries").all()
    validation = RerankingValidation(corpus, split, rows, papers)
    base = validation.base
    log.info(
        f"validation: {len(rows):,} queries, the best {config.candidates:,} of {prefetcher.retriever.name}: "
        f"MRR {base['base/mrr']:.3f}, "
        + "".join(f"R@{k} {base[f'base/recall@{k}']:.3f}, " for k in (1, 10) if f"base/recall@{k}" in base)
        + f"at best {base['ceiling']:.3f}"
    )
    return validation, prefetcher.key(contexts, config.candidates)


def validation_rows(split: Split, size: int, seed: int) -> NDArray[np.int64]:
    """A sample of rows of a split, ascending, all where there are fewer: the queries of hatten.train."""
    return np.sort(np.random.default_rng((seed, 2)).permutation(len(split))[:size])


class RerankingValidation:
    """Queries and their candidates: the same at each validation."""

    def __init__(
        self, corpus: Corpus, split: Split, rows: NDArray[np.int64], papers: NDArray[np.int32]
    ) -> None:
        """rows [Q] of the split; papers [Q, k], prefetched for them, best first, -1: none."""
        self.contexts, self.papers = split.contexts[rows], papers
        self._positives = padded(split.positives.take(rows), corpus.citing[self.contexts])[:, :-1]
        cited = self._positives >= 0
        found = ((papers[:, None, :] == self._positives[:, :, None]) & cited[:, :, None]).any(2)
        self.asked = np.flatnonzero(found.any(1))
        """Queries with a cited paper among the candidates: the order of the others makes no difference."""
        self.base = {f"base/{name}": value for name, value in self._measured(papers).items()}
        self.base["ceiling"] = float((found.sum(1) / cited.sum(1)).mean())

    def _measured(self, ranked: NDArray[np.integer]) -> dict[str, float]:
        """MRR, recall and, of 20 candidates or more, F1 of ranked papers [Q, k]."""
        measured = recall_and_mrr(ranked, self._positives)
        if ranked.shape[1] >= F1_AT:  # Nogueira et al. 2020: precision is of 20 papers, F1 of one query
            cited = self._positives >= 0
            hits = (ranked[:, None, :F1_AT] == self._positives[:, :, None]) & cited[:, :, None]
            measured[f"f1@{F1_AT}"] = float((2 * hits.sum((1, 2)) / (F1_AT + cited.sum(1))).mean())
        return measured

    def measure(
        self,
        encoder: CrossEncoder,
        reader: PairReader,
        tokens: int,
        rank: int = 0,
        processes: int = 1,
        summed: Callable[[Tensor], Tensor] = lambda own: own,
    ) -> dict[str, float]:
        """MRR, recall and F1 within the candidates, of the prefetched order too (`base/...`), and the best
        possible recall (`ceiling`).

        tokens: of a batch. Of several processes each scores its own queries; summed: adds up tensors of all.
        """
        there = np.zeros(self.papers.shape, np.bool_)
        there[self.asked] = self.papers[self.asked] >= 0
        own = np.zeros_like(there)
        own[self.asked[rank::processes]] = there[self.asked[rank::processes]]
        query, place = np.nonzero(own)
        logits = torch.zeros(2, *there.shape)  # and how often each pair was scored
        logits[1, query, place] = 1
        pairs = reader.pairs(self.contexts[query], self.papers[query, place])
        with evaluating(encoder), torch.inference_mode(), counting("validating", len(pairs)) as advance:
            for rows in batches(pairs.lengths, tokens):
                logits[0, query[rows], place[rows]] = encoder(*pairs.padded(rows)).cpu()
                advance(len(rows))
        grid, times = summed(logits).numpy()
        assert (times == there).all(), "every pair is scored by one process"
        if not np.isfinite(grid).all():
            raise InputError("the reranker's scores are no numbers any more: lower model.optimizer.lr")
        return self._measured(ordered(self.papers, grid, self.papers.shape[1]).papers) | self.base


class RerankingRounds(pl.Callback):
    """Validates after each round, saves the best weights, and stops when they do not get better any more.

    Its state is the history.
    """

    def __init__(
        self,
        best: Path,
        config: RerankingValidationSettings,
        validation: RerankingValidation | None,
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
        if self._past_best():  # of a resumed run that had stopped early
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

        def reduced(value: Tensor, how: str) -> Tensor:
            return torch.as_tensor(trainer.strategy.reduce(value, reduce_op=how)).cpu()

        # Lightning has divided each by the number that a step accumulates.
        loss = torch.stack(self._losses).mean() * trainer.accumulate_grad_batches
        row = {
            "step": float(trainer.global_step),
            "train/loss": float(reduced(loss, "mean")),
            "train/seconds": seconds,
            "train/pairs_per_second": float(reduced(torch.tensor(float(self._seen)), "sum")) / seconds,
        }
        if self.validation is not None:
            measured = self.validation.measure(
                pl_module.best_encoder,
                self.reader,
                self.tokens,
                trainer.global_rank,
                trainer.world_size,
                lambda own: reduced(own.to(pl_module.device), "sum"),
            )
            row |= {f"val/{name}": value for name, value in measured.items()}
            row["val/seconds"] = time.monotonic() - start
        logged = {name: value for name, value in row.items() if name != "step"}
        pl_module.log_dict(logged, rank_zero_only=True)
        done = trainer.current_epoch + 1
        if trainer.is_global_zero and self.history.add(done, row, f"val/{self.config.monitor}"):
            # No times: the same run gives the same file.
            of_run = {name: row[name] for name in row if not name.endswith(("seconds", "second"))}
            pl_module.best_encoder.save(self.best, {**self.about, "round": done, **of_run})
        self.history.rows = trainer.strategy.broadcast(self.history.rows)
        if self._past_best():
            log.info(f"no better {self.config.monitor} in {self.config.patience} validations: training ends")
            trainer.should_stop = True

    def _past_best(self) -> bool:
        """Whether the last `patience` validations were all no better than one before."""
        values = [row[name] for row in self.history.rows if (name := f"val/{self.config.monitor}") in row]
        if not self.config.patience or not values:
            return False
        return len(values) - 1 - int(np.argmax(values)) >= self.config.patience
