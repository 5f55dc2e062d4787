"""`python recommend.py draft`: papers to cite where a draft lacks a citation, and a copy that cites them."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from datasets.errors import InputError
from datasets.files import atomic_write
from datasets.fulltext.catalogue import letters_of
from datasets.fulltext.latex import BIB_ENTRY, BIB_FILES, bib_entries
from library.draft_reader import HERE, MARKDOWN, Draft, Place, read_draft, read_text, syntax_for
from library.explanation import MARK, Recommendation
from library.formats import bibtex, count_noun, table, terminal_text
from library.library import Library
from library.recommender import Recommender, Request
from library.settings import DraftSettings
from retrieval.queries import Query

_INDENTED = (0, 0, 0, 2)


@dataclass(frozen=True)
class Suggestions:
    """found: papers for each place of the draft, under the keys that the draft has for them, if it has.

    known: id in the library of each paper that the draft cites and the library has, by the draft's key.
    """

    draft: Draft
    found: Sequence[Sequence[Recommendation]]
    known: dict[str, str]

    @property
    def unknown(self) -> list[str]:
        """Keys that neither the library nor the draft's bibliography has."""
        return [key for key, entry in self.draft.cited.items() if entry is None and key not in self.known]


def draft(settings: DraftSettings) -> None:
    """Print what to cite in a draft, and write the filled copy if one is wished for."""
    root = Path(settings.root).expanduser() if settings.root else None
    given = read_draft(Path(settings.tex).expanduser(), root)
    targets = copy_places(given, Path(settings.fill).expanduser(), root) if settings.fill else None
    recommender = Recommender.open(settings.library, settings.reranker)
    suggestions = suggest(given, recommender, settings.k)
    if targets is not None:  # first: who reads the report may stop
        for line in write_copies(suggestions, recommender.library, targets):
            print(line, file=sys.stderr)
    if settings.format == "json":
        print(json.dumps(as_json(suggestions), ensure_ascii=False, indent=1))
    else:
        report(suggestions, Console(highlight=False, soft_wrap=False))


def suggest(given: Draft, recommender: Recommender, k: int) -> Suggestions:
    """The k best papers for each place; neither the draft itself nor papers that its sentence cites."""
    known, own = known_papers(given, recommender.library)
    asked = []
    for place in given.places:
        beside = [known[key] for key in place.beside if key in known]
        query = Query(place.context, given.title, given.abstract, given.year, tuple(known.values()), own)
        asked.append(Request(query, exclude=beside))
    keys = {paper: key for key, paper in known.items()}
    found = [
        [replace(paper, key=keys.get(paper.id, paper.key)) for paper in papers]
        for papers in recommender.recommend_batch(asked, k)
    ]
    return Suggestions(given, found, known)


def known_papers(given: Draft, library: Library) -> tuple[dict[str, str], str | None]:
    """Ids in the library of the papers that a draft cites, by its keys, and of the draft itself.

    By the title in the draft's bibliography, else by the key: one key may stand for another paper elsewhere.
    """
    wanted = {key: letters_of(entry.title) for key, entry in given.cited.items() if entry and entry.title}
    titles = {*wanted.values(), letters_of(given.title)} - {""}
    corpus = library.corpus
    rows: dict[str, int] = {}
    if titles:
        for row, title in enumerate(corpus.titles):
            if (letters := letters_of(title)) in titles:
                rows.setdefault(letters, row)
    known = {}
    for key in given.cited:
        if (there := rows.get(wanted[key]) if key in wanted else library.row(key)) is not None:
            known[key] = corpus.paper_ids[there]
    own = rows.get(letters_of(given.title))
    return known, None if own is None else corpus.paper_ids[own]


def as_json(suggestions: Suggestions) -> dict[str, Any]:
    given = suggestions.draft
    places = [
        {
            "file": _name(given, place),
            "line": place.line,
            "command": place.command,
            "sentence": place.sentence,
            "beside": list(place.beside),
            "recommendations": [paper.as_json() for paper in papers],
        }
        for place, papers in zip(given.places, suggestions.found, strict=True)
    ]
    about = {"draft": str(given.path), "title": given.title, "abstract": given.abstract}
    return {**about, "places": places, "unknown": suggestions.unknown, "notes": list(given.notes)}


