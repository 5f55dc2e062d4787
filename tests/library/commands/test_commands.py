"""The commands build, add, remove, update and info on the command line."""

from __future__ import annotations

import io
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
import xxhash

from citerec.base.errors import InputError
from citerec.library import MANIFEST
from citerec.library.ask.recommender import Recommender
from citerec.library.papers.library import Library
from citerec.library.papers.models import BUILT_IN
from citerec.recommend import with_library
from citerec.tests.conftest import Run
from citerec.tests.library.conftest import entry, papers_of

LEFT = "1 left out (removed by hand)"


@pytest.fixture
def run(command: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    """Runs `citerec COMMAND library=mine ...`: (exit code, stdout, stderr)."""
    monkeypatch.chdir(tmp_path)

    def run_(name: str, *arguments: str) -> tuple[int, str, str]:
        return command(name, "library=mine", *arguments)

    return run_


@pytest.fixture
def bib(run: Run, tmp_path: Path) -> Path:
    """The source file of a library of three papers."""
    file = tmp_path / "a.bib"
    file.write_text(
        entry("one", "Parsing trees", year=2001, abstract="Trees are parsed.", groups="Thesis")
        + entry("two", "Speech", year=2002, doi="10.1000/two")
        + entry("three", "Graphs", year=2003)
    )
    code, out, _ = run("build", "source=a.bib", "model=bm25")
    assert code == 0 and out.startswith("mine: 3 papers, 0 duplicates merged, in ")
    return file


def test_what_is_merged_is_listed_and_can_be_kept_apart(run: Run, tmp_path: Path) -> None:
    long = "Peat layers under the moorland of the north"
    (tmp_path / "a.bib").write_text(
        entry("moss2020", long, year=2020, ids="oldpeat")
        + entry("moss2020a", long, year=2020, doi="10.1000/moss")
        + entry("fern", "Ferns")
    )
    options = ["source=a.bib", "model=bm25"]
    code, out, _ = run("build", *options)
    assert code == 0 and "1 duplicate merged" in out
    assert f"  moss2020a (2020) is moss2020 (2020): {long}\n" in out and "separate=KEY" in out
    listed = run("info", "merged=true")[1]
    assert listed == f"moss2020 (2020): {long}: also doi:10.1000/moss, moss2020a\n"
    code, out, _ = run("build", *options, "overwrite=true", "separate=moss2020a")
    assert code == 0 and "0 duplicates merged" in out
    assert "3 papers" in run("add", "source=a.bib")[1], "nor are they when they are added again"
    assert "3 papers" in run("update")[1] and run("info", "merged=true")[1] == ""
    (tmp_path / "a.bib").write_text((tmp_path / "a.bib").read_text().replace("Ferns", "Ferns of Rome"))
    assert "1 replaced; 3 papers" in run("update")[1]


def papers() -> dict[str, str]:
    return {paper.id: paper.title for paper in papers_of(Library.open("mine"))}


def test_info(bib: Path, run: Run) -> None:
    code, out, _ = run("info")
    lines = dict(line.split(maxsplit=1) for line in out.splitlines()[1:])
    assert code == 0 and lines["papers"] == "3, 1 with an abstract"
    assert (lines["years"], lines["model"], lines["sources"]) == ("2001 to 2003", "bm25", str(bib))
    assert lines["collections"] == "Thesis" and lines["generation"].startswith("1, written 20")


def test_unknown_papers_cannot_be_excluded(bib: Path, run: Run) -> None:
    line = "error: exclude=nokey: no paper of the library has this id or key\n"
    assert run("ask", "text=trees", "exclude=[one,nokey]")[::2] == (2, line)
    assert run("ask", "text=trees", "exclude=[one]", "format=cite", "k=1")[0] == 0


def test_a_model_of_other_words_is_refused(bib: Path, run: Run) -> None:
    shutil.copytree(BUILT_IN, "model")
    about = Path("model/static/about.json")
    about.write_text(
        json.dumps(json.loads(about.read_text(encoding="utf-8")) | {"tokenizer": "reference"}),
        encoding="utf-8",
    )
    code, _, err = run("build", "source=a.bib", "model=model", "overwrite=true")
    assert code == 2 and "model: was trained on texts split into words in another way" in err


def test_two_papers_with_one_key(bib: Path, run: Run) -> None:
    bib.with_name("b.bib").write_text(entry("one", "Trees of graphs") + entry("O'Neil(1)", "Trees and seas"))
    run("add", "source=b.bib")
    (asked, ids), line = ("text=trees", "key:one, key:one-2"), "error: id=one: several papers have this key; "
    assert run("ask", asked, "only=one", "format=cite")[1] in ("\\cite{one,one-1}\n", "\\cite{one-1,one}\n")
    assert run("ask", asked, "only=one", "format=bibtex")[1].count("@article{one-1,") == 1
    assert run("ask", asked, "exclude=one", "format=markdown", "k=1")[1] == "[@{O'Neil(1)}]\n"
    assert run("remove", "id=one")[::2] == (2, f"{line}give one of their ids: {ids}\n")


def test_search(bib: Path, run: Run) -> None:
    code, out, err = run("search", "pars", "2001", "format=cite")
    assert (code, out, err) == (0, "\\cite{one}\n", "")
    assert run("search", "pars 2001")[1] == "1 Parsing trees\n  2001 · one\n"
    [found] = json.loads(run("search", "speech", "format=json", "k=2")[1])
    assert (found["id"], found["year"]) == ("doi:10.1000/two", 2002)
    assert run("search", "nothing")[1:] == ("", "mine: nothing has “nothing”\n")
    assert run("search", "format=json")[2].startswith(
        "error: words is required, as in words=kingma 2015 adam"
    )


@pytest.mark.slow
def test_a_writer_reads_no_words_of_ours(bib: Path, tmp_path: Path) -> None:
    """In a process of its own, since tests set up logging."""
    for command in ("build source=*.bib", "update", "ask trees k=1"):
        name, *options = command.split()
        arguments = [sys.executable, "-m", "citerec", name, "library=own", *options]
        done = subprocess.run(arguments, cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0 and done.stderr == ""
        assert name == "ask" or done.stdout.startswith("own: ")
        assert all(line == line.rstrip() for line in done.stdout.splitlines())
        assert not re.search("context|token|corpus", done.stdout)


def test_add(bib: Path, run: Run) -> None:
    more = bib.with_name("more.bib")
    more.write_text(
        entry("zwei", "Speech recognition", doi="10.1000/two", abstract="Sound.") + entry("four", "Poems")
    )
    _, out, _ = run("add", "source=more.bib")
    assert out == "mine: 1 added, 1 completed; 4 papers\n"
    library = Library.open("mine")
    completed = library.paper(library.row("zwei") or 0)
    fields = (completed.id, completed.key, completed.title, completed.abstract)
    assert fields == ("doi:10.1000/two", "two", "Speech", "Sound.")
    assert [file.path for file in library.manifest.sources] == [str(bib), str(more)]
    assert run("add", "source=more.bib")[1] == "mine: nothing new; 4 papers\n"
    assert Library.open("mine").manifest.generation == 2
    assert [found.key for found in Recommender.open("mine").recommend("Poems", k=1)] == ["four"]


def test_adding_an_edited_source_leaves_its_other_changes_to_update(bib: Path, run: Run) -> None:
    bib.write_text(entry("one", "Parsing trees", year=2001) + entry("three", "Graph theory", year=2003))
    _, out, err = run("add", "source=a.bib")
    shared = "keys of several papers, numbered in exports: three\n"
    assert out == f"mine: 1 added, 0 completed; 4 papers\n{shared}" and f"{bib}: was a source already;" in err
    assert run("update", "force=true")[1] == "mine: 0 added, 2 removed, 2 replaced; 2 papers\n"
    assert papers() == {"key:one": "Parsing trees", "key:three": "Graph theory"}
    assert run("add", "source=a.bib")[1:] == ("mine: nothing new; 2 papers\n", "")


def test_remove_and_update(bib: Path, run: Run) -> None:
    assert run("remove", "id=[one,doi:10.1000/two]")[1] == "mine: 2 removed; 1 paper\n"
    assert papers() == {"key:three": "Graphs"}
    assert run("remove", "key:three")[2] == "error: mine: no paper would be left; delete the folder instead\n"
    assert run("update")[1] == "mine: nothing has changed; 1 paper\n"
    bib.write_text(
        entry("one", "Parsing trees", year=2001) + entry("three", "Graphs again") + entry("four", "Poems"),
        encoding="utf-8",
    )
    assert run("update")[1] == f"mine: 1 added, 0 removed, 1 replaced, {LEFT}; 2 papers\n"
    assert papers() == {"key:three": "Graphs again", "key:four": "Poems"}
    bib.write_text(entry("four", "Poems") + "\n", encoding="utf-8")
    assert run("update", "force=true")[1] == "mine: 0 added, 1 removed, 0 replaced; 1 paper\n"
    bib.write_text(entry("four", "Poems"), encoding="utf-8")
    assert run("update")[1] == "mine: nothing has changed; 1 paper\n"
    bib.write_text(entry("four", "Poems") + entry("one", "Parsing trees", year=2001), encoding="utf-8")
    assert run("add", "source=a.bib")[1] == "mine: 1 added, 0 completed; 2 papers\n"  # despite its removal
    assert Library.open("mine").manifest.removed == ["doi:10.1000/two"]
    code, _, err = run("remove", "id=[one,four]")
    assert (code, err) == (2, "error: mine: no paper would be left; delete the folder instead\n")


def test_works_stay_away_and_their_keys_may_be_used_again(bib: Path, run: Run) -> None:
    run("remove", "id=[one,three]")
    entries = [entry("one", "Trees of Rome", year=2001), entry("two", "Speech", year=2002, doi="10.1000/two")]
    bib.write_text("".join([*entries, entry("three", "Graphs", year=2003, doi="10.1000/three")]))
    assert run("update")[1] == f"mine: 1 added, 0 removed, 0 replaced, {LEFT}; 2 papers\n"
    assert papers() == {"doi:10.1000/two": "Speech", "key:one": "Trees of Rome"}
    assert f"merged, {LEFT}, in" in run("build", "overwrite=true")[1]


def test_in_libraries_of_before_ids_alone_tell_what_was_removed(bib: Path, run: Run) -> None:
    run("remove", "id=one")
    content = json.loads(Path("mine", MANIFEST).read_text())
    del content["removed_works"]
    content["checksum"] = xxhash.xxh3_64_hexdigest(msgspec.json.encode(content | {"checksum": ""}))
    Path("mine", MANIFEST).write_text(json.dumps(content))
    bib.write_text(bib.read_text() + "\n")
    assert run("update")[1] == f"mine: nothing has changed, {LEFT}; 2 papers\n"


def test_what_resembles_a_removed_paper_by_now_stays(bib: Path, run: Run) -> None:
    bib.write_text(entry("a", "Peat") + entry("b", "Peat", year=2001) + entry("c", "Ferns"))
    assert run("build", "source=a.bib", "model=bm25", "overwrite=true")[0] == 0
    assert run("remove", "id=b")[1] == "mine: 1 removed; 2 papers\n"
    bib.write_text(entry("a", "Peat", year=2001) + entry("c", "Ferns"))
    assert run("update")[1] == "mine: 0 added, 0 removed, 1 replaced; 2 papers\n"


def test_a_source_that_lost_many_papers_needs_force(bib: Path, run: Run) -> None:
    entries = [entry(f"k{number}", f"Title {number}", year=2000 + number) for number in range(10)]
    more = bib.with_name("more.bib")
    more.write_text("".join(entries))
    run("add", "source=more.bib")
    more.write_text("".join(entries[:8]))
    assert run("update")[1] == "mine: 0 added, 2 removed, 0 replaced; 11 papers\n"
    more.write_text("".join(entries[:2]) + "@article{k3, ti")
    line = (
        f"error: mine: {{}} of 11 papers would be removed, since {more} changed; check that it is complete, "
    )
    line += "then confirm with force=true\n"
    assert run("update")[::2] == (2, line.format(6))
    assert run("remove", "source=a.bib")[::2] == (2, line.format(9))
    assert len(papers()) == 11 and Library.open("mine").manifest.sources[0].path == str(bib)
    assert run("update", "force=true")[1] == "mine: 0 added, 6 removed, 0 replaced; 5 papers\n"
    assert run("remove", "source=more.bib")[1] == "mine: 0 added, 2 removed, 0 replaced; 3 papers\n"


def test_a_library_built_again_from_sources_that_lost_many_papers_needs_force(bib: Path, run: Run) -> None:
    entries = [entry(f"k{number}", f"Title {number}", year=2000 + number) for number in range(10)]
    bib.write_text("".join(entries), encoding="utf-8")
    assert run("build", "source=a.bib", "overwrite=true", "model=bm25")[0] == 0
    bib.write_text("".join(entries[:3]) + "@article{k3, ti", encoding="utf-8")
    line = f"error: mine: 7 of 10 papers would be removed, since {bib} changed; check that it is complete, "
    assert run("build", "overwrite=true")[::2] == (2, line + "then confirm with force=true\n")
    assert len(papers()) == 10
    assert run("build", "overwrite=true", "force=true")[0] == 0 and len(papers()) == 3
    inside = Library.open("mine").folder / "own.bib"
    inside.write_text(entries[0])
    line = f"error: source={inside.resolve()}: is a file of the library that it replaces; copy it elsewhere\n"
    assert run("build", f"source={inside}", "overwrite=true")[::2] == (2, line)


def test_removing_a_file_removes_papers_without_another_source(bib: Path, run: Run) -> None:
    more = bib.with_name("more.bib")
    more.write_text(entry("two", "Speech", doi="10.1000/two") + entry("four", "Poems"))
    run("add", "source=more.bib")
    bib.unlink()
    code, _, err = run("update")
    assert code == 2 and f"remove its papers with citerec remove source={bib}" in err
    assert run("remove", "source=a.bib")[1] == "mine: 0 added, 2 removed, 1 replaced; 2 papers\n"
    assert papers() == {"doi:10.1000/two": "Speech", "key:four": "Poems"}
    assert run("update")[1] == "mine: nothing has changed; 2 papers\n"
    for arguments, line in (
        (["source=b.bib"], f"source=b.bib: is not a source of mine; choose from {more}"),
        (["source=more.bib"], "mine: no paper would be left; delete the folder instead"),
        (["id=four", "source=more.bib"], "remove: give either id=[...] (papers) or source=[...]"),
        ([], "remove: give either id=[...] (papers) or source=[...]"),
    ):
        code, _, err = run("remove", *arguments)
        assert code == 2 and line in err
    assert len(papers()) == 2


def test_folders_and_patterns_are_searched_again(run: Run, tmp_path: Path) -> None:
    folder = tmp_path / "refs"
    folder.mkdir()
    (folder / "a.bib").write_text(entry("one", "Parsing trees") + entry("two", "Speech"))
    (tmp_path / "x1.bib").write_text(entry("three", "Graphs"))
    assert run("build", "source=[refs,x*.bib]", "model=bm25")[0] == 0
    shutil.copytree("mine", folder / "library")
    (folder / "b.bib").write_text(entry("four", "Poems"))
    (tmp_path / "x2.bib").write_text(entry("five", "Songs"))
    assert run("update")[1] == "mine: 2 added, 0 removed, 0 replaced; 5 papers\n"
    (tmp_path / "x1.bib").unlink()
    assert run("update")[1] == "mine: 0 added, 1 removed, 0 replaced; 4 papers\n"
    assert "source=refs/b.bib: is not a source of mine; choose from" in run("remove", "source=refs/b.bib")[2]
    assert run("remove", "source=refs")[1] == "mine: 0 added, 3 removed, 0 replaced; 1 paper\n"
    assert Library.open("mine").manifest.named == [str(tmp_path / "x*.bib")]


def test_files_in_a_folder_that_are_not_read_are_named(run: Run, tmp_path: Path) -> None:
    (tmp_path / "refs").mkdir()
    (tmp_path / "refs" / "A.BIB").write_text(entry("one", "Parsing trees"))
    (tmp_path / "refs" / "savedrecs.txt").write_text("PT J\nTI Speech\nER\n")
    (tmp_path / "refs" / "notes.txt").write_text("Buy bread.\n")
    out = run("build", "source=refs", "model=bm25")[1]
    assert out.startswith("mine: 1 paper,") and out.count(": is not read with its folder") == 1
    assert "refs/savedrecs.txt: is not read with its folder, only if source= names it\n" in out


def test_files_without_papers_in_a_folder_are_left_out_with_a_line(
    run: Run, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "thesis/.vscode").mkdir(parents=True)
    (tmp_path / "thesis/refs.bib").write_text(entry("one", "Parsing trees", year=2001))
    for name in ("settings.json", ".vscode/settings.json"):
        (tmp_path / "thesis" / name).write_text('{"editor.wordWrap": "on"}')
    (tmp_path / "thesis/other.json").write_text('// of an editor\n{"a": 1}')
    (tmp_path / "thesis/empty.bib").touch()
    assert run("build", "source=thesis", "model=bm25")[0] == 0
    assert [line.getMessage().endswith("; the file is left out") for line in caplog.records] == [True] * 3
    assert "nothing has changed" in run("update")[1]
    (tmp_path / "thesis/more.bib").write_text(entry("two", "Speech"))
    assert "1 added" in run("update")[1]
    (tmp_path / "thesis/more.bib").write_text("")
    assert "more.bib: is empty; export it again\n" in run("update")[2]
    code, _, err = run("build", "source=thesis/settings.json", "overwrite=true")
    assert code == 2 and "settings.json: has no usable paper" in err


def test_records_without_keys_are_merged_in_words(run: Run, tmp_path: Path) -> None:
    (tmp_path / "a.ris").write_text("TY  - JOUR\nTI  - Speech\nDO  - 10.1000/a\nER  - \n" * 2)
    assert "  doi:10.1000/a is there already: Speech\n" in run("build", "source=a.ris", "model=bm25")[1]
    assert run("info", "merged=true")[1:] == ("", "mine: no record had another key or id\n")


def test_what_programs_start_says_so_in_a_terminal(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True)
    for name, page in (("lsp", "editors"), ("mcp", "server")):
        assert run(name)[2].endswith(f" starts this command (docs/write/{page}.md)\n")


def test_a_question_on_stdin_is_read_like_a_draft(
    bib: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = io.BytesIO("Bäume sind trees that are parsed [CITE].".encode("cp1252"))
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(content, "utf-8"))
    assert run("ask", "-", "k=1", "format=cite")[1] == "\\cite{one}\n"
    assert "?ume [CITE]: the text is not UTF-8; give it in UTF-8\n" in run("ask", "B\udce4ume [CITE]")[2]
    with pytest.raises(InputError, match="has half of a pair of surrogates"):
        Recommender.open("mine").recommend("B\udce4ume [CITE]")


def test_broken_entries_are_skipped_and_reported(
    run: Run, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    entries = ("@article{open, ={x\n}\n", entry("good", "Good"), "@misc{bare, year=1}")
    (tmp_path / "a.bib").write_text("".join(entries))
    code, out, _ = run("build", "source=a.bib", "model=bm25")
    assert code == 0 and "1 paper," in out
    assert f"{tmp_path}/a.bib: 2 records skipped or read only in part\n" in caplog.text
    assert "a.bib, line 1 (open): cannot be parsed" in caplog.text
    assert "(bare): has neither title nor" in caplog.text


def test_a_library_is_built_again_from_what_it_knows(bib: Path, run: Run) -> None:
    everything = papers()
    assert len(everything) == 3 and run("build", "overwrite=true")[0] == 0
    Path("bm25").mkdir()  # which is not meant
    assert run("build", "source=a.bib", "model=bm25", "overwrite=true")[0] == 0
    library = Library.open("mine")
    assert papers() == everything and library.manifest.model == "bm25"
    run("remove", "id=one")
    assert run("build", "overwrite=true")[1].startswith("mine: 2 papers, ")
    assert papers() == {id: title for id, title in everything.items() if id != "key:one"}
    assert run("update")[1] == "mine: nothing has changed; 2 papers\n"
    assert run("add", "source=a.bib")[1] == "mine: 1 added, 0 completed; 3 papers\n"
    assert papers() == everything
    assert run("build", "overwrite=true")[0] == 0 and papers() == everything
    library = Library.open("mine")
    (library.folder / "records.values.npy").write_bytes(b"")
    code, _, err = run("info")
    assert code == 2 and err.endswith("build it again: citerec build library=mine overwrite=true\n")
    assert run("build", "overwrite=true")[0] == 0 and papers() == everything
    bib.unlink()
    line = f"source={bib}: no such file, but the library was built from it; restore it, or remove its papers"
    assert line in run("build", "overwrite=true")[2]


@pytest.mark.parametrize(
    ("content", "arguments", "line"),
    [
        ("", "source=a.bib", "a.bib: is empty"),
        ("@comment{x}", "source=a.bib", "a.bib: has no entries"),
        ("@misc{a, year=1}", "source=a.bib", "a.bib: has no usable paper: "),
        ("x", "source=b.bib", "source=b.bib: no such file"),
        ("x", "source=a.bib model=nowhere", "model=nowhere: no such folder"),
    ],
)
def test_bad_input_creates_nothing(run: Run, tmp_path: Path, content: str, arguments: str, line: str) -> None:
    (tmp_path / "a.bib").write_text(content)
    code, out, err = run("build", *arguments.split())
    assert (code, out) == (2, "") and line in err and err.count("\n") == 1
    assert {file.name for file in tmp_path.iterdir()} == {"a.bib"}


@pytest.mark.parametrize(
    ("arguments", "read"),
    [
        ("draft mine a.tex k=3", "library=mine a.tex k=3"),
        ("draft a.tex mine k=3", "library=mine a.tex k=3"),
        ("check a.md mine", "library=mine a.md"),
        ("check a.md", "a.md"),
        ("ask words mine", "library=mine words"),
        ("draft a.tex", "library is required; found mine, a.bib; go on with: citerec draft mine a.tex"),
        ("ask mine a.tex", "a.tex is a draft; its missing citations: citerec draft LIBRARY a.tex"),
        ("ask libary=mine words", "libary: there is no such option; did you mean library?"),
        ("ask --libary=mine words", "libary: there is no such option; did you mean library?"),
        ("ask --library=mine words", "--library=mine words"),
        ("ask --library a.bib words", "--library a.bib words"),
        ("draft a.lyx", "export it from LyX as LaTeX"),
        ("draft mine a.RTF k=3", "save it as .docx or .odt"),
        ("draft a.lyx mine", "export it from LyX as LaTeX"),
        ("ask a.lyx", "export it from LyX as LaTeX"),
        ("check a.bib", "a.bib"),
        ("build mine a.bib", "library=mine a.bib"),
        ("build a.bib library=mine", "a.bib library=mine"),
        ("ask nofile.bib words", "nofile.bib: no such file"),
        ("references a.bib", "a.bib"),
    ],
)
def test_files_are_told_by_their_suffix_and_options_by_the_nearest_name(
    arguments: str, read: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / MANIFEST).touch()
    (tmp_path / "a.tex").touch()
    (tmp_path / "a.bib").touch()
    monkeypatch.chdir(tmp_path)
    name, *options = arguments.split()
    try:
        assert " ".join(with_library(name, options)) == read
    except InputError as error:
        assert re.sub("a[.].*: drafts are read in .*; ", "", str(error)) == read
