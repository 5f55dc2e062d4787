"""The learned ranker: a stage between prefetching and the cross-encoder (multi-stage ranking).

Candidates are the union of what several retrievers find first; each gets features (rerank.features), and a
model that train.py model=ranker has fitted orders them (rerank.ranker_training).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from datasets.corpus import Corpus
from datasets.errors import InputError, missing_extra
from hatten.words_retriever import WordsRetriever
from rerank.evidence import Evidence
from rerank.features import Candidates, check_groups, first_dense, standardise
from retrieval.arrays import Floats, Mask, Rows
from retrieval.base import Ranking, Retriever, top_k
from retrieval.fusion import fuse, reciprocal_ranks
from retrieval.queries import Queries
from retrieval.settings import check_counts
from training.checkpoint import find_saved
from training.hub import Pretrained, read_json, write_json

log = logging.getLogger(__name__)

SAVED = "ranker"
"""The folder of a trained ranker, in the output folder of its training."""
FORMAT, MODEL, TREES = "ranker-1", "ranker.json", "trees-{}.txt"
QUERIES = 32
"""Queries whose candidates are ranked at a time."""


@dataclass(frozen=True)
class Weights:
    """A linear model: the weight of each standardised column; a column that it does not know has none."""

    of: Mapping[str, float]

    def scores(self, columns: Sequence[str], values: Floats) -> Floats:
        """values [..., F] -> [...]"""
        return np.asarray(values @ np.array([self.of.get(name, 0.0) for name in columns], np.float32))


class Trees:
    """LightGBM's trees over the standardised columns; a column that is not there is 0, as the mean."""

    def __init__(self, columns: Sequence[str], text: str) -> None:
        """text: the model as LightGBM writes it."""
        self.columns, self.text = list(columns), text
        self._model = lightgbm().Booster(model_str=text)

    def scores(self, columns: Sequence[str], values: Floats) -> Floats:
        """values [..., F] -> [...]"""
        place = {name: i for i, name in enumerate(columns)}
        flat = np.zeros((values[..., 0].size, len(self.columns)), np.float32)
        for i, name in enumerate(self.columns):
            if name in place:
                flat[:, i] = values[..., place[name]].ravel()
        return np.asarray(self._model.predict(flat, num_threads=1), np.float32).reshape(values.shape[:-1])


def lightgbm() -> Any:
    """The module; InputError if the extra is not installed."""
    try:
        import lightgbm as module
    except ImportError:
        raise InputError(missing_extra("model.ranker.kind=lightgbm", "trees")) from None
    return module


HOME, BARE, ABROAD, DRAFT = "home", "bare", "abroad", "draft"
"""For a corpus with training contexts; for one without, whose words the dense part knows; and for one of
another field. Each also as NAME-draft, for queries of which it is known what they cite elsewhere."""
KNOWN_SHARE = 0.97
"""Of running words: with fewer a corpus without training contexts is of another field."""


@dataclass(frozen=True)
class RankingModel(Pretrained):
    """What orders candidates: a model for each of HOME, BARE, ABROAD and their drafts, or for some of them.

    about: what they were trained on, and how, as plain values.
    """

    settings_file = MODEL
    title = "ranker"
    description = """\
A learned ranker for citation recommendation: it orders what several retrievers find first, by features such
as their scores and ranks, names near the mark, popularity and age. The retrievers are those under `parts`
below; their own models are not in this folder.

```sh
python evaluate.py retriever=ranker ranker={place} checkpoint=HATTEN data=custom data.dir=DIR
```"""
    tags = ("learning-to-rank",)

    models: Mapping[str, Weights | Trees]
    about: Mapping[str, Any] = field(default_factory=dict)

    def name_for(self, contexts: bool, share: float) -> str:
        """The name of the model for a corpus.

        contexts: whether it has training contexts; share: of its running words that the dense part knows.
        """
        wanted = [HOME] if contexts else [BARE, HOME] if share >= KNOWN_SHARE else [ABROAD, BARE, HOME]
        return next(name for name in [*wanted, *self.models] if name in self.models)

    def write(self, folder: Path) -> None:
        models: dict[str, Any] = {}
        for name, model in self.models.items():
            if isinstance(model, Weights):
                models[name] = {"kind": "linear", "weights": dict(model.of)}
            else:
                models[name] = {"kind": "lightgbm", "columns": model.columns}
                (folder / TREES.format(name)).write_text(model.text, encoding="utf-8")
        write_json(folder / MODEL, {"format": FORMAT, "models": models})

    @classmethod
    def read(cls, folder: Path, about: dict[str, Any]) -> RankingModel:
        path = folder / MODEL
        content = read_json(path, dict)
        if content.get("format") != FORMAT:
            raise InputError(
                f"{path}: a ranker of format {content.get('format')!r}; this version reads {FORMAT}"
            )
        try:
            models = {str(name): _read(name, one, folder) for name, one in content["models"].items()}
            if not models:
                raise ValueError("it is empty")
            return cls(models, about)
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise InputError(f"{path}: not a ranker ({error}); train it again") from None

    @classmethod
    def load(cls, place: str | Path) -> RankingModel:
        """What a training saved, by its folder, the output folder of the training or its id on the hub."""
        return cls.from_pretrained(find_saved(place, SAVED))


