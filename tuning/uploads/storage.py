"""An upload's bytes: a file of the store, which every node reads, from when it is received until it has
ended."""

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from catalog.conf import conf
from catalog.errors import RequestError, StoreError, TooLarge
from catalog.own_files import share_file, store_folder

logger = logging.getLogger(__name__)

CHUNK_BYTES = 64 << 10
RECEIVE_S = 300.0


class TooSlow(RequestError):
    """A body that takes too long to arrive."""

    status = 408


def path_of(number: int) -> Path:
    return conf().store / "uploads" / f"{number}.upload"


def keep(number: int, read: Callable[[int], bytes], most_bytes: int) -> tuple[int, Any]:
    """Write what is read to the upload's file; its size and SHA-256 (a hash that has seen it).

    Raises :class:`TooLarge`, :class:`TooSlow`, and :class:`StoreError` where it cannot be written.
    """
    path, size, digest = path_of(number), 0, hashlib.sha256()
    try:
        store_folder(path.parent)
        path.unlink(missing_ok=True)  # of another life of this database
        with path.open("xb") as file:
            share_file(path)
            for chunk in _chunks(read):
                size += len(chunk)
                if size > most_bytes:
                    raise too_large(most_bytes)
                digest.update(chunk)
                file.write(chunk)
    except OSError as error:
        raise StoreError(f"The upload could not be stored: {error.strerror or error}.") from error
    return size, digest


def _chunks(read: Callable[[int], bytes]) -> Iterator[bytes]:
    until = time.monotonic() + RECEIVE_S
    while chunk := read(CHUNK_BYTES):
        if time.monotonic() > until:
            raise TooSlow(f"The upload did not arrive within {RECEIVE_S:.0f} s: send it over a faster line.")
        yield chunk


def too_large(most_bytes: int) -> TooLarge:
    return TooLarge(
        f"The body is larger than {most_bytes >> 20} MiB: export the model with generated constants for "
        "weights (their values are not needed), or use manage.py add_model."
    )


def remove(number: int) -> None:
    """Of what has ended. A file that this user may not remove is left to whoever may."""
    try:
        path_of(number).unlink(missing_ok=True)
    except OSError as error:
        logger.warning("Upload %s could not be removed (%s).", number, error)


def kept() -> list[int]:
    """Numbers of the uploads whose bytes are there."""
    return [int(path.stem) for path in path_of(0).parent.glob("*.upload") if path.stem.isdigit()]
