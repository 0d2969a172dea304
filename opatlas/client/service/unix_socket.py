"""urllib3 over the UNIX socket of a sidecar, which must be this user's own."""

from __future__ import annotations

import os
import socket
import struct
from typing import Any

from urllib3 import HTTPConnectionPool
from urllib3.connection import HTTPConnection
from urllib3.exceptions import NewConnectionError

SERVICE_HEADER = "Opatlas-Service"
"""In requests to a sidecar and its answers: its address and key, as 32 hexadecimal digits."""


def peer_user(connected: socket.socket) -> int:
    """The user at the other end of a UNIX socket."""
    size = struct.calcsize("3i")
    _, user, _ = struct.unpack("3i", connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size))
    return int(user)


def _connect(made: socket.socket, path: str, timeout_s: float | None) -> None:
    """If the other end's queue is full, wait too: a socket with Python's own timeout does not block, and
    gives up at once (EAGAIN)."""
    if timeout_s is not None:
        seconds, microseconds = divmod(max(1, int(timeout_s * 1e6)), 1_000_000)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", seconds, microseconds))
    made.connect(path)
    made.settimeout(timeout_s)


class SocketConnection(HTTPConnection):
    """Its "host" is the path of the socket."""

    def __init__(self, path: str, **options: Any) -> None:
        super().__init__("sidecar", **options)
        self._path = path

    def _new_conn(self) -> socket.socket:
        made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            _connect(made, self._path, self.timeout)
            if peer_user(made) != os.geteuid():
                raise OSError("it is another user's")
        except OSError as error:
            made.close()
            raise NewConnectionError(self, f"{self._path}: {error}") from error
        return made


class SocketPool(HTTPConnectionPool):
    def __init__(self, path: str, **options: Any) -> None:
        super().__init__("sidecar", **options)
        self._path = path

    def _new_conn(self) -> SocketConnection:  # type: ignore[override]
        self.num_connections += 1
        return SocketConnection(self._path, timeout=self.timeout.connect_timeout)
