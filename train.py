"""Train a model: `python train.py model=hatten`. Its options are in conf/train.yaml and the groups there."""

from __future__ import annotations

from pathlib import Path

import hydra
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig

import rerank.settings  # noqa: F401  (schemas of the configuration)
from datasets.configuration import refuse_missing
from datasets.errors import InputError, one_line_errors

PAPER = ("paper", "paper_small")
RECIPES = Path(__file__).parent / "conf" / "recipe"


@one_line_errors
@hydra.main(version_base="1.3", config_path="conf", config_name="train")
def main(config: DictConfig) -> None:
    from hydra.utils import get_method  # heavy imports only after the options are known to be right

    refuse_missing(config)
    run = HydraConfig.get()
    chosen = run.runtime.choices
    experiment, model = chosen["experiment"], chosen["model"]
    if experiment in PAPER and not (RECIPES / f"{chosen['recipe@_global_']}.yaml").is_file():
        raise InputError(f"experiment={experiment}: there is no model={model} in the paper")
    # Plain from here on: of a multirun it is that of all jobs, and by default it depends on the time.
    folder = Path(run.runtime.output_dir)
    config.output_dir = str(folder.relative_to(Path.cwd()) if folder.is_relative_to(Path.cwd()) else folder)
    get_method(config.model.train)(config)


if __name__ == "__main__":
    main()
