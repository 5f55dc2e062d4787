"""All results of a plan and the page about them: `python -m evaluation.results docs/retrieval.yaml`.

Runs each evaluation that is not there with today's settings, and before it the training that makes its
checkpoint where there is none; then writes the page from all that is there. A job that fails does not lose
the others.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path

from datasets.errors import InputError, fail, one_line_errors
from evaluation.jobs import run_all
from evaluation.page import published, write_global_page, write_page
from evaluation.plan import GLOBAL, RETRIEVAL, Job, Plan, read_plan
from evaluation.published import published_tables


@one_line_errors
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("plan", type=Path, help="the YAML file (evaluation/plan.py describes it)")
    parser.add_argument("jobs", nargs="*", help="run only these, DATA/NAME or DATA; the page is of all")
    parser.add_argument(
        "--without", nargs="+", default=[], metavar="JOB", help="run none of these: DATA/NAME, DATA or NAME"
    )
    parser.add_argument("--page-only", action="store_true", help="run nothing, write the page")
    given = parser.parse_args()
    plan = read_plan(given.plan)
    tables, write = PAGES[plan.kind]
    for one in plan.data.values():
        if one.published:
            tables(one.published)  # before hours of work
    jobs = chosen(plan, given.jobs, given.without)
    failed = {} if given.page_only else run_all(jobs)
    write(plan)
    print(f"page: {plan.page}")
    if failed:
        reasons = "; ".join(f"{job}: {reason}" for job, reason in failed.items())
        fail(f"{len(failed)} of {len(plan.jobs)} jobs failed; {reasons}")


PAGES: dict[str, tuple[Callable[[str], list[str]], Callable[[Plan], None]]] = {
    RETRIEVAL: (published, write_page),
    GLOBAL: (published_tables, write_global_page),
}
"""What gives the published figures of a kind of plan, and what writes its page."""


def chosen(plan: Plan, names: list[str], without: Sequence[str] = ()) -> list[Job]:
    """The jobs of these names, DATA/NAME or DATA, all without any; and none of `without`, where a NAME of
    retrievers is one of their names too. InputError for a name that is none.
    """
    known = {*map(str, plan.jobs), *plan.data}
    for name in [*names, *without]:
        if name not in known | ({job.name for job in plan.jobs} if name in without else set()):
            raise InputError(f"no job {name!r} in the plan; there are {', '.join(map(str, plan.jobs))}")
    jobs = [job for job in plan.jobs if not names or str(job) in names or job.data in names]
    return [job for job in jobs if not {str(job), job.data, job.name} & set(without)]


if __name__ == "__main__":
    main()
