"""Compress static models: `citerec model compress checkpoint=OUT output=DIR words=40000 vectors=int8`."""

from __future__ import annotations

import logging
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from citerec.base.arguments import command
from citerec.base.files import new_folder
from citerec.base.settings import Settings, setting

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class CompressSettings(Settings):
    """Shrink a trained static model:

        citerec model compress checkpoint=OUT output=FOLDER words=40000 vectors=int8

    Dropped words get random vectors, like any out-of-vocabulary word of a static model. See
    docs/research/hatten.md.
    """

    checkpoint: str
    """output of citerec train model=static (e.g. outputs/mine)"""
    output: str
    """new folder to write (e.g. outputs/small)"""
    words: int | None = setting(None, least=1)
    """number of most frequent words to keep; null: all (e.g. 40000)"""
    vectors: str = setting("int8", choices=("float32", "float16", "int8"))
    """precision of the word vectors: float32 | float16 | int8"""


def compress(checkpoint: str | Path, output: str | Path, words: int | None, vectors: str) -> Path:
    """Write a smaller version of a static model to a new folder: its most frequent words, in fewer bits.

    words: number of words to keep; None keeps all. The others become unknown words, which get random vectors.
    vectors: float32, float16 or int8.
    """
    from citerec.hatten.static.model import StaticModel

    folder = new_folder(output)
    model = StaticModel.open(checkpoint)
    before = len(model.vocabulary)
    model = model if words is None else model.keep_frequent(words)
    # The validation measures belong to the uncompressed model.
    about = {name: value for name, value in model.about.items() if not name.startswith("val/")}
    about["compressed"] = f"{len(model.vocabulary):,} of {before:,} words, vectors in {vectors}"
    replace(model, about=about, dtype=vectors).save(folder)
    size = sum(path.stat().st_size for path in folder.iterdir()) / 1e6
    log.info(f"{folder}: {len(model.vocabulary):,} of {before:,} words, {vectors}, {size:.1f} MB")
    return folder


main = command("model compress", CompressSettings, lambda settings: compress(**asdict(settings)))
