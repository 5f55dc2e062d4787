"""Build a corpus out of full texts: python -m datasets.build source=FILES output=DIR (docs/build.md)."""

from __future__ import annotations

from pathlib import Path

import hydra
from hydra.utils import instantiate
from omegaconf import DictConfig

from datasets.errors import failing_in_one_line, one_line_errors


@one_line_errors
@hydra.main(version_base="1.3", config_path=str(Path(__file__).parents[1] / "conf"), config_name="build")
def main(config: DictConfig) -> None:
    """Compose, build, say what came of it."""
    with failing_in_one_line():
        print(instantiate(config).summary())


if __name__ == "__main__":
    main()
