"""The bibliography of a document: the files that it names, and entries in the document itself.

Entries are BibTeX, CSL (JSON, YAML), Typst's YAML, and LaTeX as printed.
"""

from __future__ import annotations

import glob
import os
import re
from collections import Counter
from collections.abc import Callable, Container, Iterable, KeysView, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from citerec.base.errors import InputError
from citerec.base.files import read_limited, real_path
from citerec.formats.bibliography.bibtex import read_item
from citerec.formats.bibliography.entries import BibtexText
from citerec.formats.bibliography.item import Item
from citerec.formats.bibliography.paper import clean_text
from citerec.formats.bibliography.reading.csl import csl_item, hayagriva_item, listed, parse_yaml
from citerec.formats.bibliography.reading.records import Fields
from citerec.formats.documents import Reference
from citerec.formats.drafts.inputs import decode_text
from citerec.formats.identifiers import date_year, find_year, identifier
from citerec.formats.json_lines import decode_json, json_type
from citerec.formats.latex_text import braced_argument, macro_arguments, plain_text
from citerec.formats.letters import nfc

OTHER_FILES = (".json", ".yaml", ".yml")
"""Suffixes of bibliographies other than .bib files."""
_OF_TEX = ("IEEEabrv", "IEEEfull")
"""Files of TeX that have no entries."""
_BIBLATEX = re.compile(r"\\(?:addbibresource|printbibliography)\b|\bbiblatex\b")
"""What names biblatex, whose biber minds the case of keys."""
_NEARBY = ("", "*/", "*/*/")
"""Where a .bib file is looked for by its name."""


