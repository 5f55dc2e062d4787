"""Training steps: updated weights and learning rates; validation between rounds."""

from __future__ import annotations

import copy
import tracemalloc
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from citerec.base.errors import InputError
from citerec.datasets.corpus import Corpus
from citerec.hatten.documents import DocumentReader, Vocabulary
from citerec.hatten.encoder import HAttenEncoder
from citerec.hatten.settings import (
    EncoderBatchSettings,
    EncoderRateSettings,
    EncoderValidationSettings,
    HAttenSettings,
)
from citerec.hatten.training.batches import Batch, Batches, TrainingData
from citerec.hatten.training.module import EncoderModule
from citerec.hatten.training.rounds import Validation
from citerec.tests.hatten.made import random_model, unit
from citerec.tests.processes import in_processes
from citerec.training.processes import WHOLE, Share
from citerec.training.rounds import recall_and_mrr
from citerec.training.settings import OptimizerSettings


def module(corpus: Corpus, ema: float = 0.9, loss: str = "InfoNCE", **schedule: Any) -> EncoderModule:
    torch.manual_seed(0)
    options: dict[str, Any] = {
        "max_tokens": 12,
        "dropout": 0.0,
        "trainable_vectors": "all",
        "input_scale": 5.0,
    }
    made = EncoderModule(
        random_model(corpus.words, **options).encoder.train(),
        HAttenSettings(
            loss={"_target_": f"citerec.hatten.training.losses.{loss}"},
            schedule=EncoderRateSettings(**schedule),
            ema=ema,
            optimizer=OptimizerSettings(lr=0.01),
        ),
        seed=0,
        total_steps=10,
    )
    made.log = lambda *_, **__: None  # type: ignore[method-assign]  # no trainer
    return made


def encoder(module: EncoderModule) -> HAttenEncoder:
    assert isinstance(module.encoder, HAttenEncoder)
    return module.encoder


def batches(corpus: Corpus) -> Batches:
    config = EncoderBatchSettings(queries=6, mined=0, random=2, steps_per_round=10)
    reader = DocumentReader(corpus, Vocabulary(corpus.words), 12)
    return Batches(reader, corpus.split("train"), None, config, seed=0, round=0)


def step(module: EncoderModule, optimizer: torch.optim.Optimizer, batch: Batch) -> None:
    optimizer.zero_grad()
    module.training_step(batch, 0).backward()
    optimizer.step()
    module.average_weights()


def weights(module: EncoderModule) -> dict[str, Tensor]:
    return {name: weight.detach().clone() for name, weight in module.encoder.named_parameters()}


def test_the_saved_weights_are_a_moving_average(demo_corpus: Corpus) -> None:
    made, of_round = module(demo_corpus, ema=0.75), batches(demo_corpus)
    optimizer = made.configure_optimizers()["optimizer"]
    expected: dict[str, Tensor] = {}
    for number in range(4):
        step(made, optimizer, of_round[number])
        now = weights(made)
        expected = {name: 0.75 * expected.get(name, now[name]) + 0.25 * now[name] for name in now}
    averaged = dict(made.best_encoder.named_parameters())
    for name, weight in expected.items():
        torch.testing.assert_close(averaged[name].detach(), weight, rtol=1e-5, atol=1e-6)
    assert not torch.equal(averaged["word_vectors"], encoder(made).word_vectors)


def test_a_round_can_start_from_the_average(demo_corpus: Corpus, monkeypatch: pytest.MonkeyPatch) -> None:
    made, of_round = module(demo_corpus, ema=0.75), batches(demo_corpus)
    made.restart = True
    optimizer = made.configure_optimizers()["optimizer"]
    for number in range(4):
        step(made, optimizer, of_round[number])
    trained, averaged = weights(made), dict(made.best_encoder.named_parameters())
    for round, expected in ((0, trained), (1, averaged)):
        monkeypatch.setattr(EncoderModule, "current_epoch", round)
        made.on_train_epoch_start()
        assert all(torch.equal(weight, expected[name]) for name, weight in weights(made).items())
    assert not torch.equal(trained["word_vectors"], averaged["word_vectors"])
    step(made, optimizer, of_round[4])  # the optimiser's state goes on, for the same tensors
    assert not torch.equal(encoder(made).word_vectors, averaged["word_vectors"])


