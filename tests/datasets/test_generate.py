"""The generated corpus: identical bytes for a seed, and the documented statistics."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from citerec.base.errors import InputError
from citerec.datasets import generate as records
from citerec.datasets.generate import generate_corpus, open_demo, word
from citerec.datasets.prepare import open_corpus
from citerec.datasets.records import SPLITS


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "BLOCK", 128)


def content(folder: Path) -> dict[str, Any]:
    return {path.name.split(".")[0]: json.loads(path.read_bytes()) for path in folder.iterdir()}


def test_no_two_ranks_share_a_word() -> None:
    several = [*range(1, 30_000), *(2**power + i for power in range(15, 40) for i in range(50))]
    assert len({word(rank) for rank in several}) == len(several)


def test_the_same_seed_gives_the_same_files(small_blocks: None, tmp_path: Path) -> None:
    generate_corpus(500, 1000, tmp_path / "one", seed=3)
    generate_corpus(500, 1000, tmp_path / "again", seed=3)
    generate_corpus(500, 1000, tmp_path / "other", seed=4)
    for path in (tmp_path / "one").iterdir():
        plain = path.read_bytes()
        assert (tmp_path / "again" / path.name).read_bytes() == plain
        assert (tmp_path / "other" / path.name).read_bytes() != plain


@pytest.mark.parametrize(("papers", "contexts"), [(100, 100), (130, 257), (700, 1500), (100, 2000)])
def test_requested_counts_are_exact(small_blocks: None, tmp_path: Path, papers: int, contexts: int) -> None:
    generate_corpus(papers, contexts, tmp_path / "new")
    files = content(tmp_path / "new")
    assert len(files["papers"]) == papers and len(files["contexts"]) == contexts
    queries = [query["context_id"] for split in SPLITS for query in files[split]]
    assert queries == list(files["contexts"])  # each once, in citing paper order
    years = [paper["year"] for paper in files["papers"].values()]
    assert years == sorted(years) and years[0] == 1991 and 2018 <= years[-1] <= 2019
    # No citing paper is in two splits.
    corpus = open_corpus(tmp_path / "new", cache_dir=tmp_path, field="field")
    assert all(len(split) for split in corpus.splits.values())
    split = np.concatenate([corpus.split(name).positives.values for name in SPLITS])
    assert (split < corpus.citing).all()  # papers cite earlier papers
    assert (np.bincount(corpus.citing)[-1] > 0) and corpus.context_tokens.lengths.min() > 3


def test_lengths_and_citations_match_measurements(tmp_path: Path) -> None:
    generate_corpus(5000, 10_000, tmp_path / "new")
    files = content(tmp_path / "new")
    title, abstract = (
        np.array([len(paper[key].split()) for paper in files["papers"].values()])
        for key in ("title", "abstract")
    )
    assert (title.mean(), title.std()) == pytest.approx((9.2, 3.6), rel=0.05)
    assert (abstract.mean(), abstract.std()) == pytest.approx((119.9, 59.4), rel=0.05)
    contexts = files["contexts"].values()
    sides = [len(side.split()) for context in contexts for side in context["masked_text"].split("TARGETCIT")]
    assert np.mean(sides) == pytest.approx(27.5, rel=0.05)
    per_paper = Counter(context["citing_id"] for context in contexts)
    assert np.mean(list(per_paper.values())) == pytest.approx(20, rel=0.05)
    cited = np.sort(list(Counter(context["refid"] for context in contexts).values()))[::-1]
    assert cited[0] > 10 * cited[len(cited) // 10]


def test_the_demo_is_generated_once(tmp_path: Path) -> None:
    corpus = open_demo(120, 100, seed=3, cache_dir=tmp_path)
    files = sorted((tmp_path / "demo").rglob("*.json"))
    assert [file.stem for file in files] == ["contexts", "papers", "test", "train", "val"]
    stamps = [file.stat().st_mtime_ns for file in files]
    again = open_demo(120, 100, seed=3, tokenizer="reference", cache_dir=tmp_path)
    assert [file.stat().st_mtime_ns for file in files] == stamps
    assert corpus.name == again.name == "demo" and corpus.fingerprint != again.fingerprint


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        ({"papers": 99}, "papers=99 .*at least 100 of each"),
        ({"contexts": 0}, "contexts=0 .*at least 100 of each"),
        ({"contexts": 50_001}, "at most 500 contexts per paper"),
        ({"seed": -1}, "seed=-1: needs at least"),
    ],
)
def test_impossible_sizes_are_a_one_line_error(tmp_path: Path, settings: dict[str, int], line: str) -> None:
    with pytest.raises(InputError, match=line):
        generate_corpus(**({"papers": 100, "contexts": 100, "output": tmp_path / "new"} | settings))  # type: ignore[arg-type]
    assert not (tmp_path / "new").exists()
