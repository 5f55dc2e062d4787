"""Recommendations and their explanations: matching sentences, names and citing sentences.

Explanations are computed only for the papers shown, and from texts rather than the ranker, so that users can
check them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np
import Stemmer
from bm25s.stopwords import STOPWORDS_EN_PLUS
from numpy.typing import NDArray

from citerec.datasets.columns import Ragged
from citerec.datasets.corpus import Corpus
from citerec.datasets.records import OTHER_MARKER, TARGET_MARKER, TARGET_WORD, TRAIN
from citerec.retrieval.article_text import sentence_starts
from citerec.retrieval.terms import strip_markers

Spans = tuple[tuple[int, int], ...]
"""Parts of a text as (start, end)."""
MARK = "[CITE]"
"""A missing citation, in queries and in the output."""


@dataclass(frozen=True)
class Explanation:
    """Why a paper is recommended. Fields without evidence are empty.

    sentence: best matching sentence of the abstract. matched: spans of its words that are in the query.
    in_title: matching words of the title, if no sentence matches. name: name of the paper that the query's
    sentence contains. cited_as: sentence in which another paper cites it, with [CITE] at the citation.
    """

    sentence: str = ""
    matched: Spans = ()
    in_title: tuple[str, ...] = ()
    name: str = ""
    cited_as: str = ""

    @property
    def why(self) -> str:
        """The explanation in one line."""
        reasons = [f"{self.name} is named here"] if self.name else []
        if self.in_title and not self.name:
            reasons.append(f"its title contains {', '.join(f'“{word}”' for word in self.in_title)}")
        elif self.sentence:
            reasons.append(f"“{excerpt(self.sentence, self.matched, MAX_EXCERPT)}”")
        if self.cited_as:
            mark = self.cited_as.find(MARK)
            reasons.append(f"cited as “{excerpt(self.cited_as, ((mark, mark + len(MARK)),), MAX_EXCERPT)}”")
        return "; ".join(reasons) or NO_EVIDENCE


@dataclass(frozen=True)
class Recommendation:
    """A recommended paper; year None and empty fields are unknown. features: the ranker's, if requested."""

    rank: int
    score: float
    id: str
    key: str
    title: str
    authors: tuple[str, ...] = ()
    year: int | None = None
    venue: str = ""
    evidence: Explanation = field(default_factory=Explanation)
    features: dict[str, float] = field(default_factory=dict)

    @property
    def why(self) -> str:
        return self.evidence.why

    def as_json(self) -> dict[str, Any]:
        """Return the fields that every interface shows."""
        return {name: getattr(self, name) for name in ("rank", "score", "id", "key", "title", "year", "why")}


# Words of a query and their weights.

MAX_EXCERPT = 150
"""Approximate maximum length of a sentence in `why`, in characters."""
NO_EVIDENCE = "shares no distinctive words with the text"
_WORD = re.compile(r"[^\W_]{2,}")
_STOPWORDS = frozenset(STOPWORDS_EN_PLUS)
_HALF_DISTANCE = 12
"""Distance from the mark, in words, that halves the weight of a word."""
_OTHER_SENTENCE_WEIGHT = 0.5
"""Weight of words in other sentences, relative to words in the mark's sentence."""
_TITLE_WEIGHT = 0.3
"""Weight of words in the citing title, relative to words at the mark."""
_K1, _B, _USUAL_LENGTH = 1.2, 0.75, 20
"""BM25 parameters over sentences, and the average length of a sentence in words."""

Rarity = Callable[[str], float]
"""idf of a lower-case word."""


@cache
def _stemmer() -> Stemmer.Stemmer:
    return Stemmer.Stemmer("english")


def _words(text: str) -> Iterable[tuple[str, int, int]]:
    """Yield the words of a text except stop words and numbers, in lower case, as (word, start, end)."""
    for match in _WORD.finditer(text):
        word = match[0].lower()
        if word not in _STOPWORDS and not word.isdecimal():
            yield word, match.start(), match.end()


