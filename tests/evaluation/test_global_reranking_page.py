"""Papers that ask in two stages on a page of results: query forms, reranked, divisions of the tokens."""

from __future__ import annotations

import json
from pathlib import Path

from hydra import compose, initialize_config_dir
from hydra.utils import instantiate
from omegaconf import OmegaConf

from datasets.corpus import Corpus
from evaluation.plan import read_plan
from evaluation.published import published
from evaluation.results import write_page

ROOT = Path(__file__).parents[2]


def test_a_page_of_papers_that_ask_in_two_stages(
    tiny_corpus: Corpus, tiny_reranker: Path, tmp_path: Path
) -> None:
    plan = tmp_path / "plan.yaml"
    own = ["data=custom", f"data.dir={tmp_path}", "retriever=bm25", f"data.cache_dir={tmp_path / 'cache'}"]
    rerank = [
        "benchmark=global_rerank",
        f"reranker={tiny_reranker}",
        "candidates=4",
        "scoring.precision=float32",
    ]
    content = {
        "page": str(tmp_path / "page.md"),
        "outputs": str(tmp_path / "results"),
        "title": "Two stages",
        "data": {
            "forms": {
                "title": "Forms",
                "overrides": [*own, "benchmark=global_prefetch"],
                "retrievers": {
                    "key-terms": ["retriever.query=[key_terms]"],
                    "context": ["retriever.query=[context]"],
                },
                "published": "query-forms",
            },
            "reranked": {
                "title": "Reranked",
                "overrides": [*own, *rerank],
                "retrievers": {
                    "alone": ["queries=null"],
                    "fused": ["benchmark.fuse=rank", "benchmark.weight=0.5"],
                },
                "published": "rerankers",
            },
            "tokens": {
                "title": "Tokens",
                "overrides": [*own, *rerank],
                "retrievers": {str(q): [f"benchmark.query_tokens={q}"] for q in (10, 20)},
            },
        },
        "retrievers": {},
        "compare": [["context", "key-terms"], ["fused", "alone"]],
    }
    OmegaConf.save(OmegaConf.create(content), plan)
    read = read_plan(plan)
    measured = {}
    for job in read.jobs:
        with initialize_config_dir(str(ROOT / "conf"), version_base="1.3"):
            config = compose("evaluate", job.overrides)
        run = instantiate(config.benchmark)
        measured[str(job)] = run(instantiate(config.retriever), tiny_corpus, "test", job.folder)
        (job.folder / ".hydra").mkdir()
        OmegaConf.save(config, job.folder / ".hydra" / "config.yaml")
    write_page(read)
    page = (tmp_path / "page.md").read_text()
    for name, stages in (
        ("reranked/alone", "bm25 + tiny-reranker"),
        ("reranked/fused", "bm25 + tiny-reranker, fused"),
    ):
        of = measured[name]
        first = " | ".join(
            f"{of[f'base/{key}']:.3f}" for key in ("f1@20", "mrr", "recall@100", "recall@1000")
        )
        assert f"| bm25 |  |  | {first} |  |  |  |  |" in page
        row = next(
            line for line in page.splitlines() if line.startswith(f"| {name.partition('/')[2]} | {stages}")
        )
        assert f"| 4 | {of['f1@20']:.3f} | {of['mrr']:.3f} |" in row
        assert f"| {of['ceiling']:.3f} | {of['gain/f1@20']:+.3f} |" in row
    terms = measured["forms/key-terms"]
    assert f"| key-terms | {terms['f1@20']:.3f} | {terms['mrr']:.3f} |" in page
    longest = json.loads((tiny_reranker / "reranker.json").read_text())["pairs"]["max_tokens"]
    assert f"| 10 | {longest - 10} | " in page and "(page-tokens.png)" in page
    assert (tmp_path / "page-tokens.png").read_bytes().startswith(b"\x89PNG")
    assert not (tmp_path / "page-reranked.png").exists()
    assert "| fused | alone | f1@20 |" in page and "| context | key-terms | mrr |" in page
    for name in ("rerankers", "query-forms"):
        assert "\n\n".join(published(name)) in page
