"""When a store is made, made again or shared; and that what a killed process left is not trusted."""

import gzip
import logging
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from datasets.corpus import Corpus
from datasets.errors import InputError
from datasets.prepare import open_corpus, open_records
from datasets.records import ContextRecord, PaperRecord, QueryRecord, Source
from tests.conftest import CONTEXTS, PAPERS

ROOT = Path(__file__).parents[2]
Open = Callable[..., Corpus]


@pytest.fixture
def reopen(tiny_source: Path, tmp_path: Path) -> Open:
    """open_corpus of `tiny_source` with one cache for all calls."""
    return lambda **settings: open_corpus(
        **({"dir": tiny_source, "cache_dir": tmp_path / "cache"} | settings)
    )


def made(corpus: Corpus) -> int:
    return (corpus.path / "store.json").stat().st_ino


def test_one_store_serves_later_runs(reopen: Open, tiny_source: Path, tmp_path: Path) -> None:
    first = reopen()
    os.utime(tiny_source / "papers.json")
    shutil.copytree(tiny_source, tmp_path / "copy")
    for again in (reopen(), reopen(name="other"), reopen(dir=tmp_path / "copy")):
        assert again.path == first.path and made(again) == made(first)
    assert reopen(name="other").name == "other"


@pytest.mark.parametrize("stem", ["papers", "contexts", "train", "val", "test"])
def test_changed_content_makes_a_new_store(reopen: Open, tiny_source: Path, stem: str) -> None:
    file = tiny_source / f"{stem}.json"
    before, times = reopen(), file.stat()
    text = file.read_text()
    file.write_text(text + " ")
    after = reopen()
    assert after.fingerprint != before.fingerprint
    file.write_text(text)
    os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert reopen().fingerprint == before.fingerprint


