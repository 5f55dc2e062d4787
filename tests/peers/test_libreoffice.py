"""Copies of drafts that LibreOffice opens and saves again: make test-peers, with soffice installed."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from citerec.formats.drafts.languages import language_of
from citerec.formats.drafts.office.language import Office
from citerec.tests.formats.drafts.documents import ITEM, URI, field, paragraph, write, zotero_code

SOFFICE = shutil.which("soffice")
ITEMS = {"lee": {"id": "lee", "uris": [f"{URI}6"], "itemData": {**ITEM, "title": 'Trees & "others" <é>'}}}


def converted(path: Path, kind: str, folder: Path) -> Path:
    """Let LibreOffice open a document and save it as another."""
    profile = f"-env:UserInstallation=file://{folder}/profile"
    command = [str(SOFFICE), profile, "--headless", "--convert-to", kind, "--outdir", str(folder), str(path)]
    subprocess.run(command, check=True, capture_output=True, timeout=120)
    return folder / f"{path.stem}.{kind.partition(':')[0]}"


@pytest.mark.skipif(SOFFICE is None, reason="LibreOffice's soffice is not installed")
@pytest.mark.parametrize("suffix", [".docx", ".odt"])
@pytest.mark.slow
def test_libreoffice_keeps_the_citations(suffix: str, tmp_path: Path) -> None:
    """It shows their text, and its own copy has the same fields, if the format is the same."""
    document = paragraph(suffix, "On trees", level=0) + paragraph(suffix, "Introduction", level=1)
    cited = field(suffix, f" {zotero_code()} ", "(Lee)")
    document += paragraph(suffix, "Trees [CI", "TE] & ", cited, ", [@lee; @lee].")
    path, copy = write(tmp_path / f"a{suffix}", document), tmp_path / f"b{suffix}"
    language = language_of(suffix)
    assert isinstance(language, Office)
    text = language.text(path)
    places = [text.index(mark) for mark in ("[CITE]", "[@lee; @lee]")]
    edits = [(at, text.index("]", at) + 1, "[@lee; @lee]") for at in places]
    copy.write_bytes(language.written(path, edits, ITEMS, False))
    shown = converted(copy, "txt:Text (encoded):UTF8", tmp_path / "text").read_text("utf-8-sig")
    sentence = "Trees (Lee, 2020; Lee, 2020) & (Lee), (Lee, 2020; Lee, 2020)."
    assert shown.splitlines() == ["On trees", "Introduction", sentence]
    again = converted(copy, suffix[1:], tmp_path / "again")
    assert language.text(again) == language.text(copy)
    assert language.open(again).items == language.open(copy).items
