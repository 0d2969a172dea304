"""Sandbox tiers: how the processes that run candidates are kept from everything else.

T2: bubblewrap. Own user, PID, network, IPC, UTS and mount namespaces, no capabilities, a read-only system
and nothing of the machine's files but what Python, the compilers and the two packages need.
T1: ``unshare`` from util-linux. Own user, PID, network, IPC, UTS and mount namespaces; the host's files can
be read but not written (``confine``), no capabilities.
T0: limits only (``zygote_main`` sets them in every tier). For our own generators.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

TIERS = ("T2", "T1", "T0")
TMP_BYTES = 256 << 20
SHARED_MEMORY_BYTES = 64 << 20

_PROBE = {
    "T2": "import tuning.measure.sandbox.wire",
    "T1": "import os, pathlib; from tuning.measure.sandbox.confine import confine;"
    " confine(pathlib.Path(os.environ['OPATLAS_CONFINE']))",
}
_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib64", "/lib32")
_SYSTEM_BITS = (
    "/etc/ld.so.cache",
    "/etc/ld.so.conf",
    "/etc/ld.so.conf.d",
    "/etc/alternatives",
    "/etc/localtime",
    "/etc/passwd",
    "/etc/group",
    "/etc/nsswitch.conf",
    "/sys/devices/system",
)

_SYSTEM_SETTINGS = ("/proc/sys", "/proc/sysrq-trigger", "/proc/irq", "/proc/bus", "/proc/fs", "/proc/acpi")


@dataclass(frozen=True)
class SandboxTier:
    """A tier, and why the better ones are missing."""

    name: str
    missing: tuple[tuple[str, str], ...] = ()


def package_root() -> Path:
    """The folder that holds the ``opatlas`` and ``tuning`` packages."""
    return Path(__file__).resolve().parents[3]


@cache
def best_tier() -> SandboxTier:
    """The strongest tier that works here, tried for real; cached for the process."""
    missing: list[tuple[str, str]] = []
    for name in TIERS[:-1]:
        reason = why_not(name)
        if reason is None:
            return SandboxTier(name, tuple(missing))
        missing.append((name, reason))
    return SandboxTier("T0", tuple(missing))


def command(tier: str, inner: Sequence[str], work: Path, readable: Sequence[Path] = ()) -> list[str]:
    """The command line that runs ``inner`` in ``tier`` with ``work`` writable and ``readable`` visible."""
    if tier == "T2":
        return [*_bubblewrap(work, readable), *inner]
    if tier == "T1":
        return [*_unshare(), *inner]
    return list(inner)


def environment(tier: str, work: Path, cache: Path | None = None) -> dict[str, str]:
    """All that a sandboxed process sees of the environment. ``cache``: where the loader's own thread pool
    lies compiled, read-only."""
    return {
        **({"OPATLAS_CONFINE": str(work)} if tier == "T1" else {}),
        **({"OPATLAS_OWN_TMP": "1"} if tier == "T2" else {}),
        **({"OPATLAS_CACHE": str(cache)} if cache else {}),
        "PATH": f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin",
        "HOME": "/tmp" if tier == "T2" else str(work),
        "TMPDIR": "/tmp" if tier == "T2" else str(work),
        "LANG": "C.UTF-8",
        "PYTHONPATH": str(package_root()),
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONUNBUFFERED": "1",
        # A pool started while NumPy is imported would not survive the forks; each kernel sets its threads.
        "OPENBLAS_NUM_THREADS": "1",
        **({"LD_LIBRARY_PATH": os.environ["LD_LIBRARY_PATH"]} if "LD_LIBRARY_PATH" in os.environ else {}),
    }


def _bubblewrap(work: Path, readable: Sequence[Path]) -> list[str]:
    arguments = ["bwrap", "--unshare-all", "--die-with-parent", "--new-session", "--cap-drop", "ALL"]
    arguments += ["--size", str(TMP_BYTES), "--tmpfs", "/tmp"]
    for path in (*_SYSTEM, *_SYSTEM_BITS):
        if Path(path).is_symlink():
            arguments += ["--symlink", str(Path(path).readlink()), path]
        else:
            arguments += ["--ro-bind-try", path, path]
    arguments += ["--proc", "/proc", "--dev", "/dev"]
    # Under root its user is the machine's root too, and these ask for no capability: core_pattern, the log.
    for path in _SYSTEM_SETTINGS:
        arguments += ["--ro-bind-try", path, path]
    arguments += ["--size", str(SHARED_MEMORY_BYTES), "--tmpfs", "/dev/shm", "--remount-ro", "/dev"]
    for readable_path in (*_python_paths(), *_packages(), *readable):
        arguments += ["--ro-bind", str(readable_path), str(readable_path)]
    arguments += ["--bind", str(work), str(work), "--chdir", str(work), "--hostname", "sandbox"]
    # What is left of the root is a tmpfs without a limit: nobody may fill it.
    return [*arguments, "--remount-ro", "/"]


def _unshare() -> list[str]:
    return ["unshare", "--user", "--map-root-user", "--pid", "--fork", "--kill-child", "--mount-proc",
            "--net", "--ipc", "--uts", "--mount"]  # fmt: skip


@cache
def _python_paths() -> tuple[Path, ...]:
    """What this Python needs: the virtual environment, and the installation it was made from (which may
    lie in a home folder: pyenv)."""
    wanted = [sys.prefix, sys.base_prefix, *(sysconfig.get_paths()[name] for name in ("stdlib", "purelib"))]
    wanted += [str(Path(sys.executable).resolve().parents[1])]
    chosen: list[Path] = []
    for path in sorted({Path(item) for item in wanted} | {Path(item).resolve() for item in wanted}):
        covered = (*chosen, *map(Path, _SYSTEM))
        if path.exists() and not any(path.is_relative_to(parent) for parent in covered):
            chosen.append(path)
    return tuple(chosen)


def _packages() -> tuple[Path, ...]:
    return (package_root() / "opatlas", package_root() / "tuning")


def why_not(tier: str) -> str | None:
    """None where the tier starts Python here (it is tried); else one sentence."""
    if tier == "T0":
        return None
    program = "bwrap" if tier == "T2" else "unshare"
    if shutil.which(program) is None:
        return f"{program} is not installed"
    probe = [sys.executable, "-c", _PROBE[tier]]
    try:
        with tempfile.TemporaryDirectory(prefix="opatlas-tier-") as folder:
            done = subprocess.run(
                command(tier, probe, Path(folder)),
                env=environment(tier, Path(folder)),
                capture_output=True,
                text=True,
                timeout=20,
                check=False,
            )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{program} does not start: {error}"
    if done.returncode:
        return f"{program} fails here: {(done.stderr.strip().splitlines() or ['no message'])[-1]}"
    return None
