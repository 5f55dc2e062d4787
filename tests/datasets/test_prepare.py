"""When a store is prepared, reused or rebuilt; kills and full disks; records in memory and files at URLs."""

import gzip
import logging
import os
import shutil
import signal
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from citerec.base.errors import InputError, one_line_errors
from citerec.datasets import prepare
from citerec.datasets.corpus import Corpus
from citerec.datasets.prepare import open_corpora, open_corpus, open_records
from citerec.datasets.records import ContextRecord, PaperRecord, QueryRecord, Source
from citerec.tests.conftest import CONTEXTS, PAPERS
from citerec.tests.datasets.conftest import Open
from citerec.tests.forked import exit_code, in_child, with_stderr


def manifest_inode(corpus: Corpus) -> int:
    return (corpus.path / "store.json").stat().st_ino


def test_one_store_serves_later_runs(
    opened: Open, tiny_source: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "citerec.datasets")
    first = opened()
    assert "corpus tiny: 12 papers (11 candidates), 12 contexts (train 6, val 2, test 4)" in caplog.text
    os.utime(tiny_source / "papers.json")
    shutil.copytree(tiny_source, tmp_path / "copy")
    for again in (opened(), opened(name="other"), opened(dir=tmp_path / "copy")):
        assert again.path == first.path and manifest_inode(again) == manifest_inode(first)
    assert opened(name="other").name == "other"


@pytest.mark.parametrize("stem", ["papers", "contexts", "train", "val", "test"])
def test_changed_content_makes_a_new_store(opened: Open, tiny_source: Path, stem: str) -> None:
    file = tiny_source / f"{stem}.json"
    before, times = opened(), file.stat()
    text = file.read_text()
    file.write_text(text + " ")
    after = opened()
    assert after.fingerprint != before.fingerprint
    file.write_text(text)
    os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert opened().fingerprint == before.fingerprint


