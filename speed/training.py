"""Training batches per second, compared with a plain, reference-style implementation.

Batches are those of the reference: 17 queries with 1 cited, 3 prefetched and 1 random paper each, 102
documents. The plain implementation pads every document to 3 x 512 tokens, encodes the citing paper for every
query, runs in float32 and materialises the loss over all (anchor, positive, negative) triples. Prefetched
papers are random here.
"""

from __future__ import annotations

import math
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from citerec.datasets.corpus import Corpus
from citerec.datasets.records import TRAIN
from citerec.hatten.documents import DocumentReader, Documents
from citerec.hatten.encoder import HAttenEncoder, build_encoder
from citerec.hatten.layers import sinusoids
from citerec.hatten.settings import EncoderBatchSettings, EncoderConfig
from citerec.hatten.training.batches import Batch, Batches
from citerec.hatten.training.losses import triplet_loss
from citerec.hatten.training.mining import Pool
from citerec.speed._common import (
    Tasks,
    load_corpus,
    make_parser,
    median_seconds,
    random_vectors,
    setup,
    time_call,
)

QUERIES, PAPERS_EACH = 17, 5


class PlainLayer(nn.Module):
    def __init__(self, dim: int, heads: int, hidden: int, dropout: float) -> None:
        super().__init__()
        self.heads, self.drop = heads, nn.Dropout(dropout)
        self.q, self.k, self.v, self.out = (nn.Linear(dim, dim) for _ in range(4))
        self.up, self.down = nn.Linear(dim, hidden), nn.Linear(hidden, dim)
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.pool_score, self.pool_value, self.pool_out = (nn.Linear(dim, n) for n in (heads, dim, dim))

    def forward(self, x: Tensor, absent: Tensor) -> Tensor:
        """x [n, L, D], absent [n, L] -> [n, D]"""
        n, length, dim = x.shape
        q, k, v = (f(x).view(n, length, self.heads, -1).transpose(1, 2) for f in (self.q, self.k, self.v))
        scores = q @ k.transpose(2, 3) / math.sqrt(dim / self.heads)
        share = self.drop(scores.masked_fill(absent[:, None, None], -1e18).softmax(-1))
        x = self.norm1(x + self.drop(self.out((share @ v).transpose(1, 2).reshape(n, length, dim))))
        x = self.norm2(x + self.drop(self.down(self.drop(torch.relu(self.up(x))))))
        weight = self.pool_score(x).masked_fill(absent[:, :, None], -1e18).softmax(1)
        value = self.pool_value(x).view(n, length, self.heads, -1)
        return self.pool_out(torch.relu((weight[..., None] * value).sum(1).reshape(n, dim)))


class PlainEncoder(nn.Module):
    """A plain two-level encoder over padded arrays."""

    def __init__(self, config: EncoderConfig, table: NDArray[np.float32]) -> None:
        super().__init__()
        sizes = (config.dim, config.heads, config.hidden, config.dropout)
        self.words = nn.Embedding.from_pretrained(torch.from_numpy(table), freeze=True)
        self.types = nn.Embedding(config.paragraph_types, config.dim)
        self.word_level, self.document_level = PlainLayer(*sizes), PlainLayer(*sizes)
        self.positions = sinusoids(config.max_tokens, config.dim)

    def forward(self, ids: Tensor, types: Tensor, absent: Tensor) -> Tensor:
        """ids [B, P, L] (0: padding), types [B, P], absent [B, P] -> [B, D]"""
        documents, paragraphs, length = ids.shape
        x = self.words(ids.view(-1, length)) + self.positions[:length]
        vectors = self.word_level(x, (ids == 0).view(-1, length)).view(documents, paragraphs, -1)
        typed = vectors.masked_fill(absent[..., None], 0.0) + self.types(types)
        encoded: Tensor = self.document_level(typed + self.positions[:paragraphs], absent)
        return encoded


def plain_loss(vectors: Tensor, levels: Tensor, classes: Tensor) -> Tensor:
    """Triplet loss over all [B, B, B] (anchor, positive, negative) triples."""
    unit = F.normalize(vectors, dim=1)
    similarity = unit @ unit.T
    level = torch.where(classes[:, None] == classes[None], levels[None], 4)  # [B, B]
    anchor, positive = (levels == 0)[:, None, None], ((level == 1) | (level == 2))[:, :, None]
    gap = level[:, None, :] - level[:, :, None]
    hinge = similarity[:, None, :] - similarity[:, :, None] + 0.05 * gap.float()
    return (torch.relu(hinge) * (anchor & positive & (gap > 0) & (levels > 0)[None, None])).sum()


