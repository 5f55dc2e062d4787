"""What several models rank high for the same queries, and how much of it they have in common."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from datasets.citations.graph import CitationGraph
from datasets.errors import InputError
from evaluation.files import RUN
from evaluation.global_benchmarks.pool_benchmark import read_json, some
from evaluation.global_sampling.sampled import SAMPLE
from retrieval.runs import Run

Lists = dict[tuple[str, str], list[int]]
"""{(field, query): rows of papers, best first}."""


@dataclass(frozen=True)
class Sample:
    """What a field-level evaluation has drawn: queries by field, and by what rules."""

    queries: dict[str, list[str]]
    rules: dict[str, Any]
    lists: dict[str, Lists]
    """by model"""


def read_models(models: Mapping[str, str | Path], graph: CitationGraph, depth: int) -> Sample:
    """The first `depth` papers of each query by each model {name: output folder of benchmark=field_level}.

    Raises InputError for folders of other papers or queries than the first has, and unranked queries.
    """
    first: dict[str, Any] | None = None
    lists: dict[str, Lists] = {}
    for model, name in models.items():
        folder = Path(name).expanduser()
        for file in (SAMPLE, RUN):
            if not (folder / file).is_file():
                raise InputError(
                    f"models.{model}: {folder} has no {file}; name an output of benchmark=field_level"
                )
        sample = read_json(folder / SAMPLE)
        first = sample if first is None else first
        if sample["graph"] != graph.fingerprint:
            raise InputError(
                f"models.{model}: {folder} is of other files of papers or citations than those given"
            )
        for key in ("rules", "queries"):
            if sample[key] != first[key]:
                raise InputError(
                    f"models.{model}: {folder} has other {key} than {next(iter(models.values()))}: "
                    f"{_short(sample[key])} and {_short(first[key])}"
                )
        lists[model] = _lists(folder / RUN, sample["queries"], graph, depth)
    if first is None:
        raise InputError("models: name at least one, as models={bm25:outputs/bm25,minilm:outputs/minilm}")
    return Sample(first["queries"], first["rules"], lists)


def average_jaccard(lists: Mapping[str, Mapping[tuple[str, str], list[int]]]) -> dict[str, float]:
    """Of each model the mean Jaccard index of its lists and those of each other, over queries and models.

    A query for which neither of two models has anything is left out there; 0 where there is one model alone.
    """
    pairs: dict[str, list[float]] = {model: [] for model in lists}
    for a, b in combinations(lists, 2):
        found = []
        for query in lists[a]:
            one, other = set(lists[a][query]), set(lists[b][query])
            if one or other:
                found.append(len(one & other) / len(one | other))
        index = float(np.mean(found)) if found else 0.0
        pairs[a].append(index)
        pairs[b].append(index)
    return {model: float(np.mean(found)) if found else 0.0 for model, found in pairs.items()}


def chosen_models(index: Mapping[str, float], number: int) -> list[str]:
    """The models of the lowest average index, in the order in which they are named; of equals the first."""
    lowest = sorted(index, key=lambda model: index[model])[:number]
    return [model for model in index if model in lowest]


def _lists(path: Path, queries: Mapping[str, list[str]], graph: CitationGraph, depth: int) -> Lists:
    run = Run.read(path)
    place = {name: row for row, name in enumerate(run.query_ids)}
    asked = {(field, query): f"{field}/{query}" for field, ids in queries.items() for query in ids}
    if missing := [name for name in asked.values() if name not in place]:
        raise InputError(f"{path}: nothing is ranked for {len(missing):,} queries: {some(missing)}")
    if lost := [paper for paper in run.paper_ids if paper not in graph.rows]:
        raise InputError(f"{path}: {len(lost):,} papers are in no file: {some(lost)}")
    rows = np.array([graph.rows[paper] for paper in run.paper_ids], np.int64)
    found = {}
    for key, name in asked.items():
        papers = run.ranking.papers[place[name], :depth]
        found[key] = rows[papers[papers >= 0]].tolist()
    return found


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
