"""Inspect a corpus before using it: citerec data inspect data=... (docs/research/inspect.md)."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import hydra
import numpy as np
from hydra.utils import instantiate
from numpy.typing import NDArray
from omegaconf import DictConfig
from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from citerec.base.configuration import refuse_missing
from citerec.base.errors import exit_on_input_error, one_line_errors
from citerec.base.files import expand_user, write_text
from citerec.base.help import CONF
from citerec.base.progress import count_progress
from citerec.datasets.building.contexts import adjacent_years
from citerec.datasets.columns import Ragged
from citerec.datasets.corpus import Corpus
from citerec.datasets.records import MARKER_WORDS, TRAIN
from citerec.formats.letters import fold, normalise_title

Mask = NDArray[np.bool_]
Rows = NDArray[np.integer]

EXAMPLES = 3
"""Maximum number of example ids per number."""
TITLE_WORDS = 3
"""Fewest words of a title that is looked for in contexts."""
QUANTILES = {"p5": 5, "median": 50, "p95": 95}
"""Percentiles by column."""
WIDTH = 150
"""Width of the summary on the page, in a file or a pipe."""
_NOT_ALNUM = re.compile(r"[\W_]+")


class Cell(NamedTuple):
    """A number (None: nothing to measure), the total that it is a share of (0: none), and example ids."""

    value: float | None
    total: int = 0
    examples: Sequence[str] = ()
    is_year: bool = False

    def __str__(self) -> str:
        """
        >>> str(Cell(1234)), str(Cell(3, 24)), str(Cell(None)), str(Cell(2.25))
        ('1,234', '3 (12.5 %)', '–', '2.2')
        """
        if self.value is None:
            return "–"
        if self.is_year:
            return str(self.value)
        text = f"{self.value:,}" if isinstance(self.value, int) else f"{self.value:,.1f}"
        share = f" ({100 * self.value / self.total:.1f} %)" if self.value and self.total else ""
        return text + share


@dataclass
class Table:
    """Lines of cells by column; `note` explains how they are counted.

    groups: rows of papers or contexts by column; ids: of all of these.
    """

    key: str
    title: str
    note: str
    groups: Mapping[str, Rows]
    ids: Sequence[str]
    labels: dict[str, str] = field(default_factory=dict)
    lines: dict[str, dict[str, Cell]] = field(default_factory=dict)

    def add(self, key: str, label: str, cells: Mapping[str, Cell]) -> None:
        self.labels[key], self.lines[key] = label, dict(cells)

    def count(self, key: str, label: str, marked: Mask) -> None:
        """Add a line that counts the marked rows of each group."""
        chosen = {column: rows[marked[rows]] for column, rows in self.groups.items()}
        cells = {
            column: Cell(
                len(rows), len(self.groups[column]), [self.ids[row] for row in rows[:EXAMPLES].tolist()]
            )
            for column, rows in chosen.items()
        }
        self.add(key, label, cells)

    def flat(self) -> dict[str, Any]:
        """Return {table/line/column: number} and {table/line/column/examples: ids}, if any."""
        flat: dict[str, Any] = {}
        for line, cells in self.lines.items():
            for column, cell in cells.items():
                flat[f"{self.key}/{line}/{column}"] = cell.value
                if cell.examples:
                    flat[f"{self.key}/{line}/{column}/examples"] = list(cell.examples)
        return flat

    def print(self, console: Console) -> None:
        """Print the table, with all-zero lines combined into one line below it."""
        columns = list(dict.fromkeys(column for cells in self.lines.values() for column in cells))
        printed = RichTable(title=self.title, title_justify="left", title_style="bold")
        printed.add_column("")
        for column in columns:
            printed.add_column(Text(column), justify="right")
        zero = []
        for line, cells in self.lines.items():
            if all(cell.value == 0 for cell in cells.values()):
                zero.append(self.labels[line])
            else:
                printed.add_row(Text(self.labels[line]), *(str(cells.get(column, "")) for column in columns))
        console.print(printed if printed.row_count else Text(self.title, style="bold"))
        if zero:
            console.print(Text(f"None: {'; '.join(zero)}."))
        console.print(Text(self.note, style="dim"))
        console.print()


class CorpusView:
    """The splits of a corpus as flat arrays: one context and cited paper per citation [n]."""

    def __init__(self, corpus: Corpus) -> None:
        self.corpus = corpus
        self.contexts = {name: split.contexts for name, split in corpus.splits.items()}
        """Rows of the contexts of each split."""
        splits = corpus.splits.values()
        lengths = [np.repeat(split.contexts, split.positives.lengths) for split in splits]
        self.context = np.concatenate([np.empty(0, np.int64), *lengths])
        self.cited = np.concatenate([np.empty(0, np.int32), *(split.positives.values for split in splits)])
        # Citation markers and punctuation are no words.
        words = (
            any(map(str.isalnum, word)) and not any(m in word for m in MARKER_WORDS) for word in corpus.words
        )
        self._is_word = np.fromiter(words, np.bool_, len(corpus.words))

    def with_target(self, marked: Mask) -> Mask:
        """Mask of the contexts [C] with a marked citation [n]."""
        mask = np.zeros(len(self.corpus.context_ids), np.bool_)
        mask[self.context[marked]] = True
        return mask

    def lengths(self, tokens: Ragged) -> Rows:
        """Count the words of texts [rows]."""
        words = np.append(0, np.cumsum(self._is_word[tokens.values]))
        return np.asarray(words[tokens.offsets[1:]] - words[tokens.offsets[:-1]])

    def hashes(self, *parts: Ragged) -> Rows:
        """Hash the words of texts [rows], which may be in several parts; 0 for texts without words."""
        texts = zip(*parts, strict=True)
        words = (b"".join(part[self._is_word[part]].tobytes() for part in text) for text in texts)
        return np.fromiter((hash(text) if text else 0 for text in words), np.int64, len(parts[0]))

    def papers_by_role(self) -> dict[str, Rows]:
        """Rows of all, candidate, citing and cited papers."""
        citing = np.unique(self.corpus.citing[self.corpus.citing >= 0])
        candidates = np.flatnonzero(self.corpus.is_candidate)
        every = np.arange(len(self.corpus.paper_ids))
        return {"all": every, "candidates": candidates, "citing": citing, "cited": np.unique(self.cited)}


def repeated(hashes: Rows) -> Mask:
    """Mask [n] of the hashes that occur more than once; 0 is none."""
    _, place, counts = np.unique(hashes, return_inverse=True, return_counts=True)
    return np.asarray((counts[place] > 1) & (hashes != 0))


def split_table(view: CorpusView) -> Table:
    """Count contexts, papers and citations per split, targets that cannot be found, and empty texts."""
    corpus, splits = view.corpus, view.corpus.splits
    note = (
        f"Targets are the cited papers to be found; seen ones are cited in a context of {TRAIN}. Targets "
        "that are not candidates are never found, nor is the citing paper for its own contexts."
    )
    table = Table("splits", "Splits", note, view.contexts, corpus.context_ids)
    cited = {name: np.unique(split.positives.values) for name, split in splits.items()}
    table.add("contexts", "contexts", {name: Cell(len(split)) for name, split in splits.items()})
    citing = {name: Cell(len(np.unique(corpus.citing[rows]))) for name, rows in view.contexts.items()}
    table.add("citing", "citing papers", citing)
    table.add("cited", "cited papers", {name: Cell(len(papers)) for name, papers in cited.items()})
    citations = {name: Cell(len(split.positives.values)) for name, split in splits.items()}
    table.add("citations", "targets, counted per context", citations)
    several = np.bincount(view.context, minlength=len(corpus.context_ids)) > 1
    table.count("several", "contexts with several targets", several)
    if TRAIN in splits:
        table.count("seen", "contexts with a seen target", view.with_target(corpus.seen[view.cited]))
        unseen = {
            name: Cell(int((~corpus.seen[papers]).sum()), len(papers)) for name, papers in cited.items()
        }
        table.add("papers_unseen", "unseen cited papers", unseen)
    own = corpus.citing[view.context]
    years, cited_years = np.where(own < 0, 0, corpus.years[own]), corpus.years[view.cited]
    for key, label, marked in (
        ("itself", "contexts whose target is the citing paper itself", view.cited == own),
        ("no_candidate", "contexts with a target that is not a candidate", ~corpus.is_candidate[view.cited]),
        ("later", "contexts with a target newer than the citing paper", (years != 0) & (cited_years > years)),
    ):
        table.count(key, label, view.with_target(marked))
    table.count("empty", "contexts without words", view.lengths(corpus.context_tokens) == 0)
    for text, tokens in (("title", corpus.title_tokens), ("abstract", corpus.abstract_tokens)):
        empty, article = tokens.lengths == 0, "an" if text == "abstract" else "a"
        without = np.where(corpus.citing < 0, False, empty[corpus.citing])
        table.count(f"citing_{text}", f"contexts with a citing paper without {article} {text}", without)
        without = view.with_target(empty[view.cited])
        table.count(f"cited_{text}", f"contexts with a cited paper without {article} {text}", without)
    return table


def paper_table(view: CorpusView) -> Table:
    """Count papers, missing fields, duplicates and years by role."""
    corpus, roles = view.corpus, view.papers_by_role()
    note = (
        "Candidates can be recommended. Citing papers have a context; cited papers are a target in some "
        "split. Titles are compared by letters and digits; finding a duplicate of a target counts as a miss."
    )
    table = Table("papers", "Papers", note, roles, corpus.paper_ids)
    table.add("papers", "papers", {role: Cell(len(rows)) for role, rows in roles.items()})
    titles = map(normalise_title, corpus.titles)
    same = np.fromiter((hash(title) if title else 0 for title in titles), np.int64, len(corpus.titles))
    for key, label, marked in (
        ("no_title", "without a title", corpus.title_tokens.lengths == 0),
        ("no_abstract", "without an abstract", corpus.abstract_tokens.lengths == 0),
        ("no_year", "without a year", corpus.years == 0),
        ("same_title", "with the same title as another", repeated(same)),
        (
            "same_text",
            "with the same words as another, in title and abstract",
            repeated(view.hashes(corpus.title_tokens, corpus.abstract_tokens)),
        ),
    ):
        table.count(key, label, marked)
    for key, share in (("earliest", 0), ("median", 50), ("latest", 100)):
        cells = {}
        for role, rows in roles.items():
            years = corpus.years[rows][corpus.years[rows] != 0]
            year = int(np.percentile(years, share, method="inverted_cdf")) if len(years) else None
            cells[role] = Cell(year, is_year=True)
        table.add(f"year_{key}", f"{key} year", cells)
    return table


def length_table(view: CorpusView) -> Table:
    """Lengths in words of the contexts of each split, and of non-empty titles and abstracts."""
    corpus = view.corpus
    note = "Without punctuation and citation markers. p5: 5 % of the texts have at most this length."
    table = Table("lengths", "Lengths in words", note, {}, ())
    contexts = view.lengths(corpus.context_tokens)
    lengths = {f"contexts_{name}": contexts[rows] for name, rows in view.contexts.items()}
    for name, tokens in (("titles", corpus.title_tokens), ("abstracts", corpus.abstract_tokens)):
        words = view.lengths(tokens)
        lengths[name] = words[words > 0]
    for key, words in lengths.items():
        cells = {"texts": Cell(len(words))}
        if len(words):
            # This method returns observed lengths, without interpolation.
            quantiles = np.percentile(words, list(QUANTILES.values()), method="inverted_cdf").astype(int)
            cells["mean"] = Cell(float(words.mean()))
            cells |= {name: Cell(length) for name, length in zip(QUANTILES, quantiles.tolist(), strict=True)}
        table.add(key, key.replace("_", " of ", 1), cells)
    return table


def leak_table(view: CorpusView) -> Table:
    """Count contexts that name a target."""
    corpus = view.corpus
    kinds = {
        "title": "contexts with the title of a target",
        "year": "contexts with a year next to the marker",
        "own_year": "contexts with the year of a target next to the marker",
    }
    marked = np.zeros((len(kinds), len(corpus.context_ids)), np.bool_)
    with count_progress("titles and years in contexts", sum(map(len, corpus.splits.values()))) as done:
        for split in corpus.splits.values():
            for row, cited in zip(split.contexts.tolist(), split.positives, strict=True):
                targets, text = cited.tolist(), corpus.context_texts[row]
                plain, adjacent = plain_words(fold(text)), adjacent_years(text)
                titles = (plain_words(fold(corpus.titles[target])) for target in targets)
                marked[:, row] = (
                    any(title in plain for title in titles if title.count(" ") > TITLE_WORDS),
                    bool(adjacent),
                    not {int(corpus.years[target]) for target in targets}.isdisjoint(adjacent),
                )
                done(1)
    note = (
        f"Titles of at least {TITLE_WORDS} words must match in full, ignoring case and punctuation; years "
        "up to three characters from the marker, without letters or digits between. A title can be a "
        "common phrase."
    )
    table = Table("leaks", "Contexts that leak the answer", note, view.contexts, corpus.context_ids)
    for number, (kind, label) in enumerate(kinds.items()):
        table.count(kind, label, marked[number])
    table.count("any", "contexts with any of these", np.logical_or.reduce(marked))
    return table


def duplicate_table(view: CorpusView) -> Table:
    """Count contexts with the same words as others, in their split and in that for training."""
    corpus = view.corpus
    note = "Punctuation and markers are ignored. A model can memorise the answer to a context of training."
    table = Table("duplicates", "Contexts with the same words", note, view.contexts, corpus.context_ids)
    texts = view.hashes(corpus.context_tokens)
    table.count("same", "contexts with the same words as another", repeated(texts))
    targets = np.zeros(len(texts), np.int64)
    for split in corpus.splits.values():
        targets[split.contexts] = [hash(tuple(sorted(cited.tolist()))) or 1 for cited in split.positives]
    # Contexts in no split have unknown targets.
    pairs = np.unique(np.stack([texts, targets])[:, targets != 0], axis=1)
    table.count(
        "other_target",
        "... whose targets are others",
        (targets != 0) & np.isin(texts, pairs[0][repeated(pairs[0])]),
    )
    if TRAIN in corpus.splits:
        trained = np.isin(texts, texts[corpus.splits[TRAIN].contexts]) & (texts != 0)
        trained[corpus.splits[TRAIN].contexts] = False
        table.count("in_train", f"contexts with the same words as one in {TRAIN}", trained)
    return table


def plain_words(folded: str) -> str:
    """Reduce a text to lower-case words of letters and digits, with a space before, between and after them.

    >>> plain_words("Pre-training (BERT)")
    ' pre training bert '
    """
    return f" {' '.join(_NOT_ALNUM.split(folded.casefold())).strip()} "


def inspect_corpus(data: Callable[[], Corpus], output_dir: str | Path) -> Path:
    """Inspect a corpus: print a summary, write it to index.html and all numbers to inspect.json.

    data: opens the corpus. Returns the path of the page. Raises InputError for invalid data.
    """
    folder = expand_user(output_dir)
    folder.mkdir(parents=True, exist_ok=True)  # fail before the long computation
    corpus = data()
    view = CorpusView(corpus)
    makers = (split_table, paper_table, length_table, leak_table, duplicate_table)
    tables = [make(view) for make in makers]
    content: dict[str, Any] = {"data": corpus.name, "fingerprint": corpus.fingerprint}
    for table in tables:
        content |= table.flat()
    write_text(folder / "inspect.json", json.dumps(content, indent=1, ensure_ascii=False) + "\n")
    page = Console(record=True, file=io.StringIO(), width=WIDTH)
    console = Console()
    for shown in (page, console if console.is_terminal else Console(width=WIDTH)):
        for table in tables:
            table.print(shown)
    write_text(folder / "index.html", page.export_html())
    return folder / "index.html"


@one_line_errors
@hydra.main(version_base="1.3", config_path=str(CONF), config_name="inspect")
def main(config: DictConfig) -> None:
    with exit_on_input_error():
        refuse_missing(config)
        print(f"page: {instantiate(config)}")
