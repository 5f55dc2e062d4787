"""A benchmark like MDCR: python -m evaluation.build_mdcr papers=FILE models={NAME:DIR,...} output=DIR."""

from __future__ import annotations

from pathlib import Path

import hydra
from hydra.utils import instantiate
from omegaconf import DictConfig

from datasets.errors import failing_in_one_line, one_line_errors


@one_line_errors
@hydra.main(version_base="1.3", config_path=str(Path(__file__).parents[1] / "conf"), config_name="build_mdcr")
def main(config: DictConfig) -> None:
    """Compose, build, print the report."""
    with failing_in_one_line():
        print(instantiate(config))


if __name__ == "__main__":
    main()
