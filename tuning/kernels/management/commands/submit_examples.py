"""``manage.py submit_examples --user ada``: the kernels that come with Opatlas go the way of anybody's."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandParser

from catalog.commands import QuickCommand
from tuning.kernels.management.commands.submit_kernel import find_user
from tuning.kernels.services import submit_examples


class Command(QuickCommand):
    help = "Submit the hand-written kernels that come with Opatlas."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--user", required=True, help="who submits them; somebody else must approve")

    def handle(self, *args: Any, **options: Any) -> None:
        for version in submit_examples(find_user(options["user"])):
            self.stdout.write(f"{version.label}: {version.state}. {version.state_reason}".strip())
