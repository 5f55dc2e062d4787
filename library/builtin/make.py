"""Makes the built-in model (library/builtin/): python -m citerec.library.builtin.make static=... data=[...]

It consists of a static model compressed by hatten.static.compress, and of a ranker fitted to lists of all
data sets, also with dense models that were not trained on them, and of drafts over their authors'
bibliographies, to which its confidence is fitted, too. `make builtin` trains all of it.
"""

from __future__ import annotations

import copy
import logging
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from citerec.base.arguments import command
from citerec.base.errors import InputError
from citerec.base.progress import count_progress
from citerec.base.settings import Settings, cache_setting
from citerec.datasets.columns import Ragged
from citerec.datasets.prepare import open_corpus
from citerec.hatten.trained import open_static, static_retriever
from citerec.library.ask.candidates import Candidates
from citerec.library.ask.question import mark_query
from citerec.library.benchmark.collection import (
    MaskedDraft,
    find_drafts,
    questions,
    quiet,
    read_papers,
)
from citerec.library.drafts.suggest import citing_passages, known_papers, place_request
from citerec.library.papers.memory.library import MemoryLibrary
from citerec.library.papers.models import BUILT_IN
from citerec.rerank.ranker.linear import TrainingLists, model_hash
from citerec.rerank.ranker.model import Ranker, RankingModel
from citerec.rerank.ranker.training import fit_calibrated, read_lists, read_variants
from citerec.rerank.ranker.variants import without_abstracts
from citerec.rerank.settings import RankerSettings
from citerec.retrieval.base import folder_bytes
from citerec.retrieval.queries import Queries

log = logging.getLogger(__name__)

LARGEST = 12_000_000
"""Maximum size of the model without its networks, in bytes."""
SPLITS = ("train", "val", "val_named")
QUERIES, SMALL_QUERIES, DRAFT_QUERIES = 200, 1000, 40
"""Queries of each variant of a data set, of its small libraries, and of each draft."""
DRAFTS, TITLES = "drafts", "titles of drafts"
"""Variants of the ranker's lists."""
FIRST_DRAFT = 1 << 30
"""Stands for the first draft where lists have rows of citing papers."""


@dataclass(frozen=True, kw_only=True)
class BuiltInSettings(Settings):
    """Make the built-in model."""

    static: str
    """static model, written by hatten.static.compress (e.g. outputs/builtin/static)"""
    data: tuple[str, ...]
    """folders as in data=custom; contexts that keep names are read from SPLIT_named, if present"""
    others: tuple[str, ...]
    """static models trained without each data set (e.g. [outputs/without-a,outputs/without-b])"""
    drafts: str
    """folder of drafts (citerec data drafts list=library/builtin/drafts.yaml)"""
    cache_dir: str = cache_setting()
    """cache for prepared data"""
    output: str = str(BUILT_IN)
    """output folder"""


def make(settings: BuiltInSettings) -> None:
    """Fit the ranker, save both models and print their size."""
    if len(settings.others) != len(settings.data):
        raise InputError(f"others: has {len(settings.others)} models for {len(settings.data)} data sets")
    folder, static = Path(settings.output), open_static(settings.static)
    given = RankerSettings(queries=QUERIES, variant_queries=QUERIES, small_queries=SMALL_QUERIES, folds=2)
    parts, corpora = [], {}
    for path, other in zip(settings.data, settings.others, strict=True):
        named = [split for split in SPLITS if (Path(path) / f"{split}.json").is_file()]
        options = {"candidates": "all", "field": "authors", "cache_dir": settings.cache_dir}
        corpus = open_corpus(dir=path, splits=named, **options)
        ranker = Ranker.over(static_retriever(settings.static))
        parts.append(read_variants(ranker, corpus, replace(given, out_of_domain_checkpoint=other), 0))
        corpora[corpus.name] = corpus.fingerprint
    ranker = Ranker.over(static_retriever(settings.static))
    lists = TrainingLists.concat(parts + read_drafts(ranker, settings.drafts))
    model, confidence, _ = fit_calibrated(given, lists, 0, DRAFTS)
    about = {
        "data": ", ".join([*corpora, DRAFTS]),
        "corpus": ", ".join(corpora.values()),
        "split": given.split,
        "lists": len(lists),
        "queries": [QUERIES, SMALL_QUERIES, DRAFT_QUERIES],
        "hash": model_hash(model, confidence.parameters),
    }
    static.save(folder / static.folder)
    RankingModel(model, confidence, about).save(folder / RankingModel.folder)
    size = folder_bytes(folder / static.folder) + folder_bytes(folder / RankingModel.folder)
    print(f"{folder}: {size / 1e6:.1f} MB, {len(static.vocabulary):,} words")
    if size > LARGEST:
        raise InputError(f"{folder}: more than {LARGEST / 1e6:.0f} MB; compress the model to fewer words")


