"""Convert paper dumps for global recommendation: citerec data convert source=FILES output=DIR."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from citerec.base.arguments import command
from citerec.base.errors import InputError
from citerec.base.files import atomic_folder, disk_errors, new_folder
from citerec.base.progress import read_progress
from citerec.base.settings import Settings
from citerec.datasets.building.catalogue import PaperTable
from citerec.datasets.building.readers import find_records
from citerec.datasets.citations.graph import CitationEdge, PaperLine, read_record
from citerec.formats.documents import Metadata
from citerec.formats.json_lines import Object, encode_json, gzip_writer, read_objects

PAPERS, CITATIONS = "papers.jsonl.gz", "citations.tsv.gz"


@dataclass(frozen=True, kw_only=True)
class ConvertSettings(Settings):
    """Convert a dump of papers for global citation recommendation (data=papers, benchmark=dataset_level):

        citerec data convert source=FILES output=DIR

    FILES is a file, a folder or a pattern, or a list of these, in JSON lines, plain or .gz. Supported dumps:
    S2ORC (2020) metadata; the Semantic Scholar Open Research Corpus and its successors; corpus.json of
    Citeomatic's DBLP or PubMed; papers, abstracts and citations (all three) of the Semantic Scholar Datasets
    API.

    DIR is a new folder. The command writes papers.jsonl.gz, and citations.tsv.gz if the dump keeps citations
    in separate files.
    """

    source: tuple[str, ...]
    """file, folder or pattern, or a list of them (e.g. [metadata/*.jsonl.gz])"""
    output: str
    """new folder to write (e.g. outputs/papers)"""


def convert(source: str | Sequence[str], output: str | Path) -> str:
    """Write papers.jsonl.gz, and citations.tsv.gz if there are citation files, to the new folder `output`.

    source: files, folders and patterns of JSON lines in the layouts of datasets.citations.graph.
    Returns a summary line. Raises InputError with file, line and field of an invalid record, or if there are
    no papers.
    """
    folder = new_folder(output)
    files = find_records(source, (".jsonl", ".jsonl.gz"))
    papers = citations = unresolved = 0
    with disk_errors(folder, "the papers", "output"), atomic_folder(folder) as unfinished:
        with (
            gzip_writer(unfinished / PAPERS) as lines,
            gzip_writer(unfinished / CITATIONS) as pairs,
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
                        lines.write(_encode(paper))
                        papers += 1
            for merged in parts.papers():
                paper = PaperLine(*merged[:4], tuple(merged.field), ())
                lines.write(_encode(paper))
                papers += 1
        if not papers:
            raise InputError(
                f"{files[0]}: no papers in {len(files)} files; add the files of papers to source"
            )
        parts.path.unlink()
        if not citations:
            (unfinished / CITATIONS).unlink()
    summary = f"{folder / PAPERS}: {papers:,} papers"
    if citations or unresolved:
        summary += f"; {CITATIONS}: {citations:,} citations ({unresolved:,} skipped for a missing id)"
    return summary


def _records(files: Iterable[Path]) -> Iterator[tuple[str, Object]]:
    for path in files:
        with read_progress(path, path.name) as on_bytes:
            yield from read_objects(path, on_bytes)


def _encode(paper: PaperLine) -> bytes:
    fields = {"paper_id": paper.id, "title": paper.title, "abstract": paper.abstract}
    more = {"year": paper.year or None, "fields": paper.fields, "references": paper.references}
    return encode_json(fields | more) + b"\n"


main = command("data convert", ConvertSettings, lambda settings: convert(settings.source, settings.output))
