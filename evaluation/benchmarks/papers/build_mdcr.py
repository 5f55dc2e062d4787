"""Build a benchmark like MDCR: citerec data mdcr papers=FILE models=[NAME:DIR,...] output=DIR.

Works on any citation graph with fields (Medić and Šnajder 2022, section 4.1). The pool of a query has papers
that it cites, and others of six types: top papers of three models, graph neighbours, most cited, random.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from citerec.base.arguments import command
from citerec.base.errors import InputError
from citerec.base.files import atomic_folder, expand_user, new_folder
from citerec.base.progress import count_progress
from citerec.base.settings import Settings, cache_setting, setting
from citerec.datasets.citations.graph import CitationGraph, open_graph
from citerec.datasets.citations.queries import read_rows
from citerec.datasets.columns import Ragged, offsets_of
from citerec.evaluation.benchmarks.papers.mdcr import TRUE
from citerec.evaluation.benchmarks.papers.pools import first_few, read_json
from citerec.evaluation.benchmarks.papers.sampled import SAMPLE
from citerec.evaluation.benchmarks.papers.sampling import Rows, Sampler
from citerec.evaluation.report import RUN, markdown_table
from citerec.evaluation.settings import SamplingRules
from citerec.formats.json_lines import encode_json
from citerec.retrieval.run import Run

FILE, TEXTS = "mdcr.json", "mdcr_data.jsonl"
GRAPH, MOST_CITED, RANDOM = "graph", "most_cited", "random"

Lists = dict[tuple[str, str], list[int]]
"""{(field, query): rows of papers, best first}"""
Types = dict[str, list[int]]
"""{type: rows of a query's candidates}"""


@dataclass(frozen=True, kw_only=True)
class MdcrSettings(Settings):
    """Build a benchmark like MDCR from a citation graph whose papers have fields:

        citerec data mdcr papers=FILE models=[NAME:DIR,...] output=DIR [OPTION=VALUE ...]

    Each model's DIR is the output of citerec evaluate benchmark=field_level on the same queries. The command
    writes mdcr.json and mdcr_data.jsonl, which benchmark=mdcr evaluates (benchmark.file=DIR/mdcr.json). See
    docs/research/global.md for how candidates are chosen.
    """

    papers: tuple[str, ...]
    """papers of the evaluations: a file or a list of files (e.g. papers.jsonl.gz)"""
    models: tuple[str, ...]
    """names of models and output folders of benchmark=field_level (e.g. [bm25:DIR,minilm:DIR,hatten:DIR])"""
    output: str
    """new folder to write (e.g. outputs/mdcr)"""
    choose: int = setting(3, least=1)
    """models to use: those whose lists overlap least (average Jaccard index)"""
    cited: int = setting(5, least=1)
    """cited papers per query"""
    negatives: int = setting(10, least=1)
    """papers per query of each other type"""
    top: int = setting(200, least=1)
    """depth of the rankings to draw from, and number of most-cited papers per field"""
    seed: int = 0
    """random seed"""
    cache_dir: str = cache_setting()
    """cache for prepared and downloaded data"""

    def __post_init__(self) -> None:
        super().__post_init__()
        for model in self.models:
            if not all(model.partition(":")):
                raise InputError(f"models: {model}: write NAME:DIR")
        if len(self.folders) < len(self.models):
            raise InputError("models: a name is given twice")
        if own := {GRAPH, MOST_CITED, RANDOM, TRUE} & self.folders.keys():
            raise InputError(f"models: {min(own)} is the name of a candidate type; use another name")

    @property
    def folders(self) -> dict[str, Path]:
        """The output folders of the models by name."""
        pairs = (model.partition(":") for model in self.models)
        return {name: expand_user(folder) for name, _, folder in pairs}


def neighbourhoods(graph: CitationGraph, papers: NDArray[np.integer]) -> Ragged:
    """Return OC ∪ IC of each paper [n]: the rows that it cites or that cite it, ascending and unique."""
    owners, parts = [], []
    for links in (graph.cites, graph.cited_by):
        neighbours = links.take(papers)
        owners.append(np.repeat(np.arange(len(papers), dtype=np.int64), neighbours.lengths))
        parts.append(neighbours.values.astype(np.int64))
    keys = np.unique(np.concatenate(owners) << 32 | np.concatenate(parts))
    counts = np.bincount(keys >> 32, minlength=len(papers))
    return Ragged((keys & 0xFFFF_FFFF).astype(np.int32), offsets_of(counts))


def overlaps(cited: NDArray[np.integer], around: Ragged) -> NDArray[np.float64]:
    """Return O(q, c) = |OC_q ∩ (OC_c ∪ IC_c)| / |OC_q| for each paper c that q cites [n].

    cited: OC_q, rows [n]; around: their neighbourhoods.
    """
    owner = np.repeat(np.arange(len(cited)), around.lengths)
    inside = np.isin(around.values, cited)
    return np.bincount(owner[inside], minlength=len(cited)) / len(cited)


def graph_candidates(
    graph: CitationGraph, query: int, allowed: NDArray[np.bool_], number: int, rng: np.random.Generator
) -> NDArray[np.int64]:
    """Return up to `number` neighbours of a query among the allowed papers [P].

    Neighbourhoods of cited papers are added by decreasing overlap, ties going to the lower row; the last one
    is subsampled at random.
    """
    cited = graph.cites[query]
    around = neighbourhoods(graph, cited)
    chosen: list[int] = []
    used: set[int] = {query}
    for i in np.argsort(-overlaps(cited, around), kind="stable").tolist():
        rows = around[i]
        fresh = [row for row in rows[allowed[rows]].tolist() if row not in used]
        fresh = fresh if len(chosen) + len(fresh) <= number else rng.permutation(fresh).tolist()
        chosen += fresh[: number - len(chosen)]
        used.update(chosen)
        if len(chosen) == number:
            break
    return np.array(chosen, np.int64)


def read_models(
    folders: Mapping[str, Path], graph: CitationGraph, depth: int
) -> tuple[dict[str, Any], dict[str, Lists]]:
    """Return the sample of field-level evaluations, and the top `depth` papers per query of each model.

    Raises InputError for other folders, and outputs on different papers or queries.
    """
    first: dict[str, Any] = {}
    lists: dict[str, Lists] = {}
    for model, folder in folders.items():
        for file in (SAMPLE, RUN):
            if not (folder / file).is_file():
                raise InputError(
                    f"models.{model}: {folder} has no {file}; give an output of benchmark=field_level"
                )
        sample = read_json(folder / SAMPLE)
        first = first or sample | {"graph": graph.fingerprint}
        if differ := [key for key in ("graph", "rules", "queries") if sample[key] != first[key]]:
            raise InputError(
                f"models.{model}: the {differ[0]} of {folder} is not that of the papers or models "
                "before it; all models need the same papers and citations, rules and queries"
            )
        run = Run.read(folder / RUN)
        query_rows = {name: row for row, name in enumerate(run.query_ids)}
        graph_rows = np.array([graph.rows[paper] for paper in run.paper_ids], np.int64)
        lists[model] = {}
        for field, query in ((field, query) for field, ids in first["queries"].items() for query in ids):
            # A run leaves out queries that found nothing.
            row = query_rows.get(f"{field}/{query}")
            papers = np.empty(0, np.int64) if row is None else run.ranking.papers[row, :depth]
            lists[model][field, query] = graph_rows[papers[papers >= 0]].tolist()
    if not lists:
        raise InputError("models: give at least one, e.g. models=[bm25:outputs/bm25]")
    return first, lists


def average_jaccard(lists: Mapping[str, Lists]) -> dict[str, float]:
    """Average the Jaccard index of each model's lists with the other models', over queries and models.

    Queries for which both models of a pair found nothing are skipped; 0 if there is only one model.
    """
    pairs: dict[str, list[float]] = {model: [] for model in lists}
    for a, b in combinations(lists, 2):
        both = [(set(lists[a][query]), set(lists[b][query])) for query in lists[a]]
        values = [len(first & other) / len(first | other) for first, other in both if first or other]
        for model in (a, b):
            pairs[model].append(float(np.mean(values)) if values else 0.0)
    return {model: float(np.mean(values)) if values else 0.0 for model, values in pairs.items()}


def draw_pool(
    sampler: Sampler,
    settings: MdcrSettings,
    field: str,
    query: str,
    lists: Mapping[str, list[int]],
    most_cited: Rows,
) -> Types | None:
    """Draw a query's candidates by type, without repeats; None if it cites too few candidates.

    lists: the query's top papers by chosen model.
    """
    graph, number = sampler.graph, settings.negatives
    row = graph.rows[query]
    relevant = sampler.relevant[row]
    if len(relevant) < settings.cited:
        return None
    allowed = sampler.candidates & (graph.years <= graph.years[row])
    allowed[graph.cites[row]] = False
    allowed[row] = False
    types: Types = {}

    def take(kind: str, rows: NDArray[np.integer]) -> None:
        types[kind] = rows.tolist()
        allowed[rows] = False

    def rng(kind: str) -> np.random.Generator:
        return sampler.rng("mdcr", kind, field, query)

    for kind, listed in [*lists.items(), (GRAPH, None), (MOST_CITED, most_cited.tolist())]:
        if listed is None:
            take(kind, graph_candidates(graph, row, allowed, number, rng(kind)))
        else:
            rows = np.array(listed, np.int64)
            take(kind, rng(kind).permutation(rows[allowed[rows]])[:number])
    take(RANDOM, _draw_random(np.flatnonzero(sampler.candidates), allowed, number, rng(RANDOM)))
    return types | {TRUE: rng(TRUE).permutation(relevant)[: settings.cited].tolist()}


def _draw_random(candidates: Rows, allowed: NDArray[np.bool_], number: int, rng: np.random.Generator) -> Rows:
    """Draw by rejection: there may be millions of candidates, and few are not allowed."""
    tried = 4 * number
    while True:
        drawn = candidates[rng.choice(len(candidates), min(tried, len(candidates)), replace=False)]
        fresh = drawn[allowed[drawn]]
        if len(fresh) >= number or tried >= len(candidates):
            return fresh[:number]
        tried *= 4


def build(settings: MdcrSettings) -> str:
    """Write mdcr.json and mdcr_data.jsonl (texts) into the new folder; return what was built, in words.

    Raises InputError for unusable inputs, or if no query is left.
    """
    folder = new_folder(settings.output)
    graph = open_graph(settings.papers, cache_dir=settings.cache_dir)
    sample, lists = read_models(settings.folders, graph, settings.top)
    sampler = Sampler(graph, SamplingRules(**sample["rules"]), settings.seed)
    for by_query in lists.values():  # without the query and the papers that it cites
        for (_, query), listed in by_query.items():
            own = {graph.rows[query], *graph.cites[graph.rows[query]].tolist()}
            listed[:] = [row for row in listed if row not in own]
    jaccard = average_jaccard(lists)
    lowest = sorted(jaccard, key=lambda model: jaccard[model])[: settings.choose]
    chosen = [model for model in jaccard if model in lowest]
    pools: dict[str, dict[str, Types]] = {}
    left_out: list[str] = []
    with count_progress("building pools", sum(map(len, sample["queries"].values()))) as advance:
        for field, queries in sample["queries"].items():
            rows = np.flatnonzero(sampler.candidates & graph.in_field(field))
            most_cited = rows[np.argsort(-graph.citations[rows], kind="stable")[: settings.top]]
            for query in queries:
                best = {model: lists[model][field, query] for model in chosen}
                pool = draw_pool(sampler, settings, field, query, best, most_cited)
                advance(1)
                if pool is None:
                    left_out.append(f"{field}/{query}")
                else:
                    pools.setdefault(field, {})[query] = pool
    if not pools:
        raise InputError(f"no query cites {settings.cited} candidates or more; set a smaller cited=N")
    used: set[int] = set()
    named: dict[str, dict[str, dict[str, list[str]]]] = {field: {} for field in pools}
    for field, of_field in pools.items():
        for query, pool in of_field.items():
            used.update([graph.rows[query]], *pool.values())
            named[field][query] = {kind: [graph.ids[row] for row in rows] for kind, rows in pool.items()}
    with atomic_folder(folder) as part:
        (part / FILE).write_text(json.dumps(named) + "\n", encoding="utf-8")
        with (part / TEXTS).open("wb") as file:
            for _, paper in read_rows(graph, np.array(sorted(used), np.int64)):
                record = {"paper_id": paper.id, "title": paper.title, "abstract": paper.abstract}
                file.write(encode_json(record) + b"\n")
    short = Counter(
        kind
        for of_field in pools.values()
        for pool in of_field.values()
        for kind, rows in pool.items()
        if kind != TRUE and len(rows) < settings.negatives
    )
    models = [[name, f"{index:.4f}", "yes" if name in chosen else "no"] for name, index in jaccard.items()]
    lines = [
        f"{folder}: {sum(map(len, pools.values())):,} queries in {len(pools)} fields, each with "
        f"{settings.cited} papers that it cites and up to {settings.negatives} of each other type.",
        markdown_table(["model", "average Jaccard index", "chosen"], models),
        *(f"{number:,} queries have fewer candidates of type {kind}." for kind, number in short.items()),
    ]
    if left_out:
        few = f"{len(left_out):,} queries cite fewer than {settings.cited} candidates and are left out"
        lines.append(f"{few}: {first_few(left_out)}.")
    return "\n\n".join(lines)


main = command("data mdcr", MdcrSettings, build)
