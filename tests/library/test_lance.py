"""A library in LanceDB answers like one in memory, and is changed, damaged and used like one."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from citerec.base.checksums import CHECKED
from citerec.base.errors import InputError
from citerec.formats.bibliography.paper import LibraryPaper
from citerec.library.ask.question import Filters
from citerec.library.ask.recommender import Recommender
from citerec.library.papers.library import Library
from citerec.tests.conftest import Run
from citerec.tests.library.conftest import papers_of
from citerec.tests.library.editor.client import Editor
from citerec.tests.library.editor.test_language_server import EXPECTED
from citerec.tests.library.editor.test_language_server import SENTENCE as RANKING
from citerec.tests.library.evidence.test_library import BUILD, SENTENCE, write_bibliography
from citerec.tests.library.test_instructions import QUESTIONS, SOURCE

pytest.importorskip("lancedb")


@pytest.fixture
def run(command: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs commands in a folder with a library in LanceDB, `mine`, and one in memory, `memory`."""
    monkeypatch.chdir(tmp_path)
    for name, storage in (("mine", "lance"), ("memory", "memory")):
        code, _, err = command(
            "build", f"library={name}", f"source={SOURCE}", f"storage={storage}", "model=static"
        )
        assert code == 0, err
    return command


def ids(recommender: Recommender, question: str, **options: object) -> list[str]:
    return [paper.id for paper in recommender.recommend(question, **options)]  # type: ignore[arg-type]


def test_it_answers_like_a_library_in_memory(run: Run) -> None:
    lance, memory = Recommender.open("mine"), Recommender.open("memory")
    assert len(lance.library) == len(memory.library)
    assert sorted(papers_of(lance.library)) == sorted(papers_of(memory.library))
    for question in (*QUESTIONS, "kingma2015adam"):
        assert ids(lance, question)[:3] == ids(memory, question)[:3]
        assert len({*ids(lance, question)} & {*ids(memory, question)}) >= 8
    for words in ("kingma 2015", "adam optimization", "lucene", "jimmy ba", "learning representations 2015"):
        assert lance.search(words)[:1] == memory.search(words)[:1]
    assert {paper.year for paper in lance.search("2017")} == {2017} and not lance.lacking(
        "ba", lance.search("ba")
    )
    paper = lance.search("kingma adam")[0]
    first = ids(lance, QUESTIONS[0])[0]
    assert first not in ids(lance, QUESTIONS[0], filters=Filters(exclude=[first]))
    assert ids(lance, QUESTIONS[0], filters=Filters(only=[first])) == [first]
    years = Filters(years=f"{paper.year}-{paper.year}")
    found = lance.recommend(QUESTIONS[1], filters=years)
    assert found and {one.year for one in found} == {paper.year}
    with pytest.raises(InputError, match="only=nobody: no paper of the library has this id or key"):
        ids(lance, QUESTIONS[0], filters=Filters(only=["nobody"]))


def test_it_is_changed(run: Run, tmp_path: Path) -> None:
    before = len(Library.open("mine"))
    (tmp_path / "new.bib").write_text(
        "@article{spade, title={Gardening with spades}, author={Lee, Ann}, year={2020}}\n"
    )
    assert "1 added, 0 completed" in run("add", "mine", "source=new.bib")[1]
    open_before = Recommender.open("mine")
    record = '{"title": "Gardening with spades", "authors": ["Ann Lee"], "year": 2020, "doi": "10.1000/2"}\n'
    (tmp_path / "more.jsonl").write_text(record)
    assert "0 added, 1 completed" in run("add", "mine", "source=more.jsonl")[1]
    assert open_before.search("gardening spades")[0].doi == "10.1000/2", "an open library follows"
    library = Library.open("mine")
    assert len(library) == before + 1 and library.by_id("key:spade").doi == "10.1000/2"
    assert ids(Recommender.open("mine"), "Spades are for gardening [CITE].")[0] == "key:spade"
    for year in (1999, 2001, 2003):
        other = f"@book{{spade, title={{Peat and {year * 7}}}, author={{Roe, Bo}}, year={{{year}}}}}\n"
        (tmp_path / f"{year}.bib").write_text(other)
        assert "1 added, 0 completed" in run("add", "mine", f"source={year}.bib")[1]
    spades = {paper.id: paper.year for paper in Library.open("mine").papers() if paper.key == "spade"}
    assert spades == {"key:spade": 2020, "key:spade-2": 1999, "key:spade-3": 2001, "key:spade-4": 2003}
    assert "3 removed" in run("remove", "mine", "id=[key:spade-2,key:spade-3,key:spade-4]")[1]
    assert "1 removed" in run("remove", "mine", "id=[spade]")[1]
    assert len(Library.open("mine")) == before and Library.open("mine").row("spade") is None
    assert "no damage" in run("verify", "mine")[1]
    code, _, err = run("update", "mine")
    assert code == 2 and "is kept in LanceDB (storage=lance), which this cannot use" in err