def test_learning_rates_warm_up_decay_and_differ_for_vectors(demo_corpus: Corpus) -> None:
    made = module(demo_corpus, warmup=4, decay="linear", vectors=3.0)
    both = made.configure_optimizers()
    optimizer, scheduler = both["optimizer"], both["lr_scheduler"]["scheduler"]
    slow, fast = [], []
    for _ in range(10):
        slow.append(optimizer.param_groups[0]["lr"])
        fast.append(optimizer.param_groups[1]["lr"])
        optimizer.step()
        scheduler.step()
    expected = [0.01 * min(1, (i + 1) / 4) * (1 - i / 10) for i in range(10)]
    assert slow == pytest.approx(expected) and fast == pytest.approx([3 * rate for rate in expected])
    names = {id(weight): name for name, weight in made.encoder.named_parameters()}
    of_fast = {names[id(weight)] for weight in optimizer.param_groups[1]["params"]}
    assert of_fast == {"word_vectors"}
    assert sum(len(group["params"]) for group in optimizer.param_groups) == len(names)


@pytest.mark.parametrize("processes", [4, 24])  # 24: most have no query, and some no other paper
@pytest.mark.parametrize("loss", ["InfoNCE", "Triplet"])
def test_processes_share_a_batch_and_have_the_gradients_of_one(
    demo_corpus: Corpus, processes: int, loss: str
) -> None:
    made = module(demo_corpus, loss=loss)
    losses: list[Tensor] = []

    def gradients(share: Share) -> dict[str, Tensor]:
        own, of_round = copy.deepcopy(made), batches(demo_corpus)
        own.share = of_round.share = share
        own.log = lambda *_, **__: None  # type: ignore[method-assign]
        loss = own.training_step(of_round[0], 0)
        losses.append(loss.detach())
        loss.backward()
        parameters = own.encoder.named_parameters()
        return {name: torch.zeros_like(w) if w.grad is None else w.grad for name, w in parameters}

    whole = gradients(WHOLE)
    assert all(gradient.any() for gradient in whole.values())
    shared = in_processes(processes, gradients)
    for name, gradient in whole.items():
        mean = torch.stack([own[name] for own in shared]).mean(0)
        torch.testing.assert_close(mean, gradient, rtol=1e-4, atol=2e-6, msg=name)
    torch.testing.assert_close(torch.stack(losses), losses[0].expand(processes + 1))


QUERIES = 12


def validation(corpus: Corpus, papers: int, seed: int = 0) -> Validation:
    return Validation(EncoderValidationSettings(queries=QUERIES, papers=papers, depth=10), corpus, seed)


def cited(corpus: Corpus, contexts: np.ndarray) -> list[set[int]]:
    split = corpus.split("val")
    rows = {int(context): row for row, context in enumerate(split.contexts)}
    return [set(split.positives[rows[int(context)]].tolist()) for context in contexts]


@pytest.mark.parametrize("papers", [3, 40])
def test_a_sample_of_papers_includes_all_cited_papers(demo_corpus: Corpus, papers: int) -> None:
    made = validation(demo_corpus, papers)
    positives = set().union(*cited(demo_corpus, made.contexts))
    chosen = set(np.flatnonzero(made.candidates).tolist())
    assert len(positives) > 3 and positives <= chosen
    assert len(chosen) == max(papers, len(positives))
    again, other = validation(demo_corpus, papers), validation(demo_corpus, papers, seed=1)
    assert (again.candidates == made.candidates).all() and again.contexts.tolist() == made.contexts.tolist()
    assert (other.candidates != made.candidates).any()


