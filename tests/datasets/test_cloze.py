"""The inverse cloze task: passages of abstracts as contexts, their citing papers, and unusable input."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from citerec.base.errors import InputError
from citerec.datasets.cloze import SHORTEST, ClozeSettings, cut_passages, write_cloze_corpus
from citerec.datasets.prepare import open_corpus
from citerec.datasets.records import SPLITS, TARGET_MARKER
from citerec.tests.conftest import Done
from citerec.tests.datasets.conftest import write_corpus, write_lines

SENTENCE = "This sentence number {} of this abstract has ten words."
ABSTRACT = " ".join(SENTENCE.format(number) for number in range(9))


def paper(id: str, **more: Any) -> dict[str, Any]:
    return {"paper_id": id, "title": f"Title of {id}", "abstract": ABSTRACT, "year": 2001} | more


def read(folder: Path) -> dict[str, Any]:
    """The files of a corpus by name; empty lists for splits that are not written."""
    found: dict[str, Any] = {split: [] for split in SPLITS}
    for path in folder.iterdir():
        text = path.read_bytes()
        found[path.name.split(".")[0]] = json.loads(gzip.decompress(text) if path.suffix == ".gz" else text)
    return found


def write(folder: Path, records: Sequence[Any], **options: Any) -> dict[str, Any]:
    source = write_lines(folder / "papers.jsonl.gz", records)
    write_cloze_corpus(ClozeSettings(source=(str(source),), output=str(folder / "out"), **options))
    return read(folder / "out")


WORDS = ["A", "An", "fast", "nets", "of", "et", "al.", "Fig.", "E.", "TARGETCIT", "othercit", "x,", "()"]
texts = st.lists(st.sampled_from(WORDS), max_size=12).map(lambda words: f"We {' '.join(words)}.")
numbered = st.integers(0, 3).map(SENTENCE.format)
abstracts = st.lists(st.one_of(texts, numbered, st.text(max_size=30)), max_size=8).map(" ".join)
fields = st.sampled_from([None, "", "cs", ["math", "cs"], []])


@given(st.lists(st.tuples(abstracts, fields), min_size=2, max_size=8), st.integers(0, 2**32))
def test_every_context_has_one_mark_and_another_citing_paper_and_is_not_in_its_abstract(
    found: list[tuple[str, Any]], seed: int
) -> None:
    records = [paper(f"p{row}", abstract=text, fields=field) for row, (text, field) in enumerate(found)]
    records += [paper("x", fields="cs"), paper("y", fields="cs")]
    with TemporaryDirectory() as folder:
        corpus = write(Path(folder), records, seed=seed, field="fields")
    assert set(corpus["papers"]) == {record["paper_id"] for record in records}
    counts = dict.fromkeys(corpus["papers"], 0)
    given_abstracts = {record["paper_id"]: " ".join(record["abstract"].split()) for record in records}
    for key, context in corpus["contexts"].items():
        text, cited = context["masked_text"], context["refid"]
        assert text.count(TARGET_MARKER) == len(re.findall("(?:target|other)cit", text, re.IGNORECASE)) == 1
        passage = text.replace(f" {TARGET_MARKER}", "")
        assert len(passage.split()) >= SHORTEST and passage in given_abstracts[cited]
        assert passage not in corpus["papers"][cited]["abstract"]
        assert context["citing_id"] in corpus["papers"] and context["citing_id"] != cited
        assert context["context_id"] == key
        counts[cited] += 1
    assert max(counts.values()) <= 2
    citing: dict[str, str] = {}
    queries = [(split, query) for split in SPLITS for query in corpus[split]]
    assert sorted(query["context_id"] for _, query in queries) == sorted(corpus["contexts"])
    for split, query in queries:
        context = corpus["contexts"][query["context_id"]]
        assert query["positive_ids"] == [context["refid"]]
        assert citing.setdefault(context["citing_id"], split) == split


@given(st.integers(1, 5), st.integers(SHORTEST, 45), st.integers(0, 1000))
def test_passages_end_with_the_sentence_that_reaches_the_words(contexts: int, words: int, seed: int) -> None:
    masked, rest = cut_passages(ABSTRACT, contexts, words, Random(seed))
    numbers = [[int(number) for number in re.findall(r"number (\d)", text)] for text in masked]
    left = [int(number) for number in re.findall(r"number (\d)", rest)]
    assert sorted(sum(numbers, left)) == list(range(9)) and left == sorted(left)
    taken: set[int] = set()
    for passage in numbers:
        assert passage == list(range(passage[0], passage[-1] + 1))
        enough = len(passage) == -(-words // 10)
        assert enough or (len(passage) < -(-words // 10) and (passage[-1] == 8 or passage[-1] + 1 in taken))
        taken |= set(passage)


def test_each_sentence_of_a_passage_can_have_the_mark() -> None:
    places = set()
    for seed in range(40):
        (text,), rest = cut_passages(" ".join(ABSTRACT.split()[:30]), 1, 30, Random(seed))
        places.add(text.split(f" {TARGET_MARKER}.")[0].count("number"))
        assert text.count("number") + rest.count("number") == 3
    assert places == {1, 2, 3}


def test_citing_papers_are_others_of_the_same_field_if_it_has_any(tmp_path: Path) -> None:
    fields = {"a": "cs", "b": ["math"], "c": ["cs", "math"], "d": "cs", "e": ["math"], "alone": None}
    records = [paper(name, fields=field) for name, field in fields.items()]
    found: dict[str, set[str]] = {name: set() for name in fields}
    for seed in range(40):
        (tmp_path / str(seed)).mkdir()
        corpus = write(tmp_path / str(seed), records, seed=seed, field="fields")
        for context in corpus["contexts"].values():
            found[context["refid"]].add(context["citing_id"])
    same = {"a": {"c", "d"}, "b": {"e"}, "c": {"a", "d"}, "d": {"a", "c"}, "e": {"b"}}
    assert found == same | {"alone": set(same)}


def test_the_corpus_opens_and_half_of_the_papers_have_no_abstract(tmp_path: Path) -> None:
    records = [paper(f"p{row}", year=None) for row in range(400)] + [paper("none", title=" ")]
    written = write(tmp_path, records)
    corpus = open_corpus(tmp_path / "out", candidates="all", cache_dir=tmp_path)
    assert len(corpus.paper_ids) == 400 and len(corpus.context_ids) == 800
    assert {split: len(queries) for split, queries in corpus.splits.items()} == {
        split: len(written[split]) for split in SPLITS if written[split]
    }
    assert len(written["train"]) > 700
    kept = sum(bool(paper["abstract"]) for paper in written["papers"].values())
    assert 160 < kept < 240


def test_the_papers_of_a_corpus_are_found_by_its_folder(tmp_path: Path) -> None:
    papers = {"a": {"abstract": ABSTRACT}, "b": {"abstract": ABSTRACT}}
    folder = write_corpus(tmp_path / "corpus", papers, {"c": ("test", "a", "b", "So it is TARGETCIT.")})
    line = write_cloze_corpus(ClozeSettings(source=(str(folder),), output=str(tmp_path / "out")))
    assert line.startswith(f"{tmp_path / 'out'}: 2 papers; ")


def test_equal_settings_give_equal_files_and_other_seeds_others(tmp_path: Path) -> None:
    source = write_lines(tmp_path / "papers.jsonl", [paper(f"p{row}") for row in range(30)])
    text = {"abstract": ABSTRACT, "year": "2001"}
    papers = {f"p{row}": {"title": f"Title of p{row}", **text} for row in range(30)}
    layout = tmp_path / "papers.json.gz"
    layout.write_bytes(gzip.compress(json.dumps(papers).encode()))
    for name, path, seed in (("a", source, 1), ("b", source, 1), ("c", layout, 1), ("d", source, 2)):
        write_cloze_corpus(ClozeSettings(source=(str(path),), output=str(tmp_path / name), seed=seed))
    first, again, as_papers, other = (
        {path.name: path.read_bytes() for path in (tmp_path / name).iterdir()} for name in "abcd"
    )
    assert first == again == as_papers and first["contexts.json"] != other["contexts.json"]


A, B = paper("a"), paper("b")


@pytest.mark.parametrize(
    ("name", "records", "options", "line"),
    [
        ("p.jsonl", [A, {"title": "T"}], {}, r"p\.jsonl, line 2, field 'paper_id': is missing"),
        ("p.jsonl", [A, B | {"paper_id": "b c"}], {}, r"line 2, field 'paper_id': an id must not be empty"),
        ("p.jsonl", [A, B | {"abstract": 3}], {}, r"line 2, field 'abstract': must be a string, not a"),
        ("p.jsonl", [A, B | {"year": "soon"}], {}, r"line 2, field 'year': must be a whole number"),
        ("p.jsonl", [A, "{"], {}, r"line 2: malformed JSON"),
        ("p.jsonl", [A, "[]"], {}, r"line 2: must be an object, not a list"),
        ("p.jsonl", [A, B | {"tags": 3}], {"field": "tags"}, r"line 2, field 'tags': must be a string or a"),
        ("p.jsonl", [A, B | {"tags": [1]}], {"field": "tags"}, r"line 2, field 'tags\[0\]': must be a str"),
        ("p.jsonl", [A, B], {"field": "tags"}, r"field=tags: no paper has it; leave it out"),
        ("p.jsonl", [A, B, A], {}, r"source: the paper 'a' appears twice in \S+p\.jsonl$"),
        ("p.jsonl", [A], {}, r"source: 1 papers with a title; needs two or more"),
        ("p.jsonl", [A | {"abstract": "Short."}, B | {"abstract": None}], {}, r"source: none of 2 pap"),
        ("p.json", ['{"a": 1}'], {}, r"p\.json, record 'a': must be an object, not a number"),
        ("p.json", ['{"a": {"title": []}}'], {}, r"record 'a', field 'title': must be a string, not a list"),
        ("p.jsonl", [A, B], {"output": "."}, r"output: \S+ already exists; remove it or name a new folder"),
        ("p.jsonl", [A, B], {"source": ("none.jsonl",)}, r"source: none\.jsonl: no such file"),
        ("p.jsonl", [A, B], {"source": ("p.jsonl", "")}, r"source: '' is not the name of a file or folder"),
        ("p.xml", [], {"source": (".",)}, r"a folder without \.jsonl, \.jsonl\.gz, papers\.json, papers"),
    ],
)  # fmt: skip
def test_unusable_input_is_one_line_and_nothing_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, records: list[Any], options: Any, line: str
) -> None:
    monkeypatch.chdir(tmp_path)
    path = write_lines(tmp_path / name, records)
    with pytest.raises(InputError, match=line) as raised:
        write_cloze_corpus(ClozeSettings(**({"source": (str(path),), "output": "out"} | options)))
    assert "\n" not in str(raised.value) and [found.name for found in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        ("source=papers.jsonl output=out field=fields", 0, "out: 2 papers; "),
        ("output=out", 2, "error: source is required, as in source=papers.jsonl.gz: files, folders or"),
        (
            "source=papers.jsonl output=out fields=3",
            2,
            "error: fields: there is no such option; did you mean field?",
        ),
        ("--help", 0, "citerec data cloze: Make a corpus from papers without citations"),
    ],
)
def test_the_command(
    arguments: str, code: int, said: str, tmp_path: Path, script: Callable[..., Done]
) -> None:
    write_lines(tmp_path / "papers.jsonl", [A | {"fields": ["cs"]}, B])
    done = script("data", "cloze", *arguments.split())
    assert done.code == code and (done.err if code else done.out).startswith(said)
    assert (tmp_path / "out").exists() == said.startswith("out")
