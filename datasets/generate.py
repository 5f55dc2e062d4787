"""Generate a corpus of any size with realistic statistics: data=demo and `citerec data generate`.

The vocabulary is unbounded; word frequencies and text lengths follow those of real abstracts.
Each paper has a topic and a theme of a few of the topic's words, which its text and the contexts that cite it
use. Contexts replace most of them by synonyms: matching words finds some of the cited papers, and a model
that learns the synonyms, which all papers of a topic share, finds more.

A corpus is generated in blocks of papers or contexts. Each block depends only on the plan and its own number,
so the output does not depend on the number of processes.
"""

from __future__ import annotations

import multiprocessing
import os
from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from citerec.base.arguments import command
from citerec.base.errors import InputError
from citerec.base.files import atomic_folder, cache_folder, disk_errors, file_lock, new_folder
from citerec.base.progress import count_progress
from citerec.base.settings import Settings, setting
from citerec.datasets.corpus import Corpus
from citerec.datasets.prepare import open_corpus
from citerec.datasets.records import OTHER_MARKER, SPLITS, TARGET_MARKER

SHIFT, HEAD = 0.7, 0.95
CORE, TAIL = 2500, 1.9
"""Frequencies fall as (rank + SHIFT) ** -HEAD up to rank CORE, then as rank ** -TAIL."""
CORE_SHARE = 0.86
"""Share of tokens up to rank CORE."""
MAX_RANK = 2.0**40

_COMMON = """
    the of and a to in we is for that on with this by are as an our model which from be can data models
    learning it based at show these two method results or such methods using time paper also have propose
    performance training between state has new not approach problem one large both their its more different
    tasks space first high algorithm information image where when however network non while framework
"""
COMMON = _COMMON.split()
"""The most frequent words; all others are made of syllables."""

_ONSETS = "b d f k l m n p r s t v gr st pr th"
SYLLABLES = [onset + vowel for onset in _ONSETS.split() for vowel in "aeio"]
ENDINGS = ["", "s", "n", "ng", "l", "r", "nt", "x"] * 64
ENDINGS[100] = "\\u00e9s"
ENDINGS[200:203] = ["^{\\\\ast}", "^{\\\\prime}", "_{\\\\min}"]
"""Word endings, escaped for JSON: one in 512 is not ASCII, three have a backslash."""
TWO_SYLLABLES = 3000
"""Offset added to ranks so that only the first thousand words have two syllables."""

TABLE = 1 << 17
"""Number of ranks whose words are kept in memory; one token in 200 is rarer."""

SEPARATORS = [" ", ", ", ". ", "-", " (", ") "]
SEPARATOR_SHARES = [0.875, 0.043, 0.043, 0.025, 0.007, 0.007]
"""Frequencies of the separators after a word, measured on real abstracts."""
FULL_STOP = 2


def word(rank: int) -> str:
    """The word with the given rank (from 1), escaped for JSON; unique for each rank.

    >>> word(1), word(200), word(4000)
    ('the', 'grathon', 'bavamor')
    """
    if rank <= len(COMMON):
        return COMMON[rank - 1]
    left, parts = rank + TWO_SYLLABLES, []
    while left:
        left, digit = divmod(left - 1, len(SYLLABLES))
        parts.append(SYLLABLES[digit])
    return "".join(reversed(parts)) + ENDINGS[(rank * 2654435761 >> 8) % len(ENDINGS)]


