"""``manage.py export_odds``: what this service's contests teach, for a new one to begin with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from django.core.management.base import CommandParser

from catalog.commands import QuickCommand
from tuning.explore.trial_history import GIVEN, export_odds


class Command(QuickCommand):
    help = (
        "Write what this service's contests teach about candidates' chances, by candidate and kind of "
        f"operator, to a file: in place of tuning/explore/{GIVEN.name} a new service begins with it. Nothing "
        "in it names an operator or who asked."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("file", type=Path, help="where to")

    def handle(self, *args: Any, file: Path, **options: Any) -> None:
        self.stdout.write(f"{export_odds(file)} rows written to {file}")
