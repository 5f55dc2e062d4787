"""Mined pools compared with brute force and Python sets, and their files."""

from __future__ import annotations

import re
from pathlib import Path, PureWindowsPath
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import Stemmer
from bm25s.stopwords import STOPWORDS_EN_PLUS
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

import citerec.hatten.training.mining
from citerec.base.errors import InputError
from citerec.datasets.columns import Ragged
from citerec.datasets.corpus import Corpus, Split
from citerec.datasets.prepare import open_corpus
from citerec.hatten.documents import DocumentReader, Vocabulary
from citerec.hatten.settings import EncoderBatchSettings, EncoderValidationSettings
from citerec.hatten.training.batches import Batches, Pool
from citerec.hatten.training.losses import EXCLUDED
from citerec.hatten.training.mining import Mining, WordSets
from citerec.hatten.training.rounds import EncoderRounds, Validation
from citerec.retrieval.lexical.bm25 import BM25
from citerec.tests.datasets.files.test_beir import beir
from citerec.tests.hatten.made import unit

DEPTH = 15


@pytest.fixture(scope="module")
def split(demo_corpus: Corpus) -> Split:
    """The training contexts; every second one also has the positive of the next one."""
    train = demo_corpus.split("train")
    cited = train.positives.values.tolist()
    following = zip(cited, cited[1:] + cited[:1], strict=True)
    rows = [list(dict.fromkeys(some[: 1 + i % 2])) for i, some in enumerate(following)]
    return Split("train", train.contexts, Ragged.from_rows(rows))


def filled(ranked: list[int]) -> list[int]:
    return [*ranked, *[-1] * DEPTH][:DEPTH]


@pytest.mark.parametrize("few", [False, True], ids=["all candidates", "twelve candidates"])
def test_the_pool_has_the_nearest_papers_except_cited_and_citing(
    demo_corpus: Corpus, split: Split, few: bool
) -> None:
    queries = np.arange(3, len(split), 2)
    asked, papers = unit(len(queries), 1), unit(len(demo_corpus.paper_ids), 2)
    allowed = demo_corpus.is_candidate & (np.arange(len(papers)) < 12) if few else demo_corpus.is_candidate
    mining = Mining(demo_corpus, split, queries, allowed=allowed if few else None)
    pool = mining.by_vectors(asked, papers, DEPTH)
    assert pool.papers.shape == (len(queries), DEPTH) and not pool.relevant.any()
    for row, query in enumerate(queries.tolist()):
        assert pool.row[query] == row
        out = {*split.positives[query].tolist(), int(demo_corpus.citing[split.contexts[query]])}
        order = np.argsort(-(papers @ asked[row]), kind="stable").tolist()
        ranked = [paper for paper in order if allowed[paper] and paper not in out]
        assert pool.papers[row].tolist() == filled(ranked)
    assert (np.delete(pool.row, queries) == -1).all()
    assert (pool.papers == -1).any() == few


def test_papers_without_abstract_are_not_mined(tiny_corpus: Corpus) -> None:
    train = tiny_corpus.split("train")
    queries = np.arange(len(train))
    pool = Mining(tiny_corpus, train, queries).by_vectors(unit(len(train), 3), unit(12, 4), 20)
    bare = tiny_corpus.paper_row("bare")
    for query, result in enumerate(pool.papers):
        gone = {bare, int(tiny_corpus.citing[train.contexts[query]]), *train.positives[query].tolist()}
        assert set(result.tolist()) == (set(range(12)) - gone) | {-1}


