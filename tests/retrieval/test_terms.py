"""Terms of queries against bm25s's tokeniser."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import bm25s
import numpy as np
import pytest
import Stemmer

from citerec.datasets.prepare import open_corpus
from citerec.retrieval.lexical.terms import Terms, strip_markers
from citerec.retrieval.queries import Queries
from citerec.tests.retrieval.made import matrix

ALL = np.arange(12)


@pytest.mark.parametrize("stemmer", ["english", None])
@pytest.mark.parametrize("tokens", ["default", "reference"])
def test_stored_words_give_the_terms_of_bm25s(
    tiny_source: Path, tmp_path: Path, tokens: str, stemmer: str | None
) -> None:
    contexts = json.loads((tiny_source / "contexts.json").read_text())
    contexts["c1"]["masked_text"] = (
        "State-of-the-art (TARGETCIT), we don't use x 0.95; re-runs,OTHERCIT-based"
    )
    (tiny_source / "contexts.json").write_text(json.dumps(contexts))
    corpus = open_corpus(tiny_source, cache_dir=tmp_path / "cache", tokenizer=tokens)
    terms = Terms.from_words(corpus.words, stemmer, "en")
    assert Terms.from_words(corpus.words, stemmer, "en") is terms
    assert Terms.from_words(corpus.words, stemmer, None) is not terms
    fields = ("context", "title", "abstract", "context")
    counts = terms.query_counts(Queries.from_contexts(corpus, ALL), fields)
    queries = Queries.from_contexts(corpus, ALL)
    texts = [" ".join(map(strip_markers, parts)) for parts in zip(*map(queries.texts, fields), strict=True)]
    stem = Stemmer.Stemmer(stemmer) if stemmer else None
    expected = bm25s.tokenize(texts, stopwords="en", stemmer=stem, return_ids=False, show_progress=False)
    for row, of_text in enumerate(expected):
        result = matrix(counts)[row].tocoo()
        assert {terms.names[i]: n for i, n in zip(result.col, result.data, strict=True)} == Counter(of_text)
