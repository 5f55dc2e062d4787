"""Training a ranker: the lists that its models are fitted to.

One model is fitted to the lists of all variants of a corpus (`variants`), so that it ranks libraries with
and without training contexts, abstracts and a dense model of their field.
"""

from __future__ import annotations

import copy
import json
import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from citerec.base.errors import InputError
from citerec.base.files import write_text
from citerec.base.progress import count_progress
from citerec.datasets.columns import offsets_of
from citerec.datasets.corpus import Corpus, Split
from citerec.datasets.records import TARGET_MARKER, TRAIN
from citerec.hatten.trained import trained_retriever
from citerec.rerank.ranker.confidence import BESIDE_ENCODER, Confidence, fit_confidence, without_cited
from citerec.rerank.ranker.corpus_statistics import keep_fields
from citerec.rerank.ranker.features import is_listed
from citerec.rerank.ranker.linear import (
    DRAFT,
    LinearModel,
    TrainingLists,
    centre,
    cross_fit,
    fit_ranker,
    measure_variants,
    model_hash,
)
from citerec.rerank.ranker.networks import (
    COSINE,
    FIRST,
    PAIR,
    PAIRS,
    READ,
    TITLE,
    NetworkModel,
    Rescoring,
)
from citerec.rerank.ranker.variants import small_libraries, with_contexts, without_abstracts
from citerec.rerank.settings import RankerSettings
from citerec.retrieval.arrays import Floats
from citerec.retrieval.encoders.article import ArticleRetriever, SentenceRetriever
from citerec.retrieval.passages import cited_elsewhere
from citerec.retrieval.queries import SURROUNDINGS, Queries, QueryField
from citerec.training.loop import TrainingRun
from citerec.training.rounds import METRICS

if TYPE_CHECKING:
    from citerec.rerank.ranker.model import Ranker

log = logging.getLogger(__name__)

QUERIES = 32
"""Queries read at a time."""
SMALL = "small"
"""Variant of small libraries."""
DEPTH = 30
"""Papers that an encoder reads for a question."""
PAIRS_DEPTH = 24
"""Papers that a cross-encoder reads; more gain nothing (library/builtin/README.md)."""
FEW = (50, 500, 5000)
"""Training contexts of the variants with few of them."""


def train_model(
    ranker: Ranker,
    corpus: Corpus,
    settings: RankerSettings,
    run: TrainingRun,
    index_dir: str | Path | None = None,
) -> tuple[LinearModel, Confidence, dict[str, Any]]:
    """Fit the model of a ranker that is not yet indexed; returns it, its confidence and how it was trained.

    The measures are also written to metrics.json.
    """
    start = time.monotonic()
    lists = read_variants(ranker, corpus, settings, run.seed, index_dir)
    model, confidence, found = fit_calibrated(settings, lists, run.seed)
    for variant, measures in found.items():
        log.info(
            f"ranker: {variant}: {settings.folds}-fold cross-fitting over citing papers: "
            f"{_format_measures(measures)}"
        )
    all_measures = {
        f"{variant}/{measure}": value for variant, of in found.items() for measure, value in of.items()
    }
    first = f"{lists.variant[0]}/"
    metrics = {f"val/{name.removeprefix(first)}": value for name, value in all_measures.items()}
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
        "cross_fitted": all_measures,
        "seconds": round(time.monotonic() - start, 1),
        "hash": model_hash(model, confidence.parameters),
    }
    return model, confidence, about


def fit_calibrated(
    settings: RankerSettings,
    lists: TrainingLists,
    seed: int,
    calibrated_on: str = SMALL,
    start: LinearModel | None = None,
) -> tuple[LinearModel, Confidence, dict[str, dict[str, float]]]:
    """Fit a model, and its confidence to cross-fitted scores of the variants that end in `calibrated_on`, if
    there are any; also return the measures of all cross-fitted scores (`measure_variants`).

    start: see `rerank.ranker.linear.fit_ranker`.
    """
    scores = cross_fit(settings, lists, seed, start)
    confidence = calibrate(lists, scores, seed, calibrated_on)
    return fit_ranker(settings, lists, start), confidence, measure_variants(lists, scores)


