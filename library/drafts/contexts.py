"""Contexts from the user's own drafts and earlier papers, in any format that `citerec data build` reads."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from numpy.typing import NDArray

from citerec.base.errors import InputError
from citerec.datasets.fulltext.collection import BuildReport, SkippedRecords, write_corpus
from citerec.datasets.fulltext.contexts import ContextRules
from citerec.datasets.fulltext.readers import SourceFile, find_files, read_documents
from citerec.datasets.languages.inputs import record_files
from citerec.datasets.languages.known import language_of
from citerec.datasets.records import ContextRecord, QueryRecord
from citerec.datasets.splitting import RandomSplitting
from citerec.library.library import ContextFinder

log = logging.getLogger(__name__)

CORPUS = ("papers.json.gz", "contexts.json.gz", "train.json")


def draft_files(name: str) -> list[Path]:
    """Return the drafts that a file or folder contains. Raises InputError if there is none."""
    try:
        return [file.path.resolve() for file in find_files(name)]
    except InputError as error:
        raise InputError(str(error).replace("source: ", "contexts=", 1)) from None


def draft_parts(file: Path) -> list[Path]:
    """Return the files of a draft: itself, inputs or chapters, and bibliographies."""
    parts = [file]
    if language_of(file.suffix):
        with record_files() as read, suppress(InputError):  # building reports it
            for document in read_documents(SourceFile(file, ""), lambda _: None):
                document.entries()
        parts += [part.resolve() for part in read if part.resolve() != file.resolve()]
    return list(dict.fromkeys(parts))


def draft_context_finder(
    files: Sequence[Path], corpus_finder: Callable[[list[Path]], ContextFinder]
) -> ContextFinder:
    """Return a function that finds the contexts in drafts that cite a library's papers.

    The bibliographies of the drafts need titles only. corpus_finder: makes the same function from CORPUS.
    """

    def find(identities: NDArray[np.uint64], ids: list[str]) -> tuple[list[ContextRecord], list[QueryRecord]]:
        with TemporaryDirectory() as place:
            _write_corpus(files, Path(place))
            contexts, queries = corpus_finder([Path(place) / name for name in CORPUS])(identities, ids)
            return list(contexts), list(queries)  # the files are removed

    return find


def _write_corpus(files: Sequence[Path], folder: Path) -> None:
    """Write the contexts of drafts. Unreadable drafts are logged; InputError if no context is left."""
    rules, skipped = ContextRules(candidates="title"), SkippedRecords(max_share=1)
    report = BuildReport(asdict(rules), skipped=skipped)
    drafts = [SourceFile(file, "_".join((str(n), *file.stem.split()))) for n, file in enumerate(files)]
    try:
        write_corpus(folder, drafts, RandomSplitting(1, 0, 0, seed=0), rules, report)
    except InputError as error:
        raise InputError(str(error).replace("source: ", f"contexts={files[0]}: ", 1)) from None
    for example in skipped.examples:
        log.warning("skipped %s", example)
