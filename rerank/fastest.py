"""Which way of scoring is the fastest on this machine: measured once for a model, and kept.

No rule by the name of a processor can tell: 8-bit integers pay with VNNI only, and OpenVINO's float32 is
between 1 and 2 times as fast as torch's. Scores by different ways differ, if only in their last digits, so
only `scoring.backend=fastest` leaves the choice to a clock: questions to a library do, evaluations do not.
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

from datasets.errors import InputError
from datasets.files import atomic_write, cache_folder
from rerank.backends import Backend, RandomPairs, batches, open_backend
from rerank.cross_encoder import CrossEncoder
from rerank.settings import ScoringSettings
from retrieval.nets import precision
from training.hub import read_json, write_json

log = logging.getLogger(__name__)

WAYS = (
    ("torch", "float32"),
    ("openvino", "float32"),
    ("torch", "bfloat16"),
    ("openvino", "bfloat16"),
    ("openvino", "int8"),
)
"""The most exact first."""

NEAR = 0.9
"""A more exact way is taken if it is at least so many times as fast as the fastest."""

SECONDS, CALIBRATION = 1.0, 4
"""How long a way is measured, and with how many pairs int8 is made for it."""


def fastest(model: CrossEncoder, scoring: ScoringSettings, identity: str) -> ScoringSettings:
    """The settings, with the back end and the precision that score pairs of the most tokens fastest here.

    Only where they say backend=fastest. identity: a hash of the model. What was measured is kept in the cache
    by model, processor, threads and versions.
    """
    if scoring.backend != "fastest":
        return scoring
    if torch.cuda.is_available() or scoring.precision == "int8":
        return replace(scoring, backend="auto")
    threads, ways = scoring.threads or torch.get_num_threads(), _ways(scoring.precision)
    if len(ways) == 1:
        log.info(f'scoring by {" ".join(ways[0])}; make install EXTRAS="dev int8" adds faster ways')
        return replace(scoring, backend=ways[0][0], precision=ways[0][1])
    known = [identity, threads, ways, _processor(), {name: _version(name) for name in ("torch", *EXTRA)}]
    digest = hashlib.blake2b(json.dumps(known).encode(), digest_size=12).hexdigest()
    file = cache_folder() / "fastest" / f"{digest}.json"
    new = not file.is_file()
    if new:
        rates = _measured(model, scoring, ways, threads, identity)
        with atomic_write(file) as part:
            write_json(part, rates)
    rates = read_json(file, dict)
    try:
        chosen = next(way for way in ways if rates.get(" ".join(way), 0) >= NEAR * max(rates.values()))
    except (TypeError, ValueError, StopIteration):
        raise InputError(f"{file}: damaged; remove it to measure again") from None
    figures = ", ".join(f"{way} {rate:,.1f}" for way, rate in rates.items())
    log.log(
        logging.WARNING if new else logging.INFO,
        f"scoring by {' '.join(chosen)}; pairs of {model.config.max_tokens} tokens a second on {threads} "
        f"threads: {figures} (kept in {file})",
    )
    return replace(scoring, backend=chosen[0], precision=chosen[1])


EXTRA = ("openvino", "nncf")


def _ways(wanted: str) -> list[tuple[str, str]]:
    """The ways in a precision, or `auto`, that this machine has."""
    fast = "bfloat16" if precision("auto") == torch.bfloat16 else "float32"
    needs = {"torch": (), "openvino": EXTRA[:1]}
    return [
        (backend, name)
        for backend, name in WAYS
        if (name == wanted or (wanted == "auto" and name in ("float32", fast, "int8")))
        and all(map(importlib.util.find_spec, EXTRA if name == "int8" else needs[backend]))
    ]


def _measured(
    model: CrossEncoder, scoring: ScoringSettings, ways: list[tuple[str, str]], threads: int, identity: str
) -> dict[str, float]:
    """Pairs a second by each way that can take the model."""
    # Told to who only wants an answer, too: it takes longer than they expect.
    log.warning(f"measuring {len(ways)} ways to score pairs, once per machine and model")
    rates, pairs = {}, RandomPairs(model, 4 * threads)
    few = RandomPairs(model, CALIBRATION)
    for backend, name in ways:
        # A copy, since a way may convert the weights.
        way = open_backend(copy.deepcopy(model), replace(scoring, backend=backend, precision=name), identity)
        try:
            way.prepare(lambda count: few, "random")
        except InputError as error:
            log.warning(f"{backend} {name} skipped: {error}")
            continue
        rates[f"{backend} {name}"] = _rate(way, pairs)
    return rates


def _rate(backend: Backend, pairs: RandomPairs) -> float:
    """Pairs a second at best: other work on the machine makes single runs slower, none faster."""
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
    """What tells one processor from another, and what its user has switched off."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.is_file() else []
    told = {line for line in lines if line.startswith(("model name", "flags", "Features"))}
    limits = [f"{name}={os.environ.get(name)}" for name in ("ONEDNN_MAX_CPU_ISA", "ATEN_CPU_CAPABILITY")]
    return [platform.machine(), platform.processor(), *sorted(told), *limits]
