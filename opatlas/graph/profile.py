"""What real runs of a model showed: how often each node ran, and how long that took. PURE.

A profile is of one structure (``m1:``), whose key has no weights in it; since weights decide which branches
are taken, it may be of one *version* too. Nodes are told by where they are. A node that was not seen is
unknown and not idle: what a framework fuses into another node has no event of its own.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from opatlas.errors import CallerError, printable
from opatlas.graph.linked import NodePath, unique_name

PROFILE_VERSION = 1
MOST_EVENTS = 1_000_000
"""Of ONNX Runtime's profiler, which drops all that come later: its counts are wrong then."""
MOST_PROFILED = 100_000
MOST_PATH = 33
"""Numbers of one node's path: sixteen bodies within each other, as plans have."""
MOST_COUNT = 2**53
MOST_TEXT = 100
MIB = 1 << 20
KERNEL_TIME = "_kernel_time"
"""What ONNX Runtime's profiler puts behind a node's name."""
_RUN = "model_run"


class InvalidProfile(CallerError):
    """A profile that cannot be: broken, cut off, of another form, model or version."""


@dataclass(frozen=True)
class NodeProfile:
    """One node in all runs together. ``total_us`` has the time of its bodies in it, ``self_us`` has not; None
    where it was not timed by itself."""

    count: int = 0
    total_us: float | None = 0.0
    self_us: float | None = 0.0

    @property
    def total_per_run_us(self) -> float | None:
        """None where nothing is known of it."""
        return _per_run(self.total_us, self.count)

    @property
    def self_per_run_us(self) -> float | None:
        """None where nothing is known of it."""
        return _per_run(self.self_us, self.count)

    def scaled(self, by: float) -> NodeProfile:
        """Its times so many times as long."""
        total_us, self_us = (None if us is None else us * by for us in (self.total_us, self.self_us))
        return NodeProfile(self.count, total_us, self_us)

    def __add__(self, other: NodeProfile) -> NodeProfile:
        return NodeProfile(
            self.count + other.count,
            _sum(self.total_us, other.total_us),
            _sum(self.self_us, other.self_us),
        )


NEVER = NodeProfile()


@dataclass(frozen=True)
class BorderCosts:
    """What it costs to end one part of a model in ONNX Runtime and to begin another: for each part
    (``handoff_us``), and for each MiB that is brought from or into blocks of channels between them."""

    handoff_us: float
    us_per_mib: float

    def ends_us(self, count: int) -> float:
        """Of one part, with so many bytes."""
        return self.handoff_us + self.us_per_mib * count / MIB


@dataclass(frozen=True)
class ModelProfile:
    """``model``: the structure's key; ``version``: what its maker calls these weights, empty where nobody
    said; ``by``: who ran it, with its version; ``runs`` of the model; ``nodes`` that were seen. ``borders``:
    where nodes' times are what each takes in a warm run without a profiler, beside what leaving them to
    parts of the model costs; None where they have in them what only a first run does."""

    model: str
    version: str
    by: str
    runs: int
    nodes: Mapping[NodePath, NodeProfile]
    borders: BorderCosts | None = None

    def of(self, at: NodePath) -> NodeProfile:
        return self.nodes.get(at, NEVER)

    def in_place(self, whole_us: float, borders: BorderCosts) -> ModelProfile:
        """Of warm runs: with times in proportion such that a run takes ``whole_us``, as without a
        profiler."""
        outer = [one.total_us or 0.0 for at, one in self.nodes.items() if len(at) == 1]
        total_us = math.fsum(outer) / self.runs
        scale = whole_us / total_us if total_us else 1.0
        nodes = {at: one.scaled(scale) for at, one in self.nodes.items()}
        return replace(self, nodes=nodes, borders=borders)

    def check(self, model: str, version: str = "") -> None:
        """Raises :class:`InvalidProfile` unless it is a profile of this structure and, where both sides name
        one, of this version."""
        if self.model != model:
            raise InvalidProfile(
                f"The profile is of model {self.model[:20]}…, not of {model[:20]}…: profile this one."
            )
        if self.version and version and self.version != version:
            raise InvalidProfile(
                f"The profile is of version {self.version!r} of the model, not of {version!r}: its weights "
                "may take other branches."
            )

    def merged(self, other: ModelProfile) -> ModelProfile:
        """Of the runs of both. Raises :class:`InvalidProfile` where they are not of one model and version, or
        not by one framework: times of two would mean nothing together."""
        other.check(self.model, self.version)
        if other.by != self.by:
            raise InvalidProfile(f"One profile is by {self.by}, the other by {other.by}: keep them apart.")
        nodes = {at: self.of(at) + other.of(at) for at in sorted({*self.nodes, *other.nodes})}
        version = self.version if self.version == other.version else ""
        borders = self.borders if other.borders == self.borders else None
        return replace(self, version=version, runs=self.runs + other.runs, nodes=nodes, borders=borders)

    def to_json(self) -> dict[str, Any]:
        borders = {} if self.borders is None else {"borders": asdict(self.borders)}
        return borders | {
            "profile": PROFILE_VERSION,
            "model": self.model,
            "version": self.version,
            "by": self.by,
            "runs": self.runs,
            "nodes": [
                {"at": list(at), "count": one.count, "total_us": one.total_us, "self_us": one.self_us}
                for at, one in self.nodes.items()
            ],
        }

    @classmethod
    def from_json(cls, document: Any) -> ModelProfile:
        """Raises :class:`InvalidProfile` with one sentence for what is no profile of this form."""
        if not isinstance(document, Mapping):
            raise InvalidProfile(f"A profile is a JSON object, not {type(document).__name__}.")
        if type(document.get("profile")) is not int or document["profile"] != PROFILE_VERSION:
            said = str(document.get("profile"))[:20]
            raise InvalidProfile(f"The profile is of form {said}; form {PROFILE_VERSION} is read.")
        rows = document.get("nodes")
        if not isinstance(rows, list) or len(rows) > MOST_PROFILED:
            raise InvalidProfile(f"A profile's 'nodes' must be a list of at most {MOST_PROFILED}.")
        nodes = dict(map(_node, rows))
        if len(nodes) < len(rows):
            raise InvalidProfile("The profile has a node twice.")
        model, version, by = (_text(document, name) for name in ("model", "version", "by"))
        runs, borders = _count(document.get("runs"), 1, "runs"), _borders(document.get("borders"))
        return cls(model, version, by, runs, nodes, borders)


