"""``manage.py restore FOLDER``: what ``manage.py backup`` wrote, in an empty home and database."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from django.core.management.base import CommandError, CommandParser

from catalog.commands import QuickCommand
from dashboard.run.restoring import NotRestored, restore


class Command(QuickCommand):
    help = "Compare a backup with its manifest, and fill this empty home and database from it."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("source", type=Path, help="the folder or file that `manage.py backup` wrote")

    def handle(self, *args: Any, source: Path, **options: Any) -> None:
        try:
            self.stdout.write(f"Restored: {restore(source.absolute())}.")
        except NotRestored as error:
            raise CommandError(str(error)) from error
