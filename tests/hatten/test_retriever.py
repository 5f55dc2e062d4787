"""The HAtten retriever compared with cosines of its vectors."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from citerec.base.errors import InputError
from citerec.datasets.corpus import Corpus
from citerec.datasets.prepare import open_corpus
from citerec.hatten.biencoder.model import BiEncoderRetriever
from citerec.hatten.documents import DocumentReader
from citerec.hatten.encoder import HAttenEncoder
from citerec.hatten.model import HAtten, HAttenRetriever
from citerec.hatten.nnselect.model import NNSelectRetriever
from citerec.hatten.static.model import StaticRetriever
from citerec.tests.hatten.made import random_model


def model(corpus: Corpus, **options: Any) -> HAtten:
    return random_model(corpus.words, dim=12, hidden=8, max_tokens=20, **options)


def vectors(encoder: HAttenEncoder, reader: DocumentReader, rows: np.ndarray, papers: bool) -> np.ndarray:
    """Encode rows one at a time."""
    read = reader.papers if papers else reader.queries
    with torch.no_grad():
        result = [F.normalize(encoder.encode(read(np.array([row]))), dim=1).numpy()[0] for row in rows]
    return np.array(result)


def test_ranks_by_the_cosine_of_its_vectors(tiny_corpus: Corpus, tmp_path: Path) -> None:
    trained = model(tiny_corpus)
    trained.save(tmp_path / "hatten")
    retriever = HAttenRetriever(tmp_path, arithmetic="float32")  # the output folder of its training
    retriever.index(tiny_corpus)
    contexts = np.array([8, 2, 11, 0, 2])
    reader = DocumentReader(tiny_corpus, trained.vocabulary, 20)
    papers = vectors(trained.encoder, reader, np.arange(12), papers=True)
    cosines = vectors(trained.encoder, reader, contexts, papers=False) @ papers.T
    cosines[:, ~tiny_corpus.is_candidate] = -np.inf
    cosines[np.arange(5), tiny_corpus.citing[contexts]] = -np.inf
    for k in (3, 50):
        result = retriever.search(contexts, k)
        expected = np.argsort(-cosines, axis=1, kind="stable")[:, : min(k, 10)]  # 11 minus the citing
        assert result.papers[:, :10].tolist() == expected.tolist()
        best = np.take_along_axis(cosines, expected, 1)
        np.testing.assert_allclose(result.scores[:, :10], best, atol=1e-5)
        assert (result.papers[:, 10:] == -1).all()


def test_reads_a_published_checkpoint_with_its_words(tiny_source: Path, tmp_path: Path) -> None:
    golden = Path(__file__).parents[3] / "shared" / "golden" / "hatten_reference.pt"
    if not golden.is_file():
        pytest.skip("the reference's checkpoint is not at ../shared/golden")
    corpus = open_corpus(tiny_source, tokenizer="reference", cache_dir=tmp_path / "cache")
    words = ["<eos>", "<pad>", "<unk>", *corpus.words[:57]]
    (tmp_path / "words.pkl").write_bytes(pickle.dumps(words))
    retriever = HAttenRetriever(golden, tmp_path / "words.pkl").index(corpus)
    result = retriever.search(np.arange(12), 5)
    assert (result.papers >= 0).all() and len(np.unique(result.papers)) > 5


@pytest.mark.parametrize("make", [HAttenRetriever, NNSelectRetriever, BiEncoderRetriever, StaticRetriever])
def test_a_wrong_checkpoint_is_named(make: Callable[[Any], object], tmp_path: Path) -> None:
    for checkpoint, said in (
        (None, "needs checkpoint=FOLDER"),
        (tmp_path / "none", r"none: no such [\w -]+ folder"),
        (tmp_path, r"not a saved [\w -]+ \(no \w+\.json\)"),
    ):
        with pytest.raises(InputError, match=said):
            make(checkpoint)
    with pytest.raises(InputError, match="no such checkpoint"):
        HAttenRetriever(tmp_path / "published.pt", tmp_path / "words.pkl")


def test_a_model_that_knows_few_words_logs_a_warning(
    tiny_corpus: Corpus, demo_corpus: Corpus, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    model(tiny_corpus).save(tmp_path / "hatten")
    retriever = HAttenRetriever(tmp_path / "hatten").index(tiny_corpus)
    assert not caplog.messages
    retriever.index(demo_corpus)
    retriever.save(tmp_path / "index")
    HAttenRetriever(tmp_path / "hatten").load(tmp_path / "index", demo_corpus)  # it was said at indexing
    (line,) = caplog.messages
    assert "% of the words of these papers are new to the model; they may be in another" in line


def test_a_corpus_with_another_tokeniser_is_rejected(
    tiny_source: Path, tiny_corpus: Corpus, tmp_path: Path
) -> None:
    trained = model(tiny_corpus)
    replace(trained, about={"tokenizer": "reference"}).save(tmp_path / "hatten")
    retriever = HAttenRetriever(tmp_path / "hatten")
    said = r"^checkpoint=.*hatten: needs data.tokenizer=reference; tiny has data.tokenizer=default$"
    with pytest.raises(InputError, match=said):
        retriever.index(tiny_corpus)
    retriever.index(open_corpus(tiny_source, tokenizer="reference", cache_dir=tmp_path))
