"""benchmark=drafts: what a writer gets (library.recommender, library.draft).

Each citation of a draft is masked in turn (library.drafts.collection) and asked over the bibliography of its
author. A query is a citation and one of the papers that it cites; papers cited by the same command are taken
out of its ranking, as other answers are in link prediction (Bordes et al. 2013, "filtered"). It is a
re-citation if another citation of the draft cites the paper, else a first citation.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar

import msgspec
import numpy as np
import numpy.typing as npt

from citerec.base.files import atomic_write, digest_file
from citerec.base.progress import count_progress
from citerec.evaluation.benchmark import Benchmark, Data, Output, RetrieverFactory
from citerec.evaluation.benchmarks.contexts.draft_baseline import (
    NAMED,
    add_prior,
    count_citations,
    with_names,
)
from citerec.evaluation.measures import PerQuery
from citerec.evaluation.report import METRICS, PER_QUERY, Column, Metrics, Part, Provenance, Report, Table
from citerec.evaluation.settings import DRAFT, DraftsSettings
from citerec.evaluation.significance import DRAWS, format_p, holm, intervals, paired_difference
from citerec.library.drafts.collection import (
    MaskedDraft,
    Question,
    find_cited,
    find_drafts,
    questions,
    quiet,
    read_papers,
)
from citerec.library.drafts.reader import Draft
from citerec.library.drafts.suggest import citing_passages, known_papers, place_request
from citerec.library.memory.library import MemoryLibrary, in_memory
from citerec.library.models import PLAIN, model_files
from citerec.library.papers import LibraryPaper
from citerec.library.question import Request
from citerec.library.recommender import Recommender
from citerec.retrieval.queries import SURROUNDINGS, WINDOW, Query

log = logging.getLogger(__name__)

PARTS = "drafts"
"""Folder of the results per draft; a run that was interrupted goes on with the others."""
MODEL, BASELINE = "model", "baseline"
MEASURES = {"recall@10": "R@10", "mrr": "MRR", "hit@1": "hit@1"}
KINDS = {"": "all", "first/": "first", "again/": "re-citations"}
"""Prefixes of the measures in metrics.json, and labels of the queries."""
TESTED = ("recall@10", "mrr")
LABELS = {"as_is": "as they are", "titles": "titles only", "merged": "all merged"}
BATCH = 32
"""Citations between two steps of the progress bar."""

Floats = npt.NDArray[np.float64]


class Ranks(msgspec.Struct):
    """Per query [Q]: rank of the cited paper (0: not found), in its group, its score, the best score there.

    group: the rank among the papers that other citations of the draft cite, for re-citations, and among those
    that they do not, for first citations.
    """

    rank: list[int] = []
    group: list[int] = []
    score: list[float | None] = []
    best: list[float | None] = []


class DraftResult(msgspec.Struct, kw_only=True):
    """Results of a draft.

    starts: 1 for the first query of each citation [Q]. calibrated: the model's scores are logarithms of
    probabilities.
    identity: of the run's inputs and settings. papers: in the author's bibliography. abstracts: the share of
    them with one. absent: cited keys that it lacks. again: 1 for re-citations [Q].
    ranks: {MODEL or BASELINE: {PROTOCOL/COMMAND: ranks}}.
    """

    identity: str
    name: str
    field: str
    language: str
    papers: int
    abstracts: float
    absent: int
    query_ids: list[str]
    again: list[int]
    starts: list[int]
    ranks: dict[str, dict[str, Ranks]]
    calibrated: bool

    def values(self, who: str, group: str) -> dict[str, Floats]:
        """Return the measures of the queries [Q]."""
        ranks = self.ranks[who][group]
        return _measures(ranks.rank) | {f"group/{k}": v for k, v in _measures(ranks.group).items()}

    def certainty(self, who: str, group: str) -> tuple[Floats, Floats]:
        """Return the probability of the best paper of each citation [C], and whether it is cited there."""
        ranks, starts = self.ranks[who][group], np.flatnonzero(self.starts)
        score, best = (np.array(values, np.float64) for values in (ranks.score, ranks.best))
        right = np.maximum.reduceat((score == best).astype(np.float64), starts)
        return np.nan_to_num(np.exp(best[starts])), right

    def means(self, who: str, group: str) -> dict[str, float]:
        """Return the means over all queries, first citations and re-citations; NaN if there are none."""
        again = np.array(self.again, np.bool_)
        chosen = {"": np.ones(len(again), np.bool_), "first/": ~again, "again/": again}
        values = self.values(who, group)
        return {
            f"{kind}{name}": float(values[name][rows].mean()) if rows.any() else np.nan
            for kind, rows in chosen.items()
            for name in values
        }


def _measures(rank: Sequence[int]) -> dict[str, Floats]:
    place = np.array(rank, np.float64)
    found = place > 0
    hits = {"recall@10": found & (place <= 10), "hit@1": place == 1}
    reciprocal = np.divide(1, place, out=np.zeros(len(place)), where=found)
    return {"mrr": reciprocal} | {name: hit.astype(np.float64) for name, hit in hits.items()}


class Drafts(Benchmark):
    """Evaluates a library's model on drafts, next to a baseline."""

    settings: DraftsSettings
    settings_class: ClassVar[type[DraftsSettings]] = DraftsSettings
    columns: ClassVar[Sequence[str]] = tuple(f"*/{DRAFT}/{name}" for name in MEASURES)
    compared: ClassVar[Mapping[str, str]] = {}
    about = f"""\
- Each citation of a draft is masked in turn, with all keys of its command, and asked over the bibliography
  of its author by the code of `citerec ask` (title and abstract of the draft, and {WINDOW} characters on each
  side of the mark; rankers also read {max(SURROUNDINGS.values()):,}) and of `citerec draft` (its other
  citations and the passages around them are known, too, and papers cited in the same sentence are not
  offered).
- A query is a citation and one paper that it cites, among the papers that the same command does not cite.
  R@10 is the share of queries whose paper is among the first 10, hit@1 of those where it is first, MRR the
  mean of 1 / rank. First: no other citation of the draft cites the paper; re-citations: another one does.
- Numbers are means over drafts of their means over queries. Brackets: 95 % intervals; p: two-sided
  randomisation tests. Both draw drafts ({DRAWS:,} times, so p is at least {1 / (DRAWS + 1):.4f}). Holm's p is
  corrected for all tests of the table.
- In their group: first citations among the papers that no other citation of the draft cites, re-citations
  among those that another one does, as `citerec draft` shows them.
- Sure: for each citation, the probability of the best paper, and whether it is cited there, over all drafts.
  ECE: expected calibration error, the mean difference of the two over the bins.
- As they are: each author's bibliography is a library. Titles only: without its abstracts. All merged: the
  bibliographies of all drafts are one library."""

    def run(
        self, folder: Path, provenance: Provenance, retriever: RetrieverFactory, data: Data | None = None
    ) -> Report:
        given = self.settings
        models = {MODEL: given.model} | ({BASELINE: given.baseline} if given.baseline else {})
        files = {model: model_files(_bm25_or(model))[0] for model in models.values()}
        drafts, left_out = find_drafts(Path(given.drafts or "").expanduser(), given.languages)
        for line in left_out:
            log.warning("%s", line)
        if (folder / METRICS).is_file():  # finished: repeated rather than continued
            (folder / METRICS).unlink()
            for file in (folder / PARTS).glob("*.json"):
                file.unlink()
        results = _Run(given, models, folder / PARTS, _identity(given, files, drafts)).results(drafts)
        metrics = _metrics(given, results)
        _per_query(results).write(folder / PER_QUERY)
        outputs = {given.model: Output(folder, dict(metrics), asdict(given))}
        parts = [self.about, *self.view(outputs, ""), *(f"Left out: {line}" for line in left_out)]
        report = Report(f"Drafts: {given.model}", metrics, parts)
        report.write(folder, provenance)
        return report

    @classmethod
    def view(cls, outputs: Mapping[str, Output], title: str) -> list[Part]:
        baseline = next(iter(outputs.values())).settings["baseline"]
        metrics = {name: output.metrics for name, output in outputs.items()}
        read = {name: read_results(output.folder / PARTS) for name, output in outputs.items()}
        return [
            _count(next(iter(metrics.values()))),
            Table.of(_rows(metrics, baseline), _COLUMNS, "drafts"),
            *_differences(metrics, baseline),
            *_reliability(read),
            _draft_table(read, baseline),
        ]


