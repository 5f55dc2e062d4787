"""Copies of a draft that cite the best papers; originals never change, nothing is overwritten."""

from __future__ import annotations

import filecmp
import os
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any
from urllib.parse import quote

from citerec.base.errors import InputError, count_noun
from citerec.base.files import atomic_write, disk_errors, real_path, relative_path
from citerec.formats.bibliography.csl import write_csl
from citerec.formats.bibliography.entries import BibtexText
from citerec.formats.bibliography.neighbours import new_entry
from citerec.formats.bibliography.paper import LibraryPaper, terminal_text
from citerec.formats.bibliography.references import numbered, paper_item
from citerec.formats.drafts.bibliographies import OTHER_FILES
from citerec.formats.drafts.inputs import decode_text, encoded_like, exact_text
from citerec.formats.drafts.language import Language, outermost, replaced
from citerec.formats.drafts.languages import draft_language, language_of
from citerec.formats.drafts.office.language import Office
from citerec.library.ask.recommendation import Recommendation
from citerec.library.drafts.reader import MARK_KEY, Draft, Place
from citerec.library.evidence.quotations import pinpointed
from citerec.library.evidence.store import TextStore
from citerec.library.papers.library import Library

_NAMED = re.compile(
    r"\\[a-zA-Z]+\*?(?:\[[^\[\]]*\])*\{([^{}]{1,1000})\}"  # LaTeX: \includegraphics[...]{name}
    r"|\]\(<?([^()<>\s]{1,1000})>?[^()\n]*\)"  # Markdown: ![...](name)
    r"|\"([^\"\n]{1,1000})\""  # Typst: image("name")
    r"|^[ \t]*(?:#\+)?(?:bibliography|csl|reference-doc|template|css|-)[ \t]*:?[ \t]+\[?([^\[\]\n]{1,1000})",
    re.MULTILINE,
)
"""What may name files: arguments of LaTeX commands, links, strings, fields of the front matter."""
_GRAPHICS_PATH = re.compile(r"\\graphicspath\s*\{((?:\s*\{[^{}]*\})+)\s*\}")
_FONTS_PATH = re.compile(r"\[[^\[\]]*\bPath\s*=\s*([^,\[\]]+)")
"""The folder of fonts, as fontspec names it. All its fonts are copied, since patterns name the bold ones."""
_SHOWN = re.compile(
    r"\\(?:includegraphics|includesvg|includepdf|lstinputlisting|verbatiminput|VerbatimInput)\*?"
    r"(?:\[[^\[\]]*\])?\{([^{}\n]{1,1000})\}|!\[[^\[\]\n]*\]\(<?([^()<>\s]{1,1000})>?[^()\n]*\)"
    r"|\b(?:image|read|csv|json|yaml|toml|xml)\(\s*\"([^\"\n]{1,1000})\""
)
"""What names files that a document shows."""
_LINE_END = re.compile(r"%[^\n]*\n")
_BRACED = re.compile(r"\{([^{}]*)\}")
_FIGURES = (".pdf", ".png", ".jpg", ".jpeg", ".eps", ".svg")
_SUFFIXES = ("", ".tex", ".bib", ".sty", ".cls", ".bst", *_FIGURES, *map(str.upper, _FIGURES))
_SETTINGS = ("_quarto.yml", "_metadata.yml", "_bookdown.yml", "_output.yml", "latexmkrc", ".latexmkrc")
"""Files beside a document that programs read although it does not name them."""
_OPEN_LIST = re.compile(r"\\(?:no)?bibliography[A-Za-z]*\*?\s*(?:\[[^\[\]]*\]\s*)?\{[^{}]*\Z")
"""A command that may name several .bib files."""
_DASHES = re.compile("-{2,}")
"""Not allowed in HTML comments."""
SHOWN = 3
"""Number of papers that a comment names."""
BY_NAME = 0.7
"""Least probability to fill a citation with a paper for which only a name speaks: of such papers in 750
citations of 30 drafts, 9 of 12 with at least .5 were right, 8 of 9 with at least .7."""
AROUND, AGAIN = 9, 0.9
"""Citations on each side that are near, and least probability to fill a citation with a paper that one of
them cites: of such papers in 1,160 citations of 29 drafts, 41 of 71 with at least .6 were right, 9 of 11 with
at least .9; of others, 139 of 159 with at least .6."""
_NOT_IN_KEYS = re.compile(r"[^\w:.+/-]+")

Edit = tuple[int, int, str]
"""Start and end of a text, and what replaces it."""


