"""Look at a corpus before it is used: python -m datasets.inspect data=... (docs/inspect.md)."""

from __future__ import annotations

from pathlib import Path

import hydra
from hydra.utils import instantiate
from omegaconf import DictConfig

from datasets.errors import one_line_errors


@one_line_errors
@hydra.main(version_base="1.3", config_path=str(Path(__file__).parents[1] / "conf"), config_name="inspect")
def main(config: DictConfig) -> None:
    """Compose, inspect, say where the page is."""
    print(f"page: {instantiate(config)}")


if __name__ == "__main__":
    main()
