"""The `main` of commands run as modules, such as citerec data build (conf/build.yaml)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import hydra
from hydra.utils import instantiate
from omegaconf import DictConfig

from citerec.base.configuration import refuse_missing
from citerec.base.errors import exit_on_input_error, one_line_errors
from citerec.base.help import CONF


def command(name: str, call: Callable[[DictConfig], Any] = instantiate) -> Callable[[], None]:
    """Return a `main` that composes conf/NAME.yaml and prints the result of `call` on it.

    Missing or wrong options are reported in one line, before slow imports.
    """

    @one_line_errors
    @hydra.main(version_base="1.3", config_path=str(CONF), config_name=name)
    def main(config: DictConfig) -> None:
        with exit_on_input_error():
            refuse_missing(config)
            print(call(config))

    return main
