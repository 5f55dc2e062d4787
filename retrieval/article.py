"""Article encoders: transformers that turn a whole text into one vector.

SPECTER (Cohan et al. 2020), SciNCL (Ostendorff et al. 2022), sentence encoders (Reimers and Gurevych 2019).
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

from datasets.atomic import written_folder
from datasets.errors import InputError
from datasets.ragged import Ragged
from datasets.store import Corpus
from retrieval.article_text import ArticleReader, Texts
from retrieval.dense import DenseRetriever
from retrieval.embedder import Advance, Embeddings, Place, Work, embedded
from retrieval.embeddings import SHARD
from retrieval.encode import chunks, encode, encode_queries, precision, rounded, weights_hash
from retrieval.halves import Halves
from retrieval.indexes import IndexConfig
from retrieval.models import ArticleConfig, load_pretrained
from retrieval.profiles import ProfileConfig
from retrieval.saved_encoder import ABOUT, SETTINGS, check_reading, saved_config

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
        """The encoder that a configuration names; InputError if it cannot be had (retrieval.models), or lies
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
            from retrieval import over_ray

            work = replace(work, spread=partial(over_ray.encoded, self, rows))
        return embedded(work, self.place)

    def paper_vectors(self, corpus: Corpus, rows: NDArray[np.int64]) -> Halves:
        found = self.embed(corpus, rows)
        self.reused = found.encoded < len(rows)
        return found.vectors

    def _encoded(self, rows: NDArray[np.int64], advance: Advance) -> tuple[NDArray[np.float32], None]:
        with torch.inference_mode():
            found = self.encoder.encode(self._reader.papers(rows), advance)
            return F.normalize(found.float(), dim=1).cpu().numpy(), None
