"""Tables of papers, splits, targets, lengths, empty fields and dropped records."""

from __future__ import annotations

import json
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from citerec.datasets.corpus import Corpus
from citerec.datasets.inspect.tables import EXAMPLES, CorpusView, Line, Mask, Number, Rows, Table, count_line
from citerec.datasets.prepare import DROPPED
from citerec.datasets.records import TRAIN

QUANTILES = {"p5": 5, "median": 50, "p95": 95}
"""Percentiles by column."""


def paper_table(view: CorpusView, has_authors: Mask) -> Table:
    """Count papers, missing fields and years by role. has_authors [P]."""
    corpus, roles = view.corpus, view.papers_by_role()
    lacking = {
        "no_title": ("without a title", corpus.title_tokens.lengths == 0),
        "no_abstract": ("without an abstract", corpus.abstract_tokens.lengths == 0),
        "no_year": ("without a year", corpus.years == 0),
        "no_authors": ("without authors", ~has_authors),
    }
    lines = [
        Line("papers", "papers", {role: len(rows) for role, rows in roles.items()}),
        *(count_line(key, *line, roles, corpus.paper_ids.__getitem__) for key, line in lacking.items()),
        *_year_lines(view, roles),
    ]
    note = (
        "Candidates can be recommended. Citing papers have a context; cited papers are a target in some "
        "split; the last column counts papers that are neither."
    )
    return Table("papers", "Papers", note, list(roles), lines)


def split_table(view: CorpusView) -> Table:
    """Count contexts, papers and citations per split."""
    splits = view.corpus.splits
    contexts = {name: len(split) for name, split in splits.items()}
    citations = {name: len(split.positives.values) for name, split in splits.items()}
    citing = {name: len(rows) for name, rows in view.citing_papers.items()}
    cited = {name: len(rows) for name, rows in view.cited_papers.items()}
    several = np.bincount(view.context, minlength=len(view.split)) > 1
    lines = [
        Line("contexts", "contexts", contexts),
        Line("citing", "citing papers", citing),
        Line("cited", "cited papers", cited),
        Line("citations", "targets, counted per context", citations),
        view.line("several", "contexts with several targets", several),
        Line("per_citing", "contexts per citing paper (mean)", _ratios(contexts, citing)),
        Line("per_cited", "contexts per cited paper (mean)", _ratios(citations, cited)),
    ]
    for other, papers in view.citing_papers.items():
        cites_there = np.zeros(len(view.corpus.paper_ids), np.bool_)
        cites_there[papers] = True
        groups = {name: rows for name, rows in view.citing_papers.items() if name != other}
        if groups:
            what = f"citing papers that also have contexts in {other}"
            name = view.corpus.paper_ids.__getitem__
            lines.append(count_line(f"citing_in_{other}", what, cites_there, groups, name))
    note = (
        "Targets are the cited papers to be found. Only splits of one group, such as test and "
        "test_sentences, may share citing papers."
    )
    return Table("splits", "Splits", note, list(splits), lines)


def target_table(view: CorpusView) -> Table:
    """Count seen and unseen targets, and targets that can never be found."""
    corpus, lines = view.corpus, []
    has_train = TRAIN in corpus.splits
    if has_train:
        seen = view.contexts_with_target(corpus.seen[view.cited])
        lines = [
            view.line("seen", "contexts with a seen target", seen),
            view.line("unseen", "contexts with unseen targets only", ~seen),
        ]
        totals = {name: len(rows) for name, rows in view.cited_papers.items()}
        for key, marked in (("seen", corpus.seen), ("unseen", ~corpus.seen)):
            counts = {name: int(marked[rows].sum()) for name, rows in view.cited_papers.items()}
            lines.append(Line(f"papers_{key}", f"{key} cited papers", counts, totals))
    itself = view.contexts_with_target(view.cited == view.citing)
    no_candidate = view.contexts_with_target(~corpus.is_candidate[view.cited])
    citing, cited = corpus.years[view.citing], corpus.years[view.cited]
    later = view.contexts_with_target((citing != 0) & (cited > citing))
    lines += [
        view.line("itself", "contexts whose target is the citing paper itself", itself),
        view.line("no_candidate", "contexts with a target that is not a candidate", no_candidate),
        view.line("later", "contexts with a target newer than the citing paper", later),
    ]
    note = (
        f"Seen papers are cited in a context of {TRAIN}."
        if has_train
        else f"There is no split {TRAIN}, so targets are neither seen nor unseen."
    )
    note += " Targets that are not candidates are never found; nor is the citing paper for its own contexts."
    return Table("targets", "Seen and unseen targets", note, list(corpus.splits), lines)


