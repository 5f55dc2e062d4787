"""Training a ranker: the lists that its models are fitted to, and what is fitted to them."""

from __future__ import annotations

import copy
import hashlib
import json
import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from citerec.base.errors import InputError
from citerec.base.files import write_text
from citerec.base.progress import count_progress
from citerec.datasets.columns import Ragged, offsets_of
from citerec.datasets.corpus import Corpus, Split
from citerec.datasets.records import SURROUNDINGS
from citerec.rerank.ranker.confidence import Confidence, fit_confidence, without_cited
from citerec.rerank.ranker.corpus_statistics import keep_fields
from citerec.rerank.ranker.features import DRAFT, NETWORK, first_dense, is_listed
from citerec.rerank.ranker.linear import (
    TrainingLists,
    centre,
    cross_fit,
    fit_ranker,
    folds_of,
    measure,
)
from citerec.rerank.ranker.model import RankingModel
from citerec.rerank.ranker.networks import BARE, COSINE, FIRST, PAIR, PAIRS, READ, NetworkModel, Rescoring
from citerec.rerank.settings import RankerSettings
from citerec.retrieval.arrays import Floats, Mask
from citerec.retrieval.passages import cited_elsewhere
from citerec.retrieval.queries import Queries
from citerec.training.loop import TrainingRun
from citerec.training.rounds import METRICS

if TYPE_CHECKING:
    from citerec.rerank.ranker.model import Ranker

log = logging.getLogger(__name__)

QUERIES = 32
"""Queries read at a time."""
DEPTH = 30
"""Papers that an encoder reads for a question."""
PAIRS_DEPTH = 24
"""Papers that a cross-encoder reads; more gain nothing (library/builtin/README.md)."""
WHOLE, CONTEXT, WITH_TITLE, SENTENCE = range(4)
"""How a query is asked: with all that is known of the citing paper, the context alone, without the citing
paper's abstract, the sentence alone."""


def train_model(
    ranker: Ranker,
    corpus: Corpus,
    settings: RankerSettings,
    run: TrainingRun,
    index_dir: str | Path | None = None,
) -> RankingModel:
    """Fit the model of a ranker that is not yet indexed.

    The cross-fitted measures are also written to metrics.json.
    """
    start = time.monotonic()
    ranker.open(corpus, index_dir)
    split = training_split(corpus, settings.split, settings.queries, run.seed)
    elsewhere = cited_elsewhere(corpus, corpus.split(split.name), split.contexts)
    lists = read_lists(ranker, Queries.from_contexts(corpus, split, elsewhere), settings.split)
    log.info(
        f"ranker: {len(lists):,} lists of {len(lists.papers) / len(lists):,.0f} candidates, "
        f"{len(lists.columns)} features"
    )
    scores = cross_fit(settings, lists, run.seed)
    model = RankingModel(fit_ranker(settings, lists), calibrate(lists, scores, run.seed))
    [measures] = measure(lists, scores).values()
    figures = ", ".join(f"{name} {value:.4f}" for name, value in measures.items())
    log.info(f"ranker: {settings.folds}-fold cross-fitting over citing papers: {figures}")
    metrics = {f"val/{name}": value for name, value in measures.items()}
    write_text(run.path / METRICS, json.dumps(metrics, indent=1) + "\n")
    log.info(f"ranker: trained in {time.monotonic() - start:.0f} s; output in {run.path}")
    about = {
        "data": corpus.name,
        "corpus": corpus.fingerprint,
        "parts": {name: part.name for name, part in ranker.all_parts.items()},
        "depth": ranker.depth,
        "settings": asdict(settings),
        "retriever": ranker.settings(),
        "seed": run.seed,
        "cross_fitted": measures,
        "seconds": round(time.monotonic() - start, 1),
        "hash": model.parameters_hash,
    }
    dense = first_dense(ranker.all_parts)
    return replace(model, about=about, dense=None if dense is None else dense.model)


def calibrate(lists: TrainingLists, scores: Floats, seed: int) -> Confidence:
    """Fit a confidence to scores [n] of models that were not fitted to these lists."""
    kept = without_cited(lists, seed)
    lists, scores = lists.keep(kept), scores[kept]
    # Also as questions, for which nothing is known to be cited elsewhere.
    asked = TrainingLists.concat([lists, lists.without_draft()])
    return fit_confidence(asked, np.tile(scores, 2))


Measures = Mapping[str, Mapping[str, float]]
"""Values of measures, by source of the lists and measure."""


@dataclass(frozen=True)
class Fitted:
    """A model, and measures of its cross-fitted scores by way of ranking; DRAFT: with what a draft tells."""

    model: RankingModel
    measures: Mapping[str, Measures]


