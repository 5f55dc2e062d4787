"""Papers as BibTeX, RIS and CSL JSON."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from citerec.base.errors import InputError
from citerec.formats.bibliography.paper import LibraryPaper, clean_text, make_paper, terminal_text
from citerec.formats.bibliography.reading.bibtex import parse_bibtex
from citerec.formats.bibliography.references import bibtex, csl, merge_entries, ris
from citerec.formats.json_lines import raise_bad
from citerec.library.sources.readers import read_source

ENTRY = """@incollection{lee2003, title = {A {Chapter}}, author = {van der Lee, Ann B. and {Consortium}},
 booktitle = {A Book}, year = 2003, volume = 7, number = {2}, pages = {10--20}, publisher = {Press \\& Co},
 doi = {10.1000/a}, keywords = {one; two}, abstract = {We {\\"u}ber}, url = {https://x.org},
 eprint = {2101.00001}, archiveprefix = {arXiv}}"""


def parsed(entry: str) -> LibraryPaper:
    bad: list[InputError] = []
    [paper] = parse_bibtex(entry, "test", bad.append)
    return paper


def test_a_chapter() -> None:
    paper = parsed(ENTRY)
    assert ris([paper, paper]) == "\n".join(
        [
            "TY  - CHAP", "ID  - lee2003", "AU  - van der Lee, Ann B.", "AU  - Consortium", "PY  - 2003",
            "SP  - 10", "EP  - 20", "KW  - one", "KW  - two", "N1  - arXiv:2101.00001", "TI  - A Chapter",
            "T2  - A Book", "AB  - We über", "VL  - 7", "IS  - 2", "PB  - Press & Co", "DO  - 10.1000/a",
            "UR  - https://x.org", "ER  - ", "",
        ] * 2
    )  # fmt: skip
    [item] = json.loads(csl([paper]))
    assert item == {
        "id": "lee2003", "citation-key": "lee2003", "type": "chapter", "title": "A Chapter",
        "author": [
            {"family": "Lee", "given": "Ann B.", "non-dropping-particle": "van der"},
            {"literal": "Consortium"},
        ],
        "issued": {"date-parts": [[2003]]}, "container-title": "A Book", "volume": "7",
        "collection-number": "2",
        "page": "10-20", "publisher": "Press & Co", "DOI": "10.1000/a", "URL": "https://x.org",
        "abstract": "We über", "keyword": "one; two", "note": "arXiv:2101.00001",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("paper", "types"),
    [
        (LibraryPaper("a", title="x", venue="Nature"), ("JOUR", "article-journal")),
        (LibraryPaper("a", title="x", venue="Proceedings of X"), ("CONF", "paper-conference")),
        (LibraryPaper("a", title="x", arxiv="2101.00001"), ("GEN", "article")),
        (LibraryPaper("a", title="x"), ("GEN", "document")),
        (LibraryPaper("a", title="x", bibtex="@PhdThesis{a, title={x}}"), ("THES", "thesis")),
        (LibraryPaper("a", title="x", bibtex="@ book (a, title={x})"), ("BOOK", "book")),
        (LibraryPaper("a", title="x", bibtex="@strange{a, title={x}}"), ("GEN", "document")),
        (LibraryPaper("a", title="x", bibtex="@book{a, ={x"), ("BOOK", "book")),
    ],
)
def test_types(paper: LibraryPaper, types: tuple[str, str]) -> None:
    [item] = json.loads(csl([paper]))
    assert (ris([paper]).splitlines()[0], item["type"]) == (f"TY  - {types[0]}", types[1])


TEXT = st.text(st.characters(codec="utf-8", exclude_categories=["Co"]), max_size=40)


@pytest.mark.parametrize(("name", "write"), [("a.ris", ris), ("a.json", csl)])
@given(title=TEXT.filter(lambda text: any(map(str.isalnum, clean_text(text)))), abstract=TEXT)
def test_any_text_is_read_again(
    name: str, write: Callable[[list[LibraryPaper]], str], title: str, abstract: str
) -> None:
    paper = make_paper(title=title, abstract=abstract)
    with TemporaryDirectory() as folder:
        (path := Path(folder) / name).write_text(write([paper]), "utf-8")
        [again] = read_source(path, raise_bad)
    expected = make_paper(title=terminal_text(paper.title), abstract=terminal_text(paper.abstract))
    assert again[2:4] == expected[2:4]


def test_all_formats_write_what_merging_and_enriching_told() -> None:
    bare = parsed("@misc{k, title = {On {Peat}}, author = {Lee, Ann and others}}")
    full = parsed("""@article{p, title = {On peat}, author = {Lee, A. and Roe, Bo}, doi = {10.1000/p},
        journal = {Journal of Peat}, volume = {3}, number = {2}, pages = {1--9}, year = {2020}}""")
    merged = merge_entries(full._replace(key="k", title=bare.title, bibtex=bare.bibtex), [full])
    assert merge_entries(merged, [full]) == merged
    assert parsed(bibtex([merged]))[1:8] == (*bare[1:4], full.authors, 2020, full.venue, "10.1000/p")
    assert "@article{k,\n  title = {On {Peat}},\n  author = {Lee, A. and Roe, Bo}," in bibtex([merged])
    for written in (ris([merged]), csl([merged])):
        assert all(text in written for text in ("Journal of Peat", "Roe", "10.1000/p", "2020"))
        assert "others" not in written and "GEN" not in written and '"document"' not in written
    other = parsed("@inproceedings{k, title = {On peat}, booktitle = {Proc. of Peat}}")
    assert merge_entries(other, [full]) == other, "it appeared elsewhere"
    filled = parsed("@misc{k, title = {Whales}, eprint = {2001.00001}}")._replace(venue="Proc. of X")
    assert "@inproceedings" in bibtex([filled]) and "booktitle = {Proc. of X}" in bibtex([filled])
    assert "howpublished = {arXiv (Cornell)}" in bibtex([filled._replace(venue="arXiv (Cornell)")])
    book = parsed("@book{k, title = {Moss}}")._replace(venue="Press", year=2001, authors=("Ann Lee",))
    assert "author = {Lee, Ann},\n  year = {2001},\n  publisher = {Press}," in bibtex([book])


def test_entries_of_sources_can_be_read_by_other_programs() -> None:
    """A bare sign in an abstract stops biber and Typst, a space in a key BibTeX."""
    raw = "@misc{a,\n  abstract = {It is 5% of R&D for $5 in a_b},\n  url={http://a.b/c_%20}, title = {T}}"
    text = bibtex([LibraryPaper("p", "O'Neil 2010, {x}", "T", bibtex=raw)])
    assert text == (
        "@misc{ONeil2010x,\n  abstract = {It is 5\\% of R\\&D for \\$5 in a\\_b},\n"
        "  url={http://a.b/c_%20}, title = {T}}\n"
    )
    assert bibtex([LibraryPaper("doi:10.1/(A)1<2", "", "T")]).startswith("@misc{doi:10.1/A12,")
    assert bibtex([parsed("@misc{O'Neil(2010), title={T}}")]) == "@misc{O'Neil(2010), title={T}}\n", "its own"
