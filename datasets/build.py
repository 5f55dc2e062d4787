"""Build a corpus out of full texts: python -m datasets.build source=FILES output=DIR (docs/build.md).

What a build read, dropped and wrote: report.json, and report.md for people.
JSON written as a stream: an object of records or a list of them, a record a line; gzipped if so named.
A corpus out of full texts, in two passes over their files (Gu et al. 2022, section 3).
"""

from __future__ import annotations

import gzip
import json
import logging
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any

import hydra
import orjson
from hydra.utils import instantiate
from omegaconf import DictConfig

from datasets.bad_records import allowed_share
from datasets.errors import InputError, failing_in_one_line, one_line_errors
from datasets.files import written_folder
from datasets.fulltext.bibliography import Catalogue
from datasets.fulltext.contexts import Rules, Splitting, select
from datasets.fulltext.readers import OnRefused, SourceFile, find_files, read
from datasets.fulltext.records import FullText, Record, Refused
from datasets.json_stream import OnBytes
from datasets.progress import reading
from datasets.records import SPLITS

MEANINGS = {
    "papers": "Papers, one for each id. Those without title or abstract are left out.",
    "full texts": "Full texts, and why no contexts were cut from some of them.",
    "spans": "Spans that the readers give for citations, but that cite no entry of the bibliography.",
    "references": "Entries of bibliographies that the texts cite, by how their paper was found or why not.",
    "contexts": "Citations (a span and an entry of the bibliography), and why some became no context.",
    "splits": "Contexts written.",
}


@dataclass
class Report:
    """Counts by kind (MEANINGS), each a number for each outcome."""

    settings: Mapping[str, Any]
    counts: dict[str, Counter[str]] = field(default_factory=lambda: {kind: Counter() for kind in MEANINGS})
    refused: Refused = field(default_factory=lambda: Refused(None))

    def write(self, folder: Path) -> None:
        content = {"settings": dict(self.settings), **self.counts}
        if self.refused.max_share is not None:
            content["records"] = asdict(self.refused)
        (folder / "report.json").write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", "utf-8")
        (folder / "report.md").write_text(self.markdown(), "utf-8")

    def markdown(self) -> str:
        lines = ["# How this corpus was built", ""]
        for kind, meaning in MEANINGS.items():
            lines += [f"## {kind.capitalize()}", "", meaning, "", "| | |", "| --- | ---: |"]
            lines += [f"| {outcome} | {count:,} |" for outcome, count in self.counts[kind].items()]
            lines.append("")
        if self.refused.left_out:
            lines += [
                "## Records left out",
                "",
                f"{self.refused.left_out:,} cannot be used, the first ones:",
                "",
            ]
            lines += [f"- {' '.join(example.split())}" for example in self.refused.examples] + [""]
        lines += ["## Settings", "", "```json", json.dumps(dict(self.settings), indent=1), "```", ""]
        return "\n".join(lines)

    def summary(self) -> str:
        """One line: papers and contexts written, and where the rest is told."""
        splits = ", ".join(f"{split} {count:,}" for split, count in self.counts["splits"].items())
        return (
            f"{self.settings['output']}: {self.counts['papers']['written']:,} papers, "
            f"{self.counts['splits'].total():,} contexts ({splits}); "
            + (f"{self.refused.left_out:,} records cannot be used; " if self.refused.left_out else "")
            + "report.md tells what was dropped"
        )

    def reasons(self) -> str:
        """What most contexts were dropped for, in one line, for when none is left."""
        found = {**self.counts["full texts"], **self.counts["references"], **self.counts["contexts"]}
        return ", ".join(f"{outcome}: {count:,}" for outcome, count in found.items()) or "no full texts"


_LEVEL = 5


class JsonFile:
    """A file that records are added to, as an object (each with its key) or a list; a context manager."""

    def __init__(self, path: Path, keys: bool) -> None:
        self._raw = path.open("wb")
        # Neither name nor time is written: equal content makes equal files.
        self._file: Any = self._raw
        if path.suffix == ".gz":
            self._file = gzip.GzipFile("", "wb", _LEVEL, self._raw, mtime=0)
        self._start, self._end = (b"{\n", b"\n}\n") if keys else (b"[\n", b"\n]\n")
        self.records = 0

    def __enter__(self) -> JsonFile:
        self._file.write(self._start)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                self._file.write(self._end)
                self._file.close()
        finally:
            self._raw.close()

    def add(self, record: dict[str, Any], key: str | None = None) -> None:
        line = orjson.dumps(record)
        if key is not None:
            line = orjson.dumps(key) + b": " + line
        self._file.write(b",\n" + line if self.records else line)
        self.records += 1


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
    """Read `source`; write a corpus in the source format (datasets/records.py) into the new folder `output`.

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


@one_line_errors
@hydra.main(version_base="1.3", config_path=str(Path(__file__).parents[1] / "conf"), config_name="build")
def main(config: DictConfig) -> None:
    """Compose, build, say what came of it."""
    with failing_in_one_line():
        print(instantiate(config).summary())


if __name__ == "__main__":
    main()
