"""Which lists a reranker is trained on, step after step, in one process and in several."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from datasets.columns import Ragged
from datasets.corpus import Corpus, Split
from datasets.errors import InputError
from rerank.cross_encoder import CrossEncoder
from rerank.data import ListBatch, Listing, Prefetched, QueryOrder, RerankData, TopPapers, TrainingLists
from rerank.pairs import PairReader
from rerank.settings import NegativesSettings, PairSettings, StepSettings
from retrieval.encoder import ArticleConfig


@given(st.integers(1, 30), st.integers(1, 40), st.integers(1, 4), st.integers(0, 3))
def test_an_epoch_has_different_queries_and_none_comes_again_before_all_were_there(
    size: int, per_epoch: int, epochs: int, seed: int
) -> None:
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
def reader(demo_corpus: Corpus, tiny_bert: Path) -> PairReader:
    encoder = CrossEncoder.pretrained(ArticleConfig("tiny", path=str(tiny_bert)), PairSettings(max_tokens=64))
    return PairReader(demo_corpus, encoder.tokenizer, encoder.config)


Make = Callable[..., TrainingLists]


@pytest.fixture
def lists(demo_corpus: Corpus, reader: PairReader, tmp_path: Path) -> Make:
    """ListBatch over a split, every query with other prefetched papers (all of 8 a query by default)."""

    def make(
        batch: StepSettings | None = None,
        negatives: Listing | None = None,
        split: Split | None = None,
        found: NDArray[np.int32] | None = None,
        per_epoch: int = 21,
    ) -> TrainingLists:
        split = split or demo_corpus.split("train")
        queries = QueryOrder.sample(np.arange(len(split)), per_epoch, 2, 0)
        rows = np.unique(queries.rows)
        if found is None:
            found = np.stack([np.random.default_rng(row).permutation(120)[:8] for row in rows]).astype(
                np.int32
            )
        np.save(tmp_path / "found.npy", found)
        return TrainingLists(
            reader,
            split,
            queries,
            Prefetched([tmp_path / "found.npy"], len(found)),
            batch or StepSettings(4, tokens=150),
            negatives or NegativesSettings(3, 8),
            seed=0,
        )

    return make


def content(lists: ListBatch) -> list[list[tuple[int, ...]]]:
    """The subwords of each query's pairs, the cited paper's first."""
    pairs: dict[int, tuple[int, ...]] = {}
    rows = [(ids[mask == 1]) for chunk in lists.chunks for ids, mask in zip(chunk[0], chunk[2], strict=True)]
    for place, ids in zip(lists.place.tolist(), rows, strict=True):
        assert place not in pairs
        pairs[place] = tuple(ids.tolist())
    there, width = lists.there, lists.there.shape[1]
    return [
        [pairs[query * width + place] for place in range(width) if there[query, place]]
        for query in range(len(there))
    ]


def test_lists_hold_the_cited_paper_and_what_is_drawn(
    lists: Make, reader: PairReader, demo_corpus: Corpus
) -> None:
    made, split, negatives = lists(), demo_corpus.split("train"), NegativesSettings(3, 8)
    assert len(made) == 42 // 4
    found = content(made[5])  # its queries are of the end of one epoch and the start of the next
    rows, epochs = made.queries.rows[20:24], made.queries.epochs[20:24]
    assert epochs.tolist() == [0, 1, 1, 1]
    for row, epoch, pairs in zip(rows.tolist(), epochs.tolist(), found, strict=True):
        context = split.contexts[row]
        ranked = np.random.default_rng(row).permutation(120)[:8].astype(np.int32)
        barred = np.append(split.positives[row], demo_corpus.citing[context])
        drawn = negatives.draw(ranked, barred, 0, epoch, row)
        papers = np.append(split.positives[row][:1], drawn)
        expected = reader.pairs(np.repeat(context, len(papers)), papers)
        ids, _, mask = expected.padded()
        assert pairs == [tuple(line[there == 1].tolist()) for line, there in zip(ids, mask, strict=True)]


def test_an_item_is_the_same_whatever_was_read_before(lists: Make) -> None:
    one, other = lists(), lists()
    for item in (3, 0, 9):
        one[item]
    for mine, theirs in zip(one[7].chunks, other[7].chunks, strict=True):
        assert all(torch.equal(a, b) for a, b in zip(mine, theirs, strict=True))


def test_chunks_have_few_tokens_and_pairs_of_about_equal_length(lists: Make) -> None:
    chunks = lists(StepSettings(4, tokens=150))[2].chunks
    assert len(chunks) > 2
    assert all(ids.numel() <= 150 or len(ids) == 1 for ids, _, _ in chunks)
    assert len(lists(StepSettings(4, tokens=10_000))[2].chunks) == 1


def test_processes_share_the_queries_of_a_step(lists: Make) -> None:
    whole = content(lists()[1])
    shares = []
    for rank in range(2):
        made = lists()
        made.rank, made.processes = rank, 2
        shares.append(content(made[1]))
    assert [shares[query % 2][query // 2] for query in range(4)] == whole
    assert StepSettings(4).share(2) == 2
    with pytest.raises(InputError, match=r"queries=4: cannot be divided among 3 processes; .* multiple of 3"):
        StepSettings(4).share(3)


def test_no_cited_and_no_citing_paper_is_a_negative(lists: Make, demo_corpus: Corpus) -> None:
    given = demo_corpus.split("train")
    cited = Ragged.from_rows([[one[0], (one[0] + 1) % 120] for one in given.positives])
    split = Split("train", given.contexts, cited)
    found = np.arange(60, dtype=np.int32)[None].repeat(len(split), 0)
    made = lists(negatives=NegativesSettings(60, 60), split=split, found=found, per_epoch=len(split))
    for item in range(0, len(made), 9):
        sizes = made[item].there.sum(1)
        for row, size in zip(
            made.queries.rows[item * 4 : item * 4 + 4].tolist(), sizes.tolist(), strict=True
        ):
            barred = {*cited[row].tolist(), int(demo_corpus.citing[split.contexts[row]])}
            assert size == 1 + 60 - len(barred & set(range(60)))


def test_the_first_papers_are_listed_as_they_were_found(
    lists: Make, reader: PairReader, demo_corpus: Corpus
) -> None:
    """Nogueira et al. 2020, section 4.2: none is left out, none is added, each has its own label."""
    given = demo_corpus.split("train")
    found = np.stack([np.random.default_rng(row).permutation(120)[:6] for row in range(len(given))])
    cited = [[papers[0], papers[3]] if row % 3 == 0 else [119] for row, papers in enumerate(found)]
    found[found == 119] = 118
    found[5, 4:] = found[7] = -1
    split = Split("train", given.contexts, Ragged.from_rows(cited))
    made = lists(StepSettings(4), TopPapers(6), split, found.astype(np.int32), len(given))
    rows = made.queries.rows
    assert 7 not in rows and {0, 5} <= set(rows.tolist())
    shown = 0
    for item in range(min(len(made), 30)):
        part = made[item]
        for place, row in enumerate(rows[item * 4 : item * 4 + 4].tolist()):
            there = found[row] >= 0
            np.testing.assert_array_equal(part.there[place], there)
            np.testing.assert_array_equal(part.relevant[place], np.isin(found[row], cited[row]) & there)
            pairs = reader.pairs(np.repeat(split.contexts[row], there.sum()), found[row][there]).padded()
            expected = [tuple(ids[kept == 1].tolist()) for ids, kept in zip(pairs[0], pairs[2], strict=True)]
            assert content(part)[place] == expected
            shown += 1
    assert shown > 20
    papers = [(np.isin(found[row], cited[row]).sum(), (found[row] >= 0).sum()) for row in set(rows.tolist())]
    assert made.cited_share() == pytest.approx(sum(a for a, _ in papers) / sum(b for _, b in papers))


def test_queries_with_nothing_to_draw_are_left_out_with_a_warning(
    lists: Make, caplog: pytest.LogCaptureFixture
) -> None:
    found = np.arange(200, 208, dtype=np.int32)[None].repeat(21, 0) % 120
    found[::3] = -1
    found[1, 2:] = -1
    made = lists(found=np.concatenate([found, found]))
    rows = np.unique(made.queries.rows)
    assert len(rows) == 28 and len(made.queries.rows) == 28
    assert "of 42 training queries, 2 have fewer than" in caplog.text and "and 14 have none" in caplog.text
    with pytest.raises(InputError, match="for none of 42 training queries is there a paper to draw"):
        lists(found=np.full((42, 8), -1, np.int32))


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        (StepSettings(30, 2), r"42 training queries are fewer than a step takes \(60\)"),
        (StepSettings(2), "model.workers=1000: this machine has"),
    ],
)
def test_what_cannot_be_is_refused(lists: Make, batch: StepSettings, message: str) -> None:
    with pytest.raises(InputError, match=message):
        RerankData(lists(batch), every=4, seed=0, workers=1000)


def test_rounds_cover_the_steps(lists: Make) -> None:
    data = RerankData(lists(StepSettings(2, 3)), every=3, seed=0)
    assert (data.steps, data.rounds) == (7, 3)
    assert len(data.train_dataloader()) == 9  # backward passes
    data = RerankData(lists(StepSettings(2, 3)), every=100, seed=0)
    assert (data.every, data.rounds) == (7, 1)
