"""Work spread over Ray: the cluster that RAY_ADDRESS names, or a Ray of this machine."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa

from datasets.columns import Ragged, Tokenize
from datasets.errors import InputError
from datasets.tokenize import TOKENIZERS, WordTable

ROOT = Path(__file__).parents[1]
"""The checkout; it must be at the same place on all machines."""


@contextmanager
def connected(processes: int | None = None) -> Iterator[None]:
    """Inside, Ray can be used: the one that is connected already, else one that is left at the end.

    processes: of a Ray that is started on this machine; None: as many as there are cores.
    Raises InputError if Ray is not installed or the cluster cannot be reached.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        import ray
        import ray.data
    except ImportError as error:
        raise InputError(
            f"Ray is not installed ({error}): make install EXTRAS='dev ray', or choose local"
        ) from None
    quiet(ray.data.DataContext.get_current())
    if ray.is_initialized():
        yield
        return
    # Workers find our packages, and our `datasets` before any other, as this process does.
    options: dict[str, Any] = {"runtime_env": {"env_vars": {"PYTHONPATH": str(ROOT)}}}
    if not os.environ.get("RAY_ADDRESS"):
        # Ray's own default, 15, starves workers on a machine on which anything else runs.
        options |= {
            "include_dashboard": False,
            "_system_config": {"worker_niceness": 0},
            "num_cpus": processes,
        }
    try:
        ray.init(logging_level=logging.WARNING, **options)
    except Exception as error:  # where one cannot be started, Ray raises nothing more special
        where, reason = os.environ.get("RAY_ADDRESS", ""), " ".join(str(error).split())[:300]
        raise InputError(
            f"RAY_ADDRESS={where}: Ray cannot be {'joined' if where else 'started'}: {reason}"
        ) from None
    try:
        yield
    finally:
        ray.shutdown()


def quiet(context: Any) -> None:
    """Ray Data without bars and reports of its own; results come in the order of what they are made of."""
    context.execution_options.preserve_order = True
    context.enable_progress_bars = False
    context.print_on_execution_start = False
    logging.getLogger("ray.data").setLevel(logging.WARNING)


def each(items: list[dict[str, Any]], work: Callable[..., Any], **options: Any) -> Iterator[Any]:
    """What `work` makes of each item, an Arrow table of a row, in their order; few are held at a time.

    work: takes a batch of one item {key: [value]}. options: of `ray.data.Dataset.map_batches`. Inside
    `connected`.
    """
    import ray.data

    given = ray.data.from_items(items, override_num_blocks=len(items))
    made = given.map_batches(work, batch_size=1, **options)
    table: Any
    for table in made.iter_batches(batch_size=None, batch_format="pyarrow"):
        for row in range(len(table)):
            yield {name: table.column(name)[row] for name in table.column_names}


def remote_tokens(words: WordTable, tokenizer: str) -> Tokenize:
    """Tokenises in tasks of Ray. Words are numbered as they come back, and sorted in the end."""
    import ray

    task = ray.remote(_tokenize)

    def tokenize(texts: list[str]) -> Callable[[], Ragged]:
        waiting = task.remote(texts, tokenizer)

        def tokens() -> Ragged:
            found, new = ray.get(waiting)
            return Ragged(words.of_words(new)[found.values], found.offsets)

        return tokens

    return tokenize


def _tokenize(texts: list[str], tokenizer: str) -> tuple[Ragged, pa.LargeStringArray]:
    words = WordTable(TOKENIZERS[tokenizer])
    return words.ids(texts), words.words()
