"""Count what a collection of papers has: python -m datasets.count data.papers=FILES (docs/citeomatic.md)."""

from __future__ import annotations

from pathlib import Path

import hydra
from hydra.utils import instantiate
from omegaconf import DictConfig

from datasets.errors import failing_in_one_line, one_line_errors


@one_line_errors
@hydra.main(version_base="1.3", config_path=str(Path(__file__).parents[1] / "conf"), config_name="count")
def main(config: DictConfig) -> None:
    """Compose, count, print the table."""
    with failing_in_one_line():
        print(instantiate(config.counting))


if __name__ == "__main__":
    main()
