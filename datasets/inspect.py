"""Look at a corpus before it is used: python -m datasets.inspect data=... (docs/inspect.md)."""

from __future__ import annotations

from pathlib import Path

import hydra
from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf

from datasets.errors import fail, one_line_errors, user_line


@one_line_errors
@hydra.main(version_base="1.3", config_path=str(Path(__file__).parents[1] / "conf"), config_name="inspect")
def main(config: DictConfig) -> None:
    """Compose, inspect, say where the page is."""
    try:
        OmegaConf.to_container(config, throw_on_missing=True)  # a _partial_ would leave out what is missing
        page = instantiate(config)
    except Exception as error:
        if line := user_line(error):  # here, since Hydra would print a line of its own before it hands it on
            fail(line)
        raise
    print(f"page: {page}")


if __name__ == "__main__":
    main()
