"""Open Research, and DBLP and PubMed of Citeomatic, come from where they are published, or not at all."""

from __future__ import annotations

import gzip
import hashlib
import io
import tarfile
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from datasets.convert import convert
from datasets.download import obtain
from datasets.errors import InputError
from datasets.releases import RELEASES

LINES = b'{"id": "1", "out_citations": []}\n{"id": "2", "out_citations": ["1"]}\n'


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


@pytest.fixture
def at(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Give a release other addresses."""

    def put(name: str, *addresses: str, **more: Any) -> None:
        monkeypatch.setitem(RELEASES, name, replace(RELEASES[name], addresses=addresses, **more))

    return put


def visible(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if not path.name.startswith("."))


def tarred(files: dict[str, bytes]) -> bytes:
    """A tar file, compressed, of {path: content}."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for path, content in files.items():
            info = tarfile.TarInfo(path)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


@pytest.mark.parametrize("name", ["dblp", "pubmed"])
@pytest.mark.parametrize("whole", [False, True])
def test_citeomatics_files_come_by_name_or_out_of_its_archive(
    server: Any, at: Any, cache: Path, name: str, whole: bool
) -> None:
    root = "citeomatic-2018-02-12"
    others = {f"{root}/comparison/{other}/corpus.json": b"{}" for other in ("dblp", "pubmed")}
    others |= {f"{root}/open_corpus/corpus.json": b"{}"}
    addresses = [
        address.partition("ai2-s2-research-public/")[2]
        for address in RELEASES[f"citeomatic-{name}"].addresses
    ]
    assert addresses == [f"{root}/comparison/{name}/", f"{root}.tar.gz"]
    if whole:
        server.put(addresses[1], tarred({**others, f"{root}/comparison/{name}/corpus.json": LINES}))
    else:
        server.put(f"{addresses[0]}corpus.json", LINES)
    at(f"citeomatic-{name}", *(f"{server.url}/{address}" for address in addresses))
    folder = obtain(f"citeomatic-{name}", cache)
    assert folder == cache / "published" / f"citeomatic-{name}" and visible(folder) == ["corpus.json"]
    assert (folder / "corpus.json").read_bytes() == LINES
    assert convert(str(folder / "corpus.json"), cache / "papers").papers == 2


def test_open_research_comes_out_of_its_archive_with_its_checksum(server: Any, at: Any, cache: Path) -> None:
    data = gzip.compress(LINES)
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("LICENSE.txt", "...")
        archive.writestr("papers-2017-02-21.json.gz", data)
    address = server.put("open-corpus-archive/papers-2017-02-21.zip", buffer.getvalue())
    at("open-research", f"{server.url}/gone.zip", address)
    with pytest.raises(
        InputError, match=r"the MD5 of papers-2017-02-21\.json\.gz is [0-9a-f]{32}, published is f35c"
    ):
        obtain("open-research", cache)
    assert visible(cache / "published" / "open-research") == []
    at("open-research", address, md5=hashlib.md5(data).hexdigest())
    assert visible(obtain("open-research", cache)) == ["papers-2017-02-21.json.gz"]


@pytest.mark.parametrize("content", [b"", b"\n", b"[1]\n", b"<html>Gone</html>", b'{"id": '])
def test_lines_that_are_none_do_not_get_into_place(server: Any, at: Any, cache: Path, content: bytes) -> None:
    at("citeomatic-dblp", f"{server.url}/dblp/")
    server.put("dblp/corpus.json", content)
    with pytest.raises(InputError, match=r"put corpus\.json, or citeomatic-2018-02-12\.tar\.gz, into"):
        obtain("citeomatic-dblp", cache)
    assert visible(cache / "published" / "citeomatic-dblp") == []
