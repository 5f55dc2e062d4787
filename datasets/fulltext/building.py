"""A corpus out of full texts, in two passes over their files (Gu et al. 2022, section 3).

The first pass reads which papers there are (catalogue), the second cuts the contexts, a full text at a time.
They write as they go, into a folder that takes its name when all is done.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import asdict
from functools import partial
from pathlib import Path

from datasets.atomic import written_folder
from datasets.bad_records import allowed_share
from datasets.errors import InputError
from datasets.fulltext.catalogue import Catalogue
from datasets.fulltext.json_lines import OnRefused
from datasets.fulltext.output import JsonFile
from datasets.fulltext.refused import Refused
from datasets.fulltext.report import Report
from datasets.fulltext.schema import FullText, Record
from datasets.fulltext.selection import Rules, select
from datasets.fulltext.sources import SourceFile, find_files, read
from datasets.fulltext.splitting import Splitting
from datasets.json_stream import OnBytes
from datasets.progress import reading
from datasets.schema import SPLITS

log = logging.getLogger(__name__)


def build_corpus(
    source: str | Sequence[str],
    output: str | Path,
    splitting: Splitting,
    identifier: str | None = None,
    window: int = 200,
    words: str = "cut",
    shortest: int = 50,
    per_pair: int | None = 5,
    seed: int = 0,
    on_error: str = "raise",
    max_bad_share: float = 0.01,
) -> Report:
    """Read `source`; write a corpus in the source format (datasets/source.py) into the new folder `output`.

    source: files, folders and patterns of full texts and of papers' records.
    splitting: gives the split of a citing paper.
    identifier: keep only papers that have an identifier of this kind, as arxiv; None: keep all.
    window: characters on each side of a mask at most. words: at the ends `cut`, or only `whole` ones.
    shortest: characters beside the masks that a context has at least.
    per_pair: contexts of one citing and one cited paper at most, drawn by `seed`; None for all.
    on_error: `raise` an InputError for the first record that cannot be used, or `skip`: leave out and count
    them, up to `max_bad_share` of all.
    Raises InputError for anything else that cannot be used, and if no context is left.
    """
    refused = Refused(allowed_share(on_error, max_bad_share))
    rules = Rules(window, words, shortest, per_pair, seed)
    folder = Path(output).expanduser()
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InputError(f"output: {folder} is there already; remove it or name a new folder")
    if identifier is not None and (not isinstance(identifier, str) or not identifier):
        raise InputError(f"identifier: {identifier!r} is no kind of identifier, as arxiv")
    files = find_files(source)
    settings = {"source": source, "output": str(output), "files": len(files), "identifier": identifier}
    report = Report({**settings, "splitting": splitting.settings, **asdict(rules)}, refused=refused)
    with written_folder(folder) as building:
        with closing(Catalogue(building / "catalogue.sqlite", identifier)) as catalogue:
            texts: dict[SourceFile, None] = {}
            for file, record in _records(files, "papers", refused):
                refused.read += 1
                catalogue.add(record.paper)
                if record.full_text is not None:
                    texts[file] = None
            refused.check()
            report.counts["papers"] = catalogue.finish()
            _write_papers(building, catalogue)
        catalogue.path.unlink()
        _write_contexts(building, list(texts), catalogue, splitting, rules, report)
        refused.check()
        report.write(building)
    return report


def _records(
    files: Sequence[SourceFile], what: str, on_bad: OnRefused
) -> Iterator[tuple[SourceFile, Record]]:
    """The records of all files, with a bar of the bytes read."""
    with reading([file.path for file in files], what) as on_bytes:
        done = 0
        for file in files:
            for record in read(file, partial(_add, on_bytes, done), on_bad):
                yield file, record
            done += file.path.stat().st_size
            on_bytes(done)


def _add(on_bytes: OnBytes, done: int, more: int) -> None:
    on_bytes(done + more)


def _write_papers(folder: Path, catalogue: Catalogue) -> None:
    with JsonFile(folder / "papers.json.gz", keys=True) as file:
        for paper, record in catalogue.papers():
            file.add(record, paper)


def _write_contexts(
    folder: Path,
    files: Sequence[SourceFile],
    catalogue: Catalogue,
    splitting: Splitting,
    rules: Rules,
    report: Report,
) -> None:
    ids = catalogue.ids
    with ExitStack() as stack:
        contexts = stack.enter_context(JsonFile(folder / "contexts.json.gz", keys=True))
        splits = {name: stack.enter_context(JsonFile(folder / f"{name}.json", keys=False)) for name in SPLITS}
        for citing, full_text in _full_texts(files, catalogue, report):
            split = splitting(ids[citing], catalogue.years[citing])
            if split is None:
                report.counts["full texts"]["not in the years or shares of a split"] += 1
                continue
            for cited, number, text in select(full_text, citing, catalogue, rules, report.counts):
                context = f"{ids[citing]}__{ids[cited]}__{number}"
                record = {"masked_text": text, "context_id": context}
                contexts.add(record | {"citing_id": ids[citing], "refid": ids[cited]}, context)
                splits[split].add({"context_id": context, "positive_ids": [ids[cited]]})
                report.counts["splits"][split] += 1
    if not contexts.records:
        raise InputError(f"source: no context is left; {report.reasons()}")
    for name, file in splits.items():
        if not file.records:
            (folder / f"{name}.json").unlink()
            log.warning("no contexts for the split %s: it is left out", name)


def _full_texts(
    files: Sequence[SourceFile], catalogue: Catalogue, report: Report
) -> Iterator[tuple[int, FullText]]:
    """(row of the paper, its full text) of the papers kept, one full text each."""
    counts, refused = report.counts["full texts"], report.refused
    seen = bytearray(len(catalogue.rows))
    for _, record in _records(files, "full texts", refused.again):
        if record.full_text is None:
            continue
        counts["read"] += 1
        row = catalogue.rows.get(record.paper.id)
        if row is None:
            counts["of papers that are left out"] += 1
        elif seen[row]:
            counts["of papers that have one already"] += 1
        else:
            try:
                full_text = record.full_text()
            except InputError as error:
                refused.late(error)
                counts["that cannot be used"] += 1
                continue
            seen[row] = True
            if any(paragraph.text.strip() for paragraph in full_text.paragraphs):
                yield row, full_text
            else:
                counts["without running text"] += 1
