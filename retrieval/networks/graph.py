"""Writes BERTs as ONNX graphs, from their weights alone: no tracing, no torch.

A graph takes `ids` [B, L] int32, and in a cross-encoder `types` [B, L], of texts of the same length: there is
no padding and no mask, so a result never depends on what else is in a batch. It returns `hidden`, the last
hidden states [B, L, H], or `logit` [B], of the first token.

In 8 bits, word vectors have a scale for each row; with `word_bits=4`, a scale for each BLOCK of a row, which
loses nothing if they were stored like this before. Linear layers multiply 8-bit inputs, quantised over the
range of a text (DynamicQuantizeMatMul of ONNX Runtime), by weights with a scale for each output. These have 7
bits: without VNNI, sums of two products saturate at 16 bits. A few channels of BERT's hidden states are ten
times as large as the others (Kovaleva et al. 2021); such inputs are divided by a factor, and their weights
multiplied by it (Xiao et al. 2023, SmoothQuant). The factors are found with random texts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from citerec.base.errors import InputError, error_text, missing_extra
from citerec.base.files import atomic_write
from citerec.retrieval.arrays import Floats
from citerec.retrieval.networks.session import start_session

OPSET, IR_VERSION, MICROSOFT = 20, 10, "com.microsoft"
BITS = 7
"""Bits of weights of linear layers in 8-bit graphs."""
LARGE = 2.0
"""Inputs above this multiple of the typical channel's range are made smaller."""
BLOCK = 32
"""Numbers of a word vector of 4 bits that share a scale."""
SAMPLE, SAMPLE_LENGTH = 8, 96
"""Random texts that show which inputs are large, and their tokens."""


@dataclass(frozen=True)
class Head:
    """Linear layer on the first token, after a ReLU if `relu`: weight [H]."""

    weight: Floats
    bias: float
    relu: bool = False


@dataclass(frozen=True)
class Bert:
    """Weights by their names in transformers' BertModel, without pooler; a cross-encoder has a head.

    word_bits: 8 or 4, of word vectors in graphs of 8 bits."""

    weights: Mapping[str, Floats]
    heads: int
    epsilon: float = 1e-12
    head: Head | None = None
    word_bits: int = 8

    @property
    def layers(self) -> int:
        return 1 + max(int(name.split(".")[2]) for name in self.weights if name.startswith("encoder.layer."))

    @property
    def shape(self) -> tuple[int, int]:
        """Number of words and H."""
        words, size = self.weights["embeddings.word_embeddings.weight"].shape
        return int(words), int(size)


def write_graph(bert: Bert, path: Path, int8: bool = True) -> None:
    """Write a graph to a file; int8: with 8-bit weights. InputError for other weights than a BERT's."""
    try:
        factors = _factors(bert) if int8 else {}
        content = _Graph(bert, int8, factors).model().SerializeToString(deterministic=True)
    except (KeyError, ValueError) as error:
        raise InputError(f"{path}: these are not the weights of a BERT ({error_text(error)})") from None
    with atomic_write(path) as part:
        part.write_bytes(content)


def _factors(bert: Bert) -> dict[str, Floats]:
    """Find the factors that the inputs of each linear layer are divided by, [K], by the layer's name.

    The root of how many times a channel's largest value exceeds LARGE times that of the median channel: half
    of the range moves to the weights.
    """
    graph = _Graph(bert, False, {})
    session = start_session(graph.model(watched=True).SerializeToString())
    largest: dict[str, Floats] = {}
    inputs = list(dict.fromkeys(graph.inputs.values()))
    random, (words, _) = np.random.default_rng(0), bert.shape
    for _ in range(SAMPLE):
        ids = random.integers(words, size=(1, SAMPLE_LENGTH), dtype=np.int32)
        feeds = {"ids": ids} | ({"types": np.zeros_like(ids)} if bert.head else {})
        for name, value in zip(inputs, session.run(inputs, feeds), strict=True):
            top = np.abs(value).reshape(-1, value.shape[-1]).max(axis=0)
            largest[name] = np.maximum(largest.get(name, top), top)
    factors = {}
    for layer, name in graph.inputs.items():
        usual = max(LARGE * float(np.median(largest[name])), 1e-6)
        factors[layer] = np.sqrt(np.maximum(largest[name] / usual, 1)).astype(np.float32)
    return factors


