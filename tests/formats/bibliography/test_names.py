"""Names keep family, given, particle, suffix and literal from reading to writing."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from citerec.formats.bibliography.csl import read_csl, read_name, write_csl
from citerec.formats.bibliography.item import Item
from citerec.formats.bibliography.latex import escape_latex, latex_to_names
from citerec.formats.bibliography.paper import LibraryPaper
from citerec.formats.names import (
    OTHERS,
    Name,
    ambiguous,
    inverted,
    parse_all_inverted,
    parse_inverted,
    parse_name,
    parse_names,
)


@pytest.mark.parametrize(
    ("latex", "names"),
    [
        (r"{{World Health Organization}}"[1:-1], [Name(literal="World Health Organization")]),
        ("{Moss and Fern, Inc.} and Roe, Rita", [Name(literal="Moss and Fern, Inc."), Name("Roe", "Rita")]),
        ("Board of Ponds {and} Pools", [Name(literal="Board of Ponds and Pools")]),
        (r"Garc{\'i}a M{\'a}rquez, Gabriel", [Name("García Márquez", "Gabriel")]),
        ("{Del Hoyo}, J. and Del Hoyo, J.", [Name("Del Hoyo", "J."), Name("Del Hoyo", "J.")]),
        ("Raup, David M and {Sepkoski Jr.}, J John",
         [Name("Raup", "David M"), Name("Sepkoski", "J John", suffix="Jr.")]),
        ("Sepkoski, Jr., J. John and Sepkoski, J. John Jr. and J. John Sepkoski Jr.",
         [Name("Sepkoski", "J. John", suffix="Jr.")] * 3),
        ("de la Cruz, III, Pablo and Pablo de la Cruz III", [Name("Cruz", "Pablo", "de la", "III")] * 2),
        (r"Mu\~noz, Jo\~ao and Nguy\~{\^e}n, V\~u", [Name("Muñoz", "João"), Name("Nguyễn", "Vũ")]),
        (r"Lee, Ann and \O{}rsted, H. C. and \v{S}imek, Bo and \"Ozg\"ur, I.",
         [Name("Lee", "Ann"), Name("Ørsted", "H. C."), Name("Šimek", "Bo"), Name("Özgür", "I.")]),
        ("Lee, A.~B. and van~Dam, C", [Name("Lee", "A. B."), Name("Dam", "C", "van")]),
        ("family=Spoel, given=David, prefix=van der, useprefix=false\n and given=Ann,\n  family={Kim Park}",
         [Name("Spoel", "David", "van der"), Name("Kim Park", "Ann")]),
        ("{given={Jo}, family={Watt}, suffix=Jr., given-i={J}}", [Name("Watt", "Jo", suffix="Jr.")]),
        ("useprefix=false and Lee, Ann", [Name("Lee", "Ann")]),
        ("uniquelist=false and Lee, Ann", [Name("Lee", "Ann")]),
        ("Lee, Ann and xdata=staff-author-1, % the first", [Name("Lee", "Ann")]),
        (r"So{$\not$}rem, C. and Pakul{$\bar$}a, K. and Roe\raise0.5ex\hbox{}, R.",
         [Name("Sorem", "C."), Name("Pakula", "K."), Name("Roe", "R.")]),
        (r"Spi\ifmmode \check{s}\else \v{s}\fi{}\'ak, D. and \Luczak, M.",
         [Name("Spišák", "D."), Name("Luczak", "M.")]),
        (r"{\noopsort{Gogh}}{van Gogh}, Vin", [Name("van Gogh", "Vin")]),
        ("Lee, Ann and others", [Name("Lee", "Ann"), OTHERS]),
        ("Wilshut E, Rinken AB, Brook KA", [Name("Wilshut", "E"), Name("Rinken", "AB"), Name("Brook", "KA")]),
        ("Lee, A.; and Roe, B.; & Fern C. D.", [Name("Lee", "A."), Name("Roe", "B."), Name("Fern", "C. D.")]),
        ("Lee, Ann; Roe, Bo", [Name("Lee", "Ann"), Name("Roe", "Bo")]),
        ("Aristotle and van Gogh", [Name("Aristotle"), Name("Gogh", "", "van")]),
        ("Lee, Ann & Roe, B. \\& Fern, C. D., et al.",
         [Name("Lee", "Ann"), Name("Roe", "B."), Name("Fern", "C. D."), OTHERS]),
        ("Ann Lee et~al.", [Name("Lee", "Ann"), OTHERS]),
        ("Lee, A., Roe, B. C., & Fern, D.", [Name("Lee", "A."), Name("Roe", "B. C."), Name("Fern", "D.")]),
        ("Ann Lee, Bo van der Roe, and Cy Fern",
         [Name("Lee", "Ann"), Name("Roe", "Bo", "van der"), Name("Fern", "Cy")]),
        ("Lee, Ann, and Bo Roe and and Fern C.D. and",
         [Name("Lee", "Ann"), Name("Roe", "Bo"), Name("Fern", "C.D.")]),
        ("Ann Lee, Bo Roe & Cy Fern and nobody",
         [Name("Lee", "Ann"), Name("Roe", "Bo"), Name("Fern", "Cy"), Name("nobody")]),
        ("Ann Lee, Bo Roe and Cy Fern", [Name("Lee", "Ann"), Name("Roe", "Bo"), Name("Fern", "Cy")]),
        ("García Márquez, Gabriel and Cy Fern", [Name("García Márquez", "Gabriel"), Name("Fern", "Cy")]),
        ("A. Lee, B. Roe", [Name("Lee", "A."), Name("Roe", "B.")]),
        (r"Ernst \& Young and National Oceanic \& Atmospheric Administration",
         [Name(literal="Ernst & Young"), Name(literal="National Oceanic & Atmospheric Administration")]),
        ("Martin Lee, Jr. and Ann Roe, Ph.D.",
         [Name("Lee", "Martin", suffix="Jr."), Name("Roe", "Ann", suffix="Ph.D.")]),
        (r"{\'E}lie Cartan and {{\'E}lie} Cartan", [Name("Cartan", "Élie")] * 2),
        (
            "{Lee A.}, {Roe B. C.}, {Moss D.}",
            [Name("Lee", "A."), Name("Roe", "B. C."), Name("Moss", "D.")],
        ),
        ("Lee A and Roe BC and et al", [Name("Lee", "A"), Name("Roe", "BC"), OTHERS]),
        ("Malcolm X", [Name("X", "Malcolm")]),
        ("Van Dyke, J.R. and García Márquez, M.D. and De Witt, JR and Roe, Cy, M.D. and Ann Lee, II",
         [Name("Van Dyke", "J.R."), Name("García Márquez", "M.D."), Name("De Witt", "JR"),
          Name("Roe", "Cy", suffix="M.D."), Name("Lee", "Ann", suffix="II")]),
    ],
)  # fmt: skip
def test_names_of_bibtex_and_biblatex(latex: str, names: list[Name]) -> None:
    assert parse_names(latex_to_names(latex)) == names


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("García Márquez, Gabriel", [Name("García Márquez", "Gabriel")]),
        ("Smith, John, Jr.", [Name("Smith", "John", suffix="Jr.")]),
        ("World Health Organization", [Name(literal="World Health Organization")]),
        ("World Health Organization,", [Name(literal="World Health Organization")]),
        ("Barnes and Noble, Inc.", [Name(literal="Barnes and Noble, Inc.")]),
        (
            "Department of Health and Human Services",
            [Name(literal="Department of Health and Human Services")],
        ),
        ("Penkov MA", [Name("Penkov", "MA")]),
        ("Penkov M.A. and Moss RJ 3rd", [Name("Penkov", "M.A."), Name("Moss", "RJ", suffix="3rd")]),
        ("J. R. R. Tolkien", [Name("Tolkien", "J. R. R.")]),
        ("UNESCO", [Name("UNESCO")]),
        ("Lee, Ann; Roe, Bo &amp; Fern, C.", [Name("Lee", "Ann"), Name("Roe", "Bo"), Name("Fern", "C.")]),
        ("Lee, A., Roe, B., et al.", [Name("Lee", "A."), Name("Roe", "B."), OTHERS]),
        ("Moss, AG", [Name("Moss", "AG")]),
        ("Fern, CO; Roe, LP", [Name("Fern", "CO"), Name("Roe", "LP")]),
        ("Moss Pumps, AG", [Name(literal="Moss Pumps, AG")]),
        ("van Dyke, MD", [Name("Dyke", "MD", "van")]),
        ("Van Dyke, JR", [Name("Van Dyke", "JR")]),
        ("Van Dyke, J.R.", [Name("Van Dyke", "J.R.")]),
        ("Rahman and Lee, AN and Roe, B", [Name("Rahman"), Name("Lee", "AN"), Name("Roe", "B")]),
        (
            "Food, Forestry and Fisheries and Water",
            [Name(literal="Food, Forestry and Fisheries and Water")],
        ),
    ],
)
def test_names_of_ris(text: str, names: list[Name]) -> None:
    assert parse_all_inverted([text]) == names


@pytest.mark.parametrize(
    ("listed", "names"),
    [
        (
            [{"literal": "Ann Lee & Bo Roe"}, "Fern, Cy"],
            [Name("Lee", "Ann"), Name("Roe", "Bo"), Name("Fern", "Cy")],
        ),
        ({"family": "Lee", "given": "Ann"}, [Name("Lee", "Ann")]),
        (
            {"family": "Cruz", "given": "Ana", "non-dropping-particle": "la", "dropping-particle": "de"},
            [Name("Cruz", "Ana", "de la")],
        ),
        ("Lee, Ann and Roe, Bo", [Name("Lee", "Ann"), Name("Roe", "Bo")]),
        ({"literal": "Lee, Ann B"}, [Name("Lee", "Ann B")]),
        ({"literal": "Lee, Inc."}, [Name(literal="Lee, Inc.")]),
        (
            [{"name": "World Bank"}, {"literal": "Health, Inc."}],
            [Name(literal="World Bank"), Name(literal="Health, Inc.")],
        ),
    ],
)
def test_names_of_csl(listed: object, names: list[Name]) -> None:
    assert read_csl({"type": "book"}, {"author": listed}).names["author"] == names


WORD = st.from_regex(r"[A-ZÀ-Ö][a-zà-ö]{1,6}(-[A-Z][a-z]{1,4})?", fullmatch=True).filter(
    lambda word: word.lower() not in ("jr", "sr", "ii", "iii", "iv", "and", "others", "inc", "co")
)
WORDS = st.lists(WORD, min_size=1, max_size=3).map(" ".join)
PEOPLE = st.builds(
    Name,
    family=WORDS,
    given=WORDS | st.just("J. K."),
    particle=st.sampled_from(["", "van der", "de la", "von", "d'"]),
    suffix=st.sampled_from(["", "Jr.", "III"]),
    literal=st.just(""),
)
LITERALS = st.lists(WORD, min_size=2, max_size=4).map(lambda words: Name(literal=" and ".join(words)))
NAMES = PEOPLE | WORD.map(Name) | LITERALS


@given(st.lists(NAMES, min_size=1, max_size=4), st.sampled_from([[], [OTHERS]]))
def test_names_survive_bibtex_csl_and_ris(names: list[Name], more: list[Name]) -> None:
    item = Item("book", {}, {"author": [*names, *more]})
    written = " and ".join(name.bibtex(escape_latex) for name in names + more)
    assert parse_names(latex_to_names(written)) == names + more
    assert [*map(read_name, write_csl(item, "k")["author"])] == names + more
    for name in names + more:
        assert parse_inverted(inverted(name)).full == name.full
    assert item.authors == names
    kept = ambiguous(names) or [name.full for name in names]
    assert [*map(parse_name, kept)] == names, "a library's columns tell the parts"


@pytest.mark.parametrize("family", ["LEE", "Wu", "WU", "E"])
def test_short_families_in_capitals_are_no_initials(family: str) -> None:
    author = Name(family, "Sangho")
    paper = LibraryPaper("a", authors=(author.full,), names=ambiguous([author]))
    assert paper.surname() == family and paper.surname(1) == ""


@given(st.text(st.sampled_from('ab AB{}",=.~\\'), max_size=30))
def test_any_text_has_names_or_none(text: str) -> None:
    for name in parse_names(latex_to_names(text)):
        assert name.full and parse_name(name.bibtex()).full


@pytest.mark.parametrize("piece", [",", " , ", "and ", "{},", "von ", "et al, "])
def test_adverse_names_are_read_in_linear_time(piece: str) -> None:
    """Each would take minutes in quadratic time."""
    parse_names(piece * (100_000 // len(piece)))
