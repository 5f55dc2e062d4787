"""Papers, splits, targets, years, lengths and empty fields of a small corpus with known counts."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from citerec.datasets.corpus import Corpus
from citerec.datasets.inspect.statistics import (
    empty_table,
    length_table,
    paper_table,
    split_table,
    target_table,
)
from citerec.datasets.inspect.tables import CorpusView, Line, Table, flat_counts
from citerec.datasets.near_duplicates import counted_words, word_lengths

PAPERS = {
    "a": {"year": 2001, "title": "One, two"},
    "b": {"year": 2005, "abstract": ""},
    "c": {"title": "", "abstract": "Five words are in it."},
    "d": {"year": 2009},
    "p": {"year": 2006},
    "q": {"year": 2008, "abstract": ""},
    "r": {"title": ""},
    "alone": {"year": 1999},
}
CONTEXTS = {
    "c1": ("train", "p", "a", "Three words stand TARGETCIT."),
    "c2": ("train", "p", ["a", "b"], "Words TARGETCIT, more OTHERCIT of them."),
    "c3": ("train", "q", "d", "OTHERCIT (TARGETCIT)."),
    "c4": ("test", "r", "b", "One TARGETCIT."),
    "c5": ("test", "r", "c", "One two TARGETCIT."),
    "c6": ("test_more", "r", ["r", "c"], "One two three TARGETCIT."),
    "c7": (None, "alone", "a", "In no split TARGETCIT."),
}


@pytest.fixture
def corpus(make_corpus: Callable[..., Corpus]) -> Corpus:
    return make_corpus(PAPERS, CONTEXTS, candidates="abstract", splits=["train", "val", "test", "test_more"])


def rows(table: Table) -> dict[str, list[object]]:
    """The values of each line in column order, "-" for none."""
    return {line.key: [line.values.get(column, "-") for column in table.columns] for line in table.lines}


def examples(table: Table) -> dict[str, dict[str, list[str]]]:
    """Examples by line and column, if any."""
    found = {
        line.key: {column: [*ids] for column, ids in line.examples.items() if ids} for line in table.lines
    }
    return {key: columns for key, columns in found.items() if columns}


def test_papers_and_missing_fields_by_role(corpus: Corpus) -> None:
    has_authors = np.array([True, False, True, True, True, True, True, False])
    table = paper_table(CorpusView(corpus), has_authors)
    assert table.columns == ["all", "candidates", "citing", "cited", "neither"]
    # "r" cites itself; "alone" has a context in no split, but is still a citing paper.
    assert rows(table) == {
        "papers": [8, 6, 4, 5, 0],
        "no_title": [2, 2, 1, 2, 0],
        "no_abstract": [2, 0, 1, 1, 0],
        "no_year": [2, 2, 1, 2, 0],
        "no_authors": [2, 1, 1, 1, 0],
        "year_earliest": [1999, 1999, 1999, 2001, None],
        "year_median": [2005, 2001, 2006, 2005, None],
        "year_latest": [2009, 2009, 2008, 2009, None],
    }
    assert examples(table)["no_title"] == {
        "all": ["c", "r"], "candidates": ["c", "r"], "citing": ["r"], "cited": ["c", "r"]
    }  # fmt: skip


def test_splits(corpus: Corpus) -> None:
    table = split_table(CorpusView(corpus))
    assert table.columns == ["train", "test", "test_more"]
    assert rows(table) == {
        "contexts": [3, 2, 1],
        "citing": [2, 1, 1],
        "cited": [3, 2, 2],
        "citations": [4, 2, 2],
        "several": [1, 0, 1],
        "per_citing": [1.5, 2.0, 1.0],
        "per_cited": [4 / 3, 1.0, 1.0],
        "citing_in_train": ["-", 0, 0],
        "citing_in_test": [0, "-", 1],
        "citing_in_test_more": [0, 1, "-"],
    }
    assert examples(table)["several"] == {"train": ["c2"], "test_more": ["c6"]}
    assert examples(table)["citing_in_test"] == {"test_more": ["r"]}


def test_seen_and_unseen_targets(corpus: Corpus, make_corpus: Callable[..., Corpus]) -> None:
    table = target_table(CorpusView(corpus))
    assert rows(table) == {
        "seen": [3, 1, 0],
        "unseen": [0, 1, 1],
        "papers_seen": [3, 1, 0],
        "papers_unseen": [0, 1, 2],
        "itself": [0, 0, 1],
        "no_candidate": [1, 1, 0],
        # A citing paper with unknown year is not earlier than its targets.
        "later": [1, 0, 0],
    }
    assert examples(table)["no_candidate"] == {"train": ["c2"], "test": ["c4"]}
    without = make_corpus({"a": {}, "p": {}}, {"c1": ("test", "p", "a", "It stands TARGETCIT.")})
    table = target_table(CorpusView(without))
    assert list(rows(table)) == ["itself", "no_candidate", "later"] and "no split train" in table.note


def test_lengths_and_quantiles(corpus: Corpus) -> None:
    counted = counted_words(corpus.words)
    tokens = corpus.context_tokens, corpus.title_tokens, corpus.abstract_tokens
    contexts, titles, abstracts = (word_lengths(part, counted) for part in tokens)
    assert contexts.tolist() == [3, 4, 0, 1, 2, 3, 3]  # without markers and punctuation
    values = {line.key: line.values for line in length_table(corpus, contexts, titles, abstracts).lines}
    train = values["contexts_train"]
    assert [train[key] for key in ("texts", "least", "median", "most")] == [3, 0, 3, 4]
    assert train["mean"] == pytest.approx(7 / 3)
    assert [values["titles"][key] for key in ("texts", "least", "median")] == [6, 2, 3]
    assert [values["abstracts"][key] for key in ("texts", "most")] == [6, 5]
    # A quantile is a length that this share of the texts does not exceed.
    table = length_table(corpus, contexts, np.arange(1, 101), np.zeros(0, np.int64))
    *_, titles_line, abstracts_line = table.lines
    quantiles = [titles_line.values[column] for column in ("p5", "median", "p95")]
    assert quantiles == [5, 50, 95] and abstracts_line.values == {"texts": 0}


def test_empty_fields_of_contexts(corpus: Corpus) -> None:
    words = word_lengths(corpus.context_tokens, counted_words(corpus.words))
    table = empty_table(CorpusView(corpus), words)
    assert rows(table) == {
        "context": [1, 0, 0],
        "citing_title": [0, 2, 1],
        "citing_abstract": [1, 0, 0],
        "cited_title": [0, 1, 1],
        "cited_abstract": [1, 1, 0],
    }
    assert examples(table)["context"] == {"train": ["c3"]}


def test_lines_are_flat_and_readable() -> None:
    of = {"x": 10_000, "y": 3, "z": 2000}
    line = Line("found", "what", {"x": 1, "y": 3, "z": 1999, "u": 1.25}, of, {"x": ["id"], "y": []})
    table = Table("part", "Title", "", ["x", "y", "z", "u", "none"], [line])
    assert flat_counts([table]) == {
        "part/found/x": 1,
        "part/found/x/examples": ["id"],
        "part/found/y": 3,
        "part/found/z": 1999,
        "part/found/u": 1.25,
    }
    shown = [line.format_value(column) for column in table.columns]
    assert shown == ["1 (< 0.1 %)", "3 (100.0 %)", "1,999 (> 99.9 %)", "1.2", "–"]
    assert Line("y", "", {"x": 2003.5, "y": 2003}, is_year=True).format_value("x") == "2003.5"
