"""Corpora built from full texts: known contexts, rules, counts, atomic output, and evaluation."""

from __future__ import annotations

import gzip
import json
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from citerec.base.arguments import read_arguments
from citerec.base.errors import InputError
from citerec.datasets.building.build import BuildSettings, build
from citerec.datasets.prepare import open_corpus
from citerec.datasets.records import SPLITS, TARGET_MARKER
from citerec.datasets.splitting import RandomSplitting, YearSplitting
from citerec.evaluation.benchmarks.contexts.prefetch import Prefetch
from citerec.retrieval.lexical.bm25 import BM25
from citerec.tests.conftest import Done
from citerec.tests.datasets.conftest import build_corpus, write_files, write_lines

TEXTS = Path(__file__).parent / "texts"
TRAIN = RandomSplitting(1, 0, 0, seed=0)
END = "is a sentence that is long enough to be a context of its own"
HEAD = r"\documentclass{a}\title{A title}\begin{abstract}An abstract.\end{abstract}\begin{document}"
CITES = "a sentence that cites {} and is long enough to be a context"


def paper(id: str, title: str = "", abstract: str = "An abstract.", **more: Any) -> dict[str, Any]:
    return {"id": id, "title": title or f"The paper {id}", "abstract": abstract, **more}


def citing(id: str, sentences: list[tuple[str, str]], **more: Any) -> dict[str, Any]:
    """A paper with one section per sentence; {} is the marker of a cited paper."""
    body: list[dict[str, Any]] = []
    for text, cited in sentences:
        start = text.index("{}")
        cite = {"start": start, "end": start + 3, "ref": cited}
        body.append({"section": str(len(body)), "text": text.replace("{}", "[1]"), "cites": [cite]})
    return paper(id, body=body, bibliography={cited: {"paper": cited} for _, cited in sentences}, **more)


def write(path: Path, records: list[dict[str, Any]]) -> str:
    return str(write_lines(path, records))


def content(folder: Path, name: str) -> Any:
    path = folder / name
    return json.loads(gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes())


def texts(folder: Path) -> dict[tuple[str, str], list[str]]:
    """Masked texts by citing and cited paper."""
    result: dict[tuple[str, str], list[str]] = {}
    for context in content(folder, "contexts.json.gz").values():
        result.setdefault((context["citing_id"], context["refid"]), []).append(context["masked_text"])
    return result


def test_the_contexts_of_real_files(tmp_path: Path) -> None:
    report = build_corpus(str(TEXTS), tmp_path / "out", TRAIN, window=60, shortest=20)
    result = texts(tmp_path / "out")
    expected = json.loads((TEXTS / "expected.json").read_text("utf-8"))
    assert {f"{citing} > {cited}": contexts for (citing, cited), contexts in result.items()} == expected
    assert report.counts == {
        "papers": {"read": 10, "without an abstract": 1, "written": 9},
        "full texts": {"read": 4},
        "spans": {"of no reference, masked": 1},
        "references": {"by title": 13, "no paper has the title": 2},
        "contexts": {
            "citations": 22,
            "the cited paper was not found": 2,
            "an author of the cited paper is named": 1,
        },
        "splits": {"train": 19},
    }
    assert content(tmp_path / "out", "report.json")["contexts"] == report.counts["contexts"]
    assert content(tmp_path / "out", "papers.json.gz")["lee"] == {
        "title": "Neural Parsing: A Study of Encoders",
        "abstract": "Encoders of parsers are compared.",
        "year": 2018,
        "authors": ["Kai Lee"],
        "field": "cs.CL",
    }


def test_contexts_are_in_the_order_of_the_text(tmp_path: Path) -> None:
    cited = ["lee", "roe", "fox", "lee", "roe"]
    body = [(f"{place} studies and a text of its own {{}} {END}", id) for place, id in enumerate(cited)]
    records = [*map(paper, ("lee", "roe", "fox")), citing("a", body)]
    build_corpus(write(tmp_path / "a.jsonl", records), tmp_path / "out", TRAIN)
    contexts = content(tmp_path / "out", "contexts.json.gz")
    assert [context["refid"] for context in contexts.values()] == cited
    assert [*contexts] == [query["context_id"] for query in content(tmp_path / "out", "train.json")]


