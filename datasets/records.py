"""The records that make up a corpus: papers, contexts and the queries of each split.

A `Source` provides them to `datasets.prepare.open_records`, which prepares the store. The files papers.json,
contexts.json and SPLIT.json are one source (`datasets.files.source_files`); a benchmark that holds its
papers in memory is another.

The first record that breaks a rule is an error, a `BadRecord`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from citerec.base.errors import InputError, quoted
from citerec.formats.json_lines import ID_RULE, is_valid_id

TARGET_MARKER = "TARGETCIT"
"""Replaces the citation of the paper to recommend in a context."""
OTHER_MARKER = "OTHERCIT"
"""Replaces any other citation in a context."""

TARGET_WORD = TARGET_MARKER.lower()
OTHER_WORD = OTHER_MARKER.lower()
MARKER_WORDS = (TARGET_WORD, OTHER_WORD)
"""The markers as tokens; both tokenisers lower-case."""

WINDOW = 200
"""Characters on each side of the mark that a context has, as in the published data sets."""
SECTION = 2000
"""Characters on each side of the mark that the text around a context has, a query's field `section`."""

SPLITS = ("train", "val", "test")
"""The default splits."""
TRAIN = "train"
"""The split for training models and counting popularity."""
IN_TEXTS = "texts"
"""The split of contexts that were read in the full texts of a library's own papers."""


class PaperRecord(NamedTuple):
    """A paper with a title or an abstract; year 0 if unknown.

    candidate: False for a paper that only cites: it is never recommended and may have neither text.
    """

    id: str
    title: str
    abstract: str
    year: int = 0
    fields: tuple[str, ...] = ()
    candidate: bool = True


class ContextRecord(NamedTuple):
    """A citation context, whose text has TARGET_MARKER exactly once; `cited_id` may be unknown.

    outside: True if the citing paper is not in the corpus, so that only its id is known.
    """

    id: str
    text: str
    citing_id: str
    cited_id: str | None = None
    outside: bool = False


class QueryRecord(NamedTuple):
    """A context of a split and the papers to retrieve for it."""

    context_id: str
    positive_ids: Sequence[str]


class BadRecord(InputError):
    """A record that cannot be used."""

    def __init__(self, path: Path, record: str | int, reason: str, field: str | None = None) -> None:
        at = f", field {field!r}" if field is not None else ""
        super().__init__(f"{record_name(path, record)}{at}: {reason}")


def record_name(path: Path, record: str | int) -> str:
    """Return what messages call a record."""
    return f"{path}, record {quoted(record)}"


@dataclass(frozen=True)
class Source:
    """The source of a corpus's records; it is read only if no store with the same `identity` exists.

    `identity` and the settings determine the store to open: it must change whenever the records do, as hashes
    of the source files do. Each callable is called at most once: papers, contexts, then the splits in order.
    It returns an iterable; a generator function keeps records out of memory:

        def papers():
            for paper in read_texts(path):
                yield PaperRecord(paper.id, paper.title, paper.abstract)

        corpus = open_records(Source(
            name="mdcr-val",
            identity={"papers": content_hash(path, cache), "queries": digest},
            papers=papers,
            contexts=lambda: [ContextRecord("q1", "TARGETCIT A query's text.", citing_id="p7")],
            splits={"test": lambda: [QueryRecord("q1", ["p1", "p2"])]},
        ), candidates="all", cache_dir=cache_dir)
    """

    name: str
    identity: Mapping[str, str]
    papers: Callable[[], Iterable[PaperRecord]]
    contexts: Callable[[], Iterable[ContextRecord]]
    splits: Mapping[str, Callable[[], Iterable[QueryRecord]]]
    files: Mapping[str, Path] = field(default_factory=dict)
    """The source files by part (`papers`, `contexts`, `split NAME`), if the records come from files."""
    terms: Mapping[str, str] = field(default_factory=dict)
    """What the files call papers, contexts, their fields and themselves, for messages."""
    field: str | None = None
    """The key of the papers file that holds papers' fields, if any."""

    def origin(self, part: str) -> Path:
        """Return the origin of a part's records, for messages."""
        return self.files.get(part) or Path(self.name) / part


def default_citing_id(query: str) -> str:
    """The id of the implicit citing paper of a query that names none."""
    return f"query/{query}"


