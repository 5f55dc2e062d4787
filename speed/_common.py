"""Shared helpers of the benchmarks: options, data and timing."""

from __future__ import annotations

import argparse
import logging
import os
import platform
import statistics
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from citerec.base.files import cache_folder
from citerec.datasets.corpus import Corpus
from citerec.datasets.generate import open_demo
from citerec.datasets.prepare import open_corpus

REAL = cache_folder() / "published" / "neurips2025-lcr"
"""Where `citerec data download neurips2025-lcr` builds it."""
Tasks = dict[str, Callable[[], object]]


def make_parser(description: str | None) -> argparse.ArgumentParser:
    import torch  # here and below, since the processes whose memory is measured import this module

    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument("--data", type=Path, default=REAL, help="source folder; the demo corpus when absent")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument(
        "--clock", choices=("wall", "cpu"), default="wall", help="cpu: with --threads 1 on a busy machine"
    )
    parser.add_argument("--repeats", type=int, default=3)
    return parser


def setup(args: argparse.Namespace) -> None:
    """Set the number of threads and describe the machine."""
    import torch

    logging.basicConfig(level=logging.WARNING)
    torch.set_num_threads(args.threads)
    print(
        f"machine: {os.cpu_count()} cores ({platform.machine()}, {torch.backends.cpu.get_cpu_capability()}), "
        f"{args.threads} threads, load {os.getloadavg()[0]:.1f}, {args.clock} clock, "
        f"torch {torch.__version__}"
    )


def load_corpus(args: argparse.Namespace) -> Corpus:
    cache = cache_folder()
    corpus = open_corpus(args.data, cache_dir=cache) if args.data.is_dir() else open_demo(cache_dir=cache)
    print(f"data: {corpus.name}, {len(corpus.paper_ids):,} papers, {len(corpus.context_ids):,} contexts")
    return corpus


def time_call(args: argparse.Namespace, call: Callable[[], object]) -> float:
    """Return the seconds that one call takes."""
    clock = time.perf_counter if args.clock == "wall" else time.process_time
    start = clock()
    call()
    return clock() - start


def median_seconds(args: argparse.Namespace, tasks: Tasks) -> dict[str, float]:
    """Return the median time of each task after a warm-up, interleaved so that all see the same load."""
    times: dict[str, list[float]] = {name: [] for name in tasks}
    for _ in range(args.repeats + 1):
        for name, task in tasks.items():
            times[name].append(time_call(args, task))
    return {name: statistics.median(values[1:]) for name, values in times.items()}


def save_random_bert(folder: Path, words: Iterable[str], **sizes: Any) -> None:
    """Save a BERT with random weights and a tokeniser of these words, in Hugging Face's format.

    sizes: of transformers' BertConfig, without the number of words.
    """
    import torch
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
    from transformers import BertConfig, BertModel, PreTrainedTokenizerFast
    from transformers.utils import logging

    logging.disable_progress_bar()
    letters = [start + letter for letter in "abcdefghijklmnopqrstuvwxyz0123456789" for start in ("", "##")]
    pieces = dict.fromkeys(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words, *letters])
    ids = {piece: row for row, piece in enumerate(pieces)}
    tokenizer = Tokenizer(models.WordPiece(ids, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    ends = [(end, ids[end]) for end in ("[CLS]", "[SEP]")]
    tokenizer.post_processor = processors.TemplateProcessing(
        "[CLS] $A [SEP]", "[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=ends
    )
    special = {f"{kind}_token": f"[{kind.upper()}]" for kind in ("pad", "unk", "cls", "sep", "mask")}
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, **special).save_pretrained(folder)
    config = BertConfig(vocab_size=len(ids), **sizes)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        BertModel(config, add_pooling_layer=False).save_pretrained(folder)
