"""The built-in model: its size, and results for the example library."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from citerec.base.errors import InputError
from citerec.evaluation.publish import open_trained
from citerec.formats.bibliography.paper import LibraryPaper
from citerec.library.ask.question import Filters
from citerec.library.ask.recommendation import NOTHING_FITS, note_on
from citerec.library.ask.recommender import MOST_FIRST, NAMED, Recommender
from citerec.library.builtin.make import (
    CHECK,
    DRAFTS,
    FIT,
    LARGEST,
    TITLES,
    BuiltInSettings,
    load_lists,
    make,
)
from citerec.library.commands.change import build
from citerec.library.papers.library import Library
from citerec.library.papers.models import BUILT_IN
from citerec.library.settings import BuildSettings
from citerec.library.sources.readers import read_source
from citerec.rerank.ranker.features import DRAFT as DRAFT_WAY
from citerec.rerank.ranker.model import RankingModel
from citerec.rerank.ranker.networks import BARE, FIRST, PAIRS, READ
from citerec.retrieval.base import folder_bytes

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples" / "library.bib"


def test_the_built_in_model_is_small() -> None:
    assert folder_bytes(BUILT_IN / "static") + folder_bytes(BUILT_IN / "ranker") <= LARGEST
    assert folder_bytes(BUILT_IN) <= 63_000_000


@pytest.mark.parametrize("name", ["static", "ranker"])
def test_its_files_and_cards_are_as_saved(name: str, tmp_path: Path) -> None:
    folder = BUILT_IN / name
    saved = open_trained(folder).save(tmp_path / folder.name)
    assert [path.name for path in sorted(saved.iterdir())] == [path.name for path in sorted(folder.iterdir())]
    for path in saved.iterdir():
        assert path.read_bytes() == (folder / path.name).read_bytes(), path.name


@pytest.fixture(scope="module")
def example(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example library with the built-in model."""
    bad: list[InputError] = []
    folder = tmp_path_factory.mktemp("builtin") / "example"
    Library.create(folder, read_source(EXAMPLES, bad.append))
    return folder


@pytest.fixture(scope="module")
def recommender(example: Path) -> Recommender:
    """It keeps what its networks have read."""
    return Recommender.open(example)


@pytest.mark.parametrize(
    ("question", "name"),
    [
        ("The optimiser of Kingma [CITE] has a bias correction.", "Kingma"),
        ("Kingma et al. [CITE] correct the bias of moments.", "Kingma"),
        (
            "The steps, as Kingma and others have said for years, have a bias that is corrected [CITE].",
            "Kingma",
        ),
        ("A bias of moments is corrected [CITE].", ""),
    ],
)
def test_where_an_author_is_named_the_reason_is_the_name(
    recommender: Recommender, question: str, name: str
) -> None:
    found = recommender.recommend(question, k=100)
    [paper] = [paper for paper in found if any("Kingma" in author for author in paper.authors)][:1]
    assert paper.evidence.name == name and (f"{name} is named here" in paper.why) == bool(name)


@pytest.mark.parametrize(
    ("question", "sure"),
    [
        ("Adam [CITE] is the usual optimiser for deep networks.", True),
        ("Flumph brillig slithy toves [CITE] gimble in the wabe.", False),
        ("The mating songs of humpback whales [CITE] change every year.", False),
    ],
)
def test_it_says_how_sure_it_is(recommender: Recommender, question: str, sure: bool) -> None:
    found = recommender.recommend(question)
    assert found[0].probability is not None
    assert (found[0].probability > 0.5) == sure and note_on(found) == ("" if sure else NOTHING_FITS)


@pytest.fixture(scope="module")
def shelf(tmp_path_factory: pytest.TempPathFactory) -> Recommender:
    """Papers of one author and year, among others."""
    things = (
        "iron,copper,deltas,bears,quanta,banks,meals,vines,ice,taxes,bees,ash,jets,poems,insulin,song,water"
    )
    names = [*things.split(","), "trees", "nets", "cells", "reefs", "beams", "music", "unions"]
    papers = [
        LibraryPaper(name, title=f"A study of {name} and their uses", authors=("Lu Wang",), year=2019)
        for name in names
    ]
    abstract = "本研究得到国家自然科学基金资助。作者感谢两位匿名审稿人。湿地碳储量的估算方法是本文的主题。"
    papers.append(LibraryPaper("carbon", title="湿地研究", abstract=f"{abstract}数据可向作者索取。"))
    titles = "Latent Dirichlet Allocation", "Assessing Insurance Demand"
    papers += [LibraryPaper(title.split()[0], title=title) for title in titles]
    return Recommender(Library.create(tmp_path_factory.mktemp("shelf") / "shelf", papers))


