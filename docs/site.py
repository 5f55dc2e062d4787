"""Hooks of the site (mkdocs.yml): pages from outside docs/, links to them, the package for its reference."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path, PurePosixPath

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]
ELSEWHERE = {
    "library/builtin/README.md": "write/model.md",
    "CONTRIBUTING.md": "develop/contributing.md",
    "reproduce/README.md": "develop/reproduce.md",
    "CHANGELOG.md": "develop/changes.md",
    "README.md": "index.md",  # only for links
}
"""Pages of the checkout outside docs/, and where they are on the site."""
LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s]+)\)")
PACKAGES = ROOT / "outputs" / "site-source"
PACKAGES.mkdir(parents=True, exist_ok=True)  # mkdocstrings leaves out folders that are not there at the start
CODE = re.compile(r"(^```.*?^```)", re.DOTALL | re.MULTILINE)


def on_config(config: MkDocsConfig) -> None:
    """Link the packages into a folder `citerec`, which griffe reads: a checkout has too many other files."""
    package = PACKAGES / "citerec"
    shutil.rmtree(package, ignore_errors=True)
    package.mkdir(parents=True)
    for path in ROOT.iterdir():
        if path.suffix == ".py" or ((path / "__init__.py").is_file() and path.name != "tests"):
            (package / path.name).symlink_to(path)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that lie outside docs/."""
    for source, page in ELSEWHERE.items():
        if page != "index.md":
            files.append(File.generated(config, page, content=(ROOT / source).read_text("utf-8")))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Point links at pages of the site; links to other files of the checkout become plain text."""
    here = page.file.src_uri
    source = next((path for path, uri in ELSEWHERE.items() if uri == here != "index.md"), f"docs/{here}")

    def point(match: re.Match[str]) -> str:
        mark, text, target = match.groups()
        path, _, anchor = target.partition("#")
        if not path or re.match(r"[a-z]+:", target):
            return match[0]
        place = os.path.normpath(PurePosixPath(source).parent / path)
        uri = ELSEWHERE.get(place, place.removeprefix("docs/") if place.startswith("docs/") else None)
        if uri is None:
            return text
        relative = os.path.relpath(uri, PurePosixPath(here).parent)
        return f"{mark}[{text}]({relative}{'#' * bool(anchor)}{anchor})"

    parts = CODE.split(markdown)  # text and code in turn
    return "".join(part if number % 2 else LINK.sub(point, part) for number, part in enumerate(parts))
