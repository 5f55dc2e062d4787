"""Token pairs compared with the tokeniser on whole texts, and properties of truncation."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from citerec.base.errors import InputError
from citerec.datasets.corpus import Corpus
from citerec.datasets.prepare import open_corpus
from citerec.datasets.records import OTHER_MARKER, TARGET_MARKER
from citerec.rerank.cross_encoder.network import add_tokens
from citerec.rerank.cross_encoder.pairs import (
    CIT,
    EOS,
    SEP,
    PairReader,
    Subwords,
    TokenPairs,
)
from citerec.rerank.settings import MIN_TOKENS, PairSettings

ALL_WORDS = PairSettings(citing_words=None)


@pytest.fixture(scope="session")
def tokenizer(tiny_bert: Path) -> Any:
    found: Any = AutoTokenizer.from_pretrained(tiny_bert)
    add_tokens(found)
    return found


@pytest.fixture(scope="session")
def ragged(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    """40 papers and 80 contexts of 0 to 40 words; the first 10 papers are short."""
    random = np.random.default_rng(0)
    words = ["parser", "trees", "of", "graph", "acoustic", "sound", "rhyme", "syzygy", "documents", ","]

    def text(least: int, most: int = 40) -> list[str]:
        return [str(word) for word in random.choice(words, random.integers(least, most))]

    papers = {}
    for i in range(40):
        most = 4 if i < 10 else 40
        title, abstract = " ".join(text(1, most)), " ".join(text(0, most)) * (i % 5 > 0)
        papers[f"p{i}"] = {"title": title, "abstract": abstract}
    contexts, queries = {}, []
    for i in range(80):
        words_of = text(2)
        words_of.insert(int(random.integers(len(words_of) + 1)), TARGET_MARKER)
        if i % 3 == 0:
            words_of.insert(int(random.integers(1, len(words_of) + 1)), OTHER_MARKER)
        ids = {"context_id": f"c{i}", "citing_id": f"p{i % 20}", "refid": f"p{20 + i % 20}"}
        contexts[f"c{i}"] = {"masked_text": " ".join(words_of), **ids}
        queries.append({"context_id": f"c{i}", "positive_ids": [ids["refid"]]})
    folder = tmp_path_factory.mktemp("ragged")
    for name, value in (("papers", papers), ("contexts", contexts), ("train", queries)):
        (folder / f"{name}.json").write_text(json.dumps(value))
    return open_corpus(folder, cache_dir=folder / "cache")


def texts_of(corpus: Corpus, context: int, paper: int, query: str = "context") -> tuple[str, str]:
    """Format query and candidate as in the reference or in Nogueira et al. 2020 (section 3)."""
    citing = int(corpus.citing[context])
    asked = f"{corpus.titles[citing]} {corpus.abstracts[citing]}"
    if query == "context":
        asked += f" {SEP} {corpus.context_texts[context].replace(TARGET_MARKER, CIT)}"
    return asked, f"{corpus.titles[paper]} {corpus.abstracts[paper]}"


def sizes(pairs: TokenPairs) -> np.ndarray:
    """Tokens of citing text, context and candidate of each pair [N, 3]."""
    parts = []
    for query, candidate in zip(pairs.queries, pairs.candidates, strict=True):
        citing = query.tolist().index(pairs.subwords.sep)
        parts.append([citing, len(query) - citing - 1, len(candidate)])
    return np.array(parts)


def grid(corpus: Corpus, contexts: int = 80) -> tuple[np.ndarray, np.ndarray]:
    rows = np.arange(contexts * 5)
    return rows // 5, (rows * 7) % len(corpus.paper_ids)


def test_special_tokens_in_texts_and_the_tokenisers_truncation_are_ignored(tiny_bert: Path) -> None:
    tokenizer: Any = AutoTokenizer.from_pretrained(tiny_bert)
    add_tokens(tokenizer)
    tokenizer.backend_tokenizer.enable_truncation(4)
    tokenizer.backend_tokenizer.enable_padding(length=16)
    found = Subwords(tokenizer)(
        ["graph [SEP] networks", "Messages pass along the edges of a graph", "Parsing"]
    )
    special = set(tokenizer.all_special_ids) - {tokenizer.unk_token_id}
    assert not special & {token for tokens in found for token in tokens}
    assert [len(tokens) for tokens in found[1:]] == [8, 1]
    assert tokenizer.backend_tokenizer.truncation["max_length"] == 4  # the tokeniser itself is unchanged


@pytest.fixture
def make_tokenizer() -> Callable[[str, str], Any]:
    """Return a function that makes tokenisers with other templates."""

    def make(single: str, pair: str) -> Any:
        words = ["<s>", "</s>", "<unk>", "<pad>", "a", CIT, SEP, EOS]
        tokenizer = Tokenizer(models.WordLevel({word: row for row, word in enumerate(words)}, "<unk>"))
        tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
        ends = [("<s>", 0), ("</s>", 1)]
        tokenizer.post_processor = processors.TemplateProcessing(single, pair, special_tokens=ends)
        given = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>"}
        return PreTrainedTokenizerFast(tokenizer_object=tokenizer, **given)

    return make


def test_the_template_of_a_pair_is_the_tokenisers(
    tokenizer: Any, make_tokenizer: Callable[[str, str], Any]
) -> None:
    bert, ids = Subwords(tokenizer), tokenizer.convert_tokens_to_ids
    assert (bert.before, bert.between, bert.after) == ([ids("[CLS]")], [ids("[SEP]")], [ids("[SEP]")])
    assert (bert.second_type, bert.pad) == (1, ids("[PAD]"))
    assert (bert.cit, bert.sep) == (ids(CIT), ids(SEP))
    roberta = Subwords(make_tokenizer("<s> $A </s>", "<s> $A </s> </s> $B </s>"))
    assert (roberta.before, roberta.between, roberta.after) == ([0], [1, 1], [1])
    assert (roberta.second_type, roberta.pad) == (0, 3)
    with pytest.raises(InputError, match="puts no token before a pair of texts, so its model cannot rerank"):
        Subwords(make_tokenizer("$A </s>", "$A </s> $B </s>"))


@pytest.mark.parametrize("query", ["context", "paper"])
def test_untruncated_pairs_match_the_tokeniser(ragged: Corpus, tokenizer: Any, query: str) -> None:
    contexts, papers = grid(ragged)
    pairs = PairReader(ragged, tokenizer, replace(ALL_WORDS, query=query)).pairs(contexts, papers)
    ids, types, mask = pairs.padded()
    rows = zip(contexts.tolist(), papers.tolist(), strict=True)
    queries, candidates = zip(*(texts_of(ragged, *row, query) for row in rows), strict=True)
    expected = tokenizer(
        list(queries), list(candidates), padding="longest", return_tensors="pt", return_token_type_ids=True
    )
    width = expected["input_ids"].shape[1]
    assert 0 <= ids.shape[1] - width < 8 and not mask[:, width:].any()
    for found, name in ((ids, "input_ids"), (types, "token_type_ids"), (mask, "attention_mask")):
        assert np.array_equal(found[:, :width], expected[name]), name
    assert pairs.lengths.tolist() == expected["attention_mask"].sum(1).tolist()


@pytest.mark.parametrize("max_tokens", [MIN_TOKENS, 17, 37, 96])
def test_long_pairs_are_truncated_like_the_tokenisers(
    ragged: Corpus, tokenizer: Any, max_tokens: int
) -> None:
    """With the reference's shares, for pairs whose mark survives its truncation."""
    config = replace(PairSettings.reference(), max_tokens=max_tokens, citing_words=None)
    contexts, papers = grid(ragged)
    ids, types, mask = PairReader(ragged, tokenizer, config).pairs(contexts, papers).padded()
    rows = zip(contexts.tolist(), papers.tolist(), strict=True)
    queries, candidates = zip(*(texts_of(ragged, *row) for row in rows), strict=True)
    cut = tokenizer(
        list(queries),
        list(candidates),
        truncation="longest_first",
        max_length=max_tokens,
        return_token_type_ids=True,
    )
    compared = 0
    for row, (expected, kinds) in enumerate(zip(cut["input_ids"], cut["token_type_ids"], strict=True)):
        if tokenizer.convert_tokens_to_ids(CIT) not in expected:
            continue  # ours always keeps it
        compared += 1
        kept = mask[row].bool()
        assert ids[row][kept].tolist() == expected and types[row][kept].tolist() == kinds
    assert compared > (5 if max_tokens == MIN_TOKENS else 20)