@pytest.mark.parametrize("papers", [0, 40, 1000])
def test_recall_matches_a_search_among_the_sampled_papers(demo_corpus: Corpus, papers: int) -> None:
    made = validation(demo_corpus, papers)
    queries, vectors = unit(QUERIES, 1), unit(len(demo_corpus.paper_ids), 2)
    cosines = queries @ vectors.T
    cosines[:, ~made.candidates] = -np.inf
    cosines[np.arange(QUERIES), demo_corpus.citing[made.contexts]] = -np.inf
    best = [set(row[:10].tolist()) for row in np.argsort(-cosines, axis=1)]
    pairs = zip(best, cited(demo_corpus, made.contexts), strict=True)
    shares = [len(result & right) / len(right) for result, right in pairs]
    measured = made.measure(queries, vectors)
    assert measured["recall@10"] == pytest.approx(np.mean(shares))
    assert measured.get("papers") == (40 if papers == 40 else None)  # only for a sample
    for shared in in_processes(5, lambda share: made.measure(queries[share.part(QUERIES)], vectors, share)):
        assert shared == measured


def test_a_query_with_many_cited_papers_costs_its_own_memory_alone() -> None:
    random, depth, most = np.random.default_rng(0), 100, 400
    papers = np.argsort(random.random((200, 500)), axis=1)[:, :depth].astype(np.int32)
    papers[1, 5:] = -1
    positives = np.full((200, most), -1, np.int32)
    positives[:, :2] = random.integers(0, 500, (200, 2))
    positives[3] = random.permutation(500)[:most]
    tracemalloc.start()
    measures = recall_and_mrr(papers, positives)
    assert tracemalloc.get_traced_memory()[1] < 4_000_000
    tracemalloc.stop()
    hits = (papers[:, None] == positives[:, :, None]) & (positives[:, :, None] >= 0)
    for k in (1, 10, 100):
        assert measures[f"recall@{k}"] == (hits[:, :, :k].any(2).sum(1) / (positives >= 0).sum(1)).mean()
    first = np.where(hits.any((1, 2)), hits.any(1).argmax(1) + 1.0, np.inf)
    assert measures["mrr"] == pytest.approx((1 / first).mean(), rel=1e-15)


def test_nothing_is_measured_without_queries(demo_corpus: Corpus) -> None:
    made = Validation(EncoderValidationSettings(queries=0), demo_corpus, 0)
    assert len(made.contexts) == 0 and not made.candidates.any()
    without = copy.copy(demo_corpus)
    without.splits = {name: split for name, split in demo_corpus.splits.items() if name != "val"}
    assert len(Validation(EncoderValidationSettings(), without, 0).contexts) == 0
    with pytest.raises(InputError, match="no split 'none'; choose from train, val, test"):
        Validation(EncoderValidationSettings(split="none"), demo_corpus, 0)


def test_a_short_round_mines_only_its_own_queries(demo_corpus: Corpus) -> None:
    reader = DocumentReader(demo_corpus, Vocabulary(demo_corpus.words), 12)
    short = EncoderBatchSettings(queries=8, mined=1, random=0, steps_per_round=5)
    network = encoder(module(demo_corpus))
    data = TrainingData(reader, HAttenSettings(batch=short), 0, network)
    rounds = [data.round_queries(number) for number in range(2)]
    for number, queries in enumerate(rounds):
        order = Batches(reader, data.split, None, short, seed=0, round=number).order
        assert queries.tolist() == sorted(order.tolist()) and len(queries) == 40
    assert not set(rounds[0].tolist()) & set(rounds[1].tolist())
    settings = HAttenSettings(batch=replace(short, steps_per_round=50))
    every = TrainingData(reader, settings, 0, network).round_queries(3)
    assert every.tolist() == list(range(len(data.split)))
