"""The networks of a model: a folder with an encoder, perhaps a cross-encoder, and their tokeniser.

networks.json   lengths and prefixes of the inputs, and a hash of each file
encoder.onnx  cross-encoder.onnx  tokenizer.json
means.safetensors   mean outputs for texts of each kind in L languages, [L, D], if there are several: the
                    nearest one is subtracted, which leaves what a text is about
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import asdict, dataclass, field
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Self
from weakref import WeakValueDictionary

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load_file, save

from citerec.base.errors import InputError, error_text
from citerec.base.files import digest_file, write_text
from citerec.retrieval.arrays import Floats, to_unit_length
from citerec.retrieval.networks.inputs import PAPER, QUERY, InputReader, Lengths, PaperText, Subwords
from citerec.retrieval.networks.session import Network
from citerec.retrieval.networks.store import Encoded, Keys

if TYPE_CHECKING:
    from citerec.retrieval.networks.graph import Bert

MANIFEST, TOKENIZER = "networks.json", "tokenizer.json"
ENCODER, CROSS_ENCODER, MEANS = "encoder.onnx", "cross-encoder.onnx", "means.safetensors"
FORMAT = 1
ENCODED = 3
"""Version of what is kept of papers (store.Encoded)."""
_opened: WeakValueDictionary[str, Network] = WeakValueDictionary()
"""Networks in use, by the hash of their file."""


@dataclass(frozen=True)
class Networks:
    """An encoder, which makes a vector [D] of a text, and a cross-encoder, which scores pairs.

    means: of outputs, by kind. scale: length of queries' vectors, which spreads their products with papers as
    widely as the built-in encoder's cosines, whose limits and weights are applied to them.
    """

    folder: Path
    dim: int
    reader: InputReader
    hashes: dict[str, str]
    means: Mapping[str, Floats] = field(default_factory=dict)
    scale: float = 1.0

    @classmethod
    def open(cls, folder: Path) -> Self:
        """Open a folder written by `write`. InputError if it is damaged or of another version."""
        path = folder / MANIFEST
        try:
            content = json.loads(path.read_text("utf-8"))
            if content["format"] != FORMAT:
                raise InputError(f"{path}: networks of another version")
            lengths, hashes = Lengths(**content["lengths"]), dict(content["files"])
            dim, prefixes = int(content["dim"]), dict(content.get("prefixes", {}))
            means = load_file(folder / MEANS) if MEANS in hashes else {}
            scale = float(content.get("scale", 1))
        except (OSError, ValueError, LookupError, TypeError, SafetensorError) as error:
            raise InputError(f"{path}: damaged ({error_text(error)})") from None
        return cls(folder, dim, InputReader.open(folder / TOKENIZER, lengths, prefixes), hashes, means, scale)

    def check(self) -> None:
        """Raise InputError if a file is not the one that was written with its manifest."""
        for name, digest in self.hashes.items():
            if digest_file(self.folder / name) != digest:
                raise InputError(f"{self.folder / name}: is not the file that {MANIFEST} names; get it again")
        if (dim := self.encoder.open().get_outputs()[0].shape[-1]) != self.dim:
            raise InputError(f"{self.folder / MANIFEST}: dim is {self.dim}, but the encoder's is {dim}")

    @staticmethod
    def write(
        folder: Path,
        graphs: Mapping[str, Bert],
        tokenizer: str,
        lengths: Lengths,
        prefixes: Mapping[str, str] = MappingProxyType({}),
        means: Mapping[str, Floats] = MappingProxyType({}),
        scale: float = 1.0,
    ) -> None:
        """Write networks to a folder: ENCODER and perhaps CROSS_ENCODER by name, and their tokenizer.json.

        InputError for other weights than a BERT's.
        """
        from citerec.retrieval.networks.graph import write_graph  # not needed to use networks

        for name, bert in graphs.items():
            write_graph(bert, folder / name)
        write_text(folder / TOKENIZER, tokenizer)
        if means:
            (folder / MEANS).write_bytes(save(dict(means)))
        names = (*graphs, TOKENIZER, *([MEANS] if means else []))
        hashes = {name: digest_file(folder / name) for name in names}
        dim = graphs[ENCODER].shape[1]
        content = {"format": FORMAT, "dim": dim, "lengths": asdict(lengths), "files": hashes}
        content |= {"prefixes": dict(prefixes)} if prefixes else {}
        content |= {"scale": scale} if scale != 1 else {}
        write_text(folder / MANIFEST, json.dumps(content, indent=1) + "\n")

    @property
    def scores_pairs(self) -> bool:
        """Whether there is a cross-encoder."""
        return CROSS_ENCODER in self.hashes

    @cached_property
    def encoder(self) -> Network:
        return self._network(ENCODER)

    @cached_property
    def cross_encoder(self) -> Network:
        return self._network(CROSS_ENCODER)

    def _network(self, name: str) -> Network:
        """Open a file once for all folders with the same content, so that a changed library reopens none."""
        return _opened.setdefault(self.hashes[name], Network(self.folder / name))

    def load(self) -> None:
        """Open the files now, because their folder may be replaced."""
        self.encoder.open()
        if self.scores_pairs:
            self.cross_encoder.open()

    def fingerprint(self) -> dict[str, Any]:
        """All that vectors depend on besides the texts, as plain values."""
        files = {name: self.hashes[name] for name in (ENCODER, TOKENIZER, MEANS) if name in self.hashes}
        return files | self.reader.fingerprint()

    @property
    def identity(self) -> str:
        """A hash of `fingerprint` and of what is kept."""
        content = json.dumps([self.fingerprint(), ENCODED])
        return hashlib.blake2b(content.encode(), digest_size=8).hexdigest()

    def _less_mean(self, hidden: Floats, kind: str) -> Floats:
        """Hidden states [L, D] of a text of a kind, less the nearest of its means."""
        if (means := self.means.get(kind)) is None:
            return hidden
        return hidden - means[np.square(means - hidden.mean(axis=0)).sum(axis=1).argmin()]

    def read(self, texts: list[Subwords]) -> list[tuple[Floats, Floats]]:
        """Read queries of L subwords: a vector [D], of length `scale`, and hidden states [L, D], of unit
        length."""
        before = len(self.reader.start())

        def read_text(_: int, hidden: Floats) -> tuple[Floats, Floats]:
            hidden = self._less_mean(hidden, QUERY)
            whole = np.float32(self.scale) * to_unit_length(hidden.mean(axis=0))
            return whole, to_unit_length(hidden[before:-1])

        return self.encoder.map([(self.reader.alone(text), None) for text in texts], read_text)

    def encode(
        self,
        keys: Keys,
        papers: list[PaperText],
        advance: Callable[[int], None] | None = None,
        pool: Executor | None = None,
    ) -> Encoded:
        """Encode papers [n], the sentences of their abstracts (means of the same hidden states), and the
        words of their titles."""
        before = len(self.reader.start(PAPER))

        def encode_paper(number: int, hidden: Floats) -> tuple[Floats, list[Floats], Floats]:
            hidden = self._less_mean(hidden, PAPER)
            inside = hidden[before:]
            parts = [inside[start:end] for start, end in pairwise(papers[number].bounds)]
            sentences = [to_unit_length(part.sum(axis=0)) for part in parts]
            title = to_unit_length(inside[: papers[number].title])
            return to_unit_length(hidden.mean(axis=0)), sentences, title

        inputs = [(self.reader.alone(paper.subwords, PAPER), None) for paper in papers]
        encoded = self.encoder.map(inputs, encode_paper, advance, pool)
        dim = self.dim
        return Encoded(
            keys,
            np.array([vector for vector, _, _ in encoded], np.float16).reshape(-1, dim),
            np.array([word for paper in papers for word in paper.subwords], np.int32),
            np.array([len(paper.subwords) for paper in papers], np.int32),
            _bytes([sentence for _, sentences, _ in encoded for sentence in sentences], dim),
            np.array([len(sentences) for _, sentences, _ in encoded], np.int32),
            _bytes([word for _, _, title in encoded for word in title], dim),
            np.array([paper.title for paper in papers], np.int32),
        )

    def scores(self, pairs: list[tuple[Subwords, list[int]]]) -> Floats:
        """Scores [n] of pairs."""
        return np.array(self.cross_encoder.map(pairs, lambda _, score: float(score)), np.float32)


def _bytes(vectors: Sequence[Floats] | Floats, dim: int) -> NDArray[np.int8]:
    """Vectors [n, D] of unit length in units of 1 / 127."""
    return np.rint(np.array(vectors, np.float32).reshape(-1, dim) * 127).astype(np.int8)
