"""Everything that a home of 7fa76a5 holds, taken into this version's empty database and state folder.

Migrations were begun anew after 7fa76a5, so that its databases are not migrated: their rows are read, and
written as this version writes them. The old home is only read.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import Any
from urllib.parse import quote

from django.apps import apps
from django.contrib.auth.models import Permission
from django.contrib.contenttypes.models import ContentType
from django.core.management.color import no_style
from django.db import DatabaseError, IntegrityError, connection, connections, models, transaction
from django.db.backends.sqlite3.base import DatabaseWrapper
from django.db.models.expressions import RawSQL

from catalog.best.artifacts import store_file
from catalog.best.stages import mark_defaults
from catalog.conf import conf as catalog_conf
from catalog.conf import journal_folder
from catalog.errors import StoreError
from catalog.models import JournalSegment, Recall
from catalog.usage import journal
from dashboard.notifications.models import Subscription
from dashboard.run.keys import copy_private, key_places, may_give_way
from tuning.models import Exploration
from tuning.queue.reached import tell_stage_of

DATABASE = "opatlas.sqlite3"
WRITTEN_BY = {
    ("catalog", "0014_winners_by_method"),
    ("tuning", "0007_explorations_of_state"),
    ("kernels", "0001_kernels"),
    ("billing", "0003_ledger_by_kind"),
    ("notifications", "0001_subscriptions"),
    ("webhooks", "0002_webhooks_by_state"),
    ("operation", "0001_operation"),
}
"""The last migrations of 7fa76a5: a database of before has less than is read here."""

_OWN_TABLES = {"django_migrations", "sqlite_sequence"}  # what a database says of itself
_MADE_BY_MIGRATING = (Permission, ContentType)  # in any new database; the old one's numbers are kept
_WRITTEN_BY_TRIGGERS = (Recall,)  # by migrating too
_TOLD_BY = {"by_page": "page", "by_email": "email", "by_webhook": "webhook", "by_push": "push"}
"""Columns of a subscription then; one list of channels now."""
_USAGE = "FROM catalog_usage u JOIN {0} x ON x.id = u.{1} WHERE u.id = usage_id"
_SAID_THEN = {
    "billing_ledgerentry": {
        "operator_key": f"COALESCE((SELECT x.key {_USAGE.format('catalog_operator', 'operator_id')}), '')",
        "job_name": f"COALESCE((SELECT x.name {_USAGE.format('catalog_job', 'job_id')}), '')",
    }
}
"""By table: fields of later, and where the old database says what stands in them."""
_MIGRATED_SINCE = (
    ("tuning.kernels.migrations.0005_made_by_number", "bind"),
    ("dashboard.billing.migrations.0010_purchases_of_nothing", "end"),
)
"""What migrations do to rows of before: an adopted home's come after them."""
_BATCH = 500
_OLD = "adopted"


class NotAdopted(Exception):
    """One sentence that says why, and what would be right. Nothing was changed."""


def adopt(home: Path, store: Path | None = None) -> str:
    """Take all rows, artifacts, keys and undrained journals of the old ``home``; says how many they were.

    ``store``: where its artifacts lie, if not in ``home``. Raises :class:`NotAdopted`.
    """
    folder = store or home / "artifacts"
    with _opened(home) as old:
        _check_old(old, home)
        _check_new()
        segments = _closed_segments(home)
        keys = _keys(home)
        try:
            files = [store_file(path.parent, path.name, path.name) for path in _stored(folder)]
            with transaction.atomic():
                rows = _copy_rows(old)
                connection.check_constraints()
                # A machine's journals are drained under its name, which need not be the old one's.
                names = [path.name for path in segments]
                JournalSegment.objects.filter(segment__in=names).update(node=catalog_conf().node)
                for source, destination in keys:
                    copy_private(source, destination)
                for source in segments:
                    copy_private(source, journal_folder() / source.name)
        except (IntegrityError, StoreError, OSError) as error:
            raise NotAdopted(f"{home} cannot be taken over: {error}") from error
    ContentType.objects.clear_cache()
    return f"{rows} rows, {len(files)} stored files ({sum(files) / 1e6:.1f} MB), {len(segments)} journals"


@contextmanager
def _opened(home: Path) -> Iterator[Any]:
    """The old database as one of Django's, without a write even to its folder."""
    path = home / DATABASE
    if not path.is_file():
        raise NotAdopted(f"{home} is no home of 7fa76a5: it has no {DATABASE}.")
    written_ahead = path.with_name(f"{DATABASE}-wal")
    unclean = written_ahead.exists() and written_ahead.stat().st_size
    # immutable: SQLite makes no files beside; but then it does not read those that lie there either.
    name = f"file:{quote(str(path))}?mode=ro" + ("" if unclean else "&immutable=1")
    old = DatabaseWrapper(connections.settings["default"] | {"NAME": name, "OPTIONS": {"uri": True}}, _OLD)
    connections[_OLD] = old
    try:
        yield old
    finally:
        old.close()
        del connections[_OLD]


