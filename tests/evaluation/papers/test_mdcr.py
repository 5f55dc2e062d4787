"""MDCR's measures agree with the official script; bad files raise one-line errors."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from citerec.base.errors import InputError
from citerec.datasets.published.releases import RELEASES
from citerec.evaluation.benchmarks.papers.mdcr import (
    MDCR,
    candidate_types,
    field_table,
    field_values,
    read_pools,
    read_scores,
    type_table,
)
from citerec.evaluation.report import Provenance
from citerec.retrieval.encoders.article import ArticleRetriever
from citerec.retrieval.encoders.encoder import ArticleEncoder
from citerec.retrieval.lexical.bm25 import BM25
from citerec.retrieval.settings import ArticleConfig
from citerec.tests.conftest import Done
from citerec.tests.evaluation.conftest import Damaged, metrics_of, no_retriever

Files = Callable[[Any, Any], tuple[Path, Path]]


def pool(number: int, **types: Any) -> dict[str, list[str]]:
    """A query's pool with two candidates of each of two types and two cited ones, named after `number`."""
    names = {kind: [f"{number}{kind[0]}{i}" for i in range(2)] for kind in ("bm25", "random", "true")}
    return names | types


BENCHMARK = {"Physics": {"q2": pool(2), "q3": pool(3)}, "Art": {"q1": pool(1)}}


def scores_of(benchmark: dict[str, Any]) -> dict[str, float]:
    """A score for each pair, the cited ones in the middle."""
    pairs = [
        f"{query}_{paper}"
        for queries in benchmark.values()
        for query, types in queries.items()
        for papers in types.values()
        for paper in papers
    ]
    return {pair: (i * 7 % 5) / 4 for i, pair in enumerate(pairs)}


@pytest.fixture
def files(tmp_path: Path) -> Files:
    def write(benchmark: Any, scores: Any) -> tuple[Path, Path]:
        paths = tmp_path / "mdcr.json", tmp_path / "scores.json"
        for path, content in zip(paths, (benchmark, scores), strict=True):
            path.write_text(content if isinstance(content, str) else json.dumps(content))
        return paths

    return write


def plain_measures(types: dict[str, list[str]], scores: dict[str, float]) -> dict[str, float]:
    """Average precision, nDCG and recall at 5 by definition; ties in descending order of ids."""
    cited = set(types["true"])
    candidates = {paper for papers in types.values() for paper in papers}
    ranked = sorted(sorted(candidates, reverse=True), key=lambda paper: -scores[paper])
    hits = [paper in cited for paper in ranked]
    precisions = [sum(hits[: i + 1]) / (i + 1) for i in range(len(hits)) if hits[i]]
    discounts = [1 / np.log2(i + 2) for i in range(len(hits))]
    gain = sum(discount for hit, discount in zip(hits, discounts, strict=True) if hit)
    return {
        "map": sum(precisions) / len(cited),
        "ndcg": gain / sum(discounts[: len(cited)]),
        "recall_5": sum(hits[:5]) / len(cited),
    }


NAMES = st.lists(st.sampled_from([f"p{i}" for i in range(12)]), max_size=6, unique=True)


@given(st.data())
def test_measures_follow_their_definitions_with_ties_and_shared_candidates(data: st.DataObject) -> None:
    types = {kind: data.draw(NAMES) for kind in ("bm25", "random")} | {"true": data.draw(NAMES.filter(bool))}
    scores = {f"p{i}": data.draw(st.sampled_from([-1.0, 0.0, 0.5, 2.0])) for i in range(12)}
    pools = {"Art": {"q": types}}
    result = field_values(pools, {"q": scores})["Art"]
    assert {name: values.tolist() for name, values in result.items()} == {
        name: pytest.approx([value]) for name, value in plain_measures(types, scores).items()
    }
    for kind in ("bm25", "random"):
        alone = field_values(pools, {"q": scores}, kind)
        assert bool(alone) == bool(types[kind])
        if alone:
            expected = plain_measures({kind: types[kind], "true": types["true"]}, scores)
            assert alone["Art"]["map"].tolist() == pytest.approx([expected["map"]])