def stem_weights(context: str, title: str, rarity: Rarity) -> dict[str, float]:
    """Weight the stems of a query by rarity and distance from the mark.

    context: with TARGETCIT. title: of the citing paper.
    """
    context = context.replace(OTHER_MARKER, " " * len(OTHER_MARKER))
    mark, (first, last) = max(context.find(TARGET_MARKER), 0), sentence_around(context)
    words = [found for found in _words(context) if found[0] != TARGET_WORD]
    before = sum(start < mark for _, start, _ in words)
    weights: dict[str, float] = {}
    stem = _stemmer().stemWord
    for index, (word, start, _) in enumerate(words):
        distance = before - 1 - index if index < before else index - before
        weight = rarity(word) / (1 + distance / _HALF_DISTANCE)
        weight *= 1 if first <= start < last else _OTHER_SENTENCE_WEIGHT
        weights[stem(word)] = max(weight, weights.get(stem(word), 0))
    for word, *_ in _words(title):
        weights.setdefault(stem(word), _TITLE_WEIGHT * rarity(word))
    return weights


def sentence_around(context: str) -> tuple[int, int]:
    """Return (start, end) of the sentence that contains the mark."""
    mark = max(context.find(TARGET_MARKER), 0)
    bounds = [0, *sentence_starts(context), max(len(context), 1)]
    return next((a, b) for a, b in pairwise(bounds) if a <= mark < b)


def best_sentence(text: str, weights: dict[str, float], least: float = 0.0) -> tuple[str, Spans]:
    """Return the sentence with the highest BM25 for weighted stems, and the spans of its matching words.

    Ties go to the first; ("", ()) if no sentence has matching words with a total weight above `least`.

    >>> best_sentence("Trees are old. We parse graphs.", {"pars": 2.0, "graph": 1.0})
    ('We parse graphs.', ((3, 8), (9, 15)))
    """
    stem = _stemmer().stemWord
    best = 0.0
    found: tuple[str, Spans] = ("", ())
    for start, end in pairwise([0, *sentence_starts(text), len(text)]):
        sentence = text[start:end].strip()
        words = [(stem(word), a, b) for word, a, b in _words(sentence)]
        stems = {word for word, *_ in words if word in weights}
        total = sum(weights[word] for word in stems)
        score = total / (1 + _K1 * (1 - _B + _B * len(words) / _USUAL_LENGTH))
        if score > best and total > least and "://" not in sentence:  # "Project page: https://..."
            best, found = score, (sentence, tuple((a, b) for word, a, b in words if word in stems))
    return found


