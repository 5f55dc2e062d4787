"""A corpus of any size: python -m datasets.generate papers=N contexts=N output=DIR (docs/scale.md)."""

from __future__ import annotations

from pathlib import Path

import hydra
from hydra.utils import instantiate
from omegaconf import DictConfig

from datasets.errors import failing_in_one_line, one_line_errors


@one_line_errors
@hydra.main(version_base="1.3", config_path=str(Path(__file__).parents[1] / "conf"), config_name="generate")
def main(config: DictConfig) -> None:
    """Compose, generate, say what came of it."""
    with failing_in_one_line():
        print(instantiate(config).summary())


if __name__ == "__main__":
    main()
