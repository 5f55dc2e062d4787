"""Late interaction and SPLADE rank as the real package scores, from random weights: make test-peers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoTokenizer, BertConfig, BertForMaskedLM

from citerec.base.errors import InputError
from citerec.datasets.corpus import Corpus
from citerec.retrieval.encoders.multi_vector import LateInteraction, Splade
from citerec.retrieval.filters import Filters

sentence_transformers = pytest.importorskip("sentence_transformers")


@pytest.fixture(params=[LateInteraction, Splade])
def both(request: Any, tiny_bert: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Any, Any]:
    """One of our retrievers, and the model of the package that it is of, with random weights."""
    torch.manual_seed(0)
    source = str(tiny_bert)
    if request.param is Splade:
        source = str(tmp_path / "words")
        BertForMaskedLM(BertConfig.from_pretrained(tiny_bert)).save_pretrained(source)
        AutoTokenizer.from_pretrained(tiny_bert).save_pretrained(source)
    made = getattr(sentence_transformers, request.param.kind)(source, device="cpu")
    made.save(str(tmp_path / "model"))
    monkeypatch.setattr("citerec.retrieval.encoders.multi_vector.BLOCK", 20)
    monkeypatch.setattr("citerec.retrieval.encoders.multi_vector.PAPERS", 2)
    monkeypatch.setattr("citerec.retrieval.encoders.multi_vector.QUERIES", 2)
    return request.param(str(tmp_path / "model"), device="cpu"), made


def test_the_ranking_is_that_of_the_package(both: Any, tiny_corpus: Corpus, tmp_path: Path) -> None:
    ours, theirs = both
    ours.index(tiny_corpus)
    rows, count = np.flatnonzero(tiny_corpus.is_candidate), len(tiny_corpus.context_ids)
    texts = [
        ". ".join(part for part in (tiny_corpus.titles[row], tiny_corpus.abstracts[row]) if part)
        for row in rows.tolist()
    ]
    asked = [
        f"{text}. {tiny_corpus.titles[citing]}".replace("TARGETCIT", "").replace("OTHERCIT", "")
        for text, citing in zip(tiny_corpus.context_texts, tiny_corpus.citing.tolist(), strict=True)
    ]
    split = theirs.similarity(theirs.encode_query(asked), theirs.encode_document(texts)).numpy()
    found = ours.search(np.arange(count), len(rows))
    for query, own in enumerate(tiny_corpus.citing.tolist()):
        wanted = {int(row): score for row, score in zip(rows, split[query], strict=True) if row != own}
        papers = found.papers[query][found.papers[query] >= 0].tolist()
        assert sorted(papers) == sorted(wanted)
        np.testing.assert_allclose(found.scores[query, : len(papers)], [wanted[p] for p in papers], rtol=2e-3)
    ours.save(tmp_path / "index")
    again = type(ours)(str(tmp_path / "model"), device="cpu")
    again.load(tmp_path / "index", tiny_corpus)
    same = again.search(np.arange(count), 3)
    np.testing.assert_array_equal(same.papers, found.papers[:, :3])
    few = Filters(exclude=[tiny_corpus.paper_ids[row] for row in rows[:2].tolist()])
    kept = ours.search(np.arange(count), 3, few).papers
    assert not np.isin(kept, rows[:2]).any() and (kept >= 0).any()


@pytest.mark.parametrize("kind", [LateInteraction, Splade])
def test_what_is_no_model_is_one_line(kind: Any, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=f"not a {kind.kind}"):
        kind(str(tmp_path))