@dataclass(frozen=True)
class References:
    """The bibliography of the document at `path`.

    names: of files, as the document writes them. root: folder that may contain the files; None means the
    document's. source: LaTeX that may have printed entries. own: entries in the document itself. chosen:
    .bib files that count instead of those that it names. If it has none of these, the .bib files beside it
    count.
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
        return {name: self._find(name) for name in dict.fromkeys(self.names) if name not in _OF_TEX}

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
    def _in_source(self) -> dict[str, tuple[str, str]]:
        return read_printed(self.source or "")

    @cached_property
    def _printed(self) -> dict[str, tuple[str, str]]:
        """The printed entries: in the document, else in its .bbl or the only one beside it."""
        if self._in_source or self.source is None:
            return self._in_source
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
    def notes(self) -> dict[str, str]:
        """What is not read, by its name, and why."""
        if self.chosen:
            return {}
        missing = {name: why for name, why in self._places.items() if isinstance(why, str)}
        instead = f"; {', '.join(self._beside)} beside it instead" if self._beside else ""
        return {name: f"the bibliography {name} is not read: {why}{instead}" for name, why in missing.items()}

    def bibs(self) -> dict[str, Path]:
        """Return the .bib files by their names in the document."""
        if self.chosen:
            first = {bib.name: bib for bib in reversed(self.chosen)}
            return {bib.name if bib == first[bib.name] else str(bib): real_path(bib) for bib in self.chosen}
        named = ((name, file) for name, file in self._places.items() if isinstance(file, Path))
        return {name: file for name, file in named if file.suffix == ".bib"} | self._beside

    def other_files(self) -> list[Path]:
        """Return the files that are no .bib files."""
        files = () if self.chosen else self._places.values()
        return [file for file in files if isinstance(file, Path) and file.suffix in OTHER_FILES]

    def other_keys(self) -> KeysView[str]:
        """Return the keys of entries that are in no .bib file, in order."""
        others = (key for file in self.other_files() for key in read_other(file))
        read = self._places and all(isinstance(place, Path) for place in self._places.values())
        # Where all .bib files are read, what only a .bbl has is old.
        printed = self._in_source if self.chosen or read else self._printed
        return dict.fromkeys([*printed, *self.own, *others]).keys()

    def all_keys(self) -> set[str]:
        """Return the keys of all entries."""
        bibs = (BibtexText(decode_text(file)).all_keys() for file in self.bibs().values())
        return {*self.other_keys()}.union(*bibs)

    @cached_property
    def form(self) -> Callable[[str], str]:
        """Returns what the same keys share: accents in any encoding, and for BibTeX letters in any case."""
        if self.source is None or _BIBLATEX.search(self.source):
            return nfc
        return lambda key: nfc(key).lower()

    def entries(self, keys: Iterable[str]) -> dict[str, Reference]:
        """Return the existing entries with these keys, or else with the only key of the same form."""
        wanted, form = {key: key for key in keys}, self.form
        if odd := {form(key): key for key in wanted if form is not nfc or not key.isascii()}:
            alike = [key for key in self.all_keys() if form(key) in odd]
            counts = Counter(map(form, alike))
            wanted |= {key: odd[form(key)] for key in alike if key not in wanted and counts[form(key)] == 1}
        entries = {key: parse_printed(*self._printed[key]) for key in wanted if key in self._printed}
        entries |= {key: self.own[key] for key in wanted if key in self.own}
        # .bib files have separate titles and authors: they override printed entries; the first file wins.
        for file in reversed(dict.fromkeys(self.bibs().values())):
            entries |= bib_entries(decode_text(file), wanted)
        for file in self.other_files():
            others = read_other(file)
            entries |= {key: others[key] for key in wanted if key in others}
        exact_last = sorted(entries.items(), key=lambda found: wanted[found[0]] == found[0])
        return {wanted[key]: entry for key, entry in exact_last}


# Entries.

MAX_CSL_BYTES = 1 << 27
"""Maximum size of a CSL JSON file."""
_ESCAPED = re.compile(r"\\([^A-Za-z0-9\s])")
"""As pandoc writes ids in YAML: lee\\_2020."""
_IDENTIFIERS = ("DOI", "PMID", "PMCID")
_READ = frozenset((
    "title", "subtitle", "author", "editor", "year", "date", "month", "abstract", "doi", "pmid", "eprint",
    "eprinttype", "archiveprefix", "arxivid", "arxiv", "url", "journal", "note", "howpublished", "volume",
))  # fmt: skip
"""Fields of BibTeX that a reference needs."""
_ITEM = re.compile(r"\\(?:bibitem|harvarditem)\s*(?=[\[{])|\\bib\*?\s*(?=\{[^{}]*\}\s*\{\w+\}\s*\{)")
"""Printed entries of LaTeX, harvard and amsrefs."""
_ITEMS_END = re.compile(r"\\end\s*\{thebibliography\}")
_BIBLATEX_ENTRY = re.compile(r"\\entry\{([^{}]+)\}")
_BIBLATEX_END = "\\endentry"
_BIBLATEX_FIELD = re.compile(r"\\field\{(title|year|date)\}(?=\{)")
_BIBLATEX_FAMILY = re.compile(r"family=(?=\{)")
COMMENT = re.compile(r"(?<!\\)%[^\n]*\n?[ \t]*")
# Surnames in a printed entry: in REVTeX's macros, or with initials before or after them.
_REVTEX_NAME = re.compile(r"\\bibnamefont\s*(?=\{)")
_TITLE_STARTS = re.compile(r"\\newblock|``|“|\\emph|\\textit|\\em\b|\\it\b|\\bibinfo\s*\{title\}")
_INITIALS = r"(?:[^\W\d_]\.[\s~-]*)+"
_WITH_INITIALS = re.compile(rf"{_INITIALS}([^\W\d_][\w'’-]+)|([^\W\d_][\w'’-]+),\s+{_INITIALS}")
_AUTHORS_END = 400


def bib_entries(text: str, wanted: Container[str] | None = None) -> dict[str, Reference]:
    """Return the entries of a BibTeX text by key and alias, only the `wanted` ones; None means all."""
    bibliography = BibtexText(text)
    entries, aliases = dict[str, Reference](), dict[str, Reference]()
    for entry in bibliography.entries:
        keys = [key for key in bibliography.keys(entry) if wanted is None or key in wanted]
        if keys and (contents := bibliography.read(entry)):
            fields = {name: value for name, value in contents.fields.items() if name in _READ}
            reference = _reference(read_item(entry.kind, fields))
            for key in keys:
                (entries if key == entry.key else aliases).setdefault(key, reference)
    return aliases | entries


def _reference(item: Item) -> Reference:
    fields = item.fields
    return Reference(
        title=clean_text(fields.get("title", "")),
        authors=tuple(f"{name.short}, {name.given}" if name.given else name.short for name in item.authors),
        year=date_year(fields.get("issued", "")),
        abstract=clean_text(fields.get("abstract", "")),
        arxiv=item.arxiv,
        identifiers=tuple(identifier(kind, fields[kind]) for kind in _IDENTIFIERS if fields.get(kind)),
    )


def read_printed(text: str) -> dict[str, tuple[str, str]]:
    """Return the printed entries of a LaTeX text as {key: (label, LaTeX)}."""
    entries = {}
    done = 0
    while (start := _BIBLATEX_ENTRY.search(text, done)) and (
        end := text.find(_BIBLATEX_END, start.end())
    ) > 0:
        entries[start[1]] = "", text[start.end() : end]
        done = end
    if starts := list(_ITEM.finditer(text)):
        last = _ITEMS_END.search(text, starts[-1].end())
        ends = [match.start() for match in starts[1:]] + [last.start() if last else len(text)]
        for match, end in zip(starts, ends, strict=True):
            item = text[match.end() : end]
            label, place = _split_label(item)
            for _ in range(2 if match[0].startswith("\\harvarditem") else 0):  # the label and the year
                place = item.find("{", braced_argument(item, place)[1])
            key, place = braced_argument(item, place)
            entries[key.strip()] = label, item[place:]
    return entries


def _split_label(item: str) -> tuple[str, int]:
    """Return the label at the start of an item, in brackets, and where the key starts."""
    depth = 0
    for place, sign in enumerate(item if item.startswith("[") else ""):
        depth += {"{": 1, "}": -1}.get(sign, 0)
        if sign == "]" and depth == 0:
            brace = item.find("{", place)
            return item[1:place], len(item) if brace < 0 else brace
    return "", 0


def parse_printed(label: str, entry: str) -> Reference:
    fields = {match[1]: argument for match, argument, _ in macro_arguments(_BIBLATEX_FIELD, entry)}
    if "title" in fields:
        families = tuple(plain_text(family) for _, family, _ in macro_arguments(_BIBLATEX_FAMILY, entry))
        year = find_year(fields.get("year", "") or fields.get("date", ""))
        return Reference(title=plain_text(fields["title"]), authors=families, year=year)
    text = ". ".join(plain_text(part).strip(" .") for part in entry.split("\\newblock"))
    return Reference(authors=tuple(_printed_names(label, entry)), text=text)


def _printed_names(label: str, entry: str) -> list[str]:
    """Surnames from REVTeX macros, else those with initials, else natbib's "Lee et al.(2010)Lee, Diaz"."""
    if revtex := [plain_text(name) for _, name, _ in macro_arguments(_REVTEX_NAME, entry)]:
        return revtex
    title = _TITLE_STARTS.search(entry)
    authors = plain_text(entry[: min(title.start(), _AUTHORS_END) if title else _AUTHORS_END])
    if initialled := [first or last for first, last in _WITH_INITIALS.findall(authors)]:
        return initialled
    # The full author list follows the year; if missing, the short form has the first author.
    short, _, full = plain_text(label).partition(")")
    listed = re.split(r",|\band\b|&", full or re.sub(r"\bet al\b.*|\(.*", "", short))
    return [name.strip() for name in listed if re.search(r"[^\W\d_]{2}", name)]


