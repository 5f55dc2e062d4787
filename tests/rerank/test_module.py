"""What of a transformer is trained, and that memory is saved without another gradient."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from datasets.corpus import Corpus
from datasets.errors import InputError
from rerank.cross_encoder import CrossEncoder
from rerank.data import Prefetched, QueryOrder, TrainingLists
from rerank.module import RerankModule
from rerank.pairs import PairReader
from rerank.settings import ListLossSettings, NegativesSettings, PairSettings, StepSettings
from retrieval.encoder import ArticleConfig
from training.settings import FineTuningSettings, RateSettings

Gradients = dict[str, torch.Tensor | None]


@pytest.fixture
def encoder(tiny_bert: Path) -> Callable[..., CrossEncoder]:
    def make(**options: Any) -> CrossEncoder:
        made = CrossEncoder.pretrained(
            ArticleConfig("tiny", path=str(tiny_bert)), PairSettings(max_tokens=64), "sigmoid", 0
        )
        FineTuningSettings(**{"precision": "float32", "dropout": 0.0, **options}).apply(made)
        return made

    return make


@pytest.fixture
def gradients(demo_corpus: Corpus, tmp_path: Path) -> Callable[..., Gradients]:
    """Of one step of 4 queries with 3 negatives each, divided and chunked as a batch says."""
    split = demo_corpus.split("train")
    found = np.random.default_rng(0).permuted(
        np.tile(np.arange(120, dtype=np.int32), (len(split), 1)), axis=1
    )
    np.save(tmp_path / "found.npy", found[:, :6])

    def compute(encoder: CrossEncoder, batch: StepSettings, loss: str = "listwise") -> Gradients:
        reader = PairReader(demo_corpus, encoder.tokenizer, encoder.config)
        queries = QueryOrder(np.arange(4), np.zeros(4, np.int64))
        prefetched = Prefetched([tmp_path / "found.npy"], len(split))
        lists = TrainingLists(reader, split, queries, prefetched, batch, NegativesSettings(3, 6), 0)
        module = RerankModule(encoder, torch.optim.SGD, ListLossSettings(loss), RateSettings(), 0.0, 0, 1)
        module.log = lambda *_, **__: None  # type: ignore[method-assign]  # there is no trainer
        assert len(lists) == batch.accumulate
        for item in range(len(lists)):
            (module.training_step(lists[item], item) / batch.accumulate).backward()
        return {name: weight.grad for name, weight in encoder.named_parameters()}

    return compute


def assert_same(one: Gradients, other: Gradients) -> None:
    for name, gradient in one.items():
        torch.testing.assert_close(gradient, other[name], atol=1e-6, rtol=1e-4, msg=name)


@pytest.mark.parametrize("loss", ["hinge", "pointwise", "listwise"])
def test_chunks_and_accumulation_do_not_change_the_gradient(
    encoder: Callable[..., CrossEncoder], gradients: Callable[..., Gradients], loss: str
) -> None:
    whole = gradients(encoder(), StepSettings(4, 1, 100_000), loss)
    assert sum(gradient is not None and bool(gradient.any()) for gradient in whole.values()) > 20
    for batch in (StepSettings(4, 1, 70), StepSettings(2, 2, 100_000), StepSettings(1, 4, 130)):
        assert_same(whole, gradients(encoder(), batch, loss))


def test_less_memory_is_the_same_gradient(
    encoder: Callable[..., CrossEncoder], gradients: Callable[..., Gradients]
) -> None:
    saving = encoder(gradient_checkpointing=True)
    assert saving.model.is_gradient_checkpointing
    assert_same(gradients(encoder(), StepSettings(4)), gradients(saving, StepSettings(4)))


@pytest.mark.parametrize(
    ("options", "frozen"),
    [
        ({}, ()),
        ({"freeze_embeddings": True}, ("model.embeddings.",)),
        ({"freeze_layers": 1}, ("model.embeddings.", "model.encoder.layer.0.")),
    ],
)
def test_what_is_frozen_gets_no_gradient_and_the_rest_the_same(
    encoder: Callable[..., CrossEncoder],
    gradients: Callable[..., Gradients],
    options: dict[str, Any],
    frozen: tuple[str, ...],
) -> None:
    whole, some = gradients(encoder(), StepSettings(4)), gradients(encoder(**options), StepSettings(4))
    assert {name for name, gradient in some.items() if gradient is None} == {
        name for name in whole if frozen and name.startswith(frozen)
    }
    assert_same({name: gradient for name, gradient in some.items() if gradient is not None}, whole)


def test_dropout_is_that_of_the_configuration(encoder: Callable[..., CrossEncoder]) -> None:
    made = encoder(dropout=0.3)
    drops = [part for part in made.modules() if isinstance(part, torch.nn.Dropout)]
    assert made.training and len(drops) > 3 and {part.p for part in drops} == {0.3}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"dropout": 1.0}, r"model\.dropout=1\.0: must be in 0\.\.1, below 1"),
        ({"precision": "half"}, "precision half: choose one of auto, float32, bfloat16"),
        ({"freeze_layers": 3}, r"model\.freeze_layers=3: the transformer has 2 layers"),
    ],
)
def test_options_that_do_not_work_are_named(
    given: dict[str, Any], message: str, encoder: Callable[..., CrossEncoder]
) -> None:
    with pytest.raises(InputError, match=message):
        encoder(**given)
