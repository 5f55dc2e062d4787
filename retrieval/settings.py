"""Settings of retrievers: the index of vectors, article encoders."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any, ClassVar

from citerec.base.errors import InputError
from citerec.base.settings import Settings, check_count, register, setting

BUILD_SETTINGS = {"exact": (), "half": (), "ivf": ("lists", "sample", "seed")}
"""The kinds of indexes, and the settings that a built index depends on."""
SEARCH_SETTINGS = {"exact": ("device",), "half": ("device",), "ivf": ("probes",)}
"""Settings of the search, which may differ for a saved index."""


@dataclass(frozen=True)
class IndexConfig(Settings):
    """Vector index (retrieval.indexes.index); null: chosen by the number N of vectors."""

    where: ClassVar[str] = "index"

    kind: str = setting("exact", choices=tuple(BUILD_SETTINGS))
    """exact | half (exact, 16 bits per number) | ivf (inverted file over k-means lists)"""
    device: str = setting("auto", choices=("auto", "cpu", "gpu"))
    """exact, half: auto (a GPU if there is one) | cpu | gpu"""
    lists: int | None = setting(None, least=1)
    """ivf: number of lists; null: 4 sqrt(N)"""
    probes: int | None = setting(None, least=1)
    """ivf: minimum lists to search; null: 2 sqrt(lists)"""
    sample: int | None = setting(None, least=1)
    """vectors to train k-means on; null: 64 per list, if available"""
    seed: int = 0
    """random seed of the sample and k-means"""

    def __post_init__(self) -> None:
        """Raises InputError for settings of other kinds and values out of range."""
        super().__post_init__()
        names = {"kind", *BUILD_SETTINGS[self.kind], *SEARCH_SETTINGS[self.kind]}
        for part in fields(self):
            value = getattr(self, part.name)
            if part.name not in names and value != part.default:
                raise InputError(f"index.{part.name}={value}: index.kind={self.kind} has no such setting")

    def asdict(self) -> dict[str, object]:
        """The kind and its build settings, as plain values."""
        return {name: asdict(self)[name] for name in ("kind", *BUILD_SETTINGS[self.kind])}


def measure_name(name: str) -> str:
    """Return the name of a measure in settings and reports; other libraries' names are understood, too.

    >>> [measure_name(name) for name in ("R@10", "recall@10", "MRR", "P@5", "AP")]
    ['recall@10', 'recall@10', 'mrr', 'precision@5', 'AP']
    """
    name = re.sub(r"^(?:R|Recall)@", "recall@", name)
    return "mrr" if name == "MRR" else re.sub(r"^P@", "precision@", name)


def recall_measures(measure: str | Sequence[str], option: str) -> tuple[list[str], list[int]]:
    """List one or several `recall@k` measures, and their k; InputError for others and for an empty list."""
    measures = [*map(measure_name, [measure] if isinstance(measure, str) else measure)]
    for name in measures or [""]:
        if not re.fullmatch(r"recall@[1-9]\d*", name):
            raise InputError(f"{option}={name}: choose recall@K, e.g. recall@10")
    return measures, [int(name.removeprefix("recall@")) for name in measures]


def check_counts(**options: object) -> None:
    """InputError unless each of these retriever options is a positive integer."""
    for name, value in options.items():
        check_count(f"retriever.{name}", value)


QUERY_FIELDS = ("context", "title", "abstract")


def check_fields(fields: Sequence[str]) -> tuple[str, ...]:
    """The fields of a query as a tuple; InputError for unknown fields and for an empty list."""
    if isinstance(fields, str):
        fields = [fields]
    for name in fields or [""]:
        if name not in QUERY_FIELDS:
            raise InputError(f"retriever.query: {name!r} is not one of {', '.join(QUERY_FIELDS)}")
    return tuple(fields)


@dataclass(frozen=True)
class Lengths(Settings):
    """Maximum subwords of each field of the small networks' inputs (retrieval.networks.inputs)."""

    where: ClassVar[str] = "lengths"

    before: int = setting(60, least=1)
    """maximum subwords of the passage before the citation"""
    after: int = 44
    """maximum subwords of the passage after the citation"""
    citing_title: int = 22
    """maximum subwords of the title of the paper being written"""
    title: int = setting(40, least=1)
    """maximum subwords of a paper's title"""
    names: int = 10
    """maximum subwords of its first authors and year"""
    abstract: int = 130
    """maximum subwords of its abstract"""

    @property
    def query(self) -> int:
        """Maximum subwords of a query, with [MASK] and [SEP]."""
        return self.before + self.after + self.citing_title + 2

    @property
    def paper(self) -> int:
        """Maximum subwords of a paper, with "." and [SEP]."""
        return self.title + self.names + self.abstract + 2


