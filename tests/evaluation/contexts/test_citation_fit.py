"""Whether citing sentences fit what they cite, on made data."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from citerec.base.errors import InputError
from citerec.datasets.records import OTHER_MARKER, TARGET_MARKER
from citerec.evaluation.benchmarks.contexts.citation_fit import (
    NONE,
    PARTS,
    REFUTE,
    SUPPORT,
    FitSettings,
    auc,
    found_at,
    measure,
    read_claims,
)

TOPICS = (
    "trees",
    "graphs",
    "whales",
    "lasers",
    "poems",
    "markets",
    "enzymes",
    "volcanoes",
    "bridges",
    "stars",
)


def write(folder: Path) -> Path:
    """Sentences about a topic; those without evidence cite a document about another."""
    documents, number = [], 0
    for part in PARTS:
        claims = []
        for place in range(40):
            label, topic = (SUPPORT, REFUTE, NONE, SUPPORT)[place % 4], TOPICS[place % 10]
            about = TOPICS[(place + 5) % 10] if label == NONE else topic
            sentences = [
                f"We study {about}.",
                "",
                f"Old {about} are {'rare' if label == REFUTE else 'large'}.",
            ]
            documents.append({"doc_id": number, "title": "", "abstract": sentences})
            evidence = {} if label == NONE else {str(number): [{"sentences": [2], "label": label}]}
            text = f"Old {topic} are large <|cit|>, as are others <|other_cit|>."
            claims.append({"id": place, "claim": text, "evidence": evidence, "cited_doc_ids": [number]})
            number += 1
        lines = "".join(json.dumps(one) + "\n" for one in claims)
        (folder / f"claims_{part}.jsonl").write_text(lines)
    (folder / "corpus.jsonl").write_text("".join(json.dumps(one) + "\n" for one in documents))
    return folder


def test_what_is_about_another_subject_is_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    claims = read_claims(write(tmp_path) / "claims_dev.jsonl")
    assert claims[0].text == f"Old trees are large {TARGET_MARKER} , as are others {OTHER_MARKER} ."
    assert [claim.label for claim in claims[:4]] == [SUPPORT, REFUTE, NONE, SUPPORT]
    measure(FitSettings(data=str(tmp_path)))
    rows = [line.strip("| ").split(" | ") for line in capsys.readouterr().out.splitlines()[2:]]
    found = {name: (share, float(area), float(most)) for name, share, area, most in rows}
    assert found[NONE] == ("10 of 40", 1, 1)
    assert found["swapped, at random"][0] == "3 of 23" and found["swapped, at random"][1] > 0.8
    (tmp_path / "corpus.jsonl").write_text('{"doc_id": 7, "abstract": ["a"]}\n')
    with pytest.raises(InputError, match=r"corpus\.jsonl: has no text of 119 documents, such as 0"):
        measure(FitSettings(data=str(tmp_path)))


@given(st.lists(st.tuples(st.integers(0, 5), st.booleans()), min_size=2, max_size=20))
def test_measures(pairs: list[tuple[int, bool]]) -> None:
    scores, bad = np.array([float(score) for score, _ in pairs]), np.array([is_bad for _, is_bad in pairs])
    if bad.all() or not bad.any():
        return
    wins = [(one > other) + (one == other) / 2 for one in scores[bad] for other in scores[~bad]]
    assert auc(scores, bad) == pytest.approx(np.mean(wins))
    assert found_at(scores, bad, 0) == 1 and 0 <= found_at(scores, bad, 0.9) <= 1
