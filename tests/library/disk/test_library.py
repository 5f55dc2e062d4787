"""Libraries on disk, compared with the same library in memory."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterable
from importlib import import_module
from pathlib import Path
from pkgutil import resolve_name
from threading import Event
from typing import Any

import numpy as np
import pytest

from citerec import recommend
from citerec.base.errors import InputError
from citerec.formats.bibliography.paper import LibraryPaper
from citerec.library.ask.explanation import Recommendation
from citerec.library.ask.question import Filters, Request
from citerec.library.ask.recommender import Recommender, open_library
from citerec.library.disk import tasks
from citerec.library.disk.library import UNCHECKED, DiskLibrary
from citerec.library.disk.shard import Shard, links_to
from citerec.library.disk.shard_writer import Entry, ShardWriter, change_shard, encode_rows, train_codes
from citerec.library.papers.memory.encoding import state
from citerec.retrieval.queries import Query
from citerec.tests.forked import exit_code

PAPERS, PIECE = 600, 40_000
ON_DISK = "storage=disk", "shards=2", "workers=1"
SURNAMES = ["Blei", "Lovelace", "Turing", "Hopper", "Noether", "Curie", "Hill-Climb", "O'Hara", "Müller"]


def make_papers(seed: int = 0) -> list[dict[str, Any]]:
    """Generated papers, some with names, in English words that the built-in model knows."""
    words = Path(recommend.__file__).parent / "library" / "builtin" / "static" / "vocabulary.json"
    known = [word for word in json.loads(words.read_text("utf-8"))[200:6000] if word.isalpha()]
    rng = random.Random(seed)
    papers = []
    for number in range(PAPERS):
        topic = rng.sample(known[(number % 20) * 250 :][:250], 12)
        title = " ".join(rng.choices(topic, k=rng.randint(3, 8))).capitalize()
        if number % 7 == 0:
            title = f"{topic[0].upper()[:3]}net{number}: {title}"
        abstract = ". ".join(" ".join(rng.choices(topic + known[:99], k=12)).capitalize() for _ in range(6))
        papers.append(
            {
                "id": f"p{number}", "key": f"key{number}", "title": title, "year": 1980 + number % 40,
                "abstract": abstract if number % 3 else "", "venue": f"Venue {number % 5}",
                "authors": [f"{name[0]}. {name}" for name in rng.sample(SURNAMES, rng.randint(1, 3))],
            }
        )  # fmt: skip
    return papers


def questions(papers: list[dict[str, Any]], count: int = 12) -> list[str]:
    """Passages that share words with a paper, or name one."""
    rng, made = random.Random(1), []
    for number in range(count):
        paper = rng.choice(papers)
        text = rng.sample(f"{paper['title']} {paper['abstract']}".split(), 3)
        beside = rng.choice(["", paper["authors"][0].split()[-1] + f" et al. ({paper['year']})", "Lee"])
        made.append(f"As shown for {' '.join(text)} before, {beside} [CITE] is usual in {number} cases.")
    return made


def run(*arguments: str) -> None:
    recommend.run(arguments)


@pytest.fixture(scope="module")
def papers() -> list[dict[str, Any]]:
    return make_papers()


@pytest.fixture(scope="module")
def source(papers: list[dict[str, Any]], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """JSON lines in several files."""
    folder = tmp_path_factory.mktemp("source")
    for part in range(8):
        lines = [json.dumps(paper) for paper in papers[part * PAPERS // 8 : (part + 1) * PAPERS // 8]]
        (folder / f"papers-{part}.jsonl").write_text("\n".join(lines) + "\n", "utf-8")
    return folder


@pytest.fixture(scope="module")
def in_memory(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Recommender:
    folder = tmp_path_factory.mktemp("memory") / "lib"
    run("build", f"library={folder}", f"source={source}", "model=static")
    return Recommender.open(folder)


@pytest.fixture(scope="module")
def on_disk(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("disk") / "lib"
    run("build", f"library={folder}", f"source={source}", "model=static", *ON_DISK)
    return folder


@pytest.fixture
def library(on_disk: Path, tmp_path: Path) -> Path:
    """A copy to change."""
    return Path(shutil.copytree(on_disk, tmp_path / "lib"))


def summary(found: list[Recommendation]) -> list[tuple[str, str]]:
    return [(paper.id, paper.why) for paper in found]


def check_same(one: Recommender, other: Recommender, texts: list[str], **options: Any) -> None:
    for text in texts:
        expected, found = one.recommend(text, **options), other.recommend(text, **options)
        assert summary(found) == summary(expected)
        np.testing.assert_allclose(
            [paper.score for paper in found], [paper.score for paper in expected], atol=5e-3
        )


@pytest.mark.slow
@pytest.mark.parametrize("shards", [1, 2, 4, 8])
def test_answers_are_those_of_a_library_in_memory(
    shards: int, papers: list[dict[str, Any]], source: Path, in_memory: Recommender, tmp_path: Path
) -> None:
    folder = tmp_path / "lib"
    options = "storage=disk", f"shards={shards}", "workers=1", "model=static"
    run("build", f"library={folder}", f"source={source}", *options)
    recommender = Recommender.open(folder)
    assert isinstance(recommender.library, DiskLibrary)
    assert recommender.library.manifest.shards == shards
    assert [entry.name for entry in sorted(folder.iterdir())] == [
        "generations",
        "library.json",
        "library.lock",
    ]
    check_same(in_memory, recommender, questions(papers))


@pytest.mark.slow
def test_answers_are_the_same_where_networks_have_read_all_papers(
    papers: list[dict[str, Any]], source: Path, tmp_path: Path
) -> None:
    folders = [tmp_path / "memory", tmp_path / "disk"]
    for folder, options in zip(folders, ([], ON_DISK), strict=True):
        run("build", f"library={folder}", f"source={source}/papers-[0-3].jsonl", *options)
        check_encoded(folder, 300)
    check_same(Recommender.open(folders[0]), Recommender.open(folders[1]), questions(papers[:300]))
    recommender = Recommender.open(folders[1])
    recommender.remove(["p7", "p150"])
    recommender.add([LibraryPaper("new", title=papers[400]["title"], abstract=papers[400]["abstract"])])
    check_encoded(folders[1], 299)
    assert recommender.recommend(papers[400]["title"])[0].id == "new"


def check_encoded(folder: Path, papers: int) -> None:
    reading = state(open_library(folder))
    assert reading is not None and reading.known == reading.papers == papers


def test_a_single_file_fills_as_many_shards_as_are_asked_for(
    papers: list[dict[str, Any]], tmp_path: Path
) -> None:
    """With networks, which read the first papers of each answer."""
    source = tmp_path / "papers.json"
    source.write_text(json.dumps({paper["id"]: paper for paper in papers[:300]}))
    for name, options in (("memory", []), ("lib", ["storage=disk", "shards=3", "workers=1"])):
        run("build", f"library={tmp_path / name}", f"source={source}", "encode=false", *options)
    recommender = Recommender.open(tmp_path / "lib")
    assert isinstance(recommender.library, DiskLibrary)
    assert [len(shard) for shard in recommender.library.shards.all] == [100, 100, 100]
    found = recommender.library.candidates(Request(Query(papers[5]["title"])), 100).corpus
    assert found.places is not None and len(found.places) > 20
    numbers = np.array([int(name[1:]) for name in found.paper_ids])  # in their source
    apart, same = np.diff(found.places), np.diff(numbers // 100) == 0
    assert (apart == np.diff(numbers))[same].all() and (apart > 99)[~same].all()
    check_same(Recommender.open(tmp_path / "memory"), recommender, questions(papers[:300], 3))


@pytest.mark.parametrize(
    "filters",
    [
        Filters(years="1990-1999"),
        Filters(only=["key3", "p40", "p41"]),
        Filters(exclude=["p3", "key4"]),
        Filters(venue="venue 3"),
    ],
    ids=str,
)
def test_filters(
    filters: Filters, papers: list[dict[str, Any]], in_memory: Recommender, on_disk: Path
) -> None:
    found = Recommender.open(on_disk)
    check_same(in_memory, found, questions(papers, 4), filters=filters, k=3)


def test_known_papers_and_keys(in_memory: Recommender, on_disk: Path) -> None:
    recommender = Recommender.open(on_disk)
    check_same(in_memory, recommender, ["key17", "[@key18]"], k=3)
    check_same(in_memory, recommender, ["As usual [CITE]"], known=["key5", "p7", "none"], k=4)
    for text in ("key33", "Turing"):
        assert recommender.search(text, 3)
    assert recommender.search("key33")[0].id == "p33"
    assert recommender.search("xyzzy") == []
    assert [paper.id for paper in recommender.recommend("xyzzy [CITE]")] == [
        paper.id for paper in in_memory.recommend("xyzzy [CITE]")
    ]


def add(library: Path, folder: Path, *papers: dict[str, Any]) -> None:
    file = folder / "more.jsonl"
    file.write_text("".join(json.dumps(paper) + "\n" for paper in papers), "utf-8")
    run("add", f"library={library}", f"source={file}", "encode=false")


NEW = {"id": "new", "title": "Quantum gardening with spades", "authors": ["Ada Gardner"], "year": 2024}


def test_papers_are_added_completed_and_removed(
    library: Path, papers: list[dict[str, Any]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    reader = Recommender.open(library)  # sees the changes of other processes
    long = "An abstract of gardens, " + "longer than before, " * 60
    add(library, tmp_path, NEW, NEW | {"doi": "10.1000/1"}, papers[4] | {"abstract": long})
    assert "1 added, 1 completed; 601 papers" in capsys.readouterr().out
    assert reader.recommend("Gardening with spades [CITE] is quantum.")[0].id == "new"
    opened = DiskLibrary.open(library)
    assert [paper.abstract for _, paper in opened.find(["key4"])] == [long.strip()]
    assert [paper.doi for _, paper in opened.find(["new"])] == ["10.1000/1"]
    add(library, tmp_path, NEW, *papers)
    assert "nothing new; 601 papers" in capsys.readouterr().out
    run("remove", f"library={library}", "id=[new,key5]")
    assert "2 removed; 599 papers" in capsys.readouterr().out
    assert "new" not in [paper.id for paper in reader.recommend("Gardening with spades [CITE] is quantum.")]
    with pytest.raises(InputError, match=r"id=new: no paper of .* has this id or key"):
        run("remove", f"library={library}", "id=[new]")
    add(library, tmp_path, NEW | {"title": "Gardening with forks"})
    assert reader.recommend("Gardening with forks [CITE] is new.")[0].id == "new"
    assert len(DiskLibrary.open(library)) == 600


def test_bad_records_that_are_added_are_reported(
    library: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    add(library, tmp_path, NEW, {"id": "empty"})
    assert "more.jsonl: 1 record skipped or read only in part" in caplog.text
    with pytest.raises(InputError, match="has no usable paper"):
        add(library, tmp_path, {"id": "empty"})
    assert len(DiskLibrary.open(library)) == 601


def die(arguments: list[str], target: str, at: int = 1, after: bool = True) -> None:
    """Run a command that is killed before or after a call."""
    path, calls = f"citerec.library.disk.{target}", 0
    original = resolve_name(path)

    def dying(*args: Any, **options: Any) -> Any:
        nonlocal calls
        calls += 1
        result = original(*args, **options) if after or calls < at else None
        if calls == at:
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    def run_and_die() -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(path, dying)
            recommend.run(arguments)

    assert exit_code(run_and_die) == -signal.SIGKILL


@pytest.mark.slow
@pytest.mark.parametrize(
    ("target", "after"),
    [
        ("shard_writer.ShardWriter.append", True),
        ("shard_writer.ShardWriter.delete", True),
        ("library.write_checksums", True),
        ("library.write_manifest", False),
    ],
)
def test_a_killed_change_leaves_all_or_nothing(
    target: str, after: bool, library: Path, papers: list[dict[str, Any]], tmp_path: Path
) -> None:
    file = tmp_path / "more.jsonl"
    completed = papers[4] | {"abstract": "Gardens " * 300}
    file.write_text(json.dumps(NEW) + "\n" + json.dumps(completed) + "\n", "utf-8")
    command = ["add", f"library={library}", f"source={file}", "encode=false"]
    die(command, target, after=after)
    opened = DiskLibrary.open(library)
    opened.verify()
    assert [paper.abstract for _, paper in opened.find(["key4"])] == [papers[4]["abstract"]]
    assert len(opened) == 600 and opened.row("new") is None
    run(*command)
    recommender = Recommender.open(library)
    assert len(recommender.library) == 601
    assert recommender.recommend("Gardening with spades [CITE] is quantum.")[0].id == "new"
    [(_, found)] = DiskLibrary.open(library).find(["p4"])
    assert found.abstract == completed["abstract"].strip()


def test_a_library_is_built_again_from_what_it_knows(
    library: Path, source: Path, papers: list[dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On disk, from any folder, without what was removed: what errors about damage advise."""
    monkeypatch.setattr(tasks, "find_spec", lambda name: None)  # as without Ray
    monkeypatch.chdir(source.parent)
    run("build", f"library={library}", f"source={source.name}", "model=static", "overwrite=true", *ON_DISK)
    monkeypatch.chdir(tmp_path)
    add(library, tmp_path, NEW)
    run("remove", f"library={library}", "id=[key5]")
    for _ in range(2):
        (DiskLibrary.open(library).folder / "shards/1/words/meta.json").write_text("{}")
        with pytest.raises(
            InputError, match=f"build it again: citerec build library={library} overwrite=true"
        ):
            run("ask", str(library), "text=trees")
        run("build", str(library), "overwrite=true", "workers=1", "storage=disk")
        opened = DiskLibrary.open(library)
        opened.verify()
        assert len(opened) == PAPERS and opened.row("new") is not None and opened.row("key5") is None
        assert (opened.manifest.shards, opened.manifest.model) == (2, "static")
    run("build", str(library), "overwrite=true")
    assert DiskLibrary.open(library).manifest.shards == 2 and len(DiskLibrary.open(library)) == PAPERS
    run("add", f"library={library}", f"source={source}", "encode=false")
    assert (
        DiskLibrary.open(library).row("key5") is not None and not DiskLibrary.open(library).manifest.removed
    )


