"""Helpers for torch modules: devices and transfers, NumPy conversion, evaluation mode, weight hashes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from citerec.base.errors import InputError
from citerec.retrieval.arrays import Floats, array_hash

T = TypeVar("T")

MOST_TOKENS = 1 << 16
"""Tokens to compute at a time, however large the GPU is."""
ALIGNMENT = 16
"""Bytes to which the arrays of one transfer are aligned."""


def find_device(accelerator: str = "auto") -> torch.device:
    """The device of `cpu`, `gpu` or `auto`, which is a GPU if there is one.

    On a GPU, matrix products of float32 are computed in TF32 from then on (retrieval.indexes.gpu excepted),
    and attention is not computed by cuDNN, which torch prefers on an H100: batches of texts differ in shape,
    and cuDNN builds a plan for each new one, which takes the host tens of milliseconds or more.
    """
    if accelerator == "cpu" or (accelerator == "auto" and not torch.cuda.is_available()):
        return torch.device("cpu")
    torch.set_float32_matmul_precision("high")
    torch.backends.cuda.enable_cudnn_sdp(False)
    return torch.device("cuda")


def precision(name: str, device: torch.device | str = "cpu") -> torch.dtype:
    """The dtype of float32, bfloat16, or `auto`: bfloat16 if the device multiplies it faster."""
    kinds = {"float32": torch.float32, "bfloat16": torch.bfloat16}
    if name in kinds:
        return kinds[name]
    if name != "auto":
        raise InputError(f"precision {name}: choose auto, float32 or bfloat16")
    if torch.device(device).type == "cuda":
        fast = torch.cuda.is_bf16_supported(including_emulation=False)
    else:  # AVX-512 may be disabled in torch (ATEN_CPU_CAPABILITY)
        fast = torch.cpu._is_avx512_bf16_supported() and "AVX512" in torch.backends.cpu.get_cpu_capability()
    return torch.bfloat16 if fast else torch.float32


def computing_in(dtype: torch.dtype, weights: Tensor) -> AbstractContextManager[Any]:
    """Multiply matrices in a dtype, if it is not that of the weights."""
    return nullcontext() if dtype == weights.dtype else torch.autocast(weights.device.type, dtype)


def fitting_tokens(device: torch.device | str, bytes_each: float, on_cpu: int) -> int:
    """Return the number of tokens to compute at a time: on a GPU, those that a quarter of its memory holds.

    bytes_each: memory of the activations of a token. At least 1,024 and at most MOST_TOKENS.
    """
    device = torch.device(device)
    if device.type == "cpu":
        return on_cpu
    memory = torch.cuda.get_device_properties(device).total_memory
    return max(1024, min(MOST_TOKENS, int(memory / 4 / bytes_each) // 1024 * 1024))


def transformer_bytes(model: Any, training: bool) -> float:
    """The memory of the activations of a token: 34 bytes per layer and hidden unit in 16 bits (Korthikanti et
    al. 2022, without attention weights), half as many again for layer norms in 32; one layer for inference.
    """
    config = model.config
    return 51.0 * config.hidden_size * (config.num_hidden_layers if training else 1)


def map_arrays(function: Callable[[Any], Any], value: T) -> T:
    """Replace each array or tensor in a value, also in its dataclasses, lists and tuples, by function(array).

    >>> map_arrays(len, [np.zeros(3), (np.zeros(2), None)])
    [3, (2, None)]
    """
    if isinstance(value, np.ndarray | Tensor):
        return function(value)
    if is_dataclass(value) and not isinstance(value, type):
        changes = {part.name: map_arrays(function, getattr(value, part.name)) for part in fields(value)}
        return replace(value, **changes)
    if isinstance(value, list | tuple):
        return type(value)([map_arrays(function, part) for part in value])
    return value


def to_device(value: T, device: torch.device | str) -> T:
    """A value with its arrays as tensors on a device, moved there in one transfer that is not waited for."""
    device = torch.device(device)
    if device.type == "cpu":
        return map_arrays(lambda array: torch.as_tensor(array), value)
    buffer, unpack = pack(value)
    return unpack(buffer.to(device, non_blocking=True))


def pack(value: T) -> tuple[Tensor, Callable[[Tensor], T]]:
    """The bytes of all arrays in a value, and a function that makes the value of tensors from such bytes."""
    arrays: list[NDArray[Any]] = []
    map_arrays(lambda array: arrays.append(np.asarray(array, order="C")), value)
    ends = np.cumsum([0] + [-(-array.nbytes // ALIGNMENT) * ALIGNMENT for array in arrays]).tolist()
    buffer = torch.empty(ends[-1], dtype=torch.uint8, pin_memory=torch.cuda.is_available())
    host = buffer.numpy()
    for start, array in zip(ends[:-1], arrays, strict=True):
        host[start : start + array.nbytes] = array.reshape(-1).view(np.uint8)

    def unpack(moved: Tensor) -> T:
        parts = iter([
            moved[start : start + array.nbytes].view(torch.from_numpy(array).dtype).view(array.shape)
            for start, array in zip(ends[:-1], arrays, strict=True)
        ])  # fmt: skip
        return map_arrays(lambda _: next(parts), value)

    return buffer, unpack


def one_behind(results: Iterable[T]) -> Iterator[T]:
    """Yield the results, each after the next one has begun, so that a device does not wait for its reader.

    >>> list(one_behind(iter("abc")))
    ['a', 'b', 'c']
    """
    waiting: list[T] = []
    for result in results:
        waiting.append(result)
        if len(waiting) > 1:
            yield waiting.pop(0)
    yield from waiting


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
