"""Options `key=value`: parsing, help and errors; the command line of recommend.py."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass, fields
from importlib.util import find_spec
from pathlib import Path
from typing import ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from citerec import recommend
from citerec.base.arguments import options_help, read_arguments, run_command
from citerec.base.errors import InputError
from citerec.base.settings import Settings, field_notes, setting
from citerec.library.settings import EnrichSettings
from citerec.tests.conftest import Run

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True, kw_only=True)
class Ask(Settings):
    """Ask."""

    positional: ClassVar[str] = "text"
    library: str
    """folder (e.g. mine)"""
    text: str = ""
    """the passage"""
    k: int = setting(10, least=1)
    """papers"""
    weight: float = 0.5
    """share"""
    year: int | None = None
    """of the paper"""
    explain: bool = False
    """with features"""
    only: tuple[str, ...] = ()
    """ids"""
    format: str = setting("table", choices=("table", "json"))


@dataclass(frozen=True, kw_only=True)
class Fetch(Settings):
    """Fetch."""

    positional: ClassVar[str] = "names"
    names: tuple[str, ...] = setting((), choices=("acl200", "refseer", "arxiv"))
    """what to fetch"""
    cache: str = ".cache"
    """folder"""


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["k=3", "weight=1", "year=1999"], {"k": 3, "weight": 1.0, "year": 1999}),
        (["year=null", "--explain", "--k=2"], {"k": 2, "explain": True}),
        (["explain=True"], {"explain": True}),
        (["only=[a, 'b',\"c,d\"]"], {"only": ("a", "'b'", "c,d")}),
        (["only=a,b"], {"only": ("a,b",)}),
        (['only=["a\nb"]'], {"only": ("a\nb",)}),
        (["only=[]"], {}),
        (["text=[x=1]: ${a} ???"], {"text": "[x=1]: ${a} ???"}),
        (["Adam [CITE] has rate=0.1"], {"text": "Adam [CITE] has rate=0.1"}),
        (["alpha=0.1 as in [CITE]"], {"text": "alpha=0.1 as in [CITE]"}),
        (["k=1 neighbours suffice [CITE]"], {"text": "k=1 neighbours suffice [CITE]"}),
        (["explain=no more [CITE]", "k=3"], {"text": "explain=no more [CITE]", "k": 3}),
        (["--k=3 and more"], {"text": "--k=3 and more"}),
        (["text=k=3 [CITE]\nnext"], {"text": "k=3 [CITE]\nnext"}),
    ],
)
def test_arguments_are_parsed_into_settings(arguments: list[str], expected: dict[str, object]) -> None:
    assert read_arguments(Ask, ["library=mine", *arguments]) == Ask(library="mine", **expected)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        (["acl200"], ("acl200",)),
        (["acl200", "cache=x", "refseer"], ("acl200", "refseer")),
        (["[acl200,refseer]", "arxiv"], ("acl200", "refseer", "arxiv")),
        (["names=acl200", "arxiv"], ("acl200", "arxiv")),
    ],
)
def test_several_arguments_without_a_key_make_a_list(arguments: list[str], names: tuple[str, ...]) -> None:
    assert read_arguments(Fetch, arguments).names == names


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_a_text_is_kept_verbatim(text: str) -> None:
    assert read_arguments(Ask, ["library=mine", f"text={text}"]).text == text


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ([], "library is required, as in library=mine: folder"),
        (["libary=x"], "libary: there is no such option; did you mean library?"),
        (["zzz=x"], "zzz: there is no such option; choose from library, text, k, weight, year, "),
        (["library=x", "k=ten"], "k=ten: must be a whole number"),
        (["library=x", "k=0"], "k=0: must be at least 1"),
        (["library=x", "year=new"], "year=new: must be a whole number or null"),
        (["library=x", "only=[a\nb]"], "only=[a\nb]: put what has a line break in quotes"),
        (["library=x", "explain=perhaps"], "explain=perhaps: must be true or false"),
        (["library=x", "format=xml"], "format=xml: choose table or json"),
        (["library=x", "library=y"], "library: given twice"),
        (["library=x", "one", "two"], "'two': put a text of several words in quotes"),
        (["library=x", "text=one", "text=two"], "text: given twice"),
        (["--library"], "--library: write library=..."),
        (["-library", "x"], "-library: write library=x"),
        (["library=x", "weight=nan"], "weight=nan: must not be below 0"),
    ],
)
def test_errors_are_one_line(arguments: list[str], line: str) -> None:
    with pytest.raises(InputError) as error:
        read_arguments(Ask, arguments)
    assert str(error.value).startswith(line)


def test_options_are_named_as_they_are_written() -> None:
    with pytest.raises(InputError, match=r"choose from library, .*, from, "):
        read_arguments(EnrichSettings, ["zzz=x"])
    with pytest.raises(InputError, match=r"'yes': write options as key=value; did you mean yes=\.\.\.\?"):
        read_arguments(EnrichSettings, ["yes"])


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["acl200", "xml"], "names=xml: choose acl200, refseer or arxiv"),
        (["names=acl200", "names=arxiv"], "names: given twice"),
        (["cache=a", "cache=b"], "cache: given twice"),
    ],
)
def test_errors_of_lists_are_one_line(arguments: list[str], line: str) -> None:
    with pytest.raises(InputError, match=f"^{line}$"):
        read_arguments(Fetch, arguments)


def test_a_command_calls_its_function_or_prints_help(capsys: pytest.CaptureFixture[str]) -> None:
    called: list[Fetch] = []
    run_command("data fetch", Fetch, called.append, ["arxiv", "--help"], more=lambda: "\narxiv  large")
    assert not called
    printed = capsys.readouterr().out
    assert printed.startswith("citerec data fetch: Fetch.") and printed.endswith("\n\narxiv  large\n")
    run_command("data fetch", Fetch, called.append, ["arxiv"])
    assert called == [Fetch(names=("arxiv",))] and not capsys.readouterr().out
    run_command("data fetch", Fetch, lambda settings: f"{settings.cache}: done", ["arxiv"])
    assert capsys.readouterr().out == ".cache: done\n"


@pytest.mark.parametrize("name", recommend.COMMANDS)
def test_every_command_and_option_has_help(name: str) -> None:
    kind, place = recommend.COMMANDS[name]
    assert kind.__doc__ and not kind.__doc__.startswith(f"{kind.__name__}(")
    assert field_notes(kind).keys() >= {part.name for part in fields(kind)}
    assert find_spec(place.partition(":")[0])


def test_help_describes_each_option() -> None:
    text = options_help(Ask)
    assert "\n  text=                           the passage; `text=` may be omitted" in text
    assert "library=...  " in text and "table | json" in text


@pytest.mark.parametrize(
    ("arguments", "code", "out", "err"),
    [
        (["--help"], 0, "citerec COMMAND key=value", ""),
        (["biuld"], 2, "", "error: citerec biuld: no such command; did you mean citerec build?"),
        (["info"], 2, "", "error: library is required, as in citerec info my-library"),
        (["info", "my-library"], 2, "", "error: my-library: no such library"),
        (["build", "--help"], 0, "citerec build: ", ""),
    ],
)
def test_the_command_line(arguments: list[str], code: int, out: str, err: str, command: Run) -> None:
    ended, printed, said = command(*arguments)
    assert ended == code and printed.startswith(out) and said.startswith(err)
    assert said.count("\n") == (code != 0)


def test_options_are_parsed_before_slow_imports() -> None:
    code = (
        "import sys\nfrom citerec import recommend\nsys.argv = ['recommend.py', 'build', 'library=x']\n"
        "try: recommend.main()\n"
        "except SystemExit: print(sorted({'torch', 'faiss', 'numpy'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.stdout == "[]\n" and done.stderr.startswith(
        "error: source is required, as in source=papers.bib"
    )
