"""Full texts follow the library: what is read, kept, dropped and indexed."""

from __future__ import annotations

import os
import re
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from citerec.base.errors import InputError, StorageError
from citerec.datasets.tokenize import default_tokenize
from citerec.formats.bibliography.paper import LibraryPaper
from citerec.library.evidence import DATABASE, FOLDER
from citerec.library.evidence import index as index_module
from citerec.library.evidence import refresh as refresh_module
from citerec.library.evidence import store as store_module
from citerec.library.evidence.files import ABSENT, ALONE, WITHIN, PaperFinder
from citerec.library.evidence.index import FORMULA, PassageIndex, open_index
from citerec.library.evidence.passages import Passage
from citerec.library.evidence.reading import READER, ReadText, read_here, unreadable
from citerec.library.evidence.refresh import TextReport, read_cache, refresh_texts
from citerec.library.evidence.store import TextStore
from citerec.retrieval.lexical.bm25_formula import UNIT
from citerec.retrieval.lexical.terms import Tokenizer
from citerec.tests.library.evidence.made import paper_made, write_papers
from citerec.tests.retrieval.made import plain_bm25

Papers = list[LibraryPaper]


def read_all(files: Iterable[Path]) -> Iterator[tuple[Path, ReadText]]:
    """Read as `read_files` does, in this process."""
    for file in files:
        problem = unreadable(file)
        yield file, ReadText(problem=problem) if problem else read_here(file)


