"""The data sets of citerec as retrieval tasks of MTEB: local citation recommendation.

    import mteb
    from citerec.interop.mteb import LocalCitation

    mteb.evaluate(mteb.get_model(NAME), LocalCitation("citerec/neurips2025-lcr/test"))

Documents are papers; a query is a context, in which TARGETCIT stands for the missing citation, followed by
the title of the citing paper, which is taken out of its ranking.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

from citerec.base.errors import needs_extra
from citerec.datasets.published.downloads import open_data
from citerec.datasets.published.releases import RELEASES
from citerec.evaluation.protocol import Qrels
from citerec.retrieval.queries import Queries

with needs_extra("citerec.interop.mteb", "peers"):
    from mteb.abstasks import AbsTaskRetrieval
    from mteb.abstasks.task_metadata import TaskMetadata
    from mteb.models import (
        CrossEncoderProtocol,
        SearchCrossEncoderWrapper,
        SearchEncoderWrapper,
        SearchProtocol,
    )

    from datasets import Dataset  # type: ignore[attr-defined]  # Hugging Face's

SUBSET = "default"


class LocalCitation(AbsTaskRetrieval):
    """A split of a data set, by its id."""

    data_loaded: bool

    def __init__(self, id: str, cache_dir: str | None = None, **more: Any) -> None:
        """id: such as citerec/neurips2025-lcr/test. cache_dir: by default, base.files.cache_folder."""
        self._id, self._cache_dir = id, cache_dir
        _, self._name, self._split = id.split("/")
        super().__init__(**more)

    @cached_property  # MTEB deletes a task's own metadata with its data
    def metadata(self) -> TaskMetadata:
        release = RELEASES[self._name]
        return TaskMetadata(
            name=f"LocalCitation-{self._name}",
            description=f"Find the paper to cite in a passage: {release.description}.",
            dataset={"path": self._id, "revision": release.digests.get("contexts.json", "1")},
            type="Retrieval",
            category="t2t",
            modalities=["text"],
            eval_splits=[self._split],
            eval_langs=["eng-Latn"],
            main_score="recall_at_10",
            prompt={"query": "Given a passage in which TARGETCIT is a citation, find the cited paper"},
        )

    def load_data(self, *_: Any, **__: Any) -> None:
        """Read the split; downloads or builds the data on first use."""
        if self.data_loaded:
            return
        corpus, split = open_data(self._id, self._cache_dir)
        queries = Queries.from_contexts(corpus, split)
        ids, texts = queries.names(), zip(queries.texts("context"), queries.texts("title"), strict=True)
        asked = [{"id": id, "text": " ".join(text).strip()} for id, text in zip(ids, texts, strict=True)]
        papers = [
            {"id": corpus.paper_ids[row], "title": corpus.titles[row], "text": corpus.abstracts[row]}
            for row in corpus.is_candidate.nonzero()[0].tolist()
        ]
        qrels = Qrels.from_split(corpus, split).judgements
        own = zip(ids, queries.citing.tolist(), strict=True)
        self._own = {id: corpus.paper_ids[paper] for id, paper in own if paper >= 0}
        self.dataset = {
            SUBSET: {
                self._split: {
                    "corpus": Dataset.from_list(papers),
                    "queries": Dataset.from_list(asked),
                    "relevant_docs": qrels,
                    "top_ranked": None,
                }
            }
        }
        self.data_loaded = True

    def _evaluate_subset(self, model: Any, *arguments: Any, **more: Any) -> Any:
        return super()._evaluate_subset(_WithoutOwn(model, self._own), *arguments, **more)


class _WithoutOwn:
    """A model whose rankings lack the citing paper of each query; own: {query id: paper id}."""

    def __init__(self, model: Any, own: dict[str, str]) -> None:
        if isinstance(model, CrossEncoderProtocol):
            model = SearchCrossEncoderWrapper(model)
        elif not isinstance(model, SearchProtocol):
            model = SearchEncoderWrapper(model)
        self._model, self._own = model, own
        self.mteb_model_meta = model.mteb_model_meta

    def index(self, corpus: Any, **more: Any) -> None:
        self._model.index(corpus, **more)

    def search(self, queries: Any, *, top_k: int, **more: Any) -> dict[str, dict[str, float]]:
        results = self._model.search(queries, top_k=top_k + 1, **more)
        for query, papers in results.items():
            papers.pop(self._own.get(query, ""), None)
        return {
            query: dict(sorted(papers.items(), key=lambda item: -item[1])[:top_k])
            for query, papers in results.items()
        }
