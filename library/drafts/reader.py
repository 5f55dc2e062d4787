"""Reads a draft: its missing citations with their contexts, and what it cites elsewhere.

A citation is missing if its key is empty, ?, TODO, FIXME or XXX (formats.drafts.language.Key). Missing
citations get placeholder keys before parsing, so that the parsers of full texts (formats.drafts) cut
their contexts like those of training. A placeholder that is gone after parsing was in a comment or in code.

All citations of a draft can be masked, so that each becomes a missing one, with the keys that it cites. The
notes of a masked citation are not read, as if its author had not cited yet.
"""

from __future__ import annotations

import os
import re
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from itertools import chain, groupby
from operator import attrgetter
from pathlib import Path

from citerec.base.errors import InputError
from citerec.base.files import real_path
from citerec.datasets.building.contexts import find_citations
from citerec.datasets.records import OTHER_MARKER, SECTION, TARGET_MARKER, WINDOW, target_mark
from citerec.datasets.tokenize import cut_window, sentence_starts
from citerec.formats.articles.markers import Bibliography
from citerec.formats.documents import FullText, Paragraph, Reference
from citerec.formats.drafts.bibliographies import References
from citerec.formats.drafts.inputs import Inputs, clean_text
from citerec.formats.drafts.language import CITE_MARK, MISSING, PLACEHOLDER, Citation, Language, Source
from citerec.formats.drafts.languages import draft_language
from citerec.library import MARK

LONGEST = 1_000
"""Characters of a sentence on each side of a mark."""
MARK_KEY = MARK.strip("[]")
"""A missing citation among other keys."""


class PlaceholderReader:
    """Reads files, inserting a placeholder key for each missing citation. Keeps original texts and spans.

    masked: all citations are missing.
    """

    def __init__(self, language: Language, masked: bool = False) -> None:
        self.language, self.masked = language, masked
        self.texts: dict[Path, str] = {}
        self.spans: dict[str, tuple[Path, int, int]] = {}
        """File, start and end of the command of each placeholder."""
        self.replaced: dict[str, tuple[str, ...]] = {}
        """The keys that each placeholder replaces."""
        self.marks: dict[str, str] = {}
        """The mark in each placeholder's own context (target_mark)."""
        self.defined = list[str]()
        """Missing citations in definitions of macros, whose uses cannot be told apart."""
        self._marked: dict[Path, str] = {}

    def original_keys(self, keys: Iterable[str]) -> Iterator[str]:
        """Yield the keys, and instead of a placeholder those that it replaces."""
        for key in keys:
            yield from self.replaced.get(key, (key,))

    def __call__(self, path: Path) -> str:
        if path not in self._marked:
            self.texts[path] = self.language.exact_text(path)
            self._marked[path] = self.mark(path, self.texts[path])
        return self._marked[path]

    def mark(self, path: Path, text: str) -> str:
        """Return the text of a file, cleaned, with placeholders."""
        pieces, done, definitions = [], 0, [] if self.masked else [*self.language.definitions(text)]
        for citation in self.language.joined(text):
            if citation.missing and any(start < citation.start < end for start, end in definitions):
                line = text.count("\n", 0, citation.start) + 1
                self.defined.append(f"{path.name}:{line}: {text[citation.start : citation.end]}")
                continue
            thousands, ones = divmod(len(self.spans), 1000)
            key = f"{PLACEHOLDER}{chr(0xF001 + thousands)}{chr(0xF401 + ones)}"
            command = text[citation.start : citation.end]
            if filled := self._replaced(command, citation, key):
                self.spans[key] = path, citation.start, citation.end
                self.replaced[key] = tuple(citation.cited) if self.masked else ()
                self.marks[key] = target_mark(command)
                before, after = filled.split(key, 1)
                pieces += [clean_text(text[done : citation.start] + before), key, clean_text(after)]
                done = citation.end
        marked = "".join([*pieces, clean_text(text[done:])]).removeprefix("\ufeff")
        return self.language.old_comment.sub("", marked)

    def _replaced(self, command: str, citation: Citation, key: str) -> str | None:
        if self.masked:
            return self.language.mask(command, key) if citation.printed else None
        filled = self.language.fill(command, [key]) if citation.missing else None
        return filled and (self.language.mask(filled[0], key) if filled[0].count(key) > 1 else filled[0])