CONFIGS = st.builds(
    PairSettings,
    max_tokens=st.integers(MIN_TOKENS, 120),
    citing=st.sampled_from([0.0, 0.2, 1.0, 3.0]),
    context=st.sampled_from([0.01, 1.0, 2.0]),
    candidate=st.sampled_from([0.01, 1.0, 4.0]),
    citing_words=st.sampled_from([None, 0, 7]),
    citing_abstract=st.booleans(),
    truncate=st.sampled_from(["both", "end"]),
    other_citations=st.sampled_from(["keep", "drop"]),
)


@settings(max_examples=25)
@given(config=CONFIGS)
def test_truncation_keeps_the_mark_and_both_sides_and_uses_the_budget(
    ragged: Corpus, tokenizer: Any, config: PairSettings
) -> None:
    contexts, papers = grid(ragged)
    pairs = PairReader(ragged, tokenizer, config).pairs(contexts, papers)
    whole = PairReader(ragged, tokenizer, replace(config, max_tokens=1000)).pairs(contexts, papers)
    assert (pairs.lengths == np.minimum(whole.lengths, config.max_tokens)).all()
    ids, types, mask = (part.numpy() for part in pairs.padded())
    cit, sep, end = (tokenizer.convert_tokens_to_ids(token) for token in (CIT, SEP, "[SEP]"))
    assert (pairs.lengths == mask.sum(1)).all()
    assert ((ids == cit).sum(1) == 1).all() and ((ids == sep).sum(1) == 1).all()
    assert ((ids == end).sum(1) == 2).all()
    candidates = sizes(pairs)[:, 2]
    assert (candidates >= 1).all()
    # Order: citing text, separator, context with the mark, candidate; only the candidate has type 1.
    mark, border = (ids == cit).argmax(1), (ids == sep).argmax(1)
    assert (border < mark).all() and (mark < (ids == end).argmax(1)).all()
    assert (types.sum(1) == candidates + 1).all()
    assert (np.diff(types * mask, axis=1) > 0).sum() == len(ids)


