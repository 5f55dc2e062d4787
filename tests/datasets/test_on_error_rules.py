"""data.on_error=skip against a plain reading of the rules, on small corpora with all kinds of records."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from datasets.prepare import open_corpus
from datasets.records import TARGET_MARKER
from tests.datasets.fuzzing import fuzzed

PAPER_VALUES: dict[str, list[Any]] = {
    "title": ["A title", "", None, 3],
    "abstract": ["Text", " ", None, []],
    "year": [2000, None, "x", 0.5],
}
CONTEXT_VALUES: dict[str, list[Any]] = {
    "masked_text": ["as TARGETCIT", "as TARGETCIT", "none", "TARGETCIT", 7],
    "citing_id": ["p0", "p1", "p2", "p3", None],
    "refid": ["p0", "p1", "p4", None],
}
ABSENT = "absent"


def records_of(values: dict[str, list[Any]]) -> st.SearchStrategy[dict[str, Any]]:
    fields = {name: st.sampled_from([*some, ABSENT]) for name, some in values.items()}
    return st.fixed_dictionaries(fields).map(
        lambda record: {name: value for name, value in record.items() if value != ABSENT}
    )


QUERIES = st.lists(
    st.builds(
        lambda context, positives: {"context_id": context, "positive_ids": positives},
        st.sampled_from([f"c{number}" for number in range(8)]),
        st.lists(st.sampled_from(["p0", "p1", "p2", "p5"]), max_size=2),
    ),
    max_size=6,
)


@fuzzed(60)
@given(
    st.lists(records_of(PAPER_VALUES), min_size=4, max_size=6),
    st.lists(records_of(CONTEXT_VALUES), min_size=3, max_size=8),
    QUERIES,
    QUERIES,
)
def test_keeps_what_a_plain_reading_of_the_rules_keeps(
    papers: list[Any], contexts: list[Any], train: list[Any], test: list[Any]
) -> None:
    papers = [{"title": "Kept", "abstract": "Kept"}, *papers]
    source: dict[str, Any] = {
        "papers": {f"p{number}": paper for number, paper in enumerate(papers)},
        "contexts": {f"c{number}": context for number, context in enumerate(contexts)},
        "train": [*train, {"context_id": "good", "positive_ids": ["p0"]}],
        "test": [*test, {"context_id": "other", "positive_ids": ["p0"]}],
    }
    source["papers"] |= {"citing": {"title": "x"}, "tested": {"title": "y"}}
    source["contexts"]["good"] = {"masked_text": "see TARGETCIT", "citing_id": "citing"}
    source["contexts"]["other"] = {"masked_text": "see TARGETCIT", "citing_id": "tested"}
    with TemporaryDirectory() as place:
        folder = Path(place) / "source"
        folder.mkdir()
        for stem, content in source.items():
            (folder / f"{stem}.json").write_text(json.dumps(content))
        cache = Path(place) / "cache"
        corpus = open_corpus(folder, cache_dir=cache, on_error="skip", max_bad_share=1.0)
        kept_papers = [key for key, paper in source["papers"].items() if good_paper(paper)]
        assert list(corpus.paper_ids) == kept_papers
        kept = {key: c for key, c in source["contexts"].items() if good_context(c, kept_papers)}
        assert list(corpus.context_ids) == list(kept)
        splits = good_queries({"train": source["train"], "test": source["test"]}, kept, kept_papers)
        for name, queries in splits.items():
            split = corpus.splits[name]
            assert [corpus.context_ids[row] for row in split.contexts] == [context for context, _ in queries]
            found = [[corpus.paper_ids[row] for row in rows] for rows in split.positives]
            assert found == [positives for _, positives in queries]
        lost = Counter({part: sum(counts["kinds"].values()) for part, counts in corpus.dropped.items()})
        assert +lost == +Counter(
            {
                "papers": len(source["papers"]) - len(kept_papers),
                "contexts": len(source["contexts"]) - len(kept),
                **{f"split {name}": len(source[name]) - len(queries) for name, queries in splits.items()},
            }
        )


def good_paper(paper: dict[str, Any]) -> bool:
    texts = [paper.get("title") or "", paper.get("abstract") or ""]
    if paper.get("title") == 3 or paper.get("abstract") == []:
        return False
    return any(text.strip() for text in texts) and paper.get("year") in (None, 2000)


def good_context(context: dict[str, Any], papers: list[str]) -> bool:
    text = context.get("masked_text")
    if not isinstance(text, str) or text.count(TARGET_MARKER) != 1 or text == TARGET_MARKER:
        return False
    return context.get("citing_id") in papers and context.get("refid") in (None, *papers)


def good_queries(
    splits: dict[str, list[Any]], contexts: dict[str, Any], papers: list[str]
) -> dict[str, list[tuple[str, list[str]]]]:
    split_of_paper: dict[str, str] = {}
    used: set[str] = set()
    found: dict[str, list[tuple[str, list[str]]]] = {name: [] for name in splits}
    for name, queries in splits.items():
        for query in queries:
            context, positives = query["context_id"], query["positive_ids"]
            if context not in contexts or context in used:
                continue
            if not positives or len(set(positives)) < len(positives) or not set(positives) <= set(papers):
                continue
            if split_of_paper.setdefault(contexts[context]["citing_id"], name) == name:
                used.add(context)
                found[name].append((context, positives))
    return found
