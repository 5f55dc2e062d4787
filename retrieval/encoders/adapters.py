"""Bottleneck adapters in AdapterHub's format, such as SPECTER2's: small networks in the layers of a BERT."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor, nn

from citerec.base.errors import InputError, error_text

if TYPE_CHECKING:
    from transformers import PreTrainedModel

SETTINGS = "adapter_config.json"
WEIGHTS = ("adapter.safetensors", "pytorch_adapter.bin")

PFEIFFER: dict[str, Any] = {
    **{"output_adapter": True, "original_ln_before": True, "original_ln_after": True},
    **{"residual_before_ln": True, "non_linearity": "relu", "scaling": 1.0, "inv_adapter": None},
    **dict.fromkeys(("mh_adapter", "cross_adapter", "is_parallel", "ln_before", "ln_after"), False),
    **{"use_gating": False, "phm_layer": False, "leave_out": []},
}
"""The only supported settings of an adapter, also the defaults of settings that a file omits."""

_PUBLISHED = re.compile(
    r"(?:\w+\.)?encoder\.layer\.(\d+)\.output\.adapters\..+"
    r"\.adapter_(?:(?P<down>down)\.0|up)\.(?P<kind>weight|bias)"
)
_OWN = re.compile(r"encoder\.layer\.\d+\.output\.adapter_(?:down|up)\.(?:weight|bias)")


class AdaptedOutput(nn.Module):
    """The output module of a BERT layer with an adapter; the module's own weights keep their names."""

    dense: nn.Module
    dropout: nn.Module
    LayerNorm: nn.Module

    def __init__(self, output: Any, dim: int, width: int) -> None:
        """output: the original module (dense, dropout, LayerNorm). width: size of the bottleneck."""
        super().__init__()
        self.dense, self.dropout, self.LayerNorm = output.dense, output.dropout, output.LayerNorm
        self.adapter_down, self.adapter_up = nn.Linear(dim, width), nn.Linear(width, dim)

    def forward(self, hidden_states: Tensor, input_tensor: Tensor) -> Tensor:
        """[..., 4 D], [..., D] -> [..., D]"""
        hidden = self.dropout(self.dense(hidden_states))
        down = self.adapter_down(self.LayerNorm(hidden + input_tensor))
        adapted: Tensor = self.LayerNorm(self.adapter_up(torch.relu(down)) + hidden + input_tensor)
        return adapted


def is_adapted(model: nn.Module) -> bool:
    """True if the model has an adapter."""
    return any(isinstance(part, AdaptedOutput) for part in model.modules())


def check_files(folder: Path, kind: str, needed: Mapping[str, Sequence[str]]) -> None:
    """InputError naming what a folder lacks; needed: part -> files, one of which must exist."""
    if not folder.is_dir():
        raise InputError(f"{folder}: no such {kind} folder")
    for part, names in needed.items():
        if not any((folder / name).is_file() for name in names):
            raise InputError(f"{folder}: the {kind} has no {part}; expected {' or '.join(names)} there")


def check_adapter(folder: Path) -> None:
    """InputError naming what an adapter's folder lacks."""
    check_files(folder, "adapter", {"configuration": (SETTINGS,), "weights": WEIGHTS})


def add_adapter(model: PreTrainedModel, folder: Path) -> None:
    """Add an adapter in AdapterHub's format to a model, replacing any that it has.

    Raises InputError if the files are damaged, or for another kind of adapter or another model.
    """
    check_adapter(folder)
    _check_settings(folder / SETTINGS, model.config.hidden_size)
    path = next(folder / name for name in WEIGHTS if (folder / name).is_file())
    weights: dict[str, Tensor] = {}
    for key, value in _read(path).items():
        if (match := _PUBLISHED.fullmatch(key)) is None:
            raise InputError(
                f"{path}: {key} is not a weight of an adapter after a layer's feed-forward network"
            )
        side = "down" if match["down"] else "up"
        weights[f"encoder.layer.{match[1]}.output.adapter_{side}.{match['kind']}"] = value
    _attach(model, weights, path)


def add_own_adapter(model: PreTrainedModel, unexpected: list[str], folder: Path) -> None:
    """Restore the adapter that a model was saved with, if any, from its weights in a folder.

    unexpected: names of saved weights that the model without an adapter lacks.
    """
    if any(_OWN.fullmatch(key) for key in unexpected):
        path = folder / "model.safetensors"
        weights = {key: value for key, value in _read(path).items() if _OWN.fullmatch(key)}
        _attach(model, weights, path)


def _attach(model: PreTrainedModel, weights: Mapping[str, Tensor], path: Path) -> None:
    dim = int(model.config.hidden_size)
    try:
        width = next(len(value) for key, value in weights.items() if key.endswith("adapter_down.bias"))
        for layer in cast(Any, model).encoder.layer:
            layer.output = AdaptedOutput(layer.output, dim, width).train(layer.output.training)
        keys = model.load_state_dict(weights, strict=False)
        lacking = [key for key in keys.missing_keys if _OWN.fullmatch(key)]
        if wrong := [*lacking, *keys.unexpected_keys]:
            raise ValueError(f"{wrong[0]} is in only one of them")
    except (AttributeError, StopIteration, RuntimeError, ValueError) as error:
        raise InputError(f"{path}: the adapter belongs to another model ({error_text(error)})") from None


def _check_settings(path: Path, dim: int) -> None:
    try:
        saved = json.loads(path.read_text("utf-8"))
        settings, size = saved["config"], saved.get("hidden_size", dim)
        settings = {} if settings in ("pfeiffer", "seq_bn") else dict(settings)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{path}: not an adapter configuration ({error})") from None
    if size != dim:
        raise InputError(f"{path}: the adapter needs a model of hidden size {size}, this one has {dim}")
    for key, wanted in PFEIFFER.items():
        value = settings.get(key, wanted)
        if value != wanted or isinstance(value, bool) != isinstance(wanted, bool):
            raise InputError(
                f"{path}: {key} is {json.dumps(value)}, must be {json.dumps(wanted)}; only the adapter "
                "configuration pfeiffer (seq_bn) is supported"
            )


def _read(path: Path) -> dict[str, Tensor]:
    """Read tensors by name, without unpickling code; InputError if the file is damaged."""
    from safetensors.torch import load_file

    try:
        if path.suffix == ".safetensors":
            return load_file(path)
        return dict(torch.load(path, map_location="cpu", weights_only=True))
    except Exception as error:  # damaged files raise nearly anything
        raise InputError(f"{path}: cannot read the weights ({error_text(error)})") from None
