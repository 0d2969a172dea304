"""The database's clock: the only one on which leases are compared, since hosts disagree."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from django.db import InterfaceError, OperationalError, connection
from django.db.models import DateTimeField, Expression, ExpressionWrapper, Q, Value
from django.db.models.functions import Now

from tuning.conf import conf

DATABASE_GONE = (OperationalError, InterfaceError)
"""The database's own trouble (gone, locked, restarting), for which no work is to blame."""

_ASKED = {
    "postgresql": "SELECT STATEMENT_TIMESTAMP()",
    "sqlite": "SELECT STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW')",
}
"""As Django writes ``Now()``."""


def now_in(seconds: float) -> Expression:
    """An expression: that many seconds from the database's now (SQLite's has milliseconds)."""
    return ExpressionWrapper(Now() + Value(timedelta(seconds=seconds)), output_field=DateTimeField())


def database_now() -> datetime:
    """The time by that clock, for computing in Python and storing: one statement."""
    with connection.cursor() as cursor:
        cursor.execute(_ASKED[connection.vendor])
        told = datetime.fromisoformat(str(cursor.fetchone()[0]))
    return told if told.tzinfo else told.replace(tzinfo=UTC)


def alive() -> Q:
    """Those workers that gave a sign of life lately."""
    return Q(stopped_at=None, last_seen_at__gt=now_in(-conf().served_s))
