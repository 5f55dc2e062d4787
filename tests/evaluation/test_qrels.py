from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from datasets.corpus import Corpus
from datasets.errors import InputError
from evaluation.protocol import Qrels

IDS = st.text(st.characters(codec="utf-8"), min_size=1, max_size=5)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.dictionaries(
        IDS, st.dictionaries(IDS, st.integers(0, 3), min_size=1, max_size=3), min_size=1, max_size=4
    )
)
def test_qrels_written_and_read_are_the_same(tmp_path: Path, judgements: dict[str, dict[str, int]]) -> None:
    Qrels(judgements).write(tmp_path / "qrels.trec")
    assert Qrels.read(tmp_path / "qrels.trec").judgements == judgements


def test_qrels_of_a_split_are_its_cited_papers(tiny_corpus: Corpus) -> None:
    qrels = Qrels.of_split(tiny_corpus, tiny_corpus.split("val"))
    assert qrels.judgements == {"c7": {"retrieval": 1}, "c8": {"graph": 1}}


@pytest.mark.parametrize("blank", [" ", "  "])  # read by Arrow, or line by line
def test_a_relevance_that_is_too_large_is_one_line(tmp_path: Path, blank: str) -> None:
    (tmp_path / "qrels.trec").write_text(f"q 0 a 1\nq{blank}0 b 1{'0' * 30}\n")
    with pytest.raises(
        InputError, match=r"line 2, field 'relevance': '10+' is not a number, or one too large"
    ):
        Qrels.read(tmp_path / "qrels.trec")
