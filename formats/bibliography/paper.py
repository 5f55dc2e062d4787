"""A paper of a library: cleaning its fields, comparing it with others, merging several records."""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from citerec.base.errors import InputError, quoted
from citerec.formats.identifiers import clean_doi, find_arxiv_id
from citerec.formats.json_lines import OnBadRecord, is_valid_id
from citerec.formats.letters import GREEK, normalise_title, title_key
from citerec.formats.names import surname

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]+")
_CONTROL_CODES = re.compile(r"[\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f]+")
"""Control codes that are not white space."""
PREPRINT_VENUE = re.compile(
    r"arxiv|\bcorr\b|bio-?rxiv|med-?rxiv|chem-?rxiv|psyarxiv|preprint|\bssrn\b|research square|\bosf\b", re.I
)
PREPRINT_DOI = re.compile(r"10\.(?:48550|1101|64898|2139|20944|21203|31234|31235|31223|31219|26434|36227)/")
_TAG_END = r"\b(?:\s+[\w:-]+\s*=(?:\s*[\"'\\][^<>]*|[^\s<>]+\s*)|\s*/?)>"
"""Words without = before a sign > are no attributes, but text between two comparisons."""
_TAG = re.compile(
    r"</?(?:jats:|ce:)?(?:i|b|em|strong|sub|sup|inf|span|sc|scp|italic|bold|tt|u|a(?= href|>)|monospace|roman"
    r"|mi|mo|mn|ms|mtext|mrow|msub|msup|msubsup|mfrac|msqrt|mover|munder|mstyle|semantics|annotation"
    r"|uri|ext-link|xref|inline-formula|disp-formula|tex-math|alternatives|styled-content|named-content|mml:\w+"
    r"|\w*math)" + _TAG_END,
    re.I,
)
_BLOCK_TAG = re.compile(r"</?(?:jats:|ce:)?(?:p|title|sec|br|div|h[1-6]|[uo]l|li|list-item)" + _TAG_END, re.I)
_ENTITY = re.compile(r"&(?:amp|lt|gt|quot|#\d+);")
_LETTERS = GREEK | {"Delta": "Δ", "Omega": "Ω", "+/-": "±", "degrees": "°"}
_GREEK = re.compile(rf"\{{({'|'.join(map(re.escape, _LETTERS))})\}}")
"""Letters as bioRxiv writes them: IFN{gamma}."""
_CODE_POINT = re.compile(r"<U\+(0{0,2}[0-9A-F]{4}|0?[1-9A-F][0-9A-F]{4}|10[0-9A-F]{4})>")
"""What R writes for a character that a Windows code page lacks."""
_MINIMAL = re.compile(
    r"\s*\\documentclass\[12pt\]\{minimal\}.*?\\begin\{document\}(.*?)\\end\{document\}", re.DOTALL
)
"""A formula as Springer's pages have it, after the same formula."""
_FORMULA = re.compile(
    r"\$\$[^$]{1,300}\$\$|\$(?=\S)[^$]{0,300}?\\[A-Za-z]+[^$]{0,300}?\$(?!\d)|\\\(.{1,300}?\\\)"
)
"""A formula with a command between dollars that are no prices, by pandoc's rule, or in LaTeX's brackets."""
RETRACTED = "retracted"
"""Mark in LibraryPaper.filled; who says so follows it."""
SHORTEST_ABSTRACT = 60
"""Minimum characters of an abstract that is filled in; shorter ones say that there is none."""
_RETRACTED_TITLE = re.compile(r"\W*(?:retracted|withdrawn)(?: (?:article|paper|chapter))?\s*[:\])–—-]", re.I)
_RETRACTED_END = re.compile(
    r"[(\[]\s*(?:retracted|withdrawn)(?: (?:article|paper|chapter))?\b[^()\[\]]*[)\]]\W*$", re.I
)
_PLACEHOLDER = re.compile(
    r"[\[(]?no (?:author|abstract|title|source|publisher)\w*(?: (?:names?|information|id))?(?: (?:is |was )?"
    r"(?:available|provided|supplied|given))[\])]?\.?|[\[(]?(?:n/a|n\. ?a\.|none|(?-i:nan|NaN|null))[\])]?"
    r"|\[(?:anonymous|anon\.?|unknown|n\. ?d\.|s\. ?n\.|untitled|no title)\]",
    re.IGNORECASE,
)
"""What databases and programs write for a text that is missing."""


