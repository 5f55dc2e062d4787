"""Filled copies that LaTeX, pandoc, Typst and Emacs typeset: make test-peers, with these installed."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from citerec.formats.drafts.languages import draft_language
from citerec.library.commands.change import build
from citerec.library.drafts.suggest import draft
from citerec.library.settings import BuildSettings, DraftSettings

LIBRARY = r"""@string{press = {Čas Press}}
@article{brontë:1849/50, author = {Bront{\"e}, Emil{\'\i}a and {\O}rsted, Hans and others},
  title = {Na{\"\i}ve fa{\c{c}}ades & the 50% rule of river mud}, journal = {\apj}, year = 1998,
  url = {http://example.org/a%20b/~emilia_b?x=1&y=2#top}, abstract = {It is 5% of R&D for $5 and x_i^2.}}
@book{who+2019, author = {{World Health Organization} and {Barnes and Noble, Inc.}}, publisher = press,
  title = {Guidelines on {HIV} self-testing}, year = {in press}, month = feb}
@article{kilo, author = {Kilo, Ann}, title = {Yeast growth in ponds}, journaltitle = {Cotton_Studies},
  date = {2004-07~}}
@phdthesis{o.neil, author = "O'Neil, Cathy", title = "Destruction by {"}tariffs{"}", school = "Uni",
  year = 1995}
"""
ITEMS = """[{"id": "smith+sons_2017", "type": "article-journal", "title": "Costs of A&B: 5 % of $100_{max}",
 "author": [{"literal": "Comité {R&D}"}], "issued": {"date-parts": [[2017, 2, 3], [2018, 2, 9]]},
 "container-title": "Trade & Industry", "abstract": "Bacteria {cost 5% of $100 & more #1 _x_"}]"""
KEYS = ("brontë:1849/50", "who+2019", "kilo", "o.neil", "smith+sons_2017")
MISSING = "Yeast growth in ponds"
OWN = """@article{müller2020,
  author = "M{\\"u}ller, Käthe",
  title = "Zitate",
  journal = "Z. f. Zitate",
  year = "2020"
}
"""
LATEX = r"""\documentclass{article}
\usepackage[T1]{fontenc}
\usepackage{url}
PACKAGES
\begin{document}
As \citet[p.~3]{müller2020} wrote. TEXT
END
\end{document}
"""
BIBLATEX = r"\usepackage[backend=biber,style=authoryear,natbib]{biblatex}\addbibresource{refs.bib}"
NATBIB_END = r"\bibliographystyle{plainnat}\bibliography{refs}"
FORMS = {
    "natbib": (
        ".tex",
        LATEX.replace("PACKAGES", r"\usepackage{natbib}").replace("END", NATBIB_END),
        r"MARKED \citep[see][]{?}.",
    ),
    "biblatex": (
        ".tex",
        LATEX.replace("PACKAGES", BIBLATEX).replace("END", r"\printbibliography"),
        r"MARKED.\footnote{MARKED \citep{?}.}",
    ),
    "pandoc": (
        ".md",
        "---\nbibliography: refs.bib\n---\n\nAs @müller2020 wrote. TEXT\n",
        "MARKED [see @?, p. 3].",
    ),
    "typst": (".typ", 'As @müller2020 wrote. TEXT\n#bibliography("refs.bib")\n', "MARKED @?."),
    "org": (
        ".org",
        "#+bibliography: refs.bib\n#+cite_export: basic\n"
        "As [cite:@müller2020] wrote. TEXT\n\n#+print_bibliography:\n",
        "MARKED [cite:@?].",
    ),
}
"""Suffix, draft, and a sentence of it."""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("library")
    (folder / "a.bib").write_text(LIBRARY)
    (folder / "b.json").write_text(ITEMS)
    sources = (str(folder / "a.bib"), str(folder / "b.json"))
    build(BuildSettings(library=str(folder / "library"), source=sources, model="bm25"))
    return folder / "library"


def run(folder: Path, *command: str) -> str:
    """Run a program, which must succeed; return what it says."""
    if shutil.which(command[0]) is None:
        pytest.skip(f"{command[0]} is not installed")
    done = subprocess.run(command, cwd=folder, capture_output=True, timeout=100, check=False)
    said = (done.stdout + done.stderr).decode(errors="replace")
    assert done.returncode == 0, said[-3000:]
    return said


def copy(library: Path, folder: Path, kind: str) -> str:
    """Fill a draft; return what was written. Every paper of the library is cited in it."""
    suffix, form, sentence = FORMS[kind]
    path = folder / "draft" / f"paper{suffix}"
    cited = " and ".join(draft_language(path).cite(key) for key in KEYS if key != "kilo")
    text = form.replace("TEXT", f"{sentence.replace('MARKED', MISSING)}\n\nAlso {cited}.")
    path.parent.mkdir()
    path.write_text(text)
    (path.parent / "refs.bib").write_text(OWN)
    draft(DraftSettings(library=str(library), tex=str(path), fill=str(folder / "copy"), sure=0))
    written = (folder / "copy" / f"paper{suffix}").read_text()
    assert all(key in written for key in KEYS), written
    assert path.read_text() == text and (path.parent / "refs.bib").read_text() == OWN
    return written


@pytest.mark.parametrize("kind", ["natbib", "biblatex"])
@pytest.mark.slow
def test_latex_typesets_a_copy(kind: str, library: Path, tmp_path: Path) -> None:
    copy(library, tmp_path, kind)
    folder, latex = tmp_path / "copy", ("pdflatex", "-interaction=nonstopmode", "paper.tex")
    run(folder, *latex)
    said = run(folder, "bibtex" if kind == "natbib" else "biber", "paper")
    assert not re.search(r"Warning--|ERROR|Illegal", said), said
    run(folder, *latex)
    run(folder, *latex)
    log = (folder / "paper.log").read_text(errors="replace")
    assert "undefined" not in log and not re.search("^!", log, re.MULTILINE)
    if kind == "natbib":
        printed = (folder / "paper.bbl").read_text()
        for text in (r"ades} \& the 50\% rule", r"Cotton\_Studies", "July 2004", "Astrophysical Journal"):
            assert text.replace("}", "") in printed.replace("}", ""), printed


@pytest.mark.slow
def test_pandoc_typesets_a_copy(library: Path, tmp_path: Path) -> None:
    copy(library, tmp_path, "pandoc")
    said = run(tmp_path / "copy", "pandoc", "--citeproc", "-t", "plain", "--wrap=none", "paper.md")
    assert "WARNING" not in said and "?)" not in said
    for text in ("Façades & the 50% Rule", "http://example.org/a%20b/~emilia_b?x=1&y=2#top", "Cotton_Studies",
                 "World Health Organization, and Barnes and Noble, Inc.", "A&B: 5 % of $100"):  # fmt: skip
        assert text in said, said


@pytest.mark.slow
def test_typst_typesets_a_copy(library: Path, tmp_path: Path) -> None:
    typst = pytest.importorskip("typst")
    copy(library, tmp_path, "typst")
    assert typst.compile(str(tmp_path / "copy/paper.typ"), format="pdf").startswith(b"%PDF")


@pytest.mark.slow
def test_emacs_typesets_a_copy(library: Path, tmp_path: Path) -> None:
    copy(library, tmp_path, "org")
    export = '(org-export-to-file (quote ascii) "paper.txt")'
    loaded = ("-l", "ox-ascii", "-l", "oc-basic")
    run(tmp_path / "copy", "emacs", "-Q", "--batch", *loaded, "paper.org", "--eval", export)
    printed = " ".join((tmp_path / "copy/paper.txt").read_text().split())
    assert 'O\'Neil, Cathy (1995). /Destruction by {"}tariffs{"}/' in printed and "nil" not in printed
