"""Names of people and institutions, in the parts of CSL and biblatex; read and written as in BibTeX."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from html import unescape
from typing import NamedTuple

from citerec.formats.latex_text import delimited_end
from citerec.formats.letters import fold

_GENERATIONS = frozenset(("jr", "sr", "ii", "iii", "iv"))
_SUFFIXES = frozenset(("jr", "sr", "jnr", "snr", "ii", "iii", "iv", "2nd", "3rd", "4th", "phd", "md"))
_COMPANIES = frozenset(("inc", "ltd", "llc", "corp", "co", "gmbh", "ag", "plc", "kg", "ev", "lp", "pty ltd"))
"""What follows the comma in a company's name."""
AND = r"(?:\\?&|(?<!\w)(?:and|und|et|y|e|og|och|ja|en|i|и|та|και)(?!\w))"
ET_AL = (
    r"(?:et\s+(?:al|coll)\b\.?|u\.\s?a\.|y\s+otros\b|e\s+outros\b|и\s+др\b\.?|та\s+ін\b\.?|i\s+in\.|a\s+kol\."
    r"|m\.\s?fl\.|ym\.|ve\s+ark\.|κ\.\s?ά\.|等)"
)
"""Between two authors, and after some of them, in running text of several languages."""
_OTHERS = frozenset(("others", "et al", "et al."))
_OPTION = re.compile(
    r"[\s\"]*((?:family|given|prefix|suffix)(?:-i|-un)?|xdata"
    r"|[a-z]+(?:prefix|template|templates|templatename|others)|unique(?:list|name))\s*=",
    re.IGNORECASE,
)
"""Parts and options of names in biblatex."""
_AND = re.compile(r"\band\b|&", re.IGNORECASE)
_DELIMITERS = re.compile(r"[{}\",]")
_WITH_INITIALS = re.compile(
    r"([^\W\d_][\w'’ -]*[^\W\d_]) "
    r"((?:[A-Z](?:-?[A-Z]){0,2}|(?:[A-Z]\.[ -]?)+)(?: (?:[JS]r\.?|2nd|3rd|III?))?)"
)
"""A family name and initials, as in PubMed: Penkov MA, Roe C.D., Moss RJ 3rd."""
_TWO_CAPITALS = re.compile(r"\s*(?!II)[A-Z]{2}\s*")
_DOTTED = re.compile(r"[\s,]*(?:[A-Z]\.[ -]?)+[\s,]*")
_INITIALS = re.compile(r"(?:[A-Z]\.?-?)+")
_CAPITALS = re.compile(r"\b(?:[A-Z]{1,3}\b|[A-Z])")
_INITIALS_LAST = re.compile(r", (?:[A-Z][. -]*){1,4}$")
_HAN = re.compile(r"[\u3005\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\u3041-\u30ff\uac00-\ud7a3]{2,8}")
"""Names in Chinese, Japanese and Korean, where the family name comes first."""
_IN_BRACES = re.compile(rf"\{{{_WITH_INITIALS.pattern}\}}(?:\s*,\s*\{{{_WITH_INITIALS.pattern}\}})+")
_ONE_NAME = re.compile(r"[A-ZÀ-Þ][\w'’-]+")
_INITIALS_FIRST = re.compile(r"(?:[^\W\d_]\.[ -]*)+[^\W\d_][\w'’-]+")
_FULL = re.compile(r"[A-ZÀ-Þ][\w'’.-]*(?: [\w'’.-]+){0,2} [A-ZÀ-Þ][\w'’-]+")
_MORE = re.compile(
    r"(?<![,;&\s])[,;&\s]++(?:and )?\b(?:et\.? al(?:\.|ii\b|\b)|and others\b)[\s,.]*$", re.IGNORECASE
)
_BETWEEN = re.compile(r"(?<!\s)\s*+\\?&\s*|(?<![\s,])[\s,]++(?:and|und|et)\s+", re.IGNORECASE)
INSTITUTION = re.compile(
    r"\b(?:universi|institu|departm|minist|agenc|council|commit|commiss|associ|societ|foundat|administ|servic"
    r"|cent(?:er|re)\b|group|collab|consort|team|office|bureau|bank|board|compan|corpor|press|academ|organi[sz]at"
    r"|program|research|scienc|laborat|network|union|trust|federation)",
    re.IGNORECASE,
)
_LOOSE_AND = re.compile(r"^(?:(?:and|&)\s+)+|(?:\s+and)+$|(?<=\band)(?:\s+and)+(?=\s)", re.IGNORECASE)


