r"""Drafts whose citations are masked, so that each becomes a missing one, with the keys that it cites.

A whole command is masked, as if its author had not cited yet: `\citep[see][]{lee2020, diaz}` becomes
`\citep[see][]{?}`, `[see @lee2020; @diaz]` becomes `[@?]`, \citeauthor with the \citeyear after it one mark.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from citerec.datasets.languages.latex import AUTHOR_AND_YEAR, CITATION, KEY_GROUP, cited_keys
from citerec.datasets.languages.markdown import GROUP, KEY, group_keys
from citerec.library.drafts import org, typst
from citerec.library.drafts.latex import LATEX
from citerec.library.drafts.markdown import MARKDOWN, fill_markdown
from citerec.library.drafts.placeholders import Syntax
from citerec.library.drafts.reader import Draft, read_draft, syntax_for

_COMMENT = re.compile(r"(?<!\\)%[^\n]*\n?")
_PARAMETER = re.compile(r"#\d")


def read_masked(path: Path, root: Path | None = None) -> Draft:
    """Read a draft with all citations masked; `replaced` of a place are the keys that it cites.

    Raises like `read_draft`.
    """
    return read_draft(path, root, masked_syntax(path))


def masked_syntax(path: Path) -> Syntax:
    """Return the syntax by which all citations of a draft are missing."""
    usual = syntax_for(path)
    return next(masked for syntax, masked in MASKED if syntax is usual)


def _latex_keys(command: str) -> list[str]:
    command = _COMMENT.sub("", command)
    if pair := AUTHOR_AND_YEAR.fullmatch(command):
        return cited_keys(f"{{{pair[2]}}}")
    match = CITATION.fullmatch(command)
    return cited_keys(match["keys"]) if match else []


def mask_latex(command: str, keys: Sequence[str]) -> tuple[str, int] | None:
    r"""Replace the keys of a citation by others; None if it has none (see `Syntax.fill`).

    >>> mask_latex(r"\citep[see][]{lee2020, diaz}", ["?"]), mask_latex(r"\citep{#1}", ["?"])
    (('\\citep[see][]{?}', 1), None)
    """
    if _PARAMETER.search(command) or not _latex_keys(command):  # the definition of a macro
        return None
    if AUTHOR_AND_YEAR.fullmatch(command):
        return f"\\citet{{{','.join(keys)}}}", len(keys)
    left = [",".join(keys)]

    def replace(match: re.Match[str]) -> str:
        start, end = (place - match.start() for place in match.span(1))
        return f"{match[0][:start]}{left.pop() if left else ''}{match[0][end:]}"

    return KEY_GROUP.sub(replace, command), len(keys)


def mask_markdown(group: str, keys: Sequence[str]) -> tuple[str, int] | None:
    """Replace the keys of a citation by others; None if it has none (see `Syntax.fill`).

    >>> mask_markdown("[see @lee2020; @diaz]", ["bo"]), mask_markdown("@lee2020", ["bo"])
    (('[@bo]', 1), ('@bo', 1))
    """
    return fill_markdown("[@?]" if group.startswith("[") else "@?", keys) if group_keys(group) else None


MASKED_LATEX = Syntax(
    re.compile(f"{AUTHOR_AND_YEAR.pattern}|{CITATION.pattern}"), mask_latex, replaced=_latex_keys
)
MASKED_MARKDOWN = Syntax(re.compile(f"{GROUP.pattern}|{KEY.pattern}"), mask_markdown, replaced=group_keys)


def _typst_keys(command: str) -> list[str]:
    match = typst.CITATION.fullmatch(command)
    return typst.typst_keys(match) if match else []


def mask_typst(command: str, keys: Sequence[str]) -> tuple[str, int] | None:
    """Replace the key of a citation by another; None if it has none (see `Syntax.fill`).

    >>> mask_typst("@lee2020[p. 7]", ["bo"]), mask_typst("@fig:trees", ["bo"])
    (('@bo', 1), None)
    """
    return (typst.cite_typst(keys[0]), 1) if keys and _typst_keys(command) else None


def _org_keys(command: str) -> list[str]:
    match = org.CITATION.fullmatch(command)
    return org.org_keys(match) if match else []


def mask_org(command: str, keys: Sequence[str]) -> tuple[str, int] | None:
    """Replace the keys of a citation by another; None if it has none (see `Syntax.fill`).

    >>> mask_org("[cite/t:see @lee2020; @diaz]", ["bo"])
    ('[cite:@bo]', 1)
    """
    return (org.cite_org(keys[0]), 1) if keys and _org_keys(command) else None


MASKED = (
    (LATEX, MASKED_LATEX),
    (MARKDOWN, MASKED_MARKDOWN),
    (typst.TYPST, Syntax(typst.CITATION, mask_typst, replaced=_typst_keys)),
    (org.ORG, Syntax(org.CITATION, mask_org, replaced=_org_keys)),
)
"""Each syntax, and that by which all its citations are missing."""
