"""The Lightning module that trains a reranker, and what of a transformer is trained.

What a reranker is trained to minimise: for each query a list of papers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import pytorch_lightning as pl
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from datasets.errors import InputError
from rerank.cross_encoder import CrossEncoder
from rerank.data import Lists
from retrieval.vectors import precision
from training.settings import RateSettings


def hinge_loss(scores: Tensor, there: Tensor, margin: float = 0.1) -> Tensor:
    """Mean over queries of the mean over negatives of max(0, s(q, n) - s(q, p) + margin).

    Gu et al. 2022, equation 3, with one cited paper a query (section 4.3).

    scores: [Q, 1 + n] of the cited paper (first) and its negatives, after the sigmoid; there: bool, which of
    them are there; a query without negatives counts 0.
    """
    negatives = there[:, 1:]
    hinges = F.relu(scores[:, 1:] - scores[:, :1] + margin).masked_fill(~negatives, 0.0)
    return (hinges.sum(1) / negatives.sum(1).clamp(min=1)).mean()


def pointwise_loss(logits: Tensor, there: Tensor, relevant: Tensor) -> Tensor:
    """Mean over queries of the mean cross-entropy of its pairs, each by itself: Nogueira et al. 2020, eq. 1.

    logits: [Q, n], before the sigmoid; there, relevant: bool [Q, n], which pairs are there, and are of a
    cited paper.
    """
    labels = relevant.to(logits.dtype)
    entropy = F.binary_cross_entropy_with_logits(logits, labels, reduction="none").masked_fill(~there, 0.0)
    return (entropy.sum(1) / there.sum(1)).mean()


def listwise_loss(logits: Tensor, there: Tensor, temperature: float = 1.0) -> Tensor:
    """Mean over queries of the cross-entropy of the cited paper among its list (a softmax over the list).

    ListNet's top-one probability with a single relevant paper: Cao et al. 2007.

    logits: [Q, 1 + n], before the sigmoid; there: as for `hinge_loss`.
    """
    scaled = (logits / temperature).masked_fill(~there, -torch.inf)
    return (torch.logsumexp(scaled, 1) - scaled[:, 0]).mean()


@dataclass(frozen=True)
class LossConfig:
    """Which of them, on a reranker's logits."""

    name: str = "hinge"
    """hinge (of sigmoid scores; Gu et al. 2022) | pointwise (Nogueira et al. 2020) | listwise"""
    margin: float = 0.1
    """of hinge"""
    temperature: float = 1.0
    """of listwise"""

    def __post_init__(self) -> None:
        if self.name not in ("hinge", "pointwise", "listwise"):
            raise InputError(f"model.loss.name={self.name}: choose hinge, pointwise or listwise")
        if self.temperature <= 0:
            raise InputError(f"model.loss.temperature={self.temperature}: must be above 0")

    def __call__(self, logits: Tensor, there: Tensor, relevant: Tensor) -> Tensor:
        """logits [Q, n] of lists, `there` and `relevant` bool, as the loss wants them -> scalar"""
        if self.name == "hinge":
            return hinge_loss(torch.sigmoid(logits), there, self.margin)
        if self.name == "pointwise":
            return pointwise_loss(logits, there, relevant)
        return listwise_loss(logits, there, self.temperature)


SHORT = 256
"""Tokens of a pair up to which plain attention is faster in training on a CPU than torch's fused one: by a
quarter at 128, because that is slow on the way back. Its memory grows with the square of the length."""

Optimizer = Callable[[Iterable[dict[str, Any]]], torch.optim.Optimizer]


