"""Build a corpus out of full texts: python -m datasets.build source=FILES output=DIR (docs/build.md).

The files are read twice, first for their papers, then for their contexts (Gu et al. 2022, section 3).
"""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import orjson
from hydra.utils import instantiate

from datasets.command import command
from datasets.configuration import read_settings
from datasets.errors import InputError
from datasets.files import atomic_folder, new_folder
from datasets.fulltext.catalogue import Catalogue
from datasets.fulltext.contexts import ContextRules, select_contexts
from datasets.fulltext.documents import Document, FullText, Reference
from datasets.fulltext.readers import SourceFile, find_files, read_documents
from datasets.json_lines import OnBadRecord, gzipped, json_writer
from datasets.progress import read_progress
from datasets.records import SPLITS, Tolerance
from datasets.splitting import Splitting

log = logging.getLogger(__name__)

EXAMPLES = 20
"""Skipped records that the report names, the first ones."""
UNRESOLVED = "unresolved.jsonl.gz"
UNRESOLVED_HINT = (
    f"{UNRESOLVED} lists them, the most cited first. To get contexts of their citations, name a file with "
    "their titles and abstracts in `source`: a .bib that has them, arXiv's metadata snapshot, `papers.json`, "
    "or records of our own."
)
COUNTED = {
    "papers": "Papers, one per id. Those without a title or abstract are left out.",
    "full texts": "Full texts, and why some of them gave no contexts.",
    "spans": "Spans that the readers take for citations, but that cite no entry of the bibliography.",
    "references": "Cited entries of bibliographies, by how their paper was found or why it was not.",
    "contexts": "Citations (a span and an entry of the bibliography), and why some became no context.",
    "splits": "Contexts written.",
}


@dataclass
class SkippedRecords:
    """Records that cannot be used: an error, or skipped up to a share of all (None: the first is an
    error)."""

    max_share: float | None
    read: int = 0
    """Records that can be used."""
    left_out: int = 0
    examples: list[str] = field(default_factory=list)

    def skip(self, error: InputError, counted: bool = False) -> None:
        """Count a record, unless the first pass has; raises its error if none may be skipped."""
        if self.max_share is None:
            raise error
        if not counted:
            self.left_out += 1
            self.examples += [str(error)] if len(self.examples) < EXAMPLES else []

    def check(self) -> None:
        """Raises InputError if too large a share was skipped."""
        records = self.read + self.left_out
        if self.max_share is not None and self.left_out > self.max_share * records:
            raise InputError(
                f"source: {self.left_out:,} of {records:,} records ({self.left_out / records:.2%}) cannot be "
                f"used, more than max_bad_share={self.max_share:g} allows; the first: {self.examples[0]}"
            )


