"""Vectors of all papers of a corpus: python -m retrieval.embed data=... encoder=specter2 output=FOLDER."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import hydra
import numpy as np
from hydra.utils import instantiate
from omegaconf import DictConfig

from datasets.configuration import refuse_missing
from datasets.corpus import Corpus
from datasets.errors import failing_in_one_line, one_line_errors
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


@one_line_errors
@hydra.main(version_base="1.3", config_path=str(Path(__file__).parents[1] / "conf"), config_name="embed")
def main(config: DictConfig) -> None:
    """Compose, encode, print a summary."""
    with failing_in_one_line():
        refuse_missing(config)
        print(instantiate(config).summary(config.output))


if __name__ == "__main__":
    main()
