"""LaTeX: documents with their bibliography, and drafts.

Title, abstract, authors and date come from the document's macros. A section ends at the next heading of any
level. Citations are those of LaTeX, natbib, biblatex and apacite; notes in their optional arguments,
footnotes, figures, tables and displayed formulas are not running text.
"""

from __future__ import annotations

import re
import tarfile
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory

from citerec.base.errors import InputError
from citerec.base.files import open_bytes, read_limited, real_path
from citerec.formats.documents import Document, FullText, Metadata, Paragraph
from citerec.formats.drafts.bibliographies import References, bib_entries
from citerec.formats.drafts.inputs import MAX_FILE_BYTES, Inputs
from citerec.formats.drafts.language import (
    BREAK,
    CITE_MARK,
    PLACEHOLDER,
    Citation,
    Key,
    Language,
    Note,
    Source,
    replaced,
)
from citerec.formats.drafts.latex_source import (
    ADDRESS,
    BIBLIOGRAPHY,
    CODE,
    DEFINITION,
    INPUT,
    is_document,
    is_paper,
    read_source,
)
from citerec.formats.identifiers import find_year
from citerec.formats.latex_text import (
    braced_argument,
    macro_arguments,
    plain_text,
    remove_blocks,
    running_text,
    shorthands,
    with_shorthands,
)

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
_PERSON = re.compile(r"[^\W\d_][\w.'’-]*(?: [\w.'’-]+){1,4}")
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

_QUOTES = r"(?:(?:foreign|hyphen)?(?:text|block)|hybridblock)cquote"
_COMMAND = re.compile(
    rf"\\(?=[A-Za-z]*(?:[cC]ite|bibentry)|(?:{_QUOTES}|apud(?:online)?)(?![A-Za-z]))([A-Za-z]++)\*?"
    r"|\\begin\s*\{((?:foreign|hyphen)?displaycquote)\*?\}"
)
"""Commands that cite, also those of csquotes and abntex2."""
_CITATION = re.compile(rf"{_COMMAND.pattern}|{CITE_MARK.pattern}")
_OPTION_OF = re.compile(r"\\[A-Za-z@]+\*?\Z")
_OTHER = re.compile(
    r"(?:Declare|AtEvery|AtNext|AtBegin|set|def|mk|if|blx).*|newcites|.*citenamefont|astroncite"
    r"|cite(?:alias|authoryear|color|reset|setup|style|text)"
)
"""Commands that do not cite. Those of multibib, harvard and the printed labels of natbib are among them."""
_GAP = r"(?:\s|%[^\n]*\n)*+"
_NOTE = r"(?:\[(?:[^\[\]]++|\[[^\[\]]*+\])*+\]|<[^<>]*>)"
_KEYS = re.compile(rf"(?:{_GAP}{_NOTE}){{0,2}}{_GAP}\{{([^{{}}]*)\}}")
_LANGUAGE = re.compile(rf"{_GAP}\{{[^{{}}]*\}}")
_PUNCTUATION = re.compile(r"\s*\[[^\[\]]{0,3}\]")
"""What ends a quotation, between its key and its text."""
_SHARED_NOTES = re.compile(rf"(?:{_GAP}\([^()]*\)){{0,2}}")
_COMMENT = re.compile(r"(?<!\\)%[^\n]*\n?")
_NOTED = re.compile(r"\s*(?:TODO|FIXME|XXX)\W", re.I)
_BETWEEN_KEYS = re.compile(r",(?!\s*(?:\d{4}[a-z]?|[^\s,]+\s+[^\s,][^,]*)\s*(?:,|\Z))")
"""A comma between keys, not one before a year or before words."""
_PARAMETER, _MACRO = re.compile(r"#\d"), re.compile(r"[\\#]")
_AUTHORS, _YEAR = re.compile(r"citeauthor", re.I), re.compile(r"cite(?:year|yearpar|num)")
_BETWEEN, _BRACKET = re.compile(r"[\s~]*[(\[]?"), re.compile(r"[)\]]")

