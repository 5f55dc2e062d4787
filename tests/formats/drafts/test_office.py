"""Documents of Word and LibreOffice: their text, and copies with other citations."""

from __future__ import annotations

import json
import zipfile
from base64 import b64encode
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from xml.sax.saxutils import escape, quoteattr

import pytest
from hypothesis import given
from hypothesis import strategies as st

from citerec.base.errors import InputError
from citerec.formats.drafts.inputs import Inputs
from citerec.formats.drafts.language import replaced
from citerec.formats.drafts.languages import language_of
from citerec.formats.drafts.office.fields import citation_items
from citerec.formats.drafts.office.language import Office
from citerec.formats.drafts.office.package import MAX_PART
from citerec.tests.formats.drafts.documents import (
    ITEM,
    URI,
    field,
    members,
    paragraph,
    word_run,
    write,
    zotero_code,
)

SUFFIXES = (".docx", ".odt")
MAIN = {".docx": "word/document.xml", ".odt": "content.xml"}
ITEMS = {"Lee-2020": {"uris": [URI], "itemData": ITEM}}
BIBLIOGRAPHY = "ZOTERO_BIBL {} CSL_BIBLIOGRAPHY"
_BOOKMARK = (
    '<w:bookmarkStart w:id="3" w:name="ZOTERO_BREF_x"/><w:r><w:t>(Lee)</w:t></w:r><w:bookmarkEnd w:id="3"/>'
)
_ENTRIES = field(".docx", f" ADDIN {BIBLIOGRAPHY}", "Lee, ;Trees.")
RARE = {
    ".docx": "".join(
        (
            '<w:p><w:pPr><w:pPrChange><w:pPr><w:pStyle w:val="s1"/></w:pPr></w:pPrChange></w:pPr>',
            field(".docx", " BIBLIOGRAPHY ", "Lee."),
            f"{word_run('Kept ')}<w:del>{word_run('gone', 'delText')}</w:del>",
            f"<w:ins>{word_run('new')}</w:ins>",
            f"<w:fldSimple w:instr='{zotero_code()}'>{word_run('(Lee)')}</w:fldSimple>",
            f"{_BOOKMARK}{field('.docx', 'PAGEREF x', '12')}{field('.docx', 'TOC', 'Contents 1')}",
            "<w:r><w:tab/><w:t>end</w:t></w:r></w:p>",
            f"<w:p>{_ENTRIES.replace(';', '</w:t></w:r></w:p><w:p><w:r><w:t>')}</w:p>",
        )
    ),
    ".odt": "".join(
        (
            "<text:tracked-changes><text:p>gone</text:p></text:tracked-changes>",
            "<text:p>Kept <office:annotation><text:p>gone</text:p></office:annotation>new",
            field(".odt", zotero_code(), "(Lee)"),
            '<text:bookmark-start text:name="ZOTERO_BREF_x"/>(Lee)',
            '<text:bookmark-end text:name="ZOTERO_BREF_x"/>',
            "12<text:tab/>end</text:p><text:table-of-content><text:p>Contents</text:p></text:table-of-content>",
            f'<text:section text:name="{BIBLIOGRAPHY} RND01"><text:p>Lee, Trees.</text:p></text:section>',
            '<text:section text:name="JR_bib"><text:p>Lee, Trees.</text:p></text:section>',
        )
    ),
}


def codes(suffix: str) -> dict[str, bytes]:
    """The document's properties, which have the code of a bookmark in two pieces."""
    code = zotero_code().replace("&", "&amp;")
    pieces = [("ZOTERO_BREF_x_2", code[100:]), ("ZOTERO_BREF_x_1", code[:100])]
    if suffix == ".docx":
        made = "".join(f'<property name="{name}"><lpwstr>{text}</lpwstr></property>' for name, text in pieces)
        return {"docProps/custom.xml": f"<Properties>{made}</Properties>".encode()}
    made = "".join(f'<user-defined name="{name}">{text}</user-defined>' for name, text in pieces)
    return {"meta.xml": f"<meta>{made}</meta>".encode()}