def test_content_of_the_same_size_and_time_is_seen(
    reopen: Open, tiny_source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("datasets.files.SETTLED", -1.0)  # hashes are remembered at once
    file = tiny_source / "papers.json"
    reopen()
    times = file.stat()
    file.write_text(file.read_text().replace("Graph networks", "Chart networks"))
    os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert "Chart networks" in list(reopen().titles)


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
def test_settings_make_a_store_of_their_own(reopen: Open, settings: dict[str, object]) -> None:
    assert reopen(**settings).fingerprint != reopen().fingerprint


def test_a_split_that_appears_is_read(reopen: Open, tiny_source: Path) -> None:
    held = (tiny_source / "train.json").rename(tiny_source / "held.json")
    corpus = reopen()
    assert list(corpus.splits) == ["val", "test"] and not corpus.seen.any()
    held.rename(tiny_source / "train.json")
    assert list(reopen().splits) == ["train", "val", "test"]


def test_zipped_files_and_papers_elsewhere(reopen: Open, tiny_source: Path, tmp_path: Path) -> None:
    plain = reopen()
    elsewhere = tmp_path / "pool"  # what a file is, is told by its content, not by its name
    elsewhere.write_bytes(gzip.compress((tiny_source / "papers.json").read_bytes()))
    (tiny_source / "papers.json").unlink()
    contexts = tiny_source / "contexts.json"
    (tiny_source / "contexts.json.gz").write_bytes(gzip.compress(contexts.read_bytes()))
    contexts.unlink()
    zipped = reopen(papers=elsewhere)
    assert zipped.path != plain.path
    assert list(zipped.titles) == list(plain.titles) and list(zipped.context_texts) == list(
        plain.context_texts
    )


def test_says_what_it_read(reopen: Open, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "datasets")
    reopen()
    assert "corpus tiny: 12 papers (11 candidates), 12 contexts (train 6, val 2, test 4)" in caplog.text


def test_a_damaged_store_is_made_again(reopen: Open) -> None:
    corpus = reopen()
    titles = list(corpus.titles)
    (corpus.path / "papers.arrow").write_bytes(b"ARROW1")
    assert list(reopen().titles) == titles


def run(code: str, *arguments: object) -> subprocess.Popen[str]:
    """A Python process in the project's folder."""
    command = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


KILLED = """
import os, signal, sys, pathlib
import datasets.prepare as prepare
def die(*_, **__): os.kill(os.getpid(), signal.SIGKILL)
owner, name = {"rename": (pathlib.Path, "rename"), "sync": (prepare, "_sync")}.get(
    sys.argv[3], (prepare.StoreBuilder, sys.argv[3]))
setattr(owner, name, die)
prepare.open_corpus(sys.argv[1], cache_dir=sys.argv[2])
"""


@pytest.mark.parametrize("moment", ["add_contexts", "finish", "sync", "rename"])
def test_nothing_that_a_killed_process_left_is_trusted(
    reopen: Open, tiny_source: Path, tmp_path: Path, moment: str
) -> None:
    process = run(KILLED, tiny_source, tmp_path / "cache", moment)
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    stores = tmp_path / "cache" / "corpora"
    assert [path.suffix for path in stores.iterdir() if path.is_dir()] == [".part"]
    corpus = reopen()
    assert len(corpus.titles) == 12 and corpus.context_tokens.lengths.min() > 0
    assert [path for path in stores.iterdir() if path.is_dir()] == [corpus.path]


SLOW = """
import logging, sys, time
import datasets.prepare as prepare
logging.basicConfig(level=logging.INFO)
slow = prepare.StoreBuilder.add_papers
def add_papers(*arguments):
    time.sleep(0.5)
    slow(*arguments)
prepare.StoreBuilder.add_papers = add_papers
print("titles", len(prepare.open_corpus(sys.argv[1], cache_dir=sys.argv[2]).titles))
"""


def test_processes_that_start_at_once_prepare_once(tiny_source: Path, tmp_path: Path) -> None:
    processes = [run(SLOW, tiny_source, tmp_path / "cache") for _ in range(3)]
    outputs = [process.communicate()[0] for process in processes]
    assert [output.count("titles 12") for output in outputs] == [1, 1, 1]
    assert sum(output.count("prepared in") for output in outputs) == 1


FULL_DISK = """
import resource, sys
from datasets.errors import one_line_errors
from datasets.prepare import open_corpus, open_records
from datasets.records import ContextRecord, PaperRecord, QueryRecord, Source
from tests.conftest import CONTEXTS, PAPERS
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[3]), resource.RLIM_INFINITY))
one_line_errors(lambda: open_corpus(sys.argv[1], cache_dir=sys.argv[2]))()
"""


@pytest.mark.parametrize("limit", [0, 100, 300, 1000])
def test_no_space_is_one_line_and_leaves_nothing(tiny_source: Path, tmp_path: Path, limit: int) -> None:
    process = run(FULL_DISK, tiny_source, tmp_path / "cache", limit)
    output, _ = process.communicate()
    assert process.returncode == 2 and output.count("\n") == 1
    assert "no space left for the prepared corpus" in output
    assert [path for path in (tmp_path / "cache" / "corpora").iterdir() if path.is_dir()] == []


def test_files_that_change_while_they_are_read(
    reopen: Open, tiny_source: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from datasets.prepare import StoreBuilder

    finish = StoreBuilder.finish

    def touch_and_finish(builder: StoreBuilder, candidates: str) -> None:
        (tiny_source / "papers.json").write_text("{}")
        finish(builder, candidates)

    monkeypatch.setattr(StoreBuilder, "finish", touch_and_finish)
    with pytest.raises(InputError, match="changed while they were read"):
        reopen()
    assert [path for path in (tmp_path / "cache" / "corpora").iterdir() if path.is_dir()] == []


def test_records_need_no_files(reopen: Open, tiny_source: Path, tmp_path: Path) -> None:
    """The same store as of files, prepared once for each identity."""
    calls: list[str] = []

    def papers() -> Iterator[PaperRecord]:
        calls.append("papers")
        for number, (key, paper) in enumerate(PAPERS.items()):
            yield PaperRecord(key, paper["title"], paper["abstract"], 2000 + number)

    def queries(split: str) -> list[QueryRecord]:
        return [QueryRecord(key, [cited]) for key, (of, _, cited, _) in CONTEXTS.items() if of == split]

    contexts = [ContextRecord(key, text, citing, cited) for key, (_, citing, cited, text) in CONTEXTS.items()]
    splits = {split: partial(queries, split) for split in ("train", "val", "test")}

    def opened(identity: str, contexts: list[ContextRecord] = contexts) -> Corpus:
        source = Source("tiny", {"records": identity}, papers, lambda: contexts, splits)
        return open_records(source, cache_dir=tmp_path / "cache")

    corpus, files = opened("1"), reopen()
    for file in sorted(files.path.iterdir()):
        if file.name != "store.json":
            assert (corpus.path / file.name).read_bytes() == file.read_bytes(), file.name
    assert opened("1").path == corpus.path != opened("2").path and calls == ["papers"] * 2
    bad = contexts[0]._replace(text="no marker")
    with pytest.raises(InputError, match=r"^tiny/contexts, record 'c1', field 'masked_text': TARGETCIT"):
        opened("3", [bad, *contexts[1:]])
