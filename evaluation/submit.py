"""The leaderboard: `citerec submit run=RUN data=citerec/NAME/test` measures a run by a protocol.

A run is a TREC file of any tool, or the output folder of `citerec evaluate benchmark=drafts`. The result is
an entry, a JSON file; docs/leaderboard.md lists the entries of docs/leaderboard/ by protocol and data.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from citerec.base.arguments import command
from citerec.base.errors import InputError
from citerec.base.files import digest_file, expand_user, write_text
from citerec.base.settings import Settings, setting
from citerec.datasets.formats.json_lines import validate
from citerec.datasets.published.downloads import CORPORA, open_data
from citerec.datasets.published.drafts import IDS, list_file, read_list
from citerec.evaluation.benchmarks.contexts.draft_results import read_results
from citerec.evaluation.benchmarks.contexts.drafts import PARTS
from citerec.evaluation.measures import evaluate, measure
from citerec.evaluation.protocol import make_protocols
from citerec.evaluation.published import published_tables
from citerec.evaluation.report import METRICS, markdown_table
from citerec.evaluation.settings import ASK, DRAFT, INDUCTIVE, TRANSDUCTIVE
from citerec.retrieval.filters import CITING, Filters
from citerec.retrieval.run import CachedRun, Run

HOME, UNSEEN_FIELD, DRAFTS = "home", "unseen-field", "drafts"
PROTOCOLS = {
    INDUCTIVE: "Queries whose cited papers no training context cites; the candidates are the papers that no "
    "training context cites and that are not later than the citing paper.",
    HOME: "All queries, all candidates; trained on the training split of this data set.",
    UNSEEN_FIELD: "All queries, all candidates; trained on no text of this data set and on no data set of "
    "its field.",
    DRAFTS: "Citations of whole drafts, each masked in turn, over the bibliographies of their authors; "
    "trained on none of these authors' texts.",
}
MEASURES = ("R@10", "R@100", "MRR")
K = 1000
"""Papers per query that are measured."""
PUBLISHED = ("ACL-200", "FullTextPeerRead", "RefSeer", "arXiv", "pipelines", INDUCTIVE)
"""Published figures (evaluation.published)."""


class Entry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A row of the leaderboard.

    measures: {name: [mean, low, high]}, with 95 % intervals by citing paper, or by draft; null if there is
    only one. queries, papers: numbers of queries, and of citing papers or drafts. run: SHA-256 of the file.
    """

    name: str
    data: str
    protocol: str
    about: str
    measures: dict[str, tuple[float, float | None, float | None]]
    queries: int
    papers: int
    run: str
    citerec: str
    link: str = ""


@dataclass(frozen=True, kw_only=True)
class SubmitSettings(Settings):
    """Check a run, measure it by a protocol, and write an entry for the leaderboard."""

    run: str
    """run in TREC's format (QUERY Q0 PAPER RANK SCORE NAME), or output folder of benchmark=drafts"""
    data: str
    """id of the data, such as citerec/neurips2025-lcr/test, or citerec/drafts/2026-12"""
    protocol: str = setting(HOME, choices=tuple(PROTOCOLS))
    """inductive | home | unseen-field | drafts, as docs/leaderboard.md defines them"""
    name: str = ""
    """name of the system; empty: that in the run"""
    about: str = ""
    """what it was trained and tuned on, in a few words"""
    link: str = ""
    """where it is described"""
    output: str = ""
    """JSON file to write; empty: the run with .json"""
    leaderboard: str = ""
    """folder of entries to write it to instead; its page, FOLDER.md, is written anew"""
    cache_dir: str = ""
    """cache folder; empty: $CITATION_CACHE, or else that of the user"""
    seed: int = 0
    """random seed of intervals"""


