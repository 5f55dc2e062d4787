"""Streamed JSON, intact and damaged, against Python's json module; error lines; bounded memory."""

import gzip
import json
import re
import subprocess
import sys
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from citerec.base.errors import InputError
from citerec.datasets.files import source_files
from citerec.datasets.files.source_files import read_records
from citerec.datasets.generate import generate_corpus
from citerec.tests.datasets.building.fuzzing import damaged, fuzzed, packed

ROOT = Path(__file__).parents[3]
PLAIN = st.none() | st.booleans() | st.integers(-(2**62), 2**62) | st.text() | st.floats(-1e9, 1e9)
VALUES = st.recursive(PLAIN, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=8)
RECORDS = st.dictionaries(st.text(), st.dictionaries(st.sampled_from(["a", "b", "", "c"]), VALUES))


@pytest.mark.slow
@fuzzed(40)
@given(RECORDS, st.booleans(), st.booleans(), st.sampled_from([None, 1]), st.sampled_from(["\n", "\r\n"]))
def test_reads_what_json_reads(
    records: Any, zipped: bool, ascii_only: bool, indent: int | None, newline: str
) -> None:
    text = json.dumps(records, ensure_ascii=ascii_only, indent=indent).replace("\n", newline).encode()
    with TemporaryDirectory() as folder:
        path = Path(folder) / "file.json"
        path.write_bytes(gzip.compress(text) if zipped else text)
        assert list(read_records(path, dict)) == list(records.items())
        path.write_text(json.dumps(list(records.values()), indent=indent), "utf-8")
        assert list(read_records(path, list)) == list(enumerate(records.values()))


@pytest.mark.parametrize("size", [1, 2, 3, 7, 50])
def test_chunk_boundaries_do_not_matter(size: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_files, "CHUNK", size)
    records = {
        'k"ey\\': {"a": ["}", {"b": '\\"{'}], "": -1.5e3},
        "é\n": {},
        "last": {"a": "x" * 60, "b": [[], {}]},
    }
    path = tmp_path / "file.json"
    for text in (json.dumps(records), json.dumps(records, indent=3, ensure_ascii=False)):
        path.write_text(text, "utf-8")
        assert list(read_records(path, dict)) == list(records.items())
    path.write_text(f" {json.dumps(list(records.values()))}  \n\n")
    assert [record for _, record in read_records(path, list)] == list(records.values())
    path.write_text('{"a": {"b": 3}, \n "b": {"b": [nul, "}"]}, "c": {}}')
    with pytest.raises(InputError, match="after record 'a': invalid string"):
        list(read_records(path, dict))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "malformed JSON: premature EOF"),
        (b"\xef\xbb\xbf", "malformed JSON: premature EOF"),
        (b'{"k": {"a": 1}, "l"', "malformed JSON after record 'k': premature EOF"),
        (b'{"k": {"a": 1', "malformed JSON: premature EOF"),
        (b'{"k": {"a": "1', "malformed JSON: premature EOF"),
        (b'{"k": {"a": 1}}\n{}', "malformed JSON after record 'k': trailing garbage near "),
        (b'{"k": {"a": 1}\n "l": {}}', "malformed JSON: after key and value, inside map, "),
        (b'{"k": {"a": 1},\n}', "malformed JSON: invalid object key"),
        (b'{"k" {}}', "malformed JSON: object key and value must be separated by a colon (':') near"),
        (b"{k: {}}", "malformed JSON: invalid char in json text near '{k: {}}'"),
        (b'{"k\n": {}}', "malformed JSON: invalid character inside string"),
        (b'{"k": {"a": 1},\n"l": {"a": nul}}', "malformed JSON after record 'k': invalid string"),
        (b'{"k": {"a": NaN}}', "malformed JSON: invalid char in json text near"),
        (b'{"k": {"a": "\xff"}}', "malformed JSON: invalid bytes in UTF8 string near"),
        (b'{"k": {"a": "\xed\xa0\x80"}}', "malformed JSON: invalid UTF-8"),
        (b'{"k": {"a": ' + b"1" * 5000 + b"}}", "malformed JSON: integer overflow near"),
        (b'{"k": {"a": 1e999}}', "malformed JSON: numeric (floating point) overflow near"),
        (b"[]", 'must hold an object of objects, which begins with {'),
        (b'"text"', "must hold an object of objects, which begins with {"),
        (b"<html>", "must hold an object of objects, which begins with {"),
        (b'{"k": 3}', "record 'k': must be an object, not a number"),
        (b'{"k": [{"a": 1}]}', "record 'k': must be an object, not a list"),
        ('{"k": {}}'.encode("utf-16"), "is in UTF-16 or UTF-32 and must be in UTF-8"),
        ('{"k": {}}'.encode("utf-16-le"), "is in UTF-16 or UTF-32 and must be in UTF-8"),
        ('{"k": {}}'.encode("utf-32-be"), "is in UTF-16 or UTF-32 and must be in UTF-8"),
        (b"\x1f\x8bno gzip", "damaged gzip file"),
        (gzip.compress(b'{"k": {"a": 1}}', mtime=0)[:-9], "damaged gzip file"),
        (gzip.compress(b'{"k": {"a": 1}}', mtime=0)[:-5] + bytes(5), "damaged gzip file: CRC check failed"),
        (gzip.compress(b'{"k": {"a": 1}}', mtime=0) + b"rest", "damaged gzip file"),
    ],
)  # fmt: skip
def test_errors_name_the_file_and_the_record_before(content: bytes, message: str, tmp_path: Path) -> None:
    path = tmp_path / "file.json"
    path.write_bytes(content)
    with pytest.raises(InputError) as error:
        list(read_records(path, dict))
    assert str(error.value).startswith(f"{path}") and message in str(error.value)
    assert "\n" not in str(error.value) and len(str(error.value)) < len(str(path)) + 200


