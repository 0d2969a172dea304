"""A setting: what a time holds for beside the hardware."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any, Literal

from opatlas.errors import InvalidTarget
from opatlas.identity.operator import digest_key
from opatlas.identity.place.kinds import DeviceKind
from opatlas.identity.place.target import Target

KEY_VERSION = "s1"
MAX_THREADS = 4096
ACCUMULATE = ("float16", "bfloat16", "float32", "float64")
FLAGS = {"tf32": "TF32", "fast_math": "fast math", "graphs": "CUDA graphs"}
"""Fields that are true or false, and what people call them."""


@dataclass(frozen=True)
class Setting:
    """Threads, cache state and numerics under which an operator runs."""

    threads: int = 1
    cache: Literal["warm", "cold"] = "warm"
    accumulate: str = "float32"  # the narrowest type sums may be kept in
    tf32: bool = False
    fast_math: bool = False
    graphs: bool = False  # launches captured once and replayed, on devices that can

    @cached_property
    def key(self) -> str:
        """``s1:`` and the SHA-256 of the canonical JSON, in hexadecimal."""
        return digest_key(KEY_VERSION, self.to_json())

    def to_json(self) -> dict[str, Any]:
        """Every field as plain JSON: what the key is made of. A field that came later is left out where it
        says what was meant before."""
        document = asdict(self)
        if not self.graphs:
            del document["graphs"]
        return document

    def words(self, kind: DeviceKind) -> str:
        """As people read it, on a device of this kind: "2 threads, warm cache"; only what is not usual is
        said beside these."""
        said = [f"{self.threads} {'thread' if self.threads == 1 else 'threads'}"] if kind.threads else []
        said.append(f"{self.cache} cache")
        if self.accumulate != "float32":
            said.append(f"sums in {self.accumulate}")
        said += [title for name, title in FLAGS.items() if getattr(self, name)]
        return ", ".join(said)

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Setting:
        """Read and check a caller's setting; raises :class:`opatlas.errors.InvalidTarget`.

        Fields left out take their defaults: one thread, warm cache, strict float32.
        """
        if not isinstance(document, Mapping):
            raise InvalidTarget("A setting must be a JSON object such as {'threads': 2}.")
        known = cls.__dataclass_fields__
        unknown = [str(name)[:80] for name in document if name not in known]
        if unknown:
            raise InvalidTarget(f"A setting has no field '{unknown[0]}'; known are: {', '.join(known)}.")
        threads = document.get("threads", 1)
        if isinstance(threads, bool) or not isinstance(threads, int) or not 1 <= threads <= MAX_THREADS:
            raise InvalidTarget(f"A setting's threads must be an integer from 1 to {MAX_THREADS}.")
        cache = document.get("cache", "warm")
        if cache not in ("warm", "cold"):
            raise InvalidTarget("A setting's cache must be 'warm' or 'cold'.")
        accumulate = document.get("accumulate", "float32")
        if accumulate not in ACCUMULATE:
            raise InvalidTarget(f"A setting's accumulate must be one of {', '.join(ACCUMULATE)}.")
        flags = {name: document.get(name, False) for name in FLAGS}
        for name, value in flags.items():
            if not isinstance(value, bool):
                raise InvalidTarget(f"A setting's {name} must be true or false.")
        return cls(threads=threads, cache=cache, accumulate=accumulate, **flags)


def default_setting(target: Target) -> Setting:
    """What a job without wishes gets: all cores, where threads mean anything; warm cache, strict float32."""
    return Setting(threads=target.cores if target.device.threads else 1)


def check_setting(setting: Setting, target: Target) -> None:
    """Refuse a setting that the target cannot run; raises :class:`opatlas.errors.InvalidTarget`, whose
    ``where`` names the field."""
    kind = target.device
    if kind.threads and setting.threads > target.cores:
        raise _misplaced(
            "threads",
            f"The setting asks for {setting.threads} threads, but the target has {target.cores} cores: "
            f"ask for 1 to {target.cores} threads.",
        )
    if not kind.threads and setting.threads != 1:
        raise _misplaced(
            "threads",
            f"A target of kind {kind.name} has no threads to choose: leave threads out, or say 1.",
        )
    if setting.graphs and not kind.graphs:
        raise _misplaced("graphs", f"A target of kind {kind.name} has no graphs: leave graphs out.")


def _misplaced(field: str, sentence: str) -> InvalidTarget:
    error = InvalidTarget(sentence)
    error.where = f"setting.{field}"
    return error
