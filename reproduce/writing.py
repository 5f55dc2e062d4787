"""Simulate writing: ask for each citation when its author added it, by the git history of public drafts.

    python reproduce/writing.py reproduce/lists/writing.yaml FOLDER

For a commit that adds a citation, the passage is asked with all that the previous commit knew: the draft's
citations and the papers of its .bib file or, if the cited paper came into that file later, the papers of the
file's last version. FOLDER keeps the repositories (owner+name/repo, cloned if missing) and the ranks; a run
that was interrupted goes on with the drafts that are missing. Prints the table of docs/results/writing.md.
"""

import io
import json
import random
import re
import subprocess
import sys
import tarfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from fnmatch import fnmatch
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import numpy as np

from citerec.base.errors import InputError
from citerec.base.progress import count_progress
from citerec.datasets.published.drafts import TEXTS, ListedDraft, read_list
from citerec.evaluation.significance import intervals
from citerec.formats.bibliography.reading.bibtex import read_bibtex
from citerec.library.ask.question import Filters, Request
from citerec.library.ask.recommender import Recommender
from citerec.library.benchmark.collection import find_cited, make_library
from citerec.library.benchmark.drafts import libraries
from citerec.library.drafts.reader import Draft, Place, read_draft
from citerec.library.drafts.suggest import citing_passages, place_request
from citerec.library.papers.library import Library
from citerec.retrieval.queries import Query

QUESTIONS, PER_COMMIT, DEPTH, SEED = 12, 3, 100, 0
"""Questions per draft and per commit; number of papers that are ranked."""
ASKED = {"bm25": ("bm25", "ask"), "ask": ("builtin", "ask"), "draft": ("builtin", "draft")}


class Added(NamedTuple):
    """A citation that a commit adds. before: keys of the .bib file; known: those that the draft cited."""

    draft: Draft
    place: Place
    key: str
    before: frozenset[str]
    known: frozenset[str]


def git(repository: Path, *arguments: str) -> bytes:
    return subprocess.run(
        ["git", "--git-dir", repository, *arguments], capture_output=True, check=True
    ).stdout


def check_out(repository: Path, commit: str, folder: Path) -> None:
    """Write the texts of a commit."""
    names = git(repository, "ls-tree", "-r", "-z", "--name-only", commit).decode().split("\0")
    texts = [name for name in names if any(fnmatch(name.rpartition("/")[2], glob) for glob in TEXTS)]
    content = git(repository, "archive", commit, "--", *texts)
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        files = [member for member in archive if member.isfile()]  # no links out
        archive.extractall(folder, files, filter="data")


def read(folder: Path, listed: ListedDraft) -> tuple[Draft, list[Path]]:
    """Read the draft, all citations masked, and its .bib files."""
    draft = read_draft(folder / listed.main, folder, masked=True)
    bibs = [folder / bib for bib in listed.bib if (folder / bib).is_file()] or draft.bibs
    return draft, bibs


def keys_of(bibs: list[Path]) -> frozenset[str]:
    return frozenset(paper.key for bib in bibs for paper in read_bibtex(bib, lambda _: None))


def adds_key(repository: Path, before: str, after: str, keys: frozenset[str]) -> bool:
    """True if a commit writes one of the keys more often than it removes it, so that it is worth reading."""
    texts = [glob for glob in TEXTS if not glob.endswith((".bib", ".bbl"))]
    times = Counter[str]()
    for line in (
        git(repository, "diff", "--unified=0", before, after, "--", *texts)
        .decode("utf-8", "ignore")
        .splitlines()
    ):
        if line[:1] in ("+", "-") and line[:3] not in ("+++", "---"):
            written = (key for key in re.findall(r"[\w:.+/-]*\w", line[1:]) if key in keys)
            times.update(written) if line[0] == "+" else times.subtract(written)
    return any(count > 0 for count in times.values())


