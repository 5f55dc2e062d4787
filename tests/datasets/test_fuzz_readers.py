"""Damaged files of corpora: a clear line, or what RFC 8259 says they are."""

from __future__ import annotations

import gzip
import json
import random
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from datasets.demo import generate
from datasets.errors import InputError
from datasets.prepare import open_corpus
from datasets.records import BadRecord
from datasets.source_files import read_records
from tests.datasets.fuzzing import PIECES, REAL, damaged, fuzzed, is_object, packed, plain, strictly

FIELDS = {
    "papers": frozenset(("title", "abstract", "year", "field")),
    "contexts": frozenset(("masked_text", "context_id", "citing_id", "refid")),
    "test": frozenset(("context_id", "positive_ids")),
}
TOPS: dict[str, Any] = {"papers": dict, "contexts": dict, "test": list}


@cache
def heads(folder: str) -> dict[str, bytes]:
    """The first records of the files of a corpus: of the demo corpus, or of one beside the project."""
    if folder == "demo":
        made = generate(papers=100, contexts=100, seed=0)
        parts = {"papers": dict(list(made["papers"].items())[:4]), "contexts": {}, "test": made["test"][:4]}
        parts["contexts"] = dict(list(made["contexts"].items())[:4])
        return {stem: json.dumps(part, indent=1).encode() for stem, part in parts.items()}
    found = {}
    for stem, top in TOPS.items():
        path = next((REAL / folder).glob(f"{stem}.json*"))
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            start = file.read(4000)
        # Up to the end of a record, as the file is written.
        between = [b'},\n"', b'}, "', b'},"'] if top is dict else [b"},\n{", b"}, {", b"},{"]
        end = max(start.rfind(sign) for sign in between)
        found[stem] = start[: end + 1] + (b"}" if top is dict else b"]")
        json.loads(found[stem])
    return found


CORPORA = ["demo", *(name for name in ("acl-scisumm-lcr", "neurips2025-lcr") if (REAL / name).is_dir())]


def one_line(error: InputError, path: Path) -> None:
    text = str(error)
    assert str(path) in text and len(text) < len(str(path)) + 500
    assert "\n" not in text and "\r" not in text


def readable(content: bytes, stem: str) -> Any:
    """The records that a reader must give, None if there must be an error."""
    try:
        value = strictly(content)
    except ValueError:
        return None
    top = TOPS[stem]
    if is_object(value) != (top is dict) or not isinstance(value, list):
        return None
    items = value if top is dict else list(enumerate(value))
    for _, record in items:
        if not is_object(record):
            return None
        names = [name for name, _ in record if name in FIELDS[stem]]
        if len(names) != len(set(names)):
            return None
    return [(key, plain(record)) for key, record in items]


@pytest.mark.parametrize("corpus", CORPORA)
@fuzzed(250)
@given(data=st.data())
def test_a_damaged_file_is_read_as_the_parser_reads_it_or_refused(corpus: str, data: st.DataObject) -> None:
    stem = data.draw(st.sampled_from(sorted(TOPS)))
    content = data.draw(damaged(heads(corpus)[stem]))
    with TemporaryDirectory() as folder:
        path = Path(folder) / f"{stem}.json"
        path.write_bytes(content)
        try:
            read = list(read_records(path, FIELDS[stem], TOPS[stem]))
        except InputError as error:
            one_line(error, path)
            # UTF-16 is told by its first bytes.
            assert readable(content, stem) is None
            return
        assert read == readable(content, stem)


@fuzzed(100)
@given(data=st.data())
def test_however_it_is_packed(data: st.DataObject) -> None:
    stem = data.draw(st.sampled_from(sorted(TOPS)))
    content = heads("demo")[stem]
    with TemporaryDirectory() as folder:
        path = Path(folder) / f"{stem}.json"
        path.write_bytes(data.draw(packed(content)))
        try:
            read = list(read_records(path, FIELDS[stem], TOPS[stem]))
        except InputError as error:
            one_line(error, path)
            return
        assert read == readable(content, stem)


@st.composite
def one_damaged(draw: st.DrawFn) -> tuple[list[bytes], int, bytes]:
    """Records with signs of JSON in their texts, which of them is damaged, and what has become of it."""
    text = st.lists(
        st.sampled_from(['"', "}", "{", "},", '"}, "x": {', "}, {", ":", "[", "\\", "a", "\u00e9"])
    )
    names = st.sampled_from(["t", "u", "v"])
    values: st.SearchStrategy[Any] = text.map("".join) | st.integers(0, 9)
    values |= st.lists(text.map("".join), max_size=2)
    values |= st.dictionaries(names, text.map("".join), max_size=2)
    records = draw(st.lists(st.dictionaries(names, values), min_size=2, max_size=5))
    written = [json.dumps(record, ensure_ascii=draw(st.booleans())).encode() for record in records]
    which = draw(st.integers(0, len(records) - 1))
    start = draw(st.integers(0, len(written[which])))
    length = draw(st.sampled_from([0, 1, 2, 10]))
    piece = draw(st.sampled_from(PIECES))
    return written, which, written[which][:start] + piece + written[which][start + length :]


