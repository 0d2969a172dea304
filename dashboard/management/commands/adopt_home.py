"""``manage.py adopt_home OLD_FOLDER``: what a service of 7fa76a5 knew, in a new home."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from django.core.management.base import CommandError, CommandParser

from catalog.commands import QuickCommand
from dashboard.run.adopting import NotAdopted, adopt
from dashboard.run.migrating import migrate


class Command(QuickCommand):
    help = "Fill this new, empty home from the OPATLAS_HOME of a stopped service of 7fa76a5."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("home", type=Path, help="the old OPATLAS_HOME; it is only read")
        parser.add_argument("--store", type=Path, help="its artifacts (OPATLAS_STORE), if not in the home")

    def handle(self, *args: Any, home: Path, store: Path | None, **options: Any) -> None:
        migrate()
        try:
            self.stdout.write(f"Taken over: {adopt(home.resolve(), store)}.")
        except NotAdopted as error:
            raise CommandError(str(error)) from error
