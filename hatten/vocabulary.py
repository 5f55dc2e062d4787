"""Words and their ids in a model."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from datasets.errors import InputError

PAD_WORD = "<pad>"


class Vocabulary:
    """The words of a model; the id of a word is its place in `words`.

    `<pad>` is put first unless the words have it: the reference release carries it at a place of its own, and
    its checkpoints count rows by that. A text that happens to have `<pad>` as a word does not get its id.
    """

    def __init__(self, words: Sequence[str]) -> None:
        """Raises InputError when a word is there twice."""
        self.words: list[str] = list(words) if PAD_WORD in words else [PAD_WORD, *words]
        self._ids = {word: row for row, word in enumerate(self.words)}
        if len(self._ids) != len(self.words):
            raise InputError(f"vocabulary: the word {first_repeated(self.words)!r} is there twice")
        self.pad_id: int = self._ids.pop(PAD_WORD)

    def __len__(self) -> int:
        return len(self.words)

    def __contains__(self, word: object) -> bool:
        return word in self._ids

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Vocabulary) and self.words == other.words

    def __hash__(self) -> int:
        return int(self.hash, 16)

    def lookup(self, store_words: Iterable[str]) -> NDArray[np.int32]:
        """Ids of a corpus's words [V_store] -> own ids, -1 where the word is unknown.

        >>> Vocabulary(["deep", "nets"]).lookup(["nets", "unknown", "deep"]).tolist()
        [2, -1, 1]
        """
        return np.fromiter((self._ids.get(word, -1) for word in store_words), np.int32)

    @property
    def hash(self) -> str:
        """Sixteen hexadecimal digits that stand for the words and their order."""
        digest = hashlib.sha256()
        for word in self.words:
            digest.update(word.encode("utf-8", "surrogatepass") + b"\n")
        return digest.hexdigest()[:16]


def first_repeated(words: Iterable[str]) -> str | None:
    """The first word that came before, None when all differ."""
    seen: set[str] = set()
    for word in words:
        if word in seen:
            return word
        seen.add(word)
    return None
