"""A target: hardware only."""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from opatlas.errors import InvalidTarget
from opatlas.identity.operator import digest_key

KEY_VERSION = "t1"
MAX_CORES = 4096
MAX_FEATURES = 1024
CACHE_LEVELS = ("l1d", "l2", "l3")
_WORD = re.compile(r"[a-z0-9_.+-]{1,64}")


@dataclass(frozen=True)
class Target:
    """The hardware that a time was measured on.

    ``features`` is the raw feature set (archspec's name alone can be wrong: a virtual machine that hides one
    feature makes a Zen 3 look like a Zen 2), ``cache_bytes`` the sizes by level (``l1d``, ``l2``, ``l3``).
    """

    kind: str  # "cpu"; GPUs will bring "cuda" and "rocm"
    arch: str  # archspec's name ("zen5"), or "sm_90"
    vendor: str
    isa: str  # "x86_64", "aarch64"
    features: tuple[str, ...]
    cache_bytes: tuple[tuple[str, int], ...]
    cores: int

    @cached_property
    def key(self) -> str:
        """``t1:`` and the SHA-256 of the canonical JSON, in hexadecimal."""
        return digest_key(KEY_VERSION, self.to_json())

    @property
    def capability(self) -> str:
        """The Celery queue that serves it: ``cpu.zen5``."""
        return f"{self.kind}.{self.arch}"

    def to_json(self) -> dict[str, Any]:
        """Every field as plain JSON: what the key is made of."""
        return {
            "kind": self.kind,
            "arch": self.arch,
            "vendor": self.vendor,
            "isa": self.isa,
            "features": list(self.features),
            "cache_bytes": dict(self.cache_bytes),
            "cores": self.cores,
        }

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Target:
        """Read and check a caller's target; raises :class:`opatlas.errors.InvalidTarget`."""
        if not isinstance(document, Mapping):
            raise InvalidTarget("A target must be a JSON object, as `opatlas` prints it for a machine.")
        known = cls.__dataclass_fields__
        for name in document:
            if name not in known:
                raise InvalidTarget(
                    f"A target has no field '{str(name)[:80]}'; known are: {', '.join(known)}."
                )
        words = {name: _word(document.get(name), name) for name in ("kind", "arch", "isa")}
        vendor = document.get("vendor", "")
        if not isinstance(vendor, str) or len(vendor) > 64 or not vendor.isprintable():
            raise InvalidTarget("A target's vendor must be text of at most 64 characters.")
        if words["kind"] != "cpu":
            raise InvalidTarget(f"A target of kind '{words['kind']}' is not served yet; only 'cpu' is.")
        features = document.get("features", [])
        if not isinstance(features, list | tuple) or len(features) > MAX_FEATURES:
            raise InvalidTarget(f"A target's features must be a list of at most {MAX_FEATURES} names.")
        cores = document.get("cores")
        if isinstance(cores, bool) or not isinstance(cores, int) or not 1 <= cores <= MAX_CORES:
            raise InvalidTarget(f"A target's cores must be an integer from 1 to {MAX_CORES}.")
        return cls(
            **words,
            vendor=vendor,
            features=tuple(sorted({_word(feature, "feature") for feature in features})),
            cache_bytes=_caches(document.get("cache_bytes", {})),
            cores=cores,
        )


def _word(value: Any, name: str) -> str:
    if not isinstance(value, str) or not _WORD.fullmatch(value):
        raise InvalidTarget(f"A target's {name} must be 1 to 64 of a-z, 0-9, '_', '.', '+' and '-'.")
    return value


def _caches(value: Any) -> tuple[tuple[str, int], ...]:
    if not isinstance(value, Mapping):
        raise InvalidTarget("A target's cache_bytes must be an object such as {'l1d': 32768, 'l2': 1048576}.")
    for level, size in value.items():
        if level not in CACHE_LEVELS:
            raise InvalidTarget(f"A target's cache_bytes has levels {', '.join(CACHE_LEVELS)} only.")
        if isinstance(size, bool) or not isinstance(size, int) or not 0 < size < 1 << 40:
            raise InvalidTarget(f"A target's cache_bytes of {level} must be a number of bytes.")
    return tuple(sorted(value.items()))


def detect_target() -> Target:
    """The machine this runs on (archspec, ``/proc/cpuinfo``, ``/sys/devices/system/cpu``)."""
    import archspec.cpu

    host = archspec.cpu.host()
    features = read_features(Path("/proc/cpuinfo")) or host.features
    return Target(
        kind="cpu",
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
        if kind in ("Data", "Unified") and name in CACHE_LEVELS and size:
            sizes[name] = size
    return tuple(sorted(sizes.items()))


def _bytes(text: str) -> int:
    found = re.fullmatch(r"(\d+)([KMG]?)", text)
    return int(found.group(1)) << {"": 0, "K": 10, "M": 20, "G": 30}[found.group(2)] if found else 0


def usable_cores() -> int:
    """CPUs that this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
