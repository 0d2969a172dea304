"""``python3 -m tuning.bare.unpacked``, where a bundle was unpacked: an environment over what the machine has.

Knows only the standard library, and what of the product knows no more: what it installs is not there yet.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from opatlas.cores import usable_cores

WHEELS = Path("wheels")
VENV = Path("var/gpu/venv")
PYCUDA_S = 200.0
"""Its largest file alone takes a compiler a minute."""


def main() -> int:
    """Every wheel that fits this Python, each on its own; PyCUDA where a CUDA compiler could build it."""
    subprocess.run(
        [sys.executable, "-m", "venv", "--clear", "--system-site-packages", "--without-pip", str(VENV)],
        check=True,
    )
    take_also_what_this_python_has()
    for path in sorted(WHEELS.glob("*.whl")):
        if why := install(path):
            print(f"not installed: {path.name}: {why}", flush=True)
    for path in sorted(WHEELS.glob("pycuda-*.tar.gz")):
        if why := build_pycuda(path):
            print(f"not built: {path.name}: {why}", flush=True)
    return 0


def take_also_what_this_python_has() -> None:
    """Where this Python is itself that of an environment, ``--system-site-packages`` means what lies below
    that, without its packages: without PyTorch. By its prefix, since NVIDIA's packages look for each other's
    libraries in the folders that :func:`site.getsitepackages` names, and not on :data:`sys.path`."""
    if sys.prefix != sys.base_prefix:
        own = next(VENV.glob("lib/python*/site-packages"))
        line = f"import site; site.PREFIXES.insert(0, {sys.prefix!r})\n"
        (own / "of-this-machine.pth").write_text(line)


def install(path: Path, seconds: float = 120.0) -> str:
    """Into the environment, from the file alone; why not."""
    command = [
        sys.executable,
        "-m",
        "pip",
        "--disable-pip-version-check",
        "--python",
        str(VENV / "bin/python"),
    ]
    command += ["install", "--quiet", "--no-index", "--no-deps", "--force-reinstall", str(path)]
    return _ran(command, seconds)


def build_pycuda(source: Path) -> str:
    """From its source distribution, into the environment; why not. What it is told is where CUDA's headers
    are, to do without cuRAND, and to link the driver by the name that it has at run time: a machine with
    nvcc need not have more than these."""
    if (nvcc := shutil.which("nvcc")) is None:
        return "there is no nvcc here"
    said = subprocess.run(
        [nvcc, "--dryrun", "-c", "x.cu"], capture_output=True, text=True, check=False
    ).stderr
    if (top := re.search(r"^#\$ TOP=(.+)$", said, re.MULTILINE)) is None:
        return "nvcc does not say where it lies"
    root = Path(top[1]).resolve()
    with TemporaryDirectory(prefix="opatlas-pycuda-") as made:
        folder = Path(made)
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
            "LDFLAGS = ['-Wl,--no-as-needed', '-lcuda']\n"
        )
        build = [str((VENV / "bin/python").absolute()), "-c", _BUILD, str(folder), str(usable_cores())]
        if why := _ran(build, PYCUDA_S, tree):
            return why
        return install(next(folder.glob("*.whl")))


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
    yield from (line.strip() for line in lines if re.search(r"^ERROR|\berror:", line))
    yield from lines[-1:]


if __name__ == "__main__":
    sys.exit(main())
