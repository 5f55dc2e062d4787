"""Print the project's requirements from pyproject.toml for pip: `requirements.py [EXTRA ...]`.

Lets `make` install the dependencies without building the project. Uses only the standard library.
"""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path


def requirements(extras: list[str]) -> list[str]:
    """Return the dependencies of the project and of `extras`; SystemExit for an unknown extra."""
    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text("utf-8"))["project"]
    optional = project["optional-dependencies"]
    if unknown := [extra for extra in extras if extra not in optional]:
        raise SystemExit(f"no such extra: {', '.join(unknown)}; choose from {', '.join(optional)}")
    base = project["dependencies"]
    if "gpu" in extras:
        base = [line for line in base if not line.startswith("faiss-cpu")]
    return base + [line for extra in extras for line in optional[extra]]


if __name__ == "__main__":
    print(*requirements(sys.argv[1:]), sep="\n")
