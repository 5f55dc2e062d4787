"""Options of the commands of recommend.py; the first line of a docstring is a command's help."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from datasets.settings import Settings, setting


@dataclass(frozen=True, kw_only=True)
class LibrarySettings(Settings):
    """What every command over a library has."""

    library: str
    """folder of the library (e.g. my-library)"""


@dataclass(frozen=True, kw_only=True)
class InfoSettings(LibrarySettings):
    """Tell what a library holds."""


@dataclass(frozen=True, kw_only=True)
class ChangeSettings(LibrarySettings):
    """What changes of a library have in common."""

    wait: bool = True
    """for another process that changes the library; false: say so and end"""


@dataclass(frozen=True, kw_only=True)
class AddSettings(ChangeSettings):
    """Add the papers of further files to a library."""

    source: tuple[str, ...]
    """files of papers: BibTeX, CSL JSON, RIS, papers.json, JSON lines, also gzipped (e.g. papers.bib)"""


@dataclass(frozen=True, kw_only=True)
class BuildSettings(AddSettings):
    """Make a library of files of papers."""

    contexts: str = ""
    """folder with contexts.json and train.json: how the papers have been cited elsewhere"""
    model: str = ""
    """what ranks: a folder that train.py or save_pretrained wrote, or an id on the hub, of a static model or
    HAtten; bm25; empty: the model in the box"""
    ranker: str = ""
    """a learned ranker over the model, if it is not in its folder: folder or id on the hub"""
    overwrite: bool = False
    """replace the library that is there"""


@dataclass(frozen=True, kw_only=True)
class RemoveSettings(ChangeSettings):
    """Remove papers from a library, which update will not bring back, or files with their papers."""

    id: tuple[str, ...] = ()
    """ids or citation keys (e.g. [doi:10.1145/1,smith2020])"""
    source: tuple[str, ...] = ()
    """files, or folders of files, that the library was made of; papers that others have too stay"""


@dataclass(frozen=True, kw_only=True)
class UpdateSettings(ChangeSettings):
    """Read a library's files again: new papers are added, changed ones replaced, gone ones removed."""


@dataclass(frozen=True, kw_only=True)
class RankingSettings(LibrarySettings):
    """What commands have in common that recommend papers."""

    reranker: str | None = None
    """folder of a cross-encoder that reads the first papers again"""


@dataclass(frozen=True, kw_only=True)
class AskSettings(RankingSettings):
    """Ask for the papers to cite in a passage."""

    positional: ClassVar[str] = "text"

    text: str
    """the passage, with [CITE] where the citation is missing; -: read it (e.g. "Adam [CITE] is usual")"""
    title: str = ""
    """of the paper being written"""
    abstract: str = ""
    """of the paper being written"""
    k: int = setting(10, least=1)
    """papers to recommend"""
    years: str | None = None
    """of the papers: 2015-2020, 2015-, -2020 or 2019"""
    venue: str | None = None
    """that the papers appeared in, or a part of its name"""
    collection: str | None = None
    """of the library, that the papers are in"""
    exclude: tuple[str, ...] = ()
    """ids or citation keys that are not recommended"""
    only: tuple[str, ...] = ()
    """ids or citation keys that alone are recommended"""
    format: str = setting("table", choices=("table", "json", "bibtex", "cite", "markdown"))
    explain: bool = False
    """with the features that made the scores"""


@dataclass(frozen=True, kw_only=True)
class DraftSettings(RankingSettings):
    """Suggest papers where a draft lacks a citation: \\cite{?}, \\citep{TODO}, in Markdown [@?] or [CITE]."""

    tex: str
    """the draft, in LaTeX or Markdown (e.g. paper.tex)"""
    k: int = setting(5, least=1)
    """papers for each place"""
    format: str = setting("text", choices=("text", "json"))
    fill: str = ""
    """new file, or folder for a draft with inputs: a copy in which the best papers are cited"""
    root: str = ""
    """folder that inputs must lie in; empty: the draft's own"""


@dataclass(frozen=True, kw_only=True)
class ServeSettings(RankingSettings):
    """Serve a library over HTTP: a page for people, JSON for programs, MCP for writing assistants."""

    host: str = "127.0.0.1"
    """address to listen at; 0.0.0.0: every one of this machine, for others to ask"""
    port: int = setting(8000, most=65535)
    """to listen at; 0: any free one"""
    names: tuple[str, ...] = ()
    """host names by which others reach the server; other names are refused (e.g. [papers.lab])"""
    token: str = ""
    """that changes of the library need; empty: one is made and shown"""
    mcp: bool = True
    """tools for writing assistants at /mcp"""
    threads: int = setting(4, least=1)
    """that answer requests"""
    queue: int = setting(64, least=1)
    """requests that wait for a thread; further ones are told to come again"""
    max_body: int = setting(4_000_000, least=1000)
    """bytes of a request"""
    patience: float = setting(10.0, above=0)
    """seconds that the head of a request may take to arrive, and its body"""


@dataclass(frozen=True, kw_only=True)
class McpSettings(RankingSettings):
    """Answer a writing assistant that starts this command: MCP over stdin and stdout."""
