"""Sampling follows Medić and Šnajder 2022, compared with plain versions of the rules, and is seeded."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from citerec.base.errors import InputError
from citerec.datasets.citations.graph import CitationGraph, open_graph
from citerec.evaluation.benchmarks.papers.sampling import SampledPool, Sampler, dataset_pools, field_pools
from citerec.evaluation.settings import SamplingRules
from citerec.tests.datasets.conftest import write_lines
from citerec.tests.evaluation.conftest import world

ANY = SamplingRules(min_citations=0)


def plain_rules(
    papers: list[dict[str, Any]], rules: SamplingRules
) -> tuple[set[str], set[str], dict[str, set[str]]]:
    """Candidates, queries, and the relevant papers of each paper, following the paper's description."""
    by_id = {paper["paper_id"]: paper for paper in papers}
    counts = dict.fromkeys(by_id, 0)
    for paper in papers:
        for other in set(paper["references"]) & set(by_id):
            counts[other] += 1
    passing = {
        name
        for name, paper in by_id.items()
        if paper["year"]
        and paper["title"]
        and len(paper["abstract"]) >= rules.min_abstract
        and counts[name] >= rules.min_citations
    }
    candidates = {name for name in passing if rules.year is None or by_id[name]["year"] <= rules.year}
    relevant = {
        name: {
            other
            for other in set(paper["references"]) & candidates
            if not paper["year"] or by_id[other]["year"] <= paper["year"]
        }
        for name, paper in by_id.items()
    }
    of_year = {name for name in passing if rules.year is None or by_id[name]["year"] == rules.year}
    return candidates, {name for name in of_year if len(relevant[name]) >= rules.min_cited}, relevant


@settings(max_examples=20)
@given(
    st.integers(0, 5),
    st.builds(
        SamplingRules,
        year=st.sampled_from([None, 2002, 2005]),
        min_citations=st.integers(0, 3),
        min_abstract=st.sampled_from([0, 30, 60]),
        min_cited=st.integers(1, 4),
    ),
)
def test_candidates_queries_and_relevant_papers_follow_the_rules(seed: int, rules: SamplingRules) -> None:
    papers = world(60, seed)
    candidates, queries, relevant = plain_rules(papers, rules)
    with tempfile.TemporaryDirectory() as folder:
        graph = open_graph(write_lines(Path(folder) / "papers.jsonl", papers), cache_dir=folder)
        sampler = Sampler(graph, rules, seed=0)
        assert {graph.ids[row] for row in np.flatnonzero(sampler.candidates)} == candidates
        for row, result in enumerate(sampler.relevant):
            assert {graph.ids[item] for item in result.tolist()} == relevant[graph.ids[row]]
        if not queries:
            with pytest.raises(InputError, match=r"no paper.* passes the filters"):
                sampler.queries(None, 0)
            return
        assert {graph.ids[row] for row in np.flatnonzero(sampler.query_mask)} == queries
        test, val = sampler.queries(3, 4)
        assert len(test) == min(3, len(queries)) and len(val) == min(4, len(queries) - len(test))
        assert {graph.ids[row] for row in [*test, *val]} <= queries and not set(test) & set(val)


@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(0, 1000), st.integers(1, 10), st.integers(1, 3))
def test_pools_hold_all_cited_papers_and_are_nested(
    graph: CitationGraph, seed: int, number: int, samplings: int
) -> None:
    def pools() -> list[SampledPool]:
        sampler = Sampler(graph, SamplingRules(year=2005, min_citations=0), seed)
        return dataset_pools(sampler, sampler.queries(number, 0)[0], sizes, samplings)

    sampler = Sampler(graph, SamplingRules(year=2005, min_citations=0), seed)
    queries, _ = sampler.queries(number, 0)
    cited = set(sampler.cited_by(queries).tolist())
    assert cited == {item for row in queries for item in sampler.relevant[row].tolist()}
    everything = int(np.count_nonzero(sampler.candidates))
    sizes = [len(cited), len(cited) + 7, everything, everything + 12]
    by_name = {(int(pool.group), pool.sampling): pool.papers for pool in pools()}
    assert all(np.array_equal(by_name[int(p.group), p.sampling], p.papers) for p in pools())
    # The smallest pool and that of all candidates are the same in every sampling, so they occur once.
    once = [key for key in by_name if key[0] in (len(cited), everything)]
    assert once == [(len(cited), 0), (everything, 0)] or len(cited) + 7 == everything
    for (size, sampling), papers in by_name.items():
        pool = set(papers.tolist())
        assert len(papers) == size == len(pool) and cited <= pool
        assert all(sampler.candidates[row] or graph.is_distractor[row] for row in pool)
        if size <= everything:
            assert not graph.is_distractor[papers].any() and (graph.years[papers] <= 2005).all()
        else:
            assert set(np.flatnonzero(sampler.candidates).tolist()) <= pool
        if (sizes[1], sampling) in by_name and size > sizes[1]:
            assert set(by_name[sizes[1], sampling].tolist()) <= pool


