"""`citerec check`: the citations of a draft against its bibliography and a library."""

from __future__ import annotations

import json
import unicodedata
from pathlib import Path

import pytest

from citerec.base.errors import InputError
from citerec.formats.bibliography.paper import LibraryPaper, is_preprint, is_published, make_paper
from citerec.library.drafts.check import check
from citerec.library.drafts.reader import read_draft
from citerec.library.papers.library import Library
from citerec.library.settings import CheckSettings
from citerec.library.sources.finding import find_sources
from citerec.tests.conftest import Run
from citerec.tests.datasets.conftest import write_files

BIB = r"""
@string{nips = "NeurIPS"}
@article{vaswani2017,
  title = {Attention Is All You Need}, author = {Ashish Vaswani}, year = 2017, eprint = {1706.03762},
  archiveprefix = {arXiv}, journal = {arXiv preprint arXiv:1706.03762}}
@inproceedings{vaswaniNips,
  title = {Attention is all you need}, author = {Vaswani, A.}, year = 2017, booktitle = nips}
@article{kingma2015,
  title = {Adam: A Method for Stochastic Optimization}, author = {D. Kingma}, eprint = {1412.6980},
  archiveprefix = {arXiv}}
@article{lee2020,
  title = {Graphs of many edges}, author = {Ann Lee}, year = 2020, journal = {J}, doi = {10.1000/a}}
@article{leeAgain,
  title = {Graphs of Many Edges}, author = {Lee, Ann}, year = 2020, journal = {J}}
@article{wrongDoi,
  title = {Something else altogether}, author = {Bo Ek}, year = 2011, journal = {J}, doi = {10.1000/a}}
@incollection{chapter, title = {A chapter}, author = {Cy Oh}, crossref = {book}}
@book{book, title = {The whole book}, editor = {Cy Oh}, year = 2001}
@article{twice, title = {Two of a kind}, journal = {J}, year = 2002}
@article{twice, title = {Two of a kind}, journal = {J}, year = 2002}
@article{unused, title = {Never read by anyone}, journal = {J}, year = 2003}
@article{mentioned, title = {Only in the list}, journal = {J}, year = 2004}
"""
TEX = r"""\documentclass{article}
\begin{document}
We use attention \citep[see][p.~2]{vaswani2017, lee2020} and \citet{leeAgain}.
% \cite{commented}
\cite{kingma2015,%
  wrongDoi} and \cite{chapter}; \cite{?} \cite{TODO:x}
\input{part}
\nocite{mentioned}
\bibliography{refs}
\end{document}
"""
PART = "More \\cite{leee2020} and \\footnote{\\cite{twice}, \\cite{inLibrary}}.\n\\verb|\\cite{code}|\n"
EXPECTED = [
    ("unknown", "part.tex:1: leee2020 is unknown in refs.bib; did you mean lee2020?"),
    ("unknown", "part.tex:1: inLibrary is unknown in refs.bib"),
    ("duplicate", "refs.bib:20: twice is defined twice; the first is in refs.bib:19"),
    ("preprint", "refs.bib:3: vaswani2017 is a preprint; vaswaniNips (refs.bib:6) is published"),
    ("duplicate", "refs.bib:13: leeAgain is the same paper as lee2020 (refs.bib:11); both are cited"),
    (
        "duplicate",
        "refs.bib:15: wrongDoi has the DOI of lee2020 (refs.bib:11), but another title; one of them is wrong",
    ),
    ("uncited", "refs.bib:6: vaswaniNips is never cited"),
    ("uncited", "refs.bib:21: unused is never cited"),
]