def test_dropped_citations_are_counted(tmp_path: Path) -> None:
    same = f"this {{}} {END}"
    records = [
        paper("cited", authors=["Kim Kimura"]),
        paper("bare", abstract=""),
        {"id": "untitled", "abstract": "An abstract."},
        citing("a", [(same, "cited"), (same, "cited"), (f"another {{}} {END}", "bare")]),
        citing("b", [("short {}", "cited"), (same, "b"), (f"Kimura's parser {{}} {END}", "cited")]),
        citing("c", [(f"{number} times {{}} {END}", "cited") for number in "abcdefghij"]),
        citing("c", [(f"twice {{}} {END}", "cited")]),
        citing("bare", [(f"without abstract {{}} {END}", "cited")], abstract=""),
        paper("empty", body=[]),
        paper("blank", body=[{"text": " "}, {"text": None, "cites": [{"start": 0, "end": 1, "ref": None}]}]),
        citing("d", [(f"in 2010 {{}} {END}", "cited"), (same, "gone")]),
    ]
    report = build_corpus(write(tmp_path / "a.jsonl", records), tmp_path / "out", TRAIN, per_pair=3)
    assert report.counts == {
        "papers": {"read": 9, "without a title": 1, "without an abstract": 1, "written": 7},
        "full texts": {
            "read": 8,
            "of papers that already have one": 1,
            "of papers without an abstract": 1,
            "without running text": 2,
        },
        "spans": {},
        "references": {"by id": 5, "the cited paper is not in the collection": 2},
        "contexts": {
            "citations": 18,
            "the cited paper was not found": 2,
            "the same text as another context of the pair": 1,
            "too short": 1,
            "self-citation": 1,
            "an author of the cited paper is named": 1,
            "more than per_pair for one pair": 7,
            "a year next to the mask": 1,
        },
        "splits": {"train": 4},
    }
    published: dict[str, Any] = {"shortest": 0, "per_pair": None, "leaks": "keep"}  # as Gu et al. 2022
    kept = build_corpus(str(tmp_path / "a.jsonl"), tmp_path / "all", TRAIN, **published).counts
    dropped = {"the cited paper was not found": 2, "self-citation": 1}
    dropped["the same text as another context of the pair"] = 1
    assert kept["contexts"] == {"citations": 18, **dropped} and kept["splits"]["train"] == 18 - 4
    result = texts(tmp_path / "out")
    assert result["a", "cited"] == [f"this [TARGETCIT] {END}"]
    assert len(result["c", "cited"]) == 3 and result["c", "cited"] == sorted(result["c", "cited"])


def test_records_of_one_paper_are_merged(tmp_path: Path) -> None:
    first: list[dict[str, Any]] = [
        {"id": "p", "title": "First", "year": None, "identifiers": {"ArXiv": "1"}},
        {"id": "q", "title": "Q"},
    ]
    second = [paper("p", "Second", "Abstract of p", year=2001, authors=["A B"]), paper("q")]
    second.append(citing("r", [(CITES, "p")]))
    files = [write(tmp_path / "b.jsonl", first), write(tmp_path / "a.jsonl", second)]
    build_corpus(files, tmp_path / "out", TRAIN)
    papers = content(tmp_path / "out", "papers.json.gz")
    assert list(papers) == ["p", "q", "r"]
    assert papers["p"] == {"title": "First", "abstract": "Abstract of p", "year": 2001, "authors": ["A B"]}
    with pytest.raises(InputError, match="full texts of papers without an identifier of the kind arxiv: 1"):
        build_corpus(files, tmp_path / "arxiv", TRAIN, identifier="arxiv")
    with pytest.raises(InputError, match="identifier=foo: no paper that can be used has one of this kind"):
        build_corpus(files, tmp_path / "arxiv", TRAIN, identifier="foo")
    assert not (tmp_path / "arxiv").exists()


def test_a_paper_that_is_there_under_two_ids_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    doi: dict[str, Any] = {"identifiers": {"DOI": "10.1000/p"}}
    records = [paper("p", **doi), paper("q", **doi), paper("s"), citing("r", [(CITES, "p")])]
    build_corpus(write(tmp_path / "a.jsonl", records), tmp_path / "out", TRAIN)
    assert "1 paper with the DOI or another identifier of another paper" in caplog.text


