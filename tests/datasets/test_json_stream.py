"""The streaming reader against Python's json module, whole and damaged."""

import gzip
import json
import tracemalloc
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from datasets.errors import InputError
from datasets.json_stream import Nested, read_records

PLAIN = st.none() | st.booleans() | st.integers(-(2**62), 2**62) | st.text() | st.floats(-1e9, 1e9)
VALUES = st.recursive(PLAIN, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=8)
RECORDS = st.dictionaries(st.text(), st.dictionaries(st.sampled_from(["a", "b", "", "c"]), VALUES))


def flattened(value: Any) -> Any:
    """What the reader keeps of a value."""
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, list) and any(isinstance(item, dict | list) for item in value):
        return "a list"
    return value


def kept(record: dict[str, Any]) -> dict[str, Any]:
    return {field: value.kind if isinstance(value, Nested) else value for field, value in record.items()}


@settings(max_examples=40, deadline=None)
@given(RECORDS, st.booleans(), st.booleans(), st.sampled_from([None, 1]))
def test_reads_what_json_reads(records: Any, zipped: bool, ascii_only: bool, indent: int | None) -> None:
    text = json.dumps(records, ensure_ascii=ascii_only, indent=indent).encode()
    wanted = frozenset(("a", "b", ""))
    expected = {
        key: {field: flattened(value) for field, value in record.items() if field in wanted}
        for key, record in records.items()
    }
    with TemporaryDirectory() as folder:
        path = Path(folder) / "file.json"
        path.write_bytes(gzip.compress(text) if zipped else text)
        assert {key: kept(record) for key, record in read_records(path, wanted, dict)} == expected
        path.write_text(json.dumps(list(records.values())), "utf-8")
        listed = [kept(record) for _, record in read_records(path, wanted, list)]
        assert listed == list(expected.values())


@given(st.data())
@settings(max_examples=300, deadline=None)
def test_damaged_bytes_are_an_error_or_read_as_json_reads_them(data: st.DataObject) -> None:
    damaged = data.draw(
        damage(
            b'{"k\\u00e9y": {"a": "text \\"1\\" \xc3\xa9", "b": [1, "2", -3.5e2], "c": {"a": null}},\n'
            b' "other": {"a": true, "x": [[], {}]}}'
        )
    )
    with TemporaryDirectory() as folder:
        path = Path(folder) / "file.json"
        path.write_bytes(damaged)
        try:
            records = [(key, kept(record)) for key, record in read_records(path, frozenset("ab"), dict)]
        except InputError as error:
            assert str(path) in str(error) and "\n" not in str(error)
            return
    if b"\\ud" not in damaged.lower():  # halves of surrogate pairs become question marks
        pairs = json.loads(damaged, object_pairs_hook=list)
        assert records == [(k, {f: flattened(_dicts(v)) for f, v in r if f in ("a", "b")}) for k, r in pairs]


def _dicts(value: Any) -> Any:
    """Lists of pairs as objects again, as far as `flattened` needs it."""
    if isinstance(value, list) and value and all(isinstance(item, tuple) for item in value):
        return dict(value)
    return [_dicts(item) for item in value] if isinstance(value, list) else value


@st.composite
def damage(draw: st.DrawFn, whole: bytes) -> bytes:
    """Some bytes replaced, left out or put in, or the end cut off."""
    damaged = bytearray(whole)
    for _ in range(draw(st.integers(1, 3))):
        start = draw(st.integers(0, len(damaged)))
        stop = min(len(damaged), start + draw(st.sampled_from([0, 1, 1, 2, 10, len(damaged)])))
        damaged[start:stop] = draw(
            st.binary(max_size=3) | st.sampled_from([b'"', b"}", b"{", b",", b"\\ud800", b"9" * 400])
        )
    return bytes(damaged)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "malformed JSON at the end of the file"),
        (b"\xef\xbb\xbf", "malformed JSON at the end of the file"),
        (b'{"k": {"a": 1}', "malformed JSON at the end of the file"),
        (b'{"k": {"a": 1}}\n{}', "malformed JSON at line 2, column 1"),
        (b'{"k": {"a": 1},\n"l": {"a": nul}}', "malformed JSON at line 2, column 15"),
        (b'{"k": {"a": "\xff"}}', "malformed JSON at line 1, column 14"),
        (b'{"k": {"a": ' + b"1" * 5000 + b"}}", "malformed JSON at line 1"),
        (b'{"k": {"a": 1e999}}', "malformed JSON at line 1"),
        (b"[]", "the file must hold an object of objects, not a list"),
        (b'"text"', "the file must hold an object of objects, not a string"),
        (b'{"k": 3}', "record 'k': must be an object, not a number"),
        (b'{"k": [{"a": 1}]}', "record 'k': must be an object, not a list"),
        (b'{"k": {"a": 1, "b": 2, "a": 1}}', "record 'k': field 'a' is there twice"),
        (b"\x1f\x8bno gzip", "damaged gzip file"),
        (gzip.compress(b'{"k": {"a": 1}}')[:-9], "damaged gzip file"),
    ],
)
def test_errors_name_file_and_place(content: bytes, message: str, tmp_path: Path) -> None:
    path = tmp_path / "file.json"
    path.write_bytes(content)
    with pytest.raises(InputError) as error:
        list(read_records(path, frozenset("ab"), dict))
    assert str(error.value).startswith(f"{path}") and message in str(error.value)


@pytest.mark.parametrize("zipped", [False, True])
@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
def test_position_far_into_the_file(zipped: bool, mark: bytes, tmp_path: Path) -> None:
    lines = [f'"key{i}": {{"a": "é{"x" * 50}"}},' for i in range(5000)]
    text = mark + "\n".join(["{", *lines, '"last": {"a": ?']).encode()
    path = tmp_path / "file.json"
    path.write_bytes(gzip.compress(text) if zipped else text)
    with pytest.raises(InputError, match="at line 5002, column 15:"):
        list(read_records(path, frozenset("a"), dict))


def test_memory_does_not_grow_with_the_file(tmp_path: Path) -> None:
    path = tmp_path / "file.json"
    record = json.dumps({"a": "x" * 1000, "unused": ["word"] * 10_000})
    path.write_text("{" + ",".join(f'"{i}": {record}' for i in range(40)) + "}")
    assert path.stat().st_size > 3_000_000
    tracemalloc.start()
    try:
        count = sum(1 for _ in read_records(path, frozenset("a"), dict))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert count == 40 and peak < 2_500_000


def test_progress_ends_at_the_size_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "file.json"
    path.write_bytes(gzip.compress(json.dumps({str(i): {"a": i} for i in range(50_000)}).encode()))
    seen: list[int] = []
    list(read_records(path, frozenset("a"), dict, seen.append))
    assert seen == sorted(seen) and len(seen) > 5 and seen[-1] == path.stat().st_size
