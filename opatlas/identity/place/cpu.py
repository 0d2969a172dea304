"""The processor that this runs on, as a target."""

from __future__ import annotations

import platform
import re
from pathlib import Path

from opatlas.cores import usable_cores
from opatlas.identity.place.kinds import CPU
from opatlas.identity.place.target import Target


def detect_target() -> Target:
    """The machine this runs on (archspec, ``/proc/cpuinfo``, ``/sys/devices/system/cpu``)."""
    import archspec.cpu

    host = archspec.cpu.host()
    features = read_features(Path("/proc/cpuinfo")) or host.features
    return Target(
        kind=CPU.name,
        arch=host.name,
        vendor=_vendor(Path("/proc/cpuinfo")) or host.vendor,
        isa=platform.machine().lower().replace("amd64", "x86_64"),
        features=tuple(sorted(feature.lower() for feature in features)),
        cache_bytes=read_caches(Path("/sys/devices/system/cpu/cpu0/cache")),
        cores=usable_cores(),
    )


def read_features(cpuinfo: Path) -> set[str]:
    """The raw feature names of the first CPU; empty where the file cannot be read."""
    try:
        text = cpuinfo.read_text(errors="replace")
    except OSError:
        return set()
    found = re.search(r"^(?:flags|Features)\s*:\s*(.*)$", text, re.MULTILINE)
    return {name for name in found.group(1).split() if name not in _NOT_HARDWARE} if found else set()


def _vendor(cpuinfo: Path) -> str:
    """The vendor as the processor says it: archspec's is "generic" where it does not know the processor."""
    try:
        found = re.search(r"^vendor_id\s*:\s*(\S+)$", cpuinfo.read_text(errors="replace"), re.MULTILINE)
    except OSError:
        return ""
    return found.group(1)[:64] if found else ""


# What the kernel or the hypervisor says of itself: it changes with a reboot, not with the hardware.
_NOT_HARDWARE = frozenset(
    {
        "arch_capabilities", "constant_tsc", "cpuid", "flush_l1d", "hypervisor", "ibpb", "ibrs",
        "ibrs_enhanced", "md_clear", "nonstop_tsc", "nopl", "ospke", "osxsave", "rep_good", "retpoline",
        "spec_ctrl", "ssbd", "stibp", "topoext", "tsc_known_freq", "vmmcall", "xtopology",
    }
)  # fmt: skip


def read_caches(folder: Path) -> tuple[tuple[str, int], ...]:
    """Cache sizes by level in bytes, as one CPU sees them; empty where they are not told."""
    sizes: dict[str, int] = {}
    for index in sorted(folder.glob("index*")):
        try:
            level = (index / "level").read_text().strip()
            kind = (index / "type").read_text().strip()
            size = _bytes((index / "size").read_text().strip())
        except OSError:
            continue
        name = f"l{level}d" if level == "1" else f"l{level}"
        if kind in ("Data", "Unified") and name in CPU.cache_levels and size:
            sizes[name] = size
    return tuple(sorted(sizes.items()))


def _bytes(text: str) -> int:
    found = re.fullmatch(r"(\d+)([KMG]?)", text)
    return int(found.group(1)) << {"": 0, "K": 10, "M": 20, "G": 30}[found.group(2)] if found else 0