class Name(NamedTuple):
    """A person's name in parts, or a `literal` without parts, such as an institution's."""

    family: str = ""
    given: str = ""
    particle: str = ""
    """von, de la"""
    suffix: str = ""
    """Jr., III"""
    literal: str = ""

    @property
    def full(self) -> str:
        """The name in its usual order.

        >>> Name("Berg", "Anna", "van der", "Jr.").full, Name("王", "小明").full
        ('Anna van der Berg Jr.', '王小明')
        """
        if self.given and _HAN.fullmatch(self.family + self.given):
            return self.family + self.given
        parts = (self.given, self.particle, self.family, self.suffix)
        return self.literal or " ".join(filter(None, parts))

    @property
    def short(self) -> str:
        """The name without given names and suffix."""
        return self.literal or " ".join(filter(None, (self.particle, self.family)))

    def bibtex(self, write: Callable[[str], str] = str) -> str:
        """Return the name as BibTeX writes it. write: converts each part to LaTeX.

        >>> Name("Berg", "Anna", "van der").bibtex(), Name(literal="World Bank").bibtex()
        ('van der Berg, Anna', '{World Bank}')
        """
        braced: tuple[str, ...]
        for braced in ((), ("family",), ("family", "given", "suffix")):
            if parse_name(self._joined(str, braced)) == self:
                break
        return self._joined(write, braced)

    def _joined(self, write: Callable[[str], str], braced: Sequence[str]) -> str:
        """Return the parts as BibTeX orders them, those that are named in `braced` in braces."""
        if self.literal:
            return self.literal if self == OTHERS else f"{{{write(self.literal)}}}"
        parts = {name: write(value) for name, value in self._asdict().items()}
        parts |= {name: f"{{{parts[name]}}}" for name in braced if parts[name]}
        family, given = f"{parts['particle']} {parts['family']}".strip(), parts["given"]
        if parts["suffix"]:
            return f"{family}, {parts['suffix']}, {given or '{}'}"
        return f"{family}, {given}" if given else f"{family}, {{}}" if " " in family else family


OTHERS = Name(literal="others")
"""Stands in a list for further names that it does not give: BibTeX's "and others"."""


@lru_cache(1 << 15)
def parse_name(text: str) -> Name:
    """Parse a name as BibTeX does ("First von Last", "von Last, Jr., First", an institution in braces), or in
    biblatex's extended form. text: without LaTeX commands. A suffix may also be at the end.

    >>> parse_name("{Sepkoski Jr.}, J. John"), parse_name("family=Berg, given=Jo, prefix=van").full
    (Name(family='Sepkoski', given='J. John', particle='', suffix='Jr.', literal=''), 'Jo van Berg')
    """
    text = " ".join(text.split())
    if text.strip("{} ").lower() in _OTHERS:
        return OTHERS
    if text.startswith("{") and delimited_end(text, 0) == len(text):
        inside = text[1:-1].strip()
        return _parse_extended(inside) or Name(literal=_without_braces(inside))
    if extended := _parse_extended(text):
        return extended
    if _AND.search(text) or (text.count(",") == 1 and text[-1] == "," and " " in text):
        return Name(literal=_without_braces(text).rstrip(", "))
    suffix = ""
    if "," not in text and "." in text:
        text = _with_comma(text)
    before, _, last = text.rpartition(",")
    if " " in before and "," not in before and _is_sure_suffix(last) and not _TWO_CAPITALS.fullmatch(last):
        text = text.replace(",", "")  # Martin Lee, Jr., but not Van Dyke, JR
    if "," not in text and _is_suffix(text.rpartition(" ")[2]) and " " in text:
        text, _, suffix = text.rpartition(" ")
    from bibtexparser.middlewares.names import parse_single_name_into_parts

    parts = parse_single_name_into_parts(text, strict=False)
    words = [_without_braces(" ".join(part)) for part in (parts.last, parts.first, parts.von, parts.jr)]
    family, given, particle, middle = words
    if given and not particle and "," not in text and given.islower():  # van Gogh
        given, particle = particle, given
    if middle and _is_suffix(given) and not _is_suffix(middle):  # Smith, John, Jr.
        middle, given = given, middle
    for_family, for_given = family.rpartition(" "), given.rpartition(" ")
    suffix = suffix or middle
    if not suffix and for_family[0] and _is_suffix(for_family[2]):
        family, suffix = for_family[0], for_family[2]
    elif not suffix and for_given[0] and _is_sure_suffix(for_given[2]):
        given, suffix = for_given[0].rstrip(", "), for_given[2]
    if not given and not particle and not suffix and " " in family:
        return Name(literal=family)
    return Name(family, given, particle, suffix)