def join_sources(sources: Mapping[str, Source], name: str) -> Source:
    """Join named sources into one with ids NAME/ID and the union of their splits.

    Records keep their order.
    """

    def add_prefix(part: str, record: Any) -> Any:
        if isinstance(record, PaperRecord):
            return record._replace(id=f"{part}/{record.id}")
        if isinstance(record, ContextRecord):
            cited = None if record.cited_id is None else f"{part}/{record.cited_id}"
            id, citing = f"{part}/{record.id}", f"{part}/{record.citing_id}"
            return record._replace(id=id, citing_id=citing, cited_id=cited)
        if isinstance(record, QueryRecord):
            return QueryRecord(f"{part}/{record.context_id}", [f"{part}/{id}" for id in record.positive_ids])
        return record

    def chain(reads: Mapping[str, Callable[[], Iterable[Any]]]) -> Callable[[], Iterable[Any]]:
        return lambda: (add_prefix(part, record) for part, read in reads.items() for record in read())

    splits = dict.fromkeys(split for source in sources.values() for split in source.splits)
    return Source(
        name,
        {
            f"{place}/{part}/{kind}": hash  # the order matters
            for place, (part, source) in enumerate(sources.items())
            for kind, hash in source.identity.items()
        },
        papers=chain({part: source.papers for part, source in sources.items()}),
        contexts=chain({part: source.contexts for part, source in sources.items()}),
        splits={
            split: chain(
                {part: source.splits[split] for part, source in sources.items() if split in source.splits}
            )
            for split in splits
        },
        files={
            f"{part}/{kind}": path for part, source in sources.items() for kind, path in source.files.items()
        },
        field=next((source.field for source in sources.values() if source.field), None),
        terms={"papers": "the papers files", "contexts": "the contexts files"},
    )


def split_group(split: str) -> str:
    """Return the part of a split's name before the first underscore: `val` for `val_sentences`.

    Splits of the same group may share citing papers; splits of different groups may not.
    """
    return split.split("_", 1)[0]


def check_split_names(splits: object) -> None:
    """Raise InputError unless `splits` is a list of valid split names."""
    if isinstance(splits, str) or not isinstance(splits, Iterable) or not (names := list(splits)):
        raise InputError(f"data.splits: must be a list of names, e.g. [train,val,test], not {splits!r}")
    for split in names:
        usable = isinstance(split, str) and re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]*", split)
        if not usable or split in ("papers", "contexts"):
            raise InputError(
                f"data.splits: {quoted(split)} is not a valid split name (letters, digits, '_' and '-')"
            )


def check_paper(paper: PaperRecord, path: Path) -> None:
    """Raise BadRecord if a paper cannot be used."""
    _check_id(paper.id, path)
    if paper.candidate and not paper.title.strip() and not paper.abstract.strip():
        raise BadRecord(path, paper.id, "title and abstract are both empty; a paper needs one of them")


def check_context(context: ContextRecord, path: Path, field: str) -> None:
    """Raise BadRecord if a context cannot be used. field: what the file calls its text."""
    _check_id(context.id, path)
    if not context.text.replace(TARGET_MARKER, "").strip():
        raise BadRecord(path, context.id, "the context is empty", field)
    if (markers := context.text.count(TARGET_MARKER)) != 1:
        reason = f"{TARGET_MARKER} must occur exactly once but occurs {markers} times"
        raise BadRecord(path, context.id, reason, field)


def check_query(query: QueryRecord, path: Path, record: str | int, field: str) -> None:
    """Raise BadRecord if a query cannot be used. field: what the file calls the cited papers."""
    papers = query.positive_ids
    if not papers:
        raise BadRecord(path, record, "is empty; a query needs at least one cited paper", field)
    if len(set(papers)) != len(papers):
        twice = next(paper for place, paper in enumerate(papers) if paper in papers[:place])
        raise BadRecord(path, record, f"a paper appears twice: {quoted(twice)}", field)


def _check_id(key: str, path: Path) -> None:
    if not is_valid_id(key):
        raise BadRecord(path, key, ID_RULE)


_PARTS = re.compile(r"[{}\[\]<>\",;@]")
_SUFFIX = re.compile(r"(?:TODO|FIXME|XXX)(?=\W)(.*)", re.IGNORECASE | re.DOTALL)
_WORDS = re.compile(r"[^\W\d_]{2,}|\d+")


def target_mark(command: str) -> str:
    r"""Return TARGET_MARKER after the words in suffixes of missing keys; rankers read names and years there.

    >>> target_mark(r"\citep{TODO:blei2003latent, lee2020}"), target_mark("[see @TODO:srivastava; @?]")
    ('Blei 2003 Latent TARGETCIT', 'Srivastava TARGETCIT')
    """
    keys = (_SUFFIX.fullmatch(part.strip()) for part in _PARTS.split(command))
    words = (word for key in keys if key for word in _WORDS.findall(key[1]))
    return " ".join([*(word[0].upper() + word[1:] for word in words), TARGET_MARKER])
