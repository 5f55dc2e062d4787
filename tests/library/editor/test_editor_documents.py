"""Documents of the language server: changes, positions, carets in any text, and which files are read."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lsprotocol import types

from citerec.formats.bibliography.paper import LibraryPaper
from citerec.formats.drafts.languages import languages
from citerec.library.editor import documents
from citerec.library.editor.documents import Document, citation_at, outline, sentence_end_at
from citerec.library.editor.features import Features
from citerec.library.papers.library import Library
from citerec.library.settings import LspSettings
from citerec.tests.datasets.conftest import write_files

ENCODINGS = {"utf-8": "utf-8", "utf-16": "utf-16-le", "utf-32": "utf-32-le"}
WRITTEN = [language for language in languages() if not language.holds_items]
"""Those of text editors."""
NAMES = [f"a{language.suffixes[0]}" for language in WRITTEN]
LETTERS = st.text(st.sampled_from("ab é漢😋\r\n\u2028\x0c"), max_size=12)
PIECES = ["\\cite{", "\\citep[", "[@", "#cite(<", "[cite:@", "[CITE]", "@?", "trees grow", "éa", "漢字", "😋"]
PIECES += ["TODO", "kim2020", "\\begin{verbatim}", "---\n", "\n\n", ". A", "\uf000", "\r\n", "\ud83d"]
MARKUP = st.lists(st.sampled_from(list("\\{}[]()<>@$%#*_`~-=+:;,.?!\"' \n\rab") + PIECES), max_size=30).map(
    "".join
)
PAPERS = [
    LibraryPaper("one", "kim2020", "Trees grow in forests", "Trees and other plants.", ("Ann Kim",), 2020),
    LibraryPaper("two", "key with / signs", "Graphs of trees", "Graphs have edges.", ("Bo Lee",), 2021),
]


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("library") / "papers"
    Library.create(path, PAPERS, model="bm25")
    return path


@pytest.fixture(scope="module")
def features(library: Path) -> Features:
    return Features(LspSettings(library=str(library)))


def show(features: Features, uri: str, text: str, encoding: str = "utf-16") -> Document:
    document = Document.open(uri, text, 1, "", encoding)
    features.forget(uri)
    features.documents[uri] = document
    return document


# Text and positions.


def split_lines(text: str) -> list[str]:
    """Lines with their ends, read sign by sign."""
    lines, start = [], 0
    for place, sign in enumerate(text):
        if sign == "\n" or (sign == "\r" and text[place + 1 : place + 2] != "\n"):
            lines.append(text[start : place + 1])
            start = place + 1
    return [*lines, text[start:]]


def units(text: str, encoding: str) -> int:
    width = {"utf-8": 1, "utf-16": 2, "utf-32": 4}[encoding]
    return len(text.encode(ENCODINGS[encoding])) // width


@given(LETTERS, st.sampled_from(list(ENCODINGS)))
def test_positions_of_all_offsets(text: str, encoding: str) -> None:
    document = Document.open("file:///a.tex", text, encoding=encoding)
    lines = split_lines(text)
    offset = 0
    for number, line in enumerate(lines):
        for column in range(len(line.rstrip("\r\n")) + 1):
            position = document.position(offset + column)
            assert position == types.Position(number, units(line[:column], encoding))
            assert document.offset(position) == offset + column
        end = offset + len(line.rstrip("\r\n"))
        assert document.offset(types.Position(number, 10_000)) == end
        offset += len(line)
    assert document.offset(types.Position(len(lines), 0)) == len(text)


@pytest.mark.parametrize(("encoding", "inside"), [("utf-8", (1, 2, 3)), ("utf-16", (1,))])
def test_positions_within_a_character(encoding: str, inside: Sequence[int]) -> None:
    document = Document.open("file:///a.tex", "x😋y\ud83d", encoding=encoding)
    assert [document.offset(types.Position(0, 1 + part)) for part in inside] == [1] * len(inside)


@given(LETTERS, st.lists(st.tuples(st.integers(0, 15), st.integers(0, 15), LETTERS), max_size=6))
def test_changes_are_those_of_a_string(text: str, changes: list[tuple[int, int, str]]) -> None:
    document = Document.open("file:///a.tex", text)
    for number, (one, two, new) in enumerate(changes):
        start, end = sorted((min(one, len(text)), min(two, len(text))))
        where = document.range(start, end)
        start, end = document.offset(where.start), document.offset(where.end)  # never between \r and \n
        document = document.changed(number, [types.TextDocumentContentChangePartial(where, new)])
        text = f"{text[:start]}{new}{text[end:]}"
        fresh = Document.open("file:///a.tex", text)
        assert document.text == text and document.starts.tolist() == fresh.starts.tolist()
    whole = document.changed(9, [types.TextDocumentContentChangeWholeDocument("new\n")])
    assert (whole.text, whole.starts.tolist(), whole.version) == ("new\n", [0, 4], 9)


# Any caret in any text.


@settings(max_examples=3 * settings().max_examples)
@given(MARKUP, st.integers(0, 200), st.sampled_from(NAMES), st.sampled_from(list(ENCODINGS)))
def test_any_caret_in_any_text(features: Features, text: str, caret: int, name: str, encoding: str) -> None:
    document = show(features, f"untitled:{name}", text, encoding)
    caret = min(caret, len(text))
    position = document.position(caret)
    caret = document.offset(position)
    found = features.complete(document, position)
    for item in found.items if found else ():
        assert isinstance(item.text_edit, types.TextEdit)
        where = item.text_edit.range
        assert document.offset(where.start) <= caret <= document.offset(where.end)
        assert where.start.line == where.end.line  # as editors require
        assert str(item.detail) in applied(document, [item.text_edit, *(item.additional_text_edits or ())])
    for action in features.actions(document, types.Range(position, position)) or ():
        edits = (action.edit and action.edit.changes and action.edit.changes[document.uri]) or ()
        keys = action.command.arguments[2:] if action.command and action.command.arguments else []
        if not edits:  # the entry is added to the .bib file by a command
            assert action.command and action.command.arguments
            continue
        assert any(str(key) in applied(document, edits) for key in keys)
    features.hover(document, position)
    features.definition(document, position)
    for one in features.diagnose(document):
        assert 0 <= document.offset(one.range.start) < document.offset(one.range.end) <= len(text)
    assert not features.messages


def applied(document: Document, edits: Sequence[Any]) -> str:
    """Apply edits that must not overlap."""
    text, done = document.text, len(document.text)
    spans = [(document.offset(one.range.start), document.offset(one.range.end), one) for one in edits]
    for start, end, one in sorted(spans, key=lambda span: span[:2], reverse=True):
        assert start <= end <= done
        text, done = text[:start] + one.new_text + text[end:], start
    return text


@given(MARKUP, st.sampled_from(WRITTEN))
def test_keys_are_where_they_are_said_to_be(text: str, language: Any) -> None:
    for key, start, end in outline(language, text).cited:
        assert text[start:end] == key and key.strip()


@pytest.mark.parametrize(
    ("name", "text", "key"),
    [
        ("a.typ", "Trees @", '#cite(label("x/y"))'),
        ("a.md", "Trees [@", "[@x/y"),
        ("a.org", "Trees [cite:@", "[cite:@x/y"),
        ("a.tex", "Trees \\cite{", "\\cite{x/y"),
    ],
)
def test_keys_with_signs(name: str, text: str, key: str, features: Features, tmp_path: Path) -> None:
    (tmp_path / "refs.bib").write_text("@misc{x/y, title={Graphs of trees}, author={Bo Lee}, year=2021}")
    sources = {"a.typ": '\n#bibliography("refs.bib")', "a.org": "\n#+bibliography: refs.bib"}
    sources["a.tex"] = "\n\\bibliography{refs}"
    document = show(features, (tmp_path / name).as_uri(), f"{text}{sources.get(name, '')}")
    found = features.complete(document, document.position(len(text)))
    assert found is not None
    item = next(item for item in found.items if item.detail == "x/y")
    assert isinstance(item.text_edit, types.TextEdit) and item.command is None
    assert key in applied(document, [item.text_edit, *(item.additional_text_edits or ())])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Trees grow on hills|. They die.", "Trees grow on hills|. They die."),
        ("Trees grow on hills.| They die.", "Trees grow on hills|. They die."),
        ("Trees grow on hills. | They die.", "Trees grow on hills|.  They die."),
        ("Trees grow on hills?|\nThey die.", "Trees grow on hills|?\nThey die."),
        ("Trees grow on hills.|\n\\section{More}", "Trees grow on hills|.\n\\section{More}"),
        ("Trees grow on hills.|\n\nMore", "Trees grow on hills|.\n\nMore"),
        ("As Lee et al.| show, trees grow.", None),
        ("Trees grow| on hills. They die.", None),
        ("Trees grow on hills|", None),
        ("% Trees grow on hills.|", None),
        ("e.g.|", None),
    ],
)
def test_ends_of_sentences(text: str, expected: str | None) -> None:
    document, caret = Document.open("file:///a.tex", text.replace("|", "")), text.index("|")
    end = sentence_end_at(document, caret)
    assert (end and f"{document.text[:end]}|{document.text[end:]}") == expected


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "piece",
    [
        *("\\cite{", "\\cite[", "[@", "@ ", "![](", "`a ", "`", "~", "$ ", "[cite:", "cite(<", "% ", "\\("),
        *("`\n", "<!--\n", "<script>\n", "<pre>\n"),
    ],
)
def test_adverse_texts_are_read_in_linear_time(piece: str, name: str) -> None:
    """Each would take a minute in quadratic time; the caret's own questions look at a part of the text."""
    document = Document.open(f"file:///{name}", piece * (30_000 // len(piece)))
    assert document.language is not None
    outline(document.language, document.text)
    citation_at(document, 15_000)
    sentence_end_at(document, 15_000)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.md", "```\n@no\n```\n~~~\n@no\n~~~\n[@a; @b\n\n[@c]\n\n---\nbibliography: x.bib\nt: '@'\n---\n"),
        ("a.org", ":NOTE:\ncite:no\n:END:\ncite:a [cite:@b\n\n] cite:c\n#+bibliography: x.bib"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("ends", ["\n", "\r\n"])
def test_lines_end_in_either_way(name: str, text: str, ends: str) -> None:
    document = Document.open(f"file:///{name}", text.replace("\n", ends))
    assert document.language is not None
    read = outline(document.language, document.text)
    assert sorted(key.key for key in read.cited) == [*"abc"] and [key.key for key in read.bibs] == ["x.bib"]
    assert all(document.text[start:end] == key for key, start, end in (*read.cited, *read.bibs))
    cited = citation_at(document, document.text.index("@b") + 2)
    assert cited is not None and cited[0].closing == "]", "the bracket of another paragraph closes nothing"


CODE = [("a.qmd", "```{r}\n@|\n```"), ("a.md", "Code `@|` here"), ("a.md", "\n    @|"),
        ("a.typ", "Raw `@|` text"), ("a.tex", "\\begin{verbatim}\n\\cite{|"), ("a.tex", "% \\cite{|"),
        ("a.org", "#+begin_src c\n\\cite{|\n#+end_src")]  # fmt: skip


@pytest.mark.parametrize(("name", "text"), CODE)
def test_code_and_comments_cite_nothing(name: str, text: str) -> None:
    for written in (text, "Trees grow.\n\n" * 400 + text):
        document = Document.open(f"file:///{name}", written.replace("|", ""))
        assert citation_at(document, written.index("|")) is None
    listed = "- Item\n\n" + "    Old trees grow slowly.\n\n" * 200 + "    Figs grow [@"
    assert citation_at(Document.open("file:///a.md", listed), len(listed)) is not None


@pytest.mark.parametrize(
    ("name", "opens", "closes", "cited"),
    [
        ("a.md", "```\n", "```\n", "[@a]"),
        ("a.typ", "```\n", "```\n", "@a"),
        ("a.tex", "\\begin{verbatim}\n", "\\end{verbatim}\n", "\\cite{a}"),
    ],
)
@pytest.mark.parametrize(("lines", "after", "ends"), [(400, 3, "\n"), (20, 90, "\r\n"), (90, 140, "\n")])
def test_code_before_a_caret_ends_where_it_ends(
    name: str, opens: str, closes: str, cited: str, lines: int, after: int, ends: str
) -> None:
    code, prose = "x = @y + 1\n" * lines, "Old trees grow slowly.\n" * after
    text = f"Early.\n\n{opens}{code}{closes}\n{prose}Figs grow {cited}.\n\n- More\n".replace("\n", ends)
    document, start = Document.open(f"file:///{name}", text), text.index(cited)
    key = documents.key_at(document, start + cited.index("a"))
    assert key is not None and key.key == "a" and document.language is not None
    mark, end = document.language.cite("\uf000"), start + len(cited)
    passage = documents.passage_at(document, document.language, start, end, mark)
    assert "Old trees grow slowly. Figs grow [TARGETCIT]" in passage.context and "x =" not in passage.context
    assert sentence_end_at(document, end) == end


# Files.


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Names of the files that are opened."""
    opened: list[str] = []
    AUDITED.append(opened)
    yield opened
    AUDITED.remove(opened)


AUDITED: list[list[str]] = []


def audit(event: str, given: tuple[Any, ...]) -> None:
    if event == "open" and isinstance(given[0], str | bytes):
        for opened in AUDITED:
            opened.append(os.fsdecode(given[0]))


sys.addaudithook(audit)

OUTSIDE = {
    "a.tex": "\\bibliography{/etc/passwd,../outside/refs,link,linked/refs,%s}",
    "b.tex": "%% !TEX root = ../outside/main.tex\n\\bibliography{../outside/refs}%s",
    "c.tex": "%% !TEX root = %s/main\nA chapter.",
    "a.md": "---\nbibliography: [../outside/refs.bib, link.bib, /etc/passwd, '%s/refs.bib']\n---\n",
    "b.md": "No bibliography, and a project elsewhere. %s",
    "a.typ": '#bibliography(("../outside/refs.bib", "link.bib", "%s/refs.bib"))',
    "a.org": "#+bibliography: ../outside/refs.bib\n#+bibliography: %s/refs.bib\n#+bibliography: link.bib",
}


@pytest.mark.parametrize("name", OUTSIDE)
def test_files_outside_of_the_workspace_are_never_read(
    name: str, features: Features, tmp_path: Path, read: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    outside, inside = tmp_path / "outside", tmp_path / "inside"
    outside.mkdir()
    inside.mkdir()
    (outside / "refs.bib").write_text("@misc{secret, title={A secret paper}, year=2020}")
    (outside / "main.tex").write_text("\\documentclass{a}\\begin{document}\\input{c}\\bibliography{refs}")
    (outside / "_quarto.yml").write_text("bibliography: refs.bib")
    (inside / "link.bib").symlink_to(outside / "refs.bib")
    (inside / "linked").symlink_to(outside)
    (inside / "_quarto.yml").symlink_to(outside / "_quarto.yml")
    read.clear()
    text = OUTSIDE[name] % outside + " Trees grow [@secret] \\cite{secret} @secret [cite:@secret]."
    monkeypatch.setattr(features, "folders", [inside.resolve()])
    document = show(features, (inside / name).as_uri(), text)
    features.read_main(document)
    features.diagnose(document)
    place = document.position(document.text.index("secret") + 2)
    assert features.hover(document, place) is None and features.definition(document, place) is None
    elsewhere = show(features, (outside / name).as_uri(), "\\bibliography{refs} \\cite{secret}")
    assert features.definition(elsewhere, elsewhere.position(28)) is None  # in no folder of the workspace
    assert not [file for file in read if "outside" in file or "passwd" in file or "link" in file]


PROJECTS = {
    "preamble": {
        "ch/one.tex": "\\cite{a} \\cite{b} \\cite{ghost}",
        "main.tex": "\\documentclass{mine}\\input{preamble}\\include{ch/one}",
        "preamble.tex": "\\addbibresource{one.bib}",
        "mine.cls": "\\addbibresource{two.bib}",
        "one.bib": "@misc{a, title={A paper}}",
        "two.bib": "@misc{b, title={Another}}",
    },
    "levels": {
        "ch/deep/a.tex": "\\cite{a} \\cite{ghost}",
        "ch/one.tex": "\\input{ch/deep/a}",
        "main.tex": "\\documentclass{a}\\include{ch/one}\\bibliography{refs}",
        "refs.bib": "@misc{x, title={A paper}, ids={a, b}}",
    },
    "quarto": {
        "ch/one.qmd": "---\ntitle: T\ntags: ['@x']\n---\n@a @Fig-x @dia-x [@ghost]",
        "_quarto.yml": "bibliography: refs.bib\ncrossref: {custom: [{key: dia}]}\nbook: {title: Trees}",
        "index.qmd": "# Preface",
        "refs.bib": "@misc{a, title={A paper}}",
    },
    "front matter": {
        "a.md": "---\nreferences: [{id: a, title: A paper}]\nnocite: '@b'\nbibliography: refs.json\n"
        "---\n@a @ghost",
        "refs.json": '[{"id": "b", "title": "Another"}]',
    },
}


@pytest.mark.parametrize("name", PROJECTS)
def test_keys_and_labels_of_a_project_are_known(
    name: str, features: Features, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_files(tmp_path, PROJECTS[name])
    file, text = next(iter(PROJECTS[name].items()))
    monkeypatch.setattr(features, "folders", [tmp_path.resolve()])
    document = show(features, (tmp_path / file).as_uri(), text)
    features.read_main(document)
    found = features.diagnose(document)
    place = document.position(re.search(r"(?<=[{@:<])a(?!\w)", text).start())  # type: ignore[union-attr]
    assert [(one.code, one.message.split()[0]) for one in found] == [("unknown", "ghost")]
    hover = features.hover(document, place)
    assert hover is not None and ("paper" in str(hover.contents) or "Lee" in str(hover.contents))


def test_a_work_with_identifiers_is_one_entry(features: Features, tmp_path: Path) -> None:
    works = [{"id": key, "title": f"A {key}", "DOI": f"10.1000/{key}", "PMID": f"1{row}"}
             for row, key in enumerate(("kelp", "moss", "peat"))]  # fmt: skip
    (tmp_path / "refs.json").write_text(json.dumps(works))
    text = "---\nbibliography: refs.json\n---\n@kelp @moss and @peat [@]"
    document = show(features, (tmp_path / "a.md").as_uri(), text)
    features.read_main(document)
    assert features.diagnose(document) == []
    completed = features.complete(document, document.position(len(text) - 1))
    assert completed is not None and [item.detail for item in completed.items] == ["kelp", "moss", "peat"]


def test_entries_inherit_fields_and_have_abbreviations(features: Features, tmp_path: Path) -> None:
    document = show(features, (tmp_path / "a.tex").as_uri(), "\\cite{moss,peat}\\bibliography{refs}")
    (tmp_path / "refs.bib").touch()
    text = "@string{j = {%s}} @misc{moss, title={Moss}, journal=j} @inproceedings{untitled, crossref={all}}\n"
    text += "@inproceedings{peat, title={Peat}, crossref={All}} @proceedings{all, title={%s}, year={%s}}"
    for values in (("Bogs", "Soils", "2001"), ("Fens", "Mires", "2002")):  # opened again: its first version
        bib = Document.open((tmp_path / "refs.bib").as_uri(), text % values, 1)
        features.documents[bib.uri] = bib
        entries = features.bibliography(document).entries
        moss, peat = entries["moss"].paper, entries["peat"].paper
        assert moss and peat and (moss.venue, peat.venue, str(peat.year)) == values
        assert entries["untitled"].paper != entries["all"].paper, "it has no title"


def test_a_letter_that_is_typed_meanwhile_refuses_no_completion(features: Features) -> None:
    document = show(features, "untitled:a.tex", "Trees \\cite{")
    newer = document.changed(2, [types.TextDocumentContentChangeWholeDocument("New. Trees \\cite{k")])
    features.documents[document.uri] = newer
    completed = features.complete(document, types.Position(0, 12))
    assert completed is not None and completed.items[0].text_edit.range == document.range(12, 12)  # type: ignore


NAMED = {
    "a.tex": "\\documentclass{a}\\begin{document}\\bibliography{%s}\\end{document}",
    "a.qmd": "---\nbibliography: %s.bib\n---\nTrees.\n",
    "a.typ": 'Trees.\n#bibliography("%s.bib")',
    "a.org": "#+bibliography: %s.bib\nTrees.\n",
}


@pytest.mark.parametrize("name", NAMED)
def test_an_entry_goes_into_the_bib_that_is_named_now(name: str, features: Features, tmp_path: Path) -> None:
    (tmp_path / "_quarto.yml").write_text("bibliography: shared.bib")
    for file in ("old", "new", "shared"):
        (tmp_path / f"{file}.bib").touch()
    shared, uri = ["shared.bib"] * name.endswith("qmd"), (tmp_path / name).as_uri()
    features.read_main(show(features, uri, NAMED[name] % "old"))
    for text, named in ((NAMED[name] % "old", "old.bib"), (NAMED[name] % "new", "new.bib"), ("", "old.bib")):
        document = features.documents[uri] = Document.open(uri, text, 2)
        features.memory(document).outline = None
        assert [file.name for file in features.bibliography(document).files] == [named, *shared]


def test_several_bib_files_beside_a_document_get_no_entries(features: Features, tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / f"{name}.bib").write_text(f"@misc{{{name}, title={{Paper {name}}}}}")
    document = show(features, (tmp_path / "a.tex").as_uri(), "\\cite{one,two,ghost}")
    assert [one.message.split()[0] for one in features.diagnose(document)] == ["ghost"]
    assert features.add_entry(document.uri, "one", "kim2020") is None
    assert "names no .bib file of the workspace" in features.messages.pop()


def test_a_read_only_bib(features: Features, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "refs.bib").write_text("@misc{x, title={Another}}")
    text = "Trees grow in forests [@]."
    document = show(features, (tmp_path / "a.md").as_uri(), text)
    found = features.complete(document, document.position(text.index("@") + 1))
    assert found is not None
    command = found.items[0].command
    assert command is not None and command.arguments is not None
    given = [str(one) for one in command.arguments]
    assert features.add_entry(*given) is not None
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # root may write read-only files
    assert features.add_entry(*given) is None and features.add_entry(*given) is None
    assert list(features.messages) == ["refs.bib is read-only: only keys are inserted, without entries"]
    features.messages.clear()


def test_an_entry_ends_its_lines_as_the_bib_does(features: Features, tmp_path: Path) -> None:
    for text, gap in (("@misc{x, title={A}}\r\n", "\r\n"), ("@misc{x, title={A}}", "\n\n"), ("", "")):
        (tmp_path / "refs.bib").write_bytes(text.encode())
        document = show(features, (tmp_path / "a.md").as_uri(), "[@]")
        added = features.add_entry(document.uri, "one", "kim2020")
        assert added is not None and added[1].changes is not None
        [[edit]] = added[1].changes.values()
        assert edit.new_text.startswith(f"{gap}@misc{{kim2020,") and edit.new_text.endswith(
            "}\r\n" if "\r" in gap else "}\n"
        )
        os.utime(tmp_path / "refs.bib", ns=(0, len(text)))


@pytest.mark.parametrize("asked", [False, True])
def test_contradicted_entries_are_reported_if_asked(library: Path, tmp_path: Path, asked: bool) -> None:
    (tmp_path / "refs.bib").write_text("@article{late, title={Trees}, author={Kim, Ann}, year=2090}")
    features = Features(LspSettings(library=str(library), references=asked))
    features.folders = [tmp_path]
    text = "\\documentclass{a}\\begin{document}Fruit \\cite{late}.\\bibliography{refs}\\end{document}"
    document = show(features, (tmp_path / "a.tex").as_uri(), text)
    found = [(one.code, one.message.partition(",")[0]) for one in features.diagnose(document)]
    assert found == ([("reference", "late year 2090")] if asked else [])


def test_retracted_papers_are_reported(tmp_path: Path) -> None:
    told = "Crossref, 2021-03-04, doi:10.1000/notice"
    paper = LibraryPaper(
        "doi:10.1000/a", "other2020", "Trees that bear fruit", doi="10.1000/a", filled=(f"retracted:{told}",)
    )
    Library.create(tmp_path / "mine", [paper, LibraryPaper("b", "b", "Grass")], model="bm25")
    (tmp_path / "refs.bib").write_text(
        "@article{own, title={Trees that bear fruit}, doi={10.1000/a}}\n"
        "@article{titled, title={RETRACTED: Stones}}\n@article{b, title={Grass}}\n"
    )
    features = Features(LspSettings(library=str(tmp_path / "mine")))
    features.folders = [tmp_path]
    text = "\\documentclass{a}\\begin{document}Fruit \\cite{own,titled,b}.\\bibliography{refs}\\end{document}"
    document = show(features, (tmp_path / "a.tex").as_uri(), text)
    assert [(one.code, one.message) for one in features.diagnose(document)] == [
        ("retracted", f"own was retracted ({told})"),
        ("retracted", "titled was retracted (its title)"),
    ]
    hover = features.hover(document, document.position(text.index("own")))
    assert hover is not None and f"retracted ({told})" in str(hover.contents).replace("\\", "")
