"""Language models as rerankers, against a local server that answers as it is told."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from citerec.base.errors import InputError
from citerec.datasets.corpus import Corpus
from citerec.rerank.llm import LlmReranker, cost_lines
from citerec.rerank.settings import LlmSettings
from citerec.tests.conftest import Done, Server

CONTEXTS, PAPERS = np.array([8, 9]), np.array([[0, 1, 2, 3, 4], [5, 3, 1, -1, -1]], np.int32)


class Model(Server):
    """Answers with `answer(prompt)`: a text, or (status, body, headers) of a fault."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[dict[str, Any]] = []
        self.keys: list[str | None] = []
        self.tell_usage = True
        self.answer_prompt: Callable[[str], Any] = lambda prompt: backwards(prompt)

    def answer(self, request: Any) -> None:
        body = json.loads(request.rfile.read(int(request.headers["Content-Length"])))
        self.asked.append(body)
        self.keys.append(request.headers.get("Authorization"))
        assert request.path == "/v1/chat/completions"
        answer = self.answer_prompt(body["messages"][-1]["content"])
        status, headers = 200, {}
        if isinstance(answer, tuple):
            status, content, headers = answer
        else:
            usage = {"usage": {"prompt_tokens": 100, "completion_tokens": 10}} if self.tell_usage else {}
            content = json.dumps({"choices": [{"message": {"content": answer}}], **usage})
        request.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(content))}.items():
            request.send_header(name, value)
        request.end_headers()
        request.wfile.write(content.encode())


def numbers(prompt: str) -> list[str]:
    return re.findall(r"^\[(\d+)\]", prompt, re.MULTILINE)


def backwards(prompt: str) -> str:
    return " > ".join(f"[{number}]" for number in reversed(numbers(prompt)))


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> Iterator[Model]:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    served = Model()
    yield served
    served.http.shutdown()
    served.http.server_close()


@pytest.fixture
def make(model: Model, tiny_corpus: Corpus, tmp_path: Path) -> Callable[..., LlmReranker]:
    def made(**options: Any) -> LlmReranker:
        given = {"base_url": f"{model.url}/v1", "model": "small", "parallel": 2, **options}
        reranker = LlmReranker(LlmSettings(**given), tiny_corpus, tmp_path / "answers")
        reranker.pauses = []  # type: ignore[attr-defined]
        reranker._pause = reranker.pauses.append  # type: ignore[attr-defined, method-assign]
        return reranker

    return made