def excerpt(text: str, spans: Spans, longest: int) -> str:
    """Cut a text to about `longest` characters at word boundaries, keeping as many spans as possible."""
    if len(text) <= longest:
        return text
    shown = [sum(a >= first and b <= first + longest for a, b in spans) for first, _ in spans]
    start = end = 0
    if shown:
        start = spans[shown.index(max(shown))][0]
        end = max(b for a, b in spans if a == start or (start <= a and b <= start + longest))
    start = max(0, min(start - (longest - (end - start)) // 2, len(text) - longest))
    end = start + longest
    while start > 0 and not text[start - 1].isspace() and start + longest // 2 < end:
        start += 1
    while end < len(text) and not text[end].isspace() and start + longest // 2 < end:
        end -= 1
    return ("… " if start else "") + text[start:end].strip() + (" …" if end < len(text) else "")


# Names of papers and methods.

_PART = re.compile(r"[^\W_]+(?:[-+.][^\W_]+)*\+*")
_FUNCTION_WORDS = re.compile("a|an|and|as|at|by|for|from|in|into|of|on|or|the|to|via|with", re.IGNORECASE)
_MAX_NAME_WORDS = 3
"""Maximum number of words in a name before the colon of a title."""
_DIMENSIONS = re.compile(r"\d[dD]|\d+(?:st|nd|rd|th)|\d[\d.,]*")


def paper_names(title: str) -> list[str]:
    """Return possible names: the title up to a colon, words with inner capitals or digits, initials.

    >>> paper_names("BERT: Pre-training of Deep Bidirectional Transformers")
    ['BERT']
    >>> paper_names("ImageNet Classification with VGG-16"), paper_names("Latent Dirichlet Allocation")
    (['ImageNet', 'VGG-16'], ['LDA'])
    """
    names: dict[str, None] = {}
    head, colon, _ = title.partition(":")
    words = head.split()
    if colon and 0 < len(words) <= _MAX_NAME_WORDS and all(w[:1].isupper() or w[:1].isdigit() for w in words):
        names[head.strip()] = None
    if title.upper() != title:  # capitals mean nothing in an all-caps title
        for match in _PART.finditer(title):
            parts = re.split(r"(?<=[^\W_])[-+.]", match[0])
            is_name = [_is_name(part) for part in parts]
            if any(is_name):
                whole = all(name or part.isdigit() for name, part in zip(is_name, parts, strict=True))
                names[match[0] if whole else parts[is_name.index(True)]] = None
        words = [part for part in re.split(r"[\s-]+", head) if part and not _FUNCTION_WORDS.fullmatch(part)]
        if 3 <= len(words) <= 6 and all(word[0].isupper() for word in words):
            names["".join(word[0] for word in words)] = None
    return list(names)


def _is_name(word: str) -> bool:
    """True if a word has a capital or digit after its first letter."""
    inner = any(char.isupper() or char.isdigit() for char in word[1:])
    return len(word) > 1 and inner and not _DIMENSIONS.fullmatch(word)


def mentioned_name(context: str, names: Sequence[str]) -> str:
    """Return the name nearest to the mark in its sentence; "" if none. Only mixed-case names ignore case.

    >>> mentioned_name("as in word2vec and BERTs (TARGETCIT)", ["Word2Vec", "BERT"])
    'BERT'
    """
    start, end = sentence_around(context)
    context = context[start:end]
    mark = max(context.find(TARGET_MARKER), 0)
    letters = context.lower().replace("-", "")
    found: tuple[int, str] | None = None
    for name in names:
        if name.lower().replace("-", "") not in letters:  # nearly always: saves compiling a pattern
            continue
        mixed = any(char.islower() for char in name[1:]) and _is_name(name)
        written = re.escape(name).replace(r"\-", "-?")
        pattern = rf"(?<![^\W_]){written}(?:s|es)?(?![^\W_])"
        for match in re.finditer(pattern, context, re.IGNORECASE if mixed else 0):
            nearness = min(abs(match.start() - mark), abs(match.end() - mark))
            if name not in (TARGET_MARKER, OTHER_MARKER) and (found is None or nearness < found[0]):
                found = nearness, name
    return found[1] if found else ""


# Evidence in a corpus.

_MARKERS = rf"(?:{TARGET_MARKER}|{OTHER_MARKER})"
_BRACKETED = re.compile(rf"[\[(]({_MARKERS}(?:[,;\s]+{_MARKERS})*)[\])]")
MAX_CONTEXTS = 50
"""Maximum number of citing contexts per paper to compare with the query."""
_MIN_EVIDENCE = 0.2
"""Minimum weight of a sentence, as a share of an unknown word's idf: "training" alone is no evidence."""
_MAX_FREQUENCY = 0.01
"""Occurrences per paper above which a name, such as LLM, identifies no paper."""


class EvidenceFinder:
    """Finds evidence for the papers of a corpus. Citing sentences come from its training split."""

    def __init__(self, corpus: Corpus) -> None:
        self._corpus = corpus
        self._papers = len(corpus.paper_ids)
        self._rows = corpus.word_ids
        self._cited: Ragged | None = None
        if TRAIN in corpus.splits:
            from citerec.retrieval.bm25 import citing_contexts

            self._cited = citing_contexts(corpus.splits[TRAIN], self._papers, MAX_CONTEXTS)

    def rarity(self, word: str) -> float:
        """Return the idf of a word (Lucene's formula), from its number of occurrences in the corpus."""
        n = min(self._count(word), self._papers)
        return math.log(1 + (self._papers - n + 0.5) / (n + 0.5))

    def _count(self, word: str) -> int:
        row = self._rows.get(word)
        return 0 if row is None else int(self._corpus.word_counts[row])

    def evidence(
        self, context: str, papers: Sequence[int], title: str = "", citing: int | None = None
    ) -> list[Explanation]:
        """Explain papers (rows) for a context with TARGETCIT. title, citing: of the citing paper, its row."""
        weights, least = stem_weights(context, title, self.rarity), _MIN_EVIDENCE * self.rarity("")
        found = []
        for paper, cited_as in zip(papers, self._citing_sentences(context, papers, citing), strict=True):
            title = self._corpus.titles[paper]
            sentence, matched = best_sentence(self._corpus.abstracts[paper], weights, least)
            spans = () if sentence else best_sentence(title, weights, least)[1]
            in_title = tuple(dict.fromkeys(title[a:b] for a, b in spans))
            name = mentioned_name(context, list(filter(self._is_distinctive, paper_names(title))))
            found.append(Explanation(sentence, matched, in_title, name, cited_as))
        return found

    def _is_distinctive(self, name: str) -> bool:
        """True if a name has several words or is rare in the corpus."""
        return " " in name or self._count(name.lower()) <= max(10, _MAX_FREQUENCY * self._papers)

    def _citing_sentences(self, context: str, papers: Sequence[int], citing: int | None) -> list[str]:
        """Return, for each paper, the citing sentence of the training context most similar to the query."""
        if self._cited is None or not len(papers):
            return [""] * len(papers)
        contexts = self._cited.take(np.asarray(papers, np.int64))
        similarity = self._similarity(context, contexts.values)
        if citing is not None:
            similarity[self._corpus.citing[contexts.values] == citing] = -1
        sentences = []
        for start, end in pairwise(contexts.offsets.tolist()):
            best = start + int(np.argmax(similarity[start:end])) if end > start else -1
            if best >= 0 and similarity[best] > 0:
                sentences.append(citing_sentence(self._corpus.context_texts[contexts.values[best]]))
            else:
                sentences.append("")
        return sentences

    def _similarity(self, context: str, others: NDArray[np.int32]) -> NDArray[np.float64]:
        """Return BM25 of contexts [n] for the words of one context, each counted once."""
        known = {self._rows.get(word, -1) for word, *_ in _words(strip_markers(context))} - {-1}
        words = np.array(sorted(known), np.int64)
        if not len(words):
            return np.zeros(len(others))
        rarity = np.array([self.rarity(self._corpus.words[row]) for row in words])
        tokens = self._corpus.context_tokens.take(others)
        index = np.minimum(np.searchsorted(words, tokens.values), len(words) - 1)
        found = words[index] == tokens.values
        owner = np.repeat(np.arange(len(others)), tokens.lengths)
        pairs = np.unique(owner[found] * len(words) + index[found])
        total = np.bincount(pairs // len(words), rarity[pairs % len(words)], minlength=len(others))
        lengths = tokens.lengths / max(tokens.lengths.mean(), 1) if len(others) else tokens.lengths
        return np.asarray(total / (1 + _K1 * (1 - _B + _B * lengths)))


def citing_sentence(context: str) -> str:
    """Return the sentence with the mark, shown as [CITE]; with an ellipsis where the context cuts it.

    >>> citing_sentence("of trees. Graphs are parsed well by TARGETCIT, OTHERCIT. We")
    'Graphs are parsed well by [CITE], […].'
    """
    start, end = sentence_around(context)
    sentence = context[start:end].strip()
    if start == 0 and not sentence[:1].isupper() and not sentence.startswith(TARGET_MARKER):
        sentence = f"… {sentence}"
    if end >= len(context) and not re.search(r"[.!?][\"')\]]*$", sentence):
        sentence = f"{sentence} …"
    sentence = _BRACKETED.sub(r"\1", sentence)
    return sentence.replace(TARGET_MARKER, MARK).replace(OTHER_MARKER, "[…]")