def test_a_change_that_keeps_size_and_time_is_detected(
    opened: Open, tiny_source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("citerec.base.files.SETTLED", -1.0)  # cache hashes immediately
    file = tiny_source / "papers.json"
    opened()
    times = file.stat()
    file.write_text(file.read_text().replace("Graph networks", "Chart networks"))
    os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert "Chart networks" in list(opened().titles)


@pytest.mark.parametrize(
    "settings",
    [
        {"tokenizer": "reference"},
        {"candidates": "all"},
        {"splits": ["train"]},
        {"splits": ["test", "train"]},
        {"field": "title"},
    ],
)
def test_other_settings_give_another_store(opened: Open, settings: dict[str, object]) -> None:
    assert opened(**settings).fingerprint != opened().fingerprint


def test_gzipped_files_and_papers_elsewhere(opened: Open, tiny_source: Path, tmp_path: Path) -> None:
    plain = opened()
    elsewhere = tmp_path / "pool"  # gzip is detected by content, not by name
    elsewhere.write_bytes(gzip.compress((tiny_source / "papers.json").read_bytes()))
    (tiny_source / "papers.json").unlink()
    contexts = tiny_source / "contexts.json"
    (tiny_source / "contexts.json.gz").write_bytes(gzip.compress(contexts.read_bytes()))
    contexts.unlink()
    zipped = opened(papers=elsewhere)
    assert zipped.path != plain.path
    assert list(zipped.titles) == list(plain.titles) and list(zipped.context_texts) == list(
        plain.context_texts
    )


def test_a_damaged_store_is_rebuilt(opened: Open) -> None:
    corpus = opened()
    titles = list(corpus.titles)
    (corpus.path / "titles.values.npy").write_bytes(b"NUMPY")
    assert list(opened().titles) == titles


@pytest.mark.slow
def test_a_kill_at_any_moment_does_not_change_the_next_store(tiny_source: Path, tmp_path: Path) -> None:
    moments = fatal = 0

    def at_each_moment(event: str, arguments: tuple[Any, ...]) -> None:
        # Each change on disk begins with one of these events.
        nonlocal moments
        touches = event in ("open", "os.rename", "os.mkdir", "os.remove", "os.rmdir")
        if touches and isinstance(arguments[0], str | bytes | os.PathLike):
            moments += str(tmp_path / "scratch") in os.fsdecode(arguments[0])
            if moments == fatal:
                os.kill(os.getpid(), signal.SIGKILL)

    def prepare_in(cache: Path) -> None:
        open_corpus(tiny_source, cache_dir=cache)

    def prepare_and_die(cache: Path, moment: int) -> None:
        nonlocal fatal
        fatal = moment
        sys.addaudithook(at_each_moment)
        prepare_in(cache)
        (tmp_path / "moments").write_text(str(moments))

    def content(cache: Path) -> dict[Path, bytes]:
        folders = [path for path in (cache / "corpora").iterdir() if path.is_dir()]
        return {file.relative_to(cache): file.read_bytes() for folder in folders for file in folder.iterdir()}

    assert exit_code(partial(prepare_and_die, tmp_path / "scratch", -1)) == 0
    last, expected = int((tmp_path / "moments").read_text()), content(tmp_path / "scratch")
    assert last > 40 and len(expected) > 20
    left = 0
    for moment in range(1, last + 1, 5):
        cache = tmp_path / "scratch" / str(moment)
        assert exit_code(partial(prepare_and_die, cache, moment)) == -signal.SIGKILL, moment
        left += any(path.suffix == ".part" for path in cache.glob("corpora/*"))
        prepare_in(cache)
        assert content(cache) == expected, moment
    assert left > 5


def test_processes_that_start_at_once_prepare_once(
    opened: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_papers = prepare.StoreBuilder.add_papers

    def slowly(*arguments: Any) -> None:
        with (tmp_path / "prepared").open("a") as file:
            file.write("once\n")
        time.sleep(0.5)
        add_papers(*arguments)

    monkeypatch.setattr(prepare.StoreBuilder, "add_papers", slowly)
    processes = [in_child(opened) for _ in range(3)]
    for process in processes:
        process.join(120)
    assert [process.exitcode for process in processes] == [0, 0, 0]
    assert len(opened().titles) == 12 and (tmp_path / "prepared").read_text() == "once\n"


@pytest.mark.parametrize("limit", [0, 300])
def test_a_full_disk_is_one_line_and_leaves_no_files(tiny_source: Path, tmp_path: Path, limit: int) -> None:
    work = one_line_errors(partial(open_corpus, tiny_source, cache_dir=tmp_path / "cache"))
    process, errors = with_stderr(work, limit)
    [line] = errors
    process.join()
    assert process.exitcode == 2 and "no space left for the prepared corpus" in line
    assert [path for path in (tmp_path / "cache" / "corpora").iterdir() if path.is_dir()] == []


def test_files_that_change_during_reading_are_an_error(
    opened: Open, tiny_source: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    finish = prepare.StoreBuilder.finish

    def touch_and_finish(builder: prepare.StoreBuilder, candidates: str) -> None:
        (tiny_source / "papers.json").write_text("{}")
        finish(builder, candidates)

    monkeypatch.setattr(prepare.StoreBuilder, "finish", touch_and_finish)
    with pytest.raises(InputError, match="changed while they were read"):
        opened()
    assert [path for path in (tmp_path / "cache" / "corpora").iterdir() if path.is_dir()] == []


def test_records_need_no_files(opened: Open, tiny_source: Path, tmp_path: Path) -> None:
    """Records in memory give the same store as files; it is prepared once per identity."""
    calls: list[str] = []

    def papers() -> Iterator[PaperRecord]:
        calls.append("papers")
        for number, (key, paper) in enumerate(PAPERS.items()):
            yield PaperRecord(key, paper["title"], paper["abstract"], 2000 + number)

    def queries(split: str) -> list[QueryRecord]:
        return [
            QueryRecord(key, [cited])
            for key, (its_split, _, cited, _) in CONTEXTS.items()
            if its_split == split
        ]

    contexts = [ContextRecord(key, text, citing, cited) for key, (_, citing, cited, text) in CONTEXTS.items()]
    splits = {split: partial(queries, split) for split in ("train", "val", "test")}

    def of_records(identity: str, contexts: list[ContextRecord] = contexts) -> Corpus:
        source = Source("tiny", {"records": identity}, papers, lambda: contexts, splits)
        return open_records(source, cache_dir=tmp_path / "cache")

    corpus, files = of_records("1"), opened()
    for file in sorted(files.path.iterdir()):
        if file.name != "store.json":
            assert (corpus.path / file.name).read_bytes() == file.read_bytes(), file.name
    assert of_records("1").path == corpus.path != of_records("2").path and calls == ["papers"] * 2
    bad = contexts[0]._replace(text="no marker")
    with pytest.raises(InputError, match=r"^tiny/contexts, record 'c1', field 'masked_text': TARGETCIT"):
        of_records("3", [bad, *contexts[1:]])


def test_several_folders_become_one_corpus(tiny_source: Path, tmp_path: Path) -> None:
    other = shutil.copytree(tiny_source, tmp_path / "other")
    (other / "val.json").unlink()
    single = open_corpus(tiny_source, cache_dir=tmp_path / "cache")
    both = open_corpora([tiny_source, other], cache_dir=tmp_path / "cache")
    assert both.name == "tiny+other"
    assert list(both.paper_ids) == [f"{name}/{id}" for name in ("tiny", "other") for id in single.paper_ids]
    assert list(both.titles) == 2 * list(single.titles)
    sizes = {name: len(split) for name, split in single.splits.items()}
    assert {name: len(split) for name, split in both.splits.items()} == {
        **{name: 2 * size for name, size in sizes.items()},
        "val": sizes["val"],
    }
    train, own = both.split("train"), single.split("train")
    second = slice(len(own), None)  # the queries of `other`
    papers, contexts = len(single.paper_ids), len(single.context_ids)
    assert (train.contexts[second] == own.contexts + contexts).all()
    assert (train.positives.values[len(own.positives.values) :] == own.positives.values + papers).all()
    assert (both.citing[contexts:] == single.citing + papers).all()
    assert open_corpora([tiny_source, other], cache_dir=tmp_path / "cache").path == both.path
    shutil.copy(tiny_source / "val.json", other)
    for folders in ((tiny_source, other), (other, tiny_source)):
        turned = open_corpora(folders, cache_dir=tmp_path / "cache")
        assert [turned.paper_ids[row].split("/")[0] for row in (0, papers)] == [path.name for path in folders]


def test_folders_that_cannot_be_joined(tiny_source: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"data\.dirs: must be a list of two or more folders"):
        open_corpora([tiny_source], cache_dir=tmp_path)
    with pytest.raises(InputError, match="two folders have the same name"):
        open_corpora([tiny_source, shutil.copytree(tiny_source, tmp_path / "copies" / "tiny")])
    other = shutil.copytree(tiny_source, tmp_path / "other")
    (other / "train.json").write_text('[{"context_id": "c1", "positive_ids": ["nobody"]}]')
    with pytest.raises(InputError, match=r"record 'other/c1'.*: no paper 'other/nobody' in the papers file"):
        open_corpora([tiny_source, other], cache_dir=tmp_path)
