"""Back ends that score batches of pairs: torch, or OpenVINO on CPUs, optionally in int8."""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import importlib.util
import io
import json
import logging
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from citerec.base.errors import InputError, error_text, missing_extra
from citerec.base.files import atomic_folder, cache_folder
from citerec.datasets.records import TARGET_MARKER, TRAIN
from citerec.rerank.cross_encoder.network import CrossEncoder
from citerec.rerank.cross_encoder.pairs import PairReader, TokenPairs
from citerec.rerank.settings import ScoringSettings
from citerec.retrieval.encoders.nets import precision
from citerec.retrieval.queries import Queries, Query
from citerec.retrieval.vectors import chunks

if TYPE_CHECKING:
    import openvino

log = logging.getLogger(__name__)

CALIBRATION = 128
"""Pairs that calibrate the activation ranges of int8."""

MODEL = "model.xml"

Rows = NDArray[np.int64]
Scores = NDArray[np.float32]


def batches(lengths: NDArray[np.int64], tokens: int) -> Iterator[Rows]:
    """Yield rows of lengths [N] in batches of at most `tokens` tokens after padding, longest rows first.

    >>> [batch.tolist() for batch in batches(np.array([8, 30, 7, 31]), 64)]
    [[3, 1], [0, 2]]
    """
    order = np.argsort(-lengths, kind="stable")
    for part in chunks(lengths[order], tokens):
        yield order[part]


class PairBatch(Protocol):
    """N tokenised pairs, such as rerank.cross_encoder.pairs.TokenPairs."""

    @property
    def lengths(self) -> NDArray[np.int64]:
        """[N], in tokens"""

    def padded(self, rows: NDArray[np.integer]) -> tuple[Tensor, Tensor, Tensor]:
        """Rows [B] of the pairs -> input_ids, token_type_ids, attention_mask, each [B, L] int64."""


class RandomPairs:
    """Pairs of random subwords of the maximum length, the slowest to score."""

    def __init__(self, model: CrossEncoder, count: int) -> None:
        length = model.config.max_tokens
        self.lengths = np.full(count, length, np.int64)
        self._ids = np.random.default_rng(0).integers(len(model.tokenizer), size=(count, length))

    def padded(self, rows: NDArray[np.integer]) -> tuple[Tensor, Tensor, Tensor]:
        ids = torch.from_numpy(self._ids[rows])
        return ids, torch.zeros_like(ids), torch.ones_like(ids)


class Backend(Protocol):
    """Scores pairs with one model."""

    arithmetic: str
    """all that the scores depend on besides the model"""
    streams: int
    """number of batches scored in parallel"""

    def prepare(self, sample: Callable[[int], PairBatch], source: str) -> None:
        """Prepare for pairs like those of a sample, which may take a minute.

        sample: returns a given number of pairs. source: names their origin, as a key for the cache.
        """

    def scores(self, pairs: PairBatch, parts: Iterable[Rows]) -> Iterator[tuple[Rows, Scores]]:
        """Yield the rows [B] and scores [B] of each batch in `parts`, in any order."""


def open_backend(model: CrossEncoder, scoring: ScoringSettings, identity: str) -> Backend:
    """Open the configured back end; InputError if it is unavailable.

    identity: hash of the model, as a key for the cache.
    """
    if scoring.backend == "openvino" or (scoring.backend == "auto" and scoring.precision == "int8"):
        return OpenVinoBackend(model, scoring.precision, scoring.threads, identity)
    return TorchBackend(model, scoring.precision, scoring.compile, scoring.threads)


