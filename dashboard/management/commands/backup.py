"""``manage.py backup FOLDER``: everything that this service has, while it runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from django.core.management.base import CommandError, CommandParser

from catalog.commands import QuickCommand
from dashboard.run.backing_up import NotBackedUp, back_up


class Command(QuickCommand):
    help = "Copy rows, stored files, this machine's journal and keys into a new folder or .tar file."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("destination", type=Path, help="a new folder, or a new file ending in .tar")

    def handle(self, *args: Any, destination: Path, **options: Any) -> None:
        try:
            self.stdout.write(f"Backed up: {back_up(destination.absolute())}. It holds keys: keep it safe.")
        except NotBackedUp as error:
            raise CommandError(str(error)) from error
