"""Synchronous or asynchronous: what launching an operator on a device means for who launches it. PURE.

Data per operator type and device; a copy between memories is a kernel of its own and has lines of its own.
The document that this follows says which streams and threads either kind gets, and breaks off before it says
which operators are of which kind: the lines and their reasons are ours.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from opatlas.identity.place.kinds import DeviceKind


class Manner(Enum):
    """Whether who launches goes on when the kernel has ended, or at once."""

    SYNC = "sync"
    ASYNC = "async"


@dataclass(frozen=True, slots=True)
class Classified:
    """A manner, and why it is this one."""

    manner: Manner
    reason: str


_OPERATORS = """
*                  host    sync   the thread that calls it computes it
*                  device  async  a launch returns before its kernel has run
Compress           device  sync   only the device knows how large its output is; the host allocates it
NonMaxSuppression  device  sync   only the device knows how large its output is; the host allocates it
NonZero            device  sync   only the device knows how large its output is; the host allocates it
Unique             device  sync   only the device knows how large its output is; the host allocates it
If                 device  sync   the host reads which branch is taken before it can launch it
Loop               device  sync   the host reads after each iteration whether there is another
"""
"""Operator type (``*``: all others), where, manner, reason. ``host``: its memory is the host's."""

_COPIES = """
host>host      sync   the thread that calls it copies
host>device    async  whoever reads it next runs on the device, behind it
device>host    sync   whoever reads it next is the host, which has to wait for it
device>device  async  whoever reads it next runs on the device, behind it
"""


def manner_of(op_type: str, device: DeviceKind) -> Classified:
    """Of an ONNX operator type on this kind of device."""
    where = _where(device)
    return _BY_OPERATOR.get((op_type, where)) or _BY_OPERATOR["*", where]


def manner_of_copy(source: DeviceKind, target: DeviceKind) -> Classified:
    """Of a copy from one kind of device's memory to another's."""
    return _BY_COPY[f"{_where(source)}>{_where(target)}"]


def _where(device: DeviceKind) -> str:
    return "device" if device.own_memory else "host"


def _operators() -> dict[tuple[str, str], Classified]:
    lines = (line.split(None, 3) for line in _OPERATORS.strip().splitlines())
    return {(name, where): Classified(Manner(manner), reason) for name, where, manner, reason in lines}


def _copies() -> dict[str, Classified]:
    lines = (line.split(None, 2) for line in _COPIES.strip().splitlines())
    return {way: Classified(Manner(manner), reason) for way, manner, reason in lines}


_BY_OPERATOR, _BY_COPY = _operators(), _copies()
