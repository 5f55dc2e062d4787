"""Records docs/write/editors.svg: Neovim with the language server, typed into in tmux.

    python editors/screen.py docs/write/editors.svg

Needs tmux, and Neovim 0.11 or newer as `nvim`. The library is that of examples/.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import TerminalTheme
from rich.text import Text

ROOT = Path(__file__).resolve().parents[1]
WIDTH, HEIGHT = 118, 22
TEXT = r"""\documentclass{article}
\title{Ranking what readers look for}
\begin{document}
\section{Evaluation}
Readers seldom look beyond the first results~\cite{ghost}.
All weights are learned with Adam~\cite{?}.
Judgements are graded, with a discount

\bibliography{refs}
\end{document}
"""
SETTINGS = r"""
vim.o.termguicolors, vim.o.number, vim.o.laststatus, vim.o.hlsearch = true, true, 0, false
vim.o.completeopt, vim.o.pumheight, vim.opt.fillchars = "menuone,noinsert,popup", 12, { eob = " " }
vim.diagnostic.config({ virtual_text = true, signs = false, update_in_insert = true })
local command = vim.json.decode(vim.env.CITEREC)
vim.lsp.config("citerec", { cmd = command, filetypes = { "tex" }, root_markers = { "refs.bib" } })
vim.lsp.enable("citerec")
vim.api.nvim_create_autocmd("LspAttach", { callback = function(event)
  vim.lsp.completion.enable(true, event.data.client_id, event.buf, { autotrigger = true })
end })
vim.api.nvim_create_autocmd("CompleteChanged", { callback = vim.schedule_wrap(function()
  local window = vim.fn.complete_info().preview_winid
  if window and vim.api.nvim_win_is_valid(window) then
    vim.wo[window].linebreak, vim.wo[window].conceallevel = true, 2
    vim.treesitter.start(vim.api.nvim_win_get_buf(window), "markdown")
  end
end) })
vim.g.tex_flavor = "latex"
vim.cmd("syntax on")
"""
THEME = TerminalTheme((20, 22, 27), (224, 226, 234), [(20, 22, 27)] * 8)


def main(picture: str) -> None:
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        build = ["build", f"library={folder / 'library'}", f"source={ROOT / 'examples/library.bib'}"]
        subprocess.run([sys.executable, "-m", "citerec", *build], check=True)
        (folder / "paper.tex").write_text(TEXT)
        (folder / "refs.bib").write_text("")
        (folder / "init.lua").write_text(SETTINGS)
        server = [sys.executable, "-m", "citerec", "lsp", f"library={folder / 'library'}"]
        environment = {**os.environ, "CITEREC": json.dumps(server), "COLORTERM": "truecolor"}

        def tmux(*arguments: str) -> str:
            command = ["tmux", "-S", str(folder / "tmux"), "-f", "/dev/null", *arguments]
            done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
            return done.stdout

        def wait(shown: Callable[[str], object]) -> None:
            for _ in range(600):
                if shown(tmux("capture-pane", "-p")):
                    return
                time.sleep(0.1)
            raise SystemExit("it was not shown:\n" + tmux("capture-pane", "-p"))

        neovim = "nvim -n -i NONE -u init.lua paper.tex"
        tmux("new-session", "-d", "-x", str(WIDTH), "-y", str(HEIGHT), "-c", place, neovim)
        try:
            tmux("set-option", "-ga", "terminal-features", ",*:RGB")
            tmux("set-option", "-g", "status", "off")
            wait(lambda screen: "ghost is not in" in screen)
            tmux("send-keys", "/discount", "Enter", "A", "~\\cite{")
            wait(lambda screen: "jarvelin" in screen)
            time.sleep(1)  # the description follows
            screen = tmux("capture-pane", "-p", "-e")
        finally:
            tmux("kill-server")
    nowhere = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    console = Console(record=True, width=WIDTH, file=nowhere, force_terminal=True)
    console.print(Text.from_ansi(screen.rstrip("\n")))
    svg = console.export_svg(title="paper.tex", theme=THEME)
    Path(picture).write_text(re.sub(r"@font-face \{.*?\}\n", "", svg, flags=re.DOTALL), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1])
