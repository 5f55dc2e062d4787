"""Lists of references, their entries, and the marks that cite them, as printed papers have them."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from citerec.formats.articles.citing import Entry, find_marks, read_work, split_references
from citerec.formats.articles.pdf_layout import Line

AUTHORS = ("Lee", "Kim", "Moss", "Fern", "Adler", "Brook", "Stone", "Reed")
NUMBERED = [
    Entry(n, f"{name} A. On {name.lower()}s. J. {name} 20{n:02}.") for n, name in enumerate(AUTHORS, 1)
]


def draw(rows: Sequence[tuple[str, float]], page: int = 1, top: float = 700) -> list[Line]:
    """Lines of a page, each with its left edge."""
    return [
        Line(text, page, left, left + 5 * len(text), top - 12 * row, 10, bold=False)
        for row, (text, left) in enumerate(rows)
    ]


BODY = [(f"The body of the paper goes on here, in line {number}.", 50.0) for number in range(20)]


@pytest.mark.parametrize("label", ["[{}] ", "{}. ", "({}) ", "{} "])
def test_numbered_lists_are_split_at_their_numbers(label: str) -> None:
    rows = [*BODY, ("References", 50.0)]
    for entry in NUMBERED:
        first, _, second = entry.text.partition("s. ")
        rows += [(f"{label.format(entry.number)}{first}s.", 50), (f"12 {second}", 65)]
    [(running, entries)] = split_references(draw(rows))
    assert [line.text for line in running] == [text for text, _ in BODY]
    assert entries == [Entry(n, text.replace("s. J", "s. 12 J")) for n, text in NUMBERED]


def test_a_number_that_is_lost_at_the_top_of_a_page_is_counted() -> None:
    first = draw([*BODY, ("References", 50), ("1.", 50), ("Lee A. Bees. 2001.", 65)])
    second = draw([("Kim B. Ants. 2002.", 65), ("3.", 50), ("Moss C. Mice. 2003.", 65)], 2)
    [(_, entries)] = split_references([*first, *second])
    assert entries == [
        Entry(1, "Lee A. Bees. 2001."),
        Entry(2, "Kim B. Ants. 2002."),
        Entry(3, "Moss C. Mice. 2003."),
    ]


def test_lists_without_numbers_are_split_where_lines_stick_out() -> None:
    rows = [*BODY, ("References", 50), ("Lee, A. (2001). Bees dance.", 50), ("J. Bees 1.", 60)]
    rows += [("Kim, B. (2002). Ants do", 50), ("not, Ann. Ants 2.", 60)]
    [(_, entries)] = split_references(draw(rows))
    assert entries == [
        Entry(0, "Lee, A. (2001). Bees dance. J. Bees 1."),
        Entry(0, "Kim, B. (2002). Ants do not, Ann. Ants 2."),
    ]


def test_a_numbered_list_at_the_end_needs_no_heading() -> None:
    rows = [*BODY, *((f"[{n}] {text}", 50.0) for n, text in NUMBERED)]
    [(running, entries)] = split_references(draw(rows))
    assert (len(running), entries) == (len(BODY), NUMBERED)
    assert split_references(draw(BODY)) == [(draw(BODY), [])]


HEADINGS = "Referências bibliográficas|Références bibliographiques|REFERENCIAS BIBLIOGRÁFICAS|Bibliografia|"
HEADINGS += "List of references|Reference list|Cited literature|Literatuur|Chapter 6. References"


@pytest.mark.parametrize("heading", HEADINGS.split("|"))
def test_headings_of_lists(heading: str) -> None:
    rows = [*BODY, (heading, 50.0), *((f"[{n}] {text}", 50.0) for n, text in NUMBERED)]
    assert split_references(draw(rows)) == [(draw(BODY), NUMBERED)]


METHODS = [("Methods", 50.0), *((f"We did that, as others do in part {n}.", 50.0) for n in range(40))]


def test_a_list_goes_on_after_other_text() -> None:
    listed = [(f"{entry.number}. {entry.text}", 50.0) for entry in NUMBERED]
    last = [("Acknowledgements", 50.0), ("We thank those who have helped.", 50.0)]
    rows = [*listed[:3], *METHODS, *listed[3:5], ("Supplementary references", 50), *listed[5:], *last]
    [(running, entries)] = split_references(draw([*BODY, ("References", 50), *rows]))
    assert entries == NUMBERED
    assert [line.text for line in running] == [text for text, _ in (*BODY, *METHODS, *last)]


def test_entries_of_organisations_compound_names_the_same_authors_and_others() -> None:
    texts = ["García Márquez, A. (2017). Olives. Agua 7.", "Lind, A., Moss, B. (2011). Rain falls. Field 3."]
    texts += ["——— (2012). Snow. F. 4.", "R Core Team. (2021). R. Rome.", "World Bank. (2019). Homes. Rome."]
    rows = [("References", 50.0), *((text, 50.0) for text in texts), ("of bees, 2001.", 50.0), *METHODS]
    lines = [line._replace(bottom=line.bottom - 5 * (line.text >= "a")) for line in draw([*BODY, *rows])]
    [(running, entries)] = split_references(lines)
    assert [line.text for line in running] == [text for text, _ in (*BODY, *METHODS)]
    texts[2] = "Lind, A., Moss, B (2012). Snow. F. 4."
    assert [entry.text for entry in entries] == [*texts, "of bees, 2001."]
    cites = "Lind & Moss (2011, 2012), García Márquez (2017), (R Core Team, 2021; the World Bank, 2019)."
    assert [mark.entries for mark in find_marks([cites], entries)] == [(1, 2), (0,), (3,), (4,)]


def test_quoted_words_are_the_title_if_they_are_all_of_it() -> None:
    forms = {
        "The “end of history illusion” in bees": "Lee, A. (2013). {}. Bees 3.",
        "“Bees, a long history” is told": "Lee, A. {}. J. Bees, 2013.",
        "Why “dark” bees may dance": "A. Lee and B. Kim: “{}?” J. Bees, 2013.",
    }
    for title, form in forms.items():
        work = read_work(form.format(title))
        assert work is not None and work.title == title


def cited(text: str, entries: Sequence[Entry]) -> list[tuple[str, list[int]]]:
    """The marks of a text, after others that cite all entries once, in the same form."""
    usual = " ".join(f"x [{entry.number}]" for entry in entries)
    marks = find_marks([usual, text], entries)
    return [(text[mark.start : mark.end], [*mark.entries]) for mark in marks if mark.text == 1]


def test_numbers_in_brackets() -> None:
    assert cited("Bees [1], ants [2, 4–6] and [7; 8].", NUMBERED) == [
        ("[1]", [0]),
        ("[2, 4–6]", [1, 3, 4, 5]),
        ("[7; 8]", [6, 7]),
    ]
    marks = cited("Bees [1]–[3], [5, p. 12] and [6, 7, Sec. 2–3; 8], no [2, p. 3, 7].", NUMBERED)
    assert [rows for _, rows in marks] == [[0, 1, 2], [4], [5, 6, 7]]
    assert cited("An interval [0, 1], [3–1] and [12].", NUMBERED) == []


def test_raised_numbers_are_marks_but_powers_are_not() -> None:
    usual = "Bees dance.¹ Ants walk.²–⁶ Mice⁷,⁸ run."
    marks = find_marks([usual, "At 12 m² and 10³, ¹⁸F or Ca²⁺; R² = 2."], NUMBERED)
    assert [(usual[mark.start : mark.end], [*mark.entries]) for mark in marks] == [
        ("¹", [0]),
        ("²–⁶", [1, 2, 3, 4, 5]),
        ("⁷,⁸", [6, 7]),
    ]


NAMED = [
    Entry(0, "Lee, A., and Kim, B. (2001a). Bees. J. Bees."),
    Entry(0, "Lee, A., and Kim, B. (2001b). Ants. J. Ants."),
    Entry(0, "Moss C, Fern D, Reed E. Mice. J Mice. 1999;3:1-2."),
    Entry(0, "J. Müller. 2001. Moles. In Proc. Moles."),
]


def test_names_and_years() -> None:
    text = "So Lee and Kim (2001b); also (Moss et al., 1999; Müller 2001). Lee and Kim (2001a) agree."
    marks = find_marks([text], NAMED)
    assert [(text[mark.start : mark.end], mark.entries) for mark in marks] == [
        ("Lee and Kim (2001b", (1,)),
        ("Moss et al., 1999", (2,)),
        ("Müller 2001", (3,)),
        ("Lee and Kim (2001a", (0,)),
    ]


@pytest.mark.parametrize("years", ["2001a,b", "2001a, b", "2001a and b", "2001a,2001b", "2001a; 2001b"])
def test_several_years_after_the_same_names(years: str) -> None:
    text = f"Bees dance (Lee & Kim, {years}; Müller, 2001). Ants, in Lee and Kim ({years}), do not."
    marks = find_marks([text], NAMED)
    assert [(text[mark.start : mark.end], mark.entries) for mark in marks] == [
        (f"Lee & Kim, {years}", (0, 1)),
        ("Müller, 2001", (3,)),
        (f"Lee and Kim ({years}", (0, 1)),
    ]


def test_a_page_or_a_word_after_a_year_is_no_letter_of_it() -> None:
    entries = [*NAMED, Entry(0, "Lee, A., and Kim, B. (2001p). Peas. J. Peas.")]
    text = "Lee and Kim (2001a, p. 5), Müller (2001, a mole), Moss et al. (1999, b)"
    assert [mark.entries for mark in find_marks([text], entries)] == [(0,), (3,), (2,)]


def test_a_mark_that_may_mean_two_entries_means_none() -> None:
    text = "Lee and Kim (2001) or Moss (1998). (Moss et al., 1999), Müller (2001)"
    assert [mark.entries for mark in find_marks([text], NAMED)] == [(2,), (3,)]


def test_marks_that_cite_few_of_the_entries_are_not_believed() -> None:
    assert find_marks(["In the interval [1], or [2]."], NUMBERED) == []


@given(st.lists(st.integers(1, len(NUMBERED)), min_size=1, max_size=5))
def test_all_numbers_of_a_mark_are_cited(numbers: list[int]) -> None:
    mark = f"[{', '.join(map(str, numbers))}]"
    assert cited(f"Bees dance {mark}.", NUMBERED) == [(mark, [*dict.fromkeys(n - 1 for n in numbers)])]
