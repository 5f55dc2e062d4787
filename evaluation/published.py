"""The files of published figures, `published*.yaml`."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf


@cache
def read_published(path: Path) -> dict[str, Any]:
    """What stands in the file, by its keys; it is read once."""
    content = OmegaConf.to_container(OmegaConf.load(path))
    assert isinstance(content, dict)
    return {str(key): value for key, value in content.items()}