def test_entries_with_an_abstract_become_papers_and_others_are_listed(tmp_path: Path) -> None:
    source = tmp_path / "texts"
    source.mkdir()
    entries = {"one": "abstract={On \\emph{one}.},", "two": "", "own": "abstract={Another.},"}
    bib = [f"@article{{{key}, title={{Work of {key}}}, {more} year=2001}}" for key, more in entries.items()]
    (source / "refs.bib").write_text("\n".join(bib))
    cites = " ".join(CITES.replace("{}", f"\\cite{{{key}}}") + "." for key in ("one", "own", "two", "two"))
    (source / "paper.tex").write_text(f"{HEAD} {cites} \\bibliography{{refs}}")
    write(source / "papers.jsonl", [paper("mine", "Work of own", year=2001)])
    report = build_corpus(str(source), tmp_path / "out", TRAIN, leaks="keep")
    papers = content(tmp_path / "out", "papers.json.gz")
    (new,) = papers.keys() - {"paper", "mine"}
    assert papers[new] == {"title": "Work of one", "abstract": "On one.", "year": 2001, "authors": []}
    assert {pair[1] for pair in texts(tmp_path / "out")} == {new, "mine"}
    assert report.counts["papers"]["known by bibliography entries only"] == 1
    lines = gzip.decompress((tmp_path / "out" / "unresolved.jsonl.gz").read_bytes()).splitlines()
    assert [json.loads(line) for line in lines] == [{"title": "Work of two", "year": 2001, "citations": 2}]


@pytest.mark.parametrize(
    ("name", "text", "id"),
    [
        ("library.bib", "@misc{k, title={Work of two}, abstract={It.}, year=2001}", "bib-"),
        ("papers.json", '{"p": {"title": "Work of two", "abstract": "It.", "year": 2001}}', "p"),
        (
            "arxiv.jsonl",
            '{"id": "0704.0001", "title": "T", "abstract": "A", "authors_parsed": []}',
            "0704.0001",
        ),
    ],
)
def test_papers_named_in_a_file_are_cited(tmp_path: Path, name: str, text: str, id: str) -> None:
    tex, more = tmp_path / "paper.tex", tmp_path / name
    tex.write_text(HEAD + CITES.replace("{}", "\\cite{two}") + "\\bibliography{refs}")
    (tmp_path / "refs.bib").write_text(
        "@misc{two, title={Work of two}, year=2001, note={arXiv preprint arXiv:0704.0001v2}}"
    )
    with pytest.raises(InputError, match="add titles and abstracts of the cited papers to source"):
        build_corpus(str(tex), tmp_path / "out", TRAIN)
    more.write_text(text)
    build_corpus([str(tex), str(more)], tmp_path / "out", TRAIN)
    ((_, cited),) = {pair[:2] for pair in texts(tmp_path / "out")}
    assert cited.startswith(id)
    assert len(content(tmp_path / "out", "papers.json.gz")) == 2


def test_splits_by_year(tmp_path: Path) -> None:
    records = [citing(f"p{year}", [(CITES, "cited")], year=year) for year in range(2010, 2020)]
    records += [paper("cited"), citing("undated", [(CITES, "cited")])]
    splitting = YearSplitting(train=[None, 2014], val=[2016, 2016], test=[2017, 2018])
    report = build_corpus(write(tmp_path / "a.jsonl", records), tmp_path / "out", splitting)
    assert report.counts["splits"] == {"train": 5, "val": 1, "test": 2}
    assert report.counts["full texts"]["outside the splits' years or shares"] == 3
    assert content(tmp_path / "out", "test.json") == [
        {"context_id": f"p{year}__cited__0", "positive_ids": ["cited"]} for year in (2017, 2018)
    ]


def test_ids_with_underscores_make_different_contexts(tmp_path: Path) -> None:
    pairs = [("a", "b__c"), ("a__b", "c"), ("d", "_e"), ("d_", "e")]
    records = [item for a, b in pairs for item in (citing(a, [(CITES, b)]), paper(b))]
    build_corpus(write(tmp_path / "a.jsonl", records), tmp_path / "out", TRAIN)
    ids = [query["context_id"] for query in content(tmp_path / "out", "train.json")]
    assert ids == ["a__b__c__0__1", "a__b__c__0__4", "d___e__0__1", "d___e__0__2"]


