"""Training batches: the queries of a round, papers and their levels, memory of worker processes."""

from __future__ import annotations

import pickle
import threading
import tracemalloc
from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from torch.utils.data import Dataset

from citerec.datasets.corpus import Corpus
from citerec.datasets.generate import generate_corpus
from citerec.datasets.prepare import open_corpus
from citerec.hatten.documents import DocumentReader, Vocabulary
from citerec.hatten.settings import EncoderBatchSettings, HAttenSettings
from citerec.hatten.training.batches import Batch, Batches, Pool, TrainingData
from citerec.hatten.training.losses import CITED, EXCLUDED, OTHER, OTHER_QUERY, RELEVANT, InfoNCE
from citerec.tests.hatten.made import random_model, read_all
from citerec.tests.runs import FORKS
from citerec.training.loop import make_loader

CONFIG = EncoderBatchSettings(queries=8, mined=3, random=2, contexts_per_paper=1, steps_per_round=12)


class RecordingReader(DocumentReader):
    """Records the rows that were read for the latest batch."""

    _parts: list[NDArray[np.int64]]

    def queries(self, contexts: Any) -> Any:
        self.contexts, self._parts = contexts, []
        return super().queries(contexts)

    def papers(self, rows: Any) -> Any:
        self._parts.append(rows)
        return super().papers(rows)

    @property
    def paper_rows(self) -> NDArray[np.int64]:
        return np.concatenate(self._parts)


@pytest.fixture(scope="module")
def reader(demo_corpus: Corpus) -> RecordingReader:
    return RecordingReader(demo_corpus, Vocabulary(demo_corpus.words), 32)


@pytest.fixture(scope="module")
def pool(demo_corpus: Corpus) -> Pool:
    """Ten papers for 3 of 4 training queries, neither cited nor citing; every third is relevant."""
    split, random = demo_corpus.split("train"), np.random.default_rng(0)
    papers = np.full((len(split), 10), -1, np.int32)
    for query, context in enumerate(split.contexts):
        excluded = {*split.positives[query].tolist(), int(demo_corpus.citing[context])}
        others = [row for row in np.flatnonzero(demo_corpus.is_candidate) if row not in excluded]
        papers[query] = random.choice(others, 10, replace=False)
    row = np.arange(len(split), dtype=np.int32)
    row[3::4] = -1
    return Pool(row, papers, np.broadcast_to(np.arange(10) % 3 == 0, papers.shape).copy())


def batches(
    reader: DocumentReader, pool: Pool | None, config: EncoderBatchSettings = CONFIG, **options: Any
) -> Batches:
    return Batches(reader, reader.corpus.split("train"), pool, config, **{"seed": 1, "round": 0, **options})


def same(batch: Batch, other: Batch) -> bool:
    """True if all arrays are equal."""
    return pickle.dumps(vars(batch)) == pickle.dumps(vars(other))


def test_levels_describe_the_relation_of_paper_and_query(reader: RecordingReader, pool: Pool) -> None:
    corpus, of_round = reader.corpus, batches(reader, pool)
    split = corpus.split("train")
    query_of = {int(context): query for query, context in enumerate(split.contexts)}
    seen: Counter[int] = Counter()
    for step in range(len(of_round)):
        batch = of_round[step]
        levels, rows = batch.levels, reader.paper_rows
        assert levels.shape == (8, len(rows)) and len(set(rows.tolist())) == len(rows)
        assert (levels[:, : len(batch.cited)] == CITED).any(0).all()
        assert not (levels[:, len(batch.cited) :] == CITED).any()
        for context, of_query in zip(reader.contexts, levels, strict=True):
            query = query_of[int(context)]
            citing, cited = corpus.citing[context], split.positives[query].tolist()
            mined = dict(zip(pool.papers[query].tolist(), pool.relevant[query].tolist(), strict=True))
            for paper, level in zip(reader.paper_rows, of_query, strict=True):
                assert (level == CITED) == (paper in cited)
                if paper not in cited:
                    assert (level == EXCLUDED) == (paper == citing)
                if level == RELEVANT:
                    assert mined[int(paper)]
            drawn = Counter(of_query.tolist())
            # three mined papers, some of which another query may cite
            assert pool.row[query] < 0 or drawn[RELEVANT] + drawn[OTHER] == 3
            seen.update(drawn)
    assert {CITED, EXCLUDED, RELEVANT, OTHER, OTHER_QUERY} == set(seen)


