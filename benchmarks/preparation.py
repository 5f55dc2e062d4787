"""Source files prepared per second, compared with parsing the same files with orjson alone."""

from __future__ import annotations

import gzip
import tempfile
from pathlib import Path

import orjson

from citerec.benchmarks._common import make_parser, setup, source_folder, time_call
from citerec.datasets.prepare import open_corpus
from citerec.datasets.records import SPLITS
from citerec.datasets.source_files import find_files


def read_text(path: Path) -> bytes:
    content = path.read_bytes()
    return gzip.decompress(content) if content[:2] == b"\x1f\x8b" else content


def main() -> None:
    args = make_parser(__doc__).parse_args()
    setup(args)
    with tempfile.TemporaryDirectory() as scratch:
        folder = source_folder(args, Path(scratch), 20_000, 80_000)
        files = list(find_files(folder, None, SPLITS).values())
        size = sum(len(read_text(path)) for path in files) / 1e6
        print(f"{size:.0f} MB of JSON")
        unpacked = time_call(args, lambda: [read_text(path) for path in files])
        parsed = time_call(args, lambda: [orjson.loads(read_text(path)) for path in files])
        prepared = time_call(args, lambda: open_corpus(folder, cache_dir=Path(scratch) / "cache"))
        again = time_call(args, lambda: open_corpus(folder, cache_dir=Path(scratch) / "cache"))
    print(
        f"prepared {size / prepared:.1f} MB/s ({prepared:.1f} s), orjson alone {size / parsed:.1f} MB/s "
        f"({parsed:.1f} s, including {unpacked:.1f} s of reading and decompressing); "
        f"{parsed / prepared:.0%} of its speed; opened again in {again * 1000:.0f} ms"
    )


if __name__ == "__main__":
    main()