def _parse_extended(text: str) -> Name | None:
    """Parse biblatex's form, key=value with commas; None for another. Options alone give an empty name."""
    if not _OPTION.match(text):
        return None
    parts = dict[str, str]()
    depth = start = 0
    quoted = False
    for sign in [*_DELIMITERS.finditer(text), None]:
        if sign is None or (sign[0] == "," and depth == 0 and not quoted):
            piece = text[start : sign.start() if sign else len(text)]
            if option := _OPTION.match(piece):
                value = _without_braces(piece[option.end() :].strip().strip('"'))
                parts[option[1].lower()] = value
            start = sign.end() if sign else start
        elif sign[0] == '"':
            quoted = not quoted and sign.start() > start and text[sign.start() - 1] == "="
        else:
            depth += {"{": 1, "}": -1}.get(sign[0], 0)
    family, given, prefix, suffix = (parts.get(key, "") for key in ("family", "given", "prefix", "suffix"))
    if not suffix and _is_suffix(given.rpartition(",")[2]):
        given, _, suffix = given.rpartition(", ")
    return Name(family, given, prefix, suffix)


def _without_braces(text: str) -> str:
    return " ".join(text.replace("{", "").replace("}", "").split())


def _is_suffix(word: str) -> bool:
    word = word.replace(".", "").strip(", ")
    return word.lower() in _SUFFIXES and word != "Md"  # Mohammad, not a doctor


def _is_sure_suffix(word: str) -> bool:
    """True for a suffix where given names may stand. Capitals with a dot each are initials: Dyke, J.R."""
    return _is_suffix(word) and not _DOTTED.fullmatch(word)


def parse_names(text: str) -> list[Name]:
    """Parse a list of names with "and" between them, or as people write them otherwise.

    >>> [name.full for name in parse_names("Lee, Ann and {Moss and Fern, Inc.} and others")]
    ['Ann Lee', 'Moss and Fern, Inc.', 'others']
    >>> [name.full for name in parse_names("Lee, A., Roe, B. C. & Fern, D., et al.")]
    ['A. Lee', 'B. C. Roe', 'D. Fern', 'others']
    """
    if _IN_BRACES.fullmatch(text):  # {Lee A.}, {Roe B. C.}
        text = " and ".join(text.strip("{ }").replace("{", "").split("}"))
        text = re.sub(r" and \s*,\s*", " and ", text)
    if {"{", "="} & set(text):
        names = [*map(parse_name, _initials_last(_split_at_and(text)))]
    else:
        text = _LOOSE_AND.sub("", text)
        names = parse_people(text, _by_and) if "," in text else _by_and(text)
    return [name for name in names if name.full]


def _split_at_and(text: str) -> list[str]:
    from bibtexparser.middlewares.names import split_multiple_persons_names  # not needed for surnames

    return split_multiple_persons_names(text)


def _by_and(text: str) -> list[Name]:
    pieces = _initials_last([*map(str.strip, _split_at_and(text))])
    return [name for piece in pieces for name in parse_people(piece, lambda person: [parse_name(person)])]


def _initials_last(names: list[str]) -> list[str]:
    """Return names with a comma before their initials if all of several are as PubMed writes them: Lee AB."""
    people = [name for name in names if name.lower() not in _OTHERS]
    are_all = len(people) > 1 and all(map(_WITH_INITIALS.fullmatch, people))
    return [*map(_with_comma, names)] if are_all else names


def parse_people(text: str, parse: Callable[[str], list[Name]]) -> list[Name]:
    """Parse a text that may list several people: with semicolons, "&", "and", commas, "et al.".

    Separators other than semicolons count if what is between them are names of people, not of institutions.
    parse: parses a text that is no such list.
    """
    text = unescape(text)
    listed = _MORE.sub("", text)
    more = [OTHERS] if listed != text else []
    if ";" in listed:
        split = (_LOOSE_AND.sub("", piece.strip()) for piece in listed.split(";"))
        return [name for piece in split for name in parse_people(piece, parse)] + more
    with_commas = _BETWEEN.sub(", ", listed, count=1)
    pieces = (not _BETWEEN.search(with_commas) and _by_commas(with_commas)) or [
        part for piece in _BETWEEN.split(listed) for part in _by_commas(piece) or [piece.strip(" ,")]
    ]
    others = [piece for piece in pieces if not _is_person(piece)]
    if len(pieces) > 2 and any(map(_INITIALS_LAST.search, pieces)):
        others = [
            piece for piece in others if not _ONE_NAME.fullmatch(piece)
        ]  # Rahman and Lee, AN and Roe, B
    if not (more or len(pieces) > 1) or others:
        return parse(listed) + more
    pieces = [piece if _FULL.fullmatch(piece) else _with_comma(piece) for piece in pieces]
    return [parse_name(piece) if name.literal else name for piece in pieces for name in parse(piece)] + more


