"""Training, encoding and scoring on a GPU, beside plain loops of transformers in the same run.

    python -m citerec.speed.gpu --minutes 5

Texts and weights are random; networks have the sizes of the paper's HAtten, MiniLM-L6 and BERT-base. It
prints a table, and begins no measurement when the time is over. Without a GPU all of it runs on the CPU, for
which --tiny makes everything small.
"""

from __future__ import annotations

import argparse
import csv
import logging
import os
import tempfile
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from citerec.base.files import cache_folder
from citerec.datasets.corpus import Corpus
from citerec.datasets.generate import open_demo
from citerec.datasets.records import TRAIN
from citerec.hatten.biencoder.model import BiEncoder
from citerec.hatten.model import HAtten, HAttenRetriever
from citerec.hatten.settings import (
    BiEncoderBatchSettings,
    BiEncoderSettings,
    EncoderBatchSettings,
    EncoderConfig,
    EncoderRateSettings,
    EncoderValidationSettings,
    HAttenSettings,
)
from citerec.hatten.words.vectors import Embeddings, WordVectors
from citerec.rerank.cross_encoder.reranker import Reranker
from citerec.rerank.settings import (
    NegativesSettings,
    PairSettings,
    RerankerSettings,
    RerankingValidationSettings,
    StepSettings,
)
from citerec.retrieval.encoders.article import ArticleRetriever
from citerec.retrieval.encoders.nets import find_device
from citerec.retrieval.popularity import Popularity
from citerec.retrieval.settings import ArticleConfig
from citerec.speed._common import save_random_bert
from citerec.training.loop import TrainingRun
from citerec.training.settings import OptimizerSettings, TrainerSettings

BATCH = 64
"""Texts or pairs in a batch of the plain loops."""


@dataclass(frozen=True)
class Row:
    """A line of the table; plain: the plain loop's figure in the same unit."""

    label: str
    figure: str
    plain: str = ""


@dataclass(frozen=True)
class RandomVectors(Embeddings):
    """Random vectors of the words that occur at least three times."""

    dim: int

    def load(self, corpus: Corpus) -> WordVectors:
        words = [corpus.words[row] for row in np.flatnonzero(np.asarray(corpus.word_counts) >= 3).tolist()]
        random = np.random.default_rng(0).standard_normal((len(words), self.dim), np.float32)
        return WordVectors(words, random, "random")