def fit_networks(settings: RankerSettings, lists: TrainingLists, calibrated: Mask, seed: int) -> Fitted:
    """Fit what ranks without networks and with them to lists with their scores, of papers that all have been
    read.

    calibrated: lists [Q] of drafts, to which confidences are fitted.
    """
    bare, read = lists.without(*NETWORK, PAIR), lists.without(PAIR)
    model, of_read = fit_ranker(settings, bare), fit_ranker(settings, read)
    scores = {BARE: cross_fit(settings, bare, seed), READ: cross_fit(settings, read, seed)}
    first = _fit_rescoring(lists, scores[BARE], COSINE, DEPTH)
    scores[FIRST] = first.scores(lists, scores[BARE])
    ways, pairs = {BARE: bare, READ: lists, FIRST: first_read(first, lists, scores[BARE])}, {}
    for way, name in PAIRS.items() if PAIR in lists.columns else ():
        pairs[name] = _fit_rescoring(ways[way], scores[way], PAIR, PAIRS_DEPTH)
        scores[name], ways[name] = pairs[name].scores(ways[way], scores[way], PAIR), ways[way]
    last, of_query = PAIRS[READ] if pairs else READ, calibrated[lists.query]
    confidences = {
        way: calibrate(of_way.take(calibrated), scores[way][of_query], seed) for way, of_way in ways.items()
    }
    measures = {way: measure(lists, of_way) for way, of_way in scores.items()}
    drafts = ways[last].take(calibrated)
    measures[DRAFT] = measure(drafts, _cross_calibrated(settings, drafts, scores[last][of_query], seed))
    networks = NetworkModel(of_read, first, pairs, {way: confidences[way] for way in ways if way != BARE})
    return Fitted(RankingModel(model, confidences[BARE], networks=networks), measures)


def measure_read(
    settings: RankerSettings, lists: TrainingLists, calibrated: Mask, seed: int
) -> tuple[Measures, Measures]:
    """Return measures of cross-fitted scores where networks have read all papers: as questions and as drafts.

    Others as in `fit_networks`, of the calibrated lists alone.
    """
    scores = cross_fit(settings, lists.without(PAIR), seed)[calibrated[lists.query]]
    lists = lists.take(calibrated)
    if PAIR in lists.columns:
        scores = _fit_rescoring(lists, scores, PAIR, PAIRS_DEPTH).scores(lists, scores, PAIR)
    return measure(lists, scores), measure(lists, _cross_calibrated(settings, lists, scores, seed))


def _cross_calibrated(settings: RankerSettings, lists: TrainingLists, scores: Floats, seed: int) -> Floats:
    """Return probabilities [n] by confidences that were not fitted to the same citing papers."""
    fold, probabilities = folds_of(lists, settings.folds, seed), np.empty(len(scores), np.float32)
    for i in range(settings.folds):
        of_fold = (fold == i)[lists.query]
        confidence = calibrate(lists.take(fold != i), scores[~of_fold], seed)
        held_out = lists.take(fold == i)
        probabilities[of_fold] = confidence.log_probabilities(held_out, scores[of_fold])
    return probabilities


def measure_ways(model: RankingModel, lists: TrainingLists) -> dict[str, Measures]:
    """Return the measures of a model by way of ranking, over lists with the scores of its networks."""
    networks = model.networks
    assert networks is not None
    bare = model.model.scores(lists)
    ways = {
        BARE: (lists, bare, model.confidence),
        READ: (lists, networks.read.scores(lists), networks.confidences[READ]),
        FIRST: (
            first_read(networks.first, lists, bare),
            networks.first.scores(lists, bare),
            networks.confidences[FIRST],
        ),
    }
    for way, name in PAIRS.items():
        if name in networks.pairs:
            of_way, scores, _ = ways[way]
            ways[name] = of_way, networks.pairs[name].scores(of_way, scores, PAIR), networks.confidences[name]
    measures = {way: measure(of_way, scores) for way, (of_way, scores, _) in ways.items()}
    of_way, scores, confidence = ways[PAIRS[READ] if networks.pairs else READ]
    return {**measures, DRAFT: measure(of_way, confidence.log_probabilities(of_way, scores))}


def first_read(first: Rescoring, lists: TrainingLists, scores: Floats) -> TrainingLists:
    """Return the lists as they are where only the first papers by scores [n] have been read."""
    seen, unread = lists.values.copy(), np.ones(len(scores), np.bool_)
    unread[np.concatenate(first.first(lists, scores))] = False
    for name in (column for column in NETWORK if column in lists.columns):
        rows = unread if name == COSINE else slice(None)
        seen[rows, list(lists.columns).index(name)] = np.nan
    return replace(lists, values=seen)