def from_onnx_runtime(
    events: Any,
    where: Callable[[str], NodePath | None],
    *,
    model: str,
    version: str = "",
    by: str = "onnxruntime",
) -> ModelProfile:
    """What ONNX Runtime's profiler wrote (its file, read as JSON) as a profile.

    ``where`` tells a node by the name that the profiler has for it, None for one that is not the model's. Of
    a branch or loop the total has its bodies' nodes in it, and its self time is what they leave. Raises
    :class:`InvalidProfile` for what is no such file, has no run in it, or was cut off.
    """
    if not isinstance(events, list):
        raise InvalidProfile("ONNX Runtime's profile is a JSON list of events.")
    if len(events) >= MOST_EVENTS:
        raise InvalidProfile(
            f"The profile has {len(events):,} events; ONNX Runtime drops those beyond {MOST_EVENTS:,}, so "
            "that its counts are wrong: profile fewer runs."
        )
    runs, counts, totals = 0, Counter[NodePath](), dict[NodePath, float]()
    for name, us in map(_event, events):
        runs += name == _RUN
        if name.endswith(KERNEL_TIME) and (at := where(name.removesuffix(KERNEL_TIME))) is not None:
            counts[at] += 1
            totals[at] = totals.get(at, 0.0) + us
    if not runs:
        raise InvalidProfile("ONNX Runtime's profile has no run of the model in it.")
    inside = dict[NodePath, float]()
    for at, us in totals.items():
        inside[at[:-2]] = inside.get(at[:-2], 0.0) + us
    nodes = {
        at: NodeProfile(counts[at], totals[at], max(totals[at] - inside.get(at, 0.0), 0.0))
        for at in sorted(totals)
    }
    return ModelProfile(model, version, by, runs, nodes)


def _per_run(us: float | None, count: int) -> float | None:
    return us / count if count and us is not None else None


def _sum(one: float | None, other: float | None) -> float | None:
    return None if one is None or other is None else one + other


def _event(event: Any) -> tuple[str, float]:
    if isinstance(event, Mapping):
        name, us = event.get("name"), event.get("dur", 0)
        if isinstance(name, str) and _is_time(us):
            return name, float(us)
    raise InvalidProfile("An event of ONNX Runtime's profile has a name and a duration in µs.")


def _is_time(us: Any) -> bool:
    return isinstance(us, int | float) and not isinstance(us, bool) and 0 <= us <= MOST_COUNT


def _borders(document: Any) -> BorderCosts | None:
    if document is None:
        return None
    names = ("handoff_us", "us_per_mib")
    if not isinstance(document, Mapping) or not all(_is_time(document.get(name)) for name in names):
        raise InvalidProfile("A profile's 'borders' must be 'handoff_us' and 'us_per_mib', in microseconds.")
    return BorderCosts(*(float(document[name]) for name in names))


def _text(document: Mapping[str, Any], name: str) -> str:
    text = document.get(name)
    if not isinstance(text, str) or len(text) > MOST_TEXT or not text.isprintable():
        raise InvalidProfile(f"A profile's {name!r} must be at most {MOST_TEXT} printable characters.")
    return text


def _count(number: Any, least: int, what: str) -> int:
    if type(number) is not int or not least <= number <= MOST_COUNT:
        raise InvalidProfile(f"{what!r} must be a whole number from {least} to 2^53.")
    return number


def _node(row: Any) -> tuple[NodePath, NodeProfile]:
    if not isinstance(row, Mapping):
        raise InvalidProfile("A node of a profile is a JSON object.")
    at = _path(row.get("at"))
    times = [row.get(name) for name in ("total_us", "self_us")]
    if not all(us is None or _is_time(us) for us in times):
        raise InvalidProfile(f"Times of node {unique_name(at)} must be microseconds, or null.")
    return at, NodeProfile(_count(row.get("count"), 0, "count"), *times)


def _path(numbers: Any) -> NodePath:
    is_path = isinstance(numbers, Sequence) and len(numbers) % 2 == 1 and len(numbers) <= MOST_PATH
    if not is_path or not all(type(one) is int and 0 <= one < MOST_COUNT for one in numbers):
        raise InvalidProfile(f"{printable(str(numbers), 40)!r} is not where a node is.")
    return tuple(numbers)
