"""Aspire: papers and queries as several sentence vectors each, compared by their best pair.

Mysore et al. 2022, Multi-Vector Models with Textual Guidance for Fine-Grained Scientific Document Similarity:
contextual sentence vectors, and the smallest Euclidean distance between two of them (tsAspire).

Article encoders: transformers that turn a whole text into one vector.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from datasets.columns import Ragged, offsets_of
from datasets.corpus import Corpus
from datasets.errors import InputError
from datasets.files import written_folder
from retrieval.base import Ranking, Retriever, nothing, ordered
from retrieval.dense import DenseRetriever, ProfileConfig
from retrieval.embeddings import SHARD, Advance, Embeddings, Place, Vectors, Work, embedded
from retrieval.encoder import (
    ABOUT,
    SETTINGS,
    ArticleConfig,
    ArticleReader,
    Texts,
    check_reading,
    load_pretrained,
    saved_config,
)
from retrieval.index import Halves, IndexConfig, MappedIndex, PaperIndex, load_index, on_device
from retrieval.vectors import Remembered, chunks, encode, encode_queries, precision, rounded, weights_hash

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerFast


class ArticleEncoder(nn.Module):
    """Texts to vectors [B, D], compared by cosine.

    Texts are encoded in order of length, in chunks of at most `chunk_tokens` subwords: little is padded.
    `precision` is that of the matrix products; weights of another precision are converted as they are used.
    """

    def __init__(
        self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerFast, config: ArticleConfig
    ) -> None:
        super().__init__()
        self.model, self.tokenizer, self.config = model, tokenizer, config
        self.precision = torch.float32
        self.chunk_tokens = 4096

    @classmethod
    def pretrained(cls, config: ArticleConfig) -> ArticleEncoder:
        """The encoder that a configuration names; InputError if it cannot be had (retrieval.encoder), or lies
        in a folder that `save` wrote for another reading of texts.
        """
        check_reading(config)
        return cls(*load_pretrained(config), config)

    @property
    def dim(self) -> int:
        """D"""
        return int(self.model.config.hidden_size)

    def encode(self, texts: Texts, advance: Advance | None = None) -> Tensor:
        """B texts -> [B, D] float32 (not normalised); an empty text gets zeros. With aspire pooling, [S, D]:
        a vector for each sentence. advance: is told what shares of the work are done.
        """
        if texts.sentences is not None:
            return self._sentences(texts, advance)
        parts, rows = [], []
        for chosen, ids, there in self._grids(texts, advance):
            hidden = self._hidden(ids, there)
            if self.config.pooling == "cls":
                parts.append(hidden[:, 0].float().clone())  # a view would hold the whole of it
            elif there is None:
                parts.append(hidden.mean(1, dtype=torch.float32))
            else:
                weights = there[:, None].float() / there.sum(1)[:, None, None]
                parts.append((weights @ hidden.float())[:, 0])
            rows.append(chosen)
        out = self._zeros(len(texts))
        if not parts:
            return out
        return out.index_copy(0, self._tensor(np.concatenate(rows)), torch.cat(parts))

    def _sentences(self, texts: Texts, advance: Advance | None) -> Tensor:
        assert texts.sentences is not None and texts.owners is not None
        sums = self._zeros(len(texts.owners))
        sentences = Ragged(texts.sentences, texts.tokens.offsets)
        for chosen, ids, there in self._grids(texts, advance):
            hidden = self._hidden(ids, there)
            flat = hidden.flatten(0, 1) if there is None else hidden[there]
            number = sentences.take(chosen).values
            within = number >= 0
            sums = sums.index_add(0, self._tensor(number[within]), flat[self._tensor(within)].float())
        counts = np.bincount(texts.sentences[texts.sentences >= 0], minlength=len(sums))
        return sums / self._tensor(counts)[:, None]

    def _grids(
        self, texts: Texts, advance: Advance | None
    ) -> Iterator[tuple[NDArray[np.int64], Tensor, Tensor | None]]:
        """Rows [n] of texts, their subwords [n, L], and where there are any [n, L] (None: everywhere)."""
        lengths = texts.tokens.lengths
        order = np.argsort(-lengths, kind="stable")[: np.count_nonzero(lengths)]
        for part in chunks(lengths[order], self.chunk_tokens):
            rows = order[part]
            taken = texts.tokens.take(rows)
            width = int(taken.lengths[0])
            if taken.lengths[-1] == width:
                yield rows, self._tensor(taken.values.reshape(-1, width).astype(np.int64)), None
            else:
                there = np.arange(min(rounded(width), self.config.max_tokens)) < taken.lengths[:, None]
                ids = np.zeros(there.shape, np.int64)
                ids[there] = taken.values
                yield rows, self._tensor(ids), self._tensor(there)
            if advance is not None:
                advance(len(taken.values) / len(texts.tokens.values))

    def _hidden(self, ids: Tensor, there: Tensor | None) -> Tensor:
        """[n, L] -> [n, L, D], of the last layer or the mean of all."""
        every = self.config.layers == "all"
        mask = None if there is None else there.long()
        weights = next(self.model.parameters())
        with torch.autocast(weights.device.type, self.precision, enabled=self.precision != weights.dtype):
            found = self.model(input_ids=ids, attention_mask=mask, output_hidden_states=every)
        if not every:
            return found.last_hidden_state
        return torch.stack(found.hidden_states).mean(0, dtype=torch.float32)

    def _zeros(self, rows: int) -> Tensor:
        return torch.zeros(rows, self.dim, device=self.model.device)

    def _tensor(self, array: NDArray[Any]) -> Tensor:
        return torch.from_numpy(array).to(self.model.device)

    def frozen(self, arithmetic: str) -> ArticleEncoder:
        """This encoder with weights of a precision (auto, float32 or bfloat16), for encoding only."""
        self.precision = precision(arithmetic)
        self._weights = weights_hash(self)
        device = "cuda" if torch.cuda.is_available() else "cpu"
        self.eval().requires_grad_(False).to(device, self.precision)
        return self

    def fingerprint(self) -> dict[str, Any]:
        """What the vectors of a frozen encoder depend on beside the texts, as plain values."""
        return {"weights": self._weights, "arithmetic": str(self.precision), **self.config.reading()}

    def of_papers(self) -> dict[str, Any]:
        """The same for papers: how queries are read is nothing to them."""
        return {key: value for key, value in self.fingerprint().items() if key not in ("query", "markers")}

    def save(self, folder: str | Path, about: Mapping[str, Any] | None = None) -> None:
        """Write the model in the format of Hugging Face, and how it reads texts.

        The folder is whole or what it was before. about: plain values that say how the encoder came to be.
        Raises InputError if the folder holds something else than such a model.
        """
        folder = Path(folder)
        if folder.exists() and not (folder / SETTINGS).is_file() and any(folder.iterdir()):
            raise InputError(f"{folder}: there is something else than an encoder; name another folder")
        with written_folder(folder) as part:
            self.model.save_pretrained(part)
            self.tokenizer.save_pretrained(part)
            settings = {key: value for key, value in asdict(self.config).items() if key != "path"}
            for name, values in ((SETTINGS, settings), (ABOUT, about)):
                if values is not None:
                    (part / name).write_text(json.dumps(values, indent=1) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, folder: str | Path) -> ArticleEncoder:
        """An encoder that `save` wrote, in evaluation mode in float32; InputError if it is anything else."""
        config = saved_config(Path(folder))
        if config is None:
            raise InputError(f"{folder}: no encoder that was trained here (no {SETTINGS} in it)")
        return cls.pretrained(config)


class ArticleRetriever(DenseRetriever):
    """Nearest papers to a context by the cosine of an article encoder's vectors."""

    name = "article"
    gives_vectors = True

    def __init__(
        self,
        encoder: ArticleConfig | ArticleEncoder,
        arithmetic: str = "auto",
        index: IndexConfig | None = None,
        profile: ProfileConfig | None = None,
        embeddings_dir: str | Path | None = None,
        shard: int = SHARD,
    ) -> None:
        """encoder: which one (conf/encoder), or one that is there and is frozen.

        arithmetic: auto, float32 or bfloat16. embeddings_dir: where the papers' vectors are or are to be,
        `shard` of them a file (retrieval.embeddings); None: not kept. InputError if there is no encoder.
        """
        super().__init__(index, profile)
        precision(arithmetic)  # before a model is loaded
        self.place = Place(embeddings_dir, shard)
        if isinstance(encoder, ArticleConfig):
            encoder = ArticleEncoder.pretrained(encoder)
        self.encoder = encoder.frozen(arithmetic)

    def fingerprint(self) -> dict[str, Any]:
        return self.encoder.fingerprint()

    def prepare(self, corpus: Corpus) -> None:
        self._reader = ArticleReader(corpus, self.encoder.tokenizer, self.encoder.config)

    def encode_papers(self, rows: NDArray[np.int64]) -> NDArray[np.float32]:
        read, dim = self._reader.papers, self.encoder.dim
        return encode(self.encoder.encode, read, rows, dim, "papers", self.place.shard)

    def encode_queries(self, contexts: NDArray[np.int64]) -> NDArray[np.float32]:
        return encode_queries(self.encoder.encode, self._reader, contexts, self.encoder.dim)

    def embed(self, corpus: Corpus, rows: NDArray[np.int64]) -> Embeddings:
        """Vectors of papers, made where they are not there; the retriever is prepared for the corpus."""
        work = Work(corpus, rows, self.encoder.of_papers(), self.encoder.dim, self._encoded)
        if self.encoding == "ray":
            from retrieval import dense as over_ray

            work = replace(work, spread=partial(over_ray.encoded, self, rows))
        return embedded(work, self.place)

    def raw_vectors(self, corpus: Corpus, rows: NDArray[np.int64]) -> Halves:
        encoder, reader = self.encoder, ArticleReader(corpus, self.encoder.tokenizer, self.encoder.config)

        def encode(part: NDArray[np.int64], advance: Advance) -> Vectors:
            with torch.inference_mode():
                return encoder.encode(reader.papers(part), advance).float().cpu().numpy(), None

        about = {**encoder.of_papers(), "normalisation": "none"}
        return embedded(Work(corpus, rows, about, encoder.dim, encode, dtype="float32"), Place()).vectors

    def paper_vectors(self, corpus: Corpus, rows: NDArray[np.int64]) -> Halves:
        found = self.embed(corpus, rows)
        self.reused = found.encoded < len(rows)
        return found.vectors

    def _encoded(self, rows: NDArray[np.int64], advance: Advance) -> tuple[NDArray[np.float32], None]:
        with torch.inference_mode():
            found = self.encoder.encode(self._reader.papers(rows), advance)
            return F.normalize(found.float(), dim=1).cpu().numpy(), None


