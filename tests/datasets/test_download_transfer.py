"""One file over HTTP from a server that cuts, lies, changes its mind or is not there."""

from __future__ import annotations

import gzip
import random
import socket
import tempfile
from collections import namedtuple
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from datasets import download as transfer
from datasets.download import Part, fetch, forget
from datasets.errors import InputError, Unusable

BODY = random.Random(0).randbytes(100_000)
CHUNK = transfer.CHUNK


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "file.bin"


def test_a_file_comes_with_one_request_and_is_kept(server: Any, target: Path) -> None:
    for _ in range(2):  # nothing more is asked for after the first
        fetch(server.put("file.bin", BODY), target)
        assert target.read_bytes() == BODY and len(server.asked) == 1 and not Part(target).path.exists()
    fetch(server.put("other.bin", BODY[:50]), target)
    assert target.read_bytes() == BODY[:50]


def test_a_cut_connection_is_taken_up_where_it_ended(server: Any, target: Path) -> None:
    fetch(server.put("file.bin", BODY, cut=3 * CHUNK), target, len(BODY))
    assert target.read_bytes() == BODY
    assert [wanted for _, wanted in server.asked] == [None, f"bytes={3 * CHUNK}-", f"bytes={6 * CHUNK}-"]


def test_a_later_call_goes_on_with_the_part_of_an_earlier_one(
    server: Any, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # From the second attempt on there is nothing but errors.
    monkeypatch.setattr("time.sleep", lambda _: server.put("file.bin", status=500))
    with pytest.raises(Unusable, match=r"HTTP 500 .*, 5 times in a row \(the part that came is kept\)"):
        fetch(server.put("file.bin", BODY, cut=CHUNK), target)
    assert Part(target).size() == CHUNK and not target.exists()
    server.asked.clear()
    fetch(server.put("file.bin", BODY), target)
    assert target.read_bytes() == BODY and server.asked == [("/file.bin", f"bytes={CHUNK}-")]


def test_a_part_that_was_complete_needs_no_server(server: Any, target: Path) -> None:
    address = server.put("file.bin", BODY)
    fetch(address, target)
    part = Part(target)
    part.begin(transfer.Version(address, '"1"', None, len(BODY)))
    target.replace(part.path)  # as when the process died before its last step
    server.http.shutdown()
    fetch(address, target)
    assert target.read_bytes() == BODY


def test_a_server_without_ranges_starts_again(server: Any, target: Path) -> None:
    fetch(server.put("file.bin", BODY, cut=2 * CHUNK, cuts=2, ranges=False), target)
    assert target.read_bytes() == BODY and len(server.asked) == 3


VERSIONS = {
    name: random.Random(name).randbytes(size) for name, size in (("a", 5000), ("b", 5000), ("c", 3000))
}


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    calls=st.lists(
        st.tuples(
            st.sampled_from("abc"),
            st.integers(0, 5000),
            st.booleans(),
            st.sampled_from(["ETag", "Last-Modified", None]),
        ),
        max_size=4,
    ),
    last=st.sampled_from("abc"),
)
def test_what_comes_is_never_a_mixture_of_two_versions(
    server: Any, monkeypatch: pytest.MonkeyPatch, calls: list[tuple[str, int, bool, str | None]], last: str
) -> None:
    monkeypatch.setattr(transfer, "ATTEMPTS", 1)
    monkeypatch.setattr(transfer, "CHUNK", 256)

    def put(version: str, mark: str | None, **how: Any) -> str:
        marks = {"ETag": None} | ({mark: f'"{version}"'} if mark else {})
        address: str = server.put("file.bin", VERSIONS[version], headers=marks, **how)
        return address

    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "file.bin"
        for version, cut, ranges, mark in calls:
            body = VERSIONS[version]
            try:
                fetch(put(version, mark, cut=cut, cuts=1, ranges=ranges), target)
            except Unusable:
                continue
            assert target.read_bytes() == body
            target.unlink()
        fetch(put(last, "ETag"), target)
        assert target.read_bytes() == VERSIONS[last]


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ({"status": 404}, r"HTTP 404 \(Not Found\)"),
        ({"status": 403}, r"HTTP 403"),
        ({"status": 204}, r"HTTP 204"),
        ({"headers": {"Content-Type": "text/html; charset=utf-8"}}, r"a web page .*\(Quota exceeded\)"),
        ({}, r"a web page is there"),
        ({"status": 302, "headers": {"Location": "file.bin"}}, "circles"),
    ],
)
def test_what_is_not_there_is_asked_for_once(
    server: Any, target: Path, how: dict[str, Any], said: str
) -> None:
    page = "\n <!DOCTYPE html><html><head><title>Quota\n exceeded</title></head></html>"
    with pytest.raises(Unusable, match=said):
        fetch(server.put("file.bin", page, **how), target)
    assert not target.exists() and (len(server.asked) == 1 or "circles" in said)


