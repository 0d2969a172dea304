"""Compiling submitted code: in its work folder, with names relative to it, reading nothing but headers."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from opatlas.load.toolchain import INCLUDE_FOLDER, find_compiler
from tuning.routes.base import RouteError

LIBRARY = "kernel.so"
SUFFIX = {"c": "c", "c++": "cc"}
COMPILE_S = 50.0
LOG_CHARACTERS = 16_000
COMPILE = ("-O2", "-fPIC", "-pthread")
_STANDARD = {"c": "-std=gnu11", "c++": "-std=gnu++17"}
_STATIC = {"c": (), "c++": ("-static-libstdc++", "-static-libgcc")}
_LINK = ("-Wl,--build-id=none", "-Wl,--version-script=exports.map", "-Wl,-Bsymbolic", "-Wl,-s", "-Wl,-z,defs")
_NO_EXCERPTS = ("-fno-diagnostics-show-caret",)  # before it is known what is included
_MARKER = re.compile(rb'^# \d+ "((?:[^"\\]|\\.)*)"', re.MULTILINE)
_REPEATABLE = ("-ffile-prefix-map=.=.", "-frandom-seed=kernel")
_SAME_TIME = {"SOURCE_DATE_EPOCH": "0", "ZERO_AR_DATE": "1", "TZ": "UTC"}
"""The same source gives the same bytes, wherever and whenever it is compiled: no folder, no time, no chance
gets into them. ``__TIMESTAMP__`` is the source file's own time."""
_FUNCTIONS = ("run", "prepare", "release", "error", "blocks")
_EXPORTS = f"{{ global: {' '.join(f'opatlas_{name};' for name in _FUNCTIONS)} local: *; }};\n"


def compile_kernel(
    source: str, header: tuple[str, str], language: str, flags: Sequence[str], folder: Path
) -> tuple[Path, str]:
    """``source`` with the generated ``header`` (name, text) as a shared library in ``folder``.

    Returns the library and what the compiler said. Raises :class:`RouteError`; its message is the compiler's
    first error, and the whole log goes to stderr (the trial's log).
    """
    kernel = f"kernel.{SUFFIX[language]}"
    (folder / kernel).write_text(source)
    os.utime(folder / kernel, (0, 0))
    (folder / header[0]).write_text(header[1])
    (folder / "opatlas_abi.h").write_text((INCLUDE_FOLDER / "opatlas_abi.h").read_text())
    (folder / "exports.map").write_text(_EXPORTS)
    compiler = [*find_compiler(language), "-fdiagnostics-color=never", "-I."]
    common = [*_REPEATABLE, _STANDARD[language], *flags]
    code, log = _run([*compiler, *common, "-E", kernel, "-o", "kernel.i", *_NO_EXCERPTS], folder)
    _refuse_other_files(folder / "kernel.i", language)
    if code:
        print(log)
        raise RouteError(f"it does not compile: {first_error(log)}")
    code, log = _run([*compiler, *COMPILE, *common, "-c", kernel, "-o", "kernel.o"], folder)
    if not code:
        # Without the author's flags: linked with -ffast-math, a library switches denormals off for everybody.
        link = [*find_compiler(language), "-shared", "-pthread", "kernel.o", "-o", LIBRARY, "-lm"]
        code, said = _run([*link, *_STATIC[language], *_LINK], folder)
        log += said
    if code:
        print(log)  # the child's output is the trial's log
        raise RouteError(f"it does not compile: {first_error(log)}")
    for left_over in (kernel, header[0], "opatlas_abi.h", "exports.map", "kernel.i", "kernel.o"):
        (folder / left_over).unlink(missing_ok=True)
    return folder / LIBRARY, log


def all_flags(language: str, flags: Sequence[str]) -> list[str]:
    """What the compiler and the linker are told, for provenance."""
    compiling = [*COMPILE, *_REPEATABLE, _STANDARD[language], *flags]
    return [*compiling, "-shared", "-lm", *_STATIC[language], *_LINK]


def first_error(log: str) -> str:
    """The compiler's first complaint, for one sentence."""
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    errors = [line for line in lines if "error" in line.lower() or "undefined reference" in line]
    return (errors or lines or ["the compiler said nothing"])[0][:400]


def _refuse_other_files(preprocessed: Path, language: str) -> None:
    """Refuse code that includes anything but headers: the compiler's messages would show what is in it."""
    text = preprocessed.read_bytes() if preprocessed.exists() else b""
    headers = _header_folders(language)
    for name in sorted(set(_MARKER.findall(text))):
        path = name.decode(errors="replace")
        if path.startswith("<") or ("/" not in path.removeprefix("./") and path != ".."):
            continue  # the compiler's own, and files of the work folder
        resolved = (preprocessed.parent / path).resolve()
        if not any(resolved.is_relative_to(root) for root in headers):
            raise RouteError(
                f"it includes {path[:200]!r}: only the compiler's and the system's headers, "
                "opatlas_abi.h and opatlas_operator.h may be included"
            )


@cache
def _header_folders(language: str) -> list[Path]:
    """Where this compiler looks for ``<…>``, as it says itself."""
    try:
        done = subprocess.run(
            [*find_compiler(language), "-E", "-v", "-x", language, "/dev/null"],
            capture_output=True,
            text=True,
            timeout=COMPILE_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise RouteError(f"the compiler does not answer: {type(error).__name__}") from error
    listed = done.stderr.partition("#include <...> search starts here:")[2].partition("End of search list")[0]
    found = [Path(line.strip()).resolve() for line in listed.splitlines() if line.strip().startswith("/")]
    return found or [Path("/usr/include")]


def _run(command: Sequence[str], folder: Path) -> tuple[int, str]:
    try:
        done = subprocess.run(
            command, cwd=folder, capture_output=True, timeout=COMPILE_S, check=False,
            stdin=subprocess.DEVNULL, env={**os.environ, **_SAME_TIME},
        )  # fmt: skip
    except subprocess.TimeoutExpired as error:
        raise RouteError(f"the compiler took longer than {COMPILE_S:.0f} s") from error
    except OSError as error:
        raise RouteError(f"the compiler does not start: {error.strerror}") from error
    text = (done.stdout + done.stderr).decode(errors="replace")
    # Names of the worker's folders are nobody's business.
    return done.returncode, text.replace(f"{folder}/", "").replace(str(folder), ".")[-LOG_CHARACTERS:]
