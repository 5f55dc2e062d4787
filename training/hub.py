"""Models as folders to publish: settings as JSON, weights as safetensors, and a card that tells of them.

    model.save_pretrained("my-model")
    model.push_to_hub("someone/my-model")
    Model.from_pretrained("someone/my-model")    # or Model.from_pretrained("my-model"), the folder

A model that can do so derives from `Pretrained`, and writes and reads its own files. Nothing is unpickled:
only files of PATTERNS come from the hub. HF_ENDPOINT, HF_TOKEN and HF_HOME are as huggingface_hub has them.
"""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar, Self, TypeVar

import numpy as np
import yaml
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from datasets.errors import InputError, error_text
from datasets.files import atomic_folder, digest_file

T = TypeVar("T")

PATTERNS = ("*.json", "*.safetensors", "*.txt")
"""The files that are downloaded."""
CARD, ABOUT, WEIGHTS = "README.md", "about.json", "model.safetensors"
UNFIT = (InputError, LookupError, TypeError, AttributeError, ValueError, ArithmeticError, RuntimeError)
"""Errors of parts that are not what they should be."""
HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+")

LICENCE = """\
The code is under the MIT licence. The weights were learned from the data named above, and the training may
have started from published word vectors or a transformer: check their licences before you pass them on."""


class Pretrained:
    """A model that can be saved as a folder, uploaded, and opened by its folder or its id on the hub."""

    settings_file: ClassVar[str]
    """the file by which a folder of this kind is known"""
    title: ClassVar[str]
    """what messages and the card call it"""
    description: ClassVar[str]
    """what it is and how it is used, for the card; {place} stands for the name of the folder or its id"""
    tags: ClassVar[tuple[str, ...]] = ()
    about: Mapping[str, Any]
    """how it came to be, as plain values: data, settings, seed, what was measured in training (`val/...`)"""

    def write(self, folder: Path) -> None:
        """Write the settings and the weights, but `about`, into a new folder."""
        raise NotImplementedError

    @classmethod
    def read(cls, folder: Path, about: dict[str, Any]) -> Self:
        """What `write` wrote, in evaluation mode; InputError if it is damaged."""
        raise NotImplementedError

    def save_pretrained(
        self, folder: str | Path, results: str = "", licence: str | None = None, place: str = ""
    ) -> Path:
        """Write the model into a folder that ends up whole or as it was.

        results: Markdown on what was measured, for the card. licence: of the weights, by its SPDX name in
        small letters. place: where the card says that the model is. InputError if the folder holds anything
        else than such a model.
        """
        folder = Path(folder)
        other = folder.exists() and not (folder / self.settings_file).is_file()
        if other and (not folder.is_dir() or any(folder.iterdir())):
            raise InputError(f"{folder}: contains something other than a {self.title}; name another folder")
        with atomic_folder(folder) as part:
            self.write(part)
            write_json(part / ABOUT, dict(self.about))
            for path in part.iterdir():  # safetensors writes files that nobody else may read
                path.chmod((part / ABOUT).stat().st_mode)
            text = model_card(self, part, place or folder.name, results, licence)
            (part / CARD).write_text(text, encoding="utf-8")
        return folder

    def push_to_hub(
        self, repo_id: str, results: str = "", licence: str | None = None, private: bool = False
    ) -> str:
        """Upload the folder to the hub as OWNER/NAME, which is made if it is not there; gives its address.

        InputError of one line when that fails: no token, no right to it, no network.
        """
        from huggingface_hub import HfApi

        if not HUB_ID.fullmatch(repo_id):
            raise InputError(f"{repo_id}: the name of a model on the hub is OWNER/NAME")
        api = HfApi()
        with tempfile.TemporaryDirectory() as parent:
            folder = self.save_pretrained(Path(parent) / "model", results, licence, repo_id)
            try:
                api.create_repo(repo_id, private=private, exist_ok=True)
                api.upload_folder(repo_id=repo_id, folder_path=folder, commit_message=f"Save {self.title}")
            except Exception as error:  # the network raises nearly anything
                raise InputError(
                    f"{repo_id}: cannot be uploaded to {api.endpoint} ({error_text(error)}); "
                    "is HF_TOKEN one that may write there?"
                ) from None
        return f"{api.endpoint}/{repo_id}"

    @classmethod
    def from_pretrained(cls, place: str | Path) -> Self:
        """The model in a folder, or on the hub as OWNER/NAME: downloaded, or as it was downloaded before.

        InputError of one line if it is anything else, damaged, or cannot be had.
        """
        folder = find_model(place, cls.settings_file, cls.title)
        about = read_json(folder / ABOUT, dict) if (folder / ABOUT).is_file() else {}
        return cls.read(folder, about)


