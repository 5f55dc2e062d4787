"""The `main` of commands that are run as modules, such as python -m datasets.build (conf/build.yaml)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import hydra
from hydra.utils import instantiate
from omegaconf import DictConfig

from datasets.configuration import refuse_missing
from datasets.errors import exit_in_one_line, one_line_errors
from datasets.help import CONF


def command(name: str, call: Callable[[DictConfig], Any] = instantiate) -> Callable[[], None]:
    """A `main` that composes conf/NAME.yaml, calls what it describes and prints what `call` returns.

    Options that are missing or wrong are one line, before anything slow.
    """

    @one_line_errors
    @hydra.main(version_base="1.3", config_path=str(CONF), config_name=name)
    def main(config: DictConfig) -> None:
        with exit_in_one_line():
            refuse_missing(config)
            print(call(config))

    return main
