"""Train a model: `citerec train model=hatten`. Options are in conf/train.yaml and its config groups."""

from __future__ import annotations

from pathlib import Path

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.utils import get_method
from omegaconf import DictConfig, OmegaConf

import citerec.rerank.settings  # noqa: F401  (schemas of the configuration)
from citerec.datasets.configuration import refuse_missing
from citerec.datasets.errors import InputError, one_line_errors
from citerec.datasets.help import CONF
from citerec.training.settings import run_folder

OmegaConf.register_new_resolver("run_folder", run_folder, use_cache=True, replace=True)

PAPER = ("paper", "paper_small")


@one_line_errors
@hydra.main(version_base="1.3", config_path=str(CONF), config_name="train")
def main(config: DictConfig) -> None:
    refuse_missing(config)
    run = HydraConfig.get()
    chosen = run.runtime.choices
    experiment, model = chosen["experiment"], chosen["model"]
    if experiment in PAPER and not (CONF / "recipe" / f"{chosen['recipe@_global_']}.yaml").is_file():
        raise InputError(f"experiment={experiment}: the paper has no model={model}")
    # Resolve the folder: the configured value may contain the time, and all jobs of a multirun share it.
    folder = Path(run.runtime.output_dir)
    config.output_dir = str(folder.relative_to(Path.cwd()) if folder.is_relative_to(Path.cwd()) else folder)
    get_method(config.model.train)(config)


if __name__ == "__main__":
    main()
