"""Work distributed by Ray: on the cluster at RAY_ADDRESS, or by a local Ray."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from citerec.base.errors import InputError, error_text, missing_extra


@contextmanager
def ray_session(processes: int | None = None) -> Iterator[None]:
    """Connect to Ray and disconnect at the end; a Ray that is already connected is used and kept.

    processes: number of processes of a local Ray, by default one per core.
    Raises InputError if Ray is not installed or the cluster cannot be reached.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        import ray
        import ray.data
    except ImportError as error:
        raise InputError(missing_extra(f"Ray ({error})", "ray")) from None
    context: Any = ray.data.DataContext.get_current()
    context.execution_options.preserve_order = True
    context.enable_progress_bars = context.print_on_execution_start = False
    logging.getLogger("ray.data").setLevel(logging.WARNING)
    if ray.is_initialized():
        yield
        return
    options: dict[str, Any] = {}
    address = os.environ.get("RAY_ADDRESS", "")
    if not address:
        # Ray's default niceness of 15 starves workers on a machine that runs anything else.
        system = {"worker_niceness": 0}
        options |= {"include_dashboard": False, "_system_config": system, "num_cpus": processes}
    try:
        ray.init(logging_level=logging.WARNING, **options)
    except Exception as error:  # Ray raises nothing more specific
        action = "joined" if address else "started"
        raise InputError(f"RAY_ADDRESS={address}: Ray cannot be {action}: {error_text(error)}") from None
    try:
        yield
    finally:
        ray.shutdown()


def map_items(items: list[dict[str, Any]], work: Callable[..., Any], **options: Any) -> Iterator[Any]:
    """Yield the rows {key: value} that `work` returns for each item, in order; call inside `ray_session`.

    work: takes a batch of one item, {key: [value]}. options: for `ray.data.Dataset.map_batches`.
    """
    import ray.data

    dataset = ray.data.from_items(items, override_num_blocks=len(items))
    results = dataset.map_batches(work, batch_size=1, **options)
    table: Any
    for table in results.iter_batches(batch_size=None, batch_format="pyarrow"):
        for row in range(len(table)):
            yield {name: table.column(name)[row] for name in table.column_names}