@fuzzed(400)
@given(data=st.data())
def test_no_other_record_is_lost_with_a_bad_one(data: st.DataObject) -> None:
    top: Any = data.draw(st.sampled_from([dict, list]))
    records, which, bad = data.draw(one_damaged())
    after = [*records[:which], bad, *records[which + 1 :]]
    named = after if top is list else [b'"k%d": %s' % item for item in enumerate(after)]
    content = b", ".join(named)
    whole = b"[%s]" % content if top is list else b"{%s}" % content
    dropped: list[BadRecord] = []
    with TemporaryDirectory() as folder:
        path = Path(folder) / "file.json"
        path.write_bytes(whole)
        try:
            read = list(read_records(path, frozenset("tu"), top, on_bad=dropped.append))
        except InputError as error:
            one_line(error, path)
            return
    # A piece may make two records of one, but none of two.
    found = iter(read)
    for number, record in enumerate(records):
        other = (f"k{number}" if top is dict else None, json.loads(record))
        assert number == which or other in ((key if top is dict else None, value) for key, value in found)
    assert len(read) + len(dropped) >= len(records)


WRONG: list[Any] = [
    None,
    True,
    0,
    -1,
    2**40,
    1e300,
    0.5,
    "",
    " ",
    "x",
    "\0",
    "TARGETCIT",
    [],
    [[]],
    [None],
    {},
]


def mutated(value: dict[str, Any], rng: random.Random) -> None:
    """A field or two are left out, swapped, or of another type or value."""
    names = list(value)
    for _ in range(rng.randint(1, 2)):
        name = rng.choice(names)
        other = rng.choice(names)
        change = rng.randrange(4)
        if change == 0:
            value.pop(name, None)
        elif change == 1 and name in value and other in value:
            value[name], value[other] = value[other], value[name]
        else:
            value[name] = rng.choice(WRONG)


@fuzzed(60)
@given(seed=st.integers(0, 2**32), skip=st.booleans())
def test_records_with_wrong_values_are_refused_or_left_out(seed: int, skip: bool) -> None:
    rng = random.Random(seed)
    source = generate(papers=100, contexts=60, seed=0)
    for _ in range(rng.randint(1, 3)):
        part = source[rng.choice(sorted(source))]
        key = rng.choice(list(part) if isinstance(part, dict) else range(len(part)))
        if isinstance(part[key], dict) and part[key] and rng.random() < 0.8:
            mutated(part[key], rng)
        else:
            part[key] = rng.choice([None, 3, "", [], [part[key]], {}])
    with TemporaryDirectory() as place:
        folder = Path(place) / "source"
        folder.mkdir()
        for stem, part in source.items():
            (folder / f"{stem}.json").write_text(json.dumps(part))
        on_error = "skip" if skip else "raise"
        cache = Path(place) / "cache"
        try:
            corpus = open_corpus(folder, cache_dir=cache, field="field", on_error=on_error, max_bad_share=1.0)
        except InputError as error:
            one_line(error, folder)
            return
        titles = dict(zip(corpus.paper_ids, corpus.titles, strict=True))
        assert all(titles[key] == (source["papers"][key].get("title") or "") for key in titles)
        texts = dict(zip(corpus.context_ids, corpus.context_texts, strict=True))
        assert all(texts[key] == source["contexts"][key]["masked_text"] for key in texts)
        dropped = {part: sum(counts["kinds"].values()) for part, counts in corpus.dropped.items()}
        assert len(titles) + dropped.get("papers", 0) == len(source["papers"])
        assert len(texts) + dropped.get("contexts", 0) == len(source["contexts"])
        for name, split in corpus.splits.items():
            assert len(split) + dropped.get(f"split {name}", 0) == len(source[name])


@fuzzed(40)
@given(data=st.data())
def test_a_corpus_with_damaged_bytes(data: st.DataObject) -> None:
    source = generate(papers=100, contexts=60, seed=0)
    stem = data.draw(st.sampled_from(["papers", "contexts", "test"]))
    content = data.draw(damaged(json.dumps(source[stem]).encode(), most=1))
    with TemporaryDirectory() as place:
        folder = Path(place) / "source"
        folder.mkdir()
        for name, part in source.items():
            (folder / f"{name}.json").write_text(json.dumps(part))
        (folder / f"{stem}.json").write_bytes(content)
        try:
            corpus = open_corpus(folder, cache_dir=Path(place) / "cache")
        except InputError as error:
            one_line(error, folder)
            return
        records = readable(content, stem)
        assert records is not None
        if stem == "papers":
            assert list(corpus.titles) == [record.get("title") or "" for _, record in records]
        elif stem == "contexts":
            assert list(corpus.context_texts) == [record["masked_text"] for _, record in records]
        else:
            assert len(corpus.splits["test"]) == len(records)
