"""Encoding papers into embeddings (retrieval.embeddings): what is there already is not made again."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from datasets.errors import InputError
from datasets.progress import counting
from datasets.ragged import offsets_of, ranges
from datasets.store import Corpus
from retrieval.embeddings import (
    SHARD,
    EmbeddingFolder,
    Layout,
    finite_rounded,
    papers_of,
    places_of,
    text_keys,
)
from retrieval.encode import Pace
from retrieval.halves import Halves

log = logging.getLogger(__name__)

Advance = Callable[[float], None]
"""Is told a share of some work that is done, all shares of it being 1."""
Vectors = tuple[NDArray[np.float32], NDArray[np.int32] | None]
"""Vectors of papers, and how many each paper has where they are of sentences."""


@dataclass(frozen=True)
class Place:
    """Where embeddings are kept, None: nowhere; and the papers of a shard."""

    folder: str | Path | None = None
    shard: int = SHARD


@dataclass(frozen=True)
class Work:
    """What is to be encoded, and how."""

    corpus: Corpus
    rows: NDArray[np.int64]
    model: Mapping[str, Any]
    """what vectors depend on beside the texts"""
    dim: int
    encode: Callable[[NDArray[np.int64], Advance], Vectors]
    """rows of papers [n] to vectors"""
    sentences: bool = False
    dtype: str = "float16"
    spread: Callable[[Mapping[int, slice]], Iterable[tuple[int, NDArray[np.float32]]]] | None = None
    """shards, by number, to vectors of each, in any order: by other processes, in place of `encode`"""


@dataclass(frozen=True)
class Embeddings:
    """The vectors of N papers, which begin and end at `offsets` [N + 1]."""

    vectors: Halves
    offsets: NDArray[np.int64]
    encoded: int
    """papers that had to be encoded"""
    seconds: float
    """that it took"""


def embedded(work: Work, place: Place) -> Embeddings:
    """The vectors of some papers, read where they are and made where they are not.

    In a folder that is named they are kept. There they may also be those of another corpus, if it has all of
    these texts. In the cache they are kept only until they are whole, for a run that is cut off to go on.
    Raises InputError for a folder with something else, or of another model or other texts, or damaged.
    """
    layout = Layout(
        model=work.model,
        corpus=papers_of(work.corpus, work.rows),
        papers=len(work.rows),
        dim=work.dim,
        dtype=work.dtype,
        shard=place.shard,
        sentences=work.sentences,
    )
    if place.folder is not None:
        return _kept(work, layout, Path(place.folder))
    if len(work.rows) <= place.shard and work.spread is None:
        vectors, counts = work.encode(work.rows, lambda share: None)
        array = finite_rounded(vectors, work.dtype, "papers")
        offsets = np.arange(len(array) + 1) if counts is None else offsets_of(counts)
        return Embeddings(Halves([array]), offsets, len(work.rows), 0.0)
    folder = _unfinished(layout)
    found = _filled(EmbeddingFolder.find(folder) or EmbeddingFolder.begin(folder, layout), work)
    shutil.rmtree(folder, ignore_errors=True)  # what is mapped stays until nobody has it
    return found


def _kept(work: Work, layout: Layout, folder: Path) -> Embeddings:
    there = EmbeddingFolder.find(folder)
    if there is None:
        there = EmbeddingFolder.begin(folder, layout, text_keys(work.corpus, work.rows))
    there.check_model(layout.model)
    if there.layout.corpus == layout.corpus:
        return _filled(there, work)
    keys, known = text_keys(work.corpus, work.rows), there.keys()
    if np.array_equal(keys, known):
        return _filled(there, work)
    places = places_of(keys, known, _Ids(work), folder)
    if missing := there.missing():
        raise InputError(
            f"{folder}: {len(missing):,} of {len(there.parts()):,} shards are missing; run again what makes "
            "these embeddings, with its own papers"
        )
    vectors, offsets = there.open()
    if not work.sentences:
        return Embeddings(vectors.take(places), np.arange(len(places) + 1), 0, 0.0)
    rows, bounds = ranges(offsets[places], offsets[places + 1])
    return Embeddings(vectors.take(rows), bounds, 0, 0.0)


class _Ids(Sequence[str]):
    """Ids of the papers of some work."""

    def __init__(self, work: Work) -> None:
        self._work = work

    def __len__(self) -> int:
        return len(self._work.rows)

    def __getitem__(self, place: Any) -> Any:
        return self._work.corpus.paper_ids[int(self._work.rows[place])]


def _filled(folder: EmbeddingFolder, work: Work) -> Embeddings:
    """All of a folder, its missing shards made."""
    parts = folder.parts()
    missing = {number: parts[number] for number in folder.missing()}
    left = sum(part.stop - part.start for part in missing.values())
    seconds = 0.0
    if missing:
        with counting("encoding papers", len(work.rows)) as bar:
            pace = Pace("papers", len(work.rows), len(work.rows) - left, bar)
            for number, vectors, counts in _made(work, missing, pace):
                folder.write(number, vectors, counts)
        seconds = pace.seconds
        log.info(f"encoded {left:,} papers in {seconds:,.1f} s, {pace.rate:,.1f} papers/s")
    return Embeddings(*folder.open(), left, seconds)


def _made(
    work: Work, parts: Mapping[int, slice], pace: Pace
) -> Iterable[tuple[int, NDArray[np.float32], NDArray[np.int32] | None]]:
    if work.spread is not None:
        for number, vectors in work.spread(parts):
            yield number, vectors, None
            pace.advance(len(vectors))
        return
    for number, part in parts.items():
        before, papers = pace.done, part.stop - part.start

        def advance(share: float, papers: int = papers) -> None:
            pace.advance(share * papers)

        yield number, *work.encode(work.rows[part], advance)
        pace.advance(before + papers - pace.done)  # those without a text, and what rounding lost


def _unfinished(layout: Layout) -> Path:
    """Where in the cache what is done of an encoding is kept."""
    about = [layout.model, layout.corpus, layout.shard, layout.dtype]
    digest = hashlib.blake2b(json.dumps(about, sort_keys=True).encode(), digest_size=12).hexdigest()
    return Path(os.environ.get("CITATION_CACHE", ".cache")) / "encoding" / digest
