"""Unusable benchmark options raise a one-line error that names the option."""

from __future__ import annotations

from typing import Any

import pytest

from citerec.base.configuration import read_settings
from citerec.base.errors import InputError
from citerec.evaluation.benchmark import Benchmark
from citerec.evaluation.benchmarks.contexts.pipeline import Pipeline
from citerec.evaluation.benchmarks.contexts.prefetch import Prefetch
from citerec.evaluation.benchmarks.papers.csfcube import CSFCube
from citerec.evaluation.benchmarks.papers.sampled import DatasetLevel, FieldLevel

PROTOCOLS = r"benchmark.protocols.*(transductive, inductive|at least one)"
EMPTY = "list at least one value"


@pytest.mark.parametrize(
    ("benchmark", "options", "message"),
    [
        (Prefetch, {"cutoffs": []}, f"benchmark.cutoffs: {EMPTY}"),
        (Prefetch, {"cutoffs": [10, 0]}, "^benchmark.cutoffs=0: must be at least 1$"),
        (Prefetch, {"cutoffs": [1.5]}, "benchmark.cutoffs=1.5: "),
        (Prefetch, {"f1": [0]}, r"^benchmark\.f1=0: must be at least 1$"),
        (Prefetch, {"protocols": []}, PROTOCOLS),
        (Prefetch, {"protocols": ["inductive", "x"]}, PROTOCOLS),
        (Pipeline, {"reranker": None}, "benchmark=pipeline needs reranker=FOLDER"),
        (Pipeline, {"candidates": 0}, "^candidates=0: must be a whole number, at least 1$"),
        (Pipeline, {"candidates": "some"}, "candidates=some"),
        (Pipeline, {"depths": [0]}, "^benchmark.depths=0: "),
        (Pipeline, {"weight": 1.5}, "benchmark.weight=1.5: choose tuned, or a number from 0 to 1"),
        (Pipeline, {"measure": "mrr@10"}, "benchmark.measure=mrr@10: choose recall@K"),
        (CSFCube, {"dir": "x", "ranked_dir": "x"}, "ranked_dir needs experiment_name=NAME"),
        (DatasetLevel, {"tune": {"k1": []}}, rf"benchmark\.tune\.k1: {EMPTY}"),
        (DatasetLevel, {"sizes": []}, rf"benchmark\.sizes: {EMPTY}"),
        (DatasetLevel, {"sizes": [0]}, r"benchmark\.sizes=0: must be at least 1"),
        (FieldLevel, {"fields": []}, rf"benchmark\.fields: {EMPTY}"),
    ],
)
def test_unusable_options_are_named(
    benchmark: type[Benchmark], options: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError, match=message) as error:
        options = {"reranker": "somewhere"} | options if benchmark is Pipeline else options
        benchmark(**vars(read_settings(benchmark.settings_class, options)))
    assert "\n" not in str(error.value)
