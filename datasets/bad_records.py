"""Records that cannot be used: the first one is an error, or all of them are dropped and counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NoReturn

from datasets.errors import InputError

ON_ERROR = ("raise", "skip")
EXAMPLES = 20
"""Dropped records of a file and a kind that are told in full, the first ones."""
SHOWN = 80
"""Characters of a value that a message shows."""

Kind = Literal[
    "malformed JSON",
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
"""What is wrong with a record; the last is a consequence of dropping another one."""


def shown(value: object) -> str:
    """A value in a message: on one line, and cut if it is long."""
    text = repr(value[: SHOWN + 1]) if isinstance(value, str) else repr(value)
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}..."


class BadRecord(InputError):
    """One record cannot be used; the rest of its file can be read."""

    def __init__(
        self, kind: Kind, path: Path, record: str | int, reason: str, field: str | None = None
    ) -> None:
        at = f", field {field!r}" if field is not None else ""
        super().__init__(f"{path}, record {shown(record)}{at}: {reason}")
        self.kind, self.path, self.record, self.reason, self.field = kind, path, record, reason, field

    def example(self) -> dict[str, Any]:
        """The same as values, without the folder of the file."""
        record = self.record if isinstance(self.record, int) else self.record[: 4 * SHOWN]
        place = {"file": self.path.name, "record": record, "field": self.field}
        return {**place, "kind": self.kind, "reason": self.reason}


OnBad = Callable[[BadRecord], None]
"""Is told of a bad record; when it returns, reading goes on with the next one."""


def allowed_share(on_error: Any, max_bad_share: Any, group: str = "") -> float | None:
    """The share of records that may be dropped; None: none, as `on_error` says. InputError for other values.

    group: that of the two options, as `data.`.
    """
    if on_error not in ON_ERROR:
        raise InputError(f"{group}on_error: {on_error!r} is not one of {', '.join(ON_ERROR)}")
    number = isinstance(max_bad_share, int | float) and not isinstance(max_bad_share, bool)
    if not number or not 0 <= max_bad_share <= 1:
        raise InputError(f"{group}max_bad_share: must be a share of 0 to 1, not {max_bad_share!r}")
    return float(max_bad_share) if on_error == "skip" else None


def refuse(error: InputError) -> NoReturn:
    """The first bad record is an error."""
    raise error


@dataclass
class Dropped:
    """The bad records of a file, as they are dropped; without a share allowed, the first one is an error."""

    path: Path
    max_share: float | None
    kinds: Counter[str] = field(default_factory=Counter)
    ids: set[str] = field(default_factory=set)
    examples: list[dict[str, Any]] = field(default_factory=list)
    records: int = 0
    """All records of the file, once it has been read."""

    def __call__(self, error: BadRecord) -> None:
        if self.max_share is None:
            raise error
        self.kinds[error.kind] += 1
        if isinstance(error.record, str):
            self.ids.add(error.record)
        if self.kinds[error.kind] <= EXAMPLES:
            self.examples.append(error.example())

    def finish(self, kept: int) -> None:
        """Call when the file has been read. Raises InputError if too large a share was dropped."""
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


def table(files: Mapping[str, Mapping[str, Any]]) -> str:
    """Dropped records by file and kind, a line for each; files: the manifest's counts of each file."""
    rows = [
        (counts["file"], kind, f"{count:,}", f"{count / counts['records']:.2%}")
        for counts in files.values()
        for kind, count in counts["kinds"].items()
    ]
    rows = [("file", "dropped because", "records", "share"), *rows]
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    return "\n".join(
        f"  {file:{widths[0]}}  {kind:{widths[1]}}  {count:>{widths[2]}}  {share:>{widths[3]}}"
        for file, kind, count, share in rows
    )


def summary(files: Mapping[str, Mapping[str, Any]]) -> str:
    """The same in one line, without the kinds."""
    counted = [
        (counts["file"], sum(counts["kinds"].values()), counts["records"]) for counts in files.values()
    ]
    return ", ".join(f"{dropped:,} of {records:,} in {file}" for file, dropped, records in counted if dropped)
