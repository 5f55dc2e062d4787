"""Downloads from web servers and Google Drive, unpacking, manual placement, and one-line errors."""

from __future__ import annotations

import hashlib
import logging
import os
import random
import signal
import socket
import stat
import sys
import tarfile
import time
import zipfile
from collections import namedtuple
from collections.abc import Callable
from dataclasses import replace
from multiprocessing import get_context
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, TextIO

import pytest
from hydra.utils import instantiate
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from citerec.base.archives import format_names, pick_files, unpack
from citerec.base.errors import InputError, UnusableFile, one_line_errors
from citerec.base.files import file_lock
from citerec.datasets.published import downloads
from citerec.datasets.published.downloads import ensure_release, fetch
from citerec.datasets.published.releases import CORPUS_FILES, RELEASES
from citerec.tests.composing import compose_config
from citerec.tests.conftest import Done
from citerec.tests.datasets.conftest import archive_of
from citerec.tests.forked import with_stderr

WEIGHTS = "model_batch_35000.pt"


def packed(source: Path, folder: str = "acl") -> bytes:
    """Zip the files in `source`."""
    return archive_of({f"{folder}/{path.name}": path.read_bytes() for path in sorted(source.iterdir())})


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


@pytest.fixture
def at(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Change the addresses of a release."""

    def put(name: str, *addresses: str, **more: Any) -> None:
        monkeypatch.setitem(RELEASES, name, replace(RELEASES[name], addresses=addresses, **more))

    return put


def visible(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if not path.name.startswith("."))


def hidden(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if "/." in str(path))


def test_an_archive_is_downloaded_once(server: Any, at: Any, tiny_source: Path, cache: Path) -> None:
    at(
        "acl200", f"{server.url}/gone.zip", server.put("any.zip", packed(tiny_source))
    )  # the second call finds the file
    for _ in range(2):
        folder = ensure_release("acl200", cache)
        assert folder == cache / "published" / "acl200" and visible(folder) == sorted(CORPUS_FILES)
    assert len(server.requests) == 2 and hidden(folder) == [".acl200.lock"]
    for path in tiny_source.iterdir():
        assert (folder / path.name).read_bytes() == path.read_bytes()


def test_a_web_folder_gives_its_files(server: Any, tiny_source: Path, tmp_path: Path) -> None:
    for path in tiny_source.iterdir():
        server.put(f"mirror/{path.name}", path.read_bytes())
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "papers.json.gz").write_bytes(b"")  # existing files are not requested
    folder = ensure_release("arxiv", folder=tmp_path / "mine", address=f"{server.url}/mirror/")
    assert visible(folder) == sorted({*CORPUS_FILES, "papers.json.gz"} - {"papers.json"})
    assert len(server.requests) == 4


@pytest.mark.parametrize("name", [name for name, release in RELEASES.items() if not release.repositories])
def test_failed_downloads_say_which_files_to_put_where(server: Any, at: Any, cache: Path, name: str) -> None:
    address = f"{server.url}/gone"
    at(name, address)
    with pytest.raises(InputError) as error:
        ensure_release(name, cache)
    line, release = str(error.value), RELEASES[name]
    assert line.startswith(f"{name} cannot be downloaded ({address}: HTTP 404 (Not Found)): put ")
    assert line.endswith(f"into {release.folder_in(cache)}") and "\n" not in line
    assert all(file in line for file in release.files)
    assert visible(release.folder_in(cache)) == []


@pytest.mark.parametrize("how", ["files", "archive", "both"])
def test_manually_placed_files_are_used(at: Any, tiny_source: Path, cache: Path, how: str) -> None:
    at("acl200")
    folder = cache / "published" / "acl200"
    folder.mkdir(parents=True)
    for name in CORPUS_FILES if how == "files" else CORPUS_FILES[:3] if how == "both" else ():
        (folder / name).write_bytes((tiny_source / name).read_bytes())
    if how != "files":
        (folder / "from my browser.zip").write_bytes(packed(tiny_source))
    assert set(visible(ensure_release("acl200", cache))) >= set(CORPUS_FILES)
    assert (folder / "from my browser.zip").exists() == (how != "files")
    assert (folder / "test.json").read_bytes() == (tiny_source / "test.json").read_bytes()


def test_a_damaged_manually_placed_archive_is_named(tiny_source: Path, cache: Path) -> None:
    folder = cache / "published" / "acl200"
    folder.mkdir(parents=True)
    (folder / "acl.zip").write_bytes(packed(tiny_source)[:-30])
    with pytest.raises(InputError, match=r"acl\.zip: not a zip or tar archive, or truncated; replace"):
        ensure_release("acl200", cache)
    assert visible(folder) == ["acl.zip"]


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda data: data[:-1], r"has \d+ bytes, but the published file has"),
        (lambda data: data[:60] + bytes([data[60] ^ 1]) + data[61:], "the SHA256 of glove-archive is "),
    ],
)
def test_size_and_checksum_are_verified(
    server: Any, at: Any, cache: Path, damage: Callable[[bytes], bytes], said: str
) -> None:
    data = archive_of({"glove.6B.200d.txt": b"the " + b"0.5 " * 200})
    at("glove", server.put("x.zip", damage(data)), size=len(data), sha256=hashlib.sha256(data).hexdigest())
    with pytest.raises(InputError, match=said):
        ensure_release("glove", cache)
    assert visible(cache / "vectors") == [] and hidden(cache / "vectors") == [".glove.lock"]
    (cache / "vectors" / "glove.6B.zip").write_bytes(damage(data))
    with pytest.raises(InputError, match=r"glove\.6B\.zip: .*(the published file|SHA256)"):
        ensure_release("glove", cache)
    (cache / "vectors" / "glove.6B.zip").write_bytes(data)
    assert "glove.6B.200d.txt" in visible(ensure_release("glove", cache))


@pytest.mark.parametrize(
    "content", ["[]", '{"a": 1}', "<html>Too many requests</html>", "", '{"a": {"title": ']
)
def test_wrong_papers_are_not_installed(
    server: Any, at: Any, tiny_source: Path, cache: Path, content: str
) -> None:
    (tiny_source / "papers.json").write_text(content)
    at("acl200", server.put("any.zip", packed(tiny_source)))
    with pytest.raises(InputError, match=r"any\.zip: papers\.json") as error:
        ensure_release("acl200", cache)
    assert ".download" not in str(error.value)
    assert visible(cache / "published" / "acl200") == []


def test_files_missing_from_an_archive_are_named_and_the_rest_used(
    server: Any, at: Any, tiny_source: Path, cache: Path
) -> None:
    papers = (tiny_source / "papers.json").rename(tiny_source.parent / "papers.json")
    at("refseer", server.put("any.zip", packed(tiny_source)))
    with pytest.raises(InputError, match=r"any\.zip: has no papers\.json\): put papers\.json, or"):
        ensure_release("refseer", cache)
    folder = cache / "published" / "refseer"
    papers.rename(folder / "papers.json")
    assert visible(ensure_release("refseer", cache)) == sorted(CORPUS_FILES) and len(server.requests) == 1


CHECKPOINT = "13J5mtRg6t3Lcsn6fCdLJ1pZhtXnpREEq"
WEIGHT_BYTES = archive_of({"archive/data/0": os.urandom(1_500_000)})  # PyTorch checkpoints are zip files
CONFIRM = (  # on one line, as sent by Drive
    "<html><head><title>Google Drive - Virus scan warning</title></head><body>"
    '<form id="download-form" action="https://drive.usercontent.google.com/download" method="get">'
    '<input type="hidden" name="id" value="{id}"><input type="hidden" name="confirm" value="t"></form></body>'
)
HTML = {"Content-Type": "text/html; charset=utf-8"}


def drive_file(drive: Any, identity: str, body: bytes, **how: Any) -> None:
    """Serve a file on Drive behind a confirmation page."""
    drive.put(f"drive/uc?id={identity}", CONFIRM.format(id=identity), headers=HTML)
    headers = {"Content-Disposition": f'attachment; filename="{identity}"'}
    drive.put(f"drive.usercontent/download?id={identity}&confirm=t", body, headers=headers, **how)


def drive_folder(drive: Any, identity: str, entries: dict[str, str], name: str = "Release") -> None:
    """Serve a shared folder; names ending in a slash are folders."""
    links = [
        f'<a href="https://drive.google.com/drive/folders/{key}">{entry.rstrip("/")}</a>'
        if entry.endswith("/")
        else f'<a href="https://drive.google.com/file/d/{key}/view?usp=drive_web">{entry}</a>'
        for entry, key in entries.items()
    ]
    page = f"<html><head><title>{name}</title></head><body>{''.join(links)}</body></html>"
    drive.put(f"drive/embeddedfolderview?id={identity}", page, headers=HTML)


def test_a_checkpoint_is_downloaded_past_drives_confirmation_page(drive: Any, cache: Path) -> None:
    drive_file(drive, CHECKPOINT, WEIGHT_BYTES, cut=1 << 20)
    folder = ensure_release("hatten-acl200", cache)
    assert folder == cache / "checkpoints" / "hatten-acl200"
    assert (folder / WEIGHTS).read_bytes() == WEIGHT_BYTES
    ranges = [wanted for path, wanted in drive.requests if "usercontent" in path]
    assert ranges == [None, f"bytes={1 << 20}-"]


def test_a_damaged_checkpoint_is_not_installed(drive: Any, cache: Path) -> None:
    flipped = WEIGHT_BYTES[:999] + bytes([WEIGHT_BYTES[999] ^ 1]) + WEIGHT_BYTES[1000:]
    for body in (WEIGHT_BYTES[:-40], flipped):
        drive_file(drive, CHECKPOINT, body)
        with pytest.raises(InputError, match="damaged"):
            ensure_release("hatten-acl200", cache)
        assert visible(cache / "checkpoints" / "hatten-acl200") == []


@pytest.mark.parametrize(
    ("page", "said"),
    [
        (
            '<p class="uc-error-subcaption">Too many users have <a>viewed</a> this</p>',
            "users have viewed this",
        ),
        ("<html><title>Sign in</title></html>", "Cannot retrieve the public link"),
    ],
)
def test_other_pages_of_drive_are_one_line_errors(drive: Any, cache: Path, page: str, said: str) -> None:
    drive.put(f"drive/uc?id={CHECKPOINT}", page, headers=HTML)
    with pytest.raises(InputError, match=rf"uc\?id=13J5.*: .*{said}.*put {WEIGHTS} into") as error:
        ensure_release("hatten-acl200", cache)
    assert "\n" not in str(error.value) and len(drive.requests) == 1


FOLDER = "1QwQuJsBOGEESFTgl-7wWbqcig7vJNlQ2"
KEYS = [f"{number:033d}" for number in range(20)]


@pytest.mark.parametrize("layout", ["folders", "archives"])
def test_a_data_set_is_found_in_drives_folder(
    drive: Any, at: Any, tiny_source: Path, cache: Path, layout: str
) -> None:
    at("acl200", RELEASES["acl200"].addresses[0])
    drive_folder(drive, FOLDER, {"model.zip": KEYS[1], "data/": KEYS[2], "papers.json": KEYS[3]})
    if layout == "folders":
        drive_folder(drive, KEYS[2], {"ACL-200/": KEYS[4], "Oracle/": KEYS[5]}, "data")
        drive_folder(drive, KEYS[5], dict.fromkeys(CORPUS_FILES, KEYS[9]), "Oracle")
        files = {path.name: path.read_bytes() for path in tiny_source.iterdir()}
        drive_folder(drive, KEYS[4], dict(zip(files, KEYS[10:], strict=False)), "ACL-200")
        for key, content in zip(KEYS[10:], files.values(), strict=False):
            drive_file(drive, key, content)
    else:
        archives = {"arxiv.zip": KEYS[6], "acl_200.zip": KEYS[7], "acl_models.tar.gz": KEYS[8]}
        drive_folder(drive, KEYS[2], archives, "data")
        drive_file(drive, KEYS[7], packed(tiny_source, "x"))
    folder = ensure_release("acl200", cache)
    assert visible(folder) == sorted(CORPUS_FILES)
    assert (folder / "papers.json").read_bytes() == (tiny_source / "papers.json").read_bytes()


def test_a_folder_without_the_data_set_is_a_one_line_error(
    drive: Any, tiny_source: Path, cache: Path
) -> None:
    drive_folder(drive, FOLDER, {"ours.zip": KEYS[1], "papers.json": KEYS[3]})
    with pytest.raises(InputError, match=r"matches among ours\.zip, papers\.json; give the address"):
        ensure_release("refseer", cache)
    drive_file(drive, KEYS[1], packed(tiny_source))
    result = ensure_release(
        "refseer", cache, address=f"https://drive.google.com/drive/folders/{FOLDER}?usp=sharing"
    )
    assert visible(result) == sorted(CORPUS_FILES)


def test_an_unshared_folder_is_a_one_line_error(drive: Any, cache: Path) -> None:
    with pytest.raises(InputError, match=r"folders/1Qw\S+: Failed to retrieve folder contents.*404"):
        ensure_release("refseer", cache)
    drive_folder(drive, FOLDER, {})
    with pytest.raises(InputError, match="the folder is empty or not shared"):
        ensure_release("refseer", cache)


def started(*arguments: str, first: Any = bool, most_bytes: int | None = None) -> tuple[BaseProcess, TextIO]:
    """Start `citerec data download acl200 ARGUMENTS` after a call; return its process and what it says."""

    def work() -> None:
        first()
        sys.argv = ["citerec data download", "acl200", *arguments]
        one_line_errors(downloads.main)()

    return with_stderr(work, most_bytes)


def test_help_lists_names_sizes_and_folders(script: Callable[..., Done]) -> None:
    lines = script("data", "download", "--help").out.splitlines()
    for name, release in RELEASES.items():
        assert any(line.split()[:1] == [name] and f"/{release.folder}" in line for line in lines)
    assert all(any(size in line for line in lines) for size in ("862 MB", "about 295 MB", "size unknown"))


@pytest.mark.slow
def test_the_command_prints_one_line_when_offline(
    cache: Path, script: Callable[..., Done], monkeypatch: pytest.MonkeyPatch
) -> None:
    address = "http://127.0.0.1:9/acl.zip"  # a port that is no longer in use
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    code, output, line = script("data", "download", "acl200", f"cache_dir={cache}", f"address={address}")
    assert code == 2 and output == "" and line.count("\n") == 1
    assert line.startswith(
        f"error: acl200 cannot be downloaded ({address}: no connection (Connection refused)): put papers.json"
    )
    assert line.endswith(f"into {cache}/published/acl200\n")


def test_processes_that_start_at_once_download_once(server: Any, tiny_source: Path, cache: Path) -> None:
    address = server.put("any.zip", packed(tiny_source))
    folder = cache / "published" / "acl200"
    folder.mkdir(parents=True)
    begin = get_context("fork").Event()  # a fork that is made later would hold the lock, too
    options = f"cache_dir={cache}", f"address={address}"
    processes = [started(*options, first=begin.wait) for _ in range(2)]
    with file_lock(folder / ".acl200.lock", "tests"):
        begin.set()
        for _, said in processes:
            assert "waiting for another process" in said.readline()
    for process, _ in processes:
        process.join()
    assert [process.exitcode for process, _ in processes] == [0, 0] and len(server.requests) == 1


def test_after_an_interrupt_nothing_is_left_and_the_download_starts_anew(
    server: Any, tiny_source: Path, cache: Path
) -> None:
    (tiny_source / "noise").write_bytes(os.urandom(200_000))
    address = server.put("any.zip", packed(tiny_source), pause=0.02)
    process, said = started(f"cache_dir={cache}", f"address={address}")
    folder = cache / "published" / "acl200"
    while not server.requests:
        assert process.is_alive()
        time.sleep(0.01)
    assert process.pid is not None
    os.kill(process.pid, signal.SIGINT)
    errors = said.read()
    process.join()
    assert process.exitcode == 130 and errors.splitlines()[-1] == "interrupted"
    assert "Traceback" not in errors
    assert visible(folder) == [] and hidden(folder) == [".acl200.lock"]
    (folder / ".acl200.download").mkdir()
    (folder / ".acl200.download" / "acl200-archive1234abcd.part").write_bytes(b"of a killed process")
    server.pages["/any.zip"].pop("pause")
    ensure_release("acl200", cache, address=address)
    assert server.requests[-1] == ("/any.zip", None) and hidden(folder) == [".acl200.lock"]


def test_a_full_disk_is_a_one_line_error(server: Any, tiny_source: Path, cache: Path) -> None:
    (tiny_source / "noise").write_bytes(os.urandom(200_000))
    address = server.put("any.zip", packed(tiny_source))
    process, told = started(f"cache_dir={cache}", f"address={address}", most_bytes=100_000)
    errors = told.read()
    process.join()
    folder = cache / "published" / "acl200"
    said = f"error: {folder}: no space left for the files of acl200; free some or set CITATION_CACHE or"
    assert process.exitcode == 2 and errors.count("\n") == 2 and said in errors
    assert visible(folder) == [] and hidden(folder) == [".acl200.lock"]


def test_an_unwritable_folder_is_a_one_line_error(cache: Path) -> None:
    cache.mkdir()
    (cache / "published").write_text("")
    with pytest.raises(InputError, match=r"published.*: (Not a directory|File exists); set CITATION_CACHE"):
        ensure_release("acl200", cache)


def opened(*overrides: str) -> Any:
    return instantiate(compose_config("evaluate", ["data=acl200", *overrides]).data)


def test_data_acl200_is_downloaded_and_opened(
    server: Any, tiny_source: Path, cache: Path, caplog: pytest.LogCaptureFixture
) -> None:
    address = server.put("any.zip", packed(tiny_source))
    with caplog.at_level(logging.WARNING):
        corpus = opened(f"data.address={address}", f"data.cache_dir={cache}")
    assert corpus.name == "acl200" and len(corpus.paper_ids) == 12
    assert set(corpus.splits) == {"train", "val", "test"} and corpus.path.is_relative_to(cache)
    assert "acl200: papers has 12 records, expected 19,776" in caplog.text
    assert caplog.text.count("records, expected") == 4
    again = opened(f"data.cache_dir={cache}")
    assert again.path == corpus.path and len(server.requests) == 1


def test_a_separate_papers_file_and_one_split_are_enough(server: Any, tiny_source: Path, cache: Path) -> None:
    for name in ("train.json", "val.json"):
        (tiny_source / name).unlink()
    papers = (tiny_source / "papers.json").rename(tiny_source.parent / "shared-papers.json")
    settings = (f"data.dir={tiny_source}", f"data.papers={papers}", f"data.cache_dir={cache}")
    assert list(opened(*settings, "data.splits=[test]").splits) == ["test"]
    address = f"data.address={server.url}/gone"
    with pytest.raises(Exception, match=rf"HTTP 404 .* put train\.json, val\.json, or .* into {tiny_source}"):
        opened(*settings, address)
    with pytest.raises(Exception, match=r"data\.splits: must be a list"):
        opened(*settings, address, "data.splits=test")


BODY = random.Random(0).randbytes(1_500_000)
USAGE = namedtuple("USAGE", "total used free")


@pytest.mark.parametrize("ranges", [True, False])
def test_a_broken_connection_goes_on_where_it_ended(server: Any, tmp_path: Path, ranges: bool) -> None:
    address, path = server.put("file.bin", BODY, cut=1 << 20, ranges=ranges), tmp_path / "file.bin"
    if ranges:
        fetch(address, path, len(BODY))
        assert path.read_bytes() == BODY
        assert [wanted for _, wanted in server.requests] == [None, f"bytes={1 << 20}-"]
    else:
        with pytest.raises(UnusableFile, match="did not honor the requested byte range"):
            fetch(address, path)
        assert not path.exists()


PAGE = "\n <!DOCTYPE html><html><head><title>Quota\n exceeded</title></head></html>"


@pytest.mark.parametrize(
    ("how", "line"),
    [
        ({"status": 404}, r"HTTP 404 \(Not Found\)"),
        ({"status": 503}, r"HTTP 503 \(Service Unavailable\)"),
        ({}, r"the server sent a web page instead of the file \(Quota exceeded\)"),
        ({"status": 302, "headers": {"Location": "file.bin"}}, r"HTTP 302 \(Found\)"),
        (
            {"body": BODY, "headers": {"Content-Length": "2000000"}},
            "Server did not honor the requested byte range$",
        ),
        ({"body": BODY, "pause": 0.3}, r"no response within 0\.1 s"),
        ({"body": BODY[:9]}, "has 9 bytes, but the published file has 1,500,000"),
        ({"address": "nonsense"}, "Invalid URL 'nonsense': No scheme supplied"),
        ({"address": "ftp://host/file"}, "No connection adapters were found"),
        ({"address": "http://127.0.0.1:{port}/x"}, r"no connection \(Connection refused\)"),
    ],
)
def test_failures_are_one_line(
    server: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: dict[str, Any], line: str
) -> None:
    if "pause" in how:
        monkeypatch.setattr(downloads, "TIMEOUT", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    options: dict[str, Any] = {"body": PAGE, "ranges": False} | how
    address = options.pop("address", "").format(port=port) or server.put("file.bin", **options)
    with pytest.raises(UnusableFile, match=line) as error:
        fetch(address, tmp_path / "file.bin", len(BODY) if how.get("body") == BODY[:9] else None)
    assert "\n" not in str(error.value)


def test_a_full_disk_is_detected_in_advance(
    server: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda _: USAGE(10**6, 10**6, 99_999))
    with pytest.raises(InputError, match=rf"{tmp_path}: needs .* MB, but only 0 MB are free; free some"):
        fetch(server.put("file.bin", BODY), tmp_path / "file.bin")


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


WAYS_OUT = ["../a.json", "x/../../a.json", "/etc/a.json", "..\\a.json", "C:\\a.json"]


@pytest.mark.parametrize("kind", ["zip", "tar"])
@pytest.mark.parametrize("way", WAYS_OUT)
def test_nothing_is_unpacked_outside_the_folder(tmp_path: Path, out: Path, kind: str, way: str) -> None:
    archive = pack(tmp_path / "archive", {way: TEXT}, kind)
    for name in (way, way.rpartition("/")[2]):
        try:
            unpack(archive, [name], out)
        except UnusableFile as error:
            assert "contains none of the files" in str(error)
    assert sorted(path.name for path in tmp_path.rglob("*") if path.parent != out) == ["archive", "out"]


def test_links_and_devices_are_not_followed(tmp_path: Path, out: Path) -> None:
    secret, archive = tmp_path / "secret", tmp_path / "archive"
    secret.write_text("secret")
    kinds = {"a.json": tarfile.SYMTYPE, "x/a.json": tarfile.LNKTYPE, "y/a.json": tarfile.FIFOTYPE}
    with tarfile.open(archive, "w") as tar:
        for name, type in kinds.items():
            link = tarfile.TarInfo(name)
            link.type, link.linkname = type, str(secret)
            tar.addfile(link)
    with pytest.raises(UnusableFile, match="contains none of the files, only nothing"):
        unpack(archive, ["a.json"], out)
    with zipfile.ZipFile(archive, "w") as packed:
        info = zipfile.ZipInfo("a.json")
        info.external_attr = (stat.S_IFLNK | 0o777) << 16
        packed.writestr(info, "../secret")
    (written,) = unpack(archive, ["a.json"], out)
    assert not written.is_symlink() and written.read_text() == "../secret"


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
    with pytest.raises(UnusableFile, match="cannot be unpacked"):
        unpack(archive, ["a.json"], out)
    assert sum(path.stat().st_size for path in out.iterdir()) <= 1_000


@pytest.mark.parametrize(
    "data", [b"", b"PK\x03\x04 and no more", b"{}", b"<html>", bytes(20_000), b"\x1f\x8b\x08"]
)
def test_a_file_that_is_not_an_archive_is_a_one_line_error(tmp_path: Path, out: Path, data: bytes) -> None:
    (tmp_path / "archive").write_bytes(data)
    with pytest.raises(UnusableFile, match=r"not a zip or tar|contains none of the files|cannot be unpacked"):
        unpack(tmp_path / "archive", ["a.json"], out)


def test_an_encrypted_archive_is_a_one_line_error(tmp_path: Path, out: Path) -> None:
    archive = pack(tmp_path / "archive", {"a.json": TEXT})
    data = bytearray(archive.read_bytes())
    for signature, flags in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        data[data.index(signature) + flags] |= 1
    archive.write_bytes(data)
    with pytest.raises(UnusableFile, match=r"cannot be unpacked \(.*(encrypted|password)"):
        unpack(archive, ["a.json"], out)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
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
