"""The languages of documents and drafts. A language is imported when it is asked for."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import cast

from citerec.base.errors import InputError
from citerec.formats.drafts.language import Language

_NAMES = {
    "latex": ".tex .ltx .latex .rnw latex tex plaintex rsweave",
    "markdown": ".md .markdown .qmd .rmd markdown quarto rmd pandoc",
    "typst": ".typ typst",
    "org": ".org org",
    "office.word": ".docx",
    "office.libreoffice": ".odt",
}
"""Modules, and the suffixes and editors' names of their languages."""
SUFFIXES = tuple(name for names in _NAMES.values() for name in names.split() if name.startswith("."))
"""Suffixes of files in any of these languages."""
PLAIN = ".txt"
"""Suffix of drafts that are read as Markdown, too."""


@cache
def _language(module: str) -> Language:
    name = module.rpartition(".")[2].upper()
    return cast(Language, getattr(import_module(f"citerec.formats.drafts.{module}"), name))


def languages() -> Iterator[Language]:
    """Yield all languages."""
    return map(_language, _NAMES)


def language_of(suffix: str, id: str = "") -> Language | None:
    """Return the language of a file by its suffix, or else by an editor's name of it."""
    for name in (suffix.lower(), id.lower()):
        for module, names in _NAMES.items():
            if name and name in names.split():
                return _language(module)
    return None


def draft_language(path: Path) -> Language:
    """Return the language of a draft. Raises InputError for a file of another kind."""
    if language := language_of(".md" if path.suffix.lower() == PLAIN else path.suffix):
        return language
    kinds = []
    for language in languages():
        suffixes = [*language.suffixes, *([PLAIN] if ".md" in language.suffixes else [])]
        kinds.append(f"{language.name} ({', '.join(suffixes)})")
    readable = f"{', '.join(kinds[:-1])} or {kinds[-1]}"
    other = "check a bibliography with citerec references" if path.suffix == ".bib" else ""
    advice = EXPORTS.get(path.suffix.lower(), other or "convert it first, e.g. with pandoc")
    raise InputError(f"{path}: drafts are read in {readable}; {advice}")


EXPORTS = {
    ".pdf": "give the file that it was made from",
    ".lyx": "export it from LyX as LaTeX",
    ".pages": "export it as Word",
    ".rtf": "save it as .docx or .odt",
    ".doc": "save it as .docx, or convert it first, e.g. with pandoc",
    ".ipynb": "convert it first with quarto convert",
    ".rst": "convert it first, e.g. with pandoc; its :cite: are lost there, so write [@key] for them",
}
"""What to do with drafts that are not read."""
