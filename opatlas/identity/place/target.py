"""A target: hardware only."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from opatlas.errors import InvalidTarget
from opatlas.identity.operator import digest_key
from opatlas.identity.place.kinds import KINDS, DeviceKind

KEY_VERSION = "t1"
MAX_FEATURES = 1024
_WORD = re.compile(r"[a-z0-9_.+-]{1,64}")


@dataclass(frozen=True)
class Target:
    """The hardware that a time was measured on.

    ``features`` is the raw feature set (archspec's name alone can be wrong: a virtual machine that hides one
    feature makes a Zen 3 look like a Zen 2), ``cache_bytes`` the sizes by level (``l1d``, ``l2``, ``l3``).
    What stands below ``cache_bytes`` only devices of some kinds have (:mod:`opatlas.identity.place.kinds`);
    the others' keys know nothing of it.
    """

    kind: str  # of KINDS: "cpu", "cuda"
    arch: str  # archspec's name ("zen5"), or "sm_90"
    vendor: str
    isa: str  # "x86_64", "aarch64", "ptx"
    features: tuple[str, ...]
    cache_bytes: tuple[tuple[str, int], ...]
    cores: int = 0
    product: str = ""  # "NVIDIA H100 80GB HBM3"
    multiprocessors: int = 0
    memory_gib: int = 0  # rounded up to fours: what a driver keeps for itself changes with its version

    @cached_property
    def key(self) -> str:
        """``t1:`` and the SHA-256 of the canonical JSON, in hexadecimal."""
        return digest_key(KEY_VERSION, self.to_json())

    @property
    def capability(self) -> str:
        """The Celery queue that serves it: ``cpu.zen5``, ``cuda.sm_90``."""
        return f"{self.kind}.{self.arch}"

    @property
    def device(self) -> DeviceKind:
        """What is known of its kind."""
        return KINDS[self.kind]

    def to_json(self) -> dict[str, Any]:
        """Every field that its kind has as plain JSON: what the key is made of."""
        return {
            "kind": self.kind,
            "arch": self.arch,
            "vendor": self.vendor,
            "isa": self.isa,
            "features": list(self.features),
            "cache_bytes": dict(self.cache_bytes),
            **{name: getattr(self, name) for name in self.device.fields},
        }

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Target:
        """Read and check a caller's target; raises :class:`opatlas.errors.InvalidTarget`."""
        if not isinstance(document, Mapping):
            raise InvalidTarget("A target must be a JSON object, as `opatlas` prints it for a machine.")
        kind = _kind(document.get("kind"))
        known = (*_COMMON, *kind.fields)
        for name in document:
            if name not in known:
                raise InvalidTarget(
                    f"A {kind.name} target has no field '{str(name)[:80]}'; known are: {', '.join(known)}."
                )
        features = document.get("features", [])
        if not isinstance(features, list | tuple) or len(features) > MAX_FEATURES:
            raise InvalidTarget(f"A target's features must be a list of at most {MAX_FEATURES} names.")
        return cls(
            kind=kind.name,
            arch=_word(document.get("arch"), "arch"),
            vendor=_text(document.get("vendor", ""), "vendor", 64),
            isa=_word(document.get("isa"), "isa"),
            features=tuple(sorted({_word(feature, "feature") for feature in features})),
            cache_bytes=_caches(document.get("cache_bytes", {}), kind),
            **_of_kind(document, kind),
        )


_COMMON = ("kind", "arch", "vendor", "isa", "features", "cache_bytes")


def _kind(value: Any) -> DeviceKind:
    if not isinstance(value, str) or value not in KINDS:
        shown = f"'{str(value)[:80]}'" if value is not None else "nothing"
        raise InvalidTarget(f"A target's kind is one of {', '.join(KINDS)}, not {shown}.")
    return KINDS[value]


def _of_kind(document: Mapping[str, Any], kind: DeviceKind) -> dict[str, Any]:
    """The fields that only devices of this kind have."""
    found: dict[str, Any] = {}
    for name, most in kind.texts.items():
        found[name] = _text(document.get(name, ""), name, most)
    for name, most in kind.whole.items():
        found[name] = _whole(document.get(name), name, most)
    return found


def _word(value: Any, name: str) -> str:
    if not isinstance(value, str) or not _WORD.fullmatch(value):
        raise InvalidTarget(f"A target's {name} must be 1 to 64 of a-z, 0-9, '_', '.', '+' and '-'.")
    return value


def _text(value: Any, name: str, most: int) -> str:
    if not isinstance(value, str) or len(value) > most or not value.isprintable():
        raise InvalidTarget(f"A target's {name} must be text of at most {most} characters.")
    return value


def _whole(value: Any, name: str, most: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
        raise InvalidTarget(f"A target's {name} must be an integer from 1 to {most}.")
    return value


def _caches(value: Any, kind: DeviceKind) -> tuple[tuple[str, int], ...]:
    if not isinstance(value, Mapping):
        raise InvalidTarget("A target's cache_bytes must be an object such as {'l1d': 32768, 'l2': 1048576}.")
    for level, size in value.items():
        if level not in kind.cache_levels:
            raise InvalidTarget(f"A target's cache_bytes has levels {', '.join(kind.cache_levels)} only.")
        if isinstance(size, bool) or not isinstance(size, int) or not 0 < size < 1 << 40:
            raise InvalidTarget(f"A target's cache_bytes of {level} must be a number of bytes.")
    return tuple(sorted(value.items()))
