"""The records a corpus is made of: papers, contexts and the queries of each split.

A `Source` hands them to `datasets.prepare.open_records`, which makes the prepared store. The files
papers.json, contexts.json and SPLIT.json are one source (`datasets.source_files`); a benchmark that has its
papers in memory is another.

A record that breaks a rule is a `BadRecord`: the first one is an error, or all are dropped and counted
(data.on_error=skip).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple, NoReturn

from datasets.errors import InputError
from datasets.settings import Settings, setting

TARGET_MARKER = "TARGETCIT"
"""Stands in a context for the citation of the paper to recommend."""
OTHER_MARKER = "OTHERCIT"
"""Stands in a context for any other citation."""

TARGET_WORD = TARGET_MARKER.lower()
OTHER_WORD = OTHER_MARKER.lower()
MARKER_WORDS = (TARGET_WORD, OTHER_WORD)
"""The markers as tokens: both tokenisers lower-case."""

SPLITS = ("train", "val", "test")
"""The splits to look for when none are named."""
TRAIN = "train"
"""The split that models train on and that popularity is counted in."""

YEARS = range(-(2**31), 2**31)
EXAMPLES = 20
"""Dropped records kept as examples, per file and kind."""
SHOWN = 80
"""Characters of a value shown in a message."""

# White space separates the columns of run files; control characters are for terminals.
_NOT_IN_IDS = re.compile(r"[\s\x00-\x1f\x7f-\x9f]")

Kind = Literal[
    "missing field",
    "field given twice",
    "wrong type",
    "wrong value",
    "empty",
    "wrong number of markers",
    "unusable id",
    "duplicate id",
    "unknown paper",
    "unknown context",
    "in two splits",
    "names a dropped record",
]
"""What is wrong with a record; the last follows from dropping another one."""


class PaperRecord(NamedTuple):
    """A paper, with a title or an abstract; year 0 is unknown.

    candidate False: it stands for a citing paper alone, is never recommended, and may have neither.
    """

    id: str
    title: str
    abstract: str
    year: int = 0
    fields: tuple[str, ...] = ()
    candidate: bool = True


class ContextRecord(NamedTuple):
    """A citation context: its text has TARGET_MARKER exactly once; `cited_id` may be unknown.

    outside: the citing paper is none of the corpus, and only its id is known.
    """

    id: str
    text: str
    citing_id: str
    cited_id: str | None = None
    outside: bool = False


class QueryRecord(NamedTuple):
    """A context of a split and the papers to be found for it."""

    context_id: str
    positive_ids: Sequence[str]


class BadRecord(InputError):
    """A record that cannot be used; the rest of its file can be read."""

    def __init__(
        self, kind: Kind, path: Path, record: str | int, reason: str, field: str | None = None
    ) -> None:
        at = f", field {field!r}" if field is not None else ""
        super().__init__(f"{path}, record {quoted(record)}{at}: {reason}")
        self.kind, self.path, self.record, self.reason, self.field = kind, path, record, reason, field

    def example(self) -> dict[str, Any]:
        """A line of dropped.jsonl."""
        record = self.record if isinstance(self.record, int) else self.record[: 4 * SHOWN]
        place = {"file": self.path.name, "record": record, "field": self.field}
        return {**place, "kind": self.kind, "reason": self.reason}


OnBad = Callable[[BadRecord], None]


@dataclass(frozen=True)
class Source:
    """Where the records of a corpus come from; read only when no store of the same `identity` exists.

    `identity` decides, with the settings, which store is opened: it must change whenever the records do, as
    the hashes of the files they are made of. Each callable is called at most once: papers, contexts, then the
    splits in their order. It gives an iterable, with a BadRecord in place of a record that cannot be read. A
    generator function keeps records out of memory:

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
    papers: Callable[[], Iterable[PaperRecord | BadRecord]]
    contexts: Callable[[], Iterable[ContextRecord | BadRecord]]
    splits: Mapping[str, Callable[[], Iterable[QueryRecord | BadRecord]]]
    files: Mapping[str, Path] = field(default_factory=dict)
    """The source files by part, `papers`, `contexts`, `split NAME`, if the records are read from such."""
    field: str | None = None
    """The key of the papers file that holds papers' fields, if a file has them."""

    def place(self, part: str) -> Path:
        """What messages name as the origin of a part's records."""
        return self.files.get(part) or Path(self.name) / part


