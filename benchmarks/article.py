"""HAtten and a sentence encoder side by side: papers encoded in a second, milliseconds for a query.

Beside our reading of the sentence encoder stand the plain ways to run it: a loop over padded batches with
transformers, and, given --peer-python, SentenceTransformer.encode of another environment.
"""

from __future__ import annotations

import argparse
import copy
import json
import os
import statistics
import subprocess
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks._common import arguments, begin, corpus, random_vectors, seconds
from datasets.corpus import Corpus
from hatten.checkpoint import load_model
from hatten.documents import DocumentReader
from hatten.encoder import HAttenEncoder, build_encoder
from hatten.settings import EncoderConfig
from retrieval.article_text import ArticleReader
from retrieval.encoder import ArticleEncoder, find_folder
from retrieval.settings import ArticleConfig
from retrieval.terms import query_texts
from retrieval.vectors import Reader, encode, encode_queries

PEER = """
import json, statistics, sys, time
import torch
from sentence_transformers import SentenceTransformer
task = json.load(sys.stdin)
torch.set_num_threads(task["threads"])
clock = time.perf_counter if task["clock"] == "wall" else time.process_time
model = SentenceTransformer(task["model"], device="cpu")
model.max_seq_length = task["max_tokens"]
def seconds(texts):
    start = clock()
    model.encode(texts, batch_size=task["batch"], show_progress_bar=False)
    return clock() - start
seconds(task["papers"][:64])
papers = statistics.median(seconds(task["papers"]) for _ in range(task["repeats"]))
query = statistics.median(seconds([text]) for text in task["queries"])
print(json.dumps({"papers": papers, "query": query}))
"""
"""Runs in another environment, and another folder: sentence_transformers needs the other `datasets`."""

PLAIN = "MiniLM, float32, plain loop"

Way = tuple[Callable[[], Any], Callable[[int], Any]]
"""Encodes all papers of the sample; encodes a query."""


def ours(
    encoder: HAttenEncoder | ArticleEncoder,
    reader: Reader,
    rows: NDArray[np.int64],
    contexts: NDArray[np.int64],
    dim: int,
) -> Way:
    return (
        lambda: encode(encoder.encode, reader.papers, rows, dim),
        lambda i: encode_queries(encoder.encode, reader, contexts[i : i + 1], dim),
    )


def plain(encoder: ArticleEncoder, papers: list[str], queries: list[str], batch: int) -> Way:
    """What a script would do: batches as they come, padded to their longest text."""

    def vectors(texts: list[str]) -> torch.Tensor:
        found = []
        with torch.inference_mode():
            for start in range(0, len(texts), batch):
                read = encoder.tokenizer(
                    texts[start : start + batch],
                    padding=True,
                    truncation=True,
                    max_length=encoder.config.max_tokens,
                    return_tensors="pt",
                )
                hidden = encoder.model(**read).last_hidden_state
                there = read["attention_mask"][:, :, None]
                found.append((hidden * there).sum(1) / there.sum(1))
        return torch.nn.functional.normalize(torch.cat(found), dim=1)

    return lambda: vectors(papers), lambda i: vectors(queries[i : i + 1])


def peer(args: argparse.Namespace, folder: Path, papers: list[str], queries: list[str]) -> dict[str, float]:
    """Seconds that SentenceTransformer.encode takes in the other environment."""
    task = {"model": str(folder.resolve()), "papers": papers, "queries": queries, "batch": args.batch}
    task |= {"threads": args.threads, "clock": args.clock, "repeats": args.repeats, "max_tokens": 256}
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    with tempfile.TemporaryDirectory() as elsewhere:
        found = subprocess.run(
            [args.peer_python, "-c", PEER],
            input=json.dumps(task),
            stdout=subprocess.PIPE,
            text=True,
            check=True,
            cwd=elsewhere,
            env=environment,
        )
    return dict(json.loads(found.stdout.splitlines()[-1]))