@dataclass(frozen=True)
class Suggestions:
    """Suggested papers for a draft.

    papers: those for each place, with the draft's keys for papers that it already cites.
    ids: of cited papers that the library has, by the draft's keys.
    """

    draft: Draft
    papers: Sequence[Sequence[Recommendation]]
    ids: dict[str, str]

    @property
    def unknown(self) -> list[str]:
        """Keys that are neither in the library nor in the draft's bibliography."""
        return [key for key, entry in self.draft.cited.items() if entry is None and key not in self.ids]


@dataclass(frozen=True)
class Copies:
    """Paths of the copies by original file.

    texts: the draft and its inputs. others: what they name, copied unchanged. bib: the .bib file with the new
    entries. rename_bib: it has a new name. folder: of the copies. plain: those of word processors have their
    citations as text. lacking: names of what the draft shows that is missing or outside its folder.
    """

    texts: Mapping[Path, Path]
    others: Mapping[Path, Path]
    bib: Path
    rename_bib: bool
    folder: Path
    plain: bool = False
    lacking: Sequence[str] = ()


def plan_copies(draft: Draft, fill: Path, root: Path | None, plain: bool = False) -> Copies:
    """Choose the paths of the copies, so that the copy can be typeset where it is.

    fill: a file for the draft alone, or a folder for the draft with its inputs. plain: see `Copies`. Raises
    InputError if a path exists, or if `fill` is a file but citations are also missing in inputs.
    """
    alone = fill.suffix.lower() == draft.path.suffix.lower()
    if not alone and language_of(fill.suffix):
        raise InputError(f"fill={fill}: a copy is of the kind of the draft, {draft.path.suffix}")
    above = real_path(root) if root else Path(os.path.commonpath([file.parent for file in draft.files]))
    base = draft.path.parent if alone else above
    folder = fill.parent if alone else fill
    texts = {draft.path: fill} if alone else {file: fill / file.relative_to(base) for file in draft.files}
    if alone:
        if elsewhere := {place.file.name for place in draft.places} - {draft.path.name}:
            names = ", ".join(sorted(elsewhere))
            raise InputError(
                f"fill={fill}: citations are also missing in {names}; give a folder, as in fill=filled"
            )
        bib = fill.with_suffix(".bib")
    else:
        bib = fill / (_inside(draft.bibs[-1], base) if draft.bibs else f"{draft.path.stem}.bib")
    office = draft_language(draft.path).holds_items
    named, lacking = ([], []) if office or real_path(folder) == base else named_files(draft, base)
    others = {file: folder / _inside(file, base) for file in named if file not in texts}
    for target in texts.values() if office and not plain else (*texts.values(), bib):
        if os.path.exists(target):
            raise InputError(f"fill={fill}: {target} already exists; choose another name")
    for file, target in others.items():
        if os.path.exists(target) and not (
            os.path.isfile(target) and filecmp.cmp(file, target, shallow=False)
        ):
            raise InputError(
                f"fill={fill}: {target} already exists and differs from {file}; choose another name"
            )
    return Copies(texts, others, bib, alone or not draft.bibs, folder, plain, lacking)


def _inside(file: Path, base: Path) -> Path:
    """Return the place of a file in a copy of the folder `base`, at the top if it is elsewhere."""
    return file.relative_to(base) if file.is_relative_to(base) else Path(file.name)


def named_files(draft: Draft, base: Path) -> tuple[list[Path], list[str]]:
    """Return the files below `base` that a draft names: inputs, bibliographies, figures, styles and data; its
    _SETTINGS; and the names of figures and the like that are not there.

    If one of these is LaTeX, the files that it names are included, too.
    """
    beside = (file.parent / name for file in draft.files for name in _SETTINGS)
    settings = dict.fromkeys(file for file in beside if os.path.isfile(file))
    files: dict[Path, None] = dict.fromkeys((*draft.files, *draft.bibs, *settings))
    left, folders = [*draft.files.values(), *map(decode_text, settings)], [draft.path.parent]
    lacking = dict[str, None]()
    while left:
        text = left.pop()
        for names in _GRAPHICS_PATH.findall(text):
            folders += [draft.path.parent / name for name in _BRACED.findall(names)]
        for name in _FONTS_PATH.findall(text):
            fonts = (draft.path.parent / name.strip().strip("{}")).glob("*.[ot]t[fc]")
            files |= {real_path(file): None for file in fonts if real_path(file).is_relative_to(base)}
        shown = {name.strip().strip('"') for match in _SHOWN.findall(text) for name in match if name}
        lists = (_LINE_END.sub("", "".join(match)) for match in _NAMED.findall(text))
        named = [name.strip().strip('"') for names in lists for name in names.split(",")]
        for name in filter(None, dict.fromkeys([*named, *shown])):
            there = [file for file in _candidates(name, folders) if file.is_relative_to(base)]
            if not there and name in shown and not re.search(r"[\\#]|://", name):
                lacking[name] = None
            for file in there:
                if file not in files:
                    files[file] = None
                    if file.suffix in (".tex", ".sty", ".cls"):
                        left.append(decode_text(file))
    return list(files), list(lacking)


