"""Full texts in Markdown, R Markdown and Quarto: documents, books, and the files of a folder that count."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from citerec.base.errors import InputError
from citerec.datasets.building.readers import find_files
from citerec.formats.documents import FullText, Metadata, Reference
from citerec.formats.drafts.inputs import Inputs
from citerec.formats.drafts.markdown import MARKDOWN
from citerec.tests.datasets.conftest import write_files
from citerec.tests.formats.articles.test_layouts import documents, read_text

ARTICLE = r"""---
title: "Parsing *trees*"
author: [Ann Writer, {name: Bo Author}, {name: {given: Cy, family: Third}}]
abstract: |
  We parse trees.
date: 2021-03-04
bibliography: [refs.bib, "more.bib"]
knit: !expr here::here("x")
---

# Introduction {#sec-intro}

Trees are parsed [see @nivre2004, p. 3; @kim:17] and @{lee 2018} agrees, as do
@kim:17 [ch. 1] and Kim [-@kim:17]. Of $n \leq 5$ nodes, $x=[@nivre2004]$ are `r nrow(x)`
in [Figure]{.smallcaps} \@ref(fig:a), [@fig-tree], [@suppfig-a] and @sec-intro; \textbf{bold} costs $5 or $6.
Ask ann@x.org.[^1]

```{r plot, fig.cap="A tree [@nivre2004]"}
x <- y@nivre2004
```

::: {.callout-note}
A note cites @nivre2004 <br>too.^[Not here [@nivre2004].]
:::

| A table | [@nivre2004] |
|---------|--------------|

$$ x = [@nivre2004] $$

\begin{equation} x [@nivre2004] \end{equation}

![A tree [@nivre2004] in a caption](tree.png){width=50%}

[^1]: A footnote [@nivre2004]
    of two lines.

Method
------

Unknown [@gone].
"""
BIB = """@misc{nivre2004, title={Deterministic Parsing}, abstract={It is.}, year=2004}
@misc{kim:17, title={Graph Networks}, year=2017}
"""


def cited(text: FullText) -> list[str | None]:
    return [span.ref for paragraph in text.paragraphs for span in paragraph.citations]


@pytest.mark.parametrize("name", ["paper.md", "paper.Rmd", "paper.qmd", "paper.markdown"])
def test_a_document(tmp_path: Path, name: str) -> None:
    write_files(tmp_path, {name: ARTICLE, "refs.bib": BIB, "more.bib": "@misc{lee, title={Trees}}"})
    metadata, text = read_text(tmp_path / name)
    authors = ("Ann Writer", "Bo Author", "Cy Third")
    assert metadata == Metadata("paper", "Parsing trees", "We parse trees.", 2021, authors)
    _, introduction, method = text.paragraphs
    assert introduction.text == (
        "Trees are parsed [1, 2] and @{lee 2018} agrees, as do [2] and Kim [2]. Of n ≤ 5 nodes, are "
        "in Figure , , and ; bold costs $5 or $6. Ask ann@x.org. A note cites [1] too."
    )
    assert cited(text) == ["nivre2004", "kim:17", "kim:17", "kim:17", "nivre2004", "gone"]
    assert introduction.section == "1 Introduction" and method.section == "2 Method"
    assert text.references == {
        "nivre2004": Reference(title="Deterministic Parsing", year=2004, abstract="It is."),
        "kim:17": Reference(title="Graph Networks", year=2017),
    }


MANUBOT = """---
title: A review
bibliography: content/manual.json
manubot-output-bibliography: output/references.json
...

Trees are parsed [@doi:10.1/A; @tag:kim] and @url:https://x.org/y agrees with @own and @pmid:5 [@gone].

