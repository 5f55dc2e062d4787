"""Pairs against the tokeniser called on whole texts, and what truncation may not do."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoTokenizer

from datasets.corpus import Corpus
from datasets.errors import InputError
from datasets.prepare import open_corpus
from datasets.records import OTHER_MARKER, TARGET_MARKER
from rerank.pairs import CIT, EOS, LEAST, SEP, PairConfig, PairReader, Pairs

ALL_WORDS = PairConfig(citing_words=None)


@pytest.fixture(scope="session")
def tokenizer(tiny_bert: Path) -> Any:
    found = AutoTokenizer.from_pretrained(tiny_bert)
    found.add_special_tokens({"additional_special_tokens": [CIT, SEP, EOS]})
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
        papers[f"p{i}"] = {
            "title": " ".join(text(1, most)),
            "abstract": " ".join(text(0, most)) * (i % 5 > 0),
        }
    contexts = {}
    for i in range(80):
        words_of = text(2)
        words_of.insert(int(random.integers(len(words_of) + 1)), TARGET_MARKER)
        if i % 3 == 0:
            words_of.insert(int(random.integers(1, len(words_of) + 1)), OTHER_MARKER)
        contexts[f"c{i}"] = {
            "masked_text": " ".join(words_of),
            "context_id": f"c{i}",
            "citing_id": f"p{i % 20}",
            "refid": f"p{20 + i % 20}",
        }
    folder = tmp_path_factory.mktemp("ragged")
    queries = [{"context_id": key, "positive_ids": [value["refid"]]} for key, value in contexts.items()]
    for name, value in (("papers", papers), ("contexts", contexts), ("train", queries)):
        (folder / f"{name}.json").write_text(json.dumps(value))
    return open_corpus(folder, cache_dir=folder / "cache")


def texts_of(corpus: Corpus, context: int, paper: int) -> tuple[str, str]:
    """Query and candidate as the reference writes them."""
    citing = int(corpus.citing[context])
    passage = corpus.context_texts[context].replace(TARGET_MARKER, CIT)
    query = f"{corpus.titles[citing]} {corpus.abstracts[citing]} {SEP} {passage}"
    return query, f"{corpus.titles[paper]} {corpus.abstracts[paper]}"


def grid(corpus: Corpus, contexts: int = 80) -> tuple[np.ndarray, np.ndarray]:
    rows = np.arange(contexts * 5)
    return rows // 5, (rows * 7) % len(corpus.paper_ids)


def test_whole_pairs_are_what_the_tokeniser_makes_of_the_two_texts(ragged: Corpus, tokenizer: Any) -> None:
    contexts, papers = grid(ragged)
    pairs = PairReader(ragged, tokenizer, ALL_WORDS).pairs(contexts, papers)
    ids, types, there = pairs.padded()
    queries, candidates = zip(*map(texts_of, [ragged] * 400, contexts.tolist(), papers.tolist()), strict=True)
    expected = tokenizer(
        list(queries), list(candidates), padding="longest", return_tensors="pt", return_token_type_ids=True
    )
    width = expected["input_ids"].shape[1]
    assert 0 <= ids.shape[1] - width < 8 and not there[:, width:].any()
    for found, name in ((ids, "input_ids"), (types, "token_type_ids"), (there, "attention_mask")):
        assert np.array_equal(found[:, :width], expected[name]), name
    assert pairs.lengths.tolist() == expected["attention_mask"].sum(1).tolist()


@pytest.mark.parametrize("max_tokens", [LEAST, 17, 24, 37, 64, 96])
def test_long_pairs_are_cut_as_by_the_tokeniser(ragged: Corpus, tokenizer: Any, max_tokens: int) -> None:
    """With the reference's shares, wherever the mark survives its truncation too."""
    config = replace(PairConfig.reference(), max_tokens=max_tokens, citing_words=None)
    contexts, papers = grid(ragged)
    ids, types, there = PairReader(ragged, tokenizer, config).pairs(contexts, papers).padded()
    compared = 0
    for row, (context, paper) in enumerate(zip(contexts.tolist(), papers.tolist(), strict=True)):
        expected = tokenizer(
            *texts_of(ragged, context, paper),
            truncation="longest_first",
            max_length=max_tokens,
            return_token_type_ids=True,
        )
        if tokenizer.convert_tokens_to_ids(CIT) not in expected["input_ids"]:
            continue  # ours keeps it
        compared += 1
        kept = there[row].bool()
        assert ids[row][kept].tolist() == expected["input_ids"]
        assert types[row][kept].tolist() == expected["token_type_ids"]
    assert compared > (5 if max_tokens == LEAST else 20)


