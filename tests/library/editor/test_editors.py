"""The language server in real clients: Neovim by typed keys, Emacs, and the client library of VS Code."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from citerec.library.commands.change import build
from citerec.library.settings import BuildSettings

EXAMPLES = Path(__file__).parents[3] / "examples" / "library.bib"
VSCODE = Path(__file__).parents[3] / "editors" / "vscode"
NEOVIM = shutil.which("nvim")
EMACS = shutil.which("emacs")
WAIT = 120
TEXT = r"""\documentclass{article}
\begin{document}
Cumulated gain of graded relevance judgements has a discount for lower positions
\bibliography{refs}
\end{document}
"""


class Neovim:
    """A headless Neovim with the server, and a client that sends keys and asks for values."""

    def __init__(self, folder: Path) -> None:
        self.address, self.folder = str(folder / "socket"), folder
        settings = Path(__file__).with_name("neovim.lua")
        command = [
            str(NEOVIM),
            "--headless",
            "-n",
            "-i",
            "NONE",
            "-u",
            str(settings),
            "--listen",
            self.address,
        ]
        environment = {
            **os.environ,
            "CITEREC": json.dumps(server_command(folder)),
            "XDG_STATE_HOME": str(folder),
        }
        self.process = subprocess.Popen([*command, "paper.tex"], cwd=folder, env=environment)

    def _remote(self, *arguments: str) -> str:
        command = [str(NEOVIM), "--server", self.address, *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=WAIT)
        return done.stdout.strip() or done.stderr.strip()  # 0.7 prints values to stderr

    def type(self, keys: str) -> None:
        self._remote("--remote-send", keys)

    def value(self, expression: str) -> Any:
        return json.loads(self._remote("--remote-expr", f"json_encode({expression})") or "null")

    def wait(self, expression: str, done: Callable[[Any], object]) -> Any:
        """Return the value of an expression when it is what is waited for."""
        ends, value = time.monotonic() + WAIT, None
        while time.monotonic() < ends:
            try:
                if done(value := self.value(expression)):
                    return value
            except json.JSONDecodeError:  # it starts
                pass
            time.sleep(0.1)
        raise AssertionError(f"{expression}: {value}")


def server_command(folder: Path) -> list[str]:
    return [sys.executable, "-m", "citerec", "lsp", f"library={folder.parent / 'library'}"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A draft with a .bib file, beside a library."""
    build(BuildSettings(library=str(tmp_path / "library"), source=(str(EXAMPLES),)))
    place = tmp_path / "draft"
    place.mkdir()
    (place / "paper.tex").write_text(TEXT)
    (place / "refs.bib").write_text("@misc{knuth1984, title={The TeXbook}, year=1984}\n")
    return place


@pytest.fixture
def neovim(folder: Path) -> Iterator[Neovim]:
    editor = Neovim(folder)
    try:
        editor.wait("luaeval('Ready()')", lambda ready: ready == 1)
        yield editor
    finally:
        editor.process.kill()
        editor.process.wait()


@pytest.mark.slow
@pytest.mark.skipif(NEOVIM is None, reason="Neovim is not installed (apt-get install neovim)")
def test_completion_diagnostics_and_code_actions_in_neovim(neovim: Neovim) -> None:
    neovim.type("/positions<CR>A \\cite{<C-x><C-o>")
    neovim.wait("pumvisible()", lambda visible: visible == 1)
    words = neovim.wait("map(complete_info().items, 'v:val.word')", lambda words: len(words) >= 20)
    assert words[0] == "jarvelin2002dcg}" and words[-1] == "knuth1984}"  # in the server's order, closed
    shown = neovim.wait("map(complete_info().items, 'v:val.abbr')", lambda shown: len(shown) >= 20)
    assert shown[0].startswith("Järvelin and Kekäläinen 2002")
    neovim.type("<C-y>.<Esc>")
    line = neovim.wait("getline(3)", lambda line: "}." in line)
    assert line.endswith("positions \\cite{jarvelin2002dcg}.")
    has_entry = "empty(filter(getbufline('refs.bib', 1, '$'), 'v:val =~ \"{jarvelin2002dcg,\"'))"
    if neovim.value("has('nvim-0.11')"):  # accepting it wrote the entry
        neovim.wait(has_entry, lambda empty: empty == 0)
    else:
        expected = "jarvelin2002dcg is in the library, but not in refs.bib"
        neovim.wait("luaeval('Messages()')", lambda found: found == [expected])
        neovim.type("/jarvelin<CR>:lua vim.lsp.buf.code_action()<CR>")
        neovim.wait(has_entry, lambda empty: empty == 0)
    neovim.type("<Esc>:wall<CR>")
    neovim.wait("luaeval('Messages()')", lambda found: found == [])
    assert "{jarvelin2002dcg," in (neovim.folder / "refs.bib").read_text()
    neovim.type("/jarvelin<CR>:lua vim.lsp.buf.definition()<CR>")
    neovim.wait("expand('%:t')", lambda name: name == "refs.bib")


@pytest.mark.slow
@pytest.mark.skipif(
    EMACS is None, reason="Emacs with Eglot is not installed (apt-get install emacs-nox elpa-eglot)"
)
def test_completion_code_actions_and_hover_in_emacs(folder: Path) -> None:
    command = [str(EMACS), "--batch", "-q", "-l", str(Path(__file__).with_name("emacs.el"))]
    environment = {**os.environ, "CITEREC": json.dumps(server_command(folder))}
    subprocess.run(["git", "init", "-q"], cwd=folder, check=True)  # a project of Emacs
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=2 * WAIT
    )
    found = json.loads(done.stdout[done.stdout.index("{") :])
    assert found["line"].endswith("positions \\cite{jarvelin2002dcg}")
    assert found["actions"] == ["Add jarvelin2002dcg to refs.bib"]  # Emacs runs no commands of completions
    assert "{jarvelin2002dcg," in found["bib"]
    assert "Cumulated Gain" in found["hover"]


@pytest.mark.slow
@pytest.mark.skipif(not (VSCODE / "node_modules").is_dir(), reason="run npm ci in editors/vscode")
def test_the_client_of_vs_code() -> None:
    environment = {**os.environ, "CITEREC": json.dumps([sys.executable, "-m", "citerec"])}
    for script in ("lint", "test"):
        command = ["npm", "run", "--silent", script]
        done = subprocess.run(command, cwd=VSCODE, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