PROMPTS = ("query_prompt", "paper_prompt")
SOURCE = ("name", "hub", "path", "adapter")
"""Settings that locate an article encoder; the others decide how it encodes."""


@dataclass(frozen=True)
class ArticleConfig(Settings):
    """A transformer that encodes papers and contexts as vectors (retrieval.encoders.encoder)."""

    where: ClassVar[str] = "encoder"

    name: str
    """name of the model, also of its folder in the cache"""
    hub: str | None = None
    """model id on huggingface.co"""
    path: str | None = None
    """folder of the model, in place of hub"""
    adapter: str | None = None
    """adapter (retrieval.encoders.adapters): id on huggingface.co, or a folder; a model trained here includes
    its own"""
    pooling: str = setting("mean", choices=("mean", "cls", "aspire", "auto"))
    """mean (of the tokens) | cls (first token) | aspire (one mean per sentence) | auto (pooling, prompts,
    similarity and, if lower, max_tokens as the model's modules.json says; without one: mean)"""
    layers: str = setting("last", choices=("last", "all"))
    """hidden states to pool: last | all (their mean)"""
    max_tokens: int = setting(256, least=8)
    """maximum tokens of a text, including special tokens"""
    layout: str = setting("sentence", choices=("sentence", "sep", "lengths"))
    """separator of a text's fields: sentence (a full stop) | sep (the model's separator token) | lengths (as
    the small networks read them: each field has its own length, papers have names and year)"""
    lengths: Lengths = field(default_factory=Lengths)
    """layout=lengths: maximum subwords of each field"""
    similarity: str = setting("cosine", choices=("cosine", "l2", "dot"))
    """cosine | l2 (negative Euclidean distance; requires index.kind=exact; aspire always uses it) | dot"""
    query: tuple[str, ...] = ("title", "context")
    """fields of a query, in order: context; title and abstract of the citing paper"""
    markers: str = setting("drop", choices=("drop", "mask"))
    """the query's citation marker: drop | mask (replace it by the model's mask token)"""
    query_prompt: str = ""
    """text before each query, which some models were trained with, such as "query: \""""
    paper_prompt: str = ""
    """text before each paper, such as "passage: \""""

    def __post_init__(self) -> None:
        """Raises InputError for an invalid value."""
        object.__setattr__(self, "query", check_fields(self.query))
        if not isinstance(self.lengths, Lengths):  # as Hydra gives it
            object.__setattr__(self, "lengths", Lengths(**self.lengths))
        super().__post_init__()
        if self.layout == "lengths":
            self._check_lengths()

    def _check_lengths(self) -> None:
        prompts = self.query_prompt or self.paper_prompt
        others = set(self.query) - {"context", "title"} or prompts
        if self.pooling == "aspire" or self.markers != "mask" or others:
            raise InputError(
                "encoder.layout=lengths: needs encoder.markers=mask, encoder.query=[context,title], "
                "encoder.pooling=mean or cls, and no prompts"
            )
        longest = 2 + max(self.lengths.query, self.lengths.paper)
        if longest > self.max_tokens:
            raise InputError(
                f"encoder.layout=lengths: encoder.lengths give texts of up to {longest} tokens; set "
                f"encoder.max_tokens={longest} or shorter lengths"
            )

    def encoding_settings(self) -> dict[str, Any]:
        """The settings that affect the vectors, without the location of the model."""
        unused = {*SOURCE, *(() if self.layout == "lengths" else ("lengths",))}
        unused |= {key for key in PROMPTS if not getattr(self, key)}
        return {key: value for key, value in asdict(self).items() if key not in unused}


MINILM = ArticleConfig(
    "minilm", hub="sentence-transformers/all-MiniLM-L6-v2", max_tokens=128, query=("context", "title")
)
"""Settings of all-MiniLM-L6-v2 for training and for libraries."""

register("index", IndexConfig, "citerec.retrieval.settings.IndexConfig")
register("encoder", ArticleConfig, "citerec.retrieval.settings.ArticleConfig")
