"""Layouts of JSON lines, told apart by the keys of each record (`read_record`).

own          our own (`id`)
arxiv        arXiv's metadata snapshot (`authors_parsed`)
s2orc        S2ORC and other dumps of the Semantic Scholar API (`corpusid`)
s2orc_2020   S2ORC of July 2020 (`paper_id`)
unarxive     unarXive (`paper_id` and `discipline`)
fields       what several layouts have in common
"""

from __future__ import annotations

from citerec.base.errors import InputError
from citerec.formats.articles.layouts.arxiv import read_arxiv
from citerec.formats.articles.layouts.own import read_own
from citerec.formats.articles.layouts.s2orc import read_s2orc
from citerec.formats.articles.layouts.s2orc_2020 import read_s2orc_2020
from citerec.formats.articles.layouts.unarxive import read_unarxive
from citerec.formats.documents import Document
from citerec.formats.json_lines import Object

__all__ = ["read_own", "read_record", "read_s2orc", "read_s2orc_2020"]


def read_record(record: Object, where: str) -> Document:
    """Read a record in any layout. Raises InputError with the field."""
    if "authors_parsed" in record:
        return read_arxiv(record, where)
    if "corpusid" in record:
        return read_s2orc(record, where)
    if "paper_id" in record:
        return (read_unarxive if "discipline" in record else read_s2orc_2020)(record, where)
    if "id" in record:
        return read_own(record, where)
    raise InputError(f"{where}: has neither 'id' (our layout, arXiv) nor 'corpusid' or 'paper_id' (S2ORC)")
