"""MDCR's measures are those of its own script, and bad files are named in one line."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from datasets.errors import InputError
from datasets.releases import RELEASES
from evaluation.benchmarks.mdcr import (
    MDCR,
    Mdcr,
    Query,
    field_table,
    official_lines,
    query_values,
    read_scores,
    type_table,
)
from evaluation.report import Provenance
from retrieval.article import ArticleRetriever
from retrieval.base import Retriever
from retrieval.bm25 import BM25
from retrieval.encoder import ArticleEncoder
from retrieval.settings import ArticleConfig

ROOT = Path(__file__).parents[2]
Files = Callable[[dict[str, Any], Any], tuple[Path, Path]]


def pool(number: int, **types: Any) -> dict[str, list[str]]:
    """A query's pool: two candidates of each of two types, two cited ones, named after a number."""
    names = {kind: [f"{number}{kind[0]}{i}" for i in range(2)] for kind in ("bm25", "random", "true")}
    return names | types


BENCHMARK = {"Physics": {"q2": pool(2), "q3": pool(3)}, "Art": {"q1": pool(1)}}


def unasked() -> Retriever:
    raise AssertionError("there are scores: no retriever is needed")


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
    def write(benchmark: dict[str, Any], scores: Any) -> tuple[Path, Path]:
        paths = tmp_path / "mdcr.json", tmp_path / "scores.json"
        for path, content in zip(paths, (benchmark, scores), strict=True):
            path.write_text(content if isinstance(content, str) else json.dumps(content))
        return paths

    return write


def plain_measures(types: dict[str, list[str]], scores: dict[str, float]) -> dict[str, float]:
    """Average precision, nDCG and recall at 5 by their definitions; equals in falling order of their ids."""
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


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_measures_are_their_definitions_with_ties_and_shared_candidates(data: st.DataObject) -> None:
    types = {kind: data.draw(NAMES) for kind in ("bm25", "random")}
    types["true"] = data.draw(NAMES.filter(bool))
    scores = {f"p{i}": data.draw(st.sampled_from([-1.0, 0.0, 0.5, 2.0])) for i in range(12)}
    query = Query(frozenset(types["true"]), {kind: types[kind] for kind in ("bm25", "random")})
    benchmark = Mdcr(Path("b.json"), {"Art": {"q": query}})
    found = query_values(benchmark, {"Art": {"q": scores}})["Art"]
    for name, expected in plain_measures(types, scores).items():
        assert found[name].tolist() == pytest.approx([expected])
    for kind in ("bm25", "random"):
        alone = query_values(benchmark, {"Art": {"q": scores}}, kind)
        assert bool(alone) == bool(types[kind])
        if alone:
            expected_map = plain_measures({kind: types[kind], "true": types["true"]}, scores)["map"]
            assert alone["Art"]["map"].tolist() == pytest.approx([expected_map])


def test_fields_are_means_of_queries_and_the_average_is_of_rounded_fields(files: Files) -> None:
    file, scores_file = files(BENCHMARK, scores_of(BENCHMARK))
    benchmark = Mdcr.read(file)
    assert list(benchmark.fields) == ["Art", "Physics"] and benchmark.types == ["bm25", "random"]
    scores, unused = read_scores(scores_file, benchmark)
    table = field_table(query_values(benchmark, scores))
    plain = {
        field: [plain_measures(types, scores[field][query]) for query, types in queries.items()]
        for field, queries in BENCHMARK.items()
    }
    for field, rows in plain.items():
        for name in ("map", "ndcg", "recall_5"):
            assert table[field][name] == np.round(100 * np.mean([row[name] for row in rows]), 4)
    assert table["AVG"]["map"] == np.round((table["Art"]["map"] + table["Physics"]["map"]) / 2, 4)
    assert unused == [] and official_lines(table)[2:] == [
        "",
        "AVG\t" + "\t".join(f"{name}: {table['AVG'][name]}" for name in ("map", "ndcg", "recall_5")),
    ]


def test_a_type_without_candidates_is_left_out_and_counted(files: Files) -> None:
    benchmark = {"Art": {"q1": pool(1, random=[]), "q2": pool(2)}, "Law": {"q3": pool(3, random=[])}}
    read = Mdcr.read(files(benchmark, scores_of(benchmark))[0])
    scores, _ = read_scores(files(benchmark, scores_of(benchmark))[1], read)
    table, queries = type_table(read, scores)
    assert queries == {"bm25": 3, "random": 1}
    only = plain_measures({"random": ["2r0", "2r1"], "true": ["2t0", "2t1"]}, scores["Art"]["q2"])
    assert table["random"]["map"] == pytest.approx(100 * only["map"], abs=1e-4)


