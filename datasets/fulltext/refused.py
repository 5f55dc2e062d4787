"""Records of full texts that cannot be used: the first one is an error, or they are left out and counted."""

from __future__ import annotations

from dataclasses import dataclass, field

from datasets.bad_records import refuse
from datasets.errors import InputError

EXAMPLES = 20
"""Records left out that the report names, the first ones."""


@dataclass
class Refused:
    """max_share: of the records that may be left out; None: the first one is an error."""

    max_share: float | None
    read: int = 0
    """Records that can be used."""
    left_out: int = 0
    examples: list[str] = field(default_factory=list)

    def __call__(self, error: InputError) -> None:
        if self.max_share is None:
            refuse(error)
        self.left_out += 1
        if len(self.examples) < EXAMPLES:
            self.examples.append(str(error))

    def again(self, error: InputError) -> None:
        """For a record that was read before, and refused."""
        if self.max_share is None:
            refuse(error)

    def late(self, error: InputError) -> None:
        """For a record that was read before, of which the full text cannot be used."""
        self.read -= 1
        self(error)

    def check(self) -> None:
        """Raises InputError if too large a share was left out."""
        records = self.read + self.left_out
        if self.max_share is not None and self.left_out > self.max_share * records:
            raise InputError(
                f"source: {self.left_out:,} of {records:,} records ({self.left_out / records:.2%}) cannot be "
                f"used, more than max_bad_share={self.max_share:g} allows; the first: {self.examples[0]}"
            )
