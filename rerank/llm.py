"""Reranking by a large language model that orders lists of candidates (Sun et al. 2023, RankGPT).

The model is asked over an OpenAI-compatible address, `POST BASE_URL/chat/completions`. Lists longer than a
window are ordered from their end, by windows that overlap. Answers are kept on disk, so nothing is asked or
paid twice and an interrupted evaluation goes on.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import random
import re
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from string import Template
from threading import Event, Lock
from typing import Any

import httpx2
import msgspec
import numpy as np
import yaml
from numpy.typing import NDArray

from citerec.base.errors import InputError, error_text
from citerec.base.files import atomic_write
from citerec.base.progress import count_progress
from citerec.datasets.corpus import Corpus
from citerec.datasets.records import OTHER_MARKER, TARGET_MARKER
from citerec.rerank.cross_encoder.scores import ScoredPairs
from citerec.rerank.settings import LLM, LlmSettings
from citerec.retrieval.queries import Queries

log = logging.getLogger(__name__)
logging.getLogger("httpx2").setLevel(logging.WARNING)  # otherwise it logs each request

LISTWISE = Path(__file__).parents[1] / "conf" / "llm" / "listwise.yaml"
"""The prompt of settings that have none."""
KEY = "OPENAI_API_KEY"
"""Environment variable with the key, if the server wants one."""
FORMAT = 1
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 120.0
"""Seconds before the second attempt, doubled for each further one; the longest that a server may ask for."""
CITATION = "[CITE]"
"""The missing citation in prompts."""
_TEMPORARY = (408, 409, 425, 429, *range(500, 600))


class _Message(msgspec.Struct):
    content: str | None = None


class _Choice(msgspec.Struct):
    message: _Message


class _Usage(msgspec.Struct):
    prompt_tokens: int
    completion_tokens: int


class _Response(msgspec.Struct):
    choices: list[_Choice]
    usage: _Usage | None = None


class Answer(msgspec.Struct):
    """An answer as it is kept. tokens: of prompt and answer, null if the server did not tell."""

    text: str
    tokens: tuple[int, int] | None
    seconds: float


class LlmReranker:
    """Orders the candidates of queries; has the interface of rerank.cross_encoder.scores.PairScores."""

    def __init__(self, settings: LlmSettings, corpus: Corpus, folder: str | Path) -> None:
        """folder: of the answers. Raises InputError for settings that lack an address or model."""
        for name in ("base_url", "model"):
            if not getattr(settings, name):
                raise InputError(f"reranker={LLM} needs {settings.where}.{name}")
        if not settings.prompt:
            listwise = yaml.safe_load(LISTWISE.read_text(encoding="utf-8"))
            settings = replace(settings, prompt=listwise["prompt"], system=listwise["system"])
        self.settings, self.corpus, self.folder = settings, corpus, Path(folder)
        self.name, self.scorer = f"{LLM} {settings.model}", self
        self.counts: Counter[str] = Counter()
        self._lock, self._stop = Lock(), Event()
        try:
            self._render(Queries.from_contexts(corpus, np.arange(0)), None, [])
        except (KeyError, ValueError) as error:
            raise InputError(f"{settings.where}.prompt: unknown or damaged placeholder ({error})") from None
        if "$papers" not in settings.prompt:
            raise InputError(f"{settings.where}.prompt: must contain $papers, the candidates' place")
        key = os.environ.get(KEY)
        self._http = httpx2.Client(
            headers={"Authorization": f"Bearer {key}"} if key else {}, timeout=settings.timeout
        )

    def candidate_scores(
        self, contexts: NDArray[np.int64], papers: NDArray[np.int32]
    ) -> tuple[NDArray[np.float32], ScoredPairs]:
        """Score the candidates of contexts [Q] as `score_candidates` does, and tell how long they took."""
        before = self.counts["asked"], self.counts["milliseconds"]
        scores = self.score_candidates(Queries.from_contexts(self.corpus, contexts), papers)
        pairs = scores[papers >= 0]
        seconds = (self.counts["milliseconds"] - before[1]) / 1000 / self.settings.parallel
        return scores, ScoredPairs(pairs, seconds, len(pairs) if self.counts["asked"] > before[0] else 0)

    def score_candidates(self, queries: Queries, papers: NDArray[np.int32]) -> NDArray[np.float32]:
        """Order candidates: papers [Q, K] in their former order, -1 for none -> scores [Q, K], higher is
        better, -inf for none.

        Raises InputError if the server does not answer; what was answered is kept.
        """
        scores = np.full(papers.shape, -np.inf, np.float32)
        with (
            count_progress(f"{self.name}: ordering lists", len(papers)) as advance,
            ThreadPoolExecutor(self.settings.parallel) as pool,
        ):
            try:
                rows = [np.flatnonzero(row >= 0) for row in papers]
                for query, order in enumerate(
                    pool.map(lambda i: self._order(queries, i, papers[i, rows[i]].tolist()), range(len(rows)))
                ):
                    scores[query, rows[query][order]] = np.arange(len(order), 0, -1)
                    advance(1)
            except BaseException:
                self._stop.set()
                pool.shutdown(wait=False, cancel_futures=True)
                raise
        return scores

    def facts(self) -> dict[str, Any]:
        """Tokens, money (cost: of all answers, spent: of new ones) and bad answers so far."""
        settings, counts = self.settings, self.counts
        facts: dict[str, Any] = {f"llm_{name}": counts[name] for name in COUNTED}
        if settings.price_in is not None and settings.price_out is not None:
            prices = np.array([settings.price_in, settings.price_out]) / 1e6
            for name, kind in (("cost", "tokens"), ("spent", "new_tokens")):
                tokens = np.array([counts[f"{kind}_in"], counts[f"{kind}_out"]])
                facts[f"llm_{name}"] = float(tokens @ prices)
        return facts

    def _order(self, queries: Queries, query: int, papers: list[int]) -> list[int]:
        """The order of a query's candidates, as positions in their former order."""
        order = list(range(len(papers)))
        end = len(order)
        while len(order) > 1:
            start = max(0, end - self.settings.window)
            shown = order[start:end]
            answer = self._ask(self._render(queries, query, [papers[place] for place in shown]))
            order[start:end] = [shown[place] for place in self._read_order(answer.text, len(shown))]
            if start == 0:
                break
            end -= self.settings.step
        return order

    def _read_order(self, text: str, count: int) -> list[int]:
        """The permutation of an answer such as `[2] > [3] > [1]`; what it lacks follows in former order."""
        text = text.rpartition("</think>")[2]
        named = [int(number) - 1 for number in re.findall(r"\[(\d{1,6})\]", text)]
        if not named and re.fullmatch(r"[\d\s>,.]+", text):
            named = [int(number) - 1 for number in re.findall(r"\d{1,6}", text)]
        order = list(dict.fromkeys(place for place in named if 0 <= place < count))
        missing = [place for place in range(count) if place not in set(order)]
        with self._lock:
            self.counts["answers"] += 1
            self.counts["unreadable"] += not order
            self.counts["completed"] += bool(order and missing)
            self.counts["missing_candidates"] += len(missing)
            self.counts["wrong_numbers"] += len(named) - len(order)
        return order + missing

    def _render(self, queries: Queries, query: int | None, papers: Sequence[int]) -> list[dict[str, str]]:
        """The messages that ask to order papers; query: None renders empty texts."""
        corpus, settings = self.corpus, self.settings
        fields = dict.fromkeys(("context", "title", "abstract"), "")
        if query is not None:
            single = queries[np.array([query])]
            fields = {name: " ".join(single.texts(name)[0].split()) for name in fields}
        context = fields["context"].replace(OTHER_MARKER, "").replace(TARGET_MARKER, CITATION)
        lines = []
        for number, paper in enumerate(papers, 1):
            year = f" ({corpus.years[paper]})" if corpus.years[paper] > 0 else ""
            abstract = " ".join(corpus.abstracts[paper].split()[: settings.abstract_words])
            lines.append(f"[{number}] {corpus.titles[paper]}{year}. {abstract}".rstrip())
        text = Template(settings.prompt).substitute(
            context=context,
            title=fields["title"],
            abstract=" ".join(fields["abstract"].split()[: settings.abstract_words]),
            papers="\n".join(lines),
            count=len(lines),
        )
        system = [{"role": "system", "content": settings.system}] if settings.system else []
        return [*system, {"role": "user", "content": text}]

    def _ask(self, messages: list[dict[str, str]]) -> Answer:
        """The answer to messages, from the disk if they were asked before."""
        settings = self.settings
        body: dict[str, Any] = {"model": settings.model, "messages": messages}
        body |= {} if settings.temperature is None else {"temperature": settings.temperature}
        body |= {} if settings.max_tokens is None else {"max_tokens": settings.max_tokens}
        key = hashlib.blake2b(json.dumps([FORMAT, body], sort_keys=True).encode(), digest_size=16).hexdigest()
        path = self.folder / key[:2] / f"{key}.json"
        answer = _kept(path)
        if is_new := answer is None:
            answer = self._post(body)
            with atomic_write(path) as file:
                file.write_bytes(msgspec.json.encode(answer))
        assert answer is not None
        with self._lock:
            self.counts["asked"] += is_new
            self.counts["milliseconds"] += round(1000 * answer.seconds)
            self.counts["without_usage"] += answer.tokens is None
            for name, tokens in zip(("in", "out"), answer.tokens or (0, 0), strict=True):
                self.counts[f"tokens_{name}"] += tokens
                self.counts[f"new_tokens_{name}"] += tokens * is_new
        return answer

    def _post(self, body: dict[str, Any]) -> Answer:
        """Ask the server, again after faults that may pass. InputError if it does not answer."""
        settings, reason, pause = self.settings, "", 0.0
        assert settings.base_url is not None
        server = f"{settings.model} at {httpx2.URL(settings.base_url).host}"
        draw = random.Random(str(body["messages"]))
        for attempt in range(settings.attempts):
            if self._stop.is_set():
                break
            if attempt:
                wait = max(
                    pause, min(FIRST_PAUSE * 2 ** (attempt - 1), LONGEST_PAUSE) * (0.5 + draw.random())
                )
                log.warning(f"{server}: {reason}; asking again in {wait:.0f} s")
                self._pause(wait)
            pause, begin = 0.0, time.perf_counter()
            try:
                response = self._http.post(f"{settings.base_url.rstrip('/')}/chat/completions", json=body)
            except (httpx2.InvalidURL, httpx2.UnsupportedProtocol) as error:
                raise InputError(f"{settings.where}.base_url: not an address ({error_text(error)})") from None
            except httpx2.HTTPError as error:
                reason = f"no answer ({type(error).__name__})"
                continue
            if response.status_code == 200:
                try:
                    answer = msgspec.json.decode(response.content, type=_Response)
                    text, usage = answer.choices[0].message.content or "", answer.usage
                except (msgspec.DecodeError, IndexError):
                    reason = "answers in an unknown form"
                    continue
                tokens = None if usage is None else (usage.prompt_tokens, usage.completion_tokens)
                return Answer(text, tokens, time.perf_counter() - begin)
            said = " ".join(response.text.split())[:200]
            reason = f"HTTP {response.status_code}: {said}"
            if response.status_code not in _TEMPORARY:
                hint = f"; set {KEY}" if response.status_code in (401, 403) else ""
                raise InputError(f"{server}: {reason}{hint}")
            asked = response.headers.get("Retry-After", "").strip()
            pause = float(asked) if asked.isdecimal() else 0.0
            if pause > LONGEST_PAUSE:
                raise InputError(
                    f"{server}: {reason}; asks to wait {pause:.0f} s: go on then, answers are kept"
                )
        raise InputError(f"{server}: {reason} ({settings.attempts} attempts); answers so far are kept")

    def _pause(self, seconds: float) -> None:
        self._stop.wait(seconds)