def test_of_papers_by_the_same_authors_in_a_year_the_one_that_fits_comes_first(shelf: Recommender) -> None:
    papers = shelf.recommend("Wang (2019) [CITE] reported that labour unions raise wages.", k=30)
    assert papers[0].id == "unions" and (papers[0].probability or 0) > 0.3
    assert sum(paper.probability or 0 for paper in papers[:MOST_FIRST]) == pytest.approx(NAMED)
    two = Filters(only=["iron", "copper"])
    assert note_on(shelf.recommend("Wang (2019) [CITE] sang of gods.", filters=two)) == ""
    assert note_on(shelf.recommend("Whales [CITE] sing of gods.", filters=two)) == NOTHING_FITS


@pytest.mark.parametrize(
    ("question", "paper", "name", "sentence"),
    [
        ("LDA [CITE] finds themes.", "Latent", "LDA", ""),
        ("AIDS patients need aid [CITE].", "Assessing", "", ""),
        ("碳储量的估算 [CITE]。", "carbon", "", "湿地碳储量的估算方法是本文的主题。"),
    ],
)
def test_reasons_are_names_in_full_and_sentences_with_words(
    shelf: Recommender, question: str, paper: str, name: str, sentence: str
) -> None:
    evidence = {other.id: other.evidence for other in shelf.recommend(question, k=30)}[paper]
    assert (evidence.name, evidence.sentence) == (name, sentence)


DRAFT = """---
title: Counting words
bibliography: refs.bib
---
Endings are cut off [@porter]. Topics of documents are mixtures of words, as in [@lda; @porter].

# Classes

Documents are mixtures of topics again [@lda], and margins separate their classes.
Margins are of support vectors [@svm].
"""
BIB = "".join(
    f"@article{{{key}, title={{{title}}}, abstract={{{title} by hand.}}, year=2000}}\n"
    for key, title in (
        ("porter", "Suffix Stripping of Endings"),
        ("lda", "Topics of Documents"),
        ("svm", "Support Vectors and Margins"),
        ("other", "Sheep"),
    )
)


@pytest.mark.slow
def test_a_ranker_is_made_of_drafts(
    tiny_networks: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model, folder, kept = (tmp_path / name for name in ("model", "drafts", "lists"))
    shutil.copytree(BUILT_IN / "static", model / "static")
    shutil.copytree(tiny_networks, model / "networks")
    listed = []
    for name, part in zip("abcdef", [*[FIT] * 5, CHECK], strict=True):
        (folder / name).mkdir(parents=True)
        (folder / name / "draft.md").write_text(DRAFT.replace("Counting words", name))
        (folder / name / "refs.bib").write_text(BIB)
        listed.append(f"- {{repository: {name}, main: draft.md, bib: [refs.bib], part: {part}}}\n")
    (folder / "drafts.yaml").write_text("".join(listed))
    settings = BuiltInSettings(
        drafts=str(folder),
        lists=str(kept),
        output=str(model),
        cache_dir=str(tmp_path / "cache"),
    )
    make(settings)
    printed = capsys.readouterr().out
    for name in (BARE, READ, FIRST, PAIRS, DRAFT_WAY):
        assert f"fit, cross-fitted, drafts, {name}: " in printed
        assert f"check, titles of drafts, {name}: " in printed
    assert 'check, drafts written so far, draft: {"recall@10"' in printed
    networks = RankingModel.open(model / "ranker").networks
    assert networks is not None and networks.pairs is not None
    assert set(networks.confidences) == {READ, FIRST, PAIRS}
    mine = tmp_path / "mine"
    build(BuildSettings(library=str(mine), source=(str(folder / "a" / "refs.bib"),), model=str(model)))
    assert len(Recommender.open(mine).recommend("Topics are mixtures [CITE].", k=4)) == 4

    before = {file.name: file.stat().st_mtime_ns for file in kept.iterdir()}
    make(replace(settings, ablation=True))
    assert "| encoder_title |" in capsys.readouterr().out
    assert before == {file.name: file.stat().st_mtime_ns for file in kept.iterdir()}, "lists are read once"
    one, two = (load_lists(kept / f"{name}.npz") for name in "ab")
    assert one is not None and two is not None
    assert len(one) == 8 and len({*one.citing.tolist(), *two.citing.tolist()}) == 2
    lists, titles = one.take(one.source == DRAFTS), one.take(one.source == TITLES)
    assert np.isfinite(lists.column("abstract_words")).all()
    assert np.isnan(titles.column("abstract_words")).all()
    assert sorted(lists.count) == [1, 1, 1, 2] and lists.cited.sum() == lists.count.sum()
    # Both citations of LDA know the other one; those of Porter share a passage.
    assert np.isfinite(lists.column("elsewhere_words")[lists.cited]).sum() == 2
