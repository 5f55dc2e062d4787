"""JATS articles as full texts: PubMed Central, PLOS and the like, also in wrappers and archives."""

from __future__ import annotations

import gzip
from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from citerec.base.errors import InputError
from citerec.datasets.building.contexts import find_citations
from citerec.formats.articles.jats import expand_ranges
from citerec.formats.documents import CitationSpan, Metadata, Reference
from citerec.tests.datasets.building.fuzzing import damaged, fuzzed, packed
from citerec.tests.datasets.building.test_build import TRAIN, content
from citerec.tests.datasets.conftest import archive_of, build_corpus
from citerec.tests.formats.articles.test_layouts import documents, read_text

ARTICLE = (Path(__file__).parent / "jats" / "frogs.nxml").read_text()


def write(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def test_an_article(tmp_path: Path) -> None:
    head = '<?xml version="1.0"?><!DOCTYPE article PUBLIC "-//NLM//DTD" "http://gone.example/journal.dtd">'
    metadata, text = read_text(write(tmp_path / "a.nxml", head + ARTICLE))
    assert metadata == Metadata(
        id="PMC12",
        title="Frogs of Java",
        abstract="Background: Frogs sing. Methods: We listened twice.",
        year=2012,
        authors=("Writer, Ann B", "Frog Group"),
        field=("Ecology",),
        identifiers=("pmid:77", "pmc:12", "doi:10.1000/main"),
    )
    assert text.references == {
        "B1": Reference(
            title="Songs of Rana at night",
            authors=("Diaz, B", "Kim"),
            year=2001,
            identifiers=("doi:10.1000/songs", "pmid:5"),
        ),
        "B2": Reference(
            title="The great book of frogs",
            authors=("Roe, C.",),
            year=1999,
            identifiers=("doi:10.1000/book",),
        ),
        "B3": Reference(title="Croaks", authors=("Lee, K",), year=2010),
        "B4": Reference(year=2003, text="Nobody A. A note without markup. Frog News 2003;4:1."),
        "B4.2": Reference(title="A second work in one entry"),
    }
    first, intro, listed, details = text.paragraphs
    assert (first.text, first.section) == ("Before any section.", "0 ")
    assert intro.text == "Frogs sing at night [1], by day 1–4 and in Fig. 2. Their song is loud."
    cited = [[(p.text[start:end], ref) for start, end, ref in p.citations] for p in (intro, listed, details)]
    assert cited == [
        [("1", "B1"), *(("1–4", ref) for ref in ("B1", "B2", "B3", "B4", "B4.2"))],
        [("2010", "B3")],
        [("1,2", "B1"), ("1,2", "B2"), ("9", "gone")],
    ]
    assert (intro.section, listed.section, details.section) == (*["1 Introduction"] * 2, "2 Details")


def test_elements_without_white_space_between_them(tmp_path: Path) -> None:
    article = ARTICLE.replace("<year>2012</year></pub", "<day>1</day><month>12</month><year>2012</year></pub")
    article = article.replace(
        "<article-title>Croaks</article-title><year>2010</year>",
        "<source>arXiv:0704.0001</source><year>2007</year>",
    )
    metadata, text = read_text(write(tmp_path / "a.nxml", article))
    assert metadata.year == 2012
    assert (text.references["B3"].arxiv, text.references["B3"].year) == ("0704.0001", 2007)


def pmc(article: str) -> str:
    return f"<pmc-articleset>{article}{article.replace('PMC12', 'PMC13')}</pmc-articleset>"


def oai(article: str) -> str:
    space = 'xmlns="https://jats.nlm.nih.gov/ns/archiving/1.3/"'
    records = article.replace("<article>", f"<article {space}>"), article.replace("PMC12", "PMC13")
    return f"<OAI-PMH>{''.join(f'<record>{item}</record>' for item in records)}</OAI-PMH>"


def zipped(article: str) -> bytes:
    files = {
        "x/a.nxml": article,
        "x/._a.nxml": "\0",
        "b.xml": article.replace("PMC12", "PMC13"),
        "b.pdf": "%PDF",
    }
    return archive_of({name: text.encode() for name, text in files.items()})


def tarred(article: str, kind: str = "tar.gz") -> bytes:
    names = ("PMC12", "PMC13")
    return archive_of({f"{name}.xml": article.replace("PMC12", name).encode() for name in names}, kind)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("set.xml", pmc),
        ("set.xml.gz", lambda article: gzip.compress(pmc(article).encode())),
        ("oai.xml", oai),
        ("a.zip", zipped),
        ("a.tar.gz", tarred),
        ("a.tar", lambda article: tarred(article, "tar")),
    ],
)
def test_several_articles_in_a_file(tmp_path: Path, name: str, content: Callable[[str], str | bytes]) -> None:
    result = documents(write(tmp_path / name, content(ARTICLE)))
    assert [document.metadata.id for document in result] == ["PMC12", "PMC13"]
    (alone,) = documents(write(tmp_path / "alone.xml", ARTICLE))
    for document in result:
        assert document.full_text is not None and alone.full_text is not None
        assert document.full_text() == alone.full_text()
        assert document.metadata._replace(id="", identifiers=()) == alone.metadata._replace(
            id="", identifiers=()
        )


