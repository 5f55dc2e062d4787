"""A generation of a library in memory: its files, opened as papers to rank.

checksums.json  of all files below; those of an index are in its own folder
corpus/         the prepared store of the papers (datasets.corpus), surnames as fields
metadata.arrow  the other fields of each paper, in the order of the store
identities.npy  hashed identifiers for deduplication (formats.same_work)
model/  index/  the ranking model and its index
search.sqlite   the index of library.ask.search
"""

from __future__ import annotations

from functools import cached_property
from pathlib import Path

import numpy as np

from citerec.base.checksums import CHECKSUMS, check_checksums
from citerec.base.errors import InputError
from citerec.base.files import real_path
from citerec.datasets.columns import load_array, table_batches
from citerec.datasets.corpus import Corpus
from citerec.library.ask.candidates import SCHEMA, Candidates
from citerec.library.ask.search import SearchIndex
from citerec.library.evidence.evidence import FullTexts, text_encoder
from citerec.library.papers.folder import damaged, outdated
from citerec.library.papers.models import ENCODED, open_model
from citerec.rerank.ranker.model import Ranker, encoder_of
from citerec.retrieval.base import OtherIndex, Retriever

CORPUS, METADATA, IDENTITIES = "corpus", "metadata.arrow", "identities"
MODEL, RANKING = "model", "index/ranking"


class Generation(Candidates):
    """The papers of a generation, memory-mapped."""

    def __init__(self, path: Path, folder: Path) -> None:
        """path: of the library. folder: of its generation."""
        self.folder = folder
        schema, batches = table_batches(folder / METADATA)
        if schema.names != SCHEMA.names:
            raise InputError(f"{METADATA} has other columns")
        corpus = Corpus(folder / CORPUS, real_path(path).name)
        corpus.places = np.arange(len(corpus.paper_ids))
        super().__init__(path, corpus, batches, load_array(folder, IDENTITIES))

    @cached_property
    def retriever(self) -> Retriever:
        """The ranking model with its index. Raises InputError if one is damaged or of another version."""
        try:
            retriever = open_model(self.folder / MODEL, self.path / ENCODED)
            retriever.load(self.folder / RANKING, self.corpus)
        except OtherIndex:
            raise outdated(self.path) from None
        except (InputError, OSError) as error:
            raise damaged(self.path, error) from None
        encoders = text_encoder(retriever), encoder_of(retriever)
        self._full_texts = FullTexts.open(self.path, self.corpus, *encoders)
        if isinstance(retriever, Ranker):
            retriever.passages = self._full_texts
        return retriever

    @property
    def full_texts(self) -> FullTexts | None:
        _ = self.retriever  # opens them, since its model encodes questions
        return self._full_texts

    @cached_property
    def search_index(self) -> SearchIndex:
        try:
            return SearchIndex.open(self.folder)
        except (OSError, ValueError) as error:
            raise damaged(self.path, error) from None


def check_generation(folder: Path, trust: bool = True) -> None:
    """Raise InputError if a file of a generation differs from its checksum.

    trust: as for `check_checksums`.
    """
    if not (folder / CHECKSUMS).exists():
        raise InputError(f"{folder / CHECKSUMS}: missing")
    for sums in sorted(folder.rglob(CHECKSUMS)):
        check_checksums(sums.parent, trust=trust)
