"""Read LaTeX documents with their bibliography, one paper per document.

Title, abstract, authors and date come from the document's macros. A section ends at the next heading of any
level. Citations are those of LaTeX, natbib, biblatex and apacite, one span per key; notes in their optional
arguments, footnotes, figures, tables and displayed formulas are removed. The bibliography comes from .bib
files, or in printed form from a .bbl file or the document itself.
"""

from __future__ import annotations

import glob
import logging
import re
import tarfile
import zlib
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from bibtexparser.entrypoint import parse_string
from bibtexparser.middlewares.names import parse_single_name_into_parts, split_multiple_persons_names

from citerec.base.errors import InputError
from citerec.base.files import open_bytes, read_limited
from citerec.datasets.fulltext.catalogue import arxiv_year, find_arxiv_id, find_year, identifier
from citerec.datasets.fulltext.documents import (
    CitationSpan,
    Document,
    FullText,
    Metadata,
    Paragraph,
    Reference,
)
from citerec.datasets.languages.latex_source import (
    MAX_FILE_BYTES,
    braced_argument,
    decode_latex,
    is_document,
    is_paper,
    macro_arguments,
    plain_text,
    read_source,
    remove_blocks,
    running_text,
)

logging.getLogger("bibtexparser").setLevel(logging.CRITICAL)  # broken entries are skipped, as by BibTeX

_IN_ARCHIVES = (".tex", ".bbl", ".bib")
_OPTION = r"\s*(?:\[[^\]]{0,1000}\]\s*)?(?=\{)"
_TITLE = re.compile(rf"\\(?:icml|twocolumn)?[tT]itle\*?{_OPTION}")
_ABSTRACT = re.compile(r"\\begin\s*\{abstract\}")
_ABSTRACT_ENDS = re.compile(r"\\end\s*\{abstract\}")
_ABSTRACT_MACRO = re.compile(r"\\abstract\s*(?=\{)")
_AUTHOR = re.compile(rf"\\(?:icml)?[aA]uthor\*?{_OPTION}")
_AUTHOR_BLOCKS = re.compile(r"\\and\b|\\And\b|\\AND\b")
_BETWEEN_AUTHORS = re.compile(
    rf"{_AUTHOR_BLOCKS.pattern}|,|\band\b|\\q?quad\b|\\hspace\*?\s*\{{[^{{}}]*\}}|(?:~\s*){{2,}}|&"
)
_AUTHOR_ENDS = re.compile(r"\\\\|\\(?:email|addr)\b")
_NAME = re.compile(r"[^\W\d_][\w.'’-]*(?: [\w.'’-]+){1,4}")
_AUTHOR_NOTE = re.compile(
    r"\\(?:thanks|thanksref|footnote|footnotetext|footnotemark|textsuperscript|inst|affil|altaffilmark|altaffiltext"
    r"|corref|fnref|IEEEauthorrefmark|IEEEauthorblockA|IEEEmembership|email|orcid|orcidlink|orcidID)"
    rf"\*?{_OPTION}"
)
_AUTHOR_MARK = re.compile(r"\$[^$]{0,100}\$|\\footnotemark\b(?:\[[^\]]{0,10}\])?")
_NUMBER = re.compile(r"^\d+\s+")
_DATE = re.compile(r"\\(?:date|acmYear|copyrightyear|pubyear)\s*(?=\{)")
_STYLE = re.compile(r"\\(?:documentclass|usepackage)\s*(?:\[[^\]]{0,1000}\]\s*)?(?=\{)")
_DOCUMENT = re.compile(r"\\(begin|end)\s*\{document\}")
_CLASS, _BODY = re.compile(r"\\documentclass\b"), re.compile(r"\\begin\s*\{document\}")
_SECTION = re.compile(rf"\\(?:part|chapter|(?:sub){{0,2}}section)\*?{_OPTION}")

