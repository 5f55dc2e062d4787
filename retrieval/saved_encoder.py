"""What is written beside an article encoder that was trained here: how it reads texts."""

from __future__ import annotations

import json
from pathlib import Path

from datasets.errors import InputError
from retrieval.models import ArticleConfig

SETTINGS, ABOUT = "encoder.json", "about.json"


def saved_config(folder: Path) -> ArticleConfig | None:
    """What `ArticleEncoder.save` wrote about an encoder, None where it did not."""
    path = folder / SETTINGS
    try:
        return ArticleConfig(**{**json.loads(path.read_text("utf-8")), "path": str(folder)})
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, InputError) as error:
        raise InputError(f"{path}: damaged ({error})") from None


def check_reading(config: ArticleConfig) -> None:
    """InputError if the encoder lies in a folder that was saved for another reading of texts."""
    saved = saved_config(Path(config.path)) if config.path is not None else None
    if saved is None:
        return
    here, there = config.reading(), saved.reading()
    for key in [key for key in here if here[key] != there[key]][:1]:
        raise InputError(
            f"encoder.{key}={_plain(here[key])}: the encoder in {config.path} was trained with "
            f"{_plain(there[key])}; set it so, or use retriever=biencoder checkpoint=FOLDER"
        )


def _plain(value: object) -> str:
    return f"[{', '.join(value)}]" if isinstance(value, tuple) else str(value)
