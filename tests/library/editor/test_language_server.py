"""The language server over its real stdin and stdout: every feature in every language, and bad input."""

from __future__ import annotations

import contextlib
import json
import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from lsprotocol import types
from pygls.exceptions import JsonRpcException

from citerec.formats.bibliography.reading.bibtex import parse_bibtex
from citerec.library.ask.recommender import Recommender
from citerec.library.commands.change import add, build
from citerec.library.drafts.reader import read_draft
from citerec.library.drafts.suggest import citing_passages, known_papers, place_request
from citerec.library.editor.documents import Document
from citerec.library.settings import AddSettings, BuildSettings
from citerec.tests.library.editor.client import WAIT, Editor

EXAMPLES = Path(__file__).parents[3] / "examples" / "library.bib"
HOSTILE = {
    "id": "evil",
    "key": "evil2020",
    "title": "<script>alert(1)</script> [link](command:delete) `code` of zebras",
    "authors": ["Ann *Bold* Lee", "# Heading"],
    "abstract": "Zebrafish markup: http://evil.org and www.evil.org, **bold** _text_ of zebrafish.",
    "year": 2020,
}
BIB = """@article{myadam,
  title = {Adam: A Method for Stochastic Optimization},
  author = {Kingma, Diederik P. and Ba, Jimmy}, year = {2015}}

@book{knuth1984,
  title = {The {TeX}book}, author = {Knuth, Donald E.}, year = 1984}
"""
SENTENCE = "Cumulated gain of graded relevance judgements has a discount for lower positions"
DOCUMENTS = {
    "latex": (
        "paper.tex",
        "\\documentclass{article}\n\\title{Ranking}\n\\begin{document}\n"
        "They take steps \\cite{myadam}.\n\n%s.\n\\bibliography{refs}\n\\end{document}\n",
    ),
    "markdown": (
        "paper.md",
        "---\ntitle: Ranking\nbibliography: refs.bib\n---\nThey take steps [@myadam].\n\n%s.\n",
    ),
    "quarto": (
        "paper.qmd",
        "---\ntitle: Ranking\nbibliography: [refs.bib]\n---\nThey take steps [@myadam].\n\n%s.\n",
    ),
    "rmd": ("paper.Rmd", "---\ntitle: Ranking\n---\nThey take steps [@myadam].\n\n%s.\n"),
    "typst": ("paper.typ", '= Ranking\nThey take steps @myadam.\n\n%s.\n#bibliography("refs.bib")\n'),
    "org": (
        "paper.org",
        "#+title: Ranking\n#+bibliography: refs.bib\nThey take steps [cite:@myadam].\n\n%s.\n",
    ),
}
EXPECTED = "jarvelin2002dcg"


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The 59 papers of examples/, and one full of markup."""
    folder = tmp_path_factory.mktemp("papers")
    (folder / "hostile.jsonl").write_text(json.dumps(HOSTILE))
    sources = (str(EXAMPLES), str(folder / "hostile.jsonl"))
    build(BuildSettings(library=str(folder / "library"), source=sources, model="static"))
    return folder / "library"


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("workspace")


@pytest.fixture(scope="module")
def editor(library: Path, workspace: Path) -> Iterator[Editor]:
    with Editor(library, workspace) as editor:
        yield editor


@pytest.fixture
def folder(workspace: Path, request: pytest.FixtureRequest) -> Path:
    """A folder of the workspace with a .bib file."""
    place = workspace / f"test{len(list(workspace.iterdir()))}"
    place.mkdir()
    (place / "refs.bib").write_text(BIB)
    return place


def opened(editor: Editor, folder: Path, language: str, sentence: str) -> tuple[str, int]:
    """Open a document with a sentence, in which | is the caret; returns its URI and the caret."""
    name, text = DOCUMENTS[language]
    text = text % sentence
    uri = editor.open(folder / name, text.replace("|", ""), language)
    return uri, text.index("|")


OPEN_CITATIONS = [
    ("latex", "\\cite{|}", "\\cite{jarvelin2002dcg}"),
    ("latex", "\\cite{|", "\\cite{jarvelin2002dcg}."),
    ("latex", "\\parencite[see][]{myadam, |}", "{myadam, jarvelin2002dcg}"),
    ("latex", "\\citep{|?}", "\\citep{jarvelin2002dcg}"),
    ("latex", "\\Citeauthor*{jar|xyz}", "{jarvelin2002dcg}"),
    ("latex", "\\cite{|zed}", "\\cite{jarvelin2002dcg, zed}"),
    ("latex", "\\cite{|zebras", "\\cite{jarvelin2002dcg}zebras"),
    ("markdown", "[@|]", "[@jarvelin2002dcg]"),
    ("markdown", "[see @myadam; @|", "; @jarvelin2002dcg]."),
    ("markdown", "[see @|, p. 3 [sic];\n@myadam]", "[see @jarvelin2002dcg, p. 3 [sic];\n@myadam]"),
    ("markdown", "[see [1] @|", "[see [1] @jarvelin2002dcg]"),
    ("markdown", "[@jarv|?]", "[@jarvelin2002dcg]"),
    ("quarto", "as @| shows", "as @jarvelin2002dcg shows"),
    ("rmd", "[-@{|}]", "[-@{jarvelin2002dcg}]"),
    ("rmd", "[@{|zed}]", "[@{jarvelin2002dcg}; @{zed}]"),
    ("markdown", "[see @|zed]", "[see @jarvelin2002dcg; @zed]"),
    ("typst", "#cite(<|zed>)", "#cite(<jarvelin2002dcg>) #cite(<zed>)"),
    ("org", "[cite:@|zed]", "[cite:@jarvelin2002dcg; @zed]"),
    ("rmd", "@{|", "@{jarvelin2002dcg}."),
    ("rmd", "[see @myadam; @{jar|}", "; @{jarvelin2002dcg}]."),
    ("rmd", "[@{jar|]", "[@{jarvelin2002dcg}]"),
    ("typst", "@|", "@jarvelin2002dcg"),
    ("typst", "研究@|", "研究@jarvelin2002dcg"),
    ("typst", "#cite(<|>)", "#cite(<jarvelin2002dcg>)"),
    ("typst", "#cite(<jar|", "#cite(<jarvelin2002dcg>)."),
    ("typst", '#cite(\n  <|, form: "prose")', '<jarvelin2002dcg>, form: "prose").'),
    ("org", "[cite:@|]", "[cite:@jarvelin2002dcg]"),
    ("org", "[cite/t:see @myadam; @|", "; @jarvelin2002dcg]."),
    ("org", "[cite:@| p. 3 [sic]]", "[cite:@jarvelin2002dcg p. 3 [sic]]"),
    ("org", "[[cite:&|", "[[cite:&jarvelin2002dcg]]"),
    ("org", "citep:myadam,jar|", "citep:myadam,jarvelin2002dcg"),
    ("org", "cite:&myadam;&|", "cite:&myadam;&jarvelin2002dcg"),
    ("org", "\\cite{|", "\\cite{jarvelin2002dcg}"),
]


@pytest.mark.parametrize(("language", "citation", "cited"), OPEN_CITATIONS)
def test_completion_by_meaning_also_writes_the_entry(
    language: str, citation: str, cited: str, editor: Editor, folder: Path
) -> None:
    uri, caret = opened(editor, folder, language, f"{SENTENCE} {citation}")
    first, *_ = editor.complete(uri, caret)
    assert first.detail == EXPECTED and first.preselect
    editor.accept(uri, first)
    assert cited in editor.documents[uri].text
    written = (folder / "refs.bib").read_text()
    assert written.startswith(BIB) and written.count(EXPECTED) == 1
    editor.accept(uri, first)  # again, such as in another place
    assert (folder / "refs.bib").read_text() == written


@pytest.mark.parametrize(
    ("language", "text"),
    [
        ("latex", "{|}"),
        ("latex", "\\ref{|}"),
        ("latex", "\\cite{a} b|"),
        ("markdown", "lee@|"),
        ("markdown", "[@a] |"),
        ("typst", "https://x.org/@|"),
        ("org", "@|"),
        ("latex", "\\cite{qqqq|}"),  # letters that nothing has
    ],
)
def test_no_completion(language: str, text: str, editor: Editor, folder: Path) -> None:
    uri, caret = opened(editor, folder, language, f"{SENTENCE} {text}")
    assert editor.complete(uri, caret) == []


@pytest.mark.parametrize(
    ("typed", "found"),
    [
        ("jarv", EXPECTED),
        ("Järv", EXPECTED),
        ("cumul", EXPECTED),
        ("2002", EXPECTED),
        ("gain 2002", EXPECTED),
        ("knu", "knuth1984"),  # only in the .bib
        ("texbook", "knuth1984"),
        ("vaswani", "vaswani2017attention"),
    ],
)
def test_typed_letters_filter(typed: str, found: str, editor: Editor, folder: Path) -> None:
    uri, caret = opened(editor, folder, "latex", f"{SENTENCE} \\cite{{{typed}|}}")
    items = editor.complete(uri, caret)
    assert found in [item.detail for item in items]
    assert all(str(item.filter_text).startswith(typed) for item in items)  # editors keep all of them
    assert len(items) < 20
    assert editor.complete(uri, caret - 1 if typed != "2002" else caret)  # and with a letter less


@pytest.mark.slow
def test_the_order_is_that_of_citerec_draft(editor: Editor, library: Path, folder: Path) -> None:
    text = (EXAMPLES.parent / "draft.tex").read_text()
    (folder / "draft.tex").write_text(text)
    (folder / "library.bib").write_text(EXAMPLES.read_text())
    draft = read_draft(folder / "draft.tex")
    recommender = Recommender.open(library)
    known = known_papers(draft, recommender.library)
    passages = citing_passages(draft, known)
    uri = editor.open(folder / "draft.tex")
    for place in draft.places:
        request = place_request(draft, place, known, passages)
        expected = [paper.key for paper in recommender.recommend_batch([request], 20)[0]]
        caret = place.start + place.command.rindex("{") + 1
        assert [item.detail for item in editor.complete(uri, caret)][: len(expected)] == expected


def test_the_keys_of_the_bib_win(editor: Editor, folder: Path) -> None:
    uri, caret = opened(editor, folder, "latex", "Optimisers such as Adam use momentum \\cite{|}")
    keys = [item.detail for item in editor.complete(uri, caret)]
    assert keys[0] == "myadam" and "kingma2015adam" not in keys and keys[-1] == "knuth1984"


def test_a_taken_key_gets_a_number(editor: Editor, folder: Path) -> None:
    (folder / "refs.bib").write_text(
        "@misc{jarvelin2002dcg, title={Quite another paper on zebras}, year=2001}"
    )
    uri, caret = opened(editor, folder, "latex", f"{SENTENCE} \\cite{{|}}")
    items = editor.complete(uri, caret)
    assert items[0].detail == "jarvelin2002dcg-1"
    editor.accept(uri, items[0])
    assert "{jarvelin2002dcg-1," in (folder / "refs.bib").read_text()


@pytest.mark.slow
def test_documentation(editor: Editor, library: Path, folder: Path) -> None:
    uri, caret = opened(editor, folder, "latex", f"{SENTENCE} \\cite{{|}}")
    item = editor.complete(uri, caret)[0]
    assert isinstance(item.documentation, types.MarkupContent)
    title, authors, probability, why = item.documentation.value.split("\n\n")
    assert title == "Cumulated Gain-Based Evaluation of IR Techniques" and item.detail == EXPECTED
    assert authors == "Kalervo Järvelin, Jaana Kekäläinen · ACM Transactions on Information Systems · 2002"
    assert probability.endswith("% likely to be the paper meant")
    assert why.startswith("Why: Graded relevance is credited with a discount")
    plain = types.ClientCapabilities()
    with Editor(library, folder, capabilities=plain) as simple:
        uri, caret = opened(simple, folder, "latex", f"{SENTENCE} \\cite{{|}}")
        item = simple.complete(uri, caret)[0]
        assert item.detail == EXPECTED
        assert re.fullmatch(
            rf"Järvelin and Kekäläinen 2002 · \d+ % · {title}", item.label
        )  # the key is cut on a narrow screen
        assert isinstance(item.documentation, types.MarkupContent)
        assert item.documentation.kind == types.MarkupKind.PlainText
        assert "\nWhy: Graded relevance" in item.documentation.value
        simple.accept(uri, item)  # an editor that edits no other files
        simple.wait_for_message("add its entry yourself")
        assert (folder / "refs.bib").read_text() == BIB


def test_texts_of_papers_are_never_markup(editor: Editor, folder: Path) -> None:
    uri, caret = opened(editor, folder, "markdown", "Zebrafish are markup [@|]")
    item = next(item for item in editor.complete(uri, caret) if item.detail == "evil2020")
    assert isinstance(item.documentation, types.MarkupContent)
    shown = item.documentation.value
    title = "\\<script\\>alert(1)\\</script\\> \\[link\\](command:delete) \\`code\\` of zebras"
    assert shown.startswith(f"{title}\n\nAnn \\*Bold\\* Lee, \\# Heading · 2020")
    place = editor.documents[uri].text.rindex("@") + 1
    editor.change(uri, place, place, "evil2020")
    hover = editor.hover(uri, place + 3)
    assert hover is not None and isinstance(hover.contents, types.MarkupContent)
    shown = hover.contents.value
    assert "http\\://evil.org and www\\.evil.org, \\*\\*bold\\*\\* \\_text\\_" in shown


@pytest.mark.parametrize(
    ("language", "mark", "cited"),
    [
        ("latex", "\\cite{?}", "\\cite{jarvelin2002dcg}"),
        ("latex", "\\citep[see][p.~3]{myadam, TODO}", "{myadam, jarvelin2002dcg}"),
        ("markdown", "[@?]", "[@jarvelin2002dcg]"),
        ("markdown", "[CITE]", "[@jarvelin2002dcg]"),
        ("quarto", "[see @TODO]", "[see @jarvelin2002dcg]"),
        ("typst", "@?", "@jarvelin2002dcg"),
        ("typst", "#cite(<?>)", "#cite(<jarvelin2002dcg>)"),
        ("org", "[cite:@?]", "[cite:@jarvelin2002dcg]"),
        ("latex", "", "~\\cite{jarvelin2002dcg}."),
        ("markdown", "", " [@jarvelin2002dcg]."),
        ("typst", "", " @jarvelin2002dcg."),
        ("org", "", " [cite:@jarvelin2002dcg]."),
    ],
)
def test_cite_here(language: str, mark: str, cited: str, editor: Editor, folder: Path) -> None:
    sentence = f"{SENTENCE} {mark}".rstrip()
    uri, start = opened(
        editor, folder, language, f"Old trees grow. {sentence}|".replace(mark + "|", "|" + mark)
    )
    actions = editor.actions(uri, start, start)
    assert len(actions) == 5 and len({action.title for action in actions}) == 5
    first = actions[0]
    assert first.title.startswith(
        "Cite Järvelin and Kekäläinen 2002: Cumulated Gain"
    ) and first.title.endswith("%)")
    assert first.kind == ("quickfix" if mark else "refactor")
    other = types.CodeActionKind.Refactor if mark else types.CodeActionKind.QuickFix
    assert editor.actions(uri, start, start, only=[other]) == []
    assert editor.actions(uri, start, start, only=[first.kind]) == actions
    editor.act(uri, first)
    assert cited in editor.documents[uri].text
    assert not mark or mark not in editor.documents[uri].text
    assert EXPECTED in (folder / "refs.bib").read_text()


def test_no_action_within_a_sentence(editor: Editor, folder: Path) -> None:
    uri, caret = opened(editor, folder, "latex", SENTENCE.replace("discount", "dis|count"))
    assert editor.actions(uri, caret, caret) == []


@pytest.mark.parametrize(
    ("language", "citation"), [(one, mark) for one, mark, _ in OPEN_CITATIONS if "myadam" in mark]
)
def test_hover_and_definition(language: str, citation: str, editor: Editor, folder: Path) -> None:
    uri, _ = opened(editor, folder, language, f"{SENTENCE} {citation}")
    caret = editor.documents[uri].text.index("myadam") + 3
    hover = editor.hover(uri, caret)
    assert hover is not None and isinstance(hover.contents, types.MarkupContent)
    assert hover.contents.value.startswith("Adam: A Method") and "Kingma" in hover.contents.value
    assert hover.range == editor.documents[uri].range(caret - 3, caret + 3)
    found = editor.definition(uri, caret)
    start = types.Position(0, 0)
    assert found == types.Location((folder / "refs.bib").as_uri(), types.Range(start, start))
    assert editor.hover(uri, caret + 20) is None and editor.definition(uri, caret + 20) is None


def test_hover_on_keys_of_the_bib_and_of_the_library(editor: Editor, folder: Path) -> None:
    uri, caret = opened(editor, folder, "latex", "Old trees \\cite{knu|th1984,gu2022hatten}")
    hover = editor.hover(uri, caret)
    assert hover is not None and "The TeXbook" in str(hover.contents)
    found = editor.definition(uri, caret)
    assert found is not None and found.range.start.line == 4
    hover = editor.hover(uri, caret + 10)
    assert hover is not None and "Hierarchical" in str(hover.contents)
    assert editor.definition(uri, caret + 10) is None


def test_diagnostics(editor: Editor, folder: Path) -> None:
    (folder / "refs.bib").write_text(
        BIB + "@misc{adam2014, title={{Adam}: a method for stochastic optimization}, "
        "author={Kingma, D. P.}, year=2015}\n"
    )
    uri, _ = opened(
        editor, folder, "latex", "Trees \\cite{?} \\cite{adam2014, ghost} %\\cite{no}\n \\cite{gu2022hatten}|"
    )
    codes = ["missing", "unknown", "unknown", "duplicate"]
    found = {one.message.split()[0]: one for one in editor.wait_for_diagnostics(uri, codes)}
    messages = {key: one.message for key, one in found.items()}
    assert messages["a"] == "a citation is missing"
    assert messages["adam2014"].startswith("adam2014 is the same paper as myadam (refs.bib:")
    assert messages["ghost"] == "ghost is unknown in refs.bib and the library"
    assert messages["gu2022hatten"].startswith("gu2022hatten is not in refs.bib, but in the library: ")
    document = editor.documents[uri]
    start = document.text.index("ghost")
    assert found["ghost"].range == document.range(start, start + 5)
    place = document.text.index("gu2022hatten")
    [action] = editor.actions(uri, place, place)
    assert action.title == "Add gu2022hatten to refs.bib"
    editor.act(uri, action)
    assert "{gu2022hatten," in (folder / "refs.bib").read_text()
    codes.remove("unknown")
    editor.wait_for_diagnostics(uri, codes)
    (folder / "refs.bib").write_text(BIB + "@misc{ghost, title={Ghosts and other spectres}}\n")
    editor.save(uri)
    editor.wait_for_diagnostics(uri, ["missing", "unknown", "unknown"])


@pytest.mark.parametrize("language", ["latex", "markdown", "typst", "org"])
def test_a_bibliography_that_is_not_there(language: str, editor: Editor, folder: Path) -> None:
    (folder / "refs.bib").rename(folder / "gone")
    uri, _ = opened(editor, folder, language, "Old trees|")
    [told] = editor.wait_for_diagnostics(uri, ["bibliography"])
    document = editor.documents[uri]
    name = document.text[document.offset(told.range.start) : document.offset(told.range.end)]
    assert name in ("refs", "refs.bib")
    assert told.message == f"the bibliography {name} is not read: there is no such file"
    (folder / "gone").rename(folder / "refs.bib")
    editor.save(uri)
    editor.wait_for_diagnostics(uri, [])


@pytest.mark.parametrize("linked", [False, True])
def test_a_bib_that_is_open_is_changed_where_it_is_open(linked: bool, editor: Editor, folder: Path) -> None:
    if linked:
        (folder / "refs.bib").rename(folder / "shared.bib")
        (folder / "refs.bib").symlink_to("shared.bib")
    bib = editor.open(
        folder / "refs.bib", f"{BIB}\n@misc{{unsaved, title={{An entry of the buffer}}}}", "bibtex"
    )
    uri, caret = opened(editor, folder, "org", f"{SENTENCE} [cite:@|]")
    items = editor.complete(uri, caret)
    assert "unsaved" in [item.detail for item in items]
    editor.accept(uri, items[0])
    assert "{unsaved," in editor.documents[bib].text and f"{{{EXPECTED}," in editor.documents[bib].text
    assert (folder / "refs.bib").read_text() == BIB


@pytest.mark.parametrize("is_open", [False, True])
def test_entries_that_the_editor_has_not_saved(
    is_open: bool, editor: Editor, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neovim and Emacs tell nothing of a .bib file that is no document of the server's, and Emacs only when
    it is idle of one that is: the next entry must not go into the midst of one before."""
    keys = ("kingma2015adam", "porter1980suffix", "jarvelin2002dcg")
    saved = "\n\n".join(f"@misc{{{key},\n  title = {{Of {key}}},\n}}" for key in ("a", "c", "m", "n", "z"))
    (folder / "sorted.bib").write_text(saved)
    if is_open:
        bib = editor.open(folder / "sorted.bib", saved, "bibtex")
    buffer = [saved]

    def apply(edit: types.WorkspaceEdit) -> None:
        for bib, edits in (edit.changes or {}).items():
            document = Document.open(bib, buffer[0], encoding=editor.encoding)
            for one in edits:
                at = document.offset(one.range.start)
                buffer[0] = f"{buffer[0][:at]}{one.new_text}{buffer[0][at:]}"

    monkeypatch.setattr(editor, "apply", apply)
    text = "\n".join(f"Trees \\cite{{{key}}}.\n" for key in keys) + "\\bibliography{sorted}\n"
    uri = editor.open(folder / "three.tex", text, "latex")
    for key in keys:
        (action,) = [one for one in editor.actions(uri, text.index(key), text.index(key)) if key in one.title]
        editor.act(uri, action)
    assert (folder / "sorted.bib").read_text() == saved
    read = [paper.key for paper in parse_bibtex(buffer[0], "buffer", lambda error: pytest.fail(str(error)))]
    assert sorted(read) == sorted(["a", "c", "m", "n", "z", *keys])
    known = text.index("porter1980suffix")
    assert not any("Add" in one.title for one in editor.actions(uri, known, known))
    if is_open:  # it tells of them at last
        editor.change(bib, 0, len(saved), buffer[0])
        item = next(one for one in editor.complete(uri, text.index("kingma") + 3) if one.command)
        editor.accept(uri, item)
        assert buffer[0].count("@") == 9


