"""A library that notes what it is asked, and a server over it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.library.shelf import Watched, serving


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Watched:
    return Watched.over(tmp_path_factory.mktemp("library"))


@pytest.fixture(scope="module")
def url(watched: Watched) -> Iterator[str]:
    with serving(watched, mcp=False) as url:
        yield url