_NOTES = r"(?:\s*(?:\[[^\[\]]*\]|<[^<>]*>)){0,2}"
_KEYS = rf"{_NOTES}\s*\{{([^{{}}]*)\}}"
CITATION = re.compile(
    r"\\(?!nocite|citestyle|setcitestyle|\w*citename|citetext|\w*citealias)(?=[A-Za-z]*[cC]ite)"
    rf"(?P<many>(?=[A-Za-z]*[cC]ites(?![A-Za-z])))?[A-Za-z]++\*?(?P<keys>(?(many)(?:{_KEYS})+|{_KEYS}))"
)
"""A citation; only \\cites and the like have several groups of keys."""
KEY_GROUP = re.compile(_KEYS)
AUTHOR_AND_YEAR = re.compile(
    r"\\[cC]iteauthor(\*?)\{([^{}]*)\}[\s~]*[(\[]?\\cite(?:year|yearpar|num)\*?\{\2\}[)\]]?"
)
_MARK = re.compile("\ue000(\\d+)\ue001")


def read_latex(path: Path, paper: str) -> Document:
    """Read the paper of a document. Raises InputError if it is too large."""
    source = read_source(path)
    metadata = read_metadata(source, paper)
    if not metadata.year:  # conference styles have the year in their names: acl2018, nips_2017
        years = (find_year(style) for _, style, _ in macro_arguments(_STYLE, source))
        metadata = metadata._replace(year=next(filter(None, years), 0))
    return Document(metadata, partial(_full_text, path, source), partial(_cited_entries, path, source))


def read_metadata(source: str, paper: str) -> Metadata:
    """Read the metadata of a document. paper: its id."""
    begins = _ABSTRACT.search(source)
    ends = _ABSTRACT_ENDS.search(source, begins.end()) if begins else None
    if begins and ends:
        abstract = source[begins.end() : ends.start()]
    else:
        abstract = _first_argument(_ABSTRACT_MACRO, source)
    id_year = arxiv_year(paper)
    dates = (find_year(date) for _, date, _ in macro_arguments(_DATE, source))
    return Metadata(
        id=paper,
        title=plain_text(_first_argument(_TITLE, source)),
        abstract=plain_text(abstract),
        year=id_year or next(filter(None, dates), 0),
        authors=_find_authors(source),
        identifiers=(identifier("arxiv", paper),) if id_year else (),
    )


def _cited_entries(path: Path, source: str) -> list[Reference]:
    keys = [key for found in CITATION.finditer(source) for key in cited_keys(found["keys"])]
    return list(read_bibliography(path, source, keys).values())


def cited_keys(citation: str) -> list[str]:
    """The keys in the arguments of a citation macro."""
    keys = (key.strip() for keys in KEY_GROUP.findall(citation) for key in keys.split(","))
    return [key for key in keys if key]


def is_archive(path: Path) -> bool:
    """True if a file is an arXiv source: a .tar.gz, or a .gz of a single LaTeX document."""
    if path.name.endswith((".tar.gz", ".tgz")):
        return True
    if path.suffix != ".gz" or path.name.endswith((".jsonl.gz", ".json.gz", ".xml.gz")):
        return False
    with open_bytes(path) as (file, _):
        start = file.read(1 << 20)
    return start[257:262] == b"ustar" or is_document(start)


def read_archive(path: Path, paper: str) -> Document:
    """Read the paper of an archive. Raises InputError if it is damaged or has no LaTeX document."""

    def full_text() -> FullText:
        with _unpack(path) as document:
            found = read_latex(document, paper).full_text
            assert found is not None
            return found()

    with _unpack(path) as document:
        found = read_latex(document, paper)
        entries = found.entries()
        return Document(found.metadata, full_text, lambda: entries)


