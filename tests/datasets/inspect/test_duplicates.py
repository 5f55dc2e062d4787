"""Duplicate papers and contexts, within and across splits, checked by example and by brute force."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from citerec.datasets.columns import Ragged
from citerec.datasets.corpus import Corpus, Split
from citerec.datasets.inspect.duplicates import (
    ALL,
    context_duplicate_table,
    paper_duplicate_table,
    same_titles,
)
from citerec.datasets.inspect.tables import CorpusView, Table
from citerec.datasets.near_duplicates import counted_words
from citerec.tests.datasets.conftest import Described

LONG = "one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen"


def row(table: Table, key: str) -> dict[str, object]:
    """The non-zero values of a line."""
    (line,) = (line for line in table.lines if line.key == key)
    return {column: value for column, value in line.values.items() if value}


def examples(table: Table, key: str) -> dict[str, Sequence[str]]:
    (line,) = (line for line in table.lines if line.key == key)
    return {column: ids for column, ids in line.examples.items() if ids}


PAPERS = {
    # The same title in different spelling, with other abstracts.
    "title-1": {"title": "Pre-training of deep nets", "abstract": f"We train. {LONG}"},
    "title-2": {"title": "Pretraining of Deep Nets!", "abstract": "Something else altogether is said here."},
    # The same words.
    "text-1": {"title": "A study", "abstract": f"{LONG}."},
    "text-2": {"title": "A study", "abstract": f"({LONG})"},
    # Nearly the same words; the last word of the title differs.
    "near": {"title": "A study", "abstract": f"{LONG} sixteen"},
    "other": {"title": "A study one", "abstract": LONG.removeprefix("one ")},
    # A short, uninformative title.
    "editorial-1": {"title": "Editorial", "abstract": "We greet the readers of this year."},
    "editorial-2": {"title": "Editorial", "abstract": "Another editor says goodbye to all of you."},
    "untitled-1": {"title": ""},
    "untitled-2": {"title": ""},
    "p": {"title": "How we cite all that", "abstract": "Abstracts differ as they should, in what they say."},
    "q": {"title": "How We Cite All That", "abstract": "None of it is what the first version had said."},
}
CITING: Described = {
    "c1": ("train", "p", "title-1", "Some words stand before TARGETCIT."),
    "c2": ("test", "q", "text-1", "Others are found after TARGETCIT."),
    "c3": ("test", "q", "editorial-1", "Nothing of it is said TARGETCIT."),
    "c4": ("test", "q", "untitled-1", "Here is the last of them TARGETCIT."),
}


def test_papers_with_the_same_title_or_text(make_corpus: Callable[..., Corpus]) -> None:
    corpus = make_corpus(PAPERS, CITING)
    table = paper_duplicate_table(CorpusView(corpus), counted_words(corpus.words), 0.8)
    assert table.columns == ["all", "candidates", "citing", "cited", "neither"]
    # title-1 and 2, three studies, two editorials, p and q
    assert row(table, "title") == {"all": 9, "candidates": 9, "citing": 2, "cited": 3, "neither": 4}
    assert row(table, "text") == {"all": 3, "candidates": 3, "cited": 1, "neither": 2}
    assert examples(table, "text")["cited"] == ["text-1 = text-2"]
    # "A study one two ... fifteen": the words of `other` are those of the two texts.
    assert row(table, "near") == {"all": 4, "candidates": 4, "cited": 1, "neither": 3}
    assert row(table, "near_other_title") == {"all": 4, "candidates": 4, "cited": 1, "neither": 3}
    assert examples(table, "near_other_title")["cited"] == ["text-1 = other"]
    assert row(table, "pairs") == {"all": 6}
    assert row(table, "cut") == {}


CONTEXTS: Described = {
    # The same words except for marker and punctuation: another target, same citing paper.
    "group-1": ("train", "p", "a", f"{LONG} [TARGETCIT, OTHERCIT]."),
    "group-2": ("train", "p", "b", f"{LONG} [OTHERCIT, TARGETCIT]."),
    # A window shifted by one word, of another paper in test, with the target of the first context.
    "copy": ("test", "q", "a", f"{LONG} (TARGETCIT) sixteen"),
    # The same words in val with another target.
    "moved": ("val", "r", "c", f"{LONG.capitalize()} TARGETCIT"),
    "lonely": ("test", "q", "a", "Nothing of this is anywhere else to be found TARGETCIT."),
    "nowhere": (None, "s", "a", f"{LONG}; TARGETCIT"),
    "bare-1": ("train", "p", "c", "OTHERCIT, TARGETCIT"),
    "bare-2": ("test", "q", "c", "OTHERCIT, TARGETCIT"),
}


def test_contexts_within_and_across_splits(make_corpus: Callable[..., Corpus]) -> None:
    papers: dict[str, dict[str, str]] = {id: {} for id in "abcpqrs"}
    corpus = make_corpus(papers, CONTEXTS)
    table = context_duplicate_table(CorpusView(corpus), counted_words(corpus.words), 0.8)
    assert table.columns == ["all contexts", "train", "val", "test"]
    # Contexts without words are not duplicates.
    assert row(table, "same") == {"all contexts": 4, "train": 2, "val": 1}
    # Contexts in no split have unknown targets.
    assert row(table, "same_other_target") == {"all contexts": 3, "train": 2, "val": 1}
    assert examples(table, "same_other_target")["val"][0] in ("moved = group-1", "moved = group-2")
    assert row(table, "near_own") == {"all contexts": 2, "train": 2}
    assert examples(table, "near_own")["train"] == ["group-1 = group-2", "group-2 = group-1"]
    assert row(table, "near_in_train") == {"all contexts": 3, "val": 1, "test": 1}
    assert examples(table, "near_in_train")["test"] == ["copy = group-1"]
    assert row(table, "near_in_train_same_target") == {"all contexts": 1, "test": 1}
    assert examples(table, "near_in_train_same_target")["test"] == ["copy = group-1"]
    assert row(table, "near_in_test") == {"all contexts": 4, "train": 2, "val": 1}
    assert row(table, "near_in_test_same_target") == {"all contexts": 1, "train": 1}
    assert row(table, "near_in_val") == {"all contexts": 4, "train": 2, "test": 1}
    assert row(table, "near_in_val_same_target") == {}
    assert row(table, "pairs") == {"all contexts": 10}  # of five contexts
    (line,) = (line for line in table.lines if line.key == "near_in_train")
    assert line.totals["test"] == 3


class Contexts:
    """The parts of a corpus that context_duplicate_table reads."""

    def __init__(self, rows: list[tuple[list[int], int, list[int], int]]) -> None:
        """rows: (words, citing paper, targets, split or -1)."""
        self.context_ids = [str(place) for place in range(len(rows))]
        self.paper_ids = [str(place) for place in range(6)]
        self.context_tokens = Ragged.from_rows([words for words, *_ in rows])
        self.citing = np.array([citing for _, citing, *_ in rows], np.int32)
        self.splits: Mapping[str, Split] = {}
        for number, name in enumerate(("train", "test")):
            own = [place for place, (*_, split) in enumerate(rows) if split == number]
            targets = Ragged.from_rows([rows[place][2] for place in own])
            self.splits = {**self.splits, name: Split(name, np.array(own, np.int64), targets)}


contexts = st.tuples(
    st.lists(st.integers(0, 2), max_size=6),
    st.integers(0, 2),
    st.lists(st.integers(3, 5), min_size=1, max_size=2, unique=True),
    st.integers(-1, 1),
)


@given(rows=st.lists(contexts, min_size=1, max_size=10))
def test_context_duplicates_match_brute_force(
    rows: list[tuple[list[int], int, list[int], int]],
) -> None:
    table = context_duplicate_table(CorpusView(Contexts(rows)), np.ones(3, np.bool_), 0.6)  # type: ignore[arg-type]
    counts = {line.key: line.values[ALL] for line in table.lines}
    expected: Counter[str] = Counter()

    def shingles(words: list[int]) -> set[tuple[int, ...]]:
        return {tuple(words[i : i + 3]) for i in range(max(1, len(words) - 2))} if words else set()

    for place, (words, citing, targets, split) in enumerate(rows):
        others = [other for i, other in enumerate(rows) if i != place]
        same = [other for other in others if words and other[0] == words]
        expected["same"] += bool(same)
        known = [other for other in same if split >= 0 and other[3] >= 0]
        expected["same_other_target"] += any(set(other[2]) != set(targets) for other in known)
        own = shingles(words)
        near = [
            other for other in others if len(own & shingles(other[0])) >= 0.6 * len(own | shingles(other[0]))
        ]
        near = [other for other in near if own and other[0]]
        expected["pairs"] += len(near)
        expected["near_own"] += any(other[1] == citing for other in near)
        for number, name in enumerate(("train", "test")):
            there = [other for other in near if other[1] != citing and other[3] == number]
            expected[f"near_in_{name}"] += bool(there)
            common = any(split >= 0 and set(other[2]) & set(targets) for other in there)
            expected[f"near_in_{name}_same_target"] += common
    expected["pairs"] //= 2
    assert counts == {key: expected[key] for key in counts}


@given(titles=st.lists(st.sampled_from(["", "-", "A b", "a-B", "c", "C!"]), max_size=9))
def test_another_paper_with_the_title(titles: list[str]) -> None:
    keys = [title.lower().translate({ord(sign): None for sign in " -!"}) for title in titles]
    _, partners = same_titles(titles)
    for row, partner in enumerate(partners.tolist()):
        others = [other for other, key in enumerate(keys) if key and key == keys[row] and other != row]
        assert partner in others if others else partner == -1
