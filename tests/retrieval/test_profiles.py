"""Context profiles against explicit sums, without leaks from validation or test data."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from citerec.datasets.corpus import Corpus
from citerec.datasets.errors import InputError
from citerec.datasets.prepare import open_corpus
from citerec.retrieval.profiles import WEIGHTS, add_profiles, best_weight, combine, context_profiles
from citerec.retrieval.settings import ProfileConfig

DIM = 16


def unit(vectors: NDArray[np.float64]) -> NDArray[np.float32]:
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)


def paper_vectors(corpus: Corpus) -> NDArray[np.float32]:
    rows = np.flatnonzero(corpus.is_candidate)
    return unit(np.random.default_rng(0).standard_normal((len(corpus.paper_ids), DIM)))[rows]


class Encoder:
    """Random vectors of contexts, seeded by their text. Records the contexts."""

    def __init__(self, corpus: Corpus) -> None:
        self.corpus, self.asked = corpus, list[str]()

    def __call__(self, contexts: NDArray[np.int64]) -> NDArray[np.float32]:
        self.asked += [self.corpus.context_ids[row] for row in contexts.tolist()]
        texts = [self.corpus.context_texts[row] for row in contexts.tolist()]
        draws = [np.random.default_rng(list(text.encode())).standard_normal(DIM) for text in texts]
        return unit(np.array(draws).reshape(len(contexts), DIM))


def enriched(corpus: Corpus, encode: Encoder | None = None, **settings: Any) -> tuple[Any, float]:
    candidates = np.flatnonzero(corpus.is_candidate)
    config = ProfileConfig(**settings)
    return add_profiles(paper_vectors(corpus), corpus, candidates, encode or Encoder(corpus), config)


def test_a_profile_is_the_mean_of_the_training_contexts(tiny_corpus: Corpus) -> None:
    encode, candidates = Encoder(tiny_corpus), np.flatnonzero(tiny_corpus.is_candidate)
    found = context_profiles(tiny_corpus, candidates, encode, DIM)
    split = tiny_corpus.split("train")
    for row, paper in enumerate(candidates):
        pairs = zip(split.contexts, split.positives, strict=True)
        citing = [context for context, cited in pairs if paper in cited.tolist()]
        expected = Encoder(tiny_corpus)(np.array(citing)).sum(0) if citing else np.zeros(DIM)
        length = max(float(np.linalg.norm(expected)), 1e-12)
        np.testing.assert_allclose(found[row], expected / length, atol=1e-6)
    assert (found.any(axis=1) == tiny_corpus.seen[candidates]).all()


def test_nothing_of_validation_or_test_enters(tiny_source: Path, tmp_path: Path) -> None:
    before = open_corpus(tiny_source, cache_dir=tmp_path / "cache")
    encode = Encoder(before)
    found, weight = enriched(before, encode, weight=0.5)
    train = {before.context_ids[row] for row in before.split("train").contexts.tolist()}
    assert set(encode.asked) == train and weight == 0.5

    contexts = json.loads((tiny_source / "contexts.json").read_text())
    for key, context in contexts.items():
        if key not in train:
            context["masked_text"] = "Something else entirely TARGETCIT."
    (tiny_source / "contexts.json").write_text(json.dumps(contexts))
    after = open_corpus(tiny_source, cache_dir=tmp_path / "cache")
    assert after.fingerprint != before.fingerprint
    np.testing.assert_array_equal(found, enriched(after, weight=0.5)[0])


def test_the_tuned_weight_has_the_best_recall_of_all(demo_corpus: Corpus) -> None:
    encode, candidates = Encoder(demo_corpus), np.flatnonzero(demo_corpus.is_candidate)
    vectors, config = paper_vectors(demo_corpus), ProfileConfig(weight="auto", measure="recall@20")
    means = context_profiles(demo_corpus, candidates, encode, DIM)
    split = demo_corpus.split("val")
    cosines = encode(split.contexts)

    def recall(weight: float) -> float:
        scores = cosines @ combine(vectors, means, weight).T
        scores[demo_corpus.citing[split.contexts][:, None] == candidates[None]] = -np.inf
        best = candidates[np.argsort(-scores, axis=1, kind="stable")[:, :20]]
        found = [np.isin(cited, row).mean() for cited, row in zip(split.positives, best, strict=True)]
        return float(np.mean(found))

    recalls = {weight: recall(weight) for weight in WEIGHTS}
    assert len(set(recalls.values())) > 1
    encode.asked.clear()
    chosen = best_weight(vectors, means, demo_corpus, candidates, encode, config)
    assert recalls[chosen] == max(recalls.values())
    assert set(encode.asked) == {demo_corpus.context_ids[row] for row in split.contexts.tolist()}


def test_unseen_papers_keep_their_vectors_and_all_stay_of_unit_length(tiny_corpus: Corpus) -> None:
    vectors, (found, _) = paper_vectors(tiny_corpus), enriched(tiny_corpus, weight=0.3)
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1.0, rtol=1e-5)
    seen = tiny_corpus.seen[tiny_corpus.is_candidate]
    np.testing.assert_array_equal(found[~seen], vectors[~seen])
    assert (found[seen] != vectors[seen]).any(axis=1).all()


def test_a_corpus_without_training_contexts_raises_one_line(tiny_source: Path, tmp_path: Path) -> None:
    (tiny_source / "train.json").unlink()
    corpus = open_corpus(tiny_source, cache_dir=tmp_path / "cache")
    with pytest.raises(InputError, match=r"split 'train', which corpus tiny lacks; set profile\.weight=0"):
        enriched(corpus, weight=0.5)


@pytest.mark.parametrize(
    "settings", [{"weight": "much"}, {"weight": 1.5}, {"weight": True}, {"queries": 0}, {"measure": "mrr"}]
)
def test_invalid_settings_raise_one_line(settings: dict[str, object]) -> None:
    with pytest.raises(InputError, match=r"profile\.(weight|queries|measure)="):
        ProfileConfig(**settings)  # type: ignore[arg-type]