@dataclass
class BuildReport:
    """What a build read, dropped and wrote: counts by kind (COUNTED) and outcome."""

    settings: Mapping[str, Any]
    counts: dict[str, Counter[str]] = field(default_factory=lambda: {kind: Counter() for kind in COUNTED})
    skipped: SkippedRecords = field(default_factory=lambda: SkippedRecords(None))
    unresolved: Counter[Reference] = field(default_factory=Counter)
    """Cited references without a paper."""

    def write(self, folder: Path) -> None:
        """report.json, report.md for people, and the references without a paper, the most cited first."""
        content = {"settings": dict(self.settings), **self.counts}
        if self.skipped.max_share is not None:
            content["records"] = asdict(self.skipped)
        (folder / "report.json").write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", "utf-8")
        (folder / "report.md").write_text(self._markdown(), "utf-8")
        if self.unresolved:
            with gzipped(folder / UNRESOLVED) as file:
                for reference, citations in self.unresolved.most_common():
                    known = {name: value for name, value in reference._asdict().items() if value}
                    file.write(orjson.dumps(known | {"citations": citations}) + b"\n")

    def _markdown(self) -> str:
        lines = ["# How this corpus was built", ""]
        for kind, meaning in COUNTED.items():
            lines += [f"## {kind.capitalize()}", "", meaning, "", "| | |", "| --- | ---: |"]
            lines += [f"| {outcome} | {count:,} |" for outcome, count in self.counts[kind].items()]
            lines.append("")
        if self.skipped.left_out:
            lines += ["## Skipped records", "", f"{self.skipped.left_out:,} cannot be used. The first:", ""]
            lines += [f"- {' '.join(example.split())}" for example in self.skipped.examples] + [""]
        if self.unresolved:
            lines += ["## References without a paper", "", UNRESOLVED_HINT, "", self._unresolved(), ""]
            for entry, citations in self.unresolved.most_common(EXAMPLES):
                named = " ".join((entry.title or entry.text or entry.paper).split())
                lines.append(f"- {citations:,} x {named[:200]}")
            lines.append("")
        lines += ["## Settings", "", "```json", json.dumps(dict(self.settings), indent=1), "```", ""]
        return "\n".join(lines)

    def _unresolved(self) -> str:
        """How much a file of all of arXiv would help."""
        on_arxiv = [citations for reference, citations in self.unresolved.items() if reference.arxiv]
        return (
            f"There are {len(self.unresolved):,}, cited {self.unresolved.total():,} times; "
            f"{len(on_arxiv):,} of them, cited {sum(on_arxiv):,} times, have an arXiv id. The most cited:"
        )

    def summary(self) -> str:
        """One line: papers and contexts written, and where to read about the rest."""
        splits = ", ".join(f"{split} {count:,}" for split, count in self.counts["splits"].items())
        skipped = f"{self.skipped.left_out:,} records cannot be used; " if self.skipped.left_out else ""
        return (
            f"{self.settings['output']}: {self.counts['papers']['written']:,} papers, "
            f"{self.counts['splits'].total():,} contexts ({splits}); {skipped}"
            "see report.md for what was dropped"
        )

    def reasons(self) -> str:
        """Where the contexts were lost, in one line, for when none is left."""
        found = {**self.counts["full texts"], **self.counts["references"], **self.counts["contexts"]}
        counts = ", ".join(f"{outcome}: {count:,}" for outcome, count in found.items()) or "no full texts"
        advice = (
            "; name a file with titles and abstracts of the cited papers in source as well (docs/build.md)"
        )
        return counts + advice * bool(self.unresolved)


def build_corpus(
    source: str | Sequence[str],
    output: str | Path,
    splitting: Splitting,
    identifier: str | None = None,
    on_error: str = "raise",
    max_bad_share: float = 0.01,
    **settings: Any,
) -> BuildReport:
    """Read `source`; write a corpus (datasets/source_files.py) into the new folder `output`.

    source: files, folders and patterns of full texts and of papers' records.
    splitting: gives the split of a citing paper.
    identifier: keep only papers with an identifier of this kind, such as arxiv; None: keep all.
    on_error, max_bad_share: see Tolerance. settings: ContextRules.
    Raises InputError for what cannot be used, and if no context is left.
    """
    tolerance = read_settings(Tolerance, {"on_error": on_error, "max_bad_share": max_bad_share})
    skipped, rules = SkippedRecords(tolerance.share), read_settings(ContextRules, settings)
    folder = new_folder(output)
    if identifier is not None and (not isinstance(identifier, str) or not identifier):
        raise InputError(f"identifier: {identifier!r} is not a kind of identifier, such as arxiv")
    files = find_files(source)
    given = {"source": source, "output": str(output), "files": len(files), "identifier": identifier}
    report = BuildReport({**given, "splitting": splitting.settings, **asdict(rules)}, skipped=skipped)
    with atomic_folder(folder) as building:
        with closing(Catalogue(building / "catalogue.sqlite", identifier)) as catalogue:
            with_text: dict[SourceFile, None] = {}
            for file, document in _documents(files, "papers", skipped.skip):
                skipped.read += 1
                if document.metadata.id:  # a .bib file has none
                    catalogue.add(document.metadata)
                with suppress(InputError):  # the full text has the same error
                    catalogue.add_described(document.described())
                if document.full_text is not None:
                    with_text[file] = None
            skipped.check()
            report.counts["papers"] = catalogue.finish()
            with json_writer(building / "papers.json.gz", keys=True) as add:
                for paper in catalogue.papers():
                    known = {"title": paper.title, "abstract": paper.abstract, "year": paper.year or None}
                    field = {"field": paper.field} if paper.field else {}
                    add(known | {"authors": paper.authors} | field, paper.id)
        catalogue.path.unlink()
        full_texts = _full_texts(list(with_text), catalogue, report)
        _write_contexts(building, full_texts, catalogue, splitting, rules, report)
        skipped.check()
        report.write(building)
    return report


