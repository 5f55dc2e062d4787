"""Writes a generated corpus block by block, with any number of processes to the same bytes."""

from __future__ import annotations

import gzip
import multiprocessing
import os
from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from datasets.atomic import written_folder
from datasets.errors import InputError
from datasets.progress import counting
from datasets.shared_folders import one_line_disk_errors
from datasets.synthetic.records import CLOSING, Generator, Pieces, Plan

LEVEL = 1
"""Of compression: the quickest."""
AHEAD = 4
"""Blocks for each process that may wait to be written."""


@dataclass(frozen=True)
class Report:
    """What was written."""

    folder: Path
    papers: int
    contexts: int
    bytes: dict[str, int]
    """size of each file"""

    def summary(self) -> str:
        """One line."""
        size = sum(self.bytes.values()) / 1e6
        return f"{self.folder}: {self.papers:,} papers, {self.contexts:,} contexts, {size:,.0f} MB"


def generate_corpus(
    papers: int,
    contexts: int,
    output: str | Path,
    seed: int = 0,
    compressed: bool = False,
    workers: int | None = None,
) -> Report:
    """Write papers, contexts and splits into a new folder, whole or not at all.

    compressed: write `.json.gz`. workers: processes, as many as there are cores by default; the files do not
    depend on it. Raises InputError for a folder that is there already, for numbers that make no corpus and
    for a full disk.
    """
    plan, folder = Plan(papers, contexts, seed), Path(output).expanduser()
    workers = workers or os.cpu_count() or 1
    if folder.exists():
        raise InputError(f"output={output}: is there already; name a new folder")
    suffix = ".json.gz" if compressed else ".json"
    with one_line_disk_errors(folder, "the generated corpus", "output"), written_folder(folder) as unfinished:
        with ExitStack() as stack, counting("generating blocks", len(plan.blocks)) as advance:
            files = {stem: stack.enter_context((unfinished / (stem + suffix)).open("wb")) for stem in CLOSING}
            for pieces in _blocks(plan, compressed, workers):
                for stem, piece in pieces.items():
                    files[stem].write(piece)
                advance(1)
            for stem, closing in CLOSING.items():
                files[stem].write(_pack(closing) if compressed else closing)
        sizes = {path.name: path.stat().st_size for path in sorted(unfinished.iterdir())}
    return Report(folder, papers, contexts, sizes)


def _blocks(plan: Plan, compressed: bool, workers: int) -> Iterator[Pieces]:
    """The pieces of all blocks in order; few of them are in memory at a time."""
    if workers == 1:
        _begin(plan, compressed)
        yield from map(_block, plan.blocks)
        return
    with multiprocessing.get_context("spawn").Pool(workers, _begin, (plan, compressed)) as pool:
        waiting = deque(pool.apply_async(_block, (block,)) for block in plan.blocks[: AHEAD * workers])
        for block in [*plan.blocks[AHEAD * workers :], *([None] * len(waiting))]:
            yield waiting.popleft().get()
            if block is not None:
                waiting.append(pool.apply_async(_block, (block,)))


_generator: Generator
_compressed: bool


def _begin(plan: Plan, compressed: bool) -> None:
    global _generator, _compressed
    _generator, _compressed = Generator(plan), compressed


def _block(block: tuple[str, int]) -> Pieces:
    pieces = _generator.block(*block)
    return {stem: _pack(piece) for stem, piece in pieces.items()} if _compressed else pieces


def _pack(piece: bytes) -> bytes:
    """A member of a gzip file: members one behind the other are a gzip file too."""
    return gzip.compress(piece, LEVEL, mtime=0)
