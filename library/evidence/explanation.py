"""Why a paper is recommended: a name, the evidence sentence, a sentence that cites the paper.

They are computed for the papers shown, from what the ranker compares: names (rerank.ranker.paper_names),
words weighted by idf and nearness to the mark (rerank.ranker.texts), and training contexts
(rerank.ranker.citing_contexts).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import Stemmer

from citerec.datasets.corpus import Corpus
from citerec.datasets.records import OTHER_MARKER, TARGET_MARKER
from citerec.datasets.tokenize import default_tokenize, sentence_starts
from citerec.formats.letters import words as words_of
from citerec.library import MARK
from citerec.library.evidence.passages import TextPlace
from citerec.rerank.ranker.author_names import HALF, has_authors, surnames_near
from citerec.rerank.ranker.citing_contexts import CitingContexts
from citerec.rerank.ranker.corpus_statistics import CorpusStatistics
from citerec.rerank.ranker.paper_names import initials, title_names
from citerec.rerank.ranker.texts import K1, NEAR, B, idf, nearness
from citerec.retrieval.lexical.terms import FUNCTION_WORDS
from citerec.retrieval.networks.encoder import NetworkRetriever
from citerec.retrieval.queries import Queries, marked_sentence

if TYPE_CHECKING:
    from citerec.library.evidence.evidence import FoundPassage, FullTexts

Spans = tuple[tuple[int, int], ...]
"""Parts of a text as (start, end)."""
MAX_EXCERPT = 150
"""Approximate maximum length of a sentence in `why`, in characters."""
NO_EVIDENCE = "near in meaning"
LEAST_NAME, LEAST_SURNAME, LEAST_IDF = 0.3, 0.15, 0.1
"""Least weight of a paper's name and of an author's, as features of the ranker; and of a sentence's words, as
a share of the idf of an unknown word: a distant name, or "training" alone, explains nothing."""
SENTENCE = 20
"""Usual number of words of a sentence."""
_IN_TEXT = re.compile(r"(.+)#(\d+)\.\d+")
"""Id of a context of a full text: its paper, its page and a number (evidence.citations)."""
PASSAGES = 3
"""Passages of a full text in which a sentence is looked for."""


@dataclass(frozen=True)
class Explanation:
    """Why a paper is recommended. Fields without evidence are empty.

    sentence: of the abstract, the nearest one for the model's networks, else the one that shares most words;
    or of the full text, at `place`. matched: spans of its words that are in the query. in_title: matching
    words of the title, if no sentence matches. name: name of the paper, or surname of an author, that stands
    near the mark. cited_as: sentence in which another paper cites it, with [CITE] at the citation. cited_by,
    cited_id: that paper and its id, if it has a full text; cited_at: the place in it.
    """

    sentence: str = ""
    matched: Spans = ()
    in_title: tuple[str, ...] = ()
    name: str = ""
    cited_as: str = ""
    place: TextPlace | None = None
    cited_by: str = ""
    cited_at: TextPlace | None = None
    cited_id: str = ""

    @property
    def only_named(self) -> bool:
        """True if nothing but a name in the passage speaks for the paper."""
        return bool(self.name) and not (self.in_title or self.matched or self.cited_as)

    @property
    def why(self) -> str:
        """The explanation in one line."""
        reasons = [f"{self.name} is named here"] if self.name else []
        if self.in_title and not self.name:
            reasons.append(f"its title contains {', '.join(f'“{word}”' for word in self.in_title)}")
        elif self.sentence:
            where = f" ({self.place.label})" if self.place else ""
            reasons.append(f"“{excerpt(self.sentence, self.matched, MAX_EXCERPT)}”{where}")
        if self.cited_as:
            mark = self.cited_as.find(MARK)
            where = ", ".join(filter(None, [self.cited_by, self.cited_at.label if self.cited_at else ""]))
            how = f"cited for this in {where}: " if where else "cited as "
            reasons.append(f"{how}“{excerpt(self.cited_as, ((mark, mark + len(MARK)),), MAX_EXCERPT)}”")
        return "; ".join(reasons) or NO_EVIDENCE


class Explainer:
    """Explains papers of a corpus."""

    def __init__(
        self,
        corpus: Corpus,
        statistics: CorpusStatistics | None = None,
        full_texts: FullTexts | None = None,
        networks: NetworkRetriever | None = None,
    ) -> None:
        """statistics: of the ranker over it, if it is ranked by one. full_texts: of its papers, if there are
        any. networks: among the ranker's parts."""
        self._corpus, self._rows, self._statistics = corpus, corpus.word_ids, statistics
        self._full_texts, self._networks = full_texts, networks
        self._tokens = max(float(corpus.total_words), 2.0)

    @cached_property
    def _citing_contexts(self) -> CitingContexts:
        return CitingContexts(self._corpus, self._statistics)

    def explain(self, query: Queries, papers: Sequence[int]) -> list[Explanation]:
        """Explain papers (rows) as answers to one query [1]."""
        context = query.texts("context")[0]
        words = default_tokenize(context)
        weights, least = self.stem_weights(words), LEAST_IDF * self.idf("")
        rows = np.asarray(papers, np.int64)
        networks = self._networks
        if networks is not None and not networks.reads(query)[0]:
            networks = None
        if networks is not None:
            networks.read(rows)
            vector = networks.query_vectors(query)[0]
        citing = self._citing_contexts.most_similar(query, rows[None])[0]
        explanations, surnames = [], self._surnames(query)
        passages = self._full_texts.passages(context, papers, PASSAGES) if self._full_texts else {}
        for paper, cited_in in zip(papers, citing.tolist(), strict=True):
            title, abstract = self._corpus.titles[paper], self._corpus.abstracts[paper]
            texts, place, nearest = passages.get(paper, ()), None, ""
            if networks is not None and abstract:
                cosines = networks.sentence_cosines(vector, paper)  # of those that the encoder has read
                nearest = _sentences(abstract)[int(np.argmax(cosines))] if len(cosines) else ""
            # Words in common decide only without the encoder, and between the abstract and a full text.
            words_of = "" if nearest and not texts else abstract
            score, sentence, matched = best_sentence(words_of, weights, least)
            if nearest:
                sentence, matched = nearest, matching_spans(nearest, weights)
            for passage in texts:
                value, text, spans = best_sentence(passage.passage.text, weights, least)
                if text and value >= score:
                    score, sentence, matched, place = value, text, spans, passage.place_of(text)
            _, part, spans = (0, "", ()) if sentence else best_sentence(title, weights, least)
            in_title = tuple(dict.fromkeys(part[a:b] for a, b in spans))
            cited_as = citing_sentence(self._corpus.context_texts[cited_in]) if cited_in >= 0 else ""
            name = self._name(context, words, title) or self._author(surnames, paper)
            by, at, id = self._citing(cited_in)
            explanations.append(Explanation(sentence, matched, in_title, name, cited_as, place, by, at, id))
        return explanations

    def _citing(self, context: int) -> tuple[str, TextPlace | None, str]:
        """Return authors and year of the paper whose full text has a context, the place in it, and its id;
        empty for other contexts, and for -1."""
        text = _IN_TEXT.fullmatch(self._corpus.context_ids[context]) if context >= 0 else None
        if text is None or not self._corpus.has_paper(text[1]):
            return "", None, ""
        row = self._corpus.paper_row(text[1])
        names = [self._corpus.field_names[code] for code in self._corpus.fields[row].tolist()]
        shown = f"{names[0]} et al." if len(names) > 2 else " and ".join(names)
        file = self._full_texts.file(row) if self._full_texts and self._full_texts.has_text(row) else ""
        year = int(self._corpus.years[row]) or ""
        place = TextPlace(file, int(text[2])) if file else None
        return f"{shown or text[1]} {year}".strip(), place, text[1]

    def _surnames(self, query: Queries) -> list[tuple[int, int, str]]:
        """Return the words of the context that the ranker compares with authors (its author_names)."""
        if self._statistics is None or not has_authors(self._corpus):
            return []
        usual = self._statistics.with_query_words(query).usual_words(query)
        return surnames_near(query.texts("context")[0], usual[0])

    def _author(self, surnames: Sequence[tuple[int, int, str]], paper: int) -> str:
        """Return the surname of an author that weighs most in a context; "" if none counts."""
        if self._statistics is None or not surnames:
            return ""
        best, author = LEAST_SURNAME, ""
        for names in (self._statistics.first_authors, self._statistics.other_authors):
            part = slice(*names.offsets[paper : paper + 2].tolist())
            rarity = dict(zip(names.hashes[part].tolist(), names.weights[part].tolist(), strict=True))
            for hashed, distance, word in surnames:
                if (weight := rarity.get(hashed, 0.0) * HALF / (HALF + distance)) > best:
                    best, author = weight, word
        return author

    def sentence_in(self, context: str, passage: FoundPassage) -> tuple[str, TextPlace]:
        """Return the sentence of a passage that fits a context best, "" for none, and where it stands.

        Words of a context without a mark count alike.
        """
        words = default_tokenize(context)
        if TARGET_MARKER.lower() in words:
            weights = self.stem_weights(words)
        else:
            weights = {_stem(word): self.idf(word) for word in words if _is_term(word)}
        sentence = best_sentence(passage.passage.text, weights, LEAST_IDF * self.idf(""))[1]
        return sentence, passage.place_of(sentence)

    def idf(self, word: str) -> float:
        """Return the idf of a word, by its occurrences in the corpus and the passages that have it."""
        papers = self._corpus.total_papers
        count = min(self._count(word), papers)
        if self._full_texts:
            count, papers = count + self._full_texts.index.count(word), papers + len(self._full_texts.index)
        return float(idf(np.array(count), papers))

    def _count(self, word: str) -> int:
        row = self._rows.get(word)
        return 0 if row is None else int(self._corpus.word_counts[row])

    def stem_weights(self, words: Sequence[str]) -> dict[str, float]:
        """Weight the stems of a context's words by idf and nearness to the mark."""
        near = nearness(_distances(words))
        weights: dict[str, float] = {}
        for word, factor in zip(words, near.tolist(), strict=True):
            if _is_term(word):
                stem = _stem(word)
                weights[stem] = max(weights.get(stem, 0.0), self.idf(word) * factor)
        return weights

    def _name(self, context: str, words: Sequence[str], title: str) -> str:
        """Return the name of a paper that weighs most in a context; "" if none counts.

        The weight of a name is the rarity of its rarest word times its nearness to the mark
        (rerank.ranker.paper_names).
        """
        distances, best, heaviest = np.abs(_distances(words)), LEAST_NAME, ""
        acronyms = [word for word in map(str.upper, initials(title)) if re.search(rf"\b{word}\b", context)]
        for name in [*title_names(title), *acronyms]:
            parts = default_tokenize(name)
            rarity = max((self._rarity(part) for part in parts if _is_term(part)), default=0.0)
            for start in range(len(words) - len(parts) + 1) if rarity > best else ():
                if words[start : start + len(parts)] == parts:
                    distance = min(distances[start], distances[start + len(parts) - 1])
                    weight = rarity * NEAR / (NEAR + distance)
                    if weight > best:
                        best, heaviest = weight, name
        return heaviest

    def _rarity(self, word: str) -> float:
        """Return how rare a word is in the corpus, from 0 to 1 for an unknown one, as for the ranker."""
        return 1 - float(np.log(max(self._count(word), 1)) / np.log(self._tokens))


