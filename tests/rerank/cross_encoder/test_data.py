"""Training data of rerankers: prefetching, lists and steps."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

import citerec.rerank.cross_encoder.data
from citerec.base.errors import InputError
from citerec.datasets.columns import Ragged
from citerec.datasets.corpus import Corpus, Split
from citerec.rerank.cross_encoder.data import (
    ListBatch,
    Prefetched,
    Prefetcher,
    QueryOrder,
    RerankData,
    TrainingLists,
    draw_negatives,
)
from citerec.rerank.cross_encoder.network import CrossEncoder
from citerec.rerank.cross_encoder.pairs import PairReader
from citerec.rerank.settings import NegativesSettings, StepSettings
from citerec.retrieval.lexical.bm25 import BM25
from citerec.retrieval.queries import Queries
from citerec.retrieval.run import CachedRun, Run
from citerec.training.processes import Share

RANKED = np.array([40, 7, 3, 12, 9, 30, 1, 2, -1, -1], np.int32)


class Watched(BM25):
    """BM25 that records its queries."""

    def __init__(self, **options: float) -> None:
        super().__init__(**options)  # type: ignore[arg-type]
        self.asked: list[int] = []

    def _search(self, queries: Queries, k: int, allowed: object) -> object:  # type: ignore[override]
        self.asked += queries.contexts.tolist()
        return super()._search(queries, k, allowed)  # type: ignore[arg-type]


def test_queries_are_searched_once_and_only_missing_shards_again(
    demo_corpus: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(citerec.rerank.cross_encoder.data, "SHARD", 5)
    contexts = demo_corpus.split("train").contexts[:23]
    retriever = Watched()
    found = Prefetcher(retriever, demo_corpus, tmp_path)(contexts, 9, "queries")
    expected = retriever.search(contexts, 9).papers
    np.testing.assert_array_equal(found.to_array(), expected)
    assert len(found) == 23
    np.testing.assert_array_equal(np.stack([found[row] for row in range(23)]), expected)

    for name in ("10.npy", "20.npy"):  # as after a kill: three of five shards exist
        (tmp_path / Prefetcher(retriever, demo_corpus, tmp_path).key(contexts, 9) / name).unlink()
    again = Watched()
    found = Prefetcher(again, demo_corpus, tmp_path)(contexts, 9, "queries")
    assert again.asked == [*contexts[10:15], *contexts[20:]]
    np.testing.assert_array_equal(found.to_array(), expected)

    third = Watched()
    monkeypatch.setattr(third, "index", None)  # must not be called
    np.testing.assert_array_equal(
        Prefetcher(third, demo_corpus, tmp_path)(contexts, 9, "").to_array(), expected
    )


def test_the_cache_key_depends_on_settings_contexts_depth_and_corpus(
    demo_corpus: Corpus, tiny_corpus: Corpus, tmp_path: Path
) -> None:
    contexts = demo_corpus.split("train").contexts[:23]

    def key(corpus: Corpus = demo_corpus, of: Any = contexts, depth: int = 9, **options: Any) -> str:
        return Prefetcher(BM25(**options), corpus, tmp_path).key(of, depth)

    others = [key(k1=1.5), key(query=["title"]), key(depth=8), key(of=contexts[1:]), key(corpus=tiny_corpus)]
    assert len({key(), *others}) == 6 and key() == key()
    prefetched = Prefetcher(BM25(), tiny_corpus, tmp_path)(tiny_corpus.split("train").contexts, 12, "queries")
    assert prefetched.to_array().shape[1] == 11, "all candidates"


def test_a_run_covers_only_its_queries(demo_corpus: Corpus, tmp_path: Path) -> None:
    split, bm25 = demo_corpus.split("train"), BM25().index(demo_corpus)
    asked = split.contexts[3:40:4]
    ids = [demo_corpus.context_ids[row] for row in asked]
    Run(ids, demo_corpus.paper_ids, bm25.search(asked, 20)).write(tmp_path / "run.trec")
    prefetcher = Prefetcher(CachedRun(tmp_path / "run.trec"), demo_corpus, tmp_path / "candidates")
    np.testing.assert_array_equal(prefetcher.covers(split.contexts), np.isin(split.contexts, asked))
    np.testing.assert_array_equal(prefetcher(asked, 10, "queries").to_array(), bm25.search(asked, 10).papers)
    assert Prefetcher(bm25, demo_corpus, tmp_path).covers(split.contexts).all()


def test_sampling_is_uniform() -> None:
    barred, rng = np.array([7, 99]), np.random.default_rng(0)
    drawn = np.stack([draw_negatives(RANKED, barred, 3, 0.0, rng) for query in range(4000)])
    papers, counts = np.unique(drawn, return_counts=True)
    assert papers.tolist() == [1, 2, 3, 9, 12, 30, 40]
    np.testing.assert_allclose(counts / 4000, 3 / 7, atol=0.03)


@given(st.integers(1, 30), st.integers(1, 40), st.integers(1, 4), st.integers(0, 3))
def test_no_query_repeats_before_all_were_drawn(size: int, per_epoch: int, epochs: int, seed: int) -> None:
    rows = np.arange(100, 100 + size)
    queries = QueryOrder.sample(rows, per_epoch, epochs, seed)
    length = min(per_epoch, size)
    assert len(queries.rows) == length * epochs
    np.testing.assert_array_equal(queries.epochs, np.repeat(np.arange(epochs), length))
    for first in range(0, len(queries.rows), size):
        one_pass = queries.rows[first : first + size]
        assert len(set(one_pass)) == len(one_pass) and set(one_pass) <= set(rows)
    again = QueryOrder.sample(rows, per_epoch, epochs + 1, seed)
    np.testing.assert_array_equal(again.rows[: len(queries.rows)], queries.rows)


@pytest.fixture(scope="module")
def reader(demo_corpus: Corpus, make_encoder: Callable[..., CrossEncoder]) -> PairReader:
    encoder = make_encoder()
    return PairReader(demo_corpus, encoder.tokenizer, encoder.config)


Make = Callable[..., TrainingLists]


def ranked_for(row: int) -> NDArray[np.int32]:
    return np.random.default_rng(row).permutation(120)[:8].astype(np.int32)


@pytest.fixture
def lists(demo_corpus: Corpus, reader: PairReader, tmp_path: Path) -> Make:
    """Return a function that makes lists over a split, by default with 8 random papers per query."""

    def make(
        batch: StepSettings | None = None,
        negatives: NegativesSettings | None = None,
        split: Split | None = None,
        found: NDArray[np.int32] | None = None,
        per_epoch: int = 21,
        top: bool = False,
    ) -> TrainingLists:
        split, batch = split or demo_corpus.split("train"), batch or StepSettings(4, tokens=150)
        queries = QueryOrder.sample(np.arange(len(split)), per_epoch, 2, 0)
        if found is None:
            found = np.stack([ranked_for(row) for row in np.unique(queries.rows)])
        np.save(tmp_path / "found.npy", found)
        prefetched = Prefetched([tmp_path / "found.npy"])
        negatives = negatives or NegativesSettings(3, 8)
        return TrainingLists(reader, split, queries, prefetched, batch, negatives, 0, top)

    return make


def subwords(pairs: tuple[torch.Tensor, ...]) -> list[tuple[int, ...]]:
    return [tuple(ids[mask == 1].tolist()) for ids, mask in zip(pairs[0], pairs[2], strict=True)]


def content(lists: ListBatch) -> list[list[tuple[int, ...]]]:
    """Return the subwords of each query's pairs, in the order of its list."""
    rows = [ids for chunk in lists.chunks for ids in subwords(chunk)]
    pairs = dict(zip(lists.positions.tolist(), rows, strict=True))
    assert len(pairs) == len(rows)
    there, width = lists.mask, lists.mask.shape[1]
    return [
        [pairs[query * width + place] for place in range(width) if there[query, place]]
        for query in range(len(there))
    ]


