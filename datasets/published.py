"""The published data sets as corpora, for conf/data."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path

from datasets.obtain import obtain
from datasets.prepare import check_split_names, open_corpus
from datasets.releases import RELEASES
from datasets.schema import SPLITS
from datasets.store import Corpus

log = logging.getLogger(__name__)


def open_published(
    name: str,
    dir: str | Path | None = None,
    address: str | None = None,
    papers: str | Path | None = None,
    tokenizer: str = "default",
    cache_dir: str | Path = ".cache",
    candidates: str = "abstract",
    splits: Sequence[str] = SPLITS,
    field: str | None = None,
    on_error: str = "raise",
    max_bad_share: float = 0.01,
    backend: str = "local",
) -> Corpus:
    """`open_corpus` of a published data set, which is downloaded on first use.

    name: its key in RELEASES. dir: where its files belong or were put, by default under `cache_dir`. address:
    where to get them in place of the release's own. The rest is as for open_corpus; all the `splits` must be
    there. Warns when the numbers of papers and contexts are not the published ones.
    """
    check_split_names(splits)
    files = [*([] if papers else ["papers.json"]), "contexts.json", *(f"{split}.json" for split in splits)]
    folder = obtain(name, cache_dir, dir, files, address)
    corpus = open_corpus(
        folder,
        papers,
        tokenizer,
        cache_dir,
        candidates,
        splits,
        name,
        field,
        on_error,
        max_bad_share,
        backend,
    )
    found = {"papers": len(corpus.paper_ids)} | {key: len(split) for key, split in corpus.splits.items()}
    for what, expected in RELEASES[name].counts.items():
        if found.get(what, expected) != expected:
            log.warning("%s: %s has %s, %s as published", name, what, f"{found[what]:,}", f"{expected:,}")
    return corpus