def test_drafts_and_checks_use_it(run: Run, tmp_path: Path) -> None:
    (tmp_path / "refs.bib").write_text(
        "@misc{k, title={Adam: A method for stochastic optimization}, author={Kingma, D.}}\n"
    )
    (tmp_path / "draft.tex").write_text(
        "\\title{T}\nAdam \\cite{k} is an optimiser \\cite{?}.\n\\bibliography{refs}\n"
    )
    for command in ("draft", "check"):
        options = command, "tex=draft.tex", "format=json"
        answers = [run(*options, f"library={name}")[:2] for name in ("mine", "memory")]
        assert answers[0][0] == answers[1][0]
        if command == "check":
            assert json.loads(answers[0][1]) == json.loads(answers[1][1])
        else:
            found = [json.loads(out)["places"][0]["recommendations"][:3] for _, out in answers]
            assert [paper["id"] for paper in found[0]] == [paper["id"] for paper in found[1]]


def test_damage_is_one_line(run: Run) -> None:
    folder = Library.open("mine").folder
    files = [file for file in folder.rglob("*") if file.is_file() and file.suffix in (".lance", ".idx")]
    assert files
    for file in sorted({file.suffix + file.parent.parent.name: file for file in files}.values()):
        content = file.read_bytes()
        file.write_bytes(content[: len(content) // 2] + b"damage" + content[len(content) // 2 + 6 :])
        code, out, err = run("ask", "mine", QUESTIONS[0])
        assert (code, out, err.count("\n")) == (2, "", 1), (file, err)
        assert err.startswith("error: mine: damaged library (") and "citerec build library=mine" in err
        file.write_bytes(content)
    assert run("ask", "mine", QUESTIONS[0])[0] == 0


def test_a_record_that_changed_is_noticed_when_it_is_read(run: Run) -> None:
    """Also where no time of a file tells of it, as on a failing disk."""
    folder = Library.open("mine").folder
    data = max(folder.glob("lance/papers.lance/data/*.lance"), key=lambda file: file.stat().st_size)
    content = data.read_bytes()
    place = content.index(b"Kingma")
    stat = data.stat()
    data.write_bytes(content[:place] + b"Kongma" + content[place + 6 :])
    os.utime(data, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert (folder / CHECKED).exists()
    with pytest.raises(InputError, match=r"damaged \(the record of row"):
        list(Library.open("mine").papers())


def test_what_it_cannot_is_said(run: Run, tmp_path: Path) -> None:
    code, _, err = run("build", "library=other", f"source={SOURCE}", "storage=lance", "model=bm25")
    assert code == 2 and "storage=lance needs a model with vectors" in err
    assert not (tmp_path / "other").exists()
    assert isinstance(papers_of(Library.open("mine"))[0], LibraryPaper)


def test_full_texts_are_its_evidence(command: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_bibliography(tmp_path)
    code, out, err = command(*BUILD, "storage=lance")
    assert code == 0 and "2 PDFs read; 2 abstracts filled in" in out, err
    recommender = Recommender.open("mine")
    found = {paper.key: paper for paper in recommender.recommend(f"{SENTENCE} [CITE].", k=2)}
    assert (paper := found["made1"]).evidence.place is not None
    assert SENTENCE in paper.evidence.place.passage and paper.evidence.place.section == "3 Method"
    assert recommender.passages(SENTENCE, "made1")[1][0][1].passage == paper.evidence.place.passage
    assert command("remove", "mine", "id=[made1]")[0] == 0
    with pytest.raises(InputError, match="key=made1: no paper"):
        Recommender.open("mine").passages(SENTENCE, "made1")


def test_an_editor_uses_it(run: Run, tmp_path: Path) -> None:
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    (workspace / "refs.bib").write_text("@misc{own, title={Adam: A method for stochastic optimization}}\n")
    text = f"\\title{{Ranking}}\n\\bibliography{{refs}}\nSGD \\cite{{own}}.\n\n{RANKING} \\cite{{"
    with Editor(Path("mine"), workspace) as editor:
        uri = editor.open(workspace / "paper.tex", text, "latex")
        first, *_ = editor.complete(uri, len(text))
        assert first.detail == EXPECTED
        editor.accept(uri, first)
        assert EXPECTED in (workspace / "refs.bib").read_text()
