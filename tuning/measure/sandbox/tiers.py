"""Sandbox tiers: how the processes that run candidates are kept from everything else.

T2: bubblewrap. A user of its own where the worker is root (a user namespace otherwise), own PID, network,
IPC, UTS, cgroup and mount namespaces, no capabilities, a root made of an allow-list (:mod:`roots`), and a
filter for system calls (:mod:`syscalls`). The only one in which submitted code is built or run.
T1: ``unshare`` from util-linux. Own user, PID, network, IPC, UTS and mount namespaces, the same allow-list
for a root (:mod:`confine`), no capabilities. For our own generators and sources.
T0: limits only (``zygote_main`` sets them in every tier). For our own generators and sources.

In T2 and T1 each zygote is in a control group of its own where the system gives one (:mod:`cgroups`).
"""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tuning.measure.sandbox import cgroups, syscalls
from tuning.measure.sandbox.identities import NoIdentity
from tuning.measure.sandbox.programs import NoProgram
from tuning.measure.sandbox.walls import SHOWN_INSIDE, Walls, standing

TIERS = ("T2", "T1", "T0")
PROBE_S = 20.0
_PROBE = {
    "T2": "import tuning.measure.sandbox.wire",
    "T1": "import json, os; from tuning.measure.sandbox.confine import confine;"
    " confine(json.loads(os.environ['OPATLAS_CONFINE']))",
}


@dataclass(frozen=True)
class SandboxTier:
    """A tier, and why the better ones are missing. ``limits``: empty where control groups bound it, else
    why the parent's watching and ``setrlimit`` alone do."""

    name: str
    missing: tuple[tuple[str, str], ...] = ()
    limits: str = ""

    def why_not_for(self, submitted: bool, own: bool) -> str:
        """Empty where code may be built and run in this tier, else what is missing. Submitted code needs T2,
        unless it is ours all the same (``own``): that needs T1."""
        if not submitted or self.name == "T2" or (own and self.name == "T1"):
            return ""
        missing = "; ".join(f"{name}: {reason}" for name, reason in self.missing)
        return (
            f"submitted code runs in a sandbox of tier T2 only ({missing or f'this worker has {self.name}'})"
        )


@cache
def best_tier() -> SandboxTier:
    """The strongest tier that works here, tried for real; cached for the process."""
    missing: list[tuple[str, str]] = []
    for name in TIERS[:-1]:
        reason = why_not(name)
        if reason is None:
            return SandboxTier(name, tuple(missing), cgroups.why_not() or "")
        missing.append((name, reason))
    return SandboxTier("T0", tuple(missing), "tier T0 has no control groups")


def why_not(tier: str) -> str | None:
    """None where the tier starts Python here (it is tried); else one sentence."""
    if tier == "T0":
        return None
    name = "bwrap" if tier == "T2" else "unshare"
    try:
        with tempfile.TemporaryDirectory(prefix="opatlas-tier-") as folder:
            done = _try(tier, Path(folder))
    except (NoProgram, NoIdentity, syscalls.NoFilter) as error:
        return str(error)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{name} does not start: {error}"
    if done.returncode:
        return f"{name} fails here: {(done.stderr.strip().splitlines() or ['no message'])[-1]}"
    return None


def _try(tier: str, folder: Path) -> subprocess.CompletedProcess[str]:
    with standing(tier, "manual", folder) as walls:
        return said_inside(walls, ["-c", _PROBE[tier]])


def said_inside(walls: Walls, arguments: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """What Python says within them; raises :class:`subprocess.TimeoutExpired`."""
    return subprocess.run(
        walls.command(arguments),
        env=walls.environment(),
        pass_fds=walls.files,
        capture_output=True,
        text=True,
        timeout=PROBE_S,
        check=False,
        umask=SHOWN_INSIDE,
    )
