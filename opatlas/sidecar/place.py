"""Where a sidecar is found: a socket, and beside it a card that says whose login it has.

The card is locked as long as the sidecar lives, so that there is one at a place, whatever was killed before.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from opatlas.client.service.login import card_path
from opatlas.errors import CallerError

LONGEST = 107
"""Bytes of a socket's path: Linux takes no more."""


@contextlib.contextmanager
def claimed(socket: Path, service: bytes) -> Iterator[None]:
    """This place is ours: what a killed sidecar left is gone, the card is written (once a socket may be made
    there); both files go with us. Raises :class:`opatlas.errors.CallerError` where another one serves."""
    if len(os.fsencode(socket)) > LONGEST:
        raise CallerError(f"The path {socket} is too long for a socket: at most {LONGEST} bytes.")
    try:
        socket.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        card = _locked(card_path(socket))
    except OSError as error:
        raise CallerError(f"No sidecar can be at {socket}: {error}.") from error
    if card is None:
        raise CallerError(f"A sidecar serves {socket} already{_who(socket)}: end it first, or name another.")
    with os.fdopen(card, "w") as stream:
        try:
            if socket.exists() and not stat.S_ISSOCK(socket.lstat().st_mode):
                raise CallerError(f"{socket} is a file, and no sidecar's socket: name another.")
            socket.unlink(missing_ok=True)
            json.dump({"service": service.hex(), "process": os.getpid()}, stream)
            stream.flush()
            yield
            socket.unlink(missing_ok=True)
        finally:
            card_path(socket).unlink(missing_ok=True)  # while it is locked: the next one begins a new file


def _locked(path: Path) -> int | None:
    """The file's descriptor, empty and locked; None where somebody else has it."""
    while True:
        opened = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(opened)
            return None
        with contextlib.suppress(FileNotFoundError):
            if os.fstat(opened).st_ino == path.stat().st_ino:
                os.truncate(opened, 0)
                return opened
        os.close(opened)  # who had it has removed it meanwhile


def _who(socket: Path) -> str:
    try:
        return f" (process {int(json.loads(card_path(socket).read_bytes())['process'])})"
    except (OSError, ValueError, KeyError, TypeError):
        return ""
