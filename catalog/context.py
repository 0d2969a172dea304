"""Fields that all log lines of a piece of work carry: the request's id, the exploration's. PURE."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar

_NOTHING: Mapping[str, object] = {}
_fields: ContextVar[Mapping[str, object]] = ContextVar("opatlas_log_context", default=_NOTHING)


@contextmanager
def added_log_fields(**fields: object) -> Iterator[None]:
    """Every log line from inside carries these fields."""
    token = _fields.set({**_fields.get(), **fields})
    try:
        yield
    finally:
        _fields.reset(token)


def log_fields() -> Mapping[str, object]:
    """The fields that hold here."""
    return _fields.get()
