"""Downloads over HTTP from unreliable servers, and extraction of archives."""

from __future__ import annotations

import gzip
import json
import random
import socket
import stat
import tarfile
import tempfile
import zipfile
from collections import namedtuple
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from citerec.datasets import transfer
from citerec.datasets.errors import InputError, UnusableFile
from citerec.datasets.transfer import CHUNK, discard_download, fetch, format_names, pick_files, unpack
from citerec.tests.datasets.conftest import archive_of

BODY = random.Random(0).randbytes(100_000)
USAGE = namedtuple("USAGE", "total used free")


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "file.bin"


def part_of(target: Path, content: bytes, **version: Any) -> Path:
    """Create the partial files of an interrupted download."""
    part = target.with_name("file.bin.part")
    part.write_bytes(content)
    noted = {"address": None, "tag": '"1"', "modified": None, "total": len(BODY)} | version
    target.with_name("file.bin.json").write_text(json.dumps(noted))
    return part


def test_a_file_comes_with_one_request_and_is_kept(server: Any, target: Path) -> None:
    for _ in range(2):  # the second call makes no request
        fetch(server.put("file.bin", BODY), target)
        assert target.read_bytes() == BODY and len(server.requests) == 1
        assert sorted(path.name for path in target.parent.iterdir()) == ["file.bin", "file.bin.json"]
    fetch(server.put("other.bin", BODY[:50]), target)
    assert target.read_bytes() == BODY[:50]


def test_a_cut_connection_resumes_where_it_ended(server: Any, target: Path) -> None:
    fetch(server.put("file.bin", BODY, cut=3 * CHUNK), target, len(BODY))
    assert target.read_bytes() == BODY
    assert [wanted for _, wanted in server.requests] == [None, f"bytes={3 * CHUNK}-", f"bytes={6 * CHUNK}-"]


def test_a_later_call_resumes_the_part_of_an_earlier_one(
    server: Any, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # All attempts after the first one fail.
    monkeypatch.setattr("time.sleep", lambda _: server.put("file.bin", status=500))
    with pytest.raises(UnusableFile, match=r"HTTP 500 .*, 5 times in a row; the partial download is kept"):
        fetch(server.put("file.bin", BODY, cut=CHUNK), target)
    assert target.with_name("file.bin.part").stat().st_size == CHUNK and not target.exists()
    server.requests.clear()
    fetch(server.put("file.bin", BODY), target)
    assert target.read_bytes() == BODY and server.requests == [("/file.bin", f"bytes={CHUNK}-")]


def test_a_complete_part_needs_no_server(server: Any, target: Path) -> None:
    address = server.put("file.bin", BODY)
    part_of(target, BODY, address=address)  # as if the process died before its last step
    server.http.shutdown()
    fetch(address, target)
    assert target.read_bytes() == BODY


@pytest.mark.parametrize("headers", [{}, {"ETag": None}])
def test_a_server_without_ranges_or_versions_starts_again(
    server: Any, target: Path, headers: dict[str, None]
) -> None:
    how = {"ranges": bool(headers), "headers": headers}
    fetch(server.put("file.bin", BODY, cut=2 * CHUNK, cuts=2, **how), target)
    assert target.read_bytes() == BODY and len(server.requests) == 3
    with pytest.raises(UnusableFile, match="5 times in a row"):  # gives up without progress
        fetch(server.put("other.bin", BODY, cut=2 * CHUNK, **how), target)


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
def test_a_file_is_never_a_mixture_of_two_versions(
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
            try:
                fetch(put(version, mark, cut=cut, cuts=1, ranges=ranges), target)
            except UnusableFile:
                continue
            assert target.read_bytes() == VERSIONS[version]
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
        ({}, r"a web page .*\(Quota exceeded\)"),
        ({"status": 302, "headers": {"Location": "file.bin"}}, "redirects"),
    ],
)
def test_a_missing_file_is_requested_once(server: Any, target: Path, how: dict[str, Any], said: str) -> None:
    page = "\n <!DOCTYPE html><html><head><title>Quota\n exceeded</title></head></html>"
    with pytest.raises(UnusableFile, match=said):
        fetch(server.put("file.bin", page, **how), target)
    assert not target.exists() and (len(server.requests) == 1 or "redirects" in said)