def test_a_document_with_the_querys_id_is_no_negative_and_is_not_counted_in_validation(
    tmp_path: Path,
) -> None:
    papers = [
        {"_id": id, "title": f"Title {id}", "text": "Sound of trees."} for id in ("q1", "d1", "d2", "q2")
    ]
    texts = [{"_id": id, "text": "Sound of trees."} for id in ("q1", "q2")]
    qrels = ["query-id\tcorpus-id\tscore", "q1\td1\t1", "q2\td1\t1"]
    folder = beir(tmp_path / "beir", qrels, corpus=papers, queries=texts)
    (folder / "qrels" / "test.tsv").rename(folder / "qrels" / "train.tsv")
    corpus = open_corpus(folder, cache_dir=tmp_path)
    train, own, vectors = corpus.split("train"), np.array([0, 3]), np.eye(6, dtype=np.float32)
    pool = Mining(corpus, train, np.arange(2)).by_vectors(vectors[own], vectors, 6)
    assert np.sort(pool.papers).tolist() == [[-1, -1, -1, -1, 2, 3], [-1, -1, -1, -1, 0, 2]]
    reader = DocumentReader(corpus, Vocabulary(corpus.words), 9)
    config = EncoderBatchSettings(queries=2, mined=0, random=20, contexts_per_paper=1)
    batches = Batches(reader, train, None, config, seed=1, round=0)
    assert (batches[0].levels == EXCLUDED).sum(1).tolist() == [1, 1]
    validation = Validation(EncoderValidationSettings(split="train", depth=6, monitor="mrr"), corpus, 0)
    assert validation.measure(vectors[own], vectors)["mrr"] == (1 + 1 / 2) / 2