def is_placeholder(text: str) -> bool:
    """True for what stands for a missing text.

    >>> [is_placeholder(text) for text in ("[No author name available]", "N/A", "{None}", "Nan")]
    [True, True, True, False]
    """
    return len(text) < 60 and _PLACEHOLDER.fullmatch(text.strip("{} ")) is not None


class LibraryPaper(NamedTuple):
    """A paper of a library; empty or 0 if unknown.

    id: unique, without white space. key: citation key. authors: names in their usual order. names: the same
    as BibTeX writes them, if `authors` leave their parts open. bibtex: entry in the source, or made from it.
    aliases: ids and keys of other records of the same paper.
    filled: FIELD:SOURCE of what `citerec enrich` filled in, which any record of the user's own replaces; and
    RETRACTED, if the paper was retracted.
    files: paths of its PDFs.
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
    filled: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    names: tuple[str, ...] = ()

    def surname(self, author: int = 0) -> str:
        """Return the surname of an author, or a name without spaces, such as a Chinese one; "" for none."""
        full = next(iter(self.authors[author : author + 1]), "")
        return surname(self.names[author] if self.names and " " in full else full)

    @property
    def merged_names(self) -> tuple[str, ...]:
        """Ids and keys of the records that were merged into this one, without biblatex's `ids`."""
        ids = re.search(r"\bids\s*=\s*[{\"]([^}\"]*)", self.bibtex)
        own = {*re.split(r"[\s,]+", ids[1] if ids else ""), *(f"key:{name}" for name in self.aliases)}
        return tuple(name for name in self.aliases if name not in own)

    @property
    def retracted(self) -> str:
        """Who says that the paper was retracted, with date and notice if they are known; "" if nobody does.

        >>> LibraryPaper("a", title="RETRACTED: On graphs").retracted
        'its title'
        """
        if mark := self.retraction_mark:
            return mark.partition(":")[2]
        marked = _RETRACTED_TITLE.match(self.title) or _RETRACTED_END.search(self.title)
        return "its title" if marked else ""

    @property
    def retraction_mark(self) -> str:
        return next((mark for mark in self.filled if mark.startswith(f"{RETRACTED}:")), "")

    def as_json(self) -> dict[str, Any]:
        """Return the fields that a search shows; year None if unknown."""
        names = ("id", "key", "title", "authors", "venue", "abstract", "retracted")
        return {name: getattr(self, name) for name in names} | {"year": self.year or None}


def is_published(paper: LibraryPaper) -> bool:
    """True if a paper has a venue or DOI that is not of preprints."""
    has_venue = bool(paper.venue) and not PREPRINT_VENUE.search(paper.venue)
    return has_venue or bool(paper.doi and not PREPRINT_DOI.match(paper.doi))


def is_preprint(paper: LibraryPaper) -> bool:
    """True if a paper is known as a preprint only."""
    named = paper.arxiv or PREPRINT_VENUE.search(paper.venue) or PREPRINT_DOI.match(paper.doi)
    return bool(named) and not is_published(paper)


def usable_paper(
    read: Callable[[], LibraryPaper | None], where: str, on_bad: OnBadRecord
) -> Iterator[LibraryPaper]:
    """Yield the paper that `read` returns, if any; pass an InputError to `on_bad` if it cannot be used."""
    try:
        if paper := read():
            check_paper(paper, where)
            yield paper
    except InputError as error:
        on_bad(error)


