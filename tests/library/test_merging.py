"""Merging records of the same paper, compared with a plain loop over all pairs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from citerec.formats.bibliography.paper import LibraryPaper, merge_records
from citerec.formats.same_work import Identity, identity
from citerec.library.papers.library import Library
from citerec.library.papers.merging import Deduplicator, find_leaders, identities_of

TITLE = "A long title of more than twenty letters"


def paper(id: str = "x", title: str = TITLE, **known: object) -> LibraryPaper:
    return LibraryPaper(id, title=title, **known)  # type: ignore[arg-type]


def entry(fields: str, year: int = 0, kind: str = "article", **known: object) -> LibraryPaper:
    return paper("title:1", **known)._replace(year=year, bibtex=f"@{kind}{{k, {fields}}}")  # type: ignore[arg-type]


def with_field(name: str, *values: str, kind: str = "book") -> list[LibraryPaper]:
    return [entry(f"{name} = {{{value}}}", 2010, kind) for value in values]


@contextmanager
def finished(papers: list[LibraryPaper], *given: Any, **options: Any) -> Iterator[Deduplicator]:
    """A Deduplicator of these papers."""
    with Deduplicator(*given, **options) as records:
        for one in papers:
            records.add(one)
        records.finish()
        yield records


@pytest.mark.parametrize(
    ("papers", "leaders"),
    [
        (
            [paper("a", doi="x"), paper("b", f"{TITLE}: on", doi="x", arxiv="1"), paper("c", arxiv="1")],
            [0] * 3,
        ),
        ([paper(year=2010, authors=("Ann Lee",)), paper("y", TITLE.upper(), authors=("Lee, A.",))], [0, 0]),
        ([paper(year=2010), paper("y", TITLE + "!", year=2010), paper("z", year=2011)], [0, 0, 2]),
        (
            [paper(year=2010, arxiv="1"), paper("y", year=2012, venue="ICML"), paper("z", year=2015)],
            [0, 0, 2],
        ),
        ([paper(year=2010, arxiv="1"), paper("y", year=2013, venue="ICML")], [0, 1]),
        (
            [entry("pages = {1--9}", 2010), entry("pages = 1-9", 2011), entry("pages = {2--9}", 2010)],
            [0, 0, 2],
        ),
        ([entry("pages=3, volume=4, number=2"), entry("pages=3, volume=4, number=June")], [0, 0]),
        ([entry(f"pages=5, volume=4, number={one}") for one in (1, 2, 1)], [0, 1, 0]),
        (
            [entry(f"month={one}") for one in ("mar", "{April}", "3")] + [entry("volume=4, month=may")],
            [0, 1, 0, 0],
        ),
        ([entry(f"date={{{one}}}") for one in ("2009-03-01", "2009-03-08", "2009-03")], [0, 1, 0]),
        (
            [entry(f"note={{R package version {one}}}", 2010, "manual") for one in ("1.0", "1.1", "1.0")],
            [0, 1, 0],
        ),
        ([paper("a", arxiv="1", doi="10.48550/arxiv.1"), paper("b", venue="ICML", doi="10.1/x")], [0, 0]),
        ([entry("volume = 4, number = {2}"), entry("volume=4, number=3"), entry("volume = {4}")], [0, 1, 0]),
        ([entry("pages={1}", 2010), entry("note={x}", 2010), entry("volume={7}", 2010)], [0, 0, 0]),
        ([entry("", 2010, "phdthesis"), entry("", 2010), entry("", 2010, "inproceedings")], [0, 1, 1]),
        ([entry("", 2010, "misc"), entry("", 2010, "book"), entry("", 2010, "report")], [0, 0, 2]),
        ([entry(f"version = {{{one}}}", 2010, "software") for one in ("1.0", "1.1", "v1.0")], [0, 1, 0]),
        ([entry("version = 2", 2010, "online"), entry("number = {7}", 2010, "article")], [0, 0]),
        ([paper("a", "Tides at noon", doi="x"), paper("b", "Salt and mud", doi="x")], [0, 1]),
        ([paper("doi:x", "Tides at noon", doi="x"), paper("doi:x", "Salt and mud", doi="x")], [0, 1]),
        (
            [
                paper("a", "Part I of tides", doi="x", authors=("A",)),
                paper("b", "Part II of tides", doi="x", authors=("B",)),
            ],
            [0, 1],
        ),
        ([paper("a", doi="x", year=2010), paper("b", doi="x", year=2011)], [0, 0]),
        ([entry("pages={1}", 2010, doi="x"), entry("pages={2}", 2010, doi="x")], [0, 0]),
        ([entry("pages={1}", 2010, doi="x"), entry("pages={2}", 2011, doi="x")], [0, 1]),
        ([entry("", 2010, doi="x"), entry("", 2011, "book", doi="x")], [0, 1]),
        ([paper("key:a", key="a", year=2010), paper("key:a", key="a", year=2015)], [0, 0]),
        ([paper("title:1", year=2010), paper("title:1", year=2015)], [0, 1]),
        ([paper(authors=("Ann Lee",)), paper("y", authors=("Bo Diaz",))], [0, 1]),
        ([paper("arxiv:1", ""), paper("arxiv:1", "Title of it")], [0, 0]),
        ([paper("a", doi="10.1/x"), paper("b", doi="10.1/y")], [0, 1]),
        ([paper("a", arxiv="1"), paper("b", arxiv="2")], [0, 1]),
        ([paper("a", "Editorial"), paper("b", "Editorial")], [0, 1]),
        ([paper("a", "Editorial", year=2001), paper("b", "Editorial", year=2001)], [0, 1]),
        ([paper("a", "Adam", year=2001), paper("b", "Adam", year=2001)], [0, 0]),
        ([paper("a", doi="10.1/x"), paper("b"), paper("c", doi="10.1/y")], [0, 0, 2]),
        ([entry("", year, key="k", doi=doi) for year, doi in
          ((2018, "a"), (2021, "b"), (2021, ""), (2018, "b"))], [0, 1, 0, 0]),
        ([entry(f"volume={volume}", 2019, key="k", authors=(name,))
          for volume, name in ((3, "Ann Lee"), (3, "Cy Roe"), (4, "Bo Kim"))], [0, 0, 2]),
        ([entry("", year, key="k", title=title)
          for year, title in ((2019, "Editorial"), (2020, "Editorial"), (0, "Editorial"), (2019, "Preface"))],
         [0, 1, 0, 3]),
        ([entry("", 2019, key="k", arxiv="1"), entry("", 2021, key="k", venue="Peat", doi="a")], [0, 0]),
        ([paper("s2:1", year=2018, doi="a"), paper("s2:1", "Preface", year=2021, doi="b")], [0, 0]),
        (with_field("volume", "Vol. 1", "Vol. 2", "vol.1", "01", "II", "Vol. II"), [0, 1, 0, 0, 4, 4]),
        (with_field("number", "No. 1", "No. 2", "n° 2", "2--3", "Suppl. 1"), [0, 1, 1, 1, 4]),
        (with_field("pages", "pp. 3--4", "pp. 7--8", "3-4", "p. 7", "iv-v", "iv"), [0, 1, 0, 1, 4, 4]),
        (with_field("number", "{IEEE} Std 802.1Q", "IEEE Std 802.1AB", "IEEE Std 802.1Q", "98-12", "98-13",
                    "US 7,123,456", "US 7,123,457", kind="standard"), [0, 1, 0, 3, 4, 5, 6]),
        (with_field("edition", "2", "4", "Second", "4th ed.") + with_field("number", "7"), [0, 1, 0, 1, 0]),
        ([paper(name, authors=(name,), year=2010) for name in
          ("Wei Wang", "Wang, Jun", "Wang, W.", "Jun Wang", "Wang", "Wéi X. Wang", "Élie Lee", "Lee, E.",
           "O. Lee", "K. Müller, Jr.", "Karl Müller", "LI, Y.", "Li, Yun")],
         [0, 1, 0, 1, 0, 0, 6, 6, 8, 9, 9, 11, 11]),
        ([paper(name, authors=(name,), year=2010) for name in
          ("Jo O'Neil", "Jo O\u2019Neil", "Jo Ek-Oh", "Jo Ek\u2010Oh", "Jo Ek\u2011Oh")], [0, 0, 2, 2, 2]),
        ([entry("pages=3", authors=("Wei Wang",)), entry("pages=3", authors=("Jun Wang",))], [0, 0]),
    ],
)  # fmt: skip
def test_records_match_by_id_doi_arxiv_id_or_title_if_what_both_have_agrees(
    papers: list[LibraryPaper], leaders: list[int]
) -> None:
    assert find_leaders(identities_of([]), identities_of(papers)).tolist() == leaders


def slow_leaders(papers: list[LibraryPaper]) -> list[int]:
    """The oracle: compare each record with all earlier papers, one kind of key after the other."""
    leaders: list[int] = []
    known: dict[int, Identity] = {}
    members: list[list[Identity]] = []
    for row, one in enumerate(papers):
        own = identity(one)
        found = None
        for column in range(3):
            for leader, so_far in known.items():
                shared = own[column] and any(record[column] == own[column] for record in members[leader])
                agrees = own.agrees_besides_id if column else own.agrees_besides_name
                if found is None and shared and agrees(so_far):
                    found = leader
        for leader, so_far in known.items():
            same = any(record.title == own.title for record in members[leader])
            if found is None and own.title and same and own.agrees(so_far):
                found = leader
        members.append([])
        if found is None:
            known[row] = own
            found = row
        else:
            known[found] = known[found].joined(own)
        members[found].append(own)
        leaders.append(found)
    return leaders


records = st.builds(
    paper,
    st.sampled_from(["p1", "p2", "arxiv:1", "doi:2"]),
    st.sampled_from([TITLE, "Other title", ""]),
    doi=st.sampled_from(["", "10.1/x", "10.1/y"]),
    arxiv=st.sampled_from(["", "2001.00001", "2001.00002"]),
    year=st.sampled_from([0, 2000, 2001, 2005]),
    authors=st.sampled_from([(), ("Ann Lee",), ("Cy Lee",), ("Bo Diaz",)]),
    venue=st.sampled_from(["", "Nature", "arXiv"]),
    bibtex=st.sampled_from(["", "@book{k, pages={3}}", "@article{k, pages={3}}", "@misc{k, volume={4}}"]),
)


@given(st.lists(records, max_size=12))
def test_leaders_equal_those_of_a_plain_loop(papers: list[LibraryPaper]) -> None:
    assert find_leaders(identities_of([]), identities_of(papers)).tolist() == slow_leaders(papers)


@given(st.lists(records, max_size=8), st.lists(records, max_size=8))
def test_leaders_among_papers_of_a_library_equal_those_of_a_plain_loop(
    known: list[LibraryPaper], added: list[LibraryPaper]
) -> None:
    """The papers of a library are known to be distinct."""
    known = [known[row] for row in sorted(set(slow_leaders(known)))]
    known = [known[row] for row in sorted(set(slow_leaders(known)))]
    if slow_leaders(known) != list(range(len(known))):
        return
    found = find_leaders(identities_of(known), identities_of(added))
    assert found.tolist() == slow_leaders([*known, *added])


def test_merged_records_keep_the_fuller_fields() -> None:
    one = LibraryPaper("a", "k1", "T", "", ("Ann Lee",), 0, "", "10.1/x", collections=("A",), tags=("t",))
    two = LibraryPaper(
        "b", "k2", "Title", "Abstract", ("A. Lee", "B. Diaz"), 2001, "ICML", collections=("B", "A")
    )
    assert merge_records([one, two]) == LibraryPaper(
        "a", "k1", "T", "Abstract", ("A. Lee", "B. Diaz"), 2001, "ICML", "10.1/x",
        collections=("A", "B"), tags=("t",), aliases=("b", "k2"),
    )  # fmt: skip
    assert merge_records([merge_records([one, two]), two]) == merge_records([one, two])


def test_a_published_version_comes_first_and_keeps_the_ids_of_its_preprint() -> None:
    preprint = paper(
        "doi:10.1101/1", key="lee20", year=2020, venue="bioRxiv", doi="10.1101/1", arxiv="2001.1"
    )
    published = paper(
        "doi:10.1/a", key="lee21", year=2021, venue="Nature", doi="10.1/a", bibtex="@article{lee21}"
    )
    merged = merge_records([preprint, published])
    assert merged == published._replace(id=preprint.id, arxiv="2001.1", aliases=("doi:10.1/a", "lee20"))
    assert merge_records([published, preprint]) == merged._replace(
        id=published.id, aliases=("doi:10.1101/1", "lee20")
    )


def test_papers_keep_their_order_and_get_unique_ids(tmp_path: Path) -> None:
    ones = [paper("a", "First"), paper("b"), paper("a", "Third"), paper("c"), paper("a", "Fourth")]
    with finished(ones, tmp_path) as records:
        found = list(records.papers())
        assert [one.id for one in found] == ["a", "b", "a-2", "a-3"] and found == list(records.papers())
        assert (records.count, records.duplicates, found[1].aliases) == (4, 1, ("c",))
    assert not list(tmp_path.iterdir())


def test_separate_records_are_merged_with_none(tmp_path: Path) -> None:
    ones = [paper("a", key="k1"), paper("b", key="k2"), paper("c", key="k3"), paper("b", key="k2")]
    for separate, left in ((), ["a"]), (["k2"], ["a", "b"]), (["c"], ["a", "c"]), (["all"], ["a", "b", "c"]):
        with finished(ones, tmp_path, separate=separate) as records:
            assert [one.id for one in records.papers()] == left
            merged = [(record.key, into.key) for record, into in records.merged()]
            assert len(merged) == records.duplicates == 4 - len(left)
    assert merged == [("k2", "k2")]
    library = Library.create(tmp_path / "mine", ones[:1], model="bm25")
    with finished(ones, tmp_path, library.mapped, separate=["k1"]) as records:
        assert [one.id for one in records.papers()] == ["b"], "k1 is there, and others are not merged into it"
    ones = [entry(f"note = {number}", key="k") for number in (1, 2, 3)]
    library = Library.create(tmp_path / "two", [ones[0], ones[1]._replace(id="k-2")], model="bm25")
    for separate in (["k"], ["all"]):
        with finished(ones, tmp_path, library.mapped, separate=separate) as records:
            assert records.duplicates == 2, "the third has the same key, but is another record"


def test_what_was_filled_in_merges_records_in_each_update(tmp_path: Path) -> None:
    own = paper("he", "Deep residual learning", year=2016)
    other = paper("she", "Deep residual learning for images", year=2016, doi="10.1/x")
    former = Library.create(tmp_path / "0", [own._replace(doi="10.1/x", filled=("doi:openalex",))])
    for place in "12":
        with finished([own, other], tmp_path, former=former.mapped) as records:
            assert records.count == 1
            former = Library.create(tmp_path / place, records.papers())


def test_papers_are_merged_into_a_library(tmp_path: Path) -> None:
    library = Library.create(tmp_path / "mine", [paper("a"), paper("b", "Second"), paper("a-2", "Third")])
    added = [paper("c", abstract="Fuller."), paper("b", "Second"), paper("a", "Another")]
    with finished(added, tmp_path, library.mapped) as records:
        found = list(records.papers())
    assert records.replaced.tolist() == [0] and records.count == 2
    assert found == [paper("a", abstract="Fuller.", aliases=("c",)), paper("a-3", "Another")]
