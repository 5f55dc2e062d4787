"""Tasks on files: in this process, or over Ray on several processes and machines.

A task is a module-level function of one picklable item. It writes files under temporary names and renames
them, and may run twice (a killed worker's task is tried again). Papers and arrays pass between tasks through
files, so that a cluster needs a shared disk.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import islice
from typing import Any, TypeVar

from citerec.base.errors import InputError
from citerec.base.over_ray import ray_session
from citerec.base.progress import count_progress

log = logging.getLogger(__name__)
Item = TypeVar("Item")
Result = TypeVar("Result")
RETRIES = 3
"""How often the task of a killed worker is tried again."""
AHEAD = 2
"""Tasks per worker that are running or wait."""


@dataclass
class TaskRunner:
    """Runs `workers` tasks at once: here one after the other in this process; Ray is not imported."""

    workers: int = 1

    def map(
        self, function: Callable[[Item], Result], items: Sequence[Item], what: str
    ) -> Iterator[tuple[int, Result]]:
        """Yield (i, function(items[i])) as tasks end, with a progress bar. what: of the items, in the plural.

        An exception of a task ends the others and is raised here.
        """
        with count_progress(what, len(items)) as advance:
            for number, item in enumerate(items):
                yield number, function(item)
                advance(1)


class RayRunner(TaskRunner):
    """Runs tasks over Ray, one per core."""

    def map(
        self, function: Callable[[Item], Result], items: Sequence[Item], what: str
    ) -> Iterator[tuple[int, Result]]:
        import ray

        @ray.remote(max_retries=RETRIES)
        def task(item: Item) -> Result:
            return function(item)

        waiting = iter(range(len(items)))
        running: dict[Any, int] = {}

        def start(count: int) -> None:
            for number in islice(waiting, count):
                running[task.remote(items[number])] = number

        try:
            with count_progress(what, len(items)) as advance:
                start(AHEAD * self.workers)
                while running:
                    [done], _ = ray.wait(list(running), num_returns=1)
                    number = running.pop(done)
                    result = ray.get(done)
                    start(1)
                    yield number, result
                    advance(1)
        except ray.exceptions.RayTaskError as error:
            raise error.cause from None
        except (ray.exceptions.WorkerCrashedError, ray.exceptions.OutOfMemoryError):
            reason = f"a worker was killed {RETRIES + 1} times; is there memory left?"
            raise InputError(f"{what}: {reason}") from None
        finally:
            for pending in running:
                ray.cancel(pending, force=False)


@contextmanager
def task_runner(workers: int = 0) -> Iterator[TaskRunner]:
    """Yield a runner of tasks.

    workers: 1 runs tasks in this process, more over a local Ray; 0 means one per core where Ray is installed,
    else 1. With RAY_ADDRESS, tasks run on all cores of that cluster. Raises InputError if Ray is missing
    although it is asked for, or cannot be reached.
    """
    cluster = bool(os.environ.get("RAY_ADDRESS"))
    if not workers and not cluster and find_spec("ray") is None:
        log.warning("one process builds the library; pip install 'citerec[ray]' for one per core")
        workers = 1
    workers = workers or os.cpu_count() or 1
    if workers == 1 and not cluster:
        yield TaskRunner()
        return
    with ray_session(workers):
        import ray

        yield RayRunner(int(ray.cluster_resources().get("CPU", 1)))
