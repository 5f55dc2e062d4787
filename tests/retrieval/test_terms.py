import json
from collections import Counter
from pathlib import Path

import bm25s
import numpy as np
import pytest
import Stemmer

from datasets.corpus import Corpus
from datasets.errors import InputError
from datasets.prepare import open_corpus
from retrieval.bm25 import Terms, query_texts, tokenizer

ALL = np.arange(12)


def terms_of(corpus: Corpus, stemmer: str | None = "english") -> tuple[Terms, dict[int, str]]:
    made = tokenizer(stemmer, "en")
    terms = Terms.of(corpus.words, made)
    return terms, {number: term for term, number in made.get_vocab_dict().items()}


@pytest.mark.parametrize("stemmer", ["english", None])
@pytest.mark.parametrize("tokens", ["default", "reference"])
def test_stored_words_give_the_terms_that_bm25s_finds_in_the_texts(
    tiny_source: Path, tmp_path: Path, tokens: str, stemmer: str | None
) -> None:
    contexts = json.loads((tiny_source / "contexts.json").read_text())
    contexts["c1"]["masked_text"] = (
        "State-of-the-art (TARGETCIT), we don't use x 0.95; re-runs,OTHERCIT-based"
    )
    (tiny_source / "contexts.json").write_text(json.dumps(contexts))
    corpus = open_corpus(tiny_source, cache_dir=tmp_path / "cache", tokenizer=tokens)
    terms, names = terms_of(corpus, stemmer)
    fields = ("context", "title", "abstract", "context")
    counts = terms.query_counts(corpus, ALL, fields)
    texts = list(query_texts(corpus, ALL, fields))
    stem = Stemmer.Stemmer(stemmer) if stemmer else None
    expected = bm25s.tokenize(texts, stopwords="en", stemmer=stem, return_ids=False, show_progress=False)
    for row, of_text in enumerate(expected):
        found = counts[row].tocoo()
        assert {names[i]: n for i, n in zip(found.col, found.data, strict=True)} == Counter(of_text)


def test_texts_may_have_no_row_or_several(tiny_corpus: Corpus) -> None:
    terms, _ = terms_of(tiny_corpus)
    words = tiny_corpus.title_tokens
    one_each = terms.counts(np.arange(12), words, 12).toarray()
    summed = terms.counts(np.array([0, 0, 0, 2, 2]), words.take(np.arange(5)), 4).toarray()
    np.testing.assert_array_equal(
        summed, [one_each[:3].sum(axis=0), 0 * one_each[0], one_each[3:5].sum(axis=0), 0 * one_each[0]]
    )


def test_loaded_terms_are_those_that_were_saved(tiny_corpus: Corpus, tmp_path: Path) -> None:
    terms, _ = terms_of(tiny_corpus)
    terms.save(tmp_path)
    loaded = Terms.load(tmp_path)
    fields = ("context", "title")
    assert (
        terms.query_counts(tiny_corpus, ALL, fields) != loaded.query_counts(tiny_corpus, ALL, fields)
    ).nnz == 0
    assert loaded.size == terms.size and loaded.nbytes == terms.nbytes


def test_languages_that_are_not_there_are_one_line() -> None:
    with pytest.raises(InputError, match=r"retriever\.stemmer: 'klingon' is not one of .*english"):
        tokenizer("klingon", None)
    with pytest.raises(InputError, match=r"retriever\.stopwords: tlh not recognized"):
        tokenizer(None, "tlh")
