"""The drafts of a folder with their bibliographies, all citations masked (library.drafts.reader)."""

from __future__ import annotations

import contextlib
import logging
import random
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from citerec.base.errors import InputError
from citerec.base.progress import count_progress
from citerec.datasets.building.readers import find_files
from citerec.datasets.published.drafts import LIST, ListedDraft, read_list
from citerec.datasets.records import OTHER_MARKER, TARGET_MARKER
from citerec.formats.bibliography.reading.bibtex import read_bibtex
from citerec.formats.documents import Reference
from citerec.formats.drafts.languages import PLAIN
from citerec.formats.drafts.latex import LATEX
from citerec.formats.drafts.markdown import MARKDOWN
from citerec.library.ask.question import Request, mark_query
from citerec.library.drafts.reader import Draft, Place, read_draft
from citerec.library.drafts.suggest import citing_passages, known_papers, place_request
from citerec.library.papers.building import create
from citerec.library.papers.library import Library
from citerec.library.settings import BuildSettings
from citerec.retrieval.passages import CitingPassages
from citerec.retrieval.queries import Query


@dataclass(frozen=True)
class MaskedDraft:
    """A draft with all citations masked.

    root: the folder of its files. bibs: its author's bibliography. field, language: "" if unknown.
    """

    name: str
    draft: Draft
    root: Path
    bibs: Sequence[Path]
    field: str = ""
    language: str = ""


@dataclass(frozen=True)
class Question:
    """A masked citation of papers of a library.

    targets: their keys, by id. again: those that another citation of the draft cites, too.
    known: keys of the papers that other citations cite. written: those of them that stand before the mark.
    """

    place: Place
    targets: dict[str, str]
    again: set[str]
    known: list[str]
    written: list[str]


def find_drafts(
    folder: Path, languages: Sequence[str] = (), names: Sequence[str] = ()
) -> tuple[list[MaskedDraft], list[str]]:
    """Read the drafts of a folder, in order; also returns why others, and .bib files, were left out.

    languages, names: empty for all.

    The folder's list (datasets.published.drafts) names them. Without one, each subfolder has one draft, the
    document with most citations that its .bib files contain, and each document beside the subfolders is a
    draft.
    Raises InputError if there is no draft.
    """
    if not folder.is_dir():
        raise InputError(f"drafts={folder}: no such folder; citerec data drafts output={folder} fetches some")
    chosen = {
        name: drafts
        for name, drafts in _listed(folder).items()
        if (not languages or drafts[0].language in languages) and (not names or name in names)
    }
    if languages and not chosen:
        raise InputError(f"benchmark.languages: {folder} lists no draft in {', '.join(languages)}")
    masked, left_out = [], []
    with count_progress("reading drafts", len(chosen)) as advance:
        for name, candidates in chosen.items():
            read, reasons = [], []
            for candidate in candidates:
                try:
                    read.append(_read(folder, candidate))
                except InputError as error:
                    reasons.append(str(error))
            if read:
                best, odd = max(read, key=lambda drafts: sum(map(bool, drafts[0].draft.cited.values())))
                masked.append(best)
                left_out += [f"{name}: {line}" for line in odd]
            else:
                left_out.append(f"{name}: {reasons[0]}")
            advance(1)
    if not masked:
        reason = f" ({left_out[0]})" if left_out else ""
        raise InputError(f"drafts={folder}: no LaTeX or Markdown draft that cites its .bib files{reason}")
    return masked, left_out


def _listed(folder: Path) -> dict[str, list[ListedDraft]]:
    """Return the documents that may be the drafts of a folder, by the names of the drafts."""
    if (folder / LIST).is_file():
        return {listed.name: [listed] for listed in read_list(folder / LIST)}
    drafts: dict[str, list[ListedDraft]] = {}
    with contextlib.suppress(InputError):  # no files
        for path in (file.path for file in find_files(str(folder))):
            if path.suffix.lower() in (*MARKDOWN.suffixes, PLAIN, *LATEX.suffixes):
                first, *others = path.relative_to(folder).parts
                name, main = (first, str(Path(*others))) if others else (path.stem, first)
                drafts.setdefault(name, []).append(ListedDraft(name, main, []))
    return drafts


def _read(folder: Path, listed: ListedDraft) -> tuple[MaskedDraft, list[str]]:
    """Read a draft; also returns which of its .bib files have no papers. Raises InputError if none has."""
    inside = folder / listed.name
    root = inside if listed.bib or (inside / listed.main).is_file() else folder
    path, bibs = root / listed.main, [root / bib for bib in listed.bib]
    draft = read_draft(path, root, masked=True)
    used = bibs or draft.bibs
    if missing := [str(bib) for bib in used if not bib.is_file()]:
        raise InputError(f"{missing[0]}: no such file; fetch the draft again, or correct {LIST}")
    if not used:
        raise InputError(f"{path}: names no .bib file that is in its folder")
    odd = {bib: reason for bib in used if (reason := _why_empty(bib))}
    if len(odd) == len({*used}):
        raise InputError(next(iter(odd.values())))
    usable = [bib for bib in used if bib not in odd]
    return MaskedDraft(listed.name, draft, root, usable, listed.field, listed.language), [*odd.values()]


