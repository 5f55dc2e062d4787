"""citerec data inspect: what it finds in small corpora."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from citerec.datasets.corpus import Corpus
from citerec.datasets.inspect import inspect_corpus, inspect_papers, inspect_split, same_words
from citerec.tests.conftest import Done
from citerec.tests.datasets.conftest import Described, write_corpus

Make = Callable[..., Corpus]


def splits(corpus: Corpus) -> dict[str, dict[str, list[str]]]:
    """What is found in each split, by ids."""
    hashes = same_words(corpus, corpus.context_tokens)
    found = {name: inspect_split(corpus, split, hashes) for name, split in corpus.splits.items()}
    return {name: {what: ids for what, ids in part.items() if ids} for name, part in found.items()}


PAPERS: dict[str, dict[str, Any]] = {
    "a": {"year": 2001, "title": "One, two"},
    "b": {"year": 2005, "abstract": ""},
    "c": {"title": "", "abstract": "Five words are in it."},
    "d": {"year": 2009},
    "p": {"year": 2006},
    "q": {"year": 2008, "abstract": ""},
    "r": {"title": ""},
    "alone": {"year": 1999},
}
CONTEXTS: Described = {
    "c1": ("train", "p", "a", "Three words stand TARGETCIT."),
    "c2": ("train", "p", ["a", "b"], "Words TARGETCIT, more OTHERCIT of them."),
    "c3": ("train", "q", "d", "OTHERCIT (TARGETCIT)."),
    "c4": ("test", "r", "b", "Words stand, three TARGETCIT."),
    "c5": ("test", "r", "c", "Three words: stand TARGETCIT."),
    "c6": ("test_more", "r", ["r", "c"], "One two three TARGETCIT."),
    "c7": (None, "alone", "a", "In no split TARGETCIT."),
}


def test_splits(make_corpus: Make) -> None:
    names = ["train", "val", "test", "test_more"]
    corpus = make_corpus(PAPERS, CONTEXTS, candidates="abstract", splits=names)
    assert splits(corpus) == {
        "train": {
            "contexts": ["c1", "c2", "c3"],
            "a target is no candidate": ["c2"],
            "a target is later than the citing paper": ["c3"],  # the year of "r" is unknown
            "without words": ["c3"],
            "citing paper without abstract": ["c3"],
            "a target without abstract": ["c2"],
        },
        "test": {
            "contexts": ["c4", "c5"],
            "no training context cites a target": ["c5"],
            "a target is no candidate": ["c4"],
            "a target without title": ["c5"],
            "a target without abstract": ["c4"],
            "citing paper without title": ["c4", "c5"],
            "the words of a training context": ["c5"],
        },
        "test_more": {
            "contexts": ["c6"],
            "no training context cites a target": ["c6"],
            "a target is the citing paper": ["c6"],
            "a target without title": ["c6"],
            "citing paper without title": ["c6"],
        },
    }
    assert inspect_corpus(corpus).startswith(
        "train: 3 contexts\n        1 ( 33.3 %) a target is no candidate: c2"
    )


WORDS = "one two three four five six"


def test_papers(make_corpus: Make) -> None:
    papers = {
        "title-1": {"title": "Pre-training of deep nets", "abstract": "We train."},
        "title-2": {"title": "Pretraining of Deep Nets!", "abstract": "Something else is said here."},
        "text-1": {"title": "A study", "abstract": f"{WORDS}."},
        "text-2": {"title": "A study", "abstract": f"({WORDS})"},
        "near": {"title": "A study", "abstract": f"{WORDS} seven", "year": 2001},
        "untitled-1": {"title": ""},
        "untitled-2": {"title": ""},
        "p": {"abstract": ""},  # no candidate
    }
    contexts: Described = {"c1": ("train", "p", "title-1", "Words TARGETCIT.")}
    found = inspect_papers(make_corpus(papers, contexts, candidates="abstract"))
    assert {what: len(ids) for what, ids in found.items()} == {
        "candidates": 7,
        "without title": 2,
        "without abstract": 0,
        "without year": 6,
        "title of another paper": 5,
        "words of another paper": 2,
    }
    assert found["words of another paper"] == ["text-1", "text-2"]


LEAKING: dict[str, dict[str, Any]] = {
    "bert": {"title": "BERT: Pre-training of Deep Encoders", "year": 2018},
    "short": {"title": "Deep nets", "year": 2019},
    "none": {"title": "", "abstract": "It has neither."},
    "p": {},
}
TITLE, YEAR = "names the title of a target", "a target's year stands beside the mark"


@pytest.mark.parametrize(
    ("text", "cited", "expected"),
    [
        ("We use BERT pre-training of deep encoders (TARGETCIT).", "bert", {TITLE}),
        ("We use “BERT — Pre–Training of\nDeep ENCODERS” (TARGETCIT).", "bert", {TITLE}),
        ("We use BERT pre-training TARGETCIT of deep encoders.", "bert", set()),
        ("We use BERT pre-training of deep encodersx TARGETCIT.", "bert", set()),
        ("We use deep nets TARGETCIT.", "short", set()),  # a title of two words
        ("It is so (TARGETCIT, 2018).", "bert", {YEAR}),
        ("It is so (2017; TARGETCIT).", "bert", set()),
        ("It was so in 2018, say many TARGETCIT.", "bert", set()),
        ("It is so (TARGETCIT, 2019).", "none", set()),
        ("By Lee's BERT: pre-training of deep encoders (TARGETCIT 2019)", ["bert", "short"], {TITLE, YEAR}),
    ],
)
def test_leaks_of_a_context(make_corpus: Make, text: str, cited: str | list[str], expected: set[str]) -> None:
    corpus = make_corpus(LEAKING, {"c1": ("test", "p", cited, text)})
    assert splits(corpus)["test"].keys() & {TITLE, YEAR} == expected


@pytest.mark.slow
def test_from_the_command_line(tmp_path: Path, script: Callable[..., Done]) -> None:
    folder = write_corpus(tmp_path / "source", LEAKING, {"c1": ("test", "p", "bert", "As TARGETCIT says.")})
    done = script(
        "data", "inspect", "data=custom", f"data.dir={folder}", f"data.cache_dir={tmp_path / 'cache'}"
    )
    assert (done.code, done.err) == (0, "") and "test: 1 contexts\n" in done.out
