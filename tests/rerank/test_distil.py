"""Distillation: teacher scores, learning, resuming after a crash, and invalid options."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from omegaconf import DictConfig
from safetensors.numpy import load_file
from scipy.stats import spearmanr

import citerec.rerank.distil
from citerec.datasets.corpus import Corpus
from citerec.datasets.errors import InputError
from citerec.datasets.generate import open_demo
from citerec.hatten.biencoder import BiEncoderRetriever
from citerec.hatten.checkpoint import Model, load_model, save_model
from citerec.hatten.documents import DocumentReader
from citerec.hatten.encoder import build_encoder
from citerec.hatten.losses import CITED
from citerec.hatten.retriever import HAttenRetriever
from citerec.hatten.settings import EncoderBatchSettings, EncoderConfig
from citerec.hatten.words import WordVectors, inverse_document_frequency
from citerec.rerank.cross_encoder import CrossEncoder
from citerec.rerank.data import Prefetcher
from citerec.rerank.distil import DistilBatch, DistilData, ScoredLists, score_lists, train
from citerec.rerank.reranker import Reranker
from citerec.rerank.scores import to_logits
from citerec.rerank.settings import NegativesSettings, PairSettings, ScoringSettings, TeacherSettings
from citerec.retrieval.encoder import ArticleEncoder
from citerec.retrieval.settings import ArticleConfig
from citerec.tests.runs import Composed, assert_same_run, compose_config, history, train_until_crash

pytestmark = pytest.mark.filterwarnings("ignore")
SMALL: dict[str, Any] = {
    "model": "distil",
    "data": "demo",
    "data.papers": 120,
    "data.contexts": 300,
    "scoring.precision": "float32",
    "model.precision": "float32",
    "model.rounds": 2,
    "model.ema": 0.5,
    "model.teacher.queries": 60,
    "model.teacher.chunk": 100,
    "model.negatives.count": 5,
    "model.negatives.depth": 10,
    "model.distil.teacher_temperature": 0.005,
    "model.batch.queries": 10,
    "model.batch.mined": 4,
    "model.validation.depth": 100,
    "model.schedule.warmup": 2,
    "model.optimizer.lr": 0.003,
    "trainer.log_every_n_steps": 1,
}
SCORING = ScoringSettings(precision="float32")


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def corpus(cache: Path) -> Corpus:
    return open_demo(papers=120, contexts=300, cache_dir=cache)


@pytest.fixture(scope="module")
def teacher(tiny_bert: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("teacher") / "teacher"
    encoder = ArticleConfig("tiny", path=str(tiny_bert))
    CrossEncoder.pretrained(encoder, PairSettings(max_tokens=128), head="sigmoid").save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def start(corpus: Corpus, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An untrained HAtten with a mean path."""
    vectors = np.random.default_rng(0).standard_normal((len(corpus.words), 16))
    vocabulary, table = WordVectors(list(corpus.words), vectors, "random").vocabulary()
    config = EncoderConfig(16, 2, 32, max_tokens=64, dropout=0.1, trainable_vectors="all", residual="mean")
    torch.manual_seed(0)
    encoder = build_encoder(config, table, vocabulary)
    assert encoder.mean is not None
    encoder.mean.init_word_weights(inverse_document_frequency(corpus, vocabulary))
    path = tmp_path_factory.mktemp("start") / "hatten.ckpt"
    save_model(Model(encoder, vocabulary, {}), path)
    return path


@pytest.fixture
def composed(cache: Path, teacher: Path, start: Path, tmp_path: Path) -> Composed:
    places = {"data.cache_dir": cache, "teacher": teacher, "checkpoint": start, "scores_dir": tmp_path / "s"}

    def compose(**more: Any) -> DictConfig:
        return compose_config(
            "train", [f"{key}={value}" for key, value in {**SMALL, **places, **more}.items()]
        )

    return compose


def make_lists(corpus: Corpus, start: Path, teacher: Path, folder: Path) -> ScoredLists:
    prefetcher = Prefetcher(HAttenRetriever(start, arithmetic="float32"), corpus, folder / "found")
    config, drawn = TeacherSettings(queries=60), NegativesSettings(5, 10)
    return score_lists(teacher, SCORING, prefetcher, corpus, config, drawn, 0, folder / "scores")


def test_batches_hold_the_teachers_logit_of_each_pair(
    corpus: Corpus, start: Path, teacher: Path, tmp_path: Path
) -> None:
    lists = make_lists(corpus, start, teacher, tmp_path)
    reranker, train_split = Reranker.open(teacher, SCORING), corpus.split("train")
    assert len(lists.split) == 60 and set(lists.split.contexts) <= set(train_split.contexts)
    retriever = HAttenRetriever(start, arithmetic="float32")
    retriever.index(corpus)
    found = retriever.search(lists.split.contexts, 10).papers
    model = load_model(start)
    reader = DocumentReader(corpus, model.vocabulary, 64)
    data = DistilData(lists, reader, EncoderBatchSettings(10, mined=4, random=1, steps_per_round=0), 0)
    known = others = 0
    for step in range(6):
        batches = data._batches(1)
        batch, rows = batches[step], batches.rows(step)
        assert isinstance(batch, DistilBatch)
        papers = np.append(np.unique(lists.split.positives.take(rows).values), batch.other_rows)
        assert batch.teacher.shape == batch.levels.shape == (10, len(papers))
        for query, column in np.argwhere(~np.isnan(batch.teacher)).tolist():
            context, paper = lists.split.contexts[rows[query]], papers[column]
            score = reranker.score(corpus, np.array([context]), np.array([paper]))
            assert batch.teacher[query, column] == pytest.approx(to_logits(score, "sigmoid")[0], abs=1e-5)
            cited = batch.levels[query, column] == CITED
            assert cited or paper in found[rows[query]]
            known, others = known + 1, others + (not cited)
        assert (~np.isnan(batch.teacher[batch.levels == CITED])).all()
    assert known > 60 + 6 * 30 and others > 6 * 30


