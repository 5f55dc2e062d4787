"""Placeholder keys for the missing citations of a draft.

A citation is missing if its key is empty, ?, TODO, FIXME or XXX (formats.drafts.language.Key). Missing
citations get placeholder keys before parsing, so that the parsers of full texts (formats.drafts) cut
their contexts like those of training. A placeholder that is gone after parsing was in a comment or in code.

All citations of a draft can be masked, so that each becomes a missing one, with the keys that it cites. The
notes of a masked citation are not read, as if its author had not cited yet.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from citerec.datasets.records import TARGET_MARKER
from citerec.formats.drafts.inputs import clean_text
from citerec.formats.drafts.language import PLACEHOLDER, Citation, Language

_PARTS = re.compile(r"[{}\[\]<>\",;@]")
_SUFFIX = re.compile(r"(?:TODO|FIXME|XXX)(?=\W)(.*)", re.IGNORECASE | re.DOTALL)
_WORDS = re.compile(r"[^\W\d_]{2,}|\d+")


def target_mark(command: str) -> str:
    r"""Return TARGET_MARKER after the words of the suffixes of missing keys, as rankers read names and years.

    >>> target_mark(r"\citep{TODO:blei2003latent, lee2020}"), target_mark("[see @TODO:srivastava; @?]")
    ('Blei 2003 Latent TARGETCIT', 'Srivastava TARGETCIT')
    """
    keys = (_SUFFIX.fullmatch(part.strip()) for part in _PARTS.split(command))
    words = (word for key in keys if key for word in _WORDS.findall(key[1]))
    return " ".join([*(word[0].upper() + word[1:] for word in words), TARGET_MARKER])


class PlaceholderReader:
    """Reads files, inserting a placeholder key for each missing citation. Keeps original texts and spans.

    masked: all citations are missing.
    """

    def __init__(self, language: Language, masked: bool = False) -> None:
        self.language, self.masked = language, masked
        self.texts: dict[Path, str] = {}
        self.spans: dict[str, tuple[Path, int, int]] = {}
        """File, start and end of the command of each placeholder."""
        self.replaced: dict[str, tuple[str, ...]] = {}
        """The keys that each placeholder replaces."""
        self.marks: dict[str, str] = {}
        """The mark in each placeholder's own context (target_mark)."""
        self._marked: dict[Path, str] = {}

    def original_keys(self, keys: Iterable[str]) -> Iterator[str]:
        """Yield the keys, and instead of a placeholder those that it replaces."""
        for key in keys:
            yield from self.replaced.get(key, (key,))

    def __call__(self, path: Path) -> str:
        if path not in self._marked:
            text = self.texts[path] = self.language.exact_text(path)
            pieces, done = [], 0
            for found in self.language.joined(text) if self.masked else self.language.citations(text):
                thousands, ones = divmod(len(self.spans), 1000)
                key = f"{PLACEHOLDER}{chr(0xF001 + thousands)}{chr(0xF401 + ones)}"
                command = text[found.start : found.end]
                if filled := self._replaced(command, found, key):
                    self.spans[key] = path, found.start, found.end
                    self.replaced[key] = tuple(found.cited) if self.masked else ()
                    self.marks[key] = target_mark(command)
                    before, after = filled.split(key, 1)
                    pieces += [clean_text(text[done : found.start] + before), key, clean_text(after)]
                    done = found.end
            self._marked[path] = "".join([*pieces, clean_text(text[done:])]).removeprefix("\ufeff")
        return self._marked[path]

    def _replaced(self, command: str, citation: Citation, key: str) -> str | None:
        if self.masked:
            return self.language.mask(command, key) if citation.printed else None
        filled = self.language.fill(command, [key]) if citation.missing else None
        return filled and filled[0]