def test_a_page_in_place_of_the_file_leaves_the_part(server: Any, target: Path) -> None:
    address = server.put("file.bin", BODY)
    part = Part(target)
    part.begin(transfer.Version(address, "x", None, len(BODY)))
    part.path.write_bytes(BODY[:100])
    server.put("file.bin", "<html>", headers={"Content-Type": "text/html"}, ranges=False)
    with pytest.raises(Unusable, match="web page"):
        fetch(address, target)
    assert part.size() == 100


def test_a_server_in_trouble_is_asked_again(
    server: Any, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = server.put("file.bin", BODY, status=503)
    with pytest.raises(Unusable, match=r"HTTP 503 .*, 5 times in a row$"):
        fetch(address, target)
    assert len(server.asked) == 5
    monkeypatch.setattr("time.sleep", lambda _: server.put("file.bin", BODY))  # it recovers meanwhile
    fetch(address, target)
    assert target.read_bytes() == BODY


def test_a_longer_length_than_there_is_ends_in_one_line(server: Any, target: Path) -> None:
    address = server.put("file.bin", BODY, headers={"Content-Length": "110000"}, ranges=False)
    with pytest.raises(Unusable, match=r"cut, 5 times in a row"):
        fetch(address, target)
    assert not target.exists() and len(server.asked) == 6


@pytest.mark.parametrize("length", ["95000", "105000"])
def test_another_size_than_the_published_one_is_refused(server: Any, target: Path, length: str) -> None:
    address = server.put("file.bin", BODY, headers={"Content-Length": length})
    with pytest.raises(Unusable, match=rf"{int(length):,} bytes are offered where 100,000 were published"):
        fetch(address, target, 100_000)
    assert not list(target.parent.iterdir())


def test_without_a_length_the_published_size_is_asked_of_what_came(server: Any, target: Path) -> None:
    address = server.put("file.bin", BODY, headers={"Content-Length": None, "ETag": None})
    fetch(address, target, 100_000)
    assert target.read_bytes() == BODY
    forget(target)
    with pytest.raises(Unusable, match="it ended after 100,000 of 100,001 bytes"):
        fetch(address, target, 100_001)


def test_a_body_compressed_for_its_way_arrives_as_it_was(server: Any, target: Path) -> None:
    fetch(server.put("file.bin", gzip.compress(BODY), headers={"Content-Encoding": "gzip"}), target)
    assert target.read_bytes() == BODY
    forget(target)
    with pytest.raises(Unusable, match="compression is damaged"):
        fetch(server.put("file.bin", BODY, headers={"Content-Encoding": "gzip"}), target)


def test_silence_ends(server: Any, target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transfer, "TIMEOUT", 0.1)
    monkeypatch.setattr(transfer, "ATTEMPTS", 2)
    with (
        socket.create_server(("127.0.0.1", 0)) as deaf,
        pytest.raises(Unusable, match=r"no answer within 0\.1 s"),
    ):
        fetch(f"http://127.0.0.1:{deaf.getsockname()[1]}/file.bin", target)
    with pytest.raises(Unusable, match=r"no answer within 0\.1 s, 2 times in a row"):
        fetch(server.put("file.bin", BODY, pause=0.3), target)


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("http://127.0.0.1:{port}/x", r"no connection \(Connection refused\)"),
        ("nonsense", "not an address"),
        ("ftp://host/file", "not an address"),
        ("http://", "not an address"),
        ("", "not an address"),
    ],
)
def test_no_connection_is_said_at_once(target: Path, address: str, said: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with pytest.raises(Unusable, match=said):
        fetch(address.format(port=port), target)


def test_a_disk_without_room_is_seen_before(
    server: Any, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr("shutil.disk_usage", lambda _: usage(10**6, 10**6, 99_999))
    with pytest.raises(InputError, match="free some") as error:
        fetch(server.put("file.bin", BODY), target)
    assert str(target.parent) in str(error.value) and not list(target.parent.iterdir())


def test_a_part_is_not_taken_for_that_of_another_address(server: Any, target: Path) -> None:
    part = Part(target)
    part.begin(transfer.Version(f"{server.url}/other.bin", "x", None, len(BODY)))
    part.path.write_bytes(b"x" * 100)
    fetch(server.put("file.bin", BODY), target)
    assert target.read_bytes() == BODY and server.asked == [("/file.bin", None)]
    target.replace(part.path)
    part.about.write_text("{")
    fetch(f"{server.url}/file.bin", target)
    assert target.read_bytes() == BODY