def _year_lines(view: CorpusView, groups: Mapping[str, Rows]) -> list[Line]:
    years = {column: view.corpus.years[rows] for column, rows in groups.items()}
    lines = []
    for name, share in (("earliest", 0), ("median", 50), ("latest", 100)):
        values: dict[str, Number] = {}
        for column, dates in years.items():
            dated = dates[dates != 0]
            values[column] = int(np.percentile(dated, share, method="inverted_cdf")) if len(dated) else None
        lines.append(Line(f"year_{name}", f"{name} year", values, is_year=True))
    return lines


def length_table(
    corpus: Corpus, contexts: NDArray[np.int64], titles: NDArray[np.int64], abstracts: NDArray[np.int64]
) -> Table:
    """Lengths in words of the contexts [C] per split, and of non-empty titles and abstracts [P]."""
    lengths = {
        **{f"contexts_{name}": contexts[split.contexts] for name, split in corpus.splits.items()},
        "titles": titles[titles > 0],
        "abstracts": abstracts[abstracts > 0],
    }
    lines = []
    for key, words in lengths.items():
        values: dict[str, Number] = {"texts": len(words)}
        if len(words):
            # This method returns observed lengths, without interpolation.
            quantiles = np.percentile(words, list(QUANTILES.values()), method="inverted_cdf").astype(int)
            values |= {"mean": float(words.mean()), "least": int(words.min())}
            values |= dict(zip(QUANTILES, quantiles.tolist(), strict=True)) | {"most": int(words.max())}
        lines.append(Line(key, key.replace("_", " of ", 1), values))
    note = "Without punctuation and citation markers. p5: 5 % of the texts have at most this length."
    columns = ("texts", "mean", "least", *QUANTILES, "most")
    return Table("lengths", "Lengths in words", note, columns, lines)


def empty_table(view: CorpusView, words: NDArray[np.int64]) -> Table:
    """Count contexts that are empty or whose papers lack a text. words [C]: lengths without markers."""
    corpus = view.corpus
    lines = [view.line("context", "contexts without words", words == 0)]
    for paper in ("citing", "cited"):
        for text, tokens in (("title", corpus.title_tokens), ("abstract", corpus.abstract_tokens)):
            empty = tokens.lengths == 0
            marked = (
                empty[corpus.citing] if paper == "citing" else view.contexts_with_target(empty[view.cited])
            )
            what = f"contexts with a {paper} paper without {'an' if text == 'abstract' else 'a'} {text}"
            lines.append(view.line(f"{paper}_{text}", what, marked))
    note = "Missing parts of a query or its target. Citation markers do not count as words."
    return Table("empty", "Empty fields", note, list(corpus.splits), lines)


def bad_record_table(corpus: Corpus) -> Table | None:
    """Count the records dropped by data.on_error=skip by kind and file; None if there are none."""
    files = {counts["file"]: counts for counts in corpus.dropped.values()}
    kinds = dict.fromkeys(kind for counts in files.values() for kind in counts["kinds"])
    if not kinds:
        return None
    records: dict[tuple[str, str], list[str]] = {}
    for line in (corpus.path / DROPPED).read_text("utf-8").splitlines():
        example = json.loads(line)
        records.setdefault((example["kind"], example["file"]), []).append(str(example["record"]))
    totals = {file: counts["records"] for file, counts in files.items()}
    lines = [
        Line(
            kind.replace(" ", "_"),
            kind,
            {file: counts["kinds"].get(kind, 0) for file, counts in files.items()},
            totals,
            {file: records.get((kind, file), [])[:EXAMPLES] for file in files},
        )
        for kind in kinds
    ]
    note = "Records dropped by data.on_error=skip; no other number includes them."
    return Table("dropped", "Dropped records", note, list(files), lines)


def _ratios(counts: Mapping[str, int], totals: Mapping[str, int]) -> dict[str, Number]:
    return {name: count / totals[name] if totals[name] else None for name, count in counts.items()}
