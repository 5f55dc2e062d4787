"""Build a corpus from full texts: citerec data build source=FILES output=DIR (docs/research/build.md)."""

from __future__ import annotations

from dataclasses import dataclass, fields

from citerec.base.arguments import command
from citerec.base.errors import InputError
from citerec.base.files import atomic_folder, disk_errors, expand_user, new_folder
from citerec.base.settings import setting
from citerec.datasets.building.collection import BuildReport, SkippedRecords, write_corpus
from citerec.datasets.building.contexts import ContextRules
from citerec.datasets.building.readers import find_files
from citerec.datasets.splitting import RandomSplitting, Splitting, YearSplitting


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
        write_corpus(building, files, splitting, settings, report, settings.identifier)
    return report


main = command("data build", BuildSettings, build)
