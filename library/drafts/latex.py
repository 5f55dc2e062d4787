r"""Drafts in LaTeX: \cite{?}, \cite{}, \citep[see][]{TODO}, also in footnotes, captions and inputs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from citerec.datasets.fulltext.documents import Metadata, Paragraph
from citerec.datasets.languages.latex import (
    CITATION,
    KEY_GROUP,
    cited_keys,
    document_body,
    read_metadata,
    read_sections,
)
from citerec.datasets.languages.latex_source import Inputs, read_source, remove_blocks, running_text
from citerec.library.drafts.placeholders import MISSING, PLACEHOLDER, Contents, PlaceholderReader, Syntax

_CODE = "verbatim|Verbatim|lstlisting|minted|filecontents|comment|tikzpicture|pgfpicture"
_BEGIN_CODE, _END_CODE = (re.compile(rf"\\{tag}\s*\{{(?:{_CODE})\*?\}}") for tag in ("begin", "end"))
_CODE_CAPTION = re.compile(
    r"\\begin\s*\{lstlisting\}\s*\[[^\[\]]*?caption\s*=\s*(\{(?:[^{}]|\{[^{}]*\})*\})", re.DOTALL
)
_FLOAT = re.compile(
    r"\\(?:begin|end)\s*\{(?:abstract|(?:sub|wrap|sideways)?figure|(?:wrap|sideways|long)?table)\*?\}"
)
_ENVIRONMENT = re.compile(r"\\(?:begin|end)\s*\{[^{}]*\}(?:\s*\[[^\[\]]*\])?")
_ASIDE = re.compile(
    r"\\(?:footnote|footnotetext|caption|todo|marginpar|thanks|abstract)\*?(?:\[[^\[\]]*\])?(?=\{)"
)


def fill_latex(command: str, keys: Sequence[str]) -> tuple[str, int] | None:
    r"""Insert keys in a citation command; see `Syntax.fill`.

    >>> fill_latex(r"\citep[see][]{lee2020, ?}", ["diaz", "bo"]), fill_latex(r"\cite{lee2020}", [])
    (('\\citep[see][]{lee2020, diaz}', 1), None)
    """
    left, missing = list(keys), False

    def replace(match: re.Match[str]) -> str:
        nonlocal missing
        new, parts = [], match[1].split(",")
        for part in parts:
            key = part.strip()
            if not MISSING.fullmatch(key) or (not key and len(parts) > 1):
                new.append(part)
                continue
            missing = True
            if left:
                new.append(part[: len(part) - len(part.lstrip())] + left.pop(0))
        start = match.start(1) - match.start()
        return f"{match[0][:start]}{','.join(new)}}}" if new else match[0]

    text = KEY_GROUP.sub(replace, command)
    return (text, len(keys) - len(left)) if missing else None


LATEX = Syntax(CITATION, fill_latex, r"\cite{?}, \cite{} or \citep{TODO}", "% {}\n")


def latex_paragraphs(body: str, keys: Iterable[str]) -> list[Paragraph]:
    """Return the running text of a body, and what else has placeholders among `keys`."""
    paragraphs, _ = read_sections(running_text(body))
    read = {span.ref for part in paragraphs for span in part.citations}
    if unread := {key for key in keys if key.startswith(PLACEHOLDER)} - read:
        # In captions, footnotes, tables or the abstract, which training contexts exclude.
        separated = _ENVIRONMENT.sub(" ", _FLOAT.sub(r"\\section{}", body))
        more, _ = read_sections(_ASIDE.sub(" ", separated), unread)
        paragraphs += [part for part in more if any(span.ref in unread for span in part.citations)]
    return paragraphs


def read_citations(path: Path, root: Path | None, reader: PlaceholderReader) -> Contents:
    """Read only the keys, the source without comments and code, and notes, which is quick."""
    inputs = Inputs(reader, root)
    source = _CODE_CAPTION.sub(r"\\caption\1\g<0>", read_source(path, inputs))
    source = remove_blocks(source, _BEGIN_CODE, _END_CODE)
    keys = dict.fromkeys(key for match in CITATION.finditer(source) for key in cited_keys(match["keys"]))
    notes = [f"\\input{{{name}}} is not followed: {why}" for name, why in inputs.skipped.items()]
    return Contents(Metadata(""), [], keys, source, notes)


def read_latex(path: Path, root: Path | None, reader: PlaceholderReader) -> Contents:
    found = read_citations(path, root, reader)
    body = document_body(found.source) or found.source  # a chapter has no \begin{document}
    metadata = read_metadata(CITATION.sub("", found.source), "")
    return found._replace(metadata=metadata, paragraphs=latex_paragraphs(body, found.keys))
