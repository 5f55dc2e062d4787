"""The languages of documents and drafts. A language is imported when it is asked for."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from importlib import import_module
from typing import cast

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
"""Those of files in any of them."""


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
