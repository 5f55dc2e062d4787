"""The citation graph of files of papers as memory-mapped columns: what sampling needs, no texts.

It is made once for each content of the files and kept in the cache (datasets.citations.graph_building).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from scipy.sparse import csr_matrix

from datasets.atomic import written_folder
from datasets.citations.graph_building import COUNTS, build
from datasets.errors import InputError
from datasets.fingerprint import content_hash
from datasets.ragged import Ragged
from datasets.shared_folders import one_line_disk_errors
from datasets.store import TextColumn

VERSION = 1
"""Part of a graph's fingerprint: raise it when its files change."""


class CitationGraph:
    """Papers [P] of some files, in their order, one file after the other, and which of them cite which.

    ids, years (0: unknown), fields (codes, rows of field_names) [P]; titled [P]: there is a title;
    abstract_lengths [P]: characters; cites [P]: rows of the papers cited, ascending, each once, not itself.
    is_distractor [P]: of a file of distractors. unknown: citations of papers that are in no file.
    """

    def __init__(self, folder: Path, files: Sequence[Path]) -> None:
        self.path, self.files, self.fingerprint = folder, list(files), folder.name
        self.ids = self._texts("ids")
        self.field_names = list(self._texts("fields"))
        self.years: NDArray[np.int32] = self._array("years")
        self.titled: NDArray[np.bool_] = self._array("titled")
        self.abstract_lengths: NDArray[np.int32] = self._array("abstract_lengths")
        self.is_distractor: NDArray[np.bool_] = self._array("is_distractor")
        self.fields = Ragged(self._array("fields.values"), self._array("fields.offsets"))
        self.cites = Ragged(self._array("cites.values"), self._array("cites.offsets"))
        self.unknown: int = json.loads((folder / COUNTS).read_text("utf-8"))["unknown"]

    def __len__(self) -> int:
        return len(self.years)

    @cached_property
    def citations(self) -> NDArray[np.int64]:
        """How often each paper is cited [P]."""
        return np.bincount(self.cites.values, minlength=len(self))

    @cached_property
    def cited_by(self) -> Ragged:
        """Of each paper the rows of those that cite it, ascending [P]."""
        ones = np.ones(len(self.cites.values), np.bool_)
        shape = (len(self), len(self))
        turned = csr_matrix((ones, self.cites.values, self.cites.offsets), shape=shape).tocsc()
        return Ragged(turned.indices.astype(np.int32, copy=False), turned.indptr.astype(np.int64))

    @cached_property
    def rows(self) -> dict[str, int]:
        """Row of each id."""
        return {paper: row for row, paper in enumerate(self.ids)}

    def in_field(self, field: str) -> NDArray[np.bool_]:
        """Papers of a field [P]; InputError that says which there are for one that no paper has."""
        if field not in self.field_names:
            known = ", ".join(map(repr, self.field_names[:8])) or "none"
            raise InputError(f"{self.files[0]}: no paper has the field {field!r}; there are {known}")
        found = np.zeros(len(self), np.bool_)
        paper = np.repeat(np.arange(len(self)), self.fields.lengths)
        found[paper[self.fields.values == self.field_names.index(field)]] = True
        return found

    def _array(self, stem: str) -> NDArray[Any]:
        return np.asarray(np.load(self.path / f"{stem}.npy", mmap_mode="r", allow_pickle=False))

    def _texts(self, stem: str) -> TextColumn:
        with pa.memory_map(str(self.path / f"{stem}.arrow")) as file:
            reader = pa.ipc.open_file(file)
            return TextColumn([reader.get_batch(i).column(0) for i in range(reader.num_record_batches)])


def open_graph(
    papers: str | Path | Sequence[str | Path],
    citations: str | Path | None = None,
    distractors: str | Path | Sequence[str | Path] | None = None,
    cache_dir: str | Path = ".cache",
) -> CitationGraph:
    """The graph of files of papers (datasets.citations.paper_lines); made where the cache has none of them.

    citations: a file of further pairs, `CITING<tab>CITED` a line, plain or gzipped, with a head or without.
    distractors: files of papers that only make pools larger.
    Raises InputError that names file and line for what cannot be used, and for papers that are there twice.
    """
    files, others = _paths(papers or [], "data.papers"), _paths(distractors or [], "distractors")
    if not files:
        raise InputError("data.papers: name a file of papers, as papers.jsonl.gz")
    pairs = Path(citations).expanduser() if citations else None
    for path in [*files, *others, *([pairs] if pairs else [])]:
        if not path.is_file():
            raise InputError(f"{path}: no such file")
    graphs = Path(cache_dir).expanduser() / "graphs"
    with one_line_disk_errors(graphs, "the citation graph", "data.cache_dir"):
        graphs.mkdir(parents=True, exist_ok=True)
        hashes = [
            [content_hash(path, graphs) for path in part]
            for part in (files, others, [pairs] if pairs else [])
        ]
        key = hashlib.blake2b(json.dumps([VERSION, hashes]).encode(), digest_size=8).hexdigest()
        folder = graphs / key
        if not (folder / COUNTS).is_file():
            with written_folder(folder) as part:
                build(part, files, others, pairs)
    return CitationGraph(folder, [*files, *others])


def _paths(names: str | Path | Sequence[str | Path], option: str) -> list[Path]:
    listed = [names] if isinstance(names, str | Path) else list(names)
    if not all(isinstance(name, str | Path) and str(name) for name in listed):
        raise InputError(f"{option}: {names!r} is no name of a file, nor a list of them")
    return [Path(name).expanduser() for name in listed]
