"""Runs ONNX graphs (retrieval.networks.graph) one text at a time, on at most THREADS threads of a process."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from citerec.base.errors import InputError, error_text
from citerec.retrieval.arrays import Floats

if TYPE_CHECKING:
    import onnxruntime


def cores() -> int:
    """Return the number of cores that this process may use, or of all cores where the system does not say."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


T = TypeVar("T")

THREADS = 2
"""Maximum threads that all networks of a process use, each for a text of its own."""
Input = tuple[Sequence[int], Sequence[int] | None]
"""Subwords and, for a pair, segments."""

_pool: ThreadPoolExecutor


def _make_pool() -> None:
    """Make the threads of this process, which start when they are needed; a fork has none of its parent's."""
    global _pool
    _pool = ThreadPoolExecutor(min(THREADS, cores()), "network")


_make_pool()
if hasattr(os, "register_at_fork"):  # Windows has no fork
    os.register_at_fork(after_in_child=_make_pool)


class Network:
    """A graph in a file, opened when it is first run."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._session: onnxruntime.InferenceSession | None = None
        self._lock = threading.Lock()

    def open(self) -> onnxruntime.InferenceSession:
        """Open the graph; InputError if the file is missing or damaged."""
        with self._lock:
            if self._session is None:
                try:
                    self._session = start_session(str(self.path))
                except Exception as error:  # ONNX Runtime raises classes of its own
                    with suppress(OSError):
                        self.path.stat()
                        raise InputError(f"{self.path}: damaged ({error_text(error)})") from None
                    raise InputError(f"{self.path}: is missing") from None
            return self._session

    def run(self, ids: Sequence[int], types: Sequence[int] | None = None) -> Floats:
        """The output for one text of L subwords, or pair: [L, H], or a score []."""
        inputs = {"ids": np.array([ids], np.int32)}
        if types is not None:
            inputs["types"] = np.array([types], np.int32)
        output: Floats = self.open().run(None, inputs)[0][0]
        return output

    def map(
        self,
        inputs: Sequence[Input],
        use: Callable[[int, Floats], T],
        advance: Callable[[int], None] | None = None,
        pool: Executor | None = None,
    ) -> list[T]:
        """Return use(number, output) for each input. advance: called with 1 after each text. pool: threads;
        None means those that all networks share."""
        self.open()

        def run_one(number: int) -> T:
            return use(number, self.run(*inputs[number]))

        if len(inputs) == 1:
            return [run_one(0)]
        # The longest first, so that no thread is left with a long one at the end.
        order = sorted(range(len(inputs)), key=lambda number: -len(inputs[number][0]))
        outputs: dict[int, T] = {}
        # Those that have not begun are left out if the caller stops.
        for number, value in zip(order, (pool or _pool).map(run_one, order), strict=True):
            outputs[number] = value
            if advance is not None:
                advance(1)
        return [outputs[number] for number in range(len(inputs))]

    def __deepcopy__(self, memo: object) -> Network:
        return self  # sessions are shared


def start_session(model: str | bytes) -> onnxruntime.InferenceSession:
    """Start a network in one thread. model: its file, or its content."""
    # Version 1.32 sends telemetry, with an id of the machine, unless this is set when it is imported.
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3  # errors
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
