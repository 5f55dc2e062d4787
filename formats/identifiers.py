"""Identifiers of papers in the one form that is compared: DOIs, arXiv, PubMed and PMC ids; and years."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

_YEAR = re.compile(r"(?<!\d)(?:19|20)\d\d(?!\d)")
_EARLY = re.compile(
    r"(?:c(?:a|irca)?\.? ?)?(0\d\d[1-9]|0\d[1-9]\d|[1-9]\d\d)(?:(?:-\d\d){1,2}|~)?(?: (?:AD|CE))?", re.I
)
_DATE_YEAR = re.compile(r"(?<!\d)(?<!^-)(0[1-9]\d\d|[12]\d(?:\d[\dXu]|[XxUu]{2}))(?:\d{4})?(?!\d)")
"""A year, also with unknown digits, or a date of eight digits."""
_ARCHIVE = (
    "(?:acc-phys|adap-org|alg-geom|ao-sci|astro-ph|atom-ph|bayes-an|chao-dyn|chem-ph|cmp-lg|comp-gas|cond-mat|cs"
    "|dg-ga|funct-an|gr-qc|hep-(?:ex|lat|ph|th)|math(?:-ph)?|mtrl-th|nlin|nucl-(?:ex|th)|patt-sol|physics"
    "|plasm-ph|q-(?:alg|bio)|quant-ph|solv-int|supr-con)"
)
"""Archives of arXiv whose names are in ids, from 1991 to March 2007."""
ARXIV_ID = rf"(?:\d{{4}}\.\d{{4,5}}|{_ARCHIVE}(?:\.[A-Z]{{2}})?/\d{{7}})"
_NAMED_ARXIV = re.compile(
    rf"(?:arxiv[:/.\s]*(?:abs/|pdf/)?|arxiv\.org/\w+/)({ARXIV_ID})(?:v\d+)?", re.IGNORECASE
)
_BARE_ARXIV = re.compile(rf"({ARXIV_ID})(?:v\d+)?")
_BESIDE_ARXIV = re.compile(
    r"(?>\[[\w.-]*\]|[\W\d_]|arxiv|org|abs|pdf|https?|www|e?-?print|preprint|available|at|online|url|href|cite|v\d)*"
)
_DOI_STARTS = re.compile(r"(?:https?://)?(?:dx\.)?(?:doi\.org/)?(?:doi:\s*)?(?=10\.)", re.IGNORECASE)
_KINDS = {"pubmed": "pmid", "pubmedcentral": "pmc", "pmcid": "pmc"}

_MONTH = r"(0[1-9]|1[0-2])"
_ARXIV = re.compile(
    rf"(?:arxiv:)?(?:(\d\d){_MONTH}\.\d{{4,5}}"
    rf"|{_ARCHIVE}(?:\.[a-z]{{2}})?[/_]?(9[1-9]|0[0-7]){_MONTH}\d{{3}})(?:v\d+)?",
    re.IGNORECASE,
)

_DOI = re.compile(r"10\.\d{4,9}/\S+")
_NOTED_DOI = re.compile(
    r"^[ \t]*(?:doi[ \t]*[:=]?[ \t]*|https?://(?:dx\.)?doi\.org/)?10\.\d{4,9}/\S+[ \t]*$", re.I | re.M
)
_NOTED = re.compile(r"^\s*(citation key|doi|arxiv|pmid|pmcid)\s*:\s*(\S+)", re.IGNORECASE | re.MULTILINE)
_OPENING = {")": "(", "]": "[", "}": "{"}


def find_year(text: str) -> int:
    """Return the first year from 1900 to 2099 in a text; 0 if none."""
    match = _YEAR.search(text)
    return int(match[0]) if match else 0


def date_year(text: str) -> int:
    """Return the first year of what is known to be a date; 0 if it has none, or one before the common era.
    A year before 1000 has three digits, or leading zeros.

    >>> [date_year(text) for text in ("1687///", "c. 1450", "199X", "20180301", "-0399", "800", "0050")]
    [1687, 1450, 1990, 2018, 0, 800, 50]
    """
    text = text.strip()
    if early := _EARLY.fullmatch(text):
        return int(early[1])
    match = _DATE_YEAR.search(text)
    return int(re.sub("[XxUu]", "0", match[1])) if match else 0


def arxiv_year(paper: str) -> int:
    """Return the year encoded in an arXiv id; 0 for anything else.

    >>> [arxiv_year(paper) for paper in ("2101.00001v2", "hep-th9901001", "paper-0001234", "PMC2912345")]
    [2021, 1999, 0, 0]
    """
    return arxiv_date(paper)[0]


def arxiv_date(paper: str) -> tuple[int, int]:
    """Return the year and month encoded in an arXiv id; (0, 0) for anything else.

    >>> [arxiv_date(paper) for paper in ("2101.00001v2", "math.AG/0601001", "cmp-lg_9508001", "paper-7")]
    [(2021, 1), (2006, 1), (1995, 8), (0, 0)]
    """
    match = _ARXIV.fullmatch(paper)
    if not match:
        return 0, 0
    year, month = int(match[1] or match[3]), int(match[2] or match[4])
    return year + (1900 if year > 90 else 2000), month


def arxiv_month(paper: str, year: int) -> int:
    """Return the month of a paper of this year by its arXiv id; 0 if its id is none or of another year."""
    of_id, month = arxiv_date(paper)
    return month if of_id == year else 0


def find_arxiv_id(text: str) -> str:
    """Return the first arXiv id in a text, without version; "" if none.

    >>> texts = "arXiv:2112.01206v2", "https://arxiv.org/abs/hep-th/9901001", "paper/0001234"
    >>> [find_arxiv_id(text) for text in texts]
    ['2112.01206', 'hep-th/9901001', '']
    """
    match = _BARE_ARXIV.fullmatch(text.strip()) or _NAMED_ARXIV.search(text)
    return match[1] if match else ""


def arxiv_in_note(text: str) -> str:
    """Return the arXiv id that is all that a note, or a line or part of it, says; "" if none."""
    for part in re.split(r"[;\n]|(?<=\d)Comment:", text):  # as BibSonomy has it behind the id
        id = find_arxiv_id(part)
        if id and _BESIDE_ARXIV.fullmatch(part.replace(id, "").lower()):
            return id
    return ""


def identifier_kind(kind: str) -> str:
    """Return the name of a kind of identifier: in lower case, one for PubMed and one for PubMed Central."""
    return _KINDS.get(kind.lower(), kind.lower())


def identifier(kind: str, value: str) -> str:
    """Return an identifier in the one form that is compared; "" if it has no value.

    >>> identifier("DOI", "https://doi.org/10.1000/ABC."), identifier("PubMed", "123")
    ('doi:10.1000/abc', 'pmid:123')
    >>> identifier("doi", "10.1016/0304-3975(84)"), identifier("doi", "10.1000/a).")
    ('doi:10.1016/0304-3975(84)', 'doi:10.1000/a')
    >>> identifier("pmcid", "PMC123"), identifier("ArXiv", "2101.00001v2")
    ('pmc:123', 'arxiv:2101.00001')
    """
    kind, value = identifier_kind(kind), value.strip().lower()
    if kind == "doi":
        value = _doi_end(_DOI_STARTS.sub("", value, count=1))
    elif kind == "pmc":
        value = value.removeprefix("pmc")
    elif kind == "arxiv":
        value = find_arxiv_id(value) or value
    return f"{kind}:{value}" if kind and value else ""


def identifiers(record: Mapping[str, Any] | None) -> tuple[str, ...]:
    """Return all identifiers of a record by kind, whose values may be lists, numbers or strings.

    >>> identifiers({"doi": ["10.1/A", None], "pubmed_id": 12, "arxiv": ""})
    ('doi:10.1/a', 'pmid:12')
    """
    values = (
        (kind.removesuffix("_id"), value)
        for kind, listed in (record or {}).items()
        for value in (listed if isinstance(listed, list) else [listed])
    )
    named = (identifier(kind, str(value)) for kind, value in values if value)
    return tuple(dict.fromkeys(filter(None, named)))


def clean_doi(text: str) -> str:
    """Return the DOI in a text or URL, in lower case; "" if there is none.

    >>> clean_doi("https://doi.org/10.1145/3397271.3401075")
    '10.1145/3397271.3401075'
    """
    match = _DOI.search(unquote(text) if "doi.org/" in text.lower() else text)
    return _doi_end(match[0]).lower() if match and match[0].isprintable() else ""


def noted(text: str) -> dict[str, str]:
    """Return what lines of a note name, by lower-case name: key and identifiers, as in Zotero's field Extra.

    >>> noted("Citation Key: lee\\nPMID: 123\\nread it: soon")
    {'pmid': '123', 'citation key': 'lee'}
    """
    return {name.lower(): value for name, value in reversed(_NOTED.findall(text))}


def doi_in_note(text: str) -> str:
    """Return the DOI that a note names in a line of its own, as Zotero's field Extra does; "" if none.

    >>> doi_in_note("Citation Key: lee\\nDOI: 10.1000/a"), doi_in_note("see 10.1000/b")
    ('10.1000/a', '')
    """
    match = _NOTED_DOI.search(text)
    return clean_doi(match[0]) if match else ""


def _doi_end(doi: str) -> str:
    """Return a DOI without the punctuation after it; brackets that it opens itself are its own."""
    surplus = {sign: doi.count(sign) - doi.count(opening) for sign, opening in _OPENING.items()}
    end = len(doi)
    while end and (doi[end - 1] in ".,;:\"'" or surplus.get(doi[end - 1], 0) > 0):
        end -= 1
        if doi[end] in surplus:
            surplus[doi[end]] -= 1
    return doi[:end]
