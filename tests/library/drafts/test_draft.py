"""Drafts: missing citations and their contexts, suggestions, and filled copies."""

from __future__ import annotations

import errno
import io
import json
import os
import re
import shutil
import subprocess
import sys
from base64 import b64decode
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from bibtexparser.entrypoint import parse_string
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rich.console import Console

from citerec.base.errors import InputError
from citerec.datasets.building.contexts import find_citations
from citerec.datasets.records import SECTION, WINDOW
from citerec.datasets.tokenize import cut_window
from citerec.formats.bibliography.paper import LibraryPaper
from citerec.formats.drafts.languages import draft_language
from citerec.formats.drafts.latex import LATEX
from citerec.formats.drafts.org import ORG as ORG_MODE
from citerec.library.ask.recommender import CITED, Recommender
from citerec.library.drafts.copies import AGAIN, AROUND, Suggestions, are_sure, plan_copies, write_copies
from citerec.library.drafts.reader import Draft, read_draft
from citerec.library.drafts.suggest import draft, report, suggest
from citerec.library.papers.library import Library
from citerec.library.settings import DraftSettings
from citerec.tests.datasets.conftest import write_files
from citerec.tests.library.conftest import FIELDS

SHELF = [
    ("bert", "devlin2019bert", "BERT: Pre-training of Deep Transformers", "Language models BERT."),
    (
        "gpt",
        "radford2018",
        "Improving Language Understanding by Generative Pre-Training",
        "A generative model.",
    ),
    ("adam", "kingma2015", "Adam: A Method for Stochastic Optimization", "Adam adapts steps of gradients."),
    ("mst", "mcdonald2005", "Non-projective Parsing using Spanning Trees", "Graph-based dependency parsers."),
    ("nivre", "nivre2003", "Algorithms for Projective Parsing", "Transition-based parsers are greedy."),
    ("own", "lee2026", "ParseNet: Parsing with Attention", "Parsers with transformers BERT Adam."),
]
PAPER = r"""\documentclass{article}
\newcommand{\ours}{\textsc{ParseNet}\xspace}
\title{\ours: Parsing with Attention\thanks{Work in progress}}
\begin{document}
\begin{abstract}
We parse sentences with transformers \citep{vaswani2017}. It helps.
\end{abstract}
\section{Introduction}
% \cite{?} in a comment
Transformers \citep{vaswani2017} are used in translation \cite{ghost}.
Language models such as BERT~\cite{?} are fine-tuned,
and so is the generative variant of \citet{improving, TODO}. Steps are those of
Adam \citep[see][Section~2]{}. Write \verb|\cite{?}| for a place.
\input{sec/related}
\input{../outside}
\begin{verbatim}
\cite{?} in verbatim
\end{verbatim}
\begin{figure}\includegraphics{x}\caption{Gradients \cite{TODO} at work.}\end{figure}
The treebank is old\footnote{Its parser is greedy \cite{XXX}.}.
\bibliographystyle{plain}
\bibliography{refs}
\end{document}
"""
RELATED = r"""\section{Related work}
Dependency parsers that are graph-based \parencite{?} and transition-based
\autocite{nivre2003,?} are older.
\input{sec/related}
"""
BIB = """@misc{vaswani2017, title={Attention Is All You Need}, year=2017}
@misc{improving, title={Improving Language Understanding by Generative Pre-training}, year=2018}
"""
NOTES = """---
title: "Parsing *notes*"
bibliography: refs.bib
---
# Introduction

Transformers [@vaswani2017] are used, as @improving shows. Language models such
as BERT [@?] are fine-tuned [see @improving, p. 3; @TODO].

`[CITE]` is a mark. <!-- [CITE] -->

```python
x = [CITE]
```

# Method

> Steps are those of Adam [CITE]. See [the **page**](https://x.org/[a]) and [CITE](http://no).

## Abstract

We parse sentences.
"""


CALLED = {
    ".md": "Trees grow in practice.[^a] Cats purr.[^b] Dogs bark.[@?] We ask.^[As [@?] do.]\n\n"
    "[^a]: [@?].\n[^b]: See\n  [@?]. Then stop.\n",
    ".tex": r"""\begin{document}Trees grow in practice.\footnote{\cite{?}.} Cats purr.\footnote{See
    \cite{?}. Then stop.} Dogs bark.\cite{?} We ask.\footnote{As \cite{?} do.}\end{document}""",
    ".org": "Trees grow in practice.[fn:1] Cats purr.[fn:: See [cite:@?]. Then stop.] Dogs bark.[cite:@?] "
    "We ask.[fn:2]\n\n[fn:1] [cite:@?].\n[fn:2] As [cite:@?] do.",
    ".typ": "Trees grow in practice.#footnote[@?.] Cats purr.#footnote[See #cite(<?>). Then stop.] "
    "Dogs bark.@? We ask.#footnote[As @? do.]",
}


