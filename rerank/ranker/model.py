"""The learned ranker: a stage between prefetching and the cross-encoder (multi-stage ranking).

Candidates are the union of the top papers of several retrievers, of papers that the context names by author
or initials, and of those that similar passages of the draft cite. Linear models (rerank.ranker.linear) rank
them by their features (rerank.ranker.features).
"""

from __future__ import annotations

import copy
import json
import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from citerec.base.errors import InputError
from citerec.base.files import digest_json, write_text
from citerec.datasets.columns import Ragged, offsets_of
from citerec.datasets.corpus import Corpus
from citerec.datasets.records import IN_TEXTS
from citerec.hatten.dense import DenseModel
from citerec.hatten.trained import open_model
from citerec.rerank.ranker.author_names import named_papers
from citerec.rerank.ranker.citing_contexts import CitingContexts
from citerec.rerank.ranker.confidence import Confidence
from citerec.rerank.ranker.corpus_statistics import CorpusStatistics
from citerec.rerank.ranker.features import (
    Candidates,
    PassageScores,
    first_dense,
    first_network,
)
from citerec.rerank.ranker.linear import LinearModel, Lists
from citerec.rerank.ranker.networks import NetworkModel, Rescoring, floats, with_pairs
from citerec.retrieval.arrays import Floats, Mask, Rows
from citerec.retrieval.base import OtherIndex, Ranking, Retriever, top_k
from citerec.retrieval.fusion import fuse, reciprocal_ranks
from citerec.retrieval.lexical.bm25 import BM25
from citerec.retrieval.networks.encoder import NetworkRetriever
from citerec.retrieval.passages import cited_elsewhere
from citerec.retrieval.queries import Queries
from citerec.retrieval.settings import IndexConfig, check_counts
from citerec.training.hub import DENSE, Pretrained, check_consistent, read_json, write_json

if TYPE_CHECKING:
    from citerec.rerank.settings import RankerSettings
    from citerec.training.loop import TrainingRun

log = logging.getLogger(__name__)

FORMAT, MODEL = "ranker-7", "ranker.json"
QUERIES = 32
"""Queries ranked at a time."""
CITED = 50
"""Candidates from the passages of a draft."""
BY_PASSAGES = 50
"""Candidates by passages of full texts."""
CITED_WEIGHT, CITED_FROM = 25.0, 0.1
CITED_FIRST, CITED_SURE = 100.0, 0.25
"""How far contexts of full texts raise a paper that they cite: a factor, and the similarity to the query
(`CitingContexts.shares`) above which it counts; the first pair ranks among papers that are cited, the second
among all. Chosen as docs/write/fulltexts.md says."""
STATISTICS = "statistics"
"""Folder of the corpus statistics in a saved index."""