def _check_old(old: Any, home: Path) -> None:
    try:
        with old.cursor() as cursor:
            tables = set(old.introspection.table_names(cursor))
            applied: set[Any] = set()
            if "django_migrations" in tables:
                cursor.execute("SELECT app, name FROM django_migrations")
                applied = set(cursor.fetchall())
    except DatabaseError as error:
        raise NotAdopted(f"{home / DATABASE} cannot be read as a database: {error}.") from error
    if not applied >= WRITTEN_BY:
        raise NotAdopted(
            f"{home / DATABASE} was not written by 7fa76a5: start that version on it once, first."
        )
    unknown = sorted(tables - {model._meta.db_table for model in _models()} - _OWN_TABLES)
    if unknown:
        raise NotAdopted(f"{home / DATABASE} has tables that nothing here reads: {', '.join(unknown)}.")


def _check_new() -> None:
    filled = [
        model._meta.db_table
        for model in _models()
        if model not in (*_MADE_BY_MIGRATING, *_WRITTEN_BY_TRIGGERS) and model._base_manager.exists()
    ]
    if filled:
        raise NotAdopted(
            f"The new database is not empty ({', '.join(filled[:3])}): adopt before anything else, with "
            "another OPATLAS_HOME or DATABASE_URL."
        )


def _models() -> list[type[models.Model]]:
    return [model for model in apps.get_models(include_auto_created=True) if model._meta.managed]


def _copy_rows(old: Any) -> int:
    for made in _MADE_BY_MIGRATING:
        made.objects.all().delete()
    total = sum(_copy_table(old, model) for model in _models())
    _copy_channels(old)
    mark_defaults()
    for module, name in _MIGRATED_SINCE:
        getattr(import_module(module), name)(apps, None)
    for row in Exploration.objects.all().iterator(_BATCH):
        tell_stage_of(row)
    with connection.cursor() as cursor:
        for statement in connection.ops.sequence_reset_sql(no_style(), _models()):
            cursor.execute(statement)
    return total


def _copy_channels(old: Any) -> None:
    with old.cursor() as cursor:
        cursor.execute(f"SELECT id, {', '.join(_TOLD_BY)} FROM {Subscription._meta.db_table}")
        for pk, *ticked in cursor.fetchall():
            names = [name for name, on in zip(_TOLD_BY.values(), ticked, strict=True) if on]
            Subscription.objects.filter(pk=pk).update(told_by=names)


def _copy_table(old: Any, model: type[models.Model]) -> int:
    table, fields = model._meta.db_table, model._meta.concrete_fields
    with old.cursor() as cursor:
        if table not in old.introspection.table_names(cursor):
            return 0  # of what came later
        kept = {column.name for column in old.introspection.get_table_description(cursor, table)}
    said_then = _SAID_THEN.get(table, {})
    kept -= _TOLD_BY.keys()
    if lost := sorted(kept - {field.column for field in fields}):
        raise NotAdopted(f"The table {table} has columns that nothing here reads: {', '.join(lost)}.")
    names = [field.attname for field in fields if field.column in kept]
    said: Any = {f"old_{name}": RawSQL(sql, ()) for name, sql in said_then.items()}
    query = model._base_manager.using(_OLD).annotate(**said).order_by("pk")
    rows = query.values_list(*names, *said).iterator(_BATCH)
    names += said_then
    size = connection.ops.bulk_batch_size(fields, range(_BATCH))
    total = 0
    while batch := [model(**dict(zip(names, row, strict=True))) for row in islice(rows, size)]:
        # raw, as fixtures are loaded: `auto_now` leaves the times alone. bulk_create knows no such thing.
        model._base_manager._insert(batch, fields, raw=True)  # type: ignore[attr-defined]
        total += len(batch)
    return total


def _stored(folder: Path) -> list[Path]:
    """The store's files, which are named by their content; ``tmp`` has none."""
    return sorted(path for path in folder.glob("??/??/*") if path.is_file())


def _closed_segments(home: Path) -> list[Path]:
    segments = sorted((home / "journal").glob(f"*{journal.SUFFIX}"))
    if not all(map(journal.is_closed, segments)):
        raise NotAdopted(f"The service still runs in {home}: stop it first.")
    return segments


def _keys(home: Path) -> list[tuple[Path, Path]]:
    """Where each key lies and belongs."""
    keys = [(home / name, path) for name, path in key_places().items() if (home / name).exists()]
    for source, destination in keys:
        if not may_give_way(destination, source.read_bytes()):
            raise NotAdopted(f"{destination} is another key than the old home's: move it away first.")
    return keys