_IGNORED = frozenset([*FUNCTION_WORDS, TARGET_MARKER.lower(), OTHER_MARKER.lower()])
_STEMMER = Stemmer.Stemmer("english")


@lru_cache(1 << 16)
def _stem(word: str) -> str:
    return str(_STEMMER.stemWord(word))


def _is_term(word: str) -> bool:
    """True if a word counts: not a stop word, number, sign, letter or marker."""
    return len(word) > 1 and word[0].isalpha() and word not in _IGNORED


def _distances(words: Sequence[str]) -> np.ndarray:
    """Return the distance of each word from the first mark; before it, negative."""
    mark = words.index(TARGET_MARKER.lower()) if TARGET_MARKER.lower() in words else len(words)
    return np.arange(len(words)) - mark


def best_sentence(text: str, weights: dict[str, float], least: float = 0.0) -> tuple[float, str, Spans]:
    """Return the highest BM25 of a sentence for weighted stems, the sentence, and its matching words' spans.

    Ties go to the first; (0, "", ()) if no sentence has matching words with a total weight above `least`.

    >>> best_sentence("Trees are old. We parse graphs.", {"pars": 2.0, "graph": 1.0})[1:]
    ('We parse graphs.', ((3, 8), (9, 15)))
    """
    best: tuple[float, str, Spans] = (0.0, "", ())
    for sentence in _sentences(text):
        words = list(_stems(sentence))
        stems = {stem for stem, *_ in words if stem in weights}
        total = sum(weights[stem] for stem in stems)
        score = total / (1 + K1 * (1 - B + B * len(words) / SENTENCE))
        if score > best[0] and total > least and "://" not in sentence:  # "Project page: https://..."
            best = score, sentence, _joined((a, b) for stem, a, b in words if stem in stems)
    return best


