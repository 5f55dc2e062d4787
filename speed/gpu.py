"""Training, encoding and scoring on a GPU, beside plain loops of transformers in the same run.

    python -m citerec.speed.gpu

Texts and weights are random; networks have the sizes of the paper's HAtten and of BERT-base. It prints a
table, line by line. Without a GPU all of it runs on the CPU, for which --tiny makes everything small.
"""

from __future__ import annotations

import argparse
import csv
import logging
import os
import tempfile
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
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
from citerec.hatten.model import HAtten, HAttenRetriever
from citerec.hatten.settings import (
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
from citerec.retrieval.encoders.nets import find_device
from citerec.retrieval.popularity import Popularity
from citerec.retrieval.settings import ArticleConfig
from citerec.speed._common import save_random_bert
from citerec.training.loop import TrainingRun
from citerec.training.settings import OptimizerSettings, TrainerSettings

BATCH = 64
"""Pairs in a batch of the plain loops."""


@dataclass(frozen=True)
class RandomVectors(Embeddings):
    """Random vectors of the words that occur at least three times."""

    dim: int

    def load(self, corpus: Corpus) -> WordVectors:
        words = [corpus.words[row] for row in np.flatnonzero(np.asarray(corpus.word_counts) >= 3).tolist()]
        random = np.random.default_rng(0).standard_normal((len(words), self.dim), np.float32)
        return WordVectors(words, random, "random")


@dataclass(frozen=True)
class Bench:
    """What all measurements share. seconds: duration of each measured loop."""

    corpus: Corpus
    folder: Path
    tiny: bool
    seconds: float
    device: torch.device

    def rate(self, call: Callable[[], int]) -> float:
        """Items per second of a function that returns their number, called until the time is over."""
        call()  # warms up
        self._synchronise()
        done, start = 0, time.perf_counter()
        while not done or time.perf_counter() - start < self.seconds:
            done += call()
            self._synchronise()
        return done / (time.perf_counter() - start)

    def _synchronise(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize()

    def run(self, name: str) -> TrainingRun:
        """A training that writes to a new folder."""
        return TrainingRun(self.folder / name, trainer=TrainerSettings())

    def figure(self, name: str, column: str) -> float:
        """A figure of the last line of a training's history."""
        with (self.folder / name / "history.csv").open(newline="", encoding="utf-8") as file:
            *_, last = csv.DictReader(file)
        return float(last[column])


def print_row(label: str, figure: str, plain: str = "") -> None:
    """Print a line of the table; plain: the plain loop's figure in the same unit."""
    print(f"| {label} | {figure} |{plain and f' {plain}'} |", flush=True)


def measure_hatten(bench: Bench) -> None:
    """The paper's recipe with random papers in place of as many mined ones; mining is measured elsewhere."""
    small: dict[str, Any] = {"dim": 16, "heads": 2, "hidden": 32, "max_tokens": 64} if bench.tiny else {}
    config = EncoderConfig(**small)
    steps, queries = (3, 8) if bench.tiny else (300, 75)
    settings = HAttenSettings(
        rounds=1,
        ema=0.999,
        word_dropout=0.0,
        encoder=config,
        batch=EncoderBatchSettings(queries, mined=0, random=4, contexts_per_paper=1, steps_per_round=steps),
        validation=EncoderValidationSettings(queries=0),
        schedule=EncoderRateSettings(),
        optimizer=OptimizerSettings(lr=1e-4, weight_decay=1e-5),
    )
    vectors = RandomVectors(config.dim)
    HAtten.train(bench.corpus, settings, bench.run("hatten"), pretrained=vectors)
    rate = bench.figure("hatten", "train/steps_per_second")
    print_row(f"HAtten, training, {queries} queries a step", f"{rate:.1f} steps/s")

    model, encoder, _ = HAtten.untrained(bench.corpus, settings, vectors)
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
        print_row(f"HAtten, encoding ({where})", f"{rate:,.0f} documents/s")


def measure_cross_encoder(bench: Bench) -> None:
    """A cross-encoder of BERT-base's size, beside loops over batches as most scripts have them: tokenised
    ahead, padded to the longest of the batch.
    """
    from transformers import AutoModel, AutoTokenizer

    corpus, tiny, folder = bench.corpus, bench.tiny, bench.folder / "base"
    hidden, layers, words, max_tokens = (32, 2, 500, 96) if tiny else (768, 12, 28_000, 240)
    save_random_bert(
        folder,
        [corpus.words[row].lower() for row in np.argsort(-np.asarray(corpus.word_counts))[:words].tolist()],
        hidden_size=hidden,
        num_hidden_layers=layers,
        num_attention_heads=max(hidden // 64, 2),
        intermediate_size=4 * hidden,
    )
    negatives, queries = (3, 24) if tiny else (62, 80)
    settings = RerankerSettings(
        queries_per_epoch=queries,
        dropout=0.0,
        pairs=PairSettings(max_tokens=max_tokens),
        batch=StepSettings(2),
        negatives=NegativesSettings(negatives, 2 * negatives),
        validation=RerankingValidationSettings(queries=0, candidates=20),
    )
    bert = ArticleConfig("base", path=str(folder), max_tokens=max_tokens)
    options: dict[str, Any] = {"pretrained": bert, "retriever": Popularity()}
    reranker = Reranker.train(corpus, settings, bench.run("reranker"), **options)
    pairs = bench.figure("reranker", "train/pairs_per_second")

    split = corpus.split(TRAIN)
    rows = np.arange(min(len(split), 64 if tiny else 2048))
    cited = np.array([int(split.positives[row][0]) for row in rows.tolist()])
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model: Any = AutoModel.from_pretrained(folder).to(bench.device)
    head = nn.Linear(hidden, 1).to(bench.device)
    optimizer = torch.optim.AdamW([*model.parameters(), *head.parameters()], lr=1e-5, fused=True)
    batches = []
    for start in range(0, min(len(rows), 512), BATCH):
        part = slice(start, start + BATCH)
        contexts = [corpus.context_texts[row] for row in split.contexts[rows[part]].tolist()]
        papers = [f"{corpus.titles[row]}. {corpus.abstracts[row]}" for row in cited[part].tolist()]
        padding: dict[str, Any] = {"padding": True, "truncation": True, "max_length": max_tokens}
        batches.append(tokenizer(contexts, papers, return_tensors="pt", **padding).to(bench.device))

    def logits(batch: Any) -> Tensor:
        with torch.autocast(bench.device.type, torch.bfloat16, enabled=bench.device.type == "cuda"):
            first = model(**batch).last_hidden_state[:, 0]
        score: Tensor = head(first.float())[:, 0]
        return score

    def train() -> int:
        for batch in batches:
            optimizer.zero_grad()
            F.softplus(logits(batch)).mean().backward()
            optimizer.step()
        return sum(len(batch["input_ids"]) for batch in batches)

    @torch.inference_mode()
    def score() -> int:
        return sum(len(logits(batch)) for batch in batches)

    plain = bench.rate(train)
    print_row("cross-encoder of BERT-base's size, training", f"{pairs:,.0f} pairs/s", f"{plain:,.0f}")
    rate = bench.rate(lambda: len(reranker.score(corpus, split.contexts[rows], cited)))
    model.eval()
    print_row("... scoring", f"{rate:,.0f} pairs/s", f"{bench.rate(score):,.0f}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tiny", action="store_true", help="small networks and data, to try the script")
    tiny = parser.parse_args().tiny
    logging.basicConfig(level=logging.WARNING)
    warnings.filterwarnings("ignore")
    device = find_device()
    card = torch.cuda.get_device_name(device) if device.type == "cuda" else "no GPU"
    versions = [f"{name} {version(name)}" for name in ("torch", "transformers", "pytorch-lightning")]
    print(
        f"{card}, {os.cpu_count()} cores, {', '.join(versions)}\n\n| | | plain loop |\n| --- | ---: | ---: |"
    )
    papers, contexts = (150, 400) if tiny else (20_000, 40_000)
    corpus = open_demo(papers=papers, contexts=contexts, cache_dir=cache_folder() / "speed")
    with tempfile.TemporaryDirectory(prefix="citerec-gpu-") as folder:
        bench = Bench(corpus, Path(folder), tiny, 0.0 if tiny else 6.0, device)
        measure_hatten(bench)
        measure_cross_encoder(bench)


if __name__ == "__main__":
    main()
