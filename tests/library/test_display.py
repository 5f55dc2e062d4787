"""Output formats: tables, JSON, BibTeX and citations."""

from __future__ import annotations

import io
import json
from dataclasses import replace

import pytest
from bibtexparser.entrypoint import parse_string
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from citerec.formats.bibliography.latex import escape_latex
from citerec.formats.bibliography.paper import LibraryPaper
from citerec.formats.bibliography.references import bibtex
from citerec.formats.latex_text import plain_text
from citerec.library.ask.display import as_json, citation, short_authors, table
from citerec.library.ask.recommendation import Recommendation
from citerec.library.evidence.explanation import NO_EVIDENCE, Explanation

SENTENCE = "We propose Adam, a method for stochastic optimisation with adaptive estimates of moments."
ADAM = Recommendation(
    1, 0.8312, "arxiv:1412.6980", "kingma2015adam", "Adam: A Method for Stochastic Optimization",
    ("Diederik P. Kingma", "Jimmy Ba"), 2015, "ICLR",
    Explanation(SENTENCE, ((30, 40), (41, 53)), (), "Adam", "All models use Adam [CITE]."),
    {"bm25": 12.25, "unseen": 0.0},
)  # fmt: skip
BARE = Recommendation(2, 0.1, "p2", "", "[red]Un\x1b[31mfair[/red]\ntitle\u202e")


def printed(width: int = 80, explain: bool = False, **console: object) -> str:
    file = io.StringIO()
    Console(file=file, width=width, **console).print(table([ADAM, BARE], explain))  # type: ignore[arg-type]
    return file.getvalue()


def test_a_table_is_readable_at_80_columns_and_without_colour() -> None:
    text = printed()
    assert all(len(line) <= 80 for line in text.splitlines())
    first = " ".join(text.split())
    assert "1 0.831 Adam: A Method" in first and "Adam is named here" in first
    assert "Kingma and Ba · 2015 · kingma2015adam · ICLR" in first
    assert "[red]Un [31mfair[/red] title" in text and "\x1b" not in text and "\u202e" not in text
    assert "p2" in text, "the id if there is no key"
    assert "bm25 12.2, unseen 0" in printed(explain=True) and "bm25" not in text


@pytest.mark.parametrize(
    ("probability", "cited", "shown"),
    [
        (0.624, False, "1 62 % Adam"),
        (0.002, False, "1 <1 % Adam"),
        (None, True, "1 0.831 Adam"),
        (1.0, True, "1 >99 % Adam"),
    ],
)
def test_probabilities_and_what_is_cited(probability: float | None, cited: bool, shown: str) -> None:
    file = io.StringIO()
    Console(file=file, width=200).print(table([replace(ADAM, probability=probability, cited=cited)]))
    assert file.getvalue().startswith(shown)
    assert ("already cited in this draft" in file.getvalue()) == cited


def test_only_matches_are_coloured() -> None:
    text = printed(200, force_terminal=True, color_system="standard")
    assert "33mstochastic\x1b" in text and "33mmoments" not in text
    assert "33m[CITE]" in text


def test_json_has_exactly_the_fixed_fields() -> None:
    fixed = {
        "rank": 2,
        "score": 0.1,
        "probability": None,
        "cited": False,
        "retracted": "",
        "id": "p2",
        "key": "",
        "title": BARE.title,
        "year": None,
        "why": NO_EVIDENCE,
    }
    found = json.loads(as_json([ADAM, BARE]))
    assert found[1] == fixed and list(found[0]) == list(fixed)
    assert as_json([]) == "[]"


@pytest.mark.parametrize(
    ("authors", "short"),
    [
        ([], ""),
        (["{OpenAI}"], "OpenAI"),
        (["van der Maaten, Laurens", "Geoffrey Hinton"], "van der Maaten and Hinton"),
        (["李明"], "李明"),
        (["A", "B", "C"], "A et al."),
    ],
)
def test_short_authors(authors: list[str], short: str) -> None:
    assert short_authors(authors) == short


def test_source_entries_are_kept_under_the_papers_key() -> None:
    raw = "@InProceedings{old_key,\n  title = {{BERT}: Pre-training},\n  note = {kept}\n}"
    text = bibtex([LibraryPaper("p1", "devlin2019", "BERT", bibtex=raw)])
    assert text == raw.replace("old_key", "devlin2019") + "\n"
    assert citation(["a", "b"], "cite") == r"\cite{a,b}" and citation(["a"], "markdown") == "[@a]"


def test_a_generated_entry() -> None:
    paper = LibraryPaper(
        "p1", "kingma2015", "Adam: 5% better BERTs & more", "", ("Kingma, D.", "Barnes and Noble"), 2015,
        "ICLR", "10.1/a_b", "1412.6980", "https://x.org/{a}",
    )  # fmt: skip
    text = bibtex([paper])
    (entry,) = parse_string(text).entries
    assert (entry.entry_type, entry.key) == ("inproceedings", "kingma2015")
    fields = {name: str(field.value) for name, field in entry.fields_dict.items()}
    assert fields["title"] == r"Adam: 5\% better {BERTs} \& more"
    assert fields["author"] == "Kingma, D. and {Barnes and Noble}"
    assert fields["doi"] == "10.1/a_b" and fields["booktitle"] == "ICLR" and fields["eprint"] == "1412.6980"
    assert fields["url"] == "https://x.org/%7Ba%7D"


@pytest.mark.parametrize(
    ("venue", "kind"),
    [("", "misc"), ("Nature", "article"), ("JMLR", "article"), ("Proceedings of the ACL", "inproceedings")],
)
def test_kinds_of_entries(venue: str, kind: str) -> None:
    assert bibtex([LibraryPaper("p", "k", "T", venue=venue)]).startswith(f"@{kind}{{k,")


@given(st.text(st.sampled_from("ab1 {}\\%&#_.,:()[]/+=")))
def test_escaped_texts_keep_their_content_and_have_balanced_braces(text: str) -> None:
    latex = escape_latex(text)
    assert latex.count("{") == latex.count("}")
    for macro, sign in ((r"\textbraceleft{}", r"\{"), (r"\textbraceright{}", r"\}")):
        latex = latex.replace(macro, sign)  # plain_text does not know these macros
    assert plain_text(latex) == " ".join(text.split())
