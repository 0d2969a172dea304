"""A target: hardware only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from opatlas.identity.operator import digest_key

KEY_VERSION = "t1"


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
        return digest_key(KEY_VERSION, self.to_json())

    @property
    def capability(self) -> str:
        """The Celery queue that serves it: ``cpu.zen5``."""
        return f"{self.kind}.{self.arch}"

    def to_json(self) -> dict[str, Any]:
        raise NotImplementedError

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Target:
        """Read and check a caller's target; raises :class:`opatlas.errors.InvalidTarget`."""
        raise NotImplementedError


def detect_target() -> Target:
    """The machine this runs on (archspec, ``/proc/cpuinfo``, ``/sys/devices/system/cpu``)."""
    raise NotImplementedError