def pad(documents: Documents, length: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return ids [B, 3, length], types [B, 3] and absent [B, 3]."""
    ids = np.zeros((len(documents), 3, length), np.int64)
    types, absent = np.full(ids.shape[:2], 10), np.ones(ids.shape[:2], bool)
    for row, column in np.argwhere(documents.index >= 0):
        words = documents.paragraphs[documents.index[row, column]]
        ids[row, column, : len(words)] = words
        types[row, column], absent[row, column] = documents.types[row, column], False
    return torch.from_numpy(ids), torch.from_numpy(types), torch.from_numpy(absent)


def plain_batch(reader: DocumentReader, contexts: NDArray[np.int64]) -> list[Tensor]:
    """Return token ids, types, absent, levels and classes of queries followed by their papers."""
    queries, rng = len(contexts), np.random.default_rng(0)
    papers = rng.choice(np.flatnonzero(reader.corpus.is_candidate), queries * PAPERS_EACH)
    parts = [pad(found, reader.max_tokens) for found in (reader.queries(contexts), reader.papers(papers))]
    levels = torch.tensor([0] * queries + [1, 3, 3, 3, 3] * queries)
    classes = torch.cat([torch.arange(queries), torch.arange(queries).repeat_interleave(PAPERS_EACH)])
    return [*(torch.cat(pair) for pair in zip(*parts, strict=True)), levels, classes]


def build_batches(corpus: Corpus, reader: DocumentReader, steps: int) -> list[Batch]:
    split, rng = corpus.split(TRAIN), np.random.default_rng(0)
    prefetched = rng.choice(np.flatnonzero(corpus.is_candidate).astype(np.int32), (len(split), 10))
    pool = Pool(np.arange(len(split), dtype=np.int32), prefetched, np.zeros(prefetched.shape, np.bool_))
    config = EncoderBatchSettings(queries=QUERIES, mined=3, random=1, steps_per_round=steps)
    round_batches = Batches(reader, split, pool, config, seed=0, round=0)
    return [round_batches[step] for step in range(steps)]


def train(encoder: HAttenEncoder, optimizer: torch.optim.Optimizer, batches: list[Batch]) -> None:
    for batch in batches:
        queries = F.normalize(encoder.encode(batch.queries), dim=1)
        papers = F.normalize(torch.cat([encoder.encode(batch.cited), encoder.encode(batch.others)]), dim=1)
        train_step(triplet_loss(queries @ papers.T, torch.from_numpy(batch.levels)), optimizer)


def train_step(loss: Tensor, optimizer: torch.optim.Optimizer) -> None:
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


def adam(model: nn.Module) -> torch.optim.Optimizer:
    weights = [weight for weight in model.parameters() if weight.requires_grad]
    return torch.optim.Adam(weights, lr=1e-4, weight_decay=1e-5)


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--steps", type=int, default=4, help="batches in one measurement")
    parser.add_argument("--plain-queries", type=int, default=4, help="queries in the plain batch")
    parser.add_argument("--vectors", choices=("markers", "all", "none"), default="markers", help="trained")
    args = parser.parse_args()
    setup(args)
    corpus = load_corpus(args)
    vocabulary, table = random_vectors(corpus)
    config = EncoderConfig(trainable_vectors=args.vectors)
    reader = DocumentReader(corpus, vocabulary, config.max_tokens)
    torch.manual_seed(0)
    batches = build_batches(corpus, reader, args.steps)
    tasks: Tasks = {}
    for precision in (torch.bfloat16, torch.float32):
        encoder = build_encoder(config, table, vocabulary).train()
        encoder.precision = precision
        tasks[str(precision).removeprefix("torch.")] = partial(train, encoder, adam(encoder), batches)
    times = median_seconds(args, tasks)

    *arrays, levels, classes = plain_batch(reader, corpus.split(TRAIN).contexts[: args.plain_queries])
    model = PlainEncoder(config, table)
    optimizer = adam(model)
    plain = time_call(args, lambda: train_step(plain_loss(model(*arrays), levels, classes), optimizer))
    whole = plain * QUERIES / args.plain_queries
    print(f"plain: {plain:.1f} s for {args.plain_queries} queries, {whole:.1f} s scaled to {QUERIES}")
    words = sum(len(part.paragraphs.values) for b in batches for part in (b.queries, b.cited, b.others))
    for name, time in times.items():
        print(
            f"{name}: {len(batches) / time:.2f} batches/s, {words / time:,.0f} words/s; "
            f"{whole * len(batches) / time:.0f} times the plain implementation"
        )


if __name__ == "__main__":
    main()