def _candidates(name: str, folders: Sequence[Path]) -> Iterator[Path]:
    """Yield the files that a name may mean."""
    for folder in folders:
        for suffix in _SUFFIXES:
            if os.path.isfile(path := folder / f"{name}{suffix}"):
                yield real_path(path)


@dataclass
class _Filled:
    """How the places of a draft are filled.

    edits: by file. cited, unsure, in_fields: numbers of places that are filled, left with a comment, and left
    since fields are around them. commands: filled ones, and the keys that they cite. papers: ids of what was
    filled in, by key.
    """

    edits: dict[Path, list[Edit]] = field(default_factory=dict)
    cited: int = 0
    unsure: int = 0
    in_fields: int = 0
    commands: dict[str, list[str]] = field(default_factory=dict)
    papers: dict[str, str] = field(default_factory=dict)


def _fill_places(suggestions: Suggestions, sure: float, texts: TextStore | None) -> _Filled:
    """Choose the papers for each place; none twice in a sentence, none that was retracted. sure: see
    `write_copies`. texts: have the pages of passages, if citations are to name them."""
    draft, language, filled = suggestions.draft, draft_language(suggestions.draft.path), _Filled()
    cited_in: dict[tuple[Path, str], set[str]] = {}  # ids by file and sentence
    for place, papers in zip(draft.places, suggestions.papers, strict=True):
        cited = cited_in.setdefault((place.file, place.sentence.replace(MARK_KEY, "?")), set())
        others = [paper for paper in papers if paper.id not in cited and not paper.retracted]
        command, count = language.fill(place.command, [paper.key for paper in others]) or ("", 0)
        if not count:
            continue
        if not language.can_replace(place.file, place.start, place.end):
            filled.in_fields += 1
            continue
        best = others[:count]
        edits = filled.edits.setdefault(place.file, [])
        if not are_sure(draft, place, suggestions.ids, best, sure):
            filled.unsure += 1
            edits.append(_comment(draft, place, others[:SHOWN]))
            continue
        filled.cited += 1
        command = pinpointed(command, best[0].evidence.place, texts)
        whole = draft.files[place.file]
        edits.append((place.start, place.end, language.fitted(whole, place.start, place.end, command)))
        cited |= {paper.id for paper in best}
        filled.papers |= {paper.key: paper.id for paper in best}
        filled.commands.setdefault(place.command, []).extend(paper.key for paper in best)
    return filled


def are_sure(
    draft: Draft, place: Place, ids: Mapping[str, str], papers: Sequence[Recommendation], sure: float
) -> bool:
    """Return whether papers are probable enough to fill a citation: `sure` in total, or AGAIN or BY_NAME.

    ids: of the papers that the draft cites, by key.
    """
    certain = [round(paper.probability, 2) for paper in papers if paper.probability is not None]  # as shown
    if not sure or not certain:
        return True
    row, passages = place.passage, draft.passages
    around = chain(passages[max(row - AROUND, 0) : row], passages[row + 1 : row + 1 + AROUND])
    cited = {ids.get(key) for _, keys in around for key in keys}
    if any(paper.id in cited for paper in papers):
        sure = max(sure, AGAIN)
    if any(paper.evidence.only_named for paper in papers):
        sure = max(sure, BY_NAME)
    return min(certain) * len(papers) >= sure