def submit(given: SubmitSettings) -> Entry:
    """Measure a run, print its figures and write the entry. Raises InputError for a run of other data."""
    path = expand_user(given.run)
    if (given.protocol == DRAFTS) != (given.data in IDS):
        raise InputError(f"data={given.data}: protocol={DRAFTS} is for {', '.join(IDS)} only")
    entry = _drafts_entry(given, path) if given.protocol == DRAFTS else _entry(given, path)
    rows = [
        [name, *("" if value is None else f"{value:.4f}" for value in ends)]
        for name, ends in entry.measures.items()
    ]
    print(f"{entry.name}: {entry.data}, {entry.protocol}; {_numbers(entry)}\n")
    print(markdown_table(["measure", "mean", "low", "high"], rows))
    output = Path(given.output or f"{path}.json")
    if given.leaderboard:
        safe = "".join(letter if letter.isalnum() else "-" for letter in entry.name.lower())
        folder = Path(given.leaderboard)
        output = folder / f"{'-'.join(entry.data.split('/')[1:])}-{entry.protocol}-{safe}.json"
    write_text(output, json.dumps(msgspec.to_builtins(entry), indent=1, ensure_ascii=False) + "\n")
    print(f"\n{output}")
    if given.leaderboard:
        write_text(Path(f"{given.leaderboard}.md"), page(read_entries(Path(given.leaderboard))))
    return entry


def _entry(given: SubmitSettings, path: Path) -> Entry:
    corpus, split = open_data(given.data, given.cache_dir or None)
    run = CachedRun(path).index(corpus)
    inductive = given.protocol == INDUCTIVE
    filters = Filters(year=CITING) if inductive else Filters()
    (protocol,) = make_protocols([INDUCTIVE if inductive else TRANSDUCTIVE], corpus, split, filters)
    if missing := int((~run.covers(protocol.queries.contexts)).sum()):
        raise InputError(f"{path}: {missing:,} of {len(protocol.queries):,} queries are missing")
    ranking = run.search(protocol.queries, K, protocol.filters)
    values = measure(ranking, MEASURES)
    return Entry(
        name=given.name or Run.read(path).name,
        data=given.data,
        protocol=given.protocol,
        about=given.about,
        measures=_plain(evaluate(ranking, MEASURES, intervals=True, seed=given.seed)),
        queries=len(values),
        papers=len(set(values.citing_ids)),
        run=digest_file(path, "sha256"),
        citerec=version("citerec"),
        link=given.link,
    )


def _plain(
    measures: Mapping[str, tuple[float, float, float]],
) -> dict[str, tuple[float, float | None, float | None]]:
    """Return the measures with null, as JSON has no NaN, for the ends of intervals that there are not."""
    return {
        name: (mean, None, None) if np.isnan(low) else (mean, low, high)
        for name, (mean, low, high) in measures.items()
    }


def _drafts_entry(given: SubmitSettings, folder: Path) -> Entry:
    metrics_file = folder / METRICS
    if not metrics_file.is_file():
        raise InputError(f"run={folder}: not the output folder of citerec evaluate benchmark=drafts")
    metrics = json.loads(metrics_file.read_text("utf-8"))
    wanted = {one.name for one in read_list(list_file(IDS[given.data]))}
    found = {one.name for one in read_results(folder / PARTS)}
    if found != wanted:
        other = sorted(found ^ wanted)
        raise InputError(
            f"run={folder}: has other drafts than {given.data}: {len(other)} differ, such as {other[0]}"
        )
    measures = {}
    for command_name in (ASK, DRAFT):
        group = metrics.get(f"as_is/{command_name}")
        if group is None:
            raise InputError(
                f"run={folder}: lacks as_is/{command_name}; evaluate with all protocols and commands"
            )
        for name, key in (("R@10", "recall@10"), ("MRR", "mrr")):
            ends = (group[key], group[f"{key}/low"], group[f"{key}/high"])
            measures[f"{command_name}: {name}"] = ends
    return Entry(
        name=given.name or folder.name,
        data=given.data,
        protocol=DRAFTS,
        about=given.about,
        measures=_plain(measures),
        queries=group["queries"],
        papers=group["drafts"],
        run=digest_file(metrics_file, "sha256"),
        citerec=version("citerec"),
        link=given.link,
    )


