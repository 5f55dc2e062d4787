"""The citation graph of paper files, as memory-mapped columns without texts.

The graph is built in bounded memory and cached by the content of the files, which are JSON lines with one
paper per line: {"paper_id", "title", "abstract", "year", "fields", "references"}, or another layout (S2ORC of
2020, Semantic Scholar's Open Research Corpus, Citeomatic), told by its keys.
"""

from __future__ import annotations

import hashlib
import json
from array import array
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from citerec.base.errors import InputError
from citerec.base.files import atomic_folder, cache_folder, content_hash, disk_errors, expand_user
from citerec.base.progress import OnBytes, read_progress
from citerec.datasets.columns import (
    Column,
    ColumnWriter,
    NameWriter,
    Ragged,
    decode_text,
    load_array,
    load_ragged,
    offsets_of,
    save_arrays,
    save_ragged,
)
from citerec.datasets.files.source_files import read_paper_objects
from citerec.formats.articles.layouts import read_s2orc, read_s2orc_2020
from citerec.formats.documents import Metadata
from citerec.formats.json_lines import Object, PaperId, Year, validate


class PaperLine(NamedTuple):
    """A paper; the year is 0 if unknown."""

    id: str
    title: str
    abstract: str
    year: int
    fields: tuple[str, ...]
    references: tuple[str, ...]


_Ids: Any = list[str | int] | None

_PAPER: list[Any] = [
    ("id", PaperId),
    ("title", str | None, None),
    ("abstract", str | None, None),
    ("year", Year, Year(0)),
    ("fields", list[str] | str | None, None),
    ("references", _Ids, None),
]
_RAW: list[Any] = [("title_raw", str | None, None), ("abstract_raw", str | None, None)]
_CORPUS = {"abstract": "paperAbstract", "fields": "fieldsOfStudy", "references": "outCitations"}
_OwnPaper: Any = msgspec.defstruct("_OwnPaper", _PAPER, rename={"id": "paper_id"})
_CorpusPaper: Any = msgspec.defstruct("_CorpusPaper", _PAPER, rename=_CORPUS)
_CiteomaticPaper: Any = msgspec.defstruct(
    "_CiteomaticPaper", _PAPER + _RAW, rename={"references": "out_citations"}
)


_API_PAPER = ("corpusid", "externalids", "title", "abstract", "year", "s2fieldsofstudy")


def read_paper_lines(path: Path, on_bytes: OnBytes | None = None) -> Iterator[PaperLine]:
    """Yield papers of lines or of a papers.json in order. InputError names file, record and field."""
    for where, record in read_paper_objects(path, on_bytes):
        paper = read_record(record, where)
        if not isinstance(paper, PaperLine):
            raise InputError(f"{where}: is a part of a paper, without its references; join the parts first")
        yield paper


def read_record(record: Object, where: str) -> PaperLine | Metadata:
    """Parse a paper, or a part of one (Metadata). Raises InputError with the field or layouts."""
    if "citingcorpusid" in record:
        raise InputError(f"{where}: is a citation, not a paper; give the files of papers")
    if "corpusid" in record:
        part = read_s2orc({key: value for key, value in record.items() if key in _API_PAPER}, where).metadata
        return part._replace(title=part.title.strip(), abstract=part.abstract.strip())
    if "paperAbstract" in record or "outCitations" in record:
        return _to_paper_line(validate(record, _CorpusPaper, where))
    if "out_citations" in record:
        paper = validate(record, _CiteomaticPaper, where)
        # The other fields are lower-cased and tokenised.
        paper.title, paper.abstract = paper.title_raw or paper.title, paper.abstract_raw or paper.abstract
        return _to_paper_line(paper)
    if "outbound_citations" in record or "mag_field_of_study" in record:
        metadata = read_s2orc_2020(record, where).metadata
        cited = validate(record.get("outbound_citations"), _Ids, where, "outbound_citations")
        base = _OwnPaper(
            metadata.id, metadata.title, metadata.abstract, metadata.year, list(metadata.field), cited
        )
        return _to_paper_line(base)
    if "paper_id" in record:
        return _to_paper_line(validate(record, _OwnPaper, where))
    raise InputError(
        f"{where}: unknown layout; must be our own (paper_id, references), S2ORC metadata "
        "(outbound_citations), Semantic Scholar's corpus (outCitations) or Citeomatic (out_citations)"
    )


def _to_paper_line(paper: Any) -> PaperLine:
    fields = [paper.fields] if isinstance(paper.fields, str) else paper.fields or ()
    return PaperLine(
        paper.id,
        (paper.title or "").strip(),
        (paper.abstract or "").strip(),
        paper.year,
        tuple(dict.fromkeys(field for field in fields if field)),
        tuple(map(str, paper.references or ())),
    )


COUNTS = "graph.json"
"""Written last: it marks a graph as complete."""
SPOOL = "references"
"""Column of all references, while a graph is built."""
VERSION = 3
"""Part of the fingerprint: increment it when the file format changes."""


