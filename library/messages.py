"""What is asked of a library and answered over HTTP and MCP, with its limits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal
from urllib.parse import quote

from pydantic import BaseModel, Field, StringConstraints

from datasets.errors import InputError
from datasets.records import raise_bad
from library.bibliographies import parse_bibtex
from library.explanation import MARK, Recommendation
from library.formats import bibtex
from library.papers import LibraryPaper, check_paper, make_paper

if TYPE_CHECKING:
    from library.recommender import Recommender

MOST_PAPERS = 100
"""Papers in an answer, at most."""
Name = Annotated[str, StringConstraints(min_length=1, max_length=500)]
"""An id, a key, a collection, a venue."""
Years = Annotated[str, StringConstraints(pattern=r"^(\d{1,4}|\d{1,4}-(\d{1,4})?|-\d{1,4})$")]


class RequestBody(BaseModel, extra="forbid"):
    """What is sent: fields that there are not are refused."""


class Question(RequestBody):
    """A passage that lacks a citation, and who asks."""

    text: str = Field(
        min_length=1,
        max_length=100_000,
        description="the passage; [CITE], \\cite{?} or TARGETCIT where the citation is missing, else its end",
        examples=["Adam [CITE] is the usual optimiser."],
    )
    title: str = Field(default="", max_length=2_000, description="of the paper being written")
    abstract: str = Field(default="", max_length=20_000, description="of the paper being written")
    k: int = Field(default=10, ge=1, le=MOST_PAPERS, description="papers to recommend")
    exclude: list[Name] = Field(default=[], max_length=1_000, description="ids never to recommend")
    only: list[Name] = Field(default=[], max_length=10_000, description="ids to recommend alone; empty: all")
    years: Years | None = Field(default=None, description="of the papers", examples=["2015-2020", "2019"])
    collection: Name | None = Field(default=None, description="of the library, that the papers are in")
    venue: Name | None = Field(default=None, description="that the papers appeared in")
    rerank: bool | None = Field(default=None, description="with the cross-encoder; null: if there is one")
    details: bool = Field(default=False, description="also authors, venue, evidence and BibTeX")


class Questions(RequestBody):
    """Several questions in one request."""

    queries: list[Question] = Field(min_length=1, max_length=64)


class Shown(BaseModel):
    """What speaks for a paper: a text, and its parts that do, by code points."""

    kind: str
    text: str
    spans: list[tuple[int, int]]


class Details(BaseModel):
    authors: list[str]
    venue: str
    url: str
    bibtex: str
    evidence: list[Shown]


class Recommended(BaseModel):
    """A recommended paper."""

    rank: int
    score: float
    id: str
    key: str
    title: str
    year: int | None
    why: str
    details: Details | None = Field(default=None, description="if they were asked for")


class Answer(BaseModel):
    recommendations: list[Recommended]


class Answers(BaseModel):
    """Of each question, in their order."""

    answers: list[Answer]


class NewPaper(RequestBody):
    """A paper to add; its id is made of doi, arXiv id or title where none is given."""

    id: str = Field(default="", max_length=500)
    key: str = Field(default="", max_length=500)
    title: str = Field(min_length=1, max_length=2_000)
    abstract: str = Field(default="", max_length=20_000)
    authors: list[Name] = Field(default=[], max_length=5_000)
    year: int = Field(default=0, ge=0, le=9999, description="0: unknown")
    venue: str = Field(default="", max_length=1_000)
    doi: str = Field(default="", max_length=500)
    arxiv: str = Field(default="", max_length=500)
    url: str = Field(default="", max_length=2_000)
    collections: list[Name] = Field(default=[], max_length=100)
    tags: list[Name] = Field(default=[], max_length=1_000)


class NewPapers(RequestBody):
    """Papers to add: BibTeX entries or records, or both."""

    bibtex: str = ""
    papers: list[NewPaper] = Field(default=[], max_length=10_000)


class Changed(BaseModel):
    """What a change did."""

    papers: int = Field(description="in the library now")
    changed: int = Field(description="added or removed")


class Health(BaseModel):
    status: Literal["ok"] = "ok"
    papers: int


class About(BaseModel):
    """What is served."""

    name: str = Field(description="of the library's folder")
    papers: int
    collections: list[str]
    reranks: bool = Field(description="whether a cross-encoder reads what is found")

    @classmethod
    def of(cls, recommender: Recommender, name: str) -> About:
        library = recommender.library
        collections = library.collections[:1000]
        return cls(name=name, papers=len(library), collections=collections, reranks=recommender.reranks)


class Problem(BaseModel):
    detail: str = Field(description="one line")


class FoundPaper(BaseModel):
    """A paper of the library."""

    id: str
    key: str
    title: str
    authors: list[str]
    year: int | None
    venue: str
    abstract: str


class Found(BaseModel):
    papers: list[FoundPaper]


def answer_question(recommender: Recommender, asked: Question) -> Answer:
    """What the recommender says to a question. Raises InputError for what cannot be answered."""
    made = []
    found = recommender.recommend(**asked.model_dump(exclude={"details"}))
    library = recommender.library
    for paper in found:
        shown = Recommended(**paper.as_json())
        row = library.row(paper.id) if asked.details else None
        if row is not None:  # another request may have removed it by now
            shown.details = paper_details(paper, library.paper(row))
        made.append(shown)
    return Answer(recommendations=made)


def paper_details(paper: Recommendation, kept: LibraryPaper) -> Details:
    """What the page shows beside, and why."""
    said, whole = paper.evidence, ", ".join(paper.evidence.in_title)
    mark = said.cited_as.find(MARK)
    shown = [
        ("Named in the passage:", said.name, [(0, len(said.name))]),
        ("In its title:", "" if said.name else whole, [(0, len(whole))]),
        ("", said.sentence, list(said.matched)),
        ("Cited elsewhere:", said.cited_as, [(mark, mark + len(MARK))] if mark >= 0 else []),
    ]
    evidence = [Shown(kind=kind, text=text, spans=spans) for kind, text, spans in shown if text]
    return Details(
        authors=list(paper.authors),
        venue=paper.venue,
        url=paper_link(kept),
        bibtex=bibtex([kept]),
        evidence=evidence or [Shown(kind=paper.why, text="", spans=[])],
    )


def paper_link(paper: LibraryPaper) -> str:
    """Where the paper is on the web, empty if unknown."""
    if paper.url:
        return paper.url
    if paper.doi:
        return f"https://doi.org/{quote(paper.doi)}"
    return f"https://arxiv.org/abs/{quote(paper.arxiv)}" if paper.arxiv else ""


def find_papers(recommender: Recommender, query: str, k: int) -> Found:
    """The k papers that a plain search for words finds."""
    papers = (paper._asdict() | {"year": paper.year or None} for paper in recommender.search(query, k))
    return Found(papers=[FoundPaper.model_validate(paper) for paper in papers])


def parse_new_papers(new: NewPapers) -> list[LibraryPaper]:
    """The papers to add. Raises InputError for the first that cannot be one."""
    made = []
    for place, paper in enumerate(new.papers):
        made.append(make_paper(**dict(paper)))
        check_paper(made[-1], f"papers.{place}")
    if new.bibtex:
        made += parse_bibtex(new.bibtex, "bibtex", raise_bad)
    if not made:
        raise InputError("give papers or bibtex")
    return made