class _Run:
    """Asks the citations of drafts, and keeps the results of each draft in a file."""

    def __init__(self, given: DraftsSettings, models: Mapping[str, str], folder: Path, identity: str) -> None:
        self.given, self.models, self.folder, self.identity = given, models, folder, identity

    def results(self, drafts: Sequence[MaskedDraft]) -> list[DraftResult]:
        """Return the results of all drafts, those of former runs included."""
        done = {one.name: one for one in read_results(self.folder) if one.identity == self.identity}
        left = [draft for draft in drafts if draft.name not in done]
        passes = len(self.models) * len(self.given.protocols) * len(self.given.commands)
        asked = sum(self._asked(len(draft.draft.places)) for draft in left) * passes
        with TemporaryDirectory() as place, count_progress("asking", asked) as advance:
            merged: dict[str, Recommender] = {}
            if left and "merged" in self.given.protocols:
                bibs = [bib for draft in drafts for bib in draft.bibs]
                papers = read_papers(bibs, Path(place) / "all", logging.ERROR)
                merged = self._libraries(Path(place), "merged", papers)
            for draft in left:
                with TemporaryDirectory(dir=place) as own:
                    done[draft.name] = self._ask(draft, Path(own), merged, advance)
                with atomic_write(self.folder / f"{draft.name}.json") as part:
                    part.write_bytes(msgspec.json.encode(done[draft.name]))
        return [done[draft.name] for draft in drafts]

    def _asked(self, citations: int) -> int:
        return min(citations, self.given.queries or citations)

    def _libraries(self, folder: Path, name: str, papers: Sequence[LibraryPaper]) -> dict[str, Recommender]:
        """Return a library of these papers for each model."""
        found = {}
        with quiet(logging.ERROR):
            for who, model in self.models.items():
                texts = list(map(with_names, papers)) if model == NAMED else papers
                library = MemoryLibrary.create(folder / f"{name}-{who}", texts, model=_bm25_or(model))
                found[who] = Recommender(library)
        return found

    def _ask(
        self,
        one: MaskedDraft,
        place: Path,
        merged: Mapping[str, Recommender],
        advance: Callable[[int], None],
    ) -> DraftResult:
        papers = read_papers(one.bibs, place / "bibliography")
        library = MemoryLibrary.open(place / "bibliography")
        draft, known = find_cited(one.draft, library)
        asked = self._sample(one.name, questions(draft, known))
        skipped, calibrated = self._asked(len(draft.places)) - len(asked), False
        ranks: dict[str, dict[str, Ranks]] = {who: {} for who in self.models}
        for protocol in self.given.protocols:
            found = merged
            if protocol != "merged":
                plain = [paper._replace(abstract="") for paper in papers if paper.title]
                found = self._libraries(place, protocol, plain if protocol == "titles" else papers)
            calibrated = found[MODEL].calibrated
            for who, recommender in found.items():
                for command in self.given.commands:
                    prior = command == DRAFT and self.models[who] == NAMED
                    answers = _answer(draft, asked, recommender, command, self.given.depth, prior, advance)
                    ranks[who][f"{protocol}/{command}"] = answers
                    advance(skipped)
        keys = [key for place in one.draft.places for key in place.replaced]
        return DraftResult(
            identity=self.identity,
            name=one.name,
            field=one.field,
            language=one.language,
            papers=len(papers),
            abstracts=sum(bool(paper.abstract) for paper in papers) / len(papers),
            absent=sum(key not in known for key in keys),
            query_ids=_query_ids(one, asked),
            again=[int(paper in question.again) for question in asked for paper in question.targets],
            starts=[int(row == 0) for question in asked for row in range(len(question.targets))],
            ranks=ranks,
            calibrated=calibrated,
        )

    def _sample(self, name: str, asked: list[Question]) -> list[Question]:
        size = self._asked(len(asked))
        chosen = random.Random(f"{self.given.seed} {name}").sample(range(len(asked)), size)
        return [asked[row] for row in sorted(chosen)]