def test_lists_hold_the_cited_paper_and_sampled_negatives(
    lists: Make, reader: PairReader, demo_corpus: Corpus
) -> None:
    made, split = lists(), demo_corpus.split("train")
    assert len(made) == 42 // 4
    found = content(made[5])  # spans the end of one epoch and the start of the next
    rows, epochs = made.queries.rows[20:24], made.queries.epochs[20:24]
    assert epochs.tolist() == [0, 1, 1, 1]
    for row, epoch, pairs in zip(rows.tolist(), epochs.tolist(), found, strict=True):
        context = split.contexts[row]
        barred = np.append(split.positives[row], demo_corpus.citing[context])
        papers = made.papers(row, epoch)
        assert papers[0] == split.positives[row][0] and len(set(papers.tolist())) == 4
        assert set(papers[1:].tolist()) <= set(ranked_for(row).tolist()) - set(barred.tolist())
        assert pairs == subwords(reader.pairs(np.repeat(context, len(papers)), papers).padded())


def test_items_do_not_depend_on_earlier_reads_and_chunks_are_small(lists: Make) -> None:
    one, other = lists(), lists()
    for item in (3, 0, 9):
        one[item]
    for mine, theirs in zip(one[7].chunks, other[7].chunks, strict=True):
        assert all(torch.equal(a, b) for a, b in zip(mine, theirs, strict=True))
    chunks = one[2].chunks
    assert len(chunks) > 2
    assert all(ids.numel() <= 150 or len(ids) == 1 for ids, _, _ in chunks)
    assert len(lists(StepSettings(4, tokens=10_000))[2].chunks) == 1


