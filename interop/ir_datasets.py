"""The data sets of citerec in ir_datasets: `import citerec.interop.ir_datasets`, then

    ir_datasets.load("citerec/neurips2025-lcr/test")

Documents are papers, queries are contexts with the title and abstract of the citing paper, and qrels are the
cited papers. The data are downloaded or built on first use.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any, NamedTuple

from citerec.base.errors import needs_extra
from citerec.datasets.corpus import Corpus, Split
from citerec.datasets.published.downloads import CORPORA, open_data
from citerec.datasets.published.releases import PREFIX, RELEASES
from citerec.datasets.records import SPLITS
from citerec.evaluation.protocol import Qrels

with needs_extra("citerec.interop.ir_datasets", "peers"):
    import ir_datasets
    from ir_datasets.datasets.base import Dataset
    from ir_datasets.formats import BaseDocs, BaseQrels, BaseQueries, TrecQrel


class Paper(NamedTuple):
    """A candidate: what retrievers rank."""

    doc_id: str
    title: str
    abstract: str
    year: int

    def default_text(self) -> str:
        return f"{self.title} {self.abstract}".strip()


class Context(NamedTuple):
    """A passage with TARGETCIT, and the paper that it is from, which is no answer."""

    query_id: str
    text: str
    title: str
    abstract: str
    citing_id: str

    def default_text(self) -> str:
        return self.text


@cache
def _open(id: str) -> tuple[Corpus, Split]:
    return open_data(id)


class _Part:
    """A part of a data set. id: the id of one of its splits."""

    def __init__(self, id: str) -> None:
        self._id = id


class Papers(_Part, BaseDocs):
    """The candidates of a data set."""

    @ir_datasets.util.use_docstore  # for slices
    def docs_iter(self) -> Iterator[Paper]:
        corpus, _ = _open(self._id)
        for row, id in enumerate(corpus.paper_ids):
            if corpus.is_candidate[row]:
                yield Paper(id, corpus.titles[row], corpus.abstracts[row], int(corpus.years[row]))

    def docs_count(self) -> int:
        return int(_open(self._id)[0].is_candidate.sum())

    def docs_store(self, field: str = "doc_id") -> Any:
        path = ir_datasets.util.home_path() / PREFIX / f"{self._id.split('/')[1]}.pklz4"
        path.parent.mkdir(parents=True, exist_ok=True)
        return ir_datasets.indices.PickleLz4FullStore(
            str(path), self.docs_iter, Paper, field, index_fields=["doc_id"]
        )

    def docs_cls(self) -> type[Paper]:
        return Paper

    def docs_namespace(self) -> str:
        return "/".join(self._id.split("/")[:2])

    def docs_lang(self) -> str:
        return "en"


class Contexts(_Part, BaseQueries):
    """The contexts of a split."""

    def queries_iter(self) -> Iterator[Context]:
        corpus, split = _open(self._id)
        for row in split.contexts.tolist():
            paper = int(corpus.citing[row])
            cited = corpus.titles[paper], corpus.abstracts[paper], corpus.paper_ids[paper]
            yield Context(corpus.context_ids[row], corpus.context_texts[row], *cited)

    def queries_cls(self) -> type[Context]:
        return Context

    def queries_namespace(self) -> str:
        return self._id

    def queries_lang(self) -> str:
        return "en"


class Cited(_Part, BaseQrels):
    """The cited papers of the contexts of a split."""

    def qrels_iter(self) -> Iterator[TrecQrel]:
        for query, papers in Qrels.from_split(*_open(self._id)).judgements.items():
            yield from (TrecQrel(query, paper, relevance, "0") for paper, relevance in papers.items())

    def qrels_cls(self) -> type[TrecQrel]:
        return TrecQrel

    def qrels_defs(self) -> dict[int, str]:
        return {1: "cited in the context"}


def register() -> list[str]:
    """Register all data sets and splits; returns their ids. Importing this module does so."""
    ids = [f"{PREFIX}/{name}/{split}" for name in CORPORA for split in SPLITS]
    for id in ids:
        if id not in ir_datasets.registry:
            documentation = {"desc": RELEASES[id.split("/")[1]].description}
            ir_datasets.registry.register(id, Dataset(Papers(id), Contexts(id), Cited(id), documentation))
    return ids


register()
