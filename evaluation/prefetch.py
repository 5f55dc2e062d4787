"""The prefetching benchmark: how many cited papers are among the first k (Gu et al. 2022, table 2)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from datasets.corpus import Corpus
from evaluation.benchmark import (
    CorpusBenchmark,
    Outcome,
    Output,
    clear,
    facts_of,
    group_rows,
    index_text,
    measures_in,
    open_index,
    pool_text,
    protocols_in,
)
from evaluation.plots import recall_plot, recalls
from evaluation.protocol import GROUPS, INDUCTIVE, TRANSDUCTIVE, Protocol, key_of, protocols
from evaluation.report import Column, Metrics, Provenance, comparison, markdown_table, show, write_results
from evaluation.significance import DRAWS
from retrieval.base import Retriever
from retrieval.filters import Filters

PLOT = "recall.png"
COSTS = (
    Column("seconds_per_query", "ms", places=2, scale=1000),
    Column("index_bytes", "MB", places=1, scale=1e-6),
    Column("papers_per_second", "papers/s", places=0),
)


class Prefetch(CorpusBenchmark):
    """How well a retriever ranks the candidates; settings as for all benchmarks over a corpus."""

    name = "prefetch"
    columns = ("mrr", "recall@10", "recall@100", "recall@1000", "recall@2000", "seconds_per_query")
    about = f"""\
- A query is a context of the split with title and abstract of its citing paper, which is never among its
  candidates. R@k is the share of the cited papers among the first k, MRR the mean of 1 / rank. The best of a
  column is bold.
- In brackets: 95 % confidence intervals. They and the tests draw citing papers with all of their queries
  ({DRAWS:,} times), since the contexts of one paper are not independent (`evaluation/significance.py`).
- ms: time of a query, encoding included, in batches. MB: what is searched. Papers/s: indexing, encoding
  included; no number where the index was read from disk.
