"""Aspire: the best pair of sentences against all pairs, one paper at a time."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch

from citerec.base.errors import InputError
from citerec.datasets.corpus import Corpus
from citerec.datasets.tokenize import sentence_starts
from citerec.retrieval.encoders import sentences
from citerec.retrieval.encoders.article import ArticleRetriever, article_retriever
from citerec.retrieval.encoders.encoder import ArticleEncoder
from citerec.retrieval.encoders.sentences import SentenceRetriever
from citerec.retrieval.filters import Filters
from citerec.retrieval.settings import ArticleConfig, IndexConfig


@pytest.fixture(scope="module")
def config(tiny_bert: Path) -> ArticleConfig:
    return ArticleConfig(
        "tiny", path=str(tiny_bert), max_tokens=128, pooling="aspire", layers="all", layout="sep"
    )


def sentence_vectors(encoder: ArticleEncoder, title: str, text: str) -> torch.Tensor:
    """The sentences' vectors of `[CLS] title [SEP] text [SEP]` [s, D], of a title alone its own."""
    tokenizer, limit = encoder.tokenizer, encoder.config.max_tokens
    ids = tokenizer(title, text)["input_ids"] if text else tokenizer(title)["input_ids"]
    if len(ids) > limit:
        ids = [*ids[: limit - 1], ids[-1]]
    with torch.no_grad():
        states = encoder.model(torch.tensor([ids]), output_hidden_states=True).hidden_states
    tokens, end = torch.stack(states).mean(0)[0], len(ids) - 1
    start = len(tokenizer(title)["input_ids"]) if text else 1
    vectors = []
    for a, b in pairwise([0, *sentence_starts(text), len(text)] if text else [0, len(title)]):
        length = len(tokenizer((text or title)[a:b], add_special_tokens=False)["input_ids"])
        if start < end:
            vectors.append(tokens[start : min(start + length, end)].mean(0))
        start += length
    return torch.stack(vectors)


@pytest.mark.parametrize("pairs", [1, 1 << 22])
def test_a_paper_is_as_near_as_its_nearest_sentence(
    demo_corpus: Corpus, config: ArticleConfig, pairs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sentences, "PAIRS", pairs)
    retriever = SentenceRetriever(replace(config, query=("title", "abstract")), "float32").index(demo_corpus)
    ranking = retriever.search(np.arange(4), 40, Filters(exclude=list(demo_corpus.paper_ids[40:])))

    def vectors(row: int) -> torch.Tensor:
        return sentence_vectors(retriever.encoder, demo_corpus.titles[row], demo_corpus.abstracts[row])

    papers = [vectors(row) for row in range(40)]
    assert max(map(len, papers)) > 2
    for query, citing in enumerate(demo_corpus.citing[:4].tolist()):
        result = ranking.papers[query][ranking.papers[query] >= 0].tolist()
        expected = [float(torch.cdist(vectors(citing), papers[row]).min()) for row in result]
        np.testing.assert_allclose(-ranking.scores[query, : len(result)], expected, atol=2e-2)
        assert citing not in result and len(set(result)) == len(result) > 10


def test_a_query_without_a_word_finds_nothing(tiny_corpus: Corpus, config: ArticleConfig) -> None:
    retriever = article_retriever(replace(config, query=("abstract",))).index(tiny_corpus)
    tiny_corpus.citing = np.array([tiny_corpus.paper_row("bare"), 7], np.int32)
    result = retriever.search(np.array([0, 1]), 3)
    assert (result.papers[0] == -1).all() and (result.papers[1] >= 0).all()


def test_the_pooling_decides_which_retriever(config: ArticleConfig) -> None:
    assert isinstance(article_retriever(config), SentenceRetriever)
    assert isinstance(article_retriever(replace(config, pooling="cls")), ArticleRetriever)
    with pytest.raises(InputError, match=r"set index\.kind=exact"):
        article_retriever(config, index=IndexConfig(kind="ivf"))
