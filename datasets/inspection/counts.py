"""Papers, contexts and years of each split; seen and unseen targets; what is empty or cannot be found."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from datasets.inspection.findings import Line, Number, Section
from datasets.inspection.queries import (
    NO_SPLIT,
    Citations,
    context_columns,
    paper_examples,
    query_line,
    roles,
    splits_of_contexts,
)
from datasets.schema import TRAIN
from datasets.store import Corpus

Splits = Mapping[str, Citations]


def paper_section(corpus: Corpus, has_authors: NDArray[np.bool_]) -> Section:
    """Papers by role, what they lack, their years. has_authors [P]."""
    columns = roles(corpus)
    wholes = {column: int(members.sum()) for column, members in columns.items()}
    lacking = {
        "no_title": ("without a title", corpus.title_tokens.lengths == 0),
        "no_abstract": ("without an abstract", corpus.abstract_tokens.lengths == 0),
        "no_year": ("without a year", corpus.years == 0),
        "no_authors": ("without authors", ~has_authors),
    }
    lines = [Line("papers", "papers", wholes)]
    for key, (what, lacks) in lacking.items():
        found = {column: np.flatnonzero(lacks & members) for column, members in columns.items()}
        counts = {column: len(rows) for column, rows in found.items()}
        examples = {column: paper_examples(corpus, rows) for column, rows in found.items()}
        lines.append(Line(key, what, counts, wholes, examples))
    years = {column: corpus.years[members] for column, members in columns.items()}
    note = (
        "Candidates are what may be recommended. Citing papers have a context, cited ones are a target in "
        "some split; the last column has those that are neither."
    )
    return Section("papers", "Papers", note, list(columns), [*lines, *_year_lines("year", "year", years)])


def split_section(corpus: Corpus, splits: Splits) -> Section:
    """Contexts, papers and citations of each split."""
    contexts = {name: len(split.split) for name, split in splits.items()}
    citations = {name: len(split.query) for name, split in splits.items()}
    citing = {name: len(split.citing_papers) for name, split in splits.items()}
    cited = {name: len(split.cited_papers) for name, split in splits.items()}
    columns = context_columns(corpus)
    in_none = {NO_SPLIT: int((splits_of_contexts(corpus) < 0).sum())} if NO_SPLIT in columns else {}
    lines = [
        Line("contexts", "contexts", {**contexts, **in_none}),
        Line("citing", "citing papers", citing),
        Line("cited", "cited papers", cited),
        Line("citations", "targets, counted for each context", citations),
        query_line(
            corpus,
            splits,
            "several",
            "contexts with several targets",
            {name: split.targets > 1 for name, split in splits.items()},
        ),
        Line("per_citing", "contexts of a citing paper, on average", _means(contexts, citing)),
        Line("per_cited", "contexts that a cited paper is a target of, on average", _means(citations, cited)),
    ]
    for other, split in splits.items():
        shared = {
            name: np.intersect1d(own.citing_papers, split.citing_papers, assume_unique=True)
            for name, own in splits.items()
            if name != other
        }
        counts = {name: len(rows) for name, rows in shared.items()}
        examples = {name: paper_examples(corpus, rows) for name, rows in shared.items()}
        if shared:
            what = f"citing papers that have contexts in {other} too"
            lines.append(Line(f"citing_in_{other}", what, counts, citing, examples))
    note = (
        "Targets are the papers to be found. A citing paper may have contexts in two splits of one group, as "
        "test and test_sentences; in others it is refused when the data are read."
    )
    return Section("splits", "Splits", note, columns, lines)


def target_section(corpus: Corpus, splits: Splits) -> Section:
    """Targets that training contexts cite, and that they do not; targets that are never found."""
    lines = []
    if TRAIN in corpus.splits:
        of_cited = {name: len(split.cited_papers) for name, split in splits.items()}
        seen = {name: np.zeros(len(split.split), np.bool_) for name, split in splits.items()}
        for name, split in splits.items():
            seen[name][split.query[corpus.seen[split.cited]]] = True
        lines = [
            query_line(corpus, splits, "seen", "contexts with a target that is seen", seen),
            query_line(
                corpus,
                splits,
                "unseen",
                "contexts whose targets are all unseen",
                {name: ~marked for name, marked in seen.items()},
            ),
        ]
        for key, what, wanted in (
            ("papers_seen", "cited papers that are seen", True),
            ("papers_unseen", "cited papers that are unseen", False),
        ):
            counts = {
                name: int((corpus.seen[split.cited_papers] == wanted).sum()) for name, split in splits.items()
            }
            lines.append(Line(key, what, counts, of_cited))
    never: dict[str, tuple[str, dict[str, NDArray[np.bool_]]]] = {
        "itself": (
            "contexts with the citing paper itself as a target",
            {name: split.cited == split.citing for name, split in splits.items()},
        ),
        "no_candidate": (
            "contexts with a target that is no candidate",
            {name: ~corpus.is_candidate[split.cited] for name, split in splits.items()},
        ),
    }
    for key, (what, marked) in never.items():
        of_queries = {name: split.any(marked[name]) for name, split in splits.items()}
        lines.append(query_line(corpus, splits, key, what, of_queries))
    note = (
        "The citing paper is never among the candidates of its contexts, so that such a target is never "
        "found, and neither is one that is no candidate."
    )
    seen_note = (
        f"Seen: some context of {TRAIN} cites the paper."
        if TRAIN in corpus.splits
        else f"There is no split {TRAIN}: seen and unseen targets are not told apart."
    )
    return Section("targets", "Seen and unseen targets", f"{seen_note} {note}", list(splits), lines)


def year_section(corpus: Corpus, splits: Splits) -> Section:
    """Years of the citing and the cited papers of each split."""
    lines = [
        *_year_lines(
            "citing",
            "citing papers, year",
            {name: corpus.years[split.citing_papers] for name, split in splits.items()},
        ),
        *_year_lines(
            "cited",
            "cited papers, year",
            {name: corpus.years[split.cited_papers] for name, split in splits.items()},
        ),
    ]
    later = {}
    for name, split in splits.items():
        citing, cited = corpus.years[split.citing], corpus.years[split.cited]
        later[name] = split.any((citing != 0) & (cited > citing))
    what = "contexts with a target of a later year than the citing paper"
    lines.append(query_line(corpus, splits, "later", what, later))
    note = "Each paper counts once for a split; those without a year are left out."
    return Section("years", "Years", note, list(splits), lines)


def empty_section(corpus: Corpus, splits: Splits, words: NDArray[np.int64]) -> Section:
    """Contexts that lack words, or the texts of their papers. words [C] of the contexts, without marks."""
    no_title, no_abstract = corpus.title_tokens.lengths == 0, corpus.abstract_tokens.lengths == 0
    found = {
        "context": ("contexts without words", lambda split: words[split.split.contexts] == 0),
        "citing_title": (
            "contexts whose citing paper has no title",
            lambda split: no_title[corpus.citing[split.split.contexts]],
        ),
        "citing_abstract": (
            "contexts whose citing paper has no abstract",
            lambda split: no_abstract[corpus.citing[split.split.contexts]],
        ),
        "cited_title": (
            "contexts with a target without a title",
            lambda split: split.any(no_title[split.cited]),
        ),
        "cited_abstract": (
            "contexts with a target without an abstract",
            lambda split: split.any(no_abstract[split.cited]),
        ),
    }
    lines = [
        query_line(corpus, splits, key, what, {name: marked(split) for name, split in splits.items()})
        for key, (what, marked) in found.items()
    ]
    note = "What a query or its target lacks. The marks of citations are no words."
    return Section("empty", "Empty fields of the contexts", note, list(splits), lines)


def _year_lines(key: str, what: str, years: Mapping[str, NDArray[np.int32]]) -> list[Line]:
    known = {column: found[found != 0] for column, found in years.items()}
    lines = []
    for name, measure in (("earliest", np.min), ("median", np.median), ("latest", np.max)):
        values: dict[str, Number] = {
            column: _whole(float(measure(found))) if len(found) else None for column, found in known.items()
        }
        lines.append(Line(f"{key}_{name}", f"{what}: {name}", values, is_year=True))
    return lines


def _whole(value: float) -> int | float:
    return int(value) if value.is_integer() else value


def _means(counts: Mapping[str, int], of: Mapping[str, int]) -> dict[str, Number]:
    return {name: count / of[name] if of[name] else None for name, count in counts.items()}
