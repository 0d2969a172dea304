"""Checks an artifact's requirements of the machine and the environment."""

from __future__ import annotations

import functools
import importlib.metadata
from collections.abc import Iterable, Mapping
from pathlib import Path

from opatlas.errors import LoadError


def check_versions(needs: Mapping[str, str]) -> None:
    """Every distribution must be installed in exactly this version. A build label (``+cpu``) counts only if
    the requirement has one: ``2.13.0`` accepts ``2.13.0+cpu``."""
    for distribution, wanted in needs.items():
        found = installed_version(distribution)
        if found is None:
            raise LoadError(f"needs {distribution} {wanted}, which is not installed")
        if found != wanted and ("+" in wanted or found.partition("+")[0] != wanted):
            raise LoadError(f"needs {distribution} {wanted}, but {found} is installed")


def installed_version(distribution: str) -> str | None:
    """The installed version of a distribution with its build label; None if it is not installed."""
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def check_features(features: Iterable[str]) -> None:
    """This machine must have every CPU feature that the code uses."""
    lacking = set(features) - machine_features()
    # archspec has names of its own for what the kernel calls otherwise (sse3 for pni); it is slow to ask.
    if lacking:
        lacking -= _archspec_features()
    if lacking:
        raise LoadError(f"needs CPU features that this machine lacks: {', '.join(sorted(lacking))}")


@functools.cache
def machine_features() -> frozenset[str]:
    """This machine's CPU features under the kernel's names."""
    return frozenset(_kernel_features())


@functools.cache
def _archspec_features() -> frozenset[str]:
    import archspec.cpu

    host = archspec.cpu.host()
    aliases = ("sse3", "avx512", "altivec", "fma")
    return frozenset(host.features) | {name for name in aliases if name in host}


def _kernel_features() -> list[str]:
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return []
    for line in text.splitlines():
        label, _, value = line.partition(":")
        if label.strip().lower() in ("flags", "features"):
            return value.split()
    return []
