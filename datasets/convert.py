"""Dumps of papers for global citation recommendation: python -m datasets.convert source=FILES output=DIR.

Dumps of papers to the files of global citation recommendation, as a stream.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import BinaryIO, NamedTuple, cast

import hydra
import orjson
from hydra.utils import instantiate
from omegaconf import DictConfig

from datasets.citations.graph import Citation, PaperLine, Part, read_record
from datasets.errors import InputError, failing_in_one_line, one_line_errors
from datasets.files import written_folder
from datasets.fulltext.readers import find_files, read_objects
from datasets.prepare import Spool
from datasets.progress import reading

PAPERS, CITATIONS = "papers.jsonl.gz", "citations.tsv.gz"
LEVEL = 5

_SCHEMA = """
CREATE TABLE parts (place INTEGER PRIMARY KEY, id TEXT UNIQUE, title TEXT, abstract TEXT, year INT,
                    fields TEXT)
"""
_ADD = """
INSERT INTO parts (id, title, abstract, year, fields) VALUES (?, ?, ?, ?, ?) ON CONFLICT (id) DO UPDATE SET
    title = iif(title = '', excluded.title, title),
    abstract = iif(abstract = '', excluded.abstract, abstract),
    year = iif(year = 0, excluded.year, year),
    fields = iif(fields = '[]', excluded.fields, fields)
"""


class Converted(NamedTuple):
    """What was written."""

    folder: Path
    papers: int
    citations: int
    unresolved: int

    def summary(self) -> str:
        text = f"{self.folder / PAPERS}: {self.papers:,} papers"
        if self.citations or self.unresolved:
            text += f"; {CITATIONS}: {self.citations:,} citations ({self.unresolved:,} others name no paper)"
        return text


class Parts:
    """Parts of papers, joined by id: the first value that is not empty counts."""

    def __init__(self, path: Path) -> None:
        self._spool = Spool(path, _SCHEMA, _ADD)

    def add(self, paper: PaperLine) -> None:
        fields = orjson.dumps(paper.fields).decode()
        self._spool.add((paper.id, paper.title, paper.abstract, paper.year, fields))

    def papers(self) -> Iterator[PaperLine]:
        """Whole papers, in the order in which their first parts came."""
        for id, title, abstract, year, fields in self._spool.select(
            "SELECT id, title, abstract, year, fields FROM parts ORDER BY place"
        ):
            yield PaperLine("", id, title, abstract, year, tuple(orjson.loads(fields)), ())

    def close(self) -> None:
        self._spool.close()


def convert(source: str | Sequence[str], output: str | Path) -> Converted:
    """Write papers.jsonl.gz, and citations.tsv.gz for files of citations, into the new folder `output`.

    source: files, folders and patterns of JSON lines in the layouts of datasets.citations.graph.
    Raises InputError that names file, line and field for what cannot be used, and where there is no paper.
    """
    folder = Path(output).expanduser()
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InputError(f"output: {folder} is there already; remove it or name a new folder")
    files = [file.path for file in find_files(source)]
    with written_folder(folder) as part:
        found = _converted(files, part)
        if not found.papers:
            raise InputError(f"{files[0]}: no papers in {len(files)} files; name those of papers as well")
    return found._replace(folder=folder)


def _converted(files: Sequence[Path], folder: Path) -> Converted:
    papers = citations = unresolved = 0
    spool = folder / "parts.sqlite"
    with (
        _gzipped(folder / PAPERS) as texts,
        _gzipped(folder / CITATIONS) as pairs,
        closing(Parts(spool)) as parts,
    ):
        pairs.write(b"citing\tcited\n")
        for path in files:
            with reading(path, path.name) as on_bytes:
                for where, record in read_objects(path, on_bytes):
                    match read_record(record, where):
                        case Part(paper):
                            parts.add(paper)
                        case Citation(citing, cited) if citing and cited:
                            pairs.write(f"{citing}\t{cited}\n".encode())
                            citations += 1
                        case Citation():
                            unresolved += 1
                        case PaperLine() as paper:
                            texts.write(_line(paper))
                            papers += 1
        for paper in parts.papers():
            texts.write(_line(paper))
            papers += 1
    spool.unlink()
    if not citations:
        (folder / CITATIONS).unlink()
    return Converted(folder, papers, citations, unresolved)


def _line(paper: PaperLine) -> bytes:
    record = {
        "paper_id": paper.id,
        "title": paper.title,
        "abstract": paper.abstract,
        "year": paper.year or None,
    }
    return orjson.dumps(record | {"fields": paper.fields, "references": paper.references}) + b"\n"


@contextmanager
def _gzipped(path: Path) -> Iterator[BinaryIO]:
    # Neither name nor time is written: equal content makes equal files.
    with path.open("wb") as raw, gzip.GzipFile("", "wb", LEVEL, raw, mtime=0) as file:
        yield cast(BinaryIO, file)


@one_line_errors
@hydra.main(version_base="1.3", config_path=str(Path(__file__).parents[1] / "conf"), config_name="convert")
def main(config: DictConfig) -> None:
    """Compose, convert, say what came of it."""
    with failing_in_one_line():
        print(instantiate(config).summary())


if __name__ == "__main__":
    main()
