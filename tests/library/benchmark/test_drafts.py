"""benchmark=drafts: masked citations, ranks by hand, protocols, resuming, and fetching the drafts by git."""

from __future__ import annotations

import csv
import json
import math
import re
import shutil
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

import citerec
from citerec.base.errors import InputError
from citerec.datasets.published.drafts import (
    LIST,
    LISTS,
    DraftsSettings,
    draft_folder,
    fetch_drafts,
    list_file,
    read_list,
)
from citerec.evaluation.measures import PerQuery
from citerec.evaluation.report import METRICS, PER_QUERY, REPORT, Provenance
from citerec.library.ask.question import Filters, Request
from citerec.library.ask.recommender import Recommender
from citerec.library.benchmark.collection import find_drafts, questions
from citerec.library.benchmark.drafts import PARTS, Drafts
from citerec.library.benchmark.results import DraftResult, Ranks, read_results, result_parts
from citerec.library.commands.change import build
from citerec.library.drafts.reader import read_draft
from citerec.library.drafts.suggest import citing_passages, place_request
from citerec.library.settings import BuildSettings
from citerec.retrieval.base import Retriever
from citerec.retrieval.passages import CitingPassages
from citerec.retrieval.queries import Query
from citerec.tests.datasets.conftest import write_files

TITLES = {
    "bert": "Deep Bidirectional Transformers for Language Understanding",
    "adam": "A Method for Stochastic Optimization",
    "mst": "Dependency Parsing with Spanning Trees",
    "greedy": "Greedy Algorithms for Transition Parsing",
    "lda": "Latent Dirichlet Allocation",
    "svm": "Support Vector Machines",
    "bleu": "Automatic Evaluation of Machine Translation",
    "porter": "Suffix Stripping of Inflected Words",
}
ABSTRACTS = {
    "adam": "Gradients of noisy objectives adapt the steps.",
    "mst": "Graphs of words have a best tree.",
    "lda": "Topics are mixtures over words of documents.",
    "svm": "Kernels separate classes with a margin.",
}
PAPER = r"""\documentclass{article}
\newcommand{\mycite}[1]{(see \citealp{#1})}
\title{Parsing with Attention}
\begin{document}
\begin{abstract}We parse sentences with transformers \citep{bert}.\end{abstract}
\section{Introduction}
% Commented out \cite{svm}
Language models that read in both directions \citep[see][p.~2]{bert, adam} are fine-tuned with adaptive steps.
Stochastic gradients by \citet{adam} are usual, while \citeauthor{lda} (\citeyear{lda}) found topics.
Nobody reads \cite{ghost}. Trees \mycite{mst} are old. \nocite{bleu}
\begin{verbatim}
\cite{svm}
\end{verbatim}
\begin{figure}\includegraphics{x}\caption{Margins of kernels \cite{svm}.}\end{figure}
\input{related}
\bibliography{refs}
\end{document}
"""
RELATED = r"""\section{Related work}
Parsers that find the best tree of a graph \parencite{mst} and greedy ones \autocites{greedy}[3]{mst} compete.
\section{Code}
Write \verb|\cite{svm}| to cite.
"""
NOTES = """---
title: Counting words
bibliography: refs.bib
---
# Words

Endings are cut off [@porter, p. 3; @lda], and topics found [-@lda].
As @bleu shows, see @fig-one and [@sec-two].

`[@svm]` <!-- [@svm] --> me@porter.org

```r
x <- "[@svm]"
```
"""
INDEX = """---
title: A book
bibliography: [refs.bib]
site: bookdown::bookdown_site
---
# Preface

Kernels with margins [@svm].
"""
CHAPTER = """# Optimisation

Noisy objectives need adaptive steps [@adam], and classes a margin [@svm; @adam].
"""