def _by_commas(text: str) -> list[str]:
    """Split names with commas between them, where none or all have one after the family name, too."""
    parts = [*filter(None, map(str.strip, text.split(",")))]
    for form, fewest in ((_WITH_INITIALS, 2), (_INITIALS_FIRST, 2), (_FULL, 3)):
        if len(parts) >= fewest and all(map(form.fullmatch, parts)):
            return [*map(_with_comma, parts)] if form is _WITH_INITIALS else parts
    if len(parts) < 4 or len(parts) % 2 or any(map(_is_sure_suffix, parts)):
        return []
    return [f"{family}, {given}" for family, given in zip(parts[::2], parts[1::2], strict=True)]


def _with_comma(text: str) -> str:
    """Return a name with a comma after the family name if initials follow it."""
    match = _WITH_INITIALS.fullmatch(text)
    return f"{match[1]}, {match[2]}" if match else text


def _is_person(text: str) -> bool:
    """True for a family name with given names or initials, on either side."""
    family, comma, given = text.partition(",")
    if INSTITUTION.search(text) or _is_company(family, given):
        return False
    if comma:
        return bool(given) and "," not in given
    return any(form.fullmatch(text) for form in (_WITH_INITIALS, _INITIALS_FIRST, _FULL))


def _is_company(name: str, last: str) -> bool:
    """True if what follows the comma makes a name that of a company. Two capitals after a word are initials.

    >>> _is_company("Barnes and Noble", " Inc."), _is_company("Moss", " AG"), _is_company("Moss Pumps", " AG")
    (True, False, True)
    """
    if last.strip(" .").lower() not in _COMPANIES:
        return False
    return " " in name.strip() or not _TWO_CAPITALS.fullmatch(last)


def parse_inverted(text: str) -> Name:
    """Parse a name that has a comma after the family name, as in RIS; one without is an institution's.

    >>> [parse_inverted(text).short for text in ("García Márquez, Gabriel", "World Bank", "Penkov MA")]
    ['García Márquez', 'World Bank', 'Penkov']
    """
    text = " ".join(text.replace("{", "").replace("}", "").split())
    if text.lower() in _OTHERS:
        return OTHERS
    name, _, last = text.rpartition(",")
    if name and _is_company(name, last):
        return Name(literal=text)
    text = _with_comma(text)
    if " " in text and "," not in text.rstrip(",") and not _INITIALS_FIRST.fullmatch(text):
        return Name(literal=text.rstrip(", "))
    return parse_name(text)


def parse_all_inverted(texts: Iterable[str]) -> list[Name]:
    """Parse texts with names as in RIS, each of one or, against the rule, of several people."""
    names = (name for text in texts for name in parse_people(text, lambda person: [parse_inverted(person)]))
    return [name for name in names if name.full]


def inverted(name: Name) -> str:
    """Return a name as RIS writes it: family name, given names, suffix; a literal as it is."""
    return name.literal or ", ".join(filter(None, (name.short, name.given, name.suffix)))


def ambiguous(names: Sequence[Name]) -> tuple[str, ...]:
    """Return the names as BibTeX writes them if `full` leaves open their parts or `surname`, else nothing."""
    if all(parse_name(name.full) == name and surname(name.full) == surname(name.bibtex()) for name in names):
        return ()
    return tuple(name.bibtex() for name in names)


@lru_cache(1 << 16)
def surname(name: str) -> str:
    """Return the last word of a family name, folded; "" if empty.

    >>> [surname(name) for name in ("Ann B. Lee", "van der Maaten, Laurens", "K. Müller, Jr.", "Penkov MA")]
    ['Lee', 'Maaten', 'Muller', 'Penkov']
    """
    family, _, rest = fold(name).partition(",")
    words = family.split()
    if not rest or rest.strip(" .").lower() in _GENERATIONS:
        words = [word for word in words if word.strip(".").lower() not in _GENERATIONS]
        while len(words) > 1 and _is_initials(words[-1], words[-2]):
            words.pop()
    return words[-1].strip(".{}") if words else ""


def given_initials(name: str) -> str:
    """Return the initials of given names, folded: AL of Ann-Lou Lee; "" if none is known."""
    family, _, rest = fold(name).partition(",")
    is_given = rest.strip(" .").lower() not in ("", *_GENERATIONS)
    return "".join(_CAPITALS.findall(rest if is_given else family.removesuffix(surname(name))))


def _is_initials(word: str, before: str) -> bool:
    """True if the last word of a name is initials, as in PubMed; a short family name has some before it."""
    letters = re.sub("[.-]", "", word)
    if not letters.isupper() or len(letters) > 3:
        return False
    is_behind = _INITIALS.fullmatch(before) and ("." in before or len(before) <= len(word))
    return len(letters) == 1 or "." in word or not is_behind
