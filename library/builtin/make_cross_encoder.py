"""Adds a cross-encoder to the built-in model, after make_networks:

    python -m citerec.library.builtin.make_cross_encoder cross_encoder=...

It writes the network in 8 bits, fits the weight of its scores and its confidence to the lists of drafts of
part `fit`, on which it was not trained. Those of part `check` tell how well it ranks.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from citerec.base.arguments import command
from citerec.base.errors import InputError
from citerec.base.settings import Settings, cache_setting
from citerec.hatten.trained import static_retriever
from citerec.library.builtin.make import DRAFTS, read_drafts
from citerec.library.builtin.make_networks import ASKED_AS, FOLDS, L2, read_bert
from citerec.library.papers.models import BUILT_IN, NETWORKS
from citerec.rerank.ranker.linear import TrainingLists, measure_variants
from citerec.rerank.ranker.model import Ranker, RankingModel
from citerec.rerank.ranker.networks import FIRST, PAIR, PAIRS, READ
from citerec.rerank.ranker.training import fit_pairs
from citerec.rerank.settings import RankerSettings
from citerec.retrieval.networks.encoder import ENCODER, NetworkRetriever
from citerec.retrieval.networks.networks import CROSS_ENCODER, Networks
from citerec.retrieval.networks.store import VectorStore

QUERIES = 20
"""Citations of a draft: pairs take long."""


@dataclass(frozen=True, kw_only=True)
class CrossEncoderSettings(Settings):
    """Add a cross-encoder to the built-in model."""

    cross_encoder: str
    """folder of a BERT with a head, `out`: config.json and model.safetensors"""
    drafts: str
    """folder of drafts (citerec data drafts list=library/builtin/drafts-unseen.yaml)"""
    cache_dir: str = cache_setting()
    """cache for what the encoder makes of papers"""
    output: str = str(BUILT_IN)
    """folder of the built-in model, with an encoder"""


def add_cross_encoder(settings: CrossEncoderSettings) -> None:
    """Write the cross-encoder, fit its weight and print how it ranks what it was not fitted to."""
    folder = Path(settings.output)
    base = RankingModel.open(folder / RankingModel.folder)
    if (model := base.networks) is None:
        raise InputError(f"{folder}: has no encoder; run make_networks first")
    bert = read_bert(Path(settings.cross_encoder))
    if bert.head is None:
        raise InputError(f"{settings.cross_encoder}: has no head, so it is no cross-encoder")
    networks = Networks.open(folder / NETWORKS).with_cross_encoder(bert)
    store = VectorStore(Path(settings.cache_dir) / "encoded", networks.identity, networks.dim)
    parts = {ENCODER: NetworkRetriever(networks, store)}
    ranker = Ranker.over(static_retriever(folder / "static"), base, parts)
    lists = TrainingLists.concat(read_drafts(ranker, settings.drafts, "fit", ASKED_AS, QUERIES, True))
    found, fitted = fit_pairs(RankerSettings(folds=FOLDS, l2=L2), lists, model, base.model, 0, DRAFTS)
    for variant, measures in fitted.items():
        print(f"fit, {variant}: {json.dumps(measures)}")
    of_pairs = {name: asdict(one) for name, one in found.pairs.items()}
    about = {"lists": len(lists), "network": networks.hashes[CROSS_ENCODER], **of_pairs}
    replace(base, networks=found, about={**base.about, "cross_encoder": about}).save(
        folder / RankingModel.folder
    )
    check = TrainingLists.concat(read_drafts(ranker, settings.drafts, "check", ASKED_AS, QUERIES, True))
    rankings = {READ: model.read.scores(check), FIRST: model.first.scores(check, base.model.scores(check))}
    rankings |= {PAIRS[way]: found.pairs[PAIRS[way]].scores(check, of, PAIR) for way, of in rankings.items()}
    for name, scores in rankings.items():
        for variant, measures in measure_variants(check, scores).items():
            print(f"check, {variant}, {name}: {json.dumps(measures)}")


main = command("library.builtin.make_cross_encoder", CrossEncoderSettings, add_cross_encoder)

if __name__ == "__main__":
    main()