def matching_spans(sentence: str, weights: dict[str, float]) -> Spans:
    """Return the spans of the words of a sentence whose stems have a weight."""
    return _joined((start, end) for stem, start, end in _stems(sentence) if stem in weights)


def _joined(spans: Iterable[tuple[int, int]]) -> Spans:
    """Join spans that overlap, as pairs of letters do."""
    joined: list[tuple[int, int]] = []
    for start, end in spans:
        if joined and start < joined[-1][1]:
            joined[-1] = joined[-1][0], end
        else:
            joined.append((start, end))
    return tuple(joined)


def _sentences(text: str) -> list[str]:
    return [
        line[start:end].strip()
        for line in text.split("\n")
        for start, end in pairwise([0, *sentence_starts(line), len(line)])
    ]


def _stems(text: str) -> Iterator[tuple[str, int, int]]:
    """Yield the stem, start and end of each word that counts."""
    for written, start, end in words_of(text):
        if _is_term(word := written.lower()):
            yield _stem(word), start, end


_MARKERS = rf"(?:{TARGET_MARKER}|{OTHER_MARKER})"
_BRACKETED = re.compile(rf"[\[(]({_MARKERS}(?:[,;\s]+{_MARKERS})*)[\])]")


def citing_sentence(context: str) -> str:
    """Return the sentence with the mark, shown as [CITE]; with an ellipsis where the context cuts it.

    >>> citing_sentence("of trees. Graphs are parsed well by TARGETCIT, OTHERCIT. We")
    'Graphs are parsed well by [CITE], […].'
    """
    sentence = marked_sentence(context)
    start = context.find(sentence)
    end, sentence = start + len(sentence), sentence.strip()
    if start == 0 and not sentence[:1].isupper() and not sentence.startswith(TARGET_MARKER):
        sentence = f"… {sentence}"
    if end >= len(context) and not re.search(r"[.!?][\"')\]]*$", sentence):
        sentence = f"{sentence} …"
    sentence = _BRACKETED.sub(r"\1", sentence)
    return sentence.replace(TARGET_MARKER, MARK).replace(OTHER_MARKER, "[…]")


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
