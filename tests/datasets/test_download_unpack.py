"""Archives: the wanted files and nothing else, and nothing at all out of one that is damaged or evil."""

from __future__ import annotations

import io
import stat
import tarfile
import zipfile
from collections import namedtuple
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from datasets.download import choose, shortened, unpack
from datasets.errors import InputError, Unusable

TEXT = b"".join(b'{"number": %d}\n' % number for number in range(2000))
KINDS = ["zip", "stored", "tar", "tar.gz", "tar.bz2", "tar.xz"]


def pack(path: Path, members: dict[str, bytes], kind: str = "zip") -> Path:
    """An archive with these members, in this order."""
    if kind in ("zip", "stored"):
        packing = zipfile.ZIP_DEFLATED if kind == "zip" else zipfile.ZIP_STORED
        with zipfile.ZipFile(path, "w", packing) as packed:
            for name, data in members.items():
                packed.writestr(name, data)
    else:
        with tarfile.open(path, f"w:{kind.removeprefix('tar').removeprefix('.')}") as tar:  # type: ignore[call-overload]
            for name, data in members.items():
                info = tarfile.TarInfo(name)
                info.size = len(data)
                tar.addfile(info, io.BytesIO(data))
    return path


@pytest.fixture
def out(tmp_path: Path) -> Path:
    folder = tmp_path / "out"
    folder.mkdir()
    return folder


@pytest.mark.parametrize("kind", KINDS)
def test_only_the_wanted_files_come_out(tmp_path: Path, out: Path, kind: str) -> None:
    members = {"acl/": b""} if kind in ("zip", "stored") else {}
    members |= {
        "acl/a.json": TEXT,
        "acl/other.bin": b"x",
        "acl/b.json.gz": b"b",
        "__MACOSX/acl/._a.json": b"y",
    }
    archive = pack(tmp_path / "some archive", members, kind)
    assert unpack(archive, ["a.json", "b.json", "c.json"], out) == [out / "a.json", out / "b.json.gz"]
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["a.json", "b.json.gz", "out", "some archive"]
    assert (out / "a.json").read_bytes() == TEXT


def test_which_of_several_is_meant() -> None:
    paths = ["old/acl/a.json", "acl/a.json", "arxiv/a.json", "acl/a.json.gz", "b.pkl.gz"]
    assert choose(paths, ["a.json"], "acl") == {"a.json": "acl/a.json"}
    assert choose(paths, ["a.json"], "OLD") == {"a.json": "old/acl/a.json"}
    assert choose(paths, ["b.pkl", "c.json"]) == {}
    for matches in ("", "nowhere"):
        with pytest.raises(Unusable, match=r"more than once: acl/a\.json, arxiv/a\.json"):
            choose(paths, ["a.json"], matches)


def test_names_are_shown_without_what_a_terminal_would_obey() -> None:
    assert shortened(["a\x1b[2J\nb", *"123456789"]) == "a?[2J?b, 1, 2, 3, 4, 5, 6, 7 and 2 more"


WAYS_OUT = ["../a.json", "x/../../a.json", "/etc/a.json", "..\\a.json", "C:\\a.json", "\\\\host\\a.json"]


@pytest.mark.parametrize("kind", ["zip", "tar"])
@pytest.mark.parametrize("way", WAYS_OUT)
def test_an_archive_with_a_way_out_is_refused(tmp_path: Path, out: Path, kind: str, way: str) -> None:
    archive = pack(tmp_path / "archive", {"a.json": TEXT, way: b"evil"}, kind)
    with pytest.raises(Unusable, match="leads out of the folder"):
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
        with tarfile.open(archive, "w") as tar:
            for name, type in (
                ("a.json", tarfile.SYMTYPE),
                ("x/a.json", tarfile.LNKTYPE),
                ("a.json", tarfile.FIFOTYPE),
            ):
                link = tarfile.TarInfo(name)
                link.type, link.linkname = type, str(secret)
                tar.addfile(link)
    with pytest.raises(Unusable, match="none of the files is in it; it has nothing"):
        unpack(archive, ["a.json"], out)
    assert not list(out.iterdir())


def test_a_bomb_is_not_lit(tmp_path: Path, out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = pack(tmp_path / "archive", {"a.json": bytes(3_000_000)})
    assert archive.stat().st_size < 10_000
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr("shutil.disk_usage", lambda _: usage(0, 0, 2_000_000))
    with pytest.raises(InputError, match="3 MB are to be written and 2 MB are free; free some"):
        unpack(archive, ["a.json"], out)
    assert not list(out.iterdir())


def test_a_bomb_that_lies_about_its_size_is_seen(tmp_path: Path, out: Path) -> None:
    archive = pack(tmp_path / "archive", {"a.json": bytes(3_000_000)})
    data = archive.read_bytes()
    archive.write_bytes(data.replace((3_000_000).to_bytes(4, "little"), (1_000).to_bytes(4, "little")))
    with pytest.raises(Unusable, match="damaged"):
        unpack(archive, ["a.json"], out)
    assert sum(path.stat().st_size for path in out.iterdir()) <= 1_000


@pytest.mark.parametrize(
    "data", [b"", b"PK\x03\x04 and no more", b"{}", b"<html>", bytes(20_000), b"\x1f\x8b\x08"]
)
def test_what_is_no_archive_is_said(tmp_path: Path, out: Path, data: bytes) -> None:
    (tmp_path / "archive").write_bytes(data)
    with pytest.raises(Unusable, match=r"no zip or tar archive|none of the files is in it|is damaged"):
        unpack(tmp_path / "archive", ["a.json"], out)


def test_an_encrypted_archive_is_said(tmp_path: Path, out: Path) -> None:
    archive = pack(tmp_path / "archive", {"a.json": TEXT})
    data = bytearray(archive.read_bytes())
    for signature, flags in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        data[data.index(signature) + flags] |= 1
    archive.write_bytes(data)
    with pytest.raises(Unusable, match=r"cannot be unpacked \(.*(encrypted|password)"):
        unpack(archive, ["a.json"], out)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    kind=st.sampled_from(KINDS),
    places=st.lists(st.tuples(st.floats(0, 1), st.integers(0, 255)), max_size=4),
    kept=st.floats(0, 1) | st.just(1.0),
)
def test_a_damaged_archive_gives_the_file_or_one_line(
    tmp_path: Path, out: Path, kind: str, places: list[tuple[float, int]], kept: float
) -> None:
    data = bytearray(pack(tmp_path / "archive", {"x": b"x" * 700, "a.json": TEXT}, kind).read_bytes())
    for place, value in places:
        data[int(place * (len(data) - 1))] = value
    (tmp_path / "archive").write_bytes(data[: round(kept * len(data))])
    try:
        unpack(tmp_path / "archive", ["a.json"], out)
    except (Unusable, InputError) as error:
        assert str(error) and "\n" not in str(error)
    else:  # a tar file has no checksums of content
        assert kind.startswith("tar") or (out / "a.json").read_bytes() == TEXT