def test_a_web_page_instead_of_the_file_keeps_the_partial_download(server: Any, target: Path) -> None:
    address = server.put("file.bin", "<html>", headers={"Content-Type": "text/html"}, ranges=False)
    part = part_of(target, BODY[:100], address=address)
    with pytest.raises(UnusableFile, match="web page"):
        fetch(address, target)
    assert part.read_bytes() == BODY[:100]


def test_temporary_errors_are_retried(server: Any, target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    address = server.put("file.bin", BODY, status=503)
    with pytest.raises(UnusableFile, match=r"HTTP 503 .*, 5 times in a row$"):
        fetch(address, target)
    assert len(server.requests) == 5
    monkeypatch.setattr(
        "time.sleep", lambda _: server.put("file.bin", BODY)
    )  # the server recovers in the meantime
    fetch(address, target)
    assert target.read_bytes() == BODY


def test_a_wrong_content_length_is_a_one_line_error(server: Any, target: Path) -> None:
    address = server.put("file.bin", BODY, headers={"Content-Length": "110000"}, ranges=False)
    with pytest.raises(UnusableFile, match=r"connection lost, 5 times in a row"):
        fetch(address, target)
    assert not target.exists() and len(server.requests) == 6


@pytest.mark.parametrize("length", ["95000", "105000"])
def test_a_size_other_than_the_published_one_is_rejected(server: Any, target: Path, length: str) -> None:
    address = server.put("file.bin", BODY, headers={"Content-Length": length})
    with pytest.raises(UnusableFile, match=rf"has {int(length):,} bytes, but the published file has 100,000"):
        fetch(address, target, 100_000)
    assert not list(target.parent.iterdir())


def test_without_a_length_the_published_size_is_checked_at_the_end(server: Any, target: Path) -> None:
    address = server.put("file.bin", BODY, headers={"Content-Length": None, "ETag": None})
    fetch(address, target, 100_000)
    assert target.read_bytes() == BODY
    discard_download(target)
    with pytest.raises(UnusableFile, match="ended after 100,000 of 100,001 bytes"):
        fetch(address, target, 100_001)


def test_a_body_compressed_in_transit(server: Any, target: Path) -> None:
    fetch(server.put("file.bin", gzip.compress(BODY), headers={"Content-Encoding": "gzip"}), target)
    assert target.read_bytes() == BODY
    discard_download(target)
    with pytest.raises(UnusableFile, match="compressed data are damaged"):
        fetch(server.put("file.bin", BODY, headers={"Content-Encoding": "gzip"}), target)


def test_a_silent_server_times_out(server: Any, target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transfer, "TIMEOUT", 0.1)
    monkeypatch.setattr(transfer, "ATTEMPTS", 2)
    with (
        socket.create_server(("127.0.0.1", 0)) as deaf,
        pytest.raises(UnusableFile, match=r"no response within 0\.1 s$"),
    ):
        fetch(f"http://127.0.0.1:{deaf.getsockname()[1]}/file.bin", target)
    with pytest.raises(UnusableFile, match=r"no response within 0\.1 s, 2 times in a row"):
        fetch(server.put("file.bin", BODY, pause=0.3), target)


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("http://127.0.0.1:{port}/x", r"no connection \(Connection refused\)$"),
        ("nonsense", "not an http"),
        ("ftp://host/file", "not an http"),
        ("http://", "not an http"),
        ("", "not an http"),
    ],
)
def test_no_connection_fails_at_once(target: Path, address: str, said: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with pytest.raises(UnusableFile, match=said):
        fetch(address.format(port=port), target)


def test_a_full_disk_is_detected_in_advance(
    server: Any, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda _: USAGE(10**6, 10**6, 99_999))
    with pytest.raises(InputError, match="free some") as error:
        fetch(server.put("file.bin", BODY), target)
    assert str(target.parent) in str(error.value) and not list(target.parent.iterdir())


def test_the_part_of_another_address_is_not_used(server: Any, target: Path) -> None:
    part = part_of(target, b"x" * 100, address=f"{server.url}/other.bin")
    fetch(server.put("file.bin", BODY), target)
    assert target.read_bytes() == BODY and server.requests == [("/file.bin", None)]
    for note in ("{", "[]", json.dumps({"address": f"{server.url}/file.bin"})):  # nor of an unknown one
        target.replace(part)
        target.with_name("file.bin.json").write_text(note)
        fetch(f"{server.url}/file.bin", target)
        assert target.read_bytes() == BODY


TEXT = b"".join(b'{"number": %d}\n' % number for number in range(2000))
KINDS = ["zip", "stored", "tar", "tar.gz", "tar.bz2", "tar.xz"]


def pack(path: Path, members: dict[str, bytes], kind: str = "zip") -> Path:
    path.write_bytes(archive_of(members, kind))
    return path


@pytest.fixture
def out(tmp_path: Path) -> Path:
    (tmp_path / "out").mkdir()
    return tmp_path / "out"


@pytest.mark.parametrize("kind", KINDS)
def test_only_the_wanted_files_are_unpacked(tmp_path: Path, out: Path, kind: str) -> None:
    members = {"acl/": b""} if kind in ("zip", "stored") else {}
    members |= {
        "acl/a.json": TEXT,
        "acl/other.bin": b"x",
        "acl/b.json.gz": b"b",
        "__MACOSX/acl/._a.json": b"",
    }
    archive = pack(tmp_path / "some archive", members, kind)
    assert unpack(archive, ["a.json", "b.json", "c.json"], out) == [out / "a.json", out / "b.json.gz"]
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["a.json", "b.json.gz", "out", "some archive"]
    assert (out / "a.json").read_bytes() == TEXT


def test_choice_among_files_of_the_same_name() -> None:
    paths = ["old/acl/a.json", "acl/a.json", "arxiv/a.json", "acl/a.json.gz", "b.pkl.gz"]
    assert pick_files(paths, ["a.json"], "acl") == {"a.json": "acl/a.json"}
    assert pick_files(paths, ["a.json"], "OLD") == {"a.json": "old/acl/a.json"}
    assert pick_files(paths, ["b.pkl", "c.json"]) == {}
    for matches in ("", "nowhere"):
        with pytest.raises(UnusableFile, match=r"a\.json more than once: acl/a\.json, arxiv/a\.json"):
            pick_files(paths, ["a.json"], matches)


def test_names_are_listed_without_terminal_escapes() -> None:
    assert format_names(["a\x1b[2J\nb", *"123456789"]) == "a?[2J?b, 1, 2, 3, 4, 5, 6, 7 and 2 more"


WAYS_OUT = ["../a.json", "x/../../a.json", "/etc/a.json", "..\\a.json", "C:\\a.json", "\\\\host\\a.json"]


@pytest.mark.parametrize("kind", ["zip", "tar"])
@pytest.mark.parametrize("way", WAYS_OUT)
def test_an_archive_with_a_path_outside_its_folder_is_rejected(
    tmp_path: Path, out: Path, kind: str, way: str
) -> None:
    archive = pack(tmp_path / "archive", {"a.json": TEXT, way: b"evil"}, kind)
    with pytest.raises(UnusableFile, match="is outside its folder"):
        unpack(archive, ["a.json"], out)
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["archive", "out"]


@pytest.mark.parametrize("kind", ["zip", "tar"])
def test_links_and_devices_are_not_followed(tmp_path: Path, out: Path, kind: str) -> None:
    secret, archive = tmp_path / "secret", tmp_path / "archive"
    secret.write_text("secret")
    if kind == "zip":
        with zipfile.ZipFile(archive, "w") as packed:
            info = zipfile.ZipInfo("a.json")
            info.external_attr = (stat.S_IFLNK | 0o777) << 16
            packed.writestr(info, "../secret")
    else:
        kinds = {"a.json": tarfile.SYMTYPE, "x/a.json": tarfile.LNKTYPE, "y/a.json": tarfile.FIFOTYPE}
        with tarfile.open(archive, "w") as tar:
            for name, type in kinds.items():
                link = tarfile.TarInfo(name)
                link.type, link.linkname = type, str(secret)
                tar.addfile(link)
    with pytest.raises(UnusableFile, match="contains none of the files, only nothing"):
        unpack(archive, ["a.json"], out)
    assert not list(out.iterdir())


def test_a_bomb_is_not_unpacked(tmp_path: Path, out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = pack(tmp_path / "archive", {"a.json": bytes(3_000_000)})
    data = archive.read_bytes()
    assert len(data) < 10_000
    with monkeypatch.context() as patch:
        patch.setattr("shutil.disk_usage", lambda _: USAGE(0, 0, 2_000_000))
        with pytest.raises(InputError, match="needs 3 MB, but only 2 MB are free; free some"):
            unpack(archive, ["a.json"], out)
        assert not list(out.iterdir())
    # A member with a wrong size is not written beyond it.
    archive.write_bytes(data.replace((3_000_000).to_bytes(4, "little"), (1_000).to_bytes(4, "little")))
    with pytest.raises(UnusableFile, match="damaged"):
        unpack(archive, ["a.json"], out)
    assert sum(path.stat().st_size for path in out.iterdir()) <= 1_000


@pytest.mark.parametrize(
    "data", [b"", b"PK\x03\x04 and no more", b"{}", b"<html>", bytes(20_000), b"\x1f\x8b\x08"]
)
def test_a_file_that_is_not_an_archive_is_a_one_line_error(tmp_path: Path, out: Path, data: bytes) -> None:
    (tmp_path / "archive").write_bytes(data)
    with pytest.raises(UnusableFile, match=r"not a zip or tar archive|contains none of the files|is damaged"):
        unpack(tmp_path / "archive", ["a.json"], out)


def test_an_encrypted_archive_is_a_one_line_error(tmp_path: Path, out: Path) -> None:
    archive = pack(tmp_path / "archive", {"a.json": TEXT})
    data = bytearray(archive.read_bytes())
    for signature, flags in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        data[data.index(signature) + flags] |= 1
    archive.write_bytes(data)
    with pytest.raises(UnusableFile, match=r"cannot be unpacked \(.*(encrypted|password)"):
        unpack(archive, ["a.json"], out)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    kind=st.sampled_from(KINDS),
    places=st.lists(st.tuples(st.floats(0, 1), st.integers(0, 255)), max_size=4),
    kept=st.floats(0, 1) | st.just(1.0),
)
def test_a_damaged_archive_yields_the_file_or_a_one_line_error(
    tmp_path: Path, out: Path, kind: str, places: list[tuple[float, int]], kept: float
) -> None:
    data = bytearray(pack(tmp_path / "archive", {"x": b"x" * 700, "a.json": TEXT}, kind).read_bytes())
    for place, value in places:
        data[int(place * (len(data) - 1))] = value
    (tmp_path / "archive").write_bytes(data[: round(kept * len(data))])
    try:
        unpack(tmp_path / "archive", ["a.json"], out)
    except (UnusableFile, InputError) as error:
        assert str(error) and "\n" not in str(error)
    else:  # tar files have no content checksums
        assert kind.startswith("tar") or (out / "a.json").read_bytes() == TEXT
