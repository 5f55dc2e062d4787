"""Which queries a training draws of which data set, and what their papers cite elsewhere."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from citerec.base.errors import InputError
from citerec.datasets.columns import Ragged
from citerec.datasets.corpus import Corpus
from citerec.datasets.prepare import open_corpora, open_corpus
from citerec.hatten.settings import BiEncoderBatchSettings
from citerec.hatten.training.batches import Batches
from citerec.hatten.training.mining import Miner, Mining
from citerec.retrieval.encoders.article_text import ArticleReader
from citerec.retrieval.encoders.encoder import ArticleEncoder
from citerec.retrieval.settings import ArticleConfig
from citerec.training.queries import DataSets, Siblings, divide, training_split
from citerec.training.settings import QuerySettings


@given(st.integers(1, 9), st.integers(1, 30), st.integers(1, 30), st.floats(0.05, 0.95))
def test_rounds_continue_passes_over_each_data_set(
    rounds: int, first: int, second: int, share: float
) -> None:
    rows = np.random.default_rng(0).permutation(first + second)
    sets = DataSets((rows[:first], rows[first:]), (share, 1 - share), np.zeros(1, np.int64))
    size, among = 12, np.arange(first + second)
    drawn = [sets.draw(among, size, number, (3, 1)) for number in range(rounds)]
    for own, count in zip(sets.rows, divide(size, sets.shares), strict=True):
        parts = [rows[np.isin(rows, own)] for rows in drawn]
        assert [len(part) for part in parts] == [count] * rounds
        in_order = np.concatenate(parts)
        for start in range(0, len(in_order), len(own)):  # none again before all others
            part = in_order[start : start + len(own)].tolist()
            assert len(set(part)) == len(part)
    assert np.array_equal(drawn[-1], sets.draw(among, size, rounds - 1, (3, 1)))  # whatever was drawn before


def test_each_half_of_a_round_has_the_shares() -> None:
    sets = DataSets((np.arange(30), np.arange(30, 40)), (0.25, 0.75), np.zeros(1, np.int64))
    drawn = sets.draw(np.arange(40), 80, 0, (0,))
    assert [int((part < 30).sum()) for part in (drawn[:40], drawn[40:])] == [10, 10]
    only = sets.draw(np.arange(30), 80, 0, (0,))  # nothing of the second is left, as after mining a sample
    assert (only < 30).all() and len(only) == 80


@pytest.fixture
def both(tiny_source: Path, tmp_path: Path) -> Corpus:
    """Two data sets of the same papers, of which the second has authors and a further split."""
    other = shutil.copytree(tiny_source, tmp_path / "other")
    papers = json.loads((other / "papers.json").read_text())
    for paper in papers.values():
        paper["authors"] = ["Ada Lovelace", "Alan Turing", "Grace Hopper"]
    (other / "papers.json").write_text(json.dumps(papers))
    queries = json.loads((other / "train.json").read_text())
    (other / "train.json").write_text(json.dumps(queries[3:]))
    (other / "train_named.json").write_text(json.dumps(queries[:3]))
    splits = ["train", "train_named", "val", "test"]
    return open_corpora([tiny_source, other], tmp_path / "cache", splits, field="authors", candidates="all")


def test_splits_are_joined_and_data_sets_told_apart(both: Corpus) -> None:
    split = training_split(both, ["train", "train_named", "missing"])
    assert split.name == "train+train_named" and len(split) == 12
    for row, context in enumerate(split.contexts):
        part = both.splits["train"] if row < 9 else both.splits["train_named"]
        place = np.flatnonzero(part.contexts == context)[0]
        own, cited = part.positives[int(place)].tolist(), split.positives[row].tolist()
        assert cited[: len(own)] == own  # then the same papers in the other folder
        assert len({both.paper_ids[paper].partition("/")[2] for paper in cited}) == len(own)
    with pytest.raises(InputError, match="its a and b split is empty"):
        training_split(both, ["a", "b"])
    sets = DataSets.read(both, split, {"tiny": 1, "other": 3})
    ids = [[both.context_ids[split.contexts[row]] for row in rows] for rows in sets.rows]
    assert [{id.partition("/")[0] for id in part} for part in ids] == [{"tiny"}, {"other"}]
    assert sets.shares == (1, 3) and list(map(len, ids)) == [6, 6]
    assert sets.papers is not None
    assert [both.paper_ids[row].startswith("tiny/") for row in range(24)] == (sets.papers == 0).tolist()
    for shares, message in (
        ({"tiny": 1}, "other has no share; give one to each of tiny, other"),
        ({"tiny": 1, "other": 1, "third": 1}, "third is no folder with training queries"),
    ):
        with pytest.raises(InputError, match=message):
            DataSets.read(both, split, shares)


def test_siblings_are_cited_in_other_passages(demo_corpus: Corpus) -> None:
    split = demo_corpus.split("train")
    siblings, texts = Siblings(demo_corpus, split), demo_corpus.context_texts
    result = 0
    for row, context in enumerate(split.contexts.tolist()):
        citing, cited, beside = demo_corpus.citing[context], set[int](), set[int]()
        for other, sibling in enumerate(split.contexts.tolist()):
            if demo_corpus.citing[sibling] == citing:
                cited |= {*split.positives[other].tolist()}
            if texts[sibling] == texts[context]:
                beside |= {*split.positives[other].tolist()}
        assert siblings[row].tolist() == sorted(cited - beside)
        drawn = siblings.draw(row, 2, np.random.default_rng(row)).tolist()
        assert {*drawn} <= {*siblings[row].tolist()} and len(drawn) == min(2, len(siblings[row]))
        result += len(drawn)
    assert result


def test_a_passage_of_several_queries_has_no_siblings_in_it(tiny_source: Path, tmp_path: Path) -> None:
    contexts = json.loads((tiny_source / "contexts.json").read_text())
    contexts["c2"]["masked_text"] = contexts["c3"]["masked_text"]
    (tiny_source / "contexts.json").write_text(json.dumps(contexts))
    corpus = open_corpora([tiny_source, shutil.copytree(tiny_source, tmp_path / "b")], tmp_path / "cache")
    split = corpus.split("train")
    siblings = Siblings(corpus, split)
    ids = {corpus.context_ids[context]: row for row, context in enumerate(split.contexts)}
    names = {id: [corpus.paper_ids[paper] for paper in siblings[row]] for id, row in ids.items()}
    assert names["tiny/c1"] == ["tiny/graph"] and names["tiny/c2"] == names["tiny/c3"] == []
    assert names["b/c1"] == ["b/graph"]  # the same text in another folder


class Recorder(ArticleReader):
    """Keeps what it was last asked to leave out."""

    def papers(self, rows, abstracts=None) -> Ragged:  # type: ignore[no-untyped-def]
        self.abstracts = abstracts
        return super().papers(rows, abstracts)


@pytest.fixture
def reader(demo_corpus: Corpus, tiny_bert: Path) -> Recorder:
    article = ArticleEncoder.pretrained(ArticleConfig("tiny", path=str(tiny_bert), max_tokens=24))
    return Recorder(demo_corpus, article.tokenizer, article.config)


@pytest.mark.slow
def test_batches_leave_texts_out(reader: Recorder) -> None:
    corpus = reader.corpus
    split = corpus.split("train")
    config = BiEncoderBatchSettings(8, 0, 2, 4, 60, abstracts=(0, 0.5, 1))

    def batches(config: BiEncoderBatchSettings) -> Batches:
        return Batches(reader, split, None, config, 0, 0)

    plain, varied = batches(replace(config, abstracts=(1,))), batches(config)
    rates = list[float]()
    for step in range(60):
        whole, batch = plain[step], varied[step]  # the reader records the last one
        rates.append(reader.abstracts.mean())
        assert np.array_equal(batch.levels, whole.levels)  # texts change nothing else
        assert len(batch.queries.values) <= len(whole.queries.values)
    assert 0.1 < np.mean(np.equal(rates, 0)) < 0.6 and 0.1 < np.mean(np.equal(rates, 1)) < 0.6
    again = batches(config)[3]  # draws are those of the step, whatever was read before
    assert np.array_equal(again.cited.values, varied[3].cited.values)


def test_each_folder_is_mined_alone(both: Corpus) -> None:
    split = training_split(both, ["train", "train_named"])
    sets = DataSets.read(both, split, {"tiny": 1, "other": 1})
    random = np.random.default_rng(0)
    vectors, papers = random.normal(size=(12, 4)).astype("f4"), random.normal(size=(24, 4)).astype("f4")
    assert sets.papers is not None
    pool, anywhere = (
        Mining(both, split, np.arange(12), sets=choice).by_vectors(vectors, papers, 5)
        for choice in (sets, None)
    )
    own = sets.papers[pool.papers] == sets.numbers(np.arange(12))[:, None]
    assert own.all() and (pool.papers >= 0).all()
    assert not (sets.papers[anywhere.papers] == sets.numbers(np.arange(12))[:, None]).all()
    scores = np.take_along_axis(vectors @ papers.T, pool.papers, axis=1)
    assert (np.diff(scores, axis=1) <= 0).all()


def test_mining_begins_after_skipped_rounds(demo_corpus: Corpus) -> None:
    mining = Miner(skip=2, first="bm25")
    plans = [mining.plan(done, np.arange(9), demo_corpus, 0) for done in range(4)]
    assert [plan and plan.source for plan in plans] == [None, None, "bm25", "encoder"]


def test_wrong_settings_are_named() -> None:
    with pytest.raises(InputError, match=r"model\.batch\.abstracts=\[0, 2\]: must be numbers from 0 to 1"):
        QuerySettings(abstracts=(0, 2))
    for share in (0, -1, {"b": 1}):
        with pytest.raises(InputError, match=r"model\.batch\.shares=.*: must be numbers above 0 by name"):
            QuerySettings(shares={"a": share})  # type: ignore[dict-item]
    with pytest.raises(InputError, match=r"texts of up to 184 tokens; set encoder\.max_tokens=184"):
        ArticleConfig("a", max_tokens=128, layout="lengths", markers="mask")
    with pytest.raises(InputError, match=r"layout=lengths: needs encoder\.markers=mask"):
        ArticleConfig("a", layout="lengths", max_tokens=184)


def test_papers_with_the_text_of_a_cited_one_are_no_negatives(tiny_source: Path, tmp_path: Path) -> None:
    papers = json.loads((tiny_source / "papers.json").read_text())
    [first, *_] = json.loads((tiny_source / "train.json").read_text())
    cited = first["positive_ids"][0]
    papers["twin"] = {**papers[cited], "year": 1990}
    papers["other"] = {**papers[cited], "title": "Another title"}
    (tiny_source / "papers.json").write_text(json.dumps(papers))
    corpus = open_corpus(tiny_source, cache_dir=tmp_path / "twins")
    own, twin, other = map(corpus.paper_row, (cited, "twin", "other"))
    before, after = corpus.splits["train"].positives, training_split(corpus).positives
    for written, read in zip(before, after, strict=True):
        assert {*read.tolist()} == {*written.tolist(), *([twin] if own in written else [])}
    assert twin in after.values and other not in after.values
