"""How encoders alone rank the citations of drafts over the bibliographies of their authors.

    citerec data drafts list=library/builtin/drafts-unseen.yaml output=DRAFTS
    python reproduce/encoders.py DRAFTS minilm outputs/encoder/biencoder ...

Prints R@10 / MRR, with abstracts and without, as means over the drafts of part `check` with at most MOST
papers: 20 citations of each, asked with the passage alone. `minilm` is all-MiniLM-L6-v2 as it is.
"""

import logging
import sys
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch
from torch.nn.functional import normalize

from citerec.base.errors import InputError
from citerec.datasets.published.drafts import LIST, read_list
from citerec.library.benchmark.collection import MaskedDraft, find_drafts, quiet, read_papers, sample_queries
from citerec.library.papers.library import Library
from citerec.retrieval.arrays import Floats
from citerec.retrieval.encoders.article_text import ArticleReader
from citerec.retrieval.encoders.encoder import ArticleEncoder
from citerec.retrieval.queries import Queries
from citerec.retrieval.settings import MINILM, ArticleConfig

CHECK, CITATIONS, MOST = "check", 20, 320
PLAIN = ArticleConfig("minilm", hub=MINILM.hub, max_tokens=184, layout="lengths", markers="mask")


def measure(masked: MaskedDraft, encoders: list[ArticleEncoder]) -> list[Floats] | None:
    """R@10 and MRR of encoders for a draft, [4] each; None if its bibliography is too large."""
    with TemporaryDirectory() as place:
        read_papers(masked.bibs, Path(place) / "library")
        library = Library.open(Path(place) / "library")
        corpus, rows = library.corpus, np.flatnonzero(library.corpus.is_candidate)
        if len(rows) > MOST:
            return None
        asked, cited, beside = sample_queries(masked, library, CITATIONS)
        queries, measures = Queries.from_list(corpus, asked), []
        for encoder in encoders:
            lengths = replace(encoder.config.lengths, citing_title=0)
            reader = ArticleReader(corpus, encoder.tokenizer, replace(encoder.config, lengths=lengths))
            with torch.inference_mode():
                vectors = normalize(encoder.encode(reader.queries(queries)), dim=1)
                ranks = []
                for abstracts in (None, np.zeros(len(rows), bool)):
                    papers = normalize(encoder.encode(reader.papers(rows, abstracts)), dim=1)
                    for scores, own, others in zip((vectors @ papers.T).numpy(), cited, beside, strict=True):
                        scores[np.isin(rows, [*(others - {*own})])] = -np.inf
                        best = scores[np.isin(rows, own)].max()
                        ranks.append(1 + np.count_nonzero(scores > best))
            halves = np.array(ranks).reshape(2, -1)
            measures.append(np.stack([np.mean(halves <= 10, axis=1), np.mean(1 / halves, axis=1)], 1).ravel())
        return measures


def main(drafts: str, *folders: str) -> None:
    """Print a row for each encoder."""
    encoders = [
        ArticleEncoder.pretrained(PLAIN) if folder == "minilm" else ArticleEncoder.load(folder)
        for folder in folders
    ]
    encoders = [encoder.freeze("float32") for encoder in encoders]
    rows = []
    for listed in read_list(Path(drafts, LIST)):
        if listed.part == CHECK and Path(drafts, listed.name).is_dir():
            with quiet(logging.ERROR):
                [masked], _ = find_drafts(Path(drafts), names=[listed.name])
                row = measure(masked, encoders)
            rows += [] if row is None else [row]
    for folder, means in zip(folders, np.mean(rows, axis=0).tolist(), strict=True):
        print(f"{folder}, {len(rows)} drafts: {means[0]:.3f} / {means[1]:.3f}, titles only", end=" ")
        print(f"{means[2]:.3f} / {means[3]:.3f}")


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except InputError as error:
        raise SystemExit(f"error: {error}") from None
