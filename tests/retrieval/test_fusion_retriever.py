"""The retriever that fuses others: BM25 and popularity on the tiny corpus."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from datasets.corpus import Corpus
from datasets.errors import InputError
from datasets.prepare import open_corpus
from retrieval.base import Ranking, Retriever
from retrieval.bm25 import BM25
from retrieval.filters import Filters
from retrieval.fusion import Fusion
from retrieval.popularity import Popularity
from retrieval.tuning import convex, reciprocal_rank


def _parts() -> dict[str, Retriever]:
    return {"words": BM25(), "fame": Popularity()}


def _indexed(corpus: Corpus, **options: Any) -> Fusion:
    fusion = Fusion(_parts(), **options)
    fusion.index(corpus)
    return fusion


def _same(found: Ranking, expected: Ranking) -> None:
    np.testing.assert_array_equal(found.papers, expected.papers)
    np.testing.assert_array_equal(found.scores, expected.scores)


ALL = np.arange(12)


@pytest.mark.parametrize(
    "filters", [None, Filters(exclude=["parsing"]), Filters(unseen=True), Filters(year="citing")]
)
@pytest.mark.parametrize("method", ["convex", "rrf"])
def test_what_it_finds_is_what_its_parts_find_fused(
    tiny_corpus: Corpus, method: str, filters: Filters | None
) -> None:
    fusion = _indexed(tiny_corpus, method=method, weights={"words": 3, "fame": 1}, rank_constant=5)
    words, fame = _parts().values()
    words.index(tiny_corpus)
    fame.index(tiny_corpus)
    rankings = [part.search(ALL, 2000, filters) for part in (words, fame)]
    weights = np.array([[0.75, 0.25]])
    found = fusion.search(ALL, 11, filters)
    _same(
        found,
        convex(rankings, weights, 11) if method == "convex" else reciprocal_rank(rankings, 11, 5, weights),
    )
    assert not (found.papers == tiny_corpus.citing[ALL][:, None]).any()
    assert (found.papers[:, 0] >= 0).any()


def test_the_first_papers_do_not_depend_on_k_and_depth_bounds_them(tiny_corpus: Corpus) -> None:
    fusion = _indexed(tiny_corpus, depth=2, weights="equal")
    many = fusion.search(ALL, 11)
    for k in (1, 2, 3):
        few = fusion.search(ALL, k)
        _same(few, Ranking(many.papers[:, :k], many.scores[:, :k]))
    assert 2 <= (many.papers >= 0).sum(axis=1).max() <= 4


def _changed(source: Path, tmp_path: Path, split: str, context: str, target: str) -> Corpus:
    """The corpus with another target and another text in one context of a split."""
    contexts = json.loads((source / "contexts.json").read_text())
    contexts[context] |= {
        "masked_text": "Nothing that anyone else in the world would ever say TARGETCIT.",
        "refid": target,
    }
    queries = json.loads((source / f"{split}.json").read_text())
    for query in queries:
        if query["context_id"] == context:
            query["positive_ids"] = [target]
    (source / "contexts.json").write_text(json.dumps(contexts))
    (source / f"{split}.json").write_text(json.dumps(queries))
    return open_corpus(source, cache_dir=tmp_path / "cache")


@pytest.mark.parametrize("by", [None, "context_length", "words"])
def test_weights_come_from_validation_and_never_from_test(
    tiny_source: Path, tmp_path: Path, by: str | None
) -> None:
    options: dict[str, Any] = {"measure": "recall@1", "by": by, "buckets": 2}
    before = _indexed(open_corpus(tiny_source, cache_dir=tmp_path / "cache"), **options).tuned
    other = _changed(tiny_source, tmp_path, "test", "c9", "parsing")
    assert _indexed(other, **options).tuned == before
    # Both validation queries now want the most popular paper, and share no word with it.
    _changed(tiny_source, tmp_path, "val", "c7", "parsing")
    other = _changed(tiny_source, tmp_path, "val", "c8", "parsing")
    after = _indexed(other, **options).tuned
    assert np.min(after["weights"]["fame"]) > np.max(before["weights"]["fame"])


def test_each_bucket_of_queries_has_weights_of_its_own(tiny_source: Path, tmp_path: Path) -> None:
    # The longer context of validation, c7, wants what only popularity finds; the other what BM25 finds.
    corpus = _changed(tiny_source, tmp_path, "val", "c7", "parsing")
    fusion = _indexed(corpus, by="context_length", buckets=2, measure="recall@1")
    lengths = corpus.context_tokens.take(ALL).lengths
    (bound,) = fusion.tuned["bounds"]
    table = np.array([fusion.tuned["weights"]["words"], fusion.tuned["weights"]["fame"]]).T
    assert table[0, 1] < table[1, 1] and np.allclose(table.sum(axis=1), 1)
    weights = table[(lengths > bound).astype(int)]
    assert len(np.unique(weights, axis=0)) == 2
    rankings = [part.search(ALL, 2000) for part in fusion.parts.values()]
    _same(fusion.search(ALL, 11), convex(rankings, weights, 11))


@pytest.mark.parametrize("options", [{}, {"by": "fame"}, {"method": "rrf", "weights": "equal"}])
def test_a_loaded_fusion_finds_what_the_saved_one_does(
    tiny_corpus: Corpus, tmp_path: Path, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    fusion = _indexed(tiny_corpus, **options)
    fusion.save(tmp_path / "index")
    monkeypatch.setattr(Fusion, "_index", None)  # nothing is indexed or tuned again
    loaded = Fusion(_parts(), **options)
    loaded.load(tmp_path / "index", tiny_corpus)
    assert loaded.tuned == fusion.tuned
    assert loaded.index_bytes == fusion.index_bytes == sum(part.index_bytes for part in fusion.parts.values())
    _same(loaded.search(ALL, 5), fusion.search(ALL, 5))


@pytest.mark.parametrize(
    "options", [{"depth": 7}, {"normalise": "minmax"}, {"weights": "equal"}, {"by": "words"}, {"seed": 1}]
)
def test_an_index_of_other_settings_is_refused(
    tiny_corpus: Corpus, tmp_path: Path, options: dict[str, Any]
) -> None:
    _indexed(tiny_corpus).save(tmp_path / "index")
    with pytest.raises(InputError, match="an index of another"):
        Fusion(_parts(), **options).load(tmp_path / "index", tiny_corpus)
    with pytest.raises(InputError, match="an index of another parts"):
        Fusion({"words": BM25(k1=0.5), "fame": Popularity()}).load(tmp_path / "index", tiny_corpus)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"parts": {}}, "retriever.parts: there is none"),
        ({"method": "sum"}, "retriever.method: 'sum' is not one of convex, rrf"),
        ({"normalise": "sum"}, "retriever.normalise: 'sum' is not one of zscore, minmax, none"),
        ({"by": "year"}, "retriever.by: 'year' is not one of context_length, words, fame"),
        ({"depth": 0}, "retriever.depth: 0 is no whole number from 1 on"),
        ({"buckets": 1.5, "by": "fame"}, "retriever.buckets: 1.5 is no whole number from 2 on"),
        ({"depth": True}, "retriever.depth: True is no whole number"),
        ({"rank_constant": -1}, "retriever.rank_constant: -1 is no number"),
        ({"rank_constant": np.nan}, "retriever.rank_constant: nan is no number"),
        ({"measure": ["recall@10", "mrr"]}, "retriever.measure=mrr: choose recall@K"),
        ({"measure": []}, "retriever.measure"),
        ({"weights": "best"}, "neither tuned nor equal nor a weight for each of words, fame"),
        ({"weights": {"words": 1}}, "a weight for each of words, fame"),
        ({"weights": {"words": 1, "fame": -1}}, "retriever.weights.fame: -1 is no number"),
        ({"weights": {"words": 0, "fame": 0}}, "one of them must be above 0"),
        ({"weights": "equal", "by": "words"}, "retriever.by=words: only weights=tuned"),
    ],
)
def test_bad_options_are_one_line(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Fusion(**{"parts": _parts(), **options})


def test_without_a_validation_split_weights_must_be_given(tiny_source: Path, tmp_path: Path) -> None:
    corpus = open_corpus(tiny_source, cache_dir=tmp_path / "cache", splits=["train", "test"])
    with pytest.raises(InputError, match=r"set retriever\.weights to equal"):
        _indexed(corpus)
    assert (_indexed(corpus, weights="equal").search(ALL[8:], 3).papers >= 0).any()
