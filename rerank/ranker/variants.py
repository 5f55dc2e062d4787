"""Forms of a corpus that a ranker is fitted to: with few training contexts, without abstracts, small."""

from __future__ import annotations

import copy
import hashlib
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from citerec.datasets.columns import Ragged, offsets_of
from citerec.datasets.corpus import Corpus, Split
from citerec.datasets.records import TRAIN
from citerec.retrieval.arrays import Mask, Rows

AUTHORS, PAPERS = (2, 4, 8, 16, 32), (100, 200, 400, 800, 1500)
"""Citing papers whose contexts ask a small library, and least papers of the library; drawn for each."""
NEIGHBOURS = 800
"""Citing papers among which those of similar titles are looked for."""
ABSTRACTS = (0.0, 0.3, 0.6, 1.0)
"""Share of papers that keep their abstract."""
TOPIC_LETTERS = 5
"""Least letters of a title's words that tell its topic."""


def with_contexts(corpus: Corpus, train: Split | None) -> Corpus:
    """Return the corpus with other training contexts, or none."""
    made = copy.copy(corpus)
    made.splits = {name: split for name, split in corpus.splits.items() if name != TRAIN}
    made.splits |= {} if train is None else {TRAIN: train}
    made.seen = np.zeros_like(corpus.seen)
    if train is not None:
        made.seen[train.positives.values] = True
    return made


class _Blanked(Sequence[str]):
    """Texts, some of them empty."""

    def __init__(self, texts: Sequence[str], empty: Mask) -> None:
        self._texts, self._empty = texts, empty

    def __len__(self) -> int:
        return len(self._texts)

    def __getitem__(self, row: Any) -> Any:
        return "" if self._empty[row] else self._texts[row]


def without_abstracts(corpus: Corpus, which: Mask) -> Corpus:
    """Return the corpus without the abstracts of some papers [P]; those without a title keep them."""
    which = which & (corpus.title_tokens.lengths > 0)
    made, tokens = copy.copy(corpus), corpus.abstract_tokens
    made.fingerprint = _derived(corpus, which)
    made.abstracts = _Blanked(corpus.abstracts, which)
    lengths = np.where(which, 0, tokens.lengths)
    made.abstract_tokens = Ragged(tokens.values[~np.repeat(which, tokens.lengths)], offsets_of(lengths))
    return made


def _derived(corpus: Corpus, values: np.ndarray[Any, Any]) -> str:
    """Return a fingerprint, by which vectors of papers are cached (retrieval.encoders.embeddings)."""
    return f"{corpus.fingerprint}-{hashlib.blake2b(values.tobytes(), digest_size=8).hexdigest()}"


def small_libraries(corpus: Corpus, split: Split, seed: int) -> Iterator[tuple[Corpus, Split]]:
    """Yield libraries as writers have them, with the contexts that ask each.

    split: contexts of a split of the corpus, or a sample. A library has the papers that a few of their citing
    papers cite, and those that citing papers of similar titles cite; a share of them keeps its abstract; no
    training contexts. Every citing paper asks one library, whose split has all its contexts. Citing papers
    stay in the corpus, as no candidates.
    """
    rng, whole = np.random.default_rng(seed), corpus.split(split.name)
    cited: dict[int, set[int]] = defaultdict(set)
    for one in corpus.splits.values():
        for citing, row in zip(corpus.citing[one.contexts].tolist(), one.positives, strict=True):
            cited[citing].update(row.tolist())
    long = np.array([len(word) >= TOPIC_LETTERS for word in corpus.words], np.bool_)
    asking = rng.permutation(np.unique(corpus.citing[split.contexts]))
    others = np.array(sorted(paper for paper in cited if paper >= 0))
    while len(asking):
        count = int(rng.choice(AUTHORS))
        own, asking = asking[:count], asking[count:]
        topic = _topic(corpus, own[own >= 0], long)
        near = rng.permutation(others)[:NEIGHBOURS]
        shared = [len(topic & _topic(corpus, near[i : i + 1], long)) for i in range(len(near))]
        papers = set().union(*(cited[paper] for paper in own.tolist()))
        least = int(rng.choice(PAPERS))
        for paper in near[np.argsort(-np.array(shared), kind="stable")].tolist():
            if len(papers) >= least:
                break
            papers |= cited[paper]
        without = rng.random(len(papers) + len(own)) >= rng.choice(ABSTRACTS)
        known = whole.take(np.flatnonzero(np.isin(corpus.citing[whole.contexts], own)))
        library = restrict(corpus, known, np.array(sorted(papers)), own[own >= 0], without)
        contexts = library.splits[whole.name]
        yield library, contexts.take(np.flatnonzero(np.isin(contexts.contexts, split.contexts)))


def _topic(corpus: Corpus, papers: Rows, long: Mask) -> set[int]:
    """Return the long words of titles."""
    words = np.unique(corpus.title_tokens.take(papers).values)
    return set(words[long[words]].tolist())


def restrict(corpus: Corpus, split: Split, papers: Rows, citing: Rows, without: Mask) -> Corpus:
    """Return the corpus of some papers, of which `papers` are candidates, with one split.

    without: papers and citing papers that lack an abstract here.
    """
    kept = np.union1d(papers, citing)
    row = np.full(len(corpus.paper_ids), -2, np.int32)
    row[kept] = np.arange(len(kept))
    made = with_contexts(corpus, None)
    made.__dict__.pop("_paper_rows", None)
    made.fingerprint = _derived(corpus, kept)
    for name in ("paper_ids", "titles", "abstracts"):
        setattr(made, name, [getattr(corpus, name)[i] for i in kept.tolist()])
    for name in ("years", "seen"):
        setattr(made, name, getattr(made, name)[kept])
    for name in ("title_tokens", "abstract_tokens", "fields"):
        setattr(made, name, getattr(corpus, name).take(kept))
    made.is_candidate = np.isin(kept, papers)
    made.citing = np.where(corpus.citing < 0, corpus.citing, row[corpus.citing])
    positives = Ragged(row[split.positives.values], split.positives.offsets)
    made.splits = {split.name: Split(split.name, split.contexts, positives)}
    return without_abstracts(made, without[: len(kept)] & made.is_candidate)