def test_shares_decide_which_part_is_truncated(ragged: Corpus, tokenizer: Any) -> None:
    contexts, papers = grid(ragged)
    whole = PairReader(ragged, tokenizer, ALL_WORDS).pairs(contexts, papers)
    long = (sizes(whole) > 14).all(1)
    assert long.sum() > 20

    def lengths(**shares: Any) -> list[list[int]]:
        config = PairSettings(max_tokens=28 + 4, citing_words=None, **shares)
        pairs = PairReader(ragged, tokenizer, config).pairs(contexts[long], papers[long])
        assert (sizes(pairs).sum(1) == 28).all()
        return np.unique(sizes(pairs), axis=0).tolist()

    # One token of the query's share is SEP; odd tokens go to the longer text.
    for shares, expected in (((1, 1, 2), [7, 7, 14]), ((0.5, 2, 1.5), [3, 14, 11])):
        citing, context, candidate = shares
        found = lengths(citing=citing, context=context, candidate=candidate)
        assert all(abs(np.array(x) - expected).max() <= 1 for x in found)
    assert all(context == 1 for _, context, _ in lengths(citing=1, context=0, candidate=1))  # only the mark


def test_contexts_are_truncated_around_the_mark(ragged: Corpus, tokenizer: Any) -> None:
    config = PairSettings(max_tokens=36, citing=0.0, citing_words=None)
    contexts = np.arange(80)
    pairs = PairReader(ragged, tokenizer, config).pairs(contexts, np.zeros(80, np.int64))
    cit, cut = tokenizer.convert_tokens_to_ids(CIT), 0
    for row, context in enumerate(contexts.tolist()):
        passage = ragged.context_texts[context].replace(TARGET_MARKER, CIT)
        whole = tokenizer(passage, add_special_tokens=False)["input_ids"]
        query = pairs.queries[row].tolist()
        kept = query[query.index(pairs.subwords.sep) + 1 :]
        length = len(kept)
        before = whole.index(cit) - kept.index(cit)
        assert whole[before : before + length] == kept
        if length < len(whole):
            cut += 1
            middle = abs(kept.index(cit) - length // 2)
            assert middle == 0 or before == 0 or before + length == len(whole)
    assert cut > 20


def test_words_and_marks_can_be_dropped(ragged: Corpus, tokenizer: Any) -> None:
    config = PairSettings(citing_words=3, citing_abstract=False, other_citations="drop")
    context, paper = 21, 7  # a context with another citation, a paper with an abstract
    pairs = PairReader(ragged, tokenizer, config).pairs(np.array([context]), np.array([paper]))
    citing = " ".join(ragged.titles[int(ragged.citing[context])].split()[:3])
    assert OTHER_MARKER in ragged.context_texts[context]
    passage = ragged.context_texts[context].replace(TARGET_MARKER, CIT).replace(OTHER_MARKER, "")
    expected = tokenizer(f"{citing} {SEP} {passage}", texts_of(ragged, context, paper)[1])["input_ids"]
    assert pairs.padded()[0][0].tolist() == expected