def test_a_chapter_has_the_bibliography_of_its_document(editor: Editor, folder: Path) -> None:
    (folder / "main.tex").write_text(DOCUMENTS["latex"][1] % "\\input{chapters/one}")
    (folder / "chapters").mkdir()
    text = f"{SENTENCE} \\cite{{}} as in \\cite{{ghost}}.\n"
    uri = editor.open(folder / "chapters" / "one.tex", text, "latex")
    editor.wait_for_diagnostics(uri, ["missing", "unknown"])
    editor.accept(uri, editor.complete(uri, text.index("{}") + 1)[0])
    assert EXPECTED in (folder / "refs.bib").read_text()
    (folder / "more.bib").write_text("@misc{ghost, title={Ghosts}}\n")
    changed = DOCUMENTS["latex"][1] % "\\input{chapters/one}\\addbibresource{more.bib}"
    editor.save(editor.open(folder / "main.tex", changed, "latex"))
    editor.wait_for_diagnostics(uri, [])


def test_folders_and_closed_bibs_count_at_once(editor: Editor, folder: Path, tmp_path: Path) -> None:
    uri, _ = opened(editor, folder, "latex", "Old trees \\cite{ghost}|")
    (tmp_path / "refs.bib").write_text(BIB)
    other, _ = opened(editor, tmp_path, "latex", "Old trees \\cite{ghost}|")
    bib = editor.open(folder / "refs.bib", f"{BIB}@misc{{ghost, title={{Ghosts}}}}\n", "bibtex")
    editor.wait_for_diagnostics(uri, [])
    close = types.DidCloseTextDocumentParams(types.TextDocumentIdentifier(bib))
    editor.notify(types.TEXT_DOCUMENT_DID_CLOSE, close)
    editor.wait_for_diagnostics(uri, ["unknown"])
    editor.wait_for_diagnostics(other, [])
    added = [types.WorkspaceFolder(tmp_path.as_uri(), "other")]
    for event in (types.WorkspaceFoldersChangeEvent(added, []), types.WorkspaceFoldersChangeEvent([], added)):
        params = types.DidChangeWorkspaceFoldersParams(event)
        editor.notify(types.WORKSPACE_DID_CHANGE_WORKSPACE_FOLDERS, params)
        editor.wait_for_diagnostics(other, ["unknown"] if event.added else [])


