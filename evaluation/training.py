"""Training runs side by side: `python -m evaluation.training docs/hatten-curves RUN_FOLDER ...`.

Reads each folder's history.csv and prints a Markdown table of the best rounds by validation recall@10.
The table goes to NAME.md, the curves of recall against training time to NAME.png.
"""

from __future__ import annotations

import argparse
import csv
from dataclasses import dataclass
from pathlib import Path

from datasets.errors import InputError, fail
from datasets.files import written_whole
from evaluation.report import markdown_table, write_text

MEASURES = ("mrr", "recall@10", "recall@100", "recall@2000")
MONITOR = "val/recall@10"


@dataclass
class Course:
    """The rounds of one run; `minutes` after each, with validation and mining, from the first step on."""

    name: str
    rounds: list[dict[str, float]]
    minutes: list[float]

    @property
    def best(self) -> int:
        return max(range(len(self.rounds)), key=lambda place: self.rounds[place][MONITOR])


def read(folder: Path) -> Course:
    """The course of the run in a folder; InputError when it has none that was validated."""
    path = folder / "history.csv"
    try:
        with path.open(newline="") as file:
            rounds = [
                {name: float(value) for name, value in row.items() if value} for row in csv.DictReader(file)
            ]
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: not the history of a training run ({error})") from None
    if not rounds or any(MONITOR not in row for row in rounds):
        raise InputError(f"{path}: no {MONITOR} in it; runs without validation cannot be compared")
    minutes, spent = [], 0.0
    for row in rounds:
        spent += sum(value for name, value in row.items() if name.endswith("/seconds")) / 60
        minutes.append(spent)
    return Course(folder.name, rounds, minutes)


def table(courses: list[Course]) -> str:
    """One row a run: its best round, the minutes until then and in all."""
    lines = []
    for course in courses:
        row, place = course.rounds[course.best], course.best
        lines.append(
            [
                course.name,
                f"{row['round']:.0f} of {course.rounds[-1]['round']:.0f}",
                f"{course.minutes[place]:.1f}",
                f"{course.minutes[-1]:.1f}",
                *(f"{row[f'val/{measure}']:.3f}" for measure in MEASURES),
            ]
        )
    return markdown_table(["run", "best round", "minutes until then", "minutes in all", *MEASURES], lines)


def plot(courses: list[Course], path: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 4), layout="constrained")
    for axis, measure in zip(figure.subplots(1, 2), ("recall@10", "recall@100"), strict=True):
        for course in courses:
            values = [row[f"val/{measure}"] for row in course.rounds]
            axis.plot(course.minutes, values, marker="o", markersize=3, label=course.name)
        axis.set(
            xlabel="minutes of training, mining and validation",
            ylabel=f"validation {measure}",
            ylim=(0, None),
        )
        axis.grid(alpha=0.3)
    figure.axes[0].legend(fontsize=8)
    with written_whole(path) as unfinished:
        figure.savefig(unfinished, format="png", dpi=120)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("output", type=Path, help="name of the files to write, without ending")
    parser.add_argument("runs", type=Path, nargs="+", help="folders of training runs")
    arguments = parser.parse_args()
    try:
        courses = [read(folder) for folder in arguments.runs]
    except InputError as error:
        fail(str(error))
    text = table(courses)
    write_text(arguments.output.with_suffix(".md"), text + "\n")
    plot(courses, arguments.output.with_suffix(".png"))
    print(text)


if __name__ == "__main__":
    main()
