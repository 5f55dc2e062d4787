"""Settings of rerankers: invalid values, and values saved with a reranker."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

import pytest

from citerec.base.configuration import read_settings
from citerec.base.errors import InputError
from citerec.rerank.settings import (
    PairSettings,
    RerankerSettings,
    RerankingValidationSettings,
)


@pytest.mark.parametrize(
    ("kind", "given", "message"),
    [
        (PairSettings, {"citing": 0, "context": 0}, "citing text or context must have a share above 0"),
        (PairSettings, {"query": "paper", "citing": 0}, "citing text or context must have a share above 0"),
        (
            RerankingValidationSettings,
            {"monitor": "recall@7"},
            "recall@7: choose one of mrr, recall@1",
        ),
        (RerankingValidationSettings, {"candidates": 5}, "monitor=recall@10: choose one of mrr, recall@1$"),
        (RerankerSettings, {"lists": "top"}, r"model\.lists=top: model\.loss\.name=hinge needs"),
        (
            RerankerSettings,
            {"lists": "top", "loss": {"name": "pointwise"}, "negatives": {"siblings": 1}},
            r"siblings: only with model\.lists=cited",
        ),
    ],
)
def test_invalid_settings_raise_one_line_that_names_them(
    kind: type, given: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError, match=message) as raised:
        read_settings(kind, given)
    assert "\n" not in str(raised.value)


def test_saved_values_are_read_and_others_refused() -> None:
    given = PairSettings(query="paper", truncate="end")
    saved = json.loads(json.dumps(asdict(given)))
    assert PairSettings.from_dict(saved) == given
    for wrong, line in (
        ({"cut": "end"}, r"pairs\.cut: there is no such option"),
        ({"max_tokens": "many"}, r"pairs: Expected `int`, got `str`"),
    ):
        with pytest.raises(InputError, match=line):
            PairSettings.from_dict({**saved, **wrong})