_CODE = f"{CODE}|filecontents|comment"
_BEGIN_CODE, _END_CODE = (re.compile(rf"\\{tag}\s*\{{(?:{_CODE})\*?\}}") for tag in ("begin", "end"))
_FLOAT = re.compile(
    r"\\(?:begin|end)\s*\{(?:abstract|(?:sub|wrap|sideways)?figure|(?:wrap|sideways|long)?table)\*?\}"
)
_ENVIRONMENT = re.compile(
    r"\\begin\s*\{(?:tabular|tabularx|tabulary|tabu|longtable|xltabular|array|tblr|longtblr|NiceTabular)\*?\}"
    r"(?:\s*\[[^\[\]]*\])?(?:\s*\{(?:[^{}]|\{(?:[^{}]|\{[^{}]*\})*\})*\}){1,2}"
    r"|\\(?:begin|end)\s*\{[^{}]*\}(?:\s*\[[^\[\]]*\])?"
)
"""Beginnings, with the specifications of columns, and ends of environments."""
_ASIDE = re.compile(
    r"\\(?:footnote|footnotetext|caption|todo|marginpar|thanks|abstract)\*?\s*(?:\[(?:[^\[\]{}]|\{[^{}]*\})*\]\s*)?(?=\{)"
)
_FOOTNOTE = re.compile(r"\\(?:foot|end|side|margin)note\*?(?:\[[^\[\]]*\])?(?=\{)")
_ACRONYM = re.compile(
    r"\\newacronym\s*(?:\[[^\[\]]*\]\s*)?\{(?P<a>[^{}]*)\}\s*\{(?P<b>[^{}]*)\}\s*\{(?P<c>[^{}]*)\}"
    r"|\\(?:acro|acrodef|newacro)\s*\{(?P<d>[^{}]*)\}\s*(?:\[(?P<e>[^\[\]]*)\]\s*)?\{(?P<f>[^{}]*)\}"
    r"|\\DeclareAcronym\s*\{(?P<g>[^{}]*)\}\s*\{(?P<h>(?:[^{}]|\{[^{}]*\})*)\}"
)
"""Acronyms of the packages glossaries, acronym and acro: label, short and long form, or options."""
_SHORT_AND_LONG = re.compile(r"\b(short|long)\s*=\s*(?:\{([^{}]*)\}|([^,{}]*))")
_USED = re.compile(r"\\(?:[aA]c(?:rshort|rlong|rfull|[sfl])?p?|[gG]ls(?:pl)?)\*?\{([^{}]*)\}")
_EMBEDDED = re.compile(
    r"\\begin\s*\{filecontents(\*?)\}\s*(?:\[[^\[\]]*\]\s*)?\{([^{}]+\.bib)\}(.*?)\\end\s*\{filecontents\1\}",
    re.DOTALL,
)
_FILE = re.compile(r"[^\s,][^,]*?(?=\s*(?:,|\Z))")
_OF_PART = re.compile(r"\\bibliography([A-Za-z]+)")
_OF_ALL = re.compile(r"\\(?:(?:no)?bibliography|addbibresource|addglobalbib)\b")