def test_ids_of_articles_without_their_own(tmp_path: Path) -> None:
    """A DOI if there is no PMC id, else the name of the file."""
    only_doi = ARTICLE.replace('"pmc"', '"other"')
    assert read_text(write(tmp_path / "a.xml", only_doi))[0].id == "10.1000/main"
    result = documents(write(tmp_path / "b.xml", pmc(only_doi.replace('"doi"', '"other"'))))
    assert [document.metadata.id for document in result] == ["b", "b-2"]


def test_named_entities_of_the_document_type_are_known(tmp_path: Path) -> None:
    head = '<!DOCTYPE article SYSTEM "journal.dtd">'
    article = ARTICLE.replace("Frogs sing.", "Fr&ouml;gs&nbsp;sing &amp; &eacute;.")
    assert "Frögs sing & é." in read_text(write(tmp_path / "a.xml", head + article))[0].abstract


BOMB = "".join(f'<!ENTITY b{n} "{(f"&b{n - 1};" if n else "frog") * 20}">' for n in range(9))


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.xml", ARTICLE[:-30], "a.xml: malformed XML: unclosed token: line"),
        ("a.nxml", "<article><p></article>", "a.nxml: malformed XML: mismatched tag: line 1, column 14"),
        ("a.xml", "<article/>", "a.xml: <article> is not JATS: it has no <front> with <article-meta>"),
        ("a.xml", '<TEI xmlns="http://www.tei-c.org/ns/1.0"/>', "a.xml: the TEI document has no teiHeader"),
        ("a.xml", "", "a.xml: malformed XML: no element found"),
        ("a.xml", "<dblp/>", "a.xml: must be a JATS or TEI document, not 'dblp'"),
        ("a.xml", f"<!DOCTYPE article [{BOMB}]><article>&b8;</article>", "a.xml: malformed XML: limit on"),
        (
            "a.xml",
            '<!DOCTYPE article [<!ENTITY x SYSTEM "file:///etc/passwd">]><article>&x;</article>',
            "a.xml: malformed XML: undefined entity &x;: line",
        ),
        ("a.zip", zipped("<article/>"), "a.zip, file 'x/a.nxml': <article> is not JATS"),
        ("a.zip", zipped(ARTICLE)[:-9], "a.zip: the archive cannot be unpacked"),
        ("a.tar", tarred(ARTICLE, "tar").replace(b".xml", b".txt"), "a.tar: the archive cannot be unpacked"),
        ("a.tar.gz", tarred(ARTICLE * 9)[:-60], "a.tar.gz: "),
        ("a.tar", b"no archive", "a.tar: the archive cannot be unpacked"),
    ],
)
def test_files_that_cannot_be_read(tmp_path: Path, name: str, content: str | bytes, message: str) -> None:
    with pytest.raises(InputError) as error:
        documents(write(tmp_path / name, content))
    assert str(error.value).startswith(f"{tmp_path}/{message}") and "\n" not in str(error.value)


@fuzzed(150)
@given(data=st.data())
def test_a_damaged_article_is_read_or_refused(data: st.DataObject) -> None:
    content = data.draw(packed(data.draw(damaged(ARTICLE.encode()))))
    with TemporaryDirectory() as folder:
        path = write(Path(folder) / "a.nxml", content)
        try:
            for document in documents(path):
                if document.full_text is not None:
                    text = document.full_text()
                    assert all(item.ref in text.references for item in find_citations(text, 210, Counter()))
        except InputError as error:
            assert str(error).startswith(str(path)) and "\n" not in str(error)


