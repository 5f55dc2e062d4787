"""Damage to the files of a library: cut, lengthened, flipped bits, removed, unreadable, of another library.

A library that is asked afterwards must answer as before, or refuse with one line that says what to do.

    python -m citerec.tests.faults.damage FLIPS     damages a library and prints what it did
"""

from __future__ import annotations

import os
import random
import shutil
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

from citerec.base.checksums import CHECKED
from citerec.base.errors import InputError
from citerec.library.ask.recommender import Recommender
from citerec.library.papers.folder import LOCK, damage_told
from citerec.library.papers.library import Library
from citerec.library.papers.models import ENCODED
from citerec.recommend import run
from citerec.tests.forked import exit_code

SOURCE = Path(__file__).parents[2] / "examples" / "library.bib"
QUESTION = "Adam [CITE] is an optimiser, as Robertson et al. show"
FLIPPED = 3
"""Bits flipped in a file at once."""
Change = Callable[[bytes, random.Random], bytes]
RESULTS = SAME, REFUSED = "the same answers", "refused with one line"


def flip(content: bytes, rng: random.Random) -> bytes:
    """Flip bits at random places."""
    flipped = bytearray(content)
    for bit in rng.sample(range(8 * len(content)), min(FLIPPED, 8 * len(content))):
        flipped[bit // 8] ^= 1 << bit % 8
    return bytes(flipped)


CHANGES: dict[str, Change] = {
    "cut to nothing": lambda content, _: b"",
    "cut to a byte": lambda content, _: content[:1],
    "cut to a third": lambda content, _: content[: len(content) // 3],
    "cut to a half": lambda content, _: content[: len(content) // 2],
    "cut by a byte": lambda content, _: content[:-1],
    "lengthened": lambda content, _: content + bytes(64),
}


@dataclass
class Damaged:
    """A library to damage, and another one. done: what came of each kind of damage."""

    path: Path
    other: Path
    done: Counter[tuple[str, str]] = field(default_factory=Counter)

    @classmethod
    def build(cls, folder: Path) -> Damaged:
        lines = SOURCE.read_text("utf-8")
        half = folder / "half.bib"
        half.write_text(lines[: lines.index("\n@", len(lines) // 2) + 1], "utf-8")
        for name, source in (("mine", SOURCE), ("other", half)):
            run(["build", f"library={folder / name}", f"source={source}"])
        for file in (folder / "mine").rglob("*"):  # some are hard links to the built-in model
            if file.is_file():
                own = file.with_name(f".{file.name}.own")
                shutil.copy2(file, own)
                own.replace(file)
        return cls(folder / "mine", folder / "other")

    def __post_init__(self) -> None:
        self.expected = self.answers()
        # Asking needs no lock, and what was compared before may be forgotten.
        self.files = [
            file
            for file in sorted(self.path.rglob("*"))
            if file.is_file()
            and file.stat().st_size
            and file.name not in (LOCK, CHECKED)
            and file.parent.name != ENCODED  # with a warning, papers are read again
        ]

    def answers(self) -> object:
        """Return what a new process answers."""
        recommender = Recommender.open(self.path)
        return recommender.recommend(QUESTION), recommender.search("learning")

    def judge(self, what: str, file: Path) -> str:
        """Ask, and count what came of it."""
        try:
            assert self.answers() == self.expected, f"{file} {what}: other answers"
            result = SAME
        except InputError as error:
            line = str(error)
            assert "\n" not in line and str(self.path) in line, line
            assert "citerec build" in line or "cannot be read" in line, line
            result = REFUSED
        self.done[what, result] += 1
        return result

    @contextmanager
    def without(self, file: Path) -> Iterator[Path]:
        """Put a file aside, and back."""
        aside = file.with_name(f".{file.name}.aside")
        file.rename(aside)
        try:
            yield aside
        finally:
            aside.replace(file)

    def change(self, file: Path, what: str, change: Change, seed: int = 0) -> str:
        """Ask with a file that was changed."""
        with self.without(file) as aside:
            content = aside.read_bytes()
            file.write_bytes(change(content, random.Random(seed)))
            return self.judge(what, file)

    def flip_bits(self, file: Path, seed: int) -> None:
        """Ask after bits have changed; and verify where, as on a failing disk, no time tells of it."""
        result = self.change(file, "bits flipped", flip, seed)
        stat, content = file.stat(), file.read_bytes()
        file.write_bytes(flip(content, random.Random(seed)))
        os.utime(file, ns=(stat.st_atime_ns, stat.st_mtime_ns))
        try:
            with damage_told(self.path):
                Library.open(self.path).verify()
        except InputError:
            self.done["bits flipped, times as before: verify", "told"] += 1
        else:
            assert result == SAME, f"{file}: verify finds no damage"
        finally:
            file.write_bytes(content)
            os.utime(file, ns=(stat.st_atime_ns, stat.st_mtime_ns))

    def remove(self, file: Path) -> None:
        with self.without(file):
            self.judge("removed", file)

    def exchange(self, file: Path) -> None:
        """Ask with the other library's file of that name, or one that is like it; both may have the same."""
        own = self.other / file.relative_to(self.path)
        source = own if own.is_file() else next(self.other.rglob(f"*{file.suffix}"))
        if source.is_dir() or (content := source.read_bytes()) != file.read_bytes():
            new = b"of another library" if source.is_dir() else content
            self.change(file, "of another library", lambda *_: new)

    def make_unreadable(self, file: Path) -> None:
        """Ask as a user who may not read the file."""

        def ask() -> None:
            if os.getuid() == 0:
                os.setgid(65534)
                os.setuid(65534)
            os._exit(10 + RESULTS.index(self.judge("unreadable", file)))

        mode = file.stat().st_mode
        file.chmod(0)
        try:
            code = exit_code(ask)
        finally:
            file.chmod(mode)
        assert code in (10, 11), f"{file} unreadable: exit {code}"
        self.done["unreadable", RESULTS[code - 10]] += 1

    def all_but_flips(self) -> None:
        """All damage but flipped bits, in every file."""
        for folder in (self.path, *self.path.parents[:3]):
            folder.chmod(0o755)
        for file in self.files:
            for what, change in CHANGES.items():
                self.change(file, what, change)
            self.remove(file)
            self.exchange(file)
            self.make_unreadable(file)

    def flips(self, count: int) -> None:
        """Flip bits `count` times, in each file as often as in another."""
        for number in range(count):
            self.flip_bits(self.files[number % len(self.files)], number)


def main(flips: int) -> None:
    """Damage a library, and print a table in Markdown."""
    with TemporaryDirectory() as folder:
        damaged = Damaged.build(Path(folder))
        damaged.all_but_flips()
        damaged.flips(flips)
        for (what, result), count in sorted(damaged.done.items()):
            print(f"| {what} | {result} | {count:,} |")


if __name__ == "__main__":
    main(int(sys.argv[1]))