def read_drafts(
    ranker: Ranker,
    folder: str,
    part: str = "",
    asked_as: Sequence[int] = (),
    queries: int = DRAFT_QUERIES,
    pairs: bool = False,
) -> list[TrainingLists]:
    """Read the lists of `queries` masked citations at most of each draft, over its author's bibliography
    and over the same without abstracts.

    part: of the list of drafts; "" for all. asked_as, pairs: as in rerank.ranker.training.read_lists.
    """
    drafts, left_out = find_drafts(Path(folder))
    drafts = [one for one in drafts if part in ("", one.part)]
    for line in left_out:
        log.warning("%s", line)
    parts: list[TrainingLists] = []
    with quiet(logging.ERROR), count_progress("reading drafts", len(drafts)) as advance:
        for number, one in enumerate(drafts):
            with TemporaryDirectory() as place:
                read_papers(one.bibs, Path(place) / "library")
                library = MemoryLibrary.open(Path(place) / "library")
                # Cross-fitting keeps the lists of a draft together.
                parts += [
                    replace(lists, citing=np.full(len(lists), FIRST_DRAFT + number, np.int32))
                    for lists in _read_draft(ranker, one, library, asked_as, queries, pairs)
                ]
            advance(1)
    return parts


def _read_draft(
    ranker: Ranker, one: MaskedDraft, library: Candidates, asked_as: Sequence[int], most: int, pairs: bool
) -> Iterator[TrainingLists]:
    """Yield the lists of a draft's citations over both libraries of `read_drafts`, without papers that the
    same sentence cites, as in `citerec draft`."""
    known, own = known_papers(one.draft, library)
    asked = questions(one.draft, known)
    asked = random.Random(one.name).sample(asked, min(len(asked), most))
    passages, row_of = citing_passages(one.draft, known), library.corpus.paper_row
    requests, positives, beside = [], [], []
    for question in asked:
        elsewhere = {key: known[key] for key in question.known}
        request = place_request(one.draft, question.place, elsewhere, own, passages)
        requests.append(mark_query(request.query))
        positives.append([row_of(known[key]) for key in question.targets.values()])
        beside.append({row_of(paper) for paper in request.filters.exclude})
    titles = without_abstracts(library.corpus, np.ones(len(library), np.bool_))
    for corpus, variant in ((library.corpus, DRAFTS), (titles, TITLES)):
        over = copy.deepcopy(ranker).index(corpus)
        queries = replace(Queries.from_list(corpus, requests), positives=Ragged.from_rows(positives))
        lists = read_lists(over, queries, variant, asked_as, pairs)
        rows = zip(lists.query.tolist(), lists.papers.tolist(), strict=True)
        offered = np.array([paper not in beside[query] for query, paper in rows], np.bool_)
        yield lists.keep(offered | lists.cited)


main = command("library.builtin.make", BuiltInSettings, make)

if __name__ == "__main__":
    main()