# Ranges.


@given(text=st.text("1234 [],-–", max_size=12), data=st.data())
def test_spans_of_anything_keep_their_entries(text: str, data: st.DataObject) -> None:
    """No citation is lost, and every added one is an entry."""
    order = {f"r{n}": n for n in range(4)}
    spans, end = [], 0
    while end < len(text):
        start = data.draw(st.integers(end, len(text) - 1))
        end = data.draw(st.integers(start + 1, len(text)))
        any_ref = st.sampled_from([*order, "gone", None])
        refs = data.draw(st.lists(any_ref, min_size=1, max_size=3, unique=True))
        spans += [CitationSpan(start, end, ref) for ref in refs]
    result = list(expand_ranges(text, spans, order))
    for span in spans:
        assert any(
            item.start <= span.start and span.end <= item.end and item.ref == span.ref for item in result
        )
    assert {span.ref for span in result} <= {*order, "gone", None}
    ends = sorted({span[:2] for span in result})
    assert all(before[1] <= after[0] for before, after in pairwise(ends))


@pytest.mark.parametrize(
    ("text", "marked", "refs"),
    [
        ("1–3", [("1", "a"), ("3", "c")], ["a", "b", "c"]),
        ("[1]-[3]", [("1", "a"), ("3", "c")], ["a", "b", "c"]),
        ("(1)−(4)", [("1", "a"), ("4", "d")], ["a", "b", "c", "d"]),
        ("1\u20113", [("1\u20113", "a"), ("1\u20113", "c")], ["a", "b", "c"]),
        ("1—3", [("1—3", "a"), ("1—3", "b"), ("1—3", "c")], ["a", "b", "c"]),
        ("1, 3", [("1", "a"), ("3", "c")], ["a", "c"]),
        ("1–2–4", [("1", "a"), ("2", "b"), ("4", "d")], ["a", "b", "c", "d"]),
        ("4–1", [("4", "d"), ("1", "a")], ["d", "a"]),  # not upwards
        ("1–4", [("1", "a"), ("4", "c")], ["a", "c"]),  # other places in the list
        ("2010–2012", [("2010", "a"), ("2012", "c")], ["a", "b", "c"]),  # two apart, as in the list
        ("2-4", [("2-4", "b")], ["b", "c", "d"]),  # only the first is named
        ("2-9", [("2-9", "b")], ["b"]),  # beyond the list
        ("1-4", [("1", "a"), ("4", "gone")], ["a", "gone"]),
    ],
)
def test_ranges(text: str, marked: list[tuple[str, str]], refs: list[str]) -> None:
    order = {ref: place for place, ref in enumerate("abcd")}
    spans = [CitationSpan(text.index(part), text.index(part) + len(part), ref) for part, ref in marked]
    assert [span.ref for span in expand_ranges(text, spans, order)] == refs


# Corpora.

END = "and that is known of frogs which sing in the night and at the day"


def article(number: int, body: str, references: str) -> str:
    meta = f'<article-id pub-id-type="pmc">{number}</article-id>'
    meta += f'<article-id pub-id-type="doi">10.1/{number}</article-id>'
    title = f"<title-group><article-title>The article that has number {number}</article-title></title-group>"
    abstract = "<abstract><p>It is short.</p></abstract>" if number == 1 else ""
    front = f"<front><article-meta>{meta}{title}{abstract}</article-meta></front>"
    back = f"<back><ref-list>{references}</ref-list></back>"
    return f"<article>{front}<body><p>{body}</p></body>{back}</article>"


def entry(number: int, title: str, surname: str = "Diaz", year: int = 2001, **ids: str) -> str:
    numbers = "".join(f'<pub-id pub-id-type="{kind}">{value}</pub-id>' for kind, value in ids.items())
    name = f"<person-group><name><surname>{surname}</surname></name></person-group>"
    return (
        f'<ref id="B{number}"><element-citation>{name}<article-title>{title}</article-title>'
        f"<year>{year}</year>{numbers}</element-citation></ref>"
    )


