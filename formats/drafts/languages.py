"""The languages of documents and drafts."""

from __future__ import annotations

from citerec.formats.drafts.language import Language
from citerec.formats.drafts.latex import LATEX
from citerec.formats.drafts.markdown import MARKDOWN
from citerec.formats.drafts.office.libreoffice import LIBREOFFICE
from citerec.formats.drafts.office.word import WORD
from citerec.formats.drafts.org import ORG
from citerec.formats.drafts.typst import TYPST

LANGUAGES: tuple[Language, ...] = (LATEX, MARKDOWN, TYPST, ORG, WORD, LIBREOFFICE)


def language_of(suffix: str, id: str = "") -> Language | None:
    """Return the language of a file by its suffix, or else by an editor's name of it."""
    for language in LANGUAGES:
        if suffix.lower() in language.suffixes:
            return language
    return next((language for language in LANGUAGES if id.lower() in language.ids), None)