def joined(sources: Mapping[str, Source], name: str) -> Source:
    """One source of several by their names; ids are NAME/ID, splits those that any of them has.

    Bad records keep the names of their files; identity, files and order are those of the parts.
    """

    def named(part: str, record: Any) -> Any:
        if isinstance(record, PaperRecord):
            return record._replace(id=f"{part}/{record.id}")
        if isinstance(record, ContextRecord):
            cited = None if record.cited_id is None else f"{part}/{record.cited_id}"
            id, citing = f"{part}/{record.id}", f"{part}/{record.citing_id}"
            return record._replace(id=id, citing_id=citing, cited_id=cited)
        if isinstance(record, QueryRecord):
            return QueryRecord(f"{part}/{record.context_id}", [f"{part}/{id}" for id in record.positive_ids])
        return record

    def chained(reads: Mapping[str, Callable[[], Iterable[Any]]]) -> Callable[[], Iterable[Any]]:
        return lambda: (named(part, record) for part, read in reads.items() for record in read())

    splits = dict.fromkeys(split for source in sources.values() for split in source.splits)
    return Source(
        name,
        {f"{part}/{of}": hash for part, source in sources.items() for of, hash in source.identity.items()},
        papers=chained({part: source.papers for part, source in sources.items()}),
        contexts=chained({part: source.contexts for part, source in sources.items()}),
        splits={
            split: chained(
                {part: source.splits[split] for part, source in sources.items() if split in source.splits}
            )
            for split in splits
        },
        files={f"{part}/{of}": path for part, source in sources.items() for of, path in source.files.items()},
    )


def split_group(split: str) -> str:
    """The part of a split's name before the first underscore: `val` for `val_sentences`.

    Splits of one group may share citing papers, splits of two groups may not.
    """
    return split.split("_", 1)[0]


def check_split_names(splits: object) -> None:
    """InputError unless it is a list of names that splits may have."""
    if isinstance(splits, str) or not isinstance(splits, Iterable) or not (names := list(splits)):
        raise InputError(f"data.splits: must be a list of names, e.g. [train,val,test], not {splits!r}")
    for split in names:
        usable = isinstance(split, str) and re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]*", split)
        if not usable or split in ("papers", "contexts"):
            raise InputError(
                f"data.splits: {quoted(split)} is not a valid split name (letters, digits, '_' and '-')"
            )


def check_paper(paper: PaperRecord, path: Path) -> None:
    """Raises BadRecord."""
    _check_id(paper.id, path)
    if paper.candidate and not paper.title.strip() and not paper.abstract.strip():
        raise BadRecord(
            "empty", path, paper.id, "title and abstract are both empty; a paper needs one of them"
        )


def check_context(context: ContextRecord, path: Path) -> None:
    """Raises BadRecord."""
    _check_id(context.id, path)
    if not context.text.replace(TARGET_MARKER, "").strip():
        raise BadRecord("empty", path, context.id, "the context is empty", "masked_text")
    if (markers := context.text.count(TARGET_MARKER)) != 1:
        reason = f"{TARGET_MARKER} must be there exactly once, it is there {markers} times"
        raise BadRecord("wrong number of markers", path, context.id, reason, "masked_text")


def check_query(query: QueryRecord, path: Path, number: int) -> None:
    """Raises BadRecord; number: its place among the queries."""
    if not query.positive_ids:
        raise BadRecord(
            "empty", path, number, "is empty; a query needs at least one cited paper", "positive_ids"
        )
    if len(set(query.positive_ids)) != len(query.positive_ids):
        raise BadRecord("wrong value", path, number, "a paper appears twice", "positive_ids")


def _check_id(key: str, path: Path) -> None:
    if not usable_id(key):
        reason = "an id must not be empty or hold white space or control characters"
        raise BadRecord("unusable id", path, key, reason)


def usable_id(value: str) -> bool:
    """Whether it can be the id of a paper or context: not empty, no white space, no control characters."""
    return bool(value) and not _NOT_IN_IDS.search(value)