[@tag:kim]: arxiv:1609.08144
"""
CSL = [
    {
        "id": "a1", "title": "Deterministic <i>Parsing</i> &amp; more", "DOI": "10.1/a", "abstract": "It is.",
        "author": [{"family": "Nivre", "given": "J"}, {"literal": "A Group"}, "odd"],
        "issued": {"date-parts": [[2004, 1]]},
    },
    {"id": "k2", "title": "Graph Networks", "URL": "https://arxiv.org/abs/1609.08144v2", "issued": None},
    {"id": "u3", "title": "A page"}, {"id": 7, "title": "PubMed", "PMID": 5}, "odd",
]  # fmt: skip
NAMES = "input_id\tstandard_id\tshort_id\ndoi:10.1/A\tdoi:10.1/a\ta1\ntag:kim\tarxiv:1609.08144\tk2\n"
NAMES += "url:https://x.org/y\tx\tu3\n"


def test_a_document_of_manubot(tmp_path: Path) -> None:
    """The branch `output`: CSL JSON, whose entries have other names in the text."""
    names = {"manual.json": '[{"id": "own", "title": "Mine"}]', "citations.tsv": NAMES}
    write_files(tmp_path, {"manuscript.md": MANUBOT, "references.json": json.dumps(CSL), **names})
    metadata, text = read_text(tmp_path / "manuscript.md")
    assert metadata.title == "A review"
    assert cited(text) == ["doi:10.1/A", "tag:kim", "url:https://x.org/y", "own", "pmid:5", "gone"]
    assert text.references == {
        "doi:10.1/A": Reference(
            title="Deterministic Parsing & more",
            authors=("Nivre, J", "A Group", "odd"),
            year=2004,
            abstract="It is.",
            identifiers=("doi:10.1/a",),
        ),
        "tag:kim": Reference(title="Graph Networks", arxiv="1609.08144"),
        "url:https://x.org/y": Reference(title="A page"),
        "own": Reference(title="Mine"),
        "pmid:5": Reference(title="PubMed", identifiers=("pmid:5",)),
    }


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('[{"id": 1', "malformed JSON: "),
        ('{"id": 1}', r"must be a list of entries \(CSL JSON\), not an object"),
    ],
)
def test_invalid_csl(tmp_path: Path, content: str, message: str) -> None:
    write_files(tmp_path, {"a.md": MANUBOT, "references.json": content})
    with pytest.raises(InputError, match=rf"^{tmp_path}/references\.json: {message}"):
        read_text(tmp_path / "a.md")


QUARTO = """bibliography: lib/refs.bib
book:
  title: A Book
  author: Ann Writer
  chapters: [index.qmd, {part: Parts, chapters: [one.qmd, parts/two.qmd]}]
  appendices: [three.qmd]