def check_same_files(first: Path, second: Path) -> None:
    one, other = DiskLibrary.open(first), DiskLibrary.open(second)
    for name in ("counts.npy", "blocks.npy", "statistics.json"):
        assert (one.folder / "statistics" / name).read_bytes() == (
            other.folder / "statistics" / name
        ).read_bytes()
    for left, right in zip(one.shard_folders, other.shard_folders, strict=True):
        assert (left / "vectors.int8").read_bytes() == (right / "vectors.int8").read_bytes()
        assert (left / "codes.faiss").read_bytes() == (right / "codes.faiss").read_bytes()
        assert list(Shard(left).papers()) == list(Shard(right).papers())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("target", "at", "after"),
    [
        ("deduplicate._rename", 1, True),
        ("build._count_part", 2, True),
        ("build._add_up_range", 2, True),
        ("build.write_statistics", 1, False),
        ("build.train_codes", 1, False),
        ("shard_writer.ShardWriter.append", 3, True),
        ("shard_writer.write_text", 4, False),
        ("build.encode_rows", 1, False),
        ("build.write_manifest", 1, False),
    ],
)
def test_a_killed_build_goes_on_to_the_same_library(
    target: str,
    at: int,
    after: bool,
    source: Path,
    papers: list[dict[str, Any]],
    on_disk: Path,
    tmp_path: Path,
) -> None:
    folder = tmp_path / "lib"
    command = ["build", f"library={folder}", f"source={source}", "model=static", *ON_DISK]
    die(command, target, at, after)
    assert not (folder / "library.json").exists()
    run(*command)
    check_same_files(on_disk, folder)
    check_same(Recommender.open(on_disk), Recommender.open(folder), questions(papers, 3))


