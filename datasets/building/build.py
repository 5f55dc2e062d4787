"""Build a corpus from full texts: citerec data build source=FILES output=DIR (docs/research/build.md).

The files are read twice, first for papers, then for contexts (Gu et al. 2022, section 3).
"""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import asdict, dataclass, field, fields
from functools import partial
from pathlib import Path
from typing import Any

from citerec.base.arguments import command
from citerec.base.errors import InputError
from citerec.base.files import atomic_folder, disk_errors, expand_user, new_folder
from citerec.base.progress import read_progress
from citerec.base.settings import setting
from citerec.datasets.building.catalogue import Catalogue
from citerec.datasets.building.contexts import ContextRules, select_contexts
from citerec.datasets.building.readers import SourceFile, find_files, read_documents
from citerec.datasets.records import SPLITS
from citerec.datasets.splitting import RandomSplitting, Splitting, YearSplitting
from citerec.formats.documents import Document, FullText, Reference
from citerec.formats.json_lines import OnBadRecord, encode_json, gzip_writer, json_writer

log = logging.getLogger(__name__)

MAX_EXAMPLES = 20
"""Maximum number of skipped records listed in the report."""
UNRESOLVED = "unresolved.jsonl.gz"
ADVICE = {
    "of papers without a title": "give them titles, or use candidates=title",
    "without running text": "the chapters must be in the folder of the document",
    "outside the splits' years or shares": "see train, val and test, or train_years and the like",
    "of a reference that the bibliography lacks, masked": "put the .bib or .bbl file beside the document",
    "too short": "see shortest",
    "an author of the cited paper is named": "leaks=keep keeps them",
    "a year next to the mask": "leaks=keep keeps them",
}
"""What to do about an outcome if no contexts are left."""
KINDS = ("papers", "full texts", "spans", "references", "contexts", "splits")
"""Kinds of things counted, by outcome: spans that refer to no entry of the bibliography; references by how
their paper was found or why it was not. A citation is a pair of a span and an entry."""


@dataclass(frozen=True, kw_only=True)
class BuildSettings(ContextRules):
    """Build a corpus for local citation recommendation from full texts:

        citerec data build source=FILES output=DIR [OPTION=VALUE ...]

    FILES is a file, a folder or a pattern, or a list of these, such as '[papers.jsonl.gz,texts/*.xml]'.
    Supported formats: JSON lines (our layout, S2ORC, unarXive; plain or .gz), JATS XML (PubMed Central, PLOS,
    eLife, SciELO; also in .zip and .tar.gz), TEI XML from GROBID, LaTeX with .bib or .bbl files, including
    arXiv archives, Markdown (.md, .Rmd, .qmd), Typst (.typ) and Org (.org) with their bibliographies, and
    Word (.docx) and LibreOffice (.odt) with citations of a reference manager. List files of metadata (titles,
    abstracts, years) before the full texts.

    DIR is a new folder. The command writes papers.json.gz, contexts.json.gz, train.json, val.json, test.json
    and report.json, which counts what was dropped and why. See docs/research/build.md for layouts and rules.
    """

    source: tuple[str, ...]
    """file, folder or pattern, or a list of them (e.g. [papers.jsonl.gz,texts/])"""
    output: str
    """new folder to write (e.g. outputs/corpus)"""
    on_error: str = setting("raise", choices=("raise", "skip"))
    """raise (stop at the first bad record) | skip (drop bad records and count them)"""
    max_bad_share: float = setting(0.01, most=1)
    """share of records that may be bad"""
    identifier: str | None = None
    """keep only papers with this kind of identifier: arxiv, acl, pubmed, doi, ...; null: all"""
    train: float = 0.8
    """share of the citing papers to train on"""
    val: float = 0.1
    """share to validate on"""
    test: float = 0.1
    """share to test on; shares that sum to less than 1 drop the rest"""
    train_years: tuple[int | str | None, ...] = ()
    """split by year instead: years of the citing papers to train on, first and last, or months, which arXiv
    ids tell (e.g. [2020-01,2020-02]); null: an open end (e.g. [null,2018])"""
    val_years: tuple[int | str | None, ...] = ()
    """years or months to validate on"""
    test_years: tuple[int | str | None, ...] = ()
    """years or months to test on"""

    @property
    def splitting(self) -> Splitting:
        """Split citing papers: by year if any years are given, else at random."""
        years = self.train_years, self.val_years, self.test_years
        if any(years):
            return YearSplitting(*(of_split or None for of_split in years))
        return RandomSplitting(self.train, self.val, self.test, self.seed)


