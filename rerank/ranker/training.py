"""Training a ranker: the lists that its models are fitted to, and what is fitted to them."""

from __future__ import annotations

import copy
import hashlib
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from citerec.base.errors import InputError
from citerec.base.progress import count_progress
from citerec.datasets.columns import Ragged, offsets_of
from citerec.datasets.corpus import Corpus, Split
from citerec.rerank.ranker.confidence import Confidence, fit_confidence, fit_curve, without_cited
from citerec.rerank.ranker.corpus_statistics import keep_fields
from citerec.rerank.ranker.features import DRAFT, NETWORK, is_listed
from citerec.rerank.ranker.linear import (
    LinearModel,
    TrainingLists,
    centre,
    cross_fit,
    fit_ranker,
    folds_of,
    measure,
    minimise,
)
from citerec.rerank.ranker.networks import (
    BARE,
    COSINE,
    FIRST,
    PAIR,
    PAIRS,
    READ,
    NetworkModel,
    Rescoring,
)
from citerec.rerank.settings import RankerSettings
from citerec.retrieval.arrays import Floats, Mask
from citerec.retrieval.queries import Queries

log = logging.getLogger(__name__)

WRITTEN = "drafts written so far"
"""Source of lists of drafts where only the text and the citations before the mark are known."""
QUERIES = 32
"""Queries read at a time."""
DENSE = "dense"
"""Column of the dense retriever."""
DEPTH = 30
"""Papers that an encoder reads for a question."""
PAIRS_DEPTH = 24
"""Papers that a cross-encoder reads; more gain nothing."""
WHOLE, CONTEXT, WITH_TITLE, SENTENCE = range(4)
"""How a query is asked: with all that is known of the citing paper, the context alone, without the citing
paper's abstract, the sentence alone."""


def calibrate(settings: RankerSettings, lists: TrainingLists, scores: Floats, seed: int) -> Confidence:
    """Fit a confidence to scores [n] of models that were not fitted to these lists.

    Lists of drafts WRITTEN so far are asked as drafts, others as questions, for which nothing is known to be
    cited elsewhere; without the former, all are asked both ways. The curve is fitted to lists of other citing
    papers (settings.folds).
    """
    written = lists.source == WRITTEN
    rows = (written, ~written) if written.any() else (~written, ~written)
    lists_asked = TrainingLists.concat([lists.take(rows[0]), lists.take(rows[1]).without_draft()])
    scores = np.concatenate([scores[row[lists.query]] for row in rows])
    kept, fold = without_cited(lists_asked, seed), folds_of(lists_asked, settings.folds, seed)

    def fit(chosen: Mask) -> Confidence:
        places = chosen[lists_asked.query]
        return fit_confidence(lists_asked.take(chosen).keep(kept[places]), scores[places & kept])

    logs = np.empty_like(scores)
    for i in range(settings.folds):
        places = (fold == i)[lists_asked.query]
        logs[places] = fit(fold != i).log_probabilities(lists_asked.take(fold == i), scores[places])
    return fit_curve(fit(fold >= 0), lists_asked, logs)


Measures = Mapping[str, Mapping[str, float]]
"""Values of measures, by source of the lists and measure."""


@dataclass(frozen=True)
class Fitted:
    """The parts of a model, and measures of its cross-fitted scores by way of ranking; DRAFT: with what a
    draft tells."""

    model: LinearModel
    confidence: Confidence
    networks: NetworkModel
    measures: Mapping[str, Measures]


def fit_networks(settings: RankerSettings, lists: TrainingLists, calibrated: Mask, seed: int) -> Fitted:
    """Fit the models that rank without networks and with them, to lists with the networks' scores, for which
    all papers have been read.

    calibrated: lists [Q] of drafts, to which confidences are fitted. Nothing else is fitted to those WRITTEN
    so far (drafts would gain .003 R@10, papers with full texts lose .028).
    """
    without, read, fitted = lists.without(*NETWORK, PAIR), _with_networks(lists), lists.source != WRITTEN
    scores = cross_fit(settings, without, seed, fitted), cross_fit(settings, read, seed, fitted)
    part, of_part = lists.take(fitted), fitted[lists.query]
    first = _fit_rescoring(part, scores[0][of_part], COSINE, DEPTH)
    pairs = _fit_rescoring(part, scores[1][of_part], PAIR, PAIRS_DEPTH) if PAIR in lists.columns else None
    networks = NetworkModel(fit_ranker(settings, read.take(fitted)), first, pairs)
    ways = _by_way(networks, lists, *scores)
    of_query = calibrated[lists.query]
    chosen = {way: (part.take(calibrated), values[of_query]) for way, (part, values) in ways.items()}
    sure = {way: calibrate(settings, *part, seed) for way, part in chosen.items()}
    measures = {way: measure(lists, values) for way, (_, values) in ways.items()}
    drafts, last = [*chosen.values()][-1]
    measures[DRAFT] = measure(drafts, _cross_calibrated(settings, drafts, last, seed), sure=True)
    networks = replace(networks, confidences={way: sure[way] for way in ways if way != BARE})
    return Fitted(fit_ranker(settings, without.take(fitted)), sure[BARE], networks, measures)


def _with_networks(lists: TrainingLists) -> TrainingLists:
    """Lists for the linear model with networks. The dense retriever has seen the data sets, which raises its
    weight: without it, drafts of part `fit` gain .009 R@10 with `ask`, .001 with `draft`."""
    return lists.without(PAIR, DENSE)


