"""Article encoders against transformers called directly, and as retrievers against their own cosines."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch.nn import functional as F

from datasets.corpus import Corpus
from datasets.errors import InputError
from retrieval.article import ArticleRetriever
from retrieval.article_text import ArticleReader
from retrieval.encoder import ArticleEncoder
from retrieval.settings import ArticleConfig


@pytest.fixture
def config(tiny_bert: Path) -> ArticleConfig:
    return ArticleConfig("tiny", path=str(tiny_bert), max_tokens=24)


def alone(encoder: ArticleEncoder, text: NDArray[np.int32]) -> torch.Tensor:
    """The hidden states [L, D] of one text, by transformers."""
    found = encoder.model(torch.tensor(text[None].astype(np.int64)), output_hidden_states=True)
    if encoder.config.layers == "last":
        return found.last_hidden_state[0]
    return torch.stack(found.hidden_states).mean(0)[0]


@pytest.mark.parametrize("chunk_tokens", [1, 40, 4096])
@pytest.mark.parametrize("layers", ["last", "all"])
@pytest.mark.parametrize("pooling", ["mean", "cls"])
def test_batches_give_what_each_text_gives_alone(
    tiny_corpus: Corpus, config: ArticleConfig, pooling: str, layers: str, chunk_tokens: int
) -> None:
    encoder = ArticleEncoder.pretrained(replace(config, pooling=pooling, layers=layers))
    encoder.chunk_tokens = chunk_tokens
    texts = ArticleReader(tiny_corpus, encoder.tokenizer, encoder.config).papers(np.arange(12))
    assert len(set(texts.tokens.lengths)) > 3
    with torch.no_grad():
        found = encoder.encode(texts)
        states = [alone(encoder, text) for text in texts.tokens]
    expected = torch.stack([state.mean(0) if pooling == "mean" else state[0] for state in states])
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-4)


def test_sentences_are_the_means_of_their_subwords(demo_corpus: Corpus, config: ArticleConfig) -> None:
    encoder = ArticleEncoder.pretrained(replace(config, pooling="aspire", layout="sep", max_tokens=60))
    encoder.chunk_tokens = 128
    texts = ArticleReader(demo_corpus, encoder.tokenizer, encoder.config).papers(np.arange(6))
    assert texts.sentences is not None and texts.owners is not None
    with torch.no_grad():
        found = encoder.encode(texts)
        states = torch.cat([alone(encoder, text) for text in texts.tokens])
    assert len(found) == len(texts.owners) == texts.sentences.max() + 1
    for number, vector in enumerate(found):
        torch.testing.assert_close(vector, states[texts.sentences == number].mean(0), atol=1e-5, rtol=1e-4)


def test_gradients_reach_the_weights_and_an_empty_text_gets_zeros(
    tiny_corpus: Corpus, config: ArticleConfig
) -> None:
    encoder = ArticleEncoder.pretrained(replace(config, query=["abstract"]))
    tiny_corpus.citing = np.array([tiny_corpus.paper_row("bare"), 0], np.int32)
    vectors = encoder.encode(
        ArticleReader(tiny_corpus, encoder.tokenizer, encoder.config).queries(np.array([0, 1]))
    )
    assert not vectors[0].any() and vectors[1].any()
    vectors.square().sum().backward()
    grad = next(encoder.parameters()).grad
    assert grad is not None and grad.any()


def test_bfloat16_is_near_float32(tiny_corpus: Corpus, config: ArticleConfig) -> None:
    vectors = []
    for arithmetic in ("float32", "bfloat16"):
        retriever = ArticleRetriever(config, arithmetic)
        retriever.prepare(tiny_corpus)
        vectors.append(retriever.encode_papers(np.arange(12)))
    cosines = (vectors[0] * vectors[1]).sum(axis=1)
    assert cosines.min() > 0.99 and (vectors[0] != vectors[1]).any()


def test_mixed_precision_is_near_float32(tiny_corpus: Corpus, config: ArticleConfig) -> None:
    encoder = ArticleEncoder.pretrained(config)
    texts = ArticleReader(tiny_corpus, encoder.tokenizer, config).papers(np.arange(12))
    with torch.no_grad():
        exact = encoder.encode(texts)
        encoder.precision = torch.bfloat16
        mixed = encoder.encode(texts)
    assert mixed.dtype == torch.float32 and (mixed != exact).any()
    assert F.cosine_similarity(mixed, exact).min() > 0.99


def test_a_saved_encoder_is_the_same(tiny_corpus: Corpus, config: ArticleConfig, tmp_path: Path) -> None:
    config = replace(config, pooling="cls", layout="sep", query=["title", "context"], markers="mask")
    encoder = ArticleEncoder.pretrained(config)
    with torch.no_grad():
        next(encoder.model.parameters()).mul_(1.5)
    for _ in range(2):  # one that is there is replaced
        encoder.save(tmp_path / "encoder")
    loaded = ArticleEncoder.load(tmp_path / "encoder")
    assert replace(loaded.config, path=None) == replace(config, path=None)
    retrievers = [ArticleRetriever(encoder), ArticleRetriever(loaded)]
    assert retrievers[0].fingerprint() == retrievers[1].fingerprint()
    for retriever in retrievers:
        retriever.prepare(tiny_corpus)
    vectors = [retriever.encode_queries(np.arange(12)) for retriever in retrievers]
    assert (vectors[0] == vectors[1]).all() and vectors[0].any(axis=1).all()


def test_a_saved_encoder_is_not_read_in_another_way(config: ArticleConfig, tmp_path: Path) -> None:
    ArticleEncoder.pretrained(replace(config, pooling="cls")).save(tmp_path / "encoder")
    local = ArticleConfig("local", path=str(tmp_path / "encoder"), max_tokens=24, pooling="mean")
    with pytest.raises(InputError, match=r"encoder\.pooling=mean: the encoder in .* was trained with cls"):
        ArticleRetriever(local)
    with pytest.raises(InputError, match=r"query=\[abstract\]: .* was trained with \[title, context\]"):
        ArticleRetriever(replace(local, pooling="cls", query=["abstract"]))
    ArticleRetriever(replace(local, pooling="cls"))


def test_only_encoders_are_replaced_and_read(config: ArticleConfig, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.tex").write_text("")
    with pytest.raises(InputError, match="something else than an encoder"):
        ArticleEncoder.pretrained(config).save(tmp_path / "other")
    with pytest.raises(InputError, match=r"no encoder that was trained here \(no encoder.json"):
        ArticleEncoder.load(tmp_path / "other")
    (tmp_path / "other" / "encoder.json").write_text(json.dumps({"name": "x", "pooling": "most"}))
    with pytest.raises(InputError, match=r"damaged .*choose one of mean, cls, aspire"):
        ArticleEncoder.load(tmp_path / "other")


def test_ranks_by_the_cosine_of_its_vectors(
    tiny_corpus: Corpus, config: ArticleConfig, tmp_path: Path
) -> None:
    retriever = ArticleRetriever(config, "float32")
    retriever.open(tiny_corpus, tmp_path / "index")
    contexts = np.array([8, 2, 11, 0, 2])
    reader = ArticleReader(tiny_corpus, retriever.encoder.tokenizer, config)
    papers, queries = (
        np.stack([alone(retriever.encoder, text).mean(0).numpy() for text in texts.tokens])
        for texts in (reader.papers(np.arange(12)), reader.queries(contexts))
    )
    cosines = F.cosine_similarity(torch.tensor(queries)[:, None], torch.tensor(papers)[None], dim=2).numpy()
    cosines[:, ~tiny_corpus.is_candidate] = -np.inf
    cosines[np.arange(5), tiny_corpus.citing[contexts]] = -np.inf
    expected = np.argsort(-cosines, axis=1, kind="stable")[:, :7]
    found = retriever.search(contexts, 7)
    assert found.papers.tolist() == expected.tolist()
    np.testing.assert_allclose(found.scores, np.take_along_axis(cosines, expected, 1), atol=1e-3)
    again = ArticleRetriever(config, "float32")
    again.load(tmp_path / "index", tiny_corpus)
    assert (again.search(contexts, 7).papers == found.papers).all()


def test_an_index_of_another_reading_is_refused(
    tiny_corpus: Corpus, config: ArticleConfig, tmp_path: Path
) -> None:
    ArticleRetriever(config).open(tiny_corpus, tmp_path / "index")
    with pytest.raises(InputError, match=r"an index of another query: \['title', 'context'\] there"):
        ArticleRetriever(replace(config, query=["context"])).load(tmp_path / "index", tiny_corpus)


def test_a_query_without_a_word_finds_nothing(tiny_corpus: Corpus, config: ArticleConfig) -> None:
    retriever = ArticleRetriever(replace(config, query=["abstract"]))
    retriever.index(tiny_corpus)
    tiny_corpus.citing = np.array([tiny_corpus.paper_row("bare"), 7], np.int32)
    found = retriever.search(np.array([0, 1]), 3)
    assert (found.papers[0] == -1).all() and (found.papers[1] >= 0).all()


def test_a_run_that_was_cut_off_goes_on_and_ends_the_same(
    demo_corpus: Corpus, config: ArticleConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CITATION_CACHE", str(tmp_path))
    retriever, rows = ArticleRetriever(config, shard=25), np.flatnonzero(demo_corpus.is_candidate)
    retriever.prepare(demo_corpus)
    whole = retriever.paper_vectors(demo_corpus, rows)[:]
    np.testing.assert_array_equal(whole, retriever.encode_papers(rows).astype(np.float16))
    assert not list((tmp_path / "encoding").iterdir())  # nothing is left behind
    done: list[int] = []
    read = retriever._reader.papers

    def cut_off(at: int) -> Callable[[NDArray[np.integer]], Any]:
        def papers(chosen: NDArray[np.integer]) -> Any:
            if len(done) == at:
                raise KeyboardInterrupt
            done.append(len(chosen))
            return read(chosen)

        return papers

    for at in (2, 3):
        monkeypatch.setattr(retriever._reader, "papers", cut_off(at))
        with pytest.raises(KeyboardInterrupt):
            retriever.paper_vectors(demo_corpus, rows)
    (folder,) = (tmp_path / "encoding").iterdir()
    assert sorted(path.name for path in folder.iterdir()) == [
        *(f"{number:05}.npy" for number in range(3)),
        "embeddings.json",
    ]
    monkeypatch.setattr(retriever._reader, "papers", cut_off(-1))
    assert (retriever.paper_vectors(demo_corpus, rows)[:] == whole).all()
    assert sum(done) == len(rows)  # each once
    assert not list((tmp_path / "encoding").iterdir())


def test_minilm_puts_like_sentences_together(tiny_corpus: Corpus) -> None:
    from retrieval.encoder import find_folder

    config = ArticleConfig("minilm", max_tokens=64)
    if find_folder(config) is None:
        pytest.skip("all-MiniLM-L6-v2 is not on this machine: make minilm")
    retriever = ArticleRetriever(config, "float32")
    retriever.index(tiny_corpus)
    for split in tiny_corpus.splits.values():
        found = retriever.search(split.contexts, 10)
        assert (found.papers[:, :2] == split.positives.values[:, None]).any(axis=1).mean() > 0.8
        for row, context in enumerate(split.contexts):
            alone = retriever.search(np.array([context]), 10)
            np.testing.assert_allclose(alone.scores[0], found.scores[row], atol=1e-5)
