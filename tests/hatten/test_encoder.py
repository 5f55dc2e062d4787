"""The encoder compared with the reference and with a plain padded version, and invariances of its output."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from citerec.datasets.columns import Ragged, offsets_of
from citerec.hatten.documents import ABSENT_TYPE, ABSTRACT, CONTEXT, TITLE, Documents
from citerec.hatten.encoder import MEAN_LENGTH, HAttenEncoder, Mean, MultiHeadPooling, TransformerLayer
from citerec.hatten.published.checkpoint import load_reference_checkpoint
from citerec.hatten.settings import EncoderConfig
from citerec.retrieval.encoders.nets import to_device
from citerec.tests.hatten.made import documents as of_words

GOLDEN = Path(__file__).parents[3] / "shared" / "golden"
WORDS = 40


def made(seed: int = 0, **options: Any) -> HAttenEncoder:
    """Return a small encoder in evaluation mode; every weight is random, so that none can go unused."""
    config = EncoderConfig(**{"dim": 16, "heads": 4, "hidden": 24, "max_tokens": 30, **options})
    random = torch.Generator().manual_seed(seed)
    table = torch.randn(WORDS, config.dim, generator=random)
    encoder = HAttenEncoder(config, table.numpy())
    with torch.no_grad():
        for weight in encoder.parameters():
            weight.copy_(torch.randn(weight.shape, generator=random) * 0.3)
    return encoder.eval()


def padded(count: int, seed: int, length: int = 30) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Return random documents with some absent paragraphs: ids [B, 3, L], types [B, 3], absent [B, 3]."""
    random = np.random.default_rng(seed)
    ids = random.integers(1, WORDS, (count, 3, length))
    lengths = random.integers(0, length + 1, (count, 3)) * (random.random((count, 3)) < 0.8)
    ids[np.arange(length) >= lengths[:, :, None]] = 0
    types = np.broadcast_to([TITLE, ABSTRACT, CONTEXT], (count, 3)).copy()
    return ids, types, lengths == 0


def from_padded(
    token_ids: NDArray[np.integer], types: NDArray[np.integer], absent: NDArray[np.bool_], pad_id: int = 0
) -> Documents:
    """Convert padded arrays: token_ids [B, P, L], types [B, P], absent [B, P] (True: no paragraph).

    Tokens equal to `pad_id` are dropped; a paragraph without tokens becomes absent.
    """
    real = (token_ids != pad_id) & ~absent[:, :, None]
    lengths = real.sum(2)
    present = lengths > 0
    index = np.where(present, np.cumsum(present).reshape(present.shape) - 1, -1)
    paragraphs = Ragged(token_ids[real].astype(np.int32), offsets_of(lengths[present]))
    return Documents(paragraphs, index, np.where(present, types, ABSENT_TYPE).astype(np.int64))


def documents(count: int, seed: int) -> Documents:
    return from_padded(*padded(count, seed))


def plain(encoder: HAttenEncoder, ids: NDArray[Any], types: NDArray[Any], absent: NDArray[Any]) -> Tensor:
    """Section 4.1 implemented directly: paragraphs padded to one length, torch's layers, no packing."""
    config, count, slots, length = encoder.config, *ids.shape
    x = (
        encoder.word_vectors[torch.from_numpy(ids)].view(count * slots, length, config.dim)
        * config.input_scale
    )
    no_token = torch.from_numpy(ids == 0).view(count * slots, length)
    no_token = no_token & ~no_token.all(1, keepdim=True)  # torch's layer gives NaN for a row without a token
    paragraphs = level(encoder.word_level, config, x, no_token).view(count, slots, config.dim)
    gone = torch.from_numpy(absent)
    kinds = torch.from_numpy(np.where(absent, ABSENT_TYPE, types))
    x = paragraphs.masked_fill(gone[:, :, None], 0.0) + encoder.type_vectors(kinds)
    nothing = gone.all(1, keepdim=True)
    return level(encoder.document_level, config, x, gone & ~nothing).masked_fill(nothing, 0.0)