@contextmanager
def _unpack(path: Path) -> Iterator[Path]:
    """Unpack the text files of an archive into a temporary folder; yields the path of the document."""
    with TemporaryDirectory() as place:
        folder = Path(place)
        try:
            with tarfile.open(path) as archive:
                left = 2 * MAX_FILE_BYTES
                for member in archive:
                    if member.isfile() and member.name.endswith(_IN_ARCHIVES) and member.size <= left:
                        archive.extract(member, folder, filter="data")
                        left -= member.size
        except tarfile.ReadError:  # not an archive, or damaged
            (folder / "main.tex").write_bytes(read_limited(path, MAX_FILE_BYTES))
        except (tarfile.TarError, EOFError, zlib.error, OSError) as error:
            raise InputError(f"{path}: damaged archive: {error}") from None
        papers = [file for file in folder.rglob("*.tex") if is_paper(file)]
        if not papers:
            raise InputError(f"{path}: the archive has no LaTeX document")
        # The others are supplements or style examples.
        document = min(papers, key=lambda file: (len(file.parts), -file.stat().st_size, file.name))
        try:
            yield document
        except InputError as error:
            raise InputError(str(error).replace(str(folder.resolve()), str(path))) from None


def _first_argument(macro: re.Pattern[str], source: str) -> str:
    """The argument of the first use of a macro; "" if unused."""
    return next((argument for _, argument, _ in macro_arguments(macro, source)), "")


def _find_authors(source: str) -> tuple[str, ...]:
    """Find author names: parts of the author macros that look like names of two to five words."""
    names = []
    for _, argument, _ in macro_arguments(_AUTHOR, source):
        done, without_notes = 0, ""
        for match, _, end in macro_arguments(_AUTHOR_NOTE, argument):
            without_notes += argument[done : match.start()]
            done = end
        without_notes = _AUTHOR_MARK.sub("", without_notes + argument[done:])
        for block in _AUTHOR_BLOCKS.split(without_notes):
            first_line = _AUTHOR_ENDS.split(block)[0]  # the other lines are the address
            names += [_NUMBER.sub("", plain_text(part)) for part in _BETWEEN_AUTHORS.split(first_line)]
    return tuple(dict.fromkeys(name for name in names if _NAME.fullmatch(name)))


def _full_text(path: Path, source: str) -> FullText:
    paragraphs, keys = read_sections(running_text(document_body(source)))
    return FullText(paragraphs, read_bibliography(path, source, keys))


def document_body(source: str) -> str:
    """The body of the document; included standalone documents lose their preambles."""
    start = depth = 0
    end = len(source)
    for tag in _DOCUMENT.finditer(source):
        depth += 1 if tag[1] == "begin" else -1 if start else 0
        start = start or (tag.end() if depth else 0)
        if start and depth == 0:
            end = tag.start()
            break
    return _DOCUMENT.sub(" ", remove_blocks(source[start:end], _CLASS, _BODY)) if start else ""


def read_sections(text: str, only: Container[str] | None = None) -> tuple[list[Paragraph], list[str]]:
    """Split a body into sections, one paragraph per section; also returns the cited keys. only: see
    `read_paragraph`."""
    text = AUTHOR_AND_YEAR.sub(r"\\citet{\2}", text)
    citations: list[list[str]] = []

    def insert_placeholder(match: re.Match[str]) -> str:
        citations.append(cited_keys(match["keys"]))
        return citation_placeholder(len(citations) - 1) if citations[-1] else ""

    text = CITATION.sub(insert_placeholder, text)
    numbers = number_keys(citations)
    paragraphs, title, done = [], "", 0
    for number, (match, argument, end) in enumerate(macro_arguments(_SECTION, text)):
        content = text[done : match.start()]
        paragraphs.append(read_paragraph(content, citations, numbers, f"{number} {title}", only=only))
        title, done = plain_text(argument), end
    last = f"{len(paragraphs)} {title}"
    paragraphs.append(read_paragraph(text[done:], citations, numbers, last, only=only))
    return paragraphs, list(numbers)