class Latex(Language):
    """LaTeX, also with R's code (Sweave)."""

    name = "LaTeX"
    suffixes = (".tex", ".ltx", ".latex", ".rnw")
    marks = r"\cite{?}, \citep{TODO} or [CITE]"
    comment = "% {}\n"
    lead = "~"
    between = ", "
    _hidden = re.compile(
        rf"{ADDRESS}|(?<!\\)(?:\\\\)*+%[^\n]*|\\begin\s*\{{({_CODE})\*?\}}.*?(?:\\end\s*\{{\1|\Z)"
        r"|\\(?:verb|lstinline|mintinline)\*?(?:\[[^\[\]]*\])?(?:(?<=[le]|\])\{\w+\})?([^\sA-Za-z*{\[])[^\n]{0,1000}?\2",
        re.DOTALL,
    )
    before = re.compile(
        rf"(?!\\(?:text|block)cquote\*?(?:{_NOTE}){{0,2}}\{{[^{{}}]*\}})(?:{_COMMAND.pattern})(?:{_GAP}(?:{_NOTE}|\([^()]*\)|\{{[^{{}}]*\}})){{0,12}}{_GAP}(?P<opened>\{{)"
        r"(?:[^{}]*[,\n\r])?[ \t]*(?P<key>[^{},\n\r]*)\Z"
    )
    after = re.compile(r"[^\s,{}\\\[\]%]*")
    _paragraph_end = re.compile(
        r"\\item\b(?:\s*\[([^\[\]]*)\])?|\\end\s*\{(?:itemize|enumerate|description)\}|\n[ \t]*\n"
    )
    closed = re.compile(r"[^{}\\]*\}")
    closing = "}"

    def citations(self, text: str) -> Iterator[Citation]:
        return (citation for _, citation in self._commands(text))

    def _commands(self, text: str) -> Iterator[tuple[str, Citation]]:
        """Yield the citations with the names of their commands. One in a note of another is a part of it."""
        last: tuple[str, Citation] | None = None
        for command in _CITATION.finditer(text):
            name = command[1] or command[2]
            if not name:  # CITE_MARK
                start, end = command.span()
                if (last and start < last[1].end) or _OPTION_OF.search(text, max(0, start - 40), start):
                    continue  # a note, or an option
                citation = Citation(start, end, (Key("", start, end),))
            elif groups := [] if _OTHER.fullmatch(name) else _key_groups(text, name, command.end()):
                keys = tuple(key for group in groups for key in _group_keys(text, *group.span(1)))
                end = groups[-1].end()
                if name.endswith("cquote") and (sign := _PUNCTUATION.match(text, end)):
                    end = sign.end()
                citation = Citation(command.start(), end, keys, name != "nocite")
            else:
                continue
            if last and citation.start < last[1].end:
                last = (
                    last[0],
                    last[1]._replace(keys=tuple(sorted((*last[1].keys, *keys), key=lambda key: key.start))),
                )
                continue
            if last:
                yield last
            last = name or "", citation
        if last:
            yield last

    def joined(self, text: str) -> Iterator[Citation]:
        r"""\citeauthor with the \citeyear after it is one citation."""
        commands = [*self._commands(text), ("", Citation(len(text), len(text), ()))]
        joined = None
        for (name, citation), (next_name, following) in pairwise(commands):
            if joined:  # the year of the one before
                joined = None
                continue
            if _AUTHORS.fullmatch(name) and _YEAR.fullmatch(next_name) and citation.cited == following.cited:
                joined = _BETWEEN.fullmatch(text, citation.end, following.start)
            bracket = _BRACKET.match(text, following.end) if joined else None
            yield citation._replace(end=bracket.end() if bracket else following.end) if joined else citation

    def fill(self, citation: str, keys: Sequence[str]) -> tuple[str, int] | None:
        r"""\citeauthor with the \citeyear after it gets one key."""
        if [*self.joined(citation)] == [*self.citations(citation)]:
            return super().fill(citation, keys)
        filled = super().fill(citation, [*keys[:1], *keys[:1]])
        return filled and (filled[0], min(filled[1], 1))

    def definitions(self, text: str) -> Iterator[tuple[int, int]]:
        text = self.visible(text)
        return ((match.start(), braced_argument(text, match.end())[1]) for match in DEFINITION.finditer(text))

    def keys_of(self, citations: Iterable[Citation]) -> Iterator[Key]:
        return (key for key in super().keys_of(citations) if not _MACRO.search(key.key))

    def cite(self, key: str) -> str:
        return f"\\cite{{{key}}}"

    def mask(self, citation: str, key: str) -> str | None:
        if _PARAMETER.search(citation):  # the definition of a macro
            return None
        masked = super().mask(citation, key)
        return f"\\citet{{{key}}}" if masked and len([*self.citations(citation)]) > 1 else masked

    def read(self, path: Path, inputs: Inputs) -> Source:
        source = read_source(path, inputs)
        embedded = {block[2].strip(): bib_entries(block[3]) for block in _EMBEDDED.finditer(source)}
        embedded_entries = {key: entry for entries in embedded.values() for key, entry in entries.items()}
        text = remove_blocks(_with_acronyms(source), _BEGIN_CODE, _END_CODE)
        text = self._written_out(text)
        citations = [*self.citations(text)]
        keys = dict.fromkeys(key for citation in citations if citation.printed for key in citation.cited)
        uncited = dict.fromkeys(
            key for citation in citations if not citation.printed for key in citation.cited
        )
        named = [name.key for name in self.bibliographies(text, text)]
        names = [
            name.replace("\\jobname", path.stem)
            for name in named
            if name not in embedded and f"{name}.bib" not in embedded
        ]
        references = References(path, names, inputs.root, text, embedded_entries)
        return Source(text, self._about(text), [*keys], references, [*uncited], inputs.notes)

    def _written_out(self, text: str) -> str:
        """Return a text with letters and signs for babel's shorthands, outside of citations."""
        letters = shorthands(text)
        if letters is None:
            return text
        edges = [0, *(edge for citation in self.citations(text) for edge in citation[:2]), len(text)]
        between = zip(edges[::2], edges[1::2], strict=True)
        return replaced(text, ((a, b, with_shorthands(text[a:b], letters)) for a, b in between))

    def published(self, source: Source) -> Metadata:
        """Conference styles have the year in their names: acl2018, nips_2017."""
        years = (find_year(style) for _, style, _ in macro_arguments(_STYLE, source.text))
        metadata = source.metadata
        return metadata if metadata.year else metadata._replace(year=next(filter(None, years), 0))

    def included(self, text: str) -> Iterator[str]:
        for match in INPUT.finditer(text):
            inside = f"{match['folder']}/{match['file']}" if match["command"] else ""
            yield inside or match["braced"] or match["bare"]

    def metadata(self, head: str) -> Metadata:
        text = INPUT.sub("", head)
        with suppress(InputError):  # macros that expand to too much
            text = read_source(Path("document"), Inputs(lambda _: text))
        return self._about(text)

    def _about(self, text: str) -> Metadata:
        begins = _ABSTRACT.search(text)
        ends = _ABSTRACT_ENDS.search(text, begins.end()) if begins else None
        if begins and ends:
            abstract = text[begins.end() : ends.start()]
        else:
            abstract = _first_argument(_ABSTRACT_MACRO, text)
        title, summary = (
            plain_text(self.without_citations(part)) for part in (_first_argument(_TITLE, text), abstract)
        )
        dates = (find_year(date) for _, date, _ in macro_arguments(_DATE, text))
        year = next(filter(None, dates), 0)
        return Metadata("", title, summary, year, _find_authors(text))

    def bibliographies(self, text: str, visible: str | None = None) -> list[Key]:
        blocks = [*_EMBEDDED.finditer(text)]
        hidden = [*self.hidden(text)] if blocks else []  # the blocks themselves, too
        embedded = {
            block[2].strip().removesuffix(".bib")
            for block in blocks
            if not any(start < block.start() < end for start, end in hidden)
        }
        files = super().bibliographies(text, visible)
        return [file for file in files if file.key.removesuffix(".bib") not in embedded]

    def _bibliographies(self, visible: str) -> list[Key]:
        """Return the bibliographies: those of a part or of commands of multibib first."""
        named = BIBLIOGRAPHY.finditer(visible)
        return [*_named_files(sorted(named, key=lambda match: bool(_OF_ALL.match(match[0]))))]

    def own_bibliography(self, text: str, command: str) -> list[Key]:
        """That of multibib: what \\citepweb cites is in \\bibliographyweb."""
        if (name := _COMMAND.match(command)) is None:
            return []
        parts = ((_OF_PART.match(match[0]), match) for match in BIBLIOGRAPHY.finditer(text))
        return [*_named_files(match for part, match in parts if part and name[1].endswith(part[1]))]

    def plain(self, text: str) -> str:
        return plain_text(text)

    def notes(self, text: str) -> Iterator[Note]:
        return (
            Note(match.start(), end, argument) for match, argument, end in macro_arguments(_FOOTNOTE, text)
        )

    def headings(self, text: str) -> Iterator[tuple[int, str, int, int]]:
        for match, argument, end in macro_arguments(_SECTION, text):
            yield 1, argument, match.start(), end

    def paragraphs(self, text: str, running: bool = False) -> tuple[list[Paragraph], list[str]]:
        body = document_body(text)
        if running:
            return super().paragraphs(running_text(body), running)
        body = body or text  # a chapter has no \begin{document}
        paragraphs, keys = super().paragraphs(running_text(body))
        marks = {
            key for citation in self.citations(body) for key in citation.cited if key.startswith(PLACEHOLDER)
        }
        if unread := marks - {span.ref for part in paragraphs for span in part.citations}:
            # In captions, footnotes, tables or the abstract, which training contexts exclude.
            separated = _ENVIRONMENT.sub(" ", _FLOAT.sub(r"\\section{}\g<0>", body))
            more = self.convert(*self.sections(_ASIDE.sub(" ", separated)), unread)
            paragraphs += [
                part._replace(section=f"again {part.section}", reread=True)
                for part in more
                if any(span.ref in unread for span in part.citations)
            ]
        return paragraphs, keys

    @staticmethod
    def _broken(end: re.Match[str]) -> str:
        return f"{BREAK}{end[1] or ''} " if end[0].startswith("\\item") else f"{BREAK}{end[0]}"


