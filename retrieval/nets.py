"""What torch's nets have in common: as functions that give arrays, their weights, their precision."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from datasets.errors import InputError
from retrieval.arrays import Floats, array_hash


def as_numpy(forward: Callable[[Any], Tensor]) -> Callable[[Any], Floats]:
    """The function without a gradient, giving float32 arrays."""

    def given(documents: Any) -> Floats:
        with torch.inference_mode():
            return forward(documents).float().cpu().numpy()

    return given


def weights_to_numpy(model: nn.Module) -> dict[str, NDArray[Any]]:
    """The weights by name."""
    return {name: value.detach().cpu().numpy() for name, value in model.state_dict().items()}


def weights_to_torch(weights: Mapping[str, NDArray[Any]]) -> dict[str, Tensor]:
    """Weights that are arrays as tensors."""
    return {name: torch.from_numpy(value) for name, value in weights.items()}


@contextmanager
def eval_mode(model: nn.Module) -> Iterator[None]:
    """Evaluation mode (no dropout) inside, the earlier mode afterwards."""
    training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(training)


def weights_hash(model: nn.Module) -> str:
    """A hash of the names, types and values of all weights."""
    parts = {}
    for name, value in model.state_dict().items():
        whole = value.detach().cpu().contiguous()
        parts[f"{name} {value.dtype} {tuple(value.shape)}"] = whole.view(torch.uint8).numpy()
    return array_hash(parts)


def precision(name: str) -> torch.dtype:
    """float32, bfloat16, or `auto`: bfloat16 where the processor multiplies it faster than float32."""
    known = {"float32": torch.float32, "bfloat16": torch.bfloat16}
    if name in known:
        return known[name]
    if name != "auto":
        raise InputError(f"precision {name}: choose one of auto, {', '.join(known)}")
    if torch.cuda.is_available():
        return torch.bfloat16 if torch.cuda.is_bf16_supported() else torch.float32
    # torch may have been told to leave AVX-512 alone (ATEN_CPU_CAPABILITY).
    fast = torch.cpu._is_avx512_bf16_supported() and "AVX512" in torch.backends.cpu.get_cpu_capability()
    return torch.bfloat16 if fast else torch.float32
