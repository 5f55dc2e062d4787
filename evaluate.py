"""Run a benchmark: `citerec evaluate benchmark=prefetch retriever=bm25 data=... output_dir=DIR`."""

from __future__ import annotations

import shlex
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
from citerec.training.settings import refuse_absent


def build_benchmark(config: DictConfig) -> Benchmark:
    """Return the configured benchmark; its settings become dataclasses here."""
    loaded = OmegaConf.to_object(config)
    options = dict(loaded if isinstance(loaded, dict) else vars(loaded))  # a dict: a user's own, no schema
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

    benchmark = build_benchmark(config.benchmark)
    filters = partial(instantiate, config.filters)
    data = Data(partial(instantiate, config.data), config.split, filters, config.index_dir)
    report = benchmark.run(folder, provenance, partial(instantiate, config.retriever), data)
    if job.mode == RunMode.RUN:  # a multirun prints one table of all jobs at the end
        report.show(folder)


if __name__ == "__main__":
    main()