class Words:
    """The word distribution: draws ranks and turns them into texts."""

    def __init__(self) -> None:
        weights = (np.arange(1, CORE + 1) + SHIFT) ** -HEAD
        self._core = CORE_SHARE * np.cumsum(weights) / weights.sum()
        plain = pa.array([word(rank) for rank in range(1, TABLE)])
        marker = pa.array([OTHER_MARKER])  # rank 0
        self._table = pa.concat_arrays([marker, plain, marker, pc.utf8_capitalize(plain)])
        self._separators = pa.array([*SEPARATORS, "."])
        self._bounds = np.cumsum(SEPARATOR_SHARES)[:-1]

    def share(self, rank: int) -> float:
        """Share of tokens up to this rank, which is at most CORE."""
        return float(self._core[rank - 1])

    def ranks(self, uniform: NDArray[np.float64]) -> NDArray[np.int64]:
        """Map uniform numbers in [0, 1) to ranks by inverse transform sampling; higher is rarer."""
        ranks = np.searchsorted(self._core, uniform, side="right") + 1
        rare = np.flatnonzero(uniform >= CORE_SHARE)
        left = (1 - uniform[rare]) / (1 - CORE_SHARE)
        ranks[rare] = 1 + np.minimum(CORE * left ** (1 / (1 - TAIL)), MAX_RANK).astype(np.int64)
        return ranks

    def texts(
        self,
        ranks: NDArray[np.int64],
        lengths: NDArray[np.int64],
        rng: np.random.Generator,
        ends: bool = True,
    ) -> pa.StringArray:
        """Compose texts, escaped for JSON, of `lengths` [rows] words (at least one) by their ranks [words].

        Rank 0 is the marker of another citation. ends: start with a capital letter and end with a full stop;
        otherwise end with a space.
        """
        separators = np.searchsorted(self._bounds, rng.random(len(ranks)), side="right")
        last = np.cumsum(lengths) - 1
        separators[last] = len(SEPARATORS) if ends else 0
        starts = np.roll(separators == FULL_STOP, 1)
        starts[last[:-1] + 1] = ends
        starts[:1] = ends
        indices = ranks + TABLE * starts
        rare = np.flatnonzero(ranks >= TABLE)
        indices[rare] = 2 * TABLE + np.arange(len(rare))
        rare_words = pa.array([word(rank) for rank in ranks[rare].tolist()], pa.string())
        tokens = pc.binary_join_element_wise(
            pa.concat_arrays([self._table, rare_words]).take(pa.array(indices)),
            self._separators.take(pa.array(separators)),
            "",
        )
        # Token bytes are contiguous, so each text spans from its first to its last token.
        offsets = np.frombuffer(tokens.buffers()[1], np.int32)[: len(ranks) + 1]
        rows = np.concatenate([offsets[:1], offsets[last + 1]])
        return pa.StringArray.from_buffers(len(lengths), pa.py_buffer(rows), tokens.buffers()[2])


BLOCK = 4096
"""Papers or contexts per block; changing it changes the output of every seed."""

TITLE_WORDS = (9.2, 3.6)
ABSTRACT_WORDS = (120.0, 59.0)
"""Mean and standard deviation of a gamma distribution."""
SIDE_WORDS = (28.0, 2.5)
"""Words per side of a context: mean and standard deviation of a normal distribution."""
CUT_SIDES = 0.12
"""Share of sides truncated by the end of a section, to a uniform length."""
OTHER_CITATIONS = 0.04
"""Share of a context's words that are the marker of another citation."""
CONTEXTS_PER_PAPER = 20
"""Contexts per citing paper; 35 in NeurIPS 2025, 4 in the ACL data, unknown for arXiv."""
CITED_SHIFT, CITED_POWER = 5.0, 0.75
ARXIV_SPLITS, DEMO_SPLITS = (2_988_030, 112_779, 104_401), (8, 1, 1)
"""Proportions of train, val and test; the split is by citing paper, in chronological order."""
DEMO_VERSION = 3
"""Part of the demo's folder: increment it when the process changes."""
FIRST_YEAR, YEARS = 1991, 29
FIELDS = ["cs", "math", "cond-mat", "astro-ph", "physics", "hep-ph", "quant-ph", "hep-th", "stat", "gr-qc"]
TOPIC_PAPERS, TOPIC_WORDS = 40, 32
"""Mean number of papers of a topic, and of its words, all rarer than THEME_RANK; each has a synonym."""
OWN_TOPIC = 0.25
"""Share of citations drawn from the citing paper's topic; more would make popular papers too rare."""
THEME_WORDS = 8
"""Number of words of its topic in a paper's theme."""
THEME_RANK = 200
IN_PAPER, IN_CONTEXT = 0.25, 0.25
"""Share of rare words taken from the theme of the paper, or of the cited paper in contexts."""
SYNONYMS_IN_PAPER, SYNONYMS_IN_CONTEXT = 0.1, 0.7
"""Share of the words of a theme that are replaced by their synonyms."""
MIN_RECORDS, MAX_CONTEXTS = 100, 500
"""Minimum number of papers and of contexts; maximum number of contexts per paper."""

