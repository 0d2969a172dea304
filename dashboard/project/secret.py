"""Django's secret key for an installation that was given none: made once, kept in the state folder."""

from __future__ import annotations

import contextlib
import os
import secrets
import tempfile
from pathlib import Path


def secret_key(path: Path) -> str:
    """Read the key at ``path``, or make it; readable by its owner only."""
    if not path.exists():
        # Put in place when it is whole: who starts at the same moment must not read half a key, or another.
        descriptor, written = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(descriptor, "w") as file:
                file.write(secrets.token_urlsafe(50))
            with contextlib.suppress(FileExistsError):
                os.link(written, path)
        finally:
            Path(written).unlink()
    return path.read_text()
