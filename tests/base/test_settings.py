"""Typed settings: validation on creation, merging from YAML, one-line errors for invalid values."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hydra import compose, initialize_config_dir
from hydra.core.config_store import ConfigStore

from citerec.base.configuration import prepare_hydra, read_settings
from citerec.base.errors import InputError, error_line
from citerec.base.settings import SCHEMAS, Settings, register, setting


@dataclass(frozen=True)
class Part(Settings):
    where: ClassVar[str] = "model.part"
    name: str = setting("one", choices=("one", "two", "three"))
    margin: float = 0.5
    depth: int = setting(3, least=1)
    share: float = setting(0.1, below=1)
    weight: float = setting(0.5, above=0, most=1)
    levels: tuple[int, ...] = (1, 2)
    limit: int | None = None
    on: bool = False


@dataclass(frozen=True)
class Whole(Settings):
    where: ClassVar[str] = "model"
    part: Part = field(default_factory=Part)
    rounds: int = 2
    extra: dict[str, Any] = field(default_factory=dict)
    shares: dict[str, float] = field(default_factory=dict)


def test_given_values_become_the_dataclass() -> None:
    whole = read_settings(Whole, {"part": {"margin": 1, "levels": [4], "limit": 5}, "extra": {"lr": 0.1}})
    assert whole == Whole(Part(margin=1.0, levels=(4,), limit=5), extra={"lr": 0.1})
    assert type(whole.part.margin) is float


@dataclass(frozen=True, kw_only=True)
class Files(Settings):
    source: tuple[str, ...]
    only: tuple[str, ...] | None = None


@pytest.mark.parametrize("value", ["a.bib", Path("a.bib"), ["a.bib"], [Path("a.bib")], ("a.bib",)])
def test_one_text_or_path_is_a_list_of_it(value: Any) -> None:
    make: Any = Files
    assert make(source=value) == Files(source=("a.bib",)) and make(source="").source == ()
    assert make(source=(), only="a").only == ("a",)
    with pytest.raises(InputError, match="source=5: must be a list"):
        make(source=5)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"colour": 1}, "model.part.colour: there is no such option; choose from name, margin, depth"),
        ({"margins": 1}, r"model.part.margins: there is no such option; did you mean model.part.margin\?"),
        ({"margin": "wide"}, "model.part.margin=wide: must be a number"),
        ({"margin": True}, "model.part.margin=True: must be a number"),
        ({"margin": None}, "model.part.margin=None: must be a number"),
        ({"margin": float("nan")}, "model.part.margin=nan: must not be below 0"),
        ({"margin": -1}, "model.part.margin=-1.0: must not be below 0"),
        ({"depth": 0}, "model.part.depth=0: must be at least 1"),
        ({"depth": 1.5}, "model.part.depth=1.5: must be a whole number"),
        ({"share": 1}, "model.part.share=1.0: must be at least 0 and below 1"),
        ({"weight": 0}, "model.part.weight=0.0: must be above 0 and at most 1"),
        ({"name": "four"}, "model.part.name=four: choose one, two or three"),
        ({"levels": [1.5]}, "model.part.levels=1.5: must be a list of whole numbers"),
        ({"levels": 3}, "model.part.levels=3: must be a list of whole numbers"),
        ({"limit": "none"}, "model.part.limit=none: must be a whole number or null"),
        ({"on": "some"}, "model.part.on=some: must be true or false"),
    ],
)
def test_an_invalid_value_is_one_line(values: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_settings(Whole, {"part": values})
    with pytest.raises(InputError, match=message):
        read_settings(Part, values)


@pytest.fixture
def registered() -> Iterator[None]:
    store = ConfigStore.instance()
    before = {**store.repo, "schema": dict(store.repo.get("schema", {}))}
    register("test_whole", Whole)
    register("test_target", Part, target="citerec.base.settings.Settings")
    prepare_hydra()
    yield
    del SCHEMAS["test_whole"], SCHEMAS["test_target"]
    store.repo = before


@pytest.mark.parametrize(
    ("override", "line"),
    [
        ("model.part.depth=deep", "model.part.depth=deep: must be a whole number"),
        ("model.part.deepth=3", "model.part.deepth: there is no such option; did you mean model.part.depth?"),
        ("model.round=3", "model.round: there is no such option; did you mean model.rounds?"),
        ("+model.round=3", "model.round: there is no such option; did you mean model.rounds?"),
        ("rounds=4", "rounds: there is no such option; did you mean model.rounds?"),
        ("model.extra.lr=3", "model.extra.lr: there is no such option; +model.extra.lr=... adds it"),
    ],
)
def test_hydra_validates_against_the_schema(
    registered: None, tmp_path: Path, override: str, line: str
) -> None:
    defaults = "defaults: [/schema/test_whole@model, /schema/test_target@part, _self_]"
    (tmp_path / "main.yaml").write_text(f"{defaults}\nmodel: {{rounds: 3}}")
    with initialize_config_dir(str(tmp_path), version_base="1.3"):
        options = ["model.part.levels=[3]", "+model.extra.lr=1", "model.shares={one: 2}", "part.depth=4"]
        config = compose("main", options)
        assert read_settings(Whole, config.model) == Whole(Part(levels=(3,)), 3, {"lr": 1}, {"one": 2.0})
        assert config.part._target_ == "citerec.base.settings.Settings" and config.part.depth == 4
        with pytest.raises(Exception) as raised:
            read_settings(Whole, compose("main", [override]).model)
    assert error_line(raised.value) == line
