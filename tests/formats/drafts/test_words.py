"""What is left of markup in the text of a draft: its words, and nothing else."""

from __future__ import annotations

import re
from contextlib import nullcontext
from pathlib import Path

import pytest

from citerec.base.errors import InputError
from citerec.formats.drafts.inputs import Inputs, decode_text, encoded_like, exact_text
from citerec.formats.drafts.languages import language_of
from citerec.formats.drafts.latex import LATEX
from citerec.formats.drafts.org import ORG
from citerec.formats.drafts.typst import TYPST

DRAFTS = {
    ".tex": (
        "\\documentclass[ngerman]{article}\n\\usepackage{babel}\n\\ifnumequal{1}{0}{\\newcommand*{\\autocite}[1]{}}{}\n"
        '\\begin{document}\nSo h"aufig die Stra"se \\textcquote[3]{a}{es ist so}, "`Pe"=Pa"\' und <<so>> '
        '\\autocite{h"a} in \\vref{fig:c}\\subref{s:a} \\hyperref[fig:c]{Bild} \\lstinline[style=x]!f y! '
        "\\mintinline{java}{run} \\addcontentsline{toc}{section}{Nie}.\n\\end{document}",
        "So häufig die Straße [1]es ist so, „Pe-Pa“ und «so» [2] in Bild f y run .",
    ),
    ".md": (
        "We use the `lme4` package [@a], ``brms`` and `r nrow(x)` rows of `x <- y[1]`.\n\n"
        "```glmm``` is one. ```a @x``` [@d]\n\n> ```nlme``` is another.\n\n"
        "H~2~O ~~was~~ 10^th^ &mdash; [[Notes|notes]] {{< pagebreak >}} [@b]\n\n"
        "| x | y |\n|---|:-:|\n| 1 | [@c] |\n",
        "We use the lme4 package [1], brms and rows of . glmm is one. [2]. nlme is another. "
        "H2O was 10th — notes [3]. x y 1 [4]",
    ),
    ".org": (
        "We use ~lme4~ [cite:@a] and =brms= at the \\ac{LHC} with $p \\leq 5$ % for $5 and $6\\\\\n"
        "{{{big}}} See ref:fig:x and <<here>> [cite:@b].\n"
        "CLOSED: [2023-03-28 Tue 13:03]\n- [X] Term :: as in [cite:@c]\n",
        "We use lme4 [1] and brms at the LHC with p ≤ 5 % for $5 and $6 See and [2]. Term: as in [3]",
    ),
    ".typ": (
        'We use `lme4` @a and #abr("DSM") by #text(fill: red)[red \\ words] @b[p. 3].\n'
        '#figure(\n  align(center, image("a.png", width: 80%)),\n'
        '  caption: [Parts of *it* #cite(<c>, form: "prose").])<fig:a>\nSee @fig:a and @dft:pl.\n'
        '#table(columns: 2, [x], [y @d]) #box(cite(<e>))\n#let dsm = (key: "dft", short: "DFT")\n',
        "We use lme4 [1] and DSM by red words [2]. Parts of it [3]. See and . x y [4] [5]",
    ),
}


def text_of(path: Path) -> str:
    """Return the text of a draft in which citations are numbers."""
    language = language_of(path.suffix)
    assert language is not None
    paragraphs, _ = language.paragraphs(language.read(path, Inputs()).text)
    return " ".join(" ".join(item.text.split()) for item in paragraphs if item.text.strip())


@pytest.mark.parametrize("suffix", sorted(DRAFTS))
def test_words_are_left(tmp_path: Path, suffix: str) -> None:
    draft, text = DRAFTS[suffix]
    (path := tmp_path / f"a{suffix}").write_text(draft, encoding="utf-8")
    assert text_of(path) == text


def test_signs_between_two_formulas_hide_no_text(tmp_path: Path) -> None:
    text = r"At $3$$^\circ$C trees [@a] grow: \$$x$ or$$y_1,$$ [@b], but $z$$$y [@c]$$ at $4$$^\circ$C [@d]."
    for suffix, mark in ((".tex", r"\\cite{\1}"), (".md", r"[@\1]")):
        (path := tmp_path / f"a{suffix}").write_text(re.sub(r"\[@(.)\]", mark, text))
        words = text_of(path)
        assert "[3]" in words and "[4]" not in words and "y" not in words and " but " in words


