"""Settings of benchmark=drafts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from citerec.base.errors import InputError
from citerec.base.settings import Settings, register, setting
from citerec.evaluation.settings import DRAFT

DRAFT_PROTOCOLS = ("as_is", "titles", "merged")
ASK, WRITTEN = "ask", "written"


@dataclass(frozen=True)
class DraftsSettings(Settings):
    """Citations of drafts, masked in turn, asked over the bibliographies of their authors."""

    where: ClassVar[str] = "benchmark"

    drafts: str | None = None
    """folder of drafts, each in a folder of its own with its .bib files; citerec/drafts/public,
    .../2026-12 and .../2027 are fetched on first use"""
    languages: tuple[str, ...] = ()
    """only drafts whose language in the folder's list is one of these, e.g. [fr,de]; empty: all"""
    model: str = "builtin"
    """model of the libraries, as in citerec build: builtin, bm25, a folder, or a hub id"""
    baseline: str | None = "bm25"
    """model to compare with; null: none"""
    protocols: tuple[str, ...] = setting(DRAFT_PROTOCOLS, choices=DRAFT_PROTOCOLS, filled=True)
    """as_is (each author's bibliography) | titles (without its abstracts) | merged (all in one library)"""
    commands: tuple[str, ...] = setting((ASK, DRAFT, WRITTEN), choices=(ASK, DRAFT, WRITTEN), filled=True)
    """ask (the passage, the draft's title and abstract) | draft (its other citations are known, too) |
    written (draft, with the text and the citations before the mark only)"""
    depth: int = setting(100, least=10)
    """papers per citation; MRR is cut off there"""
    queries: int | None = setting(None, least=1)
    """size of a random sample of each draft's citations; null: all"""
    seed: int = 0
    """random seed of samples, confidence intervals and tests"""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.drafts is None:
            raise InputError(
                "benchmark=drafts needs drafts=FOLDER; citerec data drafts output=FOLDER fetches some"
            )


register("drafts", DraftsSettings, target="citerec.library.benchmark.drafts.Drafts")
