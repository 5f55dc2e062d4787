"""Registry of downloads: addresses, sizes, checksums and files (releases.yaml).

The data sets, word vectors and checkpoints of HAtten are the release of Gu et al. 2022. The layout of its
Google Drive folder is unknown: `matches` finds a data set by its name, and `counts` (their Table 1) show
whether it is the right one. Approximate sizes are from the authors' tutorial; only exact sizes are checked.

Data sets with `repositories` are built from these by a function of datasets.published.recipes; `digests` tell
whether the result is that of the registry.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import yaml

from citerec.base.files import cache_folder
from citerec.datasets.published.repositories import Repository

PREFIX = "citerec"
"""What ids of data begin with."""
DRIVE_FILE = "https://drive.google.com/uc?id="
CORPUS_FILES = ("papers.json", "contexts.json", "train.json", "val.json", "test.json")


@dataclass(frozen=True)
class Release:
    """One download: where its files are published and how to check them."""

    description: str
    folder: str
    """Folder of its files, relative to the cache."""
    files: tuple[str, ...]
    """Relative paths; text files may be gzipped."""
    addresses: tuple[str, ...] = ()
    """Tried in order: a file, a Google Drive folder, or a web folder with `files` (ends in a slash)."""
    archives: tuple[str, ...] = ()
    """Name patterns of archives that contain the files; empty if the files are published individually."""
    matches: str = ""
    """Pattern of its paths in a folder or archive with several releases."""
    size: int | None = None
    """Exact size in bytes of the single file at the address."""
    approximate_size: int | None = None
    sha256: str | None = None
    """Checksum of the archive."""
    counts: dict[str, int] = field(default_factory=dict)
    """Published number of papers, and of contexts per split."""
    repositories: tuple[Repository, ...] = ()
    """What the files are built from, in place of `addresses`."""
    recipe: str = ""
    """Module of datasets.published.recipes that builds them; empty: they are those of a repository."""
    digests: dict[str, str] = field(default_factory=dict)
    """SHA-256 of the uncompressed content of built files."""
    candidates: str = "all"
    """Papers to rank: all, or those with an abstract."""

    def folder_in(self, cache_dir: str | Path | None = None) -> Path:
        """The folder of its files in the given cache."""
        return cache_folder(cache_dir) / self.folder

    @property
    def download_size(self) -> str:
        """The size as text."""
        if self.size is not None:
            return f"{self.size / 1e6:,.0f} MB"
        if self.approximate_size is not None:
            return f"about {self.approximate_size / 1e6:,.0f} MB"
        return "size unknown"


with (Path(__file__).parent / "releases.yaml").open("rb") as _file:
    RELEASES = msgspec.convert(yaml.load(_file, yaml.CSafeLoader), dict[str, Release])