def _answer(
    draft: Draft,
    asked: Sequence[Question],
    recommender: Recommender,
    command: str,
    depth: int,
    prior: bool,
    advance: Callable[[int], None],
) -> Ranks:
    """Ask the questions about a draft; return the ranks of all papers that they cite, in order.

    prior: papers that the draft cites elsewhere come earlier (draft_baseline).
    """
    library = in_memory(recommender.library)
    known, own = known_papers(draft, library)
    passages, ranks = citing_passages(draft, known), Ranks()
    times = count_citations(draft, known, library) if prior else {}
    for start in range(0, len(asked), BATCH):
        batch = asked[start : start + BATCH]
        if command == DRAFT:
            elsewhere = [{key: known[key] for key in question.known if key in known} for question in batch]
            requests = [
                place_request(draft, question.place, papers, own, passages)
                for question, papers in zip(batch, elsewhere, strict=True)
            ]
        else:
            texts = [question.place.context for question in batch]
            requests = [Request(Query(text, draft.title, draft.abstract)) for text in texts]
        most = max(len(question.targets) for question in batch)
        deep = len(library) if prior else depth + most - 1
        rankings = [recommender.ranked(request, deep).ranking for request in requests]
        for question, ranking in zip(batch, rankings, strict=True):
            ranking = add_prior(ranking, question, times, library) if prior else ranking
            papers, scores = ranking.papers[0].tolist(), ranking.scores[0].tolist()
            elsewhere_cited = {library.row(known[key]) for key in question.known if key in known}
            targets = [library.row(known.get(key, "")) for key in question.targets.values()]
            for target in targets:
                place = papers.index(target) if target in papers else len(papers)
                rank = 1 + place - sum(paper in targets for paper in papers[:place])
                found = place < len(papers) and rank <= depth
                in_group = target in elsewhere_cited
                others = sum(
                    paper not in targets and (paper in elsewhere_cited) == in_group
                    for paper in papers[:place]
                )
                ranks.rank.append(rank if found else 0)
                ranks.group.append(1 + others if place < len(papers) and others < depth else 0)
                ranks.score.append(scores[place] if found else None)
                ranks.best.append(scores[0] if papers and papers[0] >= 0 else None)
        advance(len(batch))
    return ranks


