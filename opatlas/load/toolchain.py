"""Finds a C or C++ compiler: ``$CC``, gcc, cc, clang, else the ziglang wheel's."""

from __future__ import annotations

import functools
import importlib.util
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from opatlas.conf import conf
from opatlas.errors import LoadError

INCLUDE_FOLDER = Path(__file__).parent
"""Where ``opatlas_abi.h`` lies; always on the include path."""

COMPILE_TIMEOUT_S = 120.0
_ERROR_LINES = 12


_COMPILERS = {
    "c": ("CC", ("gcc", "cc", "clang"), "cc"),
    "c++": ("CXX", ("g++", "c++", "clang++"), "c++"),
}
"""Language → the variable that chooses its compiler, the usual names, and zig's name for it."""


@functools.cache
def find_compiler(language: str = "c") -> tuple[str, ...]:
    """The command that compiles C (or ``c++``); raises :class:`LoadError` if there is none."""
    variable, names, zig = _COMPILERS[language]
    if chosen := getattr(conf(), variable.lower()):
        return tuple(shlex.split(chosen))
    for name in names:
        if path := shutil.which(name):
            return (path,)
    if importlib.util.find_spec("ziglang") is not None:
        return (sys.executable, "-m", "ziglang", zig)
    raise LoadError(
        f"no {language.upper()} compiler: install {names[0]} or {names[-1]}, set {variable}, "
        "or pip install ziglang"
    )


def compile_shared(
    sources: Sequence[Path], output: Path, *, objects: Sequence[Path] = (), flags: Sequence[str] = ()
) -> None:
    """Compile C ``sources`` (and link ``objects``) into the shared library ``output``.

    The library appears in one piece: it is written beside and renamed. ``flags`` come last, so that they win
    over the defaults (``-O2 -fPIC -std=gnu11 -pthread``). Raises :class:`LoadError` with the compiler's last
    lines.
    """
    output.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=f".{output.name}-", suffix=".so", dir=output.parent)
    os.close(handle)
    partial = Path(name)
    command = [
        *find_compiler(),
        *("-O2", "-fPIC", "-shared", "-std=gnu11", "-pthread", f"-I{INCLUDE_FOLDER}"),
        *(str(path) for path in (*sources, *objects)),
        *("-o", str(partial), "-lm"),
        *flags,
    ]
    try:
        _run(command)
        partial.chmod(0o755)
        partial.replace(output)
    finally:
        partial.unlink(missing_ok=True)


def _run(command: Sequence[str]) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=COMPILE_TIMEOUT_S, check=False)
    except FileNotFoundError as error:
        raise LoadError(f"C compiler {command[0]} is not there; check CC") from error
    except subprocess.TimeoutExpired as error:
        raise LoadError(f"C compiler took longer than {COMPILE_TIMEOUT_S:.0f} s") from error
    if done.returncode:
        tail = "\n".join((done.stderr or done.stdout).strip().splitlines()[-_ERROR_LINES:])
        raise LoadError(f"C compiler failed (exit {done.returncode}):\n{tail}")
