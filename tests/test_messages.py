"""Error messages and help of the commands: one line that names the option, before any slow import."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hydra import compose, initialize_config_dir
from hydra.core.hydra_config import HydraConfig
from hydra.errors import MissingConfigException

from citerec.base.errors import error_line

ROOT = Path(__file__).parents[1]
CONF = ROOT / "conf"
Run = Callable[..., tuple[int, str, str]]


@pytest.mark.parametrize(
    ("command", "line"),
    [
        ("train.py model.round=3", "model.round: there is no such option; did you mean model.rounds?"),
        ("train.py lr=3", "lr: there is no such option; did you mean model.optimizer.lr?"),
        ("train.py verbose=true", "verbose: there is no such option; choose from "),  # not hydra.verbose
        ("train.py experimnt=paper", "experimnt: there is no such option; did you mean experiment?"),
        ("train.py model=haten", "model=haten: there is no such choice; did you mean model=hatten?"),
        ("train.py trainer=tpus", "trainer=tpus: choose cpu or gpu"),
        (
            "evaluate.py retriever=bm25 index.kind=ivf",
            "index.kind=ivf: retriever=bm25 has no index; leave it out",
        ),
        ("evaluate.py index=ivf", "index=ivf: index has several options, such as index.kind=..."),
        ("evaluate.py benchmark=drafts drafts=nope", "drafts=nope: no such folder; "),
        ("evaluate.py retriever=ranker ranker=nope", "ranker=nope: no such file or folder"),
        ("evaluate.py retriever=bm25 encoder=specter", "encoder=specter: retriever=bm25 has no encoder; "),
        ("evaluate.py ranked_dir=x benchmark=scidocs", "ranked_dir=x: benchmark=scidocs has no ranked_dir; "),
        (
            "evaluate.py retriever=run",
            "retriever.files is required, as in retriever.files=[val/",
        ),
        (
            "data build output=out",
            "source is required, as in source=[papers.jsonl.gz,texts/]: file",
        ),
        ("data build source= output=out", "source is required, as in source=[papers.jsonl.gz,texts/]: file"),
        ("data build source=a output=", "output is required, as in output=outputs/corpus: new folder"),
        ("data download names=", "names is required, as in names=acl200: what to download"),
        ("data build source=a output=b train_years=2018", "splitting: the years of train must be two, "),
        ("data build source=a output=b traim=0.9", "traim: there is no such option; did you mean train?"),
        ("train.py output_dir=\udce9", "output_dir=?: the name is not UTF-8; rename the file or folder"),
        ("build l source=b\udce9.bib", "source=b?.bib: the name is not UTF-8; rename"),
        (
            "data inspect data=papers",
            "data.papers is required, as in data.papers=papers.jsonl.gz: papers",
        ),
    ],
)
def test_invalid_options_raise_one_line_that_names_the_option(script: Run, command: str, line: str) -> None:
    code, _, errors = script(*command.split())
    assert code == 2 and errors.startswith(f"error: {line}") and errors.count("\n") == 1


@pytest.mark.slow
def test_a_sweep_says_which_retrievers_do_not_use_an_option(script: Run, tiny_source: Path) -> None:
    data = f"data=custom data.dir={tiny_source} split=val output_dir={tiny_source.parent / 'out'}"
    code, out, _ = script(*f"evaluate.py -m retriever=bm25,popularity index.kind=ivf {data}".split())
    said = [line.partition("=ivf: ")[2] for line in out.splitlines() if "index.kind=ivf: " in line]
    unused = "has no index, so this is not used"
    assert (code, said) == (0, [f"retriever=bm25 {unused}", f"retriever=popularity {unused}"])


@pytest.mark.parametrize("name", ["joblib", "submitit_slurm"])
def test_a_launcher_that_is_not_installed_names_its_extra(name: str) -> None:
    extra = name.partition("_")[0]
    error = MissingConfigException("", f"hydra/launcher/{name}", ["basic"])
    assert (
        error_line(error) == f"hydra/launcher={name} needs the extra {extra}: pip install 'citerec[{extra}]'"
    )


MISSING = "data.dir is required, as in data.dir=my_corpus: folder"


WRONG = {
    "train.py": MISSING,
    "evaluate.py": MISSING,
    "evaluate.py data.dir=. retriever=static checkpoint=nope": "checkpoint=nope: no such file or folder",
    "train.py data.dir=. model=ranker checkpoint=nope": "checkpoint=nope: no such file or folder",
    "train.py data.dir=nowhere": "nowhere: no such folder",
    "train.py data.dir=nowhere resume=maybe": "resume=maybe: must be true or false",
}


@pytest.mark.slow
def test_wrong_options_are_reported_before_slow_imports() -> None:
    code = "import runpy, sys\n"
    for command in WRONG:
        name, *arguments = command.removeprefix("-m ").split()
        runner = "run_path" if name.endswith(".py") else "run_module"
        code += f"sys.argv = {[name, *arguments, 'data=custom']}\n"
        code += f"try: runpy.{runner}('{name}', run_name='__main__')\n"
        code += "except SystemExit: print(sorted({'torch', 'transformers', 'faiss'} & set(sys.modules)))\n"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.stdout == "[]\n" * len(WRONG)
    for line, expected in zip(done.stderr.splitlines(), WRONG.values(), strict=True):
        assert line.startswith(f"error: {expected}")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "read", "others", "option"),
    [
        (
            "train",
            ["model=hatten", "trainer=null"],
            ["encoder", "retriever", "benchmark"],
            r"model\.rounds=\d+ +number of",
        ),
        (
            "train model=scibert_reranker",
            ["encoder=scibert", "retriever=bm25"],
            ["benchmark"],
            r"model\.epochs=1 +pass",
        ),
        (
            "evaluate",
            ["benchmark=prefetch", "retriever=hatten"],
            ["model", "trainer"],
            r"data\.papers=2000 +papers to",
        ),
    ],
)
def test_help_lists_the_groups_that_the_command_reads(
    command: str, read: list[str], others: list[str], option: str
) -> None:
    with initialize_config_dir(str(CONF), version_base="1.3"):
        config = compose(command.split()[0], command.split()[1:], return_hydra_config=True)
        HydraConfig.instance().set_config(config)
        text = str(config.hydra.help.template)
    groups = text.partition("\nOptions")[0]
    assert all(f"\n  {name} " in groups for name in read)
    assert not any(f"\n  {name}=" in groups for name in [*others, "schema", "hydra"])
    assert re.search(rf"\n +{option}", text)