def report(suggestions: Suggestions, console: Console) -> None:
    """Each place with its sentence and the papers for it, for people."""
    given = suggestions.draft
    cited = f"cites {len(given.cited)}, of which the library has {len(suggestions.known)}"
    title = f"“{terminal_text(given.title)}”" if given.title else "without a title"
    places = f"{count_noun(len(given.places), 'place')} to fill"
    console.print(Text.assemble((given.path.name, "bold"), f": {title}, {places}, {cited}"))
    if not given.abstract:
        console.print(Text("no abstract was found: with one, suggestions are better", style="dim"))
    for place, papers in zip(given.places, suggestions.found, strict=True):
        console.print()
        where = f"{_name(given, place)}:{place.line}"
        console.print(Text.assemble((where, "bold magenta"), "  ", (terminal_text(place.command), "magenta")))
        sentence = Text(terminal_text(place.sentence), style="default")
        sentence.highlight_words([MARK, HERE], "bold yellow")
        console.print(Padding(sentence, _INDENTED))
        found = table(papers) if papers else Text("nothing in the library answers to it", style="dim")
        console.print(Padding(found, _INDENTED))
    notes = list(given.notes)
    if suggestions.unknown:
        keys = ", ".join(suggestions.unknown)
        notes.insert(0, f"neither in the library nor in the draft's bibliography: {keys}")
    if notes:
        console.print()
    for note in notes:
        console.print(Text(f"note: {terminal_text(note)}", style="dim"))


def _name(given: Draft, place: Place) -> str:
    """The place's file as seen from the draft's folder."""
    folder = given.path.parent
    return str(place.file.relative_to(folder) if place.file.is_relative_to(folder) else place.file)


# A copy in which the best papers are cited. The originals stay, and nothing that exists is written over.

_NAMED_IN_FRONT = re.compile(r"(?m)^(bibliography:[ \t]*)(.*)$")
_NO_KEY = re.compile(r"[^\w:.+/-]+")


@dataclass(frozen=True)
class Copies:
    """Where the copies go: of each file, and of the .bib file; renamed: the last gets another name."""

    files: Mapping[Path, Path]
    bib: Path
    renamed: bool


def copy_places(given: Draft, fill: Path, root: Path | None) -> Copies:
    """fill: a file for the draft alone, or a folder for the draft with its inputs.

    Raises InputError if something is there already, or a file is not enough.
    """
    folder = (root or given.path.parent).resolve()
    if fill.suffix.lower() == given.path.suffix.lower():
        others = {place.file.name for place in given.places} - {given.path.name}
        if others:
            names = ", ".join(sorted(others))
            raise InputError(
                f"fill={fill}: citations are missing in {names}, too; name a folder: fill=filled"
            )
        copies = Copies({given.path: fill}, fill.with_suffix(".bib"), True)
    else:
        files = {file: fill / file.relative_to(folder) for file in given.files}
        bib = fill / (given.bibs[-1].relative_to(folder) if given.bibs else f"{given.path.stem}.bib")
        copies = Copies(files, bib, not given.bibs)
    for target in (*copies.files.values(), copies.bib):
        if target.exists():
            raise InputError(f"fill={fill}: {target} already exists; name another place")
    return copies