@pytest.mark.parametrize("few", [False, True], ids=["all candidates", "twelve candidates"])
@pytest.mark.parametrize("at_a_time", [7, 1000])
def test_bm25_can_mine_the_first_pool(
    demo_corpus: Corpus, split: Split, few: bool, at_a_time: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(citerec.hatten.training.mining, "QUERY_CHUNK", at_a_time)
    queries = np.arange(3, len(split), 9)
    allowed = demo_corpus.is_candidate & (np.arange(len(demo_corpus.paper_ids)) < 12) if few else None
    words = WordSets(demo_corpus)
    pool = Mining(demo_corpus, split, queries, words, allowed).by_bm25(DEPTH)
    bm25 = BM25("okapi", stopwords=None, query=("title", "abstract", "context")).index(demo_corpus)
    ranked = bm25.search_allowed(split.contexts[queries], len(demo_corpus.paper_ids), allowed).papers
    for row, query in enumerate(queries.tolist()):
        cited = split.positives[query].tolist()
        expected = [paper for paper in ranked[row].tolist() if paper >= 0 and paper not in cited]
        assert pool.papers[row].tolist() == filled(expected)
        assert pool.relevant[row].tolist() == near_by_sets(demo_corpus, split, query, pool.papers[row])
    assert (pool.row[queries] == np.arange(len(queries))).all() and (pool.papers >= 0).any()


def stems(corpus: Corpus, *texts: NDArray[np.integer]) -> set[str]:
    """Return the stems of the words between white space, stop words out, split at punctuation."""
    stem = Stemmer.Stemmer("english").stemWord
    words = {corpus.words[i] for text in texts for i in text} - set(STOPWORDS_EN_PLUS)
    return {stem(part) for word in words for part in re.findall(r"\w+", word)}


def jaccard_by_sets(corpus: Corpus, context: int, paper: int) -> float:
    if paper < 0:
        return 0.0
    citing = corpus.citing[context]
    titles, abstracts = corpus.title_tokens, corpus.abstract_tokens
    ours = stems(corpus, titles[citing], abstracts[citing], corpus.context_tokens[context])
    theirs = stems(corpus, titles[paper], abstracts[paper])
    return len(ours & theirs) / max(len(ours | theirs), 1)


def near_by_sets(corpus: Corpus, split: Split, query: int, papers: NDArray[np.integer]) -> list[bool]:
    """Return which papers have as much word overlap with the query as a paper it cites."""
    context = int(split.contexts[query])
    least = max(jaccard_by_sets(corpus, context, paper) for paper in split.positives[query].tolist())
    shares = [jaccard_by_sets(corpus, context, paper) for paper in papers.tolist()]
    return [share > 0 and share >= least - 1e-9 for share in shares]


@pytest.mark.parametrize("pairs", [1, 40, 200_000])
def test_relevant_papers_have_the_word_overlap_of_a_cited_paper(
    demo_corpus: Corpus, split: Split, pairs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(citerec.hatten.training.mining, "PAIR_CHUNK", pairs)
    queries = np.arange(0, 24, 2)
    asked, papers = unit(len(queries), 5), unit(len(demo_corpus.paper_ids), 6)
    pool = Mining(demo_corpus, split, queries, WordSets(demo_corpus)).by_vectors(asked, papers, DEPTH)
    for row, query in enumerate(queries.tolist()):
        assert pool.relevant[row].tolist() == near_by_sets(demo_corpus, split, query, pool.papers[row])
    assert 0 < pool.relevant.sum() < pool.relevant.size


@given(size=st.integers(1, 8), seed=st.integers(0, 50))
def test_drawn_papers_are_distinct_and_from_the_pool_of_the_query(size: int, seed: int) -> None:
    papers = np.arange(3 * 6, dtype=np.int32).reshape(3, 6)
    papers[1, 4:] = -1
    pool = Pool(np.array([2, -1, 0, 1], np.int32), papers, papers % 2 == 0)
    drawn, relevant = pool.draw(np.array([0, 1, 2, 3, 0]), size, np.random.default_rng(seed))
    assert drawn.shape == relevant.shape == (5, min(size, 6))
    assert (drawn[1] == -1).all() and not relevant[1].any()
    for row, place in ((0, 2), (2, 0), (3, 1), (4, 2)):
        there = drawn[row][drawn[row] >= 0].tolist()
        assert len(set(there)) == len(there) and set(there) <= set(papers[place].tolist())
        assert relevant[row].tolist() == [paper >= 0 and paper % 2 == 0 for paper in drawn[row]]
    again, _ = pool.draw(np.array([0, 1, 2, 3, 0]), size, np.random.default_rng(seed))
    assert np.array_equal(again, drawn)


def test_papers_are_drawn_uniformly_from_the_pool() -> None:
    pool = Pool(np.zeros(400, np.int32), np.arange(10, dtype=np.int32)[None], np.zeros((1, 10), np.bool_))
    drawn, _ = pool.draw(np.arange(400), 3, np.random.default_rng(0))
    counts = np.bincount(drawn.ravel(), minlength=10)
    assert counts.min() > 80 and counts.max() < 160  # 120 each on average


def test_a_pool_loads_only_from_its_own_file(tmp_path: Path) -> None:
    papers = np.random.default_rng(0).integers(-1, 50, (7, 5)).astype(np.int32)
    pool = Pool(np.arange(9, dtype=np.int32) - 2, papers, papers % 3 == 0)
    path = tmp_path / "mined" / "round-001.npz"
    digest = pool.save(path)
    back = Pool.load(path, digest)
    for name in ("row", "papers", "relevant"):
        ours, theirs = getattr(pool, name), getattr(back, name)
        assert np.array_equal(ours, theirs) and ours.dtype == theirs.dtype
    assert [file.name for file in path.parent.iterdir()] == ["round-001.npz"]
    whole = path.read_bytes()
    for damaged in (whole[:-1], b"", whole[:60] + b"\xff" + whole[61:]):
        path.write_bytes(damaged)
        with pytest.raises(InputError, match=r"round-001\.npz: not the pool that this run mined"):
            Pool.load(path, digest)
    path.unlink()
    with pytest.raises(InputError, match=r"round-001\.npz: the mined pool of this run is missing"):
        Pool.load(path, digest)


def test_only_older_pools_are_removed_whatever_separates_names(monkeypatch: pytest.MonkeyPatch) -> None:
    removed: list[str] = []
    names = [f"round-00{number}.npz" for number in range(4)]
    monkeypatch.setattr(
        PureWindowsPath, "glob", lambda self, _: [self / name for name in names], raising=False
    )
    monkeypatch.setattr(PureWindowsPath, "unlink", lambda self: removed.append(self.name), raising=False)
    rounds: Any = SimpleNamespace(folder=PureWindowsPath("C:/run"), _pool={"file": "mined/round-002.npz"})
    EncoderRounds._write_pool(rounds, cast(Any, SimpleNamespace(save=lambda path: "")), 3)
    assert removed == names[:2]
