"""One archive for a bare machine: the source, what it lacks as wheels, PyCUDA's source, bubblewrap."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from tuning.bare.problems import LISTS
from tuning.conf import conf

ROOT = Path(__file__).resolve().parents[2]
MOST_BYTES = 64 << 20
TREE = ("opatlas", "tuning", "tests", "Makefile", "pyproject.toml", "LICENSE", "docs/gpu.md")
_PYTHON = "3.12"
_PLATFORMS = ("manylinux_2_28_x86_64", "manylinux_2_17_x86_64", "manylinux2014_x86_64")
_PYCUDA = re.compile(r"^pycuda==\S+", re.MULTILINE)
_SYSTEM = re.compile(r"lib(c|m|dl|rt|pthread)\.so|ld-linux|linux-vdso")
_LIBRARIES = ("libseccomp.so.2",)


class BundleTooLarge(Exception):
    """The archive and the tree beside it would not travel: one sentence."""


@dataclass(frozen=True)
class Made:
    """``missing``: what could not be put in, with the reason."""

    nbytes: int
    wheels: int
    missing: tuple[str, ...]


def make_bundle(out: Path, download: bool = True) -> Made:
    """Raises :class:`BundleTooLarge`. ``download``: with packages of the index; else the rest alone."""
    missing: list[str] = []
    with TemporaryDirectory(prefix="opatlas-bundle-") as made:
        folder = Path(made)
        _copy_tree(folder)
        _copy_lists(folder / "workloads", missing)
        _copy_bubblewrap(folder / "bubblewrap", missing)
        (folder / "wheels").mkdir()
        if download:
            _download(folder / "wheels", missing)
        wheels = sum(1 for _ in (folder / "wheels").iterdir())
        out.parent.mkdir(parents=True, exist_ok=True)
        with tarfile.open(out, "w:gz") as archive:
            archive.add(folder, arcname="opatlas-gpu", filter=_nobodys)
    nbytes, beside = out.stat().st_size, sum((ROOT / name).stat().st_size for name in _tracked())
    if nbytes + beside > MOST_BYTES:
        out.unlink()
        raise BundleTooLarge(
            f"{nbytes >> 20} MiB and {beside >> 20} MiB of tree: at most {MOST_BYTES >> 20} travel."
        )
    return Made(nbytes, wheels, tuple(missing))


def _nobodys(member: tarfile.TarInfo) -> tarfile.TarInfo:
    """Who made it is nobody's business, and bubblewrap is refused where others own it."""
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member


def _tracked(*paths: str) -> Sequence[str]:
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", *paths]
    said = subprocess.run(command, cwd=ROOT, capture_output=True, check=True, text=True)
    return [name for name in said.stdout.split("\0") if name and (ROOT / name).is_file()]


def _copy_tree(folder: Path) -> None:
    for name in _tracked(*TREE):
        place = folder / name
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, place)


def _copy_lists(folder: Path, missing: list[str]) -> None:
    folder.mkdir()
    source = conf().workloads
    for name in LISTS:
        path = source / f"{name}.json"
        if path.exists():
            shutil.copy2(path, folder)
        else:
            missing.append(f"{name}.json (OPATLAS_WORKLOADS names no folder with it)")


def _copy_bubblewrap(folder: Path, missing: list[str]) -> None:
    """The program, and the libraries that it and the filters' compiler load."""
    (folder / "bin").mkdir(parents=True)
    (folder / "lib").mkdir()
    program = shutil.which("bwrap")
    if program is None:
        missing.append("bubblewrap (it is not installed here): submitted code is refused there")
        return
    shutil.copy2(Path(program).resolve(), folder / "bin" / "bwrap")
    for library in (*_loaded_by(program), *_found(_LIBRARIES, missing)):
        shutil.copy2(library.resolve(), folder / "lib" / library.name)


def _loaded_by(program: str) -> Iterator[Path]:
    said = subprocess.run(["ldd", program], capture_output=True, check=True, text=True).stdout
    for name, path in re.findall(r"(\S+) => (/\S+)", said):
        if not _SYSTEM.search(name):
            yield Path(path)


def _found(names: Sequence[str], missing: list[str]) -> Iterator[Path]:
    folders = [*Path("/usr/lib").glob("*-linux-gnu"), Path("/usr/lib64")]
    for name in names:
        known = [folder / name for folder in folders if (folder / name).exists()]
        if known:
            yield known[0]
        else:
            missing.append(f"{name} (it is not installed here)")


def _download(folder: Path, missing: list[str]) -> None:
    """Each on its own: what the index lacks leaves the others in."""
    lines = (Path(__file__).with_name("requirements.txt")).read_text().splitlines()
    platforms = [part for name in _PLATFORMS for part in ("--platform", name)]
    binary = ["--only-binary=:all:", "--python-version", _PYTHON, "--implementation", "cp", *platforms]
    for line in lines:
        wanted = line.partition("#")[0].strip()
        if wanted and not _fetched(folder, wanted, binary):
            missing.append(f"{wanted} (the index has no wheel for Python {_PYTHON})")
    source = _PYCUDA.search((ROOT / "requirements-gpu.txt").read_text())
    assert source is not None
    if not _fetched(folder, source[0], ["--no-binary=pycuda", "--no-build-isolation"]):
        missing.append(f"{source[0]} (the index has no source distribution of it)")


def _fetched(folder: Path, wanted: str, more: Sequence[str]) -> bool:
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "--quiet", "--no-deps"]
    done = subprocess.run([*command, *more, "--dest", str(folder), wanted], capture_output=True, check=False)
    return done.returncode == 0
