"""A benchmark like MDCR out of any field-labelled citation graph (Medić and Šnajder 2022, section 4.1).

Graph neighbours of a query: what cites, or is cited by, what it cites (Medić and Šnajder 2022, 4.1).
What several models rank high for the same queries, and how much of it they have in common.
The pools of a benchmark like MDCR: cited papers, and others of six types (Medić and Šnajder 2022, 4.1).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from datasets.citations.graph import CitationGraph, open_graph
from datasets.citations.queries import read_rows
from datasets.columns import Ragged, offsets_of
from datasets.errors import InputError
from datasets.files import written_folder
from datasets.progress import counting
from evaluation.benchmarks.mdcr import TRUE
from evaluation.benchmarks.pools import read_json, some
from evaluation.benchmarks.sampled import SAMPLE
from evaluation.benchmarks.sampling import Rows, Rules, Sampler
from evaluation.report import RUN, markdown_table
from retrieval.run import Run


def neighbourhoods(graph: CitationGraph, papers: NDArray[np.integer]) -> Ragged:
    """OC ∪ IC of each paper [n]: rows that it cites or that cite it, ascending, each once."""
    owners, found = [], []
    for links in (graph.cites, graph.cited_by):
        taken = links.take(papers)
        owners.append(np.repeat(np.arange(len(papers), dtype=np.int64), taken.lengths))
        found.append(taken.values.astype(np.int64))
    keys = np.unique(np.concatenate(owners) << 32 | np.concatenate(found))
    counts = np.bincount(keys >> 32, minlength=len(papers))
    return Ragged((keys & 0xFFFF_FFFF).astype(np.int32), offsets_of(counts))


def overlaps(cited: NDArray[np.integer], around: Ragged) -> NDArray[np.float64]:
    """O(q, c) = |OC_q ∩ (OC_c ∪ IC_c)| / |OC_q| for each paper c that q cites [n].

    cited: OC_q, rows [n]; around: the neighbourhoods of these.
    """
    owner = np.repeat(np.arange(len(cited)), around.lengths)
    inside = np.isin(around.values, cited)
    return np.bincount(owner[inside], minlength=len(cited)) / len(cited)


def graph_candidates(
    graph: CitationGraph, query: int, may: NDArray[np.bool_], number: int, rng: np.random.Generator
) -> NDArray[np.int64]:
    """At most `number` neighbours of a query out of those that `may` be taken [P].

    The neighbourhood of the cited paper of the highest overlap comes first, then that of the next; of equals
    the one of the lower row. Of the last neighbourhood that is needed, some at random by `rng`.
    """
    cited = graph.cites[query]
    around = neighbourhoods(graph, cited)
    found: list[int] = []
    taken: set[int] = {query}
    for place in np.argsort(-overlaps(cited, around), kind="stable").tolist():
        rows = around[place]
        fresh = [row for row in rows[may[rows]].tolist() if row not in taken]
        fresh = fresh if len(found) + len(fresh) <= number else rng.permutation(fresh).tolist()
        found += fresh[: number - len(found)]
        taken.update(found)
        if len(found) == number:
            break
    return np.array(found, np.int64)


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


GRAPH, MOST_CITED, RANDOM = "graph", "most_cited", "random"

Types = dict[str, list[int]]


@dataclass
class Built:
    """The benchmark in rows of the graph, which models it is made of, and what was short."""

    fields: dict[str, dict[str, Types]]
    jaccard: dict[str, float]
    chosen: list[str]
    short: dict[str, int] = field(default_factory=dict)
    """queries with fewer candidates than wanted, by type"""
    few: list[str] = field(default_factory=list)
    """queries that cite too few candidates, as FIELD/PAPER; they are left out"""

    @property
    def queries(self) -> int:
        return sum(map(len, self.fields.values()))


class PoolMaker:
    """Makes the pool of each query; cited, negatives and top are those of build_mdcr."""

    def __init__(self, sampler: Sampler, sample: Sample, cited: int, negatives: int, top: int) -> None:
        self.sampler, self.sample = sampler, sample
        self.cited, self.negatives, self.top = cited, negatives, top
        self.eligible: Rows = np.flatnonzero(sampler.candidates)

    def negative_lists(self) -> dict[str, dict[tuple[str, str], list[int]]]:
        """What the models rank high and the query does not cite."""
        rows, cites = self.sampler.graph.rows, self.sampler.graph.cites
        known: dict[str, set[int]] = {}
        for query in {query for _, query in next(iter(self.sample.lists.values()))}:
            known[query] = {rows[query], *cites[rows[query]].tolist()}
        return {
            model: {key: [row for row in found if row not in known[key[1]]] for key, found in lists.items()}
            for model, lists in self.sample.lists.items()
        }

    def most_cited(self, name: str) -> Rows:
        """The candidates of a field that are cited most; of equals those of the lower rows."""
        there = np.flatnonzero(self.sampler.candidates & self.sampler.graph.in_field(name))
        often = np.argsort(-self.sampler.graph.citations[there], kind="stable")
        return there[often[: self.top]]

    def pool(
        self, name: str, query: str, models: Mapping[str, Sequence[int]], most_cited: Rows
    ) -> Types | None:
        """Candidates by type, all different; None where the query cites too few that may be found.

        models: what the chosen models rank high, without what the query cites.
        """
        graph, sampler = self.sampler.graph, self.sampler
        row = graph.rows[query]
        relevant = sampler.relevant[row]
        if len(relevant) < self.cited:
            return None
        may = sampler.candidates & (graph.years <= graph.years[row])
        may[graph.cites[row]] = False
        may[row] = False
        types: Types = {}

        def take(kind: str, rows: NDArray[np.integer]) -> None:
            types[kind] = np.asarray(rows).tolist()
            may[rows] = False

        for model, listed in models.items():
            there = np.array([one for one in listed if may[one]], np.int64)
            take(model, self._draw(there, model, name, query))
        neighbours = graph_candidates(graph, row, may, self.negatives, self._rng(GRAPH, name, query))
        take(GRAPH, neighbours)
        take(MOST_CITED, self._draw(most_cited[may[most_cited]], MOST_CITED, name, query))
        take(RANDOM, self._random(may, name, query))
        true = self._rng(TRUE, name, query).permutation(relevant)[: self.cited]
        return types | {TRUE: true.tolist()}

    def _draw(self, rows: Rows, *purpose: str) -> Rows:
        return self._rng(*purpose).permutation(rows)[: self.negatives]

    def _random(self, may: NDArray[np.bool_], name: str, query: str) -> Rows:
        """Without a list of all that may be drawn: there are millions, and few are ruled out."""
        rng = self._rng(RANDOM, name, query)
        number = 4 * self.negatives
        while True:
            drawn = self.eligible[
                rng.choice(len(self.eligible), min(number, len(self.eligible)), replace=False)
            ]
            found = drawn[may[drawn]]
            if len(found) >= self.negatives or number >= len(self.eligible):
                return found[: self.negatives]
            number *= 4

    def _rng(self, *purpose: str) -> np.random.Generator:
        return self.sampler.rng("mdcr", *purpose)


def make_pools(sampler: Sampler, sample: Sample, choose: int, cited: int, negatives: int, top: int) -> Built:
    """The pools of all queries of a sample."""
    maker = PoolMaker(sampler, sample, cited, negatives, top)
    lists = maker.negative_lists()
    jaccard = average_jaccard(lists)
    built = Built({}, jaccard, chosen_models(jaccard, choose))
    with counting("making pools", sum(map(len, sample.queries.values()))) as advance:
        for name, queries in sample.queries.items():
            most_cited = maker.most_cited(name)
            for query in queries:
                models = {model: lists[model][name, query] for model in built.chosen}
                pool = maker.pool(name, query, models, most_cited)
                advance(1)
                if pool is None:
                    built.few.append(f"{name}/{query}")
                    continue
                built.fields.setdefault(name, {})[query] = pool
                for kind, rows in pool.items():
                    if kind != TRUE and len(rows) < negatives:
                        built.short[kind] = built.short.get(kind, 0) + 1
    return built


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
            for _, paper in read_rows(graph, np.array(sorted(used), np.int64)):
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