@pytest.mark.parametrize(
    ("text", "record"),
    [
        (
            r'{"k": {"a": {"b": 1, "b": 2}, "c": 1, "c": "\u0061", "d": "\"b\" \"b\" \u0062"}}',
            ("k", {"a": {"b": 2}, "c": "a", "d": '"b" "b" b'}),  # the last "c"
        ),
        (
            r'{"\ud800k": {"a": "\ud83d\ude00 \ud83d \uDE00 \\ud83d \ude00\ud83d", "b": "\u0000\\\udc00\""}}',
            ("\ufffdk", {"a": "\U0001f600 \ufffd \ufffd \\ud83d \ufffd\ufffd", "b": '\0\\\ufffd"'}),
        ),
    ],
)
@pytest.mark.parametrize("size", [1, 5, 1 << 16])
def test_repeated_fields_and_lone_surrogates(
    text: str, record: Any, size: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source_files, "CHUNK", size)
    (tmp_path / "file.json").write_text(text)
    assert list(read_records(tmp_path / "file.json", dict)) == [record]


@pytest.mark.parametrize("value", ["null", "-3.5e2", '"}"', '[{"t": 1}]'])
@pytest.mark.parametrize("place", [0, 1, 3])
def test_reading_continues_after_a_bad_record(value: str, place: int, tmp_path: Path) -> None:
    path = tmp_path / "file.json"
    good = ['"a": {"t": "x}, y"}', '"b": {"t": [{}], "u": "\\""}', '"c": {}']
    for top in (dict, list):
        records = [*good[:place], f'"bad": {value}', *good[place:]]
        text = ",\n".join(record if top is dict else record.split(": ", 1)[1] for record in records)
        path.write_text(f"{{{text}}}" if top is dict else f"[{text}]")
        bad: list[InputError] = []
        read = [key for key, _ in read_records(path, top, on_bad=bad.append)]
        assert read == (["a", "b", "c"] if top is dict else [n for n in range(4) if n != place])
        (error,) = bad
        record = "'bad'" if top is dict else place
        assert f"record {record}: must be an object" in str(error)


ENDLESS = """
import gzip, resource, sys
from pathlib import Path
from citerec.datasets.files import source_files
from citerec.base.errors import InputError
from citerec.datasets.files.source_files import read_records

def peak(): return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10

folder = Path(sys.argv[1])
for number, line in enumerate(sys.stdin.read().splitlines()):
    start, repeated = (part.encode() for part in line.split(" "))
    if number:
        source_files.LARGEST = 1 << 20  # limits the time of this test as well
    # 512 concatenated members of 4 MB make a file of 2 GB that takes some 2 MB on disk.
    member = gzip.compress(repeated * ((4 << 20) // len(repeated)), 1)
    path = folder / f"{number}.json"
    path.write_bytes(gzip.compress(start) + member * 512)
    before = peak()
    try:
        print("read", sum(1 for _ in read_records(path, dict)))
    except InputError as error:
        print(before, peak(), str(error).replace(str(path), "FILE"))
"""
TOO_LARGE = r"FILE: the record is larger than (16,777,216|1,048,576) bytes"


@pytest.mark.slow
def test_endless_files_are_refused_within_bounded_memory(tmp_path: Path) -> None:
    endless = {
        '{"k":{"a":" x': TOO_LARGE,
        '{" k': TOO_LARGE,
        '{"k":" \\"': TOO_LARGE,
        '{"k": 9': TOO_LARGE,
        '{"k":{"a":[1 ,1': TOO_LARGE,
        '{"k":{"a":[""  ,""': TOO_LARGE,
        '{"k":{"a":1 ,"b":{}': TOO_LARGE,
        '{"k":{"a":[ [],': TOO_LARGE,
        '{"k":{"a":[ 1,[': "FILE: the record has more than 5,000 levels",
        '{"k":{"a":1 "b,': "malformed JSON: after key and value",
        "{ ,": "malformed JSON: invalid object key",
        '{"k":{} \x00': "malformed JSON: invalid char",
    }
    lines = "\n".join(line.replace("  ", " ") for line in endless)
    command = [sys.executable, "-c", ENDLESS, str(tmp_path)]
    output = subprocess.run(command, cwd=ROOT, input=lines, capture_output=True, text=True, check=True).stdout
    for line, (start, message) in zip(output.splitlines(), endless.items(), strict=True):
        before, after, error = line.split(" ", 2)
        assert re.search(message, error), (start, error)
        # Empty lists take some 30 times the memory of their text, decoded strings four times.
        assert int(after) < int(before) + 9 * 16, (start, line)


