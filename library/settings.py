"""Options of the commands of recommend.py; the first line of a docstring is a command's help."""

from __future__ import annotations

from dataclasses import dataclass

from datasets.settings import Settings


@dataclass(frozen=True, kw_only=True)
class LibrarySettings(Settings):
    """What every command over a library has."""

    library: str
    """folder of the library (e.g. my-library)"""


@dataclass(frozen=True, kw_only=True)
class InfoSettings(LibrarySettings):
    """Tell what a library holds."""


@dataclass(frozen=True, kw_only=True)
class ChangeSettings(LibrarySettings):
    """What changes of a library have in common."""

    wait: bool = True
    """for another process that changes the library; false: say so and end"""


@dataclass(frozen=True, kw_only=True)
class AddSettings(ChangeSettings):
    """Add the papers of further files to a library."""

    source: tuple[str, ...]
    """files of papers: BibTeX, CSL JSON, RIS, papers.json, JSON lines, also gzipped (e.g. papers.bib)"""


@dataclass(frozen=True, kw_only=True)
class BuildSettings(AddSettings):
    """Make a library of files of papers."""

    contexts: str = ""
    """folder with contexts.json and train.json: how the papers have been cited elsewhere"""
    model: str = ""
    """folder, or id on the hub, of the model that ranks; empty: the model in the box"""
    overwrite: bool = False
    """replace the library that is there"""


@dataclass(frozen=True, kw_only=True)
class RemoveSettings(ChangeSettings):
    """Remove papers from a library; update will not bring them back."""

    id: tuple[str, ...]
    """ids or citation keys (e.g. [doi:10.1145/1,smith2020])"""


@dataclass(frozen=True, kw_only=True)
class UpdateSettings(ChangeSettings):
    """Read a library's files again: new papers are added, changed ones replaced, gone ones removed."""
