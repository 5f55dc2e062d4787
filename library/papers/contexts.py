"""Where papers of a library are cited: in a data set, or in the user's own drafts and earlier papers, in any
format that `citerec data build` reads.

Papers are matched by identity, since ids in the files may differ. A citing paper that is not in the library
is marked as outside. Contexts of val and test are reserved for evaluation.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict
from hashlib import blake2b
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from numpy.typing import NDArray

from citerec.base.errors import InputError
from citerec.base.files import existing_file, expand_user, real_path
from citerec.datasets.building.collection import BuildReport, SkippedRecords, write_corpus
from citerec.datasets.building.contexts import ContextRules
from citerec.datasets.building.readers import SourceFile, find_files, read_documents
from citerec.datasets.files.source_files import find_files as find_data
from citerec.datasets.files.source_files import read_contexts, read_queries, reject_bad
from citerec.datasets.records import TRAIN, ContextRecord, QueryRecord
from citerec.datasets.splitting import RandomSplitting
from citerec.formats.drafts.inputs import record_files
from citerec.formats.drafts.languages import language_of
from citerec.library.papers.folder import Manifest, ReadFile
from citerec.library.papers.merging import Identities
from citerec.library.sources.readers import read_source

log = logging.getLogger(__name__)

DATA_SET = ("papers.json", "contexts.json", f"{TRAIN}.json")
CORPUS = ("papers.json.gz", "contexts.json.gz", "train.json")
"""Files of the data set that is made from drafts."""


def context_files(name: str) -> list[Path]:
    """Return papers.json, contexts.json and train.json of a folder, or the drafts of a file or folder.

    Raises InputError if there are none.
    """
    path = expand_user(name)
    if not path.exists():
        raise InputError(
            f"contexts={name}: no such file or folder; give a draft (.tex, .md), a folder of drafts, or a "
            "folder with papers.json, contexts.json and train.json"
        )
    if path.is_file() or not [*path.glob("papers.json*"), *path.glob("contexts.json*")]:
        try:
            return [real_path(file.path) for file in find_files(name)]
        except InputError as error:
            raise InputError(str(error).replace("source: ", "contexts=", 1)) from None
    if lost := [file for file in DATA_SET if existing_file(path / file) is None]:
        raise InputError(
            f"contexts={name}: has no {' and no '.join(lost)}; a data set has {', '.join(DATA_SET)}"
        )
    return [real_path(file) for file in find_data(path, None, [TRAIN]).values()]


def describe_contexts(files: Iterable[Path]) -> list[ReadFile]:
    """Describe files of contexts, each together with the files that it includes."""
    described = []
    for file in files:
        parts = [ReadFile.of(part) for part in _draft_parts(file)]
        digest = blake2b("".join(part.hash for part in parts).encode(), digest_size=16).hexdigest()
        described.append(
            ReadFile(str(file), sum(part.size for part in parts), digest if parts[1:] else parts[0].hash)
        )
    return described


def current_contexts(manifest: Manifest) -> list[ReadFile]:
    """Describe a library's files of contexts as they are now."""
    return describe_contexts(Path(file.path) for file in manifest.contexts)


def _draft_parts(file: Path) -> list[Path]:
    """Return the files of a draft: itself, inputs or chapters, and bibliographies."""
    parts = [file]
    if language_of(file.suffix):
        with record_files() as read, suppress(InputError):  # building reports it
            for document in read_documents(SourceFile(file, ""), lambda _: None):
                document.entries()
        parts += [real_path(part) for part in read if real_path(part) != real_path(file)]
    return list(dict.fromkeys(parts))


def find_contexts(
    files: Sequence[Path], identities: NDArray[np.uint64], ids: Sequence[str]
) -> tuple[Iterable[ContextRecord], Iterable[QueryRecord]]:
    """Return the training contexts that cite a library's papers, and the cited papers per context.

    files: of `context_files`. identities [P, F], ids [P]: of the papers.
    """
    if files[0].name.startswith(DATA_SET[0]):
        return _find_in_data(files, identities, ids)
    with TemporaryDirectory() as place:
        _write_data(files, Path(place))
        made = [Path(place) / name for name in CORPUS]
        contexts, queries = _find_in_data(made, identities, ids)
        return list(contexts), queries  # the files are removed


def _find_in_data(
    files: Sequence[Path], identities: NDArray[np.uint64], ids: Sequence[str]
) -> tuple[Iterator[ContextRecord], list[QueryRecord]]:
    papers, contexts, train = files
    ids_here = {id: ids[row] for id, row in _library_rows(papers, identities).items()}
    cited = {
        query.context_id: dict.fromkeys(ids_here[paper] for paper in query.positive_ids if paper in ids_here)
        for query in reject_bad(read_queries(train))
    }
    queries = [QueryRecord(context, list(papers)) for context, papers in cited.items() if papers]

    def citing_contexts() -> Iterator[ContextRecord]:
        for context in reject_bad(read_contexts(contexts)):
            if cited.get(context.id):
                citing = ids_here.get(context.citing_id, context.citing_id)
                outside = context.citing_id not in ids_here
                yield context._replace(citing_id=citing, cited_id=None, outside=outside)

    return citing_contexts(), queries


def _library_rows(papers: Path, identities: NDArray[np.uint64]) -> dict[str, int]:
    """Map ids in a file to library rows, for the papers that the library contains."""
    combined, ids = Identities(identities), []
    for paper in read_source(papers, lambda _: None):
        combined.add(paper)
        ids.append(paper.id)
    leaders = combined.leaders()[len(identities) :].tolist()
    return {id: row for id, row in zip(ids, leaders, strict=True) if row < len(identities)}


def _write_data(files: Sequence[Path], folder: Path) -> None:
    """Write the contexts of drafts, whose bibliographies need titles only.

    Unreadable drafts are logged; InputError if no context is left.
    """
    rules, skipped = ContextRules(candidates="title"), SkippedRecords(max_share=1)
    report = BuildReport(asdict(rules), skipped=skipped)
    drafts = [SourceFile(file, "_".join((str(n), *file.stem.split()))) for n, file in enumerate(files)]
    try:
        write_corpus(folder, drafts, RandomSplitting(1, 0, 0, seed=0), rules, report)
    except InputError as error:
        raise InputError(str(error).replace("source: ", f"contexts={files[0]}: ", 1)) from None
    for example in skipped.examples:
        log.warning("skipped %s", example)