def test_fields_are_means_of_queries_and_the_average_is_of_rounded_fields(files: Files) -> None:
    file, scores_file = files(BENCHMARK, scores_of(BENCHMARK))
    pools = read_pools(file)
    assert list(pools) == ["Art", "Physics"] and candidate_types(pools) == ["bm25", "random"]
    scores = read_scores(scores_file, pools)
    table = field_table(field_values(pools, scores))
    for field, queries in BENCHMARK.items():
        plain = [plain_measures(types, scores[query]) for query, types in queries.items()]
        for name, value in table[field].items():
            assert value == np.round(100 * np.mean([row[name] for row in plain]), 4)
    assert table["AVG"]["map"] == np.round((table["Art"]["map"] + table["Physics"]["map"]) / 2, 4)
    assert list(table) == ["Art", "Physics", "AVG"]


def test_queries_without_candidates_of_a_type_are_left_out_and_counted(files: Files) -> None:
    benchmark = {"Art": {"q1": pool(1, random=[]), "q2": pool(2)}, "Law": {"q3": pool(3, random=[])}}
    file, scores_file = files(benchmark, scores_of(benchmark))
    pools = read_pools(file)
    scores = read_scores(scores_file, pools)
    table, queries = type_table(pools, scores)
    assert queries == {"bm25": 3, "random": 1}
    only = plain_measures({"random": ["2r0", "2r1"], "true": ["2t0", "2t1"]}, scores["q2"])
    assert table["random"]["map"] == pytest.approx(100 * only["map"], abs=1e-4)


@pytest.mark.parametrize(
    ("content", "line"),
    [
        ({"Art": {"q1": pool(1, true=[])}}, r"1 queries or fields have no relevant candidate .*Art/q1"),
        ({"Art": {"q1": pool(1)}, "Law": {}}, r"1 queries or fields .*: Law"),
        ({}, r"mdcr\.json: no fields"),
        ({"Art": {"q1": {"bm25": ["a"]}}}, r"1 queries .*: Art/q1"),
        ({"Art": {"q1": pool(1), "q2": {"true": ["a"]}}}, r"lack a type that others have: Art/q2"),
        ({"Art": {"q1": pool(1, bm25=[1])}}, r"mdcr\.json, field '.*': must be a string, not a number"),
        ("[]", r"mdcr\.json: must be an object"),
        ('{"Art": ', r"mdcr\.json: malformed JSON"),
    ],
)
def test_an_unusable_benchmark_file_is_named(files: Files, content: Any, line: str) -> None:
    with pytest.raises(InputError, match=line) as error:
        read_pools(files(content, {})[0])
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({"q1_1t0": None}, r"scores\.json, field '.*': must be a number, not null"),
        ({"q1_1t0": 10**400}, r"scores\.json, field '.*': Number out of range"),
        ({"q1_1t0": float("nan"), "q3_3b1": ...}, r"no score, or NaN, for 2 .*: q1_1t0 \(Art\), q3_3b1 \(Ph"),
    ],
)
def test_unusable_scores_are_named(files: Files, change: dict[str, Any], line: str) -> None:
    scores = {key: value for key, value in (scores_of(BENCHMARK) | change).items() if value is not ...}
    file, scores_file = files(BENCHMARK, scores)
    with pytest.raises(InputError, match=line):
        read_scores(scores_file, read_pools(file))


