"""Learning rates over the steps of a run.

From a part of the configuration to the dataclass that says what may stand there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from types import NoneType, UnionType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from datasets.errors import InputError

T = TypeVar("T")

KINDS: dict[Any, str] = {
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    str: "a word",
    tuple: "a list of whole numbers",
}


def options(kind: type[T], given: Mapping[Any, Any], where: str) -> T:
    """A dataclass of the `given` values; InputError names what is unknown, of another type or below 0.

    where: the part's name in the configuration, for the messages.

    >>> from hatten.mining import MiningConfig
    >>> options(MiningConfig, {"depth": 50}, "model.mining").depth
    50
    """
    assert is_dataclass(kind)
    types = get_type_hints(kind)
    values: dict[str, Any] = {}
    for name, value in given.items():
        if name not in types:
            raise InputError(f"{where}.{name}: there is no such option; there are: {', '.join(types)}")
        hint, may_be_none = _without_none(types[name])
        if value is None and may_be_none:
            values[name] = None
            continue
        expected = get_origin(hint) or hint
        if not _fits(value, hint, expected):
            raise InputError(f"{where}.{name}={value}: must be {KINDS[expected]}")
        if expected in (int, float) and not value >= 0:
            raise InputError(f"{where}.{name}={value}: must not be below 0")
        values[name] = expected(value)
    return kind(**values)


def own_options(kind: type[T], model: Mapping[Any, Any]) -> T:
    """A dataclass of those of a model's options that it has fields for."""
    assert is_dataclass(kind)
    return options(kind, {field.name: model[field.name] for field in fields(kind)}, "model")


def _without_none(hint: Any) -> tuple[Any, bool]:
    """`int`, True of `int | None`; `int`, False of `int`."""
    if get_origin(hint) is not UnionType:
        return hint, False
    (kind,) = [part for part in get_args(hint) if part is not NoneType]
    return kind, True


def _fits(value: Any, hint: Any, expected: type) -> bool:
    if expected is tuple:
        return isinstance(value, list | tuple) and all(type(item) is get_args(hint)[0] for item in value)
    return type(value) is expected or (expected is float and type(value) is int)


def at_least_1(config: object, where: str, *names: str) -> None:
    """InputError when one of these options of a part of the configuration is 0."""
    for name in names:
        if getattr(config, name) < 1:
            raise InputError(f"{where}.{name}={getattr(config, name)}: must be at least 1")


@dataclass(frozen=True)
class RateConfig:
    """How the learning rate rises and falls."""

    warmup: int = 0
    """steps in which the rate rises from 0"""
    decay: str = "none"
    """none, or linear: down to 0 at the last step"""

    def __post_init__(self) -> None:
        if self.decay not in ("none", "linear"):
            raise InputError(f"model.schedule.decay={self.decay}: choose none or linear")

    def rate(self, step: int, total: int) -> float:
        """The rate at a step (from 0) of `total`, as a multiple of the optimiser's.

        >>> [RateConfig(2, "linear").rate(step, 4) for step in range(4)]
        [0.5, 0.75, 0.5, 0.25]
        """
        rising = min(1.0, (step + 1) / self.warmup) if self.warmup else 1.0
        if self.decay == "none":
            return rising
        return rising * max(0.0, 1.0 - step / total)