STAGES = (
    "parts.read_piece",
    *("deduplicate._find_in_range", "deduplicate._lead_groups", "deduplicate._merge_part"),
    *("build._count_part", "build._add_up_range", "build.build_shard"),
)


def killed_once(function: Callable[[Any], Any], marker: Path) -> Callable[[Any], Any]:
    """A task that kills its worker the first time."""

    def task(item: Any) -> Any:
        try:
            marker.touch(exist_ok=False)
        except FileExistsError:
            return function(item)
        os.kill(os.getpid(), signal.SIGKILL)

    return task


@pytest.mark.slow
def test_workers_killed_in_each_stage_are_replaced(
    source: Path, papers: list[dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("ray")
    again = tmp_path / "again.jsonl"
    again.write_text("".join(json.dumps(paper) + "\n" for paper in papers[:20]), "utf-8")
    command = ["build", f"source=[{source},{again}]", "storage=disk", "shards=2", "encode=false"]
    run(*command, f"library={tmp_path / 'one'}", "workers=1")
    markers = tmp_path / "killed"
    markers.mkdir()
    for name in STAGES:
        module, function = f"citerec.library.disk.{name}".rsplit(".", 1)
        task = getattr(import_module(module), function)
        monkeypatch.setattr(f"{module}.{function}", killed_once(task, markers / function))
    run(*command, f"library={tmp_path / 'two'}", "workers=2")
    assert sorted(path.name for path in markers.iterdir()) == sorted(name.split(".")[1] for name in STAGES)
    check_same_files(tmp_path / "one", tmp_path / "two")


def test_vectors_are_nearly_those_of_exact_search(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    vectors = rng.standard_normal((6000, 64), np.float32)
    vectors[1:] += vectors[:-1]  # with neighbours
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    folder = tmp_path / "shard"
    ShardWriter.create(folder, train_codes(vectors[:2000])).close()
    entries = [Entry(LibraryPaper(f"p{row}", title="x"), "x", []) for row in range(len(vectors))]
    change_shard(folder, entries, vectors, ())
    shard = Shard(folder)
    queries = vectors[::500] + rng.standard_normal((12, 64), np.float32) * 0.05
    queries /= np.linalg.norm(queries, axis=1, keepdims=True)
    exact = np.argsort(-(queries @ vectors.T), axis=1)[:, :20]

    def recall() -> float:
        found = [shard.search_vector(query, 20).rows for query in queries]
        return float(np.mean([np.isin(best, rows).mean() for best, rows in zip(exact, found, strict=True)]))

    assert recall() > 0.99  # without codes: each vector is compared
    encode_rows(folder)
    shard = Shard(folder)
    assert shard.codes.ntotal == len(vectors)
    assert 0.9 < recall() <= 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["storage=disk", "contexts=draft.tex"], "contexts: a library on disk does not rank by contexts"),
        (["storage=disk", "model=bm25"], "model=bm25: a library on disk needs one with vectors"),
        (["storage=tape"], "storage"),
        (["shards=2"], "shards, workers and bad_parts need storage=disk"),
        (["storage=disk", "shards=-1"], "shards"),
        (["storage=disk", "bad_parts=keep"], "bad_parts"),
    ],
)
def test_bad_options(options: list[str], message: str, source: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=message):
        run("build", f"library={tmp_path / 'lib'}", f"source={source}", *options)
    assert not (tmp_path / "lib" / "library.json").exists()


