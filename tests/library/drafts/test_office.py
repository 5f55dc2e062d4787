"""Drafts of Word and LibreOffice: suggestions, checks, and copies with fields of Zotero or plain text."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from citerec.base.errors import InputError
from citerec.formats.bibliography.paper import LibraryPaper
from citerec.formats.drafts.languages import language_of
from citerec.formats.drafts.office.language import Office
from citerec.library.ask.recommender import Recommender
from citerec.library.drafts.copies import plan_copies, write_copies
from citerec.library.drafts.reader import read_draft
from citerec.library.drafts.suggest import draft, suggest
from citerec.library.papers.library import Library
from citerec.library.settings import DraftSettings
from citerec.tests.conftest import Run
from citerec.tests.formats.drafts.documents import ITEM, field, members, paragraph, write, zotero_code

SHELF = [
    LibraryPaper("bert", "devlin2019", "BERT", "Language models such as BERT.", ("Ann Devlin",), 2019),
    LibraryPaper(
        "doi:10.1/a", "kingma2015", "Adam", "It adapts steps.", ("A Kingma", "B Ba"), 2015, doi="10.1/a"
    ),
    LibraryPaper("trees", "lee2020", "Trees", "Parsers are greedy.", ("C Lee",), 2020),
]


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("library") / "mine"
    Library.create(path, SHELF, model="bm25")
    return str(path)


def text_of(path: Path) -> str:
    language = language_of(path.suffix)
    assert isinstance(language, Office)
    return language.text(path)


@pytest.mark.parametrize("suffix", [".docx", ".odt"])
def test_a_draft_is_filled(suffix: str, library: str, tmp_path: Path, command: Run) -> None:
    runs = ["Models such as BERT [CI", "TE] are old. Adam [@kingma2015] adapts; so does [@ghost]. "]
    document = paragraph(suffix, "ParseNet", level=0) + paragraph(suffix, *runs)
    document += paragraph(suffix, "Parsing", level=1)
    document += paragraph(
        suffix, "Parsers ", field(suffix, f" {zotero_code()} ", "(Lee)"), " are greedy. Greedy [@?]."
    )
    path, copy = write(tmp_path / f"a{suffix}", document), tmp_path / f"b{suffix}"
    _, out, err = command("draft", library, str(path), f"fill={copy}", "sure=0")
    assert "“ParseNet”, 2 missing citations, cites 3 papers, 2 of them" in " ".join(out.split())
    assert "neither in the library nor in the draft's bibliography: ghost" in " ".join(out.split())
    assert "filled 2 of 2 missing citations" in err and "1 citation of keys in brackets written out" in err
    assert text_of(copy) == text_of(path).replace("[CITE]", "[@devlin2019]").replace("[@?]", "[@Lee-2020]")
    main = "word/document.xml" if suffix == ".docx" else "content.xml"
    assert members(copy, [main]) == members(path, [main])
    written = members(copy)[main][1].decode().replace("&quot;", '"')
    times = 1 if suffix == ".docx" else 2  # a mark's start and end have its name
    assert written.count('"citationItems"') == 4 * times
    assert written.count('"uris": ["https://doi.org/10.1/a"]') > 0
    assert "(Kingma and Ba, 2015)" in written
    with pytest.raises(InputError, match="already exists"):
        draft(DraftSettings(library=library, tex=str(path), fill=str(copy)))
    plain = tmp_path / f"plain{suffix}"
    draft(DraftSettings(library=library, tex=str(path), fill=str(plain), sure=0, citations="plain"))
    assert "BERT (Devlin, 2019) are old. Adam (Kingma and Ba, 2015) adapts; so does [@ghost]." in text_of(
        plain
    )
    entries = plain.with_suffix(".bib").read_text()
    assert "devlin2019," in entries and "kingma2015," in entries


def test_papers_of_one_volume_have_addresses_of_their_own(tmp_path: Path) -> None:
    """Zotero takes cited items with an address in common to be one."""
    titles, volume = ("Trees", "Forests", "Woods"), LibraryPaper("", url="https://x.org/v", doi="10.1/v")
    shelf = [volume._replace(id=f"key:{title}", key=title, title=title) for title in titles]
    Library.create(tmp_path / "mine", shelf, model="bm25")
    path = write(tmp_path / "a.docx", paragraph(".docx", "As [@Trees; @Forests], [@Woods] and [@Trees]."))
    copy = tmp_path / "b.docx"
    draft(DraftSettings(library=str(tmp_path / "mine"), tex=str(path), fill=str(copy), sure=0))
    assert text_of(copy) == text_of(path)
    language = language_of(".docx")
    assert isinstance(language, Office)
    items = language.open(copy).items
    assert {key: item["uris"] for key, item in items.items()} == {
        title: [f"urn:citerec:key%3A{title}"] for title in titles
    }
    assert all(item["itemData"]["citation-key"] == key for key, item in items.items())


def test_what_is_not_sure_is_named_beside_the_mark(library: str, tmp_path: Path) -> None:
    path = write(tmp_path / "a.docx", paragraph(".docx", "Models such as BERT [CITE] are old."))
    parsed, recommender = read_draft(path), Recommender.open(library)
    found = suggest(parsed, recommender, 2)
    unsure = [[replace(paper, probability=0.1) for paper in found.papers[0]]]
    plan = plan_copies(parsed, tmp_path / "b.docx", None)
    lines = write_copies(replace(found, papers=unsure), recommender.library, plan, 0.5)
    assert "1 left with a comment" in lines[1]
    assert text_of(tmp_path / "b.docx").startswith(
        "Models such as BERT [CITE] [citerec: not sure: devlin2019"
    )


@pytest.mark.parametrize("suffix", [".docx", ".odt", ".md", ".org", ".typ", ".tex"])
def test_comments_of_an_earlier_copy_are_gone(suffix: str, library: str, tmp_path: Path) -> None:
    text, recommender = "Models such as BERT [CITE].", Recommender.open(library)
    paths = [tmp_path / f"{name}{suffix}" for name in "abcd"]
    is_office, contexts, texts = suffix in (".docx", ".odt"), [], []
    write(paths[0], paragraph(suffix, text)) if is_office else paths[0].write_text(text)
    for path, copy, probability in zip(paths, paths[1:], (0.1, 0.1, 0.9), strict=False):
        parsed = read_draft(path)
        found, plan = suggest(parsed, recommender, 2), plan_copies(parsed, copy, None)
        papers = [[replace(paper, probability=probability) for paper in found.papers[0]]]
        write_copies(replace(found, papers=papers), recommender.library, plan, 0.5)
        contexts.append(parsed.places[0].context)
        texts.append(text_of(copy) if is_office else copy.read_text())
    assert contexts == ["Models such as BERT [TARGETCIT]."] * 3
    assert texts[0].count("citerec: not sure: devlin2019") == 1 and texts[0] == texts[1]
    assert "citerec" not in texts[2] and "devlin2019" in texts[2]


def test_what_fields_hold_is_checked(tmp_path: Path, command: Run) -> None:
    code = zotero_code({**ITEM, "title": "RETRACTED: Trees"})
    path = write(tmp_path / "a.docx", paragraph(".docx", "Trees ", field(".docx", f" {code} ", "(Lee)"), "."))
    assert [
        line for name in ("check", "references") for line in command(name, str(path))[1].splitlines()
    ] == [
        "a.docx:1: Lee-2020 was retracted (its title)",
        "a.docx: cites 1 key; 1 finding",
        "a.docx:1: Lee-2020 unknown; retracted (its title)",
        f"{path}: 1 reference: 0 confirmed, 0 contradicted, 1 unknown",
    ]


def test_checks(library: str, tmp_path: Path, command: Run) -> None:
    document = paragraph(
        ".odt", "Trees ", field(".odt", zotero_code(), "(Lee)"), " and [@kingma2015; @ghost]."
    )
    path = write(tmp_path / "a.odt", document)
    assert command("check", library, str(path))[1].splitlines() == [
        "a.odt:1: ghost is unknown in its bibliography and the library",
        "a.odt: cites 3 keys; 1 finding",
    ]
