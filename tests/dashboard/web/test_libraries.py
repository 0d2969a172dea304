"""What a shared library holds, read from untrusted bytes."""

from __future__ import annotations

import random
from pathlib import Path

import numpy.linalg
import pytest

from dashboard.pages.operators.elf import read_library


@pytest.fixture
def library() -> Path:
    """A real one that every installation has."""
    return next(Path(numpy.linalg.__file__).parent.glob("lapack_lite*.so"))


def test_functions_and_the_size_of_the_code(library: Path) -> None:
    found = read_library(library)
    assert found is not None
    assert "PyInit_lapack_lite" in {one.name for one in found.functions}
    assert 0 < found.code_bytes < library.stat().st_size
    sizes = [one.size_bytes for one in found.functions]
    assert sizes == sorted(sizes, reverse=True)


def test_what_is_no_library_says_nothing(tmp_path: Path) -> None:
    for number, content in enumerate((b"", b"\x7fELF", b"\x7fELF\x02\x01" + b"\xff" * 400, b"text")):
        path = tmp_path / str(number)
        path.write_bytes(content)
        assert read_library(path) is None
    assert read_library(tmp_path / "missing") is None


def test_damaged_libraries_raise_nothing(library: Path, tmp_path: Path) -> None:
    whole, chance, path = library.read_bytes(), random.Random(4), tmp_path / "damaged.so"
    for number in range(300):
        damaged = bytearray(whole[: chance.choice([64, 700, len(whole)])])
        for _ in range(chance.randrange(1, 40)):
            damaged[chance.randrange(min(len(damaged), 90 if number % 2 else len(damaged)))] = (
                chance.randrange(256)
            )
        path.write_bytes(damaged)
        read_library(path)
