"""Model folders for publishing: settings as JSON, weights as safetensors, and a model card.

    model = StaticModel.train(corpus)
    model.save("my-model")
    model.push("someone/my-model")
    StaticModel.open("someone/my-model")    # or StaticModel.open("my-model"), the folder

All models derive from `Pretrained` and implement `write` and `read`. Nothing is unpickled: only files
matching PATTERNS are downloaded. huggingface_hub reads HF_ENDPOINT, HF_TOKEN and HF_HOME.
"""

from __future__ import annotations

import json
import os
import re
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Self, TypeVar

import numpy as np
import yaml
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from citerec.base.errors import InputError, error_text
from citerec.base.files import atomic_folder, files_below

T = TypeVar("T")

PATTERNS = ("*.json", "*.safetensors", "*.txt")
"""Files to download."""
DENSE = "dense"
"""Subfolder of a ranker with the model of its dense retriever."""
CARD, ABOUT, WEIGHTS = "README.md", "about.json", "model.safetensors"
LOAD_ERRORS = (InputError, LookupError, TypeError, AttributeError, ValueError, ArithmeticError, RuntimeError)
"""Errors raised by damaged or inconsistent models."""
HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+")

LICENCE = """\
The code is under the MIT licence. The weights were learned from the data of the recipe, and the training may
have started from published word vectors or a transformer: check their licences before redistributing them."""


def find_saved(path: str | Path, name: str) -> Path:
    """The folder `name` in the output folder of a training run; `path` itself if it is not there."""
    return folder if (folder := Path(path) / name).is_dir() else Path(path)


class Pretrained:
    """A model that is saved as a folder, pushed to the hub, and opened from a folder or a hub id."""

    settings_file: ClassVar[str]
    """file that identifies folders of this kind"""
    folder: ClassVar[str]
    """name of the model's folder in the output of its training"""
    title: ClassVar[str]
    """name of the kind of model in messages and on the card"""
    description: ClassVar[str]
    """description for the card"""
    usage: ClassVar[str]
    """options of citerec evaluate for the card; {place} is replaced by the folder name or hub id"""
    tags: ClassVar[tuple[str, ...]] = ()
    about: Mapping[str, Any]
    """provenance as plain values: data, settings, seed, validation results (`val/...`)"""

    def write(self, folder: Path) -> None:
        """Write settings and weights, without `about`, into a new folder."""
        raise NotImplementedError

    @classmethod
    def read(cls, folder: Path, about: dict[str, Any]) -> Self:
        """Load a model written by `write`, in evaluation mode; InputError if it is damaged."""
        raise NotImplementedError

    def with_encoder(self, encoder: Any, about: dict[str, Any]) -> Self:
        """Return this model with a network trained further, and its provenance."""
        return replace(self, encoder=encoder, about=about)  # type: ignore[type-var]  # kinds are dataclasses

    def save(self, folder: str | Path, licence: str | None = None, place: str = "") -> Path:
        """Save the model to a folder, atomically.

        licence: of the weights, as a lower-case SPDX id.
        place: location of the model for the card. InputError if the folder contains anything else.
        """
        folder = Path(folder)
        other = folder.exists() and not (folder / self.settings_file).is_file()
        if other and (not folder.is_dir() or any(folder.iterdir())):
            raise InputError(f"{folder}: contains something other than a {self.title}; name another folder")
        with atomic_folder(folder) as part:
            self.write(part)
            write_json(part / ABOUT, dict(self.about))
            for path in files_below(part):  # safetensors writes files that only the owner may read
                path.chmod((part / ABOUT).stat().st_mode)
            text = model_card(self, place or folder.name, licence)
            (part / CARD).write_text(text, encoding="utf-8")
        return folder

    def push(self, repo_id: str, licence: str | None = None, private: bool = False) -> str:
        """Upload the model to the hub as OWNER/NAME, creating the repository if needed; returns its URL.

        InputError in one line if that fails: no token, no permission, no network.
        """
        from huggingface_hub import HfApi

        check_hub_id(repo_id)
        api = HfApi()
        with tempfile.TemporaryDirectory() as parent:
            folder = self.save(Path(parent) / "model", licence, repo_id)
            try:
                api.create_repo(repo_id, private=private, exist_ok=True)
                api.upload_folder(repo_id=repo_id, folder_path=folder, commit_message=f"Save {self.title}")
            except Exception as error:  # the network raises nearly anything
                raise InputError(
                    f"{repo_id}: cannot upload to {api.endpoint} ({error_text(error)}); "
                    "check that HF_TOKEN has write access"
                ) from None
        return f"{api.endpoint}/{repo_id}"

    @classmethod
    def open(cls, place: str | Path) -> Self:
        """Open a model by its folder, the output folder of its training, or its hub id OWNER/NAME (downloaded
        once).

        InputError in one line if it is missing, damaged or another kind of model.
        """
        folder = find_model(find_saved(place, cls.folder), cls.settings_file, cls.title)
        about = read_json(folder / ABOUT, dict) if (folder / ABOUT).is_file() else {}
        return cls.read(folder, about)


