"""Full texts of a library: PDFs read, passages indexed and searched; seconds and bytes for 10,000 PDFs.

`--pdfs` papers of two columns are made and read. The index is of 10,000 papers: each text is that of several.
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import time
from pathlib import Path

import numpy as np

from citerec.datasets.tokenize import default_tokenize
from citerec.formats.bibliography.paper import LibraryPaper
from citerec.hatten.retriever import WordsRetriever
from citerec.hatten.static.model import StaticModel
from citerec.library.evidence.evidence import WordsEncoder
from citerec.library.evidence.index import update_index
from citerec.library.evidence.reading import read_files
from citerec.library.evidence.refresh import refresh_texts
from citerec.library.evidence.store import TextStore
from citerec.library.papers.models import BUILT_IN
from citerec.tests.made_pdfs import made_paper

GOAL = 10_000
"""Papers that figures are extrapolated to."""
CANDIDATES = 600
"""Papers that a question compares."""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument("--pdfs", type=int, default=1000)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--questions", type=int, default=200)
    args = parser.parse_args()
    model = StaticModel.open(BUILT_IN / "static").retriever()
    assert isinstance(model, WordsRetriever)
    encoder = WordsEncoder(model)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        files = [folder / f"{number}.pdf" for number in range(args.pdfs)]
        for number, file in enumerate(files):
            file.write_bytes(made_paper(number, by_rows=number % 10 == 0).pdf())
        times = GOAL / args.pdfs
        store = TextStore(folder / "texts", create=True)
        start, pages = time.perf_counter(), 0
        for file, found in read_files(files, args.workers):
            store.put([(str(file), 1, 1, found)])
            pages += found.pages
        seconds = time.perf_counter() - start
        print(
            f"read: {pages / seconds:.0f} pages/s with {args.workers} processes, {seconds * times / 60:.1f} "
            f"minutes for {GOAL:,} PDFs of {pages / args.pdfs:.0f} pages"
        )
        child = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1e6
        papers = {f"p{number:06}": str(files[number % args.pdfs]) for number in range(GOAL)}
        store.set_papers(papers, {})
        start = time.perf_counter()
        index = update_index(folder / "texts", store, encoder)
        assert index is not None
        seconds = time.perf_counter() - start
        texts = store.path.stat().st_size * times
        inside = sum(file.stat().st_size for file in (folder / "texts").rglob("*") if file.is_file())
        size = inside - store.path.stat().st_size + texts
        print(f"index: {len(index):,} passages in {seconds:.0f} s")
        print(f"disk: {size / 1e6:.0f} MB, of which texts {texts / 1e6:.0f}")
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
        print(f"memory: {memory:.2f} GB, and {child:.2f} in each process that reads")
        draw = np.random.default_rng(0)
        spent = []
        for number in draw.integers(args.pdfs, size=args.questions).tolist():
            words = default_tokenize(made_paper(number).sections[1][1][0])[:60]
            vector = encoder.encode_queries([" ".join(words)])[0]
            some = np.sort(draw.choice(GOAL, CANDIDATES, replace=False))
            weights = np.linspace(1, 0.2, len(words)).astype(np.float32)
            start = time.perf_counter()
            index.best(index.word_scores(words, weights))
            index.best(index.word_scores(words, np.ones_like(weights)), some)
            index.cosines(vector, index.passages_of(some)[0])
            spent.append(time.perf_counter() - start)
        print(f"question: {np.median(spent) * 1e3:.1f} ms more (median), {max(spent) * 1e3:.1f} at most")
        store.close()
        library = folder / "library"
        library.mkdir()
        entries = [LibraryPaper(f"key:{i}", files=(str(file),)) for i, file in enumerate(files)]
        refresh_texts(library, lambda: entries[:-1], encoder, workers=args.workers)
        start = time.perf_counter()
        refresh_texts(library, lambda: entries, encoder, workers=args.workers)
        print(f"one PDF more: {time.perf_counter() - start:.2f} s")


if __name__ == "__main__":
    main()
