"""A new entry of a .bib file is written and placed like its neighbours."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from citerec.library.export.neighbours import new_entry
from citerec.library.papers import LibraryPaper
from citerec.library.sources.bib_files import parse_bibtex

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
    st.lists(st.sampled_from([TABS, ALIGNED, ONE_LINE, SORTED, "% x\n", "@string{a = {b}}\n", "@misc{q,"]))
)
def test_the_other_entries_stay(parts: list[str]) -> None:
    text = "\n".join(parts)
    place, entry = new_entry(text, PAPER, "kim2020")
    assert f"{text[:place]}{text[place:]}" == text and "{kim2020," in entry
    if not any("@misc{q," in part for part in parts):
        papers = [*parse_bibtex(f"{text[:place]}{entry}{text[place:]}", "x", lambda _: None)]
        (new,) = (paper for paper in papers if paper.key == "kim2020")
        assert (new.title, new.year, new.doi, new.venue) == (
            "Trees in Forests",
            2020,
            "10.1000/x",
            "J. Trees",
        )
