"""Whether citing sentences fit what they cite: python -m citerec.evaluation.benchmarks.contexts.citation_fit

Citation-Integrity (Sarol et al. 2024, https://doi.org/10.1093/bioinformatics/btae420) has citing sentences,
sentences of the cited papers, and whether these support them. What the built-in model tells of the two, by
words and vectors of the best sentences, is weighed by a logistic regression: fitted on the training part,
with a penalty chosen on the dev part, and reported on the test part.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.stats import rankdata

from citerec.base.arguments import command
from citerec.base.errors import InputError
from citerec.base.files import expand_user
from citerec.base.settings import Settings
from citerec.datasets.formats.json_lines import read_objects
from citerec.datasets.records import OTHER_MARKER, TARGET_MARKER
from citerec.datasets.tokenize import default_tokenize
from citerec.hatten.static.model import StaticModel
from citerec.library.fulltexts.encoding import WordsEncoder
from citerec.library.models import BUILT_IN, NETWORKS
from citerec.retrieval.arrays import Floats
from citerec.retrieval.networks.networks import Networks

PARTS = ("train", "dev", "test")
SUPPORT, REFUTE, NONE = "SUPPORT", "REFUTE", "no evidence"
PRECISION = 0.9
SWAPPED = 10
"""Of so many citations, one is swapped."""
TOP = 3
"""Best sentences whose mean counts, too."""
MOST = 64
"""Subwords of a sentence."""
PENALTIES = (0.1, 1.0, 10.0, 100.0)
_MARK = re.compile(r"<\|(\w+)\|>")


@dataclass(frozen=True, kw_only=True)
class FitSettings(Settings):
    """Report how well bad citations are told from good ones."""

    data: str
    """folder with corpus.jsonl and claims_train.jsonl, claims_dev.jsonl, claims_test.jsonl"""


class Claim(NamedTuple):
    text: str
    document: int
    label: str


def read_claims(path: Path) -> list[Claim]:
    """Read citing sentences, each with its mark, the cited document, and what that says."""
    claims = []
    for _, one in read_objects(path, lambda _: None):
        labels = {found["label"] for listed in one["evidence"].values() for found in listed}
        label = REFUTE if REFUTE in labels else SUPPORT if labels else NONE
        text, marks = str(one["claim"]), 0
        for kind in _MARK.findall(text):
            is_own = kind != "other_cit" and not marks
            marks += is_own
            text = _MARK.sub(f" {TARGET_MARKER} " if is_own else f" {OTHER_MARKER} ", text, count=1)
        claims.append(Claim(" ".join(text.split()), int(one["cited_doc_ids"][0]), label))
    return claims


class Features:
    """What is known of a citing sentence and a document, by the built-in model."""

    def __init__(self, documents: dict[int, list[str]], claims: Sequence[str]) -> None:
        sentences = [sentence for listed in documents.values() for sentence in listed]
        ends = np.cumsum([len(listed) for listed in documents.values()])
        self.places = {
            key: (end - len(documents[key]), end) for key, end in zip(documents, ends, strict=True)
        }
        self.words, self.claims = [*map(_words, sentences)], [*map(_words, claims)]
        counts = Counter(word for words in self.words for word in words)
        self.rarity = {word: np.log((len(sentences) + 1) / (count + 1)) for word, count in counts.items()}
        self.unseen = float(np.log(len(sentences) + 1))
        static = WordsEncoder(StaticModel.open(BUILT_IN / StaticModel.folder).retriever())
        networks = Networks.open(BUILT_IN / NETWORKS)
        asked = networks.reader.passages(claims, [""] * len(claims))
        found = networks.reader.subwords(sentences, MOST)
        self.vectors = [
            (_unit(static.encode_queries(claims)), _unit(static.encode(sentences))),
            (networks.vectors(asked), networks.vectors(found)),
        ]

    def of(self, claim: int, document: int) -> list[float]:
        """Return the features of a claim (its number) and a document."""
        start, end = self.places[document]
        words, inside = self.claims[claim], self.words[start:end]
        total = self._weight(words) or 1.0
        shared = np.array([self._weight(words & one) / total for one in inside])
        made = [
            self._weight(words & set().union(*inside)) / total,
            np.log(len(words) + 1),
            np.log(end - start),
        ]
        for scores in (shared, *(them[start:end] @ mine[claim] for mine, them in self.vectors)):
            best = np.sort(scores)[::-1]
            made += [float(best[0]), float(best[:TOP].mean())]
        return made

    def _weight(self, words: Iterable[str]) -> float:
        return float(sum(self.rarity.get(word, self.unseen) for word in words))


def _words(text: str) -> set[str]:
    return set(default_tokenize(text.replace(TARGET_MARKER, " ").replace(OTHER_MARKER, " ")))


def _unit(vectors: Floats) -> Floats:
    return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-9)


def fit(features: Floats, bad: NDArray[np.bool_], penalty: float) -> Any:
    """Return a function of features [n, F] that scores how bad a citation is [n]: a logistic regression."""
    mean, scale = features.mean(0), np.maximum(features.std(0), 1e-9)

    def loss(weights: Floats) -> tuple[float, Floats]:
        inputs = (features - mean) / scale
        logits = inputs @ weights[1:] + weights[0]
        error = 1 / (1 + np.exp(-logits)) - bad
        value = float(
            np.logaddexp(0, logits).sum() - logits[bad].sum() + penalty / 2 * (weights[1:] ** 2).sum()
        )
        return value, np.concatenate([[error.sum()], inputs.T @ error + penalty * weights[1:]])

    weights = minimize(loss, np.zeros(features.shape[1] + 1), jac=True, method="L-BFGS-B").x
    return lambda given: (given - mean) / scale @ weights[1:] + weights[0]


def auc(scores: Floats, bad: NDArray[np.bool_]) -> float:
    """Return how often a bad citation scores above a good one.

    >>> auc(np.array([3.0, 2.0, 1.0]), np.array([True, False, False]))
    1.0
    """
    count = int(bad.sum())
    return float((rankdata(scores)[bad].sum() - count * (count + 1) / 2) / (count * (len(bad) - count)))


def found_at(scores: Floats, bad: NDArray[np.bool_], precision: float = PRECISION) -> float:
    """Return the largest share of bad citations that a threshold finds with at least this precision.

    >>> found_at(np.array([3.0, 2.0, 1.0, 0.0]), np.array([True, False, True, False]))
    0.5
    """
    hits = np.cumsum(bad[np.argsort(-scores, kind="stable")])
    good = hits / np.arange(1, len(bad) + 1) >= precision
    return float(hits[good].max(initial=0) / bad.sum())


def measure(settings: FitSettings) -> None:
    """Print a line for each kind of bad citations: share, AUC, and share found at PRECISION."""
    folder = expand_user(settings.data)
    claims = {part: read_claims(folder / f"claims_{part}.jsonl") for part in PARTS}
    every = [claim for part in PARTS for claim in claims[part]]
    wanted = {claim.document for claim in every}
    texts = {
        int(one["doc_id"]): [sentence for sentence in one["abstract"] if sentence.strip()]
        for _, one in read_objects(folder / "corpus.jsonl", lambda _: None)
        if int(one["doc_id"]) in wanted
    }
    if missing := sorted(key for key in wanted if not texts.get(key)):
        raise InputError(
            f"{folder / 'corpus.jsonl'}: has no text of {len(missing)} documents, such as {missing[0]}"
        )
    features = Features(texts, [claim.text for claim in every])
    starts = dict(zip(PARTS, np.cumsum([0, *(len(claims[part]) for part in PARTS)]).tolist(), strict=False))
    print("| bad citations | share | AUC | found at 90 % precision |\n| --- | --- | --- | --- |")
    given = {
        part: np.array([features.of(starts[part] + n, one.document) for n, one in enumerate(claims[part])])
        for part in PARTS
    }
    for name, labels in (("not supported", (REFUTE, NONE)), (REFUTE, (REFUTE,)), (NONE, (NONE,))):
        bad = {part: np.array([one.label in labels for one in claims[part]]) for part in PARTS}
        _report(name, given, bad)
    for name, near in (("swapped, at random", False), ("swapped for a near one", True)):
        swapped, bad = {}, {}
        for part in PARTS:
            supported = [n for n, one in enumerate(claims[part]) if one.label == SUPPORT]
            others = _others(features, claims[part], starts[part], supported, near)
            chosen = supported if part != "test" else supported[:: SWAPPED - 1]
            pairs = [features.of(starts[part] + n, others[n]) for n in chosen]
            swapped[part] = np.concatenate([given[part][supported], np.array(pairs)])
            bad[part] = np.arange(len(swapped[part])) >= len(supported)
        _report(name, swapped, bad)


def _others(
    features: Features, claims: Sequence[Claim], start: int, chosen: Sequence[int], near: bool
) -> dict[int, int]:
    """Return another document for each of the chosen claims. near: that of the most similar claim."""
    rng = np.random.default_rng(0)
    vectors = features.vectors[-1][0][start : start + len(claims)]
    found = {}
    for number in chosen:
        order = np.argsort(-(vectors @ vectors[number])) if near else rng.permutation(len(claims))
        others = (claims[other].document for other in order.tolist())
        found[number] = next(other for other in others if other != claims[number].document)
    return found


def _report(name: str, given: dict[str, Floats], bad: dict[str, NDArray[np.bool_]]) -> None:
    models = [fit(given["train"], bad["train"], penalty) for penalty in PENALTIES]
    best = max(models, key=lambda model: auc(model(given["dev"]), bad["dev"]))
    scores, is_bad = best(given["test"]), bad["test"]
    found = f"{found_at(scores, is_bad):.3f}"
    print(
        f"| {name} | {int(is_bad.sum())} of {len(is_bad)} | {auc(scores, is_bad):.3f} | {found} |", flush=True
    )


main = command("evaluation.benchmarks.contexts.citation_fit", FitSettings, measure)

if __name__ == "__main__":
    main()
