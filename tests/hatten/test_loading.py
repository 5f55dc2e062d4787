"""What a loader's workers hold of a corpus: the places of its files, and a few numbers a paper or context."""

from __future__ import annotations

import multiprocessing
import pickle
import tracemalloc

import numpy as np
import pytest

from datasets.corpus import Corpus
from datasets.generate import generate_corpus
from datasets.prepare import open_corpus
from hatten.batches import Batches
from hatten.documents import DocumentReader, Vocabulary
from hatten.settings import EncoderBatchSettings

STEPS = 30
SIZES = (1500, 6000)


@pytest.fixture(scope="module")
def corpora(tmp_path_factory: pytest.TempPathFactory) -> list[Corpus]:
    """A generated corpus, and one four times as large."""
    folder = tmp_path_factory.mktemp("sizes")
    for papers in SIZES:
        generate_corpus(papers, 2 * papers, folder / str(papers), seed=0, workers=1)
    return [open_corpus(folder / str(papers), cache_dir=folder / "cache") for papers in SIZES]


def batches_of(corpus: Corpus) -> Batches:
    reader = DocumentReader(corpus, Vocabulary([word for word in corpus.words[:2000] if word.isalnum()]), 512)
    config = EncoderBatchSettings(queries=16, steps_per_round=STEPS)
    return Batches(reader, corpus.split("train"), None, config, seed=0, round=0)


def read_all(pickled: bytes) -> tuple[int, int, int]:
    """In a process of its own: bytes that it holds after all batches and at most, and words that it read."""
    tracemalloc.start()
    batches: Batches = pickle.loads(pickled)
    words = 0
    for step in range(len(batches)):
        batch = batches[step]
        words += len(batch.queries.paragraphs.values) + len(batch.cited.paragraphs.values)
    return *tracemalloc.get_traced_memory(), words


def test_a_corpus_is_pickled_as_its_place_and_batches_without_texts(corpora: list[Corpus]) -> None:
    for corpus in corpora:
        assert len(pickle.dumps(corpus)) < 1000
        pickled = pickle.dumps(batches_of(corpus))
        texts = [corpus.titles[0], corpus.abstracts[0][:40], corpus.context_ids[0], *corpus.words[500:520]]
        assert not [text for text in texts if text.encode() in pickled]


@pytest.mark.slow
def test_a_worker_holds_a_few_numbers_a_paper_and_no_texts(corpora: list[Corpus]) -> None:
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        found = pool.map(read_all, [pickle.dumps(batches_of(corpus)) for corpus in corpora])
    here = [read_all(pickle.dumps(batches_of(corpora[0])))[2]]
    tracemalloc.stop()
    assert here == [found[0][2]]
    stores = [sum(path.stat().st_size for path in corpus.path.iterdir()) for corpus in corpora]
    grown, (held, peak, _) = stores[1] - stores[0], np.subtract(found[1], found[0])
    assert grown > 8_000_000
    assert held < 0.1 * grown
    assert peak < 0.1 * grown
    assert max(peak for _, peak, _ in found) < 0.5 * stores[1]
