"""Packages of a bare machine, made ready at home: wheels laid out as folders, PyCUDA built."""

from __future__ import annotations

import re
import shutil
import subprocess
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from opatlas.cores import usable_cores

PYCUDA_S = 900.0
"""Its largest file alone takes a compiler a minute, all of them two and a half of one core."""


def lay_out(wheel: Path, site: Path) -> None:
    """What installing a wheel of Python packages comes to: its files, where they belong; its commands are
    left out."""
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            first, _, rest = name.partition("/")
            if first.endswith(".data"):
                kind, _, inner = rest.partition("/")
                if kind not in ("purelib", "platlib"):
                    continue
            else:
                inner = name
            if not name.endswith("/") and ".." not in Path(inner).parts:
                place = site / inner
                place.parent.mkdir(parents=True, exist_ok=True)
                place.write_bytes(archive.read(name))


def build_pycuda(source: Path, python: Path, root: Path, made: Path) -> str:
    """A wheel of it from its source distribution, by this Python, into the folder ``made``; why not. What it
    is told is where CUDA's headers are (``root``), to do without cuRAND, and to link the driver by the name
    that it has at run time: neither the compiler of device code nor a driver is needed."""
    with TemporaryDirectory(prefix="opatlas-pycuda-") as work:
        folder = Path(work)
        with tarfile.open(source) as archive:
            archive.extractall(folder, filter="data")
        tree = next(path for path in folder.iterdir() if path.is_dir())
        (folder / "nothing.c").write_text("")
        driver = ["-shared", "-Wl,-soname,libcuda.so.1", "-o", str(folder / "libcuda.so")]
        if why := _ran(["cc", *driver, str(folder / "nothing.c")], 30):
            return f"there is no C compiler here: {why}"
        (tree / "siteconf.py").write_text(
            f"CUDA_ROOT = {str(root)!r}\nCUDA_INC_DIR = [{str(root / 'include')!r}]\n"
            f"CUDADRV_LIB_DIR = [{str(folder)!r}]\nCUDA_ENABLE_CURAND = False\n"
            # Of both its modules, of which one is told of no folder.
            f"LDFLAGS = ['-L{folder}', '-Wl,--no-as-needed', '-lcuda']\n"
        )
        build = [str(python.absolute()), "-c", _BUILD, str(folder), str(usable_cores())]
        if why := _ran(build, PYCUDA_S, tree):
            return why
        shutil.copy2(next(folder.glob("*.whl")), made)
        return ""


_BUILD = """
import os, sys
from concurrent.futures import ThreadPoolExecutor
import setuptools.build_meta
from setuptools._distutils.unixccompiler import UnixCCompiler
sys.path.insert(0, os.getcwd())
compilers, begun = ThreadPoolExecutor(int(sys.argv[2])), []
compile_one, link = UnixCCompiler._compile, UnixCCompiler.link
def begin(*given):
    begun.append(compilers.submit(compile_one, *given))
def link_then(*given, **named):
    for one in begun:
        one.result()
    return link(*given, **named)
UnixCCompiler._compile, UnixCCompiler.link = begin, link_then
setuptools.build_meta.__legacy__.build_wheel(sys.argv[1])
"""
"""Its fifty files on all cores: setuptools compiles those of one module one after the other."""


def _ran(command: list[str], seconds: float, folder: Path | None = None) -> str:
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=seconds, check=False, cwd=folder
        )
    except subprocess.TimeoutExpired:
        return f"it took longer than {seconds:.0f} s"
    except OSError as error:
        return str(error)
    return "" if done.returncode == 0 else next(_reasons(done.stderr), f"{command[0]} failed")


def _reasons(said: str) -> Iterator[str]:
    lines = said.strip().splitlines()
    yield from (line.strip() for line in lines if re.search(r"^ERROR|\berror: |\bcannot find ", line))
    yield from lines[-1:]