def _bm25_or(model: str) -> str:
    """Return the model of a library: BM25 for NAMED, whose libraries and scores differ."""
    return PLAIN if model == NAMED else model


def _identity(
    given: DraftsSettings, models: Mapping[str, Mapping[str, Path]], drafts: Sequence[MaskedDraft]
) -> str:
    """Return a hash of the settings, the models, the drafts and their bibliographies."""
    hashed = hashlib.blake2b(
        repr((Ranks.__struct_fields__, replace(given, drafts=""))).encode(), digest_size=16
    )
    for name, files in models.items():
        for part, path in sorted(files.items()):
            inside = sorted(path.rglob("*")) if path.is_dir() else [path]
            digests = [digest_file(file) for file in inside if file.is_file()]
            hashed.update(repr((name, part, digests)).encode())
    for one in drafts:
        texts = [text for _, text in sorted(one.draft.files.items())]
        hashed.update(repr((one.name, texts, list(map(digest_file, one.bibs)))).encode())
    return hashed.hexdigest()


def _query_ids(one: MaskedDraft, asked: Sequence[Question]) -> list[str]:
    """Return DRAFT:FILE:LINE:KEY per query, with #2, #3, ... for further ones of the same line and key."""
    times: Counter[str] = Counter()
    ids = []
    for question in asked:
        file = question.place.file.relative_to(one.root.resolve())
        for key in question.targets.values():
            name = f"{one.name}:{file.as_posix()}:{question.place.line}:{key}"
            times[name] += 1
            ids.append(name if times[name] == 1 else f"{name}#{times[name]}")
    return ids


def read_results(folder: Path) -> list[DraftResult]:
    """Read the results of each draft in the folder of an evaluation; unreadable ones are left out."""
    found = []
    for file in sorted(folder.glob("*.json")):
        with contextlib.suppress(msgspec.DecodeError, msgspec.ValidationError):
            found.append(msgspec.json.decode(file.read_bytes(), type=DraftResult))
    return found


