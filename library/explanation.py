"""Recommendations, and why a paper is one: the sentence, the name and the citations that speak for it.

Only for the few papers that are shown, from their texts: no ranker is asked, so that what is said of a paper
can be checked by reading it.
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

from datasets.columns import Ragged
from datasets.corpus import Corpus
from datasets.records import OTHER_MARKER, TARGET_MARKER, TARGET_WORD, TRAIN
from retrieval.article_text import sentence_starts
from retrieval.terms import strip_markers

Spans = tuple[tuple[int, int], ...]
"""Parts of a text, by their first character and the one after their last."""
MARK = "[CITE]"
"""How a missing citation is shown, and written by people who ask."""


@dataclass(frozen=True)
class Explanation:
    """Why a paper is recommended; what was not found is empty.

    sentence: of the abstract, that answers best; matched: its words that the question has, as spans.
    in_title: such words of the title, where no sentence answers. name: of the paper, that stands in the
    sentence of the question. cited_as: how another paper cites it, with [CITE] there.
    """

    sentence: str = ""
    matched: Spans = ()
    in_title: tuple[str, ...] = ()
    name: str = ""
    cited_as: str = ""

    @property
    def why(self) -> str:
        """In one line."""
        named = [f"{self.name} is named here"] if self.name else []
        said = [f"“{excerpt(self.sentence, self.matched, LONGEST)}”"] if self.sentence else []
        if self.in_title and not self.name:
            said = [f"its title has {', '.join(f'“{word}”' for word in self.in_title)}"]
        mark = self.cited_as.find(MARK)
        cited = excerpt(self.cited_as, ((mark, mark + len(MARK)),), LONGEST)
        return "; ".join(named + said + ([f"cited as “{cited}”"] if cited else [])) or NOTHING


@dataclass(frozen=True)
class Recommendation:
    """A recommended paper; year None and empty fields are unknown. features: the ranker's, to explain."""

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
        """The fields that every interface shows, and no others."""
        return {name: getattr(self, name) for name in ("rank", "score", "id", "key", "title", "year", "why")}


# Words, and how much each of a question tells.

LONGEST = 150
"""Characters shown of a sentence, about."""
NOTHING = "shares no distinctive words with the text"
_WORD = re.compile(r"[^\W_]{2,}")
_STOPWORDS = frozenset(STOPWORDS_EN_PLUS)
_NEAR = 12
"""Words from the mark at which a word counts half."""
_OUTSIDE = 0.5
"""What a word of another sentence than the mark's counts, beside one in it."""
_OF_TITLE = 0.3
"""What a word of the citing title counts, beside one at the mark."""
_K1, _B, _USUAL = 1.2, 0.75, 20
"""Of BM25 over sentences; words of a usual one."""

Rarity = Callable[[str], float]
"""How much a word, in lower case, tells: its idf."""


@cache
def _stemmer() -> Stemmer.Stemmer:
    return Stemmer.Stemmer("english")


def _words(text: str) -> Iterable[tuple[str, int, int]]:
    """The words of a text that mean something, in lower case, with their spans."""
    for match in _WORD.finditer(text):
        word = match[0].lower()
        if word not in _STOPWORDS and not word.isdecimal():
            yield word, match.start(), match.end()


def stem_weights(context: str, title: str, rarity: Rarity) -> dict[str, float]:
    """How much each stem of a question tells: its word's rarity, less the farther it is from the mark.

    context: with TARGETCIT; title: of the citing paper.
    """
    context = context.replace(OTHER_MARKER, " " * len(OTHER_MARKER))
    mark, (first, last) = max(context.find(TARGET_MARKER), 0), sentence_around(context)
    words = [found for found in _words(context) if found[0] != TARGET_WORD]
    before = sum(start < mark for _, start, _ in words)
    weights: dict[str, float] = {}
    stem = _stemmer().stemWord
    for place, (word, start, _) in enumerate(words):
        distance = before - 1 - place if place < before else place - before
        weight = rarity(word) / (1 + distance / _NEAR) * (1 if first <= start < last else _OUTSIDE)
        weights[stem(word)] = max(weight, weights.get(stem(word), 0))
    for word, *_ in _words(title):
        weights.setdefault(stem(word), _OF_TITLE * rarity(word))
    return weights


