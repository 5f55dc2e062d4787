"""The recipe of the small networks in small: what they read, how they are trained, resumed and exported."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from citerec.base.errors import InputError
from citerec.datasets.columns import Ragged
from citerec.datasets.corpus import Corpus
from citerec.datasets.prepare import open_corpora
from citerec.hatten.biencoder.model import BiEncoder
from citerec.rerank.cross_encoder.data import (
    Prefetched,
    Prefetcher,
    QueryOrder,
    TrainingLists,
    draw_negatives,
)
from citerec.rerank.cross_encoder.export import write_networks
from citerec.rerank.cross_encoder.network import CrossEncoder
from citerec.rerank.cross_encoder.pairs import LengthsReader, pair_reader
from citerec.rerank.settings import (
    NegativesSettings,
    PairSettings,
    RerankerSettings,
    StepSettings,
)
from citerec.retrieval.encoders.article_text import ArticleReader
from citerec.retrieval.encoders.encoder import ArticleEncoder
from citerec.retrieval.lexical.bm25 import BM25
from citerec.retrieval.networks.encoder import NetworkRetriever
from citerec.retrieval.networks.inputs import InputReader
from citerec.retrieval.networks.networks import CROSS_ENCODER, Networks
from citerec.retrieval.queries import Queries
from citerec.retrieval.settings import ArticleConfig, Lengths
from citerec.tests.conftest import Done
from citerec.tests.runs import train_twice
from citerec.train import train
from citerec.training.queries import DataSets, Siblings, training_split

pytestmark = pytest.mark.filterwarnings("ignore")

LENGTHS = Lengths(before=6, after=4, citing_title=3, title=5, names=6, abstract=9)
SPLITS = ["train", "train_named", "val"]


@pytest.fixture
def folders(tiny_source: Path, tmp_path: Path) -> list[Path]:
    """Two data sets with authors, of which the second has named contexts."""
    papers = json.loads((tiny_source / "papers.json").read_text())
    for number, paper in enumerate(papers.values()):
        paper["authors"] = ["Ada Lovelace", "Alan Turing", "Grace Hopper"][: number % 4]
    (tiny_source / "papers.json").write_text(json.dumps(papers))
    other = shutil.copytree(tiny_source, tmp_path / "other")
    queries = json.loads((other / "train.json").read_text())
    (other / "train.json").write_text(json.dumps(queries[3:]))
    (other / "train_named.json").write_text(json.dumps(queries[:3]))
    return [tiny_source, other]


@pytest.fixture
def corpus(folders: list[Path], tmp_path: Path) -> Corpus:
    return open_corpora(folders, tmp_path / "cache", SPLITS, field="authors", candidates="all")


@pytest.fixture
def inputs(tiny_bert: Path) -> InputReader:
    return InputReader.open(tiny_bert / "tokenizer.json", LENGTHS)


ENCODER = ArticleConfig("tiny", max_tokens=32, layout="lengths", lengths=LENGTHS, markers="mask")
PAIRS = PairSettings(max_tokens=48, layout="lengths", lengths=LENGTHS)


def listed(texts: Ragged) -> list[list[int]]:
    return [text.tolist() for text in texts]


def test_the_encoder_is_trained_on_what_it_reads_in_a_library(
    corpus: Corpus, inputs: InputReader, tiny_bert: Path
) -> None:
    article = ArticleEncoder.pretrained(replace(ENCODER, path=str(tiny_bert)))
    reader = ArticleReader(corpus, article.tokenizer, article.config)
    papers, contexts = np.arange(len(corpus.paper_ids)), np.arange(len(corpus.context_ids))
    expected = [inputs.alone(paper.subwords) for paper in inputs.papers(corpus, papers)]
    assert listed(reader.papers(papers)) == expected
    queries = Queries.from_contexts(corpus, contexts)
    expected = [inputs.alone(query) for query in inputs.queries(queries)]
    assert listed(reader.queries(contexts)) == expected
    assert any(inputs.special["separator"] in query[:-1] for query in expected)

    kept = papers % 2 == 0
    none = [""] * len(papers)
    bare = [paper.subwords for paper in inputs.texts([*corpus.titles], none, none)]
    plain = listed(reader.papers(papers))
    for row, text in enumerate(listed(reader.papers(papers, kept))):
        assert (text == plain[row]) == bool(kept[row] or not corpus.abstracts[row])
        assert text[: len(bare[row])] == plain[row][: len(bare[row])]


@pytest.fixture
def cross_encoder(tiny_bert: Path) -> CrossEncoder:
    return CrossEncoder.pretrained(ArticleConfig("tiny", path=str(tiny_bert)), PAIRS, head="linear")


def test_the_cross_encoder_is_trained_on_what_it_reads_in_a_library(
    corpus: Corpus, inputs: InputReader, cross_encoder: CrossEncoder
) -> None:
    reader = pair_reader(corpus, cross_encoder.tokenizer, PAIRS)
    assert isinstance(reader, LengthsReader)
    rows = np.array(list(product(range(len(corpus.context_ids)), range(len(corpus.paper_ids)))))
    contexts, papers = rows.T
    kept = np.random.default_rng(0).random(len(rows)) < 0.5
    queries = Queries.from_contexts(corpus, np.arange(len(corpus.context_ids)))
    titled = inputs.queries(queries)
    whole = inputs.papers(corpus, np.arange(len(corpus.paper_ids)))
    for abstracts in (None, kept):
        ids, types, mask = (part.numpy() for part in reader.pairs(contexts, papers, abstracts).padded())
        for number, (context, paper) in enumerate(rows.tolist()):
            of_paper = whole[paper].subwords
            if abstracts is not None and not abstracts[number] and whole[paper].bounds:
                of_paper = of_paper[: whole[paper].bounds[0] - 1]
            pair = inputs.pair(titled[context], of_paper)
            there = mask[number] == 1
            assert (ids[number][there].tolist(), types[number][there].tolist()) == pair
    assert reader.for_queries(queries).pairs(contexts, papers).lengths.tolist() == [
        3 + len(titled[c]) + len(whole[p].subwords) for c, p in rows.tolist()
    ]


def test_lists_have_siblings_and_more_of_the_first_papers(corpus: Corpus) -> None:
    split = training_split(corpus, SPLITS[:2])
    siblings = Siblings(corpus, split)
    row = next(row for row in range(len(split)) if len(siblings[row]) > 1)
    others = np.setdiff1d(np.arange(12), [*siblings[row], *split.positives[row]]).astype(np.int32)
    config, kinds = NegativesSettings(2, 10, siblings=1, sibling_lists=0.5), Counter[int]()
    reader: Any = SimpleNamespace(corpus=corpus)
    order, found = QueryOrder(np.array([row]), np.array([0])), Prefetched([])
    found._shards = [others[None]]
    lists = TrainingLists(reader, split, order, found, StepSettings(), config, 0)
    for epoch in range(100):
        papers = lists.papers(row, epoch)
        assert papers[0] in split.positives[row] and not set(papers[1:]) & set(split.positives[row])
        assert len({*papers.tolist()}) == 4
        kinds[int(np.isin(papers, siblings[row]).sum())] += 1
    most = min(3, len(siblings[row]))
    assert set(kinds) == {1, most} and 30 < kinds[most] < 70
    ranked, none = np.arange(20, dtype=np.int32), np.empty(0, np.int32)
    counts = np.zeros(20)
    for epoch in range(400):
        counts[draw_negatives(ranked, none, 4, 1.0, np.random.default_rng(epoch))] += 1
    assert counts[0] > 2 * counts[5] > 2 * counts[15] > 0


def test_candidates_are_those_of_the_querys_folder(corpus: Corpus, tmp_path: Path) -> None:
    split = training_split(corpus, SPLITS[:2])
    sets = DataSets.read(corpus, split, {"tiny": 1, "other": 1})
    assert sets.papers is not None
    own = sets, np.arange(len(split))
    prefetcher = Prefetcher(BM25(), corpus, tmp_path / "candidates")
    found = prefetcher(split.contexts, 8, "queries", own).to_array()
    there = found >= 0
    assert there.any(axis=1).all()
    assert (sets.papers[found] == sets.numbers(own[1])[:, None])[there].all()
    assert prefetcher.key(split.contexts, 8, own) != prefetcher.key(split.contexts, 8)


def test_settings_that_do_not_fit_are_named() -> None:
    with pytest.raises(InputError, match=r"pairs of up to 40 tokens; set model\.pairs\.max_tokens=40"):
        replace(PAIRS, max_tokens=39)
    with pytest.raises(InputError, match=r"needs model\.pairs\.layout=lengths"):
        RerankerSettings(batch=StepSettings(abstracts=(0.5,)))


def of_lengths(option: str) -> dict[str, Any]:
    return {f"{option}.lengths.{name}": value for name, value in vars(LENGTHS).items()}


@pytest.fixture
def small(folders: list[Path], tiny_bert: Path, tmp_path: Path) -> dict[str, Any]:
    """Options of the recipe that both trainings share, shrunk."""
    return {
        "experiment": "small_networks",
        "encoder": "minilm",
        "encoder.name": "tiny",
        "encoder.path": tiny_bert,
        "data.dirs": f"[{','.join(map(str, folders))}]",
        "data.cache_dir": tmp_path / "cache",
        "model.precision": "float32",
        "model.trained_layers": 1,
        "model.batch.shares": "{tiny: 1, other: 2}",
        "model.batch.queries": 3,
        "model.validation.monitor": "mrr",
        "model.schedule.warmup": 1,
    }


@pytest.mark.slow
def test_both_networks_are_trained_resumed_exported_and_used(
    small: dict[str, Any], corpus: Corpus, tmp_path: Path, script: Callable[..., Done]
) -> None:
    of_encoder = {
        "model": "biencoder",
        "encoder.max_tokens": 32,
        "model.rounds": 3,
        "model.batch.steps_per_round": 2,
        "model.batch.contexts_per_paper": 2,
        "model.optimizer.lr": 0.003,
    }
    (tmp_path / "bi").mkdir()
    options = small | of_encoder | of_lengths("encoder")
    encoder, resumed = train_twice(train, 4, tmp_path / "bi", options)
    assert (encoder / "model.safetensors").read_bytes() == (resumed / "model.safetensors").read_bytes()

    of_reranker = {
        "model": "scibert_reranker",
        "retriever": "biencoder",
        "checkpoint": encoder.parent,
        "model.pairs.max_tokens": 48,
        "model.queries_per_epoch": 12,
        "model.negatives.count": 2,
        "model.negatives.depth": 6,
        "model.negatives.siblings": 1,
        "model.validation.every": 2,
        "model.validation.candidates": 6,
    }
    (tmp_path / "cross").mkdir()
    options = small | of_reranker | of_lengths("model.pairs")
    reranker, resumed = train_twice(train, 4, tmp_path / "cross", options)
    for name in ("model.safetensors", "head.safetensors"):
        assert (reranker / name).read_bytes() == (resumed / name).read_bytes()

    out = tmp_path / "networks"
    given = [f"encoder={encoder.parent}", f"reranker={reranker.parent}", f"output={out}"]
    done = script("model", "networks", *given)
    assert done.code == 0, done.err
    assert "cross-encoder.onnx" in done.out and sorted(path.name for path in out.iterdir()) == [
        "cross-encoder.onnx", "encoder.onnx", "networks.json", "tokenizer.json",
    ]  # fmt: skip
    networks, model = Networks.open(out), BiEncoder.open(encoder)
    assert networks.reader.lengths == LENGTHS
    found = NetworkRetriever(networks).index(corpus)
    contexts, papers = np.arange(len(corpus.context_ids)), np.arange(len(corpus.paper_ids))
    reader = ArticleReader(corpus, model.encoder.tokenizer, model.encoder.config)
    queries = Queries.from_contexts(corpus, contexts)
    with torch.no_grad():
        of_papers = F.normalize(model.encoder.encode(reader.papers(papers)), dim=1).numpy()
        of_queries = F.normalize(model.encoder.encode(reader.queries(contexts)), dim=1).numpy()
    assert ((found.paper_vectors(papers) * of_papers).sum(1) > 0.98).all()
    assert ((found.query_vectors(queries) * of_queries).sum(1) > 0.98).all()

    cross = CrossEncoder.open(reranker)
    rows = np.array(list(product(contexts.tolist(), papers.tolist())))
    with torch.no_grad():
        logits = cross(*pair_reader(corpus, cross.tokenizer, cross.config).pairs(*rows.T).padded())
    texts = networks.reader.queries(queries), [one.subwords for one in networks.reader.papers(corpus, papers)]
    scores = networks.scores([networks.reader.pair(texts[0][c], texts[1][p]) for c, p in rows.tolist()])
    assert np.corrcoef(scores, logits.numpy())[0, 1] > 0.97


def test_only_networks_of_the_recipe_are_exported(
    tiny_bert: Path, tiny_reranker: Path, cross_encoder: CrossEncoder, tmp_path: Path
) -> None:
    def saved(config: ArticleConfig, name: str) -> Path:
        article = ArticleEncoder.pretrained(replace(config, path=str(tiny_bert)))
        return BiEncoder(article).save(tmp_path / name)

    right, reranker = saved(ENCODER, "right"), cross_encoder.save(tmp_path / "reranker")
    other = replace(ENCODER, lengths=replace(LENGTHS, title=4))
    for encoder, wrong, message in (
        (
            saved(ArticleConfig("tiny", max_tokens=24), "plain"),
            reranker,
            "encoder=.*plain: was not trained with experiment",
        ),
        (right, tiny_reranker, "reranker=.*: was not trained with experiment=small_networks"),
        (saved(other, "other"), reranker, "has other lengths or another tokeniser"),
    ):
        with pytest.raises(InputError, match=message):
            write_networks(encoder, wrong, tmp_path / "out")
    folder = write_networks(right, None, tmp_path / "out")
    assert CROSS_ENCODER not in Networks.open(folder).hashes
