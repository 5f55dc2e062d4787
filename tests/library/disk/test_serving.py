"""Shards over Ray Serve: the same answers; a shard that dies or stands still is left out, and comes back."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from citerec import recommend
from citerec.library.disk.library import LargeLibrary
from citerec.library.disk.serving import ServedRecommender, served
from citerec.library.explanation import note_on
from citerec.library.recommender import Recommender

pytestmark = pytest.mark.slow
ATTEMPTS = 400
"""How often a condition is tried before the test fails; replicas take seconds to start."""


def build(folder: Path, titles: list[str]) -> None:
    source = folder.parent / "papers.jsonl"
    papers = [{"id": f"p{n}", "title": title, "year": 2000} for n, title in enumerate(titles)]
    source.write_text("".join(json.dumps(paper) + "\n" for paper in papers), "utf-8")
    recommend.run(
        ["build", f"library={folder}", f"source={source}", "storage=disk", "workers=1", "overwrite=true"]
    )


TITLES = [f"{first} {second} of trees" for first in ("Parsing", "Growing") for second in ("graphs", "roots")]


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("served") / f"served{os.getpid()}"
    build(folder, TITLES)
    return folder


@pytest.fixture(scope="module")
def recommender(library: Path) -> Iterator[ServedRecommender]:
    with served(library, replicas=1, deadline=20) as opened:
        yield opened


def ask(recommender: Recommender) -> tuple[list[str], str]:
    found = recommender.recommend("We grow roots as usual [CITE].", k=4)
    return [paper.id for paper in found], note_on(found)


def wait_for(condition: Callable[[], bool]) -> None:
    for _ in range(ATTEMPTS):
        if condition():
            return
        time.sleep(0.2)
    pytest.fail(f"not so after {ATTEMPTS} attempts")


def replicas(library: Path) -> list[int]:
    """The processes of the replicas of a library's shards."""
    found = subprocess.run(
        ["pgrep", "-f", f"ServeReplica:{library.name}-"], capture_output=True, text=True, check=False
    )
    return [int(line) for line in found.stdout.split()]


def test_answers_changes_deaths_and_new_builds(recommender: ServedRecommender, library: Path) -> None:
    expected = ask(Recommender.open(library))
    assert ask(recommender) == expected

    added = library.parent / "more.jsonl"
    added.write_text(json.dumps({"id": "new", "title": "Growing roots as usual"}) + "\n", "utf-8")
    recommend.run(["add", f"library={library}", f"source={added}"])
    assert ask(recommender)[0][0] == "new"

    [pid] = replicas(library)
    recommender.library.shards.deadline = 1.0
    os.kill(pid, signal.SIGKILL)
    ids, note = ask(recommender)
    if not ids:  # unless it is back already
        assert note == "partial: 1 of the library's shards did not answer in time"
    recommender.library.shards.deadline = 20.0
    wait_for(lambda: ask(recommender) == (["new", *ids[1:]] if ids else ask(recommender)[0], ""))
    assert replicas(library) != [pid]

    [pid] = replicas(library)
    whole = ask(recommender)
    recommender.library.shards.deadline = 1.0
    os.kill(pid, signal.SIGSTOP)
    assert ask(recommender) == ([], "partial: 1 of the library's shards did not answer in time")
    os.kill(pid, signal.SIGCONT)
    recommender.library.shards.deadline = 20.0
    wait_for(lambda: ask(recommender) == whole)

    build(library, [*TITLES, "Roots grow as usual, we grow roots"])
    assert LargeLibrary.open(library).manifest.generation > 1
    assert ask(recommender) == ask(Recommender.open(library))
    wait_for(lambda: len(replicas(library)) == 1)