@pytest.mark.parametrize(
    "command",
    [
        ["update"],
        ["draft", "tex=x.md"],
        ["check", "tex=x.md"],
        ["enrich", "from=x.md"],
        ["add", "source=x.md", "fulltext=true"],
    ],
)
def test_commands_that_need_a_library_in_memory_say_so(
    command: list[str], on_disk: Path, tmp_path: Path
) -> None:
    draft = tmp_path / "x.md"
    draft.write_text("We cite [@?] here.\n")
    name, *options = [part.replace("x.md", str(draft)) for part in command]
    with pytest.raises(InputError, match="is kept on disk"):
        run(name, f"library={on_disk}", *options)


def test_one_process_changes_a_library_at_a_time(library: Path, source: Path) -> None:
    with DiskLibrary.edit(library):
        for command in (
            ["add", f"source={source}"],
            ["build", f"source={source}", "storage=disk", "overwrite=true"],
        ):
            with pytest.raises(InputError, match="another process changes the library"):
                run(command[0], f"library={library}", "wait=false", *command[1:])


def test_a_damaged_library_is_one_message(library: Path) -> None:
    (library / "generations" / "1" / "shards" / "1" / "words" / "meta.json").write_text("{}")
    for command in (["ask", "text=trees"], ["remove", "id=[p1]"], ["verify"], ["info"]):
        with pytest.raises(InputError, match=r"meta.json: damaged .* build it again: citerec build"):
            run(command[0], f"library={library}", *command[1:])


