"""Databases of their own for what a bench starts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from bench.servers import PrivatePostgres


@contextmanager
def databases(engine: str, count: int = 1) -> Iterator[list[dict[str, str]]]:
    """``engine``: sqlite or postgres. The variables of so many new ones, while they are there; SQLite's lies
    in the home of whoever is given it."""
    if engine == "sqlite":
        yield [{} for _ in range(count)]
        return
    server = PrivatePostgres()
    try:
        yield [{"DATABASE_URL": server.new_database()} for _ in range(count)]
    finally:
        server.stop()
