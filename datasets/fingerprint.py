"""Names for content: the hash of a file, and of a store's inputs and settings."""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from datasets.errors import InputError
from datasets.store import STORE_VERSION

MEMO = "content-hashes.json"
SETTLED = 5.0
"""Seconds that a file must be unchanged until its times are trusted to tell a further change."""


def fingerprint(hashes: Mapping[str, str], settings: Mapping[str, Any]) -> str:
    """Name of the store for inputs {role: content hash} and settings."""
    text = json.dumps(
        {"version": STORE_VERSION, "inputs": dict(hashes), "settings": dict(settings)}, sort_keys=True
    )
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def content_hash(path: Path, memo_folder: Path) -> str:
    """Hash of a file's content, remembered by its size and times so that large inputs open at once."""
    memo_file = memo_folder / MEMO
    memo = _read(memo_file)
    stamp = stamp_of(path)
    place = str(path.resolve())
    known = memo.get(place)
    if isinstance(known, list) and len(known) == 2 and known[0] == stamp and isinstance(known[1], str):
        return known[1]
    try:
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16)).hexdigest()
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from None
    if time.time() - path.stat().st_ctime > SETTLED and stamp == stamp_of(path):
        memo[place] = [stamp, digest]
        part = memo_file.with_name(f"{MEMO}.{os.getpid()}")
        part.write_text(json.dumps(memo), "utf-8")
        part.replace(memo_file)
    return digest


def stamp_of(path: Path) -> list[int]:
    """Size, change times and place on the disk: differs if the file was written in between."""
    stat = path.stat()
    return [stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino, stat.st_dev]


def _read(path: Path) -> dict[str, Any]:
    try:
        memo = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return memo if isinstance(memo, dict) else {}
