"""Build a corpus from full texts: citerec data build source=FILES output=DIR (docs/guide/build.md)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from hydra.utils import instantiate

from citerec.base.command import command
from citerec.base.configuration import read_settings
from citerec.base.errors import InputError
from citerec.base.files import atomic_folder, disk_errors, new_folder
from citerec.datasets.fulltext.collection import BuildReport, SkippedRecords, write_corpus
from citerec.datasets.fulltext.contexts import ContextRules
from citerec.datasets.fulltext.readers import find_files
from citerec.datasets.records import Tolerance
from citerec.datasets.splitting import Splitting


def build_corpus(
    source: str | Sequence[str],
    output: str | Path,
    splitting: Splitting,
    identifier: str | None = None,
    on_error: str = "raise",
    max_bad_share: float = 0.01,
    **settings: Any,
) -> BuildReport:
    """Read `source` and write a corpus (datasets/formats/source_files.py) to the new folder `output`.

    source: files, folders and patterns of full texts and paper records.
    splitting: assigns a split to each citing paper.
    identifier: keep only papers with this kind of identifier, such as arxiv; None keeps all.
    on_error, max_bad_share: see Tolerance. settings: see ContextRules.
    Raises InputError for invalid input, and if no context is left.
    """
    tolerance = read_settings(Tolerance, {"on_error": on_error, "max_bad_share": max_bad_share})
    skipped, rules = SkippedRecords(tolerance.share), read_settings(ContextRules, settings)
    if identifier is not None and (not isinstance(identifier, str) or not identifier):
        raise InputError(f"identifier: {identifier!r} is not a kind of identifier, such as arxiv")
    files, folder = find_files(source), Path(output).expanduser()
    if inside := [file.path for file in files if file.path.resolve().is_relative_to(folder.resolve())]:
        raise InputError(f"output={output}: contains the source file {inside[0]}; name another folder")
    folder = new_folder(folder)
    given = {"source": source, "output": str(output), "files": len(files), "identifier": identifier}
    report = BuildReport({**given, "splitting": splitting.settings, **asdict(rules)}, skipped=skipped)
    with disk_errors(folder, "the corpus", "output"), atomic_folder(folder) as building:
        write_corpus(building, files, splitting, rules, report, identifier)
    return report


main = command("build", lambda config: instantiate(config).summary())


if __name__ == "__main__":
    main()
