"""Lists the wheels that another machine lacks to run citerec, such as one with a GPU but without a network.

    python speed/wheels.py > installed.txt                         there; needs nothing but Python
    python -m citerec.speed.wheels installed.txt > wheels.txt      here, where everything is installed
    pip download --no-deps --dest wheels --requirement wheels.txt  for its --python-version and --platform

What the other machine has is kept if the requirements of all packages allow its version.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Mapping
from importlib.metadata import distribution, distributions
from pathlib import Path
from typing import Any


def normalise(name: str) -> str:
    """The name of a package as in an index.

    >>> normalise("PyStemmer"), normalise("pytorch_lightning")
    ('pystemmer', 'pytorch-lightning')
    """
    return re.sub(r"[-_.]+", "-", name).lower()


def installed() -> dict[str, str]:
    """The packages of this machine and their versions."""
    return {normalise(found.metadata["Name"]): found.version for found in distributions()}


def read_installed(lines: Iterable[str]) -> dict[str, str]:
    """The packages of another machine, from lines NAME==VERSION."""
    pairs = (line.strip().partition("==") for line in lines if "==" in line)
    return {normalise(name): version for name, _, version in pairs}


def lacking(theirs: Mapping[str, str]) -> list[str]:
    """The packages NAME==VERSION that `citerec[train]` lacks on a machine with `theirs`, as they are here."""
    from packaging.requirements import Requirement

    wanted, seen = [("citerec", ("train",))], dict[str, str]()
    while wanted:
        name, more = wanted.pop()
        for line in distribution(name).requires or ():
            need: Any = Requirement(line)
            if need.marker and not any(need.marker.evaluate({"extra": extra}) for extra in ("", *more)):
                continue
            other = normalise(need.name)
            if other in theirs and need.specifier.contains(theirs[other], prereleases=True):
                continue
            if other not in seen:
                seen[other] = distribution(need.name).version.partition("+")[0]
                wanted.append((need.name, tuple(need.extras)))
    return [f"{name}=={version}" for name, version in sorted(seen.items())]


def main() -> None:
    if any(argument in ("--help", "-h") for argument in sys.argv[1:]):
        print(f"{__doc__}\n--help: this text")
        raise SystemExit(0)
    if len(sys.argv) < 2:
        print("\n".join(f"{name}=={version}" for name, version in sorted(installed().items())))
        return
    lines = Path(sys.argv[1]).read_text("utf-8").splitlines()
    print("\n".join(lacking(read_installed(lines))))


if __name__ == "__main__":
    main()