def test_the_files_of_the_split_are_downloaded(
    server: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, files: Files
) -> None:
    assert RELEASES["mdcr"].addresses == ("https://takelab.fer.hr/data/mdcr/",)
    monkeypatch.setitem(RELEASES, "mdcr", replace(RELEASES["mdcr"], addresses=(f"{server.url}/mdcr/",)))
    papers = {pair.split("_")[side] for pair in scores_of(BENCHMARK) for side in (0, 1)}
    texts = "\n".join(f'{{"paper_id": "{paper}", "title": "x {paper}"}}' for paper in papers)
    server.put("mdcr/mdcr_val.json", json.dumps(BENCHMARK))
    server.put("mdcr/mdcr_val_data.jsonl", texts)
    server.put("mdcr/mdcr_test.json", json.dumps([1]))
    _, scores_file = files(BENCHMARK, scores_of(BENCHMARK))
    benchmark = MDCR(scores_file=scores_file, split="val", cache_dir=tmp_path)
    benchmark.run(tmp_path / "out", Provenance(), no_retriever)
    assert set(metrics_of(tmp_path / "out")) == {"Art", "Physics", "AVG"}
    assert [path for path, _ in server.requests] == ["/mdcr/mdcr_val.json"]
    MDCR(split="val", cache_dir=tmp_path).run(tmp_path / "bm25", Provenance(), BM25)
    assert set(json.loads((tmp_path / "bm25" / "scores.json").read_text())) == set(scores_of(BENCHMARK))
    assert [path for path, _ in server.requests][1:] == ["/mdcr/mdcr_val_data.jsonl"]
    with pytest.raises(InputError, match=r"mdcr_test\.json: must hold an object"):
        MDCR(scores_file=scores_file, cache_dir=tmp_path).run(tmp_path / "out", Provenance(), no_retriever)


TITLES = {"q": "Parsing trees", "a": "Parsers of trees", "b": "Speech and vision", "c": "Graphs of speech"}


@pytest.fixture
def texts(files: Files, tmp_path: Path) -> Path:
    """A benchmark with one query, and the texts of its papers and of one more."""
    files({"Art": {"q": {"random": ["b", "none"], "bm25": ["c"], "true": ["a"]}}}, {})
    papers = [{"paper_id": key, "title": title, "abstract": f"{title}."} for key, title in TITLES.items()]
    lines = [*map(json.dumps, papers), '{"paper_id": "other", "title": "Parsing trees"}']
    path = tmp_path / "mdcr_data.jsonl"
    path.write_text("\n".join([*lines, '{"paper_id": "none", "title": null}']) + "\n\n")
    return path


def test_a_retriever_scores_the_pairs_of_the_pools(
    texts: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    out = tmp_path / "out"
    MDCR(file=texts.with_name("mdcr.json"), texts=texts, cache_dir=tmp_path).run(out, Provenance(), BM25)
    assert "1 candidates without title and abstract are ranked last: none" in caplog.text
    scores = json.loads((out / "scores.json").read_text())
    assert set(scores) == {"q_a", "q_b", "q_c", "q_none"}
    assert scores["q_a"] > 0 > scores["q_b"] == scores["q_c"] == scores["q_none"] == scores["q_a"] - 1
    assert metrics_of(out)["AVG"]["map"] == 100.0
    again = MDCR(file=texts.with_name("mdcr.json"), scores_file=out / "scores.json")
    again.run(tmp_path / "again", Provenance(), no_retriever)
    assert metrics_of(tmp_path / "again") == metrics_of(out)
    with pytest.raises(InputError, match=r"^retriever=bm25: NaN scores for 1 queries, such as q"):
        MDCR(file=texts.with_name("mdcr.json"), texts=texts, cache_dir=tmp_path).run(
            tmp_path / "nan", Provenance(), Damaged
        )
    assert not (tmp_path / "nan" / "metrics.json").exists()


def test_an_encoder_encodes_queries_like_papers(texts: Path, tmp_path: Path, tiny_bert: Path) -> None:
    config = ArticleConfig("tiny", path=str(tiny_bert), max_tokens=32, query=("title", "context"))
    twin = {"paper_id": "a", "title": TITLES["q"], "abstract": f"{TITLES['q']}."}
    texts.write_text(
        json.dumps(twin) + "\n" + texts.read_text(encoding="utf-8"), encoding="utf-8"
    )  # the first record of a paper wins
    retriever = ArticleRetriever(ArticleEncoder.pretrained(config), "float32")
    benchmark = MDCR(
        file=texts.with_name("mdcr.json"), texts=texts, cache_dir=tmp_path, index_dir=tmp_path / "index"
    )
    benchmark.run(tmp_path / "out", Provenance(), lambda: retriever)
    scores = json.loads((tmp_path / "out" / "scores.json").read_text())
    assert scores["q_a"] == pytest.approx(1, abs=5e-4) and max(scores["q_b"], scores["q_c"]) < 0.999
    assert scores["q_none"] == min(scores["q_b"], scores["q_c"]) - 1
    benchmark.run(tmp_path / "again", Provenance(), lambda: retriever)  # with the index from disk
    assert json.loads((tmp_path / "again" / "scores.json").read_text()) == scores


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("", r"mdcr_data\.jsonl: 5 papers of the benchmark are missing: a, b, c, none, q"),
        ("{", r"mdcr_data\.jsonl, line 1: malformed JSON"),
        ("[]", r"line 1: must be an object, not a list"),
        ('{"paper_id": "a", "title": 3}', r"line 1, field 'title': must be a string, not a number"),
        ('{"paper_id": "q", "title": " "}', "1 queries have neither title nor abstract: q"),
    ],
)
def test_unusable_texts_are_named(texts: Path, tmp_path: Path, line: str, message: str) -> None:
    with pytest.raises(InputError, match=r"benchmark\.texts: .* or set scores_file=FILE"):
        MDCR(file=texts.with_name("mdcr.json")).run(tmp_path / "out", Provenance(), no_retriever)
    others = texts.read_text(encoding="utf-8").splitlines() if "neither" in message else []
    texts.write_text("\n".join([line, *others]), encoding="utf-8")
    with pytest.raises(InputError, match=message) as error:
        MDCR(file=texts.with_name("mdcr.json"), texts=texts, cache_dir=tmp_path).run(
            tmp_path / "out", Provenance(), no_retriever
        )
    assert "\n" not in str(error.value)