CLOSING = {"papers": b"\n}\n", "contexts": b"\n}\n"} | dict.fromkeys(SPLITS, b"\n]\n")
"""The last bytes of each file."""
QUEUED = 4
"""Maximum number of blocks per process waiting to be written."""

Ints = NDArray[np.int64]
Pieces = dict[str, bytes]


@dataclass(frozen=True)
class GenerationPlan:
    """The size and the seed of a corpus. Raises InputError if it is too small for three splits."""

    papers: int
    contexts: int
    seed: int = 0
    proportions: tuple[int, int, int] = ARXIV_SPLITS

    def __post_init__(self) -> None:
        given = f"papers={self.papers} contexts={self.contexts} seed={self.seed}"
        if min(self.papers, self.contexts) < MIN_RECORDS or self.contexts > MAX_CONTEXTS * self.papers:
            raise InputError(
                f"{given}: needs at least {MIN_RECORDS} of each and at most {MAX_CONTEXTS} contexts per paper"
            )
        if not 0 <= self.seed < 2**63:
            raise InputError(f"{given}: the seed must be from 0 to 2**63 - 1")

    @property
    def blocks(self) -> list[tuple[str, int]]:
        """Kind and number of each block, in order."""
        return [
            (kind, number)
            for kind, size in (("papers", self.papers), ("contexts", self.contexts))
            for number in range(-(-size // BLOCK))
        ]

    @property
    def citing(self) -> int:
        """Number of citing papers, at least a hundred if possible; these are the last ones."""
        each = min(CONTEXTS_PER_PAPER, max(1, self.contexts // 100))
        return max(3, min(self.contexts // each, self.papers // 2))

    @cached_property
    def splits(self) -> dict[str, range]:
        """Citing papers of each split, counted from the first citing paper."""
        shares = np.cumsum([0, *self.proportions]) / sum(self.proportions)
        bounds = [round(share * self.citing) for share in shares.tolist()]
        bounds[1], bounds[2] = min(bounds[1], self.citing - 2), min(bounds[2], self.citing - 1)
        return {split: range(*ends) for split, ends in zip(SPLITS, pairwise(bounds), strict=True)}

    @property
    def topics(self) -> int:
        """Number of topics; papers of a topic have the same remainder."""
        return max(1, self.papers // TOPIC_PAPERS)

    def themes(self, papers: Ints, number: Ints, synonym: NDArray[np.bool_]) -> NDArray[np.float64]:
        """Return a value in [0, 1) for each theme word, given by paper and number in the paper's theme."""
        word = (self._hash(papers * THEME_WORDS + number) * TOPIC_WORDS).astype(np.int64)
        return self.topic_words(papers % self.topics, word, synonym)

    def topic_words(self, topics: Ints, words: Ints, synonym: NDArray[np.bool_]) -> NDArray[np.float64]:
        """Return the value in [0, 1) of each word of a topic, given by its number, or of its synonym."""
        return self._hash(2 * (topics * TOPIC_WORDS + words) + synonym + 2**62)

    def fields(self, papers: Ints) -> Ints:
        """Return the position in FIELDS of each paper's topic; the first are the largest."""
        return (len(FIELDS) * self._hash(papers % self.topics + 2**61) ** 2).astype(np.int64)

    def _hash(self, numbers: Ints) -> NDArray[np.float64]:
        """Hash each number to a value in [0, 1)."""
        start = np.uint64(self.seed * 0x9E3779B97F4A7C15 % 2**64)
        x = numbers.astype(np.uint64) + start
        for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):  # SplitMix64
            x = (x ^ (x >> np.uint64(shift))) * np.uint64(factor)
        return (x ^ (x >> np.uint64(31))) / 2.0**64


class Generator:
    """Generates the blocks of a plan, each as pieces of the files by stem."""

    def __init__(self, plan: GenerationPlan) -> None:
        self.plan, self.words = plan, Words()
        self._common = self.words.share(THEME_RANK)

    def block(self, kind: str, number: int) -> Pieces:
        """Generate one block; a file is all blocks of its kind in order, then CLOSING."""
        rng = np.random.default_rng((self.plan.seed, kind == "contexts", number))
        first, count = number * BLOCK, getattr(self.plan, kind)
        rows = np.arange(first, min(first + BLOCK, count))
        return self._papers(rows, rng) if kind == "papers" else self._contexts(rows, rng)

    def _papers(self, rows: Ints, rng: np.random.Generator) -> Pieces:
        texts = []
        for mean, deviation in (TITLE_WORDS, ABSTRACT_WORDS):
            drawn = rng.gamma((mean / deviation) ** 2, deviation**2 / mean, len(rows))
            lengths = np.maximum(drawn.round(), 1).astype(np.int64)
            ranks = self._ranks(np.repeat(rows, lengths), IN_PAPER, SYNONYMS_IN_PAPER, rng)
            texts.append(self.words.texts(ranks, lengths, rng))
        year = FIRST_YEAR + (YEARS * np.sqrt(rows / self.plan.papers)).astype(np.int64)
        field = pa.array(FIELDS).take(pa.array(self.plan.fields(rows)))
        title, abstract = texts
        records = join_records(
            "{" if rows[0] == 0 else None,
            ',\n"', paper_ids(rows), '": {"title": "', title, '", "abstract": "', abstract,
            '", "year": ', pc.cast(pa.array(year), pa.string()), ', "field": "', field, '"}',
        )  # fmt: skip
        return {"papers": records}

    def _contexts(self, rows: Ints, rng: np.random.Generator) -> Pieces:
        plan, n = self.plan, len(rows)
        first, last = (plan.citing * int(row) // plan.contexts for row in (rows[0], rows[-1] + 1))
        weights = rng.standard_exponential(last - first)
        each = 1 + rng.multinomial(n - len(weights), weights / weights.sum())
        owner = np.repeat(np.arange(first, last), each)
        citing = plan.papers - plan.citing + owner
        cited = self._cited(citing, rng)
        lengths = np.maximum(rng.normal(*SIDE_WORDS, 2 * n).round(), 1)
        cut = rng.random(2 * n) < CUT_SIDES
        lengths[cut] = 1 + (lengths[cut] * rng.random(cut.sum())).astype(np.int64)
        lengths = lengths.astype(np.int64)
        ranks = self._ranks(np.repeat(np.repeat(cited, 2), lengths), IN_CONTEXT, SYNONYMS_IN_CONTEXT, rng)
        ranks[rng.random(len(ranks)) < OTHER_CITATIONS] = 0
        sides = self.words.texts(ranks, lengths, rng, ends=False)
        left, right = (sides.take(pa.array(np.arange(side, 2 * n, 2))) for side in (0, 1))
        ids = pc.binary_join_element_wise(
            paper_ids(citing), paper_ids(cited), pc.cast(pa.array(rows), pa.string()), "_"
        )
        records = join_records(
            "{" if rows[0] == 0 else None,
            ',\n"', ids, '": {"masked_text": "', left, f"({TARGET_MARKER}) ", pc.utf8_rtrim(right, " "),
            '", "context_id": "', ids, '", "citing_id": "', paper_ids(citing),
            '", "refid": "', paper_ids(cited), '"}',
        )  # fmt: skip
        pieces = {"contexts": records}
        for split, members in plan.splits.items():
            in_split = pa.array((owner >= members.start) & (owner < members.stop))
            if pc.any(in_split).as_py():
                pieces[split] = join_records(
                    "[" if first <= members.start else None,
                    ',\n{"context_id": "', ids.filter(in_split),
                    '", "positive_ids": ["', paper_ids(cited).filter(in_split), '"]}',
                )  # fmt: skip
        return pieces

    def _ranks(self, papers: Ints, share: float, synonyms: float, rng: np.random.Generator) -> Ints:
        """Draw ranks; a `share` of the rare words is from the theme of each word's paper."""
        uniform = rng.random(len(papers))
        thematic = np.flatnonzero((uniform >= self._common) & (rng.random(len(papers)) < share))
        number = rng.integers(THEME_WORDS, size=len(thematic))
        values = self.plan.themes(papers[thematic], number, rng.random(len(thematic)) < synonyms)
        uniform[thematic] = self._rare(values)
        return self.words.ranks(uniform)

    def _rare(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Map values in [0, 1) to words rarer than THEME_RANK; overall word frequencies do not change."""
        return self._common + (1 - self._common) * values

    def synonyms(self) -> dict[str, str]:
        """Return the synonym of each word of a topic, escaped for JSON."""
        topics, words = np.divmod(np.arange(self.plan.topics * TOPIC_WORDS), TOPIC_WORDS)
        values = (self.plan.topic_words(topics, words, np.full(len(words), own)) for own in (False, True))
        names = ([word(rank) for rank in self.words.ranks(self._rare(v)).tolist()] for v in values)
        return dict(zip(*names, strict=True))

    def _cited(self, citing: Ints, rng: np.random.Generator) -> Ints:
        """Draw an earlier paper for each citing paper, by popularity."""
        papers, power = self.plan.papers, 1 - CITED_POWER
        ends = (CITED_SHIFT + 1) ** power, (CITED_SHIFT + papers) ** power
        drawn = (ends[0] + (ends[1] - ends[0]) * rng.random(len(citing))) ** (1 / power) - CITED_SHIFT
        rank = np.clip(drawn.astype(np.int64), 1, papers)
        # The step spreads popular papers over all years; the modulus maps later papers to earlier ones.
        step = round(papers * 0.618)
        while np.gcd(step, papers) != 1:
            step += 1
        cited = (rank * step % papers) % citing
        own = cited - (cited - citing) % self.plan.topics
        return np.where((own >= 0) & (rng.random(len(cited)) < OWN_TOPIC), own, cited)


def paper_ids(rows: Ints) -> pa.StringArray:
    """The ids of the papers in these rows.

    >>> paper_ids(np.array([7])).to_pylist()
    ['x00000007']
    """
    numbers = pc.utf8_lpad(pc.cast(pa.array(rows), pa.string()), width=8, padding="0")
    return pc.binary_join_element_wise("x", numbers, "")


def join_records(bracket: str | None, *parts: str | pa.StringArray) -> bytes:
    """Join parts into records, as bytes; at the start of a file `bracket` replaces the first comma."""
    records = pc.binary_join_element_wise(*parts, "")
    start, end = (int(np.frombuffer(records.buffers()[1], np.int32)[row]) for row in (0, len(records)))
    joined = records.buffers()[2].slice(start, end - start).to_pybytes()
    return joined if bracket is None else bracket.encode() + joined[1:]


def open_demo(
    papers: int = 2000,
    contexts: int = 8000,
    seed: int = 0,
    tokenizer: str = "default",
    cache_dir: str | Path | None = None,
) -> Corpus:
    """Open a generated corpus, by default a small one; generate it on first use. Raises InputError."""
    plan = GenerationPlan(papers, contexts, seed, DEMO_SPLITS)
    name = f"papers{papers}-contexts{contexts}-seed{seed}-v{DEMO_VERSION}"
    folder = cache_folder(cache_dir) / "demo" / name
    with disk_errors(folder, "the demo corpus", "data.cache_dir"):
        folder.parent.mkdir(parents=True, exist_ok=True)
        with file_lock(folder.with_name(f".{name}.lock"), "generates the same corpus"):
            if not folder.is_dir():
                write_corpus(plan, folder, 1)
    return open_corpus(folder, tokenizer=tokenizer, cache_dir=cache_dir, name="demo", field="field")


@dataclass(frozen=True, kw_only=True)
class GenerateSettings(Settings):
    """Generate a corpus of any size, with realistic lengths and frequencies, to measure speed and memory:

        citerec data generate papers=1661201 contexts=3205210 output=DIR [OPTION=VALUE ...]

    DIR is a new folder. The command writes papers.json, contexts.json, train.json, val.json and test.json.
    The words are made of syllables; data=demo opens a small one.
    """

    papers: int
    """papers to generate; the latest ones cite (e.g. 100000)"""
    contexts: int
    """contexts to generate, over train, val and test (e.g. 200000)"""
    output: str
    """new folder to write (e.g. outputs/corpus)"""
    seed: int = 0
    """random seed"""
    workers: int | None = setting(None, least=1)
    """processes, without effect on the output; null: one per core"""


def generate_corpus(papers: int, contexts: int, output: str | Path, seed: int, workers: int | None) -> str:
    """Write papers, contexts and splits to a new folder, atomically; return a summary line.

    workers: number of processes, None means one per core; it does not change the files.
    Raises InputError for an existing folder, an invalid size and a full disk.
    """
    plan, folder = GenerationPlan(papers, contexts, seed), new_folder(output)
    with disk_errors(folder, "the generated corpus", "output"):
        size = write_corpus(plan, folder, workers or os.cpu_count() or 1)
    return f"{folder}: {papers:,} papers, {contexts:,} contexts, {size / 1e6:,.0f} MB"


def write_corpus(plan: GenerationPlan, folder: Path, workers: int) -> int:
    """Write the files of a plan to a new folder, atomically; return their size in bytes."""
    with atomic_folder(folder) as unfinished:
        with ExitStack() as stack, count_progress("generating blocks", len(plan.blocks)) as advance:
            files = {stem: stack.enter_context((unfinished / f"{stem}.json").open("wb")) for stem in CLOSING}
            for pieces in _make_blocks(plan, workers):
                for stem, piece in pieces.items():
                    files[stem].write(piece)
                advance(1)
            for stem, closing in CLOSING.items():
                files[stem].write(closing)
        return sum(path.stat().st_size for path in unfinished.iterdir())


def _make_blocks(plan: GenerationPlan, workers: int) -> Iterator[Pieces]:
    """Yield the pieces of all blocks in order, with bounded memory."""
    if workers == 1:
        _init_worker(plan)
        yield from map(_make_block, plan.blocks)
        return
    with multiprocessing.get_context("spawn").Pool(workers, _init_worker, (plan,)) as pool:
        waiting = deque(pool.apply_async(_make_block, (block,)) for block in plan.blocks[: QUEUED * workers])
        for block in [*plan.blocks[QUEUED * workers :], *([None] * len(waiting))]:
            yield waiting.popleft().get()
            if block is not None:
                waiting.append(pool.apply_async(_make_block, (block,)))


_generator: Generator


def _init_worker(plan: GenerationPlan) -> None:
    global _generator
    _generator = Generator(plan)


def _make_block(block: tuple[str, int]) -> Pieces:
    return _generator.block(*block)


main = command("data generate", GenerateSettings, lambda given: generate_corpus(**asdict(given)))
