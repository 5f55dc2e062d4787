"""The text that a citation context is searched with: the context, title and abstract of the citing paper."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from datasets.errors import InputError
from datasets.schema import OTHER_MARKER, TARGET_MARKER
from datasets.store import Corpus

QUERY_FIELDS = ("context", "title", "abstract")


def check_fields(fields: Sequence[str], known: Sequence[str] = QUERY_FIELDS) -> tuple[str, ...]:
    """The fields as a tuple; InputError for none at all and for one that is not known."""
    if isinstance(fields, str):
        fields = [fields]
    for field in fields or [""]:
        if field not in known:
            raise InputError(f"retriever.query: {field!r} is not one of {', '.join(known)}")
    return tuple(fields)


def without_markers(text: str) -> str:
    """A context without its marks for citations."""
    return text.replace(TARGET_MARKER, " ").replace(OTHER_MARKER, " ")


def query_texts(corpus: Corpus, contexts: npt.NDArray[np.int64], fields: Sequence[str]) -> Iterator[str]:
    """The fields' texts of each context, one after the other; a field that is named twice stands twice.

    contexts: [Q], rows of the corpus's contexts; fields: of QUERY_FIELDS.
    """
    citing = corpus.citing[contexts].tolist()
    for row, paper in zip(contexts.tolist(), citing, strict=True):
        parts = {
            "context": without_markers(corpus.context_texts[row]) if "context" in fields else "",
            "title": corpus.titles[paper] if "title" in fields else "",
            "abstract": corpus.abstracts[paper] if "abstract" in fields else "",
        }
        yield " ".join(parts[field] for field in fields)