def office(suffix: str) -> Office:
    language = language_of(suffix)
    assert isinstance(language, Office)
    return language


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_text_of_a_document(suffix: str, tmp_path: Path) -> None:
    document = paragraph(suffix, "On trees", level=0) + paragraph(suffix, "Abstract", level=1)
    document += paragraph(suffix, "We ", "prune.") + paragraph(suffix, "A & B", level=2)
    document += paragraph(
        suffix, "Trees & [CI", "TE] a@x.org ", field(suffix, f" {zotero_code()} ", "(Lee)"), "."
    )
    path = write(tmp_path / f"a{suffix}", document + RARE[suffix], codes(suffix))
    language = office(suffix)
    assert language.text(path) == (
        "\x02On trees\n\x01Abstract\nWe prune.\n\x01\x01A & B\nTrees & [CITE] a@x.org [@Lee-2020].\n"
        "Kept new[@Lee-2020][@Lee-2020]12 end\n"
    )
    source = language.read(path, Inputs(language.text))
    assert source.metadata[1:3] == ("On trees", "We prune.") and source.keys == ["Lee-2020"]
    assert source.references.entries(["Lee-2020"])["Lee-2020"].title == "Trees"
    assert language.open(path).items["Lee-2020"] == {
        "id": 7,
        "uris": [URI],
        "itemData": {**ITEM, "id": "Lee-2020"},
    }


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_notes_follow_their_paragraphs(suffix: str, tmp_path: Path) -> None:
    notes, more = [paragraph(suffix, "Old [CITE]."), paragraph(suffix, "Dry.") * 2], {}
    if suffix == ".docx":
        space = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
        kinds = ("footnote", "endnote")
        marks = [f'<w:r><w:{kind}Reference w:id="2"/></w:r>' for kind in kinds]
        for kind, text in zip(kinds, notes, strict=True):
            unused = f'<w:{kind} w:id="1">{paragraph(suffix, "Unused.")}</w:{kind}>'
            body = f'{unused}<w:{kind} w:id="2">{text}</w:{kind}>'
            name = f"word/{kind}s.xml" if kind == "footnote" else "a/b.xml"
            more[name] = f'<w:{kind}s xmlns:w="{space}">{body}</w:{kind}s>'.encode()
        more["word/_rels/document.xml.rels"] = b'<a><b Type="x/endnotes" Target="../a/b.xml"/></a>'
    else:
        number = "<text:note-citation>1</text:note-citation>"
        marks = [f"<text:note>{number}<text:note-body>{text}</text:note-body></text:note>" for text in notes]
    document = paragraph(suffix, "Trees", marks[0], " grow", marks[1], ".") + paragraph(suffix, "And die.")
    path = write(tmp_path / f"a{suffix}", document, more)
    language = office(suffix)
    text = language.text(path)
    first, second = (f"\x05{number}\x05" for number in (1, 2))
    assert text == (
        f"Trees\x041\x04 grow\x042\x04.\n{first}Old [CITE].\n{second}Dry.\n{second}Dry.\nAnd die.\n"
    )
    [shown] = language.paragraphs(text.replace("[CITE]", "[@a]"))[0]
    assert shown.text == "Trees (Old [1]) grow.\nDry.\nDry.\nAnd die."
    at = text.index("[")
    copy = tmp_path / f"b{suffix}"
    copy.write_bytes(language.written(path, [(at, at + 6, "[@Lee-2020]")], ITEMS, False))
    assert language.text(copy) == text.replace("[CITE]", "[@Lee-2020]")
    changed = {"word/footnotes.xml" if suffix == ".docx" else MAIN[suffix]}
    assert members(copy, changed) == members(path, changed)


WORDS = st.text(st.sampled_from("ab é&<>.\"'\u2028\U0001d49c\t"), max_size=6)


