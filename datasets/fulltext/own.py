"""The project's own layout of full texts; schema.py describes it."""

from __future__ import annotations

from functools import partial

from datasets.fulltext.schema import Cite, FullText, Paper, Paragraph, Record, Reference
from datasets.fulltext.values import (
    Object,
    identity,
    mapping,
    named,
    objects,
    optional_identity,
    refuse,
    string,
    strings,
    whole,
)
from datasets.source import year_of


def read_own(record: Object, where: str) -> Record:
    """A record of our own layout. Raises InputError that names the field."""
    field = record.get("field")
    paper = Paper(
        id=identity(record, "id", where),
        title=string(record, "title", where),
        abstract=string(record, "abstract", where),
        year=year_of(record.get("year"), where),
        authors=strings(record, "authors", where),
        field=strings(record, "field", where) if isinstance(field, list) else string(record, "field", where),
        identifiers=frozenset(
            kind.lower() for kind, value in mapping(record, "identifiers", where).items() if value
        ),
    )
    return Record(where, paper, None if record.get("body") is None else partial(_full_text, record, where))


def _full_text(record: Object, where: str) -> FullText:
    paragraphs = []
    for paragraph, place in objects(record, "body", where):
        text = string(paragraph, "text", place)
        cites = [
            Cite(whole(cite, "start", at), whole(cite, "end", at), string(cite, "ref", at) or None)
            for cite, at in objects(paragraph, "cites", place)
        ]
        paragraphs.append(Paragraph(text, cites, string(paragraph, "section", place)))
    references = {}
    for ref, entry in mapping(record, "bibliography", where).items():
        if not isinstance(entry, dict):
            raise refuse(where, named("bibliography", ref), "an object", entry)
        place = f"{where}, {named('bibliography', ref)}"
        references[ref] = Reference(
            paper=optional_identity(entry, "paper", place),
            title=string(entry, "title", place),
            authors=strings(entry, "authors", place),
            year=year_of(entry.get("year"), place),
            text=string(entry, "text", place),
        )
    return FullText(paragraphs, references)
