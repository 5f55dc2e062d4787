"""Full texts in documents: TEI, LaTeX with its bibliographies, and the search for files."""

from __future__ import annotations

import gzip
import re
import tarfile
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from citerec.base.errors import InputError
from citerec.datasets.building.readers import SourceFile, find_files, read_documents
from citerec.formats.documents import Metadata, Reference
from citerec.formats.drafts.latex import LATEX
from citerec.formats.drafts.latex_source import read_source
from citerec.formats.latex_text import plain_text
from citerec.tests.datasets.conftest import write_files
from citerec.tests.formats.articles.test_layouts import documents, read_text

TEXTS = Path(__file__).parent / "texts"


def test_tei(tmp_path: Path) -> None:
    metadata, text = read_text(TEXTS / "1911.00042.grobid.tei.xml")
    assert metadata == Metadata(
        id="1911.00042",
        title="Speech into trees",
        abstract="Trees are built from speech.",
        year=2019,
        authors=("Writer, Ann B",),
        identifiers=("arxiv:1911.00042",),
    )
    cited = [[(p.text[start:end], ref) for start, end, ref in p.citations] for p in text.paragraphs]
    first = [("Nivre and Scholz (2004)", "b0"), ("(Kim et al., 2017;", "b1"), ("Lee, 2018)", "b2")]
    assert cited == [
        [*first, ("(Nobody, 2001)", None)],
        [("[4]", "b3"), ("[4]", "b3")],
        [("Lee (2018)", "b2")],
    ]
    assert text.paragraphs[1].text.startswith("Lattices are decoded by Müller and Øster [4], and")
    assert text.paragraphs[0].section == text.paragraphs[1].section != text.paragraphs[2].section
    assert text.references["b1"] == Reference("", "Graph networks for structured text", ("Kim",), 2017)
    assert text.references["b2"] == Reference("", "Neural parsing: a study of encoders", ("Lee, Kai",), 2018)
    assert text.references["b3"].title == "" and "Decoding word lattices" in text.references["b3"].text

    head = (TEXTS / "1911.00042.grobid.tei.xml").read_text().partition("<text")[0]
    (tmp_path / "a.tei.xml").write_text(
        f"{head}<text><body><div><p><s>Bees dance.</s><s>Ants walk.</s></p></div></body></text></TEI>"
    )
    assert read_text(tmp_path / "a.tei.xml")[1].paragraphs[0].text.strip() == "Bees dance. Ants walk."


@pytest.mark.parametrize(
    ("titles", "title"),
    [
        ('<analytic/><monogr><title level="j">Sand Letters</title></monogr>', ""),
        ('<monogr><title level="j">Sand Letters</title><title level="s">Notes</title></monogr>', ""),
        ('<analytic><title level="a"/></analytic><monogr><title level="j">Sand</title></monogr>', ""),
        ('<monogr><title level="m">A book</title><title level="s">Its series</title></monogr>', "A book"),
        ("<monogr><title>A report</title></monogr>", "A report"),
        ("<analytic><title>Dunes</title></analytic><monogr><title>Sand</title></monogr>", "Dunes"),
    ],
)
def test_a_journal_is_no_papers_title(titles: str, title: str, tmp_path: Path) -> None:
    source = f"<sourceDesc><biblStruct>{titles}</biblStruct></sourceDesc>"
    cited = f'<listBibl><biblStruct xml:id="b0">{titles}</biblStruct></listBibl>'
    (tmp_path / "PMC2912345.tei.xml").write_text(
        f'<TEI xmlns="http://www.tei-c.org/ns/1.0"><teiHeader><fileDesc>{source}</fileDesc></teiHeader>'
        f"<text><body/><back>{cited}</back></text></TEI>"
    )
    metadata, text = read_text(tmp_path / "PMC2912345.tei.xml")
    assert metadata == Metadata("PMC2912345", title), "a name that is no arXiv id"
    assert text.references["b0"].title == title


