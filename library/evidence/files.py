"""Where the PDFs of papers are, and of which paper a PDF in a folder is."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path

from citerec.base.errors import InputError, is_utf8, not_utf8
from citerec.base.files import expand_user, files_below, real_path
from citerec.formats.bibliography.attachments import SUFFIX
from citerec.formats.bibliography.paper import LibraryPaper
from citerec.formats.identifiers import find_arxiv_id
from citerec.formats.letters import fold, normalise_title
from citerec.formats.same_work import similar_titles
from citerec.library.evidence.reading import ReadText

MIN_TITLE = 20
"""Least letters of a title that is enough to tell a paper."""
MAX_TITLE_LINES = 5
"""Lines that a title has on a first page."""
ALONE, WITHIN, ABSENT, ANOTHER = range(4)
"""How a first page has a title, best first: alone on its lines, in longer ones, not at all, another's."""
_NOTES = (
    r"(?:errat|corrigend|addend)(?:um|a)|(?:correct|retract)ions?|appendi(?:x|ces)|book review"
    r"|(?:supporting|supplementa\w+)\W+(?!issue)[^\n]{0,40}"
)
_BEFORE = re.compile(
    rf"\b(?:{_NOTES}|(?:comment|repl|respon|rejoind|discuss|review|updat|supplement)\w*\W+(?:on|to|of|for)"
    r"|(?:re|comment\w*|reply|response)\s*:)"
    r"(?:\W+(?:on|to|of|for|from|the|article|paper|manuscript|notice|note))*\W*\Z"
)
"""What stands, in lower case, before a title in works about that work. Labels, such as Review, are none."""
_AFTER = re.compile(rf"\W*(?:(?:\w+\W+)?(?:{_NOTES}|supplement)|a\W+comment|reply)\b")


def stamp_of(file: Path) -> tuple[int, int] | None:
    """Return size and time of change of a file, or else of the text that Zotero keeps of it; None without."""
    for place in (file, cache_of(file)):
        try:
            stat = place.stat()
        except (OSError, ValueError):  # the latter: a name with a zero byte
            continue
        return stat.st_size, stat.st_mtime_ns
    return None


def cache_of(file: Path) -> Path:
    """Return where Zotero keeps the text of a PDF: beside it, without pages."""
    return file.parent / ".zotero-ft-cache"


def check_folders(names: Iterable[str]) -> None:
    """Raise InputError for a folder of `pdfs=` that is not there."""
    for name in names:
        if not os.path.isdir(expand_user(name)):
            raise InputError(f"pdfs={name}: no such folder; name a folder of PDFs")


def folder_files(name: str) -> tuple[list[Path], list[str]]:
    """Return the PDFs in a folder and below it, and a line for each that is not read: a link out of it, or a
    name that is not UTF-8; or a line that there is no such folder.
    """
    folder = expand_user(name)
    if not os.path.isdir(folder):
        return [], [f"pdfs={name}: no such folder; the texts of its PDFs are kept"]
    root, files, lines = real_path(folder), list[Path](), list[str]()
    for path in files_below(folder):
        if path.suffix.lower() != SUFFIX:
            continue
        if not is_utf8(path):
            lines.append(not_utf8(path))
        elif root in real_path(path).parents:
            files.append(path)
        else:
            lines.append(f"{path}: is a link out of the folder, and was not read")
    return files, lines


class PaperFinder:
    """Finds the paper of a PDF by what its first page says."""

    def __init__(self, papers: Iterable[LibraryPaper]) -> None:
        self._by_identifier: dict[str, str] = {}
        self._by_letters: dict[str, str] = {}
        self._titles: dict[str, str] = {}
        for paper in papers:
            for kind, value in (("doi", paper.doi), ("arxiv", paper.arxiv)):
                if value:
                    self._by_identifier.setdefault(f"{kind}:{value.lower()}", paper.id)
            if len(letters := normalise_title(paper.title)) >= MIN_TITLE:
                self._by_letters.setdefault(letters, paper.id)
            self._titles[paper.id] = paper.title

    def find(self, file: Path, text: ReadText) -> tuple[str, int]:
        """Return the id of a paper, or "", and how the first page has its title.

        Its DOI or arXiv id is named together with its title; or its title stands in lines of its own; or its
        identifier is the only one, and its title like that of the page; or its arXiv id is the file's name.
        """
        named = [self._by_identifier.get(name, "") for name in text.identifiers]
        papers = dict.fromkeys((*named, self._by_title(text)))
        ways = [(self._way(paper, text), paper) for paper in papers if paper]
        way, paper = min(ways, key=lambda match: match[0], default=(ANOTHER, ""))
        if way < ABSENT or (way == ABSENT and len(named) == 1):
            return paper, way
        arxiv = find_arxiv_id(file.stem) or find_arxiv_id(f"arxiv:{file.stem}")
        return (self._by_identifier.get(f"arxiv:{arxiv}", "") if arxiv else ""), ABSENT

    def _way(self, paper: str, text: ReadText) -> int:
        """Return how a page has the title of a paper; ANOTHER, too, if that is unlike the title it prints."""
        letters = normalise_title(title := self._titles[paper])
        way = WITHIN if letters and letters == normalise_title(text.title) else ABSENT
        if len(letters) >= MIN_TITLE and (start := normalise_title(text.head).find(letters)) >= 0:
            head = fold(text.head).casefold()
            places = [place for place, letter in enumerate(head) if letter.isalnum()]
            before, after = head[: places[start]], head[places[start + len(letters) - 1] + 1 :]
            if _BEFORE.search(before) or _AFTER.match(after):
                return ANOTHER
            beside = normalise_title(before.rpartition("\n")[2] + after.partition("\n")[0])
            way = WITHIN if beside else ALONE
        is_unlike = way != ALONE and title and not similar_titles(title, text.title or text.head)
        return ANOTHER if is_unlike else way

    def _by_title(self, text: ReadText) -> str:
        lines = [normalise_title(line) for line in text.head.splitlines()]
        titles = [normalise_title(text.title)]
        for start in range(len(lines)):
            titles += ["".join(lines[start : start + n + 1]) for n in range(MAX_TITLE_LINES)]
        return next((paper for title in titles if (paper := self._by_letters.get(title))), "")
