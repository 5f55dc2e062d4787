"""benchmark=drafts: what a writer gets (library.ask.recommender, library.drafts).

Each citation of a draft is masked in turn (library.benchmark.collection) and asked over the bibliography of
its author. A query is a citation and one of the papers that it cites; papers cited by the same command are
taken out of its ranking, as other answers are in link prediction (Bordes et al. 2013, "filtered"). It is a
re-citation if another citation of the draft cites the paper, else a first citation.
"""

from __future__ import annotations

import logging
import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import ClassVar

import msgspec

from citerec.base.files import atomic_write
from citerec.base.progress import count_progress
from citerec.datasets.published.drafts import draft_folder
from citerec.datasets.records import SECTION, WINDOW
from citerec.evaluation.benchmark import Benchmark, Data, Output, RetrieverFactory
from citerec.evaluation.report import PER_QUERY, Column, Metrics, Part, Provenance, Report, remove_results
from citerec.evaluation.significance import DRAWS
from citerec.formats.bibliography.paper import LibraryPaper
from citerec.library.ask.question import Request
from citerec.library.ask.recommender import Recommender
from citerec.library.benchmark.collection import (
    MaskedDraft,
    Question,
    asked_request,
    find_cited,
    find_drafts,
    make_library,
    questions,
    quiet,
)
from citerec.library.benchmark.results import (
    BASELINE,
    MODEL,
    DraftResult,
    Ranks,
    drafts_metrics,
    headline_rows,
    per_query,
    read_results,
    result_parts,
)
from citerec.library.benchmark.settings import ASK, WRITTEN, DraftsSettings
from citerec.library.drafts.copies import are_sure
from citerec.library.drafts.reader import Draft
from citerec.library.drafts.suggest import citing_passages, known_papers
from citerec.library.papers.encoding import encode
from citerec.library.papers.library import Library
from citerec.library.papers.models import model_files
from citerec.library.settings import DraftSettings
from citerec.retrieval.queries import Query

log = logging.getLogger(__name__)

PARTS = "drafts"
"""Folder of the results per draft."""


class Drafts(Benchmark):
    """Evaluates a library's model on drafts, next to a baseline."""

    settings: DraftsSettings
    settings_class: ClassVar[type[DraftsSettings]] = DraftsSettings
    compared: ClassVar[Mapping[str, str]] = {}
    about = f"""\
- Each citation of a draft is masked in turn, with all keys of its command, and asked over the bibliography
  of its author by the code of `citerec ask` (title and abstract of the draft, and {WINDOW} characters on each
  side of the mark; rankers also read {SECTION:,}) and of `citerec draft` (its other
  citations and the passages around them are known, too, and papers cited in the same sentence are not
  offered). Written so far: `draft` with what stands before the mark only, as when one writes from front to
  back.
- A query is a citation and one paper that it cites, among the papers that the same command does not cite.
  R@10 is the share of queries whose paper is among the first 10, hit@1 of those where it is first, MRR the
  mean of 1 / rank. First: no other citation of the draft cites the paper; re-citations: another one does, for
  first mentions only later in the text.
- Numbers are means over drafts of their means over queries. Brackets: 95 % intervals; p: two-sided
  randomisation tests, not corrected for their number. Both draw drafts ({DRAWS:,} times, so p is at least
  {1 / (DRAWS + 1):.4f}).
- Sure: for each citation, the probability of the best paper, and whether it is cited there, over all drafts.
  ECE: expected calibration error, the mean difference of the two over ten bins of the former.
- As they are: each author's bibliography is a library. Titles only: without its abstracts. All merged: the
  bibliographies of all drafts are one library."""

    def run(
        self, folder: Path, provenance: Provenance, retriever: RetrieverFactory, data: Data | None = None
    ) -> Report:
        settings = self.settings
        models = {MODEL: settings.model} | ({BASELINE: settings.baseline} if settings.baseline else {})
        for model in models.values():
            model_files(model)  # refuses an unknown one at once
        drafts, left_out = find_drafts(draft_folder(settings.drafts or ""), settings.languages)
        for line in left_out:
            log.warning("%s", line)
        results = self._results(models, drafts)
        for file in (folder / PARTS).glob("*.json"):  # of other drafts
            file.unlink()
        for result in results:
            with atomic_write(folder / PARTS / f"{result.name}.json") as part:
                part.write_bytes(msgspec.json.encode(result))
        metrics = drafts_metrics(settings, results)
        remove_results(folder)
        per_query(results).write(folder / PER_QUERY)
        outputs = {settings.model: Output(folder, dict(metrics), asdict(settings))}
        parts = [self.about, *self.view(outputs, ""), *(f"Left out: {line}" for line in left_out)]
        report = Report(f"Drafts: {settings.model}", metrics, parts)
        report.write(folder, provenance)
        return report

    def _results(self, models: Mapping[str, str], drafts: Sequence[MaskedDraft]) -> list[DraftResult]:
        """Ask the citations of drafts. models: by MODEL or BASELINE."""
        passes = len(models) * len(self.settings.protocols) * len(self.settings.commands)
        asked = sum(self._asked(len(draft.draft.places)) for draft in drafts) * passes
        results = []
        with TemporaryDirectory() as place, count_progress("asking", asked) as advance:
            merged: dict[str, Recommender] = {}
            if "merged" in self.settings.protocols:
                bibs = [bib for draft in drafts for bib in draft.bibs]
                papers = [*make_library(bibs, Path(place) / "all", logging.ERROR).papers()]
                merged = libraries(Path(place), "merged", papers, models)
            for draft in drafts:
                with TemporaryDirectory(dir=place) as own:
                    results.append(self._ask(draft, Path(own), models, merged, advance))
        return results

    def _asked(self, citations: int) -> int:
        return min(citations, self.settings.queries or citations)

    def _ask(
        self,
        masked: MaskedDraft,
        place: Path,
        models: Mapping[str, str],
        merged: Mapping[str, Recommender],
        advance: Callable[[int], None],
    ) -> DraftResult:
        library = make_library(masked.bibs, place / "bibliography")
        papers = [*library.papers()]
        draft, ids = find_cited(masked.draft, library)
        asked, draw = questions(draft, ids), random.Random(f"{self.settings.seed} {masked.name}")
        chosen = sorted(draw.sample(range(len(asked)), self._asked(len(asked))))
        asked = [asked[row] for row in chosen]
        skipped, calibrated = self._asked(len(draft.places)) - len(asked), False
        ranks: dict[str, dict[str, Ranks]] = {who: {} for who in models}
        for protocol in self.settings.protocols:
            recommenders = merged
            if protocol != "merged":
                plain = [paper._replace(abstract="") for paper in papers if paper.title]
                recommenders = libraries(place, protocol, plain if protocol == "titles" else papers, models)
            calibrated = recommenders[MODEL].library.retriever.log_probabilities
            for who, recommender in recommenders.items():
                for command in self.settings.commands:
                    answers = _answer(draft, asked, recommender, command, self.settings.depth, advance)
                    ranks[who][f"{protocol}/{command}"] = answers
                    advance(skipped)
        return DraftResult(
            name=masked.name,
            field=masked.field,
            language=masked.language,
            papers=len(papers),
            abstracts=sum(bool(paper.abstract) for paper in papers) / len(papers),
            query_ids=_query_ids(masked, asked),
            again=[int(paper in question.again) for question in asked for paper in question.targets],
            mentioned=[
                int(key in question.written) for question in asked for key in question.targets.values()
            ],
            starts=[int(row == 0) for question in asked for row in range(len(question.targets))],
            ranks=ranks,
            calibrated=calibrated,
        )

    @classmethod
    def headlines(cls, outputs: Mapping[str, Output]) -> tuple[dict[str, Metrics], Sequence[Column]]:
        """Return baseline and models, with R@10 and MRR of each command under the first protocol."""
        baseline = next(iter(outputs.values())).settings["baseline"]
        return headline_rows({name: output.metrics for name, output in outputs.items()}, baseline)

    @classmethod
    def view(cls, outputs: Mapping[str, Output], title: str) -> list[Part]:
        baseline = next(iter(outputs.values())).settings["baseline"]
        metrics = {name: output.metrics for name, output in outputs.items()}
        read = {name: read_results(output.folder / PARTS) for name, output in outputs.items()}
        return result_parts(metrics, read, baseline)


