"""``python3 -m tuning.bare.home FOLDER``: the software of a machine with a GPU, on one that has none.

What the bundle's tests and builds need that no device is needed for runs in it. Knows only the standard
library, and of the product what knows no more: what it installs is not there yet.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from tuning.bare.installing import compile_all, install

PYTHON = "3.12"
NEEDED_BYTES = 8 << 30
"""4.7 GB of packages, and as much again while pip unpacks the largest."""
REQUIREMENTS = tuple(Path(__file__).with_name(name) for name in ("requirements-home.txt", "requirements.txt"))


def main(folder: Path) -> int:
    """Make it, or say what is missing."""
    python = find_python()
    if python is None:
        print(
            f"Python {PYTHON} is missing, which a machine with a GPU has (pyenv install {PYTHON}).",
            file=sys.stderr,
        )
        return os.EX_CONFIG
    where = folder.absolute()
    if not (where / "bin/python").exists():
        where.parent.mkdir(parents=True, exist_ok=True)
        if (free := shutil.disk_usage(where.parent).free) < NEEDED_BYTES:
            print(
                f"{where} needs {NEEDED_BYTES >> 30} GiB, and {free >> 30} GiB are free there.",
                file=sys.stderr,
            )
            return os.EX_CONFIG
        subprocess.run([python, "-m", "venv", str(where)], check=True)
    site = next(where.glob("lib/python*/site-packages"))
    files = [argument for path in REQUIREMENTS for argument in ("-r", str(path))]
    pip = [str(where / "bin/python"), "-m", "pip", "--disable-pip-version-check", "install", "--no-compile"]
    if code := install([*pip, *files], site):
        print("pip failed: its lines above say what is missing, or does not go together.", file=sys.stderr)
        return code
    compile_all(site, python=where / "bin/python")
    print(f"{where}: make test-gpu GPU_BIN={folder}/bin runs the tests that need no GPU there.")
    return 0


def find_python(home: Path | None = None) -> str | None:
    """The first that is there and is this version: by its name, or one of pyenv's, whose name alone may
    answer that no version was chosen."""
    for one in _pythons(home or Path.home()):
        ask = "import sys, venv, ensurepip; print('%d.%d' % sys.version_info[:2])"
        try:
            said = subprocess.run([one, "-c", ask], capture_output=True, text=True, timeout=30, check=False)
        except (OSError, subprocess.TimeoutExpired):
            continue
        if said.stdout.strip() == PYTHON:
            return one
    return None


def _pythons(home: Path) -> Iterator[str]:
    yield sys.executable
    if named := shutil.which(f"python{PYTHON}"):
        yield named
    root = Path(os.environ.get("PYENV_ROOT", home / ".pyenv"))
    yield from (str(path) for path in sorted(root.glob(f"versions/{PYTHON}.*/bin/python"), reverse=True))


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
