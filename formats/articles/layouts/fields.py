"""Fields that several layouts have in common."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from citerec.base.errors import MAX_SHOWN, quoted
from citerec.formats.documents import CitationSpan, Paragraph
from citerec.formats.identifiers import identifier
from citerec.formats.json_lines import Object, Offset, validate


def read_identifiers(identifiers: Mapping[str, Any] | None) -> tuple[str, ...]:
    """All identifiers of a record, which may be lists, numbers or strings."""
    named = ((kind, value) for kind, values in (identifiers or {}).items() for value in _listed(values))
    return tuple(
        dict.fromkeys(filter(None, (identifier(kind, str(value)) for kind, value in named if value)))
    )


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def body_layout(body: str, cites: str, ref: str) -> Any:
    """Define a layout of paragraphs with citation spans, given the names of its fields."""
    offsets = [("start", Offset), ("end", Offset)]
    span = msgspec.defstruct("Span", [*offsets, ("ref", str | None, None)], rename={"ref": ref})
    texts = [("text", str | None, None), ("section", str | None, None)]
    cited = ("cites", list[span] | None, None)  # type: ignore[valid-type]
    paragraph = msgspec.defstruct("Paragraph", [*texts, cited], rename={"cites": cites})
    paragraphs = ("body", list[paragraph] | None, None)  # type: ignore[valid-type]
    return msgspec.defstruct("Body", [paragraphs], rename={"body": body})


def read_paragraphs(record: Object, layout: Any, where: str) -> list[Paragraph]:
    return [
        Paragraph(
            one.text or "",
            [CitationSpan(span.start, span.end, span.ref or None) for span in one.cites or ()],
            one.section or "",
        )
        for one in validate(record, layout, where).body or ()
    ]


def read_entries(record: Object, field: str, layout: Any, where: str) -> Iterator[tuple[str, Any]]:
    entries = {} if record.get(field) is None else record[field]
    for ref, entry in validate(entries, dict[str, Any], where, field).items():
        key = ref if ref.isprintable() and len(ref) <= MAX_SHOWN else quoted(ref)
        yield ref, validate(entry, layout, where, f"{field}.{key}")
