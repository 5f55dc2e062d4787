"""Chooses the fastest back end and precision on this machine, timed once per model and cached.

The processor's name does not predict the choice: int8 pays off only with VNNI, and OpenVINO's float32 is
between 1 and 2 times as fast as torch's. Scores differ between them, if only in the last digits, so only
`scoring.backend=fastest` depends on timing: the default for queries to a library, but not for evaluations.
"""

from __future__ import annotations

import copy
import hashlib
import importlib.metadata
import importlib.util
import json
import logging
import os
import platform
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from citerec.base.errors import InputError
from citerec.base.files import atomic_write, cache_folder
from citerec.rerank.cross_encoder.backends import Backend, RandomPairs, batches, open_backend
from citerec.rerank.cross_encoder.network import CrossEncoder
from citerec.rerank.settings import ScoringSettings
from citerec.retrieval.encoders.nets import precision
from citerec.training.hub import read_json, write_json

log = logging.getLogger(__name__)

ENGINES = (
    ("torch", "float32"),
    ("openvino", "float32"),
    ("torch", "bfloat16"),
    ("openvino", "bfloat16"),
    ("openvino", "int8"),
)
"""Engines (a back end and a precision), most exact first."""

MIN_RELATIVE_SPEED = 0.9
"""The most exact engine with at least this share of the best speed is chosen."""

SECONDS, CALIBRATION = 1.0, 4
"""Duration of each timing, and pairs for the calibration of int8 before it."""


def choose_fastest(model: CrossEncoder, scoring: ScoringSettings, identity: str) -> ScoringSettings:
    """Replace backend=fastest by the back end and precision that score the longest pairs fastest.

    Other settings are returned unchanged. identity: hash of the model. Timings are cached by model,
    processor, threads and versions.
    """
    if scoring.backend != "fastest":
        return scoring
    if torch.cuda.is_available() or scoring.precision == "int8":
        return replace(scoring, backend="auto")
    threads = scoring.threads or torch.get_num_threads()
    engines = _installed_engines(scoring.precision)
    if len(engines) == 1:
        backend, name = engines[0]
        log.info(f"scoring with {backend} {name}; the extra int8 adds faster back ends")
        return replace(scoring, backend=backend, precision=name)
    key = [identity, threads, engines, _processor(), {name: _version(name) for name in ("torch", *EXTRA)}]
    digest = hashlib.blake2b(json.dumps(key).encode(), digest_size=12).hexdigest()
    file = cache_folder() / "fastest" / f"{digest}.json"
    new = not file.is_file()
    if new:
        rates = _time(model, scoring, engines, threads, identity)
        with atomic_write(file) as part:
            write_json(part, rates)
    rates = read_json(file, dict)
    enough = MIN_RELATIVE_SPEED * max(rates.values())
    chosen = next(engine for engine in engines if rates.get(" ".join(engine), 0) >= enough)
    figures = ", ".join(f"{engine} {rate:,.1f}" for engine, rate in rates.items())
    log.log(
        logging.WARNING if new else logging.INFO,
        f"scoring with {' '.join(chosen)}; pairs of {model.config.max_tokens} tokens per second on {threads} "
        f"threads: {figures} (cached in {file})",
    )
    return replace(scoring, backend=chosen[0], precision=chosen[1])


EXTRA = ("openvino", "nncf")


def _installed_engines(wanted: str) -> list[tuple[str, str]]:
    """Return the engines that are installed for a precision, or `auto`."""
    fast = "bfloat16" if precision("auto") == torch.bfloat16 else "float32"
    needs = {"torch": (), "openvino": EXTRA[:1]}
    return [
        (backend, name)
        for backend, name in ENGINES
        if (name == wanted or (wanted == "auto" and name in ("float32", fast, "int8")))
        and all(map(importlib.util.find_spec, EXTRA if name == "int8" else needs[backend]))
    ]


def _time(
    model: CrossEncoder, scoring: ScoringSettings, engines: list[tuple[str, str]], threads: int, identity: str
) -> dict[str, float]:
    """Time each engine that supports the model, in pairs per second."""
    # A warning, because users who only want an answer would not expect the delay.
    log.warning(f"timing {len(engines)} ways of scoring pairs, once per machine and model")
    rates, pairs = {}, RandomPairs(model, 4 * threads)
    calibration = RandomPairs(model, CALIBRATION)
    for backend, name in engines:
        # A copy, because a back end may convert the weights.
        scorer = open_backend(
            copy.deepcopy(model), replace(scoring, backend=backend, precision=name), identity
        )
        try:
            scorer.prepare(lambda count: calibration, "random")
        except InputError as error:
            log.warning(f"{backend} {name} skipped: {error}")
            continue
        rates[f"{backend} {name}"] = _pairs_per_second(scorer, pairs)
    return rates


def _pairs_per_second(backend: Backend, pairs: RandomPairs) -> float:
    """Return the best pairs per second: other load on the machine slows single runs, but speeds up none."""
    parts, best = list(batches(pairs.lengths, int(pairs.lengths.sum()) // backend.streams)), np.inf
    for _ in backend.scores(pairs, parts):
        pass  # warms up
    end = time.perf_counter() + SECONDS
    while (start := time.perf_counter()) < end:
        for _ in backend.scores(pairs, parts):
            pass
        best = min(best, time.perf_counter() - start)
    return float(len(pairs.lengths) / best)


def _version(name: str) -> str | None:
    return importlib.metadata.version(name) if importlib.util.find_spec(name) else None


def _processor() -> list[str]:
    """Describe the processor, and the instruction sets that the user has disabled."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.is_file() else []
    features = {line for line in lines if line.startswith(("model name", "flags", "Features"))}
    limits = [f"{name}={os.environ.get(name)}" for name in ("ONEDNN_MAX_CPU_ISA", "ATEN_CPU_CAPABILITY")]
    return [platform.machine(), platform.processor(), *sorted(features), *limits]