PAIRS = 1 << 22
"""Pairs of sentences that are ranked at a time."""


class SentenceRetriever(Retriever):
    """Scores a paper by minus the smallest distance of one of its sentences to one of the query's.

    The k best papers are exact: ever more sentences are fetched, until no other paper can be among them.
    """

    name = "article"

    def __init__(
        self,
        encoder: ArticleConfig | ArticleEncoder,
        arithmetic: str = "auto",
        index: IndexConfig | None = None,
        embeddings_dir: str | Path | None = None,
        shard: int = SHARD,
    ) -> None:
        """As for ArticleRetriever; the encoder has aspire pooling. Raises InputError for an inexact index."""
        super().__init__()
        self.place = Place(embeddings_dir, shard)
        self._remembered: Remembered | None = None
        self.index_config = index or IndexConfig()
        if self.index_config.kind != "exact":
            raise InputError("sentences (encoder.pooling=aspire) are searched exactly: set index=exact")
        precision(arithmetic)  # before a model is loaded
        if isinstance(encoder, ArticleConfig):
            encoder = ArticleEncoder.pretrained(encoder)
        self.encoder = encoder.frozen(arithmetic)

    def settings(self) -> dict[str, Any]:
        return self.encoder.fingerprint()

    @property
    def index_bytes(self) -> int:
        return self._sentences.nbytes + int(self._papers.nbytes)

    def remember_queries(self) -> None:
        """Keep the vectors of queries from now on, until another corpus is indexed."""
        self._remembered = Remembered()

    def prepare(self, corpus: Corpus) -> None:
        """Get ready to read queries and papers of a corpus."""
        self._remembered = None
        self._reader = ArticleReader(corpus, self.encoder.tokenizer, self.encoder.config)

    def embed(self, corpus: Corpus, rows: NDArray[np.int64]) -> Embeddings:
        """Sentence vectors of papers, made where they are not there; for a corpus that is prepared."""
        encoder = self.encoder
        work = Work(corpus, rows, encoder.of_papers(), encoder.dim, self._encoded, sentences=True)
        return embedded(work, self.place)

    def _encoded(
        self, rows: NDArray[np.int64], advance: Advance
    ) -> tuple[NDArray[np.float32], NDArray[np.int32]]:
        texts = self._reader.papers(rows)
        with torch.inference_mode():
            return self.encoder.encode(texts, advance).cpu().numpy(), _by_text(texts).lengths.astype(np.int32)

    def _index(self, corpus: Corpus) -> None:
        self.prepare(corpus)
        rows = np.flatnonzero(corpus.is_candidate)
        found = self.embed(corpus, rows)
        self.reused = found.encoded < len(rows)
        self._papers = np.repeat(rows.astype(np.int32), np.diff(found.offsets))
        # The product of (v, -|v|^2 / 2) and (q, 1) falls with the distance of v and q: q.v - |v|^2 / 2.
        norms = [np.square(block).sum(axis=1) for block in found.vectors.blocks()]
        last = (np.concatenate([np.empty(0, np.float32), *norms]) / -2).astype(np.float32)
        self._sentences: PaperIndex = on_device(self.index_config, MappedIndex(found.vectors, last))

    def _save(self, folder: Path) -> None:
        self._sentences.save(folder)
        np.save(folder / "papers.npy", self._papers)

    def _load(self, folder: Path, corpus: Corpus) -> None:
        self.prepare(corpus)
        self._sentences = load_index(self.index_config, folder)
        self._papers = np.load(folder / "papers.npy", allow_pickle=False)

    def _search(self, contexts: NDArray[np.int64], k: int, allowed: NDArray[np.bool_] | None) -> Ranking:
        may = None if allowed is None else allowed[self._papers]
        papers, scores = nothing(len(contexts), k)
        of = (
            self._queries(contexts)
            if self._remembered is None
            else self._remembered.of(contexts, self._queries)
        )
        vectors = np.concatenate([*of, np.empty((0, self.encoder.dim), np.float32)])
        sentences = Ragged(
            np.arange(len(vectors), dtype=np.int32), offsets_of(np.array([len(part) for part in of]))
        )
        open_queries, depth = np.flatnonzero(sentences.lengths), 2 * k
        most = len(self._papers) if may is None else int(np.count_nonzero(may))
        while len(open_queries) and most:
            depth = min(depth, most)
            unsure = []
            step = max(1, PAIRS // (depth * int(sentences.lengths.max())))
            for start in range(0, len(open_queries), step):
                some = open_queries[start : start + step]
                found, sure = self._best(vectors, sentences.take(some), k, depth, may)
                sure |= depth == most
                papers[some[sure]], scores[some[sure]] = found.papers[sure], found.scores[sure]
                unsure.append(some[~sure])
            open_queries, depth = np.concatenate(unsure), 2 * depth
        return Ranking(papers, scores)

    def _queries(self, contexts: NDArray[np.int64]) -> list[NDArray[np.float32]]:
        """The sentences of each context [s, D]."""
        texts = self._reader.queries(contexts)
        with torch.inference_mode():
            vectors = self.encoder.encode(texts).cpu().numpy()
        return np.split(vectors, _by_text(texts).offsets[1:-1])

    def _best(
        self,
        vectors: NDArray[np.float32],
        sentences: Ragged,
        k: int,
        depth: int,
        may: NDArray[np.bool_] | None,
    ) -> tuple[Ranking, NDArray[np.bool_]]:
        """The k best papers by the `depth` nearest sentences to each of the queries' [q, k], and whether no
        other paper can be among them [q].
        """
        asked = vectors[sentences.values]
        ones = np.ones((len(asked), 1), np.float32)
        near = self._sentences.search(np.concatenate([asked, ones], axis=1), depth, may)
        squares = np.square(asked).sum(axis=1, keepdims=True) - 2 * near.scores
        scores = -np.sqrt(np.maximum(squares, 0))
        # All sentences of a query side by side, [q, the most sentences of one, depth].
        shape = (len(sentences), int(sentences.lengths.max()), depth)
        papers, values = np.full(shape, -1, np.int64), np.full(shape, -np.inf, np.float32)
        query = np.repeat(np.arange(len(sentences)), sentences.lengths)
        place = np.arange(len(query)) - sentences.offsets[query]
        papers[query, place] = np.where(near.papers >= 0, self._papers[near.papers], -1)
        values[query, place] = scores
        # A paper that was not found is at most as near as the last sentence found for any of the query's.
        bound = values[:, :, -1].max(axis=1)
        flat = papers.reshape(len(sentences), -1)
        by_score = ordered(flat, values.reshape(len(sentences), -1), flat.shape[1])
        best = ordered(by_score.papers, by_score.scores, k, drop=_again(by_score.papers))
        return best, best.scores[:, -1] > bound


def article_retriever(
    encoder: ArticleConfig,
    arithmetic: str = "auto",
    index: IndexConfig | None = None,
    profile: ProfileConfig | None = None,
    embeddings_dir: str | Path | None = None,
    shard: int = SHARD,
) -> ArticleRetriever | SentenceRetriever:
    """The retriever for an encoder's pooling, as conf/retriever/article.yaml describes it.

    Raises InputError if the encoder cannot be had, and for aspire pooling with an index that is not exact or
    with context profiles, which are for papers of one vector.
    """
    if encoder.pooling != "aspire":
        return ArticleRetriever(encoder, arithmetic, index, profile, embeddings_dir, shard)
    if profile is not None and profile.weight != 0:
        raise InputError("profile: none for sentences (encoder.pooling=aspire); set profile=none")
    return SentenceRetriever(encoder, arithmetic, index, embeddings_dir, shard)


def _by_text(texts: Texts) -> Ragged:
    """The sentences of each text."""
    assert texts.owners is not None, "an encoder without aspire pooling"
    counts = np.bincount(texts.owners, minlength=len(texts))
    return Ragged(np.arange(len(texts.owners), dtype=np.int32), offsets_of(counts))


def _again(papers: NDArray[np.int32]) -> NDArray[np.bool_]:
    """Places [q, n] of papers that stand further left in the same row."""
    order = np.argsort(papers, axis=1, kind="stable")
    in_order = np.take_along_axis(papers, order, axis=1)
    again = np.zeros(papers.shape, np.bool_)
    np.put_along_axis(again, order[:, 1:], in_order[:, 1:] == in_order[:, :-1], axis=1)
    return again