@pytest.mark.slow
def test_the_student_learns_the_teachers_order(
    composed: Composed, corpus: Corpus, start: Path, teacher: Path, tmp_path: Path
) -> None:
    lists = make_lists(corpus, start, teacher, tmp_path)
    changes: dict[str, Any] = {"model.batch.steps_per_round": 40, "model.batch.stale": False}
    changes |= {"model.distil.weight": 1, "model.word_dropout": 0.0, "model.optimizer.lr": 0.01}
    best = train(composed(**changes, output_dir=tmp_path / "out"))
    assert best == tmp_path / "out" / "hatten.ckpt"
    rows = history(best.parent)
    assert rows[0]["round"] == 0 and rows[0]["val/recall@10"] > 0  # the checkpoint before distillation
    assert rows[-1]["train/loss"] < 0.7 * rows[1]["train/loss"]

    def agreement(checkpoint: Path) -> float:
        model = load_model(checkpoint)
        reader = DocumentReader(corpus, model.vocabulary, 64)
        values = []
        with torch.inference_mode():
            for context, papers, logits in zip(lists.split.contexts, lists.papers, lists.logits, strict=True):
                query = model.encoder.encode(reader.queries(np.array([context])))
                found = model.encoder.encode(reader.papers(papers[papers >= 0]))
                cosines = torch.cosine_similarity(query, found)
                values.append(spearmanr(cosines, logits[papers >= 0]).statistic)
        return float(np.mean(values))

    state = torch.load(best.parent / "last.ckpt", weights_only=True)["state_dict"]
    last = load_model(start)
    prefix = "average.module."
    averaged = {name.removeprefix(prefix): state[name] for name in state if name.startswith(prefix)}
    last.encoder.load_state_dict(averaged)
    save_model(last, tmp_path / "last.ckpt")
    assert agreement(tmp_path / "last.ckpt") > max(0.4, agreement(start) + 0.3)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        pytest.param({"model.distil.name": "margin_mse", "model.batch.stale": False}, marks=pytest.mark.slow),
    ],
)
def test_a_resumed_run_equals_an_uninterrupted_one_and_scores_nothing_again(
    composed: Composed,
    changes: dict[str, Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    changes = {**changes, "resume": True}
    broken = composed(**changes, output_dir=tmp_path / "broken")
    train_until_crash(train, 8, broken)
    with caplog.at_level(logging.INFO):
        resumed = train(broken)
    assert "scored 0 new pairs" in caplog.text
    whole = train(composed(**changes, output_dir=tmp_path / "whole"))
    assert assert_same_run(whole.parent, resumed.parent)["global_step"] == 12
    assert whole.read_bytes() == resumed.read_bytes()
    keys = [load_file(file)["keys"] for file in (tmp_path / "s").rglob("*.safetensors")]
    assert len(np.unique(np.concatenate(keys))) == sum(map(len, keys)) > 60 * 5

    def other_teacher(*given: Any) -> ScoredLists:
        lists = score_lists(*given)
        return replace(lists, logits=-lists.logits)

    monkeypatch.setattr(citerec.rerank.distil, "score_lists", other_teacher)
    with pytest.raises(InputError, match=r"other settings of `lists`"):
        train(broken)


def test_an_article_encoder_can_be_a_student(composed: Composed, tiny_bert: Path, tmp_path: Path) -> None:
    ArticleEncoder.pretrained(ArticleConfig("tiny", path=str(tiny_bert), max_tokens=32)).save(
        tmp_path / "first"
    )
    changes = {
        "experiment": "distil_biencoder",
        "checkpoint": tmp_path / "first",
        "model.batch.steps_per_round": 3,
        "model.rounds": 1,
        "output_dir": tmp_path / "out",
    }
    config = composed(**changes)
    best = train(config)
    assert best == tmp_path / "out" / "biencoder" and config.model.optimizer.lr == 0.003
    before, after = (BiEncoderRetriever(path, "float32").encoder for path in (tmp_path / "first", best))
    name = "model.encoder.layer.0.attention.self.query.weight"
    assert not torch.equal(before.state_dict()[name], after.state_dict()[name])


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {"teacher": "null"},
            r"model=distil needs teacher=FOLDER: the output of train\.py model=scibert_reranker",
        ),
        ({"teacher": "nowhere"}, "nowhere: no such reranker folder"),
        ({"retriever": "bm25"}, "retriever=bm25: has no weights to distil into; choose hatten or biencoder"),
        ({"checkpoint": "null"}, r"retriever=hatten needs checkpoint=FILE"),
        ({"model.batch.mined": 7}, r"model\.batch\.mined=7: must be 1 to 6, the papers that the teacher"),
        ({"model.negatives.depth": 1000}, "has 120 candidates, cannot prefetch 1,000 per query"),
    ],
)
def test_invalid_options_are_named(
    composed: Composed, given: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match=message):
        try:
            train(composed(**given, output_dir=tmp_path / "out"))
        except Exception as error:  # Hydra wraps what its targets raise
            raise error.__cause__ or error from None
    assert not (tmp_path / "out" / "hatten.ckpt").exists()
