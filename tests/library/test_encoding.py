"""The networks of the built-in model in a library: what they have read is kept, and answers do without it."""

from __future__ import annotations

import os
import shutil
import signal
from dataclasses import replace
from pathlib import Path
from queue import SimpleQueue
from threading import Event

import numpy as np
import pytest

from citerec.base.errors import InputError
from citerec.base.files import file_lock
from citerec.library.ask.recommender import Recommender
from citerec.library.commands.change import build, remove
from citerec.library.papers import encoding
from citerec.library.papers.encoding import BackgroundEncoding, encode, state
from citerec.library.papers.library import Library
from citerec.library.papers.models import BUILT_IN, ENCODED, ENCODED_LANGUAGES, LANGUAGES, NETWORKS
from citerec.library.settings import BuildSettings, RemoveSettings
from citerec.library.sources.readers import read_source
from citerec.rerank.ranker.linear import LinearModel
from citerec.rerank.ranker.model import RankingModel, encoder_of
from citerec.retrieval.networks import encoder as module
from citerec.retrieval.networks.networks import Networks
from citerec.retrieval.networks.store import SUFFIX
from citerec.tests.conftest import Run
from citerec.tests.forked import exit_code

EXAMPLES = Path(__file__).parents[2] / "examples" / "library.bib"
QUESTION = "The usual optimiser for deep networks has a step size of its own for each parameter [CITE]."


@pytest.fixture
def library(tmp_path: Path) -> Library:
    """The example library, of which the networks have read nothing."""
    return Library.create(tmp_path / "mine", list(read_source(EXAMPLES, print)))


def answers(path: Path, question: str = QUESTION) -> list[tuple[str, float | None]]:
    found = Recommender.open(path).recommend(question, k=50)
    return [(paper.id, paper.probability) for paper in found]


def assert_same_answers(one: Path, other: Path) -> None:
    found, expected = answers(one), answers(other)
    assert [paper for paper, _ in found] == [paper for paper, _ in expected]
    assert [sure for _, sure in found] == pytest.approx([sure for _, sure in expected], abs=1e-4)


def test_the_first_answers_come_without_and_with_what_was_read(library: Library) -> None:
    before = Recommender.open(library.path).recommend(QUESTION, k=50, explain=True)
    [reading] = state(library)
    assert reading.read == 0
    assert not (library.path / ENCODED).exists()  # only the first papers were read, and only in memory
    [done] = encode(library)
    assert done.read == done.papers == done.new == len(library)
    after = Recommender.open(library.path).recommend(QUESTION, k=50, explain=True)
    assert all(-1 <= paper.features["encoder"] <= 1 for paper in after)
    assert before[0].key == after[0].key == "kingma2015adam"
    for found in (before, after):
        assert all(0 <= paper.probability <= 1 for paper in found if paper.probability is not None)
    assert [paper.probability for paper in before] != [paper.probability for paper in after]
    [again] = encode(library)
    assert again.new == 0