class TorchBackend:
    """Runs the network in torch, with weights in the precision of the computation."""

    def __init__(self, model: CrossEncoder, arithmetic: str, compile: bool = False, threads: int = 0) -> None:
        """arithmetic: auto, float32 or bfloat16. threads: 0 keeps torch's setting."""
        dtype = precision(arithmetic)
        device = "cuda" if torch.cuda.is_available() else "cpu"
        if threads:
            torch.set_num_threads(threads)
        model.precision = dtype
        model.to(device, dtype)
        self.arithmetic, self.streams = f"torch {device} {dtype}{' compiled' if compile else ''}", 1
        self._model = model
        # Freezing packs the weights for the processor's matrix products once, not in each call.
        self._forward = (
            torch.compile(model, dynamic=True, options={"freezing": device == "cpu"}) if compile else model
        )

    def prepare(self, sample: Callable[[int], PairBatch], source: str) -> None:
        """Nothing to do."""

    def scores(self, pairs: PairBatch, parts: Iterable[Rows]) -> Iterator[tuple[Rows, Scores]]:
        """Score batches one after the other, each with all threads."""
        for rows in parts:
            with torch.inference_mode():
                scores = self._model.scores(self._forward(*pairs.padded(rows)))
            yield rows, scores.cpu().numpy()


class OpenVinoBackend:
    """Runs the network compiled by OpenVINO; batches run in parallel, each on one thread."""

    def __init__(self, model: CrossEncoder, arithmetic: str, threads: int, identity: str) -> None:
        """arithmetic: auto, float32, bfloat16 or int8 (linear layers in 8 bits, the rest as auto).

        threads: 0 means as many as torch uses. identity: hash of the model. Raises InputError if OpenVINO is
        not installed; `prepare` raises it if the model cannot be converted.
        """
        self._int8 = arithmetic == "int8"
        self._openvino = _import_openvino(self._int8)
        dtype = precision("auto" if self._int8 else arithmetic)
        self._hint = "bf16" if dtype == torch.bfloat16 else "f32"
        self.streams = threads or torch.get_num_threads()
        self.arithmetic = f"openvino {'int8 ' if self._int8 else ''}{self._hint}"
        self._model, self._identity = model.float().cpu(), identity
        self._compiled: openvino.CompiledModel | None = None
        self._prepared = ""

    def prepare(self, sample: Callable[[int], PairBatch], source: str) -> None:
        """Convert the network, once per model; for int8 also calibrate it, once per model and sample."""
        key = [self._identity, self._openvino.__version__]
        if self._int8:
            import nncf

            key += [source, str(CALIBRATION), nncf.__version__, "7-bit weights"]
        digest = hashlib.blake2b(json.dumps(key).encode(), digest_size=12).hexdigest()
        if digest == self._prepared:
            return
        core = self._openvino.Core()
        folder = cache_folder() / "openvino" / digest
        if not (folder / MODEL).is_file():
            network = self._convert()
            if self._int8:
                network = self._quantise(network, sample(CALIBRATION))
            with atomic_folder(folder) as part:
                self._openvino.save_model(network, part / MODEL, compress_to_fp16=False)
        settings = {
            "INFERENCE_PRECISION_HINT": self._hint,
            "NUM_STREAMS": self.streams,
            "INFERENCE_NUM_THREADS": self.streams,
            "ENABLE_CPU_PINNING": False,  # cores may be busy with other work
        }
        with _openvino_errors():
            self._compiled = core.compile_model(core.read_model(folder / MODEL), "CPU", settings)
        self._prepared = digest

    def scores(self, pairs: PairBatch, parts: Iterable[Rows]) -> Iterator[tuple[Rows, Scores]]:
        """Score batches in parallel and yield them in their order."""
        assert self._compiled is not None, "prepare first"
        # Two requests per stream, so that no stream waits for input. No callbacks: the thread that frees a
        # callback needs the GIL, and whoever frees the network holds the GIL while waiting for that thread.
        free = [self._compiled.create_infer_request() for _ in range(2 * self.streams)]
        running: deque[tuple[Rows, openvino.InferRequest]] = deque()

        def finish_oldest() -> tuple[Rows, Scores]:
            rows, request = running.popleft()
            request.wait()
            first = torch.from_numpy(request.get_output_tensor(0).data.copy())
            free.append(request)
            with torch.inference_mode():
                return rows, self._model.scores(self._model.logits(first)).numpy()

        try:
            for rows in parts:
                if not free:
                    yield finish_oldest()
                request = free.pop()
                request.start_async([part.numpy() for part in pairs.padded(rows)])
                running.append((rows, request))
            while running:
                yield finish_oldest()
        finally:
            for _, request in running:
                request.wait()

    def _convert(self) -> openvino.Model:
        example = RandomPairs(self._model, 2).padded(np.arange(2))
        with _openvino_errors(), torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # warnings of tracing
            return self._openvino.convert_model(_FirstHidden(self._model), example_input=example)

    def _quantise(self, network: openvino.Model, pairs: PairBatch) -> openvino.Model:
        import nncf

        count = len(pairs.lengths)
        log.info(f"int8: calibrating on {count} pairs, once per model and corpus; takes about half a minute")
        inputs = [tuple(part.numpy() for part in pairs.padded(np.array([row]))) for row in range(count)]
        # Quantised attention is no faster but less exact; in the last layer it is that of a single token.
        names = [
            node.get_friendly_name()
            for node in network.get_ops()
            if node.get_type_name() == "ScaledDotProductAttention"
            or (node.get_type_name() == "MatMul" and "aten::linear" not in node.get_friendly_name())
        ]
        nncf.set_log_level(logging.ERROR)
        with contextlib.redirect_stdout(io.StringIO()):
            return nncf.quantize(
                network,
                nncf.Dataset(inputs),
                subset_size=len(inputs),
                model_type=nncf.ModelType.TRANSFORMER,
                preset=nncf.QuantizationPreset.MIXED,
                ignored_scope=nncf.IgnoredScope(names=names),
                # Without VNNI, sums of two products saturate at 16 bits, unless weights have 7.
                advanced_parameters=nncf.AdvancedQuantizationParameters(overflow_fix=nncf.OverflowFix.ENABLE),
            )