def citation_placeholder(citation: int) -> str:
    """The placeholder of a citation, by number, in the input of read_paragraph."""
    return f"\ue000{citation}\ue001"


def number_keys(citations: Sequence[Sequence[str]]) -> dict[str, int]:
    """Number the keys from 1 in order of first citation."""
    keys = dict.fromkeys(key for cited in citations for key in cited)
    return {key: number for number, key in enumerate(keys, 1)}


def read_paragraph(
    content: str,
    citations: Sequence[Sequence[str]],
    numbers: dict[str, int],
    section: str,
    convert: Callable[[str], str] = plain_text,
    only: Container[str] | None = None,
) -> Paragraph:
    """Convert a section to text with numeric citations in brackets. convert: turns markup into text.

    only: keys; a section that cites none of them yields no context.
    """
    cited = (key for mark in _MARK.findall(content) for key in citations[int(mark)])
    if not _MARK.search(content) or (only is not None and not any(key in only for key in cited)):
        return Paragraph(content, [], section)  # yields no context, so skip the slow conversion
    pieces: list[str] = []
    spans: list[CitationSpan] = []
    length = 0
    for place, piece in enumerate(_MARK.split(convert(content))):
        if place % 2:
            keys = citations[int(piece)]
            start = length + 1
            for key in keys:
                end = start + len(str(numbers[key]))
                spans.append(CitationSpan(start, end, key))
                start = end + 2
            piece = f"[{', '.join(str(numbers[key]) for key in keys)}]"
        pieces.append(piece)
        length += len(piece)
    return Paragraph("".join(pieces), spans, section)


# The bibliography: entries of .bib files, or printed entries of a .bbl file or the document.

BIB_FILES = re.compile(r"\\(?:bibliography|addbibresource(?:\[[^\]]*\])?|addglobalbib)\s*\{([^{}]+)\}")
BIB_ENTRY = re.compile(r"^[ \t]*@\s*(\w+)\s*[{(]\s*([^\s,{}()=]+)\s*,", re.MULTILINE)
_BIB_STRINGS = re.compile(r"^[ \t]*@\s*string\s*[{(].*$", re.MULTILINE | re.IGNORECASE)
_MAY_NAME_ARXIV = ("eprint", "arxivid", "journal", "url", "note", "doi")
_NEARBY = ("", "*/", "*/*/")
"""Where a .bib file is looked for by its name."""
_ITEM = re.compile(r"\\bibitem\s*(?=[\[{])")
_ITEMS_END = re.compile(r"\\end\s*\{thebibliography\}")
_BIBLATEX_ENTRY = re.compile(r"\\entry\{([^{}]+)\}")
_BIBLATEX_END = "\\endentry"
_BIBLATEX_FIELD = re.compile(r"\\field\{(title|year|date)\}(?=\{)")
_BIBLATEX_FAMILY = re.compile(r"family=(?=\{)")
_COMMENT = re.compile(r"(?<!\\)%[^\n]*\n?[ \t]*")
# Surnames in a printed entry: in REVTeX's macros, or with initials before or after them.
_REVTEX_NAME = re.compile(r"\\bibnamefont\s*(?=\{)")
_TITLE_STARTS = re.compile(r"\\newblock|``|“|\\emph|\\textit|\\em\b|\\it\b|\\bibinfo\s*\{title\}")
_INITIALS = r"(?:[^\W\d_]\.[\s~-]*)+"
_WITH_INITIALS = re.compile(rf"{_INITIALS}([^\W\d_][\w'’-]+)|([^\W\d_][\w'’-]+),\s+{_INITIALS}")
_AUTHORS_END = 400


