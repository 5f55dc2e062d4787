"""The findings as one HTML page that needs nothing else: no script, plots inside, everything escaped."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from datasets.inspection.examples import Example
from datasets.inspection.findings import Section
from datasets.inspection.plots import Plot
from datasets.schema import TARGET_MARKER


def html_page(
    name: str,
    about: str,
    sections: Sequence[Section],
    plots: Sequence[Plot],
    examples: Sequence[Example],
    folder: Path,
) -> str:
    """folder: where the files of the plots are."""
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent), autoescape=True, undefined=StrictUndefined
    )
    images = [base64.b64encode((folder / plot.file).read_bytes()).decode() for plot in plots]
    return environment.get_template("page.html").render(
        name=name,
        about=about,
        sections=sections,
        plots=list(zip(plots, images, strict=True)),
        examples=examples,
        marker=TARGET_MARKER,
    )
