"""What HAtten and the mean path compute with: documents as arrays of known shapes.

A `Layout` prepares them on the CPU, in a loader's process if there is one. Lengths, padding and masks are
then known before anything goes to a device: one transfer moves them, and no step has to wait for a result.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from citerec.datasets.columns import Ragged
from citerec.hatten.documents import Documents
from citerec.hatten.static.means import marker_distances, paragraph_kinds
from citerec.retrieval.vectors import chunks, padded_length

Array = Any
"""A NumPy array, or a tensor once it has been moved to a device (retrieval.encoders.nets.to_device)."""


@dataclass(frozen=True)
class Chunk:
    """Paragraphs of similar length.

    ids: [n, L]; absent: [n, L], padding (None: none); markers: of the words with vectors of their own, places
    in the flattened ids and numbers, [m] each (None: no such words).
    """

    ids: Array
    absent: Array | None
    markers: tuple[Array, Array] | None


@dataclass(frozen=True)
class LevelInputs:
    """B documents for the two levels.

    chunks: their n distinct paragraphs, longest first; back: [n], the place of each among the chunks.
    index: [B, P], paragraphs of the documents, 0 where there is none; missing: [B, P]; types: [B, P].
    absent: [B, P], paragraphs to leave out of the attention: the missing ones, but none of a document without
    any (None: none). empty: [B], documents without paragraphs (None: none).
    """

    chunks: list[Chunk]
    back: Array
    index: Array
    missing: Array
    types: Array
    absent: Array | None
    empty: Array | None


@dataclass(frozen=True)
class MeanInputs:
    """B documents for the mean path.

    tokens: [T], word ids of the n distinct paragraphs; starts: [n], where each begins. positions, buckets:
    [m], tokens in paragraphs with the target marker and their distances from it (None: no such tokens).
    index, missing: [B, P], as in LevelInputs; query: [B, 1] and kinds: [B, P], rows and columns of the
    weights of paragraphs.
    """

    tokens: Array
    starts: Array
    positions: Array | None
    buckets: Array | None
    index: Array
    missing: Array
    query: Array
    kinds: Array


@dataclass(frozen=True)
class Inputs:
    """Documents for an encoder's parts; None for a part that is not computed."""

    levels: LevelInputs | None
    mean: MeanInputs | None


@dataclass(frozen=True)
class Layout:
    """How an encoder's documents are laid out, without its weights: other processes may have it.

    has_levels: whether it has the two levels. kinds: number of the mean path's kinds of paragraphs, 0
    without one. chunk_tokens: maximum padded tokens of a chunk. markers: ids of words with vectors of their
    own. target_id: id of the target marker.
    """

    has_levels: bool = False
    kinds: int = 0
    chunk_tokens: int = 2048
    max_tokens: int = 512
    markers: tuple[int, ...] = ()
    target_id: int | None = None

    def prepare(self, documents: Documents, levels: bool = True) -> Inputs:
        """Prepare documents; levels: also for the two levels, if the encoder has them."""
        return Inputs(
            self._levels(documents) if self.has_levels and levels else None,
            mean_inputs(documents, self.target_id, self.kinds) if self.kinds else None,
        )

    def _levels(self, documents: Documents) -> LevelInputs:
        paragraphs, missing = documents.paragraphs, documents.index < 0
        order = np.argsort(-paragraphs.lengths, kind="stable")
        back = np.empty_like(order)
        back[order] = np.arange(len(order))
        empty: Array = missing.all(1)
        absent = missing & ~empty[:, None]  # rows without keys would become NaN
        return LevelInputs(
            [
                self._chunk(paragraphs.take(order[rows]))
                for rows in chunks(paragraphs.lengths[order], self.chunk_tokens)
            ],
            back,
            np.maximum(documents.index, 0),
            missing,
            documents.types,
            absent if absent.any() else None,
            empty if empty.any() else None,
        )

    def _chunk(self, paragraphs: Ragged) -> Chunk:
        lengths = paragraphs.lengths
        position = np.arange(min(padded_length(int(lengths.max())), self.max_tokens))
        absent: NDArray[np.bool_] = position >= lengths[:, None]
        ids = np.zeros(absent.shape, np.int64)
        ids[~absent] = paragraphs.values
        return Chunk(ids, absent if absent.any() else None, self._markers(ids))

    def _markers(self, ids: NDArray[np.int64]) -> tuple[Array, Array] | None:
        places = np.flatnonzero(np.isin(ids, self.markers)) if self.markers else ()
        if not len(places):
            return None
        number = {marker: number for number, marker in enumerate(self.markers)}
        return places, np.array([number[word] for word in ids.ravel()[places].tolist()])


def mean_inputs(documents: Documents, target_id: int | None, kinds: int) -> MeanInputs:
    """Prepare documents for a mean path with a target marker and a number of kinds of paragraphs."""
    positions, buckets = marker_distances(documents, target_id)
    query, types = paragraph_kinds(documents, kinds)
    return MeanInputs(
        documents.paragraphs.values.astype(np.int64),
        documents.paragraphs.offsets[:-1].copy(),
        positions if len(positions) else None,
        buckets if len(positions) else None,
        np.maximum(documents.index, 0),
        documents.index < 0,
        query,
        types,
    )
