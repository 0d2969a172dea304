"""The common part of commands."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandError

from catalog.models import Organisation
from catalog.people.members import make_organisation
from catalog.registry import default_organisation
from opatlas.errors import CallerError


class QuickCommand(BaseCommand):
    """A command that runs without Django's checks: they import every page, which takes a second."""

    requires_system_checks: list[str] = []  # type: ignore[assignment]


class CallerCommand(QuickCommand):
    """A command that answers a caller's error with its sentence and no traceback."""

    def execute(self, *args: Any, **options: Any) -> str | None:
        try:
            return super().execute(*args, **options)
        except CallerError as error:
            raise CommandError(str(error)) from error


def owner_named(name: str) -> Organisation:
    """The organisation of this name, made where there is none; without a name the host."""
    if not name:
        return default_organisation()
    return Organisation.objects.filter(name=name.strip()).first() or make_organisation(name)