@given(
    st.sampled_from(SUFFIXES),
    st.lists(st.tuples(WORDS, st.booleans()), min_size=1, max_size=6),
    st.lists(st.integers(0, 60), max_size=8),
    st.booleans(),
)
def test_a_copy_reads_as_the_text_with_the_new_citations(
    suffix: str, parts: list[tuple[str, bool]], cuts: list[int], plain: bool
) -> None:
    """Marks are anywhere, in any number of runs. All else in the file stays as it is."""
    text = "".join(words + ("[see @?, p. 3]" if mark else "[CITE]") for words, mark in parts)
    bounds = [0, *sorted({cut for cut in cuts if cut < len(text)}), len(text)]
    runs = [text[a:b] for a, b in pairwise(bounds)]
    with TemporaryDirectory() as folder:
        path = write(Path(folder) / f"a{suffix}", paragraph(suffix, *runs))
        language = office(suffix)
        text = language.text(path)
        key = "Lee:2020"
        edits = [
            (*item[:2], filled[0])
            for item in language.citations(text)
            if (filled := language.fill(text[item.start : item.end], [key]))
        ]
        copy = Path(folder) / f"b{suffix}"
        copy.write_bytes(
            language.written(path, edits, {key: {"id": 7, "uris": [URI], "itemData": ITEM}}, plain)
        )
        expected = replaced(text, edits)
        if plain:
            expected = expected.replace(f"[see @{key}, p. 3]", "(see Lee, 2020, p. 3)").replace(
                f"[@{key}]", "(Lee, 2020)"
            )
        else:
            expected = expected.replace(f"[see @{key}, p. 3]", "[@Lee-2020]").replace(
                f"[@{key}]", "[@Lee-2020]"
            )
        assert language.text(copy) == expected
        assert members(copy, [MAIN[suffix]]) == members(path, [MAIN[suffix]])
        assert [*members(copy)] == [*members(path)]


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_citation_has_the_form_of_zotero(suffix: str, tmp_path: Path) -> None:
    path = write(tmp_path / f"a{suffix}", paragraph(suffix, "As [see @a, p. 3-5; -@b and on]."))
    language = office(suffix)
    text = language.text(path)
    items = {
        key: {"id": key, "uris": [f"https://doi.org/{key}"], "itemData": {**ITEM, "id": key}} for key in "ab"
    }
    edit = text.index("["), text.index("]") + 1
    content = language.written(path, [(*edit, text[slice(*edit)])], items, False)
    copy = tmp_path / f"b{suffix}"
    copy.write_bytes(content)
    main = members(copy)[MAIN[suffix]][1].decode()
    if suffix == ".docx":
        code = main.partition("> ADDIN ZOTERO_ITEM CSL_CITATION ")[2].partition(" </w:instrText>")[0]
        assert main.count("<w:rPr><w:b/></w:rPr>") == 7  # of the run around it
    else:
        name = main.partition('text:reference-mark-start text:name="')[2].partition('"')[0]
        assert main.count(name) == 2
        code = name.partition("ZOTERO_ITEM CSL_CITATION ")[2].replace("&quot;", '"')
        code, _, mark = code.rpartition(" RND")
        assert len(mark) == 10 and mark.isalnum()
    citation = json.loads(code)
    first, second = citation["citationItems"]
    assert first == {**items["a"], "prefix": "see ", "locator": "3-5", "label": "page"}
    assert second == {**items["b"], "suppress-author": True, "suffix": ", and on"}
    shown = "(see Lee, 2020, p. 3-5; 2020, and on)"
    assert citation["properties"] == {"formattedCitation": shown, "plainCitation": shown, "noteIndex": 0}
    assert shown in main


