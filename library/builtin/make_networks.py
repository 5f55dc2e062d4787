"""Adds networks to the built-in model: python -m citerec.library.builtin.make_networks encoder=... data=[...]

It writes an encoder in 8 bits, and fits the ranker over it (rerank.ranker.networks) to lists of small
libraries and of whole corpora, drawn from data sets' validation contexts, and of drafts of part `fit` over
their authors' bibliographies; none of which the encoder was trained on. Its confidences are fitted to the
lists of the drafts. Those of part `check` tell how well it ranks.
"""

from __future__ import annotations

import copy
import json
import logging
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file

from citerec.base.arguments import command
from citerec.base.errors import InputError
from citerec.base.files import atomic_folder
from citerec.base.settings import Settings, cache_setting
from citerec.datasets.corpus import Corpus
from citerec.datasets.prepare import open_corpus
from citerec.hatten.trained import static_retriever
from citerec.library.builtin.make import DRAFTS, read_drafts
from citerec.library.papers.models import BUILT_IN, NETWORKS
from citerec.rerank.ranker.confidence import TEXTS, TEXTS_SCALE, Confidence
from citerec.rerank.ranker.linear import TrainingLists, measure_variants, model_hash
from citerec.rerank.ranker.model import Ranker, RankingModel
from citerec.rerank.ranker.networks import NetworkModel
from citerec.rerank.ranker.training import (
    CONTEXT,
    SENTENCE,
    WHOLE,
    WITH_TITLE,
    fit_networks,
    read_lists,
    training_split,
)
from citerec.rerank.ranker.variants import restrict, small_libraries
from citerec.rerank.settings import RankerSettings
from citerec.retrieval.base import folder_bytes
from citerec.retrieval.networks.encoder import ENCODER, NetworkRetriever
from citerec.retrieval.networks.graph import Bert, Head
from citerec.retrieval.networks.inputs import Lengths
from citerec.retrieval.networks.networks import ENCODER as GRAPH
from citerec.retrieval.networks.networks import Networks
from citerec.retrieval.networks.store import VectorStore
from citerec.retrieval.passages import cited_elsewhere
from citerec.retrieval.queries import Queries

log = logging.getLogger(__name__)

ASKED_AS = (SENTENCE, CONTEXT, WITH_TITLE, WHOLE)
"""Kinds of queries, which take turns."""
SMALL_QUERIES, LARGE_QUERIES, LARGE = 320, 200, 5000
"""Queries of each split over small libraries, and over a library of LARGE papers."""
FOLDS, L2 = 3, 1e-2
OUT = "out.weight"
"""Name of the weight of a cross-encoder's head."""


@dataclass(frozen=True, kw_only=True)
class NetworkSettings(Settings):
    """Add networks to the built-in model."""

    encoder: str
    """folder of a BERT: config.json and model.safetensors, with names as in transformers' BertModel"""
    tokenizer: str
    """its tokenizer.json"""
    data: tuple[str, ...]
    """folders as in data=custom; contexts that keep names are read from val_named, if present"""
    drafts: str
    """folder of drafts (citerec data drafts list=library/builtin/drafts-unseen.yaml)"""
    cache_dir: str = cache_setting()
    """cache for prepared data and for what the encoder makes of papers"""
    output: str = str(BUILT_IN)
    """folder of the built-in model"""


def add_networks(settings: NetworkSettings) -> None:
    """Write the encoder, fit the ranker and print how it ranks what it was not fitted to."""
    folder = Path(settings.output)
    networks = write_encoder(Path(settings.encoder), Path(settings.tokenizer), folder / NETWORKS)
    base = replace(RankingModel.open(folder / RankingModel.folder), networks=None)
    store = VectorStore(Path(settings.cache_dir) / "encoded", networks.identity, networks.dim)
    parts = {ENCODER: NetworkRetriever(networks, store)}
    ranker = Ranker.over(static_retriever(folder / "static"), base, parts)
    lists: list[TrainingLists] = []
    for path in settings.data:
        splits = [name for name in ("train", "val", "val_named") if (Path(path) / f"{name}.json").is_file()]
        options = {"candidates": "all", "field": "authors", "cache_dir": settings.cache_dir}
        corpus = open_corpus(dir=path, splits=splits, **options)
        lists += read_data(ranker, corpus)
    lists += read_drafts(ranker, settings.drafts, "fit", ASKED_AS)
    given = TrainingLists.concat(lists)
    found, fitted = fit_networks(RankerSettings(folds=FOLDS, l2=L2), given, base.model, 0, DRAFTS)
    found = with_full_texts(found, base.confidence)
    for variant, measures in fitted.items():
        print(f"fit, cross-fitted, {variant}: {json.dumps(measures)}")
    about = about_networks(base, networks, given, found)
    replace(base, networks=found, about=about).save(folder / RankingModel.folder)
    check = TrainingLists.concat(read_drafts(ranker, settings.drafts, "check", ASKED_AS))
    for name, scores in {"without": base.model.scores(check), "with": found.read.scores(check)}.items():
        for variant, measures in measure_variants(check, scores).items():
            print(f"check, {name} networks, {variant}: {json.dumps(measures)}")
    print(f"{folder}: {folder_bytes(folder) / 1e6:.1f} MB")


