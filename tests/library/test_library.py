"""The folder of a library: creating, changing, killing writers, damage, other versions."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import sys
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock, Timeout

from citerec.base.checksums import CHECKED, CHECKSUMS, write_checksums
from citerec.base.errors import InputError
from citerec.formats.bibliography.paper import LibraryPaper
from citerec.library.ask.recommender import Recommender
from citerec.library.commands.change import build, verify
from citerec.library.papers import building
from citerec.library.papers.folder import ReadFile
from citerec.library.papers.library import Library
from citerec.library.settings import BuildSettings, VerifySettings
from citerec.rerank.ranker.author_names import has_authors
from citerec.retrieval.lexical.bm25 import BM25
from citerec.tests.forked import exit_code, in_child
from citerec.tests.library.conftest import papers_of

SHELF = [
    LibraryPaper(
        id=f"doi:10.1/{row}", key=f"key{row}", title=f"Title of paper {row}",
        abstract=f"It is about word{row} and others." if row % 3 else "",
        authors=("Ann Lee", f"Bo {row}")[: row % 3], year=2000 + row if row % 2 else 0, venue="ICML",
        doi=f"10.1/{row}", collections=("odd",) if row % 2 else (), bibtex=f"@article{{key{row}}}",
        aliases=(f"old{row}",),
    )
    for row in range(9)
]  # fmt: skip
NEW = LibraryPaper("key:new", "new", "A new title", "Its abstract.")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    Library.create(tmp_path / "mine", SHELF, model="bm25")
    return tmp_path / "mine"


def change(path: Path, drop: int = 4) -> Library:
    """Write a generation without paper `drop` and with NEW."""
    with Library.edit(path) as library:
        return library.change([drop], [NEW])


def test_papers_survive_a_round_trip(path: Path) -> None:
    library = Library.open(path)
    assert papers_of(library) == SHELF
    assert (library.manifest.generation, library.manifest.model, len(library)) == (1, "bm25", 9)
    corpus = library.corpus
    assert corpus.is_candidate.all() and list(corpus.titles) == [paper.title for paper in SHELF]
    assert [library.row(name) for name in ("doi:10.1/3", "key3", "old3", "nothing")] == [3, 3, 3, None]
    assert library.rows(["key5", "old1", "key5"]).tolist() == [1, 5]
    with pytest.raises(InputError, match="id=nothing: no paper of the library has this id or key"):
        library.rows(["nothing"])
    with pytest.raises(IndexError):
        library.paper(9)


SCRIPTS = {
    "基于BERT模型的文本分类": ("BERT", "文本分类", "模型"),
    "COVID-19疫情下的在线教学": ("在线教学", "疫情 COVID"),
    "海藻の森林における魚類の多様性": ("魚類", "海藻の森林"),
    "ป่าสาหร่ายทะเลชายฝั่งเย็น": ("สาหร่าย", "ชายฝั่ง"),
    "ការស្រាវជ្រាវព្រៃសមុទ្រ": ("ព្រៃសមុទ្រ",),
    "Birds of inland lakes": ("lakes",),
}


@pytest.mark.parametrize("model", ["bm25", "builtin"])
def test_words_of_scripts_without_spaces(model: str, tmp_path: Path) -> None:
    papers = [LibraryPaper(f"key:{row}", str(row), title) for row, title in enumerate(SCRIPTS)]
    recommender = Recommender(Library.create(tmp_path / "mine", papers, model=model))
    for title, questions in SCRIPTS.items():
        for words in questions:
            assert [paper.title for paper in recommender.search(words)] == [title]
            [first] = recommender.recommend(words, k=1)
            assert first.title == title
            assert f"“{words.split()[0]}" in first.why


def surnames(library: Library) -> list[list[str]]:
    """The fields of each paper."""
    corpus = library.corpus
    return [[corpus.field_names[code] for code in corpus.fields[row].tolist()] for row in range(len(library))]


def test_the_corpus_keeps_surnames(tmp_path: Path) -> None:
    authors = [("Ann Lee", "van der Maaten, Laurens"), (), ("Bo Łukasz, Jr.",)] * 20
    papers = [
        LibraryPaper(f"key:{row}", f"key{row}", f"Title {row}", authors=of) for row, of in enumerate(authors)
    ]
    library = Library.create(tmp_path / "mine", papers, model="bm25")
    assert has_authors(library.corpus)
    wanted = [["Lee", "Maaten"], [], ["Lukasz"]] * 20
    assert surnames(library) == wanted
    more = NEW._replace(id="key:more", authors=("Di Wu", "Ann Lee", *(f"A{row} Zoe" for row in range(5000))))
    with Library.edit(tmp_path / "mine") as library:
        library = library.change([], [more])
    wanted += [["Wu", "Lee", *["Zoe"] * 8]]
    assert surnames(library) == wanted
    library = change(tmp_path / "mine", drop=2)
    assert surnames(library) == [*wanted[:2], *wanted[3:], []]


def test_a_change_is_a_new_generation(path: Path) -> None:
    old = Library.open(path)
    new = change(path)
    assert papers_of(new) == SHELF[:4] + SHELF[5:] + [NEW]
    assert new.manifest.created == old.manifest.created and new.manifest.generation == 2
    assert new.mapped.identities[:8].tolist() == old.mapped.identities[[0, 1, 2, 3, 5, 6, 7, 8]].tolist()
    assert [folder.name for folder in (path / "generations").iterdir()] == ["2"]
    assert papers_of(old) == SHELF, "open libraries keep the old generation"
    for name in ("retriever", "search_index"):  # and cannot read what they had not opened
        with pytest.raises(InputError, match="mine: has changed meanwhile; run the same command again"):
            getattr(old.storage, name)


def test_a_rebuild_does_not_undo_what_came_between(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.bib").write_text("@misc{a, title={One}}@misc{b, title={Two}}", encoding="utf-8")
    settings = BuildSettings(library=str(path), source=(str(tmp_path / "a.bib"),), model="bm25")
    building.create(replace(settings, overwrite=True))
    read = building.read_papers

    def read_meanwhile(file: str, needed: bool) -> Iterator[LibraryPaper]:
        yield from read(file, needed)
        with Library.edit(path) as library:
            library.remove(["b"])

    monkeypatch.setattr(building, "read_papers", read_meanwhile)
    with pytest.raises(InputError, match="mine: has changed meanwhile"):
        building.create(replace(settings, source=(), overwrite=True))
    assert [paper.key for paper in Library.open(path).papers()] == ["a"]


def test_a_file_that_changes_while_it_is_added_is_known_as_it_was(path: Path, tmp_path: Path) -> None:
    bib = tmp_path / "a.bib"
    bib.write_text("before", encoding="utf-8")
    before = ReadFile.of(bib)

    def records() -> Iterator[LibraryPaper]:
        yield NEW
        bib.write_text("while it is read", encoding="utf-8")

    with Library.edit(path) as library:
        library.add(records(), [str(bib)])
    assert Library.open(path).manifest.sources == [before]


@pytest.mark.parametrize("error", [InputError("the index"), KeyboardInterrupt()])
def test_a_failed_change_changes_nothing(
    path: Path, error: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> None:
        raise error

    monkeypatch.setattr(BM25, "save", fail)
    with pytest.raises(type(error)):
        change(path)
    assert papers_of(Library.open(path)) == SHELF
    assert [folder.name for folder in (path / "generations").iterdir()] == ["1"]
    with pytest.raises(type(error)):
        Library.create(path.parent / "other", SHELF, model="bm25")
    assert not (path.parent / "other").exists()


@pytest.mark.slow
def test_a_kill_at_any_time_leaves_the_old_or_the_new_library(path: Path, tmp_path: Path) -> None:
    moments, fatal = 0, -1
    changed = SHELF[:4] + SHELF[5:] + [NEW]

    def at_each_moment(event: str, arguments: tuple[Any, ...]) -> None:
        # Every access to the disk raises one of these audit events.
        nonlocal moments
        touches = event in (
            "open", "os.rename", "os.mkdir", "os.remove", "os.rmdir", "os.link", "shutil.rmtree"
        )  # fmt: skip
        if touches and isinstance(arguments[0], str | os.PathLike) and str(path) in str(arguments[0]):
            moments += 1
            if moments == fatal:
                os.kill(os.getpid(), signal.SIGKILL)

    def change_and_die() -> None:
        sys.addaudithook(at_each_moment)
        change(path)
        (tmp_path / "moments").write_text(str(moments))

    shutil.copytree(path, tmp_path / "before")
    assert exit_code(change_and_die) == 0
    last = int((tmp_path / "moments").read_text())
    assert last > 40
    assert papers_of(Library.open(path)) == changed
    generations = []
    for moment in [*range(1, last, last // 12), last - 4, last - 1, last]:
        shutil.rmtree(path)
        shutil.copytree(tmp_path / "before", path)
        moments, fatal = 0, moment
        assert exit_code(change_and_die) == -signal.SIGKILL
        library = Library.open(path)
        new = library.manifest.generation > 1
        assert papers_of(library) == (changed if new else SHELF)
        generations.append(library.manifest.generation)
        if not new:  # leftovers do not prevent another change
            assert papers_of(change(path)) == changed
            verify(VerifySettings(library=str(path)))
        with Library.edit(path) as library:
            assert len(library.change(range(3, len(library)), ())) == 3
    assert generations == sorted(generations) and set(generations) == {1, 2}


def test_a_second_writer_waits(path: Path) -> None:
    with Library.edit(path):
        with pytest.raises(Timeout):
            FileLock(path / "library.lock").acquire(timeout=0)
        assert len(Library.open(path)) == 9  # reading needs no lock

    def add(number: int) -> None:
        with Library.edit(path) as library:
            paper = NEW._replace(id=f"key:{number}")
            library.change([], [paper])

    processes = [in_child(partial(add, number)) for number in range(3)]
    for process in processes:
        process.join(60)
    library = Library.open(path)
    assert {paper.id for paper in papers_of(library)[9:]} == {"key:0", "key:1", "key:2"}
    assert library.manifest.generation == 4


def test_other_files_are_not_overwritten(path: Path, tmp_path: Path) -> None:
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "main.tex").touch()
    for place, line in (
        (path, "a library already exists; use add or update to change it"),
        (tmp_path / "thesis", r"thesis: is not a library and not empty \(main.tex\)"),
        (tmp_path / "thesis" / "main.tex", "is a file; name a folder"),
    ):
        with pytest.raises(InputError, match=line):
            Library.create(place, [NEW])
    library = Library.create(path, [NEW], overwrite=True)
    assert papers_of(library) == [NEW] and library.manifest.generation == 2
    (tmp_path / "empty").mkdir()
    (tmp_path / "killed" / "generations" / "1" / "corpus.part").mkdir(parents=True)
    (tmp_path / "killed" / "library.lock").touch()
    for name in ("empty", "killed"):
        assert len(Library.create(tmp_path / name, [NEW])) == 1
        assert [folder.name for folder in (tmp_path / name / "generations").iterdir()] == ["1"]


WITHOUT = "a library without a version"


@pytest.mark.parametrize(
    ("name", "content", "line"),
    [
        (
            "library.json",
            {"version": 1},
            "a library of version 1, but this program reads version 6",
        ),
        ("library.json", {"version": None}, WITHOUT),
        ("library.json", b"[]", WITHOUT),
        ("library.json", {"generation": 7}, "damaged library ("),
        ("library.json", b"{", "damaged library"),
        (
            "library.json",
            None,
            "is not a library (it has no library.json); create one with citerec",
        ),
    ],
)
def test_damaged_libraries_and_other_versions(path: Path, name: str, content: Any, line: str) -> None:
    if isinstance(content, dict):
        content = json.dumps(json.loads((path / name).read_text()) | content).encode()
    (path / name).unlink() if content is None else (path / name).write_bytes(content)
    with pytest.raises(InputError, match=f"^{re.escape(f'{path}: {line}')}"):
        Library.open(path)


def test_a_missing_folder(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"mine: no such folder; create one with citerec build"):
        Library.open(tmp_path / "mine")


@pytest.mark.parametrize("largest", [10_000, 40_000])
def test_a_full_disk_is_one_line_and_leaves_nothing(tmp_path: Path, largest: int) -> None:
    source = Path(__file__).parents[2] / "examples/library.bib"

    def fill_the_disk() -> None:
        import resource  # which Windows lacks

        resource.setrlimit(resource.RLIMIT_FSIZE, (largest, largest))
        try:
            build(BuildSettings(library=str(tmp_path / "mine"), source=(str(source),)))
        except InputError as error:
            (tmp_path / "error").write_text(str(error))

    assert exit_code(fill_the_disk) == 0
    assert "no space left for the library; free some or set library" in (tmp_path / "error").read_text()
    assert [file.name for file in tmp_path.iterdir()] == ["error"]


def test_verify_reads_files_again_that_have_been_compared(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = VerifySettings(library=str(path))
    verify(settings)
    assert capsys.readouterr().out == f"{path}: no damage; 9 papers, 0.0 MB\n"
    folder = Library.open(path).folder
    content = bytearray((folder / "records.values.npy").read_bytes())
    content[len(content) // 2] ^= 1
    (folder / "records.values.npy").write_bytes(content)
    stamps = json.loads((folder / CHECKED).read_text())
    stat = (folder / "records.values.npy").stat()  # a disk fails without a trace
    stamps["records.values.npy"][1:] = [stat.st_size, stat.st_mtime_ns, stat.st_ino, stat.st_dev]
    (folder / CHECKED).write_text(json.dumps(stamps))
    line = f"{path}: damaged library (generations/1/records.values.npy: damaged (its content has changed))"
    with pytest.raises(InputError, match=f"^{re.escape(line)}; build it again: citerec build"):
        verify(settings)
    (folder / CHECKSUMS).unlink()
    with pytest.raises(InputError, match=r"checksums.json: missing.* build it again: citerec build"):
        verify(settings)


def replace_file(file: Path, content: bytes) -> None:
    """Replace a file that other libraries may share by a hard link."""
    file.unlink()
    file.write_bytes(content)


def test_a_library_of_another_version_is_one_line(path: Path) -> None:
    Library.create(path, SHELF, model="bm25", overwrite=True)
    index = Library.open(path).folder / "index/ranking"
    about = json.loads((index / "index.json").read_text())
    about["about"]["k1"] = 0.9  # another default at that time
    replace_file(index / "index.json", json.dumps(about).encode())
    write_checksums(index)
    line = f"{path}: built by another version; build it again: citerec build library={path} overwrite=true"
    with pytest.raises(InputError, match=f"^{re.escape(line)}$"):
        Recommender.open(path)
    changed = papers_of(change(path))
    assert Recommender.open(path).search(NEW.title)[0] == NEW and changed[-1] == NEW, "its index is new"
