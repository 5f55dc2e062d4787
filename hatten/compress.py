"""Smaller static models: `python -m hatten.compress checkpoint=OUT output=DIR words=40000 vectors=int8`."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path

from datasets.command import command
from datasets.errors import InputError
from datasets.files import new_folder
from datasets.settings import check_count

log = logging.getLogger(__name__)


def compress(checkpoint: str | Path, output: str | Path, words: int | None, vectors: str) -> Path:
    """Write a static model with the most frequent words of another, in fewer bits, to a new folder.

    words: how many to keep; None: all. vectors: float32, float16 or int8. The words that are left out are
    unknown to it, and get random vectors as others do. Raises InputError for options that do not fit.
    """
    from hatten.static import KINDS, load_static, save_static  # torch, when the options are known to be right

    if vectors not in KINDS:
        raise InputError(f"vectors={vectors}: choose {', '.join(KINDS)}")
    if words is not None:
        check_count("words", words)
    folder = new_folder(output)
    model = load_static(checkpoint)
    known = len(model.vocabulary)
    model = model if words is None else model.cut(words)
    about = {
        name: value for name, value in model.about.items() if not name.startswith("val/")
    }  # of the other
    about["compressed"] = f"{len(model.vocabulary):,} of {known:,} words, vectors in {vectors}"
    save_static(replace(model, about=about), folder, vectors)
    size = sum(path.stat().st_size for path in folder.iterdir()) / 1e6
    log.info(f"{folder}: {len(model.vocabulary):,} of {known:,} words, {vectors}, {size:.1f} MB")
    return folder


main = command("compress")


if __name__ == "__main__":
    main()
