"""What of a model lies channels-last, its branches and loops included. PURE, and plain JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from opatlas.errors import CallerError
from opatlas.graph.linked import NodeAt, NodePath

MOST_PLACES = 100_000
MOST_PATH = 33
"""Numbers of one path: sixteen bodies within each other, as plans have, and what is there."""


class InvalidChannelsLast(CallerError):
    """What is no list of places in a model: one sentence."""


@dataclass(frozen=True)
class ChannelsLast:
    """``units``: nodes by the unit in which they run so, in order. ``handed``: outputs of branches and loops
    that lie so, each by its node's path and its place among the outputs; so do the values that branches
    leave there and that loops carry. ``brought``: values, each by the path of the body and its number there,
    that are brought into their other layout in that very body for those in it that read them: before a loop
    rather than in it, in a rare branch rather than before it."""

    units: tuple[tuple[NodeAt, ...], ...] = ()
    handed: frozenset[NodePath] = frozenset()
    brought: frozenset[NodePath] = frozenset()

    def __bool__(self) -> bool:
        return bool(self.units or self.handed or self.brought)

    @property
    def nodes(self) -> int:
        """How many run so."""
        return sum(map(len, self.units))

    @cached_property
    def own_units(self) -> tuple[tuple[int, ...], ...]:
        """Of the model itself, without its bodies."""
        plain = [tuple(node for node in unit if isinstance(node, int)) for unit in self.units]
        return tuple(unit for unit in plain if unit)

    @cached_property
    def own_handed(self) -> frozenset[tuple[int, int]]:
        """Of the model's own nodes: number and place."""
        return frozenset((one[0], one[1]) for one in self.handed if len(one) == 2)

    @cached_property
    def own_brought(self) -> frozenset[int]:
        return frozenset(one[0] for one in self.brought if len(one) == 1)

    @cached_property
    def bodies(self) -> Mapping[tuple[int, int], ChannelsLast]:
        """The same of each body in which something lies so, or its node's outputs do, by node and body."""
        found: dict[tuple[int, int], _Parts] = {}
        for unit in self.units:
            if isinstance(unit[0], tuple):
                within = tuple(node[2:] if isinstance(node, tuple) else () for node in unit)
                plain = tuple(node[0] if len(node) == 1 else node for node in within)
                found.setdefault(unit[0][:2], _Parts()).units.append(plain)  # type: ignore[arg-type]
        for one in self.handed:
            if len(one) > 2:
                found.setdefault((one[0], one[1]), _Parts()).handed.add(one[2:])
        for one in self.brought:
            if len(one) > 1:
                found.setdefault((one[0], one[1]), _Parts()).brought.add(one[2:])
        return {at: one.made() for at, one in found.items()}

    @cached_property
    def nodes_with_bodies(self) -> frozenset[int]:
        """The model's own branches and loops in which, or at whose ends, something lies so."""
        return frozenset(node for node, _ in (*self.bodies, *self.own_handed))

    def to_json(self) -> dict[str, Any]:
        """Fields that say nothing are left out: whoever does not know them finds other operators than a plan
        says, and refuses it."""
        fields = {
            "nhwc": [
                [list(node) if isinstance(node, tuple) else node for node in unit] for unit in self.units
            ],
            "handed": sorted(map(list, self.handed)),
            "brought": sorted(map(list, self.brought)),
        }
        return {name: value for name, value in fields.items() if value}

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> ChannelsLast:
        """Raises :class:`InvalidChannelsLast`."""
        units = [_unit(one) for one in _list(document, "nhwc")]
        handed, brought = ([_path(one) for one in _list(document, name)] for name in ("handed", "brought"))
        if any(len(one) % 2 for one in handed) or any(len(one) % 2 == 0 for one in brought):
            raise InvalidChannelsLast("'handed' and 'brought' must be places in the model.")
        return cls(tuple(units), frozenset(handed), frozenset(brought))


NOTHING = ChannelsLast()


class _Parts:
    """Of one body, in the making."""

    def __init__(self) -> None:
        self.units: list[tuple[NodeAt, ...]] = []
        self.handed: set[NodePath] = set()
        self.brought: set[NodePath] = set()

    def made(self) -> ChannelsLast:
        return ChannelsLast(tuple(self.units), frozenset(self.handed), frozenset(self.brought))


def _list(document: Mapping[str, Any], name: str) -> Sequence[Any]:
    found = document.get(name, [])
    if not isinstance(found, list) or len(found) > MOST_PLACES:
        raise InvalidChannelsLast(f"'{name}' must be a list of at most {MOST_PLACES}.")
    return found


def _unit(nodes: Any) -> tuple[NodeAt, ...]:
    if not isinstance(nodes, list) or not nodes:
        raise InvalidChannelsLast("'nhwc' must be a list of nodes by unit.")
    paths = [_path(node if isinstance(node, list) else [node]) for node in nodes]
    if len({path[:-1] for path in paths}) > 1 or len(paths[0]) % 2 == 0:
        raise InvalidChannelsLast("The nodes of a unit of 'nhwc' must be of one body.")
    return tuple(path[0] if len(path) == 1 else path for path in paths)


def _path(numbers: Any) -> NodePath:
    is_path = isinstance(numbers, list) and 1 <= len(numbers) <= MOST_PATH + 1
    if not is_path or not all(type(one) is int and 0 <= one < 2**53 for one in numbers):
        raise InvalidChannelsLast(
            "What lies channels-last must be said by whole numbers of nodes and values."
        )
    return tuple(numbers)