@dataclass(frozen=True)
class RankingModel(Pretrained):
    """The model of a ranker and how sure it is of its answers.

    model, confidence: used without networks. networks: used if networks are among its parts.
    about: how they were trained, as plain values. dense: the model of the dense retriever among its parts.
    """

    settings_file = MODEL
    folder = "ranker"
    title = "ranker"
    description = """\
A learned ranker for citation recommendation: it ranks the union of several retrievers' top papers by
features such as their scores, words in common, and names and years near the mark. The retrievers are
those under `parts` below; the dense one's model is in the folder `dense`."""
    usage = "retriever=ranker ranker={place}"
    tags = ("learning-to-rank",)

    model: LinearModel
    confidence: Confidence = field(default_factory=Confidence)
    about: Mapping[str, Any] = field(default_factory=dict)
    dense: DenseModel | None = None
    networks: NetworkModel | None = None

    @classmethod
    def train(
        cls,
        corpus: Corpus,
        settings: RankerSettings | None = None,
        run: TrainingRun | None = None,
        *,
        retriever: Ranker,
        index_dir: str | Path | None = None,
        **changes: Any,
    ) -> RankingModel:
        """Train on the candidates of `retriever`, such as Ranker.over(model.retriever()).

        The contexts are those of validation (settings.split), because no retriever was trained on them.
        index_dir: folder of the parts' indexes: loaded if present, else built and saved. changes: fields of
        the settings, such as queries=3000. The cross-fitted measures are also written to metrics.json.
        """
        # Imported late: ranking does not need these.
        from citerec.rerank.ranker.linear import cross_fit, fit_ranker, measure
        from citerec.rerank.ranker.training import calibrate, read_lists, training_split
        from citerec.rerank.settings import RankerSettings
        from citerec.training.loop import TrainingRun
        from citerec.training.rounds import METRICS

        settings, run = replace(settings or RankerSettings(), **changes), run or TrainingRun()
        start = time.monotonic()
        retriever.open(corpus, index_dir)
        split = training_split(corpus, settings.split, settings.queries, run.seed)
        elsewhere = cited_elsewhere(corpus, corpus.split(split.name), split.contexts)
        lists = read_lists(retriever, Queries.from_contexts(corpus, split, elsewhere), settings.split)
        log.info(
            f"ranker: {len(lists):,} lists of {len(lists.papers) / len(lists):,.0f} candidates, "
            f"{len(lists.columns)} features"
        )
        scores = cross_fit(settings, lists, run.seed)
        model = cls(fit_ranker(settings, lists), calibrate(settings, lists, scores, run.seed))
        [measured] = measure(lists, scores).values()
        measures = {f"draft/{name}": value for name, value in measured.items()}  # as the lists are read
        figures = ", ".join(f"{name} {value:.4f}" for name, value in measures.items())
        log.info(f"ranker: {settings.folds}-fold cross-fitting over citing papers: {figures}")
        metrics = {f"val/{name}": value for name, value in measures.items()}
        write_text(run.path / METRICS, json.dumps(metrics, indent=1) + "\n")
        log.info(f"ranker: trained in {time.monotonic() - start:.0f} s; output in {run.path}")
        about = {
            "data": corpus.name,
            "corpus": corpus.fingerprint,
            "parts": {name: part.name for name, part in retriever.all_parts.items()},
            "depth": retriever.depth,
            "settings": asdict(settings),
            "retriever": retriever.settings(),
            "seed": run.seed,
            "cross_fitted": measures,
            "seconds": round(time.monotonic() - start, 1),
            "hash": model.parameters_hash,
        }
        dense = first_dense(retriever.all_parts)
        model = replace(model, about=about, dense=None if dense is None else dense.model)
        model.save(run.path / cls.folder)
        return model

    def retriever(self, index: IndexConfig | None = None) -> Ranker:
        """The ranker over its dense model, BM25 and BM25 with contexts."""
        if self.dense is None:
            raise InputError(
                "this ranker was saved without its dense model: use Ranker.over(retriever, ranker)"
            )
        return Ranker.over(self.dense.retriever(index), self)

    @property
    def parameters(self) -> dict[str, Any]:
        """All that has been fitted, as plain values."""
        parts = {"weights": self.model.weights, "deviations": self.model.deviations}
        parts["confidence"] = self.confidence.parameters
        content: dict[str, Any] = {name: dict(part) for name, part in parts.items()}
        return content if self.networks is None else {**content, "networks": self.networks.as_json()}

    @property
    def parameters_hash(self) -> str:
        """A hash of all that has been fitted."""
        return digest_json(self.parameters)

    def write(self, folder: Path) -> None:
        write_json(folder / MODEL, {"format": FORMAT, **self.parameters})
        if self.dense is not None:
            self.dense.save(folder / DENSE)

    @classmethod
    def read(cls, folder: Path, about: dict[str, Any]) -> Self:
        content = read_json(folder / MODEL, dict)
        if content.get("format") != FORMAT:
            raise OtherIndex(f"{folder}: a ranker of another version; train it again")
        with check_consistent(folder):
            model = LinearModel(floats(content["weights"]), floats(content["deviations"]))
            confidence = Confidence(floats(content["confidence"]))
            networks = NetworkModel.from_json(content["networks"]) if "networks" in content else None
        dense = folder / DENSE
        return cls(model, confidence, about, open_model(dense) if dense.is_dir() else None, networks)


