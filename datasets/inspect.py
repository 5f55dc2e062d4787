"""Inspect a corpus before using it: citerec data inspect data=... (docs/research/data.md)."""

from __future__ import annotations

import re

import hydra
import numpy as np
from hydra.utils import instantiate
from numpy.typing import NDArray
from omegaconf import DictConfig

from citerec.base.configuration import refuse_missing
from citerec.base.errors import exit_on_input_error, one_line_errors
from citerec.base.help import CONF
from citerec.datasets.building.contexts import adjacent_years
from citerec.datasets.columns import Ragged
from citerec.datasets.corpus import Corpus, Split
from citerec.datasets.records import MARKER_WORDS, TRAIN, split_group
from citerec.formats.letters import fold, normalise_title

EXAMPLES = 3
"""Ids of contexts or papers that are shown beside a number."""
TITLE_WORDS = 3
"""Fewest words of a title that is looked for in contexts."""
_NOT_ALNUM = re.compile(r"[\W_]+")

Listed = dict[str, list[str]]  # {finding: ids of its contexts or papers}; the first has all of them


def plain_words(text: str) -> str:
    """Reduce a text to lower-case words of letters and digits, with a space before, between and after them.

    >>> plain_words("Pre-training (BERT)")
    ' pre training bert '
    """
    return f" {' '.join(_NOT_ALNUM.split(fold(text).casefold())).strip()} "


def same_words(corpus: Corpus, *parts: Ragged) -> NDArray[np.int64]:
    """Hash the words of texts [rows] of several parts, without markers and punctuation; 0: no words."""
    is_word = np.array(
        [any(map(str.isalnum, w)) and not any(m in w for m in MARKER_WORDS) for w in corpus.words], np.bool_
    )
    texts = (b"".join(part[is_word[part]].tobytes() for part in text) for text in zip(*parts, strict=True))
    return np.fromiter((hash(text) if text else 0 for text in texts), np.int64, len(parts[0]))


def repeated(hashes: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Mask [n] of the hashes that occur more than once, except 0 (no words)."""
    _, place, counts = np.unique(hashes, return_inverse=True, return_counts=True)
    return np.asarray((counts[place] > 1) & (hashes != 0))


def inspect_split(corpus: Corpus, split: Split, hashes: NDArray[np.int64]) -> Listed:
    """Find what to know about the contexts of a split; hashes: words of all contexts (`same_words`)."""
    others = [] if split_group(split.name) == TRAIN else corpus.training_splits
    trained = np.concatenate([hashes[:0], *(hashes[train.contexts] for train in others)])
    in_training = np.isin(hashes, trained) & (hashes != 0)
    empty = {"title": corpus.title_tokens.lengths == 0, "abstract": corpus.abstract_tokens.lengths == 0}
    listed: Listed = {}
    for row, cited in zip(split.contexts.tolist(), split.positives, strict=True):
        text, targets, citing = corpus.context_texts[row], cited.tolist(), int(corpus.citing[row])
        plain, years = plain_words(text), set(adjacent_years(text))
        titles = [plain_words(corpus.titles[target]) for target in targets]
        year = int(corpus.years[citing]) if citing >= 0 else 0
        for what, is_so in {
            "contexts": True,
            "no training context cites a target": not corpus.seen[targets].all(),
            "a target is no candidate": not corpus.is_candidate[targets].all(),
            "a target is the citing paper": citing in targets,
            "a target is later than the citing paper": year and corpus.years[targets].max() > year,
            "without words": not hashes[row],
            **{f"a target without {part}": without[targets].any() for part, without in empty.items()},
            **{f"citing paper without {part}": citing >= 0 and no[citing] for part, no in empty.items()},
            "names the title of a target": any(t in plain for t in titles if t.count(" ") > TITLE_WORDS),
            "a target's year stands beside the mark": years & {int(corpus.years[t]) for t in targets},
            "the words of a training context": in_training[row],
        }.items():
            names = listed.setdefault(what, [])
            if is_so:
                names.append(corpus.context_ids[row])
    return listed


def inspect_papers(corpus: Corpus) -> Listed:
    """Find what to know about the candidates. The duplicate of a target, if found, counts as a miss."""
    hashes = same_words(corpus, corpus.title_tokens, corpus.abstract_tokens)
    titles = np.fromiter(map(hash, map(normalise_title, corpus.titles)), np.int64, len(corpus.titles))
    return {
        what: [corpus.paper_ids[row] for row in np.flatnonzero(mask & corpus.is_candidate).tolist()]
        for what, mask in {
            "candidates": corpus.is_candidate,
            "without title": corpus.title_tokens.lengths == 0,
            "without abstract": corpus.abstract_tokens.lengths == 0,
            "without year": corpus.years == 0,
            "title of another paper": repeated(titles),
            "words of another paper": repeated(hashes),
        }.items()
    }


def inspect_corpus(corpus: Corpus) -> str:
    """Return how often each finding applies, in each split and among the candidates, with a few ids."""
    hashes = same_words(corpus, corpus.context_tokens)
    parts = {name: inspect_split(corpus, split, hashes) for name, split in corpus.splits.items()}
    lines = []
    for name, listed in (parts | {"papers": inspect_papers(corpus)}).items():
        (what, every), *others = listed.items()
        lines.append(f"{name}: {len(every):,} {what}")
        for what, ids in others:
            share, some = 100 * len(ids) / max(len(every), 1), ", ".join(ids[:EXAMPLES])
            lines += [f"{len(ids):9,} ({share:5.1f} %) {what}: {some}"] if ids else []
        lines.append(f"     none: {'; '.join(what for what, ids in others if not ids)}")
    return "\n".join(lines)


@one_line_errors
@hydra.main(version_base="1.3", config_path=str(CONF), config_name="inspect")
def main(config: DictConfig) -> None:
    with exit_on_input_error():
        refuse_missing(config)
        print(inspect_corpus(instantiate(config.data)))
