"""reproduce/writing.py over a small history."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from citerec.tests.library.benchmark.test_drafts import git

ROOT = Path(__file__).parents[3]
ENTRY = "@article{%s, title = {%s}, author = {Lee, Ann}, year = {2001}}\n"
TITLES = {"tides": "Tides of the moon", "salt": "Salt marshes in winter", "moss": "Moss on old walls"}


@pytest.mark.slow
def test_a_citation_is_asked_with_what_was_there_before(tmp_path: Path) -> None:
    work, folder = tmp_path / "work", tmp_path / "ranks"
    repository = folder / "a+b" / "repo"
    work.mkdir()

    def commit(text: str, keys: list[str]) -> str:
        (work / "paper.tex").write_text(f"\\title{{Coasts}}\\begin{{document}}{text}\\end{{document}}")
        (work / "refs.bib").write_text("".join(ENTRY % (key, TITLES[key]) for key in keys))
        for arguments in (["init"], ["add", "."], ["commit", "-m", "x"]):
            git(work, *arguments)
        return git(work, "rev-parse", "HEAD")

    first = "The moon draws the tides \\cite{tides}."
    commit(first, ["tides", "salt"])
    commit(f"{first} Plants of salt marshes rest in winter \\cite{{salt}}.", ["tides", "salt"])
    last = commit(
        f"{first} Plants of salt marshes rest in winter \\cite{{salt}}. Moss grows on walls \\cite{{moss}}.",
        ["tides", "salt", "moss"],
    )
    subprocess.run(["git", "clone", "-q", "--bare", str(work), str(repository)], check=True)
    listed = {"repository": "https://x.org/a/b", "commit": last, "main": "paper.tex", "bib": ["refs.bib"]}
    (tmp_path / "list.yaml").write_text(yaml.safe_dump([listed]))
    command = [
        sys.executable,
        str(ROOT / "reproduce" / "writing.py"),
        str(tmp_path / "list.yaml"),
        str(folder),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    ranks = json.loads((folder / "a+b.json").read_text())
    assert sorted(rank["there"] for rank in ranks) == [0, 1], "salt was in the .bib file, moss came later"
    assert all(rank["bm25"] and rank["ask"] == rank["draft"] == 1 for rank in ranks)
    assert "1 drafts, 2 citations" in done.stdout
    assert "| all | 2 | draft | 1.000 " in done.stdout
