"""A bounded cache: values asked for again stay, others make room. PURE."""

from __future__ import annotations

from collections.abc import Hashable
from threading import Lock
from typing import Generic, Protocol, TypeVar


class Weighed(Protocol):
    @property
    def weight_bytes(self) -> int: ...


K = TypeVar("K", bound=Hashable)
V = TypeVar("V", bound=Weighed)


class Shelf(Generic[K, V]):
    """At most ``most_bytes`` of values by key; 0: none. It has two generations. A value that is put, or found
    in the old one, goes into the young one; when that is full, it becomes the old one and the old values are
    dropped. So a look-up is one or two of a dict, half the cost of an order by use. A million keys asked once
    each push out frequent values from at most half of the room."""

    def __init__(self, most_bytes: int) -> None:
        self._half_bytes = most_bytes // 2
        self._lock = Lock()
        self.clear()

    def clear(self) -> None:
        with self._lock:
            self._young: dict[K, V] = {}
            self._old: dict[K, V] = {}
            self._young_bytes = 0

    def __len__(self) -> int:
        return len(self._young.keys() | self._old.keys())

    def get(self, key: K) -> V | None:
        value = self._young.get(key)
        if value is None and (value := self._old.get(key)) is not None:
            self.put(key, value)
        return value

    def put(self, key: K, value: V) -> None:
        """Keep it, unless it is larger than half of the room."""
        weight = value.weight_bytes
        if weight > self._half_bytes:
            return
        with self._lock:
            before = self._young.get(key)
            self._young_bytes += weight - (before.weight_bytes if before is not None else 0)
            if self._young_bytes > self._half_bytes:
                self._young, self._old, self._young_bytes = {}, self._young, weight
            self._young[key] = value
