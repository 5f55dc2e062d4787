"""Commands whose disk fails, or that are killed, at each change of a file (shim.c): the old state or the new.

    python -m citerec.tests.faults.writes [PLACES] [COMMAND ...]

PLACES: how many changes of files of each command fail or are where it is killed, besides the last three; if
it is left out, all do both.

Each try is a forked process, without the seconds that a new one needs to import all.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import pickle
import shutil
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable, Sequence
from contextlib import chdir, redirect_stdout
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

from matplotlib.figure import Figure

from citerec import recommend
from citerec.base.errors import exit_on_input_error

SHIM = Path(__file__).parent / "shim.c"
EXAMPLES = Path(__file__).parents[2] / "examples"
BUILTIN = Path(__file__).parents[2] / "library" / "builtin" / "static"
QUESTION = "Adam [CITE] is an optimiser"
NEW = """@article{spade, title = {Gardening with spades}, author = {Lee, Ann}, year = {2020},
  abstract = {Spades dig.}}\n"""
DRAFT = "\\title{T}\nAdam is an optimiser \\cite{?}. Trees \\cite{?}.\n\\bibliography{refs}\n"
MODEL = "model=static"
"""The model without the encoder, whose loading would take most of the time."""
CHECKPOINT, TRAINING = "a training's checkpoint", "train"
TINY = {
    "model": "hatten",
    "data": "demo",
    "model.encoder.dim": 16,
    "model.encoder.heads": 2,
    "model.encoder.hidden": 16,
    "model.encoder.max_tokens": 16,
    "model.precision": "float32",
    "model.rounds": 2,
    "model.batch.queries": 4,
    "model.batch.steps_per_round": 2,
    "model.mining.depth": 20,
    "model.validation.queries": 10,
    "model.validation.depth": 20,
    "data.papers": 100,
    "data.contexts": 100,
    "data.cache_dir": "cache",
    "embeddings.cache_dir": "cache",
    "embeddings.dim": 16,
    "embeddings.epochs": 1,
    "embeddings.min_count": 1,
    "embeddings.workers": 1,
    "output_dir": "out",
    "resume": True,
}
Work = Callable[[], object]


def make_papers() -> None:
    lines = (EXAMPLES / "library.bib").read_text("utf-8")
    Path("papers.bib").write_text(lines[: lines.index("\n@", len(lines) // 5) + 1], "utf-8")
    Path("new.bib").write_text(NEW, "utf-8")
    Path("more.jsonl").write_text(
        json.dumps({"title": "Gardening with spades", "doi": "10.1/2"}) + "\n", encoding="utf-8"
    )
    Path("draft.tex").write_text(DRAFT, encoding="utf-8")
    Path("refs.bib").write_text(NEW, "utf-8")


def command(*arguments: str) -> Work:
    def work() -> None:
        sys.argv = ["citerec", *arguments]
        recommend.main()

    return work


def built(*options: str) -> Work:
    def work() -> None:
        make_papers()
        command("build", "library=mine", "source=[papers.bib,new.bib]", MODEL, *options)()

    return work


def changed() -> None:
    built()()
    Path("new.bib").write_text(NEW.replace("spades", "rakes"), "utf-8")


def enrichable() -> None:
    from citerec.tests.library.test_enrich import BIB

    Path("papers.bib").write_text(BIB, "utf-8")
    command("build", "library=mine", "source=papers.bib", "model=bm25")()


def enrich() -> None:
    """Ask a service of the process that forks."""
    command("enrich", "mine", service().option, "services=[openalex]", "yes=true")()


@cache
def service() -> Any:
    from citerec.tests.library.test_enrich import Services

    os.environ["NO_PROXY"] = "127.0.0.1"
    return Services()


def library() -> object:
    """The papers of the library and what it answers; None if there is none."""
    from citerec.library.ask.recommender import Recommender

    if not Path("mine/library.json").exists():
        return None
    recommender = Recommender.open("mine")
    recommender.library.verify()
    result = [(item.id, item.score) for item in recommender.recommend(QUESTION)]
    return result, recommender.search("spades rakes graphs")


def files(folder: str) -> Callable[[], object]:
    """The contents of the files in a folder."""

    def state() -> object:
        result = {str(file): file.read_bytes() for file in Path(folder).rglob("[!.]*") if file.is_file()}
        return result or None

    return state


def save_model(results: str) -> Work:
    def work() -> None:
        from citerec.hatten.static.model import StaticModel

        StaticModel.open(BUILTIN).save("model", results)

    return work


def save_checkpoint(value: int) -> Work:
    def work() -> None:
        import torch

        from citerec.training.checkpoint import save_torch

        save_torch({"step": value, "weights": torch.full((300, 300), float(value))}, Path("last.ckpt"))

    return work


def checkpoint() -> object:
    import torch

    content = torch.load("last.ckpt", weights_only=True)
    return content["step"], float(content["weights"].sum())


def train() -> None:
    import citerec.evaluation.settings  # noqa: F401  (schemas of the configuration)
    from citerec import train
    from citerec.base.configuration import prepare_hydra
    from citerec.tests.runs import train_config

    prepare_hydra()

    def blank(_: Figure, file: str, **options: object) -> None:
        Path(file).write_bytes(b"\x89PNG")  # drawing would take most of the time

    with patch.object(Figure, "savefig", blank):
        train.train(train_config(TINY))


def prepared() -> None:
    """Prepare the corpus, and train word vectors."""
    train()
    shutil.rmtree("out")


def trained() -> object:
    """The weights of a finished training; what an unfinished one has left can be read."""
    from citerec.hatten.model import HAtten
    from citerec.training.checkpoint import read_torch

    out = Path("out")
    if (out / "hatten").exists():
        HAtten.open(out / "hatten")
    if not (out / "last.ckpt").exists() or read_torch(out / "last.ckpt")["epoch"] + 1 < TINY["model.rounds"]:
        return None
    return {file.name: file.read_bytes() for file in (out / "hatten").glob("*.safetensors")}


@dataclass(frozen=True)
class Change:
    """What is there before, the change, and what a user sees of it: the state."""

    before: Work
    change: Work
    state: Callable[[], object]


CHANGES = {
    "build": Change(
        make_papers, command("build", "library=mine", "source=papers.bib", MODEL, "overwrite=true"), library
    ),
    "add": Change(built(), command("add", "mine", "source=more.jsonl"), library),
    "remove": Change(built(), command("remove", "mine", "id=[spade]"), library),
    "update": Change(changed, command("update", "mine"), library),
    "draft fill=": Change(built(), command("draft", "mine", "tex=draft.tex", "fill=filled"), files("filled")),
    "model.save": Change(save_model("Before"), save_model("After"), files("model")),
    "enrich": Change(enrichable, enrich, library),
    TRAINING: Change(prepared, train, trained),
    CHECKPOINT: Change(save_checkpoint(1), save_checkpoint(2), checkpoint),
}


class Tries:
    """Tries of one change in folders below `place`, which the shim watches."""

    def __init__(self, place: Path, change: Change) -> None:
        self.place, self.change = place, change
        self.base, self.folder = place / "base", place / "try"
        self.warm_up()
        self.base.mkdir()
        code, text, _ = self.run(change.before, self.base)
        assert code == 0, text
        self.old = self.state(self.base)
        self.copy()
        code, text, self.count = self.run(change.change, self.folder, 1 << 40)
        assert code == 0 and self.count, text
        self.new = self.state(self.folder)
        assert self.new != self.old

    def warm_up(self) -> None:
        """Do all here, so that forks find modules imported, compiled code loaded and lists of words read."""
        with TemporaryDirectory() as folder, chdir(folder), redirect_stdout(sys.stderr):
            for work in (self.change.before, self.change.change, self.change.state):
                work()

    def copy(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
        shutil.copytree(self.base, self.folder)

    def run(self, work: Work, folder: Path, at: int = 0, error: int = 0) -> tuple[int, str, Any]:
        """Return exit code, output and result of work in a forked process, or the number of its changes.

        at: the change that fails with `error`, or is where the process is killed.
        """
        output, result = self.place / "output", self.place / "result"
        result.unlink(missing_ok=True)
        if (child := os.fork()) == 0:
            code = 99
            signal.alarm(300)
            try:
                os.chdir(folder)
                for stream in (1, 2):
                    os.dup2(os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND), stream)
                shim = ctypes.CDLL(None)
                if at:
                    shim.fault_arm(str(folder).encode(), ctypes.c_long(at), error)
                try:
                    with exit_on_input_error():
                        results: object = work()
                    code = 0
                except SystemExit as end:
                    code, results = int(end.code or 0), None
                if at:
                    results = int(shim.fault_count())
                    shim.fault_arm(b"", ctypes.c_long(0), 0)
                result.write_bytes(pickle.dumps(results))
                sys.stdout.flush()
            except BaseException:
                traceback.print_exc()
            finally:
                sys.stderr.flush()
                os._exit(code)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        results = pickle.loads(result.read_bytes()) if result.exists() else None
        return code, output.read_text("utf-8", "replace"), results

    def state(self, folder: Path) -> object:
        code, text, result = self.run(self.change.state, folder)
        assert code == 0, text
        return result

    def try_at(self, number: int, error: int) -> str:
        """Let a change fail, or be killed; then do it again. Returns what was there between."""
        self.copy()
        code, text, _ = self.run(self.change.change, self.folder, number, error)
        assert code in (0, 2 if error else -signal.SIGKILL), f"exit {code}: {text}"
        if error:
            assert "Traceback" not in text, text
            assert code == 0 or text.count("error: ") == 1, text
        result = self.state(self.folder)
        assert result in (self.old, self.new), "neither the old state nor the new one"
        assert code != 0 or result == self.new, "no error, and nothing done"
        if result == self.old:
            again, text, _ = self.run(self.change.change, self.folder)
            assert again == 0, f"the repeated command fails: {text}"
            assert self.state(self.folder) == self.new, "the repeated command leaves another state"
        return "old" if result == self.old else "new"


def try_change(name: str, places: int) -> dict[str, Any]:
    """Try some changes of files, or all (0)."""
    done: dict[str, Any] = {"changes of files": 0, "tries": 0, "old": 0, "new": 0, "problems": []}
    with TemporaryDirectory() as place:
        tries = Tries(Path(place).resolve(), CHANGES[name])
        done["changes of files"] = tries.count
        step = max(1, tries.count // places) if places else 1
        last = range(max(1, tries.count - 2), tries.count + 1)
        for number in sorted({*range(1, tries.count + 1, step), *last}):
            failing = (errno.ENOSPC, errno.EIO)[number // 2 % 2], 0
            for error in failing[number % 2 :][:1] if places else failing:
                done["tries"] += 1
                try:
                    done[tries.try_at(number, error)] += 1
                except AssertionError as problem:
                    what = os.strerror(error) if error else "killed"
                    done["problems"].append(f"{name}, change {number}, {what}: {problem}"[-3000:])
    return done


def run_all(places: int, names: Sequence[str] = ()) -> dict[str, dict[str, Any]]:
    """Try changes in a new process with the shim, which is compiled first."""
    with TemporaryDirectory() as folder:
        shim = Path(folder) / "shim.so"
        subprocess.run(["cc", "-O1", "-shared", "-fPIC", "-o", shim, SHIM, "-ldl"], check=True)
        environment = {**os.environ, "LD_PRELOAD": str(shim), "OMP_NUM_THREADS": "1"}
        arguments = [
            sys.executable,
            "-m",
            __spec__.name if __name__ == "__main__" else __name__,
            "here",
            str(places),
        ]
        done = subprocess.run(
            [*arguments, *names], env=environment, stdout=subprocess.PIPE, text=True, check=True
        )
    return dict(json.loads(done.stdout))


if __name__ == "__main__":
    here = sys.argv[1:2] == ["here"]
    asked, *names = sys.argv[1 + here :] or ["0"]  # commands change sys.argv
    if here:
        print(json.dumps({name: try_change(name, int(asked)) for name in names or CHANGES}))
    else:
        for name, done in run_all(int(asked), names).items():
            print(
                f"| {name} | "
                + " | ".join(f"{done[key]:,}" for key in ("changes of files", "tries", "old", "new")),
                "|",
            )
            for problem in done["problems"]:
                print(problem, file=sys.stderr)