def test_passages_in_other_languages_are_read_by_an_encoder_of_their_own(
    library: Library, tmp_path: Path, tiny_networks: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    german = "Das übliche Verfahren passt die Schrittweite für jeden Parameter eigens an [CITE]."
    encode(library)
    before = answers(library.path), answers(library.path, german)
    package = tmp_path / LANGUAGES
    shutil.copytree(tiny_networks, package / NETWORKS)
    (package / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    installed = Library.open(library.path)
    assert [reading.read for reading in state(installed)] == [len(library), 0]
    done, in_others = encode(installed)
    assert done.complete and done.new == 0 and in_others.new == len(library)
    assert str(in_others) == (
        f"all {len(library)} papers for other languages read by the encoder, "
        f"{len(library)} now in {in_others.seconds:.1f} s"
    )
    assert [*(library.path / ENCODED_LANGUAGES).iterdir()]
    after = answers(library.path), answers(library.path, german)
    assert after[0] == before[0]
    assert after[1] != before[1]
    networks = encoder_of(installed.mapped.languages or installed.retriever)
    assert networks is not None and networks.complete
    assert networks.store.network == Networks.open(tiny_networks).identity
    [best] = Recommender.open(library.path).recommend(german, k=1)
    assert best.why
    model = RankingModel.open(BUILT_IN)
    assert model.networks is not None
    own = LinearModel({"english_encoder": 9.0}, {"english_encoder": 0.1})
    place = package / NETWORKS / RankingModel.folder
    replace(model, model=own, networks=replace(model.networks, read=own, pairs=None)).save(place)
    found = Recommender.open(library.path).recommend(german, k=20, explain=True)
    cosines = [paper.features["english_encoder"] for paper in found]
    assert cosines == sorted(cosines, reverse=True) and cosines[0] > cosines[-1]
    (place / "ranker.json").write_text('{"format": "ranker-0"}')
    with pytest.raises(InputError, match="made for another version of citerec"):
        Recommender.open(library.path).recommend(german)


def test_a_killed_encoding_goes_on_where_it_was(
    library: Library, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PART", 16)
    monkeypatch.setattr(encoding, "PART", 16)
    read, calls = Networks.encode, list[int]()

    def dies(self: Networks, keys: np.ndarray, *given: object) -> object:
        if len(calls) == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        calls.append(len(keys))
        return read(self, keys, *given)  # type: ignore[arg-type]

    def killed() -> None:
        monkeypatch.setattr(Networks, "encode", dies)
        encode(Library.open(library.path))

    assert exit_code(killed) == -signal.SIGKILL
    assert len([*(library.path / ENCODED).glob(f"*{SUFFIX}")]) == 2
    monkeypatch.setattr(Networks, "encode", read)
    [left] = state(Library.open(library.path))
    assert left.read == 32
    [done] = encode(Library.open(library.path))
    assert done.new == len(library) - 32
    whole = Library.create(tmp_path / "whole", list(read_source(EXAMPLES, print)))
    encode(whole)
    assert_same_answers(library.path, whole.path)


def test_build_and_add_read_what_is_new_and_what_is_removed_leaves(tmp_path: Path, command: Run) -> None:
    bib, more = tmp_path / "a.bib", tmp_path / "b.bib"
    entry = "@article{{{0}, title={{A study of {0} in rivers}}, abstract={{{1}}}}}\n"
    bib.write_text("".join(entry.format(name, f"Many {name}.") for name in ("salmon", "trout", "perch")))
    more.write_text(entry.format("carp", ""))
    path = tmp_path / "fish"
    said = command("build", f"library={path}", f"source={bib}")[1]
    assert "all 3 papers read by the encoder, 3 now" in said
    said = command("add", f"library={path}", f"source={more}")[1]
    assert "all 4 papers read by the encoder, 1 now" in said
    networks = encoder_of(Library.open(path).retriever)
    assert networks is not None and len(networks.store) == 4
    found = Recommender.open(path).recommend("Carps [CITE] live in rivers.", explain=True)
    assert found[0].key == "carp" and found[0].evidence.sentence == ""  # it has no abstract
    remove(RemoveSettings(library=str(path), id=("trout",)))
    library = Library.open(path)
    encode(library)
    networks = encoder_of(library.retriever)
    assert networks is not None and len(networks.store) == 3 and not len(networks.missing())


def test_a_library_may_put_it_off_or_do_without(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for model, known in (("static", []), ("bm25", []), ("", [0])):
        path = tmp_path / (model or "builtin")
        build(BuildSettings(library=str(path), source=(str(EXAMPLES),), model=model, encode=False))
        assert "encoder" not in capsys.readouterr().out
        assert [reading.read for reading in state(Library.open(path))] == known
        assert answers(path)


def test_only_one_process_reads_at_a_time(library: Library) -> None:
    with file_lock(library.path / encoding.LOCK, encoding.WORK, True):
        with pytest.raises(InputError, match="networks"):
            encode(library, wait=False)
        assert answers(library.path)


def test_what_is_added_while_papers_are_read_is_read_afterwards(
    library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, begun, resume = SimpleQueue[Library](), Event(), Event()

    def slow(library: Library, **_: object) -> None:
        begun.set()
        assert resume.wait(60)
        read.put(library)

    monkeypatch.setattr(encoding, "encode", slow)
    background, changed = BackgroundEncoding(), Library.open(library.path)
    background.start(library)
    assert begun.wait(60)
    background.start(changed)
    resume.set()
    assert [read.get(timeout=60), read.get(timeout=60)] == [library, changed]
