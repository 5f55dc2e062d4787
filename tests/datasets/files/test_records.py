"""Bad records: a one-line error that names file, record and field, or counts with on_error=skip."""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from citerec.base.errors import InputError
from citerec.datasets.corpus import Corpus
from citerec.datasets.prepare import open_corpus
from citerec.datasets.records import MAX_EXAMPLES, TARGET_MARKER
from citerec.tests.conftest import PAPERS
from citerec.tests.datasets.building.fuzzing import fuzzed
from citerec.tests.datasets.conftest import Open

Change = Callable[[Any], object]


def put(record: str | int, field: str, value: object) -> Change:
    return lambda content: content[record].update({field: value})


def drop(record: str | int, field: str) -> Change:
    return lambda content: content[record].pop(field)


CASES: dict[str, list[tuple[Change, str]]] = {
    "papers": [
        (lambda p: p.clear(), "no papers"),
        (lambda p: p.update(x=[]), "record 'x': must be an object, not a list"),
        (put("graph", "title", 3), "record 'graph', field 'title': must be a string, not a number"),
        (put("graph", "title", ["a"]), "record 'graph', field 'title': must be a string, not a list"),
        (put("graph", "abstract", {}), "record 'graph', field 'abstract': must be a string, not an object"),
        (put("graph", "abstract", True), "'abstract': must be a string, not a boolean"),
        (put("bare", "title", " "), "record 'bare': title and abstract are both empty"),
        (drop("bare", "title"), "record 'bare': title and abstract are both empty"),
        (put("graph", "year", "soon"), "record 'graph', field 'year': must be a whole number, not 'soon'"),
        (put("graph", "year", 2001.5), "record 'graph', field 'year': must be a whole number"),
        (put("graph", "year", 10**12), "record 'graph', field 'year': 1000000000000 is out of range"),
        (lambda p: p.update({"a b": p["bare"]}), "record 'a b': an id must not be empty or contain"),
        (lambda p: p.update({"a\0b": p["bare"]}), r"record 'a\x00b': an id must not be empty or contain"),
        (put("graph", "year", {"a": 1}), "'year': must be a whole number, not an object"),
        (put("graph", "year", "9" * 5000), f"'year': must be a whole number, not '{'9' * 79}..."),
        (lambda p: p.update({"": p["bare"]}), "record '': an id must not be empty or contain"),
        (lambda p: p.pop("citing-val"), "record 'c7', field 'citing_id': no paper 'citing-val'"),
        (lambda p: p.pop("parsing"), "record 'c1', field 'refid': no paper 'parsing'"),
    ],
    "contexts": [
        (put("c2", "masked_text", ""), "record 'c2', field 'masked_text': the context is empty"),
        (put("c2", "masked_text", " TARGETCIT\n"), "'masked_text': the context is empty"),
        (put("c2", "masked_text", "no marker"), "exactly once but occurs 0 times"),
        (put("c2", "masked_text", "TARGETCIT and TARGETCIT"), "exactly once but occurs 2 times"),
        (put("c2", "masked_text", None), "record 'c2', field 'masked_text': must be a string, not null"),
        (drop("c2", "masked_text"), "record 'c2', field 'masked_text': is missing"),
        (drop("c2", "citing_id"), "record 'c2', field 'citing_id': is missing"),
        (put("c2", "citing_id", "x"), "record 'c2', field 'citing_id': no paper 'x' in the papers file"),
        (put("c2", "citing_id", 7), "record 'c2', field 'citing_id': must be a string, not a number"),
        (put("c2", "refid", "x"), "record 'c2', field 'refid': no paper 'x' in the papers file"),
        (put("c2", "refid", 7), "record 'c2', field 'refid': must be a string, not a number"),
        (put("c2", "context_id", "x"), "field 'context_id': 'x' differs from the record's key"),
        (lambda c: c.pop("c7"), "val.json, record 0, field 'context_id': no context 'c7'"),
        (put("c8", "citing_id", "citing-train-1"), "'citing-train-1' of context 'c8' is in split 'train'"),
    ],
    "val": [
        (lambda q: q.clear(), "no queries"),
        (put(1, "context_id", "x"), "record 1, field 'context_id': no context 'x' in the contexts file"),
        (put(1, "context_id", None), "record 1, field 'context_id': must be a string, not null"),
        (drop(1, "context_id"), "record 1, field 'context_id': is missing"),
        (drop(1, "positive_ids"), "record 1, field 'positive_ids': is missing"),
        (put(1, "positive_ids", []), "record 1, field 'positive_ids': is empty"),
        (put(1, "positive_ids", "graph"), "'positive_ids': must be a list, not a string"),
        (put(1, "positive_ids", [["graph"]]), "'positive_ids[0]': must be a string, not a list"),
        (put(1, "positive_ids", [1]), "'positive_ids[0]': must be a string, not a number"),
        (put(1, "positive_ids", ["graph", "graph"]), "'positive_ids': a paper appears twice"),
        (put(1, "positive_ids", ["x"]), "record 1, field 'positive_ids': no paper 'x' in the papers file"),
        (lambda q: q.append(q[0]), "record 2, field 'context_id': context 'c7' is already in this split"),
        (put(1, "context_id", "c1"), "field 'context_id': context 'c1' is already in split 'train'"),
        (lambda q: q.append("c1"), "record 2: must be an object, not a string"),
    ],
}  # fmt: skip


