"""Papers added to a library and removed: it answers like one that was built with what it has."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

from citerec.datasets.generate import generate_corpus
from citerec.formats.bibliography.paper import LibraryPaper
from citerec.library.ask.recommender import Recommender
from citerec.library.commands.change import build, verify
from citerec.library.papers.library import Library
from citerec.library.settings import BuildSettings, VerifySettings
from citerec.tests.library.conftest import change, papers_of

ADDED = [
    LibraryPaper(
        f"key:new{row}", f"new{row}", f"Zyzzyva{row}: beetles for parsing", f"The zyzzyva{row} parses.",
        ("Ann Lee", f"Bo Wu{row}"), 2020 + row, "ICML", doi=f"10.1/{row}",
    )
    for row in range(4)
]  # fmt: skip
QUESTIONS = (
    "Parsing [CITE] is usual.", "The zyzzyva1 eats [CITE].", "beetles [CITE]", "Embeddings [CITE]",
)  # fmt: skip


@pytest.fixture(scope="module", params=["static", "bm25"])
def base(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A library of 150 papers."""
    source = tmp_path_factory.mktemp("base") / "source"
    generate_corpus(150, 300, source, seed=0)
    path, file = source.parent / "mine", str(source / "papers.json")
    build(BuildSettings(library=str(path), source=(file,), model=request.param))
    return path


@pytest.fixture
def path(base: Path, tmp_path: Path) -> Path:
    """A copy of the library, beside another."""
    shutil.copytree(base, tmp_path / "copy")
    return Path(shutil.copytree(base, tmp_path / "mine"))


def answers(recommender: Recommender, questions: Sequence[str] = QUESTIONS) -> list:
    return [
        [(paper.id, round(paper.score, 4)) for paper in recommender.recommend(question, k=8)]
        for question in questions
    ]


def test_a_library_that_was_changed_answers_like_one_that_is_built_so(path: Path) -> None:
    known, former = papers_of(Library.open(path)), Library.open(path)
    grown = Recommender.open(path)
    for paper in ADDED[:3]:
        change(grown, [paper])
        assert answers(Recommender.open(path)) == answers(grown)
    assert papers_of(grown.library) == [*known, *ADDED[:3]]
    assert papers_of(former) == known, "another process that has it open"
    assert grown.search("zyzzyva2")[0] == ADDED[2] and answers(grown)[1][0][0] == "key:new1"
    change(grown, removed=["key:new0", "key:new2"])
    change(grown, [ADDED[1]._replace(abstract="", url="https://a.org"), ADDED[3]])
    one_go = path.parent / "anew" / "mine"
    anew = Recommender.open(shutil.copytree(path.parent / "copy", one_go))
    change(anew, [ADDED[1]._replace(url="https://a.org"), ADDED[3]])
    assert sorted(papers_of(grown.library)) == sorted(papers_of(anew.library))
    assert answers(grown) == answers(anew)
    verify(VerifySettings(library=str(path)))


def test_files_behind_symbolic_links_do_not_change(path: Path) -> None:
    """As in the cache of the hub."""
    library, cached = path.parent / "linked" / "mine", list(path.rglob("*"))
    shutil.copytree(path, library, copy_function=os.symlink)
    before = {file: file.read_bytes() for file in cached if file.is_file()}
    recommender = Recommender.open(library)
    change(recommender, ADDED[:1])
    assert papers_of(recommender.library)[-1] == ADDED[0]
    verify(VerifySettings(library=str(library)))
    assert {file: file.read_bytes() for file in before} == before
