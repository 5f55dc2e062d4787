"""Compare BM25, the built-in model and the encoder of other languages on drafts that are not in English.

    python reproduce/languages.py drafts.json.gz [citations of each draft, 12]

Needs the wheel of `make languages`. Each draft's bibliography is a library of titles, authors and years; a
query is the passage of a citation alone. The drafts are those of every other owner, to which nothing was
fitted. Prints R@10 / MRR, means over drafts.
"""

import gzip
import json
import random
import sys
from collections import defaultdict
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from citerec.library.ask.question import mark_query
from citerec.library.builtin.languages import papers_of
from citerec.library.papers.encoding import encode
from citerec.library.papers.library import Library
from citerec.retrieval.queries import Queries, Query

DEPTH = 300
drafts, count = json.loads(gzip.decompress(Path(sys.argv[1]).read_bytes())), int([*sys.argv, "12"][2])
measures = defaultdict(list)
for name in sorted(drafts, key=str.lower)[1::2]:
    draft = drafts[name]
    papers = papers_of(draft, abstracts=False)
    asked = random.Random(f"0 {name}").sample(draft["contexts"], min(count, len(draft["contexts"])))
    with TemporaryDirectory() as place:
        made = [
            Library.create(Path(place) / (model or "built-in"), papers, model=model) for model in ("bm25", "")
        ]
        encode(made[1])
        if made[1].mapped.languages is None:
            raise SystemExit("error: citerec-languages is not installed: make languages")
        models = [library.retriever for library in made] + [made[1].mapped.languages]
        found = [list[tuple[float, float]]() for _ in models]
        for context in asked:
            targets = {row for key in context["positive"] if (row := made[0].row(key)) is not None}
            queries = Queries.from_list(made[1].corpus, [mark_query(Query(context["text"]))])
            for model, own in zip(models, found, strict=True):
                ranked = [row for row in model.search(queries, DEPTH).papers[0].tolist() if row >= 0]
                for target in targets:
                    others = [row for row in ranked if row == target or row not in targets]
                    rank = 1 + others.index(target) if target in others else np.inf
                    own.append((float(rank <= 10), 1 / rank))
    means = [np.mean(own, axis=0) for own in found]
    measures[draft["language"]].append(means)
    measures["all"].append(means)
print("| language | drafts | BM25 | built-in | languages |\n| --- | ---: | ---: | ---: | ---: |")
for language, values in sorted(measures.items()):
    cells = [f"{recall:.3f} / {mrr:.3f}" for recall, mrr in np.mean(values, axis=0)]
    print(f"| {language} | {len(values)} |", " | ".join(cells), "|")
