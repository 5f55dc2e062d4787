"""benchmark=drafts: what a writer gets (library.ask.recommender, library.drafts).

Each citation of a draft is masked in turn (library.benchmark.collection) and asked over the bibliography of
its author. A query is a citation and one of the papers that it cites; papers cited by the same command are
taken out of its ranking, as other answers are in link prediction (Bordes et al. 2013, "filtered"). It is a
re-citation if another citation of the draft cites the paper, else a first citation.
"""

from __future__ import annotations

import hashlib
import logging
import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import ClassVar

import msgspec
import numpy as np

from citerec.base.files import atomic_write, digest_file
from citerec.base.progress import count_progress
from citerec.datasets.published.drafts import draft_folder
from citerec.datasets.records import SURROUNDINGS, WINDOW
from citerec.evaluation.benchmark import Benchmark, Data, Output, RetrieverFactory
from citerec.evaluation.report import METRICS, PER_QUERY, Column, Metrics, Part, Provenance, Report
from citerec.evaluation.settings import DRAFT
from citerec.evaluation.significance import DRAWS
from citerec.formats.bibliography.paper import LibraryPaper
from citerec.formats.names import surname
from citerec.library.ask.question import Request
from citerec.library.ask.recommender import Recommender
from citerec.library.benchmark.collection import (
    MaskedDraft,
    Question,
    find_cited,
    find_drafts,
    questions,
    quiet,
    read_papers,
    written_request,
)
from citerec.library.benchmark.results import (
    BASELINE,
    MEASURES,
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
from citerec.library.drafts.reader import Draft
from citerec.library.drafts.suggest import citing_passages, known_papers, place_request
from citerec.library.papers.encoding import encode
from citerec.library.papers.library import Library
from citerec.library.papers.models import PLAIN, model_files
from citerec.retrieval.base import Ranking
from citerec.retrieval.queries import Query

log = logging.getLogger(__name__)

PARTS = "drafts"
"""Folder of the results per draft; a run that was interrupted goes on with the others."""
BATCH = 32
"""Citations between two steps of the progress bar."""
NAMED = "bm25_names"
"""A model: BM25 that reads what rankers read, authors, years and what the draft cites elsewhere."""
PRIOR = 0.2
"""Weight of a paper's citations elsewhere: the best by R@10 and MRR over 85 drafts of other authors than
those of the published lists (.394 / .203; without .359 / .193, without names and years .351 / .185)."""


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
  offered). Written so far: `draft` with what stands before the mark only, as when one writes from front to
  back.
- A query is a citation and one paper that it cites, among the papers that the same command does not cite.
  R@10 is the share of queries whose paper is among the first 10, hit@1 of those where it is first, MRR the
  mean of 1 / rank. First: no other citation of the draft cites the paper; re-citations: another one does, for
  first mentions only later in the text.
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
        settings = self.settings
        models = {MODEL: settings.model} | ({BASELINE: settings.baseline} if settings.baseline else {})
        files = {model: model_files(_bm25_or(model))[0] for model in models.values()}
        drafts, left_out = find_drafts(draft_folder(settings.drafts or ""), settings.languages)
        for line in left_out:
            log.warning("%s", line)
        if (folder / METRICS).is_file():  # finished: repeated rather than continued
            (folder / METRICS).unlink()
            for file in (folder / PARTS).glob("*.json"):
                file.unlink()
        results = _Run(settings, models, folder / PARTS, _identity(settings, files, drafts)).results(drafts)
        metrics = drafts_metrics(settings, results)
        per_query(results).write(folder / PER_QUERY)
        outputs = {settings.model: Output(folder, dict(metrics), asdict(settings))}
        parts = [self.about, *self.view(outputs, ""), *(f"Left out: {line}" for line in left_out)]
        report = Report(f"Drafts: {settings.model}", metrics, parts)
        report.write(folder, provenance)
        return report

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


