"""Filtered searches against full rankings from which papers are removed one by one."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from citerec.base.errors import InputError
from citerec.datasets.corpus import Corpus
from citerec.datasets.prepare import open_corpus
from citerec.retrieval.base import Retriever
from citerec.retrieval.dense import DenseRetriever
from citerec.retrieval.filters import Filters
from citerec.retrieval.lexical.bm25 import BM25
from citerec.retrieval.popularity import Popularity
from citerec.retrieval.queries import Queries

PAPERS, CONTEXTS, CITING = 60, 48, range(48, 60)
WORDS = ["parse", "tree", "graph", "edge", "sound", "image", "verse", "query", "model", "corpus"]


class Drawn(DenseRetriever):
    """Encodes papers and contexts as random vectors."""

    name = "drawn"

    def fingerprint(self) -> dict[str, Any]:
        return {}

    def prepare(self, corpus: Corpus) -> None:
        rng = np.random.default_rng(0)
        self.papers, self.contexts = (
            (drawn / np.linalg.norm(drawn, axis=1, keepdims=True)).astype(np.float32)
            for drawn in (rng.standard_normal((PAPERS, 8)), rng.standard_normal((CONTEXTS, 8)))
        )

    def encode_papers(self, rows: NDArray[np.int64]) -> NDArray[np.float32]:
        return self.papers[rows]

    def encode_queries(self, queries: Queries | NDArray[np.int64]) -> NDArray[np.float32]:
        return self.contexts[Queries.from_contexts(self.corpus, queries).contexts]


@pytest.fixture(scope="module")
def source() -> dict[str, Any]:
    """Papers with years (a few unknown) and fields (none, one or two); the last twelve cite the others."""
    rng = np.random.default_rng(1)

    def text() -> str:
        return " ".join(rng.choice(WORDS, 6))

    papers = {
        f"p{i}": {
            "title": text(),
            "abstract": text() if i % 9 else "",
            "year": int(rng.choice([0, 2001, 2002, 2003, 2004])),
            "area": [["math"], "art", ["math", "law"], None][int(rng.integers(4))],
        }
        for i in range(PAPERS)
    }
    content: dict[str, Any] = {"papers": papers, "contexts": {}, "train": [], "val": [], "test": []}
    for i in range(CONTEXTS):
        citing = CITING[i % len(CITING)]
        split = ("train", "val", "test")[citing % 3]
        cited = f"p{rng.integers(24 if split == 'train' else PAPERS)}"
        content["contexts"][f"c{i}"] = {"masked_text": f"{text()} TARGETCIT", "citing_id": f"p{citing}"}
        content[split].append({"context_id": f"c{i}", "positive_ids": [cited]})
    return content


@pytest.fixture(scope="module")
def corpus(source: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    folder = tmp_path_factory.mktemp("drawn")
    for stem, content in source.items():
        (folder / f"{stem}.json").write_text(json.dumps(content))
    return open_corpus(folder, cache_dir=folder / "cache", field="area")


@pytest.fixture(scope="module", params=[BM25, Popularity, Drawn])
def retriever(request: pytest.FixtureRequest, corpus: Corpus) -> Retriever:
    made: Retriever = request.param().index(corpus)
    return made


def passes(filters: Filters, source: dict[str, Any], paper_id: str, citing_id: str) -> bool:
    """Whether a query of the citing paper may get the paper, according to the source files."""
    paper = source["papers"][paper_id]
    areas = [paper["area"]] if isinstance(paper["area"], str) else paper["area"] or []
    wanted = [filters.field] if isinstance(filters.field, str) else filters.field
    latest = source["papers"][citing_id]["year"] if filters.year == "citing" else filters.year
    return (
        bool(paper["abstract"])
        and paper_id != citing_id
        and paper_id not in filters.exclude
        and (wanted is None or any(area in wanted for area in areas))
        and (not latest or paper["year"] <= int(latest))
        and not (filters.unseen and any(paper_id in query["positive_ids"] for query in source["train"]))
    )


FILTERS = st.builds(
    Filters,
    exclude=st.lists(st.sampled_from([f"p{i}" for i in range(PAPERS)]), max_size=40),
    year=st.sampled_from([None, "citing", 2001, 2002, 2003, 2004]),
    field=st.sampled_from([None, "math", "law", ["art"], ["math", "art"]]),
    unseen=st.booleans(),
)


@settings(max_examples=25)
@given(filters=FILTERS, k=st.integers(1, 70))
def test_combined_filters(
    retriever: Retriever, corpus: Corpus, source: dict[str, Any], filters: Filters, k: int
) -> None:
    fixed = replace(filters, year=None) if filters.year == "citing" else filters
    contexts = np.arange(CONTEXTS)[::-1]
    if not any(passes(fixed, source, paper, "-") for paper in source["papers"]):
        with pytest.raises(InputError, match="leaves none of the candidates"):
            retriever.search(contexts, k, filters)
        return
    whole, result = retriever.search(contexts, PAPERS), retriever.search(contexts, k, filters)
    assert result.papers.shape == (CONTEXTS, k)
    names = corpus.paper_ids
    allowed = {
        citing: {row for row, paper in enumerate(names) if passes(filters, source, paper, names[citing])}
        for citing in set(corpus.citing.tolist())
    }
    for row, citing in enumerate(corpus.citing[contexts].tolist()):
        ranked = zip(whole.papers[row].tolist(), whole.scores[row].tolist(), strict=True)
        left = [pair for pair in ranked if pair[0] in allowed[citing]][:k]
        assert result.papers[row].tolist() == [p for p, _ in left] + [-1] * (k - len(left))
        np.testing.assert_allclose(result.scores[row, : len(left)], [score for _, score in left], rtol=1e-5)


def test_a_citing_paper_of_an_unknown_year_gets_papers_of_any_year(
    corpus: Corpus, source: dict[str, Any]
) -> None:
    years = {paper: source["papers"][paper]["year"] for paper in (f"p{i}" for i in CITING)}
    assert 0 in years.values() and 2001 in years.values()  # otherwise the test above is too weak
    queries = Queries.from_contexts(corpus, np.arange(CONTEXTS))
    for contexts, allowed in Filters(year="citing").groups(queries):
        (year,) = set(corpus.years[corpus.citing[contexts]].tolist())
        assert set(corpus.years[allowed].tolist()) == {0, 2001, 2002, 2003, 2004} - (
            set(range(year + 1, 2005)) if year else set()
        )


@pytest.mark.parametrize(
    ("filters", "message"),
    [
        (Filters(exclude=["p1", "px", "py"]), r"filters.exclude: .* no paper 'px' \(and 1 more\)"),
        (Filters(exclude=[f"p{i}" for i in range(PAPERS)]), "filters.exclude: leaves none of the candidates"),
        (Filters(exclude=[1]), "no paper '1'"),  # type: ignore[list-item]
        (Filters(year=-3), "filters.year=-3: leaves none of the candidates"),
        (Filters(field="history"), "no paper has the field 'history'; choose from 'math', 'art', 'law'"),
        *((Filters(field=field), "no paper has the field '1'") for field in (1, [1])),  # type: ignore[arg-type]
        (Filters(field=[]), "filters.field=.*: leaves none of the candidates"),
    ],
)
def test_unusable_filters_raise_one_line(corpus: Corpus, filters: Filters, message: str) -> None:
    retriever = Popularity().index(corpus)
    with pytest.raises(InputError, match=message):
        retriever.search(np.arange(3), 5, filters)


def test_excluded_ids_may_be_in_a_file(corpus: Corpus, tmp_path: Path) -> None:
    (tmp_path / "ids.txt").write_text("p1\r\n\n  p50 \np7")
    listed, read = Filters(exclude=["p1", "p50", "p7"]), Filters(exclude=str(tmp_path / "ids.txt"))
    assert read == listed and str(read) == "exclude: 3 papers (6c2bb0ae)"
    np.testing.assert_array_equal(read.allowed(corpus), listed.allowed(corpus))


def test_a_file_of_ids_must_be_text(tmp_path: Path) -> None:
    (tmp_path / "ids.txt").write_bytes(b"\xff\xfe")
    with pytest.raises(InputError, match="not UTF-8 text"):
        Filters(exclude=str(tmp_path / "ids.txt"))


def test_str_lists_the_filters() -> None:
    assert not Filters() and str(Filters()) == ""
    asked = Filters(exclude=["a"], year="citing", field=["x", "y"], unseen=True)
    text = "exclude: 1 papers (f95b9f01), year: citing, field: x or y, unseen: true"
    assert asked and str(asked) == text
    texts = [str(Filters(exclude=list(ids))) for ids in ("ab", "ba", "ac")]
    assert texts[0] == texts[1] != texts[2]
