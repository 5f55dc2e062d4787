"""Errors that a user can mend, and how the entry points show them: one line, exit code 2."""

from __future__ import annotations

import errno
import functools
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NoReturn


class InputError(Exception):
    """Bad input; the message is one line: what is wrong, where (file, record, field), what to do about it."""


class UnusableFile(Exception):
    """A download or an archive cannot be used; the message is the reason, the catcher adds what and where."""


def one_line_errors(main: Callable[[], object]) -> Callable[[], None]:
    """Wrap an entry point: bad input becomes one line on stderr and exit code 2, never a traceback.

    An interrupt exits with 130. Any other exception is a bug and keeps its traceback.
    """

    @functools.wraps(main)
    def wrapped() -> None:
        # By default Hydra swallows exceptions and exits with 1.
        os.environ["HYDRA_FULL_ERROR"] = "1"
        # OpenMP threads that spin while they wait lose most of their time on a shared machine.
        if "OMP_WAIT_POLICY" not in os.environ:
            os.environ.setdefault("GOMP_SPINCOUNT", "1000")
        if "hydra" in sys.modules:  # an entry point that Hydra composes
            from datasets.configuration import store_schemas
            from datasets.help import register_help

            register_help()
            store_schemas()
        try:
            with exit_in_one_line():
                main()
        except KeyboardInterrupt:
            print("interrupted", file=sys.stderr)
            raise SystemExit(130) from None

    return wrapped


@contextmanager
def exit_in_one_line() -> Iterator[None]:
    """Bad input ends the process with one line; inside `hydra.main`, so that Hydra prints none of its own."""
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
    """The message of another library's error in one line."""
    return " ".join(str(error).split())[:200] or type(error).__name__


def missing_extra(what: str, extra: str) -> str:
    """The line on an optional dependency that is not installed."""
    return f'{what} needs the extra {extra}: make install EXTRAS="dev {extra}"'


def error_line(error: BaseException) -> str | None:
    """The line to show for an error that the user can mend; None for a bug."""
    cause = error
    if hydra := "hydra" in sys.modules:
        from hydra.errors import HydraException, InstantiationException
        from omegaconf.errors import OmegaConfBaseException

        # Hydra wraps what a constructor raised.
        while isinstance(cause, InstantiationException) and cause.__cause__ is not None:
            cause = cause.__cause__
    if isinstance(cause, InputError):
        return str(cause)
    if isinstance(cause, OSError) and cause.errno in (errno.ENOSPC, errno.EDQUOT):
        where = cause.filename or "the output"
        return f"no space left on the device for {where}: free some or choose another folder"
    named = (FileNotFoundError, FileExistsError, PermissionError, IsADirectoryError, NotADirectoryError)
    if isinstance(cause, named) and cause.filename:
        return f"{cause.filename}: {cause.strerror}"
    if hydra and isinstance(cause, InstantiationException | HydraException | OmegaConfBaseException):
        return configuration_line(cause)
    return None


def configuration_line(error: BaseException) -> str:
    """What is wrong with the options, as Hydra or its OmegaConf found it."""
    from hydra.errors import MissingConfigException
    from omegaconf.errors import (
        ConfigAttributeError,
        ConfigKeyError,
        MissingMandatoryValue,
        ValidationError,
    )

    from datasets.configuration import describe, describe_missing, unknown_choice

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