def test_draws_depend_only_on_seed_and_purpose(graph: CitationGraph) -> None:
    def drawn(seed: int, *, validation: int = 5) -> list[int]:
        return Sampler(graph, ANY, seed).queries(8, validation)[0].tolist()

    assert drawn(0) == drawn(0, validation=50) and drawn(0) != drawn(1)
    sampler = Sampler(graph, ANY, 0)
    before = sampler.queries(5, 0, graph.in_field("Law"), "Law")[0].tolist()
    sampler.queries(5, 0, graph.in_field("Art"), "Art")
    assert sampler.queries(5, 0, graph.in_field("Law"), "Law")[0].tolist() == before


def test_unlisted_papers_are_not_queries(graph: CitationGraph, tmp_path: Path) -> None:
    may = Sampler(graph, ANY, 0).queries(None, 0)[0]
    names = [graph.ids[row] for row in may]
    (tmp_path / "queries.json").write_text(f'{{"test": ["{names[4]}", "p0"], "val": ["{names[5]}"]}}')
    listed = Sampler(graph, SamplingRules(min_citations=0, queries_file=str(tmp_path / "queries.json")), 0)
    assert [result.tolist() for result in listed.queries(None, 9)] == [[may[4]], [may[5]]]  # p0 cites nothing
    assert "1 of the 2 papers listed for test cannot be queries." in listed.facts()


def test_field_pools_hold_papers_that_the_field_cites(graph: CitationGraph) -> None:
    sampler = Sampler(graph, SamplingRules(year=2005, min_citations=0), 0)
    papers = [paper for paper in world() if "Law" in paper["fields"]]
    cited = {other for paper in papers for other in paper["references"]}
    candidates = {graph.ids[row] for row in np.flatnonzero(sampler.candidates)}
    assert {graph.ids[row] for row in sampler.cited_by_field("Law")} == cited & candidates
    test, _ = sampler.queries(4, 0, graph.in_field("Law"), "Law")
    assert all("Law" in world()[row]["fields"] and world()[row]["year"] == 2005 for row in test)
    whole = field_pools(sampler, {"Law": test}, 10_000, 3)
    assert len(whole) == 1 and {graph.ids[row] for row in whole[0].papers} == cited & candidates
    size = len(sampler.cited_by(test)) + 3
    some = field_pools(sampler, {"Law": test}, size, 3)
    assert [pool.sampling for pool in some] == [0, 1, 2] and all(len(pool.papers) == size for pool in some)
    assert all(set(sampler.cited_by(test)) <= set(pool.papers) <= set(whole[0].papers) for pool in some)


def test_impossible_pools_are_refused(graph: CitationGraph) -> None:
    sampler = Sampler(graph, ANY, 0)
    queries, _ = sampler.queries(30, 0)
    with pytest.raises(
        InputError, match=r"a pool of 2 papers cannot hold the \d+ papers that the 30 queries"
    ):
        dataset_pools(sampler, queries, [2], 1)
    with pytest.raises(InputError, match=r"a pool of 999 papers cannot be filled, .* only \d+ candidates"):
        dataset_pools(sampler, queries, [999], 1)
    with pytest.raises(InputError, match=r"queries of the field Law cite"):
        field_pools(sampler, {"Law": queries}, 2, 1)


def test_a_year_without_queries_is_named(graph: CitationGraph) -> None:
    with pytest.raises(InputError, match=r"no paper of 1950 passes the filters and cites at least 1 cand"):
        Sampler(graph, SamplingRules(year=1950), 0).queries(None, 0)