# Bad input.


def test_documents_without_a_bib(editor: Editor, folder: Path) -> None:
    (folder / "refs.bib").unlink()
    uri, caret = opened(editor, folder, "typst", f"{SENTENCE} @|")
    editor.accept(uri, editor.complete(uri, caret)[0])
    editor.wait_for_message("paper.typ names no .bib file of the workspace: only keys are inserted")
    uri = editor.open("untitled:Untitled-1", f"{SENTENCE} [@?].", "markdown")
    editor.act(uri, editor.actions(uri, len(SENTENCE) + 2, len(SENTENCE) + 2)[0])
    assert editor.documents[uri].text == f"{SENTENCE} [@{EXPECTED}]."
    editor.wait_for_message("this new document names no .bib file")
    editor.act(uri, editor.actions(uri, len(editor.documents[uri].text), len(editor.documents[uri].text))[1])
    assert sum("names no .bib" in one for one in editor.messages) == 2  # once for each document


@pytest.mark.slow
@pytest.mark.parametrize("encoding", ["utf-8", "utf-32"])  # in all other tests it is utf-16
def test_positions_count_as_the_editor_does(encoding: str, library: Path, folder: Path) -> None:
    with Editor(library, folder, encodings=[encoding]) as editor:
        assert editor.encoding == encoding
        text = f"---\r\nbibliography: refs.bib\r\n---\r\n😋 漢字 é {SENTENCE} [@] 😋 [@myadam].\r\n"
        uri = editor.open(folder / "a.md", text, "markdown")
        caret = text.index("[@]") + 2
        editor.change(uri, caret, caret, "j😋")
        editor.change(uri, caret + 1, caret + 2, "")
        editor.accept(uri, editor.complete(uri, caret + 1)[0])
        assert editor.documents[uri].text == text.replace("[@]", f"[@{EXPECTED}]")
        place = editor.documents[uri].text.index("myadam")
        hover = editor.hover(uri, place + 2)
        assert hover is not None and hover.range == editor.documents[uri].range(place, place + 6)