CONFIGS = st.builds(
    PairConfig,
    max_tokens=st.integers(LEAST, 120),
    citing=st.sampled_from([0.0, 0.2, 1.0, 3.0]),
    context=st.sampled_from([0.01, 1.0, 2.0]),
    candidate=st.sampled_from([0.01, 1.0, 4.0]),
    citing_words=st.sampled_from([None, 0, 7]),
    citing_abstract=st.booleans(),
    candidate_words=st.sampled_from([None, 3]),
    cut=st.sampled_from(["both", "end"]),
    others=st.sampled_from(["keep", "drop"]),
)


@settings(deadline=None, max_examples=25)
@given(config=CONFIGS)
def test_no_truncation_takes_the_mark_or_a_whole_side(
    ragged: Corpus, tokenizer: Any, config: PairConfig
) -> None:
    pairs = PairReader(ragged, tokenizer, config).pairs(*grid(ragged))
    ids, types, there = (part.numpy() for part in pairs.padded())
    cit, sep, end = (tokenizer.convert_tokens_to_ids(token) for token in (CIT, SEP, "[SEP]"))
    assert (pairs.lengths == there.sum(1)).all() and pairs.lengths.max() <= config.max_tokens
    assert ((ids == cit).sum(1) == 1).all() and ((ids == sep).sum(1) == 1).all()
    assert ((ids == end).sum(1) == 2).all()
    assert (pairs.candidate.lengths >= 1).all()
    # The order is citing text, its end, the mark in the context, the candidate, which alone has type 1.
    mark, border = (ids == cit).argmax(1), (ids == sep).argmax(1)
    assert (border < mark).all() and (mark < (ids == end).argmax(1)).all()
    assert (types.sum(1) == pairs.candidate.lengths + 1).all()
    assert (np.diff(types * there, axis=1) > 0).sum() == len(ids)


@settings(deadline=None, max_examples=25)
@given(config=CONFIGS.filter(lambda config: config.candidate_words is None))
def test_no_token_is_left_out_while_there_is_room(ragged: Corpus, tokenizer: Any, config: PairConfig) -> None:
    contexts, papers = grid(ragged)
    whole = PairReader(ragged, tokenizer, replace(config, max_tokens=1000)).pairs(contexts, papers)
    cut = PairReader(ragged, tokenizer, config).pairs(contexts, papers)
    assert (cut.lengths == np.minimum(whole.lengths, config.max_tokens)).all()


def test_shares_say_who_gives_way(ragged: Corpus, tokenizer: Any) -> None:
    contexts, papers = grid(ragged)
    whole = PairReader(ragged, tokenizer, ALL_WORDS).pairs(contexts, papers)
    long = (whole.citing.lengths > 14) & (whole.context.lengths > 14) & (whole.candidate.lengths > 14)
    assert long.sum() > 20

    def lengths(**shares: Any) -> list[list[int]]:
        config = PairConfig(max_tokens=28 + 4, citing_words=None, **shares)
        pairs = PairReader(ragged, tokenizer, config).pairs(contexts[long], papers[long])
        parts = [part.lengths for part in (pairs.citing, pairs.context, pairs.candidate)]
        assert (np.sum(parts, axis=0) == 28).all()
        return np.unique(np.stack(parts, 1), axis=0).tolist()

    # One token of the query's share is SEP; what does not come out even goes to the longer one.
    assert all(abs(np.array(x) - [7, 7, 14]).max() <= 1 for x in lengths(citing=1, context=1, candidate=2))
    assert all(
        abs(np.array(x) - [3, 14, 11]).max() <= 1 for x in lengths(citing=0.5, context=2, candidate=1.5)
    )
    assert all(context == 1 for _, context, _ in lengths(citing=1, context=0, candidate=1))  # the mark alone