@dataclass(frozen=True)
class FineTuningConfig:
    """How the transformer is trained."""

    precision: str = "auto"
    """of matrix products: auto, float32 or bfloat16; weights are float32"""
    dropout: float = 0.1
    """in place of what it was pretrained with; on a CPU, to draw it takes time"""
    gradient_checkpointing: bool = False
    """compute the layers again on the way back: less memory for more time"""
    freeze_embeddings: bool = False
    """leave the subwords' vectors as they were pretrained"""
    freeze_layers: int = 0
    """the lowest layers that are left as they were pretrained, the embeddings with them"""

    def __post_init__(self) -> None:
        precision(self.precision)
        if self.dropout >= 1:
            raise InputError(f"model.dropout={self.dropout}: must be in 0..1, below 1")

    def apply(self, encoder: CrossEncoder) -> None:
        """Make an encoder ready to be trained so; InputError if it has fewer layers than are to be frozen."""
        encoder.train()  # a pretrained one comes in evaluation mode
        encoder.precision = precision(self.precision)
        for part in encoder.modules():
            if isinstance(part, nn.Dropout):
                part.p = self.dropout
        if not torch.cuda.is_available() and encoder.config.max_tokens <= SHORT:
            encoder.model.set_attn_implementation("eager")
        if self.gradient_checkpointing:
            encoder.model.gradient_checkpointing_enable({"use_reentrant": False})
        if (pooler := getattr(encoder.model, "pooler", None)) is not None:
            pooler.requires_grad_(False)  # the head takes its place
        if self.freeze_embeddings or self.freeze_layers:
            model = encoder.model
            getattr(model, "embeddings", model.get_input_embeddings()).requires_grad_(False)
        for layer in layers(encoder.model, self.freeze_layers):
            layer.requires_grad_(False)


def layers(model: nn.Module, count: int) -> list[nn.Module]:
    """The lowest layers of a transformer; InputError if it has fewer, or none that can be told."""
    depth = getattr(getattr(model, "config", None), "num_hidden_layers", 0)
    stacks = [part for part in model.modules() if isinstance(part, nn.ModuleList) and len(part) == depth]
    if count > depth or (count and not stacks):
        raise InputError(
            f"model.freeze_layers={count}: the transformer has {depth if stacks else 'no'} layers"
        )
    return list(stacks[0])[:count] if count else []


class RerankModule(pl.LightningModule):
    """Trains `encoder`; `best_encoder`, of averaged weights if so wished, is validated and saved."""

    def __init__(
        self,
        encoder: CrossEncoder,
        optimizer: Optimizer,
        loss: LossConfig,
        schedule: RateSettings,
        ema: float,
        seed: int,
        total_steps: int,
    ) -> None:
        """ema: decay of the moving average at each step; 0: the weights themselves."""
        super().__init__()
        if not 0 <= ema < 1:
            raise InputError(f"model.ema={ema}: must be in 0..1, below 1")
        self.encoder, self.loss, self.schedule, self.seed = encoder, loss, schedule, seed
        self.average: AveragedModel | None = None
        if ema:
            self.average = AveragedModel(encoder, multi_avg_fn=get_ema_multi_avg_fn(ema))
            self.average.requires_grad_(False)
        self._averaged = 0
        self._make_optimizer, self._total_steps = optimizer, total_steps

    @property
    def best_encoder(self) -> CrossEncoder:
        """The encoder that is validated and saved."""
        found = self.encoder if self.average is None else self.average.module
        assert isinstance(found, CrossEncoder)
        return found

    def on_train_epoch_start(self) -> None:
        # A resumed round draws the dropout that an uninterrupted one draws, each process its own.
        torch.manual_seed((self.seed * 1_000_003 + self.current_epoch) * 1_009 + self.global_rank)
        self._averaged = self.global_step

    def training_step(self, batch: Lists, step: int) -> Tensor:
        logits = torch.cat([self.encoder(*chunk) for chunk in batch.chunks])
        flat = logits.new_zeros(batch.there.numel()).index_copy(0, batch.place, logits)
        loss = self.loss(flat.view(batch.there.shape), batch.there, batch.relevant)
        self.log("train/loss", loss.detach(), batch_size=len(batch.there))
        return loss

    def on_train_batch_end(self, outputs: object, batch: Lists, batch_idx: int) -> None:
        if self.average is not None and self.global_step > self._averaged:  # a step is whole
            self.average.update_parameters(self.encoder)
            self._averaged = self.global_step

    def configure_optimizers(self) -> Any:
        trained = [weight for weight in self.encoder.parameters() if weight.requires_grad]
        optimizer = self._make_optimizer([{"params": trained}])
        rate = torch.optim.lr_scheduler.LambdaLR(
            optimizer, lambda step: self.schedule.rate(step, self._total_steps)
        )
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": rate, "interval": "step"}}