@pytest.mark.slow
@pytest.mark.parametrize("language", ["latex", "markdown", "typst", "org"])
def test_large_documents(language: str, editor: Editor, folder: Path) -> None:
    name, text = DOCUMENTS[language]
    filler = "Trees and other words of a long document are in this paragraph.\n\n" * 2_000  # 0.1 MB
    line = "Many words without an end of line and " * 2_700  # 0.1 MB
    text = text % f"{filler}{line} {SENTENCE} {OPEN_MARKS[language]}\n\n{filler}"
    caret = text.index("|")
    uri = editor.open(folder / f"large-{name}", text.replace("|", ""), language)
    assert len(text) > 300_000
    assert editor.complete(uri, caret)[0].detail == EXPECTED
    editor.change(uri, caret, caret, "ja")
    assert editor.complete(uri, caret + 2)[0].detail == EXPECTED
    editor.notify(
        types.TEXT_DOCUMENT_DID_CLOSE, types.DidCloseTextDocumentParams(types.TextDocumentIdentifier(uri))
    )


@pytest.mark.parametrize("piece", ["`", "`a", "`` ", "$", "<!-- "])
def test_a_line_of_backticks_holds_up_no_other_document(piece: str, editor: Editor, folder: Path) -> None:
    line = f"So {piece * 40_000}"  # which opens no code block
    uri = editor.open(folder / "odd.md", f"# Ranking\n\n{line}\n\n{line} {SENTENCE} [@]", "markdown")
    caret = len(editor.documents[uri].text) - 1
    where = types.TextDocumentIdentifier(uri)
    asked = editor.send(
        types.TEXT_DOCUMENT_COMPLETION, types.CompletionParams(where, editor.position(uri, caret))
    )
    other, place = opened(editor, folder, "latex", f"{SENTENCE} \\cite{{|}}")
    assert editor.complete(other, place)[0].detail == EXPECTED
    answer = asked.result(WAIT)
    assert answer is not None and answer.items[0].detail == EXPECTED


