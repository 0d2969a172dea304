"""Messages between the laboratory and its processes: small JSON, one packet each, file descriptors beside.

Unix ``SOCK_SEQPACKET`` sockets keep message bounds, and the kernel says which process sent a packet
(``SCM_CREDENTIALS``), translated into the reader's process numbers: that is how the parent learns what a
child inside another PID namespace is called outside. Large things cross in memory files, never in packets.
"""

from __future__ import annotations

import array
import json
import os
import socket
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

MAX_PACKET_BYTES = 64 << 10
MAX_REPLY_BYTES = 64 << 20
MAX_FDS = 8
_CREDENTIALS = struct.Struct("3i")


@dataclass(frozen=True)
class Packet:
    """One message: ``body`` is None at the end of the stream, or where it was no JSON object."""

    body: dict[str, Any] | None
    fds: tuple[int, ...]
    pid: int  # the sender, as numbered here; 0 where unknown
    closed: bool = False


def pair() -> tuple[socket.socket, socket.socket]:
    """Two ends; credentials are switched on for the first, which stays with the parent."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
    return ours, theirs


def send(sock: socket.socket, body: Mapping[str, Any], fds: Sequence[int] = ()) -> None:
    """Send one packet; raises OSError where the other end is gone or the packet is too large."""
    ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
    sock.sendmsg([json.dumps(body).encode()], ancillary)


def receive(sock: socket.socket) -> Packet:
    """Wait for one packet. What cannot be understood comes back with ``body`` None: senders are hostile."""
    room = socket.CMSG_SPACE(MAX_FDS * 4) + socket.CMSG_SPACE(_CREDENTIALS.size)
    data, ancillary, _, _ = sock.recvmsg(MAX_PACKET_BYTES, room)
    fds: list[int] = []
    pid = 0
    for level, kind, payload in ancillary:
        if level != socket.SOL_SOCKET:
            continue
        if kind == socket.SCM_RIGHTS:
            numbers = array.array("i")
            numbers.frombytes(payload[: len(payload) - len(payload) % numbers.itemsize])
            fds.extend(numbers)
        elif kind == socket.SCM_CREDENTIALS:
            pid = _CREDENTIALS.unpack(payload[: _CREDENTIALS.size])[0]
    return Packet(body=_object(data), fds=tuple(fds), pid=pid, closed=not data)


def memory_file(name: str, content: bytes = b"") -> int:
    """A file descriptor of an unnamed memory file that holds ``content``."""
    fd = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    view = memoryview(content)
    while view:
        view = view[os.write(fd, view) :]
    return fd


def read_json(fd: int) -> Any:
    """The JSON in a memory file; raises ValueError where it is too large or not JSON."""
    size = os.fstat(fd).st_size
    if size > MAX_REPLY_BYTES:
        raise ValueError(f"a reply of {size} bytes; at most {MAX_REPLY_BYTES} are read")
    return json.loads(os.pread(fd, size, 0))


def write_json(fd: int, document: Any) -> None:
    """Replace a memory file's content by a JSON document."""
    data = memoryview(json.dumps(document).encode())
    os.ftruncate(fd, 0)
    written = 0
    while written < len(data):
        written += os.pwrite(fd, data[written:], written)


def _object(data: bytes) -> dict[str, Any] | None:
    try:
        body = json.loads(data) if data else None
    except ValueError:
        return None
    return body if isinstance(body, dict) else None