def additions(repository: Path, listed: ListedDraft, keys: frozenset[str]) -> Iterator[Added]:
    """Yield the citations that commits add, commits in random order. keys: of the last .bib file."""
    lines = git(repository, "log", "--first-parent", "--format=%H %P", listed.commit, "--", *TEXTS)
    pairs = [line.split()[:2] for line in lines.decode().splitlines() if " " in line.strip()]
    generator = random.Random(SEED)
    generator.shuffle(pairs)
    for after, before in pairs:
        if not adds_key(repository, before, after, keys):
            continue
        with TemporaryDirectory() as new, TemporaryDirectory() as old:
            try:
                check_out(repository, after, Path(new))
                check_out(repository, before, Path(old))
                (draft, _), (earlier, bibs) = read(Path(new), listed), read(Path(old), listed)
                before_keys = keys_of(bibs)
            except (InputError, subprocess.CalledProcessError):
                continue  # one of them cannot be read, such as a first version
        times = Counter(key for place in draft.places for key in place.replaced)
        times.subtract(key for place in earlier.places for key in place.replaced)
        old_places = {(place.sentence, place.replaced) for place in earlier.places}
        fresh = [place for place in draft.places if (place.sentence, place.replaced) not in old_places]
        added = [(place, key) for place in fresh for key in place.replaced if times[key] > 0]
        if added:
            rows = {place.passage for place, _ in added}
            passages = [passage for row, passage in enumerate(draft.passages) if row not in rows]
            known = frozenset(key for place in earlier.places for key in place.replaced)
            for place, key in generator.sample(added, min(PER_COMMIT, len(added))):
                row = place.passage - sum(other < place.passage for other in rows)
                written = replace(draft, passages=passages)
                yield Added(written, replace(place, passage=row), key, before_keys, known)


def ask(added: Added, library: Library, recommenders: dict[str, Recommender]) -> dict[str, int] | None:
    """Return the paper's rank for each of ASKED, 0 if it is not ranked; None if the library lacks it."""
    draft, ids = find_cited(added.draft, library)
    if added.key not in ids:
        return None
    target = ids[added.key]
    together = {ids[key] for key in added.place.replaced if key in ids} - {target}
    here = {id for id in map(library.storage.id_of, added.before) if id is not None}
    filters = Filters(only=sorted(here) if target in here else (), exclude=sorted(together))
    cited = {key: id for key, id in ids.items() if key in added.known}
    ranks = {"there": int(target in here)}
    for name, (model, command) in ASKED.items():
        if command == "ask":
            request = Request(Query(added.place.context, draft.title, draft.abstract), filters)
        else:
            request = place_request(draft, added.place, cited, citing_passages(draft, cited))
            beside = {*request.filters.exclude} - {target}
            request = replace(request, filters=replace(filters, exclude=sorted(together | beside)))
        ranking = recommenders[model].ranked(request, DEPTH).ids[:DEPTH]
        ranks[name] = ranking.index(target) + 1 if target in ranking else 0
    return ranks


def simulate(listed: ListedDraft, folder: Path) -> list[dict[str, int]]:
    repository = folder / listed.name / "repo"
    if not repository.is_dir():
        repository.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run(["git", "clone", "--quiet", "--bare", listed.repository, repository], check=True)
    with TemporaryDirectory() as place:
        check_out(repository, listed.commit, last := Path(place) / "last")
        _, bibs = read(last, listed)
        library = make_library(bibs, Path(place) / "bibliography")
        models = {model: model for model in ("bm25", "builtin")}
        recommenders = libraries(Path(place), "own", [*library.papers()], models)
        results = list[dict[str, int]]()
        for added in additions(repository, listed, keys_of(bibs)):
            if (ranks := ask(added, library, recommenders)) is not None:
                results.append(ranks)
            if len(results) == QUESTIONS:
                break
    return results


def main(source: Path, folder: Path) -> None:
    drafts, results = read_list(source), dict[str, list[dict[str, int]]]()
    with count_progress("drafts", len(drafts)) as advance:
        for listed in drafts:
            file = folder / f"{listed.name}.json"
            if not file.is_file():
                file.write_text(json.dumps(simulate(listed, folder)))
            results[listed.name] = json.loads(file.read_text())
            advance(1)
    asked = [ranks for ranks in results.values() if ranks]
    print(f"{len(asked)} drafts, {sum(map(len, asked)):,} citations")
    for where, there in (("all", (0, 1)), ("the paper was in the .bib file", (1,)), ("it came later", (0,))):
        chosen = [[rank for rank in ranks if rank["there"] in there] for ranks in asked]
        chosen = [ranks for ranks in chosen if ranks]
        for name in ASKED:
            ranks = [np.array([rank[name] for rank in draft]) for draft in chosen]
            hits = [np.mean((rank > 0) & (rank <= 10)) for rank in ranks]
            reciprocal = [np.mean(np.where(rank > 0, 1 / np.maximum(rank, 1), 0)) for rank in ranks]
            values = np.array([hits, reciprocal]).T
            low, high = intervals(values, np.arange(len(values)), seed=SEED)
            cells = [f"{m:.3f} [{a:.3f}, {b:.3f}]" for m, a, b in zip(values.mean(0), low, high, strict=True)]
            print(f"| {where} | {sum(map(len, ranks)):,} | {name} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