def libraries(
    folder: Path, name: str, papers: Sequence[LibraryPaper], models: Mapping[str, str]
) -> dict[str, Recommender]:
    """Return a library of these papers for each model."""
    recommenders = {}
    with quiet(logging.ERROR):
        for who, model in models.items():
            library = Library.create(folder / f"{name}-{who}", papers, model=model)
            encode(library)
            recommenders[who] = Recommender(library)
    return recommenders


def _answer(
    draft: Draft,
    asked: Sequence[Question],
    recommender: Recommender,
    command: str,
    depth: int,
    advance: Callable[[int], None],
) -> Ranks:
    """Ask the questions about a draft; return the ranks of all papers that they cite, in order."""
    library = recommender.library
    ids = known_papers(draft, library)
    passages, ranks = citing_passages(draft, ids), Ranks()
    for question in asked:
        place, text, known = question.place, draft, dict[str, str]()
        if command == ASK:
            request = Request(Query(place.context, draft.title, draft.abstract))
        else:
            request, text, known = asked_request(draft, question, ids, passages, command == WRITTEN)
        ranked = recommender.ranked(request, depth + len(question.targets) - 1)
        best, ranking = ranked.best(1)[:1], ranked.ranking
        is_filled = bool(best) and are_sure(text, place, known, best, DraftSettings.sure)
        papers, scores = ranking.papers[0].tolist(), ranking.scores[0].tolist()
        targets = [library.row(ids.get(key, "")) for key in question.targets.values()]
        for target in targets:
            above = papers.index(target) if target in papers else len(papers)
            rank = 1 + above - sum(paper in targets for paper in papers[:above])
            is_ranked = above < len(papers) and rank <= depth
            ranks.rank.append(rank if is_ranked else 0)
            ranks.score.append(scores[above] if is_ranked else None)
            ranks.best.append(scores[0] if papers and papers[0] >= 0 else None)
            ranks.filled.append(int(is_filled))
        advance(1)
    return ranks


def _query_ids(masked: MaskedDraft, asked: Sequence[Question]) -> list[str]:
    """Return DRAFT:FILE:LINE:KEY per query, with #2, #3, ... for further ones of the same line and key."""
    times: Counter[str] = Counter()
    ids = []
    for question in asked:
        file = question.place.file.relative_to(masked.root.resolve())
        for key in question.targets.values():
            name = f"{masked.name}:{file.as_posix()}:{question.place.line}:{key}"
            times[name] += 1
            ids.append(name if times[name] == 1 else f"{name}#{times[name]}")
    return ids