def _why_empty(bib: Path) -> str:
    """Return why no paper can be read from a .bib file; "" if one can."""
    try:
        return "" if any(True for _ in read_bibtex(bib, lambda _: None)) else f"{bib}: has no usable paper"
    except InputError as error:
        return str(error)


def questions(draft: Draft, ids: Mapping[str, str]) -> list[Question]:
    """Return a question for each citation of at least one paper of the library.

    ids: of the papers that the draft cites, by key (library.drafts.suggest.known_papers).
    """
    cited = [{ids[key]: key for key in reversed(place.replaced) if key in ids} for place in draft.places]
    times = Counter(paper for papers in cited for paper in papers)
    passages, asked = citing_passages(draft, ids), []
    for place, papers in zip(draft.places, cited, strict=True):
        if papers:
            before = {ids[key] for _, keys in draft.passages[: place.passage] for key in keys if key in ids}
            copied = passages.copied(place.passage)
            again = {paper for paper in papers if times[paper] > 1 and paper not in copied}
            known = [key for key, paper in ids.items() if paper not in papers or paper in again]
            written = [key for key in known if ids[key] in before]
            asked.append(Question(place, papers, again, known, written))
    return asked


def asked_request(
    draft: Draft, question: Question, ids: Mapping[str, str], passages: CitingPassages, written: bool
) -> tuple[Request, Draft, dict[str, str]]:
    """Return the request of `citerec draft` for a citation, the draft as it is then known, and the papers
    that it then cites, by key. written: only what stands before the mark is known.

    With `written`, a mark with no words before it is asked with the title, as in editors, or what follows.
    """
    place, keys = question.place, question.written if written else question.known
    papers = {key: ids[key] for key in keys if key in ids}
    if not written:
        return place_request(draft, place, papers, passages), draft, papers
    before = replace(draft, passages=draft.passages[: place.passage])
    context = place.context[: place.context.rindex(TARGET_MARKER) + len(TARGET_MARKER)]
    if not re.search(r"\w", context.replace(TARGET_MARKER, "").replace(OTHER_MARKER, "")):
        context = f"{draft.title} {TARGET_MARKER}" if re.search(r"\w", draft.title) else place.context
    place = replace(place, context=context, beside=tuple(key for key in place.beside if key in papers))
    return place_request(before, place, papers, citing_passages(before, ids)), before, papers


def sample_queries(
    masked: MaskedDraft, library: Library, size: int, written: bool = False
) -> tuple[list[Query], list[list[int]], list[set[int]]]:
    """Return at most `size` masked citations of a draft, drawn with its name as seed, over its author's
    library: the queries of `asked_request`, the rows of the papers that they cite, and of those that the same
    sentence cites, which are not offered."""
    draft, ids = masked.draft, known_papers(masked.draft, library)
    asked, passages, row_of = questions(draft, ids), citing_passages(draft, ids), library.corpus.paper_row
    asked = random.Random(masked.name).sample(asked, min(len(asked), size))
    requests = [asked_request(draft, question, ids, passages, written)[0] for question in asked]
    cited = [[row_of(ids[key]) for key in question.targets.values()] for question in asked]
    beside = [{row_of(paper) for paper in request.filters.exclude} for request in requests]
    return [mark_query(request.query) for request in requests], cited, beside


def find_cited(draft: Draft, library: Library) -> tuple[Draft, dict[str, str]]:
    """Return the ids of the papers of the author's library that a draft cites, by key.

    The returned draft cites these by their titles there, so that they are found in any library, even if the
    draft's own entry lacks its title.
    """
    ids = known_papers(draft, library)
    titles = {key: library.corpus.titles[library.corpus.paper_row(paper)] for key, paper in ids.items()}
    return replace(draft, cited={key: Reference(title=title) for key, title in titles.items()}), ids


def make_library(bibs: Sequence[Path], library: Path, level: int = logging.WARNING) -> Library:
    """Return a library of .bib files, as `citerec build` writes it."""
    with quiet(level):
        return create(BuildSettings(library=str(library), source=tuple(map(str, bibs)), model="bm25"))[0]


@contextlib.contextmanager
def quiet(level: int) -> Iterator[None]:
    """Log only from this level on, as there are many libraries."""
    logger = logging.getLogger("citerec")
    before = logger.level
    logger.setLevel(level)
    try:
        yield
    finally:
        logger.setLevel(before)
