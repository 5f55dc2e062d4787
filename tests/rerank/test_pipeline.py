"""The order of reranked candidates, against plain sorting."""

from __future__ import annotations

from pathlib import Path

import ir_measures
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from numpy.typing import NDArray

from datasets.corpus import Corpus
from rerank.cross_encoder import CrossEncoder
from rerank.pairs import PairConfig
from rerank.reranker import Reranker, ScoringConfig
from rerank.scores import PairScores, candidate_scores, head_of, reranked
from retrieval.base import Ranking
from retrieval.bm25 import BM25
from retrieval.encoder import ArticleConfig
from retrieval.run import Run

VALUES = np.array([0, 0.5, 1, 1.0000001, -3e8, 77], np.float32).tolist()


def ranking_of(rows: list[list[int]], width: int) -> Ranking:
    papers = np.array([row + [-1] * (width - len(row)) for row in rows], np.int32)
    places = np.where(papers >= 0, -np.arange(width, dtype=np.float32), -np.inf)
    return Ranking(papers, places.astype(np.float32))


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.integers(0, 8), min_size=1, max_size=5),  # papers found of each query
    st.integers(1, 10),
    arrays.arrays(np.float32, (5, 8), elements=st.sampled_from(VALUES)),
)
def test_the_first_k_by_score_the_rest_as_they_were(
    counts: list[int], k: int, values: NDArray[np.float32]
) -> None:
    rng = np.random.default_rng(len(counts) + k)
    rows = [rng.permutation(30)[:count].tolist() for count in counts]
    ranking = ranking_of(rows, 8)
    scores = np.where(ranking.papers >= 0, values[: len(rows)], -np.inf)[:, :k].astype(np.float32)
    found = reranked(ranking, scores)
    for papers, of, result, final in zip(rows, scores, found.papers, found.scores, strict=True):
        head = sorted(range(min(k, len(papers))), key=lambda place: (-float(of[place]), place))
        expected = [papers[place] for place in head] + papers[k:]
        assert result.tolist() == expected + [-1] * (8 - len(papers))
        assert (np.diff(final[: len(papers)]) < 0).all() and np.isneginf(final[len(papers) :]).all()


def test_trec_eval_sees_the_same_order(tmp_path: Path) -> None:
    """Scores that are equal would be ordered by it in its own way."""
    ranking = ranking_of([[3, 1, 2, 0]], 4)
    run = Run(["q"], ["a", "b", "c", "d"], reranked(ranking, np.full((1, 3), 0.25)), "x")
    run.write(tmp_path / "run.trec")
    read = list(ir_measures.read_trec_run(str(tmp_path / "run.trec")))
    assert [line.doc_id for line in sorted(read, key=lambda line: -line.score)] == ["d", "b", "c", "a"]
    assert len({line.score for line in read}) == 4


def test_a_cross_encoder_reranks_what_bm25_found(
    tiny_corpus: Corpus, tiny_bert: Path, tmp_path: Path
) -> None:
    model = CrossEncoder.pretrained(ArticleConfig("tiny", path=str(tiny_bert)), PairConfig(max_tokens=64))
    reranker = Reranker(model, ScoringConfig(precision="float32"))
    retriever = BM25()
    retriever.index(tiny_corpus)
    contexts = tiny_corpus.split("test").contexts
    ranking = retriever.search(contexts, 5)
    pairs = PairScores(tmp_path, reranker, tiny_corpus)
    scores, scored = candidate_scores(pairs, contexts, head_of(ranking, 3).papers)
    found = reranked(ranking, scores)
    assert scored.new == np.count_nonzero(ranking.papers[:, :3] >= 0) > 6
    for query, context in enumerate(contexts):
        alone = {
            int(paper): float(reranker.score(tiny_corpus, np.array([context]), np.array([paper]))[0])
            for paper in ranking.papers[query, :3]
            if paper >= 0
        }
        assert len(set(alone.values())) == len(alone)
        best = sorted(alone, key=lambda paper: -alone[paper])
        assert found.papers[query, : len(best)].tolist() == best
        assert (found.papers[query, 3:] == ranking.papers[query, 3:]).all()
        assert np.allclose(found.scores[query, : len(best)], [alone[paper] for paper in best], atol=1e-6)
