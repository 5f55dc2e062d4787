"""Vectors of all papers of a corpus: python -m retrieval.embed data=... encoder=specter2 output=FOLDER."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from hydra.utils import instantiate

from datasets.command import command
from datasets.corpus import Corpus
from retrieval.settings import ArticleConfig

if TYPE_CHECKING:
    from retrieval.embeddings import Embeddings


def embed(
    data: Callable[[], Corpus],
    encoder: ArticleConfig,
    output: str | Path,
    arithmetic: str,
    encoding: str,
    shard: int,
    seed: int,
) -> Embeddings:
    """Write the vectors of all candidates of a corpus to a folder, or those that are missing there.

    seed: of the data, whose configuration refers to it.
    Raises InputError for data, an encoder or a folder that cannot be used (retrieval.embeddings).
    """
    from retrieval.article import article_retriever  # torch, only when the options are known to be right

    retriever = article_retriever(encoder, arithmetic, embeddings_dir=output, shard=shard)
    retriever.encode_with(encoding)
    corpus = data()
    retriever.prepare(corpus)
    return retriever.embed(corpus, np.flatnonzero(corpus.is_candidate))


main = command("embed", lambda config: instantiate(config).summary(config.output))


if __name__ == "__main__":
    main()