class _Run:
    """Asks the citations of drafts, and keeps the results of each draft in a file."""

    def __init__(
        self, settings: DraftsSettings, models: Mapping[str, str], folder: Path, identity: str
    ) -> None:
        self.settings, self.models, self.folder, self.identity = settings, models, folder, identity

    def results(self, drafts: Sequence[MaskedDraft]) -> list[DraftResult]:
        """Return the results of all drafts, those of former runs included."""
        done = {
            result.name: result for result in read_results(self.folder) if result.identity == self.identity
        }
        left = [draft for draft in drafts if draft.name not in done]
        passes = len(self.models) * len(self.settings.protocols) * len(self.settings.commands)
        asked = sum(self._asked(len(draft.draft.places)) for draft in left) * passes
        with TemporaryDirectory() as place, count_progress("asking", asked) as advance:
            merged: dict[str, Recommender] = {}
            if left and "merged" in self.settings.protocols:
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
        return min(citations, self.settings.queries or citations)

    def _libraries(self, folder: Path, name: str, papers: Sequence[LibraryPaper]) -> dict[str, Recommender]:
        """Return a library of these papers for each model."""
        recommenders = {}
        with quiet(logging.ERROR):
            for who, model in self.models.items():
                texts = list(map(with_names, papers)) if model == NAMED else papers
                library = Library.create(folder / f"{name}-{who}", texts, model=_bm25_or(model))
                encode(library)
                recommenders[who] = Recommender(library)
        return recommenders

    def _ask(
        self,
        masked: MaskedDraft,
        place: Path,
        merged: Mapping[str, Recommender],
        advance: Callable[[int], None],
    ) -> DraftResult:
        papers = read_papers(masked.bibs, place / "bibliography")
        library = Library.open(place / "bibliography")
        draft, ids = find_cited(masked.draft, library)
        asked = self._sample(masked.name, questions(draft, ids))
        skipped, calibrated = self._asked(len(draft.places)) - len(asked), False
        ranks: dict[str, dict[str, Ranks]] = {who: {} for who in self.models}
        for protocol in self.settings.protocols:
            recommenders = merged
            if protocol != "merged":
                plain = [paper._replace(abstract="") for paper in papers if paper.title]
                recommenders = self._libraries(place, protocol, plain if protocol == "titles" else papers)
            calibrated = recommenders[MODEL].calibrated
            for who, recommender in recommenders.items():
                for command in self.settings.commands:
                    prior = command != ASK and self.models[who] == NAMED
                    answers = _answer(draft, asked, recommender, command, self.settings.depth, prior, advance)
                    ranks[who][f"{protocol}/{command}"] = answers
                    advance(skipped)
        keys = [key for place in masked.draft.places for key in place.replaced]
        return DraftResult(
            identity=self.identity,
            name=masked.name,
            field=masked.field,
            language=masked.language,
            papers=len(papers),
            abstracts=sum(bool(paper.abstract) for paper in papers) / len(papers),
            absent=sum(key not in ids for key in keys),
            query_ids=_query_ids(masked, asked),
            again=[int(paper in question.again) for question in asked for paper in question.targets],
            mentioned=[
                int(key in question.written) for question in asked for key in question.targets.values()
            ],
            starts=[int(row == 0) for question in asked for row in range(len(question.targets))],
            ranks=ranks,
            calibrated=calibrated,
        )

    def _sample(self, name: str, asked: list[Question]) -> list[Question]:
        size = self._asked(len(asked))
        chosen = random.Random(f"{self.settings.seed} {name}").sample(range(len(asked)), size)
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

    prior: papers that the draft cites elsewhere come earlier (`add_prior`).
    """
    library = recommender.library
    ids = known_papers(draft, library)
    passages, ranks = citing_passages(draft, ids), Ranks()
    everywhere = count_citations(draft, ids, library) if prior else Counter[int]()
    for start in range(0, len(asked), BATCH):
        batch = asked[start : start + BATCH]
        requests = []
        for question in batch:
            place = question.place
            papers = {key: ids[key] for key in _known(question, command) if key in ids}
            if command == ASK:
                requests.append(Request(Query(place.context, draft.title, draft.abstract)))
            elif command == DRAFT:
                requests.append(place_request(draft, place, papers, passages))
            else:
                requests.append(written_request(draft, place, papers, ids))
        most = max(len(question.targets) for question in batch)
        deep = len(library) if prior else depth + most - 1
        rankings = [recommender.ranked(request, deep).ranking for request in requests]
        for question, ranking in zip(batch, rankings, strict=True):
            if prior:
                written = command == WRITTEN
                times = count_citations(draft, ids, library, question) if written else everywhere
                ranking = add_prior(ranking, question, times, library)
            papers, scores = ranking.papers[0].tolist(), ranking.scores[0].tolist()
            elsewhere_cited = {library.row(ids[key]) for key in _known(question, command) if key in ids}
            targets = [library.row(ids.get(key, "")) for key in question.targets.values()]
            for target in targets:
                above = papers.index(target) if target in papers else len(papers)
                rank = 1 + above - sum(paper in targets for paper in papers[:above])
                is_ranked = above < len(papers) and rank <= depth
                in_group = target in elsewhere_cited
                others = sum(
                    paper not in targets and (paper in elsewhere_cited) == in_group
                    for paper in papers[:above]
                )
                ranks.rank.append(rank if is_ranked else 0)
                ranks.group.append(1 + others if above < len(papers) and others < depth else 0)
                ranks.score.append(scores[above] if is_ranked else None)
                ranks.best.append(scores[0] if papers and papers[0] >= 0 else None)
        advance(len(batch))
    return ranks


def _known(question: Question, command: str) -> Sequence[str]:
    """Return the keys of the papers that are cited elsewhere."""
    return question.written if command == WRITTEN else question.known


def with_names(paper: LibraryPaper) -> LibraryPaper:
    """Add the surnames of the authors and the year to the text that BM25 reads."""
    words = [paper.abstract, *map(surname, paper.authors), str(paper.year or "")]
    return paper._replace(abstract=" ".join(filter(None, words)))


def count_citations(
    draft: Draft, ids: Mapping[str, str], library: Library, before: Question | None = None
) -> Counter[int]:
    """Count the citations of each paper of the library, in all passages or those before a question's.

    ids: of papers by the draft's keys.
    """
    places = [place for place in draft.places if before is None or place.passage < before.place.passage]
    cited = ({ids[key] for key in place.replaced if key in ids} for place in places)
    rows = (library.row(paper) for papers in cited for paper in papers)
    return Counter(row for row in rows if row is not None)


def add_prior(ranking: Ranking, question: Question, times: Mapping[int, int], library: Library) -> Ranking:
    """Add PRIOR times the best score times log(1 + n) to the papers that n other citations cite."""
    own = {library.row(paper) for paper in question.targets}
    papers, scores = ranking.papers[0], ranking.scores[0].astype(np.float64)
    other = np.array([max(times.get(row, 0) - (row in own), 0) for row in papers.tolist()])
    is_ranked = papers >= 0
    scores[is_ranked] += PRIOR * scores[is_ranked].max(initial=0) * np.log1p(other[is_ranked])
    order = np.argsort(-scores, kind="stable")
    return Ranking(papers[order][None], scores[order][None].astype(np.float32))


def _bm25_or(model: str) -> str:
    """Return the model of a library: BM25 for NAMED, whose libraries and scores differ."""
    return PLAIN if model == NAMED else model


def _identity(
    settings: DraftsSettings, models: Mapping[str, Mapping[str, Path]], drafts: Sequence[MaskedDraft]
) -> str:
    """Return a hash of the settings, the models, the drafts and their bibliographies."""
    hashed = hashlib.blake2b(
        repr((Ranks.__struct_fields__, replace(settings, drafts=""))).encode(), digest_size=16
    )
    for name, files in models.items():
        for part, path in sorted(files.items()):
            inside = sorted(path.rglob("*")) if path.is_dir() else [path]
            digests = [digest_file(file) for file in inside if file.is_file()]
            hashed.update(repr((name, part, digests)).encode())
    for masked in drafts:
        texts = [text for _, text in sorted(masked.draft.files.items())]
        hashed.update(repr((masked.name, texts, list(map(digest_file, masked.bibs)))).encode())
    return hashed.hexdigest()


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