@pytest.fixture
def run(command: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    """Runs `citerec check ...` beside draft.tex: (exit code, stdout, stderr)."""
    monkeypatch.chdir(tmp_path)
    write_files(tmp_path, {"refs.bib": BIB, "draft.tex": TEX, "part.tex": PART})

    def run_(*arguments: str) -> tuple[int, str, str]:
        return command("check", *arguments)

    return run_


@pytest.fixture
def library(tmp_path: Path) -> str:
    papers = [
        make_paper(key="inLibrary", title="Only the library has it"),
        make_paper(
            key="adam", title="Adam: a method for stochastic optimization", authors=["Diederik Kingma"],
            year=2015, venue="ICLR", arxiv="1412.6980", doi="10.1000/adam",
        ),
    ]  # fmt: skip
    return str(Library.create(tmp_path / "mine", papers, model="bm25").path)


def test_findings(run: Run) -> None:
    code, out, _ = run("draft.tex")
    assert (code, out.splitlines()) == (
        0,
        [*(line for _, line in EXPECTED), "draft.tex: cites 9 keys; 8 findings"],
    )
    code, out, _ = run("draft.tex", "format=json", "strict=true")
    found = json.loads(out)["findings"]
    names = [f"{Path(one['file']).name}:{one['line']}: {one['key']} {one['message']}" for one in found]
    assert code == 1 and [(one["kind"], name) for one, name in zip(found, names, strict=True)] == EXPECTED


def test_a_library_knows_keys_and_published_versions(run: Run, library: str) -> None:
    lines = run("draft.tex", f"library={library}")[1].splitlines()
    assert "part.tex:1: inLibrary is not in refs.bib, but in the library: Only the library has it" in lines
    assert "refs.bib:8: kingma2015 is a preprint; published: ICLR, 2015, doi:10.1000/adam" in lines
    assert len(lines) == len(EXPECTED) + 2
    Path("refs.bib").unlink()
    lines = run("draft.tex", f"library={library}")[1].splitlines()
    assert "draft.tex:3: vaswani2017 is unknown in its bibliography and the library" in lines
    assert not any("inLibrary" in line for line in lines)


@pytest.mark.parametrize("ends", ["\n", "\r\n"])
def test_markdown(run: Run, ends: str) -> None:
    text = (
        "---\nbibliography: [refs.bib, more.json]\nnocite: |\n  @mentioned, @unused\n---\n"
        "As @lee2020 and [see @nobody; @inJson; @fig:one] say, `@code` (https://x.org/@name) [@?].\n"
    )
    Path("draft.md").write_bytes(text.replace("\n", ends).encode())
    Path("more.json").write_text('[{"id": "inJson", "title": "T"}]', encoding="utf-8")
    lines = run("draft.md")[1].splitlines()
    assert lines[0] == "draft.md:6: nobody is unknown in refs.bib or more.json"
    assert [line for line in lines if "unused" in line or "mentioned" in line or "draft.md:" in line] == [
        lines[0],
        lines[-1],
    ]
    Path("draft.md").write_text(
        "---\nbibliography: refs.bib\nnocite: '@*'\n---\nAs @lee2020 says.\n", encoding="utf-8"
    )
    assert "never cited" not in run("draft.md")[1]


LISTED = json.dumps(
    [
        {"id": "beans", "type": "book", "title": "RETRACTED: On beans", "DOI": "10.1000/beans"},
        {"id": "moss", "type": "book", "title": "Moss of the northern moorland", "DOI": "10.1000/moss"},
        {"id": "moss2", "type": "book", "title": "Moss of the northern moorland", "ISBN": "9783518276025"},
    ]
)
WORKS = """
beans: {type: book, title: "RETRACTED: On beans"}
moss: {type: book, title: Moss of the northern moorland}
moss2: {type: book, title: Moss of the northern moorland, serial-number: {isbn: "9783518276025"}}
"""


@pytest.mark.parametrize(
    ("draft", "text", "name", "listed"),
    [
        ("d.md", "---\nbibliography: l.json\n---\nWe [@beans; @moss; @moss2] do.\n", "l.json", LISTED),
        ("d.typ", 'We @beans @moss @moss2 do. #bibliography("l.yaml")\n', "l.yaml", WORKS),
    ],
)
def test_entries_that_are_not_in_a_bib_file_are_checked(
    draft: str, text: str, name: str, listed: str, run: Run, command: Run
) -> None:
    Path(draft).write_text(text, encoding="utf-8")
    Path(name).write_text(listed, encoding="utf-8")
    doubled = f"is the same paper as moss ({name})"
    assert run(draft)[1].splitlines() == [
        f"{name}: moss2 {doubled}; both are cited",
        f"{name}: beans was retracted (its title)",
        f"{draft}: cites 3 keys; 2 findings",
    ]
    wrong = "contradicted: isbn 9783518276025 (its check digit is wrong)"
    lines = command("references", draft)[1].splitlines()
    assert lines[0] == f"{name}: beans unknown; retracted (its title)"
    assert lines[2] == f"{name}: moss2 {wrong}; {doubled}"


def test_a_file_of_papers_stands_for_a_library(run: Run, command: Run) -> None:
    Path("own.bib").write_text("@misc{inLibrary, title = {Only the library has it}}\n", encoding="utf-8")
    lines = run("draft.tex", "library=own.bib", "bib=refs.bib")[1].splitlines()
    assert "part.tex:1: inLibrary is not in refs.bib, but in the library: Only the library has it" in lines
    assert command("references", "library=own.bib")[1].startswith("own.bib: inLibrary unknown\n")


def test_lines_of_keys_in_own_macros_and_attributions(run: Run) -> None:
    text = "% lost2020\n\\newcommand{\\pc}[1]{\\citep{#1}}\n\nTrees \\pc{lost2020}.\n\\bibliography{refs}\n"
    Path("draft.tex").write_text(text, encoding="utf-8")
    assert run("draft.tex")[1].startswith("draft.tex:4: lost2020 is unknown in refs.bib")
    text = '#quote(attribution: <lost2020>)[Trees grow.] So @lost2020.\n#bibliography("refs.bib")\n'
    Path("draft.typ").write_text(text, encoding="utf-8")
    assert run("draft.typ")[1].startswith("draft.typ:1: lost2020 is unknown in refs.bib")


def test_many_uncited_entries_are_counted(run: Run) -> None:
    entries = [f"@article{{x{n}, title = {{Title number {n} of many}}, year = 2000}}" for n in range(30)]
    Path("refs.bib").write_text("\n".join(entries), encoding="utf-8")
    Path("draft.tex").write_text("\\documentclass{article}\\cite{x1}\\bibliography{refs}", encoding="utf-8")
    out = run("draft.tex")[1]
    assert out.count("is never cited") == 10 and "refs.bib: 19 more are never cited" in out
    code, out, _ = run("draft.tex", "format=json", "strict=true")
    assert code == 0 and len(json.loads(out)["findings"]) == 29  # of a .bib that others share


def test_a_printed_bibliography(run: Run) -> None:
    Path("draft.tex").write_text(
        "\\documentclass{article}\\begin{document}\\cite{a,b}\n"
        "\\begin{thebibliography}{1}\\bibitem{a} A. Lee. Title.\\end{thebibliography}\\end{document}",
        encoding="utf-8",
    )
    assert run("draft.tex")[1].startswith("draft.tex:1: b is unknown in its bibliography\n")


@pytest.mark.parametrize(
    ("named", "options", "unknown"),
    [("refs", [], "d"), ("IEEEabrv,refs", [], "d"), ("x,refs", [], ""), ("x", ["bib=refs.bib"], "d")],
)
def test_what_only_an_old_bbl_has_is_unknown(named: str, options: list[str], unknown: str, run: Run) -> None:
    """It tells nothing new of a .bib file that is read, but all of one that is not."""
    items = "\\bibitem{twice} A. Lee. Peat. \\bibitem{d} B. Ek. Moss."
    Path("draft.bbl").write_text(f"\\begin{{thebibliography}}{{1}}{items}\\end{{thebibliography}}")
    Path("draft.tex").write_text(f"\\cite{{twice}}\\cite{{d}}\\bibliography{{{named}}}")
    lines = run("draft.tex", *options)[1].splitlines()
    assert [line.split()[1] for line in lines if "unknown" in line] == unknown.split()


FILES = {
    "import": (
        {
            "draft.tex": "\\import{ch/}{one} \\cite{a} \\subimport{gone/}{two}\\bibliography{refs}",
            "ch/one.tex": "\n\\cite{b}, \\volcite{2}{ghost1}\n\\input{in}",
            "ch/in.tex": "\\cites(see)()[1]{a}{ghost2} \\nocite{c,ghost4}",
            "refs.bib": "a b c d",
        },
        ["ch/one.tex:2: ghost1", "ch/in.tex:1: ghost2", "ch/in.tex:1: ghost4", "refs.bib:4: d"],
        "\\subimport{gone/two} is not followed: there is no such file",
    ),
    "part": (
        {
            "draft.tex": "\\cite{ghost1}\n\\includestandalone{fig}\n\\cite{a,ghost3}\\bibliography{refs}",
            "fig.tex": "\\documentclass[border={1pt}]{standalone}\n\\begin{document}\n"
            "\\cite{ghost2}\\end{document} \\cite{b}",
            "refs.bib": "a",
        },
        ["draft.tex:1: ghost1", "draft.tex:3: ghost3", "fig.tex:3: ghost2"],
        "",
    ),
    "macro": (
        {
            "draft.tex": "\\usepackage{mine}\\cite{a}\n\\pick{b}\n\\pick{ghost1}\\bibliography{refs}",
            "mine.sty": "\\newcommand{\\pick}[1]{(\\cite{#1})}",
            "refs.bib": "a b",
        },
        ["draft.tex:3: ghost1"],
        "",
    ),
    "aliases": (
        {
            "draft.tex": "\\cite{peat}\\cite{moss}\\bibliography{refs}",
            "refs.bib": "@misc{moss, ids={peat}, title={A}}",
        },
        [],
        "",
    ),
    "typst": (
        {
            "draft.typ": '#import "@preview/cetz:0.3.0"\n#include "ch.typ"\n@results @results:3 @a @ghost1\n'
            '#include "x.lhs"\n#bibliography("refs.bib")',
            "ch.typ": '= Results <results>\n#cite(form: "prose", <ghost2>)',
            "x.lhs": "@ghost3",
            "refs.bib": "a",
        },
        ["draft.typ:3: ghost1", "ch.typ:2: ghost2", "x.lhs:1: ghost3"],
        "",
    ),
    "full": ({"draft.typ": '@a #bibliography("refs.bib", full: true)', "refs.bib": "a b"}, [], ""),
    "metadata": (
        {"draft.md": "---\ntitle: T\nabstract: On @a, @ghost1.\n---\n@b [@?]", "refs.bib": "a b"},
        ["draft.md:3: ghost1"],
        "",
    ),
    "org": (
        {
            "draft.org": "cite:a,ghost1 [cite/n:@ghost2]\n#+include: ch.org\nbibliography:refs.bib",
            "ch.org": "[[cite:&ghost3]]",
            "refs.bib": "a",
        },
        ["draft.org:1: ghost1", "ch.org:1: ghost3", "draft.org:1: ghost2"],
        "",
    ),
    "quarto": (
        {
            "draft.qmd": "---\ntags: ['@x']\nnocite: ['@b', '@ghost1']\n"
            "crossref: {custom: [{key: dia}]}\n---\n@Fig-a @dia-b @alg-c @a [@handle](https://x.org)\n"
            "\n    @code\n",
            "refs.bib": "a b",
        },
        ["draft.qmd:3: ghost1"],
        "",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FILES)
def test_drafts_of_several_files(name: str, run: Run) -> None:
    files, expected, note = FILES[name]
    for old in Path().iterdir():
        old.unlink()
    for file, text in files.items():
        Path(file).parent.mkdir(exist_ok=True)
        if file.endswith(".bib") and "@" not in text:
            text = "".join(f"@misc{{{key}, title={{A paper on {key}}}}}\n" for key in text.split())
        Path(file).write_text(text, encoding="utf-8")
    out = run(next(iter(files)))[1].splitlines()
    found = [line for line in out[:-1] if not line.startswith("note: ")]
    assert [" ".join(line.split()[:2]) for line in found] == expected
    assert [line for line in out if line.startswith("note: ")] == ([f"note: {note}"] if note else [])


def test_which_bib_files(run: Run) -> None:
    Path("draft.tex").write_text("\\cite{lee2020}\\cite{other}\\bibliography{refs}", encoding="utf-8")
    Path("other.bib").write_text("@misc{other, title={Another paper}}", encoding="utf-8")
    assert "other is unknown in refs.bib" in run("draft.tex")[1]
    assert "lee2020 is unknown in other.bib" in run("draft.tex", "bib=other.bib")[1]
    assert "unknown" not in run("draft.tex", "bib=[refs.bib,other.bib]")[1]
    Path("more").mkdir()
    Path("more/refs.bib").write_text("@misc{other, title={Another paper}}", encoding="utf-8")
    assert "unknown" not in run("draft.tex", "bib=[refs.bib,more/refs.bib]")[1]
    assert run("draft.tex", "bib=gone.bib")[::2] == (2, "error: bib=gone.bib: no such file\n")
    Path("empty.bib").write_text("", encoding="utf-8")
    assert "note: empty.bib has no entries\n" in run("draft.tex", "bib=[refs.bib,empty.bib]")[1]


def test_yearly_reports_are_different_papers(run: Run) -> None:
    report = "@techreport{r%d, title={Report on the Forests of Finland}, author={{Forest Office}}, year=%d}\n"
    Path("refs.bib").write_text(
        "".join(report % (year, year) for year in (2018, 2019, 2020)), encoding="utf-8"
    )
    Path("draft.tex").write_text("\\cite{r2018,r2019}\\cite{r2020}\\bibliography{refs}", encoding="utf-8")
    assert run("draft.tex")[1] == "draft.tex: cites 3 keys; 0 findings\n"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (
            "\\documentclass{article}\\cite{a}",
            "in its folder, and none is beside it; give bib=FILE, library=DIR or root=",
        ),
        ("\\documentclass{article}\\cite{a}\\bibliography{missing}", "none is beside it"),
    ],
)
def test_bad_input(run: Run, text: str, line: str) -> None:
    Path("refs.bib").unlink()
    Path("draft.tex").write_text(text, encoding="utf-8")
    code, _, err = run("draft.tex")
    assert code == 2 and line in err
    assert run("missing.tex")[::2] == (2, f"error: {Path('missing.tex').resolve()}: no such file\n")


