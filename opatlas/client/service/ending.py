"""HTTP connections whose answers end in time, even byte by byte or with endless ``100 Continue``.

A socket's timeout bounds each read alone: a server that sends one byte now and then could keep a job for
days.
"""

from __future__ import annotations

import io
import math
import socket
import time
from typing import Any, cast

from urllib3 import HTTPConnectionPool, HTTPResponse, HTTPSConnectionPool, PoolManager
from urllib3.connection import HTTPConnection, HTTPSConnection


class EndingReader(io.RawIOBase):
    """Reads a socket ``until`` a time on the monotonic clock; then raises TimeoutError."""

    def __init__(self, raw: io.RawIOBase, connected: socket.socket) -> None:
        self._raw, self._socket = raw, connected
        self._each_s = connected.gettimeout()
        self.until = math.inf if self._each_s is None else time.monotonic() + self._each_s

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        left_s = self.until - time.monotonic()
        if left_s <= 0:
            raise TimeoutError("the answer does not end")
        if self._each_s is not None and left_s < self._each_s:
            self._socket.settimeout(left_s)
            try:
                return self._raw.readinto(buffer)
            finally:
                self._socket.settimeout(self._each_s)  # what is sent next has its time again
        return self._raw.readinto(buffer)

    def close(self) -> None:
        self._raw.close()
        super().close()


class _Ending:
    """A connection whose answers have ``reader``: the head has to come within the time of one read."""

    _reader: EndingReader

    def getresponse(self) -> HTTPResponse:
        answer = super().getresponse()  # type: ignore[misc]
        answer.reader = self._reader
        return cast(HTTPResponse, answer)

    def response_class(self, connected: socket.socket, *given: Any, **named: Any) -> Any:
        begun = HTTPConnection.response_class(connected, *given, **named)
        self._reader = EndingReader(begun.fp.detach(), connected)
        begun.fp = io.BufferedReader(self._reader)
        return begun


class _EndingConnection(_Ending, HTTPConnection):  # type: ignore[misc]
    pass


class _EndingHTTPSConnection(_Ending, HTTPSConnection):  # type: ignore[misc]
    pass


class ServicePool(HTTPConnectionPool):
    ConnectionCls = _EndingConnection


class ServiceHTTPSPool(HTTPSConnectionPool):
    ConnectionCls = _EndingHTTPSConnection


class EndingPoolManager(PoolManager):
    """A :class:`urllib3.PoolManager` of such connections; see :func:`end_by`."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.pool_classes_by_scheme = {"http": ServicePool, "https": ServiceHTTPSPool}


def end_by(response: Any, until: float) -> None:
    """The rest of an answer's body has to come by then. A sidecar is this user's own, and may take as long as
    it keeps sending."""
    if (reader := getattr(response, "reader", None)) is not None:
        reader.until = until