def test_splits_by_month_of_arxiv_identifiers(tmp_path: Path) -> None:
    months = ["1912.00001", "2001.00001", "2003.00001", "2005.00001"]
    ids = [{"identifiers": {"arxiv": month}, "year": 2000 + int(month[:2])} for month in months]
    records = [citing(f"p{n}", [(CITES, "cited")], **fields) for n, fields in enumerate(ids)]
    records += [paper("cited"), citing("p4", [(CITES, "cited")], year=2020)]
    files = [f"source={write(tmp_path / 'a.jsonl', records)}", f"output={tmp_path / 'out'}"]
    years = ["train_years=[1991,2019]", "val_years=[2020-01,2020-02]", "test_years=[2020-03,2020-04]"]
    build(read_arguments(BuildSettings, [*files, *years]))
    for split, id in (("train", "p0"), ("val", "p1"), ("test", "p2")):
        result = content(tmp_path / "out", f"{split}.json")
        assert [query["context_id"] for query in result] == [f"{id}__cited__0"]


CITATIONS = st.lists(
    st.tuples(st.sampled_from("abcdef"), st.text("xyz 🜁😀é.,([", max_size=60)), min_size=1, max_size=8
)


@settings(max_examples=10)
@given(
    st.dictionaries(st.sampled_from("abcdefghijkl"), CITATIONS, min_size=2, max_size=8),
    st.integers(1, 3),
    st.integers(0, 5),
    st.integers(5, 60),
    st.sampled_from(["cut", "whole"]),
)
def test_properties_of_every_corpus(
    tmp_path_factory: pytest.TempPathFactory,
    papers: dict[str, list[tuple[str, str]]],
    per_pair: int,
    seed: int,
    window: int,
    words: str,
) -> None:
    folder = tmp_path_factory.mktemp("build")
    records = [paper(id) for id in "abcdef" if id not in papers]
    for id, result in papers.items():
        sentences = [(f"{text}😀 words {{}} of {n} {text}", cited) for n, (cited, text) in enumerate(result)]
        records.append(citing(id, sentences))
    rules: dict[str, Any] = {"window": window, "words": words, "per_pair": per_pair, "seed": seed}
    splitting, source = RandomSplitting(0.5, 0.25, 0.25, seed), write(folder / "a.jsonl", records)
    try:
        build_corpus(source, folder / "out", splitting, shortest=0, **rules)
    except InputError as error:
        assert "no contexts are left" in str(error)
        return
    contexts = content(folder / "out", "contexts.json.gz")
    there = [name for name in SPLITS if (folder / "out" / f"{name}.json").exists()]
    splits = [[query["context_id"] for query in content(folder / "out", f"{name}.json")] for name in there]
    assert Counter(id for split in splits for id in split) == Counter(list(contexts))
    papers_of = [{contexts[id]["citing_id"] for id in split} for split in splits]
    assert sum(map(len, papers_of)) == len(set().union(*papers_of))
    pairs = Counter((context["citing_id"], context["refid"]) for context in contexts.values())
    assert max(pairs.values()) <= per_pair and all(item != other for item, other in pairs)
    for context in contexts.values():
        sides = context["masked_text"].split(TARGET_MARKER)
        assert len(sides) == 2 and max(map(len, sides)) <= window
    corpus = open_corpus(folder / "out", cache_dir=folder / "cache", candidates="all")
    assert len(corpus.context_ids) == len(contexts)


def collection(papers: int) -> list[dict[str, Any]]:
    """Papers with distinct topics; half of them cite others with words of their titles."""
    starts, ends = ("lo", "mi", "ra", "ve", "ku", "ti"), ("dan", "ser", "mok", "pil", "ras", "tun", "bel")
    words = [start + end for start in starts for end in ends]
    titles = [f"{words[n % len(words)]} {words[(n * 5 + 3) % len(words)]} study" for n in range(papers)]
    records = []
    for n, title in enumerate(titles):
        cited = [] if n % 2 else [(n * k + 1) % papers | 1 for k in range(2, 8)]
        sentences = [(f"earlier work on {titles[c]} {{}} is what we build on here", f"p{c}") for c in cited]
        record = citing(f"p{n}", sentences) if cited else paper(f"p{n}")
        records.append(record | {"title": title, "abstract": f"About {title}."})
    return records