def read_other(path: Path) -> dict[str, Reference]:
    """Read the entries of a CSL file or Typst's YAML by key, and CSL also by identifier ("doi:10.1000/x").

    Manubot's citations.tsv beside a CSL file has more names for its entries. Raises InputError if the file is
    neither.
    """
    if path.suffix == ".json":
        loaded = decode_json(read_limited(path, MAX_CSL_BYTES), str(path))
    else:
        loaded = parse_yaml(decode_text(path), str(path))
    items = listed(loaded)
    if isinstance(items, dict) and path.suffix != ".json":
        return yaml_entries(items)
    if isinstance(loaded, dict) and "id" in loaded and ("type" in loaded or "title" in loaded):
        items = [loaded]  # alone
    if not isinstance(items, list):
        kind = "CSL JSON" if path.suffix == ".json" else "CSL in YAML"
        raise InputError(f"{path}: must be a list of entries ({kind}), not {json_type(loaded)}")
    entries = csl_entries(items)
    names = path.with_name("citations.tsv")
    if os.path.isfile(names) and real_path(names).parent == real_path(path).parent:
        for line in decode_text(names).splitlines():
            name, *_, key = line.split("\t")
            if key in entries:
                entries.setdefault(name, entries[key])
    return entries


def yaml_entries(loaded: Any) -> dict[str, Reference]:
    """Return the entries of Typst's YAML by key; none of another value."""
    pairs = loaded.items() if isinstance(loaded, dict) else ()
    works = {str(key): work for key, work in pairs if isinstance(work, dict)}
    return {key: _reference(hayagriva_item(work)) for key, work in works.items()}


def csl_entries(items: Iterable[object]) -> dict[str, Reference]:
    """Return CSL items by their ids and identifiers; other values are left out."""
    entries: dict[str, Reference] = {}
    for record in items:
        with suppress(InputError):
            if isinstance(record, dict):
                reference = _reference(csl_item(Fields(record, "")))
                id = str(record.get("id", ""))
                arxiv = [f"arxiv:{reference.arxiv}"] if reference.arxiv else []
                for key in (id, _ESCAPED.sub(r"\1", id), *reference.identifiers, *arxiv):
                    entries.setdefault(key, reference)
    return entries
