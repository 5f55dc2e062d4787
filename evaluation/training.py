"""Compare training runs: `python -m citerec.evaluation.training outputs/curves RUN_FOLDER ...`.

Reads each folder's history.csv and prints a Markdown table of the best rounds by validation recall@10, and
writes it to NAME.md and the curves of recall over training time to NAME.png.
"""

from __future__ import annotations

import argparse
import csv
from dataclasses import dataclass
from pathlib import Path

from citerec.datasets.errors import InputError, one_line_errors
from citerec.datasets.files import write_text
from citerec.datasets.plots import draw, highlight_colours, label_ends, panels, save
from citerec.evaluation.report import markdown_table

MEASURES = ("mrr", "recall@10", "recall@100", "recall@2000")
MONITOR = "val/recall@10"


@dataclass
class TrainingCurve:
    """The rounds of a training run; minutes: elapsed at the end of each, with validation and mining."""

    name: str
    rounds: list[dict[str, float]]
    minutes: list[float]

    @property
    def best(self) -> int:
        """Index of the best round."""
        return max(range(len(self.rounds)), key=lambda i: self.rounds[i][MONITOR])


def read_curve(folder: Path) -> TrainingCurve:
    """Read the history of a training run; InputError if there is none, or none with validation."""
    path = folder / "history.csv"
    try:
        with path.open(newline="") as file:
            rounds = [
                {name: float(value) for name, value in row.items() if value} for row in csv.DictReader(file)
            ]
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: not the history of a training run ({error})") from None
    if not rounds or any(MONITOR not in row for row in rounds):
        raise InputError(f"{path}: no {MONITOR}; runs without validation cannot be compared")
    minutes, spent = [], 0.0
    for row in rounds:
        spent += sum(value for name, value in row.items() if name.endswith("/seconds")) / 60
        minutes.append(spent)
    return TrainingCurve(folder.name, rounds, minutes)


def curve_table(curves: list[TrainingCurve]) -> str:
    """Return a table with one row per run: its best round, and the minutes until then and in total."""
    head = ["run", "best round", "minutes to best", "total minutes", *MEASURES]
    rows = []
    for curve in curves:
        row, best = curve.rounds[curve.best], curve.best
        times = (f"{curve.minutes[i]:.1f}" for i in (best, -1))
        values = (f"{row[f'val/{name}']:.3f}" if f"val/{name}" in row else "" for name in MEASURES)
        rows.append([curve.name, f"{row['round']:.0f} of {curve.rounds[-1]['round']:.0f}", *times, *values])
    return markdown_table(head, rows)


def plot_curves(runs: list[TrainingCurve], path: Path) -> None:
    """Plot validation recall@10 and recall@100 over minutes, in two panels."""
    figure, axes = panels("validation recall over minutes of training, mining and validation", (1, 1))
    colours: dict[str, str] = {}
    for axis, measure in zip(axes, ("recall@10", "recall@100"), strict=True):
        curves = {
            run.name: {
                minutes: row[f"val/{measure}"]
                for minutes, row in zip(run.minutes, run.rounds, strict=True)
                if f"val/{measure}" in row
            }
            for run in runs
        }
        colours = colours or highlight_colours(curves)  # the same in both panels
        draw(axis, curves, colours)
        axis.set(xlabel="minutes", ylim=(0, None))
        axis.set_title(measure, fontsize=9.5, loc="left")
    label_ends(axes[-1], curves, colours)
    save(figure, path)


@one_line_errors
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("output", type=Path, help="NAME of the files to write, without extension")
    parser.add_argument("runs", type=Path, nargs="+", help="folders of training runs")
    arguments = parser.parse_args()
    curves = [read_curve(folder) for folder in arguments.runs]
    text = curve_table(curves)
    write_text(arguments.output.with_suffix(".md"), text + "\n")
    plot_curves(curves, arguments.output.with_suffix(".png"))
    print(text)


if __name__ == "__main__":
    main()