def cite(*numbers: int) -> str:
    cites = ((number, f'<xref ref-type="bibr" rid="B{number}">{number}</xref>') for number in numbers)
    return " ".join(f"Sentence {number} [{xref}] {END}." for number, xref in cites)


def test_cited_works_with_only_a_title_are_candidates(tmp_path: Path) -> None:
    """Each is one paper, by DOI, PubMed id or title, and the article itself where it is one."""
    first = entry(1, "Songs of frogs in the tropical night", doi="10.2/x")
    first += entry(2, "Croaks", "Lee") + entry(3, "A work with a PubMed id alone", pmid="5")
    first += entry(4, "Number two", doi="https://doi.org/10.1/2")
    second = entry(1, "Frog song in the tropics", doi="10.2/X", pmid="9") + entry(2, "Croaks", "Roe")
    second += entry(3, "Songs of frogs in the tropical night!", year=2011) + entry(4, "Misprint", pmid="5")
    second += entry(5, "The article that has number 1", "") + entry(6, "Frog song in the tropics")
    (tmp_path / "in").mkdir()
    write(tmp_path / "in" / "1.xml", article(1, cite(1, 2, 3, 4), first))
    write(tmp_path / "in" / "2.xml", article(2, cite(1, 2, 3, 4, 5, 6), second))
    report = build_corpus(str(tmp_path / "in"), tmp_path / "out", TRAIN, candidates="title", per_pair=None)
    papers = content(tmp_path / "out", "papers.json.gz")
    contexts = content(tmp_path / "out", "contexts.json.gz").values()
    songs = "Songs of frogs in the tropical night"
    cited = sorted((item["citing_id"], papers[item["refid"]]["title"]) for item in contexts)
    assert cited == [
        ("PMC1", "A work with a PubMed id alone"),
        ("PMC1", "Croaks"),
        ("PMC1", songs),
        ("PMC1", "The article that has number 2"),
        ("PMC2", "A work with a PubMed id alone"),
        ("PMC2", "Croaks"),
        *[("PMC2", songs)] * 3,
        ("PMC2", "The article that has number 1"),
    ]
    assert len(papers) == 6  # Lee's and Roe's Croaks are two
    assert report.counts["papers"]["known by bibliography entries only"] == 4
    references = report.counts["references"]
    assert references == {"by DOI": 3, "by PubMed id": 2, "by title": 5}
    with pytest.raises(InputError, match="use candidates=title"):
        build_corpus(str(tmp_path / "in" / "1.xml"), tmp_path / "none", TRAIN)


def test_contexts_that_name_the_author_get_splits_of_their_own(tmp_path: Path) -> None:
    references = entry(1, "Songs of frogs in the tropical night") + entry(2, "Croaks at noon", "Lee")
    body = f"{END}. Diaz et al. [<xref ref-type='bibr' rid='B1'>1</xref>] {END} {END} {END} {END}. "
    body += f"Others heard (<xref ref-type='bibr' rid='B2'>2</xref>) {END} {END} {END} {END}. "
    body += f"Lee knew that {END} (<xref ref-type='bibr' rid='B2'>2</xref>)."
    path = write(tmp_path / "a.xml", article(1, body, references))
    options: dict[str, Any] = {"candidates": "title", "window": 100}
    counts = {}
    for leaks in ("drop", "keep", "named"):
        report = build_corpus(str(path), tmp_path / leaks, TRAIN, leaks=leaks, **options)
        counts[leaks] = dict(report.counts["splits"])
    assert counts == {"drop": {"train": 2}, "keep": {"train": 3}, "named": {"train": 1, "train_named": 2}}
    contexts = content(tmp_path / "named", "contexts.json.gz")
    splits = {
        split: [
            contexts[item["context_id"]]["masked_text"]
            for item in content(tmp_path / "named", f"{split}.json")
        ]
        for split in ("train", "train_named")
    }
    assert ". Diaz et al. [TARGETCIT] and that" in splits["train_named"][0]
    assert splits["train_named"][1].endswith("day (TARGETCIT).") and "Lee knew" in splits["train_named"][1]
    assert "Others heard (TARGETCIT)" in splits["train"][0]
    kept = gzip.decompress((tmp_path / "keep" / "contexts.json.gz").read_bytes()).decode()
    assert "Diaz" not in kept and "Lee knew" in kept