def _read(name: str, content: Mapping[str, Any], folder: Path) -> Weights | Trees:
    """One of the models of a folder."""
    if content["kind"] != "linear":
        return Trees(content["columns"], (folder / TREES.format(name)).read_text("utf-8"))
    weights = {str(column): float(weight) for column, weight in content["weights"].items()}
    if not np.isfinite(list(weights.values())).all():
        raise ValueError("a weight is no number")
    return Weights(weights)


class Ranker(Retriever):
    """Ranks the union of what its parts find first by a trained model.

    parts: retrievers by the names that the model knows them by. One that learns from training contexts is
    left out where the corpus has none.
    depth: papers taken of each part. What comes behind these candidates, where more are asked for, is in the
    order of the parts' reciprocal ranks.
    features: groups of features (rerank.features); null: all.
    """

    name = "ranker"
    evidence: Evidence

    def __init__(
        self,
        ranker: str | Path | RankingModel | None,
        parts: Mapping[str, Retriever],
        depth: int = 200,
        features: Sequence[str] | None = None,
    ) -> None:
        """ranker: the output of train.py model=ranker; None: it is to be trained.

        Raises InputError for a value that is not one of those above.
        """
        super().__init__()
        self.given = dict(parts)
        if not self.given:
            raise InputError("retriever.parts: there is none to rank the papers of")
        self.join_protocols(self.given.values())
        check_counts(depth=depth)
        self.depth, self.features = depth, check_groups(features)
        self.model = RankingModel.load(ranker) if isinstance(ranker, str | Path) else ranker
        self.parts: dict[str, Retriever] = {}
        self.like: Ranker | None = None
        """An indexed one of the same papers, perhaps other contexts: what it has read of papers is used."""
        self.chosen = HOME
        """The name of the model that ranks the indexed corpus."""

    def settings(self) -> dict[str, Any]:
        parts = {name: {"retriever": part.name, **part.settings()} for name, part in self.given.items()}
        return {"parts": parts, "depth": self.depth}

    def query_settings(self) -> dict[str, Any]:
        parts = {name: found for name, part in self.given.items() if (found := part.query_settings())}
        model = None if self.model is None else self.model.about.get("hash")
        return {**parts, "features": self.features, "model": model}

    def remember_queries(self) -> None:
        for part in self.given.values():
            part.remember_queries()

    @property
    def index_bytes(self) -> int:
        return self.evidence.nbytes + sum(part.index_bytes for part in self.parts.values())

    def _index(self, corpus: Corpus) -> None:
        self._choose(corpus)
        for name, part in self.parts.items():
            twin = None if self.like is None else self.like.parts.get(name)
            if twin is not None and not part.reads_contexts and part.settings() == twin.settings():
                part = self.parts[name] = twin
            else:
                part.index(corpus)
            self.tuned |= {f"{name}.{key}": value for key, value in part.tuned.items()}
        dense = first_dense(self.parts)
        of = Evidence.of if self.like is None else self.like.evidence.with_contexts_of
        self.evidence = of(corpus, dense)
        self._choose_model(corpus)

    def _choose_model(self, corpus: Corpus) -> None:
        """The model for the corpus, by what is there."""
        if self.model is None:
            return
        dense, contexts = first_dense(self.parts), self.evidence.has_contexts
        share = dense.known_share if isinstance(dense, WordsRetriever) else 1.0
        self.chosen = self.model.name_for(contexts, share)
        log.info(
            f"ranker: ranks {corpus.name} by its model `{self.chosen}`: {'with' if contexts else 'no'} "
            f"training contexts, {share:.1%} of the running words known"
        )

    def _choose(self, corpus: Corpus) -> None:
        """The parts that this corpus has everything for."""
        known = {name: part for name, part in self.given.items() if part.fits(corpus)}
        if left := [name for name in self.given if name not in known]:
            log.info(f"ranker: {corpus.name} has no training contexts, so it does without {', '.join(left)}")
        if not known:
            raise InputError(
                f"retriever.parts: corpus {corpus.name} has no training contexts for any of them"
            )
        self.parts = known

    def _search(self, queries: Queries, k: int, allowed: Mask | None) -> Ranking:
        if self.model is None:
            raise InputError("retriever=ranker needs ranker=FOLDER, the output of train.py model=ranker")
        batches = [
            self._ranked(queries[slice(start, start + QUERIES)], k, allowed)
            for start in range(0, len(queries), QUERIES)
        ]
        return Ranking.concat(batches)

    def _ranked(self, queries: Queries, k: int, allowed: Mask | None) -> Ranking:
        found = self.prefetched(queries, max(self.depth, k), allowed)
        papers = self.candidates(found)
        ranking = top_k(papers, self.scored(queries, papers), k)
        if k <= self.depth:
            return ranking
        # The rest is ranked as a whole below the last candidate.
        rest = fuse(found, [reciprocal_ranks(part) for part in found], np.ones((1, len(found))), k)
        known = np.zeros((len(queries), len(self.corpus.paper_ids) + 1), np.bool_)
        np.put_along_axis(known, papers.astype(np.int64), True, axis=1)
        more = np.where(np.take_along_axis(known, rest.papers.astype(np.int64), axis=1), -1, rest.papers)
        last = np.where(ranking.papers >= 0, ranking.scores, np.inf).min(axis=1, keepdims=True)
        below = np.where(np.isfinite(last), last, 0) - 1 - np.arange(k, dtype=np.float32)
        return top_k(
            np.concatenate([ranking.papers, more], axis=1), np.concatenate([ranking.scores, below], axis=1), k
        )

    def prefetched(self, queries: Queries, depth: int, allowed: Mask | None = None) -> list[Ranking]:
        """What each part finds, without the citing paper."""
        return [part.search_allowed(queries, depth, allowed) for part in self.parts.values()]

    def candidates(self, found: Sequence[Ranking]) -> NDArray[np.int32]:
        """The first `depth` papers of each part, each once, by row, [Q, K]; -1 behind them."""
        papers = np.sort(np.concatenate([part.papers[:, : self.depth] for part in found], axis=1), axis=1)
        papers[:, 1:][papers[:, 1:] == papers[:, :-1]] = -1
        papers = -np.sort(-papers, axis=1)
        most = int((papers >= 0).sum(axis=1).max(initial=1))
        return np.ascontiguousarray(papers[:, :most])

    def columns(self, queries: Queries, papers: NDArray[np.int32]) -> dict[str, NDArray[np.floating]]:
        """The features [Q, K] of papers [Q, K], by name."""
        return Candidates(self.evidence, self.parts, queries, papers).columns(self.features)

    def scored(self, queries: Queries, papers: NDArray[np.int32]) -> Floats:
        """What the model gives papers [Q, K] as candidates of one list."""
        assert self.model is not None
        columns = self.columns(queries, papers)
        values, name = standardise(columns, papers), self.chosen
        scores = self.model.models[name].scores(list(columns), values)
        drafts = np.flatnonzero(queries.known.lengths)
        if len(drafts) and (draft := self.model.models.get(f"{name}-{DRAFT}")):
            scores[drafts] = draft.scores(list(columns), values[drafts])
        return scores

    def explain(self, queries: Queries | Rows, papers: NDArray[np.int32]) -> dict[str, NDArray[np.floating]]:
        """The features [Q, K] of papers [Q, K] as they are, NaN where there is nothing to tell."""
        return self.columns(Queries.of(self.corpus, queries), papers)

    def score(self, queries: Queries | Rows, papers: NDArray[np.int32]) -> Floats:
        """As Retriever.score; features are standardised over the candidates that a search has."""
        asked, scores = Queries.of(self.corpus, queries), np.full(papers.shape, -np.inf, np.float32)
        for start in range(0, len(asked), QUERIES):
            rows = slice(start, start + QUERIES)
            own = self.candidates(self.prefetched(asked[rows], self.depth))
            values = self.scored(asked[rows], own)
            for query, (there, value) in enumerate(zip(own, values, strict=True), start):
                known = {
                    int(paper): float(one) for paper, one in zip(there, value, strict=True) if paper >= 0
                }
                scores[query] = [known.get(paper, -np.inf) for paper in papers[query].tolist()]
        return scores

    def _reindex(self, old: Corpus, corpus: Corpus, kept: Rows, folder: Path) -> None:
        self._choose(old)
        before = set(self.parts)
        self._choose(corpus)
        if set(self.parts) != before:
            super()._reindex(old, corpus, kept, folder)
            return
        for name, part in self.parts.items():
            part.reindex(old, corpus, kept, folder / "parts" / name)
            self.tuned |= {f"{name}.{key}": value for key, value in part.tuned.items()}
        found = Evidence.changed(folder / "evidence", old, corpus, kept)
        self.evidence = found or Evidence.of(corpus, first_dense(self.parts))
        self._choose_model(corpus)

    def _save(self, folder: Path) -> None:
        for name, part in self.parts.items():
            part.save(folder / "parts" / name)
        (folder / "evidence").mkdir()
        self.evidence.save(folder / "evidence")

    def _load(self, folder: Path, corpus: Corpus) -> None:
        self._choose(corpus)
        for name, part in self.parts.items():
            part.load(folder / "parts" / name, corpus)
        self.evidence = Evidence.load(folder / "evidence", corpus)
        self._choose_model(corpus)
