"""Gradients do not depend on chunking; validation measures and losses match plain loops."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from citerec.base.errors import InputError
from citerec.datasets.columns import Ragged
from citerec.datasets.corpus import Corpus, Split
from citerec.rerank.cross_encoder.data import Prefetched, QueryOrder, TrainingLists
from citerec.rerank.cross_encoder.network import CrossEncoder
from citerec.rerank.cross_encoder.pairs import PairReader
from citerec.rerank.cross_encoder.train import (
    RerankingValidation,
    RerankModule,
    hinge_loss,
    list_loss,
    listwise_loss,
    pointwise_loss,
    prepare_for_training,
)
from citerec.rerank.settings import ListLossSettings, NegativesSettings, RerankerSettings, StepSettings
from citerec.tests.processes import in_processes
from citerec.training.processes import Share
from citerec.training.settings import FineTuningSettings

Gradients = dict[str, Tensor]
Make = Callable[..., CrossEncoder]


@pytest.fixture
def prepared(make_encoder: Make) -> Make:
    def make(**options: Any) -> CrossEncoder:
        made = make_encoder()
        prepare_for_training(made, FineTuningSettings(**{"precision": "float32", **options}))
        return made

    return make


@pytest.fixture
def gradients(demo_corpus: Corpus, tmp_path: Path) -> Callable[..., Gradients]:
    """Return a function that computes the gradients of one step: 4 queries with 3 negatives each."""
    split, rng = demo_corpus.split("train"), np.random.default_rng(0)
    found = rng.permuted(np.tile(np.arange(120, dtype=np.int32), (len(split), 1)), axis=1)
    np.save(tmp_path / "found.npy", found[:, :6])

    def compute(encoder: CrossEncoder, batch: StepSettings, loss: str = "listwise") -> Gradients:
        reader = PairReader(demo_corpus, encoder.tokenizer, encoder.config)
        queries = QueryOrder(np.arange(4), np.zeros(4, np.int64))
        prefetched = Prefetched([tmp_path / "found.npy"])
        lists = TrainingLists(reader, split, queries, prefetched, batch, NegativesSettings(3, 6), 0)
        module = RerankModule(encoder, RerankerSettings(loss=ListLossSettings(loss)), 0, 1)
        module.log = lambda *_, **__: None  # type: ignore[method-assign]  # there is no trainer
        assert len(lists) == batch.accumulate
        for item in range(len(lists)):
            (module.training_step(lists[item], item) / batch.accumulate).backward()
        found = {name: weight.grad for name, weight in encoder.named_parameters()}
        assert all(gradient is not None for gradient in found.values())
        return found  # type: ignore[return-value]

    return compute


def assert_same(one: Gradients, other: Gradients) -> None:
    for name, gradient in one.items():
        torch.testing.assert_close(gradient, other[name], atol=1e-6, rtol=1e-4, msg=name)


@pytest.mark.parametrize("loss", ["hinge", "pointwise", "listwise"])
def test_chunks_and_accumulation_do_not_change_the_gradient(
    prepared: Make, gradients: Callable[..., Gradients], loss: str
) -> None:
    whole = gradients(prepared(), StepSettings(4, 1, 100_000), loss)
    assert sum(bool(gradient.any()) for gradient in whole.values()) > 20
    for batch in (StepSettings(4, 1, 70), StepSettings(2, 2, 100_000), StepSettings(1, 4, 130)):
        assert_same(whole, gradients(prepared(), batch, loss))


def test_dropout_is_set_from_the_settings(prepared: Make) -> None:
    made = prepared(dropout=0.3)
    drops = [part for part in made.modules() if isinstance(part, torch.nn.Dropout)]
    assert made.training and len(drops) > 3 and {part.p for part in drops} == {0.3}


@pytest.fixture
def encoder(make_encoder: Make) -> CrossEncoder:
    return make_encoder("linear")


@pytest.fixture(scope="module")
def validation(demo_corpus: Corpus) -> RerankingValidation:
    """12 queries, one with two cited papers; 20 candidates each, fewer for one; some targets are missed."""
    given, rng = demo_corpus.split("val"), np.random.default_rng(0)
    cited = [list(one) for one in given.positives]
    cited[2] = [5, 9]
    split = Split("val", given.contexts, Ragged.from_rows(cited))
    rows = np.arange(12)
    papers = np.stack([rng.permutation(120)[:20] for _ in rows]).astype(np.int32)
    for row in range(0, 12, 2):
        if cited[row][0] not in papers[row]:
            papers[row, row] = cited[row][0]
    papers[4, 9:] = -1
    return RerankingValidation(split.take(rows), papers)


def test_validation_measures_match_plain_loops(
    validation: RerankingValidation, encoder: CrossEncoder, demo_corpus: Corpus
) -> None:
    reader = PairReader(demo_corpus, encoder.tokenizer, encoder.config)
    found = validation.measure(encoder, reader, 300)
    ranked, base = [], []
    for context, papers in zip(validation.contexts, validation.papers, strict=True):
        papers = papers[papers >= 0]
        with torch.inference_mode():
            logits = encoder(*reader.pairs(np.repeat(context, len(papers)), papers).padded())
        ranked.append(papers[torch.argsort(logits, descending=True)].tolist())
        base.append(papers.tolist())
    cited = [set(row[row >= 0].tolist()) for row in validation._positives]
    for lists, prefix in ((ranked, ""), (base, "base/")):
        places = [
            [place for place, one in enumerate(line) if one in of]
            for line, of in zip(lists, cited, strict=True)
        ]
        within = [sum(place < 10 for place in of) for of in places]
        expected = {
            "mrr": [1 / (1 + of[0]) if of else 0.0 for of in places],
            "recall@10": [hits / len(of) for hits, of in zip(within, cited, strict=True)],
        }
        for name, values in expected.items():
            assert found[f"{prefix}{name}"] == pytest.approx(np.mean(values)), name
    assert found["mrr"] != found["base/mrr"]
    within_reach = [len(of & set(line)) / len(of) for of, line in zip(cited, base, strict=True)]
    assert found["ceiling"] == pytest.approx(np.mean(within_reach)) and 0.4 < found["ceiling"] < 1
    split = Split("val", np.array([0]), Ragged.from_rows([range(12)]))  # ten places hold ten of twelve papers
    assert RerankingValidation(split, np.arange(12, dtype=np.int32)[None]).base["ceiling"] == 10 / 12


def test_processes_score_each_pair_once_and_agree_on_the_measures(
    validation: RerankingValidation,
    encoder: CrossEncoder,
    demo_corpus: Corpus,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reader = PairReader(demo_corpus, encoder.tokenizer, encoder.config)
    whole = validation.measure(encoder, reader, 300)
    for count in (2, 3):
        measured = in_processes(count, lambda share: validation.measure(encoder, reader, 300, share))
        assert measured == [whole] * count
    monkeypatch.setattr(Share, "sum", lambda share, own: own)
    with pytest.raises(AssertionError, match="every pair is scored by one process"):
        validation.measure(encoder, reader, 300, Share(0, 3))


def test_divergence_raises_one_line(
    validation: RerankingValidation,
    encoder: CrossEncoder,
    demo_corpus: Corpus,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reader = PairReader(demo_corpus, encoder.tokenizer, encoder.config)
    infinite = torch.tensor([torch.inf, 1.0])[:, None, None]
    monkeypatch.setattr(Share, "sum", lambda share, own: own * infinite)
    with pytest.raises(InputError, match=r"scores are not finite; lower model\.optimizer\.lr"):
        validation.measure(encoder, reader, 300)


# Losses compared with plain Python.

LISTS = st.lists(
    st.lists(st.tuples(st.floats(-8, 8), st.booleans()), min_size=4, max_size=4), min_size=1, max_size=4
)


def tensors(lists: list[list[tuple[float, bool]]]) -> tuple[Tensor, Tensor, Tensor]:
    """Make logits, mask and relevance; the first paper of each list is cited."""
    logits = torch.tensor([[value for value, _ in row] for row in lists], dtype=torch.float64)
    mask = torch.tensor([[here for _, here in row] for row in lists])
    mask[:, 0] = True
    return logits, mask, torch.arange(4).expand(mask.shape) == 0


@given(LISTS, st.lists(st.booleans(), min_size=16, max_size=16))
def test_losses_match_plain_loops(lists: list[list[tuple[float, bool]]], cited: list[bool]) -> None:
    logits, mask, _ = tensors(lists)
    relevant = torch.tensor(cited).view(4, 4)[: len(lists)] & mask  # pointwise lists may have any number
    hinge, pointwise, listwise = [], [], []
    for row, here, labels in zip(logits.tolist(), mask.tolist(), relevant.tolist(), strict=True):
        scores = [1 / (1 + math.exp(-value)) for value in row]
        negatives = [place for place in range(1, len(row)) if here[place]]
        hinges = [max(0.0, scores[place] - scores[0] + 0.3) for place in negatives]
        hinge.append(sum(hinges) / len(hinges) if hinges else 0.0)
        losses = [-math.log(scores[i] if labels[i] else 1 - scores[i]) for i in [0, *negatives]]
        pointwise.append(sum(losses) / len(losses))
        total = sum(math.exp(row[place] / 2) for place in [0, *negatives])
        listwise.append(-math.log(math.exp(row[0] / 2) / total))
    for found, expected in (
        (hinge_loss(torch.sigmoid(logits), mask, 0.3), hinge),
        (pointwise_loss(logits, mask, relevant), pointwise),
        (listwise_loss(logits, mask, 2.0), listwise),
    ):
        assert found.item() == pytest.approx(sum(expected) / len(expected), abs=1e-9)


@given(LISTS, st.sampled_from(["hinge", "pointwise", "listwise"]))
def test_padding_does_not_affect_losses(lists: list[list[tuple[float, bool]]], name: str) -> None:
    logits, mask, first = tensors(lists)
    other = torch.where(mask, logits, logits.flip(1) + 3.0).requires_grad_()
    loss = list_loss(ListLossSettings(name), other, mask, first)
    given = list_loss(ListLossSettings(name), logits, mask, first)
    assert loss.item() == pytest.approx(given.item(), abs=1e-12)
    loss.backward()
    assert other.grad is not None and torch.isfinite(other.grad).all()
    assert (other.grad[~mask] == 0).all()