def sentence_around(context: str) -> tuple[int, int]:
    """The first character of the sentence of a context that has the mark, and the one after its last."""
    mark = max(context.find(TARGET_MARKER), 0)
    bounds = [0, *sentence_starts(context), max(len(context), 1)]
    return next((a, b) for a, b in pairwise(bounds) if a <= mark < b)


def best_sentence(text: str, weights: dict[str, float], least: float = 0.0) -> tuple[str, Spans]:
    """The sentence with the highest BM25 for stems of these weights, and the spans of its words among them.

    Of equals the first; ("", ()) if none has such words that weigh more than `least` together.

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
        score = total / (1 + _K1 * (1 - _B + _B * len(words) / _USUAL))
        if score > best and total > least and "://" not in sentence:  # "Project page: https://..."
            best, found = score, (sentence, tuple((a, b) for word, a, b in words if word in stems))
    return found


def excerpt(text: str, spans: Spans, longest: int) -> str:
    """A part of a text of about `longest` characters, of whole words, that shows most of the spans."""
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


# Names of papers, and of what they are about.

_PART = re.compile(r"[^\W_]+(?:[-+.][^\W_]+)*\+*")
_SMALL = re.compile("a|an|and|as|at|by|for|from|in|into|of|on|or|the|to|via|with", re.IGNORECASE)
_LONGEST_NAME = 3
"""Words of a name before the colon of a title."""
_DIMENSIONS = re.compile(r"\d[dD]|\d+(?:st|nd|rd|th)|\d[\d.,]*")


def paper_names(title: str) -> list[str]:
    """What a text may call a paper: the title up to its colon, words with inner capitals or digits, initials.

    >>> paper_names("BERT: Pre-training of Deep Bidirectional Transformers")
    ['BERT']
    >>> paper_names("ImageNet Classification with VGG-16"), paper_names("Latent Dirichlet Allocation")
    (['ImageNet', 'VGG-16'], ['LDA'])
    """
    names: dict[str, None] = {}
    head, colon, _ = title.partition(":")
    words = head.split()
    if colon and 0 < len(words) <= _LONGEST_NAME and all(w[:1].isupper() or w[:1].isdigit() for w in words):
        names[head.strip()] = None
    if title.upper() != title:  # else capitals say nothing
        for match in _PART.finditer(title):
            parts = re.split(r"(?<=[^\W_])[-+.]", match[0])
            told = [_is_name(part) for part in parts]
            if any(told):
                whole = all(tells or part.isdigit() for tells, part in zip(told, parts, strict=True))
                names[match[0] if whole else parts[told.index(True)]] = None
        words = [part for part in re.split(r"[\s-]+", head) if part and not _SMALL.fullmatch(part)]
        if 3 <= len(words) <= 6 and all(word[0].isupper() for word in words):
            names["".join(word[0] for word in words)] = None
    return list(names)


def _is_name(word: str) -> bool:
    """Whether a word has a capital or a digit inside."""
    inner = any(sign.isupper() or sign.isdigit() for sign in word[1:])
    return len(word) > 1 and inner and not _DIMENSIONS.fullmatch(word)


def mentioned_name(context: str, names: Sequence[str]) -> str:
    """The name nearest to the mark, in its sentence; "" for none. One of a single case counts as written.

    >>> mentioned_name("as in word2vec and BERTs (TARGETCIT)", ["Word2Vec", "BERT"])
    'BERT'
    """
    start, end = sentence_around(context)
    context = context[start:end]
    mark = max(context.find(TARGET_MARKER), 0)
    letters = context.lower().replace("-", "")
    found: tuple[int, str] | None = None
    for name in names:
        if name.lower().replace("-", "") not in letters:  # as nearly always: no pattern need be compiled
            continue
        mixed = any(sign.islower() for sign in name[1:]) and _is_name(name)
        written = re.escape(name).replace(r"\-", "-?")
        pattern = rf"(?<![^\W_]){written}(?:s|es)?(?![^\W_])"
        for match in re.finditer(pattern, context, re.IGNORECASE if mixed else 0):
            nearness = min(abs(match.start() - mark), abs(match.end() - mark))
            if name not in (TARGET_MARKER, OTHER_MARKER) and (found is None or nearness < found[0]):
                found = nearness, name
    return found[1] if found else ""


# Over a corpus.

_MARKERS = rf"(?:{TARGET_MARKER}|{OTHER_MARKER})"
_BRACKETED = re.compile(rf"[\[(]({_MARKERS}(?:[,;\s]+{_MARKERS})*)[\])]")
MOST_CONTEXTS = 50
"""Citing contexts of a paper that are compared with the question."""
_TELLING = 0.2
"""Share of an unknown word's rarity that a sentence must weigh: "training" alone is no evidence."""
_COMMON = 0.01
"""Occurrences per paper from which on a name, as LLM, is everybody's."""


