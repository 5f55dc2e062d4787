"""Two stages on a page of results: what is trained before what, and the tables."""

from __future__ import annotations

from pathlib import Path

import pytest
from hydra import compose, initialize_config_dir
from hydra.utils import instantiate
from omegaconf import OmegaConf

from evaluation import jobs
from evaluation.jobs import commands_of, run_all
from evaluation.plan import Plan, read_plan
from evaluation.results import write_page

ROOT = Path(__file__).parents[2]


@pytest.fixture
def plan(tiny_source: Path) -> Plan:
    """Two trainings, of which one needs the other, and evaluations of one stage and of two."""
    folder = tiny_source.parent
    data = ["data=custom", f"data.dir={tiny_source}", f"data.cache_dir={folder / 'cache'}"]
    reranked = ["reranker={reranker}", "benchmark.depths=[2]", "scoring.precision=float32"]
    content = {
        "page": str(folder / "docs" / "page.md"),
        "outputs": str(folder / "results"),
        "title": "Reranking",
        "data": {"tiny": {"title": "Tiny papers", "overrides": data}},
        "training": {
            "first": {"overrides": ["model=hatten"], "checkpoint": "hatten.ckpt"},
            "reranker": {
                "overrides": ["model=scibert_reranker", "retriever=hatten", "checkpoint={first}"],
                "checkpoint": "reranker",
            },
        },
        "retrievers": {
            "bm25": ["retriever=bm25"],
            "pipeline": ["benchmark=pipeline", "retriever=bm25", "candidates=4", *reranked],
            "fused": [
                "benchmark=pipeline",
                "retriever=bm25",
                "candidates=3",
                "benchmark.fuse=rank",
                *reranked,
            ],
            "oracle": [
                "benchmark=rerank",
                "candidates=2",
                "reranker={reranker}",
                "scoring.precision=float32",
            ],
        },
        "compare": [["pipeline", "bm25"], ["fused", "pipeline"]],
    }
    OmegaConf.save(OmegaConf.create(content), folder / "plan.yaml")
    return read_plan(folder / "plan.yaml")


def test_a_training_comes_after_those_that_it_needs(plan: Plan) -> None:
    bm25, pipeline, *_ = plan.jobs
    assert not bm25.training and [one.name for one in pipeline.training] == ["first", "reranker"]
    first, reranker = pipeline.training
    assert f"checkpoint={first.checkpoint}" in reranker.overrides
    lines = commands_of(pipeline)
    assert [line.split()[1] for line in lines] == ["train.py", "train.py", "evaluate.py"]
    assert f"reranker={reranker.checkpoint}" in lines[2]


def test_the_page_of_two_stages(plan: Plan, tiny_reranker: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(script: str, overrides: list[str], folder: Path) -> None:
        """In this process; what is trained is copied."""
        folder.mkdir(parents=True, exist_ok=True)
        if script == "train.py":
            (folder / "reranker").symlink_to(tiny_reranker)
            (folder / "hatten.ckpt").touch()
            return
        with initialize_config_dir(str(ROOT / "conf"), version_base="1.3"):
            config = compose("evaluate", overrides)
        (folder / ".hydra").mkdir(exist_ok=True)
        OmegaConf.save(config, folder / ".hydra" / "config.yaml")
        benchmark, retriever, data = (instantiate(config[key]) for key in ("benchmark", "retriever", "data"))
        benchmark(retriever, data, config.split, folder, filters=instantiate(config.filters))

    monkeypatch.setattr(jobs, "_python", run)
    assert run_all(plan.jobs) == {}
    write_page(plan)
    page = plan.page.read_text()
    for part in (
        "| bm25 | 1.000 | 1.000 |",
        "### Reranked",
        "| pipeline | bm25 + reranker | 4 | 4 | 1.000 [1.000, 1.000] | 1.000 [1.000, 1.000] | 1.00 | 1.000 |",
        "| fused | bm25 + reranker, fused by rank | 3 | 4 |",
        "### R@10 by the number of reranked candidates",
        "|  | 2 | 3 | 4 |",
        "| fused | 1.000 | 1.000 |  |",
        "page-tiny-reranked.png",
        "### Candidates of an oracle",
        "| pipeline | bm25 | R@10 | 1.0000 | 1.0000 |",
        "## As published: pipelines",
        "## As published: oracle rerankers",
        "| ACL-200: HAtten + SciBERT | 0.513 |",
        "benchmark=rerank candidates=2",
    ):
        assert part in page, part
    stages = page.split("### Reranked")[1].split("### Candidates of an oracle")[0]
    assert "| oracle |" not in stages and page.split("### Reranked")[0].count("| pipeline |") == 0
    assert (plan.page.parent / "page-tiny-reranked.png").read_bytes().startswith(b"\x89PNG")
