"""Indexes against brute force, exact search against the full product; saved indexes of dense retrievers."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from citerec.base.errors import InputError
from citerec.datasets.corpus import Corpus
from citerec.retrieval import dense
from citerec.retrieval.dense import DenseRetriever
from citerec.retrieval.indexes import cpu as cpu_index
from citerec.retrieval.indexes import gpu as gpu_index
from citerec.retrieval.indexes.cpu import CHUNK, FlatIndex, PaperIndex, load_faiss, nearest_in_numpy
from citerec.retrieval.indexes.gpu import FaissGPUIndex, TorchIndex
from citerec.retrieval.indexes.index import build_index, load_index, search_exact
from citerec.retrieval.queries import Queries
from citerec.retrieval.settings import IndexConfig
from citerec.retrieval.vectors import VectorTable

faiss = load_faiss()


@given(
    seed=st.integers(0, 2**32 - 1),
    queries=st.integers(0, 7),
    papers=st.integers(1, 30),
    dimensions=st.integers(1, 9),
    k=st.integers(1, 40),
    excluded=st.integers(0, 3),
    chunk=st.integers(1, 8),
    block=st.integers(1, 200),
)
def test_exact_search_matches_the_full_product(
    seed: int, queries: int, papers: int, dimensions: int, k: int, excluded: int, chunk: int, block: int
) -> None:
    rng = np.random.default_rng(seed)
    # Integers, so that products are exact and ties are real.
    q = rng.integers(-3, 4, (queries, dimensions)).astype(np.float32)
    p = rng.integers(-3, 4, (papers, dimensions)).astype(np.float32)
    exclude = rng.integers(-1, papers, (queries, excluded)).astype(np.int32)
    candidates = rng.random(papers) < 0.8
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cpu_index, "BLOCK", block)
        patch.setattr(cpu_index, "CHUNK", chunk)
        ranking = search_exact(q, p, k, exclude[:, 0] if excluded == 1 else exclude, candidates)

    assert ranking.papers.shape == ranking.scores.shape == (queries, k)
    for row in range(queries):
        scores = p @ q[row]
        allowed = [i for i in range(papers) if candidates[i] and i not in exclude[row].tolist()]
        expected = sorted(-scores[allowed])[:k]
        result = ranking.papers[row][ranking.papers[row] >= 0].tolist()
        assert len(set(result)) == len(result) == len(expected)
        assert set(result) <= set(allowed)
        # Scores are the best ones and belong to their papers, and ties are in row order.
        assert (
            ranking.scores[row][: len(result)].tolist() == [-s for s in expected] == scores[result].tolist()
        )
        assert result == [i for _, i in sorted((-scores[i], i) for i in result)]
        assert (ranking.papers[row][len(result) :] == -1).all()


N, DIM = 600, 12

CONFIGS = {
    "exact": IndexConfig("exact", device="cpu"),
    "half": IndexConfig("half", device="cpu"),
    "ivf": IndexConfig("ivf", lists=15, probes=2),
}

kinds = pytest.mark.parametrize("kind", CONFIGS)


def unit(vectors: NDArray[Any]) -> NDArray[np.float32]:
    return np.asarray(vectors / np.linalg.norm(vectors, axis=1, keepdims=True), np.float32)


@cache
def papers() -> NDArray[np.float32]:
    rng = np.random.default_rng(0)
    centres = rng.standard_normal((20, DIM))
    return unit(centres[rng.integers(0, 20, N)] + 0.5 * rng.standard_normal((N, DIM)))


def queries(count: int, seed: int = 1) -> NDArray[np.float32]:
    rng = np.random.default_rng(seed)
    return unit(papers()[rng.integers(0, N, count)] + 0.3 * rng.standard_normal((count, DIM)))


@cache
def built(kind: str) -> PaperIndex:
    return build_index(CONFIGS[kind], papers())


@cache
def held(kind: str) -> NDArray[np.float32]:
    """The vectors as stored by the index: float32, rounded or decoded."""
    if kind == "exact":
        return papers()
    return np.asarray(built(kind)._index.reconstruct_n(0, N))  # type: ignore[attr-defined]


def brute(
    vectors: NDArray[np.float32], query: NDArray[np.float32], allowed: NDArray[np.bool_], k: int
) -> Any:
    return np.sort(vectors[allowed] @ query)[::-1][:k]


@kinds
@given(
    seed=st.integers(0, 2**32 - 1),
    count=st.sampled_from([1, 3, 40]),
    k=st.sampled_from([1, 5, 60, N + 5]),
    passing=st.one_of(st.sampled_from([1, 2, N - 1, N]), st.integers(1, N)),
)
def test_filters_are_exact(kind: str, seed: int, count: int, k: int, passing: int) -> None:
    allowed = np.zeros(N, np.bool_)
    allowed[np.random.default_rng(seed).permutation(N)[:passing]] = True
    asked, vectors = queries(count, seed), held(kind)
    ranking = built(kind).search(asked, k, allowed)
    everything = built(kind).search(asked, k) if passing == N else ranking
    np.testing.assert_array_equal(ranking.papers, everything.papers)

    assert ranking.papers.shape == (count, k)
    depth = min(k, passing)
    assert (ranking.papers[:, depth:] == -1).all()
    for row, query in enumerate(asked):
        result = ranking.papers[row, :depth]
        assert allowed[result].all() and (result >= 0).all() and len(set(result.tolist())) == depth
        np.testing.assert_allclose(ranking.scores[row, :depth], vectors[result] @ query, atol=2e-6)
        if kind in ("exact", "half") or cpu_index.SLACK * k >= passing:  # nothing is approximate
            best = brute(vectors, query, allowed, depth)
            np.testing.assert_allclose(ranking.scores[row, :depth], best, atol=2e-6)


def test_approximate_search_finds_most_and_more_settings_find_more() -> None:
    few, asked = CONFIGS["ivf"], queries(200)
    best = search_exact(asked, held("ivf"), 5).papers
    recall = []
    for config in (few, replace(few, probes=8)):
        result = build_index(config, papers()).search(asked, 5).papers
        recall.append(np.mean([len(set(a) & set(b)) / 5 for a, b in zip(best, result, strict=True)]))
    assert 0.4 < recall[0] < recall[1] and recall[1] > 0.9


def test_queries_with_few_results_are_searched_exhaustively(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu_index, "SLACK", 0)  # of two orthogonal groups, the lists of one have only its own
    rng = np.random.default_rng(0)
    vectors = np.zeros((N, DIM), np.float32)
    vectors[:300, :6], vectors[300:, 6:] = unit(rng.random((300, 6))), unit(rng.random((300, 6)))
    index: Any = build_index(CONFIGS["ivf"], vectors)
    allowed = np.arange(N) >= 300
    asked = np.concatenate([vectors[:2], vectors[-2:]])
    result = index.search(asked, 250, allowed)
    assert (result.papers >= 0).all() and allowed[result.papers].all()
    decoded = index._index.reconstruct_n(0, N)
    for row in (0, 1):
        np.testing.assert_allclose(result.scores[row], brute(decoded, asked[row], allowed, 250), atol=2e-6)


@kinds
def test_single_queries_match_batches(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu_index, "MATMUL_SPEEDUP", 1)  # else large batches are searched exhaustively
    asked = queries(50)
    together = built(kind).search(asked, 7)
    monkeypatch.setattr(cpu_index, "CHUNK", 1)
    alone = built(kind).search(asked, 7)
    np.testing.assert_allclose(alone.scores, together.scores, atol=2e-6)
    assert (alone.papers == together.papers).mean() > 0.95  # equal codes have equal scores, up to rounding


@kinds
@pytest.mark.parametrize("rows", [[5, 9, 7], [5, 5, 7], [5, 6, 7], []])
def test_vectors_of_any_rows_are_read(kind: str, rows: list[int]) -> None:
    index = built(kind)
    everything = index.read(np.arange(N))
    np.testing.assert_array_equal(index.read(np.array(rows, np.int64)), everything[rows])


def test_training_depends_on_the_seed_alone() -> None:
    def made(seed: int, sample: int | None) -> bytes:
        config = IndexConfig(**{**vars(CONFIGS["ivf"]), "seed": seed, "sample": sample})
        index: Any = build_index(config, papers())
        return bytes(faiss.serialize_index(index._index))

    for sample in (None, 300):
        assert made(0, sample) == made(0, sample) != made(1, sample)
    assert made(0, None) != made(0, 300)


@kinds
def test_a_saved_index_gives_the_same_rankings(kind: str, tmp_path: Path) -> None:
    index = built(kind)
    index.save(tmp_path)
    loaded = load_index(CONFIGS[kind], tmp_path)
    allowed = np.random.default_rng(0).random(N) < 0.3
    assert len(loaded) == N and loaded.dim == DIM
    for count in (2, 100):
        for may in (None, allowed):
            made, read = index.search(queries(count), 9, may), loaded.search(queries(count), 9, may)
            np.testing.assert_array_equal(made.papers, read.papers)
            np.testing.assert_array_equal(made.scores, read.scores)
    size = sum(path.stat().st_size for path in tmp_path.iterdir())
    assert size - 200 <= index.nbytes <= size  # without the header of a NumPy file
    assert loaded.nbytes == pytest.approx(index.nbytes, abs=200)


def test_a_full_disk_raises_an_os_error(tmp_path: Path) -> None:
    (tmp_path / "vectors.faiss").symlink_to("/dev/full")
    with pytest.raises(OSError, match="No space left"):
        built("half").save(tmp_path)


@kinds
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_vectors_that_are_not_finite_are_named(kind: str, bad: float) -> None:
    vectors = papers().copy()
    vectors[401, 3] = bad
    with pytest.raises(InputError, match="papers: vector 401 is not finite"):
        build_index(CONFIGS[kind], vectors)
    with pytest.raises(InputError, match="queries: vector 1 is not finite"):
        built(kind).search(np.stack([vectors[0], vectors[401]]), 3)


@pytest.mark.parametrize("kind", ["exact", "half"])
def test_no_papers_and_no_queries_give_nothing(kind: str) -> None:
    empty = build_index(CONFIGS[kind], np.empty((0, DIM), np.float32))
    assert empty.search(queries(2), 3).papers.tolist() == [[-1] * 3] * 2
    assert built(kind).search(queries(2)[:0], 3).papers.shape == (0, 3)
    assert built(kind).search(queries(2), 3, np.zeros(N, np.bool_)).papers.tolist() == [[-1] * 3] * 2


def test_too_few_training_papers_raise_one_clear_error() -> None:
    for config, few, message in (
        (IndexConfig("ivf"), 0, "index.kind=ivf: needs 1 papers to train on, has 0"),
        (IndexConfig("ivf", lists=50), 49, "index.kind=ivf: needs 50 papers to train on, has 49"),
        (IndexConfig("ivf", lists=50, sample=40), 100, "needs 50 papers to train on, has 40"),
    ):
        with pytest.raises(InputError, match=message):
            build_index(config, papers()[:few])


def test_an_index_depends_on_its_build_settings_alone() -> None:
    assert IndexConfig("ivf", probes=3).asdict() == IndexConfig("ivf", probes=9).asdict()
    assert IndexConfig("ivf", lists=3).asdict() != IndexConfig("ivf", lists=9).asdict()
    assert IndexConfig("exact").asdict() == {"kind": "exact"}


@given(
    kind=st.sampled_from(["exact", "half"]),
    seed=st.integers(0, 2**32 - 1),
    k=st.integers(1, 40),
    passing=st.integers(1, N),
    block=st.integers(1, 700),
)
def test_torch_finds_what_the_cpu_finds(kind: str, seed: int, k: int, passing: int, block: int) -> None:
    allowed = np.zeros(N, np.bool_)
    allowed[np.random.default_rng(seed).permutation(N)[:passing]] = True
    host: Any = built(kind)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gpu_index, "GPU_SCORES", block * CHUNK)
        index = TorchIndex(host, torch.device("cpu"))
        result = index.search(queries(5, seed), k, allowed)
    expected = search_exact(queries(5, seed), held(kind), k, candidates=allowed)
    np.testing.assert_allclose(result.scores, expected.scores, atol=2e-6)
    np.testing.assert_array_equal(result.papers, expected.papers)
    there = search_exact(queries(5, seed), held(kind), k, candidates=allowed, device=torch.device("cpu:0"))
    np.testing.assert_array_equal(there.papers, expected.papers)  # a device of torch, as GPUs are
    assert len(index) == N and index.nbytes == N * DIM * (4 if kind == "exact" else 2)


def test_torch_saves_what_the_cpu_loads(tmp_path: Path) -> None:
    host: Any = built("half")
    TorchIndex(host, torch.device("cpu")).save(tmp_path)
    result = load_index(CONFIGS["half"], tmp_path).search(queries(9), 4)
    np.testing.assert_array_equal(result.papers, host.search(queries(9), 4).papers)


@pytest.mark.parametrize("k", [1, 7, 50])
def test_numpy_finds_what_faiss_finds(k: int) -> None:
    rng = np.random.default_rng(k)
    queries, papers = (rng.normal(size=(n, 16)).astype(np.float32) for n in (5, 50))
    scores, places = nearest_in_numpy(queries, papers, k)
    expected, best = faiss.knn(queries, papers, k, metric=faiss.METRIC_INNER_PRODUCT)
    assert places.tolist() == best.tolist()
    np.testing.assert_allclose(scores, expected, rtol=1e-5, atol=1e-5)


def test_faiss_on_a_gpu_leaves_filters_and_depth_to_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    class OnGPU(faiss.IndexFlatIP):  # type: ignore[name-defined]
        def search(self, queries: NDArray[np.float32], k: int) -> Any:
            asked.append(k)
            return super().search(queries, k)

    def moved(resources: None, device: int, index: Any) -> Any:
        assert device == 0
        gpu = OnGPU(index.d)
        gpu.add(index.reconstruct_n(0, index.ntotal))
        return gpu

    monkeypatch.setattr(faiss, "StandardGpuResources", lambda: None, raising=False)
    monkeypatch.setattr(faiss, "index_cpu_to_gpu", moved, raising=False)
    monkeypatch.setattr(faiss, "get_num_gpus", lambda: 4)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    index = build_index(IndexConfig("exact", device="gpu"), papers())
    assert isinstance(index, FaissGPUIndex)
    monkeypatch.setattr(index, "_device", torch.device("cpu"))
    allowed = np.arange(N) % 2 == 0
    monkeypatch.setattr(gpu_index, "FAISS_DEPTH", 20)
    for k, may in ((5, None), (5, allowed), (21, None)):
        expected = built("exact").search(queries(3), k, may)
        np.testing.assert_array_equal(index.search(queries(3), k, may).papers, expected.papers)
    assert asked == [5]


def test_a_missing_gpu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(faiss, "get_num_gpus", lambda: 0)
    index = build_index(IndexConfig("exact"), papers())
    assert type(index) is FlatIndex
    index.save(tmp_path)
    gpu = IndexConfig("exact", device="gpu")
    for make in (lambda: build_index(gpu, papers()), lambda: load_index(gpu, tmp_path)):
        with pytest.raises(InputError, match=r"index\.device=gpu: no usable GPU.* choose index\.device=cpu"):
            make()


# Several float16 arrays as one table of vectors.


def table(sizes: list[int], dim: int, seed: int = 0) -> list[NDArray[np.float16]]:
    rng = np.random.default_rng(seed)
    return [rng.standard_normal((size, dim)).astype(np.float16) for size in sizes]


@given(st.lists(st.integers(0, 7), min_size=1, max_size=5), st.data())
def test_rows_are_those_of_the_concatenated_arrays(sizes: list[int], data: st.DataObject) -> None:
    arrays = table(sizes, 3)
    whole = np.concatenate(arrays).astype(np.float32)
    halves = VectorTable(arrays)
    assert halves.shape == whole.shape and halves.nbytes == whole.nbytes // 2
    np.testing.assert_array_equal(np.asarray(halves), whole)
    start, stop = data.draw(st.integers(0, 40)), data.draw(st.integers(0, 40))
    np.testing.assert_array_equal(halves[start:stop], whole[start:stop])
    if len(whole):
        rows = np.array(data.draw(st.lists(st.integers(0, len(whole) - 1), max_size=20)), np.int64)
        np.testing.assert_array_equal(halves[rows], whole[rows])


@pytest.mark.parametrize("allowed", [None, 0.4])
def test_a_mapped_index_finds_what_exact_search_finds(tmp_path: Path, allowed: float | None) -> None:
    arrays = table([300, 1, 0, 199], 8)
    queries = np.random.default_rng(1).standard_normal((40, 8)).astype(np.float32)
    may = None if allowed is None else np.random.default_rng(2).random(500) < allowed
    index = build_index(IndexConfig(device="cpu"), VectorTable(arrays))
    assert isinstance(index, FlatIndex) and index.nbytes == 500 * 8 * 2 and len(index) == 500
    result = index.search(queries, 17, may)
    whole = np.concatenate(arrays).astype(np.float32)
    expected = search_exact(queries, whole, 17, candidates=may)
    assert result.papers.tolist() == expected.papers.tolist()
    np.testing.assert_allclose(result.scores, expected.scores, rtol=1e-5)
    index.save(tmp_path)
    loaded = load_index(IndexConfig(device="cpu"), tmp_path)
    again = loaded.search(queries, 17, may)
    assert again.papers.tolist() == result.papers.tolist() and again.scores.tolist() == result.scores.tolist()
    assert np.load(tmp_path / "halves.npy").tobytes() == b"".join(array.tobytes() for array in arrays)


@pytest.mark.parametrize("config", [IndexConfig("half", device="cpu"), IndexConfig("ivf", lists=4)])
def test_indexes_of_tables_match_those_of_arrays(config: IndexConfig) -> None:
    arrays = table([200, 220], 8)
    queries = np.random.default_rng(1).standard_normal((5, 8)).astype(np.float32)
    whole = np.concatenate(arrays).astype(np.float32)
    result, expected = (build_index(config, vectors) for vectors in (VectorTable(arrays), whole))
    assert result.search(queries, 6).papers.tolist() == expected.search(queries, 6).papers.tolist()


IVF = IndexConfig("ivf", lists=3, probes=1)


class Bags(DenseRetriever):
    """Encodes texts as sums of random word vectors."""

    name = "bags"

    def __init__(self, seed: int = 0, index: IndexConfig | None = None) -> None:
        super().__init__(index or IndexConfig(device="cpu"))
        self.seed = seed
        self.encoded = 0

    def fingerprint(self) -> dict[str, Any]:
        return {"seed": self.seed}

    def prepare(self, corpus: Corpus) -> None:
        self.of = corpus
        self.table = np.random.default_rng(self.seed).standard_normal((len(corpus.words), 6))

    def encode_papers(self, rows: NDArray[np.int64]) -> NDArray[np.float32]:
        self.encoded += len(rows)
        return self._sums(self.of.abstract_tokens, rows)

    def encode_queries(self, queries: Queries | NDArray[np.int64]) -> NDArray[np.float32]:
        return self._sums(self.of.context_tokens, Queries.from_contexts(self.of, queries).contexts)

    def _sums(self, tokens: Any, rows: NDArray[np.int64]) -> NDArray[np.float32]:
        sums = np.array([self.table[tokens[row][tokens[row] >= 0]].sum(0) for row in rows])
        return np.asarray(sums / np.maximum(np.linalg.norm(sums, axis=1, keepdims=True), 1e-9), np.float32)


def saved(corpus: Corpus, folder: Path, **settings: Any) -> Bags:
    retriever = Bags(**settings).index(corpus)
    retriever.save(folder)
    return retriever


def test_paper_ids_are_saved_next_to_their_vectors(tiny_corpus: Corpus, tmp_path: Path) -> None:
    saved(tiny_corpus, tmp_path / "index")
    ids = (tmp_path / "index" / "ids.txt").read_text("utf-8").splitlines()
    assert ids == [id for id, may in zip(tiny_corpus.paper_ids, tiny_corpus.is_candidate, strict=True) if may]
    assert len(np.load(tmp_path / "index" / "vectors.npy")) == len(ids) == 11


def test_an_index_of_something_else_is_refused(
    tiny_corpus: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "index"
    saved(tiny_corpus, folder, index=IVF)

    def refused(retriever: Bags, message: str) -> None:
        with pytest.raises(InputError, match=message):
            retriever.open(tiny_corpus, folder)
        assert retriever.encoded == 0

    refused(Bags(1, IVF), "the index was built with seed=0, not 1")
    refused(Bags(), "the index was built with index={'kind': 'ivf'.*, not {'kind': 'exact'}")
    monkeypatch.setattr(dense, "NORMALISATIONS", {})
    refused(Bags(index=IVF), "built with normalisation=unit, not none")
    monkeypatch.undo()
    Bags(index=IndexConfig("ivf", lists=3, probes=2)).load(folder, tiny_corpus)  # search settings may differ


def test_too_few_papers_raise_before_encoding(tiny_corpus: Corpus) -> None:
    retriever = Bags(index=IndexConfig("ivf", lists=12))
    with pytest.raises(InputError, match=r"index\.kind=ivf: needs 12 papers to train on, has 11"):
        retriever.index(tiny_corpus)
    assert retriever.encoded == 0
