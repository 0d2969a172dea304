"""A setting: what a time holds for beside the hardware."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

from opatlas.identity.operator import digest_key

KEY_VERSION = "s1"


@dataclass(frozen=True)
class Setting:
    """Threads, cache state and numerics under which an operator runs."""

    threads: int = 1
    cache: Literal["warm", "cold"] = "warm"
    accumulate: str = "float32"  # the narrowest type sums may be kept in
    tf32: bool = False
    fast_math: bool = False

    @cached_property
    def key(self) -> str:
        return digest_key(KEY_VERSION, self.to_json())

    def to_json(self) -> dict[str, Any]:
        raise NotImplementedError

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Setting:
        """Read and check a caller's setting; raises :class:`opatlas.errors.InvalidTarget`."""
        raise NotImplementedError


def default_setting(cores: int) -> Setting:
    """What a job without wishes gets: all cores, warm cache, strict float32."""
    return Setting(threads=cores)