def calibrate(lists: TrainingLists, scores: Floats, seed: int, variants: str) -> Confidence:
    """Fit a confidence to scores [n] of the variants that end in `variants`; none without such lists."""
    chosen = np.char.endswith(lists.variant, variants)
    if not chosen.any():
        return Confidence()
    libraries, of_libraries = lists.take(chosen), scores[chosen[lists.query]]
    kept = without_cited(libraries, seed)
    libraries, of_libraries = libraries.keep(kept), of_libraries[kept]
    # Also as questions, for which nothing is known to be cited elsewhere.
    asked = TrainingLists.concat([libraries, libraries.drop_group(DRAFT)])
    return fit_confidence(asked, np.tile(of_libraries, 2))


def fit_networks(
    settings: RankerSettings, lists: TrainingLists, base: LinearModel, seed: int, calibrated_on: str
) -> tuple[NetworkModel, dict[str, dict[str, float]]]:
    """Fit what ranks with an encoder to lists with its cosines, of papers that all have been read.

    base: the model without it, whose weights are kept where the lists do not speak against them.
    calibrated_on: the variants to which confidences are fitted end in this.
    Also returns the measures of cross-fitted scores.
    """
    read, confidence, measures = fit_calibrated(settings, lists, seed, calibrated_on, base)
    scores = base.scores(lists)
    found = _fit_rescoring(lists, scores, COSINE, DEPTH)
    rescored, seen = found.scores(lists, scores), _first_read(found, lists, scores)
    confidences = {READ: confidence, FIRST: calibrate(seen, rescored, seed, calibrated_on)}
    measures |= {f"{name}, {FIRST}": one for name, one in measure_variants(lists, rescored).items()}
    return NetworkModel(read, found, confidences=confidences), measures


def fit_pairs(
    settings: RankerSettings,
    lists: TrainingLists,
    model: NetworkModel,
    base: LinearModel,
    seed: int,
    calibrated_on: str,
) -> tuple[NetworkModel, dict[str, dict[str, float]]]:
    """Fit what a cross-encoder adds to both rankings of the model of `fit_networks`, to lists with its scores
    (PAIR).

    Others as in `fit_networks`; where all papers have been read, scores are cross-fitted over these lists.
    """
    features = lists.only([column for column in lists.columns if column != PAIR])
    read, without = cross_fit(settings, features, seed, base), base.scores(lists)
    first, seen = model.first.scores(lists, without), _first_read(model.first, lists, without)
    confidences, found = dict(model.confidences), dict[str, Rescoring]()
    measures = dict[str, dict[str, float]]()
    for way, of_way, scores in ((READ, lists, read), (FIRST, seen, first)):
        name = PAIRS[way]
        pairs = found[name] = _fit_rescoring(of_way, scores, PAIR, PAIRS_DEPTH)
        rescored = pairs.scores(of_way, scores, PAIR)
        confidences[name] = calibrate(of_way, rescored, seed, calibrated_on)
        for label, of in ((way, scores), (name, rescored)):
            measures |= {f"{variant}, {label}": one for variant, one in measure_variants(lists, of).items()}
    return replace(model, pairs=found, confidences=confidences), measures


def _first_read(first: Rescoring, lists: TrainingLists, scores: Floats) -> TrainingLists:
    """The lists as they are where only the first papers by scores [n] have been read."""
    seen, unread = lists.values.copy(), np.ones(len(scores), np.bool_)
    unread[np.concatenate(first.first(lists, scores))] = False
    seen[unread, list(lists.columns).index(COSINE)] = np.nan
    for name in (TITLE, BESIDE_ENCODER):
        if name in lists.columns:
            seen[:, list(lists.columns).index(name)] = np.nan
    return replace(lists, values=seen)


def _fit_rescoring(lists: TrainingLists, scores: Floats, column: str, depth: int) -> Rescoring:
    """Fit the weight of a column for the first papers by scores [n], and the scale of these, which tell
    less where more is known."""
    from scipy.optimize import minimize  # not needed to rank

    first = np.zeros(len(scores), np.bool_)
    first[np.concatenate(Rescoring(depth, 0.0).first(lists, scores))] = True
    head, of_head = lists.keep(first), scores[first]
    useful = np.add.reduceat(head.cited, head.offsets[:-1]) > 0
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


def _format_measures(figures: Mapping[str, float]) -> str:
    return ", ".join(f"{measure} {value:.4f}" for measure, value in figures.items())


