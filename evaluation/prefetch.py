"""The prefetching benchmark: how many cited papers are among the first k (Gu et al. 2022, table 2)."""

from __future__ import annotations

import json
from pathlib import Path

from datasets.corpus import Corpus
from evaluation.benchmark import Benchmark, Metrics, cleared, facts_of, opened
from evaluation.files import METRICS, PLOT, REPORT, write_text
from evaluation.outcome import Outcome
from evaluation.plots import recall_plot, recalls
from evaluation.protocol import GROUPS, Protocol, protocols
from evaluation.published import published_query_forms
from evaluation.report import Facts, Provenance, prefetch_report
from retrieval.base import Retriever
from retrieval.filters import Filters


class Prefetch(Benchmark):
    """How well a retriever ranks the candidates; settings as for all benchmarks."""

    name = "prefetch"

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
        """Evaluate, write metrics.json and what stands beside it (evaluation.files), return the metrics.

        metrics.json is written last: where it stands, the other files are those of the same evaluation.
        Raises InputError if the corpus has no such split or the split has no queries.
        """
        queries, filters = self.asked(corpus, split), filters or Filters()
        chosen = protocols(self.protocols, corpus, queries, filters)
        index, loaded = opened(retriever, corpus, index_dir)
        outcomes = [self._evaluate(retriever, corpus, protocol) for protocol in chosen]
        metrics: Metrics = {}
        for outcome in outcomes:
            metrics |= outcome.metrics(self.seed)
        metrics |= index | facts_of(retriever, corpus, split, filters)
        facts = Facts(self.cutoffs[-1], self.run_depth, len(queries), len(corpus.split(split)), loaded)
        self._write(Path(output_dir), metrics, outcomes, provenance or Provenance(), facts)
        return metrics

    def _evaluate(self, retriever: Retriever, corpus: Corpus, protocol: Protocol) -> Outcome:
        contexts = protocol.queries.contexts
        ranking, seconds = self.search(retriever, contexts, self.cutoffs[-1], protocol.filters)
        return Outcome.of(protocol, corpus, ranking, retriever.name, self.cutoffs, seconds, self.f1)

    def _write(
        self, folder: Path, metrics: Metrics, outcomes: list[Outcome], provenance: Provenance, facts: Facts
    ) -> None:
        cleared(folder)
        for outcome in outcomes:
            outcome.write(folder, self.run_depth)
        # The queries and the pool of another protocol are others: its curve does not belong among these.
        first = outcomes[0].protocol
        curves = {
            f"{label} ({metrics[key]:,} queries)": recalls(metrics, group)
            for group, label in GROUPS[first.name].items()
            if metrics.get(key := f"{group}/queries" if group else "queries")
        }
        title = f"{metrics['retriever']} on {metrics['data']}, split {metrics['split']}"
        recall_plot(folder / PLOT, curves, f"{title}: {first.candidates:,} candidates")
        sections = [published_query_forms().markdown] if self.f1 else []
        write_text(folder / REPORT, prefetch_report(metrics, provenance, PLOT, facts, sections))
        write_text(folder / METRICS, json.dumps(metrics, indent=1) + "\n")