BAD_BENCHMARKS: list[tuple[Any, str]] = [
    ({"Art": {"q1": pool(1, true=[])}}, r"1 queries have no relevant candidate .*Art/q1"),
    ({"Art": {"q1": pool(1)}, "Law": {}}, r"1 fields have no queries: Law"),
    ({}, r"there are no fields"),
    ({"Art": {"q1": {"bm25": ["a"]}}}, r"field 'Art', query 'q1': has no 'true'"),
    ({"Art": {"q1": pool(1), "q2": {"true": ["a"]}}}, r"query 'q2': has no 'bm25'"),
    ({"Art": {"q1": pool(1), "q2": pool(2, graph=["a"])}}, r"query 'q2': has candidates of .* 'graph'"),
    ({"Art": {"q1": pool(1, bm25=[1])}}, r"query 'q1', bm25: must be a list of paper ids"),
    ({"Art": {"q1": ["a"]}}, r"query 'q1': must be an object"),
    ({"Art": []}, r"field 'Art': must be an object"),
    ("[]", r"mdcr\.json: must be an object"),
    ('{"Art": ', r"mdcr\.json: malformed JSON"),
]


@pytest.mark.parametrize(("content", "line"), BAD_BENCHMARKS)
def test_a_benchmark_that_cannot_be_used_is_named(files: Files, content: Any, line: str) -> None:
    with pytest.raises(InputError, match=line) as error:
        Mdcr.read(files(content, {})[0])
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({"q1_1t0": None}, r"1 scores are NaN or no number at all: q1_1t0"),
        ({"q1_1t0": float("nan"), "q2_2b0": "0.5"}, r"2 scores are NaN or no number at all: q2_2b0, q1_1t0"),
        ({"q3_3r1": True, "q1_1t0": 10**400}, r"2 scores .* no number at all: q3_3r1, q1_1t0"),
    ],
)
def test_scores_that_are_no_numbers_are_named(files: Files, change: dict[str, Any], line: str) -> None:
    file, scores_file = files(BENCHMARK, scores_of(BENCHMARK) | change)
    with pytest.raises(InputError, match=line):
        read_scores(scores_file, Mdcr.read(file))


def test_pairs_without_a_score_are_named_and_scores_without_a_pair_are_told(files: Files) -> None:
    scores = scores_of(BENCHMARK) | {"q9_x": 1.0}
    file, scores_file = files(BENCHMARK, scores)
    assert read_scores(scores_file, Mdcr.read(file))[1] == ["q9_x"]
    del scores["q1_1t0"], scores["q3_3b1"]
    with pytest.raises(InputError, match=r"no score for 2 pairs .*: q1_1t0 \(Art\), q3_3b1 \(Physics\)"):
        read_scores(files(BENCHMARK, scores)[1], Mdcr.read(file))


def test_the_split_is_downloaded_where_no_file_is_given(
    server: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, files: Files
) -> None:
    assert RELEASES["mdcr"].addresses == ("https://takelab.fer.hr/data/mdcr/",)
    release = replace(RELEASES["mdcr"], addresses=(f"{server.url}/mdcr/",))
    monkeypatch.setitem(RELEASES, "mdcr", release)
    _, scores_file = files(BENCHMARK, scores_of(BENCHMARK))
    server.put("mdcr/mdcr_val.json", json.dumps(BENCHMARK))
    server.put("mdcr/mdcr_test.json", json.dumps([1]))
    MDCR(scores_file=scores_file, split="val", cache_dir=tmp_path).run(
        tmp_path / "out", Provenance(), unasked
    )
    assert set(json.loads((tmp_path / "out" / "metrics.json").read_text())) == {"Art", "Physics", "AVG"}
    assert [path for path, _ in server.asked] == ["/mdcr/mdcr_val.json"]
    with pytest.raises(InputError, match=r"mdcr_test\.json: the file must hold an object"):
        MDCR(scores_file=scores_file, cache_dir=tmp_path).run(tmp_path / "out", Provenance(), unasked)
    with pytest.raises(InputError, match=r"benchmark\.split=train: MDCR has val and test"):
        MDCR(scores_file=scores_file, split="train")