def test_a_built_corpus_is_evaluated_with_bm25(tmp_path: Path) -> None:
    source = write(tmp_path / "a.jsonl", collection(120))
    report = build_corpus(source, tmp_path / "out", RandomSplitting(0.6, 0.2, 0.2, 0))
    corpus = open_corpus(tmp_path / "out", cache_dir=tmp_path / "cache")
    assert {name: len(split) for name, split in corpus.splits.items()} == report.counts["splits"]
    metrics = Prefetch(cutoffs=[1, 10])(BM25(), corpus, "test", tmp_path / "test")
    assert metrics["queries"] == report.counts["splits"]["test"] and float(metrics["recall@10"]) > 0.9


@pytest.mark.slow
def test_the_command(tmp_path: Path, script: Callable[..., Done], caplog: pytest.LogCaptureFixture) -> None:
    source = write(tmp_path / "a.jsonl", collection(40))
    shares = ("train=0.9", "val=0", "seed=4")
    done = script("data", "build", f"source=[{source}]", f"output={tmp_path / 'out'}", *shares)
    assert done.code == 0, done.err
    assert f"{tmp_path / 'out'}: 40 papers" in done.out and "no contexts for the split val" in caplog.text
    again = build_corpus(source, tmp_path / "again", RandomSplitting(0.9, 0, 0.1, 4), seed=4)
    for name in ("papers.json.gz", "contexts.json.gz", "train.json", "test.json"):
        assert (tmp_path / "out" / name).read_bytes() == (tmp_path / "again" / name).read_bytes()
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "contexts.json.gz", "papers.json.gz", "report.json", "test.json", "train.json"
    ]  # fmt: skip
    assert again.counts["splits"].keys() == {"train", "test"}
    refused = script("data", "build", f"source={source}", f"output={tmp_path / 'out'}")
    assert refused.code == 2 and "already exists" in refused.err.splitlines()[-1]
    assert "Traceback" not in refused.err
    shown = script("data", "build", "--help").out
    words = ("source=FILES", "TEI XML", "report.json", "train=0.8", "per_pair=5 ", "maximum contexts")
    assert all(word in shown for word in words)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"window": 0}, "window=0: must be at least 1"),
        ({"words": "half"}, "words=half: choose cut or whole"),
        ({"per_pair": 0}, "per_pair=0: must be at least 1"),
        ({"window": 10, "shortest": 30}, "shortest: 30 is more than two windows of 10 characters"),
        ({"candidates": "all"}, "candidates=all: choose abstract or title"),
        ({"on_error": "drop"}, "on_error=drop: choose raise or skip"),
        ({"max_bad_share": 2}, "max_bad_share=2: must be at least 0 and at most 1"),
    ],
)
def test_invalid_options(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        build_corpus(str(TEXTS), tmp_path / "out", TRAIN, **options)


def test_an_output_that_contains_a_source_is_refused(tmp_path: Path) -> None:
    """Rather than with the advice to remove the folder."""
    source = write(tmp_path / "out.jsonl", collection(40))
    (tmp_path / "out").mkdir()
    inside = Path(source).rename(tmp_path / "out/a.jsonl")
    line = f"output={tmp_path}/out: contains the source file {inside}; name another folder"
    with pytest.raises(InputError, match=f"^{re.escape(line)}$"):
        build_corpus(str(tmp_path / "*/a.jsonl"), tmp_path / "out", RandomSplitting(1, 0, 0, seed=0))
    assert inside.exists()


def test_nothing_is_left_after_a_broken_record_or_an_interrupt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    good = collection(40)
    bad = [*good, {"id": "bad", "title": "T", "abstract": "A", "body": [{"text": 1}]}]
    with pytest.raises(InputError, match=r"a\.jsonl, line 41, field 'body\[0\]\.text': must be a string"):
        build_corpus(write(tmp_path / "a.jsonl", bad), tmp_path / "out", TRAIN)
    assert [path.name for path in tmp_path.iterdir()] == ["a.jsonl"]

    def interrupt(*arguments: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("citerec.datasets.building.build.select_contexts", interrupt)
    with pytest.raises(KeyboardInterrupt):
        build_corpus(write(tmp_path / "a.jsonl", good), tmp_path / "out", TRAIN)
    assert [path.name for path in tmp_path.iterdir()] == ["a.jsonl"]


ENTRY = "@misc{two, title={Work of two}, year=2001}"


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (
            {"a.jsonl": json.dumps(paper("cited")) + json.dumps(citing("a", [("too {} short", "cited")]))},
            "found: 1 full texts, 1 citations; dropped: too short: 1 (see shortest)",
        ),
        (
            {"a.tex": rf"{HEAD} It cites \cite{{two}}.\bibliography{{refs}}", "refs.bib": ENTRY},
            "found: 1 full texts, 1 citations; dropped: the cited paper was not found: 1 (use "
            "candidates=title, or add titles and abstracts of the cited papers to source "
            "(docs/research/build.md))",
        ),
        (
            {"a.tex": rf"{HEAD} It cites \cite{{two}}.\bibliography{{gone}}"},
            "found: 1 full texts, 0 citations; dropped: spans of a reference that the bibliography lacks, "
            "masked: 1 (put the .bib or .bbl file beside the document)",
        ),
        (
            {"a.tex": r"\documentclass{a}\title{A title}\begin{document} It cites \cite{two}."},
            "found: 1 full texts, 0 citations; dropped: full texts of papers without an abstract: 1 "
            "(use candidates=title)",
        ),
        (
            {"a.tex": r"\documentclass{a}\begin{document} It cites \cite{two}."},
            "dropped: full texts of papers without a title: 1 (give them titles, or use candidates=title)",
        ),
        (
            {"a.jsonl": json.dumps(citing("a", [(f"In 2010 {{}} {END}", "b")])) + json.dumps(paper("b"))},
            "dropped: a year next to the mask: 1 (leaks=keep keeps them)",
        ),
        (
            {"a.jsonl": json.dumps(paper("a"))},
            "found: 0 full texts, 0 citations; add the texts that cite to source",
        ),
    ],
)
def test_the_error_says_why_no_contexts_are_left(
    tmp_path: Path, source: dict[str, str], message: str
) -> None:
    for name, text in source.items():
        (tmp_path / name).write_text(text.replace("}{", "}\n{") if name.endswith(".jsonl") else text)
    with pytest.raises(InputError) as error:
        build_corpus(str(tmp_path), tmp_path / "out", TRAIN)
    assert str(error.value).startswith("source: no contexts are left; found: ")
    assert str(error.value).endswith(message) and "\n" not in str(error.value)