def level(ours: Any, config: EncoderConfig, x: Tensor, absent: Tensor) -> Tensor:
    if isinstance(ours, Mean):
        return mean(x, absent)
    rate = 10000.0 ** (-torch.arange(0, config.dim, 2) / config.dim)
    angle = torch.arange(x.shape[1])[:, None] * rate
    x = x + torch.stack([angle.sin(), angle.cos()], 2).flatten(1)
    for layer in ours.layers:
        x = torch_layer(layer, config)(x, src_key_padding_mask=absent)
    if isinstance(ours.pool, Mean):
        return mean(x, absent)
    pool: MultiHeadPooling = ours.pool
    heads = []
    for head in range(config.heads):
        score = x @ pool.score.weight[head] + pool.score.bias[head]
        share = score.masked_fill(absent, -math.inf).softmax(1)
        rows = slice(head * config.dim // config.heads, (head + 1) * config.dim // config.heads)
        heads.append((share[:, :, None] * F.linear(x, pool.value.weight[rows], pool.value.bias[rows])).sum(1))
    return F.linear(torch.cat(heads, 1).relu(), pool.out.weight, pool.out.bias)


def mean(x: Tensor, absent: Tensor) -> Tensor:
    return torch.stack([row[~gone].mean(0) for row, gone in zip(x, absent, strict=True)])


def torch_layer(layer: TransformerLayer, config: EncoderConfig) -> Any:
    """Return torch's post-norm ReLU layer as a function of our layer's weights, which receive gradients."""
    theirs = nn.TransformerEncoderLayer(
        config.dim, config.heads, config.hidden, dropout=0.0, batch_first=True
    )
    names: dict[str, nn.Module] = {"norm1.": layer.norm1, "norm2.": layer.norm2, "linear1.": layer.up}
    names |= {"linear2.": layer.down, "self_attn.in_proj_": layer.qkv, "self_attn.out_proj.": layer.out}
    weights = {
        f"{name}{kind}": getattr(part, kind) for name, part in names.items() for kind in ("weight", "bias")
    }
    return lambda *x, **options: torch.func.functional_call(theirs, weights, x, options)


@pytest.mark.skipif(not GOLDEN.is_dir(), reason="the reference's output is not at ../shared/golden")
def test_embeddings_attention_and_sizes_match_the_reference() -> None:
    golden = np.load(GOLDEN / "hatten_reference.npz")
    encoder, sizes = (
        load_reference_checkpoint(GOLDEN / "hatten_reference.pt"),
        json.loads(str(golden["hyper"])),
    )
    ids, types, absent_ones = (golden[name] for name in ("token_ids", "paragraph_types", "paragraph_mask"))
    with torch.no_grad():
        papers = from_padded(ids, types, absent_ones, sizes["pad_index"])
        ours, inputs = encoder.encode(papers), to_device(encoder.layout.prepare(papers), "cpu")
        x, absent = encoder.paragraph_inputs(inputs), inputs.missing
        share = encoder.document_level.pool.attention(encoder.document_level.contextualise(x, absent), absent)
    np.testing.assert_allclose(ours.numpy(), golden["embedding"], rtol=0, atol=1e-5)
    np.testing.assert_allclose(share.numpy()[:, :, None], golden["pool_attention"], rtol=0, atol=1e-5)
    config = encoder.config
    theirs = ("embed_dim", "num_heads", "hidden_dim", "max_seq_len", "max_doc_len", "num_enc_layers")
    assert [sizes[name] for name in theirs] == [
        *(config.dim, config.heads, config.hidden, config.max_tokens, config.max_paragraphs, config.layers)
    ]
    assert config.paragraph_types == sizes["n_para_types"] and not encoder.training
    assert len(encoder.word_vectors) == sizes["vocab_size"]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"layers": 2, "trainable_vectors": "all", "input_scale": 3.0},
        {"dim": 6, "heads": 1},
        {"levels": "words"},
        {"levels": "paragraphs"},
        {"pooling": "mean"},
    ],
    ids=["defaults", "two layers", "one head", "no document level", "no word level", "no attention pooling"],
)
def test_implements_the_encoder_of_the_paper(options: dict[str, Any]) -> None:
    encoder = made(**options)
    encoder.chunk_tokens = 100  # several chunks
    inputs = padded(12, seed=1)
    ours = encoder.encode(from_padded(*inputs))
    oracle = plain(encoder, *inputs)
    torch.testing.assert_close(ours, oracle, rtol=1e-4, atol=1e-5)

    weights = [weight for weight in encoder.parameters() if weight.requires_grad]
    direction = torch.randn(ours.shape, generator=torch.Generator().manual_seed(2))
    slopes = torch.autograd.grad((ours * direction).sum(), weights)
    expected = torch.autograd.grad((oracle * direction).sum(), weights)
    assert all(slope.any() for slope in expected)
    torch.testing.assert_close(slopes, expected, rtol=1e-3, atol=1e-4)