def check_paper(paper: LibraryPaper, where: str) -> None:
    """Raise InputError for a paper without title and abstract, or with an invalid id."""
    if not (paper.title or paper.abstract):
        raise InputError(f"{where}: has neither title nor abstract")
    if not is_valid_id(paper.id):
        reason = "is not a valid id: it must not be empty or contain white space or control characters"
        raise InputError(f"{where}: {quoted(paper.id)} {reason}")


def make_paper(id: str = "", **fields: Any) -> LibraryPaper:
    """Return a paper with cleaned fields. An empty id is derived from the DOI, arXiv id, key or title."""
    for name in ("title", "abstract", "venue"):
        text = clean_text(fields.get(name, ""))
        fields[name] = "" if is_placeholder(text) else text
    for name in ("authors", "collections", "tags"):
        texts = (text for text in map(clean_text, fields.get(name, ())) if text and not is_placeholder(text))
        fields[name] = tuple(texts if name == "authors" else dict.fromkeys(texts))  # authors may be namesakes
    doi, arxiv = clean_doi(fields.get("doi", "")), find_arxiv_id(fields.get("arxiv", ""))
    if not arxiv and "arxiv." in doi:
        arxiv = find_arxiv_id(doi)
    id = id or derived_id(doi, arxiv, fields.get("key", ""), fields["title"] or fields["abstract"])
    fields["year"] = int(fields.get("year", 0))  # readers may give a subclass of int
    return LibraryPaper(**(fields | {"id": id, "doi": doi, "arxiv": arxiv}))


def terminal_text(text: str) -> str:
    """Return a text on one line without control characters, since titles come from untrusted files."""
    return " ".join(_CONTROL.sub(" ", text).split())


def derived_id(doi: str, arxiv: str, key: str, title: str) -> str:
    """Return an id for a paper without one, from its DOI, arXiv id, key or title, the first that it has."""
    if doi and not (arxiv and "arxiv." in doi):
        return f"doi:{doi}"
    if arxiv:
        return f"arxiv:{arxiv}"
    if key:
        return "key:" + re.sub(r"[\s\x00-\x1f\x7f-\x9f]+", "_", key)
    return f"title:{title_key(normalise_title(title)):016x}"


def clean_text(text: str) -> str:
    """Remove mark-up, control codes, unpaired surrogates and repeated white space, which exports leave in.

    >>> clean_text('<i>Deep</i>  nets &amp; <a href="b">if</a> a<b, or c > d')
    'Deep nets & if a<b, or c > d'
    """
    if "\\" in text:
        text = _FORMULA.sub(_formula, _MINIMAL.sub(_formula, text))
    if "<" in text:
        text = _without_tags(_CODE_POINT.sub(lambda code: chr(int(code[1], 16)), text))
    if "&" in text:
        text, before = html.unescape(text), text
        if _ENTITY.search(text):  # escaped twice
            text = html.unescape(text)
        text = _without_tags(text) if "&lt;" in before else text
    if "{" in text:
        text = _GREEK.sub(lambda name: _LETTERS[name[1]], text)
        text = text.replace("{''}", "''")
    if not text.isascii():
        text = text.encode("utf-8", "replace").decode()
    if not text.isprintable():
        text = _CONTROL_CODES.sub("", text)
    return " ".join(text.split())


def _without_tags(text: str) -> str:
    return _BLOCK_TAG.sub(" ", _TAG.sub("", text))


def _formula(match: re.Match[str]) -> str:
    """Return a formula as text; nothing for Springer's second form of the one before it.

    >>> clean_text(r"O(n) \\documentclass[12pt]{minimal}\\begin{document}$$O(n)$$\\end{document} of $\\pm 2$")
    'O(n) of ± 2'
    """
    from citerec.formats.latex_text import plain_text  # most questions need no LaTeX

    is_second = match.re is _MINIMAL
    text = plain_text(match[1] if is_second else match[0])
    before = match.string[: match.start()].rstrip()
    return "" if is_second and before.endswith(text) else f" {text}" if is_second else text