def test_memory_does_not_grow_with_the_file(tmp_path: Path) -> None:
    code = """
import resource, sys
from pathlib import Path
from citerec.datasets.files.source_files import read_records
peaks = []
for number, _ in enumerate(read_records(Path(sys.argv[1]), dict), 1):
    if number in (20, 100):
        peaks.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
print(number, *peaks)
"""
    path = tmp_path / "file.json"
    record = json.dumps({"a": "x" * 1000, "unused": ["word"] * 10_000})
    path.write_text("{" + ",".join(f'"{i}": {record}' for i in range(100)) + "}")
    assert path.stat().st_size > 8_000_000
    command = [sys.executable, "-c", code, str(path)]
    output = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    count, early, late = map(int, output.split())
    assert count == 100 and late - early < 1000  # KB


def test_long_white_space_between_records(tmp_path: Path) -> None:
    path = tmp_path / "file.json"
    space = gzip.compress(b" \r\n\t" * (1 << 18), 1) * 40  # 40 MB, more than the limit of a record
    path.write_bytes(gzip.compress(b'{"k":') + space + gzip.compress(b"{}}"))
    assert list(read_records(path, dict)) == [("k", {})]


def test_progress_ends_at_the_size_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "file.json"
    path.write_bytes(gzip.compress(json.dumps({str(i): {"a": i} for i in range(100_000)}).encode()))
    seen: list[int] = []
    list(read_records(path, dict, seen.append))
    assert seen == sorted(seen) and len(seen) > 5 and seen[-1] == path.stat().st_size


TOPS: dict[str, Any] = {"papers": dict, "contexts": dict, "test": list}


@cache
def heads() -> dict[str, bytes]:
    """Return the first records of each file of the demo corpus."""
    with TemporaryDirectory() as scratch:
        generate_corpus(100, 100, out := Path(scratch) / "demo", seed=0)
        made = {stem: json.loads((out / f"{stem}.json").read_bytes()) for stem in TOPS}
    some = {stem: list(made[stem].items() if TOPS[stem] is dict else made[stem])[:4] for stem in TOPS}
    return {stem: json.dumps(TOPS[stem](part), indent=1).encode() for stem, part in some.items()}


@pytest.mark.slow
@fuzzed(250)
@given(data=st.data())
def test_a_damaged_file_is_read_like_json_or_refused(data: st.DataObject) -> None:
    stem = data.draw(st.sampled_from(sorted(TOPS)))
    content = data.draw(damaged(heads()[stem]))
    written = data.draw(packed(content))
    with TemporaryDirectory() as folder:
        path = Path(folder) / f"{stem}.json"
        path.write_bytes(written)
        try:
            read = list(read_records(path, TOPS[stem]))
        except InputError as error:
            assert str(path) in str(error) and len(str(error)) < len(str(path)) + 500
            assert "\n" not in str(error) and "\r" not in str(error)
            assert written != content or readable(content, stem) is None
        else:  # the parser accepts two more control characters as white space
            assert read == readable(content.translate(bytes.maketrans(b"\x0b\x0c", b"  ")), stem)


class Pairs(list[tuple[str, Any]]):
    """A JSON object."""


def readable(content: bytes, stem: str) -> Any:
    """Read the records according to RFC 8259 and the reader's rules; None if the content must be refused.

    Lone surrogates become U+FFFD; numbers are finite, integers have 64 bits.
    """

    def refuse(_: str) -> Any:
        raise ValueError

    def whole(text: str) -> int:
        return int(text) if len(text) < 25 and -(2**63) <= int(text) < 2**63 else refuse(text)

    def finite(text: str) -> float:
        return float(text) if abs(float(text)) < float("inf") else refuse(text)

    def plain(value: Any) -> Any:
        """Convert Pairs to dicts; the last value of a repeated name wins."""
        if isinstance(value, str):
            return re.sub("[\ud800-\udfff]", "\ufffd", value)
        if isinstance(value, Pairs):
            return {plain(name): plain(inner) for name, inner in value}
        return [plain(inner) for inner in value] if isinstance(value, list) else value

    try:
        value = json.loads(
            content.removeprefix(b"\xef\xbb\xbf").decode("utf-8"),
            object_pairs_hook=Pairs,
            parse_constant=refuse,
            parse_float=finite,
            parse_int=whole,
        )
    except (ValueError, RecursionError):
        return None
    top = TOPS[stem]
    if isinstance(value, Pairs) != (top is dict) or not isinstance(value, list):
        return None
    items = value if top is dict else list(enumerate(value))
    for _, record in items:
        if not isinstance(record, Pairs):
            return None
    return [(plain(key), plain(record)) for key, record in items]
