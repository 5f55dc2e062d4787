"""A new entry of a .bib file is written and placed like its neighbours."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from citerec.formats.bibliography.neighbours import new_entry
from citerec.formats.bibliography.paper import LibraryPaper
from citerec.formats.bibliography.reading.bibtex import parse_bibtex
from citerec.formats.drafts.language import Language
from citerec.formats.drafts.org import ORG
from citerec.formats.drafts.typst import TYPST

PAPER = LibraryPaper(
    "one", "kim2020", "Trees in Forests", "Trees and plants.", ("Ann Kim",), 2020, "J. Trees",
    bibtex="""@article{old, title = {Trees in {Forests}}, author = {Kim, Ann}, year = 2020,
  journal = {J. Trees}, file = {:/home/ann/kim.pdf:PDF}, abstract = {Trees and plants.},
  annote = {A bad paper}, keywords = {to read}, date-added = {2020-01-01}, bdsk-file-1 = {YnB},
  mendeley-groups = {mine}, localfile = {/home/ann/kim.pdf}, uri = {papers3://p/1}, intrahash = {1f},
  url = {file:///home/ann/kim.pdf}, OPTnote = {}, remark = {ask Bo}, month = jan, doi = {10.1000/x}}""",
)  # fmt: skip
PLAIN = """@article{kim2020,
  title = {Trees in {Forests}},
  author = {Kim, Ann},
  year = 2020,
  journal = {J. Trees},
  month = jan,
  doi = {10.1000/x},
}
"""
TABS = """@Article{lee,
\tauthor = "Lee, Bo",
\ttitle = "Graphs",
\tjournal = "J. Graphs",
\tyear = "2000"
}

@Book{moss,
\tauthor = "Moss, Pia",
\tyear = "2001"
}
"""
ALIGNED = """@ARTICLE{lee,
    year      = {2000},
    author    = {Lee, Bo},
    title     = {Graphs},
    keywords  = {graphs},
}
"""
ONE_LINE = "@misc{a, title={A}, year=2000}\n@misc{b, title={B}, year=2001}\n"
SORTED = "\n\n".join(f"@misc{{{key},\n  title={{T}}\n}}" for key in ("ada", "bo", "lee", "moss", "zoe"))


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("", PLAIN),
        ("% mine\n", f"% mine\n\n{PLAIN}"),
        ("% mine\r\n", f"% mine\n\n{PLAIN}".replace("\n", "\r\n")),
        (
            TABS,
            TABS
            + '\n@Article{kim2020,\n\tauthor = "Kim, Ann",\n\ttitle = "Trees in {Forests}",\n'
            + '\tjournal = "J. Trees",\n\tyear = "2020",\n\tmonth = jan,\n\tdoi = "10.1000/x"\n}\n',
        ),
        (
            ALIGNED,
            ALIGNED
            + "\n@ARTICLE{kim2020,\n    year      = {2020},\n    author    = {Kim, Ann},\n"
            + "    title     = {Trees in {Forests}},\n    keywords  = {to read},\n"
            + "    journal   = {J. Trees},\n    month     = jan,\n    doi       = {10.1000/x},\n}\n",
        ),
        (
            ONE_LINE,
            ONE_LINE + "@article{kim2020, title={Trees in {Forests}}, author={Kim, Ann}, year=2020, "
            "journal={J. Trees}, month=jan, doi={10.1000/x}}\n",
        ),
        (
            SORTED,
            SORTED.replace(
                "\n\n@misc{lee",
                "\n\n@article{kim2020,\n  title={Trees in {Forests}},\n  author={Kim, Ann},\n  year=2020,\n"
                "  journal={J. Trees},\n  month=jan,\n  doi={10.1000/x}\n}\n\n@misc{lee",
            ),
        ),
    ],
)
def test_an_entry_is_written_like_its_neighbours(text: str, written: str) -> None:
    place, entry = new_entry(text, PAPER, "kim2020")
    assert f"{text[:place]}{entry}{text[place:]}" == written


def test_an_abstract_if_asked() -> None:
    assert "abstract = {Trees and plants.}" in new_entry("", PAPER, "kim2020", abstract=True)[1]
    without = PAPER._replace(bibtex="")
    assert "abstract = {Trees and plants.}" in new_entry("", without, "kim2020", abstract=True)[1]
    assert "abstract" not in new_entry("", without, "kim2020")[1]


@given(
    st.lists(
        st.sampled_from(
            [TABS, ALIGNED, ONE_LINE, SORTED, "% x\n", "@string{a = {b}}", "@misc{ann,\n a = 1}", ""]
        ),
        max_size=3,
    ),
    st.lists(st.sampled_from(["aa", "bz", "kim", "zz"]), unique=True, min_size=2),
    st.data(),
)
def test_entries_beside_those_that_are_not_saved(
    parts: list[str], keys: list[str], data: st.DataObject
) -> None:
    """They are made from the file as it was, and inserted in a text that has the others, or some of them."""
    saved = text = "\n".join(parts)
    inserted: list[str] = []
    for number, key in enumerate(keys):
        place, entry = new_entry(saved, PAPER, key, beside=keys[0] if number else "")
        if data.draw(st.booleans(), label=f"{key} is there"):
            text = f"{text[:place]}{entry}{text[place:]}"
            inserted.append(entry.strip())
    assert all(entry in text for entry in inserted)
    if inserted:
        result = {paper.key: paper for paper in parse_bibtex(text, "x", lambda _: None)}
        for entry in inserted:
            new = result[entry[entry.index("{") + 1 : entry.index(",")]]
            fields = new.title, new.year, new.doi, new.venue
            assert fields == ("Trees in Forests", 2020, "10.1000/x", "J. Trees")
    for line in saved.splitlines():
        assert line in text.splitlines()


