"""Fixtures for corpora that a test describes in a few lines."""

from __future__ import annotations

import gzip
import io
import json
import tarfile
import zipfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from citerec.datasets.building.build import BuildReport, BuildSettings, build
from citerec.datasets.columns import Ragged
from citerec.datasets.corpus import Corpus
from citerec.datasets.prepare import open_corpus
from citerec.datasets.splitting import Splitting, YearSplitting

Open = Callable[..., Corpus]
Described = Mapping[str, tuple[str | None, str, str | Sequence[str], str]]
"""Contexts: {id: (split or None, citing paper, cited paper or papers, text)}."""


def build_corpus(
    source: str | Sequence[str], output: str | Path, splitting: Splitting, **rules: Any
) -> BuildReport:
    """Build a corpus with the shares or years of a splitting; rules: other options of the command."""
    sources = (source,) if isinstance(source, str) else tuple(source)
    parts = splitting.settings
    if isinstance(splitting, YearSplitting):
        parts = {f"{name}_years": tuple(years or ()) for name, years in parts.items()}
    return build(BuildSettings(source=sources, output=str(output), **(parts | rules)))


def write_corpus(folder: Path, papers: Mapping[str, Mapping[str, Any]], contexts: Described) -> Path:
    """Write the source files of a corpus; papers get a default title and abstract."""
    folder.mkdir()
    records = {
        id: {"title": f"Title of {id}", "abstract": f"Abstract of {id}", **paper}
        for id, paper in papers.items()
    }
    cited = {id: [refs] if isinstance(refs, str) else list(refs) for id, (_, _, refs, _) in contexts.items()}
    texts = {
        id: {"masked_text": text, "context_id": id, "citing_id": citing, "refid": cited[id][0]}
        for id, (_, citing, _, text) in contexts.items()
    }
    (folder / "papers.json").write_text(json.dumps(records))
    (folder / "contexts.json").write_text(json.dumps(texts))
    for split in dict.fromkeys(split for split, *_ in contexts.values() if split):
        queries = [
            {"context_id": id, "positive_ids": cited[id]}
            for id, (its_split, *_) in contexts.items()
            if its_split == split
        ]
        (folder / f"{split}.json").write_text(json.dumps(queries))
    return folder


def content(corpus: Corpus) -> dict[str, Any]:
    """Return a corpus's content without its name; tokens as words, contexts and splits in any order."""

    def words(tokens: Ragged) -> list[list[str]]:
        return [[corpus.words[word] for word in row] for row in tokens]

    ids, counts = list(corpus.paper_ids), zip(corpus.words, corpus.word_counts.tolist(), strict=True)
    papers = (ids, corpus.titles, corpus.abstracts, words(corpus.title_tokens), words(corpus.abstract_tokens))
    marks = (corpus.years.tolist(), corpus.is_candidate.tolist(), corpus.seen.tolist())
    fields = [sorted(corpus.field_names[code] for code in row) for row in corpus.fields]
    citing = [ids[row] for row in corpus.citing]
    contexts = (corpus.context_texts, citing, words(corpus.context_tokens))
    splits = {
        name: {
            corpus.context_ids[row]: [ids[paper] for paper in cited]
            for row, cited in zip(split.contexts, split.positives, strict=True)
        }
        for name, split in corpus.splits.items()
    }
    return {
        "papers": list(zip(*papers, *marks, fields, strict=True)),
        "contexts": dict(zip(corpus.context_ids, zip(*contexts, strict=True), strict=True)),
        "splits": {name: queries for name, queries in splits.items() if queries},
        "counts": {word: count for word, count in counts if count},
    }


def write_lines(path: Path, records: Sequence[Any]) -> Path:
    """Write JSON lines, gzipped if named .gz; a string is written verbatim."""
    lines = (record if isinstance(record, str) else json.dumps(record) for record in records)
    text = "".join(f"{line}\n" for line in lines).encode()
    path.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text)
    return path


def write_files(folder: Path, files: Mapping[str, str | bytes]) -> Path:
    """Write files by their paths in a folder, which is made."""
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content.encode() if isinstance(content, str) else content)
    return folder


def archive_of(files: Mapping[str, bytes], kind: str = "zip") -> bytes:
    """Return an archive of files in this order: zip, `stored` (uncompressed zip) or tar (.gz, .bz2, .xz)."""
    buffer = io.BytesIO()
    if kind in ("zip", "stored"):
        packing = zipfile.ZIP_DEFLATED if kind == "zip" else zipfile.ZIP_STORED
        with zipfile.ZipFile(buffer, "w", packing) as packed:
            for name, data in files.items():
                packed.writestr(name, data)
    else:
        mode: Any = f"w:{kind.removeprefix('tar').removeprefix('.')}"
        with tarfile.open(fileobj=buffer, mode=mode) as tar:
            for name, data in files.items():
                info = tarfile.TarInfo(name)
                info.size = len(data)
                tar.addfile(info, io.BytesIO(data))
    return buffer.getvalue()


@pytest.fixture
def opened(tiny_source: Path, tmp_path: Path) -> Open:
    """open_corpus of `tiny_source`, with one cache for all calls."""
    defaults: dict[str, Any] = {"dir": tiny_source, "cache_dir": tmp_path / "cache"}
    return lambda **settings: open_corpus(**(defaults | settings))


@pytest.fixture
def make_corpus(tmp_path: Path) -> Callable[..., Corpus]:
    """write_corpus and open_corpus with all papers as candidates; further settings go to open_corpus."""

    def make(papers: Mapping[str, Mapping[str, Any]], contexts: Described, **settings: Any) -> Corpus:
        folder = write_corpus(tmp_path / f"source{len(list(tmp_path.iterdir()))}", papers, contexts)
        options: dict[str, Any] = {"candidates": "all", "cache_dir": tmp_path / "cache"} | settings
        return open_corpus(folder, **options)

    return make
