"""What Windows refuses, refused here: `pytest -p tests.windows tests/library`, or `windows.refuse()`.

No POSIX module and no function of `os` that Windows lacks; no file or folder is renamed, replaced or removed
while a process has one of its files open or mapped; names with its signs and devices are no names of files.
Text is written with \\r\\n, and read and written in Windows-1252, unless an encoding is named.
"""

from __future__ import annotations

import builtins
import io
import os
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

MODULES = ("fcntl", "resource", "pwd", "grp", "termios", "pty", "tty", "crypt", "syslog")
NAMES = (
    *("fork", "O_NOFOLLOW", "SIGKILL", "SIGHUP", "SIGALRM", "alarm", "setitimer", "pthread_kill", "WNOHANG"),
    *("forkpty", "register_at_fork", "sched_getaffinity", "killpg", "getpgid", "setsid", "mkfifo"),
    *("getuid", "geteuid", "getgid", "uname", "chown", "getloadavg", "fchmod", "pread", "nice", "statvfs"),
)
REFUSED = re.compile(r'[<>:"|?*\x00-\x1f]|[ .]$|^(con|prn|aux|nul|com\d|lpt\d)(\.|$)', re.IGNORECASE)
LEFT = ("test_a_change_is_a_new_generation", "test_a_failed_change_changes_nothing")
"""They ask for folders to be gone whose files are in use, which Windows leaves to the next change."""
OURS = str(Path(__file__).parents[1])


def refuse() -> None:
    """Refuse it in this process, as far as our own code asks for it."""
    _wrap(builtins, "__import__", _import)
    for name in ("rename", "replace", "unlink", "remove", "rmdir"):
        _wrap(os, name, _unless_open)
    io.open = builtins.open = _opened(builtins.open)  # type: ignore[assignment]
    _wrap(os, "mkdir", _unless_refused)


def _wrap(module: Any, name: str, around: Callable[..., Any]) -> None:
    real = getattr(module, name)
    setattr(module, name, lambda *args, **options: around(real, *args, **options))


def _import(real: Callable[..., Any], name: str, scope: Any = None, *rest: Any, **options: Any) -> Any:
    is_ours = re.match(r"citerec(?!\.tests)", str((scope or {}).get("__name__", "")))
    if name in MODULES and is_ours:
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)
    module = real(name, scope, *rest, **options)
    return Without(module) if name in ("os", "signal") and is_ours else module


class Without:
    """A module without NAMES."""

    def __init__(self, module: Any) -> None:
        self.__dict__["_module"] = module

    def __getattr__(self, name: str) -> Any:
        if name in NAMES:
            raise AttributeError(f"module {self._module.__name__!r} has no attribute {name!r}")
        return getattr(self._module, name)


def files_in_use() -> Iterator[str]:
    """Yield the files that this process and those that it started have open or mapped."""
    children = Path("/proc/self/task").glob("*/children")
    for process in ("self", *(id for file in children for id in file.read_text("utf-8").split())):
        try:
            maps = Path("/proc", process, "maps").read_text("utf-8").splitlines()
            yield from (line.split(maxsplit=5)[5] for line in maps if "/" in line)
            yield from (os.readlink(file) for file in Path("/proc", process, "fd").iterdir())
        except OSError:  # it has ended
            continue


def _unless_open(real: Callable[..., Any], place: Any, *rest: Any, **options: Any) -> Any:
    for name in (place, *rest):
        path = os.path.realpath(os.fsdecode(name))
        if options.get("dir_fd") is not None:
            continue  # the rest of a tree that is removed
        if any(f"{file}/".startswith(f"{path}/") for file in files_in_use()):
            raise PermissionError(13, "Access is denied", path)
        if REFUSED.search(os.path.basename(path)):
            raise OSError(22, "The filename, directory name, or volume label syntax is incorrect", path)
    return real(place, *rest, **options)


def _unless_refused(real: Callable[..., Any], place: Any, *rest: Any, **options: Any) -> Any:
    if REFUSED.search(os.path.basename(os.fsdecode(place))):
        raise OSError(22, "The filename, directory name, or volume label syntax is incorrect", place)
    return real(place, *rest, **options)


def _opened(real: Callable[..., Any]) -> Callable[..., Any]:
    def opened(
        file: Any, mode: str = "r", buffering: int = -1, encoding: Any = None, errors: Any = None,
        newline: Any = None, closefd: bool = True, opener: Any = None,
    ) -> Any:  # fmt: skip
        if set(mode) & set("wxa+") and not isinstance(file, int) and REFUSED.search(Path(file).name):
            raise OSError(22, "Invalid argument", file)
        if "b" not in mode and sys._getframe(1).f_code.co_filename.startswith((OURS, os.__file__[:-5])):
            encoding = encoding if encoding not in (None, "locale") else "cp1252"
            newline = "\r\n" if newline is None and set(mode) & set("wxa+") else newline
        return real(file, mode, buffering, encoding, errors, newline, closefd, opener)

    return opened


def pytest_collection_modifyitems(items: list[Any]) -> None:
    for item in items:
        if item.name.partition("[")[0] in LEFT:
            item.add_marker("skip")


if "pytest" in sys.modules and __name__ == "tests.windows":
    refuse()
