"""A port that is handed on to one of this machine's own: so a node elsewhere reaches a private server."""

from __future__ import annotations

import socket
import threading
from contextlib import AbstractContextManager, suppress


class Relay(AbstractContextManager["Relay"]):
    """Listens at ``host``, on ``port``; connects to ``to`` on 127.0.0.1."""

    def __init__(self, host: str, to: int) -> None:
        self._to = to
        self._server = socket.create_server((host, 0))
        self.port = self._server.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def __exit__(self, *exc: object) -> None:
        self._server.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._server.accept()
                near.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
                try:
                    far = socket.create_connection(("127.0.0.1", self._to), timeout=5)
                except OSError:
                    near.close()
                    continue
                far.settimeout(None)
                for pair in ((near, far), (far, near)):
                    threading.Thread(target=_pump, args=pair, daemon=True).start()


def _pump(source: socket.socket, sink: socket.socket) -> None:
    with suppress(OSError):
        while chunk := source.recv(1 << 16):
            sink.sendall(chunk)
    for end in (source, sink):
        with suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)