def test_keys_in_a_caption_with_a_short_form_and_in_columns(tmp_path: Path) -> None:
    (path := tmp_path / "a.tex").write_text(
        "\\documentclass{a}\\begin{document}Text.\n"
        "\\begin{table}\\caption[short]\n{Long words \\cite{\uf000a}.}"
        "\n\\begin{tabular}{|l|p{3cm}|}one & two \\cite{\uf000b}\\end{tabular}\\end{table}\\end{document}"
    )
    paragraphs, _ = LATEX.paragraphs(LATEX.read(path, Inputs(lambda file: file.read_text("utf-8"))).text)
    text = " ".join(part.text for part in paragraphs)
    assert "Long words [1]." in text and "one two [2]" in " ".join(text.split())
    assert "3cm" not in text and "|" not in text


@pytest.mark.parametrize(
    ("name", "text", "declared"),
    [
        ("cp1251", "Методы анализа данных, Иванов И. И.", ""),
        ("gb18030", "基于BERT模型的文本分类, 王小明", ""),
        ("latin2", "Štěpán Dvořák, Łódź", ""),
        ("latin1", "Müller à Paris", ""),
        ("iso8859-7", "Παπαδόπουλος, Γ.", ""),
        ("iso-8859-7", "Ανάλυση δεδομένων", "\\usepackage[iso-8859-7]{inputenc}\n"),
        ("cp1253", "Ανάλυση δεδομένων", "% Encoding: windows-1253\n"),
    ],
)
def test_files_in_other_encodings_are_read_and_written_again(
    name: str, text: str, declared: str, tmp_path: Path
) -> None:
    (path := tmp_path / "a.tex").write_bytes(f"{declared}{text}\n".encode(name))
    assert decode_text(path).endswith(f"{text}\n") and exact_text(path) == f"{declared}{text}\n"
    assert encoded_like(path, f"{declared}{text} a") == f"{declared}{text} a".encode(name)
    with (
        pytest.raises(InputError, match="its encoding has no ☃; convert it")
        if name != "gb18030"
        else nullcontext()
    ):
        encoded_like(path, "☃")


def test_text_within_rules_and_functions_of_typst_is_read(tmp_path: Path) -> None:
    words = "We parse trees. " * 70
    (tmp_path / "intro.typ").write_text(f'#let intro(x) = {{\n  text(lang: "en")[\n{words}@b\n]\n}}\n')
    (tmp_path / "part.typ").write_text("Parts have @c.\n")
    draft = (
        '#import "intro.typ": intro\n#show: template(title: "T")[\n= One\nA first @a.\n'
        '#include "part.typ"\n#intro(1)\n]\n#{ include "part.typ" }\n'
    )
    (path := tmp_path / "a.typ").write_text(draft)
    text = text_of(path)
    assert text.startswith("A first [1]. Parts have [2]. We parse")
    assert text.endswith("We parse trees. [3]. Parts have [2].")


