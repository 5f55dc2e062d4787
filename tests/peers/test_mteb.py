"""Local citation recommendation as a task of MTEB, with the real package: make test-peers."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from citerec.datasets.published.downloads import open_data

mteb = pytest.importorskip("mteb")
sentence_transformers = pytest.importorskip("sentence_transformers")


def test_the_scores_of_a_model_are_those_of_its_vectors(
    tiny_source: Path, tiny_bert: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from citerec.interop.mteb import LocalCitation

    shutil.copytree(tiny_source, tmp_path / "cache" / "published" / "acl200")
    monkeypatch.setenv("CITATION_CACHE", str(tmp_path / "cache"))
    id = "citerec/acl200/train"
    model = sentence_transformers.SentenceTransformer(str(tiny_bert), device="cpu")
    task = LocalCitation(id)
    result = mteb.evaluate(model, task, cache=None, show_progress_bar=False)
    (scores,) = result.task_results[0].scores["train"]
    corpus, split = open_data(id)
    papers = corpus.is_candidate.nonzero()[0]
    documents = model.encode(
        [f"{corpus.titles[row]} {corpus.abstracts[row]}".strip() for row in papers.tolist()]
    )
    places = []
    for row, cited in zip(split.contexts.tolist(), split.positives, strict=True):
        own = int(corpus.citing[row])
        query = model.encode(f"{corpus.context_texts[row]} {corpus.titles[own]}".strip())
        cosine = documents @ query / np.linalg.norm(documents, axis=1)
        ranked = [paper for paper in papers[np.argsort(-cosine)].tolist() if paper != own]
        places.append(min(ranked.index(paper) for paper in cited.tolist()))
    for k in (1, 3, 5):
        assert scores[f"recall_at_{k}"] == pytest.approx(np.mean(np.array(places) < k), abs=1e-5)
    assert scores["mrr_at_100"] == pytest.approx(np.mean(1 / (1 + np.array(places))), abs=1e-5)
    assert scores["main_score"] == scores["recall_at_10"]
    assert scores["recall_at_5"] > 0
