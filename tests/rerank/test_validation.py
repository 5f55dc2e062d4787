"""What is measured in training: against loops, in one process and in several."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from datasets.columns import Ragged
from datasets.corpus import Corpus, Split
from datasets.errors import InputError
from rerank.cross_encoder import CrossEncoder
from rerank.pairs import PairReader
from rerank.settings import PairSettings, RerankingValidationSettings
from rerank.train import RerankingValidation, validation_rows
from retrieval.encoder import ArticleConfig


@pytest.fixture(scope="module")
def encoder(tiny_bert: Path) -> CrossEncoder:
    return CrossEncoder.pretrained(
        ArticleConfig("tiny", path=str(tiny_bert)), PairSettings(max_tokens=64), "linear", 0
    )


@pytest.fixture(scope="module")
def validation(demo_corpus: Corpus) -> RerankingValidation:
    """Of 12 queries, one with two cited papers; 15 candidates each, fewer for one; some are missed."""
    given, rng = demo_corpus.split("val"), np.random.default_rng(0)
    cited = [list(one) for one in given.positives]
    cited[2] = [5, 9]
    split = Split("val", given.contexts, Ragged.from_rows(cited))
    rows = np.arange(12)
    papers = np.stack([rng.permutation(120)[:15] for _ in rows]).astype(np.int32)
    for row in range(0, 12, 2):
        if cited[row][0] not in papers[row]:
            papers[row, row] = cited[row][0]
    papers[4, 9:] = -1
    return RerankingValidation(demo_corpus, split, rows, papers)


def test_it_is_what_loops_measure(
    validation: RerankingValidation, encoder: CrossEncoder, demo_corpus: Corpus
) -> None:
    reader = PairReader(demo_corpus, encoder.tokenizer, encoder.config)
    found = validation.measure(encoder, reader, 300)
    encoder.eval()
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
        mrr = np.mean([1 / (1 + of[0]) if of else 0.0 for of in places])
        recall = np.mean(
            [sum(place < 10 for place in of) / len(all_) for of, all_ in zip(places, cited, strict=True)]
        )
        assert found[f"{prefix}mrr"] == pytest.approx(mrr)
        assert found[f"{prefix}recall@10"] == pytest.approx(recall)
    assert found["mrr"] != found["base/mrr"]
    within = [len(of & set(line)) / len(of) for of, line in zip(cited, base, strict=True)]
    assert found["ceiling"] == pytest.approx(np.mean(within)) and 0.4 < found["ceiling"] < 1


def test_several_processes_score_each_pair_once_and_measure_the_same(
    validation: RerankingValidation, encoder: CrossEncoder, demo_corpus: Corpus
) -> None:
    reader = PairReader(demo_corpus, encoder.tokenizer, encoder.config)
    whole = validation.measure(encoder, reader, 300)
    parts: list[Tensor] = []
    for rank in range(3):

        def keep(own: Tensor) -> Tensor:
            parts.append(own)
            raise StopIteration

        with pytest.raises(StopIteration):
            validation.measure(encoder, reader, 300, rank, 3, keep)
    times = torch.stack(parts)[:, 1]
    assert (times.sum(0) <= 1).all() and all(of.sum() > 0 for of in times)
    assert validation.measure(encoder, reader, 300, 0, 3, lambda _: torch.stack(parts).sum(0)) == whole
    with pytest.raises(AssertionError, match="every pair is scored by one process"):
        validation.measure(encoder, reader, 300, 0, 3)


def test_a_reranker_that_diverged_is_one_clear_line(
    validation: RerankingValidation, encoder: CrossEncoder, demo_corpus: Corpus
) -> None:
    reader = PairReader(demo_corpus, encoder.tokenizer, encoder.config)
    with pytest.raises(InputError, match=r"no numbers any more: lower model\.optimizer\.lr"):
        validation.measure(
            encoder, reader, 300, summed=lambda own: own * torch.tensor([torch.inf, 1.0])[:, None, None]
        )


def test_a_sample_is_of_the_seed_alone(demo_corpus: Corpus) -> None:
    split = demo_corpus.split("val")
    rows = validation_rows(split, 7, 0)
    assert len(rows) == 7 and (np.diff(rows) > 0).all()
    np.testing.assert_array_equal(rows, validation_rows(split, 7, 0))
    assert not np.array_equal(rows, validation_rows(split, 7, 1))
    np.testing.assert_array_equal(validation_rows(split, 10_000, 0), np.arange(len(split)))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {"monitor": "recall@7"},
            "model.validation.monitor=recall@7: choose one of mrr, recall@1, recall@10",
        ),
        ({"candidates": 5}, "monitor=recall@10: choose one of mrr, recall@1$"),
        ({"candidates": 0}, "model.validation.candidates=0: must be at least 1"),
        ({"every": 0}, "model.validation.every=0: must be at least 1"),
    ],
)
def test_options_that_do_not_work_are_named(given: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        RerankingValidationSettings(**given)