def write_json(path: Path, content: object) -> None:
    """Write plain values."""
    path.write_text(json.dumps(content, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


def read_json(path: Path, kind: type[T]) -> T:
    """The dictionary or list in a file; InputError if it is missing, damaged or anything else."""
    with _reading(path):
        content = json.loads(path.read_text("utf-8"))
    if not isinstance(content, kind):
        raise InputError(f"{path}: must hold a {kind.__name__}, not a {type(content).__name__}")
    return content


def write_weights(path: Path, weights: Mapping[str, NDArray[Any]]) -> None:
    """Write arrays by name."""
    save_file({name: np.ascontiguousarray(value) for name, value in weights.items()}, path)


def read_weights(path: Path) -> dict[str, NDArray[Any]]:
    """Arrays by name; InputError if the file is missing or damaged."""
    with _reading(path):
        return load_file(path)


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError:
        raise InputError(f"{path}: this file of the model is missing") from None
    except (OSError, ValueError, RecursionError, SafetensorError) as error:
        raise InputError(f"{path}: damaged ({error_text(error)})") from None


@contextmanager
def check_consistent(place: str | Path) -> Iterator[None]:
    """InputError of one line where the parts of a saved model are missing or do not fit each other."""
    try:
        yield
    except UNFIT as error:
        raise InputError(
            f"{place}: a part of the model is missing or does not fit the others ({error_text(error)})"
        ) from None


def find_model(place: str | Path, settings_file: str, title: str) -> Path:
    """The folder of a model, which has this file; downloaded if `place` is no folder but an id on the hub."""
    folder = Path(place)
    if not folder.exists() and is_hub_id(place):
        folder = download_model(str(place), settings_file, title)
    if not folder.is_dir():
        raise InputError(f"{place}: there is no such folder of a {title}")
    if not (folder / settings_file).is_file():
        raise InputError(f"{place}: no {title} that was saved here (no {settings_file} in it)")
    return folder


def is_hub_id(place: str | Path) -> bool:
    """Whether it can be the id of a model on the hub, and is no file of a training.

    >>> is_hub_id("someone/hatten"), is_hub_id("outputs/hatten.ckpt"), is_hub_id("a/b/c")
    (True, False, False)
    """
    return HUB_ID.fullmatch(str(place)) is not None and Path(place).suffix not in (".ckpt", ".pt")


def download_model(repo_id: str, settings_file: str, title: str) -> Path:
    """The folder of what the hub has by this id, downloaded; InputError of one line if it cannot be had."""
    from huggingface_hub import constants, snapshot_download

    try:
        return Path(snapshot_download(repo_id, allow_patterns=list(PATTERNS), ignore_patterns=["*/*"]))
    except Exception as error:  # the network raises nearly anything
        raise InputError(
            f"{repo_id}: there is no such folder, and no {title} of this name can be downloaded "
            f"({error_text(error)}); put {settings_file} and the other files of "
            f"{constants.ENDPOINT}/{repo_id} into the folder {repo_id}"
        ) from None


def model_card(model: Pretrained, folder: Path, place: str, results: str, licence: str | None) -> str:
    """The card of a model whose files are in the folder: front matter for the hub, then Markdown."""
    about, measured = dict(model.about), {}
    for key in [key for key in about if key.startswith("val/")]:
        measured[key.removeprefix("val/")] = about.pop(key)
    front: dict[str, Any] = {"tags": ["citation-recommendation", *model.tags]}
    if licence:
        front["license"] = licence
    parts = [f"# {place.rpartition('/')[2]}", model.description.format(place=place)]
    parts += ["## Data", _data(about)]
    if results:
        parts += ["## Results", results]
    if measured:
        rows = "\n".join(f"| {name} | {value:.4g} |" for name, value in measured.items())
        parts += [
            "## Validation",
            "After the round whose weights these are, by `train.py` on a sample of the validation split:",
            f"| measure | value |\n| --- | ---: |\n{rows}",
        ]
    if about:
        recipe = yaml.safe_dump(about, sort_keys=False, allow_unicode=True).strip()
        parts += [
            "## Recipe",
            f"What `train.py` was given, and what it started from:\n\n```yaml\n{recipe}\n```",
        ]
    files = "\n".join(
        f"| {path.name} | {path.stat().st_size:,} | `{digest_file(path, 'sha256')}` |"
        for path in sorted(folder.iterdir())
    )
    parts += ["## Files", f"| file | bytes | SHA-256 |\n| --- | ---: | --- |\n{files}"]
    stated = f"The weights are published under `{licence}`.\n\n" if licence else ""
    parts += ["## Licence", stated + LICENCE]
    head = yaml.safe_dump(front, sort_keys=False)
    return f"---\n{head}---\n\n" + "\n\n".join(parts) + "\n"


def _data(about: dict[str, Any]) -> str:
    """What is known of the data; takes it out of `about`."""
    data, corpus, tokenizer = (about.pop(key, None) for key in ("data", "corpus", "tokenizer"))
    if data is None:
        return "Not recorded."
    text = f"Trained on the split `{about.get('split', 'train')}` of `{data}`"
    text += f" (prepared store `{corpus}`)" if corpus else ""
    return text + (f", cut into words by the tokeniser `{tokenizer}`." if tokenizer else ".")
