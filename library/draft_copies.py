"""Copies of a draft that cite the best papers; originals never change, nothing is overwritten."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from citerec.datasets.errors import InputError
from citerec.datasets.files import atomic_write
from citerec.datasets.fulltext.catalogue import normalise_title
from citerec.datasets.fulltext.latex import BIB_ENTRY, BIB_FILES, bib_entries
from citerec.library.draft_markdown import MARKDOWN
from citerec.library.draft_placeholders import read_text
from citerec.library.draft_reader import MARK_KEY, Draft, Place, syntax_for
from citerec.library.explanation import Recommendation
from citerec.library.formats import bibtex
from citerec.library.library import Library

_BIBLIOGRAPHY_LINE = re.compile(r"(?m)^(bibliography:[ \t]*)(.*)$")
_NOT_IN_KEYS = re.compile(r"[^\w:.+/-]+")


@dataclass(frozen=True)
class Suggestions:
    """Suggested papers for a draft.

    found: papers for each place, with the draft's keys for papers that it already cites.
    known: library ids of cited papers that the library has, by the draft's keys.
    """

    draft: Draft
    found: Sequence[Sequence[Recommendation]]
    known: dict[str, str]

    @property
    def unknown(self) -> list[str]:
        """Keys that are neither in the library nor in the draft's bibliography."""
        return [key for key, entry in self.draft.cited.items() if entry is None and key not in self.known]


@dataclass(frozen=True)
class Copies:
    """Paths of the copies by original file, and of the .bib file. rename_bib: it has a new name."""

    files: Mapping[Path, Path]
    bib: Path
    rename_bib: bool


def plan_copies(draft: Draft, fill: Path, root: Path | None) -> Copies:
    """Choose the paths of the copies.

    fill: a file for the draft alone, or a folder for the draft with its inputs. Raises InputError if a path
    exists, or if `fill` is a file but citations are also missing in inputs.
    """
    folder = (root or draft.path.parent).resolve()
    if fill.suffix.lower() == draft.path.suffix.lower():
        others = {place.file.name for place in draft.places} - {draft.path.name}
        if others:
            names = ", ".join(sorted(others))
            raise InputError(
                f"fill={fill}: citations are also missing in {names}; give a folder, as in fill=filled"
            )
        copies = Copies({draft.path: fill}, fill.with_suffix(".bib"), True)
    else:
        files = {file: fill / file.relative_to(folder) for file in draft.files}
        bib = fill / (draft.bibs[-1].relative_to(folder) if draft.bibs else f"{draft.path.stem}.bib")
        copies = Copies(files, bib, not draft.bibs)
    for target in (*copies.files.values(), copies.bib):
        if target.exists():
            raise InputError(f"fill={fill}: {target} already exists; choose another name")
    return copies


def write_copies(suggestions: Suggestions, library: Library, copies: Copies) -> list[str]:
    """Write the copies. Return lines for the user: what was written, and what is left to do."""
    draft, known = suggestions.draft, suggestions.known
    bibliography = read_text(draft.bibs[-1]) if draft.bibs else ""
    keys = _KeyAssigner(known, [bibliography, *map(read_text, draft.bibs[:-1])])
    for key, entry in draft.cited.items():
        if entry is None and key in known:  # only the library has the entry of this key
            keys.new[key] = known[key]
    edits: dict[Path, list[tuple[Place, str]]] = {}
    cited_in: dict[tuple[Path, str], set[str]] = {}  # ids by file and sentence
    for place, papers in zip(draft.places, suggestions.found, strict=True):
        cited = cited_in.setdefault((place.file, place.sentence.replace(MARK_KEY, "?")), set())
        others = [paper for paper in papers if paper.id not in cited]
        filled = syntax_for(draft.path).fill(place.command, [keys.key_for(paper) for paper in others])
        if filled and filled[1]:
            edits.setdefault(place.file, []).append((place, filled[0]))
            cited |= {keys.cite(paper) for paper in others[: filled[1]]}
    texts = {
        target: _apply_edits(draft.files[file], edits.get(file, [])) for file, target in copies.files.items()
    }
    count, names = sum(map(len, edits.values())), ", ".join(map(str, texts))
    lines = [f"{names}: filled {count} of {len(draft.places)} missing citations; check each of them"]
    if keys.new:
        rows = {key: library.corpus.paper_row(paper) for key, paper in keys.new.items()}
        entries = bibtex(library.paper(row)._replace(key=key) for key, row in rows.items())
        gap = "\n" if bibliography and not bibliography.endswith("\n") else ""
        texts[copies.bib] = f"{bibliography}{gap}\n{entries}" if bibliography else entries
        lines.append(f"{copies.bib}: {len(keys.new)} entries added")
        if copies.rename_bib and not _rename_bibliography(draft, texts, copies):
            lines.append(f"add {copies.bib.name} to the copy, which has no bibliography command")
    with ExitStack() as stack:
        for target, text in texts.items():
            stack.enter_context(atomic_write(target)).write_bytes(text.encode())
    return lines


class _KeyAssigner:
    """Assigns keys to papers: the draft's key if it has one, else a new unique key."""

    def __init__(self, known: Mapping[str, str], bibliographies: Sequence[str]) -> None:
        self.new: dict[str, str] = {}
        """Ids of papers whose entries must be added to the bibliography, by key."""
        self._keys = {paper: key for key, paper in known.items()}
        self._bibliographies = bibliographies
        self._taken = {match[2] for text in bibliographies for match in BIB_ENTRY.finditer(text)} | set(known)
        self._missing: set[str] = set()

    def key_for(self, paper: Recommendation) -> str:
        if paper.id not in self._keys:
            preferred = key = _NOT_IN_KEYS.sub("", paper.key or paper.id) or "paper"
            number = 0
            while key in self._taken and not self._has_entry(key, paper.title):
                number += 1
                key = f"{preferred}-{number}"
            self._keys[paper.id] = key
            if key not in self._taken:
                self._taken.add(key)
                self._missing.add(key)
        return self._keys[paper.id]

    def cite(self, paper: Recommendation) -> str:
        """Mark the paper's entry as needed, unless the draft has it. Return the paper's id."""
        if (key := self.key_for(paper)) in self._missing:
            self.new[key] = paper.id
        return paper.id

    def _has_entry(self, key: str, title: str) -> bool:
        """True if the draft's entry of this key has this title."""
        entries = [bib_entries(text, {key}).get(key) for text in self._bibliographies]
        return any(normalise_title(entry.title) == normalise_title(title) for entry in entries if entry)


def _apply_edits(text: str, edits: Sequence[tuple[Place, str]]) -> str:
    pieces, done = [], 0
    for place, command in sorted(edits, key=lambda edit: edit[0].start):
        pieces += [text[done : place.start], command]
        done = place.end
    return "".join([*pieces, text[done:]])


def _rename_bibliography(draft: Draft, texts: dict[Path, str], copies: Copies) -> bool:
    """Replace the last .bib file that the draft names by the new one. Return False if it names none."""
    target = copies.files[draft.path]
    if syntax_for(draft.path) is MARKDOWN:
        texts[target], count = _BIBLIOGRAPHY_LINE.subn(rf"\g<1>{copies.bib.name}", texts[target], count=1)
        return count > 0

    commands = list(BIB_FILES.finditer(texts[target]))
    if commands:  # the last command names the last file
        start, end = commands[-1].span(1)
        *others, last = texts[target][start:end].split(",")
        name = copies.bib.name if last.strip().endswith(".bib") else copies.bib.stem
        texts[target] = f"{texts[target][:start]}{','.join([*others, name])}{texts[target][end:]}"
    return bool(commands)
