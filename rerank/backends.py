"""What computes the scores of batches of pairs: torch, or OpenVINO on CPUs, if wanted in 8-bit integers."""

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

from datasets.errors import InputError, error_text, missing_extra
from datasets.files import atomic_folder, cache_folder
from datasets.records import TARGET_MARKER, TRAIN
from rerank.cross_encoder import CrossEncoder
from rerank.pairs import PairReader, TokenPairs
from rerank.settings import ScoringSettings
from retrieval.nets import precision
from retrieval.queries import Queries, Query
from retrieval.vectors import chunks

if TYPE_CHECKING:
    import openvino

log = logging.getLogger(__name__)

CALIBRATION = 128
"""Pairs that find the ranges of activations for int8."""

MODEL = "model.xml"

Rows = NDArray[np.int64]
Scores = NDArray[np.float32]


def batches(lengths: NDArray[np.int64], tokens: int) -> Iterator[Rows]:
    """Rows of lengths [N] in batches of at most `tokens` tokens after padding, the longest rows first.

    >>> [batch.tolist() for batch in batches(np.array([8, 30, 7, 31]), 64)]
    [[3, 1], [0, 2]]
    """
    order = np.argsort(-lengths, kind="stable")
    for part in chunks(lengths[order], tokens):
        yield order[part]


class PairBatch(Protocol):
    """N pairs, as rerank.pairs.TokenPairs."""

    @property
    def lengths(self) -> NDArray[np.int64]:
        """[N], in tokens"""

    def padded(self, rows: NDArray[np.integer]) -> tuple[Tensor, Tensor, Tensor]:
        """Some of them -> input_ids, token_type_ids, attention_mask, each [B, L] int64."""


class RandomPairs:
    """Pairs of random subwords, all as long as may be: they are scored no faster than real ones."""

    def __init__(self, model: CrossEncoder, count: int) -> None:
        most = model.config.max_tokens
        self.lengths = np.full(count, most, np.int64)
        self._ids = np.random.default_rng(0).integers(len(model.tokenizer), size=(count, most))

    def padded(self, rows: NDArray[np.integer]) -> tuple[Tensor, Tensor, Tensor]:
        ids = torch.from_numpy(self._ids[rows])
        return ids, torch.zeros_like(ids), torch.ones_like(ids)


class Backend(Protocol):
    """Scores pairs with one model."""

    arithmetic: str
    """All that its scores depend on beside the model."""
    streams: int
    """batches that it scores at once"""

    def prepare(self, sample: Callable[[int], PairBatch], about: str) -> None:
        """Get ready for pairs like those of a sample, of the size asked for; it may take a minute.

        about: names where the sample comes from, for what is kept in the cache.
        """

    def scores(self, pairs: PairBatch, parts: Iterable[Rows]) -> Iterator[tuple[Rows, Scores]]:
        """The scores [B] of each part, rows [B] of the pairs that make a batch; in any order."""


def open_backend(model: CrossEncoder, scoring: ScoringSettings, identity: str) -> Backend:
    """The back end that the settings name; InputError if it cannot be had.

    identity: a hash of the model, for what a back end keeps in the cache.
    """
    if scoring.backend == "openvino" or (scoring.backend == "auto" and scoring.precision == "int8"):
        return OpenVinoBackend(model, scoring.precision, scoring.threads, identity)
    return TorchBackend(model, scoring.precision, scoring.compile, scoring.threads)


class TorchBackend:
    """The net as it is, with weights in the precision that it computes in."""

    def __init__(self, model: CrossEncoder, arithmetic: str, compile: bool = False, threads: int = 0) -> None:
        """arithmetic: auto, float32 or bfloat16. threads: 0 leaves them as they are."""
        dtype = precision(arithmetic)
        device = "cuda" if torch.cuda.is_available() else "cpu"
        if threads:
            torch.set_num_threads(threads)
        model.precision = dtype
        model.to(device, dtype)
        self.arithmetic, self.streams = f"torch {device} {dtype}{' compiled' if compile else ''}", 1
        self._model = model
        # Frozen weights are laid out for the processor's matrix products once, not at each call.
        self._forward = (
            torch.compile(model, dynamic=True, options={"freezing": device == "cpu"}) if compile else model
        )

    def prepare(self, sample: Callable[[int], PairBatch], about: str) -> None:
        """Nothing to do."""

    def scores(self, pairs: PairBatch, parts: Iterable[Rows]) -> Iterator[tuple[Rows, Scores]]:
        """One part after the other, with all threads."""
        for rows in parts:
            with torch.inference_mode():
                found = self._model.scores(self._forward(*pairs.padded(rows)))
            yield rows, found.cpu().numpy()


