"""Pages and quotations of citations, compared with the text of a PDF."""

from __future__ import annotations

import re

import pytest

from citerec.formats.bibliography.paper import LibraryPaper
from citerec.library.evidence.passages import Passage
from citerec.library.evidence.quotations import PaperText, locator, quotation
from citerec.library.evidence.reading import ReadText

FIRST = "Honey bees dance in the dark of the hive,¹² and their sisters follow them [3]."
SECOND = "Wasps build their nests of paper that they chew from old wood."
TEXT = PaperText(
    LibraryPaper("bees", bibtex="@article{bees, pages = {101--104}}"),
    ReadText(pages=4, labels=["i", "ii", "1", "2"]),
    [Passage(f"{FIRST} {SECOND}", [(0, 3), (len(FIRST) + 1, 4)])],
)


@pytest.mark.parametrize(
    ("command", "pages"),
    [
        (r"\cite[p.~7]{lee}", (7, 7)),
        (r"\citep[see][pp. 127--9]{lee}", (127, 129)),
        (r"\cite[7]{lee}", (7, 7)),
        ("[@lee, p. 7]", (7, 7)),
        ("@lee [p. 7-9]", (7, 9)),
        ("#cite(<lee>, supplement: [p. 7])", (7, 7)),
        ("[cite:@lee p. 7]", (7, 7)),
        (r"\cite[chap. 7]{lee}", None),
        (r"\cite{lee2003}", None),
        ("[@lee2003]", None),
    ],
)
def test_locators(command: str, pages: tuple[int, int] | None) -> None:
    assert locator(command) == pages


def test_quotations_stand_beside_their_citation() -> None:
    cites = re.compile(r"\\cite")
    assert quotation("As “bees dance in the dark” ", "", cites) == "bees dance in the dark"
    assert quotation(r"As ``bees \emph{dance} in the dark'' ", "", cites) == "bees dance in the dark"
    assert quotation("", " says that \\enquote{bees dance in the dark}.", cites) == "bees dance in the dark"
    for before in (
        "“bees dance in the dark” as \\cite{kim} ",
        "“bees dance in the dark”\n\nNew ",
        "“bees dance” ",
        "“bees dance in the dark”. See ",
    ):
        assert quotation(before, "", cites) == ""
    assert quotation("", " and “bees dance in the dark” \\cite{kim}.", cites) == ""
    assert quotation("“Bees dance in the dark.” ", "", cites) == "Bees dance in the dark."


@pytest.mark.parametrize(
    ("pages", "quoted", "problem"),
    [
        ((3, 3), "dance in the dark of the hive, and their sisters", ""),
        ((1, 1), "dance in the dark of the hive", ""),  # by its label
        ((103, 103), "dance in the dark of the hive", ""),  # by its number in the journal
        (None, "Honey bees dance ... their sisters follow them", ""),
        ((3, 4), "build their nests of paper", ""),
        ((3, 3), "build their nests of paper", "is on p. 2 of its PDF, not on p. 3"),
        (
            None,
            "bees dance in the light of the hive",
            "has not the words .*; on p. 1 is “bees dance in the dark of the hive,”",
        ),
        (
            None,
            "nothing like it was ever printed anywhere",
            "has not the words “nothing like it was ever printed anywhere”$",
        ),
        ((70, 70), "", "page 70 is cited, but its PDF has 4 pages"),
        ((4, 70), "", "page 70 is cited"),
        ((103, 104), "", ""),
    ],
)
def test_problems(pages: tuple[int, int] | None, quoted: str, problem: str) -> None:
    found = [*TEXT.problems(pages, quoted)]
    assert len(found) == bool(problem)
    assert not problem or re.search(problem, found[0])
