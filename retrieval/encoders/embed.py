"""Encode all papers of a corpus: citerec data embed data=... encoder=specter2 output=FOLDER."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from hydra.utils import instantiate

from citerec.base.configuration import composed_command
from citerec.datasets.corpus import Corpus
from citerec.retrieval.settings import ArticleConfig

if TYPE_CHECKING:
    from citerec.retrieval.encoders.embeddings import Embeddings


def embed(
    data: Callable[[], Corpus],
    encoder: ArticleConfig,
    output: str | Path,
    arithmetic: str,
    encoding: str,
    shard: int,
    seed: int,
) -> Embeddings:
    """Write the missing vectors of all candidates of a corpus to a folder.

    seed: seed of the data, which its configuration refers to.
    Raises InputError for invalid data, encoders or folders (retrieval.encoders.embeddings).
    """
    from citerec.retrieval.encoders.article import (
        article_retriever,  # imports torch, after the options were checked
    )

    retriever = article_retriever(encoder, arithmetic, embeddings_dir=output, shard=shard)
    retriever.set_encoding(encoding)
    corpus = data()
    retriever.prepare(corpus)
    return retriever.embed(corpus, np.flatnonzero(corpus.is_candidate))


main = composed_command("embed", lambda config: instantiate(config).summary(config.output))