class OpenVinoBackend:
    """The net compiled by OpenVINO; batches run in parallel, each on one thread."""

    def __init__(self, model: CrossEncoder, arithmetic: str, threads: int, identity: str) -> None:
        """arithmetic: auto, float32, bfloat16 or int8: linear maps of the layers in 8 bits, the rest as auto.

        threads: 0 for as many as torch uses. identity: a hash of the model. InputError where OpenVINO is not
        installed, and from `prepare` where the model cannot be converted.
        """
        self._int8 = arithmetic == "int8"
        self._openvino = _installed(self._int8)
        dtype = precision("auto" if self._int8 else arithmetic)
        self._hint = "bf16" if dtype == torch.bfloat16 else "f32"
        self.streams = threads or torch.get_num_threads()
        self.arithmetic = f"openvino {'int8 ' if self._int8 else ''}{self._hint}"
        self._model, self._identity = model.float().cpu(), identity
        self._compiled: openvino.CompiledModel | None = None
        self._prepared = ""

    def prepare(self, sample: Callable[[int], PairBatch], about: str) -> None:
        """Convert the net, once for a model; int8 calibrates it on a sample, once for a model and sample."""
        key = [self._identity, self._openvino.__version__]
        if self._int8:
            import nncf

            key += [about, str(CALIBRATION), nncf.__version__]
        digest = hashlib.blake2b(json.dumps(key).encode(), digest_size=12).hexdigest()
        if digest == self._prepared:
            return
        core = self._openvino.Core()
        folder = cache_folder() / "openvino" / digest
        if not (folder / MODEL).is_file():
            net = self._converted()
            if self._int8:
                net = self._quantised(net, sample(CALIBRATION))
            with atomic_folder(folder) as part:
                self._openvino.save_model(net, part / MODEL, compress_to_fp16=False)
        settings = {
            "INFERENCE_PRECISION_HINT": self._hint,
            "NUM_STREAMS": self.streams,
            "INFERENCE_NUM_THREADS": self.streams,
            "ENABLE_CPU_PINNING": False,  # other work may be on a core
        }
        with _understood():
            self._compiled = core.compile_model(core.read_model(folder / MODEL), "CPU", settings)
        self._prepared = digest

    def scores(self, pairs: PairBatch, parts: Iterable[Rows]) -> Iterator[tuple[Rows, Scores]]:
        """Each part in its turn, as it is done."""
        assert self._compiled is not None, "prepare first"
        # Twice as many as there are streams, so that none waits for the next part. No callbacks: the thread
        # that drops one wants Python's lock, which whoever drops the net holds while waiting for that thread.
        free = [self._compiled.create_infer_request() for _ in range(2 * self.streams)]
        running: deque[tuple[Rows, openvino.InferRequest]] = deque()

        def oldest() -> tuple[Rows, Scores]:
            rows, request = running.popleft()
            request.wait()
            first = torch.from_numpy(request.get_output_tensor(0).data.copy())
            free.append(request)
            with torch.inference_mode():
                return rows, self._model.scores(self._model.logits(first)).numpy()

        try:
            for rows in parts:
                if not free:
                    yield oldest()
                request = free.pop()
                request.start_async([part.numpy() for part in pairs.padded(rows)])
                running.append((rows, request))
            while running:
                yield oldest()
        finally:
            for _, request in running:
                request.wait()

    def _converted(self) -> openvino.Model:
        example = RandomPairs(self._model, 2).padded(np.arange(2))
        with _understood(), torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of tracing
            return self._openvino.convert_model(_FirstHidden(self._model), example_input=example)

    def _quantised(self, net: openvino.Model, pairs: PairBatch) -> openvino.Model:
        import nncf

        count = len(pairs.lengths)
        log.info(f"int8: calibrating on {count} pairs, about half a minute, once per model and corpus")
        inputs = [tuple(part.numpy() for part in pairs.padded(np.array([row]))) for row in range(count)]
        # The products of attention gain no speed but lose quality; those of the last layer are of one token.
        names = [
            node.get_friendly_name()
            for node in net.get_ops()
            if node.get_type_name() == "ScaledDotProductAttention"
            or (node.get_type_name() == "MatMul" and "aten::linear" not in node.get_friendly_name())
        ]
        nncf.set_log_level(logging.ERROR)
        with contextlib.redirect_stdout(io.StringIO()):
            return nncf.quantize(
                net,
                nncf.Dataset(inputs),
                subset_size=len(inputs),
                model_type=nncf.ModelType.TRANSFORMER,
                preset=nncf.QuantizationPreset.MIXED,
                ignored_scope=nncf.IgnoredScope(names=names),
            )


class _FirstHidden(nn.Module):
    """The net without its head, which stays in torch: scores differ by less than bfloat16 can tell."""

    def __init__(self, model: CrossEncoder) -> None:
        super().__init__()
        self.model = model

    def forward(self, ids: Tensor, types: Tensor, there: Tensor) -> Tensor:
        return self.model.first_hidden(ids, types, there)


@contextlib.contextmanager
def _understood() -> Iterator[None]:
    """InputError for a model, or a processor, that OpenVINO cannot take."""
    try:
        yield
    except Exception as error:  # it raises nearly anything
        why = error_text(error)
        raise InputError(f"OpenVINO cannot take this model ({why}); use scoring.backend=torch") from None


def _installed(int8: bool) -> Any:
    """The module `openvino`; InputError where it, or what int8 needs, is not there."""
    for name in ("openvino", "nncf") if int8 else ("openvino",):
        if importlib.util.find_spec(name) is None:
            raise InputError(
                missing_extra("scoring by OpenVINO", "int8") + f" ({name} is not installed), or choose "
                "scoring.backend=torch with bfloat16 or float32"
            )
    return importlib.import_module("openvino")


def sample_pairs(reader: PairReader, count: int) -> TokenPairs:
    """Pairs of training contexts, each with its cited paper and a random one; the same at every call.

    A corpus without contexts gives pairs of a paper's abstract, as the context, and a random paper.
    """
    corpus, random = reader.corpus, np.random.default_rng(0)
    if not corpus.splits:
        asking, asked = random.integers(len(corpus.paper_ids), size=(2, count))
        questions = [Query(f"{corpus.abstracts[row]} {TARGET_MARKER}", corpus.titles[row]) for row in asking]
        return reader.asking(Queries.asked(corpus, questions)).pairs(np.arange(count), asked)
    split = corpus.splits.get(TRAIN) or next(iter(corpus.splits.values()))
    rows = random.choice(len(split), min(count // 2, len(split)), replace=False)
    cited = np.array([split.positives[row][0] for row in rows.tolist()])
    others = random.integers(len(corpus.paper_ids), size=len(rows))
    contexts = split.contexts[rows]
    return reader.pairs(np.concatenate([contexts, contexts]), np.concatenate([cited, others]))