def _metrics(given: DraftsSettings, results: Sequence[DraftResult]) -> dict[str, dict[str, Any]]:
    """Return the means over drafts by PROTOCOL/COMMAND, with intervals, and differences from the baseline."""
    again, queries = (sum(map(count, (of.again for of in results))) for count in (sum, len))
    counts = {"drafts": len(results), "candidates": sum(of.papers for of in results), "queries": queries}
    counts |= {"first/queries": queries - again, "again/queries": again}
    metrics: dict[str, dict[str, Any]] = {}
    for group in results[0].ranks[MODEL]:
        means = {who: _draft_means(results, who, group) for who in results[0].ranks}
        metrics[group] = dict(counts)
        for who, prefix in ((MODEL, ""), (BASELINE, "baseline/")):
            if who in means:
                metrics[group] |= _with_intervals(means[who], prefix, given.seed)
        if BASELINE in means:
            for name, values in means[MODEL].items():
                rows = ~np.isnan(values)
                if rows.any():
                    other = means[BASELINE][name][rows]
                    one = paired_difference(values[rows], other, np.arange(len(other)), seed=given.seed)
                    ends = {"": one.difference, "/low": one.low, "/high": one.high, "/p": one.p}
                    metrics[group] |= {f"difference/{name}{end}": value for end, value in ends.items()}
    return metrics


def _draft_means(results: Sequence[DraftResult], who: str, group: str) -> dict[str, Floats]:
    """Return each mean of a draft, for all drafts [D]."""
    means = [of.means(who, group) for of in results]
    return {name: np.array([one[name] for one in means]) for name in means[0]}


def _with_intervals(means: Mapping[str, Floats], prefix: str, seed: int) -> dict[str, float]:
    """Return the means over drafts and the ends of their intervals; without measures that no draft has."""
    known = {name: values for name, values in means.items() if not np.isnan(values).all()}
    columns = np.stack(list(known.values()), axis=1)
    low, high = intervals(columns, np.arange(len(columns)), seed=seed)
    found: dict[str, float] = {}
    for name, mean, *ends in zip(known, np.nanmean(columns, axis=0), low, high, strict=True):
        found |= {f"{prefix}{name}": float(mean)}
        if not np.isnan(ends).any():
            found |= {f"{prefix}{name}/low": float(ends[0]), f"{prefix}{name}/high": float(ends[1])}
    return found


def _per_query(results: Sequence[DraftResult]) -> PerQuery:
    """Return rank, score and best score of each query, and its measures under the first protocol."""
    values = {"again": np.concatenate([np.array(of.again, np.float64) for of in results])}
    first = next(iter(results[0].ranks[MODEL]))
    measured = [of.values(MODEL, first) for of in results]
    values |= {name: np.concatenate([of[name] for of in measured]) for name in MEASURES}
    for who, groups in results[0].ranks.items():
        for group in groups:
            for name in Ranks.__struct_fields__:
                columns = [np.array(getattr(of.ranks[who][group], name), np.float64) for of in results]
                values[f"{who}/{group}/{name}"] = np.concatenate(columns)
    ids = [query for of in results for query in of.query_ids]
    return PerQuery(ids, [of.name for of in results for _ in of.query_ids], values)


_COLUMNS = (
    Column("recall@10", "R@10", interval=True),
    Column("mrr", "MRR", interval=True),
    Column("hit@1", "hit@1"),
    Column("first/recall@10", "first: R@10"),
    Column("first/mrr", "MRR"),
    Column("again/recall@10", "re-citations: R@10"),
    Column("again/mrr", "MRR"),
    Column("first/group/recall@10", "first, in their group: R@10"),
    Column("first/group/mrr", "MRR"),
    Column("again/group/recall@10", "re-citations, in their group: R@10"),
    Column("again/group/mrr", "MRR"),
)
BINS = 10
SURE = 0.5
"""Least probability to fill a citation (library.settings)."""


def _count(metrics: Metrics) -> str:
    one = next(iter(metrics.values()))
    return (
        f"{one['drafts']} drafts, {one['candidates']:,} papers in their bibliographies, {one['queries']:,} "
        f"queries: {one['first/queries']:,} first citations, {one['again/queries']:,} re-citations."
    )


def _rows(results: Mapping[str, Metrics], baseline: str | None) -> dict[str, dict[str, float]]:
    """Return the rows of the main table: for each protocol and command the baseline, then the models."""
    rows: dict[str, dict[str, float]] = {}
    for group in dict.fromkeys(group for metrics in results.values() for group in metrics):
        label = "{}, {}".format(*_labels(group))
        for name, metrics in results.items():
            found = metrics.get(group, {})
            others = [key for key in found if key.startswith("baseline/")]
            if others:
                of_baseline = {key.removeprefix("baseline/"): found[key] for key in others}
                rows.setdefault(f"{label}: {baseline}", of_baseline)
            rows[f"{label}: {name}"] = found
    return rows


