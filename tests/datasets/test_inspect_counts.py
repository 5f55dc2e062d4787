"""Papers, splits, targets, years, lengths and empty fields of corpora that are counted by hand."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from datasets.corpus import Corpus
from datasets.inspection.counts import (
    citations,
    empty_section,
    length_section,
    paper_section,
    split_section,
    target_section,
    year_section,
)
from datasets.inspection.findings import Line, Section, flat
from datasets.near_duplicates import counted_words, word_lengths

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


def row(section: Section, key: str) -> dict[str, object]:
    """The values of a line by column."""
    (line,) = (line for line in section.lines if line.key == key)
    return dict(line.values)


def examples(section: Section, key: str) -> dict[str, list[str]]:
    (line,) = (line for line in section.lines if line.key == key)
    return {column: list(ids) for column, ids in line.examples.items() if ids}


def test_papers_by_role_and_what_they_lack(corpus: Corpus) -> None:
    has_authors = np.array([True, False, True, True, True, True, True, False])
    section = paper_section(corpus, has_authors)
    assert section.columns == ["all", "candidates", "citing", "cited", "neither"]

    def counts(*numbers: float) -> dict[str, float]:
        return dict(zip(section.columns, numbers, strict=True))

    # "r" cites itself; "alone" cites in no split, which makes it a citing paper all the same.
    assert row(section, "papers") == counts(8, 6, 4, 5, 0)
    assert row(section, "no_title") == counts(2, 2, 1, 2, 0)
    assert row(section, "no_abstract") == counts(2, 0, 1, 1, 0)
    assert row(section, "no_year") == counts(2, 2, 1, 2, 0)
    assert row(section, "no_authors") == counts(2, 1, 1, 1, 0)
    assert row(section, "year_earliest") == {**counts(1999, 1999, 1999, 2001, 0), "neither": None}
    assert row(section, "year_median")["citing"] == 2006
    assert examples(section, "no_title") == {
        "all": ["c", "r"],
        "candidates": ["c", "r"],
        "citing": ["r"],
        "cited": ["c", "r"],
    }


def test_splits(corpus: Corpus) -> None:
    section = split_section(corpus, citations(corpus))
    assert section.columns == ["train", "test", "test_more", "no split"]
    assert row(section, "contexts") == {"train": 3, "test": 2, "test_more": 1, "no split": 1}
    assert row(section, "citing") == {"train": 2, "test": 1, "test_more": 1}
    assert row(section, "cited") == {"train": 3, "test": 2, "test_more": 2}
    assert row(section, "citations") == {"train": 4, "test": 2, "test_more": 2}
    assert row(section, "several") == {"train": 1, "test": 0, "test_more": 1}
    assert examples(section, "several") == {"train": ["c2"], "test_more": ["c6"]}
    assert row(section, "per_citing") == {"train": 1.5, "test": 2.0, "test_more": 1.0}
    assert row(section, "per_cited") == {"train": 4 / 3, "test": 1.0, "test_more": 1.0}
    assert row(section, "citing_in_train") == {"test": 0, "test_more": 0}
    assert row(section, "citing_in_test") == {"train": 0, "test_more": 1}
    assert examples(section, "citing_in_test") == {"test_more": ["r"]}


def test_seen_and_unseen_targets(corpus: Corpus) -> None:
    section = target_section(corpus, citations(corpus))
    assert row(section, "seen") == {"train": 3, "test": 1, "test_more": 0}
    assert row(section, "unseen") == {"train": 0, "test": 1, "test_more": 1}
    assert row(section, "papers_seen") == {"train": 3, "test": 1, "test_more": 0}
    assert row(section, "papers_unseen") == {"train": 0, "test": 1, "test_more": 2}
    assert row(section, "itself") == {"train": 0, "test": 0, "test_more": 1}
    assert row(section, "no_candidate") == {"train": 1, "test": 1, "test_more": 0}
    assert examples(section, "no_candidate") == {"train": ["c2"], "test": ["c4"]}


def test_without_a_training_split_nothing_is_seen_or_unseen(make_corpus: Callable[..., Corpus]) -> None:
    corpus = make_corpus({"a": {}, "p": {}}, {"c1": ("test", "p", "a", "It stands TARGETCIT.")})
    section = target_section(corpus, citations(corpus))
    assert [line.key for line in section.lines] == ["itself", "no_candidate"]
    assert "no split train" in section.note


def test_years(corpus: Corpus) -> None:
    section = year_section(corpus, citations(corpus))
    assert row(section, "citing_earliest") == {"train": 2006, "test": None, "test_more": None}
    assert row(section, "citing_median") == {"train": 2007, "test": None, "test_more": None}
    assert row(section, "cited_earliest") == {"train": 2001, "test": 2005, "test_more": None}
    assert row(section, "cited_latest") == {"train": 2009, "test": 2005, "test_more": None}
    # A citing paper of an unknown year is not earlier than what it cites.
    assert row(section, "later") == {"train": 1, "test": 0, "test_more": 0}
    assert examples(section, "later") == {"train": ["c3"]}


def test_lengths_are_those_of_words_without_marks_and_signs(corpus: Corpus) -> None:
    counted = counted_words(corpus.words)
    lengths = [
        word_lengths(tokens, counted)
        for tokens in (corpus.context_tokens, corpus.title_tokens, corpus.abstract_tokens)
    ]
    assert lengths[0].tolist() == [3, 4, 0, 1, 2, 3, 3]
    section = length_section(corpus, *lengths)
    train = row(section, "contexts_train")
    assert (train["texts"], train["least"], train["median"], train["most"]) == (3, 0, 3, 4)
    assert train["mean"] == pytest.approx(7 / 3)
    titles, abstracts = row(section, "titles"), row(section, "abstracts")
    assert (titles["texts"], titles["least"], titles["median"]) == (6, 2, 3)
    assert (abstracts["texts"], abstracts["most"]) == (6, 5)


def test_quantiles_are_lengths_that_such_a_share_does_not_exceed(corpus: Corpus) -> None:
    lengths = np.array([*range(1, 101)])
    ones = np.ones(len(corpus.context_ids), np.int64)
    values = row(length_section(corpus, ones, lengths, lengths[:0]), "titles")
    assert [values[column] for column in ("p1", "p5", "p25", "median", "p99")] == [1, 5, 25, 50, 99]
    assert row(length_section(corpus, ones, lengths, lengths[:0]), "abstracts") == {"texts": 0}


def test_empty_fields_of_contexts(corpus: Corpus) -> None:
    words = word_lengths(corpus.context_tokens, counted_words(corpus.words))
    section = empty_section(corpus, citations(corpus), words)
    assert row(section, "context") == {"train": 1, "test": 0, "test_more": 0}
    assert examples(section, "context") == {"train": ["c3"]}
    assert row(section, "citing_title") == {"train": 0, "test": 2, "test_more": 1}
    assert row(section, "citing_abstract") == {"train": 1, "test": 0, "test_more": 0}
    assert row(section, "cited_title") == {"train": 0, "test": 1, "test_more": 1}
    assert row(section, "cited_abstract") == {"train": 1, "test": 1, "test_more": 0}


def test_findings_are_flat_and_readable() -> None:
    of = {"x": 10_000, "y": 3, "z": 2000}
    line = Line("found", "what", {"x": 1, "y": 3, "z": 1999, "u": 1.25}, of, {"x": ["id"], "y": []})
    section = Section("part", "Title", "", ["x", "y", "z", "u", "none"], [line])
    assert flat([section]) == {
        "part/found/x": 1,
        "part/found/x/examples": ["id"],
        "part/found/y": 3,
        "part/found/z": 1999,
        "part/found/u": 1.25,
    }
    shown = [line.shown(column) for column in section.columns]
    assert shown == ["1 (< 0.1 %)", "3 (100.0 %)", "1,999 (> 99.9 %)", "1.2", "–"]
    assert Line("y", "", {"x": 2003.5, "y": 2003}, is_year=True).shown("x") == "2003.5"
