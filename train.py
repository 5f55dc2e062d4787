"""Train a model: `python train.py model=hatten` or `citerec train model=hatten`.

Options are in conf/train.yaml and its config groups. In Python, models have `train(corpus, settings, run)`.
"""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf

from citerec.base.configuration import read_settings, refuse_missing
from citerec.base.errors import InputError, one_line_errors
from citerec.base.files import expand_user
from citerec.base.help import CONF
from citerec.hatten import settings as hatten
from citerec.rerank import settings as rerank
from citerec.retrieval.settings import measure_name
from citerec.training.settings import RunSettings, refuse_absent

WORDS, SEARCH = {"pretrained": "embeddings"}, {name: name for name in ("retriever", "index_dir")}
MODELS: dict[type, tuple[str, dict[str, str]]] = {
    hatten.HAttenSettings: ("citerec.hatten.model:HAtten", WORDS),
    hatten.StaticSettings: ("citerec.hatten.static.model:StaticModel", WORDS),
    hatten.NNSelectSettings: ("citerec.hatten.nnselect.model:NNSelect", WORDS),
    hatten.BiEncoderSettings: ("citerec.hatten.biencoder.model:BiEncoder", {"pretrained": "encoder"}),
    rerank.RerankerSettings: (
        "citerec.rerank.cross_encoder.reranker:Reranker",
        {"pretrained": "encoder", **SEARCH, "candidates_dir": "candidates_dir"},
    ),
    rerank.RankerSettings: ("citerec.rerank.ranker.model:RankingModel", SEARCH),
}
"""The model of each type of settings, and the arguments of its `train`, each with the option that sets it."""


@one_line_errors
@hydra.main(version_base="1.3", config_path=str(CONF), config_name="train")
def main(config: DictConfig) -> float | None:
    refuse_missing(config)
    refuse_absent(config)
    job = HydraConfig.get()
    chosen = job.runtime.choices
    experiment, model = chosen["experiment"], chosen["model"]
    if experiment == "paper" and not (CONF / "recipe" / f"{chosen['recipe@_global_']}.yaml").is_file():
        raise InputError(f"experiment={experiment}: the paper has no model={model}")
    # Resolve the folder: the configured value may contain the time, and all jobs of a multirun share it.
    folder = Path(job.runtime.output_dir)
    config.output_dir = str(folder.relative_to(Path.cwd()) if folder.is_relative_to(Path.cwd()) else folder)
    metrics = json.loads((train(config).parent / "metrics.json").read_text("utf-8"))
    monitor = OmegaConf.select(config, "model.validation.monitor", default="")
    return metrics.get(f"val/{measure_name(monitor)}")  # what a sweeper optimises


def train(config: DictConfig) -> Path:
    """Train as configured (conf/train.yaml); returns the folder of the best weights."""
    run_settings = read_settings(
        RunSettings, {field.name: config[field.name] for field in fields(RunSettings)}
    )
    settings, trainer = build(config.model), build(config.trainer)
    place, arguments = MODELS[type(settings)]
    source = str(OmegaConf.select(config, "data.dir", default="") or "")
    # This check may download word vectors, so missing data must be reported first.
    if isinstance(settings, hatten.EncoderTraining) and expand_user(source).is_dir():
        settings.check_vectors(build(config[arguments["pretrained"]]))
    corpus = build(config.data)  # fails before the slow imports
    model: Any = resolve_name(place)
    from citerec.training.loop import TrainingRun  # Lightning

    run = TrainingRun(
        config.output_dir,
        run_settings.seed,
        run_settings.resume,
        trainer,
        list(instantiate(config.logger).values()),
        list(instantiate(config.callbacks or {}).values()),
        run_settings.checkpoint_minutes,
    )
    others = {argument: build(config[option]) for argument, option in arguments.items()}
    model.train(corpus, settings, run, **others)
    return run.path / str(model.folder)


def build(node: Any) -> Any:
    """Build what a part of the configuration describes: a `_target_`, settings or a plain value."""
    if not isinstance(node, DictConfig):
        return node
    return instantiate(node) if "_target_" in node else OmegaConf.to_object(node)


if __name__ == "__main__":
    main()
