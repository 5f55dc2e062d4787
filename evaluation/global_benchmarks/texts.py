"""The papers and queries of a benchmark as a corpus, so that any retriever can rank them.

A query is a paper: its text is asked for as if it were a context, by title and context. The whole abstract
stands there, or some sentences of it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import orjson

from datasets.atomic import written_folder
from datasets.errors import InputError
from datasets.fingerprint import content_hash
from datasets.fulltext.json_lines import read_objects
from datasets.fulltext.values import Object
from datasets.json_stream import read_records
from datasets.prepare import open_corpus
from datasets.progress import reading
from datasets.schema import TARGET_MARKER
from datasets.store import Corpus
from evaluation.global_benchmarks.pool_benchmark import some

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
    """The source files of the corpus (datasets.source)."""
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
