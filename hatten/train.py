"""Training an encoder from a configuration: `python train.py model=hatten|nnselect|biencoder`.

What is measured on the validation split between rounds: recall and MRR.
What happens between rounds: validate, mine, save.
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
from hydra.utils import get_class, instantiate
from numpy.typing import NDArray
from omegaconf import DictConfig, OmegaConf
from torch import Tensor

from datasets.corpus import Corpus
from datasets.errors import InputError
from datasets.settings import read_own_settings, read_settings
from hatten.batches import TrainingData, steps_per_round
from hatten.documents import Documents
from hatten.encoder import HAttenEncoder
from hatten.mining import Pool, WordSets, mine, padded, sample
from hatten.module import EncoderModule
from hatten.recipe import Encoder, Recipe
from hatten.settings import EncoderBatchSettings, EncoderTraining, EncoderValidationSettings, MiningSettings
from retrieval.index import search_exact
from retrieval.vectors import Reader, encode, encode_queries, evaluating
from training.loop import HISTORY, History, Progress, WholeFiles, fit, resume_point, saver, start_anew
from training.settings import RECALL_AT


class Validation:
    """The validation queries of a run and the papers that they are searched in: the same after each round."""

    def __init__(self, config: EncoderValidationSettings, corpus: Corpus, seed: int) -> None:
        self.config, self.corpus = config, corpus
        split = corpus.splits.get(config.split)
        size = 0 if split is None else min(len(split), config.queries)
        self.contexts: NDArray[np.int64] = np.empty(0, np.int64)
        """[Q] rows of the contexts; none: nothing is measured"""
        self.candidates: NDArray[np.bool_] = np.zeros_like(corpus.is_candidate)
        """[P] papers that are searched"""
        if split is None or size == 0:
            return
        rng = np.random.default_rng((seed, 2))
        rows = np.sort(rng.permutation(len(split))[:size])
        self.contexts, cited = split.contexts[rows], split.positives.take(rows)
        self._positives = padded(cited, corpus.citing[self.contexts])[:, :-1]
        if not 0 < config.papers < np.count_nonzero(corpus.is_candidate):
            self.candidates = corpus.is_candidate
            return
        self.candidates[cited.values] = corpus.is_candidate[cited.values]
        others = np.flatnonzero(corpus.is_candidate & ~self.candidates)
        more = max(0, config.papers - int(np.count_nonzero(self.candidates)))
        self.candidates[rng.choice(others, min(more, len(others)), replace=False)] = True

    def measure(self, queries: NDArray[np.float32], papers: NDArray[np.float32]) -> dict[str, float]:
        """Vectors of the contexts [Q, D] and of all papers [P, D]; the number of papers only for a sample."""
        found = search_exact(
            queries,
            papers,
            self.config.depth,
            exclude=self.corpus.citing[self.contexts],
            candidates=self.candidates,
        )
        measured = recalls(found.papers, self._positives)
        if self.candidates is not self.corpus.is_candidate:
            measured["papers"] = float(np.count_nonzero(self.candidates))
        return measured


def recalls(papers: NDArray[Any], positives: NDArray[Any]) -> dict[str, float]:
    """Ranked papers [Q, k], cited ones [Q, most] (-1: none): MRR and share of the cited in the first k."""
    hits = (papers[:, None, :] == positives[:, :, None]) & (positives[:, :, None] >= 0)  # [Q, most, k]
    cited = (positives >= 0).sum(1)
    any_hit = hits.any(1)
    first = np.where(any_hit.any(1), any_hit.argmax(1), np.iinfo(np.int64).max - 1)
    out = {"mrr": float((1.0 / (first + 1.0)).mean())}
    for k in RECALL_AT:
        if k <= papers.shape[1]:
            out[f"recall@{k}"] = float((hits[:, :, :k].any(2).sum(1) / cited).mean())
    return out


MINED = "mined"
"""Where the pools are, in the folder of a run."""


class Rounds(pl.Callback):
    """Mines before the first round and after each but the last; validates after each; keeps the best weights.

    What it needs to go on is in its state: the pool's file and hash, the history. The arrays are in the file.
    """

    def __init__(
        self,
        best: Path,
        save: Callable[[Encoder, dict[str, Any], Path], None],
        mining: MiningSettings | None,
        validation: EncoderValidationSettings,
        seed: int,
        about: dict[str, Any],
    ) -> None:
        """best: where `save` puts the encoder of the best round, with what is known `about` it.

        mining: None where the data come with a pool of their own, or without.
        """
        self.folder, self.best, self.save, self.about = best.parent, best, save, about
        self.mining, self.validation, self.seed = mining, validation, seed
        self.history = History(self.folder)
        self._pool: dict[str, str] | None = None
        self._resumed = False
        self._words: WordSets | None = None
        self._losses: list[float] = []

    def state_dict(self) -> dict[str, Any]:
        return {"pool": self._pool, "history": self.history.rows}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._pool, self.history.rows = state_dict["pool"], list(state_dict["history"])
        self._resumed = True

    def setup(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        self._data: TrainingData = trainer.datamodule  # type: ignore[attr-defined]
        self._validation = Validation(self.validation, self._data.corpus, self.seed)

    def on_fit_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        assert isinstance(pl_module, EncoderModule)
        if self._pool is not None:
            self._data.pool = Pool.load(self.folder / self._pool["file"], self._pool["sha256"])
        if self._resumed and self._data.batch.stale:
            # Lightning restores its count of epochs only after this hook.
            candidates = self._data.corpus.is_candidate
            self._encode_papers(pl_module, int(self.history.rows[-1]["round"]), candidates)
        elif not self._resumed and self._data.batch.mined:
            self._between(pl_module, 0, more=True)

    def on_train_epoch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self._start, self._losses = time.monotonic(), []

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        self._losses.append(float(outputs["loss"]))

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        assert isinstance(pl_module, EncoderModule)
        done = trainer.current_epoch + 1
        seconds = time.monotonic() - self._start
        trained = {
            "train/loss": float(np.mean(self._losses)),
            "train/seconds": seconds,
            "train/steps_per_second": len(self._losses) / seconds,
        }
        self._between(pl_module, done, more=done < (trainer.max_epochs or 0), trained=trained)

    def _between(
        self,
        module: EncoderModule,
        done: int,
        more: bool,
        trained: dict[str, float] | None = None,
    ) -> None:
        """Encode the candidates once; measure on validation and mine for the next round with them."""
        data, start, row = self._data, time.monotonic(), dict(trained or {})
        contexts = self._validation.contexts
        wanted = self._validation.candidates.copy()
        mining = self.mining if more and data.batch.mined > 0 else None
        if mining is not None:
            rng = np.random.default_rng((self.seed, 3, done))
            queries = sample(data.queries_of(done), mining.queries, rng)
            searched = self._searched(mining, rng)
            wanted |= searched
        if data.batch.stale:
            wanted = data.corpus.is_candidate
        if not wanted.any():
            self._finish(module, done, row)
            return
        papers = self._encode_papers(module, done, wanted)
        if len(contexts):
            encoded = self._encode_queries(module, contexts, "validation queries")
            measured = self._validation.measure(encoded, papers)
            row |= {f"val/{name}": value for name, value in measured.items()}
        row["val/seconds"] = time.monotonic() - start
        if mining is not None:
            start = time.monotonic()
            self._mine(module, mining, done, queries, papers, searched)
            row["mining/seconds"] = time.monotonic() - start
        self._finish(module, done, row)

    def _searched(self, mining: MiningSettings, rng: np.random.Generator) -> NDArray[np.bool_]:
        """The papers to mine among [P]."""
        candidates = self._data.corpus.is_candidate
        if not 0 < mining.papers < candidates.sum():
            return candidates
        chosen = rng.choice(np.flatnonzero(candidates), mining.papers, replace=False)
        candidates = np.zeros_like(candidates)
        candidates[chosen] = True
        return candidates

    def _encode_papers(
        self, module: EncoderModule, done: int, wanted: NDArray[np.bool_]
    ) -> NDArray[np.float32]:
        """Vectors of the wanted papers [P, D], averaged weights after `done` rounds; zeros for the rest."""
        encoder, data, levels = module.best_encoder, self._data, []
        rows = np.flatnonzero(wanted)
        vectors = np.zeros((len(wanted), encoder.dim), np.float32)
        if isinstance(encoder, HAttenEncoder):
            encoder.mean_only = encoder.mean is not None and done <= module.schedule.mean_only_rounds

        def forward(documents: Documents) -> Tensor:
            if not data.batch.stale:
                return encoder.encode(documents)
            assert isinstance(encoder, HAttenEncoder)
            if encoder.mean_only:
                return encoder.encode(documents)
            hierarchical = encoder.hierarchical(documents)
            levels.append(hierarchical.cpu().numpy())
            return encoder.with_mean(documents, hierarchical)

        with evaluating(encoder):
            vectors[rows] = encode(forward, data.reader.papers, rows, encoder.dim, "papers")
        if data.batch.stale:
            module.stale = np.zeros_like(vectors)  # what the levels give while only the mean path is trained
            if levels:
                module.stale[rows] = np.concatenate(levels)
        return vectors

    def _encode_queries(
        self, module: EncoderModule, contexts: NDArray[np.int64], what: str
    ) -> NDArray[np.float32]:
        encoder = module.best_encoder
        with evaluating(encoder):
            return encode_queries(encoder.encode, self._data.reader, contexts, encoder.dim, what)

    def _mine(
        self,
        module: EncoderModule,
        mining: MiningSettings,
        done: int,
        queries: NDArray[np.int64],
        papers: NDArray[np.float32],
        searched: NDArray[np.bool_],
    ) -> None:
        data, depth = self._data, mining.depth
        if mining.positives and self._words is None:
            self._words = WordSets(data.corpus)
        encoded = self._encode_queries(module, data.split.contexts[queries], "training queries")
        data.pool = mine(data.corpus, data.split, queries, encoded, papers, depth, self._words, searched)
        file = f"{MINED}/round-{done:03d}.npz"
        previous = self._pool["file"] if self._pool is not None else None
        self._pool = {"file": file, "sha256": data.pool.save(self.folder / file)}
        # The last checkpoint still names the pool before this one; those before that are done with.
        for old in (self.folder / MINED).glob("round-*.npz"):
            if str(old.relative_to(self.folder)) not in (file, previous):
                old.unlink()

    def _finish(self, module: EncoderModule, done: int, row: dict[str, float]) -> None:
        """Log, keep the history, and save the weights when they are the best so far."""
        if done:
            module.log_dict(row)
        best = self.history.add(done, row, f"val/{self.validation.monitor}")
        if done and best:
            # No times: the same run gives the same file.
            measured = {name: value for name, value in row.items() if name.startswith("val/")}
            measured.pop("val/seconds", None)
            self.save(module.best_encoder, {**self.about, "round": done, **measured}, self.best)


log = logging.getLogger(__name__)

SETTINGS = ("data", "model", "seed")
"""The parts of the configuration that the weights depend on, beside those that the recipe names."""


def train(
    config: DictConfig,
    recipe: Recipe | None = None,
    data_of: Callable[[Reader, EncoderBatchSettings, int, int], TrainingData] = TrainingData,
    module_of: Callable[..., EncoderModule] = EncoderModule,
) -> Path:
    """Train by `config` (conf/train.yaml) in its output_dir; gives the file or folder of the best weights.

    recipe: in place of the one that the configuration names. data_of: (reader, batch, seed, workers) -> what
    is read. module_of: takes what EncoderModule takes.
    """
    model, folder, seed = config.model, Path(config.output_dir), config.seed
    if type(seed) is not int or seed < 0:
        raise InputError(f"seed={seed}: must be a whole number, not below 0")
    plain = OmegaConf.to_container(config, resolve=True)
    assert isinstance(plain, dict)
    # What is wrong with the options should be said before anything is prepared.
    if recipe is None:
        kind = get_class(model.recipe)
        settings = read_settings(kind.settings, plain["model"])
        recipe = kind(settings)
    else:
        settings = read_own_settings(EncoderTraining, plain["model"])
    mining = settings.mining if "mining" in plain["model"] else None
    batch, schedule, validation = settings.batch, settings.schedule, settings.validation
    assert recipe is not None
    of_mean_path = {"batch.stale": batch.stale, "schedule.mean_only_rounds": schedule.mean_only_rounds}
    for name, wanted in of_mean_path.items():
        if wanted and not recipe.mean_path:
            raise InputError(f"model.{name}={wanted}: needs model.encoder.residual=mean, of model=hatten")
    pl.seed_everything(seed, verbose=False)
    # Nothing here reads memory that is not filled.
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
    corpus: Corpus = instantiate(config.data)
    parts = recipe.build(corpus, config)
    data = data_of(parts.reader, batch, seed, settings.workers)
    rounds, steps = settings.rounds, steps_per_round(batch, len(data.split))
    module = module_of(
        parts.encoder,
        instantiate(model.optimizer),
        settings.loss,
        schedule,
        ema=settings.ema,
        seed=seed,
        total_steps=rounds * steps,
    )
    about = {
        "data": corpus.name,
        "corpus": corpus.fingerprint,
        **parts.about,
        **data.about,
        "model": plain["model"],
        "seed": seed,
    }
    best = folder / recipe.file
    state = Rounds(best, parts.save, mining, validation, seed, about)
    trainer: pl.Trainer = instantiate(
        config.trainer,
        max_epochs=rounds,
        reload_dataloaders_every_n_epochs=1,
        limit_val_batches=0,
        num_sanity_val_steps=0,
        logger=list(instantiate(config.logger).values()),
        plugins=[WholeFiles()],
        callbacks=[state, Progress(), saver(folder), *instantiate(config.callbacks or {}).values()],
    )
    same = {part: plain[part] for part in (*SETTINGS, *recipe.groups)}
    same |= {"corpus": corpus.fingerprint, **data.about}
    last = resume_point(folder, same) if config.resume else None
    if last is None:
        start_anew(folder, recipe.file, same, others=[MINED])
    log.info(
        f"training on {corpus.name}: {len(data.split):,} contexts, {rounds} rounds of {steps} steps, "
        f"{batch.queries} queries a step, in {parts.encoder.precision}, {torch.get_num_threads()} threads; "
        f"output in {folder}"
    )
    fit(trainer, module, data, last)
    log.info(f"weights of the best round: {best}; history: {folder / HISTORY}")
    return best
