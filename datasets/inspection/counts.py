"""Papers, contexts and years of each split; seen and unseen targets; what is empty or cannot be found.

The splits of a corpus as arrays that the findings are counted from.
A few contexts to read, with the papers that cite and are cited.
How many words the texts have.
Bad records that data.on_error=skip left out of a corpus, by kind and file.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from datasets.corpus import Corpus, Split
from datasets.inspection.findings import EXAMPLES, Line, Number, Section
from datasets.prepare import DROPPED
from datasets.records import TARGET_MARKER, TRAIN

NO_SPLIT = "no split"
"""The column of contexts that no split has. No split has such a name: there is a space in it."""


@dataclass(frozen=True)
class Citations:
    """The cited papers of a split, one after the other: query [n], citing [n] and cited [n] papers (rows)."""

    split: Split
    query: NDArray[np.int64]
    citing: NDArray[np.int32]
    cited: NDArray[np.int32]

    @classmethod
    def of(cls, corpus: Corpus, split: Split) -> Citations:
        query = np.repeat(np.arange(len(split)), split.positives.lengths)
        return cls(split, query, corpus.citing[split.contexts][query], split.positives.values)

    @cached_property
    def citing_papers(self) -> NDArray[np.int32]:
        """Each once, in order."""
        return np.unique(self.citing)

    @cached_property
    def cited_papers(self) -> NDArray[np.int32]:
        """Each once, in order."""
        return np.unique(self.cited)

    @property
    def targets(self) -> NDArray[np.int64]:
        """How many each query has [Q]."""
        return self.split.positives.lengths

    def any(self, marked: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Queries [Q] of which some target [n] is marked."""
        found = np.zeros(len(self.split), np.bool_)
        found[self.query[marked]] = True
        return found


def citations(corpus: Corpus) -> dict[str, Citations]:
    """By the name of the split."""
    return {name: Citations.of(corpus, split) for name, split in corpus.splits.items()}


def splits_of_contexts(corpus: Corpus) -> NDArray[np.int32]:
    """For each context [C] the number of its split, in the order of corpus.splits, or -1."""
    found = np.full(len(corpus.context_ids), -1, np.int32)
    for number, split in enumerate(corpus.splits.values()):
        found[split.contexts] = number
    return found


def context_columns(corpus: Corpus) -> list[str]:
    """The names of the splits, and NO_SPLIT where contexts are in none."""
    some = sum(map(len, corpus.splits.values())) < len(corpus.context_ids)
    return [*corpus.splits, *([NO_SPLIT] if some else [])]


def query_line(
    corpus: Corpus,
    splits: Mapping[str, Citations],
    key: str,
    what: str,
    marked: Mapping[str, NDArray[np.bool_]],
    of: Mapping[str, int] | None = None,
) -> Line:
    """How many of the queries are marked [Q] in each split, of all or of so many, and which come first.

    of: None for all of a split. Of 0 queries there is no number.
    """
    of = of or {name: len(split.split) for name, split in splits.items()}
    rows = {name: splits[name].split.contexts[found] for name, found in marked.items()}
    return Line(
        key,
        what,
        {name: len(found) if of[name] else None for name, found in rows.items()},
        of,
        {name: [corpus.context_ids[row] for row in found[:EXAMPLES]] for name, found in rows.items()},
    )


def paper_examples(corpus: Corpus, rows: NDArray[np.integer]) -> list[str]:
    """Ids of the first few of these papers."""
    return [corpus.paper_ids[row] for row in rows[:EXAMPLES]]


def roles(corpus: Corpus) -> dict[str, NDArray[np.bool_]]:
    """Papers [P] by what they are in the corpus: all, candidates, citing, cited, neither of the two."""
    every = np.ones(len(corpus.paper_ids), np.bool_)
    citing, cited = ~every, ~every
    citing[corpus.citing] = True
    for split in corpus.splits.values():
        cited[split.positives.values] = True
    return {
        "all": every,
        "candidates": corpus.is_candidate,
        "citing": citing,
        "cited": cited,
        "neither": ~(citing | cited),
    }


SENTENCES = 2
"""Of an abstract that are shown, and"""
CHARACTERS = 400
"""so much of them."""

_SENTENCE_ENDS = re.compile(r"(?<=[.!?])\s+(?=[A-Z0-9(\"'])")


@dataclass(frozen=True)
class ShownPaper:
    """A paper for people; year 0 is unknown, `start` are the first sentences of its abstract."""

    id: str
    title: str
    year: int
    start: str

    @property
    def name(self) -> str:
        """Title and year."""
        return f"{self.title.strip() or 'no title'}{f' ({self.year})' if self.year else ''}"


