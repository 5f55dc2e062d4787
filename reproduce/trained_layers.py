"""Keep what a training changed of all-MiniLM-L6-v2, in half precision, and restore the network from it.

    python reproduce/trained_layers.py outputs/encoder/biencoder reproduce/encoder.safetensors
    python reproduce/trained_layers.py reproduce/encoder.safetensors outputs/restored

Half precision changes cosines by less than .001. A restored folder opens like the saved one: train it further
with `encoder=local encoder.path=FOLDER`, or export it with `citerec model networks`.
"""

import json
import shutil
import sys
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from citerec.rerank.cross_encoder.network import HEAD, SETTINGS, CrossEncoder
from citerec.rerank.settings import PairSettings
from citerec.retrieval.encoders.encoder import model_folder
from citerec.retrieval.settings import MINILM
from citerec.training.hub import ABOUT

WEIGHTS, TEXTS = "model.safetensors", ("encoder.json", SETTINGS, ABOUT)
SCORE = "score."
"""Prefix of the names of the head's weights."""

source, target = map(Path, sys.argv[1:])
start = model_folder(MINILM)
weights = load_file(start / WEIGHTS)
if source.is_dir():
    trained = load_file(source / WEIGHTS)
    alike = {name: value for name, value in trained.items() if value.shape == weights[name].shape}
    changed = {name: value.half() for name, value in alike.items() if not torch.equal(value, weights[name])}
    if (source / HEAD).is_file():
        changed |= {SCORE + name: value for name, value in load_file(source / HEAD).items()}
    texts = {name: (source / name).read_text("utf-8") for name in TEXTS if (source / name).is_file()}
    save_file(changed, target, texts)
else:
    changed = {name: value.float() for name, value in load_file(source).items()}
    with safe_open(source, "pt") as file:
        saved = {name: json.loads(text) for name, text in file.metadata().items()}
    if SETTINGS in saved:
        pairs = PairSettings.from_dict(saved[SETTINGS]["pairs"])
        model = CrossEncoder.pretrained(MINILM, pairs, saved[SETTINGS]["head"])
        names = [name for name in changed if name.startswith(SCORE)]
        head = {name.removeprefix(SCORE): changed.pop(name) for name in names}
        model.score.load_state_dict(head)
        model.model.load_state_dict(model.model.state_dict() | changed)
        model.about = saved[ABOUT]
        model.save(target)
    else:
        shutil.copytree(start, target)
        for name, content in saved.items():
            (target / name).write_text(json.dumps(content, indent=1) + "\n", "utf-8")
        save_file(weights | changed, target / WEIGHTS)