def test_vectors_records_and_statistics_are_checked_when_they_are_read(
    library: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a disk that fails without a trace: nothing tells that a file has changed."""
    monkeypatch.setattr("citerec.library.disk.library.touched_files", lambda _: [])
    folder = library / "generations" / "1"
    for pattern in ("vectors.int8", "*.store", "counts.npy"):
        for file in folder.rglob(pattern):
            content = file.read_bytes()
            file.write_bytes(bytes(64) + bytes(byte ^ 1 for byte in content[64:-64]) + content[-64:])
            with pytest.raises(InputError, match=r"damaged library .* build it again"):
                Recommender.open(library).recommend("Trees and words and numbers [CITE]")
            file.write_bytes(content)
    about = folder / "shards" / "1" / "shard.json"
    content = about.read_bytes()
    about.write_bytes(content.replace(b"rows", b"rowc"))
    with pytest.raises(InputError, match=r"shard.json: damaged .* build it again"):
        open_library(library).verify()
    about.write_bytes(content)
    assert Recommender.open(library).recommend("Trees and words and numbers [CITE]")


def test_large_files_are_compared_in_the_background(
    library: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("citerec.library.disk.library.LARGE", 0)
    may_compare = Event()
    compare = resolve_name("citerec.base.checksums.compare_files")

    def compare_later(folder: Path, names: Iterable[str]) -> None:
        names = list(names)
        if any(name.endswith(".idx") for name in names):
            assert may_compare.wait(60)
        compare(folder, names)

    monkeypatch.setattr("citerec.library.disk.library.compare_files", compare_later)
    for file in library.rglob("*.idx"):
        file.touch()
    recommender = Recommender.open(library)
    assert recommender.recommend("Trees [CITE]")
    assert recommender.library.note == UNCHECKED
    may_compare.set()
    thread = recommender.library._checking  # type: ignore[attr-defined]
    thread.join()
    assert recommender.recommend("Trees [CITE]") and not recommender.library.note
    assert not Recommender.open(library).library.note  # it is known now
    file = next(library.rglob("*.idx"))
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    recommender = Recommender.open(library)
    recommender.library._checking.join()  # type: ignore[attr-defined]
    with pytest.raises(InputError, match=r"damaged library .*\.idx: damaged"):
        recommender.recommend("Trees [CITE]")


def test_what_the_engine_writes_late_is_removed_with_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "meta.json").touch()
    rmdir, late = os.rmdir, [".tantivy-meta.lock"]

    def remove(path: Path, **options: Any) -> None:
        if late:
            (path / late.pop()).touch()
        rmdir(path, **options)

    monkeypatch.setattr(os, "rmdir", remove)
    with links_to(tmp_path) as links:
        assert [file.name for file in links.iterdir()] == ["meta.json"]
    assert not late and not links.exists()


def test_a_library_is_asked_where_nothing_may_be_written(library: Path, papers: list[dict[str, Any]]) -> None:
    """By a user who may read the folder, and write nothing but temporary files."""
    expected = [summary(Recommender.open(library).recommend(text)) for text in questions(papers, 2)]
    before = {path: path.stat().st_mtime_ns for path in library.rglob("*")}

    def ask() -> None:
        os.setgid(65534)
        os.setuid(65534)
        tempfile.tempdir = str(writable)
        with pytest.raises(PermissionError):
            (library / "file").touch()
        found = Recommender.open(library)
        assert [summary(found.recommend(text)) for text in questions(papers, 2)] == expected

    writable = library.parent / "temporary"
    writable.mkdir()
    writable.chmod(0o777)
    for folder in (library, *library.parents):
        if not folder.stat().st_mode & 0o001:
            folder.chmod(0o755)
    assert exit_code(ask) == 0
    assert {path: path.stat().st_mtime_ns for path in library.rglob("*")} == before


def test_a_build_says_once_that_the_model_knows_few_words(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    strange = [f"qz{number}x" for number in range(300)]
    papers = [{"id": word, "title": " ".join(random.Random(word).sample(strange, 9))} for word in strange]
    (tmp_path / "papers.jsonl").write_text("".join(f"{json.dumps(paper)}\n" for paper in papers))
    run("build", f"library={tmp_path}/it", f"source={tmp_path}/papers.jsonl", "encode=false", *ON_DISK)
    run("ask", f"library={tmp_path}/it", "qz1x qz2x [CITE]")
    (line,) = (line for line in caplog.messages if "% of the words of" in line)
    assert line.startswith(
        f"static: the model knows 0% of the words of {tmp_path}/it, which may be in another"
    )
