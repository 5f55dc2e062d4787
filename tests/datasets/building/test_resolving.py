"""Resolution of references to papers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from citerec.datasets.building.catalogue import Catalogue
from citerec.formats.documents import Metadata, Reference
from citerec.formats.identifiers import arxiv_year
from citerec.formats.letters import normalise_title
from citerec.formats.names import surname

PAPERS = [
    Metadata("nivre", "Deterministic Dependency Parsing", "A.", 2004, ("Joakim Nivre", "Mario Scholz")),
    Metadata("deep", "Deep nets: a survey", "A.", 2010, ("Kai Lee",)),
    Metadata("deep2", "Deep Nets -- A Survey", "A.", 2014, ("Kai Lee", "Bo Diaz")),
    Metadata("twin1", "The same title of two papers", "A.", 2000, ("Ann Li",)),
    Metadata("twin2", "The same title of two papers", "A.", 2000, ("Bo Ko",)),
    Metadata("version1", "A title that has two versions", "A.", 0, ("Cy Rho", "Ann Li")),
    Metadata("version2", "A title that has two versions", "A.", 2001, ("Ann Li",)),
    Metadata("2101.00001", "Another title", "A.", 2021, ("Ann Li",)),
    Metadata("short", "Parsing", "A.", 0, ()),
    Metadata("plain", "A title without authors and year", "A.", 0, ()),
    Metadata("accents", "Über Größe: l\u2019été", "A.", 1999, ("Jörg Müller",)),
    Metadata("bare", "A paper without abstract", "", 2004, ("Sue Tan",)),
    Metadata("known", "Of other words", "A.", 1990, identifiers=("doi:10.1/x", "pmid:7", "acl:P1")),
]


@pytest.fixture(scope="module")
def catalogue(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Catalogue]:
    catalogue = Catalogue(tmp_path_factory.mktemp("catalogue") / "papers.sqlite", None)
    for paper in PAPERS:
        catalogue.add(paper)
    catalogue.finish()
    yield catalogue
    catalogue.close()


NONE = "no paper has the title"
SEVERAL = "several papers have the title"
OUTSIDE = "the cited paper is not in the collection"
PARSING = "Deterministic dependency parsing"
DEEP = "Deep nets: a survey"


@pytest.mark.parametrize(
    ("reference", "paper", "how"),
    [
        (Reference(paper="deep", title="Another title"), "deep", "by id"),
        (Reference(paper="bare"), None, OUTSIDE),
        (Reference(paper="gone", title=PARSING), None, OUTSIDE),
        (Reference(), None, "the reference has neither id nor title"),
        (Reference(title="deterministic dependency-parsing."), "nivre", "by title"),
        (Reference(title="Deterministic parsing"), None, NONE),
        (Reference(title=PARSING, authors=("Scholz, M.",)), "nivre", "by title"),
        (Reference(title=PARSING, authors=("NIVRE, J",)), "nivre", "by title"),
        (Reference(title=PARSING, authors=("Ann Other",)), None, NONE),
        (Reference(title=PARSING, year=2006), "nivre", "by title"),
        (Reference(title=PARSING, year=2007), None, NONE),
        # several papers with one title: the nearest year, or none
        (Reference(title=DEEP, authors=("K. Lee",), year=2011), "deep", "by title"),
        (Reference(title=DEEP, authors=("K. Lee",), year=2013), "deep2", "by title"),
        (Reference(title=DEEP, authors=("K. Lee",)), None, SEVERAL),
        (Reference(title=DEEP, authors=("B. Diaz",)), "deep2", "by title"),
        (Reference(title="The same title of two papers", year=2000), None, SEVERAL),
        (Reference(title="A title that has two versions", authors=("Li, A.",)), "version1", "by title"),
        (Reference(title=PARSING, arxiv="2101.00001"), "2101.00001", "by arXiv id"),
        (Reference(title=PARSING, arxiv="2101.00002"), "nivre", "by title"),
        (Reference(title=PARSING, year=2007, identifiers=("doi:10.1/x",)), "known", "by DOI"),
        (Reference(identifiers=("doi:10.1/gone", "pmid:7")), "known", "by PubMed id"),
        (Reference(title=PARSING, identifiers=("doi:10.1/gone",)), "nivre", "by title"),
        (Reference(title=PARSING, identifiers=("acl:P1",)), "nivre", "by title"),
        # nothing else to compare: only long titles match
        (Reference(title="Parsing"), None, NONE),
        (Reference(title="A title without authors and year"), "plain", "by title"),
        (Reference(title="Uber Grosse, L'ETE", authors=("Muller",)), "accents", "by title"),
        # printed entries
        (Reference(text=f"Nivre, J. and M. Scholz (2004) {PARSING}. COLING."), "nivre", "by title"),
        (Reference(text=f"J. Nivre et al., “{PARSING},” in Proc., 2004."), "nivre", "by title"),
        (Reference(text="[3] Lee K: Deep nets: a survey. J Nets 3:14-15, 2014"), "deep2", "by title"),
        (Reference(text=f"A. Other. {PARSING}. 2004."), None, NONE),
        (Reference(text=f"J. Nivre. {PARSING}. 2014."), None, NONE),
        (Reference(text=f"J. Nivre. On {PARSING} of Trees. 2004."), None, NONE),
    ],
)
def test_references(catalogue: Catalogue, reference: Reference, paper: str | None, how: str) -> None:
    row, told = catalogue.resolve(reference)
    assert (None if row is None else catalogue.ids[row], told) == (paper, how)


@given(st.text(max_size=200), st.text(max_size=60), st.text(max_size=20), st.integers(0, 3000))
def test_any_reference_resolves_to_one_paper_or_none(
    catalogue: Catalogue, text: str, title: str, author: str, year: int
) -> None:
    row, _ = catalogue.resolve(Reference("", title, (author,), year, text))
    assert row is None or normalise_title(PAPERS[row].title) in normalise_title(title + text)
    assert len(surname(author).split()) <= 1 and 0 <= arxiv_year(author) < 2100
    assert normalise_title(normalise_title(text)) == normalise_title(text)


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (("Ann B. Lee", "Lee, Ann", "Lee"), "Lee"),
        (("van der Maaten, Laurens", "Laurens van der Maaten"), "Maaten"),
        (("John Smith Jr.", "Smith, Jr., John"), "Smith"),
        (("Penkov MA", "Penkov M.A.", "MA Penkov"), "Penkov"),
        (("LI, Y.", "Y. LI", "LI, YY", "YY LI", "Jun Y. LI", "LI Y"), "LI"),
        (("Łukasz Øster",), "Oster"),
        (("", " , "), ""),
    ],
)
def test_surnames(names: tuple[str, ...], expected: str) -> None:
    assert {surname(name) for name in names} == {expected}


def test_a_title_is_found_among_many(tmp_path: Path) -> None:
    catalogue = Catalogue(tmp_path / "papers.sqlite", None)
    for number in range(12_000):  # more than one batch
        catalogue.add(Metadata(f"p{number}", f"Paper number {number} of a long list", "A."))
        catalogue.add(Metadata(f"p{number}", "A later record of the same paper", "B.", 2000))
    assert catalogue.finish() == {"read": 12_000, "written": 12_000}
    for number in (0, 4_999, 5_000, 11_999):
        row, _ = catalogue.resolve(Reference(title=f"Paper number {number} of a long list", year=2000))
        assert row == number and catalogue.ids[row] == f"p{number}" and catalogue.years[row] == 2000
    assert next(catalogue.papers()) == Metadata("p0", "Paper number 0 of a long list", "A.", 2000)
    catalogue.close()
