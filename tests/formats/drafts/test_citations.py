"""What a citation is in each language: the keys of short texts, and of documents in several files."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from citerec.base.errors import InputError
from citerec.datasets.building.readers import find_files
from citerec.formats.drafts import latex_source
from citerec.formats.drafts.bibliographies import References
from citerec.formats.drafts.inputs import Inputs
from citerec.formats.drafts.language import Language, Source
from citerec.formats.drafts.languages import language_of, languages
from citerec.formats.drafts.latex import LATEX
from citerec.tests.datasets.conftest import write_files
from citerec.tests.formats.articles.test_layouts import read_text

KEYS = {
    ".tex": [
        (r"\cite{a}, \citep[see][p.~3]{b, c} \Citet*{d}", "a b c d"),
        (r"\cites(see)(and more)[1]{a}[2]{b}{c} \parencites{d}{e}", "a b c d e"),
        (r"\footcites()(end){a}{b} \Autocites(a)()[][7]{c}", "a b c"),
        (r"\volcite{2}{a} \pvolcite[see]{3}[4]{b} \Volcite{1}[p.~5]{c}", "a b c"),
        (r"\volcites{1}{a}{2}{b} \ftvolcite{7}{c}", "a b c"),
        (r"\citefield{a}{title} \citelist{b}{publisher} \citename{c}{author} \citeurl{d}", "a b c d"),
        (
            r"\textcquote[see][3]{a}[.]{text, x} \blockcquote*{b}{text} \hybridblockcquote{german}{c}{t}",
            "a b c",
        ),
        (r"\foreigntextcquote{german}[3]{a}{Wort} \begin{displaycquote}[4]{b}Q\end{displaycquote}", "a b"),
        (r"\begin{foreigndisplaycquote}{german}{a}Q\end{foreigndisplaycquote} \mycquoted{x}", "a"),
        (r"\apud{a}{b} \apudonline[p.~2]{c}{d} \apudx{e}{f} \citecolor{red}", "a b c d"),
        (r"\lstinline[style=inline]!\cite{a}! \mintinline{tex}|\cite{b}| \cite{c}", "c"),
        (r"\citep[see \citealp{b}, and \citet[p.~2]{c}]{a} \cite{d}", "b c a d"),
        (r"\cite[{see [1]}]{a} \cite[as in [2]][3]{b}", "a b"),
        ("\\cite{a,% first, second\n  b}\\cite%\n  {c}", "a b c"),
        (r"\newcites{web}{Web pages} \citeweb{a} \nocite{b} \bibentry{c}", "a b c"),
        (r"\defcitealias{a}{Paper I} \citetalias{b} \citetext{see \citealp{c}} \citestyle{egu}", "b c"),
        (r"\bibitem[\protect\citeauthoryear{Lee}{Lee}{2019}]{x} \bibitem[\astroncite{Lee}{2019}]{x}", ""),
        (r"\bibitem[\protect\citename{Lee, }2019]{x} \setcitestyle{x} \DeclareCiteCommand{\my}", ""),
        (r"\newcommand{\pcite}[2][]{(see~\cite[#1]{#2})} \pcite[p.~3]{a} \cite{\mykey}", "a"),
        (r"% \cite{a}" + "\n" + r"\verb|\cite{b}| \begin{lstlisting}\cite{c}\end{lstlisting} \cite{d}", "d"),
        (r"\begin{tikzpicture}\node{\cite{a}};\end{tikzpicture}", "a"),
    ],
    ".md": [
        ("As @a and [-@b] say [see @c, p. 3; @d].", "a b c d"),
        ("@a [p. 3] and @b [@c] @d [x](y) @e [^1]", "a b c d e"),
        ("[see @a, pp. [3]; @b [sic]] and [as in [@c]]", "a b c"),
        ("@{a b}: @{https://x.org/?q=1} *@c* <span>@d</span> @e: @f.", "https://x.org/?q=1 c d e f"),
        ("Mail a@x.org, \\@b, https://x.org/@c, [@d](https://x.org) or [@e][s]; `@f`.\n\n[s]: u", ""),
        ("_@a shows_ and/@b, [@c][^1] and [@d][@e] say [@f][s] <!-- or @g: @h.", "a b c d e f g h"),
        ("In @fig-a, @Fig-a, @Tbl-b, @sec:c, @alg-d, @algo-e and @eq-f [@suptbl-g; @h].", "h"),
        ("A\n\n    @code here\n\n- item\n\n    @a\n\n        @code\n\nB @b", "a b"),
        ("\t@code\n\n[^1]: Note\n\n    @a\n\n1. one @b\n\n       @code", "a b"),
        ("`code over\nlines @x` and @a, [@b]{.smallcaps} and ![Of @c](x.png){fig-alt='@x'}", "a b c"),
        ('![Of @a](x.png){width=3 title="@x"} [@b]{key="@y"}', "a b"),
        ("<style>\n@media print {}\n</style>\n@a <!-- @b -->\n\n~~~\n@c\n~~~\n", "a"),
        ("---\ntitle: '@x'\ntags: [\"@y\"]\nnocite: ['@a', '@b']\n---\n@c", "a b c"),
        ("---\nnocite: |\n  @a, @b\nauthor: {twitter: '@x'}\n---\n@c", "a b c"),
    ],
    ".typ": [
        ('#cite(<a>) #cite(form: "prose", <b>) #cite(supplement: [p. 3 (top)], <c>)', "a b c"),
        ('#cite(\n  <a>,\n) #cite(label("b"), form: "year") #ref(<c>)', "a b c"),
        ("@a[p. 4] @b[see [1]] @c. @d: @e-f", "a b c d e-f"),
        ('#let c = cite.with(form: "prose")\n#c(<a>) #let y(k) = cite(k, form: "year")\n#y(<b>)', "a b"),
        ('#import "@preview/cetz:0.3.0": canvas\n#let f() = {\n  import "@preview/x:1.0.0"\n}\n@a', "a"),
        ('#link("https://x.org/@x")[@a]\n#let s = "@y"\n#raw("@z") He said "@b".', "a b"),
        ('#text(fill: red)[@a "@b"] #{ let x = "@c"; [@d] }\n#show: f.with(title: "@e", [@f])', "a b d f"),
        ("// @x\n/* @y /* @t */ @s */ `@z` $@w$ https://x.org/@v a@x.org \\@u @a", "a"),
        ("Trees grow.@a Word@b 研究@c, 5@d/@e@f", "a b c d e f"),
        ("@fig-a @tbl:b @c", "c"),
    ],
    ".org": [
        ("[cite:@a] [cite/t:see @b p. 3; also @c; and so on] [cite/noauthor/c:@d]", "a b c d"),
        ("[cite:@o'neil2020] [cite:see @a [sic] end; @b*c]", "o'neil2020 a b*c"),
        ("cite:a,b citep:c autocite:d. parencite:e (textcite:f)", "a b c d e f"),
        ("[[cite:&a;&b]] [[citet:see &c p. 3]] [[cite:d]] [[citep:e,f][p]] cite:&g;&h.", "a b c d e f g h"),
        ("[cite/n:@a] [cite/nocite:@b] nocite:c [[nocite:&d]]", "a b c d"),
        ("\\cite{a} and \\citep[p.~3]{b}", "a b"),
        ("~[cite:@x]~ =cite:y= (=[cite:@z]=)\n# cite:w\n: cite:v\n[cite:@a]", "a"),
        ("#+begin_src org\n[cite:@u]\n#+end_src\n#+begin_example\ncite:b\n#+end_example\ncite:a", "a"),
        ("* A :noexport:\n[cite:@a]\n** B\ncite:b\n* COMMENT C\ncite:c\n* D\ncite:d", "d"),
        ("#+EXCLUDE_TAGS: gone out\n* A :noexport:\ncite:a\n** B :x:gone:\ncite:b\n** C\ncite:c", "a c"),
        ("* TODO COMMENT A\ncite:a\n* COMMENTS on B\ncite:b", "b"),
        ("Please cite: this. The site:x, a recite:y, https://x.org/cite:z.", ""),
        ("* Head [cite:@a] :tag:\n| x | [cite:@b] |\n#+caption: Of [cite:@c]\n[fn:: note cite:d]", "a b c d"),
    ],
}


@pytest.mark.parametrize(("suffix", "text", "keys"), [(s, *row) for s, many in KEYS.items() for row in many])
def test_keys(suffix: str, text: str, keys: str) -> None:
    language = language_of(suffix)
    assert language is not None
    assert [key.key for key in language.keys(language.visible(text))] == keys.split()


@pytest.mark.parametrize(
    ("suffix", "text", "filled"),
    [
        (".tex", r"\cites(see)[1]{a}[2]{?}", r"\cites(see)[1]{a}[2]{new}"),
        (".tex", r"\textcquote[3]{?}[.]{text}", r"\textcquote[3]{new}[.]{text}"),
        (".tex", r"\begin{displaycquote}[4]{?}", r"\begin{displaycquote}[4]{new}"),
        (".tex", r"\volcite{2}[p]{?}", r"\volcite{2}[p]{new}"),
        (".tex", r"\cite{a, TODO, ?}", r"\cite{a, new, ?}"),
        (".md", "Or^[See @a, [CITE].] [@b or [CITE]]", "Or^[See @a, [@new].] [@b or [CITE]]"),
        (".md", "so [CITE]: or [CITE][CITE]", "so [@new]: or [CITE][CITE]"),
        (".docx", "so [@?]: or [CITE](x)", "so [@new]: or [CITE](x)"),
        (".odt", "so [CITE](x) {[@?]}{a}", "so [@new](x) {[@?]}{a}"),
        (".tex", r"\nocite{?}", None),
        (".tex", r"\emph{trees}[CITE]", r"\emph{trees}\cite{new}"),
        (".tex", r"\citep[cite]{a} \item[CITE]", None),
        (".md", "[see @a; @?]", "[see @a; @new]"),
        (".md", "[CITE]", "[@new]"),
        (".md", "@a [CITE] and @b [p. 3]", "@a [@new] and @b [p. 3]"),
        (".md", "As @TODO [p. 3] said.", "As @new [p. 3] said."),
        (".typ", '#cite(form: "prose", <?>)', '#cite(form: "prose", <new>)'),
        (".typ", "@TODO:lee[p. 3]", "@new[p. 3]"),
        (".org", "[[cite:&?]]", "[[cite:&new]]"),
        (".org", "cite:TODO,a", "cite:new,a"),
        (".org", "[cite:see [1] @? p. 3]", "[cite:see [1] @new p. 3]"),
    ],
)
def test_missing_keys_are_filled(suffix: str, text: str, filled: str | None) -> None:
    language = language_of(suffix)
    assert language is not None
    result = language.fill(text, ["new"])
    assert (result and result[0]) == filled
    masked = language.mask(text.replace("?", "b").replace("TODO", "b"), "new")
    assert masked is None or [key.key for key in language.keys(masked)] == ["new"]


@given(
    st.sampled_from([*languages()]),
    st.text(st.sampled_from('\\{}[]()<>@%#*_`-:;,?&."=+\n acite'), max_size=60),
)
def test_citations_are_in_order_and_apart(language: Language, text: str) -> None:
    end = 0
    for result in language.citations(text):
        assert end <= result.start < result.end <= len(text)
        assert all(result.start <= key.start <= key.end <= result.end for key in result.keys)
        assert all(text[key.start : key.end] == key.key for key in result.keys if key.key)
        end = result.end


# Documents in several files.

BIB = "@article{%s, title = {Trees of %s}, author = {Lee, Ann}, year = 2020}\n"


def read(folder: Path, files: dict[str, str]) -> Source:
    """Write files and read the first. KEY.bib in `files` has the entries that are listed."""
    listed = {name: text.split() for name, text in files.items() if name.endswith(".bib")}
    entries = {name: "".join(BIB % (key, key) for key in keys) for name, keys in listed.items()}
    write_files(folder, files | entries)
    main = folder / next(iter(files))
    language = language_of(main.suffix)
    assert language is not None
    return language.read(main, Inputs())


def keys_in(source: Source) -> set[str]:
    """The keys that a document cites and its bibliography has."""
    return {key for key, entry in source.references.entries(source.keys).items() if entry.title or entry.text}


IN_PLACE = "@book{k, title={Kelp}, author={Heron, Ida}, year={2001}}"
INPUTS = {
    "import": {
        "a.tex": r"\import{ch/}{one} \subimport{ch/two/}{body.tex} \bibliography{refs}",
        "ch/one.tex": r"\cite{a} \input{deep/in}",
        "ch/deep/in.tex": r"\cite{b}",
        "ch/two/body.tex": r"\input{inner} \include{../one}",
        "ch/two/inner.tex": r"\cite{c}",
        "refs.bib": "a b c",
    },
    "macros": {
        "a.tex": r"\newcommand{\chap}[1]{\input{ch/#1}}\let\pc\citep\chap{one}\two{b}{c}\bibliography{refs}"
        r"\NewDocumentCommand{\see}{s O{x} m}{\cite[#2]{#3}}\newrobustcmd{\two}[2]{\cite{#1} and \cite{#2}}",
        "ch/one.tex": r"\see{a} \see*[y]{d} \pc[p.~2]{e} \input{\jobname-more}",
        "a-more.tex": r"\cite{f}",
        "refs.bib": "a b c d e f",
    },
    "folder": {
        "a.tex": r"\input{set}\cd{one}\include{\cwd/_main} \cd{two} \include{\cwd/_main}\bibliography{refs}",
        "set.tex": r"\newcommand{\cwd}{.}\newcommand{\cd}[1]{\renewcommand{\cwd}{#1}}",
        "one/_main.tex": r"\input{\cwd/in} \cite{b}",
        "one/in.tex": r"\cite{a}",
        "two/_main.tex": r"\cite{c}",
        "refs.bib": "a b c",
    },
    "style": {
        "a.tex": r"\documentclass{mine}\usepackage{setup,babel}\cite{a}\cite{b}\pick{c}",
        "mine.cls": r"\LoadClass{book}\RequirePackage{more} % \addbibresource{no.bib}",
        "more.sty": r"\addbibresource{one.bib}",
        "setup.sty": r"\bibliography{two}\newcommand{\pick}[1]{(\cite{#1})}\newcommand{\cite}[1]{\x{#1}}",
        "one.bib": "a",
        "two.bib": "b c",
    },
    "sections": {
        "a.tex": r"\addsectionbib{sec.bib}\begin{refsection}[local.bib]\cite{a}\end{refsection}"
        r"\newrefsection[more,else]\cite{b}\cite{c}\cite{d}\begin{btSect}{tops}\cite{e}\end{btSect}",
        "sec.bib": "b",
        "local.bib": "a",
        "more.bib": "c",
        "else.bib": "d",
        "tops.bib": "e",
    },
    "multibib": {
        "a.tex": r"\newcites{web}{Web}\cite{a}\citeweb{b}\bibliography{refs}\bibliographyweb{web}"
        r"\bibliographystyleweb{plain}",
        "refs.bib": "a",
        "web.bib": "b",
    },
    "embedded": {
        "a.tex": "\\begin{filecontents*}[force]{\\jobname.bib}\n@book{a, title={A}}\n\\end{filecontents*}\n"
        "\\begin{filecontents}{more.bib}\n@book{b, title={B}}\n\\end{filecontents}"
        r"\cite{a}\cite{b}\bibliography{\jobname,more}",
    },
    "aliases": {"a.tex": r"\cite{old}\cite{b}\bibliography{refs}", "refs.bib": "b"},
    "beside": {"a.tex": r"\cite{a}\cite{b}", "one.bib": "a", "two.bib": "b"},
    "instead": {"a.tex": r"\cite{a}\bibliography{gone}", "one.bib": "a"},
    "printed": {
        "a.tex": "\\cite{a}\\cite{b}\\cite{c}\\cite{d}\n"
        "\\bibitem[\\protect\\citeauthoryear{Lee}{Lee}{2019}]{a} A\n\\bibitem\n  [Moss(2020)]%\n  {b} B\n"
        "\\harvarditem[Oak]{Oak}{1999}{c} C\n\\bib{d}{article}{ title={D}, }",
    },
    "typst": {
        "a.typ": '#import "conf.typ": conf\n#show: conf\n#include "ch/one.typ"\n@a, @results and @far',
        "conf.typ": '#let conf(doc) = { doc; bibliography("refs.bib") }',
        "ch/one.typ": '#include "/ch/two.typ"\n= Results <results>\n@b',
        "ch/two.typ": "#figure([x]) <far>\n@c",
        "refs.bib": "a b c",
    },
    "variable": {
        "a.typ": '#let file = ("one.bib", "two.yml")\n#bibliography(file, title: none)\n@a @b',
        "one.bib": "a",
        "two.yml": "b:\n  type: article\n  title: {value: Trees}\n  author: [{name: Oak, given-name: Tom}]",
    },
    "argument": {
        "a.typ": '#show: paper.with(bibliography: bibliography("one.bib"), bib: "two.bib")\n@a @b',
        "one.bib": "a",
        "two.bib": "b",
    },
    "own style": {
        "a.tex": r"\documentclass{a}\usepackage{own}\begin{document}\cite{a}\bibliography{refs}",
        "own.sty": "\\let\\oldbib\\bibliography\n\\renewcommand{\\bibliography}[1]{\\oldbib{#1}}\n"
        "\\def\\bibliography#1{\\citation{#1}}\n\\newcommand\\bibliography[1]{\\nocite{#1}}\n",
        "refs.bib": "a",
    },
    "glossary": {
        "a.typ": '#import "terms.typ": terms\nA @kan and @kan:pl of @a.\n#bibliography("refs.bib")',
        "terms.typ": '#let terms = (\n  (\n    key: "kan",\n    short: "KAN",\n  ),\n)\n',
        "refs.bib": "a",
    },
    "setup": {
        "a.org": "#+SETUPFILE: setup.org\n\nWords [cite:@a].\n",
        "setup.org": "#+LATEX_HEADER: \\addbibresource{refs.bib}\n",
        "refs.bib": "a",
        "other.bib": "b",
    },
    "in place": {"a.typ": f'#let b = bytes("{IN_PLACE}")\n@k #bibliography(b)'},
    "in an argument": {"a.typ": f'#show: x.with(y: bibliography(bytes(\n  "{IN_PLACE}")))\n@k'},
    "in raw text": {"a.typ": f"#bibliography(bytes(```bib\n{IN_PLACE}\n```.text))\n@k"},
    "in YAML": {"a.typ": '#bibliography(bytes("k:\\n  type: Book\\n  title: Kelp\\n"))\n@k'},
    "bytes": {"a.typ": '#bibliography(bytes(read("one.bib")))\n@a', "one.bib": "a"},
    "org": {
        "a.org": '#+INCLUDE: "ch/one.org::*Head" :x 1\n#+include: two.org\n#+bibliography: refs.bib\ncite:a',
        "ch/one.org": "[cite:@b]",
        "two.org": "[[cite:&c]]\nbibliography:more.bib",
        "refs.bib": "a b",
        "more.bib": "c",
    },
    "inline": {
        "a.md": "---\nreferences:\n- {id: a, title: Trees, issued: 2019}\n- {id: 'd\\_1', title: Moss}\n"
        "bibliography: [b.yaml, more.json]\n---\n@a @b @c @d_1",
        "b.yaml": "---\nreferences:\n- {id: b, title: Peat, issued: {year: 2019}}\n...\n",
        "more.json": '{"id": "c", "type": "book", "title": "Peat"}',
    },
    "include": {
        "a.qmd": "{{< include ch/one.qmd >}}\n\n```{r}\n#| child: two.Rmd\n```\n\n@a",
        "ch/one.qmd": "@b",
        "two.Rmd": "@c",
        "refs.bib": "a b c",
    },
}


@pytest.mark.parametrize("name", INPUTS)
def test_documents_in_several_files(name: str, tmp_path: Path) -> None:
    source = read(tmp_path, INPUTS[name])
    if name == "aliases":
        (tmp_path / "refs.bib").write_text("@book{new, ids = {older, old}, title={A}}\n@book{b, title={B}}")
        assert source.references.entries(["old"])["old"].title == "A"
    assert keys_in(source) == set(source.keys) and source.keys
    assert source.notes == (
        ["the bibliography gone is not read: there is no such file; one.bib beside it instead"]
        if name == "instead"
        else []
    )


def test_a_style_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = {f"s{number}.sty": rf"\RequirePackage{{s{number + 1},s{number + 1}}}" for number in range(9)}
    names = list[str]()

    def decode(file: Path) -> str:
        names.append(file.name)
        return file.read_text()

    monkeypatch.setattr(latex_source, "decode_text", decode)
    text = r"\usepackage{s0}\usepackage{s0}\pick{a}"
    source = read(tmp_path, {"a.tex": text, **files, "s9.sty": r"\newcommand{\pick}[1]{(\cite{#1})}"})
    assert source.keys == ["a"] and len(names) == 10


def test_the_last_bibliography_is_of_the_whole_draft() -> None:
    """New entries go there."""
    text = r"\bibliography{refs}\bibliographyweb{web}\addbibresource{all.bib}\addsectionbib{sec.bib}"
    assert [name.key for name in LATEX.bibliographies(text)] == ["web", "sec.bib", "refs", "all.bib"]


def test_a_bibliography_within_the_document_names_no_file() -> None:
    """Nor do comments; a block in a comment embeds nothing."""
    commented = "%\\begin{filecontents}{refs.bib}\n%\\end{filecontents}\n"
    text = "\\begin{filecontents}{own.bib}\n@book{a,}\n\\end{filecontents}\n%\\bibliography{old}\n"
    assert [name.key for name in LATEX.bibliographies(f"{commented}{text}\\bibliography{{own,refs}}")] == [
        "refs"
    ]


def test_what_is_not_read_is_said(tmp_path: Path) -> None:
    text = r"\import{ch/}{one}\input{two}\input{../out}\include{a}\bibliography{gone,../refs}"
    source = read(tmp_path / "in", {"a.tex": text, "../out.tex": "x", "../refs.bib": "a"})
    assert source.notes == [
        r"\import{ch/one} is not followed: there is no such file",
        r"\input{two} is not followed: there is no such file",
        rf"\input{{../out}} is not followed: it is outside {tmp_path}/in",
        r"\include{a} is not followed: it includes itself",
        "the bibliography gone is not read: there is no such file",
        f"the bibliography ../refs is not read: it is outside {tmp_path}/in",
    ]
    long = "a" * 300
    note, other = read(tmp_path / "long", {"a.tex": rf"\input{{{long}}}\bibliography{{{long}}}"}).notes
    assert note.endswith("there is no such file") and other.endswith("there is no such file")
    many = "".join(rf"\input{{ch{number}}}" for number in range(12))
    (note,) = read(tmp_path / "many", {"a.tex": many}).notes
    assert note == (
        r"12 files are not followed, since there is no such file: \input{ch0}, \input{ch1}, \input{ch2}, ..."
    )


def test_labels_are_no_keys(tmp_path: Path) -> None:
    kinds = "crossref: {custom: [{kind: float, key: dia, reference-prefix: Diagram}]}"
    source = read(tmp_path, {"a.qmd": f"---\n{kinds}\n---\n@dia-net [@Dia-b; @a] {{#own}} @own @b"})
    assert source.keys == ["Dia-b", "a", "b"] and source.is_label("dia-net") and source.is_label("own")
    (paragraph,) = language_paragraphs(source, ".qmd")
    assert paragraph == "[1, 2] [3]"


def language_paragraphs(source: Source, suffix: str) -> list[str]:
    language = language_of(suffix)
    assert language is not None
    return [paragraph.text for paragraph in language.paragraphs(source.text)[0]]


@pytest.mark.parametrize("content", ["a: [b", "- 3\n", "[]", "a: 3\n"])
def test_odd_yaml(content: str, tmp_path: Path) -> None:
    (tmp_path / "refs.yml").write_text(content)
    references = References(tmp_path / "a.typ", ["refs.yml"])
    if content == "a: [b":
        with pytest.raises(InputError, match=r"refs\.yml is not YAML: "):
            references.other_keys()
    else:
        assert references.other_keys() <= {""}


def test_typst_and_org_are_full_texts(tmp_path: Path) -> None:
    files = {
        "one/a.typ": '= Trees\n== Method\nTrees grow @a.\n#include "b.typ"\n#bibliography("refs.bib")',
        "one/b.typ": "And die @b.",
        "one/refs.bib": "a b",
        "two/a.org": "#+title: Peat\n#+bibliography: refs.bib\n* Method\nPeat is deep [cite:@c].",
        "two/refs.bib": "c",
        "two/notes.org": "No citation.",
    }
    read(tmp_path, files)
    result = {str(file.path.relative_to(tmp_path)): file.id for file in find_files(str(tmp_path))}
    assert result == {"one/a.typ": "one_a", "two/a.org": "two_a"}
    for name, title, text, refs in (
        ("one/a.typ", "Trees", "Trees grow [1]. And die [2].", {"a", "b"}),
        ("two/a.org", "Peat", "Peat is deep [1].", {"c"}),
    ):
        metadata, full = read_text(tmp_path / name)
        assert metadata.title == title
        assert full.paragraphs[-1].text == text and full.references.keys() == refs
