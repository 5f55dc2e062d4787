"""Folders that processes share: one of them works at a time, and what the disk refuses is one line."""

from __future__ import annotations

import errno
import fcntl
import logging
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from datasets.errors import InputError

log = logging.getLogger(__name__)


@contextmanager
def one_at_a_time(lock: Path, work: str) -> Iterator[None]:
    """Held by one process at a time, the others wait and say so; the system frees it when its holder dies.

    work: what the processes do, as "prepares the same corpus".
    """
    with lock.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            log.info("waiting for another process that %s", work)
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def clear_abandoned(folder: Path, suffix: str) -> None:
    """Remove the folders NAME+suffix of processes that died; those at work hold NAME.lock (one_at_a_time)."""
    for unfinished in folder.glob(f"*{suffix}"):
        with unfinished.with_suffix(".lock").open("w") as file, suppress(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(unfinished, ignore_errors=True)


@contextmanager
def one_line_disk_errors(folder: Path, content: str, option: str) -> Iterator[None]:
    """Turn a full disk, and a folder that cannot be written, into an InputError.

    content: what is written, as "the prepared corpus". option: what names another folder.
    """
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise InputError(f"{folder}: no space left for {content}; free some or set {option}") from None
        if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EEXIST):
            raise InputError(
                f"{error.filename or folder}: {error.strerror}; set {option} to another folder"
            ) from None
        raise