def test_papers_are_the_cited_and_mined_ones(reader: RecordingReader, pool: Pool) -> None:
    split = reader.corpus.split("train")
    for mined in (0, 10):
        of_round = batches(reader, pool, replace(CONFIG, mined=mined, random=0))
        for step in range(3):
            levels, queries = of_round[step].levels, of_round.rows(step)
            expected = {int(row) for q in queries for row in split.positives[q]}
            if mined:
                expected |= {int(row) for q in queries if pool.row[q] >= 0 for row in pool.papers[q]}
            assert sorted(reader.paper_rows.tolist()) == sorted(expected)
            assert (levels == CITED).any(0).all() == (mined == 0)
    before_mining = set(batches(reader, None)[0].levels.ravel().tolist())
    assert CITED in before_mining and not {RELEVANT, OTHER} & before_mining


@pytest.mark.parametrize("word_dropout", [0.0, 0.5])
def test_a_batch_does_not_depend_on_what_was_read_before(
    reader: RecordingReader, pool: Pool, word_dropout: float
) -> None:
    forwards, backwards = (batches(reader, pool, round=2, word_dropout=word_dropout) for _ in range(2))
    read = [forwards[step] for step in range(12)]
    for step in reversed(range(12)):
        assert same(backwards[step], read[step])
        assert not same(backwards[step], read[step - 1])
    assert not same(batches(reader, pool, round=3)[0], read[0])
    assert not same(batches(reader, pool, round=2, seed=2)[0], read[0])


@pytest.mark.parametrize("group", [1, 4])
def test_a_round_uses_only_the_queries_that_were_mined(
    reader: RecordingReader, pool: Pool, group: int
) -> None:
    config = replace(CONFIG, contexts_per_paper=group, steps_per_round=40)
    sampled = np.flatnonzero(pool.row >= 0)
    orders = [batches(reader, pool, config, round=number).order for number in (2, 2, 3)]
    assert len(orders[0]) == 320 and sorted(orders[0][: len(sampled)].tolist()) == sampled.tolist()
    assert set(orders[0][len(sampled) :].tolist()) <= set(sampled.tolist())
    assert np.array_equal(orders[0], orders[1]) and not np.array_equal(orders[0], orders[2])
    settings = HAttenSettings(batch=replace(config, steps_per_round=2))
    data = TrainingData(reader, settings, 1, random_model(["a"]).encoder)
    before = data.round_queries(3)
    data.pool = pool  # of another round: all queries can be sampled next
    assert np.array_equal(data.round_queries(3), before)
    only = Pool(np.full_like(pool.row, -1), pool.papers, pool.relevant)
    only.row[before] = np.arange(len(before))  # all queries of the round were mined: no change
    few = replace(config, steps_per_round=2)
    whole = batches(reader, None, few, round=3)
    assert np.array_equal(batches(reader, only, few, round=3).order, whole.order)


