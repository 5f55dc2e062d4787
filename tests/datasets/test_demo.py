"""The demo corpus: its counts, and that matching names solves it while matching words does not."""

import hashlib
import json
import random
import re
from collections.abc import Callable
from pathlib import Path

import bm25s
import numpy as np
import pytest
import Stemmer

from citerec.datasets.corpus import Corpus
from citerec.datasets.demo import Concept, demo_texts, generate, make_topics, open_demo, parse_pairs
from citerec.datasets.errors import InputError
from citerec.datasets.records import OTHER_MARKER, TARGET_MARKER

STEMMER = Stemmer.Stemmer("english")


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    return open_demo(cache_dir=tmp_path_factory.mktemp("demo"))


def test_its_counts(demo: Corpus) -> None:
    assert len(demo.paper_ids) == 2000 and demo.is_candidate.all() and len(set(demo.titles)) > 1900
    sizes = {name: len(split) for name, split in demo.splits.items()}
    assert sizes == {"train": 6400, "val": 800, "test": 800}
    assert len(demo.context_ids) == 8000 and len(set(demo.context_texts)) > 7900
    assert 2000 < len(demo.words) < 3500

    of_field = [int(demo.in_fields([field]).sum()) for field in demo_texts()["fields"]]
    assert len(of_field) == 10 and min(of_field) > 100 and sum(of_field) == 2000
    assert 0.2 < 1 - demo.seen[demo.splits["test"].positives.values].mean() < 0.4
    citing = [np.unique(demo.citing[split.contexts]) for split in demo.splits.values()]
    assert len(np.unique(np.concatenate(citing))) == sum(
        map(len, citing)
    )  # every citing paper is in one split
    for split in demo.splits.values():  # papers cite earlier papers
        assert (split.positives.values < demo.citing[split.contexts]).all()


def test_generation_is_deterministic_per_seed() -> None:
    first, again, other = (json.dumps(generate(200, 400, seed)).encode() for seed in (1, 1, 2))
    assert first == again != other
    # Results in docs/ depend on this process: changing it requires a new VERSION.
    assert hashlib.sha256(first).hexdigest()[:16] == "1745738dee52c05a"


def test_formal_and_other_names_share_no_stem() -> None:
    words = demo_texts()
    lists = [words[key] for key in ("actions", "adjectives", "heads", "collections", "properties")]
    lists += [text for things in words["fields"].values() for text in things.values()]
    named = [names for text in lists for names in parse_pairs(text)]
    assert len(named) == 225
    small = {"of", "in", "to", "by", "from", "over"}
    formal, other = (
        {STEMMER.stemWord(word) for names in named for word in names[side].split() if word not in small}
        for side in (0, 1)
    )
    assert not formal & other


def recall_at_10(demo: Corpus, read: Callable[[str], str]) -> float:
    """Recall@10 of plain BM25 on the test split, with `read` applied to all texts."""
    split = demo.splits["test"]
    papers = [
        read(f"{title} {abstract}") for title, abstract in zip(demo.titles, demo.abstracts, strict=True)
    ]
    contexts = [demo.context_texts[row] for row in split.contexts]
    queries = [read(text.replace(TARGET_MARKER, "").replace(OTHER_MARKER, "")) for text in contexts]
    index = bm25s.BM25(method="lucene", k1=1.2, b=0.75)
    tokens = [
        bm25s.tokenize(texts, "en", stemmer=STEMMER, show_progress=False) for texts in (papers, queries)
    ]
    index.index(tokens[0], show_progress=False)
    found, _ = index.retrieve(tokens[1], k=11, show_progress=False)
    found[found == demo.citing[split.contexts][:, None]] = -1  # exclude the citing paper
    return float((found == split.positives.values[:, None]).any(1).mean())


def with_one_name_each(text: str, names: dict[tuple[str, ...], str]) -> str:
    """Replace every name of a concept, longest first, by a single word."""
    words, read, i = tuple(re.findall(r"\w+", text.lower())), [], 0
    while i < len(words):
        length = next((n for n in range(8, 0, -1) if words[i : i + n] in names), 0)
        read.append(names[words[i : i + length]] if length else words[i])
        i += length or 1
    return " ".join(read)


def test_names_solve_it_and_words_do_not(demo: Corpus) -> None:
    concepts: dict[int, Concept] = {}
    for topic in make_topics(random.Random(0)):
        concepts |= {id(concept): concept for own in topic.possible.values() for concept in own}
    names = {
        tuple(form.lower().split()): f"concept{key}"
        for key, concept in concepts.items()
        for form in concept.forms
    }
    lexical = recall_at_10(demo, str)
    oracle = recall_at_10(demo, lambda text: with_one_name_each(text, names))
    assert 0.15 < lexical < 0.3
    assert oracle > 0.8


def test_generated_once_and_readable_as_source(tmp_path: Path) -> None:
    corpus = open_demo(120, 60, seed=3, cache_dir=tmp_path)
    files = sorted((tmp_path / "demo").rglob("*.json"))
    assert [file.stem for file in files] == ["contexts", "papers", "test", "train", "val"]
    stamps = [file.stat().st_mtime_ns for file in files]
    again = open_demo(120, 60, seed=3, tokenizer="reference", cache_dir=tmp_path)
    assert [file.stat().st_mtime_ns for file in files] == stamps
    assert corpus.name == again.name == "demo" and corpus.fingerprint != again.fingerprint
    assert np.array_equal(corpus.splits["test"].contexts, again.splits["test"].contexts)
    assert len(corpus.paper_ids) == 120 and sum(map(len, corpus.splits.values())) == 60


@pytest.mark.parametrize(("papers", "contexts"), [(20, 100), (200, 10)])
def test_too_small(tmp_path: Path, papers: int, contexts: int) -> None:
    with pytest.raises(InputError, match=f"data.papers={papers} data.contexts={contexts}"):
        open_demo(papers, contexts, cache_dir=tmp_path)
    assert not list(tmp_path.iterdir())