LATEX = Latex()


def _with_acronyms(text: str) -> str:
    """Write out the acronyms that a text defines."""
    forms = dict[str, str]()
    for match in _ACRONYM.finditer(text):
        label, short, long = (match["a"] or match["d"], match["b"] or match["e"], match["c"] or match["f"])
        if match["g"]:
            options = {option[1]: option[2] or option[3] for option in _SHORT_AND_LONG.finditer(match["h"])}
            label, short, long = match["g"], options.get("short"), options.get("long")
        if label and long:
            forms[label.strip()] = f"{long} ({short or label})"
    return _USED.sub(lambda use: forms.get(use[1].strip(), use[0]), text) if forms else text


def _named_files(commands: Iterable[re.Match[str]]) -> Iterator[Key]:
    """Yield the files that commands (BIBLIOGRAPHY) name."""
    for command in commands:
        for file in _FILE.finditer(command.string, *command.span(command.lastindex or 0)):
            yield Key(file[0], *file.span())


def _key_groups(text: str, name: str, place: int) -> list[re.Match[str]]:
    r"""Return the groups of keys of a command whose name ends at `place`. Only \cites, \apud and the like
    have several; in \volcite a volume comes before the keys, in \foreigntextcquote a language, and after a
    key, \citename has the name of a field."""
    name, groups = name.lower(), list[re.Match[str]]()
    several = name.endswith(("cites", "citetexts"))
    count = 2 if name.startswith("apud") or name.endswith(("volcite", "volcites")) else 1
    if several and (notes := _SHARED_NOTES.match(text, place)):
        place = notes.end()
    if name.startswith(("foreign", "hy")) and (language := _LANGUAGE.match(text, place)):
        place = language.end()
    while (group := _KEYS.match(text, place)) and (several or len(groups) < count):
        groups.append(group)
        place = group.end()
    if name == "citename" and not _KEYS.match(text, place):
        return []  # harvard's name
    return groups[1::2] if "volcite" in name else groups


