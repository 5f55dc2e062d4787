"""What is asked: a passage with a mark where a citation is missing, and which papers may answer it."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from citerec.base.errors import InputError
from citerec.base.settings import listed
from citerec.datasets.records import OTHER_MARKER, TARGET_MARKER, WINDOW, target_mark
from citerec.formats.drafts.language import CITE_MARK, Citation, Key, outermost, replaced
from citerec.formats.names import AND, ET_AL
from citerec.library.limits import MAX_TEXT
from citerec.library.papers.storage import Storage
from citerec.retrieval.arrays import Mask
from citerec.retrieval.lexical.terms import ENGLISH, STOP_WORDS
from citerec.retrieval.passages import CitingPassages
from citerec.retrieval.queries import Query, cut_around_mark

_PLAIN_MARK = re.compile(rf"\[\?\]|\b{TARGET_MARKER}\b|(?<![\w\\@])(?:TODO|FIXME|XXX):\w(?:[\w:.-]*\w)?")
"""Marks that belong to no draft language."""
_COMMAND = re.compile(r"[\\@]|cite|ref\(", re.IGNORECASE)
"""What every citation in a draft language contains, except CITE_MARK."""


def mark_context(text: str) -> str:
    r"""Replace the first mark, or TARGETCIT, by `target_mark`, other marks and citations by OTHER_MARKER.

    Marks are the missing citations of drafts in any language, such as [CITE], \cite{?} and [@TODO:blei2003];
    [?], TODO:blei2003 and TARGETCIT. Without a mark, TARGET_MARKER is appended.

    >>> mark_context("Adam [CITE] is usual."), mark_context(r"Adam \cite{TODO:kingma} is. So is SGD [@?].")
    ('Adam TARGETCIT is usual.', 'Adam Kingma TARGETCIT is. So is SGD OTHERCIT.')
    """
    marked, citations, missing, target = _marks(text)
    if marked != text:
        return marked
    cited = {(a, b) for a, b, keys, _ in citations if keys and (b <= target[0] or a >= target[1])}
    spans = sorted({*missing, *cited}, key=lambda span: (span[0], -span[1]))
    if not re.search(r"\w", replaced(text, ((*span, "") for span in outermost(spans)))):
        spans = missing  # the keys are the question
    marks = (
        (start, end, target_mark(text[start:end]) if (start, end) == target else OTHER_MARKER)
        for start, end in outermost(spans)
    )
    return replaced(text, marks)


def _citations(text: str) -> list[Citation]:
    """Return the citations of a text in any language; two languages may read the same one."""
    if not _COMMAND.search(CITE_MARK.sub("", text)):
        spans = (mark.span() for mark in CITE_MARK.finditer(text))
        return [Citation(*span, (Key("", *span),)) for span in spans]
    from citerec.formats.drafts.languages import languages  # plain text needs none

    return [citation for language in languages() for citation in language.citations(text)]


def _marks(text: str) -> tuple[str, list[Citation], list[tuple[int, int]], tuple[int, int]]:
    """Return a text, with TARGET_MARKER appended if it has no mark, its citations, the spans of its marks of
    missing citations, in order, and the one that is asked about."""
    citations = _citations(text)
    spans = [match.span() for match in _PLAIN_MARK.finditer(text)]
    missing = sorted(spans + [(citation.start, citation.end) for citation in citations if citation.missing])
    if not missing:
        text = append_mark(text)
        missing = [(len(text) - len(TARGET_MARKER), len(text))]
    target = min(missing, key=lambda span: (text[slice(*span)] != TARGET_MARKER, span))
    return text, citations, missing, target


def cited_near(text: str, id_of: Callable[[str], str | None]) -> tuple[CitingPassages | None, int]:
    """Return the passages near the mark of a text that cite papers of a library, and the mark's place among
    them; None without any. id_of: a paper's id by its key."""
    text, citations, missing, target = _marks(text)
    cited: dict[tuple[int, int], list[str]] = {target: []}
    for citation in citations:
        is_near = citation.end > target[0] - 2 * WINDOW and citation.start < target[1] + 2 * WINDOW
        ids = [id for key in citation.cited if (id := id_of(key))] if is_near and not citation.missing else []
        if ids:
            cited.setdefault((citation.start, citation.end), ids)
    spans = [*outermost(sorted({*missing, *cited}, key=lambda span: (span[0], -span[1])))]
    passages = [span for span in spans if span in cited]
    if len(passages) == 1 or target not in passages:
        return None, 0
    contexts = []
    for own in passages:
        edits = ((*span, TARGET_MARKER if span == own else OTHER_MARKER) for span in spans)
        contexts.append(cut_around_mark(replaced(text, edits), WINDOW))
    return CitingPassages(contexts, [cited[span] for span in passages]), passages.index(target)


