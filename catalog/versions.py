"""A database that another version of the service has migrated: this one does not begin on it."""

from __future__ import annotations

import pkgutil
from pathlib import Path
from typing import Any

from django.apps import apps
from django.db import DatabaseError, connection
from django.db.migrations.recorder import MigrationRecorder

from opatlas.conf import Misconfigured


class NewerDatabase(Misconfigured):
    """The database has migrations that this version does not know. Nothing was written."""


def refuse_newer_database(**signal: Any) -> None:
    """Raises :class:`NewerDatabase`. A database that does not answer is told by who needs it."""
    try:
        applied = MigrationRecorder(connection).applied_migrations()
    except DatabaseError:
        return
    unknown = sorted(f"{app}.{name}" for app, name in applied if not _is_known(app, name))
    if unknown:
        raise NewerDatabase(
            f"The database belongs to another version, since this one does not know {unknown[-1]}: start "
            "that version again, or name another database (a home of 7fa76a5: manage.py adopt_home)."
        )


def _is_known(app: str, name: str) -> bool:
    """Looks at files' names alone: importing all migrations takes a tenth of a second."""
    if app not in apps.app_configs:
        return True  # of an app that was taken out: its tables concern nobody
    folder = Path(apps.get_app_config(app).path) / "migrations"
    return any(module.name == name for module in pkgutil.iter_modules([str(folder)]))
