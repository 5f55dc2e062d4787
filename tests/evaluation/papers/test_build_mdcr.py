"""A benchmark like MDCR: candidates follow section 4.1, compared with plain versions of the rules."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from citerec.base.errors import InputError
from citerec.datasets.citations.graph import open_graph
from citerec.evaluation.benchmarks.papers import build_mdcr
from citerec.evaluation.benchmarks.papers.build_mdcr import (
    MdcrSettings,
    graph_candidates,
    neighbourhoods,
    overlaps,
)
from citerec.evaluation.benchmarks.papers.mdcr import MDCR, TRUE, candidate_types, read_pools
from citerec.evaluation.benchmarks.papers.sampled import FieldLevel
from citerec.evaluation.report import Provenance
from citerec.evaluation.settings import SamplingRules
from citerec.retrieval.lexical.bm25 import BM25
from citerec.retrieval.run import Run
from citerec.tests.evaluation.conftest import metrics_of, world

RULES = SamplingRules(min_citations=0, min_cited=2)
NAMES = [f"p{number}" for number in range(9)]


@given(st.lists(st.sets(st.sampled_from(NAMES), max_size=6), min_size=9, max_size=9), st.data())
def test_neighbours_and_overlaps_agree_with_plain_sets(
    references: list[set[str]], data: st.DataObject
) -> None:
    oc = {name: result - {name} for name, result in zip(NAMES, references, strict=True)}
    ic = {name: {other for other in NAMES if name in oc[other]} for name in NAMES}
    lines = [json.dumps({"paper_id": name, "references": sorted(result)}) for name, result in oc.items()]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "papers.jsonl"
        path.write_text("\n".join(lines))
        graph = open_graph(path, cache_dir=folder)
        for row, name in enumerate(NAMES):
            if not oc[name]:
                continue
            around = neighbourhoods(graph, graph.cites[row])
            cited = [NAMES[item] for item in graph.cites[row].tolist()]
            for c, result in zip(cited, around, strict=True):
                assert {NAMES[item] for item in result.tolist()} == oc[c] | ic[c] and len(set(result)) == len(
                    result
                )
            plain = {c: len(oc[name] & (oc[c] | ic[c])) / len(oc[name]) for c in cited}
            assert overlaps(graph.cites[row], around).tolist() == pytest.approx(list(plain.values()))

            barred = data.draw(st.sets(st.sampled_from(NAMES)))
            allowed = np.array([item not in oc[name] | barred for item in NAMES])
            number, rng = data.draw(st.integers(1, 5)), np.random.default_rng(0)
            got = [NAMES[item] for item in graph_candidates(graph, row, allowed, number, rng)]
            order = sorted(cited, key=lambda c: (-plain[c], NAMES.index(c)))
            wanted: list[set[str]] = []
            for c in order:
                wanted.append((oc[c] | ic[c]) - oc[name] - barred - {name} - set().union(*wanted))
            assert len(got) == min(number, sum(map(len, wanted))) == len(set(got))
            start = 0
            for group in wanted:  # whole neighbourhoods first, then a part of the last one
                part = set(got[start : start + len(group)])
                assert part <= group
                start += len(part)
            assert start == len(got)


@pytest.fixture
def models(world_file: Path, tmp_path: Path) -> dict[str, Path]:
    """Field-level evaluations of three models, two of which give the same lists."""
    fields = {"whole": ["context", "title"], "again": ["context", "title"], "title": ["title"]}
    options: dict[str, Any] = {"queries": 8, "run_depth": 20, "samplings": 1, "cache_dir": tmp_path / "cache"}
    options |= {"min_queries": 1, "tune": None}
    for name, query in fields.items():
        benchmark = FieldLevel(size=40, papers=world_file, rules=RULES, **options)
        benchmark.run(tmp_path / name, Provenance(), partial(BM25, query=query))
    return {name: tmp_path / name for name in fields}


@pytest.fixture
def build(world_file: Path, tmp_path: Path, models: dict[str, Path]) -> Callable[..., str]:
    """Runs the command on these models with the given options."""

    def run(output: str = "out", models: dict[str, Path] = models, **options: Any) -> str:
        defaults: dict[str, Any] = {"papers": world_file, "cache_dir": tmp_path / "cache"}
        folders = tuple(f"{name}:{folder}" for name, folder in models.items())
        return build_mdcr.build(
            MdcrSettings(**{**defaults, "models": folders, "output": tmp_path / output, **options})
        )

    return run


def test_pools_have_the_types_of_the_paper(
    build: Callable[..., str], tmp_path: Path, models: dict[str, Path]
) -> None:
    options = {"choose": 2, "cited": 2, "negatives": 3, "top": 12}
    reports = [build(name, seed=seed, **options) for name, seed in (("one", 0), ("two", 0), ("three", 1))]
    item, two, three = (
        [(tmp_path / name / file).read_bytes() for file in ("mdcr.json", "mdcr_data.jsonl")]
        for name in ("one", "two", "three")
    )
    assert item == two and item[0] != three[0]
    assert "| title |" in reports[0] and "yes |" in reports[0]

    pools = read_pools(tmp_path / "one" / "mdcr.json")
    assert list(pools) == ["Art", "Law", "Physics"] and sum(map(len, pools.values())) == 24
    # `whole` and `again` give the same lists: chosen are the third model and the first of these two.
    assert candidate_types(pools) == ["whole", "title", "graph", "most_cited", "random"]
    papers = {paper["paper_id"]: paper for paper in world()}
    often = {name: sum(name in set(paper["references"]) for paper in papers.values()) for name in papers}
    passing = {name for name, p in papers.items() if p["year"] and p["title"] and len(p["abstract"]) >= 30}
    runs = {
        name: {
            query: list(result)
            for batch in Run.read(folder / "run.trec").batches(50)
            for query, result in batch.items()
        }
        for name, folder in models.items()
    }
    for field, queries in pools.items():
        in_field = sorted(
            (n for n in passing if field in papers[n]["fields"]), key=lambda n: (-often[n], int(n[1:]))
        )
        for name, query in queries.items():
            references, cited = set(papers[name]["references"]), query.pop(TRUE)
            pool = [paper for result in query.values() for paper in result] + cited
            assert len(pool) == len(set(pool)) and name not in pool and set(pool) <= passing
            assert all(papers[paper]["year"] <= papers[name]["year"] for paper in pool)
            assert len(cited) == 2 and set(cited) <= references
            for kind, result in query.items():
                assert len(result) <= 3 and not set(result) & references, kind
            assert len(query["random"]) == 3
            assert set(query["most_cited"]) <= set(in_field[:12])
            for model in ("whole", "title"):
                assert set(query[model]) <= set(runs[model][f"{field}/{name}"][:12])
    texts = [json.loads(line) for line in (tmp_path / "one" / "mdcr_data.jsonl").read_text().splitlines()]
    named = json.loads((tmp_path / "one" / "mdcr.json").read_text()).values()
    used = {
        paper
        for queries in named
        for pool in queries.values()
        for result in pool.values()
        for paper in result
    }
    assert {text["paper_id"] for text in texts} == used.union(*named)

    benchmark = MDCR(file=tmp_path / "one" / "mdcr.json", cache_dir=tmp_path / "cache")
    benchmark.run(tmp_path / "scored", Provenance(), BM25)
    assert list(metrics_of(tmp_path / "scored")) == ["Art", "Law", "Physics", "AVG"]
    types = json.loads((tmp_path / "scored" / "candidate_types.json").read_text())
    assert list(types) == ["whole", "title", "graph", "most_cited", "random"]


def test_missing_candidates_are_counted_and_named(build: Callable[..., str]) -> None:
    report = build(top=12)
    assert "queries cite fewer than 5 candidates and are left out: " in report
    assert "candidates of type whole." in report


def test_unusable_models_are_named(
    build: Callable[..., str], world_file: Path, tmp_path: Path, models: dict[str, Path]
) -> None:
    (tmp_path / "more.jsonl").write_text('{"paper_id": "z"}\n')
    (tmp_path / "few").mkdir()
    sample = json.loads((models["title"] / "sample.json").read_text())
    sample["queries"]["Art"] = sample["queries"]["Art"][:3]
    (tmp_path / "few" / "sample.json").write_text(json.dumps(sample))
    (tmp_path / "few" / "run.trec").write_bytes((models["title"] / "run.trec").read_bytes())
    cases: list[tuple[dict[str, Any], str]] = [
        ({"models": {"graph": models["title"]}}, "models: graph is the name of a candidate type"),
        ({"models": {"x": tmp_path / "cache"}}, r"models\.x: .*cache has no sample\.json"),
        ({"models": {}}, "models: give at least one"),
        ({"negatives": 0}, "negatives=0: must be at least 1"),
        ({"models": models | {"few": tmp_path / "few"}}, r"models\.few: the queries of .*few is not that of"),
        ({"papers": [world_file, tmp_path / "more.jsonl"]}, r"models\.whole: the graph of .* is not that of"),
        ({"cited": 50}, "no query cites 50 candidates or more; set a smaller cited=N"),
        ({"output": tmp_path / "few"}, "output: .*few already exists; remove it or name a new folder"),
    ]
    for options, line in cases:
        with pytest.raises(InputError, match=line):
            build(**options)
    assert not (tmp_path / "out").exists()
