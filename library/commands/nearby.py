"""What a user has who names no library: libraries and .bib files here, and Zotero. Imports nothing slow."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import NamedTuple

from citerec.library import MANIFEST
from citerec.library.sources.zotero_places import find_database

SHOWN = 5
"""Maximum number of files to name."""
QUESTION = '"A sentence that lacks a citation [CITE]."'


class Nearby(NamedTuple):
    """Libraries and .bib files in a folder and the folders in it, and the user's Zotero."""

    libraries: list[str]
    files: list[str]
    zotero: Path | None

    @classmethod
    def look(cls, sources: bool = True) -> Nearby:
        """Look in the current folder. sources: also for what is no library."""
        there = [
            [str(path) for pattern in patterns for path in sorted(Path().glob(pattern))]
            for patterns in ((f"*/{MANIFEST}",), ("*.bib", "*/*.bib") if sources else ())
        ]
        libraries = [str(Path(name).parent) for name in there[0]]
        return cls(libraries, there[1], find_database() if sources else None)

    def describe(self) -> str:
        """Return what there is, as a list."""
        names = [f"the library {name}" for name in self.libraries] + self.files
        more = [f"{len(names) - SHOWN} more"] if len(names) > SHOWN else []
        zotero = [f"Zotero's library in {self.zotero.parent}"] if self.zotero else []
        *first, last = [*names[:SHOWN], *more, *zotero]
        return f"{', '.join(first)} and {last}" if first else last

    def command(self, name: str = "ask", rest: str = QUESTION) -> str:
        """Return the one command to go on with, instead of `citerec NAME REST`; "" if there is nothing."""
        if not self.libraries and len(self.files) > 1:
            pattern = "*.bib" if all("/" not in file for file in self.files) else f"[{','.join(self.files)}]"
            return f"citerec build library=my-library {shlex.quote(f'source={pattern}')}"
        place = [*self.libraries, *self.files, *(["zotero"] if self.zotero else [])][:1]
        return f"citerec {name} {shlex.quote(place[0])} {rest}" if place else ""
