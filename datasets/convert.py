"""Dumps of papers for global citation recommendation: python -m datasets.convert source=FILES output=DIR."""

from __future__ import annotations

from pathlib import Path

import hydra
from hydra.utils import instantiate
from omegaconf import DictConfig

from datasets.errors import fail, one_line_errors, user_line


@one_line_errors
@hydra.main(version_base="1.3", config_path=str(Path(__file__).parents[1] / "conf"), config_name="convert")
def main(config: DictConfig) -> None:
    """Compose, convert, say what came of it."""
    try:
        done = instantiate(config)
    except Exception as error:
        if line := user_line(error):  # here, since Hydra would print a line of its own before it hands it on
            fail(line)
        raise
    print(done.summary())


if __name__ == "__main__":
    main()
