"""Full texts built into a corpus, against parsing the same JSON lines with orjson alone.

The full texts are made of contexts: 60 kB each, with 90 citations of 40 references, 16 of which are papers of
the collection; every second text has numeric markers.
"""

from __future__ import annotations

import random
import tempfile
from itertools import islice
from pathlib import Path
from typing import Any

import orjson

from benchmarks._common import arguments, begin, seconds, source
from datasets.build import build_corpus
from datasets.fulltext.documents import Metadata
from datasets.records import OTHER_MARKER, SPLITS, TARGET_MARKER
from datasets.source_files import find_files, read_contexts, read_papers, strict
from datasets.splitting import RandomSplitting


def full_text(number: int, texts: list[str], papers: list[Metadata], draw: random.Random) -> dict[str, Any]:
    cited = draw.sample(papers, 40)
    entries: dict[str, dict[str, Any]] = {
        f"b{place}": {"title": paper.title, "authors": paper.authors, "year": paper.year}
        for place, paper in enumerate(cited)
    }
    for place in range(16):
        entries[f"b{place}"]["paper"] = cited[place].id
    body = []
    for section in range(10):
        text, cites = "", []
        for _ in range(9):
            text += f"{draw.choice(texts)} {draw.choice(texts)} "[:650]
            place = draw.randrange(40)
            name = cited[place].authors[0].split()[-1]
            marker = f"[{place + 1}]" if number % 2 else f"({name} et al., {cited[place].year})"
            cites.append({"start": len(text), "end": len(text) + len(marker), "ref": f"b{place}"})
            text += f"{marker}. "
        body.append({"section": str(section), "text": text, "cites": cites})
    record = {"id": f"text-{number}", "title": f"Full text {number}", "abstract": texts[number % len(texts)]}
    return record | {"body": body, "bibliography": entries}


def authors(number: int) -> tuple[str, ...]:
    return tuple(f"Given{number % 97} Family{letter}{number % 7919}" for letter in "abcd")


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--texts", type=int, default=300)
    args = parser.parse_args()
    begin(args)
    draw = random.Random(0)
    with tempfile.TemporaryDirectory() as scratch:
        files = find_files(source(args, Path(scratch), 2_000, 8_000), None, SPLITS)
        contexts = islice(strict(read_contexts(files["contexts"])), 20_000)
        texts = [text.text.replace(TARGET_MARKER, "it").replace(OTHER_MARKER, "that") for text in contexts]
        read = enumerate(islice(strict(read_papers(files["papers"])), 20_000))
        kept = [(number, paper) for number, paper in read if paper.abstract]
        papers = [Metadata(p.id, p.title, p.abstract, p.year or 2000, authors(n)) for n, p in kept]
        lines = [orjson.dumps({**paper._asdict(), "identifiers": None}) for paper in papers]
        lines += [orjson.dumps(full_text(number, texts, papers, draw)) for number in range(args.texts)]
        file = Path(scratch) / "texts.jsonl"
        file.write_bytes(b"\n".join(lines))
        size = file.stat().st_size / 1e6
        print(f"{size:.0f} MB made of them")
        parsed = seconds(args, lambda: [orjson.loads(line) for line in lines])
        some, one = Path(scratch) / "all", Path(scratch) / "papers"
        built = seconds(args, lambda: build_corpus(str(file), some, RandomSplitting(0.8, 0.1, 0.1, 0)))
        file.write_bytes(b"\n".join(lines[: len(papers) + 1]))
        alone = seconds(args, lambda: build_corpus(str(file), one, RandomSplitting(1, 0, 0, 0)))
    print(
        f"built {size / built:.1f} MB/s ({built:.1f} s), orjson alone {size / parsed:.1f} MB/s: "
        f"{parsed / built:.1%} of its speed; {(built - alone) / (args.texts - 1) * 1000:.1f} ms a full text, "
        f"{alone / len(papers) * 1000:.2f} ms a paper without one"
    )


if __name__ == "__main__":
    main()