@pytest.mark.parametrize(
    ("name", "draft", "text"),
    [
        ("a.typ", "#context { if x.get() == 1 [\nSo] }\nIs #context y(page).display().\n@a", "So Is . [1]"),
        ("a.typ", '#counter(page).update(1)\nIn #f.today().at(b: "[c]", [d]) @a', "In d [1]"),
        ("a.typ", "#figure(x)[Trees]<a:b> as @a:b:12 grow @a.", "Trees as grow [1]."),
        ("a.typ", '#import "b/b.typ": *\n#let b-x = [B]\n@a #b-x.at #gp(1) #ape #gpt;s', "[1] B.at Ape GPTs"),
        ("a.md", '[A](x){b="c"} ![D](d){width=5} `e`{=latex} [![F](f){g="h"}](i "j"){k=3} @a', "A D e F [1]"),
        ("a.md", "So\n| A | B |\n| --- |:-:|\n| C | @a |\n| D | @b |\n\nE", "So. A B C [1]. D [2]. E"),
        ("a.md", "+---+---+\n| A | @a |\n+===+===+\n| B | @b |\n+---+---+\n\nC @c", "A [1]. B [2]. C [3]"),
        ("a.org", "So\n#+caption: A\n| B | cite:a |\n|---+---|\n| C | cite:b |\nD", "So. A. B [1]. C [2]. D"),
    ],
)  # fmt: skip
def test_code_attributes_and_rules_are_no_words(name: str, draft: str, text: str, tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    (tmp_path / "b/b.typ").write_text('#import "../c.typ": *\n#let gpt = "GPT"\n')
    (tmp_path / "c.typ").write_text("#let ape = smallcaps[Ape]\n#let gp(x) = [Not]\n")
    (path := tmp_path / name).write_text(draft)
    assert text_of(path) == text


def test_only_closed_drawers_are_hidden_in_org(tmp_path: Path) -> None:
    (path := tmp_path / "a.org").write_text(
        ":PROPERTIES:\n:ID: 1\n:END:\nA cite:a\n:my-notes2:\nB cite:b\n:end:\nC cite:c\n:note:\nD\n"
        ":logbook:\nlog cite:x\n:END:\nE\n:LOGBOOK:\nF cite:d\n* G\nH\n:END:\nI cite:e\n"
    )
    assert text_of(path) == "A [1]. C [2]. D. E. F [3] H. I [4]"
    text = ":PROPERTIES:\na\n" * 40_000
    assert [*ORG.hidden(text)] == []  # in quadratic time an hour


def test_calls_of_typst_are_headings(tmp_path: Path) -> None:
    calls = ('#heading(numbering: "1.")[Trees] <a>', '#heading(level: 2, "Abstract")', "#heading[\nMoss]")
    (path := tmp_path / "a.typ").write_text("\nWe do @a.\n".join(calls))
    source = TYPST.read(path, Inputs())
    assert (source.metadata.title, source.metadata.abstract) == ("Trees", "We do .")
    names = [part.section for part in TYPST.paragraphs(source.text)[0]]
    assert names == ["0 ", "1 Trees", "2 Abstract", "3 Moss"]


@pytest.mark.parametrize(
    ("name", "draft"),
    [
        ("a.md", "---\ntitle: Trees [@a]\nabstract: They grow. @b\n---\n"),
        ("a.typ", "#show: f.with(title: [Trees @a], abstract: [They grow. #cite(<b>)])"),
        ("a.org", "#+title: Trees [cite:@a]\n#+begin_abstract\nThey grow. [cite:@b]\n#+end_abstract\n"),
        ("a.tex", r"\title{Trees \cite{a}}\begin{abstract}They grow. \cite{b}\end{abstract}"),
    ],
)
def test_titles_and_abstracts_have_no_citations(name: str, draft: str, tmp_path: Path) -> None:
    (path := tmp_path / name).write_text(draft)
    language = language_of(path.suffix)
    assert language is not None
    source = language.read(path, Inputs())
    assert (source.metadata.title, source.metadata.abstract) == ("Trees", "They grow.")
    assert {*source.keys} == {"a", "b"}


@pytest.mark.parametrize(
    ("name", "draft", "title"),
    [
        ("a.typ", '#outline(title: "Contents")\n#let title = [A \\ title]\n= Intro\n@a', "A title"),
        (
            "a.typ",
            '#show: f.with(advisor: (pre-title: "Dr."), title: (en: "Own title", de: "Titel"))\n@a',
            "Own title",
        ),
        ("a.typ", '#show: f.with(title: "Own title", abstract: "")\n@a', "Own title"),
        ("a.typ", "= Abstract\nText.\n= Start\n@a", "Start"),
        ("a.md", "# (PART\\*) One {-}\n\n# Start {-}\n\n@a", "Start"),
        ("a.md", "# Abstract\n\n# 1. Introduction\n\n@a\n\n# Method", ""),
        ("a.typ", "= Acknowledgments\n= Start\n@a", ""),
    ],
)
def test_titles(tmp_path: Path, name: str, draft: str, title: str) -> None:
    (path := tmp_path / name).write_text(draft)
    language = language_of(path.suffix)
    assert language is not None
    assert language.read(path, Inputs()).metadata.title == title
