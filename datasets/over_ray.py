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
from datasets.errors import InputError, error_text, missing_extra
from datasets.tokenize import TOKENIZERS, WordTable

ROOT = Path(__file__).parents[1]
"""The checkout; it must be at the same place on all machines."""


@contextmanager
def ray_session(processes: int | None = None) -> Iterator[None]:
    """Ray can be used inside: the one that is connected already, else one that is left at the end.

    processes: of a Ray that is started on this machine, by default one a core.
    Raises InputError if Ray is not installed or the cluster cannot be reached.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        import ray
        import ray.data
    except ImportError as error:
        raise InputError(missing_extra(f"Ray ({error})", "ray") + ", or choose local") from None
    context: Any = ray.data.DataContext.get_current()
    context.execution_options.preserve_order = True
    context.enable_progress_bars = context.print_on_execution_start = False
    logging.getLogger("ray.data").setLevel(logging.WARNING)
    if ray.is_initialized():
        yield
        return
    # Workers find our packages, and our `datasets` before any other, as this process does.
    options: dict[str, Any] = {"runtime_env": {"env_vars": {"PYTHONPATH": str(ROOT)}}}
    address = os.environ.get("RAY_ADDRESS", "")
    if not address:
        # Ray's own niceness, 15, starves workers on a machine on which anything else runs.
        system = {"worker_niceness": 0}
        options |= {"include_dashboard": False, "_system_config": system, "num_cpus": processes}
    try:
        ray.init(logging_level=logging.WARNING, **options)
    except Exception as error:  # Ray raises nothing more special
        done = "joined" if address else "started"
        raise InputError(f"RAY_ADDRESS={address}: Ray cannot be {done}: {error_text(error)}") from None
    try:
        yield
    finally:
        ray.shutdown()


def map_items(items: list[dict[str, Any]], work: Callable[..., Any], **options: Any) -> Iterator[Any]:
    """`work(item)` for each item, an Arrow table of one row each, in order; call it inside `ray_session`.

    work: takes a batch of one item, {key: [value]}. options: of `ray.data.Dataset.map_batches`.
    """
    import ray.data

    given = ray.data.from_items(items, override_num_blocks=len(items))
    made = given.map_batches(work, batch_size=1, **options)
    table: Any
    for table in made.iter_batches(batch_size=None, batch_format="pyarrow"):
        for row in range(len(table)):
            yield {name: table.column(name)[row] for name in table.column_names}


def remote_tokens(words: WordTable, tokenizer: str) -> Tokenize:
    """Tokenises in tasks of Ray; words are numbered in the order in which the chunks were given."""
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
