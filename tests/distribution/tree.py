"""A copy of the tree with a virtual environment of its own, in which the Makefile's own targets are made.

The environment sees what is installed here, so nothing is fetched; what is installed into it stays there.
"""

from __future__ import annotations

import os
import shutil
import site
import subprocess
import tomllib
import venv
from collections.abc import Iterable
from importlib.metadata import Distribution, distribution
from pathlib import Path

from packaging.requirements import Requirement

from tests.databases import ROOT

_FILES = ("Makefile", "MANIFEST.in", "pyproject.toml", "README.md", "LICENSE")


def new_environment(folder: Path) -> Path:
    """A fresh virtual environment beside the installed packages; gives its Python."""
    venv.create(folder, symlinks=True)
    [packages] = folder.glob("lib/python*/site-packages")
    # Lines of a .pth are folders to look in; what is in the tree itself is none of them.
    packages.joinpath("installed_here.pth").write_text("\n".join(site.getsitepackages()))
    return folder / "bin" / "python"


def job_environment(folder: Path, *more: str) -> Path:
    """A fresh virtual environment that has this tree's opatlas and of what is installed here only what that
    declares, and these other requirements: as pip would make it, but nothing is built or fetched. Gives its
    Python."""
    venv.create(folder, symlinks=True)
    [packages] = folder.glob("lib/python*/site-packages")
    packages.joinpath("opatlas").symlink_to(ROOT / "opatlas")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for one in _needed([*project["dependencies"], *more]).values():
        for name in {path.parts[0] for path in one.files or ()} - {"..", "__pycache__"}:
            if not (packages / name).exists():  # else a folder that several have in common
                packages.joinpath(name).symlink_to(Path(str(one.locate_file(name))))
    return folder / "bin" / "python"


def _needed(requirements: Iterable[str]) -> dict[str, Distribution]:
    """By name, with what these need in turn."""
    found, queue = dict[str, Distribution](), [Requirement(one) for one in requirements]
    while queue:
        one = queue.pop()
        if one.name not in found and (not one.marker or one.marker.evaluate({"extra": ""})):
            found[one.name] = distribution(one.name)
            assert one.specifier.contains(found[one.name].version), f"{one} is not what is installed"
            queue += [Requirement(other) for other in found[one.name].requires or ()]
    return found


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


def copy_everything(folder: Path) -> Path:
    """The whole tree but its pictures and state, over this environment: what is made in it stays there."""
    left = shutil.ignore_patterns(".git", ".venv", "var", "__pycache__", ".*_cache", "*.webp", "*.egg-info")
    shutil.copytree(ROOT, folder, ignore=left)
    (folder / ".venv").symlink_to((ROOT / ".venv").resolve())
    return folder


def make(folder: Path, *arguments: str) -> str:
    """What ``make`` prints, run in a copy of the tree; it must succeed."""
    return run(["make", "--no-print-directory", *arguments], folder)


def plain_environment() -> dict[str, str]:
    """A shell's, without what pytest and ``make test`` have put into ours."""
    ours = ("PYTHONPATH", "MAKEFLAGS", "DJANGO_SETTINGS_MODULE")
    return {name: value for name, value in os.environ.items() if name not in ours}


def run(command: list[str], folder: Path, timeout_s: float = 120, **environment: str) -> str:
    """What a command prints, run in a folder as from a shell; it must succeed."""
    done = subprocess.run(
        command, cwd=folder, env={**plain_environment(), **environment},
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=timeout_s,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-4000:]
    return done.stdout