def _documents(
    files: Sequence[SourceFile], what: str, on_bad: OnBadRecord
) -> Iterator[tuple[SourceFile, Document]]:
    """The documents of all files, with a progress bar over their bytes."""
    with read_progress([file.path for file in files], what) as on_bytes:
        done = 0
        for file in files:
            for document in read_documents(
                file, partial(lambda before, more: on_bytes(before + more), done), on_bad
            ):
                yield file, document
            done += file.path.stat().st_size
            on_bytes(done)


def _write_contexts(
    folder: Path,
    full_texts: Iterable[tuple[int, FullText]],
    catalogue: Catalogue,
    splitting: Splitting,
    rules: ContextRules,
    report: BuildReport,
) -> None:
    ids, counts, written = catalogue.ids, report.counts, report.counts["splits"]
    with ExitStack() as stack:
        add = stack.enter_context(json_writer(folder / "contexts.json.gz", keys=True))
        queries = {
            split: stack.enter_context(json_writer(folder / f"{split}.json", keys=False)) for split in SPLITS
        }
        for citing, full_text in full_texts:
            split = splitting(ids[citing], catalogue.years[citing])
            if split is None:
                counts["full texts"]["not in the years or shares of a split"] += 1
                continue
            for cited, number, text in select_contexts(
                full_text, citing, catalogue, rules, counts, report.unresolved
            ):
                context = f"{ids[citing]}__{ids[cited]}__{number}"
                record = {"masked_text": text, "context_id": context}
                add(record | {"citing_id": ids[citing], "refid": ids[cited]}, context)
                queries[split]({"context_id": context, "positive_ids": [ids[cited]]})
                written[split] += 1
    if not written:
        raise InputError(f"source: no context is left; {report.reasons()}")
    for split in SPLITS:
        if not written[split]:
            (folder / f"{split}.json").unlink()
            log.warning("no contexts for the split %s: it is left out", split)


def _full_texts(
    files: Sequence[SourceFile], catalogue: Catalogue, report: BuildReport
) -> Iterator[tuple[int, FullText]]:
    """(row of the paper, its full text) of the papers kept, one full text each."""
    counts, skipped = report.counts["full texts"], report.skipped
    seen = bytearray(len(catalogue.rows))
    for _, document in _documents(files, "full texts", partial(skipped.skip, counted=True)):
        if document.full_text is None:
            continue
        counts["read"] += 1
        row = catalogue.rows.get(document.metadata.id)
        if row is None:
            counts["of papers that are left out"] += 1
        elif seen[row]:
            counts["of papers that have one already"] += 1
        else:
            try:
                full_text = document.full_text()
            except InputError as error:
                skipped.skip(error)
                skipped.read -= 1
                counts["that cannot be used"] += 1
                continue
            seen[row] = True
            if any(paragraph.text.strip() for paragraph in full_text.paragraphs):
                yield row, full_text
            else:
                counts["without running text"] += 1


main = command("build", lambda config: instantiate(config).summary())


if __name__ == "__main__":
    main()