@dataclass
class _Graph:
    """Nodes and constants of a graph that is being written."""

    bert: Bert
    int8: bool
    factors: Mapping[str, Floats]
    nodes: list[Any] = field(default_factory=list)
    constants: dict[str, Any] = field(default_factory=dict)
    inputs: dict[str, str] = field(default_factory=dict)
    """input of each linear layer"""

    def __post_init__(self) -> None:
        try:
            from onnx import TensorProto, helper, numpy_helper
        except ImportError:
            raise InputError(missing_extra("writing an ONNX graph", "train")) from None
        self.onnx, self.tensors, self.kinds = helper, numpy_helper, TensorProto

    def model(self, watched: bool = False) -> Any:
        """Return the model; watched: with the inputs of all linear layers as further outputs."""
        bert, make = self.bert, self.onnx.make_tensor_value_info
        hidden = self.embeddings()
        for number in range(bert.layers):
            hidden = self.layer(number, hidden, first=bert.head is not None and number == bert.layers - 1)
        shape: list[str | int | None]
        if bert.head is None:
            result, shape = self.rename(hidden, "hidden"), ["B", "L", bert.shape[1]]
        else:
            result, shape = self.score(hidden, bert.head), ["B"]
        kinds, names = self.kinds, ("ids", "types") if bert.head else ("ids",)
        inputs = [make(name, kinds.INT32, ["B", "L"]) for name in names]
        outputs = [make(result, kinds.FLOAT, shape)]
        if watched:
            outputs += [make(name, kinds.FLOAT, None) for name in dict.fromkeys(self.inputs.values())]
        graph = self.onnx.make_graph(self.nodes, "bert", inputs, outputs, list(self.constants.values()))
        opsets = [self.onnx.make_opsetid("", OPSET), self.onnx.make_opsetid(MICROSOFT, 1)]
        return self.onnx.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION)

    # Parts of the network.

    def embeddings(self) -> str:
        """Words, positions and segments: [B, L, H]."""
        words, positions, types = (
            self.bert.weights[f"embeddings.{name}_embeddings.weight"]
            for name in ("word", "position", "token_type")
        )
        if self.int8 and self.bert.word_bits == 4:
            summed = self.blocks(words)
        elif self.int8:
            table, scales = _quantise(words.T, 8)
            rows = self.node("Gather", [self.constant("words", np.ascontiguousarray(table.T)), "ids"])
            scale = self.node("Gather", [self.constant("word_scales", scales[:, None]), "ids"])
            summed = self.node("Mul", [self.node("Cast", [rows], to=self.kinds.FLOAT), scale])
        else:
            summed = self.node("Gather", [self.constant("words", words), "ids"])
        length = self.node("Gather", [self.node("Shape", ["ids"]), self.number(1)])
        order = self.node("Range", [self.number(0), length, self.number(1)])
        shifted = positions if self.bert.head else positions + types[0]
        summed = self.node("Add", [summed, self.node("Gather", [self.constant("positions", shifted), order])])
        if self.bert.head:
            segments = self.node("Gather", [self.constant("segments", types), "types"])
            summed = self.node("Add", [summed, segments])
        return self.normalised(summed, "embeddings.LayerNorm")

    def blocks(self, words: Floats) -> str:
        """Word vectors of 4 bits: [B, L, H]."""
        numbers, scales = _quantise_blocks(words)
        packed = (numbers[:, ::2] & 15) | (numbers[:, 1::2] << 4)
        table = self.onnx.make_tensor(
            "words", self.kinds.INT4, words.shape, packed.astype(np.uint8).tobytes(), raw=True
        )
        self.constants["words"] = table
        self.constants["word_scales"] = self.tensors.from_array(scales, "word_scales")
        options = {"block_size": BLOCK, "gather_axis": 0, "quantize_axis": 1}
        rows = self.node("GatherBlockQuantized", ["words", "ids", "word_scales"], domain=MICROSOFT, **options)
        return self.node("Cast", [rows], to=self.kinds.FLOAT)

    def layer(self, number: int, hidden: str, first: bool) -> str:
        """A transformer layer: [B, L, H] -> [B, L, H], or of the first token alone, [B, 1, H]."""
        prefix, weights = f"encoder.layer.{number}.", self.bert.weights
        names = [f"{prefix}attention.self.{name}" for name in ("query", "key", "value")]
        if first:
            ends = [self.constant(f"first_{name}", np.array([at])) for name, at in (("from", 0), ("to", 1))]
            first_word = self.node("Slice", [hidden, *ends, ends[1]])
            query = self.linear(first_word, f"{prefix}query", names[:1])
            key, value = self.split(self.linear(hidden, f"{prefix}key_value", names[1:]), 2)
        else:
            first_word = hidden
            query, key, value = self.split(self.linear(hidden, f"{prefix}query_key_value", names), 3)
        attended = self.node(
            "MultiHeadAttention", [query, key, value], domain=MICROSOFT, num_heads=self.bert.heads
        )
        output = f"{prefix}attention.output."
        added = self.node("Add", [self.linear(attended, f"{output}dense", [f"{output}dense"]), first_word])
        attended = self.normalised(added, f"{output}LayerNorm")
        wide = self.linear(attended, f"{prefix}wide", [f"{prefix}intermediate.dense"], bias=False)
        bias = self.constant(f"{prefix}wide.bias", weights[f"{prefix}intermediate.dense.bias"])
        wide = self.node("BiasGelu", [wide, bias], domain=MICROSOFT)
        added = self.node(
            "Add", [self.linear(wide, f"{prefix}output.dense", [f"{prefix}output.dense"]), attended]
        )
        return self.normalised(added, f"{prefix}output.LayerNorm")

    def score(self, hidden: str, head: Head) -> str:
        """The head: [B, 1, H] -> logit [B]."""
        hidden = self.node("Relu", [hidden]) if head.relu else hidden
        weight, bias = head.weight.reshape(-1, 1), self.constant("head.bias", [head.bias])
        logit = self.node("Add", [self.node("MatMul", [hidden, self.constant("head.weight", weight)]), bias])
        axes = self.constant("axes", np.array([1, 2]))
        return self.rename(self.node("Squeeze", [logit, axes]), "logit")

    def linear(self, value: str, name: str, layers: list[str], bias: bool = True) -> str:
        """Linear layers of the same input, side by side: [..., K] -> [..., N]."""
        weight = np.concatenate([self.bert.weights[f"{layer}.weight"] for layer in layers]).T
        biases = np.concatenate([self.bert.weights[f"{layer}.bias"] for layer in layers])
        added = [self.constant(f"{name}.bias", biases)] if bias else []
        self.inputs[name] = value
        if not self.int8:
            product = self.node("MatMul", [value, self.constant(f"{name}.weight", weight)])
            return self.node("Add", [product, *added]) if bias else product
        factors = self.factors[name]
        if (factors > 1).any():
            value = self.node("Mul", [value, self.constant(f"{name}.factors", 1 / factors)])
        rows, scales = _quantise(weight * factors[:, None], BITS)
        zeros = self.constant(f"{name}.zeros", np.zeros(len(scales), np.int8))
        parts = [self.constant(f"{name}.weight", rows), self.constant(f"{name}.scales", scales), zeros]
        return self.node("DynamicQuantizeMatMul", [value, *parts, *added], domain=MICROSOFT)

    def normalised(self, value: str, name: str) -> str:
        """Layer normalisation."""
        names = (f"{name}.weight", f"{name}.bias")
        parts = [self.constant(part, self.bert.weights[part]) for part in names]
        return self.node("LayerNormalization", [value, *parts], axis=-1, epsilon=self.bert.epsilon)

    # Nodes.

    def constant(self, name: str, value: Any) -> str:
        array = np.asarray(value)
        if array.dtype.kind == "f":
            array = array.astype(np.float32)
        self.constants[name] = self.tensors.from_array(array.copy(order="C"), name)
        return name

    def number(self, value: int) -> str:
        return self.constant(f"number_{value}", np.array(value))

    def node(self, kind: str, inputs: list[str], outputs: int = 1, domain: str = "", **options: Any) -> str:
        name = f"{kind}_{len(self.nodes)}"
        names = [name, *(f"{name}_{number}" for number in range(1, outputs))]
        self.nodes.append(self.onnx.make_node(kind, inputs, names, name=name, domain=domain, **options))
        return name

    def split(self, value: str, parts: int) -> list[str]:
        """Split the last axis into equal parts."""
        name = self.node("Split", [value], parts, axis=-1, num_outputs=parts)
        return [name, *(f"{name}_{number}" for number in range(1, parts))]

    def rename(self, value: str, name: str) -> str:
        self.nodes.append(self.onnx.make_node("Identity", [value], [name], name=name))
        return name


def _quantise(values: Floats, bits: int) -> tuple[NDArray[np.int8], Floats]:
    """Round to symmetric integers with a scale for each column: [K, N] -> [K, N], [N]."""
    top = 2 ** (bits - 1) - 1
    scales = np.maximum(np.abs(values).max(axis=0), 1e-12) / np.float32(top)
    return np.rint(values / scales).astype(np.int8), scales.astype(np.float32)


def _quantise_blocks(words: Floats) -> tuple[NDArray[np.int8], NDArray[np.float16]]:
    """Round to integers from -8 to 7 with a scale for each BLOCK, whose largest number becomes -8: [V, H] ->
    [V, H], [V, H / BLOCK]."""
    blocks = words.reshape(len(words), -1, BLOCK)
    place = np.abs(blocks).argmax(axis=2)[..., None]
    scales = (np.take_along_axis(blocks, place, axis=2)[..., 0] / -8).astype(np.float16)
    divisors = np.where(scales == 0, 1, scales).astype(np.float32)[..., None]
    return np.rint(blocks / divisors).clip(-8, 7).astype(np.int8).reshape(words.shape), scales