def write_copies(
    suggestions: Suggestions, library: Library, copies: Copies, sure: float = 0, pages: bool = False
) -> list[str]:
    """Write the copies. Return lines for the user: what was written, and what is left to do.

    sure: least probability to fill a citation; for n missing keys in one command, sure / n for each of them.
    """
    draft, ids = suggestions.draft, suggestions.ids
    language = draft_language(draft.path)
    bibliography = exact_text(draft.bibs[-1]) if draft.bibs else ""
    read = library.full_texts if pages else None
    filled, typed = _fill_places(suggestions, sure, read.store if read else None), 0
    there = draft.references.all_keys()
    lacking = {key: ids[key] for key, entry in draft.cited.items() if entry is None and key in ids}
    new = lacking | {key: id for key, id in filled.papers.items() if key not in there and key not in ids}
    writes_bib = bool(new) and (copies.plain or not language.holds_items)
    contents, texts = dict[Path, bytes](), dict[Path, str]()
    for file, target in copies.texts.items():
        spans = (match.span() for match in language.old_comment.finditer(draft.files[file]))
        old = ((*span, "") for span in spans if language.can_replace(file, *span))
        edits = [*outermost(sorted([*filled.edits.get(file, []), *old], key=lambda edit: edit[:2]))]
        if isinstance(language, Office):
            contents[target], typed = _office_copy(
                language, file, edits, ids | filled.papers, library, copies.plain
            )
        else:
            texts[target] = _place_bibliographies(
                draft, replaced(draft.files[file], edits), copies, writes_bib
            )
    names, places = ", ".join(map(str, (*texts, *contents))), len(draft.places)
    lines = [f"{names}: filled {filled.cited} of {places} missing citations; check each of them"]
    if filled.unsure:
        why = "since no paper is probable enough; sure=0 fills them, too"
        lines.append(f"{filled.unsure} left with a comment, {why}")
    if typed:
        lines.append(f"{count_noun(typed, 'citation')} of keys in brackets written out")
    if filled.in_fields:
        lines.append(f"{filled.in_fields} left as they are, since fields are around them")
    if sure and not any(paper.probability is not None for papers in suggestions.papers for paper in papers):
        lines.append(f"sure={sure} was ignored: the library's model gives no probabilities")
    if writes_bib:
        written = bibliography
        for key, id in new.items():
            at, entry = new_entry(written, library.by_id(id), key, abstract=True, language=language)
            written = f"{written[:at]}{entry}{written[at:]}"
        lines.append(f"{copies.bib}: {'1 entry' if len(new) == 1 else f'{len(new)} entries'} added")
        if texts and copies.rename_bib and not _add_bibliography(draft, texts, copies):
            lines.append(f"add {copies.bib.name} to the bibliographies of the copy")
        texts[copies.bib] = written
    for target in texts.keys() - {copies.bib}:
        texts[target] = _name_in_own_bibliographies(draft, texts[target], filled.commands)
    originals = {target: file for file, target in copies.texts.items()}
    if draft.bibs:
        originals[copies.bib] = draft.bibs[-1]
    contents |= {target: encoded_like(originals.get(target), text) for target, text in texts.items()}
    others = {
        file: target
        for file, target in copies.others.items()
        if target not in contents and not os.path.exists(target)
    }
    _write_all(copies.folder, contents, others)
    if copies.lacking:
        lines.append(f"not in the draft's folder, and so not in the copy: {', '.join(copies.lacking)}")
    return lines


def _office_copy(
    language: Office, file: Path, edits: Sequence[Edit], ids: Mapping[str, str], library: Library, plain: bool
) -> tuple[bytes, int]:
    """Return a copy of a word processor's document, in which keys that its author wrote are citations, too,
    and how many of these there are.

    ids: of the library's papers by the document's keys.
    """
    document, changed = language.open(file), {start for start, _, _ in edits}
    whole = [(part.start, part.end) for part in language.citations(document.text) if not part.missing]
    typed = [
        (start, end, document.text[start:end])
        for start, end in whole
        if start not in changed and document.can_replace(start, end)
    ]
    items = dict[str, dict[str, Any]]()
    for key in {key.key for _, _, text in (*edits, *typed) for key in language.keys(text)} & ids.keys():
        paper = library.by_id(ids[key])
        data = write_csl(paper_item(paper), key) | {"citation-key": key}  # Zotero replaces the id
        data.pop("custom", None)
        items[key] = {"id": key, "uris": [_address(paper)], "itemData": data}
    in_copy = {*items, *document.items}
    written = sum({key.key for key in language.keys(text)} <= in_copy for _, _, text in typed)
    return language.written(file, [*edits, *typed], items, plain), written


def _address(paper: LibraryPaper) -> str:
    """Return an address that no other paper of the library has: Zotero takes items with the same address,
    such as the URL of a volume, for one item."""
    is_doi = bool(paper.doi) and paper.id == f"doi:{paper.doi}"
    return f"https://doi.org/{paper.doi}" if is_doi else f"urn:citerec:{quote(paper.id)}"