@dataclass(frozen=True)
class Example:
    """A context, parted at its mark, and its papers."""

    split: str
    context: str
    before: str
    after: str
    citing: ShownPaper
    targets: Sequence[ShownPaper]


def draw_examples(corpus: Corpus, count: int, seed: int) -> list[Example]:
    """So many contexts, from the splits by turns, the same for a seed; all there are if they are fewer."""
    draws = {
        name: random.Random(f"{seed} {name}").sample(range(len(split)), min(count, len(split)))
        for name, split in corpus.splits.items()
    }
    turns = [(name, draw[turn]) for turn in range(count) for name, draw in draws.items() if turn < len(draw)]
    order = list(corpus.splits)
    chosen = sorted(turns[:count], key=lambda turn: order.index(turn[0]))
    return [_example(corpus, name, query) for name, query in chosen]


def first_sentences(text: str) -> str:
    """The first sentences of a text, cut at a word where they are long.

    >>> first_sentences("We parse. It is 3.5 times faster. Nobody knows why.")
    'We parse. It is 3.5 times faster. …'
    """
    text = " ".join(text.split())
    start = " ".join(_SENTENCE_ENDS.split(text)[:SENTENCES])
    if len(start) > CHARACTERS:
        start = start[:CHARACTERS].rpartition(" ")[0] or start[:CHARACTERS]
    return start if start == text else f"{start} …"


def _example(corpus: Corpus, name: str, query: int) -> Example:
    split = corpus.splits[name]
    row = int(split.contexts[query])
    before, _, after = corpus.context_texts[row].partition(TARGET_MARKER)
    targets = [_shown(corpus, target) for target in split.positives[query].tolist()]
    citing = _shown(corpus, int(corpus.citing[row]))
    return Example(name, corpus.context_ids[row], before, after, citing, targets)


def _shown(corpus: Corpus, row: int) -> ShownPaper:
    start = first_sentences(corpus.abstracts[row])
    return ShownPaper(corpus.paper_ids[row], corpus.titles[row], int(corpus.years[row]), start)


QUANTILES = {"p1": 1, "p5": 5, "p25": 25, "median": 50, "p75": 75, "p95": 95, "p99": 99}
"""Per cent, by column."""

COLUMNS = ("texts", "mean", "least", *QUANTILES, "most")


def length_section(
    corpus: Corpus,
    contexts: NDArray[np.int64],
    titles: NDArray[np.int64],
    abstracts: NDArray[np.int64],
) -> Section:
    """Words of the contexts [C] of each split, and of titles and abstracts [P] that are not empty."""
    lines = [
        _line(f"contexts_{name}", f"contexts of {name}", contexts[split.contexts])
        for name, split in corpus.splits.items()
    ]
    lines += [
        _line("titles", "titles", titles[titles > 0]),
        _line("abstracts", "abstracts", abstracts[abstracts > 0]),
    ]
    note = (
        "Running words: signs alone and the marks of citations are none. p5 is the length that 5 % of the "
        "texts do not exceed."
    )
    return Section("lengths", "Lengths in words", note, COLUMNS, lines)


def _line(key: str, what: str, lengths: NDArray[np.int64]) -> Line:
    if not len(lengths):
        return Line(key, what, {"texts": 0})
    # The method gives lengths that there are, not means of two.
    quantiles = np.percentile(lengths, list(QUANTILES.values()), method="inverted_cdf")
    values: Mapping[str, Number] = {
        "texts": len(lengths),
        "mean": float(lengths.mean()),
        "least": int(lengths.min()),
        **{column: int(value) for column, value in zip(QUANTILES, quantiles, strict=True)},
        "most": int(lengths.max()),
    }
    return Line(key, what, values)


def dropped_section(corpus: Corpus) -> Section | None:
    """Counts of each kind of bad record, and the first of them; None if none was left out."""
    files = {counts["file"]: counts for counts in corpus.dropped.values()}
    kinds = dict.fromkeys(kind for counts in files.values() for kind in counts["kinds"])
    if not kinds:
        return None
    first: dict[tuple[str, str], list[str]] = {}
    for line in (corpus.path / DROPPED).read_text("utf-8").splitlines():
        example = json.loads(line)
        named = first.setdefault((example["kind"], example["file"]), [])
        if len(named) < EXAMPLES:
            named.append(str(example["record"]))
    lines = [
        Line(
            key=kind.replace(" ", "_"),
            what=kind,
            values={file: counts["kinds"].get(kind, 0) for file, counts in files.items()},
            of={file: counts["records"] for file, counts in files.items()},
            examples={file: first.get((kind, file), []) for file in files},
        )
        for kind in kinds
    ]
    note = "Records that cannot be used, as data.on_error=skip says: they are in none of the other numbers."
    return Section("dropped", "Bad records left out", note, list(files), lines)


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
