"""Kinds of devices, as data: what a target of each has for fields, and what a setting may choose there.

Another vendor's GPU is an entry here, and a file beside this one that asks the machine for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class DeviceKind:
    """What is known of a kind before any device is met. ``whole`` and ``texts`` are the fields that a
    :class:`Target` of it has beside those that all have: whole numbers with their largest value, and texts
    with their largest length."""

    name: str
    title: str  # as people write it
    cache_levels: tuple[str, ...]
    whole: Mapping[str, int]
    texts: Mapping[str, int] = field(default_factory=dict)
    threads: bool = False  # a setting may choose a number of threads; else it is 1
    graphs: bool = False  # a setting may ask for launches captured in a graph
    own_memory: bool = True  # not the host's: tensors are brought there

    @property
    def fields(self) -> tuple[str, ...]:
        """In the order in which they are shown."""
        return (*self.texts, *self.whole)


CPU = DeviceKind(
    name="cpu",
    title="CPU",
    cache_levels=("l1d", "l2", "l3"),
    whole={"cores": 4096},
    threads=True,
    own_memory=False,
)
CUDA = DeviceKind(
    name="cuda",
    title="NVIDIA GPU",
    cache_levels=("l2",),
    whole={"multiprocessors": 4096, "memory_gib": 1 << 20},
    texts={"product": 100},
    graphs=True,
)
KINDS: Mapping[str, DeviceKind] = {kind.name: kind for kind in (CPU, CUDA)}