@pytest.mark.parametrize("run", ["<w:rPr/>", "<w:rPr></w:rPr>", "<w:rPr ><w:b/></w:rPr>", ""])
def test_runs_without_properties_are_filled(run: str, tmp_path: Path) -> None:
    path = write(tmp_path / "a.docx", f"<w:p><w:r>{run}<w:t>Trees [CITE] grow.</w:t></w:r></w:p>")
    copy, language = tmp_path / "b.docx", office(".docx")
    copy.write_bytes(language.written(path, [(6, 12, "[@Lee-2020]")], ITEMS, False))
    assert language.text(copy) == "Trees [@Lee-2020] grow.\n"


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_items_with_an_address_in_common_are_one(suffix: str, tmp_path: Path) -> None:
    """As for Zotero, which gives an item that is not in its library another id in each refreshed citation,
    and leaves out data that an earlier citation has."""
    first = zotero_code({**ITEM, "id": "s3sS10n/a"}, "urn:x:lee")
    again = zotero_code({**ITEM, "id": "s3sS10n/b", "title": "Trees!"}, "urn:x:lee")
    without = json.dumps({"citationItems": [{"id": 7, "uris": ["urn:x:lee"]}]})
    unknown = json.dumps({"citationItems": [{"id": 8, "uris": ["urn:x:doe"]}]})
    cited = [
        field(suffix, f" {code} ", shown)
        for code, shown in (
            (first, "(Lee)"),
            (again, "(Lee)"),
            (f"ADDIN ZOTERO_ITEM CSL_CITATION {without}", "(Lee)"),
            (f"ZOTERO_ITEM CSL_CITATION {unknown}", "(Doe)"),
        )
    ]
    path = write(tmp_path / f"a{suffix}", paragraph(suffix, *cited))
    document = office(suffix).open(path)
    assert document.text == "[@Lee-2020][@Lee-2020][@Lee-2020](Doe)\n"
    assert [item["itemData"]["title"] for item in document.items.values()] == ["Trees"]


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_citation_shows_what_its_field_tells(suffix: str, tmp_path: Path) -> None:
    """Else Zotero takes the text to be edited, and asks what is right. LibreOffice shows single spaces."""
    path = write(tmp_path / f"a{suffix}", paragraph(suffix, "As [see\u00a0it  also @a, the  end; @b]."))
    language = office(suffix)
    text, copy = language.text(path), tmp_path / f"b{suffix}"
    items = {key: {"uris": [key], "itemData": {**ITEM, "title": "A \x0b\nb", "author": []}} for key in "ab"}
    edit = text.index("["), text.index("]") + 1
    copy.write_bytes(language.written(path, [(*edit, text[slice(*edit)])], items, False))
    main = members(copy)[MAIN[suffix]][1].decode()
    shown = "(see\u00a0it also A b, 2020, the end; A b, 2020)"
    assert f">{shown}<" in main
    assert f'"plainCitation": {json.dumps(shown)}' in main.replace("&quot;", '"')


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"<a>", "not well-formed XML"),
        (b"\xff\xfe<a/>", "not well-formed XML"),
        (b'<!DOCTYPE a [<!ENTITY b "c">]><a>&b;</a>', "has a document type"),
        (b"<a><![CDATA[b]]></a>", "has a CDATA section"),
        (b'<?xml version="1.0" encoding="latin-1"?><a/>', "has the encoding latin-1"),
        (b"<a>" * 2000 + b"</b>", "not well-formed XML"),
        (b" " * (MAX_PART + 1), "larger than 64 MB"),
        (b"", "has no "),
    ],
)
@pytest.mark.parametrize("suffix", SUFFIXES)
def test_odd_documents_are_refused(suffix: str, content: bytes, reason: str, tmp_path: Path) -> None:
    path = tmp_path / f"a{suffix}"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr(MAIN[suffix], content)
    with pytest.raises(InputError, match=reason) as error:
        office(suffix).text(path)
    assert "\n" not in str(error.value) and str(error.value).startswith(f"{path}")


