"""The course of a run: history.csv of all rounds, training.png with the curves, metrics.json of the best."""

from __future__ import annotations

import csv
import json
import logging
from collections.abc import Sequence
from pathlib import Path

from datasets.atomic import written_whole

log = logging.getLogger(__name__)

HISTORY, CURVES = "history.csv", "training.png"

METRICS = "metrics.json"
"""As of an evaluation (evaluation.files): the table of a sweep reads it."""

SHOWN = ("mrr", "recall@10", "recall@100", "recall@2000")


class History:
    """Rows of what was measured after each round; round 0 is before training."""

    def __init__(self, folder: Path, shown: Sequence[str] = SHOWN) -> None:
        """shown: measures of validation that are logged and drawn."""
        self.folder, self.shown = folder, shown
        self.rows: list[dict[str, float]] = []

    def add(self, done: int, row: dict[str, float], monitor: str) -> bool:
        """Log, keep and write a row; True when the round is the best so far, or can't be compared."""
        earlier = [old[monitor] for old in self.rows if monitor in old and old["round"] > 0]
        self.rows.append({"round": done, **row})
        shown = [f"{name} {row[f'val/{name}']:.3f}" for name in self.shown if f"val/{name}" in row]
        spent = [f"{name[:-8]} {row[name]:.0f} s" for name in row if name.endswith("/seconds")]
        if "val/papers" in row:
            shown.append(f"in a sample of {row['val/papers']:,.0f} papers")
        loss = [f"loss {row['train/loss']:.4f}"] if "train/loss" in row else []
        log.info(f"round {done} done: " + ", ".join(loss + shown + spent))
        self._write()
        best = monitor not in row or all(row[monitor] > value for value in earlier)
        if best and done:
            with written_whole(self.folder / METRICS) as path:
                path.write_text(json.dumps(self.rows[-1], indent=1) + "\n", encoding="utf-8")
        return best

    def _write(self) -> None:
        names = list(dict.fromkeys(name for row in self.rows for name in row))
        with written_whole(self.folder / HISTORY) as path, path.open("w", newline="") as file:
            table = csv.DictWriter(file, names)
            table.writeheader()
            table.writerows(self.rows)
        self._plot()

    def _plot(self) -> None:
        from matplotlib.figure import Figure

        figure = Figure(figsize=(9, 3.6), layout="constrained")
        left, right = figure.subplots(1, 2)
        for axis, names in ((left, ["train/loss"]), (right, [f"val/{name}" for name in self.shown])):
            for name in names:
                points = [(row["round"], row[name]) for row in self.rows if name in row]
                if points:
                    axis.plot(*zip(*points, strict=True), marker="o", label=name)
            axis.set_xlabel("rounds trained")
            axis.grid(alpha=0.3)
            if axis.has_data():
                axis.legend()
        left.set_ylabel("mean loss of the round")
        right.set_ylim(0, 1)
        with written_whole(self.folder / CURVES) as path:
            figure.savefig(path, format="png", dpi=120)
