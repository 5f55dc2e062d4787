"""Fine-tuning a transformer of random weights, and retrieving with it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch.nn import functional as F

import hatten.train
from datasets.corpus import Corpus
from datasets.errors import InputError
from hatten.biencoder import BiEncoder, BiEncoderRetriever
from retrieval.article_text import ArticleReader
from retrieval.encoder import ArticleEncoder
from retrieval.settings import ArticleConfig
from tests.runs import Composed, history
from training.settings import FineTuningSettings

SMALL: dict[str, Any] = {
    "model": "biencoder",
    "data": "custom",
    "encoder": "minilm",
    "encoder.name": "tiny",
    "encoder.max_tokens": 24,
    "model.rounds": 3,
    "model.ema": 0.5,
    "model.precision": "float32",
    "model.batch.queries": 3,
    "model.batch.steps_per_round": 2,
    "model.mining.papers": 8,
    "model.mining.depth": 4,
    "model.validation.papers": 5,
    "model.validation.depth": 5,
    "model.validation.monitor": "mrr",
    "model.schedule.warmup": 1,
    "model.optimizer.lr": 0.01,
}
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture
def options(tiny_source: Path, tiny_bert: Path, tmp_path: Path) -> Callable[..., list[str]]:
    """Overrides for a run on the tiny corpus, with changes."""
    folders = {"data.dir": tiny_source, "data.cache_dir": tmp_path / "cache", "encoder.path": tiny_bert}

    def given(**more: Any) -> list[str]:
        return [f"{name}={value}" for name, value in {**SMALL, **folders, **more}.items()]

    return given


@pytest.mark.slow
def test_it_learns_and_is_saved_as_a_folder_that_retrieves(
    options: Callable[..., list[str]],
    composed: Composed,
    tiny_bert: Path,
    tiny_corpus: Corpus,
    tmp_path: Path,
) -> None:
    given = options(**{"model.rounds": 2, "model.batch.steps_per_round": 15, "output_dir": tmp_path / "out"})
    best = hatten.train.train(composed("train", *given))
    assert best == tmp_path / "out" / "biencoder"
    rows = history(best.parent)
    assert rows[2]["train/loss"] < 0.7 * rows[1]["train/loss"]
    assert {row["val/papers"] for row in rows} == {5}  # what recall is measured among
    about = json.loads((best / "about.json").read_text())
    assert about["encoder"] == "tiny" and about["val/mrr"] == max(row["val/mrr"] for row in rows[1:])
    before, after = (load_file(folder / "model.safetensors") for folder in (tiny_bert, best))
    name = "encoder.layer.0.attention.self.query.weight"
    assert before.keys() == after.keys() and not torch.equal(before[name], after[name])

    retriever = BiEncoderRetriever(
        best.parent, arithmetic="float32"
    )  # finds the encoder in the output folder
    retriever.index(tiny_corpus)
    encoder = ArticleEncoder.load(best)
    reader = ArticleReader(tiny_corpus, encoder.tokenizer, encoder.config)
    with torch.no_grad():
        papers = F.normalize(encoder.encode(reader.papers(np.arange(12))), dim=1)
        query = F.normalize(encoder.encode(reader.queries(np.array([3]))), dim=1)[0]
    found = retriever.search(np.array([3]), 5)
    assert tiny_corpus.citing[3] not in found.papers[0]
    np.testing.assert_allclose((papers @ query)[found.papers[0].tolist()], found.scores[0], atol=1e-3)


def test_less_memory_is_the_same_gradient(tiny_bert: Path, tiny_corpus: Corpus) -> None:
    gradients = []
    for again in (False, True):
        article = ArticleEncoder.pretrained(ArticleConfig("tiny", path=str(tiny_bert), max_tokens=24))
        encoder = BiEncoder(article, FineTuningSettings("float32", 0.0, gradient_checkpointing=again))
        assert article.model.is_gradient_checkpointing == again
        texts = ArticleReader(tiny_corpus, article.tokenizer, article.config).papers(np.arange(5))
        encoder.encode(texts).square().sum().backward()
        gradients.append([weight.grad for weight in encoder.parameters()])
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.slow
@pytest.mark.parametrize("more", [{}, {"model.dropout": 0.3, "model.precision": "bfloat16"}])
def test_a_resumed_run_is_the_uninterrupted_one(
    trained_twice: Callable[..., tuple[Path, Path]], options: Callable[..., list[str]], more: dict[str, Any]
) -> None:
    whole, resumed = trained_twice(5, *options(**more))
    for name in ("model.safetensors", "encoder.json", "about.json"):
        assert (whole / name).read_bytes() == (resumed / name).read_bytes()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"model.dropout": 1.0}, r"model\.dropout=1\.0: must be at least 0 and below 1"),
        ({"model.precision": "half"}, "model.precision=half: choose auto, float32 or bfloat16"),
        ({"encoder.pooling": "aspire"}, r"encoder\.pooling=aspire gives many vectors to a text"),
        ({"encoder.path": "nowhere"}, "nowhere: there is no such folder of a model"),
        ({"model.batch.stale": True}, r"stale=True: needs model\.encoder\.residual=mean, of model=hatten"),
    ],
)
def test_options_that_do_not_work_are_named(
    given: dict[str, Any], message: str, composed: Composed, options: Callable[..., list[str]], tmp_path: Path
) -> None:
    with pytest.raises(InputError, match=message):
        hatten.train.train(composed("train", *options(**given, output_dir=tmp_path / "out")))
    assert not (tmp_path / "out").exists()


def test_what_is_no_folder_of_it_is_one_clear_error(tiny_bert: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="retriever=biencoder needs checkpoint=FOLDER"):
        BiEncoderRetriever(None)
    for folder in (tmp_path / "none", tiny_bert):  # a model that was not trained here
        with pytest.raises(InputError, match="no encoder that was trained here"):
            BiEncoderRetriever(folder)
