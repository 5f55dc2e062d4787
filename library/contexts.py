"""Contexts that cite papers of a library, out of a folder in our own format (datasets.source_files)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from datasets.errors import InputError
from datasets.records import ContextRecord, QueryRecord
from datasets.source_files import find_files, read_contexts, read_queries, strict
from library.duplicates import Identities
from library.library import Contexts
from library.sources import read_source

SPLIT = "train"
"""The split whose contexts a library takes up: those of val and test are for evaluation."""


def context_files(folder: str) -> list[Path]:
    """papers.json, contexts.json and train.json of a folder; InputError if one is missing."""
    path = Path(folder).expanduser()
    if not path.is_dir():
        raise InputError(
            f"contexts={folder}: no such folder; it must have papers.json, contexts.json, train.json"
        )
    return [file.resolve() for file in find_files(path, None, [SPLIT]).values()]


def contexts_in(files: list[Path]) -> Contexts:
    """The contexts that cite papers of a library, whichever ids the files have for these.

    A citing paper that is not in the library is outside.
    """

    def find(
        identities: NDArray[np.uint64], ids: list[str]
    ) -> tuple[Iterator[ContextRecord], list[QueryRecord]]:
        papers, contexts, train = files
        rows = _rows(papers, identities)
        queries = []
        for query in strict(read_queries(train)):
            cited = dict.fromkeys(ids[rows[paper]] for paper in query.positive_ids if paper in rows)
            if cited:
                queries.append(QueryRecord(query.context_id, list(cited)))
        wanted = {query.context_id for query in queries}

        def found() -> Iterator[ContextRecord]:
            for context in strict(read_contexts(contexts)):
                if context.id in wanted:
                    row = rows.get(context.citing_id)
                    citing = context.citing_id if row is None else ids[row]
                    yield ContextRecord(context.id, context.text, citing, outside=row is None)

        return found(), queries

    return find


def _rows(papers: Path, identities: NDArray[np.uint64]) -> dict[str, int]:
    """Row in the library of each paper of a file that is there, by its id in the file."""
    both, named = Identities(identities), []
    for paper in read_source(papers, lambda _: None):
        both.add(paper)
        named.append(paper.id)
    leaders = both.leaders()[len(identities) :].tolist()
    return {name: row for name, row in zip(named, leaders, strict=True) if row < len(identities)}
