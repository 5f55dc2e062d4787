"""Errors that a user can fix; entry points show them as one line and exit with code 2."""

from __future__ import annotations

import errno
import functools
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NoReturn


class InputError(Exception):
    """Bad input; the message is one line: what is wrong, where (file, record, field), what to do."""


class UnusableFile(Exception):
    """An unusable download or archive; the message is the reason, the caller adds what and where."""


def one_line_errors(main: Callable[[], object]) -> Callable[[], None]:
    """Wrap an entry point: bad input becomes one line on stderr and exit code 2, never a traceback.

    An interrupt exits with 130. Any other exception is a bug and keeps its traceback.
    """

    @functools.wraps(main)
    def wrapped() -> None:
        # By default Hydra swallows exceptions and exits with 1.
        os.environ["HYDRA_FULL_ERROR"] = "1"
        # Spinning OpenMP threads waste most of their time on a shared machine.
        if "OMP_WAIT_POLICY" not in os.environ:
            os.environ.setdefault("GOMP_SPINCOUNT", "1000")
        if "hydra" in sys.modules:  # an entry point with a Hydra configuration
            from citerec.datasets.configuration import store_schemas
            from citerec.datasets.help import register_help

            register_help()
            store_schemas()
        try:
            with exit_on_input_error():
                main()
                sys.stdout.flush()
        except BrokenPipeError:  # as in `citerec --help | head`
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise SystemExit(1) from None
        except KeyboardInterrupt:
            print("interrupted", file=sys.stderr)
            raise SystemExit(130) from None

    return wrapped


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
    print("error: " + " ".join(line.split()), file=sys.stderr)
    raise SystemExit(2)


def error_text(error: Exception) -> str:
    """Return the message of another library's error as one line."""
    return " ".join(str(error).split())[:200] or type(error).__name__


EXTRAS = {
    **dict.fromkeys(
        ("torch", "pytorch_lightning", "lightning_utilities", "torchmetrics", "transformers", "gensim"),
        "train",
    ),
    **dict.fromkeys(
        ("rank_bm25", "ir_measures", "gdown", "requests", "hydra", "omegaconf", "wandb", "matplotlib"),
        "train",
    ),
    "ray": "ray",
    "openvino": "int8",
    "nncf": "int8",
}
"""Modules that the base installation lacks, and the extra that installs each."""


def _command() -> str:
    """Return the running command as the user typed it: citerec train, or python train.py."""
    name = sys.argv[0]
    return name if name.startswith("citerec ") else f"python {os.path.basename(name)}"


def missing_extra(what: str, extra: str) -> str:
    """Return the error line for an optional dependency that is not installed."""
    return f"{what} needs the extra {extra}: pip install 'citerec[{extra}]'"


def error_line(error: BaseException) -> str | None:
    """Return the line to show for an error that the user can fix; None for a bug."""
    cause = error
    if hydra := "hydra" in sys.modules:
        from hydra.errors import HydraException, InstantiationException
        from omegaconf.errors import OmegaConfBaseException

        # Hydra wraps errors raised by constructors.
        while isinstance(cause, InstantiationException) and cause.__cause__ is not None:
            cause = cause.__cause__
    if isinstance(cause, InputError):
        return str(cause)
    if isinstance(cause, ModuleNotFoundError) and (extra := EXTRAS.get((cause.name or "").split(".")[0])):
        return missing_extra(f"{_command()} ({cause.name})", extra)
    if isinstance(cause, OSError) and cause.errno in (errno.ENOSPC, errno.EDQUOT):
        where = cause.filename or "the output"
        return f"no space left on the device for {where}: free some or choose another folder"
    path_errors = (FileNotFoundError, FileExistsError, PermissionError, IsADirectoryError, NotADirectoryError)
    if isinstance(cause, path_errors) and cause.filename:
        return f"{cause.filename}: {cause.strerror}"
    if hydra and isinstance(cause, InstantiationException | HydraException | OmegaConfBaseException):
        return configuration_line(cause)
    return None


def configuration_line(error: BaseException) -> str:
    """Return the line for an error in the options that Hydra or OmegaConf raised."""
    from hydra.errors import MissingConfigException
    from omegaconf.errors import (
        ConfigAttributeError,
        ConfigKeyError,
        MissingMandatoryValue,
        ValidationError,
    )

    from citerec.datasets.configuration import describe, describe_missing, unknown_choice

    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, MissingConfigException) and cause.missing_cfg_file:
            return unknown_choice(cause.missing_cfg_file, cause.options or ())
        if isinstance(cause, MissingMandatoryValue):
            return describe_missing(cause.full_key or str(cause.key))
        if isinstance(cause, ConfigAttributeError | ConfigKeyError | ValidationError):
            return describe(cause)
        cause = cause.__cause__ or cause.__context__
    return f"configuration: {error}"
