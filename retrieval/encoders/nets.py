"""Helpers for torch modules: NumPy conversion, evaluation mode, weight hashes, precision."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from citerec.base.errors import InputError
from citerec.retrieval.arrays import Floats, array_hash


def as_numpy(forward: Callable[[Any], Tensor]) -> Callable[[Any], Floats]:
    """Wrap a function to run without gradients and return float32 arrays."""

    def numpy_forward(documents: Any) -> Floats:
        with torch.inference_mode():
            return forward(documents).float().cpu().numpy()

    return numpy_forward


def weights_to_numpy(model: nn.Module) -> dict[str, NDArray[Any]]:
    """The state dict of a model as arrays."""
    return {name: value.detach().cpu().numpy() for name, value in model.state_dict().items()}


def weights_to_torch(weights: Mapping[str, NDArray[Any]]) -> dict[str, Tensor]:
    """Convert arrays to a state dict."""
    return {name: torch.from_numpy(value) for name, value in weights.items()}


@contextmanager
def eval_mode(model: nn.Module) -> Iterator[None]:
    """Switch to evaluation mode (no dropout) and restore the earlier mode afterwards."""
    training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(training)


def weights_hash(model: nn.Module) -> str:
    """Hash of the names, types and values of all weights."""
    parts = {}
    for name, value in model.state_dict().items():
        content = value.detach().cpu().contiguous()
        parts[f"{name} {value.dtype} {tuple(value.shape)}"] = content.view(torch.uint8).numpy()
    return array_hash(parts)


def precision(name: str) -> torch.dtype:
    """The dtype of float32, bfloat16, or `auto`: bfloat16 if the processor multiplies it faster."""
    known = {"float32": torch.float32, "bfloat16": torch.bfloat16}
    if name in known:
        return known[name]
    if name != "auto":
        raise InputError(f"precision {name}: choose auto, float32 or bfloat16")
    if torch.cuda.is_available():
        return torch.bfloat16 if torch.cuda.is_bf16_supported() else torch.float32
    # AVX-512 may be disabled in torch (ATEN_CPU_CAPABILITY).
    fast = torch.cpu._is_avx512_bf16_supported() and "AVX512" in torch.backends.cpu.get_cpu_capability()
    return torch.bfloat16 if fast else torch.float32
