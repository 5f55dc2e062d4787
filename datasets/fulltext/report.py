"""What a build read, dropped and wrote: report.json, and report.md for people."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from datasets.fulltext.refused import Refused

MEANINGS = {
    "papers": "Papers, one for each id. Those without title or abstract are left out.",
    "full texts": "Full texts, and why no contexts were cut from some of them.",
    "spans": "Spans that the readers give for citations, but that cite no entry of the bibliography.",
    "references": "Entries of bibliographies that the texts cite, by how their paper was found or why not.",
    "contexts": "Citations (a span and an entry of the bibliography), and why some became no context.",
    "splits": "Contexts written.",
}


@dataclass
class Report:
    """Counts by kind (MEANINGS), each a number for each outcome."""

    settings: Mapping[str, Any]
    counts: dict[str, Counter[str]] = field(default_factory=lambda: {kind: Counter() for kind in MEANINGS})
    refused: Refused = field(default_factory=lambda: Refused(None))

    def write(self, folder: Path) -> None:
        content = {"settings": dict(self.settings), **self.counts}
        if self.refused.max_share is not None:
            content["records"] = asdict(self.refused)
        (folder / "report.json").write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", "utf-8")
        (folder / "report.md").write_text(self.markdown(), "utf-8")

    def markdown(self) -> str:
        lines = ["# How this corpus was built", ""]
        for kind, meaning in MEANINGS.items():
            lines += [f"## {kind.capitalize()}", "", meaning, "", "| | |", "| --- | ---: |"]
            lines += [f"| {outcome} | {count:,} |" for outcome, count in self.counts[kind].items()]
            lines.append("")
        if self.refused.left_out:
            lines += [
                "## Records left out",
                "",
                f"{self.refused.left_out:,} cannot be used, the first ones:",
                "",
            ]
            lines += [f"- {' '.join(example.split())}" for example in self.refused.examples] + [""]
        lines += ["## Settings", "", "```json", json.dumps(dict(self.settings), indent=1), "```", ""]
        return "\n".join(lines)

    def summary(self) -> str:
        """One line: papers and contexts written, and where the rest is told."""
        splits = ", ".join(f"{split} {count:,}" for split, count in self.counts["splits"].items())
        return (
            f"{self.settings['output']}: {self.counts['papers']['written']:,} papers, "
            f"{self.counts['splits'].total():,} contexts ({splits}); "
            + (f"{self.refused.left_out:,} records cannot be used; " if self.refused.left_out else "")
            + "report.md tells what was dropped"
        )

    def reasons(self) -> str:
        """What most contexts were dropped for, in one line, for when none is left."""
        found = {**self.counts["full texts"], **self.counts["references"], **self.counts["contexts"]}
        return ", ".join(f"{outcome}: {count:,}" for outcome, count in found.items()) or "no full texts"
