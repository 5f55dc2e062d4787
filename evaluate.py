"""Run a benchmark: `citerec evaluate benchmark=prefetch retriever=bm25 data=... split=test output_dir=DIR`.

`torchrun --nproc-per-node N evaluate.py benchmark=pipeline ...` scores pairs in N processes.
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
from hydra.utils import get_class, instantiate
from omegaconf import DictConfig, OmegaConf

import citerec.evaluation.settings
import citerec.library.benchmark.settings
from citerec.base.configuration import refuse_missing, refuse_unused
from citerec.base.errors import one_line_errors
from citerec.base.help import CONF
from citerec.evaluation.benchmark import Benchmark, Data
from citerec.evaluation.report import Provenance
from citerec.retrieval.base import Retriever
from citerec.training.settings import refuse_absent

HELPER = os.environ.get("RANK", "0") != "0"
"""True for worker processes of torchrun, which only score pairs for the main process."""


def build_benchmark(config: DictConfig) -> Benchmark:
    """Return the configured benchmark; its settings become dataclasses here."""
    loaded = OmegaConf.to_object(config)
    options = dict(loaded if isinstance(loaded, dict) else vars(loaded))  # without a schema: somebody's own
    benchmark: Benchmark = get_class(options.pop("_target_"))(**options)
    return benchmark


@one_line_errors
@hydra.main(version_base="1.3", config_path=str(CONF), config_name="evaluate")
def main(config: DictConfig) -> None:
    """Instantiate the configured benchmark, run it and report its metrics."""
    refuse_missing(config)
    refuse_absent(config)
    job = HydraConfig.get()
    refuse_unused(config, citerec.evaluation.settings.READERS, job.overrides.task)
    folder = Path(job.runtime.output_dir)
    provenance = Provenance(
        command=shlex.join(["citerec", "evaluate", *job.overrides.task]),
        settings=OmegaConf.to_yaml(config, resolve=True),
    )

    def build_retriever() -> Retriever:
        retriever: Retriever = instantiate(config.retriever)
        retriever.set_encoding(config.encoding)
        return retriever

    benchmark = build_benchmark(config.benchmark)
    filters = partial(instantiate, config.filters)
    data = Data(partial(instantiate, config.data), config.split, filters, config.index_dir)
    if HELPER:
        benchmark.serve(data.corpus)
        return
    report = benchmark.run(folder, provenance, build_retriever, data)
    if job.mode == RunMode.RUN:  # a multirun prints one table of all jobs at the end
        report.show(folder)


if __name__ == "__main__":
    if not HELPER:
        main()
    else:  # helpers write no output
        with tempfile.TemporaryDirectory() as nowhere:
            sys.argv += [f"hydra.{mode}.dir={nowhere}" for mode in ("run", "sweep")]
            sys.argv += ["hydra.output_subdir=null", "hydra/job_logging=none", "~hydra.callbacks.summary"]
            main()
