"""Errors that a user can fix; entry points show them as one line and exit with code 2."""

from __future__ import annotations

import errno
import functools
import io
import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

MAX_SHOWN = 80
"""Characters of a value shown in a message."""


class InputError(Exception):
    """Bad input; the message is one line: what is wrong, where (file, record, field), what to do."""


class StorageError(InputError):
    """A disk that is full or cannot be written."""


class DamagedFile(InputError):
    """A file that was changed or truncated after it was written; the caller adds what to do about it."""


class UnusableFile(Exception):
    """An unusable download or archive; the message is the reason, the caller adds what and where."""


BEFORE_MAIN: list[Callable[[], None]] = []
"""Called before an entry point's main; base.configuration adds the schemas for Hydra."""
EXPLAIN: list[Callable[[BaseException], str | None]] = []
"""Called with errors unknown here, to return a line or None; base.configuration explains those of Hydra."""


def one_line_errors(main: Callable[[], object]) -> Callable[[], None]:
    """Wrap an entry point: bad input becomes one line on stderr and exit code 2, never a traceback.

    An interrupt exits with 130. Any other exception is a bug and keeps its traceback.
    """

    @functools.wraps(main)
    def wrapped() -> None:
        # By default Hydra swallows exceptions and exits with 1.
        os.environ["HYDRA_FULL_ERROR"] = "1"
        _exchange_utf8()
        for prepare in BEFORE_MAIN:
            prepare()
        try:
            for word in sys.argv[1:]:
                if not is_utf8(word):
                    fail(not_utf8(word))
            with exit_on_input_error():
                main()
                sys.stdout.flush()
        except BrokenPipeError:  # as in `citerec --help | head`
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise SystemExit(1) from None
        except KeyboardInterrupt as interrupt:
            print("; ".join(["interrupted", *map(str, interrupt.args)]), file=sys.stderr)
            exec("")  # if an interrupt ended the last text that it executed, CPython ends by the signal
            raise SystemExit(130) from None

    return wrapped


def _exchange_utf8() -> None:
    """Print characters that a console cannot encode (Windows-1252 lacks most) as question marks; files and
    pipes are in UTF-8 unless the user chose another encoding."""
    for stream in (sys.stdin, sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and stream.encoding.lower() != "utf-8":
            chosen = stream.isatty() or "PYTHONIOENCODING" in os.environ
            stream.reconfigure(encoding=None if chosen else "utf-8", errors="replace")


@contextmanager
def exit_on_input_error() -> Iterator[None]:
    """Exit with one line on bad input; used inside `hydra.main`, so that Hydra does not report it as well."""
    try:
        yield
    except Exception as error:
        if (line := error_line(error)) is None:
            raise
        fail(line)


def fail(line: str) -> NoReturn:
    """Print one line on stderr and exit with code 2."""
    print("error: " + without_control_codes(" ".join(line.split())), file=sys.stderr)
    raise SystemExit(2)


def without_control_codes(text: str) -> str:
    """Remove control codes of terminals, which file names may contain; line breaks are kept."""
    return re.sub(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", "", text)


def is_utf8(name: str | Path) -> bool:
    """False for a file name with bytes that are not UTF-8, which Python reads as surrogates."""
    return not re.search(r"[\ud800-\udfff]", str(name))


def not_utf8(name: str | Path) -> str:
    """Return a printable line for a name that is not UTF-8, or for a text of several words."""
    shown = str(name).encode("utf-8", "replace").decode()
    if " " in shown and not os.path.lexists(name):
        return f"{shown}: the text is not UTF-8; give it in UTF-8"
    return f"{shown}: the name is not UTF-8; rename the file or folder"


def error_text(error: Exception) -> str:
    """Return the message of another library's error as one line, cut if it is long.

    >>> error_text(ValueError("no  such file")), error_text(ValueError("no" * 200))[-5:]
    ('no such file', 'no...')
    """
    text = " ".join(str(error).split())
    return f"{text[:200].rstrip()}..." if len(text) > 200 else text or type(error).__name__


_TRAINING = (
    *("scipy", "faiss", "torch", "pytorch_lightning", "lightning_utilities", "transformers", "onnx"),
    *("gensim", "rank_bm25", "ir_measures", "gdown", "requests", "hydra", "omegaconf", "wandb"),
    *("matplotlib", "pyarrow"),
)
EXTRAS = {**dict.fromkeys(_TRAINING, "train"), "lancedb": "large", "mcp": "mcp"}
"""Modules that the base installation lacks, and the extra that installs each."""


PATH_ERRORS = (
    *(errno.ENOENT, errno.EEXIST, errno.EISDIR, errno.ENOTDIR, errno.ENAMETOOLONG),
    *(errno.EACCES, errno.EPERM, errno.EROFS),
)
"""Errors of a path that a user can put right."""
_SHORT_WRITE = re.compile(r"\d+ requested and \d+ written")


def is_full(error: OSError) -> bool:
    """True if a disk, a quota or a file size limit is exhausted; NumPy's error has no errno."""
    if error.errno is None:
        return _SHORT_WRITE.fullmatch(str(error)) is not None
    return error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def missing_extra(what: str, extra: str) -> str:
    """Return the error line for an optional dependency that is not installed."""
    return f"{what} needs the extra {extra}: pip install 'citerec[{extra}]'"


@contextmanager
def needs_extra(what: str, extra: str) -> Iterator[None]:
    """Let imports of optional dependencies that are not installed say which extra installs them."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(missing_extra(what, extra), name=error.name) from None


def error_line(error: BaseException) -> str | None:
    """Return the line to show for an error that the user can fix; None for a bug."""
    if isinstance(error, InputError):
        return str(error)
    if isinstance(error, ModuleNotFoundError) and (extra := EXTRAS.get((error.name or "").split(".")[0])):
        name = os.path.basename(sys.argv[0].removeprefix("citerec ")).removesuffix(".py")  # of the command
        return missing_extra(f"citerec {name} ({error.name})", extra)
    if isinstance(error, ModuleNotFoundError) and error.name is None:  # raised by a library with its advice
        return str(error).partition("\n")[0]
    if isinstance(error, UnicodeEncodeError) and not is_utf8(error.object):
        return not_utf8(error.object)
    if isinstance(error, OSError) and is_full(error):
        where = error.filename or "the output"
        return f"no space left on the device for {where}: free some or choose another folder"
    if isinstance(error, OSError) and error.errno == errno.EIO:
        return f"{error.filename or 'the output'}: {error.strerror}; check the disk, or choose another folder"
    if isinstance(error, OSError) and error.filename and error.errno in PATH_ERRORS:
        return f"{error.filename}: {error.strerror}"
    return next((line for explain in EXPLAIN if (line := explain(error))), None)


def quoted(value: object) -> str:
    """Format a value for a message: on one line, truncated to MAX_SHOWN characters."""
    text = repr(value[: MAX_SHOWN + 1]) if isinstance(value, str) else repr(value)
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}..."


def count_noun(count: int, what: str = "paper") -> str:
    """Return a count with its noun.

    >>> count_noun(1), count_noun(2000, "place")
    ('1 paper', '2,000 places')
    """
    return f"{count:,} {what}{'s' * (count != 1)}"
