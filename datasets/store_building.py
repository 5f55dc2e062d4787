"""The passes that turn source records into a store's files, and the checks between records."""

from __future__ import annotations

import logging
from array import array
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from datasets.bad_records import BadRecord, Dropped, Kind, shown
from datasets.errors import InputError
from datasets.json_text import OnBytes
from datasets.ragged import offsets_of
from datasets.schema import TRAIN, split_group
from datasets.source import Context, Paper, read_contexts, read_papers, read_split
from datasets.tokenization import TOKENIZERS
from datasets.writing import NameWriter, TextWriter, TokenWriter, save_array, write_words

log = logging.getLogger(__name__)

LONG_TEXT = 50_000
"""Characters of a title and abstract from which a paper is reported as unusual."""

Reading = AbstractContextManager[OnBytes]


class StoreBuilder:
    """Call add_papers, add_contexts, add_split for each split, then finish; leaves the files in `folder`.

    tokenizer: its name. field: the key of papers that holds their fields; None: they have none.
    max_bad_share: the share of a file's records that may be bad, which are then left out; None: the first one
    is an error.
    `dropped` tells of the bad records by part of the source, as `papers` or `split train`.
    """

    def __init__(
        self,
        folder: Path,
        tokenizer: str,
        field: str | None = None,
        max_bad_share: float | None = None,
    ) -> None:
        from datasets.word_table import WordTable  # a heavy import: a store that is there does without it

        self._folder, self._field, self._max_bad_share = folder, field, max_bad_share
        self._tokenizer = tokenizer
        self.dropped: dict[str, Dropped] = {}
        self._fields = NameWriter(folder, "fields")
        self._words = WordTable(TOKENIZERS[tokenizer])
        self._papers = TextWriter(folder / "papers.arrow", ("id", "title", "abstract"))
        self._contexts = TextWriter(folder / "contexts.arrow", ("id", "text"))
        self._titles = TokenWriter(folder, "title_tokens", self._words)
        self._abstracts = TokenWriter(folder, "abstract_tokens", self._words)
        self._context_tokens = TokenWriter(folder, "context_tokens", self._words)
        self._writers = (self._papers, self._contexts, self._titles, self._abstracts, self._context_tokens)
        self._paper_rows: dict[str, int] = {}
        self._context_rows: dict[str, int] = {}
        self._years = array("i")
        self._has_abstract = bytearray()
        self._long = 0
        self._citing = array("i")
        # Per split (in the order of adding): rows of contexts, rows of cited papers, number of cited papers.
        self._splits: dict[str, tuple[array[int], array[int], array[int]]] = {}
        self._split_of_context = array("h")  # 1 + number of the split, 0 for none
        self._split_of_paper = array("h")  # the same for the first split that a paper cites in

    def __enter__(self) -> StoreBuilder:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for writer in self._writers:
            with suppress(OSError) if error is not None else nullcontext():
                writer.close()

    def add_papers(self, path: Path, reading: Reading) -> None:
        bad = self._bad("papers", path)
        with reading as on_bytes:
            self._take_papers(path, on_bytes, bad)
        bad.finish(len(self._paper_rows))
        if not self._paper_rows:
            raise InputError(f"{path}: no papers")
        if self._field and not self._fields:
            raise InputError(f"{path}: no paper has the field {self._field!r} that data.field names")
        if self._long:
            log.warning(
                "%s: %d papers of %d characters or more are cut by the models", path, self._long, LONG_TEXT
            )

    def _take_papers(self, path: Path, on_bytes: OnBytes, bad: Dropped) -> None:
        for paper in read_papers(path, on_bytes, self._field, bad):
            if self._take_paper(path, paper, bad):
                self._titles.append(paper.title)
                self._abstracts.append(paper.abstract)

    def _take_paper(self, path: Path, paper: Paper, bad: Dropped) -> bool:
        """All but its words; whether it is taken."""
        row = len(self._paper_rows)
        if self._paper_rows.setdefault(paper.id, row) != row:
            bad(BadRecord("duplicate id", path, paper.id, "a paper of this id is there already"))
            return False
        self._papers.append(paper.id, paper.title, paper.abstract)
        self._years.append(paper.year)
        self._fields.append(paper.fields)
        self._has_abstract.append(bool(paper.abstract.strip()))
        self._long += len(paper.title) + len(paper.abstract) >= LONG_TEXT
        return True

    def add_contexts(self, path: Path, reading: Reading) -> None:
        """Call after add_papers."""
        bad = self._bad("contexts", path)
        with reading as on_bytes:
            self._take_contexts(path, on_bytes, bad)
        bad.finish(len(self._context_rows))

    def _take_contexts(self, path: Path, on_bytes: OnBytes, bad: Dropped) -> None:
        for context in read_contexts(path, on_bytes, bad):
            if self._take_context(path, context, bad):
                self._context_tokens.append(context.text)

    def _take_context(self, path: Path, context: Context, bad: Dropped) -> bool:
        """All but its words; whether it is taken."""
        rows, papers = self._context_rows, self._paper_rows
        citing = papers.get(context.citing_id)
        if context.id in rows:
            bad(BadRecord("duplicate id", path, context.id, "a context of this id is there already"))
        elif citing is None:
            bad(self._no_paper(path, context.id, "citing_id", context.citing_id))
        elif context.cited_id is not None and context.cited_id not in papers:
            bad(self._no_paper(path, context.id, "refid", context.cited_id))
        else:
            rows[context.id] = len(rows)
            self._contexts.append(context.id, context.text)
            self._citing.append(citing)
            return True
        return False

    def add_split(self, name: str, path: Path) -> None:
        """Call after add_papers and add_contexts."""
        contexts, positives, lengths = array("q"), array("i"), array("i")
        self._splits[name] = contexts, positives, lengths
        names, number = list(self._splits), len(self._splits)
        of_context = self._grow(self._split_of_context, len(self._context_rows))
        of_paper = self._grow(self._split_of_paper, len(self._paper_rows))
        bad = self._bad(f"split {name}", path)
        for query in read_split(path, on_bad=bad):
            row = self._context_rows.get(query.context_id)
            unknown = next((paper for paper in query.positive_ids if paper not in self._paper_rows), None)
            if row is None:
                bad(self._no_context(path, query.record, query.context_id))
            elif unknown is not None:
                bad(self._no_paper(path, query.record, "positive_ids", unknown))
            elif earlier := of_context[row]:
                which = "this split" if earlier == number else f"split {names[earlier - 1]!r}"
                reason = f"context {shown(query.context_id)} is in {which} already"
                bad(BadRecord("in two splits", path, query.record, reason, "context_id"))
            elif split_group(other := names[(of_paper[self._citing[row]] or number) - 1]) != split_group(
                name
            ):
                reason = (
                    f"the citing paper {shown(self._ids_of_papers[self._citing[row]])} of context "
                    f"{shown(query.context_id)} is in split {other!r} too; it may cite in one split only"
                )
                bad(BadRecord("in two splits", path, query.record, reason, "context_id"))
            else:
                of_context[row] = number
                of_paper[self._citing[row]] = of_paper[self._citing[row]] or number
                positives.extend(self._paper_rows[paper] for paper in query.positive_ids)
                contexts.append(row)
                lengths.append(len(query.positive_ids))
        bad.finish(len(contexts))
        if not contexts:
            raise InputError(f"{path}: no queries")

    def finish(self, candidates: str) -> None:
        """Write what remains: final word ids, candidates, splits. InputError if no candidate is left."""
        self.close()
        is_candidate = np.frombuffer(self._has_abstract, np.bool_)
        if candidates == "all":
            is_candidate = np.ones(len(self._paper_rows), np.bool_)
        elif not is_candidate.any():
            raise InputError("no paper has an abstract, so none is a candidate; set data.candidates=all")
        seen = np.zeros(len(self._paper_rows), np.bool_)
        in_train = np.zeros(len(self._context_rows), np.bool_)
        unreachable = 0
        for name, (contexts, positives, lengths) in self._splits.items():
            cited = np.frombuffer(positives, np.int32)
            citing = np.repeat(
                self._citing_rows()[np.frombuffer(contexts, np.int64)], np.frombuffer(lengths, np.int32)
            )
            unreachable += int((~is_candidate[cited] | (cited == citing)).sum())
            if name == TRAIN:
                seen[cited] = True
                in_train[np.frombuffer(contexts, np.int64)] = True
            save_array(self._folder, f"{name}.contexts", np.frombuffer(contexts, np.int64))
            save_array(self._folder, f"{name}.positives.values", cited)
            save_array(
                self._folder, f"{name}.positives.offsets", offsets_of(np.frombuffer(lengths, np.int32))
            )
        if unreachable:
            log.warning(
                "%d citations of a paper that is no candidate, or of the citing paper itself: never found",
                unreachable,
            )
        columns: dict[str, NDArray[Any]] = {"is_candidate": is_candidate, "seen": seen}
        columns |= {
            "years": np.frombuffer(self._years, np.int32),
            "citing": self._citing_rows(),
        }
        for stem, values in columns.items():
            save_array(self._folder, stem, values)
        self._fields.finish()
        counted = [(self._titles, None), (self._abstracts, None), (self._context_tokens, in_train)]
        write_words(self._folder, self._words, counted)

    def close(self) -> None:
        """Write out what is buffered; again does nothing."""
        for writer in self._writers:
            writer.close()

    def _citing_rows(self) -> NDArray[np.int32]:
        return np.frombuffer(self._citing, np.int32)

    @cached_property
    def _ids_of_papers(self) -> list[str]:
        return list(self._paper_rows)

    def _bad(self, part: str, path: Path) -> Dropped:
        self.dropped[part] = Dropped(path, self._max_bad_share)
        return self.dropped[part]

    def _no_paper(self, path: Path, record: str | int, field: str, paper: str) -> BadRecord:
        kind: Kind = "names a dropped record" if paper in self.dropped["papers"].ids else "unknown paper"
        return BadRecord(kind, path, record, f"no paper {shown(paper)} in the papers file", field)

    def _no_context(self, path: Path, record: int, context: str) -> BadRecord:
        kind: Kind = (
            "names a dropped record" if context in self.dropped["contexts"].ids else "unknown context"
        )
        return BadRecord(
            kind, path, record, f"no context {shown(context)} in the contexts file", "context_id"
        )

    @staticmethod
    def _grow(values: array[int], length: int) -> array[int]:
        values.extend([0] * (length - len(values)))
        return values
