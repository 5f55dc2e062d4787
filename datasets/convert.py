"""Convert dumps of papers for global citation recommendation: python -m datasets.convert source=FILES
output=DIR."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from pathlib import Path

import orjson

from datasets.citations.graph import CitationEdge, PaperLine, read_record
from datasets.command import command
from datasets.errors import InputError
from datasets.files import atomic_folder, new_folder
from datasets.fulltext.catalogue import PaperTable
from datasets.fulltext.documents import Metadata
from datasets.fulltext.readers import find_files
from datasets.json_lines import Object, gzipped, read_objects
from datasets.progress import read_progress

PAPERS, CITATIONS = "papers.jsonl.gz", "citations.tsv.gz"


def convert(source: str | Sequence[str], output: str | Path) -> str:
    """Write papers.jsonl.gz, and citations.tsv.gz for files of citations, into the new folder `output`.

    Returns a line on what was written.
    source: files, folders and patterns of JSON lines in the layouts of datasets.citations.graph.
    Raises InputError that names file, line and field of a record that cannot be used, and for no papers.
    """
    folder = new_folder(output)
    files = [file.path for file in find_files(source)]
    papers = citations = unresolved = 0
    with atomic_folder(folder) as unfinished:
        with (
            gzipped(unfinished / PAPERS) as lines,
            gzipped(unfinished / CITATIONS) as pairs,
            closing(PaperTable(unfinished / "parts.sqlite")) as parts,
        ):
            pairs.write(b"citing\tcited\n")
            for where, record in _records(files):
                match read_record(record, where):
                    case Metadata() as part:
                        parts.add(part)
                    case CitationEdge(citing, cited) if citing and cited:
                        pairs.write(f"{citing}\t{cited}\n".encode())
                        citations += 1
                    case CitationEdge():
                        unresolved += 1
                    case PaperLine() as paper:
                        lines.write(_line(paper))
                        papers += 1
            for one in parts.papers():
                paper = PaperLine(one.id, one.title, one.abstract, one.year, tuple(one.field), ())
                lines.write(_line(paper))
                papers += 1
        if not papers:
            raise InputError(f"{files[0]}: no papers in {len(files)} files; name those of papers as well")
        parts.path.unlink()
        if not citations:
            (unfinished / CITATIONS).unlink()
    line = f"{folder / PAPERS}: {papers:,} papers"
    if citations or unresolved:
        line += f"; {CITATIONS}: {citations:,} citations ({unresolved:,} others name no paper)"
    return line


def _records(files: Iterable[Path]) -> Iterator[tuple[str, Object]]:
    for path in files:
        with read_progress(path, path.name) as on_bytes:
            yield from read_objects(path, on_bytes)


def _line(paper: PaperLine) -> bytes:
    known = {"paper_id": paper.id, "title": paper.title, "abstract": paper.abstract}
    more = {"year": paper.year or None, "fields": paper.fields, "references": paper.references}
    return orjson.dumps(known | more) + b"\n"


main = command("convert")


if __name__ == "__main__":
    main()
