"""The bibliography of a document: the files that it names, and entries in the document itself."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from citerec.base.files import real_path
from citerec.formats.documents import Reference
from citerec.formats.drafts.entries import COMMENT, bib_entries, parse_printed, read_other, read_printed
from citerec.formats.drafts.inputs import decode_text

OTHER_FILES = (".json", ".yaml", ".yml")
"""Suffixes of bibliographies other than .bib files."""
_OF_TEX = ("IEEEabrv", "IEEEfull")
"""Files of TeX that have no entries."""
_NEARBY = ("", "*/", "*/*/")
"""Where a .bib file is looked for by its name."""


@dataclass(frozen=True)
class References:
    """The bibliography of the document at `path`.

    names: of files, as the document writes them. root: folder that may contain the files; None means the
    document's. source: LaTeX that may have printed entries. own: entries in the document itself. chosen:
    .bib files that count instead of those that it names. If it has nothing of all this, the .bib files beside
    it count.
    """

    path: Path
    names: Sequence[str] = ()
    root: Path | None = None
    source: str | None = None
    own: Mapping[str, Reference] = field(default_factory=dict)
    chosen: Sequence[Path] = ()

    @cached_property
    def _places(self) -> dict[str, Path | str]:
        """The files by name; instead of one that is not read, the reason."""
        return {name: self._find(name) for name in dict.fromkeys(self.names)}

    def _find(self, name: str) -> Path | str:
        """Return a file by its name in the document, or why it is not read.

        One that is not at its place, such as an absolute path of another computer, is looked for by its name:
        beside the document and up to two folders below."""
        folder, why = self.path.parent, "there is no such file"
        root = real_path(self.root or folder)
        written = name if name.endswith((".bib", *OTHER_FILES)) else f"{name}.bib"
        last = glob.escape(re.split(r"[/\\]", written)[-1])
        nearby = (file for place in _NEARBY for file in sorted(glob.glob(f"{place}{last}", root_dir=folder)))
        for file in (folder / written, *(folder / file for file in nearby)) if last else ():
            if os.path.isfile(file):
                if real_path(file).is_relative_to(root):
                    return real_path(file)
                why = f"it is outside {root}"
        return why

    @cached_property
    def _printed(self) -> dict[str, tuple[str, str]]:
        """The printed entries: in the document, else in its .bbl or the only one beside it."""
        if self.source is None:
            return {}
        if printed := read_printed(self.source):
            return printed
        files = self._inside("*.bbl")
        own = [file for file in files if file.stem == self.path.stem]
        chosen = own or (files if len(files) == 1 else [])
        return read_printed(COMMENT.sub("", decode_text(chosen[0]))) if chosen else {}

    @cached_property
    def _beside(self) -> dict[str, Path]:
        """The .bib files beside a document that has no bibliography."""
        has_files = any(isinstance(place, Path) for place in self._places.values())
        if has_files or self.own or self._printed:
            return {}
        return {file.name: real_path(file) for file in self._inside("*.bib")}

    def _inside(self, pattern: str) -> list[Path]:
        """Return the files beside the document that may be read."""
        root = real_path(self.root or self.path.parent)
        files = (file for file in sorted(self.path.parent.glob(pattern)) if os.path.isfile(file))
        return [file for file in files if real_path(file).is_relative_to(root)]

    @property
    def notes(self) -> list[str]:
        """What is not read, and why."""
        if self.chosen:
            return []
        missing = {name: why for name, why in self._places.items() if isinstance(why, str)}
        for name in _OF_TEX:
            missing.pop(name, None)
        instead = f"; {', '.join(self._beside)} beside it instead" if self._beside else ""
        return [f"the bibliography {name} is not read: {why}{instead}" for name, why in missing.items()]

    def bibs(self) -> dict[str, Path]:
        """Return the .bib files by their names in the document."""
        if self.chosen:
            return {file.name: real_path(file) for file in self.chosen}
        named = {name: file for name, file in self._places.items() if isinstance(file, Path)}
        return {name: file for name, file in named.items() if file.suffix == ".bib"} | self._beside

    def other_files(self) -> list[Path]:
        """Return the files that are no .bib files."""
        files = () if self.chosen else self._places.values()
        return [file for file in files if isinstance(file, Path) and file.suffix in OTHER_FILES]

    def other_keys(self) -> set[str]:
        """Return the keys of entries that are in no .bib file."""
        others = (key for file in self.other_files() for key in read_other(file))
        return {*self._printed, *self.own, *others}

    def entries(self, keys: Iterable[str]) -> dict[str, Reference]:
        """Return the existing entries with these keys."""
        wanted = dict.fromkeys(keys)
        entries = {key: parse_printed(*self._printed[key]) for key in wanted if key in self._printed}
        entries |= {key: self.own[key] for key in wanted if key in self.own}
        # .bib files have separate titles and authors: they override printed entries; the first file wins.
        for file in reversed(dict.fromkeys(self.bibs().values())):
            entries |= bib_entries(decode_text(file), wanted)
        for file in self.other_files():
            others = read_other(file)
            entries |= {key: others[key] for key in wanted if key in others}
        return entries
