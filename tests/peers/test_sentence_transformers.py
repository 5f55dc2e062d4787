"""Models of sentence-transformers here, and ours there, with the real package: make test-peers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from citerec.datasets.corpus import Corpus
from citerec.rerank.cross_encoder.network import CrossEncoder
from citerec.rerank.cross_encoder.reranker import Reranker
from citerec.rerank.settings import PairSettings, ScoringSettings
from citerec.retrieval.encoders.article import ArticleRetriever
from citerec.retrieval.encoders.encoder import ArticleEncoder
from citerec.retrieval.settings import ArticleConfig

sentence_transformers = pytest.importorskip("sentence_transformers")
FLOAT32 = ScoringSettings("float32")


def queries_of(corpus: Corpus, mark: str, separator: str) -> list[str]:
    """Title and abstract of the citing paper of each context, then the context."""
    contexts = [text.replace("TARGETCIT", mark).replace("OTHERCIT", "") for text in corpus.context_texts]
    return [
        f"{corpus.titles[row]} {corpus.abstracts[row]} {separator} {context}"
        for row, context in zip(corpus.citing.tolist(), contexts, strict=True)
    ]


@pytest.mark.parametrize(
    "settings", [{}, {"pooling": "cls", "layout": "sep", "similarity": "l2", "markers": "mask"}]
)
def test_our_encoder_gives_the_same_vectors_there(
    settings: dict[str, Any], tiny_bert: Path, tiny_corpus: Corpus, tmp_path: Path
) -> None:
    ours = ArticleRetriever(ArticleConfig("tiny", path=str(tiny_bert), max_tokens=128, **settings), "float32")
    ours.index(tiny_corpus)
    ours.encoder.write(tmp_path)
    theirs = sentence_transformers.SentenceTransformer(str(tmp_path), device="cpu")
    between, mark = (" [SEP] ", "[MASK]") if settings else (". ", "")
    papers = np.arange(6)
    texts = [f"{tiny_corpus.titles[row]}{between}{tiny_corpus.abstracts[row]}" for row in papers.tolist()]
    np.testing.assert_allclose(theirs.encode_document(texts), ours.encode_papers(papers), atol=1e-5)
    contexts = [text.replace("TARGETCIT", mark).replace("OTHERCIT", "") for text in tiny_corpus.context_texts]
    asked = [
        f"{tiny_corpus.titles[row]}{between}{text}"
        for row, text in zip(tiny_corpus.citing, contexts, strict=True)
    ]
    vectors = ours.encode_queries(np.arange(len(contexts)))
    np.testing.assert_allclose(theirs.encode_query(asked), vectors, atol=1e-5)
    assert theirs.similarity_fn_name == ("euclidean" if settings else "cosine")


@pytest.mark.parametrize(("pooling", "normalised"), [("mean", True), ("cls", False)])
def test_their_encoder_gives_the_same_vectors_here(
    pooling: str, normalised: bool, tiny_bert: Path, tiny_corpus: Corpus, tmp_path: Path
) -> None:
    from sentence_transformers.sentence_transformer.modules import Normalize, Pooling, Transformer

    modules = [Transformer(str(tiny_bert), processor_kwargs={"model_max_length": 40}), Pooling(16, pooling)]
    prompts = {"query": "Graph: ", "document": "Speech: "}
    theirs = sentence_transformers.SentenceTransformer(
        modules=[*modules, *([Normalize()] if normalised else [])],
        prompts=prompts,
        similarity_fn_name="cosine" if normalised else "dot",
        device="cpu",
    )
    theirs.save(str(tmp_path))
    encoder = ArticleConfig("local", path=str(tmp_path), pooling="auto", layout="sep", query=("context",))
    ours = ArticleRetriever(encoder, "float32").index(tiny_corpus)
    read = ours.encoder.config
    assert (read.pooling, read.similarity) == (pooling, "cosine" if normalised else "dot")
    papers = np.arange(len(tiny_corpus.titles))
    texts = [f"{tiny_corpus.titles[row]} [SEP] {tiny_corpus.abstracts[row]}" for row in papers.tolist()]
    texts = [text.removesuffix(" [SEP] ") for text in texts]
    np.testing.assert_allclose(theirs.encode_document(texts), ours.encode_papers(papers), atol=1e-5)
    contexts = [text.replace("TARGETCIT", "").replace("OTHERCIT", "") for text in tiny_corpus.context_texts]
    vectors = theirs.encode_query(contexts)
    np.testing.assert_allclose(vectors, ours.encode_queries(np.arange(len(contexts))), atol=1e-5)
    ranking, split = (
        ours.search(np.arange(3), 3),
        theirs.similarity(vectors[:3], theirs.encode_document(texts)),
    )
    for row, own in enumerate(tiny_corpus.citing[:3].tolist()):
        order = [paper for paper in np.argsort(-split[row].numpy()).tolist() if paper != own]
        assert ranking.papers[row].tolist() == [p for p in order if tiny_corpus.is_candidate[p]][:3]


@pytest.mark.parametrize("head", ["sigmoid", "linear"])
def test_our_cross_encoder_gives_the_same_scores_there(
    head: str, tiny_bert: Path, tiny_corpus: Corpus, tmp_path: Path
) -> None:
    pairs = PairSettings(max_tokens=128, other_citations="drop")
    made = CrossEncoder.pretrained(ArticleConfig("tiny", path=str(tiny_bert)), pairs, head)
    torch.nn.init.normal_(made.score.weight, generator=torch.Generator().manual_seed(0))
    made.save(tmp_path / "ours")
    theirs = sentence_transformers.CrossEncoder(str(tmp_path / "ours"), device="cpu")
    ours = Reranker.open(tmp_path / "ours", FLOAT32)
    same_scores(ours, theirs, queries_of(tiny_corpus, "<cit>", "<sep>"), tiny_corpus)


def test_their_cross_encoder_gives_the_same_order_here(
    tiny_bert: Path, tiny_corpus: Corpus, tmp_path: Path
) -> None:
    torch.manual_seed(0)
    made = sentence_transformers.CrossEncoder(str(tiny_bert), num_labels=1, device="cpu")
    made.save(str(tmp_path))
    ours = Reranker.open(tmp_path, FLOAT32)
    theirs = sentence_transformers.CrossEncoder(
        str(tmp_path), device="cpu", activation_fn=torch.nn.Identity()
    )
    same_scores(ours, theirs, queries_of(tiny_corpus, "[MASK]", "[SEP]"), tiny_corpus)
    ours.save(tmp_path / "again")
    again = Reranker.open(tmp_path / "again", FLOAT32)
    same_scores(again, theirs, queries_of(tiny_corpus, "[MASK]", "[SEP]"), tiny_corpus)


def same_scores(ours: Reranker, theirs: Any, asked: list[str], corpus: Corpus) -> None:
    contexts, papers = (part.ravel() for part in np.indices((len(asked), 6)))
    texts = [f"{title} {abstract}" for title, abstract in zip(corpus.titles, corpus.abstracts, strict=True)]
    given = [(asked[context], texts[paper]) for context, paper in zip(contexts, papers, strict=True)]
    scores = ours.score(corpus, contexts, papers)
    assert scores.std() > 0
    np.testing.assert_allclose(theirs.predict(given), scores, atol=1e-5)


def test_the_folders_say_what_they_are(tiny_bert: Path, tmp_path: Path) -> None:
    made = ArticleEncoder.pretrained(ArticleConfig("tiny", path=str(tiny_bert), pooling="cls", max_tokens=50))
    made.write(tmp_path)
    theirs = sentence_transformers.SentenceTransformer(str(tmp_path), device="cpu")
    assert theirs.max_seq_length == 50 and [type(part).__name__ for part in theirs] == [
        "Transformer",
        "Pooling",
        "Normalize",
    ]