@pytest.mark.parametrize("group", [1, 4])
def test_every_query_occurs_once_per_epoch(reader: RecordingReader, group: int) -> None:
    split = reader.corpus.split("train")
    config = replace(CONFIG, contexts_per_paper=group, queries=7, steps_per_round=11)
    rounds = 1 + 2 * len(split) // 77
    order = np.concatenate([batches(reader, None, config, round=number).order for number in range(rounds)])
    first, second = (order[start : start + len(split)] for start in (0, len(split)))
    for item in (first, second):
        assert sorted(item.tolist()) == list(range(len(split)))
    assert not np.array_equal(first, second)
    assert all(len(batches(reader, None, config, round=number).order) == 77 for number in range(rounds))
    one_pass = batches(reader, None, replace(config, steps_per_round=0))
    assert len(one_pass) == -(-len(split) // 7)
    assert set(one_pass.order[: len(split)].tolist()) == set(range(len(split)))


def test_contexts_of_a_citing_paper_are_grouped(reader: RecordingReader) -> None:
    corpus, split = reader.corpus, reader.corpus.split("train")
    of_round = batches(reader, None, replace(CONFIG, contexts_per_paper=4, steps_per_round=0))
    citing = corpus.citing[split.contexts[of_round.order[: len(split)]]]
    changes = 1 + int((np.diff(citing) != 0).sum())
    groups = sum(-(-count // 4) for count in Counter(citing.tolist()).values())
    # Two groups of the same paper may be adjacent by chance, so there can be fewer changes than groups.
    assert groups * 0.7 < changes <= groups < len(split) / 2
    assert len(set(citing[:8].tolist())) <= 4


def test_log_rate_is_the_sampling_rate(reader: RecordingReader, pool: Pool) -> None:
    corpus, split = reader.corpus, reader.corpus.split("train")
    of_round = batches(reader, pool, replace(CONFIG, mined=1))
    rate = np.exp(of_round[0].log_rate)
    query = np.isin(split.contexts, reader.contexts)
    mined = {int(paper) for q in np.flatnonzero(query) for paper in pool.papers[q]}
    for paper, result in zip(reader.paper_rows, rate, strict=True):
        times = int((split.positives.values == paper).sum())
        expected = 8 * times / len(split.positives.values)
        expected += 2 * 8 / corpus.is_candidate.sum() if corpus.is_candidate[paper] else 0
        # A paper in a pool of ten may have been drawn from it.
        rates = [expected, expected + 0.1] if int(paper) in mined else [expected]
        assert any(result == pytest.approx(min(rate, 1.0), rel=1e-4) for rate in rates)
    assert (rate < 1.0).any()


def test_a_mined_paper_gets_its_share_of_the_gradient(reader: RecordingReader, pool: Pool) -> None:
    """At equal cosines, a mined paper counts as much as the ten papers of the pool it was drawn from."""
    bare = Pool(pool.row, pool.papers, np.zeros_like(pool.relevant))
    batch = batches(reader, bare, replace(CONFIG, mined=1, random=0))[0]
    similarity = torch.zeros(batch.levels.shape, requires_grad=True)
    levels, log_rate = torch.from_numpy(batch.levels), torch.from_numpy(batch.log_rate)
    InfoNCE()(similarity, levels, log_rate).backward()
    assert similarity.grad is not None
    negative = similarity.grad.clamp(min=0)
    shares = (negative * (levels == OTHER)).sum(1) / negative.sum(1)
    weight = torch.exp(-log_rate) * (levels >= OTHER)
    expected = (weight * (levels == OTHER)).sum(1) / weight.sum(1)
    torch.testing.assert_close(shares, expected)
    of_one = 1 / levels.shape[1]
    assert shares.mean() > of_one / 2, "about as much as any other paper of the batch"


@pytest.fixture(scope="module")
def corpora(tmp_path_factory: pytest.TempPathFactory) -> list[Corpus]:
    """Two generated corpora, the second four times as large."""
    folder = tmp_path_factory.mktemp("sizes")
    for papers in (1500, 6000):
        generate_corpus(papers, 2 * papers, folder / str(papers), seed=0)
    return [open_corpus(folder / str(papers), cache_dir=folder / "cache") for papers in (1500, 6000)]


def batches_of(corpus: Corpus) -> Batches:
    reader = DocumentReader(corpus, Vocabulary([word for word in corpus.words[:2000] if word.isalnum()]), 512)
    return batches(reader, None, EncoderBatchSettings(queries=16, steps_per_round=30))


def test_a_corpus_is_pickled_as_its_path_and_batches_without_texts(corpora: list[Corpus]) -> None:
    for corpus in corpora:
        assert len(pickle.dumps(corpus)) < 1000
        pickled = pickle.dumps(batches_of(corpus))
        texts = [corpus.titles[0], corpus.abstracts[0][:40], corpus.context_ids[0], *corpus.words[500:520]]
        assert not [text for text in texts if text.encode() in pickled]


@pytest.mark.slow
def test_a_worker_holds_a_few_numbers_per_paper_and_no_texts(corpora: list[Corpus]) -> None:
    with FORKS.Pool(1) as pool:
        result = pool.map(read_all, [pickle.dumps(batches_of(corpus)) for corpus in corpora])
    here = [read_all(pickle.dumps(batches_of(corpora[0])))[2]]
    tracemalloc.stop()
    assert here == [result[0][2]]
    stores = [sum(path.stat().st_size for path in corpus.path.iterdir()) for corpus in corpora]
    grown, (held, peak, _) = stores[1] - stores[0], np.subtract(result[1], result[0])
    assert grown > 8_000_000
    assert held < 0.1 * grown
    assert peak < 0.1 * grown
    assert max(peak for _, peak, _ in result) < 0.5 * stores[1]


class _Tokenised(Dataset[int]):
    """Batches that a tokeniser reads in parallel."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer

    def __len__(self) -> int:
        return 2

    def __getitem__(self, step: int) -> int:
        return len(self.tokenizer.encode_batch_fast(["a paper"] * 50))


def test_workers_do_not_wait_for_the_tokenisers_threads_of_their_parent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TOKENIZERS_PARALLELISM", "true")
    tokenizer = Tokenizer(WordLevel({"paper": 0, "?": 1}, unk_token="?"))
    tokenizer.encode_batch(["a paper"] * 1000)  # starts its threads
    result: list[int] = []
    loader = make_loader(_Tokenised(tokenizer), 1, 0)
    reading = threading.Thread(target=lambda: result.extend(loader), daemon=True)
    reading.start()
    reading.join(60)
    assert result == [50, 50]