def refresh(library: Path, papers: Papers, read: Any = read_all, **options: Any) -> TextReport:
    library.mkdir(exist_ok=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(refresh_module, "read_files", read)
        return refresh_texts(library, lambda: papers, **options)


def opened(library: Path) -> tuple[TextStore, PassageIndex]:
    store = TextStore(library / FOLDER)
    index = open_index(library / FOLDER, store)
    assert index is not None
    return store, index


def texts_by_paper(library: Path) -> dict[str, list[str]]:
    store, index = opened(library)
    found = {paper: [passage.text for passage in store.text(paper)[1]] for paper in index.papers}
    assert [len(texts) for texts in found.values()] == np.diff(index.offsets).tolist()
    return found


def test_passages_are_indexed_as_a_plain_bm25_scores_them(tmp_path: Path) -> None:
    papers = write_papers(tmp_path, range(3))
    report = refresh(tmp_path / "library", papers)
    assert (report.papers, report.read, report.problems) == (3, 3, {})
    found = texts_by_paper(tmp_path / "library")
    for number, texts in enumerate(found.values()):
        made = paper_made(number)
        assert all(f" {text} " in f" {' '.join(' '.join(texts).split())} " for text in made.sections[1][1])
    _, index = opened(tmp_path / "library")
    query = default_tokenize(" ".join(paper_made(1).sections[0][1][0].split()[:12]))
    weights = np.linspace(1, 0.2, len(query)).astype(np.float32)
    stems, asked = Tokenizer("english", "en").terms, dict[str, float]()
    for word, weight in zip(query, weights.tolist(), strict=True):
        asked |= {stem: max(asked.get(stem, 0), weight) for stem in stems(word)}
    documents = [stems(text) for texts in found.values() for text in texts]
    expected, rounding = plain_bm25(documents, asked, FORMULA.k1, FORMULA.b), float(weights.sum() * UNIT) / 2
    np.testing.assert_allclose(index.word_scores(query, weights), expected, rtol=1e-5, atol=rounding)
    assert index.best(index.word_scores(query, weights)).argmax() == 1


def test_nothing_is_read_twice_and_the_text_goes_with_its_paper(tmp_path: Path) -> None:
    papers, library = write_papers(tmp_path, range(4)), tmp_path / "library"
    assert refresh(library, papers).read == 4
    before = texts_by_paper(library)
    assert refresh(library, papers).read == 0
    report = refresh(library, papers[1:])
    assert (report.papers, report.read) == (3, 0)
    after = texts_by_paper(library)
    assert after == {paper: texts for paper, texts in before.items() if paper != papers[0].id}
    content = b"".join(file.read_bytes() for file in (library / FOLDER).rglob("*") if file.is_file())
    assert papers[0].id.encode() not in content
    assert len([path for path in (library / FOLDER).iterdir() if path.is_dir()]) == 1
    assert refresh(library, papers).read == 1  # its text was dropped


def test_what_another_version_read_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    library, papers = tmp_path / "library", write_papers(tmp_path, range(3))
    refresh(library, papers)
    before = texts_by_paper(library)
    Path(papers[0].files[0]).unlink()
    monkeypatch.setattr(store_module, "READER", READER + 1)
    assert [refresh(library, papers).read for _ in range(2)] == [2, 0]
    assert texts_by_paper(library) == before  # also of the file that is gone


def test_a_changed_file_is_read_again(tmp_path: Path) -> None:
    papers, library = write_papers(tmp_path, range(2)), tmp_path / "library"
    refresh(library, papers)
    (tmp_path / "1.pdf").write_bytes(paper_made(7).pdf())
    assert refresh(library, papers).read == 1
    found = " ".join(" ".join(texts_by_paper(library)[papers[1].id]).split())
    assert f" {' '.join(paper_made(7).abstract.split()[:20])} " in f" {found} "


def test_a_file_that_may_not_be_read_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    papers, library = write_papers(tmp_path, range(1)), tmp_path / "library"
    monkeypatch.setattr(os, "access", lambda file, _: Path(file).suffix != ".pdf")
    refused = refresh(library, papers, lambda files: ((file, ReadText(problem="refused")) for file in files))
    assert [*refused.problems.values()] == ["refused"]
    assert refresh(library, papers).read == 1


def test_an_index_of_texts_that_changed_is_that_of_all_texts(tmp_path: Path) -> None:
    papers, library = write_papers(tmp_path, range(8)), tmp_path / "library"
    refresh(library, papers[:5])
    refresh(library, papers)
    refresh(library, [*papers[:2], *papers[3:]])
    _, changed = opened(library)
    whole = tmp_path / "whole"
    refresh(whole, [*papers[:2], *papers[3:]])
    _, anew = opened(whole)
    assert [*changed.papers] == [*anew.papers]
    assert changed.offsets.tolist() == anew.offsets.tolist()
    words = default_tokenize(" ".join(paper_made(5).sections[1][1]))
    ones = np.ones(len(words), np.float32)
    assert np.array_equal(changed.word_scores(words, ones), anew.word_scores(words, ones))


@pytest.mark.parametrize("after", [0, 1, 2])
def test_a_refresh_that_is_stopped_goes_on(tmp_path: Path, after: int) -> None:
    class Stopped(BaseException):
        pass

    def stopping(files: Iterable[Path]) -> Iterator[tuple[Path, ReadText]]:
        for number, found in enumerate(read_all(files)):
            if number == after:
                raise Stopped
            yield found

    papers, library = write_papers(tmp_path, range(3)), tmp_path / "library"
    with pytest.raises(Stopped):
        refresh(library, papers, read=stopping)
    assert refresh(library, papers).read == 3 - after
    assert len(texts_by_paper(library)) == 3


def test_an_indexing_that_is_stopped_leaves_the_former(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    papers, library = write_papers(tmp_path, range(3)), tmp_path / "library"
    refresh(library, papers[:2])
    before = opened(library)[1].papers

    def stop(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(index_module, "write_checksums", stop)
        with pytest.raises(KeyboardInterrupt):
            refresh(library, papers)
    assert opened(library)[1].papers == before
    assert refresh(library, papers).read == 0
    assert len(opened(library)[1].papers) == 3


def test_a_full_disk_is_told_and_what_was_read_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    papers, library = write_papers(tmp_path, range(2)), tmp_path / "library"
    refresh(library, papers[:1])
    connect = TextStore.__init__

    def small(self: TextStore, folder: Path, create: bool = False) -> None:
        connect(self, folder, create)
        [(pages,)] = self._database.execute("PRAGMA page_count")
        self._database.execute(f"PRAGMA max_page_count = {pages}")

    with monkeypatch.context() as patch:
        patch.setattr(TextStore, "__init__", small)
        with pytest.raises(StorageError, match=r"fulltexts: no space left for full texts"):
            refresh(library, papers)
    assert [*texts_by_paper(library)] == [papers[0].id]
    report = refresh(library, papers)
    assert (report.papers, report.read) == (2, 1)


def test_what_no_longer_exists_is_told_and_its_text_kept(tmp_path: Path) -> None:
    papers, library = write_papers(tmp_path, range(3)), tmp_path / "library"
    lost = papers[2]._replace(files=("/nowhere/lost.pdf",))
    assert refresh(library, [*papers[:2], lost]).problems == {"/nowhere/lost.pdf": "no such file"}
    before = texts_by_paper(library)
    [gone] = papers[1].files
    Path(gone).unlink()
    report = refresh(library, [*papers[:2], lost])
    kept = {gone: "no such file; its text is kept", "/nowhere/lost.pdf": "no such file"}
    assert report.problems == kept and (report.read, report.changed) == (0, False)
    assert texts_by_paper(library) == before
    refresh(library, papers[:1])
    assert list(texts_by_paper(library)) == list(before)[:1]


def test_texts_of_a_folder_of_pdfs_are_kept_without_the_pdfs(tmp_path: Path) -> None:
    pdfs, library = tmp_path / "pdfs", tmp_path / "library"
    papers = [paper._replace(files=()) for paper in write_papers(pdfs, range(3))]
    refresh(library, papers, pdfs=[str(pdfs)])
    before = texts_by_paper(library)
    (pdfs / "1.pdf").unlink()
    (pdfs / "2.pdf").rename(pdfs / "renamed.pdf")
    report = refresh(library, papers, pdfs=[str(pdfs)])
    assert report.problems == {str(pdfs / "1.pdf"): "no such file; its text is kept"}
    assert (report.papers, texts_by_paper(library)) == (3, before)
    pdfs.rename(tmp_path / "elsewhere")
    report = refresh(library, papers[1:], pdfs=[str(pdfs)])
    assert report.lines == [f"pdfs={pdfs}: no such folder; the texts of its PDFs are kept"]
    assert texts_by_paper(library) == {paper.id: before[paper.id] for paper in papers[1:]}
    assert refresh(library, papers[1:]).papers == 0  # the folder is no longer named


@pytest.mark.parametrize("order", [1, -1])
def test_of_two_files_the_one_that_is_no_scan_is_read_and_its_text_kept(tmp_path: Path, order: int) -> None:
    library, scan, [paper] = tmp_path / "library", tmp_path / "scan.pdf", write_papers(tmp_path, [0])
    scan.write_bytes(b"%PDF no")
    both = paper._replace(files=(*paper.files, str(scan))[::order])
    report = refresh(library, [both])
    assert report.papers == 1
    assert order == 1 or report.problems == {str(scan): "is not a PDF, or is damaged"}
    before = texts_by_paper(library)
    Path(paper.files[0]).unlink()
    assert refresh(library, [both]).problems[paper.files[0]] == "no such file; its text is kept"
    assert texts_by_paper(library) == before


def test_a_folder_of_pdfs_is_matched_by_doi_arxiv_and_title(tmp_path: Path) -> None:
    pdfs = tmp_path / "pdfs"
    papers = [paper._replace(files=()) for paper in write_papers(pdfs, range(4))]
    papers[1] = papers[1]._replace(id="key:a", doi="")
    papers[2] = papers[2]._replace(
        id="arxiv:2001.00002", doi="", arxiv="2001.00002", title="Another title of it"
    )
    (pdfs / "2.pdf").rename(pdfs / "2001.00002v3.pdf")
    (pdfs / "link.pdf").symlink_to(write_papers(tmp_path / "elsewhere", [9])[0].files[0])
    (pdfs / "other\udce9.pdf").write_bytes(b"x")
    report = refresh(tmp_path / "library", papers[:3], pdfs=[str(pdfs)])
    assert report.papers == 3
    assert [re.sub(".*/", "", line) for line in report.lines] == [
        "link.pdf: is a link out of the folder, and was not read",
        "other?.pdf: the name is not UTF-8; rename the file or folder",
        "  1 PDF of no paper in the library",
    ]
    store, index = opened(tmp_path / "library")
    files = {Path(store.text(paper)[0].file).name for paper in index.papers}
    assert files == {"0.pdf", "1.pdf", "2001.00002v3.pdf"}
    report = refresh(tmp_path / "library", papers, pdfs=[str(pdfs)])
    assert (report.papers, report.read) == (4, 1)  # the text of a PDF without a paper had been dropped


TITLE, OTHER = "Kestrels hunting along verges of roads", "Buzzards soaring over the uplands in spring"


@pytest.mark.parametrize(
    ("head", "printed", "way"),
    [
        ("Review\nKestrels hunting along\nverges of roads *", TITLE, ALONE),
        (f"RETRACTED ARTICLE: {TITLE}", TITLE, WITHIN),
        ("Kestrels hunting on verges", "Kestrels hunting on verges", ABSENT),
        (f"{TITLE}\nRelated: Comment on '{TITLE}'", TITLE, ALONE),
        (f"Comment on:\n{TITLE}", TITLE, None),
        (f"Electronic Supplementary Information (ESI) for\n{TITLE}", TITLE, None),
        (f"{TITLE}\nOnline appendix", TITLE, None),
        (f"Author Correction: {TITLE}", TITLE, None),
        (f"{OTHER}\nas in {TITLE},", OTHER, None),
        (f"{OTHER}\nData are those of doi:10.1/a", OTHER, None),
    ],
)
def test_a_doi_counts_unless_the_title_says_another_work(head: str, printed: str, way: int | None) -> None:
    text = ReadText(title=printed, head=f"{head}\nA. Author", identifiers=["doi:10.1/a"])
    found = PaperFinder([LibraryPaper("p", title=TITLE, doi="10.1/a")]).find(Path("a.pdf"), text)
    assert found == (("", ABSENT) if way is None else ("p", way))


def test_of_several_pdfs_of_a_paper_the_best_is_taken(tmp_path: Path) -> None:
    pdfs, made = tmp_path / "pdfs", paper_made(0)
    [paper] = write_papers(pdfs, [0])
    for name, title in (("0 (1)", "{}"), ("-", "Reprint of {}"), ("0-supplement", "Supplementary data: {}")):
        again = replace(made, title=title.format(made.title), first_page=[f"doi:{paper.doi}"])
        (pdfs / f"{name}.pdf").write_bytes(again.pdf())
    for files in ((), paper.files):
        report = refresh(tmp_path / "library", [paper._replace(files=files)], pdfs=[str(pdfs)])
        assert report.lines[0] == "  2 PDFs of papers with another: 0 (1).pdf, -.pdf"
        assert opened(tmp_path / "library")[0].text(paper.id)[0].file == str(pdfs / "0.pdf")


def test_notes_are_passages_of_the_paper(tmp_path: Path) -> None:
    papers, library = write_papers(tmp_path, range(2)), tmp_path / "library"
    note = Passage("Use this one for the zygomorphic claim.", [(0, 3)], "", "note")
    refresh(library, papers, notes={papers[0].files[0]: [note]})
    store, index = opened(library)
    assert store.text(papers[0].id)[1][-1] == note
    scores = index.word_scores(["zygomorphic"], np.ones(1, np.float32))
    assert scores.argmax() == index.offsets[1] - 1
    refresh(library, papers)
    assert opened(library)[1].word_scores(["zygomorphic"], np.ones(1, np.float32)).max() == 0
    refresh(library, [])
    assert open_index(library / FOLDER, TextStore(library / FOLDER)) is None


def test_zoteros_text_is_read_where_the_pdf_is_not_here(tmp_path: Path) -> None:
    storage = tmp_path / "storage/ABCD2345"
    storage.mkdir(parents=True)
    text = "A page of zygo-\nmorphic words.\n\nAnother paragraph.\fThe second page has this."
    (storage / ".zotero-ft-cache").write_text(text)
    paper = LibraryPaper("key:a", files=(str(storage / "a.pdf"),))
    refresh(tmp_path / "library", [paper])
    [passage] = opened(tmp_path / "library")[0].text("key:a")[1]
    assert passage.text == "A page of zygomorphic words.\nAnother paragraph.\nThe second page has this."
    assert passage.starts == [(0, 1), (48, 2)]
    text = "Abstract\nIt is short.\n\n1 Introduction\n\nIt is long.\n\nReferences\n\n[1] A. Other. 1999.\n"
    (storage / ".zotero-ft-cache").write_text(text)
    assert [(part.text, part.section) for part in read_cache(storage / "a.pdf").parts] == [
        ("It is short.", "Abstract"),
        ("It is long.", "1 Introduction"),
    ]


def test_texts_of_another_version_are_read_again(tmp_path: Path) -> None:
    report = refresh(tmp_path, [LibraryPaper("key:a")])
    with closing(sqlite3.connect(tmp_path / FOLDER / DATABASE)) as database:
        database.executescript("INSERT INTO links VALUES ('a', 1, 'b'); PRAGMA user_version = 2")
    with pytest.raises(InputError, match="of another version; remove it and build with fulltext=true"):
        TextStore(tmp_path / FOLDER)
    assert refresh(tmp_path, [LibraryPaper("key:a")]) == report
    assert TextStore(tmp_path / FOLDER).links() == []


def test_a_text_of_zotero_that_is_no_file_of_its_folder_is_not_read(tmp_path: Path) -> None:
    cache = tmp_path / "a" / ".zotero-ft-cache"
    cache.parent.mkdir()
    (tmp_path / "secret").write_text("Other text.")
    for make, problem in (
        (lambda: os.mkfifo(cache), "is not a file"),
        (lambda: cache.symlink_to(tmp_path / "secret"), "is a link out of its folder"),
        (lambda: cache.open("w").truncate(3 << 30), "has 3,221 MB"),
    ):
        make()
        text = read_cache(cache.with_name("a.pdf"))
        assert problem in text.problem and not text.parts
        cache.unlink()