def test_latex_with_a_bib_file() -> None:
    (record,) = documents(TEXTS / "2103.00017")
    # A named file gets its own name as id; papers in a folder get the names of their subfolders.
    assert record.metadata.id == "main"
    assert SourceFile(TEXTS / "2103.00017" / "main.tex", "2103.00017") in find_files(str(TEXTS))
    (record,) = read_documents(SourceFile(TEXTS / "2103.00017" / "main.tex", "2103.00017"), lambda done: None)
    assert record.metadata == Metadata(
        "2103.00017",
        "Parsing Spoken Queries with Trees",
        "We parse queries from speech. Our parser, TreeTalk, reads lattices.",
        2021,
        ("Ann Writer", "Bo Author"),
        (),
        ("arxiv:2103.00017",),
    )
    assert record.full_text is not None
    text = record.full_text()
    _, introduction, method = text.paragraphs
    assert introduction.text == (
        "Dependency parsing is an old problem. [1] proposed a transition system,and many have followed "
        "[2, 3]. The graph networks of Kim et al. [2] pass messages along edges. We also rely on acoustic "
        "models [4], which map sound to phonemes; the 100% lattices of [5] serve as input."
    )
    assert method.text == (
        "Our parser reads lattices instead of strings, as in Section . Müller's lattice decoder [5] is the "
        "first of its kind. It is trained for two and a half epochs with 50 % dropout [5, 3]."
    )
    assert [(introduction.text[start:end], ref) for start, end, ref in introduction.citations] == [
        ("1", "nivre"), ("2", "kim17"), ("3", "lee-study"), ("2", "kim17"), ("4", "tan"), ("5", "mueller2015")
    ]  # fmt: skip
    assert text.references == {
        "nivre": Reference("", "Deterministic dependency parsing", ("Nivre, Joakim", "Scholz, Mario"), 2004),
        "kim17": Reference("", "Graph networks for Structured text", ("Kim, Ji-woo", "Park, Ana"), 2017),
        "lee-study": Reference("", "Neural Parsing: A Study of Encoders", ("Lee, Kai",), 2018),
        "mueller2015": Reference("", "Decoding Word Lattices", ("Müller, Karl", "Øster, Jörg"), 2015),
        "tan": Reference("", "A Survey of Acoustic Models", ("Tan, Sue",), 2016),
    }


def test_latex_with_a_printed_bibliography() -> None:
    metadata, text = read_text(TEXTS / "printed")
    assert (metadata.id, metadata.year) == ("paper", 2019)
    assert {key: reference.authors for key, reference in text.references.items()} == {
        "a": ("Nivre", "Scholz"),
        "b": ("Kim", "Park", "Lund"),
        "c": ("Lee",),
        "d": ("Müller", "Øster"),
    }
    assert "Graph networks for structured text. CoRR" in text.references["b"].text


def test_latex_with_a_biblatex_bibliography() -> None:
    _, text = read_text(TEXTS / "biblatex")
    assert text.paragraphs[1].text.startswith("See [1, 2] and [1] for the graphs")
    assert text.references == {
        "kim": Reference("", "Graph Networks for Structured Text", ("Kim", "Müller"), 2017),
        "book": Reference("", "A Book", (), 0),
    }


def test_arxiv_sources(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "2103.00017v2.tar.gz", "w:gz") as archive:
        archive.add(TEXTS / "2103.00017", ".")
    single = (TEXTS / "printed" / "paper.tex").read_bytes()
    (tmp_path / "hep-th9901001.gz").write_bytes(gzip.compress(single))
    (tmp_path / "data.gz").write_bytes(
        gzip.compress(b'{"id": "a"}')
    )  # not LaTeX: read only if named explicitly
    first, second = documents(tmp_path)
    (same,) = read_documents(SourceFile(TEXTS / "2103.00017" / "main.tex", "2103.00017v2"), lambda done: None)
    assert first.metadata == same.metadata and first.full_text is not None and same.full_text is not None
    assert first.full_text() == same.full_text()
    assert (second.metadata.id, second.metadata.year) == ("hep-th9901001", 1999)
    (named,) = documents(tmp_path / "data.gz")
    assert named.metadata.id == "a"


def test_invalid_archives(tmp_path: Path) -> None:
    path = tmp_path / "a.tar.gz"
    growing = "\\documentclass{a}\\def\\a#1{#1#1#1#1#1#1#1#1#1#1}" + "\\a{" * 9 + "b" + "}" * 9
    (tmp_path / "p.tex").write_text(growing)
    for names, message in (
        (["../p.tex"], "damaged archive: .*outside the destination"),
        ([], "the archive has no LaTeX document"),
        (["x/p.tex"], r"/x/p\.tex: the macro .* expands to too much"),
    ):
        with tarfile.open(path, "w:gz") as archive:
            for name in names:
                archive.add(tmp_path / "p.tex", name)
        with pytest.raises(InputError, match=rf"^{path}.*{message}"):
            documents(path)
    path.write_bytes(path.read_bytes()[:40])
    with pytest.raises(InputError, match=rf"^{path}: damaged"):
        documents(path)