def read_entries(folder: Path) -> list[Entry]:
    """Read the entries of a folder, in order. Raises InputError that names the faulty file."""
    entries = []
    for path in sorted(folder.glob("*.json")):
        try:
            content = json.loads(path.read_text("utf-8"))
        except ValueError as error:
            raise InputError(f"{path}: not JSON ({error})") from None
        entry: Entry = validate(content, Entry, str(path))
        if entry.protocol not in PROTOCOLS:
            raise InputError(f"{path}: protocol {entry.protocol!r} is not one of {', '.join(PROTOCOLS)}")
        entries.append(entry)
    return entries


def page(entries: Sequence[Entry]) -> str:
    """Return the leaderboard in Markdown: a table for each protocol and data set, best first."""
    parts = [_HEAD.strip()]
    for protocol, rule in PROTOCOLS.items():
        parts.append(f"## {protocol.capitalize()}\n\n{rule}")
        of = [entry for entry in entries if entry.protocol == protocol]
        by_data = {data: [entry for entry in of if entry.data == data] for data in {one.data for one in of}}
        parts += [_table(data, by_data[data]) for data in sorted(by_data)] or ["No entry yet."]
    parts.append(_AS_PUBLISHED.strip())
    for name in PUBLISHED:
        parts += published_tables(name)
    return "\n\n".join(parts) + "\n"


def _table(data: str, entries: Sequence[Entry]) -> str:
    ordered = sorted(entries, key=lambda entry: (-next(iter(entry.measures.values()))[0], entry.name))
    names = list(ordered[0].measures)
    rows = [
        [
            f"[{entry.name}]({entry.link})" if entry.link else entry.name,
            *(_interval(entry.measures, name) for name in names),
            entry.about,
        ]
        for entry in ordered
    ]
    head = ["system", *names, "trained and tuned on"]
    return f"### {data}, {entries[0].protocol}\n\n{_numbers(ordered[0])}.\n\n{markdown_table(head, rows)}"


def _numbers(entry: Entry) -> str:
    unit = "drafts" if entry.protocol == DRAFTS else "citing papers"
    return f"{entry.queries:,} queries of {entry.papers:,} {unit}"


def _interval(measures: Mapping[str, Any], name: str) -> str:
    if name not in measures:
        return ""
    mean, low, high = measures[name]
    return f"{mean:.3f}" if low is None else f"{mean:.3f} [{low:.3f}, {high:.3f}]"


_HEAD = f"""
# Leaderboard

Generated from the entries in `docs/leaderboard/`; do not edit.

Figures of different protocols or data sets are not comparable. Brackets are 95 % intervals by citing paper,
or by draft. To add a system:

1. `citerec data download NAME` fetches or builds the data: {", ".join(f"`{name}`" for name in CORPORA)}.
   `citerec data export` writes it in BEIR's layout, and `import citerec.ir_datasets` registers it with
   ir_datasets.
2. Choose settings on the validation split only. Rank at least 100 papers for each test query into a TREC run.
3. `citerec submit run=FILE data=citerec/NAME/test protocol=PROTOCOL name=NAME about='trained on ...'` checks
   ids, scores and duplicates, removes the citing paper and papers outside the protocol's pool from the
   rankings, prints the measures and writes the entry.
4. Open a pull request with the entry, made with `leaderboard=docs/leaderboard`, and say where the run is.

`citerec results reproduce/leaderboard.yaml` makes our BM25 rows, and fails if a figure differs by more than
.002: submit `run.trec` of its outputs, or `run-inductive.trec`. No setting was chosen on these data.

For drafts: `citerec evaluate benchmark=drafts drafts=citerec/drafts/2026-12 benchmark.model=MODEL
output_dir=OUT` fetches the drafts on first use, then `citerec submit run=OUT data=citerec/drafts/2026-12
protocol=drafts`.
"""
_AS_PUBLISHED = """
## As published

Figures from papers, on their own data and by their own scripts, trained on the training split of the data
set; all queries and all candidates, unless the source says otherwise. **They are not comparable with the
tables above.**
"""


def _run(given: SubmitSettings) -> None:
    """Check a run, measure it by a protocol, and write an entry for the leaderboard."""
    submit(given)


main = command("submit", SubmitSettings, _run)