class CitationGraph:
    """The papers [P] of some files, in file order, and the citations between them.

    ids [P]; years [P]: 0 if unknown; fields [P]: rows of field_names; titled [P]: True if the title is not
    empty; abstract_lengths [P]: in characters; cites [P]: rows of the cited papers, ascending, without
    duplicates and self-citations; is_distractor [P]: True for papers from distractor files. unknown: count
    of citations of papers that are in no file.
    """

    def __init__(self, folder: Path, files: Sequence[Path]) -> None:
        self.path, self.files, self.fingerprint = folder, list(files), folder.name
        self.ids = Column(folder, "ids", decode_text)
        self.field_names = list(Column(folder, "fields_names", decode_text))
        self.years: NDArray[np.int32] = load_array(folder, "years")
        self.titled: NDArray[np.bool_] = load_array(folder, "titled")
        self.abstract_lengths: NDArray[np.int32] = load_array(folder, "abstract_lengths")
        self.is_distractor: NDArray[np.bool_] = load_array(folder, "is_distractor")
        self.fields = load_ragged(folder, "fields")
        self.cites = load_ragged(folder, "cites")
        self.unknown: int = json.loads((folder / COUNTS).read_text("utf-8"))["unknown"]

    def __len__(self) -> int:
        return len(self.years)

    @cached_property
    def citations(self) -> NDArray[np.int64]:
        """Number of papers that cite each paper [P]."""
        return np.bincount(self.cites.values, minlength=len(self))

    @cached_property
    def rows(self) -> dict[str, int]:
        """Row of each id."""
        return {paper: row for row, paper in enumerate(self.ids)}

    def in_field(self, field: str) -> NDArray[np.bool_]:
        """Mask of the papers of a field [P]. Raises InputError with known fields if no paper has it."""
        if field not in self.field_names:
            names = ", ".join(map(repr, self.field_names[:8])) or "none"
            raise InputError(f"{self.files[0]}: no paper has the field {field!r}; known fields: {names}")
        return self.fields.rows_containing([self.field_names.index(field)])


def open_graph(
    papers: str | Path | Sequence[str | Path],
    *,
    distractors: str | Path | Sequence[str | Path] | None = None,
    cache_dir: str | Path | None = None,
) -> CitationGraph:
    """Open the citation graph of paper files from the cache; build it if needed.

    distractors: paper files that only enlarge candidate pools.
    Raises InputError with file and line for invalid input, and for duplicate papers.
    """
    files, others = _as_paths(papers or [], "data.papers"), _as_paths(distractors or [], "distractors")
    if not files:
        raise InputError("data.papers: name a file of papers, e.g. papers.jsonl.gz")
    for path in [*files, *others]:
        if not path.is_file():
            raise InputError(f"{path}: no such file")
    graphs = cache_folder(cache_dir) / "graphs"
    with disk_errors(graphs, "the citation graph", "data.cache_dir"):
        graphs.mkdir(parents=True, exist_ok=True)
        hashes = [[content_hash(path, graphs) for path in part] for part in (files, others)]
        key = hashlib.blake2b(json.dumps([VERSION, hashes]).encode(), digest_size=8).hexdigest()
        folder = graphs / key
        if not (folder / COUNTS).is_file():
            with atomic_folder(folder) as part:
                _build(part, files, others)
    return CitationGraph(folder, [*files, *others])


def _as_paths(names: str | Path | Sequence[str | Path], option: str) -> list[Path]:
    listed = [names] if isinstance(names, str | Path) else list(names)
    if not all(isinstance(name, str | Path) and str(name) for name in listed):
        raise InputError(f"{option}: {names!r} is not a file name or a list of file names")
    return [expand_user(name) for name in listed]


def _build(folder: Path, files: Sequence[Path], distractors: Sequence[Path]) -> None:
    """Write the columns of a CitationGraph into an empty folder."""
    years, abstracts, references = array("i"), array("i"), array("i")
    titled, distracting = bytearray(), bytearray()
    fields = NameWriter(folder, "fields")
    ids, spool = ColumnWriter(folder, "ids"), ColumnWriter(folder, SPOOL)
    try:
        for path in [*files, *distractors]:
            with read_progress(path, path.name) as on_bytes:
                for paper in read_paper_lines(path, on_bytes):
                    ids.append(paper.id)
                    years.append(paper.year)
                    titled.append(bool(paper.title))
                    abstracts.append(len(paper.abstract))
                    fields.append(paper.fields)
                    distracting.append(path not in files)
                    references.append(len(paper.references))
                    for reference in paper.references:
                        spool.append(reference)
    finally:
        ids.close()
        spool.close()
    if not years:
        raise InputError(f"{files[0]}: no papers")
    rows = _unique_rows(Column(folder, "ids", decode_text), [*files, *distractors])
    citing = np.repeat(np.arange(len(years), dtype=np.int64), np.frombuffer(references, np.int32))
    cited = np.fromiter(
        (rows.get(id, -1) for id in Column(folder, SPOOL, decode_text)), np.int64, len(citing)
    )
    is_known = cited >= 0
    unknown = int(np.count_nonzero(~is_known))
    pairs = is_known & (citing != cited)
    keys = np.unique(citing[pairs] << 32 | cited[pairs])
    offsets = offsets_of(np.bincount(keys >> 32, minlength=len(years)))
    save_ragged(folder, "cites", Ragged((keys & 0xFFFF_FFFF).astype(np.int32), offsets))
    save_arrays(
        folder,
        years=np.frombuffer(years, np.int32),
        abstract_lengths=np.frombuffer(abstracts, np.int32),
        titled=np.frombuffer(titled, np.bool_),
        is_distractor=np.frombuffer(distracting, np.bool_),
    )
    fields.finish()
    for part in folder.glob(f"{SPOOL}.*"):
        part.unlink()
    (folder / COUNTS).write_text(json.dumps({"papers": len(years), "unknown": unknown}) + "\n", "utf-8")


def _unique_rows(ids: Sequence[str], files: Sequence[Path]) -> dict[str, int]:
    """Return the row of each id. Raises InputError for ids that appear twice."""
    rows: dict[str, int] = {}
    repeated = [id for row, id in enumerate(ids) if rows.setdefault(id, row) != row]
    if repeated:
        names = ", ".join(map(str, files))
        more = f" (and {len(repeated) - 1:,} more)" if len(repeated) > 1 else ""
        raise InputError(f"{names}: the paper {repeated[0]!r} appears twice{more}")
    return rows
