"""Imports of other packages without what they would import in turn."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def hidden_module(name: str) -> Iterator[None]:
    """Let imports of a module and its submodules fail, as if it were not installed."""
    before = {key: module for key, module in sys.modules.items() if key.partition(".")[0] == name}
    sys.modules.update(dict.fromkeys([name, *before]))  # type: ignore[arg-type]
    try:
        yield
    finally:
        for key in [key for key in sys.modules if key.partition(".")[0] == name]:
            del sys.modules[key]
        sys.modules.update(before)