def test_the_texts_of_the_split_are_downloaded_for_a_retriever(
    server: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    release = replace(RELEASES["mdcr"], addresses=(f"{server.url}/mdcr/",))
    monkeypatch.setitem(RELEASES, "mdcr", release)
    papers = {pair.split("_")[side] for pair in scores_of(BENCHMARK) for side in (0, 1)}
    server.put("mdcr/mdcr_test.json", json.dumps(BENCHMARK))
    server.put(
        "mdcr/mdcr_test_data.jsonl", "\n".join(f'{{"paper_id": "{p}", "title": "x {p}"}}' for p in papers)
    )
    MDCR(cache_dir=tmp_path).run(tmp_path / "out", Provenance(), BM25)
    assert set(json.loads((tmp_path / "out" / "scores.json").read_text())) == set(scores_of(BENCHMARK))
    assert [path for path, _ in server.asked] == ["/mdcr/mdcr_test.json", "/mdcr/mdcr_test_data.jsonl"]


TITLES = {"q": "Parsing trees", "a": "Parsers of trees", "b": "Speech and vision", "c": "Graphs of speech"}


@pytest.fixture
def texts(files: Files, tmp_path: Path) -> Path:
    """A benchmark of one query, and the texts of its papers and of another."""
    files({"Art": {"q": {"random": ["b", "none"], "bm25": ["c"], "true": ["a"]}}}, {})
    papers: list[dict[str, Any]] = [
        {"paper_id": key, "title": title, "abstract": f"{title}."} for key, title in TITLES.items()
    ]
    papers += [{"paper_id": "other", "title": "Parsing trees"}, {"paper_id": "none", "title": None}]
    path = tmp_path / "mdcr_data.jsonl"
    path.write_text("\n".join(map(json.dumps, papers)) + "\n\n")
    return path


def test_a_retriever_scores_the_pairs_of_the_pools(
    texts: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    out = tmp_path / "out"
    MDCR(texts.with_name("mdcr.json"), cache_dir=tmp_path).run(out, Provenance(), BM25)
    assert "1 candidates without title and abstract come last: none" in caplog.text
    scores = json.loads((out / "scores.json").read_text())
    assert set(scores) == {"q_a", "q_b", "q_c", "q_none"}
    assert scores["q_a"] > 0 > scores["q_b"] == scores["q_c"] == scores["q_none"] == scores["q_a"] - 1
    metrics = json.loads((out / "metrics.json").read_text())
    assert metrics["AVG"]["map"] == 100.0


def test_an_encoder_reads_queries_as_it_reads_papers(texts: Path, tmp_path: Path, tiny_bert: Path) -> None:
    config = ArticleConfig("tiny", path=str(tiny_bert), max_tokens=32, query=("title", "context"))
    papers = [json.loads(line) for line in texts.read_text().splitlines()[:-1]]
    twin = {"paper_id": "a", "title": TITLES["q"], "abstract": f"{TITLES['q']}."}
    texts.write_text("\n".join(json.dumps(twin if paper["paper_id"] == "a" else paper) for paper in papers))
    retriever = ArticleRetriever(ArticleEncoder.pretrained(config), "float32")
    benchmark = MDCR(texts.with_name("mdcr.json"), cache_dir=tmp_path, index_dir=tmp_path / "index")
    benchmark.run(tmp_path / "out", Provenance(), lambda: retriever)
    scores = json.loads((tmp_path / "out" / "scores.json").read_text())
    assert scores["q_a"] == pytest.approx(1, abs=5e-4) and max(scores["q_b"], scores["q_c"]) < 0.999
    assert scores["q_none"] == min(scores["q_b"], scores["q_c"]) - 1
    benchmark.run(tmp_path / "again", Provenance(), lambda: retriever)  # from the index on the disk
    assert json.loads((tmp_path / "again" / "scores.json").read_text()) == scores


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("", r"mdcr_data\.jsonl: 5 papers of the benchmark are not in it: a, b, c, none, q"),
        ("{", r"mdcr_data\.jsonl, line 1: malformed JSON"),
        ("[]", r"line 1: must be an object, not a list"),
        ('{"paper_id": "a", "title": 3}', r"line 1, field 'title': must be text"),
        ('{"paper_id": "a", "abstract": ["x"], "pred_labels": ["y", "z"]}', r"1 sentences and 2 labels"),
    ],
)
def test_texts_that_cannot_be_used_are_named(texts: Path, tmp_path: Path, line: str, said: str) -> None:
    texts.write_text(line)
    with pytest.raises(InputError, match=said) as error:
        MDCR(texts.with_name("mdcr.json"), cache_dir=tmp_path).run(tmp_path / "out", Provenance(), unasked)
    assert "\n" not in str(error.value)


