"""Public drafts with their authors' bibliographies: a list, and `citerec data drafts`, which fetches them.

Each is a repository at one commit. git fetches only that commit and, where the server allows it, only its
texts; a run that was interrupted goes on with the drafts that are missing.
"""

from __future__ import annotations

import re
import shutil
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Literal

import msgspec
import yaml

from citerec.base.arguments import command
from citerec.base.errors import InputError
from citerec.base.files import cache_folder, disk_errors, expand_user, write_text
from citerec.base.progress import count_progress
from citerec.base.settings import Settings
from citerec.datasets.published.releases import PREFIX
from citerec.datasets.published.repositories import Repository, fetch_repository, fetched_commit
from citerec.formats.json_lines import validate

LIST = "drafts.yaml"
"""The list, in the package and in a folder of drafts."""
LISTS = {"public": LIST, "2026-12": "drafts-2026-12.yaml", "2027": "drafts-2027.yaml"}
"""The lists that come with citerec, by name: 35 drafts of 33 fields, 20 and 40 of further fields."""
IDS = {f"{PREFIX}/drafts/{name}": name for name in LISTS}
"""Ids of these lists."""
TEXTS = (
    "*.tex",
    "*.ltx",
    "*.bib",
    "*.bbl",
    "*.md",
    "*.markdown",
    "*.[Rr]md",
    "*.qmd",
    "*.org",
    "*.typ",
    "*.yml",
    "LICEN[CS]E*",
)
"""What is checked out, by git's patterns."""
_COMMIT = re.compile(r"[0-9a-f]{40}")


class ListedDraft(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A draft: where it is, its main file and .bib files, and what it is about."""

    repository: str
    """address for git, or the folder's name"""
    main: str
    bib: list[str]
    commit: str = ""
    licence: str = ""
    field: str = ""
    language: str = ""
    part: Literal["", "fit", "check"] = ""
    """fit: something is fitted to it; check: what was fitted is checked on it"""

    @property
    def name(self) -> str:
        """The name of the folder, such as owner+repository."""
        return "+".join(PurePosixPath(self.repository.removesuffix(".git")).parts[-2:])


def read_list(path: Path) -> list[ListedDraft]:
    """Read a list of drafts. Raises InputError that names the faulty entry."""
    try:
        content = yaml.safe_load(path.read_text("utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise InputError(f"{path}: cannot be read: {' '.join(str(error).split())}") from None
    drafts = validate(content, list[ListedDraft], str(path))
    names = [draft.name for draft in drafts]
    for number, draft in enumerate(drafts, 1):
        where = f"{path}, draft {number} ({draft.name})"
        if names.count(draft.name) > 1:
            raise InputError(f"{where}: is listed twice")
        for file in (draft.name, draft.main, *draft.bib):
            if not file or PurePosixPath(file).is_absolute() or ".." in PurePosixPath(file).parts:
                raise InputError(f"{where}: {file!r} is not a path inside the repository")
    return drafts


@dataclass(frozen=True, kw_only=True)
class DraftsSettings(Settings):
    """Fetch public drafts with their bibliographies, for citerec evaluate benchmark=drafts."""

    output: str
    """folder for the drafts, one folder each (e.g. drafts)"""
    list: str = "public"
    """public (35 drafts) | 2026-12 (20 drafts of further fields) | 2027 (40 drafts of further fields) | a
    YAML file of others (format: datasets/published/drafts.py)"""


def list_file(name: str) -> Path:
    """Return the file of a list: one of LISTS, or a path."""
    return Path(__file__).parent / LISTS[name] if name in LISTS else expand_user(name)


def draft_folder(name_or_id: str) -> Path:
    """Return a folder of drafts: a path, or that of the list with this id, which is fetched to the cache."""
    if name_or_id not in IDS:
        return expand_user(name_or_id)
    folder = cache_folder() / "published" / name_or_id.removeprefix(f"{PREFIX}/")
    fetch_list(list_file(IDS[name_or_id]), folder)
    return folder


def fetch_list(source: Path, output: Path) -> int:
    """Fetch the drafts of a list that are missing; returns how many the list has.

    Raises InputError if some of them cannot be fetched.
    """
    drafts = read_list(source)
    for draft in drafts:
        if not _COMMIT.fullmatch(draft.commit):
            raise InputError(f"{source}: {draft.name} has no commit of 40 hexadecimal digits; add it")
    failed: dict[str, str] = {}
    with disk_errors(output, "the drafts", "output"):
        write_text(output / LIST, source.read_text("utf-8"))
        missing = [draft for draft in drafts if fetched_commit(output / draft.name) != draft.commit]
        if missing and shutil.which("git") is None:
            raise InputError("fetching drafts needs git, which is not installed")
        with count_progress("fetching drafts", len(missing)) as advance:
            for draft in missing:
                try:
                    fetch_repository(Repository(draft.repository, draft.commit, TEXTS), output / draft.name)
                except InputError as error:
                    failed[draft.name] = str(error)
                advance(1)
    if failed:
        name, reason = next(iter(failed.items()))
        raise InputError(
            f"{len(failed)} of {len(drafts)} drafts could not be fetched; {name}: {reason}; the same command "
            "goes on with those that are missing"
        )
    return len(drafts)


def fetch_drafts(settings: DraftsSettings) -> None:
    """Fetch a list and print the folder."""
    output = expand_user(settings.output)
    count = fetch_list(list_file(settings.list), output)
    print(f"{output}: {count} drafts; citerec evaluate benchmark=drafts drafts={output}")


main = command("data drafts", DraftsSettings, fetch_drafts)
