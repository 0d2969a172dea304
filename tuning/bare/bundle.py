"""One archive for a bare machine: the source, packages that it lacks, laid out, bubblewrap, and what was
built at home."""

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
from tuning.bare.wheels import build_pycuda, lay_out
from tuning.conf import conf

ROOT = Path(__file__).resolve().parents[2]
MOST_BYTES = 64 << 20
PREBUILT, PYCUDA = Path("var/gpu/prebuilt"), Path("var/gpu/pycuda")
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
    builds: int
    missing: tuple[str, ...]


def make_bundle(
    out: Path, download: bool = True, home: Path | None = None, prebuilt: Path = PREBUILT
) -> Made:
    """Raises :class:`BundleTooLarge`. ``download``: with packages of the index; else the rest alone.
    ``home``: the environment of :mod:`tuning.bare.home`, which builds PyCUDA. ``prebuilt``: what was built
    for named architectures (:mod:`tuning.bare.prebuilding`)."""
    missing: list[str] = []
    with TemporaryDirectory(prefix="opatlas-bundle-") as made:
        folder = Path(made) / "bundle"
        folder.mkdir()
        _copy_tree(folder)
        _copy_lists(folder / "workloads", missing)
        _copy_bubblewrap(folder / "bubblewrap", missing)
        wheels = _lay_out_wheels(folder / "site", Path(made) / "wheels", home, missing) if download else 0
        builds = _copy_prebuilt(prebuilt, folder / "prebuilt", missing)
        out.parent.mkdir(parents=True, exist_ok=True)
        with tarfile.open(out, "w:gz") as archive:
            archive.add(folder, arcname="opatlas-gpu", filter=_nobodys)
    nbytes, beside = out.stat().st_size, sum((ROOT / name).stat().st_size for name in _tracked())
    if nbytes + beside > MOST_BYTES:
        out.unlink()
        raise BundleTooLarge(
            f"{nbytes >> 20} MiB and {beside >> 20} MiB of tree: at most {MOST_BYTES >> 20} travel."
        )
    return Made(nbytes, wheels, builds, tuple(missing))


def _copy_prebuilt(source: Path, place: Path, missing: list[str]) -> int:
    """How many builds."""
    if not source.is_dir():
        missing.append(f"{source} (make gpu-prebuild makes it): all is built on the device's time")
        return 0
    shutil.copytree(source, place)
    return sum(1 for _ in place.glob("builds/*.json"))


def _lay_out_wheels(site: Path, wheels: Path, home: Path | None, missing: list[str]) -> int:
    """Those of the index, and PyCUDA, whose wheel is kept for the next bundle; how many."""
    wheels.mkdir()
    _download(wheels, missing)
    for source in wheels.glob("pycuda-*.tar.gz"):
        kept = PYCUDA / source.name
        if home is None or not (home / "bin/python").exists():
            missing.append(f"{source.name} (make gpu-home makes what builds it)")
            continue
        kept.mkdir(parents=True, exist_ok=True)
        if not any(kept.glob("*.whl")):
            root = next(home.absolute().glob("lib/python*/site-packages/nvidia/cu13"))
            if why := build_pycuda(source, home / "bin/python", root, kept):
                missing.append(f"{source.name} (it was not built: {why})")
        for built in kept.glob("*.whl"):
            shutil.copy2(built, wheels)
    found = sorted(wheels.glob("*.whl"))
    for wheel in found:
        lay_out(wheel, site)
    return len(found)


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
    """All at once; where the index lacks one, each on its own: that leaves the others in."""
    lines = (Path(__file__).with_name("requirements.txt")).read_text().splitlines()
    every = [wanted for line in lines if (wanted := line.partition("#")[0].strip())]
    platforms = [part for name in _PLATFORMS for part in ("--platform", name)]
    binary = ["--only-binary=:all:", "--python-version", _PYTHON, "--implementation", "cp", *platforms]
    for wanted in () if _fetched(folder, every, binary) else every:
        if not _fetched(folder, [wanted], binary):
            missing.append(f"{wanted} (the index has no wheel for Python {_PYTHON})")
    source = _PYCUDA.search((ROOT / "requirements-gpu.txt").read_text())
    assert source is not None
    if not _fetched(folder, [source[0]], ["--no-binary=pycuda", "--no-build-isolation"]):
        missing.append(f"{source[0]} (the index has no source distribution of it)")


def _fetched(folder: Path, wanted: Sequence[str], more: Sequence[str]) -> bool:
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "--quiet", "--no-deps"]
    done = subprocess.run([*command, *more, "--dest", str(folder), *wanted], capture_output=True, check=False)
    return done.returncode == 0