class _FirstHidden(nn.Module):
    """The network without its head, which stays in torch: scores differ by less than bfloat16 resolves."""

    def __init__(self, model: CrossEncoder) -> None:
        super().__init__()
        self.model = model

    def forward(self, ids: Tensor, types: Tensor, mask: Tensor) -> Tensor:
        return self.model.first_hidden(ids, types, mask)


@contextlib.contextmanager
def _openvino_errors() -> Iterator[None]:
    """Turn OpenVINO's errors about the model or the processor into InputError."""
    try:
        yield
    except Exception as error:  # OpenVINO raises nearly anything
        why = error_text(error)
        raise InputError(f"OpenVINO does not support this model ({why}); use scoring.backend=torch") from None


def _import_openvino(int8: bool) -> Any:
    """Import `openvino`; InputError if it, or what int8 needs, is not installed."""
    for name in ("openvino", "nncf") if int8 else ("openvino",):
        if importlib.util.find_spec(name) is None:
            raise InputError(
                missing_extra("scoring with OpenVINO", "int8") + f" ({name} is not installed), or choose "
                "scoring.backend=torch with bfloat16 or float32"
            )
    return importlib.import_module("openvino")


def sample_pairs(reader: PairReader, count: int) -> TokenPairs:
    """Sample pairs of training contexts, each with its cited paper and a random one; always the same.

    Without contexts, abstracts serve as contexts, each paired with a random paper.
    """
    corpus, random = reader.corpus, np.random.default_rng(0)
    if not corpus.splits:
        citing, candidates = random.integers(len(corpus.paper_ids), size=(2, count))
        queries = [Query(f"{corpus.abstracts[row]} {TARGET_MARKER}", corpus.titles[row]) for row in citing]
        return reader.for_queries(Queries.from_list(corpus, queries)).pairs(np.arange(count), candidates)
    split = corpus.splits.get(TRAIN) or next(iter(corpus.splits.values()))
    rows = random.choice(len(split), min(count // 2, len(split)), replace=False)
    cited = np.array([split.positives[row][0] for row in rows.tolist()])
    others = random.integers(len(corpus.paper_ids), size=len(rows))
    contexts = split.contexts[rows]
    return reader.pairs(np.concatenate([contexts, contexts]), np.concatenate([cited, others]))