def append_mark(text: str) -> str:
    return f"{text.rstrip()} {TARGET_MARKER}"


def mark_query(query: Query) -> Query:
    """Mark the citation in a query, and cut its context from a longer text, which becomes its surroundings.
    A text without a mark is not cut. Raises InputError for one that is too long or has no words."""
    if len(query.context) > MAX_TEXT:
        raise InputError(
            f"text: has {len(query.context):,} characters; give only the passage around the citation, at "
            f"most {MAX_TEXT:,}"
        )
    text = unicodedata.normalize("NFC", query.context)
    context = mark_context(text)
    if not re.search(r"\w", context.replace(TARGET_MARKER, "").replace(OTHER_MARKER, "")):
        raise InputError("text: has no words; give the passage around the citation")
    near = context if context == append_mark(text) else cut_around_mark(context, WINDOW)
    return replace(query, context=near, surroundings="" if near == context else context)


_WORD = re.compile(r"[^\W\d_]+")
_ET_AL = re.compile(rf"\bet al\b|{TARGET_MARKER}|{OTHER_MARKER}")
_OTHERS = [words for name, words in STOP_WORDS.items() if name not in ("en", "english_plus")]
LEAST_ENGLISH, FEW_WORDS, LEAST_ACCENTS = 0.12, 8, 0.1
"""A text of FEW_WORDS words or more is in another language if less than the share LEAST_ENGLISH of them are
English stop words, and at least LEAST_ACCENTS have letters beyond ASCII."""


def is_english(text: str) -> bool:
    """False if a text is in another language, by its script and stop words; True if in doubt.

    Of 12,000 English citation contexts, 8 are taken for other languages; of 2,800 in eighteen languages, 14
    for English.

    >>> is_english("Wälder speichern Kohlenstoff [CITE]."), is_english("Леса хранят углерод [CITE].")
    (True, False)
    >>> is_english("Die Wälder der Erde speichern Kohlenstoff [CITE].")
    False
    """
    words = [word.lower() for word in _WORD.findall(_ET_AL.sub(" ", text))]
    if 2 * sum(len(word) for word in words if word[0] < "\u0250") < sum(map(len, words)):
        return False
    english = sum(word in ENGLISH for word in words)
    if max(sum(word in others for word in words) for others in _OTHERS) > english:
        return False
    accents = sum(not word.isascii() for word in words)
    return (
        len(words) < FEW_WORDS
        or english >= LEAST_ENGLISH * len(words)
        or accents < LEAST_ACCENTS * len(words)
    )


YEARS_FORM = "must look like 2015-2020, 2015-, -2020 or 2019"
_YEARS = re.compile(r"\s*(\d{1,4})?\s*(-)?\s*(\d{1,4})?\s*")


