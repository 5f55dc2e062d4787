"""Fits the weights of full texts in the built-in ranker, and in its confidence, with all others fixed:

    python -m citerec.library.builtin.passages data=acl-scisumm-lcr texts=scisumm-corpus

data: a data set whose cited papers have full texts there. Its validation contexts are asked in libraries of
all these papers and in small ones, with and without abstracts, in which all, half or a fifth of the papers
have a full text. Prints how they are ranked before, and after with weights fitted to the other half of the
citing papers.

With report=true nothing is fitted: the test contexts are asked in the small libraries, with the whole
built-in model. Prints how they are ranked, and how sure the model is, without full texts and with them.
"""

from __future__ import annotations

import random
import xml.etree.ElementTree as ET
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from citerec.base.arguments import command
from citerec.base.errors import InputError
from citerec.base.settings import Settings, cache_setting
from citerec.datasets.columns import Ragged
from citerec.datasets.corpus import Corpus
from citerec.datasets.prepare import open_corpus
from citerec.formats.bibliography.paper import LibraryPaper
from citerec.library.evidence import FOLDER
from citerec.library.evidence.evidence import FullTexts, text_encoder
from citerec.library.evidence.index import update_index
from citerec.library.evidence.reading import ReadText, TextPart
from citerec.library.evidence.store import TextStore
from citerec.library.papers.library import Library
from citerec.library.papers.models import BUILT_IN
from citerec.rerank.ranker.confidence import TEXTS, TEXTS_SCALE, Confidence, without_cited
from citerec.rerank.ranker.features import PASSAGES
from citerec.rerank.ranker.linear import LinearModel, TrainingLists, fit_group, measure_variants, model_hash
from citerec.rerank.ranker.model import Ranker, RankingModel
from citerec.rerank.ranker.networks import READ
from citerec.rerank.ranker.training import read_lists
from citerec.rerank.settings import RankerSettings
from citerec.retrieval.queries import Queries, Query

Texts = dict[str, ReadText]
_LEFT_OUT = ("abstract", "references", "acknowledg", "bibliograph")
"""Beginnings of the titles of sections that are not read."""
SHARES = (1.0, 0.5, 0.2)
"""Shares of the papers that have a full text."""
SMALL, SMALL_LIBRARIES = 150, 5
"""Papers of a small library, and the number of these."""


@dataclass(frozen=True, kw_only=True)
class PassageSettings(Settings):
    """Fit the weights of full texts in the built-in ranker."""

    data: str
    """folder as in data=custom"""
    texts: str
    """folder with full texts NAME.xml in ScisummNet's format, NAME a paper of the data"""
    queries: int = 500
    """contexts asked in each library, or in the small ones together"""
    report: bool = False
    """report on the test contexts instead"""
    cache_dir: str = cache_setting()
    """cache for prepared data"""
    output: str = str(BUILT_IN)
    """folder of the built-in model"""


