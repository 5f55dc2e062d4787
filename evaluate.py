"""Evaluate: python evaluate.py benchmark=prefetch retriever=bm25 data=... split=test output_dir=DIR."""

from __future__ import annotations

import shlex
from pathlib import Path

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf

from datasets.errors import one_line_errors
from evaluation.report import Provenance
from evaluation.summary import print_metrics


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
    corpus = instantiate(config.data)
    corpus.split(config.split)  # before a model is loaded
    retriever = instantiate(config.retriever)
    filters = instantiate(config.filters)
    metrics = benchmark(retriever, corpus, config.split, folder, provenance, filters, config.index_dir)
    if run.mode == RunMode.RUN:  # after a multirun there is one table of all jobs
        print_metrics(metrics, folder)


if __name__ == "__main__":
    main()