def written(bibtex: str, text: str = "", language: Language | None = None, abstract: str = "") -> str:
    """Return the entry of a paper, without line ends."""
    paper = LibraryPaper("one", "k", "T", abstract, bibtex=bibtex)
    return " ".join(new_entry(text, paper, "k", True, language)[1].split())


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("R & D at 5% of C# in a_b^c for $5", r"R \& D at 5\% of C\# in a\_b\textasciicircum{}c for \$5"),
        (r"R \& D at 5\%, $x_1^2$, \(a_b\)", r"R \& D at 5\%, $x_1^2$, \(a_b\)"),
        (r"\url{http://a.b/c%20d_e#f} and \cite{a_b}", r"\url{http://a.b/c%20d_e#f} and \cite{a_b}"),
        (r"na{\"\i}ve Garc{\'{\i}}a, \'\i, D{\i}lek", r"na{\"i}ve Garc{\'i}a, \'i, D{\i}lek"),
    ],
)
def test_values_can_be_typeset(value: str, expected: str) -> None:
    """TeX stops at bare signs, biber and pandoc write the accent apart from an i without a dot."""
    entry = f"@misc{{old, title = {{{value}}}, abstract = {{{value}}}, url = {{http://a.b/%20_#&}}}}"
    new = written(entry, abstract="x")
    assert f"title = {{{expected}}}" in new and f"abstract = {{{expected}}}" in new
    assert "url = {http://a.b/%20_#&}" in new


def test_an_abstract_of_another_source_is_written_as_latex() -> None:
    new = written("@misc{old, title = {T}}", abstract="It is {sharp at 5% & $1.")
    assert r"abstract = {It is \textbraceleft{}sharp at 5\% \& \$1.}" in new


def test_journals_by_macros() -> None:
    entry = r"@article{old, title = {T}, journal = {\apj}}"
    assert "journal = {Astrophysical Journal}" in written(entry)
    assert r"journal = {\apj}" in written(entry, "@misc{a,\n  journal = {\\apj},\n}\n"), (
        "as the file has them"
    )


BIBLATEX = """@thesis{old, title = {T}, date = {2004-07~}, institution = {U}, type = {MSc master}}
@article{old, title = {T}, date = {1998/2001}, journaltitle = {J. Trees}, eprinttype = {arxiv}}
@report{old, title = {T}, date = {2021-03-04/2021-05-06}, location = {Oslo}}
@book{old, title = {T}, date = {2001/}, year = {2002}}
@thesis{old, title = {T}, type = {phdthesis}, date = {2001/}}
@misc{old, title = {T}, date = 2020}"""
BIBTEX = """@mastersthesis{k, title = {T}, year = {2004}, month = jul, school = {U}, type = {MSc master}, }
@article{k, title = {T}, year = {1998--2001}, journal = {J. Trees}, archiveprefix = {arxiv}, }
@techreport{k, title = {T}, year = {2021}, address = {Oslo}, }
@book{k, title = {T}, year = {2002}, }
@phdthesis{k, title = {T}, year = {2001--}, }
@misc{k, title = {T}, year = {2020}, }"""


@pytest.mark.parametrize(
    ("entry", "expected"), [*zip(BIBLATEX.splitlines(), BIBTEX.splitlines(), strict=True)]
)
def test_biblatex_in_a_file_of_bibtex(entry: str, expected: str) -> None:
    """BibTeX's styles have neither year nor journal of such entries."""
    assert written(entry) == expected
    assert "date = " in written(entry, "@misc{a,\n  date = {2000},\n}\n"), "a file of biblatex"


def test_quotes_around_what_they_can_hold() -> None:
    """In quotes, Emacs ends a value at others, and pandoc 2 begins a comment at a percent sign."""
    entry = '@misc{old, title = "A {"}b{"}", note = "C", url = {http://a.b/%20}}'
    kept = written(entry, TABS)
    assert 'title = {A {"}b{"}}' in kept and 'note = "C"' in kept and "url = {http://a.b/%20}" in kept
    assert "note = {C}" in written(entry)
    assert 'month = "3~" # mar' in written('@misc{old, title = {T}, month = "3~" # mar}')


def test_entries_that_typst_and_org_read() -> None:
    years = {"in press": "", "c. 1850": "year = 1850", "2001--2003": "year = {2001--2003}"}
    for year, expected in years.items():
        new = written(f"@misc{{old, title = {{T}}, year = {{{year}}}}}", language=TYPST)
        assert expected in new if expected else "year" not in new
    new = written("@phdthesis{old, title = {T}, school = {Uni}}", language=ORG)
    assert new.startswith("@thesis{k") and "type = {PhD thesis}" in new
    assert written("@techreport{old, title = {T}}", language=ORG).startswith("@report{k")
