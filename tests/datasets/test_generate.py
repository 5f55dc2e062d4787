"""Generated corpora: identical bytes for any number of processes, and the documented statistics."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from citerec.base.errors import InputError
from citerec.datasets import generate as records
from citerec.datasets.corpus import Corpus
from citerec.datasets.generate import (
    COMMON,
    CORE,
    MAX_RANK,
    SEPARATORS,
    TABLE,
    TAIL,
    GenerationPlan,
    Generator,
    Words,
    open_demo,
    word,
)
from citerec.datasets.prepare import open_corpus
from citerec.datasets.records import SPLITS
from citerec.retrieval.lexical.bm25 import BM25
from citerec.tests.conftest import Done

generate_corpus = partial(records.generate_corpus, seed=0, workers=None)


@pytest.fixture(scope="module")
def words() -> Words:
    return Words()


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "BLOCK", 128)


def content(folder: Path) -> dict[str, Any]:
    return {path.name.split(".")[0]: json.loads(path.read_bytes()) for path in folder.iterdir()}


def test_no_two_ranks_share_a_word() -> None:
    several = [*range(1, 30_000), *(2**power + i for power in range(15, 40) for i in range(50))]
    assert len({json.loads(f'"{word(rank)}"') for rank in several}) == len(several)


@given(st.lists(st.floats(0, 1, exclude_max=True), min_size=2, max_size=50))
def test_ranks_are_the_inverse_of_their_distribution(words: Words, numbers: list[float]) -> None:
    uniform = np.sort(np.array(numbers))
    ranks = words.ranks(uniform)
    assert (np.diff(ranks) >= 0).all() and ranks.min() >= 1
    for number, rank in zip(uniform.tolist(), ranks.tolist(), strict=True):
        if rank <= CORE:
            assert (words.share(rank - 1) if rank > 1 else 0) <= number < words.share(rank)
        elif (
            rank < MAX_RANK
        ):  # a share (CORE / rank) ** (TAIL - 1) of the words rarer than CORE is rarer than this rank
            left = (1 - number) / (1 - words.share(CORE))
            assert (CORE / rank) ** (TAIL - 1) <= left * (1 + 1e-9)
            assert (CORE / (rank - 1)) ** (TAIL - 1) >= left * (1 - 1e-9)


def test_texts_are_the_words_of_their_ranks(words: Words) -> None:
    lengths = np.array([1, 5, 3])
    ranks = np.array([3, 1, 0, 5000, TABLE + 7, 10**9, TABLE - 1, TABLE, 2])
    texts = words.texts(ranks, lengths, np.random.default_rng(0)).to_pylist()
    assert all(text.endswith(".") for text in texts)
    found = [part for text in texts for part in text.strip(".").split()]
    assert len(found) <= len(ranks)
    joined = "".join(filter(str.isalnum, "".join(texts))).lower()
    expected = ["othercit" if rank == 0 else word(rank) for rank in ranks.tolist()]
    assert joined == "".join(filter(str.isalnum, "".join(expected)))
    assert texts[0] == COMMON[2].capitalize() + "." and SEPARATORS[0] == " "
    opened = words.texts(ranks, lengths, np.random.default_rng(0), ends=False).to_pylist()
    assert all(text.endswith(" ") for text in opened) and opened[0] == COMMON[2] + " "


def test_frequencies_and_growth_are_those_of_abstracts(words: Words) -> None:
    """Compare with measurements of real abstracts."""
    ranks = words.ranks(np.random.default_rng(0).random(1_000_000))
    for rank, share in ((1, 0.060), (10, 0.238), (100, 0.434), (1000, 0.731), (5000, 0.924), (20_000, 0.982)):
        assert np.mean(ranks <= rank) == pytest.approx(share, abs=0.03)
    # Without topics, words repeat less, so the vocabulary is larger than that of real texts.
    for count, types in ((100_000, 9374), (1_000_000, 29_071)):
        assert 1.0 < len(np.unique(ranks[:count])) / types < 1.4


def test_the_same_seed_gives_the_same_files(small_blocks: None, tmp_path: Path) -> None:
    generate_corpus(500, 1000, tmp_path / "one", seed=3, workers=1)
    generate_corpus(500, 1000, tmp_path / "again", seed=3, workers=1)
    generate_corpus(500, 1000, tmp_path / "other", seed=4, workers=1)
    for path in (tmp_path / "one").iterdir():
        plain = path.read_bytes()
        assert (tmp_path / "again" / path.name).read_bytes() == plain
        assert (tmp_path / "other" / path.name).read_bytes() != plain


@pytest.mark.slow
def test_several_processes_write_the_same_files(tmp_path: Path) -> None:
    for workers in (1, 2):
        generate_corpus(9000, 9000, tmp_path / str(workers), seed=1, workers=workers)
    for path in (tmp_path / "1").iterdir():
        assert (tmp_path / "2" / path.name).read_bytes() == path.read_bytes()


@pytest.mark.parametrize(("papers", "contexts"), [(100, 100), (130, 257), (700, 1500), (100, 2000)])
def test_requested_counts_are_exact(small_blocks: None, tmp_path: Path, papers: int, contexts: int) -> None:
    generate_corpus(papers, contexts, tmp_path / "new", workers=1)
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


def test_lengths_and_citations_match_measurements() -> None:
    plan = GenerationPlan(200_000, 400_000)
    generator = Generator(plan)
    papers = json.loads(generator.block("papers", 0)["papers"] + b"}")
    title, abstract = (
        np.array([len(paper[key].split()) for paper in papers.values()]) for key in ("title", "abstract")
    )
    assert (title.mean(), title.std()) == pytest.approx((9.2, 3.6), rel=0.05)
    assert (abstract.mean(), abstract.std()) == pytest.approx((119.9, 59.4), rel=0.05)
    made = [generator.block("contexts", number)["contexts"].replace(b",\n", b"{", 1) for number in (3, 5)]
    contexts = [context for block in made for context in json.loads(block + b"}").values()]
    sides = [len(side.split()) for context in contexts for side in context["masked_text"].split("TARGETCIT")]
    assert np.mean(sides) == pytest.approx(27.5, rel=0.05)
    per_paper = Counter(context["citing_id"] for context in contexts)
    assert np.mean(list(per_paper.values())) == pytest.approx(20, rel=0.05)
    cited = np.sort(list(Counter(context["refid"] for context in contexts).values()))[::-1]
    assert cited[0] > 10 * cited[len(cited) // 10] and len(cited) > 0.3 * len(contexts)


@pytest.mark.slow
def test_a_cited_paper_can_be_found_by_its_words(tmp_path: Path) -> None:
    generate_corpus(3000, 3000, tmp_path / "new", workers=1)
    corpus = open_corpus(tmp_path / "new", cache_dir=tmp_path)
    retriever = BM25(query=["context"])
    retriever.index(corpus)
    split = corpus.split("train")
    ranking = retriever.search(split.contexts[:200], 10)
    found = (ranking.papers == split.positives.values[:200, None]).any(axis=1).mean()
    assert 0.2 < found < 0.95


def test_words_find_some_of_the_demos_papers_and_synonyms_more(tmp_path: Path) -> None:
    corpus = open_demo(cache_dir=tmp_path)
    assert [len(split) for split in corpus.splits.values()] == [6378, 841, 781]
    assert len(corpus.field_names) == 10 and corpus.is_candidate.all()
    found = recall_at_10(corpus)
    folder = next((tmp_path / "demo").glob("papers*"))
    names = {new: old for old, new in Generator(GenerationPlan(2000, 8000)).synonyms().items()}
    contexts = json.loads((folder / "contexts.json").read_bytes())
    for context in contexts.values():
        text = context["masked_text"]
        context["masked_text"] = re.sub(r"\w+", lambda word: names.get(word[0], word[0]), text)
    (folder / "contexts.json").write_text(json.dumps(contexts))
    understood = recall_at_10(open_corpus(folder, cache_dir=tmp_path))
    assert 0.35 < found < 0.5 and understood > found + 0.15


def recall_at_10(corpus: Corpus) -> float:
    """Return the recall@10 of BM25 on the test split."""
    retriever, split = BM25(query=["context"]), corpus.split("test")
    retriever.index(corpus)
    found = retriever.search(split.contexts, 10).papers == split.positives.values[:, None]
    return float(found.any(axis=1).mean())


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
        ({"seed": -1}, "seed=-1: the seed must be"),
    ],
)
def test_impossible_sizes_are_a_one_line_error(tmp_path: Path, settings: dict[str, int], line: str) -> None:
    with pytest.raises(InputError, match=line):
        generate_corpus(**({"papers": 100, "contexts": 100, "output": tmp_path / "new"} | settings))  # type: ignore[arg-type]
    assert not (tmp_path / "new").exists()


@pytest.mark.slow
def test_command_line(tmp_path: Path, script: Callable[..., Done]) -> None:
    options = ("papers=100", "contexts=100", "workers=1", f"output={tmp_path / 'new'}")
    done = [script("data", "generate", *options) for _ in range(2)]
    assert done[0].code == 0 and "100 papers, 100 contexts" in done[0].out, done[0].err
    assert done[1].code == 2 and "already exists" in done[1].err
    assert "Traceback" not in done[1].err
