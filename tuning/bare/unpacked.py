"""``python3 -m tuning.bare.unpacked``, where a bundle was unpacked: an environment over what the machine has.

Knows only the standard library, and what of the product knows no more: what it installs is not there yet.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

SITE = Path("site")
VENV = Path("var/gpu/venv")


def main() -> int:
    """What the bundle brings, laid beside the packages of this Python: nothing is installed, which took a
    minute wheel by wheel."""
    subprocess.run(
        [sys.executable, "-m", "venv", "--clear", "--system-site-packages", "--without-pip", str(VENV)],
        check=True,
    )
    take_also_what_this_python_has()
    if SITE.is_dir():
        shutil.copytree(SITE, site_folder(), copy_function=link_or_copy, dirs_exist_ok=True)
    return 0


def link_or_copy(source: str, place: str) -> None:
    """Not every file system has links."""
    try:
        os.link(source, place)
    except OSError:
        shutil.copy2(source, place)


def site_folder() -> Path:
    return next(VENV.glob("lib/python*/site-packages"))


def take_also_what_this_python_has() -> None:
    """Where this Python is itself that of an environment, ``--system-site-packages`` means what lies below
    that, without its packages: without PyTorch. By its prefix, since NVIDIA's packages look for each other's
    libraries in the folders that :func:`site.getsitepackages` names, and not on :data:`sys.path`."""
    if sys.prefix != sys.base_prefix:
        line = f"import site; site.PREFIXES.insert(0, {sys.prefix!r})\n"
        (site_folder() / "of-this-machine.pth").write_text(line)


if __name__ == "__main__":
    sys.exit(main())
