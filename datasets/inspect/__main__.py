"""Inspect a corpus before using it: python -m datasets.inspect data=... (docs/inspect.md)."""

from __future__ import annotations

from pathlib import Path

import hydra
from hydra.utils import instantiate
from omegaconf import DictConfig

from datasets.configuration import refuse_missing
from datasets.errors import failing_in_one_line, one_line_errors


@one_line_errors
@hydra.main(version_base="1.3", config_path=str(Path(__file__).parents[2] / "conf"), config_name="inspect")
def main(config: DictConfig) -> None:
    with failing_in_one_line():
        refuse_missing(config)
        print(f"page: {instantiate(config)}")


if __name__ == "__main__":
    main()
