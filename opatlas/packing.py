"""JSON documents as few bytes, and back within bounds. PURE."""

from __future__ import annotations

import json
import zlib
from typing import Any


def packed(document: Any) -> bytes:
    """Canonical enough to store: compressed JSON without spaces."""
    return zlib.compress(json.dumps(document, separators=(",", ":")).encode(), 6)


def unpacked(data: bytes, most_bytes: int) -> Any:
    """Of what :func:`packed` gave. Raises ValueError for what is damaged, or has more bytes of JSON."""
    opened = zlib.decompressobj()
    try:
        text = opened.decompress(data, most_bytes)
    except zlib.error as error:
        raise ValueError(str(error)) from error
    if opened.unconsumed_tail:
        raise ValueError(f"it has more than {most_bytes} bytes")
    return json.loads(text)