def split_names(value: str) -> list[str]:
    """Split keywords or groups at semicolons, or at commas if there are no semicolons."""
    return value.split(";" if ";" in value else ",")


def merge_records(papers: list[LibraryPaper]) -> LibraryPaper:
    """Merge records of the same paper; earlier records take precedence, but published ones over preprints.
    The first gives the id.

    What was filled in comes last.
    """
    if len(papers) == 1:
        return papers[0]
    before, lead = papers, without_filled(papers[0])
    papers = sorted(map(without_filled, papers), key=is_preprint)
    fields = {
        name: next((value for paper in papers if (value := getattr(paper, name))), getattr(lead, name))
        for name in ("key", "title", "year", "venue", "doi", "arxiv", "url", "bibtex")
    }
    fields["title"] = next((paper.title for paper in papers if paper.retracted), fields["title"])
    fields["abstract"] = max((paper.abstract for paper in papers), key=len)
    fields["authors"], fields["names"] = max(
        ((paper.authors, paper.names) for paper in papers), key=lambda lists: (len(lists[0]), len(lists[1]))
    )
    for name in ("collections", "tags", "files"):
        fields[name] = tuple(dict.fromkeys(value for paper in papers for value in getattr(paper, name)))
    names = [name for paper in papers for name in (paper.id, paper.key, *paper.aliases) if name]
    names += [f"doi:{paper.doi}" for paper in papers if paper.doi not in ("", fields["doi"])]
    aliases = tuple(name for name in dict.fromkeys(names) if name not in (lead.id, fields["key"]))
    merged = lead._replace(**fields, aliases=aliases)
    for paper in before:
        merged = fill_again(merged, paper)
        if paper.doi == merged.doi and "doi" not in _filled_fields(merged):  # which merges them again
            marks = tuple(mark for mark in paper.filled if mark.startswith("doi:"))
            merged = merged._replace(filled=(*merged.filled, *marks))
    return merged


def without_filled(paper: LibraryPaper) -> LibraryPaper:
    """Return a paper without what `citerec enrich` filled in."""
    if not paper.filled:
        return paper
    empty = LibraryPaper("")
    return paper._replace(**{name: getattr(empty, name) for name in _filled_fields(paper)}, filled=())


def fill_again(paper: LibraryPaper, former: LibraryPaper) -> LibraryPaper:
    """Fill the gaps of a paper with what was filled in a former state of it."""
    if not former.filled:
        return paper
    gaps = [name for name in _filled_fields(former) if not getattr(paper, name)]
    marks = tuple(mark for mark in former.filled if mark.partition(":")[0] in gaps)
    is_same = not former.doi or paper.doi in ("", former.doi)
    if not paper.retraction_mark and former.retraction_mark and is_same:
        marks += (former.retraction_mark,)
    return paper._replace(**{name: getattr(former, name) for name in gaps}, filled=(*paper.filled, *marks))


def _filled_fields(paper: LibraryPaper) -> list[str]:
    names = (mark.partition(":")[0] for mark in paper.filled)
    return [name for name in names if name != RETRACTED]


def retraction(source: str, date: str, doi: str) -> str:
    """Return who says that a work was retracted.

    >>> retraction("Crossref", "2010-02-06", "10.1016/s0140-6736(10)60175-4")
    'Crossref, 2010-02-06, doi:10.1016/s0140-6736(10)60175-4'
    """
    return ", ".join(filter(None, (source, date, f"doi:{notice}" if (notice := clean_doi(doi)) else "")))


def retraction_note(retracted: str) -> str:
    """Return what to say of a paper that was retracted (LibraryPaper.retracted); "" of others.

    >>> retraction_note("Crossref, 2010-02-06")
    'retracted (Crossref, 2010-02-06)'
    """
    return f"retracted ({retracted})" if retracted else ""
