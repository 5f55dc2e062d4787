"""Train an encoder: `citerec train model=hatten|static|nnselect|biencoder`.

`train_encoder` runs the training; `EncoderRounds` validates, mines and saves between rounds.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytorch_lightning as pl
from hydra.utils import get_class
from numpy.typing import NDArray
from omegaconf import DictConfig
from torch import Tensor

from citerec.datasets.configuration import read_settings
from citerec.datasets.corpus import Corpus, Split
from citerec.datasets.errors import InputError
from citerec.datasets.records import TRAIN
from citerec.hatten.batches import TrainingData, steps_per_round
from citerec.hatten.documents import Documents
from citerec.hatten.encoder import Encoder, HAttenEncoder
from citerec.hatten.mining import Pool, WordSets, mine, mine_by_bm25, pad_positives, sample_rows
from citerec.hatten.module import EncoderModule
from citerec.hatten.recipe import Recipe
from citerec.hatten.settings import (
    EncoderBatchSettings,
    EncoderTraining,
    EncoderValidationSettings,
    MiningSettings,
)
from citerec.retrieval.index import search_exact
from citerec.retrieval.nets import as_numpy, eval_mode
from citerec.retrieval.vectors import Reader, encode, encode_queries
from citerec.training.loop import Training, TrainingRun, plain_config, run
from citerec.training.module import optimizer_factory
from citerec.training.rounds import VALIDATION_SEED, Rounds, recall_and_mrr, validation_sample

MINED = "mined"
"""Folder of the mined pools in the run folder."""


def train(config: DictConfig) -> Path:
    """Train the encoder of `model.recipe`; return the file or folder of the best weights."""
    recipe: Any = get_class(config.model.recipe)
    settings = read_settings(recipe.schema, plain_config(config)["model"])
    return train_encoder(config, recipe(settings), settings, settings.mining)


def train_encoder(
    config: DictConfig,
    recipe: Recipe,
    settings: EncoderTraining,
    mining: MiningSettings | None,
    make_data: Callable[[Reader, EncoderBatchSettings, int, int], TrainingData] = TrainingData,
    make_module: Callable[..., EncoderModule] = EncoderModule,
) -> Path:
    """Train an encoder of any kind.

    mining: None if the data come with their own pool. make_data: (reader, batch, seed, workers) -> data
    module. make_module: called like EncoderModule.
    """
    batch, schedule = settings.batch, settings.schedule
    for name, value in (
        ("batch.stale", batch.stale),
        ("schedule.mean_only_rounds", schedule.mean_only_rounds),
    ):
        if value and not recipe.mean_path:
            raise InputError(f"model.{name}={value}: needs model=hatten with model.encoder.residual=mean")
    optimizer = optimizer_factory(config.model.optimizer)

    def check_size(split: Split, corpus: Corpus) -> None:
        if batch.queries > len(split) > 0:
            raise InputError(
                f"model.batch.queries={batch.queries}: more than the {len(split):,} training contexts "
                f"of {corpus.name}"
            )

    def build(started: TrainingRun) -> Training:
        corpus, seed = started.corpus, started.seed
        check_size(corpus.split(TRAIN), corpus)  # before word vectors are trained
        parts = recipe.build(corpus, config)
        data = make_data(parts.reader, batch, seed, settings.workers)
        check_size(data.split, corpus)  # distillation may use fewer contexts
        steps = steps_per_round(batch, len(data.split))
        module = make_module(parts.encoder, optimizer, settings, seed, settings.rounds * steps)
        about = {**started.about, **parts.about, **data.about}
        best = started.folder / recipe.file
        return Training(
            module,
            data,
            EncoderRounds(best, parts.save, mining, settings.validation, seed, about),
            settings.rounds,
            {**{name: started.settings[name] for name in recipe.groups}, **data.about},
            f"{len(data.split):,} contexts, {settings.rounds} rounds of {steps} steps, "
            f"{batch.queries} queries per step, in {parts.encoder.precision}",
            files=[MINED],
        )

    return run(config, build)


class Validation:
    """The validation queries of a run and the papers to search, fixed for all rounds."""

    def __init__(self, config: EncoderValidationSettings, corpus: Corpus, seed: int) -> None:
        self.config, self.corpus = config, corpus
        split = corpus.splits.get(config.split)
        self.contexts: NDArray[np.int64] = np.empty(0, np.int64)
        """[Q] context rows; empty: no validation"""
        self.candidates: NDArray[np.bool_] = np.zeros_like(corpus.is_candidate)
        """[P] papers to search"""
        if split is None or len(split) == 0 or config.queries == 0:
            return
        rng = np.random.default_rng((seed, VALIDATION_SEED))
        rows = validation_sample(split, config.queries, rng)
        self.contexts, cited = split.contexts[rows], split.positives.take(rows)
        self._positives = pad_positives(cited, corpus.citing[self.contexts])[:, :-1]
        if not 0 < config.papers < np.count_nonzero(corpus.is_candidate):
            self.candidates = corpus.is_candidate
            return
        self.candidates[cited.values] = corpus.is_candidate[cited.values]
        others = np.flatnonzero(corpus.is_candidate & ~self.candidates)
        missing = max(0, config.papers - int(np.count_nonzero(self.candidates)))
        self.candidates[rng.choice(others, min(missing, len(others)), replace=False)] = True

    def measure(self, queries: NDArray[np.float32], papers: NDArray[np.float32]) -> dict[str, float]:
        """Vectors of the contexts [Q, D] and papers [P, D] -> measures, plus the size of a sampled pool."""
        citing = self.corpus.citing[self.contexts]
        found = search_exact(queries, papers, self.config.depth, exclude=citing, candidates=self.candidates)
        measures = recall_and_mrr(found.papers, self._positives)
        if self.candidates is not self.corpus.is_candidate:
            measures["papers"] = float(np.count_nonzero(self.candidates))
        return measures


class EncoderRounds(Rounds):
    """Mines before every round and validates after every round.

    The state holds only the file name and hash of the pool.
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
        """mining: None to use the pool of the data module, if any. Other arguments: see Rounds."""
        super().__init__(best, save, about, validation.monitor)
        self.mining, self.validation, self.seed = mining, validation, seed
        self._pool: dict[str, str] | None = None
        self._resumed = False
        self._words: WordSets | None = None

    def state_dict(self) -> dict[str, Any]:
        return {"pool": self._pool, **super().state_dict()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        super().load_state_dict(state_dict)
        self._pool, self._resumed = state_dict["pool"], True

    def setup(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        self._data: TrainingData = trainer.datamodule  # type: ignore[attr-defined]
        self._validation = Validation(self.validation, self._data.corpus, self.seed)

    def on_fit_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        assert isinstance(pl_module, EncoderModule)
        if self._pool is not None:
            self._data.pool = Pool.load(self.folder / self._pool["file"], self._pool["sha256"])
        if self._resumed and self._data.batch.stale:
            # Lightning restores current_epoch only after this hook.
            candidates = self._data.corpus.is_candidate
            self._encode_papers(pl_module, int(self.history.rows[-1]["round"]), candidates)
        elif not self._resumed and self._data.batch.mined:
            self.record(trainer, pl_module, 0, self.measure(trainer, pl_module, 0))

    def measure(self, trainer: pl.Trainer, module: EncoderModule, done: int) -> dict[str, float]:
        """Encode the papers once, for validation and for mining the next round's pool."""
        data, start = self._data, time.monotonic()
        row: dict[str, float] = {}
        contexts, wanted = self._validation.contexts, self._validation.candidates.copy()
        mining = self.mining if done < (trainer.max_epochs or 0) and data.batch.mined > 0 else None
        source = mining.first if mining is not None and done == 0 else "encoder"
        if source == "none":
            mining = None
        if mining is not None:
            rng = np.random.default_rng((self.seed, 3, done))
            queries = sample_rows(data.round_queries(done), mining.queries, rng)
            candidates = self._mining_candidates(mining, rng)
            if source == "encoder":
                wanted |= candidates
        if data.batch.stale:
            wanted = data.corpus.is_candidate
        if not wanted.any() and mining is None:
            return row
        papers = self._encode_papers(module, done, wanted)
        if len(contexts):
            encoded = self._encode_queries(module, contexts, "validation queries")
            measures = self._validation.measure(encoded, papers)
            row |= {f"val/{name}": value for name, value in measures.items()}
        row["val/seconds"] = time.monotonic() - start
        if mining is not None:
            start = time.monotonic()
            if mining.positives and self._words is None:
                self._words = WordSets(data.corpus)
            args = (data.corpus, data.split, queries)
            if source == "bm25":
                pool = mine_by_bm25(*args, mining.depth, self._words, candidates)
            else:
                encoded = self._encode_queries(module, data.split.contexts[queries], "training queries")
                pool = mine(*args, encoded, papers, mining.depth, self._words, candidates)
            self._set_pool(pool, done)
            row["mining/seconds"] = time.monotonic() - start
        return row

    def _mining_candidates(self, mining: MiningSettings, rng: np.random.Generator) -> NDArray[np.bool_]:
        """Return the papers to search for mining, [P]: all candidates or a random sample."""
        candidates = self._data.corpus.is_candidate
        if not 0 < mining.papers < candidates.sum():
            return candidates
        sample = np.zeros_like(candidates)
        sample[rng.choice(np.flatnonzero(candidates), mining.papers, replace=False)] = True
        return sample

    def _encode_papers(
        self, module: EncoderModule, done: int, wanted: NDArray[np.bool_]
    ) -> NDArray[np.float32]:
        """Encode the wanted papers with the averaged weights after `done` rounds: [P, D], zeros elsewhere."""
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
            output = encoder.encode_levels(documents)
            levels.append(output.cpu().numpy())
            return encoder.add_mean_path(documents, output)

        with eval_mode(encoder):
            vectors[rows] = encode(as_numpy(forward), data.reader.papers, rows, encoder.dim, "papers")
        if data.batch.stale:
            module.stale_vectors = np.zeros_like(vectors)
            if levels:  # empty while only the mean path is trained
                module.stale_vectors[rows] = np.concatenate(levels)
        return vectors

    def _encode_queries(
        self, module: EncoderModule, contexts: NDArray[np.int64], what: str
    ) -> NDArray[np.float32]:
        encoder = module.best_encoder
        with eval_mode(encoder):
            return encode_queries(as_numpy(encoder.encode), self._data.reader, contexts, encoder.dim, what)

    def _set_pool(self, pool: Pool, done: int) -> None:
        """Train on this pool from now on, and write it."""
        self._data.pool = pool
        file = f"{MINED}/round-{done:03d}.npz"
        previous = self._pool["file"] if self._pool is not None else None
        self._pool = {"file": file, "sha256": pool.save(self.folder / file)}
        # The last checkpoint still refers to the previous pool; older pools are not needed.
        for old in (self.folder / MINED).glob("round-*.npz"):
            if str(old.relative_to(self.folder)) not in (file, previous):
                old.unlink()
