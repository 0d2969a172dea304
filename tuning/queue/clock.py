"""The database's clock: the only one on which leases are compared, since hosts disagree."""

from __future__ import annotations

from datetime import datetime, timedelta

from django.db import InterfaceError, OperationalError, connection
from django.db.models import DateTimeField, Expression, ExpressionWrapper, Value
from django.db.models.functions import Now
from django.utils import timezone
from django.utils.dateparse import parse_datetime

DATABASE_GONE = (OperationalError, InterfaceError)
"""The database's own trouble (gone, locked, restarting): nobody's work is to blame for it."""


def now_in(seconds: float) -> Expression:
    """An expression: that many seconds from the database's now (SQLite's has milliseconds)."""
    return ExpressionWrapper(Now() + Value(timedelta(seconds=seconds)), output_field=DateTimeField())


def database_now() -> datetime:
    """The database's now, as an aware time in UTC."""
    with connection.cursor() as cursor:
        if connection.vendor == "sqlite":
            cursor.execute("SELECT STRFTIME('%Y-%m-%d %H:%M:%f', 'NOW')")
        else:
            cursor.execute("SELECT STATEMENT_TIMESTAMP()")
        value = cursor.fetchone()[0]
    if isinstance(value, str):
        value = parse_datetime(value)
    return value if timezone.is_aware(value) else timezone.make_aware(value, timezone.get_fixed_timezone(0))
