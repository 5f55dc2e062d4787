"""Cached negatives (model=hatten_fast, not in the paper): mined and random papers reuse what the two levels
gave when all papers were last encoded, with a fresh mean path: many more negatives at the same cost."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytorch_lightning as pl
import torch
from numpy.typing import NDArray
from torch import Tensor

from citerec.hatten.encoder import Encoder, encode_documents
from citerec.hatten.static.network import ResidualEncoder
from citerec.hatten.training.batches import Batch
from citerec.hatten.training.mining import MiningPlan
from citerec.hatten.training.module import EncoderModule
from citerec.hatten.training.rounds import EncoderRounds


class FastModule(EncoderModule):
    """An EncoderModule with cached negatives."""

    cached_vectors: Tensor | None = None
    """[P, D] output of the two levels for each paper after the last round"""

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        checkpoint["cached_vectors"] = self.cached_vectors

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        self.cached_vectors = checkpoint.get("cached_vectors")

    def encode_others(self, batch: Batch) -> Tensor:
        encoder = self.encoder
        assert isinstance(encoder, ResidualEncoder)
        if self.cached_vectors is None or encoder.mean_only:
            return encoder.encode(batch.others)
        own = torch.as_tensor(batch.other_rows, device=self.device)[self.share.part(len(batch.other_rows))]
        return encoder.add_mean_path(batch.others, self.cached_vectors.index_select(0, own))


class FastRounds(EncoderRounds):
    """EncoderRounds that fill the cache."""

    def on_fit_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        assert isinstance(pl_module, FastModule)
        if pl_module.cached_vectors is not None:
            pl_module.cached_vectors = pl_module.cached_vectors.to(pl_module.device)
        super().on_fit_start(trainer, pl_module)

    def _wanted_papers(self, plan: MiningPlan | None) -> NDArray[np.bool_]:
        return self._data.corpus.is_candidate

    def encode_rows(self, encoder: Encoder, rows: NDArray[np.int64]) -> NDArray[np.float32]:
        assert isinstance(encoder, ResidualEncoder)

        def forward(documents: Any) -> Tensor:
            if encoder.mean_only:
                return encoder.encode(documents)
            self._levels.append(encoder.encode_levels(documents))
            return encoder.add_mean_path(documents, self._levels[-1])

        return encode_documents(encoder, self._data.reader.papers, rows, forward)

    def _encode_papers(
        self, module: EncoderModule, done: int, wanted: NDArray[np.bool_]
    ) -> NDArray[np.float32]:
        assert isinstance(module, FastModule)
        self._levels: list[Tensor] = []  # none while only the mean path is trained
        vectors, rows = super()._encode_papers(module, done, wanted), np.flatnonzero(wanted)
        cached = np.zeros_like(vectors)
        if self._levels:
            cached[rows[module.share.part(len(rows))]] = torch.cat(self._levels).cpu().numpy()
        module.share.merge(cached, rows)
        module.cached_vectors = torch.from_numpy(cached).to(module.device)
        return vectors