def bib_files(path: Path, source: str, root: Path | None = None) -> dict[str, Path]:
    """The .bib files that a document uses, by its names of them, if they are below its folder or `root`.

    A file that is not at its place, such as an absolute path of another computer, is looked for by its name:
    beside the document and up to two folders below.
    """
    names = [name.strip() for names in BIB_FILES.findall(source) for name in names.split(",")]
    allowed = (root or path.parent).resolve()
    found: dict[str, Path] = {}
    for name in names:
        named = path.parent / f"{name.removesuffix('.bib')}.bib"
        last = glob.escape(re.split(r"[/\\]", named.name)[-1])
        nearby = (file for place in _NEARBY for file in sorted(path.parent.glob(f"{place}{last}")))
        for file in (named, *nearby):
            if file.is_file() and file.resolve().is_relative_to(allowed):
                found[name] = file.resolve()
                break
    return found


def read_bibliography(
    path: Path, source: str, keys: Iterable[str], root: Path | None = None
) -> dict[str, Reference]:
    """The existing entries with these keys in the bibliography of the document at `path`."""
    wanted = dict.fromkeys(keys)
    printed = _read_printed(path, source)
    entries = {key: _parse_printed(*printed[key]) for key in wanted if key in printed}
    # .bib files have separate titles and authors: they override printed entries; the first file wins.
    for file in reversed(dict.fromkeys(bib_files(path, source, root).values())):
        entries |= bib_entries(decode_latex(file), wanted)
    return entries


def bib_entries(text: str, wanted: Container[str] | None = None) -> dict[str, Reference]:
    """Parse BibTeX entries by key, only the `wanted` ones since files can be huge; None means all."""
    starts = list(BIB_ENTRY.finditer(text))
    ends = [match.start() for match in starts[1:]] + [len(text)][: len(starts)]
    parts = [
        text[match.start() : end]
        for match, end in zip(starts, ends, strict=True)
        if wanted is None or match[2] in wanted
    ]
    entries = {}
    for entry in parse_string("\n".join(_BIB_STRINGS.findall(text) + parts)).entries if parts else ():
        fields = {name.lower(): str(field.value) for name, field in entry.fields_dict.items()}
        entries[entry.key] = Reference(
            title=plain_text(fields.get("title", "")),
            authors=tuple(_author_names(fields.get("author", ""))),
            year=find_year(fields.get("year", "") or fields.get("date", "")),
            abstract=plain_text(fields.get("abstract", "")),
            arxiv=next(filter(None, (find_arxiv_id(fields.get(name, "")) for name in _MAY_NAME_ARXIV)), ""),
            identifiers=tuple(identifier(kind, fields[kind]) for kind in ("doi", "pmid") if fields.get(kind)),
        )
    return entries


def _author_names(authors: str) -> Iterator[str]:
    """Yield each author as "Surname, Forename"."""
    for name in split_multiple_persons_names(authors):
        parts = parse_single_name_into_parts(name, strict=False)
        last, first = plain_text(" ".join(parts.von + parts.last)), plain_text(" ".join(parts.first))
        if last and last != "others":
            yield f"{last}, {first}" if first else last


def _read_printed(path: Path, source: str) -> dict[str, tuple[str, str]]:
    """Printed entries as {key: (label, LaTeX)}: from the document, else its .bbl or the only one nearby."""
    text = source
    if not _ITEM.search(source):
        files = [path.with_suffix(".bbl")]
        files += found if len(found := list(path.parent.glob("*.bbl"))) == 1 else []
        text = next((_COMMENT.sub("", decode_latex(file)) for file in files if file.is_file()), "")
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
            key, place = braced_argument(item, place)
            entries[key.strip()] = label, item[place:]
    return entries


def _split_label(item: str) -> tuple[str, int]:
    """The label at the start of an item, in brackets with balanced braces, and where the key starts."""
    depth = 0
    for place, sign in enumerate(item if item.startswith("[") else ""):
        depth += {"{": 1, "}": -1}.get(sign, 0)
        if sign == "]" and depth == 0:
            brace = item.find("{", place)
            return item[1:place], len(item) if brace < 0 else brace
    return "", 0


def _parse_printed(label: str, entry: str) -> Reference:
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
