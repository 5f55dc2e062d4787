"""Who asks, and for what: shares of the years, near-duplicates of held-out papers, what is counted of it."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from datasets.citations.queries import GraphQueries, QuerySet, YearShares, open_papers, open_queries
from datasets.count import count_collection
from datasets.errors import InputError
from datasets.splitting import RandomSplitting, YearSplitting

ROOT = Path(__file__).parents[2]
YEARS = [2003, 2001, None, 2001, 2004, 2002, 2001, 2002, 2005, 2003, 2001]
TITLES = [
    "Parsing trees", "Graph models", "Undated", "On sound", "On sounds of human speech", "Of pictures",
    "Rhyme and metre", "Speech sounds on", "Rhyme, and Metre!", "Attention", "Nothing",
]  # fmt: skip
CITES: dict[int, list[int]] = {
    0: [1, 8],  # 8 is later
    2: [1],
    3: [6],
    4: [0, 2, 5, 99],  # 2 has no year, 99 is in no file
    5: [1],
    6: [1],
    7: [3],
    8: [0, 4],
    9: [6],
}
SHARES = YearShares(0.6, 0.2, 0.2, None, 0)
Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def written(
        name: str = "papers.jsonl", titles: list[str] = TITLES, cites: dict[int, list[int]] = CITES
    ) -> Path:
        lines = [
            {"paper_id": f"p{row}", "title": title, "abstract": f"Abstract {row}.", "year": YEARS[row]}
            | {"references": [f"p{one}" for one in cites.get(row, [])]}
            for row, title in enumerate(titles)
        ]
        path = tmp_path / name
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
        return path

    return written


@pytest.fixture
def ask(write: Write, tmp_path: Path) -> Callable[..., GraphQueries]:
    return lambda splitting=SHARES, **more: open_queries(
        write(), splitting, cache_dir=tmp_path / "cache", **more
    )


def names(asked: dict[str, QuerySet]) -> dict[str, dict[int, list[int]]]:
    return {
        split: {row: found.tolist() for row, found in zip(some.papers.tolist(), some.relevant, strict=True)}
        for split, some in asked.items()
    }


def test_papers_ask_by_shares_of_the_years(ask: Callable[..., GraphQueries]) -> None:
    found = ask()
    assert found.papers.tolist() == [0, 1, 3, 4, 5, 6, 7, 8, 9, 10]  # 2 has no year
    # By year and then place: 1 3 6 10 5 7 | 0 9 | 4 8. Of those that cite nothing none asks.
    expected = {
        "train": {3: [6], 5: [1], 6: [1], 7: [3]},
        "val": {0: [1], 9: [6]},
        "test": {4: [0, 5], 8: [0, 4]},
    }
    assert names(found.queries) == names(found.eligible) == expected and not len(found.removed)


def test_what_is_found_may_be_of_the_training_years_alone(ask: Callable[..., GraphQueries]) -> None:
    assert names(ask(found="train").queries)["test"] == {4: [5]}
    assert names(ask(min_cited=2).queries) == {"train": {}, "val": {}, "test": {4: [0, 5], 8: [0, 4]}}
    years = YearSplitting([None, 2003], None, [2004, None])
    assert names(ask(years, found="train", min_cited=2).queries)["test"] == {4: [0, 5]}
    with pytest.raises(
        InputError, match=r"no paper cites 3 others that are in it, with a text and not later"
    ):
        ask(min_cited=3)


def test_training_papers_like_held_out_ones_do_not_ask(
    ask: Callable[..., GraphQueries], write: Write, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    plain, held = ask(), ask(near_duplicates=0.7)
    assert held.removed.tolist() == [6]  # like 8, which asks in test
    assert names(held.queries)["train"] == {3: [6], 5: [1], 7: [3]}
    assert names(held.eligible) == names(plain.eligible) and held.papers.tolist() == plain.papers.tolist()
    assert "1 of 4 training queries have nearly the title of a held-out paper" in caplog.text
    assert ask(near_duplicates=0.5).removed.tolist() == [6, 7]  # speech, sounds, on: and `of` in 4
    other = write("other.jsonl", ["speech on SOUNDS", "Pictures: of"], {})
    both = ask(near_duplicates=0.7, held_out=other)
    assert both.removed.tolist() == [5, 6, 7]
    assert ask(near_duplicates=0.7, held_out=[str(other)]).removed.tolist() == [5, 6, 7]  # out of the cache


def test_batches_of_titles_are_put_together(
    ask: Callable[..., GraphQueries], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("datasets.citations.queries.TITLES", 2)
    assert ask(near_duplicates=0.5).removed.tolist() == [6, 7]
    monkeypatch.setattr("datasets.citations.queries.TitleIndex", None)  # what was found is kept
    assert ask(near_duplicates=0.5).removed.tolist() == [6, 7]


def test_listed_queries_are_held_out_as_well(write: Write, tmp_path: Path) -> None:
    queries = tmp_path / "queries.json"
    queries.write_text(json.dumps({"test": ["p6"]}))
    found = open_queries(write(), SHARES, queries, cache_dir=tmp_path, near_duplicates=0.7)
    assert names(found.queries)["test"] == {6: [1]} and found.removed.tolist() == [8]
    assert 2 in names(found.queries)["train"]  # a list places papers without a year


def test_the_corpus_asks_what_was_found(write: Write, tmp_path: Path) -> None:
    corpus = open_papers(write(), SHARES, cache_dir=tmp_path, near_duplicates=0.7)
    asked = {
        split: [corpus.context_ids[row] for row in some.contexts.tolist()]
        for split, some in corpus.splits.items()
    }
    assert asked == {"train": ["p3", "p5", "p7"], "val": ["p0", "p9"], "test": ["p4", "p8"]}
    assert corpus.has_paper("p6") and corpus.is_candidate.all()  # it stays a candidate
    assert not corpus.has_paper("p2")


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.integers(0, 6), max_size=40),
    st.sampled_from([(0.8, 0.1), (0.5, 0.5), (1.0, 0.0), (0.0, 0.3)]),
)
def test_shares_are_those_of_sorting_by_year(years: list[int], shares: tuple[float, float]) -> None:
    train, val = shares
    test = round(1 - train - val, 6)
    papers = [row for row in range(len(years)) if row % 5]
    found = YearShares(train, val, test, None, 0).split(np.array(years, np.int32), np.array(papers, np.int64))
    order = sorted((row for row in papers if years[row]), key=lambda row: years[row])
    first = int(len(order) * train)
    last = first + int((len(order) - first) * (val / (val + test) if val + test else 0))
    parts = (order[:first], order[first:last], order[last:])
    assert {split: rows.tolist() for split, rows in found.items()} == {
        split: sorted(part) for split, part in zip(("train", "val", "test"), parts, strict=True)
    }


def test_a_sample_is_drawn_of_all_but_training() -> None:
    rows = {"train": np.arange(50), "val": np.arange(50, 80), "test": np.arange(80, 85)}
    drawn = YearShares(0.8, 0.1, 0.1, 10, 3).sampled(rows)
    assert len(drawn["train"]) == 50 and len(drawn["test"]) == 5
    val = drawn["val"].tolist()
    assert val == sorted(set(val)) and len(val) == 10 and set(val) <= set(range(50, 80))
    again = YearShares(0.8, 0.1, 0.1, 10, 3).sampled(rows)["val"].tolist()
    other = YearShares(0.8, 0.1, 0.1, 10, 4).sampled(rows)["val"].tolist()
    assert val == again != other


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: YearShares(0.8, 0.1, 0.2, None, 0), r"shares train, val and test add up to 1\.1, not 1"),
        (lambda: YearShares(1.2, -0.1, -0.1, None, 0), r"splitting\.train: 1\.2 is no share"),
        (lambda: YearShares(0.8, 0.1, 0.1, 0, 0), r"splitting\.queries: 0 is no number of queries"),
        (lambda: SHARES("p", 2001), r"year_shares is for data=papers"),
    ],
)
def test_a_splitting_that_is_none_is_refused(make: Callable[[], Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        make()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"near_duplicates": 1.5}, r"data\.near_duplicates: 1\.5 is no Jaccard index"),
        ({"held_out": "x.jsonl"}, r"data\.held_out: needs data\.near_duplicates"),
        ({"held_out": "nowhere.jsonl", "near_duplicates": 0.7}, r"nowhere\.jsonl: no such file"),
        ({"min_cited": 0}, r"data\.min_cited: 0 is no number of papers from 1 on"),
        ({"found": "test"}, r"data\.found: 'test' is neither all nor train"),
    ],
)
def test_options_that_cannot_be_used_are_named(
    ask: Callable[..., GraphQueries], options: dict[str, Any], said: str
) -> None:
    with pytest.raises(InputError, match=said):
        ask(**options)


def test_counts_are_those_of_the_questions(ask: Callable[..., GraphQueries], tmp_path: Path) -> None:
    found = ask(YearShares(0.6, 0.2, 0.2, 1, 0), near_duplicates=0.0)  # any shared word
    table = count_collection(found, tmp_path / "out")
    counts = json.loads((tmp_path / "out" / "counts.json").read_text())
    assert (counts["documents"], counts["left_out"], counts["citations"]) == (10, 1, 10)
    assert counts["citations_per_document"] == 1.0 and (counts["unknown"], counts["passed_over"]) == (1, 3)
    characters = sum(len(title) + len(f"Abstract {row}.") for row, title in enumerate(TITLES) if row != 2)
    assert counts["characters_per_document"] == characters / 10
    assert counts["splits"]["train"]["years"] == [2001, 2002]
    assert [counts["splits"]["test"][key] for key in ("queries", "pairs", "asked")] == [2, 4, 1]
    assert counts["near_duplicates"] == len(found.removed) > 0
    assert "| queries, test (2004–2005) | 2 |" in table and "| queries used, test | 1 |" in table
    queries = json.loads((tmp_path / "out" / "queries.json").read_text())
    held_out = read(tmp_path / "out" / "held_out.jsonl.gz")
    ids = sorted(queries["val"] + queries["test"])
    assert [paper["paper_id"] for paper in held_out] == ids and len(ids) == 2
    # The files are used as they are: the same queries, and what is held out of another collection.
    same = ask(queries=tmp_path / "out" / "queries.json")
    assert names(same.queries)["test"] == names(found.queries)["test"]
    file = tmp_path / "out" / "held_out.jsonl.gz"
    like = ask(YearShares(1, 0, 0, None, 0), near_duplicates=0.9, held_out=file)
    same_title = {"p6", "p8"} if "p8" in ids else set()
    assert {like.graph.ids[row] for row in like.removed.tolist()} == {*ids} | same_title


def read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in gzip.decompress(path.read_bytes()).splitlines()]


def test_a_splitting_of_papers_alone_still_splits(ask: Callable[..., GraphQueries]) -> None:
    found = ask(RandomSplitting(0.0, 0.0, 1.0, seed=0), near_duplicates=0.7)
    queries = names(found.queries)
    assert queries["test"].keys() == {0, 2, 3, 4, 5, 6, 7, 8, 9} and not queries["train"]


@pytest.mark.slow
def test_the_command(write: Write, tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "datasets.count",
        f"data.papers={write()}",
        f"data.cache_dir={tmp_path}/cache",
    ]
    command += [f"output_dir={tmp_path}/out", "data.near_duplicates=0.7"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and "| documents | 10 |" in done.stdout, done.stderr
    assert (tmp_path / "out" / "counts.md").read_text() in done.stdout
    command.append("data.near_duplicates=2")
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 2 and done.stderr.startswith("error: data.near_duplicates:"), done.stderr