@pytest.mark.parametrize("suffix", CALLED)
def test_a_note_is_read_in_the_sentence_that_calls_it(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"a{suffix}"
    path.write_text(CALLED[suffix])
    places = read_draft(path).places
    assert {place.sentence.rstrip(".") for place in places} == {
        "Trees grow in practice ([CITE])",
        "Cats purr (See [CITE]; Then stop)",
        "Dogs bark [CITE]",
        "We ask (As [CITE] do)",
    }
    whole = "Trees grow in practice (). Cats purr (See ; Then stop). Dogs bark . We ask (As  do)."
    for place in places:
        assert re.sub(r"\[?(TARGET|OTHER)CIT\]?", "", place.context) == whole


ITEMS = {
    ".tex": r"""\newacronym{hmc}{HMC}{Hamiltonian Monte Carlo}\begin{document}Samplers are old:
    \begin{itemize}\item \ac{hmc} is fast \cite{?}\item see cf. Moss, p. 5 \cite{?}\end{itemize}
    Next words \cite{?}.\end{document}""",
    ".md": "Samplers are old:\n- Hamiltonian Monte Carlo (HMC) is fast [@?]\n- see cf. Moss, p. 5 [@?]\n\n"
    "Next words [@?].",
    ".org": "Samplers are old:\n- Hamiltonian Monte Carlo (HMC) is fast [cite:@?]\n- see cf. Moss, p. 5 "
    "[cite:@?]\n\nNext words [cite:@?].",
    ".typ": "Samplers are old:\n+ Hamiltonian Monte Carlo (HMC) is fast @?\n+ see cf. Moss, p. 5 @?\n\n"
    "Next words @?.",
}


@pytest.mark.parametrize("suffix", ITEMS)
def test_list_items_and_paragraphs_are_sentences(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"a{suffix}"
    path.write_text(ITEMS[suffix])
    assert [place.sentence for place in read_draft(path).places] == [
        "Hamiltonian Monte Carlo (HMC) is fast [CITE].",
        "see cf. Moss, p. 5 [CITE].",
        "Next words [CITE].",
    ]


@pytest.mark.parametrize(
    ("name", "text", "sentences"),
    [
        ("a.md", "Peat is deep. Moss @a grows. @?\n\nTrees do not.", ["Moss [a] grows. [CITE]."]),
        ("a.tex", "Peat is deep. Is it? \\cite{?}\n\nSo \\cite{?}.", ["Is it? [CITE].", "So [CITE]."]),
        ("a.md", "He asked: “Is it so?” [@?]. It is.", ["He asked: “Is it so?” [CITE]."]),
        ("a.md", "Peat is deep.\n\n- [@?]\n- moss", ["[CITE]."]),
    ],
)
def test_a_citation_after_its_sentence_is_shown_with_it(
    name: str, text: str, sentences: list[str], tmp_path: Path
) -> None:
    (tmp_path / name).write_text(text)
    assert [place.sentence for place in read_draft(tmp_path / name).places] == sentences


@pytest.fixture(scope="module")
def recommender(tmp_path_factory: pytest.TempPathFactory) -> Recommender:
    path = tmp_path_factory.mktemp("library") / "mine"
    papers = [LibraryPaper(*texts, year=2000) for texts in SHELF]
    Library.create(path, papers, model="bm25")
    return Recommender.open(path)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A draft in LaTeX with an input, one in Markdown, and their .bib file."""
    (tmp_path / "outside.tex").write_text(r"Far away \cite{?}.")
    texts = {"paper.tex": PAPER, "sec/related.tex": RELATED, "refs.bib": BIB, "notes.md": NOTES}
    return write_files(tmp_path / "draft", texts)


def read_draft_of(folder: Path, text: str, name: str = "paper.tex") -> Draft:
    (folder / name).write_text(text)
    return read_draft(folder / name)


def test_places_of_a_latex_draft(folder: Path) -> None:
    found = read_draft(folder / "paper.tex")
    assert found.title == "ParseNet: Parsing with Attention"
    assert found.abstract.startswith("We parse sentences with transformers") and "cit" not in found.abstract
    assert [f"{place.file.name}:{place.line} {place.command}" for place in found.places] == [
        r"paper.tex:11 \cite{?}", r"paper.tex:12 \citet{improving, TODO}",
        r"paper.tex:13 \citep[see][Section~2]{}", r"paper.tex:19 \cite{TODO}", r"paper.tex:20 \cite{XXX}",
        r"related.tex:2 \parencite{?}", r"related.tex:3 \autocite{nivre2003,?}",
    ]  # fmt: skip
    assert list(found.cited) == ["vaswani2017", "ghost", "improving", "nivre2003"]
    assert [key for key, entry in found.cited.items() if entry is None] == ["ghost", "nivre2003"]
    assert found.notes == [
        r"\input{sec/related} is not followed: it includes itself",
        rf"\input{{../outside}} is not followed: it is outside {folder}",
    ]
    for place in found.places:
        text = found.files[place.file]
        assert text[place.start : place.end] == place.command


def test_sentences_and_the_keys_they_cite(folder: Path) -> None:
    bert, gpt, adam, caption, footnote, *_ = read_draft(folder / "paper.tex").places
    also = "and so is the generative variant of [improving, ?]."
    assert bert.sentence == f"Language models such as BERT [CITE] are fine-tuned, {also}"
    assert bert.beside == gpt.beside == ("improving",)
    assert "BERT [?]" in gpt.sentence and "[improving, CITE]" in gpt.sentence
    assert adam.sentence == "Steps are those of Adam [CITE]." and adam.beside == ()
    assert caption.context == "Gradients [TARGETCIT] at work.", "captions and footnotes are read apart"
    assert footnote.sentence == "The treebank is old (Its parser is greedy [CITE])."
    assert "treebank is old" in footnote.context


def test_passages_are_those_of_all_citations_in_order(folder: Path) -> None:
    found = read_draft(folder / "paper.tex")
    keys = ["vaswani2017", "ghost", "", "improving", "", "", "", "nivre2003", "", "", ""]
    assert [cited for _, cited in found.passages] == [(key,) if key else () for key in keys]
    for place in found.places:
        context, cited = found.passages[place.passage]
        assert context == place.context and not cited


@pytest.mark.parametrize("masked", [False, True])
def test_a_paragraph_with_a_note_gives_its_passages_once(folder: Path, masked: bool) -> None:
    """Else a masked citation stands among the passages, with its answer."""
    text = (
        r"Trees are parsed~\cite{%s} by stacks~\cite{stack}.\footnote{Greedily~\cite{?} or not~\cite{beam}.}"
    )
    (folder / "note.tex").write_text(f"{text % 'tree'}\n\n{text % 'forest'}\n")
    (folder / "refs.bib").touch()
    draft = read_draft(folder / "note.tex", bibs=[folder / "refs.bib"], masked=masked)
    cited = [key for _, keys in draft.passages for key in keys if key != "?"]
    assert sorted(cited) == sorted(["tree", "forest", *["stack", "beam"] * 2]), "each citation once"
    assert [draft.passages[place.passage][0] for place in draft.places] == [p.context for p in draft.places]


def test_a_context_equals_that_of_a_citation_with_a_key(folder: Path) -> None:
    """The oracle: the context that the data set builder cuts if there is a real key."""
    text = PAPER.replace(r"BERT~\cite{?}", r"BERT~\cite{improving}").replace("improving, TODO", "other")
    text = text.replace("Section~2]{}", "Section~2]{more}")
    (folder / "cited.tex").write_text(text)
    full_text = LATEX.document(folder / "cited.tex", "p").full_text
    assert full_text is not None
    (expected,) = [
        cut_window(found.left, found.right, WINDOW, "whole")
        for found in find_citations(full_text(), WINDOW + 9, Counter())
        if found.ref == "improving"
    ]
    assert "BERT [TARGETCIT] are fine-tuned" in expected and "[OTHERCIT]" in expected
    assert read_draft(folder / "paper.tex").places[0].context == expected


def test_a_place_has_the_text_around_its_context(tmp_path: Path) -> None:
    sentence = "Trees are parsed by hand and graphs are not. "
    found = read_draft_of(tmp_path, rf"{sentence * 100}Trees are parsed \cite{{?}}. {sentence * 10}")
    left, _, right = found.places[0].context.partition("TARGETCIT")
    assert SECTION - 10 < len(left) <= SECTION and right == f"]. {sentence * 10}".rstrip()


@pytest.mark.parametrize(
    "command",
    [
        r"\cite{?}", r"\cite{}", r"\cite{ }", r"\cite{???}", r"\citep{TODO}", r"\citet*{FIXME}",
        r"\cite{todo}", r"\cite{XXX}", r"\cite{TODO:adam}", r"\citep[see][p.~3]{?}", r"\parencite{?}",
        r"\textcite[][4]{?}", r"\autocite{?}", r"\footcite{?}", r"\Citet{?}", r"\citeauthor{?}", r"\cite {?}",
        r"\cite{a,?,b}", r"\cites{a}{?}", r"\cite{TODO: Lee et al., 2014}", r"\citeauthor{?} (\citeyear{?})",
    ],
)  # fmt: skip
def test_commands_without_a_key(command: str, tmp_path: Path) -> None:
    found = read_draft_of(tmp_path, f"Trees {command} are parsed.")
    assert [place.command for place in found.places] == [command]
    assert found.places[0].context.startswith("Trees ") and found.places[0].context.count("TARGETCIT") == 1


@pytest.mark.parametrize(
    ("name", "text", "contexts"),
    [
        ("a.tex", r"\begin{figure}\caption[short]{Old \cite{?} fig}\end{figure}", ["Old [TARGETCIT] fig"]),
        ("a.tex", r"\captionof{table}{Old \cite{?} fig}", ["Old [TARGETCIT] fig"]),
        ("a.tex", r"\begin{table*} [htbp!]\caption{Old \cite{?} fig}\end{table*}", ["Old [TARGETCIT] fig"]),
        ("a.tex", r"\begin{algorithm}\subcaption{Old \cite{?} fig}\end{algorithm}", ["Old [TARGETCIT] fig"]),
        (
            "a.tex",
            "\\begin{lstlisting}[float, caption={A \\cite{?} b}]\nx\n\\end{lstlisting}",
            ["A [TARGETCIT] b"],
        ),
        ("a.qmd", "As @? shows, trees grow.", ["As [TARGETCIT] shows, trees grow."]),
        ("a.qmd", "Old -@TODO:adam trees.", ["Old [Adam TARGETCIT] trees."]),
        ("a.qmd", "A $x=[@?]$ and [@?]; a@TODO.org, `@?`, \\@?", ["A and [TARGETCIT]; a@TODO.org, , @?"]),
        ("a.qmd", "It costs $5 [@?] and $6.", ["It costs $5 [TARGETCIT] and $6."]),
        ("a.qmd", "![Of @? and [@?]](a)", ["Of [TARGETCIT] and [OTHERCIT]", "Of [OTHERCIT] and [TARGETCIT]"]),
    ],
)
def test_contexts_of_captions_and_marks(name: str, text: str, contexts: list[str], tmp_path: Path) -> None:
    assert [place.context for place in read_draft_of(tmp_path, text, name).places] == contexts


@pytest.mark.parametrize(
    ("name", "text", "beside"),
    [
        ("a.tex", r"Topics \cite{TODO:blei2003} are drawn.", "Topics [Blei 2003 TARGETCIT]"),
        (
            "a.tex",
            r"Topics \citep[TODO]{fixme-o'brien_2003lda, lee} are.",
            "[Brien 2003 Lda TARGETCIT, OTHERCIT]",
        ),
        ("a.tex", r"Topics \cite{TODO Müller, XXX:Ng 1999} are drawn.", "[Müller Ng 1999 TARGETCIT]"),
        ("a.tex", r"Topics \cite{TODO} and \cite{?} are drawn.", "[TARGETCIT] and [OTHERCIT] are"),
        ("a.md", "Topics [see @TODO:srivastava, p. 3] are drawn.", "Srivastava TARGETCIT"),
        ("a.md", "Topics [@lee2020; @TODO:blei2003a] are drawn.", "Blei 2003 TARGETCIT"),
    ],
)
def test_words_of_a_suffix_are_beside_the_mark(name: str, text: str, beside: str, tmp_path: Path) -> None:
    place = read_draft_of(tmp_path, text, name).places[0]
    assert beside in place.context and place.command in text
    assert place.context.count("TARGETCIT") == 1


@pytest.mark.parametrize(
    "text",
    [
        r"\cite{lee2020}", r"\nocite{?}", r"\citestyle{?}", r"\cite{a,}", r"\cite{what?}", "% \\cite{?}",
        r"\verb+\cite{?}+", "\\begin{lstlisting}\n\\cite{?}\n\\end{lstlisting}", r"\iffalse \cite{?} \fi",
        "\\begin{comment}\n\\cite{?}\n\\end{comment}", "[?]", r"\cite",
        r"\newcommand{\todocite}{\cite{TODO}}", r"\iffalse \ifx\a\b\fi \cite{?} \fi", r"\endinput \cite{?}",
        r"\end{document} \cite{?}", r"\if0 \ifx\a\b\fi \cite{?} \fi", "\\if 0%\nOld \\cite{?}\\fi",
    ],
)  # fmt: skip
def test_texts_without_missing_citations(text: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no missing citations; write \\cite\{\?\}"):
        read_draft_of(tmp_path, f"Trees {text}\nare parsed.")


def test_macros_of_the_draft(tmp_path: Path) -> None:
    text = r"\newcommand{\mycite}[1]{(see \citep{#1})}\newcommand{\net}{ParseNet}\net is good \mycite{TODO}."
    (place,) = read_draft_of(tmp_path, text).places
    assert place.command == r"\mycite{TODO}" and place.context == "ParseNet is good (see [TARGETCIT])."


@pytest.mark.parametrize(
    "text",
    [r"\url{https://a.org/b%20c} and \cite{?}.", r"\href{b%20c}{Pages} and \cite{?}.",
     r"\iffalse Old \cite{?}. \else Pages and \cite{?}. \fi",
     r"\def\blind{0}\if0\blind Pages and \cite{?}.\fi",
     r"\begin{lstlisting}[language=TeX] \newcommand{\foo}{ \iffalse \end{lstlisting} Pages and \cite{?}.",
     r"\begin{verbatim*}\endinput\end{verbatim*}\begin{comment}\endinput\end{comment} Pages and \cite{?}."],
)  # fmt: skip
def test_what_hides_nothing(text: str, tmp_path: Path) -> None:
    (place,) = read_draft_of(tmp_path, text).places
    assert place.context.rstrip().endswith("and [TARGETCIT].")


@pytest.mark.parametrize(
    "text", [r"\newcommand{\pc}[1]{\citep{#1}}\pc{?}", r"\newcommand{\need}{[citation needed]}\need"]
)
def test_marks_in_definitions_are_never_filled(text: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="missing citations are in macros of the draft's own; write"):
        read_draft_of(tmp_path, f"Trees {text}.")
    notes = read_draft_of(tmp_path, f"Trees {text}. Words \\cite{{?}}.").notes
    where = r" (paper.tex:1: [citation needed])" if "need" in text else ""
    assert notes == [f"citations without a key in macros of the draft's own are not filled{where}"]


def test_places_without_text_are_reported(tmp_path: Path) -> None:
    text = "\\section{On \\cite{?}}\nTrees \\cite{?} are parsed.\n\\section{More}\n\\cite{a} (\\cite{TODO})"
    found = read_draft_of(tmp_path, text)
    why = "has no running text around it and was skipped"
    assert found.notes == [rf"paper.tex:1: \cite{{?}} {why}", rf"paper.tex:4: \cite{{TODO}} {why}"]
    assert [place.line for place in found.places] == [2]
    with pytest.raises(InputError, match="missing citations have no running text around them"):
        read_draft_of(tmp_path, "\\cite{?}")


def test_inputs_of_another_folder_are_read_on_request(folder: Path) -> None:
    names = {place.file.name for place in read_draft(folder / "paper.tex", folder.parent).places}
    assert names == {"paper.tex", "related.tex", "outside.tex"}
    for root in (folder / "sec", folder / "none"):
        with pytest.raises(InputError, match="is not a folder that contains the draft"):
            read_draft(folder / "paper.tex", root)


def test_places_of_a_markdown_draft(folder: Path) -> None:
    found = read_draft(folder / "notes.md")
    assert (found.title, found.abstract) == ("Parsing notes", "We parse sentences.")
    commands = [(8, "[@?]"), (8, "[see @improving, p. 3; @TODO]"), (18, "[CITE]")]
    assert [(place.line, place.command) for place in found.places] == commands
    sentence = "Language models such as BERT [CITE] are fine-tuned [improving, ?]."
    assert found.places[0].sentence.startswith(sentence)
    assert found.places[2].sentence == "Steps are those of Adam [CITE]."
    assert "See the page and" in found.places[2].context
    assert list(found.cited) == ["vaswani2017", "improving"] and found.cited["improving"] is not None


def test_markdown_without_front_matter(tmp_path: Path) -> None:
    found = read_draft_of(tmp_path, "Trees\n=====\n\n**Old** _trees_ [@TODO] and a@b.org\n", "a.md")
    assert found.title == "Trees" and found.places[0].context == "Old trees [TARGETCIT] and a@b.org"


TYPST = """#import "style.typ": paper
#show: paper.with(title: [Parsing *notes*], abstract: [We parse @vaswani2017 sentences.], date: "May 2024")
#set text(size: 10pt) // @?
= Introduction <sec:intro>
Transformers @vaswani2017 are used, as #cite(<improving>, form: "prose") shows in @fig:trees. Language models
such as *BERT* @? are _fine-tuned_ #cite(<TODO>, form: "prose"), a@b.org; `@?` /* @? */
== Method
Steps are those of Adam [CITE] for $x = "@?"$.
#bibliography(("refs.bib", "more.yml"))
"""
ORG = """#+title: Parsing *notes*
#+date: <2024-05-01>
#+bibliography: refs.bib
#+begin_abstract
We parse sentences.
#+end_abstract
* Introduction :intro:
# [cite:@?]
Transformers [cite:@vaswani2017] are used, as [cite/t:@improving] shows in [[fig:trees][a figure]]. Language
models such as *BERT* [cite:@?] are /fine-tuned/ [cite/t:see @improving p. 3; @TODO], =[CITE]=.
#+begin_src python
x = [CITE]
#+end_src
** Method
- Steps are those of Adam [CITE].
"""
FLOATS = {
    "a.typ": """Trees.
#figure(rect[x], caption: [Growth of *trees* @?.]) <fig:x>
#figure(
  table(columns: 2, [Roots @?], [1]),
  caption: [Soil [wet] #cite(<?>).],
)
""",
    "a.org": """Trees.
#+caption[short]: Growth of *trees* [cite:@?].
| a | b |
|---+---|
| Roots [cite:@?] | 1 |
#+CAPTION: Soil [CITE].
[[./x.png]]
""",
}


@pytest.mark.parametrize("name", FLOATS)
def test_captions_and_tables_in_typst_and_org(name: str, tmp_path: Path) -> None:
    found = read_draft_of(tmp_path, FLOATS[name], name)
    assert len(found.places) == 3 and not found.notes
    for place, words in zip(found.places, ("Growth of trees", "Roots", "Soil"), strict=True):
        assert re.search(rf"{words}[^.]*\[TARGETCIT\]", place.context), place.context
    paragraphs, _ = draft_language(found.path).paragraphs(FLOATS[name], running=True)
    assert "Growth" not in paragraphs[0].text and "Trees." in paragraphs[0].text


def test_a_comment_in_org_leaves_its_paragraph_whole() -> None:
    comment = ORG_MODE.comment.format("citerec: not sure: a")
    text = f"Trees [cite:@?]{comment} grow\nand [cite:@b]{comment}.\n"
    assert "\n" not in comment and ORG_MODE.without_code(text).split() == (
        ["Trees", "[cite:@?]", "grow", "and", "[cite:@b]", "."]
    )


@pytest.mark.parametrize(
    ("name", "text", "commands"),
    [
        ("a.typ", TYPST, ["@?", '#cite(<TODO>, form: "prose")', "[CITE]"]),
        ("a.org", ORG, ["[cite:@?]", "[cite/t:see @improving p. 3; @TODO]", "[CITE]"]),
    ],
)
def test_places_in_typst_and_org(name: str, text: str, commands: list[str], folder: Path) -> None:
    found = read_draft_of(folder, text, name)
    assert (found.title, found.year, list(found.cited)) == (
        "Parsing notes",
        2024,
        ["vaswani2017", "improving"],
    )
    assert found.abstract.startswith("We parse") and found.abstract.endswith("sentences.")
    assert [place.command for place in found.places] == commands
    assert found.bibs == [(folder / "refs.bib").resolve()]
    bert, *_, adam = found.places
    assert bert.sentence.startswith("Language models such as BERT [CITE] are fine-tuned")
    assert "such as BERT [TARGETCIT] are fine-tuned [OTHERCIT" in bert.context.replace("[[", "[")
    assert adam.sentence.startswith("Steps are those of Adam [CITE]")


@pytest.mark.parametrize(
    ("name", "text", "filled", "comment"),
    [
        ("a.typ", TYPST, "such as *BERT* @devlin2019bert are", "[CITE]/* citerec: not sure: kingma2015"),
        ("a.org", ORG, "*BERT* [cite:@devlin2019bert] are", "[CITE]@@comment:citerec: not sure: kingma2015"),
    ],
)
def test_filled_copies_in_typst_and_org(
    name: str, text: str, filled: str, comment: str, folder: Path, recommender: Recommender
) -> None:
    parsed = read_draft_of(folder, text, name)
    found = suggest(parsed, recommender, 3)
    sure = [[replace(paper, probability=0.9) for paper in papers] for papers in found.papers[:-1]]
    unsure = [replace(paper, probability=0.1) for paper in found.papers[-1]]
    copies = plan_copies(parsed, folder / f"new{Path(name).suffix}", None)
    write_copies(Suggestions(parsed, [*sure, unsure], found.ids), recommender.library, copies, 0.5)
    written = (folder / f"new{Path(name).suffix}").read_text()
    assert filled in written and comment in written and "new.bib" in written and "refs.bib" not in written
    assert "@inproceedings{devlin2019bert" in (folder / "new.bib").read_text().replace(
        "@misc", "@inproceedings"
    )


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        (
            "a.rst",
            b"[1]_",
            r"read in LaTeX \(.tex, .*, Markdown .*, Org .* or LibreOffice \(.odt\); convert it first",
        ),
        ("a.lyx", b"#LyX", "drafts are read in .*; export it from LyX as LaTeX"),
        ("a.typ", b"Trees. // @?", "no missing citations; write #cite"),
        ("a.docx", b"PK\0", "is not a Word document; save it as .docx without a password"),
        ("a.doc", b"PK\0", "convert it first, e.g. with pandoc"),
        ("a.tex", b"%PDF-1.5 \x00", "is a PDF"),
        ("a.tex", b"\x7fELF\0\0", "is not text"),
        ("a.tex", "é\n".encode("latin-1") + "ü".encode(), r"is not UTF-8 \(line 1\)"),
        ("a.tex", b"", "no missing citations"),
        ("a.md", b"---\ntitle: [a\n---\n[@?] trees", "is not YAML"),
        ("a.tex", None, "no such file"),
    ],
)
def test_bad_drafts(name: str, content: bytes | None, reason: str, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match=reason) as error:
        read_draft(tmp_path / name)
    assert "\n" not in str(error.value) and name in str(error.value)


@given(
    st.text(st.sampled_from('\\{}[]()%$?@ \nabcite`*#-~<>!:,./=+"')),
    st.sampled_from(["tex", "md", "typ", "org"]),
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_text_is_a_draft_or_a_one_line_error(tmp_path: Path, text: str, kind: str) -> None:
    mark = {"tex": r"\cite{?}", "md": "[@?]", "typ": "#cite(<?>)", "org": "[cite:@?]"}[kind]
    (tmp_path / f"a.{kind}").write_text(f"{text} Trees {mark}.")
    try:
        found = read_draft(tmp_path / f"a.{kind}")
    except InputError as error:
        assert "\n" not in str(error)
    else:
        assert all(place.context.count("TARGETCIT") == 1 for place in found.places)


@pytest.mark.parametrize(
    ("suffix", "piece"),
    [
        (".md", "Trees grow [CITE]. "),
        (".md", "[@?;"),
        (".md", "Trees grow.^[See [@?].] "),
        (".tex", r"Trees grow \cite{?}. "),
        (".tex", r"\item Trees \cite{?}, "),
        (".tex", r"\cite[a]["),
        (".org", "Trees grow.[fn:: See [cite:@?].] "),
        (".typ", "Trees grow.#footnote[See @?.] "),
    ],
)
def test_twice_the_text_is_twice_the_work(suffix: str, piece: str, tmp_path: Path) -> None:
    path, mark = tmp_path / f"a{suffix}", draft_language(Path(f"a{suffix}")).cite("?")

    def work(times: int) -> int:
        path.write_text(f"Trees {mark}. {piece * times}")
        calls = 0

        def count(*_: object) -> None:
            nonlocal calls
            calls += 1

        sys.setprofile(count)
        try:
            read_draft(path)
        finally:
            sys.setprofile(None)
        return calls

    work(1)  # what is read or made once
    assert work(200) < 3 * work(100)


def test_the_example() -> None:
    found = read_draft(Path(__file__).parents[3] / "examples" / "draft.tex")
    assert len(found.places) == 9 and found.abstract and not found.notes
    assert None not in found.cited.values(), "examples/library.bib has what it cites"


def test_suggestions(folder: Path, recommender: Recommender) -> None:
    suggestions = suggest(read_draft(folder / "paper.tex"), recommender, 3)
    assert suggestions.ids == {"improving": "gpt", "nivre2003": "nivre"}
    assert suggestions.unknown == ["ghost"]
    commands = [place.command for place in suggestions.draft.places]
    ids = [[paper.id for paper in papers] for papers in suggestions.papers]
    found = dict(zip(commands, ids, strict=True))
    assert found[r"\cite{?}"][0] == "bert" and found[r"\parencite{?}"][0] == "mst"
    assert all("own" not in papers for papers in found.values()), "a draft does not cite itself"
    assert "gpt" not in found[r"\cite{?}"], "cited in the same sentence"
    assert "nivre" not in found[r"\autocite{nivre2003,?}"]
    keys = {paper.id: paper.key for papers in suggestions.papers for paper in papers}
    assert keys["gpt"] == "improving", "the draft's key"


def test_the_report_is_readable_at_80_columns(folder: Path, recommender: Recommender) -> None:
    file = io.StringIO()
    report(suggest(read_draft(folder / "paper.tex"), recommender, 2), Console(file=file, width=80))
    text = file.getvalue()
    assert all(len(line) <= 80 for line in text.splitlines()) and "\x1b" not in text
    assert not [line for line in text.splitlines() if line != line.rstrip()]
    assert "paper.tex:11  \\cite{?}\n  Language models such as BERT [CITE] are" in text
    assert "devlin2019bert" in text and "BERT is named here" in text
    assert "neither in the library nor in the draft's bibliography: ghost" in text


def run(recommender: Recommender, **options: Any) -> None:
    draft(DraftSettings(library=str(recommender.library.path), **options))


def test_a_filled_folder(folder: Path, recommender: Recommender) -> None:
    before = {path: path.read_bytes() for path in folder.rglob("*.*")}
    target = folder.parent / "filled"
    run(recommender, tex=str(folder / "paper.tex"), fill=str(target))
    assert {path: path.read_bytes() for path in folder.rglob("*.*")} == before
    paper, related = (target / "paper.tex").read_text(), (target / "sec" / "related.tex").read_text()
    assert r"BERT~\cite{devlin2019bert} are" in paper and r"% \cite{?} in a comment" in paper
    assert r"\cite{?} in verbatim" in paper and r"\verb|\cite{?}|" in paper
    assert r"graph-based \parencite{mcdonald2005} and" in related
    second = related.split("nivre2003,")[1].split("}")[0]
    assert second == "?", "a paper is not cited twice in a sentence, and the library has no other"
    entries = {entry.key for entry in parse_string((target / "refs.bib").read_text()).entries}
    assert {"vaswani2017", "improving", "devlin2019bert", "mcdonald2005", "nivre2003"} <= entries
    for name, problem in ((target, "already exists; choose another name"), ("new.odt", "kind of the draft")):
        with pytest.raises(InputError, match=problem):
            run(recommender, tex=str(folder / "paper.tex"), fill=str(name))
    run(recommender, tex=str(folder / "paper.tex"), fill=str(folder.parent / "all"), root=str(folder.parent))
    copies = {str(path.relative_to(folder.parent / "all")) for path in (folder.parent / "all").rglob("*.*")}
    assert copies == {"draft/paper.tex", "draft/sec/related.tex", "draft/refs.bib", "outside.tex"}


def test_a_filled_file_and_a_report_as_json(
    folder: Path, recommender: Recommender, capsys: pytest.CaptureFixture[str]
) -> None:
    target = folder / "copy.md"
    run(recommender, tex=str(folder / "notes.md"), fill=str(target), format="json")
    out, err = capsys.readouterr()
    places = json.loads(out)["places"]
    assert [place["line"] for place in places] == [8, 8, 18]
    paper = places[0]["recommendations"][0]
    assert list(paper) == FIELDS and paper["id"] == "bert"
    assert err.startswith(f"{target}: filled 3 of 3 missing citations; check each of them\n")
    assert "sure=0.6 was ignored: the library's model gives no probabilities\n" in err
    text = target.read_text()
    assert "BERT [@devlin2019bert] are" in text and "Adam [@kingma2015]." in text
    assert "bibliography: copy.bib\n" in text and "`[CITE]` is a mark" in text
    assert (folder / "copy.bib").read_text().startswith(BIB + "@misc{devlin2019bert, title={")
    with pytest.raises(InputError, match=r"missing in related\.tex; give a folder"):
        run(recommender, tex=str(folder / "paper.tex"), fill=str(folder / "copy.tex"))
    assert not (folder / "copy.tex").exists()
    (folder / "other.bib").write_text("of another draft")
    with pytest.raises(InputError, match=r"other\.bib already exists; choose another name"):
        run(recommender, tex=str(folder / "notes.md"), fill=str(folder / "other.md"))
    assert (folder / "other.bib").read_text() == "of another draft" and not (folder / "other.md").exists()


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A draft that pdflatex needs five other files for."""
    texts = {
        "paper.tex": r"""\documentclass{article}
            \usepackage{graphicx,% figures, too
              mine}\graphicspath{{figs/}}
            % \setmainfont{Body}[Path = fonts/, BoldFont=*-Bold]
            \begin{document}
            Models such as BERT~\cite{?} \ours{} are old \cite{vaswani2017}.
            \includegraphics[width=1cm]{plot} \input{sec/related}
            \bibliographystyle{plain}\bibliography{refs}
            \end{document}
            """,
        "sec/related.tex": "Attention \\cite{improving} helps. \\input{sec/data.txt}",
        "sec/data.txt": "Data.",
        "mine.sty": r"\newcommand{\ours}{ParseNet}",
        "refs.bib": BIB,
        "fonts/Body-Bold.otf": "",
        "unnamed.txt": "Not part of it.",
    }
    png = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR4nGNgAAAAAgABSK+kcQAAAABJRU5ErkJggg=="
    return write_files(tmp_path / "draft", texts | {"figs/plot.png": b64decode(png)}) / "paper.tex"


@pytest.mark.parametrize(("fill", "bib"), [("filled", "refs.bib"), ("elsewhere/copy.tex", "copy.bib")])
def test_copies_are_complete(project: Path, recommender: Recommender, fill: str, bib: str) -> None:
    target = project.parent.parent / fill
    run(recommender, tex=str(project), fill=str(target))
    folder = target.parent if target.suffix else target
    names = {"sec/related.tex", "sec/data.txt", "mine.sty", "figs/plot.png", "refs.bib", bib}
    names.add("fonts/Body-Bold.otf")
    names.add("copy.tex" if target.suffix else "paper.tex")
    assert {str(file.relative_to(folder)) for file in folder.rglob("*.*")} == names
    if not all(map(shutil.which, ("latexmk", "pdflatex", "bibtex"))):
        pytest.skip("needs texlive-latex-base and latexmk to typeset the copies")
    (draft,) = {"copy.tex", "paper.tex"} & names
    command = ["latexmk", "-pdf", "-interaction=nonstopmode", "-halt-on-error", draft]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-2000:]
    log = (folder / draft).with_suffix(".log").read_text(errors="replace")
    assert "Warning: Citation" not in log
    assert (folder / draft).with_suffix(".bbl").read_text().count("bibitem{") == 3


def test_a_copy_of_a_book_has_its_settings(tmp_path: Path, recommender: Recommender) -> None:
    settings, encoding = "project: {type: book}\nbook: {chapters: [index.qmd, a.qmd]}\n", "utf-16"
    settings += "bibliography: refs.bib\ncsl: my.csl\n"
    texts = {
        "_quarto.yml": settings,
        "my.csl": "",
        "index.qmd": "# A\n",
        "a.qmd": "Models such as BERT [@?].\n",
    }
    folder = write_files(tmp_path / "book", texts | {"refs.bib": BIB.encode(encoding)})
    run(recommender, tex=str(folder / "index.qmd"), fill=str(tmp_path / "filled"), sure=0)
    assert {file.name for file in (tmp_path / "filled").iterdir()} == {*texts, "refs.bib"}
    assert (tmp_path / "filled" / "refs.bib").read_text(encoding=encoding).startswith(BIB)


def test_a_copy_has_the_folder_of_inputs_above_the_draft(tmp_path: Path, recommender: Recommender) -> None:
    texts = {
        "_quarto.yml": "project: {type: website}\n",
        "_shared.qmd": "Adam adapts steps of gradients [@?].\n",
        "posts/a.qmd": "Models such as BERT [@?].\n\n{{< include ../_shared.qmd >}}\n",
    }
    project = write_files(tmp_path / "project", texts)
    run(recommender, tex=str(project / "posts" / "a.qmd"), fill=str(tmp_path / "filled"), sure=0)
    copied = {path.relative_to(tmp_path / "filled").as_posix() for path in (tmp_path / "filled").rglob("*.*")}
    assert copied == {*texts, "a.bib"} and "@kingma" in (tmp_path / "filled" / "_shared.qmd").read_text()


@pytest.mark.parametrize("fill", ["filled", "elsewhere/copy.tex"])
@pytest.mark.parametrize(
    ("named", "copied"),
    [
        (r"\bibliography{/Users/x/more,/Users/x/refs}", r"\bibliography{more,%s}"),
        (r"\addbibresource{/Users/x/more.bib}\addbibresource[label=a]{C:/x/refs.bib}",
         r"\addbibresource{more.bib}\addbibresource[label=a]{%s.bib}"),
        (r"\bibliography{../gone/more,refs}", r"\bibliography{more,%s}"),
        (r"\bibliography{../gone/more,refs,own}\begin{filecontents}{own.bib}\end{filecontents}",
         r"\bibliography{more,%s,own}"),
    ],
)  # fmt: skip
def test_bibliographies_found_by_name_are_named_where_the_copy_has_them(
    project: Path, recommender: Recommender, fill: str, named: str, copied: str
) -> None:
    project.write_text(
        project.read_text(encoding="utf-8").replace(r"\bibliography{refs}", named), encoding="utf-8"
    )
    (project.parent / "more.bib").write_text("@misc{more, title={More}}\n")
    target = project.parent.parent / fill
    run(recommender, tex=str(project), fill=str(target))
    text = (target if target.suffix else target / "paper.tex").read_text()
    last = "copy" if target.suffix else "refs"
    assert copied % last in text, text
    folder = target.parent if target.suffix else target
    assert {"more.bib", f"{last}.bib"} <= {file.name for file in folder.iterdir()}


def test_a_markdown_bibliography_found_by_name(project: Path, recommender: Recommender) -> None:
    draft = project.with_name("paper.md")
    draft.write_text("---\nbibliography: [/Users/x/more.bib, '/Users/x/refs.bib']\n---\nAs with BERT [@?].\n")
    (project.parent / "more.bib").write_text("@misc{more, title={More}}\n")
    run(recommender, tex=str(draft), fill=str(project.parent.parent / "filled"))
    text = (project.parent.parent / "filled/paper.md").read_text()
    assert text.startswith("---\nbibliography: [more.bib, 'refs.bib']\n---\nAs with BERT [@")


def test_files_of_a_copy_that_exist_already(project: Path, recommender: Recommender) -> None:
    other = project.parent.parent / "elsewhere"
    (other / "sec").mkdir(parents=True)
    (other / "mine.sty").write_bytes((project.parent / "mine.sty").read_bytes())
    (other / "sec/data.txt").write_text("Other data.")
    before = sorted(other.rglob("*"))
    with pytest.raises(
        InputError, match=r"elsewhere/sec/data\.txt already exists and differs from .*/draft/sec"
    ):
        run(recommender, tex=str(project), fill=str(other / "copy.tex"))
    assert sorted(other.rglob("*")) == before
    (other / "sec/data.txt").unlink()
    run(recommender, tex=str(project), fill=str(other / "copy.tex"))
    assert (other / "figs/plot.png").is_file()


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS])
def test_a_failing_disk_leaves_no_copy(
    project: Path, recommender: Recommender, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def fail(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(shutil, "copyfile", fail)
    with pytest.raises(InputError, match=r"no space left for the copy; free|Read-only .*; set fill to"):
        run(recommender, tex=str(project), fill=str(project.parent.parent / "filled"))
    assert [file.name for file in project.parent.parent.iterdir()] == ["draft"]


def test_keys_of_other_papers_and_line_ends(folder: Path, recommender: Recommender) -> None:
    (folder / "refs.bib").write_text("@misc{devlin2019bert, title={Quite another paper}}\n")
    text = "As in BERT \\cite{?}.\r\n\\section{B}Steps of Adam \\cite{?,?}.\r\n\\bibliography{a, refs}\r\n"
    (folder / "a.tex").write_bytes(text.encode())
    run(recommender, tex=str(folder / "a.tex"), fill=str(folder / "b.tex"))
    filled = (folder / "b.tex").read_bytes().decode()
    assert "BERT \\cite{devlin2019bert-1}.\r\n" in filled and "\\cite{kingma2015," in filled
    assert "\\bibliography{a, b}\r\n" in filled
    assert "@misc{devlin2019bert-1," in (folder / "b.bib").read_text()


@pytest.mark.parametrize("title", ["Quite another paper", SHELF[0][2]])
@pytest.mark.parametrize("suffix", ["json", "yaml", "yml"])
def test_keys_of_entries_in_other_files(
    folder: Path, recommender: Recommender, suffix: str, title: str
) -> None:
    name, text = "a.md", f"---\nbibliography: b.{suffix}\n---\nAs in BERT [@?]."
    listed = f'[{{"id": "devlin2019bert", "title": "{title}"}}]'
    if suffix == "yml":
        name, text = "a.typ", '#bibliography("b.yml")\nAs in BERT @?.'
        listed = f'devlin2019bert: {{type: article, title: "{title}"}}'
    (folder / name).write_text(text)
    (folder / f"b.{suffix}").write_text(listed)
    run(recommender, tex=str(folder / name), fill=str(folder / f"copy/{name}"))
    key = "devlin2019bert" if title == SHELF[0][2] else "devlin2019bert-1"
    filled = (folder / "copy" / name).read_text()
    assert filled.rpartition("BERT ")[2].strip("[@].") == key
    assert (folder / "copy" / "a.bib").is_file() == (key != "devlin2019bert")


@pytest.mark.parametrize(
    ("name", "text", "filled"),
    [
        ("d.tex", "The refs of BERT \\cite{?}.\n\\bibliography{refs}\n%\\bibliography{old}",
         "The refs of BERT \\cite{KEY}.\n\\bibliography{copy}\n%\\bibliography{old}"),
        ("d.tex", "\\addbibresource{more.bib}\\addbibresource{refs.bib}\nModels such as BERT \\cite{?}.",
         "\\addbibresource{more.bib}\\addbibresource{copy.bib}\nModels such as BERT \\cite{KEY}."),
        ("d.tex", "BERT \\cite{?}.\\bibliography{refs,../shared}",
         "BERT \\cite{KEY}.\\bibliography{copy,../shared}"),
        ("d.tex", "BERT \\cite{?}.\\bibliography{../shared}",
         "BERT \\cite{KEY}.\\bibliography{../shared,copy}"),
        ("d.tex", "BERT \\cite{?}.\\bibliography{gone}", "BERT \\cite{KEY}.\\bibliography{copy}"),
        ("d.md", "---\nbibliography: refs.bib\n---\nThe refs of BERT [@?].",
         "---\nbibliography: copy.bib\n---\nThe refs of BERT [@KEY]."),
        ("d.typ", '#text(red)[CITE] on BERT.\n#bibliography("refs.bib")\n// #bibliography("old.bib")',
         '#text(red)[@KEY] on BERT.\n#bibliography("copy.bib")\n// #bibliography("old.bib")'),
        ("d.typ", 'As in BERT @?-like.\n#bibliography("refs.bib")',
         'As in BERT #cite(<KEY>)-like.\n#bibliography("copy.bib")'),
    ],
)  # fmt: skip
def test_a_copy_names_its_bibliography_and_changes_nothing_else(
    name: str, text: str, filled: str, folder: Path, recommender: Recommender
) -> None:
    other = folder / "more.bib" if "more" in text else folder.parent / "shared.bib"
    other.write_text("@misc{a, title={A}}")
    (folder / name).write_text(text)
    copy = folder / f"copy{Path(name).suffix}"
    run(recommender, tex=str(folder / name), fill=str(copy))
    assert copy.read_text() == filled.replace("KEY", "devlin2019bert")
    assert "refs" not in text or copy.with_suffix(".bib").read_text().startswith(BIB)


def test_a_bibliography_of_another_folder_is_copied(folder: Path, recommender: Recommender) -> None:
    (folder / "part").mkdir()
    (folder / "part/d.tex").write_text("As in BERT \\cite{?}.\\bibliography{../refs}")
    out = folder / "out"
    run(recommender, tex=str(folder / "part/d.tex"), bib=[str(folder / "refs.bib")], fill=str(out))
    assert (out / "d.tex").read_text().endswith("\\bibliography{refs}")
    assert (out / "refs.bib").read_text().startswith(BIB)


def test_a_bibliography_of_a_part_names_the_new_entries(folder: Path, recommender: Recommender) -> None:
    (folder / "web.bib").write_text("@misc{a, title={A}}")
    text = "\\newcites{web}{Web}Models such as BERT \\citepweb{?} and \\citeweb{a}.\n\\bibliography{refs}\n"
    (folder / "a.tex").write_text(f"{text}\\bibliographyweb{{web}}")
    draft = read_draft(folder / "a.tex")
    assert [place.sentence for place in draft.places] == ["Models such as BERT [CITE] and [a]."]
    run(recommender, tex=str(folder / "a.tex"), fill=str(folder / "b.tex"))
    assert (folder / "b.tex").read_text().endswith("\\bibliography{b}\n\\bibliographyweb{web,b}")
    (folder / "web.bib").write_text(
        f"@misc{{devlin2019bert, title={{{SHELF[0][2]}}}}} @misc{{a, title={{A}}}}"
    )
    run(recommender, tex=str(folder / "a.tex"), fill=str(folder / "c.tex"))
    assert (folder / "c.tex").read_text().endswith("\\bibliographyweb{web}")


def test_a_book_is_read_with_its_chapters(tmp_path: Path, recommender: Recommender) -> None:
    texts = {
        "index.Rmd": "---\ntitle: A book\nbibliography: refs.bib\n---\nIt began [@vaswani2017].\n",
        "01-parsing.Rmd": "# Parsing\n\nGraph-based dependency parsers [@?] are fine-tuned.\n",
        "_bookdown.yml": "delete_merged_file: true\n",
        "refs.bib": BIB,
    }
    found = read_draft(write_files(tmp_path, texts) / "index.Rmd")
    (place,) = found.places
    assert (place.file.name, place.line, found.title) == ("01-parsing.Rmd", 3, "A book")
    assert found.cited.keys() == {"vaswani2017"}
    copies = plan_copies(found, tmp_path / "filled", None)
    write_copies(suggest(found, recommender, 1), recommender.library, copies)
    assert "[@mcdonald2005]" in (tmp_path / "filled" / "01-parsing.Rmd").read_text()
    assert "@misc{mcdonald2005" in (tmp_path / "filled" / "refs.bib").read_text()


UNSURE = r"""\documentclass{article}
\begin{document}
Graphs \cite{?} and \citep{?}, while
BERT \citep[see][]{nivre2003,
  ?, TODO} and Adam \cite{?} are newer.
\end{document}
"""
NOTE = "% citerec: not sure: devlin2019bert, kingma2015, mcdonald2005\n"
REST = "% citerec: not sure: kingma2015, mcdonald2005, lee2026\n"


def certain(found: Draft, recommender: Recommender, *probabilities: float) -> Suggestions:
    """Suggestions of which all papers of a place have a probability."""
    made = suggest(found, recommender, 5)
    order = {id: rank for rank, (id, *_) in enumerate(SHELF)}
    papers = [
        [replace(paper, probability=one) for paper in sorted(papers, key=lambda paper: order[paper.id])]
        for papers, one in zip(made.papers, probabilities, strict=True)
    ]
    return replace(made, papers=papers)


@pytest.mark.parametrize(
    ("probabilities", "sure", "expected"),
    [
        (
            (0.1, 0.1, 0.1, 0.1),
            0.0,
            ["\\citep{kingma2015}, while\nBERT", "  mcdonald2005, lee2026} and Adam"],
        ),
        (
            (0.6, 0.1, 0.1, 0.6),
            0.5,
            [
                f"{REST}Graphs \\cite{{devlin2019bert}} and \\citep{{?}}",
                f"while\n{REST}BERT",
                "Adam \\cite{k",
            ],
        ),
        (
            (0.1, 0.1, 0.3, 0.1),
            0.5,
            [
                f"{NOTE}{NOTE}Graphs \\cite{{?}}",
                "{nivre2003,\n  devlin2019bert, kingma2015} and Adam \\cite{?}",
            ],
        ),
        ((0.1, 0.1, 0.1, 0.1), 0.5, [f"while\n{NOTE}{NOTE}BERT", "nivre2003,\n  ?, TODO}"]),
    ],
)
@pytest.mark.parametrize("ends", ["\n", "\r\n"])
def test_what_is_not_sure_is_left_with_a_comment(
    tmp_path: Path,
    recommender: Recommender,
    ends: str,
    probabilities: tuple[float, ...],
    sure: float,
    expected: list[str],
) -> None:
    (tmp_path / "a.tex").write_bytes(UNSURE.replace("\n", ends).encode())
    found = read_draft(tmp_path / "a.tex")
    copies = plan_copies(found, tmp_path / "b.tex", None)
    lines = write_copies(certain(found, recommender, *probabilities), recommender.library, copies, sure)
    text = (tmp_path / "b.tex").read_bytes().decode()
    assert text.count(ends) == text.count("\n")
    text = text.replace(ends, "\n")
    assert all(part in text for part in expected), text
    left = sum(one * (2 if place == 2 else 1) < sure for place, one in enumerate(probabilities))
    filled = 4 - left if sure else 3  # the fourth has no other paper left
    assert text.count("% citerec") == left and f"filled {filled} of 4" in lines[0]
    assert any(f"{left} left with a comment" in line for line in lines) == bool(left)
    kept = "".join(line for line in text.splitlines(True) if not line.startswith("% citerec"))
    assert kept.count("\n") == UNSURE.count("\n"), "comments are lines of their own"


@pytest.mark.parametrize(("between", "least"), [(0, AGAIN), (AROUND - 1, AGAIN), (AROUND, 0.5)])
@pytest.mark.parametrize("order", [1, -1])
def test_a_paper_that_is_cited_nearby_has_to_be_surer(
    tmp_path: Path, recommender: Recommender, between: int, least: float, order: int
) -> None:
    others = [f"Work {number} is another \\cite{{own{number}}}." for number in range(between)]
    sentences = ["BERT is old \\cite{devlin2019bert}.", *others, "So is BERT \\cite{?}."][::order]
    (tmp_path / "a.tex").write_text(
        "\\documentclass{article}\\begin{document}\n" + " ".join(sentences), "utf-8"
    )
    found = read_draft(tmp_path / "a.tex")
    for probability in (0.49, 0.5, AGAIN - 0.01, AGAIN):
        made = certain(found, recommender, probability)
        [best, *_] = made.papers[0]
        assert best.id == "bert"
        assert are_sure(found, found.places[0], made.ids, [best], 0.5) == (probability >= least)


def test_comments_in_markdown(tmp_path: Path, recommender: Recommender) -> None:
    (tmp_path / "a.md").write_text("Graphs [@?] are old, Adam [CITE] is not.\n")
    found = read_draft(tmp_path / "a.md")
    copies = plan_copies(found, tmp_path / "b.md", None)
    made = certain(found, recommender, 0.2, 0.9)
    made = replace(made, papers=[[replace(paper, key="a--b") for paper in made.papers[0]], made.papers[1]])
    write_copies(made, recommender.library, copies, 0.5)
    text = (tmp_path / "b.md").read_text()
    assert text.startswith("Graphs [@?]<!-- citerec: not sure: a-b, a-b, a-b --> are old, Adam [@")


def test_papers_cited_elsewhere_are_marked_beside_k_others(folder: Path, recommender: Recommender) -> None:
    found = read_draft(folder / "paper.tex")
    made = suggest(found, recommender, 2)
    for papers in made.papers:
        cited = [paper for paper in papers if paper.cited]
        assert {paper.id for paper in cited} <= set(made.ids.values())
        assert len(papers) - len(cited) <= 2 and len(cited) <= CITED
    assert any(paper.cited for papers in made.papers for paper in papers)
    out = io.StringIO()
    report(made, Console(file=out, width=100))
    assert "already cited in this draft" in out.getvalue()


def test_a_key_belongs_to_its_own_entry(tmp_path: Path) -> None:
    same: dict[str, Any] = {"title": "Deep Sampling of Graphs", "authors": ("Wei Zhang",)}
    papers = [
        LibraryPaper("pre", "zhang2017", year=2017, venue="arXiv", **same),
        LibraryPaper("pub", "zhang2021", year=2021, venue="Journal", doi="10.1/z", **same),
    ]
    Library.create(tmp_path / "mine", papers, model="bm25")
    recommender = Recommender.open(tmp_path / "mine")
    entry = "@article{%s, title={Deep sampling of graphs}, author={Zhang, Wei}, year=%s}\n"
    for cited, year in (("zhang2021", 2021), ("mine", 2021), ("zhang2017", 2017)):
        (tmp_path / "a.bib").write_text(entry % (cited, year))
        (tmp_path / "a.tex").write_text(
            rf"Graphs \cite{{{cited}}}. Sampling of graphs \cite{{?}}.\bibliography{{a}}"
        )
        [found] = suggest(read_draft(tmp_path / "a.tex"), recommender, 5).papers
        keys = {paper.year: (paper.key, paper.cited) for paper in found}
        others = {"zhang2017": 2017, "zhang2021": 2021}
        assert keys == {
            other: (cited if other == year else key, other == year) for key, other in others.items()
        }


def test_a_copy_says_what_it_lacks(recommender: Recommender, tmp_path: Path) -> None:
    (tmp_path / "a.png").touch()
    (tmp_path / "d.tex").write_text(
        r"""\begin{document}
        BERT \cite{?} \includegraphics{a} \includegraphics[width=1cm]{gone} \includegraphics{../far.png}
        \end{document}"""
    )
    parsed = read_draft(tmp_path / "d.tex")
    copies = plan_copies(parsed, tmp_path / "copy" / "d.tex", None)
    *_, line = write_copies(suggest(parsed, recommender, 1), recommender.library, copies)
    assert line == "not in the draft's folder, and so not in the copy: gone, ../far.png"
    copied = (str(path.relative_to(tmp_path / "copy")) for path in (tmp_path / "copy").rglob("*.*"))
    assert sorted(copied) == ["a.png", "d.bib", "d.tex"]