def test_papers_without_an_abstract_are_candidates_on_request(tmp_path: Path) -> None:
    """Titles suffice for the cited papers and for documents, which are named by their files otherwise."""
    folder = tmp_path / "texts"
    folder.mkdir()
    bib = ENTRY + "\n@misc{one, title={Work of one}, abstract={On one.}, year=2001}\n@misc{bare, year=2001}"
    (folder / "refs.bib").write_text(bib)
    cites = " ".join(CITES.replace("{}", f"\\cite{{{key}}}") + "." for key in ("one", "two", "bare"))
    (folder / "my_thesis.tex").write_text(
        rf"\documentclass{{a}}\begin{{document}}{cites}\bibliography{{refs}}"
    )
    (folder / "b.tex").write_text(rf"{HEAD}{cites}\bibliography{{refs}}")
    report = build_corpus(str(folder), tmp_path / "out", TRAIN, candidates="title")
    papers = content(tmp_path / "out", "papers.json.gz")
    result = {(papers[a]["title"], papers[b]["title"]) for a, b in texts(tmp_path / "out")}
    assert result == {(a, f"Work of {b}") for a in ("A title", "my thesis") for b in ("one", "two")}
    assert {paper["title"]: paper["abstract"] for paper in papers.values()} == {
        "A title": "An abstract.", "my thesis": "", "Work of one": "On one.", "Work of two": ""
    }  # fmt: skip
    assert report.counts["papers"]["written without an abstract"] == 2
    assert content(tmp_path / "out", "report.json")["settings"]["candidates"] == "title"
    build_corpus(str(folder), tmp_path / "with", TRAIN)
    assert {papers[b]["title"] for _, b in texts(tmp_path / "with")} == {"Work of one"}
    corpus = open_corpus(tmp_path / "out", cache_dir=tmp_path / "cache", candidates="all")
    assert len(corpus.paper_ids) == 4 and len(corpus.context_ids) == 4


