"""Corpora that a test describes in a few lines."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from datasets.corpus import Corpus
from datasets.prepare import open_corpus

Described = Mapping[str, tuple[str | None, str, str | Sequence[str], str]]
"""Contexts: {id: (split or None, citing paper, cited paper or papers, text)}."""


def write_corpus(folder: Path, papers: Mapping[str, Mapping[str, Any]], contexts: Described) -> Path:
    """Source files of a corpus; a paper without an abstract gets one of its own."""
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
            {"context_id": id, "positive_ids": cited[id]} for id, (of, *_) in contexts.items() if of == split
        ]
        (folder / f"{split}.json").write_text(json.dumps(queries))
    return folder


def write_lines(path: Path, records: Sequence[Any]) -> Path:
    """JSON lines, gzipped if named .gz; a string is a line as it stands."""
    lines = (one if isinstance(one, str) else json.dumps(one) for one in records)
    text = "".join(f"{line}\n" for line in lines).encode()
    path.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text)
    return path


def run_module(name: str, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """python -m NAME ARGUMENTS, in the project's folder. variables: of the environment."""
    root = Path(__file__).parents[2]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONIOENCODING": "utf-8", **variables}
    command = [sys.executable, "-m", name, *arguments]
    return subprocess.run(
        command, cwd=root, env=environment, capture_output=True, encoding="utf-8", timeout=120
    )


@pytest.fixture
def make_corpus(tmp_path: Path) -> Callable[..., Corpus]:
    """write_corpus and open_corpus with all papers as candidates; further settings go to open_corpus."""

    def make(papers: Mapping[str, Mapping[str, Any]], contexts: Described, **settings: Any) -> Corpus:
        folder = write_corpus(tmp_path / f"source{len(list(tmp_path.iterdir()))}", papers, contexts)
        given: dict[str, Any] = {"candidates": "all", "cache_dir": tmp_path / "cache"} | settings
        return open_corpus(folder, **given)

    return make
