"""Losses of distillation against sums in plain Python."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from datasets.errors import InputError
from rerank.distil import DistilConfig, listwise_kl, margin_mse


def case(queries: int, papers: int, seed: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """A student's scores, a teacher's with gaps, and which papers are cited."""
    rng = np.random.default_rng(seed)
    student, teacher = (torch.from_numpy(rng.normal(size=(queries, papers))) for _ in range(2))
    teacher[torch.from_numpy(rng.random((queries, papers)) < 0.4)] = torch.nan
    return student.requires_grad_(), teacher, torch.from_numpy(rng.random((queries, papers)) < 0.3)


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 4), st.integers(1, 6), st.integers(0, 10_000))
def test_margin_mse_is_the_plain_mean_over_triplets(queries: int, papers: int, seed: int) -> None:
    student, teacher, cited = case(queries, papers, seed)
    errors = []
    for s, t, c in zip(student.tolist(), teacher.tolist(), cited.tolist(), strict=True):
        known = [place for place in range(papers) if not math.isnan(t[place])]
        for high in (place for place in known if c[place]):
            lower = [place for place in known if not c[place]]
            errors += [((s[high] - s[low]) - (t[high] - t[low])) ** 2 for low in lower]
    loss = margin_mse(student, teacher, cited)
    assert loss.item() == pytest.approx(sum(errors) / max(len(errors), 1))
    loss.backward()
    assert student.grad is not None and torch.isfinite(student.grad).all()


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 4), st.integers(1, 6), st.integers(0, 10_000), st.sampled_from([0.05, 1.0, 3.0]))
def test_kl_is_the_plain_mean_over_queries(queries: int, papers: int, seed: int, temperature: float) -> None:
    student, teacher, _ = case(queries, papers, seed)
    divergences = []
    for s, t in zip(student.tolist(), teacher.tolist(), strict=True):
        known = [place for place in range(papers) if not math.isnan(t[place])]
        if known:
            p = [math.exp(t[place] / 2) for place in known]
            q = [math.exp(s[place] / temperature) for place in known]
            p, q = ([value / sum(part) for value in part] for part in (p, q))
            divergences.append(sum(a * math.log(a / b) for a, b in zip(p, q, strict=True)))
    loss = listwise_kl(student, teacher, temperature, 2.0)
    assert loss.item() == pytest.approx(sum(divergences) / max(len(divergences), 1), abs=1e-9)
    loss.backward()
    assert student.grad is not None and torch.isfinite(student.grad).all()


@pytest.mark.parametrize("name", ["kl", "margin_mse"])
def test_a_student_that_says_the_same_has_nothing_to_learn(name: str) -> None:
    _, teacher, cited = case(5, 7, 1)
    same = torch.nan_to_num(teacher, nan=3.0) * 0.1 + 4.0  # of other papers it may say anything
    loss = DistilConfig(name, temperature=0.1)
    assert float(loss(same, teacher, cited)) == pytest.approx(0, abs=1e-12)
    assert float(loss(-same, teacher, cited)) > 0.1


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"name": "mse"}, r"model\.distil\.name=mse: choose kl or margin_mse"),
        ({"weight": 0.0}, r"model\.distil\.weight=0\.0: must be above 0, at most 1"),
        ({"weight": 1.5}, r"model\.distil\.weight=1\.5"),
        ({"temperature": 0.0}, r"model\.distil\.temperature=0\.0: must be above 0"),
        ({"teacher_temperature": 0.0}, r"model\.distil\.teacher_temperature=0\.0"),
    ],
)
def test_options_that_do_not_work_are_named(given: dict[str, float], message: str) -> None:
    with pytest.raises(InputError, match=message):
        DistilConfig(**given)  # type: ignore[arg-type]
