"""A C compiler is found wherever there is one, and says what it disliked."""

from __future__ import annotations

import ctypes
import importlib.util
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from opatlas.errors import LoadError
from opatlas.load import toolchain


@pytest.fixture(autouse=True)
def fresh_search(configure: Any) -> Iterator[None]:
    configure(cc="")
    toolchain.find_compiler.cache_clear()
    yield
    toolchain.find_compiler.cache_clear()


def write(folder: Path, text: str) -> Path:
    path = folder / "source.c"
    path.write_text(text)
    return path


def test_compiles_a_library(tmp_path: Path) -> None:
    source = write(tmp_path, "int answer(void) { return 42; }")
    toolchain.compile_shared([source], tmp_path / "new" / "answer.so")
    assert ctypes.CDLL(str(tmp_path / "new" / "answer.so")).answer() == 42


def test_failure_shows_the_compilers_words_and_leaves_nothing(tmp_path: Path) -> None:
    source = write(tmp_path, "int answer(void) { return nothing_there; }")
    with pytest.raises(LoadError, match="nothing_there"):
        toolchain.compile_shared([source], tmp_path / "out" / "answer.so")
    assert list((tmp_path / "out").iterdir()) == []


def test_cc_wins(configure: Any, tmp_path: Path) -> None:
    configure(cc="no-such-compiler -O9")
    assert toolchain.find_compiler() == ("no-such-compiler", "-O9")
    with pytest.raises(LoadError, match="no-such-compiler is not there"):
        toolchain.compile_shared([write(tmp_path, "")], tmp_path / "x.so")


def test_no_compiler_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(LoadError, match="install gcc or clang, set CC, or pip install ziglang"):
        toolchain.find_compiler()


def test_zig_serves_where_nothing_else_does(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pytest.importorskip("ziglang")
    path = __import__("os").environ["PATH"]
    monkeypatch.setenv("PATH", "/nowhere")
    assert toolchain.find_compiler()[1:] == ("-m", "ziglang", "cc")
    monkeypatch.setenv("PATH", path)
    source = write(tmp_path, "#include <math.h>\ndouble root(double x) { return sqrt(x); }")
    toolchain.compile_shared([source], tmp_path / "root.so")
    library = ctypes.CDLL(str(tmp_path / "root.so"))
    library.root.restype, library.root.argtypes = ctypes.c_double, [ctypes.c_double]
    assert library.root(9.0) == 3.0
    toolchain.compile_shared([toolchain.INCLUDE_FOLDER / "pool.c"], tmp_path / "pool.so")
    assert ctypes.CDLL(str(tmp_path / "pool.so")).opatlas_pool_workers() == 0
