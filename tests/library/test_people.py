"""What five people typed, with the right answers: commands over the example's library."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from citerec.recommend import run
from citerec.tests.conftest import Run

LIBRARY = Path(__file__).parents[2] / "examples" / "library.bib"
VERSIONS = """
@misc{zhang_2017, title={Ageing of Spanish cheeses}, author={Zhang, Wei}, year=2017, eprint={1701.00001},
  archiveprefix={arXiv}, journal={arXiv preprint}}
@article{zhang_2021, title={Ageing of Spanish cheeses}, author={Zhang, Wei}, year=2021, journal={Cheeses}}
@misc{wu_2019, title={Tasting of Portuguese wines}, author={Wu, Al}, year=2019, eprint={1901.00001},
  archiveprefix={arXiv}, journal={arXiv preprint}}
@article{wu_2020, title={Tasting of Portuguese wines}, author={Wu, Al}, year=2020, journal={Wines},
  doi={10.1000/w.1}}
"""
NOTES = """Gradients are averaged by Adam in most networks.[^a] Words lose their suffixes by a few rules.[^b]

- A graph of small worlds is searched from layer to layer [@?]
- See cf. Adam by Kingma, p. 5 [@?]

[^a]: [@?].
[^b]: See [@?, p. 5]. It is old.
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("people")
    (place / "papers.bib").write_text(LIBRARY.read_text("utf-8") + VERSIONS)
    front = "---\nbibliography: papers.bib\n---\n\n"
    (place / "notes.md").write_text(f"{front}{NOTES}")
    run(["build", f"library={place / 'mine'}", f"source={place / 'papers.bib'}"])
    return place


@pytest.fixture(autouse=True)
def here(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)


def test_a_draft_with_notes_and_lists(command: Run) -> None:
    code, printed, _ = command("draft", "notes.md", "mine", "format=json")
    places = json.loads(printed)["places"]
    first = {place["sentence"]: place["recommendations"][0]["key"] for place in places}
    assert code == 0 and first == {
        "Gradients are averaged by Adam in most networks ([CITE]).": "kingma2015adam",
        "Words lose their suffixes by a few rules (See [CITE]; It is old).": "porter1980suffix",
        "A graph of small worlds is searched from layer to layer [CITE].": "malkov2020hnsw",
        "See cf. Adam by Kingma, p. 5 [CITE]": "kingma2015adam",
    }


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ["ask", "mine", "Vaswani wrote more. Suffixes are stripped by rules [CITE].", "k=1"],
            "porter1980suffix",
        ),
        (["ask", "mine", "Portuguese wines are tasted [CITE]", "k=1"], "Wu · 2020 · wu_2020 · Wines"),
        (["draft", "mine", "notes.md", "-k", "3"], "error: -k: write k=3"),
        (["draft", "notes.md"], "go on with: citerec draft mine notes.md"),
        (["search", "mine", "kigma", "2015"], "nothing has “kigma”; did you mean kingma?"),
        (["verify", "mine"], "mine: no damage; 62 papers"),
    ],
)
def test_commands_and_what_they_say(arguments: list[str], said: str, command: Run) -> None:
    code, printed, told = command(*arguments)
    assert said in printed + told and "static:" not in told
    assert code == (2 if said.startswith(("error:", "go on")) else 0)