@pytest.fixture
def skipping(opened: Open) -> Open:
    return lambda share=1.0, **settings: opened(on_error="skip", max_bad_share=share, **settings)


@pytest.fixture
def edit(tiny_source: Path) -> Callable[[str, Change], None]:
    """Change the content of one of the files."""

    def change(stem: str, change: Change) -> None:
        file = tiny_source / f"{stem}.json"
        content = json.loads(file.read_text())
        change(content)
        file.write_text(json.dumps(content))

    return change


def no_store(tmp_path: Path) -> bool:
    return not [path for path in (tmp_path / "cache" / "corpora").iterdir() if path.is_dir()]


@pytest.mark.parametrize(
    ("stem", "change", "message"), [(stem, *case) for stem, cases in CASES.items() for case in cases]
)
def test_error_names_the_place(
    opened: Open, edit: Any, tiny_source: Path, tmp_path: Path, stem: str, change: Change, message: str
) -> None:
    edit(stem, change)
    with pytest.raises(InputError) as error:
        opened()
    assert message in str(error.value)
    assert str(error.value).startswith(f"{tiny_source}/") and "\n" not in str(error.value)
    assert no_store(tmp_path)


@pytest.mark.parametrize(
    ("venue", "message"),
    [
        (7, "papers.json, record 'graph', field 'venue': must be a string or a list of strings .* a number"),
        (["a", 7], "'venue': must be a string or a list of strings .data.field=venue., not a number"),
        ({"a": "b"}, "'venue': must be a string or a list of strings .*, not an object"),
        ([["a"]], "'venue': must be a string or a list of strings .*, not a list"),
        (None, "papers.json: no paper has the field 'venue' set by data.field"),
    ],
)
def test_a_field_that_cannot_be_used(opened: Open, edit: Any, venue: object, message: str) -> None:
    edit("papers", put("graph", "venue", venue))
    assert opened()  # only an error if data.field is set
    with pytest.raises(InputError, match=message):
        opened(field="venue")


@pytest.mark.parametrize(("stem", "record"), [("papers", "graph"), ("contexts", "c2")])
def test_a_duplicate_record(opened: Open, tiny_source: Path, stem: str, record: str) -> None:
    file = tiny_source / f"{stem}.json"
    text = file.read_text()
    file.write_text(f'{text[:-1]}, "{record}": {json.dumps(json.loads(text)[record])}}}')
    with pytest.raises(InputError, match=f"{stem}.json, record '{record}': .* already exists"):
        opened()


def test_splits_of_one_group_may_share_citing_papers(opened: Open, tiny_source: Path) -> None:
    queries = json.loads((tiny_source / "val.json").read_text())
    (tiny_source / "val.json").write_text(json.dumps(queries[:1]))
    (tiny_source / "val_more.json").write_text(json.dumps(queries[1:]))
    splits = ["train", "val", "test", "val_more"]
    assert [len(opened(splits=splits).splits[name]) for name in splits] == [6, 1, 4, 1]
    (tiny_source / "val_more.json").rename(tiny_source / "extra.json")
    with pytest.raises(InputError, match="'citing-val' of context 'c8' is in split 'val' too"):
        opened(splits=["train", "val", "extra"])


