"""Files cut between records: the pieces are the file, and one of a malformed file is malformed too."""

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from datasets.errors import InputError
from datasets.json_stream import as_file, cut, read_records

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text('{}[],:"\\ aé', max_size=8),
    lambda inside: (
        st.lists(inside, max_size=3) | st.dictionaries(st.text('},"{', max_size=3), inside, max_size=3)
    ),
    max_leaves=8,
)
RECORDS = st.dictionaries(
    st.text('{},"\\ab', min_size=1, max_size=4),
    st.dictionaries(st.text("ab", max_size=2), VALUES),
    max_size=8,
)


def pieces(path: Path, size: int) -> list[dict[str, object]]:
    """What is in each piece; json.JSONDecodeError if one is not well-formed."""
    found = []
    for piece in cut(path, size):
        with as_file(piece) as part:
            found.append(json.loads(part.read_bytes().decode("utf-8-sig")))
    return found


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cuts") / "papers.json"


@settings(max_examples=150, deadline=None)
@given(records=RECORDS, size=st.integers(1, 60), indent=st.sampled_from([None, 1]), mark=st.booleans())
def test_the_pieces_are_the_file(
    path: Path, records: dict[str, object], size: int, indent: int | None, mark: bool
) -> None:
    path.write_text(json.dumps(records, indent=indent, ensure_ascii=False), "utf-8-sig" if mark else "utf-8")
    found = pieces(path, size)
    assert [item for piece in found for item in piece.items()] == list(records.items())
    assert len(found) == 1 or all(found)
    if size == 1:
        assert len(found) == max(1, len(records))
    cuts = cut(path, size)
    assert [piece.start for piece in cuts[1:]] == [piece.stop + 1 for piece in cuts[:-1]]
    assert all(piece.stop - piece.start >= size for piece in cuts[:-1])


@settings(max_examples=300, deadline=None)
@given(records=RECORDS, size=st.integers(1, 30), data=st.data())
def test_a_malformed_file_has_a_piece_that_is_malformed_or_empty(
    path: Path, records: dict[str, object], size: int, data: st.DataObject
) -> None:
    text = json.dumps(records)
    place = data.draw(st.integers(0, len(text) - 1))
    text = text[:place] + data.draw(st.sampled_from([*'{}[],:"\\', ""])) + text[place + 1 :]
    path.write_text(text)
    try:
        whole = list(read_records(path, frozenset(), dict))
    except InputError:
        whole = None
    found: list[object] | None = []
    for piece in cut(path, size):
        with as_file(piece) as part:
            try:
                records_of = list(read_records(part, frozenset(), dict))
            except InputError:
                found = None
                break
        if not records_of and not (piece.start == 0 and piece.last):
            found = None
            break
        assert found is not None
        found += records_of
    if whole is None:
        assert found is None
    elif found is not None:
        assert found == whole


def test_a_file_of_nothing_is_one_piece(path: Path) -> None:
    path.write_bytes(b"")
    assert len(cut(path, 10)) == 1
