"""Training an encoder: `python train.py model=hatten|static|nnselect|biencoder`.

`train_encoder` is the whole of it; `EncoderRounds` is what happens between rounds: validate, mine, save.
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

from datasets.configuration import read_settings
from datasets.corpus import Corpus, Split
from datasets.errors import InputError
from datasets.records import TRAIN
from hatten.batches import TrainingData, steps_per_round
from hatten.documents import Documents
from hatten.encoder import Encoder, HAttenEncoder
from hatten.mining import Pool, WordSets, mine, mine_by_bm25, pad_positives, sample_rows
from hatten.module import EncoderModule
from hatten.recipe import Recipe
from hatten.settings import EncoderBatchSettings, EncoderTraining, EncoderValidationSettings, MiningSettings
from retrieval.index import search_exact
from retrieval.nets import as_numpy, eval_mode
from retrieval.vectors import Reader, encode, encode_queries
from training.loop import Training, TrainingRun, plain_config, run
from training.module import optimizer_of
from training.rounds import VALIDATION_SEED, Rounds, recall_and_mrr, validation_sample

MINED = "mined"
"""Where the pools are, in the folder of a run."""


def train(config: DictConfig) -> Path:
    """Train the encoder that `model.recipe` names; gives the file or folder of the best weights."""
    kind: Any = get_class(config.model.recipe)
    settings = read_settings(kind.schema, plain_config(config)["model"])
    return train_encoder(config, kind(settings), settings, settings.mining)


def train_encoder(
    config: DictConfig,
    recipe: Recipe,
    settings: EncoderTraining,
    mining: MiningSettings | None,
    data_of: Callable[[Reader, EncoderBatchSettings, int, int], TrainingData] = TrainingData,
    module_of: Callable[..., EncoderModule] = EncoderModule,
) -> Path:
    """The training of an encoder of any kind.

    mining: None where the data bring a pool of their own. data_of: (reader, batch, seed, workers) -> what is
    read. module_of: takes what EncoderModule takes.
    """
    batch, schedule = settings.batch, settings.schedule
    of_mean_path = {"batch.stale": batch.stale, "schedule.mean_only_rounds": schedule.mean_only_rounds}
    for name, wanted in of_mean_path.items():
        if wanted and not recipe.mean_path:
            raise InputError(f"model.{name}={wanted}: needs model.encoder.residual=mean, of model=hatten")
    optimizer = optimizer_of(config.model.optimizer)

    def check_size(split: Split, corpus: Corpus) -> None:
        if batch.queries > len(split) > 0:
            raise InputError(
                f"model.batch.queries={batch.queries}: more than the {len(split):,} training contexts "
                f"of {corpus.name}"
            )

    def build(given: TrainingRun) -> Training:
        check_size(given.corpus.split(TRAIN), given.corpus)  # before word vectors are trained
        parts = recipe.build(given.corpus, config)
        data = data_of(parts.reader, batch, given.seed, settings.workers)
        check_size(data.split, given.corpus)  # of fewer contexts, where a teacher has scored some
        steps = steps_per_round(batch, len(data.split))
        module = module_of(parts.encoder, optimizer, settings, given.seed, settings.rounds * steps)
        about = {**given.about, **parts.about, **data.about}
        best = given.folder / recipe.file
        return Training(
            module,
            data,
            EncoderRounds(best, parts.save, mining, settings.validation, given.seed, about),
            settings.rounds,
            {**{name: given.settings[name] for name in recipe.groups}, **data.about},
            f"{len(data.split):,} contexts, {settings.rounds} rounds of {steps} steps, "
            f"{batch.queries} queries a step, in {parts.encoder.precision}",
            files=[MINED],
        )

    return run(config, build)


class Validation:
    """The validation queries of a run and the papers searched for them: the same after each round."""

    def __init__(self, config: EncoderValidationSettings, corpus: Corpus, seed: int) -> None:
        self.config, self.corpus = config, corpus
        split = corpus.splits.get(config.split)
        self.contexts: NDArray[np.int64] = np.empty(0, np.int64)
        """[Q] rows of the contexts; none: nothing is measured"""
        self.candidates: NDArray[np.bool_] = np.zeros_like(corpus.is_candidate)
        """[P] papers that are searched"""
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
        more = max(0, config.papers - int(np.count_nonzero(self.candidates)))
        self.candidates[rng.choice(others, min(more, len(others)), replace=False)] = True

    def measure(self, queries: NDArray[np.float32], papers: NDArray[np.float32]) -> dict[str, float]:
        """Vectors of the contexts [Q, D] and of all papers [P, D] -> measures, for a sample with its size."""
        citing = self.corpus.citing[self.contexts]
        found = search_exact(queries, papers, self.config.depth, exclude=citing, candidates=self.candidates)
        measured = recall_and_mrr(found.papers, self._positives)
        if self.candidates is not self.corpus.is_candidate:
            measured["papers"] = float(np.count_nonzero(self.candidates))
        return measured


class EncoderRounds(Rounds):
    """Mines before the first round and after each but the last; validates after each.

    The state names the pool's file and hash; the arrays are in the file.
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
        """mining: None where the data come with a pool of their own, or without; others: as for Rounds."""
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
            # Lightning restores its count of epochs only after this hook.
            candidates = self._data.corpus.is_candidate
            self._encode_papers(pl_module, int(self.history.rows[-1]["round"]), candidates)
        elif not self._resumed and self._data.batch.mined:
            self.keep(trainer, pl_module, 0, self.measure(trainer, pl_module, 0))

    def measure(self, trainer: pl.Trainer, module: EncoderModule, done: int) -> dict[str, float]:
        """Encode the candidates once; measure on validation and mine for the next round with them."""
        data, start = self._data, time.monotonic()
        row: dict[str, float] = {}
        contexts, wanted = self._validation.contexts, self._validation.candidates.copy()
        mining = self.mining if done < (trainer.max_epochs or 0) and data.batch.mined > 0 else None
        source = mining.first if mining is not None and done == 0 else "encoder"
        if source == "none":
            mining = None
        if mining is not None:
            rng = np.random.default_rng((self.seed, 3, done))
            queries = sample_rows(data.queries_of(done), mining.queries, rng)
            searched = self._searched(mining, rng)
            if source == "encoder":
                wanted |= searched
        if data.batch.stale:
            wanted = data.corpus.is_candidate
        if not wanted.any() and mining is None:
            return row
        papers = self._encode_papers(module, done, wanted)
        if len(contexts):
            encoded = self._encode_queries(module, contexts, "validation queries")
            measured = self._validation.measure(encoded, papers)
            row |= {f"val/{name}": value for name, value in measured.items()}
        row["val/seconds"] = time.monotonic() - start
        if mining is not None:
            start = time.monotonic()
            if mining.positives and self._words is None:
                self._words = WordSets(data.corpus)
            of = (data.corpus, data.split, queries)
            if source == "bm25":
                pool = mine_by_bm25(*of, mining.depth, self._words, searched)
            else:
                encoded = self._encode_queries(module, data.split.contexts[queries], "training queries")
                pool = mine(*of, encoded, papers, mining.depth, self._words, searched)
            self._keep_pool(pool, done)
            row["mining/seconds"] = time.monotonic() - start
        return row

    def _searched(self, mining: MiningSettings, rng: np.random.Generator) -> NDArray[np.bool_]:
        """The papers to mine among [P]."""
        candidates = self._data.corpus.is_candidate
        if not 0 < mining.papers < candidates.sum():
            return candidates
        searched = np.zeros_like(candidates)
        searched[rng.choice(np.flatnonzero(candidates), mining.papers, replace=False)] = True
        return searched

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

        with eval_mode(encoder):
            vectors[rows] = encode(as_numpy(forward), data.reader.papers, rows, encoder.dim, "papers")
        if data.batch.stale:
            module.stale = np.zeros_like(vectors)  # what the levels give while only the mean path is trained
            if levels:
                module.stale[rows] = np.concatenate(levels)
        return vectors

    def _encode_queries(
        self, module: EncoderModule, contexts: NDArray[np.int64], what: str
    ) -> NDArray[np.float32]:
        encoder = module.best_encoder
        with eval_mode(encoder):
            return encode_queries(as_numpy(encoder.encode), self._data.reader, contexts, encoder.dim, what)

    def _keep_pool(self, pool: Pool, done: int) -> None:
        """Train with it from now on, and write it."""
        self._data.pool = pool
        file = f"{MINED}/round-{done:03d}.npz"
        previous = self._pool["file"] if self._pool is not None else None
        self._pool = {"file": file, "sha256": pool.save(self.folder / file)}
        # The last checkpoint still names the pool before this one; those before that are done with.
        for old in (self.folder / MINED).glob("round-*.npz"):
            if str(old.relative_to(self.folder)) not in (file, previous):
                old.unlink()
