"""Fine-tuning a random transformer and retrieving with it."""

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

from citerec.base.errors import InputError
from citerec.datasets.corpus import Corpus
from citerec.hatten.biencoder.model import BiEncoderRetriever
from citerec.retrieval.encoders.article_text import ArticleReader
from citerec.retrieval.encoders.encoder import ArticleEncoder
from citerec.retrieval.settings import ArticleConfig
from citerec.tests.conftest import Done
from citerec.tests.runs import (
    history,
    train_config,
    train_twice,
)
from citerec.train import train

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture
def small(tiny_source: Path, tiny_bert: Path, tmp_path: Path) -> dict[str, Any]:
    """Options of a run on the tiny corpus."""
    return {
        "model": "biencoder",
        "data": "custom",
        "data.dir": tiny_source,
        "data.cache_dir": tmp_path / "cache",
        "encoder": "minilm",
        "encoder.name": "tiny",
        "encoder.path": tiny_bert,
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


@pytest.mark.slow
def test_it_learns_and_the_saved_folder_retrieves(
    small: dict[str, Any], tiny_bert: Path, tiny_corpus: Corpus, tmp_path: Path
) -> None:
    longer = {"model.rounds": 2, "model.batch.steps_per_round": 15, "output_dir": tmp_path / "out"}
    best = train(train_config(small, longer))
    assert best == tmp_path / "out" / "biencoder"
    rows = history(best.parent)
    assert rows[2]["train/loss"] < 0.7 * rows[1]["train/loss"]
    assert {row["val/papers"] for row in rows} == {5}  # size of the validation pool
    record = json.loads((best / "about.json").read_text())
    assert record["encoder"] == "tiny" and record["val/mrr"] == max(row["val/mrr"] for row in rows[1:])
    before, after = (load_file(folder / "model.safetensors") for folder in (tiny_bert, best))
    name = "encoder.layer.0.attention.self.query.weight"
    assert before.keys() == after.keys() and not torch.equal(before[name], after[name])

    retriever = BiEncoderRetriever(best.parent, arithmetic="float32")  # the output folder of its training
    retriever.index(tiny_corpus)
    encoder = ArticleEncoder.load(best)
    reader = ArticleReader(tiny_corpus, encoder.tokenizer, encoder.config)
    with torch.no_grad():
        papers = F.normalize(encoder.encode(reader.papers(np.arange(12))), dim=1)
        query = F.normalize(encoder.encode(reader.queries(np.array([3]))), dim=1)[0]
    result = retriever.search(np.array([3]), 5)
    assert tiny_corpus.citing[3] not in result.papers[0]
    np.testing.assert_allclose((papers @ query)[result.papers[0].tolist()], result.scores[0], atol=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("more", [{}, {"model.dropout": 0.3, "model.precision": "bfloat16"}])
def test_a_resumed_run_equals_an_uninterrupted_one(
    small: dict[str, Any], more: dict[str, Any], tmp_path: Path
) -> None:
    whole, resumed = train_twice(train, 5, tmp_path, small, more)
    for name in ("model.safetensors", "encoder.json", "about.json"):
        assert (whole / name).read_bytes() == (resumed / name).read_bytes()


@pytest.mark.slow
def test_the_last_layers_are_trained_alone_and_kept(
    small: dict[str, Any],
    tiny_bert: Path,
    tmp_path: Path,
    script: Callable[..., Done],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    few = {**small, "model.rounds": 1, "model.trained_layers": 1, "output_dir": tmp_path / "out"}
    before, after = (
        load_file(folder / "model.safetensors") for folder in (tiny_bert, train(train_config(few)))
    )
    changed = {name for name, value in after.items() if not torch.equal(value, before[name])}
    assert changed == {name for name in before if name.startswith("encoder.layer.1.")}
    kept, restored = tmp_path / "kept.safetensors", tmp_path / "restored"
    (tmp_path / "home/models").mkdir(parents=True)
    (tmp_path / "home/models/minilm").symlink_to(tiny_bert)
    monkeypatch.setenv("CITATION_CACHE", str(tmp_path / "home"))
    for source, target in ((tmp_path / "out/biencoder", kept), (kept, restored)):
        assert script("reproduce/trained_layers.py", str(source), str(target)).code == 0
    assert load_file(kept).keys() == changed
    again = load_file(restored / "model.safetensors")
    assert all(torch.allclose(again[name], value, atol=1e-3) for name, value in after.items())
    opened, saved = (ArticleEncoder.load(folder) for folder in (restored, tmp_path / "out/biencoder"))
    assert opened.config.encoding_settings() == saved.config.encoding_settings()
    with pytest.raises(InputError, match="trained_layers=3: the transformer has 2 layers"):
        train(train_config({**few, "model.trained_layers": 3, "output_dir": tmp_path / "more"}))


def test_chunks_have_the_gradients_of_the_whole_batch(tiny_bert: Path, tiny_corpus: Corpus) -> None:
    def step(cached: bool, chunk_tokens: int, attention: str = "sdpa") -> tuple[list[torch.Tensor], int]:
        encoder = ArticleEncoder.pretrained(ArticleConfig("tiny", path=str(tiny_bert), max_tokens=24))
        encoder.model.set_attn_implementation(attention)
        encoder.gradient_cache, encoder.chunk_tokens, kept = cached, chunk_tokens, list[int]()
        texts = ArticleReader(tiny_corpus, encoder.tokenizer, encoder.config).papers(np.arange(12))

        def keep(tensor: torch.Tensor) -> torch.Tensor:
            kept.append(0 if isinstance(tensor, torch.nn.Parameter) else tensor.nbytes)
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            vectors = F.normalize(encoder.encode(texts), dim=1)
        F.cross_entropy(vectors[:6] @ vectors[6:].T / 0.1, torch.arange(6)).backward()
        return [weight.grad for weight in encoder.parameters() if weight.grad is not None], sum(kept)

    whole, all_kept = step(False, 4096)
    for cached, attention in ((False, "sdpa"), (True, "sdpa"), (False, "eager")):
        gradients, kept = step(cached, 48, attention)
        for gradient, wanted in zip(gradients, whole, strict=True):
            torch.testing.assert_close(gradient, wanted, atol=1e-6, rtol=1e-4)
        assert (kept < all_kept / 20) == cached