def measure_read(
    settings: RankerSettings, lists: TrainingLists, calibrated: Mask, seed: int
) -> tuple[Measures, Measures]:
    """Return measures of cross-fitted scores where networks have read all papers: as questions and as drafts.

    Other arguments as in `fit_networks`; only the calibrated lists are measured.
    """
    fitted = lists.source != WRITTEN
    scores = cross_fit(settings, _with_networks(lists), seed, fitted)[calibrated[lists.query]]
    lists, fitted = lists.take(calibrated), fitted[calibrated]
    if PAIR in lists.columns:
        pairs = _fit_rescoring(lists.take(fitted), scores[fitted[lists.query]], PAIR, PAIRS_DEPTH)
        scores = pairs.scores(lists, scores, PAIR)
    return measure(lists, scores), measure(lists, _cross_calibrated(settings, lists, scores, seed))


def _cross_calibrated(settings: RankerSettings, lists: TrainingLists, scores: Floats, seed: int) -> Floats:
    """Return probabilities [n] by confidences that were not fitted to the same citing papers."""
    fold, probabilities = folds_of(lists, settings.folds, seed), np.empty(len(scores), np.float32)
    for i in range(settings.folds):
        of_fold = (fold == i)[lists.query]
        confidence = calibrate(settings, lists.take(fold != i), scores[~of_fold], seed)
        held_out = lists.take(fold == i)
        probabilities[of_fold] = confidence.log_probabilities(held_out, scores[of_fold])
    return probabilities


def measure_ways(fitted: Fitted, lists: TrainingLists) -> dict[str, Measures]:
    """Return the measures of a model by way of ranking, over lists with the scores of its networks."""
    networks = fitted.networks
    ways = _by_way(networks, lists, fitted.model.scores(lists), networks.read.scores(lists))
    sure = {BARE: fitted.confidence, **networks.confidences}
    measures = {
        way: measure(part, sure[way].log_probabilities(part.without_draft(), scores), sure=True)
        for way, (part, scores) in ways.items()
    }
    way, (part, scores) = [*ways.items()][-1]
    return {**measures, DRAFT: measure(part, sure[way].log_probabilities(part, scores), sure=True)}


def _by_way(
    networks: NetworkModel, lists: TrainingLists, bare: Floats, read: Floats
) -> dict[str, tuple[TrainingLists, Floats]]:
    """Return the lists and scores [n] of each way of ranking, best last; bare, read: scores by the linear
    models."""
    without = lists.without(*NETWORK, PAIR)
    first = first_read(networks.first, lists.without(PAIR), bare)
    ways = {
        BARE: (without, bare),
        FIRST: (first, networks.first.scores(lists, bare)),
        READ: (lists.without(PAIR), read),
    }
    return (
        ways if networks.pairs is None else {**ways, PAIRS: (lists, networks.pairs.scores(lists, read, PAIR))}
    )


def first_read(first: Rescoring, lists: TrainingLists, scores: Floats) -> TrainingLists:
    """Return the lists as they are where only the first papers by scores [n] have been read."""
    seen, unread = lists.values.copy(), np.ones(len(scores), np.bool_)
    unread[np.concatenate(first.first(lists, scores))] = False
    for name in (column for column in NETWORK if column in lists.columns):
        rows = unread if name == COSINE else slice(None)
        seen[rows, list(lists.columns).index(name)] = np.nan
    return replace(lists, values=seen)


def _fit_rescoring(lists: TrainingLists, scores: Floats, column: str, depth: int) -> Rescoring:
    """Fit the weight of a column for the first papers by scores [n], and the scale of these scores, which
    tell less where more is known."""
    read = np.zeros(len(scores), np.bool_)
    read[np.concatenate(Rescoring(depth, 0.0).first(lists, scores))] = True
    read &= np.isfinite(lists.column(column))
    useful = np.logical_or.reduceat(read & lists.cited, lists.offsets[:-1])
    read &= useful[lists.query]
    head = lists.take(useful).keep(read[useful[lists.query]])
    values = np.stack([scores[read], centre(head.only([column]))[0][:, 0]], axis=1)
    scale, weight = minimise(values, head.offsets, head.cited, 0.0).tolist()
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
    ranker: Any,
    queries: Queries,
    source: str,
    asked_as: Sequence[int] = (WHOLE,),
    pairs: bool = False,
) -> TrainingLists:
    """Build the lists of queries with their positives, as in a search.

    ranker: a rerank.ranker.model.Ranker. source: where the queries are from. asked_as: the kinds of query
    that take turns. pairs: with the cross-encoder's scores (PAIR).
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


def _read_asked(ranker: Any, asked: Queries, source: str, pairs: bool) -> TrainingLists:
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
        alone = keep_fields(queries.with_context(queries.fields["context"]), "context", "section")
        return replace(alone, years=np.zeros_like(queries.years))
    return keep_fields(queries, "context", "section", "title") if kind == WITH_TITLE else queries


def without_abstracts(corpus: Corpus) -> Corpus:
    """Return the corpus without the abstracts of papers, except for those without a title."""
    made, tokens, empty = copy.copy(corpus), corpus.abstract_tokens, corpus.title_tokens.lengths > 0
    made.fingerprint = f"{corpus.fingerprint}-{hashlib.blake2b(empty.tobytes(), digest_size=8).hexdigest()}"
    made.abstracts = ["" if none else text for none, text in zip(empty, corpus.abstracts, strict=True)]
    lengths = np.where(empty, 0, tokens.lengths)
    made.abstract_tokens = Ragged(tokens.values[~np.repeat(empty, tokens.lengths)], offsets_of(lengths))
    return made