def test_starts_as_a_mean_of_normalised_words() -> None:
    vectors = np.random.default_rng(0).standard_normal((WORDS, 24)).astype(np.float32)
    encoder = HAttenEncoder(EncoderConfig(initial="mean", input_scale=3.0), vectors).eval()
    ids = torch.arange(1, 31)[None]
    x = F.layer_norm(torch.from_numpy(vectors)[ids] * 3 + encoder.word_level.positions[:30], (24,))
    with torch.no_grad():
        paragraph = encoder.word_level(encoder.embed(ids), None)
        torch.testing.assert_close(paragraph, MEAN_LENGTH * x.mean(1), rtol=1e-4, atol=1e-4)
        spread = [
            weight.std() for weight in (encoder.word_level.layers[0].up.weight, encoder.type_vectors.weight)
        ]
    assert min(spread) > 0.01  # what is left random lets training depart from it


def take(all_of: Documents, rows: NDArray[Any]) -> Documents:
    return Documents(all_of.paragraphs, all_of.index[rows], all_of.types[rows])


@settings(max_examples=25)
@given(count=st.integers(1, 9), seed=st.integers(0, 10_000), chunk=st.integers(1, 300))
def test_neighbours_order_and_chunks_do_not_matter(count: int, seed: int, chunk: int) -> None:
    encoder, some = made(), documents(count, seed)
    with torch.no_grad():
        together = encoder.encode(some)
        order = np.random.default_rng(seed).permutation(count)
        encoder.chunk_tokens = chunk
        torch.testing.assert_close(
            encoder.encode(take(some, order)), together[order.tolist()], rtol=1e-4, atol=1e-5
        )
        alone = torch.cat([encoder.encode(take(some, np.array([row]))) for row in range(count)])
        torch.testing.assert_close(alone, together, rtol=1e-4, atol=1e-5)


def test_the_vector_of_the_padding_does_not_matter() -> None:
    encoder, some = made(), documents(8, seed=3)
    assert (some.index < 0).any() and (some.index >= 0).any()
    with torch.no_grad():
        before = encoder.encode(some)
        moved = encoder.word_vectors.clone()
        moved[0] = 1e3
        encoder.word_vectors.copy_(moved)
        after = encoder.encode(some)
    torch.testing.assert_close(after, before, rtol=0, atol=1e-6)


def test_a_document_without_words_gets_zeros() -> None:
    encoder = made()
    with torch.no_grad():
        assert encoder.encode(of_words([])).shape == (0, 16)
        assert not encoder.encode(of_words([[[]], [[]]])).any()
        vectors = encoder.encode(of_words([[[]], [[3, 4]]]))
    assert not vectors[0].any() and vectors[1].isfinite().all() and vectors[1].any()


def test_bfloat16_is_close_to_float32() -> None:
    encoder, some = made(), documents(30, seed=5)
    with torch.no_grad():
        exact = encoder.encode(some)
        encoder.precision = torch.bfloat16
        rough = encoder.encode(some)
    assert rough.dtype == torch.float32 and not torch.equal(rough, exact)
    present = exact.abs().sum(1) > 0
    assert F.cosine_similarity(rough, exact)[present].min() > 0.999


def test_dropout_applies_only_in_training_and_not_to_the_input() -> None:
    encoder, some = made(dropout=0.5), documents(5, seed=6)
    with torch.no_grad():
        assert torch.equal(encoder.encode(some), encoder.encode(some))
        encoder.train()
        assert not torch.equal(encoder.encode(some), encoder.encode(some))
    level, x, seen = encoder.word_level, torch.randn(4, 7, 16), list[Tensor]()
    level.layers[0].register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    level(x, None)
    assert torch.equal(seen[0], x + level.positions[:7])


@pytest.mark.parametrize(("trainable", "expected"), [("none", []), ("all", ["word_vectors"])])
def test_trains_the_configured_word_vectors(trainable: str, expected: list[str]) -> None:
    encoder = made(trainable_vectors=trainable)
    encoder.encode(documents(6, seed=7)).sum().backward()
    moved = [name for name, weight in encoder.named_parameters() if weight.grad is not None]
    assert [name for name in moved if name.endswith("vectors")] == expected
