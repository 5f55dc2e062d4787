"""Shards of a large library on several processes and machines, by Ray Serve.

Each shard is an application of its own, with one or more replicas; Ray Serve starts a replica that dies anew.
A new generation starts beside the old one, then takes its place.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from citerec.base.errors import InputError, missing_extra
from citerec.base.over_ray import ray_session
from citerec.library.disk.library import LargeLibrary, LargeRecommender, ShardAnswer, ShardQuery, ask_shard
from citerec.library.disk.shard import Shard
from citerec.library.papers import LibraryPaper

Result = TypeVar("Result")
META = "words/meta.json"
"""The file that a commit replaces."""


class ShardServer:
    """A replica of a shard."""

    def __init__(self, folder: str) -> None:
        self._shard = Shard(Path(folder))
        self._seen = self._changed()

    def _changed(self) -> int:
        return (self._shard.folder / META).stat().st_mtime_ns

    def _latest(self) -> Shard:
        if (changed := self._changed()) != self._seen:
            self._shard.reload()
            self._seen = changed
        return self._shard

    def ask(self, query: ShardQuery) -> ShardAnswer:
        return ask_shard(self._latest(), query)

    def read(self, rows: list[int]) -> dict[int, LibraryPaper]:
        return self._latest().read(rows)


class ServedShards:
    """Shards of Ray Serve. What does not answer until the deadline is left out."""

    def __init__(self, library: LargeLibrary, replicas: int, deadline: float) -> None:
        """deadline: seconds for a call to all shards. Returns when all replicas run."""
        from ray import serve

        self.deadline, self.generation = deadline, library.manifest.generation
        self._names = [
            f"{library.path.resolve().name}-{self.generation}-{number}"
            for number in range(library.manifest.shards)
        ]
        made: Any = serve.deployment(ShardServer)
        deployment = made.options(num_replicas=replicas, health_check_period_s=2, health_check_timeout_s=5)
        self._handles = [
            serve.run(deployment.bind(str(folder)), name=name, route_prefix=None)
            for name, folder in zip(self._names, library.shard_folders, strict=True)
        ]

    def ask(self, query: ShardQuery) -> list[ShardAnswer | None]:
        return self._gather([handle.ask.remote(query) for handle in self._handles])

    def read(self, rows: Sequence[Sequence[int]]) -> list[dict[int, LibraryPaper] | None]:
        asked = [
            handle.read.remote(list(own)) if own else None
            for handle, own in zip(self._handles, rows, strict=True)
        ]
        return self._gather(asked, {})

    def _gather(self, responses: Sequence[Any], nothing: Any = None) -> list[Any]:
        """Wait for responses until the deadline: None for those that fail or are late."""
        until, results = time.monotonic() + self.deadline, []
        for response in responses:
            if response is None:
                results.append(nothing)
                continue
            try:
                results.append(response.result(timeout_s=max(until - time.monotonic(), 0.001)))
            except Exception:  # Ray raises many: of a dead replica, of a late one
                response.cancel()
                results.append(None)
        return results

    def refresh(self) -> None:
        """Replicas look for changes themselves."""

    def stop(self) -> None:
        from ray import serve

        for name in self._names:
            serve.delete(name)


class ServedRecommender(LargeRecommender):
    """A LargeRecommender whose shards are served; a new generation replaces the old one when it runs."""

    def __init__(self, library: LargeLibrary, replicas: int, deadline: float, **options: Any) -> None:
        super().__init__(library, **options)
        self._replicas, self._deadline = replicas, deadline
        library.shards = self._served = ServedShards(library, replicas, deadline)

    def refresh(self) -> Any:
        library = super().refresh()
        if library.manifest.generation != self._served.generation:
            old = self._served
            library.shards = self._served = ServedShards(library, self._replicas, self._deadline)
            old.stop()
        return library


@contextmanager
def served(path: str | Path, replicas: int = 1, deadline: float = 2.0) -> Iterator[ServedRecommender]:
    """Serve the shards of a library over Ray while the context lasts.

    Raises InputError if Ray Serve is not installed.
    """
    with ray_session():
        try:
            from ray import serve
        except ImportError as error:
            raise InputError(missing_extra(f"Ray Serve ({error})", "ray")) from None
        serve.start(proxy_location="Disabled")
        try:
            yield ServedRecommender(LargeLibrary.open(path), replicas, deadline)
        finally:
            serve.shutdown()