@pytest.mark.parametrize(
    ("paper", "preprint", "published"),
    [
        (LibraryPaper("x", arxiv="2001.00001"), True, False),
        (LibraryPaper("x", arxiv="2001.00001", venue="ICLR"), False, True),
        (LibraryPaper("x", venue="CoRR"), True, False),
        (LibraryPaper("x", venue="bioRxiv", doi="10.1101/2020.01.01"), True, False),
        (LibraryPaper("x", venue="bioRxiv", doi="10.64898/2025.12.08.693042"), True, False),
        (LibraryPaper("x", doi="10.31223/x5abcd"), True, False),
        (LibraryPaper("x", venue="arXiv preprint", doi="10.1000/a"), False, True),
        (LibraryPaper("x"), False, False),
    ],
)
def test_preprints(paper: LibraryPaper, preprint: bool, published: bool) -> None:
    assert (is_preprint(paper), is_published(paper)) == (preprint, published)


@pytest.mark.parametrize(
    "text", ["\\input{loop}", "{{< include loop.md >}}", '#include "loop.typ"', "#+include: loop.org"]
)
def test_links_that_lead_to_themselves_are_files_that_cannot_be_read(text: str, tmp_path: Path) -> None:
    for name in ("library.bib", "loop.tex", "loop.md", "loop.typ", "loop.org"):
        (tmp_path / name).symlink_to(name)
    suffix = {"\\": "tex", "{": "md", "#i": "typ", "#+": "org"}
    name = f"a.{next(value for start, value in suffix.items() if text.startswith(start))}"
    (tmp_path / name).write_text(f"A title\n\n{text}\n")
    with pytest.raises(InputError, match="names no"):
        check(CheckSettings(tex=str(tmp_path / name)))
    with pytest.raises(InputError, match="Too many levels of symbolic links"):
        check(CheckSettings(tex=str(tmp_path / f"loop.{name[2:]}")))
    for source in (tmp_path / "library.bib", tmp_path / "*.bib"):
        with pytest.raises(InputError, match="no such file"):
            find_sources([str(source)])