def test_candidates_get_the_order_of_the_model(
    make: Callable[..., LlmReranker], model: Model, tiny_corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    reranker = make(price_in=2.0, price_out=5.0)
    scores, scored = reranker.candidate_scores(CONTEXTS, PAPERS)
    assert np.argsort(-scores[0]).tolist() == [4, 3, 2, 1, 0] and scored.new == 8
    assert np.argsort(-scores[1])[:3].tolist() == [2, 1, 0] and np.isneginf(scores[1, 3:]).all()
    prompts = [one["messages"][-1]["content"] for one in model.asked]
    (prompt,) = [one for one in prompts if "[5]" in one]
    assert (
        "These 5 papers" in prompt
        and f"[5] {tiny_corpus.titles[4]} (2004). {tiny_corpus.abstracts[4]}" in prompt
    )
    assert "[CITE]" in prompt and "TARGETCIT" not in prompt and "OTHERCIT" not in prompt
    assert f"Title: {tiny_corpus.titles[tiny_corpus.citing[8]]}" in prompt
    assert model.keys == ["Bearer secret"] * 2 and {one["model"] for one in model.asked} == {"small"}
    facts = reranker.facts()
    assert facts["llm_tokens_in"] == facts["llm_new_tokens_in"] == 200
    assert facts["llm_cost"] == facts["llm_spent"] == pytest.approx((200 * 2 + 20 * 5) / 1e6)
    again = make(price_in=2.0, price_out=5.0)
    np.testing.assert_array_equal(again.candidate_scores(CONTEXTS, PAPERS)[0], scores)
    assert len(model.asked) == 2 and again.facts()["llm_spent"] == 0 < again.facts()["llm_cost"]
    assert "secret" not in "".join(path.read_text() for path in again.folder.rglob("*.json"))
    make(temperature=None).candidate_scores(CONTEXTS, PAPERS)
    assert len(model.asked) == 4 and "temperature" not in model.asked[-1]  # another question


def test_windows_go_from_the_end_to_the_beginning(make: Callable[..., LlmReranker], model: Model) -> None:
    best = "Document retrieval"  # the fourth candidate

    def best_first(prompt: str) -> str:
        found = dict(re.findall(r"^\[(\d+)\] (.+)$", prompt, re.MULTILINE))
        return " > ".join(f"[{number}]" for number in sorted(found, key=lambda one: best not in found[one]))

    model.answer_prompt = best_first
    scores, _ = make(window=2, step=1).candidate_scores(CONTEXTS[:1], PAPERS[:1])
    assert np.argsort(-scores[0]).tolist() == [3, 0, 1, 2, 4] and len(model.asked) == 4


@pytest.mark.parametrize(
    ("answer", "order", "counted"),
    [
        ("[3] > [1]", [2, 0, 1, 3, 4], {"completed": 1, "missing_candidates": 3, "wrong_numbers": 0}),
        ("[2] > [9] > [2] > [1] > [3] > [4] > [5]", [1, 0, 2, 3, 4], {"completed": 0, "wrong_numbers": 2}),
        ("I cannot say.", [0, 1, 2, 3, 4], {"unreadable": 1, "completed": 0, "missing_candidates": 5}),
        ("<think>[1] or [2]?</think>5, 4, 3, 2, 1", [4, 3, 2, 1, 0], {"unreadable": 0, "completed": 0}),
        ("The best of 5 is not here, 3 of 4.", [0, 1, 2, 3, 4], {"unreadable": 1}),
    ],
)
def test_bad_answers_are_completed_and_counted(
    make: Callable[..., LlmReranker], model: Model, answer: str, order: list[int], counted: dict[str, int]
) -> None:
    model.answer_prompt, model.tell_usage = lambda _: answer, False
    reranker = make(price_in=1.0, price_out=1.0)
    scores, _ = reranker.candidate_scores(CONTEXTS[:1], PAPERS[:1])
    facts = reranker.facts()
    assert np.argsort(-scores[0]).tolist() == order
    assert {name: facts[f"llm_{name}"] for name in counted} == counted
    assert "of 1 the server told no tokens" in cost_lines(facts)[0]


def test_faults_that_may_pass_are_asked_again(
    make: Callable[..., LlmReranker], model: Model, caplog: pytest.LogCaptureFixture
) -> None:
    faults = [(429, "slowly", {"Retry-After": "7"}), (503, "busy", {}), (200, "<html>", {})]
    model.answer_prompt = lambda prompt: faults.pop(0) if faults else backwards(prompt)
    reranker: Any = make()
    reranker.candidate_scores(CONTEXTS[:1], PAPERS[:1])
    assert reranker.pauses[0] == 7 and 1 <= reranker.pauses[1] <= 3 and 2 <= reranker.pauses[2] <= 6
    assert "small at 127.0.0.1: HTTP 429: slowly; asking again" in caplog.text


@pytest.mark.parametrize(
    ("fault", "message", "asked"),
    [
        ((401, "no key", {}), "small at 127.0.0.1: HTTP 401: no key; set OPENAI_API_KEY", 1),
        ((404, "no\nmodel", {}), "HTTP 404: no model", 1),
        ((500, "broken", {}), r"HTTP 500: broken \(3 attempts\); answers so far are kept", 3),
        ((429, "tomorrow", {"Retry-After": "9000"}), "asks to wait 9000 s", 1),
    ],
)
def test_a_server_that_does_not_answer_is_one_line_and_answers_are_kept(
    make: Callable[..., LlmReranker], model: Model, fault: Any, message: str, asked: int
) -> None:
    model.answer_prompt = lambda prompt: backwards(prompt) if "These 5" in prompt else fault
    with pytest.raises(InputError, match=message):
        make(attempts=3, parallel=1).candidate_scores(CONTEXTS, PAPERS)
    assert len(model.asked) == 1 + asked
    model.answer_prompt = backwards
    make().candidate_scores(CONTEXTS, PAPERS)
    assert len(model.asked) == 2 + asked  # the first list was kept
    model.http.shutdown()
    model.http.server_close()
    with pytest.raises(InputError, match=r"no answer \(ConnectError\) \(2 attempts\)"):
        make(attempts=2, temperature=1.0).candidate_scores(CONTEXTS, PAPERS)
    with pytest.raises(InputError, match=r"llm.base_url: not an address"):
        make(base_url="localhost/v1", temperature=1.0).candidate_scores(CONTEXTS, PAPERS)


def test_damaged_answers_are_asked_again(make: Callable[..., LlmReranker], model: Model) -> None:
    reranker = make()
    scores, _ = reranker.candidate_scores(CONTEXTS, PAPERS)
    for path in reranker.folder.rglob("*.json"):
        path.write_text(path.read_text()[:-5])
    np.testing.assert_array_equal(make().candidate_scores(CONTEXTS, PAPERS)[0], scores)
    assert len(model.asked) == 4


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"base_url": None}, "reranker=llm needs llm.base_url"),
        ({"model": None}, "reranker=llm needs llm.model"),
        ({"prompt": "Order $them of $papers"}, "placeholder .'them'"),
        ({"prompt": "Order them"}, r"must contain \$papers"),
        ({"window": 4, "step": 5}, "llm.step=5: must be at most llm.window=4"),
    ],
)
def test_incomplete_settings_are_one_line(
    make: Callable[..., LlmReranker], options: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        make(**options)


def test_the_pipeline_reports_what_it_cost(
    model: Model, tiny_source: Path, script: Callable[..., Done], tmp_path: Path
) -> None:
    model.answer_prompt = lambda prompt: "[2]"
    given = ["benchmark=pipeline", "retriever=bm25", "reranker=llm", "llm.model=small", "candidates=3"]
    given += [f"llm.base_url={model.url}/v1", "llm.price_in=1", "llm.price_out=1", "data=custom"]
    places = [f"data.dir={tiny_source}", f"data.cache_dir={tmp_path / 'cache'}"]
    done = script("evaluate.py", *given, *places, f"output_dir={tmp_path / 'out'}")
    assert done.code == 0, done.err
    metrics = json.loads((tmp_path / "out" / "metrics.json").read_text())
    assert (
        metrics["llm_answers"] == metrics["llm_completed"] + metrics["llm_unreadable"] == len(model.asked) > 2
    )
    assert metrics["reranker"] == "llm small" and metrics["llm_spent"] == pytest.approx(
        110e-6 * len(model.asked)
    )
    report = (tmp_path / "out" / "report.md").read_text()
    assert "lacked candidates" in report and f"{100 * len(model.asked):,} tokens of prompts" in report
    done = script("evaluate.py", *[one for one in given if "model=" not in one], *places, "output_dir=none")
    assert done.code == 2 and "reranker=llm needs llm.model" in done.err
