"""Typst: documents with their bibliography, and drafts.

Labels of the document are referred to like works (@results), so that only the rest are citations. In code,
strings are no text. Included files and imported ones of the document are read with it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

from citerec.base.errors import InputError
from citerec.base.files import real_path
from citerec.formats.bibliography.reading.csl import parse_yaml
from citerec.formats.documents import Metadata, Reference
from citerec.formats.drafts.bibliographies import OTHER_FILES, References, bib_entries, yaml_entries
from citerec.formats.drafts.inputs import Inputs, decode_text
from citerec.formats.drafts.language import (
    CITE_MARK,
    REACH,
    Citation,
    Key,
    Language,
    Note,
    Source,
    first_title,
    replaced,
)
from citerec.formats.identifiers import find_year

_NOT_TEXT = (
    r"(?P<comment>(?<!:)//[^\n]*|/\*(?:(?!/\*|\*/).|/\*.*?(?:\*/|\Z))*+(?:\*/|\Z))"
    r"|(?P<raw>(?P<fence>`{3,}).*?(?:(?P=fence)|\Z)|`[^`\n]*`)|(?P<link>\bhttps?://[^\s\[\]\"]*)"
    r"|(?P<formula>(?<!\\)\$(?:[^$\\]|\\.){0,2000}\$)"
)
_STRING = r"\"(?:[^\"\\]|\\.)*+\""
_CONTEXT = r"(?:context\s+)?"
_MARKUP = re.compile(
    rf"{_NOT_TEXT}|(?P<string>\#{_STRING})"
    rf"|(?P<statement>\#{_CONTEXT}(?:let|set|show|import|include|if|for|while)\b)"
    rf"|(?P<open>\#{_CONTEXT}(?:(?:[A-Za-z_][\w.-]*)?[(\[]|\{{)|\[|(?<=\))\.[A-Za-z_][\w.-]*\()|(?P<close>\])|(?P<escape>\\.)",
    re.DOTALL,
)
"""What ends or begins in markup."""
_CODE = re.compile(
    rf"{_NOT_TEXT}|(?P<string>{_STRING})|(?P<open>[\[({{])|(?P<close>[\])}}])|(?P<end>[\n;])", re.DOTALL
)
_CLOSES = {"]": "[", ")": "(", "}": "{"}

_ARGUMENTS = rf"\((?:[^()\"]++|{_STRING}|\((?:[^()\"]++|{_STRING})*+\))*+\)"
"""Arguments of a call, with one level of others inside."""
_LABEL = r"<([^<>\s]*)>|label\(\s*\"([^\"\n]*)\"\s*\)"
_SUPPLEMENT = r"\[(?:[^\[\]]|\[[^\[\]]*+\])*+\]"
_AT = r"(?<!\\)(?!(?<=[A-Za-z\d])@[\w.-]+\.[a-z]{2,}\b)@([\w\uf000](?:[\w\u0300-\u036f:.-]*(?<![:.-]))?|\?+)"
_ALIAS = re.compile(rf"#let\s+([\w-]+)\s*(?:\([^()]*\))?\s*=\s*cite\b(?!\(\s*(?:{_LABEL}))")
_LABEL_HERE = re.compile(r"<[\w:.-]+>")
_IN_CALL = re.compile(_LABEL)
_BIBLIOGRAPHY = re.compile(rf"\bbibliography\w*\s*(?::\s*)?({_ARGUMENTS})")
_VARIABLE = re.compile(r"#?let\s+([\w-]+)\s*=\s*([^\n]+)")
_WORDS = re.compile(r"#let\s+([\w-]+)\s*=\s*(?:\w*\[([^\[\]\n@#<]+)\]|\"([^\"\n@]+)\")[ \t;]*$", re.MULTILINE)
"""A name for words."""
_NAME = re.compile(r"#([A-Za-z_][\w-]*+)(?![(\[]);?")
_IMPORT = re.compile(r"#?\bimport\s+\"([^@\"\n]+\.typ)\"")
_FILE = re.compile(rf"(?<=\")[^\"\n]+(?:\.bib|{'|'.join(map(re.escape, OTHER_FILES))})(?=\")")
_HEADING = re.compile(rf"#heading(?:{_ARGUMENTS})?(?:{_SUPPLEMENT})?")
_BODY = re.compile(rf"(?:({_SUPPLEMENT})|\"([^\"\n]*)\")[\s,]*\)?\Z")
_LIST = re.compile(rf"#{_BIBLIOGRAPHY.pattern}")
_FUNCTION = re.compile(r"#let\s+([\w-]+)\s*(?:\([^()]*\))?\s*=")
_CALLED = re.compile(r"#[A-Za-z_][\w.-]*(?:\([^()]*\))?\Z")
_GOES_ON = re.compile(r"[\w-]|[:.]\w")
"""What a key before it would include."""
_BRACKET = re.compile(r"\\.|[\[\]]", re.DOTALL)
_WORD = re.compile(r"[A-Za-z_][\w-]*")
_REFERENCE = re.compile(r"\w(?:[\w:.-]*\w)?")
"""What may follow @."""
_CROSS_REFERENCE = re.compile(r"(?:fig|tab|tbl|eq|equ|eqt|sec|lst|alg|thm|lem|def|app|chap)[-:]")
_FIELD = r"(?:\"([^\"]{0,2000})\"|\[((?:[^\[\]]|\[[^\[\]]*\]){0,20000})\])"
_TITLE, _ABSTRACT = (
    re.compile(rf"(?<![\w-]){name}\s*:\s*(?:\(\s*\w+\s*:\s*)?{_FIELD}") for name in ("title", "abstract")
)
"""Arguments, of which a title may be in several languages."""
_NAMED_TITLE = re.compile(rf"#let\s+(?:\w+-)?title\s*=\s*{_FIELD}")
_NOT_OF_DOCUMENT = re.compile(rf"\b(outline|bibliography|figure|table|print-glossary){_ARGUMENTS}")
_TERM = re.compile(r"\(\s*key\s*:\s*\"([^\"\n]+)\"\s*,")
_SHORT = re.compile(r"#(?:gls|ac|abr|abbr|glo)\w*\(\s*\"([^\"\n]{1,40})\"[^()]*\)", re.IGNORECASE)
"""What prints an abbreviation."""
_BREAK = re.compile(r"\\(?=\s)")
_DOCUMENT = 1000
"""A longer block of a rule or function, in characters, is text of the document, even without a heading."""
_DATE = re.compile(r"\bdate\s*:([^\n]*)|\bdatetime\(\s*year\s*:([^,)\n]*)")
_RULES = ("#let", "#set", "#show", "#import", "#include")
"""Statements that print nothing themselves."""
_CALL = re.compile(rf"#{_CONTEXT}[A-Za-z][\w.-]*(?:[\w.-]*\([^()\n]{{0,1000}}\))*|(?<=[\s\])])<[\w:.-]+>")
_CONTENT = re.compile(r"\[((?:[^\[\]]|\[[^\[\]]*\])*)\]")
_FLOAT = re.compile(r"#(?:figure|table)\([^()\n]{0,1000}\)")
_NOTE = re.compile(r"#footnote(?:\([^()]*\))?(?=\[)")
_SIGNS = re.compile(r"(?<!\w)[*_](?=\S)|(?<=\S)[*_](?!\w)|[\[\]]|^[ \t]*[-+/][ \t]+", re.MULTILINE)
_ESCAPED = re.compile(r"\\([^\w\s])")


_BYTES = re.compile(rf"\bbytes\(\s*(?:({_STRING})|(?P<fence>`{{3,}})\w*(.*?)(?P=fence))", re.DOTALL)
"""A bibliography in place."""


def _entries(written: str) -> dict[str, Reference]:
    """Return the entries of a bibliography in place, in BibTeX or Typst's YAML."""
    text = written
    if written.startswith('"'):
        text = re.sub(r"\\(.)", lambda sign: {"n": "\n", "t": "\t"}.get(sign[1], sign[1]), written[1:-1])
    with suppress(InputError):
        return bib_entries(text) or yaml_entries(parse_yaml(text, "a bibliography in place"))
    return {}


