"""Averaged word vectors: their formula, as retrievers, and with trained magnitudes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hydra.utils import instantiate

from citerec.base.errors import InputError
from citerec.datasets.corpus import Corpus
from citerec.hatten.documents import Vocabulary
from citerec.hatten.nnselect.model import AverageRetriever, NNSelect, NNSelectRetriever, average_encoder
from citerec.hatten.words.vectors import Embeddings, GloVe, WordVectors
from citerec.retrieval.fusion import Fusion
from citerec.retrieval.lexical.bm25 import BM25
from citerec.tests.composing import compose_config
from citerec.tests.hatten.made import documents, measured_recall
from citerec.tests.retrieval.made import assert_same
from citerec.tests.runs import history, overrides, train_config
from citerec.train import train

SMALL: dict[str, Any] = {
    "model": "nnselect",
    "embeddings.epochs": 10,
    "model.rounds": 3,
    "model.ema": 0.8,
    "model.batch.queries": 32,
    "model.batch.steps_per_round": 15,
    "model.optimizer.lr": 0.1,
}
pytestmark = pytest.mark.filterwarnings("ignore")


def vectors(corpus: Corpus, seed: int = 0) -> WordVectors:
    """Return random vectors of different lengths for the words of a corpus."""
    random = np.random.default_rng(seed)
    table = random.standard_normal((len(corpus.words), 7)) * random.uniform(0.5, 2, (len(corpus.words), 1))
    return WordVectors(corpus.words, table, "random")


def unit(vector: np.ndarray) -> np.ndarray:
    return np.asarray(vector / max(np.linalg.norm(vector), 1e-12))


def test_magnitudes_and_field_weights_are_trained() -> None:
    encoder = average_encoder(np.eye(4, dtype=np.float32), Vocabulary([*"abc"]))
    trained = {name for name, weight in encoder.named_parameters() if weight.requires_grad}
    assert trained == {"mean.word_weight", "mean.paragraph_weight"}
    encoder.encode(documents([[[1, 2], [3]]]))[0, 1].backward()
    assert all(weight.grad is not None for weight in encoder.parameters() if weight.requires_grad)


@dataclass(frozen=True)
class Made(Embeddings):
    """Given word vectors."""

    vectors: WordVectors

    def load(self, corpus: Corpus) -> WordVectors:
        return self.vectors


@pytest.mark.parametrize("weighting", ["mean", "idf"])
def test_ranks_by_the_cosine_of_averages(demo_corpus: Corpus, weighting: str) -> None:
    made = vectors(demo_corpus)
    retriever = AverageRetriever(Made(made), weighting).index(demo_corpus)
    contexts = np.array([5, 0, 17])
    ranking = retriever.search(contexts, 4)
    words = [any(map(str.isalnum, word)) for word in made.words]
    table = made.matrix * np.array(words)[:, None]  # punctuation counts for nothing
    titles, abstracts = demo_corpus.title_tokens, demo_corpus.abstract_tokens
    if weighting == "idf":
        texts = [{*titles[i].tolist(), *abstracts[i].tolist()} for i in range(len(titles))]
        n = np.array([sum(word in text for text in texts) for word in range(len(table))])
        table = table * np.log(1 + (len(texts) - n + 0.5) / (n + 0.5))[:, None]

    def mean(shares: list[float], *fields: np.ndarray) -> np.ndarray:
        """Return the weighted sum of the normalised sums of word vectors of each field, normalised."""
        return unit(np.array(shares) @ [unit(table[field].sum(0)) for field in fields])

    papers = np.array([mean([0.5, 1.0], titles[i], abstracts[i]) for i in range(len(titles))])
    for query, context in enumerate(contexts.tolist()):
        own = int(demo_corpus.citing[context])
        text = demo_corpus.context_tokens[context]
        cosines = papers @ mean([0.5, 0.3, 1.0], titles[own], abstracts[own], text)
        cosines[own] = -np.inf
        cosines[~demo_corpus.is_candidate] = -np.inf
        np.testing.assert_allclose(ranking.scores[query], np.sort(cosines)[::-1][:4], atol=5e-4)
        np.testing.assert_allclose(cosines[ranking.papers[query]], ranking.scores[query], atol=5e-4)


def test_an_index_is_tied_to_its_word_vectors(tiny_corpus: Corpus, tmp_path: Path) -> None:
    @dataclass(frozen=True)
    class Seeded(Embeddings):
        seed: int

        def load(self, corpus: Corpus) -> WordVectors:
            calls.append(self.seed)
            return vectors(corpus, self.seed)

    calls: list[int] = []
    first, second = AverageRetriever(Seeded(0)), AverageRetriever(Seeded(0))
    for retriever in (first, second):
        retriever.open(tiny_corpus, tmp_path / "index")
    assert calls == [0, 0]  # once each
    ours, theirs = (retriever.search(np.arange(12), 5) for retriever in (first, second))
    assert (ours.papers == theirs.papers).all() and (ours.scores == theirs.scores).all()
    for other in (AverageRetriever(Seeded(1)), AverageRetriever(Seeded(0), "mean")):
        with pytest.raises(InputError, match="the index was built with weights="):
            other.open(tiny_corpus, tmp_path / "index")


def test_a_fusion_with_averages_opens_again_and_only_with_the_same_vectors(
    tiny_corpus: Corpus, tmp_path: Path
) -> None:
    def opened(vector: str) -> Fusion:
        lines = [f"{word} {vector}\n" for word in ("of", "to", "speech")]
        (tmp_path / "vectors.txt").write_text("".join(lines))
        embeddings = GloVe(str(tmp_path / "vectors.txt"), cache_dir=str(tmp_path))
        fusion = Fusion({"average": AverageRetriever(embeddings), "bm25": BM25()}, weights="equal")
        fusion.open(tiny_corpus, tmp_path / "index")
        return fusion

    first, again = (opened("1 2.5").search(np.arange(12), 5) for _ in range(2))
    assert_same(first, again)
    with pytest.raises(InputError, match="the index was built with parts="):
        opened("1 2.6")


def test_the_configured_word_vectors_are_made_for_the_corpus(demo: dict[str, Any]) -> None:
    options = {name: value for name, value in demo.items() if not name.startswith("model.")}
    composed = compose_config("evaluate", ["retriever=average", *overrides(options)])
    retriever = instantiate(composed.retriever).index(instantiate(composed.data))
    assert retriever.encoder.dim == 16
    assert (retriever.search(np.arange(5), 10).papers >= 0).all()
    with pytest.raises(InputError, match=r"retriever\.weighting=tfidf: choose mean or idf"):
        AverageRetriever(retriever._embeddings, "tfidf")


def test_sent2vec_averages_the_vectors_of_a_file(demo: dict[str, Any], tmp_path: Path) -> None:
    data = [override for override in overrides(demo) if override.startswith("data")]
    corpus = instantiate(compose_config("evaluate", data).data)
    made = vectors(corpus)
    lines = [f"{word} {' '.join(map(str, row))}" for word, row in zip(made.words, made.matrix, strict=True)]
    (tmp_path / "unigrams.txt").write_text("\n".join(lines) + "\n")
    source = f"embeddings.source={tmp_path / 'unigrams.txt'}"
    options = ["retriever=sent2vec", "embeddings=glove", source, f"embeddings.dim={made.matrix.shape[1]}"]
    ours = instantiate(compose_config("evaluate", [*data, *options]).retriever)
    result, expected = (
        retriever.index(corpus).search(np.arange(5), 10)
        for retriever in (ours, AverageRetriever(Made(made), "mean"))
    )
    np.testing.assert_allclose(result.scores, expected.scores, atol=1e-5)
    assert (result.papers == expected.papers).all()


@pytest.fixture(scope="module")
def best(demo: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file saved by a run."""
    return train(train_config(demo, SMALL, {"output_dir": tmp_path_factory.mktemp("nnselect")}))