def test_latex_reads_no_file_outside_its_folder(tmp_path: Path) -> None:
    (tmp_path / "secret.tex").write_text("secret")
    folder = tmp_path / "paper"
    folder.mkdir()
    (folder / "link.tex").symlink_to(tmp_path / "secret.tex")
    inputs = (
        f"\\input{{../secret}} \\input{{{tmp_path}/secret.tex}} \\input link \\include{{gone}} \\input{{p}}"
    )
    (folder / "p.tex").write_text(f"\\documentclass{{article}} here {inputs}")
    assert "secret" not in read_source(folder / "p.tex")


@pytest.mark.parametrize(
    "definition", [r"\newcommand{\chapters}{parts}", r"\newcommand*\chapters{parts}", r"\def\chapters{parts}"]
)
def test_chapters_by_macros(tmp_path: Path, definition: str) -> None:
    write_files(tmp_path / "parts", {f"{name}.tex": f"Chapter {name}." for name in ("one", "two")})
    chapters = r"\include{\chapters/one} \includepaper{parts/two} \input{\unknown/three}"
    (tmp_path / "p.tex").write_text(f"{definition} {chapters}")
    assert read_source(tmp_path / "p.tex").split() == ["Chapter", "one.", "Chapter", "two."]


@pytest.mark.parametrize(
    ("text", "keys"),
    [
        (r"\citet{lee}{ examines trees}", ["lee"]),
        (r"\citeyear{lee} {\sc Trees}", ["lee"]),
        (r"\autocites[3]{lee}[4]{diaz, bo}", ["lee", "diaz", "bo"]),
        (r"\Textcites{lee}{diaz}", ["lee", "diaz"]),
    ],
)
def test_only_plural_commands_have_several_groups_of_keys(text: str, keys: list[str]) -> None:
    (citation,) = LATEX.citations(text)
    assert citation.cited == keys


LETTERS = "abcdefghijklmnopqrst"