def write_copies(suggestions: Suggestions, library: Library, copies: Copies) -> list[str]:
    """Write them; returns lines that tell what was written, and what is left to do."""
    given, known = suggestions.draft, suggestions.known
    bibliography = read_text(given.bibs[-1]) if given.bibs else ""
    keys = _Keys(known, [bibliography, *map(read_text, given.bibs[:-1])])
    for key, entry in given.cited.items():
        if entry is None and key in known:  # cited, but only the library has the entry
            keys.new[key] = known[key]
    edits: dict[Path, list[tuple[Place, str]]] = {}
    in_sentence: dict[tuple[Path, str], set[str]] = {}
    for place, papers in zip(given.places, suggestions.found, strict=True):
        there = in_sentence.setdefault((place.file, place.sentence.replace(HERE, "?")), set())
        others = [paper for paper in papers if paper.id not in there]
        filled = syntax_for(given.path).filled(place.command, [keys.of(paper) for paper in others])
        if filled and filled[1]:
            edits.setdefault(place.file, []).append((place, filled[0]))
            there |= {keys.cite(paper) for paper in others[: filled[1]]}
    texts = {place: _edited(given.files[file], edits.get(file, [])) for file, place in copies.files.items()}
    count, names = sum(map(len, edits.values())), ", ".join(map(str, texts))
    lines = [f"{names}: {count} of {len(given.places)} places filled; check each of them"]
    if keys.new:
        rows = {key: library.corpus.paper_row(paper) for key, paper in keys.new.items()}
        entries = bibtex(library.paper(row)._replace(key=key) for key, row in rows.items())
        gap = "\n" if bibliography and not bibliography.endswith("\n") else ""
        texts[copies.bib] = f"{bibliography}{gap}\n{entries}" if bibliography else entries
        lines.append(f"{copies.bib}: {len(keys.new)} entries added")
        if copies.renamed and not _renamed(given, texts, copies):
            lines.append(f"name {copies.bib.name} in the copy: no bibliography is named in it")
    with ExitStack() as stack:
        for target, text in texts.items():
            stack.enter_context(atomic_write(target)).write_bytes(text.encode())
    return lines


class _Keys:
    """The draft's keys for papers of the library, and further ones for papers that it lacks."""

    def __init__(self, known: Mapping[str, str], bibliographies: Sequence[str]) -> None:
        self.new: dict[str, str] = {}
        """Ids of the papers whose entries are to be added, by key."""
        self._keys = {paper: key for key, paper in known.items()}
        self._bibliographies = bibliographies
        self._taken = {match[2] for text in bibliographies for match in BIB_ENTRY.finditer(text)} | set(known)
        self._lacking: set[str] = set()

    def of(self, paper: Recommendation) -> str:
        if paper.id not in self._keys:
            wished = key = _NO_KEY.sub("", paper.key or paper.id) or "paper"
            number = 0
            while key in self._taken and not self._has(key, paper.title):
                number += 1
                key = f"{wished}-{number}"
            self._keys[paper.id] = key
            if key not in self._taken:
                self._taken.add(key)
                self._lacking.add(key)
        return self._keys[paper.id]

    def cite(self, paper: Recommendation) -> str:
        """Add the paper's entry if the draft has none; returns its id."""
        if (key := self.of(paper)) in self._lacking:
            self.new[key] = paper.id
        return paper.id

    def _has(self, key: str, title: str) -> bool:
        """Whether the draft's entry of this key is of the paper of this title."""
        entries = [bib_entries(text, {key}).get(key) for text in self._bibliographies]
        return any(letters_of(entry.title) == letters_of(title) for entry in entries if entry)


def _edited(text: str, edits: Sequence[tuple[Place, str]]) -> str:
    pieces, done = [], 0
    for place, command in sorted(edits, key=lambda edit: edit[0].start):
        pieces += [text[done : place.start], command]
        done = place.end
    return "".join([*pieces, text[done:]])


def _renamed(given: Draft, texts: dict[Path, str], copies: Copies) -> bool:
    """Name the new .bib file in place of the old one, or beside others; whether a place for it was found."""
    target = copies.files[given.path]
    if syntax_for(given.path) is MARKDOWN:
        texts[target], count = _NAMED_IN_FRONT.subn(rf"\g<1>{copies.bib.name}", texts[target], count=1)
        return count > 0

    commands = list(BIB_FILES.finditer(texts[target]))
    if commands:  # the last names the last file
        start, end = commands[-1].span(1)
        *others, last = texts[target][start:end].split(",")
        name = copies.bib.name if last.strip().endswith(".bib") else copies.bib.stem
        texts[target] = f"{texts[target][:start]}{','.join([*others, name])}{texts[target][end:]}"
    return bool(commands)
