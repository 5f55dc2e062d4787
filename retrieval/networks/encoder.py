"""Finds the nearest papers by the vectors of a network, which are kept (retrieval.networks.store)."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Executor
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from citerec.base.progress import count_progress
from citerec.datasets.columns import offsets_of
from citerec.datasets.corpus import Corpus
from citerec.retrieval.arrays import Floats, Mask, Rows
from citerec.retrieval.base import Ranking, Retriever
from citerec.retrieval.indexes.cpu import FlatIndex
from citerec.retrieval.lexical.terms import strip_markers
from citerec.retrieval.networks.inputs import Subwords, names_of
from citerec.retrieval.networks.networks import Networks
from citerec.retrieval.networks.store import Keys, VectorStore
from citerec.retrieval.queries import Queries

ENCODER = "encoder"
"""Name of the retriever, also among the parts of a ranker."""
KEPT = 64
"""Queries whose vectors and scores are kept."""
REACH = 15.0
"""Distance from the citation, in subwords, at which a subword counts 1/e of what it counts beside it."""
LEAST_SUBWORD = 1.3
"""An encoder reads a script in which its subwords have at least so many letters, on average."""
PART = 128
"""Papers that are encoded between two writes: a kill loses some seconds of work."""


class NetworkRetriever(Retriever):
    """Ranks the papers of which the store has vectors by their cosine with the passage.

    The index consists of the papers' keys in the store, so it does not change while papers are being encoded.
    """

    name = ENCODER
    arrays = ("keys",)
    reads_contexts = False
    comparable = True
    reads_all = True
    """whether it may be `complete`: false where the papers are those found for one question"""
    english: NetworkRetriever | None = None
    """the encoder of English in whose place this one reads other languages"""
    _keys: Keys
    _candidates: Rows
    _searched: tuple[Rows, FlatIndex]
    """rows of the papers that have been encoded, and their vectors: replaced together, while others search"""

    def __init__(self, networks: Networks, store: VectorStore | None = None, whole: bool = True) -> None:
        """store: by default in memory. whole: `index` encodes all papers, which may take minutes."""
        super().__init__()
        self.networks, self.whole = networks, whole
        self.store = VectorStore(None, networks.identity, networks.dim) if store is None else store
        self._asked: dict[tuple[int, ...], tuple[Floats, Floats]] = {}
        self._scored: dict[tuple[int, ...], dict[int, float]] = {}

    def __deepcopy__(self, memo: object) -> Self:
        return copy.copy(self)  # for another corpus; networks and store are shared

    def settings(self) -> dict[str, Any]:
        return self.networks.fingerprint()

    # What has been encoded.

    def missing(self) -> Rows:
        """Rows of the candidates without a stored vector."""
        kept = self.store.folder is not None
        return self._candidates[~self.store.known(self._keys, written=kept)]

    @property
    def complete(self) -> bool:
        """Whether all candidates have a vector."""
        return self.reads_all and len(self._searched[0]) == len(self._candidates)

    @property
    def keys(self) -> Keys:
        """Keys of the candidates in the store."""
        return self._keys

    def encode(
        self,
        rows: NDArray[np.integer],
        advance: Callable[[int], None] | None = None,
        pool: Executor | None = None,
        write: bool = True,
    ) -> None:
        """Encode papers that have no vector, PART by PART; each is kept before the next begins.

        pool: threads, by default those that all networks share. write: False keeps them in memory only.
        """
        for start in range(0, len(rows), PART):
            part = rows[start : start + PART]
            keys = self._keys[np.searchsorted(self._candidates, part)]
            papers = self.networks.reader.papers(self.corpus, part)
            self.store.append(self.networks.encode(keys, papers, advance, pool), write)

    def read(self, papers: NDArray[np.integer]) -> None:
        """Encode papers, rows [n], that have no vector, and keep them in memory only."""
        rows = np.unique(papers[papers >= 0]).astype(np.int64)
        keys = self._keys[np.searchsorted(self._candidates, rows)]
        self.encode(rows[~self.store.known(keys)], write=False)

    def encode_missing(self) -> int:
        """Encode all papers that have no vector, with a progress bar; returns their number."""
        missing = self.missing()
        if len(missing):
            with count_progress("encoding papers", len(missing)) as advance:
                self.encode(missing, advance)
            self.search_known()
        return len(missing)

    def refresh(self, most: int = 0) -> None:
        """Search the papers that other processes have encoded, too. If at most `most` are then missing,
        encode these and keep them in memory only."""
        if self.complete or not self.reads_all:
            return
        new = self.store.refresh()
        missing = self._candidates[~self.store.known(self._keys)]
        if 0 < len(missing) <= most:
            self.read(missing)
        if new or len(missing) <= most:
            self.search_known()

    def search_known(self) -> None:
        """Search the papers that have been encoded by now."""
        mask = self.store.known(self._keys)
        self._searched = self._candidates[mask], FlatIndex(self.store.vectors(self._keys[mask]))

    def paper_vectors(self, papers: NDArray[np.integer]) -> Floats:
        """Vectors of papers, rows [n] -> [n, D]; NaN for those that have none, and for -1."""
        vectors = np.full((len(papers), self.networks.dim), np.nan, np.float32)
        place = np.searchsorted(self._candidates, papers).clip(max=max(len(self._candidates) - 1, 0))
        valid = self._candidates[place] == papers
        vectors[valid] = self.store.vectors(self._keys[place[valid]])
        return vectors

    def key(self, paper: int) -> int:
        """The key of a candidate in the store."""
        return int(self._keys[np.searchsorted(self._candidates, paper)])

    # Queries.

    def query_vectors(self, queries: Queries) -> Floats:
        """[Q, D]"""
        read = self._read_queries(self.networks.reader.queries(queries))
        return np.array([vector for vector, _ in read], np.float32).reshape(-1, self.networks.dim)

    def _read_queries(self, queries: Sequence[Subwords]) -> list[tuple[Floats, Floats]]:
        """Vector and hidden states of queries [Q] (Networks.read)."""
        texts = [*map(tuple, queries)]
        # A ranker searches for queries, scores its candidates for them and explains some.
        read, new = self._asked, list(dict.fromkeys(text for text in texts if text not in self._asked))
        if new:
            states = self.networks.read([list(text) for text in new])
            read = {**read, **dict(zip(new, states, strict=True))}
            self._asked = dict(list(read.items())[-max(KEPT, len(new)) :])
        return [read[text] for text in texts]

    def reads(self, queries: Queries) -> NDArray[np.bool_]:
        """Whether the encoder knows the scripts of queries [Q]: its subwords are more than single letters.

        An encoder for several languages knows all scripts, some of which write a word with a letter.
        """
        if self.networks.means:
            return np.ones(len(queries), np.bool_)
        texts = [strip_markers(text) for text in queries.texts("context")]
        counts = (0 if text.isascii() else len(self.networks.reader.subwords([text])[0]) for text in texts)
        letters = (sum(not letter.isspace() for letter in text) for text in texts)
        return np.array([LEAST_SUBWORD * count <= size for count, size in zip(counts, letters, strict=True)])

    def cosines(self, queries: Queries, papers: NDArray[np.int32]) -> Floats:
        """Cosines of queries [Q] with papers [Q, K]; NaN for papers without a vector."""
        different, place = np.unique(papers, return_inverse=True)
        of_papers = self.paper_vectors(different)[place.reshape(papers.shape)]
        cosines: Floats = (of_papers @ self.query_vectors(queries)[:, :, None])[:, :, 0]
        return cosines

    def title_scores(self, queries: Queries, papers: NDArray[np.int32]) -> Floats:
        """Score how well the titles of papers [Q, K] have the words of queries [Q] (`score_titles`).

        NaN for papers without a vector or a title.
        """
        scores, reader = np.full(papers.shape, np.nan, np.float32), self.networks.reader
        texts, mark = reader.queries(queries), reader.special["mask"]
        for query, (text, (_, states)) in enumerate(zip(texts, self._read_queries(texts), strict=True)):
            listed = np.flatnonzero(papers[query] >= 0)
            keys = self._keys[np.searchsorted(self._candidates, papers[query, listed])]
            read, words = [*self.store.papers(keys)], np.array(text, np.int32)
            if not read:
                continue
            subwords, lengths = (
                np.concatenate([getattr(part, name) for _, part in read]) for name in ("subwords", "lengths")
            )
            weights = word_weights(words, text.index(mark), reader.special.values(), subwords, lengths)
            for places, part in read:
                scores[query, listed[places]] = score_titles(states, weights, part.words, part.titles)
        return scores

    def sentence_cosines(self, vector: Floats, paper: int) -> Floats:
        """Cosines [S] of a query's vector [D] with the sentences of a paper's abstract that were read."""
        cosines: Floats = self.store.sentences(self.key(paper)) @ vector
        return cosines

    def pair_scores(self, query: Subwords, papers: NDArray[np.integer]) -> Floats:
        """Scores [n] of a query with papers, rows [n], by the cross-encoder; they must have been encoded."""
        reader, keys = self.networks.reader, [self.key(paper) for paper in papers.tolist()]
        # Editors ask again with each letter of a citation key that is typed.
        scored = self._scored.get(tuple(query), {})
        new = [key for key in keys if key not in scored]
        pairs = [reader.pair(query, reader.shortened(self.store.subwords(key))) for key in new]
        scored = {**scored, **dict(zip(new, self.networks.scores(pairs).tolist(), strict=True))}
        self._scored = {**dict([*self._scored.items()][-KEPT:]), tuple(query): scored}
        return np.array([scored[key] for key in keys], np.float32)

    def score(self, queries: Queries | Rows, papers: NDArray[np.int32]) -> Floats:
        queries = Queries.from_contexts(self.corpus, queries)
        scores = np.where(queries.is_own(papers), np.nan, self.cosines(queries, papers))
        return np.where(np.isnan(scores), np.float32(-np.inf), scores)

    def _search(self, queries: Queries, k: int, allowed: Mask | None) -> Ranking:
        rows, vectors = self._searched
        ranking = vectors.search(self.query_vectors(queries), k, None if allowed is None else allowed[rows])
        papers = np.where(ranking.papers >= 0, np.append(rows, -1)[ranking.papers], -1).astype(np.int32)
        return Ranking(papers, ranking.scores)

    # The index.

    def _index(self, corpus: Corpus) -> None:
        rows = np.flatnonzero(corpus.is_candidate)
        self._use(corpus, keys_of(corpus, rows))
        if self.whole:
            self._corpus = corpus
            self.encode_missing()

    def _use(self, corpus: Corpus, keys: Keys) -> None:
        self._keys, self._candidates = keys, np.flatnonzero(corpus.is_candidate)
        self.store.refresh()
        self.search_known()

    @property
    def index_bytes(self) -> int:
        return self._keys.nbytes + self._searched[1].nbytes

    def _load(self, folder: Path, corpus: Corpus) -> None:
        super()._load(folder, corpus)
        self._use(corpus, self._keys)


def keys_of(corpus: Corpus, rows: Rows) -> Keys:
    """Hash what networks read of papers [n]."""
    keys, titles, abstracts = np.empty(len(rows), np.uint64), corpus.titles, corpus.abstracts
    for number, row in enumerate(rows.tolist()):
        text = "\0".join((titles[row], names_of(corpus, row), abstracts[row]))
        digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()
        keys[number] = int.from_bytes(digest, "little")
    return keys


# Late interaction: how well titles have the words of a passage (ColBERT: Khattab and Zaharia 2020, eq. 3).
# For each subword of the passage, the highest cosine of its hidden state with those of a title's subwords.
# A title's score is the mean of these over the passage, where subwords near the citation, and those that few
# of the papers have, count more.


def word_weights(
    passage: NDArray[np.int32],
    mark: int,
    special: Collection[int],
    subwords: NDArray[np.int32],
    lengths: NDArray[np.int32],
) -> Floats:
    """Weights [L] of a passage's subwords, 0 for special ones. mark: place of the citation in it. subwords:
    of papers, `lengths` [n] of each."""
    size = int(max(subwords.max(initial=0), passage.max(initial=0))) + 1
    marked = np.zeros(size, np.bool_)
    marked[passage] = True
    places = np.flatnonzero(marked[subwords])
    paper = np.repeat(np.arange(len(lengths)), lengths)[places]
    different = np.unique(paper * size + subwords[places]) % size
    count = np.bincount(different, minlength=size)[passage]
    distance = np.abs(np.arange(len(passage)) - mark)
    weights = np.log1p(len(lengths) / (count + 1)) * np.exp(-distance / REACH)
    weights[np.isin(passage, [*special])] = 0
    return weights.astype(np.float32)


def score_titles(
    passage: Floats, weights: Floats, words: NDArray[np.int8], counts: NDArray[np.int32]
) -> Floats:
    """Score titles [n] for a passage, its hidden states [L, D] of unit length and their weights [L]; NaN for
    titles without words. words: [w, D] in units of 1 / 127 of unit length, `counts` [n] of each title."""
    scores = np.full(len(counts), np.nan, np.float32)
    if not len(words) or not weights.any():
        return scores
    used, counted = weights > 0, counts > 0
    cosines = (passage[used] / np.float32(127)) @ words.astype(np.float32).T  # [L, w]
    best = np.maximum.reduceat(cosines, offsets_of(counts[counted])[:-1], axis=1)
    scores[counted] = weights[used] @ best / weights.sum()
    return scores
