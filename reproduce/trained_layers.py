"""Keep what a training changed of all-MiniLM-L6-v2, in half precision, and restore the network from it.

    python reproduce/trained_layers.py outputs/encoder/biencoder reproduce/encoder.safetensors
    python reproduce/trained_layers.py reproduce/encoder.safetensors outputs/restored

Half precision changes cosines by less than .001. A restored folder is trained on with `encoder=local
encoder.path=FOLDER`; that of an encoder opens as what was saved, and `citerec model networks encoder=FOLDER`
exports it. Of a cross-encoder, head and added tokens are not kept: it opens as a transformer.
"""

import json
import shutil
import sys
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from citerec.retrieval.encoders.encoder import model_folder
from citerec.retrieval.settings import MINILM

WEIGHTS, TEXTS = "model.safetensors", ("encoder.json", "about.json")

source, target = map(Path, sys.argv[1:])
start = model_folder(MINILM)
weights = load_file(start / WEIGHTS)
if source.is_dir():
    trained = load_file(source / WEIGHTS)
    alike = {name: value for name, value in trained.items() if value.shape == weights[name].shape}
    changed = {name: value.half() for name, value in alike.items() if not torch.equal(value, weights[name])}
    texts = {name: (source / name).read_text("utf-8") for name in TEXTS if (source / name).is_file()}
    save_file(changed, target, texts)
else:
    shutil.copytree(start, target)
    with safe_open(source, "pt") as file:
        for name, text in file.metadata().items():
            (target / name).write_text(json.dumps(json.loads(text), indent=1) + "\n", "utf-8")
    save_file(weights | {name: value.float() for name, value in load_file(source).items()}, target / WEIGHTS)