def test_entries_of_tei_are_candidates_on_request(tmp_path: Path) -> None:
    source = TEXTS / "1911.00042.grobid.tei.xml"
    report = build_corpus(str(source), tmp_path / "out", TRAIN, candidates="title", leaks="keep")
    titles = {paper["title"] for paper in content(tmp_path / "out", "papers.json.gz").values()}
    assert {"Graph networks for structured text", "Neural parsing: a study of encoders"} <= titles
    assert report.counts["papers"]["known by bibliography entries only"] == len(titles) - 1


# on_error=skip: invalid records are skipped, counted and named.

BAD = {
    "lines.jsonl": [
        ('{"id": "a"', "line 1: malformed JSON"),
        ('["id"]', "line 2: must be an object, not a list"),
        ('{"id": "a", "title": 3}', "line 3, field 'title': must be a string, not a number"),
        ('{"id": "c d"}', "line 4, field 'id': an id must not be empty"),
        ('{"key": 3}', "line 5: has neither 'id'"),
    ],
    "paper.xml": [("<TEI", "malformed XML")],
    "paper.tex": [
        (
            "\\documentclass{a}\\def\\a#1{#1#1#1#1#1#1#1#1#1#1}" + "\\a{" * 9 + "b" + "}" * 9,
            "the macro \\a expands to too much",
        )
    ],
}
LATE = {"title": "Late", "abstract": "Its text cannot be used.", "body": [{"text": 3}]}
"""Found bad when the contexts are cut."""


def texts_with(folder: Path, bad: dict[str, str]) -> str:
    """Valid papers and invalid files."""
    folder.mkdir()
    (folder / "good.jsonl").write_bytes((TEXTS / "papers.jsonl").read_bytes())
    (folder / "1911.00042.xml").write_bytes((TEXTS / "1911.00042.grobid.tei.xml").read_bytes())
    return str(write_files(folder, bad))


def test_bad_records_are_skipped_and_named(tmp_path: Path) -> None:
    rules: dict[str, Any] = {"window": 60, "shortest": 20}
    clean = build_corpus(texts_with(tmp_path / "clean", {}), tmp_path / "a", TRAIN, **rules)
    assert clean.skipped.left_out == 0
    bad = {name: "\n".join(text for text, _ in cases) for name, cases in BAD.items()}
    late = [{"id": "late", **LATE}, {"id": "good", **LATE, "body": []}]
    source = texts_with(tmp_path / "source", bad | {"late.jsonl": "\n".join(map(json.dumps, late))})
    with pytest.raises(InputError, match=r"lines\.jsonl, line 1: malformed JSON"):
        build_corpus(source, tmp_path / "b", TRAIN, **rules)
    rules |= {"on_error": "skip"}
    report = build_corpus(source, tmp_path / "b", TRAIN, max_bad_share=0.6, **rules)
    assert report.skipped.left_out == 8 and report.skipped.read == clean.skipped.read + 1
    said = [message for cases in BAD.values() for _, message in cases]
    for message in [*said, "field 'body[0].text': must be a string"]:
        assert sum(message in example for example in report.skipped.examples) == 1, message
    written = content(tmp_path / "b", "report.json")["records"]
    assert written["left_out"] == 8 and written["examples"] == report.skipped.examples
    assert "8 invalid records skipped" in str(report)
    result, expected = (open_corpus(tmp_path / name, cache_dir=tmp_path / "cache") for name in ("b", "a"))
    assert list(result.context_texts) == list(expected.context_texts)
    assert set(result.paper_ids) - set(expected.paper_ids) == {"late", "good"}


@pytest.mark.parametrize(
    ("name", "text", "share", "message"),
    [
        ("lines.jsonl", "{\n{", 0.1, r"source: 2 of \d+ .* max_bad_share=0\.1 .*/lines\.jsonl, line 1: malf"),
        ("late.jsonl", json.dumps({"id": "late", **LATE}), 0.01, r"source: 1 of .*body"),
    ],
)
def test_too_many_bad_records(tmp_path: Path, name: str, text: str, share: float, message: str) -> None:
    source = texts_with(tmp_path / "source", {name: text})
    with pytest.raises(InputError, match=message):
        build_corpus(source, tmp_path / "out", TRAIN, on_error="skip", max_bad_share=share)
    assert not (tmp_path / "out").exists()
