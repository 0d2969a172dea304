"""A disk that is really full: a small file system of its own, filled to the last byte."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.services import NOT_TESTED


@contextmanager
def small_disk(folder: Path, size_kib: int) -> Iterator[Path]:
    """A mounted file system of so many KiB. Only root may mount: else skipped, and counted."""
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={size_kib}k", "tmpfs", str(folder)]
    mounted = subprocess.run(command, capture_output=True, text=True)
    if mounted.returncode:
        pytest.skip(f"{NOT_TESTED}: no file system can be mounted here ({mounted.stderr.strip()})")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def fill(disk: Path) -> Path:
    """Take all the space there is; returns the file that holds it."""
    filler = disk / "filler"
    with filler.open("wb", buffering=0) as file:
        for size in (4096, 1):
            while True:
                try:
                    file.write(b"x" * size)
                except OSError:
                    break
    return filler