def test_processes_share_the_queries_of_a_step(lists: Make) -> None:
    whole, shares = content(lists()[1]), []
    for rank in range(3):
        made = lists()
        made.share = Share(rank, 3)
        shares += content(made[1])
    assert len(whole) == 4 and shares == whole


def test_neither_cited_nor_citing_papers_are_negatives(lists: Make, demo_corpus: Corpus) -> None:
    given = demo_corpus.split("train")
    cited = Ragged.from_rows([[one[0], (one[0] + 1) % 120] for one in given.positives])
    split = Split("train", given.contexts, cited)
    found = np.arange(60, dtype=np.int32)[None].repeat(len(split), 0)
    made = lists(None, NegativesSettings(60, 60), split, found, len(split))
    for item in range(0, len(made), 9):
        rows, sizes = made.queries.rows[item * 4 : item * 4 + 4], made[item].mask.sum(1)
        for row, size in zip(rows.tolist(), sizes.tolist(), strict=True):
            barred = {*cited[row].tolist(), int(demo_corpus.citing[split.contexts[row]])}
            assert size == 1 + 60 - len(barred & set(range(60)))


def test_top_lists_are_the_prefetched_papers_with_labels(
    lists: Make, reader: PairReader, demo_corpus: Corpus
) -> None:
    """Nogueira et al. 2020, section 4.2: no paper is dropped or added, and each has its own label."""
    given = demo_corpus.split("train")
    found = np.stack([np.random.default_rng(row).permutation(120)[:6] for row in range(len(given))])
    cited = [[papers[0], papers[3]] if row % 3 == 0 else [119] for row, papers in enumerate(found)]
    found[found == 119] = 118
    found[5, 4:] = found[7] = -1
    split = Split("train", given.contexts, Ragged.from_rows(cited))
    negatives = NegativesSettings(depth=6)
    made = lists(StepSettings(4), negatives, split, found.astype(np.int32), len(given), top=True)
    rows = made.queries.rows
    assert 7 not in rows and {0, 5} <= set(rows.tolist())
    for item in range(10):
        part = made[item]
        shown = content(part)
        for place, row in enumerate(rows[item * 4 : item * 4 + 4].tolist()):
            there = found[row] >= 0
            np.testing.assert_array_equal(part.mask[place], there)
            np.testing.assert_array_equal(part.relevant[place], np.isin(found[row], cited[row]) & there)
            pairs = reader.pairs(np.repeat(split.contexts[row], there.sum()), found[row][there])
            assert shown[place] == subwords(pairs.padded())


def test_queries_without_candidates_are_skipped_with_a_warning(
    lists: Make, caplog: pytest.LogCaptureFixture
) -> None:
    found = np.arange(200, 208, dtype=np.int32)[None].repeat(21, 0) % 120
    found[::3] = -1
    found[1, 2:] = -1
    made = lists(found=np.concatenate([found, found]))
    assert len(np.unique(made.queries.rows)) == len(made.queries.rows) == 28
    assert "2 have fewer candidates than model.negatives.count=3; 14 have none" in caplog.text
    with pytest.raises(InputError, match="none of 42 training queries has candidates for its list"):
        lists(found=np.full((42, 8), -1, np.int32))


def test_rounds_cover_the_steps(lists: Make) -> None:
    data = RerankData(lists(StepSettings(2, 3)), every=3, seed=0)
    assert (data.steps, data.rounds) == (7, 3)
    assert len(data.train_dataloader()) == 9  # backward passes
    data = RerankData(lists(StepSettings(2, 3)), every=100, seed=0)
    assert (data.every, data.rounds) == (7, 1)
    with pytest.raises(InputError, match=r"42 training queries do not fill a step \(60\)"):
        RerankData(lists(StepSettings(30, 2)), every=4, seed=0)
