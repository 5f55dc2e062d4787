from pathlib import Path

import numpy as np
import pytest

from datasets.corpus import Corpus
from datasets.errors import InputError
from datasets.prepare import open_corpus
from retrieval.popularity import Popularity


def test_ranks_by_citations_in_training_contexts(tiny_corpus: Corpus) -> None:
    retriever = Popularity()
    retriever.index(tiny_corpus)
    ranking = retriever.search(tiny_corpus.split("test").contexts, 11)
    rows = [tiny_corpus.paper_row(p) for p in ("parsing", "graph", "speech", "vision")]
    for papers, scores in zip(ranking.papers.tolist(), ranking.scores.tolist(), strict=True):
        assert papers == rows + [-1] * 7
        assert scores[:4] == [3, 1, 1, 1]


def test_a_corpus_without_training_contexts_is_one_line(tiny_source: Path, tmp_path: Path) -> None:
    (tiny_source / "train.json").unlink()
    (tiny_source / "val.json").unlink()
    corpus = open_corpus(tiny_source, cache_dir=tmp_path / "cache")
    with pytest.raises(InputError, match=r"lacks \(it has test\)"):
        Popularity().index(corpus)


def test_the_citing_paper_is_left_out_even_if_it_is_popular(tiny_corpus: Corpus) -> None:
    retriever = Popularity()
    retriever.index(tiny_corpus)
    citing = tiny_corpus.citing.copy()
    citing[:] = tiny_corpus.paper_row("parsing")
    tiny_corpus.citing = citing
    assert retriever.search(np.array([0]), 1).papers.tolist() == [[tiny_corpus.paper_row("graph")]]