def _labels(group: str) -> tuple[str, str]:
    protocol, command = group.split("/")
    return LABELS[protocol], command


def _differences(results: Mapping[str, Metrics], baseline: str | None) -> list[Table]:
    """Return a table of the differences between models and the baseline; nothing without a baseline."""
    tested, places = list[list[str]](), list[tuple[list[str], int, float]]()
    for name, metrics in results.items():
        for group, found in metrics.items():
            for kind, label in KINDS.items():
                row = [name, *_labels(group), label]
                if any(f"difference/{kind}{measure}" not in found for measure in TESTED):
                    continue
                for measure in TESTED:
                    key = f"{kind}{measure}"
                    low, high, p = (found[f"difference/{key}/{end}"] for end in ("low", "high", "p"))
                    other = found[f"baseline/{key}"]
                    row += [f"{found[key] / other:.2f}" if other else ""]
                    row += [f"{found[f'difference/{key}']:+.3f} [{low:+.3f}, {high:+.3f}]", format_p(p), ""]
                    places.append((row, len(row) - 1, p))
                tested.append(row)
    for (row, column, _), p in zip(places, holm([p for *_, p in places]), strict=True):
        row[column] = format_p(p, tests=len(places))
    test = ["difference", "p", "p, Holm"]
    head = ["A", "bibliographies", "command", "citations", f"R@10, A / {baseline}", *test]
    return [Table([*head, f"MRR, A / {baseline}", *test], tested, brief=False)] if tested else []


def _reliability(results: Mapping[str, Sequence[DraftResult]]) -> list[Table]:
    """Return a table of how often the best paper is right, by its probability, for calibrated models."""
    rows = []
    for name, drafts in results.items():
        calibrated = [of for of in drafts if of.calibrated and of.starts]
        for group in calibrated[0].ranks[MODEL] if calibrated else ():
            pairs = [of.certainty(MODEL, group) for of in calibrated]
            sure, right = (np.concatenate(part) for part in zip(*pairs, strict=True))
            place, error = np.minimum((sure * BINS).astype(int), BINS - 1), 0.0
            row = [name, *_labels(group)]
            for number in range(BINS):
                of = place == number
                if of.any():
                    error += of.mean() * abs(sure[of].mean() - right[of].mean())
                row.append(f"{of.sum():,}: {sure[of].mean():.2f}, {right[of].mean():.2f}" if of.any() else "")
            filled = sure >= SURE
            correct = f"{right[filled].mean():.1%}" if filled.any() else ""
            rows.append([*row, f"{error:.3f}", f"{filled.mean():.1%}", correct])
    bins = [f"{number / BINS:.1f} to {(number + 1) / BINS:.1f}" for number in range(BINS)]
    head = ["citations: probability, share right", "bibliographies", "command", *bins]
    head += ["ECE", f"at least {SURE}", "right among them"]
    return [Table(head, rows, brief=False)] if rows else []


def _draft_table(results: Mapping[str, Sequence[DraftResult]], baseline: str | None) -> Table:
    """Return a table of the drafts, with R@10 and MRR under the first protocol and the last command."""
    first = next(iter(results.values()))
    protocol = next(iter(first[0].ranks[MODEL])).split("/")[0]
    group = [group for group in first[0].ranks[MODEL] if group.startswith(f"{protocol}/")][-1]
    shown = {baseline or "": (first, BASELINE)} if BASELINE in first[0].ranks else {}
    shown |= {name: (drafts, MODEL) for name, drafts in results.items()}
    head = ["{}, {}".format(*_labels(group)), "field", "language", "papers", "abstracts", "queries", "first"]
    measures, rows = {name: MEASURES[name] for name in ("recall@10", "mrr")}, []
    for row, of in enumerate(first):
        share = 1 - sum(of.again) / max(len(of.again), 1)
        cells = [f"{of.papers:,}", f"{of.abstracts:.0%}", f"{len(of.again):,}", f"{share:.0%}"]
        means = [drafts[row].means(who, group) for drafts, who in shown.values()]
        figures = [f"{one[name]:.3f}" for name in measures for one in means]
        rows.append([of.name, of.field, of.language, *cells, *figures])
    head += [f"{MEASURES[measure]} {name}" for measure in ("recall@10", "mrr") for name in shown]
    return Table(head, rows, brief=False)
