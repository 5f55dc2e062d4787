"""Writes the trained small networks as libraries read them (retrieval.networks): citerec model networks."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from pathlib import Path

from citerec.base.arguments import command
from citerec.base.errors import InputError
from citerec.base.files import atomic_folder, new_folder
from citerec.base.settings import Settings


@dataclass(frozen=True, kw_only=True)
class NetworksSettings(Settings):
    """Write the small networks with 8-bit weights for ONNX Runtime, and their tokeniser:

        citerec model networks encoder=OUT reranker=OUT output=FOLDER

    They must have been trained with experiment=small_networks. See docs/research/ranking.md.
    """

    encoder: str
    """output of citerec train model=biencoder (e.g. outputs/encoder)"""
    reranker: str | None = None
    """output of citerec train model=scibert_reranker; null: no cross-encoder (e.g. outputs/cross-encoder)"""
    output: str
    """new folder to write (e.g. outputs/networks)"""


def write_networks(encoder: str | Path, reranker: str | Path | None, output: str | Path) -> Path:
    """Write the networks to a new folder.

    Raises InputError for other models than BERTs, and for those that read other inputs.
    """
    from citerec.hatten.biencoder.model import BiEncoder
    from citerec.rerank.cross_encoder.backends import bert_graph
    from citerec.rerank.cross_encoder.network import CrossEncoder
    from citerec.retrieval.networks.networks import CROSS_ENCODER, ENCODER, Networks

    folder, article = new_folder(output), BiEncoder.open(encoder).encoder
    config, ids = article.config, article.tokenizer.get_vocab()
    if (config.layout, config.pooling) != ("lengths", "mean"):
        raise InputError(f"encoder={encoder}: was not trained with experiment=small_networks")
    graphs = {ENCODER: bert_graph(article.model, f"encoder={encoder}")}
    if reranker is not None:
        model = CrossEncoder.open(reranker)
        if model.config.layout != "lengths":
            raise InputError(f"reranker={reranker}: was not trained with experiment=small_networks")
        words = model.tokenizer.get_vocab()
        passages = replace(config.lengths, abstract=model.config.lengths.abstract)  # pairs have less of it
        if passages != model.config.lengths or any(words.get(word) != id for word, id in ids.items()):
            raise InputError(f"reranker={reranker}: has other lengths or another tokeniser than the encoder")
        bert = bert_graph(model.model, f"reranker={reranker}", model)
        words_of = "embeddings.word_embeddings.weight"
        used = bert.weights[words_of][: 1 + max(ids.values())]  # no input has the added tokens
        graphs[CROSS_ENCODER] = replace(bert, weights={**bert.weights, words_of: used})
    with atomic_folder(folder) as part:
        Networks.write(part, graphs, article.tokenizer.backend_tokenizer.to_str(), config.lengths)
    for path in sorted(folder.iterdir()):
        print(f"{path}: {path.stat().st_size / 1e6:.1f} MB")
    return folder


main = command("model networks", NetworksSettings, lambda settings: write_networks(**asdict(settings)))