@pytest.mark.slow
def test_the_command(files: Files, tmp_path: Path, evaluate: Callable[..., Done]) -> None:
    files(BENCHMARK, scores_of(BENCHMARK) | {"q9_x": 1.0})
    options = ["benchmark=mdcr", "benchmark.file=mdcr.json", "output_dir=out"]
    done = evaluate(*options, "scores_file=scores.json")
    metrics, out = metrics_of(tmp_path / "out"), tmp_path / "out"
    assert done.code == 0 and f" {metrics['AVG']['map']:.4f} " in done.out
    report = (out / "report.md").read_text()
    assert "scores_file=scores.json" in report
    assert set(json.loads((out / "candidate_types.json").read_text())) == {"bm25", "random"}
    rows = (out / "per_query.csv").read_text().splitlines()
    assert rows[0] == "query_id,citing_id,map,ndcg,recall_5" and rows[1].startswith("Art/q1,q1,")
    (tmp_path / "nan.json").write_text(json.dumps(scores_of(BENCHMARK) | {"q1_1t0": float("nan")}))
    done = evaluate(*options[:-1], "scores_file=nan.json", "output_dir=nan")
    assert done.code == 2 and done.err.count("\n") == 1 and "q1_1t0" in done.err
    assert not (tmp_path / "nan" / "metrics.json").exists()
    done = evaluate("-m", *options, "scores_file=scores.json,nan.json")
    assert done.code == 2 and "1 of 2 jobs failed; scores_file=nan.json: " in done.err
    mean = f"{metrics['AVG']['map']:.2f} |"
    rows = (out / "summary.md").read_text().splitlines()
    assert any(row.startswith("| scores_file=scores.json | ") and row.endswith(mean) for row in rows)


GOLDEN = Path(__file__).parents[4] / "shared" / "golden"


@pytest.mark.skipif(not (GOLDEN / "mdcr_small.json").is_file(), reason="the golden files are missing")
def test_output_equals_that_of_the_official_script() -> None:
    pools = read_pools(GOLDEN / "mdcr_small.json")
    scores = read_scores(GOLDEN / "mdcr_small_scores.json", pools)
    table = field_table(field_values(pools, scores))
    lines = ["\t".join([name, *(f"{m}: {v}" for m, v in row.items())]) for name, row in table.items()]
    expected = (GOLDEN / "mdcr_small_expected.txt").read_text().splitlines()
    assert [*lines[:-1], "", lines[-1]] == expected
