"""``manage.py scrub``: compare everything in the artifact store with what was stored, now."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandError, CommandParser

from catalog.best.artifacts import begin_empty
from catalog.best.scrubbing import scrub_all
from catalog.commands import QuickCommand
from catalog.errors import StoreError


class Command(QuickCommand):
    help = "Read every stored artifact; what is damaged or gone is served no longer and built again."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--lost", action="store_true", help="the store's disk is lost for good: begin an empty store"
        )

    def handle(self, *args: Any, lost: bool, **options: Any) -> None:
        if lost:
            begin_empty()
        try:
            compared, damaged = scrub_all()
        except StoreError as error:
            raise CommandError(f"{error} If its disk is lost for good: manage.py scrub --lost") from error
        self.stdout.write(f"{compared} artifacts were compared, {damaged} are damaged.")