def with_full_texts(model: NetworkModel, base: Confidence) -> NetworkModel:
    """Return the model with the base's parameters of full texts, which no list has."""
    kept = {name: base.parameters[name] for name in (TEXTS, TEXTS_SCALE) if name in base.parameters}
    confidences = {name: Confidence({**one.parameters, **kept}) for name, one in model.confidences.items()}
    return replace(model, confidences=confidences)


def about_networks(
    base: RankingModel, networks: Networks, lists: TrainingLists, found: NetworkModel
) -> dict[str, Any]:
    """How the ranker over networks was made, as plain values, beside what is known of its base."""
    variants, counts = np.unique(lists.variant, return_counts=True)
    of_networks = {
        "lists": dict(zip(variants.tolist(), counts.tolist(), strict=True)),
        "l2": L2,
        "encoder": networks.hashes[GRAPH],
        "hash": model_hash(found.read, {}),
    }
    return {**base.about, "networks": of_networks}


def write_encoder(model: Path, tokenizer: Path, folder: Path) -> Networks:
    """Write an encoder in 8 bits. InputError if it is not a BERT."""
    bert = read_bert(model)
    # Trained with the citing title half of the time; without it, queries rank better (README.md).
    lengths = Lengths(citing_title=0)
    with atomic_folder(folder) as part:
        Networks.write(part, {GRAPH: bert}, tokenizer.read_text("utf-8"), lengths)
    return Networks.open(folder)


def read_bert(folder: Path) -> Bert:
    """Read config.json and model.safetensors; of a cross-encoder also its head. InputError if not a BERT."""
    try:
        config = json.loads((folder / "config.json").read_text("utf-8"))
        values = {
            name.removeprefix("bert."): value.astype(np.float32)
            for name, value in load_file(folder / "model.safetensors").items()
        }
        heads = int(config["num_attention_heads"])
    except (OSError, ValueError, LookupError) as error:
        raise InputError(f"{folder}: has no BERT ({error})") from None
    head = Head(values.pop(OUT)[0], float(values.pop("out.bias")[0])) if OUT in values else None
    return Bert(values, heads, float(config.get("layer_norm_eps", 1e-12)), head)


def read_data(ranker: Ranker, corpus: Corpus) -> list[TrainingLists]:
    """Read the lists of validation contexts, over small libraries and over LARGE papers of the corpus."""
    splits, parts = [name for name in ("val", "val_named") if name in corpus.splits], []
    for split in splits:
        sample = training_split(corpus, split, SMALL_QUERIES, 0)
        for library, contexts in small_libraries(corpus, sample, 0):
            elsewhere = cited_elsewhere(library, library.splits[split], contexts.contexts)
            asked = Queries.from_contexts(library, contexts, elsewhere)
            lists = read_lists(_index(ranker, library), asked, f"small {split}", ASKED_AS)
            parts.append(replace(lists, citing=corpus.citing[contexts.contexts]))
    asked = _large(corpus)
    lists = read_lists(_index(ranker, asked.corpus), asked, "large", ASKED_AS)
    parts.append(replace(lists, citing=corpus.citing[asked.contexts]))
    log.info("%s: %s lists", corpus.name, f"{sum(map(len, parts)):,}")
    return parts


def _large(corpus: Corpus) -> Queries:
    """Return contexts over LARGE papers of the corpus, among them those that they cite and stand in."""
    sample, rng = training_split(corpus, "val", LARGE_QUERIES, 1), np.random.default_rng(1)
    citing = corpus.citing[sample.contexts]
    needed = np.union1d(sample.positives.values, citing[citing >= 0])
    others = rng.permutation(np.setdiff1d(np.arange(len(corpus.paper_ids)), needed))
    kept = np.union1d(needed, others[: max(LARGE - len(needed), 0)])
    library = restrict(corpus, sample, kept, np.empty(0, np.int64), np.zeros(len(kept), np.bool_))
    return Queries.from_contexts(library, library.splits["val"])


def _index(ranker: Ranker, library: Corpus) -> Ranker:
    return copy.deepcopy(ranker).index(library)


main = command("library.builtin.make_networks", NetworkSettings, add_networks)

if __name__ == "__main__":
    main()