class Bench:
    """State that all measurements share: the device, the data, the folder and the sizes of the networks."""

    def __init__(self, folder: Path, tiny: bool, seconds: float) -> None:
        self.folder, self.tiny, self.seconds = folder, tiny, seconds
        self.device = find_device()
        self.trainer = TrainerSettings()

    @cached_property
    def corpus(self) -> Corpus:
        papers, contexts = (150, 400) if self.tiny else (20_000, 40_000)
        return open_demo(papers=papers, contexts=contexts, cache_dir=cache_folder() / "speed")

    def run(self, name: str, **trainer: Any) -> TrainingRun:
        """A training that writes to a new folder."""
        return TrainingRun(self.folder / name, trainer=replace(self.trainer, **trainer))

    def figures(self, name: str) -> dict[str, float]:
        """The last line of a training's history."""
        with (self.folder / name / "history.csv").open(newline="", encoding="utf-8") as file:
            *_, last = csv.DictReader(file)
        return {key: float(value) for key, value in last.items() if value}

    def steps(self, count: int) -> int:
        """The number of steps of a training."""
        return 3 if self.tiny else count

    def synchronise(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize()

    def rate(self, call: Callable[[], int]) -> float:
        """Items per second of a function that returns their number, called until the time is over."""
        call()  # warms up
        self.synchronise()
        done, start = 0, time.perf_counter()
        while not done or time.perf_counter() - start < self.seconds:
            done += call()
            self.synchronise()
        return done / (time.perf_counter() - start)

    # Networks

    @cached_property
    def encoder_config(self) -> EncoderConfig:
        small: dict[str, Any] = {"dim": 16, "heads": 2, "hidden": 32, "max_tokens": 64} if self.tiny else {}
        return EncoderConfig(**small)

    @property
    def vectors(self) -> RandomVectors:
        return RandomVectors(self.encoder_config.dim)

    def bert(self, name: str, hidden: int, layers: int) -> ArticleConfig:
        """A BERT with random weights and the words of the corpus, as a folder."""
        folder = self.folder / name
        if not folder.is_dir():
            frequent = np.argsort(-np.asarray(self.corpus.word_counts))[: 500 if self.tiny else 28_000]
            save_random_bert(
                folder,
                [self.corpus.words[row].lower() for row in frequent.tolist()],
                hidden_size=hidden,
                num_hidden_layers=layers,
                num_attention_heads=max(hidden // 64, 2),
                intermediate_size=4 * hidden,
            )
        return ArticleConfig(name, path=str(folder), max_tokens=240)

    @cached_property
    def minilm(self) -> ArticleConfig:
        return self.bert("minilm", *((32, 2) if self.tiny else (384, 6)))

    @cached_property
    def base(self) -> ArticleConfig:
        return self.bert("base", *((32, 2) if self.tiny else (768, 12)))


# HAtten


def paper_settings(bench: Bench, steps: int, queries: int) -> HAttenSettings:
    """The paper's recipe without mining, which is measured elsewhere: as many random papers in its place."""
    return HAttenSettings(
        rounds=1,
        ema=0.999,
        word_dropout=0.0,
        encoder=bench.encoder_config,
        batch=EncoderBatchSettings(queries, mined=0, random=4, contexts_per_paper=1, steps_per_round=steps),
        validation=EncoderValidationSettings(queries=0),
        schedule=EncoderRateSettings(),
        optimizer=OptimizerSettings(lr=1e-4, weight_decay=1e-5),
    )


def hatten_training(bench: Bench) -> Iterator[Row]:
    settings = paper_settings(bench, bench.steps(300), 8 if bench.tiny else 75)
    HAtten.train(bench.corpus, settings, bench.run("hatten"), pretrained=bench.vectors)
    rate = bench.figures("hatten")["train/steps_per_second"]
    yield Row(f"HAtten, training, {settings.batch.queries} queries a step", f"{rate:.1f} steps/s")


def hatten_encoding(bench: Bench) -> Iterator[Row]:
    settings = paper_settings(bench, 1, 8)
    model, encoder, _ = HAtten.untrained(bench.corpus, settings, bench.vectors)
    encoder.eval()
    retriever = HAttenRetriever(model)
    retriever.prepare(bench.corpus)
    rows = np.flatnonzero(bench.corpus.is_candidate)
    automatic = encoder.chunk_tokens
    for tokens in dict.fromkeys([automatic] if bench.tiny else [2048, 16_384, automatic, 65_536]):
        encoder.chunk_tokens = tokens
        rate = bench.rate(lambda: len(retriever.encode_papers(rows)))
        chosen = ", chosen" if tokens == automatic else ""
        where = f"on {encoder.device.type}, chunks of {tokens:,} tokens{chosen}"
        yield Row(f"HAtten, encoding ({where})", f"{rate:,.0f} documents/s")


# Transformers


class PlainLoop:
    """Loops over batches as most scripts have them: tokenised ahead, padded to the longest of the batch."""

    def __init__(self, bench: Bench, config: ArticleConfig) -> None:
        from transformers import AutoModel, AutoTokenizer

        assert config.path is not None
        self.bench, self.max_tokens = bench, config.max_tokens
        self.tokenizer = AutoTokenizer.from_pretrained(config.path)
        self.model: Any = AutoModel.from_pretrained(config.path).to(bench.device)
        self.head = nn.Linear(self.model.config.hidden_size, 1).to(bench.device)
        self.optimizer = torch.optim.AdamW(
            [*self.model.parameters(), *self.head.parameters()], lr=1e-5, fused=True
        )

    def batches(self, *texts: Sequence[str]) -> list[Any]:
        """Batches of texts, or of pairs of texts."""
        batches = []
        for start in range(0, len(texts[0]), BATCH):
            part = [list(column[start : start + BATCH]) for column in texts]
            options = {"padding": True, "truncation": True, "max_length": self.max_tokens}
            encoded = self.tokenizer(*part, return_tensors="pt", **options)
            batches.append(encoded.to(self.bench.device))
        return batches

    def forward(self, batch: Any) -> Tensor:
        with torch.autocast(self.bench.device.type, torch.bfloat16, enabled=self.bench.device.type == "cuda"):
            hidden: Tensor = self.model(**batch).last_hidden_state
        return hidden

    def embed(self, batch: Any) -> Tensor:
        mask = batch["attention_mask"][:, :, None]
        return F.normalize((self.forward(batch).float() * mask).sum(1) / mask.sum(1), dim=1)

    def train(self, batches: Iterable[Any], loss: Callable[[Any], Tensor]) -> int:
        done = 0
        for batch in batches:
            self.optimizer.zero_grad()
            loss(batch).backward()
            self.optimizer.step()
            done += len(batch["input_ids"])
        return done

    @torch.inference_mode()
    def compute(self, batches: Iterable[Any], call: Callable[[Any], Tensor]) -> int:
        return sum(len(call(batch)) for batch in batches)


def texts_of(bench: Bench, count: int) -> tuple[list[str], list[str]]:
    """Contexts of the training split and texts of the papers that they cite."""
    corpus, split = bench.corpus, bench.corpus.split(TRAIN)
    rows = np.arange(min(count, len(split)))
    cited = [int(split.positives[row][0]) for row in rows.tolist()]
    papers = [f"{corpus.titles[row]}. {corpus.abstracts[row]}" for row in cited]
    return [corpus.context_texts[row] for row in split.contexts[rows].tolist()], papers


def in_batch_loss(loop: PlainLoop) -> Callable[[tuple[Any, Any]], Tensor]:
    def loss(batch: Any) -> Tensor:
        vectors = loop.embed(batch)
        queries, papers = vectors[::2], vectors[1::2]
        return F.cross_entropy(queries @ papers.T / 0.05, torch.arange(len(queries), device=queries.device))

    return loss


def bi_encoder(bench: Bench) -> Iterator[Row]:
    steps, queries = bench.steps(100), 8 if bench.tiny else 64
    settings = BiEncoderSettings(
        rounds=1,
        batch=BiEncoderBatchSettings(queries, mined=0, random=1, contexts_per_paper=1, steps_per_round=steps),
        mining={"first": "none"},
        validation=EncoderValidationSettings(queries=0),
    )
    model = BiEncoder.train(bench.corpus, settings, bench.run("biencoder"), pretrained=bench.minilm)
    texts = 3 * queries * bench.figures("biencoder")["train/steps_per_second"]
    loop = PlainLoop(bench, bench.minilm)
    contexts, papers = texts_of(bench, 64 if bench.tiny else 2048)
    pairs = [text for pair in zip(contexts, papers, strict=True) for text in pair]
    batches = loop.batches(pairs)
    plain = bench.rate(lambda: loop.train(batches, in_batch_loss(loop)))
    yield Row("bi-encoder of MiniLM's size, training", f"{texts:,.0f} texts/s", f"{plain:,.0f}")
    retriever = ArticleRetriever(model.encoder)
    retriever.prepare(bench.corpus)
    rows = np.flatnonzero(bench.corpus.is_candidate)[: 64 if bench.tiny else 16_384]
    retriever.encode_papers(rows[:64])  # tokenises all texts
    rate = bench.rate(lambda: len(retriever.encode_papers(rows)))
    loop.model.eval()
    of_papers = loop.batches(papers)
    plain = bench.rate(lambda: loop.compute(of_papers, loop.embed))
    yield Row("... encoding papers", f"{rate:,.0f} texts/s", f"{plain:,.0f}")


def cross_encoder(bench: Bench) -> Iterator[Row]:
    negatives, queries = (3, 24) if bench.tiny else (62, 80)
    settings = RerankerSettings(
        queries_per_epoch=queries,
        dropout=0.0,
        pairs=PairSettings(max_tokens=96 if bench.tiny else 240),
        batch=StepSettings(2),
        negatives=NegativesSettings(negatives, 2 * negatives),
        validation=RerankingValidationSettings(queries=0, candidates=20),
    )
    run = bench.run("reranker")
    options: dict[str, Any] = {"pretrained": bench.base, "retriever": Popularity()}
    reranker = Reranker.train(bench.corpus, settings, run, **options)
    pairs = bench.figures("reranker")["train/pairs_per_second"]
    loop = PlainLoop(bench, replace(bench.base, max_tokens=settings.pairs.max_tokens))
    contexts, papers = texts_of(bench, 64 if bench.tiny else 512)
    batches = loop.batches(contexts, papers)

    def logits(batch: Any) -> Tensor:
        score: Tensor = loop.head(loop.forward(batch)[:, 0].float())[:, 0]
        return score

    plain = bench.rate(lambda: loop.train(batches, lambda batch: F.softplus(logits(batch)).mean()))
    yield Row("cross-encoder of BERT-base's size, training", f"{pairs:,.0f} pairs/s", f"{plain:,.0f}")
    split = bench.corpus.split(TRAIN)
    rows = np.arange(min(len(split), 64 if bench.tiny else 2048))
    cited = np.array([int(split.positives[row][0]) for row in rows.tolist()])
    rate = bench.rate(lambda: len(reranker.score(bench.corpus, split.contexts[rows], cited)))
    loop.model.eval()
    plain = bench.rate(lambda: loop.compute(batches, logits))
    yield Row("... scoring", f"{rate:,.0f} pairs/s", f"{plain:,.0f}")


MEASUREMENTS: tuple[Callable[[Bench], Iterator[Row]], ...] = (
    hatten_training,
    hatten_encoding,
    cross_encoder,
    bi_encoder,
)


def machine(device: torch.device) -> str:
    card = torch.cuda.get_device_name(device) if device.type == "cuda" else "no GPU"
    versions = [f"{name} {version(name)}" for name in ("torch", "transformers", "pytorch-lightning")]
    return f"{card}, {os.cpu_count()} cores, {', '.join(versions)}"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=5, help="after which no measurement begins")
    parser.add_argument("--seconds", type=float, default=6, help="of each measured loop")
    parser.add_argument("--tiny", action="store_true", help="small networks and data, to try the script")
    parser.add_argument(
        "--only", nargs="*", help="names of measurements", choices=[m.__name__ for m in MEASUREMENTS]
    )
    args = parser.parse_args()
    logging.basicConfig(level=logging.WARNING)
    warnings.filterwarnings("ignore")
    start = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="citerec-gpu-") as folder:
        bench = Bench(Path(folder), args.tiny, 0.0 if args.tiny else args.seconds)
        print(f"{machine(bench.device)}\n\n| | | plain loop |\n| --- | ---: | ---: |")
        for measure in MEASUREMENTS:
            name = measure.__name__
            if args.only and name not in args.only:
                continue
            if time.monotonic() - start > 60 * args.minutes:
                print(f"| {name} | left out: the time is over | |")
                continue
            try:
                for row in measure(bench):
                    print(f"| {row.label} | {row.figure} |{row.plain and f' {row.plain}'} |", flush=True)
            except Exception as error:  # the others may still run
                text = " ".join(f"{type(error).__name__}: {error}".split())[:200]
                print(f"| {name} | failed: {text} | |")
    print(f"\n{time.monotonic() - start:.0f} s")


if __name__ == "__main__":
    main()