@dataclass(frozen=True)
class Place:
    """A missing citation: text[start:end] of a file is `command`, which lacks a key.

    context: text around it (SECTION) with TARGETCIT, after the words of the key's suffix. sentence: for
    display, with [CITE] and the keys of other citations. beside: keys cited in the same sentence. passage:
    its row among the draft's passages. replaced: keys that the mark replaced (PlaceholderReader).
    """

    file: Path
    start: int
    end: int
    line: int
    command: str
    context: str
    sentence: str
    beside: tuple[str, ...]
    passage: int
    replaced: tuple[str, ...] = ()


@dataclass(frozen=True)
class Draft:
    """A parsed draft.

    cited: bibliography entries by key, None if missing. passages: contexts of all citations in the order of
    the text, and the keys that each cites or has replaced. files: unchanged texts by path, the draft's first.
    references: its whole bibliography. notes: what was skipped, and why.
    """

    path: Path
    title: str
    abstract: str
    year: int
    places: Sequence[Place]
    cited: dict[str, Reference | None]
    passages: Sequence[tuple[str, tuple[str, ...]]]
    files: dict[Path, str]
    references: References
    notes: Sequence[str]

    @property
    def bibs(self) -> list[Path]:
        """The .bib files."""
        return list(dict.fromkeys(self.references.bibs().values()))


def read_source(
    path: Path, root: Path | None = None, bibs: Sequence[Path] = (), masked: bool = False
) -> tuple[Source, PlaceholderReader]:
    """Read a draft with its inputs, with placeholders for its missing citations.

    root: folder that may contain inputs; None means the draft's. bibs: its .bib files; empty for those that
    it names. masked: all its citations are missing; else those without keys. Raises InputError if a file
    cannot be read or is not UTF-8.
    """
    if root is not None and not (os.path.isdir(root) and path.is_relative_to(real_path(root))):
        raise InputError(f"root={root}: is not a folder that contains the draft")
    if missing := [bib for bib in bibs if not os.path.isfile(bib)]:
        raise InputError(f"bib={missing[0]}: no such file")
    language = draft_language(path)
    reader = PlaceholderReader(language, masked)
    source = language.read(path, Inputs(reader, root))
    labels = [mark for mark, keys in reader.replaced.items() if keys and all(map(source.is_label, keys))]
    keys = [key for key in source.keys if key not in labels]
    references = replace(source.references, chosen=bibs)
    return replace(source, keys=keys, references=references), reader


def read_draft(
    path: Path, root: Path | None = None, bibs: Sequence[Path] = (), masked: bool = False
) -> Draft:
    """Read a draft with its inputs. See `read_source`; InputError also if no citation is missing."""
    path = real_path(path)
    source, reader = read_source(path, root, bibs, masked)
    language, keys = reader.language, source.keys
    paragraphs, _ = language.paragraphs(source.text)
    notes = list(source.notes)
    original_keys = list(dict.fromkeys(reader.original_keys(keys)))
    used = reader.defined and CITE_MARK.search(source.text)
    in_macros = not masked and (used or any(map(MISSING.fullmatch, original_keys)))
    if in_macros:
        where = f" ({', '.join(reader.defined)})" if reader.defined else ""
        notes.append(f"citations without a key in macros of the draft's own are not filled{where}")
    original_keys = [key for key in original_keys if not MISSING.fullmatch(key)]
    entries = source.references.entries(original_keys)
    cited = {key: entries.get(key) for key in original_keys}
    references = dict.fromkeys(cited, Reference()) | entries
    contexts = find_contexts(paragraphs, references, reader.replaced)
    citing = find_passages(paragraphs, references | dict.fromkeys(reader.spans, Reference()))
    rows = {key: row for row, (_, keys) in reversed([*enumerate(citing)]) for key in keys}
    sentences: dict[str, tuple[str, tuple[str, ...]]] = {}
    for key, sentence_and_others in chain.from_iterable(map(find_sentences, paragraphs)):
        sentences.setdefault(key, sentence_and_others)
    places, read = [], set(keys)
    for key, (file, start, end) in reader.spans.items():
        text = reader.texts[file]
        line, command = text.count("\n", 0, start) + 1, text[start:end]
        if key in contexts and key in read:
            sentence, others = sentences[key]
            place = Place(
                file,
                start,
                end,
                line,
                command,
                context=contexts[key].replace(TARGET_MARKER, reader.marks[key]),
                sentence=sentence,
                beside=tuple(dict.fromkeys(reader.original_keys(others))),
                passage=rows[key],
                replaced=reader.replaced[key],
            )
            places.append(place)
        elif key in read:
            notes.append(f"{file.name}:{line}: {command} has no running text around it and was skipped")
    typed = language.holds_items and not set(keys) <= source.references.own.keys()
    if not places and not typed:  # keys that are typed become citations of a word processor
        without_text = not read.isdisjoint(reader.spans)
        problem = "no missing citations"
        if without_text or in_macros:
            where = "are in macros of the draft's own" if in_macros else "have no running text around them"
            problem = f"missing citations {where}"
        raise InputError(f"{path}: {problem}; write {language.marks} where a citation is missing")
    return Draft(
        path,
        title=source.metadata.title,
        abstract=source.metadata.abstract,
        year=source.metadata.year or date.today().year,
        places=places,
        cited=cited,
        passages=[(context, tuple(reader.original_keys(keys))) for context, keys in citing],
        files=reader.texts,
        references=source.references,
        notes=notes,
    )