class EvidenceFinder:
    """Finds the evidence for papers of one corpus; what other papers write is of its training split."""

    def __init__(self, corpus: Corpus) -> None:
        self._corpus = corpus
        self._papers = len(corpus.paper_ids)
        self._rows = corpus.word_ids
        self._cited: Ragged | None = None
        if TRAIN in corpus.splits:
            from retrieval.bm25 import citing_contexts

            self._cited = citing_contexts(corpus.splits[TRAIN], self._papers, MOST_CONTEXTS)

    def rarity(self, word: str) -> float:
        """idf as Lucene's, of how often a word stands in the corpus."""
        n = min(self._count(word), self._papers)
        return math.log(1 + (self._papers - n + 0.5) / (n + 0.5))

    def _count(self, word: str) -> int:
        row = self._rows.get(word)
        return 0 if row is None else int(self._corpus.word_counts[row])

    def evidence(
        self, context: str, papers: Sequence[int], title: str = "", own: int | None = None
    ) -> list[Explanation]:
        """Of each paper, by row, for a context with TARGETCIT; title, own: of the citing paper, its row."""
        weights, least = stem_weights(context, title, self.rarity), _TELLING * self.rarity("")
        found = []
        for paper, cited_as in zip(papers, self._citations(context, papers, own), strict=True):
            title = self._corpus.titles[paper]
            sentence, matched = best_sentence(self._corpus.abstracts[paper], weights, least)
            spans = () if sentence else best_sentence(title, weights, least)[1]
            in_title = tuple(dict.fromkeys(title[a:b] for a, b in spans))
            name = mentioned_name(context, [name for name in paper_names(title) if self._tells(name)])
            found.append(Explanation(sentence, matched, in_title, name, cited_as))
        return found

    def _tells(self, name: str) -> bool:
        """Whether few papers write it: a name of several words is rarely anything else."""
        return " " in name or self._count(name.lower()) <= max(10, _COMMON * self._papers)

    def _citations(self, context: str, papers: Sequence[int], own: int | None) -> list[str]:
        """How others cite each paper: the sentence with the mark of the context most like the question."""
        if self._cited is None or not len(papers):
            return [""] * len(papers)
        contexts = self._cited.take(np.asarray(papers, np.int64))
        likeness = self._likeness(context, contexts.values)
        if own is not None:
            likeness[self._corpus.citing[contexts.values] == own] = -1
        sentences = []
        for start, end in pairwise(contexts.offsets.tolist()):
            best = start + int(np.argmax(likeness[start:end])) if end > start else -1
            said = best >= 0 and likeness[best] > 0
            sentences.append(
                citing_sentence(self._corpus.context_texts[contexts.values[best]]) if said else ""
            )
        return sentences

    def _likeness(self, context: str, others: NDArray[np.int32]) -> NDArray[np.float64]:
        """BM25 of contexts [n] for the words of one, each counted once."""
        asked = {self._rows.get(word, -1) for word, *_ in _words(strip_markers(context))} - {-1}
        words = np.array(sorted(asked), np.int64)
        if not len(words):
            return np.zeros(len(others))
        rarity = np.array([self.rarity(self._corpus.words[row]) for row in words])
        tokens = self._corpus.context_tokens.take(others)
        place = np.minimum(np.searchsorted(words, tokens.values), len(words) - 1)
        there = words[place] == tokens.values
        owner = np.repeat(np.arange(len(others)), tokens.lengths)
        pairs = np.unique(owner[there] * len(words) + place[there])
        total = np.bincount(pairs // len(words), rarity[pairs % len(words)], minlength=len(others))
        lengths = tokens.lengths / max(tokens.lengths.mean(), 1) if len(others) else tokens.lengths
        return np.asarray(total / (1 + _K1 * (1 - _B + _B * lengths)))


def citing_sentence(context: str) -> str:
    """The sentence of a context that has the mark, as [CITE]; an ellipsis where the context is cut.

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
