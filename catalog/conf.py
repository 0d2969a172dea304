"""The catalogue's settings, each with its default. Set them in Django's settings or in the environment."""

from __future__ import annotations

import os
import socket
from pathlib import Path

from django.conf import settings

MAX_OPERATORS = 1024
"""Operators in one lookup; as many related ones may come with them."""

MAX_BODY_BYTES = 1 << 20
"""Bytes of one API request, uploads of models aside."""

MAX_WAIT_S = 30.0
"""The longest that a lookup may ask to wait."""

WAIT_POLL_S = 0.1


def home() -> Path:
    return Path(settings.OPATLAS_HOME)


def store() -> Path:
    return Path(settings.OPATLAS_STORE)


def journal_folder() -> Path:
    return home() / "journal"


def node() -> str:
    """This machine's name in the journal."""
    return str(getattr(settings, "OPATLAS_NODE", "") or socket.gethostname())[:60]


def max_operator_bytes() -> int:
    """The most memory one operator may need: a quarter of the machine's, unless OPATLAS_MAX_OPERATOR_BYTES
    says otherwise (reference, default and candidate each hold its tensors)."""
    given = getattr(settings, "OPATLAS_MAX_OPERATOR_BYTES", None) or os.environ.get(
        "OPATLAS_MAX_OPERATOR_BYTES"
    )
    if given:
        return int(given)
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 4


def max_waiters() -> int:
    """Requests of one process that may wait at a time; one more is answered at once."""
    return int(getattr(settings, "OPATLAS_MAX_WAITERS", 4))


def journal_segment_bytes() -> int:
    """A journal file that has grown to this size is closed and a new one is begun."""
    return int(getattr(settings, "OPATLAS_JOURNAL_SEGMENT_BYTES", 8 << 20))
