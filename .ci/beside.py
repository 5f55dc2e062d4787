"""Uses citerec beside sentence-transformers and Hugging Face `datasets` in one process: run by .ci/wheel."""

from __future__ import annotations

from sentence_transformers import SentenceTransformer

import citerec
import datasets
from citerec import Recommender
from citerec.datasets.generate import open_demo
from citerec.evaluation import evaluate
from citerec.retrieval.encoders.encoder import find_folder
from citerec.retrieval.lexical.bm25 import BM25
from citerec.retrieval.settings import ArticleConfig

assert "site-packages" in citerec.__file__, citerec.__file__
table = datasets.Dataset.from_dict({"text": ["a passage", "another passage"]})
assert table.map(lambda row: {"words": len(row["text"].split())})["words"] == [2, 2]

recommender = Recommender.open("mine")
print("asked:", [paper.title for paper in recommender.recommend("an adaptive learning rate [CITE]", k=2)])
corpus = open_demo(papers=200, contexts=600)
ranking = BM25().index(corpus).search(corpus.split("test"), k=100)
print("evaluated:", evaluate(ranking, ["R@10", "MRR"]))

model = SentenceTransformer(str(find_folder(ArticleConfig("minilm"))), device="cpu")  # make minilm
print("encoded:", model.encode(list(table["text"])).shape)
