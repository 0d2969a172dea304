"""Secrets of an installation that was given none: made once, kept in the state folder."""

from __future__ import annotations

import contextlib
import os
import secrets
import tempfile
from collections.abc import Callable
from pathlib import Path


def secret_key(path: Path) -> str:
    """Django's secret key."""
    return made_once(path, lambda: secrets.token_urlsafe(50).encode()).decode()


def made_once(path: Path, make: Callable[[], bytes]) -> bytes:
    """Read what is at ``path``, or make it; readable by its owner only."""
    if not path.exists():
        # Put in place when it is whole: who starts at the same moment must not read half a key, or another.
        descriptor, written = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(make())
            with contextlib.suppress(FileExistsError):
                os.link(written, path)
        finally:
            Path(written).unlink()
    return path.read_bytes()
