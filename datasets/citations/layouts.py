"""Records of S2ORC, Semantic Scholar's dumps and Citeomatic as papers that cite; told from the keys.

| layout | keys |
| --- | --- |
| S2ORC of 2020, `metadata` | paper_id, title, abstract, year, mag_field_of_study, outbound_citations |
| Semantic Scholar's corpus up to 2021 | id, title, paperAbstract, year, fieldsOfStudy, outCitations |
| Citeomatic's DBLP and PubMed | id, title_raw or title, abstract_raw or abstract, year, out_citations |
| Semantic Scholar's datasets: `papers` | corpusid, title, year, s2fieldsofstudy |
| `abstracts` | corpusid, abstract |
| `citations` | citingcorpusid, citedcorpusid |
| our own (datasets.citations.paper_lines) | paper_id, title, abstract, year, fields, references |

Open Research is Semantic Scholar's corpus of 2017-02-21. Citeomatic's `title` and `abstract` are the raw ones
in lower case, cut into words.
"""

from __future__ import annotations

from typing import NamedTuple

from datasets.citations.paper_lines import PaperLine, named, paper_line, references
from datasets.errors import InputError
from datasets.fulltext.s2orc import read_s2orc, read_s2orc_2020
from datasets.fulltext.values import Object, identity, optional_identity, string
from datasets.source import year_of


class Part(NamedTuple):
    """What a record of `papers` or `abstracts` tells of a paper; what it does not tell is empty."""

    paper: PaperLine


class Citation(NamedTuple):
    """A pair of ids; empty where what is cited is not known."""

    citing: str
    cited: str


def read_record(record: Object, where: str) -> PaperLine | Part | Citation:
    """A whole paper, a part of one, or a citation. Raises InputError that names the field, or the layouts."""
    if "citingcorpusid" in record:
        citing, cited = (optional_identity(record, f"{side}corpusid", where) for side in ("citing", "cited"))
        return Citation(citing, cited)
    if "corpusid" in record:
        found = read_s2orc({key: value for key, value in record.items() if key in _API}, where).paper
        return Part(_line(where, found.id, found.title, found.abstract, found.year, tuple(found.field), ()))
    if "paperAbstract" in record or "outCitations" in record:
        return _line(
            where,
            identity(record, "id", where),
            string(record, "title", where),
            string(record, "paperAbstract", where),
            year_of(record.get("year"), where),
            named(record, "fieldsOfStudy", where),
            references(record, "outCitations", where),
        )
    if (
        "out_citations" in record
    ):  # its title and abstract are those that are raw, in lower case and cut into words
        return _line(
            where,
            identity(record, "id", where),
            string(record, "title_raw", where) or string(record, "title", where),
            string(record, "abstract_raw", where) or string(record, "abstract", where),
            year_of(record.get("year"), where),
            (),
            references(record, "out_citations", where),
        )
    if "outbound_citations" in record or "mag_field_of_study" in record:
        found = read_s2orc_2020(record, where).paper
        to = references(record, "outbound_citations", where)
        return _line(where, found.id, found.title, found.abstract, found.year, tuple(found.field), to)
    if "paper_id" in record:
        return paper_line(record, where)
    raise InputError(
        f"{where}: of no known layout: S2ORC's metadata (outbound_citations), Semantic Scholar's corpus "
        "(outCitations) or datasets (corpusid, citingcorpusid), Citeomatic's (out_citations), or our own "
        "(paper_id, references)"
    )


_API = ("corpusid", "externalids", "title", "abstract", "year", "s2fieldsofstudy")


def _line(
    where: str, id: str, title: str, abstract: str, year: int, fields: tuple[str, ...], cited: tuple[str, ...]
) -> PaperLine:
    return PaperLine(where, id, title.strip(), abstract.strip(), year, tuple(dict.fromkeys(fields)), cited)
