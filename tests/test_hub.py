"""Models saved as folders and on a hub, with a minimal local server as the hub."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from huggingface_hub import constants

from citerec.base.errors import InputError
from citerec.evaluation.publish import PublishSettings, open_trained, publish
from citerec.hatten.documents import Vocabulary
from citerec.hatten.model import HAtten
from citerec.hatten.static.model import StaticModel
from citerec.hatten.static.network import StaticEncoder
from citerec.rerank.cross_encoder.network import CrossEncoder
from citerec.rerank.cross_encoder.reranker import Reranker
from citerec.rerank.ranker.confidence import Confidence
from citerec.rerank.ranker.linear import LinearModel
from citerec.rerank.ranker.model import RankingModel
from citerec.rerank.settings import ScoringSettings
from citerec.tests.conftest import COMMIT, Done, Hub
from citerec.tests.hatten.made import random_model
from citerec.training.hub import Pretrained

ABOUT = {"data": "demo", "corpus": "0123", "tokenizer": "default", "seed": 3, "model": {"rounds": 2}}
ABOUT |= {"round": 2, "val/recall@10": 0.1 + 0.2}


Make = Callable[[], Pretrained]


def static(words: list[str], kind: str) -> StaticModel:
    vectors = np.random.default_rng(0).standard_normal((len(words), 8)).astype(np.float16).astype(np.float32)
    if kind == "int8":
        vectors[:] = 1
    vocabulary = Vocabulary(words)
    return StaticModel(StaticEncoder(vectors, vocabulary).to_numpy(), vocabulary, 64, dict(ABOUT), kind)


@pytest.fixture(params=["hatten", "static", "ranker", "reranker"])
def make(request: pytest.FixtureRequest) -> Make:
    def made() -> Pretrained:
        words = ["deep", "nets", "targetcit", "naïve", "{"]
        if request.param == "hatten":
            return random_model(words, dict(ABOUT))
        if request.param == "static":
            return static(["<pad>", *words], "float16")
        if request.param == "ranker":
            weights, deviations = {"bm25": 1 / 3, "known": -2.5}, {"bm25": 4.2, "known": 0.1}
            confidence = Confidence({"scale": 0.7, "none": -2.0})
            return RankingModel(LinearModel(weights, deviations), confidence, dict(ABOUT))
        model = CrossEncoder.open(request.getfixturevalue("tiny_reranker"))
        model.about = dict(ABOUT)
        return model

    return made


def same(a: Any, b: Any) -> bool:
    if isinstance(a, RankingModel):
        return a == b
    of_a, of_b = (
        model.encoder.weights()
        if isinstance(model, StaticModel)
        else getattr(model, "encoder", model).state_dict()
        for model in (a, b)
    )
    equal = of_a.keys() == of_b.keys() and all(np.array_equal(of_a[name], of_b[name]) for name in of_a)
    return equal and a.about == b.about and type(a) is type(b)


def files_of(folder: Path) -> list[Path]:
    """The files of a model and of the modules inside it."""
    return [path for path in folder.rglob("*") if path.is_file()]


def test_saving_and_loading_round_trips_without_pickles(make: Make, tmp_path: Path) -> None:
    model = make()
    folder = model.save(tmp_path / "model")
    assert same(type(model).open(folder), model)
    assert same(open_trained(folder), model)
    files = files_of(folder)
    assert {path.suffix for path in files} <= {".json", ".safetensors", ".md"}
    assert len({path.stat().st_mode for path in files}) == 1
    before = {path: path.read_bytes() for path in files}
    model.save(folder)  # the same model, the same files
    assert {path: path.read_bytes() for path in files_of(folder)} == before
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.tex").write_text("a year of work")
    with pytest.raises(InputError, match=r"other: contains something other than a .*; name another folder"):
        model.save(tmp_path / "other")
    assert (tmp_path / "other" / "thesis.tex").exists()


def test_the_card_has_data_recipe_measures_and_licence(make: Make, tmp_path: Path) -> None:
    folder = make().save(tmp_path / "model", "cc-by-4.0", "someone/model")
    text = (folder / "README.md").read_text("utf-8")
    _, front, body = text.split("---\n", 2)
    assert yaml.safe_load(front)["license"] == "cc-by-4.0"
    assert "citation-recommendation" in yaml.safe_load(front)["tags"]
    for part in ("=someone/model", "data: demo", "0123", "| recall@10 | 0.3 |", "`cc-by-4.0`"):
        assert part in body
    assert yaml.safe_load(body.partition("```yaml\n")[2].partition("```")[0])["model"] == {"rounds": 2}


def test_nothing_is_published_that_is_no_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    model, out = str(static(["<pad>", "nets"], "float32").save(tmp_path / "mine")), tmp_path / "out"
    (tmp_path / "metrics.json").write_text("[1]")
    with pytest.raises(InputError, match=r"metrics\.json: neither a model saved by citerec train nor its"):
        publish(PublishSettings(model=str(tmp_path / "metrics.json"), output=str(out)))
    with pytest.raises(InputError, match=r"^mine: not a hub id; write OWNER/NAME$"):
        publish(PublishSettings(model=model, output=str(out), repo="mine"))
    assert not out.exists()
    publish(PublishSettings(model="~/mine", output="~/out"))
    assert (out / "README.md").is_file()


def test_pushing_and_loading_from_the_hub_round_trips(
    make: Make, hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = make()
    assert model.push("someone/model") == f"{hub.url}/someone/model"
    assert f"/someone/model/resolve/{COMMIT}/README.md" in hub.pages
    hub.put(f"someone/model/resolve/{COMMIT}/pytorch_model.bin", b"\x80 a pickle")
    assert same(type(model).open("someone/model"), model)
    assert hub.fetched() and {Path(name).suffix for name in hub.fetched()} <= {".json", ".safetensors"}
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert same(type(model).open("someone/model"), model)  # as it was downloaded


def test_small_models_and_rerankers_load_by_hub_id(hub: Hub, tiny_reranker: Path) -> None:
    small = static(["<pad>", "a", "b"], "int8")
    small.push("someone/static")
    assert (
        same(StaticModel.open("someone/static"), small) and StaticModel.open("someone/static").dtype == "int8"
    )
    CrossEncoder.open(tiny_reranker).push("someone/reranker")
    scoring = ScoringSettings("float32")
    theirs, ours = (Reranker.open(place, scoring) for place in ("someone/reranker", tiny_reranker))
    assert theirs.fingerprint == ours.fingerprint


def test_missing_permission_or_network_raises_one_line(
    make: Make, hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = make()
    monkeypatch.setenv("HF_TOKEN", "hf_read")
    with pytest.raises(InputError, match=r"^someone/model: cannot upload to http://127\S+ \(.*HF_TOKEN"):
        model.push("someone/model")
    with pytest.raises(InputError, match="not a hub id; write OWNER/NAME"):
        model.push("model")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(InputError) as raised:
        type(model).open("someone/model")
    line = str(raised.value)
    assert f"{model.settings_file} and the other files of {hub.url}/someone/model" in line
    assert "\n" not in line and line.endswith("into the folder someone/model")
    with pytest.raises(InputError, match=r"no such .* folder"):
        type(model).open("/nowhere/model")


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("hatten.json", None, r"not a saved HAtten model \(no hatten\.json\)"),
        ("words.json", None, r"words\.json: this model file is missing"),
        ("model.safetensors", None, r"model\.safetensors: this model file is missing"),
        ("model.safetensors", b"\x08\0\0\0\0\0\0\0{{{{", r"model\.safetensors: damaged"),
        ("hatten.json", b"[]", r"hatten\.json: must contain a dict, not a list"),
        ("hatten.json", b'{"format": "hatten-2"}', "parts of the model are missing or inconsistent"),
        ("hatten.json", b'{"format": "hatten-2", "config": {"heads": 0}}', "missing or inconsistent|heads"),
        ("words.json", b'["deep"]', "missing or inconsistent"),
        ("words.json", b"[1", r"words\.json: damaged"),
        ("about.json", b"\xff", r"about\.json: damaged"),
    ],
)
def test_a_damaged_folder_raises_one_line(
    tmp_path: Path, file: str, content: bytes | None, message: str
) -> None:
    folder = random_model(["deep", "nets", "targetcit"]).save(tmp_path / "model")
    (folder / file).unlink()
    if content is not None:
        (folder / file).write_bytes(content)
    with pytest.raises(InputError, match=message) as raised:
        HAtten.open(folder)
    assert "\n" not in str(raised.value) and str(folder) in str(raised.value)


def test_the_command_publishes_the_output_of_a_training(
    hub: Hub, tmp_path: Path, script: Callable[..., Done]
) -> None:
    model = random_model(["deep", "nets"], dict(ABOUT))
    model.save(tmp_path / "run" / "hatten")
    command = ["model", "publish", str(tmp_path / "run")]
    done = script(*command, f"output={tmp_path / 'folder'}", "repo=someone/model")
    assert done.code == 0, done.err
    assert done.out == f"{tmp_path / 'folder'}\n{hub.url}/someone/model\n"
    assert same(HAtten.open(tmp_path / "folder"), model)
    assert same(HAtten.open("someone/model"), model)
    failed = script("model", "publish", str(tmp_path), f"output={tmp_path / 'none'}")
    assert failed.code == 2 and failed.err.startswith("error: ") and failed.err.count("\n") == 1
    assert not (tmp_path / "none").exists()