class Typst(Language):
    """Typst."""

    name = "Typst"
    suffixes = (".typ",)
    marks = "#cite(<?>), @? or [CITE]"
    comment = "/* {} */"
    numeric_years = True
    before = re.compile(r"(?:(?<![\\/])@|(?P<opened>\bcite\([^()<>]*<))(?P<key>[\w:.?-]*)\Z")
    after = re.compile(r"[\w:.-]*(?<=\w)|\?+")
    closed = re.compile(r">|(\s*(?:,[^<>]*)?\))")
    closing = ">)"
    between = ">) #cite(<"
    _heading = re.compile(r"^[ \t]*(=+)[ \t]+(.*?)[ \t]*(?:<[^<>\s]*>)?[ \t]*$", re.MULTILINE)
    _include = re.compile(r"#?\binclude\s*\(?\s*\"([^@\"\n]+)\"\)?")

    def hidden(self, text: str) -> Iterator[tuple[int, int]]:
        return (span for kind, span in _scan(text) if kind not in ("string", "statement"))

    def citations(self, text: str) -> Iterator[Citation]:
        text = replaced(text, ((a, b, " " * (b - a)) for kind, (a, b) in _scan(text) if kind == "string"))
        names = "|".join(["cite", "ref", *(re.escape(match[1]) for match in _ALIAS.finditer(text))])
        pattern = (
            rf"#?\b(?:{names})({_ARGUMENTS})(?:{_SUPPLEMENT})?|{_AT}(?:{_SUPPLEMENT})?|{CITE_MARK.pattern}"
            r"|(?<=attribution:)\s*<([^<>\s]*)>"
        )
        for match in re.finditer(pattern, text, re.IGNORECASE):
            if match[1]:
                label = _IN_CALL.search(text, *match.span(1))
                if label is None:
                    continue
                number = label.lastindex or 0
                key = Key(label[number], *label.span(number))
            else:
                number = 3 if match[3] is not None else 2  # of a quotation
                key = Key(match[number], *match.span(number)) if match[number] else Key("", *match.span())
            yield Citation(*match.span(), () if _CROSS_REFERENCE.match(key.key) else (key,))

    def cite(self, key: str) -> str:
        return f"@{key}" if _REFERENCE.fullmatch(key) else f'#cite(label("{key}"))'

    def insertion(self, text: str, start: int, end: int, key: str) -> tuple[int, int, str]:
        before, regular = text[start - 1 : start], _REFERENCE.fullmatch(key)
        if before == "@" and not regular:
            return start - 1, end, self.cite(key)
        if before == "<" and not regular and text[end : end + 1] == ">":
            return start - 1, end + 1, f'label("{key}")'
        return super().insertion(text, start, end, key)

    def fitted(self, text: str, start: int, end: int, citation: str) -> str:
        if text.startswith("[", start) and _CALLED.search(text[max(start - REACH, 0) : start]):
            return f"[{citation}]"  # the argument of a call
        if citation.startswith("@") and _GOES_ON.match(text, end):
            return f"#cite(<{citation[1:]}>)"
        return citation

    def labels(self, text: str) -> set[str]:
        """Return the labels in a text, except those that citations, references and links name."""
        used = {key.start for citation in self.citations(text) for key in citation.keys}
        calls = re.finditer(rf"\b(?:link|query|locate)({_ARGUMENTS})", text)
        used |= {label.start(1) for call in calls for label in _IN_CALL.finditer(text, *call.span(1))}
        return {label[1] for label in _IN_CALL.finditer(text) if label[1] and label.start(1) not in used}

    def read(self, path: Path, inputs: Inputs) -> Source:
        path = real_path(path)
        text = self.with_inputs(path, inputs)
        code, part = "", text
        while imported := dict.fromkeys(_IMPORT.findall(part)):
            folders = dict.fromkeys([*(file.parent for file in inputs.files), inputs.folder((path,))])
            part = ""
            for name in imported:
                places = [folder / name.lstrip("/") for folder in folders]
                file = inputs.find(f'#import "{name}"', places, (path,))
                if file and file not in inputs.files:
                    part += f"{self.with_inputs(file, inputs, (path,))}\n"
            code += part
        text = _with_functions(text, code)
        words = {match[1]: match[2] or match[3] for match in _WORDS.finditer(f"{text}\n{code}")}
        text = _NAME.sub(lambda name: words.get(name[1], name[0]), text)
        labels = self.labels(f"{text}\n{code}")
        labels |= {f"{term[1]}{end}" for term in _TERM.finditer(f"{text}\n{code}") for end in ("", ":pl")}
        for alias in _ALIAS.finditer(f"{text}\n{code}"):
            text = re.sub(rf"#{re.escape(alias[1])}(?=\()", "#cite", text)
        text = self.without_references(text, labels)
        keys = dict.fromkeys(
            key for part in (text, code) for citation in self.citations(part) for key in citation.cited
        )
        names = [name.key for name in self.bibliographies(f"{text}\n{code}")]
        lists = "".join(_BIBLIOGRAPHY.findall(f"{text}\n{code}"))
        uncited = ["*"] if re.search(r"\bfull\s*:\s*true\b", lists) else []
        own = {
            key: entry
            for file in inputs.files
            for written in _BYTES.finditer(decode_text(file) if file.is_file() else inputs.read(file))
            for key, entry in _entries(written[1] or written[3] or "").items()
        }
        references = References(path, names, inputs.root, own=own)
        return Source(text, self.metadata(text), [*keys], references, uncited, inputs.notes, labels)

    def metadata(self, head: str) -> Metadata:
        own = _NOT_OF_DOCUMENT.sub(r"\1", head)
        matches = (_TITLE.search(own) or _NAMED_TITLE.search(own), _ABSTRACT.search(own))
        title, abstract = ((match[1] or match[2] or "") if match else "" for match in matches)
        date = _DATE.search(head)
        sections, _ = self.sections(self.body(head))
        title = title or first_title(sections)
        year = find_year(date[1] or date[2] or "") if date else 0
        title, summary = (self.plain(self.without_citations(part)) for part in (title, abstract))
        return Metadata("", title, summary or self.named_section(sections, "abstract"), year)

    def _bibliographies(self, visible: str) -> list[Key]:
        """Return the files in the arguments of `bibliography`, or in variables there, and any .bib file."""
        spans = [call.span(1) for call in _BIBLIOGRAPHY.finditer(visible)]
        words = {word for start, end in spans for word in _WORD.findall(visible, start, end)}
        spans += [match.span(2) for match in _VARIABLE.finditer(visible) if match[1] in words]
        files = (
            file
            for file in _FILE.finditer(visible)
            if file[0].endswith(".bib") or any(start <= file.start() < end for start, end in spans)
        )
        return [Key(file[0], *file.span()) for file in files]

    def inserted(self, statement: str, text: str) -> str:
        text = super().inserted(statement, text)
        return text if statement.startswith("#") else f"[{text}]"  # within code

    def plain(self, text: str) -> str:
        """Remove calls but for their content, labels, emphasis and escapes.

        >>> Typst().plain("We *parse* #text(red)[trees] fast. <sec:a> #rect(width: 1pt, [So *do* I.])")
        'We parse trees fast. So do I.'
        """
        text = _CALL.sub(lambda call: " ".join(_CONTENT.findall(call[0])), _SHORT.sub(r"\1", text))
        return " ".join(_ESCAPED.sub(r"\1", _SIGNS.sub("", _BREAK.sub(" ", text))).split())

    def body(self, text: str, running: bool = False) -> str:
        text = _HEADING.sub(_as_heading, text)
        edits = list[tuple[int, int, str]]()
        for kind, (start, end) in _scan(text):
            if kind == "statement" and text.startswith(_RULES, start):
                done = start
                for a, b in _blocks(text, start, end):
                    if b - a > _DOCUMENT or self._heading.search(text, a, b):
                        edits.append((done, a, "\n"))
                        done = b
                edits.append((done, end, ""))
        text = _LIST.sub("", replaced(text, edits))
        return self._without_arguments(_FLOAT.sub("", text) if running else text)

    def notes(self, text: str) -> Iterator[Note]:
        place = 0
        while match := _NOTE.search(text, place):
            if (block := next(_blocks(text, match.end(), len(text)), None)) is None:
                return
            place = block[1] + 1
            yield Note(match.start(), place, text[slice(*block)])

    def _without_arguments(self, text: str) -> str:
        """Return a text with the markup, abbreviations and citations of calls, but no names and arguments."""
        cited = iter([citation for citation in self.citations(text) if citation.keys])
        edits, citation = list[tuple[int, int, str]](), next(cited, None)
        for start, end in _code_spans(text):
            if label := _LABEL_HERE.match(text, end):
                edits.append((end, label.end(), ""))
            short = _SHORT.fullmatch(text, start, end)
            if short:
                edits.append((start, end, short[1]))
                continue
            while citation and citation.end <= start:
                citation = next(cited, None)
            while citation and citation.start < end:
                if start < citation.start:
                    edits.append((start, citation.start, _between(text[start : citation.start])))
                start = min(citation.end, end)
                if citation.end > end:
                    break  # with a supplement in brackets
                citation = next(cited, None)
            edits.append((start, end, _between(text[start:end])))
        return replaced(text, edits)


