"""Scores of given pairs by a retriever.

What benchmarks have in common that bring their own queries, each with a pool of candidates.
The papers and queries of a benchmark as a corpus, so that any retriever can rank them.
"""

from __future__ import annotations

import hashlib
import json
import logging
import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from datasets.corpus import Corpus
from datasets.errors import InputError
from datasets.files import content_hash, whole_file, written_folder
from datasets.json_lines import Object, read_objects
from datasets.prepare import open_corpus
from datasets.progress import counting, reading
from datasets.records import TARGET_MARKER
from datasets.source_files import read_records
from retrieval.base import Retriever
from retrieval.filters import Filters

LARGEST = 1 << 28
"""Bytes of a file at most."""

ABOUT = """\
- A query is a paper, by its title and abstract; relevant are the papers that it cites, or that are like it.
  Percent, unless the text says otherwise; the best of a column is bold, ± is the standard deviation over
  samplings of pools.
- Figures "as published" are of other data, unless the text says otherwise: compare the distances between
  the models, not the numbers."""
"""What a page of results says of benchmarks whose queries are papers."""

Table = dict[str, dict[str, float]]
"""{field or facet: {measure: percent}}, measures by the names of the official script."""


def read_json(path: Path) -> dict[str, Any]:
    """The object that a JSON file holds, plain or gzipped; NaN and Infinity are read as Python writes them.

    Raises InputError for a file that is not there or holds something else.
    """
    try:
        found = json.loads(whole_file(path, LARGEST).decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: malformed JSON: {error}") from None
    return table(found, str(path))


def table(value: object, where: str) -> dict[str, Any]:
    """The value, which must be an object; InputError that says where it stands."""
    if not isinstance(value, dict):
        raise InputError(f"{where}: must be an object, not {json.dumps(value)[:40]}")
    return value


def ids(value: object, where: str) -> list[str]:
    """The value, which must be a list of paper ids; InputError that says where it stands."""
    if not isinstance(value, list) or not all(isinstance(paper, str) for paper in value):
        raise InputError(f"{where}: must be a list of paper ids (strings), not {json.dumps(value)[:60]}")
    return value


def is_number(value: object) -> bool:
    """Whether it is a number that others can be compared with, and that a float can hold."""
    if type(value) is int:
        return abs(value) < 1e308
    return isinstance(value, float) and not math.isnan(value)


def some(names: Collection[str], most: int = 5) -> str:
    """The first names, and how many more there are.

    >>> some(["a", "b", "c"], 2)
    'a, b and 1 more'
    """
    shown = ", ".join(list(names)[:most])
    return f"{shown} and {len(names) - most:,} more" if len(names) > most else shown


SPLIT = "test"


@dataclass(frozen=True)
class Question:
    """A paper that is asked for others, by its abstract or the text given; relevant: what is to be found."""

    paper: str
    relevant: tuple[str, ...]
    text: str | None = None


@dataclass(frozen=True)
class Text:
    """A line of a file of papers; what is null or absent there is empty."""

    id: str
    title: str
    sentences: list[str]
    """of the abstract; one where it is not cut"""
    labels: list[str]
    """pred_labels, one for each sentence, or none"""

    @property
    def abstract(self) -> str:
        return " ".join(self.sentences)


def read_texts(path: Path) -> Iterator[Text]:
    """Papers of a file of JSON lines, plain or gzipped: `paper_id`, `title`, `abstract` (text or sentences).

    A file that is called .json is one object, {paper_id: {"title", "abstract"}}. Raises InputError that names
    file, line (or paper) and field.
    """
    with reading(path, path.name) as advance:
        if path.name.removesuffix(".gz").endswith(".json"):
            for paper, found in read_records(path, frozenset(), dict, advance):
                yield _text(found | {"paper_id": paper}, f"{path}, paper {paper!r}")
            return
        for where, record in read_objects(path, advance):
            yield _text(record, where)


def _text(record: Object, where: str) -> Text:
    if not isinstance(record.get("paper_id"), str | int):
        raise InputError(f"{where}: must be an object with a paper_id")
    title, abstract, labels = (record.get(key) or default for key, default in _FIELDS.items())
    sentences = [abstract] if isinstance(abstract, str) else abstract
    for key, value in (("abstract", sentences), ("pred_labels", labels), ("title", [title])):
        if not isinstance(value, list) or not all(isinstance(part, str) for part in value):
            raise InputError(f"{where}, field {key!r}: must be text")
    if labels and len(labels) != len(sentences):
        raise InputError(f"{where}: {len(sentences)} sentences and {len(labels)} labels")
    return Text(str(record["paper_id"]), title, sentences, labels)


_FIELDS: dict[str, Any] = {"title": "", "abstract": "", "pred_labels": []}


def open_texts(
    name: str,
    path: Path,
    questions: Mapping[str, Question],
    candidates: Collection[str],
    cache_dir: str | Path,
) -> Corpus:
    """The papers of a file that are asked or candidates, as a corpus with a context for each question.

    Candidates with neither title nor abstract are left out. Raises InputError that names papers which the
    file lacks, and papers without a text that are asked.
    """
    stores = Path(cache_dir).expanduser() / "corpora"
    stores.mkdir(parents=True, exist_ok=True)
    asked = {key: asdict(question) for key, question in questions.items()}
    key = orjson.dumps([content_hash(path, stores), asked, sorted(candidates)])
    folder = stores.with_name("questions") / hashlib.blake2b(key, digest_size=8).hexdigest()
    if not folder.is_dir():
        with written_folder(folder) as part:
            _write(part, path, questions, candidates)
    return open_corpus(folder, cache_dir=cache_dir, candidates="all", splits=[SPLIT], name=name)


def _write(folder: Path, path: Path, questions: Mapping[str, Question], candidates: Collection[str]) -> None:
    """The source files of the corpus (datasets.records)."""
    asking = {question.paper for question in questions.values()}
    wanted, asked = asking | set(candidates), dict[str, Text]()
    found, written = set[str](), set[str]()
    with (folder / "papers.json").open("wb") as file:
        for text in read_texts(path):
            if text.id not in wanted or text.id in found:
                continue
            found.add(text.id)
            if not text.title.strip() and not text.abstract.strip():
                continue
            record = orjson.dumps({text.id: {"title": text.title, "abstract": text.abstract}})
            file.write((b",\n" if written else b"{") + record[1:-1])
            written.add(text.id)
            if text.id in asking:
                asked[text.id] = text
        file.write(b"}" if written else b"{}")
    if lacking := sorted(wanted - found):
        raise InputError(f"{path}: {len(lacking):,} papers of the benchmark are not in it: {some(lacking)}")
    if mute := sorted(asking - written):
        raise InputError(f"{path}: {len(mute):,} queries have neither title nor abstract: {some(mute)}")
    relevant = {key: [paper for paper in q.relevant if paper in written] for key, q in questions.items()}
    if vain := [key for key, papers in relevant.items() if not papers]:
        raise InputError(f"{path}: {len(vain):,} queries whose relevant papers have no text: {some(vain)}")
    contexts = {}
    for key, question in questions.items():
        text = asked[question.paper]
        body = text.abstract if question.text is None else question.text
        body = body if body.strip() else text.title  # which asks alone then
        contexts[key] = {"masked_text": f"{TARGET_MARKER} {body}", "citing_id": question.paper}
    queries = [{"context_id": key, "positive_ids": papers} for key, papers in relevant.items()]
    (folder / "contexts.json").write_bytes(orjson.dumps(contexts))
    (folder / f"{SPLIT}.json").write_bytes(orjson.dumps(queries))


log = logging.getLogger(__name__)

BATCH = 64
"""Queries between two steps of the progress bar."""


@dataclass(frozen=True)
class Pools(Filters):
    """Each query may get the papers of its own pool. rows: {context: papers}, rows of the corpus."""

    rows: Mapping[int, NDArray[np.int64]] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return True

    def groups(
        self, corpus: Corpus, contexts: NDArray[np.int64]
    ) -> Iterator[tuple[NDArray[np.int64], NDArray[np.bool_]]]:
        """One query after the other."""
        for place, context in enumerate(contexts.tolist()):
            allowed = np.zeros(len(corpus.paper_ids), np.bool_)
            allowed[self.rows[context]] = True
            yield np.array([place]), allowed & corpus.is_candidate


def pool_scores(
    retriever: Retriever, corpus: Corpus, pools: Mapping[str, Collection[str]]
) -> dict[str, dict[str, float]]:
    """{query: {candidate: score}}, higher is better, of pools {query: candidates}.

    The retriever has indexed the corpus, whose contexts are the queries. What it does not find for a query
    (BM25: papers without a word of it; papers without a text) gets a score below all others.
    """
    textless = sorted({paper for pool in pools.values() for paper in pool if not corpus.has_paper(paper)})
    if textless:
        log.warning("%s candidates without title and abstract come last: %s", len(textless), some(textless))
    row = {query: number for number, query in enumerate(corpus.context_ids)}
    rows = {
        row[query]: np.array([corpus.paper_row(paper) for paper in pool if corpus.has_paper(paper)], np.int64)
        for query, pool in pools.items()
    }
    filters, contexts = Pools(rows=rows), np.array(list(rows), np.int64)
    most = max(1, *(len(pool) for pool in rows.values()))
    found: dict[str, dict[str, float]] = {}
    with counting(f"{retriever.name}: scoring pools", len(contexts)) as advance:
        for start in range(0, len(contexts), BATCH):
            part = contexts[start : start + BATCH]
            ranking = retriever.search(part, most, filters)
            for context, papers, scores in zip(part.tolist(), ranking.papers, ranking.scores, strict=True):
                there = papers >= 0
                names = [corpus.paper_ids[paper] for paper in papers[there].tolist()]
                found[corpus.context_ids[context]] = dict(zip(names, scores[there].tolist(), strict=True))
            advance(len(part))
    lowest = min((score for scored in found.values() for score in scored.values()), default=0.0) - 1
    return {
        query: {paper: found[query].get(paper, lowest) for paper in pool} for query, pool in pools.items()
    }
