"""Bad records that data.on_error=skip left out of a corpus, by kind and file."""

from __future__ import annotations

import json

from datasets.inspection.findings import EXAMPLES, Line, Section
from datasets.prepare import DROPPED
from datasets.store import Corpus


def dropped_section(corpus: Corpus) -> Section | None:
    """Counts of each kind of bad record, and the first of them; None if none was left out."""
    files = {counts["file"]: counts for counts in corpus.dropped.values()}
    kinds = dict.fromkeys(kind for counts in files.values() for kind in counts["kinds"])
    if not kinds:
        return None
    first: dict[tuple[str, str], list[str]] = {}
    for line in (corpus.path / DROPPED).read_text("utf-8").splitlines():
        example = json.loads(line)
        named = first.setdefault((example["kind"], example["file"]), [])
        if len(named) < EXAMPLES:
            named.append(str(example["record"]))
    lines = [
        Line(
            key=kind.replace(" ", "_"),
            what=kind,
            values={file: counts["kinds"].get(kind, 0) for file, counts in files.items()},
            of={file: counts["records"] for file, counts in files.items()},
            examples={file: first.get((kind, file), []) for file in files},
        )
        for kind in kinds
    ]
    note = "Records that cannot be used, as data.on_error=skip says: they are in none of the other numbers."
    return Section("dropped", "Bad records left out", note, list(files), lines)
