"""HTTP to the service: through this machine's sidecar if one has the same login, else by this process's own
connections. Safe in threads and forked processes: each process has its own connections."""

from __future__ import annotations

import logging
import math
import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from opatlas.client.service.login import (
    checked_address,
    is_readable_on_its_way,
    service_at,
    service_of,
)
from opatlas.errors import OpatlasError

if TYPE_CHECKING:
    from urllib3 import BaseHTTPResponse, HTTPConnectionPool

    from opatlas.client.service.ending import EndingPoolManager

log = logging.getLogger("opatlas")

MOST_BYTES = 64 << 20
"""Of one answer's body. Artifacts' files are read in pieces, and bounded by the loader."""
SLOWEST_BYTES_S = 10_000
"""A slower file is given up; the next try continues it."""
_PIECE = 1 << 20
CONNECT_S = 3.0
FIRST_PAUSE_S, LONGEST_PAUSE_S = 5.0, 60.0
"""A sidecar that breaks off or is silent is left alone for so long; twice as long each time. Longer than a
service is at first: that is asked meanwhile."""


class ServiceError(OpatlasError):
    """The service could not be reached, or answered with an error of its own."""


class ServiceWire:
    """Requests to ``url`` with an API ``key``, up to ``most_connections`` at once (the number of threads).
    ``sidecar``: the path of a sidecar's socket, used if its login is the same: ``service`` identifies
    that."""

    def __init__(self, url: str, key: str, *, most_connections: int | None = None) -> None:
        self.url, self._key = checked_address(url, key)
        self.service = service_of(self.url, self._key)
        self.sidecar: Path | None = None
        self._most = most_connections
        self._pid = 0
        self._own: EndingPoolManager | None = None
        self._beside: HTTPConnectionPool | None = None
        self._away_until, self._pause_s = 0.0, FIRST_PAUSE_S

    def close(self) -> None:
        """Close all connections."""
        if self._pid == os.getpid():
            for pool in (self._own, self._beside):
                if pool is not None:
                    pool.clear() if hasattr(pool, "clear") else pool.close()
        self._own = self._beside = None

    def send(
        self, verb: str, path: str, body: bytes | None, headers: Mapping[str, str], timeout_s: float
    ) -> BaseHTTPResponse:
        """The answer with its body unread (:func:`pieces`, :func:`all_of`). Raises :class:`ServiceError`. A
        broken connection is tried once more: the other side may have closed an idle one."""
        import urllib3

        from opatlas.client.service.ending import EndingPoolManager

        if self._pid != os.getpid():
            self._pid, self._own, self._beside = os.getpid(), None, None
        headers = {"Content-Type": "application/json", **headers}
        if self._is_beside():
            try:
                return self._ask_sidecar(verb, path, headers, body, timeout_s)
            except urllib3.exceptions.HTTPError as error:
                if not self._key or isinstance(error, urllib3.exceptions.ReadTimeoutError):
                    raise ServiceError(f"The sidecar at {self.sidecar} does not answer: {error}.") from error
        if not self._key and self.sidecar is not None:
            message = f"There is no API key (OPATLAS_KEY, opatlas login), and no sidecar at {self.sidecar}."
            raise ServiceError(message)
        if self._own is None:
            self._own = EndingPoolManager(
                maxsize=self._most or 8, block=self._most is not None, retries=False
            )
        if self._key:
            _warn_of_readers(self.url)
        headers["Authorization"] = f"Bearer {self._key}"
        try:
            return _twice(self._own, verb, self.url + path, headers, body, timeout_s)
        except urllib3.exceptions.HTTPError as error:
            raise ServiceError(f"The service cannot be reached: {error}.") from error

    def _is_beside(self) -> bool:
        """Whether there is a sidecar for the same service and key."""
        if self.sidecar is None or time.monotonic() < self._away_until:
            return False
        return service_at(self.sidecar) == self.service

    def _ask_sidecar(
        self, verb: str, path: str, headers: Mapping[str, str], body: bytes | None, timeout_s: float
    ) -> BaseHTTPResponse:
        import urllib3

        from opatlas.client.service.unix_socket import SERVICE_HEADER, SocketPool

        if self._beside is None:
            self._beside = SocketPool(str(self.sidecar), maxsize=8, retries=False)
        try:
            headers = {**headers, SERVICE_HEADER: self.service.hex()}
            response = _twice(self._beside, verb, path, headers, body, timeout_s)
        except urllib3.exceptions.HTTPError as error:
            # Nobody at the socket is found out at once, and tried the next time; anything else takes time.
            if not isinstance(error, urllib3.exceptions.NewConnectionError):
                self._away_until = time.monotonic() + self._pause_s
                self._pause_s = min(2 * self._pause_s, LONGEST_PAUSE_S)
            raise
        self._pause_s = FIRST_PAUSE_S
        return response


_warned: set[str] = set()


def _warn_of_readers(url: str) -> None:
    """Once in a process; the job goes on."""
    if url not in _warned:
        _warned.add(url)
        if is_readable_on_its_way(url):
            log.warning(
                "The API key is sent to %s unencrypted, where whoever is on the way can read it: use https://.",
                url,
            )


def _twice(
    pool: Any, verb: str, address: str, headers: Mapping[str, str], body: bytes | None, timeout_s: float
) -> BaseHTTPResponse:
    import urllib3

    end = time.monotonic() + timeout_s

    def once() -> BaseHTTPResponse:
        left_s = max(round(end - time.monotonic(), 3), 0.001)
        given = {"body": body, "preload_content": False, "redirect": False}
        timeout = urllib3.Timeout(connect=min(CONNECT_S, left_s), read=left_s)
        return pool.request(verb, address, headers=headers, timeout=timeout, **given)

    try:
        return once()
    except urllib3.exceptions.ProtocolError:
        return once()


def pieces(response: BaseHTTPResponse, end: float, slowest_bytes_s: float = math.inf) -> Iterator[bytes]:
    """A body as it arrives. It must have ended by ``end`` (on the monotonic clock; later by the time for what
    has come at ``slowest_bytes_s``)."""
    import urllib3

    from opatlas.client.service.ending import end_by

    try:
        end_by(response, end)
        while piece := response.read1(_PIECE, decode_content=True):
            if time.monotonic() > (end := end + len(piece) / slowest_bytes_s):
                response.close()
                raise ServiceError("The service takes too long over its answer.")
            end_by(response, end)
            yield piece
    except urllib3.exceptions.HTTPError as error:
        raise ServiceError(f"The service's answer broke off: {error}.") from error
    finally:
        response.release_conn()


def all_of(response: BaseHTTPResponse, end: float, most_bytes: int = 0) -> bytes:
    """The whole body, of at most ``MOST_BYTES`` unless given; raises :class:`ServiceError` for an endless
    one."""
    most_bytes, data = most_bytes or MOST_BYTES, bytearray()
    for piece in pieces(response, end):
        data += piece
        if len(data) > most_bytes:
            response.close()
            raise ServiceError(f"The service's answer is larger than {most_bytes} bytes.")
    return bytes(data)
