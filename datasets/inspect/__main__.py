"""Inspect a corpus before using it: citerec data inspect data=... (docs/guide/inspect.md)."""

from __future__ import annotations

from hydra.utils import instantiate

from citerec.base.command import command

main = command("inspect", lambda config: f"page: {instantiate(config)}")


if __name__ == "__main__":
    main()
