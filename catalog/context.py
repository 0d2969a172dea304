"""What the log lines of a piece of work have in common: the request's id, the exploration's. PURE."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar

_NOTHING: Mapping[str, object] = {}
_said: ContextVar[Mapping[str, object]] = ContextVar("opatlas_log_context", default=_NOTHING)


@contextmanager
def saying(**fields: object) -> Iterator[None]:
    """Every log line from inside carries these fields."""
    token = _said.set({**_said.get(), **fields})
    try:
        yield
    finally:
        _said.reset(token)


def said() -> Mapping[str, object]:
    """The fields that hold here."""
    return _said.get()
