"""A copy of the tree with a virtual environment of its own, in which the Makefile's own targets are made.

The environment sees what is installed here, so nothing is fetched; what is installed into it stays there.
"""

from __future__ import annotations

import os
import shutil
import site
import subprocess
import venv
from pathlib import Path

from tests.databases import ROOT

_FILES = ("Makefile", "MANIFEST.in", "pyproject.toml", "README.md", "LICENSE")


def new_environment(folder: Path) -> Path:
    """A fresh virtual environment beside the installed packages; gives its Python."""
    venv.create(folder, symlinks=True)
    [packages] = folder.glob("lib/python*/site-packages")
    # Lines of a .pth are folders to look in; what is in the tree itself is none of them.
    packages.joinpath("installed_here.pth").write_text("\n".join(site.getsitepackages()))
    return folder / "bin" / "python"


def copy_tree(folder: Path) -> Path:
    """What the Makefile's packaging targets read, with ``.venv`` as after the requirements were installed."""
    shutil.copytree(ROOT / "opatlas", folder / "opatlas", ignore=shutil.ignore_patterns("__pycache__"))
    for name in _FILES:
        shutil.copy(ROOT / name, folder)
    for path in ROOT.glob("requirements*.txt"):
        shutil.copy(path, folder)
    (folder / "tests").mkdir()
    (folder / "tests" / "test_of_the_service.py").touch()  # setuptools would pack it
    new_environment(folder / ".venv")
    (folder / ".venv" / "worker.stamp").touch()
    return folder


def make(folder: Path, *arguments: str) -> str:
    """What ``make`` prints, run in a copy of the tree; it must succeed."""
    return run(["make", "--no-print-directory", *arguments], folder)


def run(command: list[str], folder: Path, **environment: str) -> str:
    """What a command prints, run in a folder without this test run's own Python path."""
    inherited = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "MAKEFLAGS")}
    done = subprocess.run(
        command, cwd=folder, env={**inherited, **environment},
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-4000:]
    return done.stdout