def hatten(args: argparse.Namespace, opened: Corpus) -> tuple[str, HAttenEncoder, DocumentReader]:
    if args.checkpoint is not None:
        model = load_model(args.checkpoint)
        name, encoder, vocabulary = "HAtten", model.encoder, model.vocabulary
    else:
        vocabulary, table = random_vectors(opened)
        config = EncoderConfig(trainable_vectors="all", input_scale=14.0, residual="mean")
        name, encoder = "HAtten, random weights", build_encoder(config, table, vocabulary).eval()
    return name, encoder, DocumentReader(opened, vocabulary, encoder.config.max_tokens)


def measured(args: argparse.Namespace, ways: dict[str, Way]) -> dict[str, tuple[float, float]]:
    """Seconds for all papers, and for a query; in turns, so that all see the same load."""
    papers: dict[str, list[float]] = {name: [] for name in ways}
    queries: dict[str, list[float]] = {name: [] for name in ways}
    for turn in range(args.repeats + 1):
        for name, (all_papers, query) in ways.items():
            if turn == 0:  # warms up
                query(0)
                all_papers()
                continue
            papers[name].append(seconds(args, all_papers))
    for i in range(args.queries):
        for name, (_, query) in ways.items():
            queries[name].append(seconds(args, partial(query, i)))
    return {name: (statistics.median(papers[name]), statistics.median(queries[name])) for name in ways}


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--papers", type=int, default=256)
    parser.add_argument("--queries", type=int, default=64, help="encoded one at a time")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--batch", type=int, default=32, help="of the plain loop and of the peer")
    parser.add_argument("--checkpoint", type=Path, default=None, help="hatten.ckpt; random weights without")
    parser.add_argument("--peer-python", default=None, help="a Python that has sentence_transformers")
    args = parser.parse_args()
    begin(args)
    opened = corpus(args)
    random = np.random.default_rng(0)
    rows = random.permutation(np.flatnonzero(opened.is_candidate))[: args.papers]
    contexts = random.permutation(opened.split("test").contexts)[: args.queries]
    args.queries = len(contexts)
    ways: dict[str, Way] = {}
    name, hierarchical, documents = hatten(args, opened)
    for dtype in (torch.bfloat16, torch.float32):
        encoder = copy.deepcopy(hierarchical)
        encoder.precision = dtype
        ways[f"{name}, {short(dtype)}"] = ours(encoder, documents, rows, contexts, encoder.config.dim)

    config = ArticleConfig("minilm", hub="sentence-transformers/all-MiniLM-L6-v2")
    for arithmetic in ("bfloat16", "float32"):
        sentence = ArticleEncoder.pretrained(config).frozen(arithmetic)
        texts = ArticleReader(opened, sentence.tokenizer, config)
        ways[f"MiniLM, {arithmetic}"] = ours(sentence, texts, rows, contexts, sentence.dim)
    papers = [f"{opened.titles[row]}. {opened.abstracts[row]}" for row in rows.tolist()]
    queries = list(query_texts(opened, contexts, config.query))
    ways[PLAIN] = plain(sentence, papers, queries, args.batch)

    found = measured(args, ways)
    folder = find_folder(config)
    if args.peer_python and folder is not None:
        alone = peer(args, folder, papers, queries)
        found["MiniLM, float32, SentenceTransformer.encode"] = alone["papers"], alone["query"]
    lengths = texts.papers(rows).tokens.lengths
    print(
        f"{len(rows):,} papers of {lengths.mean():.0f} subwords, {args.queries} queries of "
        f"{texts.queries(contexts).tokens.lengths.mean():.0f}, one at a time\n"
        f"{'':44} {'papers/s':>9} {'ms/query':>9} {'papers/s, of the plain loop':>28}"
    )
    for name, (of_papers, of_query) in found.items():
        ratio = found[PLAIN][0] / of_papers
        print(f"{name:44} {len(rows) / of_papers:9,.1f} {1000 * of_query:9.1f} {ratio:27.2f}x")
    same = (ways["MiniLM, float32"][0]() * ways[PLAIN][0]().numpy()).sum(axis=1)
    near = (ways["MiniLM, float32"][0]() * ways["MiniLM, bfloat16"][0]()).sum(axis=1)
    print(
        f"cosine of float32 with the plain loop at least {same.min():.6f}, "
        f"with bfloat16 at least {near.min():.5f}"
    )


def short(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


if __name__ == "__main__":
    main()
