"""Builds a library on disk: parts, word statistics, codes, shards. A killed build goes on where it was.

building/   parts/        deduplicated papers (parts)
            counts/       counts of each part, and of each range of hashes (counts)
            generation/   what becomes the library's first generation
"""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import accumulate, chain, pairwise
from pathlib import Path
from typing import Any

import numpy as np

from citerec.base.checksums import write_checksums
from citerec.base.errors import InputError
from citerec.base.files import expand_user, full_disk_as_os_error, write_text
from citerec.datasets.some_papers import SomePapers
from citerec.datasets.word_statistics import TOTALS, WordStatistics
from citerec.formats.bibliography.paper import LibraryPaper
from citerec.hatten.retriever import WordsRetriever
from citerec.library.disk.counts import RANGES, add_up_range, count_part, write_statistics
from citerec.library.disk.deduplicate import kept_batches
from citerec.library.disk.entries import entries, records_of
from citerec.library.disk.parts import MERGED, Parts, prepare_parts
from citerec.library.disk.reading import to_papers
from citerec.library.disk.shard import ABOUT
from citerec.library.disk.shard_writer import TRAINING, ShardWriter, encode_rows, next_row, train_codes
from citerec.library.disk.tasks import TaskRunner, task_runner
from citerec.library.papers.folder import (
    BUILDING,
    GENERATIONS,
    Manifest,
    lock_target,
    next_generation,
    now,
    remove_old_generations,
    write_manifest,
)
from citerec.library.papers.models import PLAIN, install_model, model_files, open_model
from citerec.library.settings import BuildSettings
from citerec.library.sources.readers import absolute_names
from citerec.rerank.ranker.corpus_statistics import CorpusStatistics
from citerec.rerank.ranker.features import first_dense
from citerec.rerank.ranker.model import Ranker
from citerec.retrieval.base import Retriever
from citerec.retrieval.dense import DenseRetriever
from citerec.retrieval.indexes.cpu import faiss

log = logging.getLogger(__name__)

PARTS, COUNTS, GENERATION, INPUTS = "parts", "counts", "generation", "inputs.json"
MODEL, STATISTICS, SHARDS, EMPTY_CODES = "model", "statistics", "shards", "codes.faiss"
PAPERS_PER_SHARD = 5_000_000
"""Papers of a shard, unless the number of shards is given."""


SHOWN = 10
"""Maximum number of bad records to log."""


@dataclass(frozen=True)
class ShardTask:
    """A shard, and the rows of parts that are in it: (part, first row, last row exclusive)."""

    building: str
    number: int
    rows: tuple[tuple[int, int, int], ...]


@dataclass(frozen=True)
class Built:
    """Numbers of papers, shards, records merged into others, records dropped, and files skipped."""

    papers: int
    shards: int
    duplicates: int
    dropped: int
    skipped: int


def build_library(settings: BuildSettings, model: str, ranker: str) -> Built:
    """Build a library on disk. model, ranker: as for `install_model`. Logs bad records and skipped files."""
    path = expand_user(settings.library)
    if settings.contexts:
        raise InputError("contexts: a library on disk does not rank by contexts; leave them out")
    if model_files(model, ranker)[1] == PLAIN:  # also reports other errors before the papers are read
        raise InputError(f"model={model}: a library on disk needs one with vectors")
    bad: list[InputError] = []
    with lock_target(path, settings.overwrite, settings.wait), full_disk_as_os_error(path):
        with task_runner(settings.workers) as run:
            generation, parts = build_generation(
                settings.source,
                path / BUILDING,
                (model, ranker),
                settings.shards,
                run,
                bad_parts=settings.bad_parts,
                separate=settings.separate,
                on_bad=bad.append,
            )
        for line in bad[:SHOWN]:
            log.warning("%s", line)
        for name, reason in parts.skipped.items():
            log.warning("%s: skipped: %s", name, reason)
        number, shards = next_generation(path), len(list((generation / SHARDS).iterdir()))
        write_checksums(generation)
        generation.rename(path / GENERATIONS / str(number))
        manifest = Manifest(
            generation=number,
            model=model,
            ranker=ranker,
            named=absolute_names(settings.source),
            separate=list(settings.separate),
            shards=shards,
            created=now(),
            changed=now(),
            counts={"papers": parts.papers, "contexts": 0},
        )
        write_manifest(path, manifest)
        remove_old_generations(path)
        shutil.rmtree(path / BUILDING)
    return Built(parts.papers, shards, parts.duplicates, sum(parts.bad.values()), len(parts.skipped))