OPEN_MARKS = {
    "latex": "\\cite{|}",
    "markdown": "[@|]",
    "quarto": "[@|]",
    "rmd": "[@|]",
    "typst": "@|",
    "org": "[cite:@|]",
}


def test_garbage(editor: Editor, folder: Path) -> None:
    garbage = "".join(map(chr, [*range(1, 0x300), 0xFFFD, 0xD83D, 0x1F60B, 0xE000, 0xF000, 0x2028])) * 20
    (folder / "refs.bib").write_bytes(bytes(range(256)) * 40)
    for language, (name, _) in DOCUMENTS.items():
        text = f"{garbage}{OPEN_MARKS[language]}{garbage}"
        uri = editor.open(folder / name, text.replace("|", ""), language)
        caret = text.index(OPEN_MARKS[language]) + OPEN_MARKS[language].index("|")
        editor.complete(uri, caret)
        editor.actions(uri, caret, caret)
        editor.hover(uri, caret)


@pytest.mark.parametrize(
    ("method", "params"),
    [
        (types.TEXT_DOCUMENT_COMPLETION, types.CompletionParams),
        (types.TEXT_DOCUMENT_HOVER, types.HoverParams),
        (types.TEXT_DOCUMENT_DEFINITION, types.DefinitionParams),
    ],
)
def test_unknown_documents_and_far_positions(method: str, params: type, editor: Editor, folder: Path) -> None:
    unknown = params(types.TextDocumentIdentifier("file:///not/open.tex"), types.Position(0, 0))
    assert editor.send(method, unknown).result(WAIT) is None
    uri, _ = opened(editor, folder, "latex", f"{SENTENCE} \\cite{{|")
    far = params(types.TextDocumentIdentifier(uri), types.Position(10**6, 10**6))
    assert editor.send(method, far).result(WAIT) is None