@pytest.mark.parametrize(
    ("gone", "message"),
    [
        (["papers"], "no papers.json or papers.json.gz"),
        (["contexts"], "no contexts.json or contexts.json.gz"),
        (["train", "val", "test"], "none of the split files train.json, val.json, test.json"),
    ],
)
def test_missing_files(opened: Open, tiny_source: Path, gone: list[str], message: str) -> None:
    for stem in gone:
        (tiny_source / f"{stem}.json").unlink()
    with pytest.raises(InputError, match=f"{tiny_source}: {message}"):
        opened()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"dir": "/no/such/folder"}, "/no/such/folder: no such folder"),
        ({"dir": ""}, "data.dir: set the folder"),
        ({"papers": "/no/such/file"}, "/no/such/file: no such file"),
        ({"tokenizer": "bpe"}, "data.tokenizer=bpe: choose default or reference"),
        ({"candidates": "some"}, "data.candidates=some: choose abstract or all"),
        ({"splits": "train"}, "data.splits: must be a list of names"),
        ({"splits": []}, "data.splits: must be a list of names"),
        ({"splits": ["../train"]}, "data.splits: '../train' is not a valid split name"),
        ({"splits": ["papers"]}, "data.splits: 'papers' is not a valid split name"),
        ({"on_error": "ignore"}, "data.on_error=ignore: choose raise or skip"),
        ({"max_bad_share": 1.5}, "data.max_bad_share=1.5: must be at least 0 and at most 1"),
        ({"max_bad_share": float("nan")}, "data.max_bad_share=nan: must be at least 0"),
        ({"max_bad_share": "1%"}, "data.max_bad_share=1%: must be a number"),
    ],
)
def test_invalid_settings(opened: Open, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as error:
        opened(**settings)
    assert message in str(error.value)


def test_a_file_instead_of_a_folder_and_a_folder_instead_of_a_file(opened: Open, tiny_source: Path) -> None:
    with pytest.raises(InputError, match="no such folder"):
        opened(dir=tiny_source / "papers.json")
    with pytest.raises(InputError, match=r"set data\.cache_dir to another folder"):
        opened(cache_dir=tiny_source / "papers.json")
    (tiny_source / "val.json").unlink()
    (tiny_source / "val.json").mkdir()
    with pytest.raises(InputError, match=r"val\.json: no such file"):
        opened()


def test_no_candidate_is_left(opened: Open, edit: Any) -> None:
    edit("papers", lambda papers: papers.update({key: {"title": key} for key in papers}))
    with pytest.raises(InputError, match=r"no paper has an abstract.*data\.candidates=all"):
        opened()
    assert opened(candidates="all").is_candidate.all()


def test_a_huge_abstract_is_kept_whole(opened: Open, edit: Any, caplog: pytest.LogCaptureFixture) -> None:
    edit("papers", put("graph", "abstract", "wordy " * 20_000))
    with caplog.at_level(logging.WARNING, "datasets"):
        corpus = opened()
    assert len(caplog.records) == 1 and "1 papers of 50000 characters or more" in caplog.text
    assert corpus.abstracts[1] == "wordy " * 20_000
    assert corpus.abstract_tokens.lengths[1] == 20_000 and corpus.words[0] == "wordy"


def test_papers_without_a_title_are_counted_once(
    opened: Open, edit: Any, caplog: pytest.LogCaptureFixture
) -> None:
    edit("papers", put("graph", "title", ""))
    edit("papers", put("speech", "title", " "))
    with caplog.at_level(logging.WARNING, "datasets"):
        for _ in range(2):
            opened()
    assert [line.partition(": ")[2] for line in caplog.messages] == [
        "2 of 12 papers have no title; only their abstract is read, if any"
    ]


def test_an_unreachable_target_is_reported(opened: Open, edit: Any, caplog: pytest.LogCaptureFixture) -> None:
    edit("val", put(0, "positive_ids", ["bare"]))
    edit("val", put(1, "positive_ids", ["citing-val"]))
    with caplog.at_level(logging.WARNING, "datasets"):
        opened()
    assert "2 citations of non-candidates, or of the citing paper itself" in caplog.text


@pytest.mark.parametrize("year", [None, "", "1999", 1999, 1999.0])
def test_years_as_published_files_have_them(opened: Open, edit: Any, year: object) -> None:
    edit("papers", put("graph", "year", year))
    assert opened().years[1] == (1999 if year else 0)


def kinds(corpus: Corpus) -> dict[str, dict[str, int]]:
    """Return the dropped records by kind for each part that lost any."""
    return {part: counts["kinds"] for part, counts in corpus.dropped.items() if counts["kinds"]}


def test_bad_records_and_records_that_refer_to_them_are_counted_by_kind(
    skipping: Open, edit: Any, tiny_source: Path
) -> None:
    edit("papers", put("vision", "title", 3))
    edit("papers", put("poetry", "year", "?"))
    edit("contexts", drop("c1", "citing_id"))
    edit("contexts", put("c2", "masked_text", "as TARGETCIT and TARGETCIT"))
    edit("contexts", put("c7", "refid", "nobody"))
    text = (tiny_source / "contexts.json").read_text()
    again = json.dumps(json.loads(text)["c3"])
    (tiny_source / "contexts.json").write_text(f'{text[:-1]}, "c3": {again}, "c 13": {again}}}')
    val = [("c7", ["graph"]), ("c8", ["graph"]), ("c8", ["graph"]), ("c3", ["graph"]), ("c99", ["graph"])]
    val += [("c9", ["graph", "vision"]), ("c9", ["graph", "nobody"]), ("c9", [])]
    queries = [{"context_id": context, "positive_ids": cited} for context, cited in val]
    (tiny_source / "val.json").write_text(json.dumps([*queries, "c9"]))
    corpus = skipping()
    # c5, c11 and c12 cite a dropped paper.
    assert kinds(corpus) == {
        "papers": {"wrong type": 1, "wrong value": 1},
        "contexts": {
            "names a dropped record": 3,
            "missing field": 1,
            "wrong number of markers": 1,
            "unknown paper": 1,
            "duplicate id": 1,
            "unusable id": 1,
        },
        "split train": {"names a dropped record": 3},
        "split val": {
            "names a dropped record": 2,
            "in two splits": 2,
            "unknown context": 1,
            "unknown paper": 1,
            "empty": 1,
            "wrong type": 1,
        },
        "split test": {"names a dropped record": 2},
    }
    assert {part: counts["records"] for part, counts in corpus.dropped.items()} == {
        "papers": 12, "contexts": 14, "split train": 6, "split val": 9, "split test": 4,
    }  # fmt: skip
    assert list(corpus.paper_ids) == [paper for paper in PAPERS if paper not in ("vision", "poetry")]
    assert list(corpus.context_ids) == ["c3", "c4", "c6", "c8", "c9", "c10"]
    left = {name: [corpus.context_ids[row] for row in part.contexts] for name, part in corpus.splits.items()}
    assert left == {"train": ["c3", "c4", "c6"], "val": ["c8"], "test": ["c9", "c10"]}


def test_skipping_gives_the_corpus_without_the_bad_records(opened: Open, skipping: Open, edit: Any) -> None:
    """The same store as for files without them, under another fingerprint."""
    clean = opened()
    lenient = skipping()
    assert clean.dropped == {} == kinds(lenient) and lenient.fingerprint != clean.fingerprint
    edit("papers", lambda papers: papers.update(extra={"title": []}))
    edit("contexts", lambda contexts: contexts.update(extra={**contexts["c1"], "masked_text": None}))
    corpus = skipping()
    for file in sorted(clean.path.iterdir()):
        if file.name != "store.json":
            assert (corpus.path / file.name).read_bytes() == file.read_bytes(), file.name


def test_examples_are_kept_with_the_store(
    skipping: Open, edit: Any, caplog: pytest.LogCaptureFixture
) -> None:
    bad = {f"bad{number}": {"title": number} for number in range(MAX_EXAMPLES + 5)}
    edit("papers", lambda papers: papers.update(**bad, empty={}))
    with caplog.at_level(logging.WARNING, "datasets"):
        corpus = skipping()
    lines = [json.loads(line) for line in (corpus.path / "dropped.jsonl").read_text().splitlines()]
    assert len(lines) == MAX_EXAMPLES + 1
    first = {"file": "papers.json", "record": "bad0", "field": "title", "kind": "wrong type"}
    assert lines[0] == first | {"reason": "must be a string, not a number"}
    assert lines[-1]["record"] == "empty" and lines[-1]["field"] is None
    where, later = caplog.messages
    assert str(corpus.path / "dropped.jsonl") in where
    counts = "25 of 38 in papers.json (wrong type), 1 of 38 in papers.json (empty)"
    assert later == f"corpus tiny: dropped bad records: {counts}"
    caplog.clear()
    with caplog.at_level(logging.WARNING, "datasets"):
        assert skipping().dropped == corpus.dropped
    assert caplog.messages == [later]


def test_too_many_are_refused(
    opened: Open, skipping: Open, edit: Any, tiny_source: Path, tmp_path: Path
) -> None:
    bad = {"a": {"title": 1}, "b": {"title": 2}, "c": {"title": "c", "year": "?"}}
    edit("papers", lambda papers: papers.update(bad))
    message = (
        f"{tiny_source}/papers.json: 3 of 15 records (20.00%) are bad, more than data.max_bad_share=0.19 "
        "allows; the most frequent kind is 'wrong type' (2)"
    )
    with pytest.raises(InputError) as error:
        skipping(0.19)
    assert str(error.value) == message and no_store(tmp_path)
    assert len(skipping(0.2).paper_ids) == 12 and skipping(0.5).path == skipping(0.2).path
    with pytest.raises(InputError) as error:  # the store exists
        skipping(0.19)
    assert str(error.value) == message
    with pytest.raises(InputError, match=r"record 'a', field 'title': must be a string, not a number"):
        opened()
    # Records that refer to bad records count too.
    edit("papers", lambda papers: papers.update({f"p{number}": {"title": "x"} for number in range(100)}))
    edit("papers", put("parsing", "title", 1))
    with pytest.raises(
        InputError, match=r"contexts.json: 4 of 12 records \(33.33%\).*'names a dropped record' \(4\)"
    ):
        skipping(0.05)


def test_malformed_json_cannot_be_skipped(skipping: Open, tiny_source: Path) -> None:
    text = (tiny_source / "papers.json").read_text()
    for broken in (
        text[:-1],
        text.replace('"Graph networks"', '"Graph networks', 1),
        f'{text[:-1]}, "a": NaN}}',
    ):
        (tiny_source / "papers.json").write_text(broken)
        with pytest.raises(InputError, match=r"^\S+/papers.json: malformed JSON after") as error:
            skipping()
        assert "\n" not in str(error.value)


PAPER_VALUES: dict[str, list[Any]] = {
    "title": ["A title", "", None, 3],
    "abstract": ["Text", " ", None, []],
    "year": [2000, None, "x", 0.5],
}
CONTEXT_VALUES: dict[str, list[Any]] = {
    "masked_text": ["as TARGETCIT", "as TARGETCIT", "none", "TARGETCIT", 7],
    "citing_id": ["p0", "p1", "p2", "p3", None],
    "refid": ["p0", "p1", "p4", None],
}
ABSENT = "absent"


def records_of(values: dict[str, list[Any]]) -> st.SearchStrategy[dict[str, Any]]:
    fields = {name: st.sampled_from([*some, ABSENT]) for name, some in values.items()}
    return st.fixed_dictionaries(fields).map(
        lambda record: {name: value for name, value in record.items() if value != ABSENT}
    )


QUERIES = st.lists(
    st.builds(
        lambda context, positives: {"context_id": context, "positive_ids": positives},
        st.sampled_from([f"c{number}" for number in range(8)]),
        st.lists(st.sampled_from(["p0", "p1", "p2", "p5"]), max_size=2),
    ),
    max_size=6,
)


@pytest.mark.slow
@fuzzed(30)
@given(
    st.lists(records_of(PAPER_VALUES), min_size=4, max_size=6),
    st.lists(records_of(CONTEXT_VALUES), min_size=3, max_size=8),
    QUERIES,
    QUERIES,
)
def test_keeps_what_a_plain_reading_of_the_rules_keeps(
    papers: list[Any], contexts: list[Any], train: list[Any], test: list[Any]
) -> None:
    papers = [{"title": "Kept", "abstract": "Kept"}, *papers]
    source: dict[str, Any] = {
        "papers": {f"p{number}": paper for number, paper in enumerate(papers)},
        "contexts": {f"c{number}": context for number, context in enumerate(contexts)},
        "train": [*train, {"context_id": "good", "positive_ids": ["p0"]}],
        "test": [*test, {"context_id": "other", "positive_ids": ["p0"]}],
    }
    source["papers"] |= {"citing": {"title": "x"}, "tested": {"title": "y"}}
    source["contexts"]["good"] = {"masked_text": "see TARGETCIT", "citing_id": "citing"}
    source["contexts"]["other"] = {"masked_text": "see TARGETCIT", "citing_id": "tested"}
    with TemporaryDirectory() as place:
        folder = Path(place) / "source"
        folder.mkdir()
        for stem, content in source.items():
            (folder / f"{stem}.json").write_text(json.dumps(content))
        cache = Path(place) / "cache"
        corpus = open_corpus(folder, cache_dir=cache, on_error="skip", max_bad_share=1.0)
        kept_papers = [key for key, paper in source["papers"].items() if good_paper(paper)]
        assert list(corpus.paper_ids) == kept_papers
        kept = {key: c for key, c in source["contexts"].items() if good_context(c, kept_papers)}
        assert list(corpus.context_ids) == list(kept)
        splits = good_queries({"train": source["train"], "test": source["test"]}, kept, kept_papers)
        for name, queries in splits.items():
            split = corpus.splits[name]
            assert [corpus.context_ids[row] for row in split.contexts] == [context for context, _ in queries]
            found = [[corpus.paper_ids[row] for row in rows] for rows in split.positives]
            assert found == [positives for _, positives in queries]
        if not any(counts["kinds"] for counts in corpus.dropped.values()):
            assert open_corpus(folder, cache_dir=cache)
        else:
            with pytest.raises(InputError, match=f"^{folder}/"):
                open_corpus(folder, cache_dir=cache)
        lost = Counter({part: sum(counts["kinds"].values()) for part, counts in corpus.dropped.items()})
        assert +lost == +Counter(
            {
                "papers": len(source["papers"]) - len(kept_papers),
                "contexts": len(source["contexts"]) - len(kept),
                **{f"split {name}": len(source[name]) - len(queries) for name, queries in splits.items()},
            }
        )


def good_paper(paper: dict[str, Any]) -> bool:
    texts = [paper.get("title") or "", paper.get("abstract") or ""]
    if paper.get("title") == 3 or paper.get("abstract") == []:
        return False
    return any(text.strip() for text in texts) and paper.get("year") in (None, 2000)


def good_context(context: dict[str, Any], papers: list[str]) -> bool:
    text = context.get("masked_text")
    if not isinstance(text, str) or text.count(TARGET_MARKER) != 1 or text == TARGET_MARKER:
        return False
    return context.get("citing_id") in papers and context.get("refid") in (None, *papers)


def good_queries(
    splits: dict[str, list[Any]], contexts: dict[str, Any], papers: list[str]
) -> dict[str, list[tuple[str, list[str]]]]:
    split_of_paper: dict[str, str] = {}
    used: set[str] = set()
    found: dict[str, list[tuple[str, list[str]]]] = {name: [] for name in splits}
    for name, queries in splits.items():
        for query in queries:
            context, positives = query["context_id"], query["positive_ids"]
            if context not in contexts or context in used:
                continue
            if not positives or len(set(positives)) < len(positives) or not set(positives) <= set(papers):
                continue
            if split_of_paper.setdefault(contexts[context]["citing_id"], name) == name:
                used.add(context)
                found[name].append((context, positives))
    return found
