"""Build a corpus from full texts: citerec data build source=FILES output=DIR (docs/research/build.md)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from citerec.base.arguments import command
from citerec.base.errors import InputError
from citerec.base.files import atomic_folder, disk_errors, expand_user, new_folder
from citerec.base.settings import Settings, setting
from citerec.datasets.building.collection import BuildReport, SkippedRecords, write_corpus
from citerec.datasets.building.contexts import ContextRules
from citerec.datasets.building.readers import find_files
from citerec.datasets.splitting import RandomSplitting, Splitting, YearSplitting


@dataclass(frozen=True)
class Tolerance(Settings):
    """Handling of records that cannot be used."""

    on_error: str = setting("raise", choices=("raise", "skip"))
    """raise (stop at the first bad record) | skip (drop bad records and count them)"""
    max_bad_share: float = setting(0.01, most=1)
    """share of records that may be bad"""

    @property
    def share(self) -> float | None:
        """The largest share of records to drop; None if the first bad one is an error."""
        return self.max_bad_share if self.on_error == "skip" else None


@dataclass(frozen=True, kw_only=True)
class BuildSettings(ContextRules, Tolerance):
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


def build(settings: BuildSettings) -> str:
    """Build the corpus of a command; return its summary."""
    shared = {part.name: getattr(settings, part.name) for part in (*fields(ContextRules), *fields(Tolerance))}
    return build_corpus(
        settings.source, settings.output, settings.splitting, settings.identifier, **shared
    ).summary()


def build_corpus(
    source: str | Sequence[str],
    output: str | Path,
    splitting: Splitting,
    identifier: str | None = None,
    on_error: str = "raise",
    max_bad_share: float = 0.01,
    **settings: Any,
) -> BuildReport:
    """Read `source` and write a corpus (datasets/files/source_files.py) to the new folder `output`.

    source: files, folders and patterns of full texts and paper records.
    splitting: assigns a split to each citing paper.
    identifier: keep only papers with this kind of identifier, such as arxiv; None keeps all.
    on_error, max_bad_share: see Tolerance. settings: see ContextRules.
    Raises InputError for invalid input, and if no context is left.
    """
    skipped = SkippedRecords(Tolerance(on_error, max_bad_share).share)
    rules = ContextRules(**settings)
    if identifier is not None and not identifier:
        raise InputError(f"identifier: {identifier!r} is not a kind of identifier, such as arxiv")
    files, folder = find_files(source), expand_user(output)
    if inside := [file.path for file in files if file.path.resolve().is_relative_to(folder.resolve())]:
        raise InputError(f"output={output}: contains the source file {inside[0]}; name another folder")
    folder = new_folder(folder)
    command_options = {"source": source, "output": str(output), "files": len(files), "identifier": identifier}
    report = BuildReport(
        {**command_options, "splitting": splitting.settings, **asdict(rules)}, skipped=skipped
    )
    with disk_errors(folder, "the corpus", "output"), atomic_folder(folder) as building:
        write_corpus(building, files, splitting, rules, report, identifier)
    return report


main = command("data build", BuildSettings, build)