def read_variants(
    ranker: Ranker,
    corpus: Corpus,
    settings: RankerSettings,
    seed: int,
    index_dir: str | Path | None = None,
) -> TrainingLists:
    """Read the lists of all variants of a corpus that a not yet indexed ranker builds.

    `corpus`: as it is; `contexts-N`: with N training contexts; those of `_without_contexts`; and all again as
    `other-...`, with the dense model of other corpora, if there is one.
    """
    new = copy.deepcopy(ranker)
    parts = _all_variants(ranker, corpus, settings, seed, index_dir)
    if settings.out_of_domain_checkpoint is not None:
        other = new.with_dense(trained_retriever(settings.out_of_domain_checkpoint))
        as_many = replace(settings, queries=settings.variant_queries)  # of `corpus` as of other variants
        found = TrainingLists.concat(_all_variants(other, corpus, as_many, seed))
        parts.append(replace(found, variant=np.char.add("other-", found.variant)))
    return TrainingLists.concat(parts)


def _all_variants(
    ranker: Ranker,
    corpus: Corpus,
    settings: RankerSettings,
    seed: int,
    index_dir: str | Path | None = None,
) -> list[TrainingLists]:
    new, parts = copy.deepcopy(ranker), []
    train = corpus.splits.get(TRAIN)
    rng = np.random.default_rng(seed)
    if train is not None and len(train):
        ranker.open(corpus, index_dir)
        parts.append(_read_variant(ranker, corpus, "corpus", settings, seed, settings.queries))
        bare = _index(new, with_contexts(corpus, None), corpus)
        for few in (few for few in FEW if few < len(train)):
            one = copy.copy(bare)
            one.shared = bare
            one.index(with_contexts(corpus, train.take(np.sort(rng.permutation(len(train))[:few]))))
            name = f"contexts-{few}"
            parts.append(_read_variant(one, corpus, name, settings, seed, settings.variant_queries))
    return parts + _without_contexts(new, corpus, settings, seed)


def _without_contexts(
    ranker: Ranker, corpus: Corpus, settings: RankerSettings, seed: int
) -> list[TrainingLists]:
    """Read the lists of the variants without training contexts: those of `_papers`; `half`, `titles`: with
    half of the abstracts, or none; `small`: small libraries."""
    parts, papers = _papers(ranker, corpus, settings, seed), with_contexts(corpus, None)
    half = np.random.default_rng(seed).random(len(papers.paper_ids)) < 0.5
    for name, without in (("half", half), ("titles", np.ones_like(half))):
        one = _index(ranker, without_abstracts(papers, without), corpus)
        parts.append(_read_variant(one, corpus, name, settings, seed, settings.variant_queries))
    return parts + (_small(ranker, corpus, settings, seed) if settings.small_queries else [])


def _papers(ranker: Ranker, corpus: Corpus, settings: RankerSettings, seed: int) -> list[TrainingLists]:
    """Read the lists of `papers`: all papers, without training contexts; and of `names`: with contexts that
    keep the names of authors, if the corpus has a split SPLIT_named."""
    one, named = _index(ranker, with_contexts(corpus, None), corpus), f"{settings.split}_named"
    parts = [_read_variant(one, corpus, "papers", settings, seed, settings.variant_queries)]
    if named in corpus.splits:
        of_names = replace(settings, split=named)
        parts.append(_read_variant(one, corpus, "names", of_names, seed, settings.variant_queries))
    return parts


