"""The bridge to ir_datasets, with the real package: make test-peers."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from citerec.datasets.published.downloads import open_data
from citerec.datasets.records import SPLITS

ir_datasets = pytest.importorskip("ir_datasets")


def test_documents_queries_and_qrels_are_those_of_the_corpus(
    tiny_source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from citerec.interop.ir_datasets import _open, register

    shutil.copytree(tiny_source, tmp_path / "cache" / "published" / "acl200")
    monkeypatch.setenv("CITATION_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("IR_DATASETS_HOME", str(tmp_path / "home"))
    ids = register()
    assert {f"citerec/{name}/test" for name in ("acl200", "neurips2025-lcr")} < set(ids)
    for split in SPLITS:
        id = f"citerec/acl200/{split}"
        data, (corpus, of) = ir_datasets.load(id), open_data(id)
        papers = {doc.doc_id: doc for doc in data.docs_iter()}
        assert list(papers) == list(corpus.paper_ids) and data.docs_count() == len(papers)
        first = corpus.paper_ids[0]
        assert papers[first].default_text() == f"{corpus.titles[0]} {corpus.abstracts[0]}"
        assert list(data.docs_iter()[:2]) == list(papers.values())[:2]
        assert data.docs_store().get(first) == papers[first]
        queries = list(data.queries_iter())
        assert [query.query_id for query in queries] == [corpus.context_ids[row] for row in of.contexts]
        assert all("TARGETCIT" in query.default_text() for query in queries)
        assert queries[0].title == papers[queries[0].citing_id].title
        result = {(qrel.query_id, qrel.doc_id, qrel.relevance) for qrel in data.qrels_iter()}
        rows = zip(of.contexts.tolist(), of.positives, strict=True)
        pairs = [
            (corpus.context_ids[row], corpus.paper_ids[paper], 1) for row, cited in rows for paper in cited
        ]
        assert result == set(pairs)
    _open.cache_clear()
