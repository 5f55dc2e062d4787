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

import evaluation.settings  # noqa: F401  (schemas of the configuration)
from datasets.configuration import refuse_missing
from datasets.errors import one_line_errors
from evaluation.benchmark import Benchmark, Data
from evaluation.report import Provenance
from retrieval.base import Retriever

HELPER = os.environ.get("RANK", "0") != "0"
"""Whether torchrun started this process beside the one that evaluates."""


@one_line_errors
@hydra.main(version_base="1.3", config_path="conf", config_name="evaluate")
def main(config: DictConfig) -> None:
    """Compose, instantiate, run, report."""
    refuse_missing(config)
    job = HydraConfig.get()
    folder = Path(job.runtime.output_dir)
    provenance = Provenance(
        command=shlex.join(["python", "evaluate.py", *job.overrides.task]),
        settings=OmegaConf.to_yaml(config, resolve=True),
    )

    def retriever() -> Retriever:
        made: Retriever = instantiate(config.retriever)
        made.encode_with(config.encoding)
        return made

    benchmark: Benchmark = instantiate(config.benchmark)
    filters = partial(instantiate, config.filters)
    data = Data(partial(instantiate, config.data), config.split, filters, config.index_dir)
    if HELPER:
        benchmark.serve(data.corpus)
        return
    metrics = benchmark.run(folder, provenance, retriever, data)
    if job.mode == RunMode.RUN:  # a multirun ends with one table of all its jobs
        benchmark.show(metrics, folder)


if __name__ == "__main__":
    if not HELPER:
        main()
    else:  # it writes nothing but scores
        with tempfile.TemporaryDirectory() as nowhere:
            sys.argv += [f"hydra.{mode}.dir={nowhere}" for mode in ("run", "sweep")]
            sys.argv += ["hydra.output_subdir=null", "hydra/job_logging=none", "~hydra.callbacks.summary"]
            main()