def find_contexts(
    paragraphs: Sequence[Paragraph], references: dict[str, Reference], replaced: Mapping[str, Sequence[str]]
) -> dict[str, str]:
    """Return the text around each placeholder (SECTION). Others in it cite what they replaced."""
    others = {
        mark: Reference(
            authors=tuple(name for key in keys if key in references for name in references[key].authors)
        )
        for mark, keys in replaced.items()
    }
    contexts = dict[str, str]()
    everything = references | others
    bibliography, reach = Bibliography(everything), SECTION + len(OTHER_MARKER)
    for _, section in groupby(paragraphs, key=lambda paragraph: paragraph.section):
        parts = list(section)
        marks = dict.fromkeys(
            span.ref for part in parts for span in part.citations if span.ref and span.ref in replaced
        )
        alone = [{mark} for mark in marks if everything[mark].authors]
        for wanted in [{mark for mark in marks if not everything[mark].authors}, *alone]:
            without = bibliography.without_authors(*wanted) if wanted in alone else bibliography
            for citation in find_citations(FullText(parts, everything), reach, Counter(), without):
                if citation.ref in wanted and citation.ref not in contexts:
                    context = cut_window(citation.left, citation.right, SECTION, "whole")
                    if re.search(r"\w", context.replace(TARGET_MARKER, "").replace(OTHER_MARKER, "")):
                        contexts[citation.ref] = context
    return contexts


def find_passages(
    paragraphs: Sequence[Paragraph], references: dict[str, Reference]
) -> list[tuple[str, list[str]]]:
    """Return the context of each citation in the order of the text, and the keys that it cites."""
    passages: list[tuple[str, list[str]]] = []
    bibliography = Bibliography(references)
    read = {span.ref for paragraph in paragraphs if not paragraph.reread for span in paragraph.citations}
    for (_, reread), section in groupby(paragraphs, key=attrgetter("section", "reread")):
        full_text = FullText(list(section), references)
        citations = find_citations(full_text, WINDOW + len(OTHER_MARKER), Counter(), bibliography)
        for (left, right), same in groupby(citations, key=lambda citation: (citation.left, citation.right)):
            keys = [citation.ref for citation in same if not (reread and citation.ref in read)]
            if keys:
                passages.append((cut_window(left, right, WINDOW, "whole"), keys))
    return passages


def find_sentences(paragraph: Paragraph) -> Iterator[tuple[str, tuple[str, tuple[str, ...]]]]:
    """Yield each placeholder in a paragraph with its sentence and the other keys and placeholders there.

    Of a sentence without an end, LONGEST characters on each side count.
    """
    text = paragraph.text
    lines = (end.end() for end in re.finditer("\n", text))
    bounds = [*sorted({0, *sentence_starts(text), *lines}), len(text)]
    spans = sorted(span for span in set(paragraph.citations) if span.ref is not None)
    starts = [span.start for span in spans]
    for mark in spans:
        if not str(mark.ref).startswith(PLACEHOLDER):
            continue
        number = bisect_right(bounds, mark.start)
        begin = bounds[number - 1]
        if text[begin - 1 : begin] == " " and not re.search(r"[^\W\d_]", text[begin : bounds[number]]):
            begin = bounds[number - 2]  # of the sentence that it stands behind
        first = max(begin, mark.start - LONGEST)
        last = min(bounds[number], mark.end + LONGEST)
        pieces, done, others = list[str](), first, list[str]()
        for span in spans[bisect_left(starts, first) : bisect_left(starts, last)]:
            key = str(span.ref)
            shown = MARK_KEY if key == mark.ref else "?" if key.startswith(PLACEHOLDER) else key
            pieces += [text[done : span.start], shown]
            done = span.end
            others += [key] if key != mark.ref else []
        yield str(mark.ref), ("".join([*pieces, text[done:last]]).strip(), tuple(others))