def _fit_rescoring(lists: TrainingLists, scores: Floats, column: str, depth: int) -> Rescoring:
    """Fit the weight of a column for the first papers by scores [n], and the scale of these, which tell
    less where more is known."""
    from scipy.optimize import minimize  # not needed to rank

    first = np.zeros(len(scores), np.bool_)
    first[np.concatenate(Rescoring(depth, 0.0).first(lists, scores))] = True
    first &= np.isfinite(lists.column(column))
    some = np.add.reduceat(first, lists.offsets[:-1]) > 0
    lists, scores, first = lists.take(some), scores[some[lists.query]], first[some[lists.query]]
    head, of_head = lists.keep(first), scores[first]
    useful = head.useful
    head, of_head = head.take(useful), of_head[useful[head.query]]
    starts, values = head.offsets[:-1], centre(head.only([column]))[0][:, 0]
    target = head.cited / np.add.reduceat(head.cited, starts, dtype=np.float32)[head.query]

    def loss(factors: NDArray[np.float64]) -> float:
        logits = factors[0] * of_head + factors[1] * values
        highest = np.maximum.reduceat(logits, starts)
        total = np.log(np.add.reduceat(np.exp(logits - highest[head.query]), starts)) + highest
        return float(total.sum() - target @ logits)

    scale, weight = minimize(loss, np.array([1.0, 0.0]), method="Nelder-Mead").x.tolist()
    return Rescoring(depth, weight / scale)


def training_split(corpus: Corpus, name: str, queries: int | None, seed: int) -> Split:
    """Return the contexts to train on, a sample if the split has more than `queries`."""
    split = corpus.split(name)
    if not len(split):
        raise InputError(f"model.split={name}: corpus {corpus.name} has no contexts in this split")
    if queries is None or len(split) <= queries:
        return split
    rows = np.sort(np.random.default_rng(seed).permutation(len(split))[:queries])
    return split.take(rows)


def read_lists(
    ranker: Ranker,
    queries: Queries,
    source: str,
    asked_as: Sequence[int] = (WHOLE,),
    pairs: bool = False,
) -> TrainingLists:
    """Build the lists of queries with their positives, as in a search.

    source: where the queries are from. asked_as: the kinds of query that take turns.
    pairs: with the cross-encoder's scores (PAIR).
    """
    assert queries.positives is not None
    kinds = np.resize(asked_as, len(queries))
    order, parts = np.argsort(kinds, kind="stable"), list[TrainingLists]()
    with count_progress("ranker: reading lists", len(queries)) as advance:
        for kind in np.unique(kinds).tolist():
            rows = np.flatnonzero(kinds == kind)
            for start in range(0, len(rows), QUERIES):
                asked = _as_asked(queries[rows[start : start + QUERIES]], kind)
                parts.append(_read_asked(ranker, asked, source, pairs))
                advance(len(asked))
    return TrainingLists.concat(parts).take(np.argsort(order))


def _read_asked(ranker: Ranker, asked: Queries, source: str, pairs: bool) -> TrainingLists:
    assert asked.positives is not None
    papers = ranker.merge_candidates(ranker.prefetch(asked, ranker.depth))
    lists, mask = ranker.lists(asked, papers)
    if pairs:
        lists = ranker.with_pairs(asked, papers[mask], lists, DEPTH)
    return TrainingLists(
        lists.columns,
        lists.values.astype(np.float16),
        lists.offsets,
        papers=papers[mask],
        cited=is_listed(papers, asked.positives)[mask],
        citing=asked.citing,
        count=asked.positives.lengths,
        source=np.full(len(asked), source),
    )


def _as_asked(queries: Queries, kind: int) -> Queries:
    """Return queries of one kind."""
    if kind == SENTENCE:
        sentences = queries.sentences()
        queries = replace(queries.with_context(sentences.fields["context"]), new_words=sentences.new_words)
    if kind in (CONTEXT, SENTENCE):
        alone = keep_fields(queries.with_context(queries.fields["context"]), "context", *SURROUNDINGS)
        return replace(alone, years=np.zeros_like(queries.years))
    return keep_fields(queries, "context", *SURROUNDINGS, "title") if kind == WITH_TITLE else queries


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
    made.fingerprint = f"{corpus.fingerprint}-{hashlib.blake2b(which.tobytes(), digest_size=8).hexdigest()}"
    made.abstracts = _Blanked(corpus.abstracts, which)
    lengths = np.where(which, 0, tokens.lengths)
    made.abstract_tokens = Ragged(tokens.values[~np.repeat(which, tokens.lengths)], offsets_of(lengths))
    return made