@dataclass(frozen=True)
class Filters:
    """Papers that may be recommended; all by default.

    exclude, only: ids or keys. years: 2015-2020, 2015-, -2020 or 2019. collection: its name. venue: a part of
    its name.
    """

    exclude: Sequence[str] = ()
    only: Sequence[str] = ()
    years: str | None = None
    collection: str | None = None
    venue: str | None = None

    def __post_init__(self) -> None:
        for name in ("exclude", "only"):
            object.__setattr__(self, name, listed(getattr(self, name), name))

    def condition(self) -> str:
        """Return years, venue and collection as a condition of LanceDB's tables; "" without any."""
        parts = []
        if self.years:
            first, last = year_range(self.years)
            parts.append(f"year >= {first} AND year <= {last}")
        if self.venue:
            parts.append(f"strpos(venue, {_literal(self.venue.casefold())}) > 0")
        if self.collection:
            parts.append(f"array_has(collections, {_literal(self.collection)})")
        return " AND ".join(parts)

    def mask(self, papers: Storage) -> Mask | None:
        """Return a mask [P] of the papers that pass; None means all. Raises InputError for a bad filter."""
        if not any((self.exclude, self.only, self.years, self.collection, self.venue)):
            return None
        allowed = np.ones(len(papers), np.bool_)
        if self.only:
            allowed[:] = False
            allowed[papers.rows(self.only, "only")] = True
        allowed[[row for name in self.exclude for row in papers.rows_of(name)]] = False
        if self.years:
            first, last = year_range(self.years)
            allowed &= (papers.corpus.years >= first) & (papers.corpus.years <= last)
        if self.collection:
            members = papers.members.get(self.collection, [])
            if not members:
                raise InputError(f"collection={self.collection}: no paper of the library is in it")
            allowed &= np.isin(np.arange(len(papers)), members)
        if self.venue:
            part = self.venue.casefold()
            allowed &= np.fromiter((part in venue for venue in papers.venues), np.bool_, len(papers))
        return allowed


def _literal(text: str) -> str:
    """Return a text as a literal of SQL."""
    return "'" + text.replace("'", "''") + "'"


def year_range(years: str) -> tuple[int, int]:
    """Parse 2015-2020, 2015-, -2020 or 2019 into first and last year. Raises InputError for anything else."""
    parts = _YEARS.fullmatch(str(years))
    if parts is None or not (parts[1] or parts[3]) or (parts[3] and not parts[2]):
        raise InputError(f"years={years}: {YEARS_FORM}")
    first = int(parts[1] or 1)
    last = int(parts[3]) if parts[3] else 9999 if parts[2] else first
    if first > last:
        raise InputError(f"years={years}: the first year comes after the last")
    return first, last


@dataclass(frozen=True)
class Request:
    """A query, and which papers may answer it."""

    query: Query
    filters: Filters = field(default_factory=Filters)


_NAME = r"[^\W\d_](?:(?!等)[\w'’\-])*"
_CITATION = re.compile(
    rf"(?P<names>{_NAME}(?:\s*[,、]\s*{_NAME})*(?:\s*,?\s*{AND}\s*{_NAME})?)(?P<more>\s*,?\s*{ET_AL})?"
    rf"\s*,?\s*[(\[]?(?P<year>\d{{4}})[a-z]?[)\]]*[\s.,;。]*{TARGET_MARKER}"
)
_SEPARATORS = [re.compile(rf"\s*(?:[,、{han}]|{AND})\s*") for han in ("", "和与與及と")]
_KEY = re.compile(r"\s*(?:\[?@|\\\w*cite\w*\{)?([^\s{}\[\]]+)[\]}]?\s*")


def named_key(context: str) -> str:
    """Return the key or id that a context with TARGET_MARKER consists of, or ""."""
    alone = _KEY.fullmatch(context.replace(TARGET_MARKER, " "))
    return alone[1] if alone else ""


def named_papers(papers: Storage, context: str) -> tuple[list[int], str]:
    """Return the rows of the papers that a question names, and the name: its key, or authors and year.

    context: with TARGET_MARKER. It is nothing but a key, or authors and year stand right before the mark.
    """
    key = named_key(context)
    if key and (rows := papers.rows_of(key)):
        return rows, key
    mark = context.find(TARGET_MARKER) + len(TARGET_MARKER)
    if citation := _CITATION.search(unicodedata.normalize("NFKC", context[max(0, mark - 200) : mark])):
        splits = ([*filter(None, separator.split(citation["names"]))] for separator in _SEPARATORS)
        for names in (split[at:] for split in splits for at in range(len(split))):  # "However, Lee (2020)"
            if rows := papers.search_index.cited(names[0], names[1:], citation["year"]):
                named = citation["names"].partition(names[0])
                return rows, f"{named[1]}{named[2]}{citation['more'] or ''} {citation['year']}"
    return [], ""
