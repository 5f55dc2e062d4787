import numpy as np
import pytest

from datasets.corpus import Corpus
from datasets.errors import InputError
from retrieval.bm25 import query_texts
from retrieval.settings import check_fields

CONTEXT = "Early transition systems   built trees greedily  ."


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        (["context"], CONTEXT),
        (["title"], "Trees for everyone"),
        (["title", "abstract"], "Trees for everyone We parse many languages into trees."),
        (["context", "title", "title"], f"{CONTEXT} Trees for everyone Trees for everyone"),
    ],
)
def test_fields_stand_in_their_order_and_as_often_as_named(
    tiny_corpus: Corpus, fields: list[str], text: str
) -> None:
    assert next(query_texts(tiny_corpus, np.array([0, 1]), fields)) == text


def test_every_context_has_its_own_citing_paper(tiny_corpus: Corpus) -> None:
    contexts = np.array([11, 3])
    titles = [tiny_corpus.titles[int(tiny_corpus.citing[row])] for row in contexts]
    assert (
        list(query_texts(tiny_corpus, contexts, ["title"]))
        == titles
        == ["Verses about pictures", "Sound and vision"]
    )


def test_fields_are_checked() -> None:
    assert check_fields(["context", "context"]) == ("context", "context")
    for fields in ([], ["body"], "contexts"):
        with pytest.raises(InputError, match=r"retriever\.query: .* is not one of context, title, abstract"):
            check_fields(fields)