class Ranker(Retriever):
    """Ranks the union of several retrievers' top papers with a trained model.

    parts: retrievers by the names in the model. Those that need training contexts are skipped if the corpus
    has none.
    depth: candidates from each retriever. Papers beyond them follow in the order of their reciprocal ranks.
    """

    name = "ranker"
    statistics: CorpusStatistics

    def __init__(
        self,
        ranker: str | Path | RankingModel | None,
        parts: Mapping[str, Retriever],
        depth: int = 200,
    ) -> None:
        """ranker: a model, or the output of citerec train model=ranker; None for a ranker to be trained.

        Raises InputError for invalid values.
        """
        super().__init__()
        self.all_parts = dict(parts)
        if not self.all_parts:
            raise InputError("retriever.parts: must name at least one retriever")
        self.join_parts(self.all_parts)
        check_counts(depth=depth)
        self.depth = depth
        self.model = RankingModel.open(ranker) if isinstance(ranker, str | Path) else ranker
        trained = () if self.model is None else self.model.about.get("parts", ())
        if missing := [name for name in trained if name not in self.all_parts]:
            log.warning(f"ranker: trained with {', '.join(missing)}, which retriever.parts lacks")
        self.parts: dict[str, Retriever] = {}
        self.passages: PassageScores | None = None
        """Passages of the full texts of papers, which a library sets; they are kept beside the index."""

    @classmethod
    def over(
        cls,
        dense: Retriever,
        ranker: RankingModel | None = None,
        more: Mapping[str, Retriever] = MappingProxyType({}),
    ) -> Ranker:
        """A ranker over a dense retriever, BM25 and BM25 with contexts, as in conf/retriever/ranker.yaml.

        more: further retrievers by name.
        """
        parts = {"dense": dense, "bm25": BM25(), "bm25_contexts": BM25(contexts=100, k1=2.0, b=0.5)}
        return cls(ranker, {**parts, **more})

    @property
    def log_probabilities(self) -> bool:  # type: ignore[override]
        return self.model is not None and bool(self.model.confidence.parameters)

    @property
    def encoder(self) -> NetworkRetriever | None:
        """The networks among the parts, if any."""
        return first_network(self.parts or self.all_parts)

    def without_networks(self) -> Self:
        """Return this ranker without its networks: quick, even while another thread searches with it."""
        quick = copy.copy(self)
        quick.parts = {name: copy.copy(part) for name, part in self.parts.items() if part is not self.encoder}
        quick.all_parts = quick.parts
        return quick

    def with_encoder(self, encoder: NetworkRetriever, model: RankingModel | None = None) -> Self:
        """Return the same ranker with an encoder of other languages, indexed, and perhaps its own model."""
        other = copy.copy(self)
        other.model, encoder.english = model or self.model, self.encoder
        other.parts = {name: encoder if part is self.encoder else part for name, part in self.parts.items()}
        return other

    def settings(self) -> dict[str, Any]:
        parts = {name: {"retriever": part.name, **part.settings()} for name, part in self.all_parts.items()}
        return {"parts": parts, "depth": self.depth}

    def query_settings(self) -> dict[str, Any]:
        model = None if self.model is None else self.model.about.get("hash")
        return {**super().query_settings(), "model": model}

    @property
    def index_bytes(self) -> int:
        return self.statistics.nbytes + sum(part.index_bytes for part in self.parts.values())

    def _index(self, corpus: Corpus) -> None:
        self._select_parts(corpus)
        self.index_parts(self.parts, corpus)
        self.statistics = CorpusStatistics.build(corpus)

    def supports(self, corpus: Corpus) -> bool:
        return any(part.supports(corpus) for part in self.all_parts.values())

    def _select_parts(self, corpus: Corpus) -> None:
        """Select the retrievers that fit the corpus."""
        selected = {name: part for name, part in self.all_parts.items() if part.supports(corpus)}
        if skipped := [name for name in self.all_parts if name not in selected]:
            log.info(f"ranker: {corpus.name} has no training contexts, skipping {', '.join(skipped)}")
        if not selected:
            raise InputError(f"retriever.parts: all need training contexts, which corpus {corpus.name} lacks")
        self.parts = selected

    def _search(self, queries: Queries, k: int, allowed: Mask | None) -> Ranking:
        if self.model is None:
            raise InputError("retriever=ranker needs ranker=FOLDER, the output of citerec train model=ranker")
        batches = [
            self._rank_batch(queries[slice(start, start + QUERIES)], k, allowed)
            for start in range(0, len(queries), QUERIES)
        ]
        return Ranking.concat(batches)

    def _rank_batch(self, queries: Queries, k: int, allowed: Mask | None) -> Ranking:
        rankings = self.prefetch(queries, max(self.depth, k), allowed)
        papers = self.merge_candidates(rankings)
        ranking = top_k(papers, self.score_candidates(queries, papers), k)
        if k <= self.depth:
            return ranking
        # All other papers rank below the last candidate.
        rest = fuse(rankings, [reciprocal_ranks(part) for part in rankings], np.ones((1, len(rankings))), k)
        is_candidate = np.zeros((len(queries), len(self.corpus.paper_ids) + 1), np.bool_)
        np.put_along_axis(is_candidate, papers.astype(np.int64), True, axis=1)
        more = np.where(
            np.take_along_axis(is_candidate, rest.papers.astype(np.int64), axis=1), -1, rest.papers
        )
        last = np.where(ranking.papers >= 0, ranking.scores, np.inf).min(axis=1, keepdims=True)
        # Close together, so that z-scores of the candidates hardly depend on the rest (fusion).
        last = np.where(np.isfinite(last), last, 0)
        below = last - np.arange(1, k + 1, dtype=np.float32) * 1e-4 * np.maximum(np.abs(last), 1)
        return top_k(
            np.concatenate([ranking.papers, more], axis=1), np.concatenate([ranking.scores, below], axis=1), k
        )

    def prefetch(self, queries: Queries, depth: int, allowed: Mask | None = None) -> list[Ranking]:
        """Search with each retriever, and add papers that the contexts name, that similar passages of the
        draft cite, or whose full texts have similar passages; without the citing paper."""
        if self.encoder is not None and self.model is not None and self.model.networks is not None:
            self.encoder.refresh(self.model.networks.first.depth)
        searched = [part for part in self.parts.values() if part is not self.encoder or part.complete]
        rankings = [part.search_allowed(queries, depth, allowed) for part in searched]
        eligible = self.corpus.is_candidate if allowed is None else allowed
        others = [self._named(queries, eligible), self._cited_elsewhere(queries, eligible)]
        if self.passages is not None:
            others.append(self.passages.find(queries, BY_PASSAGES, eligible))
        return [*rankings, *map(_in_order, others)]

    def _named(self, queries: Queries, eligible: Mask) -> Ragged:
        """Papers [Q] whose first author or initials are near the mark; they need share no word with it."""
        authors, initials = map(self.statistics.sorted_names, self.statistics.SORTED)
        texts, years = queries.texts("context"), self.corpus.years
        return named_papers(texts, authors, initials, years, eligible, queries.citing)

    def _cited_elsewhere(self, queries: Queries, eligible: Mask) -> Ragged:
        """The first CITED papers [Q] that passages of the draft with similar words cite."""
        rows = []
        for query, text in enumerate(queries.texts("context")):
            papers, cosines, _ = queries.elsewhere.cited(self.corpus, query, text)
            best = papers[np.argsort(-cosines, kind="stable")]
            best = best[eligible[best] & (best != queries.citing[query])]
            rows.append(list(dict.fromkeys(best.tolist()))[:CITED])
        return Ragged.from_rows(rows)

    def merge_candidates(self, rankings: Sequence[Ranking]) -> NDArray[np.int32]:
        """Merge the first `depth` papers of each retriever: rows [Q, K], each once, padded with -1."""
        papers = np.sort(np.concatenate([part.papers[:, : self.depth] for part in rankings], axis=1), axis=1)
        papers[:, 1:][papers[:, 1:] == papers[:, :-1]] = -1
        papers = -np.sort(-papers, axis=1)
        most = int((papers >= 0).sum(axis=1).max(initial=1))
        return np.ascontiguousarray(papers[:, :most])

    def score_candidates(self, queries: Queries, papers: NDArray[np.int32]) -> Floats:
        """Score papers [Q, K] as the candidates of one list per query.

        Scores are logarithms of probabilities if the model has been calibrated (`log_probabilities`).
        """
        assert self.model is not None
        lists, mask = self.lists(queries, papers)
        scores = np.full(papers.shape, -np.inf, np.float32)
        if self.encoder is None or self.model.networks is None:
            probabilities = self.model.confidence.log_probabilities(lists, self.model.model.scores(lists))
        else:
            probabilities = self.model.networks.log_probabilities(
                self.model.model, self.encoder, queries, papers[mask], lists
            )
            unread = np.repeat(~self.encoder.reads(queries), lists.lengths)
            if unread.any():
                plain = self.model.confidence.log_probabilities(lists, self.model.model.scores(lists))
                probabilities = np.where(unread, plain, probabilities)
        scores[mask] = probabilities
        if IN_TEXTS in self.corpus.splits:
            shares = CitingContexts(self.corpus, self.statistics).shares(queries, papers)
            raised = scores + CITED_WEIGHT * np.maximum(shares - CITED_FROM, 0)
            sure = CITED_FIRST * np.maximum(shares - CITED_SURE, 0)
            for own, wanted, cited, first in zip(scores, raised, np.isfinite(shares), sure, strict=True):
                # Only papers that are cited often enough change places: what the others lack tells nothing.
                order = np.flatnonzero(cited)[np.argsort(-wanted[cited], kind="stable")]
                own[order] = -np.sort(-own[cited])
                own[np.argsort(-(own + first), kind="stable")] = -np.sort(-own)
        return scores

    def with_pairs(self, queries: Queries, papers: NDArray[np.int32], lists: Lists, depth: int) -> Lists:
        """Add the cross-encoder's scores of the first papers, rows [n], where the encoder has read all."""
        assert self.model is not None and self.model.networks is not None and self.encoder is not None
        first = Rescoring(depth, 0.0).first(lists, self.model.networks.read.scores(lists))
        return with_pairs(self.encoder, queries, papers, lists, first)

    def lists(self, queries: Queries, papers: NDArray[np.int32]) -> tuple[Lists, Mask]:
        """Return the lists of candidates [Q, K], and the mask of the candidates in them."""
        candidates = Candidates(self.statistics, self.parts, queries, papers, self.passages)
        columns, mask = candidates.columns(), papers >= 0
        mask[:, 0] = True  # a list is never empty
        values = np.stack([np.asarray(column, np.float32) for column in columns.values()], axis=2)[mask]
        return Lists(list(columns), values, offsets_of(mask.sum(axis=1))), mask

    def explain(self, queries: Queries | Rows, papers: NDArray[np.int32]) -> dict[str, NDArray[np.floating]]:
        """Return the raw features [Q, K] of papers [Q, K]; NaN if unknown."""
        queries = Queries.from_contexts(self.corpus, queries)
        return Candidates(self.statistics, self.parts, queries, papers, self.passages).columns()

    def score(self, queries: Queries | Rows, papers: NDArray[np.int32]) -> Floats:
        """As Retriever.score, with features standardised over the candidates of a search."""
        queries = Queries.from_contexts(self.corpus, queries)
        scores = np.full(papers.shape, -np.inf, np.float32)
        for start in range(0, len(queries), QUERIES):
            rows = slice(start, start + QUERIES)
            own = self.merge_candidates(self.prefetch(queries[rows], self.depth))
            scores[rows] = Ranking(own, self.score_candidates(queries[rows], own)).scores_of(papers[rows])
        return scores

    def _save(self, folder: Path) -> None:
        for name, part in self.parts.items():
            part.save(folder / "parts" / name)
        (folder / STATISTICS).mkdir()
        self.statistics.save(folder / STATISTICS)

    def _load(self, folder: Path, corpus: Corpus) -> None:
        self._select_parts(corpus)
        for name, part in self.parts.items():
            part.load(folder / "parts" / name, corpus)
        self.statistics = CorpusStatistics.load(folder / STATISTICS, corpus)


def _in_order(rows: Ragged) -> Ranking:
    """Rank papers [Q] in their order."""
    papers = rows.padded(1)
    order = np.broadcast_to(-np.arange(papers.shape[1], dtype=np.float32), papers.shape)
    return top_k(papers, order, papers.shape[1])


def encoder_of(retriever: Retriever) -> NetworkRetriever | None:
    """Return the networks of a ranker; None for another retriever, or one without networks."""
    return retriever.encoder if isinstance(retriever, Ranker) else None
