"""Building a corpus from full texts, compared with parsing the same JSON lines with orjson alone.

The full texts are generated from contexts: 60 kB each, with 90 citations of 40 references, 16 of which are
papers of the collection; every second text has numeric markers.
"""

from __future__ import annotations

import random
import tempfile
from itertools import islice
from pathlib import Path
from typing import Any

import orjson

from citerec.benchmarks._common import make_parser, setup, source_folder, time_call
from citerec.datasets.build import build_corpus
from citerec.datasets.fulltext.documents import Metadata
from citerec.datasets.records import OTHER_MARKER, SPLITS, TARGET_MARKER
from citerec.datasets.source_files import find_files, read_contexts, read_papers, reject_bad
from citerec.datasets.splitting import RandomSplitting


def full_text(number: int, texts: list[str], papers: list[Metadata], draw: random.Random) -> dict[str, Any]:
    cited = draw.sample(papers, 40)
    entries: dict[str, dict[str, Any]] = {
        f"b{i}": {"title": paper.title, "authors": paper.authors, "year": paper.year}
        for i, paper in enumerate(cited)
    }
    for i in range(16):
        entries[f"b{i}"]["paper"] = cited[i].id
    body = []
    for section in range(10):
        text, cites = "", []
        for _ in range(9):
            text += f"{draw.choice(texts)} {draw.choice(texts)} "[:650]
            i = draw.randrange(40)
            name = cited[i].authors[0].split()[-1]
            marker = f"[{i + 1}]" if number % 2 else f"({name} et al., {cited[i].year})"
            cites.append({"start": len(text), "end": len(text) + len(marker), "ref": f"b{i}"})
            text += f"{marker}. "
        body.append({"section": str(section), "text": text, "cites": cites})
    record = {"id": f"text-{number}", "title": f"Full text {number}", "abstract": texts[number % len(texts)]}
    return record | {"body": body, "bibliography": entries}


def authors(number: int) -> tuple[str, ...]:
    return tuple(f"Given{number % 97} Family{letter}{number % 7919}" for letter in "abcd")


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--texts", type=int, default=300)
    args = parser.parse_args()
    setup(args)
    draw = random.Random(0)
    with tempfile.TemporaryDirectory() as scratch:
        files = find_files(source_folder(args, Path(scratch), 2_000, 8_000), None, SPLITS)
        contexts = islice(reject_bad(read_contexts(files["contexts"])), 20_000)
        texts = [text.text.replace(TARGET_MARKER, "it").replace(OTHER_MARKER, "that") for text in contexts]
        read = enumerate(islice(reject_bad(read_papers(files["papers"])), 20_000))
        kept = [(number, paper) for number, paper in read if paper.abstract]
        papers = [Metadata(p.id, p.title, p.abstract, p.year or 2000, authors(n)) for n, p in kept]
        lines = [orjson.dumps({**paper._asdict(), "identifiers": None}) for paper in papers]
        lines += [orjson.dumps(full_text(number, texts, papers, draw)) for number in range(args.texts)]
        file = Path(scratch) / "texts.jsonl"
        file.write_bytes(b"\n".join(lines))
        size = file.stat().st_size / 1e6
        print(f"{size:.0f} MB of generated JSON")
        parsed = time_call(args, lambda: [orjson.loads(line) for line in lines])
        everything, few = Path(scratch) / "all", Path(scratch) / "papers"
        built = time_call(
            args, lambda: build_corpus(str(file), everything, RandomSplitting(0.8, 0.1, 0.1, 0))
        )
        file.write_bytes(b"\n".join(lines[: len(papers) + 1]))
        baseline = time_call(args, lambda: build_corpus(str(file), few, RandomSplitting(1, 0, 0, 0)))
    print(
        f"built {size / built:.1f} MB/s ({built:.1f} s), orjson alone {size / parsed:.1f} MB/s: "
        f"{parsed / built:.1%} of its speed; {(built - baseline) / (args.texts - 1) * 1000:.1f} ms per full "
        f"text, {baseline / len(papers) * 1000:.2f} ms per paper without full text"
    )


if __name__ == "__main__":
    main()