@dataclass
class SkippedRecords:
    """Counts invalid records: up to `max_share` of all are skipped; None raises the first error."""

    max_share: float | None
    read: int = 0
    """Number of valid records."""
    left_out: int = 0
    examples: list[str] = field(default_factory=list)

    def skip(self, error: InputError, counted: bool = False) -> None:
        """Count a record unless the first pass has counted it; raises its error if none may be skipped."""
        if self.max_share is None:
            raise error
        if not counted:
            self.left_out += 1
            self.examples += [str(error)] if len(self.examples) < MAX_EXAMPLES else []

    def check(self) -> None:
        """Raise InputError if too large a share was skipped."""
        records = self.read + self.left_out
        if self.max_share is not None and self.left_out > self.max_share * records:
            raise InputError(
                f"source: {self.left_out:,} of {records:,} records ({self.left_out / records:.2%}) are "
                f"invalid, more than max_bad_share={self.max_share:g} allows; the first: {self.examples[0]}"
            )


@dataclass
class BuildReport:
    """Records what a build read, dropped and wrote: counts by KINDS and outcome."""

    settings: Mapping[str, Any]
    counts: dict[str, Counter[str]] = field(default_factory=lambda: {kind: Counter() for kind in KINDS})
    skipped: SkippedRecords = field(default_factory=lambda: SkippedRecords(None))
    unresolved: Counter[Reference] = field(default_factory=Counter)
    """Cited references without a paper."""

    def write(self, folder: Path) -> None:
        """Write report.json and the references without a paper, most cited first."""
        content = {"settings": dict(self.settings), **self.counts}
        if self.skipped.max_share is not None:
            content["records"] = asdict(self.skipped)
        (folder / "report.json").write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", "utf-8")
        if self.unresolved:
            with gzip_writer(folder / UNRESOLVED) as file:
                for reference, citations in self.unresolved.most_common():
                    fields = {name: value for name, value in reference._asdict().items() if value}
                    file.write(encode_json(fields | {"citations": citations}) + b"\n")

    def __str__(self) -> str:
        """Summarise in one line what was written, and where the report is."""
        splits = ", ".join(f"{split} {count:,}" for split, count in self.counts["splits"].items())
        skipped = f"{self.skipped.left_out:,} invalid records skipped; " if self.skipped.left_out else ""
        return (
            f"{self.settings['output']}: {self.counts['papers']['written']:,} papers, "
            f"{self.counts['splits'].total():,} contexts ({splits}); {skipped}"
            "see report.json for what was dropped"
        )

    def reasons(self) -> str:
        """Explain in one line why no contexts are left: what was found, what was dropped, what to do."""
        texts, contexts, advice = Counter(self.counts["full texts"]), self.counts["contexts"], dict(ADVICE)
        texts_read = f"{texts.pop('read', 0):,} full texts, {contexts['citations']:,} citations"
        if contexts["the cited paper was not found"]:
            add = "add titles and abstracts of the cited papers to source (docs/research/build.md)"
            titled = any(reference.title for reference in self.unresolved)
            use = "use candidates=title, or " if titled and self.settings["candidates"] == "abstract" else ""
            advice["the cited paper was not found"] = use + add
        advice["of papers without an abstract"] = "use candidates=title"
        dropped = [
            f"{kind}{outcome}: {count:,}" + (f" ({advice[outcome]})" if outcome in advice else "")
            for kind, counts in (("full texts ", texts), ("spans ", self.counts["spans"]), ("", contexts))
            for outcome, count in counts.items()
            if outcome != "citations"
        ]
        if not self.counts["full texts"]["read"]:
            return f"found: {texts_read}; add the texts that cite to source"
        return f"found: {texts_read}; dropped: {'; '.join(dropped) or 'none'}"


def build(settings: BuildSettings) -> BuildReport:
    """Read the source and write a corpus (datasets/files/source_files.py) to the new folder `output`.

    Raises InputError for invalid input, and if no context is left.
    """
    splitting = settings.splitting
    files, folder = find_files(settings.source), expand_user(settings.output)
    if inside := [file.path for file in files if file.path.resolve().is_relative_to(folder.resolve())]:
        raise InputError(
            f"output={settings.output}: contains the source file {inside[0]}; name another folder"
        )
    folder = new_folder(folder)
    given = ("source", "output", "identifier", *(rule.name for rule in fields(ContextRules)))
    report = BuildReport(
        {name: getattr(settings, name) for name in given}
        | {"files": len(files), "splitting": splitting.settings},
        skipped=SkippedRecords(settings.max_bad_share if settings.on_error == "skip" else None),
    )
    with disk_errors(folder, "the corpus", "output"), atomic_folder(folder) as building:
        _write_corpus(building, files, splitting, settings, report)
    return report


