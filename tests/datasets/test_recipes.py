"""Data sets built from repositories, here small ones in the layouts of the real ones, served by git."""

from __future__ import annotations

import json
import logging
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from citerec.base.errors import InputError
from citerec.datasets.prepare import open_corpus
from citerec.datasets.published.downloads import (
    content_digest,
    ensure_release,
    open_published,
    open_published_papers,
)
from citerec.datasets.published.recipes.neurips import _numbers
from citerec.datasets.published.releases import RELEASES
from citerec.tests.datasets.building.test_build import content
from citerec.tests.datasets.conftest import write_files
from citerec.tests.formats.articles.test_jats import article, cite, entry

Serve = Callable[..., str]


@pytest.fixture
def serve(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Serve:
    """Put files into the repositories of a release, and return the address of the mirror that has them."""

    def put(name: str, *files: Mapping[str, str | bytes], **more: Any) -> str:
        repositories = []
        for repository, contents in zip(RELEASES[name].repositories, files, strict=True):
            folder = tmp_path / "mirror" / "/".join(repository.address.split("/")[-2:])
            write_files(folder, contents)
            for command in (
                ["init", "--quiet"],
                ["add", "."],
                ["-c", "user.name=a", "-c", "user.email=a@b.c", "commit", "--quiet", "-m", "files"],
                ["config", "uploadpack.allowAnySHA1InWant", "true"],
                ["config", "uploadpack.allowFilter", "true"],
            ):
                subprocess.run(["git", *command], cwd=folder, check=True)
            commit = subprocess.run(
                ["git", "rev-parse", "HEAD"], cwd=folder, check=True, capture_output=True, text=True
            ).stdout.strip()
            repositories.append(replace(repository, commit=commit))
        release = replace(RELEASES[name], repositories=tuple(repositories), **more)
        monkeypatch.setitem(RELEASES, name, release)
        return (tmp_path / "mirror").as_uri()

    return put


def build_twice(name: str, address: str, tmp_path: Path) -> Path:
    """Build a data set in two caches, with the same bytes but for reports; returns the first folder."""
    folders = [ensure_release(name, tmp_path / cache, address=address) for cache in ("cache", "again")]
    first, second = (
        {
            path.relative_to(folder): path.read_bytes()
            for path in sorted(folder.rglob("*"))
            if path.is_file() and path.suffix != ".lock" and path.stem != "report"
        }
        for folder in folders
    )
    assert first == second and len(first) > 1
    return folders[0]


def test_papers_of_conferences_cited_by_numbers(serve: Serve, tmp_path: Path) -> None:
    titles = [f"Learning to {what} graphs" for what in ("parse", "rank", "prune", "label", "count", "draw")]
    entries = "\n".join(
        f"- [{n}] A. Lee and B. Diaz. {title}. In NIPS, 2010." for n, title in enumerate(titles, 1)
    )
    text = f"""## A paper

Ann Lee

## Abstract

Nothing is cited here [1].

## 1 Introduction

Graphs are parsed by transition systems that read one word at a time [1, 3-4], and ranked by their margins
over many epochs of training [2].

| a table | with [5] |

Figure 1: A caption [6].

## References

{entries}

## Checklist

- [1] Yes.
"""
    listed = [
        {"title": title, "abstract": "Of graphs.", "author": "Ann Lee;Bo Diaz", "status": "Poster"}
        for title in titles
    ]
    listed.append({"title": "Rejected", "abstract": "Of nothing.", "author": "C D", "status": "Reject"})
    record = {"id": "p1", "title": "A paper", "abstract": "Of papers.", "authors": ["Ann Lee"]}
    place = "output/neurips_2025_full"
    files = {
        f"{place}/reviews/p1.json": json.dumps(record | {"conference": "NeurIPS 2025"}),
        f"{place}/parsed_pdfs/p1.pdf.md": text,
        f"{place}/parsed_pdfs/p1.pdf.json": "{}",
    }
    address = serve(
        "neurips2025-lcr", files, {"nips/nips2010.json": json.dumps(listed), "other/x.json": "[]"}
    )
    folder = build_twice("neurips2025-lcr", address, tmp_path)
    contexts = content(folder, "contexts.json.gz")
    papers = content(folder, "papers.json.gz")
    assert [paper["title"] for paper in papers.values()] == [*titles, "A paper"]
    cited = sorted(papers[context["refid"]]["title"] for context in contexts.values())
    assert cited == sorted(titles[:4]) and {item["citing_id"] for item in contexts.values()} == {
        "neurips2025-p1"
    }
    assert _numbers("[3, 7–9]") == ["3", "7", "8", "9"]


def test_sentences_citing_a_paper_by_its_first_author_and_year(serve: Serve, tmp_path: Path) -> None:
    xml = "<PAPER><S sid='0'>A tagger</S><ABSTRACT><S sid='1'>It tags.</S></ABSTRACT></PAPER>"
    texts = {
        "W05-0001": "The sentences of the collection were tagged by a model (Brants, 2000) and parsed.",
        "W11-0001": "Much as in (Brants, 2000; Brill, 2000), tags are found by rules that were learned.",
        "W12-0001": "Here Brants (2000) is the tagger of the words that are read in the newspapers.",
        "W12-0002": "We parse as Brill (2000) did, with rules that were learned from a few sentences.",
    }
    sentences = [{"citing_paper_id": id, "clean_text": text} for id, text in texts.items()]
    place = "data/Training-Set-2019/Task1/From-ScisummNet-2019/A00-1031"
    files = {
        f"{place}/Reference_XML/A00-1031.xml": xml,
        f"{place}/citing_sentences.json": json.dumps(sentences),
        "data/other.json": "{}",
    }
    folder = build_twice("acl-scisumm-lcr", serve("acl-scisumm-lcr", files), tmp_path)
    corpus = open_published("acl-scisumm-lcr", cache_dir=tmp_path / "cache")  # candidates: with an abstract
    assert corpus.titles[0] == "A tagger" and corpus.is_candidate.tolist() == [True, False, False, False]
    assert {name: len(split) for name, split in corpus.splits.items()} == {"train": 1, "val": 1, "test": 1}
    masked = [item["masked_text"] for item in content(folder, "contexts.json.gz").values()]
    assert masked == [
        "The sentences of the collection were tagged by a model (TARGETCIT) and parsed.",
        "Much as in (TARGETCIT; OTHERCIT), tags are found by rules that were learned.",
        "Here TARGETCIT is the tagger of the words that are read in the newspapers.",
    ]


def test_papers_with_a_licence_only(serve: Serve, tmp_path: Path) -> None:
    files: dict[str, str] = {}
    for number in range(40):
        text = article(
            number, cite(1, 2), entry(1, "Songs of frogs") + entry(2, f"Work {number} of frogs", "Roe")
        )
        licence = "https://creativecommons.org/licenses/by/4.0/" if number else "All rights reserved"
        files[f"crops/rice/corpus/PMC{number}/fulltext.xml"] = text.replace(
            "<body>", f"<!-- {licence} --><body>"
        )
    files["crops/rice/corpus/results.json"] = "{}"
    folder = build_twice("crops-lcr", serve("crops-lcr", files), tmp_path)
    citing = {context["citing_id"] for context in content(folder, "contexts.json.gz").values()}
    assert citing == {f"PMC{number}" for number in range(1, 40)}
    corpus = open_corpus(folder, candidates="all", splits=["train", "val", "test", "train_named"])
    assert len(corpus.split("train")) > 40


def test_the_table_of_a_conference(serve: Serve, tmp_path: Path) -> None:
    fields = ["Conference", "Year", "Title", "DOI", "Abstract", "InternalReferences"]
    rows = [["Vis", "1990", f"Old {n}", f"10.1/OLD{n}", "Graphs are drawn.", ""] for n in range(6)]
    cited = ";".join(f"10.1/OLD{n}" for n in range(5))
    for year, doi in ((2010, "10.1/A"), (2013, "10.1/B"), (2016, "10.1/C")):
        rows.append(["InfoVis", str(year), f"New  {doi}", doi, "Old graphs.", f"{cited};10.1/ghost;{doi}"])
    lines = "\n".join(",".join(row) for row in [fields, *rows])
    name = "data/IEEE VIS papers 1990-2018 - Main dataset.csv"
    build_twice("vispub", serve("vispub", {name: lines, "README.md": ""}), tmp_path)
    corpus = open_published_papers("vispub", cache_dir=tmp_path / "cache")
    assert {name: len(split) for name, split in corpus.splits.items()} == {"train": 1, "val": 1, "test": 1}
    assert len(corpus.paper_ids) == 9 and "New 10.1/A" in corpus.titles
    assert len(corpus.split("test").positives[0]) == 5


def test_files_as_they_are_and_equal_bytes(
    serve: Serve, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    files = {name: f'{{"file": "{name}"}}\n' for name in RELEASES["csfcube"].files}
    address = serve("csfcube", files | {"LICENSE.md": "free\n"})
    first, second = (ensure_release("csfcube", tmp_path / place, address=address) for place in "ab")
    for name, text in files.items():
        assert (first / name).read_text() == (second / name).read_text() == text
    assert (first / "LICENSE.md").is_file() and not (first / ".git").exists()
    right = {name: content_digest(first / name) for name in files}
    address = serve("csfcube", files | {"x.json": "{}"}, digests=right)
    with caplog.at_level(logging.WARNING):
        ensure_release("csfcube", tmp_path / "c", address=address)
        assert not caplog.records
        address = serve("csfcube", files | {"y.json": "{}"}, digests=right | {"evaluation_splits.json": "0"})
        ensure_release("csfcube", tmp_path / "d", address=address)
    assert "csfcube: evaluation_splits.json is not that of the registry" in caplog.text


def test_a_repository_that_cannot_be_fetched_is_one_line(serve: Serve, tmp_path: Path) -> None:
    serve("vispub", {"README.md": ""})
    with pytest.raises(InputError) as error:
        ensure_release("vispub", tmp_path / "cache", address=(tmp_path / "nowhere").as_uri())
    assert "\n" not in str(error.value) and str(error.value).startswith("vispub cannot be built (file:///")
    assert "put papers.jsonl, queries.json into" in str(error.value)