@pytest.mark.parametrize(
    ("name", "cited"), [("a.tex", r"\cite{%s}"), ("a.md", "[@%s]"), ("a.typ", "@%s"), ("a.org", "[cite:@%s]")]
)
def test_a_key_whose_accents_are_of_another_form_is_told(run: Run, name: str, cited: str) -> None:
    """macOS and PDFs give u and its dots as two characters."""
    key = unicodedata.normalize("NFD", "müller2020")
    Path("refs.bib").write_text("@book{müller2020, title={Peat}}", encoding="utf-8")
    Path(name).write_text(f"Peat grows {cited % key} here, and [CITE].", encoding="utf-8")
    out = run(f"tex={name}")[1]
    assert f"{name}:1: {key} looks like the key in refs.bib" in out and "1 finding" in out
    [entry] = read_draft(Path(name)).cited.values()
    assert entry is not None and entry.title == "Peat"


@pytest.mark.parametrize(
    ("named", "known"),
    [
        (r"\bibliography{refs}", {"peat"}),
        (r"\usepackage{biblatex}", set()),
        (r"\addbibresource{refs.bib}", set()),
    ],
)
def test_bibtex_takes_keys_in_any_case_but_biber_does_not(named: str, known: set[str], run: Run) -> None:
    """Not a key that two entries share but for the case."""
    Path("refs.bib").write_text(
        "".join(f"@book{{{key}, title={{On {key}}}}}\n" for key in ("Peat", "Moss", "mosS"))
    )
    Path("a.tex").write_text(rf"Bogs \cite{{peat}}, \cite{{moss}}, \cite{{Moss}} \cite{{?}}.{named}")
    lines = [line.split()[1:] for line in run("a.tex")[1].splitlines()]
    assert {key for key, _, what, *_ in lines if what == "unknown"} == {"peat", "moss"} - known
    assert ("Peat" in (key for key, _, what, *_ in lines if what == "never")) == (not known)
    assert {key for key, entry in read_draft(Path("a.tex")).cited.items() if entry} == {"Moss"} | known