def _write_corpus(
    folder: Path,
    files: Sequence[SourceFile],
    splitting: Splitting,
    settings: BuildSettings,
    report: BuildReport,
) -> None:
    """Write the corpus of some files to a folder; `report` is updated, and written as well."""
    skipped, identifier = report.skipped, settings.identifier
    with closing(Catalogue(folder / "catalogue.sqlite", identifier, settings.candidates)) as catalogue:
        with_text: dict[SourceFile, None] = {}
        for file, document in _read_all(files, "papers", skipped.skip):
            skipped.read += 1
            if document.metadata.id:  # a .bib file has none
                catalogue.add(document.metadata, document.metadata.id == file.id)
            with suppress(InputError):  # the full text has the same error
                catalogue.add_entries(document.entries())
            if document.full_text is not None:
                with_text[file] = None
        skipped.check()
        report.counts["papers"] = counts = catalogue.finish()
        if identifier and counts["read"] and not counts["written"]:
            raise InputError(f"identifier={identifier}: no paper that can be used has one of this kind")
        with json_writer(folder / "papers.json.gz", keys=True) as add:
            for paper in catalogue.papers():
                fields = {"title": paper.title, "abstract": paper.abstract, "year": paper.year or None}
                field = {"field": paper.field} if paper.field else {}
                add(fields | {"authors": paper.authors} | field, paper.id)
        full_texts = _full_texts(list(with_text), catalogue, report)
        _write_contexts(folder, full_texts, catalogue, splitting, settings, report)
    catalogue.path.unlink()
    skipped.check()
    report.write(folder)


def _read_all(
    files: Sequence[SourceFile], what: str, on_bad: OnBadRecord
) -> Iterator[tuple[SourceFile, Document]]:
    """Yield the documents of all files, with a progress bar in bytes."""
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
        splits = [*SPLITS, *(f"{split}_named" for split in SPLITS if rules.leaks == "named")]
        queries = {
            split: stack.enter_context(json_writer(folder / f"{split}.json", keys=False)) for split in splits
        }
        for citing, full_text in full_texts:
            split = splitting(ids[citing], catalogue.years[citing], catalogue.months[citing])
            if split is None:
                counts["full texts"]["outside the splits' years or shares"] += 1
                continue
            for selected in select_contexts(full_text, citing, catalogue, rules, counts, report.unresolved):
                cited, named = ids[selected.cited], "_named" * selected.named
                context = f"{ids[citing]}__{cited}__{selected.number}{named}"
                if context.count("__") > 2 or "___" in context:  # of other ids, the same may be made
                    context += f"__{len(ids[citing])}"
                record = {"masked_text": selected.text, "context_id": context}
                add(record | {"citing_id": ids[citing], "refid": cited}, context)
                queries[split + named]({"context_id": context, "positive_ids": [cited]})
                written[split + named] += 1
    if not written:
        raise InputError(f"source: no contexts are left; {report.reasons()}")
    for split in splits:
        if not written[split]:
            (folder / f"{split}.json").unlink()
            log.warning("no contexts for the split %s; it is not written", split)


def _full_texts(
    files: Sequence[SourceFile], catalogue: Catalogue, report: BuildReport
) -> Iterator[tuple[int, FullText]]:
    """Yield (row, full text) of the papers kept, one full text per paper."""
    counts, skipped = report.counts["full texts"], report.skipped
    seen = bytearray(len(catalogue.rows))
    for _, document in _read_all(files, "full texts", partial(skipped.skip, counted=True)):
        if document.full_text is None:
            continue
        counts["read"] += 1
        row = catalogue.rows.get(document.metadata.id)
        if row is None:
            counts[f"of papers {catalogue.why_dropped(document.metadata.id)}"] += 1
        elif seen[row]:
            counts["of papers that already have one"] += 1
        else:
            try:
                full_text = document.full_text()
            except InputError as error:
                skipped.skip(error)
                skipped.read -= 1
                counts["unusable"] += 1
                continue
            seen[row] = True
            if any(paragraph.text.strip() for paragraph in full_text.paragraphs):
                yield row, full_text
            else:
                counts["without running text"] += 1


main = command("data build", BuildSettings, build)
