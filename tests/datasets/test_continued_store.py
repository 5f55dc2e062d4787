"""A store that extends another equals one prepared from scratch, except for word ids."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from citerec.base.errors import InputError
from citerec.datasets.columns import TableWriter, TextWriter, table_batches
from citerec.datasets.corpus import Corpus
from citerec.datasets.prepare import prepare_store
from citerec.datasets.records import ContextRecord, PaperRecord, QueryRecord, Source
from citerec.retrieval.queries import Queries
from citerec.tests.conftest import CONTEXTS, PAPERS
from citerec.tests.datasets.conftest import content

SETTINGS = {"tokenizer": "default", "candidates": "all"}
RECORDS = [
    PaperRecord(id, paper["title"], paper["abstract"], 2000 + row, ("a", "b")[: row % 3])
    for row, (id, paper) in enumerate(PAPERS.items())
]


def source(papers: list[PaperRecord], contexts: bool = True) -> Source:
    """A source of papers and the contexts among them."""
    ids = {paper.id for paper in papers}
    inside = {
        id: (split, citing, cited, text)
        for id, (split, citing, cited, text) in CONTEXTS.items()
        if contexts and citing in ids and cited in ids
    }
    queries = {
        split: [QueryRecord(id, [cited]) for id, (of, _, cited, _) in inside.items() if of == split]
        for split in ("train", "val", "test")
    }
    return Source(
        "tiny",
        {"papers": ",".join(sorted(ids))},
        papers=lambda: papers,
        contexts=lambda: [ContextRecord(id, text, citing) for id, (_, citing, _, text) in inside.items()],
        splits={split: partial(list, rows) for split, rows in queries.items() if rows},
    )


def store(folder: Path, papers: list[PaperRecord], **more: Any) -> Corpus:
    prepare_store(source(papers, **more.pop("only", {})), folder, SETTINGS, **more)
    return Corpus(folder)


@settings(max_examples=10, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(kept=st.sets(st.integers(0, len(RECORDS) - 1)), added=st.integers(0, 3))
def test_an_extended_store_equals_one_from_scratch(
    tmp_path_factory: pytest.TempPathFactory, kept: set[int], added: int
) -> None:
    more = [PaperRecord(f"new-{i}", f"New wörds of parsing {i}", "", 2020, ("c", "a")) for i in range(added)]
    rows = np.array(sorted(kept), np.int64)
    if not kept and not added:
        return
    folder = tmp_path_factory.mktemp("stores")
    old = store(folder / "old", RECORDS)
    new = store(
        folder / "new",
        more,
        only={"contexts": False},
        initialise=lambda builder: builder.copy_from(old, rows),
    )
    assert content(new) == content(store(folder / "scratch", [RECORDS[row] for row in rows] + more))
    assert new.words[: len(old.words)] == old.words
    kept_tokens = [new.title_tokens[row].tolist() for row in range(len(rows))]
    assert kept_tokens == [old.title_tokens[row].tolist() for row in rows]
    assert len({old.fingerprint, new.fingerprint}) == 2 or not added


def test_contexts_can_be_replaced(tmp_path: Path) -> None:
    old = store(tmp_path / "old", RECORDS)
    rows = np.arange(len(RECORDS) - 1)
    papers = {"papers": lambda: RECORDS[-1:]}
    whole = source(RECORDS)
    again = Source("tiny", {}, papers["papers"], whole.contexts, whole.splits)
    prepare_store(
        again,
        tmp_path / "new",
        SETTINGS,
        initialise=lambda builder: builder.copy_from(old, rows, contexts=False),
    )
    assert content(Corpus(tmp_path / "new")) == content(old)


def test_a_duplicate_id_is_refused(tmp_path: Path) -> None:
    old = store(tmp_path / "old", RECORDS)
    with pytest.raises(InputError, match="'graph': a paper with this id already exists"):
        store(
            tmp_path / "new",
            [RECORDS[1]],
            only={"contexts": False},
            initialise=lambda builder: builder.copy_from(old, np.array([0, 1])),
        )
    assert not (tmp_path / "new").exists()


def test_a_citing_paper_may_be_outside_the_corpus(tmp_path: Path) -> None:
    outside = Source(
        "tiny",
        {},
        papers=lambda: RECORDS[:2],
        contexts=lambda: [
            ContextRecord(f"c{row}", "As TARGETCIT parse.", citing, outside=True)
            for row, citing in enumerate("aba")
        ],
        splits={"train": lambda: [QueryRecord(f"c{row}", ["graph"]) for row in range(3)]},
    )
    prepare_store(outside, tmp_path / "old", SETTINGS)
    old = Corpus(tmp_path / "old")
    assert old.citing.tolist() == [-2, -3, -2] and old.seen.tolist() == [False, True]
    new = store(
        tmp_path / "new",
        RECORDS[4:5],
        only={"contexts": False},
        initialise=lambda builder: builder.copy_from(old, np.array([1])),
    )
    assert new.citing.tolist() == [-2, -3, -2] and new.splits["train"].positives[0].tolist() == [0]
    queries = Queries.from_contexts(old, np.arange(3))
    assert queries.texts("title") == [""] * 3 and queries.words("abstract").lengths.tolist() == [0] * 3
    assert queries.years.tolist() == [0] * 3 and queries.texts("context") == list(old.context_texts)


def test_repeated_copies_do_not_pile_up_small_batches(tmp_path: Path) -> None:
    path = tmp_path / "0.arrow"
    first = TextWriter(path, ("text",))
    first.append("0")
    first.close()
    for step in range(1, 6):
        schema, _ = table_batches(path)
        writer = TableWriter(tmp_path / f"{step}.arrow", schema)
        writer.append_rows(path, np.arange(step))
        writer.append(str(step))
        writer.close()
        path = tmp_path / f"{step}.arrow"
    (batch,) = table_batches(path)[1]
    assert batch.column("text").to_pylist() == list("012345")
