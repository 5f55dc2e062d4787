"""A benchmark like MDCR out of any field-labelled citation graph (Medić and Šnajder 2022, section 4.1)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import orjson

from datasets.atomic import written_folder
from datasets.citations.graph import open_graph
from datasets.citations.questions import chosen_lines
from datasets.errors import InputError
from evaluation.global_benchmarks.mdcr_format import TRUE
from evaluation.global_benchmarks.pool_benchmark import some
from evaluation.global_sampling.mdcr_pools import GRAPH, MOST_CITED, RANDOM, Built, make_pools
from evaluation.global_sampling.model_lists import Sample, read_models
from evaluation.global_sampling.rules import Rules, Sampler
from evaluation.report import markdown_table

FILE, TEXTS, REPORT = "mdcr.json", "mdcr_data.jsonl", "report.md"


def build_mdcr(
    papers: str | Path | Sequence[str | Path],
    models: Mapping[str, str | Path],
    output: str | Path,
    citations: str | Path | None = None,
    choose: int = 3,
    cited: int = 5,
    negatives: int = 10,
    top: int = 200,
    seed: int = 0,
    cache_dir: str | Path = ".cache",
) -> str:
    """Write mdcr.json, mdcr_data.jsonl (texts) and report.md into the new folder `output`; give the report.

    papers, citations: those of the evaluations. models: {name: output folder of benchmark=field_level}.
    choose: models whose lists have the least in common. cited: relevant papers of a query. negatives: papers
    of each type. top: ranks that models' candidates are drawn from, and papers of a field cited most.
    Raises InputError for what cannot be used, and where no query is left.
    """
    for key, number in (("choose", choose), ("cited", cited), ("negatives", negatives), ("top", top)):
        if type(number) is not int or number < 1:
            raise InputError(f"{key}: {number!r} is no whole number from 1 on")
    if own := {GRAPH, MOST_CITED, RANDOM, TRUE} & set(models):
        raise InputError(f"models: {min(own)} is the name of another type of candidates; name it otherwise")
    folder = Path(output).expanduser()
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InputError(f"output: {folder} is there already; remove it or name a new folder")
    graph = open_graph(papers, citations, cache_dir=cache_dir)
    sample = read_models(models, graph, top)
    built = make_pools(Sampler(graph, Rules(**sample.rules), seed), sample, choose, cited, negatives, top)
    if not built.queries:
        raise InputError(f"no query cites {cited} candidates or more; name fewer: cited=N")
    named: dict[str, dict[str, dict[str, list[str]]]] = {}
    used: set[int] = set()
    for name, pools in built.fields.items():
        named[name] = {}
        for query, pool in pools.items():
            used.update([graph.rows[query]], *pool.values())
            named[name][query] = {kind: [graph.ids[row] for row in rows] for kind, rows in pool.items()}
    report = report_of(built, sample, cited, negatives)
    with written_folder(folder) as part:
        (part / FILE).write_text(json.dumps(named) + "\n", encoding="utf-8")
        with (part / TEXTS).open("wb") as file:
            for _, paper in chosen_lines(graph, np.array(sorted(used), np.int64)):
                record = {"paper_id": paper.id, "title": paper.title, "abstract": paper.abstract}
                file.write(orjson.dumps(record) + b"\n")
        (part / REPORT).write_text(report, encoding="utf-8")
    return report


def report_of(built: Built, sample: Sample, cited: int, negatives: int) -> str:
    """What was made, of what models, and what is short."""
    rows = [
        [model, f"{index:.4f}", "yes" if model in built.chosen else "no"]
        for model, index in built.jaccard.items()
    ]
    lost = [name for name in sample.queries if name not in built.fields]
    lines = [
        "# A benchmark like MDCR",
        f"{built.queries:,} queries of {len(built.fields)} fields, each with {cited} papers that it cites "
        f"and up to {negatives} of each other type.",
        markdown_table(["model", "average Jaccard index", "chosen"], rows),
        *(
            f"{number:,} queries have fewer than {negatives} candidates of the type {kind}."
            for kind, number in built.short.items()
        ),
    ]
    if built.few:
        lines.append(
            f"{len(built.few):,} queries cite fewer than {cited} candidates and are left out: "
            f"{some(built.few)}."
        )
    if lost:
        lines.append(f"{len(lost)} fields have no query left and are not there: {some(lost, 20)}.")
    lines.append(
        markdown_table(
            ["field", "queries"], [[name, f"{len(pools):,}"] for name, pools in built.fields.items()]
        )
    )
    return "\n\n".join(lines) + "\n"
