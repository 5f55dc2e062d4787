"""What came of one protocol: its ranking, the values of its queries, their means and how sure those are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from datasets.corpus import Corpus
from evaluation.files import PER_QUERY, QRELS, RUN
from evaluation.measures import PerQuery, f1, means, query_values
from evaluation.protocol import Protocol, Qrels, file_of, key_of
from evaluation.significance import intervals
from retrieval.base import Ranking
from retrieval.run import Run


@dataclass(frozen=True)
class Outcome:
    """A protocol, what was found and what was to be found, and the measures of each query."""

    protocol: Protocol
    run: Run
    qrels: Qrels
    values: PerQuery
    seconds: float
    """of the search"""

    @classmethod
    def of(
        cls,
        protocol: Protocol,
        corpus: Corpus,
        ranking: Ranking,
        name: str,
        cutoffs: list[int],
        seconds: float,
        f1_at: Sequence[int] = (),
    ) -> Outcome:
        """Measure a ranking of the queries of a protocol by `name`; f1_at: the ranks of F1."""
        rows = protocol.queries.contexts
        ids = [corpus.context_ids[row] for row in rows.tolist()]
        citing = [corpus.paper_ids[row] for row in corpus.citing[rows].tolist()]
        run, qrels = Run(ids, corpus.paper_ids, ranking, name), Qrels.of_split(corpus, protocol.queries)
        values = PerQuery(ids, citing, query_values(run, qrels, cutoffs, f1_at))
        return cls(protocol, run, qrels, values, seconds)

    def metrics(self, seed: int) -> dict[str, float | int]:
        """Of all queries and of each group: means, the ends of their intervals, and how many queries.

        An interval is left out where the queries stand in one citing paper only.
        """
        groups = {"": np.ones(len(self.values), np.bool_), **self.protocol.groups}
        found: dict[str, float | int] = {}
        columns = np.stack(list(self.values.values.values()), axis=1)
        wide = np.hstack(
            [np.where(members[:, None], columns, np.nan) for members in groups.values() if members.any()]
        )
        low, high = intervals(wide, self.values.papers, seed=seed)
        ends = iter(zip(low.tolist(), high.tolist(), strict=True))
        for group, members in groups.items():
            prefix = f"{group}/" if group else ""
            for name, value in means(self.values.values, members).items():
                found[prefix + name] = value
                first, last = next(ends)
                if not np.isnan(first):
                    found |= {f"{prefix}{name}/low": first, f"{prefix}{name}/high": last}
                if name.startswith("f1@"):  # Citeomatic prints this one too
                    parts = (found[prefix + name.replace("f1", part)] for part in ("precision", "recall"))
                    found[f"{prefix}{name}/of_means"] = float(f1(*parts))
            found[f"{prefix}queries"] = int(np.count_nonzero(members))
            if not group:
                found |= {"citing_papers": int(self.values.papers.max()) + 1}
                found |= {"candidates": self.protocol.candidates}
                found |= {"seconds_per_query": self.seconds / len(self.values)}
        return {key_of(name, self.protocol.name): value for name, value in found.items()}

    def write(self, folder: Path, depth: int | None, stage: str = "") -> None:
        """Write qrels, the values of each query and the first `depth` papers of the run (None: all).

        stage: what the names of files begin with, where there are several outcomes of one protocol.
        """
        self.qrels.write(folder / file_of(QRELS, self.protocol.name))
        self.values.write(folder / file_of(stage + PER_QUERY, self.protocol.name))
        if depth != 0:
            head = self.run.ranking if depth is None else head_of(self.run.ranking, depth)
            run = Run(self.run.query_ids, self.run.paper_ids, head, self.run.name)
            run.write(folder / file_of(stage + RUN, self.protocol.name))


def head_of(ranking: Ranking, depth: int) -> Ranking:
    """The first `depth` papers of each query, and those that have the score of the last of them.

    With the equals, tools that order equal scores in their own way find the same first papers in the head as
    in the whole.
    """
    if ranking.k <= depth:
        return ranking
    keep = ranking.scores >= ranking.scores[:, depth - 1 : depth]
    width = int(keep.sum(axis=1).max(initial=depth))
    papers = np.where(keep, ranking.papers, -1).astype(np.int32)[:, :width]
    scores = np.where(keep, ranking.scores, -np.inf).astype(np.float32)[:, :width]
    return Ranking(papers, scores)