def fit(settings: PassageSettings) -> None:
    """Fit the weights of the built-in ranker, and save them."""
    options = {"candidates": "all", "field": "authors", "cache_dir": settings.cache_dir}
    corpus = open_corpus(dir=settings.data, splits=["test" if settings.report else "val"], **options)
    texts = read_texts(Path(settings.texts), corpus)
    model = RankingModel.open(Path(settings.output) / RankingModel.folder)
    if settings.report:
        _report(model, TrainingLists.concat(list(read_libraries(corpus, texts, None, settings.queries))))
        return
    halves = [
        TrainingLists.concat(list(read_libraries(corpus, texts, half, settings.queries // 2)))
        for half in (0, 1)
    ]
    both = TrainingLists.concat(halves)
    given, before = RankerSettings(), _without_own(model.model)
    fitted = [fit_group(given, useful(half), before, PASSAGES) for half in halves]
    scores = np.concatenate([one.scores(half) for one, half in zip(fitted[::-1], halves, strict=True)])
    _compare(measure_variants(both, before.scores(both)), measure_variants(both, scores))
    kept = without_cited(both, 0)
    confidence = model.confidence.fit_texts(both.keep(kept), scores[kept])
    whole = fit_group(given, useful(both), before, PASSAGES)
    weights = {name: weight for name, weight in whole.weights.items() if _is_own(name) and weight}
    deviations = {name: one for name, one in whole.deviations.items() if _is_own(name)}
    sure = {name: confidence.parameters[name] for name in (TEXTS, TEXTS_SCALE)}
    for name, value in {**weights, **sure}.items():
        print(f"  {name} {value:.3f}")
    _add(Path(settings.output) / RankingModel.folder, weights, deviations, sure)


def _report(model: RankingModel, lists: TrainingLists) -> None:
    """Print what full texts change where the networks have read all papers."""
    networks = model.networks
    assert networks is not None
    read, confidence = networks.read, networks.confidences[READ]
    without = lists.drop_group(PASSAGES)
    print(f"{len(lists):,} contexts, without texts -> with them")
    _compare(measure_variants(lists, read.scores(without)), measure_variants(lists, read.scores(lists)))
    for name, own in (("without", without), ("with", lists)):
        for variant in dict.fromkeys(lists.variant.tolist()):
            part = own.take(own.variant == variant)
            starts = part.offsets[:-1]
            sure = np.exp(confidence.log_probabilities(part, read.scores(part)).astype(np.float64))
            best = np.maximum.reduceat(sure, starts)
            right = np.logical_or.reduceat(part.cited & (sure == best[part.query]), starts)
            of_cited = np.add.reduceat(np.where(part.cited, sure, 0), starts)
            loss, shown = -np.log(np.maximum(of_cited, 1e-9)).mean(), best >= 0.5
            about = f"sure {best.mean():.3f}, right {right.mean():.3f}, log loss {loss:.3f}"
            print(
                f"{variant:18} {name:8} {about}; at least .5 sure {shown.mean():.3f}, "
                f"of them right {right[shown].mean():.3f}"
            )


def _is_own(name: str) -> bool:
    return name.rpartition(" ")[2].startswith("passage_")


def _without_own(model: LinearModel) -> LinearModel:
    """Return a model without the weights that are to be fitted."""
    weights, deviations = (
        {name: value for name, value in of.items() if not _is_own(name)}
        for of in (model.weights, model.deviations)
    )
    return LinearModel(weights, deviations)


def _compare(before: dict[str, dict[str, float]], after: dict[str, dict[str, float]]) -> None:
    for variant, old in before.items():
        parts = [
            f"{name} {old[key]:.3f} -> {after[variant][key]:.3f}"
            for name, key in (("R@10", "recall@10"), ("MRR", "mrr"))
        ]
        print(f"{variant:24} {', '.join(parts)}")


def _add(
    place: Path, weights: dict[str, float], deviations: dict[str, float], sure: dict[str, float]
) -> None:
    """Put the parameters of full texts into a saved ranker, in place of any that it has."""
    saved = RankingModel.open(place)

    def with_own(model: LinearModel) -> LinearModel:
        others = _without_own(model)
        return LinearModel({**others.weights, **weights}, {**others.deviations, **deviations})

    def with_sure(confidence: Confidence) -> Confidence:
        return Confidence({**confidence.parameters, **sure})

    whole, confidence, networks = with_own(saved.model), with_sure(saved.confidence), saved.networks
    if networks is not None:
        confidences = {name: with_sure(one) for name, one in networks.confidences.items()}
        networks = replace(networks, read=with_own(networks.read), confidences=confidences)
    about = {**saved.about, "hash": model_hash(whole, confidence.parameters)}
    RankingModel(whole, confidence, about, networks=networks).save(place)


def useful(lists: TrainingLists) -> TrainingLists:
    """Return the lists with a cited paper."""
    return lists.take(np.bincount(lists.query[lists.cited], minlength=len(lists)) > 0)


def read_texts(folder: Path, corpus: Corpus) -> Texts:
    """Return the full texts of papers of a corpus, by id."""
    found: Texts = {}
    for path in sorted(folder.rglob("*.xml")):
        if corpus.has_paper(path.stem) and path.stem not in found:
            try:
                sections = ET.parse(path).iter("SECTION")
            except ET.ParseError:
                continue
            parts = [
                TextPart(text, [(0, 1)], title)
                for section in sections
                if not (title := section.get("title", "")).strip().lower().startswith(_LEFT_OUT)
                and (text := " ".join(" ".join(one.text or "" for one in section.findall("S")).split()))
            ]
            if parts:
                found[path.stem] = ReadText(parts=parts, pages=1)
    if not found:
        raise InputError(f"texts={folder}: has no NAME.xml of a paper of {corpus.name}")
    return found


def read_libraries(corpus: Corpus, texts: Texts, half: int | None, count: int) -> Iterator[TrainingLists]:
    """Yield the lists of contexts of every other citing paper in each library.

    half: which citing papers; None: all, in small libraries alone, with what the networks make of the papers.
    """
    rows = [corpus.paper_row(name) for name in texts]
    draw = random.Random(half or 0)
    for has_abstracts in (True, False):
        kind = "abstracts" if has_abstracts else "titles"
        named = [(rows, count, share, f"{kind}, {share:.0%} texts") for share in SHARES]
        few = count // SMALL_LIBRARIES
        small = [random.Random(number).sample(rows, SMALL) for number in range(SMALL_LIBRARIES)]
        for own, size, share, name in [
            *(named if half is not None else ()),
            *((own, few, 0.5, f"{kind}, small") for own in small),
        ]:
            yield from _read_library(corpus, texts, own, half, size, has_abstracts, share, name, draw)


def _read_library(
    corpus: Corpus,
    texts: Texts,
    rows: Sequence[int],
    half: int | None,
    count: int,
    has_abstracts: bool,
    share: float,
    name: str,
    draw: random.Random,
) -> Iterator[TrainingLists]:
    inside = set(rows)
    [split] = corpus.splits
    val = corpus.split(split)
    asked = [
        (context, [row for row in cited.tolist() if row in inside])
        for context, cited in zip(val.contexts.tolist(), val.positives, strict=True)
        if half is None or corpus.citing[context] % 2 == half
    ]
    asked = [one for one in asked if one[1]]
    asked = draw.sample(asked, min(count, len(asked)))
    if not asked:
        return
    papers = [
        LibraryPaper(
            corpus.paper_ids[row],
            title=corpus.titles[row],
            abstract=corpus.abstracts[row] if has_abstracts else "",
            year=int(corpus.years[row]),
        )
        for row in rows
        if corpus.titles[row]
    ]
    with TemporaryDirectory() as folder:
        library = Library.create(Path(folder) / "library", papers)
        ranker = library.retriever
        assert isinstance(ranker, Ranker)
        encoder = text_encoder(ranker)
        store = TextStore(library.path / FOLDER, create=True)
        own = [paper.id for paper in papers if draw.random() < share]
        store.put((one, 0, 0, texts[one]) for one in own)
        store.set_papers({one: one for one in own}, {})
        update_index(library.path / FOLDER, store, encoder)
        ranker.passages = FullTexts.open(library.path, library.corpus, encoder)
        if half is None and ranker.encoder is not None:
            ranker.encoder.encode_missing()
        queries = replace(
            Queries.from_list(library.corpus, [_query(corpus, library.corpus, one) for one, _ in asked]),
            positives=Ragged.from_rows(
                [[library.corpus.paper_row(corpus.paper_ids[row]) for row in cited] for _, cited in asked]
            ),
        )
        yield read_lists(ranker, queries, name)
        store.close()


def _query(corpus: Corpus, library: Corpus, context: int) -> Query:
    """Return a context as a query, without the paper that it is from."""
    row = int(corpus.citing[context])
    own = corpus.paper_ids[row]
    return Query(
        corpus.context_texts[context],
        corpus.titles[row],
        corpus.abstracts[row],
        own=own if library.has_paper(own) else None,
        year=int(corpus.years[row]),
    )


main = command("library.builtin.passages", PassageSettings, fit)

if __name__ == "__main__":
    main()