def _small(ranker: Ranker, corpus: Corpus, settings: RankerSettings, seed: int) -> list[TrainingLists]:
    splits, parts = [settings.split], []
    if f"{settings.split}_named" in corpus.splits:
        splits.append(f"{settings.split}_named")
    for split in splits:
        sample = training_split(corpus, split, settings.small_queries // len(splits), seed)
        for library, contexts in small_libraries(corpus, sample, seed):
            one = _index(ranker, library, corpus)
            elsewhere = cited_elsewhere(library, library.splits[contexts.name], contexts.contexts)
            asked = Queries.from_contexts(library, contexts, elsewhere)
            lists = read_lists(one, asked, "names" if split != settings.split else SMALL)
            citing, names = corpus.citing[contexts.contexts], np.full(len(lists), SMALL)
            parts.append(replace(lists, citing=citing, variant=names))
    log.info(f"ranker: {SMALL}: {sum(map(len, parts)):,} lists over {len(parts)} libraries")
    return parts


def _index(ranker: Ranker, variant: Corpus, corpus: Corpus) -> Ranker:
    """Index a variant of the corpus with a copy of a ranker that is not yet indexed."""
    one = copy.deepcopy(ranker)
    for part in one.all_parts.values():
        if (
            isinstance(part, ArticleRetriever | SentenceRetriever)
            and variant.fingerprint != corpus.fingerprint
        ):
            part.embeddings_dir = part.embeddings_dir and Path(part.embeddings_dir) / variant.fingerprint
    return one.index(variant)


def _read_variant(
    ranker: Ranker, corpus: Corpus, name: str, settings: RankerSettings, seed: int, queries: int | None
) -> TrainingLists:
    """Read the lists of a variant; corpus: as it is, with the split to train on."""
    split = training_split(corpus, settings.split, queries, seed)
    elsewhere = cited_elsewhere(corpus, corpus.split(split.name), split.contexts)
    lists = read_lists(ranker, Queries.from_contexts(ranker.corpus, split, elsewhere), name)
    log.info(
        f"ranker: {name}: {len(lists):,} lists of {len(lists.papers) / len(lists):,.0f} candidates, "
        f"{len(lists.columns)} features"
    )
    return lists


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
    variant: str = "corpus",
    asked_as: Sequence[int] = (),
    pairs: bool = False,
) -> TrainingLists:
    """Build the lists of queries with their positives, as in a search.

    asked_as: the kinds of query that take turns. By default, in variants other than `corpus`, a quarter of
    the queries lack the citing paper's abstract, and a quarter title, abstract, year and what surrounds the
    context, as questions of users do; in `names`, half have the cited paper's year before the mark.
    pairs: with the cross-encoder's scores (PAIR).
    """
    assert queries.positives is not None
    kinds = np.resize(asked_as, len(queries)) if asked_as else _kinds(len(queries), variant)
    order, parts = np.argsort(kinds, kind="stable"), list[tuple[NDArray[Any], ...]]()
    with count_progress("ranker: reading lists", len(queries)) as advance:
        for kind in np.unique(kinds).tolist():
            of_kind = np.flatnonzero(kinds == kind)
            for start in range(0, len(of_kind), QUERIES):
                asked = _as_asked(queries[of_kind[start : start + QUERIES]], kind)
                papers = ranker.merge_candidates(ranker.prefetch(asked, ranker.depth))
                lists, mask = ranker.lists(asked, papers)
                if pairs:
                    lists = ranker.with_pairs(asked, papers[mask], lists, DEPTH)
                assert asked.positives is not None
                cited = is_listed(papers, asked.positives)[mask]
                values = lists.values.astype(np.float16)
                parts.append((values, lists.familiar, papers[mask], cited, lists.lengths))
                advance(len(asked))
    values, familiar, papers, cited, lengths = (np.concatenate(part) for part in zip(*parts, strict=True))
    of_queries = queries.citing[order], queries.positives.lengths[order], np.full(len(queries), variant)
    found = TrainingLists(lists.columns, values, familiar, offsets_of(lengths), papers, cited, *of_queries)
    return found.take(np.argsort(order))


WHOLE, CONTEXT, WITH_TITLE, DATED, SENTENCE = 0, 1, 2, 4, 8
"""How a query is asked: with all that is known of the citing paper, the context alone, without the citing
paper's abstract; with the cited paper's year before the mark, added to these; the sentence alone."""


def _kinds(queries: int, variant: str) -> NDArray[np.int64]:
    """Return how queries are asked [Q]."""
    if variant == "corpus":
        return np.full(queries, WHOLE)
    kinds = np.resize([CONTEXT, WITH_TITLE, WHOLE, WHOLE], queries)
    return kinds + np.resize([0] * 4 + [DATED] * 4, queries) if variant == "names" else kinds


def _as_asked(queries: Queries, kind: int) -> Queries:
    """Return queries of one kind."""
    if kind & DATED:
        queries = _with_years(queries)
    if kind & SENTENCE:
        sentences = queries.sentences()
        queries = replace(queries.with_context(sentences.fields["context"]), new_words=sentences.new_words)
    if kind & (CONTEXT | SENTENCE):
        alone = keep_fields(queries.with_context(queries.fields["context"]), "context", *SURROUNDINGS)
        return replace(alone, years=np.zeros_like(queries.years))
    return keep_fields(queries, "context", *SURROUNDINGS, "title") if kind & WITH_TITLE else queries


def _with_years(queries: Queries) -> Queries:
    """Return the queries with the year of the first cited paper before the mark, where it is known."""
    field, years = queries.fields["context"], queries.corpus.years
    texts = []
    for text, cited in zip(queries.texts("context"), queries.positives or [], strict=True):
        year = int(years[cited[0]])
        texts.append(text.replace(TARGET_MARKER, f"{year} {TARGET_MARKER}") if year > 0 else text)
    dated = QueryField(texts, field.words.take(field.rows), np.arange(len(texts)))
    return queries.with_context(dated)
