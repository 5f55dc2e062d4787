"""What sentences that cite a paper add to its ranking, in libraries of titles.

    python reproduce/citing_sentences.py DIR 1050      # a data set, and how many of its test contexts to ask

The contexts of a third of the training papers stand for what a library's full texts say. Prints R@10 of
model=static without and with them, by the number of sentences of other papers that cite the paper sought.
"""

import sys
import tempfile
from collections import defaultdict
from pathlib import Path

import numpy as np

from citerec import open_corpus
from citerec.datasets.records import IN_TEXTS
from citerec.library.builtin.make import copy_part
from citerec.library.papers.models import install_model, open_model
from citerec.retrieval.queries import Queries

PAPERS = 2500
"""Papers of a library: those that the test contexts cite, and a sample of others."""
SHARE = 1 / 3
"""Share of the training papers whose full text is in the library."""
SEED = 0

corpus = open_corpus(sys.argv[1])
rng = np.random.default_rng(SEED)
asked, train = corpus.split("test"), corpus.split("train")
asked = asked.take(np.sort(rng.permutation(len(asked))[: int(sys.argv[2])]))
cited = np.unique(asked.positives.values)
others = rng.permutation(np.setdiff1d(np.arange(len(corpus.paper_ids)), cited))
papers = np.union1d(cited, others[: max(PAPERS - len(cited), 0)])
citing = np.unique(corpus.citing[train.contexts])
read = citing[rng.random(len(citing)) < SHARE]
kept = np.isin(corpus.citing[train.contexts], read)
kept &= np.logical_and.reduceat(np.isin(train.positives.values, papers), train.positives.offsets[:-1])
train = train.take(np.flatnonzero(kept))

with tempfile.TemporaryDirectory() as name:
    folder = Path(name)
    install_model("static", folder / "model")
    titles_only = np.ones(len(corpus.paper_ids), bool)
    library = copy_part(corpus, papers, titles_only, {"asked": asked, IN_TEXTS: train}, folder / "corpus")
    retriever = open_model(folder / "model").index(library)
    texts, asked = library.split(IN_TEXTS), library.split("asked")
    queries = Queries.from_contexts(library, asked)
    with_sentences = retriever.search(queries, 40).papers.tolist()
    del library.splits[IN_TEXTS]
    without = retriever.search(queries, 40).papers.tolist()

citers = defaultdict(list)
for context, positives in zip(texts.contexts, texts.positives, strict=True):
    for paper in positives.tolist():
        citers[paper].append(library.citing[context])
rows = []
for number, positives in enumerate(asked.positives):
    sought = set(positives.tolist())
    for paper in sought:
        # Other papers cited here are taken out of the ranking, so that each citation is asked for alone.
        hits = [
            paper in [row for row in ranking[number] if row == paper or row not in sought][:10]
            for ranking in (without, with_sentences)
        ]
        rows.append((sum(citer != queries.citing[number] for citer in citers[paper]), *hits))
sentences, before, after = np.array(rows).T
for group, mask in (
    ("all", sentences >= 0),
    ("no sentence", sentences == 0),
    ("one or two", (sentences == 1) | (sentences == 2)),
    ("three or more", sentences >= 3),
):
    print(f"{group:14} {mask.sum():6,} citations  R@10 {before[mask].mean():.3f} -> {after[mask].mean():.3f}")
