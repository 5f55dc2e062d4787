"""The languages of documents and drafts."""

from __future__ import annotations

from citerec.datasets.languages.language import Language
from citerec.datasets.languages.latex import LATEX
from citerec.datasets.languages.markdown import MARKDOWN
from citerec.datasets.languages.office.libreoffice import LIBREOFFICE
from citerec.datasets.languages.office.word import WORD
from citerec.datasets.languages.org import ORG
from citerec.datasets.languages.typst import TYPST

LANGUAGES: tuple[Language, ...] = (LATEX, MARKDOWN, TYPST, ORG, WORD, LIBREOFFICE)


def language_of(suffix: str, id: str = "") -> Language | None:
    """Return the language of a file by its suffix, or else by an editor's name of it."""
    for language in LANGUAGES:
        if suffix.lower() in language.suffixes:
            return language
    return next((language for language in LANGUAGES if id.lower() in language.ids), None)
