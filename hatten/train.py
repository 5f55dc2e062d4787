"""The training of encoders: HAtten, the static model, NNSelect and bi-encoders.

`train_encoder` runs it; `EncoderRounds` validates, mines and saves between rounds.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pytorch_lightning as pl
from numpy.typing import NDArray
from torch import Tensor

from citerec.base.errors import InputError
from citerec.datasets.corpus import Corpus
from citerec.datasets.records import TRAIN
from citerec.hatten.batches import TrainingData, steps_per_round
from citerec.hatten.documents import Documents
from citerec.hatten.encoder import Encoder, HAttenEncoder
from citerec.hatten.mining import Pool, WordSets, mine, mine_by_bm25, pad_positives, sample_rows
from citerec.hatten.module import EncoderModule
from citerec.hatten.settings import EncoderTraining, EncoderValidationSettings, MiningSettings
from citerec.retrieval.encoders.nets import as_numpy, eval_mode
from citerec.retrieval.indexes.index import search_exact
from citerec.retrieval.vectors import Reader, encode, encode_queries
from citerec.training.hub import Pretrained
from citerec.training.loop import Training, TrainingRun
from citerec.training.processes import WHOLE, Share
from citerec.training.rounds import VALIDATION_SEED, Rounds, recall_and_mrr, validation_sample

MINED = "mined"
"""Folder of the mined pools in the run folder."""


M = TypeVar("M", bound=Pretrained)


def start_training(
    run: TrainingRun, settings: EncoderTraining, corpus: Corpus, mean_path: bool = False
) -> None:
    """Check settings against the corpus before anything slow, and seed the random number generators.

    mean_path: whether the encoder has a mean path that can be trained on its own (hatten.layers).
    """
    batch = settings.batch
    for name, value in (
        ("batch.cached_negatives", batch.cached_negatives),
        ("schedule.mean_only_rounds", settings.schedule.mean_only_rounds),
    ):
        if value and not mean_path:
            raise InputError(f"model.{name}={value}: needs model=hatten with model.encoder.residual=mean")
    split = corpus.split(TRAIN)
    if batch.queries > len(split) > 0:
        raise InputError(
            f"model.batch.queries={batch.queries}: more than the {len(split):,} training contexts "
            f"of {corpus.name}"
        )
    if batch.queries < (processes := run.trainer.processes):
        raise InputError(
            f"model.batch.queries={batch.queries}: cannot be divided among {processes} processes; "
            f"set it to at least {processes}"
        )
    run.start()


def train_encoder(
    model: M,
    encoder: Encoder,
    reader: Reader,
    settings: EncoderTraining,
    run: TrainingRun,
    inputs: Mapping[str, Any],
) -> M:
    """Train the encoder of a model, and return the model with the best round's weights.

    model: the rest of it, and in `about` where the training starts from. inputs: what the encoder was built
    from besides corpus and settings; a resumed run must have the same.
    """
    corpus = reader.corpus
    data = TrainingData(reader, settings.batch, run.seed, settings.workers)
    steps = steps_per_round(settings.batch, len(data.split))
    about = {**run.about(corpus, settings), **model.about}
    training = Training(
        EncoderModule(encoder, settings, run.seed, settings.rounds * steps),
        data,
        EncoderRounds(run.path / model.folder, model, about, settings, run.seed),
        settings.rounds,
        inputs,
        f"{len(data.split):,} contexts, {settings.rounds} rounds of {steps} steps, "
        f"{settings.batch.queries} queries per step, in {encoder.precision}",
        files=[MINED],
    )
    return model.open(run.fit(corpus, settings, training))


class Validation:
    """The validation queries of a run and the papers to search, fixed for all rounds."""

    def __init__(self, config: EncoderValidationSettings, corpus: Corpus, seed: int) -> None:
        self.config, self.corpus = config, corpus
        self.contexts: NDArray[np.int64] = np.empty(0, np.int64)
        """[Q] context rows; empty: no validation"""
        self.candidates: NDArray[np.bool_] = np.zeros_like(corpus.is_candidate)
        """[P] papers to search"""
        if config.split.partition("/")[0] not in corpus.splits or config.queries == 0:
            return
        split = corpus.split(config.split)
        if len(split) == 0:
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

    def measure(
        self, queries: NDArray[np.float32], papers: NDArray[np.float32], share: Share = WHOLE
    ) -> dict[str, float]:
        """Vectors of the share's contexts and of papers [P, D] -> measures, and size of a sampled pool."""
        citing = self.corpus.citing[self.contexts[share.part(len(self.contexts))]]
        found = search_exact(queries, papers, self.config.depth, exclude=citing, candidates=self.candidates)
        measures = recall_and_mrr(share.collect(found.papers, len(self.contexts)), self._positives)
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
        model: Pretrained,
        about: dict[str, Any],
        settings: EncoderTraining,
        seed: int,
    ) -> None:
        """Arguments: see Rounds."""
        super().__init__(best, model, about, settings.validation.monitor)
        self.mining, self.validation, self.seed = settings.mining, settings.validation, seed
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
        if self._resumed and self._data.batch.cached_negatives:
            # Lightning restores current_epoch only after this hook.
            candidates = self._data.corpus.is_candidate
            self._encode_papers(pl_module, int(self.history.rows[-1]["round"]), candidates)
        elif not self._resumed and self._data.batch.mined:
            self.record(trainer, pl_module, 0, self.measure(trainer, pl_module, 0))

    def measure(self, trainer: pl.Trainer, module: EncoderModule, done: int) -> dict[str, float]:
        """Encode the papers once, for validation and for mining the next round's pool."""
        data, share, start = self._data, module.share, time.monotonic()
        row: dict[str, float] = {}
        contexts, wanted = self._validation.contexts, self._validation.candidates.copy()
        is_last = done >= (trainer.max_epochs or 0)
        mining = self.mining if data.batch.mined > 0 and not is_last else None
        source = mining.first if mining is not None and done == 0 else "encoder"
        if source == "none":
            mining = None
        if mining is not None:
            rng = np.random.default_rng((self.seed, 3, done))
            queries = sample_rows(data.round_queries(done), mining.queries, rng)
            candidates = self._mining_candidates(mining, rng)
            if source == "encoder":
                wanted |= candidates
        if data.batch.cached_negatives:
            wanted = data.corpus.is_candidate
        if not wanted.any() and mining is None:
            return row
        papers = self._encode_papers(module, done, wanted)
        if len(contexts):
            encoded = self._encode_queries(module, contexts, "validation queries")
            measures = self._validation.measure(encoded, papers, share)
            row |= {f"val/{name}": value for name, value in measures.items()}
        row["val/seconds"] = time.monotonic() - start
        if mining is not None:
            start = time.monotonic()
            if mining.positives and self._words is None:
                self._words = WordSets(data.corpus)
            args = (data.corpus, data.split, queries)
            if source == "bm25":
                pool = mine_by_bm25(*args, mining.depth, self._words, candidates, share)
            else:
                encoded = self._encode_queries(module, data.split.contexts[queries], "training queries")
                pool = mine(*args, encoded, papers, mining.depth, self._words, candidates, share)
            data.pool = pool
            if trainer.is_global_zero:
                self._write_pool(pool, done)
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
        """Encode the wanted papers with the averaged weights after `done` rounds: [P, D], zeros elsewhere.

        Each process encodes its share, and gets the others'.
        """
        encoder, data, levels = module.best_encoder, self._data, []
        rows = np.flatnonzero(wanted)
        own = rows[module.share.part(len(rows))]
        vectors = np.zeros((len(wanted), encoder.dim), np.float32)
        if isinstance(encoder, HAttenEncoder):
            encoder.mean_only = encoder.mean is not None and done <= module.schedule.mean_only_rounds

        def forward(documents: Documents) -> Tensor:
            if not data.batch.cached_negatives:
                return encoder.encode(documents)
            assert isinstance(encoder, HAttenEncoder)
            if encoder.mean_only:
                return encoder.encode(documents)
            output = encoder.encode_levels(documents)
            levels.append(output.cpu().numpy())
            return encoder.add_mean_path(documents, output)

        with eval_mode(encoder):
            vectors[own] = encode(as_numpy(forward), data.reader.papers, own, encoder.dim, "papers")
        module.share.merge(vectors, rows)
        if data.batch.cached_negatives:
            module.cached_vectors = np.zeros_like(vectors)
            if levels:  # empty while only the mean path is trained
                module.cached_vectors[own] = np.concatenate(levels)
            module.share.merge(module.cached_vectors, rows)
        return vectors

    def _encode_queries(
        self, module: EncoderModule, contexts: NDArray[np.int64], what: str
    ) -> NDArray[np.float32]:
        """Encode this process's share of the contexts."""
        encoder, own = module.best_encoder, contexts[module.share.part(len(contexts))]
        with eval_mode(encoder):
            return encode_queries(as_numpy(encoder.encode), self._data.reader, own, encoder.dim, what)

    def _write_pool(self, pool: Pool, done: int) -> None:
        file = f"{MINED}/round-{done:03d}.npz"
        previous = self._pool["file"] if self._pool is not None else None
        self._pool = {"file": file, "sha256": pool.save(self.folder / file)}
        # The last checkpoint still refers to the previous pool; older pools are not needed.
        for old in (self.folder / MINED).glob("round-*.npz"):
            if str(old.relative_to(self.folder)) not in (file, previous):
                old.unlink()