def _group_keys(text: str, start: int, end: int) -> Iterator[Key]:
    """Yield the keys in braces. An empty one is missing if it is alone; behind TODO, what follows a comma and
    can be no key belongs to the words before it."""
    group = _COMMENT.sub(lambda comment: " " * len(comment[0]), text[start:end])
    parts = _BETWEEN_KEYS.split(group) if _NOTED.match(group) else group.split(",")
    for part in parts:
        if (key := part.strip()) or len(parts) == 1:
            first = start + len(part) - len(part.lstrip()) if key else start
            yield Key(key, first, first + len(key))
        start += len(part) + 1


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
            full_text = LATEX.document(document, paper).full_text
            assert full_text is not None
            return full_text()

    with _unpack(path) as document:
        read = LATEX.document(document, paper)
        entries = read.entries()
        return Document(read.metadata, full_text, lambda: entries)


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
            raise InputError(str(error).replace(str(real_path(folder)), str(path))) from None


def _first_argument(macro: re.Pattern[str], source: str) -> str:
    """Return the argument of the first use of a macro; "" if unused."""
    return next((argument for _, argument, _ in macro_arguments(macro, source)), "")


def _find_authors(source: str) -> tuple[str, ...]:
    """Find author names: parts of the author macros that look like names of two to five words."""
    names = []
    for _, argument, _ in macro_arguments(_AUTHOR, source):
        notes = ((match.start(), end, "") for match, _, end in macro_arguments(_AUTHOR_NOTE, argument))
        without_notes = _AUTHOR_MARK.sub("", replaced(argument, notes))
        for block in _AUTHOR_BLOCKS.split(without_notes):
            first_line = _AUTHOR_ENDS.split(block)[0]  # the other lines are the address
            names += [_NUMBER.sub("", plain_text(part)) for part in _BETWEEN_AUTHORS.split(first_line)]
    return tuple(dict.fromkeys(name for name in names if _PERSON.fullmatch(name)))


def document_body(source: str) -> str:
    """Return the body of the document; included standalone documents lose their preambles."""
    start = depth = 0
    end = len(source)
    for tag in _DOCUMENT.finditer(source):
        depth += 1 if tag[1] == "begin" else -1 if start else 0
        start = start or (tag.end() if depth else 0)
        if start and depth == 0:
            end = tag.start()
            break
    return _DOCUMENT.sub(" ", remove_blocks(source[start:end], _CLASS, _BODY)) if start else ""