def write_json(path: Path, content: object) -> None:
    """Write plain values as JSON."""
    path.write_text(json.dumps(content, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


def read_json(path: Path, kind: type[T]) -> T:
    """Read a dictionary or list; InputError if the file is missing, damaged or anything else."""
    with _reading(path):
        content = json.loads(path.read_text("utf-8"))
    if not isinstance(content, kind):
        raise InputError(f"{path}: must contain a {kind.__name__}, not a {type(content).__name__}")
    return content


def write_weights(path: Path, weights: Mapping[str, NDArray[Any]]) -> None:
    """Write arrays by name as safetensors. Raises OSError if the disk is full or fails."""
    try:
        save_file({name: np.ascontiguousarray(value) for name, value in weights.items()}, path)
    except SafetensorError as error:
        if (number := re.search(r"\(os error (\d+)\)", str(error))) is None:
            raise
        raise OSError(int(number[1]), os.strerror(int(number[1])), str(path)) from None


def read_weights(path: Path) -> dict[str, NDArray[Any]]:
    """Read arrays by name; InputError if the file is missing or damaged."""
    with _reading(path):
        return load_file(path)


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError:
        raise InputError(f"{path}: this model file is missing") from None
    except (OSError, ValueError, RecursionError, SafetensorError) as error:
        raise InputError(f"{path}: damaged ({error_text(error)})") from None


@contextmanager
def check_consistent(place: str | Path) -> Iterator[None]:
    """Turn errors from missing or inconsistent parts of a saved model into an InputError in one line."""
    try:
        yield
    except LOAD_ERRORS as error:
        raise InputError(
            f"{place}: parts of the model are missing or inconsistent ({error_text(error)})"
        ) from None


def find_model(place: str | Path, settings_file: str, title: str) -> Path:
    """The folder of a model with this settings file; downloaded if `place` is a hub id and not a folder."""
    folder = Path(place)
    if not folder.exists() and is_hub_id(place):
        folder = download_model(str(place), settings_file, title)
    if not folder.is_dir():
        raise InputError(f"{place}: no such {title} folder")
    if not (folder / settings_file).is_file():
        raise InputError(f"{place}: not a saved {title} (no {settings_file})")
    return folder


def check_hub_id(repo_id: str) -> None:
    """Raise InputError unless a repository of the hub can have this name."""
    if not HUB_ID.fullmatch(repo_id):
        raise InputError(f"{repo_id}: not a hub id; write OWNER/NAME")


def is_hub_id(place: str | Path) -> bool:
    """True if `place` looks like a hub id, and not like a training output or a file in a folder that exists.

    >>> is_hub_id("someone/hatten"), is_hub_id("outputs/static"), is_hub_id("one/a.pt"), is_hub_id("a/b/c")
    (True, False, False, False)
    """
    path = Path(place)
    local = path.suffix in (".ckpt", ".pt") or path.parent.is_dir() or path.parent.name == "outputs"
    return HUB_ID.fullmatch(str(place)) is not None and not local


def download_model(repo_id: str, settings_file: str, title: str) -> Path:
    """Download a model from the hub and return its folder; InputError in one line if that fails."""
    from huggingface_hub import constants, snapshot_download

    try:
        snapshot_download(repo_id, allow_patterns=[f"{DENSE}/{pattern}" for pattern in PATTERNS])
        return Path(snapshot_download(repo_id, allow_patterns=list(PATTERNS), ignore_patterns=["*/*"]))
    except Exception as error:  # the network raises nearly anything
        raise InputError(
            f"{repo_id}: no such folder, and no {title} with this id can be downloaded "
            f"({error_text(error)}); put {settings_file} and the other files of "
            f"{constants.ENDPOINT}/{repo_id} into the folder {repo_id}"
        ) from None


def model_card(model: Pretrained, place: str, licence: str | None) -> str:
    """The card of a model: front matter for the hub, then Markdown."""
    about = dict(model.about)
    measures = [key for key in about if key.startswith("val/")]
    measured = {key.removeprefix("val/"): about.pop(key) for key in measures}
    front: dict[str, Any] = {"tags": ["citation-recommendation", *model.tags]}
    if licence:
        front["license"] = licence
    usage = model.usage.format(place=place, folder=model.folder)
    command = f"```sh\nciterec evaluate {usage} data=custom data.dir=DIR\n```"
    parts = [f"# {place.rpartition('/')[2]}", model.description, command]
    if measured:
        rows = "\n".join(f"| {name} | {value:.4g} |" for name, value in measured.items())
        parts += [
            "## Validation",
            "Measured by `citerec train` on a sample of validation queries, after these weights' round:",
            f"| measure | value |\n| --- | ---: |\n{rows}",
        ]
    if about:
        recipe = yaml.safe_dump(about, sort_keys=False, allow_unicode=True).strip()
        parts += [
            "## Recipe",
            f"The settings of `citerec train` and its inputs:\n\n```yaml\n{recipe}\n```",
        ]
    stated = f"The weights are published under `{licence}`.\n\n" if licence else ""
    parts += ["## Licence", stated + LICENCE]
    head = yaml.safe_dump(front, sort_keys=False)
    return f"---\n{head}---\n\n" + "\n\n".join(parts) + "\n"
