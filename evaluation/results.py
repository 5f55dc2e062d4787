"""All results of a plan and the page about them: `python -m evaluation.results docs/retrieval.yaml`.

Runs each evaluation that is not there with today's settings, and before it the training that makes its
checkpoint where there is none; then writes the page from all that is there. A job that fails does not lose
the others.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from datasets.errors import InputError, fail, one_line_errors
from evaluation.jobs import run_all
from evaluation.plan import Job, Plan, read_plan
from evaluation.results_page import published, write_page


@one_line_errors
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("plan", type=Path, help="the YAML file (evaluation/plan.py describes it)")
    parser.add_argument("jobs", nargs="*", help="run only these, DATA/NAME or DATA; the page is of all")
    parser.add_argument("--page-only", action="store_true", help="run nothing, write the page")
    given = parser.parse_args()
    plan = read_plan(given.plan)
    for one in plan.data.values():
        if one.published:
            published(one.published)  # before hours of work
    failed = {} if given.page_only else run_all(chosen(plan, given.jobs))
    write_page(plan)
    print(f"page: {plan.page}")
    if failed:
        reasons = "; ".join(f"{job}: {reason}" for job, reason in failed.items())
        fail(f"{len(failed)} of {len(plan.jobs)} jobs failed; {reasons}")


def chosen(plan: Plan, names: list[str]) -> list[Job]:
    """The jobs of these names, DATA/NAME or DATA; all without any. InputError for a name that is none."""
    known = {*map(str, plan.jobs), *plan.data}
    for name in names:
        if name not in known:
            raise InputError(f"no job {name!r} in the plan; there are {', '.join(map(str, plan.jobs))}")
    return [job for job in plan.jobs if not names or str(job) in names or job.data in names]


if __name__ == "__main__":
    main()
