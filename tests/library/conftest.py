"""A small library with a recommender that records its queries, and a real server over it."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from citerec.formats.bibliography.paper import LibraryPaper
from citerec.library.ask.question import Request
from citerec.library.ask.recommendation import Recommendation
from citerec.library.ask.recommender import Recommender
from citerec.library.papers.library import Library
from citerec.library.serve.server import listen, make_uvicorn
from citerec.library.settings import ServeSettings

PAPERS = [
    LibraryPaper(
        "kingma", "kingma2015adam", "Adam: A Method for Stochastic Optimization",
        "We introduce Adam, an algorithm for first-order gradient-based optimization of stochastic objective "
        "functions. It is based on adaptive estimates of lower-order moments.",
        ("Diederik P. Kingma", "Jimmy Ba"), 2015, "ICLR", collections=("optimisers",),
        url="https://arxiv.org/abs/1412.6980",
    ),
    LibraryPaper(
        "vaswani", "vaswani2017attention", "Attention Is All You Need",
        "Recurrent networks transduce sequences. We propose the Transformer, based on attention alone.",
        ("Ashish Vaswani", "Noam Shazeer", "Niki Parmar", "Jakob Uszkoreit", "Llion Jones"),
        2017, "NeurIPS", collections=("networks",), url="javascript:alert(1)",
    ),
    LibraryPaper(
        "doi:10.1000/markup", "o'brien2020<b>",
        "<img src=x onerror=\"document.title='owned'\"> & <b>Bold</b> titles",
        "Markup such as <script>document.title='owned'</script> in an optimiser of titles is text.",
        ("Ann <i>O'Brien</i>",), 2020, "<u>Venue</u>",
    ),
    LibraryPaper("bare", "bare", "A paper without anything else about optimisers"),
]  # fmt: skip


FIELDS = ["rank", "score", "probability", "cited", "retracted", "id", "key", "title", "year", "why"]
"""Those of a recommendation in JSON."""


def entry(key: str, title: str, **fields: object) -> str:
    """An entry of a .bib file."""
    lines = "".join(f"  {name} = {{{value}}},\n" for name, value in ({"title": title} | fields).items())
    return f"@article{{{key},\n{lines}}}\n"


def papers_of(library: Library) -> list[LibraryPaper]:
    """All papers, by row."""
    return [library.paper(row) for row in range(len(library))]


class RecommenderSpy(Recommender):
    """Records the texts of queries, crashes at the word `crash` and blocks at the word `wait`.

    In place of a cross-encoder, it reverses the list.
    """

    @classmethod
    def create(cls, folder: Path) -> RecommenderSpy:
        """Create a library and its recommender."""
        reranker: Any = object()
        recommender = cls(Library.create(folder / "papers", PAPERS, model="bm25"), reranker)
        recommender.texts, recommender.resume = [], threading.Event()
        return recommender

    texts: list[str]
    resume: threading.Event

    def recommend_batch(
        self, requests: Sequence[Request], k: int = 10, *, rerank: bool | None = None, **more: Any
    ) -> list[list[Recommendation]]:
        for request in requests:
            self.texts.append(request.query.context)
            if "crash" in request.query.context:
                raise RuntimeError("a bug, with a secret")
            if "wait" in request.query.context:
                assert self.resume.wait(120)
        found = super().recommend_batch(requests, k, rerank=False, **more)
        return [papers[::-1] for papers in found] if rerank else found


@contextmanager
def serving(recommender: Any, **options: Any) -> Iterator[str]:
    """Run a real server over a recommender; yields its URL."""
    settings = ServeSettings(library="my/papers", port=0, **options)
    listening = listen(settings.host, settings.port)
    server = make_uvicorn(recommender, settings)
    thread = threading.Thread(target=server.run, args=([listening],))
    thread.start()
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(120)
        assert not thread.is_alive()


def change(recommender: Recommender, added: Sequence[LibraryPaper] = (), removed: Sequence[str] = ()) -> None:
    """Change the library of a recommender, as another process does."""
    if added:
        with Library.edit(recommender.library.path) as library:
            library.add(added)
    if removed:
        with Library.edit(recommender.library.path) as library:
            library.remove(removed)
    recommender.refresh()


@pytest.fixture(scope="module")
def recommender(tmp_path_factory: pytest.TempPathFactory) -> RecommenderSpy:
    return RecommenderSpy.create(tmp_path_factory.mktemp("library"))


@pytest.fixture(scope="module")
def url(recommender: RecommenderSpy) -> Iterator[str]:
    with serving(recommender) as url:
        yield url
