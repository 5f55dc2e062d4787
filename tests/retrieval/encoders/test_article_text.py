"""Inputs of article encoders against the tokeniser applied to full texts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from transformers import AutoTokenizer

from citerec.datasets.columns import Ragged
from citerec.datasets.corpus import Corpus
from citerec.datasets.tokenize import sentence_starts
from citerec.retrieval.encoders.article_text import ArticleReader
from citerec.retrieval.settings import ArticleConfig

CONFIG = ArticleConfig("tiny", max_tokens=64)


@pytest.fixture(scope="session")
def tokenizer(tiny_bert: Path) -> Any:
    return AutoTokenizer.from_pretrained(tiny_bert)


Readers = Callable[..., ArticleReader]


@pytest.fixture
def reader(tiny_corpus: Corpus, tokenizer: Any) -> Readers:
    """Create readers of the tiny corpus with settings that differ from CONFIG."""
    return lambda **settings: ArticleReader(tiny_corpus, tokenizer, replace(CONFIG, **settings))


def plain(tokenizer: Any, texts: Ragged) -> list[str]:
    return [tokenizer.decode(row) for row in texts]


@pytest.mark.parametrize("max_tokens", [64, 9])
@pytest.mark.parametrize("layout", ["sentence", "sep"])
def test_papers_match_the_tokenised_full_text(
    tiny_corpus: Corpus, tokenizer: Any, reader: Readers, layout: str, max_tokens: int
) -> None:
    between = " [SEP] " if layout == "sep" else ". "
    rows = np.array([5, 0, 3])
    whole = [tiny_corpus.titles[row] + between + tiny_corpus.abstracts[row] for row in rows]
    expected = tokenizer(whole, truncation=True, max_length=max_tokens)["input_ids"]
    assert [row.tolist() for row in reader(layout=layout, max_tokens=max_tokens).papers(rows)] == expected


@pytest.mark.parametrize(
    ("query", "markers", "expected"),
    [
        (["context"], "drop", "[CLS] graph networks pass messages . [SEP]"),
        (["context"], "mask", "[CLS] graph networks [MASK] pass messages . [SEP]"),
        (["context", "title"], "drop", "[CLS] graph networks pass messages . . searching graphs [SEP]"),
        (
            ["title", "abstract", "context"],
            "mask",
            "[CLS] searching graphs . we search documents linked by edges . . "
            "graph networks [MASK] pass messages . [SEP]",
        ),
    ],
)
def test_queries_hold_their_fields_in_order(
    tiny_corpus: Corpus, tokenizer: Any, reader: Readers, query: list[str], markers: str, expected: str
) -> None:
    contexts = np.array([tiny_corpus.context_ids.index(name) for name in ("c7", "c8")])
    texts = reader(query=query, markers=markers).queries(contexts)
    assert plain(tokenizer, texts)[1] == expected  # "Graph networks OTHERCIT TARGETCIT ..."


def test_long_contexts_are_truncated_around_the_mark(
    tiny_corpus: Corpus, tokenizer: Any, reader: Readers
) -> None:
    texts = reader(query=["title", "context"], max_tokens=9, markers="mask").queries(np.arange(12))
    for row, text in enumerate(texts):
        assert len(text) <= 9
        before, after = tiny_corpus.context_texts[row].replace("OTHERCIT", " ").split("TARGETCIT")
        left, right = (tokenizer(part, add_special_tokens=False)["input_ids"] for part in (before, after))
        at = text.tolist().index(tokenizer.mask_token_id)
        assert text[at - 1] == (left[-1] if left else tokenizer.cls_token_id)
        assert text[at + 1] == (right[0] if right else tokenizer.sep_token_id)


@pytest.mark.parametrize(
    ("max_tokens", "expected"),
    [
        (
            21,
            "we parse many languages . we start from the parser of for all languages . . trees for everyone",
        ),
        (17, "we start from the parser of for all languages . . trees for everyone"),
        (12, "the parser of for all languages . trees for everyone"),
        (8, "of for . trees for everyone"),
    ],
)
def test_the_abstract_is_truncated_before_the_context(
    tokenizer: Any, reader: Readers, max_tokens: int, expected: str
) -> None:
    config = {"query": ["abstract", "context", "title"], "max_tokens": max_tokens}
    texts = reader(**config).queries(np.array([1]))
    assert plain(tokenizer, texts) == [f"[CLS] {expected} [SEP]"]


def test_a_long_title_leaves_half_of_the_room_to_the_context(
    tiny_corpus: Corpus, tokenizer: Any, reader: Readers
) -> None:
    tiny_corpus.citing = np.full_like(tiny_corpus.citing, tiny_corpus.paper_row("bare"))
    texts = reader(query=["context", "title"], max_tokens=10).queries(np.array([1]))
    assert plain(tokenizer, texts) == ["[CLS] of for all . a title without abstract [SEP]"]


def test_a_query_without_a_word_is_empty(tiny_corpus: Corpus, reader: Readers) -> None:
    bare = tiny_corpus.paper_row("bare")
    tiny_corpus.citing = np.full_like(tiny_corpus.citing, bare)  # the only paper without an abstract
    texts = reader(query=["abstract"]).queries(np.array([0, 1]))
    assert texts.lengths.tolist() == [0, 0]


@pytest.mark.parametrize(
    "sentences",
    [
        [
            "Trees are parsed (cf. Fig. 2) by J. Doe et al. In 2019 it failed!",
            "Why?",
            "We ask, e.g. Here.)",
            "The end",
        ],
        [
            "Siehe Abb. 2, Kap. 4 und z. B. Müller (Hrsg. 2020), d. h. Wald.",
            "Österreich im 19. Jahrhundert.",
            "Ja",
        ],
        ["Voir cap. 4, ed. Lee, éds. Roe.", "Été de 1990.", "The answer is no.", "¿Y “qué”?"],
        ["Как показано на рис. 2, модель верна.", "Она проста."],
    ],
)
def test_sentences_begin_after_full_stops_but_not_after_abbreviations(sentences: list[str]) -> None:
    text = " ".join(sentences)
    assert [text[a:b].strip() for a, b in pairwise([0, *sentence_starts(text), len(text)])] == sentences