def build_generation(
    files: Sequence[str],
    building: Path,
    model: tuple[str, str],
    shards: int,
    run: TaskRunner,
    **options: Any,
) -> tuple[Path, Parts]:
    """Build the first generation of a library in `building`; returns its folder, and the parts.

    model: and ranker, as for library.papers.models.install_model. shards: 0 means one per
    PAPERS_PER_SHARD, and at least one per worker. options: of `prepare_parts`.
    """
    generation = building / GENERATION
    building.mkdir(parents=True, exist_ok=True)
    parts = prepare_parts(files, building / PARTS, run=run, **options)
    filled = [number for number, size in enumerate(parts.sizes) if size]
    shards = min(shards or max(-(-parts.papers // PAPERS_PER_SHARD), run.workers), parts.papers)
    inputs = json.dumps([(parts.folder / MERGED).read_text("utf-8"), shards, model])
    if _read(building / INPUTS) != inputs:  # otherwise a killed build of the same goes on
        for folder in (generation, building / COUNTS):
            shutil.rmtree(folder, ignore_errors=True)
        write_text(building / INPUTS, inputs)
    generation.mkdir(exist_ok=True)
    if not (generation / MODEL).is_dir():
        unfinished = generation / f"{MODEL}.tmp"
        shutil.rmtree(unfinished, ignore_errors=True)
        install_model(*model, unfinished)
        unfinished.rename(generation / MODEL)
    if not (generation / STATISTICS / TOTALS).exists():
        count(parts, building, run)
    codes = generation / EMPTY_CODES
    if not codes.exists():
        dense, whole = dense_part(generation / MODEL), WordStatistics.open(generation / STATISTICS)
        vectors, known = [], []
        for papers in chain.from_iterable(_sample(parts, part) for part in filled):
            _, some, corpus = entries(papers, dense, whole)
            vectors.append(some)
            known.append(dense.known_share(corpus) if isinstance(dense, WordsRetriever) else 1.0)
        if isinstance(dense, WordsRetriever):
            dense.tell_unknown(float(np.average(known, weights=[*map(len, vectors)])), str(building.parent))
        temporary = codes.with_suffix(".tmp")
        faiss.write_index(train_codes(np.concatenate(vectors)), str(temporary))
        temporary.rename(codes)
    tasks = [ShardTask(str(building), n, rows) for n, rows in enumerate(_shared_out(parts.sizes, shards))]
    sums = np.zeros(2)
    for _, pairs in run.map(build_shard, tasks, "building shards"):
        sums += pairs
    _set_average(generation / STATISTICS / TOTALS, "title_pairs", float(sums[0] / max(sums[1], 1)))
    return generation, parts


def _shared_out(sizes: Sequence[int], shards: int) -> Iterator[tuple[tuple[int, int, int], ...]]:
    """Yield the rows of parts for each shard, in the order of the sources: equal scores are told apart by it.

    >>> list(_shared_out((3, 0, 2), 2))
    [((0, 0, 2),), ((0, 2, 3), (2, 0, 2))]
    """
    starts, papers = [0, *accumulate(sizes)], sum(sizes)
    for first, last in pairwise(papers * number // shards for number in range(shards + 1)):
        yield tuple(
            (part, max(first - start, 0), min(last - start, size))
            for part, (start, size) in enumerate(zip(starts, sizes, strict=False))
            if max(first, start) < min(last, start + size)
        )


def count(parts: Parts, building: Path, run: TaskRunner) -> None:
    """Write the word statistics of the papers."""
    folder, target = building / COUNTS, building / GENERATION / STATISTICS
    folder.mkdir(exist_ok=True)
    target.mkdir(exist_ok=True)
    numbers = [number for number, size in enumerate(parts.sizes) if size]
    files = [folder / f"part-{number:05}.npy" for number in numbers]
    ranges = [folder / f"range-{number:05}.npy" for number in range(RANGES)]
    left = [
        (str(parts.folder), number, str(file))
        for number, file in zip(numbers, files, strict=True)
        if not file.with_suffix(".json").exists()
    ]
    for _ in run.map(_count_part, left, "counting words"):
        pass
    adding = [
        ([str(file) for file in files], n, str(file)) for n, file in enumerate(ranges) if not file.exists()
    ]
    for _ in run.map(_add_up_range, adding, "adding counts up"):
        pass
    write_statistics(ranges, files, target)


def _count_part(task: tuple[str, int, str]) -> None:
    folder, part, file = task
    count_part(chain.from_iterable(map(records_of, kept_batches(Path(folder), part))), Path(file))


def _add_up_range(task: tuple[list[str], int, str]) -> None:
    files, number, target = task
    add_up_range([Path(file) for file in files], number, Path(target))


def build_shard(task: ShardTask) -> tuple[float, int]:
    """Build a shard, part by part. Returns the sum of the lengths of its titles in known pairs of terms, and
    the number of titles that have any."""
    building = Path(task.building)
    generation = building / GENERATION
    folder = generation / SHARDS / str(task.number)
    dense, whole = dense_part(generation / MODEL), WordStatistics.open(generation / STATISTICS)
    if (folder / ABOUT).exists():
        writer = ShardWriter(folder)
    else:
        shutil.rmtree(folder, ignore_errors=True)
        codes = faiss.read_index(str(generation / EMPTY_CODES))
        writer = ShardWriter.create(folder, codes, parts=0, length=0.0, titles=0)
    with writer:
        done = writer.about
        if (last := next_row(folder)) > done["rows"]:  # of a part that was committed, but not noted
            writer.delete(range(done["rows"], last))
            writer.commit()
        for number, (part, *rows) in enumerate(task.rows[done["parts"] :], start=done["parts"] + 1):
            sums = np.array([done["length"], done["titles"]])
            for papers in paper_batches(building / PARTS, part, *rows):
                found, vectors, corpus = entries(papers, dense, whole)
                writer.append(found, vectors)
                sums += _pair_lengths(corpus)
            writer.commit(parts=number, length=float(sums[0]), titles=int(sums[1]))
    if done["coded"] < done["rows"]:
        encode_rows(folder)
    return done["length"], done["titles"]


def _pair_lengths(corpus: SomePapers) -> tuple[float, int]:
    statistics = CorpusStatistics(corpus)
    statistics.find_pairs()
    lengths = np.asarray(statistics.pair_counts(corpus.title_tokens, marked=False).sum(axis=1)).ravel()
    return float(lengths.sum()), int(np.count_nonzero(lengths))


def _read(path: Path) -> str:
    with suppress(FileNotFoundError):
        return path.read_text("utf-8")
    return ""


def _set_average(path: Path, kind: str, value: float) -> None:
    totals = json.loads(path.read_text("utf-8"))
    totals["averages"][kind] = max(value, 1e-9)
    write_text(path, json.dumps(totals, indent=1) + "\n")


def dense_part(model: Path) -> DenseRetriever:
    """Return the dense retriever of an installed model."""
    return find_dense(open_model(model))


def find_dense(retriever: Retriever) -> DenseRetriever:
    """Return the dense retriever of a model. Raises InputError for one that has none."""
    dense = first_dense(retriever.all_parts) if isinstance(retriever, Ranker) else retriever
    if not isinstance(dense, DenseRetriever):
        raise InputError(f"model={retriever.name}: a library on disk needs one with vectors")
    return dense


def paper_batches(
    folder: Path, part: int, start: int = 0, stop: int | None = None
) -> Iterator[list[LibraryPaper]]:
    """Yield the papers of a part, or of some of its rows, in batches."""
    first = 0
    for batch in kept_batches(folder, part):
        skipped = min(max(start - first, 0), len(batch))
        own = batch.slice(skipped, None if stop is None else stop - first - skipped)
        first += len(batch)
        if len(own):
            yield to_papers(own)
        if stop is not None and first >= stop:
            return


def _sample(parts: Parts, part: int) -> Iterator[list[LibraryPaper]]:
    """Yield the first papers of a part, its share of TRAINING."""
    wanted = -(-TRAINING * parts.sizes[part] // parts.papers)
    for papers in paper_batches(parts.folder, part):
        yield papers[:wanted]
        wanted -= len(papers)
        if wanted <= 0:
            return