- Transductive, in all tables but one: all queries, all candidates. Inductive: queries whose cited papers no
  training context cites, among the candidates that none cites: another pool, whose numbers stand apart."""

    def __call__(
        self,
        retriever: Retriever,
        corpus: Corpus,
        split: str,
        output_dir: str | Path,
        provenance: Provenance | None = None,
        filters: Filters | None = None,
        index_dir: str | Path | None = None,
    ) -> Metrics:
        queries, filters = self.sample(corpus, split), filters or Filters()
        chosen = protocols(self.protocols, corpus, queries, filters)
        index = open_index(retriever, corpus, index_dir)
        outcomes = [self._evaluate(retriever, corpus, protocol) for protocol in chosen]
        metrics: dict[str, Any] = {}
        for outcome in outcomes:
            metrics |= outcome.metrics(self.seed)
        metrics |= index | facts_of(retriever, corpus, split, filters)
        folder = Path(output_dir)
        clear(folder)
        for outcome in outcomes:
            outcome.write(folder, self.run_depth)
        # Another protocol has other queries and another pool: its curve does not belong among these.
        first = outcomes[0].protocol
        curves = {
            f"{label} ({metrics[key]:,} queries)": recalls(metrics, group)
            for group, label in GROUPS[first.name].items()
            if metrics.get(key := f"{group}/queries" if group else "queries")
        }
        title = f"{retriever.name} on {corpus.name}, split {split}"
        recall_plot(folder / PLOT, curves, f"{title}: {first.candidates:,} candidates")
        lines = self.protocol_lines(metrics, self.cutoffs[-1], len(corpus.split(split)))
        parts = [f"# Prefetching: {title}", *self.report(metrics, lines)]
        write_results(folder, metrics, parts, provenance or Provenance())
        return metrics

    def _evaluate(self, retriever: Retriever, corpus: Corpus, protocol: Protocol) -> Outcome:
        contexts = protocol.queries.contexts
        ranking, seconds = self.search(retriever, contexts, self.cutoffs[-1], protocol.filters)
        return Outcome.of(protocol, corpus, ranking, retriever.name, self.cutoffs, seconds, self.f1)

    def report(self, metrics: Metrics, lines: Sequence[str]) -> list[str]:
        """Markdown: protocol, measures, times; lines: of the protocol."""
        parts = ["## Protocol", "\n".join(f"- {line}" for line in lines)]
        for protocol in protocols_in(metrics):
            head, *rows = group_rows(metrics, protocol, interval=True)
            parts += [f"## Results, {protocol}", pool_text(metrics, protocol), markdown_table(head, rows)]
        seconds = metrics[key_of("seconds_per_query", protocols_in(metrics)[0])]
        costs = f"Search, with encoding the queries, in batches: {1000 * seconds:.3f} ms a query."
        parts += [f"![recall@k]({PLOT})", "## Time and size"]
        parts += [f"{index_text(metrics)} {costs} {metrics['processors']} processors."]
        tuned = [f"{key[6:]}: {value}" for key, value in metrics.items() if key.startswith("tuned/")]
        return [*parts, *([f"Chosen on the validation split: {', '.join(tuned)}."] if tuned else [])]

    def show(self, metrics: Metrics, folder: Path) -> None:
        for protocol in protocols_in(metrics):
            where = f"{metrics['data']}, split {metrics['split']}, {protocol}"
            show(group_rows(metrics, protocol), f"{metrics['retriever']} on {where}")
        super().show(metrics, folder)

    @classmethod
    def page(cls, outputs: Mapping[str, Output], plot: Path, title: str) -> list[str]:
        results = {name: output.metrics for name, output in outputs.items()}
        first = next(iter(results.values()))
        curves = {name: recalls(metrics) for name, metrics in results.items()}
        recall_plot(plot, curves, f"{title}: {first['candidates']:,} candidates")
        processors = sorted({str(metrics["processors"]) for metrics in results.values()})
        parts = [
            f"{asked(first, TRANSDUCTIVE)} {' or '.join(processors)} processors.",
            comparison(results, [*measure_columns(first, TRANSDUCTIVE), *COSTS]),
            f"![R@k]({plot.name})",
        ]
        tuned = [
            f"{name}: " + ", ".join(f"{key[6:]} {metrics[key]}" for key in keys)
            for name, metrics in results.items()
            if (keys := [key for key in metrics if key.startswith("tuned/")])
        ]
        parts += ["Chosen on the validation split: " + "; ".join(tuned) + "."] if tuned else []
        if first.get("seen/queries") and first.get("unseen/queries"):
            columns = [
                Column(f"{group}/{key}", f"{label} {group}", interval=key != "mrr", best=True)
                for key, label in {"mrr": "MRR", **cls.compared}.items()
                for group in ("seen", "unseen")
            ]
            parts += [
                "### Seen and unseen targets",
                f"Seen: the {first['seen/queries']:,} queries with a cited paper that training contexts "
                f"cite too; unseen: the {first['unseen/queries']:,} others. All {first['candidates']:,} "
                "candidates.",
                comparison(results, columns),
            ]
        found = {name: of for name, of in results.items() if key_of("queries", INDUCTIVE) in of}
        if found:
            one = next(iter(found.values()))
            parts += ["### Inductive", f"{asked(one, INDUCTIVE)} Not comparable with the tables above."]
            parts += [comparison(found, measure_columns(one, INDUCTIVE))]
        return parts


def asked(metrics: Metrics, protocol: str) -> str:
    """How many queries of which protocol in what pool."""
    queries, papers, candidates = (
        metrics[key_of(name, protocol)] for name in ("queries", "citing_papers", "candidates")
    )
    where = f"split {metrics['split']}, {protocol}"
    return f"{queries:,} queries of {papers:,} citing papers ({where}), {candidates:,} candidates."


def measure_columns(metrics: Metrics, protocol: str) -> list[Column]:
    """A column for MRR and each R@k, with intervals of the recalls that are compared."""
    columns = []
    for key in measures_in(metrics, protocol):
        name = key.removeprefix(key_of("", protocol))
        if name == "mrr" or name.startswith("recall@"):
            label = "MRR" if name == "mrr" else name.replace("recall@", "R@")
            columns.append(Column(key, label, interval=name in Prefetch.compared, best=True))
    return columns
