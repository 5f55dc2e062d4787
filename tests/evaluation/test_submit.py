"""citerec submit: measures by protocol, checks of runs, and the page of entries."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from citerec.base.errors import InputError
from citerec.datasets.corpus import Corpus
from citerec.datasets.published.downloads import open_data
from citerec.datasets.published.drafts import list_file, read_list
from citerec.evaluation import evaluate
from citerec.evaluation.benchmarks.contexts.draft_results import MODEL, DraftResult, Ranks
from citerec.evaluation.benchmarks.contexts.drafts import PARTS
from citerec.evaluation.benchmarks.contexts.prefetch import Prefetch
from citerec.evaluation.report import METRICS
from citerec.evaluation.results.plan import read_plan
from citerec.evaluation.submit import Entry, SubmitSettings, page, read_entries, submit
from citerec.retrieval.lexical.bm25 import BM25
from citerec.retrieval.settings import measure_name

DATA = "citerec/acl200/test"


@pytest.fixture
def cache(tiny_source: Path, tmp_path: Path) -> Path:
    """A cache that has the small corpus as acl200."""
    shutil.copytree(tiny_source, tmp_path / "cache" / "published" / "acl200")
    return tmp_path / "cache"


@pytest.fixture
def corpus(cache: Path) -> Corpus:
    return open_data(DATA, cache)[0]


@pytest.fixture
def run(corpus: Corpus, tmp_path: Path) -> Path:
    """A run of BM25 over all papers."""
    Prefetch(cutoffs=[5, 10])(BM25().index(corpus), corpus, "test", tmp_path / "bm25")
    return tmp_path / "bm25" / "run.trec"


def given(run: Path, cache: Path, **more: Any) -> SubmitSettings:
    return SubmitSettings(run=str(run), data=DATA, cache_dir=str(cache), **more)


def test_an_entry_has_the_measures_of_the_ranking(
    corpus: Corpus, run: Path, cache: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    entry = submit(given(run, cache, about="BM25 of titles and abstracts"))
    ranking = BM25().index(corpus).search(corpus.split("test"), 11)
    expected = evaluate(ranking, ["R@10", "MRR"], intervals=True)
    for name, ends in expected.items():
        assert entry.measures[name] == pytest.approx(ends)
    test = corpus.split("test")
    assert (entry.queries, entry.papers) == (len(test), len(set(corpus.citing[test.contexts].tolist())))
    assert (entry.name, entry.protocol, entry.data) == ("bm25", "home", DATA)
    mean, low, high = entry.measures["MRR"]
    assert f"| MRR | {mean:.4f} | {low:.4f} | {high:.4f} |" in " ".join(capsys.readouterr().out.split(" "))
    assert json.loads(Path(f"{run}.json").read_text("utf-8"))["run"] == entry.run


def test_the_inductive_protocol_removes_known_and_later_papers(
    corpus: Corpus, run: Path, cache: Path
) -> None:
    entry = submit(given(run, cache, protocol="inductive"))
    test = corpus.split("test")
    trained = {int(paper) for of in corpus.split("train").positives for paper in of}
    lines = [line.split() for line in run.read_text("utf-8").splitlines()]
    reciprocal = []
    for context, cited in zip(test.contexts.tolist(), test.positives, strict=True):
        if set(cited.tolist()) & trained:
            continue
        year = corpus.years[corpus.citing[context]]
        ranked = [corpus.paper_row(line[2]) for line in lines if line[0] == corpus.context_ids[context]]
        pool = [paper for paper in ranked if paper not in trained and corpus.years[paper] <= year]
        reciprocal.append(next((1 / (n + 1) for n, paper in enumerate(pool) if paper in cited), 0.0))
    assert entry.queries == len(reciprocal) > 0
    assert entry.measures["MRR"][0] == pytest.approx(sum(reciprocal) / len(reciprocal))
    assert entry.measures["MRR"][1:] == (None, None)  # one citing paper


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"data": "citerec/nothing/test"}, "citerec/nothing/test: no such data; ids are citerec/"),
        ({"data": "acl200"}, "acl200: no such data"),
        ({"protocol": "drafts"}, "protocol=drafts is for citerec/drafts/"),
        ({"data": "citerec/drafts/2026-12"}, "protocol=drafts is for citerec/drafts/"),
    ],
)
def test_wrong_settings_are_one_line(run: Path, cache: Path, change: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message) as error:
        submit(replace(given(run, cache), **change))
    assert "\n" not in str(error.value)


def test_wrong_runs_are_one_line(run: Path, cache: Path) -> None:
    lines = run.read_text("utf-8").splitlines()
    first = lines[0].split()[0]
    for text, message in (
        (
            [line for line in lines if line.split()[0] != first],
            r"1 of \d queries are missing",
        ),
        ([lines[0].replace(lines[0].split()[2], "nobody"), *lines[1:]], "nobody"),
        ([lines[0], *lines], lines[0].split()[2]),
    ):
        run.write_text("\n".join(text) + "\n")
        with pytest.raises(InputError, match=message):
            submit(given(run, cache))


def test_the_page_lists_entries_by_protocol_and_data(run: Path, cache: Path, tmp_path: Path) -> None:
    folder = tmp_path / "board"
    for name, protocol in (("One", "home"), ("Two", "home"), ("One", "inductive")):
        entry = submit(given(run, cache, protocol=protocol, name=name, leaderboard=str(folder)))
    assert [path.name for path in sorted(folder.iterdir())] == [
        "acl200-test-home-one.json",
        "acl200-test-home-two.json",
        "acl200-test-inductive-one.json",
    ]
    entries = read_entries(folder)
    assert entry in entries
    text = page([replace_measures(entries[0], 0.5), *entries[1:]])
    home = text.split("## Home")[1].split("## Unseen")[0]
    assert home.index("| Two |") < home.index("| One |") and "### citerec/acl200/test, home" in home
    assert text.count("| One |") == 2 and "## As published" in text and "Gu et al." in text
    assert (tmp_path / "board.md").read_text("utf-8") == page(entries)
    path = folder / "acl200-test-home-one.json"
    path.write_text(path.read_text("utf-8").replace('"home"', '"best"'))
    with pytest.raises(InputError, match="protocol 'best' is not one of inductive, home"):
        read_entries(folder)


def replace_measures(entry: Entry, value: float) -> Entry:
    content = {name: getattr(entry, name) for name in entry.__struct_fields__}
    return Entry(**content | {"measures": dict.fromkeys(entry.measures, (value, 0.0, 1.0))})


def test_drafts_must_be_those_of_the_list(tmp_path: Path) -> None:
    names = [one.name for one in read_list(list_file("2026-12"))]
    folder = tmp_path / "out"
    (folder / PARTS).mkdir(parents=True)
    for name in names:
        result = DraftResult(
            identity="", name=name, field="", language="latex", papers=1, abstracts=0, absent=0,
            query_ids=["q"], again=[0], starts=[1], ranks={MODEL: {"as_is/ask": Ranks([1], [1])}},
            calibrated=False,
        )  # fmt: skip
        (folder / PARTS / f"{name}.json").write_bytes(msgspec.json.encode(result))
    group = {"recall@10": 0.5, "recall@10/low": 0.4, "recall@10/high": 0.6, "mrr": 0.3, "mrr/low": 0.2}
    group |= {"mrr/high": 0.4, "queries": 100, "drafts": len(names)}
    (folder / METRICS).write_text(json.dumps({"as_is/ask": group, "as_is/draft": group}))
    wanted = SubmitSettings(run=str(folder), data="citerec/drafts/2026-12", protocol="drafts", name="x")
    entry = submit(wanted)
    assert entry.measures["draft: MRR"] == (0.3, 0.2, 0.4) and entry.papers == len(names)
    (folder / PARTS / f"{names[0]}.json").unlink()
    with pytest.raises(InputError, match="1 differ, such as " + re.escape(names[0])):
        submit(wanted)
    with pytest.raises(InputError, match="not the output folder"):
        submit(replace(wanted, run=str(tmp_path)))


def test_the_page_in_docs_is_that_of_its_entries() -> None:
    docs = Path(__file__).parents[2] / "docs"
    entries = read_entries(docs / "leaderboard")
    assert entries and (docs / "leaderboard.md").read_text("utf-8") == page(entries)


def test_plans_expect_what_the_leaderboard_has() -> None:
    root = Path(__file__).parents[2]
    entries = {
        (one.data.split("/")[1], one.protocol, one.name): one
        for one in read_entries(root / "docs" / "leaderboard")
    }
    names = {"bm25": "BM25", "bm25-contexts": "BM25 with training contexts"}
    names |= {"static": "Static embeddings", "ranker": "Learned ranker", "hatten+mean": "HAtten"}
    seen = set()
    for plan in (read_plan(root / "reproduce" / name).file for name in ("leaderboard.yaml", "models.yaml")):
        for job, measures in plan.expected.items():
            of, row = job.split("/")
            data, _, protocol = plan.data[of].title.partition(", ")
            seen.add(key := (data, protocol or "home", names[row]))
            ours = {measure_name(name): values[0] for name, values in entries[key].measures.items()}
            found = {name.removeprefix("inductive/"): value for name, value in measures.items()}
            assert found == pytest.approx(ours, abs=0.002)
    assert seen == {key for key in entries if key[1] != "drafts"}
