"""Files of a git repository at one commit; git fetches only that commit and, if it can, only these files."""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from citerec.base.errors import InputError
from citerec.base.files import atomic_folder


@dataclass(frozen=True)
class Repository:
    """A repository at a commit. address: for git. files: to check out, by git's patterns."""

    address: str
    commit: str
    files: tuple[str, ...]

    @property
    def name(self) -> str:
        """The name of a folder for it, such as owner+repository."""
        return "+".join(PurePosixPath(self.address.removesuffix(".git")).parts[-2:])

    def on(self, mirror: str) -> Repository:
        """Return the same repository of another server: the address is MIRROR/OWNER/NAME."""
        owner_and_name = "/".join(PurePosixPath(self.address).parts[-2:])
        return Repository(f"{mirror.rstrip('/')}/{owner_and_name}", self.commit, self.files)


def fetch_repository(repository: Repository, folder: Path) -> None:
    """Check out the files to a new folder. Raises InputError with git's reason."""
    if shutil.which("git") is None:
        raise InputError(f"{repository.address}: needs git, which is not installed")
    with atomic_folder(folder) as part:
        _git(part, "init", "--quiet")
        _git(part, "config", "core.symlinks", "false")
        _git(part, "config", "remote.origin.url", repository.address)
        _git(part, "config", "remote.origin.promisor", "true")
        _git(part, "sparse-checkout", "set", "--no-cone", *repository.files)
        _git(part, "fetch", "--quiet", "--depth=1", "--filter=blob:none", "origin", repository.commit)
        _git(part, "checkout", "--quiet", "--detach", repository.commit)


def fetched_commit(folder: Path) -> str:
    """Return the commit that a folder was fetched at; empty if none."""
    file = folder / ".git" / "HEAD"
    return file.read_text("utf-8").strip() if file.is_file() else ""


def _git(folder: Path, *arguments: str) -> None:
    """Run git in a folder. Raises InputError with its last line of output if it fails."""
    quiet = {"GIT_TERMINAL_PROMPT": "0", "GIT_LFS_SKIP_SMUDGE": "1", "LC_ALL": "C"}
    command = ["git", "-c", "core.hooksPath=/dev/null", *arguments]
    env = {**os.environ, **quiet}
    done = subprocess.run(
        command, cwd=folder, env=env, capture_output=True, encoding="utf-8", errors="replace"
    )
    if done.returncode:
        lines = done.stderr.strip().splitlines() or ["no reason given"]
        raise InputError(f"git {arguments[0]}: {lines[-1]}")
