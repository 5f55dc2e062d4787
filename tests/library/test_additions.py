"""A few papers added to a library: its files grow, and it answers like one that was written anew."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

import numpy as np
import pytest

from citerec.base.errors import InputError
from citerec.datasets.columns import later_rows
from citerec.datasets.generate import generate_corpus
from citerec.formats.bibliography.paper import LibraryPaper
from citerec.library.ask.recommender import Recommender
from citerec.library.commands.change import build, verify
from citerec.library.papers import writer
from citerec.library.papers.library import Library
from citerec.library.papers.storage import METADATA
from citerec.library.settings import BuildSettings, VerifySettings
from citerec.tests.library.conftest import papers_of

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


@pytest.fixture(scope="module", params=["static, with contexts", "bm25"])
def base(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A library with room for three more papers."""
    source = tmp_path_factory.mktemp("base") / "source"
    generate_corpus(150, 300, source, seed=0, workers=1)
    path, file = source.parent / "mine", str(source / "papers.json")
    model, contexts = ("bm25", "") if request.param == "bm25" else ("static", str(source))
    build(BuildSettings(library=str(path), source=(file,), model=model, contexts=contexts))
    return path


@pytest.fixture
def path(base: Path, tmp_path: Path) -> Path:
    """A copy of the library."""
    return Path(shutil.copytree(base, tmp_path / "mine"))


def answers(recommender: Recommender, questions: Sequence[str] = QUESTIONS) -> list:
    return [
        [(paper.id, round(paper.score, 4)) for paper in recommender.recommend(question, k=8)]
        for question in questions
    ]


def files(path: Path) -> dict[str, int]:
    folder = Library.open(path).folder
    return {str(file.relative_to(folder)): file.stat().st_ino for file in folder.rglob("*") if file.is_file()}


@pytest.mark.slow
def test_additions_share_files_and_answer_like_a_library_written_anew(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, known = files(path), papers_of(Library.open(path))
    former = Library.open(path)  # another process that has it open
    anew = Path(shutil.copytree(path, path.parent / "anew" / "mine"))
    grown, written = Recommender.open(path), Recommender.open(anew)
    for paper in ADDED[:3]:
        grown.add([paper])
        with monkeypatch.context() as patch:
            patch.setattr(writer, "_room", lambda _: 0)
            written.add([paper])
        assert answers(grown) == answers(written)
        assert answers(Recommender.open(path)) == answers(grown)
    after = files(path)
    shared = {name for name in after if after[name] == before.get(name)}
    largest = {"corpus/papers.arrow", "corpus/abstract_tokens.values.npy", METADATA, "identities.npy"}
    assert shared >= largest and any(name.endswith("data.csc.index.npy") for name in shared)
    library = Library.open(path)
    library.verify()
    assert papers_of(library) == [*known, *ADDED[:3]] == papers_of(Library.open(anew))
    assert library.identities.tolist() == Library.open(anew).identities.tolist()
    surnames = [
        [of.field_names[code] for code in of.fields.take(np.arange(len(known), len(known) + 3)).values]
        for of in (library.corpus, Library.open(anew).corpus)
    ]
    assert surnames == [["Lee", "Wu0", "Lee", "Wu1", "Lee", "Wu2"]] * 2
    assert papers_of(former) == known and former.corpus.path.exists() is False
    assert grown.search("zyzzyva2")[0] == ADDED[2]
    assert answers(grown)[1][0][0] == "key:new1"
    # Removed and completed papers: all is written anew, into one file each.
    for recommender in (grown, written):
        recommender.remove(["key:new0", known[5].id])
        recommender.add([ADDED[1]._replace(abstract="", url="https://a.org"), ADDED[3]])
    assert answers(grown) == answers(written)
    assert papers_of(grown.library) == papers_of(written.library)
    assert not later_rows(grown.library.folder / METADATA).exists()
    verify(VerifySettings(library=str(path)))


def test_large_additions_are_written_anew(path: Path) -> None:
    recommender, numbers = Recommender.open(path), iter(range(10**6))

    def more(count: int) -> list[LibraryPaper]:
        return [
            LibraryPaper(f"key:more{n}", f"more{n}", f"A larger study of moths {n}")
            for n in islice(numbers, count)
        ]

    papers = len(recommender.library)
    recommender.add(more(room := papers // 50))
    assert later_rows(recommender.library.folder / METADATA).exists()
    recommender.add(more(1))  # two in a hundred are there already
    assert not later_rows(recommender.library.folder / METADATA).exists()
    recommender.add(more(room + 5))
    assert not later_rows(recommender.library.folder / METADATA).exists()
    assert len(recommender.library) == papers + 2 * room + 6
    assert papers_of(recommender.library)[-1].title == f"A larger study of moths {2 * room + 5}"


@pytest.mark.slow
def test_copies_that_share_files_do_not_disturb_each_other(path: Path) -> None:
    """As in a backup of hard links, from which one goes on."""
    backup = path.parent / "backup" / "mine"
    shutil.copytree(path, backup, copy_function=os.link)
    one, two = Recommender.open(path), Recommender.open(backup)
    one.add(ADDED[:1])
    two.add(ADDED[1:2])
    for recommender, paper in ((one, ADDED[0]), (two, ADDED[1])):
        verify(VerifySettings(library=str(recommender.library.path)))
        assert papers_of(recommender.library)[-1] == paper
        assert recommender.search("zyzzyva0 zyzzyva1")[0] == paper
    assert answers(one) == answers(Recommender.open(path)) != answers(two)


def test_files_behind_symbolic_links_do_not_grow(path: Path) -> None:
    """As in the cache of the hub."""
    library, cached = path.parent / "linked" / "mine", list(path.rglob("*"))
    shutil.copytree(path, library, copy_function=os.symlink)
    before = {file: file.read_bytes() for file in cached if file.is_file()}
    recommender = Recommender.open(library)
    recommender.add(ADDED[:1])
    assert papers_of(recommender.library)[-1] == ADDED[0]
    verify(VerifySettings(library=str(library)))
    assert {file: file.read_bytes() for file in before} == before


def test_damage_to_papers_added_earlier_is_seen(path: Path) -> None:
    recommender = Recommender.open(path)
    recommender.add(ADDED[:1])
    file = recommender.library.folder / "corpus/abstract_tokens.values.npy"
    content = bytearray(file.read_bytes())
    content[-2] ^= 1
    file.write_bytes(content)
    with pytest.raises(InputError, match=r"abstract_tokens.values.npy: damaged"):
        recommender.add(ADDED[1:2])
    assert np.fromfile(file, np.uint8).tobytes() == bytes(content)