def bibtex(keys: list[str], abstracts: bool = True) -> str:
    entries = []
    for key in keys:
        abstract = ABSTRACTS.get(key, "") if abstracts else ""
        fields = f"title = {{{TITLES[key]}}}, author = {{Lee, Ann and Diaz, Bo}}, year = 2010"
        entries.append(f"@article{{{key}, {fields}{f', abstract = {{{abstract}}}' if abstract else ''}}}\n")
    return "\n".join(entries)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A paper in LaTeX with an input, notes in Markdown and a book in R Markdown."""
    texts = {
        "paper/paper.tex": PAPER,
        "paper/related.tex": RELATED,
        "paper/refs.bib": bibtex(["bert", "adam", "mst", "greedy", "lda", "svm", "bleu"]),
        "notes/notes.md": NOTES,
        "notes/refs.bib": bibtex(["porter", "lda", "bleu", "svm"]),
        "book/index.Rmd": INDEX,
        "book/01-steps.Rmd": CHAPTER,
        "book/_bookdown.yml": "delete_merged_file: true\n",
        "book/refs.bib": bibtex(["adam", "svm", "bert", "mst"]),
    }
    return write_files(tmp_path / "mine", texts)


def no_retriever() -> Retriever:
    raise AssertionError("the benchmark asks libraries")


def run(folder: Path, output: Path, **options: Any) -> dict[str, Any]:
    options = {"model": "bm25", "baseline": None} | options
    found = Drafts(drafts=str(folder), **options).run(output, Provenance(), no_retriever).metrics
    assert json.loads((output / METRICS).read_text()) == found
    return dict(found)


def asked(path: Path) -> list[tuple[str, ...]]:
    return [place.replaced for place in read_draft(path, masked=True).places]


def test_what_is_asked(folder: Path) -> None:
    assert sorted(asked(folder / "paper" / "paper.tex")) == [
        ("adam",),
        ("bert",),
        ("bert", "adam"),
        ("ghost",),
        ("greedy", "mst"),
        ("lda",),
        ("mst",),
        ("mst",),
        ("svm",),  # of the caption; not those in a comment, verbatim or \nocite
    ]
    assert asked(folder / "notes" / "notes.md") == [("porter", "lda"), ("lda",), ("bleu",)]
    assert asked(folder / "book" / "index.Rmd") == [("svm",), ("adam",), ("svm", "adam")]


def test_marks_beside_citations(tmp_path: Path) -> None:
    (tmp_path / "a.tex").write_text(r"Old [CITE], but see \cite{lda} or \citeauthor{bert} [citation needed].")
    assert ("lda",) in asked(tmp_path / "a.tex")


def test_first_citations_and_what_is_known(folder: Path) -> None:
    draft = read_draft(folder / "book" / "index.Rmd", masked=True)
    known = {"svm": "a", "adam": "b"}
    of_svm, _, of_both = questions(draft, known)
    assert (of_svm.targets, of_svm.again, of_svm.known) == ({"a": "svm"}, {"a"}, ["svm", "adam"])
    assert of_both.targets == {"b": "adam", "a": "svm"}
    draft = read_draft(folder / "notes" / "notes.md", masked=True)
    both, topics, bleu = questions(draft, {"porter": "p", "lda": "l", "bleu": "b"})
    assert (both.again, both.known) == ({"l"}, ["lda", "bleu"])
    assert (topics.again, topics.known) == ({"l"}, ["porter", "lda", "bleu"])
    assert (bleu.again, bleu.known) == (set(), ["porter", "lda"])
    # Two keys of the same paper: one query, and another citation of the paper.
    (one, _, other) = questions(draft, {"porter": "same", "lda": "same", "bleu": "same"})
    assert (one.targets, one.again, other.again) == ({"same": "porter"}, {"same"}, {"same"})


def test_an_old_version_that_a_draft_includes_is_the_same_text(tmp_path: Path) -> None:
    text = "Steps that adapt to each gradient train networks sooner [@adam].\n\n"
    between = "".join(
        f"Words about {word} stand alone, {f'{word} far ' * 20}[@lda].\n\n"
        for word in ("trees", "peat", "graphs")
    )
    (tmp_path / "a.md").write_text(f"{text}{between}{text}Adam is meant [@adam; @svm].\n\n{between}{text}")
    draft = read_draft(tmp_path / "a.md", masked=True)
    ids = {"adam": "a", "lda": "l", "svm": "s"}
    (first, *_, last), passages = questions(draft, ids), citing_passages(draft, ids)
    assert first.again == last.again == {"a"}, "the sentence between is no copy"
    (tmp_path / "a.md").write_text(f"{text}{between}{text}")
    draft = read_draft(tmp_path / "a.md", masked=True)
    (first, *others, last), passages = questions(draft, ids), citing_passages(draft, ids)
    assert (first.again, first.known, last.again) == (set(), ["lda", "svm"], set())
    assert all(question.again == {"l"} for question in others)
    assert place_request(draft, first.place, ids, passages).query.known == ("l", "s")


@pytest.mark.parametrize("odd", ["", "% nothing yet\n", "<html></html>", "@misc{x, year = 2000}\n"])
def test_a_bib_without_papers_is_left_out_with_a_line(folder: Path, tmp_path: Path, odd: str) -> None:
    (folder / "paper" / "odd.bib").write_text(odd)
    text = PAPER.replace("bibliography{refs}", "bibliography{odd,refs}")
    (folder / "paper" / "paper.tex").write_text(text)
    (folder / "book" / "refs.bib").write_text(odd)
    drafts, left_out = find_drafts(folder)
    assert [(one.name, [bib.name for bib in one.bibs]) for one in drafts] == [
        ("notes", ["refs.bib"]),
        ("paper", ["refs.bib"]),
    ]
    book, paper = sorted(left_out)
    assert book.startswith(f"book: {folder}/book/refs.bib: has no ")
    assert paper.startswith(f"paper: {folder}/paper/odd.bib: has no ")
    assert run(folder, tmp_path / "out", protocols=["as_is", "merged"], commands=["ask"])
    assert "Left out: paper: " in (tmp_path / "out" / REPORT).read_text()


@pytest.mark.parametrize("name", ["paper/paper.tex", "notes/notes.md", "book/index.Rmd"])
def test_each_mask_is_a_missing_citation(folder: Path, name: str) -> None:
    """The draft with one command replaced as its author would write it, read as `citerec draft` reads it."""
    masked = read_draft(folder / name, masked=True)
    for place in masked.places:
        text = place.file.read_text()
        missing = r"\cite{?}" if name.endswith(".tex") else "[@?]"
        if place.command.startswith(("@", r"\mycite")):
            missing = place.command.replace(place.replaced[0], "?")
        place.file.write_text(text[: place.start] + missing + text[place.end :])
        draft = read_draft(folder / name)
        place.file.write_text(text)
        (found,) = draft.places
        assert (found.context, found.line, found.beside) == (place.context, place.line, place.beside)
        assert set(draft.cited) == {key for of in masked.places if of is not place for key in of.replaced}


def by_hand(folder: Path, main: str, library: Path, command: str) -> list[tuple[int, str, int]]:
    """Line, key and rank of each query, asked one by one."""
    recommender, draft = Recommender.open(library), read_draft(folder / main, masked=True)
    corpus = recommender.library.corpus
    own = re.findall(r"@article\{(\w+)", (folder / "refs.bib").read_text())
    ids = {key: corpus.paper_ids[list(corpus.titles).index(TITLES[key])] for key in own}
    ranks = []
    for place in draft.places:
        elsewhere = [ids[key] for of in draft.places if of is not place for key in of.replaced if key in ids]
        beside = [ids[key] for key in place.beside if key in ids]
        query, filters = Query(place.context, draft.title, draft.abstract), Filters()
        if command != "ask":
            context, row, rows = place.context, place.passage, len(draft.passages)
            if command == "written":
                rows, context = row, context[: context.index("TARGETCIT") + len("TARGETCIT")]
                before = {ids[key] for _, keys in draft.passages[:row] for key in keys if key in ids}
                elsewhere = [paper for paper in elsewhere if paper in before]
                beside = [paper for paper in beside if paper in before]
            cited = [[ids[key] for key in keys if key in ids] for _, keys in draft.passages[:rows]]
            passages = CitingPassages([context for context, _ in draft.passages[:rows]], cited)
            about = draft.title, draft.abstract, draft.year, tuple(elsewhere), None, passages
            query = Query(context, *about, row)
            filters = Filters(exclude=beside)
        found = recommender.ranked(Request(query, filters), 100).ids
        targets = {key: ids[key] for key in place.replaced if key in ids}
        for key, paper in targets.items():
            ranking = [one for one in found if one == paper or one not in targets.values()]
            ranks.append((place.line, key, 1 + ranking.index(paper) if paper in ranking else 0))
    return sorted(ranks)


MAINS = {"book": "index.Rmd", "notes": "notes.md", "paper": "paper.tex"}


@pytest.mark.slow
@pytest.mark.parametrize("model", ["bm25", "builtin"])
def test_numbers_are_those_by_hand(folder: Path, tmp_path: Path, model: str) -> None:
    metrics = run(folder, tmp_path / "out", model=model, baseline="bm25")
    results = {one.name: one for one in read_results(tmp_path / "out" / PARTS)}
    assert list(results) == ["book", "notes", "paper"]
    option = "" if model == "builtin" else model
    bibs: dict[str, tuple[str, ...]] = {name: (str(folder / name / "refs.bib"),) for name in MAINS}
    for protocol in ("as_is", "titles", "merged"):
        libraries = {name: tmp_path / f"{name}-{protocol}" for name in MAINS}
        if protocol == "merged":
            libraries = dict.fromkeys(MAINS, tmp_path / "merged")
            sources = {"paper": tuple(bib for of in bibs.values() for bib in of)}
        elif protocol == "titles":
            for name, (bib,) in bibs.items():
                keys = re.findall(r"@article\{(\w+)", Path(bib).read_text(encoding="utf-8"))
                (tmp_path / f"{name}.bib").write_text(bibtex(keys, abstracts=False))
            sources = {name: (str(tmp_path / f"{name}.bib"),) for name in MAINS}
        else:
            sources = bibs
        for name, source in sources.items():
            build(BuildSettings(library=str(libraries[name]), source=source, model=option))
        for command in ("ask", "draft", "written"):
            means: dict[str, list[float]] = {"recall@10": [], "mrr": [], "hit@1": []}
            for name, main in MAINS.items():
                ranks = by_hand(folder / name, main, libraries[name], command)
                found = results[name]
                asked = [query.partition("#")[0].split(":") for query in found.query_ids]
                measured = found.ranks["model"][f"{protocol}/{command}"].rank
                assert ranks == sorted(
                    (int(line), key, rank) for (*_, line, key), rank in zip(asked, measured, strict=True)
                )
                means["recall@10"].append(float(np.mean([0 < rank <= 10 for *_, rank in ranks])))
                means["mrr"].append(float(np.mean([1 / rank if rank else 0 for *_, rank in ranks])))
                means["hit@1"].append(float(np.mean([rank == 1 for *_, rank in ranks])))
            for measure, values in means.items():
                assert math.isclose(metrics[f"{protocol}/{command}"][measure], np.mean(values))
    one = metrics["as_is/draft"]
    assert math.isclose(one["difference/mrr"], one["mrr"] - one["baseline/mrr"], abs_tol=1e-12)
    assert (one["drafts"], one["queries"]) == (3, sum(len(of.again) for of in results.values()))


def test_a_mark_with_nothing_before_it_is_asked_with_the_title(folder: Path, tmp_path: Path) -> None:
    notes = NOTES.replace(
        "# Words", "# Words\n\n[@porter] translates machines automatically and evaluates.\n"
    )
    (folder / "notes" / "notes.md").write_text(notes)
    run(folder, tmp_path / "out", protocols=("as_is",), commands=("ask", "written"))
    ranks = read_results(tmp_path / "out" / PARTS)[1].ranks["model"]
    assert ranks["as_is/ask"].rank[0] > 1 and ranks["as_is/written"].rank[0] == 1


def test_halves_and_counts(folder: Path, tmp_path: Path) -> None:
    metrics = run(folder, tmp_path / "out", protocols=("as_is",), commands=("ask",))["as_is/ask"]
    paper = read_results(tmp_path / "out" / PARTS)[2]
    keys = [query.split(":")[-1].partition("#")[0] for query in paper.query_ids]
    first = [key for key, again in zip(keys, paper.again, strict=True) if not again]
    assert sorted(first) == ["greedy", "lda", "svm"]
    assert metrics["first/queries"] + metrics["again/queries"] == metrics["queries"]
    means = [one.means("model", "as_is/ask") for one in read_results(tmp_path / "out" / PARTS)]
    of_first = [one["first/mrr"] for one in means]  # the book has no first citations
    assert np.isnan(of_first[0]) and math.isclose(metrics["first/mrr"], np.nanmean(of_first))
    rows = PerQuery.read(tmp_path / "out" / PER_QUERY)
    assert rows.query_ids[0] == "book:index.Rmd:8:svm"
    assert rows.values["again"].sum() == metrics["again/queries"]
    ranks = rows.values["model/as_is/ask/rank"]
    assert np.array_equal(rows.values["hit@1"], ranks == 1)
    assert "| notes |" in (tmp_path / "out" / REPORT).read_text()


def result(**given: Any) -> DraftResult:
    about: dict[str, Any] = {"name": "d", "field": "", "language": "", "papers": 9}
    return DraftResult(**about, abstracts=0.0, query_ids=[], **given)


@given(st.lists(st.tuples(st.integers(0, 100), st.booleans()), min_size=1))
def test_means(pairs: list[tuple[int, bool]]) -> None:
    places = [rank for rank, _ in pairs]
    ranks = {"model": {"g": Ranks(places)}}
    again = [int(again) for _, again in pairs]
    of = result(again=again, mentioned=again, starts=[1] * len(pairs), ranks=ranks, calibrated=False)
    found = of.means("model", "g")
    for prefix, kept in (("", {True, False}), ("again/", {True}), ("first/", {False})):
        chosen = [rank for rank, again in pairs if again in kept]
        expected: dict[str, list[float]] = {
            "recall@10": [0 < rank < 11 for rank in chosen],
            "mrr": [1 / rank if rank else 0.0 for rank in chosen],
            "hit@1": [rank == 1 for rank in chosen],
        }
        for name, values in expected.items():
            if values:
                assert math.isclose(found[f"{prefix}{name}"], sum(values) / len(values), abs_tol=1e-12)
            else:
                assert np.isnan(found[f"{prefix}{name}"])


def test_certainty_is_that_of_the_best_paper_of_each_citation() -> None:
    ranks = Ranks([1, 1, 0, 2], [-0.5, -1.0, None, -2.0], [-0.5, -0.5, None, -1.0], [1, 1, 0, 1])
    of = result(
        again=[0] * 4, mentioned=[0] * 4, starts=[1, 0, 1, 1], ranks={"model": {"g": ranks}}, calibrated=True
    )
    sure, right = of.certainty("model", "g")
    np.testing.assert_allclose(sure, [math.exp(-0.5), 0, math.exp(-1)])
    assert right.tolist() == [1, 0, 0]
    assert of.filled("model", "g") == "1 of 2"
    ranks.score[3] = -1.0  # that of the best paper
    assert of.certainty("model", "g")[1].tolist() == [1, 0, 0]


def test_models_with_other_drafts_are_not_compared_draft_by_draft() -> None:
    ranks = {"model": {"as_is/ask": Ranks([1], [-0.5], [-0.5], [1])}}
    given: dict[str, Any] = {
        "again": [0],
        "mentioned": [0],
        "starts": [1],
        "ranks": ranks,
        "calibrated": True,
    }
    own, other = result(**given), result(**given)
    other.name = "e"
    counts = {"drafts": 1, "candidates": 9, "queries": 1, "first/queries": 1, "again/queries": 0}
    metrics = {name: {"as_is/ask": counts | own.means("model", "as_is/ask")} for name in ("a", "b")}
    for drafts, is_shown in (([own], True), ([other], False), ([], False)):
        parts = result_parts(metrics, {"a": [own], "b": drafts}, None)
        assert ("### By draft" in parts) == is_shown


def test_a_sample(folder: Path, tmp_path: Path) -> None:
    few = run(folder, tmp_path / "few", protocols=("as_is",), queries=1)
    assert 3 <= few["as_is/ask"]["queries"] <= 6
    assert few == run(folder, tmp_path / "again", protocols=("as_is",), queries=1)


def test_a_list_says_which_files(folder: Path, tmp_path: Path) -> None:
    listed: list[dict[str, Any]] = [{"repository": "notes", "main": "notes.md", "bib": ["refs.bib"]}]
    listed[0] |= {"field": "words", "language": "en", "part": "check"}
    listed.append({"repository": "gone", "main": "a.tex", "bib": ["a.bib"]})
    (folder / LIST).write_text(yaml.safe_dump(listed))
    drafts, left_out = find_drafts(folder)
    assert [(one.name, one.field, one.language) for one in drafts] == [("notes", "words", "en")]
    assert len(left_out) == 1 and "gone" in left_out[0]
    assert [one.name for one in find_drafts(folder, ["en", "de"])[0]] == ["notes"]


@pytest.mark.parametrize(
    ("drafts", "options", "message"),
    [
        (None, {}, r"needs drafts=FOLDER; citerec data drafts"),
        ("missing", {}, r"missing: no such folder; citerec data drafts output=.*missing fetches some"),
        ("empty", {}, r"empty: no LaTeX or Markdown draft that cites its \.bib files"),
        ("mixed", {}, r"no LaTeX or Markdown draft.*a\.tex: is not UTF-8 \(line 3\)"),
        ("unnamed", {}, r"no LaTeX or Markdown draft.*names no \.bib file that is in its folder"),
        ("mine", {"protocols": ()}, r"benchmark\.protocols: list at least one value"),
        ("mine", {"commands": ("guess",)}, r"commands.*guess"),
        ("mine", {"depth": 5}, r"depth"),
        ("mine", {"languages": ("fr", "de")}, r"benchmark\.languages: .*mine lists no draft in fr, de"),
        ("mine", {"model": "no-such-model"}, r"model=no-such-model: "),
        ("mine", {"baseline": "nothing/here/at/all"}, r"nothing/here"),
    ],
)
def test_bad_input(folder: Path, drafts: str | None, options: dict[str, Any], message: str) -> None:
    place = folder.parent
    unnamed = PAPER.replace(r"\bibliography{refs}", "")
    mixed = PAPER.replace("Parsing", "Pars\xe9").encode("latin-1") + "% é".encode()
    for name, content in {"mixed": mixed, "unnamed": unnamed.encode()}.items():
        (place / name).mkdir()
        (place / name / "a.tex").write_bytes(content)
    (place / "empty").mkdir()
    settings = {"drafts": drafts and str(place / drafts), "model": "bm25"} | options
    with pytest.raises(InputError, match=message) as error:
        Drafts(**settings).run(place / "out", Provenance(), no_retriever)
    assert "\n" not in str(error.value)
    assert not (place / "out").exists()


def git(folder: Path, *arguments: str) -> str:
    who = ["-c", "user.name=Lee", "-c", "user.email=lee@example.org", "-c", "init.defaultBranch=main"]
    command = ["git", *who, *arguments]
    return subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def repository(folder: Path, tmp_path: Path) -> tuple[Path, dict[str, Any]]:
    """A repository, and its entry in list.yaml: with a commit that is not its last."""
    place = tmp_path / "lee" / "paper"
    shutil.copytree(folder / "paper", place)
    (place / "figure.png").write_bytes(b"a figure")
    git(place, "init")
    git(place, "add", ".")
    git(place, "commit", "-m", "First")
    commit = git(place, "rev-parse", "HEAD")
    (place / "paper.tex").write_text("gone")
    git(place, "commit", "-am", "Second")
    listed = {"repository": place.as_uri(), "commit": commit, "main": "paper.tex", "bib": ["refs.bib"]}
    (tmp_path / "list.yaml").write_text(yaml.safe_dump([listed]))
    return place, listed


needs_git = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")


@needs_git
def test_fetching(
    repository: tuple[Path, dict[str, Any]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place, listed = repository
    given = DraftsSettings(output=str(tmp_path / "drafts"), list=str(tmp_path / "list.yaml"))
    fetch_drafts(given)
    assert "1 drafts; citerec evaluate benchmark=drafts" in capsys.readouterr().out
    fetched = tmp_path / "drafts" / "lee+paper"
    assert (fetched / "paper.tex").read_text() == PAPER  # of that commit
    assert not (fetched / "figure.png").exists()
    assert [one.name for one in find_drafts(tmp_path / "drafts")[0]] == ["lee+paper"]

    (fetched / "mark").touch()
    shutil.rmtree(place)  # what is there is not fetched again
    other = {"repository": (tmp_path / "lee" / "other").as_uri(), "commit": "0" * 40}
    (tmp_path / "list.yaml").write_text(yaml.safe_dump([listed, listed | other]))
    with pytest.raises(
        InputError, match=r"^1 of 2 drafts could not be fetched; lee\+other: git fetch: .*goes on"
    ) as error:
        fetch_drafts(given)
    assert "\n" not in str(error.value)
    assert (fetched / "mark").exists()
    assert sorted(path.name for path in (tmp_path / "drafts").iterdir()) == [LIST, "lee+paper"]

    (tmp_path / "list.yaml").write_text(yaml.safe_dump([listed | {"commit": "1" * 40}]))
    with pytest.raises(InputError, match="lee\\+paper: git fetch"):
        fetch_drafts(given)
    assert (fetched / "paper.tex").exists()  # the former commit stays until the new one is there


@needs_git
def test_lists_have_names_and_ids(
    repository: tuple[Path, dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, _ = repository
    monkeypatch.setitem(LISTS, "2026-12", str(tmp_path / "list.yaml"))
    cache = tmp_path / "cache"
    monkeypatch.setenv("CITATION_CACHE", str(cache))
    folder = draft_folder("citerec/drafts/2026-12")
    assert folder == cache / "published" / "drafts" / "2026-12"
    assert (folder / "lee+paper" / "paper.tex").read_text() == PAPER
    shutil.rmtree(place)
    monkeypatch.setenv("PATH", "")  # git is needed no more
    assert draft_folder("citerec/drafts/2026-12") == folder
    assert draft_folder(str(tmp_path / "mine")) == tmp_path / "mine"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("- {repository: a/b, main: a.tex}", r"field '\[0\]\.bib': is missing|bib.*is missing"),
        ("- {repository: a/b, main: a.tex, bib: [], colour: red}", "colour"),
        (
            "- {repository: a/b, main: ../a.tex, bib: []}",
            r"draft 1 \(a\+b\): '\.\./a\.tex' is not a path inside",
        ),
        ("- {repository: a/b, main: /a.tex, bib: []}", r"'/a\.tex' is not a path inside"),
        ("- {repository: a/b, main: a.tex, bib: [../b.bib]}", r"'\.\./b\.bib' is not a path inside"),
        ("- {repository: .., main: a.tex, bib: []}", r"'\.\.' is not a path inside"),
        ("- &a {repository: a/b, main: a.tex, bib: []}\n- *a", r"\(a\+b\): is listed twice"),
        ("{", "cannot be read"),
        ("just text", "must be"),
    ],
)
def test_bad_lists(tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / LIST).write_text(content)
    with pytest.raises(InputError, match=message) as error:
        read_list(tmp_path / LIST)
    assert "\n" not in str(error.value) and LIST in str(error.value)


def test_a_list_to_fetch_has_commits(tmp_path: Path) -> None:
    (tmp_path / LIST).write_text("- {repository: a/b, main: a.tex, bib: [], commit: main}")
    with pytest.raises(InputError, match=r"a\+b has no commit of 40 hexadecimal digits"):
        fetch_drafts(DraftsSettings(output=str(tmp_path / "out"), list=str(tmp_path / LIST)))
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("name", "languages", "size"),
    [("public", {"en", "fr", "de", "es", "pt"}, 20), ("2026-12", {"en", "fr"}, 20), ("2027", {"en"}, 40)],
)
def test_the_public_lists(name: str, languages: set[str], size: int) -> None:
    drafts = read_list(list_file(name))
    assert len(drafts) >= size and {one.language for one in drafts} == languages
    assert len({one.field for one in drafts}) >= size
    assert all(re.fullmatch("[0-9a-f]{40}", one.commit) and one.bib and one.licence for one in drafts)


def test_lists_that_report_share_no_author_with_each_other_or_with_what_models_have_seen() -> None:
    package = Path(citerec.__file__).parent
    with (package / "reproduce/lists/networks.csv").open(encoding="utf-8", newline="") as file:
        trained_on = [row["repository"] for row in csv.DictReader(file)]
    files = [*map(list_file, LISTS), package / "library/builtin/drafts-unseen.yaml"]
    lists = [trained_on, *([draft.repository for draft in read_list(file)] for file in files)]
    owners = [{repository.split("/")[-2].lower() for repository in repositories} for repositories in lists]
    assert len(set.union(*owners)) == sum(map(len, owners))


def test_the_drafts_that_no_network_has_seen_are_divided_by_author() -> None:
    drafts = read_list(Path(citerec.__file__).parent / "library" / "builtin" / "drafts-unseen.yaml")
    owners = [one.repository.split("/")[-2].lower() for one in drafts]
    assert len(set(owners)) == len(drafts)
    assert Counter(one.part for one in drafts).keys() == {"fit", "check"}
    assert all(re.fullmatch("[0-9a-f]{40}", one.commit) and one.bib and one.licence for one in drafts)
