"""Plain questions whose right paper is clear, over libraries of three fields: no model is fitted to them.

Prints each model's right answers with -s: python -m pytest -s tests/library/test_sense.py
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest
import yaml

from citerec.library.ask.recommendation import NOTHING_FITS, note_on
from citerec.library.ask.recommender import Recommender
from citerec.library.papers.encoding import encode
from citerec.library.papers.library import Library
from citerec.library.papers.models import LANGUAGES
from citerec.library.sources.readers import read_source

FOLDER = Path(__file__).parent / "sense"
PARTS = yaml.safe_load((FOLDER / "questions.yaml").read_text("utf-8"))
LEAST, SLACK = 42, 2
"""Right answers of the built-in model when it was made, and what 8-bit arithmetic of another processor
may change."""


def recommenders(place: Path, model: str) -> list[Recommender]:
    """Recommenders for the libraries of PARTS."""
    found = []
    for number, part in enumerate(PARTS):
        papers = list(read_source(FOLDER / part["library"], print))
        library = Library.create(place / f"{model}{number}", papers, model=model)
        encode(library)
        found.append(Recommender.open(library.path))
    return found


@pytest.mark.slow
@pytest.mark.skipif(find_spec(LANGUAGES) is None, reason="needs the wheel that `make languages` builds")
def test_questions_in_other_languages_find_english_papers(tmp_path: Path) -> None:
    part, mixed = yaml.safe_load((FOLDER / "languages.yaml").read_text("utf-8"))
    found = []
    for library in (part["library"], "ecology_medicine.bib"):
        papers = [
            paper for name in (library, mixed["library"]) for paper in read_source(FOLDER / name, print)
        ]
        made = Library.create(tmp_path / Path(library).stem, papers)
        encode(made)
        recommender = Recommender.open(made.path)
        found.append([recommender.recommend(text, k=1) for text, _ in part["questions"]])
    right = [key == best.key for (_, key), [best] in zip(part["questions"], found[0], strict=True)]
    said = [sum(note_on(best) == NOTHING_FITS for best in part) for part in found]
    print(f"\n{sum(right)} of {len(right)} right first; nothing fits: own field {said[0]}, another {said[1]}")
    assert sum(right) >= 20 - SLACK and said[0] <= 8 and said[1] >= 20


@pytest.mark.slow
def test_the_built_in_model_has_more_sense_than_words_alone_and_says_that_nothing_fits(
    tmp_path: Path,
) -> None:
    right, said = dict[str, int](), {True: list[bool](), False: list[bool]()}
    for model in ("", "bm25"):
        found = []
        for recommender, own in zip(recommenders(tmp_path, model), PARTS, strict=True):
            for part in [own] if model else PARTS:
                for text, key in part["questions"]:
                    best = recommender.recommend(text, k=1)
                    if part is own:
                        found.append((text, key, best[0].key))
                    if not model:
                        said[part is own].append(note_on(best) == NOTHING_FITS)
        right[model] = sum(key == first for _, key, first in found)
        print(f"\n{model or 'builtin'}: {right[model]} of {len(found)} right first")
        for text, key, first in found if not model else ():
            if key != first:
                print(f"  {first} for {key}: {text}")
    for is_own, notes in said.items():
        print(f"{'own' if is_own else 'other'} fields: nothing fits {sum(notes)} of {len(notes)} questions")
    assert right[""] >= max(LEAST - SLACK, right["bm25"])
    assert sum(said[True]) <= SLACK and sum(said[False]) >= 80


def test_german_and_english_passages_find_papers_in_both_languages(tmp_path: Path) -> None:
    english, german = yaml.safe_load((FOLDER / "languages.yaml").read_text("utf-8"))
    papers = [paper for part in (english, german) for paper in read_source(FOLDER / part["library"], print)]
    library = Library.create(tmp_path / "mixed", papers)
    encode(library)
    recommender = Recommender.open(library.path)
    for text, key in german["questions"]:
        assert recommender.recommend(text, k=1)[0].key == key, text