def test_it_learns_and_is_saved_with_its_recall(best: Path, demo: dict[str, Any]) -> None:
    assert best.name == "nnselect"
    measured = [row["val/recall@10"] for row in history(best.parent)]
    assert len(measured) == 4 and max(measured[1:]) > measured[0]
    record = NNSelect.open(best).about
    assert record["val/recall@10"] == max(measured[1:]) and record["vectors"] == "word2vec of demo"
    assert measured_recall(NNSelectRetriever(best), demo) == pytest.approx(record["val/recall@10"])


def test_directions_do_not_change(best: Path) -> None:
    directions = torch.from_numpy(NNSelect.open(best).encoder.weights()["word_vectors"])
    lengths = directions[1:].norm(dim=1)  # the first is <pad>
    torch.testing.assert_close(lengths, torch.ones_like(lengths))
    weights = torch.load(best.parent / "last.ckpt", weights_only=True)["state_dict"]
    assert not torch.equal(weights["encoder.mean.word_weight"], weights["average.mean.word_weight"])


@pytest.mark.slow
def test_it_trains_with_the_recipe_of_the_paper(demo: dict[str, Any], tmp_path: Path) -> None:
    config = train_config(demo, SMALL, {"experiment": "paper", "output_dir": tmp_path})
    assert config.model.loss._target_.endswith("Triplet") and train(config).is_dir()
