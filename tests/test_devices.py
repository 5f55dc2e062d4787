"""What can be shown of GPUs without one: torch's device `meta` has no data, so reading back is an error."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any
from weakref import finalize

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.utils._python_dispatch import TorchDispatchMode

from citerec.datasets.corpus import Corpus
from citerec.hatten.biencoder.model import TunedEncoder
from citerec.hatten.documents import DocumentReader, Vocabulary
from citerec.hatten.encoder import Encoder
from citerec.hatten.settings import (
    BiEncoderSettings,
    EncoderBatchSettings,
    EncoderTraining,
)
from citerec.hatten.static.network import StaticEncoder
from citerec.hatten.training.batches import Batches
from citerec.hatten.training.module import EncoderModule
from citerec.rerank.cross_encoder.data import ListBatch, QueryOrder, TrainingLists
from citerec.rerank.cross_encoder.network import CrossEncoder
from citerec.rerank.cross_encoder.pairs import PairReader
from citerec.rerank.cross_encoder.train import RerankModule, prepare_for_training
from citerec.rerank.settings import (
    ListLossSettings,
    NegativesSettings,
    RerankerSettings,
    StepSettings,
)
from citerec.retrieval.encoders.article_text import ArticleReader
from citerec.retrieval.encoders.encoder import ArticleEncoder
from citerec.retrieval.encoders.nets import (
    find_device,
    fitting_tokens,
    one_behind,
    pack,
    precision,
    to_device,
)
from citerec.retrieval.indexes.gpu import full_precision
from citerec.retrieval.settings import ArticleConfig
from citerec.retrieval.vectors import Reader, encode
from citerec.tests.hatten.made import random_model

SYNCHRONISING = ("_local_scalar_dense", "nonzero", "masked_select", "unique")
"""Parts of the names of operations that wait for a device."""


class Operations(TorchDispatchMode):
    """Counts the operations of torch."""

    def __init__(self) -> None:
        super().__init__()
        self.counts: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.counts[str(func)] += 1
        return func(*args, **(kwargs or {}))

    @property
    def waits(self) -> list[str]:
        return [name for name in self.counts if any(part in name for part in SYNCHRONISING)]


def quiet(module: Any) -> Any:
    """Let a Lightning module work without a trainer."""
    module.log = lambda *_, **__: None
    return module


def step_on(module: Any, batch: Any, device: str) -> Operations:
    """Move a module and a batch to a device, and count the operations of a step with its backward pass."""
    module.to(device)
    with Operations() as moving:
        moved = to_device(batch, device)
    assert moving.counts["aten._to_copy.default"] == (device != "cpu"), "one transfer"
    with Operations() as step:
        loss = module.training_step(moved, 0)
        assert loss.device.type == device
        loss.backward()
    assert all(weight.grad is not None for weight in module.encoder.parameters() if weight.requires_grad)
    return step


def batch_of(encoder: Encoder, reader: Reader, queries: int = 6) -> Any:
    config = EncoderBatchSettings(queries=queries, mined=0, random=2, steps_per_round=10)
    parts = reader, reader.corpus.split("train"), None, config
    return Batches(*parts, seed=0, round=0, layout=encoder.layout, positives=(1, 2))[0]


@pytest.mark.parametrize("loss", ["Triplet", "InfoNCE"])
@pytest.mark.parametrize("vectors", ["none", "all"])
def test_a_step_of_hatten_has_one_transfer_and_waits_for_nothing(
    demo_corpus: Corpus, vectors: str, loss: str
) -> None:
    words = list(demo_corpus.words)
    settings = EncoderTraining(loss={"_target_": f"citerec.hatten.training.losses.{loss}"})
    for device in ("cpu", "meta"):
        options: dict[str, Any] = {"max_tokens": 48, "dim": 10, "dropout": 0.0, "trainable_vectors": vectors}
        encoder = random_model(words, **options).encoder.train()
        encoder.chunk_tokens = 500  # several chunks
        batch = batch_of(encoder, DocumentReader(demo_corpus, Vocabulary(words), 48))
        assert step_on(quiet(EncoderModule(encoder, settings, 0, 10)), batch, device).waits == []


def test_a_step_of_the_static_model_waits_for_nothing(demo_corpus: Corpus) -> None:
    vocabulary = Vocabulary(list(demo_corpus.words))
    table = np.random.default_rng(0).standard_normal((len(vocabulary), 6)).astype(np.float32)
    for device in ("cpu", "meta"):
        encoder = StaticEncoder(table, vocabulary, near=1).train()
        encoder.mean.dropout = 0.2
        batch = batch_of(encoder, DocumentReader(demo_corpus, vocabulary, 48, (4,)))
        assert step_on(quiet(EncoderModule(encoder, EncoderTraining(), 0, 10)), batch, device).waits == []


@pytest.mark.parametrize("pooling", ["mean", "cls"])
def test_a_step_of_a_bi_encoder_waits_for_nothing(tiny_corpus: Corpus, tiny_bert: Path, pooling: str) -> None:
    article = ArticleEncoder.pretrained(
        ArticleConfig("tiny", path=str(tiny_bert), pooling=pooling, max_tokens=64)
    )
    encoder = TunedEncoder(article, BiEncoderSettings())
    article.chunk_tokens = 60
    batch = batch_of(encoder, ArticleReader(tiny_corpus, article.tokenizer, article.config), queries=5)
    assert len(batch.others.chunks) > 1 and any(chunk.mask is not None for chunk in batch.others.chunks)
    assert step_on(quiet(EncoderModule(encoder, EncoderTraining(), 0, 10)), batch, "meta").waits == []


def lists_of(corpus: Corpus, model: CrossEncoder, papers: int, tokens: int, queries: int = 2) -> ListBatch:
    """A batch of queries with a cited paper and `papers` others each."""
    split, rng = corpus.split("train"), np.random.default_rng(0)
    order = QueryOrder.sample(np.arange(queries), queries, 1, 0)
    prefetched: Any = [rng.permutation(len(corpus.paper_ids))[: papers + 5].astype(np.int32)] * queries
    negatives = NegativesSettings(papers, papers + 5)
    step = StepSettings(queries=queries, tokens=tokens)
    reader = PairReader(corpus, model.tokenizer, model.config)
    return TrainingLists(reader, split, order, prefetched, step, negatives, 0)[0]


Make = Callable[..., CrossEncoder]


@pytest.mark.parametrize("loss", ["hinge", "pointwise", "listwise"])
def test_a_step_of_a_cross_encoder_waits_for_nothing(
    demo_corpus: Corpus, make_encoder: Make, loss: str
) -> None:
    settings = RerankerSettings(
        precision="float32",
        loss=ListLossSettings(loss),
        batch=StepSettings(kept=100),
    )
    for device in ("cpu", "meta"):
        model = make_encoder("linear", max_tokens=48)
        prepare_for_training(model, settings, device)
        batch = lists_of(demo_corpus, model, papers=8, tokens=200)
        assert len(batch.chunks) > 2
        assert step_on(quiet(RerankModule(model, settings, 0, 10)), batch, device).waits == []


class Saved:
    """Bytes of the activations that are kept for the backward pass, and their maximum."""

    def __init__(self) -> None:
        self.now = self.most = 0

    def pack(self, tensor: Tensor) -> Any:
        kept, size = [tensor], tensor.nbytes if tensor.is_floating_point() else 0
        holder = type("Holder", (), {})()
        holder.kept = kept
        self.now += size
        self.most = max(self.most, self.now)
        finalize(holder, self.release, size)
        return holder

    def release(self, size: int) -> None:
        self.now -= size


@pytest.mark.slow
def test_memory_of_a_cross_encoder_does_not_grow_with_its_lists(
    demo_corpus: Corpus, make_encoder: Make
) -> None:
    def peak(papers: int, kept: int) -> tuple[int, list[Tensor]]:
        settings = RerankerSettings(dropout=0.0, batch=StepSettings(kept=kept))
        model = make_encoder("linear", max_tokens=48)
        prepare_for_training(model, settings)
        module, saved = quiet(RerankModule(model, settings, 0, 10)), Saved()
        batch = lists_of(demo_corpus, model, papers, tokens=200)
        with saved_tensors_hooks(saved.pack, lambda holder: holder.kept[0]):
            module.training_step(batch, 0).backward()
        return saved.most, [weight.grad for weight in model.parameters() if weight.grad is not None]

    (few, _), (many, bounded) = peak(8, kept=1), peak(64, kept=1)
    all_kept, expected = peak(64, kept=1000)
    assert many < 1.5 * few, "a chunk's activations, whatever the number of papers"
    assert all_kept > 3 * many
    for ours, theirs in zip(bounded, expected, strict=True):
        torch.testing.assert_close(ours, theirs)


@pytest.mark.slow
def test_dropout_is_the_same_when_a_chunk_is_computed_again(demo_corpus: Corpus, make_encoder: Make) -> None:
    gradients = []
    for kept in (1, 1000):
        settings = RerankerSettings(dropout=0.3, batch=StepSettings(kept=kept))
        model = make_encoder("linear", max_tokens=48)
        prepare_for_training(model, settings)
        torch.manual_seed(0)
        batch = lists_of(demo_corpus, model, papers=20, tokens=200)
        quiet(RerankModule(model, settings, 0, 10)).training_step(batch, 0).backward()
        gradients.append(model.score.weight.grad)
    torch.testing.assert_close(gradients[0], gradients[1])


ARRAYS = st.lists(
    st.tuples(st.sampled_from(["?", "u1", "i4", "i8", "f4"]), st.lists(st.integers(0, 3), max_size=3)),
    max_size=6,
)


@given(ARRAYS)
def test_one_transfer_keeps_all_arrays(kinds: list[tuple[str, list[int]]]) -> None:
    rng = np.random.default_rng(0)
    arrays = [np.asarray(rng.integers(0, 9, shape) > 4 if kind == "?" else rng.integers(0, 9, shape), kind)
              for kind, shape in kinds]  # fmt: skip
    value = ("text", None, [*arrays], (7, arrays[:1]))
    buffer, unpack = pack(value)
    result = unpack(buffer.clone())
    assert result[:2] == ("text", None) and result[3][0] == 7
    tensors: list[Any] = [*result[2], *result[3][1]]
    for item, other in zip(tensors, [*arrays, *arrays[:1]], strict=True):
        assert item.dtype == torch.from_numpy(other).dtype and torch.equal(item, torch.from_numpy(other))


def test_automatic_sizes_and_precision_are_those_of_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda **_: True)
    on_cpu = precision("auto")
    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: False)
    assert precision("auto") == precision("auto", "cpu") == torch.float32, f"was {on_cpu}"
    assert precision("auto", "cuda") == torch.bfloat16
    memory = type("Card", (), {"total_memory": 80 << 30})
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: memory)
    assert fitting_tokens("cpu", 1e6, 4096) == 4096
    assert fitting_tokens("cuda", 1e6, 4096) == 21474836480 // 10**6 // 1024 * 1024
    assert fitting_tokens("cuda", 1.0, 4096) == 1 << 16 and fitting_tokens("cuda", 1e12, 4096) == 1024


class ElsewhereTensor(Tensor):
    """A tensor that, like one on a GPU, has no array of its own."""

    def numpy(self, *_: Any, **__: Any) -> Any:
        raise TypeError("not on the CPU")

    def cpu(self, *_: Any, **__: Any) -> Tensor:
        return self.as_subclass(Tensor)


def test_a_static_model_trained_on_a_device_is_saved_from_it() -> None:
    encoder = StaticEncoder(np.ones((3, 4), np.float32), Vocabulary(["a", "b"]))
    for part in encoder.modules():
        for name, weight in list(part._parameters.items()):
            if weight is not None:
                part._parameters[name] = nn.Parameter(weight.detach().as_subclass(ElsewhereTensor))
    with pytest.raises(TypeError, match="not on the CPU"):
        encoder.word_vectors.detach().numpy()
    np.testing.assert_array_equal(encoder.to_numpy().word_vectors, np.ones((3, 4), np.float32))


def test_products_of_a_search_are_not_in_tf32() -> None:
    before = torch.get_float32_matmul_precision()
    try:
        torch.set_float32_matmul_precision("high")
        with full_precision():
            assert torch.get_float32_matmul_precision() == "highest"
        assert torch.get_float32_matmul_precision() == "high"
    finally:
        torch.set_float32_matmul_precision(before)


def test_cudnn_computes_no_attention_on_a_gpu() -> None:
    before = torch.backends.cuda.cudnn_sdp_enabled(), torch.get_float32_matmul_precision()
    try:
        torch.backends.cuda.enable_cudnn_sdp(True)
        find_device("cpu")
        assert torch.backends.cuda.cudnn_sdp_enabled()
        find_device("gpu")
        assert not torch.backends.cuda.cudnn_sdp_enabled()
    finally:
        torch.backends.cuda.enable_cudnn_sdp(before[0])
        torch.set_float32_matmul_precision(before[1])


def test_reading_ahead_changes_nothing_and_passes_errors_on() -> None:
    def read(rows: Any) -> Any:
        if rows[0] == 10**6:
            raise ValueError("unreadable")
        return rows

    def forward(rows: Any) -> Any:
        return np.stack([rows, rows + 1], 1).astype(np.float32)

    rows = np.arange(25)
    expected = encode(forward, read, rows, 2, normalise=False)
    np.testing.assert_array_equal(
        encode(forward, read, rows, 2, normalise=False, batch=7, ahead=True), expected
    )
    with pytest.raises(ValueError, match="unreadable"):
        encode(forward, read, np.array([1, 10**6]), 2, batch=1, ahead=True)
    begun: list[int] = []
    seen = [(item, list(begun)) for item in one_behind(begun.append(i) or i for i in range(3))]  # type: ignore[func-returns-value]
    assert seen == [(0, [0, 1]), (1, [0, 1, 2]), (2, [0, 1, 2])]


@pytest.mark.slow
def test_jax_is_never_imported(tmp_path: Path) -> None:
    """It would take 75 % of a GPU's memory."""
    (tmp_path / "jax").mkdir()
    (tmp_path / "jax" / "__init__.py").write_text("raise RuntimeError('jax was imported')\n")
    (tmp_path / "jax" / "lax.py").write_text("")
    code = (
        "import sys, citerec.evaluate, citerec.train, citerec.training.loop, citerec.hatten.model\n"
        "from transformers import BertModel\n"
        "import citerec.retrieval.lexical.bm25, citerec.rerank.ranker.model\n"
        "import citerec.library.ask.recommender\n"
        "import citerec.rerank.cross_encoder.train, citerec.retrieval.encoders.article\n"
        "print([name for name in sys.modules if name.split('.')[0] == 'jax'])"
    )
    environment = {**os.environ, "PYTHONPATH": str(tmp_path), "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-P", "-c", code], env=environment, capture_output=True, text=True)
    assert done.stdout == "[]\n", done.stderr