def test_a_context_is_cut_around_its_mark(ragged: Corpus, tokenizer: Any) -> None:
    config = PairConfig(max_tokens=36, citing=0.0, citing_words=None)
    contexts = np.arange(80)
    pairs = PairReader(ragged, tokenizer, config).pairs(contexts, np.zeros(80, np.int64))
    cit, cut = tokenizer.convert_tokens_to_ids(CIT), 0
    for row, context in enumerate(contexts.tolist()):
        passage = ragged.context_texts[context].replace(TARGET_MARKER, CIT)
        whole = tokenizer(passage, add_special_tokens=False)["input_ids"]
        start, length = int(pairs.context.starts[row]), int(pairs.context.lengths[row])
        kept = pairs.context.values[start : start + length].tolist()
        before = whole.index(cit) - kept.index(cit)
        assert whole[before : before + length] == kept
        if length < len(whole):
            cut += 1
            middle = abs(kept.index(cit) - length // 2)
            assert middle == 0 or before == 0 or before + length == len(whole)
    assert cut > 20


def test_words_and_marks_that_are_not_to_be_read(ragged: Corpus, tokenizer: Any) -> None:
    config = PairConfig(citing_words=3, citing_abstract=False, candidate_words=2, others="drop")
    context, paper = 21, 7  # a context with the mark of another citation, a paper with an abstract
    pairs = PairReader(ragged, tokenizer, config).pairs(np.array([context]), np.array([paper]))
    citing = ragged.titles[int(ragged.citing[context])].split()[:3]
    passage = ragged.context_texts[context].replace(TARGET_MARKER, CIT).replace(OTHER_MARKER, "")
    candidate = f"{ragged.titles[paper]} {ragged.abstracts[paper]}".split()[:2]
    assert OTHER_MARKER in ragged.context_texts[context]
    expected = tokenizer(f"{' '.join(citing)} {SEP} {passage}", " ".join(candidate))["input_ids"]
    assert pairs.padded()[0][0].tolist() == expected


def test_rows_of_pairs_alone_are_what_they_are_among_others(ragged: Corpus, tokenizer: Any) -> None:
    pairs = PairReader(ragged, tokenizer, PairConfig(max_tokens=40)).pairs(*grid(ragged))
    whole = pairs.padded()
    for rows in (np.array([3]), np.array([399, 0, 17]), slice(5, 9)):
        for found, among in zip(pairs.padded(rows), whole, strict=True):
            width = found.shape[1]
            assert np.array_equal(found, among[rows][:, :width])
            assert width == whole[0].shape[1] or not whole[2][rows][:, width:].any()


def test_the_length_of_batches_takes_few_values(ragged: Corpus, tokenizer: Any) -> None:
    pairs: Pairs = PairReader(ragged, tokenizer, PairConfig(max_tokens=45)).pairs(*grid(ragged))
    alone = {pairs.padded(np.array([row]))[0].shape[1] for row in range(len(pairs))}
    both = {pairs.padded(np.array([row, row + 1]))[0].shape[1] for row in range(len(pairs) - 1)}
    assert alone == set(pairs.lengths.tolist())
    assert all(width % 8 == 0 or width == 45 or width in alone for width in both)


def test_papers_that_ask_are_the_first_sequence_alone(ragged: Corpus, tokenizer: Any) -> None:
    """Nogueira et al. 2020, section 3: query and candidate, each its title and abstract, no other mark."""
    contexts, papers = grid(ragged)
    pairs = PairReader(ragged, tokenizer, replace(ALL_WORDS, query="paper")).pairs(contexts, papers)
    ids, types, there = pairs.padded()
    for row, (context, paper) in enumerate(zip(contexts.tolist(), papers.tolist(), strict=True)):
        citing = int(ragged.citing[context])
        texts = (f"{ragged.titles[one]} {ragged.abstracts[one]}" for one in (citing, paper))
        expected = tokenizer(*texts, return_token_type_ids=True)
        kept = there[row].bool()
        assert ids[row][kept].tolist() == expected["input_ids"]
        assert types[row][kept].tolist() == expected["token_type_ids"]


@settings(deadline=None, max_examples=25)
@given(st.integers(8, 60), st.integers(8, 60), st.sampled_from(["context", "paper"]))
def test_each_side_has_a_budget_and_lends_nothing(
    ragged: Corpus, tokenizer: Any, query_tokens: int, candidate_tokens: int, query: str
) -> None:
    contexts, papers = grid(ragged)
    config = replace(ALL_WORDS, query=query, cut="end")
    whole = PairReader(ragged, tokenizer, replace(config, max_tokens=1000)).pairs(contexts, papers)
    config = replace(config, max_tokens=query_tokens + candidate_tokens, query_tokens=query_tokens)
    pairs = PairReader(ragged, tokenizer, config).pairs(contexts, papers)
    ids, types, there = (part.numpy() for part in pairs.padded())
    asked = whole.citing.lengths + whole.context.lengths + len(whole.border) + 2  # [CLS] and [SEP]
    sides = ((types == 0) & (there == 1)).sum(1), (types == 1).sum(1)
    assert (sides[0] == np.minimum(asked, query_tokens)).all()
    assert (sides[1] == np.minimum(whole.candidate.lengths + 1, candidate_tokens)).all()
    long = whole.padded()[0].numpy()
    for row in range(0, 400, 7):  # beginnings of both sides, as far as the mark is in them
        assert query == "context" or (ids[row, : sides[0][row] - 1] == long[row, : sides[0][row] - 1]).all()
        start, first = asked[row], sides[0][row]
        kept = sides[1][row] - 1
        assert (ids[row, first : first + kept] == long[row, start : start + kept]).all()


def test_options_that_came_later_change_no_name_of_what_was_there() -> None:
    """A saved reranker of before, and the scores of pairs on the disk, go by these values."""
    before = {
        "max_tokens": 512,
        "citing": 1.0,
        "context": 1.0,
        "candidate": 2.0,
        "citing_words": 179,
        "citing_abstract": True,
        "candidate_words": None,
        "cut": "both",
        "others": "keep",
    }
    assert list(PairConfig().asdict().items()) == list(before.items())
    assert PairConfig(**before).asdict() == before  # type: ignore[arg-type]
    later = PairConfig(query="paper", query_tokens=256)
    assert later.asdict() == {**before, "query": "paper", "query_tokens": 256}
    assert PairConfig(**later.asdict()) == later


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"max_tokens": 8}, r"pairs\.max_tokens=8: must be a whole number from 16 on"),
        ({"max_tokens": 64.0}, r"pairs\.max_tokens=64\.0: must be a whole number"),
        ({"citing": -1}, r"pairs\.citing=-1: must be a number, 0 or more"),
        ({"context": float("nan")}, r"pairs\.context=nan: must be a number"),
        ({"candidate": 0}, r"the candidate, and citing text or context, must have a share above 0"),
        ({"citing": 0, "context": 0}, r"must have a share above 0"),
        ({"citing_words": -3}, r"pairs\.citing_words=-3: must be null or a whole number"),
        ({"candidate_words": 0}, r"of a candidate there must be a word at least"),
        ({"cut": "start"}, r"pairs\.cut=start: choose one of both, end"),
        ({"others": "mask"}, r"pairs\.others=mask: choose one of keep, drop"),
        ({"query": "title"}, r"pairs\.query=title: choose one of context, paper"),
        ({"query": "paper", "citing_words": 0}, r"pairs\.query=paper: the citing text is the query"),
        ({"query_tokens": 7}, r"pairs\.query_tokens=7: must be null or a whole number that leaves"),
        ({"query_tokens": 505}, r"candidate at least 8 of max_tokens=512"),
        ({"query_tokens": 64.0}, r"pairs\.query_tokens=64\.0: must be null or a whole number"),
    ],
)
def test_what_cannot_be_is_named(given: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        PairConfig(**given)