TYPST = Typst()


def _as_heading(call: re.Match[str]) -> str:
    named, level = _BODY.search(call[0]), re.search(r"\blevel\s*:\s*([1-9])", call[0])
    name = (named[1][1:-1] if named[1] else named[2]) if named else ""
    return f"\n{'=' * int(level[1] if level else 1)} {' '.join(name.split())}" if name else call[0]


def _between(code: str) -> str:
    return "\n" if "\n" in code else " " if "," in code else ""


def _with_functions(text: str, code: str) -> str:
    """Return a text with the functions of imported files that print much text, where it calls them."""
    for kind, (start, end) in _scan(code):
        named = _FUNCTION.match(code, start, end) if kind == "statement" else None
        if named and any(b - a > _DOCUMENT for a, b in _blocks(code, start, end)):
            written = f"\n\n{code[start:end]}\n\n"
            call = rf"^[ \t]*#{re.escape(named[1])}(?![\w-])(?:\([^()\n]*\))?"
            if called := re.search(call, text, re.MULTILINE):
                text = replaced(text, [(*called.span(), written)])
    return text


def _blocks(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield the outermost blocks of markup within code, without their brackets."""
    depth, begin = 0, 0
    for sign in _BRACKET.finditer(text, start, end):
        depth = max(0, depth + (1 if sign[0] == "[" else -1 if sign[0] == "]" else 0))
        if sign[0] == "[" and depth == 1:
            begin = sign.end()
        elif sign[0] == "]" and depth == 0 and begin:
            yield begin, sign.start()
            begin = 0


def _code_spans(text: str) -> Iterator[tuple[int, int]]:
    """Yield the start and end of each piece of code: calls with their arguments, without markup there."""
    begin = -1
    for token, _, opened in _steps(text):
        if _is_code(opened):
            begin = token.start() if begin < 0 else begin
        elif begin >= 0:
            yield begin, token.end()
            begin = -1


@lru_cache(maxsize=8)
def _scan(text: str) -> tuple[tuple[str, tuple[int, int]], ...]:
    """Return the comments, raw texts, formulas, strings and outermost statements of a text with their spans,
    which end in order. Markup has no strings; one in label("...") is none either, since it is a key.
    """
    tokens, statement = list[tuple[str, tuple[int, int]]](), -1
    for token, kind, opened in _steps(text):
        if kind == "statement":
            statement = token.start() if len(opened) == 1 else statement
        elif kind in ("end", "close"):
            if statement >= 0 and not opened:
                tokens.append(("statement", (statement, token.start())))
                statement = -1
        elif kind not in ("open", "escape") and not (
            kind == "string" and text.endswith("label(", 0, token.start())
        ):
            tokens.append((kind, token.span()))
    if statement >= 0:
        tokens.append(("statement", (statement, len(text))))
    return tuple(tokens)


def _steps(text: str) -> Iterator[tuple[re.Match[str], str, Sequence[str]]]:
    """Yield each token, its kind, and what is open after it: brackets, and "" for a statement, which ends
    with its line. [ opens markup, all others code."""
    opened: list[str] = []
    place = 0
    while token := (_CODE if _is_code(opened) else _MARKUP).search(text, place):
        kind, place = token.lastgroup or "", token.end()
        if kind == "statement":
            opened.append("")
        elif kind == "open":
            opened.append(text[place - 1])
        elif kind in ("end", "close"):
            while opened and not opened[-1]:
                opened.pop()
            if kind == "close" and opened and opened[-1] == _CLOSES[token[0]]:
                opened.pop()
        yield token, kind, opened


def _is_code(opened: Sequence[str]) -> bool:
    return bool(opened) and opened[-1] != "["