@pytest.mark.parametrize("arguments", [[], ["x"], ["file:///not/open.tex", "a", "b"], [1, None, {}]])
def test_bad_commands(arguments: list[object], editor: Editor, folder: Path) -> None:
    before = len(editor.applied)
    params = types.ExecuteCommandParams("citerec.addEntry", arguments)
    with contextlib.suppress(JsonRpcException):
        editor.send(types.WORKSPACE_EXECUTE_COMMAND, params).result(WAIT)
    uri, caret = opened(editor, folder, "latex", f"{SENTENCE} \\cite{{|}}")
    assert editor.complete(uri, caret) and len(editor.applied) == before


# The queue, and the library.


@pytest.mark.slow
def test_newer_questions_take_the_place_of_older_ones(library: Path, folder: Path) -> None:
    with Editor(library, folder) as editor:  # the library is being read: all questions wait
        uri, caret = opened(editor, folder, "latex", f"{SENTENCE} \\cite{{|}}")
        where = types.TextDocumentIdentifier(uri)
        typed = []
        for number, letter in enumerate("jarv"):
            params = types.CompletionParams(where, editor.position(uri, caret + number))
            typed.append(editor.send(types.TEXT_DOCUMENT_COMPLETION, params))
            editor.change(uri, caret + number, caret + number, letter)
        params = types.CompletionParams(where, editor.position(uri, caret + 4))
        cancelled = editor.send(types.TEXT_DOCUMENT_COMPLETION, params)
        editor.run(cancel_last(editor))
        with pytest.raises(JsonRpcException, match="cancel"):
            cancelled.result(WAIT)
        last = editor.complete(uri, caret + 4)
        assert last[0].detail == EXPECTED
        replaced = [question.result(WAIT) for question in typed].count(None)
        assert replaced >= 2  # one may have been answered before the next came