def _write_all(folder: Path, contents: Mapping[Path, bytes], others: Mapping[Path, Path]) -> None:
    """Write all files or none. contents: by path. others: paths of unchanged copies by original."""
    is_new = not os.path.exists(folder)
    try:
        with disk_errors(folder, "the copy", "fill"), ExitStack() as stack:  # renamed when all are written
            for target, content in contents.items():
                stack.enter_context(atomic_write(target)).write_bytes(content)
            for file, target in others.items():
                shutil.copyfile(file, stack.enter_context(atomic_write(target)))
    except BaseException:
        if is_new:
            shutil.rmtree(folder, ignore_errors=True)
        raise


def numbered_keys(paper: LibraryPaper | Recommendation) -> Iterator[str]:
    """Yield the key of a paper, without characters that citations cannot have, then with -1, -2 and so on."""
    return numbered(_NOT_IN_KEYS.sub("", paper.key or paper.id) or "paper")


def _comment(draft: Draft, place: Place, papers: Sequence[Recommendation]) -> Edit:
    """Return the insertion of a comment with the papers' keys: right after the citation, or in a line of its
    own before it if comments end with the line."""
    keys = ", ".join(terminal_text(paper.key or paper.id) for paper in papers)
    text, form = draft.files[place.file], draft_language(draft.path).comment
    if draft_language(draft.path).holds_items:
        return place.start, place.end, f"{place.command}{form.format(f'{Language.not_sure}{keys}')}"
    if not form.endswith("\n"):
        keys = _DASHES.sub("-", keys).replace("*/", "")
        return place.end, place.end, form.format(f"{Language.not_sure}{keys}")
    form = form.replace("\n", "\r\n" if "\r\n" in text else "\n")
    start = text.rfind("\n", 0, place.start) + 1
    while around := [
        other.start for other in draft.places if other.file == place.file and other.start < start < other.end
    ]:
        start = text.rfind("\n", 0, min(around)) + 1
    return start, start, form.format(f"{Language.not_sure}{keys}")


def _place_bibliographies(draft: Draft, text: str, copies: Copies, writes_bib: bool) -> str:
    """Name .bib files where the copy has them. writes_bib: `copies.bib` takes the place of the last one."""
    language, edits = draft_language(draft.path), list[Edit]()
    files = {name.removesuffix(".bib"): file for name, file in draft.references.bibs().items()}
    folder = copies.texts[draft.path].parent
    for name, start, end in language.bibliographies(text):
        stem = name.removesuffix(".bib")
        file = files.get(stem, real_path(draft.path.parent / f"{stem}.bib"))
        if file in draft.bibs:
            is_bib = writes_bib and file == draft.bibs[-1]
            target = copies.bib if is_bib else copies.others.get(file, file)
            if real_path(folder / f"{stem}.bib") != real_path(target):
                place = relative_path(target, folder)
                edits.append((start, end, place if name != stem else place.removesuffix(".bib")))
    return replaced(text, edits)


def _add_bibliography(draft: Draft, texts: dict[Path, str], copies: Copies) -> bool:
    """Let the copy of the draft name the new .bib file, if it does not yet: in place of one that does not
    exist, or after others in one command. Return False if it cannot."""
    language, target = draft_language(draft.path), copies.texts[draft.path]
    text, folder = texts[target], draft.path.parent
    named = language.bibliographies(text)
    stems = [name.key.removesuffix(".bib") for name in named]
    if any(real_path(target.parent / f"{stem}.bib") == real_path(copies.bib) for stem in stems):
        return True
    for key, start, end in [name for name in named if not name.key.endswith(OTHER_FILES)][-1:]:
        new = copies.bib.name if key.endswith(".bib") else copies.bib.stem
        is_there = os.path.isfile(folder / f"{key.removesuffix('.bib')}.bib")
        if not is_there or _OPEN_LIST.search(text[:start]):
            edit = (end, end, f",{new}") if is_there else (start, end, new)
            texts[target] = replaced(text, [edit])
            return True
    return False


def _name_in_own_bibliographies(draft: Draft, text: str, commands: Mapping[str, Sequence[str]]) -> str:
    """Name the last .bib file also in bibliographies of a part of the works (Language.own_bibliography) whose
    files lack what was filled in there.

    commands: filled ones, and the keys that they cite.
    """
    language, places = draft_language(draft.path), set[int]()
    visible = language.visible(text)
    named = [name.key for name in language.bibliographies(text, visible)]
    for command, keys in commands.items():
        own = language.own_bibliography(visible, command)
        names = {bibliography.key for bibliography in own}
        files = map(draft.references.bibs().get, names)
        there = {key for file in files if file for key in BibtexText(exact_text(file)).all_keys()}
        if own and named[-1] not in names and not there.issuperset(keys):
            places.add(own[-1].end)
    return replaced(text, [(end, end, f",{named[-1]}") for end in sorted(places)])
