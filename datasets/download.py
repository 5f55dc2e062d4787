"""Download what is published, before it is used: `python -m datasets.download NAME ...`."""

from __future__ import annotations

import argparse
import logging
import os

from datasets.errors import one_line_errors
from datasets.obtain import obtain
from datasets.releases import RELEASES, Release


def size_of(release: Release) -> str:
    """The size of what is downloaded, for people."""
    if release.size is not None:
        return f"{release.size / 1e6:,.0f} MB"
    return "size unknown" if release.rounded is None else f"about {release.rounded / 1e6:,.0f} MB"


@one_line_errors
def main() -> None:
    cache = os.environ.get("CITATION_CACHE", ".cache")
    table = [
        f"  {name:<18} {size_of(release):<14} {release.place(cache)!s:<34} {release.what}"
        for name, release in RELEASES.items()
    ]
    parser = argparse.ArgumentParser(
        prog="python -m datasets.download",
        description="Download published data sets, word vectors and checkpoints, each once.",
        epilog="names, sizes of the downloads, and where the files belong:\n" + "\n".join(table),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("names", nargs="+", choices=RELEASES, metavar="NAME", help="one of those below")
    parser.add_argument("--cache", default=cache, metavar="DIR", help="cache folder (%(default)s)")
    parser.add_argument("--from", dest="address", metavar="ADDRESS", help="another address, of a single NAME")
    options = parser.parse_args()
    if options.address and len(options.names) > 1:
        parser.error("--from goes with a single NAME")
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    for name in options.names:
        print(f"{name}: {obtain(name, options.cache, address=options.address)}")


if __name__ == "__main__":
    main()