@pytest.mark.parametrize(
    "macros",
    [
        "".join(f"\\def\\m{a}{{\\m{b}\\m{b}}}" for a, b in pairwise(LETTERS)) + "\\ma",
        "\\newcommand{\\x}[1]{#1#1#1#1#1#1#1#1#1#1}" + "\\x{" * 12 + "y" + "}" * 12,
    ],
)
def test_macros_that_expand_to_too_much_are_rejected(
    tmp_path: Path, macros: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("citerec.formats.drafts.latex_source.MAX_MACROS", 1000)
    path = tmp_path / "p.tex"
    path.write_text(f"\\documentclass{{article}} {macros}")
    with pytest.raises(InputError, match=r"p\.tex: the macro .* expands to too much"):
        read_source(path)


@pytest.mark.parametrize(
    "macros, text",
    [
        (r"\def\a{b \@ifnextchar\a{c}{d}} \a", r"b \@ifnextchar\a{c}{d}"),
        (r"\newcommand\a[1]{\b{#1}}\newcommand\b[1]{(\a{#1})} \a{x}", r"(\a{x})"),
        (r"\newcommand\a[1]{(#1)} \a{\a{x}}", "((x))"),
        (r"\newcommand\a[1]{#1{x}}\newcommand\b[1]{(#1)} \a\b", "(x)"),
    ],
)
def test_macros_that_use_themselves_are_expanded_once(tmp_path: Path, macros: str, text: str) -> None:
    """What guards the recursion is not evaluated; uses within arguments are no recursion."""
    path = tmp_path / "p.tex"
    path.write_text(f"\\documentclass{{article}} {macros}")
    assert read_source(path).split(maxsplit=1)[1] == text


@given(st.text(st.sampled_from("ab \\{}$%[]&~^_#\n'`-") | st.characters(codec="utf-8"), max_size=60))
def test_any_latex_is_converted_to_text(latex: str) -> None:
    text = plain_text(latex)
    assert text == " ".join(text.split())


def write_papers(folder: Path, names: str) -> None:
    (folder / "a").mkdir()
    write_files(folder, dict.fromkeys(names.split(), "\\documentclass{a} @key [@key] [cite:@key]"))


def test_files_of_a_folder_a_pattern_and_by_name(tmp_path: Path) -> None:
    names = "b.jsonl a.jsonl.gz notes.txt x/y/c.xml p1/main.tex p1/a.run.xml p2/v1.tex p2/v2.tex"
    files = dict.fromkeys(names.split(), "\\documentclass{a}")
    write_files(tmp_path, files | {"x/part.tex": "% \\documentclass\n"})
    ids = {str(file.path.relative_to(tmp_path)): file.id for file in find_files(str(tmp_path))}
    assert ids == {
        "a.jsonl.gz": "a.jsonl",
        "b.jsonl": "b.jsonl",
        "p1/main.tex": "p1",
        "p2/v1.tex": "v1",
        "p2/v2.tex": "v2",
        "x/y/c.xml": "c",
    }
    names = "a/latex/main.tex b/latex/main.tex c/2101.00001.tex d/2101.00001.xml"
    write_files(tmp_path / "again", dict.fromkeys(names.split(), "\\documentclass{a}"))
    again = [file.id for file in find_files(str(tmp_path / "again"))]
    assert again == ["a_latex", "b_latex", "c", "2101.00001"]
    (tmp_path / "again" / "c" / "other.tex").write_text("\\documentclass{a}")  # same arXiv id: one paper
    again = [file.id for file in find_files(str(tmp_path / "again"))]
    assert again[2:] == ["2101.00001", "other", "2101.00001"]
    several = [str(tmp_path / "notes.txt"), str(tmp_path / "*.jsonl"), str(tmp_path / "b.jsonl")]
    assert [file.path.name for file in find_files(several)] == ["notes.txt", "b.jsonl"]
    for missing in (str(tmp_path / "*.zip"), str(tmp_path / "gone"), str(tmp_path / "x" / "part.tex"), ""):
        with pytest.raises(InputError, match=r"^source: "):
            find_files(missing)


@pytest.mark.parametrize(
    ("names", "source", "ids"),
    [
        ("a/paper.tex", "*.tex", ["paper"]),
        ("a/index.md", "*.md", ["index"]),
        ("paper.tex", "../*.tex", ["paper"]),
    ],
)
def test_a_folder_without_a_name_is_no_id(
    names: str, source: str, ids: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_papers(tmp_path, names)
    monkeypatch.chdir(tmp_path / "a")
    assert [file.id for file in find_files(source)] == ids


@pytest.mark.parametrize(
    ("names", "ids"),
    [
        ("a/paper.org a/paper.tex a/other.tex", ["other", "paper", "paper"]),
        ("a/x.nxml a/x.tei.xml", ["x", "x"]),
        ("a/x.nxml a/x.xml b/x.xml", ["a_x", "a_x", "b_x"]),
        ("a/x.md a/x/main.tex", ["x", "x"]),
    ],
)
def test_equal_names_in_a_folder_do_not_lengthen_ids(names: str, ids: list[str], tmp_path: Path) -> None:
    write_papers(tmp_path, names)
    assert sorted(file.id for file in find_files(str(tmp_path))) == ids


@pytest.mark.parametrize(
    ("name", "source", "reason"),
    [
        ("paper.pdf", "paper.pdf", "paper.pdf: .pdf files are not read; convert it to TEI with GROBID"),
        ("paper.doc", "paper.doc", "paper.doc: .doc files are not read; convert it to Markdown (pandoc"),
        ("refs.bib", "refs.bib", "refs.bib: has no running text; add the files that cite it"),
        (
            "l1.tex",
            "l1.tex",
            "l1.tex: no \\documentclass in l1.tex, a chapter; give the main file or its folder",
        ),
        ("x/l1.tex", "x", "x: no \\documentclass in l1.tex, a chapter; give the main file or its folder"),
        ("x/a.csv", "x", "x: no such file, or a folder without .jsonl"),
        ("x/a.csv", "gone.tex", "gone.tex: no such file, or a folder without .jsonl"),
    ],
)
def test_files_without_readable_text_say_what_to_do(
    tmp_path: Path, name: str, source: str, reason: str
) -> None:
    write_files(tmp_path, {name: "@article{a}"})
    with pytest.raises(InputError, match=re.escape(f"source: {tmp_path}/{reason}")):
        find_files(str(tmp_path / source))


@pytest.mark.parametrize(
    "authors",
    [
        r"\author{Ann Writer$^{1,2}$, Bo Author\thanks{Equal, both.} and Cy Third\footnotemark[1]}",
        r"\author{Ann Writer\textsuperscript{1,*} \and Bo Author\inst{2} \and Cy~Third}",
        r"\author[1]{Ann Writer\affil[1]{A Lab, B}}\author{Bo Author\orcid{0000}}\author{Cy Third}",
        r"\author{Ann~Writer\altaffilmark{1,2}, Bo~Author\altaffilmark{\counter}, and Cy~Third}",
        r"\author{\IEEEauthorblockN{1\textsuperscript{st} Ann Writer}\IEEEauthorblockA{\textit{Lab}, City}"
        r"\and Bo Author,~\IEEEmembership{Life Fellow, IEEE} and Cy Third}",
        r"\author{\name Ann Writer \email a@b.c \\ \addr A Lab \AND Bo Author ~~ Cy Third\hspace{1em}}",
    ],
)
def test_author_marks_and_notes_are_removed(tmp_path: Path, authors: str) -> None:
    path = tmp_path / "p.tex"
    path.write_text(rf"\documentclass{{a}}\usepackage{{acl2018}}{authors}\begin{{document}}\end{{document}}")
    (document,) = documents(path)
    assert document.metadata.authors == ("Ann Writer", "Bo Author", "Cy Third")
    assert document.metadata.year == 2018


def test_standalone_chapters_are_read(tmp_path: Path) -> None:
    chapter = (
        "\\documentclass[p]{subfiles}\\title{Not this}\\begin{document}CHAPTER\\newcite{%s}.\\end{document}"
    )
    for name in ("one", "two"):
        (tmp_path / f"{name}.tex").write_text(chapter % name)
    (tmp_path / "p.tex").write_text(
        "\\documentclass{a}\\begin{document}\\subfile{one}\\subfile{two} last \\inlinecite{three}"
        "\\bibitem{one}A\\bibitem{two}B\\bibitem{three}C\\end{document} \\cite{four}"
    )
    (paragraph,) = read_text(tmp_path / "p.tex")[1].paragraphs
    assert [span.ref for span in paragraph.citations] == ["one", "two", "three"]
    assert "CHAPTER[1]. CHAPTER[2]. last [3]" in paragraph.text


def test_latex_inputs_are_limited(tmp_path: Path) -> None:
    text = "\\documentclass{a}\\begin{document}"
    paper = tmp_path / "p.tex"
    (tmp_path / "empty.tex").write_text("")
    for number in range(30):
        (tmp_path / f"{number}.tex").write_text(f"{number} \\input{{{number + 1}}}")
    for inputs in ("\\input{empty}" * 2000, "\\input{0}"):
        paper.write_text(text + inputs)
        with pytest.raises(
            InputError, match=r"the document has more than 1,000 inputs or more than 20 levels"
        ):
            read_source(paper)
    paper.write_text(text + "\\input{empty}\\input{15}")
    assert "15 16 17" in read_source(paper)


@pytest.mark.parametrize(
    ("command", "place"),
    [
        (r"\addbibresource{/Users/ann/Library/refs.bib}", "refs.bib"),
        (r"\bibliography{/home/ann/refs}", "library/refs.bib"),
        (r"\addbibresource{C:\Users\ann\refs.bib}", "a/b/refs.bib"),
        (r"\bibliography{../refs}", "refs.bib"),
    ],
)
def test_a_bib_file_that_moved_is_found_by_its_name(tmp_path: Path, command: str, place: str) -> None:
    folder = tmp_path / "paper"
    (folder / place).parent.mkdir(parents=True)
    (folder / place).write_text("@misc{trees, title={Parsing Trees}}")
    (tmp_path / "refs.bib").write_text("@misc{trees, title={Outside of the folder}}")
    (folder / "p.tex").write_text(
        rf"\documentclass{{a}}\begin{{document}}Trees \cite{{trees}}.{command}\end{{document}}"
    )
    assert read_text(folder / "p.tex")[1].references["trees"].title == "Parsing Trees"