def test_a_document_with_a_password_is_refused(tmp_path: Path) -> None:
    manifest = b"<m:manifest><m:file-entry><m:encryption-data/></m:file-entry></m:manifest>"
    path = write(tmp_path / "a.odt", "", {"content.xml": b"\x8f\2\3", "META-INF/manifest.xml": manifest})
    with pytest.raises(InputError, match=r"save it as \.odt without a password"):
        office(".odt").text(path)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_list_of_a_million_parts_is_not_read(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"a{suffix}"
    size = 47_000_000  # of the list, which its end tells
    path.write_bytes(b"PK\x03\x04" + b"PK\x05\x06" + b"\0" * 8 + size.to_bytes(4, "little") + b"\0" * 6)
    with pytest.raises(InputError, match="has too many parts"):
        office(suffix).text(path)


@given(st.sampled_from(SUFFIXES), st.integers(0, 10**6), st.integers(0, 10**6), st.binary(max_size=8))
def test_damaged_documents_are_read_or_refused(suffix: str, start: int, length: int, new: bytes) -> None:
    with TemporaryDirectory() as folder:
        path = write(Path(folder) / f"a{suffix}", paragraph(suffix, "Trees [CITE].") + RARE[suffix])
        content = path.read_bytes()
        at = start % len(content)
        path.write_bytes(content[:at] + new + content[at + length % 50 :])
        try:
            office(suffix).text(path)
        except InputError as error:
            assert "\n" not in str(error)


@pytest.mark.parametrize("piece", ["`\n", "[@;", "\x01 ", "abstract. ", "[see @a", "\n"])
def test_adverse_texts_are_read_in_linear_time(piece: str) -> None:
    """Each would take an hour in quadratic time."""
    language, text = office(".odt"), piece * (300_000 // len(piece))
    language.metadata(text)
    language.paragraphs(text)


def test_a_paragraph_that_cites_is_no_title() -> None:
    titles = [
        office(".odt").metadata(text).title for text in ("On trees\nThey grow.", "They grow [@?].\n", "")
    ]
    assert titles == ["On trees", "", ""]
    for abstract in ("\x03", "Abstract: "):
        cited = office(".odt").metadata(f"\x02On [@a] trees [CITE]\n{abstract}They [@b] grow.\n")
        assert cited[1:3] == ("On trees", "They grow.")


def test_fields_in_one_another_are_limited(tmp_path: Path) -> None:
    deep = '<w:r><w:fldChar w:fldCharType="begin"/></w:r>' * 200
    with pytest.raises(InputError, match=r"document\.xml: has more than 100 fields in one another"):
        office(".docx").text(write(tmp_path / "a.docx", f"<w:p>{deep}</w:p>"))


@pytest.mark.parametrize("in_code", [True, False])
def test_citations_of_endnote(tmp_path: Path, in_code: bool) -> None:
    record = (
        '<foreign-keys><key app="EN" db-id="d">3</key></foreign-keys><ref-type name="Book Section"/>'
        "<contributors><authors><author>Lee, A. B.</author><author><style>The Group</style></author>"
        "</authors></contributors><titles><title>On <style>ants</style> &amp; bees</title>"
        "<secondary-title>Insects</secondary-title></titles><dates><year>2020</year></dates>"
    )
    cite = "<Cite><Author>Lee</Author><Year>2020</Year><RecNum>3</RecNum>%s</Cite>"
    xml = f"<EndNote>{cite % f'<record>{record}</record>'}{cite % ''}</EndNote>"
    data = "" if in_code else f"<w:fldData>{b64encode(xml.encode()).decode()}</w:fldData>"

    def begin(code: str, data: str) -> str:
        start = f'<w:r><w:fldChar w:fldCharType="begin">{data}</w:fldChar></w:r>'
        return f"{start}<w:r><w:instrText>{escape(code)}</w:instrText></w:r>"

    end = '<w:r><w:fldChar w:fldCharType="end"/></w:r>'
    inner = begin(" ADDIN EN.CITE.DATA ", data) + end if data else ""
    field = begin(f" ADDIN EN.CITE {xml if in_code else ''}", data) + inner
    shown = '<w:r><w:fldChar w:fldCharType="separate"/></w:r><w:r><w:t>(Lee 2020)</w:t></w:r>'
    listed = f"{begin(' ADDIN EN.REFLIST ', '')}{shown.replace('(Lee 2020)', 'Lee 2020: On ants')}{end}"
    body = f"<w:p><w:r><w:t>Ants run </w:t></w:r>{field}{shown}{end}</w:p><w:p>{listed}</w:p>"
    document = office(".docx").open(write(tmp_path / "a.docx", body))
    assert document.text == "Ants run [@Lee2020]\n"
    assert document.items["Lee2020"]["itemData"] == {
        "id": "Lee2020",
        "type": "chapter",
        "title": "On ants & bees",
        "author": [{"family": "Lee", "given": "A. B."}, {"literal": "The Group"}],
        "issued": {"date-parts": [[2020]]},
        "container-title": "Insects",
    }


@pytest.mark.parametrize(
    "code", ["<EndNote>", "<!DOCTYPE a><EndNote/>", "no base64", "<EndNote><Cite/></EndNote>"]
)
def test_damaged_citations_of_endnote_are_text(code: str) -> None:
    items = citation_items(f" ADDIN EN.CITE {code}", "!") or []
    assert [key for key, item in items if item["itemData"]] == []


SOURCES = (
    '<b:Sources xmlns:b="http://schemas.openxmlformats.org/officeDocument/2006/bibliography"><b:Source>'
    "<b:Tag>Kel01</b:Tag><b:SourceType>JournalArticle</b:SourceType><b:Author><b:Author><b:NameList>"
    "<b:Person><b:Last>Heron</b:Last><b:First>Ida</b:First></b:Person></b:NameList></b:Author></b:Author>"
    "<b:Title>Kelp</b:Title><b:Year>2001</b:Year></b:Source></b:Sources>"
)
MARK = (
    '<text:bibliography-mark text:identifier="Kel01" text:bibliography-type="article" text:title="Kelp" '
    'text:author="Heron, Ida; Reis, Ana" text:year="2001">[Kel01]</text:bibliography-mark>'
)


def test_citations_of_word_and_libreoffice_themselves(tmp_path: Path) -> None:
    text = paragraph(
        ".docx", "Kelp grows ", field(".docx", " CITATION Kel01 \\l 1033 \\m Oak2 ", "(Heron, 2001)")
    )
    word = write(tmp_path / "a.docx", text, {"customXml/item1.xml": SOURCES.encode()})
    writer = write(tmp_path / "a.odt", paragraph(".odt", "Kelp grows ", MARK))
    code = quoteattr(f"ADDIN {zotero_code()}")
    mark = (
        '<text:fieldmark-start text:name="a"><text:param text:name="vnd.oasis.opendocument.field.code" '
        f"text:value={code}/></text:fieldmark-start>(Lee 2020)<text:fieldmark-end/>"
    )
    marked = write(tmp_path / "b.odt", paragraph(".odt", "Trees grow ", mark))
    name = quoteattr(f" ADDIN {zotero_code()} RND0123456789")  # as Word has it
    start, end = (f"<text:reference-mark-{side} text:name={name}/>" for side in ("start", "end"))
    of_word = write(tmp_path / "c.odt", paragraph(".odt", "Trees ", f"{start}(Lee){end}", "."))
    cited = ((word, ["Kel01", "Oak2"]), (writer, ["Kel01"]), (marked, ["Lee-2020"]), (of_word, ["Lee-2020"]))
    for path, keys in cited:
        source = office(path.suffix).read(path, Inputs(office(path.suffix).text))
        assert list(source.keys) == keys
        assert "Heron" not in source.text and "(Lee" not in source.text
        reference = source.references.entries(keys)[keys[0]]
        assert (reference.title, reference.year) in [("Kelp", 2001), ("Trees", 2020)]


DAMAGED = "ADDIN ZOTERO_ITEM CSL_CITATION {"


@pytest.mark.parametrize(
    ("suffix", "code"),
    [(".docx", DAMAGED), (".odt", DAMAGED), (".odt", "JABREF_lee2020 CID_1"), (".odt", "JR_cite_1_lee2020")],
)
def test_a_citation_with_damaged_or_unknown_data_is_named(suffix: str, code: str, tmp_path: Path) -> None:
    path = write(tmp_path / f"a{suffix}", paragraph(suffix, "Kelp grows ", field(suffix, code, "(Lee 2020)")))
    source = office(suffix).read(path, Inputs(office(suffix).text))
    assert "(Lee 2020)" in source.text
    assert source.notes == ["the citation after “Kelp grows” has damaged or unknown data and is read as text"]


def test_citations_of_mendeley_cite_and_of_other_programs(tmp_path: Path) -> None:
    """Content controls with the citation in base64; what is not read is told."""
    cited = json.dumps({"citationItems": [{"id": "a-b", "itemData": {**ITEM, "id": "a-b"}}]}).encode()
    tag = f'<w:tag w:val="MENDELEY_CITATION_v3_{b64encode(cited).decode()}"/>'
    control = f"<w:sdt><w:sdtPr>{tag}</w:sdtPr><w:sdtContent>{word_run('(Lee, 2020)')}</w:sdtContent></w:sdt>"
    later = field(".docx", "ADDIN CitaviPlaceholder{e30=}", "(Oh)")
    path = write(tmp_path / "a.docx", paragraph(".docx", control, ": so ", later, "."))
    document = office(".docx").open(path)
    assert document.text == "[@Lee-2020]: so (Oh).\n"
    assert [key.key for key in office(".docx").keys(document.text)] == ["Lee-2020"]
    assert len(document.notes) == 1 and "unknown data" in document.notes[0]
