"""A paper of a library: made of what a source says, told apart from others, joined out of several records."""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Iterator
from hashlib import blake2b
from typing import Any, NamedTuple

from datasets.errors import InputError
from datasets.fulltext.catalogue import LONG_TITLE, YEARS_APART, clean_arxiv, letters_of, surname, title_key
from datasets.json_lines import OnBadRecord
from datasets.records import quoted, usable_id

_EVERYWHERE = ("doi:", "arxiv:", "openalex:", "s2:")
"""Ids that mean the same paper wherever they stand; another, or a key, means it together with the title."""
_DOI = re.compile(r"10\.\d{4,9}/\S+")
_TAG = re.compile(
    r"</?(?:jats:)?(?:p|i|b|em|strong|sub|sup|span|sc|scp|italic|bold|title|sec|tt|u)\b[^<>]*>", re.I
)


class LibraryPaper(NamedTuple):
    """A paper of a library; empty and 0 are unknown.

    id: unique, without white space. key: in the citing documents. bibtex: the source's entry. aliases: ids
    and keys of other records of the same paper. source: 0 of a file, -1 of none.
    """

    id: str
    key: str = ""
    title: str = ""
    abstract: str = ""
    authors: tuple[str, ...] = ()
    year: int = 0
    venue: str = ""
    doi: str = ""
    arxiv: str = ""
    url: str = ""
    collections: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    bibtex: str = ""
    aliases: tuple[str, ...] = ()
    source: int = -1


def usable_paper(
    read: Callable[[], LibraryPaper | None], where: str, on_bad: OnBadRecord
) -> Iterator[LibraryPaper]:
    """The paper of a record, if there is one and it can be used; else `on_bad` is told why."""
    try:
        if paper := read():
            check_paper(paper, where)
            yield paper
    except InputError as error:
        on_bad(error)


def check_paper(paper: LibraryPaper, where: str) -> None:
    """InputError for a paper without title and abstract, or of an id that cannot be one."""
    if not (paper.title or paper.abstract):
        raise InputError(f"{where}: has neither title nor abstract")
    if not usable_id(paper.id):
        reason = "is no id: it must not be empty or hold white space or control characters"
        raise InputError(f"{where}: {quoted(paper.id)} {reason}")


def make_paper(id: str = "", **known: Any) -> LibraryPaper:
    """A paper of these fields, cleaned; an empty id is made of its DOI, arXiv id, key or title."""
    for name in ("title", "abstract", "venue"):
        known[name] = one_line(known.get(name, ""))
    for name in ("authors", "collections", "tags"):
        texts = filter(None, map(one_line, known.get(name, ())))
        known[name] = tuple(texts if name == "authors" else dict.fromkeys(texts))  # authors may be namesakes
    doi, arxiv = clean_doi(known.get("doi", "")), clean_arxiv(known.get("arxiv", ""))
    if not arxiv and "arxiv." in doi:
        arxiv = clean_arxiv(doi)
    if not id:
        if doi and not (arxiv and "arxiv." in doi):
            id = f"doi:{doi}"
        elif arxiv:
            id = f"arxiv:{arxiv}"
        elif key := known.get("key", ""):
            id = "key:" + re.sub(r"[\s\x00-\x1f\x7f-\x9f]+", "_", key)
        else:
            id = f"title:{title_key(letters_of(known['title'] or known['abstract'])):016x}"
    known["year"] = int(known.get("year", 0))  # readers have a type of their own
    return LibraryPaper(**(known | {"id": id, "doi": doi, "arxiv": arxiv}))


def one_line(text: str) -> str:
    """With single spaces, and without the mark-up and halves of surrogate pairs that exports leave in.

    >>> one_line("<i>Deep</i>  nets &amp; 1 < 2")
    'Deep nets & 1 < 2'
    """
    if "<" in text:
        text = _TAG.sub("", text)
    if "&" in text:
        text = html.unescape(text)
    if not text.isascii():
        text = text.encode("utf-8", "replace").decode()
    return " ".join(text.replace("\0", "").split())


def clean_doi(text: str) -> str:
    """In lower case, without address; "" if there is none.

    >>> clean_doi("https://doi.org/10.1145/3397271.3401075")
    '10.1145/3397271.3401075'
    """
    found = _DOI.search(text)
    return found[0].rstrip(".,;}\"'").lower() if found and found[0].isprintable() else ""


def names_in(value: str) -> list[str]:
    """Keywords or groups, set apart by semicolons or else commas."""
    return value.split(";" if ";" in value else ",")


class Identity(NamedTuple):
    """What tells papers apart, as numbers; 0 is unknown."""

    id: int
    doi: int
    arxiv: int
    title: int
    author: int
    """Of the first author's surname."""
    short: int
    """1: the title has too few letters to be enough."""
    year: int

    def agrees(self, other: Identity) -> bool:
        """Whether two papers of one title may be the same."""
        for one, two in zip(self[1:5], other[1:5], strict=True):
            if one and two and one != two:
                return False
        if self.year and other.year:
            return abs(self.year - other.year) <= YEARS_APART
        return bool(self.author and other.author) or not self.short


def identity(paper: LibraryPaper) -> Identity:
    letters = letters_of(paper.title)
    title = title_key(letters) if letters else 0
    return Identity(
        _number(paper.id if paper.id.startswith(_EVERYWHERE) else f"{title} {paper.key or paper.id}"),
        _number(paper.doi),
        _number(paper.arxiv),
        title,
        _number(surname(paper.authors[0]).casefold()) if paper.authors else 0,
        int(len(letters) < LONG_TITLE),
        paper.year,
    )


def _number(text: str) -> int:
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "little") if text else 0


def merge_records(papers: list[LibraryPaper]) -> LibraryPaper:
    """Records of one paper, the leader first, as one."""
    lead = papers[0]
    if len(papers) == 1:
        return lead
    known = {
        name: next((value for paper in papers if (value := getattr(paper, name))), getattr(lead, name))
        for name in ("key", "title", "year", "venue", "doi", "arxiv", "url", "bibtex")
    }
    known |= {
        name: max((getattr(paper, name) for paper in papers), key=len) for name in ("abstract", "authors")
    }
    for name in ("collections", "tags"):
        known[name] = tuple(dict.fromkeys(value for paper in papers for value in getattr(paper, name)))
    names = [name for paper in papers for name in (paper.id, paper.key, *paper.aliases) if name]
    aliases = tuple(name for name in dict.fromkeys(names) if name not in (lead.id, known["key"]))
    return lead._replace(**known, aliases=aliases)
