"""HAtten as a kind of encoder to train: `python train.py model=hatten`."""

from __future__ import annotations

from omegaconf import DictConfig

from datasets.corpus import Corpus
from hatten.checkpoint import saver
from hatten.documents import DocumentReader
from hatten.encoder import build_encoder
from hatten.recipe import Parts, Recipe
from hatten.settings import HAttenSettings
from hatten.static import FILE
from hatten.words import inverse_document_frequency, starting_words
from retrieval.nets import precision


class HAtten(Recipe):
    """The encoder of Gu et al. 2022, section 4.1, with or without the path around it."""

    schema = HAttenSettings
    file = FILE
    groups = ("embeddings",)

    def __init__(self, model: HAttenSettings) -> None:
        self.config, self.words = model.encoder, model
        self.mean_path = self.config.residual == "mean"
        self.precision = precision(model.precision)

    def build(self, corpus: Corpus, config: DictConfig) -> Parts:
        name, vocabulary, table = starting_words(config.embeddings, corpus, self.words)
        encoder = build_encoder(self.config, table, vocabulary)
        encoder.precision = self.precision
        if encoder.mean is not None:
            encoder.mean.start_from(inverse_document_frequency(corpus, vocabulary))
            encoder.mean.dropout = self.words.word_dropout
        reader = DocumentReader(corpus, vocabulary, self.config.max_tokens)
        return Parts(encoder, reader, saver(vocabulary), {"vectors": name})