"""
BOOKS = {
    "quarto": {
        "_quarto.yml": QUARTO,
        "index.qmd": "# Preface\n",
        "three.qmd": "Three [@kim:17].",
        "parts/in.qmd": "In",
    },
    "bookdown": {
        "_bookdown.yml": "book_filename: thesis",
        "index.Rmd": "---\ntitle: A Book\nauthor: Ann Writer\nbibliography: lib/refs.bib\n---\n",
        "three.Rmd": "Three [@kim:17].",
        "in.Rmd": "In",
    },
}


@pytest.mark.parametrize("kind", BOOKS)
def test_a_book_is_one_paper_and_its_chapters_are_read_with_it(tmp_path: Path, kind: str) -> None:
    end, folder = ("qmd", tmp_path / "book") if kind == "quarto" else ("Rmd", tmp_path / "book")
    include = "{{< include in.qmd >}}" if end == "qmd" else "```{r, child = 'x/in.Rmd'}\n```"
    chapters = {f"one.{end}": "---\ntitle: One\n---\nOne [@nivre2004].", "lib/refs.bib": BIB}
    two = "parts/two.qmd" if end == "qmd" else "two.Rmd"
    chapters[two] = f"# Two\n\nTwo @nivre2004.\n\n{include}\n"
    others = {"README.md": "# Code\n\nBy @ann, [@bo](https://x.org).", "index.tex": r"\documentclass{a}"}
    others |= dict.fromkeys(("thesis.tex", "_book/thesis.tex") if end == "Rmd" else (), r"\documentclass{a}")
    write_files(folder, BOOKS[kind] | chapters | others)
    (file,) = find_files(str(tmp_path))
    assert file.path == folder / f"index.{end}" and file.id == "book"
    metadata, text = read_text(folder / f"index.{end}")
    assert (metadata.title, metadata.authors) == ("A Book", ("Ann Writer",))
    order = ["nivre2004", "nivre2004", "kim:17"] if end == "qmd" else ["nivre2004", "kim:17", "nivre2004"]
    assert cited(text) == order and text.references.keys() == {"nivre2004", "kim:17"}
    assert any(paragraph.text.endswith("In") or " In " in paragraph.text for paragraph in text.paragraphs)
    metadata, chapter = read_text(folder / two)
    assert metadata.title == "Two" and chapter.references["nivre2004"].year == 2004


FRONT = "---\ntitle: A Book\nbibliography: lib/refs.bib\n---\n"


@pytest.mark.parametrize(
    ("settings", "main", "keys"),
    [
        ("rmd_files: [00-main.Rmd, one.Rmd, two.Rmd]\nnew_session: true", "00-main.Rmd", "one two"),
        (
            "rmd_files: {html: [00-main.Rmd, one.Rmd], latex: [00-main.Rmd, two.Rmd]}",
            "00-main.Rmd",
            "one two",
        ),
        ("before_chapter_script: [a.R]\nbook_filename: two.Rmd", "00-main.Rmd", "one"),
        ("rmd_subdir: true", "00-main.Rmd", "one two c/d/deep c/in"),
        ("rmd_subdir: [c, ../out]", "00-main.Rmd", "one two c/d/deep c/in"),
        ("rmd_subdir: c\nrmd_files: [./00-main.Rmd, two.Rmd]", "00-main.Rmd", "two c/d/deep c/in"),
        ("rmd_subdir: true", "c/index.Rmd", "one two c/d/deep c/in"),
        (
            'rmd_subdir: "c\\0"\nrmd_files: ["one\\0.Rmd", 3, "", /, index.Rmd]',
            "index.Rmd",
            "one c/d/deep c/in",
        ),
        ("rmd_files: [one.Rmd, index.Rmd]", "index.Rmd", "one"),
        ("rmd_files: [one.Rmd, two.Rmd]", "index.Rmd", "one two"),
    ],
)
def test_the_files_of_a_book_by_bookdown(settings: str, main: str, keys: str, tmp_path: Path) -> None:
    names = ("one", "two", "_three", "c/in", "c/d/deep", "c/_not", "c/.cache/a", "../out/x")
    bib = "".join(f"@book{{{name}, title={{T}}}}\n" for name in names)
    texts = {f"{name}.Rmd": f"Text [@{name}]." for name in names} | {main: FRONT} | {"lib/refs.bib": bib}
    write_files(tmp_path / "book", {"_bookdown.yml": settings} | texts)
    text = read_text(tmp_path / "book" / main)[1]
    assert sorted(map(str, cited(text))) == sorted(keys.split()) and text.references.keys() == {*keys.split()}
    if "c/d/deep" in keys:  # a chapter alone
        assert read_text(tmp_path / "book" / "c" / "d" / "deep.Rmd")[1].references.keys() == {"c/d/deep"}
    documents = {str(file.path.relative_to(tmp_path / "book")) for file in find_files(str(tmp_path / "book"))}
    assert main in documents and documents.isdisjoint(f"{key}.Rmd" for key in keys.split())


def test_a_listed_file_that_is_missing_is_told(tmp_path: Path) -> None:
    write_files(tmp_path, {"_bookdown.yml": "rmd_files: [a.Rmd, gone.Rmd, ../b.Rmd]", "a.Rmd": "Text [@a]."})
    source = MARKDOWN.read(tmp_path / "a.Rmd", Inputs())
    outside = f"../b.Rmd is not followed: it is outside {tmp_path}"
    assert source.notes == ["gone.Rmd is not followed: there is no such file", outside]


@pytest.mark.parametrize("title", ["|\n\t| A\n    | Book", "\tA Book\t", "A\tBook", "\n\tA Book"])
def test_tabs_in_front_matter(title: str, tmp_path: Path) -> None:
    write_files(
        tmp_path, {"a.md": f"---\ntitle: {title}\nbibliography:\t[lib/refs.bib]\t\n---\nText [@nivre2004]."}
    )
    write_files(tmp_path, {"lib/refs.bib": BIB})
    metadata, text = read_text(tmp_path / "a.md")
    assert metadata.title.replace("| ", "") == "A Book" and text.references.keys() == {"nivre2004"}


def test_which_files_of_a_folder_are_read(tmp_path: Path) -> None:
    texts = {
        "a.Rmd": "Trees [@kim:17].", "a.md": "Trees [@kim:17].", "a.tex": r"\documentclass{a}",
        "b.md": "---\nbibliography: refs.bib\n---\n", "c.md": "Ask ann@x.org or @ann.", "d.md": "`[@kim:17]`",
        "e.md": "---\ntitle: [\n---\n", "f.md": "{{< include g.md >}} {{< include f.md >}}",
        "g.md": "G [@a].", "refs.bib": BIB,
    }  # fmt: skip
    write_files(tmp_path, texts)
    assert [file.path.name for file in find_files(str(tmp_path))] == ["a.Rmd", "b.md", "e.md", "f.md"]
    assert read_text(tmp_path / "a.Rmd")[1].references.keys() == {"kim:17"}, (
        "the only .bib file of the folder"
    )
    with pytest.raises(InputError, match=r"e\.md: its front matter \(between --- lines\) is not YAML: "):
        documents(tmp_path / "e.md")


def test_no_file_outside_the_folder_is_included(tmp_path: Path) -> None:
    include = f"{{{{< include ../secret.md >}}}} {{{{< include {tmp_path}/secret.md >}}}}"
    write_files(tmp_path, {"secret.md": "secret", "paper/a.md": f"Trees [@a]. {include}"})
    assert "secret" not in str(read_text(tmp_path / "paper" / "a.md")[1].paragraphs).replace("secret.md", "")


def test_inputs_are_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("citerec.formats.drafts.inputs.MAX_INPUTS", 5)
    write_files(tmp_path, {"a.md": "{{< include b.md >}}" * 6, "b.md": "b"})
    with pytest.raises(InputError, match=r"\.md: the document has more than 5 inputs"):
        documents(tmp_path / "a.md")


def test_aliases_of_yaml_are_written_out_up_to_a_size(tmp_path: Path) -> None:
    lines = ["l0: &l0 [a, a, a, a, a, a, a, a, a, a]"]
    lines += [f"l{n}: &l{n} [{', '.join([f'*l{n - 1}'] * 10)}]" for n in range(1, 10)]
    path = tmp_path / "a.md"
    for front, why in (("\n".join(lines), "stand for too much"), ("a: &a [*a]", "stands for itself")):
        path.write_text(f"---\n{front}\n---\nTrees [@a].")
        with pytest.raises(InputError, match=why):
            MARKDOWN.read(path, Inputs())
    path.write_text(
        "---\nbase: &b {id: a, title: Trees}\nreferences: [{<<: *b, id: c}, *b]\n---\nTrees [@c]."
    )
    assert MARKDOWN.read(path, Inputs()).references.entries(["c"])["c"].title == "Trees"


BOOK = "@book{kelp, title={Kelp}, author={Reis, Ana}, year=2001}\n"


@pytest.mark.parametrize(
    "files",
    [
        {"a.md": "Text [@kelp].\n\n---\nreferences:\n- id: kelp\n  type: book\n  title: Kelp\n..."},
        {"a.md": "# Kelp\n\nText [@kelp].\n\n---\nbibliography: x/r.bib\n---\n", "x/r.bib": BOOK},
        {"a.md": "---\ntitle: One\n---\n\n---\nbibliography: x/r.bib\n---\n\nText [@kelp].", "x/r.bib": BOOK},
        {"_quarto.yml": "bibliography: x/r.bib", "x/r.bib": BOOK, "p/q/s/a.qmd": "Text [@kelp]."},
        {"_quarto.yml": "project: {type: website}", "p/q/a.qmd": "Text [@kelp].",
         "p/_metadata.yml": "bibliography: r.bib", "p/r.bib": BOOK},
        {"_quarto.yml": "metadata-files: [m/meta.yml]", "m/meta.yml": "bibliography: [r.bib]",
         "m/r.bib": BOOK, "a.qmd": "Text [@kelp]."},
        {"_quarto.yml": "bibliography: r.bib", "r.bib": "", "x/r.bib": BOOK,
         "a.qmd": "---\nbibliography: x/r.bib\n---\nText [@kelp]."},
        {"a.qmd": "---\nbibliography: x/r.bib\nformat: {pdf: {include-before-body: [b.md, c.tex]}}\n---\nT.",
         "b.md": "Before [@kelp].", "c.tex": "\\cite{kelp}", "x/r.bib": BOOK},
    ],
)  # fmt: skip
def test_places_of_metadata(files: dict[str, str], tmp_path: Path) -> None:
    write_files(tmp_path, files)
    [path] = tmp_path.rglob("a.*")
    source = MARKDOWN.read(path, Inputs())
    assert [*source.keys] == ["kelp"]
    assert source.references.entries(["kelp"])["kelp"].title == "Kelp"
    notes = ["c.tex is not followed: only .md, .markdown, .qmd, .rmd files are"]
    assert source.notes == (notes if "c.tex" in files else [])


def test_yaml_in_code_and_between_rules_is_text() -> None:
    text = "A [@a].\n\n```\n\n---\nbibliography: x.bib\n---\n```\n\n---\n\nB [@b]\n\n---\n"
    assert MARKDOWN.bibliographies(text) == []
    assert [key.key for key in MARKDOWN.keys(text)] == ["a", "b"]


def test_code_in_quotations_and_captions_in_code(tmp_path: Path) -> None:
    quoted = "A [@a].\n\n> ```python\n> @property\n> ```\n> B [@b].\n\n> ~~~\n> @open\n\nC [@c].\n\n"
    cells = "```{r, fig.cap='D [@d]'}\n@never\n```\n\n```{python}\n#| fig-cap: E [@e]\n@never\n```\nF [@f].\n"
    (tmp_path / "a.qmd").write_text(f"{quoted}{cells}")
    assert MARKDOWN.read(tmp_path / "a.qmd", Inputs()).keys == [*"abcfde"]