COUNTED = (
    *("answers", "asked", "unreadable", "completed", "missing_candidates", "wrong_numbers"),
    *("tokens_in", "tokens_out", "new_tokens_in", "new_tokens_out", "without_usage"),
)
"""What `facts` counts."""


def cost_lines(metrics: Mapping[str, Any]) -> list[str]:
    """Describe `facts` in a report."""
    counts = {name: metrics[f"llm_{name}"] for name in COUNTED}
    money = ""
    if "llm_cost" in metrics:
        money = f", at the given prices {metrics['llm_cost']:.4g} for all and {metrics['llm_spent']:.4g} now"
    unknown = f"; of {counts['without_usage']:,} the server told no tokens" if counts["without_usage"] else ""
    return [
        f"{counts['answers']:,} answers ({counts['asked']:,} new, the others kept): {counts['tokens_in']:,} "
        f"tokens of prompts and {counts['tokens_out']:,} of answers{unknown}{money}.",
        f"Of the answers, {counts['completed']:,} lacked candidates and {counts['unreadable']:,} had no "
        f"order; these {counts['missing_candidates']:,} candidates follow in their former order. "
        f"{counts['wrong_numbers']:,} numbers were wrong or repeated, and ignored.",
    ]


def _kept(path: Path) -> Answer | None:
    """An answer from the disk; None if there is none, or if it is damaged, with a warning."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=Answer)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.DecodeError) as error:
        log.warning(f"{path}: damaged ({error_text(error)}); asking again")
        return None