def test_a_query_without_text_and_missing_texts_are_named(texts: Path, tmp_path: Path) -> None:
    benchmark = MDCR(texts.with_name("mdcr.json"), cache_dir=tmp_path)
    texts.write_text(texts.read_text().replace(TITLES["q"], " ").replace('" ."', '""'))
    with pytest.raises(InputError, match="1 queries have neither title nor abstract: q"):
        benchmark.run(tmp_path / "out", Provenance(), unasked)
    texts.unlink()
    with pytest.raises(InputError, match=r"benchmark\.texts=FILE .* or give scores: scores_file=FILE"):
        benchmark.run(tmp_path / "out", Provenance(), unasked)


def evaluate(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "evaluate.py"), *arguments, "benchmark=mdcr"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120)


def test_the_command_prints_the_official_lines_and_writes_them(files: Files, tmp_path: Path) -> None:
    files(BENCHMARK, scores_of(BENCHMARK) | {"q9_x": 1.0})
    done = evaluate(tmp_path, "benchmark.file=mdcr.json", "scores_file=scores.json", "output_dir=out")
    assert done.returncode == 0, done.stderr
    metrics = json.loads((tmp_path / "out" / "metrics.json").read_text())
    assert "\n".join(official_lines(metrics)) in done.stdout
    assert "1 scores are of no pair of the benchmark: q9_x" in done.stdout
    report = (tmp_path / "out" / "report.md").read_text()
    assert "scores_file=scores.json" in report and "q9_x" in report
    assert set(json.loads((tmp_path / "out" / "candidate_types.json").read_text())) == {"bm25", "random"}
    rows = (tmp_path / "out" / "per_query.csv").read_text().splitlines()
    assert rows[0] == "query_id,citing_id,map,ndcg,recall_5" and rows[1].startswith("Art/q1,q1,")


def test_the_command_scores_by_bm25(texts: Path, tmp_path: Path) -> None:
    done = evaluate(
        tmp_path, "benchmark.file=mdcr.json", "retriever=bm25", "output_dir=out", "benchmark.cache_dir=cache"
    )
    assert done.returncode == 0, done.stderr
    assert "AVG\tmap: 100.0\tndcg: 100.0\trecall_5: 100.0" in done.stdout


def test_a_sweep_ends_with_a_table_of_averages(files: Files, tmp_path: Path) -> None:
    files(BENCHMARK, scores_of(BENCHMARK))
    (tmp_path / "other.json").write_text("{}")
    done = evaluate(
        tmp_path, "-m", "benchmark.file=mdcr.json", "scores_file=scores.json,other.json", "output_dir=out"
    )
    assert done.returncode == 2 and "1 of 2 jobs failed; scores_file=other.json: " in done.stderr
    metrics = json.loads((tmp_path / "out" / "0" / "metrics.json").read_text())
    table = (tmp_path / "out" / "summary.md").read_text()
    values = " | ".join(f"{metrics['AVG'][name]:.4f}" for name in ("map", "ndcg", "recall_5"))
    assert f"| scores.json | {values} |" in table


def test_the_command_refuses_nan_in_one_line(files: Files, tmp_path: Path) -> None:
    files(BENCHMARK, scores_of(BENCHMARK) | {"q1_1t0": float("nan")})
    done = evaluate(tmp_path, "benchmark.file=mdcr.json", "scores_file=scores.json", "output_dir=out")
    assert done.returncode == 2 and done.stderr.count("\n") == 1 and "q1_1t0" in done.stderr
    assert not (tmp_path / "out" / "metrics.json").exists()


GOLDEN = ROOT.parent / "shared" / "golden"


@pytest.mark.skipif(not (GOLDEN / "mdcr_small.json").is_file(), reason="the golden files are not there")
def test_equal_to_what_the_script_of_mdcr_printed() -> None:
    benchmark = Mdcr.read(GOLDEN / "mdcr_small.json")
    scores, unused = read_scores(GOLDEN / "mdcr_small_scores.json", benchmark)
    lines = official_lines(field_table(query_values(benchmark, scores)))
    assert lines == (GOLDEN / "mdcr_small_expected.txt").read_text().splitlines() and unused == []
