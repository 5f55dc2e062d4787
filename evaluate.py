"""Evaluate: python evaluate.py benchmark=prefetch retriever=bm25 data=... split=test output_dir=DIR.

`torchrun --nproc-per-node N evaluate.py benchmark=pipeline ...` scores pairs with N processes.
"""

from __future__ import annotations

import os
import shlex
import sys
import tempfile
from functools import partial
from pathlib import Path

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf

from datasets.errors import one_line_errors
from evaluation.benchmarks.pools import PoolBenchmark
from evaluation.report import Provenance
from evaluation.summary import print_metrics

OTHER = os.environ.get("RANK", "0") != "0"
"""Whether torchrun has started this process beside the one that evaluates."""


@one_line_errors
@hydra.main(version_base="1.3", config_path="conf", config_name="evaluate")
def main(config: DictConfig) -> None:
    """Compose, build, evaluate, report."""
    run = HydraConfig.get()
    folder = Path(run.runtime.output_dir)
    provenance = Provenance(
        command=shlex.join(["python", "evaluate.py", *run.overrides.task]),
        settings=OmegaConf.to_yaml(config, resolve=True),
    )
    benchmark = instantiate(config.benchmark)
    if isinstance(benchmark, PoolBenchmark):  # it brings its own queries and candidates
        benchmark.run(folder, provenance, partial(instantiate, config.retriever))
        return
    if OTHER:
        benchmark.serve(partial(instantiate, config.data))
        return
    try:
        corpus = instantiate(config.data)
        corpus.split(config.split)  # before a model is loaded
        retriever = instantiate(config.retriever)
        retriever.encode_with(config.encoding)
        filters = instantiate(config.filters)
        metrics = benchmark(retriever, corpus, config.split, folder, provenance, filters, config.index_dir)
    finally:
        benchmark.finish()
    if run.mode == RunMode.RUN:  # after a multirun there is one table of all jobs
        print_metrics(metrics, folder)


if __name__ == "__main__":
    if not OTHER:
        main()
    else:  # it writes nothing but scores
        with tempfile.TemporaryDirectory() as nowhere:
            sys.argv += [f"hydra.{mode}.dir={nowhere}" for mode in ("run", "sweep")]
            sys.argv += ["hydra.output_subdir=null", "hydra/job_logging=none", "~hydra.callbacks.summary"]
            main()
