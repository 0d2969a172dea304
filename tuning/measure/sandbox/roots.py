"""What a sandbox sees of the file system: an allow-list for what runs, a longer one for what builds.

*Running* compiled code takes Python's standard library, NumPy, our packages and the system's shared
libraries. *Building* takes the compilers, linkers, headers and the whole virtual environment besides.
Neither shows accounts, settings, homes, or anything else of the machine; ``/etc/passwd`` names the
sandbox's user only. Both tiers that have a root of their own (T2, T1) make it of this.
"""

from __future__ import annotations

import sys
import sysconfig
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tuning.routes.cuda_headers import TOOLKITS

RUNNING = ("native", "manual")
"""Zygotes whose children run compiled code and build none."""

_LINKS = ("/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
_LOADER = ("/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d")
_CPUS = ("/sys/devices/system/cpu", "/sys/devices/system/node")
_TOOLS = (
    *("/usr/bin", "/usr/sbin", "/usr/lib", "/usr/lib32", "/usr/lib64", "/usr/libx32", "/usr/libexec"),
    *("/usr/include", "/usr/local/bin", "/usr/local/lib", "/usr/local/include", "/etc/alternatives"),
    *(f"{toolkit}/include" for toolkit in TOOLKITS),
)
_COMPILERS_IN_LIBRARIES = ("gcc", "gcc-cross", "clang", "bfd-plugins", "compat-ld", "gold-ld")
_RUNNING_PACKAGES = ("numpy", "numpy.libs", "ml_dtypes", "onnx", "google", "typing_extensions.py")
"""What ``opatlas.load`` and the bench's child import, beside our own two packages."""


@dataclass(frozen=True)
class Root:
    """A root file system. Everything in it is read-only and lies where it lies outside."""

    python: Path
    import_from: tuple[Path, ...]
    shown: tuple[Path, ...]
    hidden: tuple[Path, ...] = ()  # folders below what is shown that are empty inside
    links: tuple[tuple[str, str], ...] = ()  # where, to what


def package_root() -> Path:
    """The folder that holds the ``opatlas`` and ``tuning`` packages."""
    return Path(__file__).resolve().parents[3]


def root_of(zygote: str, programs: Iterable[str] = ()) -> Root:
    """What this zygote sees. ``programs`` start it from within (``setpriv``)."""
    return _running(tuple(programs)) if zygote in RUNNING else _building()


def accounts(user: int, group: int) -> dict[str, str]:
    """The sandbox's own /etc/passwd and /etc/group."""
    return {
        "/etc/passwd": f"sandbox:x:{user}:{group}::/tmp:/nonexistent\n",
        "/etc/group": f"sandbox:x:{group}:\n",
    }


@cache
def _running(programs: tuple[str, ...]) -> Root:
    python = Path(sys.executable).resolve()
    standard = Path(sysconfig.get_paths()["stdlib"]).resolve()
    libraries = _library_folders()
    site = [folder.resolve() for folder in _site_folders()]
    packages = [folder / name for folder in dict.fromkeys(site) for name in _RUNNING_PACKAGES]
    shown = [
        *libraries, *map(Path, (*_LOADER, *_CPUS)), *map(Path, programs), python, standard,
        *python.parents[1].glob("lib/libpython*.so*"), *packages, *_our_packages(),
    ]  # fmt: skip
    below = [folder / name for folder in libraries for name in _COMPILERS_IN_LIBRARIES]
    hidden = [*below, standard / "site-packages", *standard.glob("config-*"), *_header_folders(packages)]
    return Root(
        python,
        (package_root(), *dict.fromkeys(site)),
        _existing(shown),
        tuple(path for path in hidden if path.is_dir()),
        _links(),
    )


@cache
def _building() -> Root:
    shown = [*map(Path, (*_TOOLS, *_LOADER, *_CPUS)), *_python_paths(), *_our_packages()]
    return Root(Path(sys.executable), (package_root(),), _existing(shown), (), _links())


def _links() -> tuple[tuple[str, str], ...]:
    """/bin, /lib and the like, where they are links into /usr; else they are shown (see
    ``_library_folders``)."""
    return tuple((name, str(Path(name).readlink())) for name in _LINKS if Path(name).is_symlink())


def _library_folders() -> tuple[Path, ...]:
    """Where the loader finds shared libraries: the architecture's own folder where the system has one
    (Debian), so that nothing else of /usr/lib is shown."""
    architecture = sysconfig.get_config_var("MULTIARCH") or ""
    own = [Path("/usr/lib") / architecture] if architecture else []
    found = [path for path in own if path.is_dir()] or [Path("/usr/lib")]
    found += [Path("/usr/lib64")]
    found += [Path(name) for name in ("/lib", "/lib64") if not Path(name).is_symlink()]
    return tuple(path for path in found if path.is_dir())


def _header_folders(packages: Sequence[Path]) -> list[Path]:
    return [path for package in packages for path in package.glob("**/include") if path.is_dir()]


def _python_paths() -> tuple[Path, ...]:
    """What this Python needs: the virtual environment, and the installation it was made from (which may
    lie in a home folder: pyenv)."""
    wanted: list[str | Path] = [sys.prefix, sys.base_prefix, sysconfig.get_paths()["stdlib"]]
    wanted += _site_folders()
    wanted += [str(Path(sys.executable).resolve().parents[1])]
    paths = sorted({Path(item) for item in wanted} | {Path(item).resolve() for item in wanted})
    return tuple(path for path in paths if path not in (Path("/usr"), Path("/")))


def _site_folders() -> list[Path]:
    """Where packages are imported from: this environment's, and those of others that it takes as well (a bare
    machine's own)."""
    paths = sysconfig.get_paths()
    own = [Path(paths["purelib"]), Path(paths["platlib"])]
    taken = [Path(path) for path in sys.path if Path(path).name in ("site-packages", "dist-packages")]
    return [folder for folder in dict.fromkeys((*own, *taken)) if folder.is_dir()]


def _our_packages() -> tuple[Path, ...]:
    return (package_root() / "opatlas", package_root() / "tuning")


def _existing(paths: Iterable[Path]) -> tuple[Path, ...]:
    """Without what is not there, and what another one holds."""
    chosen: list[Path] = []
    for path in sorted({path for path in paths if path.exists()}):
        if not any(path.is_relative_to(parent) for parent in chosen):
            chosen.append(path)
    return tuple(chosen)