async def cancel_last(editor: Editor) -> None:
    """Cancel the request that was sent last."""
    *_, last = editor._client.protocol._request_futures
    editor._client.protocol.notify(types.CANCEL_REQUEST, types.CancelParams(last))


@pytest.mark.slow
def test_a_missing_library_is_one_message(tmp_path: Path, folder: Path) -> None:
    with Editor(tmp_path / "later", folder) as editor:
        uri, caret = opened(editor, folder, "latex", f"{SENTENCE} \\cite{{|}}")
        message = editor.wait_for_message("create one with citerec build")
        assert message.startswith("citerec: ") and "\n" not in message
        assert [item.detail for item in editor.complete(uri, caret)] == ["myadam", "knuth1984"]
        assert editor.actions(uri, caret, caret) == []
        build(BuildSettings(library=str(tmp_path / "later"), source=(str(EXAMPLES),), model="static"))
        assert editor.complete(uri, caret)[0].detail == EXPECTED
        (tmp_path / "new.bib").write_text(f"@misc{{new2026, title={{{SENTENCE}}}, year=2026}}")
        add(AddSettings(library=str(tmp_path / "later"), source=(str(tmp_path / "new.bib"),)))
        assert "new2026" in [item.detail for item in editor.complete(uri, caret)][:3]
        assert len(editor.messages) == 1


@pytest.mark.slow
def test_a_file_is_a_library_that_is_watched(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    source = tmp_path / "papers.bib"
    source.write_text(EXAMPLES.read_text())
    with Editor(source, folder, options=["watch=true"]) as editor:
        uri, caret = opened(editor, folder, "latex", f"{SENTENCE} \\cite{{|}}")
        assert editor.complete(uri, caret)[0].detail == EXPECTED
        source.write_text(f"{EXAMPLES.read_text()}\n@misc{{new2026, title={{{SENTENCE}}}, year=2026}}\n")
        for _ in range(1200):
            if "new2026" in [item.detail for item in editor.complete(uri, caret)]:
                break
            time.sleep(0.1)
        else:
            raise AssertionError("the new paper was not found")
