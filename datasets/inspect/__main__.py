"""Inspect a corpus before using it: citerec data inspect data=... (docs/research/inspect.md)."""

from __future__ import annotations

from hydra.utils import instantiate

from citerec.base.configuration import composed_command

main = composed_command("inspect", lambda config: f"page: {instantiate(config)}")