def parse_year(value: Any) -> int:
    """A whole number, or one as a string (some published files have that); None and "" are 0.

    Raises ValueError with the reason.
    """
    if value is None or value == "":
        return 0
    if isinstance(value, str) and value.strip().isdecimal() and len(value) < 20:
        value = int(value)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        found = json_type(value) if isinstance(value, list | dict) else quoted(value)
        raise ValueError(f"must be a whole number, not {found}")
    if value not in YEARS:
        raise ValueError(f"{quoted(value)} is out of range")
    return value


def json_type(value: Any) -> str:
    """The JSON type of a value, for messages."""
    names = {bool: "a boolean", int: "a number", float: "a number", str: "a string", type(None): "null"}
    return (names | {list: "a list", dict: "an object"})[type(value)]


def quoted(value: object) -> str:
    """A value in a message: on one line, cut if it is long."""
    text = repr(value[: SHOWN + 1]) if isinstance(value, str) else repr(value)
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}..."


def raise_bad(error: InputError) -> NoReturn:
    """The first bad record is an error."""
    raise error


@dataclass(frozen=True)
class Tolerance(Settings):
    """What becomes of records that cannot be used."""

    on_error: str = setting("raise", choices=("raise", "skip"))
    """raise: the first one is an error; skip: they are left out and counted"""
    max_bad_share: float = setting(0.01, most=1)
    """of all records that may be left out"""

    @property
    def share(self) -> float | None:
        """The share of records that may be left out; None: the first one is an error."""
        return self.max_bad_share if self.on_error == "skip" else None


@dataclass
class Dropped:
    """The bad records of one file; with `max_share` None the first one is raised."""

    path: Path
    max_share: float | None
    kinds: Counter[str] = field(default_factory=Counter)
    ids: set[str] = field(default_factory=set)
    examples: list[dict[str, Any]] = field(default_factory=list)
    records: int = 0
    """All records of the file, once it has been read."""

    def add(self, bad: BadRecord) -> None:
        if self.max_share is None:
            raise bad
        self.kinds[bad.kind] += 1
        if isinstance(bad.record, str):
            self.ids.add(bad.record)
        if self.kinds[bad.kind] <= EXAMPLES:
            self.examples.append(bad.example())

    def finish(self, kept: int) -> None:
        """Call at the end of the file. Raises InputError if too large a share was dropped."""
        self.records = kept + self.kinds.total()
        if self.max_share is not None:
            refuse_too_many(str(self.path), self.records, self.kinds, self.max_share)

    def counts(self) -> dict[str, Any]:
        """For the store's manifest."""
        return {"file": self.path.name, "records": self.records, "kinds": dict(self.kinds.most_common())}


def refuse_too_many(file: str, records: int, kinds: Mapping[str, int], max_share: float) -> None:
    """Raises InputError if more than that share of a file's records was dropped; kinds: {kind: count}."""
    dropped = sum(kinds.values())
    if dropped and dropped > max_share * records:
        kind, most = max(kinds.items(), key=lambda item: item[1])
        raise InputError(
            f"{file}: {dropped:,} of {records:,} records ({dropped / records:.2%}) are bad, more than "
            f"data.max_bad_share={max_share:g} allows; the commonest kind is {kind!r} ({most:,})"
        )


def dropped_table(files: Mapping[str, Mapping[str, Any]]) -> str:
    """Dropped records by file and kind, a line each; files: the manifest's counts of each file."""
    rows = [("file", "dropped because", "records", "share")]
    for counts in files.values():
        for kind, count in counts["kinds"].items():
            rows.append((counts["file"], kind, f"{count:,}", f"{count / counts['records']:.2%}"))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        f"  {file:{widths[0]}}  {kind:{widths[1]}}  {count:>{widths[2]}}  {share:>{widths[3]}}"
        for file, kind, count, share in rows
    )


def dropped_summary(files: Mapping[str, Mapping[str, Any]]) -> str:
    """dropped_table in one line, without the kinds."""
    found = ((sum(counts["kinds"].values()), counts) for counts in files.values())
    return ", ".join(f"{dropped:,} of {c['records']:,} in {c['file']}" for dropped, c in found if dropped)
