"""Build a benchmark like MDCR: citerec data mdcr papers=FILE models=[NAME:DIR,...] output=DIR.

Works on any citation graph with fields (Medić and Šnajder 2022, section 4.1). The pool of a query has papers
that it cites, and others of six types: top papers of three models, graph neighbours, most cited, random.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from citerec.base.arguments import command
from citerec.base.errors import InputError
from citerec.base.files import atomic_folder, expand_user, new_folder
from citerec.base.progress import count_progress
from citerec.base.settings import Settings, cache_setting, check_count, setting
from citerec.datasets.citations.graph import CitationGraph, open_graph
from citerec.datasets.citations.queries import read_rows
from citerec.datasets.columns import Ragged, offsets_of
from citerec.evaluation.benchmarks.papers.mdcr import TRUE
from citerec.evaluation.benchmarks.papers.pools import first_few, read_json
from citerec.evaluation.benchmarks.papers.sampled import SAMPLE
from citerec.evaluation.benchmarks.papers.sampling import Rows, Sampler
from citerec.evaluation.report import REPORT, RUN, markdown_table
from citerec.evaluation.settings import SamplingRules
from citerec.formats.json_lines import encode_json
from citerec.retrieval.run import Run

FILE, TEXTS = "mdcr.json", "mdcr_data.jsonl"
GRAPH, MOST_CITED, RANDOM = "graph", "most_cited", "random"

Lists = dict[tuple[str, str], list[int]]
"""{(field, query): rows of papers, best first}"""
Types = dict[str, list[int]]
"""{type: rows of a query's candidates}"""


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


@dataclass(frozen=True)
class FieldSample:
    """Queries of field-level evaluations by field, their sampling rules, and each model's rankings."""

    queries: dict[str, list[str]]
    rules: SamplingRules
    lists: dict[str, Lists]

    @classmethod
    def read(cls, models: Mapping[str, str | Path], graph: CitationGraph, depth: int) -> FieldSample:
        """Read the top `depth` papers per query of each model, {name: output of benchmark=field_level}.

        Raises InputError for other folders, and outputs on different papers or queries.
        """
        first: dict[str, Any] | None = None
        lists: dict[str, Lists] = {}
        for model, name in models.items():
            folder = expand_user(name)
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
            lists[model] = _read_lists(folder / RUN, sample["queries"], graph, depth)
        if first is None:
            raise InputError("models: give at least one, e.g. models=[bm25:outputs/bm25]")
        return cls(first["queries"], SamplingRules(**first["rules"]), lists)


def _read_lists(path: Path, queries: Mapping[str, list[str]], graph: CitationGraph, depth: int) -> Lists:
    run = Run.read(path)
    query_rows = {name: row for row, name in enumerate(run.query_ids)}
    names = {(field, query): f"{field}/{query}" for field, ids in queries.items() for query in ids}
    graph_rows = np.array([graph.rows[paper] for paper in run.paper_ids], np.int64)
    lists: Lists = {key: [] for key in names}  # a run leaves out queries that found nothing
    for key, name in names.items():
        if name in query_rows:
            papers = run.ranking.papers[query_rows[name], :depth]
            lists[key] = graph_rows[papers[papers >= 0]].tolist()
    return lists


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


def choose_models(index: Mapping[str, float], number: int) -> list[str]:
    """Return the models with the lowest average index, in their given order; ties go to the first."""
    lowest = sorted(index, key=lambda model: index[model])[:number]
    return [model for model in index if model in lowest]


class PoolBuilder:
    """Builds the pool of each query; cited, negatives and top as in build_mdcr."""

    def __init__(
        self, sampler: Sampler, lists: Mapping[str, Lists], cited: int, negatives: int, top: int
    ) -> None:
        """lists: top papers of the chosen models, without the query and the papers that it cites."""
        self.sampler, self.lists = sampler, lists
        self.cited, self.negatives, self.top = cited, negatives, top
        self.candidates: Rows = np.flatnonzero(sampler.candidates)

    def most_cited(self, field: str) -> Rows:
        """Return the most-cited candidates of a field; ties go to the lower row."""
        rows = np.flatnonzero(self.sampler.candidates & self.sampler.graph.in_field(field))
        order = np.argsort(-self.sampler.graph.citations[rows], kind="stable")
        return rows[order[: self.top]]

    def pool(self, field: str, query: str, most_cited: Rows) -> Types | None:
        """Draw candidates by type, without repeats; None if the query cites too few candidates."""
        graph, sampler = self.sampler.graph, self.sampler
        row = graph.rows[query]
        relevant = sampler.relevant[row]
        if len(relevant) < self.cited:
            return None
        allowed = sampler.candidates & (graph.years <= graph.years[row])
        allowed[graph.cites[row]] = False
        allowed[row] = False
        types: Types = {}

        def take(kind: str, rows: NDArray[np.integer]) -> None:
            types[kind] = rows.tolist()
            allowed[rows] = False

        def draw(kind: str, rows: Rows) -> None:
            take(kind, self._rng(kind, field, query).permutation(rows[allowed[rows]])[: self.negatives])

        for model, lists in self.lists.items():
            draw(model, np.array(lists[field, query], np.int64))
        take(GRAPH, graph_candidates(graph, row, allowed, self.negatives, self._rng(GRAPH, field, query)))
        draw(MOST_CITED, most_cited)
        take(RANDOM, self._draw_random(allowed, self._rng(RANDOM, field, query)))
        true = self._rng(TRUE, field, query).permutation(relevant)[: self.cited]
        return types | {TRUE: true.tolist()}

    def _draw_random(self, allowed: NDArray[np.bool_], rng: np.random.Generator) -> Rows:
        """Draw by rejection: there may be millions of candidates, and few are not allowed."""
        number, most = 4 * self.negatives, len(self.candidates)
        while True:
            drawn = self.candidates[rng.choice(most, min(number, most), replace=False)]
            fresh = drawn[allowed[drawn]]
            if len(fresh) >= self.negatives or number >= most:
                return fresh[: self.negatives]
            number *= 4

    def _rng(self, *purpose: str) -> np.random.Generator:
        return self.sampler.rng("mdcr", *purpose)


@dataclass
class BuiltPools:
    """The benchmark as rows of the graph, the models it uses, and what it lacks."""

    jaccard: dict[str, float]
    chosen: list[str]
    fields: dict[str, dict[str, Types]] = field(default_factory=dict)
    short: dict[str, int] = field(default_factory=dict)
    """number of queries with too few candidates, by type"""
    left_out: list[str] = field(default_factory=list)
    """queries that cite too few candidates, as FIELD/PAPER"""


def build_pools(
    sampler: Sampler, sample: FieldSample, choose: int, cited: int, negatives: int, top: int
) -> BuiltPools:
    """Build the pools of all queries of a sample."""
    rows, cites = sampler.graph.rows, sampler.graph.cites
    cited_rows = {
        query: {rows[query], *cites[rows[query]].tolist()} for ids in sample.queries.values() for query in ids
    }
    lists: dict[str, Lists] = {
        model: {
            key: [row for row in listed if row not in cited_rows[key[1]]] for key, listed in ranked.items()
        }
        for model, ranked in sample.lists.items()
    }
    jaccard = average_jaccard(lists)
    built = BuiltPools(jaccard, choose_models(jaccard, choose))
    maker = PoolBuilder(sampler, {model: lists[model] for model in built.chosen}, cited, negatives, top)
    with count_progress("building pools", sum(map(len, sample.queries.values()))) as advance:
        for name, queries in sample.queries.items():
            most_cited = maker.most_cited(name)
            for query in queries:
                pool = maker.pool(name, query, most_cited)
                advance(1)
                if pool is None:
                    built.left_out.append(f"{name}/{query}")
                    continue
                built.fields.setdefault(name, {})[query] = pool
                for kind, listed in pool.items():
                    if kind != TRUE and len(listed) < negatives:
                        built.short[kind] = built.short.get(kind, 0) + 1
    return built


@dataclass(frozen=True, kw_only=True)
class MdcrSettings(Settings):
    """Build a benchmark like MDCR from a citation graph whose papers have fields:

        citerec data mdcr papers=FILE models=[NAME:DIR,...] output=DIR [OPTION=VALUE ...]

    Each model's DIR is the output of citerec evaluate benchmark=field_level on the same queries. The command
    writes mdcr.json and mdcr_data.jsonl, which benchmark=mdcr evaluates (benchmark.file=DIR/mdcr.json), and
    report.md. See docs/research/global.md for how candidates are chosen.
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


def build(settings: MdcrSettings) -> str:
    """Build the benchmark of a command; return its report."""
    models = dict(_name_and_folder(model) for model in settings.models)
    if len(models) < len(settings.models):
        raise InputError("models: a name is given twice")
    return build_mdcr(**{**vars(settings), "papers": list(settings.papers), "models": models})


def _name_and_folder(model: str) -> tuple[str, str]:
    name, colon, folder = model.partition(":")
    if not (name and colon and folder):
        raise InputError(f"models: {model}: write NAME:DIR")
    return name, folder


def build_mdcr(
    papers: str | Path | Sequence[str | Path],
    models: Mapping[str, str | Path],
    output: str | Path,
    choose: int = 3,
    cited: int = 5,
    negatives: int = 10,
    top: int = 200,
    seed: int = 0,
    cache_dir: str | Path | None = None,
) -> str:
    """Write mdcr.json, mdcr_data.jsonl (texts) and report.md into the new folder `output`; return the report.

    papers: as in the evaluations. models: {name: output folder of benchmark=field_level}.
    choose: number of models, those whose lists overlap least. cited: relevant papers per query. negatives:
    papers of each other type. top: depth of the rankings to draw from, and number of most-cited papers per
    field. Raises InputError for unusable inputs, or if no query is left.
    """
    for key, number in (("choose", choose), ("cited", cited), ("negatives", negatives), ("top", top)):
        check_count(key, number)
    if own := {GRAPH, MOST_CITED, RANDOM, TRUE} & set(models):
        raise InputError(f"models: {min(own)} is the name of a candidate type; use another name")
    folder = new_folder(output)
    graph = open_graph(papers, cache_dir=cache_dir)
    sample = FieldSample.read(models, graph, top)
    built = build_pools(Sampler(graph, sample.rules, seed), sample, choose, cited, negatives, top)
    if not built.fields:
        raise InputError(f"no query cites {cited} candidates or more; set a smaller cited=N")
    used: set[int] = set()
    named: dict[str, dict[str, dict[str, list[str]]]] = {}
    for name, pools in built.fields.items():
        named[name] = {}
        for query, pool in pools.items():
            used.update([graph.rows[query]], *pool.values())
            named[name][query] = {kind: [graph.ids[row] for row in rows] for kind, rows in pool.items()}
    report = _report(built, list(sample.queries), cited, negatives)
    with atomic_folder(folder) as part:
        (part / FILE).write_text(json.dumps(named) + "\n", encoding="utf-8")
        with (part / TEXTS).open("wb") as file:
            for _, paper in read_rows(graph, np.array(sorted(used), np.int64)):
                record = {"paper_id": paper.id, "title": paper.title, "abstract": paper.abstract}
                file.write(encode_json(record) + b"\n")
        (part / REPORT).write_text(report, encoding="utf-8")
    return report


def _report(built: BuiltPools, fields: Sequence[str], cited: int, negatives: int) -> str:
    """Describe the benchmark, its models, and what it lacks, as Markdown."""
    models = [
        [model, f"{index:.4f}", "yes" if model in built.chosen else "no"]
        for model, index in built.jaccard.items()
    ]
    counts = {name: len(pools) for name, pools in built.fields.items()}
    lines = [
        "# A benchmark like MDCR",
        f"{sum(counts.values()):,} queries in {len(counts)} fields, each with {cited} papers that it cites "
        f"and up to {negatives} of each other type.",
        markdown_table(["model", "average Jaccard index", "chosen"], models),
    ]
    for kind, number in built.short.items():
        lines.append(f"{number:,} queries have fewer than {negatives} candidates of type {kind}.")
    if built.left_out:
        lines.append(
            f"{len(built.left_out):,} queries cite fewer than {cited} candidates and are left out: "
            f"{first_few(built.left_out)}."
        )
    if empty := [name for name in fields if name not in counts]:
        lines.append(f"{len(empty)} fields have no queries left: {first_few(empty, 20)}.")
    rows = [[name, f"{number:,}"] for name, number in counts.items()]
    return "\n\n".join([*lines, markdown_table(["field", "queries"], rows)]) + "\n"


main = command("data mdcr", MdcrSettings, build)
